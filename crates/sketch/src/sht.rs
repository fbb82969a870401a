//! Simple Hash Table: one row of slots, each with a key and its counts.
//!
//! The hash of a key chooses one slot, and the table looks nowhere else. **If another key has the slot, the new key replaces it**,
//! and the counts of the replaced key are added to one total, [`evicted`](SimpleTable::evicted). So an update costs one cache line
//! whatever the load is, and every packet is counted exactly once: in a slot, or in the total of evicted packets.
//!
//! ```text
//! slot = slots[place of the hash]
//! slot is free:      slot = (key, packet)
//! key is in it:      slot.counts += packet
//! another key:       evicted += slot.counts; slot = (key, packet)
//! ```
//!
//! The counts of a key in the table are its packets since it was put there. They are never above the truth, and lack at most
//! the evicted packets. A user cannot choose a bound beforehand: a heavy key shares its slot with a light key by chance, and then
//! loses its counts. Until the first eviction, all counts are exact. For answers with a bound, use
//! [`Heavy`](crate::Heavy) or [`MajorityVote`](crate::MajorityVote).
//!
//! # Merge
//!
//! Slot by slot. If both slots have one key, its counts are added up; of two keys the larger stays and the other is evicted. The
//! result is not the table of both streams in a row, and depends on the order of merges. Three properties remain: counts are
//! never above the truth, lack at most the evicted packets, and every packet is counted once.
//!
//! # The shared form
//!
//! [`SharedSimpleTable`] keeps a lock in each slot: one bit of the number of packets. A thread takes the lock with a
//! compare-and-swap, changes key and counts, and stores the new number of packets without the bit.
//!
//! **Source**: Wu, Li, Ran and Luo, "Network measurement for 100 GbE network links using multicore processors" (2018), which
//! compares this table with Count-Min and a Reversible Sketch. The study leaves open how a collision ends.

mod image;
#[cfg(not(loom))]
mod shared;
#[cfg(any(test, not(loom)))]
mod slot;

#[cfg(not(loom))]
pub use shared::SharedSimpleTable;

use core::borrow::Borrow;

use weir_memory::{Request, Table};
use zerocopy::FromZeros;

use crate::error::alike;
use crate::{Counts, Error, Key, LANES, Packet, Weigh, place, same, split_largest, spread};

/// A key and its counts; a slot without packets is free.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Slot<K> {
    packets: u64,
    bytes: u64,
    key: K,
}

/// Simple Hash Table: one slot for each hash, and of two keys with one slot the newer stays.
///
/// **Cost**: an update touches one cache line for keys of up to 48 bytes; new keys cost no more than known ones. **Layout**: 32
/// bytes for keys of up to 16 bytes, 64 for up to 48. **Error bound**: none beforehand; a count is never above the truth, and
/// lacks at most [`evicted`](Self::evicted). The module's text has the rule of collisions and of merges.
pub struct SimpleTable<K> {
    slots: Table<Slot<K>>,
    len: usize,
    seed: u64,
    total: Counts,
    evicted: Counts,
}

