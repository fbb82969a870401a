//! Sinks: where the packets of an output go.

use crate::batches::Batch;
use crate::name::Name;
use crate::port::{PortFault, Refused};
use std::sync::Arc;
use weir_io::output::OutputError;
use weir_packet::savefile::{Format, Interface, Layout, Record, Statistics};
use weir_pipeline::Delivery;
use weir_pipeline::handed::Handed;
use weir_pipeline::stages::{Bits, Stages};

/// Why a sink takes no more packets.
#[derive(Debug)]
pub enum End {
    /// Nobody reads any more: a quiet end.
    ClosedPipe,
    /// All files that were asked for are written: a quiet end.
    Complete,
    /// It failed.
    Failed(SinkFault),
}

/// Why a sink failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkFault {
    /// A capture file cannot be made or written.
    #[error("{}: {error}", .name.as_output())]
    File {
        /// The output, as the user calls it.
        name: Name,
        /// Why.
        error: OutputError,
    },
    /// A port sends nothing more.
    #[error(transparent)]
    Port(PortFault),
    /// What a sink of a front end says.
    #[error("{0}")]
    Said(String),
}

/// Packets that a sink did not write as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Their times are beyond what a file of this format holds: the nearest time stands there instead.
    Clamped {
        /// Their number.
        packets: u64,
        /// Of the file.
        format: Format,
    },
    /// They have no time stamp: 1970 stands there instead.
    Unstamped {
        /// Their number.
        packets: u64,
    },
    /// They were cut, and were sent shorter than they were.
    Cut {
        /// Their number.
        packets: u64,
    },
    /// What a sink of a front end says.
    Said(String),
}

/// What a sink has done.
#[derive(Clone, Debug, Default)]
pub struct SinkReport {
    /// Packets that the sink itself counted as written; of a port, as taken.
    pub written: u64,
    /// Packets of these in files that were emptied later.
    pub overwritten: u64,
    /// What was not written as it was.
    pub notes: Vec<Note>,
    /// Packets that a port sent.
    pub sent: Option<u64>,
    /// Packets that a port threw away, as it was asked to.
    pub thrown_away: Option<u64>,
    /// Packets that a port did not send.
    pub refused: Vec<Refused>,
}

/// Which packets of a run a sink is handed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Packets that match: those that the filter passes, and of a split those of them that match the split.
    #[default]
    Passed,
    /// All other packets that the run reads.
    Rejected,
    /// All packets that the run reads, with a mask of those that match: see [`Packets::matched`].
    All,
}

/// What a sink needs of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    pub wanted: Wanted,
    /// It keeps batches.
    pub keeps: bool,
}

impl Needs {
    pub fn of(sink: &dyn Sink) -> Self {
        Self { wanted: sink.wants(), keeps: sink.keeps() }
    }
}

/// Packets of a batch that a sink is handed, in the order of their source.
#[derive(Clone, Copy, Debug)]
pub struct Packets<'a> {
    pub(crate) batch: &'a Delivery<Stages>,
    pub(crate) records: &'a [u32],
    pub(crate) wanted: Wanted,
    pub(crate) matched: Option<&'a Bits>,
    /// Shared by all batches that the sink keeps.
    pub(crate) kept: &'a Arc<()>,
}

impl<'a> Packets<'a> {
    /// The packets as a batch that the sink may keep, give to another thread, or forward, without a copy of their bytes. `None` for a
    /// mapped file, which others may change: see [`Sink::keeps`].
    ///
    /// Dropping the batch gives its memory back. A capture whose memory is out drops packets, and counts them. **Cost**: four bytes and a
    /// bit for each packet.
    pub fn keep(&self) -> Option<Batch> {
        let verdicts = || match (self.wanted, self.matched) {
            (_, Some(matched)) => matched.clone(),
            (Wanted::Rejected, None) => Bits::zeros(self.len()),
            (_, None) => Bits::ones(self.len()),
        };
        (!self.batch.view.is_mapped()).then(|| Batch::kept(self.batch, self.records, verdicts(), self.kept))
    }

