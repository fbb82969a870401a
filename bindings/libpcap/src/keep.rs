//! A record of the packets that a program reads.

use crate::extras::Totals;
use crate::live::Packet;
use crate::settings::{self, say};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_packet::savefile::{Interface, Record, Resolution, Statistics};
use weir_packet::{Frame, LinkType};
use weir_store::disk::{
    Disk, DiskFile, Error, FreeBytes, Now, Recorder, Retention, Settings, System,
};

/// Interval at which packets are written to the record.
pub const FLUSH: Duration = Duration::from_millis(500);

/// The system's files. The directory stays open, so that a program without its former rights can make entries durable.
#[derive(Debug, Default)]
struct Home {
    files: System,
    directory: OnceLock<File>,
}

impl Disk for Home {
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        let file = self.files.create(path, mode)?;
        if self.directory.get().is_none()
            && let Some(parent) = path.parent()
        {
            // Another thread cannot have set it: the recorder is in this one.
            let _ = self.directory.set(File::open(parent)?);
        }
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.files.open(path)
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<bool> {
        self.files.create_dir(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.directory.get() {
            Some(directory) => directory.sync_all(),
            None => self.files.sync_dir(path),
        }
    }
}

/// Record of the packets that the program reads.
pub struct Keep {
    recorder: Option<Recorder>,
    directory: PathBuf,
    id: u32,
    next: u64,
    lost: u64,
    begun: Instant,
}

impl Keep {
    /// Makes the directory and its first segment.
    pub fn open(directory: &Path, interface: &str, snaplen: u32) -> Result<Self, String> {
        /// The largest segment there is: a program that gave up its rights may be unable to make another.
        const SEGMENT: u64 = 4 << 30;
        /// Bytes of the file system that stay free.
        const RESERVE: u64 = 1 << 30;
        let begun = Instant::now();
        let settings = Settings {
            segment_bytes: SEGMENT,
            flush_ns: FLUSH.as_nanos() as u64,
            index_pairs: 1 << 20,
            retention: Retention {
                reserve_bytes: RESERVE,
                ..Retention::default()
            },
            free_bytes: Some(FreeBytes(Arc::new(|path: &Path| {
                weir_io::sys::free_bytes(path)
            }))),
            ..Settings::default()
        };
        let failed = |error: Error| error.to_string();
        let disk = Arc::new(Home::default());
        let (mut recorder, _) =
            Recorder::open(disk, directory, settings, now(begun)).map_err(failed)?;
        let id = recorder.interface(&Interface {
            name: Some(interface.to_owned()),
            ..Interface::plain(LinkType::ETHERNET, snaplen, Resolution::NANOSECOND)
        });
        recorder.begin().map_err(failed)?;
        Ok(Self {
            recorder: Some(recorder),
            directory: directory.to_owned(),
            id,
            next: 0,
            lost: 0,
            begun,
        })
    }

    /// Takes a packet.
    pub fn packet(&mut self, packet: &Packet) {
        let Some(recorder) = &mut self.recorder else {
            self.lost += 1;
            return;
        };
        let record = Record {
            time_ns: i64::try_from(packet.time_ns()).ok(),
            frame: Frame {
                // SAFETY: the packet's lease is held.
                data: unsafe { packet.bytes() },
                wire_len: packet.wire_len,
                interface: self.id,
            },
            options: Default::default(),
        };
        match recorder.packet(self.id, self.next, &record) {
            Ok(()) => self.next += 1,
            Err(error) => {
                self.lost += 1;
                self.give_up(&error);
            }
        }
    }

    /// Writes waiting packets, and the counts of dropped ones.
    pub fn tick(&mut self, totals: &Totals) {
        let now = now(self.begun);
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let told = Statistics {
            time_ns: now.wall_ns,
            received: Some(totals.counts.received),
            dropped_by_system: Some(totals.counts.dropped),
            dropped_by_interface: Some(totals.by_interface),
            ..Statistics::default()
        };
        let done = recorder
            .tick(now)
            .and_then(|()| recorder.count(&[(self.id, told)], None));
        if let Err(error) = done {
            self.give_up(&error);
        }
    }

    /// Ends the record.
    pub fn close(&mut self) {
        if let Some(recorder) = self.recorder.take()
            && let Err(error) = recorder.close()
            && !self.is_whole(&error)
        {
            self.complain(&error, "the record is not closed");
        }
    }

    /// Whether all packets are on disk, and only an index could not be made, which the next recorder makes.
    fn is_whole(&self, error: &Error) -> bool {
        matches!(error, Error::File { source, kept: Some(kept), .. }
            if source.kind() == io::ErrorKind::PermissionDenied && *kept == self.next)
    }

    #[cold]
    fn give_up(&mut self, error: &Error) {
        self.recorder = None;
        self.complain(error, "nothing more is recorded");
    }

    fn complain(&self, error: &Error, consequence: &str) {
        say(&format!(
            "{}={}: {error}: {consequence}",
            settings::RECORD,
            self.directory.display()
        ));
    }

    /// Packets in the record, and packets that failed to get there.
    pub fn counts(&self) -> (u64, u64) {
        (self.next, self.lost)
    }
}

/// Time of day, ns since the epoch.
pub fn wall_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as i64)
}

fn now(begun: Instant) -> Now {
    Now {
        steady_ns: begun.elapsed().as_nanos() as u64,
        wall_ns: wall_ns(),
    }
}
