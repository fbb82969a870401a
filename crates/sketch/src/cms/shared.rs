//! A Count-Min sketch that several threads update at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use weir_memory::{Request, Table};

use super::shape::{Bound, Columns, Shape};
use super::{Cms, Rule};
use crate::{Error, spread};

/// A [`Cms`] of 64-bit cells that several threads update at once, without losing an update.
///
/// Plain cells are added to atomically, so that the result equals the result of one thread,
/// whatever the order. Conservative cells are raised to the new estimate unless they are above it
/// already. Two updates of *one key* that read the same estimate would raise it once instead of
/// twice. So a conservative update takes a lock that belongs to the key. Different keys may share a
/// cell without harm, because each key only needs the cell to be at least its own estimate.
///
/// Cells are 64 bits wide, because atomic additions wrap instead of saturating.
///
/// **Cost**: an atomic addition for each row. Conservative: a lock, and a compare-and-swap for each raised cell.
/// **Threads**: any. An estimate read during updates contains every update that was finished before.
#[derive(Debug)]
pub struct SharedCms {
    cells: Table<AtomicU64>,
    shape: Shape,
    rule: Rule,
    seed: u64,
    total: AtomicU64,
    /// Locks of the keys; bits of its hash choose the lock of a key.
    locks: Vec<Mutex<()>>,
}

const LOCKS: usize = 1024;

impl SharedCms {
    /// A sketch of this shape; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn new(shape: Shape, rule: Rule, seed: u64, request: &Request) -> Result<Self, Error> {
        let cells = Table::zeroed(shape.cells(), request)?;
        let locks = if rule == Rule::Conservative { LOCKS } else { 0 };
        let locks = (0..locks).map(|_| Mutex::new(())).collect();
        Ok(Self {
            cells,
            shape,
            rule,
            seed,
            total: AtomicU64::new(0),
            locks,
        })
    }

    /// Counts a packet for each hash.
    pub fn update(&self, hashes: &[u64]) {
        self.update_weighted(hashes.iter().map(|hash| (*hash, 1)));
    }

    /// Adds its weight to each hash.
    pub fn update_weighted(&self, weighted: impl IntoIterator<Item = (u64, u32)>) {
        let mut sum = 0;
        for (hash, weight) in weighted {
            let weight = u64::from(weight);
            sum += weight;
            match self.rule {
                Rule::Plain => self.add(hash, weight),
                Rule::Conservative => self.raise(hash, weight),
            }
        }
        self.total.fetch_add(sum, Ordering::Relaxed);
    }

    fn add(&self, hash: u64, weight: u64) {
        let mut columns = Columns::new(self.shape, hash);
        for _ in 0..self.shape.rows() {
            self.cells[columns.step()].fetch_add(weight, Ordering::Relaxed);
        }
    }

    fn raise(&self, hash: u64, weight: u64) {
        let lock = &self.locks[(spread(hash) >> 16) as usize % LOCKS];
        // The lock guards no data that a panic could leave inconsistent.
        let _mine = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let raised = self.estimate(hash) + weight;
        let mut columns = Columns::new(self.shape, hash);
        for _ in 0..self.shape.rows() {
            let cell = &self.cells[columns.step()];
            if cell.load(Ordering::Relaxed) < raised {
                cell.fetch_max(raised, Ordering::Relaxed);
            }
        }
    }

    /// Upper bound of a key's weight, probably only a little above it.
    pub fn estimate(&self, hash: u64) -> u64 {
        let mut columns = Columns::new(self.shape, hash);
        let cells =
            (0..self.shape.rows()).map(|_| self.cells[columns.step()].load(Ordering::Relaxed));
        cells.min().unwrap_or(0)
    }

    /// Largest error of estimates, at the present total.
    pub fn bound(&self) -> Bound {
        self.shape.bound(self.total())
    }

    /// Sum of the weights of all finished batches.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
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
        self.cells.iter_mut().for_each(|cell| *cell.get_mut() = 0);
        *self.total.get_mut() = 0;
    }

    /// A copy that is no longer shared, to be merged or written. Exact if no thread updates the
    /// sketch in the meantime.
    ///
    /// **Errors**: the memory cannot be obtained.
    pub fn snapshot(&self, request: &Request) -> Result<Cms<u64>, Error> {
        let mut sketch = Cms::new(self.shape, self.rule, self.seed, request)?;
        sketch.total = self.total();
        for (cell, shared) in sketch.cells.iter_mut().zip(self.cells.iter()) {
            *cell = shared.load(Ordering::Relaxed);
        }
        Ok(sketch)
    }
}
