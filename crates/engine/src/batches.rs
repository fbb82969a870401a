//! Batches that a front end pulls out of a run.
//!
//! A batch holds all packets of a piece of a source, in place. It has a region of memory, descriptors of the frames in the region,
//! and masks of the verdicts. Packets rejected by a kernel's filter are in no batch.
//!
//! If the limit of outstanding batches is reached, the run waits. Files then also wait; a capture
//! drops packets for which its ring has no room, and counts them. A dropped batch gives its memory
//! back, in any order and from any thread.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_packet::descriptor::{self, Descriptor};
use weir_packet::link::LinkType;
use weir_packet::savefile::{Layout, Record};
use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::select::Selected;
use weir_pipeline::stages::{Columns, Stages};

/// Largest number of batches that may be out at once.
pub const MOST: usize = 4096;

/// Longest single wait: an endless wait is a sequence of such waits.
const TURN: Duration = Duration::from_secs(3600);

/// Interval at which a run that waits for room checks its stop flag.
const LOOK: Duration = Duration::from_millis(20);

/// Total time for which a stopped run waits for room. Batches without room by then are dropped, and their packets counted.
const PATIENCE: Duration = Duration::from_millis(500);

/// Pause of a thread that has taken all batches of a capture, before it waits to be woken: batches
/// that arrive in the meantime cost one wakeup together. With the slack of the kernel's timers it
/// is about 100 us.
const REST: Duration = Duration::from_micros(50);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<HeldBatch>,
    /// Number of batches that the front end holds.
    held: usize,
    /// Dropped batches, whose memory the run's thread uses for the next batches. Memory that it
    /// does not need is also freed there, because memory is freed fastest by the thread that
    /// allocated it.
    #[expect(clippy::vec_box, reason = "boxes are handed on as they are")]
    spares: Vec<Box<Batch>>,
    /// Packets of all batches that the run gave and that were not dropped unread: all, passed,
    /// rejected.
    given: [u64; 3],
    /// Number of times that the run found no room.
    full: u64,
    /// Whether the run is over.
    ended: bool,
    /// Whether the receiver was dropped.
    left: bool,
    /// Packets that passed, in batches that waited when the receiver was dropped.
    unread: Selected,
    /// Whether a thread that finds no batch rests first: a batch of a capture was taken since the last rest.
    rest: bool,
    /// Number of threads that wait for a change. While there is none, a change costs no system call.
    sleeping: usize,
    /// Writing end of the pipe for `poll`, once a caller asked for it and until the end of the run.
    ready: Option<PipeWriter>,
    /// Whether a byte is in the pipe: while a batch waits.
    is_ready: bool,
}

impl State {
    /// Packets in waiting batches: all, passed, rejected.
    fn unread(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for batch in &self.waiting {
            let (passed, filtered) = batch.judged();
            sums = [
                sums[0] + batch.len() as u64,
                sums[1] + passed,
                sums[2] + filtered,
            ];
        }
        sums
    }

