//! The disk thread: follows the ring, and writes what it finds to the segments of a directory.

use super::home::{Home, Presence};
use super::sink::as_kept;
use super::{Handle, SOCKET, Shared, remote};
use crate::socket::{self, Bound, Server};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_packet::savefile::{Interface, Statistics};
pub use weir_store::disk::Error as Failure;
use weir_store::disk::{
    self, Closed, Durable, Error, FreeBytes, Now, Opened, Recorder, Retention, Stats, System,
};
use weir_store::ring::{Cursor, From};

/// Pause while nothing comes.
const PAUSE: Duration = Duration::from_millis(10);

/// Time after a failure before the next attempt, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// Interval at which counts are passed on, ns: a loss belongs to the segment of its time if that
/// is longer.
const COUNT_NS: u64 = 10_000_000;
/// Interval of checks whether the directory is still there, ns.
const LOOK_NS: u64 = 250_000_000;

/// Settings of the record on disk.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Largest interval at which packets are made durable.
    pub sync: Duration,
    /// Largest length of a segment, bytes.
    pub segment_bytes: u64,
    /// Longest time of a segment; `None` for no limit.
    pub segment_time: Option<Duration>,
    /// Level of zstd, 1 to 19, with which closed segments are compressed; `None`: they stay as they are.
    pub compress: Option<i32>,
    /// Limits of the record.
    pub retention: Retention,
}

/// State of the record on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Generation of the first segment of this recording.
    pub generation: u64,
    /// Packets that readers of the directory find.
    pub written: Durable,
    /// Packets that survive a loss of power.
    pub durable: Durable,
    /// Counts of this recording.
    pub stats: Stats,
    /// Closed segments in the directory, and their bytes.
    pub kept: (usize, u64),
    /// Packets that left the ring before they were written.
    pub missed: u64,
    /// Time of the last count of dropped packets of the latest earlier recording of the directory that was killed, ns since 1970.
    pub unended_ns: Option<i64>,
    /// Packets that were in a directory that was removed, and that memory held no more.
    pub gone: u64,
    /// Packets in directories that were renamed or mounted over.
    pub elsewhere: u64,
    /// Packets lost before they were on disk, as far as the segments report them.
    pub told: u64,
    /// Failure, while attempts go on.
    pub failure: Option<String>,
    /// Number of failures so far.
    pub failures: u64,
}

/// State that the disk thread shares with the handle.
#[derive(Debug, Default)]
pub(super) struct State(Mutex<Status>);

