//! Reversible sketches against a twin that follows their definition word for word, and against exact counts.

use std::collections::BTreeMap;

use weir_memory::{Policy, Request};

use crate::image::{Kind, Writer};
use crate::{Difference, Reversible, ReversibleShape};

/// Bound on the visited buckets of a search, so that the twin is quick.
const WORK: usize = 1 << 14;
const HOLDS: &str = "enough memory, sketches that are alike, images of our own";

/// The number `i` of a seed, SplitMix64.
fn number(seed: u64, i: u64) -> u128 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u128::from(x ^ (x >> 31))
}

/// The definition of `rs/hashing.rs`, with one number in place of tables.
#[derive(Clone, Copy)]
struct Twin {
    bits: u32,
    rows: usize,
    width_log2: u32,
    seed: u64,
}

impl Twin {
    fn mangled(&self, key: u64) -> u128 {
        let modulus = 1u128 << self.bits;
        let half = 1u128 << (self.bits / 2);
        let mut y = (u128::from(key) ^ number(self.seed, 1)) % modulus;
        for i in 2..5 {
            y ^= y / half;
            y = y * ((number(self.seed, i) | 1) % modulus) % modulus;
        }
        y ^ (y / half)
    }

    /// The shuffle of a row's word.
    fn shuffle(&self, row: usize, word: usize) -> Vec<u8> {
        let words = self.bits as usize / 8;
        let mut all: Vec<u8> = (0..=255).collect();
        let numbers = 7 + 256 * (row * words + word) as u64..;
        for (next, k) in numbers.zip((1..256).rev()) {
            let drawn = ((number(self.seed, next) >> 32) * (k as u128 + 1)) >> 32;
            all.swap(k, drawn as usize);
        }
        all
    }

    /// Bits of the words' fields: four or more for the first word, the rest handed out one by one.
    fn fields(&self) -> Vec<u32> {
        let words = self.bits / 8;
        let mut fields = vec![0; words as usize];
        fields[0] = 4.max(self.width_log2.div_ceil(words));
        for bit in 0..self.width_log2 - fields[0] {
            fields[1 + (bit % (words - 1)) as usize] += 1;
        }
        fields
    }

    /// Cells of all rows, by a sum over the exact counts.
    fn cells(&self, truth: &BTreeMap<u64, u64>) -> Vec<u64> {
        let width = 1 << self.width_log2;
        let mut cells = vec![0; (self.rows + 2) * width];
        let mut rows = cells.chunks_exact_mut(width);
        let words = self.bits as usize / 8;
        for (row, cells) in rows.by_ref().take(self.rows).enumerate() {
            let shuffles: Vec<_> = (0..words).map(|word| self.shuffle(row, word)).collect();
            for (key, count) in truth {
                let y = self.mangled(*key);
                let mut index = 0;
                for (word, bits) in self.fields().into_iter().enumerate() {
                    let value = (y >> (8 * (words - 1 - word))) as usize % 256;
                    index = index << bits | usize::from(shuffles[word][value]) >> (8 - bits);
                }
                cells[index] += count;
            }
        }
        for (v, cells) in rows.enumerate() {
            for (key, count) in truth {
                let product = self.mangled(*key) * (number(self.seed, 5 + v as u64) | 1);
                cells[((product % (1 << 64)) >> (64 - self.width_log2)) as usize] += count;
            }
        }
        cells
    }

    fn image(&self, truth: &BTreeMap<u64, u64>) -> Vec<u8> {
        let mut image = Writer::new(Kind::Reversible, 0, self.seed);
        for value in [self.bits, self.width_log2, self.rows as u32, 8] {
            image.u32(value);
        }
        image.u64(truth.values().sum());
        self.cells(truth).iter().for_each(|cell| image.u64(*cell));
        image.finish()
    }
}

/// A sketch, and the exact counts that it stands for.
struct Side {
    sketch: Reversible<u64>,
    truth: BTreeMap<u64, u64>,
}

impl Side {
    fn new(twin: Twin) -> Self {
        let shape = ReversibleShape::new(twin.bits, twin.rows, twin.width_log2);
        Self {
            sketch: Reversible::new(shape.expect(HOLDS), twin.seed, &request()).expect(HOLDS),
            truth: BTreeMap::new(),
        }
    }

