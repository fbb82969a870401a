//! Cursors: readers that follow a ring.

use super::{HEAD, History, OFFSET};
use crate::record;
use std::ops::Range;
use weir_memory::chunks::{Hold, NotPinned, Pin};
use weir_packet::Frame;
use weir_packet::savefile::Record;

/// Time for which a cursor asks a chunk to be kept, ns, counted from its last look.
const KEEP_NS: u64 = 2_000_000_000;

/// Place at which a cursor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest packet.
    Oldest,
    /// The packet with this number. If it is gone: the oldest packet; all packets in between count
    /// as missed.
    Number(u64),
    /// The oldest chunk with a packet at or after this time, ns since 1970, or without any times. Earlier packets of that chunk come
    /// too.
    Time(i64),
}

/// A reader that follows a ring from packet to packet. While it looks at a chunk, the writer keeps the chunk for two seconds after its
/// last look; a cursor that is slower misses packets, and counts them.
#[derive(Debug)]
pub struct Cursor {
    pub(super) history: History,
    begin: From,
    current: Option<Current>,
    /// Place in the order of filling at which the search for the next chunk begins.
    sequence: u64,
    /// Number of the next packet, once it is known.
    number: Option<u64>,
    missed: u64,
    starved: u64,
}

#[derive(Debug)]
struct Current {
    pin: Pin,
    sequence: u64,
    /// Number of the chunk in memory.
    chunk: usize,
    base_ns: i64,
    /// Number of the first packet of the chunk.
    first: u64,
}

impl History {
    /// A cursor that begins at `from`.
    pub fn cursor(&self, from: From) -> Cursor {
        let number = if let From::Number(number) = from {
            Some(number)
        } else {
            None
        };
        Cursor {
            history: self.clone(),
            begin: from,
            current: None,
            sequence: 0,
            number,
            missed: 0,
            starved: 0,
        }
    }
}

impl Cursor {
    /// Packets written since the last look, all of one chunk, oldest first; `None` if there are
    /// none now. `now` is the steady clock's time of the writer, ns.
    ///
    /// **Cost**: five atomic updates for a piece; a look at the states of all chunks for each chunk, and after [`Self::rest`].
    pub fn next(&mut self, now: u64) -> Option<Piece> {
        if self.current.is_none()
            && self
                .number
                .is_some_and(|number| number >= self.history.next())
        {
            return None;
        }
        loop {
            // Before the look at the chunk: what the writer put there before it took another one is then seen.
            let taken = self
                .history
                .shared
                .taken
                .load(std::sync::atomic::Ordering::Acquire);
            let Some(current) = &self.current else {
                if self.sequence >= taken || !self.enter(now) {
                    return None;
                }
                continue;
            };
            let Some(hold) = current.pin.hold() else {
                // Revoked: the rest of the chunk is missed, which the next chunk's first number tells.
                self.leave();
                continue;
            };
            current.pin.extend(now.saturating_add(KEEP_NS));
            let (first, base_ns) = (current.first, current.base_ns);
            let from = self.number.unwrap_or(first).saturating_sub(first) as usize;
            let count = hold.bytes().1.len() / OFFSET;
            if from < count {
                self.number = Some(first + count as u64);
                // Read after the hold: they are those of all its packets, and of some that follow.
                let times_ns = self.history.shared.bounds(current.chunk);
                return Some(Piece {
                    hold,
                    first,
                    base_ns,
                    times_ns,
                    records: from..count,
                });
            }
            if current.sequence + 1 >= taken {
                return None;
            }
            self.leave();
        }
    }

    /// Gives the pin back until the next look, so that a thread with many cursors does not keep as
    /// many chunks. The cursor keeps its place. The writer may take the chunk in the meantime; what
    /// is then missed is counted.
    pub fn rest(&mut self) {
        if let Some(current) = self.current.take() {
            self.sequence = current.sequence;
        }
    }

    fn leave(&mut self) {
        if let Some(left) = self.current.take() {
            self.sequence = left.sequence + 1;
        }
    }

