//! Writing of capture files: buffered, rotated, and well-formed even when the disk is full.

mod slices;

use crate::reserve::Reserve;
use crate::sys::standard;
use crate::sys::writer::{Writer, is_taken};
use slices::Slices;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weir_packet::Frame;
use weir_packet::savefile::carried::{CarriedBlock, LeftOut};
use weir_packet::savefile::options::PacketOptions;
use weir_packet::savefile::write::{Encoder, WriteError};
use weir_packet::savefile::{Format, Interface, Record, Statistics};

/// Bytes gathered before a write, few enough to stay in the second-level cache.
const BUFFER: usize = 256 << 10;

/// Upper limit of the bytes that a record has in addition to its packet.
const AROUND: usize = 256;

/// Largest number of earlier files in a row whose names are passed over.
const MOST_TAKEN: u32 = 100_000;

/// Conditions for the start of a new file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    /// Size in bytes; if the current file is larger, a new file begins (`-C`).
    pub size: Option<u64>,
    /// Length of a slice of time in seconds; each slice has a file of its own (`-G`). Slices of a capture are counted from
    /// [`Output::begin_slices`] on. Slices of other sources begin at multiples of packet time.
    pub seconds: Option<u64>,
    /// Number of files (`-W`). With `size`: number of names, of which the oldest is reused. With `seconds`: writing ends after
    /// this many files. With both: no limit, as in tcpdump.
    pub count: Option<u32>,
    /// Whether a file may be emptied that has a name of this output already. Otherwise its name is passed over, or refused
    /// if the names are limited by `count`. A single file, without `size` and `seconds`, is always emptied.
    pub overwrite: bool,
    /// Whether a single file that has the name already is kept, and the output refused.
    pub keep: bool,
}

impl Rotation {
    /// Returns the number of names that are used again and again.
    fn ring(&self) -> Option<u32> {
        self.count
            .filter(|_| self.size.is_some() && self.seconds.is_none())
            .map(|count| count.max(1))
    }

    /// Whether earlier files of the same names are kept.
    fn keeps_files(&self) -> bool {
        self.keep || !self.overwrite && self.is_series()
    }

    /// Whether there are several names.
    fn is_series(&self) -> bool {
        self.size.is_some() || self.seconds.is_some()
    }
}

/// Function that names the next file or refuses. The arguments are the file's number from 0 on and, with `-G`, the time that its
/// name tells, in ns: the start of the slice of a capture, or the time of the slice's first packet. If another file has the
/// name, the function is called again: with the next number, or with the same time.
pub type Naming = Box<dyn FnMut(u32, i64) -> Result<PathBuf, OutputError> + Send>;

/// Function that is called with each file that is complete.
pub type Finished = Box<dyn FnMut(&Path) + Send>;

/// Target of the bytes.
enum Target {
    /// Standard output, without the library's buffer, so that counted bytes have really been written.
    Stdout(Writer<File>),
    /// Files with names from `naming`.
    Files {
        naming: Naming,
        current: Option<Writer<File>>,
    },
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
    /// Disk space that stays free.
    reserve: Reserve,
    /// Number of buffered bytes from which on they are written.
    full: usize,
    buffer: Vec<u8>,
    /// Ends of the records in `buffer`, so that the file can be cut at a record if a write stops midway.
    ends: Vec<u32>,
    /// End of the file header in `buffer`; 0 if it was written before.
    header_end: u32,
    /// Bytes written to the current file.
    written: u64,
    packets: u64,
    files: u32,
    /// Number of the next file in its name.
    number: u32,
    /// Number of earlier files whose names were passed over, and the first of them.
    taken: Option<(u64, PathBuf)>,
    finished: Option<Finished>,
    /// `-C` with `-W`: numbers of packets in the complete files, by file number.
    in_files: Vec<u64>,
    /// Packets of files that were truncated for reuse.
    overwritten: u64,
    /// Packets of this output in the current file, until its first write replaces them.
    to_replace: u64,
    /// Packets of the files before the current file.
    before: u64,
    /// Slices of time (`-G`).
    slices: Option<Slices>,
}

