//! Answers about the difference of two measurements: tables of changes, and the totals of both sides.

use super::columns::{self, Cell, Ends, KEY_COLUMNS, Unit, beside, key_names, no_key_has};
use super::{estimate_json, kind_name, lacks, stamp};
use crate::rows::{Form, RowWriter, heading};
use crate::{Refusal, refusal, refuse};
use serde_json::{Map, Value, json};
use weir_engine::keys::key_json;
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_measure::names::Names;
use weir_measure::{
    BoundKind, By, Comparison, Contrast, Estimate, Geo, KeyKind, Listed, Scale, State, Tally,
    Weigh, compare,
};
use weir_packet::suggestions::did_you_mean;
use weir_pipeline::measuring::Finished;

/// One of the two measurements.
#[derive(Debug)]
pub struct Side<'a> {
    /// Sources.
    pub names: &'a [Name],
    /// First and last wanted time, ns since 1970.
    pub asked_ns: (Option<i64>, Option<i64>),
    /// Part of these times that the sources cover, ns since 1970; `None` if they cover nothing of it, or have no times.
    pub covered_ns: Option<(i64, i64)>,
    /// Result of the measurement.
    pub finished: &'a Finished,
    /// Counts of the run.
    pub ledger: &'a Ledger,
    /// Whether some of the lost packets may have been lost outside the wanted times.
    pub lost_at_most: bool,
    /// Parts of the choice of the packets of the sources, in words.
    pub holds_only: &'a [String],
    /// Message on the first error.
    pub fault: Option<&'a str>,
}

impl Side<'_> {
    /// Counters of the packets; `None` if no packet passed.
    pub fn state(&self) -> Option<&State> {
        self.finished.state.as_ref()
    }

    /// Totals.
    pub fn tally(&self) -> Tally {
        self.state()
            .map_or(Tally::default(), |state| *state.tally())
    }

    /// Length of the covered time, ns.
    pub fn length_ns(&self) -> Option<u64> {
        let (from, to) = self.covered_ns?;
        Some(to.saturating_sub(from).unsigned_abs())
    }

    /// A total per second of the covered time.
    pub fn rate(&self, of: u64) -> Option<f64> {
        let ns = self.length_ns().filter(|ns| *ns > 0)?;
        Some(of as f64 * 1e9 / ns as f64)
    }

    fn json(&self) -> Value {
        let tally = self.tally();
        let none = Estimate::exact(0);
        let number = |of: fn(&State) -> Estimate| estimate_json(&self.state().map_or(none, of));
        let names: Vec<String> = self.names.iter().map(Name::as_source).collect();
        let mut object = json!({
            "names": names,
            "from": self.asked_ns.0.map(stamp),
            "to": self.asked_ns.1.map(stamp),
            "start": self.covered_ns.map(|(from, _)| stamp(from)),
            "end": self.covered_ns.map(|(_, to)| stamp(to)),
            "seconds": self.length_ns().map(|ns| ns as f64 / 1e9),
            "received": self.finished.arrivals.received,
            "passed": tally.passed,
            "filtered": self.finished.arrivals.filtered,
            "bytes": tally.bytes,
            "packets_per_s": self.rate(tally.passed),
            "bits_per_s": self.rate(tally.bytes).map(|bytes| bytes * 8.0),
            "flows": number(State::flows),
            "sources": number(State::sources),
            "destinations": number(State::destinations),
            "fault": self.fault,
        });
        if let Some(object) = object.as_object_mut() {
            object.extend(lacks(self.ledger, self.holds_only));
            if self.lost_at_most {
                object.insert("lost_at_most".to_owned(), true.into());
            }
        }
        object
    }

    /// Words on the packets that the sources lost, for tables.
    pub fn loss_words(&self) -> String {
        let words = loss_words(self.fault.is_some(), self.ledger);
        match self.lost_at_most && self.ledger.lost_before > 0 && self.fault.is_none() {
            true => format!("up to {words}"),
            false => words,
        }
    }
}

/// Contents of an answer.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// Kinds of key, a table each.
    pub keys: Vec<KeyKind>,
    /// Figure whose changes are ranked.
    pub by: By,
    /// Most rows of a table.
    pub rows: usize,
    /// Least change of a row, as a share of the larger of the two totals, from 0 to 1.
    pub above: Option<f64>,
    /// Columns of the rows; `None`: the usual ones.
    pub columns: Option<Vec<Chosen>>,
}

/// The difference of two measurements.
#[derive(Debug)]
pub struct Diff<'a> {
    /// Contents.
    pub options: &'a DiffOptions,
    /// The first measurement.
    pub before: Side<'a>,
    /// The second measurement.
    pub after: Side<'a>,
    /// Names of addresses on both sides, of which later ones count, if a key needs them.
    pub names: Option<Names>,
    /// Databases of addresses, for columns.
    pub geo: Option<&'a Geo>,
}

