//! Draws from given distributions: any finite table in constant time, and exponential gaps.
//!
//! All values are computed with `+ - * /` alone, which IEEE 754 fixes to the last bit. `f64::ln` and `f64::powf` depend on the
//! platform and may differ in that bit, which would change the bytes that a seed gives.

use std::f64::consts::{LN_2, SQRT_2};

/// A finite distribution, drawn from in constant time.
///
/// **Cost**: 8 bytes per outcome; a draw is one multiplication and at most one cache miss.
/// **Error bound**: each probability is off by at most 2^-32 of an outcome's share.
/// **Source**: A. J. Walker 1977; table construction of M. D. Vose, IEEE TSE 17(9), 1991.
#[derive(Clone, Debug)]
pub(crate) struct Alias {
    cells: Box<[Cell]>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Part of the cell that belongs to its own outcome, in 1/2^32; the rest belongs to the alias.
    own: u32,
    alias: u32,
}

impl Alias {
    /// Builds the table of `weights`, which are non-negative, finite, not all zero, and fewer than 2^32.
    pub(crate) fn new(weights: &[f64]) -> Alias {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut share: Vec<f64> = weights.iter().map(|w| w * scale).collect();
        // An outcome left over at the end because of rounding owns its cell whole: alias = itself.
        let mut cells: Box<[Cell]> = (0..share.len() as u32)
            .map(|i| Cell {
                own: u32::MAX,
                alias: i,
            })
            .collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..share.len() as u32).partition(|&i| share[i as usize] < 1.0);
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            cells[poor as usize] = Cell {
                own: (share[poor as usize] * 4_294_967_296.0) as u32,
                alias: rich,
            };
            share[rich as usize] -= 1.0 - share[poor as usize];
            if share[rich as usize] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Alias { cells }
    }

    /// The outcome chosen by 64 uniform bits.
    #[inline]
    pub(crate) fn pick(&self, random: u64) -> usize {
        let product = u128::from(random) * self.cells.len() as u128;
        let index = (product >> 64) as usize;
        let cell = self.cells[index];
        if ((product >> 32) as u32) < cell.own {
            index
        } else {
            cell.alias as usize
        }
    }
}

/// Zipf weights `1 / rank^exponent` for ranks 1 to `count`.
pub(crate) fn zipf_weights(count: usize, exponent: f64) -> Vec<f64> {
    (1..=count)
        .map(|rank| zipf_weight(rank as f64, exponent))
        .collect()
}

/// Zipf weight `1 / rank^exponent` of a rank.
pub(crate) fn zipf_weight(rank: f64, exponent: f64) -> f64 {
    exp(-exponent * ln(rank))
}

/// Departure times with exponential gaps: a Poisson stream of a given mean rate.
///
/// **Units**: ns. **Error bound**: a gap takes one of 4096 equally likely multiples of the mean (the middles of the
/// quantiles, scaled to mean one), so no gap is longer than 9.1 times the mean. Fractions of a ns are carried, not lost.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start_ns: i64,
    /// Time since the start, in 2^-32 ns.
    elapsed: u128,
    /// Mean gap in 2^-32 ns.
    mean: u64,
    /// Possible gaps as multiples of the mean, in 2^-20.
    gaps: Box<[u32; 4096]>,
}

impl Clock {
    /// A clock that starts at `start_ns`. `rate_pps` is not zero.
    pub(crate) fn new(start_ns: i64, rate_pps: u64) -> Clock {
        let quantile = |i: usize| -ln(1.0 - (i as f64 + 0.5) / 4096.0);
        let mean = (0..4096).map(quantile).sum::<f64>() / 4096.0;
        let mut gaps = Box::new([0; 4096]);
        for (i, gap) in gaps.iter_mut().enumerate() {
            *gap = (quantile(i) / mean * 1_048_576.0 + 0.5) as u32;
        }
        Clock {
            start_ns,
            elapsed: 0,
            mean: (1_000_000_000 << 32) / rate_pps,
            gaps,
        }
    }

    /// The present time. Stops at the end of `i64` (the year 2262).
    #[inline]
    pub(crate) fn now(&self) -> i64 {
        let since = i64::try_from(self.elapsed >> 32).unwrap_or(i64::MAX);
        self.start_ns.saturating_add(since)
    }

    /// Returns the present time, then adds a random gap.
    #[inline]
    pub(crate) fn tick(&mut self, random: u64) -> i64 {
        let now = self.now();
        let gap = self.gaps[(random >> 52) as usize];
        self.elapsed += (u128::from(self.mean) * u128::from(gap)) >> 20;
        now
    }
}

/// Natural logarithm of a positive normal number: `x = m * 2^e`, `ln m = 2 artanh((m - 1) / (m + 1))` as a series.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if m > SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    // |t| < 0.172: the first term left out is below 1e-17 of the sum.
    let series = (0..12).rev().fold(0.0, |sum, k| {
        sum * square + 1.0 / (2.0 * f64::from(k) + 1.0)
    });
    2.0 * t * series + f64::from(exponent) * LN_2
}

/// `e^x` for `-700 < x <= 0`: `x = k ln 2 + r`, Taylor series for `r`, `k` into the exponent.
fn exp(x: f64) -> f64 {
    let k = (x / LN_2 - 0.5) as i32;
    let r = x - f64::from(k) * LN_2;
    let series = (1..=18)
        .rev()
        .fold(1.0, |sum, n| 1.0 + sum * r / f64::from(n));
    series * f64::from_bits(((1023 + k) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn ln_and_exp_agree_with_the_platform() {
        for i in 1..20_000u32 {
            let x = f64::from(i) * 0.37;
            assert!(
                (ln(x) - x.ln()).abs() <= 2e-15 * x.ln().abs().max(1.0),
                "ln {x}"
            );
            let y = -f64::from(i) / 40.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn alias_table_holds_exactly_the_weights() {
        let weights = [5.0, 0.0, 1.0, 1.0, 93.0];
        let table = Alias::new(&weights);
        let mut mass = [0.0; 5];
        for (i, cell) in table.cells.iter().enumerate() {
            let own = f64::from(cell.own) / 4_294_967_296.0;
            mass[i] += own;
            mass[cell.alias as usize] += 1.0 - own;
        }
        for (mass, weight) in mass.iter().zip(weights) {
            assert!((mass / 5.0 - weight / 100.0).abs() < 1e-9);
        }
    }

    #[test]
    fn gaps_have_the_asked_mean_and_an_exponential_shape() {
        let (count, rate) = (1_000_000, 14_880_952);
        let mut clock = Clock::new(-5, rate);
        let mut random = Random::new(1, 1);
        assert_eq!(clock.tick(random.next()), -5);
        let mut shorter_than_mean = 0;
        let mut before = -5;
        for _ in 1..count {
            let now = clock.tick(random.next());
            assert!(now >= before);
            shorter_than_mean += u32::from(now - before <= 67);
            before = now;
        }
        let mean = (before + 5) as f64 / f64::from(count - 1);
        assert!(
            (mean * rate as f64 / 1e9 - 1.0).abs() < 0.005,
            "mean {mean}"
        );
        // 1 - 1/e of exponential gaps are shorter than their mean.
        let share = f64::from(shorter_than_mean) / f64::from(count - 1);
        assert!((share - 0.632).abs() < 0.006, "share {share}");
    }

    #[test]
    fn slowest_rate_does_not_overflow_and_time_stops_at_its_end() {
        let mut clock = Clock::new(i64::MAX - 1, 1);
        clock.tick(u64::MAX);
        assert_eq!(clock.tick(u64::MAX), i64::MAX);
    }
}
