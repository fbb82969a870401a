//! The outputs of a run: the distribution of a batch's packets, the outputs that still take packets, and their reports.
//!
//! If an output ends (its reader closed the pipe, its disk is full), it takes no more packets, and
//! the others get all of theirs. Without a measurement next to them, the run is over once no output
//! is left, or once the files of `-w` are complete (`-W`).

use crate::output_changes::OutputSlot;
use crate::sink::{
    End, Loss, Lost, Needs, Packets, Sink, SinkFault, SinkReport, StageCounts, Wanted,
};
use crate::stage_mark::{Stage, StageMark};
use std::sync::Arc;
use std::time::Instant;
use weir_packet::savefile::{Interface, Layout, Statistics};
use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::reader::Uncounted;
use weir_pipeline::stages::{Columns, Stages};

/// Reason for which an output takes no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The reader of the output closed the pipe.
    Closed,
    /// All files of the output are written.
    Complete,
    /// The output failed; the error is reported once.
    Failed,
}

/// An output.
struct Outlet {
    /// Number among all outputs, the main output first.
    number: usize,
    mark: Arc<StageMark>,
    /// Name as the user wrote it.
    name: String,
    /// Sink of the output; `None` if packets are only counted.
    sink: Option<Box<dyn Sink>>,
    needs: Needs,
    /// Shared by the kept batches.
    kept: Arc<()>,
    ended: Option<Ended>,
    /// Error of the output, until it is reported.
    fault: Option<SinkFault>,
    /// Number of wanted packets while this sink was in place.
    judged: u64,
    /// Number of these packets after an early end.
    missed: u64,
    /// Sums over the replaced sinks.
    replaced: Replaced,
}

/// Sums over the replaced sinks of an output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced {
    /// Number of replaced sinks.
    pub sinks: u64,
    /// Counts of these sinks.
    pub counts: StageCounts,
    /// Whether one of them ended before packets that the ledger counts.
    are_partial: bool,
    /// The first sink whose counts did not add up.
    discrepancy: Option<Discrepancy>,
}

impl Outlet {
    fn new((name, sink): Target, number: usize, mark: &Arc<StageMark>) -> Self {
        let needs = sink
            .as_ref()
            .map_or_else(Needs::default, |sink| sink.needs());
        let (kept, replaced) = (Arc::default(), Replaced::default());
        let mark = Arc::clone(mark);
        Self {
            number,
            mark,
            name,
            sink,
            needs,
            kept,
            ended: None,
            fault: None,
            judged: 0,
            missed: 0,
            replaced,
        }
    }

    /// Completes the sink, and puts another in its place. Returns the name, the report and the counts of the old sink.
    fn replace(
        &mut self,
        (name, sink): Target,
        layout: Option<&Layout>,
    ) -> (String, SinkReport, StageCounts) {
        self.finish(layout);
        let (report, counts) = (self.report().unwrap_or_default(), self.counts());
        self.replaced.sinks += 1;
        self.replaced.counts.add(&counts);
        self.replaced.are_partial |= match self.ended {
            Some(Ended::Complete) => true,
            Some(Ended::Closed | Ended::Failed) => self.needs.wanted != Wanted::Matching,
            None => false,
        };
        let wrong = self.discrepancy(counts.clone());
        self.replaced.discrepancy = self.replaced.discrepancy.take().or(wrong);
        (self.judged, self.missed, self.ended) = (0, 0, None);
        self.sink = sink;
        let name = std::mem::replace(&mut self.name, name);
        (name, report, counts)
    }

    /// Completes the output.
    fn finish(&mut self, layout: Option<&Layout>) {
        // Packets taken before one that did not fit are good, and are still completed.
        let ended = self.ended.is_some();
        let stage = Stage::Output(self.number);
        let result = self.sink.as_mut().map_or(Ok(()), |sink| {
            self.mark.during(stage, || sink.finish(layout, ended))
        });
        if let Err(end) = result
            && !ended
        {
            self.end(end);
        }
    }

    /// Whether the output has a sink.
    fn is_real(&self) -> bool {
        self.sink.is_some()
    }

    fn report(&self) -> Option<SinkReport> {
        self.sink.as_ref().map(|sink| sink.report())
    }

