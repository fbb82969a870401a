//! Columns of the rows of a measurement: each with a name, a unit and the way it is taken.
//!
//! Names of members in JSON, headings of csv and tsv, tables with `--columns` and `weir help columns` are read from the one list
//! [`COLUMNS`], and the parts of keys from [`KEY_COLUMNS`].

use super::{Answers, bound_json, stamp};
use crate::geo::kind_of_column;
use crate::rows::{Form, RowWriter, heading};
use crate::{Refusal, refusal, refuse};
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use weir_engine::keys::key_json;
use weir_measure::names::Names;
use weir_measure::{
    Bound, BoundKind, By, Geo, KeyKind, Row, Sides, Spreader, Weigh, Window, bits_per_second,
    per_second,
};
use weir_packet::flow::FlowKey;
use weir_packet::suggestions::did_you_mean;

/// Value of a column in one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    None,
    /// A count, in the unit of the column.
    Count(u64),
    /// A figure that is not a whole number.
    Real(f64),
    /// A time, ns since 1970.
    Time(i64),
    /// Part of a key.
    Key(Value),
    /// A word of this program.
    Word(String),
    /// Range of a figure, and the figure.
    Bound(Bound, u64),
}

/// Unit of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A name, an address, a word.
    None,
    /// Packets.
    Packets,
    /// Bytes on the wire, without FCS.
    Bytes,
    /// Share of a whole, from 0 to 1.
    Share,
    /// Packets in a second.
    PacketsPerSecond,
    /// Bits of the frames without FCS in a second.
    BitsPerSecond,
    /// Packets in a second, or bits if bytes rank.
    PerSecond,
    /// Distinct elements: peers, ports or contacts.
    Elements,
    /// A time.
    Time,
    /// A ratio.
    Times,
}

impl Unit {
    /// The unit in words, in lists; empty if there is none.
    pub fn words(self) -> &'static str {
        match self {
            Self::None | Self::Time | Self::Times => "",
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Share => "0 to 1",
            Self::PacketsPerSecond => "packets/s",
            Self::BitsPerSecond => "bit/s",
            Self::PerSecond => "packets/s, bit/s",
            Self::Elements => "elements",
        }
    }
}

/// A row, and everything that its columns are taken from.
#[derive(Clone, Copy, Debug)]
pub struct RowOf<'a> {
    /// Contents of the answer.
    pub answers: &'a Answers,
    /// Window of the row.
    pub window: &'a Window<'a>,
    /// Kind of key of the table.
    pub kind: KeyKind,
    /// The figures.
    pub figures: Figures<'a>,
}

