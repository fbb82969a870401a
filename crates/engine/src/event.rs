//! What happens in a run, for the front end that shows it.

use crate::name::Name;
use crate::output_changes::OutputSlot;
use crate::sink::{SinkFault, SinkReport};
use std::io;
use weir_io::live::Counts;
use weir_measure::Window;
use weir_packet::savefile::Layout;
use weir_pipeline::select::{Misfit, Select};
use weir_pipeline::sort::SortFault;
use weir_pipeline::{AccessMode, PlanError, Report, SourceFault};

/// Something that happened. Events come in the thread of the run, in the order in which things happen.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A source, or several that are read as one, is read from now on; `bytes` is its size, where that is known.
    Begun {
        /// Size.
        bytes: Option<u64>,
    },
    /// So many bytes of it are done.
    Progress {
        /// Bytes.
        bytes: u64,
    },
    /// A source cannot be opened, and is passed over.
    Unopened {
        /// As the user wrote it.
        name: &'a Name,
        /// Why.
        error: &'a io::Error,
    },
    /// The first source cannot be split among the workers of a measurement: a distributor feeds them.
    Distributed {
        /// What the source is called.
        name: &'a str,
    },
    /// A source was read to its end, or as far as was wanted.
    Closed(Closed<'a>),
    /// A source ended early.
    Fault {
        /// What the source is called.
        name: &'a str,
        /// Why, and where.
        fault: &'a SourceFault,
    },
    /// A capture ended early. What befalls an interface befalls all its queues and workers: each of them tells.
    LiveFault {
        /// What the source is called.
        name: &'a str,
        /// Why.
        fault: &'a SourceFault,
    },
    /// Captures ended early, and others go on. They are told of at their end too.
    LiveFaultsSoFar(&'a [(&'a str, &'a SourceFault)]),
    /// Packets of several sources that expressions make no sense for.
    Misfits {
        /// What the sources are called together.
        name: &'a str,
        /// Of the only one.
        layout: Option<&'a Layout>,
        /// Their numbers.
        misfits: &'a [Misfit],
        /// The filter, which knows why.
        select: &'a Select,
    },
    /// The layout of a copy of several sources.
    Copied {
        /// What the sources are called together.
        name: &'a str,
        /// With the interfaces of all.
        layout: &'a Layout,
    },
    /// Packets were not sorted.
    Unsorted {
        /// Why.
        fault: &'a SortFault,
        /// Packets that were.
        sorted: u64,
    },
    /// Packets of a capture changed in its ring.
    Changed {
        /// What the source is called.
        name: &'a str,
    },
    /// The filter was replaced: batches that were begun since are judged by this one.
    FilterReplaced {
        /// Number of the change, which counts them all.
        change: u64,
        /// The expression that packets must match.
        expression: &'a str,
    },
    /// The sink of an output was replaced and completed: batches from this change on go to the new one.
    OutputReplaced {
        /// Number of the change, which counts them all.
        change: u64,
        /// The output.
        output: OutputSlot,
        /// What the sink before was called.
        name: &'a str,
        /// What that has done.
        report: &'a SinkReport,
    },
    /// An output failed, and takes no more packets.
    Sink(&'a SinkFault),
    /// A window is complete.
    Window(Window<'a>),
    /// How a capture stands; somebody asked.
    Standing {
        /// What the source is called.
        name: &'a str,
        /// What was counted.
        counts: Counts,
    },
    /// How a run over several captures stands; somebody asked.
    SoFar {
        /// What the sources are called.
        names: &'a [&'a str],
        /// Packets that matched.
        passed: u64,
        /// Packets that did not.
        filtered: u64,
    },
}

/// A source that was read.
#[derive(Debug)]
pub struct Closed<'a> {
    /// What the source is called.
    pub name: &'a str,
    /// What happened while it was read.
    pub report: &'a Report,
    /// Its layout, as far as it is known.
    pub layout: Option<&'a Layout>,
    /// How its bytes got into memory.
    pub way: AccessMode,
    /// Packets that expressions make no sense for.
    pub misfits: &'a [Misfit],
    /// Why no packet of it can match, though packets of another source can.
    pub refused: Option<&'a PlanError>,
    /// The filter, which knows why.
    pub select: &'a Select,
}

/// Who hears of events.
pub type On<'a> = &'a mut dyn FnMut(Event<'_>);
