//! A source that is several: their packets by time, copied into pieces of one layout.
//!
//! For consumers whose packets must come in one order, whatever the number of sources. (Who keeps few of the packets merges
//! what it keeps, with [`Merge`] itself, and copies nothing.)

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

/// Bytes of a piece: it stays in the cache from the copy to the consumer.
const PIECE: usize = 1 << 20;

/// What came of one source of several.
#[derive(Debug)]
pub struct Part {
    /// As the user wrote it.
    pub name: String,
    /// What happened while it was read; its `received` are the packets that were passed on.
    pub report: Report,
    /// Its layout, as far as it is known.
    pub layout: Option<Layout>,
    /// How its bytes got into memory.
    pub way: AccessMode,
    /// After a sort, what the source says of the capture it comes from, for the interfaces that its packets have now.
    pub stats: Vec<(Interface, Statistics)>,
}

/// Sources by time, as one.
pub(super) struct Merged {
    merge: Merge<Every>,
    begun: bool,
    interfaces: Interfaces,
    /// For each source, the places of its interfaces.
    ids: Vec<Ids>,
    /// Interfaces that the current layout has.
    announced: usize,
    len_hint: u64,
    spares: Vec<Vec<u8>>,
    /// What the merge is of, if it is of the runs of a sort.
    sorted: Option<Sorted>,
}

/// Sources whose packets were sorted.
pub(crate) struct Sorted {
    pub parts: Vec<Part>,
    /// Packets of all sources.
    pub packets: u64,
    /// Bytes of all runs.
    pub bytes: u64,
}

impl Merged {
    fn new(merge: Merge<Every>, interfaces: Interfaces, len_hint: u64, sorted: Option<Sorted>) -> Self {
        let ids = vec![Ids::default(); merge.sources().len()];
        Self { merge, begun: false, interfaces, ids, announced: 0, len_hint, spares: Vec::new(), sorted }
    }

