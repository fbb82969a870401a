//! `weir filter`: prints, writes, counts or converts packets that match an expression.

mod account;

use crate::capture::{self, CaptureRequest};
use crate::cli::{FilterArgs, LineArgs};
use crate::ctl;
use crate::emit::{Columns, Lines, NamesOf, Text, When};
use crate::filter_file::{self, Reload};
use crate::firewall;
use crate::interfaces;
use crate::outcome::{Outcome, answer, say, say_plain, slow_compilation, stop_on_signals};
use crate::outputs::{self, About, Maker};
use crate::programs::Programs;
use crate::progress::Ticker;
use crate::show::Show;
use crate::sources::{self, Takes};
use crate::times;
use crate::walls::Walls;
use account::Account;
use anyhow::{Context, bail};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use weir_engine::event::On;
use weir_engine::name::Name;
use weir_engine::outputs::Outputs;
use weir_engine::records::Query;
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::{Order, Session};
use weir_engine::sink::Sink;
use weir_engine::socket::Bound;
use weir_engine::zone::Zone;
use weir_io::sys;
use weir_measure::names::{MEMORY, Names};
use weir_messages::measured::columns::has_names;
use weir_messages::refusals::Terms;
use weir_messages::rows::Form;
use weir_packet::line::{Detail, Hex, Style};
use weir_packet::savefile::MAX_SNAPLEN;
use weir_packet::time::{Digits, Shape};
use weir_pipeline::select::{Selection, Span};

/// Runs the command.
pub fn run(mut arguments: FilterArgs) -> anyhow::Result<Outcome> {
    arguments.sources.append(&mut arguments.read);
    let named = arguments
        .interface
        .drain(..)
        .map(|name| Name::from(format!("{}{name}", capture::AF_PACKET)));
    arguments.sources.extend(named);
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    if let Some(file) = &arguments.filter_file {
        // The source, since the expression comes from the file.
        let first = arguments.expression.replace(filter_file::read(file)?);
        arguments.sources.splice(0..0, first.map(Name::from));
        if arguments.sources.is_empty() {
            bail!("name a source: weir filter --filter-file {file} SOURCE");
        }
    }
    if arguments.list_interfaces {
        return Ok(answer(
            &interfaces::list().context("the list of interfaces")?,
        ));
    }
    check(&arguments)?;
    let splits = arguments.output.expressions();
    let expressions = arguments
        .expression
        .iter()
        .chain(&splits)
        .map(String::as_str);
    arguments.names.read(
        expressions,
        may_change(&arguments.filter_file, arguments.expression.as_deref()),
    )?;
    run_checked(&arguments, None)
}

/// Whether an expression is from a file, so that it may name other sets later.
pub fn may_change(file: &Option<Name>, expression: Option<&str>) -> bool {
    file.is_some() && expression.is_some_and(|expression| !expression.trim().is_empty())
}

/// Runs the command over a record directory, with a question to it.
pub fn run_query(arguments: FilterArgs, query: Arc<Query>) -> anyhow::Result<Outcome> {
    check(&arguments)?;
    run_checked(&arguments, Some(&query))
}