impl State {
    pub fn status(&self) -> MutexGuard<'_, Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Event of the disk thread, for the front end.
#[derive(Debug)]
#[non_exhaustive]
pub enum DiskEvent<'a> {
    /// Writing failed; the next attempt is in a second.
    Failed(&'a Error),
    /// Writing goes on after a failure.
    Resumed,
    /// A segment could not be compressed, and stays plain.
    Uncompressed(&'a Error),
    /// The directory was removed, renamed or mounted over, and there is none in its place.
    Left(Left<'a>),
    /// The same, and packets are written to the directory in its place.
    Moved(Left<'a>),
    /// There is a directory again, and packets are written to it.
    Entered(&'a Path),
    /// The control socket cannot be made in a directory that is there again.
    Deaf(&'a socket::Error),
}

/// Function called with each event, in the disk thread.
pub type OnDisk = Box<dyn FnMut(DiskEvent<'_>) + Send>;

/// A directory that no longer belongs to the recording.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// Name under which another directory may be found.
    pub directory: &'a Path,
    /// Packets of the recording that were durable in it.
    pub packets: u64,
    /// Packets of these that neither it nor memory holds now.
    pub gone: u64,
    /// Whether it was removed with its files; otherwise another name leads to it.
    pub is_removed: bool,
}

/// Directory of the segments, and how they are made.
pub(super) struct Way {
    pub directory: PathBuf,
    /// Permission bits of the files.
    pub mode: u32,
    pub free_bytes: FreeBytes,
}

/// Counts of the recorders of earlier directories, and of the sources until then.
#[derive(Default)]
struct Before {
    missed: u64,
    told: u64,
    refused: u64,
    sources: Vec<(Interface, Statistics)>,
}

/// Writer of what the ring holds.
pub(super) struct Writer {
    handle: Handle,
    settings: Settings,
    way: Way,
    /// The directory that is written to.
    home: Option<Home>,
    /// The recorder of that directory; `None` while there is none.
    recorder: Option<Recorder>,
    before: Before,
    /// Number of the first packet of the recorder.
    begin: u64,
    cursor: Cursor,
    /// Id on disk of each interface of the ring.
    ids: Vec<u32>,
    on_disk: OnDisk,
    /// Steady time of the next sync, of the next look at the directory, and of the next attempt after a failure, ns.
    sync_ns: u64,
    count_ns: u64,
    look_ns: u64,
    retry_ns: Option<u64>,
    /// Whether the end waits until all segments are compressed, because the sources are files.
    waits: bool,
    /// Control socket in a directory that was made again.
    server: Option<Server>,
}

impl Way {
    /// Opens the directory for writing, and recovers what an earlier recording left.
    fn open(&self, settings: Settings) -> Result<(Recorder, Opened), Error> {
        let now = weir_pipeline::steps::SystemClock::default().now();
        let how = disk::Settings {
            segment_bytes: settings.segment_bytes,
            segment_ns: settings.segment_time.map(|time| time.as_nanos() as u64),
            compress: settings.compress,
            retention: settings.retention,
            free_bytes: Some(self.free_bytes.clone()),
            file_mode: self.mode,
            ..disk::Settings::default()
        };
        let now = Now {
            steady_ns: 0,
            wall_ns: now.wall_ns,
        };
        Recorder::open(Arc::new(System::default()), &self.directory, how, now)
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::File {
            action,
            path: self.directory.clone(),
            offset: None,
            kept: None,
            source,
        }
    }
}

/// Notes what a recorder found in its directory.
fn note_opened(status: &mut Status, opened: &Opened) {
    status.generation = opened.generation;
    status.unended_ns = opened.unended_ns;
}

impl Writer {
    /// Opens the directory, which exists.
    pub fn open(
        handle: Handle,
        way: Way,
        settings: Settings,
        on_disk: OnDisk,
        waits: bool,
    ) -> Result<(Self, Opened), Error> {
        let (recorder, opened) = way.open(settings)?;
        let home = Home::open(&way.directory).map_err(way.failed("opening"))?;
        note_opened(&mut handle.shared.disk.status(), &opened);
        let writer = Self {
            cursor: handle.shared.history.cursor(From::Number(0)),
            handle,
            settings,
            way,
            home: Some(home),
            recorder: Some(recorder),
            before: Before::default(),
            begin: 0,
            ids: Vec::new(),
            on_disk,
            sync_ns: 0,
            count_ns: 0,
            look_ns: 0,
            retry_ns: None,
            waits,
            server: None,
        };
        Ok((writer, opened))
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Works until the sources are read to their end.
    pub fn run(mut self) {
        let _left = LeftRing(Arc::clone(&self.handle.shared));
        let mut is_last = false;
        loop {
            let ended = self.shared().has_ended();
            // At the end a failure has to show while its packets can be passed again.
            let stepped = match self.step() {
                Ok(false) if ended => self.count().and_then(|()| self.sync()).map(|()| false),
                stepped => stepped,
            };
            let busy = match stepped {
                Ok(busy) => {
                    self.succeeded();
                    busy
                }
                Err(error) => {
                    self.failed(&error);
                    // At the end there is time for one further attempt.
                    if is_last {
                        break;
                    }
                    is_last = ended;
                    ended
                }
            };
            self.tell();
            if busy {
                continue;
            }
            if ended && self.retry_ns.is_none() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.close();
    }

    /// Ends the segments of the directory, if it is still there.
    fn close(mut self) {
        if let Err(error) = self.check_home() {
            self.failed(&error);
        }
        let compressed = match &mut self.recorder {
            Some(recorder) if self.waits => recorder.compress_all(),
            _ => Ok(()),
        };
        self.tell();
        let Self {
            handle,
            recorder,
            mut on_disk,
            before,
            ..
        } = self;
        let Some(recorder) = recorder else { return };
        match compressed.and_then(|()| recorder.close()) {
            Ok(Closed {
                durable,
                stats,
                kept,
            }) => {
                let mut status = handle.shared.disk.status();
                (status.written, status.durable) = (durable, durable);
                (status.stats, status.kept) = (stats, kept);
                status.missed = before.missed + stats.missed;
            }
            Err(error) => {
                on_disk(DiskEvent::Failed(&error));
                let mut status = handle.shared.disk.status();
                status.failures += 1;
                status.failure = Some(error.to_string());
            }
        }
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.recorder
            .as_mut()
            .map_or(Ok(()), |recorder| recorder.sync().map(drop))
    }

    /// Writes packets of one chunk, and does what is due. Returns whether there were packets.
    fn step(&mut self) -> Result<bool, Error> {
        let now = self.shared().clock.now();
        let now = Now {
            steady_ns: now.steady.as_nanos() as u64,
            wall_ns: now.wall_ns,
        };
        if self
            .retry_ns
            .is_some_and(|at| now.steady_ns < at && !self.shared().has_ended())
        {
            return Ok(false);
        }
        if now.steady_ns >= self.look_ns {
            self.look_ns = now.steady_ns.saturating_add(LOOK_NS);
            self.check_home()?;
        }
        let Some(recorder) = &mut self.recorder else {
            return Ok(false);
        };
        recorder.tick(now)?;
        let piece = self.cursor.next(now.steady_ns);
        if let Some(piece) = &piece {
            if self.ids.len() < self.handle.shared.history.interface_count() {
                let interfaces = self.handle.shared.history.interfaces();
                self.ids = interfaces
                    .iter()
                    .map(|interface| recorder.interface(interface))
                    .collect();
            }
            for index in 0..piece.len() {
                let record = piece.record(index);
                recorder.packet(
                    self.ids[record.frame.interface as usize],
                    piece.number(index),
                    &record,
                )?;
            }
        }
        if now.steady_ns >= self.count_ns || now.steady_ns >= self.sync_ns {
            self.count_ns = now.steady_ns.saturating_add(COUNT_NS);
            self.count()?;
        }
        if now.steady_ns >= self.sync_ns {
            self.sync_ns = now
                .steady_ns
                .saturating_add(self.settings.sync.as_nanos() as u64);
            self.sync()?;
        }
        Ok(piece.is_some())
    }

    /// Checks whether the directory is still the open directory, and continues in another directory
    /// of its name.
    fn check_home(&mut self) -> Result<(), Error> {
        let sight = self.home.as_ref().map_or(Presence::Missing, Home::presence);
        if sight == Presence::Same && self.recorder.is_some() {
            return Ok(());
        }
        let left = self.leave();
        let entered = if sight == Presence::Missing {
            Ok(false)
        } else {
            self.enter().map(|()| true)
        };
        let directory = &*self.way.directory;
        let is_there = matches!(entered, Ok(true));
        let left = left.map(|(packets, gone, is_removed)| Left {
            directory,
            packets,
            gone,
            is_removed,
        });
        match left {
            Some(left) if is_there => (self.on_disk)(DiskEvent::Moved(left)),
            Some(left) => (self.on_disk)(DiskEvent::Left(left)),
            None if is_there => (self.on_disk)(DiskEvent::Entered(directory)),
            None => {}
        }
        entered.map(drop)
    }

    /// Gives up the directory. Returns the number of packets that were durable there, the number of
    /// lost packets among them, and whether it was removed; `None` if it was given up before.
    fn leave(&mut self) -> Option<(u64, u64, bool)> {
        let mut recorder = self.recorder.take()?;
        let is_removed = self.home.as_ref().is_some_and(Home::is_removed);
        if !is_removed {
            // The open segment is whole under its other name. A failure leaves what was durable before.
            let _ = recorder.sync();
        }
        let durable = recorder.durable();
        let history = &self.handle.shared.history;
        let oldest = history.next().saturating_sub(history.held().packets);
        // What memory still holds of a directory that was removed is written again.
        let resume = if is_removed {
            oldest.max(self.begin).min(durable.next)
        } else {
            durable.next
        };
        let again = durable.next.saturating_sub(resume);
        let gone = if is_removed {
            durable.packets.saturating_sub(again)
        } else {
            0
        };
        self.before.missed += recorder.stats().missed;
        self.before.told += recorder.told();
        self.before.refused = self.shared().refused();
        self.before.sources = self.shared().sources.all();
        self.begin = resume;
        self.cursor = self.shared().history.cursor(From::Number(resume));
        self.retry_ns = None;
        let mut status = self.handle.shared.disk.status();
        status.gone += gone;
        status.elsewhere += if is_removed { 0 } else { durable.packets };
        (status.written, status.kept) = (
            Durable {
                next: resume,
                ..Durable::default()
            },
            (0, 0),
        );
        status.durable = status.written;
        Some((durable.packets, gone, is_removed))
    }

    /// Opens the directory that is there now.
    fn enter(&mut self) -> Result<(), Error> {
        super::check_directory(&self.way.directory).map_err(self.way.failed("opening"))?;
        let (mut recorder, opened) = self.way.open(self.settings)?;
        let home = Home::open(&self.way.directory).map_err(self.way.failed("opening"))?;
        recorder.begin_at(self.begin);
        self.home = Some(home);
        self.recorder = Some(recorder);
        self.ids.clear();
        note_opened(&mut self.handle.shared.disk.status(), &opened);
        let handle = self.handle.clone();
        let answer = move |value: serde_json::Value| remote::request(&handle, &value);
        let bound = Bound::new(self.way.directory.join(SOCKET));
        match bound.and_then(|bound| bound.serve(socket::Settings::default(), answer)) {
            Ok(server) => self.server = Some(server),
            Err(error) => (self.on_disk)(DiskEvent::Deaf(&error)),
        }
        Ok(())
    }

    /// Passes on what the sources and the ring have counted, so that the segments say it.
    fn count(&mut self) -> Result<(), Error> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let shared = &*self.handle.shared;
        let known = shared.history.interfaces();
        if self.ids.len() < known.len() {
            self.ids = known
                .iter()
                .map(|interface| recorder.interface(interface))
                .collect();
        }
        let refused = shared.refused().saturating_sub(self.before.refused);
        // Files may have no counter of lost packets, and captures have one.
        let dropped_by_system = (refused > 0 || !shared.waits).then_some(refused);
        let mut counts = vec![(
            0,
            Statistics {
                dropped_by_system,
                ..Statistics::default()
            },
        )];
        for (interface, counted) in shared.sources.all() {
            let before = self
                .before
                .sources
                .iter()
                .find(|(known, _)| *known == interface);
            let counted = before.map_or(counted, |(_, before)| counted.since(before));
            let [kept, swapped] = [false, true]
                .map(|big_endian| as_kept(&shared.chosen, big_endian, &interface).into_owned());
            let same = |one: &Interface| *one == kept || *one == swapped;
            let id = known.iter().position(same).map_or(0, |at| self.ids[at]);
            counts.push((id, counted));
        }
        let missed = recorder.stats().missed;
        let comment = (refused + missed > 0).then(|| {
            format!("of the dropped packets, {refused} found no room in memory, and {missed} left it before they were written")
        });
        recorder.count(&counts, comment)
    }

    fn succeeded(&mut self) {
        let passed = self
            .retry_ns
            .is_some_and(|at| self.shared().steady_ns() >= at);
        if passed {
            self.retry_ns = None;
            self.shared().disk.status().failure = None;
            (self.on_disk)(DiskEvent::Resumed);
        }
    }

    /// Takes a failure, which may come of a directory that is no longer there: that is reported in
    /// its place then.
    fn failed(&mut self, error: &Error) {
        let is_elsewhere = self
            .home
            .as_ref()
            .is_some_and(|home| home.presence() != Presence::Same);
        if !is_elsewhere || self.recorder.is_none() {
            return self.go_back(error);
        }
        if let Err(error) = self.check_home() {
            self.go_back(&error);
        }
    }

    /// Goes back to the first packet that is not on disk.
    fn go_back(&mut self, error: &Error) {
        let first = self.retry_ns.is_none();
        self.retry_ns = Some(self.shared().steady_ns().saturating_add(RETRY_NS));
        let resume = self
            .recorder
            .as_ref()
            .map_or(self.begin, Recorder::resume_from);
        self.cursor = self.shared().history.cursor(From::Number(resume));
        if first {
            (self.on_disk)(DiskEvent::Failed(error));
        }
        let mut status = self.handle.shared.disk.status();
        status.failures += 1;
        status.failure = Some(error.to_string());
    }

    /// Tells how far the disk is.
    fn tell(&mut self) {
        let error = self
            .recorder
            .as_mut()
            .and_then(Recorder::take_compression_error);
        if let Some(error) = error {
            (self.on_disk)(DiskEvent::Uncompressed(&error));
        }
        // A run over files does not wait for a disk that fails, or that is not there.
        let waits = self.retry_ns.is_none() && self.recorder.is_some();
        let place = if waits { self.cursor.chunk() } else { u64::MAX };
        self.shared().disk_at.store(place, Ordering::Relaxed);
        let Some(recorder) = &self.recorder else {
            return;
        };
        let mut status = self.handle.shared.disk.status();
        (status.written, status.durable) = (recorder.written(), recorder.durable());
        (status.stats, status.kept) = (recorder.stats(), recorder.kept());
        status.missed = self.before.missed + status.stats.missed;
        status.told = self.before.told + recorder.told();
    }
}

/// Frees the run from waiting for this reader.
struct LeftRing(Arc<Shared>);

impl Drop for LeftRing {
    fn drop(&mut self) {
        self.0.disk_at.store(u64::MAX, Ordering::Relaxed);
    }
}
