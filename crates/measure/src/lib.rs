//! Turns packets into answers: counters per key, windows of time, totals, and the bound of every figure.
//!
//! An [`Aggregate`] takes [`Observation`]s and keeps a [`State`] for each open window. States of several workers merge, and the
//! merged state answers. This crate knows neither the origin of the packets nor the threads that call it.
#![forbid(unsafe_code)]

mod aggregate;
mod answer;
mod by;
mod compare;
mod counter;
mod geo;
pub mod health;
mod key;
pub mod names;
mod observation;
pub mod owners;
mod part;
mod rate;
mod recent;
mod service;
mod spread;
mod state;
mod tally;
mod watch;
mod windows;

pub use aggregate::{Aggregate, Spares};
pub use answer::{
    Bound, BoundKind, Change, Estimate, Keys, Missing, Row, Sample, Sides, SpreadTable, Spreader,
    Status, Table, Window, largest_changes,
};
pub use by::{By, Unfit};
pub use compare::{Comparison, Contrast, Half, Listed, Scale, compare};
pub use counter::{SharedTables, Sketch};
pub use geo::{Geo, GeoError, Places, country_of, network_of, system_of};
pub(crate) use key::RECEIVES;
pub use key::{Field, Fields, KeyKind, NoSuchKey, Prefix, Unpacked, app_name, mac_of};
pub use observation::{Kind, Observation};
pub use rate::{bits_per_second, per_second};
pub use service::service_name;
pub use spread::PairFields;
pub use state::State;
pub use tally::{Arrivals, Keyless, SIZE_CLASSES, Sizes, Tally, size_class};
pub use weir_sketch::{Counts, Times, Weigh};
pub use windows::{Slot, Windowing, Windows};

use owners::Owners;
use std::sync::Arc;
use weir_memory::Request;
use weir_packet::addresses::Addresses;
use weir_packet::flow::Hasher;

/// Settings of the counters: keys, sketch, memory and windows.
#[derive(Debug)]
pub struct Config {
    /// Kinds of key that are counted; each kind has a table of its own.
    pub keys: Vec<KeyKind>,
    /// Figure that ranks the keys. [`By::check`] tells which kinds of key have it.
    pub by: By,
    /// Sketch that counts packets and bytes. Distinct elements are counted by a sample of pairs.
    pub sketch: Sketch,
    /// Memory of each table, in bytes.
    pub memory: usize,
    /// Rows that an answer lists, if another sketch takes the memory of [`table_memory`]; `None` if it keeps this memory.
    pub rows: Option<usize>,
    /// Kind of memory: page size, node and population.
    pub request: Request,
    /// Division of packet time into windows.
    pub windowing: Windowing,
    /// Seed of the hash functions. The default seed is public, so crafted traffic can falsify the answers. A caller that
    /// measures the traffic of others draws a seed.
    pub seed: u64,
    /// Addresses on this side of the link, which tell incoming from outgoing packets; `None`: interfaces tell it, if they can.
    pub local: Option<Arc<Addresses>>,
    /// Memory for the names of addresses, bytes; `None`: the packets are not searched for names.
    pub names: Option<usize>,
    /// Processes of sockets, for tables of [processes](KeyKind::Process); `None`: they are not known.
    pub owners: Option<Arc<Owners>>,
    /// Whether the tables also keep the times of their keys, for which a key takes 32 bytes more. Not every sketch can: see
    /// [`Sketch::can_keep_times`].
    pub times: bool,
    /// Databases of the keys that [need one](KeyKind::needs_geo).
    pub geo: Option<Arc<Geo>>,
    /// Tables that all workers share; `None`: each worker has its own. Not every sketch can be shared: see
    /// [`Sketch::can_be_shared`].
    pub shared: Option<SharedTables>,
    /// Whether the state also counts hosts and contacts of sources, for findings. Both take the memory of a table.
    pub watch: bool,
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
    /// Counts 5-tuples by packets, in `heavy` tables of [`table_memory`], without windows.
    fn default() -> Self {
        let rows = 10;
        Self {
            keys: vec![KeyKind::FiveTuple],
            by: By::default(),
            sketch: Sketch::default(),
            memory: table_memory(Sketch::default(), rows, false),
            rows: Some(rows),
            request: Request::default(),
            windowing: Windowing::default(),
            seed: 0,
            local: None,
            names: None,
            owners: None,
            times: false,
            geo: None,
            shared: None,
            watch: false,
        }
    }
}

