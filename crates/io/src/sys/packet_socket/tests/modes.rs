//! Tests of modes: the packets that a ring delivers, and the counts of all others.

use super::super::{Direction, Insn, KernelFilter, Ring, Settings, Stamps, options};
use super::net::{Plain, cable, finish, have, ip, run, tagged, take_until, udp};
use crate::live::{Backend, Counts, TURN};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weir_filter::Filter;
use weir_packet::{Frame, LinkType};
use weir_testkit::skipped;

fn settings() -> Settings {
    Settings {
        promiscuous: true,
        retire: Duration::from_millis(4),
        ..Settings::of_blocks(1 << 20, 128 << 10)
    }
}

fn frames(all: Vec<(Vec<u8>, u32)>) -> Vec<Vec<u8>> {
    all.into_iter().map(|(frame, _)| frame).collect()
}

fn insns(filter: &Filter) -> Vec<Insn> {
    filter
        .program()
        .insns()
        .iter()
        .map(|&weir_filter::Insn { code, jt, jf, k }| Insn { code, jt, jf, k })
        .collect()
}

fn matches(filter: &Filter, frame: &[u8]) -> bool {
    filter.matches(&[Frame {
        data: frame,
        wire_len: frame.len() as u32,
        interface: 0,
    }]) != 0
}

/// Removes this thread's right to load eBPF programs, and keeps its rights to packet sockets.
fn without_bpf() {
    const VERSION: u32 = 0x2008_0522;
    let mut header = [VERSION, 0];
    // Effective, permitted and inheritable sets, of the lower 32 capabilities and then of the upper.
    let mut sets = [0u32; 6];
    // SAFETY: header and sets are live locals with the layout of linux/capability.h.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()),
            0
        );
        for set in 0..2 {
            sets[set] &= !(1 << 21);
            sets[3 + set] &= !(1 << (39 - 32));
        }
        assert_eq!(
            libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()),
            0
        );
    }
}

/// A filter in the kernel, followed by a filter in user space, delivers the packets of the latter alone. Tags are in the frame
/// and beside it, on both sides of the cable.
fn filters_as_user_space_does(test: &str, counts: bool) {
    if !cable(test) || !have(test, &["ethtool"]) {
        return;
    }
    if !counts {
        without_bpf();
    }
    let far = Plain::on("far");
    let mut sent = 0;
    for offload in ["on", "off"] {
        if counts {
            run("ethtool", &format!("-K far txvlan {offload}"));
            run("ethtool", &format!("-K near rxvlan {offload}"));
        }
        for expression in [
            "udp port 53",
            "vlan",
            "vlan 7 and udp",
            "not udp port 53",
            "vlan 5 and udp port 53",
            "len < 100",
            "ip6",
        ] {
            let filter = Filter::compile(expression, LinkType::ETHERNET, false).unwrap();
            for interface in ["near", "far"] {
                let program = Some(insns(&filter));
                let mut all = Ring::open(interface, &settings()).unwrap();
                let mut some = Ring::open(
                    interface,
                    &Settings {
                        filter: program,
                        ..settings()
                    },
                )
                .unwrap();
                match some.kernel_filter() {
                    KernelFilter::Counting if counts => {}
                    KernelFilter::Plain(_) if !counts => {}
                    KernelFilter::Counting => return skipped(test, "anybody may load eBPF here"),
                    other => return skipped(test, format_args!("{other:?}")),
                }
                for number in 0..40 {
                    let frame = udp(
                        number,
                        [1000, [53, 80][number as usize % 2]],
                        90 + number as usize,
                    );
                    match number % 8 {
                        0..=3 => far.send(&frame),
                        4 => far.send(&tagged(&frame, [0x81, 0, 0, 7])),
                        5 => far.send(&tagged(&frame, [0x88, 0xa8, 0, 7])),
                        6 => far.send(&tagged(
                            &tagged(&frame, [0x81, 0, 0, 7]),
                            [0x88, 0xa8, 0, 5],
                        )),
                        _ => far.send(&tagged(&frame, [0x81, 0, 0, 5])),
                    }
                }
                sent += 40;
                let (all, some_seen) = (
                    frames(finish(&mut all).unwrap()),
                    frames(finish(&mut some).unwrap()),
                );
                assert_eq!(all.len(), 40, "{test} {expression} {interface}");
                let expected: Vec<_> = all.iter().filter(|frame| matches(&filter, frame)).collect();
                let got: Vec<_> = some_seen
                    .iter()
                    .filter(|frame| matches(&filter, frame))
                    .collect();
                assert_eq!(got, expected, "{expression} {interface} {offload}");
                let untagged = |frame: &&Vec<u8>| frame[12..14] == [8, 0];
                let through = some_seen.iter().filter(untagged);
                assert!(
                    through.into_iter().all(|frame| matches(&filter, frame)),
                    "{expression}"
                );
                let Counts {
                    received,
                    filtered,
                    dropped,
                    handed_over,
                } = some.counts();
                assert_eq!((dropped, handed_over), (0, some_seen.len() as u64));
                let rejected = 40 - handed_over;
                assert_eq!(
                    (received, filtered),
                    if counts {
                        (40, Some(rejected))
                    } else {
                        (handed_over, None)
                    }
                );
                let least = all
                    .iter()
                    .filter(untagged)
                    .filter(|frame| !matches(&filter, frame))
                    .count();
                assert!(rejected >= least as u64, "{expression}");
            }
        }
    }
    assert!(sent > 0);
}

