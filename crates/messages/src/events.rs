//! Messages on the events of a run.

use crate::captures::{marks_lines, standing_line};
use crate::errors::{create_words, io_words};
use crate::faults::{
    LiveFaults, blocks_left_out_line, fault_line, left_out_line, left_out_words, longer_line,
    lost_before_lines, misfit_lines, nothing_then_line, part_line, unmatched_line,
};
use crate::numbers::{counted, grouped, packets};
use crate::ports;
use crate::sources::failed_line;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use weir_engine::event::{Closed, Event};
use weir_engine::name::{Name, interface_of};
use weir_engine::outputs::Outputs;
use weir_engine::run::Ended;
use weir_engine::sink::{Kind, Loss, Note, SinkFault, SinkReport, StageCounts};
use weir_io::live::Marks;
use weir_io::output::OutputError;
use weir_io::sys::Access;
use weir_packet::savefile::Format;
use weir_pipeline::select::shortened;
use weir_pipeline::sort::SortFault;

/// Function that returns advice for a file that this process may not access; empty if there is none.
pub type Advice = fn(&Path, Access) -> &'static str;

/// A message on an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// An input or an output failed: the answer is not complete.
    Fault(String),
    /// The answer is complete, but the user should know something about it.
    Remark(String),
    /// An answer to a request, such as counts so far.
    Plain(String),
}

/// Listener to the events of a run: makes their messages, and gathers messages for the end of
/// captures.
#[derive(Debug)]
pub struct Listener {
    /// Whether outputs are files, which may lack texts of their sources.
    has_files: bool,
    advice: Advice,
    /// Errors of captures, which are reported once all captures have ended.
    live_faults: LiveFaults,
    /// Observations in addition to the packets, per interface, because workers and queues share
    /// one.
    marks: BTreeMap<String, Marks>,
}

impl Listener {
    /// Makes a listener.
    pub fn new(has_files: bool, advice: Advice) -> Self {
        Self {
            has_files,
            advice,
            live_faults: LiveFaults::default(),
            marks: BTreeMap::new(),
        }
    }

    /// Returns the messages on an event, in order; none if the event has no message, or is
    /// gathered.
    pub fn event(&mut self, event: &Event<'_>) -> Vec<Line> {
        let remarks = |lines: Vec<String>| lines.into_iter().map(Line::Remark).collect();
        match event {
            Event::Unopened { name, error } => {
                let path = Path::new(name);
                vec![Line::Fault(failed_line(
                    name,
                    error,
                    (self.advice)(path, Access::Read),
                ))]
            }
            Event::Closed(closed) => self.closed(closed),
            Event::Fault { name, fault } => vec![Line::Fault(fault_line(name, fault))],
            Event::LiveFault { name, fault } => {
                self.live_faults.add(name, fault);
                Vec::new()
            }
            Event::LiveFaultsSoFar(faults) => {
                let mut now = LiveFaults::default();
                faults.iter().for_each(|(name, fault)| now.add(name, fault));
                remarks(now.passing_lines())
            }
            Event::Misfits {
                name,
                layout,
                misfits,
                select,
            } => remarks(misfit_lines(name, *layout, select, misfits)),
            Event::Unmatched { expression, around } => {
                remarks(vec![unmatched_line(expression, around)])
            }
            Event::NothingThen { span } => remarks(vec![nothing_then_line(span)]),
            Event::Copied { name, layout } if self.has_files => {
                remarks(left_out_line(name, layout).into_iter().collect())
            }
            Event::Unsorted { fault, sorted } => vec![Line::Fault(unsorted_line(fault, *sorted))],
            Event::Sink(fault) => vec![Line::Fault(sink_fault_line(fault, self.advice))],
            Event::Standing { name, counts } => vec![Line::Plain(standing_line(name, counts))],
            _ => Vec::new(),
        }
    }

