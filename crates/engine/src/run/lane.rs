//! The loop of a run: takes the batches of a source, gives them to the stages, and does what is due between two batches.

use super::{Run, tell_changes};
use crate::batches::BatchSender;
use crate::control::Snapshot;
use crate::cut;
use crate::event::{Event, On};
use crate::name::interface_of;
use crate::stage_mark::Stage as MarkedStage;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_io::Chunk;
use weir_io::live::{Counts, TURN};
use weir_measure::Window;
use weir_packet::savefile::{Interface, Layout, Statistics};
use weir_pipeline::by_time::Rejected;
use weir_pipeline::measuring::{self, Failure, Reading};
use weir_pipeline::reader::Step;
use weir_pipeline::select::{Misfit, Selected};
use weir_pipeline::source::{CaptureState, Source};
use weir_pipeline::stages::Stages;
use weir_pipeline::steps::Moment;
use weir_pipeline::{AccessMode, Delivery};

/// Interval at which buffered packets are written to files.
const FLUSHED: Duration = Duration::from_secs(1);

/// Interval at which outputs are told what the captures have counted so far: a record books losses no more exactly.
const TOLD: Duration = Duration::from_millis(10);

/// State of a source between two batches.
pub(super) struct Standing<'a> {
    /// Number of packets in the batches of a source that is not closed yet.
    pub received: u64,
    /// Number of bytes read so far; `None` for captures.
    pub progress: Option<u64>,
    /// States of the captures.
    pub captures: &'a dyn Fn() -> Vec<CaptureState<'a>>,
}

/// Times of the work that is due now and then.
pub(super) struct Chores {
    /// Instant of the last write of all buffered packets.
    flushed: Instant,
    /// Steady time at which outputs were last told the counts of the captures.
    told: Option<Duration>,
    /// Early ends of captures, by their numbers: the instant at which each was noticed, and whether it was reported.
    ends: Vec<Option<(Instant, bool)>>,
}

/// State of a source between two steps.
pub(super) struct Steps {
    reading: Option<Reading>,
    chores: Chores,
    /// Steady time until which a capture without packets is left alone.
    rests_until: Option<Duration>,
    has_ended: bool,
}

impl Run {
    pub(super) fn chores(&self) -> Chores {
        Chores {
            flushed: self.instant(),
            told: None,
            ends: Vec::new(),
        }
    }

    /// Returns the form in which the stages need the packets that the filter rejects, of several sources.
    pub(super) fn rejected(&self) -> Rejected {
        if self.batches.is_some() || self.outputs.want_others() {
            Rejected::Whole
        } else if self.measure.is_some() || self.limit.is_some() || self.outputs.may_end() {
            Rejected::Headers
        } else {
            Rejected::LeftOut
        }
    }

    /// Passes the batches of a source through the stages, to its end or as far as needed. `name` is that of a capture.
    pub(super) fn drive(&mut self, name: &str, source: &mut dyn Source, on: On<'_>) {
        let mut steps = self.begin_steps(source);
        while let Some(rest) = self.step_source(name, source, &mut steps, on) {
            if !rest.is_zero() {
                source.wait(rest);
            }
        }
        self.end_steps(source, steps, on);
    }

    pub(super) fn begin_steps(&mut self, source: &dyn Source) -> Steps {
        let now = self.clock.now();
        let begin = |measure: &mut measuring::Run| measure.begin_source(source, now);
        Steps {
            reading: self.measure.as_mut().map(begin),
            chores: self.chores(),
            rests_until: None,
            has_ended: false,
        }
    }

