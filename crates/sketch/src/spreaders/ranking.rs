//! Numbers of elements, from the sampled pairs.

use super::{Spreader, Spreaders};
use crate::{Key, mix, split_largest};

/// Bits of a weight after the binary point. Sums of integers do not depend on their order, so equal
/// samples give equal answers.
const FRACTION: u32 = 20;
const ONE: f64 = (1u64 << FRACTION) as f64;
/// Standard deviations between the mean and a bound.
const DEVIATIONS: f64 = 2.0;
/// Cells that are read first: some, and some more for each wanted key.
const CELLS: usize = 64;
const CELLS_EACH: usize = 4;
const MOST_CELLS: usize = 1 << 16;

/// Number of sampled pairs, and the sum of their weights.
pub(super) type Sum = (u64, u64);

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
        let (cells, share) = (self.cells(), self.share());
        let mut order = cells.clone();
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut read = k.saturating_mul(CELLS_EACH).saturating_add(CELLS);
        loop {
            // The sum of a key whose cell is not read is at most `bar`.
            let bar = order.get(read).copied().unwrap_or(0);
            let tallies = self.tallies(&cells, bar);
            let (listed, others) = split_largest(tallies, k, |(key, (_, sum))| (*sum, *key));
            let least = listed.last().map_or(0, |(_, (_, sum))| *sum);
            if bar > 0 && (listed.len() < k || least <= bar) {
                read = read.saturating_mul(8);
                continue;
            }
            let unread = range(((bar as f64 * share / ONE) as u64, bar), share).1;
            let uppers = others.iter().map(|(_, sum)| range(*sum, share).1);
            let most = uppers.fold(unread, u64::max);
            let listed = listed.iter().map(|(key, sum)| self.told(key, *sum, share));
            return (listed.collect(), most);
        }
    }

    /// Weights of the sampled pairs, added up by cells into which the keys are hashed.
    fn cells(&self) -> Vec<u64> {
        let len = (self.capacity() / CELLS_EACH).next_power_of_two();
        let mut cells = vec![0u64; len.min(MOST_CELLS)];
        for (weight, key) in self.pairs() {
            let cell = self.cell(key, &cells);
            cells[cell] = cells[cell].saturating_add(weight);
        }
        cells
    }

    /// The keys in cells above `bar`, in the order of their bytes.
    fn tallies(&self, cells: &[u64], bar: u64) -> Vec<(K, Sum)> {
        let pairs = self.pairs();
        let pairs = pairs.filter(|(_, key)| cells[self.cell(key, cells)] > bar);
        let mut tallies: Vec<(K, Sum)> = pairs.map(|(weight, key)| (*key, (1, weight))).collect();
        tallies.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        tallies.dedup_by(|(next, (_, weight)), (kept, sum)| {
            let is_same = next == kept;
            if is_same {
                *sum = and(*sum, (*weight, next));
            }
            is_same
        });
        tallies
    }

    /// The answer for a key, if this share of all pairs is in the sample.
    pub(super) fn told(&self, key: &K, sum: Sum, share: f64) -> Spreader<K> {
        let (lower, upper) = range(sum, share);
        Spreader {
            key: *key,
            estimate: rounded(sum.1),
            lower,
            upper,
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

/// The sum with another pair.
pub(super) fn and<K>((seen, sum): Sum, (weight, _): (u64, K)) -> Sum {
    (seen + 1, sum.saturating_add(weight))
}

/// Share of pairs with this sum that is in the sample.
pub(super) fn share((seen, sum): Sum) -> f64 {
    if seen == 0 {
        1.0
    } else {
        seen as f64 * ONE / sum as f64
    }
}

/// A sum of weights as a whole number.
pub(super) fn rounded(sum: u64) -> u64 {
    sum.saturating_add(1 << (FRACTION - 1)) >> FRACTION
}

/// Bounds of the number of pairs with this sum, if `all` is the share of all pairs in the sample.
fn range((seen, sum): Sum, all: f64) -> (u64, u64) {
    // Distance of a bound from the estimate, to the side of `sign`.
    let away = |p: f64, sign: f64| {
        let (s, q, square) = (seen as f64, (1.0 - p).max(0.0), DEVIATIONS * DEVIATIONS);
        let width = DEVIATIONS * (q * (s + square * q / 4.0)).sqrt();
        (square * q / 2.0 + sign * width) / p
    };
    let (value, least) = (sum as f64 / ONE, all.min(share((seen, sum))));
    let lower = (value + away(share((seen, sum)), -1.0)) as u64;
    let upper = (value + away(least, 1.0)).ceil() as u64;
    (lower.max(seen), upper)
}
