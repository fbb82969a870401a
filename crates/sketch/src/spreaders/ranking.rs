//! Numbers of elements, from the sampled pairs.

use super::{Marks, Spreader, Spreaders};
use crate::{Key, mix, split_largest};

/// Bits of a weight after the binary point. Sums of integers do not depend on their order, so equal
/// samples give equal answers.
const FRACTION: u32 = 20;
const ONE: f64 = (1u64 << FRACTION) as f64;
/// Probability that the bounds of some key of a sketch do not hold.
const DOUBT: f64 = 0.05;
/// Cells that are read first: some, and some more for each wanted key.
const CELLS: usize = 64;
const CELLS_EACH: usize = 4;
const MOST_CELLS: usize = 1 << 16;

/// Sampled pairs of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Number of pairs.
    seen: u64,
    /// Sum of their weights.
    pub weight: u64,
    /// Weights of pairs without an answer.
    unanswered: u64,
    /// Weights of pairs with refusals only.
    refused: u64,
}

impl Sum {
    /// Counts another pair.
    pub fn count(&mut self, weight: u64, marks: Marks) {
        self.seen += 1;
        self.weight = self.weight.saturating_add(weight);
        if marks == Marks::CONTACT {
            self.unanswered = self.unanswered.saturating_add(weight);
        }
        if marks == Marks::CONTACT | Marks::REFUSAL {
            self.refused = self.refused.saturating_add(weight);
        }
    }

    /// Counts the pairs of `other`.
    fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.weight = self.weight.saturating_add(other.weight);
        self.unanswered = self.unanswered.saturating_add(other.unanswered);
        self.refused = self.refused.saturating_add(other.refused);
    }

    /// Share of the pairs that is in the sample.
    pub fn share(&self) -> f64 {
        match self.seen {
            0 => 1.0,
            seen => seen as f64 * ONE / self.weight as f64,
        }
    }
}

impl FromIterator<(u64, Marks)> for Sum {
    fn from_iter<T: IntoIterator<Item = (u64, Marks)>>(pairs: T) -> Self {
        let mut sum = Self::default();
        let pairs = pairs.into_iter();
        pairs.for_each(|(weight, marks)| sum.count(weight, marks));
        sum
    }
}

impl<K: Key> Spreaders<K> {
    /// The `k` keys with the largest estimates, largest first; equal ones in the order of their key's bytes.
    ///
    /// **Cost**: as [`ranking`](Self::ranking).
    pub fn top(&self, k: usize) -> Vec<Spreader<K>> {
        self.ranking(k).0
    }

    /// The keys of [`top`](Self::top), and the largest upper bound of any other key.
    ///
    /// **Cost**: reads the sample twice, and sorts the pairs of keys that may be listed; allocates room for them and for up to
    /// 65 536 sums. If few keys do not stand out from the rest, it sorts the whole sample.
    pub fn ranking(&self, k: usize) -> (Vec<Spreader<K>>, u64) {
        let cells = self.cells();
        let share = self.share();
        let knows_answers = self.knows_answers();
        let mut order = cells.clone();
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut read = k.saturating_mul(CELLS_EACH).saturating_add(CELLS);
        loop {
            // The sum of a key whose cell is not read is at most `bar`.
            let bar = order.get(read).copied().unwrap_or(0);
            let tallies = self.tallies(&cells, bar);
            let (listed, others) = split_largest(tallies, k, |(key, sum)| (sum.weight, *key));
            let least = listed.last().map_or(0, |(_, sum)| sum.weight);
            if bar > 0 && (listed.len() < k || least <= bar) {
                read = read.saturating_mul(8);
                continue;
            }
            let unread = Sum {
                seen: (bar as f64 * share / ONE) as u64,
                weight: bar,
                ..Sum::default()
            };
            let scale = self.scale();
            let least = scale.upper(unread, 0);
            let most = others
                .iter()
                .fold(least, |most, (_, sum)| scale.upper(*sum, most));
            let told = |(key, sum): &(K, Sum)| scale.told(key, *sum, knows_answers);
            return (listed.iter().map(told).collect(), most);
        }
    }

    /// Weights of the sampled pairs, added up by cells into which the keys are hashed.
    fn cells(&self) -> Vec<u64> {
        let len = (self.capacity() / CELLS_EACH).next_power_of_two();
        let mut cells = vec![0u64; len.min(MOST_CELLS)];
        for (weight, key, _) in self.pairs() {
            let cell = self.cell(key, &cells);
            cells[cell] = cells[cell].saturating_add(weight);
        }
        cells
    }

