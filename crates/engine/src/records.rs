//! Record directories as sources.
//!
//! A record directory is read as one pcapng stream: the segments on disk in their order, and after
//! them the packets that the recorder still has in memory, if a [`Query`] was given their bytes.

use crate::generated;
use crate::name::Name;
use crate::record::SOCKET;
use crate::socket::{Client, Error, ReadFrames, Streaming};
use serde_json::{Value, json};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_filter::sets::are_named_in;
use weir_io::input::Opening;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_pipeline::reader::Uncounted;
use weir_pipeline::threads::spawn;
use weir_store::disk::{self, Reader, Seam};

pub use weir_store::disk::{Counts, IndexUse, Selection};

/// Question to a record directory: the wanted packets, and afterwards what was read for the answer.
#[derive(Debug, Default)]
pub struct Query {
    /// Wanted packets. The expression only chooses what is read: the run still has to filter.
    pub selection: Selection,
    /// Packets in the memory of the recorder, until a source takes them.
    memory: Mutex<Option<Memory>>,
    /// Whether a recorder gave packets.
    asked: bool,
    /// Counts of each directory that was read.
    seen: Mutex<Vec<(PathBuf, Counts)>>,
}

/// Packets that a recorder has in memory, as a pcapng stream.
struct Memory {
    bytes: Box<dyn Read + Send>,
    /// End of the packets on disk; `None` if the recorder writes none.
    seam: Option<Seam>,
}

impl core::fmt::Debug for Memory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Memory")
            .field("seam", &self.seam)
            .finish_non_exhaustive()
    }
}

impl Query {
    /// Creates a question for the packets of `selection` that are on disk.
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            ..Self::default()
        }
    }

    /// Asks the recorder of `directory` for the wanted packets that it has in memory and not on disk; with `follow`, also for those
    /// that come from now on. Returns `false` if no recorder runs there.
    ///
    /// The answer to the request `query` gives the seam, generation and number; the generation is null if the recorder writes no
    /// segments. The packets follow as a pcapng stream.
    ///
    /// **Errors**: errors of the socket.
    pub fn ask_recorder(&mut self, directory: &Path, follow: bool) -> Result<bool, Error> {
        match Recorder::connect(directory)? {
            Some(recorder) => self.ask(&Arc::new(recorder), follow).map(|()| true),
            None => Ok(false),
        }
    }

    /// As [`Self::ask_recorder`], over a connection that is open already. **Errors**: errors of the socket; the connection is lost after
    /// an error, and after an answer that was not read to its end.
    pub fn ask(&mut self, recorder: &Arc<Recorder>, follow: bool) -> Result<(), Error> {
        let client = recorder.client().take().ok_or_else(|| Error::Io {
            path: recorder.path.clone(),
            error: io::Error::new(
                io::ErrorKind::NotConnected,
                "the connection to it was lost: start this program again",
            ),
        })?;
        let Selection {
            from_ns,
            to_ns,
            expression,
            behind_tags,
            ..
        } = &self.selection;
        // Another process has other sets. What it gives is judged here again.
        let expression = if are_named_in(expression) {
            ""
        } else {
            expression
        };
        let request = json!({
            "request": "query", "expression": expression, "behind_tags": behind_tags, "from_ns": from_ns, "to_ns": to_ns,
            "follow": follow,
        });
        let (answer, bytes) = client.stream(&request)?;
        let number = |name: &str| answer.get(name).and_then(Value::as_u64);
        let seam = match (number("generation"), number("number")) {
            (Some(generation), Some(number)) => Some(Seam { generation, number }),
            _ => None,
        };
        let memory = Memory {
            bytes: Box::new(Answer {
                bytes: Some(bytes),
                recorder: Arc::clone(recorder),
            }),
            seam,
        };
        *self
            .memory
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner) = Some(memory);
        self.asked = true;
        Ok(())
    }

    /// Whether a recorder gave packets of its memory.
    pub fn has_memory(&self) -> bool {
        self.asked
    }

    /// Returns what was read of each directory on disk so far; complete once the sources are read.
    pub fn seen(&self) -> MutexGuard<'_, Vec<(PathBuf, Counts)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection to the recorder of a directory. A process whose sandbox lets it open no other asks it again and again.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    /// The connection, unless an answer is being read; `None` after an answer that was not read to its end.
    client: Mutex<Option<Client>>,
}

