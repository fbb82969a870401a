//! Counters of one worker.

use crate::geo::Places;
use crate::observation::Glance;
use crate::{Config, Error, Observation, Slot, State, Windows};
use std::sync::{Arc, Mutex, PoisonError};
use weir_packet::flow::Facts;

/// Used states of closed windows, kept for new windows. Clearing a state is cheaper than a new one, because new memory costs
/// page faults.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Vec<State>>);

impl Spares {
    /// Largest number of states kept. Only a few windows end at once, and each state is as large as its tables.
    const MOST: usize = 16;

    /// Clears and keeps a state, unless its tables were shared.
    pub fn keep(&self, mut state: State) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < Self::MOST && state.clear() {
            spares.push(state);
        }
    }

    fn take(&self) -> Option<State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Counts packets in the windows they belong to.
#[derive(Debug)]
pub struct Aggregate {
    config: Arc<Config>,
    spares: Arc<Spares>,
    windows: Windows<State>,
    /// State made in advance, so that a lack of memory shows before the first packet.
    spare: Option<State>,
    /// Places of addresses, if a kind of key needs them.
    places: Option<Places>,
    taken: u64,
}

impl Aggregate {
    /// Creates the counters for `config`, with the memory of a first window.
    pub fn new(config: Arc<Config>, spares: Arc<Spares>) -> Result<Self, Error> {
        // A shared table belongs to one window, and the first window is not known yet.
        let known = config.shared.is_none() || config.windowing.window_ns.is_none();
        let spare = known
            .then(|| State::new(&config, Slot::WHOLE))
            .transpose()?;
        let needs_geo = config.keys.iter().any(|kind| kind.needs_geo());
        let geo = config.geo.as_ref().filter(|_| needs_geo);
        Ok(Self {
            places: geo.cloned().map(Places::new),
            windows: Windows::new(config.windowing),
            config,
            spares,
            spare,
            taken: 0,
        })
    }

    /// Prefetches the memory that the first step of counting these packets reads.
    ///
    /// Counting does not wait for memory if the caller calls this function, then [`Self::prefetch_counts`], then
    /// [`Self::take`], with other work between the calls. If the tables are not in the cache, waiting for memory is most of the
    /// time of counting.
    pub fn prefetch_buckets(&self, packets: &[Observation]) {
        if let Some(state) = self.windows.last() {
            state.prefetch_buckets(packets);
        }
    }

    /// Prefetches the counts that the prefetched buckets lead to, and writes to `likely` a guess for each packet.
    pub fn prefetch_counts(&self, packets: &[Observation], likely: &mut [u8]) {
        if let Some(state) = self.windows.last() {
            state.prefetch_counts(packets, likely);
        }
    }

    /// Counts packets, in their order. `likely` holds the guesses of [`Self::prefetch_counts`], or is empty.
    ///
    /// **Cost**: no allocation but for a new window.
    ///
    /// **Errors**: no memory for the tables of a new window.
    pub fn take(&mut self, packets: &[Observation], likely: &[u8]) -> Result<(), Error> {
        self.take_with(packets, &[], likely)
    }

    /// The same for packets with facts: `facts` has one for each packet, or is empty if no kind of key
    /// [needs any](crate::KeyKind::needs_facts).
    pub fn take_with(
        &mut self,
        packets: &[Observation],
        mut facts: &[Facts],
        mut likely: &[u8],
    ) -> Result<(), Error> {
        let mut rest = packets;
        // Nearly always, all packets belong to one window.
        let whole = Glance::of(packets);
        while let Some(first) = rest.first() {
            let Self {
                config,
                spares,
                windows,
                spare,
                places,
                ..
            } = self;
            let begin = |slot| {
                spare
                    .take()
                    .or_else(|| spares.take())
                    .map_or_else(|| State::new(config, slot), Ok)
            };
            let (state, window) = windows.at(first.time_ns, begin)?;
            let (run, glance) =
                if window.contains(&whole.earliest) && window.contains(&whole.latest) {
                    (rest.len(), whole)
                } else {
                    let run = rest
                        .iter()
                        .take_while(|packet| window.contains(&packet.time_ns))
                        .count()
                        .max(1);
                    (run, Glance::of(&rest[..run]))
                };
            state.take(
                &rest[..run],
                facts.get(..run).unwrap_or_default(),
                likely.get(..run).unwrap_or_default(),
                &glance,
                places.as_mut(),
            );
            self.taken += run as u64;
            rest = &rest[run..];
            facts = facts.get(run..).unwrap_or_default();
            likely = likely.get(run..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns whether a kind of key needs the facts of packets.
    pub fn needs_facts(&self) -> bool {
        self.config.needs_facts()
    }

    /// Removes and returns the states of the windows before number `open`.
    pub fn close(&mut self, open: i64) -> Vec<(i64, State)> {
        self.windows.close(open)
    }

    /// Starts or ends the folding of windows: see [`Windows::fold`].
    pub fn fold(&mut self, folds: bool) {
        self.windows.fold(folds);
    }

    /// Replaces all counters by the counters of `other`. Counts that were not [closed](Self::close)
    /// are lost; only [the number of packets](Self::taken) is kept.
    pub fn replace(&mut self, other: Self) {
        *self = Self {
            taken: self.taken + other.taken,
            ..other
        };
    }

    /// Returns the number of packets counted so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}
