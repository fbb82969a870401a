//! Files that the keys `w` and `B` write, in a thread of their own: the run and the screen go on in the meantime.

use super::past::{check_disk, covered, span};
use super::subject;
use crate::cli::DirectionArg;
use crate::numbers::{bytes, counted};
use crate::outcome::{io_words, say_plain, slow_compilation};
use crate::outputs::About;
use crate::times::Clock;
use crate::walls;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;
use weir_engine::claims::Claims;
use weir_engine::event::{Event, On};
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::name::Name;
use weir_engine::records::{self, Query, Recorder};
use weir_engine::rewrite::Rewrite;
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;
use weir_engine::zone::Zone;
use weir_filter::Names;
use weir_io::output::Rotation;
use weir_io::sys;
use weir_measure::Counts;
use weir_messages::events::{Line, Listener};
use weir_packet::flow::Tunnels;
use weir_pipeline::select::Selection;
use weir_screen::{Save, Subject};
use weir_view::Snapshot;

/// Time after which a recorder has written a packet to disk, and after which it has seen it.
const RECORDED_NS: i64 = 1_500_000_000;
const SEEN_NS: i64 = 200_000_000;

/// Bytes of a pcapng record around a packet, and of a file before the first.
const AROUND: u64 = 36;
const BEGIN: u64 = 400;

/// Bytes of the headers of a packet, roughly.
const HEADERS: u64 = 60;

/// Where packets from before are.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Files, or one record directory.
    pub sources: Vec<Name>,
    /// Whether it is a record directory.
    pub is_record: bool,
    /// Its recorder, which has in memory what is not on disk yet.
    pub recorder: Option<Arc<Recorder>>,
}

/// Settings of the files that are written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the files.
    pub directory: PathBuf,
    /// Where packets from before are; else the reason why there are none.
    pub origin: Result<Origin, &'static str>,
    /// Tunnels into which expressions look.
    pub inner: Option<Tunnels>,
    /// Whether names of files are in UTC.
    pub utc: bool,
}

/// Files to write.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Path of the files without an extension.
    base: PathBuf,
    /// Packets to write.
    packets: Option<Packets>,
    /// Text of the screen, and the rows as JSON.
    texts: Option<[String; 2]>,
}

#[derive(Clone, Debug)]
struct Packets {
    expression: String,
    is_of_row: bool,
    times: (i64, i64),
    payload: bool,
}

/// Extensions of the files.
const PACKETS: &str = "pcapng";
const TEXTS: [&str; 2] = ["txt", "json"];

impl Settings {
    /// Plans files of a subject, and describes them. `filter` is the expression of the capture. **Errors**: why there are none.
    pub fn plan(
        &self,
        save: Save,
        (subject, filter): (&Subject, &str),
        snapshot: &Snapshot,
        texts: impl FnOnce() -> [String; 2],
    ) -> Result<(Plan, [String; 2]), String> {
        let (all, payload, is_bundle) = match save {
            Save::Packets { all } => (all, true, false),
            Save::Bundle { payload } => (false, payload, true),
        };
        let finding = subject::finding(subject, snapshot);
        let times = subject::times(finding, snapshot, all);
        let row = subject::expression(subject, finding);
        let packets = match (&self.origin, row) {
            (Ok(_), Ok(row)) => Ok(Packets {
                is_of_row: !row.is_empty(),
                expression: both(filter, row),
                times,
                payload,
            }),
            (Err(why), _) => Err((*why).to_owned()),
            (_, Err(why)) => Err(why),
        };
        let packets = match packets {
            Err(why) if !is_bundle => return Err(why),
            packets => packets,
        };
        let label = match is_bundle {
            true => "incident".to_owned(),
            false => subject::label(subject, finding),
        };
        let base = self.free_base(&label, times.0);
        let texts = is_bundle.then(texts);
        let names = match &packets {
            Ok(packets) if is_bundle && packets.payload => ".txt .json .pcapng",
            Ok(_) if is_bundle => ".txt .json .pcapng (headers)",
            Ok(_) => ".pcapng",
            Err(_) => ".txt .json",
        };
        let of_texts: u64 = texts.iter().flatten().map(|text| text.len() as u64).sum();
        let counts = subject::counts(subject, snapshot, all);
        let size = match (counts, packets.is_ok()) {
            (Some(counts), true) => {
                format!("about {}", bytes(file_size(counts, payload) + of_texts))
            }
            (None, true) => "size unknown".to_owned(),
            (_, false) => format!("about {}", bytes(of_texts)),
        };
        let free = sys::free_bytes(&self.directory);
        let free = free.map_or("unknown".to_owned(), bytes);
        let files = format!("{}{names}: {size}, {free} free", base.display());
        let contents = match &packets {
            Err(why) => format!("without packets: {why}"),
            Ok(packets) => self.contents(packets),
        };
        let plan = Plan {
            base,
            packets: packets.ok(),
            texts,
        };
        Ok((plan, [files, contents]))
    }