impl Recorder {
    /// Connects to the recorder of `directory`; `None` if no recorder runs there. **Errors**: errors of the socket.
    pub fn connect(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(SOCKET);
        match Client::connect(&path) {
            Err(Error::NotListening { .. }) => Ok(None),
            client => Ok(Some(Self {
                client: Mutex::new(Some(client?)),
                path,
            })),
        }
    }

    /// Sets the longest wait for an answer.
    pub fn patience(self, patience: Duration) -> Self {
        let client = self.client().take();
        *self.client() = client.map(|client| client.patience(patience));
        self
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of an answer, whose end gives the connection back.
struct Answer {
    bytes: Option<ReadFrames<Streaming>>,
    recorder: Arc<Recorder>,
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(bytes) = &mut self.bytes else {
            return Ok(0);
        };
        let read = bytes.read(buffer)?;
        if read == 0
            && !buffer.is_empty()
            && let Some(bytes) = self.bytes.take()
        {
            *self.recorder.client() = Some(bytes.into_inner().into_client());
        }
        Ok(read)
    }
}

/// Returns the expression that may choose what is read of a record, for a filter: none if the filter is inverted, is about packets inside
/// others, or looks names up, which may differ the second time.
pub fn choosing(expression: &str, invert: bool, inner: bool, resolve: bool) -> &str {
    if invert || inner || resolve {
        ""
    } else {
        expression
    }
}

/// Reason for which a directory cannot be queried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The directory cannot be read.
    #[error(transparent)]
    Io(io::Error),
    /// The directory holds no record.
    #[error(transparent)]
    Record(disk::Error),
}

/// Checks that `directory` holds a record: segments, or the socket of a recorder that keeps packets in memory alone.
pub fn check(directory: &Path) -> Result<(), CheckError> {
    match Reader::open(directory, Selection::default(), None) {
        Ok(_) => Ok(()),
        Err(disk::Error::File { source, .. }) => Err(CheckError::Io(source)),
        Err(_) if directory.join(SOCKET).exists() => Ok(()),
        Err(error) => Err(CheckError::Record(error)),
    }
}

/// Parts of a record that could not be read: the inner error of the reader at its end, at which all the rest was read.
#[derive(Debug, thiserror::Error)]
pub struct Damaged {
    /// Number of damaged blocks.
    pub blocks: u64,
    /// Packets of these that are given all the same.
    pub unchecked: u64,
    /// Segment, offset in it, and damage of the first damaged place.
    pub first: Option<(PathBuf, u64, disk::Damage)>,
    /// Segments that could not be read, or not to their end, and the reasons.
    pub failed: Vec<(PathBuf, String)>,
    /// Segments that were removed to make room before they were read.
    pub gone: u64,
    /// Segments between others that were not there.
    pub missing: Vec<disk::Gone>,
}

impl core::fmt::Display for Damaged {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let were = |count: u64, name: &str| {
            format!(
                "{count} {name}{}",
                if count == 1 { " was" } else { "s were" }
            )
        };
        let mut parts = Vec::new();
        if let Some((path, offset, why)) = &self.first {
            let blocks = were(self.blocks, "damaged block");
            let read = match self.unchecked {
                0 => "skipped".to_owned(),
                1 => "skipped, but for a packet in them that is given as it is".to_owned(),
                n => format!("skipped, but for {n} packets in them that are given as they are"),
            };
            parts.push(format!(
                "{blocks} {read}; the first is at offset {offset} of {}: {why}",
                path.display()
            ));
        }
        if let Some((path, why)) = self.failed.first() {
            let segments = were(self.failed.len() as u64, "segment");
            // Most reasons name the file themselves.
            let why = why
                .strip_prefix(&format!("{}: ", path.display()))
                .unwrap_or(why);
            parts.push(format!(
                "{segments} not read to the end; the first is {}: {why}",
                path.display()
            ));
        }
        if self.gone > 0 {
            parts.push(format!(
                "{} removed to make room before being read",
                were(self.gone, "segment")
            ));
        }
        for &disk::Gone {
            generation,
            segments,
            at_most,
        } in &self.missing
        {
            let which = match segments {
                1 => format!("segment {generation:06} is gone"),
                n => format!(
                    "segments {generation:06} to {:06} are gone",
                    generation.saturating_add(n - 1)
                ),
            };
            let with = at_most.map_or(String::new(), |most| format!(", with up to {most} packets"));
            parts.push(format!("{which}{with}"));
        }
        f.write_str(&parts.join("; "))
    }
}

