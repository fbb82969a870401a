//! Contents of batches: descriptors of all packets, and the verdicts on them, against tcpdump, tshark and made packets.

use crate::running::{
    Found, LONG, PACKETS, Packet, checked, end, files, frame, pcap, pulled, setup, tcpdump,
    tcpdump_rejects,
};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_engine::batches::{Batch, Batches, HeldBatch, Next};
use weir_engine::capture::{self, CaptureRequest};
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::port::Port;
use weir_engine::run::{Run, Setup};
use weir_engine::session::{Order, Session};
use weir_testkit::savefile::{Pcap, Pcapng};
use weir_testkit::{Random, Scratch, captures, captures_for_libpcap, have, net, skipped};

/// Returns the packets of all batches that are left.
fn all(batches: &Batches) -> Vec<Found> {
    let mut found = Vec::new();
    loop {
        match batches.next(LONG) {
            Next::Batch(batch) => {
                found.extend(checked(&batch));
                summarized(&batch);
            }
            Next::End => return found,
            Next::Nothing => panic!("the run is stuck"),
        }
    }
}

/// Checks the summary of a batch against the batch.
fn summarized(batch: &HeldBatch) {
    let (summary, region, (passed, _)) = (batch.summary(), batch.region(), batch.judged());
    assert_eq!(summary.region, [region.cast::<u8>().addr(), region.len()]);
    assert_eq!(summary.descriptors, batch.descriptors().as_ptr().addr());
    assert_eq!(summary.verdicts, batch.verdicts().words().as_ptr().addr());
    assert_eq!(
        (summary.len as usize, u64::from(summary.passed)),
        (batch.len(), passed)
    );
    assert_eq!(summary.change, batch.change());
    let links: Vec<_> = batch
        .layout()
        .interfaces
        .iter()
        .map(|interface| interface.link)
        .collect();
    assert_eq!(
        summary.link,
        links
            .first()
            .copied()
            .filter(|first| links.iter().all(|link| link == first))
    );
}

/// Returns the packets that passed, or the packets that did not.
fn those(found: &[Found], passed: bool) -> Vec<Packet> {
    let these = found.iter().filter(|found| found.passed == passed);
    these
        .map(|found| {
            (
                if found.timed { found.packet.0 } else { 0 },
                found.packet.1,
                found.packet.2.clone(),
            )
        })
        .collect()
}

#[test]
fn a_batch_goes_to_any_thread() {
    fn goes<T: Send + Sync + 'static>() {}
    goes::<Batch>();
    goes::<HeldBatch>();
}

#[test]
fn verdicts_are_tcpdumps_and_what_is_denied_is_there() {
    let test = "verdicts_are_tcpdumps_and_what_is_denied_is_there";
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
        for expression in ["udp port 53 or arp", "greater 100"] {
            let theirs = (tcpdump(path, expression), tcpdump_rejects(path, expression));
            let (Some(passed), Some(denied)) = theirs else {
                continue;
            };
            let (mut handle, batches) = pulled(&[path], Order::OneByOne, expression, 2);
            let found = all(&batches);
            let ended = end(&mut handle);
            assert_eq!(those(&found, true), passed, "{path}: {expression}");
            assert_eq!(those(&found, false), denied, "{path}: {expression}");
            assert_eq!(
                (ended.ledger.passed, ended.ledger.filtered),
                (passed.len() as u64, denied.len() as u64)
            );
            compared += 1;
            both += usize::from(!passed.is_empty() && !denied.is_empty());
        }
    }
    println!("{compared} compared, {both} of them with packets of both kinds");
    assert!(
        paths.len() == 1 || compared > 80 && both > 10,
        "too little was compared"
    );
}

