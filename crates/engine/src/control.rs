//! What other threads ask of a run while it goes on.

use crate::ledger::Ledger;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_filter::libpcap;
use weir_io::live::{Counts, PreFilter};
use weir_io::sys::packet_socket::Insn;
use weir_io::{Input, Kind};
use weir_packet::LinkType;
use weir_pipeline::select::{Select, compile};
use weir_pipeline::stages::Stages;
use weir_pipeline::{Consumer, PlanError};

/// Controls a run from other threads.
#[derive(Debug)]
pub struct Control {
    stop: Arc<AtomicBool>,
    look: Arc<AtomicBool>,
    stages: Arc<Stages>,
    resolve: bool,
    /// One change at a time.
    changing: Mutex<()>,
    kernel_filters: Mutex<Vec<KernelFilter>>,
    /// Somebody waits for a snapshot.
    asked: AtomicBool,
    askers: Mutex<Vec<Sender<Snapshot>>>,
}

/// How a run stands between two batches. Each figure was counted where it happens.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Number of the latest change of the filter.
    pub change: u64,
    /// What the filter and the outputs have counted. `received` is what readers in the run's thread have delivered: a capture with a
    /// thread of its own tells at its end, and what a kernel filtered or dropped is taken up then. Where the workers of a measurement
    /// judge, what passed is known at the end only.
    pub ledger: Ledger,
    /// What each capture has counted, by its name; not of several that are merged.
    pub captures: Vec<(String, Counts)>,
    /// Packets that each output has written, by its name.
    pub written: Vec<(String, u64)>,
    /// Batches that workers hold.
    pub in_flight: usize,
}

/// The filter of the kernel before a capture.
#[derive(Debug)]
struct KernelFilter {
    /// What packets begin with there.
    link: LinkType,
    filter: Arc<dyn PreFilter>,
}

/// Why a filter was not replaced, or is not in place everywhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The expression is wrong, or makes sense for nothing that is read. The filter before stays.
    #[error(transparent)]
    Refused(PlanError),
    /// The kernel's filter cannot be widened for packets that the new filter wants. The filter before stays.
    #[error("the kernel's filter: {0}")]
    Kernel(io::Error),
    /// Batches that were begun before are under way still. What is begun now is judged by the new filter.
    #[error("change {change} is in place, and batches from before it are still under way")]
    UnderWay {
        /// Number of the change.
        change: u64,
    },
}

impl Control {
    pub(crate) fn new(stop: Arc<AtomicBool>, look: Arc<AtomicBool>, stages: Arc<Stages>, resolve: bool) -> Self {
        Self {
            stop,
            look,
            stages,
            resolve,
            changing: Mutex::default(),
            kernel_filters: Mutex::default(),
            asked: AtomicBool::new(false),
            askers: Mutex::default(),
        }
    }

    /// Ends the run. A capture delivers what it has received by then.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks a capture how it stands: [`Event::Standing`](crate::event::Event::Standing).
    pub fn look(&self) {
        self.look.store(true, Ordering::Relaxed);
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

    /// Number of the latest change of the filter, 0 before the first.
    pub fn change(&self) -> u64 {
        self.stages.changes().map_or(0, |changes| changes.number())
    }

    /// Puts another expression in place of the filter's, between two batches and without loss; the splits stay. Returns the
    /// number of the change, which every batch has that is judged by it, once no batch is judged by the filter before any more.
    /// The kernel's filter lets through what either of them wants until then.
    ///
    /// **Cost**: compiles and makes native code in this thread, some milliseconds; readers that wait for packets hold it up no
    /// longer, others for the rest of a batch, `most` at most. **Errors**: but for the last of [`ChangeError`]'s, nothing has changed.
    pub fn set_filter(&self, expression: &str, most: Duration) -> Result<u64, ChangeError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.stages.select();
        let new = Arc::new(old.of_expression(expression).map_err(ChangeError::Refused)?);
        self.set_kernel_filters(|link| Some(vec![self.program(&old, link)?, self.program(&new, link)?]))
            .map_err(ChangeError::Kernel)?;
        let change = self.stages.replace(Arc::clone(&new));
        if !self.stages.changes().is_none_or(|changes| changes.wait(change, Instant::now() + most)) {
            return Err(ChangeError::UnderWay { change });
        }
        // The wider filter is right too.
        let _ = self.set_kernel_filters(|link| Some(vec![self.program(&new, link)?]));
        Ok(change)
    }

    /// Notes the kernel's filters of captures that are about to begin.
    pub(crate) fn begin(&self, inputs: &[Input]) {
        let filters = inputs.iter().filter_map(|input| {
            let Kind::Live(live) = &input.kind else { return None };
            let link = live.layout().interfaces.first()?.link;
            Some(KernelFilter { link, filter: live.backend().pre_filter()? })
        });
        self.kernel_filters.lock().unwrap_or_else(PoisonError::into_inner).extend(filters);
    }

    /// The kernel's filters pass what one of the programs for their link type accepts; where there are none, everything.
    fn set_kernel_filters(&self, programs: impl Fn(LinkType) -> Option<Vec<Vec<Insn>>>) -> io::Result<()> {
        let filters = self.kernel_filters.lock().unwrap_or_else(PoisonError::into_inner);
        filters
            .iter()
            .try_for_each(|KernelFilter { link, filter }| filter.replace(&programs(*link).unwrap_or_default()))
    }

    /// The program of a filter's expression for the kernel; none if it makes no sense there.
    fn program(&self, select: &Select, link: LinkType) -> Option<Vec<Insn>> {
        kernel_program(select.expression(), link, self.resolve, &self.stop).ok()
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
