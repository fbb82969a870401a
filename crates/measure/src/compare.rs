//! Comparison of two measurements, key by key.
//!
//! ```text
//! the keys of both tables are the candidates
//! a candidate's change is the difference of its figures, each divided by the length of its side
//! the largest changes are rows; of the others, their number and the largest possible change are kept
//! packets and bytes of the rows are read in a second pass over the tables
//! ```

use crate::answer::{Bound, BoundKind, Status};
use crate::counter::Counter;
use crate::names::Names;
use crate::spread::Spread;
use crate::{KeyKind, State};
use std::collections::HashMap;
use weir_packet::flow::FlowKey;
use weir_sketch::Counts;
use zerocopy::IntoBytes;

/// Unit in which figures of two measurements are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The figures themselves.
    Counts,
    /// Figures per second of the length of each measurement.
    PerSecond {
        /// Length of the first measurement, ns; not 0.
        before_ns: u64,
        /// Length of the second measurement, ns; not 0.
        after_ns: u64,
    },
}

impl Scale {
    /// Returns the comparison per second, or of counts if a length is not known.
    pub fn of(before_ns: Option<u64>, after_ns: Option<u64>) -> Self {
        match (before_ns, after_ns) {
            (Some(before_ns @ 1..), Some(after_ns @ 1..)) => Self::PerSecond {
                before_ns,
                after_ns,
            },
            _ => Self::Counts,
        }
    }

    /// Returns a figure of the first measurement in this unit.
    pub fn before(self, figure: u64) -> f64 {
        match self {
            Self::Counts => figure as f64,
            Self::PerSecond { before_ns, .. } => figure as f64 * 1e9 / before_ns as f64,
        }
    }

    /// Returns a figure of the second measurement in this unit.
    pub fn after(self, figure: u64) -> f64 {
        match self {
            Self::Counts => figure as f64,
            Self::PerSecond { after_ns, .. } => figure as f64 * 1e9 / after_ns as f64,
        }
    }

    /// Returns whole numbers in the same proportion as two figures in this unit, for comparisons without rounding.
    fn whole(self, before: u64, after: u64) -> (u128, u128) {
        let (times, other) = match self {
            Self::Counts => (1, 1),
            Self::PerSecond {
                before_ns,
                after_ns,
            } => (after_ns, before_ns),
        };
        let of = |figure, times| u128::from(figure) * u128::from(times);
        (of(before, times), of(after, other))
    }
}

/// Figure of a key in one of two measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Half {
    /// Figure that ranks.
    pub figure: u64,
    /// Bound of this figure.
    pub bound: Bound,
    /// Packets and bytes; the figure that does not rank is a lower limit unless the bound is exact. Zero in tables of distinct
    /// elements.
    pub counts: Counts,
}

/// Figures of a key in two measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// Key of the figures.
    pub key: FlowKey,
    /// Figure in the first measurement.
    pub before: Half,
    /// Figure in the second measurement.
    pub after: Half,
}

impl Half {
    fn add(&mut self, other: &Self) {
        self.figure = self.figure.saturating_add(other.figure);
        self.bound = self.bound.and(other.bound);
    }
}

impl Contrast {
    /// Adds the figures of another key, but not its packets and bytes.
    fn add(&mut self, other: &Self) {
        self.before.add(&other.before);
        self.after.add(&other.after);
    }

    /// Returns the change of the figure.
    pub fn change(&self, scale: Scale) -> f64 {
        scale.after(self.after.figure) - scale.before(self.before.figure)
    }

    /// Returns the range of the true change.
    pub fn range(&self, scale: Scale) -> (f64, f64) {
        let (then, now) = (&self.before.bound, &self.after.bound);
        (
            scale.after(now.lower) - scale.before(then.upper),
            scale.after(now.upper) - scale.before(then.lower),
        )
    }

    /// Returns the kind of the range.
    pub fn kind(&self) -> BoundKind {
        self.before.bound.kind.and(self.after.bound.kind)
    }

    /// Returns whether both figures are the true values.
    pub fn is_exact(&self) -> bool {
        let is_exact = |half: &Half| match half.bound.kind {
            BoundKind::Exact => true,
            BoundKind::Deterministic => half.bound.lower == half.bound.upper,
            BoundKind::Probabilistic { .. } | BoundKind::None => false,
        };
        is_exact(&self.before) && is_exact(&self.after)
    }

