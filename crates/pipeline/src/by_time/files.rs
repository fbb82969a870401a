//! Files and pipes as one source, and the runs of a sort.

use super::Rejected;
use super::gather::Gather;
use crate::interfaces::Interfaces;
use crate::merge::{self, Found, Merge};
use crate::reader::{AccessMode, Delivery, Report, SourceError, Step};
use crate::source::Source;
use crate::stages::Stages;
use crate::{Consumer, PlanError, SourceFault};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_io::{Chunk, Input};
use weir_memory::changes::Steps;
use weir_packet::savefile::{Interface, Layout, Statistics};

/// Size of a piece, bytes.
const PIECE: usize = 128 << 10;

/// Outcome of one source of several.
#[derive(Debug)]
pub struct Part {
    /// Name as the user wrote it.
    pub name: String,
    /// Report of the reading; its `received` counts the packets passed on.
    pub report: Report,
    /// Layout of the source, if known.
    pub layout: Option<Layout>,
    /// Access mode of the source.
    pub way: AccessMode,
    /// After a sort: interface statistics in the source, for the interfaces that its packets have now.
    pub stats: Vec<(Interface, Statistics)>,
}

/// Sources whose packets were sorted.
pub(crate) struct Sorted {
    pub parts: Vec<Part>,
    /// Number of packets of all sources.
    pub packets: u64,
}

/// Files and pipes, or the runs of a sort, as one source. All are read in the caller's thread.
pub struct MergedFiles {
    merge: Merge<Stages>,
    gather: Gather,
    begun: bool,
    finished: bool,
    /// Steps as seen by threads that change the stages.
    steps: Option<Steps>,
    stages: Arc<Stages>,
    change: u64,
    report: Report,
    /// Sorted sources, if the merge is of the runs of a sort.
    sorted: Option<Sorted>,
}

impl core::fmt::Debug for MergedFiles {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MergedFiles")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl MergedFiles {
    /// Makes a source of `inputs`, by packet time. Packets of equal times keep the order of the sources. Nothing is read yet.
    pub fn new(inputs: Vec<Input>, stages: Arc<Stages>, rejected: Rejected) -> Self {
        let merge = Merge::new(inputs, &stages, rejected.merged(&stages));
        Self::of(merge, stages, rejected, Interfaces::default(), None)
    }

    /// Makes a source of the runs of a sort, whose packets have these interfaces.
    pub(crate) fn sorted(
        merge: Merge<Stages>,
        stages: Arc<Stages>,
        rejected: Rejected,
        interfaces: Interfaces,
        sorted: Sorted,
    ) -> Self {
        Self::of(merge, stages, rejected, interfaces, Some(sorted))
    }

    fn of(
        merge: Merge<Stages>,
        stages: Arc<Stages>,
        rejected: Rejected,
        interfaces: Interfaces,
        sorted: Option<Sorted>,
    ) -> Self {
        let sources = merge.sources().len();
        Self {
            gather: Gather::new(Arc::clone(&stages), rejected, PIECE, interfaces, sources),
            merge,
            begun: false,
            finished: false,
            steps: stages.changes().map(Steps::new),
            stages,
            change: 0,
            report: Report::default(),
            sorted,
        }
    }

    /// Reads the first piece of each source, if that was not done. An expression is checked against the link types of all sources, not only against
    /// that of the first packet.
    ///
    /// **Errors**: the expression is refused for the first packets of a source.
    pub fn begin(&mut self) -> Result<(), PlanError> {
        if !std::mem::replace(&mut self.begun, true) {
            let gather = &mut self.gather;
            self.merge.begin(&mut |part, from| gather.leave(part, from));
            for (number, source) in self.merge.sources().iter().enumerate() {
                let layout = source.reader().layout().filter(|_| self.sorted.is_none());
                if let Some(Err(what)) = layout.map(|layout| self.gather.announce(number, layout)) {
                    self.fail(what);
                    break;
                }
            }
        }
        for source in self.merge.sources() {
            if let Some(SourceFault {
                what: SourceError::Plan(why),
                packet: 1,
                ..
            }) = &source.reader().report().fault
            {
                return Err(why.clone());
            }
        }
        Ok(())
    }

