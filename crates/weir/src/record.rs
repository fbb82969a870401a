//! `weir record`: keeps packets in RAM, and saves those from before a trigger.

mod directory;
pub mod hook;
mod report;
mod triggers_file;

use crate::capture::{self, CaptureRequest};
use crate::cli::record::RecordArgs;
use crate::numbers::{self, asked_size};
use crate::outcome::{Outcome, io_words, say_plain};
use crate::show::Show;
use crate::sources;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use hook::Hook;
use report::Report;
use std::fs::DirBuilder;
use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::record::trigger::{Condition, Trigger};
use weir_engine::record::{self, Handle, Recorder, Recording, Settings};
use weir_engine::run::{Error, Files, Run, Setup};
use weir_engine::socket;
use weir_io::{Kind, sys};
use weir_memory::{Available, Request};
use weir_packet::savefile::MAX_SNAPLEN;
use weir_pipeline::select::Selection;
use weir_store::disk::{FreeBytes, Retention};
use weir_store::ring;

/// Default memory for packets, bytes.
const RAM: u64 = 4 << 30;

/// Smallest memory for packets, bytes.
const LEAST_RAM: u64 = 2 << 20;

/// Interval at which signals are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Interval at which a terminal shows how the recording stands.
const SHOW: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn run(mut arguments: RecordArgs) -> anyhow::Result<Outcome> {
    if let Some(outcome) = directory::run(&arguments)? {
        return Ok(outcome);
    }
    if let Some((_, sources)) = arguments.names.split_last_mut() {
        capture::name_awaited(sources, &arguments.live);
    }
    let arguments = &arguments;
    let Some((sources, directory)) = arguments.sources_and_directory() else {
        bail!("name a source and a directory: weir record SOURCE... DIR");
    };
    check(arguments, sources, directory)?;
    let walls = Walls::of_record(arguments, sources, directory)?;
    let live = sources.iter().any(|source| capture::interface(source).is_some());
    let report = Arc::new(Report::new(arguments.json));
    let (saving, writing) = (Arc::clone(&report), Arc::clone(&report));
    // Walls let no process begin another one: the one that does begins here.
    let mut hook = arguments.on_trigger.as_ref().map(|program| Hook::start(program, &walls)).transpose()?;
    let runs = hook.as_ref().map(Hook::runs);
    let settings = Settings {
        directory: Path::new(directory).to_owned(),
        ring: ring::Settings {
            bytes: usize::try_from(ram(arguments)?).unwrap_or(usize::MAX),
            shape: arguments.align,
            max_pins: None,
            memory: Request { pages: arguments.pages, ..Request::default() },
        },
        age: arguments.age,
        cutoff: arguments.cutoff,
        disk: disk(arguments),
        on_disk: Box::new(move |event| writing.disk(&event)),
        triggers: triggers(arguments)?,
        waits: !live,
        resolve: arguments.resolve,
        mode: arguments.mode,
        on_saved: Box::new(move |saved| {
            saving.saved(saved);
            if let (Some(hook), None) = (&mut hook, &saved.error)
                && let Err(why) = hook.run(&saved.path, &saved.cause)
            {
                saving.fault(why);
            }
        }),
    };
    let (mut recording, sink) = Recording::new(settings)?;
    let mut made = Made((!Path::new(directory).exists()).then(|| Path::new(directory)));
    make_directory(directory, arguments.mode, &walls)?;
    let free_bytes = FreeBytes(Arc::new(|path: &Path| sys::free_bytes(path)));
    if let Some(opened) = recording.open_disk(free_bytes)? {
        report.opened(&opened);
        // Files that were made just now, with root's rights.
        let made = opened.recovered.iter().map(|found| found.segment.index());
        for path in made.chain([Path::new(directory).join("lock")]).filter(|path| path.exists()) {
            walls.give_away(&path).map_err(|error| anyhow!("{}: {}", Name::from(&*path), io_words(&error)))?;
        }
    }
    let socket = recording.listen().map_err(|error| match error {
        record::Error::Socket(socket::Error::InUse { .. }) => {
            anyhow!("{directory}: another weir record runs on this directory")
        }
        error => error.into(),
    })?;
    walls.give_away(&socket).map_err(|error| anyhow!("{}: {}", Name::from(&*socket), io_words(&error)))?;
    let (stop, look, fire) = (Arc::default(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    sys::stop_on_signals(Arc::clone(&stop));
    sys::tell_on_signal(Arc::clone(&look));
    sys::fire_on_signal(Arc::clone(&fire));
    if let Some(time) = arguments.duration {
        sys::stop_after(time);
    }
    sources::say_namesakes(sources);
    let selection =
        Selection { expression: arguments.filter.clone(), resolve: arguments.resolve, ..Selection::default() };
    let mut run = Run::new(Setup {
        selection,
        main: (directory.as_output(), Some(Box::new(sink))),
        merges: sources.len() > 1,
        stop: Arc::clone(&stop),
        ..Setup::default()
    });
    recording.handle().set_control(run.control());
    let mut command = Command { arguments, show: Show::new(true, arguments.stats, 1, false), walls, place: "kernel" };
    let begun = Instant::now();
    let signals = Signals { look, fire, stop: Arc::clone(&stop) };
    let recorder = command.work(&mut run, recording, sources, live, signals, &report)?;
    made.0 = None;
    let stopped = run.is_stopped();
    let (ended, outputs) = run.finish(&mut |event| command.show.event(event));
    // All packets are in the ring now.
    let (status, threads_ended) = recorder.finish();
    command.show.outputs(&outputs, &ended);
    if !threads_ended {
        command.show.fault("a thread of the recording panicked: this is a mistake in it".to_owned());
    }
    let faults = &mut command.show.faults;
    faults.extend(report.faults());
    report.end(&report::End {
        ledger: &ended.ledger,
        stages: arguments.stats.then_some(&ended.stages[..]),
        notes: &command.show.notes,
        status: &status,
        runs: runs.as_deref(),
        place: command.place,
        interrupted: stopped && !live && arguments.duration.is_none(),
        faults: &command.show.faults,
        time: begun.elapsed(),
    });
    Ok(if command.show.faults.is_empty() { Outcome::Done } else { Outcome::Failed })
}

/// A directory that this run made, and that is removed with what a refused start leaves in it.
struct Made<'a>(Option<&'a Path>);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let Some(path) = self.0 else { return };
        // What is not there, or may no longer be removed, stays as it is.
        for name in [record::SOCKET, "lock"] {
            let _ = std::fs::remove_file(path.join(name));
        }
        let _ = std::fs::remove_dir(path);
    }
}

