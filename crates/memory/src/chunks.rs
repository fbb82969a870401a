//! Memory in chunks that one thread fills again and again, while other threads read the contents.
//!
//! ```text
//! chunk      | front: published | not published yet | back: published |
//!             ------>                                       <------     both ends grow towards each other
//! state word   generation (32 bits) | pins (16 bits) | holds (16 bits)   one per chunk
//! ```
//! The writer never waits: if it needs room, it empties the oldest chunk that no reader uses. Readers use a chunk in two steps:
//! - A [`Pin`] asks for a chunk to be kept, until a given time at most. If that time has passed, the writer may empty the chunk. The
//!   number of pins is bounded.
//! - A [`Hold`] gives access to the bytes. A held chunk is never emptied. Holds are meant to be short: a batch, not a search.
//!
//! **Why readers see whole chunks or none.** The generation is even while a chunk can be read, and
//! grows with each emptying. A hold is a compare-and-swap from a state of the pinned generation;
//! emptying is a compare-and-swap from a state without holds. So of a hold and an emptying that
//! meet, one fails. Between the two changes of the generation, in which nobody can hold the chunk,
//! the writer takes back what it had published. Published bytes are not written again before the
//! next emptying. (The idea of versions around a change is from sequence locks; here readers never
//! read bytes that may change.)
//!
//! A generation returns after 2^31 emptyings of one chunk, years at any rate of traffic.
//!
//! Checked under loom as shipped, except for the bytes, which are loom's own cells there.

use crate::{Error, Request};
use std::collections::VecDeque;
use std::fmt;

#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
use loom::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};

const HOLD: u64 = 1;
const HOLDS: u64 = 0xffff;
const PIN: u64 = 1 << 16;
const PINS: u64 = 0xffff << 16;
const GENERATION: u64 = 1 << 32;

/// Largest number of pins at a time, because a state word has 16 bits for them.
pub const MAX_PINS: usize = 0xffff;

/// Generation of a state word.
fn generation(state: u64) -> u32 {
    (state >> 32) as u32
}

/// Whether a chunk of this generation can be read. The first generation of each chunk is odd.
fn is_readable(generation: u32) -> bool {
    generation.is_multiple_of(2)
}

/// State of a chunk; a pair of cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct State {
    word: AtomicU64,
    /// Published bytes: those at the front in the low half, those at the back in the high half.
    published: AtomicU64,
    /// Place of the chunk in the order of filling.
    sequence: AtomicU64,
    /// Latest time until which a reader has asked for the chunk.
    until: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    states: Vec<State>,
    /// Number of pins in all readers.
    pins: AtomicUsize,
    max_pins: usize,
    chunk_bytes: usize,
    bytes: Bytes,
}

/// Makes `count` chunks of `chunk_bytes` bytes in one region, for a writer and any number of readers with `max_pins` pins in all.
///
/// **Cost**: the region is made here; nothing allocates later but [`Chunks::list`] and
/// [`Chunks::pin`]. **Errors**: as of [`crate::Region::zeroed`].
///
/// # Panics
/// If there are fewer than two chunks, a chunk has 4 GiB or more, or there are more than [`MAX_PINS`] pins.
pub fn chunks(
    count: usize,
    chunk_bytes: usize,
    max_pins: usize,
    request: &Request,
) -> Result<(Writer, Chunks), Error> {
    assert!(
        count >= 2 && u32::try_from(chunk_bytes).is_ok() && max_pins <= MAX_PINS,
        "the caller keeps to the limits"
    );
    let len = count.checked_mul(chunk_bytes).ok_or(Error::TooLarge {
        len: count,
        size: chunk_bytes,
    })?;
    let state = || State {
        word: AtomicU64::new(GENERATION),
        published: AtomicU64::new(0),
        sequence: AtomicU64::new(0),
        until: AtomicU64::new(0),
    };
    let shared = Arc::new(Shared {
        states: (0..count).map(|_| state()).collect(),
        pins: AtomicUsize::new(0),
        max_pins,
        chunk_bytes,
        bytes: Bytes::new(len, request)?,
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        current: None,
        order: (0..count).collect(),
        sequence: 0,
        front: 0,
        back: 0,
    };
    Ok((writer, Chunks { shared }))
}

/// The side that fills chunks. **Threads**: one at a time; it may be sent to another thread.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    /// Chunk that is being filled.
    current: Option<usize>,
    /// All other chunks, the oldest first.
    order: VecDeque<usize>,
    /// Number of chunks taken so far.
    sequence: u64,
    front: u32,
    back: u32,
}

