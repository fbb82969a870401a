//! Sample of pairs, whose keys take as few bytes as their kind needs.

use super::Side;
use crate::{Config, Error, KeyKind};
use weir_memory::Obtained;
use weir_packet::flow::FlowKey;
use weir_sketch::{Contact, Marks, Spreader, Spreaders};

/// Key with at most one address: the address and its family, or a port, the protocol and the flags.
type Short = [u8; 17];

/// Pairs of a table. A bucket of seven short keys takes half the memory of seven flow keys.
#[derive(Debug)]
pub(super) enum Sample {
    Short(KeyKind, Spreaders<Short>),
    Long(Spreaders<FlowKey>),
}

/// Evaluates an expression for either sample.
macro_rules! of {
    ($sample:expr, $pairs:ident => $value:expr) => {
        match $sample {
            Sample::Short(_, $pairs) => $value,
            Sample::Long($pairs) => $value,
        }
    };
}

/// Returns the short form of a key of this kind. Short keys have the same order as flow keys.
fn short(kind: KeyKind, key: &FlowKey) -> Short {
    let mut short = [0; 17];
    let port = match kind {
        KeyKind::Sport => key.sport,
        _ => key.dport,
    };
    match kind {
        KeyKind::Src(_) => short[..16].copy_from_slice(&key.src),
        KeyKind::Dst(_) => short[..16].copy_from_slice(&key.dst),
        _ => {
            short[..2].copy_from_slice(&port.to_ne_bytes());
            (short[2], short[3]) = (key.proto, key.flags);
        }
    }
    short[16] = key.family;
    short
}

/// Returns the key of a short form.
fn long(kind: KeyKind, short: &Short) -> FlowKey {
    let [a, b, proto, flags, ..] = *short;
    let address = core::array::from_fn(|at| short[at]);
    let port = u16::from_ne_bytes([a, b]);
    let none = FlowKey {
        family: short[16],
        ..FlowKey::NONE
    };
    match kind {
        KeyKind::Src(_) => FlowKey {
            src: address,
            ..none
        },
        KeyKind::Dst(_) => FlowKey {
            dst: address,
            ..none
        },
        KeyKind::Sport => FlowKey {
            sport: port,
            proto,
            flags,
            ..none
        },
        _ => FlowKey {
            dport: port,
            proto,
            flags,
            ..none
        },
    }
}

/// Side of a packet under its short key.
struct ShortSide<'a>(Side<'a>);

impl Contact<Short> for ShortSide<'_> {
    #[inline(always)]
    fn pair(&self) -> u64 {
        self.0.pair()
    }

    #[inline(always)]
    fn key(&self) -> Short {
        short(self.0.rule.kind, &self.0.key())
    }

    #[inline(always)]
    fn marks(&self) -> Marks {
        self.0.marks()
    }
}

impl Sample {
    pub fn new(config: &Config, kind: KeyKind) -> Result<Self, Error> {
        let Config {
            memory,
            seed,
            request,
            ..
        } = config;
        Ok(match kind {
            KeyKind::FiveTuple | KeyKind::Conversation | KeyKind::Pair | KeyKind::Fields(_) => {
                Self::Long(Spreaders::new(*memory, *seed, request)?)
            }
            _ => Self::Short(kind, Spreaders::new(*memory, *seed, request)?),
        })
    }

    /// Counts sides of packets, as `side` makes them.
    pub fn update<'a, T>(&mut self, sides: &'a [T], side: impl Fn(&'a T) -> Side<'a>) {
        match self {
            Self::Short(_, pairs) => pairs.update_as(sides, |it| ShortSide(side(it))),
            Self::Long(pairs) => pairs.update_as(sides, side),
        }
    }

    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        match (self, other) {
            (Self::Short(_, mine), Self::Short(_, theirs)) => mine.merge(theirs),
            (Self::Long(mine), Self::Long(theirs)) => mine.merge(theirs),
            _ => unreachable!("tables of one kind of key have keys of one length"),
        }
    }

    pub fn clear(&mut self) {
        of!(self, pairs => pairs.clear());
    }

    /// See [`Spreaders::ranking`].
    pub fn ranking(&self, rows: usize) -> (Vec<Spreader<FlowKey>>, u64) {
        match self {
            Self::Short(kind, pairs) => {
                let (listed, at_most) = pairs.ranking(rows);
                let whole = |listed: Spreader<Short>| Spreader {
                    key: long(*kind, &listed.key),
                    estimate: listed.estimate,
                    lower: listed.lower,
                    upper: listed.upper,
                    unanswered: listed.unanswered,
                    refused: listed.refused,
                };
                (listed.into_iter().map(whole).collect(), at_most)
            }
            Self::Long(pairs) => pairs.ranking(rows),
        }
    }

    pub fn distinct(&self) -> u64 {
        of!(self, pairs => pairs.distinct())
    }

    pub fn sampled_from(&self) -> u64 {
        of!(self, pairs => pairs.sampled_from())
    }

    pub fn sampled_keys(&self) -> usize {
        of!(self, pairs => pairs.sampled_keys())
    }

    pub fn absent_upper(&self) -> u64 {
        of!(self, pairs => pairs.absent_upper())
    }

    pub fn share(&self) -> f64 {
        of!(self, pairs => pairs.share())
    }

    pub fn is_exact(&self) -> bool {
        of!(self, pairs => pairs.is_exact())
    }

    pub fn is_saturated(&self) -> bool {
        of!(self, pairs => pairs.is_saturated())
    }

    pub fn capacity(&self) -> usize {
        of!(self, pairs => pairs.capacity())
    }

    pub fn memory_bytes(&self) -> usize {
        of!(self, pairs => pairs.memory_bytes())
    }

    pub fn obtained(&self) -> Obtained {
        of!(self, pairs => pairs.obtained())
    }
}