    fn closed(&mut self, closed: &Closed<'_>) -> Vec<Line> {
        let Closed {
            name,
            report,
            layout,
            misfits,
            refused,
            select,
            ..
        } = *closed;
        let mut lines = Vec::new();
        if let Some(layout) = layout.filter(|_| self.has_files) {
            lines.extend(left_out_line(name, layout).map(Line::Remark));
            lines.extend(blocks_left_out_line(name, report, layout).map(Line::Remark));
        }
        if report.live.is_some() {
            let marks = self.marks.entry(interface_of(name).to_owned()).or_default();
            marks.downs = marks.downs.max(report.marks.downs);
            marks.large += report.marks.large;
            marks.cut += report.marks.cut;
            marks.unfinished_checksums += report.marks.unfinished_checksums;
        }
        match refused {
            Some(refused) => lines.push(Line::Fault(format!("{name}: {refused}"))),
            None => {
                let record = layout.filter(|_| Path::new(name).is_dir());
                lines.extend(
                    record
                        .and_then(|layout| part_line(name, layout, report.has_cut))
                        .map(Line::Remark),
                );
                lines.extend(
                    lost_before_lines(name, report)
                        .into_iter()
                        .map(Line::Remark),
                );
                lines.extend(longer_line(name, report).map(Line::Remark));
                lines.extend(
                    misfit_lines(name, layout, select, misfits)
                        .into_iter()
                        .map(Line::Remark),
                );
            }
        }
        lines
    }

    /// Returns the messages on errors of interfaces, once their captures have ended.
    pub fn live_faults(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.live_faults)
            .lines()
            .into_iter()
            .map(Line::Fault)
            .collect()
    }

    /// Returns the messages on errors and observations of interfaces, once their captures have
    /// ended.
    pub fn end_of_capture(&mut self) -> Vec<Line> {
        let mut lines = self.live_faults();
        for (name, marks) in std::mem::take(&mut self.marks) {
            lines.extend(marks_lines(&name, &marks).into_iter().map(Line::Remark));
        }
        lines
    }
}

