//! Description of the traffic to make.

use crate::FRAME_MAX;
use crate::draw::Alias;
use crate::frame::FRAME_MIN;
use crate::random::Random;
use std::fmt;
use std::str::FromStr;

/// Largest number of flows of a profile: about 80 bytes of memory each.
const FLOWS_MAX: u64 = 1 << 24;
/// Largest Zipf exponent. Beyond it, nearly all packets belong to the heaviest flow, and weights leave the range of `f64`.
const ZIPF_MAX: f64 = 10.0;

/// Frame lengths of the uplink of the Munich Scientific Network, 60 to 1514 bytes without FCS.
///
/// **Source**: emmericp/align-microbenchmark, `lrz_dist_rel.csv`.
const MWN: &str = include_str!("../data/mwn-packet-sizes.csv");

/// Settings of the generated traffic.
///
/// Shares are fixed: of the flows 5 % are VLAN-tagged, 8 % IPv6, 70 % TCP, 27 % UDP, 3 % ICMP echo. Of the packets 0.2 %
/// are ARP (60 bytes, whatever `sizes` says). Of the packets of TCP and UDP flows over IPv4, 0.5 % are fragments. The first
/// packet of each TCP flow is a SYN, which carries data if it is longer than 60 bytes (as in RFC 7413).
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Seed of addresses, ports, order, sizes and times. Default 1.
    pub seed: u64,
    /// Number of packets to make. Default 1,000,000.
    pub packets: u64,
    /// Lengths of the frames. Default [`Sizes::Mwn`].
    pub sizes: Sizes,
    /// Number of flows, 1 to 16,777,216. Default 100,000. Only flows that are drawn at least once occur.
    pub flows: u64,
    /// Zipf exponent, 0 to 10: the flow of rank k gets packets in proportion to `1 / k^zipf`; 0 means equal shares. Default 1.1.
    pub zipf: f64,
    /// Time of the first packet, ns since the epoch. Default 1,700,000,000 s.
    pub start_ns: i64,
    /// Mean rate, packets per second, 1 to 10^9; gaps are exponential, in whole ns. Default 1,000,000.
    pub rate_pps: u64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            seed: 1,
            packets: 1_000_000,
            sizes: Sizes::Mwn,
            flows: 100_000,
            zipf: 1.1,
            start_ns: 1_700_000_000_000_000_000,
            rate_pps: 1_000_000,
        }
    }
}

impl Profile {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.sizes.check()?;
        if !(1..=FLOWS_MAX).contains(&self.flows) {
            return Err(Error::Flows(self.flows));
        }
        if !(0.0..=ZIPF_MAX).contains(&self.zipf) {
            return Err(Error::Zipf(self.zipf));
        }
        if !(1..=1_000_000_000).contains(&self.rate_pps) {
            return Err(Error::Rate(self.rate_pps));
        }
        Ok(())
    }
}

/// Lengths of the frames, bytes without FCS, a VLAN tag included.
///
/// A frame that is too short for its headers is made longer. IPv6 needs 62 bytes for UDP and ICMPv6, 74 for TCP, and 4 more
/// with a tag. So in 60-byte traffic some 7 % of the packets are longer. IPv4 always fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sizes {
    /// Lengths on an Internet uplink (42 % 1514, 15 % 60, 12 % 66 bytes; mean 920), written `mwn`.
    Mwn,
    /// A fixed length, 60 to 1514; written as the number.
    Fixed(u16),
    /// Every length from 60 to 1514 with equal probability, written `uniform`.
    Uniform,
}

impl Sizes {
    fn check(self) -> Result<(), Error> {
        match self {
            Sizes::Fixed(len) if !(FRAME_MIN..=FRAME_MAX).contains(&usize::from(len)) => {
                Err(Error::FrameSize(len.to_string()))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Sizes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Sizes, Error> {
        let sizes = match text {
            "mwn" => Sizes::Mwn,
            "uniform" => Sizes::Uniform,
            _ => Sizes::Fixed(
                text.parse()
                    .map_err(|_| Error::FrameSize(text.to_owned()))?,
            ),
        };
        sizes.check()?;
        Ok(sizes)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Mwn => f.write_str("mwn"),
            Sizes::Uniform => f.write_str("uniform"),
            Sizes::Fixed(len) => len.fmt(f),
        }
    }
}

/// Reason for the refusal of a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is neither a known distribution nor a length that Ethernet allows.
    #[error("frame sizes \"{0}\": want \"mwn\", \"uniform\" or a number of bytes from 60 to 1514")]
    FrameSize(String),
    /// Number of flows out of range.
    #[error("{0} flows: want 1 to 16777216")]
    Flows(u64),
    /// Zipf exponent out of range.
    #[error("zipf exponent {0}: want 0 to 10")]
    Zipf(f64),
    /// Rate out of range.
    #[error("rate of {0} packets per second: want 1 to 1000000000")]
    Rate(u64),
}

/// Draws frame lengths.
#[derive(Clone, Debug)]
pub(crate) enum SizeDraw {
    Fixed(usize),
    Uniform,
    Table { lengths: Box<[u16]>, table: Alias },
}

impl SizeDraw {
    /// Prepares the draws of `sizes`, which has passed its check.
    pub(crate) fn new(sizes: Sizes) -> SizeDraw {
        match sizes {
            Sizes::Fixed(len) => SizeDraw::Fixed(usize::from(len)),
            Sizes::Uniform => SizeDraw::Uniform,
            Sizes::Mwn => {
                let (lengths, shares): (Vec<u16>, Vec<f64>) = mwn_rows().unzip();
                SizeDraw::Table {
                    lengths: lengths.into(),
                    table: Alias::new(&shares),
                }
            }
        }
    }

