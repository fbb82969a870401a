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
    Shared::new(Policy::new(Some(PermissionTable::new(100, true, 1)), list(text)), room)
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
    assert_eq!(workers[1].value().rules.0.list().rules[0].text, "pass tcp", "in the middle of a batch nothing changes");
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
    let lines = ["ban 192.0.2.7", "ban 2001:db8::7", "unban 192.0.2.7", "refuse 10.0.0.5 from 10.1.0.0/16,10.3.0.0/16"];
    let mut number = 0;
    for line in lines {
        for change in AddressChange::parse(line).unwrap() {
            number = shared.apply(&PolicyChange::Address(change)).unwrap();
        }
        shared.apply(&PolicyChange::Rules(list("drop tcp\n"))).unwrap_or_else(|why| panic!("{line}: {why}"));
        worker.take_up();
    }
    assert_eq!(number, 8);
    let table = worker.value().permissions.as_ref().unwrap();
    assert_eq!(table.banned().collect::<Vec<_>>(), ["2001:db8::7".parse::<std::net::IpAddr>().unwrap()]);
    let [there, within, other] = [[10, 0, 0, 5], [10, 3, 9, 9], [10, 2, 0, 1]].map(u32::from_be_bytes);
    assert!(table.v4.denies(within, there).is_some() && table.v4.denies(other, there).is_none());
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
    let packets = |counters: &Counters| counters.rules.iter().map(|rule| rule.all.packets).collect::<Vec<_>>();
    assert_eq!((packets(&counters), counters.earlier.packets, counters.earlier.bytes), (vec![4, 1], 2, 20));
    // Without places, all were of earlier lists.
    counters.carry(&[], 1);
    assert_eq!((packets(&counters), counters.earlier.packets), (vec![0], 7));
}
