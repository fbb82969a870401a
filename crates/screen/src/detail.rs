//! All figures of a row.

use crate::draw::Canvas;
use crate::graph::spark;
use crate::rows::{Id, bytes_bound, dns_of, tcp_of};
use crate::text::{lines_of, packet_rate};
use crate::ui::{Chosen, flow_of};
use weir_measure::health::{dns, tcp};
use weir_measure::{Counts, bits_per_second, per_second};
use weir_messages::measured::columns::is_exact;
use weir_messages::measured::name;
use weir_messages::numbers::{bit_rate, bytes, grouped, latency, packets, percent};
use weir_view::{Row, Table};

/// Draws the page of a row.
pub(crate) fn draw(canvas: &mut Canvas<'_>, chosen: &Chosen) {
    let (first, end) = canvas.lines();
    let look = canvas.scene.look;
    let (width, _) = canvas.size();
    let mut first = first;
    // The whole key, however long, since tables may have shortened it.
    for line in lines_of(&chosen.name, usize::from(width) - 2) {
        canvas.put(1, first, &line, look.accent());
        first += 1;
    }
    let lines = figures(canvas, chosen);
    for ((label, value), y) in lines.into_iter().zip(first..end) {
        canvas.put(3, y, &label, look.faint());
        canvas.put(22, y, &value, look.plain());
    }
}

type Line = (String, String);

fn figures(canvas: &Canvas<'_>, chosen: &Chosen) -> Vec<Line> {
    let Some(snapshot) = canvas.scene.snapshot else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if let Id::Key(kind, key) = &chosen.id {
        let table = snapshot.tables.iter().find(|table| table.kind == *kind);
        let row = table.and_then(|table| {
            let row = table.rows.iter().find(|row| row.listed.key == *key)?;
            Some((table, row))
        });
        match row {
            Some((table, row)) => lines.extend(counts(canvas, table, row)),
            None => lines.push((
                name(*kind, key),
                "no packets in this time, or not among the largest".to_owned(),
            )),
        }
    }
    let dns = snapshot.health.as_ref().and_then(|it| it.dns.as_ref());
    if let (Id::Server(_) | Id::Name(_), Some(report)) = (&chosen.id, dns) {
        match dns_of(report, &chosen.id) {
            Some(figures) => lines.extend(dns_lines(figures)),
            None => lines.push(("queries".to_owned(), "none in this second".to_owned())),
        }
    }
    let row = flow_of(&chosen.id)
        .zip(snapshot.health.as_ref())
        .and_then(|(key, report)| tcp_of(report, key));
    lines.extend(row.map(tcp_lines).into_iter().flatten());
    lines
}

fn counts(canvas: &Canvas<'_>, table: &Table, row: &Row) -> Vec<Line> {
    let (listed, ns) = (&row.listed, table.covered_ns);
    let words = |counts: Counts| {
        let rate = bits_per_second(counts.bytes, ns).map_or("-".to_owned(), bit_rate);
        let pace = per_second(counts.packets, ns).map_or("-".to_owned(), packet_rate);
        let sums = (packets(counts.packets), bytes(counts.bytes));
        format!("{rate}, {pace}  ({}, {})", sums.0, sums.1)
    };
    let line = |label: &str, value: String| (label.to_owned(), value);
    let mut lines = vec![line("all", words(listed.counts))];
    if let Some(sides) = listed.sides {
        lines.push(line("sends", words(sides.tx)));
        lines.push(line("receives", words(sides.rx)));
    }
    let measured = canvas
        .scene
        .snapshot
        .map_or(0, |it| it.totals.measured.bytes);
    lines.push(line(
        "share of all bytes",
        percent(listed.counts.bytes, measured),
    ));
    let range = bytes_bound(table, row);
    if !is_exact(&range) {
        let ends = (bytes(range.lower), bytes(range.upper));
        lines.push(line("bytes between", format!("{} and {}", ends.0, ends.1)));
    }
    if let Some(seen) = &row.seen {
        let (first, last) = (canvas.clock(seen.first_ns), canvas.clock(seen.last_ns));
        lines.push(line("seen", format!("{first} to {last}")));
        let now = bits_per_second(listed.counts.bytes, ns).unwrap_or(0.0);
        let peak = seen.peak_bits_per_s as f64;
        // A step of which the sources cover a part has its rate in that part.
        let (peak, at_ns) = match (now > peak, canvas.scene.snapshot) {
            (true, Some(snapshot)) => (now, snapshot.from_ns),
            _ => (peak, seen.peak_ns),
        };
        let words = format!("{} at {}", bit_rate(peak), canvas.clock(at_ns));
        lines.push(line("peak", words));
    }
    let history: Vec<Option<f64>> = row
        .history
        .iter()
        .map(|it| it.map(|it| it.bytes as f64))
        .collect();
    let graph = spark(&history, history.len(), canvas.scene.look.ascii);
    lines.push(line("last steps", graph));
    lines
}

fn dns_lines(figures: &dns::Figures) -> Vec<Line> {
    let line = |label: &str, value: String| (label.to_owned(), value);
    let times = &figures.times;
    let mut lines = vec![line("queries", grouped(figures.queries))];
    if let Some(mean) = times.mean_ns() {
        let words = format!("mean {}, longest {}", latency(mean), latency(times.max_ns));
        lines.push(line("times of answers", words));
    }
    let codes = [
        "answers",
        "format errors",
        "server failures",
        "no such name",
    ];
    let codes = codes.into_iter().chain(["not implemented", "refused"]);
    for (label, count) in codes.zip(figures.codes).filter(|(_, count)| *count > 0) {
        lines.push(line(label, grouped(count)));
    }
    let others: u64 = figures.codes[6..].iter().sum();
    for (label, count) in [
        ("other failures", others),
        ("without an answer", figures.unanswered),
        ("sent again", figures.retransmitted),
        ("answers repeated", figures.repeated),
        ("answers unasked", figures.unasked),
    ] {
        if count > 0 {
            lines.push(line(label, grouped(count)));
        }
    }
    lines
}

fn tcp_lines((handshake_ns, directions): (Option<i64>, [&tcp::Figures; 2])) -> Vec<Line> {
    let line = |label: &str, value: String| (label.to_owned(), value);
    let mut lines = Vec::new();
    if let Some(time) = handshake_ns {
        lines.push(line("TCP handshake", latency(time)));
    }
    for (label, figures) in ["TCP ->", "TCP <-"].into_iter().zip(directions) {
        let again = grouped(figures.retransmitted);
        let share = percent(figures.retransmitted, figures.packets);
        let rtt = figures.rtt.mean_ns().map_or("-".to_owned(), latency);
        let resets = grouped(figures.resets);
        lines.push(line(
            label,
            format!("{again} sent again ({share}), RTT {rtt}, {resets} resets"),
        ));
        let [unordered, duplicates, zero] = [
            figures.out_of_order,
            figures.duplicate_acks,
            figures.zero_windows,
        ]
        .map(grouped);
        lines.push(line(
            "",
            format!("{unordered} unordered, {duplicates} dup ACKs, {zero} zero windows"),
        ));
    }
    lines
}
