//! A run: reads sources, and passes their packets through the stages in one pass.
//!
//! ```text
//! source -> walk -> filter, locate      revocable: columns of a batch, discarded with a wrong guess
//!        -> outputs, measurement        committed: each batch once, proven, in the order of its source
//! ```

mod files;
mod lane;
mod live;

use crate::batches::{self, BatchSender, Batches};
use crate::control::{Control, Snapshot};
use crate::dedup::{Dedup, Within};
use crate::event::{Closed, Event, On};
use crate::firewall::Firewall;
use crate::firewall::changes::RulesChange;
use crate::ledger::{Counted, Imbalance, Ledger};
use crate::name::Name;
use crate::output_changes::OutputChange;
use crate::outputs::{Discrepancy, Outputs, Target};
use crate::session::End;
use crate::sink::StageCounts;
use crate::stage_mark::Stage as MarkedStage;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_io::Input;
use weir_io::live::Counts;
use weir_io::reserve::Reserve;
use weir_io::sys::{self, StopCause};
use weir_measure::Window;
use weir_packet::flow::Around;
use weir_packet::savefile::Layout;
use weir_pipeline::measuring::{self, Design, Failure, Settings};
use weir_pipeline::reader::SourceError;
use weir_pipeline::select::{Misfit, Select, Selection};
use weir_pipeline::source::Source;
use weir_pipeline::stages::{Locate, Stages};
use weir_pipeline::steps::{Clock, SystemClock};
use weir_pipeline::{AccessMode, Consumer, Options, PlanError, Reader, Report};

pub use files::{Files, Open};
pub use live::Lane;

/// Settings of a run, in plain values.
pub struct Setup {
    /// Filter and splits.
    pub selection: Selection,
    /// Window of duplicates that are left out after the filter; `None` leaves out none.
    pub dedup: Option<Within>,
    /// Firewall that judges the packets which the filter passes.
    pub firewall: Option<Firewall>,
    /// Settings of the measurement of the passed packets; `None` for no measurement. Its `selection` is not used.
    pub measure: Option<Settings>,
    /// Main output, for the passed packets.
    pub main: Target,
    /// Output of each split; empty if splits are only counted.
    pub splits: Vec<Target>,
    /// Number of packets after which the run ends, of those that pass the filter and the firewall, over all sources. Several sources
    /// that are read at once count in the order of time.
    pub limit: Option<u64>,
    /// Disk space that stays free beside temporary files.
    pub reserve: Reserve,
    /// Number of threads that read and filter files. (The number of measuring threads is a setting of the measurement.)
    pub workers: usize,
    /// Processors to bind the threads to, in turn.
    pub cpus: Vec<usize>,
    /// Largest number of batches that wait or are held, if the run hands batches out: see [`Run::batches`].
    pub pull: Option<usize>,
    /// Stop flag: once set, the run ends. A capture still delivers the packets received so far.
    pub stop: Arc<AtomicBool>,
    /// Request flag: once set, a capture sends [`Event::Standing`].
    pub standing_asked: Arc<AtomicBool>,
    /// Driver of the run.
    pub driver: Driver,
}

/// Driver of a run: its clocks, and the threads of sources that are read at once.
#[derive(Clone, Debug, Default)]
pub enum Driver {
    /// The clocks of the system; several captures have a thread each.
    #[default]
    Threads,
    /// These clocks; the run's thread reads all captures, and a measurement of files should have one worker. A run is then a
    /// function of its sources, its clocks and the calls of its control.
    OneThread(Arc<dyn Clock>),
}

/// Settings that pass and count all packets, and read files with a thread for each processor.
impl Default for Setup {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            dedup: None,
            firewall: None,
            measure: None,
            main: Target::default(),
            splits: Vec::new(),
            limit: None,
            reserve: Reserve::default(),
            workers: weir_pipeline::processors(),
            cpus: Vec::new(),
            pull: None,
            stop: Arc::default(),
            standing_asked: Arc::default(),
            driver: Driver::Threads,
        }
    }
}

