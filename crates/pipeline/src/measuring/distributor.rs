//! Designs `async` and `sync`: a distributor reads and filters packets, and feeds one bounded ring per worker.
//!
//! The marks for the end of a window and the end of a batch keep their place among the packets, because they travel in the same
//! ring. If a ring is full, the distributor waits, so no packet of a file is lost.

use super::extract::{Batch, Extract};
use super::idle::Idle;
use super::keys::KeyChange;
use super::timing::Timing;
use super::worker::{Closed, Piece};
use super::{Distribute, Ended, Event, Failure, Goodbye, WorkerPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_measure::{Aggregate, KeyKind, Kind, Observation};
use weir_memory::ring::{self, Consumer, Producer};
use weir_packet::flow::{Facts, Hasher};

/// Capacity of a ring, packets: 256 KiB.
pub(super) const RING: usize = 4096;

/// Message of a worker.
enum Message {
    Closed(Closed),
    Ended(Ended),
    Failed(weir_measure::Error),
    Died,
}

/// The distributor's side of one worker.
struct Queue {
    ring: Option<Producer<Observation>>,
    /// Changes of keys, which [`Observation::replace`] announces.
    changes: Sender<Arc<KeyChange>>,
    /// Packets to be pushed together, each after its facts if there are any.
    staged: Vec<Observation>,
    /// Number of packets among them.
    packets: usize,
    /// Number of batches handed out.
    marks: u64,
    /// Number of batches done, counted by the worker.
    done: Arc<AtomicU64>,
    /// Number of packets handed out.
    handed: u64,
}

/// The distributor and its queues.
pub(super) struct Distributor {
    extract: Extract,
    queues: Vec<Queue>,
    rule: Rule,
    batch: usize,
    /// Whether the distributor waits for all workers after each batch.
    sync: bool,
    timing: Option<Timing>,
    words: Receiver<(usize, Message)>,
}

/// Rule that chooses a worker.
struct Rule {
    distribute: Distribute,
    hasher: Hasher,
    /// State of the pseudo-random sequence.
    random: u64,
}

impl Rule {
    #[inline]
    fn worker(&mut self, packet: &Observation, workers: usize) -> usize {
        let hash = match (self.distribute, packet.kind()) {
            (Distribute::Flow, Kind::Flow) => self.hasher.flow(&packet.flow).symmetric,
            (Distribute::Address, Kind::Flow) => {
                self.hasher.plain(&KeyKind::DST.project(&packet.flow))
            }
            (Distribute::Flow | Distribute::Address, _) => 0,
            (Distribute::Random, _) => {
                self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
                self.random ^ self.random >> 32
            }
        };
        // Sketches use the bits of the hash too. If the same bits chose the worker, each worker would use only a part of its table.
        let mixed = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        ((mixed * workers as u64) >> 32) as usize
    }
}

/// Settings of a distributor.
pub(super) struct Setting<'a> {
    pub distribute: Distribute,
    pub hasher: Hasher,
    pub batch: usize,
    pub sync: bool,
    pub timing: Option<Timing>,
    pub cpus: &'a [usize],
    pub request: &'a weir_memory::Request,
}

impl Distributor {
    pub fn start(
        extract: Extract,
        aggregates: Vec<Aggregate>,
        setting: Setting<'_>,
    ) -> Result<Self, Failure> {
        let Setting {
            distribute,
            hasher,
            batch,
            sync,
            timing,
            cpus,
            request,
        } = setting;
        let (say, words) = channel();
        let mut queues = Vec::with_capacity(aggregates.len());
        for (id, aggregate) in aggregates.into_iter().enumerate() {
            let (ring, packets) =
                ring::channel(RING, request).map_err(weir_measure::Error::from)?;
            let done = Arc::new(AtomicU64::new(0));
            let (other_keys, changes) = channel();
            let (timing, say) = (timing.clone(), say.clone());
            let worker = Worker {
                id,
                aggregate,
                packets,
                changes,
                done: Arc::clone(&done),
                timing,
                say,
                apart: Apart::default(),
            };
            super::spawn(cpus, id, move || worker.serve(batch))?;
            let staged = Vec::with_capacity(2 * batch + 1);
            queues.push(Queue {
                ring: Some(ring),
                changes: other_keys,
                staged,
                packets: 0,
                marks: 0,
                done,
                handed: 0,
            });
        }
        let rule = Rule {
            distribute,
            hasher,
            random: 0,
        };
        Ok(Self {
            extract,
            queues,
            rule,
            batch,
            sync,
            timing,
            words,
        })
    }

    /// Turns a worker's message into an event; fails if the worker failed or lost packets.
    fn event(&mut self, (worker, word): (usize, Message)) -> Result<Event, Failure> {
        match word {
            Message::Closed(closed) => Ok(Event::Closed(worker, closed)),
            Message::Ended(ended) if ended.processed == self.queues[worker].handed => {
                Ok(Event::Ended(ended))
            }
            Message::Ended(ended) => Err(Failure::Lost {
                worker,
                handed: self.queues[worker].handed,
                processed: ended.processed,
            }),
            Message::Failed(error) => Err(Failure::Later(error)),
            Message::Died => Err(Failure::Panic(worker)),
        }
    }

