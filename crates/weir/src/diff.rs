//! `weir diff`: what changed from one set of packets to another.
//!
//! Each side is a run that measures, one after the other, with the same tables and the same seed. Then the tables are compared.

mod report;
mod spans;

use crate::cli::diff::DiffArgs;
use crate::outcome::{Outcome, print, say, slow_compilation, stop_on_signals};
use crate::query::{ask_recorder, check, segment_lines};
use crate::show::Show;
use crate::sources::{self, Takes};
use crate::walls::Walls;
use anyhow::bail;
use report::Report;
use spans::{Asked, Times};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::records::{self, Query, Selection as Recorded};
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::Session;
use weir_engine::zone::Zone;
use weir_measure::Geo;
use weir_measure::names::Names;
use weir_messages::captures::interface;
use weir_messages::geo::{self, of_columns};
use weir_messages::measured::columns::has_names;
use weir_messages::measured::diff::{Diff, DiffOptions, Side, choose};
use weir_messages::measurement::Options;
use weir_messages::records::covered_ns;
use weir_messages::refusals::{Terms, refused};
use weir_messages::rows::Form;
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::measuring::Settings;
use weir_pipeline::select::Selection;

/// Runs the command.
pub fn run(mut arguments: DiffArgs) -> anyhow::Result<Outcome> {
    let sides = sides(&arguments)?;
    for names in &sides {
        check_sources(names)?;
    }
    arguments.names.read([arguments.filter.as_str()], false)?;
    let options = measurement(&arguments)?;
    let contents = contents(&arguments)?;
    let settings = options.settings(&sides[1])?;
    options.settings(&sides[0])?;
    check(&arguments.filter, arguments.names.names())?;
    let is_one = arguments.sources.len() == 1 && arguments.after.is_empty();
    let are_records = sides.iter().all(|names| is_record(names));
    if arguments.last.is_some() && !are_records && sides.iter().any(|names| is_record(names)) {
        bail!(
            "--last counts back from now in a record, and from the last packet in a file: give --from and --to for both"
        );
    }
    let asked = Asked::of(&arguments, is_one, are_records)?;
    let stop = stop_on_signals();
    for names in &sides {
        let takes = Takes::Flag(&arguments.filter, None);
        if let Some(line) = sources::absent("weir diff", names, takes)? {
            say(&line);
            return Ok(Outcome::Failed);
        }
    }
    let mut asking = Outcome::Done;
    let mut made = Vec::new();
    for (i, names) in sides.iter().enumerate() {
        let (session, outcome) = session(&arguments, names, asked, i)?;
        asking = if outcome == Outcome::Done {
            asking
        } else {
            outcome
        };
        made.push(session);
    }
    let walls = Walls::of_diff(&arguments, &made)?;
    walls.raise(&[])?;
    let command = Command {
        arguments: &arguments,
        settings,
        terms: options.terms(),
        geo: options.geo.clone(),
        stop,
    };
    let outcome = command.compare((&sides, made), asked, &contents)?;
    Ok(if asking == Outcome::Done {
        outcome
    } else {
        asking
    })
}

/// Names of the sources of each side.
fn sides(arguments: &DiffArgs) -> anyhow::Result<[Vec<Name>; 2]> {
    let DiffArgs { sources, after, .. } = arguments;
    Ok(match (&sources[..], &after[..]) {
        ([both], []) => [vec![both.clone()], vec![both.clone()]],
        ([before, after], []) => [vec![before.clone()], vec![after.clone()]],
        (_, []) => bail!(
            "{} sources, and -- does not say which belong together: weir diff BEFORE... -- AFTER...",
            sources.len()
        ),
        _ => [sources.clone(), after.clone()],
    })
}

/// Refuses interfaces, and a record directory among other sources.
fn check_sources(names: &[Name]) -> anyhow::Result<()> {
    if let Some(name) = names.iter().find(|name| interface(name).is_some()) {
        bail!(
            "{name} is an interface, which has no earlier time: weir measure {name} --window 10s --changers 10 compares its windows"
        );
    }
    if names.len() > 1
        && names
            .iter()
            .any(|name| is_record(std::slice::from_ref(name)))
    {
        bail!("a record directory is a side of its own: name it alone, or name the files in it");
    }
    Ok(())
}

/// Whether a side is a record directory.
fn is_record(names: &[Name]) -> bool {
    matches!(names, [name] if !name.is_dash() && Path::new(name).is_dir())
}

fn measurement(arguments: &DiffArgs) -> anyhow::Result<Options> {
    let columns = arguments.format.columns.as_deref();
    let geo = arguments.places.read(&arguments.key, columns, false)?;
    for (column, kind) in of_columns(columns) {
        geo::check(geo.as_deref(), &format!("--columns: {column}"), kind)?;
    }
    Ok(Options {
        keys: arguments.key.clone(),
        by: arguments.by.figure(),
        rows: arguments.top,
        above: arguments.above,
        memory: arguments.memory,
        geo,
        reads_names: columns.is_some_and(has_names),
        seed: arguments.seed,
        workers: arguments
            .workers
            .map_or_else(weir_pipeline::processors, usize::from),
        inner: arguments.inside.tunnels()?,
        ..Options::default()
    })
}

