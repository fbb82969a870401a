//! Statistics in the segments: counts of the run since its start.
//!
//! Each segment begins with them, each write ends with them, and so does the segment. A reader subtracts.

use super::super::{Error, Recorder};
use weir_packet::savefile::Statistics;

/// Largest number of interfaces with counts of their own; those of the others are added to the first.
const MOST: usize = 16;

/// Bytes of all statistics, at most: 100 for each interface, and the comment.
pub(super) const ROOM: usize = 2 << 10;

/// Bytes of a comment, at most.
const COMMENT: usize = 300;

/// Counts of the run.
#[derive(Debug)]
pub(super) struct Counts {
    /// Time at which the run began, ns since 1970: the same in all its segments, and in none of another run.
    start_ns: i64,
    /// Counts by interface, as the caller gave them; the first interface always has some.
    latest: Vec<(u32, Statistics)>,
    comment: Option<String>,
    /// Packets dropped, of those in the latest statistics of any segment of the run.
    told: u64,
    /// Packets that the caller left out, in the same.
    told_missed: u64,
    /// Whether a segment of the run has begun.
    has_begun: bool,
}

impl Counts {
    pub(super) fn new(start_ns: i64) -> Self {
        let latest = vec![(0, Statistics { dropped_by_system: Some(0), ..Statistics::default() })];
        Self { start_ns, latest, comment: None, told: 0, told_missed: 0, has_begun: false }
    }

    fn dropped(&self) -> u64 {
        self.latest.iter().fold(0, |sum, (_, counts)| sum.saturating_add(counts.dropped()))
    }
}

impl Recorder {
    /// Takes what the run has counted since its start, by interface: packets that arrived, and packets that were lost before they
    /// were passed to this recorder. Packets whose numbers were left out are added. The next write says it, with the comment.
    ///
    /// **Errors**: those of a new segment, which begins if packets were lost and no segment is there to say it.
    pub fn count(&mut self, counts: &[(u32, Statistics)], comment: Option<String>) -> Result<(), Error> {
        let mut latest: Vec<(u32, Statistics)> = Vec::with_capacity(counts.len().min(MOST) + 1);
        let zero = Statistics { dropped_by_system: Some(0), ..Statistics::default() };
        latest.push((0, zero));
        for &(id, counts) in counts {
            let own = latest.iter().position(|(known, _)| *known == id);
            match own {
                Some(at) => latest[at].1.add(&counts),
                None if latest.len() < MOST && id < self.interfaces => latest.push((id, counts)),
                None => latest[0].1.add(&counts),
            }
        }
        self.counts.latest = latest;
        self.counts.comment = comment.map(|mut text| {
            let most = (0..=COMMENT.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
            text.truncate(most.unwrap_or(0));
            text
        });
        let untold = self.counts.dropped() != self.counts.told || self.stats.missed != self.counts.told_missed;
        if !untold || self.interfaces == 0 {
            return Ok(());
        }
        if self.open.is_none() {
            self.begin_segment(None)?;
        }
        self.describe_counted()?;
        // Any write ends with the statistics.
        if self.buffer.len() == 0 {
            self.tell(false);
        }
        Ok(())
    }

    /// Whether packets were left out that no statistics tell.
    pub(super) fn has_untold_gap(&self) -> bool {
        self.stats.missed != self.counts.told_missed
    }

    /// Packets lost before the disk, of those that statistics in the segments tell.
    pub fn told(&self) -> u64 {
        self.counts.told.saturating_add(self.counts.told_missed)
    }

    /// Describes the interfaces with counts of their own in the current segment.
    pub(super) fn describe_counted(&mut self) -> Result<(), Error> {
        let most = self.counts.latest.iter().map(|(id, _)| *id).max();
        most.filter(|_| self.interfaces > 0).map_or(Ok(()), |most| self.describe(most))
    }

    /// Puts statistics of the interfaces described so far into the buffer, which has [`ROOM`] for them. With those at the end the
    /// segment takes no more packets.
    pub(super) fn tell(&mut self, is_end: bool) {
        let Some(open) = &mut self.open else { return };
        if open.is_told {
            return;
        }
        open.is_told = is_end;
        // What was lost before the first packet of the run is between these counts and the next ones.
        let is_first = !std::mem::replace(&mut self.counts.has_begun, true);
        let described = open.described;
        let now_ns = self.now.wall_ns;
        for at in 0..self.counts.latest.len() {
            let (id, mut counts) = self.counts.latest[at];
            if id >= described {
                continue;
            }
            if id == 0 {
                let dropped = counts.dropped_by_system.unwrap_or(0);
                counts.dropped_by_system = Some(dropped.saturating_add(self.stats.missed));
            }
            if is_first {
                let none = |count: Option<u64>| count.map(|_| 0);
                counts.received = none(counts.received);
                counts.dropped_by_interface = none(counts.dropped_by_interface);
                counts.dropped_by_system = none(counts.dropped_by_system);
                counts.delivered = none(counts.delivered);
            }
            counts.time_ns = now_ns;
            counts.start_ns = Some(self.counts.start_ns);
            counts.end_ns = is_end.then_some(now_ns);
            let comment = self.counts.comment.as_ref().filter(|_| id == 0 && !is_first);
            let from = self.buffer.bytes.len();
            self.encoder.statistics(&mut self.buffer.bytes, id, &counts, comment.map_or(&[], std::slice::from_ref));
            self.index.statistics(id, &self.buffer.bytes[from..]);
        }
        if !is_first {
            (self.counts.told, self.counts.told_missed) = (self.counts.dropped(), self.stats.missed);
        }
    }
}
