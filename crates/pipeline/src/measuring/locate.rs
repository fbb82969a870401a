//! Finds where the packets of a source lie, and leaves them there.
//!
//! What a provisional cursor finds may turn out wrong, and a sketch cannot forget. So packets are measured in a second
//! step, once the reader has proven where they are.

use crate::select::{Select, SelectPlan};
use crate::{Consumer, PlanError, With};
use std::sync::Arc;
use weir_packet::Frame;
use weir_packet::flow::Parser;
use weir_packet::list::List;
use weir_packet::savefile::Layout;

/// The consumer that locates.
#[derive(Debug)]
pub struct Locate {
    pub(super) select: Arc<Select>,
    /// Look into tunnels.
    pub inner: bool,
    /// Times matter: note [`Times`].
    pub timed: bool,
}

/// How to read the packets of a layout.
#[derive(Debug)]
pub struct LocatePlan {
    pub(super) filter: SelectPlan,
    /// For each interface; `None` where no flow key is looked for.
    pub(super) parsers: List<Option<Parser>>,
}

/// The packets of a piece of the source.
#[derive(Debug, Default)]
pub struct Located {
    /// Offset of each packet's record.
    pub records: Vec<u32>,
    /// What is known of their time stamps, if times matter and there are any.
    pub times: Option<Times>,
}

/// What is known of the time stamps of some packets, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first stamp in the order of the source.
    pub first: i64,
    /// The smallest stamp.
    pub earliest: i64,
    /// The largest stamp.
    pub latest: i64,
    /// By how much a stamp is behind the largest one before it, at most.
    pub behind: i64,
}

impl Times {
    fn of(stamp: i64) -> Self {
        Self { first: stamp, earliest: stamp, latest: stamp, behind: 0 }
    }

    /// The times of these packets and of the next ones.
    #[inline]
    fn and(self, next: Self) -> Self {
        Self {
            first: self.first,
            earliest: self.earliest.min(next.earliest),
            latest: self.latest.max(next.latest),
            behind: self.behind.max(next.behind).max(self.latest.saturating_sub(next.earliest)),
        }
    }
}

impl Consumer for Locate {
    type Plan = LocatePlan;
    type Part = Located;

    fn plan(&self, layout: &Layout, before: Option<&LocatePlan>) -> Result<LocatePlan, PlanError> {
        let filter = self.select.plan(layout, before.map(|before| &before.filter))?;
        let mut parsers = before.map_or_else(List::default, |before| before.parsers.clone());
        for interface in layout.interfaces.iter_from(parsers.len()) {
            parsers.push(Parser::new(interface.link, self.inner));
        }
        Ok(LocatePlan { filter, parsers })
    }

    fn settle_in(&self, plan: &LocatePlan, aside: bool) {
        self.select.settle_in(&plan.filter, aside);
    }

    fn piece(&self, packets: u64) -> Located {
        Located { records: Vec::with_capacity(packets as usize), times: None }
    }

    #[inline]
    fn frames(&self, with: &With<'_, LocatePlan>, frames: &[Frame<'_>], part: &mut Located) -> usize {
        part.records.extend_from_slice(with.records);
        if self.timed {
            let mut times = part.times;
            with.layout.records(with.bytes, with.records, |_, record| {
                if let Some(stamp) = record.and_then(|record| record.time_ns) {
                    let time = Times::of(stamp);
                    times = Some(times.map_or(time, |times| times.and(time)));
                }
            });
            part.times = times;
        }
        frames.len()
    }

    fn append(&self, part: &mut Located, next: Located) {
        part.records.extend_from_slice(&next.records);
        part.times = match (part.times, next.times) {
            (Some(times), Some(next)) => Some(times.and(next)),
            (times, next) => times.or(next),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_parts_are_the_times_of_the_whole() {
        let stamps = [5, 9, -3, 12, 11, 0, 13];
        let whole = Times { first: 5, earliest: -3, latest: 13, behind: 12 };
        for cut in 0..=stamps.len() {
            let times = |stamps: &[i64]| stamps.iter().copied().map(Times::of).reduce(Times::and);
            let (head, tail) = stamps.split_at(cut);
            let both = [times(head), times(tail)].into_iter().flatten().reduce(Times::and);
            assert_eq!(both, Some(whole), "cut at {cut}");
        }
    }
}
