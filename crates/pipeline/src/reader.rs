//! Reads a source from start to end and hands its pieces on in order.
//!
//! A file is cut into windows. The start of a window is either certain (the end of the window before) or a guess made by a worker
//! ahead of the reader. A guess counts only if the window before lands exactly on it, under the same layout. Otherwise the window
//! is discarded, read again and counted as such. So the result never depends on a guess.

mod counted;
mod spooled;

pub use counted::{Counted, Remarks, Uncounted};

use crate::pool::{Pool, Ready};
use crate::sort::InMemory;
use crate::steps::SystemClock;
use crate::window::{Start, Window, process};
use crate::{Consumer, PlanError};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_io::input::PlainFile;
use weir_io::live::{Counts, Live, Marks, Piece, TURN};
use weir_io::stream::Stream;
use weir_io::{Chunk, Input, Kind};
use weir_memory::changes::Steps;
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::{Fault, Layout, Noted, Statistics, Stop};

/// Source length, bytes, below which a warm-up of the consumer costs more than it saves.
const LONG: u64 = 256 << 10;

/// Bytes walked in the first step after a change of layout; each later step walks four times as
/// many. If layouts change often, a whole window walked by many cursors would be discarded at each
/// change.
const FIRST_REACH: usize = 64 << 10;

/// Access mode of a source: the way its bytes get into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Mapped file, for files that the page cache holds in huge folios and whose packets are only counted.
    Mapped,
    /// File read into a buffer that stays in the cache.
    Read,
    /// Stream of bytes in order.
    Stream,
    /// Blocks of a packet socket's ring, read in place.
    Live,
}

impl AccessMode {
    /// Returns the size of a window, the part of a file that one worker takes at a time, bytes.
    pub(crate) fn window(self) -> u64 {
        match self {
            Self::Mapped => 16 << 20,
            Self::Read | Self::Stream | Self::Live => 1 << 20,
        }
    }

    /// Returns the number of bytes read after a window, for records that begin in the window and
    /// end after it.
    pub(crate) fn overhang(self) -> usize {
        match self {
            Self::Mapped => 1 << 20,
            Self::Read | Self::Stream | Self::Live => 64 << 10,
        }
    }

    pub(crate) fn view(
        self,
        file: &PlainFile,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> io::Result<Chunk> {
        match self {
            Self::Mapped => file.map(offset, len),
            Self::Read | Self::Stream | Self::Live => file.read(offset, len, buffer),
        }
    }
}

/// Options of a reader.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of threads that process windows; 0 and 1 mean the caller's own.
    pub workers: usize,
    /// Processors to bind the threads to, in turn.
    pub cpus: Vec<usize>,
    /// Access mode for a file. `None` chooses: a file is read, or mapped if its packets are only counted and that is cheaper.
    pub way: Option<AccessMode>,
    /// Largest number of bytes per read of a file that is not mapped, unless a packet is larger.
    pub piece: Option<usize>,
    /// Whether the run may [end](Reader::end_within) in the middle of a delivery.
    pub ends_within: bool,
}

/// A layout and the consumer's plan for it.
pub struct Current<P> {
    /// The layout.
    pub layout: Layout,
    /// The consumer's plan.
    pub plan: P,
}

impl<P> core::fmt::Debug for Current<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.layout.fmt(f)
    }
}

/// The next piece of a source, in order.
#[derive(Debug)]
pub struct Delivery<C: Consumer> {
    /// Layout of the source at this piece, and the consumer's plan.
    pub current: Arc<Current<C::Plan>>,
    /// Bytes to which the record offsets of the piece refer.
    pub view: Chunk,
    /// Offset of the record of the last packet.
    pub last: usize,
    /// Result of the consumer for the piece.
    pub part: C::Part,
}

/// Error of a source, and its position.
#[derive(Debug)]
pub struct SourceFault {
    /// Number of the packet that could not be read, from 1 on; all packets before it were delivered.
    pub packet: u64,
    /// Offset in the source (in the decoded bytes, if it is compressed).
    pub offset: u64,
    /// Kind of the error.
    pub what: SourceError,
}

