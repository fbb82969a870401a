//! Policies with replicas: what a worker sees of changes, and who frees rules that are no longer in force.

use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_firewall::permissions::{AddressChange, PermissionTable};
use weir_firewall::replicas::{Shard, Shared};
use weir_firewall::rules::RuleList;
use weir_firewall::{Classifier, Counters, Policy, PolicyChange, Rules};

#[derive(Debug)]
struct List(Classifier);

impl Rules for List {
    fn classifier(&self) -> &Classifier {
        &self.0
    }
}

fn list(text: &str) -> Arc<List> {
    let list = RuleList::parse(text, &mut |_| unreachable!("no sets")).unwrap();
    Arc::new(List(Classifier::new(list).unwrap()))
}

fn shared(text: &str, room: usize) -> Arc<Shared<Policy<List>>> {
    Shared::new(
        Policy::new(Some(PermissionTable::new(100, true, 1)), list(text)),
        room,
    )
}

#[test]
fn rules_are_freed_by_who_changes_them_and_not_by_workers() {
    let shared = shared("pass tcp\n", 4);
    let mut workers = [shared.worker(Shard::ALL), shared.worker(Shard::ALL)];
    let first = Arc::downgrade(&workers[0].value().rules);
    let new = list("drop tcp\n");
    let second: Weak<List> = Arc::downgrade(&new);
    let number = shared.apply(&PolicyChange::Rules(new)).unwrap();
    workers[0].begin();
    assert_eq!(workers[0].value().rules.0.list().rules[0].text, "drop tcp");
    assert_eq!(
        workers[1].value().rules.0.list().rules[0].text,
        "pass tcp",
        "in the middle of a batch nothing changes"
    );
    workers[0].end();
    workers[1].take_up();
    // No worker has the first rules any more, and none has freed them.
    assert_eq!(first.strong_count(), 1);
    assert!(shared.wait(number, Duration::from_secs(5)));
    assert_eq!(first.strong_count(), 0, "freed by the one who waits");
    // One that lags holds what it judges by.
    for text in ["pass udp\n", "drop udp\n"] {
        shared.apply(&PolicyChange::Rules(list(text))).unwrap();
        workers[0].take_up();
    }
    assert!(second.strong_count() > 0);
    workers[1].take_up();
    assert_eq!(workers[1].value().rules.0.list().rules[0].text, "drop udp");
    assert!(shared.wait(3, Duration::from_secs(5)));
    assert_eq!(second.strong_count(), 0);
}

#[test]
fn changes_of_permissions_and_rules_have_one_order() {
    let shared = shared("pass tcp\n", 8);
    let mut worker = shared.worker(Shard::ALL);
    let lines = [
        "ban 192.0.2.7",
        "ban 2001:db8::7",
        "unban 192.0.2.7",
        "refuse 10.0.0.5 from 10.1.0.0/16,10.3.0.0/16",
    ];
    let mut number = 0;
    for line in lines {
        for change in AddressChange::parse(line).unwrap() {
            number = shared.apply(&PolicyChange::Address(change)).unwrap();
        }
        shared
            .apply(&PolicyChange::Rules(list("drop tcp\n")))
            .unwrap_or_else(|why| panic!("{line}: {why}"));
        worker.take_up();
    }
    assert_eq!(number, 8);
    let table = worker.value().permissions.as_ref().unwrap();
    assert_eq!(
        table.banned().collect::<Vec<_>>(),
        ["2001:db8::7".parse::<std::net::IpAddr>().unwrap()]
    );
    let [there, within, other] =
        [[10, 0, 0, 5], [10, 3, 9, 9], [10, 2, 0, 1]].map(u32::from_be_bytes);
    assert!(table.v4.denies(within, there).is_some() && table.v4.denies(other, there).is_none());
}

/// Changes of lines of a permission table.
fn changes(lines: &[String]) -> Vec<PolicyChange<List>> {
    let parsed = lines
        .iter()
        .flat_map(|line| AddressChange::parse(line).unwrap());
    parsed.map(PolicyChange::Address).collect()
}

