//! Set-per-entry Reversible Sketch: a reproduction of the form that a study of 100 Gbit/s measurement compared.
//!
//! ```text
//! entry     a counter, and for each of the five parts of a flow key the set of the values seen, at most 16 of them
//! update    one entry in each row: add to the counter, and insert each part into its set
//! recover   the heavy entries of each row; all keys of parts that some heavy entry of each row has; the keys that hash to
//!           these entries
//! ```
//!
//! **A reproduction, not a recommendation.** The study reports 2.14 microseconds for an update of such a sketch. Its sets grow
//! without limit, because each entry collects the parts of all flows that fall into it. Written with the sets of common
//! libraries, it costs 2.8 to 5.3 microseconds and 2.2 set elements per packet. Here the sets have a limit and lie in the
//! entry: no update allocates. A full set only notes that a value was left out. Still, a packet searches 20 sets in four rows
//! and touches up to 80 cache lines, where a [`Reversible`](crate::Reversible) sketch touches seven. For a skewed stream of
//! a million keys, an update takes 200 ns in 4 MiB, where nearly all sets are full, and 750 ns in 64 MiB; with locks 250 and
//! 1240 ns. An update of `Reversible` takes 13 ns in 4 MiB.
//!
//! **Bound**: a count of [`estimate`](ReversibleSets::estimate) is never below the truth; nothing is known about its excess.
//! Keys can be missing if a set is full, and the recovery says whether that is possible.
//!
//! **Source**: the slides of Wu, Li, Ran, Luo, on network measurement at 100 Gbit/s on many cores (INDIS 2016), which give the
//! entry as "counter and several sets"; what a set holds is our reading.

mod image;
mod recovery;
mod shared;

pub use shared::SharedReversibleSets;

use weir_memory::{Request, Table};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::cms::{Columns, Shape};
use crate::error::alike;
use crate::{Counts, Error, Key, LANES, Packet, Weigh};

/// Number of parts of a key.
pub const PARTS: usize = 5;

/// Values that a set holds at most.
const CAP: usize = 16;
const ROWS: usize = 4;

/// The five parts of a flow key, and the key of five parts.
pub trait Parts: core::fmt::Debug + Send + Sync + 'static {
    /// Key that has the parts.
    type Key: Key;

    /// The parts: two addresses, two ports, the protocol and all that is left.
    fn split(key: &Self::Key) -> [u128; PARTS];

    /// The key of these parts, such that `split` gives the parts; `None` if there is none.
    fn join(parts: &[u128; PARTS]) -> Option<Self::Key>;
}

/// A counter and the values of each part.
#[derive(Clone, Copy, FromZeros, IntoBytes, Immutable)]
#[repr(C, align(16))]
struct Entry {
    packets: u64,
    bytes: u64,
    sets: [Set; PARTS],
}

/// Different values of a part.
#[derive(Clone, Copy, FromZeros, IntoBytes, Immutable)]
#[repr(C, align(16))]
struct Set {
    values: [u128; CAP],
    len: u64,
    /// 1 if a value was left out.
    overflowed: u64,
}

/// For each part: the values, and whether one was left out.
pub(crate) type Sets = [(Vec<u128>, bool); PARTS];

impl Set {
    fn values(&self) -> &[u128] {
        &self.values[..self.len as usize]
    }

    #[inline]
    fn insert(&mut self, value: u128) {
        if self.values().contains(&value) {
            return;
        }
        if let Some(free) = self.values.get_mut(self.len as usize) {
            *free = value;
            self.len += 1;
        } else {
            self.overflowed = 1;
        }
    }

    /// Whether the value may have been inserted.
    fn may_contain(&self, value: u128) -> bool {
        self.overflowed != 0 || self.values().contains(&value)
    }
}

impl Entry {
    #[inline]
    fn add(&mut self, counts: Counts, parts: &[u128; PARTS]) {
        self.packets = self.packets.saturating_add(counts.packets);
        self.bytes = self.bytes.saturating_add(counts.bytes);
        for (set, part) in self.sets.iter_mut().zip(parts) {
            set.insert(*part);
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            packets: self.packets,
            bytes: self.bytes,
        }
    }

    fn is_overflowed(&self) -> bool {
        self.sets.iter().any(|set| set.overflowed != 0)
    }

    fn merge(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (set, other) in self.sets.iter_mut().zip(&other.sets) {
            other.values().iter().for_each(|value| set.insert(*value));
            set.overflowed |= other.overflowed;
        }
    }
}

/// Counts of flows in entries that remember the parts of their keys: a labelled reproduction, see the text of this module.
///
/// **Cost**: microseconds. **Error bound**: counts are never below the truth. **Merge**: counters are added, sets united; equal
/// to one sketch of both streams unless a set is full.
pub struct ReversibleSets<P> {
    /// Row after row.
    entries: Table<Entry>,
    shape: Shape,
    seed: u64,
    total: Counts,
    parts: core::marker::PhantomData<P>,
}

/// Heavy keys of a [`ReversibleSets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetKeys<K> {
    /// Keys and the least counts of their entries, heaviest first.
    pub heavy: Vec<(K, Counts)>,
    /// Whether no set of a heavy entry was full, and the search ended by itself. Otherwise keys may be missing.
    pub is_complete: bool,
}

