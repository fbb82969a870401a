//! Captures: one, several by time, or a worker of the measurement for each.

use super::lane::{Standing, Steps, counted};
use super::{Booked, Error, Run};
use crate::event::{Event, On};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_io::live::Counts;
use weir_io::{Input, Kind};
use weir_packet::savefile::Layout;
use weir_pipeline::by_time::MergedCaptures;
use weir_pipeline::measuring::{self, Design, Failure, LiveCounters, Measured};
use weir_pipeline::pump::Pump;
use weir_pipeline::reader::Step;
use weir_pipeline::source::{CaptureState, Source};
use weir_pipeline::stages::Stages;
use weir_pipeline::steps::{Progress, SystemClock};
use weir_pipeline::{AccessMode, Consumer, Options, PlanError, Reader, Report};

/// Captures that a run reads step by step, as one source.
pub struct Lane {
    /// Names of the captures as the user wrote them.
    name: String,
    source: Captures,
    steps: Steps,
}

enum Captures {
    One(Box<Reader<Stages>>),
    Several(Box<MergedCaptures>),
}

impl Captures {
    fn source(&self) -> &dyn Source {
        match self {
            Self::One(reader) => &**reader,
            Self::Several(captures) => &**captures,
        }
    }

    fn source_mut(&mut self) -> &mut dyn Source {
        match self {
            Self::One(reader) => &mut **reader,
            Self::Several(captures) => &mut **captures,
        }
    }
}

impl core::fmt::Debug for Lane {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lane")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Lane {
    /// Waits at most `most` until packets may have arrived.
    pub fn wait(&mut self, most: Duration) {
        self.source.source_mut().wait(most);
    }
}

impl Run {
    /// Compiles the expressions before anything is read. **Errors**: one is wrong for every link type.
    pub fn compile(&self) -> Result<(), Error> {
        match self.stages.select().compile_early() {
            // A run that is stopped ends where it would read.
            Ok(()) | Err(PlanError::Stopped) => Ok(()),
            Err(why) => Err(Error::Refused { name: None, why }),
        }
    }

    /// Compiles the expressions for these captures, and opens the outputs. Returns `false` if the
    /// run was stopped in the meantime.
    ///
    /// The first packet may take long to arrive, so files are made and get their headers now. If a file cannot be made, the error
    /// is reported now.
    pub fn begin_capture(&mut self, inputs: &[Input], on: On<'_>) -> Result<bool, Error> {
        let others = self.outputs.want_others();
        let mut layouts = Vec::new();
        for input in inputs {
            let Kind::Live(live) = &input.kind else {
                continue;
            };
            if others && live.backend().rejects_before() {
                return Err(Error::RejectedBefore {
                    name: input.name.clone(),
                });
            }
            match self.stages.plan(live.layout(), None) {
                Ok(plan) => {
                    self.fits |= plan.fits();
                    layouts.push(live.layout().clone());
                }
                Err(PlanError::Stopped) => return Ok(false),
                Err(why) => return Err(Error::Refused { name: None, why }),
            }
        }
        self.control.begin(inputs);
        self.control.outputs().begin(&layouts);
        self.has_opened = true;
        self.layout = layouts.first().cloned();
        on(Event::Begun { bytes: None });
        self.outputs.new_source();
        self.outputs.open();
        self.outputs.begin(&layouts);
        self.tell_sink_faults(on);
        Ok(true)
    }

    /// Whether the measurement has a distributor, for one source.
    pub fn distributes(&self) -> bool {
        self.asked(Design::Async) || self.asked(Design::Sync)
    }

    /// Whether the packets of an interface are distributed among several workers of a measurement, each with its own capture. If
    /// there are outputs, splits or a firewall, the interface has one capture, and its batches are distributed.
    pub fn shares_out(&self) -> bool {
        !self.distributes() && self.outputs.are_none() && !self.stages.judge
    }

    /// Captures until the run is stopped, or until the limit of packets is reached.
    pub fn capture(&mut self, inputs: Vec<Input>, on: On<'_>) -> Result<(), Error> {
        self.sources = inputs.len();
        if self.measure.is_none() && self.outputs.are_over() {
            return Ok(());
        }
        if self.measures_where_it_reads(inputs.len()) {
            return self.capture_by_workers(inputs, on);
        }
        let mut lane = self.begin_lane(inputs)?;
        while let Some(rest) = self.step(&mut lane, on) {
            if !rest.is_zero() {
                lane.wait(rest);
            }
        }
        self.end_lane(lane, on)
    }

