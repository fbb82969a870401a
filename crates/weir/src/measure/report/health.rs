//! Lines and tables on the health of the traffic.

mod dns;

use super::endpoint;
use crate::numbers::{bytes, counted, grouped, latency, packets, percent};
use crate::table::{Column, Narrow, grid};
use crate::terminal::output_width;
use std::fmt::Write as _;
use weir_measure::health::Report;
use weir_measure::health::path::{self, Fragments, TooBig};
use weir_measure::health::tcp::{self, Figures, Row};
use weir_messages::measured::proto_name;

/// Text on the health of a window or of all packets.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    if let Some(report) = &report.tcp {
        out.push_str(&tcp_text(report));
    }
    if let Some(report) = &report.dns {
        out.push_str(&dns::text(report));
    }
    if let Some(report) = &report.path {
        out.push_str(&path_text(report));
    }
    out
}

fn tcp_text(report: &tcp::Report) -> String {
    let (numbers, sum) = (&report.numbers, &report.sum);
    let mut out = format!(
        "\n  TCP: {}, {}",
        counted(numbers.conversations, "conversation"),
        packets(sum.packets)
    );
    if numbers.midway > 0 {
        let _ = write!(out, "; {} began before (*)", grouped(numbers.midway));
    }
    let _ = writeln!(
        out,
        "\n  retransmitted {} ({}, {}), of these fast {}, spurious {}",
        grouped(sum.retransmitted),
        percent(sum.retransmitted, sum.packets),
        bytes(sum.retransmitted_bytes),
        grouped(sum.fast),
        grouped(sum.spurious),
    );
    let _ = writeln!(
        out,
        "  repeated {}, out of order {}, gaps {}, duplicate ACKs {}, zero windows {}, resets {}",
        grouped(sum.repeated),
        grouped(sum.out_of_order),
        grouped(sum.gaps),
        grouped(sum.duplicate_acks),
        grouped(sum.zero_windows),
        grouped(sum.resets),
    );
    if let (Some((min, max)), Some(mean)) = (sum.rtt.range_ns(), sum.rtt.mean_ns()) {
        let _ = writeln!(
            out,
            "  RTT {} to {}, mean {}, of {}",
            latency(min),
            latency(max),
            latency(mean),
            counted(sum.rtt.count, "acknowledgement"),
        );
    }
    if !report.rows.is_empty() {
        out.push_str(&grid(&tcp_columns(&report.rows), output_width()));
    }
    out.push_str(&limits(report));
    out
}

/// Lines on what the tables did not hold; empty if they held everything.
fn limits(report: &tcp::Report) -> String {
    let (numbers, sum) = (&report.numbers, &report.sum);
    let mut out = String::new();
    if numbers.evicted > 0 {
        let _ = writeln!(
            out,
            "  the table of {} was full: {} are in no row, with at most {} retransmitted each; raise --memory",
            counted(report.capacity, "conversation"),
            grouped(numbers.evicted),
            grouped(numbers.evicted_retransmitted),
        );
    }
    if sum.untimed > 0 {
        let _ = writeln!(
            out,
            "  no room to time the acknowledgements of {}; raise --memory",
            counted(sum.untimed, "segment")
        );
    }
    if numbers.unjudged > 0 {
        let _ = writeln!(
            out,
            "  not judged, because they are fragments or cut: {}",
            packets(numbers.unjudged)
        );
    }
    out
}

