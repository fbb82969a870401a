//! `weir measure`: the largest flows, addresses or ports of the traffic.

mod lines;
mod printer;
mod report;

use crate::capture::{self, CaptureRequest};
use crate::cli::{
    ByArg, DesignArg, DistributeArg, FanoutArg, HealthArg, MeasureArgs, SketchArg, StateArg,
};
use crate::ctl;
use crate::filter;
use crate::filter_file::{self, Reload};
use crate::firewall;
use crate::numbers::{duration, grouped, packets};
use crate::outcome::{
    Outcome, print, say, say_plain, slow_compilation, stage_lines, stop_on_signals, tell,
    written_words,
};
use crate::outputs::{self, About, Maker};
use crate::processes::Processes;
use crate::programs::{Flag, Programs};
use crate::progress::Ticker;
use crate::show::Show;
use crate::sources::{self, Takes};
use crate::summary::{Ending, Summary, denied, duplicates};
use crate::terminal::printable;
use crate::times;
use crate::walls::Walls;
use crate::watch::{self, Links, Running, Serving, Shared, Waiting, Watch};
use anyhow::bail;
use lines::Lines;
use printer::Printer;
use report::Report;
pub use report::{bound_of_change, key_columns};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_engine::event::{Event, On};
use weir_engine::name::Name;
use weir_engine::outputs::Outputs;
use weir_engine::records::Query;
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::{End, Session};
use weir_engine::socket::Bound;
use weir_engine::zone::Zone;
use weir_io::sys;
use weir_measure::health::Parts;
use weir_measure::names::Names;
use weir_measure::{Sketch, Window};
use weir_messages::Refusal;
use weir_messages::captures::interface;
use weir_messages::json::line;
use weir_messages::measured::times::has_peaks;
use weir_messages::measured::{Beside, LeftOut, time_lines, too_many_findings, total};
use weir_messages::measurement::{Options, check_queues, no_sketch, snaplen};
use weir_messages::rows::Form;
use weir_messages::viewing::Lacks;
use weir_packet::addresses::Addresses;
use weir_pipeline::measuring::timing::percentiles;
use weir_pipeline::measuring::{Design, Distribute, Finished};
use weir_pipeline::select::{Selection, Span};
use weir_screen::Tab;
use weir_view::{Finding, View};

/// Runs the command.
pub fn run(mut arguments: MeasureArgs) -> anyhow::Result<Outcome> {
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    if let Some(file) = &arguments.filter_file {
        arguments.filter = filter_file::read(file)?;
    }
    let splits = arguments.output.expressions();
    let expressions = std::iter::once(&arguments.filter)
        .chain(&splits)
        .map(String::as_str);
    arguments.names.read(
        expressions,
        filter::may_change(&arguments.filter_file, Some(&arguments.filter)),
    )?;
    run_over(&arguments, None, None)
}

/// Runs the command over a record directory, with a question to it.
pub fn run_query(arguments: MeasureArgs, query: Arc<Query>) -> anyhow::Result<Outcome> {
    run_over(&arguments, Some(&query), None)
}

/// Runs the command with a screen in place of standard output.
pub fn run_watched(
    mut arguments: MeasureArgs,
    watch: &Watch,
    query: Option<Arc<Query>>,
) -> anyhow::Result<Outcome> {
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    let filter = arguments.filter.as_str();
    arguments.names.read([filter], true)?;
    run_over(&arguments, query.as_ref(), Some(watch))
}

