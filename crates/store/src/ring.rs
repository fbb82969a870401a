//! Packets of the last seconds or hours in RAM: one thread writes, others look back.
//!
//! ```text
//! chunk     | head 16 | record | record | ...  ->          <- ... | offset 1 | offset 0 |
//! head      0 base time, ns since 1970 (i64)   8 number of the first packet (u64)
//! record    see [`record`]; each begins where the ring's [`Shape`] says
//! offset    place of a record in the chunk, bytes (u32); the index of the chunk, which grows downwards from its end
//! ```
//! All numbers are little endian. The index makes the loads of a scan independent of each other: no
//! record has to be read to find the next record. Packets are numbered from 0 on as they are
//! written, without gaps, so a reader knows from a gap how many packets it missed. How chunks are
//! shared: [`weir_memory::chunks`].

mod cursor;
mod scan;

pub use cursor::{Cursor, From, Piece};
pub use scan::{Filters, Matches, Merged, Scan};

use crate::record::{self, Shape};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_memory::chunks::{self, Chunks, Place};
use weir_memory::{Request, chunks as memory, prefetch};
use weir_packet::LinkType;
use weir_packet::savefile::{Interface, Record};

/// Length of the head of a chunk, bytes.
const HEAD: usize = 16;

/// Length of an entry of a chunk's index, bytes.
const OFFSET: usize = 4;

/// Length of a cache line, bytes.
const LINE: usize = 64;

/// Distance at which the lines for coming records are fetched, bytes: writing to a line that is not in the cache waits for it. At
/// 2 KiB a ring is written at 0.95 of the speed of a copy, without it at 0.88 (`weir-bench store`, packets of MWN sizes, Intel).
const AHEAD: usize = 2048;

/// Distance at which the frames to come are fetched, bytes: most sources have them one after the
/// other. On AMD it raises 0.78 to 0.95.
const SOURCE_AHEAD: usize = 1024;

/// Smallest length of a chunk, bytes: a chunk holds one of the longest records.
const MIN_CHUNK: usize = 1 << 20;

/// Largest length of a chunk, bytes.
const MAX_CHUNK: usize = 8 << 20;

/// Number of chunks of a ring, unless they would be shorter or longer than chunks may be.
const CHUNKS: usize = 64;

/// Properties of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Length of all chunks, bytes; rounded down to chunks, of which there are at least two of 1 MiB.
    pub bytes: usize,
    /// Addresses of records.
    pub shape: Shape,
    /// Largest number of chunks that readers keep at a time; a quarter of the chunks, and at least four, if `None`.
    pub max_pins: Option<usize>,
    /// Pages of the ring.
    pub memory: Request,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            shape: Shape::default(),
            max_pins: None,
            memory: Request::default(),
        }
    }
}

/// Earliest and latest time of the packets of a chunk, ns since 1970, and the time at which the
/// last packet arrived, ns.
#[derive(Debug)]
struct Bounds {
    earliest: AtomicI64,
    latest: AtomicI64,
    arrived: AtomicI64,
}

#[derive(Debug)]
struct Shared {
    chunks: Chunks,
    shape: Shape,
    /// Bounds of each chunk, by its number in memory.
    bounds: Vec<Bounds>,
    /// Number of the next packet.
    next: AtomicU64,
    /// Number of chunks taken so far.
    taken: AtomicU64,
    interfaces: Mutex<Vec<Interface>>,
}

impl Shared {
    fn interfaces(&self) -> MutexGuard<'_, Vec<Interface>> {
        self.interfaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Bounds of a chunk that is held, or that the writer fills: earliest and latest time.
    fn bounds(&self, chunk: usize) -> (i64, i64) {
        let bounds = &self.bounds[chunk];
        (
            bounds.earliest.load(Ordering::Relaxed),
            bounds.latest.load(Ordering::Relaxed),
        )
    }
}

/// Makes a ring: the side that writes packets, and the side that looks back.
///
/// **Errors**: as of [`weir_memory::Region::zeroed`].
pub fn ring(settings: &Settings) -> Result<(Writer, History), weir_memory::Error> {
    let chunk_bytes = (settings.bytes / CHUNKS)
        .next_power_of_two()
        .clamp(MIN_CHUNK, MAX_CHUNK);
    let count = (settings.bytes / chunk_bytes).max(2);
    let max_pins = settings
        .max_pins
        .unwrap_or((count / 4).max(4))
        .clamp(1, memory::MAX_PINS);
    let request = Request {
        align: settings.memory.align.max(128),
        ..settings.memory
    };
    let (writer, chunks) = memory::chunks(count, chunk_bytes, max_pins, &request)?;
    let bounds = || Bounds {
        earliest: AtomicI64::new(i64::MAX),
        latest: AtomicI64::new(i64::MIN),
        arrived: AtomicI64::new(i64::MIN),
    };
    let shared = Arc::new(Shared {
        chunks,
        shape: settings.shape,
        bounds: (0..count).map(|_| bounds()).collect(),
        next: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        interfaces: Mutex::default(),
    });
    let writer = Writer {
        chunks: writer,
        shape: settings.shape,
        base_ns: 0,
        front: 0,
        back: 0,
        next: 0,
        published: 0,
        bounds: (i64::MAX, i64::MIN),
        now_ns: 0,
        arrived_ns: i64::MIN,
        links: Vec::new(),
        no_room: 0,
        too_long: 0,
        shared: Arc::clone(&shared),
    };
    Ok((writer, History { shared }))
}