/// Figures of a row.
#[derive(Clone, Copy, Debug)]
pub enum Figures<'a> {
    /// Packets and bytes.
    Weighed(&'a Row),
    /// A number of distinct elements.
    Spread(&'a Spreader),
}

impl RowOf<'_> {
    /// Key of the row.
    pub fn key(&self) -> &FlowKey {
        match self.figures {
            Figures::Weighed(row) => &row.key,
            Figures::Spread(row) => &row.key,
        }
    }

    fn weighed(&self) -> Option<&Row> {
        match self.figures {
            Figures::Weighed(row) => Some(row),
            Figures::Spread(_) => None,
        }
    }

    fn spread(&self) -> Option<&Spreader> {
        match self.figures {
            Figures::Weighed(_) => None,
            Figures::Spread(row) => Some(row),
        }
    }

    fn by(&self, weigh: Weigh) -> Option<u64> {
        self.weighed().map(|row| row.counts.by(weigh))
    }

    /// A figure of one direction, for keys of both.
    fn side(&self, of: fn(&Sides) -> u64) -> Option<u64> {
        self.weighed()?.sides.as_ref().map(of)
    }

    /// Bound of packets or of bytes.
    fn bound_of(&self, weigh: Weigh) -> Option<(Bound, u64)> {
        let row = self.weighed()?;
        let ranks = self.answers.by.weigh() == Some(weigh);
        let bound = if ranks { row.bound } else { row.companion };
        Some((bound, row.counts.by(weigh)))
    }

    /// Packets or bytes of all that was measured in the window.
    fn whole(&self, weigh: Weigh) -> u64 {
        let tally = self.window.state.map(weir_measure::State::tally);
        tally.map_or(0, |tally| match weigh {
            Weigh::Packets => tally.passed,
            Weigh::Bytes => tally.bytes,
        })
    }

    fn share(&self, weigh: Weigh) -> Option<f64> {
        let whole = self.whole(weigh);
        let part = self.by(weigh).filter(|_| whole > 0)?;
        Some(part as f64 / whole as f64)
    }

    fn rate(&self, weigh: Weigh) -> Option<f64> {
        per_second(self.by(weigh)?, self.window.time_ns()?)
    }

    fn bit_rate(&self) -> Option<f64> {
        bits_per_second(self.by(Weigh::Bytes)?, self.window.time_ns()?)
    }

    /// Begin and end of the window; without windows the times of the first and the last packet.
    fn span(&self) -> Option<(i64, i64)> {
        let times = || self.window.state.and_then(|state| state.tally().times());
        self.window.span.or_else(times)
    }

    fn ends(&self) -> Ends<'_> {
        Ends {
            addresses: self.kind.addresses(self.key()),
            names: self.window.names,
            geo: self.answers.geo.as_deref(),
        }
    }

    fn elements(&self, by: By) -> Cell {
        let row = self.spread().filter(|_| self.answers.by == by);
        row.map_or(Cell::None, |row| Cell::Count(row.elements))
    }
}

/// Addresses of a key, and everything that tells their names and places.
pub(super) struct Ends<'a> {
    pub addresses: [Option<IpAddr>; 2],
    pub names: Option<&'a Names>,
    pub geo: Option<&'a Geo>,
}

impl Ends<'_> {
    /// Value of a column about an address: `src_name`, `dst_country`; of `name` and `country`, the value of the destination, or else of the
    /// source.
    pub fn cell(&self, column: &str) -> Cell {
        let is_missing = |cell: &Cell| {
            *cell == Cell::None || matches!(cell, Cell::Key(Value::String(none)) if none == "-")
        };
        match (column.strip_prefix("src_"), column.strip_prefix("dst_")) {
            (Some(part), _) => self.of(0, part),
            (_, Some(part)) => self.of(1, part),
            _ => {
                let cell = self.of(1, column);
                let other = is_missing(&cell).then(|| self.of(0, column));
                other.unwrap_or(cell)
            }
        }
    }

    /// Name of an end, or a part of its place: its country, for instance. `-` if no database has it.
    fn of(&self, end: usize, part: &str) -> Cell {
        let Some(address) = self.addresses[end] else {
            return Cell::None;
        };
        let value = match kind_of_column(part) {
            None => self
                .names
                .and_then(|names| names.of(address))
                .map(Value::from),
            Some(kind) => self
                .geo
                .and_then(|geo| key_json(kind, &geo.key(kind, address), None).remove(part)),
        };
        value.map_or(Cell::None, Cell::Key)
    }
}

/// A column about addresses that are parts of keys and not the column itself: `src_name`, `dst_country`, or `country` with another key;
/// `None` if no key has the address, or there is no such column.
pub(super) fn beside(name: &str, keys: &[KeyKind]) -> Option<&'static str> {
    let parts = KEY_COLUMNS.iter().map(|(name, _)| *name);
    let parts = parts.filter(|name| *name == NAME || kind_of_column(name).is_some());
    let mut all = parts.chain(of_addresses());
    let name = all.find(|column| *column == name)?;
    let has = |kind: &KeyKind| match (name.starts_with("src_"), name.starts_with("dst_")) {
        (true, _) => kind.has_address()[0],
        (_, true) => kind.has_address()[1],
        _ => kind.has_address().contains(&true),
    };
    keys.iter().any(has).then_some(name)
}

