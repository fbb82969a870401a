//! Counters of one window of time, of one worker or merged from all workers.

use crate::answer::{Change, Estimate, SpreadTable, Table};
use crate::counter::{Counter, TOGETHER};
use crate::geo::Places;
use crate::names::Names;
use crate::observation::Glance;
use crate::owners::Owners;
use crate::part::{Maker, Stored};
use crate::recent::Recent;
use crate::spread::Spread;
use crate::tally::Tally;
use crate::watch::Watch;
use crate::{By, Config, Error, KeyKind, Kind, Observation, Slot};
use std::sync::Arc;
use weir_memory::Request;
use weir_packet::flow::{Facts, FlowKey, Hasher};
use weir_sketch::{Distinct, Heavy, Weigh};

/// Counters of a window: totals, one table per kind of key, and the numbers of different flows, sources and destinations.
#[derive(Debug)]
pub struct State {
    /// Slot of the window, by which workers find shared tables.
    slot: Slot,
    /// Whether workers shared the tables; settled tables are of another kind.
    shared: bool,
    tally: Tally,
    /// Tables by packets or bytes; else `spreads` has one for each kind of key. Kinds whose [stored](KeyKind::stored) keys are the same
    /// share a table, which has the first of them.
    tables: Vec<(KeyKind, Counter)>,
    /// Kinds of key that are weighed, in the order of the settings, with the place of their tables.
    kinds: Vec<(KeyKind, usize)>,
    spreads: Vec<Spread>,
    flows: Distinct,
    sources: Distinct,
    destinations: Distinct,
    hasher: Hasher,
    by: Weigh,
    /// Buffer for packets under a table's key.
    parts: Vec<Stored>,
    /// Whether frames without a flow key have keys of some kind.
    counts_frames: bool,
    /// Processes of sockets, if the settings have them.
    owners: Option<Arc<Owners>>,
    /// Counters for findings, if the settings ask for them.
    watch: Option<Box<Watch>>,
    /// Flows seen lately, if distinct elements are counted.
    recent: Option<Recent>,
}

impl State {
    /// Creates empty counters for the window of `slot`.
    pub fn new(config: &Config, slot: Slot) -> Result<Self, Error> {
        let is_distinct = config.by.is_distinct();
        let shared = config
            .shared
            .as_ref()
            .filter(|_| !is_distinct)
            .map(|shared| shared.of(config, slot))
            .transpose()?;
        let (weighed, spread): (&[KeyKind], &[KeyKind]) = match is_distinct {
            true => (&[], &config.keys),
            false => (&config.keys, &[]),
        };
        let stored = stored_kinds(weighed);
        let place = |kind: &KeyKind| {
            let is_same = |other: &KeyKind| other.stored() == kind.stored();
            let place = stored.iter().position(is_same);
            (*kind, place.expect("each kind is stored"))
        };
        let table = |(i, &kind): (usize, &KeyKind)| {
            let shared = shared.as_ref().map(|tables| &tables[i]);
            Ok((kind, Counter::new(config, kind, shared)?))
        };
        let is_host = |kind: &KeyKind| kind.stored() == KeyKind::HOST;
        let has_hosts = stored.iter().any(is_host) && Watch::shares_hosts(config);
        let populate = config.request.populate;
        let distinct = || {
            Distinct::new(
                config.seed,
                &Request {
                    populate,
                    ..Request::default()
                },
            )
        };
        Ok(Self {
            slot,
            shared: config.shared.is_some(),
            tally: Tally::default(),
            kinds: weighed.iter().map(place).collect(),
            tables: stored
                .iter()
                .enumerate()
                .map(table)
                .collect::<Result<_, Error>>()?,
            spreads: spread
                .iter()
                .map(|kind| Spread::new(config, *kind, config.by))
                .collect::<Result<_, Error>>()?,
            flows: distinct()?,
            sources: distinct()?,
            destinations: distinct()?,
            hasher: config.hasher(),
            by: config.weigh(),
            parts: Vec::with_capacity(TOGETHER),
            counts_frames: config.keys.iter().any(|kind| kind.is_of_frames()),
            owners: config.owners.clone(),
            watch: match config.watch {
                true => Some(Box::new(Watch::new(config, has_hosts)?)),
                false => None,
            },
            recent: (is_distinct || config.watch).then(Recent::new),
        })
    }

