//! Several sources read as one: their packets by time, copied into pieces of one layout.
//!
//! Serves consumers that need all packets in one order, with any number of sources. A consumer that keeps few packets merges only
//! these, with [`Merge`] itself, and copies nothing.

use super::{AccessMode, Current, Delivery, Options, Reader, Report, Source, SourceError};
use crate::Consumer;
use crate::interfaces::{Ids, Interfaces};
use crate::merge::{self, Every, Merge};
use crate::sort::InMemory;
use crate::window::{Start, process};
use std::io;
use std::sync::Arc;
use weir_io::input::PlainFile;
use weir_io::{Chunk, Input};
use weir_packet::savefile::{Interface, Layout, Statistics, spool};

/// Size of a piece, bytes: small enough to stay in the cache from the copy to the consumer.
const PIECE: usize = 1 << 20;

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

/// Sources merged by time.
pub(super) struct Merged {
    merge: Merge<Every>,
    begun: bool,
    interfaces: Interfaces,
    /// For each source, the indexes of its interfaces in the table.
    ids: Vec<Ids>,
    /// Number of interfaces of the current layout.
    announced: usize,
    /// For each source, the number of its blocks about packets that the layout has.
    carried: Vec<usize>,
    /// Whether there are such blocks that the current layout does not have.
    is_carrying: bool,
    len_hint: u64,
    spares: Vec<Vec<u8>>,
    /// Sorted sources, if the merge is that of the runs of a sort.
    sorted: Option<Sorted>,
}

/// Sources whose packets were sorted.
pub(crate) struct Sorted {
    pub parts: Vec<Part>,
    /// Number of packets of all sources.
    pub packets: u64,
    /// Size of all runs, bytes.
    pub bytes: u64,
}

impl Merged {
    fn new(
        merge: Merge<Every>,
        interfaces: Interfaces,
        len_hint: u64,
        sorted: Option<Sorted>,
    ) -> Self {
        let ids = vec![Ids::default(); merge.sources().len()];
        let carried = vec![0; merge.sources().len()];
        Self {
            merge,
            begun: false,
            interfaces,
            ids,
            announced: 0,
            carried,
            is_carrying: false,
            len_hint,
            spares: Vec::new(),
            sorted,
        }
    }

    pub(super) fn way(&self) -> AccessMode {
        let streams = self
            .merge
            .sources()
            .iter()
            .any(|source| source.reader().way() == AccessMode::Stream);
        if streams {
            AccessMode::Stream
        } else {
            AccessMode::Read
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.merge.offset()
    }

    pub(super) fn len_hint(&self) -> u64 {
        self.len_hint
    }

    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.spares.push(buffer);
    }

    /// Returns the next packets in the order of time, in spool form; none at the end.
    fn fill(&mut self) -> Result<Vec<u8>, SourceError> {
        if !self.begun {
            self.begun = true;
            self.merge.begin(&mut |_| {});
            // An expression is checked against the link types of all sources, not only against that of the first packet.
            let sources = self
                .merge
                .sources()
                .iter()
                .filter(|_| self.sorted.is_none());
            for (ids, source) in self.ids.iter_mut().zip(sources) {
                if let Some(layout) = source.reader().layout() {
                    self.interfaces.announce(ids, layout)?;
                }
            }
        }
        let mut piece = self
            .spares
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(2 * PIECE));
        piece.clear();
        // If the next packet must wait for a pipe, the packets so far are passed on now.
        while piece.len() < PIECE && (piece.is_empty() || !self.merge.waits()) {
            let Some(next) = self.merge.next(&mut |_| {}) else {
                break;
            };
            let (layout, interface) = (&next.current.layout, next.record.frame.interface);
            let carried = &mut self.carried[next.source];
            if *carried < layout.carried.len() + layout.notes.len() {
                *carried = layout.carried.len() + layout.notes.len();
                // The layout of a piece comes before it: the packets so far have the layout before.
                self.is_carrying |= self.interfaces.carry(layout);
            }
            let id = match self
                .interfaces
                .id(&mut self.ids[next.source], layout, interface)
            {
                Ok(id) => id,
                Err(what) if piece.is_empty() => return Err(what),
                // The packets in the piece were passed on; the next call meets the fault again.
                Err(_) => break,
            };
            spool::append(&mut piece, id, next.key, &next.record);
            self.merge.pass();
        }
        Ok(piece)
    }

    /// Returns the layout of the last piece, if it differs from that of the piece before.
    fn layout(&mut self) -> Option<Layout> {
        let known = std::mem::replace(&mut self.announced, self.interfaces.len());
        (std::mem::take(&mut self.is_carrying) || known < self.interfaces.len())
            .then(|| self.interfaces.layout())
    }

    /// Checks at the end that all packets read were passed on.
    fn check(&self) -> Result<(), SourceError> {
        if let Some(sorted) = &self.sorted {
            let passed: u64 = self.merge.sources().iter().map(merge::Source::passed).sum();
            let damaged = || {
                SourceError::Io(io::Error::other(
                    "a temporary file does not hold what was written into it",
                ))
            };
            return if passed == sorted.packets {
                Ok(())
            } else {
                Err(damaged())
            };
        }
        self.merge.sources().iter().try_for_each(|source| {
            let (read, passed) = (source.reader().report().received, source.passed());
            if read == passed {
                Ok(())
            } else {
                Err(SourceError::Merge { read, passed })
            }
        })
    }

    fn into_parts(self) -> Vec<Part> {
        match self.sorted {
            Some(sorted) => sorted.parts,
            None => self.merge.into_sources().map(part).collect(),
        }
    }
}

