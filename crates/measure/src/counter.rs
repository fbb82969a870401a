//! Table of one kind of key: one sketch, or two sketches that complete each other, after one
//! interface.

use crate::answer::{Bound, BoundKind, Change, Estimate, Keys, Missing, Row, Table, difference};
use crate::part::{Count, Fill, Part};
use crate::{Config, Error, KeyKind, Observation, Slot};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use weir_packet::flow::{FlowKey, Hasher};
use weir_sketch::{
    Cms, Counts, Entry, Exact, Heavy, Item, Packet, Rule, Shape, SharedCms, SharedExact, Weigh,
};
use zerocopy::IntoBytes;

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
}

impl Sketch {
    /// Returns whether several workers can update one table of this sketch.
    pub fn can_be_shared(self) -> bool {
        self != Self::Heavy
    }
}

/// Number of Count-Min rows: a figure is within its bound with a probability of 1 - e^-4.
const ROWS: usize = 4;

/// Count-Min cells: packets of one worker fit in 32 bits, bytes do not.
#[derive(Debug)]
pub(crate) enum Cells {
    Narrow(Cms<u32>),
    Wide(Cms<u64>),
}

impl Cells {
    fn estimate(&self, hash: u64) -> u64 {
        match self {
            Self::Narrow(cms) => cms.estimate(hash),
            Self::Wide(cms) => cms.estimate(hash),
        }
    }

    fn bound(&self) -> weir_sketch::Bound {
        match self {
            Self::Narrow(cms) => cms.bound(),
            Self::Wide(cms) => cms.bound(),
        }
    }

    fn total(&self) -> u64 {
        match self {
            Self::Narrow(cms) => cms.total(),
            Self::Wide(cms) => cms.total(),
        }
    }

    fn is_saturated(&self) -> bool {
        match self {
            Self::Narrow(cms) => cms.is_saturated(),
            Self::Wide(cms) => cms.is_saturated(),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Narrow(cms) => cms.memory_bytes(),
            Self::Wide(cms) => cms.memory_bytes(),
        }
    }

    fn obtained(&self) -> weir_memory::Obtained {
        match self {
            Self::Narrow(cms) => cms.obtained(),
            Self::Wide(cms) => cms.obtained(),
        }
    }
}

/// Table that several workers update.
#[derive(Clone, Debug)]
pub(crate) enum Shared {
    Exact(Arc<SharedExact<FlowKey>>),
    Cms(Arc<SharedCms>),
}

/// Shared tables of the open windows.
#[derive(Debug, Default)]
pub struct SharedTables(Mutex<BTreeMap<Slot, Vec<Shared>>>);

impl SharedTables {
    /// Returns the tables of a window, one for each kind of key. The first call for a window creates them.
    pub(crate) fn of(&self, config: &Config, slot: Slot) -> Result<Vec<Shared>, Error> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = windows.get(&slot) {
            return Ok(tables.clone());
        }
        let tables: Vec<Shared> = config
            .keys
            .iter()
            .map(|_| Shared::new(config))
            .collect::<Result<_, _>>()?;
        windows.insert(slot, tables.clone());
        Ok(tables)
    }

    /// Removes the tables of a complete window.
    pub(crate) fn forget(&self, slot: Slot) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&slot);
    }
}

impl Shared {
    fn new(config: &Config) -> Result<Self, Error> {
        let Config {
            memory,
            seed,
            request,
            ..
        } = config;
        match config.sketch {
            Sketch::Cms { conservative } => {
                let shape = shape(*memory, size_of::<u64>())?;
                Ok(Self::Cms(Arc::new(SharedCms::new(
                    shape,
                    rule(conservative),
                    *seed,
                    request,
                )?)))
            }
            // The check of the settings refuses shared `Heavy` tables, because one update of such a table changes several
            // places.
            Sketch::Exact | Sketch::Heavy => Ok(Self::Exact(Arc::new(SharedExact::new(
                *memory, *seed, request,
            )?))),
        }
    }
}

fn rule(conservative: bool) -> Rule {
    if conservative {
        Rule::Conservative
    } else {
        Rule::Plain
    }
}

/// Returns the shape of the largest Count-Min within three quarters of the memory.
fn shape(memory: usize, cell_bytes: usize) -> Result<Shape, Error> {
    Shape::for_memory(memory / 4 * 3, ROWS, cell_bytes)
}