    /// Makes the pipe readable if a batch waits, else empty. The pipe has room for the one byte.
    fn mark_ready(&mut self, reader: Option<&PipeReader>) {
        let (Some(mut reader), Some(writer)) = (reader, &mut self.ready) else {
            return;
        };
        let waits = !self.waiting.is_empty();
        if waits != std::mem::replace(&mut self.is_ready, waits) {
            // An error would be one of a pipe with both ends open.
            let _ = if waits {
                writer.write_all(&[0])
            } else {
                reader.read_exact(&mut [0])
            };
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Signals that there is room, a batch to take, or an end.
    changed: Condvar,
    most: usize,
    /// Reading end of the pipe for `poll`, once a caller asked for it.
    ready: OnceLock<PipeReader>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at most `most` for a change.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        state.sleeping += 1;
        let mut state = self
            .changed
            .wait_timeout(state, most)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        state.sleeping -= 1;
        state
    }

    /// Wakes the threads that wait for a change, and marks whether a batch waits.
    fn changed(&self, mut state: MutexGuard<'_, State>) {
        state.mark_ready(self.ready.get());
        let is_awaited = state.sleeping > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }
}

/// The sending end, which hands batches out of a run.
#[derive(Debug)]
pub(crate) struct BatchSender {
    shared: Arc<Shared>,
    /// Time at which the stop of the run was noticed.
    stopped: Option<Instant>,
    /// Buffer of a dropped batch.
    spare: Option<Vec<u8>>,
}

/// The receiving end, from which a front end takes batches.
#[derive(Debug)]
pub struct Batches {
    shared: Arc<Shared>,
}

/// A batch: packets of one source in its order, with the memory of their frames. Packets are numbered from 0 on.
///
/// A pulled batch holds passed and rejected packets. A batch that a sink
/// [keeps](crate::sink::Packets::keep) holds the packets that the sink was handed. Masks tell
/// matching packets apart. A dropped batch gives its memory back, in any order and from any thread.
#[derive(Debug)]
pub struct Batch {
    delivery: Delivery<Stages>,
    descriptors: OnceLock<Vec<Descriptor>>,
    /// A share of the value that counts the kept batches.
    kept: Option<Arc<()>>,
}

/// Facts of a pulled batch, which the run's thread writes down. They move with the batch through the queue: the thread that takes a
/// small batch would otherwise wait for a cache line of each part of it to come from another core.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Address and length of the [region](Batch::region).
    pub region: [usize; 2],
    /// Address of the [descriptors](Batch::descriptors).
    pub descriptors: usize,
    /// Address of the words of the [verdicts](Batch::verdicts).
    pub verdicts: usize,
    /// Number of the latest [change](Batch::change).
    pub change: u64,
    /// Number of packets.
    pub len: u32,
    /// Number of packets that passed.
    pub passed: u32,
    /// Link type of all interfaces, if they have one.
    pub link: Option<LinkType>,
    /// Whether the frames lie in a buffer, which the run uses again. Other memory goes back where it came from when the batch is dropped.
    in_buffer: bool,
    /// Whether the frames lie in the memory of a capture.
    is_captured: bool,
}

/// A batch that was pulled. Its memory goes back to the run when it is dropped.
#[derive(Debug)]
pub struct HeldBatch {
    summary: Summary,
    /// There until the drop.
    batch: Option<Box<Batch>>,
    /// Where the batch is counted and its memory goes.
    home: Arc<Shared>,
}

/// Makes both ends; at most `most` batches, up to [`MOST`], wait or are held at once.
pub(crate) fn channel(most: usize) -> (BatchSender, Batches) {
    let state = Mutex::default();
    let shared = Shared {
        state,
        changed: Condvar::new(),
        most: most.clamp(1, MOST),
        ready: OnceLock::new(),
    };
    let shared = Arc::new(shared);
    (
        BatchSender {
            shared: Arc::clone(&shared),
            stopped: None,
            spare: None,
        },
        Batches { shared },
    )
}

