//! What one worker, or all of them, know of a window of time.

use crate::answer::{Change, Estimate, Table};
use crate::counter::{Counter, TOGETHER};
use crate::observation::Glance;
use crate::tally::Tally;
use crate::{Config, Error, KeyKind, Kind, Observation, Slot};
use weir_memory::Request;
use weir_packet::flow::{FlowKey, Hasher};
use weir_sketch::{Distinct, Heavy, Item, Weigh};

/// Totals, one table per key, and how many different flows, sources and destinations there were.
#[derive(Debug)]
pub struct State {
    /// Whose tables these are, where workers share them.
    slot: Slot,
    /// The tables were shared by workers, and are of another kind once they are settled.
    shared: bool,
    tally: Tally,
    tables: Vec<(KeyKind, Counter)>,
    flows: Distinct,
    sources: Distinct,
    destinations: Distinct,
    hasher: Hasher,
    by: Weigh,
    /// Packets under a table's key.
    parts: Vec<Item<FlowKey>>,
}

impl State {
    /// Nothing was seen yet of this window.
    pub fn new(config: &Config, slot: Slot) -> Result<Self, Error> {
        let shared = config.shared.as_ref().map(|shared| shared.of(config, slot)).transpose()?;
        let table = |(i, &kind): (usize, &KeyKind)| {
            let shared = shared.as_ref().map(|tables| &tables[i]);
            Ok((kind, Counter::new(config, shared)?))
        };
        let populate = config.request.populate;
        let distinct = || Distinct::new(config.seed, &Request { populate, ..Request::default() });
        Ok(Self {
            slot,
            shared: config.shared.is_some(),
            tally: Tally::default(),
            tables: config.keys.iter().enumerate().map(table).collect::<Result<_, Error>>()?,
            flows: distinct()?,
            sources: distinct()?,
            destinations: distinct()?,
            hasher: config.hasher(),
            by: config.by,
            parts: Vec::with_capacity(TOGETHER),
        })
    }

    /// Has the memory fetched that counting these packets begins with.
    pub(crate) fn prefetch_buckets(&self, packets: &[Observation]) {
        if let Some(names) = self.names() {
            names.prefetch_buckets(packets);
        }
    }

    /// Has the memory fetched that this led to, and notes in `likely` what it found out.
    pub(crate) fn prefetch_counts(&self, packets: &[Observation], likely: &mut [u8]) {
        if let Some(names) = self.names() {
            names.prefetch_counts(packets, likely);
        }
    }

    /// The table that is asked ahead: that of the first key, if it counts by the packets' own hash.
    #[inline]
    fn names(&self) -> Option<&Heavy<FlowKey>> {
        match self.tables.first() {
            Some((KeyKind::FiveTuple, table)) => table.names(),
            _ => None,
        }
    }

    /// Counts packets of this window; `likely` is what was noted of them, or nothing.
    #[inline]
    pub(crate) fn take(&mut self, packets: &[Observation], likely: &[u8], glance: &Glance) {
        self.tally.take(packets, glance);
        if glance.all_flows {
            for (i, packets) in packets.chunks(TOGETHER).enumerate() {
                let at = i * TOGETHER;
                self.count(packets, likely.get(at..at + packets.len()).unwrap_or_default());
            }
            return;
        }
        // Runs of packets that have a flow key.
        let mut at = 0;
        for run in packets.split(|packet| packet.kind() != Kind::Flow) {
            for packets in run.chunks(TOGETHER) {
                self.count(packets, likely.get(at..at + packets.len()).unwrap_or_default());
                at += packets.len();
            }
            at += 1;
        }
    }

    #[inline]
    fn count(&mut self, packets: &[Observation], likely: &[u8]) {
        let mut new = u64::MAX >> (TOGETHER - packets.len());
        for (kind, table) in &mut self.tables {
            if *kind == KeyKind::FiveTuple {
                new &= table.update(packets, likely);
                continue;
            }
            table.update_part(*kind, packets, &self.hasher, &mut self.parts);
        }
        if new != 0 {
            self.see(packets, new);
        }
    }

