//! A firewall behind a filter, with splits, outputs of other packets, and ends in the middle of a batch: against a naive twin.

use crate::running::{Collect, Got, LONG, captures, end, files, setup};
use std::sync::Arc;
use weir_engine::control::ChangeError;
use weir_engine::firewall::changes::NewRules;
use weir_engine::firewall::{Change, Firewall, Policy, RuleSet, RuleSettings, SharedPolicy};
use weir_engine::handle::Handle;
use weir_engine::outputs::Target;
use weir_engine::run::{Run, Stage};
use weir_engine::session::{Order, Session};
use weir_engine::sink::Wanted;
use weir_firewall::rules::{Rule, RuleList};
use weir_firewall::{Classifier, RuleCount};
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, wait};

const PACKETS: usize = 5000;

/// Whether a packet of this number is one of some.
type Keeps = fn(usize) -> bool;

/// Returns a whole datagram with its number in the source address and at the end: to port 53 (even numbers) or 80 (odd ones), of
/// another length than its neighbors.
fn frame(number: usize) -> Vec<u8> {
    let mut frame = vec![0; 60 + number % 7];
    let len = (frame.len() - 14) as u16;
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&[10, 0, (number >> 8) as u8, number as u8]);
    frame[30..34].copy_from_slice(&[10, 1, 0, 1]);
    frame[36..38].copy_from_slice(&[53u16, 80][number % 2].to_be_bytes());
    frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
    frame
}

fn passes_filter(number: usize) -> bool {
    number & 3 != 0
}

fn is_denied(number: usize) -> bool {
    passes_filter(number) && number & 0x60 == 0x20
}

fn passes(number: usize) -> bool {
    passes_filter(number) && !is_denied(number)
}

fn firewall() -> Firewall {
    let text = "drop expr 'ip[15] & 0x60 = 0x20'\ndefault pass\n";
    let list = RuleList::parse(text, &mut |_| panic!("no file is named")).unwrap();
    let settings = RuleSettings {
        inner: None,
        seed: 1,
        connections: 0,
    };
    let rules = RuleSet::new(Classifier::new(list).unwrap(), settings).unwrap();
    let policy = Policy::new(None, Arc::new(rules));
    Firewall::new(&SharedPolicy::new(policy, 64), None)
}

/// Numbers of the packets of an output.
fn numbers(got: &Got) -> Vec<usize> {
    let number = |data: &[u8]| usize::from(data[28]) << 8 | usize::from(data[29]);
    got.lock()
        .unwrap()
        .iter()
        .map(|(packet, _)| number(&packet.2))
        .collect()
}