impl<K: Key> SimpleTable<K> {
    /// A table of at most `memory_bytes`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained, or is too small for one slot.
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        let slots = memory_bytes / size_of::<Slot<K>>();
        if slots == 0 {
            return Err(Error::TooLittleMemory {
                given: memory_bytes,
                least: size_of::<Slot<K>>(),
            });
        }
        Ok(Self {
            slots: Table::zeroed(slots, request)?,
            len: 0,
            seed,
            total: Counts::default(),
            evicted: Counts::default(),
        })
    }

    /// Counts a batch of packets.
    pub fn update<P: Packet<K>>(&mut self, items: &[P]) {
        self.update_and_tell(items, |_| {});
    }

    /// Counts a batch of packets. Calls `new` with the index of each packet whose key was not in its slot before. The key may
    /// have been there earlier, and evicted since.
    pub fn update_and_tell<P: Packet<K>>(&mut self, items: &[P], new: impl FnMut(usize)) {
        self.update_as(items, |item| item, new);
    }

    /// Counts a batch of packets under the parts that `part` makes of them. `new` as in
    /// [`update_and_tell`](Self::update_and_tell).
    #[inline]
    pub fn update_as<'a, T, P: Packet<K>>(
        &mut self,
        items: &'a [T],
        part: impl Fn(&'a T) -> P,
        mut new: impl FnMut(usize),
    ) {
        for (batch, items) in items.chunks(LANES).enumerate() {
            let mut homes = [0; LANES];
            let mut bytes = 0;
            for (home, item) in homes.iter_mut().zip(items) {
                let item = part(item);
                *home = self.home(item.hash());
                weir_memory::prefetch(&self.slots, *home);
                bytes += u64::from(item.bytes());
            }
            self.total.packets = self.total.packets.saturating_add(items.len() as u64);
            self.total.bytes = self.total.bytes.saturating_add(bytes);
            for (i, (home, item)) in homes.iter().zip(items).enumerate() {
                if !self.add(*home, part(item)) {
                    new(batch * LANES + i);
                }
            }
        }
    }

    /// Counts a packet, and returns whether its key was in the slot.
    #[inline(always)]
    fn add(&mut self, home: usize, packet: impl Packet<K>) -> bool {
        let slot = &mut self.slots[home];
        let bytes = u64::from(packet.bytes());
        if slot.packets != 0 && packet.is_of(&slot.key) {
            slot.packets += 1;
            slot.bytes = slot.bytes.saturating_add(bytes);
            return true;
        }
        if slot.packets == 0 {
            self.len += 1;
        }
        // The counts of a free slot are zero.
        self.evicted.packets += slot.packets;
        self.evicted.bytes = self.evicted.bytes.saturating_add(slot.bytes);
        *slot = Slot {
            packets: 1,
            bytes,
            key: *packet.key().borrow(),
        };
        false
    }

    /// The slot of a hash.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        place(spread(hash), self.slots.len())
    }

    /// The counts of a key, if it is in the table.
    pub fn get(&self, key: &K, hash: u64) -> Option<Counts> {
        let slot = &self.slots[self.home(hash)];
        (slot.packets != 0 && same(&slot.key, key)).then(|| slot.counts())
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
    /// **Cost**: allocates, and reads all slots.
    pub fn top(&self, k: usize, weigh: Weigh) -> Vec<(K, Counts)> {
        self.ranking(k, weigh).0
    }

    /// The keys of [`top`](Self::top), and the largest count of any other key in the table.
    ///
    /// **Cost**: allocates, and reads all slots.
    pub fn ranking(&self, k: usize, weigh: Weigh) -> (Vec<(K, Counts)>, u64) {
        let (listed, others) = split_largest(self.iter().collect(), k, |(key, counts)| {
            (counts.by(weigh), *key)
        });
        let most = others.iter().map(|(_, counts)| counts.by(weigh)).max();
        (listed, most.unwrap_or(0))
    }

    /// Number of keys in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Counts that keys had when other keys replaced them.
    ///
    /// While this is zero, all counts are exact.
    pub fn evicted(&self) -> Counts {
        self.evicted
    }

    /// Counts of all packets, in the slots or evicted.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// Memory of the table, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<K>>()
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
        self.len = 0;
        (self.total, self.evicted) = Default::default();
    }

    /// Adds all counts of `other`, slot by slot. Of two keys in one slot the larger by `weigh` stays, and of equal ones the key
    /// of smaller bytes; the other key is evicted.
    ///
    /// **Errors**: the tables differ in size or seed, or the sum of the totals exceeds 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self, weigh: Weigh) -> Result<(), Error> {
        alike("slots", self.slots.len() as u64, other.slots.len() as u64)?;
        alike("hash seed", self.seed, other.seed)?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        self.evicted.packets += other.evicted.packets;
        self.evicted.bytes += other.evicted.bytes;
        for (mine, theirs) in self.slots.iter_mut().zip(other.slots.iter()) {
            if theirs.packets == 0 {
                continue;
            }
            if mine.packets == 0 {
                *mine = *theirs;
                self.len += 1;
                continue;
            }
            if same(&mine.key, &theirs.key) {
                mine.packets += theirs.packets;
                mine.bytes += theirs.bytes;
                continue;
            }
            let gone = if mine.is_before(theirs, weigh) {
                theirs.counts()
            } else {
                core::mem::replace(mine, *theirs).counts()
            };
            self.evicted.packets += gone.packets;
            self.evicted.bytes += gone.bytes;
        }
        Ok(())
    }
}

impl<K: Key> Slot<K> {
    /// Whether the key of this slot ranks before the key of the other.
    fn is_before(&self, other: &Self, weigh: Weigh) -> bool {
        let (mine, theirs) = (self.counts().by(weigh), other.counts().by(weigh));
        mine.cmp(&theirs)
            .reverse()
            .then_with(|| self.key.as_bytes().cmp(other.key.as_bytes()))
            .is_lt()
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

impl<K> core::fmt::Debug for SimpleTable<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "SimpleTable({} of {} slots, {:?}, evicted {:?})",
            self.len,
            self.slots.len(),
            self.total,
            self.evicted
        )
    }
}
