//! What other threads ask of a run while it goes on.

use crate::ledger::Ledger;
use crate::output_changes::{Closed, OutputChange, OutputChanges, OutputSlot, Refusal};
use crate::sink::{End, Needs, Sink};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_filter::libpcap;
use weir_io::live::{Counts, PreFilter};
use weir_io::sys::packet_socket::Insn;
use weir_io::{Input, Kind};
use weir_measure::KeyKind;
use weir_packet::LinkType;
use weir_pipeline::measuring::keys::{Keys, KeysRefused};
use weir_pipeline::select::{Select, compile};
use weir_pipeline::stages::Stages;
use weir_pipeline::{Consumer, PlanError};

/// Controls a run from other threads.
#[derive(Debug)]
pub struct Control {
    stop: Arc<AtomicBool>,
    stages: Arc<Stages>,
    resolve: bool,
    /// One change at a time. Filters by which batches may be under way that were begun before the latest change.
    changing: Mutex<Vec<Arc<Select>>>,
    kernel_filters: Mutex<Vec<CaptureFilter>>,
    outputs: OutputChanges,
    /// What the measurement counts by, if there is one.
    keys: Option<Arc<Keys>>,
    /// Somebody waits for a snapshot.
    asked: AtomicBool,
    askers: Mutex<Vec<Sender<Snapshot>>>,
}

/// How a run stands between two batches. Each figure was counted where it happens.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Number of the latest change.
    pub change: u64,
    /// What the filter and the outputs have counted. `received` is what readers in the run's thread have delivered: a capture with a
    /// thread of its own tells at its end, and what a kernel filtered or dropped is taken up then. Where the workers of a measurement
    /// judge, what passed is known at the end only.
    pub ledger: Ledger,
    /// What each capture has counted, by its name; not of several that are merged.
    pub captures: Vec<(String, Counts)>,
    /// Packets that each output has written, by its name; of those that were replaced none.
    pub written: Vec<(String, u64)>,
    /// Batches that workers hold, those that were pulled or can be, and those that outputs keep.
    pub in_flight: usize,
}

/// The filter of the kernel before a capture.
#[derive(Debug)]
struct CaptureFilter {
    /// What packets begin with there.
    link: LinkType,
    filter: Arc<dyn PreFilter>,
}

/// Why a filter, an output or keys were not replaced, or is not in place everywhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The expression is wrong, or makes sense for nothing that is read. The filter before stays.
    #[error(transparent)]
    Refused(PlanError),
    /// The kernel's filter cannot be widened for packets that the new filter wants. The filter before stays.
    #[error("the kernel's filter: {0}")]
    Kernel(io::Error),
    /// Batches that were begun before are under way still. What is begun now is judged by the new filter, or goes to the new output.
    #[error("change {change} is in place, and batches from before it are still under way")]
    UnderWay {
        /// Number of the change.
        change: u64,
    },
    /// The new output cannot be made. The one before stays.
    #[error("{}", end_words(.0))]
    Output(End),
    /// There is no such output, or its packets are only counted.
    #[error("there is no such output")]
    NoOutput,
    /// The new output [wants](Sink::wants) other packets than the one before, or [keeps](Sink::keeps) batches where that does not.
    #[error("the new output wants other packets than the one before, or keeps them")]
    Wants,
    /// An earlier change of this output, or of the keys, is under way still.
    #[error("an earlier change is still under way")]
    Earlier,
    /// The tables for other keys cannot be had. The keys before stay.
    #[error(transparent)]
    Tables(weir_measure::Error),
    /// Nothing is measured.
    #[error("nothing is measured")]
    NoMeasurement,
    /// The run is over.
    #[error("the run is over")]
    Over,
}

impl From<KeysRefused> for ChangeError {
    fn from(refused: KeysRefused) -> Self {
        match refused {
            KeysRefused::Tables(error) => Self::Tables(error),
            KeysRefused::Earlier => Self::Earlier,
            _ => Self::Over,
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
            Refusal::Closed(Closed::Waiting) => Self::Earlier,
            Refusal::Sink(end) => Self::Output(end),
        }
    }
}