/// Names of the columns about one of two addresses.
pub(super) fn of_addresses() -> impl Iterator<Item = &'static str> + Clone {
    let columns = COLUMNS.iter();
    let columns = columns.filter(|column| column.fits == Fits::Address);
    columns.map(|column| column.name)
}

/// A column of figures.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name, also of the member in JSON.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Meaning of the value.
    pub about: &'static str,
    /// Figures that rank the rows in which the column has a value.
    fits: Fits,
    of: fn(&RowOf<'_>) -> Cell,
    /// Names of the parts of a bound, in the order of [`BOUND_PARTS`].
    parts: [&'static str; 4],
}

/// Tables that have a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fits {
    All,
    /// Tables of packets and bytes.
    Weighed,
    /// Tables of packets and bytes of keys of both directions.
    Sides,
    /// Tables of packets and bytes of keys whose peaks are known.
    Peaks,
    /// Tables of keys with addresses.
    Address,
    /// Tables of distinct elements.
    Distinct,
    /// Tables of this number of elements.
    Only(By),
}

impl Fits {
    fn has(self, by: By) -> bool {
        match self {
            Self::All | Self::Address => true,
            Self::Weighed | Self::Sides | Self::Peaks => !by.is_distinct(),
            Self::Distinct => by.is_distinct(),
            Self::Only(other) => by == other,
        }
    }
}

macro_rules! columns {
    ($($name:literal $unit:ident $fits:expr, $about:literal $of:expr;)*) => {
        /// Columns of figures, in the order of lists.
        pub const COLUMNS: &[Column] = &[$(Column {
            name: $name, unit: Unit::$unit, about: $about, fits: $fits, of: $of,
            parts: [
                concat!($name, "_kind"), concat!($name, "_lower"), concat!($name, "_upper"), concat!($name, "_confidence"),
            ],
        },)*];
    };
}

