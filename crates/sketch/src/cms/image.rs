//! The serialised form of a sketch.
//!
//! ```text
//! 24  8  width: cells of a row
//! 32  4  rows
//! 36  1  bytes of a cell: 4 or 8
//! 37  1  rule: 0 plain, 1 conservative
//! 38  2  zero
//! 40  8  total
//! 48     cells, row after row
//! ```
//!
//! The column of a key in row i (from 0) is the uppermost log2(width) bits of `a + i b`, modulo 2^64, where
//! `a = hash * 0x9e3779b97f4a7c15` and `b = (a rotated by 32 bits) | 1`.

use weir_memory::Request;

use super::{Cell, Cms, Rule, Shape};
use crate::image::{Kind, Reader, Writer};
use crate::{Error, LIMIT};

impl<C: Cell> Cms<C> {
    /// The sketch as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut image = Writer::new(Kind::Cms, 0, self.seed);
        image.u64(self.shape.width() as u64);
        image.u32(self.shape.rows() as u32);
        image.u32(form::<C>(self.rule));
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
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes) for a sketch with
    /// such cells.
    pub fn from_bytes(bytes: &[u8], request: &Request) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::Cms, 0)?;
        let fault = image.fault("no such shape, or not as many cells as it has");
        let width = usize::try_from(image.u64()?).unwrap_or(usize::MAX);
        let Ok(shape) = Shape::new(image.u32()? as usize, width) else {
            return Err(fault);
        };
        let fault_of_form = image.fault("cells of another size, or no such rule");
        let form_given = image.u32()?;
        let rules = [Rule::Plain, Rule::Conservative];
        let rule = rules
            .into_iter()
            .find(|rule| form::<C>(*rule) == form_given)
            .ok_or(fault_of_form)?;
        let fault_of_total = image.fault("a total above 2^63");
        let total = Some(image.u64()?)
            .filter(|total| *total <= LIMIT)
            .ok_or(fault_of_total)?;
        if shape.cells().checked_mul(size_of::<C>()) != Some(image.left()) {
            return Err(fault);
        }
        let mut sketch = Self::new(shape, rule, image.seed(), request)?;
        sketch.total = total;
        for row in sketch.cells.chunks_exact_mut(shape.width()) {
            let mut sum = 0u128;
            for cell in row.iter_mut() {
                let value = if size_of::<C>() == 4 {
                    u64::from(image.u32()?)
                } else {
                    image.u64()?
                };
                *cell = C::of(value);
                sum += u128::from(value);
            }
            // A row of a plain sketch sums up to the total, unless a cell is saturated.
            let lost = rule == Rule::Conservative || row.contains(&C::MAX);
            if sum > u128::from(total) || sum < u128::from(total) && !lost {
                return Err(image.fault("a row that does not add up to the total"));
            }
        }
        image.finish()?;
        Ok(sketch)
    }
}

/// Cell size and rule, as encoded in the image.
fn form<C>(rule: Rule) -> u32 {
    size_of::<C>() as u32 | (rule as u32) << 8
}
