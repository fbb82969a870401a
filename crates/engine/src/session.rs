//! A session: the sources of a run, from their names to the end of the reading, the same for every front end.
//!
//! ```text
//! new      the names tell interfaces from files; nothing is opened yet
//! needs    what the reading takes from the system
//! open     captures, one after another; files are opened as they are read
//! rights   what the open captures still take; here a front end confines the process
//! begin    expressions are compiled, outputs are made, and captures have begun
//! read     packets, to the end of the sources or of the run
//! ```

use crate::capture::rings;
use crate::capture::{CaptureError, CaptureRequest, Hear, Live, Settings, open};
use crate::event::On;
use crate::generated;
use crate::name::Name;
use crate::port::is_dpdk;
use crate::records::Query;
use crate::run::{Error, Files, Run};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::compressed::ZSTD_WINDOW;
use weir_io::follow::Followed;
use weir_io::sys::privilege::Capability;
use weir_io::{Input, Kind};

/// Function that follows the files of a name.
pub type Follow = Box<dyn Fn(&Name) -> Followed + Send>;

/// The order in which files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One after another, as given.
    #[default]
    OneByOne,
    /// All at once, by the time of their packets.
    Merged,
    /// All packets sorted by time, for files in any order.
    Sorted,
}

/// Cause of the end of the reading of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The end of the sources.
    #[default]
    Source,
    /// The number of packets that were wanted.
    Limit,
    /// The time for which the run was to go on.
    Duration,
    /// A signal, or a request of the program.
    Signal,
    /// No output takes more packets.
    Output,
    /// A source could not be read, or a stage failed.
    Fault,
}

/// The sources of a run: files and pipes, or captures.
pub struct Session {
    names: Vec<Name>,
    /// Order of reading files.
    pub order: Order,
    /// Largest window memory of zstd data to decode, bytes.
    pub zstd_window: u64,
    /// Function to follow the files of a name, if wanted; only with [`Order::OneByOne`].
    pub follow: Option<Follow>,
    /// Question to the record directories among the names; `None` for all their packets.
    pub query: Option<Arc<Query>>,
    is_live: bool,
    captures: Vec<Capture>,
    inputs: Vec<Input>,
    /// Part of the system that drops packets for lack of room.
    place: &'static str,
}

/// A source that is captured.
#[derive(Debug)]
pub struct Capture {
    /// Name as the user wrote it.
    pub source: Name,
    /// Description of each backend, one line each.
    pub descriptions: Vec<String>,
}

/// Needs of the reading of sources from the system.
#[derive(Debug)]
pub struct Needs<'a> {
    /// Files, pipes and directories that are opened for reading.
    pub files: Vec<&'a Path>,
    /// Whether another file may have the name of one of these files later.
    pub follows: bool,
    /// Whether temporary files hold packets that have no room in memory.
    pub temporary_files: bool,
    /// Whether sockets capture packets.
    pub sockets: bool,
    /// Whether there are ports of DPDK, whose threads and devices cannot be confined.
    pub dpdk: bool,
}

/// A source whose capture cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {error}")]
pub struct Unopened {
    /// Name of the source.
    pub name: Name,
    /// Reason.
    pub error: CaptureError,
}

impl Default for Session {
    /// A session without sources, to which captures are [added](Self::add).
    fn default() -> Self {
        Self {
            names: Vec::new(),
            order: Order::OneByOne,
            zstd_window: ZSTD_WINDOW,
            follow: None,
            query: None,
            is_live: false,
            captures: Vec::new(),
            inputs: Vec::new(),
            place: "kernel",
        }
    }
}

/// A session of captures that the caller has opened, with the [`stop`](crate::run::Setup::stop) flag of the run.
impl From<Vec<Input>> for Session {
    fn from(inputs: Vec<Input>) -> Self {
        let mut session = Self::default();
        session.take(inputs);
        session
    }
}

impl Session {
    /// Makes a session of sources. They are captured if one of the names belongs to an interface or
    /// a device, and to no file.
    pub fn new(names: Vec<Name>) -> Self {
        Self {
            is_live: names.iter().any(|name| Live::of(name).is_some()),
            names,
            ..Self::default()
        }
    }

