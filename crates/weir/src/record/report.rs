//! Words and figures of a recording.

use crate::numbers::{bytes, counted, duration, grouped, packets, percent};
use crate::outcome::{
    account_line, dropped_words, io_words, print, say, say_plain, show, stage_lines, tell,
};
use crate::programs::Runs;
use crate::summary::{Ending, Summary, denied, if_any};
use crate::terminal::{self, printable};
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_engine::ledger::Ledger;
use weir_engine::record::Status;
use weir_engine::record::disk::{self, DiskEvent};
use weir_engine::record::trigger::Saved;
use weir_engine::run::Stage;
use weir_messages::events::Line;
use weir_messages::recording::{disk_line, end_json, opened_lines, saved_json, saved_lines};
use weir_store::disk::Opened;

/// Prints what happens in a recording, from any thread, and gathers its errors.
pub(super) struct Report {
    json: bool,
    /// Whether a directory made again may be opened.
    reopens: bool,
    faults: Mutex<Vec<String>>,
    terminal: bool,
}

/// The end of a recording.
pub(super) struct End<'a> {
    pub ledger: &'a Ledger,
    /// Whether a firewall judged the packets.
    pub judges: bool,
    /// Counts of the stages, if they are wanted.
    pub stages: Option<&'a [Stage]>,
    pub notes: &'a [String],
    pub status: &'a Status,
    /// Runs of the program for saved files, if there is one.
    pub runs: Option<&'a Runs>,
    /// Part of the system that drops packets for lack of room.
    pub place: &'static str,
    pub ending: Ending,
    pub faults: &'a [String],
    pub time: Duration,
}