impl core::fmt::Debug for Output {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Output")
            .field("packets", &self.packets)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Output {
    /// Creates an output to standard output.
    pub fn stdout(format: Format, snaplen: u32, flush_each: bool) -> Result<Self, OutputError> {
        let open =
            standard::check_output().and_then(|()| io::stdout().as_fd().try_clone_to_owned());
        let out = open.map_err(|error| OutputError::Io {
            error,
            packets: 0,
            path: None,
        })?;
        Self::new(
            Target::Stdout(Writer::new(out.into())),
            format,
            snaplen,
            flush_each,
            Rotation::default(),
        )
    }

    /// Creates an output to the files that `naming` names, which leave the disk space of `reserve` free. The first file is created
    /// at once, unless its name needs a packet's time (`-G`). A file that is there keeps its contents until
    /// the first write, and if there is no room for that.
    pub fn files(
        naming: Naming,
        format: Format,
        snaplen: u32,
        flush_each: bool,
        rotation: Rotation,
        reserve: Reserve,
    ) -> Result<Self, OutputError> {
        let target = Target::Files {
            naming,
            current: None,
        };
        let mut output = Self::new(target, format, snaplen, flush_each, rotation)?;
        output.reserve = reserve;
        output.check_ring()?;
        if rotation.seconds.is_none() {
            output.open_next(0)?;
        }
        Ok(output)
    }

    /// Has `finished` called with each file that is complete from now on, after its last byte was written.
    pub fn on_finished(&mut self, finished: Finished) {
        self.finished = Some(finished);
    }

    /// Counts the slices of `-G` from `now_ns` on (ns since 1970), the start of a capture, and makes the file of the first
    /// slice. Does nothing without `-G`, or if there is a file already.
    pub fn begin_slices(&mut self, now_ns: i64) -> Result<(), OutputError> {
        match self
            .slices
            .as_mut()
            .and_then(|slices| slices.begin(now_ns, Instant::now()))
        {
            Some(name_ns) => self.next_file(Some(name_ns)),
            None => Ok(()),
        }
    }

    /// Ends the current slice of a capture if its time is over, although no later packet has
    /// arrived. **Cost**: one comparison.
    pub fn pass_time(&mut self, now: Instant) -> Result<(), OutputError> {
        match self
            .slices
            .as_mut()
            .and_then(|slices| slices.pass_time(now))
        {
            Some(name_ns) => self.next_file(Some(name_ns)),
            None => Ok(()),
        }
    }

    /// Completes the current file, and begins the next at once: its name has the next number. Without a current file, nothing happens.
    /// Standard output has no next file.
    pub fn begin_next(&mut self) -> Result<(), OutputError> {
        if matches!(
            &self.target,
            Target::Files {
                current: Some(_),
                ..
            }
        ) {
            self.next_file(None)?;
            self.start()?;
        }
        Ok(())
    }

    /// Refuses names of a limited number if an earlier file has one of them.
    fn check_ring(&mut self) -> Result<(), OutputError> {
        let Some(count) = self.rotation.ring().filter(|_| self.rotation.keeps_files()) else {
            return Ok(());
        };
        let Target::Files { naming, .. } = &mut self.target else {
            return Ok(());
        };
        for number in 0..count.min(MOST_TAKEN) {
            let path = naming(number, 0)?;
            if is_taken(&path) {
                return Err(earlier(
                    path,
                    "an earlier file has this name, and is kept: give another name, or --overwrite",
                ));
            }
        }
        Ok(())
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
        let had = buffer
            .try_reserve_exact(BUFFER + (64 << 10))
            .and_then(|()| ends.try_reserve_exact(BUFFER / 16));
        had.map_err(|error| OutputError::Io {
            error: error.into(),
            packets: 0,
            path: None,
        })?;
        Ok(Self {
            encoder,
            target,
            path: None,
            rotation,
            reserve: Reserve::default(),
            full: if flush_each { 0 } else { BUFFER },
            buffer,
            ends,
            header_end: 0,
            written: 0,
            packets: 0,
            files: 0,
            number: 0,
            taken: None,
            finished: None,
            in_files: Vec::new(),
            overwritten: 0,
            to_replace: 0,
            before: 0,
            slices: rotation.seconds.map(Slices::new),
        })
    }

    /// Sets the disk space that stays free.
    #[must_use]
    pub fn keeping(mut self, reserve: Reserve) -> Self {
        self.reserve = reserve;
        self.target = match self.target {
            Target::Stdout(out) => Target::Stdout(out.keeping(reserve)),
            Target::Files { naming, current } => Target::Files {
                naming,
                current: current.map(|file| file.keeping(reserve)),
            },
        };
        self
    }

    /// Announces an interface and returns its id for [`Self::packet`].
    pub fn interface(&mut self, interface: &Interface) -> Result<u32, OutputError> {
        Ok(self.encoder.interface(interface)?)
    }

    /// Adds a comment to the section headers of the files that begin from now on. Returns whether the current file has it.
    pub fn comment(&mut self, text: &str) -> bool {
        self.encoder.comment(text.to_owned());
        self.header_end == 0 && self.written == 0 && self.buffer.is_empty()
    }

    /// Has the section headers of the files that begin from now on tell an option of the source's section; see
    /// [`Encoder::section_option`]. Returns whether the current file has it.
    pub fn section_option(&mut self, name: &str, text: &str) -> bool {
        let is_in_time = self.header_end == 0 && self.written == 0 && self.buffer.is_empty();
        self.encoder.section_option(name, text) && is_in_time
    }

    /// Counts parts that have no place in the files.
    pub fn leave_out(&mut self, more: &LeftOut) {
        self.encoder.leave_out(more);
    }

    /// Has each file from now on hold a block about packets, the current one before its next packet.
    pub fn carry(&mut self, block: &Arc<CarriedBlock>) {
        self.encoder.carry(block);
    }

    /// Whether a block was carried already.
    pub fn has_carried(&self, block: &Arc<CarriedBlock>) -> bool {
        self.encoder.has_carried(block)
    }

    /// Returns the numbers of blocks and of parts of packets that the format has no place for.
    pub fn left_out(&self) -> LeftOut {
        self.encoder.left_out()
    }

    /// Appends a packet of interface `id`. **Cost**: one copy; a system call per 256 KiB.
    #[inline]
    pub fn packet(
        &mut self,
        id: u32,
        time_ns: Option<i64>,
        frame: &Frame<'_>,
    ) -> Result<(), OutputError> {
        self.record(
            id,
            &Record {
                time_ns,
                frame: *frame,
                options: PacketOptions::default(),
            },
        )
    }

    /// Appends a packet of interface `id` with its options. **Cost**: as of [`Self::packet`].
    #[inline]
    pub fn record(&mut self, id: u32, record: &Record<'_>) -> Result<(), OutputError> {
        let Record {
            time_ns,
            frame,
            options,
        } = record;
        let time_ns = *time_ns;
        if self.rotation.size.is_some() || self.rotation.seconds.is_some() {
            self.rotate(time_ns)?;
        }
        self.begin();
        if let Err(error) = self
            .buffer
            .try_reserve(frame.data.len() + options.bytes.len() + AROUND)
        {
            return Err(self.failed(error.into()));
        }
        self.encoder.record(&mut self.buffer, id, record);
        self.ends.push(self.buffer.len() as u32);
        if self.buffer.len() >= self.full {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends the statistics of interface `id`, with comments; a pcap file has no place for them.
    pub fn statistics(&mut self, id: u32, counts: &Statistics, comments: &[String]) {
        if !matches!(&self.target, Target::Files { current: None, .. }) {
            self.begin();
            self.encoder
                .statistics(&mut self.buffer, id, counts, comments);
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

    /// Writes the file header, with the interfaces announced so far, if the current file has none yet. If an earlier file is replaced
    /// and there may be no room for its first packets, the header waits for them.
    pub fn start(&mut self) -> Result<(), OutputError> {
        let has_room = match &self.target {
            Target::Files { current: None, .. } => return Ok(()),
            Target::Files {
                current: Some(file),
                ..
            } => file.has_room(BUFFER),
            Target::Stdout(_) => true,
        };
        self.begin();
        if has_room { self.flush() } else { Ok(()) }
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

    /// Returns the number of earlier files that were kept, and whose names were passed over, with the first of them.
    pub fn taken(&self) -> Option<(u64, &Path)> {
        self.taken
            .as_ref()
            .map(|(files, first)| (*files, first.as_path()))
    }

    /// Writes the buffered bytes.
    pub fn flush(&mut self) -> Result<(), OutputError> {
        let mut done = 0;
        while done < self.buffer.len() {
            let result = match &mut self.target {
                Target::Stdout(out) => out.write(&self.buffer[done..]),
                Target::Files {
                    current: Some(file),
                    ..
                } => file.write(&self.buffer[done..]),
                Target::Files { current: None, .. } => {
                    Err(io::Error::from(io::ErrorKind::NotFound))
                }
            };
            match result {
                Ok(0) => return Err(self.cut(done, io::Error::from(io::ErrorKind::WriteZero))),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut(done, error)),
            }
        }
        if done > 0 {
            self.overwritten += std::mem::take(&mut self.to_replace);
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
        if !self.has_file() && self.packets == 0 && self.files == 0 {
            let name_ns = self
                .slices
                .as_mut()
                .map_or(0, |slices| slices.take(None).unwrap_or_default());
            self.open_next(name_ns)?;
        }
        self.begin();
        // Blocks that came after the last packet.
        self.encoder.write_carried(&mut self.buffer);
        self.flush()?;
        self.complete();
        Ok(self.packets)
    }

    /// Whether there is a current file, or standard output.
    fn has_file(&self) -> bool {
        !matches!(&self.target, Target::Files { current: None, .. })
    }

    /// Closes the current file, all of which is written.
    fn complete(&mut self) {
        if let Target::Files { current, .. } = &mut self.target
            && current.take().is_some()
            && let (Some(finished), Some(path)) = (&mut self.finished, &self.path)
        {
            finished(path);
        }
    }

    /// Cuts the file after its last whole record, or after its header, when a write stopped at `done`.
    fn cut(&mut self, done: usize, error: io::Error) -> OutputError {
        let whole = self.ends.partition_point(|&end| end as usize <= done);
        let header = if self.header_end as usize <= done {
            self.header_end
        } else {
            0
        };
        let end = if whole == 0 {
            header
        } else {
            self.ends[whole - 1]
        };
        // Best effort: a device or a full disk may refuse even this.
        let _ = match &self.target {
            Target::Files {
                current: Some(file),
                ..
            } => file.cut(self.written + u64::from(end)),
            Target::Files { current: None, .. } => Ok(()),
            Target::Stdout(out) => out.take_back(done as u64 - u64::from(end)),
        };
        if !matches!(&self.target, Target::Files { current: Some(file), .. } if file.has_earlier())
        {
            self.overwritten += std::mem::take(&mut self.to_replace);
        }
        self.packets += whole as u64;
        self.buffer.clear();
        self.ends.clear();
        self.header_end = 0;
        self.failed(error)
    }

    fn failed(&self, error: io::Error) -> OutputError {
        OutputError::Io {
            error,
            packets: self.packets,
            path: self.path.clone(),
        }
    }

    /// Begins a new file before a packet of this time, if the current file or slice is over.
    #[inline]
    fn rotate(&mut self, time_ns: Option<i64>) -> Result<(), OutputError> {
        // Blocks about packets are in every file: with them, a file of large ones would end before its first packet.
        let held =
            (self.written + self.buffer.len() as u64).saturating_sub(self.encoder.carried_bytes());
        let too_large = self.rotation.size.is_some_and(|size| held > size);
        let slice = self.slices.as_mut().and_then(|slices| slices.take(time_ns));
        // A new slice has a new file, however small the last one is.
        if slice.is_some() || too_large && self.has_file() {
            self.next_file(slice)
        } else {
            Ok(())
        }
    }

    /// Completes the current file, and begins the next. `slice` is the time in the names of the
    /// files of a new slice.
    #[cold]
    fn next_file(&mut self, slice: Option<i64>) -> Result<(), OutputError> {
        let has_file = self.has_file();
        if has_file {
            self.begin();
            self.flush()?;
        }
        let limit = self.rotation.count.filter(|_| self.rotation.size.is_none());
        if slice.is_some() && limit.is_some_and(|count| self.files >= count) {
            return Err(OutputError::LastFile);
        }
        if has_file {
            self.note_ring();
            self.complete();
        }
        let name_ns = slice
            .or_else(|| self.slices.as_ref().map(Slices::name_ns))
            .unwrap_or(0);
        self.open_next(name_ns)
    }

    /// `-C` with `-W`: notes the number of packets in the current file.
    fn note_ring(&mut self) {
        if let Some(count) = self.rotation.ring() {
            let last = ((self.files - 1) % count) as usize;
            self.in_files.resize(self.in_files.len().max(last + 1), 0);
            self.in_files[last] = self.packets - self.before;
        }
    }

    /// Makes the next file.
    fn open_next(&mut self, name_ns: i64) -> Result<(), OutputError> {
        let (path, file) = match self.rotation.ring() {
            Some(count) => {
                let number = self.files % count;
                // From the second turn on, the file is one of this output.
                let made = self.make(number, name_ns, self.files < count)?;
                // If its number has a count, the name was used before.
                self.to_replace = self
                    .in_files
                    .get_mut(number as usize)
                    .map_or(0, std::mem::take);
                made.map_err(|path| {
                    earlier(
                        path,
                        "a file that was made meanwhile has this name, and is kept",
                    )
                })?
            }
            None => self.make_next(name_ns)?,
        };
        self.before = self.packets;
        if let Target::Files { current, .. } = &mut self.target {
            *current = Some(file);
        }
        self.path = Some(path);
        self.files += 1;
        self.written = 0;
        self.encoder.restart();
        Ok(())
    }

    /// Makes the next file whose name no earlier file has.
    fn make_next(&mut self, name_ns: i64) -> Result<(PathBuf, Writer<File>), OutputError> {
        let mut last = PathBuf::new();
        for _ in 0..MOST_TAKEN {
            let number = self.number;
            self.number = self.number.saturating_add(1);
            match self.make(number, name_ns, true)? {
                Ok(made) => return Ok(made),
                Err(path) if !self.rotation.is_series() && self.files == 0 => {
                    return Err(earlier(path, "another file has this name, and is kept"));
                }
                Err(path) => {
                    self.taken.get_or_insert_with(|| (0, path.clone())).0 += 1;
                    last = path;
                }
            }
        }
        Err(earlier(
            last,
            "the names of too many earlier files were passed over",
        ))
    }

    /// Makes the file with this number, or returns its path if an earlier file has it; `is_new` says that this output has no
    /// file of this number.
    fn make(
        &mut self,
        number: u32,
        name_ns: i64,
        is_new: bool,
    ) -> Result<Result<(PathBuf, Writer<File>), PathBuf>, OutputError> {
        // A single file has further ones on request only, and they empty none.
        let is_further = self.files > 0 && !self.rotation.overwrite;
        let keeps = is_new && (self.rotation.keeps_files() || is_further);
        let Target::Files { naming, .. } = &mut self.target else {
            return Err(OutputError::Io {
                error: io::ErrorKind::Unsupported.into(),
                packets: self.packets,
                path: None,
            });
        };
        let path = naming(number, name_ns)?;
        let made = if keeps {
            Writer::create_new(&path)
        } else {
            Writer::create(&path, self.reserve)
        };
        match made {
            Ok(file) => Ok(Ok((path, file.keeping(self.reserve)))),
            Err(error) if keeps && error.kind() == io::ErrorKind::AlreadyExists => Ok(Err(path)),
            Err(error) => Err(OutputError::Create { path, error }),
        }
    }
}

/// Error for an earlier file that is kept.
fn earlier(path: PathBuf, why: &'static str) -> OutputError {
    OutputError::Create {
        path,
        error: io::Error::new(io::ErrorKind::AlreadyExists, why),
    }
}