#[test]
fn a_kernel_that_counts_filters_as_user_space_does() {
    filters_as_user_space_does("a_kernel_that_counts_filters_as_user_space_does", true);
}

#[test]
fn a_kernel_that_does_not_count_filters_as_user_space_does() {
    filters_as_user_space_does(
        "a_kernel_that_does_not_count_filters_as_user_space_does",
        false,
    );
}

/// Each packet meets the program attached at its arrival, and all programs share their counters. Without the right to load
/// eBPF, a program that counts passes everything.
#[test]
fn a_filter_that_is_replaced_rejects_by_the_new_program_and_counts_on() {
    let test = "a_filter_that_is_replaced_rejects_by_the_new_program_and_counts_on";
    if !cable(test) {
        return;
    }
    let program = |port: u16| {
        insns(&Filter::compile(&format!("udp port {port}"), LinkType::ETHERNET, false).unwrap())
    };
    let counting = have_counting(&Some(program(53)));
    let settings = Settings {
        filter: Some(program(53)),
        replaces_filter: true,
        ..settings()
    };
    let mut ring = Ring::open("near", &settings).unwrap();
    let theirs = ring.pre_filter().unwrap();
    let far = Plain::on("far");
    let (stop, mut got, mut expected) = (AtomicBool::new(false), Vec::new(), Vec::new());
    // The last of twenty frames passes. Once it has come, all of them have met the program that was attached when they were sent.
    let mut send_and_expect = |ring: &mut Ring, first: u32, passes: &[u16]| {
        let port = |n: u32| {
            if n == first + 19 {
                passes[0]
            } else {
                [53, 80][n as usize % 2]
            }
        };
        (first..first + 20).for_each(|n| far.send(&udp(n, [1, port(n)], 100)));
        let passing: Vec<_> = (first..first + 20)
            .filter(|&n| passes.contains(&port(n)))
            .collect();
        got.extend(frames(
            take_until(ring, &stop, |all| all.len() >= passing.len()).unwrap(),
        ));
        expected.extend(passing.into_iter().map(|n| udp(n, [1, port(n)], 100)));
    };
    send_and_expect(&mut ring, 0, &[53]);
    // The filter is replaced from another thread, as by the control of a run.
    let (also, both) = (std::sync::Arc::clone(&theirs), [program(53), program(80)]);
    std::thread::spawn(move || also.replace(&both).unwrap())
        .join()
        .unwrap();
    send_and_expect(&mut ring, 20, &[53, 80]);
    theirs.replace(&[program(80)]).unwrap();
    send_and_expect(&mut ring, 40, &[80]);
    theirs.replace(&[]).unwrap();
    send_and_expect(&mut ring, 60, &[53, 80]);
    without_bpf();
    theirs.replace(&[program(53)]).unwrap();
    send_and_expect(&mut ring, 80, if counting { &[53, 80] } else { &[53] });
    // A program that the kernel refuses.
    theirs
        .replace(&[vec![Insn {
            code: 0x05,
            jt: 0,
            jf: 0,
            k: 7,
        }]])
        .unwrap();
    send_and_expect(&mut ring, 100, &[53, 80]);
    got.extend(frames(finish(&mut ring).unwrap()));
    assert_eq!(got, expected);
    let Counts {
        received,
        filtered,
        dropped,
        handed_over,
    } = ring.counts();
    assert_eq!((handed_over, dropped), (expected.len() as u64, 0));
    if counting {
        assert_eq!((received, filtered), (120, Some(120 - handed_over)));
    }
    // After the end, no packet is let in again.
    theirs.replace(&[]).unwrap();
    far.send(&udp(120, [1, 53], 100));
    assert_eq!(ring.counts().handed_over, handed_over);
    assert!(finish(&mut ring).unwrap().is_empty());
}

