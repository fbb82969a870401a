//! Losses of the sources of a capture file, as the file tells them at its end.

use crate::provenance::Chosen;
use weir_io::output::Output;
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::{Format, Interface, Layout, Statistics};
use weir_pipeline::reader::Uncounted;

/// Losses of sources.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Interface statistics, for each interface.
    statistics: Vec<(Interface, Statistics)>,
    /// Comments of the statistics.
    remarks: Vec<String>,
    /// Times for which the statistics do not tell what was lost.
    uncounted: Vec<Uncounted>,
}

impl Losses {
    /// Takes the interface statistics of a source. Statistics of an equal interface of another source are added.
    pub(super) fn add_statistics(&mut self, counts: &[(Interface, Statistics)]) {
        // The interfaces of one source differ from one another.
        let known = self.statistics.len();
        for (interface, counts) in counts {
            match self.statistics[..known]
                .iter_mut()
                .find(|(known, _)| known.is_same(interface))
            {
                Some((_, sum)) => sum.add(counts),
                None => self.statistics.push((interface.clone(), *counts)),
            }
        }
    }

    /// Takes remarks, each once.
    pub(super) fn add_remarks(&mut self, remarks: &[String]) {
        for remark in remarks {
            if !self.remarks.contains(remark) {
                self.remarks.push(remark.clone());
            }
        }
    }

    /// Takes the times for which a source does not tell what was lost.
    pub(super) fn add_uncounted(&mut self, times: &[Uncounted]) {
        self.uncounted.extend(times);
    }

    /// Writes the losses to the end of a file, or counts them as left out if its format has no place for them. An interface of the
    /// layout stands for all if no source has statistics. `now_ns` is the time of statistics without counts.
    pub(super) fn write(
        mut self,
        output: &mut Output,
        format: Format,
        chosen: &Chosen,
        layout: &Layout,
        now_ns: i64,
    ) {
        self.uncounted.sort_by_key(|one| (one.from_ns, one.to_ns));
        if format == Format::Pcap {
            output.leave_out(&self.left_out());
            return;
        }
        // Statistics without a count are needed only next to those with one.
        let counts = || self.statistics.iter().map(|(_, counts)| counts);
        let last_ns = counts().map(|counts| counts.time_ns).max().unwrap_or(0);
        let is_counted = counts().any(Statistics::counts_losses);
        self.statistics
            .retain(|(_, counts)| is_counted || !is_nothing(counts));
        for (_, counts) in &mut self.statistics {
            if is_nothing(counts) {
                counts.time_ns = last_ns;
            }
        }
        let is_silent = self.remarks.is_empty() && self.uncounted.is_empty();
        if self.statistics.is_empty() && !is_silent {
            let nothing = Statistics {
                time_ns: now_ns,
                ..Statistics::default()
            };
            let first = layout.interfaces.get(0).cloned();
            self.statistics
                .extend(first.map(|interface| (interface, nothing)));
        }
        let mut remarks = std::mem::take(&mut self.remarks);
        for (index, counts, is_total) in self.blocks() {
            let interface = chosen.described(&self.statistics[index].0);
            if let Ok(id) = output.interface(&interface) {
                let comments: &[String] = if is_total { &remarks } else { &[] };
                output.statistics(id, &counts, comments);
                if is_total {
                    remarks.clear();
                }
            }
        }
    }

    /// Numbers of what a file without statistics lacks.
    fn left_out(&self) -> LeftOut {
        let losses = self
            .statistics
            .iter()
            .filter(|(_, counts)| counts.dropped() > 0);
        LeftOut {
            losses: losses.count() as u64,
            uncounted: self.uncounted.len() as u64,
            remarks: self.remarks.len() as u64,
            ..LeftOut::default()
        }
    }

    /// Returns the statistics to write, each with the index of its interface, and whether it is the
    /// interface's last.
    ///
    /// A time that the next capture ended is a pair: counts that go on, and counts of another start
    /// after them. If no capture followed, the last counts go on, and are of the time at which the
    /// unknown begins. Of several such times, the earliest holds the others.
    fn blocks(&self) -> Vec<(usize, Statistics, bool)> {
        let open_ns = self
            .uncounted
            .iter()
            .filter(|one| one.to_ns.is_none())
            .map(|one| one.from_ns)
            .min();
        let totals: Vec<Statistics> = self
            .statistics
            .iter()
            .map(|(_, counts)| open_ns.map_or(ended(counts), |from_ns| unended(counts, from_ns)))
            .collect();
        // Readers take the first counts that go on as those from before the file, if the file has no packets.
        let zeros = totals.iter().enumerate().filter(|_| open_ns.is_some());
        let mut blocks: Vec<_> = zeros
            .map(|(index, counts)| (index, zero(counts), false))
            .collect();
        let closed = self
            .uncounted
            .iter()
            .filter(|one| open_ns.is_none_or(|open_ns| one.from_ns < open_ns))
            .filter_map(|one| Some((one.from_ns, one.to_ns?)));
        if !totals.is_empty() {
            blocks.extend(closed.flat_map(pair).map(|counts| (0, counts, false)));
        }
        blocks.extend(
            totals
                .into_iter()
                .enumerate()
                .map(|(index, counts)| (index, counts, true)),
        );
        blocks
    }
}

/// The last count of a capture that broke off, and the first count of the next. The file may know
/// no part of a second.
fn pair((from_ns, to_ns): (i64, i64)) -> [Statistics; 2] {
    let nothing = Statistics {
        dropped_by_system: Some(0),
        ..Statistics::default()
    };
    let end = Statistics {
        time_ns: from_ns,
        start_ns: Some(from_ns.saturating_sub(1_000_000_000)),
        ..nothing
    };
    let begin = Statistics {
        time_ns: to_ns,
        start_ns: Some(to_ns),
        end_ns: Some(to_ns),
        ..nothing
    };
    [end, begin]
}

/// Whether the statistics tell nothing.
fn is_nothing(counts: &Statistics) -> bool {
    let nothing = Statistics {
        time_ns: counts.time_ns,
        ..Statistics::default()
    };
    *counts == nothing
}

/// Counts that do not go on: no source goes on after them.
fn ended(counts: &Statistics) -> Statistics {
    let end_ns = counts
        .end_ns
        .or(counts.start_ns.is_some().then_some(counts.time_ns));
    Statistics { end_ns, ..*counts }
}

/// Counts that go on from a time on at the latest.
fn unended(counts: &Statistics, from_ns: i64) -> Statistics {
    let time_ns = counts.time_ns.min(from_ns);
    Statistics {
        time_ns,
        start_ns: Some(counts.start_ns.unwrap_or(time_ns).min(time_ns)),
        end_ns: None,
        ..*counts
    }
}

/// The same counts, at the begin.
fn zero(counts: &Statistics) -> Statistics {
    Statistics {
        start_ns: counts.start_ns,
        ..counts.since(counts)
    }
}
