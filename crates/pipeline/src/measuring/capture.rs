//! Design `rss` on live sources: each worker has its own source, a queue of an interface or a share of its packets. The worker
//! runs to completion: it does all work on its packets, and hands only its part of each window on.
//!
//! Workers and the merging side run in steps ([`crate::steps`]). In a real capture, each worker has a thread, and the merging side
//! runs in the caller's thread. The workers' messages are the only connection between them.

use super::clock::{Act, Booked, Clock, Paces};
use super::health::Lane;
use super::keys::Keys;
use super::merger::Merger;
use super::room::{Gate, Room};
use super::timing::Timing;
use super::worker::{Closed, Worker};
use super::{Design, Ended, Event, Failure, Goodbye, Measured, Run, spawn};
use crate::pump::{MergeSender, Pump};
use crate::reader::{Options, Reader, Report, Step};
use crate::stages::Stages;
use crate::steps::{Clock as DriverClock, Moment, Progress, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;
use weir_io::Input;
use weir_measure::Window;

/// Message of a worker.
enum Message {
    /// The worker's part of complete windows.
    Closed(Closed),
    /// The worker has ended; all its windows were closed before.
    Ended(Box<(Measured, Ended)>),
    Failed(weir_measure::Error),
    Died,
}

/// Counters of a live source, for display during the measurement.
#[derive(Debug, Default)]
pub struct LiveCounters {
    /// Packets that reached the source.
    pub received: AtomicU64,
    /// Packets that were delivered.
    pub delivered: AtomicU64,
    /// Packets rejected by a filter before the source, such as the kernel's.
    pub filtered: AtomicU64,
    /// Packets dropped for lack of room.
    pub dropped: AtomicU64,
}

impl LiveCounters {
    fn note(&self, reader: &Reader<Stages>) {
        let Some(counts) = reader.report().live else {
            return;
        };
        self.received.store(counts.received, Ordering::Relaxed);
        self.delivered.store(counts.handed_over, Ordering::Relaxed);
        self.filtered
            .store(counts.filtered.unwrap_or(0), Ordering::Relaxed);
        self.dropped.store(counts.dropped, Ordering::Relaxed);
    }
}

/// A run-to-completion worker and its source.
struct LiveWorker {
    id: usize,
    reader: Reader<Stages>,
    worker: Worker,
    clock: Clock,
    /// Looks at the health of the packets, if the settings ask for it.
    health: Option<Lane>,
    gate: Gate,
    booked: Booked,
    counters: Arc<LiveCounters>,
    messages: Sender<(usize, Message)>,
    keys: Arc<Keys>,
    /// Number of the latest change whose keys are in use here.
    taken_up: u64,
    /// Sends deliveries to the merge in time order, if packets are also passed on.
    sender: Option<MergeSender<Stages>>,
}

impl LiveWorker {
    /// Takes the next delivery, and measures it. **Cost**: one check of the source, and at most one of its blocks.
    fn step(&mut self, now: Moment) -> Result<Progress, weir_measure::Error> {
        match self.sender.as_mut().and_then(MergeSender::try_send) {
            None => {}
            // The merge in time order has ended; packets are still measured.
            Some(Progress::Ended) => self.sender = None,
            Some(progress) => return Ok(progress),
        }
        let (step, change) = (self.reader.poll(), self.reader.change());
        let Self {
            id,
            worker,
            clock,
            health,
            gate,
            messages,
            sender,
            keys,
            taken_up,
            ..
        } = self;
        clock.tick(now);
        let reached = match &step {
            Step::Delivery(delivery) => delivery.current.plan.change(),
            Step::Quiet | Step::End => change,
        };
        let other_keys = if reached > *taken_up {
            keys.take(std::mem::replace(taken_up, reached), reached)
        } else {
            None
        };
        let handed_ns = worker.timing.as_ref().map_or(0, Timing::now);
        let mut act = |act| {
            match act {
                Act::Begun(_) => {}
                // No packet can vanish from the memory of a capture.
                Act::Measure(piece) => {
                    if let Some(health) = health {
                        health.piece(&piece);
                    }
                    worker.slice(&piece)?;
                }
                Act::Close(before) => {
                    if let Some(closed) = gate.close(worker, before) {
                        tell(messages, *id, Message::Closed(with_health(closed, health)));
                    }
                }
                Act::Replace(change) => {
                    let closed = gate.replace(worker, &change)?;
                    tell(messages, *id, Message::Closed(with_health(closed, health)));
                }
            }
            Ok::<_, weir_measure::Error>(())
        };
        if let Some(change) = other_keys {
            clock.replace(change, &mut act)?;
        }
        let progress = match step {
            Step::Delivery(delivery) => {
                let delivery = Arc::new(delivery);
                if let Some(sender) = sender {
                    sender.deliver(Arc::clone(&delivery), now);
                }
                clock.take(delivery, handed_ns, &mut act)?;
                // No reader waits for the chunks of a ring: their memory is back in the ring.
                clock.freed().for_each(drop);
                Progress::Busy
            }
            Step::Quiet => match (
                clock.quiet(&mut act)?,
                sender.as_mut().map(|sender| sender.quiet(now, change)),
            ) {
                (until, None) => Progress::Idle(until),
                (until, Some(Some(other))) => Progress::Idle(until.min(other)),
                (_, Some(None)) => Progress::Busy,
            },
            // The report of the source is sent with the measurement.
            Step::End => match sender.as_mut().filter(|sender| !sender.has_ended()) {
                Some(sender) => {
                    sender.end(Report::default(), None);
                    Progress::Busy
                }
                None => Progress::Ended,
            },
        };
        self.book();
        Ok(progress)
    }

    /// Ends the worker after its source: closes all windows.
    fn end(self) {
        let Self {
            id,
            reader,
            mut worker,
            clock,
            mut health,
            gate,
            messages,
            ..
        } = self;
        let closed = Closed {
            ended: clock.ended(),
            ..with_health(gate.end(&mut worker), &mut health)
        };
        tell(&messages, id, Message::Closed(closed));
        let Worker {
            aggregate, timing, ..
        } = worker;
        let layout = reader.layout().cloned();
        // The source is closed before its end is sent.
        let measured = Measured {
            report: reader.into_report(),
            layout,
        };
        tell(
            &messages,
            id,
            Message::Ended(Box::new((
                measured,
                Ended {
                    processed: aggregate.taken(),
                    timing,
                    health: health.map(|health| Box::new(health.total())),
                },
            ))),
        );
    }

    /// Steps until the source ends, and waits for the source in between.
    fn run(mut self, system: SystemClock) {
        let (id, messages) = (self.id, self.messages.clone());
        let _goodbye = Goodbye(|| tell(&messages, id, Message::Died));
        loop {
            let now = system.now();
            match self.step(now) {
                Ok(Progress::Busy) => {
                    if self.sender.as_mut().is_some_and(|sender| !sender.send()) {
                        self.sender = None;
                    }
                }
                Ok(Progress::Idle(until)) => self.reader.wait(until.saturating_sub(now.steady)),
                Ok(Progress::Ended) => return self.end(),
                Err(error) => return tell(&messages, id, Message::Failed(error)),
            }
        }
    }

    fn book(&mut self) {
        self.counters.note(&self.reader);
        if let Some(before) = self.booked.book(self.reader.report().live) {
            self.worker.extract.lose(self.clock.time(), before);
        }
    }
}

/// Adds the health of the closed windows.
fn with_health(closed: Closed, health: &mut Option<Lane>) -> Closed {
    match health {
        Some(health) => Closed {
            health: health.close(closed.before),
            ..closed
        },
        None => closed,
    }
}

fn tell(messages: &Sender<(usize, Message)>, id: usize, message: Message) {
    // If the receiver is gone, the run has ended.
    let _ = messages.send((id, message));
}

/// A measurement of live sources in steps: a worker for each source, and the merging side.
pub struct Capture<'r> {
    run: &'r mut Run,
    /// Workers stepped here; `None` once the source has ended, or if the worker has a thread.
    workers: Vec<Option<LiveWorker>>,
    messages: Receiver<(usize, Message)>,
    /// A message that was awaited.
    held: Option<(usize, Message)>,
    room: Arc<Room>,
    counters: Vec<Arc<LiveCounters>>,
    measured: Vec<Option<Measured>>,
}