/// Reason for which a run cannot begin, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An expression makes no sense, or none for the source `name` (if there are several).
    #[error("{why}")]
    Refused {
        /// Name of the source.
        name: Option<String>,
        /// Reason of the refusal.
        why: PlanError,
    },
    /// The tables of the measurement cannot be allocated.
    #[error(transparent)]
    Tables(Failure),
    /// Design `rss` splits a source among the workers, but this source cannot be split.
    #[error("{name} cannot be split among the workers")]
    CannotBeSplit {
        /// Name of the source.
        name: String,
    },
    /// The merge has more sources than this process may have open.
    #[error(
        "{sources} sources are to be merged, and this process may have {limit} files open of {needed} needed"
    )]
    TooManySources {
        /// Number of sources.
        sources: u64,
        /// Number of descriptors that the process may have.
        limit: u64,
        /// Number of descriptors that the run needs.
        needed: u64,
    },
    /// The merge has too many pipes and compressed files: each has a thread and some megabytes of memory.
    #[error("{streams} pipes and compressed files are to be merged, and {most} can be at once")]
    TooManyStreams {
        /// Number of pipes and compressed files.
        streams: u64,
        /// Largest possible number.
        most: u64,
    },
    /// A run needs the latest packet of a source before it reads the source, and can read the source only once.
    #[error("the end of {name} is known only once it is read, which can be done once")]
    NoEnd {
        /// Name of the source.
        name: String,
    },
    /// An output wants packets that the filter rejects, but a kernel rejects them before the run.
    #[error("{name} is filtered by the kernel, and an output wants packets that do not match")]
    RejectedBefore {
        /// Name of the capture.
        name: String,
    },
    /// A stage panicked, which is a mistake in it.
    #[error("the {stage} panicked: this is a mistake in it")]
    Panic {
        /// The stage: `reader`, `measurement`, `main output`, `output of split 1`, `function that hears events`.
        stage: String,
    },
    /// The system refused a resource of the run.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A run. A run is assembled before any source is read; a measurement starts its threads with the first source.
pub struct Run {
    /// The filter at the start.
    first: Arc<Select>,
    stages: Arc<Stages>,
    control: Arc<Control>,
    /// Number of the last change reported as an event; `select` is its filter.
    told: u64,
    select: Arc<Select>,
    /// Number of the latest applied change of outputs.
    output_change: u64,
    /// Number up to which changes of rules are applied.
    rules_change: u64,
    /// Refuses changes once the run is gone.
    _closing: Closing,
    pull: Option<usize>,
    batches: Option<BatchSender>,
    dedup: Option<Dedup>,
    firewall: Option<Firewall>,
    options: Options,
    measure: Option<measuring::Run>,
    /// Failure of the measurement, if it ended before the sources.
    failure: Option<Failure>,
    outputs: Outputs,
    ledger: Ledger,
    /// Number of packets read behind the last one taken by an output.
    unwanted: u64,
    /// Packets of the current source for which an expression makes no sense.
    misfits: Vec<Misfit>,
    /// Headers around a packet that would have matched without them, if it was judged before the proof.
    unmatched: Option<Around>,
    /// Whether the expression makes sense for a source.
    fits: bool,
    /// Disk space that stays free beside temporary files.
    reserve: Reserve,
    limit: Option<u64>,
    /// Number of packets that count for the limit.
    passed_on: u64,
    /// Layout of the last source read.
    layout: Option<Layout>,
    /// Parts of the choice of the packets of record directories.
    holds_only: Vec<String>,
    /// Whether a source could be opened.
    has_opened: bool,
    /// Whether a source could not be opened, or not be read to its end.
    has_failed: bool,
    /// Cause of the end of the reading, if the run itself has set the stop flag.
    ended_by: Option<End>,
    /// Number of sources of the run.
    sources: usize,
    /// Name of the capture that is read, if it is the only one.
    capture: String,
    /// Number of packets that readers delivered.
    delivered: u64,
    /// Number of packets that the kernel rejected before the delivery.
    filtered_before: u64,
    stop: Arc<AtomicBool>,
    standing_asked: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    /// Instant at which the steady time of the clock was 0.
    begun: Instant,
    /// Whether the run's thread reads all captures.
    steps_captures: bool,
}