fn run_checked(arguments: &FilterArgs, query: Option<&Arc<Query>>) -> anyhow::Result<Outcome> {
    let stop = stop_on_signals();
    let session = session(arguments, &stop, query);
    let absent = match query {
        Some(_) => arguments.output.absent_directory(!arguments.count),
        None => absent(arguments)?,
    };
    let walls = Walls::of_filter(arguments, &session)?;
    arguments.output.say_ignored();
    let reload = Reload::new(
        arguments.filter_file.as_ref(),
        arguments.expression.as_deref().unwrap_or_default(),
        &arguments.names.set,
    )?;
    let span = arguments.times.span(arguments.utc, session.is_live())?;
    let duration = times::duration(arguments.duration, &span, session.is_live());
    duration.into_iter().for_each(sys::stop_after);
    sources::say_namesakes(&arguments.sources);
    let standing_asked = Arc::new(AtomicBool::new(false));
    let workers = arguments
        .workers
        .map_or_else(weir_pipeline::processors, usize::from);
    // Walls let no process begin another one: the one that does begins here. At the end it is waited for.
    let programs = arguments.output.programs(&walls)?;
    let control = arguments.remote.control.as_ref();
    let bound = ctl::bind(control, &walls)?;
    let (setup, maker) = setup(
        arguments,
        workers,
        span,
        (&stop, &standing_asked),
        (programs.as_ref(), query),
    )?;
    let mut run = Run::new(setup);
    let has_files = run.outputs().have_files();
    let mut command = Command {
        arguments,
        show: Show::new(
            prints_lines(arguments) && io::stdout().is_terminal(),
            arguments.stats,
            workers,
            has_files,
        )
        .telling_changes(control.is_some()),
        begun: Instant::now(),
        session,
        walls: &walls,
        absent,
    };
    command.read(&mut run, &stop, (standing_asked, reload), (bound, maker))?;
    Ok(command.finish(run, programs.as_ref()))
}

/// Sources of the run, in their order.
fn session(arguments: &FilterArgs, stop: &Arc<AtomicBool>, query: Option<&Arc<Query>>) -> Session {
    let mut session = Session::new(arguments.sources.clone());
    session.order = match (arguments.sort, arguments.merge) {
        (true, _) => Order::Sorted,
        (false, true) => Order::Merged,
        (false, false) => Order::OneByOne,
    };
    let is_one_by_one = session.order == Order::OneByOne && !session.is_live();
    if arguments.dedup.within.is_some() && is_one_by_one && arguments.sources.len() > 1 {
        say(
            "--dedup compares packets in the order of the run, one file after another: add --merge to find duplicates in other files",
        );
    }
    session.zstd_window = arguments.zstd_window;
    // Of a record, the recorder gives what is to come.
    session.follow = (arguments.follow && query.is_none()).then(|| sources::follow(stop));
    session.query = query.cloned();
    session
}

/// Refuses contradictory arguments before anything is opened.
fn check(arguments: &FilterArgs) -> anyhow::Result<()> {
    let output = &arguments.output;
    if arguments.count && output.rotates() {
        bail!("--count writes no files to rotate");
    }
    let expression = arguments
        .expression
        .as_deref()
        .filter(|_| arguments.filter_file.is_none())
        .unwrap_or("");
    let words = arguments.sources.iter().map(Name::text);
    arguments
        .dedup
        .check(words.chain([expression.to_owned()]))?;
    if expression.contains(['.', '/']) && Path::new(expression).is_file() {
        bail!(
            "{expression} is a file where the expression should be: weir filter EXPR SOURCE, and '' matches all packets"
        );
    }
    if arguments.lines.asks_for_lines() && (output.write.is_some() || !output.split.is_empty()) {
        bail!(
            "-e, -x, -X, -A, -v, -q, -S, -# and --nano are about lines, and -w and --split write packets to files instead: leave one of them out"
        );
    }
    if arguments.lines.verbose > 1 {
        bail!(
            "-v may be given once: for more, let tcpdump decode the packets, as in weir filter EXPR SOURCE -w - | tcpdump -nvv -r -"
        );
    }
    check_form(arguments)?;
    let mut outputs = output.write.iter().cloned().chain(output.split_files(true));
    if arguments.format.is_json() && outputs.any(|name| name.is_dash()) {
        bail!(
            "--json prints on standard output, which would have the packets too: write them to a file, as in -w out.pcapng"
        );
    }
    if arguments.follow && arguments.merge {
        bail!("--merge needs the end of each source, and --follow has none");
    }
    output.check_rewriting(!arguments.count)?;
    output.check_rotation(!arguments.count)?;
    output.check_read(
        !arguments.count,
        (&arguments.sources, arguments.judging.rules.as_ref()),
        arguments.filter_file.as_ref(),
        &arguments.names,
    )?;
    sources::check(&arguments.sources, arguments.follow)?;
    sources::check_sort(&arguments.sources, arguments.sort)?;
    output.check(
        &arguments.sources,
        arguments.live.direction,
        !arguments.count,
    )
}

