//! The majority vote: its probable bound over many seeds, recovery of heavy keys, and refusals.

mod support;

use std::collections::BTreeMap;

use support::{random, shapes, sized_plain, zipf};
use weir_memory::{Policy, Request};
use weir_sketch::{Error, Item, MajorityVote, Weigh};

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

fn truth(packets: &[(u32, u32)], weigh: Weigh) -> BTreeMap<u32, u64> {
    let mut truth = BTreeMap::new();
    for &(key, bytes) in packets {
        *truth.entry(key).or_default() += match weigh {
            Weigh::Packets => 1,
            Weigh::Bytes => u64::from(bytes),
        };
    }
    truth
}

/// Certain bounds hold for every key, and the probable bound for all but a share of 2^-rows, over a thousand seeds. Streams are of
/// all shapes; each is counted in one sketch, and in eight that are merged.
#[test]
fn bounds_hold_over_a_thousand_seeds() {
    let mut beyond = [0; 3];
    let mut asked = [0; 3];
    for seed in 0..1000 {
        let all = shapes(seed, 600);
        let (name, keys) = &all[seed as usize % all.len()];
        let packets = sized_plain(seed, keys);
        let weigh = [Weigh::Packets, Weigh::Bytes][seed as usize % 2];
        let rows = 1 + seed as usize % 3;
        let width = 8 + random(seed, 3) as usize % 60;
        let sketch =
            || MajorityVote::<u32>::of_shape(rows, width, weigh, seed, &request()).unwrap();
        let all = items(seed, &packets);
        let mut one = sketch();
        one.update(&all);
        let mut merged = sketch();
        let parts: Vec<_> = all.chunks(all.len().div_ceil(8)).collect();
        for turn in 0..parts.len() {
            let mut part = sketch();
            part.update(parts[(turn + seed as usize) % parts.len()]);
            merged.merge(&part).unwrap();
        }
        assert_eq!(merged.total(), one.total());
        for sketch in [&one, &merged] {
            for (key, weight) in truth(&packets, weigh) {
                let (lower, upper) = sketch.bounds(&key, random(seed, u64::from(key)));
                assert!(
                    lower <= weight && weight <= upper,
                    "{name}, {key}: {weight} in {lower}..={upper}"
                );
                asked[rows - 1] += 1;
                beyond[rows - 1] += u64::from(upper - weight > sketch.excess());
            }
        }
    }
    println!("{beyond:?} of {asked:?}");
    for rows in 1..=3u32 {
        let (beyond, asked) = (beyond[rows as usize - 1], asked[rows as usize - 1]);
        assert!(
            asked > 10_000 && beyond < asked >> rows,
            "{beyond} of {asked}, {rows} rows"
        );
    }
}

/// An adversary who knows the algorithm, though not the seed, sends so that votes for the heavy key are cancelled again and
/// again. The heavy key is found and its bounds hold.
#[test]
fn a_heavy_key_is_found_in_adversarial_orders() {
    const PACKETS: u32 = 20_000;
    for seed in 0..60 {
        let heavy = |at: u32| match seed % 6 {
            0 => at < PACKETS / 10,
            1 => at >= PACKETS / 10 * 9,
            2 => at.is_multiple_of(10),
            // Bursts, each followed by a flood of new keys.
            3 => at % 1000 < 100,
            4 => (PACKETS / 3..PACKETS / 3 + PACKETS / 10).contains(&at),
            _ => {
                at % 10 == 9 && at > PACKETS / 2 || (PACKETS / 4..PACKETS / 4 + 1000).contains(&at)
            }
        };
        let packets: Vec<_> = (0..PACKETS)
            .map(|at| if heavy(at) { (0, 700) } else { (1 + at, 700) })
            .collect();
        let mut sketch =
            MajorityVote::<u32>::of_shape(4, 200, Weigh::Packets, seed, &request()).unwrap();
        sketch.update(&items(seed, &packets));
        let hash = |key: &u32| random(seed, u64::from(*key));
        let weight = truth(&packets, Weigh::Packets)[&0];
        let (listed, most) = sketch.ranking(1, hash);
        let first = listed[0];
        assert_eq!(first.key, 0, "seed {seed}");
        assert!(first.lower <= weight && weight <= first.upper && most < first.lower);
        assert!(first.upper - weight <= 3 * sketch.excess());
        assert!(first.companion_lower <= 700 * weight && 700 * weight <= first.companion_upper);
    }
}

