//! Count-Min, and a heavy table that names its keys.

use super::figure::{Figure, keys_outside, rest, row};
use super::heavy::known;
use super::{Answers, Hash, TOGETHER};
use crate::answer::{Bound, BoundKind, Estimate, Missing, Row, Table};
use crate::{Config, Error};
use std::sync::Arc;
use weir_packet::flow::FlowKey;
use weir_sketch::{
    Cms, Counts, Entry, Heavy, Packet, Rule, Shape, SharedCms as SharedCells, Weigh,
};
use zerocopy::IntoBytes;

/// Number of Count-Min rows: a figure is within its bound with a probability of 1 - e^-4.
const ROWS: usize = 4;

/// Count-Min cells, and the heavy table that names the keys.
#[derive(Debug)]
pub(crate) struct NamedCms {
    cells: Cells,
    pub(super) names: Heavy<FlowKey>,
}

/// Count-Min cells that several workers update, and the names of one worker.
#[derive(Debug)]
pub(crate) struct SharedNamedCms {
    cells: Arc<SharedCells>,
    pub(super) names: Heavy<FlowKey>,
}

/// Count-Min cells: packets of one worker fit in 32 bits, bytes do not.
#[derive(Debug)]
enum Cells {
    Narrow(Cms<u32>),
    Wide(Cms<u64>),
}

/// Returns the rule of updates.
fn rule(conservative: bool) -> Rule {
    if conservative {
        Rule::Conservative
    } else {
        Rule::Plain
    }
}

/// Returns the shape of the largest Count-Min within three quarters of the memory.
fn shape(memory: usize, cell_bytes: usize) -> Result<Shape, Error> {
    Shape::for_memory(memory / 4 * 3, ROWS, cell_bytes)
}

/// Returns the heavy table for the memory that the cells leave.
fn names(config: &Config, used: usize) -> Result<Heavy<FlowKey>, Error> {
    Heavy::new(
        config.memory - used,
        config.weigh(),
        config.seed,
        &config.request,
    )
}

/// Creates cells that several workers update.
pub(super) fn shared_cells(config: &Config, conservative: bool) -> Result<SharedCells, Error> {
    let shape = shape(config.memory, size_of::<u64>())?;
    SharedCells::new(shape, rule(conservative), config.seed, &config.request)
}

impl NamedCms {
    pub(super) fn new(config: &Config, conservative: bool) -> Result<Self, Error> {
        let cells = Cells::new(config, rule(conservative))?;
        let names = names(config, cells.memory_bytes())?;
        Ok(Self { cells, names })
    }