/// Final result of a run.
#[derive(Debug)]
pub struct Ended {
    /// Counts of all packets by their fate.
    pub ledger: Ledger,
    /// Cause of the end of the reading.
    pub by: End,
    /// The firewall with its counts, if there is one.
    pub firewall: Option<Firewall>,
    /// Result of the measurement, if there is one.
    pub measured: Option<measuring::Finished>,
    /// Failure of the measurement, if it ended before the sources.
    pub failure: Option<Failure>,
    /// Set if the ledger does not add up, which is a mistake in weir.
    pub imbalance: Option<Imbalance>,
    /// Outputs that wrote a wrong number of packets, which is a mistake in weir.
    pub discrepancies: Vec<Discrepancy>,
    /// Counts of each stage, in the order of the stages.
    pub stages: Vec<Stage>,
    /// Parts of the choice of the packets of record directories, in words, each once.
    pub holds_only: Vec<String>,
}

/// Counts of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Packets that the reader delivered.
    Read {
        /// Number of packets.
        delivered: u64,
    },
    /// Packets that the filter judged here.
    Filter {
        /// Number of packets that passed.
        passed: u64,
        /// Number of packets that did not pass.
        filtered: u64,
        /// Whether native code judged.
        native: bool,
    },
    /// Packets that were compared with earlier packets.
    Dedup {
        /// Number of packets that passed.
        passed: u64,
        /// Number of duplicates that were left out.
        duplicates: u64,
    },
    /// Packets that the firewall judged.
    Firewall {
        /// Number of packets that passed.
        passed: u64,
        /// Number of packets that were denied.
        denied: u64,
        /// Number of control packets that were obeyed.
        controls: u64,
    },
    /// Packets that the measurement counted.
    Measure {
        /// Number of packets.
        counted: u64,
        /// Number of packets that the workers rejected, if the filter did not judge before.
        filtered: u64,
        /// Number of packets that arrived too late to be counted.
        late: u64,
    },
    /// Packets of the replaced outputs of one place.
    ReplacedOutputs {
        /// Name of the output that is in place at the end.
        by: String,
        /// Number of replaced outputs.
        outputs: u64,
        /// Packets [wanted](crate::sink::Needs::wanted) by these outputs while they were in place.
        counts: StageCounts,
    },
    /// Packets of an output.
    Output {
        /// Name as the user wrote it.
        name: String,
        /// Packets that it [wanted](crate::sink::Needs::wanted) while it was in place.
        counts: StageCounts,
    },
}

