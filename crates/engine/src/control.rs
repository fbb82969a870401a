//! Control of a run from other threads.

pub mod remote;

use crate::firewall::changes::{NewRules, RulesChanges, RulesKept};
use crate::firewall::{FirewallCounts, RuleSet};
use crate::ledger::Ledger;
use crate::output_changes::{Closed, OutputChange, OutputChanges, OutputSlot, Refusal};
use crate::sink::{End, Needs, Sink};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_filter::{Names, Sets, libpcap};
use weir_io::live::{Counts, PreFilter};
use weir_io::sys::packet_socket::Insn;
use weir_io::{Input, Kind};
use weir_measure::Setting;
use weir_packet::LinkType;
use weir_pipeline::measuring::keys::{Keys, KeysRefused};
use weir_pipeline::select::{Select, compile};
use weir_pipeline::stages::Stages;
use weir_pipeline::{Consumer, PlanError, Slow};

/// Control of a run, for other threads: stop, snapshots and changes.
#[derive(Debug)]
pub struct Control {
    stop: Arc<AtomicBool>,
    stages: Arc<Stages>,
    /// Earlier filters that may still judge batches begun before the latest change. The lock admits one change at a time.
    changing: Mutex<Vec<Arc<Select>>>,
    kernel_filters: Mutex<Vec<CaptureFilter>>,
    outputs: OutputChanges,
    /// Keys of the measurement, if there is one.
    keys: Option<Arc<Keys>>,
    /// Rules of the firewall, unless a controller changes them.
    rules: Option<RulesChanges>,
    /// Whether a caller waits for a snapshot.
    asked: AtomicBool,
    askers: Mutex<Askers>,
}

/// State of a run between two batches. Each figure is counted at the place of the event.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Number of the latest change.
    pub change: u64,
    /// Counts of the filter and the outputs. `received` counts packets delivered by readers in the run's thread. A capture with a
    /// thread of its own is added at its end, with the packets that its kernel filtered or dropped. If the workers of a measurement
    /// judge, the number of passed packets is known at the end only.
    pub ledger: Ledger,
    /// Counts of each capture, by its name.
    pub captures: Vec<(String, Counts)>,
    /// Counts of the firewall, if there is one.
    pub firewall: Option<FirewallCounts>,
    /// Number of batches held by workers, pulled or waiting to be pulled, and kept by outputs.
    pub in_flight: usize,
}

/// Callers that wait for a snapshot.
#[derive(Debug, Default)]
struct Askers {
    /// No further callers are answered.
    over: bool,
    /// Number of callers so far.
    count: u64,
    /// Waiting callers by their numbers.
    waiting: Vec<(u64, Sender<Snapshot>)>,
}

impl Askers {
    /// Adds a caller and returns its number; `None` after the end of the run.
    fn add(&mut self, caller: Sender<Snapshot>) -> Option<u64> {
        if self.over {
            return None;
        }
        self.count += 1;
        self.waiting.push((self.count, caller));
        Some(self.count)
    }
}

/// A capture's filter in the kernel.
#[derive(Debug)]
struct CaptureFilter {
    /// Link type of the capture.
    link: LinkType,
    filter: Arc<dyn PreFilter>,
}