/// Errors of a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The bytes are not a capture file from here on.
    #[error(transparent)]
    Format(Fault),
    /// The system or a decoder could not deliver the bytes.
    #[error("{0}")]
    Io(io::Error),
    /// The file lost bytes while it was read.
    #[error("the file shrank from {from} to {to} bytes while it was read")]
    Shrank {
        /// Size at opening.
        from: u64,
        /// Size found.
        to: u64,
    },
    /// A mapped page could not be read, although it lies within the file.
    #[error("the file cannot be read here (input/output error)")]
    Unreadable,
    /// Other bytes than before were found: a file was cut and has grown again, or a packet is no longer in the memory of a capture.
    #[error("it was changed while it was read")]
    Changed,
    /// The kernel's packet count of a block differs from the packets in the block.
    #[error("the kernel handed over a block of {claimed} packets, and {found} are in it")]
    Block {
        /// Packets of the block according to the kernel.
        claimed: u64,
        /// Packets found.
        found: u64,
    },
    /// The consumer cannot work on the source from here on.
    #[error(transparent)]
    Plan(PlanError),
    /// A merge did not pass on all packets that it read.
    #[error(
        "{read} packets were read to be merged and {passed} were passed on: this is a mistake in weir"
    )]
    Merge {
        /// Packets that the reader of the source delivered.
        read: u64,
        /// Packets that were passed on.
        passed: u64,
    },
    /// A thread that works on the source panicked.
    #[error("{thread} thread {number} ended with a panic: this is a mistake in weir")]
    Panic {
        /// Kind of thread.
        thread: &'static str,
        /// Number of the thread among threads of its kind, from 0 on.
        number: usize,
    },
}

/// Report of the reading of a source.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of packets delivered, in order.
    pub received: u64,
    /// Counts of a live source; its `handed_over` packets are those delivered.
    pub live: Option<Counts>,
    /// Marks of a live source, in addition to its packets.
    pub marks: Marks,
    /// Number of packets found from wrong starts, discarded and read again.
    pub reread: u64,
    /// Number of packets with more bytes than their wire length: one of the two lengths is wrong.
    pub longer: u64,
    /// Whether a packet so far has fewer bytes than its wire length.
    pub has_cut: bool,
    /// Interface statistics in the source.
    pub counted: Counted,
    /// Packets lost before a packet of the source, by the options of the packets; the sum saturates.
    pub lost_between: u64,
    /// Blocks of the source that no copy of it keeps.
    pub left_out: LeftOut,
    /// Comments of the interface statistics in the source.
    pub remarks: Remarks,
    /// Number of bytes of the source read so far.
    pub offset: u64,
    /// Error that ended the source early, if one did.
    pub fault: Option<SourceFault>,
}

impl Report {
    /// Returns the sums of the interface statistics over all sections, by index of the interface.
    pub fn stats_by_interface(&self) -> BTreeMap<u32, Statistics> {
        let mut sums = BTreeMap::new();
        for stats in self.counted.by_section() {
            sums.entry(stats.interface)
                .or_insert_with(Statistics::default)
                .add(&stats.counts);
        }
        sums
    }

    /// Returns these sums for a copy, which may lack the packets whose options tell losses: the first interface has these. If an interface
    /// has no statistics, the first such one has statistics without a count, so that the copy does not claim that nothing was lost.
    pub fn stats_for_copies(&self, layout: &Layout) -> BTreeMap<u32, Statistics> {
        let mut by_interface = self.stats_by_interface();
        let of_interfaces = by_interface
            .values()
            .fold(0u64, |sum, counts| sum.saturating_add(counts.dropped()));
        let of_packets = self.lost_between.saturating_sub(of_interfaces);
        if of_packets > 0 {
            let told = by_interface.entry(0).or_default();
            told.dropped_by_system = Some(
                told.dropped_by_system
                    .unwrap_or(0)
                    .saturating_add(of_packets),
            );
        }
        let mut all = 0..layout.interfaces.len() as u32;
        if let Some(first) = all.find(|i| !by_interface.contains_key(i)) {
            by_interface.insert(first, Statistics::default());
        }
        by_interface
    }

    /// Notes an error at the present position.
    pub(crate) fn fail(&mut self, what: SourceError) {
        self.fault = Some(SourceFault {
            packet: self.received + 1,
            offset: self.offset,
            what,
        });
    }