fn part(source: merge::Source<Every>) -> Part {
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

impl<C: Consumer> Reader<C> {
    /// Makes a reader of several sources, by packet time; [`Self::into_parts`] returns the outcome of each.
    pub fn merged(inputs: Vec<Input>, consumer: Arc<C>, options: Options) -> Self {
        let len_hint = inputs.iter().filter_map(Input::len_hint).sum();
        let merge = Merge::new(inputs, &Arc::new(Every), Every::merged);
        let merged = Merged::new(merge, Interfaces::default(), len_hint, None);
        Self::of(Source::Merged(Box::new(merged)), consumer, options)
    }

    /// Makes a reader of the runs of a sort, whose packets have these interfaces.
    pub(crate) fn sorted(
        merge: Merge<Every>,
        interfaces: Interfaces,
        sorted: Sorted,
        consumer: Arc<C>,
        options: Options,
    ) -> Self {
        let merged = Merged::new(merge, interfaces, sorted.bytes, Some(sorted));
        Self::of(Source::Merged(Box::new(merged)), consumer, options)
    }

    /// Makes a reader of a file that holds only packets in spool form, of this layout.
    pub(crate) fn spooled(
        file: PlainFile,
        layout: Layout,
        consumer: Arc<C>,
        options: Options,
    ) -> Self {
        let source = Source::File {
            file,
            way: AccessMode::Read,
            pool: None,
            lost: None,
        };
        Self::laid_out(source, layout, consumer, options)
    }

    /// Makes a reader of packets in memory, of this layout.
    pub(crate) fn in_memory(
        packets: InMemory,
        layout: Layout,
        consumer: Arc<C>,
        options: Options,
    ) -> Self {
        Self::laid_out(Source::Memory(Box::new(packets)), layout, consumer, options)
    }

    /// Makes a reader of a source whose layout is known.
    fn laid_out(source: Source<C>, layout: Layout, consumer: Arc<C>, options: Options) -> Self {
        let mut reader = Self::of(source, consumer, options);
        if let Err(what) = reader.take_up(layout) {
            reader.fault(what);
        }
        reader
    }

    /// Returns the report of the whole, and the outcome of each source of a merge or a sort (none if it is neither).
    pub fn into_parts(self) -> (Report, Vec<Part>) {
        let parts = match self.source {
            Source::Merged(merged) => merged.into_parts(),
            _ => Vec::new(),
        };
        (self.report, parts)
    }

    /// Reads one piece of a merge.
    pub(super) fn step_merged(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        self.end_step();
        let Source::Merged(merged) = &mut self.source else {
            unreachable!("asked by source")
        };
        let piece = merged.fill()?;
        let layout = merged.layout();
        let checked = if piece.is_empty() {
            Some(merged.check())
        } else {
            None
        };
        self.begin_step()?;
        if self.finished {
            return Ok(None);
        }
        if let Some(layout) = layout {
            self.take_up(layout)?;
        }
        if let Some(checked) = checked {
            self.finished = true;
            return checked.map(|()| None);
        }
        Ok(self.take_piece(piece))
    }

    /// Takes one piece of packets in memory.
    pub(super) fn step_memory(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        let mut piece = self.spent.take().unwrap_or_default();
        piece.clear();
        let Source::Memory(packets) = &mut self.source else {
            unreachable!("asked by source")
        };
        packets.fill(&mut piece);
        if piece.is_empty() {
            self.finished = true;
            return Ok(None);
        }
        Ok(self.take_piece(piece))
    }

    /// Processes a piece of packets in spool form.
    fn take_piece(&mut self, piece: Vec<u8>) -> Option<Delivery<C>> {
        let current: Arc<Current<C::Plan>> =
            Arc::clone(self.current.as_ref().expect("packets have interfaces"));
        let len = piece.len();
        let view = Chunk::owned(self.report.offset, true, piece, 0..len);
        let done = process(
            self.consumer.as_ref(),
            &current,
            view.content(),
            true,
            Start::Exact(0),
            len,
            0,
        );
        self.accept(view, current, done)
    }
}
