//! The estimator whose images other engines can merge.

use datasketches::common::NumStdDev;
use datasketches::hash::value::raw_bytes;
use datasketches::hll::{HllSketch, HllType, HllUnion};

use crate::Error;

/// Base-2 logarithm of the number of registers.
const LG_K: u8 = 14;

/// A count of distinct keys whose images other engines can merge: the HyperLogLog of the Apache DataSketches library, over
/// canonical bytes of each key.
///
/// The library hashes with MurmurHash3 under the seed 9001, as its Java and C++ forms do, so that images from different
/// engines can be merged. **Hostile traffic can bend it**: the seed is public. A sender that chooses keys for it can make
/// the estimate as small or as large as desired (20 000 keys have been shown as 1 500). If traffic may be hostile, trust
/// [`Distinct`](super::Distinct) instead. weir's commands neither keep nor show a `Mergeable`.
///
/// **Canonical bytes**: the caller chooses them, and images can only be merged if all sides choose the same. To agree with other
/// engines, use the bytes that they hash: text in UTF-8, or an integer as eight bytes, little-endian, which is how they hash a
/// `long`.
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
/// **Cost**: a hash of the key for each call, some ten nanoseconds; up to 16 KiB of memory, reached in six steps during the first
/// 1600 keys. These steps allocate. **Error bound**: probabilistic, [`range`](Self::range), for keys that were not chosen for the
/// hash.
/// **Source**: Flajolet et al., "HyperLogLog" (2007).
pub struct Mergeable(HllSketch);

impl Default for Mergeable {
    /// An empty count.
    fn default() -> Self {
        Self(HllSketch::new(LG_K, HllType::Hll8).expect("as many registers as are allowed"))
    }
}

impl Mergeable {
    /// Counts the key with these canonical bytes, unless it was counted before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(raw_bytes::from_slice(bytes));
    }

    /// Estimated number of distinct keys, if they were not chosen for the hash.
    pub fn estimate(&self) -> f64 {
        self.0.estimate()
    }

    /// A range that holds the true number with a probability of 95 % (two standard errors), if the keys were not chosen for the
    /// hash.
    pub fn range(&self) -> (f64, f64) {
        (
            self.0.lower_bound(NumStdDev::Two),
            self.0.upper_bound(NumStdDev::Two),
        )
    }

    /// Adds all keys of `other`.
    pub fn merge(&mut self, other: &Self) {
        let mut union = HllUnion::new(LG_K).expect("as many registers as are allowed");
        union.update(&self.0);
        union.update(&other.0);
        self.0 = union.to_sketch(HllType::Hll8);
    }

    /// The image for other engines.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.serialize()
    }

    /// Reads a count from an image, whichever engine wrote it.
    ///
    /// **Errors**: the bytes are no such image, or an image of another precision.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let sketch =
            HllSketch::deserialize(bytes).map_err(|error| Error::Apache(error.to_string()))?;
        let given = sketch.lg_config_k();
        if given != LG_K {
            return Err(Error::Parameter {
                name: "lg_k",
                given: given.into(),
                must: "14",
            });
        }
        Ok(Self(sketch))
    }
}

impl core::fmt::Debug for Mergeable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Mergeable({} keys)", self.estimate())
    }
}