impl Damaged {
    /// The parts that a reader could not read; `None` if it has read all.
    fn of(counts: &Counts) -> Option<Self> {
        let Counts {
            damage,
            failed,
            gone,
            lost,
            ..
        } = counts;
        let is_whole = damage.is_none() && failed.is_empty() && *gone == 0 && lost.gone.is_empty();
        (!is_whole).then(|| Self {
            blocks: counts.damaged,
            unchecked: counts.unchecked,
            first: damage.clone(),
            failed: failed.clone(),
            gone: *gone,
            missing: lost.gone.clone(),
        })
    }
}

/// Remarks on a record at the end of its stream, for copies.
fn remarks(counts: &Counts) -> Vec<String> {
    let damaged = Damaged::of(counts).map(|damaged| format!("the record was not whole: {damaged}"));
    let killed = &counts.lost.killed;
    let killed: Vec<_> = killed
        .iter()
        .map(|one| Uncounted {
            from_ns: one.from_ns,
            to_ns: Some(one.to_ns),
        })
        .collect();
    damaged
        .into_iter()
        .chain(uncounted_words(&killed))
        .collect()
}

/// Words on times for which a source does not tell what was dropped, a line each.
pub fn uncounted_words(uncounted: &[Uncounted]) -> Vec<String> {
    let stamp = |ns: i64| {
        let mut time = String::new();
        Stamp(ns).write(&mut time, Shape::Rfc3339, Digits::Micro, 0);
        time
    };
    let mut lines = Vec::new();
    let mut broken = uncounted
        .iter()
        .filter_map(|one| Some((one.from_ns, one.to_ns?)));
    if let Some((from_ns, to_ns)) = broken.next() {
        let (from, to) = (stamp(from_ns), stamp(to_ns));
        let more = match broken.count() {
            0 => String::new(),
            1 => "; so it is with 1 more recording".to_owned(),
            n => format!("; so it is with {n} more recordings"),
        };
        lines.push(format!(
            "a recording broke off: its last count of dropped packets is of {from}, and what was dropped from then until the \
             next one began, at {to}, is not told{more}"
        ));
    }
    let last = uncounted
        .iter()
        .filter(|one| one.to_ns.is_none())
        .map(|one| one.from_ns)
        .max();
    let line = |last: i64| {
        format!(
            "its last count of dropped packets is of {}; what was dropped later is not told",
            stamp(last)
        )
    };
    lines.extend(last.map(line));
    lines
}

