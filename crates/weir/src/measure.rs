//! `weir measure`: who uses the traffic.

mod live;
mod merged;
mod report;

use crate::capture;
use crate::cli::{ByArg, DesignArg, DistributeArg, MeasureArgs, SketchArg, StateArg};
use crate::emit::Zone;
use crate::name::Name;
use crate::numbers::{asked_time, duration, grouped, packets};
use crate::outcome::{Outcome, fault_line, io_words, misfit_lines, say, say_lost_before, tell};
use crate::progress::Progress;
use crate::sources;
use crate::terminal::printable;
use anyhow::{anyhow, bail};
use report::{Report, Shape};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_io::input::Opening;
use weir_io::{Input, Kind, sys};
use weir_measure::{Arrivals, Config, Cut, SharedTables, Sketch, State, Weigh, Window};
use weir_memory::Request;
use weir_pipeline::SourceFault;
use weir_pipeline::measuring::timing::percentiles;
use weir_pipeline::measuring::{Design, Distribute, Failure, Finished, Measured, Run, Settings};
use weir_pipeline::reader::Trouble;
use weir_pipeline::select::{Select, Selection};

/// Windows that may be open at once: each has tables of its own.
const MOST_OPEN: i64 = 64;

/// Runs the command.
pub fn run(mut arguments: MeasureArgs) -> anyhow::Result<Outcome> {
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    let arguments = &arguments;
    let mut settings = settings(arguments)?;
    sources::say_namesakes(&arguments.sources);
    let stop = Arc::new(AtomicBool::new(false));
    settings.selection.stop = Arc::clone(&stop);
    sys::stop_on_signals(Arc::clone(&stop));
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
    let command = Command {
        arguments,
        stop,
        begun: Instant::now(),
        report: Report::new(shape, Zone::new(arguments.utc)),
        progress: Progress::new(arguments.window.is_some() && io::stdout().is_terminal()),
        faults: Vec::new(),
        lost_before: 0,
        notes: Vec::new(),
        received: 0,
        reread: 0,
        output: Ok(()),
    };
    command.run(settings)
}

fn by(arguments: &MeasureArgs) -> Weigh {
    match arguments.by {
        ByArg::Packets => Weigh::Packets,
        ByArg::Bytes => Weigh::Bytes,
    }
}

/// What the arguments mean; refuses by name what makes no sense.
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
    let selection = Selection {
        expression: arguments.filter.clone(),
        resolve: arguments.resolve,
        // Windows are given out as they are complete.
        at_once: arguments.window.is_some(),
        ..Selection::default()
    };
    let seed = arguments.seed.map_or_else(draw_seed, Ok)?;
    let config = Config {
        keys: arguments.key.clone(),
        by: by(arguments),
        sketch,
        shared: shared.then(SharedTables::default),
        memory: usize::try_from(arguments.memory).map_err(|_| anyhow!("--memory {} is too large", arguments.memory))?,
        // No packet waits for a page.
        request: Request { pages: arguments.pages, populate: is_live(arguments), ..Request::default() },
        cut: cut(arguments)?,
        seed,
    };
    Ok(Settings {
        selection,
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

fn cut(arguments: &MeasureArgs) -> anyhow::Result<Cut> {
    let ns = |time: Duration| i64::try_from(time.as_nanos()).map_err(|_| anyhow!("{} is too long", asked_time(time)));
    let Some(window) = arguments.window else { return Ok(Cut::default()) };
    if window.is_zero() {
        bail!("--window 0 would never hold a packet");
    }
    let late = arguments.late.unwrap_or_else(|| default_late(window, is_live(arguments)));
    let cut = Cut { window_ns: Some(ns(window)?), late_ns: ns(late)? };
    if cut.most_open() > MOST_OPEN {
        bail!(
            "--late {} would keep {} windows of {} open at once: more than {MOST_OPEN} are not allowed",
            asked_time(late),
            grouped(cut.most_open() as u64),
            asked_time(window),
        );
    }
    Ok(cut)
}

/// How long a window waits for late packets without `--late`.
fn default_late(window: Duration, live: bool) -> Duration {
    /// Windows that may be open at once because of it.
    const OPEN: u32 = 8;
    if live { window.saturating_mul(OPEN).min(Duration::from_millis(200)) } else { window.min(Duration::from_secs(1)) }
}

/// A seed that nobody knows.
fn draw_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no random numbers from the system: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}

struct Command<'a> {
    arguments: &'a MeasureArgs,
    stop: Arc<AtomicBool>,
    begun: Instant,
    report: Report,
    progress: Progress,
    /// Lines about sources that failed, in order; printed at once, and repeated in JSON.
    faults: Vec<String>,
    notes: Vec<String>,
    /// Packets that are not in the sources, as these say.
    lost_before: u64,
    /// Packets that the reader delivered.
    received: u64,
    reread: u64,
    /// How writing to standard output went.
    output: io::Result<()>,
}