    fn see(&mut self, weighted: &[(u64, u32)]) {
        self.sketch.update_weighted(weighted.iter().copied());
        for (key, weight) in weighted {
            *self.truth.entry(*key).or_default() += u64::from(*weight);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.sketch.merge(&other.sketch).expect(HOLDS);
        for (key, weight) in &other.truth {
            *self.truth.entry(*key).or_default() += weight;
        }
    }

    fn clear(&mut self) {
        self.sketch.clear();
        self.truth.clear();
    }

    fn check(&self, twin: Twin) {
        assert_eq!(self.sketch.to_bytes(), twin.image(&self.truth));
        let largest = self.truth.values().max().copied().unwrap_or(0);
        for threshold in [largest, largest / 2] {
            self.check_recovery(threshold.max(1));
        }
        let (top, others) = self.sketch.ranking_within(3, WORK);
        assert!(top.len() <= 3);
        for (key, weight) in &self.truth {
            let found = self.sketch.estimate(*key);
            assert!(found.lower <= found.estimate && found.estimate <= found.upper);
            assert!(*weight <= found.upper);
            let is_listed = top.iter().any(|listed| listed.key == *key);
            assert!(is_listed || *weight <= others, "{weight} above {others}");
        }
    }

    /// Every key of the threshold is among the recovered keys, and each of these falls into heavy cells only.
    fn check_recovery(&self, threshold: u64) {
        let found = self.sketch.recover_within(threshold, WORK);
        let is_complete = found.is_complete;
        let keys: BTreeMap<u64, _> = found.heavy.iter().map(|key| (key.key, key)).collect();
        assert_eq!(keys.len(), found.heavy.len(), "a key twice");
        assert!(found.heavy.iter().all(|key| key.upper >= threshold));
        assert!(found.heavy.is_sorted_by(|a, b| a.estimate >= b.estimate));
        for (key, found) in &keys {
            assert_eq!(**found, self.sketch.estimate(*key));
        }
        let heavy = self.truth.iter().filter(|(_, it)| **it >= threshold);
        for (key, weight) in heavy {
            let found = keys.get(key).map(|key| key.upper);
            assert!(!is_complete || found.is_some_and(|upper| upper >= *weight));
        }
    }
}

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

/// The keys and weights of an operation.
fn weighted(next: &mut impl FnMut() -> u64, twin: Twin) -> Vec<(u64, u32)> {
    let (first, count, weight) = (next(), next() % 64, next() as u32);
    let mask = u64::MAX >> (64 - twin.bits);
    let key = |index: u64| match first % 3 {
        0 => first,
        1 => (0x0a00_0000_c0a8_0000 | first << 8) + index,
        _ => number(first, index) as u64,
    };
    (0..count).map(|at| (key(at) & mask, weight << 4)).collect()
}

/// Reads keys, weights and merges out of `data` and compares sketches with their definition and with exact counts.
///
/// **Layout**: length of keys and rows (one byte), seed (one), then operations of one byte and their arguments. **Panics**: if
/// the sketch breaks a promise.
pub fn reversible(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let (Some(shape), Some(seed)) = (bytes.next(), bytes.next()) else {
        return;
    };
    // Enough rows for the keys of the test, and few enough for a quick twin.
    let (bits, width_log2) = if shape % 8 == 0 { (64, 14) } else { (32, 10) };
    let twin = Twin {
        bits,
        rows: 4 + usize::from(shape) / 8 % 4,
        width_log2: width_log2 + u32::from(shape) / 32 % 4,
        seed: seed.into(),
    };
    let mut sides = [Side::new(twin), Side::new(twin)];
    while let Some(operation) = bytes.next() {
        let mut next = || u64::from(bytes.next().unwrap_or(0));
        let [left, right] = &mut sides;
        match operation % 8 {
            0..=2 => left.see(&weighted(&mut next, twin)),
            3 | 4 => right.see(&weighted(&mut next, twin)),
            5 => {
                left.merge(right);
                right.clear();
            }
            6 => right.clear(),
            _ => {
                let image = left.sketch.to_bytes();
                left.sketch = Reversible::from_bytes(&image, &request()).expect(HOLDS);
            }
        }
    }
    sides.iter().for_each(|side| side.check(twin));
    check_difference(&sides);
}

/// The change of a key lies between the changes of its cells.
fn check_difference([before, after]: &[Side; 2]) {
    let difference = Difference::new(Some(&before.sketch), Some(&after.sketch)).expect(HOLDS);
    let weight = |side: &Side, key| side.truth.get(key).copied().unwrap_or(0) as i64;
    for key in before.truth.keys().chain(after.truth.keys()) {
        let found = difference.estimate(*key);
        assert!(found.lower <= found.change && found.change <= found.upper);
        let change = weight(after, key) - weight(before, key);
        let total = (before.sketch.total() + after.sketch.total()) as i64;
        assert!((found.change - change).abs() <= 2 * total + 2);
    }
    let alone = before.truth.len() + after.truth.len() == 1;
    for key in difference.ranking_within(5, WORK).changed {
        let is_known = [before, after]
            .iter()
            .any(|it| it.truth.contains_key(&key.key));
        assert!(!alone || is_known);
    }
}