    /// Returns the counts of the sink that is in place.
    fn counts(&self) -> StageCounts {
        let SinkReport {
            taken,
            pieces,
            lost,
            ..
        } = self.report().unwrap_or_default();
        let mut counts = StageCounts {
            judged: self.judged + pieces,
            taken,
            lost,
        };
        let why = match self.ended {
            Some(Ended::Closed) => Loss::Closed,
            _ => Loss::Failed,
        };
        counts.lose(Lost {
            packets: self.missed,
            why,
        });
        counts
    }

    /// Returns the counts of the sink in place if they do not add up.
    fn discrepancy(&self, counts: StageCounts) -> Option<Discrepancy> {
        (self.is_real() && !counts.add_up()).then(|| Discrepancy {
            name: self.name.clone(),
            counts,
        })
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
            && let Err(end) = self
                .mark
                .during(Stage::Output(self.number), || work(sink.as_mut()))
        {
            self.end(end);
        }
    }

    /// Whether all files of the output are written, so that later packets are not wanted.
    fn is_complete(&self) -> bool {
        self.needs.wanted == Wanted::Matching && self.ended == Some(Ended::Complete)
    }

    /// Gives the sink the packets it wants among the first `end` packets of a batch; packets of
    /// `mask` match. Returns the number of packets taken.
    fn give(
        &mut self,
        batch: &Delivery<Stages>,
        mask: &Bits,
        end: usize,
        scratch: &mut Vec<u32>,
    ) -> u64 {
        let wanted = self.needs.wanted;
        let others = (wanted != Wanted::Matching).then(|| others(batch, mask, end, wanted));
        let Some(sink) = self.sink.as_mut() else {
            return 0;
        };
        let records = match &others {
            Some((records, _)) => records,
            None => picked(&batch.part.records, mask, end, scratch),
        };
        let all = records.len() as u64;
        match self.ended {
            None => {}
            Some(Ended::Complete) => return 0,
            Some(Ended::Closed | Ended::Failed) => {
                (self.judged, self.missed) = (self.judged + all, self.missed + all);
                return 0;
            }
        }
        let matched = others.as_ref().map(|(_, matched)| matched);
        let packets = Packets {
            batch,
            records,
            wanted,
            matched: matched.filter(|_| wanted == Wanted::All),
            kept: &self.kept,
        };
        let (taken, result) = self
            .mark
            .during(Stage::Output(self.number), || sink.batch(&packets));
        if let Err(end) = result {
            self.end(end);
        }
        // After the last file, no packet is wanted.
        self.judged += match self.ended {
            Some(Ended::Complete) => taken,
            _ => all,
        };
        if matches!(self.ended, Some(Ended::Closed | Ended::Failed)) {
            self.missed += all - taken;
        }
        taken
    }
}

/// Returns the offsets of the packets of `mask` among the first `end` packets. **Cost**: nothing if
/// it has all of them.
fn picked<'a>(records: &'a [u32], mask: &Bits, end: usize, scratch: &'a mut Vec<u32>) -> &'a [u32] {
    if mask.count_before(end) == end as u64 {
        return &records[..end];
    }
    scratch.clear();
    scratch.extend(
        mask.numbers()
            .take_while(|number| *number < end)
            .map(|number| records[number]),
    );
    scratch
}

/// Returns the offsets of the first `end` packets without the packets of `mask`, or of all, with
/// the mask of matching packets. Control packets are for no output.
#[cold]
fn others(batch: &Delivery<Stages>, mask: &Bits, end: usize, wanted: Wanted) -> (Vec<u32>, Bits) {
    let (mut records, mut matched) = (Vec::new(), Bits::default());
    for (number, &at) in batch.part.records[..end].iter().enumerate() {
        let matches = mask.has(number);
        if (wanted == Wanted::All || !matches) && !batch.part.control.has(number) {
            records.push(at);
            matched.push(u64::from(matches), 1);
        }
    }
    (records, matched)
}

/// Name of an output as the user wrote it, and its sink.
pub type Target = (String, Option<Box<dyn Sink>>);

/// All outputs of a run.
pub struct Outputs {
    main: Outlet,
    splits: Vec<Outlet>,
    /// Mark of the current stage of the run's thread.
    mark: Arc<StageMark>,
    /// Whether an output could not be made, so that no more packets are read.
    refused: bool,
    /// Whether each output ends alone, as next to a measurement, and takes all its matching packets
    /// until then.
    alone: bool,
    /// Offsets of the records that an output is handed.
    scratch: Vec<u32>,
}

