//! Output of `weir diff`.

use crate::measure::{bound_of_change, key_columns};
use crate::numbers::{bit_rate, bytes, duration, grouped, rate};
use crate::table::{Column, Narrow, grid};
use crate::terminal::{self, output_width, printable, wrapped};
use crate::times::between;
use std::fmt::Write as _;
use std::time::Duration;
use weir_engine::zone::Zone;
use weir_measure::{BoundKind, Comparison, Contrast, Estimate, KeyKind, State};
use weir_messages::measured::columns::{Cell, Unit};
use weir_messages::measured::diff::{Chosen, Diff, Side};
use weir_messages::rows::Form;
use weir_packet::time::{Digits, Shape, Stamp};

/// Writer of an answer.
pub struct Report<'a> {
    diff: &'a Diff<'a>,
    form: Form,
    zone: Zone,
}

impl<'a> Report<'a> {
    pub fn new(diff: &'a Diff<'a>, form: Form, zone: Zone) -> Self {
        Self { diff, form, zone }
    }

    /// The whole answer.
    pub fn text(&mut self) -> String {
        match self.form {
            Form::Json => format!("{}\n", terminal::json("diff", &self.diff.json())),
            Form::Csv | Form::Tsv => self.diff.separated(self.form),
            Form::Table => wrapped(&self.tables(), output_width(), 2),
        }
    }

    fn tables(&mut self) -> String {
        let diff = self.diff;
        let mut out = self.head("before", &diff.before);
        out.push_str(&self.head("after ", &diff.after));
        out.push_str(&totals(diff));
        for (i, kind) in diff.options.keys.iter().enumerate() {
            let table = diff.table(i);
            let _ = writeln!(out, "\n  {kind}, by the change of {}", self.ranking());
            if table.rows.is_empty() {
                let packets = diff.before.tally().passed + diff.after.tally().passed;
                let words = match (packets, diff.options.above) {
                    (0, _) => "no packet on either side",
                    (_, Some(_)) => "no difference so large",
                    (_, None) => "no difference",
                };
                let _ = writeln!(out, "  {words}");
            } else {
                out.push_str(&self.table(*kind, &table));
            }
            out.push_str(&self.outside(&table));
        }
        out
    }

    /// The figure that ranks, in words.
    fn ranking(&self) -> String {
        match self.diff.unit().0 {
            Unit::Elements => self.diff.options.by.to_string(),
            unit => unit.words().to_owned(),
        }
    }

    /// The line about a side.
    fn head(&mut self, which: &str, side: &Side<'_>) -> String {
        let names = match side.names {
            [one] => printable(&one.as_source()).into_owned(),
            [first, others @ ..] => {
                let first = printable(&first.as_source()).into_owned();
                format!("{first} and {} more", others.len())
            }
            [] => String::new(),
        };
        let span = match side.covered_ns {
            None if side.tally().passed == 0 => "no packet".to_owned(),
            None => "no time".to_owned(),
            Some((from, to)) => {
                let (begin, end) = (
                    self.clock(from, Shape::DateClock),
                    self.clock(to, Shape::DateClock),
                );
                let length = duration(Duration::from_nanos(to.abs_diff(from)));
                format!("{}  {length}", between(&begin, &end))
            }
        };
        format!("{which}  {names}  {span}  {}\n", side.loss_words())
    }

