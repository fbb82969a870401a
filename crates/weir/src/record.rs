//! `weir record`: keeps packets in RAM, and saves packets from before a trigger.

mod directory;
mod report;
mod triggers_file;

use crate::capture::{self, CaptureRequest};
use crate::cli::record::RecordArgs;
use crate::cli::{DirectionArg, FanoutArg};
use crate::ctl;
use crate::firewall;
use crate::outcome::{Outcome, io_words, say, say_plain, slow_compilation, stop_on_signals};
use crate::outputs::absent_parent;
use crate::programs::{Flag, Programs};
use crate::show::Show;
use crate::sources::{self, Takes};
use crate::summary::Ending;
use crate::walls::Walls;
use crate::watch::{self, Links, Shared, Waiting};
use anyhow::{anyhow, bail};
use report::Report;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::record::trigger::{Condition, Trigger};
use weir_engine::record::{self, Handle, NewDirectory, Recorder, Recording};
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;
use weir_engine::socket::Bound;
use weir_io::sys;
use weir_messages::recording::{
    Listeners, Options, expressions, incomplete_line, listen_refusal, unkept_line,
};
use weir_messages::refusals::{Terms, refused};
use weir_messages::viewing::Lacks;
use weir_packet::savefile::{Direction, MAX_SNAPLEN};
use weir_pipeline::measuring::Settings;
use weir_pipeline::select::Selection;
use weir_store::disk::FreeBytes;

/// Interval at which signals are checked.
const LOOK: Duration = Duration::from_millis(50);

