//! Merge of several sources in the order of packet time.
//!
//! Each source has its own [`Reader`], and a heap holds the next packet of each source. A packet costs one step down the
//! heap, or none if its source stays the earliest. Packets of equal times keep the order of the sources; a packet
//! without a time is passed on at once. Packets of one source keep their order: an unordered source stays unordered.
//!
//! A damaged timestamp far in the future must not hold its source back until all others have ended.
//! So a row of up to 31 packets takes the place of the packet after it, if all of them are more
//! than an hour ahead of the packets before and after the row.
//!
//! If a source fails, it ends and the other sources go on. Each source keeps the report of its own reader.

use crate::bits::Bits;
use crate::reader::{AccessMode, Current, Options};
use crate::{Consumer, Delivery, PlanError, Reader, Report, With};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;
use weir_io::Input;
use weir_packet::Frame;
use weir_packet::savefile::{Format, Layout, Record, spool};

/// Bytes read ahead of all plain files together, if no packet is larger than the share of its source. A pipe or compressed file
/// holds some MiB of its own, see [`weir_io::stream`].
const MEMORY: usize = 128 << 20;

/// Smallest and largest number of bytes read from a source at once.
const PIECE: (usize, usize) = (16 << 10, 256 << 10);

/// Largest number of packets in a row taken for damaged; after more such packets, the source's clock was set back.
const DAMAGED: usize = 31;

/// Distance by which a damaged timestamp is at least ahead of the packets around it, ns: one hour.
const AHEAD_NS: i64 = 3600 * 1_000_000_000;

/// A merge of several sources in time order.
pub struct Merge<C: Consumer> {
    sources: Vec<Source<C>>,
    /// For each source with a packet in memory: the sort key (ns) of its next packet, and the source's number.
    heap: BinaryHeap<Reverse<(i64, usize)>>,
    /// Sources that must be read on before the next packet is known.
    dry: Vec<usize>,
    /// Returns the packets of a piece that are merged.
    merged: fn(&C::Part) -> Merged<'_>,
}

/// The packets of a piece that a merge passes on.
#[derive(Clone, Copy, Debug)]
pub struct Merged<'a> {
    /// Offset of the record of each packet of the piece.
    pub records: &'a [u32],
    /// Mask of the packets that are passed on; `None` for all of them.
    pub mask: Option<&'a Bits>,
}

/// A packet of a piece, in the order of a merge.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    /// Sort key, ns.
    key: i64,
    /// Offset of the record.
    at: u32,
    /// Number of the packet in the piece.
    number: u32,
}

/// A source of a merge.
pub struct Source<C: Consumer> {
    name: String,
    reader: Reader<C>,
    delivery: Option<Delivery<C>>,
    /// The packets of the delivery that are passed on.
    order: Vec<Ordered>,
    /// Number of the next packet in `order`.
    next: usize,
    /// Number of packets of the delivery that are passed on or left out.
    done: usize,
    /// Number of packets passed on or left out.
    passed: u64,
    /// Whether all is read.
    ended: bool,
    /// Sort key (ns) of the last packet of the deliveries before; `i64::MIN` if there is none.
    before: i64,
    /// Offsets of the packets that are passed on, if they are not all of a delivery.
    records: Vec<u32>,
}

/// The next packet of a merge.
#[expect(
    missing_debug_implementations,
    reason = "parts and plans need not have one"
)]
pub struct Next<'a, C: Consumer> {
    /// Number of the packet's source.
    pub source: usize,
    /// Time of the packet, ns since 1970; for a packet without a time its sort key, `i64::MIN` in a merge.
    pub key: i64,
    /// Layout of the source, and the consumer's plan for it.
    pub current: &'a Arc<Current<C::Plan>>,
    /// Result of the consumer for the piece that holds the packet.
    pub part: &'a C::Part,
    /// Number of the packet in that piece.
    pub number: usize,
    /// Number of packets left out of that piece between the packet and the one before it.
    pub skipped: usize,
    /// Record of the packet.
    pub record: Record<'a>,
}

/// Result of a step of a merge.
#[expect(
    missing_debug_implementations,
    reason = "parts and plans need not have one"
)]
pub enum Found<'a, C: Consumer> {
    /// The next packet.
    Packet(Next<'a, C>),
    /// A piece was read of which no packet is passed on.
    Nothing,
    /// The end of all sources.
    End,
}