    /// Returns the kind of the change of the figures.
    pub fn status(&self, scale: Scale) -> Status {
        let (before, after) = scale.whole(self.before.figure, self.after.figure);
        Status::of(before, after)
    }

    /// Returns whether the true values have the same [`status`](Self::status), as far as their bounds hold.
    pub fn is_sure(&self, scale: Scale) -> bool {
        let (then, now) = (&self.before.bound, &self.after.bound);
        if self.kind() == BoundKind::None {
            return false;
        }
        match self.status(scale) {
            Status::New => then.upper == 0 && now.lower > 0,
            Status::Gone => now.upper == 0 && then.lower > 0,
            Status::Grown => {
                let (before, after) = scale.whole(then.upper, now.lower);
                before < after
            }
            Status::Shrunk => {
                let (before, after) = scale.whole(then.lower, now.upper);
                before > after
            }
        }
    }

    /// Returns the amount of the change, for the order of the rows.
    fn amount(&self, scale: Scale) -> u128 {
        let (before, after) = scale.whole(self.before.figure, self.after.figure);
        before.abs_diff(after)
    }
}

/// Largest changes of a table, and what is outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Rows, the largest change first; equal ones in the order of their keys' bytes.
    pub rows: Vec<Contrast>,
    /// Number of further keys whose figures differ, as far as the tables have them.
    pub others: u64,
    /// Largest possible change of a key without a row, in the unit of the comparison.
    pub at_most: f64,
    /// Kind of this bound; with [`BoundKind::None`], `at_most` says nothing.
    pub kind: BoundKind,
}

/// Rows that a comparison lists.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Most rows.
    pub rows: usize,
    /// Least amount of the change of a row, in the unit of the comparison.
    pub least: f64,
    /// Unit.
    pub scale: Scale,
}

/// Compares table `i` of two measurements with one configuration; `None` stands for a measurement without packets. Keys with the
/// same figure in both are left out. A table of [names](KeyKind::Name) is compared by `names`, which holds for both.
///
/// **Cost**: memory for all keys of both tables, time for a few look-ups of each.
pub fn compare(
    before: Option<&State>,
    after: Option<&State>,
    i: usize,
    listed: Listed,
    names: Option<&Names>,
) -> Comparison {
    let mut ranking = Ranking::new(listed);
    let Some(any) = after.or(before) else {
        return ranking.end();
    };
    if any.is_spread() {
        let [then, now] = [before, after].map(|state| state.map(|state| state.spread_of(i)));
        let (absent, kind) = Spread::contrasts(then, now, &mut |contrast| ranking.add(contrast));
        ranking.absent(absent, kind);
        return ranking.end();
    }
    let (kind, by) = (any.counter_of(i).0, any.weigh());
    let hash = |key: &FlowKey| any.hash_of(key);
    let sides = Some(kind).filter(|kind| kind.has_sides());
    let [then, now] = [before, after].map(|state| state.map(|state| state.counter_of(i).1));
    let names = names.filter(|_| kind == KeyKind::Name);
    let mut keys = Counter::all_keys(then, now, sides, &hash);
    keys.extend(names.into_iter().flat_map(Names::hosts));
    let mut named: HashMap<FlowKey, Contrast> = HashMap::new();
    for key in keys {
        let [before, after] = [then, now].map(|table| {
            let (figure, bound) = Counter::whole_figure(table, &key, sides, by, &hash);
            Half {
                figure,
                bound,
                counts: Counts::default(),
            }
        });
        match names.and_then(|names| names.label(&key)) {
            None => ranking.add(Contrast { key, before, after }),
            Some(key) => {
                let of_host = Contrast { key, before, after };
                let sum = named.entry(key);
                sum.and_modify(|sum| sum.add(&of_host)).or_insert(of_host);
            }
        }
    }
    named.into_values().for_each(|sum| ranking.add(sum));
    let ends = if sides.is_some() { 2 } else { 1 };
    let most = |table: Option<&Counter>| {
        table.map_or((0, BoundKind::Exact), |table| table.outside(by, &hash))
    };
    let ((then_most, kind_then), (now_most, kind_now)) = (most(then), most(now));
    let absent = [then_most, now_most].map(|most: u64| most.saturating_mul(ends));
    ranking.absent(absent, kind_then.and(kind_now));
    let mut found = ranking.end();
    let rows = &mut found.rows;
    let row_of = |key: &FlowKey| {
        let whole = match kind.has_sides() {
            true => kind.whole(key).0,
            false => *key,
        };
        names.and_then(|names| names.label(&whole)).unwrap_or(whole)
    };
    fill(rows, then, (by, &hash, &row_of), |row| {
        &mut row.before.counts
    });
    fill(rows, now, (by, &hash, &row_of), |row| &mut row.after.counts);
    found
}

