//! Answers of an exact table.

use super::figure::{Figure, exact, keys_outside, other, rest};
use super::{Answers, Hash};
use crate::answer::{Bound, BoundKind, Estimate, Missing, Row, Table};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, Exact, Times, Weigh};

/// Returns the row of a key from whose counts at most `doubt` is missing.
fn row(key: FlowKey, counts: Counts, doubt: Counts, by: Weigh) -> Row {
    Row {
        key,
        counts,
        bound: exact(counts.by(by), doubt.by(by)),
        companion: exact(counts.by(other(by)), doubt.by(other(by))),
        sides: None,
        times: None,
    }
}

impl Answers for Exact<FlowKey> {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, _: Hash) -> Table {
        let (listed, at_most) = self.ranking(rows, by);
        let (untracked, doubt) = (self.untracked(), self.doubt());
        let listed = listed.into_iter();
        let rows: Vec<Row> = listed
            .map(|(key, counts)| row(key, counts, doubt, by))
            .collect();
        let is_exact = untracked == Counts::default() && doubt == Counts::default();
        let kind = if is_exact {
            BoundKind::Exact
        } else {
            BoundKind::Deterministic
        };
        let keys = keys_outside(rows.len(), self.len(), self.count_of_keys(), keys);
        Table {
            missing: Missing {
                at_most,
                kind,
                keys,
                counts: rest(self.total(), &rows),
            },
            rows,
            untracked,
            evicted: Counts::default(),
            ipv6: Counts::default(),
            overflowed: 0,
            late: 0,
        }
    }

    fn keys(&self, _: Hash) -> Vec<FlowKey> {
        self.iter().map(|(key, _)| key).collect()
    }

    fn each(&self, by: Weigh, _: Hash, each: &mut dyn FnMut(Row)) {
        let doubt = self.doubt();
        for (key, counts) in self.iter() {
            each(row(key, counts, doubt, by));
        }
    }

    fn has(&self, key: &FlowKey, hash: u64) -> bool {
        self.get(key, hash).is_some()
    }

    fn absent(&self, _: &FlowKey, _: u64, by: Weigh) -> Bound {
        exact(0, self.untracked().by(other(by)))
    }

    fn figure(&self, key: &FlowKey, hash: u64, by: Weigh) -> Figure {
        let (value, missing) = match self.get(key, hash) {
            Some(counts) => (counts, self.doubt()),
            None => (Counts::default(), self.untracked()),
        };
        Figure {
            value: value.by(by),
            bound: exact(value.by(by), missing.by(by)),
        }
    }

    fn count_of_keys(&self) -> Option<u64> {
        (self.untracked() == Counts::default()).then_some(self.len() as u64)
    }

    fn times(&self, key: &FlowKey, hash: u64) -> Option<Times> {
        self.times(key, hash)
    }

    fn late(&self) -> u64 {
        self.late()
    }

    fn describe(&self) -> [String; 2] {
        [
            format!("exact, {} of {} keys", self.len(), self.capacity()),
            self.obtained().to_string(),
        ]
    }
}