/// Two lines for each conversation: what each end sent.
fn tcp_columns(rows: &[Row]) -> Vec<Column> {
    let cells = |first: &dyn Fn(usize, &Row) -> String, second: &dyn Fn(&Row) -> String| {
        let both = rows
            .iter()
            .enumerate()
            .flat_map(|(i, row)| [first(i, row), second(row)]);
        both.collect::<Vec<String>>()
    };
    let column = |title, narrow, cell: &dyn Fn(&Figures) -> String| Column {
        title,
        cells: cells(&|_, row| cell(&row.directions[0]), &|row| {
            cell(&row.directions[1])
        }),
        right: true,
        narrow,
    };
    let count = |title, narrow, of: fn(&Figures) -> u64| {
        column(title, narrow, &|figures| grouped(of(figures)))
    };
    let time = |title, narrow, of: fn(&Figures) -> Option<i64>| {
        column(title, narrow, &|figures| {
            of(figures).map_or("-".to_owned(), latency)
        })
    };
    let mark = |row: &Row| if row.begun { "" } else { "*" };
    vec![
        Column::right(
            "#",
            cells(&|i, row| format!("{}{}", mark(row), i + 1), &|_| {
                String::new()
            })
            .into_iter(),
        ),
        Column::left(
            "sent by",
            cells(&|_, row| endpoint(&row.key, true), &|row| {
                endpoint(&row.key, false)
            })
            .into_iter(),
        ),
        count("packets", Narrow::Leaves(3), |figures| figures.packets),
        count("retrans", Narrow::Stays, |figures| figures.retransmitted),
        column("share", Narrow::Leaves(4), &|figures| {
            percent(figures.retransmitted, figures.packets)
        }),
        count("repeated", Narrow::Leaves(5), |figures| figures.repeated),
        count("out of\norder", Narrow::Stays, |figures| {
            figures.out_of_order
        }),
        count("dup\nACKs", Narrow::Stays, |figures| figures.duplicate_acks),
        count("zero\nwin", Narrow::Stays, |figures| figures.zero_windows),
        count("resets", Narrow::Stays, |figures| figures.resets),
        time("RTT\nmean", Narrow::Stays, |figures| figures.rtt.mean_ns()),
        time("RTT\nmax", Narrow::Leaves(2), |figures| {
            figures.rtt.range_ns().map(|(_, max)| max)
        }),
        Column {
            title: "handshake",
            cells: cells(
                &|_, row| row.handshake_ns.map_or("-".to_owned(), latency),
                &|_| String::new(),
            ),
            right: true,
            narrow: Narrow::Leaves(1),
        },
    ]
}

fn path_text(report: &path::Report) -> String {
    let mut out = format!(
        "\n  MTU: {}, {} that a packet is too big\n",
        counted(report.all_fragments, "fragment"),
        counted(report.all_too_big, "message"),
    );
    if !report.too_big.is_empty() {
        let column = |title, cell: &dyn Fn(&TooBig) -> String| {
            Column::right(
                title,
                report
                    .too_big
                    .iter()
                    .map(cell)
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        };
        let left = |title, cell: &dyn Fn(&TooBig) -> String| Column {
            right: false,
            ..column(title, cell)
        };
        out.push_str(&grid(
            &[
                left("router", &|row| row.router.to_string()),
                left("too big on the way to", &|row| {
                    row.destination
                        .map_or("-".to_owned(), |address| address.to_string())
                }),
                column("MTU", &|row| {
                    row.mtu.map_or("-".to_owned(), |mtu| grouped(mtu.into()))
                }),
                column("messages", &|row| grouped(row.messages)),
            ],
            output_width(),
        ));
    }
    if !report.fragments.is_empty() {
        let column = |title, cell: &dyn Fn(&Fragments) -> String| {
            Column::right(
                title,
                report
                    .fragments
                    .iter()
                    .map(cell)
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        };
        let left = |title, cell: &dyn Fn(&Fragments) -> String| Column {
            right: false,
            ..column(title, cell)
        };
        out.push_str(&grid(
            &[
                left("fragments from", &|row| row.source.to_string()),
                left("to", &|row| row.destination.to_string()),
                left("proto", &|row| proto_name(row.proto)),
                column("fragments", &|row| grouped(row.fragments)),
                column("packets", &|row| grouped(row.packets)),
                column("bytes", &|row| bytes(row.bytes)),
            ],
            output_width(),
        ));
    }
    out
}