    /// Puts a control mark into all rings.
    fn announce(&mut self, control: Observation) -> Result<(), Failure> {
        for queue in &mut self.queues {
            queue.staged.push(control);
            if let Err(failure) = queue.push() {
                return Err(self.reason(failure));
            }
        }
        Ok(())
    }

    /// Returns the reason for which a worker is gone, from its last message; else `failure`.
    fn reason(&mut self, failure: Failure) -> Failure {
        if matches!(failure, Failure::Worker) {
            while let Ok(word) = self.words.try_recv() {
                if let Err(said) = self.event(word) {
                    return said;
                }
            }
        }
        failure
    }

    /// Filters a piece and distributes its packets.
    fn hand_out(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure> {
        let Self {
            extract,
            queues,
            rule,
            batch: size,
            sync,
            timing,
            ..
        } = self;
        let stamp = |timing: &Option<Timing>| match timing {
            Some(timing) => Some(timing.now()),
            None => sync.then_some(0),
        };
        let mut hand_out = |batch: &mut Batch| {
            let now = stamp(timing);
            distribute(queues, rule, batch, *size, now)?;
            if *sync {
                queues.iter_mut().try_for_each(|queue| queue.flush(now))?;
                queues.iter().try_for_each(Queue::wait)?;
            }
            Ok::<_, Failure>(())
        };
        extract.slice(&piece, &mut hand_out)?;
        let now = stamp(timing);
        queues.iter_mut().try_for_each(|queue| queue.flush(now))?;
        events.push(Event::Piece(piece.view()));
        Ok(())
    }
}

impl Queue {
    /// Pushes the staged packets, then the mark if there is one. While the ring is full, waits.
    fn flush(&mut self, mark: Option<u64>) -> Result<(), Failure> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.handed += self.packets as u64;
        self.packets = 0;
        if let Some(stamp) = mark {
            self.marks += 1;
            self.staged.push(Observation::mark(stamp));
        }
        self.push()
    }

    fn push(&mut self) -> Result<(), Failure> {
        let ring = self.ring.as_mut().ok_or(Failure::Worker)?;
        let mut idle = Idle::default();
        let mut rest = &self.staged[..];
        while !rest.is_empty() {
            let pushed = ring.push(rest);
            rest = &rest[pushed..];
            if pushed > 0 {
                idle.reset();
            } else if ring.is_closed() {
                return Err(Failure::Worker);
            } else {
                idle.pause();
            }
        }
        self.staged.clear();
        Ok(())
    }

    /// Waits until the worker has done all batches.
    fn wait(&self) -> Result<(), Failure> {
        let ring = self.ring.as_ref().ok_or(Failure::Worker)?;
        let mut idle = Idle::default();
        while self.done.load(Ordering::Acquire) < self.marks {
            if ring.is_closed() {
                return Err(Failure::Worker);
            }
            idle.pause();
        }
        Ok(())
    }
}

/// Distributes a batch to the queues.
fn distribute(
    queues: &mut [Queue],
    rule: &mut Rule,
    batch: &Batch,
    size: usize,
    stamp: Option<u64>,
) -> Result<(), Failure> {
    let facts = batch.facts();
    for (i, packet) in batch.packets().iter().enumerate() {
        let queue = &mut queues[rule.worker(packet, queues.len())];
        if let Some(facts) = facts.get(i) {
            queue.staged.push(Observation::of_facts(facts));
        }
        queue.staged.push(*packet);
        queue.packets += 1;
        if queue.packets >= size {
            queue.flush(stamp)?;
        }
    }
    Ok(())
}

impl WorkerPool for Distributor {
    fn members(&self) -> usize {
        self.queues.len() + 1
    }

    fn take(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.hand_out(piece, events)
            .map_err(|failure| self.reason(failure))
    }

    fn close(&mut self, before: i64, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.announce(Observation::close(before))?;
        let closed = Closed {
            before,
            arrivals: self.extract.close(before),
            ..Closed::default()
        };
        events.push(Event::Closed(self.queues.len(), closed));
        Ok(())
    }

    fn replace(&mut self, change: &Arc<KeyChange>, events: &mut Vec<Event>) -> Result<(), Failure> {
        for queue in &self.queues {
            // A worker that is gone has sent the reason.
            let _ = queue.changes.send(Arc::clone(change));
        }
        self.announce(Observation::replace())?;
        self.extract.fit(change.config());
        let (before, replaces) = (i64::MAX, Some(Arc::clone(change)));
        let closed = Closed {
            before,
            arrivals: self.extract.close(before),
            replaces,
            ..Closed::default()
        };
        events.push(Event::Closed(self.queues.len(), closed));
        Ok(())
    }

