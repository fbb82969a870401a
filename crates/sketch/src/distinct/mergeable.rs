//! The estimator whose images other engines merge.

use datasketches::common::NumStdDev;
use datasketches::hash::value::raw_bytes;
use datasketches::hll::{HllSketch, HllType, HllUnion};

use crate::Error;

/// Base-2 logarithm of the registers.
const LG_K: u8 = 14;

/// A count of distinct keys whose images other engines merge: the HyperLogLog of the Apache DataSketches library, over
/// canonical bytes of each key.
///
/// The library hashes with MurmurHash3 under the seed 9001, as its Java and C++ forms do, which is what makes images of
/// different places mergeable. **Hostile traffic can bend it**: the seed is public, and keys that are chosen for it make the
/// estimate as small or as large as their sender likes (20 000 keys have been shown as 1 500). Where traffic may be hostile,
/// [`Distinct`](super::Distinct) is the count to believe. weir's commands neither keep nor show a `Mergeable`.
///
/// **Canonical bytes**: the caller decides, and images merge only if all agree. For other engines to agree, use what
/// they would hash: text in UTF-8, or an integer as eight bytes, little-endian, which is how they hash a `long`.
///
/// ```
/// let mut sources = weir_sketch::Mergeable::default();
/// for address in ["10.1.2.3", "10.9.9.9", "10.1.2.3"] {
///     sources.add(address.as_bytes());
/// }
/// assert_eq!(sources.estimate().round(), 2.0);
/// let image: Vec<u8> = sources.to_bytes(); // for Java, C++, Spark, Druid and others
/// ```
///
/// **Cost**: a hash of the key for each call, some ten nanoseconds; up to 16 KiB, in six steps while it sees its first 1600
/// keys. These steps allocate. **Error bound**: probabilistic, [`range`](Self::range), for keys that nobody chose for the hash.
/// **Source**: Flajolet et al., "HyperLogLog" (2007).
pub struct Mergeable(HllSketch);

impl Default for Mergeable {
    /// An empty count.
    fn default() -> Self {
        Self(HllSketch::new(LG_K, HllType::Hll8).expect("as many registers as are allowed"))
    }
}

impl Mergeable {
    /// Counts the key with these canonical bytes, if it was not counted before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(raw_bytes::from_slice(bytes));
    }

    /// How many distinct keys were seen, about, if nobody chose them for the hash.
    pub fn estimate(&self) -> f64 {
        self.0.estimate()
    }

    /// A range in which the truth lies with a probability of 95 % (two standard errors), if nobody chose the keys for the
    /// hash.
    pub fn range(&self) -> (f64, f64) {
        (self.0.lower_bound(NumStdDev::Two), self.0.upper_bound(NumStdDev::Two))
    }

    /// Makes this the count of the keys that either has seen.
    pub fn merge(&mut self, other: &Self) {
        let mut union = HllUnion::new(LG_K).expect("as many registers as are allowed");
        union.update(&self.0);
        union.update(&other.0);
        self.0 = union.to_sketch(HllType::Hll8);
    }

    /// The image that other engines read.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.serialize()
    }

    /// The count that an image is of, wherever that was written.
    ///
    /// **Errors**: the bytes are no such image, or one of another precision.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let sketch = HllSketch::deserialize(bytes).map_err(|error| Error::Apache(error.to_string()))?;
        let given = sketch.lg_config_k();
        if given != LG_K {
            return Err(Error::Parameter { name: "lg_k", given: given.into(), must: "14" });
        }
        Ok(Self(sketch))
    }
}

impl core::fmt::Debug for Mergeable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Mergeable({} keys)", self.estimate())
    }
}