#[test]
fn of_changes_of_one_step_workers_see_all_or_none() {
    let shared = shared("pass tcp\n", 64);
    let mut worker = shared.worker(Shard::ALL);
    let judge = std::thread::spawn({
        let mut worker = shared.worker(Shard::ALL);
        move || {
            let (mut seen, mut steps) = (0, 0);
            while seen < 500 {
                let number = worker.begin();
                let table = worker.value().permissions.as_ref().unwrap();
                let banned = table.banned().count() as u64;
                assert_eq!(
                    banned,
                    if number / 9 % 2 == 1 { 9 } else { 0 },
                    "a part of a step, at change {number}"
                );
                assert_eq!(number % 9, 0, "a number within a step");
                steps += u64::from(number / 9 > seen);
                seen = number / 9;
                worker.end();
            }
            steps
        }
    });
    // Each step has nine changes, of both families.
    let lines = |word: &str| {
        [
            format!("{word} 192.0.2.0/29"),
            format!("{word} 2001:db8::7"),
        ]
    };
    for step in 0..500 {
        let step = changes(&lines(if step % 2 == 0 { "ban" } else { "unban" }));
        worker.take_up();
        while shared.apply_all(&step).is_err() {
            std::thread::yield_now();
        }
    }
    assert!(judge.join().unwrap() > 1, "the judge came too late");
}

#[test]
fn a_step_without_room_for_all_of_it_changes_nothing() {
    // Room for a hundred addresses of a family; of the log, for 64 changes.
    let shared = shared("pass tcp\n", 64);
    let mut worker = shared.worker(Shard::ALL);
    let lines = |lines: &[&str]| {
        changes(
            &lines
                .iter()
                .map(|line| line.to_string())
                .collect::<Vec<_>>(),
        )
    };
    let mut apply = |texts: &[&str]| {
        worker.take_up();
        let before = shared.with(|policy| policy.permissions.as_ref().unwrap().banned().count());
        let applied = shared.apply_all(&lines(texts));
        let after = shared.with(|policy| policy.permissions.as_ref().unwrap().banned().count());
        assert!(
            applied.is_ok() || before == after,
            "a refused step changed something"
        );
        applied.map_err(|why| why.to_string())
    };
    assert_eq!(apply(&["ban 10.0.0.0/26"]), Ok(64));
    assert!(
        apply(&["ban 10.0.1.0/26", "ban 10.0.2.0"])
            .unwrap_err()
            .contains("0 changes behind")
    );
    let full = apply(&["ban 2001:db8::1", "ban 10.0.1.0-10.0.1.36"]).unwrap_err();
    assert!(full.contains("100 addresses"), "{full}");
    // What is there already, or twice, takes no room.
    assert_eq!(
        apply(&[
            "ban 10.0.0.0-10.0.0.9",
            "ban 10.0.1.0-10.0.1.17",
            "ban 10.0.1.0-10.0.1.17"
        ]),
        Ok(110)
    );
    assert_eq!(apply(&["ban 10.0.1.18-10.0.1.35"]), Ok(128));
    assert!(apply(&["unban 10.0.0.1", "ban 10.0.3.1"]).is_err());
    assert_eq!(apply(&[]), Ok(128));
    // An address has room for its accepted ranges too; the other family has room of its own.
    assert!(apply(&["refuse 10.9.9.9 from any"]).is_err());
    assert_eq!(
        apply(&[
            "refuse 10.0.0.2 from any",
            "unban 10.0.0.1",
            "ban 2001:db8::1"
        ]),
        Ok(131)
    );
}

#[test]
fn rules_of_the_same_text_keep_their_counts() {
    let count = |packets: u64| {
        let mut count = weir_firewall::RuleCount::default();
        (count.all.packets, count.all.bytes) = (packets, packets * 10);
        count
    };
    let mut counters = Counters::new(3);
    counters.rules = vec![count(1), count(2), count(4)];
    counters.carry(&[Some(1), None, Some(0)], 2);
    let packets = |counters: &Counters| {
        counters
            .rules
            .iter()
            .map(|rule| rule.all.packets)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (
            packets(&counters),
            counters.earlier.packets,
            counters.earlier.bytes
        ),
        (vec![4, 1], 2, 20)
    );
    // Without places, all were of earlier lists.
    counters.carry(&[], 1);
    assert_eq!((packets(&counters), counters.earlier.packets), (vec![0], 7));
}
