//! `weir measure`: the largest flows, addresses or ports of the traffic.

mod live;
mod printer;
mod report;

use crate::capture;
use crate::cli::{ByArg, DesignArg, DistributeArg, MeasureArgs, SketchArg, StateArg};
use crate::filter_file::{self, Hangups};
use crate::numbers::{asked_time, duration, grouped, packets};
use crate::outcome::{Outcome, io_words, print, say, stage_lines, tell, written_words};
use crate::show::Show;
use crate::sources;
use crate::terminal::printable;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use printer::Printer;
use report::{Beside, Report, Shape};
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::outputs::Outputs;
use weir_engine::records::Query;
use weir_engine::run::{Ended, Error, Files, Run, Setup};
use weir_engine::zone::Zone;
use weir_io::sys;
use weir_measure::{Config, SharedTables, Sketch, State, Weigh, Window, Windowing};
use weir_memory::Request;
use weir_pipeline::measuring::timing::percentiles;
use weir_pipeline::measuring::{Design, Distribute, Failure, Finished, Settings};
use weir_pipeline::select::Selection;

/// Most windows open at once. Each has tables of its own.
const MOST_OPEN: i64 = 64;

/// Runs the command.
pub fn run(mut arguments: MeasureArgs) -> anyhow::Result<Outcome> {
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    if let Some(file) = &arguments.filter_file {
        arguments.filter = filter_file::read(file)?;
    }
    run_over(&arguments, None)
}

/// Runs the command over a record directory, with a question to it.
pub fn run_query(arguments: MeasureArgs, query: Arc<Query>) -> anyhow::Result<Outcome> {
    run_over(&arguments, Some(&query))
}

fn run_over(arguments: &MeasureArgs, query: Option<&Arc<Query>>) -> anyhow::Result<Outcome> {
    let settings = settings(arguments)?;
    let output = &arguments.output;
    output.check_rotation()?;
    if output.write.as_ref().is_some_and(Name::is_dash) || output.split.iter().any(|(name, _)| name.is_dash()) {
        bail!("standard output has the answer of the measurement: give -w and --split names of files");
    }
    output.check(&arguments.sources, arguments.live.direction, true)?;
    output.say_ignored();
    let walls = Walls::of_measure(arguments)?;
    let (main, splits) = output.targets(&arguments.sources, arguments.utc, true)?;
    sources::say_namesakes(&arguments.sources);
    let stop = Arc::new(AtomicBool::new(false));
    sys::stop_on_signals(Arc::clone(&stop));
    let hangups = filter_file::hangups(arguments.filter_file.as_ref())?;
    if let Some(time) = arguments.duration {
        sys::stop_after(time);
    }
    let shape = Shape {
        sources: arguments.sources.clone(),
        keys: arguments.key.clone(),
        by: by(arguments),
        rows: arguments.top,
        changers: arguments.changers,
        json: arguments.json,
    };
    let look = Arc::new(AtomicBool::new(false));
    let mut command = Command {
        arguments,
        begun: Instant::now(),
        report: Report::new(shape, Zone::new(arguments.utc)),
        show: Show::new(
            arguments.window.is_some() && io::stdout().is_terminal(),
            arguments.stats,
            settings.workers,
            output.writes(),
        ),
        output: Ok(()),
        capturing: is_live(arguments),
        printer: None,
        unprinted: Unprinted::default(),
        walls: &walls,
        hangups,
    };
    let mut run = Run::new(Setup {
        selection: Selection {
            expression: arguments.filter.clone(),
            resolve: arguments.resolve,
            behind_tags: query.is_some_and(|query| query.selection.behind_tags),
            // Windows are given out as soon as they are complete.
            at_once: arguments.window.is_some(),
            splits: output.expressions(),
            ..Selection::default()
        },
        firewall: None,
        measure: Some(settings),
        main: main.unwrap_or_default(),
        splits,
        limit: None,
        merges: false,
        workers: 1,
        cpus: Vec::new(),
        pull: None,
        stop: Arc::clone(&stop),
        look: Arc::clone(&look),
    });
    let follow = |name: &Name| sources::followed(name, &stop);
    let files = Files {
        names: &arguments.sources,
        zstd_window: arguments.zstd_window,
        follow: if arguments.follow { Some(&follow) } else { None },
        query,
    };
    if !is_live(arguments) {
        walls.raise(&[])?;
        command.reload_on_hangup(&run)?;
    }
    let on = &mut |event: Event<'_>| command.event(event, &stop);
    if is_live(arguments) {
        command.captured(&mut run, &stop, &look)?;
    } else if arguments.sort {
        run.sorted(&files, on).map_err(|error| refused(arguments, error))?;
    } else if merges(arguments) {
        run.merged(&files, on).map_err(|error| refused(arguments, error))?;
    } else {
        run.one_by_one(&files, on).map_err(|error| refused(arguments, error))?;
    }
    Ok(command.finish(run, &stop))
}

