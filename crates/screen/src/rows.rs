//! Rows of a tab: their cells, and the figures that order them.

use crate::graph::spark;
use crate::look::Look;
use crate::text::{age, clean, packet_rate, shortened, shortened_key};
use crate::ui::{Only, Tab};
use std::net::IpAddr;
use weir_measure::health::{self, dns, tcp};
use weir_measure::{Bound, BoundKind, Counts, KeyKind, bits_per_second, per_second};
use weir_messages::measured::columns::is_exact;
use weir_messages::measured::name;
use weir_messages::numbers::{bit_rate, grouped, latency, percent};
use weir_packet::flow::FlowKey;
use weir_view::{Row as Listed, Snapshot, Table};

/// Identity of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// A key of a table.
    Key(KeyKind, FlowKey),
    /// A TCP conversation.
    Tcp(FlowKey),
    /// A DNS server.
    Server(IpAddr),
    /// A DNS name.
    Name(String),
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub id: Id,
    /// Cells, one for each column of the tab.
    pub cells: Vec<String>,
    /// Name of the host in the first cell.
    pub name: Option<String>,
    /// Figures, one for each [order](Tab::orders) of the tab, the largest first.
    pub ranks: Vec<f64>,
}

impl Row {
    /// Title of the row.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} {name}", self.cells[0]),
            None => self.cells[0].clone(),
        }
    }

    /// The title in `room` characters. The address is whole as long as the room suffices, and the name is cut.
    pub fn title_in(&self, room: usize) -> String {
        /// Least characters of a name that is cut.
        const LEAST: usize = 8;
        let left = room.saturating_sub(self.cells[0].chars().count() + 1);
        match &self.name {
            Some(name) if left >= name.chars().count().min(LEAST) => {
                format!("{} {}", self.cells[0], shortened(name, left))
            }
            _ => shortened_key(&self.cells[0], room),
        }
    }
}

/// Rows of a tab that a choice lets pass, unordered.
pub(crate) fn of(
    (tab, kind): (Tab, Option<KeyKind>),
    snapshot: &Snapshot,
    only: Option<&Only>,
    look: Look,
) -> Vec<Row> {
    let mut rows = match tab {
        Tab::Hosts | Tab::Services | Tab::Conversations | Tab::Key => {
            let mut tables = snapshot.tables.iter();
            let table = tables.find(|table| Some(table.kind) == kind);
            let rows = table.into_iter().flat_map(|table| {
                let rows = table.rows.iter();
                rows.map(|row| counted(tab, snapshot, (table, row), look))
            });
            rows.collect()
        }
        Tab::Tcp => {
            let report = snapshot.health.as_ref().and_then(|it| it.tcp.as_ref());
            report.map_or(Vec::new(), |report| {
                report.rows.iter().map(tcp_row).collect()
            })
        }
        Tab::Dns => {
            let report = snapshot.health.as_ref().and_then(|it| it.dns.as_ref());
            report.map_or(Vec::new(), |report| dns_rows(report, look))
        }
    };
    if let Some(only) = only {
        rows.retain(|row| only.passes(&row.id));
    }
    rows
}

/// A rate, with `~` if the figure is not exact.
fn rate(counts: Counts, ns: u64, is_exact: bool) -> String {
    match bits_per_second(counts.bytes, ns) {
        None | Some(0.0) => "-".to_owned(),
        Some(rate) if is_exact => bit_rate(rate),
        Some(rate) => format!("~{}", rounded(rate)),
    }
}

