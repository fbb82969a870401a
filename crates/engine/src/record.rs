//! Recording: packets kept in a ring in RAM, and saved by triggers.
//!
//! ```text
//! run -> sink -> ring -> trigger thread   conditions; files of what fired, with packets from before
//!                     -> disk thread      segments with an index, if asked for
//!                     -> control socket   queries of other processes
//! ```
//! The sink copies packets into the [ring], and waits for nothing. The threads are readers of the ring: a thread that
//! is too slow misses packets, and says how many. Only a run over files waits for its readers, because files can wait.

pub mod disk;
pub mod trigger;

mod arms;
mod arrival;
mod condition;
mod firing;
mod home;
mod panes;
mod rates;
mod remote;
mod save;
mod sink;
mod sources;
mod spread;
mod threads;

pub use save::Incomplete;
pub use sink::RecordSink;

use crate::provenance::Chosen;
use crate::rewrite::Rewrite;
use crate::socket::{self, Bound, Server};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use trigger::{Asked, NotAsked, Saved, Span, Trigger};
use weir_filter::Names;
use weir_io::reserve::Reserve;
use weir_io::state::others_may_write;
use weir_packet::flow::Tunnels;
use weir_pipeline::steps::SystemClock;
use weir_store::disk::Durable;
use weir_store::ring::{self, Held, History, Refused};

/// Settings of a recording, in plain values.
pub struct Settings {
    /// Directory of the recording. It exists.
    pub directory: PathBuf,
    /// The ring.
    pub ring: ring::Settings,
    /// Longest time for which packets stay in the ring; `None` for as long as there is room.
    pub age: Option<Duration>,
    /// Number of bytes of each conversation after which its packets are left out; `None` for no such limit.
    pub cutoff: Option<u64>,
    /// Choice of the packets, by the run and here. Packets are cut to its snap length.
    pub chosen: Chosen,
    /// Packets kept on disk; `None` if only triggers save packets.
    pub disk: Option<disk::Settings>,
    /// Function called with events of the disk thread.
    pub on_disk: disk::OnDisk,
    /// Triggers.
    pub triggers: Vec<Trigger>,
    /// Whether the run waits for the readers of the ring, because its sources are files.
    pub waits: bool,
    /// Meaning of the names in expressions.
    pub names: Names,
    /// Tunnels into which is looked, if expressions, thresholds and conversations are about the innermost packets of frames.
    pub inner: Option<Tunnels>,
    /// Permission bits of the files.
    pub mode: u32,
    /// Bytes of the disk that stay free of files that triggers save. The bytes that packets on disk
    /// need are added: no saved file costs older packets.
    pub reserve: u64,
    /// Changes of the packets in files that triggers save. Packets in memory and on disk stay as they are.
    pub rewrite: Rewrite,
    /// Function called with each file that a trigger saved, or failed to save; in the trigger thread.
    pub on_saved: Box<dyn FnMut(&Saved) + Send>,
}

/// Longest wait for the trigger thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// Name of the control socket in the directory of a recording.
pub const SOCKET: &str = "control";

/// Reason for which a recording cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory of the ring cannot be obtained.
    #[error("the ring: {0}")]
    Ring(weir_memory::Error),
    /// The expression of a trigger is wrong.
    #[error("trigger {name}: {why}")]
    Expression {
        /// Name of the trigger.
        name: String,
        /// Reason.
        why: weir_filter::Error,
    },
    /// The memory that a trigger counts in cannot be obtained.
    #[error("trigger {name}: {why}")]
    Sample {
        /// Name of the trigger.
        name: String,
        /// Reason.
        why: weir_sketch::Error,
    },
    /// The name of a trigger cannot be part of a file's name.
    #[error("'{0}' is not a name of a trigger: letters, digits, '.', '_' and '-' are, up to 64")]
    Name(String),
    /// Two triggers have the same name.
    #[error("two triggers are named {0}")]
    Namesakes(String),
    /// The control socket cannot be made; another recording of the directory has it.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// The system refused a thread.
    #[error("a thread of the recording: {0}")]
    Thread(io::Error),
}

impl From<weir_memory::Error> for Error {
    fn from(error: weir_memory::Error) -> Self {
        Self::Ring(error)
    }
}

