//! Outcome of a command with its exit code, and messages on standard error.

use crate::numbers::{grouped, packets};
use crate::terminal::{printable, width, wrapped};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use weir_engine::ledger::Ledger;
use weir_engine::outputs::Outputs;
use weir_engine::run::Stage;
use weir_engine::sink::{Kind, StageCounts};
use weir_io::sys::writer::Writer;
use weir_io::sys::{self, standard};
use weir_messages::errors::without_codes;
pub use weir_messages::errors::{directory_words, io_words, own_path};
use weir_messages::events::lost_words;
pub use weir_messages::faults::fault_line;
use weir_pipeline::Slow;

/// Outcome of a command that ran. A command that could not begin returns an error instead (exit code 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// The input or the output failed, which was reported; exit code 1.
    Failed,
}

impl Outcome {
    /// Outcome of a command that has succeeded, or failed.
    pub fn of(has_succeeded: bool) -> Self {
        if has_succeeded {
            Self::Done
        } else {
            Self::Failed
        }
    }
}

/// Stop flag that the stop signals set.
pub fn stop_on_signals() -> Arc<AtomicBool> {
    let stop = Arc::<AtomicBool>::default();
    sys::stop_on_signals(Arc::clone(&stop));
    stop
}

/// Prints a message on standard error, after `weir: `.
pub fn say(line: &str) {
    say_plain(&format!("weir: {line}"));
}

/// Prints a line on standard error that is not a complaint.
pub fn say_plain(line: &str) {
    tell(&format!("{}\n", printable(&without_codes(line))));
}

/// Prints a line, once in a run, if libpcap takes longer than a second for an expression.
pub fn slow_compilation() -> Slow {
    let told = Once::new();
    Slow::new(move || {
        told.call_once(|| {
            say("libpcap takes over a second to compile the expression; Ctrl-C ends it")
        })
    })
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

/// Prints an answer on standard output, completely. **Errors**: errors of the write; or standard
/// output was closed when the process began.
pub fn print(text: &str) -> io::Result<()> {
    standard::check_output()?;
    Writer::new(io::stdout()).write_all(text.as_bytes())
}

/// Prints an answer on standard output, and reports a failure. A closed pipe is not a failure.
pub fn answer(text: &str) -> Outcome {
    match print(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("standard output: {}", io_words(&error)));
            Outcome::Failed
        }
        _ => Outcome::Done,
    }
}

/// Packets that each output wrote, if their number differs from the number of packets for it:
/// `45 written, 3 lost: failed`. The first output is always listed if it is `rotated`. Of several outputs, the
/// early ended ones are named; replaced files count with the last file.
pub fn written_words(outputs: &Outputs, rotated: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (i, ((name, report), (before, counts))) in outputs.reports().zip(outputs.sums()).enumerate()
    {
        let Some(report) = report.filter(|report| report.kind == Kind::Written) else {
            continue;
        };
        let is_whole = counts.taken == counts.judged;
        if is_whole && !(rotated && i == 0) {
            continue;
        }
        let to = match before {
            0 if is_whole || !outputs.are_several() => String::new(),
            0 => format!(" to {}", printable(name)),
            files => {
                let plural = if files == 1 { "" } else { "s" };
                let files = grouped(files);
                format!(" to {} and {files} file{plural} before it", printable(name))
            }
        };
        let mut words = format!("{} written{to}", grouped(counts.taken));
        if report.overwritten > 0 && i == 0 {
            words.push_str(&format!(
                ", {} of them overwritten (-W)",
                grouped(report.overwritten)
            ));
        }
        words.push_str(&lost_words(&counts));
        all.push(words);
    }
    all
}

/// Dropped packets by cause: `0 dropped`, `3 dropped: kernel` or `5 dropped: kernel 3, output 2`.
pub fn dropped_words(causes: &[(&str, u64)]) -> String {
    let some: Vec<_> = causes.iter().filter(|(_, packets)| *packets > 0).collect();
    let by = match &some[..] {
        [] => String::new(),
        [(only, _)] => format!(": {only}"),
        several => {
            let each = several
                .iter()
                .map(|(place, packets)| format!("{place} {}", grouped(*packets)));
            format!(": {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "{} dropped{by}",
        grouped(causes.iter().map(|(_, packets)| packets).sum())
    )
}

/// The totals of a run: `received 5 = passed 3 + ...`.
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

/// Counts of an output: `20 matched, 9 taken, 11 lost (down)`.
fn counts_words(counts: &StageCounts) -> String {
    let lost: Vec<&str> = counts.lost.iter().map(|lost| lost.why.name()).collect();
    let lost = match &lost[..] {
        [] => String::new(),
        why => format!(", {} lost ({})", grouped(counts.lost()), why.join(", ")),
    };
    format!(
        "{} matched, {} taken{lost}",
        grouped(counts.judged),
        grouped(counts.taken)
    )
}

/// A line of counters for each stage of a run.
pub fn stage_lines(stages: &[Stage]) -> String {
    let line = |stage: &Stage| match stage {
        Stage::Read { delivered } => format!("  stage read: {} delivered\n", packets(*delivered)),
        Stage::Filter {
            passed,
            filtered,
            native,
        } => format!(
            "  stage filter: {} passed, {} filtered ({})\n",
            grouped(*passed),
            grouped(*filtered),
            if *native {
                "native code"
            } else {
                "interpreted"
            }
        ),
        Stage::Dedup { passed, duplicates } => format!(
            "  stage dedup: {} passed, {} duplicates\n",
            grouped(*passed),
            grouped(*duplicates)
        ),
        Stage::Firewall {
            passed,
            denied,
            controls,
        } => format!(
            "  stage firewall: {} passed, {} denied, {} control packets\n",
            grouped(*passed),
            grouped(*denied),
            grouped(*controls)
        ),
        Stage::Measure {
            counted,
            filtered,
            late,
        } => format!(
            "  stage measure: {} counted, {} filtered by its workers, {} late\n",
            grouped(*counted),
            grouped(*filtered),
            grouped(*late)
        ),
        Stage::ReplacedOutputs {
            by,
            outputs,
            counts,
        } => format!(
            "  stage outputs before {}: {} of them, {}\n",
            printable(by),
            grouped(*outputs),
            counts_words(counts)
        ),
        Stage::Output { name, counts } => {
            format!(
                "  stage output {}: {}\n",
                printable(name),
                counts_words(counts)
            )
        }
        stage => format!("  stage {stage:?}\n"),
    };
    stages.iter().map(line).collect()
}
