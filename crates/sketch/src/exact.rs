//! Exact counts of every key, until the memory is full.
//!
//! Open addressing with linear probing. A slot has 32 bytes for keys of up to 16 bytes, and 64 bytes, one cache line, for keys of
//! up to 48. So the lookup of a key costs one line of memory. A batch touches the slots of all its keys before it counts the
//! first packet, so that the cache misses overlap.

mod image;
mod shared;

pub use shared::SharedExact;

use core::borrow::Borrow;

use weir_memory::{Request, Table};
use zerocopy::FromZeros;

use crate::error::alike;
use crate::times::Millisecond;
use crate::{Counts, Error, Key, LANES, Packet, Times, Weigh, place, same, split_largest, spread};

/// A key and its counts; a slot without packets is free.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Slot<K> {
    packets: u64,
    bytes: u64,
    key: K,
}

/// Exact packets and bytes of every key, until the memory is full.
///
/// If 7/8 of the slots are taken, packets of further keys are only counted in [`untracked`](Self::untracked). The counts of
/// keys in the table stay exact.
///
/// **Cost**: an update touches one or two cache lines; near the limit, a new key reads some 30 slots in a row.
/// **Error bound**: none as long as `untracked` is zero. After merges with a table that had untracked packets, counts
/// may be below the truth by up to [`doubt`](Self::doubt).
pub struct Exact<K> {
    slots: Table<Slot<K>>,
    /// Times of the keys in the slots, if the table keeps them.
    times: Option<Table<Times>>,
    /// Number of packets that are in no peak.
    late: u64,
    len: usize,
    capacity: usize,
    seed: u64,
    total: Counts,
    untracked: Counts,
    doubt: Counts,
}