    /// Returns the number of packets lost before the source was written, according to its interface statistics or to the
    /// options of its packets: the larger number, since both count the same packets.
    pub fn lost_before(&self) -> u64 {
        let of_interfaces = self.counted.by_section().fold(0u64, |sum, stats| {
            sum.saturating_add(stats.counts.dropped())
        });
        of_interfaces.max(self.lost_between)
    }

    /// Whether the source has a counter of lost packets: a live one, or a file with interface statistics or options of packets that count
    /// them. Others, such as pcap files, say nothing about losses, and neither do files with statistics of an interface that lack a count:
    /// its packets are of such a file.
    pub fn counts_losses(&self) -> bool {
        let mut of_interfaces = self.counted.by_section().peekable();
        let is_counted = of_interfaces.peek().is_some()
            && of_interfaces.all(|stats| stats.counts.counts_losses());
        self.live.is_some() || self.lost_between > 0 || is_counted
    }
}

/// Reader of one source for one consumer.
pub struct Reader<C: Consumer> {
    consumer: Arc<C>,
    source: Source<C>,
    current: Option<Arc<Current<C::Plan>>>,
    settled: bool,
    report: Report,
    /// Number of bytes that the record at `report.offset` needs.
    need: usize,
    /// Largest number of bytes to walk in the next step.
    reach: usize,
    /// Bytes from `report.offset` on that are in memory but were not walked, because the layout changed in front of them.
    held: Option<Chunk>,
    finished: bool,
    /// Whether the step found no packet of a live source.
    quiet: bool,
    options: Options,
    /// Notes from before the last delivery, if the run may end in the middle of it.
    noted: Option<NotedBefore>,
    spent: Option<Vec<u8>>,
    /// Steps as seen by threads that change the consumer, and the change of the current plan.
    steps: Option<(Steps, u64)>,
}

/// Notes of blocks between packets from before a delivery, and the places of such blocks within it.
struct NotedBefore {
    counted: Counted,
    lost_between: u64,
    left_out: LeftOut,
    remarks: Remarks,
    places: Vec<usize>,
    leading: usize,
}

/// Result of [`Reader::step`].
pub enum Step<C: Consumer> {
    /// A piece with packets.
    Delivery(Delivery<C>),
    /// No packet arrived; live sources only.
    Quiet,
    /// The end of the source; the report has an error if the end is early.
    End,
}

impl<C: Consumer> core::fmt::Debug for Step<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Delivery(_) => "Delivery",
            Self::Quiet => "Quiet",
            Self::End => "End",
        })
    }
}

enum Source<C: Consumer> {
    File {
        file: PlainFile,
        way: AccessMode,
        pool: Option<Pool<C>>,
        lost: Option<SourceError>,
    },
    /// A stream; `tail` holds the incomplete record at the end of the last chunk.
    Stream {
        stream: Stream,
        tail: Vec<u8>,
    },
    Live(Box<Live>),
    /// Packets in spool form.
    Memory(Box<InMemory>),
}