impl Writer {
    /// Takes the oldest chunk that no reader uses at time `now`, and empties it; the chunk taken before stays readable. Returns `false`
    /// if readers use all chunks: then the chunk taken before stays the current one.
    ///
    /// Times are of any clock that only grows, in any unit, the same one as for [`Chunks::pin`].
    /// **Cost**: two atomic updates; one load more for each pinned chunk.
    pub fn take(&mut self, now: u64) -> bool {
        let Some(place) =
            (0..self.order.len()).find(|&place| self.empty(self.order[place], now, self.sequence))
        else {
            return false;
        };
        let taken = self.order.remove(place).expect("the place was found");
        self.order.extend(self.current.replace(taken));
        self.sequence += 1;
        (self.front, self.back) = (0, 0);
        true
    }

    /// Empties the oldest chunks for which `is_over` is true of their number in memory; ends at the
    /// first other chunk, or at a chunk that a reader uses. Returns the number of emptied chunks.
    /// Empty chunks, and the one being filled, are not asked about.
    pub fn expire(&mut self, now: u64, is_over: impl Fn(usize) -> bool) -> usize {
        let is_filled =
            |&&chunk: &&usize| self.shared.states[chunk].published.load(Ordering::Relaxed) != 0;
        let sequence = |chunk: usize| self.shared.states[chunk].sequence.load(Ordering::Relaxed);
        let filled = self.order.iter().filter(is_filled);
        filled
            .take_while(|&&chunk| is_over(chunk) && self.empty(chunk, now, sequence(chunk)))
            .count()
    }

    /// Empties a chunk, which then has the place `sequence` in the order; `false` if a reader uses it.
    fn empty(&self, chunk: usize, now: u64, sequence: u64) -> bool {
        let state = &self.shared.states[chunk];
        // Acquire: the time of a pin is visible with the pin.
        let word = state.word.load(Ordering::Acquire);
        let is_used =
            word & HOLDS != 0 || word & PINS != 0 && now < state.until.load(Ordering::Relaxed);
        if is_used {
            return false;
        }
        // A chunk that was never filled has an odd generation already, which nobody can pin.
        let between = if is_readable(generation(word)) {
            (word & !(PINS | HOLDS)).wrapping_add(GENERATION)
        } else {
            word
        };
        // Acquire: the reads of all former holds have ended before the writes below.
        if state
            .word
            .compare_exchange(word, between, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        // A reader that sees the new values below also sees the odd generation: pairs with the fence in `Chunks::list`.
        fence(Ordering::Release);
        state.published.store(0, Ordering::Relaxed);
        state.sequence.store(sequence, Ordering::Relaxed);
        // Release: a reader that sees the even generation sees nothing of what was published before.
        state
            .word
            .store(between.wrapping_add(GENERATION), Ordering::Release);
        true
    }

    /// The bytes of the current chunk between the published front and back; empty before the first [`Self::take`].
    #[cfg(not(loom))]
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        let Some(chunk) = self.current else {
            return &mut [];
        };
        let (from, to) = (
            self.front as usize,
            self.shared.chunk_bytes - self.back as usize,
        );
        // SAFETY: these bytes are not published, so no reader accesses them; there is one writer, which is borrowed.
        unsafe {
            self.shared
                .bytes
                .slice_mut(chunk * self.shared.chunk_bytes + from, to - from)
        }
    }

    /// Number of published bytes of the current chunk: at its front, and at its back.
    #[inline]
    pub fn published(&self) -> (usize, usize) {
        (self.front as usize, self.back as usize)
    }

    /// Publishes the first `front` and the last `back` bytes of the [room](Self::room), which readers may now see, and which the room
    /// no longer holds. **Cost**: one store.
    ///
    /// # Panics
    /// If the room is smaller.
    #[inline]
    pub fn publish(&mut self, front: usize, back: usize) {
        let Some(chunk) = self.current else {
            return assert!(
                front == 0 && back == 0,
                "there is no room before the first chunk is taken"
            );
        };
        let (before, behind) = (self.front as usize + front, self.back as usize + back);
        let end = before.checked_add(behind).expect("lengths of slices");
        assert!(
            end <= self.shared.chunk_bytes,
            "only bytes of the room are published"
        );
        (self.front, self.back) = (before as u32, behind as u32);
        // Release: the bytes are written before their number is visible.
        let published = before as u64 | (behind as u64) << 32;
        self.shared.states[chunk]
            .published
            .store(published, Ordering::Release);
    }

    /// Number of the current chunk in memory, below [`Chunks::count`]; `None` before the first [`Self::take`].
    pub fn chunk(&self) -> Option<usize> {
        self.current
    }