    /// How the source is laid out here.
    pub fn layout(&self) -> &'a Layout {
        &self.batch.current.layout
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Mask of the packets that match, for a sink that wants [`Wanted::All`]: bit i is 1 if packet i matches.
    pub fn matched(&self) -> Option<&'a Bits> {
        self.matched
    }

    /// Number of the latest change that they were judged under.
    pub fn change(&self) -> u64 {
        self.batch.current.plan.change()
    }

    /// Hands the packets to `each` where they lie, for as long as the batch is there. `false`, and nothing is handed, for a mapped file,
    /// which others may change.
    pub fn in_place(&self, mut each: impl FnMut(Record<'a>)) -> bool {
        let Delivery { current, view, .. } = self.batch;
        if view.is_mapped() {
            return false;
        }
        // Nobody writes to it: each record is found again.
        current.layout.records(view.content(), self.records, |_, record| record.into_iter().for_each(&mut each));
        true
    }

    /// Hands the packets to `each`, until it fails. A packet of a mapped file is first copied to `scratch`, and the last one may be
    /// followed by others that are not in the file any more.
    pub fn hand_on(
        &self,
        scratch: &mut Vec<u8>,
        each: impl FnMut(&Record<'_>) -> Result<(), End>,
    ) -> (Handed, Result<(), End>) {
        self.batch.hand_on(self.records, scratch, each)
    }
}

/// What becomes of the packets of an output. Batches come in the order of their source.
pub trait Sink: Send {
    /// Takes a packet of the source's interface `record.frame.interface`.
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End>;

    /// Takes packets of a batch; `scratch` is for [`Packets::hand_on`]. Packets of several captures, and of files that are merged and only
    /// filtered, do not come in batches: [`Self::packet`] takes them.
    fn batch(&mut self, packets: &Packets<'_>, scratch: &mut Vec<u8>) -> (Handed, Result<(), End>) {
        packets.hand_on(scratch, |record| self.packet(packets.layout(), record))
    }

    /// Which packets it is handed; the answer is always the same. What it writes is held against the ledger: packets that passed, that
    /// were filtered, or both.
    ///
    /// A sink that wants other packets than those that pass ends alone, and gets all packets in batches. Files are then read instead of
    /// mapped. A run of several captures refuses it, and so does one of a capture with a kernel's filter, which would reject packets
    /// that the run never sees ([`Error::RejectedBefore`](crate::run::Error::RejectedBefore)).
    fn wants(&self) -> Wanted {
        Wanted::Passed
    }

    /// Whether it [keeps](Packets::keep) batches; the answer is always the same. All its packets then come in batches, and files are
    /// read instead of mapped; a run of several captures refuses it.
    fn keeps(&self) -> bool {
        false
    }

    /// Makes the file, if it is one, before its first packet. A file that cannot be made ends a run that measures nothing.
    fn open(&mut self) -> Result<(), End> {
        Ok(())
    }

    /// Another source follows: its interfaces are not those of the one before.
    fn new_source(&mut self) {}

    /// Announces a source with this layout.
    fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        let _ = layout;
        Ok(())
    }

    /// Writes the header of a file, once all sources are announced.
    fn start(&mut self) -> Result<(), End> {
        Ok(())
    }

    /// Writes out what is buffered.
    fn flush(&mut self) -> Result<(), End>;

    /// Notes what was counted at the interfaces of a source.
    fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        let _ = counts;
    }

    /// Completes the output; without a `layout` there was no source. An output that has `ended` took what it has before that.
    fn finish(&mut self, layout: Option<&Layout>, ended: bool) -> Result<(), End>;

    /// Whether somebody waits for each packet: what is buffered goes out when no other packet waits.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Whether it is a capture file.
    fn is_file(&self) -> bool {
        false
    }

    /// What it has done so far.
    fn report(&self) -> SinkReport;
}
