//! The simple hash table: collisions, merges and refusals.

mod support;

use std::collections::BTreeMap;

use support::{random, shapes, sized};
use weir_memory::{Policy, Request};
use weir_sketch::{Counts, Error, Item, SharedSimpleTable, SimpleTable, Weigh};

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

fn items(seed: u64, packets: &[(u32, u32)]) -> Vec<Item<u32>> {
    let item = |&(key, bytes): &(u32, u32)| Item {
        hash: random(seed, u64::from(key)),
        bytes,
        key,
    };
    packets.iter().map(item).collect()
}

fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
    all.into_iter()
        .fold(Counts::default(), |sum, counts| Counts {
            packets: sum.packets + counts.packets,
            bytes: sum.bytes + counts.bytes,
        })
}

/// Each packet is counted once, and no count is above the truth, whatever the seed and the order are: alone, and after a merge of
/// eight parts in any order.
#[test]
fn every_packet_is_in_a_slot_or_evicted() {
    for seed in 0..1000 {
        let all = shapes(seed, 400);
        let (name, keys) = &all[seed as usize % all.len()];
        let items = items(seed, &sized(seed, keys));
        let memory = 32 * (1 + random(seed, 7) as usize % 300);
        let table = || SimpleTable::<u32>::new(memory, seed, &request()).unwrap();
        let mut truth = BTreeMap::<u32, Counts>::new();
        for item in &items {
            let counts = truth.entry(item.key).or_default();
            counts.packets += 1;
            counts.bytes += u64::from(item.bytes);
        }
        let mut one = table();
        one.update(&items);
        let mut merged = table();
        let parts: Vec<_> = items.chunks(items.len().div_ceil(8)).collect();
        for turn in 0..parts.len() {
            let mut part = table();
            part.update(parts[(turn + seed as usize) % parts.len()]);
            merged.merge(&part, Weigh::Bytes).unwrap();
        }
        for table in [&one, &merged] {
            let in_slots = sum(table.iter().map(|(_, counts)| counts));
            assert_eq!(sum([in_slots, table.evicted()]), table.total(), "{name}");
            assert_eq!(table.total(), sum(truth.values().copied()), "{name}");
            for (key, counts) in table.iter() {
                let most = sum([counts, table.evicted()]);
                assert!(counts.packets <= truth[&key].packets && counts.bytes <= truth[&key].bytes);
                assert!(truth[&key].packets <= most.packets && truth[&key].bytes <= most.bytes);
            }
            if table.evicted() == Counts::default() {
                let found: BTreeMap<_, _> = table.iter().collect();
                assert_eq!(found, truth, "{name}: nothing was evicted");
            }
        }
    }
}

#[test]
fn of_two_keys_with_one_slot_the_newer_stays() {
    let mut table = SimpleTable::<u32>::new(32, 1, &request()).unwrap();
    let mut new = Vec::new();
    let packets = [(7, 100), (7, 50), (0, 60), (7, 10), (7, 20)];
    table.update_and_tell(&items(1, &packets), |i| new.push(i));
    assert_eq!(new, [0, 2, 3]);
    let counts = |packets, bytes| Counts { packets, bytes };
    assert_eq!(table.iter().collect::<Vec<_>>(), [(7, counts(2, 30))]);
    assert_eq!(table.evicted(), counts(3, 210));
    assert_eq!(table.get(&0, random(1, 0)), None);
    assert_eq!((table.len(), table.capacity()), (1, 1));
    table.clear();
    assert!(table.is_empty() && table.evicted() == counts(0, 0));
    table.update(&items(1, &[(0, 0)]));
    assert_eq!(table.get(&0, random(1, 0)), Some(counts(1, 0)));
}

#[test]
fn of_two_keys_the_larger_stays_in_a_merge() {
    let table = |packets: &[(u32, u32)]| {
        let mut table = SimpleTable::<u32>::new(32, 1, &request()).unwrap();
        table.update(&items(1, packets));
        table
    };
    let many = table(&[(1, 10), (1, 10), (1, 10)]);
    let large = table(&[(2, 1000)]);
    for (weigh, stays) in [(Weigh::Packets, 1), (Weigh::Bytes, 2)] {
        for (mut first, second) in [(table(&[(1, 10); 3]), &large), (table(&[(2, 1000)]), &many)] {
            first.merge(second, weigh).unwrap();
            let found: Vec<_> = first.iter().map(|(key, _)| key).collect();
            assert_eq!(found, [stays], "{weigh:?}");
            let evicted = first.evicted();
            assert_eq!(evicted.packets, if stays == 1 { 1 } else { 3 });
            assert_eq!(first.total().bytes, 1030);
        }
    }
}

#[test]
fn tables_that_differ_do_not_merge_and_none_is_too_small() {
    let mut one = SimpleTable::<u32>::new(320, 1, &request()).unwrap();
    one.update(&items(1, &[(1, 1)]));
    let other = SimpleTable::<u32>::new(640, 1, &request()).unwrap();
    let refused = one.merge(&other, Weigh::Packets).unwrap_err().to_string();
    let expected = "sketches of different slots cannot be merged: 10 here, 20 there";
    assert_eq!(refused, expected);
    let other = SimpleTable::<u32>::new(320, 2, &request()).unwrap();
    let refused = one.merge(&other, Weigh::Packets).unwrap_err().to_string();
    let expected = "sketches of different hash seed cannot be merged: 1 here, 2 there";
    assert_eq!(refused, expected);
    assert_eq!(one.total().packets, 1);
    let small = SimpleTable::<u32>::new(31, 1, &request()).unwrap_err();
    let shared = SharedSimpleTable::<[u8; 40]>::new(63, 1, &request()).unwrap_err();
    let least = |error: &Error| match error {
        Error::TooLittleMemory { least, .. } => *least,
        other => panic!("{other}"),
    };
    assert_eq!((least(&small), least(&shared)), (32, 64));
}

#[test]
fn a_shared_table_of_one_thread_is_the_table() {
    let items = items(3, &sized(3, &support::zipf(3, 20_000, 3000, 1.0)));
    let mut table = SimpleTable::<u32>::new(32 * 1000, 3, &request()).unwrap();
    let mut shared = SharedSimpleTable::<u32>::new(32 * 1000, 3, &request()).unwrap();
    for _ in 0..2 {
        let (mut new, mut shared_new) = (Vec::new(), Vec::new());
        table.update_and_tell(&items, |i| new.push(i));
        shared.update_and_tell(&items, |i| shared_new.push(i));
        assert_eq!(new, shared_new);
        assert_eq!(
            shared.snapshot(&request()).unwrap().to_bytes(),
            table.to_bytes()
        );
        assert_eq!((shared.len(), shared.capacity()), (table.len(), 1000));
        assert_eq!(shared.entries(), table.iter().collect::<Vec<_>>());
        for key in 0..3000 {
            let hash = random(3, u64::from(key));
            assert_eq!(shared.get(&key, hash), table.get(&key, hash));
        }
        table.clear();
        shared.clear();
        assert!(shared.is_empty() && shared.entries().is_empty());
        assert_eq!(shared.total(), Counts::default());
    }
}