fn run_over(
    arguments: &MeasureArgs,
    query: Option<&Arc<Query>>,
    watch: Option<&Watch>,
) -> anyhow::Result<Outcome> {
    arguments
        .dedup
        .check(arguments.sources.iter().map(Name::text))?;
    let mut options = options(arguments, watch.is_some())?;
    let view = arguments.viewers.view.as_ref();
    let hides_names = view.is_some() && !options.reads_names();
    options.reads_names = watch.is_some() || view.is_some();
    if arguments.sketch.is_some() && options.by.is_distinct() {
        return Err(no_sketch(options.by).into());
    }
    let form = arguments.format.form().unwrap_or(Form::Table);
    let has_lines = watch.is_none() && has_lines(arguments, form);
    check_view(arguments)?;
    if has_lines || view.is_some() && options.window.is_none() {
        (options.window, options.late) = (Some(lines::EVERY), Some(lines::EVERY));
    }
    let settings = options.settings(&arguments.sources)?;
    check_form(arguments, form)?;
    let output = &arguments.output;
    output.check_rewriting(output.writes())?;
    output.check_rotation(true)?;
    if output.write.as_ref().is_some_and(Name::is_dash)
        || output.split.iter().any(|(name, _)| name.is_dash())
    {
        bail!(
            "standard output has the answer of the measurement: give -w and --split names of files"
        );
    }
    output.check(&arguments.sources, arguments.live.direction, true)?;
    output.check_read(
        true,
        (&arguments.sources, arguments.judging.rules.as_ref()),
        arguments.filter_file.as_ref(),
        &arguments.names,
    )?;
    output.say_ignored();
    let stop = stop_on_signals();
    let session = session(arguments, &options, &stop, query);
    let takes = match arguments.filter_file {
        Some(_) => Takes::Elsewhere,
        None => Takes::Flag(&arguments.filter, None),
    };
    let absent = match query {
        Some(_) => output.absent_directory(true),
        None => sources::absent(command_words(watch), &arguments.sources, takes)?
            .or_else(|| output.absent_directory(true)),
    };
    let mut walls = Walls::of_measure(arguments, &session)?;
    if let Some(watch) = watch {
        walls.changes_filter();
        let (directory, history) = watch.files();
        walls.saves(directory, history);
    }
    let programs = output.programs(&walls)?;
    let hook = arguments.on_finding.as_ref();
    let hook = hook
        .map(|program| Programs::start(Flag::OnFinding, program, &walls))
        .transpose()?
        .map(|programs| Arc::new(Mutex::new(programs)));
    let interfaces = arguments.sources.iter().filter_map(interface);
    let processes = options
        .owners
        .clone()
        .map(|owners| Processes::start(interfaces, owners))
        .transpose()?;
    let control = arguments.remote.control.as_ref();
    let bound = ctl::bind(control, &walls)?;
    let waiting = watch::bind(view, control, &walls)?;
    let shared = shared(arguments, (view, watch), session.is_live());
    let span = match watch {
        Some(watch) => watch::span(watch.past.first),
        None => arguments.times.span(arguments.utc, session.is_live())?,
    };
    let limit = times::duration(arguments.duration, &span, session.is_live());
    let selection = Selection {
        expression: arguments.filter.clone(),
        names: arguments.names.names().clone(),
        behind_tags: query.is_some_and(|query| query.selection.behind_tags),
        inner: arguments.inside.tunnels()?,
        // Windows are delivered as soon as they are complete.
        at_once: options.window.is_some(),
        splits: output.expressions(),
        span,
        slow: slow_compilation(),
        ..Selection::default()
    };
    let mut about = About::of(
        &selection,
        (arguments.filter_file.as_ref(), control.is_some()),
        arguments.judging.rules.as_ref(),
        arguments.live.direction,
        query.map(|query| (query, &arguments.sources[0])),
    );
    about.without_duplicates(arguments.dedup.within);
    let over = (&arguments.sources[..], arguments.live.direction);
    let maker = output.maker(over, arguments.utc, programs.as_ref(), &about)?;
    let (main, splits) = maker.targets(true)?;
    sources::say_namesakes(&arguments.sources);
    let reload = Reload::new(
        arguments.filter_file.as_ref(),
        &arguments.filter,
        &arguments.names.set,
    )?;
    limit.into_iter().for_each(sys::stop_after);
    let standing_asked = Arc::new(AtomicBool::new(false));
    let mut command = Command {
        arguments,
        span,
        has_begun: false,
        begun: Instant::now(),
        report: Report::new(
            &arguments.sources,
            options.answers()?,
            form,
            (arguments.window.is_some(), Zone::new(arguments.utc)),
        ),
        show: Show::new(
            watch.is_some() || arguments.window.is_some() && io::stdout().is_terminal(),
            arguments.stats,
            settings.workers,
            output.writes(),
        )
        .telling_changes(control.is_some()),
        output: Ok(()),
        options: &options,
        capturing: session.is_live(),
        session,
        printer: None,
        has_lines,
        lines: None,
        hook,
        processes,
        unsaid: Vec::new(),
        lost_findings: 0,
        watch,
        shared,
        hides_names,
        screen: None,
        serving: None,
        view: (watch.is_none() && arguments.looks_for_findings()).then(|| {
            View::new(weir_view::Settings {
                local: options.local.clone(),
                ..weir_view::Settings::default()
            })
        }),
        unprinted: LeftOut::default(),
        walls: &walls,
        absent,
    };
    let mut run = Run::new(Setup {
        selection,
        dedup: arguments.dedup.within,
        firewall: firewall::stage(
            arguments.judging.rules.as_ref(),
            arguments.inside.tunnels()?,
        )?,
        measure: Some(settings),
        main: main.unwrap_or_default(),
        splits,
        reserve: arguments.output.reserve(),
        workers: 1,
        stop: Arc::clone(&stop),
        standing_asked: Arc::clone(&standing_asked),
        ..Setup::default()
    });
    let sockets = (bound, waiting, maker);
    command.read(&mut run, &stop, (standing_asked, reload), sockets)?;
    Ok(command.finish(run, &stop, programs.as_ref()))
}

