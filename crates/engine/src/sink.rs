//! Sinks: the destinations of an output's packets.

use crate::batches::Batch;
use crate::name::Name;
use crate::port::PortFault;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use weir_io::output::OutputError;
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::{Format, Interface, Layout, Record, Statistics};
use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::reader::Uncounted;
use weir_pipeline::stages::Stages;

/// Reason for which a sink takes no more packets.
#[derive(Debug)]
pub enum End {
    /// The reader of the pipe is gone: an end without an error.
    ClosedPipe,
    /// All requested files are written: an end without an error.
    Complete,
    /// The sink failed.
    Failed(SinkFault),
}

/// Failure of a sink.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkFault {
    /// A capture file cannot be made or written.
    #[error("{}{error}", unnamed(.name, .error))]
    File {
        /// Name of the output as the user wrote it.
        name: Name,
        /// Error of the file.
        error: OutputError,
    },
    /// A port failed, and sends no more packets.
    #[error(transparent)]
    Port(PortFault),
    /// Message of a front end's own sink.
    #[error("{0}")]
    Said(String),
}

/// Name of an output in front of an error that does not tell it.
fn unnamed(name: &Name, error: &OutputError) -> String {
    match error {
        OutputError::Io { .. } => format!("{}: ", name.as_output()),
        _ => String::new(),
    }
}

/// Packets that a sink wrote with changes, and files that it did not write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Packets with a time outside the range of the file's format: the nearest time is written instead.
    Clamped {
        /// Number of packets.
        packets: u64,
        /// Format of the file.
        format: Format,
    },
    /// Packets without a timestamp: 1970 is written instead.
    Unstamped {
        /// Number of packets.
        packets: u64,
    },
    /// Packets in pcap files that are longer than the snap length of the file's header: libpcap reads no more of them than that.
    Longer {
        /// Number of packets.
        packets: u64,
    },
    /// Packets that were cut, and were sent shorter than on the wire.
    Cut {
        /// Number of packets.
        packets: u64,
    },
    /// Packets that the interface of a port has dropped in the meantime, of all senders: its sent packets can be among them.
    Dropped {
        /// Name of the port.
        port: String,
        /// Number of packets.
        packets: u64,
    },
    /// Packets that were to get other addresses, and of which bytes were left out because they could not be taken apart.
    Unknown {
        /// Number of packets.
        packets: u64,
    },
    /// Blocks and parts of packets that a pcap file has no place for.
    LeftOut(LeftOut),
    /// Blocks and parts of packets that a record has no place for.
    NotRecorded(LeftOut),
    /// Earlier files with names of a rotated output, which were kept.
    Kept {
        /// Number of files.
        files: u64,
        /// The first of them.
        first: PathBuf,
    },
    /// Packets in the file that further keys have in common, because so many have files of their own.
    Further {
        /// Number of packets.
        packets: u64,
        /// Number of files.
        files: u64,
    },
    /// Message of a front end's own sink.
    Said(String),
}

/// Report of a sink. Of the packets that it was handed, and the `pieces`, each is `taken` or `lost`.
#[derive(Clone, Debug, Default)]
pub struct SinkReport {
    /// Packets taken, counted by the sink itself, as `kind` says.
    pub taken: u64,
    /// Frames beyond the first of each packet that a port has cut into several.
    pub pieces: u64,
    /// Packets that the sink was handed and lost.
    pub lost: Vec<Lost>,
    /// Meaning of `taken`.
    pub kind: Kind,
    /// Written packets in files that were emptied later.
    pub overwritten: u64,
    /// Notes on packets written with changes.
    pub notes: Vec<Note>,
}

/// Use that a sink makes of the packets that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// They are written.
    #[default]
    Written,
    /// They are sent, as far as this machine knows.
    Sent,
    /// They are discarded on request, by the port `null`.
    Discarded,
}

/// Packets that a stage lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Number of packets.
    pub packets: u64,
    /// Reason of the loss.
    pub why: Loss,
}

/// Reason for which a stage loses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The packet is longer than the interface's limit. Carries the MTU, if known.
    TooLong(Option<usize>),
    /// The packet is shorter than a link header.
    TooShort,
    /// The interface had no room.
    NoRoom,
    /// The interface was down.
    Down,
    /// The file or the port failed.
    Failed,
    /// The reader of the pipe is gone.
    Closed,
}

impl Loss {
    /// Returns the name of the reason for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLong(_) => "too_long",
            Self::TooShort => "too_short",
            Self::NoRoom => "no_room",
            Self::Down => "down",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }
}

/// Counts of a stage that takes packets: `judged` = `taken` + `lost`. Each term is counted where the event happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Packets that reached the stage; of a port that cuts packets, frames.
    pub judged: u64,
    /// Packets that the stage took.
    pub taken: u64,
    /// Packets that the stage lost, by reason.
    pub lost: Vec<Lost>,
}

impl StageCounts {
    /// Returns the number of lost packets.
    pub fn lost(&self) -> u64 {
        self.lost.iter().map(|lost| lost.packets).sum()
    }

    /// Whether the counts add up.
    pub fn add_up(&self) -> bool {
        self.judged == self.taken + self.lost()
    }

    /// Adds the counts of another stage.
    pub fn add(&mut self, other: &Self) {
        self.judged += other.judged;
        self.taken += other.taken;
        other.lost.iter().for_each(|lost| self.lose(*lost));
    }

    /// Adds lost packets.
    pub(crate) fn lose(&mut self, lost: Lost) {
        match self.lost.iter_mut().find(|known| known.why == lost.why) {
            Some(known) => known.packets += lost.packets,
            None if lost.packets > 0 => self.lost.push(lost),
            None => {}
        }
    }
}

