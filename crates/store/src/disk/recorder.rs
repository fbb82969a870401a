//! The recorder: the one writer of a record directory.

mod closing;
mod compression;
mod counts;

use super::background::{self, Background, Buffer, Job, SharedFile, WRITES, Written};
use super::file::{Disk, open_regular};
use super::index::{Builder, Entry, orphan};
use super::mark::{self, Block, Mark};
use super::name::{self, Segment};
use super::recover::{self, How, Recovered};
use super::retention::{Keeper, Removed, Retention};
use super::scan;
use super::{Error, FreeBytes, PAGE};
use closing::Closing;
pub use compression::Compression;
use compression::Compressor;
use counts::{Counts, Progress};
use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_memory::prefetch;
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, MAX_INTERFACES, Record};
use weir_packet::time::{Digits, Shape, Stamp};

/// Largest number of bytes of an Interface Description Block: longer texts are cut.
const MAX_DESCRIPTION: usize = 32 << 10;

/// Bytes between a fetch of packets into the cache and their copy: where packets lie one after the
/// other, those after this one are there when they are taken.
const AHEAD: usize = 2 << 10;

/// How a recorder writes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of packets in a block. A query reads whole blocks.
    pub block_bytes: usize,
    /// Bytes of a write, a multiple of [`PAGE`] and at least 128 KiB. A longer frame is cut to what fits.
    pub buffer_bytes: usize,
    /// Longest time that a packet stays in the buffer, ns.
    pub flush_ns: u64,
    /// Bytes of a segment, at most 4 GiB.
    pub segment_bytes: u64,
    /// A segment ends where packet time passes a multiple of this, ns since 1970, or when it is this old.
    pub segment_ns: Option<u64>,
    /// Largest number of pairs of a key and a block in the index of a segment, 4 bytes of memory each.
    pub index_pairs: usize,
    /// Level of zstd, 1 to 19, with which closed segments are compressed; `None`: they stay as they are.
    pub compress: Option<i32>,
    /// Limits of the kept segments.
    pub retention: Retention,
    /// Free bytes of the file system; `None`: the reserve is not kept.
    pub free_bytes: Option<FreeBytes>,
    /// Mode of a directory that is made.
    pub dir_mode: u32,
    /// Mode of the files.
    pub file_mode: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            block_bytes: 64 << 10,
            buffer_bytes: 1 << 20,
            flush_ns: 500_000_000,
            segment_bytes: 256 << 20,
            segment_ns: None,
            index_pairs: 8 << 20,
            compress: None,
            retention: Retention::default(),
            free_bytes: None,
            dir_mode: 0o700,
            file_mode: 0o600,
        }
    }
}

/// The present, from the caller's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Steady time, ns.
    pub steady_ns: u64,
    /// Time of day, ns since 1970.
    pub wall_ns: i64,
}

/// State of a directory when a recorder began.
#[derive(Debug)]
pub struct Opened {
    /// Segments that were not closed, or whose index was missing or damaged.
    pub recovered: Vec<Recovered>,
    /// Segments that somebody removed: their indexes tell readers, and stay until retention removes them.
    pub orphans: Vec<Segment>,
    /// Links, pipes and the like with names of segments, which are left alone, and the reasons.
    pub strange: Vec<(PathBuf, String)>,
    /// Number of segments.
    pub segments: usize,
    /// Bytes of segments and indexes.
    pub bytes: u64,
    /// Generation of the session: the generation of its first segment.
    pub generation: u64,
    /// Time of the last count of dropped packets, ns since 1970, of the latest recorder of the segments that was killed.
    pub unended_ns: Option<i64>,
}

/// Packets that survive a loss of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// All packets of the session below this number, except packets that were left out.
    pub next: u64,
    /// Number of these packets, without packets that were left out.
    pub packets: u64,
    /// Greatest time of them, ns since 1970; `None` without packets.
    pub time_ns: Option<i64>,
}

/// End of a session.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Packets that survive a loss of power: all of the session.
    pub durable: Durable,
    /// Counts of the session.
    pub stats: Stats,
    /// Number and bytes of the segments in the directory.
    pub kept: (usize, u64),
}

impl Durable {
    fn take(&mut self, other: Self) {
        self.next = other.next;
        self.packets = other.packets;
        self.time_ns = self.time_ns.max(other.time_ns);
    }
}

/// Counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets put into blocks.
    pub packets: u64,
    /// Packets whose numbers were left out by the caller.
    pub missed: u64,
    /// Frames that were cut because they are longer than the buffer.
    pub cut: u64,
    /// Segments made.
    pub segments: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Bytes written to indexes.
    pub index_bytes: u64,
    /// Segments compressed.
    pub compression: Compression,
    /// Files that retention removed.
    pub removed: Removed,
}

/// The segment that is being written.
#[derive(Debug)]
struct Open {
    segment: Segment,
    file: SharedFile,
    /// Offset of the buffer: bytes in the file, including the writes in progress.
    offset: u64,
    /// Bytes in the file.
    written: u64,
    /// Bytes of the file that are durable.
    durable: u64,
    /// Whether the entry of the directory is durable.
    named: bool,
    /// Number of the current block.
    number: u32,
    /// Interfaces described in the segment.
    described: u32,
    /// Time of a packet that begins another segment, ns since 1970.
    until_ns: i64,
    /// Steady time at which the segment was made, ns.
    made_ns: u64,
    /// Time of day of the last write of packets, ns since 1970.
    changed_ns: i64,
    /// Whether statistics are in the buffer or in the file.
    has_told: bool,
    /// The same of those at the end.
    is_told: bool,
}

/// Writes packets into the segments of a directory.
///
/// After an error of [`Self::packet`], [`Self::flush`], [`Self::sync`] or [`Self::tick`] the segment is given up; the next packet
/// begins another one. The caller passes again what was not written: packets from [`Self::resume_from`] on.
///
/// **Cost** of a packet: its encoding, a checksum and the index; a write for each buffer. No allocation, but for each interface
/// and each segment.
#[derive(Debug)]
pub struct Recorder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    settings: Settings,
    writes: Background<Job, Written>,
    closing: Closing,
    compressor: Option<Compressor>,
    /// Holds the lock. Dropped after the threads, which have ended then.
    _lock: Lock,
    encoder: Encoder,
    /// Interfaces announced.
    interfaces: u32,
    buffer: Buffer,
    /// Buffers for the next writes.
    spare: Vec<Buffer>,
    /// Bytes of each write in progress, the oldest first, and the packets that are on disk when it is done.
    in_progress: VecDeque<(u64, Durable, Progress)>,
    /// Start of the current block in the buffer.
    block_start: usize,
    block: Block,
    /// Number of the next packet.
    next: u64,
    /// Greatest time put into blocks, ns since 1970.
    time_ns: Option<i64>,
    /// Steady time of the first packet in the buffer, ns.
    waiting_ns: Option<u64>,
    open: Option<Open>,
    index: Builder,
    keeper: Keeper,
    /// Bytes written since free space was requested.
    unasked: u64,
    generation: u64,
    now: Now,
    written: Durable,
    durable: Durable,
    /// Progress of the statistics in what is written, and in what is durable.
    told_in: (Progress, Progress),
    /// Packets put into blocks that were not given up.
    taken: u64,
    counts: Counts,
    stats: Stats,
}