/// Refuses viewers of a measurement that has no windows to show them.
fn check_view(arguments: &MeasureArgs) -> anyhow::Result<()> {
    let is_interface = |name: &Name| interface(name).is_some();
    if arguments.viewers.view.is_none() || arguments.window.is_some() {
        return Ok(());
    }
    if !arguments.sources.iter().all(is_interface) {
        bail!("--view shows windows, and this measurement of files has none: add --window 1s");
    }
    if arguments.state == StateArg::Shared {
        bail!(
            "--view shows windows, which --state shared does not have on interfaces: leave one of them out"
        );
    }
    Ok(())
}

/// The view for the screen, or for viewers.
fn shared(
    arguments: &MeasureArgs,
    (view, watch): (Option<&Name>, Option<&Watch>),
    is_live: bool,
) -> Option<Arc<Shared>> {
    let sources: Vec<String> = arguments.sources.iter().map(Name::text).collect();
    let lacks = |part: HealthArg| !part.is_in(&arguments.health);
    let about = || watch::About {
        sources: sources.join(" "),
        filter: arguments.filter.clone(),
        is_live,
        local: (!arguments.local.is_empty())
            .then(|| Arc::new(Addresses::new(arguments.local.iter().copied()))),
        lacks: Lacks {
            findings: !arguments.looks_for_findings(),
            tcp: lacks(HealthArg::Tcp),
            dns: lacks(HealthArg::Dns),
        },
    };
    let own = || Arc::new(Shared::new(about(), &watch::Past::default()));
    let of_screen = watch.map(|watch| Arc::clone(watch.shared()));
    of_screen.or_else(|| view.map(|_| own()))
}

/// The command, for messages.
fn command_words(watch: Option<&Watch>) -> &'static str {
    match watch {
        Some(_) => "weir watch",
        None => "weir measure",
    }
}

/// Refuses parts of an answer that its form has no place for.
fn check_form(arguments: &MeasureArgs, form: Form) -> anyhow::Result<()> {
    let name = form.name();
    if form.is_separated() && arguments.changers > 0 {
        bail!("--format {name} has one kind of row, and --changers another: use --format json");
    }
    if form.is_separated() && !arguments.health.is_empty() {
        bail!("--format {name} has one kind of row, and --health others: use --format json");
    }
    if form.is_separated() && arguments.looks_for_findings() {
        bail!("--format {name} has one kind of row, and --findings others: use --format json");
    }
    let is_live = arguments
        .sources
        .iter()
        .any(|name| interface(name).is_some());
    if arguments.link.is_some() && !is_live && arguments.local.is_empty() {
        bail!(
            "--link is a speed in each direction, and a file does not say which packets came in: add --local NET, the network on \
             this side"
        );
    }
    let may_change = arguments.remote.control.is_some() && arguments.format.columns.is_none();
    if form.is_separated() && may_change {
        bail!(
            "--format {name} has the same columns to its end, and weir ctl may set other keys: choose them with --columns"
        );
    }
    Ok(())
}

fn session(
    arguments: &MeasureArgs,
    options: &Options,
    stop: &Arc<AtomicBool>,
    query: Option<&Arc<Query>>,
) -> Session {
    let mut session = Session::new(arguments.sources.clone());
    session.order = options.order(&arguments.sources);
    session.zstd_window = arguments.zstd_window;
    session.follow = arguments.follow.then(|| sources::follow(stop));
    session.query = query.cloned();
    session
}

/// Whether a terminal shows a line for each second of a capture whose answer comes at its end.
fn has_lines(arguments: &MeasureArgs, form: Form) -> bool {
    let mut sources = arguments.sources.iter();
    let is_alone = arguments.window.is_none() && arguments.state != StateArg::Shared;
    let is_shown = form == Form::Table && io::stdout().is_terminal();
    is_alone && is_shown && sources.all(|name| interface(name).is_some())
}

/// Most rows of a table: 10, or as many as can reach the least share.
fn rows(arguments: &MeasureArgs) -> usize {
    const MOST: f64 = 10_000.0;
    let of_share = |share: f64| (1.0 / share).min(MOST) as usize;
    let usual = arguments.above.map_or(10, of_share);
    arguments.top.unwrap_or(usual)
}