impl Diff<'_> {
    /// Unit of the comparison: figures per second, unless they are numbers of distinct elements, or a length is not known.
    pub fn scale(&self) -> Scale {
        match self.options.by.is_distinct() {
            true => Scale::Counts,
            false => Scale::of(self.before.length_ns(), self.after.length_ns()),
        }
    }

    /// Unit of the figures that are ranked, and the number of these in one of [`Scale`].
    pub fn unit(&self) -> (Unit, f64) {
        match (self.options.by.weigh(), self.scale()) {
            (None, _) => (Unit::Elements, 1.0),
            (Some(Weigh::Packets), Scale::Counts) => (Unit::Packets, 1.0),
            (Some(Weigh::Packets), _) => (Unit::PacketsPerSecond, 1.0),
            (Some(Weigh::Bytes), Scale::Counts) => (Unit::Bytes, 1.0),
            (Some(Weigh::Bytes), _) => (Unit::BitsPerSecond, 8.0),
        }
    }

    /// Largest changes of table `i`.
    pub fn table(&self, i: usize) -> Comparison {
        let scale = self.scale();
        let weigh = self.options.by.weigh();
        let whole = |side: &Side<'_>| match weigh {
            Some(Weigh::Packets) => side.tally().passed,
            Some(Weigh::Bytes) => side.tally().bytes,
            None => 0,
        };
        let whole = scale
            .before(whole(&self.before))
            .max(scale.after(whole(&self.after)));
        let listed = Listed {
            rows: self.options.rows,
            least: self.options.above.map_or(0.0, |share| share * whole),
            scale,
        };
        compare(
            self.before.state(),
            self.after.state(),
            i,
            listed,
            self.names.as_ref(),
        )
    }

    /// The answer as one object.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
        put("by", self.options.by.to_string().into());
        put("unit", self.unit().0.words().into());
        put("before", self.before.json());
        put("after", self.after.json());
        let (mut changes, mut missing) = (Map::new(), Map::new());
        for (i, kind) in self.options.keys.iter().enumerate() {
            let table = self.table(i);
            let row = |contrast| self.row(*kind, contrast).json();
            changes.insert(kind.to_string(), table.rows.iter().map(row).collect());
            missing.insert(kind.to_string(), self.missing(&table));
        }
        put("changes", changes.into());
        put("missing", missing.into());
        object.into()
    }

    fn missing(&self, table: &Comparison) -> Value {
        let at_most = (table.kind != BoundKind::None).then(|| table.at_most * self.unit().1);
        json!({ "at_most": at_most, "kind": kind_name(table.kind), "keys": table.others })
    }

    /// A row, with everything that its columns are taken from.
    pub fn row<'b>(&'b self, kind: KeyKind, contrast: &'b Contrast) -> DiffRow<'b> {
        DiffRow {
            diff: self,
            kind,
            contrast,
        }
    }

    /// The rows of all tables as separated values, with their heading.
    pub fn separated(&self, form: Form) -> String {
        let columns = match &self.options.columns {
            Some(columns) => columns.clone(),
            None => usual(&self.options.keys),
        };
        let columns: Vec<Chosen> = columns.iter().flat_map(|it| it.separated()).collect();
        let mut out = heading(form, columns.iter().map(|column| (column.name(), 0)));
        for (i, kind) in self.options.keys.iter().enumerate() {
            for contrast in &self.table(i).rows {
                let of = self.row(*kind, contrast);
                let mut row = RowWriter::new(&mut out, form, "");
                for column in &columns {
                    column.cell(&of).write(&mut row);
                }
                row.end();
            }
        }
        out
    }
}

/// A row of a table of changes.
#[derive(Clone, Copy, Debug)]
pub struct DiffRow<'a> {
    diff: &'a Diff<'a>,
    kind: KeyKind,
    contrast: &'a Contrast,
}