/// Message on why a run cannot begin, in terms of the command line.
fn refused(arguments: &MeasureArgs, error: Error) -> anyhow::Error {
    let memory = arguments.memory;
    match error {
        Error::Refused { why, .. } => anyhow!("--filter: {why}"),
        Error::CannotBeSplit { name } => {
            anyhow!("--design rss splits a source among the workers, and {name} cannot be split: use async or sync")
        }
        Error::TooManySources { .. } | Error::TooManyStreams { .. } => {
            sources::too_many(&error, "--no-merge reads files one after another, --sort takes any number of them")
                .into()
        }
        Error::Tables(Failure::Counters(weir_measure::Error::TooLittleMemory { .. })) => {
            anyhow!("--memory {memory} (bytes) is too little for such a table: 16k are enough for any")
        }
        Error::Tables(Failure::Thread(error)) => anyhow!("{error}"),
        Error::Tables(failure) => anyhow!("--memory {memory} (bytes), --pages {}: {failure}", arguments.pages),
        error => error.into(),
    }
}

/// Whether all files are merged by packet time: with `--merge`, or by default with windows of time.
fn merges(arguments: &MeasureArgs) -> bool {
    // One program may fill several named pipes one after another, and would wait for ever if all had to be open at once.
    let named_pipe = |source: &Name| {
        let path = Path::new(source);
        path.metadata().is_ok_and(|about| about.file_type().is_fifo()) && !path.starts_with("/dev/fd")
    };
    let by_windows = || arguments.window.is_some() && !arguments.no_merge && !arguments.sources.iter().any(named_pipe);
    arguments.sources.len() > 1 && (arguments.merge || by_windows())
}

fn by(arguments: &MeasureArgs) -> Weigh {
    match arguments.by {
        ByArg::Packets => Weigh::Packets,
        ByArg::Bytes => Weigh::Bytes,
    }
}

/// Settings of the engine for the arguments. **Errors**: contradictory arguments, by name.
fn settings(arguments: &MeasureArgs) -> anyhow::Result<Settings> {
    sources::check_schemes(&arguments.sources)?;
    sources::check(&arguments.sources, arguments.follow)?;
    if arguments.follow && arguments.merge {
        bail!("--merge needs the end of each source, and --follow has none");
    }
    sources::check_sort(&arguments.sources, arguments.sort)?;
    let sketch = match arguments.sketch {
        SketchArg::Heavy => Sketch::Heavy,
        SketchArg::Exact => Sketch::Exact,
        SketchArg::Cms => Sketch::Cms { conservative: false },
        SketchArg::CmsConservative => Sketch::Cms { conservative: true },
    };
    let shared = arguments.state == StateArg::Shared;
    if shared && !sketch.can_be_shared() {
        bail!(
            "--state shared cannot be had with --sketch heavy, whose update touches several places at once: \
             use exact or cms, or --state separate"
        );
    }
    let design = match arguments.design {
        DesignArg::Auto => Design::Auto,
        DesignArg::Rss => Design::Rss,
        DesignArg::Async => Design::Async,
        DesignArg::Sync => Design::Sync,
    };
    if shared && arguments.window.is_some() && is_live(arguments) && !matches!(design, Design::Async | Design::Sync) {
        bail!(
            "--state shared cannot be had with --window on interfaces, whose workers end their windows apart: \
             use --state separate, or --design async"
        );
    }
    if arguments.distribute.is_some() && design == Design::Rss {
        bail!("--distribute is the rule of a distributor, and --design rss has none: use async or sync");
    }
    if arguments.distribute.is_some() && design == Design::Auto {
        bail!("--distribute is the rule of a distributor: choose one with --design async or sync");
    }
    if design == Design::Rss && arguments.sources.first().is_some_and(Name::is_dash) {
        bail!("--design rss splits a source among the workers, and standard input cannot be split: use async or sync");
    }
    let distribute = match arguments.distribute {
        None => Distribute::default(),
        Some(DistributeArg::Flow) => Distribute::Flow,
        Some(DistributeArg::Address) => Distribute::Address,
        Some(DistributeArg::Random) => Distribute::Random,
    };
    let workers = arguments.workers.map_or_else(weir_pipeline::processors, usize::from);
    let cpus = arguments.cpus.as_ref().map_or(Vec::new(), |cpus| cpus.0.clone());
    sources::check_cpus(&cpus)?;
    let seed = arguments.seed.map_or_else(draw_seed, Ok)?;
    let config = Config {
        keys: arguments.key.clone(),
        by: by(arguments),
        sketch,
        shared: shared.then(SharedTables::default),
        memory: usize::try_from(arguments.memory).map_err(|_| anyhow!("--memory {} is too large", arguments.memory))?,
        // With memory populated at the start, no packet waits for a page.
        request: Request { pages: arguments.pages, populate: is_live(arguments), ..Request::default() },
        windowing: windowing(arguments)?,
        seed,
    };
    Ok(Settings {
        inner: arguments.inner,
        config: Arc::new(config),
        design,
        distribute,
        workers,
        cpus,
        batch: arguments.batch.into(),
        timing: arguments.stats,
        ..Settings::default()
    })
}

