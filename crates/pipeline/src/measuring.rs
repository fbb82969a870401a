//! Measurement of sources: the parallel designs, their workers, and the totals of all packets.
//!
//! A reader finds the packets of a source and proves their positions ([`crate::stages`]). A worker
//! pool measures the packets: one worker in the caller's thread, workers with pieces of their own
//! (`rss`), or workers that a distributor feeds (`async`, `sync`). The workers' results for a
//! window are merged once all workers are past it, so every design gives the same answer.

mod capture;
mod clock;
mod distributor;
pub mod extract;
mod health;
mod idle;
mod jumps;
pub mod keys;
mod merger;
mod refusals;
mod room;
mod slices;
pub mod timing;
mod worker;

use crate::reader::{AccessMode, Delivery, Options};
use crate::select::Select;
use crate::source::Source;
use crate::stages::{Locate, Stages};
use crate::steps::Moment;
use crate::{Report as ReaderReport, threads};
pub use capture::{Capture, LiveCounters};
use clock::{Act, Booked, Clock, MANY};
use distributor::Distributor;
use extract::Extract;
use keys::{KeyChange, Keys};
pub use merger::Further;
use merger::{Merger, Total};
use slices::Slices;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timing::Timing;
use weir_io::{Chunk, Input};
use weir_measure::health::Report;
use weir_measure::names::Names;
use weir_measure::{Aggregate, Arrivals, Config, Spares, State, Window};
use weir_packet::flow::Tunnels;
use weir_packet::savefile::Layout;
use worker::{Closed, Piece, Worker};

/// Design of a run: the way in which packets reach the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// `Rss` if the first source can be split, else `Async`.
    #[default]
    Auto,
    /// Each worker owns pieces of the source.
    Rss,
    /// A distributor feeds a bounded ring per worker.
    Async,
    /// A distributor hands out a batch and waits for all workers.
    Sync,
}

/// Rule by which a distributor chooses the worker of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribute {
    /// By symmetric flow hash: both directions of a flow meet in one worker.
    #[default]
    Flow,
    /// By destination address.
    Address,
    /// A pseudo-random worker for each packet.
    Random,
}

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tunnels inside which the flow key is read, if at all.
    pub inner: Option<Tunnels>,
    /// Settings of the counters.
    pub config: Arc<Config>,
    /// Way in which packets reach the workers.
    pub design: Design,
    /// Rule by which a distributor chooses a worker.
    pub distribute: Distribute,
    /// Number of worker threads.
    pub workers: usize,
    /// Processors to bind the worker threads to, in turn.
    pub cpus: Vec<usize>,
    /// Number of packets per batch.
    pub batch: usize,
    /// Whether processing times are recorded.
    pub timing: bool,
    /// Health to look at, if any. It also says whether the packets are searched for names, as the settings of the counters do.
    pub health: Option<weir_measure::health::Config>,
}

impl Default for Settings {
    /// All packets, counted by the default [`Config`], in batches of 32, by a worker per processor.
    fn default() -> Self {
        Self {
            inner: None,
            config: Arc::default(),
            design: Design::default(),
            distribute: Distribute::default(),
            workers: threads::processors(),
            cpus: Vec::new(),
            batch: 32,
            timing: false,
            health: None,
        }
    }
}

/// Reason for which a run ended without a result. Windows completed before the failure have been given out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The counters cannot be allocated or merged.
    #[error(transparent)]
    Counters(#[from] weir_measure::Error),
    /// Counters for later packets, after the start of the run, cannot be allocated or merged.
    #[error(transparent)]
    Later(weir_measure::Error),
    /// A worker's thread cannot be started.
    #[error("{0}")]
    Thread(io::Error),
    /// A worker panicked.
    #[error("worker thread {0} ended with a panic: this is a mistake in weir")]
    Panic(usize),
    /// The workers are gone.
    #[error("a worker ended before its work was done: this is a mistake in weir")]
    Worker,
    /// A worker did not process all packets handed to it.
    #[error(
        "worker {worker} was handed {handed} packets and processed {processed}: this is a mistake in weir"
    )]
    Lost {
        /// Number of the worker, from 0.
        worker: usize,
        /// Packets pushed into its ring.
        handed: u64,
        /// Packets that the worker processed.
        processed: u64,
    },
}

