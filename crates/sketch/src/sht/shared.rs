//! A table that several threads update at once.

use core::borrow::Borrow;

use weir_memory::{Request, Table};

use super::slot::{self, Added, AtomicU64, HEAD, Ordering};
use super::{SimpleTable, Slot};
use crate::{Counts, Error, Key, LANES, Packet, place, spread};

/// A [`SimpleTable`] that several threads update at once, without losing an update: after all updates, the counts in the slots
/// and the evicted counts add up to the packets of all threads.
///
/// Which of two keys stays in a slot depends on the order in which threads reach it. One thread makes the same table as
/// [`SimpleTable`].
///
/// **Cost**: as of `SimpleTable`, and one compare-and-swap for each packet; for each batch, up to four atomic additions to the
/// totals. A thread that meets another in a slot waits for it. **Threads**: any thread may call any method.
#[derive(Debug)]
pub struct SharedSimpleTable<K> {
    /// Words of all slots, [`Self::STRIDE`] for each.
    words: Table<AtomicU64>,
    slots: usize,
    seed: u64,
    totals: Totals,
    _keys: core::marker::PhantomData<K>,
}

/// Totals of all threads, in a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Totals {
    packets: AtomicU64,
    bytes: AtomicU64,
    evicted_packets: AtomicU64,
    evicted_bytes: AtomicU64,
    len: AtomicU64,
}

impl<K: Key> SharedSimpleTable<K> {
    /// Words of a slot: as many as a slot of [`SimpleTable`] takes, so that both forms have the same slots.
    const STRIDE: usize = size_of::<Slot<K>>() / size_of::<u64>();

    /// A table of at most `memory_bytes`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: as of [`SimpleTable::new`].
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        const { assert!(HEAD + size_of::<K>().div_ceil(size_of::<u64>()) <= Self::STRIDE) };
        let slots = memory_bytes / size_of::<Slot<K>>();
        if slots == 0 {
            return Err(Error::TooLittleMemory {
                given: memory_bytes,
                least: size_of::<Slot<K>>(),
            });
        }
        Ok(Self {
            words: Table::zeroed(slots * Self::STRIDE, request)?,
            slots,
            seed,
            totals: Totals::default(),
            _keys: core::marker::PhantomData,
        })
    }

    /// Counts a batch of packets.
    pub fn update<P: Packet<K>>(&self, items: &[P]) {
        self.update_and_tell(items, |_| {});
    }

    /// Counts a batch of packets. Calls `new` with the index of each packet whose key was not in its slot before.
    pub fn update_and_tell<P: Packet<K>>(&self, items: &[P], mut new: impl FnMut(usize)) {
        for (batch, items) in items.chunks(LANES).enumerate() {
            let mut homes = [0; LANES];
            for (home, item) in homes.iter_mut().zip(items) {
                *home = self.home(item.hash());
                weir_memory::prefetch(&self.words, *home);
            }
            let (mut bytes, mut first) = (0, 0);
            let mut evicted = Counts::default();
            for (i, (home, item)) in homes.iter().zip(items).enumerate() {
                let size = u64::from(item.bytes());
                bytes += size;
                match slot::add(self.words_at(*home), item.key().borrow().as_bytes(), size) {
                    Added::Known => continue,
                    Added::First => first += 1,
                    Added::Replaced(counts) => {
                        evicted.packets += counts.packets;
                        evicted.bytes = evicted.bytes.saturating_add(counts.bytes);
                    }
                }
                new(batch * LANES + i);
            }
            self.totals.add(items.len() as u64, bytes, first, evicted);
        }
    }

    /// Index of the first word of a hash's slot.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        place(spread(hash), self.slots) * Self::STRIDE
    }

    #[inline(always)]
    fn words_at(&self, home: usize) -> &[AtomicU64] {
        &self.words[home..home + Self::STRIDE]
    }

    /// The key of a slot and its counts, at one instant; `None` for a free slot. `buffer` has room for the bytes of a key.
    fn read(&self, home: usize, buffer: &mut [u8]) -> Option<(K, Counts)> {
        let counts = slot::read(self.words_at(home), buffer)?;
        let key =
            K::try_read_from_bytes(buffer).expect("the bytes of a key, as an update stored them");
        Some((key, counts))
    }

    /// The counts of a key, if it is in the table.
    ///
    /// **Cost**: takes the lock of the slot.
    pub fn get(&self, key: &K, hash: u64) -> Option<Counts> {
        let (found, counts) = self.read(self.home(hash), &mut vec![0; size_of::<K>()])?;
        crate::same(&found, key).then_some(counts)
    }

    /// Keys and their counts, in an arbitrary order. During updates, slots are read one after the other.
    pub fn entries(&self) -> Vec<(K, Counts)> {
        let mut buffer = vec![0; size_of::<K>()];
        (0..self.slots)
            .filter_map(|slot| self.read(slot * Self::STRIDE, &mut buffer))
            .collect()
    }

    /// Number of keys in the table.
    pub fn len(&self) -> usize {
        self.totals.len.load(Ordering::Relaxed) as usize
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of slots.
    pub fn capacity(&self) -> usize {
        self.slots
    }

    /// Counts that keys had when other keys replaced them.
    pub fn evicted(&self) -> Counts {
        Counts {
            packets: self.totals.evicted_packets.load(Ordering::Relaxed),
            bytes: self.totals.evicted_bytes.load(Ordering::Relaxed),
        }
    }

    /// Counts of the packets of all finished batches.
    pub fn total(&self) -> Counts {
        Counts {
            packets: self.totals.packets.load(Ordering::Relaxed),
            bytes: self.totals.bytes.load(Ordering::Relaxed),
        }
    }

    /// Memory of the table, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// The memory that the table really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.words.obtained()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
        self.totals = Totals::default();
    }

    /// A copy that is no longer shared, to be asked, merged or written. Exact if no thread updates the table in the meantime.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn snapshot(&self, request: &Request) -> Result<SimpleTable<K>, Error> {
        let mut table = SimpleTable::new(self.memory_bytes(), self.seed, request)?;
        let mut buffer = vec![0; size_of::<K>()];
        for (at, slot) in table.slots.iter_mut().enumerate() {
            if let Some((key, counts)) = self.read(at * Self::STRIDE, &mut buffer) {
                *slot = Slot {
                    packets: counts.packets,
                    bytes: counts.bytes,
                    key,
                };
            }
        }
        table.len = self.len();
        table.total = self.total();
        table.evicted = self.evicted();
        Ok(table)
    }
}

impl Totals {
    /// Adds the totals of one batch.
    #[inline(always)]
    fn add(&self, packets: u64, bytes: u64, first: u64, evicted: Counts) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if first > 0 {
            self.len.fetch_add(first, Ordering::Relaxed);
        }
        if evicted.packets > 0 {
            self.evicted_packets
                .fetch_add(evicted.packets, Ordering::Relaxed);
            self.evicted_bytes
                .fetch_add(evicted.bytes, Ordering::Relaxed);
        }
    }
}
