//! Record and counts of a capture.
//!
//! Both are opened while the program still has its rights. The process that reads the capture goes on with them, also after a fork.

use crate::handles;
use crate::keep::{self, FLUSH, Keep};
use crate::live::Packet;
use crate::settings::{self, Backend, Settings, say};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_io::live::Counts;
use weir_packet::time::{Digits, Shape, Stamp};

/// Interval of the counts.
const REPORT: Duration = Duration::from_secs(1);

/// Longest name of a program in the counts, bytes.
const NAME: usize = 64;

/// Counts of a capture since its start.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Counts of the kernel and of the filter.
    pub counts: Counts,
    /// Packets that the program has read.
    pub delivered: u64,
    /// Packets of an unwanted direction.
    pub undirected: u64,
    /// Packets that the interface dropped.
    pub by_interface: u64,
}

/// The record and the file of counts of a capture.
pub struct Extras {
    keep: Option<Keep>,
    report: Option<Report>,
    due: Instant,
    /// Number of forks before the opening.
    opened_by: u32,
    /// Number of forks before the last read.
    read_by: Option<u32>,
}

impl Extras {
    /// Opens the record and the file that the settings name. An error is one line.
    pub fn open(name: &str, backend: Backend, settings: &Settings, snaplen: u32) -> Option<Self> {
        let keep = settings.record.as_ref().and_then(|directory| {
            let kept = Keep::open(directory, name, snaplen);
            wanted(settings::RECORD, directory, "nothing is recorded", kept)
        });
        let report = settings.stats.as_ref().and_then(|path| {
            let report = Report::open(path, name, backend).map_err(|error| error.to_string());
            wanted(settings::STATS, path, "no counts are written", report)
        });
        let opened_by = handles::follow_forks();
        (keep.is_some() || report.is_some()).then(|| Self {
            keep,
            report,
            due: Instant::now() + FLUSH,
            opened_by,
            read_by: None,
        })
    }

    /// Puts a packet into the record.
    #[inline]
    pub fn keep(&mut self, packet: &Packet) {
        if let Some(keep) = &mut self.keep {
            keep.packet(packet);
        }
    }

    /// Whether [`Self::tick`] is to be called.
    pub fn is_due(&mut self) -> bool {
        self.read_by = Some(handles::forks());
        Instant::now() >= self.due
    }

    /// Time until then, ms.
    pub fn due_ms(&self) -> i32 {
        let left = self.due.saturating_duration_since(Instant::now());
        left.as_millis() as i32 + 1
    }

    /// Writes waiting packets and counts.
    pub fn tick(&mut self, totals: &Totals) {
        self.due = Instant::now() + FLUSH;
        if let Some(keep) = &mut self.keep {
            keep.tick(totals);
        }
        let kept = self.keep.as_ref().map(Keep::counts);
        if let Some(report) = &mut self.report
            && report.begun.elapsed() >= REPORT * (report.lines + 1)
        {
            report.write(totals, kept, false);
        }
    }

    /// Ends the record and the counts, unless another process reads the capture.
    pub fn finish(&mut self, totals: &Totals) {
        let this = handles::forks();
        let is_ours = match self.read_by {
            Some(reader) => reader == this,
            None => self.opened_by == this && !handles::has_forked(),
        };
        if !is_ours {
            // The lock and the segments are the other process's.
            std::mem::forget(self.keep.take());
            return;
        }
        let kept = self.keep.as_mut().map(|keep| {
            keep.tick(totals);
            keep.close();
            keep.counts()
        });
        if let Some(report) = &mut self.report {
            report.write(totals, kept, true);
        }
    }
}

/// A result, whose error is one line.
fn wanted<T>(
    variable: &str,
    path: &Path,
    consequence: &str,
    result: Result<T, String>,
) -> Option<T> {
    result
        .map_err(|error| {
            say(&format!(
                "{variable}={}: {error}: {consequence}",
                path.display()
            ))
        })
        .ok()
}

/// File of counts, one JSON object a line.
struct Report {
    file: File,
    program: String,
    interface: String,
    backend: Backend,
    begun: Instant,
    lines: u32,
}

impl Report {
    /// Opens the file, to which all captures append.
    fn open(path: &Path, interface: &str, backend: Backend) -> std::io::Result<Self> {
        let file = File::options()
            .append(true)
            .create(true)
            .mode(0o644)
            .open(path)?;
        let name = std::fs::read("/proc/self/comm").unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(NAME)]);
        Ok(Self {
            file,
            program: name.trim_end().to_owned(),
            interface: interface.to_owned(),
            backend,
            begun: Instant::now(),
            lines: 0,
        })
    }

    fn write(&mut self, totals: &Totals, kept: Option<(u64, u64)>, is_end: bool) {
        let counts = &totals.counts;
        let mut time = String::new();
        Stamp(keep::wall_ns()).write(&mut time, Shape::Rfc3339, Digits::Micro, 0);
        let line = json!({
            "type": "capture",
            "time": time,
            "program": self.program,
            "pid": std::process::id(),
            "interface": self.interface,
            "backend": self.backend.name(),
            "received": counts.received,
            "filtered": counts.filtered,
            "undirected": totals.undirected,
            "delivered": totals.delivered,
            "dropped": {"kernel": counts.dropped, "interface": totals.by_interface},
            "recorded": kept.map(|(recorded, _)| recorded),
            "unrecorded": kept.map(|(_, lost)| lost),
            "end": is_end,
        });
        self.lines = self.begun.elapsed().as_secs() as u32;
        // One write for a line: several programs may append to the file.
        let _ = self.file.write_all(format!("{line}\n").as_bytes());
    }
}