    /// The keys in cells above `bar`, in the order of their bytes.
    fn tallies(&self, cells: &[u64], bar: u64) -> Vec<(K, Sum)> {
        let pairs = self.pairs();
        let pairs = pairs.filter(|(_, key, _)| cells[self.cell(key, cells)] > bar);
        let sum = |weight, marks| Sum::from_iter([(weight, marks)]);
        let mut tallies: Vec<(K, Sum)> = pairs
            .map(|(weight, key, marks)| (*key, sum(weight, marks)))
            .collect();
        tallies.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        tallies.dedup_by(|(next, more), (kept, sum)| {
            let is_same = next == kept;
            if is_same {
                sum.add(*more);
            }
            is_same
        });
        tallies
    }

    /// Terms of the bounds, equal for all keys.
    ///
    /// **Cost**: reads all ranks.
    pub(super) fn scale(&self) -> Scale {
        let keys = self.distinct().max(1);
        Scale {
            share: self.share(),
            limit: (2.0 * keys as f64 / DOUBT).ln(),
        }
    }

    /// Cell of a key; there is a power of two of them. Keys that share a cell cost time and change no answer.
    fn cell(&self, key: &K, cells: &[u64]) -> usize {
        let mut hash = self.seed;
        for part in key.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            hash = mix(hash ^ u64::from_le_bytes(bytes));
        }
        hash as usize & (cells.len() - 1)
    }
}

/// Number of pairs that a sampled pair of a bucket with this floor represents.
pub(super) fn weight(floor: u32) -> u64 {
    (u64::from(u32::MAX) << FRACTION) / u64::from((u32::MAX - floor).max(1))
}

/// A sum of weights as a whole number.
pub(super) fn rounded(sum: u64) -> u64 {
    sum.saturating_add(1 << (FRACTION - 1)) >> FRACTION
}

/// Terms of the bounds, equal for all keys of a sketch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Share of all pairs that is in the sample.
    share: f64,
    /// Divergence at a bound: a key is outside with probability e^-limit, times two for both sides.
    limit: f64,
}

impl Scale {
    /// The answer for a key.
    pub fn told<K: Key>(&self, key: &K, sum: Sum, knows_answers: bool) -> Spreader<K> {
        Spreader {
            key: *key,
            estimate: rounded(sum.weight),
            lower: self.lower(sum),
            upper: self.upper(sum, 0),
            unanswered: knows_answers.then(|| rounded(sum.unanswered)),
            refused: knows_answers.then(|| rounded(sum.refused)),
        }
    }

    /// Lower bound of the number of pairs with this sum.
    fn lower(&self, sum: Sum) -> u64 {
        let p = self.share.max(sum.share());
        let is_within = |n: u64| divergence(sum.seen, n, p) <= self.limit;
        let (mut out, mut within) = (sum.seen, (sum.seen as f64 / p) as u64);
        if within <= out || is_within(out) {
            return out;
        }
        while within - out > 1 {
            let middle = out + (within - out) / 2;
            match is_within(middle) {
                true => within = middle,
                false => out = middle,
            }
        }
        out.min(rounded(sum.weight))
    }

    /// Upper bound of the number of pairs with this sum, or `least` if that is larger. **Cost**: one divergence if `least` is larger.
    pub fn upper(&self, sum: Sum, least: u64) -> u64 {
        let p = self.share.min(sum.share());
        let least = least.max(rounded(sum.weight)).max(sum.seen);
        if p >= 1.0 {
            return least;
        }
        let is_outside = |n: u64| divergence(sum.seen, n, p) > self.limit;
        let mut within = (sum.seen as f64 / p).ceil() as u64;
        if least >= within && is_outside(least) {
            return least;
        }
        let mut out = within
            .saturating_mul(2)
            .saturating_add((self.limit / p) as u64);
        while !is_outside(out) && out < u64::MAX {
            (within, out) = (out, out.saturating_mul(2));
        }
        while out - within > 1 {
            let middle = within + (out - within) / 2;
            match is_outside(middle) {
                true => out = middle,
                false => within = middle,
            }
        }
        out.max(least)
    }
}

/// Divergence of Kullback and Leibler between `seen` of `n` pairs and a share `p`, times `n`.
///
/// The probability that a sample of this share has at least (or, below the mean, at most) `seen` of `n` pairs is at most
/// e^-divergence: Chernoff's bound.
fn divergence(seen: u64, n: u64, p: f64) -> f64 {
    let part = |a: f64, b: f64| if a > 0.0 { a * (a / b).ln() } else { 0.0 };
    let (seen, n) = (seen as f64, n as f64);
    part(seen, n * p) + part(n - seen, n * (1.0 - p))
}
