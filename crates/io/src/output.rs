//! Writing of capture files: buffered, rotated, and well-formed even when the disk is full.

use crate::sys::standard;
use crate::sys::writer::Writer;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use weir_packet::Frame;
use weir_packet::savefile::write::{Encoder, WriteError};
use weir_packet::savefile::{Format, Interface, Statistics};

/// Bytes gathered before a write, few enough to stay in the second-level cache.
const BUFFER: usize = 256 << 10;

/// Upper limit of the bytes that a record has beside its packet.
const AROUND: usize = 256;

/// Conditions for the start of a new file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    /// Size in bytes; if the current file is larger, a new file begins (`-C`).
    pub size: Option<u64>,
    /// Interval in seconds; when packet time passes a multiple, a new file begins (`-G`).
    pub seconds: Option<u64>,
    /// Number of files (`-W`). With `size`: number of names, of which the oldest is reused. With `seconds`: writing ends after
    /// this many files. With both: no limit, as in tcpdump.
    pub count: Option<u32>,
}

/// Function that names the next file or refuses. The arguments are the file's number from 0 on and, with `-G`, the time of the
/// window's first packet in ns.
pub type Naming = Box<dyn FnMut(u32, i64) -> Result<PathBuf, OutputError> + Send>;

/// Target of the bytes.
enum Target {
    /// Standard output, without the library's buffer, so that counted bytes have really been written.
    Stdout(Writer<File>),
    /// Files with names from `naming`.
    Files { naming: Naming, current: Option<Writer<File>> },
}

/// Reason why writing ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// Error of the system. The file holds the whole records before the error, and nothing after them.
    #[error("{error} after {packets} packets")]
    Io {
        /// Error of the system.
        error: io::Error,
        /// Number of packets that are complete in the output.
        packets: u64,
        /// File that was being written; `None` for standard output.
        path: Option<PathBuf>,
    },
    /// A file cannot be created.
    #[error("{}: {error}", path.display())]
    Create {
        /// Name of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The packet does not fit the format.
    #[error(transparent)]
    Format(#[from] WriteError),
    /// `-G` with `-W`: the last file is full.
    #[error("the last of the files to be written is complete")]
    LastFile,
}

/// Capture file, or series of files, being written.
pub struct Output {
    encoder: Encoder,
    target: Target,
    /// Name of the current file.
    path: Option<PathBuf>,
    rotation: Rotation,
    flush_each: bool,
    buffer: Vec<u8>,
    /// Ends of the records in `buffer`, so that the file can be cut at a record if a write stops midway.
    ends: Vec<u32>,
    /// End of the file header in `buffer`; 0 if it was written before.
    header_end: u32,
    /// Bytes written to the current file.
    written: u64,
    packets: u64,
    files: u32,
    /// `-C` with `-W`: numbers of packets in the complete files, by file number.
    in_files: Vec<u64>,
    /// Packets of files that were truncated for reuse.
    overwritten: u64,
    /// Packets of the files before the current file.
    before: u64,
    window: Option<i64>,
    /// Time of the window's first packet, in ns; the names of the window's files depend on it.
    window_ns: i64,
}

impl core::fmt::Debug for Output {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Output").field("packets", &self.packets).field("files", &self.files).finish_non_exhaustive()
    }
}

impl Output {
    /// Creates an output to standard output.
    pub fn stdout(format: Format, snaplen: u32, flush_each: bool) -> Result<Self, OutputError> {
        let open = standard::check_output().and_then(|()| io::stdout().as_fd().try_clone_to_owned());
        let out = open.map_err(|error| OutputError::Io { error, packets: 0, path: None })?;
        Self::new(Target::Stdout(Writer::new(out.into())), format, snaplen, flush_each, Rotation::default())
    }

