//! Tests of several rings and of sending: each sent packet is in exactly one ring.

use super::super::{Error, Fanout, Insn, Ring, Sender, Sent, Settings};
use super::net::{Plain, cable, finish, have, run, udp};
use crate::live::Backend;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn settings() -> Settings {
    Settings {
        retire: Duration::from_millis(4),
        ..Settings::of_blocks(4 << 20, 128 << 10)
    }
}

fn open_three(settings: &Settings, fanout: &Fanout) -> Vec<Ring> {
    Ring::open_fanout("near", settings, 3, fanout, &AtomicBool::new(false)).unwrap()
}

fn number_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

/// Returns packets of 300 flows, each in both directions.
fn conversations() -> Vec<Vec<u8>> {
    let flow = |number: u32| {
        let there = udp(number, [1000 + number as u16, 53], 90);
        let mut back = udp(number, [53, 1000 + number as u16], 90);
        back[26..34].rotate_left(4);
        [there, back]
    };
    (0..300).flat_map(flow).collect()
}

#[test]
fn no_ring_is_made_once_it_is_stopped() {
    if !cable("no_ring_is_made_once_it_is_stopped") {
        return;
    }
    let stopped = Ring::open_fanout(
        "near",
        &settings(),
        3,
        &Fanout::Hash,
        &AtomicBool::new(true),
    );
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
}

#[test]
fn each_packet_is_in_one_ring() {
    if !cable("each_packet_is_in_one_ring") {
        return;
    }
    let far = Plain::on("far");
    let sent = conversations();
    // Of received packets, the program sees the bytes after the link header.
    let program = vec![
        Insn {
            code: 0x20,
            jt: 0,
            jf: 0,
            k: 28,
        },
        Insn {
            code: 0x16,
            jt: 0,
            jf: 0,
            k: 0,
        },
    ];
    for fanout in [
        Fanout::Hash,
        Fanout::Cpu,
        Fanout::Queue,
        Fanout::Program(program),
    ] {
        let mut rings = open_three(&settings(), &fanout);
        far.send_all(&sent);
        let got: Vec<Vec<_>> = rings.iter_mut().map(|ring| finish(ring).unwrap()).collect();
        assert_eq!(
            got.iter().map(Vec::len).sum::<usize>(),
            sent.len(),
            "{fanout:?}"
        );
        let received: u64 = rings.iter().map(|ring| ring.counts().received).sum();
        assert_eq!(received, sent.len() as u64, "{fanout:?}");
        let mut all: Vec<_> = got
            .iter()
            .flatten()
            .map(|(frame, _)| frame.clone())
            .collect();
        let mut expected = sent.clone();
        all.sort();
        expected.sort();
        assert!(all == expected, "{fanout:?}");
        let mut place = BTreeMap::<u32, BTreeSet<usize>>::new();
        for (ring, frames) in got.iter().enumerate() {
            for (frame, _) in frames {
                place.entry(number_of(frame)).or_default().insert(ring);
            }
        }
        match fanout {
            Fanout::Hash => {
                assert!(
                    place.values().all(|rings| rings.len() == 1),
                    "both directions of a flow are in one ring"
                );
                assert!(got.iter().all(|frames| frames.len() > 100));
            }
            Fanout::Program(_) => {
                assert!(
                    place
                        .iter()
                        .all(|(number, rings)| rings.first() == Some(&(*number as usize % 3)))
                )
            }
            _ => {}
        }
    }
}

