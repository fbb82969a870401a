//! Measures sources: the parallel designs, their workers, and the account of all of it.
//!
//! A reader finds and proves where the packets of a source lie ([`locate`]). A crew of workers measures them: alone in the
//! caller's thread, each its own pieces (`rss`), or fed by a distributor (`async`, `sync`). What the workers know of a window
//! is merged once all of them are past it, so every design gives the same answer.

mod clock;
mod fed;
pub mod front;
mod idle;
mod lanes;
pub mod locate;
mod merger;
mod slices;
pub mod timing;
mod worker;

use crate::reader::{Options, Part, Reader, Way};
use crate::select::{Select, Selection};
use crate::{Consumer, PlanError, Report};
use clock::{Booked, Clock};
use fed::Fed;
use front::Front;
pub use lanes::Sight;
use lanes::{Lane, Word};
use locate::Locate;
use merger::Merger;
use slices::Slices;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use timing::Timing;
use weir_io::{Input, Kind as InputKind, View};
use weir_measure::{Arrivals, Back, Config, Spares, State, Window};
use weir_packet::savefile::Layout;
use worker::{Closed, Piece, Worker};

/// Who hands packets to the workers.
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

/// Which worker a distributor gives a packet to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribute {
    /// By symmetric flow hash: both directions of a flow meet in one worker.
    #[default]
    Flow,
    /// By destination address.
    Address,
    /// Any.
    Random,
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What passes; the empty expression is all. Only `expression` and `resolve` are used.
    pub selection: Selection,
    /// Look into tunnels for the flow key.
    pub inner: bool,
    /// What to count and how.
    pub config: Arc<Config>,
    /// Who hands packets to the workers.
    pub design: Design,
    /// To which worker.
    pub distribute: Distribute,
    /// Threads that measure.
    pub workers: usize,
    /// Processors to bind them to, in turn.
    pub cpus: Vec<usize>,
    /// Packets that are handled at once.
    pub batch: usize,
    /// Record how long packets take.
    pub timing: bool,
    /// Read files this way instead of the cheaper one.
    pub way: Option<Way>,
}

/// Why a run ended without an answer. What was good before it was given out in windows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The counters cannot be had, or not be merged.
    #[error(transparent)]
    Counters(#[from] weir_measure::Error),
    /// A worker is gone.
    #[error("a worker ended before its work was done: this is a mistake in weir")]
    Worker,
    /// A worker did not process what it was given.
    #[error("worker {worker} was handed {handed} packets and processed {processed}: this is a mistake in weir")]
    Lost {
        /// Which.
        worker: usize,
        /// Packets pushed into its ring.
        handed: u64,
        /// Packets it took.
        processed: u64,
    },
}

/// What a crew has to say.
enum Event {
    /// All pieces of a delivery are done.
    View(View),
    /// Member number so knows its part of these windows.
    Closed(usize, Closed),
    /// A worker is at its end.
    Ended(Ended),
}

/// What a worker leaves.
struct Ended {
    /// Packets its counters took.
    processed: u64,
    timing: Option<Timing>,
}

