//! The serialised form of a sketch.
//!
//! ```text
//! 24  8  width: buckets of a row
//! 32  4  rows
//! 36  4  quantity that ranks: 0 packets, 1 bytes
//! 40 16  total: packets, bytes
//! 56  8  bytes of the smallest and of the largest packet, four each
//! 64     buckets, row after row: total (8), votes (8), companion (8), the key; a free bucket is zero
//! ```
//!
//! The bucket of a key in row i (from 0) is `(a + i b mod 2^64) * width / 2^64`, rounded down, where
//! `a = hash * 0x9e3779b97f4a7c15 mod 2^64` and `b = (a rotated by 32 bits) | 1`.

use weir_memory::Request;

use super::{Bucket, MajorityVote};
use crate::image::{Kind, Reader, Writer, sizes_fit};
use crate::{Error, Key, Weigh};

/// Numbers of a bucket before its key, bytes.
const NUMBERS: usize = 24;

impl<K: Key> MajorityVote<K> {
    /// The sketch as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut image = Writer::new(Kind::Majority, size_of::<K>(), self.seed);
        image.u64(self.width() as u64);
        image.u32(self.rows as u32);
        image.u32(self.weigh as u32);
        image.counts(self.total);
        image.u32(self.sizes.0);
        image.u32(self.sizes.1);
        for bucket in self.buckets.iter() {
            image.u64(bucket.total);
            image.u64(bucket.votes);
            image.u64(bucket.companion);
            image.key(&bucket.key);
        }
        image.finish()
    }

    /// Reads the sketch from its serialised bytes. `hash` makes the hash of a key from the seed named in the image, and the
    /// key.
    ///
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(
        bytes: &[u8],
        request: &Request,
        mut hash: impl FnMut(u64, &K) -> u64,
    ) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::Majority, size_of::<K>())?;
        let fault = image.fault("no such shape, or not as many buckets as it has");
        let (width, rows) = (image.u64()?, image.u32()? as usize);
        let fault_of_weight = image.fault("ranks neither by packets nor by bytes");
        let weigh = match image.u32()? {
            0 => Weigh::Packets,
            1 => Weigh::Bytes,
            _ => return Err(fault_of_weight),
        };
        let total = image.counts()?;
        let fault_of_sizes = image.fault("packet sizes that do not fit the total");
        let sizes = (image.u32()?, image.u32()?);
        if !sizes_fit(sizes, total) {
            return Err(fault_of_sizes);
        }
        let width = usize::try_from(width).unwrap_or(usize::MAX);
        let needed = width
            .checked_mul(rows)
            .and_then(|buckets| buckets.checked_mul(NUMBERS + size_of::<K>()));
        if needed != Some(image.left()) {
            return Err(fault);
        }
        let Ok(mut sketch) = Self::of_shape(rows, width, weigh, image.seed(), request) else {
            return Err(fault);
        };
        (sketch.total, sketch.sizes) = (total, sizes);
        for row in 0..rows {
            sketch.read_row(row, &mut image, &mut hash)?;
        }
        image.finish()?;
        Ok(sketch)
    }

    fn read_row(
        &mut self,
        row: usize,
        image: &mut Reader,
        hash: &mut impl FnMut(u64, &K) -> u64,
    ) -> Result<(), Error> {
        let width = self.width();
        let (all, companions) = match self.weigh {
            Weigh::Packets => (self.total.packets, self.total.bytes),
            Weigh::Bytes => (self.total.bytes, self.total.packets),
        };
        let mut sum = 0u128;
        for at in row * width..(row + 1) * width {
            let fault =
                image.fault("no such bucket: votes or a companion that do not fit the total");
            let (total, votes, companion) = (image.u64()?, image.u64()?, image.u64()?);
            let fault_of_key = image.fault("a key in another bucket than its own");
            let bucket: Bucket<K> = Bucket {
                total,
                votes,
                companion,
                key: image.key()?,
            };
            // Total and votes have the same parity: see the module's text.
            if votes > total || (total - votes) % 2 == 1 || companion > companions {
                return Err(fault);
            }
            if total == 0 {
                if companion > 0 || bucket.key.as_bytes().iter().any(|byte| *byte != 0) {
                    return Err(fault);
                }
            } else if self.places(hash(self.seed, &bucket.key)).nth(row) != Some(at) {
                return Err(fault_of_key);
            }
            sum += u128::from(total);
            self.buckets[at] = bucket;
        }
        if sum == u128::from(all) {
            Ok(())
        } else {
            Err(image.fault("a row that does not add up to the total"))
        }
    }
}
