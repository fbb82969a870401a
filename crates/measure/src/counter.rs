//! Table of one kind of key: one sketch, or two sketches that complete each other, after one
//! interface.

mod cms;
mod exact;
mod figure;
mod folded;
mod heavy;
mod majority;
mod owned;
mod reversible;
mod sets;
mod shared;
mod simple;

pub use shared::SharedTables;

use crate::answer::{Bound, BoundKind, Change, Estimate, Row, Table, largest_changes};
use crate::names::Names;
use crate::part::{Count, Fill, Part, Stored};
use crate::{Config, Error, KeyKind, Observation};
use cms::{NamedCms, SharedNamedCms};
use figure::{Figure, exact};
use reversible::{Recoverable, SharedRecoverable};
use sets::Flows;
pub(crate) use shared::Shared;
use simple::Slots;
use std::collections::HashSet;
use std::sync::Arc;
use weir_packet::flow::{FlowKey, Hasher};
use weir_sketch::{
    Exact, Heavy, MajorityVote, Packet, ReversibleSets, SharedExact, SharedReversibleSets,
    SharedSimpleTable, Times, Weigh,
};

/// Number of packets that are counted together.
pub(crate) const TOGETHER: usize = 64;

/// Sketch that counts the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sketch {
    /// Counts every key exactly, as long as the memory suffices.
    Exact,
    /// Counts the largest keys, with bounds that always hold.
    #[default]
    Heavy,
    /// Count-Min with three quarters of the memory, and a heavy table with the rest, which names the keys.
    Cms {
        /// Whether updates are conservative.
        conservative: bool,
    },
    /// Simple Hash Table: one slot for each hash, and of two keys with one slot the newer stays. It has no bound, but counts
    /// the evicted packets.
    Simple,
    /// MV-Sketch: rows of buckets that vote for their largest keys, with bounds that always hold.
    Majority,
    /// Reversible Sketch: cells from which addresses of IPv4, prefixes and pairs are recovered, also from the difference of
    /// windows.
    Reversible,
    /// Set-per-entry Reversible Sketch, a reproduction of the study's form for flows. It has no bound and takes long.
    ReversibleSets,
}

impl Sketch {
    /// All sketches with their names, as users write them.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("heavy", Self::Heavy),
        ("exact", Self::Exact),
        (
            "cms",
            Self::Cms {
                conservative: false,
            },
        ),
        ("cms-conservative", Self::Cms { conservative: true }),
        ("sht", Self::Simple),
        ("mv", Self::Majority),
        ("rs", Self::Reversible),
        ("rs-set", Self::ReversibleSets),
    ];

    /// Returns the name of the sketch.
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, sketch)| *sketch == self);
        named.map_or("", |(name, _)| name)
    }

    /// Returns whether tables of this sketch can have keys of this kind.
    pub fn can_count(self, kind: KeyKind) -> bool {
        match self {
            Self::Reversible => !kind.has_sides() && reversible::can_count(kind),
            Self::ReversibleSets => kind == KeyKind::FiveTuple,
            _ => true,
        }
    }

    /// Returns whether tables of this sketch can keep the times of their keys.
    pub fn can_keep_times(self) -> bool {
        matches!(self, Self::Exact | Self::Heavy)
    }

    /// Returns whether several workers can update one table of this sketch.
    pub fn can_be_shared(self) -> bool {
        match self {
            Self::Exact
            | Self::Cms { .. }
            | Self::Simple
            | Self::Reversible
            | Self::ReversibleSets => true,
            // One update of such a table changes several places that belong together.
            Self::Heavy | Self::Majority => false,
        }
    }
}

/// Table of one kind of key.
#[derive(Debug)]
pub(crate) enum Counter {
    Exact(Exact<FlowKey>),
    Heavy(Heavy<FlowKey>),
    Cms(NamedCms),
    Simple(Slots),
    Majority(MajorityVote<FlowKey>),
    Reversible(Recoverable),
    Sets(ReversibleSets<Flows>),
    SharedExact(Arc<SharedExact<FlowKey>>),
    SharedCms(SharedNamedCms),
    SharedSimple(Arc<SharedSimpleTable<FlowKey>>),
    SharedReversible(SharedRecoverable),
    SharedSets(Arc<SharedReversibleSets<Flows>>),
}

/// Hash function of keys.
type Hash<'a> = &'a dyn Fn(&FlowKey) -> u64;