/// Table of one kind of key.
#[derive(Debug)]
pub(crate) enum Counter {
    Exact(Exact<FlowKey>),
    Heavy(Heavy<FlowKey>),
    Cms(Cells, Heavy<FlowKey>),
    SharedExact(Arc<SharedExact<FlowKey>>),
    SharedCms(Arc<SharedCms>, Heavy<FlowKey>),
}

/// Counter that adds packets to a heavy table under their parts, without storing the parts.
struct Name<'a, 'b> {
    packets: &'a [Observation],
    names: &'b mut Heavy<FlowKey>,
}

impl<'a> Count<'a> for Name<'a, '_> {
    #[inline(always)]
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
        self.names.update_as(self.packets, part, |_| {});
    }
}

/// Estimate of a key's weight, with its bound.
#[derive(Clone, Copy, Debug)]
struct Figure {
    value: u64,
    bound: Bound,
}

impl Counter {
    /// Creates an empty table.
    pub fn new(config: &Config, shared: Option<&Shared>) -> Result<Self, Error> {
        let Config {
            memory,
            by,
            seed,
            request,
            ..
        } = config;
        let names = |used: usize| Heavy::new(memory - used, *by, *seed, request);
        match (config.sketch, shared) {
            (_, Some(Shared::Exact(table))) => Ok(Self::SharedExact(Arc::clone(table))),
            (_, Some(Shared::Cms(cells))) => Ok(Self::SharedCms(
                Arc::clone(cells),
                names(cells.memory_bytes())?,
            )),
            (Sketch::Exact, None) => Ok(Self::Exact(Exact::new(*memory, *seed, request)?)),
            (Sketch::Heavy, None) => Ok(Self::Heavy(names(0)?)),
            (Sketch::Cms { conservative }, None) => {
                let rule = rule(conservative);
                let cells = match by {
                    Weigh::Packets => Cells::Narrow(Cms::new(
                        shape(*memory, size_of::<u32>())?,
                        rule,
                        *seed,
                        request,
                    )?),
                    Weigh::Bytes => Cells::Wide(Cms::new(
                        shape(*memory, size_of::<u64>())?,
                        rule,
                        *seed,
                        request,
                    )?),
                };
                let names = names(cells.memory_bytes())?;
                Ok(Self::Cms(cells, names))
            }
        }
    }

    /// Returns the heavy table that names the keys; exact tables have none.
    #[inline]
    pub fn names(&self) -> Option<&Heavy<FlowKey>> {
        match self {
            Self::Heavy(names) | Self::Cms(_, names) | Self::SharedCms(_, names) => Some(names),
            Self::Exact(_) | Self::SharedExact(_) => None,
        }
    }