    /// Creates an output to the files that `naming` names. The first file is created at once, unless its name needs a packet's
    /// time (`-G`).
    pub fn files(
        naming: Naming,
        format: Format,
        snaplen: u32,
        flush_each: bool,
        rotation: Rotation,
    ) -> Result<Self, OutputError> {
        let target = Target::Files { naming, current: None };
        let mut output = Self::new(target, format, snaplen, flush_each, rotation)?;
        if rotation.seconds.is_none() {
            output.open_next(0)?;
        }
        Ok(output)
    }

    fn new(
        target: Target,
        format: Format,
        snaplen: u32,
        flush_each: bool,
        rotation: Rotation,
    ) -> Result<Self, OutputError> {
        let encoder = Encoder::new(format, snaplen);
        let (mut buffer, mut ends) = (Vec::new(), Vec::new());
        let had = buffer.try_reserve_exact(BUFFER + (64 << 10)).and_then(|()| ends.try_reserve_exact(BUFFER / 16));
        had.map_err(|error| OutputError::Io { error: error.into(), packets: 0, path: None })?;
        Ok(Self {
            encoder,
            target,
            path: None,
            rotation,
            flush_each,
            buffer,
            ends,
            header_end: 0,
            written: 0,
            packets: 0,
            files: 0,
            in_files: Vec::new(),
            overwritten: 0,
            before: 0,
            window: None,
            window_ns: 0,
        })
    }

    /// Announces an interface and returns its id for [`Self::packet`].
    pub fn interface(&mut self, interface: &Interface) -> Result<u32, OutputError> {
        Ok(self.encoder.interface(interface)?)
    }

    /// Appends a packet of interface `id`. **Cost**: one copy; a system call per 256 KiB.
    #[inline]
    pub fn packet(&mut self, id: u32, time_ns: Option<i64>, frame: &Frame<'_>) -> Result<(), OutputError> {
        if self.rotation.size.is_some() || self.rotation.seconds.is_some() {
            self.rotate(time_ns.unwrap_or(0))?;
        }
        self.begin();
        if let Err(error) = self.buffer.try_reserve(frame.data.len() + AROUND) {
            return Err(self.failed(error.into()));
        }
        self.encoder.packet(&mut self.buffer, id, time_ns, frame);
        self.ends.push(self.buffer.len() as u32);
        if self.flush_each || self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends the statistics of interface `id`; a pcap file has no place for them.
    pub fn statistics(&mut self, id: u32, counts: &Statistics) {
        if !matches!(&self.target, Target::Files { current: None, .. }) {
            self.begin();
            self.encoder.statistics(&mut self.buffer, id, counts, &[]);
        }
    }

    /// Returns the number of packets whose times the output could not hold; see [`Encoder::clamped`].
    pub fn clamped(&self) -> u64 {
        self.encoder.clamped()
    }

    /// Returns the number of packets without a time; see [`Encoder::unstamped`].
    pub fn unstamped(&self) -> u64 {
        self.encoder.unstamped()
    }

    /// Returns the number of packets longer than the snap length of their file's header; see [`Encoder::longer`].
    pub fn longer(&self) -> u64 {
        self.encoder.longer()
    }

    /// Writes the file header, with the interfaces announced so far, if the current file has none yet.
    pub fn start(&mut self) -> Result<(), OutputError> {
        if matches!(&self.target, Target::Files { current: None, .. }) {
            return Ok(());
        }
        self.begin();
        self.flush()
    }

    /// Puts the file header into the buffer, unless the current file has it.
    #[inline]
    fn begin(&mut self) {
        let before = self.buffer.len();
        self.encoder.begin(&mut self.buffer);
        if self.buffer.len() > before {
            self.header_end = self.buffer.len() as u32;
        }
    }

    /// Returns the number of packets that are complete in the output, without the packets that wait in the buffer.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns how many of [`Self::packets`] were in files that were truncated later, because their names were reused.
    pub fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// Writes the buffered bytes.
    pub fn flush(&mut self) -> Result<(), OutputError> {
        let mut done = 0;
        while done < self.buffer.len() {
            let result = match &mut self.target {
                Target::Stdout(out) => out.write(&self.buffer[done..]),
                Target::Files { current: Some(file), .. } => file.write(&self.buffer[done..]),
                Target::Files { current: None, .. } => Err(io::Error::from(io::ErrorKind::NotFound)),
            };
            match result {
                Ok(0) => return Err(self.cut(done, io::Error::from(io::ErrorKind::WriteZero))),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut(done, error)),
            }
        }
        self.written += done as u64;
        self.packets += self.ends.len() as u64;
        self.buffer.clear();
        self.ends.clear();
        self.header_end = 0;
        Ok(())
    }