/// Opens a source of bytes as [`Input::open`] does, or a record directory. `query` chooses packets of record directories; without
/// it, they are read whole.
///
/// **Errors**: errors of the system; `IsADirectory` for a directory that holds no record.
pub fn open(
    name: &Name,
    opening: &Opening<'_>,
    query: Option<&Arc<Query>>,
    stop: &Arc<AtomicBool>,
) -> io::Result<Input> {
    if let Some(text) = generated::wanted(name) {
        if opening.follow.is_some() {
            let why = "is generated, which is not followed: leave --follow out";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return generated::open(name, text, stop);
    }
    let path: &Path = name.as_ref();
    if name.is_dash() || !path.is_dir() {
        return Input::open(name, opening, stop);
    }
    if opening.follow.is_some() {
        let why =
            "is a directory, which is not followed: weir query --follow is for a record directory";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let query = query.cloned().unwrap_or_default();
    let memory = query
        .memory
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let seam = memory.as_ref().and_then(|memory| memory.seam);
    let disk = match Reader::open(path, query.selection.clone(), seam) {
        Ok(mut disk) => {
            disk.stop_on(stop);
            disk.remark(remarks);
            Some(disk)
        }
        Err(disk::Error::NoRecord { .. }) if memory.is_some() => None,
        Err(disk::Error::NoRecord { .. }) => {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Err(disk::Error::File { source, .. }) => return Err(source),
        Err(error) => return Err(io::Error::other(error)),
    };
    let memory = match memory.map(|memory| memory.bytes) {
        Some(bytes) if disk.is_some() => Some(Box::new(Ahead::new(bytes)?) as Box<dyn Read + Send>),
        bytes => bytes,
    };
    let packets = Packets {
        path: path.to_owned(),
        query,
        disk,
        memory,
        damaged: None,
    };
    Ok(Input {
        name: name.as_source(),
        kind: Kind::Stream(Stream::direct(packets, Arc::clone(stop))),
    })
}

/// Bytes that a thread reads ahead, because the ring of a recorder goes on while the disk is read.
struct Ahead {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    /// Bytes of `piece` that were taken.
    taken: usize,
    /// Whether the end was reached.
    ended: bool,
    /// Held as long as the bytes are wanted.
    _wanted: Arc<()>,
}

impl Ahead {
    /// Bytes of a piece, at most.
    const PIECE: usize = 64 << 10;
    /// Pieces that are read ahead, at most: 64 MiB.
    const PIECES: usize = 1024;
    /// Longest wait of a read, after which it is `Interrupted`, so that the caller can look at its stop flag.
    const LOOK: Duration = Duration::from_millis(100);

    fn new(mut bytes: Box<dyn Read + Send>) -> io::Result<Self> {
        let (send, pieces) = sync_channel(Self::PIECES);
        let wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&wanted);
        spawn("memory", 0, move || {
            let mut buffer = vec![0; Self::PIECE];
            while is_wanted.strong_count() > 0 {
                let piece = match bytes.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read.map(|read| buffer[..read].to_vec()),
                };
                let is_last = !matches!(&piece, Ok(piece) if !piece.is_empty());
                if send.send(piece).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Self {
            pieces,
            piece: Vec::new(),
            taken: 0,
            ended: false,
            _wanted: wanted,
        })
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            self.piece = match self.pieces.recv_timeout(Self::LOOK) {
                Ok(piece) => piece?,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(io::Error::from(io::ErrorKind::Interrupted));
                }
                Err(RecvTimeoutError::Disconnected) if self.ended => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other(
                        "the thread that reads ahead ended with a panic: this is a mistake in weir",
                    ));
                }
            };
            self.taken = 0;
            self.ended |= self.piece.is_empty();
        }
        let len = (&self.piece[self.taken..]).read(buffer)?;
        self.taken += len;
        Ok(len)
    }
}

/// Packets of a record directory, as bytes.
struct Packets {
    path: PathBuf,
    query: Arc<Query>,
    disk: Option<Reader>,
    memory: Option<Box<dyn Read + Send>>,
    /// Damage that is reported at the end.
    damaged: Option<Damaged>,
}

impl Packets {
    /// Ends the reading from disk, and notes the counts.
    fn end_disk(&mut self) {
        let Some(disk) = self.disk.take() else { return };
        let counts = disk.counts();
        self.damaged = Damaged::of(counts);
        self.query.seen().push((self.path.clone(), counts.clone()));
    }
}

impl Read for Packets {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(disk) = &mut self.disk {
            match disk.read(buffer)? {
                0 => self.end_disk(),
                read => return Ok(read),
            }
        }
        if let Some(memory) = &mut self.memory {
            match memory.read(buffer)? {
                0 => self.memory = None,
                read => return Ok(read),
            }
        }
        self.damaged
            .take()
            .map_or(Ok(0), |damaged| Err(io::Error::other(damaged)))
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.end_disk();
    }
}
