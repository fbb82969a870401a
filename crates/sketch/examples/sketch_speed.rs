//! Cost of an update, and quality of the answers.
//!
//! `cargo run --release -p weir-sketch --example sketch_speed [PACKETS] [ROUNDS]`
//!
//! The stream is Zipf(1.1) over a million 13-byte keys, pre-parsed in memory. Every line contains the same floor, which
//! is printed first: reading keys, hashing them, and writing them as items. Sketches take turns, so that other load on the
//! machine affects all of them. Of their rounds, the median and the least are printed.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use weir_memory::Request;
use weir_sketch::{Cms, Distinct, Exact, Heavy, Item, Rule, Shape, SharedCms, SharedExact, Weigh};

type Key = [u8; 13];

const SEED: u64 = 0x1234_5678_9abc_def0;
const BATCH: usize = 256;
const MIB: usize = 1 << 20;

/// Hashes a key: two multiplications of 64 to 128 bits, with the halves of the products folded.
#[inline(always)]
fn hash(key: &Key) -> u64 {
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    }
    let low = u64::from_le_bytes(*key.first_chunk().expect("13 are more than 8"));
    let high = u64::from_le_bytes(*key.last_chunk().expect("13 are more than 8"));
    fold(
        fold(low ^ SEED, high ^ 0xa076_1d64_78bd_642f) ^ 0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
    )
}

/// The number at an index of the generator's sequence (splitmix64).
fn random(at: u64) -> u64 {
    weir_testkit::Random::behind(at.wrapping_sub(1)).next()
}

fn key(rank: u64) -> Key {
    let mut key = [0; 13];
    key[..8].copy_from_slice(&random(rank + 1).to_le_bytes());
    key[8..].copy_from_slice(&random(!rank).to_le_bytes()[..5]);
    key
}

/// Keys of a Zipf distribution, in the order of their packets.
fn zipf(packets: usize, keys: usize, skew: f64) -> Vec<Key> {
    let mut sums: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-skew)).collect();
    for at in 1..keys {
        sums[at] += sums[at - 1];
    }
    let all = sums[keys - 1];
    let rank = |packet: usize| {
        let point = (random(packet as u64 ^ SEED) >> 11) as f64 / (1u64 << 53) as f64 * all;
        sums.partition_point(|sum| *sum <= point)
    };
    (0..packets)
        .map(|packet| key(rank(packet) as u64))
        .collect()
}

/// Passes the stream to `update` in batches. Returns ns per packet.
#[inline(always)]
fn drive(stream: &[Key], mut update: impl FnMut(&[Item<Key>])) -> f64 {
    let start = Instant::now();
    let mut batch = [Item {
        hash: 0,
        bytes: 0,
        key: [0; 13],
    }; BATCH];
    for keys in stream.chunks(BATCH) {
        for (item, key) in batch.iter_mut().zip(keys) {
            *item = Item {
                hash: hash(key),
                bytes: 64 + u32::from(key[0]),
                key: *key,
            };
        }
        update(&batch[..keys.len()]);
    }
    start.elapsed().as_nanos() as f64 / stream.len() as f64
}

fn drive_hashes(stream: &[Key], mut update: impl FnMut(&[u64])) -> f64 {
    drive(stream, |items| {
        let mut hashes = [0; BATCH];
        for (hash, item) in hashes.iter_mut().zip(items) {
            *hash = item.hash;
        }
        update(&hashes[..items.len()]);
    })
}

/// A line of the table: makes a sketch, counts the stream in it, returns ns per packet.
type Run<'a> = (&'static str, Box<dyn Fn() -> f64 + 'a>);

fn cms_run<'a>(
    name: &'static str,
    stream: &'a [Key],
    rule: Rule,
    width: usize,
    batch: usize,
) -> Run<'a> {
    let run = move || {
        let shape = Shape::new(4, width).expect("a sensible shape");
        let mut sketch = Cms::<u32>::new(shape, rule, SEED, &Request::default()).expect("memory");
        drive_hashes(stream, |hashes| {
            hashes
                .chunks(batch)
                .for_each(|hashes| sketch.update(hashes))
        })
    };
    (name, Box::new(run))
}

fn heavy_of(stream: &[Key], memory: usize, weigh: Weigh, batch: usize) -> (Heavy<Key>, f64) {
    let mut sketch = Heavy::new(memory, weigh, SEED, &Request::default()).expect("memory");
    let ns = drive(stream, |items| {
        items.chunks(batch).for_each(|items| sketch.update(items))
    });
    (sketch, ns)
}

