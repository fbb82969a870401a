//! One worker's whole way: from the places of packets to its counters.

use super::extract::{Batch, Extract, Taker};
use super::keys::KeyChange;
use super::timing::Timing;
use crate::handed::Gone;
use crate::reader::Delivery;
use crate::stages::Stages;
use core::mem::{replace, swap, take};
use core::ops::Range;
use std::sync::Arc;
use weir_io::Chunk;
use weir_measure::{Aggregate, Arrivals, Observation, State};

/// Packets that one worker is to measure.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where they lie.
    pub delivery: Arc<Delivery<Stages>>,
    /// Which of its records.
    pub range: Range<usize>,
    /// The latest believed time before them.
    pub latest: i64,
    /// Those whose stamps are not believed, by their number in `range`, ascending.
    pub jumped: Vec<usize>,
    /// Late packets are dropped.
    pub live: bool,
    /// When they were handed out.
    pub handed_ns: u64,
}

impl Piece {
    /// The bytes of the delivery, if this is the last of its pieces that is held.
    pub fn view(self) -> Option<Chunk> {
        Arc::into_inner(self.delivery).map(|delivery| delivery.view)
    }
}

/// Filters, reads, hashes and counts.
#[derive(Debug)]
pub(super) struct Worker {
    pub extract: Extract,
    pub aggregate: Aggregate,
    pub timing: Option<Timing>,
    /// It sleeps between packets, and finds its tables out of the caches when it wakes.
    cold: bool,
    under_way: UnderWay,
}

/// Batches whose memory is on its way: while packets are extracted, lines of the tables come for those before them.
#[derive(Debug)]
struct UnderWay {
    /// The first lines of its packets are asked for, and the second ones of as many as are `noted`.
    young: Noted,
    noted: usize,
    /// All is asked for.
    old: Noted,
}

/// Packets, and what [`Aggregate::prefetch_counts`] noted of each.
#[derive(Debug, Default)]
struct Noted {
    batch: Batch,
    likely: Vec<u8>,
}

impl UnderWay {
    fn new(batch: usize) -> Self {
        let noted = || Noted { batch: Batch::with_capacity(batch), likely: vec![0; batch] };
        Self { young: noted(), noted: 0, old: noted() }
    }

    /// Asks for the second lines of up to `most` packets more.
    fn prefetch_counts(&mut self, aggregate: &Aggregate, most: usize) {
        let Self { young: Noted { batch, likely }, noted, .. } = self;
        let end = batch.packets().len().min(noted.saturating_add(most));
        aggregate.prefetch_counts(&batch.packets()[*noted..end], &mut likely[*noted..end]);
        *noted = end;
    }
}

/// Counts the packets that are extracted.
struct Counting<'a> {
    under_way: &'a mut UnderWay,
    aggregate: &'a mut Aggregate,
    timing: &'a mut Option<Timing>,
    handed_ns: u64,
    /// When the last batch was done.
    last: u64,
}

impl Counting<'_> {
    /// Counts a batch.
    fn count(&mut self, batch: &Batch, likely: &[u8]) -> Result<(), weir_measure::Error> {
        let packets = batch.packets();
        self.aggregate.take(packets, likely)?;
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

    /// Counts the oldest batch, and takes the other one on.
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
        self.under_way.prefetch_counts(self.aggregate, packets.len());
        self.aggregate.prefetch_buckets(packets);
    }
}

/// What a worker knows of windows that are complete.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Windows before this number are complete.
    pub before: i64,
    pub arrivals: Vec<(i64, Arrivals)>,
    pub states: Vec<(i64, State)>,
    /// The time that a source had come to when it ended.
    pub ended: Option<i64>,
    /// All windows are complete, and what comes is counted by other keys.
    pub replaces: Option<Arc<KeyChange>>,
    /// The first and the last of windows that are left out. What is known here belongs to them.
    pub left_out: Option<(i64, i64)>,
}

impl Closed {
    /// Windows of which something is known here.
    pub fn windows(&self) -> usize {
        self.arrivals.len().max(self.states.len())
    }
}

impl Worker {
    /// A worker for batches of up to `batch` packets; `cold` if it will sleep between packets.
    pub fn new(extract: Extract, aggregate: Aggregate, timing: Option<Timing>, batch: usize, cold: bool) -> Self {
        Self { extract, aggregate, timing, cold, under_way: UnderWay::new(batch) }
    }

    /// Measures packets. Those that are not in the file any more are told of.
    pub fn slice(&mut self, piece: &Piece) -> Result<Option<Gone>, weir_measure::Error> {
        let Self { extract, aggregate, timing, under_way, cold } = self;
        let last = timing.as_ref().map_or(0, Timing::now);
        let mut counting = Counting { under_way, aggregate, timing, handed_ns: piece.handed_ns, last };
        if !*cold {
            return extract.slice(piece, &mut |batch: &mut Batch| counting.count(batch, &[]));
        }
        let gone = extract.slice(piece, &mut counting)?;
        // The two batches that are under way.
        counting.step()?;
        counting.step()?;
        Ok(gone)
    }

    /// The newest open window stands for all times from now on, or no more: then what is known of all open windows comes out.
    pub fn fold(&mut self, folds: bool) -> Closed {
        self.extract.fold(folds);
        self.aggregate.fold(folds);
        if folds { Closed::default() } else { self.close(i64::MAX) }
    }

    /// Gives away what it knows of the windows before number `before`.
    pub fn close(&mut self, before: i64) -> Closed {
        Closed {
            before,
            arrivals: self.extract.close(before),
            states: self.aggregate.close(before),
            ..Closed::default()
        }
    }

    /// Gives away what it knows of all windows, and goes on with other tables.
    pub fn replace(&mut self, change: &Arc<KeyChange>) -> Result<Closed, weir_measure::Error> {
        let closed = self.close(i64::MAX);
        self.aggregate.replace(change.aggregate()?);
        Ok(Closed { replaces: Some(Arc::clone(change)), ..closed })
    }
}
