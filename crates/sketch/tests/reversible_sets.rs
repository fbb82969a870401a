//! The set-per-entry Reversible Sketch: recovery, merges, threads, images.

mod support;

use std::collections::BTreeMap;
use std::thread;

use support::{random, sized_plain, zipf};
use weir_memory::Request;
use weir_sketch::{Counts, Error, Item, PARTS, Parts, ReversibleSets, SharedReversibleSets, Weigh};

type Key = [u32; PARTS];

#[derive(Debug)]
struct Tuple;

impl Parts for Tuple {
    type Key = Key;

    fn split(key: &Key) -> [u128; PARTS] {
        key.map(u128::from)
    }

    fn join(parts: &[u128; PARTS]) -> Option<Key> {
        Some(parts.map(|part| part as u32))
    }
}

fn hash(key: &Key) -> u64 {
    key.iter().fold(3, |hash, part| {
        random(hash & 0xffff, u64::from(*part)) ^ hash << 7
    })
}

/// A flow between a few hosts and ports.
fn key(number: u32) -> Key {
    [number % 251, number / 3 % 17, number, 443, 6]
}

fn items(seed: u64, flows: usize) -> Vec<Item<Key>> {
    let packets = sized_plain(seed, &zipf(seed, 20_000, flows, 1.2));
    let item = |(number, bytes): (u32, u32)| Item {
        hash: hash(&key(number)),
        bytes,
        key: key(number),
    };
    packets.into_iter().map(item).collect()
}

fn truth(items: &[Item<Key>]) -> BTreeMap<Key, Counts> {
    let mut truth = BTreeMap::<Key, Counts>::new();
    for item in items {
        let counts = truth.entry(item.key).or_default();
        counts.packets += 1;
        counts.bytes += u64::from(item.bytes);
    }
    truth
}

fn sketch(memory: usize) -> ReversibleSets<Tuple> {
    ReversibleSets::new(memory, 1, &Request::default()).unwrap()
}

#[test]
fn heavy_flows_are_recovered_while_sets_have_room() {
    let items = items(1, 400);
    let truth = truth(&items);
    let mut sketch = sketch(4 << 20);
    items.chunks(64).for_each(|items| sketch.update(items));
    assert_eq!(sketch.overflowed(), 0);
    for weigh in [Weigh::Packets, Weigh::Bytes] {
        let threshold = sketch.total().by(weigh) / 100;
        let found = sketch.recover(threshold, weigh, hash);
        assert!(found.is_complete);
        let found: BTreeMap<Key, Counts> = found.heavy.into_iter().collect();
        let heavy = truth
            .iter()
            .filter(|(_, counts)| counts.by(weigh) >= threshold);
        for (key, counts) in heavy.clone() {
            assert!(found[key].packets >= counts.packets && found[key].bytes >= counts.bytes);
        }
        assert_eq!(found.len(), heavy.count());
    }
}

#[test]
fn full_sets_say_that_keys_may_be_missing() {
    let items = items(2, 10_000);
    let mut sketch = sketch(100_000);
    sketch.update(&items);
    assert!(sketch.overflowed() > 10);
    let found = sketch.recover(sketch.total().packets / 10, Weigh::Packets, hash);
    assert!(!found.is_complete);
}

#[test]
fn eight_merged_parts_are_one_stream() {
    let items = items(3, 400);
    let mut one = sketch(2 << 20);
    one.update(&items);
    let mut sum = sketch(2 << 20);
    for part in 0..8 {
        let mut sketch = sketch(2 << 20);
        let part: Vec<_> = items.iter().skip(part).step_by(8).copied().collect();
        sketch.update(&part);
        sum.merge(&sketch).unwrap();
    }
    assert_eq!(one.overflowed(), 0);
    assert_eq!(sum.to_bytes(), one.to_bytes());
    let read = ReversibleSets::<Tuple>::from_bytes(&one.to_bytes(), &Request::default()).unwrap();
    let threshold = one.total().packets / 50;
    assert_eq!(
        read.recover(threshold, Weigh::Packets, hash),
        one.recover(threshold, Weigh::Packets, hash)
    );
}

#[test]
fn threads_lose_no_update() {
    let shared = SharedReversibleSets::<Tuple>::new(3 << 20, 1).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                items(thread, 300)
                    .chunks(50)
                    .for_each(|it| shared.update(it))
            });
        }
    });
    let snapshot = shared.snapshot(&Request::default()).unwrap();
    let all: Vec<_> = (0..4).flat_map(|thread| items(thread, 300)).collect();
    let mut one = sketch(3 << 20);
    one.update(&all);
    assert_eq!((one.overflowed(), one.shape()), (0, shared.shape()));
    assert_eq!(snapshot.to_bytes(), one.to_bytes());
}