/// The side that writes packets. **Threads**: one at a time; it may be sent to another thread.
#[derive(Debug)]
pub struct Writer {
    chunks: chunks::Writer,
    shape: Shape,
    /// Base time of the current chunk, ns since 1970.
    base_ns: i64,
    /// Number of bytes at both ends of the current chunk, including unpublished bytes.
    front: usize,
    back: usize,
    /// Number of the next packet.
    next: u64,
    /// Number of the next packet when packets were last published.
    published: u64,
    /// Earliest and latest time of the packets of the current chunk, ns since 1970.
    bounds: (i64, i64),
    /// Time at which packets arrive now, and at which the last packet of the current chunk arrived, ns.
    now_ns: i64,
    arrived_ns: i64,
    /// Link type of each interface.
    links: Vec<LinkType>,
    no_room: u64,
    too_long: u64,
    shared: Arc<Shared>,
}

/// Packets that a ring did not take, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Packets for which there was no room, because readers used all chunks.
    pub no_room: u64,
    /// Packets longer than a record may be.
    pub too_long: u64,
}

impl Writer {
    /// Announces an interface, and returns its index for [`Record::frame`]; equal interfaces share an index. `None` if there are too
    /// many.
    pub fn interface(&mut self, interface: &Interface) -> Option<u32> {
        let mut interfaces = self.shared.interfaces();
        if let Some(known) = interfaces.iter().position(|known| known == interface) {
            return Some(known as u32);
        }
        if interfaces.len() >= record::MAX_INTERFACES {
            return None;
        }
        interfaces.push(interface.clone());
        self.links.push(interface.link);
        Some(self.links.len() as u32 - 1)
    }

    /// Tells the time at which the next packets arrive, ns, by any clock that does not go back; [`Self::expire`] goes by it.
    #[inline]
    pub fn arrive(&mut self, now_ns: i64) {
        self.now_ns = now_ns;
    }

    /// Writes a packet of a known interface; `false` if the ring does not take it, see [`Self::refused`]. Readers see the packet after
    /// [`Self::publish`]. `now` is a steady clock's time, ns, by which pins end.
    ///
    /// **Cost**: one copy of the frame; no allocation, no lock, no system call.
    ///
    /// # Panics
    /// If the interface is unknown.
    #[inline]
    pub fn append(&mut self, record: &Record<'_>, now: u64) -> bool {
        let captured = record.frame.data.len();
        if captured > record::MAX_CAPTURED {
            self.too_long += 1;
            return false;
        }
        let mut at = self.shape.place(self.front);
        let chunk = self.shared.chunks.chunk_bytes();
        if self.front == 0 || at + record::max_len(captured) + OFFSET + self.back > chunk {
            if !self.begin(record.time_ns, now) {
                self.no_room += 1;
                return false;
            }
            at = self.shape.place(self.front);
        }
        let (front, back) = self.chunks.published();
        let room = self.chunks.room();
        let vlan = record::vlan(
            self.links[record.frame.interface as usize],
            record.frame.data,
        );
        let len = record::write(&mut room[at - front..], self.base_ns, vlan, record);
        let end = room.len() - (self.back - back);
        room[end - OFFSET..end].copy_from_slice(&(at as u32).to_le_bytes());
        // As many lines as this record has, for records to come: where they will lie, and where
        // frames come from one after the other.
        for line in (0..len).step_by(LINE) {
            prefetch(room, at - front + AHEAD + line);
            prefetch(record.frame.data, SOURCE_AHEAD + line);
        }
        self.front = at + len;
        self.back += OFFSET;
        self.next += 1;
        self.arrived_ns = self.now_ns;
        // Packets without a time are kept with those around them.
        if let Some(time_ns) = record.time_ns {
            self.bounds = (self.bounds.0.min(time_ns), self.bounds.1.max(time_ns));
        }
        true
    }

    /// Begins the next chunk with this base time; `false` if readers use all chunks.
    #[cold]
    fn begin(&mut self, base_ns: Option<i64>, now: u64) -> bool {
        self.publish();
        if !self.chunks.take(now) {
            return false;
        }
        self.base_ns = base_ns.unwrap_or(self.base_ns);
        let head = &mut self.chunks.room()[..HEAD];
        head[..8].copy_from_slice(&self.base_ns.to_le_bytes());
        head[8..].copy_from_slice(&self.next.to_le_bytes());
        (self.front, self.back) = (HEAD, 0);
        (self.bounds, self.arrived_ns) = ((i64::MAX, i64::MIN), i64::MIN);
        self.store_bounds();
        self.chunks.publish(HEAD, 0);
        self.shared
            .taken
            .store(self.chunks.taken(), Ordering::Release);
        true
    }