    fn clock(&mut self, ns: i64, shape: Shape) -> String {
        let mut text = String::new();
        Stamp(ns).write(&mut text, shape, Digits::Micro, self.zone.east_s(ns));
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    fn table(&mut self, kind: KeyKind, table: &Comparison) -> String {
        match self.diff.options.columns.clone() {
            None => grid(&self.columns(kind, &table.rows), output_width()),
            Some(columns) => {
                let columns = columns.iter().flat_map(|it| it.separated());
                let column = |column: Chosen| {
                    let unit = column.unit(self.diff);
                    let name = column.name();
                    let is_change = name == "change" || name.starts_with("bound");
                    let cell =
                        |row| self.cell(column.cell(&self.diff.row(kind, row)), unit, is_change);
                    Column {
                        title: column.name(),
                        cells: table.rows.iter().map(cell).collect(),
                        right: unit != Unit::None,
                        narrow: Narrow::Stays,
                    }
                };
                let columns: Vec<Column> = columns.map(column).collect();
                grid(&columns, output_width())
            }
        }
    }

    fn cell(&self, cell: Cell, unit: Unit, is_change: bool) -> String {
        match cell {
            Cell::None => "-".to_owned(),
            Cell::Count(count) if unit == Unit::Bytes => bytes(count),
            Cell::Count(count) => grouped(count),
            Cell::Real(real) if unit == Unit::Times => times(real),
            Cell::Real(real) if is_change => signed(real, unit),
            Cell::Real(real) => figure_text(real, unit),
            Cell::Key(value) => match value.as_str() {
                Some(text) => printable(text).into_owned(),
                None => value.to_string(),
            },
            Cell::Word(word) => word,
            other => other.json().to_string(),
        }
    }

    fn columns(&self, kind: KeyKind, rows: &[Contrast]) -> Vec<Column> {
        let (scale, (unit, factor)) = (self.diff.scale(), self.diff.unit());
        let column = |title, narrow, cell: &dyn Fn(&Contrast) -> String| Column {
            title,
            cells: rows.iter().map(cell).collect(),
            right: true,
            narrow,
        };
        let numbers = (1..=rows.len()).map(|number| number.to_string());
        let mut columns = vec![Column::right("#", numbers)];
        columns.extend(key_columns(
            (kind, self.diff.names.as_ref()),
            rows.iter().map(|row| &row.key),
        ));
        let status = rows.iter().map(|row| {
            let doubt = if row.is_sure(scale) { "" } else { "?" };
            format!("{}{doubt}", row.status(scale).word())
        });
        columns.push(Column::left("", status));
        let side = |figure: u64, in_unit: f64| match figure {
            0 => "-".to_owned(),
            _ => figure_text(in_unit * factor, unit),
        };
        columns.push(column("before", Narrow::Leaves(2), &|row| {
            side(row.before.figure, scale.before(row.before.figure))
        }));
        columns.push(column("after", Narrow::Leaves(3), &|row| {
            side(row.after.figure, scale.after(row.after.figure))
        }));
        columns.push(column("change", Narrow::Stays, &|row| {
            signed(row.change(scale) * factor, unit)
        }));
        columns.push(column("times", Narrow::Leaves(1), &|row| match (
            row.before.figure,
            row.after.figure,
        ) {
            (0, _) | (_, 0) => String::new(),
            (before, after) => times(scale.after(after) / scale.before(before)),
        }));
        columns.push(column("bound", Narrow::Stays, &|row| {
            if row.is_exact() {
                return "exact".to_owned();
            }
            let (lower, upper) = row.range(scale);
            let ends = [lower, upper].map(|end| signed(end * factor, unit));
            match row.kind() != BoundKind::None && ends[0] == ends[1] {
                // The difference of the ends is lost in the rounding.
                true => format!("near {}", ends[0]),
                false => bound_of_change(row.kind(), ends),
            }
        }));
        columns
    }

    /// The line on the keys without a row; empty if none of them can have changed.
    fn outside(&self, table: &Comparison) -> String {
        let (unit, factor) = self.diff.unit();
        if table.others == 0 && table.at_most == 0.0 && table.kind != BoundKind::None {
            return String::new();
        }
        let keys = match table.others {
            1 => "1 more key differs".to_owned(),
            keys => format!("{} more keys differ", grouped(keys)),
        };
        let most = match table.kind {
            BoundKind::None => "how much the largest changed is not known".to_owned(),
            _ => format!(
                "none changed by more than {}{}",
                figure_text(table.at_most * factor, unit),
                unit_behind(unit)
            ),
        };
        format!("  outside: {keys}; {most}\n")
    }
}

/// The unit of a figure, if its text lacks it.
fn unit_behind(unit: Unit) -> &'static str {
    match unit {
        Unit::PacketsPerSecond => " packets/s",
        Unit::Packets => " packets",
        _ => "",
    }
}

/// A figure in its unit, without a sign.
fn figure_text(figure: f64, unit: Unit) -> String {
    match unit {
        Unit::BitsPerSecond => bit_rate(figure),
        Unit::Bytes => bytes(figure.round() as u64),
        Unit::PacketsPerSecond if figure < 1.0 => format!("{figure:.3}"),
        Unit::PacketsPerSecond if figure < 10.0 => format!("{figure:.1}"),
        Unit::PacketsPerSecond => rate(figure),
        _ => grouped(figure.round() as u64),
    }
}

fn signed(figure: f64, unit: Unit) -> String {
    let sign = if figure < 0.0 { '-' } else { '+' };
    format!("{sign}{}", figure_text(figure.abs(), unit))
}

/// A ratio: `x1.5`, `x0.12`.
fn times(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 100.0 => format!("x{}", grouped(ratio.round() as u64)),
        _ if ratio >= 1.95 => format!("x{ratio:.1}"),
        _ if ratio >= 0.01 => format!("x{ratio:.2}"),
        _ => format!("x{ratio:.4}"),
    }
}

/// The table of the totals of both sides.
fn totals(diff: &Diff<'_>) -> String {
    let sides = [&diff.before, &diff.after];
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut counts = |name: &str, of: [u64; 2], text: fn(u64) -> String| {
        rows.push([name.to_owned(), text(of[0]), text(of[1]), String::new()]);
    };
    counts("packets", sides.map(|side| side.tally().passed), grouped);
    counts("bytes", sides.map(|side| side.tally().bytes), bytes);
    let per_second = |of: fn(&Side<'_>) -> u64| sides.map(|side| side.rate(of(side)));
    let mut rates = |name: &str, of: [Option<f64>; 2], unit| {
        let text = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| figure_text(rate, unit));
        let change = match of {
            [Some(before), Some(after)] if before > 0.0 && after > 0.0 => times(after / before),
            _ => String::new(),
        };
        rows.push([name.to_owned(), text(of[0]), text(of[1]), change]);
    };
    rates(
        "packets/s",
        per_second(|side| side.tally().passed),
        Unit::PacketsPerSecond,
    );
    let bits = per_second(|side| side.tally().bytes).map(|rate| rate.map(|rate| rate * 8.0));
    rates("bit/s", bits, Unit::BitsPerSecond);
    let mut estimates = |name: &str, of: fn(&State) -> Estimate| {
        let text = |side: &Side<'_>| {
            let estimate = side.state().map_or(Estimate::exact(0), of);
            let about = if estimate.plus_minus > 0 {
                "about "
            } else {
                ""
            };
            format!("{about}{}", grouped(estimate.value))
        };
        rows.push([
            name.to_owned(),
            text(sides[0]),
            text(sides[1]),
            String::new(),
        ]);
    };
    estimates("flows", State::flows);
    estimates("sources", State::sources);
    estimates("destinations", State::destinations);
    let cells = |i: usize| rows.iter().map(move |row| row[i].clone());
    grid(
        &[
            Column::left("", cells(0)),
            Column::right("before", cells(1)),
            Column::right("after", cells(2)),
            Column::right("times", cells(3)),
        ],
        output_width(),
    )
}
