//! Outcome of a command with its exit code, and messages on standard error.

use crate::numbers::{grouped, packets};
use crate::terminal::{printable, width, wrapped};
use std::io::{self, Write};
use weir_engine::ledger::Ledger;
use weir_engine::name::interface_of;
use weir_engine::outputs::Outputs;
use weir_engine::records::Damaged;
use weir_engine::run::Stage;
use weir_engine::sink::SinkReport;
use weir_io::sys::standard;
use weir_io::sys::writer::Writer;
use weir_packet::savefile::{Layout, MAX_TEXT};
use weir_pipeline::SourceFault;
use weir_pipeline::reader::{Report, SourceError};
use weir_pipeline::select::{Misfit, Select};

/// Outcome of a command that ran. A command that could not begin returns an error instead (exit code 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// The input or the output failed, which was reported; exit code 1.
    Failed,
}

/// Prints a message on standard error, after `weir: `.
pub fn say(line: &str) {
    say_plain(&format!("weir: {line}"));
}

/// Prints a line on standard error that is no complaint.
pub fn say_plain(line: &str) {
    tell(&format!("{}\n", printable(&without_codes(line))));
}

/// Prints lines on standard error, wrapped to its terminal. A standard error that is closed or full is ignored, because no
/// place is left to report that.
pub fn tell(lines: &str) {
    show(&wrapped(lines, width(io::stderr()), 2));
}

/// Prints text on standard error unchanged.
pub fn show(text: &str) {
    let _ = Writer::new(io::stderr()).write_all(text.as_bytes());
}

/// Prints an answer on standard output, completely. **Errors**: those of the write; or standard output was closed when the
/// process began.
pub fn print(text: &str) -> io::Result<()> {
    standard::check_output()?;
    Writer::new(io::stdout()).write_all(text.as_bytes())
}

/// Prints an answer on standard output, and reports a failure. A closed pipe is no failure.
pub fn answer(text: &str) -> Outcome {
    match print(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("standard output: {}", io_words(&error)));
            Outcome::Failed
        }
        _ => Outcome::Done,
    }
}

