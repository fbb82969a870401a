//! A reversible sketch that several threads update at once.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_memory::{Request, Table};

use super::hashing::Hashing;
use super::{Batch, Reversible, ReversibleShape};
use crate::Error;

/// A [`Reversible`] sketch of 64-bit cells that several threads update at once, without losing an update.
///
/// Cells are added to atomically, so that the result equals the result of one thread, whatever the order. Cells are 64 bits
/// wide, because atomic additions wrap instead of saturating.
///
/// **Cost**: an atomic addition for each row. **Threads**: any.
pub struct SharedReversible {
    cells: Table<AtomicU64>,
    hashing: Hashing,
    seed: u64,
    total: AtomicU64,
}

impl SharedReversible {
    /// A sketch of this shape; `seed` chooses its hash functions.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn new(shape: ReversibleShape, seed: u64, request: &Request) -> Result<Self, Error> {
        Ok(Self {
            cells: Table::zeroed(shape.cells(), request)?,
            hashing: Hashing::new(shape, seed),
            seed,
            total: AtomicU64::new(0),
        })
    }

    /// Counts a packet for each key.
    pub fn update(&self, keys: &[u64]) {
        self.update_weighted(keys.iter().map(|key| (*key, 1)));
    }

    /// Adds its weight to each key.
    #[inline]
    pub fn update_weighted(&self, weighted: impl IntoIterator<Item = (u64, u32)>) {
        let mut weighted = weighted.into_iter();
        let width = self.hashing.shape.width();
        while let Some(batch) = Batch::next(&self.hashing, &mut weighted) {
            batch.each_row(
                &self.hashing,
                &self.cells[..],
                |cells, row, places| {
                    for place in places {
                        weir_memory::prefetch(cells, row * width + *place as usize);
                    }
                },
                |cells, row, places, weights| {
                    let cells = &cells[row * width..][..width];
                    for (place, weight) in places.iter().zip(weights) {
                        cells[*place as usize].fetch_add(u64::from(*weight), Ordering::Relaxed);
                    }
                },
            );
            self.total.fetch_add(batch.sum(), Ordering::Relaxed);
        }
    }

    /// Sum of the weights of all finished batches.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
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
        self.cells.iter_mut().for_each(|cell| *cell.get_mut() = 0);
        *self.total.get_mut() = 0;
    }

    /// A copy that is no longer shared, from which keys are recovered. Exact if no thread updates the sketch in the meantime.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn snapshot(&self, request: &Request) -> Result<Reversible<u64>, Error> {
        let mut sketch = Reversible::new(self.shape(), self.seed, request)?;
        sketch.total = self.total();
        for (cell, shared) in sketch.cells.iter_mut().zip(self.cells.iter()) {
            *cell = shared.load(Ordering::Relaxed);
        }
        Ok(sketch)
    }
}

impl core::fmt::Debug for SharedReversible {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let total = self.total();
        write!(f, "SharedReversible({:?}, total {total})", self.shape())
    }
}