    /// Counts packets, at most [`TOGETHER`], in the cells.
    #[inline]
    pub(super) fn update_cells<P: Packet<FlowKey>>(&mut self, items: &[P]) {
        match &mut self.cells {
            Cells::Narrow(cms) => {
                let mut hashes = [0; TOGETHER];
                hashes
                    .iter_mut()
                    .zip(items)
                    .for_each(|(hash, item)| *hash = item.hash());
                cms.update(&hashes[..items.len()]);
            }
            Cells::Wide(cms) => {
                cms.update_weighted(items.iter().map(|item| (item.hash(), item.bytes())));
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) -> Result<(), Error> {
        match (&mut self.cells, &other.cells) {
            (Cells::Narrow(mine), Cells::Narrow(theirs)) => mine.merge(theirs)?,
            (Cells::Wide(mine), Cells::Wide(theirs)) => mine.merge(theirs)?,
            _ => unreachable!("tables of one configuration have cells of one width"),
        }
        self.names.merge(&other.names)
    }

    /// Clears the table. Returns `false` and clears nothing if [`Self::new`] would make other cells.
    pub(super) fn clear(&mut self) -> bool {
        match &mut self.cells {
            Cells::Narrow(cms) => cms.clear(),
            Cells::Wide(cms) if self.names.weigh() == Weigh::Bytes => cms.clear(),
            // A table of packets in wide cells was a shared table before it was settled.
            Cells::Wide(_) => return false,
        }
        self.names.clear();
        true
    }
}

impl SharedNamedCms {
    pub(super) fn new(config: &Config, cells: &Arc<SharedCells>) -> Result<Self, Error> {
        Ok(Self {
            cells: Arc::clone(cells),
            names: names(config, cells.memory_bytes())?,
        })
    }

    /// Counts packets in the cells.
    #[inline]
    pub(super) fn update_cells<P: Packet<FlowKey>>(&self, items: &[P]) {
        let weigh = self.names.weigh();
        let weight = |item: &P| {
            if weigh == Weigh::Packets {
                1
            } else {
                item.bytes()
            }
        };
        self.cells
            .update_weighted(items.iter().map(|item| (item.hash(), weight(item))));
    }

    /// Returns an own table with the counts of the shared cells and the names, which are taken.
    pub(super) fn settle(&mut self, config: &Config) -> Result<NamedCms, Error> {
        // The names move; their replacement is dropped with the shared table.
        let least = Heavy::new(
            self.names.memory_bytes(),
            config.weigh(),
            config.seed,
            &config.request,
        )?;
        Ok(NamedCms {
            cells: Cells::Wide(self.cells.snapshot(&config.request)?),
            names: std::mem::replace(&mut self.names, least),
        })
    }
}

impl Answers for NamedCms {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, hash: Hash) -> Table {
        let Self { cells, names } = self;
        let row = |entry: Entry<FlowKey>| row(&entry, cells.figure(&entry, hash(&entry.key)), by);
        let mut all: Vec<Row> = names.iter().map(row).collect();
        let named = all.len();
        all.sort_unstable_by(|a, b| {
            b.counts
                .by(by)
                .cmp(&a.counts.by(by))
                .then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
        });
        let others = all.split_off(rows.min(all.len()));
        // This limit is certain, because neither the names' bounds nor the cells are ever below the true weight. A key
        // without a name weighs no more than `absent_upper` of the names, if the names have counted the same packets as
        // the cells.
        let at_most = others
            .iter()
            .map(|row| row.bound.upper)
            .max()
            .unwrap_or(0)
            .max(names.absent_upper());
        let saw_all = cells.total() == names.total().by(by);
        let kind = if saw_all {
            BoundKind::Deterministic
        } else {
            BoundKind::None
        };
        let missing = Missing {
            at_most,
            kind,
            keys: keys_outside(all.len(), named, known(names), keys),
            counts: rest(names.total(), &all),
        };
        Table {
            rows: all,
            untracked: Counts::default(),
            evicted: Counts::default(),
            ipv6: Counts::default(),
            overflowed: 0,
            late: 0,
            missing,
        }
    }

    fn keys(&self, hash: Hash) -> Vec<FlowKey> {
        self.names.keys(hash)
    }

    fn each(&self, by: Weigh, hash: Hash, each: &mut dyn FnMut(Row)) {
        for entry in self.names.iter() {
            each(row(&entry, self.cells.figure(&entry, hash(&entry.key)), by));
        }
    }

    fn has(&self, key: &FlowKey, hash: u64) -> bool {
        self.names.get(key, hash).is_some()
    }

    fn has_all(&self) -> bool {
        known(&self.names).is_some()
    }

    fn absent(&self, key: &FlowKey, hash: u64, by: Weigh) -> Bound {
        self.names.absent(key, hash, by)
    }

    fn figure(&self, key: &FlowKey, hash: u64, _: Weigh) -> Figure {
        match self.names.get(key, hash) {
            Some(entry) => self.cells.figure(&entry, hash),
            None => self.cells.bare_figure(hash, 0, u64::MAX),
        }
    }

    fn describe(&self) -> [String; 2] {
        let Self { cells, names } = self;
        [
            format!(
                "Count-Min, epsilon {:.2e}; heavy, room for {} names",
                cells.bound().epsilon,
                names.capacity()
            ),
            format!("{}; {}", cells.obtained(), names.obtained()),
        ]
    }
}

impl Cells {
    fn new(config: &Config, rule: Rule) -> Result<Self, Error> {
        let Config {
            memory,
            seed,
            request,
            ..
        } = config;
        Ok(match config.weigh() {
            Weigh::Packets => {
                let shape = shape(*memory, size_of::<u32>())?;
                Self::Narrow(Cms::new(shape, rule, *seed, request)?)
            }
            Weigh::Bytes => {
                let shape = shape(*memory, size_of::<u64>())?;
                Self::Wide(Cms::new(shape, rule, *seed, request)?)
            }
        })
    }

    fn estimate(&self, hash: u64) -> u64 {
        match self {
            Self::Narrow(cms) => cms.estimate(hash),
            Self::Wide(cms) => cms.estimate(hash),
        }
    }

    fn bound(&self) -> weir_sketch::Bound {
        match self {
            Self::Narrow(cms) => cms.bound(),
            Self::Wide(cms) => cms.bound(),
        }
    }

    fn total(&self) -> u64 {
        match self {
            Self::Narrow(cms) => cms.total(),
            Self::Wide(cms) => cms.total(),
        }
    }

    fn is_saturated(&self) -> bool {
        match self {
            Self::Narrow(cms) => cms.is_saturated(),
            Self::Wide(cms) => cms.is_saturated(),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Narrow(cms) => cms.memory_bytes(),
            Self::Wide(cms) => cms.memory_bytes(),
        }
    }

    fn obtained(&self) -> weir_memory::Obtained {
        match self {
            Self::Narrow(cms) => cms.obtained(),
            Self::Wide(cms) => cms.obtained(),
        }
    }

    /// Returns the estimate for a key that a heavy table names too, with the narrower of both bounds at either end.
    fn figure(&self, entry: &Entry<FlowKey>, hash: u64) -> Figure {
        self.bare_figure(hash, entry.lower, entry.upper)
    }

    fn bare_figure(&self, hash: u64, least: u64, most: u64) -> Figure {
        let (estimate, bound) = (self.estimate(hash), self.bound());
        // If cells are saturated, their values are not upper bounds.
        let above = if self.is_saturated() {
            most
        } else {
            estimate.min(most)
        };
        // A certain bound takes precedence over a probable one. If the two contradict each other, the improbable case has
        // occurred.
        let below = estimate.saturating_sub(bound.excess);
        let lower = if below > most {
            least
        } else {
            below.max(least)
        };
        let kind = BoundKind::Probabilistic {
            confidence: 1.0 - bound.delta,
        };
        let upper = above.max(lower);
        Figure {
            value: upper.min(estimate.max(lower)),
            bound: Bound { kind, lower, upper },
        }
    }
}
