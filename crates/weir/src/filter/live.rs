//! Filtering what interfaces receive and send.

use super::Run;
use super::outputs::{Given, Outputs, Place, Rest};
use crate::capture::{self, Wish, interface_of};
use crate::name::Name;
use crate::outcome::{LiveFaults, say, say_plain};
use crate::sources::changed_line;
use anyhow::bail;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_io::sys::privilege::Capability;
use weir_io::{Kind, sys};
use weir_packet::savefile::{Layout, MAX_SNAPLEN, Statistics};
use weir_pipeline::pump::{Pick, Pump, Standing, pick};
use weir_pipeline::reader::Step;
use weir_pipeline::select::{Select, Selected};
use weir_pipeline::{Options, PlanError, Reader, Report, Way};

/// How often files are written out.
const FLUSHED: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Captures until stopped, or until there are enough packets.
    pub(super) fn captured(&mut self) -> anyhow::Result<()> {
        let tell = Arc::new(AtomicBool::new(false));
        sys::tell_on_signal(Arc::clone(&tell));
        let (mut readers, mut layouts, mut kept, mut about) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        capture::rings::check(&self.arguments.sources, &self.arguments.live)?;
        for name in &self.arguments.sources {
            let inputs = capture::open(name, &self.wish(), &self.stop, &mut about)?;
            if inputs.is_empty() {
                // Told to end while it waited.
                return Ok(());
            }
            for input in inputs {
                if let Kind::Live(live) = &input.kind {
                    // Before anything is written: splits and what the kernel does not filter are not compiled yet.
                    match self.select.check(live.layout()) {
                        Err(PlanError::Stopped) => return Ok(()),
                        checked => checked?,
                    }
                    layouts.push(live.layout().clone());
                    self.place = live.backend().place();
                    kept.extend_from_slice(live.backend().keeps());
                }
                let options = Options { workers: 1, ..self.options.clone() };
                readers.push((input.name.clone(), Reader::new(input, Arc::clone(&self.select), options)));
            }
        }
        // Several queues are read at once, and the one limit is that of all.
        if readers.len() > 1 && self.arguments.stop_after.is_some() && self.arguments.sources.len() == 1 {
            bail!("-c and an interface of several queues: name one, as in af_xdp:eth0:0");
        }
        self.live = true;
        self.progress.begin(None);
        self.outputs.new_source();
        // The first packet may be long in coming: a file that cannot be made is told of now, and one that is made is a capture file.
        self.outputs.open();
        self.outputs.begin(&layouts);
        self.say_output_faults();
        if self.arguments.rotate_size.is_some() || self.arguments.rotate_seconds.is_some() {
            // Files are made as packets come.
            kept.push(Capability::DacOverride);
        }
        capture::give_up_privileges(&kept);
        if self.outputs.are_over() {
            return Ok(());
        }
        // Now that it captures, and files have their headers.
        about.iter().for_each(|line| say_plain(line));
        if readers.len() == 1 {
            let (name, reader) = readers.remove(0);
            self.one_interface(&name, reader, &tell)?;
        } else {
            self.several_interfaces(readers, &tell)?;
        }
        let faults = self.live_faults.lines();
        faults.into_iter().for_each(|line| self.fault(line));
        Ok(())
    }

    fn wish(&self) -> Wish<'_> {
        let arguments = self.arguments;
        // The kernel's filter sees what is around a tunnel, and knows no inversion.
        let here = arguments.invert || arguments.inner;
        let expression = if here { "" } else { arguments.expression.as_deref().unwrap_or("") };
        // What filters sees whole packets; without one, nobody needs more than is written.
        let filters = !arguments.expression.as_deref().unwrap_or("").trim().is_empty() || !arguments.split.is_empty();
        let snaplen = if filters || arguments.snaplen == 0 { MAX_SNAPLEN } else { arguments.snaplen };
        Wish { live: &arguments.live, expression, resolve: arguments.resolve, snaplen, shares: 1 }
    }

    fn one_interface(&mut self, name: &str, mut reader: Reader<Select>, tell: &AtomicBool) -> anyhow::Result<()> {
        let mut flushed = Instant::now();
        let mut whole = true;
        while whole && !self.outputs.are_over() && !self.select.has_enough() {
            match reader.step() {
                Step::Delivery(delivery) => {
                    if let Some(gone) = self.deliver(&delivery, Way::Live) {
                        (whole, self.changed) = (false, true);
                        self.unwanted += gone.packets;
                    }
                    self.flush_for_readers();
                }
                Step::Quiet => self.flush_files(&mut flushed, Duration::ZERO),
                Step::End => break,
            }
            self.flush_files(&mut flushed, FLUSHED);
            self.tell(tell, name, reader.report());
        }
        if !whole {
            self.fault(changed_line(name));
        }
        if !self.is_wanted_no_more() {
            // What the capture holds was received: nothing more is let in, and the rest is counted.
            self.stop.store(true, Ordering::Relaxed);
            while let Some(delivery) = reader.next() {
                self.totals.add_dropped(&delivery.part);
            }
        }
        let unwanted = std::mem::take(&mut self.unwanted);
        self.close_live(name, reader.report(), reader.layout(), unwanted)
    }

    /// Passes packets on by time. Those of equal times keep the order of the interfaces.
    fn several_interfaces(&mut self, readers: Vec<(String, Reader<Select>)>, tell: &AtomicBool) -> anyhow::Result<()> {
        /// How long to wait for the interface that holds up the others.
        const TURN: Duration = Duration::from_millis(50);
        let start = |(i, (name, reader))| {
            Ok(Source { name, pump: Pump::start(reader, i)?, place: Place::default(), ended: None, told: false })
        };
        let mut sources = readers.into_iter().enumerate().map(start).collect::<io::Result<Vec<Source>>>()?;
        let (mut last, mut passed, mut flushed) = (usize::MAX, 0u64, Instant::now());
        while !self.outputs.are_over() && !self.merged_enough {
            for source in &mut sources {
                source.pump.take_up(&mut |delivery| self.totals.add(&delivery.part));
            }
            if !self.stop.load(Ordering::Relaxed) {
                tell_ends(&mut sources);
            }
            self.flush_files(&mut flushed, FLUSHED);
            let next = match pick(sources.iter_mut().map(Source::standing)) {
                Pick::Packet(next) => next,
                Pick::Wait(behind) => {
                    self.flush_for_readers();
                    sources[behind].pump.look(TURN, &mut |delivery| self.totals.add(&delivery.part));
                    self.tell_all(&sources, tell);
                    continue;
                }
                Pick::End => break,
            };
            if next != last {
                self.outputs.new_source();
                last = next;
            }
            match sources[next].emit(&mut self.outputs) {
                Given::All => {}
                // It is given back with all else that waits.
                Given::Until(_) => break,
                Given::Changed => {
                    self.changed = true;
                    self.fault(changed_line(&sources[next].name));
                    break;
                }
            }
            passed += 1;
            self.merged_enough = self.arguments.stop_after == Some(passed);
        }
        self.say_output_faults();
        self.stop.store(true, Ordering::Relaxed);
        for mut source in sources {
            // What comes now is not passed on; what was dropped is told at the end.
            let mut unwanted = source.give_back(self);
            while source.pump.ended().is_none() {
                source.pump.look(TURN, &mut |delivery| self.totals.add(&delivery.part));
                unwanted += source.give_back(self);
            }
            if let Some((report, layout)) = source.pump.ended() {
                self.close_live(&source.name, report, layout.as_ref(), unwanted)?;
            }
        }
        Ok(())
    }

    /// Whether packets that come now are in no figure: there are enough, or the files of `-w` are complete.
    fn is_wanted_no_more(&self) -> bool {
        self.select.has_enough() || self.merged_enough || self.changed || self.outputs.are_complete()
    }

    /// What was asked for by signal, of all interfaces.
    fn tell_all(&self, sources: &[Source], tell: &AtomicBool) {
        if tell.swap(false, Ordering::Relaxed) {
            let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
            let (passed, filtered) = (self.totals.passed, self.totals.filtered);
            say(&format!("{}: so far {passed} matched, {filtered} did not", names.join(", ")));
        }
    }

    /// What was asked for by signal.
    fn tell(&self, tell: &AtomicBool, name: &str, report: &Report) {
        if let (true, Some(counts)) = (tell.swap(false, Ordering::Relaxed), &report.live) {
            say_plain(&capture::standing_line(name, counts));
        }
    }

    /// The next packets may be long in coming: whoever reads along gets what there is.
    fn flush_for_readers(&mut self) {
        if self.arguments.write.as_ref().is_some_and(Name::is_dash) {
            self.outputs.flush_main();
        }
        self.outputs.flush_awaited();
        self.say_output_faults();
    }

    /// What is written is in the files once nothing comes, and every second.
    fn flush_files(&mut self, flushed: &mut Instant, after: Duration) {
        if flushed.elapsed() >= after {
            *flushed = Instant::now();
            self.outputs.flush();
            self.say_output_faults();
        }
    }

    /// Books an interface whose capture has ended; `unwanted` packets were delivered when there were enough.
    fn close_live(
        &mut self,
        name: &str,
        report: &Report,
        layout: Option<&Layout>,
        unwanted: u64,
    ) -> anyhow::Result<()> {
        let Some(counts) = report.live else { return self.close(name, report.received, report, layout, Way::Live) };
        let filtered = counts.filtered.unwrap_or(0);
        self.totals.dropped += counts.dropped;
        self.totals.filtered += filtered;
        self.uncounted |= counts.filtered.is_none();
        // What arrived after the last packet that was wanted is nobody's.
        let received = match self.is_wanted_no_more() {
            true => report.received + counts.dropped + filtered - unwanted,
            false => counts.received,
        };
        if let Some(interface) = layout.and_then(|layout| layout.interfaces.first()) {
            let statistics = Statistics {
                time_ns: capture::now_ns(),
                received: Some(counts.received),
                dropped_by_interface: None,
                dropped_by_system: Some(counts.dropped),
                delivered: Some(counts.handed_over),
            };
            self.outputs.statistics(&[(interface.clone(), statistics)]);
        }
        for line in capture::marks_lines(name, &report.marks) {
            say(&line);
        }
        self.close(name, received, report, layout, Way::Live)
    }
}