    /// Returns the layouts of the sources, as far as they are known.
    pub fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.merge
            .sources()
            .iter()
            .filter_map(|source| source.reader().layout())
    }

    /// Returns the report of the whole, and the outcome of each source.
    pub fn into_parts(self) -> (Report, Vec<Part>) {
        let parts = match self.sorted {
            Some(sorted) => sorted.parts,
            None => self.merge.into_sources().map(part).collect(),
        };
        (self.report, parts)
    }

    fn fail(&mut self, what: SourceError) {
        self.finished = true;
        if !matches!(what, SourceError::Plan(PlanError::Stopped)) {
            self.report.fail(what);
        }
    }

    /// Gathers the next packets. Returns whether the sources have ended.
    fn fill(&mut self) -> Result<bool, SourceError> {
        let Self { merge, gather, .. } = self;
        // If the next packet must wait for a pipe, the packets so far are passed on now.
        while !gather.is_full() && (gather.is_empty() || !merge.waits()) {
            match merge.next(&mut |part, from| gather.leave(part, from)) {
                Found::Packet(next) => match gather.take(&next) {
                    Ok(true) => merge.pass(),
                    Ok(false) => break,
                    Err(what) if gather.is_empty() => return Err(what),
                    // The packets in the piece are passed on; the next step meets the error again.
                    Err(_) => break,
                },
                // What is only counted is reported soon.
                Found::Nothing if !gather.has_packets() => break,
                Found::Nothing => {}
                Found::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<Step<Stages>, SourceError> {
        self.change = self.change.max(self.reached());
        self.gather.set_change(self.change);
        let ended = self.fill()?;
        let received = self.gather.received();
        if let Some(delivery) = self.gather.piece(self.report.offset)? {
            self.report.received += received;
            self.report.offset += delivery.view.bytes().len() as u64;
            return Ok(Step::Delivery(delivery));
        }
        if !ended {
            return Ok(Step::Quiet);
        }
        self.finished = true;
        self.check().map(|()| Step::End)
    }

    /// Returns the number of a change: the next packets belong to it or to a later one.
    fn reached(&self) -> u64 {
        // What is read from now on belongs to the latest change.
        let latest = self.steps.as_ref().map_or(0, Steps::begin);
        if !self.stages.judge {
            return latest;
        }
        let unfinished = self
            .merge
            .sources()
            .iter()
            .filter_map(|source| source.unfinished());
        unfinished
            .map(|delivery| delivery.current.plan.change())
            .min()
            .map_or(latest, |earliest| earliest.min(latest))
    }

    /// Checks at the end that all packets read were passed on.
    fn check(&self) -> Result<(), SourceError> {
        let sources = self.merge.sources();
        if let Some(sorted) = &self.sorted {
            let passed: u64 = sources.iter().map(merge::Source::passed).sum();
            if passed != sorted.packets && self.stages.locate.is_some() {
                let what = "a temporary file does not hold what was written into it";
                return Err(SourceError::Io(io::Error::other(what)));
            }
            return Ok(());
        }
        let located = sources.iter().filter(|_| self.stages.locate.is_some());
        located.into_iter().try_for_each(|source| {
            let (read, passed) = (source.reader().report().received, source.passed());
            if read == passed {
                Ok(())
            } else {
                Err(SourceError::Merge { read, passed })
            }
        })
    }
}

fn part(source: merge::Source<Stages>) -> Part {
    let (name, passed) = (source.name().to_owned(), source.passed());
    let (layout, way) = (source.reader().layout().cloned(), source.reader().way());
    let report = Report {
        received: passed,
        ..source.into_report()
    };
    Part {
        name,
        report,
        layout,
        way,
        stats: Vec::new(),
    }
}

impl Source for MergedFiles {
    fn poll(&mut self) -> Step<Stages> {
        // A refusal is an error of its source too.
        let _ = self.begin();
        if self.finished {
            return Step::End;
        }
        let step = self.step();
        if let Some(steps) = &self.steps {
            steps.end();
        }
        step.unwrap_or_else(|what| {
            self.fail(what);
            Step::End
        })
    }

    fn wait(&mut self, _: Duration) {}

    fn recycle(&mut self, view: Chunk) {
        if let Some(buffer) = view.into_buffer() {
            self.gather.give_back(buffer);
        }
    }

    fn change(&self) -> u64 {
        self.change
    }

    fn way(&self) -> AccessMode {
        let is_stream =
            |source: &merge::Source<Stages>| source.reader().way() == AccessMode::Stream;
        if self.merge.sources().iter().any(is_stream) {
            AccessMode::Stream
        } else {
            AccessMode::Read
        }
    }

    fn layout(&self) -> Option<&Layout> {
        self.gather.layout()
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn progress(&self) -> u64 {
        self.merge.offset()
    }

    fn remove_left_packets(&mut self, packets: u64) {
        self.report.received -= packets;
    }

    fn end_within(&mut self, batch: &Delivery<Stages>, _: usize, _: u64) {
        self.finished = true;
        self.gather.end_at(batch);
    }
}
