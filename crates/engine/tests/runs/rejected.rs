//! Outputs of packets that do not match: against tcpdump's `not (EXPR)`, and against the ledger.

use crate::running::{
    Collect, Got, LONG, PACKETS, Packet, end, files, frame, pcap, setup, tcpdump, tcpdump_rejects,
};
use std::sync::Arc;
use weir_engine::capture::{self, CaptureRequest, Settings as CaptureSettings};
use weir_engine::claims::Claims;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::port::Port;
use weir_engine::run::{Ended, Error, Run, Setup};
use weir_engine::session::{Order, Session};
use weir_engine::sink::Wanted;
use weir_measure::Config;
use weir_packet::savefile::Format;
use weir_pipeline::measuring::Settings;
use weir_testkit::savefile::Pcapng;
use weir_testkit::{Scratch, captures_for_libpcap, have, net, skipped, wait};

/// Makes a run with these outputs behind the filter: each gets the packets that match it, or those that do not.
fn with_outputs(expression: &str, wanted: &[(&str, Wanted)]) -> (Setup, Vec<Got>) {
    let (mut setup, mut all) = (setup(expression, None), Vec::new());
    for (i, (split, wanted)) in wanted.iter().enumerate() {
        let (target, got): (Target, Got) = Collect::target(*wanted);
        all.push(got);
        if i == 0 {
            setup.main = target;
        } else {
            setup.selection.splits.push((*split).to_owned());
            setup.splits.push(target);
        }
    }
    (setup, all)
}

fn ended(setup: Setup, names: &[&str], order: Order) -> Ended {
    let mut handle = Handle::start(Run::new(setup), files(names, order), |_| {}).unwrap();
    let ended = end(&mut handle);
    assert_eq!(ended.discrepancies, []);
    ended
}

fn packets(got: &Got) -> Vec<Packet> {
    got.lock()
        .unwrap()
        .iter()
        .map(|(packet, _)| packet.clone())
        .collect()
}

const PASSED: Wanted = Wanted::Matching;
const REJECTED: Wanted = Wanted::Rejected;

