//! Events of a run as messages on standard error.

use crate::capture;
use crate::numbers::{grouped, packets};
use crate::outcome::{LiveFaults, fault_line, io_words, misfit_lines, say, say_left_out, say_lost_before, say_plain};
use crate::port;
use crate::progress::Progress;
use crate::sources;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use weir_engine::event::{Closed, Event};
use weir_engine::name::{Name, interface_of};
use weir_engine::outputs::{Discrepancy, Outputs};
use weir_engine::run::Ended;
use weir_engine::sink::{Note, SinkFault, SinkReport};
use weir_io::live::Marks;
use weir_io::output::OutputError;
use weir_packet::savefile::Format;
use weir_pipeline::sort::SortFault;

/// Prints the events of a run, and gathers faults and notes for its end.
#[derive(Debug)]
pub struct Show {
    /// The progress line.
    pub progress: Progress,
    /// Messages on failures, in order. Each is printed at once, and repeated in JSON.
    pub faults: Vec<String>,
    /// Lines on how each source was read, for `--stats`.
    pub notes: Vec<String>,
    /// Whether notes are gathered.
    stats: bool,
    /// Worker threads that measure.
    workers: usize,
    /// Whether outputs are files, which may lack texts of their sources.
    has_files: bool,
    /// Faults of captures not printed yet.
    live_faults: LiveFaults,
    /// Observations beside the packets, by interface, because workers and queues share one.
    marks: BTreeMap<String, Marks>,
}

impl Show {
    /// Shows no progress if `busy`, because standard output shows the results of the work.
    pub fn new(busy: bool, stats: bool, workers: usize, has_files: bool) -> Self {
        Self {
            progress: Progress::new(busy),
            faults: Vec::new(),
            notes: Vec::new(),
            stats,
            workers,
            has_files,
            live_faults: LiveFaults::default(),
            marks: BTreeMap::new(),
        }
    }

    /// Prints a failure, and remembers it.
    pub fn fault(&mut self, line: String) {
        self.progress.clear();
        say(&line);
        self.faults.push(line);
    }