/// Checks the rings while the group is created and dissolved, and while other groups exist.
#[test]
fn nothing_is_doubled_while_a_group_is_made() {
    if !cable("nothing_is_doubled_while_a_group_is_made") {
        return;
    }
    let (stop, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let far = Plain::on("far");
            // The number of packets is limited, because the test may fail meanwhile.
            while !stop.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) < 300_000 {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                far.send(&udp(number, [(number % 500) as u16, 53], 90));
                if number % 64 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for _ in 0..2 {
            // The rings have enough blocks for the time in which the other rings are read.
            let settings = Settings {
                retire: Duration::from_millis(20),
                ..settings()
            };
            let mut groups = [0, 1].map(|_| open_three(&settings, &Fanout::Hash));
            let begun = sent.load(Ordering::Relaxed);
            while sent.load(Ordering::Relaxed) < begun + 1000 {
                std::thread::yield_now();
            }
            for rings in &mut groups {
                let got: Vec<Vec<_>> = rings.iter_mut().map(|ring| finish(ring).unwrap()).collect();
                let mut numbers = BTreeSet::new();
                let mut ports = BTreeMap::<u32, usize>::new();
                for (ring, frames) in got.iter().enumerate() {
                    for (frame, _) in frames {
                        assert!(numbers.insert(number_of(frame)), "it came twice");
                        // A ring that has a flow has had it from the first packet on.
                        assert_eq!(*ports.entry(number_of(frame) % 500).or_insert(ring), ring);
                    }
                }
                // Each ring has all packets of its flows from its first to its last packet.
                for (ring, frames) in got.iter().enumerate() {
                    let own: Vec<_> = frames.iter().map(|(frame, _)| number_of(frame)).collect();
                    let (first, last) = (own[0], own[own.len() - 1]);
                    let mine = |number: &u32| ports.get(&(number % 500)) == Some(&ring);
                    assert_eq!(own, (first..=last).filter(mine).collect::<Vec<_>>());
                }
                let dropped: u64 = rings.iter().map(|ring| ring.counts().dropped).sum();
                assert_eq!(dropped, 0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_sent_arrives_and_what_cannot_be_sent_is_counted() {
    if !cable("what_is_sent_arrives_and_what_cannot_be_sent_is_counted") {
        return;
    }
    let good: Vec<_> = (0..200)
        .map(|number| udp(number, [1, 2], 60 + 5 * number as usize))
        .collect();
    let (long, short) = (udp(0, [1, 2], 1600), vec![2; 13]);
    for direct in [false, true] {
        let mut ring = Ring::open("near", &settings()).unwrap();
        let mut sender = Sender::open("far", direct).unwrap();
        let mut frames: Vec<&[u8]> = good.iter().map(Vec::as_slice).collect();
        for (at, bad) in [
            (0, &long),
            (70, &short),
            (71, &long),
            (72, &long),
            (204, &short),
        ] {
            frames.insert(at, bad);
        }
        sender.send(&frames).unwrap();
        let bytes = good.iter().map(|frame| frame.len() as u64).sum();
        assert_eq!(
            sender.sent(),
            Sent {
                frames: 200,
                bytes,
                too_long: 3,
                too_short: 2,
                ..Sent::default()
            }
        );
        let got: Vec<_> = finish(&mut ring)
            .unwrap()
            .into_iter()
            .map(|(frame, _)| frame)
            .collect();
        assert_eq!(got, good);
    }
    super::net::ip("link set dev far down");
    assert!(
        Sender::open("far", false).is_err()
            || Sender::open("far", false)
                .unwrap()
                .send(&[&good[0]])
                .is_err()
    );
    assert!(Sender::open("no-such-if", false).is_err());
}

#[test]
fn a_queue_that_is_full_is_waited_for() {
    let test = "a_queue_that_is_full_is_waited_for";
    if !cable(test) || !have(test, &["tc"]) {
        return;
    }
    run(
        "tc",
        "qdisc add dev far root tbf rate 80mbit burst 4k limit 6k",
    );
    let mut ring = Ring::open("near", &settings()).unwrap();
    let good: Vec<_> = (0..200).map(|number| udp(number, [1, 2], 1000)).collect();
    let mut sender = Sender::open("far", false).unwrap();
    sender
        .send(&good.iter().map(Vec::as_slice).collect::<Vec<_>>())
        .unwrap();
    let sent = sender.sent();
    assert_eq!((sent.frames, sent.bytes), (200, 200_000));
    assert!(sent.waits > 0);
    let stop = AtomicBool::new(false);
    let got = super::net::take_until(&mut ring, &stop, |all| all.len() >= 200).unwrap();
    assert_eq!(
        got.into_iter().map(|(frame, _)| frame).collect::<Vec<_>>(),
        good
    );
    assert!(finish(&mut ring).unwrap().is_empty());
}

/// An IP packet behind `tags` to one of many addresses, and the number of that address.
fn to_address(number: u32, is_v6: bool, tags: usize) -> Vec<u8> {
    let plain = udp(number, [1000, 53], 90);
    let mut frame = plain[..12].to_vec();
    (0..tags).for_each(|tag| frame.extend([[0x81, 0, 0, 5], [0x88, 0xa8, 0, 6]][tag % 2]));
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 17, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        // The source is another one each time, the destination is not.
        frame.extend(number.wrapping_mul(77).to_be_bytes());
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend((number as u16 % 50).to_be_bytes());
        frame.extend(&plain[34..74]);
    } else {
        frame.extend(&plain[12..]);
        let ip = 14 + 4 * tags;
        frame[ip + 12..ip + 16].copy_from_slice(&number.wrapping_mul(77).to_be_bytes());
        frame[ip + 16..ip + 20].copy_from_slice(&[10, 0, 0, (number % 50) as u8]);
    }
    frame
}

#[test]
fn packets_to_one_address_are_in_one_ring() {
    if !cable("packets_to_one_address_are_in_one_ring") {
        return;
    }
    let far = Plain::on("far");
    let mut rings = open_three(&settings(), &Fanout::Address);
    let kinds: Vec<(bool, usize)> = [false, true]
        .iter()
        .flat_map(|&is_v6| (0..3).map(move |tags| (is_v6, tags)))
        .collect();
    let frames = |&(is_v6, tags): &(bool, usize)| {
        (0..200).map(move |number| to_address(number, is_v6, tags))
    };
    let sent: Vec<Vec<u8>> = kinds.iter().flat_map(frames).collect();
    far.send_all(&sent);
    let got: Vec<Vec<_>> = rings.iter_mut().map(|ring| finish(ring).unwrap()).collect();
    assert_eq!(got.iter().map(Vec::len).sum::<usize>(), sent.len());
    let mut place = BTreeMap::<Vec<u8>, BTreeSet<usize>>::new();
    for (ring, frames) in got.iter().enumerate() {
        for (frame, _) in frames {
            // Behind the tags, the type of the packet says where its destination is.
            let ip = (12..)
                .step_by(4)
                .find(|&at| matches!(frame[at..at + 2], [8, 0] | [0x86, 0xdd]))
                .unwrap()
                + 2;
            let destination = if frame[ip] >> 4 == 4 {
                ip + 16..ip + 20
            } else {
                ip + 24..ip + 40
            };
            place
                .entry(frame[destination].to_vec())
                .or_default()
                .insert(ring);
        }
    }
    assert_eq!(place.len(), 100);
    assert!(
        place.values().all(|rings| rings.len() == 1),
        "packets to one address are in several rings"
    );
    assert!(
        got.iter().all(|frames| frames.len() > sent.len() / 8),
        "{:?}",
        got.iter().map(Vec::len).collect::<Vec<_>>()
    );
}

/// Without the group's own flag a ring captures what its interface sends.
#[test]
fn a_group_leaves_out_what_the_interface_sends() {
    if !cable("a_group_leaves_out_what_the_interface_sends") {
        return;
    }
    let (far, near) = (Plain::on("far"), Plain::on("near"));
    for fanout in [Fanout::Hash, Fanout::Address, Fanout::Random] {
        let settings = Settings {
            direction: super::super::Direction::In,
            ..settings()
        };
        let mut rings = open_three(&settings, &fanout);
        near.send_all(&conversations());
        far.send_all(&conversations()[..90]);
        let got: usize = rings
            .iter_mut()
            .map(|ring| finish(ring).unwrap().len())
            .sum();
        assert_eq!(got, 90, "{fanout:?}");
    }
}