impl core::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.reports()).finish()
    }
}

impl Outputs {
    /// Makes the outputs with these names; without a sink, packets are only counted.
    ///
    /// Next to a measurement, an output that ends, is complete or cannot be made ends `alone`.
    pub(crate) fn new(main: Target, splits: Vec<Target>, alone: bool) -> Self {
        let mark = Arc::<StageMark>::default();
        let splits = splits
            .into_iter()
            .enumerate()
            .map(|(i, split)| Outlet::new(split, i + 1, &mark))
            .collect();
        Self {
            main: Outlet::new(main, 0, &mark),
            splits,
            mark,
            refused: false,
            alone,
            scratch: Vec::new(),
        }
    }

    /// Returns the mark of the current stage of the run's thread.
    pub(crate) fn mark(&self) -> &Arc<StageMark> {
        &self.mark
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Outlet> {
        std::iter::once(&mut self.main).chain(&mut self.splits)
    }

    fn real(&self) -> impl Iterator<Item = &Outlet> {
        std::iter::once(&self.main)
            .chain(&self.splits)
            .filter(|outlet| outlet.is_real())
    }

    /// Whether no output has a sink.
    pub fn are_none(&self) -> bool {
        self.real().next().is_none()
    }

    /// Whether no more packets are wanted.
    pub fn are_over(&self) -> bool {
        self.refused || self.are_complete() || self.have_all_ended()
    }

    /// Whether there are outputs, and all of them have ended. A merge asks before each packet, and the main output nearly always
    /// has the answer.
    #[inline]
    fn have_all_ended(&self) -> bool {
        let takes_more = self.main.is_real() && self.main.ended.is_none();
        !takes_more && !self.are_none() && self.real().all(|outlet| outlet.ended.is_some())
    }

    /// Whether the main output is complete, and the run with it.
    fn ends_with_main(&self) -> bool {
        self.main.is_complete() && !self.alone
    }

    /// Whether the files of `-w` are complete, so that later packets are not wanted.
    pub fn are_complete(&self) -> bool {
        self.main.is_complete()
    }

    /// Whether an output wants other packets than the passed ones.
    pub(crate) fn want_others(&self) -> bool {
        self.real()
            .any(|outlet| outlet.needs.wanted != Wanted::Matching)
    }

    /// Whether the main output may be complete before its source ends.
    pub(crate) fn may_end(&self) -> bool {
        self.main.needs.ends
    }

    /// Returns the number of batches that outputs keep.
    pub(crate) fn kept(&self) -> usize {
        // Each output holds one share itself.
        self.real()
            .map(|outlet| Arc::strong_count(&outlet.kept) - 1)
            .sum()
    }

    /// Whether the main output ended before the last packet.
    pub fn has_main_ended(&self) -> bool {
        self.main.ended.is_some()
    }

    /// Whether there are files among the outputs.
    pub fn have_files(&self) -> bool {
        self.real()
            .any(|outlet| outlet.sink.as_ref().is_some_and(|sink| sink.is_file()))
    }

    /// Whether the readers of all outputs are gone.
    pub fn are_closed(&self) -> bool {
        self.real()
            .all(|outlet| outlet.ended == Some(Ended::Closed))
            && !self.are_none()
    }

    /// Takes the errors of outputs since the last call.
    pub(crate) fn take_faults(&mut self) -> Vec<SinkFault> {
        self.all()
            .filter_map(|outlet| outlet.fault.take())
            .collect()
    }

    /// Makes the files that do not exist yet. If a file cannot be made, no more packets are read, unless its output ends alone.
    pub(crate) fn open(&mut self) {
        let mut refused = false;
        for outlet in self.all().filter(|outlet| outlet.ended.is_none()) {
            outlet.work(|sink| sink.open());
            refused |= outlet.ended == Some(Ended::Failed);
        }
        self.refused |= refused && !self.alone;
    }

    /// Whether a file could not be made, so that no packet is wanted.
    pub(crate) fn are_refused(&self) -> bool {
        self.refused
    }

    /// Begins a new source.
    pub(crate) fn new_source(&mut self) {
        let tell = |outlet: &mut Outlet| outlet.sink.iter_mut().for_each(|sink| sink.new_source());
        tell(&mut self.main);
        self.splits.iter_mut().for_each(tell);
    }

    /// Announces sources with these layouts, and writes the headers of files.
    pub(crate) fn begin(&mut self, layouts: &[Layout]) {
        let mut refused = false;
        for outlet in self.all().filter(|outlet| outlet.ended.is_none()) {
            outlet.work(|sink| {
                layouts
                    .iter()
                    .try_for_each(|layout| sink.begin(layout))
                    .and_then(|()| sink.start())
            });
            refused |= outlet.ended == Some(Ended::Failed);
        }
        self.refused |= refused && !self.alone;
    }

    /// Tells all outputs the steady time during a capture.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.all()
            .for_each(|outlet| outlet.work(|sink| sink.pass_time(now)));
    }