/// Line about a source that failed: its place, the cause, and the packets delivered before.
pub fn fault_line(name: &str, fault: &SourceFault) -> String {
    let SourceFault { packet, offset, what } = fault;
    if let SourceError::Io(error) = what
        && let Some(damaged) = error.get_ref().and_then(|inner| inner.downcast_ref::<Damaged>())
    {
        return format!("{name}: {damaged}; all else was read");
    }
    format!("{name}: packet {packet}, offset {offset}: {}; {}", source_error_words(what), kept_words(packet - 1))
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

/// Faults of captures. Workers and queues of an interface share its faults, so that equal faults are one line.
#[derive(Debug, Default)]
pub struct LiveFaults(Vec<LiveFault>);

#[derive(Debug)]
struct LiveFault {
    /// Name of the source, or of the interface if several of its sources have this fault.
    name: String,
    what: String,
    delivered: u64,
}

impl LiveFaults {
    /// Adds the fault of a source.
    pub fn add(&mut self, name: &str, fault: &SourceFault) {
        let (what, delivered) = (source_error_words(&fault.what), fault.packet - 1);
        let same = |known: &&mut LiveFault| interface_of(&known.name) == interface_of(name) && known.what == what;
        match self.0.iter_mut().find(same) {
            Some(known) => {
                interface_of(name).clone_into(&mut known.name);
                known.delivered += delivered;
            }
            None => self.0.push(LiveFault { name: name.to_owned(), what, delivered }),
        }
    }

    /// A line about each fault, without offset or packet number, which a capture does not have.
    pub fn lines(&self) -> Vec<String> {
        let line = |fault: &LiveFault| format!("{}: {}; {}", fault.name, fault.what, kept_words(fault.delivered));
        self.0.iter().map(line).collect()
    }

    /// A line about each fault, while other captures go on.
    pub fn passing_lines(&self) -> Vec<String> {
        self.0.iter().map(|fault| format!("{}: {}; the others go on", fault.name, fault.what)).collect()
    }
}

/// Lines about packets whose link type an expression does not support. Without a layout they name no interfaces.
pub fn misfit_lines(name: &str, layout: Option<&Layout>, select: &Select, misfits: &[Misfit]) -> Vec<String> {
    /// Most interfaces named in a line.
    const NAMED: usize = 4;
    let line = |misfit: &Misfit| {
        let Misfit { link, split, packets: count } = *misfit;
        let why = select.misfit(link, split)?;
        let interfaces = layout.into_iter().flat_map(|layout| layout.interfaces.iter());
        let of_link = interfaces.enumerate().filter(|(_, interface)| interface.link == link);
        let all: Vec<String> = of_link.map(|(i, _)| i.to_string()).collect();
        let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
        let which = match all.as_slice() {
            [] => String::new(),
            [one] => format!(" (interface {one})"),
            _ => format!(" (interfaces {}{more})", all[..all.len().min(NAMED)].join(", ")),
        };
        let link = link.name().map_or_else(|| link.0.to_string(), str::to_owned);
        let verb = if count == 1 { "does" } else { "do" };
        Some(format!("{name}: {} of link type {link}{which} {verb} not match: {why}", packets(count)))
    };
    misfits.iter().filter_map(line).collect()
}

/// Reports packets that the source itself counts as lost when it was captured. They are no fault of this run.
pub fn say_lost_before(name: &str, report: &Report) {
    match report.lost_before() {
        0 => {}
        1 => say(&format!("{name}: 1 packet was dropped when it was captured, it says, and is not in it")),
        n => say(&format!(
            "{name}: {} packets were dropped when it was captured, it says, and are not in it",
            grouped(n)
        )),
    }
}

/// Reports the number of names and comments that a copy of the source lacks.
pub fn say_left_out(name: &str, layout: &Layout) {
    if layout.texts_left_out > 0 {
        say(&format!(
            "{name}: {} names and comments of its interfaces and sections are left out: {} bytes of them are kept",
            grouped(layout.texts_left_out),
            grouped(MAX_TEXT as u64)
        ));
    }
}

/// Short description of a system error, with a remedy if one is known.
pub fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission denied: make it readable to you, or run weir as a user who may read it".to_owned()
        }
        io::ErrorKind::IsADirectory => {
            "is a directory: name the capture files in it, for instance DIR/*.pcap".to_owned()
        }
        // What the standard library says of a text with other bytes.
        io::ErrorKind::InvalidData if error.to_string().contains("valid UTF-8") => "it is no text (UTF-8)".to_owned(),
        io::ErrorKind::StorageFull => "no space left on the device".to_owned(),
        _ => match error.raw_os_error() {
            Some(_) => {
                let text = error.to_string();
                text.split(" (os error").next().unwrap_or(&text).to_lowercase()
            }
            None => error.to_string(),
        },
    }
}

/// Words for an error of a record directory.
pub fn directory_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such directory".to_owned(),
        io::ErrorKind::NotADirectory => "is no directory".to_owned(),
        _ => io_words(error),
    }
}

/// The line without the numbers that the standard library puts behind the words of the system.
fn without_codes(line: &str) -> String {
    let mut words = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once(" (os error ") {
        words.push_str(before);
        rest = match behind.split_once(')') {
            Some((code, behind)) if code.bytes().all(|byte| byte.is_ascii_digit()) => behind,
            _ => {
                words.push_str(" (os error ");
                behind
            }
        };
    }
    words.push_str(rest);
    words
}

/// Path of this program, quoted for a shell.
pub fn own_path() -> String {
    std::env::current_exe().map_or("weir".to_owned(), |path| quoted(&path.to_string_lossy()))
}