/// Weight of packets in the tables, hash function of keys, and the key of the row of a key.
type Reading<'a> = (
    weir_sketch::Weigh,
    &'a dyn Fn(&FlowKey) -> u64,
    &'a dyn Fn(&FlowKey) -> FlowKey,
);

/// Sets the packets and bytes of the rows on one side, from a table.
fn fill(
    rows: &mut [Contrast],
    table: Option<&Counter>,
    (by, hash, row_of): Reading<'_>,
    counts: impl Fn(&mut Contrast) -> &mut Counts,
) {
    let Some(table) = table else { return };
    let places: HashMap<FlowKey, usize> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| (row.key, i))
        .collect();
    table.each_row(by, hash, &mut |row| {
        if let Some(&i) = places.get(&row_of(&row.key)) {
            let sum = counts(&mut rows[i]);
            sum.packets = sum.packets.saturating_add(row.counts.packets);
            sum.bytes = sum.bytes.saturating_add(row.counts.bytes);
        }
    });
}

/// Largest changes so far.
struct Ranking {
    listed: Listed,
    rows: Vec<Contrast>,
    others: u64,
    at_most: f64,
    kind: BoundKind,
}

impl Ranking {
    fn new(listed: Listed) -> Self {
        Self {
            listed,
            rows: Vec::new(),
            others: 0,
            at_most: 0.0,
            kind: BoundKind::Exact,
        }
    }

    /// Adds a key. The list is cut back once it has twice the rows, so that it stays short.
    fn add(&mut self, contrast: Contrast) {
        let scale = self.listed.scale;
        if contrast.change(scale).abs() < self.listed.least || contrast.amount(scale) == 0 {
            self.leave_out(&contrast);
            return;
        }
        self.rows.push(contrast);
        if self.rows.len() >= self.listed.rows.saturating_mul(2).saturating_add(64) {
            self.cut();
        }
    }

    fn leave_out(&mut self, contrast: &Contrast) {
        let (lower, upper) = contrast.range(self.listed.scale);
        self.at_most = self.at_most.max(lower.abs()).max(upper.abs());
        self.others += u64::from(contrast.amount(self.listed.scale) > 0);
        self.weaken(match contrast.is_exact() {
            true => BoundKind::Exact,
            false => contrast.kind(),
        });
    }

    /// Sorts the rows, and leaves out the smallest changes if there are too many.
    fn cut(&mut self) {
        let scale = self.listed.scale;
        self.rows.sort_unstable_by(|a, b| {
            let order = b.amount(scale).cmp(&a.amount(scale));
            order.then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
        });
        let most = self.listed.rows.min(self.rows.len());
        for contrast in self.rows.split_off(most) {
            self.leave_out(&contrast);
        }
    }

    /// Notes the largest possible figures of keys outside the tables.
    fn absent(&mut self, [before, after]: [u64; 2], kind: BoundKind) {
        let scale = self.listed.scale;
        let most = scale.before(before).max(scale.after(after));
        self.at_most = self.at_most.max(most);
        if most > 0.0 || kind == BoundKind::None {
            self.weaken(kind);
        }
    }

    /// Notes the kind of one more bound. The largest change has one of these bounds, so that probabilities do not add up.
    fn weaken(&mut self, kind: BoundKind) {
        use BoundKind::{Deterministic, Exact, None, Probabilistic};
        self.kind = match (self.kind, kind) {
            (None, _) | (_, None) => None,
            (known @ Probabilistic { .. }, _) | (_, known @ Probabilistic { .. }) => known,
            (Exact, Exact) => Exact,
            _ => Deterministic,
        };
    }

    fn end(mut self) -> Comparison {
        self.cut();
        Comparison {
            rows: self.rows,
            others: self.others,
            at_most: self.at_most,
            kind: self.kind,
        }
    }
}
