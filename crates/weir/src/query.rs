//! `weir query`: gets packets back from a record directory.
//!
//! A query is a run of `weir filter` or `weir measure` over the record directory as the source, with a selection of times, and of
//! blocks by the index.

use crate::cli::query::QueryArgs;
use crate::cli::{FilterArgs, MeasureArgs};
use crate::numbers::{self, counted, grouped};
use crate::outcome::{Outcome, directory_words, io_words, say, say_plain, slow_compilation};
use crate::times::{Clock, ns};
use crate::{filter, measure};
use anyhow::bail;
use clap::{Args, FromArgMatches};
use jiff::Timestamp;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_engine::name::Name;
use weir_engine::records::{self, Counts, IndexUse, Query, Selection};
use weir_engine::socket::Error;
use weir_engine::zone::Zone;
use weir_filter::Names;
use weir_measure::KeyKind;
use weir_messages::records::{covered_ns, lost_words};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::select;
use weir_pipeline::threads::unless_stopped;

/// Runs the command.
pub fn run(mut arguments: QueryArgs) -> anyhow::Result<Outcome> {
    let directory = arguments.directory.clone();
    let path: &Path = directory.as_ref();
    if directory.is_dash() || path.exists() && !path.is_dir() {
        bail!(
            "{directory} is not a directory: weir query DIR [EXPR], where weir record has written DIR"
        );
    }
    let expression = match (&arguments.flow, arguments.expression.trim()) {
        (Some(flow), "") => flow.clone(),
        (Some(flow), own) => format!("({own}) and {flow}"),
        (None, _) => arguments.expression.clone(),
    };
    let splits = arguments.output.expressions();
    arguments.names.read(
        std::iter::once(&expression)
            .chain(&splits)
            .map(String::as_str),
        false,
    )?;
    if !path.exists() && Path::new(&arguments.expression).is_dir() {
        bail!(
            "{0} is a directory where the expression should be: weir query {0} '{1}'",
            arguments.expression,
            directory
        );
    }
    check(&expression, arguments.names.names())?;
    let (from_ns, to_ns) = range(&arguments)?;
    let chooses = records::choosing(
        &expression,
        arguments.invert,
        arguments.inside.inner,
        arguments.names.resolve,
    )
    .to_owned();
    let sets = arguments.names.names().sets.clone();
    let selection = Selection {
        from_ns,
        to_ns,
        expression: chooses,
        behind_tags: arguments.flow.is_some(),
        sets,
    };
    if let Err(error) = records::check(path) {
        say(&match error {
            records::CheckError::Io(error) => format!("{directory}: {}", directory_words(&error)),
            error => error.to_string(),
        });
        return Ok(Outcome::Failed);
    }
    let mut query = Query::new(selection);
    let asked = ask_recorder(&mut query, &arguments.directory, arguments.follow)?;
    let query = Arc::new(query);
    let explain = arguments.explain;
    let utc = arguments.utc;
    let outcome = if arguments.flows {
        measure::run_query(flows(arguments, expression), Arc::clone(&query))?
    } else {
        filter::run_query(packets(arguments, expression), Arc::clone(&query))?
    };
    for (_, counts) in query.seen().iter() {
        segment_lines(&directory, counts)
            .iter()
            .for_each(|line| say(line));
        if counts.late > 0 {
            say(&format!(
                "{} came behind later ones, because the times of the record overlap by more than is kept in memory; weir filter \
                 --sort puts them in order",
                counted(counts.late, "packet")
            ));
        }
        if explain {
            self::explain(counts);
        }
    }
    say_nothing_then(&query, utc);
    if explain && query.has_memory() {
        say_plain("the recorder added what it had only in memory");
    }
    Ok(if asked == Outcome::Done {
        outcome
    } else {
        asked
    })
}