/// Options of the measurement for the arguments. `is_watched`: keys change without a control socket.
fn options(arguments: &MeasureArgs, is_watched: bool) -> Result<Options, Refusal> {
    let merge = match (arguments.merge, arguments.no_merge) {
        (false, false) => None,
        (merge, _) => Some(merge),
    };
    // The packets of a millisecond go to one worker.
    let has_peaks = arguments.format.columns.as_deref().is_some_and(has_peaks);
    Ok(Options {
        keys: arguments.key.clone(),
        by: arguments.by.figure(),
        rows: rows(arguments),
        above: arguments.above,
        link_bits_per_s: arguments
            .link
            .or_else(|| watch::link_speed(&arguments.sources)),
        local: (!arguments.local.is_empty())
            .then(|| Arc::new(Addresses::new(arguments.local.iter().copied()))),
        geo: arguments.places.read(
            &arguments.key,
            arguments.format.columns.as_deref(),
            is_watched || arguments.remote.control.is_some(),
        )?,
        by_rate: arguments.by == ByArg::Rate,
        changers: arguments.changers,
        owners: arguments
            .key
            .iter()
            .any(|key| key.needs_owners())
            .then(Arc::default),
        columns: arguments.format.columns.clone(),
        window: arguments.window,
        late: arguments.late,
        sketch: match arguments.sketch.unwrap_or(SketchArg::Heavy) {
            SketchArg::Heavy => Sketch::Heavy,
            SketchArg::Exact => Sketch::Exact,
            SketchArg::Cms => Sketch::Cms {
                conservative: false,
            },
            SketchArg::CmsConservative => Sketch::Cms { conservative: true },
            SketchArg::Sht => Sketch::Simple,
            SketchArg::Mv => Sketch::Majority,
            SketchArg::Rs => Sketch::Reversible,
            SketchArg::RsSet => Sketch::ReversibleSets,
        },
        memory: arguments.memory,
        pages: arguments.pages,
        seed: arguments.seed,
        shared: arguments.state == StateArg::Shared,
        design: match arguments.design {
            DesignArg::Auto => Design::Auto,
            DesignArg::Rss => Design::Rss,
            DesignArg::Async => Design::Async,
            DesignArg::Sync => Design::Sync,
        },
        distribute: arguments.distribute.map(|rule| match rule {
            DistributeArg::Flow => Distribute::Flow,
            DistributeArg::Address => Distribute::Address,
            DistributeArg::Random => Distribute::Random,
        }),
        workers: match arguments.workers {
            Some(workers) => workers.into(),
            None if has_peaks => 1,
            None => weir_pipeline::processors(),
        },
        cpus: arguments
            .cpus
            .as_ref()
            .map_or(Vec::new(), |cpus| cpus.0.clone()),
        batch: arguments.batch.into(),
        inner: arguments.inside.tunnels()?,
        timing: arguments.stats,
        health: Parts {
            tcp: HealthArg::Tcp.is_in(&arguments.health),
            dns: HealthArg::Dns.is_in(&arguments.health),
            path: HealthArg::Mtu.is_in(&arguments.health),
        },
        findings: arguments.looks_for_findings(),
        reads_names: false,
        dedup: arguments.dedup.within.is_some(),
        merge,
        sort: arguments.sort,
        follow: arguments.follow,
    })
}

struct Command<'a> {
    arguments: &'a MeasureArgs,
    options: &'a Options,
    /// Times of the packets.
    span: Span,
    /// Whether a packet was in a window so far.
    has_begun: bool,
    begun: Instant,
    report: Report,
    show: Show,
    /// Result of writing to standard output.
    output: io::Result<()>,
    session: Session,
    /// Whether a capture goes on, which must not wait for standard output.
    capturing: bool,
    /// Thread that prints the windows of a capture.
    printer: Option<Printer>,
    /// Whether a terminal shows a line each second, and the lines once the sources are open.
    has_lines: bool,
    lines: Option<Lines>,
    /// The screen that shows the windows, in place of standard output.
    watch: Option<&'a Watch>,
    /// The view of the screen and of viewers.
    shared: Option<Arc<Shared>>,
    /// Whether names are read for viewers alone.
    hides_names: bool,
    /// The screen while it is drawn.
    screen: Option<Running>,
    /// The socket of viewers.
    serving: Option<Serving>,
    /// The recent past, whose findings are printed.
    view: Option<View>,
    /// The process that runs a program for findings.
    hook: Option<Arc<Mutex<Programs>>>,
    processes: Option<Processes>,
    /// Findings to print, and the number of findings for which there was no room.
    unsaid: Vec<Finding>,
    lost_findings: u64,
    unprinted: LeftOut,
    walls: &'a Walls,
    /// Line about a source or a directory that does not exist; then nothing is read.
    absent: Option<String>,
}