impl BatchSender {
    /// Hands a batch out, and waits for room; once `stop` is set, only for a short time. Calls `meanwhile` each [`LOOK`] of the wait.
    /// Returns the batch if the receiver is gone or there is no room.
    pub(crate) fn give(
        &mut self,
        delivery: Delivery<Stages>,
        stop: &AtomicBool,
        mut meanwhile: impl FnMut(usize),
    ) -> Option<Delivery<Stages>> {
        let mut state = self.shared.state();
        let is_full = |state: &State| state.waiting.len() + state.held >= self.shared.most;
        state.full += u64::from(is_full(&state));
        while is_full(&state) && !state.left {
            if stop.load(Ordering::Relaxed)
                && self.stopped.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                break;
            }
            state = self.shared.wait(state, LOOK);
            if is_full(&state) {
                let outstanding = state.waiting.len() + state.held;
                drop(state);
                meanwhile(outstanding);
                state = self.shared.state();
            }
        }
        if state.left || is_full(&state) {
            return Some(delivery);
        }
        let spare = state.spares.pop();
        drop(state);
        let (summary, batch) = self.described(delivery, spare);
        let (passed, filtered) = batch.judged();
        let mut state = self.shared.state();
        if state.left {
            return Some(batch.delivery);
        }
        for (sum, count) in state
            .given
            .iter_mut()
            .zip([batch.len() as u64, passed, filtered])
        {
            *sum += count;
        }
        state.waiting.push_back(HeldBatch {
            summary,
            batch: Some(batch),
            home: Arc::clone(&self.shared),
        });
        self.shared.changed(state);
        None
    }

    /// Makes a batch of a piece, while the piece is in the caches of the run's thread.
    fn described(
        &mut self,
        delivery: Delivery<Stages>,
        spare: Option<Box<Batch>>,
    ) -> (Summary, Box<Batch>) {
        let mut descriptors = Vec::new();
        let mut batch = match spare {
            Some(mut spare) => {
                descriptors = spare.descriptors.take().unwrap_or_default();
                let before = std::mem::replace(&mut spare.delivery, delivery);
                self.spare = before.view.into_buffer();
                spare
            }
            None => Box::new(Batch::new(delivery, OnceLock::new())),
        };
        let Delivery {
            current,
            view,
            part,
            ..
        } = &batch.delivery;
        current
            .layout
            .descriptors_into(view.content(), &part.records, &mut descriptors);
        let region = batch.region();
        let summary = Summary {
            region: [region.cast::<u8>().expose_provenance(), region.len()],
            descriptors: descriptors.as_ptr().expose_provenance(),
            verdicts: batch.verdicts().words().as_ptr().expose_provenance(),
            change: batch.change(),
            len: batch.len() as u32,
            passed: batch.judged().0 as u32,
            link: batch.common_link(),
            in_buffer: view.is_buffer(),
            is_captured: view.is_leased(),
        };
        batch.descriptors = OnceLock::from(descriptors);
        (summary, batch)
    }

    /// Returns a buffer of a dropped batch, if there is one.
    pub(crate) fn spare(&mut self) -> Option<Vec<u8>> {
        self.spare.take()
    }

    /// Whether the receiver was dropped.
    pub(crate) fn is_left(&self) -> bool {
        self.shared.state().left
    }

    /// Takes the sums of the passed packets in batches that waited when the receiver was dropped.
    pub(crate) fn take_unread(&mut self) -> Selected {
        std::mem::take(&mut self.shared.state().unread)
    }

    /// Returns the number of batches that wait or are held.
    pub(crate) fn outstanding(&self) -> usize {
        let state = self.shared.state();
        state.waiting.len() + state.held
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        let spares = std::mem::take(&mut state.spares);
        // A pipe without a writer is readable: its end can be read.
        state.ready = None;
        self.shared.changed(state);
        drop(spares);
    }
}

/// Result of [`Batches::next`].
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(HeldBatch),
    /// No batch arrived in that time.
    Nothing,
    /// The run is over, and all its batches are taken.
    End,
}

impl Batches {
    /// Waits at most `most` for the next batch. Several threads may wait, and each batch goes to one of them. **Cost**: a lock, if a
    /// batch waits.
    #[inline]
    pub fn next(&self, most: Duration) -> Next {
        let mut begun = None;
        let mut state = self.shared.state();
        loop {
            if let Some(batch) = state.waiting.pop_front() {
                state.held += 1;
                state.rest = batch.summary.is_captured;
                state.mark_ready(self.shared.ready.get());
                return Next::Batch(batch);
            }
            let left = most.saturating_sub(begun.get_or_insert_with(Instant::now).elapsed());
            match () {
                () if state.ended => return Next::End,
                () if left.is_zero() => return Next::Nothing,
                () if left > REST && std::mem::take(&mut state.rest) => {
                    drop(state);
                    std::thread::sleep(REST);
                    state = self.shared.state();
                }
                () => state = self.shared.wait(state, left.min(TURN)),
            }
        }
    }

