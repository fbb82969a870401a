//! Steps of time: totals, and for each kind of key the largest rows with the rest.
//!
//! ```text
//! outside = 0                      largest figure that a key without a row may have
//! for each window:
//!   for each row of the window:    its row is added to; a new row begins with an upper bound of `outside`
//!   for each row not in the window: its upper bound grows by what the window allows a key without a row
//!   outside grows by the same
//! if there are too many rows:      the smallest go to the rest, and `outside` is at least their upper bounds
//! ```

use std::collections::HashMap;
use weir_measure::{
    Arrivals, Bound, BoundKind, Counts, KeyKind, Keyless, Sides, State, Tally, Weigh, Window,
    bits_per_second,
};
use weir_packet::flow::FlowKey;

/// Counts of a step, each counted where its packets were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that arrived, and the packets that were rejected or lost before they were measured.
    pub arrivals: Arrivals,
    /// Measured packets and bytes.
    pub measured: Counts,
    /// Measured packets without a flow key.
    pub keyless: Keyless,
    /// Undelivered windows before the windows of the step. Their packets are in no step.
    pub left_out: u64,
    /// Length of the time that the windows of the step cover, and the silent time between them, ns; at least a tenth of each window.
    pub covered_ns: u64,
}

impl Totals {
    pub(crate) fn of(window: &Window<'_>) -> Self {
        let tally = window
            .state
            .map_or_else(Tally::default, |state| *state.tally());
        Self {
            arrivals: window.arrivals,
            measured: Counts {
                packets: tally.passed,
                bytes: tally.bytes,
            },
            keyless: tally.keyless,
            left_out: window.left_out,
            // A further result covers no time that the first result does not.
            covered_ns: match window.revision {
                0 => match length(window.covered.or(window.span)) {
                    0 => 0,
                    part => part.max(length(window.span) / 10),
                },
                _ => 0,
            },
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.measured = plus(self.measured, other.measured);
        self.keyless.not_ip += other.keyless.not_ip;
        self.keyless.truncated += other.keyless.truncated;
        self.keyless.malformed += other.keyless.malformed;
        self.keyless.link_type += other.keyless.link_type;
        self.left_out += other.left_out;
        self.covered_ns = self.covered_ns.saturating_add(other.covered_ns);
    }
}

/// Length of a span, ns; 0 without a span.
pub(crate) fn length(span: Option<(i64, i64)>) -> u64 {
    span.map_or(0, |(from, to)| to.saturating_sub(from).max(0) as u64)
}

pub(crate) fn plus(a: Counts, b: Counts) -> Counts {
    Counts {
        packets: a.packets.saturating_add(b.packets),
        bytes: a.bytes.saturating_add(b.bytes),
    }
}

/// A row of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listed {
    /// Key of the row.
    pub key: FlowKey,
    /// Packets and bytes in the windows whose largest rows had the key.
    pub counts: Counts,
    /// Range of the figure that ranks.
    pub bound: Bound,
    /// Range of the other figure.
    pub companion: Bound,
    /// Figures of both directions, for keys of both.
    pub sides: Option<Sides>,
    /// Largest rate in a window, bits of frames without FCS per second.
    pub peak_bits_per_s: u64,
}

/// Keys without a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    /// Packets and bytes.
    pub counts: Counts,
    /// Largest possible value of the figure that ranks, for any key without a row.
    pub at_most: u64,
    /// Kind of the bound `at_most`; with [`BoundKind::None`], `at_most` says nothing.
    pub kind: BoundKind,
}

impl Rest {
    pub(crate) const NONE: Self = Self {
        counts: Counts {
            packets: 0,
            bytes: 0,
        },
        at_most: 0,
        kind: BoundKind::Exact,
    };

    /// Range of a figure of a key without a row.
    pub(crate) fn bound(&self, ranks: bool) -> Bound {
        let (kind, upper) = match (ranks, self.at_most) {
            (true, upper) => (self.kind, upper),
            (false, 0) => (self.kind, 0),
            (false, _) => (BoundKind::None, u64::MAX),
        };
        Bound {
            kind,
            lower: 0,
            upper,
        }
    }
}

