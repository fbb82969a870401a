//! Count-Min: estimates of a key's weight that are never too low.
//!
//! The sketch has d rows of w cells. A key has one cell in each row; a packet is added to all of them. The estimate of a key is
//! the least of its d cells. Other keys in the same cells make the estimate too high.
//!
//! **Rows from one hash**: row i takes the upper bits of `a + i b`. Here `a` is the hash times an odd constant, and `b` is
//! `a` with its halves exchanged, made odd. Such rows are not pairwise independent in the sense that the textbook's proof
//! needs. The bound holds all the same: this is *empirically verified* by the tests of this crate, over many seeds and
//! skews.
//!
//! **Conservative update** (Estan and Varghese): only cells below the key's new estimate are
//! raised, and only to it. Estimates are never below the truth and never above the estimates of the
//! plain sketch. But nothing can be subtracted, and a merge is not the sketch of the concatenated
//! stream: only the bound is kept.
//!
//! **Source**: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications"
//! (2005); Estan and Varghese, "New directions in traffic measurement and accounting" (2002); Kirsch and Mitzenmacher,
//! "Less hashing, same performance" (2008).

mod image;
mod shape;
mod shared;

pub use shape::{Bound, Shape};
pub use shared::SharedCms;

use weir_memory::{Request, Table};
use zerocopy::FromZeros;

use crate::error::alike;
use crate::{Error, LIMIT};
pub(crate) use shape::Columns;

/// Effect of an update on the cells of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Adds the weight to each cell.
    #[default]
    Plain,
    /// Raises the cells that are below the new estimate.
    Conservative,
}