    /// Begins to read captures in the caller's thread, by [`Self::step`]. Several captures have a
    /// thread each, unless the [driver](super::Driver) has one thread; their packets are merged in
    /// time order; packets of equal times are in the order of the captures.
    ///
    /// **Errors**: a thread or the tables of a measurement cannot be made.
    pub fn begin_lane(&mut self, inputs: Vec<Input>) -> Result<Lane, Error> {
        // A capture is handed out in batches, but packet by packet with a distributor.
        let can_be_split = !self.distributes();
        self.start_measuring(can_be_split)?;
        let alone = Options {
            workers: 1,
            ..self.options()
        };
        let reader = |input: Input| {
            let (name, layout) = described(&input);
            let reader = Reader::new(input, Arc::clone(&self.stages), alone.clone());
            (name, layout, reader)
        };
        let mut readers: Vec<_> = inputs.into_iter().map(reader).collect();
        let (name, source) = if readers.len() == 1 {
            let (name, _, reader) = readers.remove(0);
            self.capture.clone_from(&name);
            (name, Captures::One(Box::new(reader)))
        } else {
            let names: Vec<&str> = readers.iter().map(|(name, ..)| &name[..]).collect();
            let names = names.join(", ");
            let pump = |(i, (name, layout, reader))| {
                let pump = if self.steps_captures {
                    Pump::stepped(reader, i, &self.clock)
                } else {
                    Pump::start(reader, i)?
                };
                Ok((name, layout, pump))
            };
            let pumps: io::Result<Vec<_>> = readers.into_iter().enumerate().map(pump).collect();
            let captures = MergedCaptures::new(pumps?, Arc::clone(&self.stages), self.rejected());
            // The interfaces have other numbers in the batches than where they were announced.
            self.outputs.new_source();
            (names, Captures::Several(Box::new(captures)))
        };
        let steps = self.begin_steps(source.source());
        Ok(Lane {
            name,
            source,
            steps,
        })
    }

    /// Takes the next step: passes a batch of captures through the stages, and does what is due. Never waits for packets. Returns the
    /// longest time for which the caller may wait if no packets arrive; `None` at the end of the captures, or once no more packets
    /// are wanted.
    pub fn step(&mut self, lane: &mut Lane, on: On<'_>) -> Option<Duration> {
        let Lane {
            name,
            source,
            steps,
        } = lane;
        self.step_source(name, source.source_mut(), steps, on)
    }

    /// Ends the reading of captures, and books them.
    pub fn end_lane(&mut self, lane: Lane, on: On<'_>) -> Result<(), Error> {
        let Lane {
            name,
            mut source,
            steps,
        } = lane;
        self.end_steps(source.source_mut(), steps, on);
        if self.failure.is_some() {
            self.note_failed_source(source.source());
            return Ok(());
        }
        match source {
            Captures::One(reader) => {
                self.close_live(&name, reader.report(), reader.layout(), on)?;
            }
            Captures::Several(captures) => {
                self.tell_changed(&captures, &name, on);
                for part in captures.into_parts() {
                    self.close_live(&part.name, &part.report, part.layout.as_ref(), on)?;
                }
            }
        }
        self.ledger.received -= std::mem::take(&mut self.unwanted);
        Ok(())
    }

    /// Whether a worker of the measurement reads each of `captures` captures: nothing before the measurement needs their packets in
    /// one order.
    fn measures_where_it_reads(&self, captures: usize) -> bool {
        let orders = self.firewall.is_some() || self.limit.is_some() || self.batches.is_some();
        let measures = self.measure.is_some() && !self.distributes();
        measures && (self.shares_out() || captures > 1 && !orders)
    }

    /// Tells that captures ended as one source because the memory of one changed. The rest of them is in no count.
    fn tell_changed(&mut self, captures: &MergedCaptures, name: &str, on: On<'_>) {
        if let Some(fault) = &captures.report().fault {
            self.has_failed = true;
            on(Event::LiveFault { name, fault });
        }
    }

    /// Measures each source with a worker of its own; no packet changes threads for that. The packets of all sources go by time to
    /// the outputs, if there are any; each output ends alone.
    fn capture_by_workers(&mut self, inputs: Vec<Input>, on: On<'_>) -> Result<(), Error> {
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let Some(mut measure) = self.measure.take() else {
            return Ok(());
        };
        let measured = self.try_by_workers(&mut measure, inputs, on);
        self.measure = Some(measure);
        self.tell_sink_faults(on);
        self.close_measured(&names, measured, on)
    }