/// Reason for which a filter, rules, an output or keys were not replaced, or are not yet in place everywhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The expression is wrong, or makes sense for no source. The filter before stays.
    #[error(transparent)]
    Refused(PlanError),
    /// The kernel's filter cannot be widened for the packets of the new filter. The filter before stays.
    #[error("the kernel's filter: {0}")]
    Kernel(io::Error),
    /// Packets from before the change are not judged yet, and the kernel may have rejected some that the new filter wants. The
    /// filter before stays.
    #[error("packets from before the change wait longer than it may take")]
    Behind,
    /// The run ends, and judges the packets from before the change by the filter before.
    #[error("the run is ending")]
    Ending,
    /// An expression of the rules is wrong. The rules before stay.
    #[error("{0}; the rules stay as they are")]
    Rules(String),
    /// No rules judge the packets of the run, or a controller changes them.
    #[error("no rules judge the packets of this run")]
    NoRules,
    /// Batches begun before the change are still under way. Later batches are judged by the new filter, or go to the new output.
    #[error("change {change} is in place, and batches from before it are still under way")]
    UnderWay {
        /// Number of the change.
        change: u64,
    },
    /// The new output cannot be made. The output before stays.
    #[error("{}", end_words(.0))]
    Output(End),
    /// The output does not exist, or its packets are only counted.
    #[error("there is no such output")]
    NoOutput,
    /// The new output [wants](crate::sink::Needs::wanted) other packets than the output before.
    #[error("the new output wants other packets than the one before")]
    Wants,
    /// The output writes no files, so that there is no next one.
    #[error("the output writes no files of which a next one could begin")]
    NoFiles,
    /// An earlier change of this output, or of the keys or the rules, is still under way.
    #[error("an earlier change is still under way")]
    Earlier,
    /// The tables for other keys cannot be allocated. The keys before stay.
    #[error(transparent)]
    Tables(weir_measure::Error),
    /// The figure that ranks the keys does not go with the setting. The setting before stays.
    #[error(transparent)]
    Unfit(weir_measure::Unfit),
    /// Workers share the tables, and the sketch cannot be shared. The sketch before stays.
    #[error("workers share their tables, and this sketch cannot be shared")]
    Shared,
    /// The run has no measurement.
    #[error("nothing is measured")]
    NoMeasurement,
    /// The run is over. A change of keys that some workers had applied is named by the windows that they gave out.
    #[error("the run is over")]
    Over,
}

impl From<KeysRefused> for ChangeError {
    fn from(refused: KeysRefused) -> Self {
        match refused {
            KeysRefused::Tables(error) => Self::Tables(error),
            KeysRefused::Unfit(why) => Self::Unfit(why),
            KeysRefused::Shared => Self::Shared,
            KeysRefused::Earlier => Self::Earlier,
            _ => Self::Over,
        }
    }
}

impl From<RulesKept> for ChangeError {
    fn from(kept: RulesKept) -> Self {
        match kept {
            RulesKept::Wrong(why) => Self::Rules(why),
            RulesKept::Waiting => Self::Earlier,
            RulesKept::Over => Self::Over,
        }
    }
}

fn end_words(end: &End) -> String {
    match end {
        End::Failed(fault) => fault.to_string(),
        End::ClosedPipe | End::Complete => "the output takes no packets".to_owned(),
    }
}

impl From<Refusal> for ChangeError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Closed(Closed::Over) => Self::Over,
            Refusal::Closed(Closed::Missing) => Self::NoOutput,
            Refusal::Closed(Closed::Wants) => Self::Wants,
            Refusal::Closed(Closed::NoFiles) => Self::NoFiles,
            Refusal::Closed(Closed::Waiting) => Self::Earlier,
            Refusal::Sink(end) => Self::Output(end),
        }
    }
}

