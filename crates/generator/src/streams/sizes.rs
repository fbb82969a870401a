//! Lengths of the frames of a stream.

use crate::draw::Alias;
use crate::profile::mwn_rows;
use std::fmt;
use std::str::FromStr;

/// Shortest and longest frame, bytes without FCS.
pub const SIZE_MIN: usize = 60;
/// See [`SIZE_MIN`].
pub const SIZE_MAX: usize = 9000;

/// Most rows of a list.
const ROWS_MAX: usize = 4096;

/// Simple IMIX: IP packets of 40, 576 and 1500 bytes, 7 : 4 : 1, the first padded to the shortest frame.
const IMIX: [(u16, u32); 3] = [(60, 7), (590, 4), (1514, 1)];

/// Lengths of frames, bytes without FCS.
///
/// The shortest Ethernet frame has 60 bytes here, and 64 where the FCS is counted, as in the names of RFC 2544. A frame that is too
/// short for its headers is made longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Lengths on an Internet uplink, written `mwn`.
    Mwn,
    /// Every length from the first to the last with equal probability, written `60-1514`; `uniform` is `60-1514`, and `64` is `64-64`.
    Uniform(u16, u16),
    /// Lengths with their weights, written `60:7,590:4,1514:1`, which is `imix`.
    List(Vec<(u16, u32)>),
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}: want \"mwn\", \"imix\", \"uniform\", a number of bytes from {SIZE_MIN} to {SIZE_MAX}, a range as \
                 \"60-1514\", or lengths with weights as \"60:7,590:4,1514:1\""
            )
        };
        let size = |text: &str| {
            let size = text.trim().parse::<u16>().ok();
            size.filter(|&size| (SIZE_MIN..=SIZE_MAX).contains(&usize::from(size)))
                .ok_or_else(wrong)
        };
        Ok(match text {
            "mwn" => Self::Mwn,
            "imix" => Self::List(IMIX.to_vec()),
            "uniform" => Self::Uniform(60, 1514),
            _ if text.contains([':', ',']) => {
                let row = |row: &str| {
                    let (len, weight) = row.split_once(':').unwrap_or((row, "1"));
                    let weight = weight.trim().parse().ok().filter(|&weight| weight > 0);
                    Ok((size(len)?, weight.ok_or_else(wrong)?))
                };
                let rows: Result<Vec<(u16, u32)>, String> = text.split(',').map(row).collect();
                Self::List(rows.and_then(|rows| match rows.len() {
                    0..=ROWS_MAX => Ok(rows),
                    _ => Err(wrong()),
                })?)
            }
            _ => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let (first, last) = (size(first)?, size(last)?);
                if last < first {
                    return Err(wrong());
                }
                Self::Uniform(first, last)
            }
        })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mwn => f.write_str("mwn"),
            Self::Uniform(first, last) if first == last => first.fmt(f),
            Self::Uniform(first, last) => write!(f, "{first}-{last}"),
            Self::List(rows) => rows.iter().enumerate().try_for_each(|(at, (len, weight))| {
                let comma = if at == 0 { "" } else { "," };
                write!(f, "{comma}{len}:{weight}")
            }),
        }
    }
}

/// Draws lengths.
#[derive(Clone, Debug)]
pub(crate) enum Draw {
    Fixed(usize),
    Uniform { first: u32, count: u32 },
    Table { lengths: Box<[u16]>, table: Alias },
}

impl Draw {
    /// Prepares the draws; no frame is shorter than `least`.
    pub(crate) fn new(sizes: &Sizes, least: usize) -> Self {
        let table = |rows: Vec<(u16, f64)>| {
            let (lengths, weights): (Vec<u16>, Vec<f64>) = rows.into_iter().unzip();
            let longer = lengths.into_iter().map(|len| len.max(least as u16));
            Self::Table {
                lengths: longer.collect(),
                table: Alias::new(&weights),
            }
        };
        match sizes {
            Sizes::Mwn => table(mwn_rows().collect()),
            Sizes::List(rows) if rows.len() == 1 => Self::Fixed(least.max(rows[0].0.into())),
            Sizes::List(rows) => table(
                rows.iter()
                    .map(|&(len, weight)| (len, f64::from(weight)))
                    .collect(),
            ),
            &Sizes::Uniform(first, last) => {
                // Lengths below the least are the least: the others keep their chances.
                let last = usize::from(last);
                match usize::from(first) {
                    first if first == last || last <= least => Self::Fixed(last.max(least)),
                    first if first >= least => Self::Uniform {
                        first: first as u32,
                        count: (last - first + 1) as u32,
                    },
                    first => table((first..=last).map(|len| (len as u16, 1.0)).collect()),
                }
            }
        }
    }

    /// The shortest length.
    pub(crate) fn shortest(&self) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Uniform { first, .. } => *first as usize,
            Self::Table { lengths, .. } => lengths.iter().copied().min().unwrap_or(0).into(),
        }
    }

    /// The longest length.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Uniform { first, count } => (first + count - 1) as usize,
            Self::Table { lengths, .. } => lengths.iter().copied().max().unwrap_or(0).into(),
        }
    }

    /// The length that 64 uniform bits choose.
    #[inline]
    pub(crate) fn pick(&self, random: u64) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Uniform { first, count } => {
                (u64::from(*first) + (((random >> 32) * u64::from(*count)) >> 32)) as usize
            }
            Self::Table { lengths, table } => lengths[table.pick(random)].into(),
        }
    }
}