/// Whether the sources are interfaces.
fn is_live(arguments: &MeasureArgs) -> bool {
    arguments.sources.iter().any(|source| capture::interface(source).is_some())
}

fn windowing(arguments: &MeasureArgs) -> anyhow::Result<Windowing> {
    let ns = |time: Duration| i64::try_from(time.as_nanos()).map_err(|_| anyhow!("{} is too long", asked_time(time)));
    let Some(window) = arguments.window else { return Ok(Windowing::default()) };
    if window.is_zero() {
        bail!("--window 0 would never hold a packet");
    }
    let late = arguments.late.unwrap_or_else(|| default_late(window, is_live(arguments)));
    let windowing = Windowing { window_ns: Some(ns(window)?), late_ns: ns(late)? };
    if windowing.most_open() > MOST_OPEN {
        bail!(
            "--late {} would keep {} windows of {} open at once: more than {MOST_OPEN} are not allowed",
            asked_time(late),
            grouped(windowing.most_open() as u64),
            asked_time(window),
        );
    }
    Ok(windowing)
}

/// Time that a window waits for late packets without `--late`.
fn default_late(window: Duration, live: bool) -> Duration {
    /// Windows that a default wait may keep open at once.
    const OPEN: u32 = 8;
    if live { window.saturating_mul(OPEN).min(Duration::from_millis(200)) } else { window.min(Duration::from_secs(1)) }
}

/// Draws a random seed that no sender of packets can guess.
fn draw_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random numbers from the system: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Windows left out because too many others waited to be printed.
#[derive(Clone, Copy, Debug, Default)]
struct Unprinted {
    all: u64,
    /// Windows left out since the last printed one, those that the workers left out included.
    since: u64,
}

struct Command<'a> {
    arguments: &'a MeasureArgs,
    begun: Instant,
    report: Report,
    show: Show,
    /// Result of writing to standard output.
    output: io::Result<()>,
    /// Whether a capture goes on, which must not wait for standard output.
    capturing: bool,
    /// Thread that prints the windows of a capture.
    printer: Option<Printer>,
    unprinted: Unprinted,
    walls: &'a Walls,
    /// SIGHUP, by which the user requests to read the filter's file again.
    hangups: Option<Hangups>,
}