/// Refuses an expression that makes no sense for any link type: an answer without packets does not show the mistake. For which
/// link types it has to make sense, the record decides.
pub fn check(expression: &str, names: &Names) -> anyhow::Result<()> {
    let (expression, names) = (expression.to_owned(), names.clone());
    match unless_stopped(&AtomicBool::new(false), &slow_compilation(), move || {
        select::check(&expression, &names)
    }) {
        Some(Err(why)) => bail!(why),
        _ => Ok(()),
    }
}

/// Wanted times, ns since 1970. A line tells of each time that clocks showed twice. **Errors**: one that they never showed; the
/// first is later than the last.
fn range(arguments: &QueryArgs) -> anyhow::Result<(Option<i64>, Option<i64>)> {
    let clock = Clock::new(arguments.utc);
    if let Some(last) = arguments.last {
        return Ok((Some(clock.now_ns().saturating_sub(ns(last))), None));
    }
    if let Some(around) = clock.meaning("--around", arguments.around.as_ref())? {
        let within = ns(arguments.within);
        if let Some(twice) = &around.twice {
            say(&format!(
                "--around {twice}: what lies between them is taken too"
            ));
        }
        return Ok((
            Some(around.first_ns.saturating_sub(within)),
            Some(around.last_ns.saturating_add(within)),
        ));
    }
    clock.range(arguments.from.as_ref(), arguments.to.as_ref())
}

