//! The outputs of a run: where the packets of a batch go, which outputs still take packets, and what each of them wrote.
//!
//! An output that ends (its reader closed the pipe, its disk is full) takes no more packets, and the others get all of theirs.
//! Without a measurement beside them, the run is over once no output is left, or once the files of `-w` are complete (`-W`).

use crate::output_changes::OutputSlot;
use crate::sink::{End, Needs, Packets, Sink, SinkFault, SinkReport, Wanted};
use crate::stage_mark::{Stage, StageMark};
use std::sync::Arc;
use weir_packet::Frame;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Interface, Layout, Record, Statistics};
use weir_pipeline::Delivery;
use weir_pipeline::handed::{Gone, Handed};
use weir_pipeline::select::Selected;
use weir_pipeline::stages::{Bits, Stages};

/// How far the kept packets of a piece were passed on.
///
/// The records of a split are some of those of the main output, in the same order: that of the source. Their offsets need not
/// ascend, since a UMEM's slots are filled in any order. So a split has a position of its own, and nothing is searched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Kept records that were passed on.
    pub next: usize,
    /// The same for each split.
    splits: Vec<usize>,
}

impl Place {
    /// Moves behind the next record; `each` gets the number of each split that keeps it.
    pub fn pass(&mut self, part: &Selected, mut each: impl FnMut(usize)) {
        let Some(record) = part.records.get(self.next) else { return };
        self.next += 1;
        self.splits.resize(part.splits.len(), 0);
        for (i, (next, split)) in self.splits.iter_mut().zip(&part.splits).enumerate() {
            if split.records.get(*next) == Some(record) {
                *next += 1;
                each(i);
            }
        }
    }
}

/// Packets of a piece that nobody wants any more, counted one by one.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Packets.
    pub received: u64,
    /// Packets that match.
    pub passed: u64,
    /// Packets that do not.
    pub filtered: u64,
    /// Wire bytes of those that match.
    pub bytes: u64,
    /// Packets and wire bytes that each split would have got.
    pub splits: Vec<(u64, u64)>,
}

impl Rest {
    /// Counts the packets of `delivery` from the kept packet at `place` to its last.
    pub fn of(delivery: &Delivery<Stages>, place: Place) -> Self {
        struct Walk<'a> {
            part: &'a Selected,
            place: Place,
            last: usize,
            rest: Rest,
        }
        impl Visit for Walk<'_> {
            fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
                let Self { part, place, last, rest } = self;
                for (&at, frame) in records.iter().zip(frames) {
                    rest.received += 1;
                    if part.records.get(place.next) == Some(&at) {
                        let wire = u64::from(frame.wire_len);
                        rest.passed += 1;
                        rest.bytes += wire;
                        place.pass(part, |i| {
                            rest.splits[i].0 += 1;
                            rest.splits[i].1 += wire;
                        });
                    } else {
                        rest.filtered += 1;
                    }
                    if at as usize == *last {
                        return false;
                    }
                }
                true
            }
        }
        let Delivery { current, view, last, part, .. } = delivery;
        let part = &part.selected;
        let Some(&first) = part.records.get(place.next) else { return Self::default() };
        let rest = Self { splits: vec![(0, 0); part.splits.len()], ..Self::default() };
        let mut walked = Walk { part, place, last: *last, rest };
        let bytes = view.content();
        walk(&current.layout, bytes, view.eof, &mut [Cursor::new(first as usize, bytes.len())], &mut walked);
        walked.rest
    }
}

/// Which packets the outputs took.
#[derive(Debug)]
pub(crate) enum Given {
    /// All, as far as outputs are left.
    All,
    /// Those before this place: the files of `-w` are complete.
    Until(Place),
    /// A packet is not in the source any more.
    Changed,
}

/// Why an output takes no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Its reader has closed the pipe.
    Closed,
    /// All its files are written.
    Complete,
    /// It failed, and that was said.
    Failed,
}

