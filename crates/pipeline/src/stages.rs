//! The revocable stages of a run: work on packets before the proof that they are packets.
//!
//! The findings of a provisional cursor may turn out wrong. So these stages keep only columns, which are appended or discarded
//! with the cursor. Stages that cannot forget (sketches, counters, outputs) are committed: they get proven batches, in the order
//! of the source.

use crate::select::{Select, SelectPlan, Selected};
use crate::{Consumer, PlanError, With};
use std::sync::{Arc, Mutex, PoisonError};
use weir_memory::changes::Changes;
use weir_packet::Frame;
use weir_packet::flow::Parser;
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
    /// Number of the change that brought the filter.
    filter_change: u64,
    select: Arc<Select>,
}

/// Notes taken of each packet, for a measurement or for batches that hold all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locate {
    /// Whether flow keys are read inside tunnels.
    pub inner: bool,
    /// Whether the time stamps are noted, as [`Times`].
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

    /// Returns the number of the latest change for the packets, of the filter or of a later stage; 0 before the first change.
    pub fn change(&self) -> u64 {
        self.change
    }
}

/// The columns of a batch: the findings of the revocable stages in a piece of the source.
#[derive(Debug, Default)]
pub struct Columns {
    /// Offset of each packet's record, if packets are [located](Stages::locate).
    pub records: Vec<u32>,
    /// Verdict of the filter on each of these packets, if the filter judges before the proof.
    pub kept: Bits,
    /// Summary of the time stamps, if they are noted and there are any.
    pub times: Option<Times>,
    /// Result of the filter and the splits, if they judge before the proof.
    pub selected: Selected,
}

/// A column of bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// Returns the mask of the records at `all` that are also at `some`, offsets in the same order: bit i for `all[i]`.
    pub fn marking(all: &[u32], some: &[u32]) -> Self {
        let (mut mask, mut some) = (Self::default(), some);
        for records in all.chunks(64) {
            let mut word = 0;
            for (i, record) in records.iter().enumerate() {
                if some.first() == Some(record) {
                    some = &some[1..];
                    word |= 1 << i;
                }
            }
            mask.push(word, records.len());
        }
        mask
    }

    /// Returns `len` bits that are all 1.
    pub fn ones(len: usize) -> Self {
        let mut bits = Self::default();
        (0..len).step_by(64).for_each(|at| bits.push(u64::MAX >> (64 - (len - at).min(64)), (len - at).min(64)));
        bits
    }

    /// Returns `len` bits that are all 0.
    pub fn zeros(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Returns the number of bits that are 1.
    pub fn count_ones(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no bit.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bits, 64 to a word: bit i is bit `i % 64`, counted from the lowest, of word `i / 64`. Bits behind the last are
    /// 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Appends the lowest `n` bits of `bits`, at most 64; the higher bits must be 0.
    #[inline]
    pub fn push(&mut self, bits: u64, n: usize) {
        debug_assert!(n == 64 || bits >> n == 0, "bits above the {n} that are appended");
        let at = self.len % 64;
        if at == 0 {
            self.words.push(bits);
        } else if let Some(last) = self.words.last_mut() {
            *last |= bits << at;
            if at + n > 64 {
                self.words.push(bits >> (64 - at));
            }
        }
        self.len += n;
        self.words.truncate(self.len.div_ceil(64));
    }

    /// Appends all bits of `other`.
    pub fn append(&mut self, other: &Self) {
        for (i, &word) in other.words.iter().enumerate() {
            self.push(word, (other.len - i * 64).min(64));
        }
    }

    /// Returns the `n` bits, at most 64, from number `at` on: bit i is number `at + i`. Bits behind the last are 0.
    #[inline]
    pub fn get(&self, at: usize, n: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        let low = self.words.get(word).map_or(0, |word| word >> shift);
        let high = if shift == 0 { 0 } else { self.words.get(word + 1).map_or(0, |word| word << (64 - shift)) };
        (low | high) & (u64::MAX >> (64 - n.clamp(1, 64)))
    }
}

/// Summary of the time stamps of some packets, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first stamp in the order of the source.
    pub first: i64,
    /// The smallest stamp.
    pub earliest: i64,
    /// The largest stamp.
    pub latest: i64,
    /// Largest distance of a stamp behind the largest stamp before it, ns.
    pub behind: i64,
}

impl Times {
    fn of(stamp: i64) -> Self {
        Self { first: stamp, earliest: stamp, latest: stamp, behind: 0 }
    }

    /// Returns the summary of these packets and of the next ones.
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

impl Stages {
    /// Makes the stages of a run without a measurement: the filter judges, and no notes are taken.
    pub fn filter(select: Arc<Select>) -> Self {
        Self::new(select, true, None)
    }

    /// Makes the stages of a run.
    pub fn new(select: Arc<Select>, judge: bool, locate: Option<Locate>) -> Self {
        let filter = Mutex::new(Numbered { change: 0, filter_change: 0, select });
        Self { filter, changes: Arc::default(), judge, locate }
    }