impl Config {
    /// Returns the same settings with another value for one of them, and with new tables if workers share tables.
    /// **Errors**: the figure that ranks does not go with the new value.
    pub fn with(&self, setting: Setting) -> Result<Self, Unfit> {
        let mut other = Self {
            keys: self.keys.clone(),
            request: self.request,
            local: self.local.clone(),
            owners: self.owners.clone(),
            geo: self.geo.clone(),
            shared: self.shared.as_ref().map(|_| SharedTables::default()),
            ..*self
        };
        match setting {
            Setting::Keys(keys) => {
                for key in &keys {
                    self.by.check(*key)?;
                    self.check_geo(*key)?;
                }
                if self.names.is_none() && keys.contains(&KeyKind::Name) {
                    return Err(Unfit::Names);
                }
                if self.owners.is_none() && keys.iter().any(|key| key.needs_owners()) {
                    return Err(Unfit::Owners);
                }
                other.keys = keys;
            }
            Setting::Sketch(_) if self.by.is_distinct() => {
                return Err(Unfit::Sketch { by: self.by });
            }
            Setting::Sketch(sketch) if self.times && !sketch.can_keep_times() => {
                return Err(Unfit::Times { sketch });
            }
            Setting::Sketch(sketch) => {
                other.sketch = sketch;
                other.memory = self
                    .rows
                    .map_or(self.memory, |rows| table_memory(sketch, rows, self.times));
            }
            Setting::Memory(memory) => (other.memory, other.rows) = (memory, None),
        }
        let sketch = other.sketch;
        let unfit = other.keys.iter().find(|key| !sketch.can_count(**key));
        match unfit.filter(|_| !self.by.is_distinct()) {
            Some(&key) => Err(Unfit::Table { key, sketch }),
            None => Ok(other),
        }
    }

    /// Checks that a database has keys of a kind that needs one. **Errors**: [`Unfit::Geo`].
    pub fn check_geo(&self, key: KeyKind) -> Result<(), Unfit> {
        let is_there = !key.needs_geo() || self.geo.as_ref().is_some_and(|geo| geo.has(key));
        is_there.then_some(()).ok_or(Unfit::Geo { key })
    }

    /// Returns whether a kind of key needs the facts of packets.
    pub fn needs_facts(&self) -> bool {
        self.keys.iter().any(|kind| kind.needs_facts())
    }

    /// Returns the weight of a packet in tables that weigh packets.
    pub(crate) fn weigh(&self) -> Weigh {
        self.by.weigh().unwrap_or_default()
    }

    /// Returns the hash functions of the seed.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.seed)
    }
}

/// Returns the memory of a table, in bytes, if nobody says how much.
///
/// A `heavy` table gets half of the second-level cache, but 1 to 4 MiB: a load takes a few ns there, and a larger
/// table names the same top. Measured, 21 million frames of 60 bytes in a million flows, one worker: 31 to 33 ns a packet with
/// 1 MiB, 37 with 4 MiB, the same rows. The other sketches get 4 MiB, because their answers improve with each byte. Any table
/// has room for 16 keys for each of the `rows` that an answer lists, up to 64 MiB. With `times` it is half as much again, for as many keys.
pub fn table_memory(sketch: Sketch, rows: usize, times: bool) -> usize {
    /// Memory of 16 keys in the roomiest table.
    const ROW: usize = 16 * 80;
    let by_cache = match sketch {
        Sketch::Heavy => {
            (weir_memory::second_level_cache().unwrap_or(0) / 2).clamp(1 << 20, 4 << 20)
        }
        _ => 4 << 20,
    };
    let by_rows = rows.saturating_mul(ROW).min(64 << 20);
    let memory = by_cache.max(by_rows.next_power_of_two());
    memory + if times { memory / 2 } else { 0 }
}

/// Reason why counters cannot be created or merged.
pub type Error = weir_sketch::Error;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_be_counted_by_a_run_that_does_not_read_them() {
        let with = |config: &Config| config.with(Setting::Keys(vec![KeyKind::Name])).err();
        assert_eq!(with(&Config::default()), Some(Unfit::Names));
        let reading = Config {
            names: Some(names::MEMORY),
            ..Config::default()
        };
        assert_eq!(with(&reading), None);
    }

    #[test]
    fn tables_without_times_do_not_follow_tables_with_times() {
        let config = Config {
            times: true,
            ..Config::default()
        };
        let with = |sketch| config.with(Setting::Sketch(sketch)).err();
        let sketch = Sketch::Majority;
        assert_eq!(with(sketch), Some(Unfit::Times { sketch }));
        assert_eq!(with(Sketch::Exact), None);
    }

    #[test]
    fn memory_follows_the_sketch_and_the_rows_until_somebody_says_how_much() {
        let heavy = Config::default();
        assert!((1 << 20..=4 << 20).contains(&heavy.memory));
        let with =
            |config: &Config, setting| config.with(setting).expect("packets have all sketches");
        let exact = with(&heavy, Setting::Sketch(Sketch::Exact));
        assert_eq!(exact.memory, 4 << 20);
        let small = with(&exact, Setting::Memory(64 << 10));
        let cms = Sketch::Cms {
            conservative: false,
        };
        assert_eq!(with(&small, Setting::Sketch(cms)).memory, 64 << 10);
        assert_eq!(table_memory(Sketch::Heavy, 10_000, false), 16 << 20);
        assert_eq!(table_memory(Sketch::Heavy, 10_000, true), 24 << 20);
        assert_eq!(table_memory(Sketch::Heavy, usize::MAX, false), 64 << 20);
    }
}
