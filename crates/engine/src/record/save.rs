//! Files that triggers save.

use crate::zone::Zone;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, Record, Statistics};

/// Bytes that are gathered before a write.
const BUFFER: usize = 1 << 20;

/// Place and permissions of saved files.
pub(super) struct Target {
    pub directory: PathBuf,
    /// Permission bits.
    pub mode: u32,
}

/// A file under way. Readers find it under its name only once all of it is on the disk.
pub(super) struct SaveFile {
    /// Name of the file once it is complete.
    path: PathBuf,
    part: PathBuf,
    file: File,
    encoder: Encoder,
    /// Id in the file of each interface of the ring.
    ids: Vec<u32>,
    buffer: Vec<u8>,
    /// Length of the file, bytes: whole records.
    len: u64,
    /// Packets in the file, and packets in the buffer.
    packets: u64,
    waiting: u64,
    max_bytes: u64,
    /// Packets left out because of the largest length.
    left_out: u64,
    error: Option<io::Error>,
}

/// A complete file.
pub(super) struct Complete {
    pub path: PathBuf,
    pub packets: u64,
    pub error: Option<io::Error>,
}

impl SaveFile {
    /// Makes a file named after a trigger and a time.
    pub fn create(target: &Target, trigger: &str, time_ns: i64, comment: String, max_bytes: u64) -> io::Result<Self> {
        let path = free_name(&target.directory, trigger, time_ns);
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(target.mode).open(&part)?;
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        encoder.comment(comment);
        Ok(Self {
            path,
            part,
            file,
            encoder,
            ids: Vec::new(),
            buffer: Vec::with_capacity(BUFFER + (64 << 10)),
            len: 0,
            packets: 0,
            waiting: 0,
            max_bytes,
            left_out: 0,
            error: None,
        })
    }

    /// Appends a packet; `interfaces` are those of the ring.
    pub fn packet(&mut self, interfaces: &[Interface], record: &Record<'_>) {
        let len = self.encoder.record_len(record.frame.data.len()) as u64;
        if self.error.is_some() || self.len + self.buffer.len() as u64 + len > self.max_bytes {
            self.left_out += 1;
            return;
        }
        if self.ids.len() < interfaces.len() {
            let id = |one| self.encoder.interface(one).expect("a pcapng file takes interfaces of any link type");
            self.ids = interfaces.iter().map(id).collect();
        }
        let id = self.ids[record.frame.interface as usize];
        self.encoder.packet(&mut self.buffer, id, record.time_ns, &record.frame);
        self.waiting += 1;
        if self.buffer.len() >= BUFFER {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.error.is_none() {
            match self.file.write_all(&self.buffer) {
                Ok(()) => {
                    self.len += self.buffer.len() as u64;
                    self.packets += self.waiting;
                }
                Err(error) => {
                    // The file ends at a whole record. A failure here leaves a torn record, which readers notice.
                    let _ = self.file.set_len(self.len);
                    self.left_out += self.waiting;
                    self.error = Some(error);
                }
            }
        }
        self.waiting = 0;
        self.buffer.clear();
    }

    /// Packets left out because of the largest length, or after an error.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Completes the file with interface statistics and remarks. It has its name after its bytes are on the disk, and the name is on the
    /// disk when this returns.
    pub fn finish(mut self, interfaces: &[Interface], counts: &Statistics, remarks: &[String]) -> Complete {
        self.encoder.begin(&mut self.buffer);
        for interface in interfaces {
            if let Ok(id) = self.encoder.interface(interface) {
                let first = id == 0;
                let counts =
                    if first { *counts } else { Statistics { time_ns: counts.time_ns, ..Statistics::default() } };
                self.encoder.statistics(&mut self.buffer, id, &counts, if first { remarks } else { &[] });
            }
        }
        self.write();
        let named = self.file.sync_data().and_then(|()| fs::rename(&self.part, &self.path));
        let named = named.and_then(|()| sync_directory(&self.path));
        let path = if self.path.exists() { self.path } else { self.part };
        Complete { path, packets: self.packets, error: self.error.or(named.err()) }
    }
}

/// Makes sure that the name of a file in its directory is on the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Name of a new file: `trigger-NAME-20261123T053614.123456789Z.pcapng`; with a number if there is such a file.
fn free_name(directory: &Path, trigger: &str, time_ns: i64) -> PathBuf {
    let second = Zone::new(true).strftime(OsStr::new("%Y%m%dT%H%M%S"), time_ns);
    let begin = format!("trigger-{trigger}-{}.{:09}Z", second.to_string_lossy(), time_ns.rem_euclid(1_000_000_000));
    let name = |number: u32| {
        let number = if number == 0 { String::new() } else { format!("-{}", number + 1) };
        directory.join(format!("{begin}{number}.pcapng"))
    };
    (0..u32::MAX).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}