    fn numbered(&self) -> Numbered {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the current filter with its splits.
    pub fn select(&self) -> Arc<Select> {
        self.numbered().select
    }

    /// Returns the current filter with its splits, and the number of the change that brought it.
    pub fn current(&self) -> (u64, Arc<Select>) {
        let Numbered { filter_change, select, .. } = self.numbered();
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

impl Consumer for Stages {
    type Plan = StagesPlan;
    type Part = Columns;

    fn plan(&self, layout: &Layout, before: Option<&StagesPlan>) -> Result<StagesPlan, PlanError> {
        let Numbered { change, filter_change, select } = self.numbered();
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
                parsers.push(Parser::new(interface.link, inner));
            }
        }
        Ok(StagesPlan { change, keeps_all: select.keeps_all(), select, filter, parsers })
    }

    fn warm_up(&self, plan: &StagesPlan, aside: bool) {
        plan.select.warm_up(aside);
    }

    fn piece(&self, packets: u64) -> Columns {
        let most = if self.locate.is_some() { packets as usize } else { 0 };
        Columns { records: Vec::with_capacity(most), ..Columns::default() }
    }

    #[inline]
    fn frames(&self, with: &With<'_, StagesPlan>, frames: &[Frame<'_>], part: &mut Columns) -> usize {
        let (mut taken, mut kept) = (frames.len(), 0);
        if self.judge {
            (taken, kept) = with.plan.select.judge(&with.plan.filter, frames, with.records, &mut part.selected);
        }
        let Some(Locate { timed, .. }) = self.locate else { return taken };
        let records = &with.records[..taken];
        part.records.extend_from_slice(records);
        if self.judge {
            part.kept.push(kept, taken);
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
        taken
    }

    fn append(&self, part: &mut Columns, next: Columns) {
        part.records.extend_from_slice(&next.records);
        part.kept.append(&next.kept);
        part.times = match (part.times, next.times) {
            (Some(times), Some(next)) => Some(times.and(next)),
            (times, next) => times.or(next),
        };
        if self.judge {
            part.selected.append(next.selected);
        }
    }

    fn in_order(&self) -> bool {
        self.select().is_limited()
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
        let whole = Times { first: 5, earliest: -3, latest: 13, behind: 12 };
        for cut in 0..=stamps.len() {
            let times = |stamps: &[i64]| stamps.iter().copied().map(Times::of).reduce(Times::and);
            let (head, tail) = stamps.split_at(cut);
            let both = [times(head), times(tail)].into_iter().flatten().reduce(Times::and);
            assert_eq!(both, Some(whole), "cut at {cut}");
        }
    }

    #[test]
    fn a_mask_names_the_packets_of_a_list() {
        // As in a burst, offsets need not ascend.
        let records: Vec<u32> = (0..200).map(|i| (i * 77) % 211).collect();
        for step in [1, 2, 3, 64, 199] {
            let some: Vec<u32> = records.iter().copied().skip(step - 1).step_by(step).collect();
            let mask = Bits::marking(&records, &some);
            assert_eq!((mask.len(), mask.words().len()), (200, 4));
            let bit = |i: usize| mask.words()[i / 64] >> (i % 64) & 1 == 1;
            assert!((0..256).all(|i| bit(i) == (i < 200 && i % step == step - 1)), "{step}");
        }
        for len in [0, 1, 63, 64, 65, 128, 200] {
            let all = &records[..len];
            assert_eq!((Bits::ones(len), Bits::zeros(len)), (Bits::marking(all, all), Bits::marking(all, &[])));
            assert_eq!((Bits::ones(len).count_ones(), Bits::zeros(len).count_ones()), (len as u64, 0));
        }
    }

    #[test]
    fn bits_come_out_as_they_went_in_wherever_pieces_meet() {
        let expected: Vec<bool> = (0..400u32).map(|i| i.is_power_of_two() || i % 3 == 0).collect();
        for step in [1, 7, 32, 63, 64] {
            let pack = |bits: &[bool]| {
                let mut column = Bits::default();
                for run in bits.chunks(step) {
                    column.push(run.iter().rev().fold(0, |word, &bit| word << 1 | u64::from(bit)), run.len());
                }
                column
            };
            for cut in [0, 1, 63, 64, 65, 200, 400] {
                let (head, tail) = expected.split_at(cut);
                let mut both = pack(head);
                both.append(&pack(tail));
                assert_eq!((both.len(), both.is_empty()), (400, false));
                let single: Vec<bool> = (0..400).map(|i| both.get(i, 1) == 1).collect();
                assert_eq!(single, expected, "step {step}, cut at {cut}");
                for at in 0..380 {
                    let word = both.get(at, 20);
                    assert!((0..20).all(|i| (word >> i & 1 == 1) == expected[at + i]) && word >> 20 == 0);
                }
            }
        }
    }
}