    /// Draws a length from 60 to 1514. A fixed length takes no random number.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> usize {
        match self {
            SizeDraw::Fixed(len) => *len,
            SizeDraw::Uniform => {
                let span = (FRAME_MAX - FRAME_MIN + 1) as u128;
                FRAME_MIN + ((u128::from(random.next()) * span) >> 64) as usize
            }
            SizeDraw::Table { lengths, table } => usize::from(lengths[table.pick(random.next())]),
        }
    }
}

/// Length and share of each row of the embedded table.
pub(crate) fn mwn_rows() -> impl Iterator<Item = (u16, f64)> {
    MWN.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (length, share) = line
                .split_once(',')
                .expect("embedded rows have two columns");
            (
                length.parse().expect("embedded lengths are whole numbers"),
                share.parse().expect("embedded shares are numbers"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square over the outcomes that are expected at least ten times, compared with its mean plus five deviations.
    fn assert_fits(expected: &[(usize, f64)], draw: &SizeDraw, count: u32) {
        let mut seen = vec![0u32; FRAME_MAX + 1];
        let mut random = Random::new(99, 99);
        for _ in 0..count {
            seen[draw.draw(&mut random)] += 1;
        }
        let (mut chi_square, mut degrees) = (0.0, 0.0);
        for &(len, share) in expected {
            let expected = share * f64::from(count);
            if expected >= 10.0 {
                chi_square += (f64::from(seen[len]) - expected).powi(2) / expected;
                degrees += 1.0;
            }
        }
        let bound = degrees + 5.0 * (2.0f64 * degrees).sqrt();
        assert!(
            degrees > 500.0 && chi_square < bound,
            "chi-square {chi_square}, bound {bound}"
        );
    }

    #[test]
    fn mwn_sizes_follow_the_table() {
        let rows: Vec<(usize, f64)> = mwn_rows()
            .map(|(len, share)| (usize::from(len), share))
            .collect();
        assert_eq!(rows.len(), 1455);
        let mean: f64 = rows.iter().map(|&(len, share)| len as f64 * share).sum();
        assert!((mean - 919.66).abs() < 0.01, "mean {mean}");
        assert_fits(&rows, &SizeDraw::new(Sizes::Mwn), 1_000_000);
    }

    #[test]
    fn uniform_sizes_are_uniform() {
        let rows: Vec<(usize, f64)> = (FRAME_MIN..=FRAME_MAX)
            .map(|len| (len, 1.0 / 1455.0))
            .collect();
        assert_fits(&rows, &SizeDraw::new(Sizes::Uniform), 1_000_000);
    }

    #[test]
    fn sizes_are_read_and_written_alike() {
        for text in ["mwn", "uniform", "60", "1514"] {
            assert_eq!(
                text.parse::<Sizes>().map(|s| s.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in ["", "59", "1515", "-1", "70000", "MWN", "60 "] {
            assert_eq!(
                text.parse::<Sizes>(),
                Err(Error::FrameSize(text.to_owned()))
            );
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let good = Profile::default();
        assert_eq!(good.check(), Ok(()));
        let refused = |profile: Profile| profile.check().unwrap_err().to_string();
        assert_eq!(
            refused(Profile {
                flows: 0,
                ..good.clone()
            }),
            "0 flows: want 1 to 16777216"
        );
        assert_eq!(
            refused(Profile {
                zipf: f64::NAN,
                ..good.clone()
            }),
            "zipf exponent NaN: want 0 to 10"
        );
        assert_eq!(
            refused(Profile {
                rate_pps: 0,
                ..good.clone()
            }),
            "rate of 0 packets per second: want 1 to 1000000000"
        );
        assert!(
            refused(Profile {
                sizes: Sizes::Fixed(40),
                ..good
            })
            .starts_with("frame sizes \"40\"")
        );
    }
}
