//! What is told: figures, each with its bound and the kind of the bound.

use crate::State;
use crate::tally::Arrivals;
use weir_packet::flow::FlowKey;
use weir_sketch::Counts;

/// Kind of a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BoundKind {
    /// There is no error.
    Exact,
    /// It always holds.
    Deterministic,
    /// It holds with at least this probability, over the choice of the hash functions.
    Probabilistic {
        /// For one figure.
        confidence: f64,
    },
    /// Nothing is known.
    None,
}

/// The true value lies in `lower..=upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Kind of the bound.
    pub kind: BoundKind,
    /// Not less than this.
    pub lower: u64,
    /// Not more than this.
    pub upper: u64,
}

/// One row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Whose row.
    pub key: FlowKey,
    /// Packets and bytes. The one that ranks lies within `bound`, the other one within `companion`.
    pub counts: Counts,
    /// Bound of the figure that ranks.
    pub bound: Bound,
    /// Bound of the figure that does not rank.
    pub companion: Bound,
}

/// The largest keys.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Largest first, by the figure that ranks.
    pub rows: Vec<Row>,
    /// Packets and bytes for which an exact table had no room: those of keys without a row, and, where several tables were
    /// merged, of keys with a row too, as far as their bounds say so.
    pub untracked: Counts,
    /// All that is outside the rows.
    pub missing: Missing,
}

/// The keys outside a list, and their traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing {
    /// The largest value that the figure that ranks can have for any key outside.
    pub at_most: u64,
    /// Kind of the bound `at_most`; with [`BoundKind::None`], `at_most` says nothing.
    pub kind: BoundKind,
    /// How many keys are outside.
    pub keys: Keys,
    /// Packets and bytes of the table that the figures of the rows leave over.
    pub counts: Counts,
}

impl Default for Missing {
    fn default() -> Self {
        let keys = Keys::About(Estimate::exact(0));
        Self { at_most: 0, kind: BoundKind::Exact, keys, counts: Counts::default() }
    }
}

/// How many keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// An estimate of their number.
    About(Estimate),
    /// A lower limit of their number.
    AtLeast(u64),
}

/// How many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: u64,
    /// Give or take; 0 if it is exact.
    pub plus_minus: u64,
    /// With this probability; 1 if it is exact.
    pub confidence: f64,
}

impl Estimate {
    /// A number that was counted.
    pub fn exact(value: u64) -> Self {
        Self { value, plus_minus: 0, confidence: 1.0 }
    }
}

/// A key whose figure changed from one window to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Whose figure.
    pub key: FlowKey,
    /// Estimate in the window before.
    pub before: u64,
    /// Estimate in this window.
    pub after: u64,
    /// The true change lies in `lower..=upper`; the kind is that of the figures.
    pub lower: i64,
    /// See `lower`.
    pub upper: i64,
    /// Kind of the bound.
    pub kind: BoundKind,
}

impl Change {
    /// Estimate of the change.
    pub fn delta(&self) -> i64 {
        difference(self.after, self.before)
    }
}

/// `a - b`, or the nearest number that there is.
pub(crate) fn difference(a: u64, b: u64) -> i64 {
    let exact = i128::from(a) - i128::from(b);
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
}

/// A window of time that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// From, to (exclusive), ns since 1970; `None`: all of time.
    pub span: Option<(i64, i64)>,
    /// The part of `span` that the sources cover: shorter in the first window and in the last one.
    pub covered: Option<(i64, i64)>,
    /// 0 for the first result of a window. A further result adds packets that came after the results before it.
    pub revision: u32,
    /// Windows before it that could not be given out; their packets are in the sum of all.
    pub left_out: u64,
    /// What arrived.
    pub arrivals: Arrivals,
    /// What is known of the packets that passed; `None` if none did.
    pub state: Option<&'a State>,
    /// Number of the change of keys that ended it early: what comes later is counted by other keys. With `span` `None` it is all that
    /// was counted by the keys before.
    pub change: Option<u64>,
    /// What is known of the window before it; `None` inside if that held no packet, outside if this one is the first.
    pub before: Option<Option<&'a State>>,
}

impl Window<'_> {
    /// The `rows` keys of table `i` whose figures changed most since the window before; `None` in the first window.
    pub fn changers(&self, i: usize, rows: usize) -> Option<Vec<Change>> {
        let before = self.before?;
        Some(crate::state::changers(before, self.state, i, rows))
    }
}