    /// Takes the next step of a source: passes a batch through the stages, and does what is due. Never waits for a capture. Returns the
    /// longest time for which there is no work unless packets arrive; `None` at the end.
    pub(super) fn step_source(
        &mut self,
        name: &str,
        source: &mut dyn Source,
        steps: &mut Steps,
        on: On<'_>,
    ) -> Option<Duration> {
        match self.try_step(name, source, steps, on) {
            Ok(rest) => rest,
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }

    fn try_step(
        &mut self,
        name: &str,
        source: &mut dyn Source,
        steps: &mut Steps,
        on: On<'_>,
    ) -> Result<Option<Duration>, Failure> {
        let live = source.way() == AccessMode::Live;
        let now = self.clock.now();
        let mut idle = None;
        match source.poll() {
            Step::Delivery(batch) => {
                steps.rests_until = None;
                self.commit(batch, source, steps.reading.as_mut(), now, on)?;
            }
            Step::Quiet if live => {
                // A measurement knows until when there is no work. Without one, there is work after a turn without packets.
                if steps.reading.is_none() {
                    let until = *steps
                        .rests_until
                        .get_or_insert(now.steady.saturating_add(TURN));
                    let rest = until.saturating_sub(now.steady);
                    if !rest.is_zero() {
                        return Ok(Some(rest));
                    }
                    steps.rests_until = None;
                }
                let measures = steps.reading.is_some();
                idle = self.quiet(source, measures, now, &mut steps.chores, on)?;
            }
            Step::Quiet => {}
            Step::End => {
                steps.has_ended = true;
                return Ok(None);
            }
        }
        self.after_step(source, steps.reading.as_mut(), on)?;
        let captures = || source.captures();
        let standing = Standing {
            received: source.report().received,
            progress: (!live).then(|| source.progress()),
            captures: &captures,
        };
        let of_workers = steps.reading.as_ref().map_or(0, Reading::in_flight);
        let in_flight = of_workers + self.outstanding();
        self.between_batches(name, &standing, in_flight, &mut steps.chores, on);
        if self.is_over(live) {
            return Ok(None);
        }
        Ok(Some(idle.map_or(Duration::ZERO, |until| {
            until.saturating_sub(now.steady)
        })))
    }

    /// Reads the rest of a source that takes no more steps, and waits until its packets are measured.
    pub(super) fn end_steps(&mut self, source: &mut dyn Source, steps: Steps, on: On<'_>) {
        if self.failure.is_some() {
            return;
        }
        let live = source.way() == AccessMode::Live;
        let Steps {
            reading, has_ended, ..
        } = steps;
        if live && !has_ended && (!self.is_wanted_no_more() || source.captures().len() > 1) {
            self.drain(source);
        }
        let (Some(measure), Some(reading)) = (&mut self.measure, reading) else {
            return;
        };
        let stopped = || !live && !self.stages.judge && self.stop.load(Ordering::Relaxed);
        let ended = measure.end_source(reading, source, &stopped, &mut |window| {
            on(Event::Window(window))
        });
        self.failure = ended.err();
    }

    /// Reads the rest of a capture that takes no more packets.
    fn drain(&mut self, source: &mut dyn Source) {
        self.stop_captures();
        let wanted = !self.is_wanted_no_more();
        let before = source.report().received;
        loop {
            match source.poll() {
                Step::Delivery(batch) => {
                    let part = &batch.part.selected;
                    if wanted {
                        self.ledger.add_dropped(part);
                        self.note_misfits(part);
                    }
                    source.recycle(batch.view);
                }
                Step::Quiet => source.wait(TURN),
                Step::End => break,
            }
        }
        if !wanted {
            self.unwanted += source.report().received - before;
        }
    }

    /// Gives a batch to the stages, judges first.
    pub(super) fn commit(
        &mut self,
        mut batch: Delivery<Stages>,
        source: &mut dyn Source,
        reading: Option<&mut Reading>,
        now: Moment,
        on: On<'_>,
    ) -> Result<(), Failure> {
        self.fits |= batch.current.plan.fits();
        if self.firewall.is_some() && self.fits {
            // Where a file cannot be made, no packet is judged.
            self.outputs.open();
        }
        let is_wanted = !self.outputs.are_refused();
        if let Some(dedup) = self.dedup.as_mut().filter(|_| is_wanted) {
            dedup.judge(&mut batch);
        }
        self.replace_rules(source.change(), on);
        if let Some(firewall) = self.firewall.as_mut().filter(|_| is_wanted) {
            firewall.judge(&mut batch);
        }
        self.end_at_limit(&mut batch, source);
        if self.stages.judge {
            self.replace_outputs(source.change(), Some(&batch.current.layout), on);
            self.give(&mut batch, source);
        }
        if let Some(firewall) = self.firewall.as_mut().filter(|_| is_wanted) {
            firewall.end();
        }
        if matches!(source.way(), AccessMode::Stream | AccessMode::Live) {
            // The next packets may take long to arrive.
            self.outputs.flush_awaited();
        }
        self.tell_sink_faults(on);
        let Some(reading) = reading else {
            self.hand_out(batch, source);
            return Ok(());
        };
        let measured = match self.batches {
            Some(_) => {
                let copy = batch.share();
                self.hand_out(batch, source);
                copy
            }
            None => batch,
        };
        let Some(measure) = &mut self.measure else {
            return Ok(());
        };
        let mut give = |window: Window<'_>| on(Event::Window(window));
        // Packets taken by an output must be measured too.
        let live = source.way() == AccessMode::Live;
        let stopped = || !live && !self.stages.judge && self.stop.load(Ordering::Relaxed);
        self.outputs.mark().during(MarkedStage::Measurement, || {
            measure.take(
                reading,
                measured,
                (now, source.change()),
                &stopped,
                &mut give,
            )
        })
    }

    /// Gives a batch to the outputs, and books it.
    fn give(&mut self, batch: &mut Delivery<Stages>, source: &mut dyn Source) {
        self.note_misfits(&batch.part.selected);
        // Before the expression makes sense for a link type, it may still be refused, so no file is made.
        if self.fits {
            self.outputs.open();
        }
        let until = self.outputs.take(batch);
        // A measurement continues behind the last packet of an output.
        if let (Some(end), None) = (until, &self.measure) {
            self.end_at(end, batch, source);
        }
        // A batch that is handed out is booked when it is taken or not.
        if self.batches.is_none() || !self.outputs.are_none() || self.measure.is_some() {
            self.ledger.add(&batch.part.selected);
        }
    }

    /// Ends a batch behind the last packet that the limit allows: what is behind it is in no count.
    fn end_at_limit(&mut self, batch: &mut Delivery<Stages>, source: &mut dyn Source) {
        let Some(limit) = self.limit else { return };
        let room = limit.saturating_sub(self.passed_on);
        let passed = batch.part.selected.passed;
        if passed < room {
            self.passed_on += passed;
            return;
        }
        let mut numbers = batch.part.passed.numbers();
        let last = room.checked_sub(1).and_then(|n| numbers.nth(n as usize));
        self.end_at(last.map_or(0, |last| last + 1), batch, source);
        self.passed_on = limit;
    }

    /// Ends a batch and its source in front of packet `end`: what follows is in no count.
    fn end_at(&mut self, end: usize, batch: &mut Delivery<Stages>, source: &mut dyn Source) {
        let cut = cut::cut(batch, end);
        let last = batch.part.records.last().map_or(0, |&at| at as usize);
        source.end_within(batch, last, cut.longer);
        self.unwanted += cut.packets;
    }

    /// Hands a batch out, if batches are pulled, and answers other threads while it waits for room.
    fn hand_out(&mut self, batch: Delivery<Stages>, source: &mut dyn Source) {
        let Some(mut batches) = self.batches.take() else {
            return source.recycle(batch.view);
        };
        let alone = self.outputs.are_none() && self.measure.is_none();
        let sums = batch.part.selected.clone();
        // Without other stages, the batch is booked once it is taken or not.
        let unbooked = if alone {
            batch.part.records.len() as u64
        } else {
            0
        };
        let back = batches.give(batch, &self.stop, |outstanding| {
            let captures = || source.captures();
            let standing = Standing {
                received: source.report().received - unbooked,
                progress: None,
                captures: &captures,
            };
            self.control
                .answer(|| self.snapshot(&standing, outstanding));
        });
        if let Some(buffer) = batches.spare() {
            source.recycle(Chunk::owned(0, false, buffer, 0..0));
        }
        match back {
            None if alone => self.ledger.add(&sums),
            Some(_) if alone => self.ledger.add_dropped(&sums),
            _ => {}
        }
        if let Some(batch) = back {
            source.recycle(batch.view);
        }
        self.batches = Some(batches);
    }

    /// Handles a live source without packets, whose next packets belong to change `source.change()` or a later one. Returns the
    /// steady time until which there is no work, beside a measurement.
    pub(super) fn quiet(
        &mut self,
        source: &dyn Source,
        measures: bool,
        now: Moment,
        chores: &mut Chores,
        on: On<'_>,
    ) -> Result<Option<Duration>, Failure> {
        self.replace_outputs(source.change(), source.layout(), on);
        self.replace_rules(source.change(), on);
        if let Some(firewall) = &mut self.firewall {
            firewall.take_up();
        }
        match &mut self.measure {
            Some(measure) if measures => {
                let mut give = |window: Window<'_>| on(Event::Window(window));
                measure.quiet(now, source.change(), &mut give).map(Some)
            }
            _ => {
                self.flush_files(chores, Duration::ZERO, on);
                Ok(None)
            }
        }
    }

    /// Does the work of a measurement between batches.
    fn after_step(
        &mut self,
        source: &mut dyn Source,
        reading: Option<&mut Reading>,
        on: On<'_>,
    ) -> Result<(), Failure> {
        let (Some(measure), Some(reading)) = (&mut self.measure, reading) else {
            return Ok(());
        };
        let mut give = |window: Window<'_>| on(Event::Window(window));
        self.outputs.mark().during(MarkedStage::Measurement, || {
            measure.after_step(reading, source, &mut give)
        })
    }

    /// Handles the requests of other threads, and what is due between two batches.
    pub(super) fn between_batches(
        &mut self,
        name: &str,
        standing: &Standing<'_>,
        in_flight: usize,
        chores: &mut Chores,
        on: On<'_>,
    ) {
        match standing.progress {
            Some(bytes) => on(Event::Progress { bytes }),
            None => {
                self.flush_files(chores, FLUSHED, on);
                self.watch_captures(name, standing, chores, on);
            }
        }
        self.tell_changes(on);
        self.control.answer(|| self.snapshot(standing, in_flight));
    }

    /// Tells what the captures have counted so far, and their early ends.
    fn watch_captures(
        &mut self,
        name: &str,
        standing: &Standing<'_>,
        chores: &mut Chores,
        on: On<'_>,
    ) {
        let at = self.clock.now();
        let is_due = |told: Duration| at.steady.saturating_sub(told) >= TOLD;
        if chores.told.is_none_or(is_due) {
            chores.told = Some(at.steady);
            let captures = (standing.captures)();
            let counts = captures
                .iter()
                .filter_map(|state| counted(state.layout, state.counts, at.wall_ns));
            self.outputs.counted_so_far(&counts.collect::<Vec<_>>());
            if !self.is_stopped() {
                tell_ends(&captures, chores, self.instant(), on);
            }
        }
        if self.standing_asked.swap(false, Ordering::Relaxed) {
            for state in (standing.captures)() {
                let name = if state.name.is_empty() {
                    name
                } else {
                    state.name
                };
                if let Some(counts) = state.counts {
                    on(Event::Standing { name, counts });
                }
            }
        }
    }

    /// Returns the number of batches that are handed out, or wait to be.
    fn outstanding(&self) -> usize {
        self.batches.as_ref().map_or(0, BatchSender::outstanding)
    }

    /// Returns the state of the run, with packets of the source that is read.
    fn snapshot(&self, standing: &Standing<'_>, in_flight: usize) -> Snapshot {
        let named = |state: CaptureState<'_>| {
            let name = match state.name {
                "" => &self.capture[..],
                own => own,
            };
            Some((name.to_owned(), state.counts?))
        };
        let captures = (standing.captures)()
            .into_iter()
            .filter_map(named)
            .collect();
        self.snapshot_of(standing.received, captures, in_flight)
    }