/// A counter: `u32`, which saturates, or `u64`.
pub trait Cell:
    Copy + Ord + FromZeros + Into<u64> + Send + Sync + sealed::Sealed + 'static
{
    /// The largest value. A cell of this value stands for that much or more.
    const MAX: Self;

    /// The value plus one; the caller knows that it fits.
    #[doc(hidden)]
    fn next(self) -> Self;

    /// The sum, or [`MAX`](Self::MAX).
    fn plus(self, weight: u32) -> Self;

    /// The sum, or [`MAX`](Self::MAX).
    fn join(self, other: Self) -> Self;

    /// The value, or [`MAX`](Self::MAX).
    fn of(value: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

impl Cell for u32 {
    const MAX: Self = u32::MAX;

    #[inline(always)]
    fn plus(self, weight: u32) -> Self {
        self.saturating_add(weight)
    }

    #[inline(always)]
    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    fn join(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn of(value: u64) -> Self {
        u32::try_from(value).unwrap_or(u32::MAX)
    }
}

impl Cell for u64 {
    const MAX: Self = u64::MAX;

    #[inline(always)]
    fn plus(self, weight: u32) -> Self {
        self.saturating_add(u64::from(weight))
    }

    #[inline(always)]
    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    fn join(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn of(value: u64) -> Self {
        value
    }
}

/// Count-Min over hashed keys.
///
/// **Cost**: an update touches one cache line of each row. **Error bound**: an estimate is never below the truth. For each
/// queried key, the estimate exceeds the truth by more than [`Bound::excess`] with probability [`Bound::delta`] at most.
/// Cells of `u32` saturate at 4 294 967 295: an estimate of that value means as much or more, see
/// [`is_saturated`](Self::is_saturated). To count bytes, use `u64`.
///
/// ```
/// use weir_sketch::{Cms, Rule, Shape};
///
/// let shape = Shape::for_error(0.001, 0.01)?;
/// let mut cms = Cms::<u32>::new(shape, Rule::Plain, 1, &weir_memory::Request::default())?;
/// cms.update(&[0x0123_4567_89ab_cdef; 3]);
/// assert_eq!(cms.estimate(0x0123_4567_89ab_cdef), 3);
/// # Ok::<(), weir_sketch::Error>(())
/// ```
pub struct Cms<C> {
    /// Row after row.
    cells: Table<C>,
    shape: Shape,
    rule: Rule,
    seed: u64,
    total: u64,
}

impl<C: Cell> Cms<C> {
    /// A sketch of this shape; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn new(shape: Shape, rule: Rule, seed: u64, request: &Request) -> Result<Self, Error> {
        Ok(Self {
            cells: Table::zeroed(shape.cells(), request)?,
            shape,
            rule,
            seed,
            total: 0,
        })
    }

    /// Counts a packet for each hash.
    pub fn update(&mut self, hashes: &[u64]) {
        let total = self.total.saturating_add(hashes.len() as u64);
        if self.rule == Rule::Plain && self.shape.rows() == 4 && total < C::MAX.into() {
            self.count_in_four_rows(hashes);
            self.total = total;
        } else {
            self.update_weighted(hashes.iter().map(|hash| (*hash, 1)));
        }
    }

    /// The common case: no cell is larger than the total, so no cell can overflow.
    #[inline(always)]
    fn count_in_four_rows(&mut self, hashes: &[u64]) {
        let width = self.shape.width();
        let (first, second) = self.cells.split_at_mut(2 * width);
        let ((a, b), (c, d)) = (first.split_at_mut(width), second.split_at_mut(width));
        for hash in hashes {
            let mut columns = Columns::new(self.shape, *hash);
            for row in [&mut *a, &mut *b, &mut *c, &mut *d] {
                let cell = &mut row[columns.column()];
                *cell = cell.next();
            }
        }
    }

    /// Adds its weight to each hash.
    #[inline]
    pub fn update_weighted(&mut self, weighted: impl IntoIterator<Item = (u64, u32)>) {
        let weighted = weighted.into_iter();
        // Four rows are the common case, so its loop is unrolled.
        match (self.rule, self.shape.rows()) {
            (Rule::Plain, 4) => self.each(weighted, |cells, columns, weight| {
                add(cells, columns, weight, 4)
            }),
            (Rule::Plain, rows) => self.each(weighted, |cells, columns, weight| {
                add(cells, columns, weight, rows)
            }),
            (Rule::Conservative, 4) => self.each(weighted, |cells, columns, weight| {
                raise(cells, columns, weight, 4)
            }),
            (Rule::Conservative, rows) => {
                self.each(weighted, |cells, columns, weight| {
                    raise(cells, columns, weight, rows)
                });
            }
        }
    }

    #[inline(always)]
    fn each(
        &mut self,
        weighted: impl Iterator<Item = (u64, u32)>,
        update: impl Fn(&mut [C], Columns, u32),
    ) {
        let cells = &mut self.cells[..];
        let mut sum = 0;
        for (hash, weight) in weighted {
            sum += u64::from(weight);
            update(cells, Columns::new(self.shape, hash), weight);
        }
        self.total = self.total.saturating_add(sum);
    }

    /// Upper bound of a key's weight, probably only a little above it.
    pub fn estimate(&self, hash: u64) -> u64 {
        let mut columns = Columns::new(self.shape, hash);
        (0..self.shape.rows())
            .map(|_| self.cells[columns.step()].into())
            .min()
            .unwrap_or(0)
    }

    /// Largest error of estimates, at the present total.
    pub fn bound(&self) -> Bound {
        self.shape.bound(self.total)
    }

    /// Whether a cell has reached its largest value. Then estimates of that value are lower bounds, not upper bounds.
    ///
    /// **Cost**: reads all cells, but only if the total is large enough for saturation.
    pub fn is_saturated(&self) -> bool {
        self.total >= C::MAX.into() && self.cells.contains(&C::MAX)
    }

    /// Sum of all counted weights.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of rows and their width.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Effect of an update.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Memory of the cells, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }

    /// The memory that the table really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.cells.obtained()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.cells.fill(C::new_zeroed());
        self.total = 0;
    }

    /// Adds all counts of `other`, cell by cell. Plain: equal to one sketch of both streams.
    /// Conservative: the bound follows from the summed total.
    ///
    /// **Errors**: the sketches differ in shape, rule or seed, or the sum of the totals exceeds 2^63; then nothing has
    /// changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        alike("rows", self.shape.rows() as u64, other.shape.rows() as u64)?;
        alike(
            "width",
            self.shape.width() as u64,
            other.shape.width() as u64,
        )?;
        alike("rule", self.rule as u64, other.rule as u64)?;
        alike("hash seed", self.seed, other.seed)?;
        self.total = self
            .total
            .checked_add(other.total)
            .filter(|sum| *sum <= LIMIT)
            .ok_or(Error::TooMuch)?;
        for (cell, other) in self.cells.iter_mut().zip(other.cells.iter()) {
            *cell = cell.join(*other);
        }
        Ok(())
    }
}

/// Adds a weight by the plain rule.
#[inline(always)]
fn add<C: Cell>(cells: &mut [C], mut columns: Columns, weight: u32, rows: usize) {
    for _ in 0..rows {
        let cell = &mut cells[columns.step()];
        *cell = cell.plus(weight);
    }
}

/// Adds a weight by the conservative rule.
#[inline(always)]
fn raise<C: Cell>(cells: &mut [C], columns: Columns, weight: u32, rows: usize) {
    let mut least = C::MAX;
    let mut at = columns.clone();
    for _ in 0..rows {
        least = least.min(cells[at.step()]);
    }
    let raised = least.plus(weight);
    let mut at = columns;
    for _ in 0..rows {
        let cell = &mut cells[at.step()];
        *cell = raised.max(*cell);
    }
}

impl<C> core::fmt::Debug for Cms<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Cms({:?}, {:?}, total {})",
            self.shape, self.rule, self.total
        )
    }
}