    /// Takes no more batches: waiting batches are dropped and counted, and the run ends.
    pub fn leave(&self) {
        let waiting = {
            let mut state = self.shared.state();
            state.left = true;
            let unread = state.unread();
            if !state.ended {
                let waiting = std::mem::take(&mut state.waiting);
                waiting
                    .iter()
                    .for_each(|batch| state.unread.append(batch.delivery.part.selected.clone()));
                state.waiting = waiting;
            }
            for (sum, count) in state.given.iter_mut().zip(unread) {
                *sum -= count;
            }
            std::mem::take(&mut state.waiting)
        };
        // They are freed here: only a batch that was taken goes back to the run.
        waiting.into_iter().for_each(|mut batch| batch.batch = None);
        self.shared.changed(self.shared.state());
    }

    /// Returns the numbers of packets in the batches that were taken: all, passed, rejected.
    pub fn taken(&self) -> [u64; 3] {
        let state = self.shared.state();
        let unread = state.unread();
        std::array::from_fn(|i| state.given[i] - unread[i])
    }

    /// Returns the numbers of batches that are out of the run and not given back: waiting batches,
    /// and held batches.
    pub fn outstanding(&self) -> (usize, usize) {
        let state = self.shared.state();
        (state.waiting.len(), state.held)
    }

    /// Waits at most `most` until a batch waits to be taken or the run is over. Returns whether that is so.
    pub fn wait(&self, most: Duration) -> bool {
        let begun = Instant::now();
        let mut state = self.shared.state();
        loop {
            let left = most.saturating_sub(begun.elapsed());
            if state.ended || !state.waiting.is_empty() || left.is_zero() {
                return state.ended || !state.waiting.is_empty();
            }
            state = self.shared.wait(state, left.min(TURN));
        }
    }

