//! A worker: from the records of packets to its counters.

use super::extract::{Batch, Extract, Taker};
use super::keys::KeyChange;
use super::timing::Timing;
use crate::reader::Delivery;
use crate::stages::Stages;
use core::mem::{replace, swap, take};
use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_io::Chunk;
use weir_measure::health;
use weir_measure::{Aggregate, Arrivals, Observation, State};

/// Packets for one worker to measure.
#[derive(Debug)]
pub(super) struct Piece {
    /// Delivery that holds the packets.
    pub delivery: Arc<Delivery<Stages>>,
    /// Range of the delivery's records.
    pub range: Range<usize>,
    /// Latest believed time before the packets, ns.
    pub latest: i64,
    /// Packets whose timestamps are not believed, by their number in `range`, ascending.
    pub jumped: Vec<usize>,
    /// Whether late packets are dropped.
    pub live: bool,
    /// Time of the hand-out, ns since the run began.
    pub handed_ns: u64,
}

impl Piece {
    /// Returns the bytes of the delivery if this is its last held piece.
    pub fn view(self) -> Option<Chunk> {
        Arc::into_inner(self.delivery).map(|delivery| delivery.view)
    }
}

/// A worker: filters, reads, hashes and counts packets.
#[derive(Debug)]
pub(super) struct Worker {
    pub extract: Extract,
    pub aggregate: Aggregate,
    pub timing: Option<Timing>,
    /// Whether the worker sleeps between packets, so that its tables are out of the caches at each wake-up.
    cold: bool,
    under_way: UnderWay,
}

/// Batches whose prefetches are under way: while packets are extracted, the table lines of earlier packets are loaded.
#[derive(Debug)]
struct UnderWay {
    /// Batch whose first lines are prefetched; the second lines are prefetched for its first `noted` packets.
    young: Noted,
    noted: usize,
    /// Batch whose lines are all prefetched.
    old: Noted,
}

/// Packets, and the note of [`Aggregate::prefetch_counts`] for each.
#[derive(Debug, Default)]
struct Noted {
    batch: Batch,
    likely: Vec<u8>,
}

impl UnderWay {
    fn new(batch: usize) -> Self {
        let noted = || Noted {
            batch: Batch::with_capacity(batch),
            likely: vec![0; batch],
        };
        Self {
            young: noted(),
            noted: 0,
            old: noted(),
        }
    }

    /// Prefetches the second lines of up to `most` more packets.
    fn prefetch_counts(&mut self, aggregate: &Aggregate, most: usize) {
        let Self {
            young: Noted { batch, likely },
            noted,
            ..
        } = self;
        let end = batch.packets().len().min(noted.saturating_add(most));
        aggregate.prefetch_counts(&batch.packets()[*noted..end], &mut likely[*noted..end]);
        *noted = end;
    }
}

/// Taker that counts the extracted packets.
struct Counting<'a> {
    under_way: &'a mut UnderWay,
    aggregate: &'a mut Aggregate,
    timing: &'a mut Option<Timing>,
    handed_ns: u64,
    /// Time at which the last batch was done, ns since the run began.
    last: u64,
}

impl Counting<'_> {
    /// Counts a batch.
    fn count(&mut self, batch: &Batch, likely: &[u8]) -> Result<(), weir_measure::Error> {
        let packets = batch.packets();
        self.aggregate.take_with(packets, batch.facts(), likely)?;
        if let Some(timing) = self.timing
            && !packets.is_empty()
        {
            let now = timing.now();
            timing.processed(self.last, now, packets.len());
            timing.done(self.handed_ns, now);
            self.last = now;
        }
        Ok(())
    }

    /// Counts the older batch, and moves the younger one into its place.
    fn step(&mut self) -> Result<(), weir_measure::Error> {
        let mut done = take(&mut self.under_way.old);
        self.count(&done.batch, &done.likely[..done.batch.packets().len()])?;
        done.batch.clear();
        self.under_way.prefetch_counts(self.aggregate, usize::MAX);
        self.under_way.old = replace(&mut self.under_way.young, done);
        self.under_way.noted = 0;
        Ok(())
    }
}

