//! Several sources in the order of packet time.
//!
//! Each source is read by a [`Reader`] of its own, and a heap holds the next packet of each: a packet costs one step down the
//! heap, and none as long as its source stays the earliest. Packets of equal times keep the order of the sources; a packet
//! without a time goes at once. Packets of one source are never exchanged: an unordered source stays unordered.
//!
//! A damaged stamp far in the future must not hold its source back until all others have ended. So up to 31 packets in a row
//! that are an hour or more ahead of the packets before and behind them have the place of the packet behind them.
//!
//! A source that fails ends; the others go on. Each keeps the report of its own reader.

use crate::reader::{AccessMode, Current, Options};
use crate::{Consumer, Delivery, PlanError, Reader, Report, With};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;
use weir_io::Input;
use weir_packet::Frame;
use weir_packet::savefile::{Format, Layout, Record, spool};

/// Bytes that are read ahead of all plain files together, as long as no packet is larger than the share of its source. A pipe or
/// compressed file holds some MiB of its own, see [`weir_io::stream`].
const MEMORY: usize = 128 << 20;

/// The least and the most bytes that are read of a source at once.
const PIECE: (usize, usize) = (16 << 10, 1 << 20);

/// Packets in a row whose stamps can be damaged; of more, the source's clock was set back.
const DAMAGED: usize = 31;

/// How far ahead of the packets around it a damaged stamp is, ns: one hour.
const AHEAD_NS: i64 = 3600 * 1_000_000_000;

/// Several sources, by time.
pub struct Merge<C: Consumer> {
    sources: Vec<Source<C>>,
    /// Place in the order (ns) and source of the next packet of each source that has one in memory.
    heap: BinaryHeap<Reverse<(i64, usize)>>,
    /// The source that must be read on before the next packet is known.
    dry: Option<usize>,
    /// The offsets of the records that the consumer kept of a piece.
    records: fn(&C::Part) -> &[u32],
}

/// A source of a merge.
pub struct Source<C: Consumer> {
    name: String,
    reader: Reader<C>,
    delivery: Option<Delivery<C>>,
    /// Place in the order (ns) and offset of each kept record of the delivery.
    order: Vec<(i64, u32)>,
    /// Number of the next kept record of the delivery.
    next: usize,
    passed: u64,
    /// Place in the order of the last kept record of the deliveries before; `i64::MIN` if there is none.
    before: i64,
}

/// The next packet of a merge.
#[derive(Debug)]
pub struct Next<'a, C: Consumer> {
    /// Number of its source.
    pub source: usize,
    /// Its time, ns since 1970; of a packet without a time the place in the order, `i64::MIN` in a merge.
    pub key: i64,
    /// The layout of its source, and the consumer's plan for it.
    pub current: &'a Arc<Current<C::Plan>>,
    /// What the consumer made of the piece that the packet is in.
    pub part: &'a C::Part,
    /// Its number among the packets that the consumer kept of that piece.
    pub number: usize,
    /// Offset of its record in that piece.
    pub at: u32,
    /// The record.
    pub record: Record<'a>,
}

impl<C: Consumer> core::fmt::Debug for Merge<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Merge").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl<C: Consumer> core::fmt::Debug for Source<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("passed", &self.passed).finish_non_exhaustive()
    }
}

impl<C: Consumer> Merge<C> {
    /// A merge of `inputs`, of the records that `records` finds in the consumer's parts. Nothing is read yet.
    ///
    /// Each source is read in the caller's thread.
    pub fn new(inputs: Vec<Input>, consumer: &Arc<C>, records: fn(&C::Part) -> &[u32]) -> Self {
        let options = options_for(inputs.len());
        let source = |input: Input| {
            let name = input.name.clone();
            Source::new(name, Reader::new(input, Arc::clone(consumer), options.clone()))
        };
        Self::of(inputs.into_iter().map(source).collect(), records)
    }

    /// A merge of sources whose readers exist.
    pub(crate) fn of(sources: Vec<Source<C>>, records: fn(&C::Part) -> &[u32]) -> Self {
        Self { heap: BinaryHeap::with_capacity(sources.len()), sources, dry: None, records }
    }

    /// Reads the first piece of each source; `each` gets what the consumer made of it.
    pub fn begin(&mut self, each: &mut dyn FnMut(&C::Part)) {
        (0..self.sources.len()).for_each(|source| self.read_on(source, each));
    }

    /// Whether the next packet is known only once a pipe, or a compressed file, has been read on.
    pub fn waits(&self) -> bool {
        self.dry.is_some_and(|source| self.sources[source].reader.way() == AccessMode::Stream)
    }