/// An interface of several.
struct Source {
    name: String,
    pump: Pump<Select>,
    /// How far the first delivery that waits was passed on.
    place: Place,
    /// When it was found to have ended by itself.
    ended: Option<Instant>,
    /// That was told.
    told: bool,
}

/// Tells, once, which interfaces ended by themselves while others go on.
fn tell_ends(sources: &mut [Source]) {
    /// How long the other queues of an interface have to end of the same cause.
    const TOGETHER: Duration = Duration::from_secs(1);
    let running: Vec<String> = sources.iter().filter(|s| s.pump.ended().is_none()).map(|s| s.name.clone()).collect();
    if running.is_empty() || running.len() == sources.len() {
        return;
    }
    let mut faults = LiveFaults::default();
    for source in sources.iter_mut().filter(|source| !source.told) {
        let Some((report, _)) = source.pump.ended() else { continue };
        let since = *source.ended.get_or_insert_with(Instant::now);
        let waits = running.iter().any(|other| interface_of(other) == interface_of(&source.name));
        if !waits || since.elapsed() > TOGETHER {
            source.told = true;
            report.fault.iter().for_each(|fault| faults.add(&source.name, fault));
        }
    }
    faults.passing_lines().iter().for_each(|line| say(line));
}

fn kept(part: &Selected) -> usize {
    part.records.len()
}