columns! {
    "key" None Fits::All, "kind of key of the row (--key)"
        |row| Cell::Word(row.kind.to_string());
    "start" Time Fits::All, "begin of the window; without windows the time of the first packet"
        |row| row.span().map_or(Cell::None, |(from, _)| Cell::Time(from));
    "end" Time Fits::All, "end of the window; without windows the time of the last packet"
        |row| row.span().map_or(Cell::None, |(_, to)| Cell::Time(to));
    "revision" None Fits::All, "0; 1, 2 ...: a further result of a window, to be added to the earlier results"
        |row| Cell::Count(row.window.revision.into());
    "packets" Packets Fits::Weighed, "packets of the key"
        |row| count(row.by(Weigh::Packets));
    "bytes" Bytes Fits::Weighed, "bytes of the key on the wire, without FCS"
        |row| count(row.by(Weigh::Bytes));
    "tx_packets" Packets Fits::Sides, "packets sent, for keys of both directions"
        |row| count(row.side(|sides| sides.tx.packets));
    "tx_bytes" Bytes Fits::Sides, "bytes sent, for keys of both directions"
        |row| count(row.side(|sides| sides.tx.bytes));
    "rx_packets" Packets Fits::Sides, "packets received, for keys of both directions"
        |row| count(row.side(|sides| sides.rx.packets));
    "rx_bytes" Bytes Fits::Sides, "bytes received, for keys of both directions"
        |row| count(row.side(|sides| sides.rx.bytes));
    "packets_share" Share Fits::Weighed, "packets of the key, of all measured ones of the window"
        |row| real(row.share(Weigh::Packets));
    "bytes_share" Share Fits::Weighed, "bytes of the key, of all measured ones of the window"
        |row| real(row.share(Weigh::Bytes));
    "packets_per_s" PacketsPerSecond Fits::Weighed, "packets of the key per second of the covered part of the window"
        |row| real(row.rate(Weigh::Packets));
    "bits_per_s" BitsPerSecond Fits::Weighed, "bits of the key per second of the covered part of the window"
        |row| real(row.bit_rate());
    "first_seen" Time Fits::Weighed, "time of the first packet of the key; -: unknown, because packets may be missing"
        |row| row.first_seen();
    "last_seen" Time Fits::Weighed, "time of the last packet of the key; -: unknown, as before"
        |row| row.last_seen();
    "peak" PerSecond Fits::Peaks, "highest rate within one millisecond and in one direction, of the figure that ranks"
        |row| row.peak(row.answers.by.weigh().unwrap_or_default());
    "packets_peak" PacketsPerSecond Fits::Peaks, "most packets within one millisecond and in one direction, per second"
        |row| row.peak(Weigh::Packets);
    "bits_peak" BitsPerSecond Fits::Peaks, "most bits within one millisecond and in one direction, per second"
        |row| row.peak(Weigh::Bytes);
    "peers" Elements Fits::Only(By::Peers), "distinct addresses at the other end (--by peers)"
        |row| row.elements(By::Peers);
    "ports" Elements Fits::Only(By::Ports), "distinct destination ports (--by ports)"
        |row| row.elements(By::Ports);
    "contacts" Elements Fits::Only(By::Contacts), "distinct pairs of a peer and a destination port (--by contacts)"
        |row| row.elements(By::Contacts);
    "unanswered" Elements Fits::Distinct, "elements that sent nothing back"
        |row| count(row.spread().and_then(|row| row.unanswered));
    "refused" Elements Fits::Distinct, "elements that sent only TCP resets or ICMP errors back"
        |row| count(row.spread().and_then(|row| row.refused));
    "src_name" None Fits::Address, "name of the source or first end in the packets; -: none"
        |row| row.ends().cell("src_name");
    "dst_name" None Fits::Address, "name of the destination or other end in the packets; -: none"
        |row| row.ends().cell("dst_name");
    "src_asn" None Fits::Address, "number of the autonomous system of the source or first end (--geo); -: unknown"
        |row| row.ends().cell("src_asn");
    "dst_asn" None Fits::Address, "number of the autonomous system of the destination or other end (--geo); -: unknown"
        |row| row.ends().cell("dst_asn");
    "src_as_name" None Fits::Address, "name of the autonomous system of the source or first end (--geo); -: unknown"
        |row| row.ends().cell("src_as_name");
    "dst_as_name" None Fits::Address, "name of the autonomous system of the destination or other end (--geo); -: unknown"
        |row| row.ends().cell("dst_as_name");
    "src_country" None Fits::Address, "country of the source or first end (--geo); -: unknown"
        |row| row.ends().cell("src_country");
    "dst_country" None Fits::Address, "country of the destination or other end (--geo); -: unknown"
        |row| row.ends().cell("dst_country");
    "src_network" None Fits::Address, "network in the database of the source or first end (--geo); -: unknown"
        |row| row.ends().cell("src_network");
    "dst_network" None Fits::Address, "network in the database of the destination or other end (--geo); -: unknown"
        |row| row.ends().cell("dst_network");
    "bound" None Fits::All, "range of the true value of the figure that ranks"
        |row| match row.figures {
            Figures::Weighed(_) => bound(row.bound_of(row.answers.by.weigh().unwrap_or_default())),
            Figures::Spread(of) => Cell::Bound(of.bound, of.elements),
        };
    "packets_bound" None Fits::Weighed, "range of the true number of packets"
        |row| bound(row.bound_of(Weigh::Packets));
    "bytes_bound" None Fits::Weighed, "range of the true number of bytes"
        |row| bound(row.bound_of(Weigh::Bytes));
}

fn count(count: Option<u64>) -> Cell {
    count.map_or(Cell::None, Cell::Count)
}

fn real(value: Option<f64>) -> Cell {
    value.map_or(Cell::None, Cell::Real)
}

fn bound(of: Option<(Bound, u64)>) -> Cell {
    of.map_or(Cell::None, |(bound, figure)| Cell::Bound(bound, figure))
}

/// Column of names, which rows of addresses have too if `--columns` lists it.
const NAME: &str = "name";