/// State of a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerStatus {
    /// Name of the trigger.
    pub name: String,
    /// Number of times that its condition was met.
    pub met: u64,
    /// Number of times that it fired. If it is not armed, it does not fire.
    pub fired: u64,
    /// Files that it saved.
    pub saved: u64,
    /// Packets in these files.
    pub packets: u64,
    /// Files that could not be saved.
    pub failed: u64,
    /// Whether a file is being written.
    pub active: bool,
    /// Reason for which its expression makes no sense for the interfaces.
    pub misfit: Option<String>,
    /// Reason for which its expression for kept packets makes no sense for the interfaces.
    pub keep_misfit: Option<String>,
    /// Reason for which its condition may have been met without being noticed.
    pub doubt: Option<String>,
    /// Memory in which its condition is counted, bytes.
    pub memory: u64,
}

/// State of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Packets in the ring now.
    pub held: Held,
    /// Length of the ring, bytes.
    pub capacity: u64,
    /// Number of packets that the ring took.
    pub taken: u64,
    /// Packets that the ring did not take.
    pub refused: Refused,
    /// Part of the sources that drops packets for lack of room.
    pub place: &'static str,
    /// Packets that were dropped there so far.
    pub dropped_before: u64,
    /// Packets that files lack, as they say themselves.
    pub lost_before: u64,
    /// Parts of the choice of the packets, in words; empty for all packets.
    pub holds_only: Vec<String>,
    /// Packets left out because enough of their conversation was kept, and their wire bytes.
    pub cut_off: (u64, u64),
    /// Packets overwritten in the ring before the triggers examined them.
    pub unchecked: u64,
    /// State of the disk, if packets are kept there.
    pub disk: Option<disk::Status>,
    /// The triggers.
    pub triggers: Vec<TriggerStatus>,
}

impl Status {
    /// Number of packets that the ring did not take.
    pub fn dropped(&self) -> u64 {
        self.refused.no_room + self.refused.too_long
    }

    /// Returns the state as JSON, the same for the control socket and the summary.
    pub fn json(&self) -> Value {
        let triggers = self.triggers.iter().map(|trigger| {
            json!({
                "name": trigger.name, "met": trigger.met, "fired": trigger.fired, "saved": trigger.saved,
                "packets": trigger.packets, "failed": trigger.failed, "active": trigger.active, "misfit": trigger.misfit,
                "keep_misfit": trigger.keep_misfit, "doubt": trigger.doubt, "memory": trigger.memory,
            })
        });
        let durable = |durable: &Durable| json!({ "number": durable.next, "packets": durable.packets, "time_ns": durable.time_ns });
        let disk = self.disk.as_ref().map(|disk| {
            let compressed = &disk.stats.compression;
            json!({
                "durable": durable(&disk.durable),
                "written": durable(&disk.written),
                "generation": disk.generation, "segments": disk.kept.0, "bytes": disk.kept.1,
                "written_bytes": disk.stats.bytes, "index_bytes": disk.stats.index_bytes,
                "removed_segments": disk.stats.removed.segments, "missed": disk.missed, "cut": disk.stats.cut,
                "gone": disk.gone, "elsewhere": disk.elsewhere, "unended_ns": disk.unended_ns,
                "compressed": {
                    "segments": compressed.segments, "bytes_before": compressed.before, "bytes_after": compressed.after,
                    "left_plain": compressed.plain, "failed": compressed.failed,
                },
                "failure": disk.failure, "failures": disk.failures,
            })
        });
        json!({
            "recorded": self.taken,
            "holds_only": self.holds_only,
            "dropped": { self.place: self.dropped_before, "ring": self.dropped() },
            "lost_before": self.lost_before,
            "cut_off": { "packets": self.cut_off.0, "bytes": self.cut_off.1 },
            "history": {
                "seconds": self.held.span_ns() as f64 / 1e9, "packets": self.held.packets, "bytes": self.held.bytes,
                "capacity": self.capacity,
            },
            "unchecked": self.unchecked,
            "disk": disk,
            "triggers": triggers.collect::<Vec<_>>(),
        })
    }
}