impl<C: Consumer> core::fmt::Debug for Reader<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reader")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl<C: Consumer> Reader<C> {
    /// Makes a reader of `input`.
    pub fn new(input: Input, consumer: Arc<C>, options: Options) -> Self {
        let source = match input.kind {
            Kind::File(file) => {
                let way = options.way.unwrap_or_else(|| {
                    if consumer.only_counts() && file.prefers_mapping() {
                        AccessMode::Mapped
                    } else {
                        AccessMode::Read
                    }
                });
                Source::File {
                    file,
                    way,
                    pool: None,
                    lost: None,
                }
            }
            Kind::Stream(stream) => Source::Stream {
                stream,
                tail: Vec::new(),
            },
            Kind::Live(live) => Source::Live(live),
        };
        Self::of(source, consumer, options)
    }

    fn of(source: Source<C>, consumer: Arc<C>, options: Options) -> Self {
        let steps = consumer.changes().map(|changes| (Steps::new(changes), 0));
        Self {
            consumer,
            source,
            current: None,
            settled: false,
            report: Report::default(),
            need: 0,
            reach: usize::MAX,
            held: None,
            finished: false,
            quiet: false,
            noted: None,
            options,
            spent: None,
            steps,
        }
    }

    /// Returns the report so far; complete once [`Self::next`] has returned `None`.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the report. The source is read no further.
    pub fn into_report(self) -> Report {
        self.report
    }

    /// Takes the report out of a reader that is no longer used.
    pub(crate) fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
    }

    /// Returns the access mode of the source.
    pub fn way(&self) -> AccessMode {
        match &self.source {
            Source::File { way, .. } => *way,
            Source::Stream { .. } => AccessMode::Stream,
            Source::Live(_) => AccessMode::Live,
            Source::Memory(_) => AccessMode::Read,
        }
    }

    /// Returns the layout known so far.
    pub fn layout(&self) -> Option<&Layout> {
        self.current.as_ref().map(|current| &current.layout)
    }

    /// Returns the latest change at the start of the last step: the next packets belong to this change or a later one.
    pub fn change(&self) -> u64 {
        self.steps.as_ref().map_or(0, |(_, change)| *change)
    }

    /// Gives back the bytes of a delivery, for reuse of their memory.
    pub fn recycle(&mut self, view: Chunk) {
        let Some(buffer) = view.into_buffer() else {
            return;
        };
        match &mut self.source {
            // The reader keeps one buffer of its own, and takes a buffer of the workers only if it has none.
            Source::File {
                pool: Some(pool), ..
            } if self.spent.is_some() => pool.give_back(buffer),
            _ => self.spent = Some(buffer),
        }
    }

    /// Returns a buffer to read into.
    fn buffer(&mut self) -> Vec<u8> {
        let spare = match &self.source {
            Source::File {
                pool: Some(pool), ..
            } if self.spent.is_none() => pool.spare(),
            _ => self.spent.take(),
        };
        spare.unwrap_or_default()
    }

    /// Takes the held chunk, if the record at `report.offset` lies in it.
    fn take_held_view(&mut self) -> Option<Chunk> {
        let view = self.held.take()?;
        if self.need == 0
            && (view.offset..view.offset + view.bytes().len() as u64).contains(&self.report.offset)
        {
            return Some(view);
        }
        self.recycle(view);
        None
    }

    /// Holds the chunk `view` for the next step, if that step begins in it and needs no more bytes.
    fn hold_view(&mut self, view: &Chunk) {
        let rest = self.report.offset < view.offset + view.bytes().len() as u64;
        if self.need == 0 && rest && !self.finished {
            self.held = Some(view.share());
        }
    }

    /// Takes packets out of the totals that were delivered but not used, because the run was
    /// stopped.
    pub(crate) fn remove_left_packets(&mut self, packets: u64) {
        self.report.received -= packets;
    }

    /// Returns the next piece with packets; `None` at the end. If the end is early,
    /// [`Self::report`] has the error.
    #[expect(
        clippy::should_implement_trait,
        reason = "a delivery is given back with `recycle` between the calls"
    )]
    pub fn next(&mut self) -> Option<Delivery<C>> {
        loop {
            match self.step() {
                Step::Delivery(delivery) => return Some(delivery),
                Step::Quiet => {}
                Step::End => return None,
            }
        }
    }

    /// Returns the next step, for callers with other work in the meantime: waits for a live source
    /// for at most a turn.
    pub fn step(&mut self) -> Step<C> {
        let clock = SystemClock::default();
        loop {
            let step = self.poll();
            let left = TURN.saturating_sub(clock.now().steady);
            if !matches!(step, Step::Quiet) || left.is_zero() {
                return step;
            }
            self.wait(left);
        }
    }

    /// Waits at most `most` until a live source may have packets.
    pub fn wait(&mut self, most: Duration) {
        if let (Source::Live(live), false) = (&mut self.source, self.finished)
            && let Err(error) = live.wait(most)
        {
            self.fault(SourceError::Io(error));
        }
    }

    /// Returns the next step without waiting for a live source.
    pub fn poll(&mut self) -> Step<C> {
        if let Err(what) = self.begin_step() {
            self.fault(what);
        }
        let step = self.take_step();
        self.end_step();
        step
    }

    /// Begins a step: switches to the latest change of the consumer.
    fn begin_step(&mut self) -> Result<(), SourceError> {
        let Some((steps, planned)) = &mut self.steps else {
            return Ok(());
        };
        let change = steps.begin();
        if change == std::mem::replace(planned, change) {
            return Ok(());
        }
        match self.current.as_ref().map(|current| current.layout.clone()) {
            Some(layout) => self.use_layout(layout),
            None => Ok(()),
        }
    }

    /// Ends a step: the consumer does not work now, so a change need not wait for the next packets, which may take long.
    fn end_step(&self) {
        if let Some((steps, _)) = &self.steps {
            steps.end();
        }
    }

    fn take_step(&mut self) -> Step<C> {
        while !self.finished {
            let step = match self.source {
                Source::File { .. } => self.step_file(),
                Source::Stream { .. } => self.step_stream(),
                Source::Live(_) => self.step_live(),
                Source::Memory(_) => self.step_memory(),
            };
            match step {
                Ok(Some(delivery)) => return Step::Delivery(delivery),
                Ok(None) if std::mem::take(&mut self.quiet) => return Step::Quiet,
                Ok(None) => {}
                Err(what) => self.fault(what),
            }
        }
        Step::End
    }

    /// Ends the source with an error at the present position.
    pub(crate) fn fail(&mut self, what: SourceError) {
        self.finished = true;
        self.report.fail(what);
    }

    /// Reads the next window of a file, from `report.offset` on.
    fn step_file(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        let pos = self.report.offset;
        let Source::File {
            file,
            way,
            pool,
            lost,
        } = &mut self.source
        else {
            unreachable!("asked by source")
        };
        if pos >= file.len && self.current.is_some() {
            self.finished = true;
            return match lost.take() {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let window = way.window();
        let index = pos / window;
        let mut ready = None;
        if let (Some(pool), Some(current), 0) = (pool.as_mut(), &self.current, self.need) {
            // A window that failed under another layout is discarded, like any other window of that layout.
            ready = pool
                .take(index, current)
                .filter(|ready| ready.result.is_ok() || Arc::ptr_eq(&ready.current, current));
            self.report.reread += pool.wasted();
        }
        let held = self.take_held_view();
        let buffer = if ready.is_none() && held.is_none() {
            self.buffer()
        } else {
            Vec::new()
        };
        let Source::File {
            file,
            way,
            pool,
            lost,
        } = &mut self.source
        else {
            unreachable!("asked by source")
        };
        let view = match (ready, held) {
            (
                Some(Ready {
                    result: Err(what), ..
                }),
                _,
            ) => return Err(what),
            (
                Some(Ready {
                    current,
                    result: Ok((view, done)),
                }),
                _,
            ) => {
                if sound(file, *way, &view, lost).map_err(SourceError::Io)? {
                    let known = self
                        .current
                        .as_ref()
                        .is_some_and(|known| Arc::ptr_eq(known, &current));
                    let start = done.start.map(|at| view.offset + at as u64);
                    self.report.reread += done.reread;
                    if known && start == Some(pos) {
                        return Ok(self.accept(view, current, done));
                    }
                    self.report.reread += done.received;
                    view
                } else {
                    *pool = None;
                    return Ok(None);
                }
            }
            (None, Some(held)) => held,
            (None, None) => {
                let (offset, need, least) = match way {
                    AccessMode::Mapped => {
                        let offset = index * window;
                        (offset, (pos - offset) as usize + self.need, window as usize)
                    }
                    _ => (pos, self.need, self.reach.min(window as usize)),
                };
                let len = match (*way, self.options.piece) {
                    (AccessMode::Read, Some(piece)) => need.max(piece.min(least + way.overhang())),
                    _ => need.max(least + way.overhang()),
                };
                way.view(file, offset, len, buffer)
                    .map_err(SourceError::Io)?
            }
        };
        let start = (pos - view.offset) as usize;
        let Some(current) = self.current.clone() else {
            let begun = self.begin(&view);
            self.recycle(view);
            return begun.map(|()| None);
        };
        // If there are workers ahead, records that begin in the next window are theirs.
        let limit = match (*way, &pool) {
            (AccessMode::Read, None) => view.bytes().len(),
            _ => view
                .bytes()
                .len()
                .min(((index + 1) * window - view.offset) as usize),
        };
        let end = limit;
        let limit = limit.min(start.saturating_add(self.reach));
        let done = process(
            self.consumer.as_ref(),
            &current,
            view.content(),
            view.eof,
            Start::Exact(start),
            limit,
            0,
        );
        if !sound(file, *way, &view, lost).map_err(SourceError::Io)? {
            *pool = None;
            return Ok(None);
        }
        self.report.reread += done.reread;
        let share = (limit < end).then(|| view.share());
        let delivery = self.accept(view, current, done);
        if let (Some(view), None) = (share, &self.held) {
            self.hold_view(&view);
        }
        Ok(delivery)
    }

    /// Reads the next bytes of a stream, from `report.offset` on, after the rest of the last step.
    fn step_stream(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        // More bytes may take long, so the bytes at hand are processed first.
        let held = self.take_held_view();
        self.end_step();
        let Source::Stream { stream, tail } = &mut self.source else {
            unreachable!("asked by source")
        };
        let mut view = match held {
            Some(held) => held,
            None => stream
                .next(tail, self.spent.take())
                .map_err(SourceError::Io)?,
        };
        while view.bytes().len() < self.need && !view.eof {
            view = stream.more(view).map_err(SourceError::Io)?;
        }
        tail.clear();
        if view.eof && stream.is_stopped() {
            self.finished = true;
            return Ok(None);
        }
        self.begin_step()?;
        if self.finished {
            return Ok(None);
        }
        let Some(current) = self.current.clone() else {
            let begun = self.begin(&view);
            self.keep_rest(&view);
            self.recycle(view);
            return begun.map(|()| None);
        };
        if view.eof && view.bytes().is_empty() {
            self.finished = true;
            return Ok(None);
        }
        let bytes = view.content();
        let start = (self.report.offset - view.offset) as usize;
        let limit = bytes.len().min(start.saturating_add(self.reach));
        let done = process(
            self.consumer.as_ref(),
            &current,
            bytes,
            view.eof,
            Start::Exact(start),
            limit,
            0,
        );
        self.report.reread += done.reread;
        Ok(self.accept(view, current, done))
    }

    /// Takes the next block of a ring. Each block is whole, so there is no rest and no guess.
    fn step_live(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        let Source::Live(live) = &mut self.source else {
            unreachable!("asked by source")
        };
        let Some(current) = self.current.clone() else {
            let layout = live.layout().clone();
            return self.use_layout(layout).map(|()| None);
        };
        let next = live.next();
        let backend = live.backend();
        (self.report.live, self.report.marks) = (Some(backend.counts()), backend.marks());
        let (view, claimed) = match next.map_err(SourceError::Io)? {
            Piece::Records(view, packets) => (view, packets),
            Piece::Nothing => {
                self.quiet = true;
                return Ok(None);
            }
            Piece::End => {
                self.finished = true;
                return Ok(None);
            }
        };
        let bytes = view.content();
        let done = process(
            self.consumer.as_ref(),
            &current,
            bytes,
            true,
            Start::Exact(0),
            bytes.len(),
            claimed,
        );
        let (found, whole) = (done.received, done.stop == Stop::End);
        let delivery = self.accept(view, current, done);
        if whole && found != claimed {
            self.fault(SourceError::Block { claimed, found });
        }
        Ok(delivery)
    }

    /// Reads the file header and the layout blocks after it from the first bytes of the source.
    fn begin(&mut self, view: &Chunk) -> Result<(), SourceError> {
        let read = first_layout(view);
        if let Source::File {
            file, way, lost, ..
        } = &mut self.source
            && !sound(file, *way, view, lost).map_err(SourceError::Io)?
        {
            return Ok(());
        }
        let (layout, pos) = match read {
            Ok(found) => found,
            Err(Stop::NeedMore(need)) => {
                self.need = need as usize;
                return Ok(());
            }
            Err(Stop::Fault(fault)) => return Err(SourceError::Format(fault)),
            Err(_) => unreachable!("a header is read or not"),
        };
        self.need = 0;
        self.report.offset = view.offset + pos as u64;
        self.use_layout(layout)?;
        self.start_pool().map_err(SourceError::Io)?;
        self.hold_view(view);
        Ok(())
    }

    /// Makes `layout` the current one. If the run is stopped in the meantime, the source ends
    /// before this layout.
    fn use_layout(&mut self, layout: Layout) -> Result<(), SourceError> {
        let before = self.current.as_ref().map(|current| &current.plan);
        let plan = match self.consumer.plan(&layout, before) {
            Ok(plan) => plan,
            Err(PlanError::Stopped) => {
                self.finished = true;
                return Ok(());
            }
            Err(refused) => return Err(SourceError::Plan(refused)),
        };
        let long = match &self.source {
            Source::File { file, .. } => file.len >= LONG,
            Source::Stream { .. } => self.report.offset >= LONG,
            // A live source may go on for ever, and the kernel buffers packets while native code is made.
            Source::Live(_) => true,
            Source::Memory(_) => true,
        };
        if long {
            self.settled = true;
            self.consumer.warm_up(&plan, self.workers() > 1);
        }
        self.current = Some(Arc::new(Current { layout, plan }));
        Ok(())
    }

    /// Returns the number of threads for the source; 1 is the caller's own.
    fn workers(&self) -> usize {
        match &self.source {
            Source::File { file, way, .. } => {
                let windows = file.len.div_ceil(way.window()) as usize;
                self.options.workers.min(windows).max(1)
            }
            _ => 1,
        }
    }

    fn start_pool(&mut self) -> io::Result<()> {
        let workers = self.workers();
        let Source::File {
            file, way, pool, ..
        } = &mut self.source
        else {
            return Ok(());
        };
        if workers > 1 && !self.finished {
            let first = self.report.offset / way.window();
            *pool = Some(Pool::start(
                &self.consumer,
                file,
                *way,
                workers,
                &self.options.cpus,
                first,
            )?);
        }
        Ok(())
    }

    /// Counts a proven window, and moves the position after it.
    fn accept(
        &mut self,
        view: Chunk,
        current: Arc<Current<C::Plan>>,
        done: Window<C::Part>,
    ) -> Option<Delivery<C>> {
        self.report.received += done.received;
        self.report.longer += done.longer;
        self.report.has_cut |= done.has_cut;
        if self.options.ends_within {
            self.noted = Some(NotedBefore {
                counted: self.report.counted.clone(),
                lost_between: self.report.lost_between,
                left_out: self.report.left_out,
                remarks: self.report.remarks.clone(),
                places: done.statistics.clone(),
                leading: done.leading,
            });
        }
        self.note(
            &current.layout,
            view.bytes(),
            &done.statistics,
            done.leading,
        );
        if done.received > 0 {
            self.report.counted.section = current.layout.sections;
        }
        self.report.offset = view.offset + done.end as u64;
        self.need = 0;
        self.reach = self.reach.saturating_mul(4);
        match done.stop {
            Stop::End => {}
            Stop::Enough => self.finished = true,
            Stop::NeedMore(need) => self.need = need as usize,
            Stop::Fault(fault) => self.fault(SourceError::Format(fault)),
            Stop::Layout => self.relayout(&view, done.end, &current.layout),
        }
        if !self.settled && self.report.offset >= LONG {
            self.settled = true;
            self.consumer.warm_up(&current.plan, false);
        }
        if let Source::Stream { .. } = self.source {
            self.keep_rest(&view);
        }
        if done.received == 0 {
            self.recycle(view);
            return None;
        }
        Some(Delivery {
            current,
            view,
            last: done.last,
            part: done.part,
        })
    }

    /// Notes what blocks between packets say, of which the first `leading` ones come before all packets of the piece.
    fn note(&mut self, layout: &Layout, bytes: &[u8], places: &[usize], leading: usize) {
        for (number, &at) in places.iter().enumerate() {
            match layout.noted(bytes, at) {
                Some(Noted::Statistics(stats)) => {
                    let comments = || layout.statistics_comments(bytes, at);
                    self.report.remarks.take(&stats, comments);
                    self.report.counted.take(stats, number < leading);
                }
                Some(Noted::Dropped(packets)) => {
                    self.report.lost_between = self.report.lost_between.saturating_add(packets);
                }
                Some(Noted::LeftOut(kind)) => self.report.left_out.add(kind),
                None => {}
            }
        }
    }

    /// Ends the source in the middle of its last delivery: what blocks after the record at offset
    /// `last` say is taken out of the report and of the layout, and so are `longer` packets with
    /// more bytes than on the wire. For [`Options::ends_within`].
    pub fn end_within(&mut self, delivery: &Delivery<C>, last: usize, longer: u64) {
        let Some(before) = self.noted.take() else {
            return;
        };
        self.report.counted = before.counted;
        self.report.lost_between = before.lost_between;
        self.report.left_out = before.left_out;
        self.report.remarks = before.remarks;
        self.report.longer -= longer.min(self.report.longer);
        let layout = &delivery.current.layout;
        let places = before.places.partition_point(|place| *place < last);
        let places = &before.places[..places];
        self.note(layout, delivery.view.bytes(), places, before.leading);
        self.report.counted.section = layout.sections;
        self.current = Some(Arc::clone(&delivery.current));
    }

    /// Ends the source with an error. If the file lost bytes, that loss is the error instead.
    fn fault(&mut self, what: SourceError) {
        let lost = match &mut self.source {
            Source::File { lost, .. } => lost.take(),
            Source::Stream { .. } | Source::Live(_) | Source::Memory(_) => None,
        };
        self.fail(lost.unwrap_or(what));
    }

    /// Applies the layout blocks at `pos` of the chunk `view`.
    fn relayout(&mut self, view: &Chunk, pos: usize, layout: &Layout) {
        self.reach = FIRST_REACH;
        let (bytes, mut pos, mut layout) = (view.bytes(), pos, layout.clone());
        let taken = loop {
            if !layout.is_layout_block(bytes, pos) {
                break Ok(());
            }
            match layout.apply(bytes, pos, view.eof) {
                Ok(next) => pos = next,
                Err(Stop::NeedMore(need)) => {
                    self.need = need as usize;
                    break Ok(());
                }
                Err(Stop::Fault(fault)) => break Err(SourceError::Format(fault)),
                Err(_) => unreachable!("a layout block is applied or not"),
            }
        };
        self.report.offset = view.offset + pos as u64;
        match taken.and_then(|()| self.use_layout(layout)) {
            Ok(()) => self.hold_view(view),
            Err(what) => self.fault(what),
        }
    }

    /// Keeps the bytes of the chunk `view` of a stream from `report.offset` on: whole records in place, an incomplete record as
    /// `tail` for the next chunk.
    fn keep_rest(&mut self, view: &Chunk) {
        self.hold_view(view);
        if let (Source::Stream { tail, .. }, None) = (&mut self.source, &self.held) {
            let used = (self.report.offset - view.offset) as usize;
            tail.clear();
            tail.extend_from_slice(view.bytes().get(used..).unwrap_or(&[]));
        }
    }
}

/// Returns the first layout of a source, and the offset after the blocks that describe it.
fn first_layout(view: &Chunk) -> Result<(Layout, usize), Stop> {
    let bytes = view.bytes();
    let (mut layout, mut pos) = Layout::read(bytes, view.eof)?;
    while layout.is_layout_block(bytes, pos) {
        match layout.apply(bytes, pos, view.eof) {
            Ok(next) => pos = next,
            // The walk that begins here meets the block again, and handles it.
            Err(_) => break,
        }
    }
    Ok((layout, pos))
}

/// Returns whether all bytes of the chunk `view` were really in the file. If not, the end of the file is set to the last readable
/// byte, and `lost` gets the reason.
fn sound(
    file: &mut PlainFile,
    way: AccessMode,
    view: &Chunk,
    lost: &mut Option<SourceError>,
) -> io::Result<bool> {
    let end = view.offset + view.bytes().len() as u64;
    // A short read met the end of the file earlier than the known length.
    let short = view.eof && end < file.len;
    let now = if short || way == AccessMode::Mapped {
        file.current_len()?
    } else {
        file.len
    };
    let readable = view.fault().unwrap_or(end).min(now);
    if !short && readable >= end.min(file.len) {
        return Ok(true);
    }
    let from = match lost {
        Some(SourceError::Shrank { from, .. }) => *from,
        _ => file.len,
    };
    *lost = Some(if now < file.len {
        SourceError::Shrank { from, to: now }
    } else if way == AccessMode::Mapped {
        SourceError::Unreadable
    } else {
        SourceError::Changed
    });
    file.len = readable;
    Ok(false)
}
