//! The shared forms under several threads: no update is lost or counted twice.

mod support;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use support::{random, sized_plain, zipf};
use weir_memory::Request;
use weir_sketch::{Cms, Item, Rule, Shape, SharedCms, SharedExact};

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