/// A request to the trigger thread.
#[derive(Debug)]
enum Request {
    /// Fires the trigger of this name, or all, for this cause, and tells which fired. `span` stands for the times before and after of
    /// the triggers, if given.
    Fire {
        name: Option<String>,
        cause: String,
        span: Option<Span>,
        answer: Sender<Asked>,
    },
}

/// Drops of the sources up to a time.
#[derive(Clone, Copy, Debug)]
struct Loss {
    wall_ns: i64,
    dropped: u64,
}

/// State that the sink, the threads and the handle share.
struct Shared {
    clock: SystemClock,
    history: History,
    /// Whether the sources are read to their end.
    ended: AtomicBool,
    no_room: AtomicU64,
    too_long: AtomicU64,
    cut_off: [AtomicU64; 2],
    unchecked: AtomicU64,
    /// Oldest chunk of the ring that the trigger thread still reads; `u64::MAX` if there is no such thread.
    triggers_at: AtomicU64,
    /// Oldest chunk of the ring that the disk thread still reads; `u64::MAX` if there is no such thread.
    disk_at: AtomicU64,
    /// Whether packets are kept on disk.
    keeps_on_disk: bool,
    disk: disk::State,
    triggers: Mutex<Vec<TriggerStatus>>,
    sources: sources::Sources,
    losses: Mutex<VecDeque<Loss>>,
    /// Choice of the packets.
    chosen: Chosen,
    /// Whether the sources are files.
    waits: bool,
    /// Part of the sources that drops packets for lack of room.
    place: Mutex<&'static str>,
}

impl Shared {
    /// Steady time, ns, by which pins of the ring end.
    fn steady_ns(&self) -> u64 {
        self.clock.now().steady.as_nanos() as u64
    }

    /// Packets that were lost before they were in the ring, as far as the sources have told.
    fn dropped(&self) -> u64 {
        self.sources.dropped().saturating_add(self.refused())
    }

    /// Packets that the ring did not take.
    fn refused(&self) -> u64 {
        self.no_room
            .load(Ordering::Relaxed)
            .saturating_add(self.too_long.load(Ordering::Relaxed))
    }

    /// Whether the sources are read to their end.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn triggers(&self) -> MutexGuard<'_, Vec<TriggerStatus>> {
        self.triggers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of a recording, for any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    requests: Sender<Request>,
}

impl Handle {
    /// Fires the trigger `name`, or all triggers, for this cause. Waits for the trigger thread, seconds at most.
    pub fn fire(&self, name: Option<&str>, cause: &str) -> Result<Asked, NotAsked> {
        self.fire_span(name, cause, None)
    }