/// An output.
struct Outlet {
    /// Number among all outputs, the main one first.
    number: usize,
    mark: Arc<StageMark>,
    /// As the user calls it.
    name: String,
    /// `None`: packets are only counted.
    sink: Option<Box<dyn Sink>>,
    needs: Needs,
    /// Shared by the batches that are kept.
    kept: Arc<()>,
    ended: Option<Ended>,
    /// Why it failed, until that is told.
    fault: Option<SinkFault>,
    /// What it took of the last piece, if it was asked to take all of it.
    handed: Option<Handed>,
    /// Packets that it wanted while this sink was in place.
    matched: u64,
    /// What became of the sinks that were replaced.
    replaced: Replaced,
}

/// What the sinks of an output came to that were replaced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced {
    /// Their number.
    pub sinks: u64,
    /// Packets that they wanted while they were in place.
    pub matched: u64,
    /// Packets that they wrote.
    pub written: u64,
    /// The first that did not end early and wrote another number of packets than it should have.
    discrepancy: Option<Discrepancy>,
}

impl Outlet {
    fn new((name, sink): Target, number: usize, mark: &Arc<StageMark>) -> Self {
        let needs = sink.as_ref().map_or_else(Needs::default, |sink| Needs::of(sink.as_ref()));
        let (kept, replaced) = (Arc::default(), Replaced::default());
        let mark = Arc::clone(mark);
        Self { number, mark, name, sink, needs, kept, ended: None, fault: None, handed: None, matched: 0, replaced }
    }

    /// Completes the sink, and puts another in its place. Gives the name and the report of the one before.
    fn replace(&mut self, (name, sink): Target, layout: Option<&Layout>) -> (String, SinkReport) {
        self.finish(layout);
        let report = self.report().unwrap_or_default();
        let (name, matched) = (std::mem::replace(&mut self.name, name), std::mem::take(&mut self.matched));
        self.sink = sink;
        if self.ended.take().is_none() && report.written != matched && self.replaced.discrepancy.is_none() {
            let (name, written) = (name.clone(), report.written);
            self.replaced.discrepancy = Some(Discrepancy { name, expected: matched, written });
        }
        self.replaced.sinks += 1;
        self.replaced.matched += matched;
        self.replaced.written += report.written;
        (name, report)
    }

    /// Completes the output.
    fn finish(&mut self, layout: Option<&Layout>) {
        // What an output took before a packet that did not fit is good, and still goes out.
        let ended = self.ended.is_some();
        let stage = Stage::Output(self.number);
        let result = self.sink.as_mut().map_or(Ok(()), |sink| self.mark.during(stage, || sink.finish(layout, ended)));
        if let Err(end) = result
            && !ended
        {
            self.end(end);
        }
    }

    /// Whether packets go anywhere from here.
    fn is_real(&self) -> bool {
        self.sink.is_some()
    }

    fn report(&self) -> Option<SinkReport> {
        self.sink.as_ref().map(|sink| sink.report())
    }

    fn end(&mut self, end: End) {
        self.ended = Some(match end {
            End::ClosedPipe => Ended::Closed,
            End::Complete => Ended::Complete,
            End::Failed(fault) => {
                self.fault = Some(fault);
                Ended::Failed
            }
        });
    }

    /// Calls `work` unless the output has ended; an error ends it.
    #[inline]
    fn work(&mut self, work: impl FnOnce(&mut dyn Sink) -> Result<(), End>) {
        if self.ended.is_none()
            && let Some(sink) = &mut self.sink
            && let Err(end) = self.mark.during(Stage::Output(self.number), || work(sink.as_mut()))
        {
            self.end(end);
        }
    }

    /// All its files are written, and packets behind those in them are not wanted.
    fn is_complete(&self) -> bool {
        self.needs.wanted == Wanted::Passed && self.ended == Some(Ended::Complete)
    }