    /// Number of chunks taken so far; the current chunk has this sequence number minus 1.
    pub fn taken(&self) -> u64 {
        self.sequence
    }
}

/// The side that reads chunks. **Threads**: any number; clones share the chunks.
#[derive(Clone, Debug)]
pub struct Chunks {
    shared: Arc<Shared>,
}

/// A chunk in one generation. A chunk that was emptied since has another one, so a place is only a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Place in the order of filling, from 0 on.
    pub sequence: u64,
    chunk: u32,
    generation: u32,
}

impl Place {
    /// Number of the chunk in memory, below [`Chunks::count`].
    pub fn chunk(self) -> usize {
        self.chunk as usize
    }
}

/// Reason for a chunk that cannot be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPinned {
    /// The writer has emptied the chunk.
    #[error("the chunk was emptied")]
    Emptied,
    /// As many chunks are pinned as may be.
    #[error("too many chunks are pinned")]
    TooMany,
}

impl Chunks {
    /// Fills `places` with the chunks that can be read now, in the order of filling. **Cost**: three loads for each chunk, and a sort.
    pub fn list(&self, places: &mut Vec<Place>) {
        places.clear();
        for (chunk, state) in self.shared.states.iter().enumerate() {
            let generation = generation(state.word.load(Ordering::Acquire));
            let sequence = state.sequence.load(Ordering::Relaxed);
            // Pairs with the fence in `Writer::empty`.
            fence(Ordering::Acquire);
            let again = self::generation(state.word.load(Ordering::Relaxed));
            if is_readable(generation) && generation == again {
                places.push(Place {
                    sequence,
                    chunk: chunk as u32,
                    generation,
                });
            }
        }
        places.sort_unstable_by_key(|place| place.sequence);
    }

    /// Number of published bytes of a chunk now, at its front and at its back, without a pin; `None` if the chunk was emptied.
    pub fn published(&self, place: Place) -> Option<(usize, usize)> {
        let published = self.shared.states[place.chunk as usize]
            .published
            .load(Ordering::Acquire);
        self.is_current(place)
            .then_some((published as u32 as usize, (published >> 32) as usize))
    }

    /// Whether the chunk was not emptied since, seen from what this thread has read so far: bytes published before, and values that
    /// the writer's thread stores by [`Place::chunk`] after it takes a chunk.
    pub fn is_current(&self, place: Place) -> bool {
        // Pairs with the fence in `Writer::empty`.
        fence(Ordering::Acquire);
        generation(
            self.shared.states[place.chunk as usize]
                .word
                .load(Ordering::Relaxed),
        ) == place.generation
    }

    /// Pins a chunk until the time `until` at most.
    pub fn pin(&self, place: Place, until: u64) -> Result<Pin, NotPinned> {
        let Place {
            chunk, generation, ..
        } = place;
        let state = &self.shared.states[chunk as usize];
        let below = |pins: usize| (pins < self.shared.max_pins).then_some(pins + 1);
        if self
            .shared
            .pins
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, below)
            .is_err()
        {
            return Err(NotPinned::TooMany);
        }
        // Before the pin, so that the writer never sees a pin without its time. Times only grow, so none has to be taken back.
        state.until.fetch_max(until, Ordering::Relaxed);
        let pinned = self
            .shared
            .update(chunk, generation, Ordering::Release, |word| word + PIN);
        if !pinned {
            self.shared.pins.fetch_sub(1, Ordering::Relaxed);
            return Err(NotPinned::Emptied);
        }
        Ok(Pin(Arc::new(Pinned {
            shared: Arc::clone(&self.shared),
            chunk,
            generation,
        })))
    }

    /// Length of a chunk, bytes.
    pub fn chunk_bytes(&self) -> usize {
        self.shared.chunk_bytes
    }

    /// Number of chunks.
    pub fn count(&self) -> usize {
        self.shared.states.len()
    }

    /// Number of pins now, and their largest number.
    pub fn pins(&self) -> (usize, usize) {
        (
            self.shared.pins.load(Ordering::Relaxed),
            self.shared.max_pins,
        )
    }

    /// Memory that the chunks really have, read back now.
    #[cfg(not(loom))]
    pub fn obtained(&self) -> crate::Obtained {
        self.shared.bytes.0.obtained()
    }
}

impl Shared {
    /// Changes the state word of a chunk if the chunk still has this generation.
    fn update(
        &self,
        chunk: u32,
        generation: u32,
        success: Ordering,
        change: impl Fn(u64) -> u64,
    ) -> bool {
        let word = &self.states[chunk as usize].word;
        let same = |state: u64| (self::generation(state) == generation).then(|| change(state));
        word.fetch_update(success, Ordering::Relaxed, same).is_ok()
    }
}

