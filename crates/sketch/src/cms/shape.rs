//! Rows and columns of a sketch, and the error bound that follows from them.

use crate::{Error, spread};

/// Number of rows of a sketch, and their width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    rows: usize,
    /// Base-2 logarithm of the width.
    width_log2: u32,
}

/// Error bound of an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Share of the total by which an estimate may be too high.
    pub epsilon: f64,
    /// Probability that the error is larger, for each queried key. For n keys at once, n times as much.
    pub delta: f64,
    /// `epsilon` times the total, rounded up: the error in packets or bytes.
    pub excess: u64,
}

const MOST_ROWS: usize = 32;
const MOST_WIDTH_LOG2: u32 = 40;

impl Shape {
    /// The smallest shape that overestimates by more than `epsilon` of the total with probability `delta` at most: a width of
    /// e / epsilon, rounded up to a power of two, and ln(1 / delta) rows.
    ///
    /// **Errors**: `epsilon` or `delta` is not between 0 and 1, or needs more than 2^40 cells a row or 32 rows.
    pub fn for_error(epsilon: f64, delta: f64) -> Result<Self, Error> {
        let most = core::f64::consts::E / (1u64 << MOST_WIDTH_LOG2) as f64;
        if !(most..1.0).contains(&epsilon) {
            return Err(Error::Parameter {
                name: "epsilon",
                given: epsilon,
                must: "below 1 and at least e / 2^40",
            });
        }
        if !((-(MOST_ROWS as f64)).exp()..1.0).contains(&delta) {
            return Err(Error::Parameter {
                name: "delta",
                given: delta,
                must: "below 1 and at least e^-32",
            });
        }
        let width = (core::f64::consts::E / epsilon).ceil() as usize;
        Self::new(
            (1.0 / delta).ln().ceil() as usize,
            width.next_power_of_two(),
        )
    }

    /// The widest shape of `rows` rows whose cells, of `cell_bytes` each, take at most `memory_bytes`.
    ///
    /// **Errors**: the memory is too small for one cell in each row, or there are no rows or more than 32.
    pub fn for_memory(memory_bytes: usize, rows: usize, cell_bytes: usize) -> Result<Self, Error> {
        let least = rows.saturating_mul(cell_bytes);
        match memory_bytes.checked_div(least) {
            Some(0) => Err(Error::TooLittleMemory {
                given: memory_bytes,
                least,
            }),
            width => Self::new(rows, 1 << width.unwrap_or(1).ilog2()),
        }
    }

    /// A shape of `rows` rows, each of `width` cells.
    ///
    /// **Errors**: there are no rows or more than 32, or the width is not a power of two up to
    /// 2^40.
    pub fn new(rows: usize, width: usize) -> Result<Self, Error> {
        if !(1..=MOST_ROWS).contains(&rows) {
            return Err(Error::Parameter {
                name: "rows",
                given: rows as f64,
                must: "from 1 to 32",
            });
        }
        if !width.is_power_of_two() || width.ilog2() > MOST_WIDTH_LOG2 {
            return Err(Error::Parameter {
                name: "width",
                given: width as f64,
                must: "a power of two up to 2^40",
            });
        }
        Ok(Self {
            rows,
            width_log2: width.ilog2(),
        })
    }

    /// Number of rows.
    #[inline(always)]
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Number of cells in a row, a power of two.
    pub fn width(self) -> usize {
        1 << self.width_log2
    }

    /// Number of cells in all rows.
    pub(crate) fn cells(self) -> usize {
        self.rows << self.width_log2
    }

    /// The error bound at this total.
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

/// The cells of one key, one in each row.
#[derive(Clone)]
pub(crate) struct Columns {
    hash: u64,
    step: u64,
    row: usize,
    width_log2: u32,
}

impl Columns {
    #[inline(always)]
    pub(crate) fn new(shape: Shape, hash: u64) -> Self {
        let hash = spread(hash);
        Self {
            hash,
            step: hash.rotate_left(32) | 1,
            row: 0,
            width_log2: shape.width_log2,
        }
    }

    /// Index of the next row's cell among all cells.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> usize {
        let index = (self.row << self.width_log2) + self.column();
        self.row += 1;
        index
    }

    /// Index of the next row's cell in its row.
    #[inline(always)]
    pub(super) fn column(&mut self) -> usize {
        // Two shifts, because a row of one cell would need a shift by all 64 bits.
        let column = (self.hash >> 1 >> (63 - self.width_log2)) as usize;
        self.hash = self.hash.wrapping_add(self.step);
        column
    }
}