    fn store_bounds(&self) {
        let Some(chunk) = self.chunks.chunk() else {
            return;
        };
        let bounds = &self.shared.bounds[chunk];
        bounds.earliest.store(self.bounds.0, Ordering::Relaxed);
        bounds.latest.store(self.bounds.1, Ordering::Relaxed);
        bounds.arrived.store(self.arrived_ns, Ordering::Relaxed);
    }

    /// Makes the packets that were written visible to readers. **Cost**: four stores.
    #[inline]
    pub fn publish(&mut self) {
        if self.next == self.published {
            return;
        }
        self.published = self.next;
        self.store_bounds();
        let (front, back) = self.chunks.published();
        self.chunks.publish(self.front - front, self.back - back);
        // Release: whoever sees the number sees the packets.
        self.shared.next.store(self.next, Ordering::Release);
    }

    /// Empties chunks of which all packets arrived before `oldest_ns` by the clock of
    /// [`Self::arrive`], unless readers use them. Timestamps do not count: one far in the future
    /// would keep a chunk for ever.
    ///
    /// The chunk that is being filled is left as well once it is too old, so that nothing stays for
    /// lack of traffic.
    pub fn expire(&mut self, oldest_ns: i64, now: u64) {
        let is_old = |arrived: i64| arrived != i64::MIN && arrived < oldest_ns;
        if is_old(self.arrived_ns) {
            self.publish();
            if self.chunks.take(now) {
                // The next packet begins a chunk; this one stays empty.
                (self.front, self.back) = (0, 0);
                (self.bounds, self.arrived_ns) = ((i64::MAX, i64::MIN), i64::MIN);
                self.store_bounds();
                self.shared
                    .taken
                    .store(self.chunks.taken(), Ordering::Release);
            }
        }
        self.chunks.expire(now, |chunk| {
            is_old(self.shared.bounds[chunk].arrived.load(Ordering::Relaxed))
        });
    }

    /// Number of packets written so far: the number of the next packet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of chunks taken so far; the current chunk has this number minus 1.
    pub fn chunks_taken(&self) -> u64 {
        self.chunks.taken()
    }

    /// Packets that the ring did not take.
    pub fn refused(&self) -> Refused {
        Refused {
            no_room: self.no_room,
            too_long: self.too_long,
        }
    }
}

/// The side that looks back. **Threads**: any number; clones share the ring.
#[derive(Clone, Debug)]
pub struct History {
    shared: Arc<Shared>,
}

/// Packets that a ring holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of the chunks in use, headers and room for alignment included.
    pub bytes: u64,
    /// Time of the earliest and of the latest packet, ns since 1970; `None` if no packet has a time.
    pub times_ns: Option<(i64, i64)>,
}

impl Held {
    /// Time between the earliest and the latest packet, ns.
    pub fn span_ns(&self) -> u64 {
        self.times_ns
            .map_or(0, |(earliest, latest)| latest.abs_diff(earliest))
    }
}

impl History {
    /// Packets that the ring holds now. **Cost**: one look at each chunk.
    pub fn held(&self) -> Held {
        let (mut held, mut places) = (Held::default(), Vec::new());
        self.shared.chunks.list(&mut places);
        for place in places {
            let (earliest, latest) = self.shared.bounds(place.chunk());
            // A chunk that the writer empties in the meantime holds nothing.
            let Some((front, back)) = self.shared.chunks.published(place) else {
                continue;
            };
            held.packets += (back / OFFSET) as u64;
            held.bytes += if back == 0 { 0 } else { (front + back) as u64 };
            if back > 0 && earliest <= latest {
                let (first, last) = held.times_ns.unwrap_or((earliest, latest));
                held.times_ns = Some((first.min(earliest), last.max(latest)));
            }
        }
        held
    }

    /// Interfaces of the packets, by index.
    pub fn interfaces(&self) -> Vec<Interface> {
        self.shared.interfaces().clone()
    }

    /// Number of interfaces.
    pub fn interface_count(&self) -> usize {
        self.shared.interfaces().len()
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.shared.chunks.count()
    }

    /// Number of packets written and published so far: the number of the next packet.
    pub fn next(&self) -> u64 {
        self.shared.next.load(Ordering::Acquire)
    }

    /// Length of all chunks, bytes.
    pub fn capacity(&self) -> usize {
        self.shared.chunks.chunk_bytes() * self.shared.chunks.count()
    }

    /// Addresses of records.
    pub fn shape(&self) -> Shape {
        self.shared.shape
    }

    /// Memory that the ring really has, read back now.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.shared.chunks.obtained()
    }

    /// Number of chunks that readers keep now, and its largest value.
    pub fn pins(&self) -> (usize, usize) {
        self.shared.chunks.pins()
    }

    /// Chunks that can be read now, the oldest first.
    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        self.shared.chunks.list(&mut places);
        places
    }
}