impl core::fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Capture")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

impl<'r> Capture<'r> {
    pub(super) fn new(run: &'r mut Run, inputs: Vec<Input>, now: Moment) -> Result<Self, Failure> {
        let sources = inputs.len();
        (run.design, run.settings.workers) = (Design::Rss, sources);
        run.keys.begin(sources);
        let config = &run.settings.config;
        let room = Arc::new(Room::new(config, sources));
        run.team.merger = Merger::live(
            sources,
            Arc::clone(config),
            Arc::clone(&run.spares),
            Arc::clone(&room),
        );
        run.team.merger.covered.0 = Some(now.wall_ns);
        run.team.merger.captured_from = Some(now.wall_ns);
        run.team.merger.fill(now.wall_ns);
        let paces = Arc::<Paces>::default();
        let counters: Vec<Arc<LiveCounters>> = (0..sources).map(|_| Arc::default()).collect();
        let (say, messages) = channel();
        let one = |(id, (input, worker))| {
            Some(LiveWorker {
                id,
                reader: Reader::new(input, Arc::clone(&run.stages), Options::default()),
                worker,
                clock: Clock::live(run.settings.config.windowing, Arc::clone(&paces), now),
                health: run.lane(),
                gate: Gate::new(id, Arc::clone(&room)),
                booked: Booked::default(),
                counters: Arc::clone(&counters[id]),
                messages: say.clone(),
                keys: Arc::clone(&run.keys),
                taken_up: 0,
                sender: None,
            })
        };
        let workers = inputs
            .into_iter()
            .zip(run.workers(true)?)
            .enumerate()
            .map(one)
            .collect();
        let measured = (0..sources).map(|_| None).collect();
        Ok(Self {
            run,
            workers,
            messages,
            held: None,
            room,
            counters,
            measured,
        })
    }

