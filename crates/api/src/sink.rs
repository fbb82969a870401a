//! Sinks: files and interfaces that packets of batches are written to.

use crate::error::Error;
use crate::reading;
use crate::source::Batch;
use std::path::PathBuf;
use std::sync::Arc;
use weir_engine::claims::Claims;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::name::Name;
use weir_engine::port::{PortSink, is_port};
use weir_engine::provenance::Chosen;
use weir_engine::rewrite::Rewrite;
use weir_engine::sink::{self, End, Kind, SinkReport};
use weir_io::reserve::Reserve;
use weir_messages::anonymity::read_key;
use weir_messages::events::sink_fault_line;
use weir_messages::{ports, sources};
use weir_packet::LinkType;
use weir_packet::savefile::{Interface, Layout, Resolution};

/// Packets by what became of them: given = written + refused + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Packets given to the sink.
    pub given: u64,
    /// Packets written to the file, or handed to the interface.
    pub written: u64,
    /// Packets that an interface did not take: too long, too short, or without room.
    pub refused: u64,
    /// The rest of a sink that failed: packets given to it before or after its failure that are in
    /// no file. 0 for all other sinks, whose other numbers are counted each on its own.
    pub lost: u64,
}

/// Settings of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkOptions {
    /// Interfaces that may send although they carry the default route of this host or this login, or are ports of a bridge.
    pub yes_send: Vec<String>,
    /// Bytes of the disk that stay free: a file grows no further, and the sink has failed then. `None`: 1 GiB, or a twentieth of the disk
    /// if that is less.
    pub reserve: Option<u64>,
    /// Time that is added to the timestamps of packets, ns.
    pub shift_ns: i64,
    /// File with the key of other addresses, 32 bytes that its owner alone may read: packets get other addresses by it, and files have no texts of
    /// their sources. `None` leaves addresses as they are.
    pub anonymize: Option<PathBuf>,
    /// Bytes of payload that are kept of each packet with other addresses. Payload may have addresses, which stay.
    pub payload: usize,
}

/// A file or an interface that takes packets of batches.
pub struct Sink {
    sink: Box<dyn sink::Sink>,
    /// Source of the last batch, and its layout.
    source: u64,
    layout: Option<Layout>,
    /// The layout whose interfaces tell what their packets were chosen by.
    described: Option<Described>,
    given: u64,
    /// The line about the failure that ended the sink.
    failed: Option<String>,
    is_file: bool,
}

/// A layout of a source whose interfaces tell what their packets were chosen by.
struct Described {
    chosen: Chosen,
    layout: Layout,
    /// Numbers of what a layout can get more of.
    lengths: [usize; 4],
}

fn lengths(layout: &Layout) -> [usize; 4] {
    [
        layout.interfaces.len(),
        layout.notes.len(),
        layout.carried.len(),
        layout.sections as usize,
    ]
}

impl Described {
    fn new(chosen: Chosen, layout: &Layout) -> Self {
        let mut described = layout.clone();
        described.interfaces = layout
            .interfaces
            .iter()
            .map(|interface| chosen.described(interface).into_owned())
            .collect();
        Self {
            chosen,
            layout: described,
            lengths: lengths(layout),
        }
    }
}