/// Asks the recorder, if one runs, for what it has only in memory.
pub fn ask_recorder(query: &mut Query, directory: &Name, follow: bool) -> anyhow::Result<Outcome> {
    match query.ask_recorder(directory.as_ref(), follow) {
        Ok(false) if follow => {
            bail!(
                "{directory}: no recorder is running there whose packets could be followed: leave --follow out"
            )
        }
        Ok(_) => Ok(Outcome::Done),
        Err(error) if follow => {
            bail!("{directory}: the recorder: {}", recorder_words(&error))
        }
        Err(Error::Io { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => {
            say(&format!(
                "{directory}: only its user may ask the recorder, so the packets are left out that are not on disk yet"
            ));
            Ok(Outcome::Done)
        }
        Err(error) => {
            let words = recorder_words(&error);
            say(&format!(
                "{directory}: the recorder: {words}; packets that are not on disk yet are left out"
            ));
            Ok(Outcome::Failed)
        }
    }
}

fn recorder_words(error: &Error) -> String {
    match error {
        Error::Io { error, .. } => io_words(error),
        error => error.to_string(),
    }
}

/// Arguments with all options at their defaults.
pub fn defaults<T: Args + FromArgMatches>(words: &[&str]) -> T {
    let command = T::augment_args(clap::Command::new("weir").no_binary_name(true));
    T::from_arg_matches(&command.get_matches_from(words))
        .expect("the words are all that the command needs")
}

/// The run of `weir filter` that a query is.
fn packets(arguments: QueryArgs, expression: String) -> FilterArgs {
    FilterArgs {
        expression: Some(expression),
        sources: vec![arguments.directory],
        invert: arguments.invert,
        inside: arguments.inside,
        stop_after: arguments.stop_after,
        names: arguments.names,
        count: arguments.count,
        names_of: arguments.names_of,
        lines: arguments.lines,
        utc: arguments.utc,
        format: arguments.format,
        places: arguments.places,
        output: arguments.output,
        follow: arguments.follow,
        workers: arguments.workers,
        stats: arguments.stats,
        walls: arguments.walls,
        ..defaults(&["", "-"])
    }
}

/// The run of `weir measure` that a query for conversations is.
fn flows(arguments: QueryArgs, expression: String) -> MeasureArgs {
    MeasureArgs {
        sources: vec![arguments.directory],
        filter: expression,
        key: vec![KeyKind::Conversation],
        top: Some(arguments.top),
        inside: arguments.inside,
        names: arguments.names,
        utc: arguments.utc,
        format: arguments.format,
        places: arguments.places,
        output: arguments.output,
        workers: arguments.workers,
        stats: arguments.stats,
        walls: arguments.walls,
        ..defaults(&["-"])
    }
}

/// Says of each record that no packet of it lies in the time that a query asks for, if that is so.
pub fn say_nothing_then(query: &Query, utc: bool) {
    let (from_ns, to_ns) = (query.selection.from_ns, query.selection.to_ns);
    if from_ns.is_none() && to_ns.is_none() || query.has_memory() {
        return;
    }
    let is_to_come =
        from_ns.is_some_and(|from| i128::from(from) > Timestamp::now().as_nanosecond());
    let mut zone = Zone::new(utc);
    for (directory, counts) in query.seen().iter() {
        if has_nothing_then(counts) {
            let directory = Name::from(directory.as_path());
            say(&nothing_then_line(
                &directory, counts, is_to_come, &mut zone,
            ));
        }
    }
}

/// Whether a record has packets, and none of the asked time.
fn has_nothing_then(counts: &Counts) -> bool {
    let left_out: u64 = counts
        .segments
        .iter()
        .map(|segment| segment.skipped_by_keys)
        .sum();
    let blocks: u64 = counts.segments.iter().map(|segment| segment.blocks).sum();
    counts.passed == 0 && left_out == 0 && blocks > 0
}

/// The line about a time in which a record has no packet: with the times that it covers.
fn nothing_then_line(
    directory: &Name,
    counts: &Counts,
    is_to_come: bool,
    zone: &mut Zone,
) -> String {
    let which = if is_to_come {
        ", which is still to come"
    } else {
        ""
    };
    let mut clock = |ns: i64| {
        let mut text = String::new();
        Stamp(ns).write(&mut text, Shape::DateClock, Digits::Micro, zone.east_s(ns));
        text
    };
    let covers = covered_ns(counts).map_or(String::new(), |(first, last)| {
        format!(
            " the record has packets from {} to {};",
            clock(first),
            clock(last)
        )
    });
    format!(
        "{directory}: no packet lies in the time asked for{which}:{covers} weir info {directory} shows more"
    )
}

/// Lines on packets that may be lost, and on segments that could not be used as they should be.
pub fn segment_lines(directory: &Name, counts: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(words) = lost_words(counts).filter(|_| counts.lost.at_most) {
        lines.push(format!("{directory}: {words}"));
    }
    for segment in &counts.segments {
        if let IndexUse::Damaged(why) = &segment.index {
            lines.push(format!(
                "{}: its index is damaged ({why}), and all blocks of the time were read",
                segment.path.display()
            ));
        }
    }
    lines
}

/// Says which segments and blocks were read, and why.
fn explain(counts: &Counts) {
    let (mut read, mut untouched) = (0, 0);
    for segment in &counts.segments {
        let taken = segment.blocks - segment.skipped_by_time - segment.skipped_by_keys;
        if taken == 0 && segment.index == IndexUse::Used {
            untouched += 1;
            continue;
        }
        read += 1;
        let how = match &segment.index {
            IndexUse::Used => "by its index",
            IndexUse::Missing => "by its marks, since it has no index yet",
            IndexUse::Damaged(_) => "by its marks, since its index is damaged",
        };
        say_plain(&format!(
            "{}: {} of {} read; outside the time {}, without a match {}; {how}",
            segment.path.display(),
            grouped(taken),
            counted(segment.blocks, "block"),
            grouped(segment.skipped_by_time),
            grouped(segment.skipped_by_keys),
        ));
    }
    let decompressed = match counts.decompressed {
        0 => String::new(),
        bytes => format!(" (decompressed {})", numbers::bytes(bytes)),
    };
    say_plain(&format!(
        "{} read and {} left out; {}, {} of packets{decompressed} and {} of indexes; {} in them, {} in the time",
        counted(read, "segment"),
        grouped(untouched),
        counted(counts.blocks, "block"),
        numbers::bytes(counts.bytes),
        numbers::bytes(counts.index_bytes),
        counted(counts.packets, "packet"),
        grouped(counts.passed),
    ));
}