    /// Gives it what it wants of the packets before the record at `behind`, of which those at `records` match. What it took of these stays
    /// in `handed`, unless it went nowhere or did not ask for all.
    fn give(&mut self, delivery: &Delivery<Stages>, records: &[u32], behind: Option<u32>, scratch: &mut Vec<u8>) {
        self.handed = None;
        self.matched += self.wanted_packets(delivery, records, behind);
        let Some(sink) = self.sink.as_mut().filter(|_| self.ended.is_none()) else { return };
        let stage = Stage::Output(self.number);
        let packets = Packets { batch: delivery, records, wanted: self.needs.wanted, matched: None, kept: &self.kept };
        if self.needs.wanted != Wanted::Passed {
            let result = self.mark.during(stage, || give_others(sink.as_mut(), packets, behind, scratch));
            return result.unwrap_or_else(|end| self.end(end));
        }
        let (handed, result) = self.mark.during(stage, || sink.batch(&packets, scratch));
        if let Err(end) = result {
            self.end(end);
        }
        self.handed = Some(handed).filter(|_| matches!(self.ended, None | Some(Ended::Complete)));
    }

    /// Packets that it wants of those before the record at `behind`, of which those at `records` match.
    fn wanted_packets(&self, delivery: &Delivery<Stages>, records: &[u32], behind: Option<u32>) -> u64 {
        let matched = records.len() as u64;
        match self.needs.wanted {
            Wanted::Passed => matched,
            Wanted::Rejected => all_before(delivery, behind).len() as u64 - matched,
            Wanted::All => all_before(delivery, behind).len() as u64,
        }
    }

    /// Packets and wire bytes that it took of the last piece, or, if it did not ask, that are still there to be taken.
    fn there(&self, delivery: &Delivery<Stages>, records: &[u32], scratch: &mut Vec<u8>) -> Handed {
        self.handed.unwrap_or_else(|| there(delivery, records, scratch))
    }
}

/// The records of a batch before the one at `behind`.
fn all_before(delivery: &Delivery<Stages>, behind: Option<u32>) -> &[u32] {
    let all = &delivery.part.records[..];
    &all[..behind.and_then(|behind| all.iter().position(|&at| at == behind)).unwrap_or(all.len())]
}

/// Gives `sink` those that do not match of the packets before the record at `behind`, or all of them; `matching` are those that do.
#[cold]
fn give_others(
    sink: &mut dyn Sink,
    matching: Packets<'_>,
    behind: Option<u32>,
    scratch: &mut Vec<u8>,
) -> Result<(), End> {
    let all = all_before(matching.batch, behind);
    let (mut others, matched);
    let packets = if matching.wanted == Wanted::All {
        matched = Bits::marking(all, matching.records);
        Packets { records: all, matched: Some(&matched), ..matching }
    } else {
        let mut records = matching.records.iter().peekable();
        others = all.to_vec();
        others.retain(|at| records.next_if_eq(&at).is_none());
        Packets { records: &others, ..matching }
    };
    sink.batch(&packets, scratch).1
}

/// What is still there of the packets at `records`.
fn there(delivery: &Delivery<Stages>, records: &[u32], scratch: &mut Vec<u8>) -> Handed {
    delivery.hand_on(records, scratch, |_| Ok::<_, End>(())).0
}

/// The name of an output, as the user calls it, and where its packets go.
pub type Target = (String, Option<Box<dyn Sink>>);

/// All outputs of a run.
pub struct Outputs {
    main: Outlet,
    splits: Vec<Outlet>,
    /// Stage that the run's thread is in.
    mark: Arc<StageMark>,
    /// One could not be made: nothing more is read.
    refused: bool,
    /// Beside a measurement each output ends alone, and takes all that matches it until then.
    alone: bool,
    /// Where packets of mapped files are copied to before they are passed on.
    scratch: Vec<u8>,
}

impl core::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.reports()).finish()
    }
}

impl Outputs {
    /// The outputs with these names; without a sink packets are only counted.
    ///
    /// Beside a measurement an output that ends, is complete or cannot be made ends `alone`.
    pub(crate) fn new(main: Target, splits: Vec<Target>, alone: bool) -> Self {
        let mark = Arc::<StageMark>::default();
        let splits = splits.into_iter().enumerate().map(|(i, split)| Outlet::new(split, i + 1, &mark)).collect();
        Self { main: Outlet::new(main, 0, &mark), splits, mark, refused: false, alone, scratch: Vec::new() }
    }