impl Command<'_> {
    /// Reads the sources to their end.
    fn read(
        &mut self,
        run: &mut Run,
        stop: &Arc<AtomicBool>,
        (standing_asked, reload): (Arc<AtomicBool>, Option<Reload>),
        (bound, waiting, maker): (Option<Bound>, Option<Waiting>, Maker),
    ) -> anyhow::Result<()> {
        if let Some(line) = self.absent.take() {
            self.show.absent(line);
            return Ok(());
        }
        let shares = if self.session.is_live() {
            sys::tell_on_signal(standing_asked);
            self.options.shares(run, self.session.names())?
        } else {
            1
        };
        let needs = (self.options.reads_names(), self.watch.is_some());
        let request = capture_request(self.arguments, shares, needs);
        let about = capture::open(&mut self.session, &request, stop)?;
        check_queues(run, self.session.inputs())?;
        let by_flow = self.arguments.live.fanout == FanoutArg::Hash;
        let inputs = self.session.inputs().len();
        self.options
            .check_health(self.session.names(), inputs, by_flow)?;
        self.report.answers.captures(self.session.inputs());
        let splits = self.arguments.output.split.iter();
        let splits = splits.map(|(name, _)| name.text()).collect();
        let rules = firewall::rules_maker(self.arguments.judging.rules.as_ref());
        let mut server = None;
        let (mut ticker, screen) = (None, self.show.progress.screen());
        let ticks = self.ticks();
        let (watch, mut screen_run) = (self.watch, None);
        let links = || Links::open(&self.arguments.sources);
        if let Some(shared) = &self.shared {
            shared.open(links(), self.session.place(), self.options.link_bits_per_s);
        }
        if self.has_lines {
            let about = (links(), Zone::new(self.arguments.utc));
            let (local, is_ascii) = (self.options.local.clone(), watch::look().ascii);
            self.lines = Some(Lines::new(about, local, is_ascii));
        }
        let (shared, mut serving) = (self.shared.clone(), None);
        let options = self.options;
        let shown = (self.arguments.names.names(), options.geo.clone());
        let mut processes = self.processes.take();
        let begun = |run: &Run| {
            if let Some(processes) = &mut processes {
                processes.begin()?;
            }
            about.iter().for_each(|line| say_plain(line));
            let tells = bound.is_none();
            server = ctl::serve(bound, run.control(), (splits, Some(maker)), rules)?;
            ticker = ticks
                .then(|| Ticker::start(screen, run.control()))
                .flatten();
            serving = waiting
                .zip(shared)
                .map(|(waiting, shared)| waiting.serve(&shared))
                .transpose()?;
            screen_run = watch
                .map(|watch| watch.start(run.control(), stop, shown))
                .transpose()?;
            reload.map_or(Ok(()), |reload| reload.start(run.control(), tells))
        };
        let mut session = std::mem::take(&mut self.session);
        let (walls, terms) = (self.walls, self.options.terms());
        let on: On<'_> = &mut |event| self.event(event, stop);
        let read = walls.read(&mut session, run, &terms, on, begun);
        ticker.into_iter().for_each(Ticker::end);
        read?;
        self.screen = screen_run;
        // No request comes between the last packet and the end.
        drop(server);
        self.serving = serving;
        if let Some(processes) = &mut processes {
            processes.end();
        }
        (self.session, self.processes) = (session, processes);
        self.show.end_of_capture();
        Ok(())
    }

    /// Whether a terminal shows the counts of a capture: not between windows that another program reads there.
    fn ticks(&self) -> bool {
        let is_seen = self.arguments.window.is_none() || io::stdout().is_terminal();
        self.session.is_live() && self.watch.is_none() && is_seen
    }

    /// Prints a window, and shows all other events. If standard output fails, the run is stopped.
    fn event(&mut self, event: Event<'_>, stop: &Arc<AtomicBool>) {
        if let Some(shared) = &self.shared {
            shared.note(&event);
        }
        match event {
            // Nobody looks any more, and a piece of a file may hold thousands of windows.
            Event::Window(_) if self.watch.is_some() && stop.load(Ordering::Relaxed) => {}
            Event::Window(window) if self.watch.is_some() => self.show_window(&window),
            Event::Window(window) if self.output.is_ok() => {
                self.show_window(&window);
                self.output = match self.has_lines {
                    true => self.line(&window, stop),
                    // These windows are for viewers; the sum before a change is part of the answer.
                    false if self.arguments.window.is_none() && window.span.is_some() => Ok(()),
                    false => self.window(self.of_answer(window), stop),
                };
                if self.output.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            event => self.show.event(event),
        }
    }

    /// A window as the answer has it: without names that were read for viewers alone.
    fn of_answer<'b>(&self, window: Window<'b>) -> Window<'b> {
        match self.hides_names {
            true => Window {
                names: None,
                ..window
            },
            false => window,
        }
    }

    /// Gives a window to the screen and to viewers.
    fn show_window(&self, window: &Window<'_>) {
        if let Some(shared) = &self.shared {
            shared.add(window);
        }
    }

    /// Prints a window. Files wait for the print. During a capture, windows are left out if too many wait to be printed.
    fn window(&mut self, window: Window<'_>, stop: &Arc<AtomicBool>) -> io::Result<()> {
        if !self.capturing && self.is_outside(&window) {
            return Ok(());
        }
        if let Some(view) = &mut self.view {
            view.add(&window);
            self.take_findings();
        }
        if !self.capturing {
            let text = self.report.window(&window);
            return print(&(text + &self.findings()));
        }
        let is_full = self.printer(stop)?.is_full();
        if let Some(window) = self.unprinted.admit(window, !is_full) {
            let text = self.report.window(&window);
            let findings = std::mem::take(&mut self.unsaid);
            let text = text + &self.report.findings(&findings);
            self.printer(stop)?.add(text);
        }
        Ok(())
    }

    /// Whether a window of files has no packet because it lies outside of the asked time.
    fn is_outside(&mut self, window: &Window<'_>) -> bool {
        let Some((begin, end)) = window.span else {
            return false;
        };
        let passed = window.state.map_or(0, |state| state.tally().passed);
        let counted = passed + window.arrivals.dropped + window.arrivals.late;
        self.has_begun |= counted > 0;
        let span = &self.span;
        let is_before = span.from_ns.is_some_and(|from| end <= from);
        let is_after = span.to_ns.is_some_and(|to| begin > to);
        // The latest packet tells where the last part of a file begins.
        let is_early = span.last_ns.is_some() && !self.has_begun;
        counted == 0 && (is_before || is_after || is_early)
    }

    /// Prints the line of a window during a capture. Lines that a slow terminal does not take are left out.
    fn line(&mut self, window: &Window<'_>, stop: &Arc<AtomicBool>) -> io::Result<()> {
        let lines = self.lines.as_mut().filter(|_| self.capturing);
        if let Some(line) = lines.and_then(|lines| lines.line(window)) {
            let printer = self.printer(stop)?;
            if !printer.is_full() {
                printer.add(line);
            }
        }
        Ok(())
    }

    fn printer(&mut self, stop: &Arc<AtomicBool>) -> io::Result<&Printer> {
        if self.printer.is_none() {
            let screen = self.show.progress.screen();
            self.printer = Some(Printer::start(stop, screen)?);
        }
        Ok(self.printer.as_ref().expect("it was started"))
    }

    /// Takes the findings that began or ended, and has the program run for each. Standard output may be slow, and the program
    /// does not wait for it.
    fn take_findings(&mut self) {
        const MOST_UNSAID: usize = 1024;
        let findings = self
            .view
            .as_mut()
            .map(|view| view.findings().take_notices());
        for finding in findings.unwrap_or_default() {
            if let Some(hook) = &self.hook {
                run_for_finding(hook, &finding);
            }
            match self.unsaid.len() < MOST_UNSAID {
                true => self.unsaid.push(finding),
                false => self.lost_findings += 1,
            }
        }
    }

    /// Text of the findings that began or ended.
    fn findings(&mut self) -> String {
        let findings = std::mem::take(&mut self.unsaid);
        self.report.findings(&findings)
    }

    /// Prints the findings that go on at the end of the measurement, and says how many were left out.
    fn end_findings(&mut self) {
        let Some(view) = &mut self.view else { return };
        view.findings().finish();
        let left_out = view.findings().left_out();
        self.take_findings();
        let open = self.findings();
        if self.output.is_ok() && !open.is_empty() {
            self.output = print(&open);
        }
        let lost = left_out + self.lost_findings;
        if lost > 0 {
            say(&too_many_findings(lost));
        }
    }

    /// Waits until the windows of a capture are printed. Later windows are printed at once.
    fn end_of_capture(&mut self) {
        self.capturing = false;
        if let Some(printer) = self.printer.take() {
            self.output = printer.finish();
        }
    }

    /// Prints the summary, and returns the outcome of the command.
    fn finish(
        mut self,
        run: Run,
        stop: &Arc<AtomicBool>,
        programs: Option<&Arc<Mutex<Programs>>>,
    ) -> Outcome {
        self.end_of_capture();
        let (ended, outputs) = run.finish(&mut |event| self.event(event, stop));
        self.show.progress.clear();
        if let Some(screen) = self.screen.take() {
            let measured = ended.measured.as_ref();
            self.read_past(&screen, measured.and_then(|it| it.names.as_ref()), stop);
            self.output = screen.finish();
        }
        drop(self.serving.take());
        if let Some(failure) = &ended.failure {
            self.show.fault(failure.to_string());
        }
        let Some(finished) = &ended.measured else {
            return Outcome::Failed;
        };
        self.show.outputs(&outputs, &ended);
        firewall::say_notes(
            self.arguments.judging.rules.as_ref(),
            ended.firewall.as_ref(),
        );
        self.end_findings();
        let have_run = outputs::end_programs(programs) & outputs::end_programs(self.hook.as_ref());
        let total = self.of_answer(total(finished, self.unprinted));
        let is_unread = self.show.is_unread();
        let has_answer = self.watch.is_none() && (self.arguments.format.is_json() || !is_unread);
        if self.output.is_ok() && has_answer {
            let fault = self.show.faults.first().map(String::as_str);
            let splits = self.arguments.output.split.iter().zip(&ended.ledger.splits);
            let splits: Vec<(&Name, u64)> = splits
                .map(|((name, _), (packets, _))| (name, *packets))
                .collect();
            let beside = Beside {
                fault,
                ledger: &ended.ledger,
                holds_only: &ended.holds_only,
                interrupted: self.ending(&ended).is_interrupted(),
                splits,
                counted_before: finished.counted_before,
            };
            self.output = print(&self.report.summary(&total, &beside));
        }
        let sorts = !self.session.is_live() && !self.arguments.follow && !self.arguments.sort;
        let advice = if sorts {
            "; --sort reads files in the order of time"
        } else {
            ""
        };
        time_lines(&total, finished, self.arguments.window.is_some(), advice)
            .iter()
            .for_each(|line| say(line));
        if !self.show.answered(&self.output) && !is_unread {
            self.summary(&ended, &outputs, finished, &total);
        }
        Outcome::of(self.show.faults.is_empty() && have_run)
    }

    /// Reads the parts of the past that the user asks for, as long as they look at the screen. The summary is about the first reading.
    fn read_past(&mut self, screen: &Running, names: Option<&Names>, stop: &Arc<AtomicBool>) {
        let Some(watch) = self.watch else { return };
        watch.end_part(names, None);
        while let Some(part) = screen.next_part() {
            watch.begin_part(&part);
            match self.read_part(watch, &part, stop) {
                Ok(finished) => {
                    let names = finished.and_then(|finished| finished.names);
                    watch.end_part(names.as_ref(), None);
                }
                Err(why) => {
                    say(&why.to_string());
                    watch.end_part(None, Some(why.to_string()));
                }
            }
        }
    }

    fn read_part(
        &mut self,
        watch: &Watch,
        part: &watch::Part,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Option<Finished>> {
        let arguments = self.arguments;
        let mut options = self.options.clone();
        options.keys = Tab::kinds().chain(part.further).collect();
        let times = Some(part.times());
        let is_inside = arguments.inside.inner || arguments.names.resolve;
        let (query, is_left_out) = watch
            .past
            .query_again(part.times(), &part.filter, is_inside)?;
        if is_left_out {
            watch.shared().lack();
        }
        let mut session = session(arguments, &options, stop, query.map(Arc::new).as_ref());
        let mut run = Run::new(Setup {
            selection: Selection {
                expression: part.filter.clone(),
                names: arguments.names.names().clone(),
                inner: arguments.inside.tunnels()?,
                at_once: true,
                span: watch::span(times),
                slow: slow_compilation(),
                ..Selection::default()
            },
            measure: Some(options.settings(&arguments.sources)?),
            workers: 1,
            stop: Arc::clone(stop),
            ..Setup::default()
        });
        let on: On<'_> = &mut |event| self.event(event, stop);
        session.read(&mut run, on)?;
        let (ended, _) = run.finish(&mut |event| self.event(event, stop));
        match ended.failure {
            Some(failure) => bail!(failure.to_string()),
            None => Ok(ended.measured),
        }
    }

    fn ending(&self, ended: &Ended) -> Ending {
        Ending {
            // A failed standard output stops the run too.
            by: if self.output.is_ok() {
                ended.by
            } else {
                End::Output
            },
            is_endless: self.session.is_live() || self.arguments.follow,
            has_duration: self.arguments.duration.is_some() || self.arguments.times.to.is_some(),
        }
    }

    /// Prints the summary of the run on standard error.
    fn summary(&self, ended: &Ended, outputs: &Outputs, finished: &Finished, total: &Window<'_>) {
        let time = self.begun.elapsed();
        let (arrivals, passed) = (
            total.arrivals,
            finished.counted_before + total.state.map_or(0, |state| state.tally().passed),
        );
        let dropped = grouped(arrivals.late + arrivals.dropped);
        let mut fates = vec![
            format!("{} measured", grouped(passed)),
            format!(
                "{} filtered",
                grouped(arrivals.filtered - ended.ledger.duplicates.min(arrivals.filtered))
            ),
            duplicates(
                self.arguments.dedup.within.is_some(),
                ended.ledger.duplicates,
            ),
            denied(self.arguments.judging.rules.is_some(), arrivals.denied),
            format!("{dropped} dropped"),
        ];
        let rotates = self.arguments.output.rotates();
        fates.extend(written_words(outputs, rotates));
        let mut line = Summary {
            received: arrivals.received,
            fates,
            time,
            after: format!(
                " ({:.1} Mpps)",
                arrivals.received as f64 / time.as_secs_f64().max(1e-9) / 1e6
            ),
            ending: self.ending(ended),
            is_incomplete: !self.show.faults.is_empty(),
            ..Summary::default()
        }
        .line();
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
        note(format!(
            "read twice after a wrong guess: {}",
            packets(ledger.reread)
        ));
        let workers = finished.workers;
        note(match finished.design {
            Design::Async => {
                format!("design async: a distributor and {workers} workers, each with a ring")
            }
            Design::Sync => format!("design sync: a distributor and {workers} workers in step"),
            Design::Rss | Design::Auto if workers == 1 => "one worker".to_owned(),
            Design::Rss | Design::Auto if self.session.is_live() => {
                format!("design rss: {workers} workers, each with a ring or queue of its own")
            }
            Design::Rss | Design::Auto => {
                format!("design rss: {workers} workers, each with pieces of the source")
            }
        });
        for line in total.state.map_or(Vec::new(), |state| state.describe()) {
            note(line);
        }
        if let Some(timing) = &finished.timing {
            let line = |what: &str, times: [Duration; 3]| {
                let [p50, p99, p999] = times.map(|time| time.as_nanos());
                format!("{what}: p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns")
            };
            note(line(
                "processing time of a packet",
                percentiles(&timing.processing),
            ));
            note(line(
                "delay from hand-out to done",
                percentiles(&timing.delay),
            ));
        }
        note(format!(
            "processor time {}",
            duration(Duration::from_nanos(sys::process_cpu_ns()))
        ));
    }
}