    pub(super) fn way(&self) -> AccessMode {
        let streams = self.merge.sources().iter().any(|source| source.reader().way() == AccessMode::Stream);
        if streams { AccessMode::Stream } else { AccessMode::Read }
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

    /// The next packets in the order of time, in spool form; none at the end.
    fn fill(&mut self) -> Result<Vec<u8>, SourceError> {
        if !self.begun {
            self.begun = true;
            self.merge.begin(&mut |_| {});
            // An expression is judged by all the link types there are, not by that of the first packet.
            let sources = self.merge.sources().iter().filter(|_| self.sorted.is_none());
            for (ids, source) in self.ids.iter_mut().zip(sources) {
                if let Some(layout) = source.reader().layout() {
                    self.interfaces.announce(ids, layout)?;
                }
            }
        }
        let mut piece = self.spares.pop().unwrap_or_else(|| Vec::with_capacity(2 * PIECE));
        piece.clear();
        // What the next bytes of a pipe hold back is passed on now.
        while piece.len() < PIECE && (piece.is_empty() || !self.merge.waits()) {
            let Some(next) = self.merge.next(&mut |_| {}) else { break };
            let (layout, interface) = (&next.current.layout, next.record.frame.interface);
            let id = match self.interfaces.id(&mut self.ids[next.source], layout, interface) {
                Ok(id) => id,
                Err(what) if piece.is_empty() => return Err(what),
                // What is in the piece already was passed on; the next call meets the fault again.
                Err(_) => break,
            };
            spool::append(&mut piece, id, next.key, &next.record);
            self.merge.pass();
        }
        Ok(piece)
    }

    /// The layout that the last piece needs, if it is another one than that of the piece before.
    fn layout(&mut self) -> Option<Layout> {
        let known = std::mem::replace(&mut self.announced, self.interfaces.len());
        (known < self.interfaces.len()).then(|| self.interfaces.layout())
    }

    /// At the end, all that was read was passed on.
    fn check(&self) -> Result<(), SourceError> {
        if let Some(sorted) = &self.sorted {
            let passed: u64 = self.merge.sources().iter().map(merge::Source::passed).sum();
            let damaged =
                || SourceError::Io(io::Error::other("a temporary file does not hold what was written into it"));
            return if passed == sorted.packets { Ok(()) } else { Err(damaged()) };
        }
        self.merge.sources().iter().try_for_each(|source| {
            let (read, passed) = (source.reader().report().received, source.passed());
            if read == passed { Ok(()) } else { Err(SourceError::Merge { read, passed }) }
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
    let report = Report { received: passed, ..source.into_report() };
    Part { name, report, layout, way, stats: Vec::new() }
}

impl<C: Consumer> Reader<C> {
    /// A reader of several sources, by packet time; [`Self::into_parts`] tells of each.
    pub fn merged(inputs: Vec<Input>, consumer: Arc<C>, options: Options) -> Self {
        let len_hint = inputs.iter().filter_map(Input::len_hint).sum();
        let merge = Merge::new(inputs, &Arc::new(Every), Every::records);
        let merged = Merged::new(merge, Interfaces::default(), len_hint, None);
        Self::of(Source::Merged(Box::new(merged)), consumer, options)
    }

    /// A reader of the runs of a sort, whose packets have these interfaces.
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

    /// A reader of a file that holds nothing but packets in spool form, of this layout.
    pub(crate) fn spooled(file: PlainFile, layout: Layout, consumer: Arc<C>, options: Options) -> Self {
        let source = Source::File { file, way: AccessMode::Read, pool: None, lost: None };
        Self::laid_out(source, layout, consumer, options)
    }

    /// A reader of packets of this layout that stayed in memory.
    pub(crate) fn in_memory(packets: InMemory, layout: Layout, consumer: Arc<C>, options: Options) -> Self {
        Self::laid_out(Source::Memory(Box::new(packets)), layout, consumer, options)
    }

    /// A reader of a source whose layout is known.
    fn laid_out(source: Source<C>, layout: Layout, consumer: Arc<C>, options: Options) -> Self {
        let mut reader = Self::of(source, consumer, options);
        if let Err(what) = reader.take_up(layout) {
            reader.fault(what);
        }
        reader
    }

    /// What happened in all, and to each source of a merge or a sort (none if it is neither).
    pub fn into_parts(self) -> (Report, Vec<Part>) {
        let parts = match self.source {
            Source::Merged(merged) => merged.into_parts(),
            _ => Vec::new(),
        };
        (self.report, parts)
    }

    /// Takes a merge on by one piece.
    pub(super) fn step_merged(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        self.end_step();
        let Source::Merged(merged) = &mut self.source else { unreachable!("asked by source") };
        let piece = merged.fill()?;
        let layout = merged.layout();
        let checked = if piece.is_empty() { Some(merged.check()) } else { None };
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

    /// Takes packets in memory on by one piece.
    pub(super) fn step_memory(&mut self) -> Result<Option<Delivery<C>>, SourceError> {
        let mut piece = self.spent.take().unwrap_or_default();
        piece.clear();
        let Source::Memory(packets) = &mut self.source else { unreachable!("asked by source") };
        packets.fill(&mut piece);
        if piece.is_empty() {
            self.finished = true;
            return Ok(None);
        }
        Ok(self.take_piece(piece))
    }

    /// Takes up a piece of packets in spool form.
    fn take_piece(&mut self, piece: Vec<u8>) -> Option<Delivery<C>> {
        let current: Arc<Current<C::Plan>> = Arc::clone(self.current.as_ref().expect("packets have interfaces"));
        let len = piece.len();
        let view = Chunk::owned(self.report.offset, true, piece, 0..len);
        let done = process(self.consumer.as_ref(), &current, view.content(), true, Start::Exact(0), len, 0);
        self.accept(view, current, done)
    }
}
