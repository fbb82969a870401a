//! Flows of a stream: which flow a packet belongs to.

use crate::draw::{Alias, zipf_weight};

/// Number of ranks with a cell of their own; further ranks share cells, each a 64th of their octave.
const OWN: u64 = 2048;

/// Draws numbers of flows.
#[derive(Clone, Debug)]
pub(crate) enum Ranks {
    Uniform(u64),
    /// Cells of first rank and number of ranks.
    Zipf {
        cells: Box<[(u32, u32)]>,
        table: Alias,
    },
}

impl Ranks {
    /// Draws of `count` flows, at most 2^32; the flow of rank k, from 1 on, gets packets in proportion to `1 / k^zipf`.
    ///
    /// **Error bound**: flows after rank 2048 have the mean chance of their cell: off by at most `zipf` times 0.8 %.
    pub(crate) fn new(count: u64, zipf: f64) -> Self {
        if zipf == 0.0 {
            return Self::Uniform(count);
        }
        let mut cells = Vec::new();
        let mut weights = Vec::new();
        let mut first = 0;
        while first < count {
            let width = if first < OWN {
                1
            } else {
                (first >> 6).min(count - first)
            };
            let middle = first as f64 + (width as f64 + 1.0) / 2.0;
            cells.push((first as u32, width as u32));
            weights.push(width as f64 * zipf_weight(middle, zipf));
            first += width;
        }
        Self::Zipf {
            cells: cells.into(),
            table: Alias::new(&weights),
        }
    }

    /// The flow that 64 uniform bits choose.
    #[inline]
    pub(crate) fn pick(&self, random: u64) -> u64 {
        match self {
            Self::Uniform(count) => ((random >> 32) * count) >> 32,
            Self::Zipf { cells, table } => {
                let (first, width) = cells[table.pick(random)];
                // Bits of another product, which do not depend on the choice of the cell.
                let within = random.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
                u64::from(first) + ((within * u64::from(width)) >> 32)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::zipf_weights;
    use crate::random::Random;

    #[test]
    fn shares_follow_the_law() {
        let (flows, zipf, draws) = (100_000, 1.1, 400_000);
        let ranks = Ranks::new(flows, zipf);
        let mut random = Random::new(5, 5);
        let mut seen = vec![0_u64; flows as usize];
        for _ in 0..draws {
            seen[ranks.pick(random.next()) as usize] += 1;
        }
        let weights = zipf_weights(flows as usize, zipf);
        let all: f64 = weights.iter().sum();
        for (from, to) in [
            (0, 1),
            (1, 2),
            (10, 20),
            (1000, 2048),
            (2048, 5000),
            (5000, 50_000),
            (50_000, 100_000),
        ] {
            let share = weights[from..to].iter().sum::<f64>() / all;
            let (count, wanted) = (
                seen[from..to].iter().sum::<u64>() as f64,
                share * f64::from(draws),
            );
            assert!(
                (count - wanted).abs() < 5.0 * wanted.sqrt() + 0.004 * wanted,
                "{from}..{to}: {count} {wanted}"
            );
        }
        assert!(seen[99_000..].iter().any(|&count| count > 0));
    }
}
