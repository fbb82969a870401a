//! Messages on sources that failed, and on packets that are missing or make no sense.

use crate::errors::{io_words, quoted};
use crate::numbers::{bytes, grouped, packets};
use std::path::Path;
use weir_engine::name::interface_of;
use weir_engine::provenance::holds_only;
use weir_engine::records::{Damaged, uncounted_words};
use weir_packet::flow::Around;
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::{Fault, Layout, MAX_TEXT};
use weir_pipeline::SourceFault;
use weir_pipeline::reader::{Report, SourceError};
use weir_pipeline::select::shortened;
use weir_pipeline::select::{Misfit, Select, Span};

/// Line about a source that failed: its place, the cause, and the packets delivered before.
pub fn fault_line(name: &str, fault: &SourceFault) -> String {
    let SourceFault {
        packet,
        offset,
        what,
    } = fault;
    if let SourceError::Io(error) = what
        && let Some(damaged) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Damaged>())
    {
        return format!("{name}: {damaged}; all else was read");
    }
    let words = source_error_words(what);
    if (*packet, *offset) == (1, 0) {
        // Nothing was read: a place and a number of packets would say no more.
        return format!("{name}: {words}{}", kind_words(name, what));
    }
    format!(
        "{name}: packet {packet}, offset {offset}: {words}; {}",
        kept_words(packet - 1)
    )
}

/// Command for the kind of a file that is not a capture; empty for other errors and for standard input.
fn kind_words(name: &str, what: &SourceError) -> String {
    match what {
        SourceError::Format(Fault::Magic(_)) if Path::new(name).is_file() => {
            format!(": file {} says what it is", quoted(name))
        }
        _ => String::new(),
    }
}

/// Short description of a source's error.
pub fn source_error_words(what: &SourceError) -> String {
    match what {
        SourceError::Io(error) => io_words(error),
        what => what.to_string(),
    }
}

fn kept_words(delivered: u64) -> String {
    match delivered {
        0 => "no packet was delivered".to_owned(),
        1 => "the packet before it was delivered".to_owned(),
        n => format!("{n} packets before it were delivered"),
    }
}

/// Errors of captures. Workers and queues of an interface share its errors, so that equal errors
/// are one line.
#[derive(Debug, Default)]
pub struct LiveFaults(Vec<LiveFault>);

#[derive(Debug)]
struct LiveFault {
    /// Name of the source, or of the interface if several of its sources have this error.
    name: String,
    what: String,
    delivered: u64,
}

impl LiveFaults {
    /// Adds the error of a source.
    pub fn add(&mut self, name: &str, fault: &SourceFault) {
        let (what, delivered) = (source_error_words(&fault.what), fault.packet - 1);
        let same = |known: &&mut LiveFault| {
            interface_of(&known.name) == interface_of(name) && known.what == what
        };
        match self.0.iter_mut().find(same) {
            Some(known) => {
                interface_of(name).clone_into(&mut known.name);
                known.delivered += delivered;
            }
            None => self.0.push(LiveFault {
                name: name.to_owned(),
                what,
                delivered,
            }),
        }
    }

    /// A line about each error, without offset or packet number, which a capture does not have.
    pub fn lines(&self) -> Vec<String> {
        let line = |fault: &LiveFault| {
            format!(
                "{}: {}; {}",
                fault.name,
                fault.what,
                kept_words(fault.delivered)
            )
        };
        self.0.iter().map(line).collect()
    }

    /// A line about each error, while other captures go on.
    pub fn passing_lines(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|fault| format!("{}: {}; the others go on", fault.name, fault.what))
            .collect()
    }
}