/// Answers of a table that no other worker updates; each sketch answers in a file of its own.
trait Answers {
    /// Returns the largest `rows` keys. `keys` is an estimate of the number of all keys, if the caller has one.
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, hash: Hash) -> Table;

    /// Returns the keys that the table holds.
    fn keys(&self, hash: Hash) -> Vec<FlowKey>;

    /// Calls `each` with the row of every key that the table holds.
    fn each(&self, by: Weigh, hash: Hash, each: &mut dyn FnMut(Row)) {
        let all = self.table(by, usize::MAX, None, hash).rows;
        all.into_iter().for_each(each);
    }

    /// Returns the largest possible figure of a key that the table does not hold, and the kind of this bound.
    fn outside(&self, by: Weigh, hash: Hash) -> (u64, BoundKind) {
        let missing = self.table(by, usize::MAX, None, hash).missing;
        (missing.at_most, missing.kind)
    }

    /// Returns whether the table holds a key; `true` if that takes too long to find.
    fn has(&self, _: &FlowKey, _: u64) -> bool {
        true
    }

    /// Returns whether the table holds all keys that it has counted.
    fn has_all(&self) -> bool {
        self.count_of_keys().is_some()
    }

    /// Returns the bound of the figure that does not rank, for a key that the table does not hold.
    fn absent(&self, key: &FlowKey, hash: u64, by: Weigh) -> Bound {
        let upper = match self.figure(key, hash, by).bound.upper {
            0 => 0,
            _ => u64::MAX,
        };
        Bound {
            kind: BoundKind::Deterministic,
            lower: 0,
            upper,
        }
    }

    /// Returns the estimate of a key's weight, for any key.
    fn figure(&self, key: &FlowKey, hash: u64, by: Weigh) -> Figure;

    /// Returns the number of different keys, if the table is exact and had room for all of them.
    fn count_of_keys(&self) -> Option<u64> {
        None
    }

    /// Returns the times of a key; `None` if the table has none, or may lack packets of the key.
    fn times(&self, _: &FlowKey, _: u64) -> Option<Times> {
        None
    }

    /// Returns the number of packets that are in no peak, because their milliseconds were over.
    fn late(&self) -> u64 {
        0
    }

    /// Describes the table in one line, and its memory in another.
    fn describe(&self) -> [String; 2];
}

/// Counter that adds packets to a table under their parts, without storing the parts.
struct Name<'a, 'b, T> {
    packets: &'a [Observation],
    table: &'b mut T,
}

impl<'a> Count<'a> for Name<'a, '_, Heavy<FlowKey>> {
    #[inline(always)]
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
        self.table.update_as(self.packets, part, |_| {});
    }
}

impl<'a> Count<'a> for Name<'a, '_, Slots> {
    #[inline(always)]
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
        self.table.table.update_as(self.packets, part, |_| {});
    }
}

impl<'a> Count<'a> for Name<'a, '_, MajorityVote<FlowKey>> {
    #[inline(always)]
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
        self.table.update_as(self.packets, part, |_| {});
    }
}

impl Counter {
    /// Creates an empty table for keys of this kind.
    pub fn new(config: &Config, kind: KeyKind, shared: Option<&Shared>) -> Result<Self, Error> {
        let Config {
            memory,
            seed,
            request,
            ..
        } = config;
        Ok(match (config.sketch, shared) {
            (_, Some(Shared::Exact(table))) => Self::SharedExact(Arc::clone(table)),
            (_, Some(Shared::Simple(table))) => Self::SharedSimple(Arc::clone(table)),
            (_, Some(Shared::Sets(table))) => Self::SharedSets(Arc::clone(table)),
            (_, Some(Shared::Cms(cells))) => Self::SharedCms(SharedNamedCms::new(config, cells)?),
            (_, Some(Shared::Reversible(cells))) => {
                Self::SharedReversible(SharedRecoverable::new(config, kind, cells))
            }
            (Sketch::Exact, None) => Self::Exact(exact_table(config)?),
            (Sketch::Heavy, None) => {
                let new = match config.times {
                    true => Heavy::with_times,
                    false => Heavy::new,
                };
                Self::Heavy(new(*memory, config.weigh(), *seed, request)?)
            }
            (Sketch::Simple, None) => Self::Simple(Slots::new(config)?),
            (Sketch::Majority, None) => {
                Self::Majority(MajorityVote::new(*memory, config.weigh(), *seed, request)?)
            }
            (Sketch::Reversible, None) => Self::Reversible(Recoverable::new(config, kind)?),
            (Sketch::ReversibleSets, None) => {
                Self::Sets(ReversibleSets::new(*memory, *seed, request)?)
            }
            (Sketch::Cms { conservative }, None) => Self::Cms(NamedCms::new(config, conservative)?),
        })
    }