    /// The same, but a given `span` replaces the span of the triggers.
    pub fn fire_span(
        &self,
        name: Option<&str>,
        cause: &str,
        span: Option<Span>,
    ) -> Result<Asked, NotAsked> {
        if let Some(name) = name.filter(|name| {
            self.shared
                .triggers()
                .iter()
                .all(|trigger| trigger.name != *name)
        }) {
            return Err(NotAsked::Unknown(name.to_owned()));
        }
        let (answer, asked) = channel();
        let request = Request::Fire {
            name: name.map(str::to_owned),
            cause: cause.to_owned(),
            span,
            answer,
        };
        self.requests.send(request).map_err(|_| NotAsked::Ended)?;
        asked.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => NotAsked::Silent,
            RecvTimeoutError::Disconnected => NotAsked::Ended,
        })
    }

    /// Returns the state of the recording now. **Cost**: a look at each chunk of the ring.
    pub fn status(&self) -> Status {
        let Shared {
            history,
            no_room,
            too_long,
            cut_off: [packets, bytes],
            unchecked,
            ..
        } = &*self.shared;
        let of_sources = self.shared.sources.dropped();
        let (dropped_before, lost_before) = if self.shared.waits {
            (0, of_sources)
        } else {
            (of_sources, 0)
        };
        Status {
            place: *self
                .shared
                .place
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            dropped_before,
            lost_before,
            holds_only: self.shared.chosen.words(),
            held: history.held(),
            capacity: history.capacity() as u64,
            taken: history.next(),
            refused: Refused {
                no_room: no_room.load(Ordering::Relaxed),
                too_long: too_long.load(Ordering::Relaxed),
            },
            cut_off: (
                packets.load(Ordering::Relaxed),
                bytes.load(Ordering::Relaxed),
            ),
            unchecked: unchecked.load(Ordering::Relaxed),
            disk: self
                .shared
                .keeps_on_disk
                .then(|| self.shared.disk.status().clone()),
            triggers: self.shared.triggers().clone(),
        }
    }

    /// Packets lost before the ring that do not count as losses of the packets only in RAM: the
    /// segments tell them, or no packet in RAM is as old.
    fn told_elsewhere(&self) -> u64 {
        if self.shared.keeps_on_disk {
            let status = self.shared.disk.status();
            return status.told.saturating_sub(status.missed);
        }
        let Some((oldest_ns, _)) = self.shared.history.held().times_ns else {
            return 0;
        };
        let losses = self
            .shared
            .losses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        losses
            .iter()
            .rev()
            .find(|loss| loss.wall_ns <= oldest_ns)
            .map_or(0, |loss| loss.dropped)
    }

    /// Names the place of the sources that drops packets for lack of room: the kernel, unless said
    /// otherwise.
    pub fn set_place(&self, place: &'static str) {
        *self
            .shared
            .place
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = place;
    }

    /// Returns the ring, for readers.
    pub fn history(&self) -> &History {
        &self.shared.history
    }

    /// Number of the first packet that only RAM holds.
    fn first_in_ram(&self) -> u64 {
        self.shared.disk.status().written.next
    }

    /// Generation of the segments on disk; `None` if nothing is written there.
    fn generation(&self) -> Option<u64> {
        self.shared
            .keeps_on_disk
            .then(|| self.shared.disk.status().generation)
    }
}

/// A recording whose threads have not begun: a process is confined while it has one thread.
pub struct Recording {
    handle: Handle,
    triggers: threads::Triggers,
    disk: Option<(disk::Settings, disk::OnDisk)>,
    writer: Option<disk::Writer>,
    /// Whether the sources are files.
    waits: bool,
    mode: u32,
    directory: PathBuf,
    socket: Option<Bound>,
}

/// A recording under way.
pub struct Recorder {
    handle: Handle,
    threads: Vec<JoinHandle<()>>,
    server: Option<Server>,
}

impl Recording {
    /// Prepares a recording, and returns it with the sink that takes its packets.
    pub fn new(settings: Settings) -> Result<(Self, RecordSink), Error> {
        let Settings {
            directory,
            ring,
            age,
            cutoff,
            chosen,
            disk,
            on_disk,
            triggers,
            waits,
            ..
        } = settings;
        let inner = settings.inner;
        let (names, mode, reserve, rewrite, on_saved) = (
            (settings.names, inner),
            settings.mode,
            settings.reserve,
            settings.rewrite,
            settings.on_saved,
        );
        for (index, trigger) in triggers.iter().enumerate() {
            if !trigger::is_name(&trigger.name) {
                return Err(Error::Name(trigger.name.clone()));
            }
            if triggers[..index]
                .iter()
                .any(|other| other.name == trigger.name)
            {
                return Err(Error::Namesakes(trigger.name.clone()));
            }
        }
        let (writer, history) = ring::ring(&ring)?;
        let cutoff = cutoff
            .map(|bytes| sink::Conversations::new(bytes, inner))
            .transpose()?;
        let status = |trigger: &Trigger| TriggerStatus {
            name: trigger.name.clone(),
            ..TriggerStatus::default()
        };
        let shared = Arc::new(Shared {
            clock: SystemClock::default(),
            history,
            ended: AtomicBool::new(false),
            no_room: AtomicU64::new(0),
            too_long: AtomicU64::new(0),
            cut_off: [const { AtomicU64::new(0) }; 2],
            unchecked: AtomicU64::new(0),
            triggers_at: AtomicU64::new(0),
            disk_at: AtomicU64::new(if disk.is_some() { 0 } else { u64::MAX }),
            keeps_on_disk: disk.is_some(),
            disk: disk::State::default(),
            triggers: Mutex::new(triggers.iter().map(status).collect()),
            sources: sources::Sources::default(),
            losses: Mutex::default(),
            chosen,
            waits,
            place: Mutex::new("kernel"),
        });
        let (requests, asked) = channel();
        let ahead = disk.as_ref().map_or(0, |disk| {
            disk.segment_bytes + disk.segment_bytes / 8 + (16 << 20)
        });
        let reserve = Reserve::Record {
            bytes: reserve,
            ahead,
        };
        let target = save::Target {
            directory: directory.clone(),
            mode,
            reserve,
            rewrite,
        };
        let triggers = threads::Triggers::new(
            Arc::clone(&shared),
            triggers,
            target,
            names,
            asked,
            on_saved,
            waits,
        )?;
        let sink = RecordSink::new(writer, Arc::clone(&shared), age, cutoff, waits);
        Ok((
            Self {
                handle: Handle { shared, requests },
                triggers,
                disk: disk.map(|settings| (settings, on_disk)),
                writer: None,
                waits,
                mode,
                directory,
                socket: None,
            },
            sink,
        ))
    }

