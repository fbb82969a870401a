//! Departure times: a rate, and the gaps around it.

use crate::draw::Clock;
use crate::random::Random;
use std::str::FromStr;

/// Domain of the seed for gaps.
const GAPS: u64 = 50;

/// How fast frames leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// So many a second.
    Packets(f64),
    /// So many bits a second, of frames without FCS.
    Bits(f64),
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `100kpps`, `0.5pps`, `1000` (packets), `2Gbit/s`; units are decimal.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no rate: want packets a second as 100kpps, or bits as 2Gbit/s");
        let (number, is_bits) = match (text.strip_suffix("pps"), text.strip_suffix("bit/s")) {
            (Some(number), _) => (number, false),
            (_, Some(number)) => (number, true),
            _ => (text, false),
        };
        let number = number.trim_end();
        let (digits, unit) = match number.chars().next_back() {
            Some('k') => (&number[..number.len() - 1], 1e3),
            Some('M') => (&number[..number.len() - 1], 1e6),
            Some('G') => (&number[..number.len() - 1], 1e9),
            Some('T') if is_bits => (&number[..number.len() - 1], 1e12),
            _ => (number, 1.0),
        };
        let rate = digits.trim_end().parse::<f64>().map_err(|_| wrong())? * unit;
        let most = if is_bits { 1e18 } else { 1e9 };
        match rate > 0.0 && rate <= most && rate.is_finite() {
            true if is_bits => Ok(Self::Bits(rate)),
            true => Ok(Self::Packets(rate)),
            false if rate > most => Err(format!(
                "{text:?} is no rate that can be had: want at most {}",
                if is_bits { "1000000 Tbit/s" } else { "1Gpps" }
            )),
            false => Err(wrong()),
        }
    }
}

/// Gaps between frames of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// All of one length.
    Even,
    /// Drawn from an exponential distribution.
    Exponential,
    /// So many frames at once, and then a pause.
    Bursts(u32),
}

impl FromStr for Gaps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let burst = text
            .strip_prefix("bursts:")
            .and_then(|count| count.parse().ok());
        match (text, burst) {
            ("even", _) => Ok(Self::Even),
            ("exponential", _) => Ok(Self::Exponential),
            ("bursts", _) => Ok(Self::Bursts(32)),
            (_, Some(count)) if count > 0 => Ok(Self::Bursts(count)),
            _ => Err(format!(
                "{text:?}: want \"even\", \"exponential\", \"bursts\" (of 32), or \"bursts:N\""
            )),
        }
    }
}

/// Times of frames, one after another.
#[derive(Clone, Debug)]
pub struct Times {
    start_ns: i64,
    rate: Rate,
    gaps: Gaps,
    /// Frames and bits so far.
    frames: u64,
    bits: u64,
    /// Frames and bits before the burst.
    burst: (u64, u64),
    /// Clock of exponential gaps with the mean 1 us, and its random numbers.
    clock: Clock,
    random: Random,
}

impl Times {
    /// Times that begin at `start_ns`. The rate is above 0.
    pub fn new(start_ns: i64, rate: Rate, gaps: Gaps, seed: u64) -> Self {
        Self {
            start_ns,
            rate,
            gaps,
            frames: 0,
            bits: 0,
            burst: (0, 0),
            clock: Clock::new(0, 1_000_000),
            random: Random::new(seed, GAPS),
        }
    }

    /// Departure time of the next frame, of `len` bytes, ns since the epoch.
    ///
    /// **Error bound**: a mean rate is exact to 2^-52, because no time depends on the time before it. Exponential gaps are the
    /// gaps of a [`Generator`](crate::Generator).
    #[inline]
    pub fn next(&mut self, len: usize) -> i64 {
        let (frames, bits) = match self.gaps {
            Gaps::Even => (self.frames as f64, self.bits as f64),
            Gaps::Bursts(count) => {
                if self.frames.is_multiple_of(count.into()) {
                    self.burst = (self.frames, self.bits);
                }
                (self.burst.0 as f64, self.burst.1 as f64)
            }
            Gaps::Exponential => {
                // Frames on this clock: 1000 ns stand for one.
                let frames = self.clock.tick(self.random.next()) as f64 / 1000.0;
                let mean = if self.frames == 0 {
                    0.0
                } else {
                    self.bits as f64 / self.frames as f64
                };
                (frames, frames * mean)
            }
        };
        self.frames += 1;
        self.bits += 8 * len as u64;
        let ns = match self.rate {
            Rate::Packets(per_s) => frames / per_s * 1e9,
            Rate::Bits(per_s) => bits / per_s * 1e9,
        };
        // To the nearest: products of rates that are exact have exact times.
        self.start_ns.saturating_add((ns + 0.5) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, rate) in [
            ("100kpps", Rate::Packets(1e5)),
            ("0.5pps", Rate::Packets(0.5)),
            ("250", Rate::Packets(250.0)),
            ("1.5M", Rate::Packets(1.5e6)),
            ("2Gbit/s", Rate::Bits(2e9)),
            ("64 kbit/s", Rate::Bits(64e3)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for text in [
            "", "0", "-1pps", "0bit/s", "2Gpps", "fast", "nan", "inf", "1Gbit", "kpps",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn even_gaps_do_not_add_up_errors() {
        let mut times = Times::new(5, Rate::Packets(3.0), Gaps::Even, 1);
        let all: Vec<i64> = (0..3_000_001).map(|_| times.next(60)).collect();
        assert_eq!(
            (all[0], all[1], all[3_000_000]),
            (5, 333_333_338, 1_000_000_000_000_005)
        );
    }

    #[test]
    fn slow_rates_bits_and_bursts_are_on_time() {
        let mut slow = Times::new(0, Rate::Packets(0.01), Gaps::Even, 1);
        assert_eq!([slow.next(60), slow.next(60)], [0, 100_000_000_000]);
        let mut bits = Times::new(0, Rate::Bits(8e9), Gaps::Even, 1);
        assert_eq!(
            [bits.next(60), bits.next(1000), bits.next(9)],
            [0, 60, 1060]
        );
        let mut bursts = Times::new(0, Rate::Packets(1e9), Gaps::Bursts(3), 1);
        assert_eq!([(); 7].map(|()| bursts.next(60)), [0, 0, 0, 3, 3, 3, 6]);
    }

    #[test]
    fn exponential_gaps_have_the_mean() {
        let mut times = Times::new(0, Rate::Packets(1e4), Gaps::Exponential, 3);
        let last = (0..100_000).map(|_| times.next(60)).last().unwrap();
        assert!((last as f64 / 1e10 - 1.0).abs() < 0.02, "{last}");
    }
}
