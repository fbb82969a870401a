//! Files that triggers save.

use crate::provenance::Chosen;
use crate::rewrite::{Changes, Rewrite};
use crate::zone::Zone;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_io::reserve::{Reserve, Watch};
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, Record, Statistics};
use weir_store::disk::open_regular;

/// Bytes that are gathered before a write.
const BUFFER: usize = 1 << 20;

/// Ending of a file under way.
const PART: &str = ".pcapng.part";

/// Directory and permissions of saved files.
pub(super) struct Target {
    pub directory: PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// Disk space that stays free.
    pub reserve: Reserve,
    /// Changes of the saved packets.
    pub rewrite: Rewrite,
}

/// A file under way. Readers find it under its name only once all of it is on the disk.
pub(super) struct SaveFile {
    /// Name of the file once it is complete.
    path: PathBuf,
    part: PathBuf,
    file: File,
    watch: Watch,
    encoder: Encoder,
    /// Choice of the packets, in addition to the recording's choice.
    chosen: Chosen,
    /// Id in the file of each interface of the ring.
    ids: Vec<u32>,
    buffer: Vec<u8>,
    /// Length of the file, bytes: whole records.
    len: u64,
    /// Packets in the file, and packets in the buffer.
    packets: u64,
    waiting: u64,
    max_bytes: u64,
    /// Room kept for the packet that fired, bytes.
    reserved: u64,
    /// Packets left out because of the largest length.
    left_out: u64,
    error: Option<io::Error>,
    changes: Changes,
    /// Whether the file has other addresses, and so no texts of the recording.
    is_anonymous: bool,
}

/// A complete file.
pub(super) struct Complete {
    pub path: PathBuf,
    pub packets: u64,
    pub error: Option<io::Error>,
}

impl SaveFile {
    /// Makes a file named after a trigger and a time.
    pub fn create(
        target: &Target,
        trigger: &str,
        time_ns: i64,
        comment: String,
        max_bytes: u64,
    ) -> io::Result<Self> {
        let path = free_name(&target.directory, trigger, time_ns);
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        // What is there under this name is replaced: a link may point anywhere.
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(target.mode)
            .open(&part)?;
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        let is_anonymous = target.rewrite.anonymizer.is_some();
        if !is_anonymous {
            encoder.comment(comment);
        }
        Ok(Self {
            path,
            part,
            file,
            watch: Watch::new(target.reserve),
            encoder,
            chosen: Chosen::default(),
            ids: Vec::new(),
            buffer: Vec::with_capacity(BUFFER + (64 << 10)),
            len: 0,
            packets: 0,
            waiting: 0,
            max_bytes,
            reserved: 0,
            left_out: 0,
            error: None,
            changes: Changes::new(target.rewrite.clone()),
            is_anonymous,
        })
    }

    /// Has the file say that its packets were chosen by this too, before its first packet.
    #[must_use]
    pub fn holding(self, chosen: Chosen) -> Self {
        match self.is_anonymous {
            true => self,
            false => Self { chosen, ..self },
        }
    }

    /// The description of an interface in the file.
    fn described(&self, interface: &Interface) -> Interface {
        match self.is_anonymous {
            true => interface.without_texts(),
            false => self.chosen.described(interface).into_owned(),
        }
    }

    /// Keeps room for a packet of `captured` bytes, so that earlier packets do not fill the file.
    pub fn reserve(&mut self, captured: usize) {
        self.reserved = self.encoder.record_len(captured) as u64;
    }

    /// Gives that room to the next packet.
    pub fn release(&mut self) {
        self.reserved = 0;
    }

