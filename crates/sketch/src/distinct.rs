//! Number of distinct keys: two independent estimators.
//!
//! [`Distinct`] counts hashes that the caller has seeded, so that a sender without the seed cannot choose keys that bend its
//! estimate. [`Mergeable`] is the HyperLogLog of the Apache DataSketches library, whose images other engines read and merge.
//! The seed of its hash is public, so a sender who chooses the keys can make its estimate as small or as large as desired.

mod mergeable;
mod seeded;

pub use mergeable::Mergeable;
use seeded::Seeded;

use weir_memory::{Request, Table};

use crate::Error;
use crate::error::alike;

/// Number of slots for recently seen keys, which are kept off the estimator. Of a million flows by Zipf's law (exponent 1.1),
/// 22 % of the packets get past this many slots; 30 % get past 8192.
const RECENT: usize = 32_768;

/// A count of distinct keys that hostile traffic cannot bend.
///
/// The estimate is from a HyperLogLog over hashes from the caller. Up to 49 152 keys it is the exact
/// number of different hashes. A small table of recently seen hashes is checked first. If a caller
/// can distinguish the first packet of a key from later packets, only the first packet need be
/// counted.
///
/// **Cost**: 128 KiB for the table and 688 KiB for the estimator, of which few keys touch 32 KiB; no update allocates. **Error bound**: probabilistic,
/// [`range`](Self::range).
pub struct Distinct {
    seeded: Seeded,
    /// Slots, chosen by the low bits of a hash; each holds the upper half of its last hash, with the last bit set to one.
    recent: Table<u32>,
    seed: u64,
}

impl Distinct {
    /// An empty count; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn new(seed: u64, request: &Request) -> Result<Self, Error> {
        let (seeded, recent) = (Seeded::new(request)?, Table::zeroed(RECENT, request)?);
        Ok(Self {
            seeded,
            recent,
            seed,
        })
    }

    /// Counts the key with this hash, unless it was counted before.
    ///
    /// Keys whose hashes agree in 46 bits may be taken for the same key: a share of less than n / 2^46 of n keys.
    #[inline]
    pub fn see(&mut self, hash: u64) {
        if self.is_new(hash) {
            self.add(hash);
        }
    }

    /// Prefetches the memory that [`is_new`](Self::is_new) will read.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        weir_memory::prefetch(&self.recent, hash as usize % RECENT);
    }

    /// Whether the key with this hash was not seen recently; marks it as seen. A new key is to be
    /// [added](Self::add).
    ///
    /// **Cost**: a load and a store, no branch. For a batch, call this for all packets first: the answers do not wait for
    /// each other.
    #[inline(always)]
    pub fn is_new(&mut self, hash: u64) -> bool {
        is_new(&mut self.recent[hash as usize % RECENT], hash)
    }

    /// [`is_new`](Self::is_new) for up to 64 hashes: bit i is the answer for hash i.
    #[inline]
    pub fn are_new(&mut self, hashes: impl Iterator<Item = u64>) -> u64 {
        let Some(recent) = self.recent.first_chunk_mut::<RECENT>() else {
            return u64::MAX;
        };
        hashes.enumerate().fold(0, |new, (i, hash)| {
            new | u64::from(is_new(&mut recent[hash as usize % RECENT], hash))
                << (i % u64::BITS as usize)
        })
    }

    /// Counts the key with this hash, unless it was counted before, without checking the recently seen keys.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        self.seeded.add(hash);
    }

    /// Estimated number of distinct keys.
    pub fn estimate(&self) -> f64 {
        self.seeded.estimate()
    }

    /// A range that holds the true number with a probability of 95 % (two standard errors), also for hostile keys, if the
    /// sender does not know the seed.
    pub fn range(&self) -> (f64, f64) {
        self.seeded.range()
    }

    /// Memory of the tables, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.recent) + self.seeded.memory_bytes()
    }

    /// Forgets everything; keeps the tables.
    pub fn clear(&mut self) {
        self.seeded.clear();
        self.recent.fill(0);
    }

    /// Adds all keys of `other`: the estimate then equals one count of both streams.
    ///
    /// **Errors**: the hash seeds differ; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        alike("hash seed", self.seed, other.seed)?;
        self.seeded.merge(&other.seeded);
        Ok(())
    }
}

/// Whether this hash differs from the last hash of its slot. Stores the hash as the last.
#[inline(always)]
fn is_new(recent: &mut u32, hash: u64) -> bool {
    // An unused slot holds zero.
    let upper = (hash >> 32) as u32 | 1;
    let new = *recent != upper;
    *recent = upper;
    new
}

impl core::fmt::Debug for Distinct {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Distinct({} keys)", self.estimate())
    }
}