/// Table of a kind of key in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTable {
    /// Kind of the keys.
    pub kind: KeyKind,
    /// Figure that ranks.
    pub by: Weigh,
    /// Rows, largest first.
    pub rows: Vec<Listed>,
    /// Keys without a row.
    pub rest: Rest,
    /// Packets and bytes of the whole table, added up apart from the rows and the rest. Keys that count a packet for both of its ends
    /// have each packet twice.
    pub whole: Counts,
    /// Length of the time in which the kind of key was counted, ns.
    pub covered_ns: u64,
}

impl StepTable {
    pub(crate) fn new(kind: KeyKind, by: Weigh) -> Self {
        Self {
            kind,
            by,
            rows: Vec::new(),
            rest: Rest::NONE,
            whole: Counts::default(),
            covered_ns: 0,
        }
    }

    /// The largest `rows` rows of table `i` of a window of this length.
    fn of(
        state: &State,
        i: usize,
        (kind, by): (KeyKind, Weigh),
        (rows, span_ns): (usize, u64),
    ) -> Self {
        let table = state.table(i, rows);
        let mut slice = Self::new(kind, by);
        for row in &table.rows {
            slice.rows.push(Listed {
                key: row.key,
                counts: row.counts,
                bound: row.bound,
                companion: row.companion,
                sides: row.sides,
                peak_bits_per_s: bits_per_s(row.counts.bytes, span_ns),
            });
            slice.whole = plus(slice.whole, row.counts);
        }
        slice.rest = Rest {
            counts: table.missing.counts,
            at_most: table.missing.at_most,
            kind: table.missing.kind,
        };
        slice.whole = plus(slice.whole, table.missing.counts);
        slice
    }

    /// Adds the table of another time.
    fn add(&mut self, other: &Self) {
        // The list of rows changes only at its end, so places stay.
        let places = self.rows.iter().enumerate();
        let mut places: HashMap<FlowKey, usize> =
            places.map(|(place, row)| (row.key, place)).collect();
        let (known, outside) = (self.rows.len(), self.rest);
        let mut is_listed = vec![false; known];
        for row in &other.rows {
            let place = *places.entry(row.key).or_insert(self.rows.len());
            match self.rows.get_mut(place) {
                Some(mine) => {
                    mine.add(row);
                    if let Some(listed) = is_listed.get_mut(place) {
                        *listed = true;
                    }
                }
                None => self.rows.push(Listed {
                    bound: row.bound.and(outside.bound(true)),
                    companion: row.companion.and(outside.bound(false)),
                    ..*row
                }),
            }
        }
        let absent = self.rows.iter_mut().zip(is_listed);
        for (row, _) in absent.filter(|(_, listed)| !listed) {
            row.bound = row.bound.and(other.rest.bound(true));
            row.companion = row.companion.and(other.rest.bound(false));
        }
        let outside = self.rest.bound(true).and(other.rest.bound(true));
        self.rest = Rest {
            counts: plus(self.rest.counts, other.rest.counts),
            at_most: outside.upper,
            kind: outside.kind,
        };
        self.whole = plus(self.whole, other.whole);
        self.covered_ns = self.covered_ns.saturating_add(other.covered_ns);
    }

    /// Moves all but the largest `most` rows to the rest, and sorts the rows.
    pub(crate) fn cut(&mut self, most: usize) {
        let by = self.by;
        self.rows.sort_unstable_by(|a, b| {
            let figures = b.counts.by(by).cmp(&a.counts.by(by));
            figures.then_with(|| ordered(&a.key).cmp(&ordered(&b.key)))
        });
        for row in self.rows.drain(most.min(self.rows.len())..) {
            self.rest.counts = plus(self.rest.counts, row.counts);
            if row.bound.upper > self.rest.at_most {
                self.rest.at_most = row.bound.upper;
            }
            self.rest.kind = weaker(self.rest.kind, row.bound.kind);
        }
    }
}

