//! Sources of batches: one source, or several as one.

use crate::Reader;
use crate::reader::{AccessMode, Delivery, Report, SourceFault, Step};
use crate::stages::Stages;
use std::time::Duration;
use weir_io::Chunk;
use weir_io::live::Counts;
use weir_packet::savefile::Layout;

/// A source of batches in one order. Between two steps, it is not at work, so that a change need not wait for it.
pub trait Source: Send {
    /// Returns the next step. Does not wait for a live source; a pipe is read until it has packets.
    fn poll(&mut self) -> Step<Stages>;

    /// Waits at most `most` until a live source may have packets.
    fn wait(&mut self, most: Duration);

    /// Gives back the bytes of a batch, for reuse of their memory.
    fn recycle(&mut self, view: Chunk);

    /// Returns the number of a change, as of the start of the last step: the packets of that step, and all that follow, belong to
    /// this change or a later one. Never goes back.
    fn change(&self) -> u64;

    /// Returns the access mode. Several sources are streams if one of them is.
    fn way(&self) -> AccessMode;

    /// Returns the layout known so far.
    fn layout(&self) -> Option<&Layout>;

    /// Returns the report so far. `received` counts the packets in batches; of several sources, only the sums are here.
    fn report(&self) -> &Report;

    /// Returns the number of bytes read so far.
    fn progress(&self) -> u64;

    /// Takes packets out of the totals that were delivered but not used, because the run was
    /// stopped.
    fn remove_left_packets(&mut self, packets: u64);

    /// Ends the source in the middle of its last batch: see [`Reader::end_within`].
    fn end_within(&mut self, batch: &Delivery<Stages>, last: usize, longer: u64);

    /// Returns the longest time for which the source holds back packets of a capture.
    fn holds_back(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the state of each capture.
    fn captures(&self) -> Vec<CaptureState<'_>> {
        Vec::new()
    }
}

/// State of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureState<'a> {
    /// Name of the source as the user wrote it; empty if the capture is the only source.
    pub name: &'a str,
    /// Layout, once known.
    pub layout: Option<&'a Layout>,
    /// Counts so far.
    pub counts: Option<Counts>,
    /// Whether the capture has ended.
    pub ended: bool,
    /// Error that ended it early, if one did.
    pub fault: Option<&'a SourceFault>,
}

impl Source for Reader<Stages> {
    fn poll(&mut self) -> Step<Stages> {
        Self::poll(self)
    }

    fn wait(&mut self, most: Duration) {
        Self::wait(self, most);
    }

    fn recycle(&mut self, view: Chunk) {
        Self::recycle(self, view);
    }

    fn change(&self) -> u64 {
        Self::change(self)
    }

    fn way(&self) -> AccessMode {
        Self::way(self)
    }

    fn layout(&self) -> Option<&Layout> {
        Self::layout(self)
    }

    fn report(&self) -> &Report {
        Self::report(self)
    }

    fn progress(&self) -> u64 {
        self.report().offset
    }

    fn remove_left_packets(&mut self, packets: u64) {
        Self::remove_left_packets(self, packets);
    }

    fn end_within(&mut self, batch: &Delivery<Stages>, last: usize, longer: u64) {
        Self::end_within(self, batch, last, longer);
    }

    fn captures(&self) -> Vec<CaptureState<'_>> {
        let report = self.report();
        let state = CaptureState {
            name: "",
            layout: self.layout(),
            counts: report.live,
            ended: false,
            fault: report.fault.as_ref(),
        };
        let is_live = self.way() == AccessMode::Live;
        is_live.then_some(state).into_iter().collect()
    }
}