/// Refuses a form or columns of packets that are not printed so.
fn check_form(arguments: &FilterArgs) -> anyhow::Result<()> {
    let (format, lines, output) = (&arguments.format, &arguments.lines, &arguments.output);
    let has_columns = format.columns.is_some();
    arguments.places.check_columns(format.columns.as_deref())?;
    let Some(form) = format.form() else {
        return Ok(());
    };
    let asked = match has_columns {
        true => "--columns".to_owned(),
        false => format!("--format {}", form.name()),
    };
    // JSON has a summary, so that it is an answer without packets too.
    if (form != Form::Json || has_columns) && !prints_lines(arguments) {
        bail!(
            "{asked} prints packets, and {} does not: leave one of them out",
            match arguments.count {
                true => "--count",
                false if output.write.is_some() => "-w",
                false => "--split",
            }
        );
    }
    if form != Form::Json && lines.hex + lines.hex_ascii > 0 {
        bail!("-x and -X print bytes below lines, and {asked} prints rows: leave one of them out");
    }
    if form.is_separated() && lines.time > 0 {
        bail!(
            "-t changes times of lines and tables; {asked} has the columns time (RFC 3339, UTC) and epoch (seconds)"
        );
    }
    Ok(())
}

/// The line about a source, or a directory of an output, that does not exist. **Errors**: an expression in the place of a source.
fn absent(arguments: &FilterArgs) -> anyhow::Result<Option<String>> {
    let takes = match (&arguments.filter_file, &arguments.expression) {
        (None, Some(expression)) => Takes::First(expression),
        _ => Takes::Elsewhere,
    };
    let source = sources::absent("weir filter", &arguments.sources, takes)?;
    Ok(source.or_else(|| arguments.output.absent_directory(!arguments.count)))
}

/// A run of the command.
struct Command<'a> {
    arguments: &'a FilterArgs,
    show: Show,
    begun: Instant,
    session: Session,
    walls: &'a Walls,
    /// Line about a source or a directory that does not exist; then nothing is read.
    absent: Option<String>,
}

impl Command<'_> {
    /// Reads the sources to their end, or as far as packets are wanted.
    fn read(
        &mut self,
        run: &mut Run,
        stop: &Arc<AtomicBool>,
        (standing_asked, reload): (Arc<AtomicBool>, Option<Reload>),
        (bound, maker): (Option<Bound>, Maker),
    ) -> anyhow::Result<()> {
        if let Some(line) = self.absent.take() {
            self.show.absent(line);
            return Ok(());
        }
        if self.session.is_live() {
            sys::tell_on_signal(standing_asked);
        }
        let request = capture_request(self.arguments);
        let about = capture::open(&mut self.session, &request, stop)?;
        let splits = self.arguments.output.split.iter();
        let splits = splits.map(|(name, _)| name.text()).collect();
        let rules = firewall::rules_maker(self.arguments.judging.rules.as_ref());
        let mut server = None;
        let (mut ticker, screen) = (None, self.show.progress.screen());
        let ticks = self.session.is_live() && !prints_lines(self.arguments);
        let begun = |run: &Run| {
            ticker = ticks
                .then(|| Ticker::start(screen, run.control()))
                .flatten();
            let tells = bound.is_none();
            server = ctl::serve(bound, run.control(), (splits, Some(maker)), rules)?;
            // The capture runs, and the output files have their headers.
            if !run.outputs().are_over() {
                about.iter().for_each(|line| say_plain(line));
            }
            reload.map_or(Ok(()), |reload| reload.start(run.control(), tells))
        };
        let (session, show) = (&mut self.session, &mut self.show);
        let on: On<'_> = &mut |event| show.event(event);
        let read = self.walls.read(session, run, &Terms::PACKETS, on, begun);
        ticker.into_iter().for_each(Ticker::end);
        read?;
        // No request comes between the last packet and the end.
        drop(server);
        self.show.end_of_capture();
        Ok(())
    }

    fn account<'a>(
        &'a self,
        ended: &'a Ended,
        outputs: &'a Outputs,
        has_opened: bool,
    ) -> Account<'a> {
        Account {
            command: self,
            ended,
            outputs,
            has_opened,
        }
    }

    /// Completes the outputs, prints the summary, and returns the outcome of the command.
    fn finish(mut self, run: Run, programs: Option<&Arc<Mutex<Programs>>>) -> Outcome {
        self.show.progress.clear();
        let has_opened = run.has_opened();
        let (ended, outputs) = run.finish(&mut |event| self.show.event(event));
        self.show.outputs(&outputs, &ended);
        firewall::say_notes(
            self.arguments.judging.rules.as_ref(),
            ended.firewall.as_ref(),
        );
        let have_run = outputs::end_programs(programs);
        let mut closed = outputs.are_closed();
        // An object after a line that was cut could not be parsed.
        let cut = prints_lines(self.arguments) && outputs.has_main_ended();
        let answered = match cut || self.show.is_unread() && !self.arguments.format.is_json() {
            true => Ok(()),
            false => self.account(&ended, &outputs, has_opened).answer(),
        };
        closed |= self.show.answered(&answered);
        if !closed && !self.show.is_unread() {
            self.account(&ended, &outputs, has_opened).summary();
        }
        Outcome::of(self.show.faults.is_empty() && have_run)
    }
}