    /// Prefetches the buckets that these packets will be counted in: the first step of counting.
    pub(crate) fn prefetch_buckets(&self, packets: &[Observation]) {
        if let Some(names) = self.names() {
            names.prefetch_buckets(packets);
        }
    }

    /// Prefetches the counts of these packets, the second step, and writes to `likely` a guess of each key's place.
    pub(crate) fn prefetch_counts(&self, packets: &[Observation], likely: &mut [u8]) {
        if let Some(names) = self.names() {
            names.prefetch_counts(packets, likely);
        }
    }

    /// Returns the table that is prefetched: the table of the first kind of key, if it counts by the packets' own hash.
    #[inline]
    fn names(&self) -> Option<&Heavy<FlowKey>> {
        match self.tables.first() {
            Some((kind, table)) if kind.stored() == KeyKind::FiveTuple => table.names(),
            _ => None,
        }
    }

    /// Counts packets of this window; `facts` has one for each packet, if a kind of key needs any. `likely` holds the guesses of
    /// [`Self::prefetch_counts`], or is empty.
    #[inline]
    pub(crate) fn take(
        &mut self,
        packets: &[Observation],
        facts: &[Facts],
        likely: &[u8],
        glance: &Glance,
        mut places: Option<&mut Places>,
    ) {
        self.tally.take(packets, glance);
        if self.counts_frames {
            self.count_frames(packets, facts);
        }
        if glance.all_flows {
            for (i, packets) in packets.chunks(TOGETHER).enumerate() {
                let at = i * TOGETHER;
                self.count(
                    packets,
                    part_of(facts, at, packets.len()),
                    part_of(likely, at, packets.len()),
                    places.as_deref_mut(),
                );
            }
            return;
        }
        // Runs of packets that have a flow key.
        let mut at = 0;
        for run in packets.split(|packet| packet.kind() != Kind::Flow) {
            for packets in run.chunks(TOGETHER) {
                self.count(
                    packets,
                    part_of(facts, at, packets.len()),
                    part_of(likely, at, packets.len()),
                    places.as_deref_mut(),
                );
                at += packets.len();
            }
            at += 1;
        }
    }

    #[inline]
    fn count(
        &mut self,
        packets: &[Observation],
        facts: &[Facts],
        likely: &[u8],
        mut places: Option<&mut Places>,
    ) {
        let mut new = u64::MAX >> (TOGETHER - packets.len());
        for (kind, table) in &mut self.tables {
            match kind {
                KeyKind::FiveTuple
                | KeyKind::Conversation
                | KeyKind::Process
                | KeyKind::Container => {
                    new &= table.update(packets, likely);
                }
                KeyKind::Service | KeyKind::App | KeyKind::Mac | KeyKind::Fields(_) => {
                    if !kind.is_of_frames() {
                        let maker = Maker::new(*kind, packets, facts);
                        maker.count(table, &self.hasher, &mut self.parts);
                    }
                }
                KeyKind::Asn | KeyKind::Country | KeyKind::Network => {
                    if let Some(places) = places.as_deref_mut() {
                        let maker = Maker::new(*kind, packets, facts);
                        maker.count_places(table, &self.hasher, &mut self.parts, places);
                    }
                }
                _ => table.update_part(kind.stored(), packets, &self.hasher, &mut self.parts),
            }
        }
        if let Some(recent) = &mut self.recent {
            let fresh = recent.fresh(packets);
            for spread in &mut self.spreads {
                spread.update(packets, fresh, &self.hasher);
            }
            if let Some(watch) = &mut self.watch {
                watch.update(packets, fresh, &self.hasher, &mut self.parts);
            }
        }
        if new != 0 {
            self.see(packets, new);
        }
    }

