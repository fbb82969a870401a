//! Answers of a heavy table.

use super::figure::{Figure, keys_outside, rest, row};
use super::{Answers, Hash};
use crate::answer::{Bound, BoundKind, Estimate, Missing, Row, Table};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, Entry, Heavy, Times, Weigh};

impl Answers for Heavy<FlowKey> {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, _: Hash) -> Table {
        let (listed, at_most) = self.ranking(rows);
        let row = |entry: Entry<FlowKey>| row(&entry, between(entry.lower, entry.upper), by);
        let rows: Vec<Row> = listed.into_iter().map(row).collect();
        let keys = keys_outside(rows.len(), self.iter().count(), known(self), keys);
        let missing = Missing {
            at_most,
            kind: BoundKind::Deterministic,
            keys,
            counts: rest(self.total(), &rows),
        };
        Table {
            rows,
            untracked: Counts::default(),
            evicted: Counts::default(),
            ipv6: Counts::default(),
            overflowed: 0,
            late: 0,
            missing,
        }
    }

    fn keys(&self, _: Hash) -> Vec<FlowKey> {
        self.iter().map(|entry| entry.key).collect()
    }

    fn each(&self, by: Weigh, _: Hash, each: &mut dyn FnMut(Row)) {
        for entry in self.iter() {
            each(row(&entry, between(entry.lower, entry.upper), by));
        }
    }

    fn outside(&self, _: Weigh, _: Hash) -> (u64, BoundKind) {
        (self.absent_upper(), BoundKind::Deterministic)
    }

    fn has(&self, key: &FlowKey, hash: u64) -> bool {
        self.get(key, hash).is_some()
    }

    fn has_all(&self) -> bool {
        known(self).is_some()
    }

    fn absent(&self, _: &FlowKey, hash: u64, _: Weigh) -> Bound {
        deterministic(0, self.absent_companion(hash))
    }

    fn figure(&self, key: &FlowKey, hash: u64, _: Weigh) -> Figure {
        let (lower, upper) = self.bounds(key, hash);
        between(lower, upper)
    }

    fn times(&self, key: &FlowKey, hash: u64) -> Option<Times> {
        self.times(key, hash)
    }

    fn late(&self) -> u64 {
        self.late()
    }

    fn describe(&self) -> [String; 2] {
        [
            format!("heavy, room for {} keys", self.capacity()),
            self.obtained().to_string(),
        ]
    }
}

/// Returns the figure of a weight between these bounds: the lower bound.
fn between(lower: u64, upper: u64) -> Figure {
    Figure {
        value: lower,
        bound: deterministic(lower, upper),
    }
}

/// Returns a bound that always holds.
pub(super) fn deterministic(lower: u64, upper: u64) -> Bound {
    Bound {
        kind: BoundKind::Deterministic,
        lower,
        upper,
    }
}

/// Returns the number of keys that a table has counted, if all of them are in it.
pub(super) fn known(names: &Heavy<FlowKey>) -> Option<u64> {
    names.count_of_keys().map(|keys| keys as u64)
}
