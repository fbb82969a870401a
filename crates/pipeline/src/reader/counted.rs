//! Interface statistics of a source.

use std::collections::BTreeMap;
use weir_packet::savefile::{InterfaceStats, Statistics};

/// Beyond as many interfaces, later ones are ignored, so that a file of nothing but statistics takes bounded memory.
const MOST: usize = 1 << 16;

/// Interface statistics of a source, by section and interface.
///
/// A capture that writes file after file counts on. Its counts of a file are those at the end of the file without those that stand
/// in front of all packets. Only counts of a capture that goes on, with a start and no end, are taken for the latter.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    last: BTreeMap<(u32, u32), InterfaceStats>,
    /// Counts in front of the packets of the section.
    before: BTreeMap<(u32, u32), Statistics>,
    /// The last section with packets so far.
    pub(super) section: u32,
}

impl Counted {
    /// Takes the next statistics of the source. `is_leading`: no packet stands between them and the last change of the layout.
    pub(super) fn take(&mut self, stats: InterfaceStats, is_leading: bool) {
        let key = (stats.section, stats.id);
        if is_leading && self.section < stats.section && stats.counts.is_unended() && self.before.len() < MOST {
            self.before.entry(key).or_insert(stats.counts);
        }
        if self.last.len() < MOST || self.last.contains_key(&key) {
            self.last.insert(key, stats);
        }
    }

    /// Returns the statistics of each section and interface, about the section alone.
    pub fn by_section(&self) -> impl Iterator<Item = InterfaceStats> + '_ {
        self.last.iter().map(|(key, stats)| match self.before.get(key) {
            Some(before) if before.start_ns == stats.counts.start_ns => {
                InterfaceStats { counts: stats.counts.since(before), ..*stats }
            }
            _ => *stats,
        })
    }

    /// Returns the time of the last counts, ns since 1970, if the capture went on behind them: nothing tells what it lost since.
    pub fn until(&self) -> Option<i64> {
        let last = self.last.values().map(|stats| stats.counts).max_by_key(|counts| counts.time_ns)?;
        last.is_unended().then_some(last.time_ns)
    }
}

/// Comments of the interface statistics of a source. Those of later statistics of an interface replace earlier ones, as their counts
/// do.
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