/// Whether a list of columns has names.
pub fn has_names(list: &str) -> bool {
    let is_name = |column: &str| matches!(column, NAME | "src_name" | "dst_name");
    list.split(',').any(is_name)
}

/// Parts of keys: the name of the member, and what it is.
pub const KEY_COLUMNS: &[(&str, &str)] = &[
    ("src", "source address, or network with src/N"),
    ("dst", "destination address, or network with dst/N"),
    ("sport", "source port; -: none"),
    ("dport", "destination port; -: none"),
    ("proto", "name or number of the IP protocol"),
    ("fragment", "true: later fragments, which have no ports"),
    ("host", "address, or network with host/N"),
    ("service", "port of the service; -: none"),
    ("app", "name of the service, or protocol and port"),
    ("mac", "MAC address"),
    (
        "name",
        "name of the address in the packets (of two, the destination's first); -: none",
    ),
    ("process", "name of the process; -: none known"),
    ("pid", "number of the process; -: none known"),
    (
        "container",
        "name of the container or control group; -: no known process",
    ),
    ("asn", "number of the autonomous system; -: unknown"),
    (
        "as_name",
        "name of the autonomous system, its first 28 bytes; -: unknown",
    ),
    (
        "country",
        "country in two letters of ISO 3166-1; -: unknown",
    ),
    ("network", "network that the database holds; -: unknown"),
    ("smac", "source MAC address; -: none"),
    ("dmac", "destination MAC address; -: none"),
    ("vlan", "identifier of the VLAN tag; -: none"),
    ("mpls", "MPLS label; -: none"),
    ("vni", "network identifier of a tunnel; -: none"),
    ("ethertype", "name or number of the EtherType; -: none"),
    ("dscp", "differentiated services code point; -: none"),
    ("ttl", "time to live, or hop limit; -: none"),
    (
        "tcpflags",
        "TCP flags in the letters of tcpdump; -: not TCP",
    ),
    ("size", "class of the length on the wire, bytes"),
    ("interface", "name of the interface; -: unknown"),
    ("direction", "in, out; -: unknown"),
];

/// Parts of a bound, which separated values have in columns of their own: `bound_lower`.
pub const BOUND_PARTS: [(&str, &str); 4] = [
    ("kind", "exact, deterministic, probabilistic or none"),
    ("lower", "least possible value"),
    ("upper", "largest possible value"),
    ("confidence", "probability that a probabilistic bound holds"),
];

/// Names of the parts of keys of a kind.
pub(super) fn key_names(kind: KeyKind) -> Vec<&'static str> {
    let members = key_json(kind, &FlowKey::NONE, None);
    let is_flow = matches!(kind, KeyKind::FiveTuple | KeyKind::Conversation);
    let has = |name: &str| members.contains_key(name) || is_flow && name == "fragment";
    let names = KEY_COLUMNS.iter().map(|(name, _)| *name);
    names.filter(|name| has(name)).collect()
}

