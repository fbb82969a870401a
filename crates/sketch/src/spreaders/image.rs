//! The serialised form of a sample of pairs.
//!
//! ```text
//! 24  8  buckets
//! 32  4  slots of a bucket: 7
//! 36     for each bucket: floor (4), pairs (1), and for each pair, largest rank first: rank and marks (4), the key
//! ```
//!
//! The last three bits of a rank, which are zero in every rank, tell the marks: 1 not sent, 2 answered, 4 accepted.
//!
//! Equal samples have equal images.

use weir_memory::Request;

use super::{Bucket, LINE, Marks, RANK, SLOTS, Spreaders};
use crate::image::{Kind, Reader, Writer};
use crate::{Error, Key};

/// Bytes of a bucket without pairs in the image.
const LEAST_BUCKET: usize = 5;

impl<K: Key> Spreaders<K> {
    /// The sketch as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut image = Writer::new(Kind::Spreaders, size_of::<K>(), self.seed);
        image.u64(self.buckets.len() as u64);
        image.u32(SLOTS as u32);
        for Bucket { line, keys, marks } in &*self.buckets {
            let mut ranks = *line;
            ranks[..SLOTS].sort_unstable_by(|a, b| b.cmp(a));
            let count = ranks[..SLOTS].iter().filter(|rank| **rank > 0).count();
            image.u32(line[SLOTS]);
            image.u8(count as u8);
            for rank in &ranks[..count] {
                let slot = *rank as usize % LINE;
                image.u32(rank & RANK | marks.of(slot).written());
                image.key(&keys[slot]);
            }
        }
        image.finish()
    }

    /// Reads the sketch from its serialised bytes. It takes as much memory as the written one: at most some hundred times the length
    /// of the image.
    ///
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes). Whether each pair is
    /// in its own bucket is not checked.
    pub fn from_bytes(bytes: &[u8], request: &Request) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::Spreaders, size_of::<K>())?;
        let fault = image.fault("more buckets than bytes for them, or none");
        let buckets = usize::try_from(image.u64()?).unwrap_or(usize::MAX);
        if buckets == 0 || buckets > (image.left() / LEAST_BUCKET).min(u32::MAX as usize) {
            return Err(fault);
        }
        let fault = image.fault("buckets of another size");
        if image.u32()? != SLOTS as u32 {
            return Err(fault);
        }
        let mut sketch = Self::of_buckets(buckets, image.seed(), request)?;
        for bucket in 0..buckets {
            sketch.read_bucket(bucket, &mut image)?;
        }
        image.finish()?;
        Ok(sketch)
    }

    fn read_bucket(&mut self, bucket: usize, image: &mut Reader) -> Result<(), Error> {
        let fault = image.fault("a floor that is not a rank");
        let floor = image.u32()?;
        if floor & !RANK != 0 {
            return Err(fault);
        }
        self.raise(bucket, floor);
        let fault = image.fault("pairs that a bucket cannot have");
        let count = usize::from(image.u8()?);
        if count > SLOTS || floor > 0 && count < SLOTS {
            return Err(fault);
        }
        let mut above = None;
        for slot in 0..count {
            let fault = image.fault("a rank that is too small or out of order");
            let mark_fault = image.fault("marks that no packets give");
            let word = image.u32()?;
            let rank = word & RANK;
            let falls = above.is_none_or(|above| rank < above);
            if rank <= floor || !falls {
                return Err(fault);
            }
            above = Some(rank);
            let bucket = &mut self.buckets[bucket];
            bucket.line[slot] = rank | slot as u32;
            let marks = Marks::read(word & !RANK).ok_or(mark_fault)?;
            bucket.marks.set(slot, marks);
            bucket.keys[slot] = image.key()?;
        }
        Ok(())
    }
}