impl Report {
    pub fn new(json: bool, reopens: bool) -> Self {
        Self {
            json,
            reopens,
            faults: Mutex::default(),
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Failures so far.
    pub fn faults(&self) -> Vec<String> {
        self.faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Reports a failure.
    pub fn fault(&self, line: String) {
        say(&line);
        self.faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }

    /// Reports what is not a failure of the recording.
    pub fn remark(&self, line: &str) {
        self.clear();
        say(line);
    }

    /// Takes the line of progress off the terminal.
    fn clear(&self) {
        if self.terminal {
            show("\r\x1b[K");
        }
    }

    /// Reports what the lines say, and gathers the errors among them.
    pub fn lines(&self, lines: impl IntoIterator<Item = Line>) {
        for line in lines {
            match line {
                Line::Fault(line) => self.fault(line),
                Line::Remark(line) => say(&line),
                Line::Plain(line) => say_plain(&line),
            }
        }
    }

    /// Reports a file that a trigger saved, or failed to save.
    pub fn saved(&self, saved: &Saved) {
        self.clear();
        self.lines(saved_lines(saved));
        if self.json {
            // The end of the reader is noticed at the end.
            let _ = print(&format!(
                "{}\n",
                terminal::json("saved", &saved_json(saved))
            ));
        }
    }

    /// Reports what an earlier recording left in the directory.
    pub fn opened(&self, opened: &Opened) {
        self.lines(opened_lines(opened));
    }

    /// Reports that the disk fails, or goes on.
    pub fn disk(&self, event: &DiskEvent<'_>) {
        self.clear();
        self.lines([disk_line(event)]);
        let DiskEvent::Failed(disk::Failure::File { source, .. }) = event else {
            return;
        };
        if source.kind() == io::ErrorKind::PermissionDenied && !self.reopens {
            say(
                "weir's walls open only the directory that was there when it began: start it again, or with --reopen",
            );
        }
    }

    /// Shows the state of the recording, on a terminal.
    pub fn progress(&self, status: &Status) {
        let dropped = dropped_so_far(status).map_or(String::new(), |words| format!(", {words}"));
        show(&format!(
            "\r{}{dropped}; Ctrl-C ends the run\x1b[K",
            standing(status)
        ));
    }

    /// Prints the state of the recording.
    pub fn standing(&self, status: &Status) {
        self.clear();
        say_plain(&standing(status));
        if let Some(words) = dropped_so_far(status) {
            say_plain(&format!("  {words}"));
        }
        if let Some(disk) = &status.disk {
            say_plain(&format!(
                "  {}",
                on_disk(disk, status.taken, "are only in RAM")
            ));
        }
    }

    /// Prints the summary.
    pub fn end(&self, end: &End<'_>) {
        self.clear();
        let End { ledger, status, .. } = end;
        if self.json {
            let mut object = end_json(
                ledger,
                status,
                end.place,
                end.faults.first().map(String::as_str),
            );
            if end.judges {
                object["denied"] = ledger.denied.into();
            }
            if end.ending.is_interrupted() {
                object["interrupted"] = true.into();
            }
            object["on_trigger"] = end.runs.map_or(Value::Null, |runs| {
                let [ran, failed] =
                    [&runs.ran, &runs.failed].map(|count| count.load(Ordering::Relaxed));
                json!({ "ran": ran, "failed": failed })
            });
            if let Err(error) = print(&format!("{}\n", terminal::json("summary", &object)))
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                say(&format!("standard output: {}", io_words(&error)));
            }
        }
        let mut text = Summary {
            received: ledger.received,
            fates: vec![
                format!("{} recorded", grouped(status.taken)),
                if_any(status.cut_off.0, "cut off"),
                if_any(ledger.filtered, "filtered"),
                denied(end.judges, ledger.denied),
                dropped_words(&[
                    (end.place, ledger.dropped.source),
                    ("ring", status.dropped()),
                ]),
            ],
            time: end.time,
            ending: end.ending,
            is_uncounted: ledger.uncounted,
            is_incomplete: !end.faults.is_empty(),
            ..Summary::default()
        }
        .line();
        text.push_str(&format!("  {}\n", standing(status)));
        if let Some(disk) = &status.disk {
            text.push_str(&format!(
                "  {}\n",
                on_disk(disk, status.taken, "are not on disk")
            ));
        }
        for trigger in &status.triggers {
            text.push_str(&format!(
                "  trigger {}: met {}, fired {}, {} with {}\n",
                trigger.name,
                counted(trigger.met, "time"),
                grouped(trigger.fired),
                files(trigger.saved),
                packets(trigger.packets),
            ));
            if trigger.failed > 0 {
                let failed = files(trigger.failed);
                text.push_str(&format!("    {failed} could not be saved: see above\n"));
            }
            if let Some(why) = &trigger.misfit {
                text.push_str(&format!(
                    "    its expression makes no sense for what is recorded: {why}\n"
                ));
            }
            if let Some(why) = &trigger.doubt {
                text.push_str(&format!("    it may have missed something: {why}\n"));
            }
            if let Some(why) = &trigger.keep_misfit {
                let what = "the expression of what it keeps makes no sense for what is recorded";
                text.push_str(&format!("    {what}: {why}\n"));
            }
        }
        if let Some(runs) = end.runs {
            let [ran, failed] =
                [&runs.ran, &runs.failed].map(|count| grouped(count.load(Ordering::Relaxed)));
            text.push_str(&format!(
                "  --on-trigger: ran {ran} times, failed {failed}\n"
            ));
        }
        if status.unchecked > 0 {
            text.push_str(&format!(
                "  {} left the ring before triggers looked at them\n",
                packets(status.unchecked)
            ));
        }
        if let Some(stages) = end.stages {
            end.notes
                .iter()
                .for_each(|note| text.push_str(&format!("  {}\n", printable(note))));
            text.push_str(&stage_lines(stages));
            text.push_str(&account_line(ledger));
        }
        tell(&text);
    }
}

/// Packets dropped while the recording goes on; `None` if none were.
fn dropped_so_far(status: &Status) -> Option<String> {
    let drops = [
        (status.place, status.dropped_before),
        ("ring", status.dropped()),
    ];
    drops
        .iter()
        .any(|(_, count)| *count > 0)
        .then(|| dropped_words(&drops))
}

/// History in the ring: `12.3 s of history: 1 000 000 packets in 1.2 GiB of 4.0 GiB`.
fn standing(status: &Status) -> String {
    let span = Duration::from_nanos(status.held.span_ns());
    let writing = status
        .triggers
        .iter()
        .filter(|trigger| trigger.active)
        .count();
    let saved: u64 = status.triggers.iter().map(|trigger| trigger.saved).sum();
    let saved = match (saved, writing) {
        (0, 0) => String::new(),
        (saved, 0) => format!(", {} saved", files(saved)),
        (saved, writing) => format!(", {} saved, {writing} being written", files(saved)),
    };
    format!(
        "{} of history: {} in {} of {}{saved}",
        duration(span),
        packets(status.held.packets),
        bytes(status.held.bytes),
        bytes(status.capacity),
    )
}

/// State of the disk: `disk: 1 000 packets durable in 3 segments of 1.2 GB, index 1.1 %`. The packets that are not durable are
/// `elsewhere`.
fn on_disk(disk: &disk::Status, taken: u64, elsewhere: &str) -> String {
    let stats = &disk.stats;
    let index = percent(stats.index_bytes, stats.bytes);
    let mut text = format!(
        "disk: {} durable, {} of {}, index {index}",
        packets(disk.durable.packets),
        counted(disk.kept.0 as u64, "segment"),
        bytes(disk.kept.1),
    );
    for (count, what) in [
        (disk.missed, "left the ring before they were written"),
        (stats.cut, "were cut to what a block holds"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {what}", packets(count)));
        }
    }
    if stats.removed.segments > 0 {
        text.push_str(&format!(
            ", {} removed",
            counted(stats.removed.segments, "old segment")
        ));
    }
    let compression = &stats.compression;
    if compression.segments > 0 {
        let (before, after) = (bytes(compression.before), bytes(compression.after));
        text.push_str(&format!(
            ", {} compressed from {before} to {after}",
            counted(compression.segments, "segment")
        ));
    }
    if compression.plain + compression.failed > 0 {
        let plain = counted(compression.plain + compression.failed, "segment");
        text.push_str(&format!(", {plain} left uncompressed"));
    }
    if disk.durable.next < taken {
        text.push_str(&format!(
            ", the last {} {elsewhere}",
            packets(taken - disk.durable.next)
        ));
    }
    if disk.failure.is_some() {
        text.push_str(", failing");
    }
    text
}

/// `1 file` or `12 files`.
fn files(count: u64) -> String {
    if count == 1 {
        "1 file".to_owned()
    } else {
        format!("{} files", grouped(count))
    }
}
