//! Sinks: where the packets of an output go.

use crate::name::Name;
use crate::port::{PortFault, Refused};
use weir_io::output::OutputError;
use weir_packet::savefile::{Format, Interface, Layout, Record, Statistics};
use weir_pipeline::Delivery;
use weir_pipeline::handed::Handed;
use weir_pipeline::stages::Stages;

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

/// What becomes of the packets of an output. Batches come in the order of their source.
pub trait Sink: Send {
    /// Takes a packet of the source's interface `record.frame.interface`.
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End>;

    /// Takes the packets of a batch whose records lie at `records`. A packet of a mapped file is first copied to `scratch`.
    fn batch(&mut self, batch: &Delivery<Stages>, records: &[u32], scratch: &mut Vec<u8>) -> (Handed, Result<(), End>) {
        let layout = &batch.current.layout;
        batch.hand_on(records, scratch, |record| self.packet(layout, record))
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