/// Function that hears of a piece when it is left, and of the number of its packets passed on or left out before.
pub type Leave<'a, C> = &'a mut dyn FnMut(&<C as Consumer>::Part, usize);

impl<C: Consumer> core::fmt::Debug for Merge<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Merge")
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

impl<C: Consumer> core::fmt::Debug for Source<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .field("passed", &self.passed)
            .finish_non_exhaustive()
    }
}

impl<C: Consumer> Merge<C> {
    /// Makes a merge of `inputs`. `merged` returns the packets to merge from the consumer's parts. Nothing is read yet.
    ///
    /// All sources are read in the caller's thread.
    pub fn new(inputs: Vec<Input>, consumer: &Arc<C>, merged: fn(&C::Part) -> Merged<'_>) -> Self {
        let options = options_for(inputs.len());
        let source = |input: Input| {
            let name = input.name.clone();
            Source::new(
                name,
                Reader::new(input, Arc::clone(consumer), options.clone()),
            )
        };
        Self::of(inputs.into_iter().map(source).collect(), merged)
    }

    /// Makes a merge of sources whose readers exist.
    pub(crate) fn of(sources: Vec<Source<C>>, merged: fn(&C::Part) -> Merged<'_>) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(sources.len()),
            sources,
            dry: Vec::new(),
            merged,
        }
    }

    /// Reads the first piece of each source. `leave` hears of each piece that is left.
    pub fn begin(&mut self, leave: Leave<'_, C>) {
        (0..self.sources.len()).for_each(|source| self.read_on(source, leave));
    }

    /// Whether the next packet is known only after a further read of a pipe or compressed file.
    pub fn waits(&self) -> bool {
        let is_stream = |&source: &usize| self.sources[source].reader.way() == AccessMode::Stream;
        self.dry.iter().any(is_stream)
    }

    /// Returns the next packet. `leave` hears of each piece that is left.
    pub fn next(&mut self, leave: Leave<'_, C>) -> Found<'_, C> {
        if let Some(source) = self.dry.pop() {
            self.read_on(source, leave);
            if !self.dry.is_empty() {
                return Found::Nothing;
            }
        }
        let top = self.heap.peek();
        let next = top.and_then(|&Reverse((place, number))| {
            let source = &self.sources[number];
            let (next, record) = source.current()?;
            let Delivery { current, part, .. } = source.delivery.as_ref()?;
            Some(Next {
                source: number,
                key: record.time_ns.unwrap_or(place),
                current,
                part,
                number: next.number as usize,
                skipped: next.number as usize - source.done,
                record,
            })
        });
        next.map_or(Found::End, Found::Packet)
    }

    /// Passes the next packet on.
    pub fn pass(&mut self) {
        let Some(mut top) = self.heap.peek_mut() else {
            return;
        };
        let number = top.0.1;
        let source = &mut self.sources[number];
        let done = source
            .order
            .get(source.next)
            .map_or(source.done, |next| next.number as usize + 1);
        source.passed += (done - source.done) as u64;
        source.done = done;
        source.next += 1;
        match source.order.get(source.next) {
            Some(next) => top.0.0 = next.key,
            None => {
                PeekMut::pop(top);
                self.dry.push(number);
            }
        }
    }

    /// Returns the sources, in their order.
    pub fn sources(&self) -> &[Source<C>] {
        &self.sources
    }

    /// Returns the sources by value, for their reports.
    pub(crate) fn into_sources(self) -> impl Iterator<Item = Source<C>> {
        self.sources.into_iter()
    }

    /// Returns the number of bytes read so far, over all sources.
    pub fn offset(&self) -> u64 {
        self.sources
            .iter()
            .map(|source| source.reader.report().offset)
            .sum()
    }

    fn read_on(&mut self, number: usize, leave: Leave<'_, C>) {
        let source = &mut self.sources[number];
        match source.read_on(self.merged, leave) {
            Some(key) => self.heap.push(Reverse((key, number))),
            None if source.ended => {}
            None => self.dry.push(number),
        }
    }
}

impl<C: Consumer> Source<C> {
    pub(crate) fn new(name: String, reader: Reader<C>) -> Self {
        Self {
            name,
            reader,
            delivery: None,
            order: Vec::new(),
            next: 0,
            done: 0,
            passed: 0,
            ended: false,
            before: i64::MIN,
            records: Vec::new(),
        }
    }

    /// Returns the name of the source as the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the reader of the source.
    pub fn reader(&self) -> &Reader<C> {
        &self.reader
    }

