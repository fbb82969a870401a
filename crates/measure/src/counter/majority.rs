//! Answers of a majority vote.

use super::figure::{Figure, keys_outside, rest, row};
use super::heavy::deterministic;
use super::{Answers, Hash};
use crate::answer::{BoundKind, Estimate, Missing, Row, Table};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, MajorityVote, Weigh};

impl Answers for MajorityVote<FlowKey> {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, hash: Hash) -> Table {
        let (listed, at_most) = self.ranking(rows, hash);
        let rows: Vec<Row> = listed
            .iter()
            .map(|entry| row(entry, between(entry.lower, entry.upper), by))
            .collect();
        let named = self.entries(hash).count();
        let missing = Missing {
            at_most,
            kind: BoundKind::Deterministic,
            keys: keys_outside(rows.len(), named, None, keys),
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
        self.candidates().copied().collect()
    }

    fn each(&self, by: Weigh, hash: Hash, each: &mut dyn FnMut(Row)) {
        for entry in self.entries(hash) {
            each(row(&entry, between(entry.lower, entry.upper), by));
        }
    }

    fn figure(&self, key: &FlowKey, hash: u64, _: Weigh) -> Figure {
        let (lower, upper) = self.bounds(key, hash);
        between(lower, upper)
    }

    fn describe(&self) -> [String; 2] {
        [
            format!(
                "majority vote, {} rows of {} buckets, epsilon {:.2e}, delta {:.4}",
                self.rows(),
                self.width(),
                self.epsilon(),
                self.delta()
            ),
            self.obtained().to_string(),
        ]
    }
}

/// Returns the figure of a weight between these bounds: the upper bound, which is the estimate of the sketch.
fn between(lower: u64, upper: u64) -> Figure {
    Figure {
        value: upper,
        bound: deterministic(lower, upper),
    }
}
