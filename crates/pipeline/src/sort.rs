//! Packets sorted into time order: an external merge sort over sources in any order.
//!
//! ```text
//! take:     copy packets behind each other into a buffer of bounded size, note (time, offset) of each
//! full:     sort the notes, write the packets in that order into a temporary file: a run
//! combine:  the last FAN_IN runs of one level are merged into a run of the next level
//! sorted:   the runs that are left are merged while they are read
//! ```
//! If a run cannot be written, its packets stay in memory and no more packets are taken. Memory is then the last run of the merge.
//!
//! The sort is stable. The notes of a run are distinct, and their offsets grow with the order of arrival. The runs are in the
//! order of arrival, and a merge keeps packets of equal times in the order of the runs. A packet without a time follows the packet
//! before it in its source. Every packet is written and read once per level: with runs of 256 MiB there is one level up to 32 GiB.
//!
//! Runs under merge need twice their room until the merged run is complete. If the directory has no such room, all runs are kept,
//! and merged at once in the end.

use crate::by_time::{MergedFiles, Part, Rejected, Sorted};
use crate::interfaces::{Ids, Interfaces};
use crate::merge::{Every, Found, Merge, Merged, Source};
use crate::reader::{AccessMode, Options, Reader, SourceError, SourceFault};
use crate::stages::Stages;
use crate::{Consumer, Delivery, PlanError, Report};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_io::input::PlainFile;
use weir_io::reserve::{Reserve, Watch};
use weir_io::{Input, sys, temporary};
use weir_packet::savefile::{Interface, Layout, Statistics, spool};

/// Number of runs of one level that are merged into one run of the next.
const FAN_IN: usize = 128;

/// Bytes per write to a temporary file.
const WRITTEN: usize = 1 << 20;

/// File descriptors reserved for everything but runs.
const OTHERS: u64 = 64;

/// Memory that packets leave to the rest of a run, bytes: its buffers are not asked for beforehand.
const ASIDE: usize = 8 << 20;

/// Least size of runs, bytes, if memory is short.
const LEAST: usize = 1 << 20;

/// Size of the note of a packet in memory, bytes.
const NOTE: usize = size_of::<(i64, u32)>();

/// Failure to sort all packets: an error at the temporary files.
#[derive(Debug, thiserror::Error)]
#[error("temporary files in {}: {error}", .directory.display())]
pub struct SortFault {
    /// Directory of the temporary files.
    pub directory: PathBuf,
    /// Error of the system.
    pub error: io::Error,
}

/// Gathers the packets of sources, and sorts them.
pub struct Sorter {
    directory: PathBuf,
    /// Disk space that stays free.
    reserve: Reserve,
    memory: usize,
    fan_in: usize,
    /// Packets in spool form. `order` has for each packet its sort key (ns) and its offset in `spooled`.
    spooled: Vec<u8>,
    order: Vec<(i64, u32)>,
    /// Complete runs in the order of arrival, each with its level: the number of merges of its packets.
    runs: Vec<(u32, PlainFile)>,
    interfaces: Interfaces,
    /// Outcome of each source; `received` has the number of its packets in the sorter.
    parts: Vec<Part>,
    received: Vec<u64>,
    /// Packets of all sources.
    len: u64,
    fault: Option<SortFault>,
    stop: Arc<AtomicBool>,
}

impl core::fmt::Debug for Sorter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sorter")
            .field("runs", &self.runs.len())
            .finish_non_exhaustive()
    }
}

impl Sorter {
    /// Sets the disk space that stays free in addition to the temporary files.
    #[must_use]
    pub fn keeping(self, reserve: Reserve) -> Self {
        Self { reserve, ..self }
    }