    /// Returns the names of the sources, as the user wrote them.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Whether the sources are captured.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Returns the needs of the reading from the system.
    pub fn needs(&self) -> Needs<'_> {
        let file = |name| match generated::wanted(name) {
            Some(_) => generated::file(name),
            None => (Live::of(name).is_none() && !name.is_dash()).then(|| Path::new(name)),
        };
        Needs {
            files: self.names.iter().filter_map(file).collect(),
            follows: self.follow.is_some(),
            temporary_files: self.order == Order::Sorted,
            sockets: self.is_live,
            dpdk: self.names.iter().any(is_dpdk),
        }
    }

    /// Opens the captures, one after another. If `stop` is set in the meantime, none is open, and
    /// [`begin`](Self::begin) returns `false`. Files are opened when they are read. **Errors**: the
    /// first source that cannot be captured; memory for the rings of all.
    pub fn open(
        &mut self,
        request: &CaptureRequest<'_>,
        stop: &Arc<AtomicBool>,
        hear: Hear<'_>,
    ) -> Result<(), Unopened> {
        if !self.is_live {
            return Ok(());
        }
        self.check_memory(&request.settings)?;
        for name in self.names.clone() {
            if !self.add(&name, request, stop, hear)? {
                self.inputs.clear();
                break;
            }
        }
        Ok(())
    }

    /// Refuses rings for which there is too little memory.
    pub fn check_memory(&self, settings: &Settings) -> Result<(), Unopened> {
        let too_large = |error| unopened(&self.names[0], CaptureError::Memory(error));
        rings::check(&self.names, settings).map_err(too_large)
    }

    /// Opens one more capture. Returns `false` if `stop` was set first. The caller has checked that there is
    /// [memory](Self::check_memory) for the rings of all sources.
    pub fn add(
        &mut self,
        source: &Name,
        request: &CaptureRequest<'_>,
        stop: &Arc<AtomicBool>,
        hear: Hear<'_>,
    ) -> Result<bool, Unopened> {
        let opened = open(source, request, stop, hear).map_err(|error| unopened(source, error))?;
        let is_open = !opened.inputs.is_empty();
        self.captures.push(Capture {
            source: source.clone(),
            descriptions: opened.descriptions,
        });
        self.take(opened.inputs);
        Ok(is_open)
    }

    fn take(&mut self, inputs: Vec<Input>) {
        self.is_live = true;
        for input in &inputs {
            if let Kind::Live(live) = &input.kind {
                self.place = live.backend().place();
            }
        }
        self.inputs.extend(inputs);
    }

    /// Returns the sources that are captured.
    pub fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// Returns the open captures, one for each queue or share.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Returns the place that drops packets for lack of room: the kernel, or a device of DPDK.
    pub fn place(&self) -> &'static str {
        self.place
    }

    /// Returns the capabilities that the open captures still take.
    pub fn rights(&self) -> Vec<Capability> {
        let mut rights = Vec::new();
        for input in &self.inputs {
            if let Kind::Live(live) = &input.kind {
                rights.extend_from_slice(live.backend().keeps());
            }
        }
        rights
    }

    /// Divides the session into one for each open capture, for runs of their own.
    pub fn divided(self) -> Vec<Self> {
        let alone = |input| Self::from(vec![input]);
        self.inputs.into_iter().map(alone).collect()
    }

    /// Begins captures: compiles the expressions and makes the outputs. Nothing is to be done for files. Returns `false` if
    /// the run was stopped before its captures have begun.
    pub fn begin(&self, run: &mut Run, on: On<'_>) -> Result<bool, Error> {
        match self.is_live {
            true => Ok(!self.inputs.is_empty() && run.begin_capture(&self.inputs, on)?),
            false => Ok(true),
        }
    }

    /// Returns the earliest and the latest time of a packet of the files, ns since 1970, whether a filter passes it or not; `None`
    /// if no packet has a time. **Cost**: reads all files. **Errors**: a source that can be read only once.
    pub fn times(&self, run: &Run) -> Result<Option<(i64, i64)>, Error> {
        run.times(&self.files())
    }

    fn files(&self) -> Files<'_> {
        let follow = self.follow.as_ref();
        Files {
            names: &self.names,
            zstd_window: self.zstd_window,
            follow: follow.map(|follow| &**follow as &dyn Fn(&Name) -> Followed),
            query: self.query.as_ref(),
            open: None,
        }
    }

    /// Reads the sources, once the session has [begun](Self::begin), to their end or as far as the run needs. Captures are
    /// read once.
    pub fn read(&mut self, run: &mut Run, on: On<'_>) -> Result<(), Error> {
        if self.is_live {
            return run.capture(std::mem::take(&mut self.inputs), on);
        }
        let files = self.files();
        match self.order {
            Order::OneByOne => run.one_by_one(&files, on),
            Order::Merged => run.merged(&files, on),
            Order::Sorted => run.sorted(&files, on),
        }
    }
}

fn unopened(source: &Name, error: CaptureError) -> Unopened {
    Unopened {
        name: source.clone(),
        error,
    }
}