#[test]
fn one_packet_that_is_missing_is_noticed() {
    if !cable("one_packet_that_is_missing_is_noticed") {
        return;
    }
    let filter = Some(insns(
        &Filter::compile("udp port 53", LinkType::ETHERNET, false).unwrap(),
    ));
    let counting = have_counting(&filter);
    for (filter, astray) in [(None, [1, 0]), (filter.clone(), [1, 0]), (filter, [1, 1])] {
        if astray == [1, 1] && !counting {
            continue;
        }
        let settings = Settings {
            filter: filter.clone(),
            ..settings()
        };
        let mut rings = [0, 1].map(|_| Ring::open("near", &settings).unwrap());
        let far = Plain::on("far");
        (0..9).for_each(|number| far.send(&udp(number, [1, 53 + (number as u16) % 2], 100)));
        let [whole, lossy] = &mut rings;
        // A packet that the kernel counted but did not deliver; and a packet that the filter did not count.
        lossy.kernel.packets = astray[0];
        lossy.handed_over = astray[1];
        let error = finish(lossy).unwrap_err().to_string();
        assert!(
            error.contains("handed over") && error.contains("the kernel counted"),
            "{error}"
        );
        assert_eq!(
            error.contains("the filter saw 9 packets and rejected 4"),
            filter.is_some() && counting,
            "{error}"
        );
        let left = finish(whole).unwrap().len() as u64;
        let Counts {
            received,
            filtered,
            handed_over,
            ..
        } = whole.counts();
        assert_eq!(left, handed_over);
        if filter.is_none() || counting {
            assert_eq!((received, handed_over + filtered.unwrap_or(0)), (9, 9));
        }
    }
}

fn have_counting(filter: &Option<Vec<Insn>>) -> bool {
    let ring = Ring::open(
        "near",
        &Settings {
            filter: filter.clone(),
            ..settings()
        },
    )
    .unwrap();
    *ring.kernel_filter() == KernelFilter::Counting
}

#[test]
fn an_interface_that_comes_back_is_captured_on() {
    if !cable("an_interface_that_comes_back_is_captured_on") {
        return;
    }
    let stop = AtomicBool::new(false);
    let mut ring = Ring::open("near", &settings()).unwrap();
    let far = Plain::on("far");
    let mut got = Vec::new();
    let mut send = |ring: &mut Ring, numbers: std::ops::Range<u32>| {
        let count = numbers.len();
        numbers.for_each(|number| far.send(&udp(number, [1, 2], 100)));
        got.extend(frames(
            take_until(ring, &stop, |all| all.len() == count).unwrap(),
        ));
    };
    send(&mut ring, 0..3);
    for (name, round) in [("near", 1), ("other", 2)] {
        ip("link set dev near down");
        until(&mut ring, &stop, |ring| ring.is_down);
        assert_eq!(ring.marks().downs, round);
        ip(&format!("link set dev near name {name}"));
        ip(&format!("link set dev {name} up"));
        until(&mut ring, &stop, |ring| !ring.is_down);
        let round = round as u32;
        send(&mut ring, 3 * round..3 * round + 3);
        assert_eq!(ring.marks().downs, u64::from(round));
    }
    got.extend(frames(finish(&mut ring).unwrap()));
    assert_eq!(
        got,
        (0..9)
            .map(|number| udp(number, [1, 2], 100))
            .collect::<Vec<_>>()
    );
    assert_eq!(
        ring.counts(),
        Counts {
            received: 9,
            filtered: Some(0),
            dropped: 0,
            handed_over: 9
        }
    );
}

fn until(ring: &mut Ring, stop: &AtomicBool, is_so: impl Fn(&Ring) -> bool) {
    while !is_so(ring) {
        assert!(take_until(ring, stop, |_| true).unwrap().is_empty());
        assert!(matches!(
            ring.next_within(stop, TURN).unwrap(),
            crate::live::Next::Nothing
        ));
    }
}