impl Taker for Counting<'_> {
    type Error = weir_measure::Error;

    const FEW: usize = 8;

    fn batch(&mut self, batch: &mut Batch) -> Result<(), weir_measure::Error> {
        self.step()?;
        swap(&mut self.under_way.young.batch, batch);
        Ok(())
    }

    fn ahead(&mut self, packets: &[Observation]) {
        self.under_way
            .prefetch_counts(self.aggregate, packets.len());
        self.aggregate.prefetch_buckets(packets);
    }
}

/// A worker's part of the windows that are complete.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Number of the first window that is not complete.
    pub before: i64,
    pub arrivals: Vec<(i64, Arrivals)>,
    pub states: Vec<(i64, State)>,
    /// Health of windows, if the workers look at it.
    pub health: BTreeMap<i64, health::Report>,
    /// Packet time of a source at its end, ns.
    pub ended: Option<i64>,
    /// Change of keys, if all windows are complete and later packets are counted by other keys.
    pub replaces: Option<Arc<KeyChange>>,
    /// First and last of the windows left out; the arrivals and states then belong to these.
    pub left_out: Option<(i64, i64)>,
}

impl Closed {
    /// Returns the number of windows with a part in this message.
    pub fn windows(&self) -> usize {
        self.arrivals.len().max(self.states.len())
    }
}

impl Worker {
    /// Makes a worker for batches of up to `batch` packets; `cold` if it will sleep between packets.
    pub fn new(
        extract: Extract,
        aggregate: Aggregate,
        timing: Option<Timing>,
        batch: usize,
        cold: bool,
    ) -> Self {
        Self {
            extract,
            aggregate,
            timing,
            cold,
            under_way: UnderWay::new(batch),
        }
    }

    /// Measures the packets of a piece.
    pub fn slice(&mut self, piece: &Piece) -> Result<(), weir_measure::Error> {
        let Self {
            extract,
            aggregate,
            timing,
            under_way,
            cold,
        } = self;
        let last = timing.as_ref().map_or(0, Timing::now);
        let mut counting = Counting {
            under_way,
            aggregate,
            timing,
            handed_ns: piece.handed_ns,
            last,
        };
        if !*cold {
            return extract.slice(piece, &mut |batch: &mut Batch| counting.count(batch, &[]));
        }
        extract.slice(piece, &mut counting)?;
        // Counts the two batches under way.
        counting.step()?;
        counting.step()
    }

    /// Switches the folding of all times into the newest open window on or off. If switched off, closes all open windows and
    /// returns their contents.
    pub fn fold(&mut self, folds: bool) -> Closed {
        self.extract.fold(folds);
        self.aggregate.fold(folds);
        if folds {
            Closed::default()
        } else {
            self.close(i64::MAX)
        }
    }

    /// Closes the windows before number `before`, and returns their contents.
    pub fn close(&mut self, before: i64) -> Closed {
        Closed {
            before,
            arrivals: self.extract.close(before),
            states: self.aggregate.close(before),
            ..Closed::default()
        }
    }

    /// Closes all windows, returns their contents, and switches to other tables.
    pub fn replace(&mut self, change: &Arc<KeyChange>) -> Result<Closed, weir_measure::Error> {
        let closed = self.close(i64::MAX);
        self.take_up(change)?;
        Ok(Closed {
            replaces: Some(Arc::clone(change)),
            ..closed
        })
    }

    /// Switches to other tables; all windows are closed.
    pub fn take_up(&mut self, change: &KeyChange) -> Result<(), weir_measure::Error> {
        self.aggregate.replace(change.aggregate()?);
        self.extract.fit(change.config());
        Ok(())
    }
}
