//! `weir info`: contents of capture files.

mod json;

use crate::cli::InfoArgs;
use crate::numbers::{bit_rate, duration, grouped, packets, rate};
use crate::outcome::{Outcome, fault_line, io_words, print, say, stop_on_signals};
use crate::progress::Progress;
use crate::sources;
use crate::terminal::{self, output_width, printable, wrapped};
use crate::walls::Walls;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_engine::name::Name;
use weir_engine::records::{self, uncounted_words};
use weir_engine::zone::Zone;
use weir_io::input::Opening;
use weir_measure::SIZE_CLASSES;
use weir_messages::faults::{holds_only_words, shown};
use weir_messages::measured::BEYOND;
use weir_packet::LinkType;
use weir_packet::savefile::{Format, Interface, Layout, MAX_TEXT, Statistics};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::reader::Uncounted;
use weir_pipeline::survey::{Survey, Surveyed};
use weir_pipeline::{AccessMode, Consumer, Options, Reader};

/// Runs the command.
pub fn run(arguments: &InfoArgs) -> anyhow::Result<Outcome> {
    let workers = arguments
        .workers
        .map_or_else(weir_pipeline::processors, usize::from);
    sources::check_names(&arguments.files)?;
    let stop = stop_on_signals();
    Walls::of_info(arguments)?.raise(&[])?;
    let (mut outcome, mut has_printed) = (Outcome::Done, false);
    let mut zone = Zone::new(arguments.utc);
    for (i, file) in arguments.files.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            say(&format!(
                "interrupted: {} of {} files were read",
                i,
                arguments.files.len()
            ));
            break;
        }
        let found = survey(file, workers, arguments.zstd_window, &stop);
        if !found.faults.is_empty() {
            outcome = Outcome::Failed;
        }
        let mut text = String::new();
        if arguments.json {
            text = format!("{}\n", terminal::json("file", &json::object(&found)));
        } else if found.layout.is_some() || found.faults.is_empty() {
            // Of a file without a header, all that is known is its fault.
            if has_printed {
                text.push('\n');
            }
            as_text(&mut text, &found, &mut zone);
            has_printed = true;
        }
        match print(&text) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Outcome::Done),
            Err(error) => {
                say(&format!("standard output: {}", io_words(&error)));
                return Ok(Outcome::Failed);
            }
        }
        for fault in &found.faults {
            say(fault);
        }
    }
    Ok(outcome)
}

/// Facts about one capture file.
struct Found {
    /// Name of the file, not escaped.
    name: String,
    layout: Option<Layout>,
    whole: Surveyed,
    /// Statistics of the capture per interface, as the file has them, and their comments.
    stats: BTreeMap<u32, Statistics>,
    remarks: Vec<String>,
    /// Packets lost before a packet, by the options of packets, and in all.
    lost: (u64, u64),
    /// Whether the file has a counter of lost packets.
    counts_losses: bool,
    /// Times for which the file does not tell what was lost.
    loss_unknown: Vec<Uncounted>,
    file_bytes: Option<u64>,
    /// Bytes read before a signal ended the reading. If the file is compressed, they are bytes of the decoded file.
    interrupted: Option<u64>,
    faults: Vec<String>,
}

