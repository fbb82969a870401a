//! Counters of a finished run: the summary, `--stats`, `--count` and `--json`.

use super::Command;
use crate::numbers::{bit_rate, duration, grouped, percent};
use crate::outcome::{account_line, dropped_words, print, stage_lines, tell, written_words};
use crate::summary::{Ending, Summary, denied, duplicates, if_any};
use crate::terminal::{self, printable};
use std::io;
use std::time::Duration;
use weir_engine::firewall::remote::fates;
use weir_engine::outputs::Outputs;
use weir_engine::run::Ended;
use weir_engine::sink::Kind;
use weir_io::sys;
use weir_messages::measured::lacks;

/// Cause of a drop: no output takes packets any more.
const OUTPUT: &str = "output";

/// A finished run, as the summary needs it.
pub(super) struct Account<'a> {
    pub(super) command: &'a Command<'a>,
    pub(super) ended: &'a Ended,
    pub(super) outputs: &'a Outputs,
    /// Whether at least one source could be opened.
    pub(super) has_opened: bool,
}

impl Account<'_> {
    /// Prints the answer of `--count` and `--json` on standard output.
    pub(super) fn answer(&self) -> io::Result<()> {
        let mut out;
        let Self {
            command:
                Command {
                    arguments,
                    show,
                    session,
                    ..
                },
            ended,
            has_opened,
            ..
        } = *self;
        let ledger = &ended.ledger;
        // If no source could be opened there is no count: 0 would look like an answer.
        let counts = arguments.count && (show.faults.is_empty() || has_opened);
        if !arguments.format.is_json() && !counts {
            return Ok(());
        }
        if arguments.format.is_json() {
            let mut object = serde_json::json!({
                "received": ledger.received,
                "matched": ledger.passed,
                "bytes": ledger.bytes,
                "dropped": if session.is_live() { serde_json::json!({ session.place(): ledger.dropped.source }) } else { serde_json::json!({}) },
                "fault": show.faults.first(),
            });
            if arguments.judging.rules.is_some() {
                object["denied"] = ledger.denied.into();
            }
            if ledger.dropped.output > 0 {
                object["dropped"][OUTPUT] = ledger.dropped.output.into();
            }
            // Lines on standard output are the answer itself.
            let written = arguments.output.writes().then(|| fates(ledger));
            for (name, value) in
                lacks(ledger, &ended.holds_only).chain(written.into_iter().flatten())
            {
                object[name] = value;
            }
            if self.ending().is_interrupted() {
                object["interrupted"] = true.into();
            }
            if ledger.uncounted {
                object["filtered"] = serde_json::Value::Null;
            }
            if !arguments.output.split.is_empty() {
                let counts = arguments.output.split.iter().zip(&ledger.splits);
                object["splits"] = counts
                    .map(|((name, _), (packets, _))| {
                        (name.text(), serde_json::Value::from(*packets))
                    })
                    .collect();
            }
            out = format!("{}\n", terminal::unversioned("summary", &object));
        } else {
            out = format!("{}\n", ledger.passed);
            for ((name, _), (packets, _)) in arguments.output.split.iter().zip(&ledger.splits) {
                out.push_str(&format!("{packets} {name}\n"));
            }
        }
        print(&out)
    }

    fn ending(&self) -> Ending {
        let Command {
            arguments, session, ..
        } = self.command;
        Ending {
            by: self.ended.by,
            is_endless: session.is_live() || arguments.follow,
            has_duration: arguments.duration.is_some() || arguments.times.to.is_some(),
        }
    }

    pub(super) fn summary(&self) {
        let Self {
            command:
                Command {
                    arguments,
                    show,
                    session,
                    begun,
                    ..
                },
            ended,
            outputs,
            ..
        } = *self;
        let (ledger, time) = (&ended.ledger, begun.elapsed());
        let dropped = dropped_words(&[
            (session.place(), ledger.dropped.source),
            (OUTPUT, ledger.dropped.output),
        ]);
        let matched = grouped(ledger.passed);
        let share = percent(ledger.passed, ledger.received);
        let mut fates = vec![
            format!("{matched} matched ({share})"),
            duplicates(arguments.dedup.within.is_some(), ledger.duplicates),
            denied(arguments.judging.rules.is_some(), ledger.denied),
            format!("{} bytes", grouped(ledger.bytes)),
            dropped,
            if_any(ledger.lost_before, "lost before"),
        ];
        fates.extend(written_words(outputs, arguments.output.rotates()));
        for (kind, what) in [(Kind::Sent, "sent"), (Kind::Discarded, "thrown away")] {
            let reports = outputs.reports().filter_map(|(_, report)| report);
            let of_kind = reports.filter(|report| report.kind == kind);
            let taken = of_kind.map(|report| report.taken).reduce(|a, b| a + b);
            fates.extend(taken.map(|taken| format!("{} {what}", grouped(taken))));
        }
        let mut line = Summary {
            received: ledger.received,
            fates,
            time,
            ending: self.ending(),
            is_uncounted: ledger.uncounted,
            is_incomplete: !show.faults.is_empty(),
            ..Summary::default()
        }
        .line();
        if arguments.stats {
            self.stats(&mut line, time);
        }
        tell(&line);
    }

    fn stats(&self, out: &mut String, time: Duration) {
        let Self {
            command: Command {
                arguments, show, ..
            },
            ended,
            ..
        } = *self;
        let ledger = &ended.ledger;
        let written: Vec<Option<u64>> = self
            .outputs
            .reports()
            .skip(1)
            .map(|(_, report)| report.map(|report| report.taken))
            .collect();
        for (i, ((name, _), (packets, bytes))) in arguments
            .output
            .split
            .iter()
            .zip(&ledger.splits)
            .enumerate()
        {
            let written = written
                .get(i)
                .copied()
                .flatten()
                .filter(|written| written != packets);
            let written = written.map_or(String::new(), |written| {
                format!(", {} written", grouped(written))
            });
            out.push_str(&format!(
                "  {name}: {} packets, {} bytes{written}\n",
                grouped(*packets),
                grouped(*bytes)
            ));
        }
        for note in &show.notes {
            out.push_str(&format!("  {}\n", printable(note)));
        }
        out.push_str(&stage_lines(&ended.stages));
        let seconds = time.as_secs_f64().max(1e-9);
        let cpu = Duration::from_nanos(sys::process_cpu_ns());
        out.push_str(&account_line(ledger));
        out.push_str(&format!(
            "  read twice after a wrong guess: {} packets\n",
            grouped(ledger.reread)
        ));
        out.push_str(&format!(
            "  {:.2} Mpps; matched {} (frames without FCS); processor time {}\n",
            ledger.received as f64 / seconds / 1e6,
            bit_rate(ledger.bytes as f64 * 8.0 / seconds),
            duration(cpu),
        ));
    }
}