fn runs(stream: &[Key]) -> Vec<Run<'_>> {
    let request = Request::default;
    vec![
        (
            "floor: read, hash, item",
            Box::new(|| {
                drive(stream, |items| {
                    black_box(items);
                })
            }),
        ),
        (
            "exact 64 MiB",
            Box::new(move || {
                let mut sketch = Exact::new(64 * MIB, SEED, &request()).expect("memory");
                drive(stream, |items| sketch.update(items))
            }),
        ),
        (
            "exact 64 MiB, one by one",
            Box::new(move || {
                let mut sketch = Exact::new(64 * MIB, SEED, &request()).expect("memory");
                drive(stream, |items| {
                    items.chunks(1).for_each(|item| sketch.update(item))
                })
            }),
        ),
        (
            "exact 4 MiB, overfull",
            Box::new(move || {
                let mut sketch = Exact::new(4 * MIB, SEED, &request()).expect("memory");
                drive(stream, |items| sketch.update(items))
            }),
        ),
        (
            "exact shared 64 MiB",
            Box::new(move || {
                let sketch = SharedExact::new(64 * MIB, SEED, &request()).expect("memory");
                drive(stream, |items| sketch.update(items))
            }),
        ),
        (
            "heavy 1 MiB by packets",
            Box::new(|| heavy_of(stream, MIB, Weigh::Packets, BATCH).1),
        ),
        (
            "heavy 1 MiB by bytes",
            Box::new(|| heavy_of(stream, MIB, Weigh::Bytes, BATCH).1),
        ),
        (
            "heavy 1 MiB, one by one",
            Box::new(|| heavy_of(stream, MIB, Weigh::Packets, 1).1),
        ),
        (
            "heavy 4 MiB by packets",
            Box::new(|| heavy_of(stream, 4 * MIB, Weigh::Packets, BATCH).1),
        ),
        (
            "heavy 256 KiB by packets",
            Box::new(|| heavy_of(stream, MIB / 4, Weigh::Packets, BATCH).1),
        ),
        cms_run("cms 4 x 2^16 plain", stream, Rule::Plain, 1 << 16, BATCH),
        cms_run(
            "cms 4 x 2^16 plain, one by one",
            stream,
            Rule::Plain,
            1 << 16,
            1,
        ),
        cms_run(
            "cms 4 x 2^16 conservative",
            stream,
            Rule::Conservative,
            1 << 16,
            BATCH,
        ),
        cms_run(
            "cms 4 x 2^16 cons., one by one",
            stream,
            Rule::Conservative,
            1 << 16,
            1,
        ),
        cms_run("cms 4 x 2^20 plain", stream, Rule::Plain, 1 << 20, BATCH),
        (
            "cms shared 4 x 2^16 plain",
            Box::new(move || {
                let shape = Shape::new(4, 1 << 16).expect("a sensible shape");
                let sketch = SharedCms::new(shape, Rule::Plain, SEED, &request()).expect("memory");
                drive_hashes(stream, |hashes| sketch.update(hashes))
            }),
        ),
        (
            "cms shared 4 x 2^16 conservative",
            Box::new(move || {
                let shape = Shape::new(4, 1 << 16).expect("a sensible shape");
                let sketch =
                    SharedCms::new(shape, Rule::Conservative, SEED, &request()).expect("memory");
                drive_hashes(stream, |hashes| sketch.update(hashes))
            }),
        ),
        (
            "distinct, all packets",
            Box::new(move || {
                let mut sketch = Distinct::new(1, &request()).expect("memory");
                drive(stream, |items| {
                    items.iter().for_each(|item| sketch.see(item.hash))
                })
            }),
        ),
    ]
}

fn exact(stream: &[Key]) -> HashMap<Key, u64> {
    let mut counts = HashMap::new();
    for key in stream {
        *counts.entry(*key).or_default() += 1;
    }
    counts
}

