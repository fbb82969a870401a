//! What a run counted, and how it is told: the summary, `--stats`, `--count` and `--json`.

use super::Run;
use super::outputs::Rest;
use crate::cli::FilterArgs;
use crate::numbers::{bit_rate, duration, grouped, percent};
use crate::outcome::{print, tell};
use crate::terminal::{self, printable};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_io::sys;
use weir_pipeline::select::Selected;

/// Cause of drops: no output takes packets any more.
const OUTPUT: &str = "output";

/// Counts over all sources; each where it happens.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) received: u64,
    pub(super) passed: u64,
    pub(super) filtered: u64,
    /// By the kernel.
    pub(super) dropped: u64,
    /// Packets of a capture that match and came when no output took packets any more.
    pub(super) not_taken: u64,
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

    /// Adds a piece of a capture that no output takes.
    pub(super) fn add_dropped(&mut self, part: &Selected) {
        self.filtered += part.filtered;
        self.not_taken += part.passed;
    }

    /// Moves packets that were counted as passed on to those that no output took.
    pub(super) fn drop(&mut self, rest: &Rest) {
        self.take_back(&Rest { filtered: 0, splits: rest.splits.clone(), ..*rest });
        self.not_taken += rest.passed;
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
        // Sources that cannot be opened have no count: 0 would be an answer.
        let counts = self.arguments.count && (self.faults.is_empty() || self.has_opened);
        if !self.arguments.json && !counts {
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
            if totals.not_taken > 0 {
                object["dropped"][OUTPUT] = totals.not_taken.into();
            }
            if sys::is_interrupted() {
                object["interrupted"] = true.into();
            }
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
            dropped_words(&[(self.place, totals.dropped), (OUTPUT, totals.not_taken)]),
            self.written_words()
                + &[(totals.sent, "sent"), (totals.thrown_away, "thrown away")]
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

    /// Packets that each output wrote where that is another figure than what matched, or may be: `, 45 written`. Of several outputs,
    /// one that ended early is named.
    fn written_words(&self) -> String {
        let FilterArgs { rotate_size, rotate_seconds, .. } = self.arguments;
        let totals = &self.totals;
        let matched = std::iter::once(totals.passed).chain(totals.splits.iter().map(|split| split.0));
        let mut words = String::new();
        for (i, (written, matched)) in self.outputs.written().zip(matched).enumerate() {
            let rotated = rotate_size.or(*rotate_seconds).is_some();
            let Some((name, written)) = written.filter(|&(_, written)| rotated && i == 0 || written != matched) else {
                continue;
            };
            let to = if written != matched && self.outputs.are_several() {
                format!(" to {}", printable(name))
            } else {
                String::new()
            };
            words.push_str(&format!(", {} written{to}", grouped(written)));
            if let (0, Some(overwritten)) = (i, self.outputs.overwritten()) {
                words.push_str(&format!(", {} of them overwritten (-W)", grouped(overwritten)));
            }
        }
        words
    }

    fn stats(&self, out: &mut String, time: Duration) {
        let totals = &self.totals;
        for (i, ((name, _), (packets, bytes))) in self.arguments.split.iter().zip(&totals.splits).enumerate() {
            let written = self.outputs.split_written(i).filter(|written| written != packets);
            let written = written.map_or(String::new(), |written| format!(", {} written", grouped(written)));
            out.push_str(&format!("  {name}: {} packets, {} bytes{written}\n", grouped(*packets), grouped(*bytes)));
        }
        for note in &self.notes {
            out.push_str(&format!("  {}\n", printable(note)));
        }
        let seconds = time.as_secs_f64().max(1e-9);
        let cpu = Duration::from_nanos(sys::process_cpu_ns());
        out.push_str(&format!(
            "  received {} = passed {} + filtered {} + denied 0 + dropped {}\n",
            grouped(totals.received),
            grouped(totals.passed),
            grouped(totals.filtered),
            grouped(totals.dropped + totals.not_taken),
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

/// `0 dropped`, `3 dropped: kernel` or `5 dropped: kernel 3, output 2`.
fn dropped_words(causes: &[(&str, u64)]) -> String {
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