/// Interval at which a terminal shows the state of the recording.
const SHOW: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn run(mut arguments: RecordArgs) -> anyhow::Result<Outcome> {
    if let Some(outcome) = directory::run(&arguments)? {
        return Ok(outcome);
    }
    if let Some((_, sources)) = arguments.names.split_last_mut() {
        capture::name_awaited(sources, &arguments.live);
    }
    read_names(&mut arguments)?;
    let arguments = &arguments;
    let Some((sources, directory)) = arguments.sources_and_directory() else {
        bail!("name a source and a directory: weir record eth0 /var/cap");
    };
    let options = options(arguments);
    let takes = Takes::Flag(&arguments.filter, Some(directory));
    let absent = sources::absent("weir record", sources, takes)?;
    options.check(sources, directory)?;
    if let Some(line) = absent.or_else(|| absent_parent(directory)) {
        say(&line);
        return Ok(Outcome::Failed);
    }
    let session = Session::new(sources.to_vec());
    let walls = Walls::of_record(arguments, &session, directory)?;
    let live = session.is_live();
    let report = Arc::new(Report::new(arguments.json, arguments.reopen));
    let (saving, writing) = (Arc::clone(&report), Arc::clone(&report));
    // Walls let no process begin another one: the one that does begins here.
    let mut hook = arguments
        .on_trigger
        .as_ref()
        .map(|program| Programs::start(Flag::OnTrigger, program, &walls))
        .transpose()?;
    let runs = hook.as_ref().map(Programs::runs);
    let listeners = Listeners {
        on_disk: Box::new(move |event| writing.disk(&event)),
        on_saved: Box::new(move |saved| {
            saving.saved(saved);
            if let (Some(hook), None) = (&mut hook, &saved.error)
                && let Err(why) = hook.run(&saved.path, &saved.cause)
            {
                saving.fault(why);
            }
        }),
    };
    let more = arguments
        .triggers
        .as_ref()
        .map(|file| triggers_file::read(file, &options))
        .transpose()?;
    let selection = Selection {
        expression: arguments.filter.clone(),
        names: arguments.meaning.names().clone(),
        inner: arguments.inside.tunnels()?,
        slow: slow_compilation(),
        ..Selection::default()
    };
    firewall::check_input(arguments.judging.rules.as_ref(), sources)?;
    let firewall = firewall::stage(arguments.judging.rules.as_ref(), selection.inner)?;
    let control = arguments.remote.control.as_ref();
    // A record does not tell an expression that requests may replace.
    let lasting = match control {
        Some(_) => Selection {
            inner: selection.inner,
            ..Selection::default()
        },
        None => selection.clone(),
    };
    let mut settings = options.settings(
        directory,
        (live, &lasting),
        more.unwrap_or_default(),
        listeners,
    )?;
    settings.rewrite.anonymizer = arguments.anonymize.anonymizer()?;
    if control.is_some() {
        settings.chosen = settings.chosen.and(&ctl::chosen());
    }
    let rules = arguments.judging.rules.as_ref();
    settings.chosen = firewall::chosen(settings.chosen, rules, control.is_some());
    let (mut recording, sink) = Recording::new(settings).map_err(no_ring)?;
    let refused = |error: io::Error| anyhow!("{directory}: {}", io_words(&error));
    let mut made = NewDirectory::make(Path::new(directory), arguments.mode).map_err(refused)?;
    if made.is_new() {
        walls.give_away(Path::new(directory)).map_err(refused)?;
    }
    let free_bytes = FreeBytes(Arc::new(|path: &Path| sys::free_bytes(path)));
    if let Some(opened) = recording.open_disk(free_bytes)? {
        report.opened(&opened);
        // Files that were made just now, with root's rights.
        let kept = opened.recovered.iter().filter(|found| found.kept_bytes > 0);
        let made = kept
            .map(|found| found.segment.index())
            .chain([Path::new(directory).join("lock")]);
        for path in made.filter(|path| path.symlink_metadata().is_ok()) {
            walls
                .give_away(&path)
                .map_err(|error| anyhow!("{}: {}", Name::from(&*path), io_words(&error)))?;
        }
    }
    let socket = recording
        .listen()
        .map_err(|error| listen_refusal(directory, error))?;
    walls
        .give_away(&socket)
        .map_err(|error| anyhow!("{}: {}", Name::from(&*socket), io_words(&error)))?;
    let bound = ctl::bind(control, &walls)?;
    let view = arguments.viewers.view.as_ref();
    let waiting = watch::bind(view, control, &walls)?;
    let shared = view.map(|_| shared(arguments, sources, live));
    let stop = stop_on_signals();
    let (standing_asked, fire) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    sys::tell_on_signal(Arc::clone(&standing_asked));
    sys::fire_on_signal(Arc::clone(&fire));
    arguments.duration.into_iter().for_each(sys::stop_after);
    sources::say_namesakes(sources);
    let mut run = Run::new(Setup {
        selection,
        firewall,
        measure: view.map(|_| measurement(arguments, sources)).transpose()?,
        main: (directory.as_output(), Some(Box::new(sink))),
        stop: Arc::clone(&stop),
        ..Setup::default()
    });
    let mut command = Command {
        arguments,
        show: Show::new(true, arguments.stats, 1, true).telling_changes(control.is_some()),
        walls,
        shared,
        session,
    };
    let begun = Instant::now();
    let signals = Signals {
        standing_asked,
        fire,
        stop: Arc::clone(&stop),
    };
    let recorder = command.work(&mut run, recording, (signals, bound, waiting), &report)?;
    made.keep();
    let (ended, outputs) = run.finish(&mut |event| {
        hear(&mut command.show, command.shared.as_deref(), &stop, event);
    });
    // All packets are in the ring now.
    let (status, threads_ended) = recorder.finish();
    command.show.outputs(&outputs, &ended);
    firewall::say_notes(arguments.judging.rules.as_ref(), ended.firewall.as_ref());
    if !threads_ended {
        command
            .show
            .fault("a thread of the recording panicked: this is a mistake in it".to_owned());
    }
    if let Some(line) = unkept_line(directory, &status) {
        report.fault(line);
    }
    let faults = &mut command.show.faults;
    faults.extend(report.faults());
    report.end(&report::End {
        ledger: &ended.ledger,
        judges: arguments.judging.rules.is_some(),
        stages: arguments.stats.then_some(&ended.stages[..]),
        notes: &command.show.notes,
        status: &status,
        runs: runs.as_deref(),
        place: command.session.place(),
        ending: Ending {
            by: ended.by,
            is_endless: live,
            has_duration: arguments.duration.is_some(),
        },
        faults: &command.show.faults,
        time: begun.elapsed(),
    });
    let have_run = runs.is_none_or(|runs| runs.failed.load(Ordering::Relaxed) == 0);
    Ok(Outcome::of(command.show.faults.is_empty() && have_run))
}

