//! Tables of keys with two sides: both are counted apart, and answers add them up.
//!
//! ```text
//! take the M largest sides; their keys are the candidates
//! add up all sides of the candidates
//! no other key has more than twice the largest side outside, so that the list is right
//!   if its last row has as much; else try again with a larger M
//! ```
//!
//! Tables of names hold hosts. All hosts with a name are candidates too, and the rows of the hosts of a name are added up: a name has no
//! hosts outside.

use super::{Answers, Counter, Hash};
use crate::KeyKind;
use crate::answer::{Bound, BoundKind, Change, Estimate, Keys, Missing, Row, Sides, Table};
use crate::names::Names;
use std::collections::{HashMap, HashSet};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, Times, Weigh};
use zerocopy::IntoBytes;

/// Most sides whose keys are candidates. With too few candidates the order is uncertain, within [`Missing::at_most`].
const MOST: usize = 1 << 16;

impl Counter {
    /// Returns the largest `rows` keys of a kind with sides, added up by `names` if there are any.
    ///
    /// **Cost**: reads all keys, nearly always once; allocates room for at most [`MOST`] sides.
    pub fn folded(
        &self,
        (kind, names): (KeyKind, Option<&Names>),
        by: Weigh,
        rows: usize,
        hash: impl Fn(&FlowKey) -> u64,
    ) -> Table {
        let mut candidates = rows.saturating_mul(8).clamp(256, MOST);
        loop {
            let folding = Folding {
                table: self.settled(),
                kind,
                names,
                by,
                hash: &hash,
            };
            let (table, outside) = folding.table(rows, candidates);
            let last = table.rows.last().filter(|_| table.rows.len() == rows);
            // Of rows that are too close to each other to tell which is larger, more candidates change nothing.
            let is_right = last.is_some_and(|row| row.bound.lower >= outside);
            if is_right || outside == 0 || candidates >= MOST {
                return table;
            }
            candidates = candidates.saturating_mul(8).min(MOST);
        }
    }
}

struct Folding<'a> {
    table: &'a dyn Answers,
    kind: KeyKind,
    names: Option<&'a Names>,
    by: Weigh,
    hash: Hash<'a>,
}

/// Both sides of a key, as far as the table has them: the sending side first.
type Both = [Option<Row>; 2];

/// No place among the rows of sides.
const NO_PLACE: u32 = u32::MAX;