    /// Counts packets for which an expression makes no sense.
    fn note_misfits(&mut self, part: &Selected) {
        part.misfits
            .iter()
            .for_each(|misfit| Misfit::add(&mut self.misfits, *misfit));
        self.unmatched = self.unmatched.or(part.unmatched.found);
    }

    /// Sends an event if the filter was replaced since the last call.
    pub(super) fn tell_changes(&mut self, on: On<'_>) {
        tell_changes(
            &self.stages,
            (&mut self.told, &mut self.select, &mut self.misfits),
            on,
        );
    }

    /// Ends slices of time whose time is over, and writes the buffered packets to the files if the last time was at least
    /// `after` ago.
    pub(super) fn flush_files(&mut self, chores: &mut Chores, after: Duration, on: On<'_>) {
        let now = self.instant();
        self.outputs.pass_time(now);
        if now.duration_since(chores.flushed) >= after {
            chores.flushed = now;
            self.outputs.flush();
            self.tell_sink_faults(on);
        }
    }

    /// Whether later packets are in no count, because the limit is reached or the files of an output are complete.
    pub(super) fn is_wanted_no_more(&self) -> bool {
        self.has_reached_limit() || self.outputs.are_complete()
    }
}

/// Returns the interface of a capture with what it has counted so far.
pub(super) fn counted(
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

/// Reports, once, the captures that ended early while others go on.
fn tell_ends(captures: &[CaptureState<'_>], chores: &mut Chores, now: Instant, on: On<'_>) {
    /// Time for which the other queues of an interface may still end of the same cause.
    const TOGETHER: Duration = Duration::from_secs(1);
    if captures.iter().all(|state| state.ended) || !captures.iter().any(|state| state.ended) {
        return;
    }
    chores.ends.resize(captures.len(), None);
    let goes_on = |interface: &str| {
        let mut running = captures.iter().filter(|state| !state.ended);
        running.any(|other| interface_of(other.name) == interface)
    };
    let mut faults = Vec::new();
    for (state, end) in captures.iter().zip(&mut chores.ends) {
        if !state.ended {
            continue;
        }
        let (since, told) = end.get_or_insert((now, false));
        let waits = goes_on(interface_of(state.name)) && now.duration_since(*since) <= TOGETHER;
        if !*told && !waits {
            *told = true;
            faults.extend(state.fault.map(|fault| (state.name, fault)));
        }
    }
    if !faults.is_empty() {
        on(Event::LiveFaultsSoFar(&faults));
    }
}