    /// Returns the report of the reader.
    pub(crate) fn into_report(self) -> Report {
        self.reader.into_report()
    }

    /// Returns the number of packets passed on or left out.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Returns the piece of the next packet, if that is known.
    pub fn unfinished(&self) -> Option<&Delivery<C>> {
        self.delivery
            .as_ref()
            .filter(|_| self.next < self.order.len())
    }

    /// Returns the next packet with its record; `None` if the packet is gone.
    #[inline]
    fn current(&self) -> Option<(Ordered, Record<'_>)> {
        let Delivery { current, view, .. } = self.delivery.as_ref()?;
        let next = *self.order.get(self.next)?;
        Some((
            next,
            current.layout.record(view.content(), next.at as usize)?,
        ))
    }

    /// Reads the next piece. Returns the sort key (ns) of the first packet to pass on, if there is one.
    fn read_on(&mut self, merged: fn(&C::Part) -> Merged<'_>, leave: Leave<'_, C>) -> Option<i64> {
        self.order.clear();
        self.next = 0;
        if let Some(spent) = self.delivery.take() {
            leave(&spent.part, self.done);
            let rest = merged(&spent.part).records.len() - self.done;
            self.passed += rest as u64;
            self.reader.recycle(spent.view);
        }
        self.done = 0;
        let Some(delivery) = self.reader.next() else {
            self.ended = true;
            return None;
        };
        let (layout, bytes) = (&delivery.current.layout, delivery.view.content());
        let Merged { records, mask } = merged(&delivery.part);
        let order = &mut self.order;
        let mut place = |number: usize, record: Option<Record<'_>>| {
            let key = match layout.format {
                Format::Spool => spool::key(bytes.slice(), records[number] as usize),
                _ => record.and_then(|record| record.time_ns),
            };
            order.push(Ordered {
                key: key.unwrap_or(i64::MIN),
                at: records[number],
                number: number as u32,
            });
        };
        match mask {
            None => layout.records(bytes, records, place),
            Some(mask) => {
                self.records.clear();
                self.records
                    .extend(mask.numbers().map(|number| records[number]));
                let mut numbers = mask.numbers();
                layout.records(bytes, &self.records, |_, record| {
                    if let Some(number) = numbers.next() {
                        place(number, record);
                    }
                });
            }
        }
        self.delivery = Some(delivery);
        place_damaged(&mut self.order, self.before);
        let (first, last) = (self.order.first()?, self.order.last()?);
        self.before = last.key;
        Some(first.key)
    }
}

/// Gives packets with damaged timestamps the sort key of the packet after them. `before` is the key
/// of the packet before all.
///
/// **Cost**: linear.
fn place_damaged(order: &mut [Ordered], before: i64) {
    for i in 1..order.len() {
        let key = order[i].key;
        let is_ahead = |other: i64| other > key.saturating_add(AHEAD_NS);
        let ahead = order[..i]
            .iter()
            .rev()
            .take_while(|other| is_ahead(other.key))
            .take(DAMAGED + 1)
            .count();
        // A packet without a time is passed on at once, and does not show whether the packets before it are damaged.
        if key == i64::MIN || ahead > DAMAGED || (ahead == i && is_ahead(before)) {
            continue;
        }
        order[i - ahead..i]
            .iter_mut()
            .for_each(|damaged| damaged.key = key);
    }
}

/// Returns the options to read each of `sources` sources.
pub(crate) fn options_for(sources: usize) -> Options {
    let piece = (MEMORY / sources.max(1)).clamp(PIECE.0, PIECE.1);
    // Bytes that were read stay unchanged until their turn; a mapped file may have lost them by then.
    Options {
        way: Some(AccessMode::Read),
        piece: Some(piece),
        ..Options::default()
    }
}

/// The consumer that keeps every packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Every;

impl Every {
    pub(crate) fn merged(part: &Vec<u32>) -> Merged<'_> {
        Merged {
            records: part,
            mask: None,
        }
    }
}

impl Consumer for Every {
    type Plan = ();
    type Part = Vec<u32>;

    fn plan(&self, _: &Layout, _: Option<&()>) -> Result<(), PlanError> {
        Ok(())
    }

    #[inline]
    fn frames(&self, with: &With<'_, ()>, _: &[Frame<'_>], part: &mut Vec<u32>) {
        part.extend_from_slice(with.records);
    }

    fn append(&self, part: &mut Vec<u32>, next: Vec<u32>) {
        part.extend_from_slice(&next);
    }
}