    /// Counts what is seen for the first time, of at most [`TOGETHER`] packets: only those of `maybe` can be. Most of them were
    /// seen a moment ago.
    #[inline]
    fn see(&mut self, packets: &[Observation], maybe: u64) {
        let Self { flows, sources, destinations, hasher, .. } = self;
        let mut new = 0;
        if maybe == u64::MAX >> (TOGETHER - packets.len()) {
            // So many loads in a row wait for memory together without being asked for.
            new = flows.are_new(packets.iter().map(|packet| packet.hash));
        } else {
            each(maybe, |i| flows.prefetch(packets[i].hash));
            each(maybe, |i| new |= u64::from(flows.is_new(packets[i].hash)) << i);
        }
        // Hosts of flows that are not new are not new either.
        let mut hosts = [(0, 0); TOGETHER];
        each(new, |i| {
            let flow = &packets[i].flow;
            hosts[i] = (hasher.address(flow.family, &flow.src), hasher.address(flow.family, &flow.dst));
            sources.prefetch(hosts[i].0);
            destinations.prefetch(hosts[i].1);
        });
        let (mut new_sources, mut new_destinations) = (0, 0);
        each(new, |i| {
            new_sources |= u64::from(sources.is_new(hosts[i].0)) << i;
            new_destinations |= u64::from(destinations.is_new(hosts[i].1)) << i;
        });
        each(new, |i| flows.add(packets[i].hash));
        each(new_sources, |i| sources.add(hosts[i].0));
        each(new_destinations, |i| destinations.add(hosts[i].1));
    }

    /// Adds what another worker knows, of this window or of another one.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.tally += other.tally;
        self.flows.merge(&other.flows)?;
        self.sources.merge(&other.sources)?;
        self.destinations.merge(&other.destinations)?;
        for ((_, mine), (_, theirs)) in self.tables.iter_mut().zip(&other.tables) {
            mine.merge(theirs, |key| self.hasher.plain(key))?;
        }
        Ok(())
    }

    /// All workers are done with the window: shared tables become its own.
    pub fn settle(&mut self, config: &Config) -> Result<(), Error> {
        if let Some(shared) = &config.shared {
            shared.forget(self.slot);
            for (_, table) in &mut self.tables {
                table.settle(config, |key| self.hasher.plain(key))?;
            }
        }
        Ok(())
    }

    /// Forgets everything and keeps the memory; `false` if a new window cannot begin with it, because its tables were shared.
    pub(crate) fn clear(&mut self) -> bool {
        if self.shared {
            return false;
        }
        self.tally = Tally::default();
        for distinct in [&mut self.flows, &mut self.sources, &mut self.destinations] {
            distinct.clear();
        }
        self.tables.iter_mut().all(|(_, table)| table.clear())
    }

    /// Totals.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How many different 5-tuples there were, in each direction.
    pub fn flows(&self) -> Estimate {
        self.distinct_of(KeyKind::FiveTuple, &self.flows)
    }

    /// How many different source addresses.
    pub fn sources(&self) -> Estimate {
        self.distinct_of(KeyKind::SRC, &self.sources)
    }

    /// How many different destination addresses.
    pub fn destinations(&self) -> Estimate {
        self.distinct_of(KeyKind::DST, &self.destinations)
    }

    /// How many different keys there were of a kind that `distinct` has counted: exactly if an exact table knows.
    fn distinct_of(&self, kind: KeyKind, distinct: &Distinct) -> Estimate {
        let mut tables = self.tables.iter().filter(|(of, _)| *of == kind);
        let exact = tables.find_map(|(_, table)| table.count_of_keys());
        exact.map_or_else(|| estimate(distinct), Estimate::exact)
    }

    /// The largest `rows` keys of table `i`.
    pub fn table(&self, i: usize, rows: usize) -> Table {
        let (kind, table) = &self.tables[i];
        let keys = match *kind {
            KeyKind::FiveTuple => Some(self.flows()),
            KeyKind::SRC => Some(self.sources()),
            KeyKind::DST => Some(self.destinations()),
            _ => None,
        };
        table.table(self.by, rows, keys, |key| self.hasher.plain(key))
    }

    /// Lines about the tables, for those who want to know how the work was done.
    pub fn describe(&self) -> Vec<String> {
        let lines = |(kind, table): &(KeyKind, Counter)| {
            let [what, memory] = table.describe();
            [format!("{kind}: {what}"), format!("{kind}: {memory}")]
        };
        self.tables.iter().flat_map(lines).collect()
    }
}

/// The `rows` keys of table `i` whose figures changed most from `before` to `after`; a window without packets has none.
pub(crate) fn changers(before: Option<&State>, after: Option<&State>, i: usize, rows: usize) -> Vec<Change> {
    let Some(State { hasher, by, .. }) = after.or(before) else { return Vec::new() };
    Counter::changes(before.map(|state| &state.tables[i].1), after.map(|state| &state.tables[i].1), *by, rows, |key| {
        hasher.plain(key)
    })
}

/// Calls `each` with the number of each bit that is set.
#[inline(always)]
fn each(mut mask: u64, mut each: impl FnMut(usize)) {
    while mask != 0 {
        each(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

fn estimate(distinct: &Distinct) -> Estimate {
    let (value, (lower, upper)) = (distinct.estimate(), distinct.range());
    // The truth is a whole number, so that the range ends at whole numbers too.
    let plus_minus = (value.round() - lower.ceil()).max(upper.floor() - value.round()).max(0.0) as u64;
    Estimate { value: value.round() as u64, plus_minus, confidence: 0.95 }
}
