//! Rows, columns and words of a reversible sketch: the rule that chooses them, and the error bound that follows.

use crate::{Bound, Error};

/// Number of heavy keys for which a shape is designed: recovery then finds about one wrong key before the verifying rows.
const DESIGN: usize = 128;
/// Rows in which a key of a difference may be hidden by other changes.
pub(super) const MISSING: usize = 1;
/// Rows of an unrelated hash, which confirm recovered keys.
pub(super) const VERIFIERS: usize = 2;
/// Bits of a word of the key.
pub(super) const WORD_BITS: u32 = 8;
/// Words of the longest key.
pub(super) const MOST_WORDS: usize = 8;
const MOST_ROWS: usize = 16;
const MOST_WIDTH_LOG2: u32 = 24;

/// Number of rows of a [`Reversible`](crate::Reversible) sketch, their width, and the length of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReversibleShape {
    key_bits: u32,
    /// Rows of modular hashing.
    rows: usize,
    /// Base-2 logarithm of the width.
    width_log2: u32,
}

/// Place of a word's field in the index of a bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Field {
    pub(super) bits: u32,
    /// Bits below the field.
    pub(super) shift: u32,
}

impl ReversibleShape {
    /// The widest shape for keys of `key_bits` bits whose cells, of `cell_bytes` each, take at most `memory_bytes`.
    ///
    /// The number of rows, H, is the least with (H - r)(m - log2 t) >= n + log2 C(H, r): n bits of a key, 2^m cells in a row,
    /// t = 128 heavy keys, r = 1 missing row. Two verifying rows are added.
    ///
    /// **Errors**: keys have neither 32 nor 64 bits, or the memory is too small for the narrowest rows.
    pub fn for_memory(
        memory_bytes: usize,
        key_bits: u32,
        cell_bytes: usize,
    ) -> Result<Self, Error> {
        let least = least_width_log2(key_bits)?;
        let shapes = (least..=MOST_WIDTH_LOG2).map(|width_log2| Self {
            key_bits,
            rows: rows_for(key_bits, width_log2),
            width_log2,
        });
        let memory = |shape: &Self| shape.cells().saturating_mul(cell_bytes);
        let fitting = shapes.clone().rfind(|shape| memory(shape) <= memory_bytes);
        fitting.ok_or_else(|| Error::TooLittleMemory {
            given: memory_bytes,
            least: shapes.map(|shape| memory(&shape)).min().unwrap_or(0),
        })
    }

    /// A shape for keys of `key_bits` bits with `rows` rows, verifying rows not counted, of 2^`width_log2` cells.
    ///
    /// **Errors**: keys have neither 32 nor 64 bits, or there are fewer than 2 or more than 16 rows, or a width is below 2^10
    /// (2^14 if keys have 64 bits) or above 2^24.
    pub fn new(key_bits: u32, rows: usize, width_log2: u32) -> Result<Self, Error> {
        let least = least_width_log2(key_bits)?;
        if !(2..=MOST_ROWS).contains(&rows) {
            return Err(Error::Parameter {
                name: "rows",
                given: rows as f64,
                must: "from 2 to 16",
            });
        }
        if !(least..=MOST_WIDTH_LOG2).contains(&width_log2) {
            return Err(Error::Parameter {
                name: "log2 of the width",
                given: width_log2.into(),
                must: "from 10 to 24, or from 14 if keys have 64 bits",
            });
        }
        Ok(Self {
            key_bits,
            rows,
            width_log2,
        })
    }

    /// Bits of a key: 32 or 64.
    pub fn key_bits(self) -> u32 {
        self.key_bits
    }

    /// Number of rows from which keys are recovered.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Number of all rows: rows for recovery and verifying rows.
    pub(super) fn all_rows(self) -> usize {
        self.rows + VERIFIERS
    }

    /// Number of cells in a row, a power of two.
    pub fn width(self) -> usize {
        1 << self.width_log2
    }

    /// Base-2 logarithm of the width.
    pub fn width_log2(self) -> u32 {
        self.width_log2
    }

    /// Number of cells in all rows.
    pub(super) fn cells(self) -> usize {
        self.all_rows() << self.width_log2
    }

    /// Number of words of a key.
    pub(super) fn words(self) -> usize {
        (self.key_bits / WORD_BITS) as usize
    }