    /// A time of day.
    fn clock(&self, ns: i64) -> String {
        let text = Zone::new(self.utc).strftime("%H:%M:%S".as_ref(), ns);
        text.to_string_lossy().into_owned()
    }

    /// Why a record has no packets of these times, if it begins later or ends before.
    fn outside(&self, (from, to): (i64, i64)) -> Option<String> {
        let origin = self.origin.as_ref().ok()?;
        let directory = origin.sources.first().filter(|_| origin.is_record)?;
        let is_kept = origin.recorder.is_some();
        let clock = |ns| Clock::new(self.utc).text(ns);
        let words = match covered(directory.as_ref()) {
            None if is_kept => return None,
            None => "has no packets".to_owned(),
            Some((_, last)) if last < from && !is_kept => format!("ends at {}", clock(last)),
            Some((first, _)) if first > to => format!("begins at {}", clock(first)),
            Some(_) => return None,
        };
        Some(format!("{directory} {words}"))
    }

    /// Times and expression of packets in words.
    fn contents(&self, packets: &Packets) -> String {
        let clock = |ns| self.clock(ns);
        let (from, to) = packets.times;
        let what = match packets.expression.as_str() {
            "" => "all packets",
            expression => expression,
        };
        format!("{} to {}: {what}", clock(from), clock(to.saturating_add(1)))
    }

    /// A path of the directory of which no file exists.
    fn free_base(&self, label: &str, ns: i64) -> PathBuf {
        let time = Zone::new(self.utc).strftime("%Y%m%dT%H%M%S".as_ref(), ns);
        let stem = format!("{label}-{}", time.to_string_lossy());
        let is_free = |base: &PathBuf| {
            let mut all = TEXTS.iter().chain([&PACKETS]);
            all.all(|extension| with(base, extension).symlink_metadata().is_err())
        };
        let place = |name: String| match self.directory == Path::new(".") {
            true => PathBuf::from(name),
            false => self.directory.join(name),
        };
        let numbered = (2..1000).map(|number| place(format!("{stem}-{number}")));
        let mut all = std::iter::once(place(stem.clone())).chain(numbered);
        // A file that is there is never written onto.
        all.find(is_free).unwrap_or_else(|| place(stem))
    }
}

/// Expected bytes of a file with so many packets.
fn file_size(counts: Counts, payload: bool) -> u64 {
    let most = match payload {
        true => counts.bytes,
        false => counts.bytes.min(counts.packets * HEADERS),
    };
    most + counts.packets * AROUND + BEGIN
}

/// A path with an extension after all of its name.
fn with(base: &Path, extension: &str) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}

fn both(filter: &str, row: String) -> String {
    match (filter.trim(), row.is_empty()) {
        ("", _) => row,
        (filter, true) => filter.to_owned(),
        (filter, false) => format!("({filter}) and {row}"),
    }
}

/// The thread that writes. Dropping it ends what it writes: the file holds whole packets until then.
#[derive(Debug)]
pub struct Saver {
    pub settings: Settings,
    /// Files that the user is asked about.
    pub offered: Option<Plan>,
    plans: Option<Sender<Plan>>,
    done: Receiver<String>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Starts the thread. **Errors**: errors of the system.
    pub fn start(settings: &Settings, names: &Names) -> io::Result<Self> {
        let (send, plans) = channel::<Plan>();
        let (said, done) = channel();
        let stop = Arc::<AtomicBool>::default();
        let writer = Writer {
            settings: settings.clone(),
            names: names.clone(),
            stop: Arc::clone(&stop),
        };
        let thread = Builder::new().name("save".to_owned()).spawn(move || {
            for plan in plans {
                let line = writer.write(&plan);
                say_plain(&format!("weir: {line}"));
                let _ = said.send(line);
            }
        })?;
        Ok(Self {
            settings: settings.clone(),
            offered: None,
            plans: Some(send),
            done,
            stop,
            thread: Some(thread),
        })
    }

    /// Begins to write the offered files. Returns a line about them.
    pub fn write(&mut self) -> String {
        let (Some(plan), Some(plans)) = (self.offered.take(), &self.plans) else {
            return "nothing was asked".to_owned();
        };
        let words = format!("writing {} ...", plan.base.display());
        match plans.send(plan) {
            Ok(()) => words,
            Err(_) => "the thread that writes has ended with a panic".to_owned(),
        }
    }

