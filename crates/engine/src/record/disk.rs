//! The disk thread: follows the ring, and writes what it finds to the segments of a directory.

use super::Shared;
use super::sink::as_kept;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_packet::savefile::{Interface, Statistics};
pub use weir_store::disk::Error as Failure;
use weir_store::disk::{self, Closed, Durable, Error, FreeBytes, Now, Opened, Recorder, Retention, Stats, System};
use weir_store::ring::{Cursor, From};

/// Pause while nothing comes.
const PAUSE: Duration = Duration::from_millis(10);

/// Time after a failure before the next attempt, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// Settings of what is kept on disk.
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
    /// Limits of what is kept.
    pub retention: Retention,
}

/// State of what is on disk.
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
    /// Packets lost before they were on disk, of those that the segments tell.
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
}

/// Function called with each event, in the disk thread.
pub type OnDisk = Box<dyn FnMut(DiskEvent<'_>) + Send>;

/// Writer of what the ring holds.
pub(super) struct Writer {
    shared: Arc<Shared>,
    settings: Settings,
    recorder: Recorder,
    cursor: Cursor,
    /// Id on disk of each interface of the ring.
    ids: Vec<u32>,
    on_disk: OnDisk,
    /// Steady time of the next sync, and of the next attempt after a failure, ns.
    sync_ns: u64,
    retry_ns: Option<u64>,
    /// Whether the end waits until all segments are compressed, because the sources are files.
    waits: bool,
}

/// Opens a directory for writing, and recovers what an earlier recording left.
pub(super) fn open(
    directory: &Path,
    settings: Settings,
    mode: u32,
    free_bytes: FreeBytes,
) -> Result<(Recorder, Opened), Error> {
    let now = weir_pipeline::steps::SystemClock::default().now();
    let how = disk::Settings {
        segment_bytes: settings.segment_bytes,
        segment_ns: settings.segment_time.map(|time| time.as_nanos() as u64),
        compress: settings.compress,
        retention: settings.retention,
        free_bytes: Some(free_bytes),
        file_mode: mode,
        ..disk::Settings::default()
    };
    Recorder::open(Arc::new(System::default()), directory, how, Now { steady_ns: 0, wall_ns: now.wall_ns })
}

impl Writer {
    pub fn new(shared: Arc<Shared>, recorder: Recorder, settings: Settings, on_disk: OnDisk, waits: bool) -> Self {
        Self {
            cursor: shared.history.cursor(From::Number(0)),
            shared,
            settings,
            recorder,
            ids: Vec::new(),
            on_disk,
            sync_ns: 0,
            retry_ns: None,
            waits,
        }
    }

    /// Works until the sources are read to their end.
    pub fn run(mut self) {
        let _left = Left(Arc::clone(&self.shared));
        let mut is_last = false;
        loop {
            let ended = self.shared.has_ended();
            // At the end a failure has to show while its packets can be passed again.
            let stepped = match self.step() {
                Ok(false) if ended => self.count().and_then(|()| self.recorder.sync()).map(|_| false),
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
        let compressed = if self.waits { self.recorder.compress_all() } else { Ok(()) };
        self.tell();
        let Self { shared, recorder, mut on_disk, .. } = self;
        match compressed.and_then(|()| recorder.close()) {
            Ok(Closed { durable, stats, kept }) => {
                let mut status = shared.disk.status();
                (status.written, status.durable) = (durable, durable);
                (status.stats, status.kept, status.missed) = (stats, kept, stats.missed);
            }
            Err(error) => {
                on_disk(DiskEvent::Failed(&error));
                let mut status = shared.disk.status();
                status.failures += 1;
                status.failure = Some(error.to_string());
            }
        }
    }

    /// Writes packets of one chunk, and does what is due. Returns whether there were packets.
    fn step(&mut self) -> Result<bool, Error> {
        let now = self.shared.clock.now();
        let now = Now { steady_ns: now.steady.as_nanos() as u64, wall_ns: now.wall_ns };
        if self.retry_ns.is_some_and(|at| now.steady_ns < at && !self.shared.has_ended()) {
            return Ok(false);
        }
        self.recorder.tick(now)?;
        let piece = self.cursor.next(now.steady_ns);
        if let Some(piece) = &piece {
            if self.ids.len() < self.shared.history.interface_count() {
                let interfaces = self.shared.history.interfaces();
                self.ids = interfaces.iter().map(|interface| self.recorder.interface(interface)).collect();
            }
            for index in 0..piece.len() {
                let record = piece.record(index);
                self.recorder.packet(self.ids[record.frame.interface as usize], piece.number(index), &record)?;
            }
        }
        if now.steady_ns >= self.sync_ns {
            self.count()?;
            self.sync_ns = now.steady_ns.saturating_add(self.settings.sync.as_nanos() as u64);
            self.recorder.sync()?;
        }
        Ok(piece.is_some())
    }

    /// Passes on what the sources and the ring have counted, so that the segments say it.
    fn count(&mut self) -> Result<(), Error> {
        let Shared { history, sources, chosen, .. } = &*self.shared;
        let known = history.interfaces();
        if self.ids.len() < known.len() {
            self.ids = known.iter().map(|interface| self.recorder.interface(interface)).collect();
        }
        let refused = self.shared.refused();
        let mut counts = vec![(0, Statistics { dropped_by_system: Some(refused), ..Statistics::default() })];
        for (interface, counted) in sources.all() {
            let [kept, swapped] = [false, true].map(|big_endian| as_kept(chosen, big_endian, &interface).into_owned());
            let same = |one: &Interface| *one == kept || *one == swapped;
            let id = known.iter().position(same).map_or(0, |at| self.ids[at]);
            counts.push((id, counted));
        }
        let missed = self.recorder.stats().missed;
        let comment = (refused + missed > 0).then(|| {
            format!("of the dropped packets, {refused} found no room in memory, and {missed} left it before they were written")
        });
        self.recorder.count(&counts, comment)
    }

    fn succeeded(&mut self) {
        let passed = self.retry_ns.is_some_and(|at| self.shared.steady_ns() >= at);
        if passed {
            self.retry_ns = None;
            self.shared.disk.status().failure = None;
            (self.on_disk)(DiskEvent::Resumed);
        }
    }

    /// Goes back to the first packet that is not on disk.
    fn failed(&mut self, error: &Error) {
        let first = self.retry_ns.is_none();
        self.retry_ns = Some(self.shared.steady_ns().saturating_add(RETRY_NS));
        self.cursor = self.shared.history.cursor(From::Number(self.recorder.resume_from()));
        if first {
            (self.on_disk)(DiskEvent::Failed(error));
        }
        let mut status = self.shared.disk.status();
        status.failures += 1;
        status.failure = Some(error.to_string());
    }

    /// Tells how far the disk is.
    fn tell(&mut self) {
        if let Some(error) = self.recorder.take_compression_error() {
            (self.on_disk)(DiskEvent::Uncompressed(&error));
        }
        // A run over files does not wait for a disk that fails.
        let place = if self.retry_ns.is_none() { self.cursor.chunk() } else { u64::MAX };
        self.shared.disk_at.store(place, Ordering::Relaxed);
        let mut status = self.shared.disk.status();
        (status.written, status.durable) = (self.recorder.written(), self.recorder.durable());
        (status.stats, status.kept) = (self.recorder.stats(), self.recorder.kept());
        (status.missed, status.told) = (status.stats.missed, self.recorder.told());
    }
}

/// Frees the run from waiting for this reader.
struct Left(Arc<Shared>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.disk_at.store(u64::MAX, Ordering::Relaxed);
    }
}
