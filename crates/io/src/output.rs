//! Capture files we write: buffered, rotated, well-formed even when the disk is full.

use crate::sys::standard;
use crate::sys::writer::Writer;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use weir_packet::Frame;
use weir_packet::savefile::write::{Encoder, WriteError};
use weir_packet::savefile::{Format, Interface, Statistics};

/// Bytes gathered before they are written: few enough to stay in the second-level cache.
const BUFFER: usize = 256 << 10;

/// More bytes than a record has beside its packet.
const AROUND: usize = 256;

/// When a new file begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    /// Begin a new file once the current one is larger than this, bytes (`-C`).
    pub size: Option<u64>,
    /// Begin a new file when packet time passes a multiple of this, s (`-G`).
    pub seconds: Option<u64>,
    /// With `size`: reuse the oldest of this many names. With `seconds`: end after this many files (`-W`). With both: no limit, as
    /// in tcpdump.
    pub count: Option<u32>,
}

/// Names the next file, or refuses: gets its number from 0 on and, with `-G`, the time of the window's first packet, ns.
pub type Naming = Box<dyn FnMut(u32, i64) -> Result<PathBuf, OutputError> + Send>;

/// Where the bytes go.
enum Target {
    /// Standard output, without the library's buffer: what is written is counted, and is out.
    Stdout(Writer<File>),
    /// Files named one after another.
    Files { naming: Naming, current: Option<Writer<File>> },
}

/// Why writing ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The system refused. Whole records before that are in the file, and nothing after them.
    #[error("{error} after {packets} packets")]
    Io {
        /// What the system said.
        error: io::Error,
        /// Packets that are whole in the output.
        packets: u64,
        /// The file that was being written; `None` for standard output.
        path: Option<PathBuf>,
    },
    /// A file cannot be made.
    #[error("{}: {error}", path.display())]
    Create {
        /// Its name.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The packet does not fit the format.
    #[error(transparent)]
    Format(#[from] WriteError),
    /// `-G` with `-W`: the last file is full.
    #[error("the last of the files to be written is complete")]
    LastFile,
}

/// A capture file being written.
pub struct Output {
    encoder: Encoder,
    target: Target,
    /// The current file's name.
    path: Option<PathBuf>,
    rotation: Rotation,
    flush_each: bool,
    buffer: Vec<u8>,
    /// Ends of the records in `buffer`, so that a write that stops midway can be cut at a record.
    ends: Vec<u32>,
    /// End of the file header in `buffer`; 0 if it was written before.
    header_end: u32,
    /// Bytes of the current file that were written.
    written: u64,
    packets: u64,
    files: u32,
    /// `-C` with `-W`: packets of the files that are complete, by their numbers.
    in_files: Vec<u64>,
    /// Packets of files that were emptied to be written again.
    overwritten: u64,
    /// Packets of the files before the current one.
    before: u64,
    window: Option<i64>,
    /// Time of the window's first packet, ns: its files are named by it.
    window_ns: i64,
}

impl core::fmt::Debug for Output {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Output").field("packets", &self.packets).field("files", &self.files).finish_non_exhaustive()
    }
}

impl Output {
    /// Writes to standard output.
    pub fn stdout(format: Format, snaplen: u32, flush_each: bool) -> Result<Self, OutputError> {
        let open = standard::check_output().and_then(|()| io::stdout().as_fd().try_clone_to_owned());
        let out = open.map_err(|error| OutputError::Io { error, packets: 0, path: None })?;
        Self::new(Target::Stdout(Writer::new(out.into())), format, snaplen, flush_each, Rotation::default())
    }

    /// Writes to the files that `naming` names; the first is created at once unless its name needs a packet's time
    /// (`-G`).
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

    /// Appends what was counted at interface `id`; a pcap file has no place for it.
    pub fn statistics(&mut self, id: u32, counts: &Statistics) {
        if !matches!(&self.target, Target::Files { current: None, .. }) {
            self.begin();
            self.encoder.statistics(&mut self.buffer, id, counts);
        }
    }

    /// Packets whose times the output could not hold; see [`Encoder::clamped`].
    pub fn clamped(&self) -> u64 {
        self.encoder.clamped()
    }

    /// Packets without a time; see [`Encoder::unstamped`].
    pub fn unstamped(&self) -> u64 {
        self.encoder.unstamped()
    }

    /// Writes the file header, with the interfaces announced so far, if there is a file that lacks it.
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

    /// Packets that are whole in the output; those that wait in the buffer are not.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets of [`Self::packets`] in files that were emptied later, because their names came round again.
    pub fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// Writes out what is buffered.
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

    /// Writes what is left; an output without packets gets its file header. Returns the packets written.
    pub fn finish(mut self) -> Result<u64, OutputError> {
        if matches!(&self.target, Target::Files { current: None, .. }) && self.packets == 0 && self.files == 0 {
            self.open_next(0)?;
        }
        self.begin();
        self.flush()?;
        Ok(self.packets)
    }

    /// After a write that stopped at `done`: cuts the file behind its last whole record, or behind its header.
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
                // A name came round again where there is a count for its number.
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
