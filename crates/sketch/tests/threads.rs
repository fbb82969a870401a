//! The shared forms under several threads: no update is lost or counted twice.

mod support;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use support::{random, sized_plain, zipf};
use weir_memory::Request;
use weir_sketch::{
    Cms, Counts, Item, Reversible, ReversibleShape, Rule, Shape, SharedCms, SharedExact,
    SharedReversible, SharedSimpleTable, SimpleTable,
};

const THREADS: u64 = 4;

fn hash(key: u32) -> u64 {
    random(11, u64::from(key))
}

/// The packets of one thread: few keys, so that threads often meet in cells and locks.
fn stream(thread: u64) -> Vec<(u32, u32)> {
    sized_plain(thread, &zipf(thread, 40_000, 300, 1.2))
}

fn run(each: impl Fn(&[(u32, u32)]) + Sync) {
    let streams: Vec<_> = (0..THREADS).map(stream).collect();
    thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| stream.chunks(40).for_each(&each));
        }
    });
}

fn truth() -> BTreeMap<u32, (u64, u64)> {
    let mut truth = BTreeMap::new();
    for (key, bytes) in (0..THREADS).flat_map(stream) {
        let counts: &mut (u64, u64) = truth.entry(key).or_default();
        *counts = (counts.0 + 1, counts.1 + u64::from(bytes));
    }
    truth
}

fn weighted(packets: &[(u32, u32)]) -> impl Iterator<Item = (u64, u32)> {
    packets.iter().map(|(key, bytes)| (hash(*key), *bytes))
}

#[test]
fn plain_cells_are_those_of_one_thread() {
    let shape = Shape::new(3, 64).unwrap();
    let shared = SharedCms::new(shape, Rule::Plain, 1, &Request::default()).unwrap();
    run(|packets| shared.update_weighted(weighted(packets)));
    let mut one = Cms::<u64>::new(shape, Rule::Plain, 1, &Request::default()).unwrap();
    (0..THREADS).for_each(|thread| one.update_weighted(weighted(&stream(thread))));
    assert_eq!(
        shared.snapshot(&Request::default()).unwrap().to_bytes(),
        one.to_bytes()
    );
}

#[test]
fn conservative_estimates_are_between_truth_and_plain() {
    let shape = Shape::new(3, 64).unwrap();
    let shared = SharedCms::new(shape, Rule::Conservative, 1, &Request::default()).unwrap();
    run(|packets| {
        shared.update(
            &packets
                .iter()
                .map(|(key, _)| hash(*key))
                .collect::<Vec<_>>(),
        )
    });
    let mut plain = Cms::<u64>::new(shape, Rule::Plain, 1, &Request::default()).unwrap();
    for thread in 0..THREADS {
        plain.update(
            &stream(thread)
                .iter()
                .map(|(key, _)| hash(*key))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(shared.total(), plain.total());
    let mut closer = 0;
    for (key, (packets, _)) in truth() {
        let (conservative, plain) = (shared.estimate(hash(key)), plain.estimate(hash(key)));
        assert!(
            packets <= conservative && conservative <= plain,
            "{key}: {packets} {conservative} {plain}"
        );
        closer += u64::from(conservative < plain);
    }
    assert!(closer > 100, "it is conservative");
}

#[test]
fn one_conservative_key_loses_nothing_in_a_crowd() {
    let shared = SharedCms::new(
        Shape::new(4, 1024).unwrap(),
        Rule::Conservative,
        1,
        &Request::default(),
    )
    .unwrap();
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..200_000).for_each(|_| shared.update(&[hash(0)]));
            });
        }
    });
    assert_eq!(shared.estimate(hash(0)), THREADS * 200_000);
}

#[test]
fn shared_exact_counts_are_exact() {
    let shared = SharedExact::<u32>::new(1 << 18, 1, &Request::default()).unwrap();
    run(|packets| {
        let item = |(key, bytes): &(u32, u32)| Item {
            hash: hash(*key),
            bytes: *bytes,
            key: *key,
        };
        shared.update(&packets.iter().map(item).collect::<Vec<_>>());
    });
    let truth = truth();
    assert_eq!(shared.len(), truth.len());
    for (key, (packets, bytes)) in truth {
        let counts = shared.get(&key, hash(key)).unwrap();
        assert_eq!((counts.packets, counts.bytes), (packets, bytes), "{key}");
    }
}

/// Number of updates of a long run; a thousand million if WEIR_THOROUGH is set.
fn many_updates() -> u64 {
    match std::env::var_os("WEIR_THOROUGH") {
        Some(_) => 1_000_000_000,
        None => 20_000_000,
    }
}

/// Counts the streams of all threads again and again, with a call of `each` for 40 packets.
fn run_long(streams: &[Vec<Item<u32>>], each: impl Fn(&[Item<u32>]) + Sync) {
    let rounds = rounds(streams);
    thread::scope(|scope| {
        for stream in streams {
            scope.spawn(|| (0..rounds).for_each(|_| stream.chunks(40).for_each(&each)));
        }
    });
}

fn items(stream: &[(u32, u32)]) -> Vec<Item<u32>> {
    let item = |&(key, bytes): &(u32, u32)| Item {
        hash: hash(key),
        bytes,
        key,
    };
    stream.iter().map(item).collect()
}