    /// Pins the next chunk that is of use; `false` if there is none.
    fn enter(&mut self, now: u64) -> bool {
        for place in self.history.places() {
            if place.sequence < self.sequence {
                continue;
            }
            let pin = match self
                .history
                .shared
                .chunks
                .pin(place, now.saturating_add(KEEP_NS))
            {
                Ok(pin) => pin,
                Err(NotPinned::TooMany) => {
                    self.starved += 1;
                    return false;
                }
                Err(NotPinned::Emptied) => continue,
            };
            let Some(hold) = pin.hold() else { continue };
            let (front, back) = hold.bytes();
            let (Some(base), Some(first)) = (front.first_chunk(), front.get(8..HEAD)) else {
                // A chunk that was emptied for its age, or that is about to be filled.
                continue;
            };
            let first = u64::from_le_bytes(*first.first_chunk().expect("a head has 16 bytes"));
            let behind = first + (back.len() / OFFSET) as u64;
            let is_newest = place.sequence + 1
                >= self
                    .history
                    .shared
                    .taken
                    .load(std::sync::atomic::Ordering::Relaxed);
            let is_early = match (self.begin, self.number) {
                (From::Time(from_ns), None) => {
                    let latest = self.history.shared.bounds(place.chunk()).1;
                    latest != i64::MIN && latest < from_ns
                }
                (_, Some(number)) => behind <= number,
                _ => false,
            };
            if is_early && !is_newest {
                continue;
            }
            if let Some(number) = self.number
                && first > number
            {
                self.missed += first - number;
                self.number = Some(first);
            }
            let base_ns = i64::from_le_bytes(*base);
            drop(hold);
            self.current = Some(Current {
                pin,
                sequence: place.sequence,
                chunk: place.chunk(),
                base_ns,
                first,
            });
            return true;
        }
        false
    }

    /// Number of the next packet; `None` before the first packet of a cursor that did not begin at
    /// a number.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Number of the chunk that is read next, in the order in which the writer took them.
    pub fn chunk(&self) -> u64 {
        self.current
            .as_ref()
            .map_or(self.sequence, |current| current.sequence)
    }

    /// Number of packets that were gone before this cursor came to them.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Number of looks that failed, because other readers keep as many chunks as may be kept.
    pub fn starved(&self) -> u64 {
        self.starved
    }
}

/// Packets of one chunk, which stay where they are as long as this piece. **Threads**: may be sent and shared.
#[derive(Debug)]
pub struct Piece {
    hold: Hold,
    /// Number of the first packet of the chunk.
    first: u64,
    base_ns: i64,
    times_ns: (i64, i64),
    /// Records of the chunk that belong to this piece.
    records: Range<usize>,
}

impl Piece {
    /// Number of packets.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Number of the packet at `index` in the order of the ring.
    pub fn number(&self, index: usize) -> u64 {
        self.first + (self.records.start + index) as u64
    }

    /// Range in which the timestamps of all packets lie, ns since 1970: the range of their chunk.
    /// `None` if no packet of it has a timestamp.
    pub fn times_ns(&self) -> Option<(i64, i64)> {
        let (earliest, latest) = self.times_ns;
        (earliest <= latest).then_some((earliest, latest))
    }

    /// Keeps only the first `len` packets.
    pub fn truncate(&mut self, len: usize) {
        self.records.end = self.records.end.min(self.records.start + len);
    }

    /// The bytes from the chunk's begin on, and its index.
    #[inline]
    pub(super) fn bytes(&self) -> (&[u8], &[u8]) {
        self.hold.bytes()
    }

    /// Offset in the chunk of the packet at `index`.
    ///
    /// # Panics
    /// If there is no such packet.
    #[inline]
    pub(super) fn offset(&self, offsets: &[u8], index: usize) -> usize {
        assert!(index < self.len(), "the piece has {} packets", self.len());
        let end = offsets.len() - (self.records.start + index) * OFFSET;
        u32::from_le_bytes(
            *offsets[..end]
                .last_chunk()
                .expect("four bytes for each packet"),
        ) as usize
    }

    /// Frame of the packet at `index`. **Panics**: if there is no such packet.
    #[inline]
    pub fn frame(&self, index: usize) -> Frame<'_> {
        let (bytes, offsets) = self.bytes();
        record::frame(&bytes[self.offset(offsets, index)..]).expect("whole records are published")
    }

    /// The packet at `index`. **Panics**: if there is no such packet.
    #[inline]
    pub fn record(&self, index: usize) -> Record<'_> {
        let (bytes, offsets) = self.bytes();
        record::read(&bytes[self.offset(offsets, index)..], self.base_ns)
            .expect("whole records are published")
    }

    /// Identifier of the outermost VLAN of the packet at `index`, if there is one. **Panics**: if there is no such packet.
    pub fn vlan(&self, index: usize) -> Option<u16> {
        let (bytes, offsets) = self.bytes();
        record::header_vlan(&bytes[self.offset(offsets, index)..])
    }

    /// All packets, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.len()).map(|index| self.record(index))
    }
}
