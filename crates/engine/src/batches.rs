//! Batches that a front end takes out of a run, when it wants them.
//!
//! A batch holds all packets of a piece of a source, where they lie: a region of memory, descriptors of the frames in it, and masks of
//! the verdicts. What a kernel's filter rejected before is in no batch.
//!
//! If the limit of outstanding batches is reached, the run waits. Files then wait too; a capture drops packets for which its ring has
//! no room, and counts them. A batch that is dropped gives its memory back, in any order and from any thread.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_packet::descriptor::{self, Descriptor};
use weir_packet::savefile::{Layout, Record};
use weir_pipeline::Delivery;
use weir_pipeline::select::Selected;
use weir_pipeline::stages::{Bits, Columns, Stages};

/// Most batches that may be out at once: a byte for each fits into a pipe.
pub const MOST: usize = 4096;

/// A wait without end is cut into such.
const TURN: Duration = Duration::from_secs(3600);

/// How often a run that waits for room looks whether it was told to end.
const LOOK: Duration = Duration::from_millis(20);

/// How long a run that was told to end waits for room, in all: what finds none by then is dropped, and counted.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Delivery<Stages>>,
    /// Batches that the front end holds.
    held: usize,
    /// How often the run found no room.
    full: u64,
    /// The run is over.
    ended: bool,
    /// The receiver was dropped.
    left: bool,
    /// Packets that passed, in batches that waited then.
    unread: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is room, or something to take.
    changed: Condvar,
    most: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, for `most` at most.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The end of a run that hands batches out.
#[derive(Debug)]
pub(crate) struct BatchSender {
    shared: Arc<Shared>,
    /// When it was found that the run was told to end.
    stopped: Option<Instant>,
    /// A byte for each batch that waits.
    ready: PipeWriter,
}

/// The end that takes them.
#[derive(Debug)]
pub struct Batches {
    shared: Arc<Shared>,
    ready: PipeReader,
}

/// A batch: packets of one source in its order, with the memory that they lie in. Packets are numbered from 0 on.
///
/// One that is pulled holds what the filter passed and what it rejected, and one that a sink [keeps](crate::sink::Packets::keep) what
/// the sink was handed; masks tell them apart. Dropping it gives the memory back, in any order and from any thread.
#[derive(Debug)]
pub struct Batch {
    delivery: Delivery<Stages>,
    _counted: Counted,
    descriptors: OnceLock<Vec<Descriptor>>,
    splits: OnceLock<Vec<Bits>>,
}

/// Where a batch is counted while it is out.
#[derive(Debug)]
enum Counted {
    /// Among those that are pulled.
    Pulled(Arc<Shared>),
    /// By the number of shares of this.
    Kept(#[expect(dead_code, reason = "a share that counts")] Arc<()>),
}

/// Both ends; at most `most` batches, up to [`MOST`], wait or are held at once.
pub(crate) fn channel(most: usize) -> io::Result<(BatchSender, Batches)> {
    let shared = Shared { state: Mutex::default(), changed: Condvar::new(), most: most.clamp(1, MOST) };
    let (shared, (reader, writer)) = (Arc::new(shared), pipe()?);
    Ok((BatchSender { shared: Arc::clone(&shared), stopped: None, ready: writer }, Batches { shared, ready: reader }))
}

impl BatchSender {
    /// Hands a batch out, and waits for room, not for long once `stop` is set. Gives it back if nobody wants it.
    pub(crate) fn give(&mut self, delivery: Delivery<Stages>, stop: &AtomicBool) -> Option<Delivery<Stages>> {
        let mut state = self.shared.state();
        let is_full = |state: &State| state.waiting.len() + state.held >= self.shared.most;
        state.full += u64::from(is_full(&state));
        while is_full(&state) && !state.left {
            if stop.load(Ordering::Relaxed) && self.stopped.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                break;
            }
            state = self.shared.wait(state, LOOK);
        }
        if state.left || is_full(&state) {
            return Some(delivery);
        }
        state.waiting.push_back(delivery);
        drop(state);
        self.shared.changed.notify_all();
        // There is room for it; whoever waits at the other end may be gone.
        let _ = self.ready.write_all(&[0]);
        None
    }

    /// The receiver was dropped.
    pub(crate) fn is_left(&self) -> bool {
        self.shared.state().left
    }

    /// Packets that passed, in batches that waited when the receiver was dropped.
    pub(crate) fn unread(&self) -> u64 {
        self.shared.state().unread
    }

    /// Batches that wait or are held.
    pub(crate) fn outstanding(&self) -> usize {
        let state = self.shared.state();
        state.waiting.len() + state.held
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
    }
}

/// What [`Batches::next`] came to.
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(Box<Batch>),
    /// None came in that time.
    Nothing,
    /// The run is over, and all its batches are taken.
    End,
}