#[test]
fn an_interface_that_is_removed_ends_the_capture() {
    if !cable("an_interface_that_is_removed_ends_the_capture") {
        return;
    }
    let mut ring = Ring::open("near", &settings()).unwrap();
    let far = Plain::on("far");
    (0..5).for_each(|number| far.send(&udp(number, [1, 2], 100)));
    ip("link del near");
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    let error = loop {
        match ring.next_within(&stop, TURN) {
            Ok(crate::live::Next::Records(_, packets)) => seen += packets,
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(
        (error.to_string().as_str(), seen, ring.marks().downs),
        ("the interface is gone", 5, 0)
    );
}

#[test]
fn a_capture_ends_while_the_interface_is_down() {
    if !cable("a_capture_ends_while_the_interface_is_down") {
        return;
    }
    let mut ring = Ring::open("near", &settings()).unwrap();
    let far = Plain::on("far");
    (0..5).for_each(|number| far.send(&udp(number, [1, 2], 100)));
    ip("link set near down");
    assert_eq!(finish(&mut ring).unwrap().len(), 5);
    assert_eq!(
        ring.counts(),
        Counts {
            received: 5,
            filtered: Some(0),
            dropped: 0,
            handed_over: 5
        }
    );
    assert!(matches!(
        Ring::open("near", &settings()),
        Err(super::super::Error::Down)
    ));
}

/// No card stamps packets here; the kernel stamps them instead, and the description says so.
#[test]
fn stamps_are_the_kernels_where_the_card_has_none() {
    if !cable("stamps_are_the_kernels_where_the_card_has_none") {
        return;
    }
    for (stamps, words) in [
        (Stamps::Software, "stamps of the kernel,"),
        (Stamps::Hardware, "the card has none"),
    ] {
        let mut ring = Ring::open(
            "near",
            &Settings {
                stamps,
                ..settings()
            },
        )
        .unwrap();
        assert!(ring.describe().contains(words), "{}", ring.describe());
        let now = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap()
        };
        let before = now();
        Plain::on("far").send(&udp(1, [1, 2], 100));
        let after = now();
        let crate::live::Next::Records(lent, 1) =
            ring.next_within(&AtomicBool::new(false), TURN).unwrap()
        else {
            panic!("one")
        };
        let word =
            |at: usize| u32::from_ne_bytes(lent.bytes().slice()[at..at + 4].try_into().unwrap());
        let stamp = Duration::new(word(4).into(), word(8));
        assert!(
            (before..=after).contains(&stamp),
            "{before:?} {stamp:?} {after:?}"
        );
    }
}

#[test]
fn a_direction_is_all_that_goes_that_way() {
    if !cable("a_direction_is_all_that_goes_that_way") {
        return;
    }
    let (far, near) = (Plain::on("far"), Plain::on("near"));
    let sent = |from: u32| {
        (0..6)
            .map(|number| udp(from + number, [1, 53], 80))
            .collect::<Vec<_>>()
    };
    let filter = Filter::compile("udp[8:4] & 1 = 0", LinkType::ETHERNET, false).unwrap();
    for (direction, expected) in [
        (Direction::In, sent(0)),
        (Direction::Out, sent(100)),
        (Direction::Both, [sent(0), sent(100)].concat()),
    ] {
        for program in [None, Some(insns(&filter))] {
            let filtered = program.is_some();
            let mut ring = Ring::open(
                "near",
                &Settings {
                    direction,
                    filter: program,
                    ..settings()
                },
            )
            .unwrap();
            let mut any = Ring::open(
                "any",
                &Settings {
                    direction,
                    ..settings()
                },
            )
            .unwrap();
            far.send_all(&sent(0));
            near.send_all(&sent(100));
            let got = frames(finish(&mut ring).unwrap());
            let passes = |frame: &Vec<u8>| !filtered || matches(&filter, frame);
            assert_eq!(
                got,
                expected
                    .iter()
                    .filter(|frame| passes(frame))
                    .cloned()
                    .collect::<Vec<_>>(),
                "{direction:?}"
            );
            // Packets of the other direction do not appear, not even as rejected.
            assert_eq!(ring.counts().received, expected.len() as u64);
            let packets = finish(&mut any).unwrap().len();
            assert_eq!(packets, if direction == Direction::Both { 24 } else { 12 });
        }
    }
    let (one, other) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    for direction in [Direction::In, Direction::Out, Direction::Both] {
        let mut rings = ["lo", "any"].map(|name| {
            Ring::open(
                name,
                &Settings {
                    direction,
                    ..settings()
                },
            )
            .unwrap()
        });
        (0..7).for_each(|_| assert!(one.send_to(b"once", other.local_addr().unwrap()).is_ok()));
        for ring in &mut rings {
            assert_eq!(
                (finish(ring).unwrap().len(), ring.counts().received),
                (7, 7),
                "{direction:?}"
            );
        }
    }
}

/// Returns the packets of a pcap file in this machine's byte order.
fn packets_of(file: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(word(20) & 0xffff, 276);
    let mut at = 24;
    let mut packets = Vec::new();
    while at < file.len() {
        let len = word(at + 8) as usize;
        packets.push((file[at + 16..at + 16 + len].to_vec(), word(at + 12)));
        at += 16 + len;
    }
    packets
}

#[test]
fn all_interfaces_are_captured_as_tcpdump_captures_them() {
    let test = "all_interfaces_are_captured_as_tcpdump_captures_them";
    if !cable(test) || !have(test, &["tcpdump"]) {
        return;
    }
    let path = std::env::temp_dir().join(format!("weir-any-{}", std::process::id()));
    let words = [
        "5",
        "tcpdump",
        "-i",
        "any",
        "-y",
        "LINUX_SLL2",
        "-c",
        "63",
        "-s",
        "300",
        "-U",
        "--immediate-mode",
        "-w",
    ];
    let mut tcpdump = Command::new("timeout")
        .args(words)
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(tcpdump.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "tcpdump ended");
    }
    let mut ring = Ring::open(
        "any",
        &Settings {
            filter: Some(vec![Insn::ret(0)]),
            ..settings()
        },
    )
    .unwrap();
    assert!(matches!(ring.kernel_filter(), KernelFilter::Refused(_)));
    let (far, near) = (Plain::on("far"), Plain::on("near"));
    let (one, other) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    for number in 0..7 {
        far.send(&udp(number, [1, 2], 60 + number as usize));
        near.send(&udp(number, [3, 4], 200));
        far.send(&tagged(
            &udp(number, [5, 6], 100),
            [0x81, 0, 0x20, number as u8],
        ));
        // A frame of IEEE 802.3, with a length in the place of the type.
        far.send(&[&udp(number, [5, 6], 100)[..12], &[0, 46], &[0x42; 46]].concat());
        one.send_to(&[1; 50], other.local_addr().unwrap()).unwrap();
    }
    let got = finish(&mut ring).unwrap();
    assert_eq!(
        (got.len(), ring.counts()),
        (
            63,
            Counts {
                received: 63,
                filtered: Some(0),
                dropped: 0,
                handed_over: 63
            }
        )
    );
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(tcpdump.wait().unwrap().success(), "{rest}");
    let theirs = packets_of(&std::fs::read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let mut tags = 0;
    for ((mut ours, mut wire), (mut theirs, theirs_wire)) in got.into_iter().zip(theirs) {
        if ours[..2] == [0x81, 0] {
            // libpcap omits the tag.
            tags += 1;
            assert_eq!(ours[20], 0x20);
            ours.copy_within(22..24, 0);
            ours.drain(20..24);
            wire -= 4;
        }
        // After an address of six bytes, two bytes are unused.
        theirs[18..20].fill(0);
        assert_eq!((ours, wire), (theirs, theirs_wire), "{rest}");
    }
    assert_eq!(tags, 14);
}

#[test]
fn packets_are_cut_to_the_snap_length_and_their_length_is_told() {
    if !cable("packets_are_cut_to_the_snap_length_and_their_length_is_told") {
        return;
    }
    let far = Plain::on("far");
    let filter = Filter::compile("udp or vlan", LinkType::ETHERNET, false).unwrap();
    for (name, snaplen, program) in [
        ("near", 64, None),
        ("near", 64, Some(insns(&filter))),
        ("near", 1, None),
        ("any", 44, None),
        ("any", 7, None),
    ] {
        let direction = Direction::In;
        let mut ring = Ring::open(
            name,
            &Settings {
                snaplen,
                filter: program,
                direction,
                ..settings()
            },
        )
        .unwrap();
        let mut sent = Vec::new();
        for len in [60, 64, 65, 400, 1514] {
            sent.push(udp(1, [1, 2], len));
            sent.push(tagged(&udp(1, [1, 2], len), [0x81, 0, 0, 9]));
        }
        far.send_all(&sent);
        let got = finish(&mut ring).unwrap();
        assert_eq!(got.len(), sent.len());
        for ((got, wire), sent) in got.into_iter().zip(sent) {
            let long = if name == "any" {
                sent.len() + 20 - 14
            } else {
                sent.len()
            };
            assert_eq!(
                (got.len(), wire as usize),
                (long.min(snaplen as usize), long)
            );
            if name == "near" {
                assert_eq!(got, sent[..got.len()]);
            }
        }
    }
}

#[test]
fn packets_that_were_never_on_a_wire_are_marked() {
    if !cable("packets_that_were_never_on_a_wire_are_marked") {
        return;
    }
    ip("link set lo mtu 1500");
    let mut ring = Ring::open("lo", &settings()).unwrap();
    let (one, other) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    (0..11).for_each(|_| assert!(one.send_to(&[1; 50], other.local_addr().unwrap()).is_ok()));
    let stop = AtomicBool::new(false);
    take_until(&mut ring, &stop, |all| all.len() == 11).unwrap();
    let marks = ring.marks();
    assert_eq!(
        (marks.unfinished_checksums, marks.large, marks.downs),
        (11, 0, 0)
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let writer =
        std::thread::spawn(move || std::io::Write::write_all(&mut near, &[7; 300_000]).unwrap());
    let mut all = Vec::new();
    far.read_to_end(&mut all).unwrap();
    writer.join().unwrap();
    assert_eq!(all.len(), 300_000);
    let got = finish(&mut ring).unwrap();
    let large = got.iter().filter(|(_, wire)| *wire > 1500 + 22).count() as u64;
    assert!(large > 0);
    assert_eq!(ring.marks().large, large);
}

#[test]
fn all_tags_of_packets_of_all_interfaces_are_there() {
    if !cable("all_tags_of_packets_of_all_interfaces_are_there") {
        return;
    }
    let plain = udp(1, [1, 2], 60);
    let twice = tagged(&tagged(&plain, [0x81, 0, 0, 7]), [0x88, 0xa8, 0, 5]);
    let mut ring = Ring::open("any", &settings()).unwrap();
    Plain::on("far").send(&twice);
    // The packet appears twice: as sent, and as received.
    let got = finish(&mut ring).unwrap();
    assert_eq!(got.len(), 2);
    for (frame, wire) in got {
        assert_eq!(
            (&frame[..2], &frame[20..]),
            (&[0x88, 0xa8][..], &twice[14..])
        );
        assert_eq!(wire as usize, twice.len() + 20 - 14);
    }
}

#[test]
fn what_a_small_block_cuts_is_counted() {
    if !cable("what_a_small_block_cuts_is_counted") {
        return;
    }
    ip("link set far mtu 9000");
    ip("link set near mtu 9000");
    assert_eq!(options::largest_frame("near"), (64 << 10) + 22);
    let far = Plain::on("far");
    let sent: Vec<_> = (0..40)
        .map(|number| udp(number, [1, 2], 200 + 200 * number as usize))
        .collect();
    for (block, snaplen) in [(4096, 262_144), (16_384, 262_144), (4096, 3000)] {
        let settings = Settings {
            snaplen,
            retire: Duration::from_millis(4),
            ..Settings::of_blocks(1 << 20, block)
        };
        let mut ring = Ring::open("near", &settings).unwrap();
        far.send_all(&sent);
        let found = finish(&mut ring).unwrap();
        assert_eq!(found.len(), sent.len());
        assert!(
            found
                .iter()
                .zip(&sent)
                .all(|((kept, wire), sent)| *wire as usize == sent.len() && sent.starts_with(kept))
        );
        let cut = found
            .iter()
            .filter(|(kept, wire)| (kept.len() as u32) < snaplen.min(*wire))
            .count();
        assert_eq!(ring.marks().cut, cut as u64);
        // A block of 4096 bytes has about 3940 bytes for a frame.
        assert_eq!(
            cut,
            if (block, snaplen) == (4096, 262_144) {
                21
            } else {
                0
            }
        );
        assert_eq!(block >= settings.least_block(8022), cut == 0);
        // For all interfaces at once, the kernel copies more bytes than are kept, because link headers are replaced.
        assert_eq!(
            Settings {
                snaplen: 3900,
                ..settings
            }
            .least_block(u32::MAX),
            8192
        );
    }
}
