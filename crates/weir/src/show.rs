//! Events of a run as messages on standard error.

use crate::numbers::grouped;
use crate::outcome::{io_words, say, say_plain};
use crate::progress::Progress;
use crate::walls;
use std::io;
use weir_engine::event::{Closed, Event};
use weir_engine::outputs::Outputs;
use weir_engine::run::Ended;
use weir_messages::captures::standing_line;
use weir_messages::events::{Line, Listener, account_lines, change_line, end_lines};
use weir_messages::sources::access_mode_words;

/// Prints the events of a run, and gathers errors and notes for its end.
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
    /// Whether changes of the run are reported, because requests make them.
    tells_changes: bool,
    /// Sources of which nothing could be read, not even the header of a file.
    unread: usize,
    /// Whether another source was read.
    has_read: bool,
    /// Name of the part of the work that messages are about; empty if there is one part.
    part: &'static str,
    listener: Listener,
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
            tells_changes: false,
            unread: 0,
            has_read: false,
            part: "",
            listener: Listener::new(has_files, walls::advice),
        }
    }

    /// Tells changes of the run too, if wanted.
    #[must_use]
    pub fn telling_changes(mut self, tells: bool) -> Self {
        self.tells_changes = tells;
        self
    }

    /// Names the part of the work in front of each message.
    #[must_use]
    pub fn about(mut self, part: &'static str) -> Self {
        self.part = part;
        self
    }

    /// Prints that a source or the directory of an output does not exist, so that nothing is read.
    pub fn absent(&mut self, line: String) {
        self.unread += 1;
        self.fault(line);
    }

    /// Whether no source could be read, as each message says: totals of zero would look like an answer.
    pub fn is_unread(&self) -> bool {
        !self.has_read && self.unread > 0 && self.unread == self.faults.len()
    }

    /// Prints a failure, and remembers it.
    pub fn fault(&mut self, line: String) {
        self.progress.clear();
        self.say(&line);
        self.faults.push(line);
    }

    /// Prints a message on the part of the work.
    pub fn say(&self, line: &str) {
        match self.part {
            "" => say(line),
            part => say(&format!("{part}: {line}")),
        }
    }

    /// Reports that an answer could not be printed on standard output. Returns whether its reader
    /// has left, which is not an error.
    pub fn answered(&mut self, printed: &io::Result<()>) -> bool {
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => true,
            Err(error) => {
                self.fault(format!("standard output: {}", io_words(error)));
                false
            }
            Ok(()) => false,
        }
    }

    /// Prints messages, and remembers failures.
    fn lines(&mut self, lines: Vec<Line>) {
        if !lines.is_empty() {
            self.progress.clear();
        }
        for line in lines {
            match line {
                Line::Fault(line) => self.fault(line),
                Line::Remark(line) => self.say(&line),
                Line::Plain(line) => say_plain(&line),
            }
        }
    }

    /// Prints an event. Windows are answers, which the command itself prints.
    pub fn event(&mut self, event: Event<'_>) {
        match &event {
            Event::Begun { bytes } => self.progress.begin(*bytes),
            Event::Progress { bytes } => self.progress.show(*bytes),
            Event::Distributed { name } => {
                let workers = self.workers;
                let how = format!(
                    "{name} cannot be split: one distributor feeds {workers} workers (--design async)"
                );
                self.notes.push(how);
            }
            Event::Misfits { .. } => self.progress.clear(),
            Event::Unopened { .. } => self.unread += 1,
            Event::Closed(closed) => {
                self.progress.clear();
                let is_unread = closed.report.live.is_none() && closed.layout.is_none();
                self.unread += usize::from(is_unread);
                self.has_read |= !is_unread;
                if self.stats {
                    self.notes.push(how_read(closed));
                }
            }
            _ => {}
        }
        if let Some(line) = change_line(&event).filter(|_| self.tells_changes) {
            say_plain(&line);
        }
        let lines = self.listener.event(&event);
        self.lines(lines);
    }

    /// Prints errors of interfaces, once their capture has ended.
    pub fn end_of_forwarding(&mut self) {
        let lines = self.listener.live_faults();
        self.lines(lines);
    }

    /// Prints errors and observations of interfaces, once their capture has ended.
    pub fn end_of_capture(&mut self) {
        let lines = self.listener.end_of_capture();
        self.lines(lines);
    }

    /// Reports packets that outputs changed or refused, and numbers of packets that do not add up.
    pub fn outputs(&mut self, outputs: &Outputs, ended: &Ended) {
        self.lines(end_lines(outputs, ended));
    }

    /// Reports numbers of packets that do not add up.
    pub fn account(&mut self, ended: &Ended) {
        self.lines(account_lines(ended));
    }
}

/// Line on how a source was read.
fn how_read(closed: &Closed<'_>) -> String {
    let Closed {
        name, report, way, ..
    } = *closed;
    match &report.live {
        Some(counts) => standing_line(name, counts),
        None => format!(
            "{name}: {} bytes, {}",
            grouped(report.offset),
            access_mode_words(way)
        ),
    }
}
