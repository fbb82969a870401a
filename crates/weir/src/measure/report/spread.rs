//! Tables of keys with the most peers, ports or contacts.

use super::{Report, bound_text, how_many, key_columns};
use crate::numbers::grouped;
use crate::table::{Column, Narrow, grid};
use crate::terminal::output_width;
use std::fmt::Write as _;
use weir_measure::{BoundKind, By, Estimate, KeyKind, Keys, SpreadTable, Spreader};

/// Number of elements with their name: `1 peer`, `120 peers`.
pub fn elements(by: By, count: u64) -> String {
    let name = by.to_string();
    let name = match count {
        1 => name.trim_end_matches('s'),
        _ => &name,
    };
    format!("{} {name}", grouped(count))
}

impl Report {
    /// Table of the keys with the most elements, and lines on the keys outside and on the sample.
    pub fn spread(&self, kind: KeyKind, table: &SpreadTable) -> Option<String> {
        let outside = self.outside_spread(table);
        if table.rows.is_empty() && outside.is_empty() {
            return None;
        }
        let mut out = grid(&self.spread_columns(kind, table), output_width());
        out.push_str(&outside);
        let is_known = table.rows.iter().all(|row| row.unanswered.is_some());
        if !is_known {
            out.push_str(
                "  no contact was answered: if the packets have one direction only, answers cannot be known\n",
            );
        }
        if table.sample.is_saturated {
            out.push_str(
                "  the sample is full, and the numbers are too low: raise --memory, or use a shorter --window\n",
            );
        } else if !table.sample.is_exact {
            let share = table.sample.share;
            let _ = writeln!(
                out,
                "  estimated from {:.1} % of all {}; --memory {} would hold nearly all",
                share * 100.0,
                self.answers.by,
                size(table.sample.memory_for_most),
            );
        }
        Some(out)
    }

    fn spread_columns(&self, kind: KeyKind, table: &SpreadTable) -> Vec<Column> {
        let rows = &table.rows;
        let column = |title, narrow, cell: &dyn Fn(&Spreader) -> String| Column {
            title,
            cells: rows.iter().map(cell).collect(),
            right: true,
            narrow,
        };
        let known = |number: Option<u64>| number.map_or("-".to_owned(), grouped);
        let mut names = By::NAMES.iter();
        let name = names.find(|(_, by)| *by == self.answers.by);
        let title = name.map_or("", |(name, _)| *name);
        let mut columns = vec![Column {
            title: "#",
            cells: (1..=rows.len()).map(|n| n.to_string()).collect(),
            right: true,
            narrow: Narrow::Stays,
        }];
        columns.extend(key_columns((kind, None), rows.iter().map(|row| &row.key)));
        columns.push(column(title, Narrow::Stays, &|row| grouped(row.elements)));
        columns.push(column("unanswered", Narrow::Leaves(2), &|row| {
            known(row.unanswered)
        }));
        columns.push(column("refused", Narrow::Leaves(1), &|row| {
            known(row.refused)
        }));
        columns.push(column("bound", Narrow::Stays, &|row| {
            bound_text(row.elements, &row.bound)
        }));
        columns
    }

    /// A line on the keys outside the rows; empty if there are none.
    pub(super) fn outside_spread(&self, table: &SpreadTable) -> String {
        let by = self.answers.by;
        let keys = match table.keys {
            Keys::About(keys) if keys.value == 0 && table.kind == BoundKind::Exact => {
                return String::new();
            }
            Keys::About(keys) => how_many(&keys, "key"),
            Keys::AtLeast(keys) => format!("{} or more", how_many(&Estimate::exact(keys), "key")),
        };
        let most = elements(by, table.at_most);
        let may_be_larger = table.rows.iter().any(|row| row.bound.lower < table.at_most);
        let largest = match table.kind {
            BoundKind::None => "how large the largest is, is not known".to_owned(),
            BoundKind::Exact if !may_be_larger => format!("none has more than {most}"),
            BoundKind::Exact => format!("a key of up to {most} may be missing here"),
            _ if may_be_larger => format!("a key of up to {most} may be missing here (95 %)"),
            _ => format!("none has more than {most} (95 %)"),
        };
        format!(
            "  outside: {keys}, {}; {largest}\n",
            elements(by, table.elements)
        )
    }
}

/// A size that --memory takes, rounded up to a power of two.
fn size(bytes: u64) -> String {
    let bytes = bytes.next_power_of_two().max(1 << 14);
    match bytes.trailing_zeros() {
        30.. => format!("{}G", bytes >> 30),
        20.. => format!("{}M", bytes >> 20),
        _ => format!("{}k", bytes >> 10),
    }
}