fn contents(arguments: &DiffArgs) -> anyhow::Result<DiffOptions> {
    let columns = arguments.format.columns.as_deref();
    let columns = columns.map(|list| choose(list, &arguments.key));
    Ok(DiffOptions {
        keys: arguments.key.clone(),
        by: arguments.by.figure(),
        rows: arguments.top,
        above: arguments.above,
        columns: columns.transpose()?,
    })
}

/// Session of side `i`, with a question to its record directory.
fn session(
    arguments: &DiffArgs,
    names: &[Name],
    asked: Asked,
    i: usize,
) -> anyhow::Result<(Session, Outcome)> {
    let mut session = Session::new(names.to_vec());
    session.zstd_window = arguments.zstd_window;
    if !is_record(names) {
        return Ok((session, Outcome::Done));
    }
    let times = match asked {
        Asked::Known(times) => times[i],
        Asked::Last { .. } => Times::default(),
    };
    let directory = &names[0];
    let names = &arguments.names;
    let expression = records::choosing(
        &arguments.filter,
        false,
        arguments.inside.inner,
        names.resolve,
    );
    let mut query = Query::new(Recorded {
        from_ns: times.from_ns,
        to_ns: times.last_ns(),
        expression: expression.to_owned(),
        behind_tags: false,
        sets: names.names().sets.clone(),
    });
    let outcome = ask_recorder(&mut query, directory, false)?;
    session.query = Some(Arc::new(query));
    Ok((session, outcome))
}

struct Command<'a> {
    arguments: &'a DiffArgs,
    settings: Settings,
    terms: Terms,
    /// Databases of addresses.
    geo: Option<Arc<Geo>>,
    stop: Arc<AtomicBool>,
}

/// A side that was measured.
struct Measured {
    ended: Ended,
    times: Times,
    covered_ns: Option<(i64, i64)>,
    lost_at_most: bool,
    faults: Vec<String>,
    /// Whether no source could be read.
    is_unread: bool,
}

/// Names of the sides, in front of messages.
const SIDES: [&str; 2] = ["before", "after"];