/// Fields of a key in an order.
fn ordered(key: &FlowKey) -> ([u8; 16], [u8; 16], [u16; 2], [u8; 3]) {
    let ports = [key.sport, key.dport];
    (key.src, key.dst, ports, [key.proto, key.family, key.flags])
}

/// Kind of a bound that takes the larger of two figures.
fn weaker(a: BoundKind, b: BoundKind) -> BoundKind {
    let zero = |kind| Bound {
        kind,
        lower: 0,
        upper: 0,
    };
    match (a, b) {
        // A figure without error is an upper bound for the keys with less.
        (BoundKind::Exact, BoundKind::Exact) => BoundKind::Deterministic,
        _ => zero(a).and(zero(b)).kind,
    }
}

impl Listed {
    fn add(&mut self, other: &Self) {
        self.counts = plus(self.counts, other.counts);
        self.bound = self.bound.and(other.bound);
        self.companion = self.companion.and(other.companion);
        if let (Some(mine), Some(theirs)) = (&mut self.sides, other.sides) {
            mine.tx = plus(mine.tx, theirs.tx);
            mine.rx = plus(mine.rx, theirs.rx);
        }
        self.peak_bits_per_s = self.peak_bits_per_s.max(other.peak_bits_per_s);
    }
}

/// Rate of bytes in a time, whole bit/s; 0 if the time has no length.
pub(crate) fn bits_per_s(bytes: u64, ns: u64) -> u64 {
    bits_per_second(bytes, ns).map_or(0, |rate| rate.round() as u64)
}

/// A step of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Begin of the first window and end of the last, ns since 1970.
    pub span: (i64, i64),
    /// Counts of all packets.
    pub totals: Totals,
    /// Tables, one for each kind of key that was counted.
    pub tables: Vec<StepTable>,
}

impl Step {
    pub(crate) fn empty(span: (i64, i64)) -> Self {
        Self {
            span,
            totals: Totals::default(),
            tables: Vec::new(),
        }
    }

    /// Takes the largest `rows` rows of each table of a window. A window without packets has empty tables of the kinds `known`.
    pub(crate) fn of(window: &Window<'_>, rows: usize, known: &[(KeyKind, Weigh)]) -> Self {
        let totals = Totals::of(window);
        let tables = known.iter().enumerate().map(|(i, &(kind, by))| {
            let table = match window.state {
                Some(state) => StepTable::of(state, i, (kind, by), (rows, length(window.span))),
                None => StepTable::new(kind, by),
            };
            StepTable {
                covered_ns: totals.covered_ns,
                ..table
            }
        });
        Self {
            span: window.span.unwrap_or_default(),
            totals,
            tables: tables.collect(),
        }
    }

    /// Adds a time without a packet.
    pub(crate) fn cover(&mut self, ns: i64) {
        let ns = ns.max(0).unsigned_abs();
        let tables = self.tables.iter_mut().map(|table| &mut table.covered_ns);
        for covered in tables.chain([&mut self.totals.covered_ns]) {
            *covered = covered.saturating_add(ns);
        }
    }

    /// Returns the table of a kind.
    pub fn table(&self, kind: KeyKind, by: Weigh) -> Option<&StepTable> {
        let mut tables = self.tables.iter();
        tables.find(|table| (table.kind, table.by) == (kind, by))
    }

    /// Adds another time: a window of the step. At most `kinds` tables stay, and of each at most twice `most` rows.
    pub(crate) fn add(&mut self, other: &Self, (most, kinds): (usize, usize)) {
        self.span = (self.span.0.min(other.span.0), self.span.1.max(other.span.1));
        self.totals.add(&other.totals);
        for table in &other.tables {
            let same = |mine: &StepTable| (mine.kind, mine.by) == (table.kind, table.by);
            let place = self.tables.iter().position(same);
            match place {
                Some(place) => self.tables[place].add(table),
                None if self.tables.len() < kinds => self.tables.push(table.clone()),
                None => {}
            }
        }
        for table in &mut self.tables {
            if table.rows.len() > 2 * most {
                table.cut(most);
            }
        }
    }
}
