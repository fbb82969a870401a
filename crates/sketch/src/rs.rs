//! Reversible Sketch: counts from which the heavy keys themselves are recovered, also from the sum or the difference of sketches.
//!
//! ```text
//! update    y = mangled key, a permutation (see `rs/hashing.rs`)
//!           row i < H:  index = h[i][0](byte 0 of y) ... h[i][q - 1](byte q - 1 of y), the fields side by side
//!           two verifying rows: index = an unrelated hash of y
//!           each row: cell[index] += weight
//! estimate  row: (C - S / K) / (1 - 1 / K), with the cell C, the total S and K cells in a row; the median over all rows
//! recover   heavy cells of each row; then, word by word, all values whose fields lead to a heavy cell in enough rows; the
//!           words unmangled; the keys that the verifying rows confirm
//! ```
//!
//! **The range of an estimate**: the weight of a key is never above the least of its cells. It is more than `epsilon` of the
//! total below this cell with probability `delta` at most, as in Count-Min: epsilon = e / K, delta = e^-H. Rows are not
//! independent in the sense of the proof, because they share the mangling: the bound is *empirically verified* by the tests.
//!
//! **Recall**: as nothing is subtracted from a stream's cells, every key of at least the threshold is recovered, with
//! certainty. In a difference, changes of opposite sign can hide a key in some row: see [`Difference`].
//!
//! **Source**: Schweller, Gupta, Parsons, Chen, "Reversible sketches for efficient and accurate change detection over network
//! data streams" (IMC 2004); Schweller, Li, Chen et al., "Reversible sketches: enabling monitoring and analysis over
//! high-speed data streams" (IEEE/ACM Transactions on Networking 15(5), 2007).

mod difference;
mod hashing;
mod image;
mod recovery;
mod shape;
mod shared;

pub use difference::{Changed, Changes, Difference};
pub use shape::ReversibleShape;
pub use shared::SharedReversible;

use weir_memory::{Request, Table};

use crate::error::alike;
use crate::{Bound, Cell, Error, LANES, LIMIT};
use hashing::{Hashing, Lanes};

/// Counts of 32-bit or 64-bit keys, such as an address or a pair of addresses, from which heavy keys are recovered.
///
/// Keys are numbers; of a 64-bit number, a sketch of 32-bit keys uses the lower half. The sketch hashes keys itself, with the
/// functions that its seed names.
///
/// **Cost**: an update touches one cache line of each row, which is prefetched, and reads a small table for each row and byte
/// of the key. **Error bound**: see [`estimate`](Self::estimate). Cells of `u32` saturate at 4 294 967 295, see
/// [`is_saturated`](Self::is_saturated). To count bytes, use `u64`. **Merge**: equal to one sketch of both streams.
///
/// ```
/// use weir_sketch::{Reversible, ReversibleShape};
///
/// let shape = ReversibleShape::for_memory(1 << 20, 32, 4)?;
/// let mut sketch = Reversible::<u32>::new(shape, 1, &weir_memory::Request::default())?;
/// let address = u32::from_be_bytes([192, 0, 2, 7]);
/// sketch.update(&[u64::from(address); 500]);
/// let recovered = sketch.recover(400);
/// assert_eq!(recovered.heavy[0].key, u64::from(address));
/// assert_eq!(recovered.heavy[0].upper, 500);
/// # Ok::<(), weir_sketch::Error>(())
/// ```
pub struct Reversible<C> {
    /// Row after row, verifying rows last.
    cells: Table<C>,
    hashing: Hashing,
    seed: u64,
    total: u64,
}

/// A key with its estimated weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The key.
    pub key: u64,
    /// Estimated weight, within the range.
    pub estimate: u64,
    /// Lower end of the range: the true weight is below it with probability [`Bound::delta`] at most.
    pub lower: u64,
    /// Upper end of the range, which the true weight never exceeds.
    pub upper: u64,
}

/// Heavy keys of a sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyKeys {
    /// Keys, heaviest first by their estimates; keys of equal estimates in increasing order.
    pub heavy: Vec<Recovered>,
    /// Whether the search ended by itself. Otherwise there were too many heavy cells or candidates for the bounded work, and
    /// keys may be missing: a higher threshold or more memory would do.
    pub is_complete: bool,
}

/// Keys to be counted together, mangled, with their weights.
struct Batch {
    mangled: Lanes<u64>,
    weights: Lanes<u32>,
    len: usize,
}

impl Batch {
    /// The next keys; `None` if there are none.
    #[inline(always)]
    fn next(hashing: &Hashing, weighted: &mut impl Iterator<Item = (u64, u32)>) -> Option<Self> {
        let mut batch = Self {
            mangled: [0; LANES],
            weights: [0; LANES],
            len: 0,
        };
        for (key, weight) in weighted.take(LANES) {
            batch.mangled[batch.len] = hashing.mangle(key);
            batch.weights[batch.len] = weight;
            batch.len += 1;
        }
        (batch.len > 0).then_some(batch)
    }

