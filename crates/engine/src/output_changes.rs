//! Changes of outputs: sinks that take the place of others while a run goes on.
//!
//! A thread that controls the run makes the new sink ready, gives the change a number of the sequence that changes of the filter have
//! too, and queues it. The run's thread takes it up between two batches: a sink gets no batch of an earlier number than its own.

use crate::sink::{End, Needs, Sink};
use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_packet::savefile::Layout;

/// An output of a run, by its place in [`Setup`](crate::run::Setup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputSlot {
    /// The main output.
    Main,
    /// The output of the split of this number, from 0 on.
    Split(usize),
}

impl OutputSlot {
    /// Number among all outputs, the main one first.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Main => 0,
            Self::Split(i) => i.saturating_add(1),
        }
    }
}

/// A sink that is to take the place of another.
pub(crate) struct OutputChange {
    /// Number of the change.
    pub change: u64,
    pub slot: OutputSlot,
    pub name: String,
    pub sink: Box<dyn Sink>,
    /// Hears that the sink is in place; is dropped where it will never be.
    pub taken: Sender<()>,
}

/// Why no sink can be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The run is over.
    Over,
    /// There is no such output, or its packets are only counted.
    Missing,
    /// The new sink wants other packets than the one before, or keeps batches where that does not.
    Wants,
    /// An earlier change of this output waits.
    Waiting,
}

/// The changes that the run's thread has not taken up.
#[derive(Default)]
pub(crate) struct OutputChanges(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    over: bool,
    /// What the sink of each output needs, the main one first; `None` if packets are only counted.
    needs: Vec<Option<Needs>>,
    /// Layouts of the captures that the outputs were told of.
    layouts: Vec<Layout>,
    /// At most one for each output.
    waiting: VecDeque<OutputChange>,
}

impl core::fmt::Debug for OutputChanges {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OutputChanges").field("waiting", &self.queue().waiting.len()).finish_non_exhaustive()
    }
}

impl Queue {
    fn check(&self, slot: OutputSlot, sink: &dyn Sink) -> Result<(), Closed> {
        let Some(&Some(before)) = self.needs.get(slot.index()) else { return Err(Closed::Missing) };
        let needs = Needs::of(sink);
        match () {
            () if self.over => Err(Closed::Over),
            () if needs.wanted != before.wanted || needs.keeps && !before.keeps => Err(Closed::Wants),
            () if self.waiting.iter().any(|waiting| waiting.slot == slot) => Err(Closed::Waiting),
            () => Ok(()),
        }
    }
}

impl OutputChanges {
    /// For a run whose outputs need this; `None` if packets are only counted.
    pub fn new(needs: Vec<Option<Needs>>) -> Self {
        Self(Mutex::new(Queue { needs, ..Queue::default() }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Captures of these layouts begin.
    pub fn begin(&self, layouts: &[Layout]) {
        self.queue().layouts = layouts.to_vec();
    }

    /// Makes the file of a sink that is to take this place, and writes the header that the one before has.
    pub fn prepare(&self, slot: OutputSlot, sink: &mut dyn Sink) -> Result<(), Refusal> {
        let layouts = {
            let queue = self.queue();
            queue.check(slot, sink).map_err(Refusal::Closed)?;
            queue.layouts.clone()
        };
        let prepared = sink.open().and_then(|()| {
            if layouts.is_empty() {
                return Ok(());
            }
            layouts.iter().try_for_each(|layout| sink.begin(layout))?;
            sink.start()
        });
        prepared.map_err(Refusal::Sink)
    }

    /// Queues a change that `number` numbers meanwhile: a batch of this number finds it here.
    pub fn push(&self, change: OutputChange, number: impl FnOnce() -> u64) -> Result<u64, Closed> {
        let mut queue = self.queue();
        queue.check(change.slot, change.sink.as_ref())?;
        let number = number();
        queue.waiting.push_back(OutputChange { change: number, ..change });
        Ok(number)
    }

    /// The changes up to number `reached`, in their order.
    pub fn take(&self, reached: u64) -> VecDeque<OutputChange> {
        let mut queue = self.queue();
        let taken = queue.waiting.iter().take_while(|waiting| waiting.change <= reached).count();
        let rest = queue.waiting.split_off(taken);
        std::mem::replace(&mut queue.waiting, rest)
    }

    /// The run is over: gives the changes that were not taken up, and refuses others.
    pub fn end(&self) -> VecDeque<OutputChange> {
        let mut queue = self.queue();
        queue.over = true;
        std::mem::take(&mut queue.waiting)
    }
}

/// Why a sink takes no place.
pub(crate) enum Refusal {
    Closed(Closed),
    Sink(End),
}