/// Reads the file until its end, or until `stop` is set.
fn survey(name: &Name, workers: usize, zstd_window: u64, stop: &Arc<AtomicBool>) -> Found {
    let mut found = Found {
        name: name.as_source(),
        layout: None,
        whole: Surveyed::default(),
        stats: BTreeMap::new(),
        remarks: Vec::new(),
        lost: (0, 0),
        counts_losses: true,
        loss_unknown: Vec::new(),
        file_bytes: None,
        interrupted: None,
        faults: Vec::new(),
    };
    let input = match records::open(
        name,
        &Opening {
            zstd_window,
            ..Opening::default()
        },
        None,
        stop,
    ) {
        Ok(input) => input,
        // Stopped while waiting for a pipe's writer.
        Err(_) if stop.load(Ordering::Relaxed) => {
            found.interrupted = Some(0);
            return found;
        }
        Err(error) => {
            let line = sources::absent_line(name);
            let line = line.unwrap_or_else(|| sources::failed_line(name, &error));
            found.faults.push(line);
            return found;
        }
    };
    found.file_bytes = input.len_hint();
    let consumer = Arc::new(Survey);
    let mut progress = Progress::new(false);
    progress.begin(found.file_bytes);
    let mut reader = Reader::new(
        input,
        Arc::clone(&consumer),
        Options {
            workers,
            ..Options::default()
        },
    );
    let mut ended = false;
    while !ended && !stop.load(Ordering::Relaxed) {
        match reader.next() {
            Some(delivery) => {
                consumer.append(&mut found.whole, delivery.part);
                reader.recycle(delivery.view);
                progress.show(reader.report().offset);
            }
            None => ended = true,
        }
    }
    progress.clear();
    // A stream ends without an error once `stop` is set.
    let cut = !ended || stop.load(Ordering::Relaxed) && reader.way() == AccessMode::Stream;
    found.interrupted = cut.then_some(reader.report().offset);
    found.layout = reader.layout().cloned();
    found.stats = reader.report().stats_by_interface();
    found.remarks = reader.report().remarks.all();
    found.lost = (reader.report().lost_between, reader.report().lost_before());
    found.counts_losses = reader.report().counts_losses();
    found.loss_unknown = reader.report().counted.uncounted();
    found.faults.extend(
        reader
            .report()
            .fault
            .as_ref()
            .map(|fault| fault_line(&found.name, fault)),
    );
    found
}

impl Found {
    /// Packets dropped by the capture at interface `i`, if the file has that number.
    fn dropped(&self, i: usize) -> Option<u64> {
        self.stats
            .get(&u32::try_from(i).ok()?)
            .map(Statistics::dropped)
    }

    /// Packets of interface `i`.
    fn packets(&self, i: usize) -> u64 {
        self.whole
            .by_interface
            .get(&(i as u32))
            .copied()
            .unwrap_or(0)
    }
}

fn link_name(link: LinkType) -> String {
    link.name()
        .map_or_else(|| format!("LINKTYPE {}", link.0), str::to_owned)
}

/// Link types in the order of their first appearance, each once.
fn links(layout: &Layout) -> Vec<LinkType> {
    once_each(layout.interfaces.iter().map(|interface| interface.link))
}

/// Distinct items, in the order of their first appearance.
fn once_each<T: Copy + Eq + Hash>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut met = HashSet::new();
    items.filter(|item| met.insert(*item)).collect()
}

/// The first items of a list, and the number of the others.
fn listed(items: Vec<String>) -> String {
    /// Most items shown.
    const SHOWN: usize = 16;
    let more = items.len().saturating_sub(SHOWN);
    let shown = items.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("{shown} and {} more", grouped(more as u64))
    } else {
        shown
    }
}

fn format_name(layout: &Layout) -> &'static str {
    match layout.format {
        Format::Pcap => "pcap",
        Format::Pcapng => "pcapng",
        Format::Ring | Format::Slots | Format::Spool => "memory",
    }
}

fn byte_order(layout: &Layout) -> &'static str {
    if layout.big_endian {
        "big-endian"
    } else {
        "little-endian"
    }
}

fn as_text(out: &mut String, found: &Found, zone: &mut Zone) {
    let width = output_width();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&wrapped(&format!("  {name:<13}{value}\n"), width, 13));
        }
    };
    let Found {
        name,
        layout,
        whole,
        file_bytes,
        faults,
        ..
    } = found;
    let mut head = vec![("file", printable(name).into_owned())];
    if let Some(layout) = layout {
        head.extend(layout_rows(layout, *file_bytes));
    }
    for (name, value) in head {
        row(name, value);
    }
    if layout.is_some() {
        for (name, value) in packet_rows(whole, zone, width)
            .into_iter()
            .chain(loss_rows(found))
        {
            row(name, value);
        }
    }
    for (i, interface) in layout
        .iter()
        .filter(|l| l.format == Format::Pcapng)
        .flat_map(|l| l.interfaces.iter().enumerate())
    {
        row(
            &format!("interface {i}"),
            interface_text(found, i, interface),
        );
    }
    for (name, text) in layout.iter().flat_map(|layout| layout.notes.iter()) {
        row(name, printable(&shown(text)).into_owned());
    }
    for remark in &found.remarks {
        row("remark", printable(&shown(remark)).into_owned());
    }
    if let Some(read) = found.interrupted {
        row(
            "interrupted",
            format!(
                "by a signal, when {} bytes were read: what follows is not counted",
                grouped(read)
            ),
        );
    }
    for fault in faults {
        row("fault", printable(fault).into_owned());
    }
}