fn quoted(path: &str) -> String {
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if plain { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// Packets that each output wrote, if their number differs from that of the matching packets: `, 45 written`. The first
/// output is always listed if it is `rotated`. Of several outputs, those that ended early are named.
pub fn written_words(outputs: &Outputs, matched: impl Iterator<Item = u64>, rotated: bool) -> String {
    let mut words = String::new();
    for (i, ((name, report), matched)) in outputs.reports().zip(matched).enumerate() {
        let is_port = |report: &SinkReport| report.sent.or(report.thrown_away).is_some();
        let Some(report) = report.filter(|report| !is_port(report)) else { continue };
        let written = report.written;
        if !(rotated && i == 0 || written != matched) {
            continue;
        }
        let to = if written != matched && outputs.are_several() {
            format!(" to {}", printable(name))
        } else {
            String::new()
        };
        words.push_str(&format!(", {} written{to}", grouped(written)));
        if report.overwritten > 0 && i == 0 {
            words.push_str(&format!(", {} of them overwritten (-W)", grouped(report.overwritten)));
        }
    }
    words
}

/// Dropped packets by cause: `0 dropped`, `3 dropped: kernel` or `5 dropped: kernel 3, output 2`.
pub fn dropped_words(causes: &[(&str, u64)]) -> String {
    let some: Vec<_> = causes.iter().filter(|(_, packets)| *packets > 0).collect();
    let by = match &some[..] {
        [] => String::new(),
        [(only, _)] => format!(": {only}"),
        several => {
            let each = several.iter().map(|(place, packets)| format!("{place} {}", grouped(*packets)));
            format!(": {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{} dropped{by}", grouped(causes.iter().map(|(_, packets)| packets).sum()))
}

/// The account of a run: `received 5 = passed 3 + ...`.
pub fn account_line(ledger: &Ledger) -> String {
    format!(
        "  received {} = passed {} + filtered {} + denied {} + dropped {}\n",
        grouped(ledger.received),
        grouped(ledger.passed),
        grouped(ledger.filtered),
        grouped(ledger.denied),
        grouped(ledger.dropped.sum()),
    )
}

/// A line of counters for each stage of a run.
pub fn stage_lines(stages: &[Stage]) -> String {
    let line = |stage: &Stage| match stage {
        Stage::Read { delivered } => format!("  stage read: {} delivered\n", packets(*delivered)),
        Stage::Filter { passed, filtered, native } => format!(
            "  stage filter: {} passed, {} filtered ({})\n",
            grouped(*passed),
            grouped(*filtered),
            if *native { "native code" } else { "interpreted" }
        ),
        Stage::Firewall { passed, denied, controls } => format!(
            "  stage firewall: {} passed, {} denied, {} control packets\n",
            grouped(*passed),
            grouped(*denied),
            grouped(*controls)
        ),
        Stage::Measure { counted, filtered, late } => format!(
            "  stage measure: {} counted, {} filtered by its workers, {} late\n",
            grouped(*counted),
            grouped(*filtered),
            grouped(*late)
        ),
        Stage::ReplacedOutputs { by, outputs, matched, written } => format!(
            "  stage outputs before {}: {} of them, {} matched, {} written\n",
            printable(by),
            grouped(*outputs),
            grouped(*matched),
            grouped(*written)
        ),
        Stage::Output { name, matched, written } => {
            format!(
                "  stage output {}: {} matched, {} written\n",
                printable(name),
                grouped(*matched),
                grouped(*written)
            )
        }
        stage => format!("  stage {stage:?}\n"),
    };
    stages.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{quoted, without_codes};

    #[test]
    fn numbers_of_system_errors_are_left_out_and_nothing_else() {
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            without_codes(&format!("a: {missing}; b: {missing}")),
            "a: No such file or directory; b: No such file or directory"
        );
        for line in ["", "(os error 2)", "x (os error two)", "x (os error 2"] {
            assert_eq!(without_codes(line), line);
        }
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted("/usr/bin/weir"), "/usr/bin/weir");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