/// Flags that signals set.
struct Signals {
    /// SIGUSR1.
    look: Arc<AtomicBool>,
    /// SIGUSR2.
    fire: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

/// A run of the command.
struct Command<'a> {
    arguments: &'a RecordArgs,
    show: Show,
    walls: Walls,
    /// Place that drops packets for want of room.
    place: &'static str,
}

impl Command<'_> {
    /// Reads the sources to their end.
    fn work(
        &mut self,
        run: &mut Run,
        recording: Recording,
        sources: &[Name],
        live: bool,
        signals: Signals,
        report: &Arc<Report>,
    ) -> anyhow::Result<Recorder> {
        let (mut inputs, mut kept, mut about) = (Vec::new(), Vec::new(), Vec::new());
        if live {
            capture::check_memory(sources, &self.arguments.live)?;
            for name in sources {
                let request = capture_request(self.arguments);
                inputs.extend(capture::open(name, &request, &signals.stop, &mut about)?);
            }
            for input in &inputs {
                if let Kind::Live(live) = &input.kind {
                    self.place = live.backend().place();
                    kept.extend_from_slice(live.backend().keeps());
                }
            }
        }
        self.walls.raise(&kept)?;
        let show = &mut self.show;
        let begun = !live
            || !inputs.is_empty() && run.begin_capture(&inputs, &mut |event| show.event(event)).map_err(refused)?;
        self.walls.opened(&kept);
        // The threads have no more rights than are left now.
        let handle = recording.handle().clone();
        match recording.recover_saved() {
            Ok(found) => report.incomplete(&found),
            Err(error) => report.fault(format!("files that an earlier recording left: {}", io_words(&error))),
        }
        let recorder = recording.start()?;
        if !begun {
            return Ok(recorder);
        }
        about.iter().for_each(|line| say_plain(line));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| attend(&handle, &signals, report, &done));
            let on = &mut |event: Event<'_>| show.event(event);
            let result = if live {
                run.capture(inputs, on)
            } else {
                run.one_by_one(&Files { names: sources, zstd_window: 128 << 20, follow: None, query: None }, on)
            };
            done.store(true, Ordering::Relaxed);
            result
        })
        .map_err(refused)?;
        if live {
            show.end_of_capture();
        }
        Ok(recorder)
    }
}

/// Answers signals, and shows how the recording stands, until `done`.
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
        if signals.look.swap(false, Ordering::Relaxed) {
            report.standing(&handle.status());
        }
        if shows && shown.elapsed() >= SHOW {
            shown = Instant::now();
            report.progress(&handle.status());
        }
    }
}

fn refused(error: Error) -> anyhow::Error {
    match error {
        Error::Refused { name: Some(name), why } => anyhow!("{name}: {why}"),
        error => error.into(),
    }
}

