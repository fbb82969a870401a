//! What other threads ask of a run while it goes on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_filter::libpcap;
use weir_io::live::PreFilter;
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
        Self { stop, look, stages, resolve, changing: Mutex::default(), kernel_filters: Mutex::default() }
    }

    /// Ends the run. A capture delivers what it has received by then.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks a capture how it stands: [`Event::Standing`](crate::event::Event::Standing).
    pub fn look(&self) {
        self.look.store(true, Ordering::Relaxed);
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