#[test]
fn too_little_memory_and_other_sketches_are_refused() {
    let refused = ReversibleSets::<Tuple>::new(1000, 1, &Request::default()).unwrap_err();
    let Error::TooLittleMemory { given: 1000, least } = refused else {
        panic!("{refused}");
    };
    assert!(ReversibleSets::<Tuple>::new(least, 1, &Request::default()).is_ok());
    let mut one = sketch(1 << 20);
    let other = ReversibleSets::<Tuple>::new(1 << 20, 2, &Request::default()).unwrap();
    assert!(matches!(
        one.merge(&other),
        Err(Error::Differs {
            what: "hash seed",
            ..
        })
    ));
    assert!(matches!(
        one.merge(&sketch(2 << 20)),
        Err(Error::Differs { what: "width", .. })
    ));
    let empty = one.recover(0, Weigh::Packets, hash);
    assert!(empty.heavy.is_empty() && empty.is_complete);
    one.update(&items(1, 9));
    one.clear();
    assert_eq!(one.to_bytes(), sketch(1 << 20).to_bytes());
}

#[test]
fn images_are_refused_for_what_is_wrong_in_them() {
    let mut one = sketch(1 << 20);
    one.update(&[Item {
        hash: hash(&key(1)),
        bytes: 60,
        key: key(1),
    }]);
    let image = one.to_bytes();
    let body = image.len() - 8;
    let first = (56..body).find(|at| image[*at] != 0).unwrap();
    let why = |at: usize, byte: u8| {
        let mut changed = image[..body].to_vec();
        changed[at] = byte;
        let sum = changed.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        changed.extend(sum.to_le_bytes());
        match ReversibleSets::<Tuple>::from_bytes(&changed, &Request::default()) {
            Err(Error::Image { offset, why }) => (offset, why),
            other => panic!("{other:?}"),
        }
    };
    let shape = (24, "no such shape, or fewer bytes than its entries have");
    assert_eq!(
        [why(24, 3), why(32, 3), why(36, 15), why(31, 0xff)],
        [shape; 4]
    );
    let set = (
        first + 16,
        "no such set: more or fewer values than fit its packets",
    );
    assert_eq!(
        [why(first + 16, 0), why(first + 16, 17), why(first + 17, 1)],
        [set; 3]
    );
    assert_eq!(why(first, 0), (first, "bytes, but no packet"));
    assert_eq!(why(40, 2).1, "a row that does not add up to the total");
}

/// An image that version 0.1 wrote: flow `n` of 1 to 20 has `n` packets of `10 n` bytes.
#[test]
fn images_of_earlier_versions_are_read() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/formats/0.1/reversible-sets.image"
    );
    let image = std::fs::read(file).expect("the image is kept");
    let sketch = ReversibleSets::<Tuple>::from_bytes(&image, &Request::default()).unwrap();
    assert_eq!(sketch.to_bytes(), image);
    let found = sketch.recover(15, Weigh::Packets, hash);
    let heavy: BTreeMap<Key, Counts> = found.heavy.into_iter().collect();
    for number in 15..=20 {
        let counts = heavy[&key(number)];
        assert!(counts.packets >= number.into() && counts.bytes >= u64::from(10 * number * number));
    }
}

/// The oracle is a map of all flows. The small sketch has full sets, and may only miss flows that its limit allows.
#[test]
fn a_ranking_lists_the_heaviest_flows_and_limits_the_others() {
    for (memory, is_whole) in [(1 << 24, true), (1 << 20, false)] {
        let items = items(5, 3000);
        let mut sketch = sketch(memory);
        sketch.update(&items);
        assert_eq!(sketch.overflowed() == 0, is_whole);
        let truth = truth(&items);
        for weigh in [Weigh::Packets, Weigh::Bytes] {
            let mut largest: Vec<_> = truth.iter().map(|(key, it)| (it.by(weigh), *key)).collect();
            largest.sort_unstable_by(|a, b| b.cmp(a));
            for rows in [0, 1, 20] {
                let ranking = sketch.ranking(rows, weigh, hash);
                let listed: BTreeMap<_, _> = ranking.listed.iter().copied().collect();
                assert!(listed.len() == ranking.listed.len() && listed.len() <= rows);
                let weights = ranking.listed.iter().map(|(_, it)| it.by(weigh));
                assert!(weights.is_sorted_by(|a, b| a >= b));
                for (key, counts) in &truth {
                    match listed.get(key) {
                        Some(found) => assert!(found.by(weigh) >= counts.by(weigh)),
                        None => assert!(counts.by(weigh) <= ranking.at_most, "{rows} {key:?}"),
                    }
                }
                let found = largest[..rows.min(5)]
                    .iter()
                    .filter(|(_, key)| listed.contains_key(key))
                    .count();
                assert!(!is_whole || found == rows.min(5), "{rows}: {found}");
            }
        }
    }
    let empty = sketch(1 << 20).ranking(10, Weigh::Packets, hash);
    assert!(empty.listed.is_empty() && empty.at_most == 0);
}