    /// Result of the files that are complete, if there are any.
    pub fn done(&self) -> Option<String> {
        self.done.try_iter().last()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.plans.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Writer {
    settings: Settings,
    names: Names,
    stop: Arc<AtomicBool>,
}

impl Writer {
    /// Writes files, and says what became of them.
    fn write(&self, plan: &Plan) -> String {
        let texts = plan.texts.iter().flatten().zip(TEXTS);
        for (text, extension) in texts {
            let path = with(&plan.base, extension);
            if let Err(error) = write_text(&path, text) {
                return format!("{}: {}", path.display(), io_words(&error));
            }
        }
        let also = match plan.texts {
            Some(_) => ".txt .json ",
            None => "",
        };
        let base = plan.base.display();
        let Some(packets) = &plan.packets else {
            return format!("written: {base}.txt .json");
        };
        let path = with(&plan.base, PACKETS);
        let times = packets.times;
        let is_new = path.symlink_metadata().is_err();
        let (written, fault) = match self.packets(&path, packets) {
            Ok(both) => both,
            Err(error) => (0, Some(error.to_string())),
        };
        if is_new && written == 0 && fault.is_some() {
            // Nothing of it is of use, as of a text that cannot be written.
            let _ = std::fs::remove_file(&path);
        }
        let size = path.metadata().map_or(0, |about| about.len());
        let packets = counted(written, "packet");
        match fault {
            Some(fault) => {
                let name = format!("{}: ", path.display());
                let why = fault.strip_prefix(&name).unwrap_or(&fault);
                format!("{packets} written: {why}: {}", path.display())
            }
            None => {
                let files = format!("{packets}, {}: {base}{also}.{PACKETS}", bytes(size));
                let outside = (written == 0).then(|| self.settings.outside(times));
                match outside.flatten() {
                    Some(why) => format!("{files}: {why}"),
                    None => files,
                }
            }
        }
    }

    /// Writes packets to a new file: their number, and a failure.
    fn packets(&self, path: &Path, wanted: &Packets) -> anyhow::Result<(u64, Option<String>)> {
        let Settings { origin, inner, .. } = &self.settings;
        let origin = origin.as_ref().map_err(|why| anyhow::anyhow!(*why))?;
        let selection = Selection {
            expression: wanted.expression.clone(),
            names: self.names.clone(),
            inner: *inner,
            behind_tags: wanted.is_of_row && inner.is_none(),
            span: span(Some(wanted.times)),
            slow: slow_compilation(),
            ..Selection::default()
        };
        let query = match origin.is_record {
            true => Some(self.query(origin, wanted, &selection)?),
            false => None,
        };
        let asked = query.as_ref().zip(origin.sources.first());
        let about = About::of(&selection, (None, false), None, DirectionArg::Inout, asked);
        let mut provenance = about.provenance;
        if !wanted.payload {
            provenance.chosen = provenance.chosen.only("headers of packets".to_owned());
        }
        let name = Name::from(path);
        let settings = FileSettings {
            rotation: Rotation {
                keep: true,
                ..Rotation::default()
            },
            ..FileSettings::default()
        };
        let claims = Arc::new(Claims::of(&origin.sources));
        let sink = FileSink::new(&name, settings, &claims).telling(provenance);
        let cut = Rewrite {
            headers: !wanted.payload,
            ..Rewrite::default()
        };
        let mut session = Session::new(origin.sources.clone());
        session.query = query;
        let mut run = Run::new(Setup {
            selection,
            main: (name.as_output(), Some(cut.before(Box::new(sink)))),
            workers: 1,
            stop: Arc::clone(&self.stop),
            ..Setup::default()
        });
        let (mut listener, mut fault) = (Listener::new(true, walls::advice), None);
        let mut note = |event: &Event<'_>| {
            for line in listener.event(event) {
                if let Line::Fault(line) = line {
                    // There is no such option here.
                    fault.get_or_insert_with(|| line.replace(" (--reserve)", ""));
                }
            }
        };
        let on: On<'_> = &mut |event| note(&event);
        session.read(&mut run, on)?;
        let (ended, outputs) = run.finish(&mut |event| note(&event));
        let written = outputs.sums().next().map_or(0, |(_, counts)| counts.taken);
        let failure = ended.failure.map(|failure| failure.to_string());
        Ok((written, failure.or(fault)))
    }

    /// The question to a record, with what its recorder has in memory.
    fn query(
        &self,
        origin: &Origin,
        wanted: &Packets,
        selection: &Selection,
    ) -> anyhow::Result<Arc<Query>> {
        let (first, last) = wanted.times;
        let is_inside = selection.inner.is_some();
        let expression =
            records::choosing(&wanted.expression, false, is_inside, self.names.resolve);
        let mut query = Query::new(records::Selection {
            from_ns: Some(first),
            to_ns: Some(last),
            expression: expression.to_owned(),
            behind_tags: selection.behind_tags,
            sets: self.names.sets.clone(),
        });
        self.wait_for(last, SEEN_NS);
        let asked = origin
            .recorder
            .as_ref()
            .map(|recorder| query.ask(recorder, false));
        if let (Some(Err(error)), Some(directory)) = (&asked, origin.sources.first()) {
            check_disk(directory, error)?;
        }
        if !query.has_memory() {
            self.wait_for(last, RECORDED_NS);
        }
        Ok(Arc::new(query))
    }

    /// Waits until so long after this time, unless it is to come.
    fn wait_for(&self, ns: i64, further_ns: i64) {
        let now_ns = || Clock::new(true).now_ns();
        let until = ns.min(now_ns()).saturating_add(further_ns);
        while now_ns() < until && !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(50));
        }
    }
}

/// Writes a new file that only its owner can read; on an error, nothing of it stays.
fn write_text(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}