    fn try_by_workers(
        &mut self,
        measure: &mut measuring::Run,
        inputs: Vec<Input>,
        on: On<'_>,
    ) -> Result<Vec<Measured>, Failure> {
        /// Longest wait for the workers, and for packets.
        const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(10));
        let clock = Arc::clone(&self.clock);
        let described: Vec<_> = inputs.iter().map(described).collect();
        let mut capture = measure.begin(inputs, clock.now())?;
        let counters = capture.counters().to_vec();
        let mut ordered = (!self.shares_out()).then(|| {
            let pumps = described.iter().cloned().zip(capture.pumps());
            let pumps = pumps.map(|((name, layout), pump)| (name, layout, pump));
            self.outputs.new_source();
            MergedCaptures::new(pumps, Arc::clone(&self.stages), self.rejected())
        });
        if !self.steps_captures {
            capture.start(SystemClock::default())?;
        }
        let mut chores = self.chores();
        loop {
            let mut idle = match self.steps_captures {
                true => capture.step_all(&*clock)?,
                false => Some(Duration::MAX),
            };
            let mut progress = Progress::Busy;
            while progress == Progress::Busy {
                progress = capture.merge(&mut |window| on(Event::Window(window)))?;
            }
            if let Some(source) = &mut ordered {
                let now = clock.now();
                match source.poll() {
                    Step::Delivery(batch) => {
                        idle = None;
                        self.commit(batch, source, None, now, on)?;
                    }
                    Step::Quiet => {
                        self.quiet(source, false, now, &mut chores, on)?;
                    }
                    // A worker must not wait for room in a merge that has ended.
                    Step::End => {
                        let names: Vec<&str> = described.iter().map(|one| &one.0[..]).collect();
                        self.tell_changed(source, &names.join(", "), on);
                        ordered = None;
                    }
                }
            }
            let captures = || states(&described, &counters);
            let standing = Standing {
                received: 0,
                progress: None,
                captures: &captures,
            };
            self.between_batches("", &standing, 0, &mut chores, on);
            if ordered.is_none() && progress == Progress::Ended {
                return Ok(capture.end());
            }
            match (&mut ordered, idle) {
                (_, None) => {}
                (_, Some(until)) if self.steps_captures => {
                    capture.wait(WAIT.1.min(until.saturating_sub(clock.now().steady)));
                }
                (Some(source), _) => source.wait(WAIT.1),
                (None, _) => capture.await_message(WAIT.0),
            }
        }
    }

    /// Books the sources that workers have measured.
    fn close_measured(
        &mut self,
        names: &[String],
        measured: Result<Vec<Measured>, Failure>,
        on: On<'_>,
    ) -> Result<(), Error> {
        match measured {
            Ok(measured) => names.iter().zip(measured).try_for_each(
                |(name, Measured { report, layout, .. })| {
                    self.close_live(name, &report, layout.as_ref(), on)
                },
            ),
            // The tables are made before the first packet, so that a lack of memory is an error of the command.
            Err(failure @ Failure::Counters(_)) => Err(Error::Tables(failure)),
            Err(failure) => {
                // Ends the workers that have not failed.
                self.failure = Some(failure);
                self.stop_captures();
                Ok(())
            }
        }
    }

    /// Books an interface whose capture has ended.
    fn close_live(
        &mut self,
        name: &str,
        report: &Report,
        layout: Option<&Layout>,
        on: On<'_>,
    ) -> Result<(), Error> {
        let source = Booked {
            name,
            report,
            layout,
            way: AccessMode::Live,
            is_judged: true,
        };
        let Some(counts) = report.live else {
            return self.close(report.received, source, on);
        };
        let filtered = counts.filtered.unwrap_or(0);
        // Packets that arrived after the last wanted one are not counted.
        let received = match self.is_wanted_no_more() {
            true => report.received + counts.dropped + filtered,
            false => counts.received,
        };
        if self.measure.is_none() {
            self.ledger.dropped.source += counts.dropped;
            self.filtered_before += filtered;
            self.ledger.uncounted |= counts.filtered.is_none();
        }
        if let Some(counted) = counted(layout, Some(counts), self.clock.now().wall_ns) {
            self.outputs.statistics(&[counted]);
        }
        self.close(received, source, on)
    }
}

/// Returns the states of captures that workers read.
fn states<'a>(
    described: &'a [(String, Layout)],
    counters: &[Arc<LiveCounters>],
) -> Vec<CaptureState<'a>> {
    let state = |((name, layout), counters): (&'a (String, Layout), &Arc<LiveCounters>)| {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CaptureState {
            name,
            layout: Some(layout),
            counts: Some(Counts {
                received: of(&counters.received),
                filtered: Some(of(&counters.filtered)),
                dropped: of(&counters.dropped),
                handed_over: of(&counters.delivered),
            }),
            ended: false,
            fault: None,
        }
    };
    described.iter().zip(counters).map(state).collect()
}

/// Returns the name and the layout of a capture.
fn described(input: &Input) -> (String, Layout) {
    let layout = match &input.kind {
        Kind::Live(live) => live.layout().clone(),
        _ => Layout::spool(Vec::new()),
    };
    (input.name.clone(), layout)
}
