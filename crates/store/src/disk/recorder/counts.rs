//! Statistics in the segments: counts of the run since its start.
//!
//! Each segment begins with them, each write ends with them, and so does the segment. A reader subtracts.

use super::super::{Error, Recorder};
use weir_packet::savefile::Statistics;

/// Largest number of interfaces with counts of their own; counts of further interfaces are added to
/// the first.
const MOST: usize = 16;

/// Bytes of all statistics, at most: twice 100 for each interface, and the comment.
pub(super) const ROOM: usize = 4 << 10;

/// Bytes of a comment, at most.
const COMMENT: usize = 300;

/// Counts of the run.
#[derive(Debug)]
pub(super) struct Counts {
    /// Time at which the run began, ns since 1970: the same in all its segments, and in none of another run.
    start_ns: i64,
    /// Counts for each interface, as the caller gave them; the first interface always has an entry.
    latest: Vec<(u32, Statistics)>,
    comment: Option<String>,
    /// Dropped packets in the latest statistics of any segment of the run.
    told: u64,
    /// Packets that the caller left out, in the same.
    told_missed: u64,
    /// Interfaces with statistics in the segments of the run, in the order of their first ones.
    begun: Vec<u32>,
}

/// Progress of the statistics in the segments of the run at the end of a write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    dropped: u64,
    missed: u64,
    /// Packets that the caller left out, whether statistics tell them or not.
    left_out: u64,
    /// Number of interfaces with statistics.
    begun: usize,
}

impl Counts {
    pub(super) fn new(start_ns: i64) -> Self {
        Self {
            start_ns,
            latest: vec![(0, Statistics::default())],
            comment: None,
            told: 0,
            told_missed: 0,
            begun: Vec::new(),
        }
    }

    fn dropped(&self) -> u64 {
        self.latest
            .iter()
            .fold(0, |sum, (_, counts)| sum.saturating_add(counts.dropped()))
    }
}

/// Counts of which nothing has happened yet.
fn zeros(counts: &Statistics) -> Statistics {
    let none = |count: Option<u64>| count.map(|_| 0);
    Statistics {
        received: none(counts.received),
        dropped_by_interface: none(counts.dropped_by_interface),
        dropped_by_system: none(counts.dropped_by_system),
        delivered: none(counts.delivered),
        ..*counts
    }
}

impl Recorder {
    /// Takes the counts of the run since its start, for each interface: packets that arrived, and
    /// packets that were lost before they were passed to this recorder. Packets whose numbers were
    /// left out are added. The next write says it, with the comment. Their time is when the counts
    /// were read; 0 for now. Statistics without a count stay so, for readers to see that nothing counted the losses.
    ///
    /// **Errors**: a new segment fails, which begins if packets were lost and there is no segment
    /// to record that.
    pub fn count(
        &mut self,
        counts: &[(u32, Statistics)],
        comment: Option<String>,
    ) -> Result<(), Error> {
        let mut latest: Vec<(u32, Statistics)> = Vec::with_capacity(counts.len().min(MOST) + 1);
        latest.push((0, Statistics::default()));
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
            let most = (0..=COMMENT.min(text.len()))
                .rev()
                .find(|&at| text.is_char_boundary(at));
            text.truncate(most.unwrap_or(0));
            text
        });
        let untold = self.counts.dropped() != self.counts.told
            || self.stats.missed != self.counts.told_missed;
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

    /// Packets lost before the disk, as far as statistics in the segments report them.
    pub fn told(&self) -> u64 {
        self.counts.told.saturating_add(self.counts.told_missed)
    }

    /// Describes the interfaces with counts of their own in the current segment.
    pub(super) fn describe_counted(&mut self) -> Result<(), Error> {
        let most = self.counts.latest.iter().map(|(id, _)| *id).max();
        most.filter(|_| self.interfaces > 0)
            .map_or(Ok(()), |most| self.describe(most))
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
        let is_first = self.counts.begun.is_empty();
        let begins_segment = !std::mem::replace(&mut open.has_told, true);
        let described = open.described;
        let now_ns = self.now.wall_ns;
        for at in 0..self.counts.latest.len() {
            let (id, mut counts) = self.counts.latest[at];
            if id >= described {
                continue;
            }
            if id == 0 && self.stats.missed > 0 {
                let dropped = counts.dropped_by_system.unwrap_or(0);
                counts.dropped_by_system = Some(dropped.saturating_add(self.stats.missed));
            }
            if is_first {
                counts = zeros(&counts);
            }
            // Counts are of the time at which the caller read them.
            if counts.time_ns == 0 {
                counts.time_ns = now_ns;
            }
            counts.start_ns = Some(self.counts.start_ns);
            counts.end_ns = None;
            if !self.counts.begun.contains(&id) {
                self.counts.begun.push(id);
                // A reader subtracts the first counts in a segment. At its start those of the segment before are subtracted.
                if !begins_segment {
                    self.put_statistics(id, &zeros(&counts), &[]);
                }
            }
            counts.end_ns = is_end.then_some(now_ns);
            let comment = self.counts.comment.clone().filter(|_| id == 0 && !is_first);
            self.put_statistics(id, &counts, comment.as_slice());
        }
        if !is_first {
            (self.counts.told, self.counts.told_missed) =
                (self.counts.dropped(), self.stats.missed);
        }
    }

    fn put_statistics(&mut self, id: u32, counts: &Statistics, comments: &[String]) {
        let from = self.buffer.bytes.len();
        self.encoder
            .statistics(&mut self.buffer.bytes, id, counts, comments);
        self.index.statistics(id, &self.buffer.bytes[from..]);
    }

    /// Progress of the statistics once the buffer is written.
    pub(super) fn progress(&self) -> Progress {
        let Counts {
            told,
            told_missed,
            begun,
            ..
        } = &self.counts;
        Progress {
            dropped: *told,
            missed: *told_missed,
            left_out: self.stats.missed,
            begun: begun.len(),
        }
    }

    /// Forgets what was reported and left out after a write, because that is not on disk.
    pub(super) fn tell_again(&mut self, told: Progress) {
        (self.counts.told, self.counts.told_missed) = (told.dropped, told.missed);
        self.counts.begun.truncate(told.begun);
        self.stats.missed = told.left_out;
    }
}