/// A column that an answer has.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Name of the column or of its part.
    source: Source,
    /// Part of a bound.
    part: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Key(&'static str),
    Figure(&'static Column),
}

impl Chosen {
    fn key(name: &'static str) -> Self {
        Self {
            source: Source::Key(name),
            part: None,
        }
    }

    fn figure(name: &str) -> Option<Self> {
        let column = COLUMNS.iter().find(|column| column.name == name)?;
        Some(Self {
            source: Source::Figure(column),
            part: None,
        })
    }

    /// Name of the column.
    pub fn name(&self) -> &'static str {
        match (self.source, self.part) {
            (Source::Key(name), _) => name,
            (Source::Figure(column), None) => column.name,
            (Source::Figure(column), Some(part)) => column.parts[part],
        }
    }

    /// Unit of the column.
    pub fn unit(&self) -> Unit {
        match self.source {
            Source::Key(_) => Unit::None,
            Source::Figure(column) => column.unit,
        }
    }

    /// Whether the column has ranges.
    fn is_bound(&self) -> bool {
        self.name().ends_with("bound")
    }

    /// Value in a row.
    pub fn cell(&self, row: &RowOf<'_>) -> Cell {
        let cell = match self.source {
            Source::Key(name) => match key_json(row.kind, row.key(), row.window.names).remove(name)
            {
                Some(value) => Cell::Key(value),
                None if name == NAME || kind_of_column(name).is_some() => row.ends().cell(name),
                None => Cell::None,
            },
            Source::Figure(column) => (column.of)(row),
        };
        match (cell, self.part) {
            (Cell::Bound(bound, _), Some(part)) => part_of(&bound, part),
            (cell, _) => cell,
        }
    }

    /// The columns of separated values: a bound has one for each of its parts.
    fn separated(self) -> Vec<Self> {
        match self.is_bound() {
            true => (0..BOUND_PARTS.len())
                .map(|part| Self {
                    part: Some(part),
                    ..self
                })
                .collect(),
            false => vec![self],
        }
    }
}

fn part_of(bound: &Bound, part: usize) -> Cell {
    let value = bound_json(bound)[BOUND_PARTS[part].0].take();
    match (value.as_u64(), value.as_f64(), value) {
        (Some(count), ..) => Cell::Count(count),
        (None, Some(real), _) => Cell::Real(real),
        (None, None, Value::String(word)) => Cell::Word(word),
        _ => Cell::None,
    }
}

impl Cell {
    /// The value in JSON.
    pub fn json(self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Count(count) => count.into(),
            Self::Real(real) => json!(real),
            Self::Time(ns) => stamp(ns).into(),
            Self::Key(value) => value,
            Self::Word(word) => word.into(),
            Self::Bound(bound, _) => bound_json(&bound),
        }
    }

    /// Adds the value to a row of separated values.
    pub(super) fn write(self, row: &mut RowWriter<'_>) {
        match self.json() {
            Value::Null => row.none("", 0),
            // What JSON says of a port that there is none.
            Value::String(text) if text == "-" => row.none("", 0),
            Value::String(text) => row.text("", 0, &text),
            value => row.number("", 0, format_args!("{value}")),
        }
    }
}

/// Chooses the columns of a list of names, separated by commas, for tables of `keys`. **Errors**: an unknown name; a
/// column that no table has; a name twice.
pub fn choose(list: &str, keys: &[KeyKind], by: By) -> Result<Vec<Chosen>, Refusal> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for name in list.split(',') {
        let one = named(name, keys, by)?;
        if chosen.iter().any(|before| before.name() == name) {
            refuse!("--columns names {name} twice: leave one out");
        }
        chosen.push(one);
    }
    Ok(chosen)
}

pub(super) fn no_key_has(name: &str, keys: &[KeyKind]) -> Refusal {
    let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
    refusal!(
        "--columns: no row of --key {} has the column {name}: leave it out, or add a --key that has it",
        keys.join(", ")
    )
}

fn named(name: &str, keys: &[KeyKind], by: By) -> Result<Chosen, Refusal> {
    if let Some((name, _)) = KEY_COLUMNS.iter().find(|(other, _)| *other == name) {
        let is_part = |kind: &KeyKind| key_names(*kind).contains(name);
        if !keys.iter().any(is_part) && beside(name, keys).is_none() {
            return Err(no_key_has(name, keys));
        }
        return Ok(Chosen::key(name));
    }
    let whole = Chosen::figure(name);
    let of_bound = || {
        let bounds = COLUMNS
            .iter()
            .filter_map(|column| Chosen::figure(column.name));
        let parts = bounds.filter(Chosen::is_bound).flat_map(Chosen::separated);
        let mut parts = parts;
        parts.find(|part| part.name() == name)
    };
    let Some(chosen) = whole.or_else(of_bound) else {
        let names = KEY_COLUMNS.iter().map(|(name, _)| *name);
        let names = names.chain(COLUMNS.iter().map(|column| column.name));
        return Err(refusal!(
            "--columns: unknown column '{name}'{}: weir help columns lists them",
            did_you_mean(name, names)
        ));
    };
    if let Source::Figure(column) = chosen.source
        && !column.fits.has(by)
    {
        refuse!(
            "--columns: no row of --by {by} has the column {name}: leave it out, or rank by another figure"
        );
    }
    if let Source::Figure(column) = chosen.source
        && column.fits == Fits::Address
        && beside(name, keys).is_none()
    {
        return Err(no_key_has(name, keys));
    }
    let fits = |kind: &KeyKind| match chosen.source {
        Source::Figure(column) if column.fits == Fits::Sides => kind.has_sides(),
        Source::Figure(column) if column.fits == Fits::Peaks => kind.has_peaks(),
        _ => true,
    };
    if !keys.iter().any(fits) {
        return Err(no_key_has(name, keys));
    }
    Ok(chosen)
}