/// Runs over all packets; the main output is complete after `most` packets.
fn compare(path: &str, expression: &str, passes_filter: Keeps, passes: Keeps, most: usize) {
    let main = Got::default();
    let sink = Collect {
        wanted: Wanted::Matching,
        most,
        got: Arc::clone(&main),
    };
    let mut setup = setup(expression, None);
    setup.firewall = Some(firewall());
    setup.main = ("main".to_owned(), Some(Box::new(sink)));
    let splits: [(&str, Wanted, Keeps); 3] = [
        ("udp port 80", Wanted::Matching, |number| number % 2 == 1),
        ("udp port 53", Wanted::Rejected, |number| number % 2 == 0),
        ("less 60", Wanted::Matching, |number| number % 7 == 0),
    ];
    let mut got = Vec::new();
    for (split, wanted, _) in &splits {
        let (target, packets): (Target, Got) = Collect::target(*wanted);
        setup.selection.splits.push((*split).to_owned());
        setup.splits.push(target);
        got.push(packets);
    }
    let mut handle =
        Handle::start(Run::new(setup), files(&[path], Order::OneByOne), |_| {}).unwrap();
    let ended = end(&mut handle);
    assert_eq!(ended.discrepancies, []);

    let what = format!("{expression:?}, {most} packets");
    // A run ends at the packet behind the last one of the main output.
    let all_passed = (0..PACKETS).filter(|&number| passes(number));
    let end = all_passed.clone().nth(most).unwrap_or(PACKETS);
    let before = |keeps: &dyn Fn(usize) -> bool| {
        (0..end).filter(|&number| keeps(number)).collect::<Vec<_>>()
    };
    let bytes = |numbers: &[usize]| {
        numbers
            .iter()
            .map(|&number| frame(number).len() as u64)
            .sum::<u64>()
    };
    let passed = before(&passes);
    assert_eq!(numbers(&main), passed, "{what}");
    let ledger = &ended.ledger;
    let filtered = before(&|number| !passes_filter(number));
    let denied = before(&|number| passes_filter(number) && !passes(number));
    assert_eq!(
        [
            ledger.received,
            ledger.passed,
            ledger.filtered,
            ledger.denied
        ],
        [end, passed.len(), filtered.len(), denied.len()].map(|count| count as u64),
        "{what}"
    );
    assert_eq!(
        (ledger.bytes, ledger.dropped.sum()),
        (bytes(&passed), 0),
        "{what}"
    );
    for (i, (name, wanted, matches)) in splits.iter().enumerate() {
        let of_split = before(&|number| passes(number) && matches(number));
        assert_eq!(
            ledger.splits[i],
            (of_split.len() as u64, bytes(&of_split)),
            "{what}, {name}"
        );
        let expected = match wanted {
            Wanted::Rejected => before(&|number| !(passes(number) && matches(number))),
            _ => of_split,
        };
        assert_eq!(numbers(&got[i]), expected, "{what}, {name}");
    }
    let by_filter = ended.stages.iter().find_map(|stage| match stage {
        Stage::Filter {
            passed, filtered, ..
        } => Some((*passed, *filtered)),
        _ => None,
    });
    let expected = ((passed.len() + denied.len()) as u64, filtered.len() as u64);
    assert_eq!(by_filter, Some(expected), "{what}");
}

#[test]
fn packets_that_a_firewall_denies_are_those_of_a_twin_wherever_the_run_ends() {
    let mut pcap = Pcap::new(1, 65535);
    (0..PACKETS).for_each(|number| pcap.packet(&frame(number)));
    let scratch = Scratch::new();
    let path = scratch.file("numbered.pcap", &pcap.bytes);
    for most in [0, 1, 31, 32, 63, 64, 65, 1000, 2811, 2812, 2813, usize::MAX] {
        compare(&path, "ip[15] & 3 != 0", passes_filter, passes, most);
        compare(&path, "", |_| true, |number| number & 0x60 != 0x20, most);
    }
}

/// A limit counts what passes the firewall, and ends the run with that packet.
#[test]
fn a_limit_counts_packets_behind_the_firewall() {
    let mut pcap = Pcap::new(1, 65535);
    (0..PACKETS).for_each(|number| pcap.packet(&frame(number)));
    let scratch = Scratch::new();
    let path = scratch.file("numbered.pcap", &pcap.bytes);
    for limit in [1, 2, 31, 32, 63, 64, 65, 1000, 2812, 2813, 1 << 40] {
        for judges in [false, true] {
            let (target, main): (Target, Got) = Collect::target(Wanted::Matching);
            let (others, rejected): (Target, Got) = Collect::target(Wanted::Rejected);
            let mut setup = setup("ip[15] & 3 != 0", None);
            setup.firewall = judges.then(firewall);
            setup.limit = Some(limit);
            setup.main = target;
            setup.selection.splits.push("udp port 80".to_owned());
            setup.splits.push(others);
            let files = files(&[&path], Order::OneByOne);
            let mut handle = Handle::start(Run::new(setup), files, |_| {}).unwrap();
            let ended = end(&mut handle);

            let keeps = if judges { passes } else { passes_filter };
            let last = (0..PACKETS).filter(|&number| keeps(number));
            let end = last
                .clone()
                .nth(limit as usize - 1)
                .map_or(PACKETS, |last| last + 1);
            let count = |is: &dyn Fn(usize) -> bool| (0..end).filter(|&i| is(i)).count() as u64;
            let what = format!("limit {limit}, {judges}");
            assert_eq!(
                numbers(&main),
                last.take_while(|&number| number < end).collect::<Vec<_>>(),
                "{what}"
            );
            let is_of_split = |number: usize| keeps(number) && number % 2 == 1;
            assert_eq!(
                numbers(&rejected),
                (0..end).filter(|&i| !is_of_split(i)).collect::<Vec<_>>(),
                "{what}"
            );
            let ledger = &ended.ledger;
            assert_eq!(
                [
                    ledger.received,
                    ledger.passed,
                    ledger.filtered,
                    ledger.denied,
                    ledger.splits[0].0,
                ],
                [
                    end as u64,
                    count(&keeps),
                    count(&|i| !passes_filter(i)),
                    count(&|i| passes_filter(i) && !keeps(i)),
                    count(&is_of_split),
                ],
                "{what}"
            );
            assert_eq!(
                (ended.imbalance.is_none(), ended.discrepancies),
                (true, vec![])
            );
        }
    }
}