#[test]
fn outputs_of_rejected_packets_hold_what_tcpdump_keeps_by_the_negated_expression() {
    let test = "outputs_of_rejected_packets_hold_what_tcpdump_keeps_by_the_negated_expression";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut paths = vec![scratch.file("made.pcap", &pcap(0..PACKETS))];
    paths.extend(
        captures_for_libpcap(test)
            .into_iter()
            .map(|path| path.to_str().expect("a readable name").to_owned()),
    );
    let (mut compared, mut both) = (0, 0);
    for path in &paths {
        let (expression, split) = ("greater 100", "udp or arp");
        let (passed, rejected) = (tcpdump(path, expression), tcpdump_rejects(path, expression));
        let (all, others) = (
            tcpdump(path, ""),
            tcpdump_rejects(path, "greater 100 and (udp or arp)"),
        );
        let (Some(passed), Some(rejected), Some(all), Some(others)) =
            (passed, rejected, all, others)
        else {
            continue;
        };
        let wanted = [
            ("", Wanted::All),
            ("", REJECTED),
            ("", PASSED),
            (split, REJECTED),
        ];
        let (mut setup, got) = with_outputs(expression, &wanted);
        setup.workers = 2;
        let ended = ended(setup, &[path], Order::OneByOne);
        let ledger = &ended.ledger;
        assert_eq!(
            (ledger.passed, ledger.filtered),
            (passed.len() as u64, rejected.len() as u64),
            "{path}"
        );
        assert_eq!(packets(&got[0]), all, "{path}");
        assert_eq!(packets(&got[1]), rejected, "{path}");
        assert_eq!(packets(&got[2]), passed, "{path}");
        assert_eq!(packets(&got[3]), others, "{path}");
        let mask = |bit| {
            let all = got[0].lock().unwrap();
            all.iter()
                .filter(|(_, matched)| *matched == Some(bit))
                .map(|(packet, _)| packet.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!((mask(true), mask(false)), (passed, rejected), "{path}");
        compared += 1;
        both += usize::from(ledger.passed > 0 && ledger.filtered > 0);
    }
    println!("{compared} compared, {both} of them with packets of both kinds");
    assert!(
        paths.len() == 1 || compared > 40 && both > 10,
        "too little was compared"
    );
}

#[test]
fn a_file_of_rejected_packets_is_what_tcpdump_writes_by_the_negated_expression() {
    let test = "a_file_of_rejected_packets_is_what_tcpdump_writes_by_the_negated_expression";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let (file, rest) = (
        scratch.file("a.pcap", &pcap(0..5000)),
        scratch.at("rest.pcap"),
    );
    for format in [Format::Pcap, Format::Pcapng] {
        let settings = FileSettings {
            format,
            wanted: REJECTED,
            ..FileSettings::default()
        };
        let sink = FileSink::new(
            &Name::from(rest.clone()),
            settings,
            &Arc::new(Claims::of(&[])),
        );
        let setup = Setup {
            main: (rest.clone(), Some(Box::new(sink))),
            ..setup("udp port 53", None)
        };
        assert_eq!(
            ended(setup, &[&file], Order::OneByOne).ledger.filtered,
            2500
        );
        assert_eq!(tcpdump(&rest, ""), tcpdump(&file, "not udp port 53"));
    }
}

#[test]
fn all_ways_through_files_hand_out_what_does_not_match() {
    let scratch = Scratch::new();
    let (one, other) = (
        scratch.file("one.pcap", &pcap(0..7000)),
        scratch.file("other.pcap", &pcap(7000..14_000)),
    );
    let is = |packets: &[Packet], rest: u32| {
        let mut numbers: Vec<u32> = packets
            .iter()
            .map(|packet| u32::from_be_bytes(packet.2[296..].try_into().unwrap()))
            .collect();
        numbers.sort_unstable();
        numbers.into_iter().eq((rest..14_000).step_by(2))
    };
    for order in [Order::OneByOne, Order::Merged, Order::Sorted] {
        for (measures, invert) in [(false, false), (true, false), (false, true), (true, true)] {
            let (mut setup, got) = with_outputs("udp port 53", &[("", REJECTED), ("", PASSED)]);
            setup.selection.invert = invert;
            if measures {
                setup.measure = Some(Settings {
                    config: Arc::new(Config::default()),
                    workers: 2,
                    ..Settings::default()
                });
            }
            let ended = ended(setup, &[&one, &other], order);
            assert_eq!((ended.ledger.passed, ended.ledger.filtered), (7000, 7000));
            let [rejected, passed] = [0, 1].map(|i| packets(&got[i]));
            let odd = u32::from(!invert);
            assert!(
                is(&rejected, odd) && is(&passed, 1 - odd),
                "{order:?} {measures} {invert}"
            );
            assert!(
                order == Order::OneByOne || rejected.windows(2).all(|pair| pair[0].0 <= pair[1].0)
            );
        }
    }
}

#[test]
fn rejected_packets_end_where_the_main_output_is_complete() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    // The packet behind the last one taken finds no room.
    for (expression, most, rejected) in [
        ("udp port 53", 100, 100),
        ("udp port 80", 5000, 5001),
        ("len > 0", 7, 0),
    ] {
        let (mut setup, got) = with_outputs(expression, &[("", PASSED), ("", REJECTED)]);
        let sink = Collect {
            wanted: PASSED,
            most,
            got: Arc::clone(&got[0]),
        };
        setup.main = ("main".to_owned(), Some(Box::new(sink)));
        let ended = ended(setup, &[&file], Order::OneByOne);
        assert_eq!(
            (packets(&got[0]).len(), packets(&got[1]).len()),
            (most, rejected),
            "{expression}"
        );
        assert_eq!(
            (ended.ledger.passed, ended.ledger.filtered),
            (most as u64, rejected as u64),
            "{expression}"
        );
    }
}

#[test]
fn an_output_of_rejected_packets_that_is_complete_ends_alone() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (mut setup, got) = with_outputs("udp port 53", &[("", REJECTED), ("", PASSED)]);
    let sink = Collect {
        wanted: REJECTED,
        most: 100,
        got: Arc::clone(&got[0]),
    };
    setup.main = ("main".to_owned(), Some(Box::new(sink)));
    let ended = ended(setup, &[&file], Order::OneByOne);
    assert_eq!(
        (packets(&got[0]).len(), packets(&got[1]).len()),
        (100, PACKETS as usize / 2)
    );
    assert_eq!(
        (ended.ledger.passed, ended.ledger.filtered),
        (u64::from(PACKETS / 2), u64::from(PACKETS / 2))
    );
}