/// Flags that signals set.
struct Signals {
    /// SIGUSR1.
    standing_asked: Arc<AtomicBool>,
    /// SIGUSR2.
    fire: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

/// A run of the command.
struct Command<'a> {
    arguments: &'a RecordArgs,
    show: Show,
    walls: Walls,
    /// The view for viewers.
    shared: Option<Arc<Shared>>,
    session: Session,
}

/// Shows an event, and gives windows to viewers. A recording that has failed ends, though its packets could still be measured.
fn hear(show: &mut Show, shared: Option<&Shared>, stop: &AtomicBool, event: Event<'_>) {
    if let Some(shared) = shared {
        shared.hear(&event, false);
        if matches!(event, Event::Sink(_)) {
            stop.store(true, Ordering::Relaxed);
        }
    }
    show.event(event);
}

/// The measurement that viewers of a recording see.
fn measurement(arguments: &RecordArgs, sources: &[Name]) -> anyhow::Result<Settings> {
    let mut options = watch::measurement();
    options.inner = arguments.inside.tunnels()?;
    Ok(options.settings(sources)?)
}

fn shared(arguments: &RecordArgs, sources: &[Name], is_live: bool) -> Arc<Shared> {
    let names: Vec<String> = sources.iter().map(Name::text).collect();
    let about = watch::About {
        sources: names.join(" "),
        filter: arguments.filter.clone(),
        is_live,
        local: None,
        lacks: Lacks::default(),
    };
    Arc::new(Shared::new(about, &watch::Past::default()))
}

impl Command<'_> {
    /// Reads the sources to their end.
    fn work(
        &mut self,
        run: &mut Run,
        recording: Recording,
        (signals, bound, waiting): (Signals, Option<Bound>, Option<Waiting>),
        report: &Arc<Report>,
    ) -> anyhow::Result<Recorder> {
        let request = capture_request(self.arguments);
        let about = capture::open(&mut self.session, &request, &signals.stop)?;
        if self.shared.is_some() {
            let by_flow = self.arguments.live.fanout == FanoutArg::Hash;
            let inputs = self.session.inputs().len();
            watch::measurement().check_health(self.session.names(), inputs, by_flow)?;
        }
        let rules = firewall::rules_maker(self.arguments.judging.rules.as_ref());
        let Self {
            session,
            show,
            walls,
            shared,
            ..
        } = self;
        let shared = shared.as_ref();
        if let Some(shared) = shared {
            let links = Links::open(session.names());
            shared.open(links, session.place(), watch::link_speed(session.names()));
        }
        let stop = Arc::clone(&signals.stop);
        let mut on = |event: Event<'_>| hear(show, shared.map(Arc::as_ref), &stop, event);
        let begun = walls.begin(session, run, &Terms::PACKETS, &mut on)?;
        // The threads have no more rights than are left now.
        let handle = recording.handle().clone();
        handle.set_place(session.place());
        match recording.recover_saved() {
            Ok(found) => report.lines(found.iter().map(incomplete_line)),
            Err(error) => report.fault(format!(
                "files that an earlier recording left: {}",
                io_words(&error)
            )),
        }
        let recorder = recording.start()?;
        if !begun {
            return Ok(recorder);
        }
        about.iter().for_each(|line| say_plain(line));
        let server = ctl::serve(bound, run.control(), (Vec::new(), None), rules)?;
        let serving = waiting.zip(shared);
        let serving = serving.map(|(waiting, shared)| waiting.serve(shared));
        let serving = serving.transpose()?;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| attend(&handle, &signals, report, &done));
            let result = session.read(run, &mut on);
            done.store(true, Ordering::Relaxed);
            result
        })
        .map_err(|error| refused(&error, &Terms::PACKETS))?;
        drop((server, serving));
        show.end_of_capture();
        Ok(recorder)
    }
}