    /// Returns a descriptor for `poll`: readable while a batch waits, and once the run is over. The caller must not read from it.
    ///
    /// **Cost**: the first call makes a pipe. From then on there is a system call whenever the first batch begins to wait, and when
    /// the last waiting one is taken. **Errors**: no descriptor is available.
    pub fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        let mut state = self.shared.state();
        if let Some(reader) = self.shared.ready.get() {
            return Ok(reader.as_fd());
        }
        let (reader, writer) = pipe()?;
        let reader = self.shared.ready.get_or_init(|| reader);
        state.ready = (!state.ended).then_some(writer);
        state.mark_ready(Some(reader));
        Ok(reader.as_fd())
    }

    /// Returns the number of times that the run had a batch, but the limit of outstanding batches was reached.
    pub fn full(&self) -> u64 {
        self.shared.state().full
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Batch {
    fn new(delivery: Delivery<Stages>, descriptors: OnceLock<Vec<Descriptor>>) -> Self {
        Self {
            delivery,
            descriptors,
            kept: None,
        }
    }

    /// Makes a batch of the packets at `records` of a piece, with their verdicts. The batch shares the memory of the piece, and a
    /// share of `count` while it is out.
    pub(crate) fn kept(
        piece: &Delivery<Stages>,
        records: &[u32],
        verdicts: Bits,
        count: &Arc<()>,
    ) -> Self {
        let passed = verdicts.count_ones();
        let selected = Selected {
            passed,
            filtered: records.len() as u64 - passed,
            ..Selected::default()
        };
        let part = Columns {
            records: records.to_vec(),
            passed: verdicts,
            selected,
            ..Columns::default()
        };
        let current = Arc::clone(&piece.current);
        let delivery = Delivery {
            current,
            view: piece.view.share(),
            last: piece.last,
            part,
        };
        let mut batch = Self::new(delivery, OnceLock::new());
        batch.kept = Some(Arc::clone(count));
        batch
    }

    /// Returns the number of packets, with any verdict.
    pub fn len(&self) -> usize {
        self.delivery.part.records.len()
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the frames, to which offsets of [descriptors](Self::descriptors) are relative. The readable parts are
    /// documented at [`descriptor::region`]. The memory stays in place until the batch is dropped.
    pub fn region(&self) -> *const [u8] {
        descriptor::region(self.delivery.view.content())
    }

    /// Returns the descriptor of each packet. **Cost**: a pulled batch has them; for a batch that
    /// was kept they are made at the first call, in the caller's thread.
    pub fn descriptors(&self) -> &[Descriptor] {
        let Delivery {
            current,
            view,
            part,
            ..
        } = &self.delivery;
        self.descriptors
            .get_or_init(|| current.layout.descriptors(view.content(), &part.records))
    }

    /// Returns the verdicts of the filter: bit i is 1 if packet i passed.
    pub fn verdicts(&self) -> &Bits {
        &self.delivery.part.passed
    }

    /// Returns the verdicts of each split, for a pulled batch: bit i is 1 if packet i passed and matches the split.
    pub fn split_verdicts(&self) -> &[Bits] {
        &self.delivery.part.splits
    }

    /// Returns packet `number` in place; `None` after the last.
    pub fn packet(&self, number: usize) -> Option<Record<'_>> {
        let Delivery {
            current,
            view,
            part,
            ..
        } = &self.delivery;
        current
            .layout
            .record(view.content(), *part.records.get(number)? as usize)
    }

    /// Offsets of the records in the piece.
    pub(crate) fn records(&self) -> &[u32] {
        &self.delivery.part.records
    }

    /// Calls `each` with the records at these offsets, in place.
    pub(crate) fn each_record<'a>(&'a self, at: &[u32], mut each: impl FnMut(Option<Record<'a>>)) {
        let Delivery { current, view, .. } = &self.delivery;
        current
            .layout
            .records(view.content(), at, |_, record| each(record));
    }

    /// Returns the layout of the source at this batch.
    pub fn layout(&self) -> &Layout {
        &self.delivery.current.layout
    }

    fn common_link(&self) -> Option<LinkType> {
        let mut links = self
            .layout()
            .interfaces
            .iter()
            .map(|interface| interface.link);
        let first = links.next()?;
        links.all(|link| link == first).then_some(first)
    }

    /// Returns the number of the latest change for this batch.
    pub fn change(&self) -> u64 {
        self.delivery.current.plan.change()
    }

    /// Returns the numbers of packets that passed, and that did not.
    pub fn judged(&self) -> (u64, u64) {
        let selected = &self.delivery.part.selected;
        (selected.passed, selected.filtered)
    }

    /// Returns the packets that passed, in place, in the order of the source.
    pub fn packets(&self) -> impl Iterator<Item = Record<'_>> {
        let passed = |&number: &usize| self.verdicts().get(number, 1) == 1;
        // Each record was found before, in memory that no process writes to.
        (0..self.len())
            .filter(passed)
            .filter_map(|number| self.packet(number))
    }
}

impl HeldBatch {
    /// Returns what the run's thread wrote down of the batch. The addresses hold until the batch is dropped, wherever it is moved.
    #[inline]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
}

impl std::ops::Deref for HeldBatch {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        self.batch.as_deref().expect("it is there until the drop")
    }
}

impl Drop for HeldBatch {
    #[inline]
    fn drop(&mut self) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        if !self.summary.in_buffer {
            // The memory of a capture returns to the capture here, and a file is unmapped.
            batch.delivery.view.give_back();
        }
        let mut state = self.home.state();
        state.held -= 1;
        let over = if state.ended {
            Some(batch)
        } else {
            state.spares.push(batch);
            None
        };
        self.home.changed(state);
        drop(over);
    }
}