impl Run {
    /// Prepares a run. No source is opened or read yet, and no thread is started.
    pub fn new(setup: Setup) -> Self {
        let Setup {
            mut selection,
            dedup,
            firewall,
            measure,
            main,
            splits,
            limit,
            reserve,
            workers,
            cpus,
            pull,
            stop,
            standing_asked,
            driver,
        } = setup;
        let system = SystemClock::default();
        let begun = system.begun();
        let (clock, steps_captures): (Arc<dyn Clock>, bool) = match driver {
            Driver::Threads => (Arc::new(system), false),
            Driver::OneThread(clock) => (clock, true),
        };
        let ledger = Ledger::new(selection.splits.len());
        let outputs = Outputs::new(main, splits, measure.is_some());
        // Packets given to an output cannot be refused later.
        selection.at_once |= outputs.want_others();
        // Packets that are only counted need no offsets and masks.
        let locates = pull.is_some()
            || firewall.is_some()
            || dedup.is_some()
            || !outputs.are_none()
            || limit.is_some();
        selection.stop = Arc::clone(&stop);
        let narrows = !selection.splits.is_empty() || !selection.span.is_all();
        let judge = measure.is_none() || locates || narrows;
        let first = Arc::new(Select::new(selection));
        let measure =
            measure.map(|settings| measuring::Run::new(settings, Arc::clone(&first), judge));
        let stages = match &measure {
            Some(measure) => Arc::clone(measure.stages()),
            None => Arc::new(Stages::new(
                Arc::clone(&first),
                true,
                locates.then(Locate::default),
            )),
        };
        let keys = measure.as_ref().map(|measure| Arc::clone(measure.keys()));
        let control = Control::new(
            Arc::clone(&stop),
            Arc::clone(&stages),
            outputs.needs(),
            keys,
            firewall.as_ref().and_then(Firewall::own_rules),
        );
        let control = Arc::new(control);
        Self {
            _closing: Closing(Arc::clone(&control)),
            output_change: 0,
            rules_change: 0,
            select: Arc::clone(&first),
            first,
            stages,
            control,
            told: 0,
            pull,
            batches: None,
            dedup: dedup.map(Dedup::new),
            firewall,
            options: Options {
                workers,
                cpus,
                ends_within: limit.is_some(),
                ..Options::default()
            },
            measure,
            failure: None,
            outputs,
            ledger,
            unwanted: 0,
            misfits: Vec::new(),
            unmatched: None,
            fits: false,
            limit,
            reserve,
            passed_on: 0,
            layout: None,
            holds_only: Vec::new(),
            has_opened: false,
            has_failed: false,
            ended_by: None,
            sources: 0,
            capture: String::new(),
            delivered: 0,
            filtered_before: 0,
            stop,
            standing_asked,
            clock,
            begun,
            steps_captures,
        }
    }

    /// Returns the instant of the current steady time.
    fn instant(&self) -> Instant {
        self.begun + self.clock.now().steady
    }

    /// Returns the end from which batches are taken, if [`Setup::pull`] asks for it; only the first call returns it. If it is never
    /// taken, batches are discarded. Once it is dropped, the run ends, unless outputs or a measurement take packets too.
    pub fn batches(&mut self) -> Option<Batches> {
        let (sender, batches) = batches::channel(self.pull.take()?);
        self.batches = Some(sender);
        Some(batches)
    }

    /// Returns the control of the run, for other threads.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Returns the outputs.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Returns the counts so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether a source could be opened.
    pub fn has_opened(&self) -> bool {
        self.has_opened
    }

    /// Whether the run was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the cause of the end of the reading, once the sources were read to their end, or as far as needed.
    pub fn ended_by(&self) -> End {
        if let Some(by) = self.ended_by {
            return by;
        }
        match sys::stopped_by() {
            _ if self.has_reached_limit() => End::Limit,
            _ if self.measure.is_none() && self.has_enough() => End::Output,
            Some(StopCause::Time) if self.is_stopped() => End::Duration,
            _ if self.is_stopped() => End::Signal,
            _ if self.failure.is_some() || self.has_failed => End::Fault,
            _ => End::Source,
        }
    }