impl Folding<'_> {
    /// Returns the table of the largest candidates, and the largest possible figure of a key that is none; 0 if more candidates would
    /// give no other table.
    fn table(&self, rows: usize, candidates: usize) -> (Table, u64) {
        let listed = self.table.table(self.by, candidates, None, self.hash);
        let outside = listed.missing.at_most.saturating_mul(2);
        let sides = listed.rows.iter();
        // Places of both sides of each candidate in `found`, which take less memory than the rows.
        let mut keys: HashMap<FlowKey, [u32; 2]> = sides
            .map(|row| self.kind.whole(&row.key).0)
            .chain(self.names.into_iter().flat_map(Names::hosts))
            .map(|whole| (whole, [NO_PLACE; 2]))
            .collect();
        let mut found: Vec<Row> = Vec::new();
        // Keys without a name, and names.
        let (mut count, mut named) = (0, HashSet::new());
        self.table.each(self.by, self.hash, &mut |row| {
            let (whole, receives) = self.kind.whole(&row.key);
            // A key is counted with its sending side, if the table has it.
            match self.label(&whole) {
                Some(name) => drop(named.insert(name)),
                None => {
                    count += u64::from(!receives || !self.table.has(&whole, (self.hash)(&whole)));
                }
            }
            if let Some(both) = keys.get_mut(&whole) {
                both[usize::from(receives)] = found.len() as u32;
                found.push(row);
            }
        });
        let rows_of_keys = keys.into_iter().map(|(key, places)| {
            let both = places.map(|place| found.get(place as usize).copied());
            self.sum(key, both)
        });
        let mut all: Vec<Row> = match self.names {
            None => rows_of_keys.collect(),
            Some(_) => self.by_name(rows_of_keys),
        };
        all.sort_unstable_by(|a, b| {
            let figures = b.counts.by(self.by).cmp(&a.counts.by(self.by));
            figures.then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
        });
        // Hosts with a name may have sent nothing.
        let seen = all.partition_point(|row| row.counts.by(self.by) > 0);
        let others = all.split_off(rows.min(seen));
        let at_most = others
            .iter()
            .map(|row| row.bound.upper)
            .fold(outside, u64::max);
        let sides = listed.rows.iter().map(|row| row.counts);
        let whole = sides.fold(listed.missing.counts, plus);
        let counts = all.iter().fold(whole, |rest, row| Counts {
            packets: rest.packets.saturating_sub(row.counts.packets),
            bytes: rest.bytes.saturating_sub(row.counts.bytes),
        });
        let keys = (count + named.len() as u64).saturating_sub(all.len() as u64);
        let is_all = listed.rows.len() < candidates || at_most == 0;
        let others = if is_all { 0 } else { outside };
        let table = Table {
            rows: all,
            missing: Missing {
                at_most,
                kind: listed.missing.kind,
                keys: match self.table.has_all() {
                    true => Keys::About(Estimate::exact(keys)),
                    false => Keys::AtLeast(keys),
                },
                counts,
            },
            late: self.table.late(),
            ..listed
        };
        (table, others)
    }

    /// Key of the name of a host, if names are added up.
    fn label(&self, whole: &FlowKey) -> Option<FlowKey> {
        self.names?.label(whole)
    }

    /// Adds up the rows of hosts with the same name.
    fn by_name(&self, hosts: impl Iterator<Item = Row>) -> Vec<Row> {
        let mut rows: HashMap<FlowKey, Row> = HashMap::new();
        let mut unnamed = Vec::new();
        for host in hosts {
            let Some(key) = self.label(&host.key) else {
                unnamed.push(host);
                continue;
            };
            let sum = rows.entry(key).or_insert(nothing(key));
            add(sum, &host);
            if let (Some(sum), Some(host)) = (&mut sum.sides, host.sides) {
                sum.tx = plus(sum.tx, host.tx);
                sum.rx = plus(sum.rx, host.rx);
            }
        }
        unnamed.extend(rows.into_values());
        unnamed
    }

    /// Returns the row of a key.
    fn sum(&self, key: FlowKey, both: Both) -> Row {
        let receiving = self.kind.receiving(&key);
        let ends = [key, receiving];
        // A conversation of an end with itself has one side.
        let is_one = key == receiving;
        let [tx, rx] = both.map(|row| row.map_or(Counts::default(), |row| row.counts));
        let mut sum = Row {
            counts: plus(tx, rx),
            sides: Some(Sides { tx, rx }),
            ..nothing(key)
        };
        for (end, row) in ends.iter().zip(both).take(if is_one { 1 } else { 2 }) {
            let hash = (self.hash)(end);
            let times = self.table.times(end, hash);
            sum.times = sum.times.zip(times).map(|(sum, of_end)| sum.and(of_end));
            let (bound, companion) = match row {
                Some(row) => (row.bound, row.companion),
                None => {
                    let figure = self.table.figure(end, hash, self.by);
                    let bound = Bound {
                        lower: 0,
                        ..figure.bound
                    };
                    (bound, self.table.absent(end, hash, self.by))
                }
            };
            sum.bound = sum.bound.and(bound);
            sum.companion = sum.companion.and(companion);
        }
        sum
    }
}

/// A row without packets, to which others are added.
pub(super) fn nothing(key: FlowKey) -> Row {
    Row {
        key,
        counts: Counts::default(),
        bound: NOTHING,
        companion: NOTHING,
        sides: Some(Sides::default()),
        times: Some(Times::NONE),
    }
}

/// Adds the figures of another row, but for its sides.
pub(super) fn add(sum: &mut Row, other: &Row) {
    sum.times = sum.times.zip(other.times).map(|(a, b)| a.and(b));
    sum.counts = plus(sum.counts, other.counts);
    sum.bound = sum.bound.and(other.bound);
    sum.companion = sum.companion.and(other.companion);
}

/// Adds up the changes of hosts with the same name.
pub(super) fn changes_of_names(hosts: impl Iterator<Item = Change>, names: &Names) -> Vec<Change> {
    let mut changes: HashMap<FlowKey, Change> = HashMap::new();
    for host in hosts {
        let key = names.label(&host.key).unwrap_or(host.key);
        match changes.get_mut(&key) {
            None => drop(changes.insert(key, Change { key, ..host })),
            Some(sum) => {
                sum.before = sum.before.saturating_add(host.before);
                sum.after = sum.after.saturating_add(host.after);
                sum.lower = sum.lower.saturating_add(host.lower);
                sum.upper = sum.upper.saturating_add(host.upper);
                if sum.kind == BoundKind::Exact || host.kind == BoundKind::None {
                    sum.kind = host.kind;
                }
            }
        }
    }
    changes.into_values().collect()
}

pub(super) const NOTHING: Bound = Bound {
    kind: BoundKind::Exact,
    lower: 0,
    upper: 0,
};

pub(super) fn plus(a: Counts, b: Counts) -> Counts {
    Counts {
        packets: a.packets.saturating_add(b.packets),
        bytes: a.bytes.saturating_add(b.bytes),
    }
}