/// Setup of the run for the engine. Ports are opened here, so that a failure is reported before anything is read.
fn setup(
    arguments: &FilterArgs,
    workers: usize,
    span: Span,
    (stop, standing_asked): (&Arc<AtomicBool>, &Arc<AtomicBool>),
    (programs, query): (Option<&Arc<Mutex<Programs>>>, Option<&Arc<Query>>),
) -> anyhow::Result<(Setup, Maker)> {
    let selection = Selection {
        expression: arguments.expression.clone().unwrap_or_default(),
        behind_tags: query.is_some_and(|query| query.selection.behind_tags),
        invert: arguments.invert,
        inner: arguments.inside.tunnels()?,
        span,
        splits: arguments.output.expressions(),
        names: arguments.names.names().clone(),
        slow: slow_compilation(),
        ..Selection::default()
    };
    let mut about = About::of(
        &selection,
        (
            arguments.filter_file.as_ref(),
            arguments.remote.control.is_some(),
        ),
        arguments.judging.rules.as_ref(),
        arguments.live.direction,
        query.map(|query| (query, &arguments.sources[0])),
    );
    about.without_duplicates(arguments.dedup.within);
    let over = (&arguments.sources[..], arguments.live.direction);
    let maker = (arguments.output).maker(over, arguments.utc, programs, &about)?;
    let (main, splits) = maker.targets(!arguments.count)?;
    let main = match main {
        Some(main) => main,
        None => (Name::from("-").as_output(), lines(arguments)?),
    };
    let cpus = arguments
        .cpus
        .as_ref()
        .map_or(Vec::new(), |cpus| cpus.0.clone());
    sources::check_cpus(&cpus)?;
    let setup = Setup {
        selection,
        dedup: arguments.dedup.within,
        firewall: firewall::stage(
            arguments.judging.rules.as_ref(),
            arguments.inside.tunnels()?,
        )?,
        main,
        splits,
        limit: arguments.stop_after,
        reserve: arguments.output.reserve(),
        workers,
        cpus,
        stop: Arc::clone(stop),
        standing_asked: Arc::clone(standing_asked),
        ..Setup::default()
    };
    Ok((setup, maker))
}

fn prints_lines(arguments: &FilterArgs) -> bool {
    !arguments.count && arguments.output.write.is_none() && arguments.output.split.is_empty()
}

