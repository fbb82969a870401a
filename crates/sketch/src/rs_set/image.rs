//! The serialised form of a sketch.
//!
//! ```text
//! 24  8  width: entries of a row
//! 32  4  rows, 4
//! 36  4  values that a set holds at most, 16
//! 40 16  total: packets, bytes
//! 56     entries, row after row: packets, bytes (8 each); for each of five sets: number of values (1), 1 if a value was left
//!        out (1), and the values (16 each) in increasing order
//! ```
//!
//! Because values are ordered, equal sets have equal images, whatever the order of their packets was.

use weir_memory::Request;

use super::{CAP, Entry, PARTS, Parts, ROWS, ReversibleSets, Set};
use crate::cms::Shape;
use crate::image::{Kind, Reader, Writer};
use crate::{Counts, Error};

/// Bytes of an entry without values.
const LEAST: usize = 16 + 2 * PARTS;

impl<P: Parts> ReversibleSets<P> {
    /// The sketch as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut image = Writer::new(Kind::ReversibleSets, size_of::<P::Key>(), self.seed);
        image.u64(self.shape.width() as u64);
        image.u32(ROWS as u32);
        image.u32(CAP as u32);
        image.counts(self.total);
        for entry in self.entries.iter() {
            image.counts(entry.counts());
            for set in &entry.sets {
                let mut values = set.values().to_vec();
                values.sort_unstable();
                image.u8(values.len() as u8);
                image.u8(set.overflowed as u8);
                for value in values {
                    image.u64(value as u64);
                    image.u64((value >> 64) as u64);
                }
            }
        }
        image.finish()
    }

    /// Reads the sketch from its serialised bytes.
    ///
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes) for a sketch of such keys.
    pub fn from_bytes(bytes: &[u8], request: &Request) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::ReversibleSets, size_of::<P::Key>())?;
        let fault = image.fault("no such shape, or fewer bytes than its entries have");
        let width = usize::try_from(image.u64()?).unwrap_or(usize::MAX);
        let (rows, cap) = (image.u32()? as usize, image.u32()? as usize);
        let shape = Shape::new(rows, width).ok().filter(|shape| {
            (rows, cap) == (ROWS, CAP) && shape.cells().saturating_mul(LEAST) <= image.left()
        });
        let total = image.counts()?;
        let mut sketch = Self::of(shape.ok_or(fault)?, image.seed(), request)?;
        sketch.total = total;
        for row in sketch.entries.chunks_exact_mut(width) {
            let mut sum = Counts::default();
            for entry in row {
                read_entry(entry, &mut image)?;
                let fault = image.fault("a row that passes the total");
                sum = sum.plus(entry.counts()).ok_or(fault)?;
            }
            if sum != total {
                return Err(image.fault("a row that does not add up to the total"));
            }
        }
        image.finish()?;
        Ok(sketch)
    }
}

fn read_entry(entry: &mut Entry, image: &mut Reader) -> Result<(), Error> {
    let fault = image.fault("bytes, but no packet");
    let counts = image.counts()?;
    if counts.packets == 0 && counts.bytes > 0 {
        return Err(fault);
    }
    (entry.packets, entry.bytes) = (counts.packets, counts.bytes);
    for set in &mut entry.sets {
        read_set(set, counts.packets, image)?;
    }
    Ok(())
}

/// Reads a set of an entry of so many packets.
fn read_set(set: &mut Set, packets: u64, image: &mut Reader) -> Result<(), Error> {
    let fault = image.fault("no such set: more or fewer values than fit its packets");
    let (len, overflowed) = (image.u8()?, image.u8()?);
    let is_full = usize::from(len) == CAP;
    let fits = (len == 0) == (packets == 0) && u64::from(len) + u64::from(overflowed) <= packets;
    if usize::from(len) > CAP || overflowed > u8::from(is_full) || !fits {
        return Err(fault);
    }
    for _ in 0..len {
        let fault = image.fault("values out of order");
        let value = u128::from(image.u64()?) | u128::from(image.u64()?) << 64;
        if set.values().last().is_some_and(|last| *last >= value) {
            return Err(fault);
        }
        set.insert(value);
    }
    set.overflowed = overflowed.into();
    Ok(())
}
