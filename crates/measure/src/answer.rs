//! Answers: figures, each with its bound and the kind of the bound.

use crate::State;
use crate::health;
use crate::names::Names;
use crate::tally::Arrivals;
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, Times};
use zerocopy::IntoBytes;

/// Kind of a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BoundKind {
    /// The figure has no error.
    Exact,
    /// The bound always holds.
    Deterministic,
    /// The bound holds with at least a given probability, over the choice of the hash functions.
    Probabilistic {
        /// Probability that the bound of one figure holds.
        confidence: f64,
    },
    /// Nothing is known about the error.
    None,
}

impl BoundKind {
    /// Returns the kind of a bound that follows from two bounds.
    pub fn and(self, other: Self) -> Self {
        use BoundKind::{Deterministic, Exact, None, Probabilistic};
        match (self, other) {
            (None, _) | (_, None) => None,
            // Both hold at once with at least this probability.
            (Probabilistic { confidence: a }, Probabilistic { confidence: b }) => Probabilistic {
                confidence: (a + b - 1.0).max(0.0),
            },
            (probable @ Probabilistic { .. }, _) | (_, probable @ Probabilistic { .. }) => probable,
            (Exact, Exact) => Exact,
            _ => Deterministic,
        }
    }
}

/// Range of a figure: the true value lies in `lower..=upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Kind of the bound.
    pub kind: BoundKind,
    /// Least possible value.
    pub lower: u64,
    /// Largest possible value.
    pub upper: u64,
}

impl Bound {
    /// Returns the bound of the sum of two figures.
    pub fn and(self, other: Self) -> Self {
        Self {
            kind: self.kind.and(other.kind),
            lower: self.lower.saturating_add(other.lower),
            upper: self.upper.saturating_add(other.upper),
        }
    }
}

/// Figures of both directions of a row, whose sums are the figures of the row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sides {
    /// Packets and bytes that the end sent, or that the first end sent to the other.
    pub tx: Counts,
    /// Packets and bytes that it received.
    pub rx: Counts,
}

/// One row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Key of the row.
    pub key: FlowKey,
    /// Packets and bytes. The figure that ranks lies within `bound`, the other figure within `companion`.
    pub counts: Counts,
    /// Bound of the figure that ranks.
    pub bound: Bound,
    /// Bound of the figure that does not rank.
    pub companion: Bound,
    /// Figures of both directions; `None` for directional keys.
    pub sides: Option<Sides>,
    /// Times of the packets; `None` if the settings do not ask for them, or if the table may lack packets of the key. The peak is of one
    /// direction.
    pub times: Option<Times>,
}

/// Largest keys of a window, with the rest of the traffic.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Rows, largest first by the figure that ranks.
    pub rows: Vec<Row>,
    /// Packets and bytes for which an exact table had no room. The packets belong to keys without a row. If several tables were
    /// merged, packets of keys with a row can be among them, as far as the bounds of these rows allow.
    pub untracked: Counts,
    /// Packets and bytes that keys of a simple table had when other keys took their slots. They are in no row, and the keys of
    /// rows may have had some of them. While this is zero, the figures of such a table are exact.
    pub evicted: Counts,
    /// Packets and bytes of IPv6 that a reversible sketch left out, because the addresses are too long. They are in no row.
    pub ipv6: Counts,
    /// Entries of a set-per-entry sketch whose sets were too small for the values of their flows. If there is any, flows may be
    /// missing in the rows although their figures are large.
    pub overflowed: u64,
    /// Packets in no peak: their key already had packets of a later millisecond. Keys that count each packet for both ends count
    /// it twice here.
    pub late: u64,
    /// Keys and traffic outside the rows.
    pub missing: Missing,
}

/// Keys outside a list of rows, and their traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing {
    /// Largest possible value of the ranking figure, for any key outside.
    pub at_most: u64,
    /// Kind of the bound `at_most`; with [`BoundKind::None`], `at_most` says nothing.
    pub kind: BoundKind,
    /// Number of keys outside.
    pub keys: Keys,
    /// Packets and bytes of the table, less the figures of the rows.
    pub counts: Counts,
}

impl Default for Missing {
    fn default() -> Self {
        let keys = Keys::About(Estimate::exact(0));
        Self {
            at_most: 0,
            kind: BoundKind::Exact,
            keys,
            counts: Counts::default(),
        }
    }
}

/// Number of keys, estimated or limited from below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// An estimate of their number.
    About(Estimate),
    /// A lower limit of their number.
    AtLeast(u64),
}

/// A key with its number of distinct elements: peers, ports or contacts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spreader {
    /// Key of the row.
    pub key: FlowKey,
    /// Estimated number of elements.
    pub elements: u64,
    /// Bound of the number.
    pub bound: Bound,
    /// Estimated number of elements that sent nothing back; `None` if no element of any key did. Then the packets probably have
    /// one direction only.
    pub unanswered: Option<u64>,
    /// Estimated number of elements that sent back only refusals: TCP resets and ICMP messages of unreachable destinations. `None` as in
    /// `unanswered`.
    pub refused: Option<u64>,
}

/// Keys of a window with the most distinct elements.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadTable {
    /// Rows, largest first.
    pub rows: Vec<Spreader>,
    /// Largest possible number of elements, for any key outside the rows.
    pub at_most: u64,
    /// Kind of the bounds; with [`BoundKind::None`], the numbers are too low.
    pub kind: BoundKind,
    /// Number of keys outside the rows.
    pub keys: Keys,
    /// Estimated number of elements of these keys, summed up.
    pub elements: u64,
    /// Sample that the numbers come from.
    pub sample: Sample,
}

