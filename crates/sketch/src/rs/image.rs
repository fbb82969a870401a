//! The serialised form of a sketch.
//!
//! ```text
//! 24  4  bits of a key: 32 or 64
//! 28  4  base-2 logarithm of the width: cells of a row
//! 32  4  rows, verifying rows not counted
//! 36  4  bytes of a cell: 4 or 8
//! 40  8  total
//! 48     cells, row after row, the two verifying rows last
//! ```
//!
//! The seed of the header chooses the hash functions, as `rs/hashing.rs` says. Keys are not in the image: they are recovered.

use weir_memory::Request;

use super::{Reversible, ReversibleShape};
use crate::image::{Kind, Reader, Writer};
use crate::{Cell, Error, LIMIT};

impl<C: Cell> Reversible<C> {
    /// The sketch as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let shape = self.shape();
        let mut image = Writer::new(Kind::Reversible, 0, self.seed);
        image.u32(shape.key_bits());
        image.u32(shape.width_log2());
        image.u32(shape.rows() as u32);
        image.u32(size_of::<C>() as u32);
        image.u64(self.total);
        for cell in self.cells.iter() {
            match size_of::<C>() {
                4 => image.u32((*cell).into() as u32),
                _ => image.u64((*cell).into()),
            }
        }
        image.finish()
    }

    /// Reads the sketch from its serialised bytes.
    ///
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes) for a sketch with such cells.
    pub fn from_bytes(bytes: &[u8], request: &Request) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::Reversible, 0)?;
        let fault = image.fault("no such shape, or not as many cells as it has");
        let key_bits = image.u32()?;
        let width_log2 = image.u32()?;
        let rows = image.u32()? as usize;
        let Ok(shape) = ReversibleShape::new(key_bits, rows, width_log2) else {
            return Err(fault);
        };
        let fault_of_cells = image.fault("cells of another size");
        if image.u32()? as usize != size_of::<C>() {
            return Err(fault_of_cells);
        }
        let fault_of_total = image.fault("a total above 2^63");
        let total = Some(image.u64()?)
            .filter(|total| *total <= LIMIT)
            .ok_or(fault_of_total)?;
        if shape.cells() * size_of::<C>() != image.left() {
            return Err(fault);
        }
        let mut sketch = Self::new(shape, image.seed(), request)?;
        sketch.total = total;
        for row in sketch.cells.chunks_exact_mut(shape.width()) {
            read_row(row, total, &mut image)?;
        }
        image.finish()?;
        Ok(sketch)
    }
}

/// Reads the cells of a row, which sum up to the total, unless a cell is saturated.
fn read_row<C: Cell>(row: &mut [C], total: u64, image: &mut Reader) -> Result<(), Error> {
    let mut sum = 0u128;
    for cell in row.iter_mut() {
        let value = match size_of::<C>() {
            4 => u64::from(image.u32()?),
            _ => image.u64()?,
        };
        *cell = C::of(value);
        sum += u128::from(value);
    }
    let is_saturated = row.contains(&C::MAX);
    if sum > u128::from(total) || sum < u128::from(total) && !is_saturated {
        return Err(image.fault("a row that does not add up to the total"));
    }
    Ok(())
}