    /// Returns the heavy table that names the keys; tables that name their keys themselves have none.
    #[inline]
    pub fn names(&self) -> Option<&Heavy<FlowKey>> {
        match self {
            Self::Heavy(names)
            | Self::Cms(NamedCms { names, .. })
            | Self::SharedCms(SharedNamedCms { names, .. }) => Some(names),
            Self::Exact(_)
            | Self::SharedExact(_)
            | Self::Simple(_)
            | Self::SharedSimple(_)
            | Self::Reversible(_)
            | Self::SharedReversible(_)
            | Self::Sets(_)
            | Self::SharedSets(_)
            | Self::Majority(_) => None,
        }
    }

    /// Counts packets, at most [`TOGETHER`], each under its [`Packet::key`]. `likely` holds the guesses of
    /// [`Heavy::prefetch_counts`], or is empty. In the returned mask, bit i is clear if the key of packet i was counted here
    /// before.
    #[inline]
    pub fn update<P: Packet<FlowKey>>(&mut self, items: &[P], likely: &[u8]) -> u64 {
        let mut new = 0;
        let names = match self {
            Self::Heavy(names) => names,
            Self::Simple(slots) => {
                slots.table.update_and_tell(items, |i| new |= 1 << i);
                return new;
            }
            Self::SharedSimple(table) => {
                table.update_and_tell(items, |i| new |= 1 << i);
                return new;
            }
            Self::Majority(table) => {
                table.update_and_tell(items, |i| new |= 1 << i);
                return new;
            }
            Self::Exact(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::SharedExact(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::Reversible(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::SharedReversible(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::Sets(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::SharedSets(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::Cms(table) => {
                table.update_cells(items);
                &mut table.names
            }
            Self::SharedCms(table) => {
                table.update_cells(items);
                &mut table.names
            }
        };
        if likely.is_empty() {
            names.update_and_tell(items, |i| new |= 1 << i);
        } else {
            names.add(items, likely, |i| new |= 1 << i);
        }
        new
    }

    /// Counts packets, at most [`TOGETHER`], each under a part of its flow key; `parts` is a buffer for the parts.
    pub fn update_part(
        &mut self,
        kind: KeyKind,
        packets: &[Observation],
        hasher: &Hasher,
        parts: &mut Vec<Stored>,
    ) {
        self.update_side(kind, false, packets, hasher, parts);
        if kind.counts_twice() {
            self.update_side(kind, true, packets, hasher, parts);
        }
    }

    /// Counts packets, each under its key, or under the receiving side of it.
    fn update_side(
        &mut self,
        kind: KeyKind,
        receives: bool,
        packets: &[Observation],
        hasher: &Hasher,
        parts: &mut Vec<Stored>,
    ) {
        match self {
            Self::Heavy(table) => kind.count_side(receives, hasher, Name { packets, table }),
            Self::Simple(table) => kind.count_side(receives, hasher, Name { packets, table }),
            Self::Majority(table) => kind.count_side(receives, hasher, Name { packets, table }),
            _ => {
                kind.count_side(receives, hasher, Fill { packets, parts });
                self.update(parts, &[]);
            }
        }
    }

    /// Adds the counts of another table. For workers that share a table, only the names are added.
    pub fn merge(&mut self, other: &Self, hash: impl FnMut(&FlowKey) -> u64) -> Result<(), Error> {
        match (self, other) {
            (Self::Exact(mine), Self::Exact(theirs)) => mine.merge(theirs, hash),
            (Self::Heavy(mine), Self::Heavy(theirs)) => mine.merge(theirs),
            (Self::Cms(mine), Self::Cms(theirs)) => mine.merge(theirs),
            (Self::SharedCms(mine), Self::SharedCms(theirs)) => mine.names.merge(&theirs.names),
            (Self::Simple(mine), Self::Simple(theirs)) => mine.merge(theirs),
            (Self::Majority(mine), Self::Majority(theirs)) => mine.merge(theirs),
            (Self::Reversible(mine), Self::Reversible(theirs)) => mine.merge(theirs),
            (Self::SharedReversible(mine), Self::SharedReversible(theirs)) => {
                mine.merge(theirs);
                Ok(())
            }
            (Self::Sets(mine), Self::Sets(theirs)) => mine.merge(theirs),
            (Self::SharedExact(_), Self::SharedExact(_)) => Ok(()),
            (Self::SharedSets(_), Self::SharedSets(_)) => Ok(()),
            (Self::SharedSimple(_), Self::SharedSimple(_)) => Ok(()),
            _ => unreachable!("tables of one configuration are of one kind"),
        }
    }

    /// Replaces a shared table by an own table, after the last update of the shared table.
    pub fn finalize(
        &mut self,
        config: &Config,
        hash: impl FnMut(&FlowKey) -> u64,
    ) -> Result<(), Error> {
        let own = match self {
            Self::SharedExact(table) => {
                let mut own = exact_table(config)?;
                table.merge_into(&mut own, hash)?;
                Self::Exact(own)
            }
            Self::SharedCms(table) => Self::Cms(table.settle(config)?),
            Self::SharedSimple(table) => Self::Simple(Slots::settled(table, config)?),
            Self::SharedReversible(table) => Self::Reversible(table.settle(config)?),
            Self::SharedSets(table) => Self::Sets(table.snapshot(&config.request)?),
            _ => return Ok(()),
        };
        *self = own;
        Ok(())
    }

    /// Clears the table and keeps the memory. Returns `false` and clears nothing if other workers share the table, or if
    /// [`Self::new`] would make another kind of table.
    pub fn clear(&mut self) -> bool {
        match self {
            Self::Exact(table) => table.clear(),
            Self::Heavy(names) => names.clear(),
            Self::Cms(table) => return table.clear(),
            Self::Simple(slots) => slots.table.clear(),
            Self::Majority(table) => table.clear(),
            Self::Reversible(table) => return table.clear(),
            Self::Sets(table) => table.clear(),
            Self::SharedExact(_)
            | Self::SharedCms(_)
            | Self::SharedSimple(_)
            | Self::SharedReversible(_)
            | Self::SharedSets(_) => return false,
        }
        true
    }

    /// Returns the table for questions.
    ///
    /// **Panics**: if workers share the table. [`Self::finalize`] makes it an own table, which answers.
    fn settled(&self) -> &dyn Answers {
        match self {
            Self::Exact(table) => table,
            Self::Heavy(names) => names,
            Self::Cms(table) => table,
            Self::Simple(table) => table,
            Self::Majority(table) => table,
            Self::Reversible(table) => table,
            Self::Sets(table) => table,
            Self::SharedExact(_)
            | Self::SharedCms(_)
            | Self::SharedSimple(_)
            | Self::SharedReversible(_)
            | Self::SharedSets(_) => {
                unreachable!("a shared table is settled before it is asked")
            }
        }
    }

    /// Returns the number of different keys, if the table is exact and had room for all of them.
    pub fn count_of_keys(&self) -> Option<u64> {
        match self {
            Self::SharedExact(_)
            | Self::SharedCms(_)
            | Self::SharedSimple(_)
            | Self::SharedReversible(_)
            | Self::SharedSets(_) => None,
            table => table.settled().count_of_keys(),
        }
    }

    /// Returns the largest `rows` keys. `keys` is an estimate of the number of all keys, if the caller has one.
    pub fn table(
        &self,
        by: Weigh,
        rows: usize,
        keys: Option<Estimate>,
        hash: impl Fn(&FlowKey) -> u64,
    ) -> Table {
        let settled = self.settled();
        let mut table = settled.table(by, rows, keys, &hash);
        for row in &mut table.rows {
            row.times = settled.times(&row.key, hash(&row.key));
        }
        table.late = settled.late();
        table
    }

    /// Returns the keys whose figures changed most; a window without a table had no packets.
    ///
    /// If the keys have sides, `sides` is their kind, with the names by which keys of names are added up.
    pub fn changes(
        before: Option<&Self>,
        after: Option<&Self>,
        sides: Option<(KeyKind, Option<&Names>)>,
        by: Weigh,
        rows: usize,
        hash: impl Fn(&FlowKey) -> u64,
    ) -> Vec<Change> {
        let kind = sides.map(|(kind, _)| kind);
        let mut keys: HashSet<FlowKey> = match (before, after) {
            (Some(Self::Reversible(_)), _) | (_, Some(Self::Reversible(_))) => {
                let [before, after] = [before, after].map(|it| it.and_then(Self::recoverable));
                Recoverable::changed(before, after, rows)
            }
            _ => Self::all_keys(before, after, kind, &hash),
        };
        let names = sides.and_then(|(_, names)| names);
        keys.extend(names.into_iter().flat_map(Names::hosts));
        let change = |key: FlowKey| {
            let [then, now] =
                [before, after].map(|table| Self::whole_figure(table, &key, kind, by, &hash));
            Change::between(key, then, now)
        };
        let changes = keys.into_iter().map(change);
        match names {
            Some(names) => largest_changes(folded::changes_of_names(changes, names), rows),
            None => largest_changes(changes.collect(), rows),
        }
    }

    /// Returns the keys that one of two tables holds, each once; both sides of a key are one.
    pub fn all_keys(
        before: Option<&Self>,
        after: Option<&Self>,
        sides: Option<KeyKind>,
        hash: Hash<'_>,
    ) -> HashSet<FlowKey> {
        let tables = before.into_iter().chain(after);
        tables
            .flat_map(|table| table.settled().keys(hash))
            .map(|key| sides.map_or(key, |kind| kind.whole(&key).0))
            .collect()
    }

    /// Returns the figure of a key with its bound, for both sides of the key together; 0 without a table.
    pub fn whole_figure(
        table: Option<&Self>,
        key: &FlowKey,
        sides: Option<KeyKind>,
        by: Weigh,
        hash: Hash<'_>,
    ) -> (u64, Bound) {
        let Some(table) = table else {
            return (0, exact(0, 0));
        };
        let of = |key: &FlowKey| table.settled().figure(key, hash(key), by);
        let other = sides
            .map(|kind| kind.receiving(key))
            .filter(|other| other != key);
        let sum = other.iter().fold(of(key), |sum, other| sum.and(of(other)));
        (sum.value, sum.bound)
    }

    /// Returns the largest possible figure of a key that the table does not hold, and the kind of this bound.
    pub fn outside(&self, by: Weigh, hash: Hash<'_>) -> (u64, BoundKind) {
        self.settled().outside(by, hash)
    }

    /// Calls `each` with the row of every key that the table holds; the sides of a key have rows of their own.
    pub fn each_row(&self, by: Weigh, hash: Hash<'_>, each: &mut dyn FnMut(Row)) {
        self.settled().each(by, hash, each);
    }

    fn recoverable(&self) -> Option<&Recoverable> {
        match self {
            Self::Reversible(table) => Some(table),
            _ => None,
        }
    }

    /// Describes the table in one line, and its memory in another.
    pub fn describe(&self) -> [String; 2] {
        self.settled().describe()
    }
}

/// Creates an empty exact table.
fn exact_table(config: &Config) -> Result<Exact<FlowKey>, Error> {
    let new = match config.times {
        true => Exact::with_times,
        false => Exact::new,
    };
    new(config.memory, config.seed, &config.request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sketch;
    use weir_sketch::Item;

    /// Each of two tables has room for 14 flows and rejected 6. Of the flows of the second table, 10 found no room in the
    /// merge.
    #[test]
    fn a_key_that_an_exact_table_lacks_has_at_most_what_found_no_room() {
        let config = Config {
            sketch: Sketch::Exact,
            memory: 16 * 64,
            ..Config::default()
        };
        let hash = |key: &FlowKey| u64::from(key.sport) << 40;
        let flow = |sport| FlowKey {
            sport,
            ..FlowKey::NONE
        };
        let table = |flows: std::ops::Range<u16>| {
            let items: Vec<_> = flows
                .map(flow)
                .map(|key| Item {
                    hash: hash(&key),
                    bytes: 100,
                    key,
                })
                .collect();
            let mut table = Counter::new(&config, KeyKind::FiveTuple, None).expect("enough memory");
            table.update(&items, &[]);
            table
        };
        let mut all = table(0..20);
        all.merge(&table(10..30), hash)
            .expect("tables of one configuration");
        for (by, unit) in [(Weigh::Packets, 1), (Weigh::Bytes, 100)] {
            let bound = |sport| {
                let bound = all
                    .settled()
                    .figure(&flow(sport), hash(&flow(sport)), by)
                    .bound;
                (bound.lower, bound.upper)
            };
            assert_eq!(bound(3), (unit, unit + 6 * unit), "in one table alone");
            assert_eq!(bound(12), (2 * unit, 2 * unit + 6 * unit), "in both");
            assert_eq!(bound(25), (0, 22 * unit), "in none");
        }
    }
}