/// Sample of pairs of a key and an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Share of all pairs that is in the sample; 1 if all are.
    pub share: f64,
    /// Whether all pairs are in the sample, so that all numbers are exact.
    pub is_exact: bool,
    /// Whether there are so many pairs that numbers are too low.
    pub is_saturated: bool,
    /// Memory that would hold nearly all pairs, in bytes.
    pub memory_for_most: u64,
}

impl Default for SpreadTable {
    /// The table of a window without packets.
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            at_most: 0,
            kind: BoundKind::Exact,
            keys: Keys::About(Estimate::exact(0)),
            elements: 0,
            sample: Sample {
                share: 1.0,
                is_exact: true,
                is_saturated: false,
                memory_for_most: 0,
            },
        }
    }
}

/// Estimate of a number, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Estimated number.
    pub value: u64,
    /// Half width of the range around `value`; 0 if the number is exact.
    pub plus_minus: u64,
    /// Probability that the true number is within the range; 1 if the number is exact.
    pub confidence: f64,
}

impl Estimate {
    /// Creates an estimate without error, for a number that was counted.
    pub fn exact(value: u64) -> Self {
        Self {
            value,
            plus_minus: 0,
            confidence: 1.0,
        }
    }
}

/// A key whose figure changed from one window to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Key of the figure.
    pub key: FlowKey,
    /// Estimate in the window before.
    pub before: u64,
    /// Estimate in this window.
    pub after: u64,
    /// Lower end of the range of the true change, `lower..=upper`.
    pub lower: i64,
    /// Upper end of the range of the true change.
    pub upper: i64,
    /// Kind of the bound, taken from the bounds of the figures.
    pub kind: BoundKind,
}

impl Change {
    /// Returns the change of a key: its figure and the bound of it, before and after.
    pub fn between(key: FlowKey, before: (u64, Bound), after: (u64, Bound)) -> Self {
        let kind = match before.1.kind {
            BoundKind::Exact => after.1.kind,
            kind => kind,
        };
        Self {
            key,
            before: before.0,
            after: after.0,
            lower: difference(after.1.lower, before.1.upper),
            upper: difference(after.1.upper, before.1.lower),
            kind,
        }
    }

    /// Returns the kind of the change.
    pub fn status(&self) -> Status {
        Status::of(self.before, self.after)
    }

    /// Returns the estimate of the change.
    pub fn delta(&self) -> i64 {
        difference(self.after, self.before)
    }
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing before.
    New,
    /// Nothing after.
    Gone,
    /// More after than before.
    Grown,
    /// Less after than before.
    Shrunk,
}

impl Status {
    /// Returns the kind of the change from one figure to another one.
    pub fn of<T: Default + PartialOrd>(before: T, after: T) -> Self {
        match (before == T::default(), after == T::default()) {
            (true, _) => Self::New,
            (_, true) => Self::Gone,
            _ if before < after => Self::Grown,
            _ => Self::Shrunk,
        }
    }

    /// Returns the kind as a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Grown => "grown",
            Self::Shrunk => "shrunk",
        }
    }
}

/// Returns the `rows` largest changes, by their amount, equal ones in the order of their keys' bytes. Keys with the same figure
/// in both windows are left out.
pub fn largest_changes(mut all: Vec<Change>, rows: usize) -> Vec<Change> {
    all.retain(|change| change.delta() != 0);
    all.sort_unstable_by(|a, b| {
        b.delta()
            .unsigned_abs()
            .cmp(&a.delta().unsigned_abs())
            .then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
    });
    all.truncate(rows);
    all
}

/// Returns `a - b`, or the nearest `i64` if the difference does not fit.
pub(crate) fn difference(a: u64, b: u64) -> i64 {
    let exact = i128::from(a) - i128::from(b);
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
}

/// A window of time that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Start and end (exclusive), in ns since 1970; `None`: all of time.
    pub span: Option<(i64, i64)>,
    /// Part of `span` that the sources cover; the first and the last window can be covered in part only.
    pub covered: Option<(i64, i64)>,
    /// Number of the result, 0 for the first result of a window. A further result adds packets that arrived after the earlier
    /// results.
    pub revision: u32,
    /// Number of windows before this window that could not be delivered; their packets are in the sum of all windows.
    pub left_out: u64,
    /// Packets that arrived in the window.
    pub arrivals: Arrivals,
    /// Counters of the packets that passed; `None` if no packet passed.
    pub state: Option<&'a State>,
    /// Number of the change of keys that ended the window early; later packets are counted by other keys. If `span` is `None`,
    /// the window holds all packets counted by the former keys.
    pub change: Option<u64>,
    /// Counters of the window before. The outer `None` means that nothing can be compared: this window is the first, or the sources
    /// cover only a part of one of the two. The inner `None` means that the window before held no packet.
    pub before: Option<Option<&'a State>>,
    /// Health of the packets of the window, if the settings ask for it; `None` in further results of a window.
    pub health: Option<&'a health::Report>,
    /// Names of addresses that were seen by the end of the window, if the settings ask for them.
    pub names: Option<&'a Names>,
}

impl Window<'_> {
    /// Returns the `rows` keys of table `i` whose figures changed most since the window before; `None` in the first window, and if
    /// the sources cover only a part of this window or of the one before.
    pub fn changers(&self, i: usize, rows: usize) -> Option<Vec<Change>> {
        let before = self.before?;
        Some(crate::state::changers(
            before, self.state, i, rows, self.names,
        ))
    }
}
