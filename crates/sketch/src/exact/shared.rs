//! An exact table that several threads update at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_memory::Request;

use super::Exact;
use crate::{Counts, Error, Key, LANES, Packet, Weigh, split_largest, spread};

/// An [`Exact`] split by hash into parts, each behind a lock, with the same answers.
///
/// A part is full when its own slots are full, so keys begin to find no room a little earlier than in one large table.
///
/// **Cost**: as of `Exact`, and a lock for each part that a batch touches. **Threads**: any thread
/// may call any method. During updates by others, an answer that combines several parts belongs to
/// no single instant.
#[derive(Debug)]
pub struct SharedExact<K> {
    parts: Vec<Part<K>>,
}

/// A part, aligned so that neighbours do not share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Part<K>(Mutex<Exact<K>>);

/// Number of parts: enough that threads seldom meet, and few enough that the parts of a large table lie in huge pages.
const PARTS: usize = 16;

/// Number of items that are sorted by part together; their indices fit in bytes.
const GROUP: usize = 256;

impl<K: Key> SharedExact<K> {
    /// A table of at most `memory_bytes`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: as of [`Exact::new`].
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        Self::of_parts(|| Exact::new(memory_bytes / PARTS, seed, request))
    }

    /// A table that also keeps the [times](crate::Times) of its keys. The packets of several threads come in no order, so that their
    /// peaks say nothing.
    ///
    /// **Errors**: as of [`new`](Self::new).
    pub fn with_times(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        Self::of_parts(|| Exact::with_times(memory_bytes / PARTS, seed, request))
    }

    fn of_parts(part: impl Fn() -> Result<Exact<K>, Error>) -> Result<Self, Error> {
        let part = |_| part().map(|table| Part(Mutex::new(table)));
        Ok(Self {
            parts: (0..PARTS).map(part).collect::<Result<_, _>>()?,
        })
    }

    /// Counts a batch of packets. A batch of hundreds locks each part only once, and overlaps the cache misses within a
    /// part.
    pub fn update<P: Packet<K>>(&self, items: &[P]) {
        for items in items.chunks(GROUP) {
            // A counting sort: the items of part p are those of `order[ends[p - 1]..ends[p]]`.
            let mut ends = [0; PARTS];
            for item in items {
                ends[Self::part(item.hash())] += 1;
            }
            let mut end = 0;
            for count in &mut ends {
                end += core::mem::replace(count, end);
            }
            let mut order = [0u8; GROUP];
            for (index, item) in items.iter().enumerate() {
                let next = &mut ends[Self::part(item.hash())];
                order[*next] = index as u8;
                *next += 1;
            }
            let mut start = 0;
            for (part, end) in ends.into_iter().enumerate() {
                if start < end {
                    let mut table = self.lock(part);
                    for lanes in order[start..end].chunks(LANES) {
                        table.update_lanes(lanes.iter().map(|index| &items[usize::from(*index)]));
                    }
                    start = end;
                }
            }
        }
    }

    /// The part of a key. Not chosen by the upper bits of the hash, because these choose the slot within a part.
    fn part(hash: u64) -> usize {
        (spread(hash) >> 16) as usize % PARTS
    }

    fn lock(&self, part: usize) -> MutexGuard<'_, Exact<K>> {
        // A thread that panicked here did so between two packets, or after an overflow that ended the run.
        self.parts[part]
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Exact<K>>> {
        (0..PARTS).map(|part| self.lock(part))
    }

    fn sum(&self, of: impl Fn(&Exact<K>) -> Counts) -> Counts {
        self.each().fold(Counts::default(), |sum, part| {
            let counts = of(&part);
            Counts {
                packets: sum.packets + counts.packets,
                bytes: sum.bytes.saturating_add(counts.bytes),
            }
        })
    }

    /// The counts of a key, if it is in the table.
    pub fn get(&self, key: &K, hash: u64) -> Option<Counts> {
        self.lock(Self::part(hash)).get(key, hash)
    }

    /// Keys and their counts, in an arbitrary order.
    pub fn entries(&self) -> Vec<(K, Counts)> {
        self.each()
            .flat_map(|part| part.iter().collect::<Vec<_>>())
            .collect()
    }

    /// The `k` heaviest keys, as [`Exact::top`].
    pub fn top(&self, k: usize, weigh: Weigh) -> Vec<(K, Counts)> {
        let best = self.each().flat_map(|part| part.top(k, weigh)).collect();
        split_largest(best, k, |(key, counts)| (counts.by(weigh), *key)).0
    }

    /// Number of keys in the table.
    pub fn len(&self) -> usize {
        self.each().map(|part| part.len()).sum()
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that the table can hold, if they fall evenly into the parts.
    pub fn capacity(&self) -> usize {
        self.each().map(|part| part.capacity()).sum()
    }

    /// Whether a new key may find no room.
    pub fn is_full(&self) -> bool {
        self.each().any(|part| part.is_full())
    }

    /// Counts of packets whose keys found no room.
    pub fn untracked(&self) -> Counts {
        self.sum(Exact::untracked)
    }

    /// Counts of all packets, untracked or not.
    pub fn total(&self) -> Counts {
        self.sum(Exact::total)
    }

    /// Memory of the tables, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.each().map(|part| part.memory_bytes()).sum()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.lock(0).seed()
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        for part in self.each() {
            let mut part = part;
            part.clear();
        }
    }

    /// Adds all counts of the parts to one table, as [`Exact::merge`] does.
    ///
    /// No two parts hold packets of one key, so untracked packets of one part cast no doubt on keys of the others.
    ///
    /// **Errors**: as of [`Exact::merge`]; then some parts have already been added.
    pub fn merge_into(
        &self,
        table: &mut Exact<K>,
        mut hash: impl FnMut(&K) -> u64,
    ) -> Result<(), Error> {
        let doubt = table.doubt_with(self.total(), self.untracked(), Counts::default());
        for part in self.each() {
            table.take(&part, &mut hash)?;
        }
        table.doubt = doubt;
        Ok(())
    }
}
