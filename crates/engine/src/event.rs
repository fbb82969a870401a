//! Events of a run, for a front end to show.

use crate::firewall::RuleSet;
use crate::name::Name;
use crate::output_changes::OutputSlot;
use crate::sink::{SinkFault, SinkReport, StageCounts};
use std::io;
use weir_io::live::Counts;
use weir_measure::Window;
use weir_packet::flow::Around;
use weir_packet::savefile::Layout;
use weir_pipeline::select::{Misfit, Select};
use weir_pipeline::sort::SortFault;
use weir_pipeline::{AccessMode, PlanError, Report, SourceFault};

/// An event of a run. Events are delivered in the thread of the run, in their order of occurrence.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The reading of a source, or of several as one, begins.
    Begun {
        /// Size of the source, bytes, if known.
        bytes: Option<u64>,
    },
    /// A part of the current source has been read.
    Progress {
        /// Number of bytes read so far.
        bytes: u64,
    },
    /// A source cannot be opened, and is skipped.
    Unopened {
        /// Name as the user wrote it.
        name: &'a Name,
        /// Error of the system.
        error: &'a io::Error,
    },
    /// The first source cannot be split among the workers of a measurement: a distributor feeds them.
    Distributed {
        /// Name of the source.
        name: &'a str,
    },
    /// A source was read to its end, or as far as needed.
    Closed(Closed<'a>),
    /// A source ended early.
    Fault {
        /// Name of the source.
        name: &'a str,
        /// Error, with its position.
        fault: &'a SourceFault,
    },
    /// A capture ended early. An error of an interface affects the captures of all its queues and
    /// workers, and each has its event.
    LiveFault {
        /// Name of the source.
        name: &'a str,
        /// Error that ended the capture.
        fault: &'a SourceFault,
    },
    /// Captures, by name, that ended early while others go on. Each also has an event at its end.
    LiveFaultsSoFar(&'a [(&'a str, &'a SourceFault)]),
    /// Packets of several sources for which an expression makes no sense.
    Misfits {
        /// Common name of the sources.
        name: &'a str,
        /// Layout of the source, if there is only one.
        layout: Option<&'a Layout>,
        /// Numbers of packets.
        misfits: &'a [Misfit],
        /// Filter, for the reasons: see [`Select::misfit`].
        select: &'a Select,
    },
    /// No packet matched, but packets would have without the headers around them.
    Unmatched {
        /// The expression that packets had to match.
        expression: &'a str,
        /// Headers around the first such packet.
        around: Around,
    },
    /// No packet in the time asked for matched, of all that were read.
    NothingThen {
        /// The time asked for.
        span: weir_pipeline::select::Span,
    },
    /// The layout of a copy of several sources.
    Copied {
        /// Common name of the sources.
        name: &'a str,
        /// Layout with the interfaces of all sources.
        layout: &'a Layout,
    },
    /// Not all packets were sorted.
    Unsorted {
        /// Error that ended the sort.
        fault: &'a SortFault,
        /// Number of packets that were sorted.
        sorted: u64,
    },
    /// The filter was replaced: batches begun since then are judged by the new one.
    FilterReplaced {
        /// Number of the change, in the common sequence of all changes.
        change: u64,
        /// The expression that packets must match.
        expression: &'a str,
    },
    /// The rules of the firewall were replaced: batches that are judged from now on are judged by the new ones.
    RulesReplaced {
        /// Number of the change, in the common sequence of all changes.
        change: u64,
        /// The new rules.
        rules: &'a RuleSet,
    },
    /// The sink of an output was replaced and completed: batches from this change on go to the new sink.
    OutputReplaced {
        /// Number of the change, in the common sequence of all changes.
        change: u64,
        /// The output.
        output: OutputSlot,
        /// Name of the old sink.
        name: &'a str,
        /// Report of the old sink.
        report: &'a SinkReport,
        /// Counts of the packets for the old sink, with its losses.
        counts: &'a StageCounts,
    },
    /// An output began its next file on request: batches from this change on are in it.
    NextFile {
        /// Number of the change, in the common sequence of all changes.
        change: u64,
        /// The output.
        output: OutputSlot,
        /// Name of the output.
        name: &'a str,
    },
    /// An output failed, and takes no more packets.
    Sink(&'a SinkFault),
    /// A window is complete.
    Window(Window<'a>),
    /// Counts of a capture so far, on request.
    Standing {
        /// Name of the source.
        name: &'a str,
        /// Counts so far.
        counts: Counts,
    },
}

/// A source that was read.
#[derive(Debug)]
pub struct Closed<'a> {
    /// Name of the source.
    pub name: &'a str,
    /// Report of its reader.
    pub report: &'a Report,
    /// Layout of the source, if known.
    pub layout: Option<&'a Layout>,
    /// Access mode of the source.
    pub way: AccessMode,
    /// Packets for which an expression makes no sense.
    pub misfits: &'a [Misfit],
    /// Reason for which no packet of this source can match, although packets of another source can.
    pub refused: Option<&'a PlanError>,
    /// Filter, for the reasons of the misfits.
    pub select: &'a Select,
}

/// Function called with each event.
pub type On<'a> = &'a mut dyn FnMut(Event<'_>);