    /// The mark of the stage that the run's thread is in.
    pub(crate) fn mark(&self) -> &Arc<StageMark> {
        &self.mark
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Outlet> {
        std::iter::once(&mut self.main).chain(&mut self.splits)
    }

    fn real(&self) -> impl Iterator<Item = &Outlet> {
        std::iter::once(&self.main).chain(&self.splits).filter(|outlet| outlet.is_real())
    }

    /// Whether packets go nowhere.
    pub fn are_none(&self) -> bool {
        self.real().next().is_none()
    }

    /// Whether no more packets are wanted.
    pub fn are_over(&self) -> bool {
        let all_ended = self.real().all(|outlet| outlet.ended.is_some()) && !self.are_none();
        self.refused || self.are_complete() || all_ended
    }

    /// Whether the files of `-w` are complete: packets behind them are not wanted.
    pub fn are_complete(&self) -> bool {
        self.main.is_complete()
    }

    /// Whether one of them wants other packets than those that pass.
    pub(crate) fn want_others(&self) -> bool {
        self.real().any(|outlet| outlet.needs.wanted != Wanted::Passed)
    }

    /// Whether one of them must have its packets in batches, whose bytes do not change.
    pub(crate) fn need_batches(&self) -> bool {
        self.want_others() || self.real().any(|outlet| outlet.needs.keeps)
    }

    /// Batches that outputs keep.
    pub(crate) fn kept(&self) -> usize {
        // Each output has a share of its own.
        self.real().map(|outlet| Arc::strong_count(&outlet.kept) - 1).sum()
    }

    /// Whether the main output ended before the packets did.
    pub fn has_main_ended(&self) -> bool {
        self.main.ended.is_some()
    }

    /// Whether there are files among them.
    pub fn have_files(&self) -> bool {
        self.real().any(|outlet| outlet.sink.as_ref().is_some_and(|sink| sink.is_file()))
    }

    /// Whether nobody reads any more what is written.
    pub fn are_closed(&self) -> bool {
        self.real().all(|outlet| outlet.ended == Some(Ended::Closed)) && !self.are_none()
    }

    /// Why outputs failed since the last call.
    pub(crate) fn take_faults(&mut self) -> Vec<SinkFault> {
        self.all().filter_map(|outlet| outlet.fault.take()).collect()
    }

    /// Makes the files that are not there yet. If one cannot be made, nothing more is read, unless it ends alone.
    pub(crate) fn open(&mut self) {
        let mut refused = false;
        for outlet in self.all().filter(|outlet| outlet.ended.is_none()) {
            outlet.work(|sink| sink.open());
            refused |= outlet.ended == Some(Ended::Failed);
        }
        self.refused |= refused && !self.alone;
    }

    /// Another source follows.
    pub(crate) fn new_source(&mut self) {
        self.all().filter_map(|outlet| outlet.sink.as_mut()).for_each(|sink| sink.new_source());
    }

    /// Announces sources with these layouts, and writes the headers of files.
    pub(crate) fn begin(&mut self, layouts: &[Layout]) {
        for outlet in self.all() {
            outlet.work(|sink| layouts.iter().try_for_each(|layout| sink.begin(layout)).and_then(|()| sink.start()));
        }
    }

    /// Passes on the packets of a piece. Tells of those that are not in the source any more, and what that takes from the counts.
    pub(crate) fn piece(&mut self, delivery: &Delivery<Stages>) -> (Given, Option<(Gone, Rest)>) {
        if self.refused {
            return (Given::Until(Place::default()), None);
        }
        let (part, scratch) = (&delivery.part.selected, &mut self.scratch);
        self.main.give(delivery, &part.records, None, scratch);
        // What other outputs get ends with the same packet.
        let until = (self.main.is_complete() && !self.alone).then(|| {
            let taken = self.main.handed.map_or(part.records.len(), |handed| handed.packets as usize);
            let mut place = Place { next: 0, splits: vec![0; part.splits.len()] };
            (0..taken).for_each(|_| place.pass(part, |_| ()));
            place
        });
        let behind = until.as_ref().and_then(|place| part.records.get(place.next).copied());
        let mut gone = self.main.handed.and_then(|handed| handed.gone);
        for (i, (split, found)) in self.splits.iter_mut().zip(&part.splits).enumerate() {
            let end = until.as_ref().map_or(found.records.len(), |place| place.splits[i]);
            split.give(delivery, &found.records[..end], behind, scratch);
            let lost = split.handed.and_then(|handed| handed.gone);
            // The account of the source is that of the main output.
            gone = Gone::both(gone, lost.map(|lost| Gone { packets: 0, ..lost }));
        }
        let lost = gone.map(|gone| self.lost(delivery, gone, until.as_ref()));
        (until.map_or(Given::All, Given::Until), lost)
    }

    /// What is taken from the counts of a piece of which packets are gone; with those of the main output that nobody asked for.
    #[cold]
    fn lost(&mut self, delivery: &Delivery<Stages>, gone: Gone, until: Option<&Place>) -> (Gone, Rest) {
        let (part, scratch) = (&delivery.part.selected, &mut self.scratch);
        let mut rest = Rest { splits: vec![(0, 0); part.splits.len()], ..Rest::default() };
        let mut gone = gone;
        if until.is_none() {
            let main = self.main.there(delivery, &part.records, scratch);
            if self.main.handed.is_none() {
                gone = Gone::both(Some(gone), main.gone).unwrap_or(gone);
            }
            rest.passed = part.passed.saturating_sub(main.packets);
            rest.bytes = part.bytes.saturating_sub(main.bytes);
            self.main.matched = self.main.matched.saturating_sub(rest.passed);
        }
        for (i, (split, found)) in self.splits.iter_mut().zip(&part.splits).enumerate() {
            let end = until.map_or(found.records.len(), |place| place.splits[i]);
            let there = split.there(delivery, &found.records[..end], scratch);
            let bytes = if until.is_none() { found.bytes.saturating_sub(there.bytes) } else { 0 };
            rest.splits[i] = ((end as u64).saturating_sub(there.packets), bytes);
            split.matched = split.matched.saturating_sub(rest.splits[i].0);
        }
        (gone, rest)
    }

    /// Passes on the packet `record`, which is the one at `place`, and moves that behind it.
    pub(crate) fn packet(&mut self, layout: &Layout, record: &Record<'_>, part: &Selected, place: &mut Place) -> Given {
        self.main.matched += 1;
        self.main.work(|sink| sink.packet(layout, record));
        if self.main.is_complete() && !self.alone {
            return Given::Until(place.clone());
        }
        let splits = &mut self.splits;
        // With --count splits are counted, and have no outputs.
        place.pass(part, |i| {
            if let Some(split) = splits.get_mut(i) {
                split.matched += 1;
                split.work(|sink| sink.packet(layout, record));
            }
        });
        Given::All
    }

    /// Writes out what is buffered where a reader waits for each packet.
    pub(crate) fn flush_awaited(&mut self) {
        for outlet in self.all() {
            outlet.work(|sink| if sink.is_awaited() { sink.flush() } else { Ok(()) });
        }
    }

    /// Writes out what is buffered.
    pub(crate) fn flush(&mut self) {
        self.all().for_each(|outlet| outlet.work(|sink| sink.flush()));
    }

    /// Notes what was counted at the interfaces of a source.
    pub(crate) fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        self.all().filter_map(|outlet| outlet.sink.as_mut()).for_each(|sink| sink.statistics(counts));
    }