    /// Prints an event. Windows are answers, which the command itself prints.
    pub fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Begun { bytes } => self.progress.begin(bytes),
            Event::Progress { bytes } => self.progress.show(bytes),
            Event::Unopened { name, error } => self.fault(sources::failed_line(name, error)),
            Event::Distributed { name } => {
                let workers = self.workers;
                let how = format!("{name} cannot be split: one distributor feeds {workers} workers (--design async)");
                self.notes.push(how);
            }
            Event::Closed(closed) => self.closed(&closed),
            Event::Fault { name, fault } => self.fault(fault_line(name, fault)),
            Event::LiveFault { name, fault } => self.live_faults.add(name, fault),
            Event::LiveFaultsSoFar(faults) => {
                let mut now = LiveFaults::default();
                faults.iter().for_each(|(name, fault)| now.add(name, fault));
                now.passing_lines().iter().for_each(|line| say(line));
            }
            Event::Misfits { name, layout, misfits, select } => {
                self.progress.clear();
                misfit_lines(name, layout, select, misfits).iter().for_each(|line| say(line));
            }
            Event::Copied { name, layout } if self.has_files => say_left_out(name, layout),
            Event::Unsorted { fault, sorted } => self.fault(unsorted_line(fault, sorted)),
            Event::Changed { name } => self.fault(sources::changed_line(name)),
            Event::Sink(fault) => self.fault(sink_fault_line(fault)),
            Event::Standing { name, counts } => say_plain(&capture::standing_line(name, &counts)),
            Event::SoFar { names, passed, filtered } => {
                say(&format!("{}: so far {passed} matched, {filtered} did not", names.join(", ")));
            }
            _ => {}
        }
    }

    fn closed(&mut self, closed: &Closed<'_>) {
        let Closed { name, report, layout, way, misfits, refused, select } = *closed;
        self.progress.clear();
        if let Some(layout) = layout.filter(|_| self.has_files) {
            say_left_out(name, layout);
        }
        if self.stats {
            self.notes.push(match &report.live {
                Some(counts) => capture::standing_line(name, counts),
                None => format!("{name}: {} bytes, {}", grouped(report.offset), sources::access_mode_words(way)),
            });
        }
        if report.live.is_some() {
            let marks = self.marks.entry(interface_of(name).to_owned()).or_default();
            marks.downs = marks.downs.max(report.marks.downs);
            marks.large += report.marks.large;
            marks.cut += report.marks.cut;
            marks.unfinished_checksums += report.marks.unfinished_checksums;
        }
        if let Some(refused) = refused {
            self.fault(format!("{name}: {refused}"));
            return;
        }
        say_lost_before(name, report);
        misfit_lines(name, layout, select, misfits).iter().for_each(|line| say(line));
    }

    /// Prints faults of interfaces, once their capture has ended.
    pub fn end_of_forwarding(&mut self) {
        let faults = std::mem::take(&mut self.live_faults);
        faults.lines().into_iter().for_each(|line| self.fault(line));
    }

    /// Prints faults and observations of interfaces, once their capture has ended.
    pub fn end_of_capture(&mut self) {
        self.end_of_forwarding();
        for (name, marks) in std::mem::take(&mut self.marks) {
            capture::marks_lines(&name, &marks).iter().for_each(|line| say(line));
        }
    }

    /// Reports packets that outputs changed or refused, and numbers of packets that do not add up.
    pub fn outputs(&mut self, outputs: &Outputs, ended: &Ended) {
        for (name, report) in outputs.reports() {
            let Some(SinkReport { notes, refused, .. }) = report else { continue };
            self.notes_of_output(name, &notes);
            refused.iter().for_each(|refused| self.fault(port::refused_line(name, refused)));
        }
        self.account(ended);
    }

    /// Reports numbers of packets that do not add up.
    pub fn account(&mut self, ended: &Ended) {
        if let Some(imbalance) = &ended.imbalance {
            self.fault(imbalance.to_string());
        }
        for Discrepancy { name, expected, written } in &ended.discrepancies {
            self.fault(format!(
                "the account does not add up: {} matched for {name}, and it took {written}",
                packets(*expected)
            ));
        }
    }

    /// Reports packets that an output changed.
    fn notes_of_output(&self, name: &str, notes: &[Note]) {
        for note in notes {
            match note {
                Note::Said(line) => say(line),
                Note::Cut { packets } => say(&port::cut_line(name, *packets)),
                Note::Unstamped { packets: count } => say(&format!(
                    "{name}: {} without a time stamp: the beginning of 1970 stands there instead",
                    packets(*count)
                )),
                Note::Clamped { packets: count, format } => {
                    let range = match format {
                        Format::Pcap => "outside 1970 to 2106, all that a pcap file can hold",
                        _ => "before 1970 or after 2262, which is not written",
                    };
                    say(&format!("{name}: {} with a time {range}: the nearest stands there instead", packets(*count)));
                }
                note => say(&format!("{name}: {note:?}")),
            }
        }
    }
}

/// Message on an output that failed.
fn sink_fault_line(fault: &SinkFault) -> String {
    let (name, error) = match fault {
        SinkFault::File { name, error } => (name, error),
        SinkFault::Port(fault) => return port::fault_line(fault),
        fault => return fault.to_string(),
    };
    let name = name.as_output();
    match error {
        OutputError::Io { error, packets, path } => {
            let name = path.as_ref().map_or(name, |path| Name::from(path).text());
            let kept = match packets {
                0 => "no packet was written".to_owned(),
                1 => "1 packet was written before that".to_owned(),
                n => format!("{n} packets were written before that"),
            };
            format!("{name}: {}; {kept}", io_words(error))
        }
        OutputError::Create { path, error } => {
            format!("{}: {}", Name::from(path).text(), crate::emit::create_words(path, error))
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