    /// Counts packets, at most [`TOGETHER`], each under its [`Packet::key`]. `likely` holds the guesses of
    /// [`Heavy::prefetch_counts`], or is empty. In the returned mask, bit i is clear if the key of packet i was counted here
    /// before.
    #[inline]
    pub fn update<P: Packet<FlowKey>>(&mut self, items: &[P], likely: &[u8]) -> u64 {
        let names = match self {
            Self::Heavy(names) => names,
            Self::Exact(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::SharedExact(table) => {
                table.update(items);
                return u64::MAX;
            }
            Self::Cms(Cells::Narrow(cms), names) => {
                let mut hashes = [0; TOGETHER];
                hashes
                    .iter_mut()
                    .zip(items)
                    .for_each(|(hash, item)| *hash = item.hash());
                cms.update(&hashes[..items.len()]);
                names
            }
            Self::Cms(Cells::Wide(cms), names) => {
                cms.update_weighted(items.iter().map(|item| (item.hash(), item.bytes())));
                names
            }
            Self::SharedCms(cms, names) => {
                let weigh = names.weigh();
                let weight = |item: &P| {
                    if weigh == Weigh::Packets {
                        1
                    } else {
                        item.bytes()
                    }
                };
                cms.update_weighted(items.iter().map(|item| (item.hash(), weight(item))));
                names
            }
        };
        let mut new = 0;
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
        parts: &mut Vec<Item<FlowKey>>,
    ) {
        if let Self::Heavy(names) = self {
            kind.count(hasher, Name { packets, names });
        } else {
            kind.count(hasher, Fill { packets, parts });
            self.update(parts, &[]);
        }
    }

    /// Adds the counts of another table. For workers that share a table, only the names are added.
    pub fn merge(&mut self, other: &Self, hash: impl FnMut(&FlowKey) -> u64) -> Result<(), Error> {
        match (self, other) {
            (Self::Exact(mine), Self::Exact(theirs)) => mine.merge(theirs, hash),
            (Self::Heavy(mine), Self::Heavy(theirs)) => mine.merge(theirs),
            (Self::Cms(cells, names), Self::Cms(their_cells, their_names)) => {
                match (cells, their_cells) {
                    (Cells::Narrow(mine), Cells::Narrow(theirs)) => mine.merge(theirs)?,
                    (Cells::Wide(mine), Cells::Wide(theirs)) => mine.merge(theirs)?,
                    _ => unreachable!("tables of one configuration have cells of one width"),
                }
                names.merge(their_names)
            }
            (Self::SharedCms(_, mine), Self::SharedCms(_, theirs)) => mine.merge(theirs),
            (Self::SharedExact(..), Self::SharedExact(..)) => Ok(()),
            _ => unreachable!("tables of one configuration are of one kind"),
        }
    }

    /// Replaces a shared table by an own table, after the last update of the shared table.
    pub fn finalize(
        &mut self,
        config: &Config,
        hash: impl FnMut(&FlowKey) -> u64,
    ) -> Result<(), Error> {
        let Config {
            memory,
            by,
            seed,
            request,
            ..
        } = config;
        let own = match self {
            Self::SharedExact(table) => {
                let mut own = Exact::new(*memory, *seed, request)?;
                table.merge_into(&mut own, hash)?;
                Self::Exact(own)
            }
            Self::SharedCms(cms, names) => {
                // The names move; their replacement is dropped with the shared table.
                let least = Heavy::new(names.memory_bytes(), *by, *seed, request)?;
                Self::Cms(
                    Cells::Wide(cms.snapshot(request)?),
                    std::mem::replace(names, least),
                )
            }
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
            Self::Cms(Cells::Narrow(cms), names) => {
                cms.clear();
                names.clear();
            }
            Self::Cms(Cells::Wide(cms), names) if names.weigh() == Weigh::Bytes => {
                cms.clear();
                names.clear();
            }
            // A table of packets in wide cells was a shared table before it was settled.
            Self::Cms(..) | Self::SharedExact(_) | Self::SharedCms(..) => return false,
        }
        true
    }

    /// Returns the number of different keys, if the table is exact and had room for all of them.
    pub fn count_of_keys(&self) -> Option<u64> {
        match self {
            Self::Exact(table) if table.untracked() == Counts::default() => {
                Some(table.len() as u64)
            }
            _ => None,
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
        match self {
            Self::Exact(table) => {
                let (listed, at_most) = table.ranking(rows, by);
                let (untracked, doubt) = (table.untracked(), table.doubt());
                let row = |(key, counts): (FlowKey, Counts)| Row {
                    key,
                    counts,
                    bound: exact(counts.by(by), doubt.by(by)),
                    companion: exact(counts.by(other(by)), doubt.by(other(by))),
                };
                let rows: Vec<Row> = listed.into_iter().map(row).collect();
                let is_exact = untracked == Counts::default() && doubt == Counts::default();
                let kind = if is_exact {
                    BoundKind::Exact
                } else {
                    BoundKind::Deterministic
                };
                let keys = keys_outside(rows.len(), table.len(), self.count_of_keys(), keys);
                Table {
                    missing: Missing {
                        at_most,
                        kind,
                        keys,
                        counts: rest(table.total(), &rows),
                    },
                    rows,
                    untracked,
                }
            }
            Self::Heavy(names) => {
                let (listed, at_most) = names.ranking(rows);
                let row = |entry: Entry<FlowKey>| {
                    let bound = Bound {
                        kind: BoundKind::Deterministic,
                        lower: entry.lower,
                        upper: entry.upper,
                    };
                    row(
                        &entry,
                        Figure {
                            value: entry.lower,
                            bound,
                        },
                        by,
                    )
                };
                let rows: Vec<Row> = listed.into_iter().map(row).collect();
                let keys = keys_outside(rows.len(), names.iter().count(), known(names), keys);
                let missing = Missing {
                    at_most,
                    kind: BoundKind::Deterministic,
                    keys,
                    counts: rest(names.total(), &rows),
                };
                Table {
                    rows,
                    untracked: Counts::default(),
                    missing,
                }
            }
            Self::Cms(cells, names) => {
                let row =
                    |entry: Entry<FlowKey>| row(&entry, cells.figure(&entry, hash(&entry.key)), by);
                let mut all: Vec<Row> = names.iter().map(row).collect();
                let named = all.len();
                all.sort_unstable_by(|a, b| {
                    b.counts
                        .by(by)
                        .cmp(&a.counts.by(by))
                        .then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
                });
                let others = all.split_off(rows.min(all.len()));
                // This limit is certain, because neither the names' bounds nor the cells are ever below the true weight. A key
                // without a name weighs no more than `absent_upper` of the names, if the names have counted the same packets as
                // the cells.
                let most = others
                    .iter()
                    .map(|row| row.bound.upper)
                    .max()
                    .unwrap_or(0)
                    .max(names.absent_upper());
                let saw_all = cells.total() == names.total().by(by);
                let kind = if saw_all {
                    BoundKind::Deterministic
                } else {
                    BoundKind::None
                };
                let keys = keys_outside(all.len(), named, known(names), keys);
                let missing = Missing {
                    at_most: most,
                    kind,
                    keys,
                    counts: rest(names.total(), &all),
                };
                Table {
                    rows: all,
                    untracked: Counts::default(),
                    missing,
                }
            }
            Self::SharedExact(..) | Self::SharedCms(..) => {
                unreachable!("a shared table is settled before it is asked")
            }
        }
    }

    /// Returns the keys whose figures changed most; a window without a table had no packets.
    pub fn changes(
        before: Option<&Self>,
        after: Option<&Self>,
        by: Weigh,
        rows: usize,
        hash: impl Fn(&FlowKey) -> u64,
    ) -> Vec<Change> {
        let keys: HashSet<FlowKey> = before
            .into_iter()
            .chain(after)
            .flat_map(Self::keys)
            .collect();
        let nothing = Figure {
            value: 0,
            bound: exact(0, 0),
        };
        let change = |key: FlowKey| {
            let hash = hash(&key);
            let figure =
                |table: Option<&Self>| table.map_or(nothing, |table| table.figure(&key, hash, by));
            let (then, now) = (figure(before), figure(after));
            let kind = if then.bound.kind == BoundKind::Exact {
                now.bound.kind
            } else {
                then.bound.kind
            };
            let lower = difference(now.bound.lower, then.bound.upper);
            let upper = difference(now.bound.upper, then.bound.lower);
            Change {
                key,
                before: then.value,
                after: now.value,
                lower,
                upper,
                kind,
            }
        };
        let mut all: Vec<Change> = keys.into_iter().map(change).collect();
        all.sort_unstable_by(|a, b| {
            b.delta()
                .unsigned_abs()
                .cmp(&a.delta().unsigned_abs())
                .then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
        });
        all.truncate(rows);
        all
    }

    /// Returns the keys that the table holds.
    fn keys(&self) -> Vec<FlowKey> {
        match self {
            Self::Exact(table) => table.iter().map(|(key, _)| key).collect(),
            Self::Heavy(names) | Self::Cms(_, names) | Self::SharedCms(_, names) => {
                names.iter().map(|entry| entry.key).collect()
            }
            Self::SharedExact(table) => table.entries().into_iter().map(|(key, _)| key).collect(),
        }
    }

    /// Returns the estimate of a key's weight, for any key.
    fn figure(&self, key: &FlowKey, hash: u64, by: Weigh) -> Figure {
        match self {
            Self::Exact(table) => {
                let (value, missing) = match table.get(key, hash) {
                    Some(counts) => (counts, table.doubt()),
                    None => (Counts::default(), table.untracked()),
                };
                Figure {
                    value: value.by(by),
                    bound: exact(value.by(by), missing.by(by)),
                }
            }
            Self::Heavy(names) => {
                let (lower, upper) = names.bounds(key, hash);
                Figure {
                    value: lower,
                    bound: Bound {
                        kind: BoundKind::Deterministic,
                        lower,
                        upper,
                    },
                }
            }
            Self::Cms(cells, names) => match names.get(key, hash) {
                Some(entry) => cells.figure(&entry, hash),
                None => cells.bare_figure(hash, 0, u64::MAX),
            },
            Self::SharedExact(..) | Self::SharedCms(..) => {
                unreachable!("a shared table is settled before it is asked")
            }
        }
    }

    /// Describes the table in one line, and its memory in another.
    pub fn describe(&self) -> [String; 2] {
        match self {
            Self::Exact(table) => [
                format!("exact, {} of {} keys", table.len(), table.capacity()),
                table.obtained().to_string(),
            ],
            Self::Heavy(names) => [
                format!("heavy, room for {} keys", names.capacity()),
                names.obtained().to_string(),
            ],
            Self::Cms(cells, names) => [
                format!(
                    "Count-Min, epsilon {:.2e}; heavy, room for {} names",
                    cells.bound().epsilon,
                    names.capacity()
                ),
                format!("{}; {}", cells.obtained(), names.obtained()),
            ],
            Self::SharedExact(_) | Self::SharedCms(..) => {
                unreachable!("a shared table is settled before it is asked")
            }
        }
    }
}

impl Cells {
    /// Returns the estimate for a key that a heavy table names too, with the narrower of both bounds at either end.
    fn figure(&self, entry: &Entry<FlowKey>, hash: u64) -> Figure {
        self.bare_figure(hash, entry.lower, entry.upper)
    }

    fn bare_figure(&self, hash: u64, least: u64, most: u64) -> Figure {
        let (estimate, bound) = (self.estimate(hash), self.bound());
        // If cells are saturated, their values are not upper bounds.
        let above = if self.is_saturated() {
            most
        } else {
            estimate.min(most)
        };
        // A certain bound takes precedence over a probable one. If the two contradict each other, the improbable case has
        // occurred.
        let below = estimate.saturating_sub(bound.excess);
        let lower = if below > most {
            least
        } else {
            below.max(least)
        };
        let kind = BoundKind::Probabilistic {
            confidence: 1.0 - bound.delta,
        };
        let upper = above.max(lower);
        Figure {
            value: upper.min(estimate.max(lower)),
            bound: Bound { kind, lower, upper },
        }
    }
}

fn exact(value: u64, doubt: u64) -> Bound {
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
fn row(entry: &Entry<FlowKey>, figure: Figure, by: Weigh) -> Row {
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
    }
}

/// Returns the figure that does not rank.
fn other(by: Weigh) -> Weigh {
    match by {
        Weigh::Packets => Weigh::Bytes,
        Weigh::Bytes => Weigh::Packets,
    }
}

/// Returns a total less the figures of the rows.
fn rest(total: Counts, rows: &[Row]) -> Counts {
    rows.iter().fold(total, |rest, row| Counts {
        packets: rest.packets.saturating_sub(row.counts.packets),
        bytes: rest.bytes.saturating_sub(row.counts.bytes),
    })
}

/// Returns the number of keys that a table has counted, if all of them are in it.
fn known(names: &Heavy<FlowKey>) -> Option<u64> {
    names.count_of_keys().map(|keys| keys as u64)
}

/// Returns the number of keys outside the `listed` rows. The number of all keys is `counted`, else `estimated`; without both,
/// the keys in the table give a lower limit.
fn keys_outside(
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
            let mut table = Counter::new(&config, None).expect("enough memory");
            table.update(&items, &[]);
            table
        };
        let mut all = table(0..20);
        all.merge(&table(10..30), hash)
            .expect("tables of one configuration");
        for (by, unit) in [(Weigh::Packets, 1), (Weigh::Bytes, 100)] {
            let bound = |sport| {
                let bound = all.figure(&flow(sport), hash(&flow(sport)), by).bound;
                (bound.lower, bound.upper)
            };
            assert_eq!(bound(3), (unit, unit + 6 * unit), "in one table alone");
            assert_eq!(bound(12), (2 * unit, 2 * unit + 6 * unit), "in both");
            assert_eq!(bound(25), (0, 22 * unit), "in none");
        }
    }
}
