//! A source that is several: their packets by time, copied into pieces of one layout.
//!
//! For consumers whose packets must come in one order, whatever the number of sources. (Who keeps few of the packets merges
//! what it keeps, with [`Merge`] itself, and copies nothing.)

use super::{Current, Delivery, Options, Reader, Report, Source, Trouble, Way};
use crate::Consumer;
use crate::merge::{self, Every, Merge};
use crate::window::{Start, process};
use std::sync::Arc;
use weir_io::{Input, View};
use weir_packet::LinkType;
use weir_packet::savefile::{Fault, Interface, Layout, MAX_INTERFACES, spool};

/// Bytes of a piece: it stays in the cache from the copy to the consumer.
const PIECE: usize = 1 << 20;

/// What came of one source of a merge.
#[derive(Debug)]
pub struct Part {
    /// As the user wrote it.
    pub name: String,
    /// What happened while it was read; its `received` are the packets that were passed on.
    pub report: Report,
    /// Its layout, as far as it is known.
    pub layout: Option<Layout>,
    /// How its bytes got into memory.
    pub way: Way,
    /// Others changed it while it was read.
    pub changed: bool,
}

/// Sources by time, as one.
pub(super) struct Merged {
    merge: Merge<Every>,
    begun: bool,
    /// All interfaces met so far, equal ones once.
    interfaces: Vec<Interface>,
    /// For each source and each byte order, the place of each of its interfaces among them.
    ids: Vec<[Vec<u32>; 2]>,
    /// Interfaces that the current layout has.
    announced: usize,
    len_hint: u64,
    spares: Vec<Vec<u8>>,
}

impl Merged {
    fn new(merge: Merge<Every>, len_hint: u64) -> Self {
        let ids = vec![Default::default(); merge.sources().len()];
        Self { merge, begun: false, interfaces: Vec::new(), ids, announced: 0, len_hint, spares: Vec::new() }
    }

    pub(super) fn way(&self) -> Way {
        let streams = self.merge.sources().iter().any(|source| source.reader().way() == Way::Stream);
        if streams { Way::Stream } else { Way::Read }
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
    fn fill(&mut self) -> Result<Vec<u8>, Trouble> {
        if !self.begun {
            self.begun = true;
            self.merge.begin(&mut |_| {});
            // An expression is judged by all the link types there are, not by that of the first packet.
            for (ids, source) in self.ids.iter_mut().zip(self.merge.sources()) {
                if let Some(layout) = source.reader().layout() {
                    announce(&mut self.interfaces, ids, layout)?;
                }
            }
        }
        let mut piece = self.spares.pop().unwrap_or_else(|| Vec::with_capacity(2 * PIECE));
        piece.clear();
        // What the next bytes of a pipe hold back is passed on now.
        while piece.len() < PIECE && (piece.is_empty() || !self.merge.waits()) {
            let Some(next) = self.merge.next(&mut |_| {}) else { break };
            let (layout, interface) = (&next.current.layout, next.record.frame.interface as usize);
            let ids = &mut self.ids[next.source];
            if ids[usize::from(layout.big_endian)].len() <= interface
                && let Err(what) = announce(&mut self.interfaces, ids, layout)
            {
                // What is in the piece already was passed on; the next call meets the fault again.
                return if piece.is_empty() { Err(what) } else { Ok(piece) };
            }
            let id = ids[usize::from(layout.big_endian)][interface];
            spool::append(&mut piece, id, next.key, &next.record);
            self.merge.pass();
        }
        Ok(piece)
    }

    /// The layout that the last piece needs, if it is another one than that of the piece before.
    fn layout(&mut self) -> Option<Layout> {
        let known = std::mem::replace(&mut self.announced, self.interfaces.len());
        (known < self.interfaces.len()).then(|| Layout::spool(self.interfaces.clone()))
    }

    /// At the end, all that was read was passed on.
    fn check(&self) -> Result<(), Trouble> {
        self.merge.sources().iter().filter(|source| !source.is_changed()).try_for_each(|source| {
            let (read, passed) = (source.reader().report().received, source.passed());
            if read == passed { Ok(()) } else { Err(Trouble::Merge { read, passed }) }
        })
    }

    fn into_parts(self) -> Vec<Part> {
        self.merge.into_sources().map(part).collect()
    }
}

fn part(source: merge::Source<Every>) -> Part {
    let (name, passed, changed) = (source.name().to_owned(), source.passed(), source.is_changed());
    let (layout, way) = (source.reader().layout().cloned(), source.reader().way());
    let report = Report { received: passed, ..source.into_report() };
    Part { name, report, layout, way, changed }
}

/// Gives the interfaces of a source that have no place yet one among all `interfaces`, as long as these are not too many.
fn announce(interfaces: &mut Vec<Interface>, ids: &mut [Vec<u32>; 2], layout: &Layout) -> Result<(), Trouble> {
    let ids = &mut ids[usize::from(layout.big_endian)];
    for interface in layout.interfaces.iter().skip(ids.len()) {
        let mut interface = interface.clone();
        // In a big-endian file the address family of a BSD loopback frame is big-endian, which pieces cannot say otherwise.
        if layout.big_endian && interface.link == LinkType::NULL {
            interface.link = LinkType::LOOP;
        }
        let known = interfaces.iter().position(|known| *known == interface);
        if known.is_none() {
            if interfaces.len() == MAX_INTERFACES {
                return Err(Trouble::Format(Fault::TooManyInterfaces));
            }
            interfaces.push(interface);
        }
        ids.push(known.unwrap_or(interfaces.len() - 1) as u32);
    }
    Ok(())
}

impl<C: Consumer> Reader<C> {
    /// A reader of several sources, by packet time; [`Self::into_parts`] tells of each.
    pub fn merged(inputs: Vec<Input>, consumer: Arc<C>, options: Options) -> Self {
        let len_hint = inputs.iter().filter_map(Input::len_hint).sum();
        let merge = Merge::new(inputs, &Arc::new(Every), Every::records, &options);
        Self::of(Source::Merged(Box::new(Merged::new(merge, len_hint))), consumer, options)
    }

    /// What happened in all, and to each source of a merge (none if it is no merge).
    pub fn into_parts(self) -> (Report, Vec<Part>) {
        let parts = match self.source {
            Source::Merged(merged) => merged.into_parts(),
            _ => Vec::new(),
        };
        (self.report, parts)
    }

    /// Takes a merge on by one piece.
    pub(super) fn step_merged(&mut self) -> Result<Option<Delivery<C>>, Trouble> {
        let Source::Merged(merged) = &mut self.source else { unreachable!("asked by source") };
        let piece = merged.fill()?;
        let layout = merged.layout();
        let checked = if piece.is_empty() { Some(merged.check()) } else { None };
        if let Some(layout) = layout {
            self.take_up(layout)?;
        }
        if let Some(checked) = checked {
            self.finished = true;
            return checked.map(|()| None);
        }
        let current: Arc<Current<C::Plan>> = Arc::clone(self.current.as_ref().expect("packets have interfaces"));
        let len = piece.len();
        let view = View::owned(self.report.offset, true, piece, 0..len);
        let done = process(self.consumer.as_ref(), &current, view.content(), true, Start::Exact(0), len, 0);
        Ok(self.accept(view, current, done))
    }
}
