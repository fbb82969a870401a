//! The revocable stages of a run: work on packets before the proof that they are packets.
//!
//! The findings of a provisional cursor may turn out wrong. So these stages keep only columns, which are appended or discarded
//! with the cursor. Stages that cannot forget (sketches, counters, outputs) are committed: they get proven batches, in the order
//! of the source.

use crate::bits::Bits;
use crate::merge::Merged;
use crate::reader::Delivery;
use crate::select::{Select, SelectPlan, Selected};
use crate::{Consumer, PlanError, With};
use std::sync::{Arc, Mutex, PoisonError};
use weir_memory::changes::Changes;
use weir_packet::Frame;
use weir_packet::flow::{Parser, Tunnels};
use weir_packet::list::List;
use weir_packet::savefile::Layout;

/// The revocable stages of a run: a filter with splits, and the columns to fill.
#[derive(Debug)]
pub struct Stages {
    filter: Mutex<Numbered>,
    changes: Arc<Changes>,
    /// Whether the filter judges before the proof. Else the committed stage that measures calls the filter.
    pub judge: bool,
    /// Notes taken of each packet, independent of the filter's verdict; `None` for no notes.
    pub locate: Option<Locate>,
}

/// The filter and the splits.
#[derive(Clone, Debug)]
struct Numbered {
    /// Number of the latest change of any kind.
    change: u64,
    /// Number of the change at which the current filter took effect.
    filter_change: u64,
    select: Arc<Select>,
}

/// Notes taken of each packet, for a measurement or for batches that hold all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locate {
    /// Tunnels inside which flow keys are read, if at all.
    pub inner: Option<Tunnels>,
    /// Whether the timestamps are noted, as [`Times`].
    pub timed: bool,
}

/// Filters and parsers for the packets of a layout.
#[derive(Debug)]
pub struct StagesPlan {
    change: u64,
    pub(crate) select: Arc<Select>,
    pub(crate) filter: SelectPlan,
    /// Whether every packet passes.
    pub(crate) keeps_all: bool,
    /// Parser of each interface, if packets are located; an inner `None` means that the link type has no flow key.
    pub(crate) parsers: List<Option<Parser>>,
}

impl StagesPlan {
    /// Whether packets of this layout can match.
    pub fn fits(&self) -> bool {
        self.filter.fits()
    }

    /// Whether a packet passes, for a packet that was not judged before the proof.
    pub(crate) fn passes(&self, frame: &Frame<'_>) -> bool {
        self.keeps_all || self.select.kept(&self.filter, core::slice::from_ref(frame)) & 1 == 1
    }

    /// Returns the number of the latest change for the packets, of the filter or of a later stage; 0 before the first change.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// Returns the plan for packets of another change.
    pub(crate) fn of_change(self, change: u64) -> Self {
        Self { change, ..self }
    }
}

/// The columns of a batch: the findings of the revocable stages in a piece of the source.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Offset of each packet's record, if packets are [located](Stages::locate).
    pub records: Vec<u32>,
    /// Mask of the packets that pass, if the filter judges before the proof. A committed judge
    /// clears the bits of packets that it denies.
    pub passed: Bits,
    /// Mask of the packets that pass and match, for each split, if the filter judges before the proof.
    pub splits: Vec<Bits>,
    /// Mask of the packets that the filter passed, if a committed judge has also judged them; else
    /// empty.
    pub matched: Bits,
    /// Mask of the control packets that a committed judge obeyed; empty if there are none.
    pub control: Bits,
    /// Mask of the duplicates that a committed stage left out; empty if there are none.
    pub duplicates: Bits,
    /// Summary of the timestamps, if they are noted and there are any.
    pub times: Option<Times>,
    /// Sums of the filter and the splits, if they judge before the proof.
    pub selected: Selected,
}