    /// Appends a packet; `interfaces` are the ring's.
    pub fn packet(&mut self, interfaces: &[Interface], record: &Record<'_>) {
        let len = self.encoder.record_len(record.frame.data.len()) as u64;
        if self.error.is_some()
            || self.len + self.buffer.len() as u64 + len + self.reserved > self.max_bytes
        {
            self.left_out += 1;
            return;
        }
        if self.ids.len() < interfaces.len() {
            let described: Vec<_> = interfaces.iter().map(|one| self.described(one)).collect();
            let id = |one: Interface| self.encoder.interface(&one);
            let known = described
                .into_iter()
                .map(id)
                .map(|id| id.expect("a pcapng file takes interfaces of any link type"));
            self.ids = known.collect();
        }
        let place = record.frame.interface as usize;
        let id = self.ids[place];
        let Record { time_ns, frame, .. } = self.changes.packet(interfaces[place].link, record);
        self.encoder.packet(&mut self.buffer, id, time_ns, &frame);
        self.waiting += 1;
        if self.buffer.len() >= BUFFER {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.error.is_none() {
            let taken = self.watch.take(&self.file, self.buffer.len());
            match taken.and_then(|()| self.file.write_all(&self.buffer)) {
                Ok(()) => {
                    self.len += self.buffer.len() as u64;
                    self.packets += self.waiting;
                }
                Err(error) => {
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

    /// The remark on packets of other addresses that could not be taken apart.
    fn unknown_remark(&self) -> Vec<String> {
        let unknown = self.changes.unknown();
        let words = format!(
            "{unknown} packets could not be taken apart: the bytes that are not known are left out"
        );
        (unknown > 0).then_some(words).into_iter().collect()
    }

    /// Completes the file with interface statistics and remarks. It has its name after its bytes are on the disk, and the name is on the
    /// disk when this returns.
    pub fn finish(
        mut self,
        interfaces: &[Interface],
        counts: &Statistics,
        remarks: &[String],
    ) -> Complete {
        let unknown = self.unknown_remark();
        let remarks = if self.is_anonymous { &unknown } else { remarks };
        self.encoder.begin(&mut self.buffer);
        for interface in interfaces {
            if let Ok(id) = self.encoder.interface(&self.described(interface)) {
                let first = id == 0;
                let counts = if first {
                    *counts
                } else {
                    // The first interface has the counts of all.
                    Statistics {
                        time_ns: counts.time_ns,
                        dropped_by_system: counts.dropped_by_system.map(|_| 0),
                        ..Statistics::default()
                    }
                };
                self.encoder.statistics(
                    &mut self.buffer,
                    id,
                    &counts,
                    if first { remarks } else { &[] },
                );
            }
        }
        self.write();
        let written = self
            .error
            .map_or(Ok(()), Err)
            .and_then(|()| self.file.sync_data());
        let named = written.and_then(|()| fs::rename(&self.part, &self.path));
        let Err(error) = named.and_then(|()| sync_directory(&self.path)) else {
            return Complete {
                path: self.path,
                packets: self.packets,
                error: None,
            };
        };
        let (path, packets) = match keep_incomplete(&self.part) {
            Ok(kept) => kept.map_or((self.path, 0), |kept| (kept.path, kept.packets)),
            Err(_) if self.part.exists() => (self.part, self.packets),
            Err(_) => (self.path, self.packets),
        };
        Complete {
            path,
            packets,
            error: Some(error),
        }
    }
}

/// A saved file that is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The file: `trigger-NAME-TIME-incomplete.pcapng`; the former name of one without a packet, which is removed.
    pub path: PathBuf,
    /// Number of packets in it.
    pub packets: u64,
}

/// Keeps the whole blocks of files that a killed recording was saving. **Errors**: errors of the
/// first file that fails, after all others.
pub(super) fn recover(directory: &Path) -> io::Result<Vec<Incomplete>> {
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_part = name
            .to_str()
            .is_some_and(|name| name.starts_with("trigger-") && name.ends_with(PART));
        // A link may point anywhere.
        if !is_part || !entry.file_type()?.is_file() {
            continue;
        }
        match keep_incomplete(&entry.path()) {
            Ok(kept) => found.push(kept.unwrap_or(Incomplete {
                path: entry.path(),
                packets: 0,
            })),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    failed.map(|()| found)
}

/// Cuts a file that is not whole after its last whole block, and names it so; `None` if it holds no
/// packet, and is removed.
fn keep_incomplete(part: &Path) -> io::Result<Option<Incomplete>> {
    let file = open_regular(OpenOptions::new().read(true).write(true), part)?;
    let (len, packets) = whole_blocks(&file)?;
    if packets == 0 {
        fs::remove_file(part)?;
        sync_directory(part)?;
        return Ok(None);
    }
    file.set_len(len)?;
    file.sync_all()?;
    let stem = part
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(|name| name.strip_suffix(PART))
        .unwrap_or("trigger");
    let path = free_path(part.with_file_name(format!("{stem}-incomplete")).as_path());
    fs::rename(part, &path)?;
    sync_directory(&path)?;
    Ok(Some(Incomplete { path, packets }))
}

/// Length of the whole blocks at the begin of a pcapng file, as [`SaveFile`] writes it, and the number of packets in them.
fn whole_blocks(file: &File) -> io::Result<(u64, u64)> {
    /// Type of a block that holds a packet.
    const PACKET: u32 = 6;
    let end = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(BUFFER, file);
    let (mut at, mut packets, mut body) = (0, 0, Vec::new());
    // A block is its type and its length, a body, and its length again, at least 12 bytes.
    while end - at >= 12 {
        let (mut kind, mut len) = ([0; 4], [0; 4]);
        reader.read_exact(&mut kind)?;
        reader.read_exact(&mut len)?;
        let bytes = u32::from_le_bytes(len);
        if bytes < 12 || !bytes.is_multiple_of(4) || u64::from(bytes) > end - at {
            break;
        }
        body.resize(bytes as usize - 8, 0);
        reader.read_exact(&mut body)?;
        if !body.ends_with(&len) {
            break;
        }
        at += u64::from(bytes);
        packets += u64::from(u32::from_le_bytes(kind) == PACKET);
    }
    Ok((at, packets))
}

/// Makes sure that the name of a file in its directory is on the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    weir_io::sys::open_directory(directory)?.sync_all()
}

/// Name of a new file: `trigger-NAME-20261123T053614.123456789Z.pcapng`; with a number if there is such a file.
fn free_name(directory: &Path, trigger: &str, time_ns: i64) -> PathBuf {
    let second = Zone::new(true).strftime(OsStr::new("%Y%m%dT%H%M%S"), time_ns);
    let begin = format!(
        "trigger-{trigger}-{}.{:09}Z",
        second.to_string_lossy(),
        time_ns.rem_euclid(1_000_000_000)
    );
    free_path(&directory.join(begin))
}

/// Path with an ending that no file has; with a number if there is a file, or one under way:
/// timestamps that step back fire twice at a time.
fn free_path(begin: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name = begin.as_os_str().to_owned();
        if number > 0 {
            name.push(format!("-{}", number + 1));
        }
        name.push(".pcapng");
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        !path.exists() && !Path::new(&part).exists()
    };
    (0..u32::MAX)
        .map(name)
        .find(is_free)
        .unwrap_or_else(|| name(0))
}
