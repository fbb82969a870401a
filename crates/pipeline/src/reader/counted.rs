//! Interface statistics of a source.

use std::collections::BTreeMap;
use weir_packet::savefile::{InterfaceStats, Statistics};

/// Beyond as many interfaces, later ones are ignored, so that a file of nothing but statistics takes bounded memory.
const MOST: usize = 1 << 16;

/// Beyond as many captures that were broken off, later ones are ignored.
const MOST_BROKEN: usize = 1 << 12;

/// Times between which a source does not tell what was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncounted {
    /// Time of the last count of a capture that went on after it, ns since 1970.
    pub from_ns: i64,
    /// Time at which the next capture of the source began, ns since 1970; `None` if none did.
    pub to_ns: Option<i64>,
}

/// Interface statistics of a source, by section and interface.
///
/// A capture that writes file after file counts on. Its counts of a file are the counts at the end
/// of the file minus the counts that are in front of all packets. Only counts of a capture that
/// goes on, with a start and no end, are taken for the latter.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    last: BTreeMap<(u32, u32), InterfaceStats>,
    /// Counts in front of the packets of the section.
    before: BTreeMap<(u32, u32), Statistics>,
    /// Ends of captures that another one follows in the same section.
    broken: Vec<Uncounted>,
    /// The last section with packets so far.
    pub(super) section: u32,
}

impl Counted {
    /// Takes the next statistics of the source. `is_leading`: no packet is between them and the
    /// last change of the layout.
    pub(super) fn take(&mut self, stats: InterfaceStats, is_leading: bool) {
        let key = (stats.section, stats.id);
        if is_leading
            && self.section < stats.section
            && stats.counts.is_unended()
            && self.before.len() < MOST
        {
            self.before.entry(key).or_insert(stats.counts);
        }
        let earlier = self
            .last
            .get(&key)
            .map(|earlier| earlier.counts)
            .filter(Statistics::is_unended);
        if let (Some(earlier), Some(start_ns)) = (earlier, stats.counts.start_ns) {
            let is_next = earlier.start_ns != Some(start_ns) && start_ns >= earlier.time_ns;
            if is_next && self.broken.len() < MOST_BROKEN {
                self.broken.push(Uncounted {
                    from_ns: earlier.time_ns,
                    to_ns: Some(start_ns),
                });
            }
        }
        if self.last.len() < MOST || self.last.contains_key(&key) {
            self.last.insert(key, stats);
        }
    }

    /// Returns the statistics of each section and interface, about the section alone.
    pub fn by_section(&self) -> impl Iterator<Item = InterfaceStats> + '_ {
        self.last
            .iter()
            .map(|(key, stats)| match self.before.get(key) {
                Some(before) if before.start_ns == stats.counts.start_ns => InterfaceStats {
                    counts: stats.counts.since(before),
                    ..*stats
                },
                _ => *stats,
            })
    }

    /// Returns the times for which nothing tells what was lost, in order: a capture went on after
    /// its last counts.
    pub fn uncounted(&self) -> Vec<Uncounted> {
        let mut latest: BTreeMap<u32, Statistics> = BTreeMap::new();
        for (&(section, _), stats) in &self.last {
            let known = latest.entry(section).or_insert(stats.counts);
            if stats.counts.time_ns >= known.time_ns {
                *known = stats.counts;
            }
        }
        // A capture that writes several sections counts on.
        let mut runs: BTreeMap<Option<i64>, Statistics> = BTreeMap::new();
        for counts in latest.into_values() {
            let known = runs.entry(counts.start_ns).or_insert(counts);
            if counts.time_ns >= known.time_ns {
                *known = counts;
            }
        }
        // A capture may count once, when it begins: it does not follow itself.
        let next = |counts: &Statistics| {
            runs.range(Some(counts.time_ns)..)
                .find(|(start_ns, _)| **start_ns != counts.start_ns)
                .and_then(|(&start_ns, _)| start_ns)
        };
        let unended = runs.values().filter(|counts| counts.is_unended());
        let last = unended.map(|counts| Uncounted {
            from_ns: counts.time_ns,
            to_ns: next(counts),
        });
        let mut all: Vec<Uncounted> = self.broken.iter().copied().chain(last).collect();
        all.sort_by_key(|one| one.from_ns);
        all
    }
}

/// Comments of the interface statistics of a source. Comments of later statistics of an interface
/// replace earlier comments, as their counts do.
#[derive(Clone, Debug, Default)]
pub struct Remarks(BTreeMap<(u32, u32), Vec<String>>);

impl Remarks {
    /// Takes the comments of the next statistics.
    pub(super) fn take(&mut self, stats: &InterfaceStats, comments: impl FnOnce() -> Vec<String>) {
        /// Largest number of interfaces whose comments are kept.
        const MOST: usize = 256;
        let key = (stats.section, stats.id);
        let comments = comments();
        if comments.is_empty() {
            self.0.remove(&key);
        } else if self.0.len() < MOST || self.0.contains_key(&key) {
            self.0.insert(key, comments);
        }
    }

    /// Returns the comments, each once, in order.
    pub fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for comment in self.0.values().flatten() {
            if !all.contains(comment) {
                all.push(comment.clone());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics of interface 0 of a section, with their start, their time, and whether they are
    /// the last statistics.
    fn stats(section: u32, start_ns: i64, time_ns: i64, is_last: bool) -> InterfaceStats {
        let counts = Statistics {
            time_ns,
            start_ns: Some(start_ns),
            end_ns: is_last.then_some(time_ns),
            ..Statistics::default()
        };
        InterfaceStats {
            section,
            id: 0,
            interface: 0,
            counts,
        }
    }

    fn uncounted(all: &[InterfaceStats]) -> Vec<(i64, Option<i64>)> {
        let mut counted = Counted::default();
        all.iter().for_each(|&stats| counted.take(stats, false));
        let times = counted.uncounted().into_iter();
        times.map(|one| (one.from_ns, one.to_ns)).collect()
    }

    #[test]
    fn a_capture_that_broke_off_is_followed_by_another_one_only() {
        // The first count of all is of the start.
        assert_eq!(uncounted(&[stats(1, 5, 5, false)]), [(5, None)]);
        assert_eq!(uncounted(&[stats(1, 1, 5, false)]), [(5, None)]);
        assert_eq!(uncounted(&[stats(1, 1, 5, true)]), []);
        // The next one began at that very time, or later, in a section of its own or in the same.
        for section in [1, 2] {
            for start in [5, 9] {
                let next = stats(section, start, 11, true);
                let first = stats(1, 1, 5, false);
                assert_eq!(uncounted(&[first, next]), [(5, Some(start))]);
            }
        }
        // Both broke off.
        let both = [stats(1, 5, 5, false), stats(2, 9, 9, false)];
        assert_eq!(uncounted(&both), [(5, Some(9)), (9, None)]);
    }
}