impl Recorder {
    /// Opens `dir` for writing, makes it if it is missing, and recovers what an earlier recorder left.
    ///
    /// **Errors**: [`Error::Locked`] if another recorder has the directory.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        settings: Settings,
        now: Now,
    ) -> Result<(Self, Opened), Error> {
        Self::open_as(disk, dir, settings, now, How::Start)
    }

    /// The same with another way to recover.
    pub(super) fn open_as(
        disk: Arc<dyn Disk>,
        dir: &Path,
        settings: Settings,
        now: Now,
        how: How,
    ) -> Result<(Self, Opened), Error> {
        let failed = |action| move |error| Error::file(action, dir, error);
        if disk
            .create_dir(dir, settings.dir_mode)
            .map_err(failed("making"))?
        {
            let parent = dir
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            disk.sync_dir(parent)
                .map_err(|error| Error::file("syncing", parent, error))?;
        }
        let lock = lock(dir, settings.file_mode, now.wall_ns)?;
        let listing = name::list(dir)?;
        for leftover in &listing.leftover {
            disk.remove(leftover)
                .map_err(|error| Error::file("removing", leftover, error))?;
        }
        let mut index = Builder::new(settings.index_pairs);
        let mut keeper = Keeper::default();
        let (mut recovered, mut removed) = (Vec::new(), Vec::new());
        let mut unended_ns = None;
        let (kept, empty): (Vec<_>, Vec<_>) = listing
            .orphans
            .into_iter()
            .partition(|one| orphan(&one.index(), one.generation, one.start_ns).is_some());
        for segment in empty {
            disk.remove(&segment.index())
                .map_err(|error| Error::file("removing", &segment.index(), error))?;
        }
        let mut orphans = kept.clone().into_iter().peekable();
        for segment in scan::by_marks(listing.segments) {
            while let Some(orphan) =
                orphans.next_if(|orphan| orphan.generation < segment.generation)
            {
                keeper.add(orphan, None);
            }
            let found =
                recover::recover(disk.as_ref(), &segment, &mut index, settings.file_mode, how)?;
            unended_ns = unended_ns.max(found.unended_ns);
            let recovery = found.recovered;
            if recovery.as_ref().is_none_or(|found| found.kept_bytes > 0) {
                keeper.add(segment, None);
            } else {
                removed.push(segment.generation);
            }
            recovered.extend(recovery);
        }
        orphans.for_each(|orphan| keeper.add(orphan, None));
        // A generation that is missing tells readers that somebody removed a segment: those without a packet leave no gap.
        let mut last = listing.generation;
        while last > 0 && removed.contains(&last) {
            last -= 1;
        }
        let pages = settings.buffer_bytes.max(128 << 10).next_multiple_of(PAGE);
        let buffer = Buffer::new(pages);
        let settings = Settings {
            buffer_bytes: pages,
            ..settings
        };
        let (segments, bytes) = keeper.kept();
        let generation = last + 1;
        let compressor = settings.compress.map(Compressor::new);
        let strange = listing.strange.into_iter().map(name::why_strange).collect();
        let opened = Opened {
            recovered,
            orphans: kept,
            strange,
            segments,
            bytes,
            generation,
            unended_ns,
        };
        let recorder = Self {
            disk,
            dir: dir.to_owned(),
            settings,
            writes: Background::new("weir-writes", background::write, WRITES),
            closing: Closing::default(),
            compressor,
            _lock: lock,
            encoder: Encoder::new(Format::Pcapng, 0),
            interfaces: 0,
            block_start: buffer.start,
            buffer,
            spare: (0..WRITES).map(|_| Buffer::new(pages)).collect(),
            in_progress: VecDeque::with_capacity(WRITES),
            block: Block::empty(0),
            next: 0,
            time_ns: None,
            waiting_ns: None,
            open: None,
            index,
            keeper,
            unasked: 0,
            generation,
            now,
            written: Durable::default(),
            durable: Durable::default(),
            told_in: Default::default(),
            taken: 0,
            counts: Counts::new(now.wall_ns),
            stats: Stats::default(),
        };
        Ok((recorder, opened))
    }

    /// Announces an interface, and returns the id that its packets name; equal interfaces share an id. Long texts are cut.
    ///
    /// **Panics**: with more than [`MAX_INTERFACES`] interfaces.
    pub fn interface(&mut self, interface: &Interface) -> u32 {
        let mut interface = interface.clone();
        let mut room = MAX_DESCRIPTION;
        if interface
            .filter
            .as_ref()
            .is_some_and(|filter| filter.len() > MAX_DESCRIPTION / 4 * 3)
        {
            // A part of an expression would say something else.
            interface.filter = None;
        }
        room -= interface.filter.as_ref().map_or(0, String::len);
        interface.options.retain(|option| {
            let fits = option.value.len() <= room / 4;
            room -= if fits { option.value.len() } else { 0 };
            fits
        });
        let texts = interface
            .name
            .iter_mut()
            .chain(&mut interface.description)
            .chain(&mut interface.comments);
        for text in texts {
            let most = (0..=room.min(text.len()))
                .rev()
                .find(|&at| text.is_char_boundary(at));
            text.truncate(most.unwrap_or(0));
            room -= text.len();
        }
        interface.comments.retain(|comment| !comment.is_empty());
        let id = self
            .encoder
            .interface(&interface)
            .expect("a pcapng file takes any interface");
        assert!(
            (id as usize) < MAX_INTERFACES,
            "the caller keeps to the limit"
        );
        self.interfaces = self.interfaces.max(id + 1);
        self.index.interface(id, interface.link);
        id
    }

    /// Lets the session begin with packet `number`, before its first packet: earlier packets do not
    /// count as missed.
    pub fn begin_at(&mut self, number: u64) {
        self.next = number;
        self.written.next = number;
        self.durable.next = number;
        self.block.first = number;
    }

    /// Begins a segment before the first packet, for a process that may be unable to make files later.
    ///
    /// **Errors**: the segment cannot be made.
    pub fn begin(&mut self) -> Result<(), Error> {
        match self.open {
            Some(_) => Ok(()),
            None => self.begin_segment(None),
        }
    }

    /// Takes packet `number` of the session, of interface `id`. Numbers that are left out count as missed.
    ///
    /// **Errors**: a write or a new segment fails; the packet is then not taken.
    #[inline]
    pub fn packet(&mut self, id: u32, number: u64, record: &Record<'_>) -> Result<(), Error> {
        let mut frame = record.frame;
        let room = self.settings.buffer_bytes - BEHIND - PAGE;
        if frame.data.len() > room {
            frame.data = &frame.data[..room];
            self.stats.cut += 1;
        }
        let len = self.encoder.record_len(frame.data.len());
        if !self.is_ready(id, number, len, record.time_ns) {
            self.prepare(id, number, len, record.time_ns)?;
        }
        for line in (0..len).step_by(64) {
            prefetch(frame.data, AHEAD + line);
        }
        self.encoder
            .packet(&mut self.buffer.bytes, id, record.time_ns, &frame);
        self.index.packet(id, frame.data);
        self.block.add(record);
        self.next = number + 1;
        self.taken += 1;
        self.stats.packets += 1;
        if self.buffer.bytes.len() - self.block_start >= self.settings.block_bytes {
            self.end_block(false, false);
        }
        Ok(())
    }

    /// Whether the packet goes into the current block of the current segment.
    #[inline]
    fn is_ready(&self, id: u32, number: u64, len: usize, time_ns: Option<i64>) -> bool {
        let Some(open) = &self.open else { return false };
        (number == self.next)
            & (id < open.described)
            & (self.buffer.len() + len + BEHIND <= self.settings.buffer_bytes)
            & (time_ns.unwrap_or(0) < open.until_ns)
            & (open.offset + ((self.buffer.len() + len) as u64) < self.settings.segment_bytes)
            & self.waiting_ns.is_some()
    }

    /// Makes the packet fit the current block: ends the segment, writes the buffer, describes interfaces.
    #[cold]
    fn prepare(
        &mut self,
        id: u32,
        number: u64,
        len: usize,
        time_ns: Option<i64>,
    ) -> Result<(), Error> {
        assert!(
            id < self.interfaces,
            "the caller has announced the interface"
        );
        if let Some(open) = &self.open {
            let full =
                open.offset + (self.buffer.len() + len) as u64 >= self.settings.segment_bytes;
            let has_packets = open.number > 0 || self.block.packets > 0;
            if has_packets && full || time_ns.unwrap_or(0) >= open.until_ns {
                self.end_segment(false)?;
            }
        }
        if number != self.next {
            if self.block.packets > 0 {
                self.end_block(false, false);
            }
            self.stats.missed += number.saturating_sub(self.next);
            self.next = number;
            self.block.first = number;
        }
        if self.open.is_none() {
            self.begin_segment(time_ns)?;
        }
        self.describe(id)?;
        if self.has_untold_gap() {
            self.make_room(counts::ROOM)?;
            self.tell(false);
        }
        self.make_room(len)?;
        self.waiting_ns.get_or_insert(self.now.steady_ns);
        Ok(())
    }

    /// Describes the interfaces up to `id` in the current segment.
    fn describe(&mut self, id: u32) -> Result<(), Error> {
        let mut text = Vec::new();
        while self.open.as_ref().is_some_and(|open| open.described <= id) {
            text.clear();
            self.encoder.describe_next(&mut text);
            self.make_room(text.len())?;
            self.buffer.bytes.extend_from_slice(&text);
            self.index.head(&text);
            self.described(1);
        }
        Ok(())
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    fn described(&mut self, more: u32) {
        if let Some(open) = &mut self.open {
            open.described += more;
        }
    }

    fn make_room(&mut self, len: usize) -> Result<(), Error> {
        if self.buffer.len() + len + BEHIND > self.settings.buffer_bytes {
            self.begin_write(false)
        } else {
            Ok(())
        }
    }

    /// Bytes of a full segment and its index.
    fn with_index(&self) -> u64 {
        self.settings.segment_bytes + self.settings.segment_bytes / 32
    }

    fn begin_segment(&mut self, time_ns: Option<i64>) -> Result<(), Error> {
        // The limit holds for the segment when it is full; the disk is asked again while the segment grows.
        let more = self.with_index() + self.room_to_close() + self.room_to_compress();
        self.keeper.make_room(
            self.disk.as_ref(),
            &self.dir,
            &self.settings.retention,
            None,
            (more, 0),
        )?;
        self.free_disk()?;
        let start_ns = time_ns.unwrap_or(self.now.wall_ns).max(0);
        let segment = Segment::new(&self.dir, start_ns, self.generation);
        let file = self.disk.create(&segment.path, self.settings.file_mode);
        let file = file.map_err(|error| {
            Error::file("creating", &segment.path, error).keeping(self.resume_from())
        })?;
        self.generation += 1;
        self.stats.segments += 1;
        let until_ns = self.settings.segment_ns.and_then(|period| {
            let period = i64::try_from(period).ok().filter(|&period| period > 0)?;
            (start_ns / period + 1).checked_mul(period)
        });
        self.encoder.restart();
        self.encoder.describe_next(&mut self.buffer.bytes);
        self.index.head(&self.buffer.bytes[self.buffer.start..]);
        self.open = Some(Open {
            segment,
            file: SharedFile::new(file),
            offset: 0,
            written: 0,
            durable: 0,
            named: false,
            number: 0,
            described: 0,
            until_ns: until_ns.unwrap_or(i64::MAX),
            made_ns: self.now.steady_ns,
            changed_ns: self.now.wall_ns,
            has_told: false,
            is_told: false,
        });
        self.describe_counted()?;
        self.tell(false);
        Ok(())
    }

    /// Ends the current block with a mark.
    fn end_block(&mut self, fill: bool, end: bool) {
        let Some(open) = &mut self.open else { return };
        let out = &mut self.buffer;
        self.block.bytes = (out.bytes.len() - self.block_start) as u32;
        let mark = Mark {
            end,
            generation: open.segment.generation,
            start_ns: open.segment.start_ns,
            number: open.number,
            interfaces: open.described,
            offset: open.offset + out.len() as u64,
            block: self.block,
        };
        let at = out.bytes.len();
        mark.append(&mut out.bytes, out.start, self.block_start, fill);
        self.index.block(Entry::of(&mark, out.bytes.len() - at));
        open.number += 1;
        self.block_start = out.bytes.len();
        if self.block.packets > 0 {
            self.time_ns = self.time_ns.max(Some(self.block.max_ns));
        }
        self.block = Block::empty(self.next);
    }

    /// Writes the buffer, if there is anything in it; with a mark that ends the segment if `end`.
    fn write(&mut self, end: bool) -> Result<(), Error> {
        self.begin_write(end)?;
        self.settle(0)
    }

    /// Begins to write the buffer, after the writes in progress.
    fn begin_write(&mut self, end: bool) -> Result<(), Error> {
        if self.open.is_none() || self.buffer.len() == 0 && !end {
            return Ok(());
        }
        if end
            || self.buffer.bytes.len() > self.block_start
            || !self.buffer.len().is_multiple_of(PAGE)
        {
            if !end {
                self.tell(false);
            }
            self.end_block(true, end);
        }
        self.settle(WRITES - 1)?;
        self.keep_free()?;
        let told = self.progress();
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let spare = self
            .spare
            .pop()
            .expect("all writes but the last ones have given their buffers back");
        if self.waiting_ns.is_some() {
            open.changed_ns = self.now.wall_ns;
        }
        let buffer = std::mem::replace(&mut self.buffer, spare);
        let bytes = buffer.len() as u64;
        let behind = Durable {
            next: self.next,
            packets: self.taken,
            time_ns: self.time_ns,
        };
        self.in_progress.push_back((bytes, behind, told));
        self.writes.begin(Job {
            file: open.file.clone(),
            buffer,
            offset: open.offset,
        });
        open.offset += bytes;
        self.unasked += bytes;
        self.empty_buffer();
        Ok(())
    }

    /// Takes back the writes that are done, and waits until at most `most` are in progress.
    fn settle(&mut self, most: usize) -> Result<(), Error> {
        match self.take_back(most) {
            Err(error) => Err(self.give_up(error)),
            Ok(()) => Ok(()),
        }
    }

    fn take_back(&mut self, most: usize) -> Result<(), Error> {
        while let Some(&(bytes, written, told)) = self.in_progress.front() {
            let wait = self.in_progress.len() > most;
            let Some((job, result)) = self.writes.finished(wait) else {
                assert!(!wait, "the thread ends when it is dropped");
                return Ok(());
            };
            self.in_progress.pop_front();
            self.spare.push(job.buffer);
            let Some(open) = &mut self.open else { continue };
            result.map_err(|error| {
                Error::file("writing", &open.segment.path, error).at(job.offset)
            })?;
            open.written += bytes;
            self.stats.bytes += bytes;
            self.written.take(written);
            self.told_in.0 = told;
        }
        Ok(())
    }

    /// Free space that a segment needs ahead of its writes, bytes. One half is for writes in
    /// progress, the other one for those until the free space is requested again.
    fn ahead(&self) -> u64 {
        let writes = 2 * WRITES * self.settings.buffer_bytes;
        (self.settings.segment_bytes / 8)
            .min(MOST_AHEAD)
            .max(writes as u64)
    }

    /// Keeps the reserve of free space while a segment grows.
    fn keep_free(&mut self) -> Result<(), Error> {
        if self.unasked < self.ahead() / 2 {
            return Ok(());
        }
        self.free_disk().map_err(|error| self.give_up(error))
    }

    /// Removes old segments until the reserve is free after the next writes.
    fn free_disk(&mut self) -> Result<(), Error> {
        self.unasked = 0;
        let Settings {
            retention,
            free_bytes,
            buffer_bytes,
            ..
        } = &self.settings;
        let limits = Retention {
            bytes: None,
            ..*retention
        };
        let room = (self.ahead(), *buffer_bytes as u64 * 2);
        self.keeper.make_room(
            self.disk.as_ref(),
            &self.dir,
            &limits,
            free_bytes.as_ref(),
            room,
        )
    }

    fn empty_buffer(&mut self) {
        self.buffer.clear();
        self.block_start = self.buffer.start;
        self.block = Block::empty(self.next);
        self.waiting_ns = None;
    }

    /// Gives the segment up after an error: good blocks stay, the rest is cut, and the buffer is
    /// dropped.
    #[cold]
    fn give_up(&mut self, error: Error) -> Error {
        // The first error counts. What cannot be cut now is cut by the next recorder.
        while !self.in_progress.is_empty() {
            let _ = self.take_back(0);
        }
        if let Some(mut open) = self.open.take() {
            let keep = |len: u64| open.file.set_len(len).and_then(|()| open.file.sync());
            if keep(open.written).is_ok() && self.disk.sync_dir(&self.dir).is_ok() {
                self.durable.take(self.written);
                self.told_in.1 = self.told_in.0;
            } else {
                let _ = keep(open.durable);
                self.written = self.durable;
                self.told_in.0 = self.told_in.1;
                open.written = open.durable;
            }
            if open.written == 0 {
                let _ = self.disk.remove(&open.segment.path);
            } else {
                self.keeper.add(open.segment, Some(open.changed_ns));
            }
        }
        self.index.clear();
        (self.next, self.taken) = (self.written.next, self.written.packets);
        self.tell_again(self.told_in.0);
        self.empty_buffer();
        error.keeping(self.next)
    }

    /// Writes what is in the buffer.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.write(false)
    }

    /// Writes what is in the buffer and makes everything durable.
    pub fn sync(&mut self) -> Result<Durable, Error> {
        self.write(false)?;
        let Some(open) = &mut self.open else {
            return Ok(self.durable);
        };
        if open.durable < open.written {
            let synced = open.file.sync().and_then(|()| match open.named {
                true => Ok(()),
                false => self.disk.sync_dir(&self.dir),
            });
            if let Err(error) = synced {
                let error = Error::file("syncing", &open.segment.path, error);
                return Err(self.give_up(error));
            }
            open.named = true;
            open.durable = open.written;
        }
        self.durable.take(self.written);
        self.told_in.1 = self.told_in.0;
        Ok(self.durable)
    }

    /// Does what is due: writes a buffer that waits for too long, ends a segment that is too old, removes what is too old.
    pub fn tick(&mut self, now: Now) -> Result<(), Error> {
        self.settle(WRITES)?;
        self.take_index(false, false)?;
        let aged = now.steady_ns / AGING_NS != self.now.steady_ns / AGING_NS;
        self.now = now;
        if self
            .waiting_ns
            .is_some_and(|since| now.steady_ns.saturating_sub(since) >= self.settings.flush_ns)
        {
            self.write(false)?;
        }
        if let (Some(period), Some(open)) = (self.settings.segment_ns, &self.open)
            && now.steady_ns.saturating_sub(open.made_ns) >= period
        {
            self.end_segment(false)?;
        }
        if aged {
            let age_ns = self.settings.retention.age_ns.unwrap_or(i64::MAX);
            if self
                .open
                .as_ref()
                .is_some_and(|open| now.wall_ns.saturating_sub(open.changed_ns) > age_ns)
            {
                self.end_segment(false)?;
            }
            self.keeper.age(
                self.disk.as_ref(),
                &self.dir,
                &self.settings.retention,
                now.wall_ns,
            )?;
        }
        self.compress(aged);
        Ok(())
    }

    /// Steady time at which [`Self::tick`] writes the buffer, ns; `None` if it is empty.
    pub fn flush_at(&self) -> Option<u64> {
        Some(self.waiting_ns?.saturating_add(self.settings.flush_ns))
    }

    /// Number of the packet to pass next: the one after the last packet, or, after an error, after
    /// the last one on disk.
    pub fn resume_from(&self) -> u64 {
        self.next
    }

    /// Packets that readers find on disk, though they may not be durable yet.
    pub fn written(&self) -> Durable {
        self.written
    }

    /// Packets that are durable.
    pub fn durable(&self) -> Durable {
        self.durable
    }

    /// Counts of the session.
    pub fn stats(&self) -> Stats {
        Stats {
            removed: self.keeper.removed,
            ..self.stats
        }
    }

    /// Number and bytes of the closed segments in the directory.
    pub fn kept(&self) -> (usize, u64) {
        self.keeper.kept()
    }

    /// Closes the segment and ends the session. A segment that is being compressed stays plain.
    pub fn close(mut self) -> Result<Closed, Error> {
        self.end_segment(true)?;
        self.end_compression();
        Ok(Closed {
            durable: self.durable,
            stats: self.stats(),
            kept: self.kept(),
        })
    }
}