    /// Returns the merging sides of all sources, for a caller that passes the packets on in time
    /// order during the measurement. Must be called before the first step. If a merging side has no
    /// room, its worker waits, and the memory of the source fills.
    pub fn pumps(&mut self) -> Vec<Pump<Stages>> {
        let workers = self.workers.iter_mut().flatten();
        let pump = |worker: &mut LiveWorker| {
            let (sender, pump) = Pump::channel(worker.id);
            worker.sender = Some(sender);
            pump
        };
        workers.map(pump).collect()
    }

    /// Starts a thread for each worker, which steps it to its end. The caller then only has to [merge](Self::merge).
    pub fn start(&mut self, system: SystemClock) -> Result<(), Failure> {
        let mut workers = self.workers.iter_mut().filter_map(Option::take);
        workers.try_for_each(|worker| {
            spawn(&self.run.settings.cpus, worker.id, move || {
                worker.run(system)
            })
        })
    }

    /// Returns the counters of each source.
    pub fn counters(&self) -> &[Arc<LiveCounters>] {
        &self.counters
    }

    /// Runs one step of the worker of source `id`.
    pub fn step(&mut self, id: usize, now: Moment) -> Result<Progress, Failure> {
        let Some(worker) = &mut self.workers[id] else {
            return Ok(Progress::Ended);
        };
        let progress = worker.step(now).map_err(Failure::Later)?;
        if progress == Progress::Ended
            && let Some(worker) = self.workers[id].take()
        {
            worker.end();
        }
        Ok(progress)
    }

    /// Runs a step of each worker. Returns the steady time until which none has work, if they are idle.
    pub fn step_all(&mut self, clock: &dyn DriverClock) -> Result<Option<Duration>, Failure> {
        let mut idle = Some(Duration::MAX);
        for id in 0..self.workers.len() {
            match self.step(id, clock.now())? {
                Progress::Busy => idle = None,
                Progress::Idle(until) => idle = idle.map(|earliest| earliest.min(until)),
                Progress::Ended => {}
            }
        }
        Ok(idle)
    }

    /// Waits for the packets of the first source that has not ended, at most for `most`.
    pub fn wait(&mut self, most: Duration) {
        if let Some(worker) = self.workers.iter_mut().flatten().next() {
            worker.reader.wait(most);
        }
    }

    /// Runs one step of the merging side, which takes one message. `each` is called with the complete windows, in order.
    pub fn merge(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<Progress, Failure> {
        if self.is_over() {
            return Ok(Progress::Ended);
        }
        let held = self.held.take();
        match held.map_or_else(|| self.messages.try_recv(), Ok) {
            Ok((id, message)) => self.heed(id, message, each).map(|()| Progress::Busy),
            Err(TryRecvError::Empty) => Ok(Progress::Idle(Duration::MAX)),
            Err(TryRecvError::Disconnected) => Err(Failure::Worker),
        }
    }

    /// Waits at most `most` for a message of a worker, which [`Self::merge`] takes then.
    pub fn await_message(&mut self, most: Duration) {
        if self.held.is_none() && !self.is_over() {
            self.held = self.messages.recv_timeout(most).ok();
        }
    }

    /// Returns the outcome of each source; complete once [`Self::merge`] has returned [`Progress::Ended`].
    pub fn end(self) -> Vec<Measured> {
        debug_assert!(
            !self.is_over() || self.room.is_empty(),
            "what is merged is given back: {:?}",
            self.room
        );
        self.measured.into_iter().flatten().collect()
    }

    /// Whether all sources have ended, and all messages of their workers are taken.
    fn is_over(&self) -> bool {
        self.run.team.ended == self.workers.len()
    }

    fn heed(
        &mut self,
        id: usize,
        message: Message,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Failure> {
        let team = &mut self.run.team;
        match message {
            Message::Closed(closed) => {
                if closed.windows() == 0 {
                    self.room.read(id);
                }
                team.merger.take(id, closed, each).map_err(Failure::Later)
            }
            Message::Ended(both) => {
                let (one, ended) = *both;
                self.measured[id] = Some(one);
                team.events.push(Event::Ended(ended));
                team.heed(each)?;
                team.merger.end(id, each).map_err(Failure::Later)
            }
            Message::Failed(error) => Err(Failure::Later(error)),
            Message::Died => Err(Failure::Panic(id)),
        }
    }
}
