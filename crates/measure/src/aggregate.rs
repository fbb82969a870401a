//! The counters of one worker.

use crate::observation::Glance;
use crate::{Config, Error, Observation, Slot, State, Windows};
use std::sync::{Arc, Mutex, PoisonError};

/// States of windows that were given out, to be used again: making one costs page faults, clearing it does not.
#[derive(Debug, Default)]
pub struct Spares(Mutex<Vec<State>>);

impl Spares {
    /// More are not kept: a few windows end at once, and each state is as large as its tables.
    const MOST: usize = 16;

    /// Keeps a state, unless its tables were shared.
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

/// Takes packets and counts them, in the windows they belong to.
#[derive(Debug)]
pub struct Aggregate {
    config: Arc<Config>,
    spares: Arc<Spares>,
    windows: Windows<State>,
    /// Made ahead, so that memory that cannot be had shows before the first packet.
    spare: Option<State>,
    taken: u64,
}

impl Aggregate {
    /// Counters for `config`, with the memory of a first window.
    pub fn new(config: Arc<Config>, spares: Arc<Spares>) -> Result<Self, Error> {
        // A shared table belongs to one window, and which comes first is not known yet.
        let known = config.shared.is_none() || config.windowing.window_ns.is_none();
        let spare = known.then(|| State::new(&config, Slot::WHOLE)).transpose()?;
        Ok(Self { windows: Windows::new(config.windowing), config, spares, spare, taken: 0 })
    }

    /// Has the memory fetched that counting these packets begins with.
    ///
    /// Before packets are counted they may be told of twice, here and in [`Self::prefetch_counts`], each time with other work in between:
    /// then counting does not wait for memory. Where the tables are not in the cache that is most of its time.
    pub fn prefetch_buckets(&self, packets: &[Observation]) {
        if let Some(state) = self.windows.last() {
            state.prefetch_buckets(packets);
        }
    }

    /// Has the memory fetched that this led to, and notes in `likely` what it found out of each.
    pub fn prefetch_counts(&self, packets: &[Observation], likely: &mut [u8]) {
        if let Some(state) = self.windows.last() {
            state.prefetch_counts(packets, likely);
        }
    }

    /// Counts packets, in their order. An error is want of memory for the tables of a new window. `likely` is what
    /// [`Self::prefetch_counts`] noted, or empty.
    ///
    /// **Cost**: no allocation but for a new window.
    pub fn take(&mut self, packets: &[Observation], mut likely: &[u8]) -> Result<(), Error> {
        let mut rest = packets;
        // Nearly always all of them are of one window.
        let whole = Glance::of(packets);
        while let Some(first) = rest.first() {
            let Self { config, spares, windows, spare, .. } = self;
            let begin = |slot| spare.take().or_else(|| spares.take()).map_or_else(|| State::new(config, slot), Ok);
            let (state, window) = windows.at(first.time_ns, begin)?;
            let (run, glance) = if window.contains(&whole.earliest) && window.contains(&whole.latest) {
                (rest.len(), whole)
            } else {
                let run = rest.iter().take_while(|packet| window.contains(&packet.time_ns)).count().max(1);
                (run, Glance::of(&rest[..run]))
            };
            state.take(&rest[..run], likely.get(..run).unwrap_or_default(), &glance);
            self.taken += run as u64;
            rest = &rest[run..];
            likely = likely.get(run..).unwrap_or_default();
        }
        Ok(())
    }

    /// Takes out what is known of the windows before number `open`.
    pub fn close(&mut self, open: i64) -> Vec<(i64, State)> {
        self.windows.close(open)
    }

    /// See [`Windows::fold`].
    pub fn fold(&mut self, folds: bool) {
        self.windows.fold(folds);
    }

    /// Goes on with other counters. What was counted and not [closed](Self::close) is forgotten, but for [its number](Self::taken).
    pub fn replace(&mut self, other: Self) {
        *self = Self { taken: self.taken + other.taken, ..other };
    }

    /// Packets counted so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}