#[test]
fn descriptors_of_several_interfaces_are_tsharks() {
    let test = "descriptors_of_several_interfaces_are_tsharks";
    if !have(test, &["tshark"]) {
        return;
    }
    let mut file = Pcapng::new(true);
    [(1, 0, 6), (101, 96, 9), (1, 60, 7)]
        .iter()
        .for_each(|&(link, snaplen, unit)| file.interface(link, snaplen, unit));
    for number in 0..500 {
        let data = frame(number);
        let interface = number % 3;
        let captured = [300, 96, 60][interface as usize];
        file.enhanced(interface, 300, &data[..captured]);
        if number % 50 == 0 {
            file.simple(300, &data);
        }
    }
    let scratch = Scratch::new();
    let path = scratch.file("several.pcapng", &file.bytes);
    let fields = [
        "frame.interface_id",
        "frame.len",
        "frame.cap_len",
        "frame.time_epoch",
    ];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let done = Command::new("tshark")
        .args(["-n", "-r", &path, "-T", "fields"])
        .args(fields)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let theirs: Vec<String> = String::from_utf8_lossy(&done.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    let (mut handle, batches) = pulled(&[&path], Order::OneByOne, "", 2);
    let found = all(&batches);
    end(&mut handle);
    assert_eq!((theirs.len(), found.len()), (510, 510));
    for (
        line,
        Found {
            packet: (time_ns, wire_len, data),
            interface,
            timed,
            ..
        },
    ) in theirs.iter().zip(&found)
    {
        let words: Vec<&str> = line.split('\t').collect();
        assert_eq!(
            words[..3],
            [
                interface.to_string(),
                wire_len.to_string(),
                data.len().to_string()
            ],
            "{line}"
        );
        let time = format!(
            "{}.{:09}",
            time_ns.div_euclid(1_000_000_000),
            time_ns.rem_euclid(1_000_000_000)
        );
        assert_eq!(words[3], if *timed { &time } else { "" }, "{line}");
    }
}

#[test]
fn packets_by_time_have_the_interfaces_of_all_files() {
    let scratch = Scratch::new();
    let one = scratch.file("one.pcap", &pcap(0..1000));
    let mut other = Pcap::with(101, 200, true, true);
    (0..1000).for_each(|number| other.record(300, &frame(number)[14..214]));
    let other = scratch.file("other.pcap", &other.bytes);
    for order in [Order::Merged, Order::Sorted] {
        let (mut handle, batches) = pulled(&[&one, &other], order, "len > 0", 8);
        let found = all(&batches);
        assert_eq!((end(&mut handle).ledger.passed, found.len()), (2000, 2000));
        assert!(
            found
                .windows(2)
                .all(|pair| pair[0].packet.0 <= pair[1].packet.0)
        );
        for (interface, part) in [(0, 0..300), (1, 14..214)] {
            let these = found.iter().filter(|found| found.interface == interface);
            let expected = (0..1000).map(|number| frame(number)[part.clone()].to_vec());
            assert!(
                these.map(|found| found.packet.2.clone()).eq(expected),
                "{order:?}"
            );
        }
    }
}

#[test]
fn each_split_has_a_mask_of_its_own() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..5000));
    let mut setup = setup("udp", Some(4));
    setup.selection.splits = vec!["port 53".to_owned(), "port 80".to_owned(), "tcp".to_owned()];
    let mut run = Run::new(setup);
    let batches = run.batches().unwrap();
    let mut handle = Handle::start(run, files(&[&file], Order::OneByOne), |_| {}).unwrap();
    let mut number = 0;
    while let Next::Batch(batch) = batches.next(LONG) {
        let masks = batch.split_verdicts();
        assert_eq!(masks.len(), 3);
        for i in 0..batch.len() {
            let bits: Vec<u64> = masks
                .iter()
                .map(|mask| mask.words()[i / 64] >> (i % 64) & 1)
                .collect();
            assert_eq!(bits, [1 - number % 2, number % 2, 0], "{number}");
            number += 1;
        }
    }
    let splits = [(2500, 750_000), (2500, 750_000), (0, 0)];
    assert_eq!(
        (number, end(&mut handle).ledger.splits),
        (5000, splits.to_vec())
    );
}

/// Buffers of dropped batches are reused while others are held.
#[test]
fn batches_of_several_workers_come_in_order_and_stay_as_they_were() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let mut run = Run::new(Setup {
        workers: 4,
        ..setup("udp port 80", Some(5))
    });
    let batches = run.batches().unwrap();
    let mut handle = Handle::start(run, files(&[&file], Order::OneByOne), |_| {}).unwrap();
    let (mut random, mut held, mut number) = (Random(3), Vec::new(), 0);
    let check = |batch: &Batch, mut number: u32| {
        for found in checked(batch) {
            assert_eq!(
                (&found.packet.2, found.passed),
                (&frame(number), number % 2 == 1)
            );
            number += 1;
        }
        number
    };
    while let Next::Batch(batch) = batches.next(LONG) {
        held.push((number, batch));
        number += held.last().unwrap().1.len() as u32;
        while held.len() > 4 || random.below(2) == 0 && !held.is_empty() {
            let (number, batch) = held.swap_remove(random.below(held.len()));
            check(&batch, number);
        }
    }
    assert_eq!(
        (number, end(&mut handle).ledger.received),
        (PACKETS, PACKETS.into())
    );
    held.iter()
        .for_each(|(number, batch)| assert_eq!(check(batch, *number), number + batch.len() as u32));
}

#[test]
fn batches_that_a_program_leaves_unread_are_in_no_sum_but_that_of_lost_packets() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let mut setup = setup("", Some(2));
    setup.selection.splits = vec!["udp port 80".to_owned()];
    let mut run = Run::new(setup);
    let batches = run.batches().unwrap();
    let mut handle = Handle::start(run, files(&[&file], Order::OneByOne), |_| {}).unwrap();
    assert!(batches.wait(LONG));
    batches.leave();
    let ledger = end(&mut handle).ledger;
    assert!(ledger.dropped.output > 0);
    assert_eq!(
        (ledger.passed, ledger.bytes, ledger.splits),
        (0, 0, vec![(0, 0)])
    );
}

