//! The Simple Hash Table of the study: counts that lack the evicted packets, without a bound beforehand.

use super::figure::{Figure, exact, keys_outside, other, rest};
use super::{Answers, Hash};
use crate::answer::{Bound, BoundKind, Estimate, Missing, Row, Table};
use crate::{Config, Error};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, SharedSimpleTable, SimpleTable, Weigh};

/// Simple table, and the figure by which a merge chooses between two keys of one slot.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(super) table: SimpleTable<FlowKey>,
    by: Weigh,
}

impl Slots {
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            table: SimpleTable::new(config.memory, config.seed, &config.request)?,
            by: config.weigh(),
        })
    }

    /// Copies a table that workers shared.
    pub(super) fn settled(
        shared: &SharedSimpleTable<FlowKey>,
        config: &Config,
    ) -> Result<Self, Error> {
        Ok(Self {
            table: shared.snapshot(&config.request)?,
            by: config.weigh(),
        })
    }

    /// Adds the counts of another table. A flow of several workers is in several tables; its counts are added up if it has
    /// kept its slot in each of them.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.table.merge(&other.table, self.by)
    }

    fn row(&self, key: FlowKey, counts: Counts, by: Weigh) -> Row {
        Row {
            key,
            counts,
            bound: self.bound(counts.by(by), by),
            companion: self.bound(counts.by(other(by)), other(by)),
            sides: None,
            times: None,
        }
    }

    /// Returns the bound of a count: exact, unless any key has been evicted.
    fn bound(&self, value: u64, by: Weigh) -> Bound {
        let evicted = self.table.evicted();
        if evicted == Counts::default() {
            return exact(value, 0);
        }
        Bound {
            kind: BoundKind::None,
            lower: value,
            upper: value.saturating_add(evicted.by(by)),
        }
    }
}

impl Answers for Slots {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, _: Hash) -> Table {
        let (listed, at_most) = self.table.ranking(rows, by);
        let listed = listed.into_iter();
        let rows: Vec<Row> = listed
            .map(|(key, counts)| self.row(key, counts, by))
            .collect();
        let keys = keys_outside(rows.len(), self.table.len(), self.count_of_keys(), keys);
        let missing = Missing {
            at_most,
            kind: self.bound(at_most, by).kind,
            keys,
            counts: rest(self.table.total(), &rows),
        };
        Table {
            rows,
            untracked: Counts::default(),
            evicted: self.table.evicted(),
            ipv6: Counts::default(),
            overflowed: 0,
            late: 0,
            missing,
        }
    }

    fn keys(&self, _: Hash) -> Vec<FlowKey> {
        self.table.iter().map(|(key, _)| key).collect()
    }

    fn each(&self, by: Weigh, _: Hash, each: &mut dyn FnMut(Row)) {
        self.table
            .iter()
            .for_each(|(key, counts)| each(self.row(key, counts, by)));
    }

    fn has(&self, key: &FlowKey, hash: u64) -> bool {
        self.table.get(key, hash).is_some()
    }

    fn absent(&self, _: &FlowKey, _: u64, by: Weigh) -> Bound {
        self.bound(0, other(by))
    }

    fn figure(&self, key: &FlowKey, hash: u64, by: Weigh) -> Figure {
        let value = self.table.get(key, hash).unwrap_or_default().by(by);
        Figure {
            value,
            bound: self.bound(value, by),
        }
    }

    fn count_of_keys(&self) -> Option<u64> {
        let is_exact = self.table.evicted() == Counts::default();
        is_exact.then_some(self.table.len() as u64)
    }

    fn describe(&self) -> [String; 2] {
        let table = &self.table;
        [
            format!(
                "simple hash table, {} of {} slots; {} packets evicted",
                table.len(),
                table.capacity(),
                table.evicted().packets
            ),
            table.obtained().to_string(),
        ]
    }
}