impl Source {
    fn standing(&mut self) -> Standing {
        let next = self.time();
        Standing { next, until: self.pump.until(), ended: self.pump.ended().is_some() }
    }

    /// Time of the next packet; `None` if none waits.
    fn time(&mut self) -> Option<i64> {
        let (delivery, next) = self.pump.next(kept)?;
        let record = delivery.current.layout.record(delivery.view.content(), delivery.part.records[next] as usize);
        Some(record.and_then(|record| record.time_ns).unwrap_or(i64::MIN))
    }

    fn emit(&mut self, outputs: &mut Outputs) -> Given {
        let Some((delivery, next)) = self.pump.next(kept) else { return Given::All };
        if next == 0 {
            self.place = Place::default();
        }
        let layout = &delivery.current.layout;
        let record =
            delivery.part.records.get(next).and_then(|&at| layout.record(delivery.view.content(), at as usize));
        let given = match record {
            Some(record) => outputs.packet(layout, &record, &delivery.part, &mut self.place),
            None => Given::Changed,
        };
        if let Given::All = given {
            self.pump.pass();
        }
        given
    }

    /// Takes what waits, and was not passed on, out of the counts of what was: it is dropped, or no longer wanted. Says how many
    /// packets are not wanted.
    fn give_back(&mut self, run: &mut Run<'_>) -> u64 {
        let mut packets = 0;
        while let Some((delivery, next)) = self.pump.next(kept) {
            let place = if next == 0 { Place::default() } else { std::mem::take(&mut self.place) };
            let rest = Rest::of(delivery, place);
            if run.is_wanted_no_more() {
                run.totals.take_back(&rest);
                packets += rest.received;
            } else {
                run.totals.drop(&rest);
            }
            (0..rest.passed.max(1)).for_each(|_| self.pump.pass());
        }
        packets
    }
}