#[test]
fn the_last_batch_of_a_limited_run_ends_with_the_last_packet_that_passes() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let mut run = Run::new(Setup {
        limit: Some(777),
        ..setup("udp port 80", Some(4))
    });
    let batches = run.batches().unwrap();
    let mut handle = Handle::start(run, files(&[&file], Order::OneByOne), |_| {}).unwrap();
    let found = all(&batches);
    assert_eq!(
        (
            found.len(),
            found.iter().filter(|found| found.passed).count()
        ),
        (2 * 777, 777)
    );
    assert_eq!(end(&mut handle).ledger.received, 2 * 777);
}

/// Each byte named by a descriptor lies in the region, for any damage of the file; `checked` verifies this.
#[test]
fn damaged_captures_have_no_descriptor_that_leads_out_of_the_region() {
    let mut random = Random(7);
    let mut small: Vec<Vec<u8>> = vec![pcap(0..100)];
    for path in captures("damaged_captures_have_no_descriptor_that_leads_out_of_the_region") {
        let bytes = std::fs::read(&path).expect("a listed capture can be read");
        small.extend((bytes.len() < 20_000).then_some(bytes));
    }
    let scratch = Scratch::new();
    let (mut packets, mut faults) = (0, 0);
    for whole in &small {
        for _ in 0..4 {
            let mut damaged = whole.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len());
                damaged[at] = [0, 0xff, 0x7f, damaged[at] ^ 1 << random.below(8)][random.below(4)];
            }
            damaged.truncate(damaged.len() - random.below(2) * random.below(damaged.len()));
            let file = scratch.file("damaged", &damaged);
            let (mut handle, batches) = pulled(&[&file], Order::OneByOne, "ip", 2);
            packets += all(&batches).len();
            // An expression may make no sense for a damaged link type.
            if let Ok((ended, _)) = handle.join(LONG).unwrap() {
                assert_eq!(
                    (ended.imbalance.as_ref(), ended.ledger.check()),
                    (None, Ok(()))
                );
                faults += 1;
            }
        }
    }
    println!(
        "{packets} packets in {} files, {faults} of them read",
        small.len() * 4
    );
    assert!(packets > 300 && faults > 3);
}

/// Checks that packets sent into one end of a cable are described in place at the other end.
fn live(test: &str, source: &str) {
    const SENT: u32 = 3000;
    if !net::cable(test, "") {
        return;
    }
    let setup = setup("udp port 53", Some(64));
    let stop = Arc::clone(&setup.stop);
    let opened = match capture::open(
        &Name::from(source),
        &CaptureRequest::default(),
        &stop,
        &mut |_| {},
    ) {
        Ok(opened) => opened,
        Err(error) => return skipped(test, error),
    };
    let mut run = Run::new(setup);
    let batches = run.batches().unwrap();
    let mut handle = Handle::start(run, Session::from(opened.inputs), |_| {}).unwrap();
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as i64
    };
    let (mut port, begun) = (
        Port::open(&Name::from("af_packet:far"), &[]).unwrap(),
        now(),
    );
    let (mut sent, mut numbers, mut held) = (0, Vec::new(), Vec::new());
    while numbers.len() < SENT as usize {
        // Fewer packets than the memory has room for, with any number of held batches.
        while sent < SENT && sent < numbers.len() as u32 + 300 {
            port.take(&frame(sent), false).unwrap();
            sent += 1;
        }
        port.flush().unwrap();
        let Next::Batch(batch) = batches.next(LONG) else {
            panic!("packets were sent")
        };
        for found in checked(&batch) {
            let number = u32::from_be_bytes(found.packet.2[296..].try_into().unwrap());
            assert_eq!((&found.packet.2, found.packet.1), (&frame(number), 300));
            assert_eq!(
                (found.interface, found.passed, found.timed),
                (0, number % 2 == 0, true)
            );
            assert!((found.packet.0 - begun).abs() < Duration::from_secs(60).as_nanos() as i64);
            numbers.push(number);
        }
        // Some batches are given back late, and in another order.
        held.push(batch);
        if held.len() > 5 {
            held.remove(2);
        }
    }
    handle.control().stop();
    assert!(all(&batches).is_empty());
    assert!(
        numbers.into_iter().eq(0..SENT),
        "in the order in which they were sent"
    );
    let ledger = end(&mut handle).ledger;
    assert_eq!(
        (ledger.received, ledger.passed, ledger.filtered),
        (3000, 1500, 1500)
    );
    held.iter().for_each(|batch| drop(checked(batch)));
}

#[test]
fn frames_of_a_packet_socket_are_described_in_its_ring() {
    live(
        "frames_of_a_packet_socket_are_described_in_its_ring",
        "af_packet:near",
    );
}

#[test]
fn frames_of_af_xdp_are_described_in_its_memory() {
    live(
        "frames_of_af_xdp_are_described_in_its_memory",
        "af_xdp:near:0",
    );
}
