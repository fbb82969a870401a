//! Exact counts of every key, until the memory is full.
//!
//! Open addressing with linear probing. A slot is 32 bytes for keys of up to 16 bytes and one cache line for keys of up
//! to 48, so that a key costs one line of memory wherever it is. A batch touches the slots of all its keys before it
//! counts the first, so that their cache misses overlap.

mod image;
mod shared;

pub use shared::SharedExact;

use core::borrow::Borrow;

use weir_memory::{Request, Table};
use zerocopy::FromZeros;

use crate::error::alike;
use crate::{Counts, Error, Key, LANES, Packet, Weigh, place, same, split_largest, spread};

/// A key and its counts; no packets means no key.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Slot<K> {
    packets: u64,
    bytes: u64,
    key: K,
}

/// Exact packets and bytes of every key, until its memory is full.
///
/// When 7/8 of the slots are taken, packets of further keys are counted in [`untracked`](Self::untracked) and nowhere
/// else; the counts of keys that are in stay exact.
///
/// **Cost**: an update touches one or two cache lines; near the limit a new key looks at some 30 slots that lie in a
/// row.
/// **Error bound**: none as long as `untracked` is zero. After merges with a table that had untracked packets, counts
/// may be below the truth by up to [`doubt`](Self::doubt).
pub struct Exact<K> {
    slots: Table<Slot<K>>,
    len: usize,
    capacity: usize,
    seed: u64,
    total: Counts,
    untracked: Counts,
    doubt: Counts,
}

impl<K: Key> Exact<K> {
    /// A table of at most `memory_bytes`; `seed` names the hash that its keys will come with.
    ///
    /// **Errors**: the memory cannot be had, or does not hold a key.
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        let slots = memory_bytes / size_of::<Slot<K>>();
        if slots < 2 {
            return Err(Error::TooLittleMemory { given: memory_bytes, least: 2 * size_of::<Slot<K>>() });
        }
        Ok(Self {
            slots: Table::zeroed(slots, request)?,
            len: 0,
            // Of two slots one, so that there is always a free one to end a search.
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
        let mut homes = [0; LANES];
        let (mut packets, mut bytes) = (0, 0);
        for (home, item) in homes.iter_mut().zip(items.clone()) {
            *home = self.home(item.hash());
            weir_memory::prefetch(&self.slots, *home);
            packets += 1;
            bytes += u64::from(item.bytes());
        }
        self.total.packets += packets;
        self.total.bytes = self.total.bytes.saturating_add(bytes);
        for (home, item) in homes.iter().zip(items) {
            self.add(*home, item.key().borrow(), Counts { packets: 1, bytes: u64::from(item.bytes()) });
        }
    }

    /// Adds to the counts of a key, or to those of no key. `counts.packets` is not zero.
    #[inline(always)]
    fn add(&mut self, home: usize, key: &K, counts: Counts) {
        let mut at = home;
        loop {
            let slot = &mut self.slots[at];
            if slot.packets == 0 {
                break;
            }
            if same(&slot.key, key) {
                slot.packets += counts.packets;
                slot.bytes = slot.bytes.saturating_add(counts.bytes);
                return;
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
        if self.len < self.capacity {
            self.slots[at] = Slot { packets: counts.packets, bytes: counts.bytes, key: *key };
            self.len += 1;
        } else {
            self.untracked.packets += counts.packets;
            self.untracked.bytes = self.untracked.bytes.saturating_add(counts.bytes);
        }
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        place(spread(hash), self.slots.len())
    }

    /// The counts of a key, if it is in.
    pub fn get(&self, key: &K, hash: u64) -> Option<Counts> {
        let home = self.home(hash);
        let probes = self.slots[home..].iter().chain(&self.slots[..home]);
        let mut taken = probes.take_while(|slot| slot.packets != 0);
        taken.find(|slot| same(&slot.key, key)).map(Slot::counts)
    }

    /// Keys and their counts, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (K, Counts)> {
        self.slots.iter().filter(|slot| slot.packets != 0).map(|slot| (slot.key, slot.counts()))
    }

    /// The `k` keys that weigh most, heaviest first; equal weights in the order of their key's bytes.
    ///
    /// **Cost**: allocates and looks at all keys.
    pub fn top(&self, k: usize, weigh: Weigh) -> Vec<(K, Counts)> {
        self.ranking(k, weigh).0
    }

    /// The keys of [`top`](Self::top), and what any key that is not among them may weigh at most.
    ///
    /// **Cost**: allocates and looks at all keys.
    pub fn ranking(&self, k: usize, weigh: Weigh) -> (Vec<(K, Counts)>, u64) {
        let (listed, others) = split_largest(self.iter().collect(), k, |(key, counts)| (counts.by(weigh), *key));
        let most = others.iter().map(|(_, counts)| counts.by(weigh).saturating_add(self.doubt.by(weigh))).max();
        (listed, most.unwrap_or(0).max(self.untracked.by(weigh)))
    }

    /// Keys that are in.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is no key in?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys that find room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Will the next new key be turned away? Whether one has been, [`untracked`](Self::untracked) says.
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// What was counted for keys that found no room.
    ///
    /// A key that is not in has had no more than this.
    pub fn untracked(&self) -> Counts {
        self.untracked
    }

    /// How much more than its counts here a key that is in may have had: nothing, unless a merge brought untracked packets
    /// together with keys that might have been theirs. Never more than [`untracked`](Self::untracked).
    pub fn doubt(&self) -> Counts {
        self.doubt
    }

    /// All that was counted, untracked or not.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// Bytes of its table.
    pub fn memory_bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<K>>()
    }

    /// What the memory of its table really is, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.slots.obtained()
    }

