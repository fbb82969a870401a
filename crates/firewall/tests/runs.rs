//! Runs of changes that workers publish for their batches, against a serial table that takes all batches one after the other.

use weir_firewall::permissions::{Change, Permissions, Span};
use weir_firewall::replicas::{Refused, Shard, Shared};
use weir_testkit::Random;

const ADDRESSES: usize = 24;

/// A packet: a change, or source and destination.
enum Packet {
    Change(Change<u32>),
    Data(u32, u32),
}

fn packet(random: &mut Random) -> Packet {
    let mut any = || random.below(ADDRESSES) as u32;
    let (address, begin, other) = (any(), any(), any());
    if random.below(3) > 0 {
        return Packet::Data(address, other);
    }
    let sources = Span::half_open(begin, Some(begin + 5)).unwrap();
    let persona_non_grata = [None, Some(true), Some(false)][random.below(3)];
    Packet::Change(Change {
        address,
        persona_non_grata,
        accepts: Some((sources, random.below(2) == 0)),
    })
}

/// Batches of several workers in turn; each worker has all packets to destinations and changes of its shard. The log is shorter than
/// the longest runs, so some are published in parts.
#[test]
fn verdicts_of_batches_with_runs_are_those_of_the_serial_table() {
    for (workers, room) in [(1, 1), (1, 64), (2, 2), (2, 64), (3, 1)] {
        let mut random = Random(u64::from(workers) * 100 + room as u64);
        let mut serial = Permissions::new(ADDRESSES, true, 1);
        let shared = Shared::new(Permissions::new(ADDRESSES, true, 2), room);
        let shard = |index| Shard { index, of: workers };
        let mut all: Vec<_> = (0..workers)
            .map(|index| shared.worker(shard(index)))
            .collect();
        let (mut denied, mut in_parts) = (0, 0);
        for batch in 0..3000 {
            let index = batch % workers;
            let others = (0..workers).filter(|other| *other != index);
            others.for_each(|other| all[other as usize].take_up());
            let worker = &mut all[index as usize];
            let packets = (0..random.below(20)).map(|_| packet(&mut random));
            let packets: Vec<Packet> = packets
                .filter(|packet| match packet {
                    Packet::Change(change) => shard(index).has(change.address),
                    Packet::Data(_, destination) => shard(index).has(*destination),
                })
                .collect();
            let changes: Vec<Change<u32>> = packets
                .iter()
                .filter_map(|packet| match packet {
                    Packet::Change(change) => Some(*change),
                    Packet::Data(..) => None,
                })
                .collect();
            worker.begin();
            let (mut taken_up, mut published) = (0, 0);
            for packet in &packets {
                match packet {
                    Packet::Change(change) => {
                        if taken_up == published && taken_up == 0 {
                            published += worker.publish(&changes).unwrap();
                        }
                        if taken_up == published {
                            // The other workers are behind by now, and the log may be full.
                            in_parts += 1;
                            published += match worker.publish(&changes[taken_up..]) {
                                Err(Refused::NoRoom { behind }) => {
                                    assert_eq!(behind, room as u64);
                                    break;
                                }
                                count => count.unwrap(),
                            };
                        }
                        serial.apply(change).unwrap();
                        worker.advance();
                        taken_up += 1;
                    }
                    Packet::Data(source, destination) => {
                        let expected = serial.denies(*source, *destination);
                        assert_eq!(worker.value().denies(*source, *destination), expected);
                        denied += usize::from(expected.is_some());
                    }
                }
            }
            worker.end();
        }
        assert!(
            denied > 1000 && (room < 64) == (in_parts > 100),
            "{denied} denied, {in_parts} runs in parts"
        );
        shared.with(|value| {
            for (source, destination) in
                (0..ADDRESSES as u32).flat_map(|a| (0..ADDRESSES as u32).map(move |b| (a, b)))
            {
                assert_eq!(
                    value.denies(source, destination),
                    serial.denies(source, destination)
                );
            }
        });
    }
}

#[test]
fn a_run_ends_before_the_change_that_has_no_room() {
    let ban = |address| Change {
        address,
        persona_non_grata: Some(true),
        accepts: None,
    };
    let shared = Shared::new(Permissions::<u32>::new(2, true, 1), 8);
    let mut worker = shared.worker(Shard::ALL);
    worker.begin();
    assert_eq!(worker.publish(&[ban(1), ban(2), ban(3), ban(1)]), Ok(2));
    assert!(!worker.value().is_persona_non_grata(1));
    worker.advance();
    worker.advance();
    assert!(
        [1, 2]
            .iter()
            .all(|&address| worker.value().is_persona_non_grata(address))
    );
    assert!(matches!(worker.publish(&[ban(3)]), Err(Refused::Full(_))));
    assert_eq!(
        worker.change(&Change {
            persona_non_grata: Some(false),
            ..ban(1)
        }),
        Ok(3)
    );
    assert!(!worker.value().is_persona_non_grata(1));
    worker.end();
}
