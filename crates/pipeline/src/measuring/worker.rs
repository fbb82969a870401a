//! One worker's whole way: from the places of packets to its counters.

use super::front::Front;
use super::locate::Locate;
use super::timing::Timing;
use crate::reader::Delivery;
use core::ops::Range;
use std::sync::Arc;
use weir_io::View;
use weir_measure::{Arrivals, Back, State};

/// Packets that one worker is to measure.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where they lie.
    pub delivery: Arc<Delivery<Locate>>,
    /// Which of its records.
    pub range: Range<usize>,
    /// The latest time before them.
    pub latest: i64,
    /// When they were handed out.
    pub handed_ns: u64,
}

impl Piece {
    /// The bytes of the delivery, if this is the last of its pieces that is held.
    pub fn view(self) -> Option<View> {
        Arc::into_inner(self.delivery).map(|delivery| delivery.view)
    }
}

/// Filters, reads, hashes and counts.
#[derive(Debug)]
pub(super) struct Worker {
    pub front: Front,
    pub back: Back,
    pub timing: Option<Timing>,
}

/// What a worker knows of windows that are complete.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Windows before this number are complete.
    pub before: i64,
    pub arrivals: Vec<(i64, Arrivals)>,
    pub states: Vec<(i64, State)>,
}

impl Worker {
    /// Measures packets.
    pub fn slice(&mut self, piece: &Piece) -> Result<(), weir_measure::Error> {
        let Self { front, back, timing } = self;
        let Piece { delivery, range, latest, handed_ns } = piece;
        let records = &delivery.part.records[range.clone()];
        let mut last = timing.as_ref().map_or(0, Timing::now);
        front.slice(&delivery.current, delivery.view.bytes(), records, *latest, |batch| {
            back.take(batch.packets())?;
            if let Some(timing) = timing {
                let now = timing.now();
                timing.processed(last, now, batch.packets().len());
                timing.done(*handed_ns, now);
                last = now;
            }
            Ok(())
        })
    }

    /// Gives away what it knows of the windows before number `before`.
    pub fn close(&mut self, before: i64) -> Closed {
        Closed { before, arrivals: self.front.close(before), states: self.back.close(before) }
    }
}
