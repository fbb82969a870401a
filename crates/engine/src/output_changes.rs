//! Changes of outputs: replacement of sinks during a run.
//!
//! A thread that controls the run prepares the new sink, gives the change a number, and queues it. Changes of the filter use the
//! same sequence of numbers. The run's thread applies the change between two batches, so a sink gets no batch with a number below
//! its own.

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
    /// The output of the split with this number, from 0 on.
    Split(usize),
}

impl OutputSlot {
    /// Returns the number among all outputs, the main output first.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Main => 0,
            Self::Split(i) => i.saturating_add(1),
        }
    }
}

/// A sink that replaces another, or the next file of the same sink.
pub(crate) struct OutputChange {
    /// Number of the change.
    pub change: u64,
    pub slot: OutputSlot,
    pub name: String,
    /// The other sink; `None` for the next file.
    pub sink: Option<Box<dyn Sink>>,
    /// Channel to the caller: sends a message once the sink is in place. Dropped if it never will be.
    pub taken: Sender<()>,
}

/// Reason for which a sink cannot be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The run is over.
    Over,
    /// The output does not exist, or its packets are only counted.
    Missing,
    /// The new sink wants other packets than the sink before.
    Wants,
    /// The sink writes no files, so that there is no next one.
    NoFiles,
    /// An earlier change of this output waits.
    Waiting,
}

/// The changes that the run's thread has not applied yet.
#[derive(Default)]
pub(crate) struct OutputChanges(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    over: bool,
    /// Needs of the sink of each output, the main output first; `None` if packets are only counted.
    needs: Vec<Option<Needs>>,
    /// Layouts of the captures announced to the outputs.
    layouts: Vec<Layout>,
    /// Outputs for which a sink is being opened.
    reserved: Vec<OutputSlot>,
    /// Waiting changes, at most one for each output.
    waiting: VecDeque<OutputChange>,
}

impl core::fmt::Debug for OutputChanges {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OutputChanges")
            .field("waiting", &self.queue().waiting.len())
            .finish_non_exhaustive()
    }
}

impl Queue {
    fn check(&self, slot: OutputSlot, sink: Option<&dyn Sink>) -> Result<(), Closed> {
        let Some(&Some(before)) = self.needs.get(slot.index()) else {
            return Err(Closed::Missing);
        };
        let wants = sink.map(|sink| sink.needs().wanted);
        match () {
            () if self.over => Err(Closed::Over),
            () if wants.is_none() && !before.has_files => Err(Closed::NoFiles),
            () if wants.is_some_and(|wants| wants != before.wanted) => Err(Closed::Wants),
            () if self.waiting.iter().any(|waiting| waiting.slot == slot) => Err(Closed::Waiting),
            () if self.reserved.contains(&slot) => Err(Closed::Waiting),
            () => Ok(()),
        }
    }
}

impl OutputChanges {
    /// Makes the queue for a run whose outputs have these needs; `None` if packets are only counted.
    pub fn new(needs: Vec<Option<Needs>>) -> Self {
        Self(Mutex::new(Queue {
            needs,
            ..Queue::default()
        }))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the layouts of the captures that begin.
    pub fn begin(&self, layouts: &[Layout]) {
        self.queue().layouts = layouts.to_vec();
    }

    /// Makes the file of a new sink with the header that the sink before has, and queues the change. `number` gives its number while
    /// the queue is locked, so a batch of this number finds the change here.
    pub fn add(
        &self,
        mut change: OutputChange,
        number: impl FnOnce() -> u64,
    ) -> Result<u64, Refusal> {
        let slot = change.slot;
        {
            let mut queue = self.queue();
            queue
                .check(slot, change.sink.as_deref())
                .map_err(Refusal::Closed)?;
            queue.reserved.push(slot);
        }
        let opened = match &mut change.sink {
            Some(sink) => self.open(sink.as_mut()),
            None => Ok(self.queue()),
        };
        let mut queue = match opened {
            Ok(queue) => queue,
            Err(refusal) => {
                change.sink.into_iter().for_each(|mut sink| sink.abandon());
                self.queue().reserved.retain(|reserved| *reserved != slot);
                return Err(refusal);
            }
        };
        queue.reserved.retain(|reserved| *reserved != slot);
        let number = number();
        queue.waiting.push_back(OutputChange {
            change: number,
            ..change
        });
        Ok(number)
    }

    /// Opens a sink and announces all captures to it. Returns the queue, locked, in which no further capture has begun.
    fn open(&self, sink: &mut dyn Sink) -> Result<MutexGuard<'_, Queue>, Refusal> {
        sink.open().map_err(Refusal::Sink)?;
        let mut announced = 0;
        loop {
            let layouts = {
                let queue = self.queue();
                match () {
                    () if queue.over => return Err(Refusal::Closed(Closed::Over)),
                    () if queue.layouts.len() == announced => return Ok(queue),
                    () => queue.layouts.clone(),
                }
            };
            announced = layouts.len();
            layouts
                .iter()
                .try_for_each(|layout| sink.begin(layout))
                .and_then(|()| sink.start())
                .map_err(Refusal::Sink)?;
        }
    }

    /// Takes the changes up to number `reached`, in their order.
    pub fn take(&self, reached: u64) -> VecDeque<OutputChange> {
        let mut queue = self.queue();
        let taken = queue
            .waiting
            .iter()
            .take_while(|waiting| waiting.change <= reached)
            .count();
        let rest = queue.waiting.split_off(taken);
        std::mem::replace(&mut queue.waiting, rest)
    }

    /// Ends the changes with the run: returns those not applied, and refuses further ones.
    pub fn end(&self) -> VecDeque<OutputChange> {
        let mut queue = self.queue();
        queue.over = true;
        std::mem::take(&mut queue.waiting)
    }
}

/// Reason for which a new sink is refused.
pub(crate) enum Refusal {
    Closed(Closed),
    Sink(End),
}
