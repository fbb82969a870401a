//! What a run counted, and how it is told: the summary, `--stats`, `--count` and `--json`.

use super::Run;
use super::outputs::Rest;
use crate::cli::FilterArgs;
use crate::numbers::{bit_rate, duration, grouped, percent};
use crate::outcome::{print, tell};
use crate::{port, terminal};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_io::sys;
use weir_pipeline::select::Selected;

/// Counts over all sources; each where it happens.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) received: u64,
    pub(super) passed: u64,
    pub(super) filtered: u64,
    /// By the kernel.
    pub(super) dropped: u64,
    pub(super) bytes: u64,
    pub(super) reread: u64,
    pub(super) splits: Vec<(u64, u64)>,
    /// By ports, if there are any.
    pub(super) sent: Option<u64>,
    pub(super) thrown_away: Option<u64>,
}

impl Totals {
    pub(super) fn add(&mut self, part: &Selected) {
        self.passed += part.passed;
        self.filtered += part.filtered;
        self.bytes += part.bytes;
        for (total, split) in self.splits.iter_mut().zip(&part.splits) {
            total.0 += split.passed;
            total.1 += split.bytes;
        }
    }

    /// Takes packets out again that were counted, and that nobody wanted any more. In a source that others changed meanwhile
    /// there may be any number of them.
    pub(super) fn take_back(&mut self, rest: &Rest) {
        let less = |total: &mut u64, rest: u64| *total = total.saturating_sub(rest);
        less(&mut self.passed, rest.passed);
        less(&mut self.filtered, rest.filtered);
        less(&mut self.bytes, rest.bytes);
        for (total, split) in self.splits.iter_mut().zip(&rest.splits) {
            less(&mut total.0, split.0);
            less(&mut total.1, split.1);
        }
    }
}

impl Run<'_> {
    /// What `--count` and `--json` print on standard output.
    pub(super) fn answer(&self) -> io::Result<()> {
        let mut out;
        let totals = &self.totals;
        if !self.arguments.json && !self.arguments.count {
            return Ok(());
        }
        if self.arguments.json {
            let mut object = serde_json::json!({
                "received": totals.received,
                "matched": totals.passed,
                "bytes": totals.bytes,
                "dropped": if self.live { serde_json::json!({ self.place: totals.dropped }) } else { serde_json::json!({}) },
                "fault": self.faults.first(),
            });
            if self.uncounted {
                object["filtered"] = serde_json::Value::Null;
            }
            if !self.arguments.split.is_empty() {
                let counts = self.arguments.split.iter().zip(&totals.splits);
                object["splits"] =
                    counts.map(|((name, _), (packets, _))| (name.text(), serde_json::Value::from(*packets))).collect();
            }
            out = format!("{}\n", terminal::json(&object));
        } else {
            out = format!("{}\n", totals.passed);
            for ((name, _), (packets, _)) in self.arguments.split.iter().zip(&totals.splits) {
                out.push_str(&format!("{packets} {name}\n"));
            }
        }
        print(&out)
    }

    pub(super) fn summary(&self) {
        let totals = &self.totals;
        let time = self.begun.elapsed();
        let mut line = format!(
            "{} received, {} matched ({}), {} bytes, {}{}, {}",
            grouped(totals.received),
            grouped(totals.passed),
            percent(totals.passed, totals.received),
            grouped(totals.bytes),
            dropped_words(totals.dropped, self.place),
            [
                (self.written(), "written"),
                (self.outputs.overwritten(), "of them overwritten (-W)"),
                (totals.sent, "sent"),
                (totals.thrown_away, "thrown away"),
            ]
            .map(|(count, what)| count.map_or(String::new(), |count| format!(", {} {what}", grouped(count))))
            .concat(),
            duration(time),
        );
        // To end so is what --follow and --duration are for, and the way to end a capture.
        let endless = self.live || self.arguments.follow || self.arguments.duration.is_some();
        if self.stop.load(Ordering::Relaxed) && !endless {
            line.push_str(", interrupted");
        }
        if self.uncounted {
            line.push_str("; what the kernel rejected is not counted");
        }
        if !self.faults.is_empty() {
            line.push_str(", incomplete: see the fault above");
        }
        line.push('\n');
        if self.arguments.stats {
            self.stats(&mut line, time);
        }
        tell(&line);
    }

    /// Packets that the main output wrote, where that is another figure than what matched, or may be.
    fn written(&self) -> Option<u64> {
        let FilterArgs { write, rotate_size, rotate_seconds, .. } = self.arguments;
        let to_port = write.as_ref().is_some_and(port::is_port);
        let rotated = rotate_size.or(*rotate_seconds).is_some();
        self.outputs.written().filter(|&written| !to_port && (rotated || written != self.totals.passed))
    }

    fn stats(&self, out: &mut String, time: Duration) {
        let totals = &self.totals;
        for (i, ((name, _), (packets, bytes))) in self.arguments.split.iter().zip(&totals.splits).enumerate() {
            let written = self.outputs.split_written(i).filter(|written| written != packets);
            let written = written.map_or(String::new(), |written| format!(", {} written", grouped(written)));
            out.push_str(&format!("  {name}: {} packets, {} bytes{written}\n", grouped(*packets), grouped(*bytes)));
        }
        for note in &self.notes {
            out.push_str(&format!("  {note}\n"));
        }
        let seconds = time.as_secs_f64().max(1e-9);
        let cpu = Duration::from_nanos(sys::process_cpu_ns());
        out.push_str(&format!(
            "  received {} = passed {} + filtered {} + denied 0 + dropped {}\n",
            grouped(totals.received),
            grouped(totals.passed),
            grouped(totals.filtered),
            grouped(totals.dropped),
        ));
        out.push_str(&format!("  read twice after a wrong guess: {} packets\n", grouped(totals.reread)));
        out.push_str(&format!(
            "  {:.2} Mpps; matched {} (frames without FCS); processor time {}\n",
            totals.received as f64 / seconds / 1e6,
            bit_rate(totals.bytes as f64 * 8.0 / seconds),
            duration(cpu),
        ));
    }
}

/// `0 dropped`, or how many and by whom.
fn dropped_words(dropped: u64, place: &str) -> String {
    let by = if dropped > 0 { format!(": {place}") } else { String::new() };
    format!("{} dropped{by}", grouped(dropped))
}
