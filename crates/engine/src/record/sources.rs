//! Counts of the sources of a recording.

use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_packet::savefile::{Interface, Statistics};

/// Counts of the sources since the start, per interface.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Counts of captures so far, as the run told them last.
    so_far: Vec<(Interface, Statistics)>,
    /// Counts of sources that have ended.
    ended: Vec<(Interface, Statistics)>,
}

impl Sources {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the counts so far of all captures.
    pub fn so_far(&self, counts: &[(Interface, Statistics)]) {
        let mut sums = Vec::new();
        add(&mut sums, counts);
        self.counts().so_far = sums;
    }

    /// Takes the counts of a source that has ended.
    pub fn ended(&self, counts: &[(Interface, Statistics)]) {
        add(&mut self.counts().ended, counts);
    }

    /// Returns the counts per interface. They never decrease: of several captures one ends before
    /// the other.
    pub fn all(&self) -> Vec<(Interface, Statistics)> {
        let counts = self.counts();
        let mut all = counts.so_far.clone();
        for (interface, ended) in &counts.ended {
            match all.iter_mut().find(|(known, _)| known == interface) {
                Some((_, counts)) => *counts = greatest(counts, ended),
                None => all.push((interface.clone(), *ended)),
            }
        }
        all
    }

    /// Returns the packets that the sources dropped.
    pub fn dropped(&self) -> u64 {
        self.all()
            .iter()
            .fold(0, |sum, (_, counts)| sum.saturating_add(counts.dropped()))
    }
}

/// Adds counts per interface. Equal interfaces are several queues of one, or several files.
fn add(sums: &mut Vec<(Interface, Statistics)>, counts: &[(Interface, Statistics)]) {
    for (interface, counts) in counts {
        match sums.iter_mut().find(|(known, _)| known == interface) {
            Some((_, sum)) => sum.add(counts),
            None => sums.push((interface.clone(), *counts)),
        }
    }
}

/// The greater one of each count.
fn greatest(a: &Statistics, b: &Statistics) -> Statistics {
    Statistics {
        time_ns: a.time_ns.max(b.time_ns),
        received: a.received.max(b.received),
        dropped_by_interface: a.dropped_by_interface.max(b.dropped_by_interface),
        dropped_by_system: a.dropped_by_system.max(b.dropped_by_system),
        delivered: a.delivered.max(b.delivered),
        ..*a
    }
}