/// Packets that an output lost, by reason: `, 7 lost: failed 5, closed 2`; empty if it lost none.
pub fn lost_words(counts: &StageCounts) -> String {
    let why = match &counts.lost[..] {
        [] => return String::new(),
        [only] => only.why.name().to_owned(),
        several => {
            let each = several
                .iter()
                .map(|lost| format!("{} {}", lost.why.name(), grouped(lost.packets)));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    format!(", {} lost: {why}", grouped(counts.lost()))
}

/// Returns the line on a change of the run, if the event is one. A change of the counters is
/// reported by the window that it ends.
pub fn change_line(event: &Event<'_>) -> Option<String> {
    match event {
        Event::FilterReplaced { change, expression } => Some(match expression.trim() {
            "" => format!("from now on all packets match (change {change})"),
            expression => format!(
                "from now on the filter is '{}' (change {change})",
                shortened(expression)
            ),
        }),
        Event::RulesReplaced { change, rules } => Some(format!(
            "from now on {} (change {change})",
            counted(rules.list().rules.len() as u64, "rule")
        )),
        Event::NextFile { change, name, .. } => {
            Some(format!("{name}: the next file begins (change {change})"))
        }
        Event::OutputReplaced {
            change,
            name,
            counts,
            ..
        } => {
            let state = if counts.lost.is_empty() {
                "complete"
            } else {
                "ended"
            };
            Some(format!(
                "{name}: {state} with {}{}, another file goes on (change {change})",
                packets(counts.taken),
                lost_words(counts)
            ))
        }
        _ => None,
    }
}

/// Returns the messages on the end of a run: packets that outputs changed or refused, and numbers that do not add up.
pub fn end_lines(outputs: &Outputs, ended: &Ended) -> Vec<Line> {
    let mut lines = Vec::new();
    for ((name, report), counts) in outputs.reports().zip(outputs.counts()) {
        let Some(SinkReport {
            notes, lost, kind, ..
        }) = report
        else {
            continue;
        };
        // If the port failed, so did the packets after that; what it refuses by itself is told.
        let has_failed = lost.iter().any(|lost| lost.why == Loss::Failed);
        let lost = if has_failed { counts.lost } else { lost };
        lines.extend(notes.iter().map(|note| Line::Remark(note_line(name, note))));
        // What a file lost is reported with its failure.
        let lost = lost.iter().filter(|_| kind == Kind::Sent);
        lines.extend(lost.map(|lost| Line::Fault(ports::lost_line(name, lost))));
    }
    lines.extend(account_lines(ended));
    lines
}

/// Returns the messages on numbers of packets that do not add up, which is a mistake in weir.
pub fn account_lines(ended: &Ended) -> Vec<Line> {
    let mut lines = Vec::new();
    lines.extend(
        ended
            .imbalance
            .iter()
            .map(|imbalance| Line::Fault(imbalance.to_string())),
    );
    lines.extend(
        ended
            .discrepancies
            .iter()
            .map(|wrong| Line::Fault(format!("the account does not add up: {wrong}"))),
    );
    lines
}

/// Message on packets that an output changed.
fn note_line(name: &str, note: &Note) -> String {
    match note {
        Note::Said(line) => line.clone(),
        Note::Cut { packets } => ports::cut_line(name, *packets),
        Note::Dropped { port, packets } => ports::dropped_line(port, *packets),
        Note::Unstamped { packets: count } => {
            format!(
                "{name}: {} without a time stamp: the beginning of 1970 stands there instead",
                packets(*count)
            )
        }
        Note::Longer { packets: count } => {
            let verb = if *count == 1 { "is" } else { "are" };
            format!(
                "{name}: {} {verb} longer than the snap length in the file's header, as in the source: some readers cut them to \
                 it; write pcapng instead",
                packets(*count)
            )
        }
        Note::Further {
            packets: count,
            files,
        } => {
            format!(
                "{name}: {} of further addresses or conversations are in the file -rest, because {} are there: --split-most sets how many",
                packets(*count),
                counted(*files, "file")
            )
        }
        Note::Unknown { packets: count } => {
            format!(
                "{name}: {} could not be taken apart: the bytes that are not known are left out",
                packets(*count)
            )
        }
        Note::Clamped {
            packets: count,
            format,
        } => {
            let range = match format {
                Format::Pcap => "outside 1970 to 2106, all that a pcap file can hold",
                _ => "before 1970 or after 2262, which is not written",
            };
            format!(
                "{name}: {} with a time {range}: the nearest stands there instead",
                packets(*count)
            )
        }
        Note::LeftOut(counts) => {
            format!(
                "{name}: {} left out, because the file has no place for them",
                left_out_words(counts)
            )
        }
        Note::NotRecorded(counts) => {
            format!(
                "{name}: {} left out, because a record has no place for them",
                left_out_words(counts)
            )
        }
        Note::Kept { files, first } => {
            let first = Name::from(first).text();
            let many = match files {
                1 => format!("{first} is an earlier file, and is kept"),
                files => format!(
                    "{first} and {} more are earlier files, and are kept",
                    grouped(files - 1)
                ),
            };
            format!(
                "{name}: {many}: the packets are in files with other numbers (--overwrite would have emptied it)"
            )
        }
        note => format!("{name}: {note:?}"),
    }
}

/// Message on an output that failed.
pub fn sink_fault_line(fault: &SinkFault, advice: Advice) -> String {
    let (name, error) = match fault {
        SinkFault::File { name, error } => (name, error),
        SinkFault::Port(fault) => return ports::fault_line(fault),
        fault => return fault.to_string(),
    };
    let name = name.as_output();
    match error {
        OutputError::Io {
            error,
            packets,
            path,
        } => {
            let name = path.as_ref().map_or(name, |path| Name::from(path).text());
            let kept = match packets {
                0 => "no packet was written".to_owned(),
                1 => "1 packet was written before that".to_owned(),
                n => format!("{n} packets were written before that"),
            };
            format!("{name}: {}; {kept}", io_words(error))
        }
        OutputError::Create { path, error } => {
            format!(
                "{}: {}",
                Name::from(path).text(),
                create_words(error, advice(path, Access::Write))
            )
        }
        error => format!("{name}: {error}"),
    }
}

/// Message on packets that could not be sorted; `sorted` packets are in the answer.
fn unsorted_line(fault: &SortFault, sorted: u64) -> String {
    let SortFault { directory, error } = fault;
    let words = io_words(error);
    let directory = Name::from(OsStr::new(directory)).text();
    format!(
        "--sort: temporary files in {directory} (TMPDIR): {words}; only {} are sorted and in the answer",
        packets(sorted)
    )
}