/// The columns of separated values if none are named: the members of rows in JSON, with the window and the kind of key if there
/// are several.
pub fn usual(answers: &Answers, has_windows: bool) -> Vec<Chosen> {
    let keys = &answers.keys;
    let figures = |names: &[&str]| {
        let names = names.iter().filter_map(|name| Chosen::figure(name));
        names.collect::<Vec<_>>()
    };
    let mut chosen = Vec::new();
    if has_windows {
        chosen.extend(figures(&["start", "end", "revision"]));
    }
    if keys.len() > 1 {
        chosen.extend(figures(&["key"]));
    }
    for (name, _) in KEY_COLUMNS {
        if keys.iter().any(|kind| key_names(*kind).contains(name)) {
            chosen.push(Chosen::key(name));
        }
    }
    let has_sides = keys.iter().any(|kind| kind.has_sides());
    chosen.extend(members(answers.by, answers.by_rate, has_sides));
    chosen
}

/// The members of a row in JSON after its key.
fn members(by: By, by_rate: bool, has_sides: bool) -> Vec<Chosen> {
    let companion = match by {
        By::Bytes => "packets_bound",
        _ => "bytes_bound",
    };
    let figures: &[&str] = match by {
        By::Packets | By::Bytes => &["packets", "bytes"],
        By::Peers => &["peers", "unanswered", "refused"],
        By::Ports => &["ports", "unanswered", "refused"],
        By::Contacts => &["contacts", "unanswered", "refused"],
    };
    let sides: &[&str] = match has_sides && !by.is_distinct() {
        true => &["tx_packets", "tx_bytes", "rx_packets", "rx_bytes"],
        false => &[],
    };
    let bounds: &[&str] = match by.is_distinct() {
        true => &["bound"],
        false => &["bound", companion],
    };
    let rate: &[&str] = if by_rate { &["bits_per_s"] } else { &[] };
    let names = [rate, figures, sides, bounds].into_iter().flatten();
    names.filter_map(|name| Chosen::figure(name)).collect()
}

impl Answers {
    /// A row in JSON: the columns that were chosen, or its key and the usual figures.
    pub(super) fn row_json(&self, row: &RowOf<'_>) -> Value {
        let (mut object, columns) = match &self.columns {
            Some(columns) => (Map::new(), columns.clone()),
            None => (
                key_json(row.kind, row.key(), row.window.names),
                members(
                    self.by,
                    self.by_rate,
                    row.side(|sides| sides.tx.packets).is_some(),
                ),
            ),
        };
        for column in columns {
            object.insert(column.name().to_owned(), column.cell(row).json());
        }
        object.into()
    }

