//! Design `rss` on live sources: each worker has a source of its own, a queue of an interface or a share of its packets, and
//! does everything to its packets in one thread. Nothing is handed from thread to thread but what is known of windows.

use super::clock::{Booked, Clock};
use super::locate::Locate;
use super::worker::{Closed, Piece, Worker};
use super::{Ended, Goodbye, Measured};
use crate::reader::{Reader, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// What a lane says.
pub(super) enum Word {
    /// What it knows of windows that are complete.
    Closed(Closed),
    /// It is at its end; all its windows were closed before.
    Ended(Box<(Measured, Ended)>),
    Failed(weir_measure::Error),
    Died,
}

/// What a lane has come to, for those who look in.
#[derive(Debug, Default)]
pub struct Sight {
    /// Packets that reached the source.
    pub received: AtomicU64,
    /// Packets that were delivered.
    pub delivered: AtomicU64,
    /// Packets that a filter before us rejected.
    pub filtered: AtomicU64,
    /// Packets for which there was no room.
    pub dropped: AtomicU64,
}

impl Sight {
    fn note(&self, reader: &Reader<Locate>) {
        let Some(counts) = reader.report().live else { return };
        self.received.store(counts.received, Ordering::Relaxed);
        self.delivered.store(counts.handed_over, Ordering::Relaxed);
        self.filtered.store(counts.filtered.unwrap_or(0), Ordering::Relaxed);
        self.dropped.store(counts.dropped, Ordering::Relaxed);
    }
}

pub(super) struct Lane {
    pub id: usize,
    pub reader: Reader<Locate>,
    pub worker: Worker,
    pub clock: Clock,
    pub sight: Arc<Sight>,
    pub say: Sender<(usize, Word)>,
}

impl Lane {
    /// Measures until the source ends.
    pub fn run(self) {
        let (id, say) = (self.id, self.say.clone());
        let _goodbye = Goodbye(|| drop(say.send((id, Word::Died))));
        let word = self.measure().map_or_else(Word::Failed, |ended| Word::Ended(Box::new(ended)));
        // Without anybody to tell, there is nobody who waits.
        let _ = say.send((id, word));
    }

    fn measure(mut self) -> Result<(Measured, Ended), weir_measure::Error> {
        let mut booked = Booked::default();
        loop {
            let closes = match self.reader.step() {
                Step::Delivery(delivery) => self.pieces(delivery)?,
                Step::Quiet => self.clock.quiet(),
                Step::End => break,
            };
            self.book(&mut booked);
            if let Some(before) = closes {
                self.close(before);
            }
        }
        self.book(&mut booked);
        self.close(i64::MAX);
        let Self { reader, worker: Worker { back, timing, .. }, .. } = self;
        let measured = Measured { way: reader.way(), report: reader.into_report(), changed: false };
        Ok((measured, Ended { processed: back.taken(), timing }))
    }

    /// Measures a delivery; gives the first window that stays open, if that is a new one.
    fn pieces(&mut self, delivery: crate::Delivery<Locate>) -> Result<Option<i64>, weir_measure::Error> {
        let handed_ns = self.worker.timing.as_ref().map_or(0, |timing| timing.now());
        let cuts = self.clock.cuts(&delivery);
        let delivery = Arc::new(delivery);
        let (mut from, mut closes) = (0, None);
        for (to, latest) in cuts {
            if let Some(before) = closes.take() {
                self.close(before);
            }
            let before = self.clock.latest;
            self.worker.slice(&Piece {
                delivery: Arc::clone(&delivery),
                range: from..to,
                latest: before,
                handed_ns,
            })?;
            closes = self.clock.pass(latest);
            from = to;
        }
        self.clock.delivered();
        Ok(closes)
    }

    fn book(&mut self, booked: &mut Booked) {
        self.sight.note(&self.reader);
        if let Some(before) = booked.book(self.reader.report().live) {
            self.worker.front.lose(self.clock.time(), before);
        }
    }

    fn close(&mut self, before: i64) {
        // Who hears nothing more has ended the run.
        let _ = self.say.send((self.id, Word::Closed(self.worker.close(before))));
    }
}