    /// Makes a sorter that holds up to `memory` bytes of packets, and keeps the others in temporary files in `directory`. If
    /// `stop` is set, the work ends early.
    pub fn new(directory: PathBuf, memory: usize, stop: &Arc<AtomicBool>) -> Self {
        Self {
            directory,
            reserve: Reserve::default(),
            memory: memory.min(u32::MAX as usize),
            fan_in: FAN_IN,
            spooled: Vec::new(),
            order: Vec::new(),
            runs: Vec::new(),
            interfaces: Interfaces::default(),
            parts: Vec::new(),
            received: Vec::new(),
            len: 0,
            fault: None,
            stop: Arc::clone(stop),
        }
    }

    /// Merges `fan_in` runs at once, at least two (for tests).
    #[doc(hidden)]
    pub fn with_fan_in(self, fan_in: usize) -> Self {
        Self {
            fan_in: fan_in.max(2),
            ..self
        }
    }

    /// Reads a source to its end. `check` is called with the interfaces of the first packets of all sources, and may refuse them.
    /// `progress` is called with the number of bytes of the source read so far.
    pub fn take(
        &mut self,
        input: Input,
        check: &mut dyn FnMut(&Layout) -> Result<(), PlanError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), PlanError> {
        let name = input.name.clone();
        let piece = (self.memory / 8).clamp(16 << 10, 1 << 20);
        let options = Options {
            way: Some(AccessMode::Read),
            piece: Some(piece),
            ..Options::default()
        };
        let mut reader = Reader::new(input, Arc::new(Every), options);
        let (mut ids, mut key) = (Ids::default(), i64::MIN);
        let mut damage = None;
        self.received.push(0);
        while damage.is_none()
            && self.goes_on()
            && let Some(delivery) = reader.next()
        {
            let layout = &delivery.current.layout;
            if self.len == 0 {
                check(&Layout::spool(layout.interfaces.iter().cloned().collect()))?;
            }
            self.make_room(delivery.view.bytes().len(), delivery.part.len());
            if self.goes_on() {
                damage = self.spool(&delivery, &mut ids, &mut key).err();
            }
            progress(reader.report().offset);
            reader.recycle(delivery.view);
        }
        if self.len == 0
            && let Some(layout) = reader.layout()
        {
            check(&Layout::spool(layout.interfaces.iter().cloned().collect()))?;
        }
        let (layout, way, mut report) =
            (reader.layout().cloned(), reader.way(), reader.into_report());
        if let Some(what) = damage {
            let packet = self.received.last().map_or(1, |received| received + 1);
            report.fault = Some(SourceFault {
                packet,
                offset: report.offset,
                what,
            });
        }
        let stats = layout
            .as_ref()
            .map_or_else(Vec::new, |layout| self.stats(&mut ids, layout, &report));
        if let Some(layout) = &layout {
            self.interfaces.carry(layout);
        }
        self.parts.push(Part {
            name,
            report,
            layout,
            way,
            stats,
        });
        Ok(())
    }

    /// Returns the interface statistics of a source, each with its interface in the sorter's table.
    fn stats(
        &mut self,
        ids: &mut Ids,
        layout: &Layout,
        report: &Report,
    ) -> Vec<(Interface, Statistics)> {
        let mut stats: BTreeMap<u32, Statistics> = BTreeMap::new();
        for (interface, counts) in report.stats_for_copies(layout) {
            // If the table has no room for an interface, the interface has no packets, or the
            // source ends with an error.
            if let Ok(id) = self.interfaces.place(ids, layout, interface) {
                stats.entry(id).or_default().add(&counts);
            }
        }
        let layout = self.interfaces.layout();
        stats
            .into_iter()
            .map(|(id, counts)| (layout.interfaces[id as usize].clone(), counts))
            .collect()
    }

