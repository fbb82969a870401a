//! How many keys there are: two estimators behind one gate.
//!
//! [`Seeded`] is what is shown. It counts hashes that the caller seeded, so that nobody without the seed can choose keys that
//! bend its estimate. [`Mergeable`] is the HyperLogLog of the Apache DataSketches library, whose images other engines read
//! and merge. Its hash has a public seed: whoever chooses the keys can make its estimate as small or as large as they like.

mod mergeable;
mod seeded;

pub use mergeable::Mergeable;
use seeded::Seeded;

use weir_memory::{Request, Table};

use crate::Error;
use crate::error::alike;

/// Recently seen keys that are kept off the estimators. Of a million flows by Zipf's law (exponent 1.1), 22 % of the
/// packets get past them; 30 % past 8192.
const RECENT: usize = 32_768;

/// A count of distinct keys: an estimate that hostile traffic cannot bend, and an image that other engines merge.
///
/// The estimate is that of a HyperLogLog of ours over the hashes that the caller brings; up to 1024 keys it is the count of
/// the hashes themselves. The image is that of [`Mergeable`], which hashes canonical bytes itself. That costs some ten
/// nanoseconds, so a small table of hashes seen lately is asked first; and a caller who knows a key's first packet from the
/// others need only come with that.
///
/// **Canonical bytes**: the caller decides, and images merge only if all agree. For other engines to agree, use what
/// they would hash: text in UTF-8, or an integer as eight bytes, little-endian, which is how they hash a `long`.
///
/// **Cost**: 128 KiB for the table, 32 KiB for the seeded estimator, and up to 16 KiB for the mergeable one, which grows in
/// six steps while it sees its first 1600 keys; these steps allocate, and no other update does. **Error bound**:
/// probabilistic, [`range`](Self::range).
pub struct Distinct {
    seeded: Seeded,
    mergeable: Mergeable,
    /// Where a hash belongs by its low bits, the upper half of the last that was seen.
    recent: Table<u32>,
    seed: u64,
}

impl Distinct {
    /// An empty count; `seed` names the hash that its keys will come with.
    ///
    /// **Errors**: the memory cannot be had.
    pub fn new(seed: u64, request: &Request) -> Result<Self, Error> {
        let (seeded, recent) = (Seeded::new(request)?, Table::zeroed(RECENT, request)?);
        Ok(Self { seeded, mergeable: Mergeable::default(), recent, seed })
    }

    /// A packet of the key with this hash and these canonical bytes, which are made only if the key was not seen
    /// lately.
    ///
    /// Keys whose hashes agree in 47 bits may be taken for one: a share of less than n / 2^47 of n keys.
    #[inline]
    pub fn see<B: AsRef<[u8]>>(&mut self, hash: u64, bytes: impl FnOnce() -> B) {
        if self.is_new(hash) {
            self.add(hash, bytes().as_ref());
        }
    }

    /// Has fetched what [`is_new`](Self::is_new) will look at.
    #[inline(always)]
    pub fn ask(&self, hash: u64) {
        weir_memory::prefetch(&self.recent, hash as usize % RECENT);
    }

    /// Whether the key with this hash was not seen lately; from now on it was. A key that is new is to be
    /// [added](Self::add).
    ///
    /// **Cost**: a load and a store, no branch: asked for a batch of packets first, the answers do not wait for each other.
    #[inline(always)]
    pub fn is_new(&mut self, hash: u64) -> bool {
        let (recent, upper) = (&mut self.recent[hash as usize % RECENT], (hash >> 32) as u32);
        // Where nothing was seen there is a zero too.
        let new = (*recent != upper) | (upper == 0);
        *recent = upper;
        new
    }

    /// Counts the key with this hash and these canonical bytes, if it was not counted before.
    #[inline]
    pub fn add(&mut self, hash: u64, bytes: &[u8]) {
        self.seeded.add(hash);
        self.mergeable.add(bytes);
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

    /// The count that other engines merge. **Hostile traffic can bend it**: see [`Mergeable`].
    pub fn mergeable(&self) -> &Mergeable {
        &self.mergeable
    }

    /// Bytes of its tables, and of the mergeable estimator when it has grown.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.recent) + self.seeded.memory_bytes() + Mergeable::MEMORY_BYTES
    }

    /// Forgets everything; keeps the tables, and gives the memory of the mergeable estimator back.
    pub fn clear(&mut self) {
        self.seeded.clear();
        self.mergeable = Mergeable::default();
        self.recent.fill(0);
    }

    /// Makes this the count of the keys that either has seen: its estimate is that of one count of both streams.
    ///
    /// **Errors**: the hashes were seeded differently; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        alike("hash seed", self.seed, other.seed)?;
        self.seeded.merge(&other.seeded);
        self.mergeable.merge(&other.mergeable);
        Ok(())
    }
}

impl core::fmt::Debug for Distinct {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Distinct({} keys)", self.estimate())
    }
}
