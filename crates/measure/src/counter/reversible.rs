//! Reversible Sketch: cells from which IPv4 addresses and pairs of them are recovered.

use super::figure::{Figure, keys_outside, other, rest};
use super::{Answers, Hash};
use crate::answer::{Bound, BoundKind, Estimate, Missing, Row, Table};
use crate::{Config, Error, KeyKind};
use core::borrow::Borrow;
use std::collections::HashSet;
use std::sync::Arc;
use weir_packet::flow::FlowKey;
use weir_sketch::{
    Cms, Counts, Difference, Packet, Recovered, Reversible, ReversibleShape, Rule, Shape,
    SharedCms, SharedReversible, Weigh,
};

/// Number of Count-Min rows: a figure that does not rank is within its bound with a probability of 1 - e^-4.
const ROWS: usize = 4;

/// Cells that name their keys, and Count-Min cells for the figure that does not rank.
#[derive(Debug)]
pub(crate) struct Recoverable {
    cells: Cells,
    companions: Cms<u64>,
    kind: KeyKind,
    by: Weigh,
    /// Packets of IPv6, whose keys are too long.
    ipv6: Counts,
}

/// Cells that several workers update, and the packets of one worker that are not in them.
#[derive(Debug)]
pub(crate) struct SharedRecoverable {
    cells: Arc<SharedCells>,
    kind: KeyKind,
    by: Weigh,
    ipv6: Counts,
}

/// Cells that several workers update.
#[derive(Debug)]
pub(crate) struct SharedCells {
    cells: SharedReversible,
    companions: SharedCms,
}

/// Cells: packets of one worker fit in 32 bits, bytes do not.
#[derive(Debug)]
enum Cells {
    Narrow(Reversible<u32>),
    Wide(Reversible<u64>),
}

impl Cells {
    fn narrow(&self) -> Option<&Reversible<u32>> {
        match self {
            Self::Narrow(cells) => Some(cells),
            Self::Wide(_) => None,
        }
    }

    fn wide(&self) -> Option<&Reversible<u64>> {
        match self {
            Self::Narrow(_) => None,
            Self::Wide(cells) => Some(cells),
        }
    }
}

/// Evaluates an expression for the sketch of either width.
macro_rules! either {
    ($cells:expr, $sketch:ident => $value:expr) => {
        match $cells {
            Cells::Narrow($sketch) => $value,
            Cells::Wide($sketch) => $value,
        }
    };
}

/// Returns the length of an IPv4 key of this kind, bits.
fn key_bits(kind: KeyKind) -> u32 {
    match kind {
        KeyKind::FiveTuple | KeyKind::Conversation => 104,
        KeyKind::Pair => 64,
        KeyKind::Src(_) | KeyKind::Dst(_) => 32,
        KeyKind::Sport | KeyKind::Dport => 24,
        KeyKind::Proto => 8,
        // The sketch has no form for their bytes.
        _ => 0,
    }
}

/// Returns whether the keys of this kind can be recovered.
pub(super) fn can_count(kind: KeyKind) -> bool {
    matches!(key_bits(kind), 32 | 64)
}

/// Returns the shape of the largest sketch within three quarters of the memory.
fn shape(config: &Config, kind: KeyKind, cell_bytes: usize) -> Result<ReversibleShape, Error> {
    ReversibleShape::for_memory(config.memory / 4 * 3, key_bits(kind), cell_bytes)
}

/// Returns the shape of the Count-Min cells in the last quarter of the memory.
fn companions(config: &Config) -> Result<Shape, Error> {
    Shape::for_memory(config.memory / 4, ROWS, size_of::<u64>())
}

/// Creates cells that several workers update.
pub(super) fn shared_cells(config: &Config, kind: KeyKind) -> Result<SharedCells, Error> {
    let Config { seed, request, .. } = config;
    let shape = shape(config, kind, size_of::<u64>())?;
    Ok(SharedCells {
        cells: SharedReversible::new(shape, *seed, request)?,
        companions: SharedCms::new(companions(config)?, Rule::Plain, *seed, request)?,
    })
}

/// Returns the address of IPv4 as a number.
#[inline(always)]
fn address(bytes: &[u8; 16]) -> u64 {
    let [a, b, c, d, ..] = *bytes;
    u32::from_be_bytes([a, b, c, d]).into()
}