    /// The next packet, `None` at the end of all sources; `each` gets what the consumer made of pieces that were read.
    pub fn next(&mut self, each: &mut dyn FnMut(&C::Part)) -> Option<Next<'_, C>> {
        if let Some(source) = self.dry.take() {
            self.read_on(source, each);
        }
        let &Reverse((place, number)) = self.heap.peek()?;
        let source = &self.sources[number];
        let (at, record) = source.current()?;
        let Delivery { current, part, .. } = source.delivery.as_ref()?;
        let key = record.time_ns.unwrap_or(place);
        Some(Next { source: number, key, current, part, number: source.next, at, record })
    }

    /// The next packet is passed on.
    pub fn pass(&mut self) {
        let Some(mut top) = self.heap.peek_mut() else { return };
        let number = top.0.1;
        let source = &mut self.sources[number];
        source.next += 1;
        source.passed += 1;
        match source.order.get(source.next) {
            Some(&(key, _)) => top.0.0 = key,
            None => {
                PeekMut::pop(top);
                self.dry = Some(number);
            }
        }
    }

    /// The sources, in their order.
    pub fn sources(&self) -> &[Source<C>] {
        &self.sources
    }

    /// The sources, to take their reports.
    pub(crate) fn into_sources(self) -> impl Iterator<Item = Source<C>> {
        self.sources.into_iter()
    }

    /// Bytes of the sources that are done.
    pub fn offset(&self) -> u64 {
        self.sources.iter().map(|source| source.reader.report().offset).sum()
    }

    fn read_on(&mut self, number: usize, each: &mut dyn FnMut(&C::Part)) {
        if let Some(key) = self.sources[number].read_on(self.records, each) {
            self.heap.push(Reverse((key, number)));
        }
    }
}

impl<C: Consumer> Source<C> {
    pub(crate) fn new(name: String, reader: Reader<C>) -> Self {
        Self { name, reader, delivery: None, order: Vec::new(), next: 0, passed: 0, before: i64::MIN }
    }

    /// As the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its reader.
    pub fn reader(&self) -> &Reader<C> {
        &self.reader
    }

    /// What happened while it was read.
    pub(crate) fn into_report(self) -> Report {
        self.reader.into_report()
    }

    /// Packets that were passed on.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// The piece that was not passed on as a whole, and the number of its kept records that were.
    pub fn unfinished(&self) -> Option<(&Delivery<C>, usize)> {
        self.delivery.as_ref().filter(|_| self.next < self.order.len()).map(|delivery| (delivery, self.next))
    }

    /// Offset and record of the next packet; `None` if it is not there any more.
    #[inline]
    fn current(&self) -> Option<(u32, Record<'_>)> {
        let Delivery { current, view, .. } = self.delivery.as_ref()?;
        let &(_, at) = self.order.get(self.next)?;
        Some((at, current.layout.record(view.content(), at as usize)?))
    }

    /// Takes up the next piece that has kept records; gives the place of the first in the order.
    fn read_on(&mut self, records: fn(&C::Part) -> &[u32], each: &mut dyn FnMut(&C::Part)) -> Option<i64> {
        loop {
            self.order.clear();
            self.next = 0;
            if let Some(spent) = self.delivery.take() {
                self.reader.recycle(spent.view);
            }
            let delivery = self.reader.next()?;
            each(&delivery.part);
            let (layout, bytes, at) = (&delivery.current.layout, delivery.view.content(), records(&delivery.part));
            let key = |i: usize, record: Option<Record<'_>>| match layout.format {
                Format::Spool => spool::key(bytes.slice(), at[i] as usize),
                _ => record.and_then(|record| record.time_ns),
            };
            let order = &mut self.order;
            layout.records(bytes, at, |i, record| order.push((key(i, record).unwrap_or(i64::MIN), at[i])));
            self.delivery = Some(delivery);
            place_damaged(&mut self.order, self.before);
            if let (Some(&(first, _)), Some(&(last, _))) = (self.order.first(), self.order.last()) {
                self.before = last;
                return Some(first);
            }
        }
    }
}

/// Gives packets whose stamps are damaged the place of the packet behind them; `before` is the place of the packet before all.
///
/// **Cost**: linear.
fn place_damaged(order: &mut [(i64, u32)], before: i64) {
    for i in 1..order.len() {
        let (place, _) = order[i];
        let is_ahead = |&(other, _): &(i64, u32)| other > place.saturating_add(AHEAD_NS);
        let ahead = order[..i].iter().rev().take_while(|other| is_ahead(other)).take(DAMAGED + 1).count();
        // A packet without a time goes at once, and says nothing of the packets before it.
        if place == i64::MIN || ahead > DAMAGED || (ahead == i && is_ahead(&(before, 0))) {
            continue;
        }
        order[i - ahead..i].iter_mut().for_each(|damaged| damaged.0 = place);
    }
}

/// How to read each of `sources` sources.
pub(crate) fn options_for(sources: usize) -> Options {
    let piece = (MEMORY / sources.max(1)).clamp(PIECE.0, PIECE.1);
    // What is read stays as it is until its turn comes; a mapped file may have lost it by then.
    Options { way: Some(AccessMode::Read), piece: Some(piece), ..Options::default() }
}

/// The consumer that keeps every packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Every;

impl Every {
    pub(crate) fn records(part: &Vec<u32>) -> &[u32] {
        part
    }
}

impl Consumer for Every {
    type Plan = ();
    type Part = Vec<u32>;

    fn plan(&self, _: &Layout, _: Option<&()>) -> Result<(), PlanError> {
        Ok(())
    }

    #[inline]
    fn frames(&self, with: &With<'_, ()>, frames: &[Frame<'_>], part: &mut Vec<u32>) -> usize {
        part.extend_from_slice(with.records);
        frames.len()
    }

    fn append(&self, part: &mut Vec<u32>, next: Vec<u32>) {
        part.extend_from_slice(&next);
    }
}