/// Request of a reader to keep a chunk; taken back when it and its holds are dropped.
#[derive(Debug)]
pub struct Pin(Arc<Pinned>);

#[derive(Debug)]
struct Pinned {
    shared: Arc<Shared>,
    chunk: u32,
    generation: u32,
}

impl Pin {
    /// Holds the chunk; `None` if the pin was revoked, or the chunk has 65 535 holds. The hold shows what was published by now; a later
    /// hold shows more. **Cost**: two atomic updates, and two to let go.
    pub fn hold(&self) -> Option<Hold> {
        let pinned = &self.0;
        let state = &pinned.shared.states[pinned.chunk as usize];
        // Acquire: what the writer took back before this generation is not seen again.
        let free = |word: u64| {
            (generation(word) == pinned.generation && word & HOLDS < HOLDS).then(|| word + HOLD)
        };
        state
            .word
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free)
            .ok()?;
        // Acquire: the bytes are visible with their number.
        let published = state.published.load(Ordering::Acquire);
        Some(Hold {
            pinned: Arc::clone(pinned),
            published,
        })
    }

    /// Moves the end of the pin to `until`, if it is later.
    pub fn extend(&self, until: u64) {
        self.0.shared.states[self.0.chunk as usize]
            .until
            .fetch_max(until, Ordering::Relaxed);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A revoked pin is no longer in the state word.
        self.shared
            .update(self.chunk, self.generation, Ordering::Relaxed, |word| {
                word - PIN
            });
        self.shared.pins.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Access to the published bytes of a chunk, which do not change while they are held.
pub struct Hold {
    pinned: Arc<Pinned>,
    published: u64,
}

impl Hold {
    /// Published bytes at the front of the chunk, and at its back.
    #[cfg(not(loom))]
    #[inline]
    pub fn bytes(&self) -> (&[u8], &[u8]) {
        // SAFETY: the chunk is held, so it is not emptied while `self` lives, and published bytes are not written before that.
        unsafe {
            self.pinned
                .shared
                .published(self.pinned.chunk as usize, self.published)
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Release: the reads of this hold have ended before the writer's next use of the chunk.
        self.pinned.shared.states[self.pinned.chunk as usize]
            .word
            .fetch_sub(HOLD, Ordering::Release);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Hold({} and {} bytes)",
            self.published as u32,
            self.published >> 32
        )
    }
}

#[cfg(not(loom))]
impl Shared {
    /// Published bytes of a chunk: front and back.
    ///
    /// # Safety
    /// The writer has published as much, and does not empty the chunk during the borrow.
    unsafe fn published(&self, chunk: usize, published: u64) -> (&[u8], &[u8]) {
        let (front, back) = (published as u32 as usize, (published >> 32) as usize);
        let begin = chunk * self.chunk_bytes;
        // SAFETY: both parts are in the chunk, and nobody writes to them, as promised.
        unsafe {
            (
                self.bytes.slice(begin, front),
                self.bytes.slice(begin + self.chunk_bytes - back, back),
            )
        }
    }
}

/// Bytes of all chunks. Each part is either the writer's alone or published, which follows from the states.
#[cfg(not(loom))]
struct Bytes(crate::Table<std::cell::UnsafeCell<u8>>);

// SAFETY: the callers of `slice` and `slice_mut` promise that no thread writes to bytes that another one accesses.
#[cfg(not(loom))]
unsafe impl Sync for Bytes {}

#[cfg(not(loom))]
impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.0.len())
    }
}

#[cfg(not(loom))]
impl Bytes {
    fn new(len: usize, request: &Request) -> Result<Self, Error> {
        crate::Table::zeroed(len, request).map(Self)
    }

    /// # Safety
    /// The bytes lie in the region, and no thread writes to them during the borrow.
    unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        let bytes = std::cell::UnsafeCell::raw_get(self.0.as_ptr());
        // SAFETY: in bounds and not written to, as promised; the region lives as long as `self`.
        unsafe { std::slice::from_raw_parts(bytes.add(at), len) }
    }

    /// # Safety
    /// The bytes lie in the region, and no other thread accesses them during the borrow.
    #[expect(clippy::mut_from_ref, reason = "the writer borrows itself mutably")]
    unsafe fn slice_mut(&self, at: usize, len: usize) -> &mut [u8] {
        let bytes = std::cell::UnsafeCell::raw_get(self.0.as_ptr());
        // SAFETY: in bounds and without other access, as promised; the region lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(bytes.add(at), len) }
    }
}