/// Lines about packets whose link type an expression does not support. Without a layout the lines
/// have no names of interfaces.
pub fn misfit_lines(
    name: &str,
    layout: Option<&Layout>,
    select: &Select,
    misfits: &[Misfit],
) -> Vec<String> {
    /// Most interfaces named in a line.
    const NAMED: usize = 4;
    let line = |misfit: &Misfit| {
        let Misfit {
            link,
            split,
            packets: count,
        } = *misfit;
        let why = select.misfit(link, split)?;
        let interfaces = layout
            .into_iter()
            .flat_map(|layout| layout.interfaces.iter());
        let of_link = interfaces
            .enumerate()
            .filter(|(_, interface)| interface.link == link);
        let all: Vec<String> = of_link.map(|(i, _)| i.to_string()).collect();
        let more = if all.len() > NAMED {
            format!(" and {} more", all.len() - NAMED)
        } else {
            String::new()
        };
        let which = match all.as_slice() {
            [] => String::new(),
            [one] => format!(" (interface {one})"),
            _ => format!(
                " (interfaces {}{more})",
                all[..all.len().min(NAMED)].join(", ")
            ),
        };
        let link = link
            .name()
            .map_or_else(|| link.0.to_string(), str::to_owned);
        let verb = if count == 1 { "does" } else { "do" };
        Some(format!(
            "{name}: {} of link type {link}{which} {verb} not match: {why}",
            packets(count)
        ))
    };
    misfits.iter().filter_map(line).collect()
}

/// Line about an expression that matched nothing because of the headers around the packets, with a form that matches.
pub fn unmatched_line(expression: &str, around: &Around) -> String {
    let Around {
        tags,
        labels,
        pppoe,
        other,
        extensions,
        tunnel,
    } = *around;
    let named = [
        (tags > 0, "VLAN tags"),
        (labels > 0, "MPLS labels"),
        (pppoe, "PPPoE"),
        (other, "SNAP or a pseudo-wire"),
        (extensions, "extension headers"),
    ];
    let after: Vec<&str> = named
        .iter()
        .filter_map(|(is, name)| is.then_some(*name))
        .collect();
    let place = match (after.as_slice(), tunnel) {
        ([], _) => "in tunnels".to_owned(),
        (after, true) => format!("in tunnels, after {}", after.join(" and ")),
        (after, false) => format!("after {}", after.join(" and ")),
    };
    let words = std::iter::repeat_n("vlan and ", tags.into())
        .chain(std::iter::repeat_n("mpls and ", labels.into()))
        .chain(pppoe.then_some("pppoes and "));
    let own: String = words.collect();
    // libpcap has words for tags, labels and PPPoE only.
    let form = match other || extensions || tunnel || own.is_empty() {
        true => String::new(),
        false => format!("'{own}({})' or ", shortened(expression.trim())),
    };
    format!("nothing matched, but packets {place} would: {form}--inner finds them")
}

/// Line about a time in which no packet matched. Its times have dates. A time of the last day may have been meant for another.
pub fn nothing_then_line(span: &Span) -> String {
    let stamp = |ns: i64| {
        let time = jiff::Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
        format!("{time:.0}")
    };
    const DAY: i128 = 86_400_000_000_000;
    let now = jiff::Timestamp::now().as_nanosecond();
    let is_recent = |ns: i64| (now - i128::from(ns)).abs() < DAY;
    let today = match span.from_ns.into_iter().chain(span.to_ns).any(is_recent) {
        true => "a time without a date means today; ",
        false => "",
    };
    let which = span.words(stamp).unwrap_or_default();
    format!("no matching {which}: {today}weir info FILE says when its packets were captured")
}

/// Messages on packets that the source itself counts as lost when it was captured. They are not an
/// error of this run.
pub fn lost_before_lines(name: &str, report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    match report.lost_before() {
        0 => {}
        1 => lines.push(format!(
            "{name}: 1 packet was dropped when it was captured, it says, and is not in it"
        )),
        n => lines.push(format!(
            "{name}: {} packets were dropped when it was captured, it says, and are not in it",
            grouped(n)
        )),
    }
    let uncounted = uncounted_words(&report.counted.uncounted());
    lines.extend(
        uncounted
            .into_iter()
            .map(|words| format!("{name}: {words}")),
    );
    lines
}

/// Largest number of characters shown of a text that a file has about its packets.
const SHOWN: usize = 200;