    /// Completes all outputs. `layout` is that of the last source; without one there is nothing to write a file about.
    pub(crate) fn finish(&mut self, layout: Option<&Layout>) {
        self.all().for_each(|outlet| outlet.finish(layout));
    }

    /// Completes the sink of an output, and puts another in its place. `layout` is that of the source. Gives the name and the report of
    /// the one before.
    pub(crate) fn replace(
        &mut self,
        slot: OutputSlot,
        target: Target,
        layout: Option<&Layout>,
    ) -> Option<(String, SinkReport)> {
        self.all().nth(slot.index()).map(|outlet| outlet.replace(target, layout))
    }

    /// What became of the sinks of each output that were replaced, the main output first.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = &Replaced> {
        std::iter::once(&self.main).chain(&self.splits).map(|outlet| &outlet.replaced)
    }

    /// What the sink of each output needs, the main one first; `None` if packets are only counted.
    pub(crate) fn needs(&self) -> Vec<Option<Needs>> {
        let outlets = std::iter::once(&self.main).chain(&self.splits);
        outlets.map(|outlet| outlet.is_real().then_some(outlet.needs)).collect()
    }

    /// Packets that each output is to write, the main one first, if `matched` match for each, of `judged` that the filter judged.
    pub(crate) fn expected(&self, matched: impl Iterator<Item = u64>, judged: u64) -> Vec<u64> {
        let expected = |(outlet, matched): (&Outlet, u64)| match outlet.needs.wanted {
            Wanted::Passed => matched,
            Wanted::Rejected => judged.saturating_sub(matched),
            Wanted::All => judged,
        };
        std::iter::once(&self.main).chain(&self.splits).zip(matched).map(expected).collect()
    }

    /// Outputs that did not end before their time and wrote another number of packets than `expected`.
    pub(crate) fn discrepancies(&self, expected: &[u64]) -> Vec<Discrepancy> {
        let outlets = std::iter::once(&self.main).chain(&self.splits);
        let wrong = outlets.zip(expected).filter_map(|(outlet, &expected)| {
            let written = outlet.report()?.written;
            let expected = expected.saturating_sub(outlet.replaced.matched);
            let complete = std::ptr::eq(outlet, &self.main) && outlet.is_complete();
            // Where an output could not be made, packets were read and nobody got any.
            let unread = self.refused && outlet.needs.wanted != Wanted::Passed;
            let whole = !unread && (outlet.ended.is_none() || complete && !self.alone);
            (whole && written != expected).then(|| Discrepancy { name: outlet.name.clone(), expected, written })
        });
        self.replaced().filter_map(|replaced| replaced.discrepancy.clone()).chain(wrong).collect()
    }

    /// The outputs, the main one first: the name of each, and what its sink has done; `None` if it only counts.
    pub fn reports(&self) -> impl Iterator<Item = (&str, Option<SinkReport>)> {
        std::iter::once(&self.main).chain(&self.splits).map(|outlet| (&outlet.name[..], outlet.report()))
    }

    /// Whether there are several, so that a figure of one has to name it.
    pub fn are_several(&self) -> bool {
        self.real().nth(1).is_some()
    }
}

/// An output that wrote another number of packets than it should have: a mistake in weir.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} packets matched for {name}, and it took {written}")]
pub struct Discrepancy {
    /// As the user calls the output.
    pub name: String,
    /// Packets that it should have written.
    pub expected: u64,
    /// Packets that it wrote.
    pub written: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_pipeline::select::SplitPart;

    #[test]
    fn splits_are_told_by_their_order_and_not_by_offsets_that_ascend() {
        let split = |records: &[u32]| SplitPart { records: records.to_vec(), ..SplitPart::default() };
        let records = vec![192, 64, 0, 128, 256];
        let part = Selected { records, splits: vec![split(&[64, 128]), split(&[192, 0, 256])], ..Selected::default() };
        let mut place = Place::default();
        let mut went = Vec::new();
        for _ in 0..6 {
            place.pass(&part, |i| went.push(i));
        }
        assert_eq!(went, [1, 0, 1, 0, 1]);
        assert_eq!((place.next, place.splits), (5, vec![2, 3]));
    }
}