impl Command<'_> {
    /// Reads the filter's file again at each SIGHUP from now on, if there is one.
    fn reload_on_hangup(&mut self, run: &Run) -> anyhow::Result<()> {
        filter_file::reload_on_hangup(self.hangups.take(), self.arguments.filter_file.as_ref(), run.control())
    }

    /// Prints a window, and shows all other events. If standard output fails, the run is stopped.
    fn event(&mut self, event: Event<'_>, stop: &Arc<AtomicBool>) {
        match event {
            Event::Window(window) if self.output.is_ok() => {
                self.output = self.window(window, stop);
                if self.output.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            event => self.show.event(event),
        }
    }

    /// Prints a window. Files wait for the print. During a capture, windows are left out if too many wait to be printed.
    fn window(&mut self, window: Window<'_>, stop: &Arc<AtomicBool>) -> io::Result<()> {
        if !self.capturing {
            return print(&self.report.window(&window));
        }
        let printer = match &self.printer {
            Some(printer) => printer,
            None => self.printer.insert(Printer::start(stop)?),
        };
        if printer.is_full() {
            self.unprinted.all += 1;
            self.unprinted.since += 1 + window.left_out;
            return Ok(());
        }
        let window = match std::mem::take(&mut self.unprinted.since) {
            0 => window,
            // The previous window was not printed, and is no basis for comparison.
            since => Window { left_out: window.left_out + since, before: None, ..window },
        };
        printer.add(self.report.window(&window));
        Ok(())
    }

    /// Waits until the windows of a capture are printed. Later windows are printed at once.
    fn end_of_capture(&mut self) {
        self.capturing = false;
        if let Some(printer) = self.printer.take() {
            self.output = printer.finish();
        }
    }

    /// Prints the summary, and returns the outcome of the command.
    fn finish(mut self, run: Run, stop: &Arc<AtomicBool>) -> Outcome {
        self.end_of_capture();
        let (ended, outputs) = run.finish(&mut |event| self.event(event, stop));
        self.show.progress.clear();
        if let Some(failure) = &ended.failure {
            self.show.fault(failure.to_string());
        }
        let Some(finished) = &ended.measured else { return Outcome::Failed };
        self.show.outputs(&outputs, &ended);
        let arrivals = finished.arrivals;
        let total = Window {
            span: None,
            covered: None,
            revision: 0,
            left_out: finished.left_out + self.unprinted.all,
            arrivals,
            state: finished.state.as_ref(),
            change: None,
            before: None,
        };
        if self.output.is_ok() {
            let fault = self.show.faults.first().map(String::as_str);
            let splits = self.arguments.output.split.iter().zip(&ended.ledger.splits);
            let splits: Vec<(&Name, u64)> = splits.map(|((name, _), (packets, _))| (name, *packets)).collect();
            let beside =
                Beside { fault, lost_before: ended.ledger.lost_before, interrupted: sys::is_interrupted(), splits };
            self.output = print(&self.report.summary(&total, &beside));
        }
        self.say_of_time(&total, finished);
        let mut failed = !self.show.faults.is_empty();
        match &self.output {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return if failed { Outcome::Failed } else { Outcome::Done };
            }
            Err(error) => {
                let line = format!("standard output: {}", io_words(error));
                self.show.fault(line);
                failed = true;
            }
        }
        self.summary(&ended, &outputs, finished, &total, stop);
        if failed { Outcome::Failed } else { Outcome::Done }
    }

    /// Prints lines about packets whose time stamps do not fit.
    fn say_of_time(&self, total: &Window<'_>, finished: &Finished) {
        let (arrivals, further) = (total.arrivals, &finished.further);
        if arrivals.late > 0 {
            say(&format!(
                "late by more than --late allows, and dropped: {}; their windows were given out before they came",
                packets(arrivals.late)
            ));
        }
        if further.results > 0 {
            let plural = if further.results == 1 { "" } else { "s" };
            let sorts = !is_live(self.arguments) && !self.arguments.follow && !self.arguments.sort;
            let advice = if sorts { "; --sort reads files in the order of time" } else { "" };
            say(&format!(
                "late by more than --late allows: {}, in {} further result{plural} of their windows (revision){advice}",
                packets(further.packets),
                grouped(further.results)
            ));
        }
        let tally = finished.state.as_ref().map(State::tally);
        if self.arguments.window.is_some() && tally.is_some_and(|tally| tally.passed > 0 && tally.times().is_none()) {
            say("no packet has a time stamp, so that there is no window: the summary has all packets");
        }
        if total.left_out > 0 {
            say(&format!(
                "windows left out because they ended faster than their results were taken: {}; the summary has their packets",
                grouped(total.left_out)
            ));
        }
        if arrivals.jumped > 0 {
            say(&format!(
                "time stamps far from those around them are not believed: {} (jumped), counted where they came",
                packets(arrivals.jumped)
            ));
        }
    }

    /// Prints the summary of the run on standard error.
    fn summary(&self, ended: &Ended, outputs: &Outputs, finished: &Finished, total: &Window<'_>, stop: &AtomicBool) {
        let time = self.begun.elapsed();
        let (arrivals, passed) = (total.arrivals, total.state.map_or(0, |state| state.tally().passed));
        let mut line = format!(
            "{} received, {} measured, {} filtered, {} dropped{}, {} ({:.1} Mpps)",
            grouped(arrivals.received),
            grouped(passed),
            grouped(arrivals.filtered),
            grouped(arrivals.late + arrivals.dropped),
            written_words(outputs, ended.matched(), self.arguments.output.rotates()),
            duration(time),
            arrivals.received as f64 / time.as_secs_f64().max(1e-9) / 1e6,
        );
        // A failed output stops the run too, without an interruption by the user.
        if stop.load(Ordering::Relaxed) && !(self.arguments.follow || is_live(self.arguments)) && self.output.is_ok() {
            line.push_str(if self.arguments.duration.is_some_and(|limit| time >= limit) {
                ", ended by --duration"
            } else {
                ", interrupted"
            });
        }
        if !self.show.faults.is_empty() {
            line.push_str(", incomplete: see the fault above");
        }
        line.push('\n');
        if self.arguments.stats {
            self.stats(&mut line, ended, finished, total);
        }
        tell(&line);
    }

    fn stats(&self, out: &mut String, ended: &Ended, finished: &Finished, total: &Window<'_>) {
        for line in &self.show.notes {
            out.push_str(&format!("  {}\n", printable(line)));
        }
        out.push_str(&stage_lines(&ended.stages));
        let mut note = |line: String| out.push_str(&format!("  {}\n", printable(&line)));
        let ledger = &ended.ledger;
        note(format!(
            "received {} = passed {} + filtered {} + denied {} + dropped {} (late {}, kernel {})",
            grouped(ledger.received),
            grouped(ledger.passed),
            grouped(ledger.filtered),
            grouped(ledger.denied),
            grouped(ledger.dropped.sum()),
            grouped(ledger.dropped.late),
            grouped(ledger.dropped.source),
        ));
        note(format!("read twice after a wrong guess: {}", packets(ledger.reread)));
        let workers = finished.workers;
        note(match finished.design {
            Design::Async => format!("design async: a distributor and {workers} workers, each with a ring"),
            Design::Sync => format!("design sync: a distributor and {workers} workers in step"),
            Design::Rss | Design::Auto if workers == 1 => "one worker".to_owned(),
            Design::Rss | Design::Auto if is_live(self.arguments) => {
                format!("design rss: {workers} workers, each with a ring or queue of its own")
            }
            Design::Rss | Design::Auto => format!("design rss: {workers} workers, each with pieces of the source"),
        });
        for line in total.state.map_or(Vec::new(), |state| state.describe()) {
            note(line);
        }
        if let Some(timing) = &finished.timing {
            let line = |what: &str, times: [Duration; 3]| {
                let [p50, p99, p999] = times.map(|time| time.as_nanos());
                format!("{what}: p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns")
            };
            note(line("processing time of a packet", percentiles(&timing.processing)));
            note(line("delay from hand-out to done", percentiles(&timing.delay)));
        }
        note(format!("processor time {}", duration(Duration::from_nanos(sys::process_cpu_ns()))));
    }
}

#[cfg(test)]
mod tests {
    use super::settings;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use weir_pipeline::measuring::Settings;

    #[test]
    fn what_is_not_asked_for_is_as_in_the_library() {
        let cli = Cli::parse_from(["weir", "measure", "--seed", "0", "a.pcap"]);
        let Command::Measure(arguments) = cli.command else { panic!("another command") };
        let ours = settings(&arguments).expect("a file can be measured");
        assert_eq!(format!("{ours:?}"), format!("{:?}", Settings::default()));
    }
}