    /// Locks the directory, which exists, recovers what an earlier recording left there, and prepares to write. `free_bytes` tells
    /// the free bytes of a file system. Returns `None` if nothing is kept on disk.
    pub fn open_disk(
        &mut self,
        free_bytes: weir_store::disk::FreeBytes,
    ) -> Result<Option<weir_store::disk::Opened>, weir_store::disk::Error> {
        let Some((settings, on_disk)) = self.disk.take() else {
            return Ok(None);
        };
        let way = disk::Way {
            directory: self.directory.clone(),
            mode: self.mode,
            free_bytes,
        };
        let writer = disk::Writer::open(self.handle.clone(), way, settings, on_disk, self.waits);
        let (writer, opened) = writer?;
        self.writer = Some(writer);
        Ok(Some(opened))
    }

    /// Makes the control socket in the directory, and returns its path. The directory exists.
    pub fn listen(&mut self) -> Result<PathBuf, Error> {
        let path = self.directory.join(SOCKET);
        self.socket = Some(Bound::new(&path)?);
        Ok(path)
    }

    /// Cuts files that an earlier recording was saving when it was killed after their last whole
    /// blocks, and marks them in their names; files without a packet are removed. The caller has
    /// made the control socket: no other recording writes them.
    pub fn recover_saved(&self) -> io::Result<Vec<Incomplete>> {
        save::recover(&self.directory)
    }

    /// Begins the work of the threads, and takes requests if there is a socket.
    pub fn start(self) -> Result<Recorder, Error> {
        let Self {
            handle,
            triggers,
            writer,
            socket,
            ..
        } = self;
        let asked = handle.clone();
        let answer = move |value: serde_json::Value| remote::request(&asked, &value);
        let server = socket
            .map(|socket| socket.serve(socket::Settings::default(), answer))
            .transpose()?;
        let thread = std::thread::Builder::new()
            .name("weir-triggers".to_owned())
            .spawn(|| triggers.run());
        let mut threads = vec![thread.map_err(Error::Thread)?];
        if let Some(writer) = writer {
            let thread = std::thread::Builder::new()
                .name("weir-disk".to_owned())
                .spawn(|| writer.run());
            threads.push(thread.map_err(Error::Thread)?);
        }
        Ok(Recorder {
            handle,
            threads,
            server,
        })
    }

    /// Returns the handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Refuses a directory in which other users could put links to files elsewhere.
fn check_directory(path: &Path) -> io::Result<()> {
    if !others_may_write(&std::fs::metadata(path)?) {
        return Ok(());
    }
    let why = "other users may write in this directory, and could put links there: chmod go-w it, or name another";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// A directory for a recording. If it was made now, it is removed with what a refused start leaves in it, unless it is kept.
#[derive(Debug)]
pub struct NewDirectory(Option<PathBuf>);

impl NewDirectory {
    /// Makes the directory, unless it is there. Users who may read files of this `mode` may also search it.
    ///
    /// **Errors**: errors of the system; `InvalidInput` for a directory in which others could put
    /// links to files elsewhere.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        if path.is_dir() {
            check_directory(path)?;
            return Ok(Self(None));
        }
        DirBuilder::new()
            .mode(mode | (mode & 0o444) >> 2)
            .create(path)?;
        Ok(Self(Some(path.to_owned())))
    }