impl DiffRow<'_> {
    fn json(&self) -> Value {
        let (mut object, columns) = match &self.diff.options.columns {
            Some(columns) => (Map::new(), columns.clone()),
            None => (
                key_json(self.kind, &self.contrast.key, self.diff.names.as_ref()),
                COLUMNS[1..].iter().map(Chosen::Figure).collect(),
            ),
        };
        for column in columns {
            let value = match column {
                Chosen::Figure(it) if it.name == "bound" => self.bound(),
                column => column.cell(self).json(),
            };
            object.insert(column.name().to_owned(), value);
        }
        object.into()
    }

    fn bound(&self) -> Value {
        BOUND
            .iter()
            .map(|part| (part.short(), (part.of)(self).json()))
            .collect::<Map<_, _>>()
            .into()
    }

    /// A figure in the unit of the ranking: a whole number if it is not per second.
    fn figure(&self, of: f64) -> Cell {
        match self.diff.unit() {
            (Unit::PacketsPerSecond | Unit::BitsPerSecond, times) => Cell::Real(of * times),
            _ if of >= 0.0 => Cell::Count(of as u64),
            _ => Cell::Key(json!(of as i64)),
        }
    }

    /// Figures of both sides in the unit of the comparison.
    fn figures(&self) -> (f64, f64) {
        let (scale, contrast) = (self.diff.scale(), self.contrast);
        (
            scale.before(contrast.before.figure),
            scale.after(contrast.after.figure),
        )
    }

    fn range(&self) -> Option<(f64, f64)> {
        let is_known = self.contrast.kind() != BoundKind::None;
        is_known.then(|| self.contrast.range(self.diff.scale()))
    }

    /// Name or place of an address of the key.
    fn beside(&self, column: &str) -> Cell {
        let ends = Ends {
            addresses: self.kind.addresses(&self.contrast.key),
            names: self.diff.names.as_ref(),
            geo: self.diff.geo,
        };
        ends.cell(column)
    }

    fn counts(&self, of: fn(&Contrast) -> u64) -> Cell {
        match self.diff.options.by.is_distinct() {
            true => Cell::None,
            false => Cell::Count(of(self.contrast)),
        }
    }
}

/// A column of the figures of a change.
#[derive(Debug)]
pub struct DiffColumn {
    /// Name, also of the member in JSON.
    pub name: &'static str,
    /// Unit; `None`: the unit of the ranking.
    pub unit: Option<Unit>,
    /// Meaning of the value.
    pub about: &'static str,
    of: fn(&DiffRow<'_>) -> Cell,
}

impl DiffColumn {
    /// Name of a part of the bound, without the name of the bound.
    fn short(&self) -> String {
        self.name.trim_start_matches("bound_").to_owned()
    }
}

macro_rules! columns {
    ($list:ident $about_list:literal $($name:literal $unit:expr, $about:literal $of:expr;)*) => {
        #[doc = $about_list]
        pub const $list: &[DiffColumn] = &[$(DiffColumn { name: $name, unit: $unit, about: $about, of: $of },)*];
    };
}

columns! {
    COLUMNS "Columns of figures, in the order of lists."
    "key" Some(Unit::None), "kind of key of the row (--key)"
        |row| Cell::Word(row.kind.to_string());
    "status" Some(Unit::None), "new, gone, grown or shrunk"
        |row| Cell::Word(row.contrast.status(row.diff.scale()).word().to_owned());
    "sure" Some(Unit::None), "true: the bounds of both figures prove the status"
        |row| Cell::Key(row.contrast.is_sure(row.diff.scale()).into());
    "before" None, "figure of the first side, per second of its length"
        |row| row.figure(row.figures().0);
    "after" None, "figure of the second side, per second of its length"
        |row| row.figure(row.figures().1);
    "change" None, "after less before"
        |row| row.figure(row.contrast.change(row.diff.scale()));
    "times" Some(Unit::Times), "after divided by before, if both are above 0"
        |row| match row.figures() {
            (before, after) if before > 0.0 && after > 0.0 => Cell::Real(after / before),
            _ => Cell::None,
        };
    "before_packets" Some(Unit::Packets), "packets of the first side; at least so many if the bound is not exact"
        |row| row.counts(|it| it.before.counts.packets);
    "after_packets" Some(Unit::Packets), "packets of the second side, in the same way"
        |row| row.counts(|it| it.after.counts.packets);
    "before_bytes" Some(Unit::Bytes), "bytes of the first side on the wire, in the same way"
        |row| row.counts(|it| it.before.counts.bytes);
    "after_bytes" Some(Unit::Bytes), "bytes of the second side on the wire, in the same way"
        |row| row.counts(|it| it.after.counts.bytes);
    "bound" None, "range of the true change"
        |row| Cell::Key(row.bound());
}

columns! {
    BOUND "Parts of the bound, which separated values have in columns of their own."
    "bound_kind" Some(Unit::None), "exact, deterministic, probabilistic or none"
        |row| Cell::Word(match row.contrast.is_exact() {
            true => kind_name(BoundKind::Exact),
            false => kind_name(row.contrast.kind()),
        }.to_owned());
    "bound_lower" None, "least possible change"
        |row| row.range().map_or(Cell::None, |(lower, _)| row.figure(lower));
    "bound_upper" None, "largest possible change"
        |row| row.range().map_or(Cell::None, |(_, upper)| row.figure(upper));
}

/// A column that an answer has.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// Part of a key.
    Key(&'static str),
    /// Name or place of an address of the key, which is no part of the key.
    Beside(&'static str),
    /// A figure.
    Figure(&'static DiffColumn),
}

impl Chosen {
    /// Name of the column.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Key(name) | Self::Beside(name) => name,
            Self::Figure(column) => column.name,
        }
    }

    /// Unit of the column in an answer.
    pub fn unit(&self, diff: &Diff<'_>) -> Unit {
        match self {
            Self::Key(_) | Self::Beside(_) => Unit::None,
            Self::Figure(column) => column.unit.unwrap_or_else(|| diff.unit().0),
        }
    }

    /// Value in a row.
    pub fn cell(&self, row: &DiffRow<'_>) -> Cell {
        match self {
            Self::Key(name) => {
                let value =
                    key_json(row.kind, &row.contrast.key, row.diff.names.as_ref()).remove(*name);
                match value {
                    Some(value) => Cell::Key(value),
                    None => row.beside(name),
                }
            }
            Self::Beside(name) => row.beside(name),
            Self::Figure(column) => (column.of)(row),
        }
    }

    /// The columns in which separated values and tables have it.
    pub fn separated(&self) -> Vec<Self> {
        match self.name() {
            "bound" => BOUND.iter().map(Self::Figure).collect(),
            _ => vec![*self],
        }
    }
}

/// The columns of separated values if none are named.
fn usual(keys: &[KeyKind]) -> Vec<Chosen> {
    // The kind of key is told if there are several.
    let figures = COLUMNS.iter().map(Chosen::Figure);
    let kind = figures.clone().take(usize::from(keys.len() > 1));
    let parts = KEY_COLUMNS.iter().map(|(name, _)| *name);
    let parts = parts.filter(|name| keys.iter().any(|kind| key_names(*kind).contains(name)));
    let parts = parts.map(Chosen::Key);
    kind.chain(parts).chain(figures.skip(1)).collect()
}

/// Chooses the columns of a list of names, separated by commas. **Errors**: an unknown name, a name twice, a part that no key has.
pub fn choose(list: &str, keys: &[KeyKind]) -> Result<Vec<Chosen>, Refusal> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for name in list.split(',') {
        if chosen.iter().any(|before| before.name() == name) {
            refuse!("--columns names {name} twice: leave one out");
        }
        let figure = || {
            COLUMNS
                .iter()
                .chain(BOUND)
                .find(|column| column.name == name)
        };
        let part = KEY_COLUMNS.iter().find(|(other, _)| *other == name);
        let is_part = |(name, _): &&(_, _)| keys.iter().any(|kind| key_names(*kind).contains(name));
        let one = part.filter(is_part).map(|(name, _)| Chosen::Key(name));
        let one = one.or_else(|| beside(name, keys).map(Chosen::Beside));
        let Some(one) = one.or_else(|| figure().map(Chosen::Figure)) else {
            let parts = KEY_COLUMNS.iter().map(|(name, _)| *name);
            let parts = parts.chain(columns::of_addresses());
            if parts.clone().any(|part| part == name) {
                return Err(no_key_has(name, keys));
            }
            let names = parts.chain(COLUMNS.iter().map(|column| column.name));
            return Err(refusal!(
                "--columns: unknown column '{name}'{}: weir help columns lists them",
                did_you_mean(name, names)
            ));
        };
        chosen.push(one);
    }
    Ok(chosen)
}