/// Sink that prints the packets as lines; none if packets are counted or written to files.
fn lines(arguments: &FilterArgs) -> anyhow::Result<Option<Box<dyn Sink>>> {
    if !prints_lines(arguments) {
        return Ok(None);
    }
    let rewrite = arguments.output.rewrite()?;
    if let Some(address) = arguments.names_of {
        let form = arguments.format.form().unwrap_or(Form::Table);
        let inner = arguments.inside.tunnels()?;
        let names = NamesOf::new(address, form, Zone::new(arguments.utc), inner);
        return Ok(Some(rewrite.before(Box::new(names))));
    }
    let LineArgs {
        link_header,
        hex,
        hex_ascii,
        ascii,
        time,
        nano,
        verbose,
        quiet,
        absolute,
        number,
        ..
    } = arguments.lines;
    let hex = match (hex, hex_ascii, ascii) {
        (0, 0, 0) => Hex::None,
        (1, ..) => Hex::Hex,
        (2.., ..) => Hex::FrameHex,
        (0, 1, _) => Hex::HexAscii,
        (0, 2.., _) => Hex::FrameHexAscii,
        (0, 0, 1) => Hex::Ascii,
        (0, 0, 2..) => Hex::FrameAscii,
    };
    let detail = match (quiet, verbose) {
        (true, _) => Detail::Quiet,
        (false, 0) => Detail::Normal,
        (false, 1..) => Detail::Verbose,
    };
    let when = match time {
        0 => When::At(Shape::Clock),
        1 => When::At(Shape::None),
        2 => When::At(Shape::Epoch),
        3 => When::SincePrevious,
        4 => When::At(Shape::DateClock),
        5 => When::SinceFirst,
        _ => bail!(
            "-t may be given 1 to 5 times: -t none, -tt seconds since 1970, -ttt since the previous line, -tttt date and time, -ttttt since the first line"
        ),
    };
    let shape = match when {
        When::At(shape) => shape,
        When::SincePrevious | When::SinceFirst => Shape::Clock,
    };
    let format = &arguments.format;
    let columns = |form| Columns::new(form, format.columns.as_deref(), shape);
    let style = Style {
        link_header,
        detail,
        absolute,
        hex,
    };
    let text = Text {
        style,
        when,
        digits: if nano { Digits::Nano } else { Digits::Micro },
        number,
        zone: Zone::new(arguments.utc),
        snaplen: arguments.output.snaplen,
        inner: arguments.inside.tunnels()?,
        columns: format.form().map(columns).transpose()?,
        places: arguments.places.places(format.columns.as_deref())?,
        seen: has_names(format.columns.as_deref().unwrap_or_default()).then(|| Names::new(MEMORY)),
    };
    let flush_each = arguments.output.unbuffered || io::stdout().is_terminal();
    let lines = Lines::new(text, flush_each);
    Ok(Some(rewrite.before(Box::new(lines))))
}

fn capture_request(arguments: &FilterArgs) -> CaptureRequest<'_> {
    let replaces = arguments.reloads();
    // The kernel's filter sees the frame and not the packet inside, and cannot be inverted.
    let here = arguments.invert || arguments.inside.inner;
    let expression = if here {
        ""
    } else {
        arguments.expression.as_deref().unwrap_or("")
    };
    // Expressions are applied to whole packets. Without one, the bytes to be written suffice.
    let filters = replaces
        || arguments.judging.rules.is_some()
        || !arguments
            .expression
            .as_deref()
            .unwrap_or("")
            .trim()
            .is_empty()
        || !arguments.output.split.is_empty();
    let snaplen = if filters || arguments.output.snaplen == 0 {
        MAX_SNAPLEN
    } else {
        arguments.output.snaplen
    };
    CaptureRequest {
        settings: capture::settings(&arguments.live),
        expression,
        replaces_filter: replaces && !here,
        names: arguments.names.names(),
        snaplen,
        shares: 1,
        yes_take: &arguments.live.taking.yes_take,
    }
}