    /// Gives the outputs their packets of a batch. Returns the packet in front of which the files of `-w` are complete.
    pub(crate) fn take(&mut self, batch: &Delivery<Stages>) -> Option<usize> {
        let Columns {
            records,
            passed,
            splits,
            ..
        } = &batch.part;
        let all = records.len();
        if self.refused {
            return Some(batch.part.next_passed(0).unwrap_or(all));
        }
        let taken = self.main.give(batch, passed, all, &mut self.scratch);
        // The packets for the other outputs end with the same packet.
        let until = self
            .ends_with_main()
            .then(|| passed.numbers().nth(taken as usize).unwrap_or(all));
        for (split, mask) in self.splits.iter_mut().zip(splits) {
            split.give(batch, mask, until.unwrap_or(all), &mut self.scratch);
        }
        until
    }

    /// Writes out the buffered packets of outputs whose reader waits for each packet.
    pub(crate) fn flush_awaited(&mut self) {
        for outlet in self.all() {
            outlet.work(|sink| {
                if sink.is_awaited() {
                    sink.flush()
                } else {
                    Ok(())
                }
            });
        }
    }

    /// Writes out the buffered packets.
    pub(crate) fn flush(&mut self) {
        self.all()
            .for_each(|outlet| outlet.work(|sink| sink.flush()));
    }

    /// Notes what the captures have counted so far.
    pub(crate) fn counted_so_far(&mut self, counts: &[(Interface, Statistics)]) {
        self.all()
            .filter_map(|outlet| outlet.sink.as_mut())
            .for_each(|sink| sink.counted_so_far(counts));
    }

