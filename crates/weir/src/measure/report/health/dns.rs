//! Lines and tables on the health of DNS.

use crate::numbers::{counted, grouped, latency, percent};
use crate::table::{Column, Narrow, grid, shortened_to};
use crate::terminal::output_width;
use std::fmt::Write as _;
use weir_measure::health::dns::{Figures, NameRow, Report};
use weir_messages::health::code_name;

/// Most characters of a name in a row.
const NAME: usize = 60;

pub(super) fn text(report: &Report) -> String {
    let sum = &report.sum;
    let answers: u64 = sum.codes.iter().sum();
    let mut out = format!(
        "\n  DNS: {}, answered {} ({}), unanswered {}, retransmitted {}\n",
        match sum.queries {
            1 => "1 query".to_owned(),
            n => format!("{} queries", grouped(n)),
        },
        grouped(answers),
        percent(answers, sum.queries),
        grouped(sum.unanswered),
        grouped(sum.retransmitted),
    );
    let codes = sum
        .codes
        .iter()
        .enumerate()
        .filter(|(_, answers)| **answers > 0);
    let codes: Vec<String> = codes
        .map(|(code, answers)| format!("{} {}", code_name(code), grouped(*answers)))
        .collect();
    if !codes.is_empty() {
        let _ = writeln!(out, "  {}", codes.join(", "));
    }
    let servers = report
        .servers
        .iter()
        .map(|row| (row.server.to_string(), &row.figures));
    out.push_str(&table("server", servers.collect()));
    for (title, rows) in [
        ("slowest names", &report.slow),
        ("failing names", &report.failing),
        ("unanswered names", &report.unanswered),
    ] {
        let row = |row: &NameRow| shortened_to(NAME, &row.name.to_string());
        let rows = rows.iter().map(|name| (row(name), &name.figures));
        out.push_str(&table(title, rows.collect()));
    }
    out.push_str(&limits(report));
    out
}

/// Lines on what the tables did not hold, and on answers without a query; empty if there is nothing to say.
fn limits(report: &Report) -> String {
    let mut out = String::new();
    let evicted = [
        (report.evicted_queries, "queries"),
        (report.evicted_names, "names"),
        (report.evicted_servers, "servers"),
    ];
    for (evicted, what) in evicted.into_iter().filter(|(evicted, _)| *evicted > 0) {
        let _ = writeln!(
            out,
            "  the table of {what} was full, and {} lost their places; raise --memory",
            grouped(evicted)
        );
    }
    if report.sum.unasked > 0 {
        let _ = writeln!(
            out,
            "  answers to queries that were not seen: {}",
            grouped(report.sum.unasked)
        );
    }
    if report.unread > 0 {
        let _ = writeln!(
            out,
            "  not read, because they are cut or in several segments of TCP: {}",
            counted(report.unread, "message")
        );
    }
    out
}

fn table(title: &'static str, rows: Vec<(String, &Figures)>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let column = |title, narrow, cell: &dyn Fn(&Figures) -> String| Column {
        title,
        cells: rows.iter().map(|(_, figures)| cell(figures)).collect(),
        right: true,
        narrow,
    };
    let count = |title, narrow, of: fn(&Figures) -> u64| {
        column(title, narrow, &|figures| grouped(of(figures)))
    };
    let time = |title, of: fn(&Figures) -> Option<i64>| {
        column(title, Narrow::Stays, &|figures| {
            of(figures).map_or("-".to_owned(), latency)
        })
    };
    let columns = [
        Column::left(title, rows.iter().map(|(key, _)| key.clone())),
        count("queries", Narrow::Stays, |figures| figures.queries),
        count("no\nanswer", Narrow::Stays, |figures| figures.unanswered),
        count("failed", Narrow::Stays, Figures::failed),
        count("retrans", Narrow::Leaves(1), |figures| {
            figures.retransmitted
        }),
        time("median", |figures| figures.times.median_ns()),
        time("max", |figures| {
            Some(figures.times.max_ns).filter(|_| figures.times.count > 0)
        }),
    ];
    grid(&columns, output_width())
}