/// Packets to these ports, with the times of their arrival in seconds.
type Arrivals<'a> = &'a [(i64, u16)];

fn datagram(port: u16) -> Vec<u8> {
    let mut datagram = frame(0);
    datagram[36..38].copy_from_slice(&port.to_be_bytes());
    datagram
}

/// The times of rules are those of packets: a rule that stays in the list keeps its end, and is over if it was.
#[test]
fn rules_of_a_run_are_replaced_and_keep_the_ends_of_the_rules_that_stay() {
    let list = |text: &str| RuleList::parse(text, &mut |_| panic!("no file is named")).unwrap();
    let new = |text: &str| NewRules {
        classifier: Classifier::new(list(text)).unwrap(),
        called: "new.txt".to_owned(),
    };
    let settings = RuleSettings {
        inner: None,
        seed: 1,
        connections: 0,
    };
    let first = "drop udp dport 53 for 10s\n";
    let rules = RuleSet::new(new(first).classifier, settings).unwrap();
    let policy = SharedPolicy::new(Policy::new(None, Arc::new(rules)), 64);
    let (main, got) = Collect::target(Wanted::Matching);
    let mut setup = setup("", None);
    setup.firewall = Some(Firewall::new(&policy, None).by_packet_time());
    setup.main = main;
    let (inputs, feeds) = captures(1, &setup.stop);
    let mut handle = Handle::start(Run::new(setup), Session::from(inputs), |_| {}).unwrap();
    let mut count = 0;
    // Sends packets, and returns which of them passed.
    let mut passed = |arrivals: Arrivals<'_>| {
        let before = got.lock().unwrap().len();
        let stamped = |(second, port): &(i64, u16)| (second * 1_000_000_000, datagram(*port));
        feeds[0]
            .send(arrivals.iter().map(stamped).collect())
            .unwrap();
        count += arrivals.len() as u64;
        wait::until("all packets to be judged", || {
            let snapshot = handle.control().snapshot(LONG);
            snapshot.is_some_and(|snapshot| snapshot.ledger.received == count)
        });
        let port = |data: &[u8]| u16::from_be_bytes([data[36], data[37]]);
        let got = got.lock().unwrap();
        let ports = got[before..].iter().map(|(packet, _)| port(&packet.2));
        ports.collect::<Vec<u16>>()
    };
    let set = |text: &str| handle.control().set_rules(new(text), LONG);
    assert_eq!(passed(&[(100, 53), (101, 80)]), [80]);
    let second = "pass udp dport 99\ndrop udp dport 80 for 2s\ndrop udp dport 53 for 10s\n";
    assert_eq!(set(second).unwrap(), 1);
    assert_eq!(passed(&[(102, 53), (102, 80), (102, 99)]), [99]);
    assert_eq!(passed(&[(103, 80), (109, 53), (110, 53)]), [80, 53]);
    // Two rules are over, and stay so; a wrong list changes nothing.
    match set("pass udp\n\ndrop expr 'udp prot 80'\n") {
        Err(ChangeError::Rules(why)) => assert!(why.starts_with("new.txt: line 3: "), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(set(&format!("{second}drop udp dport 7\n")).unwrap(), 2);
    assert_eq!(passed(&[(111, 53), (111, 80), (111, 7)]), [53, 80]);
    // A rule that was missing for a while begins once more.
    assert_eq!(set("drop udp dport 7\n").unwrap(), 3);
    assert_eq!(set(first).unwrap(), 4);
    assert_eq!(
        passed(&[(112, 53), (112, 7), (120, 53), (121, 53)]),
        [7, 53]
    );
    let control = Arc::clone(handle.control());
    control.stop();
    let ended = end(&mut handle);
    assert_eq!(
        (ended.ledger.received, ended.discrepancies),
        (count, vec![])
    );
    assert!(matches!(
        control.set_rules(new(first), LONG),
        Err(ChangeError::Over)
    ));
}

/// Programs replace rules faster than a run takes them up. The lists that it skips count all the same: a rule that is in all of them keeps
/// its count and its end, and one that was missing in between begins once more.
#[test]
fn rules_that_are_replaced_twice_at_once_keep_their_counts_and_ends() {
    let classifier = |text: &str| {
        let list = RuleList::parse(text, &mut |_| panic!("no file is named")).unwrap();
        Classifier::new(list).unwrap()
    };
    let settings = RuleSettings {
        inner: None,
        seed: 1,
        connections: 0,
    };
    let (stays, leaves) = ("drop udp dport 53 for 10s", "drop udp dport 80");
    let first = classifier(&format!("{stays}\n{leaves}\n"));
    let rules = Arc::new(RuleSet::new(first, settings).unwrap());
    let policy = SharedPolicy::new(Policy::new(None, rules), 64);
    let mut setup = setup("", None);
    setup.firewall = Some(Firewall::new(&policy, None).by_packet_time());
    let (inputs, feeds) = captures(1, &setup.stop);
    let mut handle = Handle::start(Run::new(setup), Session::from(inputs), |_| {}).unwrap();
    let mut count = 0;
    let mut judged = |arrivals: Arrivals<'_>| {
        let stamped = |(second, port): &(i64, u16)| (second * 1_000_000_000, datagram(*port));
        feeds[0]
            .send(arrivals.iter().map(stamped).collect())
            .unwrap();
        count += arrivals.len() as u64;
        let mut last = None;
        wait::until("all packets to be judged", || {
            last = handle.control().snapshot(LONG);
            last.as_ref()
                .is_some_and(|snapshot| snapshot.ledger.received == count)
        });
        let counts = last.unwrap().firewall.unwrap();
        let rules = counts.rules.list().rules.iter().zip(&counts.counters.rules);
        let of = |(rule, count): (&Rule, &RuleCount)| (rule.text.clone(), count.all.packets);
        rules.map(of).collect::<Vec<(String, u64)>>()
    };
    let expected = |rules: &[(&str, u64)]| -> Vec<(String, u64)> {
        let rules = rules.iter();
        rules
            .map(|(text, count)| ((*text).to_owned(), *count))
            .collect()
    };
    let counts = judged(&[(100, 53), (101, 53), (102, 80)]);
    assert_eq!(counts, expected(&[(stays, 2), (leaves, 1)]));
    for text in [
        format!("pass udp dport 7\n{stays}\n"),
        format!("{leaves}\n{stays}\n"),
    ] {
        let before = policy.rules();
        let rules = before
            .successor(classifier(&text), &policy.expired())
            .unwrap();
        policy.apply_all(&[Change::Rules(Arc::new(rules))]).unwrap();
    }
    let counts = judged(&[(103, 80), (109, 53), (110, 53)]);
    assert_eq!(counts, expected(&[(leaves, 1), (stays, 3)]));
    handle.control().stop();
    assert_eq!(end(&mut handle).ledger.denied, 5);
}
