//! Reorder density (RFC 5236): packets by their displacement.
//!
//! ```text
//! receive index   of the k-th packet that arrives: the k-th smallest number of all that arrive; lost numbers have none
//! displacement    receive index - number: above 0 for packets that came late, below 0 for packets that came early
//! ```
//!
//! A number that has not arrived [`REACH`] packets after its place is lost.

use std::collections::{BTreeMap, VecDeque};

/// Largest displacement of either sign (the threshold of the RFC); larger displacements count as this one.
pub(super) const REACH: usize = 64;

/// Displacements of the packets of a stream.
#[derive(Clone, Debug)]
pub(super) struct Density {
    /// Packets by displacement, from `-REACH` on.
    counts: [u64; 2 * REACH + 1],
    /// Numbers that wait for their receive index, in the order of their arrival.
    waiting: VecDeque<u64>,
    /// Next receive index.
    next: u64,
}

impl Density {
    pub(super) fn new() -> Self {
        Self {
            counts: [0; 2 * REACH + 1],
            waiting: VecDeque::with_capacity(REACH + 1),
            next: 0,
        }
    }

    /// Takes a packet that has not arrived before. `has` says whether a number has arrived. **Cost**: some comparisons; no allocation.
    pub(super) fn arrives(&mut self, number: u64, has: impl Fn(u64) -> bool) {
        self.waiting.push_back(number);
        if self.waiting.len() > REACH {
            self.settle(&has);
        }
    }

    /// Gives the oldest waiting packet its receive index.
    fn settle(&mut self, has: &impl Fn(u64) -> bool) {
        let Some(number) = self.waiting.pop_front() else {
            return;
        };
        // A receive index beyond the reach of all packets is that of the least number that waits.
        let near = self.next..self.next.saturating_add(2 * REACH as u64);
        let near = { near }.find(|&index| has(index));
        let waiting = self.waiting.iter().chain([&number]);
        let least = || waiting.copied().filter(|it| *it >= self.next).min();
        let index = near.or_else(least).unwrap_or(self.next);
        self.next = index.saturating_add(1);
        let reach = REACH as i128;
        let displacement = (i128::from(index) - i128::from(number)).clamp(-reach, reach);
        self.counts[(displacement + reach) as usize] += 1;
    }

    /// Adds the packets so far to `sum`, by displacement.
    pub(super) fn add_to(&self, sum: &mut BTreeMap<i64, u64>, has: impl Fn(u64) -> bool) {
        let mut all = self.clone();
        while !all.waiting.is_empty() {
            all.settle(&has);
        }
        for (place, &count) in all.counts.iter().enumerate() {
            if count > 0 {
                *sum.entry(place as i64 - REACH as i64).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use weir_testkit::Random;

    fn density(arriving: &[u64]) -> Vec<(i64, u64)> {
        let (mut density, mut seen, mut sum) = (Density::new(), HashSet::new(), BTreeMap::new());
        for &number in arriving {
            if seen.insert(number) {
                density.arrives(number, |other| seen.contains(&other));
            }
        }
        density.add_to(&mut sum, |other| seen.contains(&other));
        sum.into_iter().collect()
    }

    #[test]
    fn displacements_are_those_of_the_definition() {
        assert_eq!(density(&[0, 1, 3, 4, 2]), [(-1, 2), (0, 2), (2, 1)]);
        // 2 is lost, and 4 arrives twice.
        assert_eq!(density(&[0, 1, 4, 3, 4, 5]), [(-1, 1), (0, 3), (1, 1)]);
        assert_eq!(density(&[u64::MAX - 1, 3]), [(-64, 1), (1, 1)]);
        for seed in 0..20 {
            let mut random = Random::behind(seed);
            let mut arriving: Vec<(u64, u64)> = Vec::new();
            for number in 0..3000 {
                if random.below(10) > 0 {
                    arriving.push((number + random.below(20) as u64, number));
                }
            }
            arriving.sort_by_key(|it| it.0);
            let arriving: Vec<u64> = arriving.into_iter().map(|it| it.1).collect();
            let mut sorted = arriving.clone();
            sorted.sort_unstable();
            let mut expected = BTreeMap::new();
            for (index, number) in sorted.iter().zip(&arriving) {
                *expected.entry(*index as i64 - *number as i64).or_default() += 1;
            }
            assert_eq!(
                density(&arriving),
                expected.into_iter().collect::<Vec<(i64, u64)>>()
            );
        }
    }
}