impl Control {
    /// Makes the control of a run whose outputs have these needs; `None` if packets are only counted.
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        stages: Arc<Stages>,
        needs: Vec<Option<Needs>>,
        keys: Option<Arc<Keys>>,
        rules: Option<Arc<RuleSet>>,
    ) -> Self {
        Self {
            stop,
            stages,
            changing: Mutex::default(),
            kernel_filters: Mutex::default(),
            outputs: OutputChanges::new(needs),
            keys,
            rules: rules.map(RulesChanges::new),
            asked: AtomicBool::new(false),
            askers: Mutex::default(),
        }
    }

    /// Ends the run. A capture still delivers the packets received so far.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns the state of the run at the end of a batch; `None` if there is no answer within `most`. The run does not answer
    /// before its first source, after its last one, or while it waits for a pipe or an output.
    pub fn snapshot(&self, most: Duration) -> Option<Snapshot> {
        let (say, said) = channel();
        let number = self.askers().add(say)?;
        self.asked.store(true, Ordering::Release);
        let snapshot = said.recv_timeout(most).ok();
        if snapshot.is_none() {
            self.askers().waiting.retain(|(asker, _)| *asker != number);
        }
        snapshot
    }

    /// Answers all requests for a snapshot. **Cost**: a load if there is none.
    pub(crate) fn answer(&self, snapshot: impl FnOnce() -> Snapshot) {
        if self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Acquire) {
            let askers = std::mem::take(&mut self.askers().waiting);
            let snapshot = snapshot();
            // A caller that no longer waits has dropped its end of the channel.
            askers
                .into_iter()
                .for_each(|(_, asker)| drop(asker.send(snapshot.clone())));
        }
    }

    fn askers(&self) -> MutexGuard<'_, Askers> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the latest change, 0 before the first.
    pub fn change(&self) -> u64 {
        self.stages.changes().map_or(0, |changes| changes.number())
    }

    /// Replaces the filter's expression between two batches, without loss, and returns the number of the change; the splits stay.
    /// The call waits until every reader has ended the step that it began under the old filter. After that, no batch begins under
    /// the old filter, and each batch has the number of the filter that judges it. Until then, the kernel's filter passes packets
    /// that match either expression.
    ///
    /// **Cost**: compiles and makes native code in this thread, milliseconds for each captured link type. Waits at most `timeout`
    /// for steps under way; a reader that waits for packets has no step under way. **Errors**: but for [`ChangeError::UnderWay`],
    /// nothing has changed.
    pub fn set_filter(&self, expression: &str, timeout: Duration) -> Result<u64, ChangeError> {
        self.replace(|select| select.with_expression(expression), timeout)
    }

    /// Replaces the filter and the sets of addresses that it and the splits name; otherwise as [`Self::set_filter`].
    ///
    /// **Errors**: those of [`Self::set_filter`].
    pub fn set_filter_and_sets(
        &self,
        expression: &str,
        sets: Sets,
        timeout: Duration,
    ) -> Result<u64, ChangeError> {
        let with_sets = |select: &Select| {
            select.with(
                expression,
                Names {
                    sets,
                    ..select.names().clone()
                },
            )
        };
        self.replace(with_sets, timeout)
    }

    fn replace(
        &self,
        new: impl FnOnce(&Select) -> Result<Select, PlanError>,
        timeout: Duration,
    ) -> Result<u64, ChangeError> {
        let mut before = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.stages.select();
        let new = Arc::new(new(&old).map_err(ChangeError::Refused)?);
        let mut all = before.clone();
        all.extend([old, Arc::clone(&new)]);
        if let Err(error) = self.set_kernel_filters(&all) {
            all.pop();
            // A filter that stays wider is still correct.
            let _ = self.set_kernel_filters(&all);
            return Err(ChangeError::Kernel(error));
        }
        if let Err(error) = self.wait_for_packets_before(timeout) {
            all.pop();
            let _ = self.set_kernel_filters(&all);
            return Err(error);
        }
        let change = self.stages.replace(new);
        let new = all.pop();
        *before = all;
        if !self
            .stages
            .changes()
            .is_none_or(|changes| changes.wait(change, timeout))
        {
            return Err(ChangeError::UnderWay { change });
        }
        before.clear();
        let _ = self.set_kernel_filters(new.as_slice());
        Ok(change)
    }

    /// Replaces the sink of an output between two batches, without loss, and returns the number of the change. Batches of earlier
    /// numbers go to the old sink, which is then completed: [`Event::OutputReplaced`](crate::event::Event::OutputReplaced) has its
    /// report. If there are several captures, packets go to the old sink until no capture has an earlier batch. A sink that ended
    /// early can be replaced too, as long as the run goes on. The run cannot write the file of the old sink again.
    ///
    /// The counts of a capture (pcapng's interface statistics) are in the file that is in place when the capture ends.
    ///
    /// **Cost**: makes the file in this thread, and completes the old file in the run's thread. The run applies the change with its
    /// next batch. While the run waits for a capture, it applies the change within some [turns](weir_io::live::TURN); while it
    /// waits for a pipe, once bytes arrive. **Errors**: but for [`ChangeError::UnderWay`], nothing has changed; an empty file may
    /// have been made.
    /// **Threads**: any but the run's own, which delivers the events: a call there would wait for itself.
    pub fn set_output(
        &self,
        slot: OutputSlot,
        name: &str,
        sink: Box<dyn Sink>,
        timeout: Duration,
    ) -> Result<u64, ChangeError> {
        let (taken, hears) = channel();
        let change = OutputChange {
            change: 0,
            slot,
            name: name.to_owned(),
            sink: Some(sink),
            taken,
        };
        let change = self.outputs.add(change, || self.stages.mark())?;
        hear(change, &hears, timeout)
    }

    /// Completes the current file of an output between two batches, and begins the next. Returns the number of the change: batches of earlier numbers
    /// are in the file before. **Errors**: the output writes no files; else as of [`Self::set_output`].
    pub fn next_file(&self, slot: OutputSlot, timeout: Duration) -> Result<u64, ChangeError> {
        let (taken, hears) = channel();
        let change = OutputChange {
            change: 0,
            slot,
            name: String::new(),
            sink: None,
            taken,
        };
        let change = self.outputs.add(change, || self.stages.mark())?;
        hear(change, &hears, timeout)
    }

    /// Replaces the keys, the sketch or the memory by which the measurement counts, and returns the number of the change. Batches
    /// of earlier numbers are counted in the old tables, and all others in fresh ones: each packet once. Open windows end early,
    /// and the sum of all counts in the old tables follows them. Each comes as an [`Event::Window`](crate::event::Event::Window) with
    /// the [number](weir_measure::Window::change) of the change. Later packets of such a window are in a further result of it.
    ///
    /// The call waits until all workers have begun with the new tables, and the sum is given out.
    ///
    /// **Cost**: makes the tables of all workers, in this thread. The old tables stay allocated until all workers are past the
    /// change. The run applies the change like [that of an output](Self::set_output). **Errors**: but for
    /// [`ChangeError::UnderWay`], nothing has changed.
    /// **Threads**: any but the run's own, which delivers the events: a call there would wait for itself.
    pub fn set_counting(&self, setting: Setting, timeout: Duration) -> Result<u64, ChangeError> {
        let known = self.keys.as_ref().ok_or(ChangeError::NoMeasurement)?;
        let (change, hears) = known.replace(setting, || self.stages.mark())?;
        hear(change, &hears, timeout)
    }

    /// Replaces the rules of the firewall between two batches, and returns the number of the change. Rules of the same text keep their
    /// counts, their rates and their times, and connections stay open. When the call returns, no batch is judged by the rules before.
    ///
    /// **Cost**: compiles the expressions in this thread. The run applies the change like a [change of an output](Self::set_output).
    /// **Errors**: but for [`ChangeError::UnderWay`], nothing has changed.
    /// **Threads**: any but the run's own, which delivers the events: a call there would wait for itself.
    pub fn set_rules(&self, rules: NewRules, timeout: Duration) -> Result<u64, ChangeError> {
        let known = self.rules.as_ref().ok_or(ChangeError::NoRules)?;
        let (change, hears) = known.replace(rules, || self.stages.mark())?;
        hear(change, &hears, timeout)
    }

    /// Ends the changes with the run: callers that wait for a change get an error, and further changes are refused.
    pub(crate) fn end(&self) {
        *self.askers() = Askers {
            over: true,
            ..Askers::default()
        };
        drop(self.outputs.end());
        if let Some(keys) = &self.keys {
            keys.end();
        }
        if let Some(rules) = &self.rules {
            rules.end();
        }
    }

    /// Returns the changes of rules that the run has not applied yet.
    pub(crate) fn rules(&self) -> Option<&RulesChanges> {
        self.rules.as_ref()
    }

    /// Returns the changes of outputs that the run has not applied yet.
    pub(crate) fn outputs(&self) -> &OutputChanges {
        &self.outputs
    }

    /// Notes the kernel's filters of captures that are about to begin, and updates them if the filter was replaced since the
    /// opening.
    pub(crate) fn begin(&self, inputs: &[Input]) {
        let mut all = self
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let filters = inputs.iter().filter_map(|input| {
            let Kind::Live(live) = &input.kind else {
                return None;
            };
            let link = live.layout().interfaces.first()?.link;
            Some(CaptureFilter {
                link,
                filter: live.backend().pre_filter()?,
            })
        });
        self.kernel_filters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(filters);
        if self.stages.current().0 > 0 {
            all.push(self.stages.select());
            let _ = self.set_kernel_filters(&all);
        }
    }

    /// Waits until the packets that the kernel filtered before its filters were widened are judged, by the filter of their time: the
    /// new one might want those that the kernel rejected. **Errors**: some are not judged after `timeout`, or the run ends first.
    fn wait_for_packets_before(&self, timeout: Duration) -> Result<(), ChangeError> {
        const PAUSE: Duration = Duration::from_millis(1);
        let filters = self
            .kernel_filters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waits: Vec<_> = filters
            .iter()
            .map(|CaptureFilter { filter, .. }| (filter, filter.position()))
            .collect();
        let begun = Instant::now();
        while !waits
            .iter()
            .all(|(filter, position)| filter.is_past(*position))
        {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ChangeError::Ending);
            }
            if begun.elapsed() >= timeout {
                return Err(ChangeError::Behind);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Sets the kernel's filters to pass every packet that one of these filters keeps.
    fn set_kernel_filters(&self, selects: &[Arc<Select>]) -> io::Result<()> {
        let filters = self
            .kernel_filters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        filters
            .iter()
            .try_for_each(|CaptureFilter { link, filter }| {
                // If one of the filters has no program, all packets pass.
                let programs: Option<Vec<_>> = selects
                    .iter()
                    .map(|select| self.program(select, *link))
                    .collect();
                filter.replace(&programs.unwrap_or_default())
            })
    }

    /// Returns the kernel program of a filter's expression; `None` if it makes no sense there, or would reject packets to keep.
    fn program(&self, select: &Select, link: LinkType) -> Option<Vec<Insn>> {
        if !select.suits_a_filter_before() {
            return None;
        }
        kernel_program(select.expression(), link, select.names(), &self.stop).ok()
    }
}