    /// Calls `each` with the rows of table `i` of a window, and returns the number of packets that are in no peak.
    pub fn rows<'a>(
        &'a self,
        window: &'a Window<'a>,
        i: usize,
        mut each: impl FnMut(&RowOf<'_>),
    ) -> u64 {
        let (Some(state), Some(&kind)) = (window.state, self.keys_of(window).get(i)) else {
            return 0;
        };
        let mut row = |figures: Figures<'_>| {
            each(&RowOf {
                answers: self,
                window,
                kind,
                figures,
            });
        };
        if self.by.is_distinct() {
            let table = state.spread(i, self.rows);
            table.rows.iter().for_each(|of| row(Figures::Spread(of)));
            return 0;
        }
        let table = self.table(window, i);
        table.rows.iter().for_each(|of| row(Figures::Weighed(of)));
        self.late(&table)
    }
}

/// Rows of windows as separated values.
#[derive(Clone, Debug)]
pub struct Separated {
    form: Form,
    columns: Vec<Chosen>,
}

impl Separated {
    /// Rows of these columns.
    pub fn new(form: Form, columns: &[Chosen]) -> Self {
        let separated = columns.iter().flat_map(|column| column.separated());
        Self {
            form,
            columns: separated.collect(),
        }
    }

    /// The line with the names of the columns.
    pub fn heading(&self) -> String {
        heading(
            self.form,
            self.columns.iter().map(|column| (column.name(), 0)),
        )
    }

    /// The rows of all tables of a window.
    pub fn window(&self, answers: &Answers, window: &Window<'_>) -> String {
        let mut out = String::new();
        for i in 0..answers.keys_of(window).len() {
            answers.rows(window, i, |of| {
                let mut row = RowWriter::new(&mut out, self.form, "");
                for column in &self.columns {
                    column.cell(of).write(&mut row);
                }
                row.end();
            });
        }
        out
    }
}

/// Whether a bound says that the figure is the true value.
pub fn is_exact(bound: &Bound) -> bool {
    match bound.kind {
        BoundKind::Exact => true,
        // A probable bound is never called exact.
        BoundKind::Deterministic => bound.lower == bound.upper,
        BoundKind::Probabilistic { .. } | BoundKind::None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_key_is_listed() {
        let kinds = KeyKind::NAMES.iter().map(|(_, kind)| *kind);
        let fields = KeyKind::FIELDS.iter();
        let fields = fields.map(|name| name.parse().expect("the name of a kind"));
        for kind in kinds.chain(fields) {
            for name in key_json(kind, &FlowKey::NONE, None).keys() {
                assert!(
                    KEY_COLUMNS.iter().any(|(listed, _)| listed == name),
                    "{kind} has {name}"
                );
            }
        }
    }

    #[test]
    fn columns_that_no_row_has_are_refused() {
        let choose = |list: &str, by| choose(list, &[KeyKind::SRC, KeyKind::Dport], by);
        let names = |list: &str| -> Vec<&str> {
            let chosen = choose(list, By::Packets).expect("columns");
            chosen.iter().map(Chosen::name).collect()
        };
        assert_eq!(
            names("dport,bytes,bound,bound_lower"),
            ["dport", "bytes", "bound", "bound_lower"]
        );
        let separated = Separated::new(Form::Csv, &choose("src,bound", By::Bytes).unwrap());
        assert_eq!(
            separated.heading(),
            "src,bound_kind,bound_lower,bound_upper,bound_confidence\r\n"
        );
        for (list, by, why) in [
            ("", By::Packets, "unknown column ''"),
            ("pakets", By::Packets, "(did you mean packets?)"),
            ("src,src", By::Packets, "names src twice"),
            (
                "dst",
                By::Packets,
                "no row of --key src, dport has the column dst",
            ),
            (
                "tx_bytes",
                By::Packets,
                "no row of --key src, dport has the column tx_bytes",
            ),
            (
                "peers",
                By::Packets,
                "no row of --by packets has the column peers",
            ),
            (
                "bytes",
                By::Ports,
                "no row of --by ports has the column bytes",
            ),
            ("packets_lower", By::Packets, "unknown column"),
        ] {
            let Err(refusal) = choose(list, by) else {
                panic!("{list} is refused")
            };
            assert!(refusal.0.contains(why), "{list}: {refusal}");
        }
    }
}