/// Answers signals, and shows the state of the recording, until `done`.
fn attend(handle: &Handle, signals: &Signals, report: &Report, done: &AtomicBool) {
    let shows = io::stderr().is_terminal();
    let mut shown = Instant::now();
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if signals.fire.swap(false, Ordering::Relaxed) {
            match handle.fire(None, "SIGUSR2") {
                Ok(asked) if asked.refused.is_empty() => {}
                Ok(asked) => report.remark(&format!("SIGUSR2: {}", asked.refusals())),
                Err(why) => report.remark(&format!("SIGUSR2: {why}")),
            }
        }
        if signals.standing_asked.swap(false, Ordering::Relaxed) {
            report.standing(&handle.status());
        }
        if shows && shown.elapsed() >= SHOW {
            shown = Instant::now();
            report.progress(&handle.status());
        }
    }
}

/// A ring for which there is no memory may be smaller.
fn no_ring(error: record::Error) -> anyhow::Error {
    match &error {
        record::Error::Ring(_) => anyhow!("{error}: --ram sets how much it takes"),
        _ => error.into(),
    }
}

/// Reads the files of the sets that expressions name.
fn read_names(arguments: &mut RecordArgs) -> anyhow::Result<()> {
    let expressions =
        expressions(&arguments.trigger, &arguments.keep).chain([&arguments.filter[..]]);
    // The expressions of a file of triggers are read later.
    let has_more = arguments.triggers.is_some();
    Ok(arguments.meaning.read(expressions, has_more)?)
}

/// Options of the recording for the arguments.
fn options(arguments: &RecordArgs) -> Options {
    let every = arguments
        .every
        .map(|time| ("every".to_owned(), Condition::Every(time)));
    Options {
        ram: arguments.ram,
        pages: arguments.pages,
        align: arguments.align,
        age: arguments.age,
        cutoff: arguments.cutoff,
        snaplen: arguments.snaplen,
        direction: match arguments.live.direction {
            DirectionArg::In => Some(Direction::In),
            DirectionArg::Out => Some(Direction::Out),
            DirectionArg::Inout => None,
        },
        disk: arguments.disk,
        sync: arguments.sync,
        segment: arguments.segment,
        segment_time: arguments.segment_time,
        compress: arguments.compress,
        reserve: arguments.reserve,
        saved_size: arguments.saved_size,
        saved_age: arguments.saved_age,
        mode: arguments.mode,
        resolve: arguments.meaning.resolve,
        sets: arguments.meaning.names().sets.clone(),
        triggers: arguments
            .trigger
            .iter()
            .chain(&arguments.threshold)
            .cloned()
            .chain(every)
            .collect(),
        trigger: Trigger {
            before: arguments.before,
            after: arguments.after,
            keep: arguments.keep.clone(),
            cooldown: arguments.cooldown,
            max_bytes: arguments.max_size,
            max_files: arguments.max_files,
            ..Trigger::default()
        },
    }
}

fn capture_request(arguments: &RecordArgs) -> CaptureRequest<'_> {
    CaptureRequest {
        settings: capture::settings(&arguments.live),
        // The kernel's filter sees the frame and not the packet inside.
        expression: if arguments.inside.inner {
            ""
        } else {
            &arguments.filter
        },
        replaces_filter: arguments.remote.control.is_some(),
        names: arguments.meaning.names(),
        snaplen: if arguments.snaplen == 0 {
            MAX_SNAPLEN
        } else {
            arguments.snaplen.min(MAX_SNAPLEN)
        },
        shares: 1,
        yes_take: &arguments.live.taking.yes_take,
    }
}

#[cfg(test)]
mod tests {
    use super::options;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use weir_messages::recording::Options;

    #[test]
    fn flags_that_are_left_out_are_the_defaults_of_the_library() {
        let cli = Cli::parse_from(["weir", "record", "a.pcap", "out"]);
        let Command::Record(arguments) = cli.command else {
            panic!("another command")
        };
        assert_eq!(
            format!("{:?}", options(&arguments)),
            format!("{:?}", Options::default())
        );
    }
}