/// Kind of the packets that a run hands to a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Packets that match: the packets that the filter passes; for a split, the passed packets that
    /// match the split.
    #[default]
    Matching,
    /// All other packets that the run reads.
    Rejected,
    /// All packets that the run reads, with a mask of matching packets: see [`Packets::matched`].
    All,
}

/// Needs of a sink, always the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Kind of the packets for the sink. Their number is compared with the ledger: packets passed, filtered, or both.
    ///
    /// A sink that wants other packets than the passed ones ends alone. A run with a capture whose kernel filter rejects packets before the run refuses such a sink
    /// ([`Error::RejectedBefore`](crate::run::Error::RejectedBefore)).
    pub wanted: Wanted,
    /// Whether the sink may be [complete](End::Complete) before the last packet.
    pub ends: bool,
    /// Whether the sink writes files, and begins the next on [request](Sink::next_file).
    pub has_files: bool,
}

/// Packets of a batch that are handed to a sink, in the order of their source.
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
    /// Returns the packets as a batch that the sink may keep, give to another thread, or forward, without a copy of their bytes.
    ///
    /// A dropped batch gives its memory back. If the memory of a capture is used up, the capture drops packets, and counts them.
    /// **Cost**: four bytes and a bit for each packet.
    pub fn keep(&self) -> Batch {
        let verdicts = match (self.wanted, self.matched) {
            (_, Some(matched)) => matched.clone(),
            (Wanted::Rejected, None) => Bits::zeros(self.len()),
            (_, None) => Bits::ones(self.len()),
        };
        Batch::kept(self.batch, self.records, verdicts, self.kept)
    }

    /// Returns the layout of the source at these packets.
    pub fn layout(&self) -> &'a Layout {
        &self.batch.current.layout
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the mask of the packets that match, for a sink that wants [`Wanted::All`]: bit i is 1 if packet i matches.
    pub fn matched(&self) -> Option<&'a Bits> {
        self.matched
    }

    /// Returns the number of the latest change for these packets.
    pub fn change(&self) -> u64 {
        self.batch.current.plan.change()
    }

    /// Hands the packets to `each` in place; they stay valid as long as the batch.
    pub fn in_place(&self, mut each: impl FnMut(Record<'a>)) {
        let Delivery { current, view, .. } = self.batch;
        // No process writes to this memory, so each record is found again.
        current
            .layout
            .records(view.content(), self.records, |_, record| {
                if let Some(record) = record {
                    each(record);
                }
            });
    }

    /// Hands the packets to `each` until `each` fails. Returns the number of packets taken.
    #[inline]
    pub fn hand_on(
        &self,
        mut each: impl FnMut(&Record<'_>) -> Result<(), End>,
    ) -> (u64, Result<(), End>) {
        let (mut taken, mut result, mut has_ended) = (0, Ok(()), false);
        self.in_place(|record| {
            if has_ended {
                return;
            }
            match each(&record) {
                Ok(()) => taken += 1,
                Err(end) => (has_ended, result) = (true, Err(end)),
            }
        });
        (taken, result)
    }
}

/// Destination of the packets of an output. Batches arrive in the order of their source.
pub trait Sink: Send {
    /// Takes a packet of the source's interface `record.frame.interface`.
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End>;

    /// Takes packets of a batch. Returns their number, which is less than all of them only with an end.
    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        packets.hand_on(|record| self.packet(packets.layout(), record))
    }

    /// Returns the needs of the sink.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Makes the file, if the sink writes one, before the first packet. If the file cannot be made, a run without a measurement
    /// ends.
    fn open(&mut self) -> Result<(), End> {
        Ok(())
    }

    /// A new source begins; interface indexes start over.
    fn new_source(&mut self) {}

    /// Gives up the files that this sink has claimed, because it is refused as the new sink of an output.
    fn abandon(&mut self) {}

    /// Announces a source with this layout.
    fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        let _ = layout;
        Ok(())
    }

    /// Writes the header of a file, once all sources are announced.
    fn start(&mut self) -> Result<(), End> {
        Ok(())
    }

    /// Writes out the buffered packets.
    fn flush(&mut self) -> Result<(), End>;

    /// Completes the current file, and begins the next, if the sink [has files](Needs::has_files).
    fn next_file(&mut self) -> Result<(), End> {
        Ok(())
    }

    /// Takes the steady time during a capture, with packets and without, several times a second.
    fn pass_time(&mut self, now: Instant) -> Result<(), End> {
        let _ = now;
        Ok(())
    }

    /// Notes what the captures of the run have counted so far, all of them. The run tells it several times a second.
    fn counted_so_far(&mut self, counts: &[(Interface, Statistics)]) {
        let _ = counts;
    }

    /// Ends a source, whose layout is complete now.
    fn end_source(&mut self, layout: &Layout) {
        let _ = layout;
    }

    /// Notes the interface statistics of a source that has ended.
    fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        let _ = counts;
    }

    /// Notes the comments of the interface statistics of a source that has ended.
    fn remarks(&mut self, remarks: &[String]) {
        let _ = remarks;
    }

    /// Notes the times for which a source that has ended does not tell what was lost.
    fn uncounted(&mut self, times: &[Uncounted]) {
        let _ = times;
    }

    /// Completes the output. Without a `layout`, there was no source. If the output has `ended` early, the packets taken before the
    /// end are still completed.
    fn finish(&mut self, layout: Option<&Layout>, ended: bool) -> Result<(), End>;

    /// Whether a reader waits for each packet, so that buffered packets are written out whenever no other packet waits.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Whether the sink writes a capture file.
    fn is_file(&self) -> bool {
        false
    }

    /// Returns the report so far.
    fn report(&self) -> SinkReport;
}