impl<K: Key> Exact<K> {
    /// A table of at most `memory_bytes`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained, or is too small for one key.
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        Self::of_memory(memory_bytes, seed, request, false)
    }

    /// A table that also keeps the [times](Times) of its keys: 32 bytes for each.
    ///
    /// **Errors**: as of [`new`](Self::new).
    pub fn with_times(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        Self::of_memory(memory_bytes, seed, request, true)
    }

    fn of_memory(
        memory_bytes: usize,
        seed: u64,
        request: &Request,
        has_times: bool,
    ) -> Result<Self, Error> {
        let times = if has_times { size_of::<Times>() } else { 0 };
        let slot = size_of::<Slot<K>>() + times;
        let slots = memory_bytes / slot;
        if slots < 2 {
            return Err(Error::TooLittleMemory {
                given: memory_bytes,
                least: 2 * slot,
            });
        }
        let times = has_times.then(|| Table::zeroed(slots, request));
        Ok(Self {
            slots: Table::zeroed(slots, request)?,
            times: times.transpose()?,
            late: 0,
            len: 0,
            // At least one slot stays free, also of two slots, so that every search ends.
            capacity: slots - slots.div_ceil(8),
            seed,
            total: Counts::default(),
            untracked: Counts::default(),
            doubt: Counts::default(),
        })
    }

    /// Counts a batch of packets.
    pub fn update<P: Packet<K>>(&mut self, items: &[P]) {
        for items in items.chunks(LANES) {
            self.update_lanes(items.iter());
        }
    }

    /// Counts at most [`LANES`] packets.
    #[inline(always)]
    fn update_lanes<'a, P: Packet<K> + 'a>(&mut self, items: impl Iterator<Item = &'a P> + Clone) {
        match self.times {
            Some(_) => self.count_lanes::<P, true>(items),
            None => self.count_lanes::<P, false>(items),
        }
    }

    /// The same; without `TIMES`, the table keeps no times.
    #[inline(always)]
    fn count_lanes<'a, P: Packet<K> + 'a, const TIMES: bool>(
        &mut self,
        items: impl Iterator<Item = &'a P> + Clone,
    ) {
        let mut homes = [0; LANES];
        let (mut packets, mut bytes) = (0, 0);
        for (home, item) in homes.iter_mut().zip(items.clone()) {
            *home = self.home(item.hash());
            weir_memory::prefetch(&self.slots, *home);
            if TIMES && let Some(times) = &self.times {
                weir_memory::prefetch(times, *home);
            }
            packets += 1;
            bytes += u64::from(item.bytes());
        }
        self.total.packets += packets;
        self.total.bytes = self.total.bytes.saturating_add(bytes);
        let mut now = Millisecond::NONE;
        for (home, item) in homes.iter().zip(items) {
            let placed = self.add(
                *home,
                item.key().borrow(),
                Counts {
                    packets: 1,
                    bytes: u64::from(item.bytes()),
                },
            );
            if TIMES && let (Some(times), Some(at)) = (&mut self.times, placed) {
                self.late += u64::from(times[at].add(item.time_ns(), item.bytes(), &mut now));
            }
        }
    }

    /// Adds to the counts of a key, or to `untracked` if the key finds no room, and returns its slot. `counts.packets` is not zero.
    #[inline(always)]
    fn add(&mut self, home: usize, key: &K, counts: Counts) -> Option<usize> {
        let mut at = home;
        loop {
            let slot = &mut self.slots[at];
            if slot.packets == 0 {
                break;
            }
            if same(&slot.key, key) {
                slot.packets += counts.packets;
                slot.bytes = slot.bytes.saturating_add(counts.bytes);
                return Some(at);
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
        if self.len < self.capacity {
            self.slots[at] = Slot {
                packets: counts.packets,
                bytes: counts.bytes,
                key: *key,
            };
            self.len += 1;
            if let Some(times) = &mut self.times {
                times[at] = Times::NONE;
            }
            Some(at)
        } else {
            self.untracked.packets += counts.packets;
            self.untracked.bytes = self.untracked.bytes.saturating_add(counts.bytes);
            None
        }
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        place(spread(hash), self.slots.len())
    }

    /// The counts of a key, if it is in the table.
    pub fn get(&self, key: &K, hash: u64) -> Option<Counts> {
        self.find(key, hash).map(|at| self.slots[at].counts())
    }

    /// The slot of a key, if it is in the table.
    fn find(&self, key: &K, hash: u64) -> Option<usize> {
        let home = self.home(hash);
        let mut probes = (home..self.slots.len()).chain(0..home);
        let found = probes.find(|at| {
            let slot = &self.slots[*at];
            slot.packets == 0 || same(&slot.key, key)
        })?;
        (self.slots[found].packets != 0).then_some(found)
    }

    /// Times of a key; `None` if the table keeps no times, or may have had no room for packets of the key.
    pub fn times(&self, key: &K, hash: u64) -> Option<Times> {
        let times = self.times.as_ref()?;
        let none = Counts::default();
        match self.find(key, hash) {
            Some(at) => (self.doubt == none).then(|| times[at]),
            None => (self.untracked == none).then_some(Times::NONE),
        }
    }

    /// Number of packets that are in no [peak](Times::peak), because their milliseconds were over.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Keys and their counts, in an arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (K, Counts)> {
        self.slots
            .iter()
            .filter(|slot| slot.packets != 0)
            .map(|slot| (slot.key, slot.counts()))
    }

    /// The `k` heaviest keys, heaviest first; keys of equal weight in the order of their bytes.
    ///
    /// **Cost**: allocates, and reads all keys.
    pub fn top(&self, k: usize, weigh: Weigh) -> Vec<(K, Counts)> {
        self.ranking(k, weigh).0
    }

    /// The keys of [`top`](Self::top), and the largest possible weight of any other key.
    ///
    /// **Cost**: allocates, and reads all keys.
    pub fn ranking(&self, k: usize, weigh: Weigh) -> (Vec<(K, Counts)>, u64) {
        let (listed, others) = split_largest(self.iter().collect(), k, |(key, counts)| {
            (counts.by(weigh), *key)
        });
        let most = others
            .iter()
            .map(|(_, counts)| counts.by(weigh).saturating_add(self.doubt.by(weigh)))
            .max();
        (listed, most.unwrap_or(0).max(self.untracked.by(weigh)))
    }

    /// Number of keys in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of keys that the table can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the next new key will find no room. [`untracked`](Self::untracked) says whether a key already found none.
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Counts of packets whose keys found no room.
    ///
    /// No key outside the table weighs more than this.
    pub fn untracked(&self) -> Counts {
        self.untracked
    }

    /// Largest weight that the counts of a key in the table may lack. Zero unless a merge combined untracked packets with keys to
    /// which they may belong. Never more than [`untracked`](Self::untracked).
    pub fn doubt(&self) -> Counts {
        self.doubt
    }

    /// Counts of all packets, untracked or not.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// Memory of the table, bytes.
    pub fn memory_bytes(&self) -> usize {
        let times = self.times.as_ref().map_or(0, |times| times.len());
        self.slots.len() * size_of::<Slot<K>>() + times * size_of::<Times>()
    }

    /// The memory that the table really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.slots.obtained()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(Slot::new_zeroed());
        (self.len, self.late) = (0, 0);
        (self.total, self.untracked, self.doubt) = Default::default();
    }

    /// Adds all counts of `other`; `hash` is the hash function of the keys of both tables.
    ///
    /// If the keys of both tables fit, the result equals one table of both streams. Keys of `other` that find no room are
    /// added to [`untracked`](Self::untracked), as are the untracked counts of `other`. Untracked packets of one table may
    /// belong to a key that is in the other alone: [`doubt`](Self::doubt) grows by them, but never exceeds the untracked
    /// counts.
    ///
    /// **Errors**: the sum of the totals exceeds 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self, hash: impl FnMut(&K) -> u64) -> Result<(), Error> {
        let doubt = self.doubt_with(other.total, other.untracked, other.doubt);
        self.take(other, hash)?;
        self.doubt = doubt;
        Ok(())
    }

    /// The doubt after a table with these counts is merged into this one.
    ///
    /// If a key is in one table alone, its counts lack at most the doubt of that table and the untracked counts of the
    /// other. The counts of a key in both tables lack at most both doubts, which is less.
    fn doubt_with(&self, total: Counts, untracked: Counts, doubt: Counts) -> Counts {
        let both = self.total.packets > 0 && total.packets > 0;
        let grown = |of: fn(Counts) -> u64| {
            let (here, there) = (of(self.doubt), of(doubt));
            if !both {
                return here.max(there);
            }
            here.saturating_add(of(untracked))
                .max(there.saturating_add(of(self.untracked)))
        };
        Counts {
            packets: grown(|counts| counts.packets),
            bytes: grown(|counts| counts.bytes),
        }
    }

    /// Adds all counts of `other`, except for the doubt.
    fn take(&mut self, other: &Self, mut hash: impl FnMut(&K) -> u64) -> Result<(), Error> {
        alike("hash seed", self.seed, other.seed)?;
        alike(
            "times",
            self.times.is_some().into(),
            other.times.is_some().into(),
        )?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        self.untracked.packets += other.untracked.packets;
        self.untracked.bytes += other.untracked.bytes;
        self.late += other.late;
        for (at, slot) in other.slots.iter().enumerate() {
            if slot.packets == 0 {
                continue;
            }
            let mine = self.add(self.home(hash(&slot.key)), &slot.key, slot.counts());
            if let (Some(times), Some(theirs), Some(mine)) = (&mut self.times, &other.times, mine) {
                times[mine] = times[mine].and(theirs[at]);
            }
        }
        Ok(())
    }
}

impl<K> Slot<K> {
    fn counts(&self) -> Counts {
        Counts {
            packets: self.packets,
            bytes: self.bytes,
        }
    }
}

impl<K> core::fmt::Debug for Exact<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Exact({} of {} keys, {:?})",
            self.len, self.capacity, self.total
        )
    }
}
