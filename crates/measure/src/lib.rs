//! Turns packets into answers: counters per key, windows of time, totals, and the bound of every figure.
//!
//! An [`Aggregate`] takes [`Observation`]s and keeps a [`State`] for each open window. States of several workers merge, and the
//! merged state answers. This crate knows neither the origin of the packets nor the threads that call it.
#![forbid(unsafe_code)]

mod aggregate;
mod answer;
mod counter;
mod key;
mod observation;
mod part;
mod state;
mod tally;
mod windows;

pub use aggregate::{Aggregate, Spares};
pub use answer::{Bound, BoundKind, Change, Estimate, Keys, Missing, Row, Table, Window};
pub use counter::{SharedTables, Sketch};
pub use key::{KeyKind, NoSuchKey};
pub use observation::{Kind, Observation};
pub use state::State;
pub use tally::{Arrivals, Keyless, SIZE_CLASSES, Sizes, Tally, size_class};
pub use weir_sketch::Weigh;
pub use windows::{Slot, Windowing, Windows};

use weir_memory::Request;
use weir_packet::flow::Hasher;

/// Settings of the counters: keys, sketch, memory and windows.
#[derive(Debug)]
pub struct Config {
    /// Kinds of key that are counted; each kind has a table of its own.
    pub keys: Vec<KeyKind>,
    /// Figure that ranks the keys: packets or bytes.
    pub by: Weigh,
    /// Sketch that counts.
    pub sketch: Sketch,
    /// Memory of each table, in bytes.
    pub memory: usize,
    /// Kind of memory: page size, node and population.
    pub request: Request,
    /// Division of packet time into windows.
    pub windowing: Windowing,
    /// Seed of the hash functions. The default seed is public, so crafted traffic can falsify the answers. A caller that
    /// measures the traffic of others draws a seed.
    pub seed: u64,
    /// Tables that all workers share; `None`: each worker has its own. Not every sketch can be shared: see
    /// [`Sketch::can_be_shared`].
    pub shared: Option<SharedTables>,
}

/// A setting of the counters that can be replaced while they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Kinds of key, at least one.
    Keys(Vec<KeyKind>),
    /// Sketch that counts.
    Sketch(Sketch),
    /// Memory of each table, in bytes.
    Memory(usize),
}

impl Default for Config {
    /// Counts 5-tuples by packets, in `heavy` tables of 4 MiB, without windows.
    fn default() -> Self {
        Self {
            keys: vec![KeyKind::FiveTuple],
            by: Weigh::default(),
            sketch: Sketch::default(),
            memory: 4 << 20,
            request: Request::default(),
            windowing: Windowing::default(),
            seed: 0,
            shared: None,
        }
    }
}

impl Config {
    /// Returns the same settings with another value for one of them, and with new tables if workers share tables.
    pub fn with(&self, setting: Setting) -> Self {
        let mut other = Self {
            keys: self.keys.clone(),
            request: self.request,
            shared: self.shared.as_ref().map(|_| SharedTables::default()),
            ..*self
        };
        match setting {
            Setting::Keys(keys) => other.keys = keys,
            Setting::Sketch(sketch) => other.sketch = sketch,
            Setting::Memory(memory) => other.memory = memory,
        }
        other
    }

    /// Returns the hash functions of the seed.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.seed)
    }
}

/// Reason why counters cannot be created or merged.
pub type Error = weir_sketch::Error;