/// Text on an interface of a pcapng file.
fn interface_text(found: &Found, i: usize, interface: &Interface) -> String {
    let mut text = format!(
        "{}, {}",
        packets(found.packets(i)),
        link_name(interface.link)
    );
    text.push_str(&match interface.snaplen {
        0 => ", no snap length".to_owned(),
        n => format!(", snap length {}", grouped(n.into())),
    });
    text.push_str(&format!(", {} resolution", interface.resolution));
    if let Some(dropped) = found.dropped(i) {
        text.push_str(&format!(", {} dropped by the capture", grouped(dropped)));
    }
    for extra in interface
        .name
        .iter()
        .chain(&interface.description)
        .chain(&interface.comments)
    {
        text.push_str(&format!(", \"{}\"", printable(&shown(extra))));
    }
    if let Some(filter) = &interface.filter {
        text.push_str(&format!(", filter \"{}\"", printable(&shown(filter))));
    }
    for option in &interface.options {
        if let Some((name, value)) = option.text() {
            text.push_str(&format!(", {name} \"{}\"", printable(&shown(&value))));
        }
        if let Some(speed) = option.speed() {
            text.push_str(&format!(", {}", bit_rate(speed as f64)));
        }
        if let Some(bytes) = option.program() {
            text.push_str(&format!(
                ", a filter program of {} bytes",
                grouped(bytes as u64)
            ));
        }
    }
    text
}

/// Rows on packets that the file lacks, as it says.
fn loss_rows(found: &Found) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let (between, lost) = found.lost;
    if lost > 0 {
        rows.push((
            "lost",
            format!("{} when it was captured, it says", packets(lost)),
        ));
    }
    if !found.counts_losses {
        let row = match lost {
            0 => (
                "lost",
                "not recorded: the file has no counter of lost packets",
            ),
            _ => (
                "",
                "or more: a part of the packets has no counter of losses",
            ),
        };
        rows.push((row.0, row.1.to_owned()));
    }
    if between > 0 {
        rows.push((
            "",
            format!("{} of them by the options of packets", grouped(between)),
        ));
    }
    rows.extend(
        uncounted_words(&found.loss_unknown)
            .into_iter()
            .map(|words| ("not told", words)),
    );
    let layout = found.layout.as_ref();
    let part = layout.and_then(|layout| holds_only_words(layout, found.whole.cut > 0));
    rows.extend(part.map(|part| ("holds only", printable(&part).into_owned())));
    rows
}

fn layout_rows(layout: &Layout, file_bytes: Option<u64>) -> Vec<(&'static str, String)> {
    let interfaces = || layout.interfaces.iter();
    let resolutions = once_each(interfaces().map(|interface| interface.resolution));
    let resolutions = resolutions.iter().map(ToString::to_string).collect();
    let snaplen = |snaplen: &u32| {
        if *snaplen == 0 {
            "none".to_owned()
        } else {
            grouped((*snaplen).into())
        }
    };
    let snaplens = once_each(interfaces().map(|interface| interface.snaplen))
        .iter()
        .map(snaplen)
        .collect();
    let types: Vec<String> = links(layout)
        .into_iter()
        .map(|link| match link.description() {
            Some(description) => format!("{} ({description})", link_name(link)),
            None => link_name(link),
        })
        .collect();
    let left_out = match layout.texts_left_out {
        0 => String::new(),
        n => format!(
            "{} names and comments: {} bytes of them are kept",
            grouped(n),
            grouped(MAX_TEXT as u64)
        ),
    };
    let sections = if layout.sections > 1 {
        format!(", {} sections", layout.sections)
    } else {
        String::new()
    };
    vec![
        (
            "format",
            format!("{}, {}{sections}", format_name(layout), byte_order(layout)),
        ),
        (
            "file size",
            file_bytes.map_or(String::new(), |n| format!("{} bytes", grouped(n))),
        ),
        ("link type", listed(types)),
        ("resolution", listed(resolutions)),
        ("snap length", listed(snaplens)),
        ("left out", left_out),
    ]
}