/// A text from a file, cut to the length that is shown.
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!(
            "{}... ({} more)",
            &text[..end],
            bytes((text.len() - end) as u64)
        ),
        None => text.to_owned(),
    }
}

/// Words on the choice of the packets of a source, as it says: at most eight parts, each cut to the
/// length that is shown. `has_cut`: a packet was cut.
pub fn holds_only_words(layout: &Layout, has_cut: bool) -> Option<String> {
    /// Most parts shown.
    const MOST: usize = 8;
    let parts = holds_only(layout, has_cut);
    let more = match parts.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!("; and {} more", grouped(more as u64)),
    };
    let words: Vec<String> = parts.iter().take(MOST).map(|part| shown(part)).collect();
    (!words.is_empty()).then(|| format!("{}{more}", words.join("; ")))
}

/// Message on a record that holds only a part of the traffic.
pub fn part_line(name: &str, layout: &Layout, has_cut: bool) -> Option<String> {
    holds_only_words(layout, has_cut)
        .map(|words| format!("{name}: this record holds only: {words}"))
}

/// Message on blocks of a source that no copy of it keeps.
pub fn blocks_left_out_line(name: &str, report: &Report, layout: &Layout) -> Option<String> {
    let mut counts = report.left_out;
    counts.join(&layout.blocks_left_out);
    (!counts.is_empty()).then(|| format!("{name}: {} left out of copies", left_out_words(&counts)))
}

/// Words for blocks and parts of packets that a file could not take: `2 custom blocks and 1 comment of a packet are`.
pub fn left_out_words(counts: &LeftOut) -> String {
    let parts = [
        (
            counts.secrets,
            "block of decryption secrets",
            "blocks of decryption secrets",
        ),
        (
            counts.names,
            "block of names of addresses",
            "blocks of names of addresses",
        ),
        (counts.custom, "custom block", "custom blocks"),
        (
            counts.private,
            "custom block that must not be copied",
            "custom blocks that must not be copied",
        ),
        (
            counts.other,
            "block of an unknown type",
            "blocks of unknown types",
        ),
        (
            counts.comments,
            "comment of a section or interface",
            "comments of sections and interfaces",
        ),
        (
            counts.packet_comments,
            "comment of a packet",
            "comments of packets",
        ),
        (
            counts.packets_with_options,
            "packet's options",
            "packets' options",
        ),
        (
            counts.interface_options,
            "option of an interface",
            "options of interfaces",
        ),
        (
            counts.section_options,
            "option of a section",
            "options of sections",
        ),
        (
            counts.losses,
            "count of lost packets",
            "counts of lost packets",
        ),
        (
            counts.uncounted,
            "time without a count of lost packets",
            "times without a count of lost packets",
        ),
        (
            counts.remarks,
            "remark on what is missing",
            "remarks on what is missing",
        ),
    ];
    let there = parts.iter().filter(|(count, ..)| *count > 0);
    let words: Vec<String> = there
        .map(|(count, one, many)| {
            format!(
                "{} {}",
                grouped(*count),
                if *count == 1 { one } else { many }
            )
        })
        .collect();
    let verb = if parts.iter().map(|(count, ..)| count).sum::<u64>() == 1 {
        "is"
    } else {
        "are"
    };
    format!("{} {verb}", words.join(", "))
}

/// Message on packets with more bytes than their wire length, by which they are counted.
pub fn longer_line(name: &str, report: &Report) -> Option<String> {
    let verb = if report.longer == 1 { "has" } else { "have" };
    (report.longer > 0).then(|| {
        format!(
            "{name}: {} {verb} more bytes in it than on the wire, it says: its bytes on the wire count",
            packets(report.longer)
        )
    })
}

/// Message on the names and comments that a copy of the source lacks.
pub fn left_out_line(name: &str, layout: &Layout) -> Option<String> {
    (layout.texts_left_out > 0).then(|| {
        format!(
            "{name}: {} names and comments of its interfaces and sections are left out: {} bytes of them are kept",
            grouped(layout.texts_left_out),
            grouped(MAX_TEXT as u64)
        )
    })
}