/// Has the program run for a finding.
fn run_for_finding(hook: &Arc<Mutex<Programs>>, finding: &Finding) {
    let json = line("finding", &weir_messages::view::finding(finding));
    let arguments = [finding.state.name().as_bytes(), json.as_bytes()];
    let about = format!("finding {}", finding.number);
    let mut programs = hook.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = programs.run_with(arguments, &about) {
        say(&why);
    }
}

fn capture_request(
    arguments: &MeasureArgs,
    shares: usize,
    (reads_names, is_watched): (bool, bool),
) -> CaptureRequest<'_> {
    // An expression may test any byte, and tunnels nest headers.
    let output = &arguments.output;
    let replaces = is_watched || arguments.reloads();
    let filters = replaces
        || arguments.judging.rules.is_some()
        || !arguments.filter.trim().is_empty()
        || !output.split.is_empty();
    let writes_whole = output.writes() && output.snaplen == 0;
    // Messages of DNS over TCP and of TLS are read if they are whole.
    let reads_messages = reads_names || HealthArg::Dns.is_in(&arguments.health);
    let whole = filters || arguments.inside.inner || writes_whole || reads_messages;
    CaptureRequest {
        settings: capture::settings(&arguments.live),
        // The kernel's filter sees the frame and not the packet inside.
        expression: if arguments.inside.inner {
            ""
        } else {
            &arguments.filter
        },
        replaces_filter: replaces,
        names: arguments.names.names(),
        snaplen: snaplen(whole, output.snaplen),
        shares,
        yes_take: &arguments.live.taking.yes_take,
    }
}

#[cfg(test)]
mod tests {
    use super::options;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use weir_messages::measurement::Options;

    #[test]
    fn flags_that_are_left_out_are_the_defaults_of_the_library() {
        let cli = Cli::parse_from(["weir", "measure", "a.pcap"]);
        let Command::Measure(arguments) = cli.command else {
            panic!("another command")
        };
        assert_eq!(
            format!("{:?}", options(&arguments, false).unwrap()),
            format!("{:?}", Options::default())
        );
    }
}
