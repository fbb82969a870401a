//! Packets become answers: counters per key, windows of time, totals, and the bound of every figure.
//!
//! A [`Aggregate`] takes [`Observation`]s and keeps a [`State`] for each open window. States of several workers merge; the
//! merged one answers. Where packets come from, and who runs whom, is not known here.
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

/// What to count and how.
#[derive(Debug)]
pub struct Config {
    /// What is counted by; each has a table of its own.
    pub keys: Vec<KeyKind>,
    /// What makes a key large.
    pub by: Weigh,
    /// How to count.
    pub sketch: Sketch,
    /// Memory of each table, bytes.
    pub memory: usize,
    /// What kind of memory.
    pub request: Request,
    /// How packet time is divided into windows.
    pub windowing: Windowing,
    /// Seed of the hash functions. The default is known to everybody: traffic that is made for it can bend the answers, so
    /// a caller that measures traffic of others draws a seed.
    pub seed: u64,
    /// Tables that all workers share, which not every sketch can be: see [`Sketch::can_be_shared`]. `None`: each has its own.
    pub shared: Option<SharedTables>,
}

impl Default for Config {
    /// 5-tuples by packets, in `heavy` tables of 4 MiB, without windows.
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
    /// The same with other keys; tables that workers share are new ones.
    pub fn with_keys(&self, keys: Vec<KeyKind>) -> Self {
        let Self { by, sketch, memory, request, windowing, seed, ref shared, .. } = *self;
        let shared = shared.as_ref().map(|_| SharedTables::default());
        Self { keys, by, sketch, memory, request, windowing, seed, shared }
    }

    /// The hash functions of the seed.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.seed)
    }
}

/// Why counters cannot be had or put together.
pub type Error = weir_sketch::Error;