/// Those who measure. All methods append what happened meanwhile to `events`.
trait Crew {
    /// How many say [`Event::Closed`] to each call of [`Self::close`].
    fn members(&self) -> usize;
    /// Takes a piece; waits if all have enough to do.
    fn take(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// No packet of a window before this number will come.
    fn close(&mut self, before: i64, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// What happened; with `wait` at least one event.
    fn events(&mut self, wait: bool, events: &mut Vec<Event>) -> Result<(), Failure>;
    /// No more work comes; each worker will say [`Event::Ended`].
    fn end(&mut self);
}

/// The caller's own thread.
struct Alone(Option<Worker>);

impl Crew for Alone {
    fn members(&self) -> usize {
        1
    }

    fn take(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure> {
        let worker = self.0.as_mut().ok_or(Failure::Worker)?;
        worker.slice(&piece)?;
        events.extend(piece.view().map(Event::View));
        Ok(())
    }

    fn close(&mut self, before: i64, events: &mut Vec<Event>) -> Result<(), Failure> {
        let worker = self.0.as_mut().ok_or(Failure::Worker)?;
        events.push(Event::Closed(0, worker.close(before)));
        Ok(())
    }

    fn events(&mut self, wait: bool, events: &mut Vec<Event>) -> Result<(), Failure> {
        if wait {
            let Worker { back, timing, .. } = self.0.take().ok_or(Failure::Worker)?;
            events.push(Event::Ended(Ended { processed: back.taken(), timing }));
        }
        Ok(())
    }

    fn end(&mut self) {}
}

/// Calls its function if its thread dies of a panic, so that nobody waits for it.
struct Goodbye<F: Fn()>(F);

impl<F: Fn()> Drop for Goodbye<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Starts a worker's thread.
fn spawn(cpus: &[usize], id: usize, work: impl FnOnce() + Send + 'static) {
    let cpu = (!cpus.is_empty()).then(|| cpus[id % cpus.len()]);
    std::thread::spawn(move || {
        if let Some(cpu) = cpu {
            // The list was checked when it was given; a processor that went away since is no reason to stop.
            let _ = weir_io::sys::pin(cpu);
        }
        work();
    });
}

/// A measurement, over one source after another.
pub struct Run {
    settings: Settings,
    locate: Arc<Locate>,
    crew: Option<Box<dyn Crew>>,
    design: Design,
    merger: Merger,
    spares: Arc<Spares>,
    clock: Clock,
    begun: Instant,
    events: Vec<Event>,
    spare: Vec<View>,
    processed: u64,
    ended: usize,
    timing: Option<Timing>,
}

impl core::fmt::Debug for Run {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Run").field("design", &self.design).finish_non_exhaustive()
    }
}

/// What remains when all sources are done.
#[derive(Debug)]
pub struct Finished {
    /// What arrived in all.
    pub arrivals: Arrivals,
    /// What is known of all packets that passed; `None` if none did.
    pub state: Option<State>,
    /// Packets that the counters took: equals what passed.
    pub processed: u64,
    /// How long packets took, if that was recorded.
    pub timing: Option<Timing>,
    /// The design that worked.
    pub design: Design,
    /// Its workers.
    pub workers: usize,
}

/// What came of one source.
#[derive(Debug)]
pub struct Measured {
    /// What happened while it was read.
    pub report: Report,
    /// How its bytes got into memory.
    pub way: Way,
    /// It was changed while it was read.
    pub changed: bool,
}

impl Run {
    /// Prepares. The crew starts with the first source.
    pub fn new(settings: Settings) -> Self {
        let timed = settings.config.cut.window_ns.is_some();
        let select = Arc::new(Select::new(settings.selection.clone()));
        let locate = Arc::new(Locate { select, inner: settings.inner, timed });
        let begun = Instant::now();
        let spares = Arc::new(Spares::default());
        Self {
            locate,
            crew: None,
            design: settings.design,
            merger: Merger::new(0, Arc::clone(&settings.config), Arc::clone(&spares)),
            spares,
            clock: Clock::new(settings.config.cut),
            begun,
            events: Vec::new(),
            spare: Vec::new(),
            processed: 0,
            ended: 0,
            timing: settings.timing.then(|| Timing::new(begun)),
            settings,
        }
    }

    /// The design; known once the first source has begun.
    pub fn design(&self) -> Design {
        self.design
    }

    /// Threads that are to measure.
    pub fn wanted_workers(&self) -> usize {
        self.settings.workers
    }

    /// Compiles the expression for live sources, as measuring them would.
    pub fn check(&self, inputs: &[Input]) -> Result<(), PlanError> {
        inputs.iter().try_for_each(|input| match &input.kind {
            InputKind::Live(live) => self.locate.plan(live.layout()).map(drop),
            _ => Ok(()),
        })
    }

    /// Starts the workers as the first source wants them, unless they run.
    pub fn start(&mut self, can_be_split: bool) -> Result<(), Failure> {
        if self.crew.is_some() {
            return Ok(());
        }
        let Settings { config, workers, batch, cpus, .. } = &self.settings;
        if self.design == Design::Auto {
            self.design = if can_be_split || *workers == 1 { Design::Rss } else { Design::Async };
        }
        let mut crew = self.workers(false)?;
        let crew: Box<dyn Crew> = match self.design {
            Design::Rss | Design::Auto if *workers == 1 => Box::new(Alone(crew.pop())),
            Design::Rss | Design::Auto => Box::new(Slices::start(crew, cpus)),
            Design::Async | Design::Sync => {
                let setting = fed::Setting {
                    distribute: self.settings.distribute,
                    hasher: config.hasher.clone(),
                    batch: *batch,
                    sync: self.design == Design::Sync,
                    timing: self.timing.clone(),
                    cpus,
                    request: &config.request,
                };
                Box::new(Fed::start(self.front(), crew.into_iter().map(|worker| worker.back).collect(), setting)?)
            }
        };
        self.merger = Merger::new(crew.members(), Arc::clone(config), Arc::clone(&self.spares));
        self.crew = Some(crew);
        Ok(())
    }

    fn front(&self) -> Front {
        let Settings { selection, config, batch, .. } = &self.settings;
        let select = (!selection.expression.trim().is_empty()).then(|| Arc::clone(&self.locate.select));
        Front::new(select, config.hasher.clone(), config.cut, *batch)
    }

    /// As many workers as are wanted, with tables of their own; `cold` if they will sleep between packets.
    fn workers(&self, cold: bool) -> Result<Vec<Worker>, Failure> {
        let one = |_| {
            let back = Back::new(Arc::clone(&self.settings.config), Arc::clone(&self.spares))?;
            Ok(Worker::new(self.front(), back, self.timing.clone(), self.settings.batch, cold))
        };
        (0..self.settings.workers).map(one).collect()
    }

    /// Measures a source. `each` gets the windows that are complete, in order; `progress` the bytes that are done.
    pub fn source(
        &mut self,
        input: Input,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<Measured, Failure> {
        self.start(matches!(input.kind, InputKind::File(_)))?;
        let mut reader = Reader::new(input, Arc::clone(&self.locate), self.options());
        let changed = self.read(&mut reader, stop, progress, each)?;
        Ok(Measured { way: reader.way(), report: reader.into_report(), changed })
    }

    /// Measures several sources as one, by the reader that `make` makes for them; like [`Self::source`].
    pub fn combined(
        &mut self,
        make: impl FnOnce(Arc<Locate>, Options) -> Reader<Locate>,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(Report, Vec<Part>), Failure> {
        self.start(true)?;
        let mut reader = make(Arc::clone(&self.locate), self.options());
        self.read(&mut reader, stop, progress, each)?;
        Ok(reader.into_parts())
    }

    /// Compiles the expression for a source of this layout, as measuring it would.
    pub fn check_layout(&self, layout: &Layout) -> Result<(), PlanError> {
        self.locate.plan(layout).map(drop)
    }

    /// How to read a source.
    fn options(&self) -> Options {
        let alone = self.settings.workers == 1;
        Options {
            workers: if alone || self.design != Design::Rss { 1 } else { self.settings.workers },
            cpus: self.settings.cpus.clone(),
            way: self.settings.way,
            piece: None,
        }
    }

    /// Hands what a reader delivers to the crew; says whether a source was changed while it was read.
    fn read(
        &mut self,
        reader: &mut Reader<Locate>,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<bool, Failure> {
        let mut changed = false;
        // Pieces that workers hold.
        let mut out = 0;
        let mut booked = Booked::default();
        while let Some(delivery) = reader.next() {
            out += 1;
            let handed_ns = if self.settings.timing { self.begun.elapsed().as_nanos() as u64 } else { 0 };
            let mut cuts = self.clock.cuts(&delivery).into_iter().peekable();
            let mut whole = Some(Arc::new(delivery));
            let mut from = 0;
            while let Some((to, latest)) = cuts.next() {
                // The last piece takes the delivery along: whoever is done last gives its bytes back.
                let held = if cuts.peek().is_some() { whole.clone() } else { whole.take() };
                let piece = Piece {
                    delivery: held.expect("given away last"),
                    range: from..to,
                    latest: self.clock.latest,
                    handed_ns,
                };
                self.hand_out(piece, latest, each)?;
                from = to;
            }
            self.lose(reader, &mut booked);
            // The next bytes of a pipe may be long in coming: what is complete goes out first.
            while matches!(reader.way(), Way::Stream | Way::Live) && self.merger.open() < self.clock.open {
                self.crew.as_mut().expect("started above").events(true, &mut self.events)?;
                self.heed(each)?;
            }
            for view in self.spare.drain(..) {
                out -= 1;
                changed |= view.fault().is_some();
                reader.recycle(view);
            }
            progress(reader.progress());
            // A capture that is stopped still delivers what it has received, and ends by itself.
            if stop.load(Ordering::Relaxed) && reader.way() != Way::Live {
                break;
            }
        }
        self.lose(reader, &mut booked);
        while out > 0 {
            let crew = self.crew.as_mut().expect("started above");
            crew.events(self.spare.is_empty(), &mut self.events)?;
            self.heed(each)?;
            for view in self.spare.drain(..) {
                out -= 1;
                changed |= view.fault().is_some();
            }
        }
        Ok(changed)
    }

    /// Gives a piece to the crew, closes the windows that are complete once its packets of up to time `latest` have come, and takes
    /// up what happened.
    fn hand_out(&mut self, piece: Piece, latest: i64, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Failure> {
        let crew = self.crew.as_mut().expect("a source is measured by a crew");
        crew.take(piece, &mut self.events)?;
        if let Some(open) = self.clock.pass(latest) {
            crew.close(open, &mut self.events)?;
        }
        crew.events(false, &mut self.events)?;
        self.heed(each)
    }

    /// Accounts for packets that never reached us.
    fn lose(&mut self, reader: &Reader<Locate>, booked: &mut Booked) {
        if let Some(before) = booked.book(reader.report().live) {
            let window = self.settings.config.cut.number(self.clock.time());
            self.merger.lost(window, before);
        }
    }

    /// Measures live sources, each with a worker of its own, until they end. `each` gets the windows that are complete, in
    /// order; `look` has its turn ten times a second.
    ///
    /// It is the whole run: what remains is to [`finish`](Self::finish).
    pub fn capture(
        &mut self,
        inputs: Vec<Input>,
        look: &mut dyn FnMut(&[Arc<Sight>]),
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<Vec<Measured>, Failure> {
        /// How long a turn lasts.
        const TURN: Duration = Duration::from_millis(100);
        let lanes = inputs.len();
        (self.design, self.settings.workers) = (Design::Rss, lanes);
        self.merger = Merger::new(lanes, Arc::clone(&self.settings.config), Arc::clone(&self.spares));
        let sights: Vec<Arc<Sight>> = (0..lanes).map(|_| Arc::default()).collect();
        let (say, words) = channel();
        let workers = self.workers(true)?;
        for (id, (input, worker)) in inputs.into_iter().zip(workers).enumerate() {
            let reader = Reader::new(input, Arc::clone(&self.locate), Options::default());
            let (sight, say, clock) = (Arc::clone(&sights[id]), say.clone(), self.clock.clone());
            let lane = Lane { id, reader, worker, clock, sight, say };
            spawn(&self.settings.cpus, id, move || lane.run());
        }
        drop(say);
        let mut measured: Vec<Option<Measured>> = (0..lanes).map(|_| None).collect();
        let mut looked = Instant::now();
        while self.ended < lanes {
            if looked.elapsed() >= TURN {
                looked = Instant::now();
                look(&sights);
            }
            match words.recv_timeout(TURN) {
                Ok((id, Word::Closed(closed))) => self.merger.take(id, closed, each)?,
                Ok((id, Word::Ended(both))) => {
                    let (one, ended) = *both;
                    measured[id] = Some(one);
                    self.events.push(Event::Ended(ended));
                    self.heed(each)?;
                }
                Ok((_, Word::Failed(error))) => return Err(error.into()),
                Ok((_, Word::Died)) | Err(RecvTimeoutError::Disconnected) => return Err(Failure::Worker),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(measured.into_iter().flatten().collect())
    }

    /// Closes all windows and waits for the workers.
    pub fn finish(mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<Finished, Failure> {
        let workers = self.settings.workers;
        // After a capture all have ended.
        if self.ended < workers {
            self.start(true)?;
            let mut crew = self.crew.take().expect("started above");
            crew.close(i64::MAX, &mut self.events)?;
            crew.end();
            self.heed(each)?;
            while self.ended < workers {
                crew.events(true, &mut self.events)?;
                self.heed(each)?;
            }
        }
        let (arrivals, state) = self.merger.finish();
        let Self { processed, timing, design, .. } = self;
        Ok(Finished { arrivals, state, processed, timing, design, workers })
    }

    /// Takes up what happened.
    fn heed(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Failure> {
        for event in self.events.drain(..) {
            match event {
                Event::View(view) => self.spare.push(view),
                Event::Closed(member, closed) => self.merger.take(member, closed, each)?,
                Event::Ended(ended) => {
                    self.ended += 1;
                    self.processed += ended.processed;
                    if let (Some(all), Some(one)) = (&mut self.timing, &ended.timing) {
                        all.add(one);
                    }
                }
            }
        }
        Ok(())
    }
}