    /// What the hash was seeded with, as told at the start.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.slots.fill(Slot::new_zeroed());
        self.len = 0;
        (self.total, self.untracked, self.doubt) = Default::default();
    }

    /// Adds all that `other` has counted; `hash` is the hash that both were fed with.
    ///
    /// If both together find room, this equals one table of both streams. Keys of `other` that find none go to
    /// [`untracked`](Self::untracked), as do its own untracked counts. What was untracked on one side may belong to a
    /// key that is in on the other alone: [`doubt`](Self::doubt) grows by that, and is never more than what is untracked.
    ///
    /// **Errors**: the totals of both pass 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self, hash: impl FnMut(&K) -> u64) -> Result<(), Error> {
        let doubt = self.doubt_with(other.total, other.untracked, other.doubt);
        self.take(other, hash)?;
        self.doubt = doubt;
        Ok(())
    }

    /// The doubt once a table with these counts is merged into this one.
    ///
    /// A key that is in here alone misses at most the doubt here and what was untracked there, and the other way round; a
    /// key that is in on both sides misses at most both doubts, which is less.
    fn doubt_with(&self, total: Counts, untracked: Counts, doubt: Counts) -> Counts {
        let both = self.total.packets > 0 && total.packets > 0;
        let grown = |of: fn(Counts) -> u64| {
            let (here, there) = (of(self.doubt), of(doubt));
            if !both {
                return here.max(there);
            }
            here.saturating_add(of(untracked)).max(there.saturating_add(of(self.untracked)))
        };
        Counts { packets: grown(|counts| counts.packets), bytes: grown(|counts| counts.bytes) }
    }

    /// Adds all that `other` has counted, but for the doubt.
    fn take(&mut self, other: &Self, mut hash: impl FnMut(&K) -> u64) -> Result<(), Error> {
        alike("hash seed", self.seed, other.seed)?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        self.untracked.packets += other.untracked.packets;
        self.untracked.bytes += other.untracked.bytes;
        for (key, counts) in other.iter() {
            self.add(self.home(hash(&key)), &key, counts);
        }
        Ok(())
    }
}

impl<K> Slot<K> {
    fn counts(&self) -> Counts {
        Counts { packets: self.packets, bytes: self.bytes }
    }
}

impl<K> core::fmt::Debug for Exact<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Exact({} of {} keys, {:?})", self.len, self.capacity, self.total)
    }
}