/// Words in place of a number of lost packets, if the sources say that none was lost.
pub const NO_LOSS: &str = "no loss";

/// Words in place of a number of lost packets, if a source has no counter of them, such as a pcap file.
pub const LOSS_NOT_RECORDED: &str = "loss not recorded";

/// Words on the packets that sources lost, for tables.
pub fn loss_words(fault: bool, ledger: &Ledger) -> String {
    use crate::numbers::grouped;
    let is_told = ledger.loss_unknown.is_empty();
    match (fault, ledger.lost_before) {
        (true, _) => "incomplete".to_owned(),
        (false, 0) if !is_told => "loss unknown".to_owned(),
        (false, 0) if ledger.without_counter > 0 => LOSS_NOT_RECORDED.to_owned(),
        (false, 0) => NO_LOSS.to_owned(),
        (false, n) if is_told && ledger.without_counter == 0 => {
            format!("{} lost before", grouped(n))
        }
        (false, n) => format!("{} or more lost before", grouped(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_loss_is_said_only_if_a_counter_says_so() {
        let words = |lost_before, without_counter| {
            let ledger = Ledger {
                lost_before,
                without_counter,
                ..Ledger::default()
            };
            loss_words(false, &ledger)
        };
        assert_eq!(words(0, 0), "no loss");
        assert_eq!(words(0, 1), "loss not recorded");
        assert_eq!(words(7, 0), "7 lost before");
        assert_eq!(words(7, 1), "7 or more lost before");
    }
}