/// Bytes after the packets of a write, at most: statistics and a mark.
const BEHIND: usize = mark::MAX_LEN + counts::ROOM;

/// Most free space that is kept ahead of the writes, bytes, if the buffers need no more.
const MOST_AHEAD: u64 = 8 << 20;

/// Steady time between two looks at ages, ns.
const AGING_NS: u64 = 1_000_000_000;

/// The lock of a directory.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is just being started has a copy of it for a moment.
        let _ = self.0.unlock();
    }
}

/// Locks a directory, and says in the lock file who holds it.
fn lock(dir: &Path, mode: u32, wall_ns: i64) -> Result<Lock, Error> {
    let path = dir.join(name::LOCK);
    let failed = |error| Error::file("locking", &path, error);
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode);
    let mut file = open_regular(&options, &path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let read = file.take(256).read_to_string(&mut holder);
            let holder = holder.trim();
            let unknown =
                read.is_err() || holder.is_empty() || holder.contains(|c: char| c.is_control());
            let holder = if unknown {
                "its process is unknown"
            } else {
                holder
            };
            return Err(Error::Locked {
                dir: dir.to_owned(),
                holder: holder.to_owned(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let mut since = String::new();
    Stamp(wall_ns).write(&mut since, Shape::Rfc3339, Digits::Micro, 0);
    let text = format!("pid {} since {since}\n", std::process::id());
    let written: io::Result<()> = file
        .set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()));
    written.map_err(failed)?;
    Ok(Lock(file))
}

#[cfg(test)]
mod tests;