impl Command<'_> {
    fn compare(
        &self,
        (names, sessions): (&[Vec<Name>; 2], Vec<Session>),
        asked: Asked,
        contents: &DiffOptions,
    ) -> anyhow::Result<Outcome> {
        let found: Vec<_> = sessions
            .iter()
            .map(|session| self.times(session, asked))
            .collect::<anyhow::Result<_>>()?;
        let times = asked.sides([found[0], found[1]]);
        let mut measured = Vec::new();
        for (i, session) in sessions.into_iter().enumerate() {
            measured.push(self.measure(session, SIDES[i], times[i], found[i])?);
        }
        if self.stop.load(Ordering::Relaxed) {
            say("interrupted before both sides were read: nothing was compared");
            return Ok(Outcome::Failed);
        }
        if measured
            .iter()
            .any(|side| side.is_unread || side.ended.measured.is_none())
        {
            return Ok(Outcome::Failed);
        }
        let side = |i: usize| {
            let Measured {
                ended,
                times,
                covered_ns,
                lost_at_most,
                faults,
                ..
            } = &measured[i];
            Side {
                names: &names[i],
                asked_ns: (times.from_ns, times.to_ns),
                covered_ns: *covered_ns,
                finished: ended.measured.as_ref().expect("both sides were measured"),
                ledger: &ended.ledger,
                lost_at_most: *lost_at_most,
                holds_only: &ended.holds_only,
                fault: faults.first().map(String::as_str),
            }
        };
        let diff = Diff {
            options: contents,
            before: side(0),
            after: side(1),
            names: names_of(&measured),
            geo: self.geo.as_deref(),
        };
        Self::tell_order([&diff.before, &diff.after]);
        let form = self.arguments.format.form().unwrap_or(Form::Table);
        let text = Report::new(&diff, form, Zone::new(self.arguments.utc)).text();
        let printed = print(&text);
        let is_whole = measured.iter().all(|side| side.faults.is_empty());
        Ok(match printed {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                say(&format!(
                    "standard output: {}",
                    crate::outcome::io_words(&error)
                ));
                Outcome::Failed
            }
            _ => Outcome::of(is_whole),
        })
    }

    /// Warns if the first side is later than the second.
    fn tell_order(sides: [&Side<'_>; 2]) {
        if let [Some(before), Some(after)] = sides.map(|side| side.covered_ns)
            && after.1 < before.0
        {
            say(
                "the first side is of a later time than the second: grown and new are said of the earlier traffic; swap the sides",
            );
        }
    }

    /// Times of the first and the last packet of a side, if the packets that pass do not tell its length.
    fn times(&self, session: &Session, asked: Asked) -> anyhow::Result<Option<(i64, i64)>> {
        let is_whole = matches!(asked, Asked::Known(times) if times == <[Times; 2]>::default());
        let is_all = is_whole && self.arguments.filter.trim().is_empty();
        if is_all || session.query.is_some() {
            return Ok(None);
        }
        if let Some(name) = session.names().iter().find(|name| is_read_once(name)) {
            bail!(
                "{name}: the length of a side with --filter or a time is found by reading it twice, and this source can be read once: \
                 save it in a file"
            );
        }
        let run = Run::new(Setup {
            stop: Arc::clone(&self.stop),
            ..Setup::default()
        });
        Ok(session
            .times(&run)
            .map_err(|error| refused(&error, &self.terms))?)
    }

    fn measure(
        &self,
        mut session: Session,
        which: &'static str,
        times: Times,
        found: Option<(i64, i64)>,
    ) -> anyhow::Result<Measured> {
        let arguments = self.arguments;
        let mut run = Run::new(Setup {
            selection: Selection {
                expression: arguments.filter.clone(),
                names: arguments.names.names().clone(),
                inner: arguments.inside.tunnels()?,
                span: times.span(),
                slow: slow_compilation(),
                ..Selection::default()
            },
            measure: Some(self.settings.clone()),
            workers: 1,
            stop: Arc::clone(&self.stop),
            ..Setup::default()
        });
        let mut show = Show::new(false, false, self.settings.workers, false).about(which);
        let refused = |error| refused(&error, &self.terms);
        session
            .begin(&mut run, &mut |event| show.event(event))
            .map_err(refused)?;
        // The line of `nothing_then_line` also has the times of the sources.
        let mut on = |event: Event<'_>| {
            if !matches!(event, Event::NothingThen { .. }) {
                show.event(event);
            }
        };
        session.read(&mut run, &mut on).map_err(refused)?;
        let (ended, outputs) = run.finish(&mut on);
        show.progress.clear();
        if let Some(failure) = &ended.failure {
            show.fault(failure.to_string());
        }
        show.outputs(&outputs, &ended);
        let passed = || {
            let finished = ended.measured.as_ref()?;
            finished.state.as_ref()?.tally().times()
        };
        let whole = match &session.query {
            Some(query) => recorded(query).or_else(passed),
            None => found.or_else(passed),
        };
        let covered_ns = whole.and_then(|whole| times.part_of(whole));
        if times != Times::default() && covered_ns.is_none() && !show.is_unread() {
            show.say(&self.nothing_then_line(session.names(), whole));
        }
        let lost_at_most = session
            .query
            .as_ref()
            .is_some_and(|query| tell_of_record(query, &show));
        Ok(Measured {
            times,
            covered_ns,
            lost_at_most,
            is_unread: show.is_unread(),
            faults: show.faults,
            ended,
        })
    }

    /// The line on a side whose sources have no packet of the wanted time: with the times that they cover.
    fn nothing_then_line(&self, names: &[Name], whole: Option<(i64, i64)>) -> String {
        let mut zone = Zone::new(self.arguments.utc);
        let mut clock = |ns: i64| {
            let mut text = String::new();
            Stamp(ns).write(&mut text, Shape::DateClock, Digits::Micro, zone.east_s(ns));
            text
        };
        let covers = whole.map_or(String::new(), |(first, last)| {
            format!(": its packets are from {} to {}", clock(first), clock(last))
        });
        let names: Vec<_> = names.iter().map(Name::as_source).collect();
        format!(
            "{}: no packet lies in the time asked for{covers}",
            names.join(", ")
        )
    }
}

/// Names of both sides: where they differ, the second side has the later name.
fn names_of(measured: &[Measured]) -> Option<Names> {
    let sides = measured
        .iter()
        .filter_map(|side| side.ended.measured.as_ref());
    let mut sides = sides.filter_map(|finished| finished.names.as_ref());
    let mut names = sides.next()?.clone();
    sides.for_each(|later| names.merge(later));
    Some(names)
}

/// Says what of a record was lost or could not be used as it should be. Returns whether some of the lost packets may have been lost
/// outside the wanted times.
fn tell_of_record(query: &Query, show: &Show) -> bool {
    let seen = query.seen();
    for (directory, counts) in seen.iter() {
        for line in segment_lines(&Name::from(directory.as_path()), counts) {
            show.say(&line);
        }
    }
    seen.iter().any(|(_, counts)| counts.lost.at_most)
}

/// Whether a source can be read once only: standard input or a pipe.
fn is_read_once(name: &Name) -> bool {
    let about = Path::new(name).metadata();
    name.is_dash() || about.is_ok_and(|it| !it.is_file() && !it.is_dir())
}

/// Times that a record directory covers, once it was read: up to now if its recorder runs.
fn recorded(query: &Query) -> Option<(i64, i64)> {
    let seen = query.seen();
    let times = seen.iter().find_map(|(_, counts)| covered_ns(counts));
    let (first, last) = times?;
    match query.has_memory() {
        true => Some((first, crate::times::Clock::new(true).now_ns().max(last))),
        false => Some((first, last)),
    }
}