/// Messages from workers to the thread that merges.
enum Event {
    /// A piece is done. Carries the bytes of the delivery if this was its last piece.
    Piece(Option<Chunk>),
    /// The member with this number has closed these windows, and gives its part of them.
    Closed(usize, Closed),
    /// A worker has ended.
    Ended(Ended),
}

/// Final account of a worker.
struct Ended {
    /// Packets counted by the worker.
    processed: u64,
    timing: Option<Timing>,
    /// Health of the packets of the worker, if it looks at it.
    health: Option<Box<Report>>,
}

/// A pool of workers. All methods append the events since the last call to `events`.
trait WorkerPool: Send {
    /// Returns the number of members: each sends one [`Event::Closed`] for each call of [`Self::close`].
    fn members(&self) -> usize;
    /// Takes a piece. If all workers have enough to do, waits.
    fn take(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// Closes the windows before number `before`, at this place of the source.
    fn close(&mut self, before: i64, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// Closes all windows at this place of the source, and counts later packets by other keys.
    fn replace(&mut self, change: &Arc<KeyChange>, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// Appends the events since the last call; if `wait`, waits for at least one.
    fn events(&mut self, wait: bool, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// Ends the work: each worker will send [`Event::Ended`].
    fn end(&mut self);
}

/// A pool of one worker in the caller's thread.
struct Alone(Option<Worker>);

impl WorkerPool for Alone {
    fn members(&self) -> usize {
        1
    }

    fn take(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure> {
        let worker = self.0.as_mut().ok_or(Failure::Worker)?;
        worker.slice(&piece)?;
        events.push(Event::Piece(piece.view()));
        Ok(())
    }

    fn close(&mut self, before: i64, events: &mut Vec<Event>) -> Result<(), Failure> {
        let worker = self.0.as_mut().ok_or(Failure::Worker)?;
        events.push(Event::Closed(0, worker.close(before)));
        Ok(())
    }

    fn replace(&mut self, change: &Arc<KeyChange>, events: &mut Vec<Event>) -> Result<(), Failure> {
        let worker = self.0.as_mut().ok_or(Failure::Worker)?;
        events.push(Event::Closed(
            0,
            worker.replace(change).map_err(Failure::Later)?,
        ));
        Ok(())
    }

    fn events(&mut self, wait: bool, events: &mut Vec<Event>) -> Result<(), Failure> {
        if wait {
            let Worker {
                aggregate, timing, ..
            } = self.0.take().ok_or(Failure::Worker)?;
            events.push(Event::Ended(Ended {
                processed: aggregate.taken(),
                timing,
                health: None,
            }));
        }
        Ok(())
    }

    fn end(&mut self) {}
}

/// Calls its function if its thread ends with a panic, so that no other thread waits for it.
struct Goodbye<F: Fn()>(F);

impl<F: Fn()> Drop for Goodbye<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Starts a worker's thread.
fn spawn(cpus: &[usize], id: usize, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    threads::spawn_pinned("worker", id, cpus, work).map_err(Failure::Thread)
}

/// A measurement of several sources, one after another.
pub struct Run {
    settings: Settings,
    stages: Arc<Stages>,
    design: Design,
    team: Team,
    spares: Arc<Spares>,
    clock: Clock,
    begun: Instant,
    keys: Arc<Keys>,
    /// Number of the latest change whose keys are in use here.
    taken_up: u64,
}

/// The worker pool, and its results so far.
struct Team {
    pool: Option<Box<dyn WorkerPool>>,
    merger: Merger,
    events: Vec<Event>,
    /// Returned chunks.
    spare: Vec<Chunk>,
    /// Number of turns: calls that closed windows.
    turns: u64,
    /// Limit of the number of turns that not every member has ended.
    most_turns: u64,
    /// Packets delivered but not measured, because the run was stopped.
    left: u64,
    processed: u64,
    ended: usize,
    timing: Option<Timing>,
    /// Looks at the health of the packets before the workers get them, unless each worker does.
    health: Option<health::Lane>,
    /// Health of the packets of workers that have ended.
    health_of_workers: Option<Report>,
}

/// A source that is being measured.
#[derive(Debug)]
pub struct Reading {
    /// Number of deliveries that workers hold.
    out: usize,
    booked: Booked,
}

impl Reading {
    /// Returns the number of deliveries that workers hold.
    pub fn in_flight(&self) -> usize {
        self.out
    }
}

impl core::fmt::Debug for Run {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Run")
            .field("design", &self.design)
            .finish_non_exhaustive()
    }
}

/// Final result of a run.
#[derive(Debug)]
pub struct Finished {
    /// Sum of all arrivals.
    pub arrivals: Arrivals,
    /// Begin and end of a capture whose keys were not changed, ns since 1970; `None` otherwise.
    pub covered: Option<(i64, i64)>,
    /// Counters over all packets that passed the filter since the last change of keys; `None` if no packet passed.
    pub state: Option<State>,
    /// Number of packets counted before that change, and given out with it.
    pub counted_before: u64,
    /// Results of windows that were complete before: late packets.
    pub further: Further,
    /// Number of windows of live sources that could not be delivered; their packets are in `state`.
    pub left_out: u64,
    /// Number of packets counted: equals the number of packets that passed the filter.
    pub processed: u64,
    /// Processing times, if they were recorded.
    pub timing: Option<Timing>,
    /// Health of all packets, if the settings ask for it.
    pub health: Option<Report>,
    /// Names of addresses, if the settings ask for them.
    pub names: Option<Names>,
    /// Design in use.
    pub design: Design,
    /// Number of workers.
    pub workers: usize,
}

/// Outcome of one source.
#[derive(Debug)]
pub struct Measured {
    /// Report of its reader.
    pub report: ReaderReport,
    /// Layout at its end.
    pub layout: Option<Layout>,
}

impl Run {
    /// Prepares to measure the packets that pass `select`, in one pass with other committed stages. If `judge`, those stages need
    /// the verdicts of `select` before the measurement.
    pub fn new(settings: Settings, select: Arc<Select>, judge: bool) -> Self {
        let timed = settings.config.windowing.window_ns.is_some();
        let locate = Some(Locate {
            inner: settings.inner,
            timed,
        });
        let judge = judge || settings.health.is_some();
        let stages = Arc::new(Stages::new(select, judge, locate));
        let begun = Instant::now();
        let spares = Arc::new(Spares::default());
        let team = Team {
            pool: None,
            merger: Merger::new(0, Arc::clone(&settings.config), Arc::clone(&spares)),
            events: Vec::new(),
            spare: Vec::new(),
            turns: 0,
            most_turns: 1,
            left: 0,
            processed: 0,
            ended: 0,
            timing: settings.timing.then(|| Timing::new(begun)),
            health: None,
            health_of_workers: None,
        };
        let clock = Clock::new(settings.config.windowing);
        let keys = Arc::new(Keys::new(&settings.config, settings.workers));
        Self {
            stages,
            design: settings.design,
            team,
            spares,
            clock,
            begun,
            keys,
            taken_up: 0,
            settings,
        }
    }

    /// Returns the keys of the measurement, for threads that control the run.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// Returns the design in use, known once the first source has begun.
    pub fn design(&self) -> Design {
        self.design
    }

    /// Returns the design given in the settings.
    pub fn asked(&self) -> Design {
        self.settings.design
    }

    /// Starts the workers, unless they run already. The kind of the first source decides on a design left open in the settings.
    pub fn start(&mut self, can_be_split: bool) -> Result<(), Failure> {
        if self.team.pool.is_some() {
            return Ok(());
        }
        let Settings {
            config,
            workers,
            batch,
            cpus,
            ..
        } = &self.settings;
        if self.design == Design::Auto {
            self.design = if can_be_split || *workers == 1 {
                Design::Rss
            } else {
                Design::Async
            };
        }
        let mut pool = self.workers(false)?;
        let pool: Box<dyn WorkerPool> = match self.design {
            Design::Rss | Design::Auto if *workers == 1 => Box::new(Alone(pool.pop())),
            Design::Rss | Design::Auto => Box::new(Slices::start(pool, cpus)?),
            Design::Async | Design::Sync => {
                let setting = distributor::Setting {
                    distribute: self.settings.distribute,
                    hasher: config.hasher(),
                    batch: *batch,
                    sync: self.design == Design::Sync,
                    timing: self.team.timing.clone(),
                    cpus,
                    request: &config.request,
                };
                Box::new(Distributor::start(
                    self.extract(),
                    pool.into_iter().map(|worker| worker.aggregate).collect(),
                    setting,
                )?)
            }
        };
        let members = pool.members();
        self.team.merger = Merger::new(members, Arc::clone(config), Arc::clone(&self.spares));
        self.team.health = self.lane();
        self.team.most_turns = most_turns(config, members);
        self.team.pool = Some(pool);
        Ok(())
    }

    /// Returns what looks at the health of packets, if the settings ask for it.
    fn lane(&self) -> Option<health::Lane> {
        let Settings { health, config, .. } = &self.settings;
        health.map(|health| health::Lane::new(&health, config.windowing))
    }

    fn extract(&self) -> Extract {
        let Settings { config, batch, .. } = &self.settings;
        Extract::new(config, *batch)
    }

    /// Returns the workers of the settings, each with its own tables; `cold` if they will sleep between packets.
    fn workers(&self, cold: bool) -> Result<Vec<Worker>, Failure> {
        let one = |_| {
            let aggregate =
                Aggregate::new(Arc::clone(&self.settings.config), Arc::clone(&self.spares))?;
            Ok(Worker::new(
                self.extract(),
                aggregate,
                self.team.timing.clone(),
                self.settings.batch,
                cold,
            ))
        };
        (0..self.settings.workers).map(one).collect()
    }

    /// Returns the revocable stages of the run.
    pub fn stages(&self) -> &Arc<Stages> {
        &self.stages
    }

    /// Returns the options for a reader of a source that fit the design of the run.
    pub fn options(&self) -> Options {
        let alone = self.settings.workers == 1;
        Options {
            workers: if alone || self.design != Design::Rss {
                1
            } else {
                self.settings.workers
            },
            cpus: self.settings.cpus.clone(),
            ..Options::default()
        }
    }

    /// Begins a source. Its deliveries are then [taken](Self::take) in order, and [`Self::after_step`] follows each step. The workers
    /// must have [started](Self::start).
    pub fn begin_source(&mut self, reader: &dyn Source, now: Moment) -> Reading {
        if reader.way() == AccessMode::Live {
            let clock = Clock::live(self.settings.config.windowing, Arc::default(), now);
            self.clock = clock.held_back(reader.holds_back());
            self.team.merger.covered.0 = self.clock.begun();
            self.team.merger.captured_from = self.clock.begun();
            self.team.merger.fill(now.wall_ns);
        }
        Reading {
            out: 0,
            booked: Booked::default(),
        }
    }

    /// Takes the next delivery of the source, which arrived at `now` and belongs to change `reached` or a later one. If `stopped`
    /// returns true, its packets are not measured, and are taken out of the source's account.
    pub fn take(
        &mut self,
        reading: &mut Reading,
        delivery: Delivery<Stages>,
        (now, reached): (Moment, u64),
        stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Failure> {
        reading.out += 1;
        self.clock.tick(now);
        self.replace_keys(reached, stopped, each)?;
        let Self {
            team,
            clock,
            settings,
            begun,
            ..
        } = self;
        let handed_ns = if settings.timing {
            begun.elapsed().as_nanos() as u64
        } else {
            0
        };
        clock.take(Arc::new(delivery), handed_ns, &mut |act| {
            team.act_unless(stopped(), act, each)
        })
    }

    /// Switches to other keys if there is a change of keys up to number `reached`.
    fn replace_keys(
        &mut self,
        reached: u64,
        stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Failure> {
        if reached <= self.taken_up {
            return Ok(());
        }
        let Some(change) = self
            .keys
            .take(std::mem::replace(&mut self.taken_up, reached), reached)
        else {
            return Ok(());
        };
        let Self { team, clock, .. } = self;
        clock.replace(change, &mut |act| team.act_unless(stopped(), act, each))
    }

    /// Notes that a live source has delivered nothing more by `now`; its next packets belong to change `reached` or a later one.
    /// Returns the steady time until which there is no work.
    pub fn quiet(
        &mut self,
        now: Moment,
        reached: u64,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<Duration, Failure> {
        self.clock.tick(now);
        self.replace_keys(reached, &|| false, each)?;
        let Self { team, clock, .. } = self;
        clock.quiet(&mut |act| team.act(act, each))
    }

    /// Follows each step of the reader: books packets lost before the reader, gives out complete windows, and gives memory back.
    pub fn after_step(
        &mut self,
        reading: &mut Reading,
        reader: &mut dyn Source,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Failure> {
        let Self {
            team,
            clock,
            settings,
            ..
        } = self;
        team.lose(reader, &mut reading.booked, clock, settings);
        // The next bytes of a pipe may take long, so complete windows are delivered first.
        let most = if matches!(reader.way(), AccessMode::Stream | AccessMode::Live) {
            0
        } else {
            team.most_turns
        };
        team.wait(most, each)?;
        team.spare.extend(clock.freed());
        for view in team.spare.drain(..) {
            reading.out -= 1;
            reader.recycle(view);
        }
        Ok(())
    }

    /// Ends a source, which is read no further: waits until its packets are measured.
    pub fn end_source(
        &mut self,
        mut reading: Reading,
        reader: &mut dyn Source,
        stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Failure> {
        let Self {
            team,
            clock,
            settings,
            ..
        } = self;
        clock.end(&mut |act| team.act_unless(stopped(), act, each))?;
        reader.remove_left_packets(std::mem::take(&mut team.left));
        team.spare.extend(clock.freed());
        team.lose(reader, &mut reading.booked, clock, settings);
        while reading.out > 0 {
            let pool = team
                .pool
                .as_mut()
                .expect("a source is measured by a worker pool");
            pool.events(team.spare.is_empty(), &mut team.events)?;
            team.heed(each)?;
            reading.out -= team.spare.drain(..).count();
        }
        Ok(())
    }

    /// Begins to measure live sources, each with a worker of its own, for a caller that drives the steps. That is the whole run, except for
    /// the call of [`finish`](Self::finish).
    pub fn begin(&mut self, inputs: Vec<Input>, now: Moment) -> Result<Capture<'_>, Failure> {
        Capture::new(self, inputs, now)
    }

    /// Closes all windows and waits for the workers. Nothing can be measured afterwards.
    pub fn finish(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<Finished, Failure> {
        let workers = self.settings.workers;
        // After a capture, all workers have ended.
        if self.team.ended < workers {
            self.start(true)?;
            let Self { team, clock, .. } = self;
            team.merger.covered.1 = clock.ended();
            team.act(Act::Close(i64::MAX), each)?;
            team.pool.as_mut().expect("started above").end();
            while team.ended < workers {
                team.pool
                    .as_mut()
                    .expect("started above")
                    .events(true, &mut team.events)?;
                team.heed(each)?;
            }
        }
        self.abandon()
    }

    /// Returns the results of the complete windows after a failure ended the run.
    pub fn abandon(&mut self) -> Result<Finished, Failure> {
        let none = Merger::new(
            0,
            Arc::clone(&self.settings.config),
            Arc::clone(&self.spares),
        );
        let merger = std::mem::replace(&mut self.team.merger, none);
        let Total {
            arrivals,
            covered,
            state,
            counted_before,
            further,
            left_out,
            names,
        } = merger.finish()?;
        let Self {
            team:
                Team {
                    processed,
                    timing,
                    health,
                    health_of_workers,
                    ..
                },
            design,
            settings: Settings { workers, .. },
            ..
        } = self;
        let (processed, design, workers) = (*processed, *design, *workers);
        Ok(Finished {
            arrivals,
            covered,
            state,
            counted_before,
            further,
            left_out,
            processed,
            timing: timing.take(),
            health: health
                .take()
                .map(|lane| lane.total())
                .or(health_of_workers.take())
                .filter(Report::has_parts),
            names,
            design,
            workers,
        })
    }
}

impl Team {
    /// Performs an action of the clock, and handles the workers' events.
    fn act(&mut self, act: Act, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Failure> {
        let pool = self
            .pool
            .as_mut()
            .expect("a source is measured by a worker pool");
        match act {
            Act::Begun(time) => self.merger.covered.0 = Some(time),
            Act::Measure(piece) => {
                if let Some(health) = &mut self.health {
                    health.piece(&piece);
                }
                pool.take(piece, &mut self.events)?;
            }
            Act::Close(before) => {
                if let Some(health) = &mut self.health {
                    self.merger.add_health(self.turns, health.close(before));
                }
                self.merger.turn(self.turns, before);
                self.turns += 1;
                pool.close(before, &mut self.events)?;
            }
            Act::Replace(change) => {
                if let Some(health) = &mut self.health {
                    self.merger.add_health(self.turns, health.close(i64::MAX));
                }
                self.merger.begin(self.turns);
                self.turns += 1;
                self.most_turns = most_turns(change.config(), pool.members());
                pool.replace(&change, &mut self.events)?;
            }
        }
        pool.events(false, &mut self.events)?;
        self.heed(each)?;
        self.wait(self.most_turns, each)
    }

    /// Performs an action of the clock, unless the run was `stopped`.
    fn act_unless(
        &mut self,
        stopped: bool,
        act: Act,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Failure> {
        if stopped {
            self.leave(act)
        } else {
            self.act(act, each)
        }
    }

    /// Skips an action after the run was stopped. Packets that no worker holds are not measured, so that even a delivery with
    /// thousands of short windows ends at once.
    fn leave(&mut self, act: Act) -> Result<(), Failure> {
        if let Act::Measure(piece) = act {
            self.left += piece.range.len() as u64;
            self.spare.extend(piece.view());
        }
        Ok(())
    }

    /// Waits while more than `most` turns have members that have not ended them, because the windows of such turns hold memory.
    fn wait(&mut self, most: u64, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Failure> {
        while self.turns > self.merger.turns().saturating_add(most) {
            self.pool
                .as_mut()
                .expect("a source is measured by a worker pool")
                .events(true, &mut self.events)?;
            self.heed(each)?;
        }
        Ok(())
    }

    /// Accounts for packets lost before the reader.
    fn lose(
        &mut self,
        reader: &dyn Source,
        booked: &mut Booked,
        clock: &Clock,
        settings: &Settings,
    ) {
        if let Some(before) = booked.book(reader.report().live) {
            self.merger
                .lose(settings.config.windowing.number(clock.time()), before);
        }
    }

    /// Handles the workers' events.
    fn heed(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Failure> {
        for event in self.events.drain(..) {
            match event {
                Event::Piece(view) => self.spare.extend(view),
                Event::Closed(member, closed) => self
                    .merger
                    .take(member, closed, each)
                    .map_err(Failure::Later)?,
                Event::Ended(ended) => {
                    self.ended += 1;
                    self.processed += ended.processed;
                    add_health(
                        &mut self.health_of_workers,
                        ended.health.map(|report| *report),
                    );
                    if let (Some(all), Some(one)) = (&mut self.timing, &ended.timing) {
                        all.add(one);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Adds the health of the packets of a worker.
fn add_health(all: &mut Option<Report>, report: Option<Report>) {
    match (all, report) {
        (Some(all), Some(report)) => all.merge(report),
        (all, report) => *all = all.take().or(report),
    }
}

/// Returns the number of turns that may be under way at once, so that the windows closed in them hold at most `MOST_BYTES`.
fn most_turns(config: &Config, members: usize) -> u64 {
    const MOST_BYTES: usize = 128 << 20;
    let bytes = config
        .memory
        .saturating_mul(config.keys.len())
        .saturating_mul(members);
    (MOST_BYTES / bytes.saturating_mul(MANY as usize).max(1)).clamp(1, 8) as u64
}
