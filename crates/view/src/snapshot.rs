//! Snapshots: what front ends show.

use crate::findings::Finding;
use crate::seen::{Seen, Sightings};
use crate::step::{Listed, Rest, Step, StepTable, Totals};
use crate::tier::Span;
use std::collections::HashMap;
use weir_measure::{Change, Counts, KeyKind, Weigh, health, largest_changes};
use weir_packet::flow::FlowKey;

/// A question to a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Length of the step.
    pub span: Span,
    /// Time in the step, ns since 1970; `None`: the step of the last window.
    pub at: Option<i64>,
    /// Most rows of each table.
    pub rows: usize,
    /// Most changes of each table.
    pub changes: usize,
    /// Most points of the graph: the step and the steps before it.
    pub points: usize,
    /// Most points of the history of each row. **Cost**: a step is unpacked for each.
    pub history: usize,
}

impl Default for Ask {
    /// The last second, with 20 rows and changes of each table and a graph of a minute, and rows without a history.
    fn default() -> Self {
        Self {
            span: Span::Second,
            at: None,
            rows: 20,
            changes: 20,
            points: 60,
            history: 0,
        }
    }
}

/// A step with its tables, graph and health, for a front end to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Length of the step.
    pub span: Span,
    /// Begin of the first window of the step, ns since 1970.
    pub from_ns: i64,
    /// End of its last window.
    pub to_ns: i64,
    /// Whether it is the step of the last window, to which more may come.
    pub is_last: bool,
    /// Begins of the steps before and after it, if they are kept, ns since 1970.
    pub neighbours: [Option<i64>; 2],
    /// Number of times that the clock went back to before the steps that were kept.
    pub restarts: u64,
    /// Windows that the view took so far.
    pub windows: u64,
    /// Packets and bytes without a time, which are in no step.
    pub untimed: Counts,
    /// Counts of the step.
    pub totals: Totals,
    /// Tables, one for each kind of key.
    pub tables: Vec<Table>,
    /// Points of the graph, ascending, up to the step.
    pub points: Vec<Point>,
    /// Health of the last window; of an earlier step of a second, of its last window, as far as it is kept.
    pub health: Option<health::Report>,
    /// Findings that go on, and the latest ended findings.
    pub findings: Vec<Finding>,
}

/// A table of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Kind of the keys.
    pub kind: KeyKind,
    /// Figure that ranks.
    pub by: Weigh,
    /// Length of the time in which the kind was counted, ns.
    pub covered_ns: u64,
    /// Largest rows.
    pub rows: Vec<Row>,
    /// Keys without a row.
    pub rest: Rest,
    /// Packets and bytes of the whole table.
    pub whole: Counts,
    /// Largest changes since the step before; `None` if there is none, or if windows cover more time of one of the two.
    pub changes: Option<Vec<Change>>,
    /// Keys whose first and last times were forgotten because there were too many.
    pub forgotten: u64,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Key and figures.
    pub listed: Listed,
    /// First and last time, and largest rate; `None` if it was forgotten.
    pub seen: Option<Seen>,
    /// Packets and bytes of the key in the steps up to this one, ascending; `None`: it had no row there.
    pub history: Vec<Option<Counts>>,
}

/// A point of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Begin of the step, ns since 1970.
    pub from_ns: i64,
    /// End of the step.
    pub to_ns: i64,
    /// Counts of the step.
    pub totals: Totals,
}

/// Makes a table of a snapshot.
pub(crate) fn table(
    table: &StepTable,
    before: Option<&StepTable>,
    (seen, earlier): (Option<&Sightings>, &[Step]),
    ask: &Ask,
) -> Table {
    let mut shown = table.clone();
    let before = before.filter(|before| before.covered_ns == table.covered_ns);
    let changes = before.map(|before| changes(before, table, ask.changes));
    shown.cut(ask.rows);
    let past: Vec<HashMap<FlowKey, Counts>> = earlier
        .iter()
        .map(|step| {
            let rows = step.table(table.kind, table.by).map(|table| &table.rows);
            let rows = rows.into_iter().flatten();
            rows.map(|row| (row.key, row.counts)).collect()
        })
        .collect();
    let rows = shown.rows.into_iter().map(|listed| Row {
        seen: seen.and_then(|seen| seen.get(&listed.key)).copied(),
        history: past
            .iter()
            .map(|step| step.get(&listed.key).copied())
            .collect(),
        listed,
    });
    Table {
        kind: table.kind,
        by: table.by,
        covered_ns: table.covered_ns,
        rows: rows.collect(),
        rest: shown.rest,
        whole: table.whole,
        changes,
        forgotten: seen.map_or(0, |seen| seen.forgotten),
    }
}

/// Largest changes from one step to the next. A key without a row has from 0 to what the rest allows.
fn changes(before: &StepTable, after: &StepTable, most: usize) -> Vec<Change> {
    let by = before.by;
    let mut rows: HashMap<FlowKey, [Option<&Listed>; 2]> = HashMap::new();
    for (i, table) in [before, after].into_iter().enumerate() {
        for row in &table.rows {
            rows.entry(row.key).or_default()[i] = Some(row);
        }
    }
    let change = |(key, rows): (FlowKey, [Option<&Listed>; 2])| {
        let [old, new] = rows;
        let figure = |row: Option<&Listed>| row.map_or(0, |row| row.counts.by(by));
        let bound = |row: Option<&Listed>, table: &StepTable| {
            row.map_or_else(|| table.rest.bound(true), |row| row.bound)
        };
        Change::between(
            key,
            (figure(old), bound(old, before)),
            (figure(new), bound(new, after)),
        )
    };
    largest_changes(rows.into_iter().map(change).collect(), most)
}
