//! Steps in few bytes: a row of an IPv4 conversation takes about 32 bytes, a row of a host 22.
//!
//! A row is a byte whose bits say which parts of the key are not zero, these parts, a byte of flags, and numbers in 7-bit groups. Bounds are
//! stored as distances from the figure, which are zero for exact figures and then take no byte.

use crate::step::{Listed, Rest, Step, StepTable, Totals};
use crate::varint::{self, Bytes};
use weir_measure::{Bound, BoundKind, Counts, Sides, Weigh};
use weir_packet::flow::FlowKey;

/// Most bytes of a row: the parts of a key, flags, four counts, four distances, two confidences and a peak.
pub(crate) const ROW: usize =
    1 + 40 + 2 + 6 * varint::MOST + 4 * varint::MOST + 2 * 8 + varint::MOST;

/// A step in few bytes.
#[derive(Debug)]
pub(crate) struct Packed {
    pub span: (i64, i64),
    pub totals: Totals,
    tables: Box<[PackedTable]>,
}

#[derive(Debug)]
struct PackedTable {
    /// The table without its rows.
    frame: StepTable,
    rows: Box<[u8]>,
}

/// Bytes of a step with `kinds` tables of `rows` rows at most.
pub(crate) fn most(kinds: usize, rows: usize) -> usize {
    size_of::<Packed>() + kinds * (size_of::<PackedTable>() + rows * ROW)
}

impl Packed {
    pub fn new(step: Step) -> Self {
        let table = |table: StepTable| {
            let mut rows = Vec::new();
            let figures = table.by;
            for row in &table.rows {
                put_row(&mut rows, row, figures);
            }
            PackedTable {
                frame: StepTable {
                    rows: Vec::new(),
                    ..table
                },
                rows: rows.into_boxed_slice(),
            }
        };
        Self {
            span: step.span,
            totals: step.totals,
            tables: step.tables.into_iter().map(table).collect(),
        }
    }