impl Command<'_> {
    fn run(mut self, settings: Settings) -> anyhow::Result<Outcome> {
        let mut run = Run::new(settings);
        let live = is_live(self.arguments);
        if live && let Some(failure) = self.captured(&mut run)? {
            return self.broken(&failure, &mut run);
        }
        let combined = !live && merged::combines(self.arguments);
        if combined && let Some(failure) = self.combined(&mut run)? {
            return self.broken(&failure, &mut run);
        }
        for name in self.arguments.sources.iter().filter(|_| !live && !combined) {
            let MeasureArgs { follow, zstd_window, .. } = *self.arguments;
            let followed = follow.then(|| sources::followed(name, &self.stop));
            let opening = Opening { follow: followed.as_ref(), zstd_window };
            let mut opened = Some(sources::open(name, &opening, &self.stop));
            // Each of the files that have a followed name is a source of its own.
            while let Some(input) = opened.take().and_then(|opened| self.opened(opened)) {
                if let Some(failure) = self.source(&mut run, input)? {
                    return self.broken(&failure, &mut run);
                }
                if self.is_over() {
                    break;
                }
                opened = sources::next(name, &opening);
            }
            if self.is_over() {
                break;
            }
        }
        let finished = {
            let Self { report, output, stop, .. } = &mut self;
            run.finish(&mut |window| print(report, output, stop, &window))
        };
        match finished {
            Ok(finished) => self.finish(&finished),
            Err(failure) => self.broken(&failure, &mut run),
        }
    }

    /// A source that could be opened; one that could not is reported and passed over.
    fn opened(&mut self, opened: Result<Input, String>) -> Option<Input> {
        match opened {
            Ok(input) => Some(input),
            // Told to end while a pipe had no writer.
            Err(_) if self.stop.load(Ordering::Relaxed) => None,
            Err(line) => {
                self.fault(line);
                None
            }
        }
    }

    /// Nothing more is to be read.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.output.is_err()
    }

    /// Measures a source. `Some` if the run cannot go on.
    fn source(&mut self, run: &mut Run, input: Input) -> anyhow::Result<Option<Failure>> {
        let (asked, workers) = (run.asked(), run.wanted_workers());
        let name = input.name.clone();
        let can_be_split = matches!(input.kind, Kind::File(_));
        if !can_be_split && asked == Design::Rss && self.received == 0 {
            bail!("--design rss splits a source among the workers, and {name} cannot be split: use async or sync");
        }
        // The tables are made here: memory that cannot be had is a wrong command.
        run.start(can_be_split).map_err(|failure| self.no_tables(&failure))?;
        if asked == Design::Auto && run.design() == Design::Async && self.received == 0 {
            let how = format!("{name} cannot be split: one distributor feeds {workers} workers (--design async)");
            self.notes.push(how);
        }
        self.progress.begin(input.len_hint());
        let measured = {
            let Self { report, output, progress, stop, .. } = &mut *self;
            let mut each = |window: Window<'_>| print(report, output, stop, &window);
            run.source(input, stop, &mut |offset| progress.show(offset), &mut each)
        };
        match measured {
            Ok(measured) => self.close(&name, &measured, run.select())?,
            Err(failure) => return Ok(Some(failure)),
        }
        Ok(None)
    }

    /// Why the tables cannot be had, in the words of the command.
    fn no_tables(&self, failure: &Failure) -> anyhow::Error {
        let memory = self.arguments.memory;
        match failure {
            Failure::Counters(weir_measure::Error::TooLittleMemory { .. }) => {
                anyhow!("--memory {memory} (bytes) is too little for such a table: 16k are enough for any")
            }
            Failure::Thread(error) => anyhow!("{error}"),
            failure => anyhow!("--memory {memory} (bytes), --pages {}: {failure}", self.arguments.pages),
        }
    }

    /// The run cannot go on; what was complete was given out, and is accounted for.
    fn broken(mut self, failure: &Failure, run: &mut Run) -> anyhow::Result<Outcome> {
        self.fault(failure.to_string());
        let Ok(finished) = run.abandon() else { return Ok(Outcome::Failed) };
        self.received = finished.arrivals.received;
        self.finish(&finished)
    }

    fn fault(&mut self, line: String) {
        self.progress.clear();
        say(&line);
        self.faults.push(line);
    }

    /// Takes the account of a source that is done.
    fn close(&mut self, name: &str, measured: &Measured, select: &Select) -> anyhow::Result<()> {
        let first = self.received == 0;
        // What the source itself counted, where it does.
        self.received += measured.report.live.map_or(measured.report.received, |counts| counts.received);
        self.reread += measured.report.reread;
        self.notes.push(match &measured.report.live {
            Some(counts) => capture::standing_line(name, counts),
            None => {
                let way = sources::way_words(measured.way);
                format!("{name}: {} bytes, {way}", grouped(measured.report.offset))
            }
        });
        self.progress.clear();
        self.lost_before = self.lost_before.saturating_add(measured.report.lost_before());
        let misfits = select.take_misfits();
        if let Some(layout) = &measured.layout {
            let refused = select.refusal(layout).filter(|_| !self.stop.load(Ordering::Relaxed));
            if let Some(refused) = refused {
                if first {
                    bail!("--filter: {refused}");
                }
                self.fault(format!("{name}: {refused}"));
                return Ok(());
            }
            misfit_lines(name, Some(layout), select, &misfits).iter().for_each(|line| say(line));
        }
        say_lost_before(name, &measured.report);
        let Some(fault) = &measured.report.fault else { return Ok(()) };
        if let SourceFault { what: Trouble::Plan(refused), packet: 1, .. } = fault
            && first
        {
            bail!("--filter: {refused}");
        }
        self.fault(fault_line(name, fault));
        Ok(())
    }

    fn finish(mut self, finished: &Finished) -> anyhow::Result<Outcome> {
        self.progress.clear();
        let arrivals = finished.arrivals;
        let passed = finished.state.as_ref().map_or(0, |state| state.tally().passed);
        // Each term was counted in its own place. That they agree is what makes the answer one.
        if arrivals.received != self.received
            || arrivals.received != passed + arrivals.filtered + arrivals.late + arrivals.dropped
        {
            self.fault(format!(
                "the account does not add up: {} were read, {} arrived, {passed} were measured, {} filtered, {} late, {} dropped",
                self.received, arrivals.received, arrivals.filtered, arrivals.late, arrivals.dropped
            ));
        }
        let total = Window {
            span: None,
            covered: None,
            revision: 0,
            left_out: finished.left_out,
            arrivals,
            state: finished.state.as_ref(),
            before: None,
        };
        if self.output.is_ok() {
            let fault = self.faults.first().map(String::as_str);
            self.output = self.report.summary(&total, fault, self.lost_before, sys::is_interrupted());
        }
        self.say_of_time(&arrivals, finished);
        let mut failed = !self.faults.is_empty();
        match &self.output {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(if failed { Outcome::Failed } else { Outcome::Done });
            }
            Err(error) => {
                let line = format!("standard output: {}", io_words(error));
                self.fault(line);
                failed = true;
            }
        }
        self.summary(finished, &total);
        Ok(if failed { Outcome::Failed } else { Outcome::Done })
    }

    /// Lines about packets whose time stamps do not fit.
    fn say_of_time(&self, arrivals: &Arrivals, finished: &Finished) {
        let further = &finished.further;
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
        if finished.left_out > 0 {
            say(&format!(
                "windows left out because they ended faster than their results were taken: {}; the summary has their packets",
                grouped(finished.left_out)
            ));
        }
        if arrivals.jumped > 0 {
            say(&format!(
                "time stamps far from those around them are not believed: {} (jumped), counted where they came",
                packets(arrivals.jumped)
            ));
        }
    }

    /// On standard error: how it went.
    fn summary(&self, finished: &Finished, total: &Window<'_>) {
        let time = self.begun.elapsed();
        let (arrivals, passed) = (total.arrivals, total.state.map_or(0, |state| state.tally().passed));
        let mut line = format!(
            "{} received, {} measured, {} filtered, {} dropped, {} ({:.1} Mpps)",
            grouped(arrivals.received),
            grouped(passed),
            grouped(arrivals.filtered),
            grouped(arrivals.late + arrivals.dropped),
            duration(time),
            arrivals.received as f64 / time.as_secs_f64().max(1e-9) / 1e6,
        );
        // An output that failed told the run to stop, which nobody did from outside.
        if self.stop.load(Ordering::Relaxed)
            && !(self.arguments.follow || is_live(self.arguments))
            && self.output.is_ok()
        {
            line.push_str(if self.arguments.duration.is_some_and(|limit| time >= limit) {
                ", ended by --duration"
            } else {
                ", interrupted"
            });
        }
        if !self.faults.is_empty() {
            line.push_str(", incomplete: see the fault above");
        }
        line.push('\n');
        if self.arguments.stats {
            self.stats(&mut line, finished, total);
        }
        tell(&line);
    }

    fn stats(&self, out: &mut String, finished: &Finished, total: &Window<'_>) {
        let arrivals = total.arrivals;
        let mut note = |line: String| out.push_str(&format!("  {}\n", printable(&line)));
        for line in &self.notes {
            note(line.clone());
        }
        note(format!(
            "received {} = passed {} + filtered {} + denied 0 + dropped {} (late {}, kernel {})",
            grouped(arrivals.received),
            grouped(finished.processed),
            grouped(arrivals.filtered),
            grouped(arrivals.late + arrivals.dropped),
            grouped(arrivals.late),
            grouped(arrivals.dropped),
        ));
        note(format!("read twice after a wrong guess: {}", packets(self.reread)));
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

/// Prints a window. When nobody reads any more, the run is told to stop.
fn print(report: &mut Report, output: &mut io::Result<()>, stop: &AtomicBool, window: &Window<'_>) {
    if output.is_ok() {
        *output = report.window(window);
        if output.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
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