#[cfg(loom)]
#[derive(Debug)]
struct Bytes(Vec<loom::cell::UnsafeCell<u8>>);

// SAFETY: as for the other `Bytes`; loom reports any breach of the promise.
#[cfg(loom)]
unsafe impl Sync for Bytes {}

#[cfg(loom)]
impl Bytes {
    fn new(len: usize, _: &Request) -> Result<Self, Error> {
        Ok(Self(
            (0..len).map(|_| loom::cell::UnsafeCell::new(0)).collect(),
        ))
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;

    impl Writer {
        /// Writes a byte to the front of the room, and publishes it.
        fn put(&mut self, byte: u8) {
            let at = self.current.unwrap() * self.shared.chunk_bytes + self.front as usize;
            // SAFETY: loom reports any access at the same time.
            self.shared.bytes.0[at].with_mut(|cell| unsafe { *cell = byte });
            self.publish(1, 0);
        }
    }

    impl Hold {
        fn read(&self) -> Vec<u8> {
            let begin = self.pinned.chunk as usize * self.pinned.shared.chunk_bytes;
            let front = self.published as u32 as usize;
            // SAFETY: loom reports any access at the same time.
            self.pinned.shared.bytes.0[begin..begin + front]
                .iter()
                .map(|cell| cell.with(|cell| unsafe { *cell }))
                .collect()
        }
    }

    /// Content of the full chunk `sequence`: two bytes that only this chunk has.
    fn content(sequence: u64) -> [u8; 2] {
        [2 * sequence as u8 + 1, 2 * sequence as u8 + 2]
    }

    fn fill(writer: &mut Writer) {
        for byte in content(writer.taken() - 1) {
            writer.put(byte);
        }
    }

    /// A reader that looks while chunks are filled and emptied sees a prefix of what a chunk was filled with, or nothing.
    fn reads_whole_chunks(until: u64) {
        loom::model(move || {
            let (mut writer, chunks) = chunks(2, 2, 2, &Request::default()).unwrap();
            assert!(writer.take(0));
            fill(&mut writer);
            let seen_later = chunks.clone();
            let reader = thread::spawn(move || {
                let mut places = Vec::new();
                chunks.list(&mut places);
                for place in places {
                    let Ok(pin) = chunks.pin(place, until) else {
                        continue;
                    };
                    let Some(hold) = pin.hold() else { continue };
                    let seen = hold.read();
                    assert!(
                        content(place.sequence).starts_with(&seen),
                        "{seen:?} in chunk {place:?}"
                    );
                }
                assert_eq!(chunks.pins().0, 0);
            });
            for _ in 0..2 {
                if writer.take(1) {
                    fill(&mut writer);
                }
            }
            reader.join().unwrap();
            let mut places = Vec::new();
            seen_later.list(&mut places);
            assert_eq!(
                places.last().map(|place| place.sequence),
                Some(writer.taken() - 1),
                "nothing is left of the reader"
            );
            for place in places {
                let pin = seen_later
                    .pin(place, until)
                    .expect("it was listed, and no writer runs");
                assert_eq!(
                    pin.hold().expect("it was not revoked").read(),
                    content(place.sequence)
                );
            }
        });
    }

    #[test]
    fn readers_see_whole_chunks_while_pins_keep_them() {
        reads_whole_chunks(2);
    }

    #[test]
    fn readers_see_whole_chunks_while_pins_are_revoked() {
        reads_whole_chunks(1);
    }

    /// A pin that was not revoked keeps its chunk, and a later hold sees all that a former one saw.
    #[test]
    fn a_pinned_chunk_stays() {
        loom::model(|| {
            let (mut writer, chunks) = chunks(2, 2, 1, &Request::default()).unwrap();
            assert!(writer.take(0));
            writer.put(content(0)[0]);
            let mut places = Vec::new();
            chunks.list(&mut places);
            let pin = chunks.pin(places[0], 5).unwrap();
            assert_eq!(chunks.pin(places[0], 5).unwrap_err(), NotPinned::TooMany);
            let reader = thread::spawn(move || {
                let first = pin.hold().expect("the pin has not ended").read();
                let second = pin.hold().expect("the pin has not ended").read();
                assert!(
                    second.starts_with(&first) && content(0).starts_with(&second),
                    "{first:?} {second:?}"
                );
            });
            writer.put(content(0)[1]);
            assert!(writer.take(1), "the other chunk is free");
            fill(&mut writer);
            if writer.take(1) {
                fill(&mut writer);
            }
            reader.join().unwrap();
            assert!(writer.take(1), "the pin is gone");
        });
    }
}
