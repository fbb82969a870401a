//! Captures: one source, several by time, or a worker of the measurement for each.

use super::{Error, Run, Source, tell_changes};
use crate::control::Snapshot;
use crate::event::{Event, On};
use crate::name::interface_of;
use crate::outputs::{Given, Outputs, Rest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_io::live::Counts;
use weir_io::{Input, Kind};
use weir_measure::Window;
use weir_packet::savefile::{Interface, Layout, Statistics};
use weir_pipeline::measuring::{self, Design, Failure, LiveCounters, Measured};
use weir_pipeline::pump::{Pick, Pump, Standing, pick};
use weir_pipeline::reader::Step;
use weir_pipeline::select::Misfit;
use weir_pipeline::stages::{Columns, Stages};
use weir_pipeline::steps::{Progress, SystemClock};
use weir_pipeline::{
    AccessMode, Consumer, Delivery, Options, PlanError, Reader, Report, SourceFault,
};

/// Longest wait at once for the interface that delays the others.
const TURN: Duration = Duration::from_millis(50);

/// Interval at which buffered packets are written to files.
const FLUSHED: Duration = Duration::from_secs(1);

/// Interval at which outputs are told what the captures have counted so far: a record books losses no more exactly.
const TOLD: Duration = Duration::from_millis(10);

impl Run {
    /// Compiles the expressions for these captures, and opens the outputs. Returns `false` if the run was stopped meanwhile.
    ///
    /// The first packet may take long to arrive, so files are made and get their headers now. If a file cannot be made, the error
    /// is reported now.
    pub fn begin_capture(&mut self, inputs: &[Input], on: On<'_>) -> Result<bool, Error> {
        if inputs.len() > 1 && self.batches.is_some() {
            return Err(Error::CannotBePulled);
        }
        if inputs.len() > 1 && self.firewall.is_some() && self.measure.is_some() {
            return Err(Error::Firewalled);
        }
        if inputs.len() > 1 && self.outputs.need_batches() {
            return Err(Error::BatchesOfSeveral);
        }
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
        if self.measure.is_some() && !self.distributes() {
            if self.shares_out() {
                return self.capture_by_workers(inputs, on);
            }
            if inputs.len() > 1 {
                return self.capture_and_write(inputs, on);
            }
        }
        // A capture is handed out in batches, but packet by packet with a distributor.
        let can_be_split = !self.distributes();
        self.start_measuring(can_be_split)?;
        let alone = Options {
            workers: 1,
            ..self.options()
        };
        let reader = |input: Input| {
            let name = input.name.clone();
            let layout = if let Kind::Live(live) = &input.kind {
                Some(live.layout().clone())
            } else {
                None
            };
            (
                name,
                layout,
                Reader::new(input, Arc::clone(&self.stages), alone.clone()),
            )
        };
        let mut readers: Vec<_> = inputs.into_iter().map(reader).collect();
        if readers.len() == 1 {
            let (name, _, reader) = readers.remove(0);
            return self.one_interface(&name, reader, on);
        }
        self.several_interfaces(readers, on)
    }

    /// Measures each source with a worker of its own; no packet changes threads.
    fn capture_by_workers(&mut self, inputs: Vec<Input>, on: On<'_>) -> Result<(), Error> {
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let Some(measure) = &mut self.measure else {
            return Ok(());
        };
        let (look, control) = (Arc::clone(&self.look), Arc::clone(&self.control));
        let (stages, told, select, misfits) = (
            Arc::clone(&self.stages),
            &mut self.told,
            &mut self.select,
            &mut self.misfits,
        );
        // Both closures are called in this thread, one after the other.
        let on_both = std::cell::RefCell::new(&mut *on);
        let mut looked = |counters: &[Arc<LiveCounters>]| {
            tell_changes(
                &stages,
                (told, select, misfits),
                &mut **on_both.borrow_mut(),
            );
            control.answer(|| Snapshot {
                change: control.change(),
                captures: names
                    .iter()
                    .cloned()
                    .zip(counters.iter().map(|counters| standing(counters)))
                    .collect(),
                ..Snapshot::default()
            });
            if look.swap(false, Ordering::Relaxed) {
                for (name, counters) in names.iter().zip(counters) {
                    on_both.borrow_mut()(Event::Standing {
                        name,
                        counts: standing(counters),
                    });
                }
            }
        };
        let mut each = |window: Window<'_>| on_both.borrow_mut()(Event::Window(window));
        let measured = match self.steps_captures {
            true => measure.capture_here(inputs, &*self.clock, &mut looked, &mut each),
            false => measure.capture(inputs, &mut looked, &mut each),
        };
        self.close_measured(&names, measured, on)
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
                    self.close_live(name, &report, layout.as_ref(), 0, on)
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

    /// Measures each source with a worker of its own, and passes the packets of all sources by time to the outputs. Each output
    /// ends alone.
    fn capture_and_write(&mut self, inputs: Vec<Input>, on: On<'_>) -> Result<(), Error> {
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let Some(mut measure) = self.measure.take() else {
            return Ok(());
        };
        let measured = self.try_capture_and_write(&mut measure, &names, inputs, on);
        self.measure = Some(measure);
        self.tell_sink_faults(on);
        self.close_measured(&names, measured, on)
    }

    fn try_capture_and_write(
        &mut self,
        measure: &mut measuring::Run,
        names: &[String],
        inputs: Vec<Input>,
        on: On<'_>,
    ) -> Result<Vec<Measured>, Failure> {
        /// Length of a turn; complete windows are given out in each turn.
        const TURN: Duration = Duration::from_millis(10);
        let clock = Arc::clone(&self.clock);
        let mut capture = measure.begin(inputs, clock.now())?;
        let pumped = names
            .iter()
            .cloned()
            .zip(capture.pumps())
            .map(|(name, pump)| MergedSource::new(name, pump));
        let mut merge = TimeMerge::new(pumped.collect(), self.instant());
        let turn = if self.steps_captures {
            Duration::ZERO
        } else {
            capture.start(SystemClock::default())?;
            TURN
        };
        let mut passes = true;
        loop {
            let idle = if self.steps_captures {
                capture.step_all(&*clock)?
            } else {
                None
            };
            let looks = !passes || merge.takes_up(self);
            let mut progress = Progress::Busy;
            while looks && progress == Progress::Busy {
                progress = capture.merge(&mut |window| on(Event::Window(window)))?;
            }
            if looks {
                let standing = || {
                    names
                        .iter()
                        .cloned()
                        .zip(capture.counters().iter().map(|counters| standing(counters)))
                };
                if self.look.swap(false, Ordering::Relaxed) {
                    standing().for_each(|(name, counts)| {
                        on(Event::Standing {
                            name: &name,
                            counts,
                        })
                    });
                }
                self.tell_changes(on);
                merge.replace_outputs(self, on);
                self.control
                    .answer(|| self.snapshot(0, standing().collect(), 0));
                self.flush_files(&mut merge.flushed, FLUSHED, on);
            }
            match (passes, progress) {
                (false, Progress::Ended) => return Ok(capture.end()),
                (false, _) if !self.steps_captures => std::thread::sleep(TURN),
                (false, _) => {}
                (true, _) => {
                    passes = !matches!(merge.step(self, turn, on), MergeStep::End);
                    if !passes {
                        // A worker must not wait for room in a merge that has ended.
                        merge.sources.clear();
                    }
                }
            }
            if let Some(until) = idle {
                capture.wait(TURN.min(until.saturating_sub(clock.now().steady)));
            }
        }
    }

    fn one_interface(
        &mut self,
        name: &str,
        mut reader: Reader<Stages>,
        on: On<'_>,
    ) -> Result<(), Error> {
        name.clone_into(&mut self.capture);
        if let Err(failure) = self.try_one_interface(name, &mut reader, on) {
            self.failure = Some(failure);
            self.note_failed_source(&reader);
            return Ok(());
        }
        let unwanted = std::mem::take(&mut self.unwanted);
        self.close_live(name, reader.report(), reader.layout(), unwanted, on)
    }

    fn try_one_interface(
        &mut self,
        name: &str,
        reader: &mut Reader<Stages>,
        on: On<'_>,
    ) -> Result<(), Failure> {
        let mut flushed = self.instant();
        let mut told = None;
        let mut whole = true;
        let clock = Arc::clone(&self.clock);
        let mut reading = self
            .measure
            .as_mut()
            .map(|measure| measure.begin_source(reader, clock.now()));
        // A stopped capture still delivers the packets received so far, and ends by itself.
        while whole && (self.measure.is_some() || !self.has_enough()) {
            let now = clock.now();
            // A measurement returns the time until which there is no work.
            let step = if reading.is_some() {
                reader.look()
            } else {
                reader.step_by(&*clock)
            };
            let mut idle = None;
            match step {
                Step::Delivery(delivery) => {
                    let gone =
                        self.commit(delivery, reader, reading.as_mut(), now, &|| false, on)?;
                    if let Some(gone) = gone {
                        (whole, self.ledger.changed) = (false, true);
                        self.unwanted += gone.packets;
                    }
                    self.flush_for_readers(on);
                }
                Step::Quiet => {
                    self.replace_outputs(reader.change(), reader.layout(), on);
                    if let Some(firewall) = &mut self.firewall {
                        firewall.take_up();
                    }
                    match &mut self.measure {
                        Some(measure) => {
                            idle = Some(measure.quiet(now, reader.change(), &mut |window| {
                                on(Event::Window(window))
                            })?)
                        }
                        None => self.flush_files(&mut flushed, Duration::ZERO, on),
                    }
                }
                Step::End => break,
            }
            self.settle(reader, reading.as_mut(), on)?;
            self.flush_files(&mut flushed, FLUSHED, on);
            let at = clock.now();
            if told.is_none_or(|told| at.steady.saturating_sub(told) >= TOLD) {
                told = Some(at.steady);
                let counted = counted(reader.layout(), reader.report().live, at.wall_ns);
                self.outputs.counted_so_far(counted.as_slice());
            }
            self.tell_standing(name, reader.report(), on);
            self.between_batches(reader, reading.as_ref(), on);
            if let Some(until) = idle {
                reader.wait(until.saturating_sub(now.steady));
            }
        }
        if !whole {
            on(Event::Changed { name });
        }
        if let (Some(measure), Some(reading)) = (&mut self.measure, reading) {
            return measure.end_source(reading, reader, &|| false, &mut |window| {
                on(Event::Window(window))
            });
        }
        if !self.is_wanted_no_more() {
            // The packets in the capture's memory were received: the capture takes no more packets, and the rest is counted.
            self.stop_captures();
            while let Some(delivery) = reader.next() {
                let part = &delivery.part.selected;
                self.ledger.add_dropped(part);
                part.misfits
                    .iter()
                    .for_each(|misfit| Misfit::add(&mut self.misfits, *misfit));
            }
        }
        Ok(())
    }

    /// Passes packets on by time. Packets of equal times keep the order of the interfaces.
    fn several_interfaces(&mut self, readers: Vec<Described>, on: On<'_>) -> Result<(), Error> {
        let start = |(i, (name, described, reader)): (usize, Described)| {
            let pump = if self.steps_captures {
                Pump::stepped(reader, i, &self.clock)
            } else {
                Pump::start(reader, i)?
            };
            Ok(MergedSource {
                described,
                ..MergedSource::new(name, pump)
            })
        };
        let mut told = None;
        let sources = readers
            .into_iter()
            .enumerate()
            .map(start)
            .collect::<std::io::Result<Vec<MergedSource>>>()?;
        let mut merge = TimeMerge::new(sources, self.instant());
        while !self.outputs.are_over() && !self.has_reached_limit() {
            if merge.takes_up(self) {
                if !self.is_stopped() {
                    tell_ends(&mut merge.sources, self.instant(), on);
                }
                self.tell_changes(on);
                merge.replace_outputs(self, on);
                self.control.answer(|| self.snapshot(0, Vec::new(), 0));
                self.flush_files(&mut merge.flushed, FLUSHED, on);
                let at = self.clock.now();
                if told.is_none_or(|told| at.steady.saturating_sub(told) >= TOLD) {
                    told = Some(at.steady);
                    let counted = merge.sources.iter().filter_map(|source| {
                        counted(source.described.as_ref(), source.counts(), at.wall_ns)
                    });
                    self.outputs.counted_so_far(&counted.collect::<Vec<_>>());
                }
            }
            match merge.step(self, TURN, on) {
                MergeStep::Packet => self.passed_on += 1,
                MergeStep::Waited => {
                    if let Some(firewall) = &mut self.firewall {
                        firewall.take_up();
                    }
                    self.tell_so_far(&merge.sources, on);
                }
                MergeStep::End => break,
            }
        }
        let sources = merge.sources;
        self.tell_sink_faults(on);
        self.stop_captures();
        for mut source in sources {
            // Packets that arrive now are not passed on. Dropped packets are reported at the end.
            let mut unwanted = source.give_back(self);
            while source.pump.ended().is_none() {
                source
                    .pump
                    .look(TURN, &mut |delivery| self.take_up_one_of_several(delivery));
                unwanted += source.give_back(self);
            }
            if let Some((report, layout)) = source.pump.ended() {
                self.close_live(&source.name, report, layout.as_ref(), unwanted, on)?;
            }
        }
        Ok(())
    }

    /// Judges a batch of one of several captures, and counts its packets. What is in flight between two interfaces has no order, so each
    /// batch is judged when it arrives, and its packets wait for their turn behind that.
    fn take_up_one_of_several(&mut self, delivery: &mut Arc<Delivery<Stages>>) {
        // Beside a measurement, which shares the batch, there is no firewall.
        if let (Some(firewall), Some(own)) = (&mut self.firewall, Arc::get_mut(delivery)) {
            firewall.judge(own);
            firewall.end();
        }
        self.take_up(&delivery.part.selected);
    }

    /// Whether later packets are in no count, because the limit is reached or the files of an output are complete.
    fn is_wanted_no_more(&self) -> bool {
        self.has_reached_limit() || self.ledger.changed || self.outputs.are_complete()
    }

    /// Sends the counts of all interfaces, if requested.
    fn tell_so_far(&self, sources: &[MergedSource], on: On<'_>) {
        if self.look.swap(false, Ordering::Relaxed) {
            let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
            let (passed, filtered) = (self.ledger.passed, self.ledger.filtered);
            on(Event::SoFar {
                names: &names,
                passed,
                filtered,
            });
        }
    }

    /// Sends the counts of an interface, if requested.
    fn tell_standing(&self, name: &str, report: &Report, on: On<'_>) {
        if let (true, Some(counts)) = (self.look.swap(false, Ordering::Relaxed), report.live) {
            on(Event::Standing { name, counts });
        }
    }

    /// Writes out the buffered packets for readers that wait, because the next packets may take long to arrive.
    fn flush_for_readers(&mut self, on: On<'_>) {
        self.outputs.flush_awaited();
        self.tell_sink_faults(on);
    }

    /// Ends slices of time whose time is over, and writes the buffered packets to the files if the last time was at least
    /// `after` ago.
    fn flush_files(&mut self, flushed: &mut Instant, after: Duration, on: On<'_>) {
        let now = self.instant();
        self.outputs.pass_time(now);
        if now.duration_since(*flushed) >= after {
            *flushed = now;
            self.outputs.flush();
            self.tell_sink_faults(on);
        }
    }

    /// Books an interface whose capture has ended; `unwanted` packets were delivered after the limit was reached.
    fn close_live(
        &mut self,
        name: &str,
        report: &Report,
        layout: Option<&Layout>,
        unwanted: u64,
        on: On<'_>,
    ) -> Result<(), Error> {
        let source = Source {
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
        let mut received = counts.received;
        if self.measure.is_none() {
            self.ledger.dropped.source += counts.dropped;
            self.filtered_before += filtered;
            self.ledger.uncounted |= counts.filtered.is_none();
            // Packets that arrived after the last wanted one are not counted.
            if self.is_wanted_no_more() {
                received = report.received + counts.dropped + filtered - unwanted;
            }
        }
        if let Some(counted) = counted(layout, Some(counts), self.clock.now().wall_ns) {
            self.outputs.statistics(&[counted]);
        }
        self.close(received, source, on)
    }
}

/// Returns the interface of a capture with what it has counted so far.
fn counted(
    layout: Option<&Layout>,
    counts: Option<Counts>,
    time_ns: i64,
) -> Option<(Interface, Statistics)> {
    let (interface, counts) = (layout?.interfaces.first()?, counts?);
    let statistics = Statistics {
        time_ns,
        received: Some(counts.received),
        dropped_by_system: Some(counts.dropped),
        delivered: Some(counts.handed_over),
        ..Statistics::default()
    };
    Some((interface.clone(), statistics))
}

fn standing(counters: &LiveCounters) -> Counts {
    Counts {
        received: counters.received.load(Ordering::Relaxed),
        filtered: Some(counters.filtered.load(Ordering::Relaxed)),
        dropped: counters.dropped.load(Ordering::Relaxed),
        handed_over: counters.delivered.load(Ordering::Relaxed),
    }
}

/// Name of a source, its layout if it is a capture, and its reader.
type Described = (String, Option<Layout>, Reader<Stages>);

/// One interface of several.
struct MergedSource {
    name: String,
    pump: Pump<Stages>,
    /// Time at which the early end of the interface was noticed.
    ended: Option<Instant>,
    /// Whether that end was reported.
    told: bool,
    /// Layout of the capture; `None` if it is measured too.
    described: Option<Layout>,
}

/// Interfaces whose packets are passed on by time.
struct TimeMerge {
    sources: Vec<MergedSource>,
    /// Number of the source of the last packet.
    last: usize,
    flushed: Instant,
    /// Whether to check for new messages: once for each batch, and while a packet waits for others.
    looks: bool,
}

/// Result of a step of [`TimeMerge`].
enum MergeStep {
    /// A packet was passed on.
    Packet,
    /// No packet was passed on, because an earlier one may still arrive.
    Waited,
    /// All sources have ended, or no output takes more.
    End,
}

impl TimeMerge {
    fn new(sources: Vec<MergedSource>, now: Instant) -> Self {
        Self {
            sources,
            last: usize::MAX,
            flushed: now,
            looks: true,
        }
    }

    /// Takes the new messages, if a check is due. Returns whether it was.
    fn takes_up(&mut self, run: &mut Run) -> bool {
        let looks = std::mem::take(&mut self.looks);
        for source in self.sources.iter_mut().filter(|_| looks) {
            source
                .pump
                .take_up(&mut |delivery| run.take_up_one_of_several(delivery));
        }
        looks
    }

    /// Puts new sinks in place once no source has an earlier batch.
    fn replace_outputs(&mut self, run: &mut Run, on: On<'_>) {
        let latest = run.control.change();
        if latest > run.output_change {
            let reached = self.sources.iter_mut().map(MergedSource::change).min();
            let layout = self.sources.iter_mut().find_map(MergedSource::layout);
            let (reached, layout) = (
                reached.unwrap_or(0).min(latest),
                layout.or_else(|| run.layout.clone()),
            );
            run.replace_outputs(reached, layout.as_ref(), on);
        }
    }

    /// Passes the next packet on, or waits at most `turn` for it.
    fn step(&mut self, run: &mut Run, turn: Duration, on: On<'_>) -> MergeStep {
        let next = match pick(self.sources.iter_mut().map(MergedSource::standing)) {
            Pick::Packet(next) => next,
            Pick::Wait(behind) => {
                run.flush_for_readers(on);
                self.sources[behind]
                    .pump
                    .look(turn, &mut |delivery| run.take_up_one_of_several(delivery));
                self.looks = true;
                return MergeStep::Waited;
            }
            Pick::End => return MergeStep::End,
        };
        if next != self.last {
            run.outputs.new_source();
            self.last = next;
        }
        match self.sources[next].emit(&mut run.outputs) {
            Given::All => {}
            // The packet is taken out of the counts with all others that wait.
            Given::Until(_) => return MergeStep::End,
            Given::Changed => {
                run.ledger.changed = true;
                on(Event::Changed {
                    name: &self.sources[next].name,
                });
                return MergeStep::End;
            }
        }
        self.looks = self.sources[next].is_at_batch();
        MergeStep::Packet
    }
}

/// Reports, once, the interfaces that ended early while others go on.
fn tell_ends(sources: &mut [MergedSource], now: Instant, on: On<'_>) {
    /// Time for which the other queues of an interface may still end of the same cause.
    const TOGETHER: Duration = Duration::from_secs(1);
    let has_ended = |source: &MergedSource| source.pump.ended().is_some();
    let untold = sources
        .iter()
        .any(|source| has_ended(source) && !source.told);
    if !untold || sources.iter().all(has_ended) {
        return;
    }
    let running: Vec<String> = sources
        .iter()
        .filter(|s| !has_ended(s))
        .map(|s| interface_of(&s.name).to_owned())
        .collect();
    let mut ends = Vec::new();
    for (i, source) in sources
        .iter_mut()
        .enumerate()
        .filter(|(_, source)| !source.told && has_ended(source))
    {
        let since = *source.ended.get_or_insert(now);
        let waits = running
            .iter()
            .any(|other| other == interface_of(&source.name));
        source.told = !waits || now.duration_since(since) > TOGETHER;
        ends.extend(source.told.then_some(i));
    }
    let fault = |&i: &usize| {
        let MergedSource { name, pump, .. } = &sources[i];
        Some((name.as_str(), pump.ended()?.0.fault.as_ref()?))
    };
    let faults: Vec<(&str, &SourceFault)> = ends.iter().filter_map(fault).collect();
    if !faults.is_empty() {
        on(Event::LiveFaultsSoFar(&faults));
    }
}

impl MergedSource {
    fn new(name: String, pump: Pump<Stages>) -> Self {
        Self {
            name,
            pump,
            ended: None,
            told: false,
            described: None,
        }
    }

    /// Returns what the capture has counted so far.
    fn counts(&self) -> Option<Counts> {
        self.pump
            .ended()
            .map_or_else(|| self.pump.counts(), |(report, _)| report.live)
    }

    fn standing(&mut self) -> Standing {
        let next = self.time();
        Standing {
            next,
            until: self.pump.until(),
            ended: self.pump.ended().is_some(),
        }
    }

    /// Returns the time of the next packet, ns; `None` if no packet waits.
    fn time(&mut self) -> Option<i64> {
        let (delivery, number) = self.pump.next(Columns::next_passed)?;
        let at = delivery.part.records[number] as usize;
        let record = delivery.current.layout.record(delivery.view.content(), at);
        Some(record.and_then(|record| record.time_ns).unwrap_or(i64::MIN))
    }

    /// Returns the number of the change of the next packet, or of an earlier one.
    fn change(&mut self) -> u64 {
        match self.pump.next(Columns::next_passed) {
            Some((delivery, _)) => delivery.current.plan.change(),
            None => self.pump.change(),
        }
    }

    /// Returns the layout of the source at the next packet, if a packet waits.
    fn layout(&mut self) -> Option<Layout> {
        self.pump
            .next(Columns::next_passed)
            .map(|(delivery, _)| delivery.current.layout.clone())
    }

    /// Whether the next packet is the first of a batch, or no packet waits.
    fn is_at_batch(&mut self) -> bool {
        self.pump.next(Columns::next_passed).is_none() || self.pump.is_fresh()
    }

    fn emit(&mut self, outputs: &mut Outputs) -> Given {
        let Some((delivery, number)) = self.pump.next(Columns::next_passed) else {
            return Given::All;
        };
        let layout = &delivery.current.layout;
        let part = &delivery.part;
        let given = match layout.record(delivery.view.content(), part.records[number] as usize) {
            Some(record) => outputs.packet(layout, &record, part, number),
            None => Given::Changed,
        };
        if let Given::All = given {
            self.pump.pass();
        }
        given
    }

    /// Takes the waiting packets out of the counts of passed packets, because they are dropped or no longer wanted. Returns the
    /// number of packets no longer wanted.
    fn give_back(&mut self, run: &mut Run) -> u64 {
        let mut packets = 0;
        while let Some((delivery, number)) = self.pump.next(Columns::next_passed) {
            let rest = Rest::of(delivery, number);
            if run.is_wanted_no_more() {
                run.take_back(&rest);
                packets += rest.received;
            } else {
                run.ledger.drop_rest(&rest);
            }
            self.pump.leave();
        }
        packets
    }
}
