//! Design `rss` on live sources: each worker has a source of its own, a queue of an interface or a share of its packets, and
//! does everything to its packets in one thread. Nothing is handed from thread to thread but what is known of windows.

use super::clock::{Act, Booked, Clock};
use super::locate::Locate;
use super::room::Gate;
use super::timing::Timing;
use super::worker::{Closed, Worker};
use super::{Ended, Goodbye, Measured};
use crate::reader::{Reader, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

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
    pub gate: Gate,
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
            let asked = Instant::now();
            let step = self.reader.step();
            let Self { id, worker, clock, gate, say, .. } = &mut self;
            let handed_ns = worker.timing.as_ref().map_or(0, Timing::now);
            let mut act = |act| {
                match act {
                    Act::Begun(_) => {}
                    // Nothing is gone from the memory of a capture.
                    Act::Measure(piece) => _ = worker.slice(&piece)?,
                    Act::Close(before) => {
                        if let Some(closed) = gate.close(worker, before) {
                            close(*id, closed, say);
                        }
                    }
                }
                Ok::<_, weir_measure::Error>(())
            };
            match step {
                Step::Delivery(delivery) => clock.take(delivery, handed_ns, &mut act)?,
                Step::Quiet => clock.quiet(asked, &mut act)?,
                Step::End => break,
            }
            // Nobody waits for the memory of a ring: that is back where it came from.
            clock.freed().for_each(drop);
            self.book(&mut booked);
        }
        self.book(&mut booked);
        let Self { id, reader, mut worker, clock, gate, say, .. } = self;
        close(id, Closed { ended: clock.ended(), ..gate.end(&mut worker) }, &say);
        let Worker { back, timing, .. } = worker;
        let (way, layout) = (reader.way(), reader.layout().cloned());
        let measured = Measured { way, report: reader.into_report(), layout };
        Ok((measured, Ended { processed: back.taken(), timing }))
    }

    fn book(&mut self, booked: &mut Booked) {
        self.sight.note(&self.reader);
        if let Some(before) = booked.book(self.reader.report().live) {
            self.worker.front.lose(self.clock.time(), before);
        }
    }
}

fn close(id: usize, closed: Closed, say: &Sender<(usize, Word)>) {
    // Who hears nothing more has ended the run.
    let _ = say.send((id, Word::Closed(closed)));
}