    /// The fields of the words, the first word's field uppermost.
    ///
    /// The first word gets four bits or more, because a long first field ends the search for most prefixes at once. The
    /// other words share the rest evenly, earlier words first. If a word gets a single bit, some keys differ in no row from a
    /// heavy key; the verifying rows tell them apart.
    pub(super) fn fields(self) -> [Field; MOST_WORDS] {
        let words = self.words() as u32;
        let first = self.width_log2.div_ceil(words).max(4);
        let (each, more) = (
            (self.width_log2 - first) / (words - 1),
            (self.width_log2 - first) % (words - 1),
        );
        let mut shift = self.width_log2;
        let mut fields = [Field::default(); MOST_WORDS];
        for (word, field) in (0..words).zip(&mut fields) {
            let bits = if word == 0 {
                first
            } else {
                each + u32::from(word <= more)
            };
            shift -= bits;
            *field = Field { bits, shift };
        }
        fields
    }

    /// The error bound of a stream's estimates at this total.
    pub fn bound(self, total: u64) -> Bound {
        let epsilon = core::f64::consts::E / self.width() as f64;
        let delta = (-(self.rows as f64)).exp();
        Bound {
            epsilon,
            delta,
            excess: (epsilon * total as f64).ceil() as u64,
        }
    }
}

/// The narrowest row for keys of so many bits. In narrower rows, words get a single bit or the rule asks for too many rows.
fn least_width_log2(key_bits: u32) -> Result<u32, Error> {
    match key_bits {
        32 => Ok(10),
        64 => Ok(14),
        _ => Err(Error::Parameter {
            name: "length of a key in bits",
            given: key_bits.into(),
            must: "32 or 64, because longer keys cannot be recovered from a reversible sketch",
        }),
    }
}

/// The least number of rows that meets the rule.
fn rows_for(key_bits: u32, width_log2: u32) -> usize {
    let known = f64::from(width_log2) - (DESIGN as f64).log2();
    let suffices = |rows: &usize| {
        // C(H, 1) = H.
        let needed = f64::from(key_bits) + (*rows as f64).log2();
        (rows - MISSING) as f64 * known >= needed
    };
    (2..MOST_ROWS).find(suffices).unwrap_or(MOST_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(memory: usize, bits: u32) -> (usize, u32) {
        let shape = ReversibleShape::for_memory(memory, bits, 4).unwrap();
        (shape.rows, shape.width_log2)
    }

    /// Worked out by hand from the rule.
    #[test]
    fn the_rule_chooses_rows_and_width() {
        assert_eq!(rows(60 << 10, 32), (13, 10));
        assert_eq!(rows(160 << 10, 32), (8, 12));
        assert_eq!(rows(2 << 20, 32), (5, 16));
        assert_eq!(rows(24 << 20, 32), (4, 20));
        assert_eq!(rows(3 << 20, 64), (9, 16));
        assert_eq!(rows(40 << 20, 64), (7, 20));
    }

    #[test]
    fn fields_fill_the_index_without_gaps() {
        for (bits, least) in [(32, 10), (64, 14)] {
            for width_log2 in least..=MOST_WIDTH_LOG2 {
                let shape = ReversibleShape::new(bits, 5, width_log2).unwrap();
                let mut above = width_log2;
                for field in &shape.fields()[..shape.words()] {
                    assert!((1..=WORD_BITS).contains(&field.bits), "{shape:?}");
                    assert_eq!(field.shift + field.bits, above);
                    above = field.shift;
                }
                assert_eq!(above, 0, "{shape:?}");
            }
        }
    }

    #[test]
    fn other_keys_and_too_little_memory_are_refused() {
        let error = ReversibleShape::for_memory(1 << 30, 104, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "length of a key in bits is 104, it must be 32 or 64, because longer keys cannot be recovered from a reversible sketch"
        );
        for bits in [32, 64] {
            let Err(Error::TooLittleMemory { given: 1000, least }) =
                ReversibleShape::for_memory(1000, bits, 8)
            else {
                panic!("1000 bytes suffice for {bits} bits");
            };
            assert!(ReversibleShape::for_memory(least, bits, 8).is_ok());
            assert!(ReversibleShape::for_memory(least - 1, bits, 8).is_err());
        }
    }
}