    /// Has captures take no more packets, for the reason that there is now.
    fn stop_captures(&mut self) {
        self.ended_by = Some(self.ended_by());
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether no more packets are wanted. A `live` source that is stopped still delivers the packets received so far.
    fn is_over(&self, live: bool) -> bool {
        let ends = !live && (self.is_stopped() || self.failure.is_some());
        ends || self.has_reached_limit() || self.measure.is_none() && self.has_enough()
    }

    /// Whether no output takes more, and no one pulls batches.
    fn has_enough(&self) -> bool {
        let is_left = self.batches.as_ref().map(BatchSender::is_left);
        match is_left {
            Some(is_left) if self.outputs.are_none() => is_left,
            Some(false) => self.outputs.are_refused() || self.outputs.are_complete(),
            _ => self.outputs.are_over(),
        }
    }

    /// Whether as many packets have passed as the limit says.
    fn has_reached_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.passed_on >= limit)
    }

    /// Returns the options for a reader.
    fn options(&self) -> Options {
        match &self.measure {
            Some(measure) => measure.options(),
            None => self.options.clone(),
        }
    }

    /// Makes a reader of an opened source.
    fn reader(&self, input: Input) -> Reader<Stages> {
        Reader::new(input, Arc::clone(&self.stages), self.options())
    }

    /// Returns the input if the source could be opened. If not, sends an event; the source is skipped.
    fn opened(&mut self, name: &Name, opened: io::Result<Input>, on: On<'_>) -> Option<Input> {
        match opened {
            Ok(input) => {
                on(Event::Begun {
                    bytes: input.len_hint(),
                });
                self.has_opened = true;
                Some(Input {
                    name: name.as_source(),
                    ..input
                })
            }
            // The run was stopped while a pipe had no writer.
            Err(_) if self.is_stopped() => None,
            Err(error) => {
                self.has_failed = true;
                on(Event::Unopened {
                    name,
                    error: &error,
                });
                None
            }
        }
    }

    /// Starts the workers of a measurement, unless they run already.
    fn start_measuring(&mut self, can_be_split: bool) -> Result<(), Error> {
        // The tables are made here, so that a lack of memory is an error of the command.
        self.measure
            .as_mut()
            .map_or(Ok(()), |measure| measure.start(can_be_split))
            .map_err(Error::Tables)
    }

    /// Notes the statistics of a source after the measurement failed, because the outputs are still completed.
    fn note_failed_source(&mut self, source: &dyn Source) {
        self.note_statistics(source);
        if let Some(layout) = source.layout() {
            self.layout = Some(layout.clone());
        }
        self.delivered += source.report().received;
    }

    /// Sends an event if nothing matched because of the headers around the packets.
    fn tell_unmatched(&self, on: On<'_>) {
        let select = self.stages.select();
        // Another expression has judged the packets before.
        let replaced = self.told > 0;
        if let Some(around) = select.unmatched(self.unmatched).filter(|_| !replaced) {
            let expression = select.expression();
            on(Event::Unmatched { expression, around });
        }
        let span = *select.span();
        let has_limits = span.from_ns.is_some() || span.to_ns.is_some();
        if has_limits && self.ledger.passed == 0 && self.ledger.received > 0 {
            on(Event::NothingThen { span });
        }
    }

    /// Takes the packets since the last call for which an expression makes no sense.
    fn take_misfits(&mut self) -> Vec<Misfit> {
        let mut misfits = std::mem::take(&mut self.misfits);
        self.stages
            .select()
            .take_misfits()
            .into_iter()
            .for_each(|misfit| Misfit::add(&mut misfits, misfit));
        misfits
    }

    /// Returns the state of the run; `delivered` counts packets of sources that are not closed yet.
    fn snapshot_of(
        &self,
        delivered: u64,
        captures: Vec<(String, Counts)>,
        in_flight: usize,
    ) -> Snapshot {
        let mut ledger = self.ledger.clone();
        ledger.received += delivered;
        ledger.main = self.outputs.main_counts();
        ledger.others = self.outputs.other_counts();
        Snapshot {
            change: self.control.change(),
            ledger,
            captures,
            firewall: self.firewall.as_ref().map(Firewall::counts),
            in_flight: in_flight + self.outputs.kept(),
        }
    }

    /// Puts the sinks of changes up to number `reached` in place, because no batch of an earlier change follows. **Cost**: a
    /// comparison if there is no new change.
    fn replace_outputs(&mut self, reached: u64, layout: Option<&Layout>, on: On<'_>) {
        if reached > self.output_change {
            self.output_change = reached;
            let changes = self.control.outputs().take(reached);
            self.take_up_outputs(changes, layout, on);
        }
    }

    /// Puts other rules into force, if they were to be there from change `reached` on. **Cost**: a comparison if there are none.
    fn replace_rules(&mut self, reached: u64, on: On<'_>) {
        if reached <= std::mem::replace(&mut self.rules_change, reached) {
            return;
        }
        let waiting = self.control.rules().and_then(|rules| rules.take(reached));
        let (Some(waiting), Some(firewall)) = (waiting, &mut self.firewall) else {
            return;
        };
        let RulesChange {
            change,
            rules,
            taken,
        } = waiting;
        if firewall.replace_rules(Arc::clone(&rules)) {
            on(Event::RulesReplaced {
                change,
                rules: &rules,
            });
            // A caller that no longer waits has dropped its end of the channel.
            let _ = taken.send(());
        }
    }

    #[cold]
    fn take_up_outputs(
        &mut self,
        changes: VecDeque<OutputChange>,
        layout: Option<&Layout>,
        on: On<'_>,
    ) {
        for OutputChange {
            change,
            slot,
            name,
            sink,
            taken,
        } in changes
        {
            let Some(sink) = sink else {
                if let Some(name) = self.outputs.next_file(slot) {
                    on(Event::NextFile {
                        change,
                        output: slot,
                        name: &name,
                    });
                    let _ = taken.send(());
                }
                continue;
            };
            let replaced = self.outputs.replace(slot, (name, Some(sink)), layout);
            if let Some((name, report, counts)) = replaced {
                on(Event::OutputReplaced {
                    change,
                    output: slot,
                    name: &name,
                    report: &report,
                    counts: &counts,
                });
                // A caller that no longer waits has dropped its end of the channel.
                let _ = taken.send(());
            }
        }
        self.tell_sink_faults(on);
    }

    /// Sends an event for each output that has failed.
    fn tell_sink_faults(&mut self, on: On<'_>) {
        self.outputs
            .take_faults()
            .iter()
            .for_each(|fault| on(Event::Sink(fault)));
    }

    /// Notes the interface statistics of a source, which hold for a copy of it too.
    fn note_statistics(&mut self, source: &dyn Source) {
        let (Some(layout), report) = (source.layout(), source.report()) else {
            return;
        };
        self.outputs.statistics(&files::stats_of(layout, report));
        self.outputs.remarks(&report.remarks.all());
        self.outputs.uncounted(&report.counted.uncounted());
    }

    /// Books `received` packets of a source that was read to its end, or as far as needed.
    fn close(&mut self, received: u64, source: Booked<'_>, on: On<'_>) -> Result<(), Error> {
        let Booked {
            name,
            report,
            layout,
            way,
            is_judged,
        } = source;
        self.ledger.received += received;
        self.ledger.reread += report.reread;
        self.ledger.lost_before = self.ledger.lost_before.saturating_add(report.lost_before());
        self.ledger.loss_unknown.extend(report.counted.uncounted());
        self.ledger.without_counter +=
            u64::from(!report.counts_losses() && !name.starts_with(crate::generated::GENERATE));
        self.delivered += report.received;
        let judged = layout.filter(|_| is_judged);
        if let Some(layout) = judged {
            self.outputs.end_source(layout);
            self.layout = Some(layout.clone());
        }
        self.note_choice(name, layout, report.has_cut);
        let misfits = self.take_misfits();
        self.tell_changes(on);
        let select = self.stages.select();
        // If another filter judged packets of this source, the source was read for that filter, and this refusal does not count.
        let refused = judged.and_then(|layout| select.refusal(layout));
        let refused = refused.filter(|_| !self.is_stopped() && self.told == 0);
        if let (Some(why), false) = (&refused, self.fits) {
            return Err(Error::Refused {
                name: None,
                why: why.clone(),
            });
        }
        let (misfits, refused, select) = (&misfits[..], refused.as_ref(), &*select);
        on(Event::Closed(Closed {
            name,
            report,
            layout,
            way,
            misfits,
            refused,
            select,
        }));
        let Some(fault) = report.fault.as_ref().filter(|_| refused.is_none()) else {
            return Ok(());
        };
        if let SourceError::Plan(why) = &fault.what
            && self.ledger.received == 0
        {
            let name = (self.sources > 1).then(|| name.to_owned());
            return Err(Error::Refused {
                name,
                why: why.clone(),
            });
        }
        // After an output ended or the limit was reached, the rest of the source does not matter, but lost packets do.
        let lost = matches!(
            fault.what,
            SourceError::Shrank { .. } | SourceError::Unreadable | SourceError::Changed
        );
        self.has_failed = true;
        if way == AccessMode::Live {
            on(Event::LiveFault { name, fault });
        } else if lost || self.measure.is_some() || !self.is_over(false) {
            on(Event::Fault { name, fault });
        }
        Ok(())
    }

    /// Completes the outputs and the measurement, and makes the final account.
    pub fn finish(mut self, on: On<'_>) -> (Ended, Outputs) {
        let by = self.ended_by();
        let measured = self.finish_measuring(on);
        self.tell_unmatched(on);
        if let Some(mut batches) = self.batches.take() {
            let unread = batches.take_unread();
            if self.outputs.are_none() && self.measure.is_none() {
                self.ledger.drop_passed(&unread);
            }
        }
        let layout = self.layout.take();
        let changes = self.control.outputs().end();
        if !self.outputs.are_over() {
            self.take_up_outputs(changes, layout.as_ref(), on);
        }
        self.outputs.finish(layout.as_ref());
        self.tell_sink_faults(on);
        // Control packets are those of no output, and the filter has passed them.
        let (judged, judged_filtered) = (
            self.ledger.passed,
            self.ledger.filtered - self.ledger.controls,
        );
        self.ledger.filtered += self.filtered_before;
        let splits: Vec<u64> = self.ledger.splits.iter().map(|split| split.0).collect();
        let matched = std::iter::once(judged).chain(splits);
        let discrepancies = self
            .outputs
            .discrepancies(matched, judged + judged_filtered + self.ledger.denied);
        self.ledger.main = self.outputs.main_counts();
        self.ledger.others = self.outputs.other_counts();
        let mut stages = vec![Stage::Read {
            delivered: self.delivered,
        }];
        if self.stages.judge {
            let native = self.stages.select().is_native();
            let duplicates = self.ledger.duplicates;
            let passed = judged + self.ledger.denied + self.ledger.controls;
            stages.push(Stage::Filter {
                passed: passed + duplicates,
                filtered: judged_filtered - duplicates,
                native,
            });
            if self.dedup.is_some() {
                stages.push(Stage::Dedup { passed, duplicates });
            }
        }
        if self.firewall.is_some() {
            stages.push(Stage::Firewall {
                passed: judged,
                denied: self.ledger.denied,
                controls: self.ledger.controls,
            });
        }
        let mut imbalance = None;
        if let Some(finished) = &measured {
            let arrivals = finished.arrivals;
            let filtered = if self.stages.judge {
                0
            } else {
                arrivals.filtered
            };
            self.ledger.filtered = arrivals.filtered;
            (self.ledger.dropped.source, self.ledger.dropped.late) =
                (arrivals.dropped, arrivals.late);
            let counted = Counted {
                arrived: arrivals.received,
                judged: self.stages.judge.then_some(judged),
                counted: finished.counted_before
                    + finished
                        .state
                        .as_ref()
                        .map_or(0, |state| state.tally().passed),
            };
            // Workers ended by a failure have not reported their number of packets. The complete windows are in the tables.
            self.ledger.passed = if self.failure.is_some() {
                counted.counted
            } else {
                finished.processed
            };
            stages.push(Stage::Measure {
                counted: self.ledger.passed,
                filtered,
                late: arrivals.late,
            });
            let differ = counted.arrived != self.ledger.received
                || self.firewall.is_some() && arrivals.denied != self.ledger.denied
                || counted.counted != finished.processed
                || counted
                    .judged
                    .is_some_and(|judged| judged != finished.processed + arrivals.late);
            if differ && self.failure.is_none() {
                imbalance = Some(Imbalance {
                    ledger: Box::new(self.ledger.clone()),
                    measured: Some(counted),
                });
            }
        }
        let outlets = self.outputs.reports().zip(self.outputs.replaced());
        for (((name, report), replaced), counts) in outlets.zip(self.outputs.counts()) {
            if report.is_none() {
                continue;
            }
            let name = name.to_owned();
            if replaced.sinks > 0 {
                stages.push(Stage::ReplacedOutputs {
                    by: name.clone(),
                    outputs: replaced.sinks,
                    counts: replaced.counts.clone(),
                });
            }
            stages.push(Stage::Output { name, counts });
        }
        // After a failure of the measurement, some packets were read but never counted.
        let imbalance = imbalance
            .or_else(|| self.ledger.check().err())
            .filter(|_| self.failure.is_none());
        let Self {
            ledger,
            failure,
            outputs,
            firewall,
            holds_only,
            ..
        } = self;
        (
            Ended {
                ledger,
                by,
                firewall,
                measured,
                failure,
                imbalance,
                discrepancies,
                stages,
                holds_only,
            },
            outputs,
        )
    }

    fn finish_measuring(&mut self, on: On<'_>) -> Option<measuring::Finished> {
        let measure = self.measure.as_mut()?;
        let mut each = |window: Window<'_>| on(Event::Window(window));
        if self.failure.is_none() {
            match self
                .outputs
                .mark()
                .during(MarkedStage::Measurement, || measure.finish(&mut each))
            {
                Ok(finished) => return Some(finished),
                Err(failure) => self.failure = Some(failure),
            }
        }
        // Complete windows were given out, and are accounted for.
        let finished = measure.abandon().ok()?;
        self.ledger.received = finished.arrivals.received;
        Some(finished)
    }

    /// Whether the measurement asked for this design.
    fn asked(&self, design: Design) -> bool {
        self.measure
            .as_ref()
            .is_some_and(|measure| measure.asked() == design)
    }
}