    /// Returns the sorted packets as a source, and the error if not all packets could be sorted.
    /// [`MergedFiles::into_parts`] returns the outcome of each source. If the work was stopped,
    /// there are no packets.
    pub fn sorted(
        mut self,
        stages: Arc<Stages>,
        rejected: Rejected,
    ) -> (MergedFiles, Option<SortFault>) {
        let fault = self.fault.take();
        // If all packets fit in memory, no file is needed. If the last run cannot be written, its packets are still in memory.
        if fault.is_none() && !self.runs.is_empty() {
            self.end_run();
        }
        if self.stop.load(Ordering::Relaxed) {
            self.runs.clear();
            self.order.clear();
            self.len = 0;
            self.received.fill(0);
        }
        self.order.sort_unstable();
        let Self {
            spooled,
            order,
            runs,
            interfaces,
            mut parts,
            received,
            len,
            ..
        } = self;
        for (part, received) in parts.iter_mut().zip(received) {
            part.report.received = received;
        }
        let rest = (!order.is_empty()).then_some(InMemory {
            spooled,
            order,
            next: 0,
        });
        let merge = merge_of(
            runs.iter().map(|(_, run)| run),
            rest,
            &interfaces.layout(),
            &stages,
            rejected.merged(&stages),
        );
        let sorted = Sorted {
            parts,
            packets: len,
        };
        let sorted = MergedFiles::sorted(merge, stages, rejected, interfaces, sorted);
        (sorted, fault)
    }

    fn goes_on(&self) -> bool {
        self.fault.is_none() && !self.stop.load(Ordering::Relaxed)
    }

    /// Makes room for `packets` packets of `bytes` bytes.
    fn make_room(&mut self, bytes: usize, packets: usize) {
        let more = bytes + packets * (spool::HEADER + NOTE);
        if self.spooled.len() + self.order.len() * NOTE + more > self.memory {
            self.end_run();
        }
        if !self.goes_on() || self.has_room(more, packets) {
            return;
        }
        // If the packets in memory become a run, their room is free again, and may be enough. Later runs are no larger.
        let held = self.spooled.len() + self.order.len() * NOTE;
        self.memory = self.memory.min(held.max(LEAST));
        self.end_run();
        if !self.goes_on() {
            return;
        }
        (self.spooled, self.order) = Default::default();
        let room = self
            .spooled
            .try_reserve_exact(more)
            .and_then(|()| self.order.try_reserve_exact(packets));
        if let Err(error) = room {
            self.failed(io::Error::new(io::ErrorKind::OutOfMemory, error));
        }
    }

    /// Whether there is room for `packets` packets, `more` bytes in all, and after that for what else a run needs.
    fn has_room(&mut self, more: usize, packets: usize) -> bool {
        self.spooled
            .try_reserve(more)
            .and_then(|()| self.order.try_reserve(packets))
            .and_then(|()| Vec::<u8>::new().try_reserve_exact(ASIDE))
            .is_ok()
    }

    /// Copies the packets of a delivery; `key` is the sort key (ns) of the packet before them.
    fn spool(
        &mut self,
        delivery: &Delivery<Every>,
        ids: &mut Ids,
        key: &mut i64,
    ) -> Result<(), SourceError> {
        let Delivery {
            current,
            view,
            part,
            ..
        } = delivery;
        let Self {
            spooled,
            order,
            interfaces,
            ..
        } = self;
        let before = order.len();
        let mut result = Ok(());
        current.layout.records(view.bytes(), part, |_, record| {
            let Some(record) = record.filter(|_| result.is_ok()) else {
                return;
            };
            match interfaces.id(ids, &current.layout, record.frame.interface) {
                Ok(id) => {
                    *key = record.time_ns.unwrap_or(*key);
                    order.push((*key, spooled.len() as u32));
                    spool::append(spooled, id, *key, &record);
                }
                Err(what) => result = Err(what),
            }
        });
        let (read, passed) = (part.len() as u64, (order.len() - before) as u64);
        self.len += passed;
        if let Some(received) = self.received.last_mut() {
            *received += passed;
        }
        result.and(if read == passed {
            Ok(())
        } else {
            Err(SourceError::Merge { read, passed })
        })
    }

    /// Writes the packets in memory into a run. If the write fails, they stay in memory, and no more packets are taken.
    fn end_run(&mut self) {
        if self.order.is_empty() || !self.goes_on() {
            return;
        }
        match self.write_run() {
            Ok(run) => {
                self.runs.push((0, run));
                self.spooled.clear();
                self.order.clear();
                self.combine();
            }
            // If the work is stopped, the run stays incomplete.
            Err(_) if self.stop.load(Ordering::Relaxed) => {}
            Err(error) => self.failed(error),
        }
    }