    /// Returns the step as it was.
    pub fn step(&self) -> Step {
        Step {
            span: self.span,
            totals: self.totals,
            tables: self.tables.iter().map(PackedTable::table).collect(),
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let tables = self.tables.iter();
        let rows = tables.map(|table| size_of::<PackedTable>() + table.rows.len());
        size_of::<Self>() + rows.sum::<usize>()
    }
}

impl PackedTable {
    fn table(&self) -> StepTable {
        let mut bytes = Bytes::new(&self.rows);
        let mut rows = Vec::new();
        while !bytes.rest.is_empty() {
            rows.push(row(&mut bytes, self.frame.by));
        }
        let frame = &self.frame;
        StepTable {
            kind: frame.kind,
            by: frame.by,
            rows,
            rest: Rest { ..frame.rest },
            whole: frame.whole,
            covered_ns: frame.covered_ns,
        }
    }
}

/// Flag: the row has figures of both directions.
const HAS_SIDES: u8 = 1;
/// Flag: the received figures are stored too, because they are not what the sent figures leave.
const HAS_RX: u8 = 1 << 1;
/// Flag: distances of the bound that ranks follow.
const HAS_BOUND: u8 = 1 << 2;
/// Flag: distances of the other bound follow.
const HAS_COMPANION: u8 = 1 << 3;

pub(crate) fn put_row(out: &mut Vec<u8>, row: &Listed, by: Weigh) {
    put_key(out, &row.key);
    let (ranking, other) = figures(&row.counts, by);
    let sides = row.sides;
    let left = sides.map(|sides| Counts {
        packets: row.counts.packets.wrapping_sub(sides.tx.packets),
        bytes: row.counts.bytes.wrapping_sub(sides.tx.bytes),
    });
    let has_rx = sides.is_some_and(|sides| Some(sides.rx) != left);
    let has = |bound: &Bound, figure| (bound.lower, bound.upper) != (figure, figure);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    out.push(
        flag(sides.is_some(), HAS_SIDES)
            | flag(has_rx, HAS_RX)
            | flag(has(&row.bound, ranking), HAS_BOUND)
            | flag(has(&row.companion, other), HAS_COMPANION)
            | number_of(row.bound.kind) << 4
            | number_of(row.companion.kind) << 6,
    );
    put_counts(out, &row.counts);
    if let Some(sides) = sides {
        put_counts(out, &sides.tx);
        if has_rx {
            put_counts(out, &sides.rx);
        }
    }
    put_bound(out, &row.bound, ranking);
    put_bound(out, &row.companion, other);
    varint::put(out, row.peak_bits_per_s);
}

pub(crate) fn row(bytes: &mut Bytes<'_>, by: Weigh) -> Listed {
    let key = key(bytes);
    let flags = bytes.byte();
    let counts = counts(bytes);
    let sides = (flags & HAS_SIDES != 0).then(|| {
        let tx = self::counts(bytes);
        let rx = match flags & HAS_RX != 0 {
            true => self::counts(bytes),
            false => Counts {
                packets: counts.packets.wrapping_sub(tx.packets),
                bytes: counts.bytes.wrapping_sub(tx.bytes),
            },
        };
        Sides { tx, rx }
    });
    let (ranking, other) = figures(&counts, by);
    let bound = bound(bytes, flags & HAS_BOUND != 0, flags >> 4 & 3, ranking);
    let companion = self::bound(bytes, flags & HAS_COMPANION != 0, flags >> 6, other);
    Listed {
        key,
        counts,
        bound,
        companion,
        sides,
        peak_bits_per_s: bytes.number(),
    }
}

/// The figure that ranks, and the figure that does not.
fn figures(counts: &Counts, by: Weigh) -> (u64, u64) {
    match by {
        Weigh::Packets => (counts.packets, counts.bytes),
        Weigh::Bytes => (counts.bytes, counts.packets),
    }
}

pub(crate) fn put_counts(out: &mut Vec<u8>, counts: &Counts) {
    varint::put(out, counts.packets);
    varint::put(out, counts.bytes);
}

pub(crate) fn counts(bytes: &mut Bytes<'_>) -> Counts {
    Counts {
        packets: bytes.number(),
        bytes: bytes.number(),
    }
}

pub(crate) fn number_of(kind: BoundKind) -> u8 {
    match kind {
        BoundKind::Exact => 0,
        BoundKind::Deterministic => 1,
        BoundKind::Probabilistic { .. } => 2,
        BoundKind::None => 3,
    }
}

fn put_bound(out: &mut Vec<u8>, bound: &Bound, figure: u64) {
    if (bound.lower, bound.upper) != (figure, figure) {
        varint::put(out, figure.wrapping_sub(bound.lower));
        varint::put(out, bound.upper.wrapping_sub(figure));
    }
    if let BoundKind::Probabilistic { confidence } = bound.kind {
        out.extend(confidence.to_le_bytes());
    }
}

fn bound(bytes: &mut Bytes<'_>, has_distances: bool, kind: u8, figure: u64) -> Bound {
    let (lower, upper) = match has_distances {
        true => (
            figure.wrapping_sub(bytes.number()),
            figure.wrapping_add(bytes.number()),
        ),
        false => (figure, figure),
    };
    let kind = match kind {
        0 => BoundKind::Exact,
        1 => BoundKind::Deterministic,
        2 => BoundKind::Probabilistic {
            confidence: f64::from_le_bytes(bytes.array()),
        },
        _ => BoundKind::None,
    };
    Bound { kind, lower, upper }
}

/// Ranges of the parts of a key in its 40 bytes: both halves of both addresses, both ports, protocol and family, flags.
const PARTS: [core::ops::Range<usize>; 8] =
    [0..4, 4..16, 16..20, 20..32, 32..34, 34..36, 36..38, 38..40];

pub(crate) fn put_key(out: &mut Vec<u8>, key: &FlowKey) {
    let mut all = [0; 40];
    all[..16].copy_from_slice(&key.src);
    all[16..32].copy_from_slice(&key.dst);
    all[32..34].copy_from_slice(&key.sport.to_le_bytes());
    all[34..36].copy_from_slice(&key.dport.to_le_bytes());
    all[36..].copy_from_slice(&[key.proto, key.family, key.flags, key.reserved]);
    let mask = out.len();
    out.push(0);
    for (i, part) in PARTS.into_iter().enumerate() {
        if all[part.clone()].iter().any(|byte| *byte != 0) {
            out[mask] |= 1 << i;
            out.extend(&all[part]);
        }
    }
}

pub(crate) fn key(bytes: &mut Bytes<'_>) -> FlowKey {
    let mask = bytes.byte();
    let mut all = [0; 40];
    for (i, part) in PARTS.into_iter().enumerate() {
        if mask & 1 << i != 0 {
            all[part].fill_with(|| bytes.byte());
        }
    }
    let half = |from: usize| core::array::from_fn(|i| all[from + i]);
    FlowKey {
        src: half(0),
        dst: half(16),
        sport: u16::from_le_bytes([all[32], all[33]]),
        dport: u16::from_le_bytes([all[34], all[35]]),
        proto: all[36],
        family: all[37],
        flags: all[38],
        reserved: all[39],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    /// A number whose length in bits is random.
    fn number(random: &mut Random) -> u64 {
        let bits = random.below(65) as u32;
        random.next().checked_shr(bits).unwrap_or(0)
    }

    fn any_bound(random: &mut Random, figure: u64) -> Bound {
        let kinds = [
            BoundKind::Exact,
            BoundKind::Deterministic,
            BoundKind::Probabilistic { confidence: 0.25 },
            BoundKind::None,
        ];
        let kind = kinds[random.below(4)];
        match random.below(2) {
            0 => Bound {
                kind,
                lower: figure,
                upper: figure,
            },
            _ => Bound {
                kind,
                lower: number(random),
                upper: number(random),
            },
        }
    }

    #[test]
    fn rows_return_as_they_were_and_are_no_longer_than_stated() {
        let mut random = Random(7);
        for by in [Weigh::Packets, Weigh::Bytes] {
            for _ in 0..20_000 {
                let mut any = [0; 40];
                for part in PARTS {
                    if random.below(2) == 1 {
                        any[part].fill_with(|| random.next() as u8);
                    }
                }
                let mut bytes = vec![0xff];
                bytes.extend(any);
                let mut counts = || Counts {
                    packets: number(&mut random),
                    bytes: number(&mut random),
                };
                let (counts, tx, rx) = (counts(), counts(), counts());
                let (ranking, other) = figures(&counts, by);
                let before = Listed {
                    key: key(&mut Bytes::new(&bytes)),
                    counts,
                    bound: any_bound(&mut random, ranking),
                    companion: any_bound(&mut random, other),
                    sides: (random.below(2) == 1).then_some(Sides { tx, rx }),
                    peak_bits_per_s: number(&mut random),
                };
                let mut out = Vec::new();
                put_row(&mut out, &before, by);
                assert!(out.len() <= ROW);
                let mut bytes = Bytes::new(&out);
                assert_eq!(row(&mut bytes, by), before);
                assert!(bytes.rest.is_empty());
            }
        }
    }
}
