//! Reversible sketches against exact counts: recovery, ranges, merges, differences.

mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use support::{random, shapes, zipf};
use weir_memory::{Policy, Request};
use weir_sketch::{Difference, Error, HeavyKeys, Reversible, ReversibleShape};

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

fn sketch(memory: usize, bits: u32, seed: u64) -> Reversible<u32> {
    let shape = ReversibleShape::for_memory(memory, bits, 4).unwrap();
    Reversible::new(shape, seed, &request()).unwrap()
}

/// A key of 32 or 64 bits; every third key is a neighbour in one network.
fn key(bits: u32, seed: u64, number: u64) -> u64 {
    let any = match number % 3 {
        0 => 0x0a00_0000_c0a8_0000 | number,
        _ => random(seed ^ 0x6e7, number),
    };
    any & (u64::MAX >> (64 - bits))
}

/// Keys of `light` packets in all, and 100 heavy keys of `heavy` to `2 heavy` packets each, in an order that `seed` draws.
fn planted(bits: u32, seed: u64, light: u64, heavy: u64) -> (Vec<u64>, BTreeMap<u64, u64>) {
    let noise = (0..light).map(|at| key(bits, seed, 1000 + random(seed, at) % 300_000));
    let mut stream: Vec<u64> = noise.collect();
    let mut truth = BTreeMap::new();
    for number in 0..100 {
        let count = heavy + random(seed ^ 1, number) % heavy;
        truth.insert(key(bits, seed, number), count);
        stream.extend((0..count).map(|_| key(bits, seed, number)));
    }
    for at in (1..stream.len()).rev() {
        stream.swap(at, random(seed ^ 2, at as u64) as usize % (at + 1));
    }
    (stream, truth)
}

fn keys(found: &HeavyKeys) -> BTreeSet<u64> {
    found.heavy.iter().map(|key| key.key).collect()
}

#[test]
fn planted_keys_are_recovered_and_no_other() {
    for (bits, memory) in [(32, 2 << 20), (32, 256 << 10), (64, 4 << 20), (64, 1 << 20)] {
        for seed in 0..3 {
            let (stream, truth) = planted(bits, seed, 400_000, 3000);
            let mut sketch = sketch(memory, bits, seed);
            stream.chunks(100).for_each(|keys| sketch.update(keys));
            assert_eq!(sketch.total(), stream.len() as u64);
            let found = sketch.recover(2900);
            assert!(found.is_complete);
            assert_eq!(keys(&found), truth.keys().copied().collect(), "{sketch:?}");
            for key in &found.heavy {
                assert!(key.upper >= truth[&key.key]);
                let error = key.estimate as f64 / truth[&key.key] as f64 - 1.0;
                assert!(error.abs() < 0.05, "{error} of {sketch:?}");
            }
            let (top, others) = sketch.ranking(20);
            let least = top.iter().map(|key| key.estimate).min().unwrap();
            assert!(top.len() == 20 && others < least + 300);
        }
    }
}

/// The true weight is never above `upper`, and seldom below `lower`: over the choice of the hash functions, the share is at
/// most delta.
#[test]
fn ranges_hold_over_a_thousand_seeds_and_all_orders() {
    let (mut asked, mut below, mut delta) = (0u64, 0u64, 0.0);
    for seed in 0..1000 {
        let bits = if seed % 10 == 0 { 64 } else { 32 };
        let mut all = shapes(seed, 600);
        let (name, numbers) = all.swap_remove(seed as usize % all.len());
        let memory = if bits == 64 { 900 << 10 } else { 64 << 10 };
        let mut sketch = sketch(memory, bits, seed);
        let mut truth = HashMap::<u64, u64>::new();
        for number in numbers {
            let key = key(bits, seed, number.into());
            sketch.update(&[key]);
            *truth.entry(key).or_default() += 1;
        }
        delta = f64::max(delta, sketch.bound().delta);
        for (key, count) in truth {
            let found = sketch.estimate(key);
            assert!(count <= found.upper, "{name}: {count} {found:?}");
            asked += 1;
            below += u64::from(count < found.lower);
        }
    }
    let share = below as f64 / asked as f64;
    assert!(
        share <= delta,
        "{share} of {asked} are below, delta is {delta}"
    );
}