    /// Writes the rest; an output without packets gets its file header. Returns the number of packets written.
    pub fn finish(mut self) -> Result<u64, OutputError> {
        if matches!(&self.target, Target::Files { current: None, .. }) && self.packets == 0 && self.files == 0 {
            self.open_next(0)?;
        }
        self.begin();
        self.flush()?;
        Ok(self.packets)
    }

    /// Cuts the file after its last whole record, or after its header, when a write stopped at `done`.
    fn cut(&mut self, done: usize, error: io::Error) -> OutputError {
        let whole = self.ends.partition_point(|&end| end as usize <= done);
        let header = if self.header_end as usize <= done { self.header_end } else { 0 };
        let end = if whole == 0 { header } else { self.ends[whole - 1] };
        // Best effort: a device or a full disk may refuse even this.
        let _ = match &self.target {
            Target::Files { current: Some(file), .. } => file.get_ref().set_len(self.written + u64::from(end)),
            Target::Files { current: None, .. } => Ok(()),
            Target::Stdout(out) => out.take_back(done as u64 - u64::from(end)),
        };
        self.packets += whole as u64;
        self.buffer.clear();
        self.ends.clear();
        self.header_end = 0;
        self.failed(error)
    }

    fn failed(&self, error: io::Error) -> OutputError {
        OutputError::Io { error, packets: self.packets, path: self.path.clone() }
    }

    fn rotate(&mut self, time_ns: i64) -> Result<(), OutputError> {
        let too_large = self.rotation.size.is_some_and(|size| self.written + self.buffer.len() as u64 > size);
        let mut next_window = false;
        if let Some(seconds) = self.rotation.seconds {
            let window = time_ns.div_euclid(1_000_000_000).div_euclid(seconds.max(1) as i64);
            next_window = self.window.is_none_or(|current| window > current);
            if next_window {
                self.window = Some(window);
                self.window_ns = time_ns;
            }
        }
        if !(too_large || next_window) {
            return Ok(());
        }
        if matches!(&self.target, Target::Files { current: Some(_), .. }) {
            self.begin();
            self.flush()?;
        }
        let limit = self.rotation.count.filter(|_| self.rotation.size.is_none());
        if next_window && limit.is_some_and(|count| self.files >= count) {
            return Err(OutputError::LastFile);
        }
        self.open_next(self.window_ns)
    }

    fn open_next(&mut self, time_ns: i64) -> Result<(), OutputError> {
        if let Target::Files { naming, current } = &mut self.target {
            let number = match self.rotation {
                Rotation { size: Some(_), seconds: None, count: Some(count) } => self.files % count.max(1),
                _ => self.files,
            };
            let path = naming(number, time_ns)?;
            let file = match Writer::create(&path) {
                Ok(file) => file,
                Err(error) => return Err(OutputError::Create { path, error }),
            };
            if let (true, None, Some(count)) = (current.is_some(), self.rotation.seconds, self.rotation.count) {
                // If its number has a count, the name was used before.
                let last = ((self.files - 1) % count.max(1)) as usize;
                self.in_files.resize(self.in_files.len().max(last + 1), 0);
                self.in_files[last] = self.packets - self.before;
                self.overwritten += self.in_files.get_mut(number as usize).map_or(0, std::mem::take);
            }
            self.before = self.packets;
            *current = Some(file);
            self.path = Some(path);
            self.files += 1;
            self.written = 0;
            self.encoder.restart();
        }
        Ok(())
    }
}