fn packet_rows(
    whole: &Surveyed,
    zone: &mut Zone,
    width: Option<usize>,
) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("packets", grouped(whole.packets)),
        (
            "bytes",
            format!(
                "{} on the wire, {} captured",
                grouped(whole.bytes),
                grouped(whole.captured_bytes)
            ),
        ),
    ];
    if whole.cut > 0 {
        rows.push((
            "cut",
            format!(
                "{} with fewer bytes in the file than on the wire",
                packets(whole.cut)
            ),
        ));
    }
    if whole.beyond_snaplen > 0 {
        rows.push((
            "whole",
            format!(
                "{} longer than the snap length",
                packets(whole.beyond_snaplen)
            ),
        ));
    }
    if whole.longer > 0 {
        rows.push((
            "longer",
            format!(
                "{} with more bytes in the file than on the wire, it says",
                packets(whole.longer)
            ),
        ));
    }
    if let Some((first, last)) = whole.times {
        let mut stamp = |ns: i64| {
            let mut text = String::new();
            Stamp(ns).write(&mut text, Shape::DateClock, Digits::Nano, zone.east_s(ns));
            text
        };
        rows.push(("first", stamp(first)));
        rows.push(("last", stamp(last)));
        let time = Duration::from_nanos(last.saturating_sub(first).unsigned_abs());
        let seconds = time.as_secs_f64();
        rows.push((
            "duration",
            match seconds {
                _ if seconds < 120.0 => format!("{seconds:.6} s"),
                _ => format!("{} ({seconds:.6} s)", duration(time)),
            },
        ));
        if seconds > 0.0 {
            let mean = rate(whole.packets as f64 / seconds);
            let bits = whole.bytes as f64 * 8.0 / seconds;
            rows.push((
                "mean rate",
                format!("{mean} packets/s, {} (frames without FCS)", bit_rate(bits)),
            ));
        }
        let order = match whole.backwards {
            0 => "packets are in order of time".to_owned(),
            n => format!("{} earlier than the one before", packets(n)),
        };
        rows.push(("order", order));
    }
    if whole.clamped > 0 {
        rows.push((
            "beyond",
            format!("{} with a time {}", packets(whole.clamped), BEYOND),
        ));
    }
    if whole.untimed > 0 {
        rows.push((
            "untimed",
            format!("{} without a time stamp", packets(whole.untimed)),
        ));
    }
    if let Some((smallest, largest)) = whole.sizes {
        let mean = whole.bytes as f64 / whole.packets as f64;
        let range = match smallest == largest {
            true => format!("all {} bytes", grouped(smallest.into())),
            false => format!(
                "{} to {} bytes, mean {mean:.1}",
                grouped(smallest.into()),
                grouped(largest.into())
            ),
        };
        rows.push(("sizes", range));
        for (class, &count) in whole
            .classes
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            rows.push(("", size_class(class, count, whole.packets, width)));
        }
    }
    rows
}

/// Row for a size class: `  65 - 127    1 234 567  ######   41.2 %`
fn size_class(class: usize, count: u64, packets: u64, width: Option<usize>) -> String {
    /// Columns of the longest bar, and of the text next to the bar.
    const BAR: usize = 24;
    const BESIDE: usize = 52;
    let longest = width.map_or(BAR, |width| width.saturating_sub(BESIDE).clamp(1, BAR));
    let low = if class == 0 {
        0
    } else {
        SIZE_CLASSES[class - 1] + 1
    };
    let range = match SIZE_CLASSES.get(class) {
        Some(high) => format!("{low:>5} - {high:<5}"),
        None => format!("{low:>5} and up"),
    };
    let bar = "#".repeat((count * longest as u64).div_ceil(packets) as usize);
    format!(
        "{range} {:>13}  {bar:<longest$} {:>5.1} %",
        grouped(count),
        count as f64 * 100.0 / packets as f64
    )
}