/// The noise of a row is subtracted: the mean over many hash functions is near the truth. It is a little below, because the
/// noise has rare large values, which a median leaves out.
#[test]
fn estimates_are_without_the_noise_of_a_row() {
    let stream: Vec<u64> = zipf(3, 30_000, 5000, 0.6)
        .into_iter()
        .map(u64::from)
        .collect();
    let (mut sum, seeds) = (0.0, 300);
    let truth = stream.iter().filter(|key| **key == 2).count() as f64;
    for seed in 0..seeds {
        let mut sketch = sketch(64 << 10, 32, seed);
        sketch.update(&stream);
        sum += sketch.estimate(2).estimate as f64;
    }
    let mean = sum / seeds as f64;
    let noise = 30_000.0 / 1024.0;
    assert!((mean - truth).abs() < noise / 4.0, "{mean} for {truth}");
}

#[test]
fn eight_merged_parts_are_one_stream() {
    for bits in [32, 64] {
        let (stream, truth) = planted(bits, 9, 50_000, 500);
        let mut one = sketch(1 << 20, bits, 7);
        one.update(&stream);
        let mut sum = sketch(1 << 20, bits, 7);
        for part in 0..8 {
            let mut sketch = sketch(1 << 20, bits, 7);
            let part: Vec<u64> = stream.iter().skip(part).step_by(8).copied().collect();
            sketch.update(&part);
            // The parts come from other machines, as images.
            let read = Reversible::from_bytes(&sketch.to_bytes(), &request()).unwrap();
            sum.merge(&read).unwrap();
        }
        assert_eq!(sum.to_bytes(), one.to_bytes());
        let truth: BTreeSet<u64> = truth.keys().copied().collect();
        assert!(keys(&sum.recover(500)).is_superset(&truth));
    }
}

/// 50 keys grow and 50 shrink between windows in which all other keys vary; exactly these are found.
#[test]
fn planted_changes_are_recovered_from_the_difference_and_no_other() {
    for (bits, memory) in [(32, 2 << 20), (64, 4 << 20)] {
        for seed in 0..8 {
            let [mut before, mut after] = [0, 1].map(|_| sketch(memory, bits, seed));
            let (stream, heavy) = planted(bits, seed, 300_000, 4000);
            before.update(&stream);
            after.update(&planted(bits, seed, 300_000, 4000).0);
            let mut truth = BTreeMap::new();
            for (at, key) in heavy.keys().copied().enumerate() {
                let change = 1500 + random(seed, at as u64) as u32 % 1500;
                let (side, sign) = match at % 2 {
                    0 => (&mut after, 1),
                    _ => (&mut before, -1),
                };
                side.update_weighted([(key, change)]);
                truth.insert(key, i64::from(change) * sign);
            }
            let difference = Difference::new(Some(&before), Some(&after)).unwrap();
            let found = difference.recover(1400);
            assert!(found.is_complete);
            let keys: BTreeSet<u64> = found.changed.iter().map(|key| key.key).collect();
            assert_eq!(keys, truth.keys().copied().collect());
            for key in &found.changed {
                let change = truth[&key.key];
                assert!(
                    (key.lower..=key.upper).contains(&change),
                    "{change} {key:?}"
                );
                assert_eq!(*key, difference.estimate(key.key));
            }
            let ranking = difference.ranking(100);
            assert_eq!(ranking.changed.len(), 100);
            assert!(
                ranking
                    .changed
                    .iter()
                    .all(|key| truth.contains_key(&key.key))
            );
        }
    }
}