    fn events(&mut self, wait: bool, events: &mut Vec<Event>) -> Result<(), Failure> {
        if wait {
            let word = self.words.recv().map_err(|_| Failure::Worker)?;
            events.push(self.event(word)?);
        }
        while let Ok(word) = self.words.try_recv() {
            events.push(self.event(word)?);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.ring = None);
    }
}

struct Worker {
    id: usize,
    aggregate: Aggregate,
    packets: Consumer<Observation>,
    /// Changes of keys, which [`Observation::replace`] announces.
    changes: Receiver<Arc<KeyChange>>,
    done: Arc<AtomicU64>,
    timing: Option<Timing>,
    say: Sender<(usize, Message)>,
    /// Packets with facts, and their facts.
    apart: Apart,
}

/// Packets and their facts, apart from each other.
#[derive(Default)]
struct Apart {
    packets: Vec<Observation>,
    facts: Vec<Facts>,
    /// Facts of a packet that follows in the ring.
    next: Option<Facts>,
}

impl Worker {
    fn serve(mut self, batch: usize) {
        let (say, id) = (self.say.clone(), self.id);
        let _goodbye = Goodbye(|| drop(say.send((id, Message::Died))));
        let mut taken = vec![Observation::mark(0); batch + 1];
        let mut idle = Idle::default();
        loop {
            // Checked before the pop, because packets pushed before the other end closed are still in the ring.
            let closed = self.packets.is_closed();
            let n = self.packets.pop(&mut taken);
            if n == 0 {
                if closed {
                    break;
                }
                idle.pause();
                continue;
            }
            idle.reset();
            if let Err(error) = self.batch(&taken[..n]) {
                let _ = say.send((id, Message::Failed(error)));
                return;
            }
        }
        let ended = Ended {
            processed: self.aggregate.taken(),
            timing: self.timing,
            health: None,
        };
        let _ = say.send((id, Message::Ended(ended)));
    }

    /// Takes packets and the marks between them.
    fn batch(&mut self, mut rest: &[Observation]) -> Result<(), weir_measure::Error> {
        let is_packet = |packet: &Observation| !matches!(packet.kind(), Kind::Close | Kind::Mark);
        while !rest.is_empty() {
            if self.aggregate.needs_facts() {
                rest = self.with_facts(rest)?;
                continue;
            }
            let packets = rest
                .iter()
                .position(|packet| !is_packet(packet))
                .unwrap_or(rest.len());
            let begun = self.timing.as_ref().map(Timing::now);
            self.aggregate.take(&rest[..packets], &[])?;
            if let (Some(timing), Some(begun)) = (&mut self.timing, begun) {
                timing.processed(begun, timing.now(), packets);
            }
            if let Some(control) = rest.get(packets) {
                self.control(control)?;
            }
            rest = &rest[(packets + 1).min(rest.len())..];
        }
        Ok(())
    }

    /// Takes packets with their facts, up to the first mark, and that mark. Returns what follows.
    fn with_facts<'a>(
        &mut self,
        mut rest: &'a [Observation],
    ) -> Result<&'a [Observation], weir_measure::Error> {
        let apart = &mut self.apart;
        apart.packets.clear();
        apart.facts.clear();
        let mut control = None;
        while let Some((first, others)) = rest.split_first() {
            rest = others;
            match first.kind() {
                Kind::Facts => apart.next = Some(first.facts()),
                Kind::Close | Kind::Mark => {
                    control = Some(first);
                    break;
                }
                _ => {
                    apart.packets.push(*first);
                    apart.facts.push(apart.next.take().unwrap_or(Facts::NONE));
                }
            }
        }
        let begun = self.timing.as_ref().map(Timing::now);
        self.aggregate
            .take_with(&apart.packets, &apart.facts, &[])?;
        if let (Some(timing), Some(begun)) = (&mut self.timing, begun) {
            timing.processed(begun, timing.now(), apart.packets.len());
        }
        control.map_or(Ok(()), |control| self.control(control))?;
        Ok(rest)
    }

    fn control(&mut self, control: &Observation) -> Result<(), weir_measure::Error> {
        if control.kind() == Kind::Mark {
            if let Some(timing) = &mut self.timing {
                timing.done(control.hash, timing.now());
            }
            self.done.fetch_add(1, Ordering::Release);
        } else {
            let before = control.time_ns;
            let states = self.aggregate.close(before);
            // The change was sent before the mark that announces it.
            let replaces = if control.replaces() {
                self.changes.try_recv().ok()
            } else {
                None
            };
            if let Some(change) = &replaces {
                self.aggregate.replace(change.aggregate()?);
            }
            let closed = Closed {
                before,
                states,
                replaces,
                ..Closed::default()
            };
            let _ = self.say.send((self.id, Message::Closed(closed)));
        }
        Ok(())
    }
}
