//! Tables of the columns of `--columns`.

use super::{Report, bound_text};
use crate::numbers::{bit_rate, bytes, grouped, packets, rate};
use crate::table::{Column, Narrow, grid};
use crate::terminal::{output_width, printable};
use std::fmt::Write as _;
use weir_measure::Weigh;
use weir_messages::measured::columns::{Cell, Chosen, Unit};
use weir_packet::time::Shape;

impl Report {
    /// Table `i` of a window, with these columns.
    pub fn chosen(
        &mut self,
        window: &weir_measure::Window<'_>,
        i: usize,
        columns: &[Chosen],
    ) -> Option<String> {
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        let late = self.answers.rows(window, i, |row| {
            rows.push(columns.iter().map(|column| column.cell(row)).collect());
        });
        // Without a row there may be keys outside.
        let is_distinct = self.answers.by.is_distinct();
        let outside = match (rows.is_empty(), is_distinct, window.state) {
            (false, ..) | (_, _, None) => String::new(),
            (true, false, _) => self.outside(&self.answers.table(window, i)),
            (true, true, Some(state)) => self.outside_spread(&state.spread(i, self.answers.rows)),
        };
        if rows.is_empty() && outside.is_empty() {
            return None;
        }
        let mut grid_columns = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let cells = rows.iter().map(|row| self.cell(&row[at], column.unit()));
            let cells: Vec<String> = cells.collect();
            grid_columns.push(Column {
                title: column.name(),
                cells,
                right: column.unit() != Unit::None,
                narrow: Narrow::Stays,
            });
        }
        let mut out = grid(&grid_columns, output_width()) + &outside;
        if late > 0 {
            let _ = writeln!(
                out,
                "  in no peak: {} out of order (--sort puts files in order)",
                packets(late)
            );
        }
        Some(out)
    }

    /// A value for people, as the usual tables show it.
    fn cell(&mut self, cell: &Cell, unit: Unit) -> String {
        match cell {
            Cell::None => "-".to_owned(),
            Cell::Count(count) if unit == Unit::Bytes => bytes(*count),
            Cell::Count(count) => match unit {
                Unit::PacketsPerSecond => rate(*count as f64),
                Unit::BitsPerSecond => bit_rate(*count as f64),
                Unit::PerSecond if self.weigh() == Weigh::Packets => {
                    format!("{} pps", rate(*count as f64))
                }
                Unit::PerSecond => bit_rate(*count as f64),
                _ => grouped(*count),
            },
            Cell::Real(real) => match unit {
                Unit::Share => format!("{:.1} %", real * 100.0),
                Unit::BitsPerSecond => bit_rate(*real),
                _ => rate(*real),
            },
            // As tcpdump, so that the columns stand.
            Cell::Time(ns) => self.stamp(*ns, Shape::DateClock),
            Cell::Key(value) => match value.as_str() {
                Some(text) => printable(text).into_owned(),
                None => value.to_string(),
            },
            Cell::Word(word) => word.clone(),
            Cell::Bound(bound, figure) => bound_text(*figure, bound),
        }
    }
}
