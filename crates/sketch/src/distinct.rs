//! How many keys there are.

use datasketches::common::NumStdDev;
use datasketches::hash::value::raw_bytes;
use datasketches::hll::{HllSketch, HllType, HllUnion};
use weir_memory::{Request, Table};

use crate::Error;

/// Base-2 logarithm of the registers: a standard error of 0.8 %, so that 1.6 % is two of them.
const LG_K: u8 = 14;

/// Recently seen keys that are kept off the sketch. Of a million flows by Zipf's law (exponent 1.1), 22 % of the
/// packets get past them; 30 % past 8192.
const RECENT: usize = 32_768;

/// A count of distinct keys: HyperLogLog of the Apache DataSketches library, whose images other engines read and merge.
///
/// The library hashes a key itself, from canonical bytes, with what its Java and C++ forms hash byte arrays with. That
/// costs some ten nanoseconds, so a small table of hashes seen lately is asked first; and a caller who knows a key's
/// first packet from the others need only come with that.
///
/// **Canonical bytes**: the caller decides, and images merge only if all agree. For other engines to agree, use what
/// they would hash: text in UTF-8, or an integer as eight bytes, little-endian, which is how they hash a `long`.
///
/// **Cost**: 128 KiB for the table and up to 16 KiB for the sketch, which grows in six steps while it sees its first
/// 1600 keys; these steps allocate, and no other update does. **Error bound**: probabilistic, [`range`](Self::range).
/// **Source**: Flajolet et al., "HyperLogLog" (2007).
pub struct Distinct {
    sketch: HllSketch,
    /// Where a hash belongs by its low bits, the upper half of the last that was seen.
    recent: Table<u32>,
}

impl Distinct {
    /// An empty count.
    ///
    /// **Errors**: the memory cannot be had.
    pub fn new(request: &Request) -> Result<Self, Error> {
        Ok(Self { sketch: empty(), recent: Table::zeroed(RECENT, request)? })
    }

    /// No hash was seen. A hash whose upper half is 0 is taken for one that was not seen: see [`Self::see`].
    fn forget(&mut self) {
        self.recent.fill(0);
    }

    /// A packet of the key with this hash and these canonical bytes, which are made only if the key was not seen
    /// lately.
    ///
    /// Keys whose hashes agree in 47 bits may be taken for one: a share of less than n / 2^47 of n keys.
    #[inline]
    pub fn see<B: AsRef<[u8]>>(&mut self, hash: u64, bytes: impl FnOnce() -> B) {
        if self.is_new(hash) {
            self.add(bytes().as_ref());
        }
    }

    /// Has fetched what [`is_new`](Self::is_new) will look at.
    #[inline(always)]
    pub fn ask(&self, hash: u64) {
        weir_memory::prefetch(&self.recent, hash as usize % RECENT);
    }

    /// Whether the key with this hash was not seen lately; from now on it was. Who is told so is to [`add`](Self::add) it.
    ///
    /// **Cost**: a load and a store, no branch: asked for a batch of packets first, the answers do not wait for each other.
    #[inline(always)]
    pub fn is_new(&mut self, hash: u64) -> bool {
        let (recent, upper) = (&mut self.recent[hash as usize % RECENT], (hash >> 32) as u32);
        let new = (*recent != upper) | (upper == 0);
        *recent = upper;
        new
    }

    /// Counts the key with these canonical bytes, if it was not counted before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.sketch.update(raw_bytes::from_slice(bytes));
    }

    /// How many distinct keys were seen, about.
    pub fn estimate(&self) -> f64 {
        self.sketch.estimate()
    }

    /// A range in which the truth lies with a probability of 95 % (two standard errors).
    pub fn range(&self) -> (f64, f64) {
        (self.sketch.lower_bound(NumStdDev::Two), self.sketch.upper_bound(NumStdDev::Two))
    }

    /// Bytes of its table and its sketch when it has grown.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.recent) + (1 << LG_K)
    }

    /// Forgets everything; keeps the table, and gives the sketch's memory back.
    pub fn clear(&mut self) {
        self.sketch = empty();
        self.forget();
    }

    /// Makes this the count of the keys that either has seen.
    pub fn merge(&mut self, other: &Self) {
        let mut union = HllUnion::new(LG_K).expect("as many registers as are allowed");
        union.update(&self.sketch);
        union.update(&other.sketch);
        self.sketch = union.to_sketch(HllType::Hll8);
    }

    /// The image of the sketch that other engines read.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.sketch.serialize()
    }

    /// The count that an image is of, wherever that was written.
    ///
    /// **Errors**: the bytes are no such image, or one of another precision.
    pub fn from_bytes(bytes: &[u8], request: &Request) -> Result<Self, Error> {
        let sketch = HllSketch::deserialize(bytes).map_err(|error| Error::Apache(error.to_string()))?;
        let given = sketch.lg_config_k();
        if given != LG_K {
            return Err(Error::Parameter { name: "lg_k", given: given.into(), must: "14" });
        }
        Ok(Self { sketch, ..Self::new(request)? })
    }
}

fn empty() -> HllSketch {
    HllSketch::new(LG_K, HllType::Hll8).expect("as many registers as are allowed")
}

impl core::fmt::Debug for Distinct {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Distinct({} keys)", self.estimate())
    }
}