/// Heavy keys of a skewed stream: the sketch names them all, and no other key has so high an upper bound.
#[test]
fn heavy_keys_of_a_skewed_stream_are_recovered() {
    for weigh in [Weigh::Packets, Weigh::Bytes] {
        let packets = sized_plain(5, &zipf(5, 200_000, 100_000, 1.1));
        let mut sketch = MajorityVote::<u32>::new(1 << 19, weigh, 5, &request()).unwrap();
        sketch.update(&items(5, &packets));
        let truth = truth(&packets, weigh);
        let threshold = truth.values().sum::<u64>() / 1000;
        let hash = |key: &u32| random(5, u64::from(*key));
        let found: Vec<u32> = sketch
            .entries(hash)
            .filter(|entry| entry.upper >= threshold)
            .map(|entry| entry.key)
            .collect();
        let right = found.iter().filter(|key| truth[key] >= threshold).count();
        let heavy = truth
            .values()
            .filter(|weight| **weight >= threshold)
            .count();
        assert!(heavy > 50, "{heavy}");
        assert_eq!(right, heavy, "all are named");
        assert!(
            found.len() <= heavy + heavy / 50,
            "{} of {heavy}",
            found.len()
        );
    }
}

/// A free bucket is one without weight. A key whose bytes are all zero is a key like others.
#[test]
fn a_key_of_zeros_is_named() {
    let mut sketch = MajorityVote::<u32>::of_shape(2, 16, Weigh::Packets, 0, &request()).unwrap();
    let hash = |key: &u32| random(0, u64::from(*key));
    assert_eq!(sketch.entries(hash).count(), 0);
    assert_eq!(sketch.get(&0, hash(&0)), None);
    let mut new = Vec::new();
    sketch.update_and_tell(&items(0, &[(0, 60), (0, 60)]), |i| new.push(i));
    assert_eq!(new, [0]);
    let entries: Vec<_> = sketch.entries(hash).collect();
    assert_eq!(
        (entries[0].key, entries[0].lower, entries[0].upper),
        (0, 2, 2)
    );
    assert_eq!(
        (entries[0].companion_lower, entries[0].companion_upper),
        (120, 120)
    );
    assert_eq!(entries.len(), 1);
    sketch.clear();
    assert_eq!(sketch.entries(hash).count(), 0);
    assert_eq!(sketch.bounds(&0, hash(&0)), (0, 0));
}

#[test]
fn shapes_follow_from_errors_and_memory() {
    let for_error = |epsilon, delta| {
        MajorityVote::<u32>::for_error(epsilon, delta, Weigh::Bytes, 1, &request())
    };
    let sketch = for_error(0.001, 0.01).unwrap();
    assert_eq!((sketch.rows(), sketch.width()), (7, 2000));
    assert!(sketch.delta() <= 0.01 && sketch.epsilon() <= 0.001);
    let by_memory = |memory| MajorityVote::<[u8; 40]>::new(memory, Weigh::Bytes, 1, &request());
    let sketch = by_memory(1 << 20).unwrap();
    assert_eq!((sketch.rows(), sketch.width()), (4, 4096));
    assert_eq!(sketch.memory_bytes(), 1 << 20);
    assert!(matches!(
        by_memory(255).unwrap_err(),
        Error::TooLittleMemory {
            given: 255,
            least: 256
        }
    ));
    for (epsilon, delta) in [
        (0.0, 0.1),
        (1.0, 0.1),
        (f64::NAN, 0.1),
        (0.1, 0.0),
        (0.1, 1.0),
        (0.1, f64::NAN),
    ] {
        let refused = for_error(epsilon, delta).unwrap_err();
        assert!(matches!(refused, Error::Parameter { .. }));
    }
    for (rows, width) in [(0, 4), (33, 4), (4, 0)] {
        let refused = MajorityVote::<u32>::of_shape(rows, width, Weigh::Bytes, 1, &request());
        assert!(matches!(refused.unwrap_err(), Error::Parameter { .. }));
    }
}

#[test]
fn sketches_that_differ_do_not_merge() {
    let sketch = |rows, width, weigh, seed| {
        MajorityVote::<u32>::of_shape(rows, width, weigh, seed, &request()).unwrap()
    };
    let mut one = sketch(2, 8, Weigh::Packets, 1);
    let mut refusal = |other| match one.merge(&other) {
        Err(Error::Differs { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(sketch(3, 8, Weigh::Packets, 1)), "rows");
    assert_eq!(refusal(sketch(2, 9, Weigh::Packets, 1)), "width");
    assert_eq!(refusal(sketch(2, 8, Weigh::Bytes, 1)), "weight");
    assert_eq!(refusal(sketch(2, 8, Weigh::Packets, 2)), "hash seed");
}