/// Choice of the packets of a batch: the source's choice, and bits of the program.
fn choice(batch: &Batch, mask: Option<&[u64]>) -> Chosen {
    let verdicts = batch.verdicts().words();
    let chosen = &**batch.chosen();
    match mask {
        None => chosen.clone(),
        Some(mask) if mask == verdicts => chosen.clone(),
        Some(mask) => {
            let is_part = mask
                .iter()
                .zip(verdicts)
                .all(|(mask, verdicts)| mask & !verdicts == 0);
            let of_source = if is_part {
                chosen.clone()
            } else {
                Chosen::default()
            };
            of_source.only("packets that a program chose".to_owned())
        }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink")
            .field("given", &self.given)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Message on a sink that takes no more.
fn message(end: &End) -> String {
    match end {
        End::Failed(fault) => sink_fault_line(fault, |_, _| ""),
        End::ClosedPipe => "the reader of the pipe is gone".to_owned(),
        End::Complete => "the output is complete".to_owned(),
    }
}

impl Sink {
    /// Opens a sink: a capture file (.pcap, else pcapng), "-" for standard output, an interface
    /// such as "af_packet:eth0" or "af_xdp:eth0:0", "dpdk:DEVICE", or "null", which counts packets
    /// and discards them. Opening a named pipe waits for its reader. A file that a source of this
    /// process reads is refused, and so is an interface with the default route, with the address of
    /// this login, or that is a port of a bridge: see [`Self::open_with`].
    pub fn open(name: impl Into<Name>) -> Result<Self, Error> {
        Self::open_with(name, &SinkOptions::default())
    }

    /// Opens a sink as [`Self::open`] does, with settings.
    pub fn open_with(name: impl Into<Name>, options: &SinkOptions) -> Result<Self, Error> {
        let name = &name.into();
        let mut sink = open(name, options)?;
        sink.open().map_err(|end| Error::Failed(message(&end)))?;
        Ok(Self {
            sink,
            source: 0,
            layout: None,
            described: None,
            given: 0,
            failed: None,
            is_file: !is_port(name),
        })
    }

    /// Whether the sink is a file or a pipe, and no interface.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Sends the packets of a batch whose bit in `mask` is 1, in their order; without a mask, the
    /// packets that passed the filter. Packet i has bit i % 64 of word i / 64.
    pub fn send(&mut self, batch: &Batch, mask: Option<&[u64]>) -> Result<(), Error> {
        let by_program = mask;
        let mask = mask.unwrap_or(batch.verdicts().words());
        let words = batch.len().div_ceil(64);
        if mask.len() != words {
            let line = format!(
                "the mask has {} words, and a batch of {} packets needs {words}",
                mask.len(),
                batch.len()
            );
            return Err(Error::Refused(line));
        }
        self.given += chosen(mask, batch.len()).count() as u64;
        if let Some(line) = &self.failed {
            return Err(Error::Failed(line.clone()));
        }
        if std::mem::replace(&mut self.source, batch.source()) != batch.source() {
            self.sink.new_source();
            self.described = None;
        }
        if self.is_file {
            self.describe(batch, choice(batch, by_program));
        }
        let sent = self.send_marked(batch, mask);
        self.layout = Some(
            self.described
                .as_ref()
                .map_or_else(|| batch.layout().clone(), |known| known.layout.clone()),
        );
        sent.map_err(|end| Error::Failed(self.failed.insert(message(&end)).clone()))
    }

    /// Makes the layout for the packets of a batch.
    fn describe(&mut self, batch: &Batch, chosen: Chosen) {
        let has_changed = self
            .described
            .as_ref()
            .is_some_and(|known| known.chosen != chosen);
        if has_changed {
            // Interfaces have other descriptions from here on.
            self.sink.new_source();
        }
        let is_known = self
            .described
            .as_ref()
            .is_some_and(|known| known.lengths == lengths(batch.layout()));
        if has_changed || !is_known {
            self.described = Some(Described::new(chosen, batch.layout()));
        }
    }

    fn send_marked(&mut self, batch: &Batch, mask: &[u64]) -> Result<(), End> {
        self.sink.open()?;
        let layout = self
            .described
            .as_ref()
            .map_or_else(|| batch.layout(), |known| &known.layout);
        for record in chosen(mask, batch.len()).filter_map(|number| batch.packet(number)) {
            self.sink.packet(layout, &record)?;
        }
        self.sink.flush()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> SinkCounts {
        let SinkReport {
            taken: written,
            lost,
            kind,
            ..
        } = self.sink.report();
        // What a file lost is reported as such below.
        let refused = match kind {
            Kind::Written => 0,
            _ => lost.iter().map(|lost| lost.packets).sum(),
        };
        let lost = if self.failed.is_some() {
            self.given.saturating_sub(written + refused)
        } else {
            0
        };
        SinkCounts {
            given: self.given,
            written,
            refused,
            lost,
        }
    }

    /// Completes the file, or sends what is left. A file without a packet is one of Ethernet. Returns the final counts, with the error if the sink failed, now or before.
    pub fn close(mut self) -> (SinkCounts, Result<(), Error>) {
        let ethernet = || {
            Layout::spool(vec![Interface::plain(
                LinkType::ETHERNET,
                262_144,
                Resolution::NANOSECOND,
            )])
        };
        let layout = self.layout.take().or_else(|| self.is_file.then(ethernet));
        let has_failed = self.failed.is_some();
        let flushed = if has_failed {
            Ok(())
        } else {
            self.sink.flush()
        };
        let finished = flushed.and_then(|()| self.sink.finish(layout.as_ref(), has_failed));
        if let (Err(end), None) = (&finished, &self.failed) {
            self.failed = Some(message(end));
        }
        (
            self.counts(),
            self.failed.map_or(Ok(()), |line| Err(Error::Failed(line))),
        )
    }
}

/// Numbers of the packets, of `len`, whose bits are 1. Bits after them are not packets.
fn chosen(mask: &[u64], len: usize) -> impl Iterator<Item = usize> + '_ {
    let each = |(i, &word): (usize, &u64)| {
        let mut bits = word;
        std::iter::from_fn(move || {
            let number = (bits != 0).then(|| i * 64 + bits.trailing_zeros() as usize);
            bits &= bits.wrapping_sub(1);
            number
        })
    };
    mask.iter()
        .enumerate()
        .flat_map(each)
        .take_while(move |number| *number < len)
}

/// Opens a sink that changes its packets first.
fn open(name: &Name, options: &SinkOptions) -> Result<Box<dyn sink::Sink>, Error> {
    let key = options.anonymize.as_deref();
    let read = key.map(|key| read_key(key, options.payload)).transpose();
    let rewrite = Rewrite {
        shift_ns: options.shift_ns,
        anonymizer: read.map_err(Error::refused)?,
        headers: false,
    };
    Ok(rewrite.before(unchanged(name, options)?))
}

fn unchanged(name: &Name, options: &SinkOptions) -> Result<Box<dyn sink::Sink>, Error> {
    ports::check_scheme(name).map_err(Error::refused)?;
    if is_port(name) {
        let port = ports::open(name, &options.yes_send).map_err(Error::refused)?;
        return Ok(Box::new(PortSink {
            port,
            snaplen: 0,
            flush_each: false,
            finisher: None,
        }));
    }
    if name.text().is_empty() {
        return Err(Error::refused("the name of an output is empty"));
    }
    let format = sources::format_for(name).map_err(Error::refused)?;
    let reserve = options.reserve.map_or(Reserve::Usual, Reserve::Bytes);
    let settings = FileSettings {
        format,
        reserve,
        ..FileSettings::default()
    };
    Ok(Box::new(FileSink::new(
        name,
        settings,
        &Arc::new(Claims::of(&reading::all())),
    )))
}