#[test]
fn a_limit_ends_rejected_packets_too() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    for order in [Order::OneByOne, Order::Merged] {
        let (setup, got) = with_outputs("udp port 80", &[("", REJECTED)]);
        let setup = Setup {
            limit: Some(1000),
            ..setup
        };
        let ended = ended(setup, &[&file], order);
        assert_eq!(
            (
                packets(&got[0]).len(),
                ended.ledger.passed,
                ended.ledger.filtered
            ),
            (1000, 1000, 1000)
        );
    }
}

#[test]
fn an_expression_that_makes_no_sense_at_first_is_refused_before_anything_is_handed_out() {
    let mut file = Pcapng::new(false);
    // USB knows no TCP.
    file.interface(189, 0, 6);
    file.packet(&[0; 64]);
    let scratch = Scratch::new();
    let path = scratch.file("usb.pcapng", &file.bytes);
    let (setup, got) = with_outputs("tcp", &[("", REJECTED)]);
    let mut handle =
        Handle::start(Run::new(setup), files(&[&path], Order::OneByOne), |_| {}).unwrap();
    assert!(matches!(
        handle.join(LONG).unwrap(),
        Err(Error::Refused { .. })
    ));
    assert!(packets(&got[0]).is_empty());
}

/// Opens a capture at an end of a cable. If there is no cable, prints a line and returns `None`.
fn opened(test: &str, setup: &Setup, kernel_filter: bool, shares: usize) -> Option<Session> {
    let settings = CaptureSettings {
        kernel_filter,
        ..CaptureSettings::default()
    };
    let request = CaptureRequest {
        settings,
        expression: "udp port 53",
        shares,
        ..CaptureRequest::default()
    };
    match capture::open(
        &Name::from("af_packet:near"),
        &request,
        &setup.stop,
        &mut |_| {},
    ) {
        Ok(opened) => Some(Session::from(opened.inputs)),
        Err(error) => {
            skipped(test, error);
            None
        }
    }
}

#[test]
fn what_a_capture_receives_and_the_filter_rejects_is_handed_out() {
    let test = "what_a_capture_receives_and_the_filter_rejects_is_handed_out";
    const SENT: u32 = 2000;
    if !net::cable(test, "") {
        return;
    }
    let (setup, got) = with_outputs("udp port 53", &[("", REJECTED), ("", PASSED)]);
    let Some(sources) = opened(test, &setup, false, 1) else {
        return;
    };
    let mut handle = Handle::start(Run::new(setup), sources, |_| {}).unwrap();
    let mut port = Port::open(&Name::from("af_packet:far"), &[]).unwrap();
    for sent in 1..=SENT {
        port.take(&frame(sent - 1), false).unwrap();
        // Between the ends of a cable there is room for 1000.
        if sent.is_multiple_of(250) {
            port.flush().unwrap();
            wait::until("packets that are on the way", || {
                let lens = got.iter().map(|got| got.lock().unwrap().len());
                lens.sum::<usize>() >= sent as usize
            });
        }
    }
    handle.control().stop();
    let ended = end(&mut handle);
    assert_eq!(ended.discrepancies, []);
    assert_eq!((ended.ledger.passed, ended.ledger.filtered), (1000, 1000));
    for (got, first) in got.iter().zip([1, 0]) {
        let frames: Vec<Vec<u8>> = packets(got).into_iter().map(|packet| packet.2).collect();
        assert!(frames.into_iter().eq((first..SENT).step_by(2).map(frame)));
    }
}

#[test]
fn captures_whose_rejected_packets_are_not_seen_are_refused() {
    let test = "captures_whose_rejected_packets_are_not_seen_are_refused";
    if !net::cable(test, "") {
        return;
    }
    let (setup, _) = with_outputs("udp port 53", &[("", REJECTED)]);
    let Some(sources) = opened(test, &setup, true, 1) else {
        return;
    };
    let mut handle = Handle::start(Run::new(setup), sources, |_| {}).unwrap();
    match handle.join(LONG).unwrap() {
        Err(Error::RejectedBefore { name }) => assert_eq!(name, "near"),
        other => panic!("{other:?}"),
    }
}