/// Waits until a change is in place.
fn hear(change: u64, hears: &Receiver<()>, timeout: Duration) -> Result<u64, ChangeError> {
    match hears.recv_timeout(timeout) {
        Ok(()) => Ok(change),
        Err(RecvTimeoutError::Timeout) => Err(ChangeError::UnderWay { change }),
        Err(RecvTimeoutError::Disconnected) => Err(ChangeError::Over),
    }
}

/// Compiles an expression for the kernel's filter of a capture with this link type.
///
/// **Errors**: libpcap refuses the expression; `stop` was set first.
pub fn kernel_program(
    expression: &str,
    link: LinkType,
    names: &Names,
    stop: &AtomicBool,
) -> Result<Vec<Insn>, PlanError> {
    let names = names.clone();
    let program = compile(expression, stop, &Slow::default(), move |text| {
        libpcap::compile_live(text, link, &names)
    })?;
    let program = program.for_kernel();
    let insn = |insn: &weir_filter::Insn| Insn {
        code: insn.code,
        jt: insn.jt,
        jf: insn.jf,
        k: insn.k,
    };
    Ok(program.insns().iter().map(insn).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_pipeline::select::Selection;

    /// A capture whose packets from before the change are never judged.
    #[derive(Debug)]
    struct Stuck;

    impl PreFilter for Stuck {
        fn replace(&self, _: &[Vec<Insn>]) -> io::Result<()> {
            Ok(())
        }

        fn position(&self) -> u64 {
            1
        }

        fn is_past(&self, _: u64) -> bool {
            false
        }
    }

    #[test]
    fn filters_are_refused_for_their_own_reason_while_packets_wait_and_while_the_run_ends() {
        let select = Arc::new(Select::new(Selection::default()));
        let stages = Arc::new(Stages::new(select, true, None));
        let control = Control::new(Arc::default(), stages, Vec::new(), None, None);
        control.kernel_filters.lock().unwrap().push(CaptureFilter {
            link: LinkType::ETHERNET,
            filter: Arc::new(Stuck),
        });
        let set = || control.set_filter("udp", Duration::ZERO).unwrap_err();
        assert!(matches!(set(), ChangeError::Behind));
        control.stop();
        assert_eq!(set().to_string(), "the run is ending");
        assert_eq!(control.change(), 0);
    }
}