    /// Counts packets in the tables whose keys frames of all kinds have.
    #[cold]
    fn count_frames(&mut self, packets: &[Observation], facts: &[Facts]) {
        let tables = self.tables.iter_mut();
        for (kind, table) in tables.filter(|(kind, _)| kind.is_of_frames()) {
            for (i, packets) in packets.chunks(TOGETHER).enumerate() {
                let facts = part_of(facts, i * TOGETHER, packets.len());
                let maker = Maker::new(*kind, packets, facts);
                maker.count(table, &self.hasher, &mut self.parts);
            }
        }
    }

    /// Counts flows and hosts that are seen for the first time, of at most [`TOGETHER`] packets. Only packets whose bit is set
    /// in `maybe` can be new, and most of these were seen recently.
    #[inline]
    fn see(&mut self, packets: &[Observation], maybe: u64) {
        let Self {
            flows,
            sources,
            destinations,
            hasher,
            ..
        } = self;
        let mut new = 0;
        if maybe == u64::MAX >> (TOGETHER - packets.len()) {
            // Without a prefetch, so many loads in a row wait for memory together.
            new = flows.are_new(packets.iter().map(|packet| packet.hash));
        } else {
            each(maybe, |i| flows.prefetch(packets[i].hash));
            each(maybe, |i| {
                new |= u64::from(flows.is_new(packets[i].hash)) << i
            });
        }
        // If a flow is not new, its hosts are not new either.
        let mut hosts = [(0, 0); TOGETHER];
        each(new, |i| {
            let flow = &packets[i].flow;
            hosts[i] = (
                hasher.address(flow.family, &flow.src),
                hasher.address(flow.family, &flow.dst),
            );
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

    /// Adds the counters of another worker, for this window or for another window.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.tally += other.tally;
        self.flows.merge(&other.flows)?;
        self.sources.merge(&other.sources)?;
        self.destinations.merge(&other.destinations)?;
        for ((_, mine), (_, theirs)) in self.tables.iter_mut().zip(&other.tables) {
            mine.merge(theirs, |key| self.hasher.plain(key))?;
        }
        for (mine, theirs) in self.spreads.iter_mut().zip(&other.spreads) {
            mine.merge(theirs)?;
        }
        if let (Some(mine), Some(theirs)) = (&mut self.watch, &other.watch) {
            mine.merge(theirs, &self.hasher)?;
        }
        Ok(())
    }

    /// Makes shared tables this state's own, after all workers have finished the window.
    pub fn finalize(&mut self, config: &Config) -> Result<(), Error> {
        if let Some(shared) = &config.shared {
            shared.forget(self.slot);
            for (_, table) in &mut self.tables {
                table.finalize(config, |key| self.hasher.plain(key))?;
            }
        }
        Ok(())
    }

    /// Clears the counters and keeps the memory; `false` if the tables were shared, because a new window cannot begin with
    /// them.
    pub(crate) fn clear(&mut self) -> bool {
        if self.shared {
            return false;
        }
        self.tally = Tally::default();
        for distinct in [&mut self.flows, &mut self.sources, &mut self.destinations] {
            distinct.clear();
        }
        self.spreads.iter_mut().for_each(Spread::clear);
        self.recent.iter_mut().for_each(Recent::clear);
        if !self.watch.as_mut().is_none_or(|watch| watch.clear()) {
            return false;
        }
        self.tables.iter_mut().all(|(_, table)| table.clear())
    }

    /// Returns the totals of the window.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the number of different 5-tuples; each direction counts separately.
    pub fn flows(&self) -> Estimate {
        self.distinct_of(KeyKind::FiveTuple, &self.flows)
    }

    /// Returns the number of different source addresses.
    pub fn sources(&self) -> Estimate {
        self.distinct_of(KeyKind::SRC, &self.sources)
    }

    /// Returns the number of different destination addresses.
    pub fn destinations(&self) -> Estimate {
        self.distinct_of(KeyKind::DST, &self.destinations)
    }

    /// Returns the number of different keys of `kind`: exact if an exact table counted them all, else the estimate of
    /// `distinct`.
    fn distinct_of(&self, kind: KeyKind, distinct: &Distinct) -> Estimate {
        // The tables of several kinds hold the same keys.
        let mut tables = self.tables.iter().filter(|(of, _)| of.stored() == kind);
        let exact = tables.find_map(|(_, table)| table.count_of_keys());
        exact.map_or_else(|| estimate(distinct), Estimate::exact)
    }

    /// Returns the kinds of key, in the order of their tables.
    pub fn keys(&self) -> impl Iterator<Item = KeyKind> {
        let spreads = self.spreads.iter().map(Spread::kind);
        self.weighed().chain(spreads)
    }

    /// Returns the kinds of key of the tables that weigh packets, in their order.
    pub fn weighed(&self) -> impl Iterator<Item = KeyKind> {
        self.kinds.iter().map(|(kind, _)| *kind)
    }

    /// Returns the weight of a packet in these tables.
    pub fn weigh(&self) -> Weigh {
        self.by
    }

    /// Returns the `rows` keys of table `i` with the most distinct elements.
    ///
    /// **Panics**: the tables weigh packets.
    pub fn spread(&self, i: usize, rows: usize) -> SpreadTable {
        let table = &self.spreads[i];
        let keys = match (table.kind(), table.by()) {
            (KeyKind::SRC, By::Peers) => Some(self.sources()),
            (KeyKind::DST, By::Peers) => Some(self.destinations()),
            _ => None,
        };
        table.table(rows, keys)
    }

    /// Returns the largest `rows` keys of table `i`, by packets or bytes.
    ///
    /// **Panics**: the tables count [distinct elements](Self::spread).
    pub fn table(&self, i: usize, rows: usize) -> Table {
        self.table_with(i, rows, None)
    }

    /// The same, with the names of hosts for a table of [names](KeyKind::Name); hosts without one have rows of their own.
    pub fn table_with(&self, i: usize, rows: usize, names: Option<&Names>) -> Table {
        let (kind, table) = self.counter_of(i);
        if let Some(owners) = self.owners.as_ref().filter(|_| kind.needs_owners()) {
            return table.owned((kind, owners), self.by, rows, |key| self.hasher.plain(key));
        }
        if kind.has_sides() {
            let names = names.filter(|_| kind == KeyKind::Name);
            return table.folded((kind, names), self.by, rows, |key| self.hasher.plain(key));
        }
        let keys = match kind {
            KeyKind::FiveTuple => Some(self.flows()),
            KeyKind::SRC => Some(self.sources()),
            KeyKind::DST => Some(self.destinations()),
            _ => None,
        };
        table.table(self.by, rows, keys, |key| self.hasher.plain(key))
    }

    /// Returns the `rows` hosts with the most packets, and the `rows` sources with the most contacts, if the settings ask for
    /// findings.
    pub fn watched(&self, rows: usize) -> Option<(Table, SpreadTable)> {
        let watch = self.watch.as_ref()?;
        let is_host = |(kind, _): &&(KeyKind, Counter)| kind.stored() == KeyKind::HOST;
        let others = self.tables.iter().find(is_host).map(|(_, table)| table);
        let hosts = watch.hosts(others, rows, &self.hasher)?;
        Some((hosts, watch.contacts(rows)))
    }

    /// Returns whether the tables count distinct elements.
    pub(crate) fn is_spread(&self) -> bool {
        !self.spreads.is_empty()
    }

    /// Returns table `i` of distinct elements.
    pub(crate) fn spread_of(&self, i: usize) -> &Spread {
        &self.spreads[i]
    }

    /// Returns the table `i` of packets or bytes, and its kind of key.
    pub(crate) fn counter_of(&self, i: usize) -> (KeyKind, &Counter) {
        let (kind, place) = self.kinds[i];
        (kind, &self.tables[place].1)
    }

    /// Returns the hash of a key in the tables.
    pub(crate) fn hash_of(&self, key: &FlowKey) -> u64 {
        self.hasher.plain(key)
    }

    /// Processes of sockets, if a table counts them.
    pub fn owners(&self) -> Option<&Owners> {
        let has_any = self.weighed().any(KeyKind::needs_owners);
        self.owners.as_deref().filter(|_| has_any)
    }

    /// Describes the tables and their memory, two lines for each table.
    pub fn describe(&self) -> Vec<String> {
        let lines = |(kind, place): &(KeyKind, usize)| {
            let [what, memory] = self.tables[*place].1.describe();
            [format!("{kind}: {what}"), format!("{kind}: {memory}")]
        };
        let weighed = self.kinds.iter().flat_map(lines);
        let lines = |spread: &Spread| {
            let kind = spread.kind();
            let [what, memory] = spread.describe();
            [format!("{kind}: {what}"), format!("{kind}: {memory}")]
        };
        weighed.chain(self.spreads.iter().flat_map(lines)).collect()
    }
}

/// Returns the `rows` keys of table `i` whose figures changed most from `before` to `after`; `None` stands for a window without
/// packets.
pub(crate) fn changers(
    before: Option<&State>,
    after: Option<&State>,
    i: usize,
    rows: usize,
    names: Option<&Names>,
) -> Vec<Change> {
    let Some(State {
        hasher,
        by,
        spreads,
        owners,
        ..
    }) = after.or(before)
    else {
        return Vec::new();
    };
    if !spreads.is_empty() {
        return Spread::changes(
            before.map(|state| &state.spreads[i]),
            after.map(|state| &state.spreads[i]),
            rows,
        );
    }
    let kind = after.or(before).map(|state| state.kinds[i].0);
    let tables = [before, after].map(|state| state.map(|state| state.counter_of(i).1));
    if let Some(of) = kind
        .filter(|kind| kind.needs_owners())
        .zip(owners.as_deref())
    {
        return Counter::changes_of_owners(tables, of, *by, rows, |key| hasher.plain(key));
    }
    let [before, after] = tables;
    Counter::changes(
        before,
        after,
        kind.filter(|kind| kind.has_sides())
            .map(|kind| (kind, names.filter(|_| kind == KeyKind::Name))),
        *by,
        rows,
        |key| hasher.plain(key),
    )
}

/// Returns the kinds that have a table: of kinds whose stored keys are the same, the first.
pub(crate) fn stored_kinds(kinds: &[KeyKind]) -> Vec<KeyKind> {
    let mut stored: Vec<KeyKind> = Vec::with_capacity(kinds.len());
    for kind in kinds {
        if !stored.iter().any(|other| other.stored() == kind.stored()) {
            stored.push(*kind);
        }
    }
    stored
}

/// Returns `len` elements of a slice from `at` on; none if the slice is empty.
#[inline(always)]
fn part_of<T>(all: &[T], at: usize, len: usize) -> &[T] {
    all.get(at..at + len).unwrap_or_default()
}

/// Calls `each` with the index of each set bit.
#[inline(always)]
pub(crate) fn each(mut mask: u64, mut each: impl FnMut(usize)) {
    while mask != 0 {
        each(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

fn estimate(distinct: &Distinct) -> Estimate {
    let (value, (lower, upper)) = (distinct.estimate(), distinct.range());
    // The true number is an integer, so the range ends at integers too.
    let plus_minus = (value.round() - lower.ceil())
        .max(upper.floor() - value.round())
        .max(0.0) as u64;
    Estimate {
        value: value.round() as u64,
        plus_minus,
        confidence: 0.95,
    }
}