    /// Whether the directory was made now.
    pub fn is_new(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps the directory, because the recording has begun.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        // What is not there, or may no longer be removed, stays as it is.
        for name in [SOCKET, "lock"] {
            let _ = std::fs::remove_file(path.join(name));
        }
        let _ = std::fs::remove_dir(path);
    }
}

impl Recorder {
    /// Ends the recording: what triggers are saving is completed with the packets that have
    /// arrived. Returns the final state, and whether all threads ended without a panic.
    pub fn finish(mut self) -> (Status, bool) {
        self.handle.shared.ended.store(true, Ordering::Release);
        // All are waited for, also after one that panicked.
        let ended = self
            .threads
            .into_iter()
            .map(JoinHandle::join)
            .fold(true, |ended, joined| ended & joined.is_ok());
        if let Some(server) = &mut self.server {
            server.stop();
        }
        (self.handle.status(), ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::disk::{Compression, Removed, Stats};

    #[test]
    fn the_state_as_json_has_each_figure_under_its_name() {
        let stats = Stats {
            bytes: 18,
            index_bytes: 19,
            cut: 20,
            removed: Removed {
                segments: 21,
                ..Removed::default()
            },
            compression: Compression {
                segments: 27,
                before: 28,
                after: 29,
                plain: 30,
                failed: 31,
            },
            ..Stats::default()
        };
        let status = Status {
            held: Held {
                packets: 1,
                bytes: 2,
                times_ns: Some((500_000_000, 2_000_000_000)),
            },
            capacity: 3,
            taken: 4,
            refused: Refused {
                no_room: 5,
                too_long: 6,
            },
            place: "kernel",
            dropped_before: 34,
            lost_before: 35,
            holds_only: vec!["tcp".to_owned()],
            cut_off: (7, 8),
            unchecked: 9,
            disk: Some(disk::Status {
                generation: 10,
                written: Durable {
                    next: 11,
                    packets: 32,
                    time_ns: Some(12),
                },
                durable: Durable {
                    next: 13,
                    packets: 33,
                    time_ns: None,
                },
                stats,
                kept: (14, 15),
                missed: 16,
                unended_ns: Some(38),
                gone: 36,
                elsewhere: 37,
                told: 0,
                failure: Some("full".to_owned()),
                failures: 17,
            }),
            triggers: vec![TriggerStatus {
                name: "t".to_owned(),
                met: 22,
                fired: 23,
                saved: 24,
                packets: 25,
                failed: 26,
                active: true,
                misfit: Some("no VLAN".to_owned()),
                keep_misfit: None,
                doubt: Some("saturated".to_owned()),
                memory: 39,
            }],
        };
        let expected = concat!(
            r#"{"recorded":4,"holds_only":["tcp"],"dropped":{"kernel":34,"ring":11},"lost_before":35,"#,
            r#""cut_off":{"packets":7,"bytes":8},"#,
            r#""history":{"seconds":1.5,"packets":1,"bytes":2,"capacity":3},"unchecked":9,"#,
            r#""disk":{"durable":{"number":13,"packets":33,"time_ns":null},"#,
            r#""written":{"number":11,"packets":32,"time_ns":12},"generation":10,"#,
            r#""segments":14,"bytes":15,"written_bytes":18,"index_bytes":19,"removed_segments":21,"missed":16,"cut":20,"#,
            r#""gone":36,"elsewhere":37,"unended_ns":38,"#,
            r#""compressed":{"segments":27,"bytes_before":28,"bytes_after":29,"left_plain":30,"failed":31},"#,
            r#""failure":"full","failures":17},"triggers":[{"name":"t","met":22,"fired":23,"saved":24,"packets":25,"#,
            r#""failed":26,"active":true,"misfit":"no VLAN","keep_misfit":null,"#,
            r#""doubt":"saturated","memory":39}]}"#,
        );
        assert_eq!(status.json().to_string(), expected);
        assert_eq!(Status::default().json()["disk"], Value::Null);
    }
}