/// Heaviest keys of a [`ReversibleSets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRanking<K> {
    /// Keys and the least counts of their entries, heaviest first.
    pub listed: Vec<(K, Counts)>,
    /// Largest possible weight of a key that is not listed.
    pub at_most: u64,
}

impl<P: Parts> ReversibleSets<P> {
    /// A sketch of at most `memory_bytes`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained, or is too small for one entry in each of four rows.
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        let shape = Shape::for_memory(memory_bytes, ROWS, size_of::<Entry>())?;
        Self::of(shape, seed, request)
    }

    fn of(shape: Shape, seed: u64, request: &Request) -> Result<Self, Error> {
        Ok(Self {
            entries: Table::zeroed(shape.cells(), request)?,
            shape,
            seed,
            total: Counts::default(),
            parts: core::marker::PhantomData,
        })
    }

    /// Counts a batch of packets.
    pub fn update<I: Packet<P::Key>>(&mut self, items: &[I]) {
        use core::borrow::Borrow;
        for items in items.chunks(LANES) {
            for item in items {
                let mut columns = Columns::new(self.shape, item.hash());
                (0..ROWS).for_each(|_| weir_memory::prefetch_all(&self.entries, columns.step()));
            }
            for item in items {
                let counts = Counts {
                    packets: 1,
                    bytes: item.bytes().into(),
                };
                let parts = P::split(item.key().borrow());
                let mut columns = Columns::new(self.shape, item.hash());
                (0..ROWS).for_each(|_| self.entries[columns.step()].add(counts, &parts));
                self.total.packets = self.total.packets.saturating_add(1);
                self.total.bytes = self.total.bytes.saturating_add(counts.bytes);
            }
        }
    }

    /// Upper bounds of a key's packets and bytes: the least counts of its entries.
    pub fn estimate(&self, hash: u64) -> Counts {
        let mut columns = Columns::new(self.shape, hash);
        let mut counts = (0..ROWS).map(|_| self.entries[columns.step()].counts());
        let first = counts.next().unwrap_or_default();
        counts.fold(first, |least, counts| Counts {
            packets: least.packets.min(counts.packets),
            bytes: least.bytes.min(counts.bytes),
        })
    }

    /// All keys that may weigh at least `threshold`, which is at least 1; `hash` is the hash function of the keys.
    ///
    /// **Cost**: a search in the product of five sets for each heavy entry, which stops after a bounded number of steps, about
    /// a second; allocates.
    pub fn recover(
        &self,
        threshold: u64,
        weigh: Weigh,
        hash: impl Fn(&P::Key) -> u64,
    ) -> SetKeys<P::Key> {
        recovery::recover(self, threshold.max(1), weigh, hash, recovery::WORK)
    }

    /// The `rows` heaviest keys, as far as the sets name them; `hash` is the hash function of the keys.
    ///
    /// **Cost**: some recoveries, which stop together after a bounded number of steps, about a tenth of a second; allocates.
    pub fn ranking(
        &self,
        rows: usize,
        weigh: Weigh,
        hash: impl Fn(&P::Key) -> u64,
    ) -> SetRanking<P::Key> {
        recovery::ranking(self, rows, weigh, &hash)
    }

    /// [`recover`](Self::recover) by packets with another bound on the number of visited entries.
    pub(crate) fn recover_within(
        &self,
        threshold: u64,
        work: usize,
        hash: impl Fn(&P::Key) -> u64,
    ) -> SetKeys<P::Key> {
        recovery::recover(self, threshold, Weigh::Packets, hash, work)
    }

    /// For the entries of a key: the counts, and for each part the values and whether one was left out.
    pub(crate) fn entries_of(&self, hash: u64) -> Vec<(usize, Counts, Sets)> {
        let mut columns = Columns::new(self.shape, hash);
        let entry = |_| {
            let at = columns.step();
            let entry = &self.entries[at];
            let sets = entry.sets.each_ref();
            let sets = sets.map(|set| (set.values().to_vec(), set.overflowed != 0));
            (at, entry.counts(), sets)
        };
        (0..ROWS).map(entry).collect()
    }

    fn row(&self, row: usize) -> &[Entry] {
        &self.entries[row * self.shape.width()..][..self.shape.width()]
    }

    /// Counts of all packets.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// Number of rows and of entries in a row.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of entries in which a set is full and a value was left out.
    ///
    /// **Cost**: reads all entries.
    pub fn overflowed(&self) -> usize {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.is_overflowed()).count()
    }

    /// Memory of the entries, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// The memory that the table really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.entries.obtained()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.entries.fill(Entry::new_zeroed());
        self.total = Counts::default();
    }

    /// Adds the counters of `other` and unites the sets.
    ///
    /// **Errors**: the sketches differ in shape or seed, or the sum of the totals exceeds 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        let width = |sketch: &Self| sketch.shape.width() as u64;
        alike("width", width(self), width(other))?;
        alike("hash seed", self.seed, other.seed)?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        for (entry, other) in self.entries.iter_mut().zip(other.entries.iter()) {
            entry.merge(other);
        }
        Ok(())
    }
}

impl<P> core::fmt::Debug for ReversibleSets<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ReversibleSets({:?}, {:?})", self.shape, self.total)
    }
}