impl Control {
    /// For a run whose outputs need this; `None` if packets are only counted.
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        stages: Arc<Stages>,
        resolve: bool,
        needs: Vec<Option<Needs>>,
        keys: Option<Arc<Keys>>,
    ) -> Self {
        Self {
            stop,
            stages,
            resolve,
            changing: Mutex::default(),
            kernel_filters: Mutex::default(),
            outputs: OutputChanges::new(needs),
            keys,
            asked: AtomicBool::new(false),
            askers: Mutex::default(),
        }
    }

    /// Ends the run. A capture delivers what it has received by then.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// How the run stands, as of the end of a batch; `None` if it has no answer within `most`: before its first source and behind its
    /// last, or while it waits for a pipe or an output.
    pub fn snapshot(&self, most: Duration) -> Option<Snapshot> {
        let (say, said) = channel();
        self.askers.lock().unwrap_or_else(PoisonError::into_inner).push(say);
        self.asked.store(true, Ordering::Release);
        said.recv_timeout(most).ok()
    }

    /// Answers who asked for a snapshot. **Cost**: a load if nobody did.
    pub(crate) fn answer(&self, snapshot: impl FnOnce() -> Snapshot) {
        if self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Acquire) {
            let askers = std::mem::take(&mut *self.askers.lock().unwrap_or_else(PoisonError::into_inner));
            let snapshot = snapshot();
            // Who waits no longer has dropped its end.
            askers.into_iter().for_each(|asker| drop(asker.send(snapshot.clone())));
        }
    }

    /// Number of the latest change, 0 before the first.
    pub fn change(&self) -> u64 {
        self.stages.changes().map_or(0, |changes| changes.number())
    }

    /// Replaces the filter's expression between two batches, without loss, and returns the number of the change; the splits stay. The
    /// call waits until every reader has ended the step that it began under the old filter: no batch begins under that any more, and
    /// each batch has the number of the filter that judges it. Until then the kernel's filter passes what either expression matches.
    ///
    /// **Cost**: compiles and makes native code in this thread, milliseconds for each link type that is captured; `timeout` at most for
    /// steps under way, which readers that wait for packets have none of. **Errors**: but for the last of [`ChangeError`]'s, nothing
    /// has changed.
    pub fn set_filter(&self, expression: &str, timeout: Duration) -> Result<u64, ChangeError> {
        let mut before = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.stages.select();
        let new = Arc::new(old.with_expression(expression).map_err(ChangeError::Refused)?);
        let mut all = before.clone();
        all.extend([old, Arc::clone(&new)]);
        if let Err(error) = self.set_kernel_filters(&all) {
            all.pop();
            // A filter that stays wider is right too.
            let _ = self.set_kernel_filters(&all);
            return Err(ChangeError::Kernel(error));
        }
        let change = self.stages.replace(new);
        let new = all.pop();
        *before = all;
        if !self.stages.changes().is_none_or(|changes| changes.wait(change, timeout)) {
            return Err(ChangeError::UnderWay { change });
        }
        before.clear();
        let _ = self.set_kernel_filters(new.as_slice());
        Ok(change)
    }

    /// Replaces the sink of an output between two batches, without loss, and returns the number of the change. Batches of earlier
    /// numbers go to the sink before, which is then completed: [`Event::OutputReplaced`](crate::event::Event::OutputReplaced) has its
    /// report. Of several captures, packets go to the sink before until no capture has an earlier batch. A sink that ended early can be
    /// replaced too, as long as the run goes on. The file of the sink before cannot be written again by the run.
    ///
    /// What is counted of a capture (pcapng's interface statistics) is in the last file alone.
    ///
    /// **Cost**: makes the file in this thread, and completes the one before in the run's. The run takes the change up with its next
    /// batch, or, while it waits for a capture, within some [turns](weir_io::live::TURN); while it waits for a pipe, once bytes come.
    /// **Errors**: but for [`ChangeError::UnderWay`] nothing has changed; an empty file may have been made.
    pub fn set_output(
        &self,
        slot: OutputSlot,
        name: &str,
        sink: Box<dyn Sink>,
        timeout: Duration,
    ) -> Result<u64, ChangeError> {
        let mut sink = sink;
        self.outputs.prepare(slot, sink.as_mut())?;
        let (taken, hears) = channel();
        let change = OutputChange { change: 0, slot, name: name.to_owned(), sink, taken };
        let change = self.outputs.push(change, || self.stages.mark()).map_err(Refusal::Closed)?;
        hear(change, &hears, timeout)
    }

    /// Replaces the keys that the measurement counts by, and returns the number of the change. Batches of earlier numbers are counted by
    /// the keys before, and all others, in fresh tables, by these: each packet once. Windows that are open end early, and behind them
    /// comes the sum of all that was counted by the keys before, each as an [`Event::Window`](crate::event::Event::Window) with the
    /// [number](weir_measure::Window::change). What comes later of such a window is a further result of it.
    ///
    /// The call waits until all workers have begun with the new tables, and that sum is told.
    ///
    /// **Cost**: makes the tables of all workers, in this thread; those before are there until all are past the change. The run takes the change up as
    /// [that of an output](Self::set_output). **Errors**: but for [`ChangeError::UnderWay`] nothing has changed.
    pub fn set_keys(&self, keys: Vec<KeyKind>, timeout: Duration) -> Result<u64, ChangeError> {
        let known = self.keys.as_ref().ok_or(ChangeError::NoMeasurement)?;
        let (change, hears) = known.replace(keys, || self.stages.mark())?;
        hear(change, &hears, timeout)
    }

    /// The run is over: who waits for a change hears that, and others are refused.
    pub(crate) fn end(&self) {
        drop(self.outputs.end());
        if let Some(keys) = &self.keys {
            keys.end();
        }
    }

    /// The changes of outputs that the run has not taken up.
    pub(crate) fn outputs(&self) -> &OutputChanges {
        &self.outputs
    }

    /// Notes the kernel's filters of captures that are about to begin. The filter may be another one since they were opened.
    pub(crate) fn begin(&self, inputs: &[Input]) {
        let mut all = self.changing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let filters = inputs.iter().filter_map(|input| {
            let Kind::Live(live) = &input.kind else { return None };
            let link = live.layout().interfaces.first()?.link;
            Some(CaptureFilter { link, filter: live.backend().pre_filter()? })
        });
        self.kernel_filters.lock().unwrap_or_else(PoisonError::into_inner).extend(filters);
        if self.stages.current().0 > 0 {
            all.push(self.stages.select());
            let _ = self.set_kernel_filters(&all);
        }
    }

    /// The kernel's filters pass what one of these filters keeps.
    fn set_kernel_filters(&self, selects: &[Arc<Select>]) -> io::Result<()> {
        let filters = self.kernel_filters.lock().unwrap_or_else(PoisonError::into_inner);
        filters.iter().try_for_each(|CaptureFilter { link, filter }| {
            // Without a program for one of them everything passes.
            let programs: Option<Vec<_>> = selects.iter().map(|select| self.program(select, *link)).collect();
            filter.replace(&programs.unwrap_or_default())
        })
    }

    /// The program of a filter's expression for the kernel; none if it makes no sense there, or would reject what is kept.
    fn program(&self, select: &Select, link: LinkType) -> Option<Vec<Insn>> {
        if !select.suits_a_filter_before() {
            return None;
        }
        kernel_program(select.expression(), link, self.resolve, &self.stop).ok()
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

/// What an expression becomes for the kernel's filter of a capture whose packets are of this link type.
///
/// **Errors**: libpcap refuses it; `stop` was set first.
pub fn kernel_program(
    expression: &str,
    link: LinkType,
    resolve: bool,
    stop: &AtomicBool,
) -> Result<Vec<Insn>, PlanError> {
    let program = compile(expression, stop, move |text| libpcap::compile_live(text, link, resolve))?;
    let insn = |insn: &weir_filter::Insn| Insn { code: insn.code, jt: insn.jt, jf: insn.jf, k: insn.k };
    Ok(program.insns().iter().map(insn).collect())
}
