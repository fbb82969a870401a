//! How many keys there are: two estimators that have nothing to do with each other.
//!
//! [`Distinct`] counts hashes that the caller seeded, so that nobody without the seed can choose keys that bend its estimate.
//! [`Mergeable`] is the HyperLogLog of the Apache DataSketches library, whose images other engines read and merge. Its hash
//! has a public seed: whoever chooses the keys can make its estimate as small or as large as they like.

mod mergeable;
mod seeded;

pub use mergeable::Mergeable;
use seeded::Seeded;

use weir_memory::{Request, Table};

use crate::Error;
use crate::error::alike;

/// Recently seen keys that are kept off the estimator. Of a million flows by Zipf's law (exponent 1.1), 22 % of the
/// packets get past them; 30 % past 8192.
const RECENT: usize = 32_768;

/// A count of distinct keys that hostile traffic cannot bend.
///
/// The estimate is that of a HyperLogLog over the hashes that the caller brings; up to 1024 keys it is the count of the hashes
/// themselves. A small table of hashes seen lately is asked first; and a caller who knows a key's first packet from the others
/// need only come with that.
///
/// **Cost**: 128 KiB for the table and 32 KiB for the estimator; no update allocates. **Error bound**: probabilistic,
/// [`range`](Self::range).
pub struct Distinct {
    seeded: Seeded,
    /// Where a hash belongs by its low bits, the upper half of the last that was seen, with a one as its last bit.
    recent: Table<u32>,
    seed: u64,
}

impl Distinct {
    /// An empty count; `seed` names the hash that its keys will come with.
    ///
    /// **Errors**: the memory cannot be had.
    pub fn new(seed: u64, request: &Request) -> Result<Self, Error> {
        let (seeded, recent) = (Seeded::new(request)?, Table::zeroed(RECENT, request)?);
        Ok(Self { seeded, recent, seed })
    }

    /// Counts the key with this hash, if it was not counted before.
    ///
    /// Keys whose hashes agree in 46 bits may be taken for one: a share of less than n / 2^46 of n keys.
    #[inline]
    pub fn see(&mut self, hash: u64) {
        if self.is_new(hash) {
            self.add(hash);
        }
    }

    /// Has fetched what [`is_new`](Self::is_new) will look at.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        weir_memory::prefetch(&self.recent, hash as usize % RECENT);
    }

    /// Whether the key with this hash was not seen lately; from now on it was. A key that is new is to be
    /// [added](Self::add).
    ///
    /// **Cost**: a load and a store, no branch: asked for a batch of packets first, the answers do not wait for each other.
    #[inline(always)]
    pub fn is_new(&mut self, hash: u64) -> bool {
        is_new(&mut self.recent[hash as usize % RECENT], hash)
    }

    /// [`is_new`](Self::is_new) for up to 64 hashes: bit i is that of hash i.
    #[inline]
    pub fn are_new(&mut self, hashes: impl Iterator<Item = u64>) -> u64 {
        let Some(recent) = self.recent.first_chunk_mut::<RECENT>() else { return u64::MAX };
        hashes.enumerate().fold(0, |new, (i, hash)| {
            new | u64::from(is_new(&mut recent[hash as usize % RECENT], hash)) << (i % u64::BITS as usize)
        })
    }

    /// Counts the key with this hash, if it was not counted before, without a look at those seen lately.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        self.seeded.add(hash);
    }

    /// How many distinct keys were seen, about.
    pub fn estimate(&self) -> f64 {
        self.seeded.estimate()
    }

    /// A range in which the truth lies with a probability of 95 % (two standard errors), whoever chose the keys, if they did
    /// not know the seed.
    pub fn range(&self) -> (f64, f64) {
        self.seeded.range()
    }

    /// Bytes of its tables.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.recent) + self.seeded.memory_bytes()
    }

    /// Forgets everything; keeps the tables.
    pub fn clear(&mut self) {
        self.seeded.clear();
        self.recent.fill(0);
    }

    /// Makes this the count of the keys that either has seen: its estimate is that of one count of both streams.
    ///
    /// **Errors**: the hashes were seeded differently; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        alike("hash seed", self.seed, other.seed)?;
        self.seeded.merge(&other.seeded);
        Ok(())
    }
}

/// Is this hash another than the last that was seen where it belongs? From now on it is the last.
#[inline(always)]
fn is_new(recent: &mut u32, hash: u64) -> bool {
    // Where nothing was seen there is a zero.
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