#[test]
fn ranges_of_changes_hold_as_often_as_they_say() {
    let (mut asked, mut broken, mut confidence) = (0u64, 0u64, 1.0);
    for seed in 0..1000 {
        let [mut before, mut after] = [0, 1].map(|_| sketch(64 << 10, 32, seed));
        let all = shapes(seed, 400);
        let mut truth = HashMap::<u64, i64>::new();
        for (side, sign, at) in [(&mut before, -1, seed), (&mut after, 1, seed / 7 + 3)] {
            for number in &all[at as usize % all.len()].1 {
                let key = key(32, seed, (*number).into());
                side.update(&[key]);
                *truth.entry(key).or_default() += sign;
            }
        }
        let difference = Difference::new(Some(&before), Some(&after)).unwrap();
        confidence = difference.confidence();
        for (key, change) in truth {
            let found = difference.estimate(key);
            asked += 1;
            broken += u64::from(!(found.lower..=found.upper).contains(&change));
        }
    }
    let share = broken as f64 / asked as f64;
    assert!(share <= 1.0 - confidence, "{share} of {asked} are outside");
}

#[test]
fn an_empty_window_has_an_answer() {
    let empty = sketch(1 << 20, 32, 1);
    assert!(empty.recover(0).heavy.is_empty() && empty.recover(1).is_complete);
    assert_eq!(empty.ranking(5), (Vec::new(), 0));
    let mut full = sketch(1 << 20, 32, 1);
    full.update(&[77; 500]);
    let none = Difference::<u32>::new(None, None).unwrap();
    assert!(none.ranking(5).changed.is_empty() && none.recover(1).is_complete);
    for (before, after, change) in [(None, Some(&full), 500), (Some(&full), None, -500)] {
        let difference = Difference::new(before, after).unwrap();
        let found = difference.recover(100).changed;
        assert_eq!(
            (found[0].key, found[0].change, found.len()),
            (77, change, 1)
        );
    }
    full.clear();
    assert_eq!(full.to_bytes(), empty.to_bytes());
}

/// Far more heavy cells than the shape is made for: the search ends, and says that it found too little.
#[test]
fn too_many_heavy_keys_end_the_search() {
    let mut sketch = sketch(1 << 20, 64, 1);
    let all: Vec<u64> = (0..100_000).map(|at| random(5, at)).collect();
    sketch.update(&all);
    assert!(!sketch.recover(1).is_complete);
    let (top, others) = sketch.ranking(5);
    assert!(top.len() <= 5 && others >= 1);
    // Searches for more keys than there are cells begin with all cells.
    let width = sketch.shape().width();
    assert_eq!(sketch.ranking(usize::MAX), sketch.ranking(width));
    let difference = Difference::new(None, Some(&sketch)).expect("one sketch");
    let all = difference.ranking(usize::MAX);
    assert!(all.changed.len() >= difference.ranking(5).changed.len());
}

#[test]
fn sketches_that_differ_are_not_merged_nor_subtracted() {
    let one = sketch(1 << 20, 32, 1);
    for (other, what) in [
        (sketch(1 << 20, 32, 2), "hash seed"),
        (sketch(1 << 20, 64, 1), "key bits"),
        (sketch(1 << 18, 32, 1), "rows"),
    ] {
        let mut one = sketch(1 << 20, 32, 1);
        let refused = one.merge(&other).unwrap_err();
        assert!(matches!(refused, Error::Differs { what: it, .. } if it == what));
        assert!(Difference::new(Some(&other), Some(&one)).is_err());
    }
    drop(one);
}

#[test]
fn narrow_cells_saturate_and_say_so() {
    let mut sketch = sketch(1 << 20, 32, 1);
    sketch.update_weighted([(5, u32::MAX - 1)]);
    assert!(!sketch.is_saturated());
    sketch.update_weighted([(5, 7), (6, 1)]);
    assert!(sketch.is_saturated());
    assert_eq!(sketch.estimate(5).upper, u64::from(u32::MAX));
    let read = Reversible::<u32>::from_bytes(&sketch.to_bytes(), &request()).unwrap();
    assert_eq!(read.total(), u64::from(u32::MAX) + 7);
    assert_eq!(read.recover(u64::from(u32::MAX)).heavy[0].key, 5);
}