    /// Notes the interface statistics of a source.
    pub(crate) fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        self.all()
            .filter_map(|outlet| outlet.sink.as_mut())
            .for_each(|sink| sink.statistics(counts));
    }

    /// Notes the comments of the interface statistics of a source.
    pub(crate) fn remarks(&mut self, remarks: &[String]) {
        self.all()
            .filter_map(|outlet| outlet.sink.as_mut())
            .for_each(|sink| sink.remarks(remarks));
    }

    /// Notes the times for which a source does not tell what was lost.
    pub(crate) fn uncounted(&mut self, times: &[Uncounted]) {
        self.all()
            .filter_map(|outlet| outlet.sink.as_mut())
            .for_each(|sink| sink.uncounted(times));
    }

    /// Ends a source, whose layout is complete now.
    pub(crate) fn end_source(&mut self, layout: &Layout) {
        self.all()
            .filter_map(|outlet| outlet.sink.as_mut())
            .for_each(|sink| sink.end_source(layout));
    }

    /// Completes all outputs. `layout` is the layout of the last source; without one, no file is
    /// written.
    pub(crate) fn finish(&mut self, layout: Option<&Layout>) {
        self.all().for_each(|outlet| outlet.finish(layout));
    }

    /// Completes the sink of an output, and puts another in its place. `layout` is the layout of
    /// the source. Returns the name and the report of the old sink.
    pub(crate) fn replace(
        &mut self,
        slot: OutputSlot,
        target: Target,
        layout: Option<&Layout>,
    ) -> Option<(String, SinkReport, StageCounts)> {
        self.all()
            .nth(slot.index())
            .map(|outlet| outlet.replace(target, layout))
    }

    /// Has an output begin its next file. Returns its name.
    pub(crate) fn next_file(&mut self, slot: OutputSlot) -> Option<String> {
        let outlet = self.all().nth(slot.index())?;
        outlet.work(|sink| sink.next_file());
        Some(outlet.name.clone())
    }

    /// Returns the sums over the replaced sinks of each output, the main output first.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = &Replaced> {
        std::iter::once(&self.main)
            .chain(&self.splits)
            .map(|outlet| &outlet.replaced)
    }

    /// Returns the needs of the sink of each output, the main output first; `None` if packets are only counted.
    pub(crate) fn needs(&self) -> Vec<Option<Needs>> {
        let outlets = std::iter::once(&self.main).chain(&self.splits);
        outlets
            .map(|outlet| outlet.is_real().then_some(outlet.needs))
            .collect()
    }

    /// Returns the counts of the sink of each output, the main output first.
    pub fn counts(&self) -> impl Iterator<Item = StageCounts> {
        std::iter::once(&self.main)
            .chain(&self.splits)
            .map(Outlet::counts)
    }

    /// Returns the number of sinks that each output has replaced, and the sum of the counts of all its sinks; the main output first.
    pub fn sums(&self) -> impl Iterator<Item = (u64, StageCounts)> {
        let outlets = std::iter::once(&self.main).chain(&self.splits);
        outlets.map(|outlet| {
            let mut counts = outlet.replaced.counts.clone();
            counts.add(&outlet.counts());
            (outlet.replaced.sinks, counts)
        })
    }

    /// Returns the counts of the main output and of the outputs that it replaced, if there is one.
    pub(crate) fn main_counts(&self) -> Option<StageCounts> {
        self.main.is_real().then(|| {
            let mut counts = self.main.replaced.counts.clone();
            counts.add(&self.main.counts());
            counts
        })
    }

    /// Returns the sum of the counts of the other outputs and of the outputs that they replaced, if
    /// there are any.
    pub(crate) fn other_counts(&self) -> Option<StageCounts> {
        let mut real = self
            .splits
            .iter()
            .filter(|outlet| outlet.is_real())
            .peekable();
        real.peek()?;
        let mut sum = StageCounts::default();
        for outlet in real {
            sum.add(&outlet.replaced.counts);
            sum.add(&outlet.counts());
        }
        Some(sum)
    }

    /// Returns the outputs whose counts do not add up, or that were not handed the packets that the ledger says: `matched` of each, the
    /// main output first, of `judged` by the filter.
    pub(crate) fn discrepancies(
        &self,
        matched: impl Iterator<Item = u64>,
        judged: u64,
    ) -> Vec<Discrepancy> {
        let outlets = std::iter::once(&self.main).chain(&self.splits);
        let wrong = outlets.zip(matched).filter_map(|(outlet, matched)| {
            let expected = match outlet.needs.wanted {
                Wanted::Matching => matched,
                Wanted::Rejected => judged.saturating_sub(matched),
                Wanted::All => judged,
            };
            let mut counts = outlet.counts();
            let matching = outlet.needs.wanted == Wanted::Matching;
            // Of a run that ends with the main output, later packets are in no count. Rejected packets are read and counted when no
            // output takes them any more, or could not be made.
            let is_whole = match outlet.ended {
                Some(Ended::Complete) => std::ptr::eq(outlet, &self.main) && self.ends_with_main(),
                Some(Ended::Closed | Ended::Failed) => matching,
                None => matching || !self.refused,
            };
            if is_whole && !outlet.replaced.are_partial {
                let of_this = expected.saturating_sub(outlet.replaced.counts.judged);
                counts.judged = counts.judged - outlet.judged + of_this;
            }
            outlet.discrepancy(counts)
        });
        self.replaced()
            .filter_map(|replaced| replaced.discrepancy.clone())
            .chain(wrong)
            .collect()
    }

    /// Returns the name of each output and the report of its sink, the main output first; `None` if packets are only counted.
    pub fn reports(&self) -> impl Iterator<Item = (&str, Option<SinkReport>)> {
        std::iter::once(&self.main)
            .chain(&self.splits)
            .map(|outlet| (&outlet.name[..], outlet.report()))
    }

    /// Whether there are several outputs, so that a figure of one must name it.
    pub fn are_several(&self) -> bool {
        self.real().nth(1).is_some()
    }
}

/// An output whose counts do not add up, which is a mistake in weir.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} packets matched for {name}, {} were taken, and {} lost", .counts.judged, .counts.taken, .counts.lost())]
pub struct Discrepancy {
    /// Name of the output as the user wrote it.
    pub name: String,
    /// The counts.
    pub counts: StageCounts,
}