    /// Notes the error. No more packets are taken; the packets taken so far are in runs or in
    /// memory.
    fn failed(&mut self, error: io::Error) {
        self.fault = Some(SortFault {
            directory: self.directory.clone(),
            error,
        });
    }

    fn write_run(&mut self) -> io::Result<PlainFile> {
        if !self.order.is_sorted() {
            self.order.sort_unstable();
        }
        // If merged runs have no room, all present runs stay open.
        sys::allow_open_files(self.runs.len() as u64 + OTHERS)?;
        let mut out = Writer::new(&self.directory, self.reserve)?;
        for &(_, at) in &self.order {
            out.buffer.extend_from_slice(noted(&self.spooled, at));
            out.write_full(&self.stop)?;
        }
        out.finish()
    }

    /// Merges the last `fan_in` runs while they are of one level.
    fn combine(&mut self) {
        loop {
            let first = self.runs.len().saturating_sub(self.fan_in);
            let level = match self.runs.last() {
                Some((level, _))
                    if first + self.fan_in == self.runs.len() && self.runs[first].0 == *level =>
                {
                    *level
                }
                _ => return,
            };
            let layout = self.interfaces.layout();
            match merged_run(
                (&self.directory, self.reserve),
                self.runs[first..].iter().map(|(_, run)| run),
                &layout,
                &self.stop,
            ) {
                Ok(run) => {
                    self.runs.truncate(first);
                    self.runs.push((level + 1, run));
                }
                // Without room for one more copy, the runs are kept and merged at once in the end. Another attempt would
                // fill the directory again.
                Err(_) => self.fan_in = usize::MAX,
            }
        }
    }
}

/// Packets in spool form that stayed in memory, and their order.
#[derive(Debug)]
pub(crate) struct InMemory {
    spooled: Vec<u8>,
    order: Vec<(i64, u32)>,
    /// Number of packets handed out so far.
    next: usize,
}

impl InMemory {
    /// Appends the next packets to `piece`; at the end, appends none.
    pub(crate) fn fill(&mut self, piece: &mut Vec<u8>) {
        while let Some(&(_, at)) = self.order.get(self.next).filter(|_| piece.len() < WRITTEN) {
            piece.extend_from_slice(noted(&self.spooled, at));
            self.next += 1;
        }
    }
}

/// Returns the packet at the offset `at` of a note.
fn noted(spooled: &[u8], at: u32) -> &[u8] {
    spooled
        .get(at as usize..)
        .and_then(spool::first)
        .expect("the note was made of what is there")
}

/// Returns a merge of runs of this layout; `rest` is the last run, in memory.
fn merge_of<'a, C: Consumer>(
    runs: impl ExactSizeIterator<Item = &'a PlainFile>,
    rest: Option<InMemory>,
    layout: &Layout,
    consumer: &Arc<C>,
    merged: fn(&C::Part) -> Merged<'_>,
) -> Merge<C> {
    let options = crate::merge::options_for(runs.len());
    let source = |run: &PlainFile| {
        let (run, layout) = (run.clone(), layout.clone());
        let reader = Reader::spooled(run, layout, Arc::clone(consumer), options.clone());
        Source::new(String::new(), reader)
    };
    let rest = rest.map(|rest| {
        let reader = Reader::in_memory(rest, layout.clone(), Arc::clone(consumer), options.clone());
        Source::new(String::new(), reader)
    });
    Merge::of(runs.map(source).chain(rest).collect(), merged)
}