/// Refuses contradictory arguments before anything is opened.
fn check(arguments: &RecordArgs, sources: &[Name], directory: &Name) -> anyhow::Result<()> {
    let path = Path::new(directory);
    if directory.is_dash() || capture::interface(directory).is_some() || path.exists() && !path.is_dir() {
        bail!("{directory} is no directory: weir record SOURCE... DIR, where DIR is for what is saved");
    }
    if arguments.before.is_zero() && arguments.after.is_zero() {
        bail!("--before 0 and --after 0 would save nothing");
    }
    if let (Some(disk), Some(segment)) = (arguments.disk, arguments.segment)
        && segment > disk / 2
    {
        bail!(
            "--segment {} of --disk {}: packets are removed a segment at a time, so that at least two must fit: --segment {}",
            asked_size(segment),
            asked_size(disk),
            asked_size((disk / 8).max(1 << 20))
        );
    }
    Ok(sources::check(sources, false)?)
}

/// Memory for packets. **Errors**: more than there is.
fn ram(arguments: &RecordArgs) -> anyhow::Result<u64> {
    let free = Available::now();
    let ordinary = free.map_or(u64::MAX, |free| free.bytes);
    let Some(asked) = arguments.ram else {
        return Ok(RAM.min(ordinary / 4).max(LEAST_RAM));
    };
    if asked < LEAST_RAM {
        bail!("--ram {}: at least {} are needed", asked_size(asked), asked_size(LEAST_RAM));
    }
    let all = ordinary.max(free.map_or(0, |free| free.huge.max(free.other_huge)));
    if asked > all {
        let unit = if all >= 8 << 30 { 1 << 30 } else { 1 << 20 };
        let fits = asked_size(all / 4 * 3 / unit * unit);
        bail!(
            "--ram {}: {} of memory are free; --ram {fits} leaves some for others",
            asked_size(asked),
            numbers::bytes(all)
        );
    }
    Ok(asked)
}

/// Largest length of a segment that nobody asked for, bytes.
const SEGMENT: u64 = 256 << 20;

/// Settings of the disk, if packets are kept there.
fn disk(arguments: &RecordArgs) -> Option<record::disk::Settings> {
    let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    arguments.disk.map(|bytes| record::disk::Settings {
        sync: arguments.sync,
        // Whole segments are removed, so a few of them make up the record.
        segment_bytes: arguments.segment.unwrap_or(SEGMENT.min(bytes / 8)),
        segment_time: arguments.segment_time.or(arguments.age.map(|age| (age / 8).max(Duration::from_secs(1)))),
        compress: arguments.compress,
        retention: Retention {
            bytes: Some(bytes),
            age_ns: arguments.age.map(nanoseconds),
            trigger_bytes: arguments.saved_size,
            trigger_age_ns: arguments.saved_age.map(nanoseconds),
            reserve_bytes: arguments.reserve,
        },
    })
}

/// The triggers of the command line and of a file. Without any, signals and requests save all packets.
fn triggers(arguments: &RecordArgs) -> anyhow::Result<Vec<Trigger>> {
    let every = arguments.every.map(|time| ("every".to_owned(), Condition::Every(time)));
    let conditions = arguments.trigger.iter().chain(&arguments.threshold).cloned().chain(every);
    let mut triggers: Vec<_> = conditions.map(|(name, condition)| trigger_of(name, condition, arguments)).collect();
    if let Some(file) = &arguments.triggers {
        triggers.extend(triggers_file::read(file, arguments)?);
    }
    if triggers.is_empty() {
        triggers.push(trigger_of("signal".to_owned(), Condition::Asked, arguments));
    }
    Ok(triggers)
}

/// A trigger with the settings of the command line.
fn trigger_of(name: String, condition: Condition, arguments: &RecordArgs) -> Trigger {
    Trigger {
        name,
        condition,
        before: arguments.before,
        after: arguments.after,
        keep: arguments.keep.clone(),
        cooldown: arguments.cooldown,
        max_bytes: arguments.max_size,
        max_files: arguments.max_files,
    }
}

/// Makes the directory if it is missing, for the user whose rights the files are written with.
fn make_directory(directory: &Name, mode: u32, walls: &Walls) -> anyhow::Result<()> {
    let path = Path::new(directory);
    if path.is_dir() {
        return Ok(());
    }
    // Who may read the files may also search the directory.
    let mode = mode | (mode & 0o444) >> 2;
    let made = DirBuilder::new().mode(mode).create(path).and_then(|()| walls.give_away(path));
    made.map_err(|error| anyhow!("{directory}: {}", io_words(&error)))
}

fn capture_request(arguments: &RecordArgs) -> CaptureRequest<'_> {
    CaptureRequest {
        settings: capture::settings(&arguments.live),
        expression: &arguments.filter,
        replaces_filter: false,
        resolve: arguments.resolve,
        snaplen: MAX_SNAPLEN,
        shares: 1,
    }
}