/// Summary of the timestamps of some packets, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first timestamp in the order of the source.
    pub first: i64,
    /// The smallest timestamp.
    pub earliest: i64,
    /// The largest timestamp.
    pub latest: i64,
    /// Largest distance of a timestamp after the largest timestamp before it, ns.
    pub behind: i64,
}

impl Times {
    pub(crate) fn of(stamp: i64) -> Self {
        Self {
            first: stamp,
            earliest: stamp,
            latest: stamp,
            behind: 0,
        }
    }

    /// Returns the summary of these packets and of the next ones.
    #[inline]
    pub(crate) fn and(self, next: Self) -> Self {
        Self {
            first: self.first,
            earliest: self.earliest.min(next.earliest),
            latest: self.latest.max(next.latest),
            behind: self
                .behind
                .max(next.behind)
                .max(self.latest.saturating_sub(next.earliest)),
        }
    }
}

impl Columns {
    /// Returns the packets that pass, for a [merge](crate::merge::Merge).
    pub fn merged(&self) -> Merged<'_> {
        Merged {
            records: &self.records,
            mask: Some(&self.passed),
        }
    }

    /// Returns all packets, for a [merge](crate::merge::Merge).
    pub fn all(&self) -> Merged<'_> {
        Merged {
            records: &self.records,
            mask: None,
        }
    }

    /// Returns the offsets of the records of the packets that pass.
    pub fn passed_records(&self) -> impl Iterator<Item = u32> + '_ {
        self.passed.numbers().map(|number| self.records[number])
    }

    /// Returns the number of the first packet that passes, from number `from` on.
    pub fn next_passed(&self, from: usize) -> Option<usize> {
        self.passed.numbers_from(from).next()
    }
}

impl Stages {
    /// Makes the stages of a run without a measurement that only counts: the filter judges, and no notes are taken.
    pub fn filter(select: Arc<Select>) -> Self {
        Self::new(select, true, None)
    }

    /// Makes the stages of a run without a measurement that notes the offset and the verdicts of each packet.
    pub fn noting(select: Arc<Select>) -> Self {
        Self::new(select, true, Some(Locate::default()))
    }

    /// Makes the stages of a run.
    pub fn new(select: Arc<Select>, judge: bool, locate: Option<Locate>) -> Self {
        let filter = Mutex::new(Numbered {
            change: 0,
            filter_change: 0,
            select,
        });
        Self {
            filter,
            changes: Arc::default(),
            judge,
            locate,
        }
    }

    fn numbered(&self) -> Numbered {
        self.filter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the current filter with its splits.
    pub fn select(&self) -> Arc<Select> {
        self.numbered().select
    }

    /// Returns the number of the latest change, 0 before the first.
    pub fn change(&self) -> u64 {
        self.changes.number()
    }

    /// Returns the current filter with its splits, and the number of the change that brought it.
    pub fn current(&self) -> (u64, Arc<Select>) {
        let Numbered {
            filter_change,
            select,
            ..
        } = self.numbered();
        (filter_change, select)
    }

    /// Replaces the filter, and returns the number of the change. Batches that readers begin from now on are judged by the new
    /// filter; [`Changes::wait`] waits for the batches under way. The new filter is made with [`Select::with_expression`].
    pub fn replace(&self, select: Arc<Select>) -> u64 {
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        filter.select = select;
        // The numbers are only read with the lock held.
        filter.change = self.changes.publish();
        filter.filter_change = filter.change;
        filter.change
    }

    /// Returns the number of a change in a later stage: batches that readers begin from now on have this number or a later one.
    pub fn mark(&self) -> u64 {
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        filter.change = self.changes.publish();
        filter.change
    }
}

impl Delivery<Stages> {
    /// Returns a batch that shares the bytes of this one. **Cost**: a copy of the columns.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            current: Arc::clone(&self.current),
            view: self.view.share(),
            last: self.last,
            part: self.part.clone(),
        }
    }
}