/// Merges several runs into one.
fn merged_run<'a>(
    (directory, reserve): (&Path, Reserve),
    runs: impl ExactSizeIterator<Item = &'a PlainFile>,
    layout: &Layout,
    stop: &AtomicBool,
) -> io::Result<PlainFile> {
    let mut merge = merge_of(runs, None, layout, &Arc::new(Every), Every::merged);
    let mut out = Writer::new(directory, reserve)?;
    merge.begin(&mut |_, _| {});
    loop {
        match merge.next(&mut |_, _| {}) {
            Found::Packet(next) => {
                let interface = next.record.frame.interface;
                spool::append(&mut out.buffer, interface, next.key, &next.record);
                merge.pass();
                out.write_full(stop)?;
            }
            Found::Nothing => {}
            Found::End => break,
        }
    }
    let whole = |run: &Source<Every>| {
        run.reader().report().fault.is_none() && run.passed() == run.reader().report().received
    };
    if merge.sources().iter().all(whole) {
        out.finish()
    } else {
        Err(io::Error::other("a temporary file is damaged"))
    }
}

/// Writer of a temporary file in large pieces.
struct Writer {
    file: File,
    watch: Watch,
    buffer: Vec<u8>,
}

impl Writer {
    fn new(directory: &Path, reserve: Reserve) -> io::Result<Self> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(2 * WRITTEN)?;
        Ok(Self {
            file: temporary::unnamed(directory)?,
            watch: Watch::new(reserve),
            buffer,
        })
    }

    /// Writes the buffer if it is full. **Errors**: errors of the system; `Interrupted` if `stop`
    /// is set by then.
    #[inline]
    fn write_full(&mut self, stop: &AtomicBool) -> io::Result<()> {
        if self.buffer.len() < WRITTEN {
            return Ok(());
        }
        self.write()?;
        if stop.load(Ordering::Relaxed) {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    }

    #[cold]
    fn write(&mut self) -> io::Result<()> {
        self.watch.take(&self.file, self.buffer.len())?;
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<PlainFile> {
        self.write()?;
        PlainFile::new(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::savefile::{Record, Resolution};
    use weir_packet::{Frame, LinkType};

    /// Returns a sorter for packets of one interface that merges runs two by two.
    fn sorter() -> Sorter {
        let mut sorter =
            Sorter::new(std::env::temp_dir(), 64 << 20, &Arc::default()).with_fan_in(2);
        let interface = Interface::plain(LinkType::ETHERNET, 0, Resolution::NANOSECOND);
        let layout = Layout::spool(vec![interface]);
        sorter
            .interfaces
            .announce(&mut Ids::default(), &layout)
            .expect("there is room for one");
        sorter
    }

    fn gather(sorter: &mut Sorter, packets: i64) {
        for key in 0..packets {
            let frame = Frame {
                data: &[7; 1000],
                wire_len: 1000,
                interface: 0,
            };
            sorter.order.push((key, sorter.spooled.len() as u32));
            spool::append(
                &mut sorter.spooled,
                0,
                key,
                &Record {
                    time_ns: Some(key),
                    frame,
                    options: Default::default(),
                },
            );
        }
    }

    #[test]
    fn runs_that_could_not_be_merged_are_not_merged_again() {
        let mut sorter = sorter();
        gather(&mut sorter, 10);
        sorter.end_run();
        assert_eq!(sorter.runs.len(), 1);
        let mut file =
            temporary::unnamed(&sorter.directory).expect("the temporary directory can be written");
        file.write_all(b"no packet").expect("there is room");
        sorter.runs[0].1 = PlainFile::new(file).expect("it is open");
        // The second run and the damaged run are of one level, and so are the second and the third run.
        for runs in [2, 3, 4] {
            gather(&mut sorter, 10);
            sorter.end_run();
            assert_eq!((sorter.runs.len(), sorter.fault.is_none()), (runs, true));
        }
    }

    #[test]
    fn a_run_ends_when_the_work_is_stopped() {
        let mut sorter = sorter();
        gather(&mut sorter, 5000);
        assert_eq!(sorter.write_run().expect("there is room").len, 5000 * 1024);
        sorter.stop.store(true, Ordering::Relaxed);
        let error = sorter
            .write_run()
            .expect_err("it is not written to its end");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