/// Number of passes over the streams in a long run.
fn rounds(streams: &[Vec<Item<u32>>]) -> u64 {
    many_updates() / total(streams).packets
}

fn total(items: &[Vec<Item<u32>>]) -> Counts {
    let all = || items.iter().flatten();
    Counts {
        packets: all().count() as u64,
        bytes: all().map(|item| u64::from(item.bytes)).sum(),
    }
}

/// In a table of few slots, keys replace each other all the time: slots and evicted counts add up to all packets.
#[test]
fn a_simple_table_loses_no_packet_in_a_crowd() {
    let streams: Vec<_> = (0..THREADS).map(|thread| items(&stream(thread))).collect();
    let shared = SharedSimpleTable::<u32>::new(32 * 100, 1, &Request::default()).unwrap();
    run_long(&streams, |items| shared.update(items));
    let pass = total(&streams);
    let expected = Counts {
        packets: pass.packets * rounds(&streams),
        bytes: pass.bytes * rounds(&streams),
    };
    assert_eq!(shared.total(), expected);
    let evicted = shared.evicted();
    let found = shared
        .entries()
        .iter()
        .fold(evicted, |sum, (_, counts)| Counts {
            packets: sum.packets + counts.packets,
            bytes: sum.bytes + counts.bytes,
        });
    assert_eq!(found, expected);
    assert!(evicted.packets > expected.packets / 10, "{evicted:?}");
    assert_eq!(shared.len(), shared.entries().len());
}

/// Keys of which no two have one slot: the table is that of one thread, byte by byte.
#[test]
fn a_simple_table_without_collisions_is_that_of_one_thread() {
    let mut one = SimpleTable::<u32>::new(32 << 18, 1, &Request::default()).unwrap();
    let mut streams: Vec<_> = (0..THREADS).map(|thread| items(&stream(thread))).collect();
    let distinct: BTreeMap<u32, Item<u32>> = streams
        .iter()
        .flatten()
        .map(|item| (item.key, *item))
        .collect();
    let mut kept = Vec::new();
    for item in distinct.values() {
        let before = one.evicted();
        one.update(&[*item]);
        if one.evicted() == before {
            kept.push(item.key);
        }
    }
    one.clear();
    assert!(kept.len() > 250);
    for stream in &mut streams {
        stream.retain(|item| kept.binary_search(&item.key).is_ok());
        stream.truncate(39_000);
    }
    let shared = SharedSimpleTable::<u32>::new(32 << 18, 1, &Request::default()).unwrap();
    run_long(&streams, |items| shared.update(items));
    for _ in 0..rounds(&streams) {
        streams.iter().for_each(|stream| one.update(stream));
    }
    assert_eq!(one.evicted(), Counts::default());
    let snapshot = shared.snapshot(&Request::default()).unwrap();
    assert_eq!(snapshot.to_bytes(), one.to_bytes());
}

#[test]
fn plain_cells_of_a_long_run_are_those_of_one_thread() {
    let streams: Vec<_> = (0..THREADS).map(|thread| items(&stream(thread))).collect();
    let shape = Shape::new(4, 64).unwrap();
    let shared = SharedCms::new(shape, Rule::Plain, 1, &Request::default()).unwrap();
    run_long(&streams, |items| {
        shared.update_weighted(items.iter().map(|item| (item.hash, item.bytes)));
    });
    let mut one = Cms::<u64>::new(shape, Rule::Plain, 1, &Request::default()).unwrap();
    for _ in 0..rounds(&streams) {
        for stream in &streams {
            one.update_weighted(stream.iter().map(|item| (item.hash, item.bytes)));
        }
    }
    assert_eq!(
        shared.snapshot(&Request::default()).unwrap().to_bytes(),
        one.to_bytes()
    );
}

/// Reversible sketches take four times as long as Count-Min: the run is shorter, unless it is thorough.
#[test]
fn reversible_cells_of_a_long_run_are_those_of_one_thread() {
    let streams: Vec<_> = (0..THREADS).map(|thread| items(&stream(thread))).collect();
    let weighted = |items: &[Item<u32>]| -> Vec<(u64, u32)> {
        let one = |item: &Item<u32>| (u64::from(item.key), item.bytes);
        items.iter().map(one).collect()
    };
    let rounds = match std::env::var_os("WEIR_THOROUGH") {
        Some(_) => rounds(&streams) / 2,
        None => 5,
    };
    for bits in [32, 64] {
        let shape = ReversibleShape::for_memory(2 << 20, bits, 8).unwrap();
        let shared = SharedReversible::new(shape, 1, &Request::default()).unwrap();
        let mut one = Reversible::<u64>::new(shape, 1, &Request::default()).unwrap();
        thread::scope(|scope| {
            for stream in &streams {
                let (shared, stream) = (&shared, weighted(stream));
                scope.spawn(move || {
                    for part in (0..rounds).flat_map(|_| stream.chunks(40)) {
                        shared.update_weighted(part.iter().copied());
                    }
                });
            }
        });
        for _ in 0..rounds {
            for stream in &streams {
                one.update_weighted(weighted(stream));
            }
        }
        assert_eq!(shared.total(), one.total());
        let snapshot = shared.snapshot(&Request::default()).unwrap();
        assert_eq!(snapshot.to_bytes(), one.to_bytes());
    }
}