impl Consumer for Stages {
    type Plan = StagesPlan;
    type Part = Columns;

    fn plan(&self, layout: &Layout, before: Option<&StagesPlan>) -> Result<StagesPlan, PlanError> {
        let Numbered {
            change,
            filter_change,
            select,
        } = self.numbered();
        let filter = match before {
            _ if filter_change == 0 => select.plan(layout, before.map(|before| &before.filter))?,
            before => {
                let grown = before.filter(|before| Arc::ptr_eq(&before.select, &select));
                select.plan_after_change(layout, grown.map(|before| &before.filter))?
            }
        };
        let mut parsers = before.map_or_else(List::default, |before| before.parsers.clone());
        if let Some(Locate { inner, .. }) = self.locate {
            for interface in layout.interfaces.iter_from(parsers.len()) {
                parsers.push(Parser::inside(interface.link, inner));
            }
        }
        Ok(StagesPlan {
            change,
            keeps_all: select.keeps_all(),
            select,
            filter,
            parsers,
        })
    }

    fn warm_up(&self, plan: &StagesPlan, aside: bool) {
        plan.select.warm_up(aside);
    }

    fn piece(&self, packets: u64) -> Columns {
        let most = if self.locate.is_some() {
            packets as usize
        } else {
            0
        };
        Columns {
            records: Vec::with_capacity(most),
            ..Columns::default()
        }
    }

    fn only_counts(&self) -> bool {
        self.locate.is_none()
    }

    #[inline]
    fn soon(&self, plan: &StagesPlan, frames: &[Frame<'_>]) {
        if self.judge {
            plan.select.fetch(&plan.filter, frames);
        }
    }

    #[inline]
    fn frames(&self, with: &With<'_, StagesPlan>, frames: &[Frame<'_>], part: &mut Columns) {
        let mut passed = 0;
        if self.judge {
            let splits = self.locate.is_some().then_some(&mut part.splits);
            let select = &with.plan.select;
            let judged = (frames, select.in_span(with));
            passed = select.judge(&with.plan.filter, judged, &mut part.selected, splits);
        }
        let Some(Locate { timed, .. }) = self.locate else {
            return;
        };
        let records = with.records;
        part.records.extend_from_slice(records);
        if self.judge {
            part.passed.push(passed, frames.len());
        }
        if timed {
            let mut times = part.times;
            with.layout.records(with.bytes, records, |_, record| {
                if let Some(stamp) = record.and_then(|record| record.time_ns) {
                    let time = Times::of(stamp);
                    times = Some(times.map_or(time, |times| times.and(time)));
                }
            });
            part.times = times;
        }
    }

    fn append(&self, part: &mut Columns, next: Columns) {
        part.records.extend_from_slice(&next.records);
        part.passed.append(&next.passed);
        part.splits
            .resize_with(part.splits.len().max(next.splits.len()), Bits::default);
        part.splits
            .iter_mut()
            .zip(&next.splits)
            .for_each(|(split, next)| split.append(next));
        part.times = match (part.times, next.times) {
            (Some(times), Some(next)) => Some(times.and(next)),
            (times, next) => times.or(next),
        };
        if self.judge {
            part.selected.append(next.selected);
        }
    }

    fn changes(&self) -> Option<&Arc<Changes>> {
        Some(&self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_parts_are_the_times_of_the_whole() {
        let stamps = [5, 9, -3, 12, 11, 0, 13];
        let whole = Times {
            first: 5,
            earliest: -3,
            latest: 13,
            behind: 12,
        };
        for cut in 0..=stamps.len() {
            let times = |stamps: &[i64]| stamps.iter().copied().map(Times::of).reduce(Times::and);
            let (head, tail) = stamps.split_at(cut);
            let both = [times(head), times(tail)]
                .into_iter()
                .flatten()
                .reduce(Times::and);
            assert_eq!(both, Some(whole), "cut at {cut}");
        }
    }
}
