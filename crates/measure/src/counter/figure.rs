//! Figures with their bounds, and the parts that rows and totals of all tables have in common.

use crate::answer::{Bound, BoundKind, Estimate, Keys, Row};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, Entry, Weigh};

/// Estimate of a key's weight, with its bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub value: u64,
    pub bound: Bound,
}

impl Figure {
    /// Returns the sum of two figures.
    pub fn and(self, other: Self) -> Self {
        Self {
            value: self.value.saturating_add(other.value),
            bound: self.bound.and(other.bound),
        }
    }
}

/// Returns the bound of a count from which at most `doubt` is missing.
pub(super) fn exact(value: u64, doubt: u64) -> Bound {
    let kind = if doubt == 0 {
        BoundKind::Exact
    } else {
        BoundKind::Deterministic
    };
    Bound {
        kind,
        lower: value,
        upper: value.saturating_add(doubt),
    }
}

/// Returns the row of a key that a heavy table names; `figure` is the figure that ranks.
pub(super) fn row(entry: &Entry<FlowKey>, figure: Figure, by: Weigh) -> Row {
    let (value, companion) = (figure.value, entry.companion_lower);
    let counts = match by {
        Weigh::Packets => Counts {
            packets: value,
            bytes: companion,
        },
        Weigh::Bytes => Counts {
            packets: companion,
            bytes: value,
        },
    };
    let companion = Bound {
        kind: BoundKind::Deterministic,
        lower: entry.companion_lower,
        upper: entry.companion_upper,
    };
    Row {
        key: entry.key,
        counts,
        bound: figure.bound,
        companion,
        sides: None,
        times: None,
    }
}

/// Returns the figure that does not rank.
pub(super) fn other(by: Weigh) -> Weigh {
    match by {
        Weigh::Packets => Weigh::Bytes,
        Weigh::Bytes => Weigh::Packets,
    }
}

/// Returns a total less the figures of the rows.
pub(super) fn rest(total: Counts, rows: &[Row]) -> Counts {
    rows.iter().fold(total, |rest, row| Counts {
        packets: rest.packets.saturating_sub(row.counts.packets),
        bytes: rest.bytes.saturating_sub(row.counts.bytes),
    })
}

/// Returns the number of keys outside the `listed` rows. The number of all keys is `counted`, else `estimated`; without both,
/// the keys in the table give a lower limit.
pub(super) fn keys_outside(
    listed: usize,
    named: usize,
    counted: Option<u64>,
    estimated: Option<Estimate>,
) -> Keys {
    let (listed, named) = (listed as u64, named as u64);
    match (counted, estimated) {
        (Some(keys), _) => Keys::About(Estimate::exact(keys - listed)),
        (None, Some(keys)) => Keys::About(Estimate {
            value: keys.value.saturating_sub(listed),
            ..keys
        }),
        (None, None) => Keys::AtLeast(named - listed),
    }
}