/// Quality of heavy hitters found by `estimate`: F1, and the mean relative error.
fn score(truth: &HashMap<Key, u64>, threshold: u64, estimate: impl Fn(&Key) -> u64) -> (f64, f64) {
    let (mut right, mut wrong, mut heavy, mut error) = (0, 0, 0, 0.0);
    for (key, count) in truth {
        let estimate = estimate(key);
        match (*count > threshold, estimate > threshold) {
            (true, true) => right += 1,
            (false, false) => {}
            _ => wrong += 1,
        }
        if *count > threshold {
            heavy += 1;
            error += estimate.abs_diff(*count) as f64 / *count as f64;
        }
    }
    (
        2.0 * f64::from(right) / f64::from(2 * right + wrong),
        error / f64::from(heavy),
    )
}

fn heavy_accuracy(order: &str, stream: &[Key], truth: &HashMap<Key, u64>, memory: usize) {
    let sketch = heavy_of(stream, memory, Weigh::Packets, BATCH).0;
    let threshold = stream.len() as u64 / 10_000;
    let bounds = |key: &Key| sketch.bounds(key, hash(key));
    let broken = truth
        .iter()
        .filter(|(key, count)| !(bounds(key).0..=bounds(key).1).contains(count))
        .count();
    let by = [
        |(lower, _)| lower,
        |(lower, upper)| lower + (upper - lower) / 2,
        |(_, upper): (u64, u64)| upper,
    ];
    let scores = by.map(|of: fn((u64, u64)) -> u64| score(truth, threshold, |key| of(bounds(key))));
    println!(
        "| {order} | {} KiB | {broken} | {} | {:.4} | {:.4} | {:.4} | {:.5} | {:.5} |",
        memory >> 10,
        sketch.absent_upper(),
        scores[0].0,
        scores[1].0,
        scores[2].0,
        scores[0].1,
        scores[2].1,
    );
}

fn cms_accuracy(stream: &[Key], truth: &HashMap<Key, u64>, rule: Rule) {
    let shape = Shape::new(4, 1 << 16).expect("a sensible shape");
    let mut sketch = Cms::<u32>::new(shape, rule, SEED, &Request::default()).expect("memory");
    drive_hashes(stream, |hashes| sketch.update(hashes));
    let errors = truth
        .iter()
        .map(|(key, count)| sketch.estimate(hash(key)) as i64 - *count as i64);
    let (least, sum) = errors.clone().fold((0, 0), |(least, sum), error| {
        (error.min(least), sum + error)
    });
    let bound = sketch.bound();
    let above = errors.filter(|error| *error as u64 > bound.excess).count();
    println!(
        "| cms {rule:?} | mean error {:.2} | least {least} | above {} for {above} of {} keys (delta {:.4}) |",
        sum as f64 / truth.len() as f64,
        bound.excess,
        truth.len(),
        bound.delta
    );
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("a number"));
    let packets: usize = arguments.next().unwrap_or(10_000_000);
    let rounds: usize = arguments.next().unwrap_or(7);
    let stream = zipf(packets, 1_000_000, 1.1);
    let truth = exact(&stream);
    println!(
        "{packets} packets, {} keys, the largest has {}",
        truth.len(),
        truth.values().max().expect("packets")
    );

    let runs = runs(&stream);
    let mut times = vec![vec![]; runs.len()];
    for _ in 0..rounds {
        for ((_, run), times) in runs.iter().zip(&mut times) {
            times.push(run());
        }
    }
    println!("\n| update, with the floor in it | ns, median | ns, least |\n|---|---|---|");
    for ((name, _), mut times) in runs.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!(
            "| {name} | {:.1} | {:.1} |",
            times[times.len() / 2],
            times[0]
        );
    }

    println!(
        "\n| heavy, order | memory | bounds broken | absent at most | F1 lower | F1 middle | F1 upper | ARE lower | ARE upper |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut ascending = stream.clone();
    ascending.sort_by_key(|key| (truth[key], *key));
    for memory in [MIB / 4, MIB, 4 * MIB] {
        heavy_accuracy("as it comes", &stream, &truth, memory);
        heavy_accuracy("heavy last", &ascending, &truth, memory);
    }
    println!();
    cms_accuracy(&stream, &truth, Rule::Plain);
    cms_accuracy(&stream, &truth, Rule::Conservative);
    let mut distinct = Distinct::new(1, &Request::default()).expect("memory");
    drive(&stream, |items| {
        items.iter().for_each(|item| distinct.see(item.hash))
    });
    println!(
        "| distinct | {:.0} of {} | {:?} |",
        distinct.estimate(),
        truth.len(),
        distinct.range()
    );
}