/// A rate that is not exact, with two digits if more of them have no room.
fn rounded(rate: f64) -> String {
    /// Characters in the column after `~`.
    const ROOM: usize = 10;
    let text = bit_rate(rate);
    if text.len() <= ROOM {
        return text;
    }
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    let text = bit_rate((rate / unit).round() * unit);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// The part of a figure by which the truth may be less or more; empty if it is exact.
pub(crate) fn bound(figure: u64, bound: &Bound) -> String {
    if is_exact(bound) {
        return String::new();
    }
    if bound.kind == BoundKind::None || figure == 0 {
        return "unknown".to_owned();
    }
    let away = figure
        .saturating_sub(bound.lower)
        .max(bound.upper.saturating_sub(figure));
    format!("+-{}", percent(away, figure))
}

/// The range of the bytes of a row.
pub(crate) fn bytes_bound(table: &Table, row: &Listed) -> Bound {
    match table.by {
        weir_measure::Weigh::Bytes => row.listed.bound,
        weir_measure::Weigh::Packets => row.listed.companion,
    }
}

fn counted(tab: Tab, snapshot: &Snapshot, (table, row): (&Table, &Listed), look: Look) -> Row {
    let (listed, ns) = (&row.listed, table.covered_ns);
    let range = bytes_bound(table, row);
    let exact = is_exact(&range);
    let (tx, rx) = match listed.sides {
        Some(sides) => (sides.tx, sides.rx),
        None => (listed.counts, Counts::default()),
    };
    let history: Vec<Option<f64>> = row
        .history
        .iter()
        .map(|counts| counts.map(|counts| counts.bytes as f64))
        .collect();
    let first = row.seen.as_ref().map(|seen| seen.first_ns);
    let seen = first.map(|first| age(snapshot.to_ns.saturating_sub(first)));
    let packets = per_second(listed.counts.packets, ns).unwrap_or(0.0);
    let peak = row
        .seen
        .as_ref()
        .map_or(listed.peak_bits_per_s, |seen| seen.peak_bits_per_s);
    // A step of which the sources cover a part has its rate in that part.
    let now = bits_per_second(listed.counts.bytes, ns).unwrap_or(0.0);
    let cells = vec![
        clean(&name(table.kind, &listed.key), look.ascii),
        rate(tx, ns, exact),
        rate(rx, ns, exact),
        percent(listed.counts.bytes, snapshot.totals.measured.bytes),
        spark(&history, crate::columns::HISTORY.into(), look.ascii),
        seen.unwrap_or_else(|| "-".to_owned()),
        packet_rate(packets),
        bit_rate((peak as f64).max(now)),
        bound(listed.counts.bytes, &range),
    ];
    let figures = [
        listed.counts.bytes as f64,
        tx.bytes as f64,
        rx.bytes as f64,
        listed.counts.packets as f64,
        first.map_or(f64::MIN, |first| first as f64),
    ];
    debug_assert_eq!(figures.len(), tab.orders().len());
    Row {
        id: Id::Key(table.kind, listed.key),
        cells,
        name: None,
        ranks: figures.into(),
    }
}

fn tcp_row(row: &tcp::Row) -> Row {
    let [there, back] = &row.directions;
    let sum = |part: fn(&tcp::Figures) -> u64| part(there) + part(back);
    let again = sum(|it| it.retransmitted);
    let segments = sum(|it| it.packets);
    let rtt = there.rtt.mean_ns().max(back.rtt.mean_ns());
    let time = |ns: Option<i64>| ns.map_or("-".to_owned(), latency);
    let cells = vec![
        name(KeyKind::Conversation, &row.key),
        grouped(again),
        percent(again, segments),
        grouped(sum(|it| it.resets)),
        time(rtt),
        time(row.handshake_ns),
        grouped(sum(|it| it.out_of_order)),
        grouped(sum(|it| it.duplicate_acks)),
        grouped(sum(|it| it.zero_windows)),
    ];
    Row {
        id: Id::Tcp(row.key),
        cells,
        name: None,
        ranks: vec![
            again as f64,
            rtt.unwrap_or(0) as f64,
            sum(|it| it.resets) as f64,
            segments as f64,
        ],
    }
}

fn dns_rows(report: &dns::Report, look: Look) -> Vec<Row> {
    let servers = report.servers.iter().map(|row| {
        let name = format!("server {}", row.server);
        dns_row(Id::Server(row.server), name, &row.figures)
    });
    let mut rows: Vec<Row> = servers.collect();
    for row in dns_names(report) {
        let id = Id::Name(row.name.to_string());
        if !rows.iter().any(|other| other.id == id) {
            let name = clean(&row.name.to_string(), look.ascii);
            rows.push(dns_row(id, name, &row.figures));
        }
    }
    rows
}

/// Names with their figures; a name may come twice.
fn dns_names(report: &dns::Report) -> impl Iterator<Item = &dns::NameRow> {
    let troubled = report.failing.iter().chain(&report.unanswered);
    report.slow.iter().chain(troubled)
}

/// DNS figures of a server or a name.
pub(crate) fn dns_of<'a>(report: &'a dns::Report, id: &Id) -> Option<&'a dns::Figures> {
    match id {
        Id::Server(server) => {
            let row = report.servers.iter().find(|row| row.server == *server);
            row.map(|row| &row.figures)
        }
        Id::Name(name) => dns_names(report)
            .find(|row| row.name.to_string() == *name)
            .map(|row| &row.figures),
        Id::Key(..) | Id::Tcp(_) => None,
    }
}

fn dns_row(id: Id, name: String, figures: &dns::Figures) -> Row {
    let failed = figures.failed();
    let times = &figures.times;
    let mean = times.mean_ns();
    let time = |ns: Option<i64>| ns.map_or("-".to_owned(), latency);
    let cells = vec![
        name,
        grouped(figures.queries),
        time(mean),
        time(mean.map(|_| times.max_ns)),
        grouped(failed),
        grouped(figures.unanswered),
    ];
    Row {
        id,
        cells,
        name: None,
        ranks: vec![
            figures.queries as f64,
            mean.unwrap_or(0) as f64,
            failed as f64,
            figures.unanswered as f64,
        ],
    }
}

/// TCP health of a conversation: its handshake, ns, and the figures of both directions, from the source of `key` first.
pub(crate) fn tcp_of<'a>(
    report: &'a health::Report,
    key: &FlowKey,
) -> Option<(Option<i64>, [&'a tcp::Figures; 2])> {
    let mut rows = report.tcp.as_ref()?.rows.iter();
    let wanted = key.canonical();
    let row = rows.find(|row| row.key.canonical() == wanted)?;
    let [there, back] = &row.directions;
    let is_same = (row.key.src, row.key.sport) == (key.src, key.sport);
    let directions = if is_same {
        [there, back]
    } else {
        [back, there]
    };
    Some((row.handshake_ns, directions))
}