/// Sends an event if the filter was replaced since change `told`, when the filter was `select`. **Cost**: a load if nothing
/// changed.
fn tell_changes(
    stages: &Stages,
    (told, select, misfits): (&mut u64, &mut Arc<Select>, &mut Vec<Misfit>),
    on: On<'_>,
) {
    let number = stages.changes().map_or(0, |changes| changes.number());
    if number == std::mem::replace(told, number) {
        return;
    }
    let (change, new) = stages.current();
    if Arc::ptr_eq(&new, select) {
        return;
    }
    let old = std::mem::replace(select, new);
    // Misfits of the old filter are reported now, because the new filter does not have their reasons.
    let mut misfits = std::mem::take(misfits);
    old.take_misfits()
        .into_iter()
        .for_each(|misfit| Misfit::add(&mut misfits, misfit));
    if !misfits.is_empty() {
        on(Event::Misfits {
            name: "the sources",
            layout: None,
            misfits: &misfits,
            select: &old,
        });
    }
    on(Event::FilterReplaced {
        change,
        expression: select.expression(),
    });
}

/// Guard of a run: refuses further changes of outputs and keys once it is dropped with the run.
struct Closing(Arc<Control>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A source that was read, for booking.
struct Booked<'a> {
    name: &'a str,
    report: &'a Report,
    layout: Option<&'a Layout>,
    way: AccessMode,
    /// Whether the expression has to fit this source alone, and not one of several that are read as one.
    is_judged: bool,
}
