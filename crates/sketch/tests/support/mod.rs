//! Streams of packets, as (number of the key, bytes).
#![allow(dead_code, reason = "each test takes what it needs")]

use weir_testkit::Random;

/// The `at`-th number of the generator with this seed (splitmix64).
pub fn random(seed: u64, at: u64) -> u64 {
    Random::behind((seed << 40).wrapping_add(at)).next()
}

/// Keys with frequencies 1 / rank^skew; 0 is uniform.
pub fn zipf(seed: u64, packets: usize, keys: usize, skew: f64) -> Vec<u32> {
    let mut sums: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-skew)).collect();
    for at in 1..keys {
        sums[at] += sums[at - 1];
    }
    let all = sums[keys - 1];
    let point = |at: usize| (random(seed, at as u64) >> 11) as f64 / (1u64 << 53) as f64 * all;
    (0..packets)
        .map(|at| sums.partition_point(|sum| *sum <= point(at)) as u32)
        .collect()
}

/// Streams whose order and shape are hard for some sketch, each with its name.
pub fn shapes(seed: u64, packets: usize) -> Vec<(&'static str, Vec<u32>)> {
    let skewed = zipf(seed, packets, packets / 2, 1.1);
    let mut counts = vec![0u32; packets];
    for key in &skewed {
        counts[*key as usize] += 1;
    }
    let mut sorted = skewed.clone();
    sorted.sort_unstable();
    let mut heavy_last = skewed.clone();
    heavy_last.sort_unstable_by_key(|key| (counts[*key as usize], *key));
    let heavy_first: Vec<_> = heavy_last.iter().rev().copied().collect();
    let packets = packets as u32;
    vec![
        (
            "uniform",
            zipf(seed, packets as usize, packets as usize / 3, 0.0),
        ),
        (
            "zipf 0.8",
            zipf(seed, packets as usize, packets as usize / 2, 0.8),
        ),
        ("zipf 1.1", skewed),
        (
            "zipf 1.5",
            zipf(seed, packets as usize, packets as usize / 2, 1.5),
        ),
        ("sorted", sorted),
        ("heavy last", heavy_last),
        ("heavy first", heavy_first),
        // One key more than a bucket has slots, and one more than many buckets have.
        (
            "round robin of 14",
            (0..packets).map(|at| at % 14).collect(),
        ),
        (
            "round robin of 211",
            (0..packets).map(|at| at % 211).collect(),
        ),
        ("all distinct", (0..packets).collect()),
        ("one key", vec![0; packets as usize]),
        (
            "bursts",
            (0..packets)
                .map(|at| at / 100 % 40 + at / 4000 * 17)
                .collect(),
        ),
        (
            "a key in a flood",
            (0..packets)
                .map(|at| if at % 20 == 0 { 0 } else { at })
                .collect(),
        ),
    ]
}

/// Sizes of packets: ordinary ones, one in some hundred of the largest size, some of zero bytes.
pub fn sized(seed: u64, keys: &[u32]) -> Vec<(u32, u32)> {
    let size = |at: usize| match random(seed ^ 0x517e, at as u64) {
        draw if draw.is_multiple_of(211) => u32::MAX,
        draw if draw.is_multiple_of(97) => 0,
        draw => 60 + (draw % 1441) as u32,
    };
    keys.iter()
        .enumerate()
        .map(|(at, key)| (*key, size(at)))
        .collect()
}

/// Adds sizes that are usual on a wire.
pub fn sized_plain(seed: u64, keys: &[u32]) -> Vec<(u32, u32)> {
    let size = |at: usize| 60 + (random(seed ^ 0x517e, at as u64) % 1441) as u32;
    keys.iter()
        .enumerate()
        .map(|(at, key)| (*key, size(at)))
        .collect()
}