/// Returns the address of a number.
fn bytes(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

/// Returns the number of a key of this kind; `None` for IPv6.
#[inline(always)]
fn number(kind: KeyKind, key: &FlowKey) -> Option<u64> {
    let number = match kind {
        KeyKind::Src(_) => address(&key.src),
        KeyKind::Dst(_) => address(&key.dst),
        _ => address(&key.src) << 32 | address(&key.dst),
    };
    (key.family == 4).then_some(number)
}

/// Returns the key of a number.
fn key(kind: KeyKind, number: u64) -> FlowKey {
    let zero = FlowKey::NONE.src;
    let (src, dst) = match kind {
        KeyKind::Src(_) => (bytes(number), zero),
        KeyKind::Dst(_) => (zero, bytes(number)),
        _ => (bytes(number >> 32), bytes(number)),
    };
    FlowKey {
        src,
        dst,
        family: 4,
        ..FlowKey::NONE
    }
}

/// Returns the figure of a packet.
#[inline(always)]
fn weight<P: Packet<FlowKey>>(item: &P, by: Weigh) -> u32 {
    match by {
        Weigh::Packets => 1,
        Weigh::Bytes => item.bytes(),
    }
}

/// Returns the numbers and figures of the packets of IPv4.
#[inline(always)]
fn numbers<P: Packet<FlowKey>>(
    items: &[P],
    kind: KeyKind,
    by: Weigh,
) -> impl Iterator<Item = (u64, u32)> {
    items
        .iter()
        .filter_map(move |item| Some((number(kind, item.key().borrow())?, weight(item, by))))
}

/// Returns the hashes of the packets of IPv4, and the figures that do not rank.
#[inline(always)]
fn hashes<P: Packet<FlowKey>>(items: &[P], by: Weigh) -> impl Iterator<Item = (u64, u32)> {
    let v4 = items.iter().filter(|item| item.key().borrow().family == 4);
    v4.map(move |item| (item.hash(), weight(item, other(by))))
}

/// Counts the packets of IPv6.
#[inline(always)]
fn count_ipv6<P: Packet<FlowKey>>(items: &[P], ipv6: &mut Counts) {
    for item in items.iter().filter(|item| item.key().borrow().family != 4) {
        ipv6.packets += 1;
        ipv6.bytes = ipv6.bytes.saturating_add(item.bytes().into());
    }
}

fn add(mine: &mut Counts, theirs: Counts) {
    mine.packets = mine.packets.saturating_add(theirs.packets);
    mine.bytes = mine.bytes.saturating_add(theirs.bytes);
}

impl SharedRecoverable {
    pub(super) fn new(config: &Config, kind: KeyKind, cells: &Arc<SharedCells>) -> Self {
        Self {
            cells: Arc::clone(cells),
            kind,
            by: config.weigh(),
            ipv6: Counts::default(),
        }
    }

    #[inline]
    pub(super) fn update<P: Packet<FlowKey>>(&mut self, items: &[P]) {
        let SharedCells { cells, companions } = &*self.cells;
        cells.update_weighted(numbers(items, self.kind, self.by));
        companions.update_weighted(hashes(items, self.by));
        count_ipv6(items, &mut self.ipv6);
    }

    /// Adds the packets that are not in the cells, which both share.
    pub(super) fn merge(&mut self, other: &Self) {
        add(&mut self.ipv6, other.ipv6);
    }

    /// Returns an own table with the counts of the shared cells.
    pub(super) fn settle(&self, config: &Config) -> Result<Recoverable, Error> {
        let SharedCells { cells, companions } = &*self.cells;
        Ok(Recoverable {
            cells: Cells::Wide(cells.snapshot(&config.request)?),
            companions: companions.snapshot(&config.request)?,
            kind: self.kind,
            by: self.by,
            ipv6: self.ipv6,
        })
    }
}

impl Recoverable {
    pub(super) fn new(config: &Config, kind: KeyKind) -> Result<Self, Error> {
        let Config { seed, request, .. } = config;
        let cells = match config.weigh() {
            Weigh::Packets => {
                let shape = shape(config, kind, size_of::<u32>())?;
                Cells::Narrow(Reversible::new(shape, *seed, request)?)
            }
            Weigh::Bytes => {
                let shape = shape(config, kind, size_of::<u64>())?;
                Cells::Wide(Reversible::new(shape, *seed, request)?)
            }
        };
        Ok(Self {
            cells,
            companions: Cms::new(companions(config)?, Rule::Plain, *seed, request)?,
            kind,
            by: config.weigh(),
            ipv6: Counts::default(),
        })
    }

    #[inline]
    pub(super) fn update<P: Packet<FlowKey>>(&mut self, items: &[P]) {
        let numbers = numbers(items, self.kind, self.by);
        either!(&mut self.cells, sketch => sketch.update_weighted(numbers));
        self.companions.update_weighted(hashes(items, self.by));
        count_ipv6(items, &mut self.ipv6);
    }

    pub(super) fn merge(&mut self, other: &Self) -> Result<(), Error> {
        match (&mut self.cells, &other.cells) {
            (Cells::Narrow(mine), Cells::Narrow(theirs)) => mine.merge(theirs)?,
            (Cells::Wide(mine), Cells::Wide(theirs)) => mine.merge(theirs)?,
            _ => unreachable!("tables of one configuration have cells of one width"),
        }
        add(&mut self.ipv6, other.ipv6);
        self.companions.merge(&other.companions)
    }

    /// Clears the table. Returns `false` and clears nothing if [`Self::new`] would make other cells.
    pub(super) fn clear(&mut self) -> bool {
        match &mut self.cells {
            Cells::Narrow(cells) => cells.clear(),
            Cells::Wide(cells) if self.by == Weigh::Bytes => cells.clear(),
            // A table of packets in wide cells was a shared table before it was settled.
            Cells::Wide(_) => return false,
        }
        self.companions.clear();
        self.ipv6 = Counts::default();
        true
    }

    /// Returns the keys that changed most from one window to the next, recovered from the difference of the cells, at most
    /// `rows`. A window without packets has no table.
    pub(super) fn changed(
        before: Option<&Self>,
        after: Option<&Self>,
        rows: usize,
    ) -> HashSet<FlowKey> {
        let Some(kind) = after.or(before).map(|table| table.kind) else {
            return HashSet::new();
        };
        let cells = [before, after].map(|table| table.map(|table| &table.cells));
        let changes = match cells {
            [None | Some(Cells::Narrow(_)), None | Some(Cells::Narrow(_))] => {
                let [before, after] = cells.map(|cells| cells.and_then(Cells::narrow));
                Difference::new(before, after).map(|it| it.ranking(rows))
            }
            _ => {
                let [before, after] = cells.map(|cells| cells.and_then(Cells::wide));
                Difference::new(before, after).map(|it| it.ranking(rows))
            }
        };
        // Tables of one configuration have one shape and one seed. After `weir ctl set memory` there is nothing to compare.
        let changed = changes.map_or_else(|_| Vec::new(), |changes| changes.changed);
        changed.into_iter().map(|it| key(kind, it.key)).collect()
    }

    fn total(&self) -> u64 {
        either!(&self.cells, sketch => sketch.total())
    }

    /// Returns the kind of the bounds, which hold with this probability over the choice of the hash functions.
    fn bound_kind(delta: f64) -> BoundKind {
        BoundKind::Probabilistic {
            confidence: 1.0 - delta,
        }
    }

    fn figure_of(&self, found: Recovered) -> Figure {
        let bound = either!(&self.cells, sketch => sketch.bound());
        // If cells are saturated, their values are not upper bounds.
        let is_saturated = either!(&self.cells, sketch => sketch.is_saturated());
        Figure {
            value: found.estimate,
            bound: Bound {
                kind: Self::bound_kind(bound.delta),
                lower: found.lower,
                upper: if is_saturated {
                    self.total()
                } else {
                    found.upper
                },
            },
        }
    }

    fn row(&self, found: Recovered, hash: Hash) -> Row {
        let key = key(self.kind, found.key);
        let Figure { value, bound } = self.figure_of(found);
        let companion = self.companions.estimate(hash(&key));
        let excess = self.companions.bound();
        let counts = match self.by {
            Weigh::Packets => Counts {
                packets: value,
                bytes: companion,
            },
            Weigh::Bytes => Counts {
                packets: companion,
                bytes: value,
            },
        };
        Row {
            key,
            counts,
            bound,
            companion: Bound {
                kind: Self::bound_kind(excess.delta),
                lower: companion.saturating_sub(excess.excess),
                upper: companion,
            },
            sides: None,
            times: None,
        }
    }

    /// Returns the counts of all packets, of IPv6 as well.
    fn all(&self) -> Counts {
        let (ranking, companion) = (self.total(), self.companions.total());
        let mut all = match self.by {
            Weigh::Packets => Counts {
                packets: ranking,
                bytes: companion,
            },
            Weigh::Bytes => Counts {
                packets: companion,
                bytes: ranking,
            },
        };
        add(&mut all, self.ipv6);
        all
    }
}

impl Answers for Recoverable {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, hash: Hash) -> Table {
        let (listed, others) = either!(&self.cells, sketch => sketch.ranking(rows));
        let rows: Vec<Row> = listed
            .into_iter()
            .map(|found| self.row(found, hash))
            .collect();
        // The limit is certain, because no cell of a key is below its weight.
        let missing = Missing {
            at_most: others.max(self.ipv6.by(by)),
            kind: BoundKind::Deterministic,
            keys: keys_outside(rows.len(), rows.len(), None, keys),
            counts: rest(self.all(), &rows),
        };
        Table {
            rows,
            untracked: Counts::default(),
            evicted: Counts::default(),
            ipv6: self.ipv6,
            overflowed: 0,
            late: 0,
            missing,
        }
    }

    fn keys(&self, _: Hash) -> Vec<FlowKey> {
        let (listed, _) = either!(&self.cells, sketch => sketch.ranking(0));
        listed.iter().map(|it| key(self.kind, it.key)).collect()
    }

    fn figure(&self, key: &FlowKey, _: u64, _: Weigh) -> Figure {
        let number = number(self.kind, key).unwrap_or(0);
        self.figure_of(either!(&self.cells, sketch => sketch.estimate(number)))
    }

    fn describe(&self) -> [String; 2] {
        let (shape, bound) = either!(&self.cells, sketch => (sketch.shape(), sketch.bound()));
        let cells = either!(&self.cells, sketch => sketch.obtained());
        [
            format!(
                "reversible, {} rows of {} cells for keys of {} bits, epsilon {:.2e}; Count-Min for the other figure",
                shape.rows(),
                shape.width(),
                shape.key_bits(),
                bound.epsilon
            ),
            format!("{cells}; {}", self.companions.obtained()),
        ]
    }
}