    fn sum(&self) -> u64 {
        self.weights[..self.len]
            .iter()
            .copied()
            .map(u64::from)
            .sum()
    }

    /// Calls `prefetch` and `add` with each row and all buckets of the batch in it; `add` a row later, when the memory has
    /// arrived.
    #[inline(always)]
    fn each_row<T>(
        &self,
        hashing: &Hashing,
        mut cells: T,
        prefetch: impl Fn(&T, usize, &[u32]),
        mut add: impl FnMut(&mut T, usize, &[u32], &[u32]),
    ) {
        let (mangled, weights) = (&self.mangled[..self.len], &self.weights[..self.len]);
        let mut places = [0; LANES];
        hashing.places(0, mangled, &mut places);
        prefetch(&cells, 0, &places[..self.len]);
        let rows = hashing.shape.all_rows();
        for row in 1..rows {
            let mut next = [0; LANES];
            hashing.places(row, mangled, &mut next);
            prefetch(&cells, row, &next[..self.len]);
            add(&mut cells, row - 1, &places[..self.len], weights);
            places = next;
        }
        add(&mut cells, rows - 1, &places[..self.len], weights);
    }
}

impl<C: Cell> Reversible<C> {
    /// A sketch of this shape; `seed` chooses its hash functions.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn new(shape: ReversibleShape, seed: u64, request: &Request) -> Result<Self, Error> {
        Ok(Self {
            cells: Table::zeroed(shape.cells(), request)?,
            hashing: Hashing::new(shape, seed),
            seed,
            total: 0,
        })
    }

    /// Counts a packet for each key.
    pub fn update(&mut self, keys: &[u64]) {
        self.update_weighted(keys.iter().map(|key| (*key, 1)));
    }

    /// Adds its weight to each key.
    #[inline]
    pub fn update_weighted(&mut self, weighted: impl IntoIterator<Item = (u64, u32)>) {
        let mut weighted = weighted.into_iter();
        let width = self.hashing.shape.width();
        while let Some(batch) = Batch::next(&self.hashing, &mut weighted) {
            self.total = self.total.saturating_add(batch.sum());
            batch.each_row(
                &self.hashing,
                &mut self.cells[..],
                |cells, row, places| {
                    for place in places {
                        weir_memory::prefetch(cells, row * width + *place as usize);
                    }
                },
                |cells, row, places, weights| {
                    let cells = &mut cells[row * width..][..width];
                    for (place, weight) in places.iter().zip(weights) {
                        let cell = &mut cells[*place as usize];
                        *cell = cell.plus(*weight);
                    }
                },
            );
        }
    }

    /// Estimated weight of a key, with its range.
    ///
    /// **Error bound**: the weight is at most `upper`, with certainty, and below `lower` with probability
    /// [`Bound::delta`] at most. After a cell has saturated, an `upper` of the largest value of a cell may be too low.
    pub fn estimate(&self, key: u64) -> Recovered {
        self.estimate_mangled(key & self.key_mask(), self.hashing.mangle(key))
    }

    fn estimate_mangled(&self, key: u64, mangled: u64) -> Recovered {
        let shape = self.hashing.shape;
        let mean = Mean::new(self.total as f64, shape.width());
        let mut corrected = [0.0; MOST_ALL_ROWS];
        let mut upper = u64::MAX;
        for (row, corrected) in corrected[..shape.all_rows()].iter_mut().enumerate() {
            let cell = self.cell(row, mangled);
            upper = upper.min(cell);
            *corrected = mean.correct(cell as f64);
        }
        let lower = upper.saturating_sub(self.bound().excess);
        let median = median(&mut corrected[..shape.all_rows()]);
        Recovered {
            key,
            estimate: (median.round().max(0.0) as u64).clamp(lower, upper),
            lower,
            upper,
        }
    }

    /// The count in a key's cell of a row.
    fn cell(&self, row: usize, mangled: u64) -> u64 {
        self.row(row)[self.hashing.place(row, mangled)].into()
    }

    fn row(&self, row: usize) -> &[C] {
        let width = self.hashing.shape.width();
        &self.cells[row * width..][..width]
    }

    fn key_mask(&self) -> u64 {
        u64::MAX >> (64 - self.hashing.shape.key_bits())
    }

    /// All keys that may weigh at least `threshold`, which is at least 1: every key that does, and lighter keys whose range
    /// reaches it.
    ///
    /// **Cost**: reads all cells, and allocates; then grows with the number of heavy cells in a row, t. Work is bounded to
    /// about a second. With some hundred heavy keys, it takes milliseconds; with t near the width / 8, most searches are given
    /// up.
    pub fn recover(&self, threshold: u64) -> HeavyKeys {
        self.recover_within(threshold, recovery::WORK)
    }

    /// [`recover`](Self::recover) with another bound on the number of visited buckets.
    pub(crate) fn recover_within(&self, threshold: u64, work: usize) -> HeavyKeys {
        let threshold = threshold.max(1);
        let heavy = |row| {
            let cells = self.row(row).iter().enumerate();
            let heavy = cells.filter(|(_, cell)| (**cell).into() >= threshold);
            heavy.map(|(place, _)| place as u32).collect()
        };
        let rows: Vec<Vec<u32>> = (0..self.hashing.shape.rows()).map(heavy).collect();
        let candidates = recovery::reverse(&self.hashing, &rows, 0, work);
        let estimates = candidates.mangled.into_iter().map(|mangled| {
            let key = self.hashing.unmangle(mangled);
            self.estimate_mangled(key, mangled)
        });
        let mut heavy: Vec<_> = estimates.filter(|key| key.upper >= threshold).collect();
        heavy.sort_unstable_by(|a, b| b.estimate.cmp(&a.estimate).then(a.key.cmp(&b.key)));
        HeavyKeys {
            heavy,
            is_complete: candidates.is_complete,
        }
    }

    /// The `k` heaviest keys that can be recovered, and the largest possible weight of any other key.
    ///
    /// **Cost**: as of [`recover`](Self::recover), for the lowest threshold that leaves a hundred or `2 k` heavy cells in each
    /// row.
    pub fn ranking(&self, k: usize) -> (Vec<Recovered>, u64) {
        self.ranking_within(k, recovery::WORK)
    }

    /// [`ranking`](Self::ranking) with another bound on the number of visited buckets.
    pub(crate) fn ranking_within(&self, k: usize, mut work: usize) -> (Vec<Recovered>, u64) {
        // More heavy cells than there are would only spend the work.
        let mut most = k.saturating_mul(2).max(128).min(self.hashing.shape.width());
        loop {
            work /= 2;
            let threshold = (0..self.hashing.shape.rows())
                .map(|row| recovery::above(self.row(row).iter().map(|cell| (*cell).into()), most))
                .max()
                .unwrap_or(0)
                .saturating_add(1);
            let mut found = self.recover_within(threshold, work);
            if found.is_complete || most == 0 {
                let others = found.heavy.split_off(k.min(found.heavy.len()));
                let upper = others.iter().map(|key| key.upper).max();
                return (found.heavy, upper.unwrap_or(0).max(threshold - 1));
            }
            most /= 2;
        }
    }

    /// Largest error of estimates, at the present total: the distance from `upper` to `lower`.
    pub fn bound(&self) -> Bound {
        self.hashing.shape.bound(self.total)
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

    /// Number of rows, their width, and the length of keys.
    pub fn shape(&self) -> ReversibleShape {
        self.hashing.shape
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

    /// Seed of the hash functions, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.cells.fill(C::new_zeroed());
        self.total = 0;
    }

    /// Adds all counts of `other`, cell by cell. The result equals one sketch of both streams.
    ///
    /// **Errors**: the sketches differ in shape or seed, or the sum of the totals exceeds 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.alike(other)?;
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

    /// Refuses a sketch of another shape or seed.
    fn alike(&self, other: &Self) -> Result<(), Error> {
        let (mine, theirs) = (self.shape(), other.shape());
        let bits = (mine.key_bits(), theirs.key_bits());
        alike("key bits", bits.0.into(), bits.1.into())?;
        alike("rows", mine.rows() as u64, theirs.rows() as u64)?;
        alike("width", mine.width() as u64, theirs.width() as u64)?;
        alike("hash seed", self.seed, other.seed)
    }
}

/// Rows of the largest shape.
const MOST_ALL_ROWS: usize = 18;

/// Mean of a row's cells, and the estimate that subtracts it.
#[derive(Clone, Copy, Debug)]
struct Mean {
    mean: f64,
    share: f64,
}

impl Mean {
    fn new(total: f64, width: usize) -> Self {
        Self {
            mean: total / width as f64,
            share: 1.0 - 1.0 / width as f64,
        }
    }

    fn correct(self, cell: f64) -> f64 {
        (cell - self.mean) / self.share
    }
}

/// The middle value, or the mean of both; 0 of no values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values {
        [] => 0.0,
        _ => (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0,
    }
}

impl<C> core::fmt::Debug for Reversible<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shape = self.hashing.shape;
        write!(f, "Reversible({shape:?}, total {})", self.total)
    }
}