impl Batches {
    /// The next batch, within `most`.
    pub fn next(&mut self, most: Duration) -> Next {
        let begun = Instant::now();
        let mut state = self.shared.state();
        loop {
            if let Some(delivery) = state.waiting.pop_front() {
                state.held += 1;
                drop(state);
                // Written by now, or soon.
                let _ = self.ready.read_exact(&mut [0]);
                return Next::Batch(Box::new(Batch::new(delivery, Counted::Pulled(Arc::clone(&self.shared)))));
            }
            let left = most.saturating_sub(begun.elapsed());
            match () {
                () if state.ended => return Next::End,
                () if left.is_zero() => return Next::Nothing,
                () => state = self.shared.wait(state, left.min(TURN)),
            }
        }
    }

    /// Batches that are out of the run and not given back: those that wait, and those that are held.
    pub fn outstanding(&self) -> (usize, usize) {
        let state = self.shared.state();
        (state.waiting.len(), state.held)
    }

    /// How often the run had a batch and found as many out as may be.
    pub fn full(&self) -> u64 {
        self.shared.state().full
    }
}

/// Readable while a batch waits, and once the run is over: for `poll`. Nobody else may read from it.
impl AsFd for Batches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.shared.state();
            state.left = true;
            if !state.ended {
                state.unread = state.waiting.iter().map(|delivery| delivery.part.selected.passed).sum();
            }
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.shared.changed.notify_all();
    }
}

impl Batch {
    fn new(delivery: Delivery<Stages>, counted: Counted) -> Self {
        Self { delivery, _counted: counted, descriptors: OnceLock::new(), splits: OnceLock::new() }
    }

    /// The packets at `records` of a piece, with the verdicts on them; it shares the memory of the piece. `count` is shared while it is out.
    pub(crate) fn kept(piece: &Delivery<Stages>, records: &[u32], verdicts: Bits, count: &Arc<()>) -> Self {
        let passed = verdicts.count_ones();
        let selected = Selected { passed, filtered: records.len() as u64 - passed, ..Selected::default() };
        let part = Columns { records: records.to_vec(), kept: verdicts, times: None, selected };
        let current = Arc::clone(&piece.current);
        let delivery = Delivery { current, view: piece.view.share(), last: piece.last, part };
        Self::new(delivery, Counted::Kept(Arc::clone(count)))
    }

    /// Number of packets, whatever the verdicts on them.
    pub fn len(&self) -> usize {
        self.delivery.part.records.len()
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the frames lie in, to which offsets of [descriptors](Self::descriptors) are relative: see [`descriptor::region`],
    /// which says what of it may be read. It stays where it is until the batch is dropped.
    pub fn region(&self) -> *const [u8] {
        descriptor::region(self.delivery.view.content())
    }

    /// Descriptor of each packet. **Cost**: made at the first call, in the caller's thread.
    pub fn descriptors(&self) -> &[Descriptor] {
        let Delivery { current, view, part, .. } = &self.delivery;
        self.descriptors.get_or_init(|| current.layout.descriptors(view.content(), &part.records))
    }

    /// Verdicts of the filter: bit i is 1 if packet i passed.
    pub fn verdicts(&self) -> &Bits {
        &self.delivery.part.kept
    }

    /// Verdicts of each split, in a batch that is pulled: bit i is 1 if packet i passed and matches the split. **Cost**: made at the first call, in the caller's
    /// thread.
    pub fn split_verdicts(&self) -> &[Bits] {
        let part = &self.delivery.part;
        self.splits.get_or_init(|| {
            part.selected.splits.iter().map(|split| Bits::marking(&part.records, &split.records)).collect()
        })
    }

    /// Packet `number` where it lies; `None` behind the last.
    pub fn packet(&self, number: usize) -> Option<Record<'_>> {
        let Delivery { current, view, part, .. } = &self.delivery;
        current.layout.record(view.content(), *part.records.get(number)? as usize)
    }

    /// How the source is laid out here.
    pub fn layout(&self) -> &Layout {
        &self.delivery.current.layout
    }

    /// Number of the latest change that it was judged under.
    pub fn change(&self) -> u64 {
        self.delivery.current.plan.change()
    }

    /// Packets of it that passed, and that did not.
    pub fn judged(&self) -> (u64, u64) {
        let selected = &self.delivery.part.selected;
        (selected.passed, selected.filtered)
    }

    /// The packets that passed, in the order of the source, where they lie.
    pub fn packets(&self) -> impl Iterator<Item = Record<'_>> {
        let passed = |&number: &usize| self.verdicts().get(number, 1) == 1;
        // Found before, in memory that nobody writes to.
        (0..self.len()).filter(passed).filter_map(|number| self.packet(number))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Self::Pulled(shared) = self {
            shared.state().held -= 1;
            shared.changed.notify_all();
        }
    }
}
