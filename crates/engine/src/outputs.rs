//! The outputs of a run: the distribution of a batch's packets, the outputs that still take packets, and their reports.
//!
//! If an output ends (its reader closed the pipe, its disk is full), it takes no more packets, and the others get all of theirs.
//! Without a measurement beside them, the run is over once no output is left, or once the files of `-w` are complete (`-W`).

use crate::output_changes::OutputSlot;
use crate::sink::{End, Needs, Packets, Sink, SinkFault, SinkReport, Wanted};
use crate::stage_mark::{Stage, StageMark};
use std::sync::Arc;
use std::time::Instant;
use weir_packet::savefile::{Interface, Layout, Record, Statistics};
use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::handed::{Gone, Handed};
use weir_pipeline::reader::Uncounted;
use weir_pipeline::select::{Misfit, Selected};
use weir_pipeline::stages::{Columns, Stages};

/// Packets of a batch that no output takes any more, counted from its masks.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Number of packets.
    pub received: u64,
    /// Number of packets that pass.
    pub passed: u64,
    /// Number of packets that the filter rejected, and of obeyed control packets.
    pub filtered: u64,
    /// Number of packets that a firewall denied.
    pub denied: u64,
    /// Number of control packets that a firewall obeyed, also part of `filtered`.
    pub controls: u64,
    /// Wire bytes of the packets that pass.
    pub bytes: u64,
    /// Packets and wire bytes of each split.
    pub splits: Vec<(u64, u64)>,
}

impl Rest {
    /// Adds the packets of a batch that pass.
    pub fn add_passed(&mut self, part: &Selected) {
        self.passed += part.passed;
        self.bytes += part.bytes;
        self.splits
            .resize(self.splits.len().max(part.splits.len()), (0, 0));
        for (sums, split) in self.splits.iter_mut().zip(&part.splits) {
            *sums = (sums.0 + split.passed, sums.1 + split.bytes);
        }
    }

    /// Counts the packets of `delivery` from number `from` on.
    pub fn of(delivery: &Delivery<Stages>, from: usize) -> Self {
        let Columns {
            records,
            passed,
            splits,
            matched,
            control,
            ..
        } = &delivery.part;
        let behind = |mask: &Bits| mask.count_ones() - mask.count_before(from);
        let received = (records.len() - from.min(records.len())) as u64;
        let matched = if matched.is_empty() {
            behind(passed)
        } else {
            behind(matched)
        };
        let (controls, passes) = (behind(control), behind(passed));
        let mut rest = Self {
            received,
            passed: passes,
            filtered: received - matched + controls,
            denied: matched - passes - controls,
            controls,
            bytes: 0,
            splits: splits.iter().map(|mask| (behind(mask), 0)).collect(),
        };
        let numbers: Vec<usize> = passed.numbers_from(from).collect();
        let at: Vec<u32> = numbers.iter().map(|&number| records[number]).collect();
        delivery
            .current
            .layout
            .records(delivery.view.content(), &at, |i, record| {
                let Some(record) = record else { return };
                let wire = u64::from(record.frame.wire_len);
                rest.bytes += wire;
                for (sums, mask) in rest.splits.iter_mut().zip(splits) {
                    sums.1 += if mask.has(numbers[i]) { wire } else { 0 };
                }
            });
        rest
    }

    /// Takes these packets, which are those from number `from` on, out of a batch and out of its sums. Returns the number of those with
    /// more bytes than on the wire, which the reader has counted too.
    pub fn cut_off(&self, delivery: &mut Delivery<Stages>, from: usize) -> u64 {
        let (part, layout) = (&mut delivery.part, &delivery.current.layout);
        let behind = &part.records[from..];
        let passed = match part.matched.is_empty() {
            true => &part.passed,
            false => &part.matched,
        };
        let (misfits, mut longer) = (&mut part.selected.misfits, 0);
        layout.records(delivery.view.content(), behind, |i, record| {
            let Some(record) = record else { return };
            longer += u64::from(record.frame.data.len() > record.frame.wire_len as usize);
            let link = layout.interfaces[record.frame.interface as usize].link;
            // A split judges what the filter passes.
            let is_of = |misfit: &&mut Misfit| {
                misfit.link == link && (misfit.split.is_none() || passed.has(from + i))
            };
            misfits
                .iter_mut()
                .filter(is_of)
                .for_each(|misfit| misfit.packets = misfit.packets.saturating_sub(1));
        });
        part.records.truncate(from);
        let masks = [&mut part.passed, &mut part.matched, &mut part.control];
        masks
            .into_iter()
            .chain(&mut part.splits)
            .for_each(|mask| mask.truncate(from));
        let sums = &mut part.selected;
        sums.passed -= self.passed;
        sums.filtered -= self.filtered - self.controls;
        sums.denied -= self.denied;
        sums.controls -= self.controls;
        // Another process may have changed the lengths in a mapped file since they were added up.
        sums.bytes = sums.bytes.saturating_sub(self.bytes);
        for (split, less) in sums.splits.iter_mut().zip(&self.splits) {
            split.passed -= less.0;
            split.bytes = split.bytes.saturating_sub(less.1);
        }
        sums.misfits.retain(|misfit| misfit.packets > 0);
        longer
    }
}

/// Packets that the outputs took.
#[derive(Debug)]
pub(crate) enum Given {
    /// All packets, as far as outputs are left.
    All,
    /// Packets before this number of the batch: the files of `-w` are complete.
    Until(usize),
    /// Not all packets, because a packet is no longer in the source.
    Changed,
}

/// Reason for which an output takes no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The reader of the output closed the pipe.
    Closed,
    /// All files of the output are written.
    Complete,
    /// The output failed; the fault is reported once.
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
    /// Fault of the output, until it is reported.
    fault: Option<SinkFault>,
    /// Packets taken of the last piece, if the sink was handed all of them.
    handed: Option<Handed>,
    /// Number of wanted packets while this sink was in place.
    matched: u64,
    /// Sums over the replaced sinks.
    replaced: Replaced,
}

/// Sums over the replaced sinks of an output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced {
    /// Number of replaced sinks.
    pub sinks: u64,
    /// Number of wanted packets while these sinks were in place.
    pub matched: u64,
    /// Number of packets that these sinks wrote.
    pub written: u64,
    /// The first sink that did not end early but wrote a wrong number of packets.
    discrepancy: Option<Discrepancy>,
}

impl Outlet {
    fn new((name, sink): Target, number: usize, mark: &Arc<StageMark>) -> Self {
        let needs = sink
            .as_ref()
            .map_or_else(Needs::default, |sink| Needs::of(sink.as_ref()));
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
            handed: None,
            matched: 0,
            replaced,
        }
    }

    /// Completes the sink, and puts another in its place. Returns the name and the report of the old sink.
    fn replace(&mut self, (name, sink): Target, layout: Option<&Layout>) -> (String, SinkReport) {
        self.finish(layout);
        let report = self.report().unwrap_or_default();
        let (name, matched) = (
            std::mem::replace(&mut self.name, name),
            std::mem::take(&mut self.matched),
        );
        self.sink = sink;
        if self.ended.take().is_none()
            && report.written != matched
            && self.replaced.discrepancy.is_none()
        {
            let (name, written) = (name.clone(), report.written);
            self.replaced.discrepancy = Some(Discrepancy {
                name,
                expected: matched,
                written,
            });
        }
        self.replaced.sinks += 1;
        self.replaced.matched += matched;
        self.replaced.written += report.written;
        (name, report)
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
        self.needs.wanted == Wanted::Passed && self.ended == Some(Ended::Complete)
    }

    /// Hands the sink the packets it wants of the first `end` ones of a batch; those of `mask` match. The count of packets taken
    /// stays in `handed`, unless the output has ended or wants other packets.
    fn give(
        &mut self,
        delivery: &Delivery<Stages>,
        mask: &Bits,
        end: usize,
        scratch: &mut Scratch,
    ) {
        self.handed = None;
        if self.needs.wanted != Wanted::Passed {
            return self.give_others(delivery, mask, end, scratch);
        }
        self.matched += mask.count_before(end);
        let Some(sink) = self.sink.as_mut().filter(|_| self.ended.is_none()) else {
            return;
        };
        let records = picked(&delivery.part.records, mask, end, &mut scratch.records);
        let packets = Packets {
            batch: delivery,
            records,
            wanted: Wanted::Passed,
            matched: None,
            kept: &self.kept,
        };
        let (handed, result) = self.mark.during(Stage::Output(self.number), || {
            sink.batch(&packets, &mut scratch.frame)
        });
        if let Err(end) = result {
            self.end(end);
        }
        self.handed = Some(handed).filter(|_| matches!(self.ended, None | Some(Ended::Complete)));
    }

    /// Hands the sink those of the first `end` packets that do not match, or all of them; those of `mask` match. Control packets
    /// are for no output.
    #[cold]
    fn give_others(
        &mut self,
        delivery: &Delivery<Stages>,
        mask: &Bits,
        end: usize,
        scratch: &mut Scratch,
    ) {
        let (mut records, mut matched) = (Vec::new(), Bits::default());
        for (number, &at) in delivery.part.records[..end].iter().enumerate() {
            let matches = mask.has(number);
            if (self.needs.wanted == Wanted::All || !matches) && !delivery.part.control.has(number)
            {
                records.push(at);
                matched.push(u64::from(matches), 1);
            }
        }
        self.matched += records.len() as u64;
        let Some(sink) = self.sink.as_mut().filter(|_| self.ended.is_none()) else {
            return;
        };
        let (wanted, matched) = (
            self.needs.wanted,
            Some(&matched).filter(|_| self.needs.wanted == Wanted::All),
        );
        let packets = Packets {
            batch: delivery,
            records: &records,
            wanted,
            matched,
            kept: &self.kept,
        };
        let stage = Stage::Output(self.number);
        if let Err(end) = self
            .mark
            .during(stage, || sink.batch(&packets, &mut scratch.frame))
            .1
        {
            self.end(end);
        }
    }

    /// Returns the packets and wire bytes taken of the last batch. If none were handed over, returns those of `mask` among the first
    /// `end` packets that are still in the source.
    fn there(
        &self,
        delivery: &Delivery<Stages>,
        mask: &Bits,
        end: usize,
        scratch: &mut Scratch,
    ) -> Handed {
        self.handed.unwrap_or_else(|| {
            let records = picked(&delivery.part.records, mask, end, &mut scratch.records);
            delivery
                .hand_on(records, &mut scratch.frame, |_| Ok::<_, End>(()))
                .0
        })
    }
}

/// Buffers for the packets that an output is handed.
#[derive(Default)]
struct Scratch {
    /// Offsets of the records.
    records: Vec<u32>,
    /// A packet of a mapped file, which is copied before it is passed on.
    frame: Vec<u8>,
}

/// Returns the offsets of those of the first `end` packets that `mask` has. **Cost**: nothing if it has all of them.
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
    /// Whether each output ends alone, as beside a measurement, and takes all its matching packets until then.
    alone: bool,
    scratch: Scratch,
}

impl core::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.reports()).finish()
    }
}

impl Outputs {
    /// Makes the outputs with these names; without a sink, packets are only counted.
    ///
    /// Beside a measurement, an output that ends, is complete or cannot be made ends `alone`.
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
            scratch: Scratch::default(),
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

    /// Whether the files of `-w` are complete, so that later packets are not wanted.
    pub fn are_complete(&self) -> bool {
        self.main.is_complete()
    }

    /// Whether an output wants other packets than the passed ones.
    pub(crate) fn want_others(&self) -> bool {
        self.real()
            .any(|outlet| outlet.needs.wanted != Wanted::Passed)
    }

    /// Whether an output needs its packets in batches, whose bytes do not change.
    pub(crate) fn need_batches(&self) -> bool {
        self.want_others() || self.real().any(|outlet| outlet.needs.keeps)
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

    /// Takes the faults of outputs since the last call.
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

    /// Passes on the packets of a piece. Returns the packets that are no longer in the source, and the numbers to take from the
    /// counts.
    pub(crate) fn piece(&mut self, delivery: &Delivery<Stages>) -> (Given, Option<(Gone, Rest)>) {
        if self.refused {
            return (
                Given::Until(
                    delivery
                        .part
                        .next_passed(0)
                        .unwrap_or(delivery.part.records.len()),
                ),
                None,
            );
        }
        let Columns {
            records,
            passed,
            splits,
            ..
        } = &delivery.part;
        let (all, scratch) = (records.len(), &mut self.scratch);
        self.main.give(delivery, passed, all, scratch);
        // The packets for the other outputs end with the same packet.
        let until = (self.main.is_complete() && !self.alone).then(|| {
            let taken = self
                .main
                .handed
                .map_or(all, |handed| handed.packets as usize);
            passed.numbers().nth(taken).unwrap_or(all)
        });
        let mut gone = self.main.handed.and_then(|handed| handed.gone);
        for (split, mask) in self.splits.iter_mut().zip(splits) {
            split.give(delivery, mask, until.unwrap_or(all), scratch);
            let lost = split.handed.and_then(|handed| handed.gone);
            // The account of the source follows the main output.
            gone = Gone::both(gone, lost.map(|lost| Gone { packets: 0, ..lost }));
        }
        let lost = gone.map(|gone| self.lost(delivery, gone, until));
        (until.map_or(Given::All, Given::Until), lost)
    }

    /// Returns the numbers to take from the counts of a piece with gone packets, including packets of a main output that was not
    /// handed any.
    #[cold]
    fn lost(
        &mut self,
        delivery: &Delivery<Stages>,
        gone: Gone,
        until: Option<usize>,
    ) -> (Gone, Rest) {
        let Columns {
            records,
            passed,
            splits,
            selected,
            ..
        } = &delivery.part;
        let (all, scratch) = (records.len(), &mut self.scratch);
        let mut rest = Rest {
            splits: vec![(0, 0); splits.len()],
            ..Rest::default()
        };
        let mut gone = gone;
        if until.is_none() {
            let main = self.main.there(delivery, passed, all, scratch);
            if self.main.handed.is_none() {
                gone = Gone::both(Some(gone), main.gone).unwrap_or(gone);
            }
            rest.passed = selected.passed.saturating_sub(main.packets);
            rest.bytes = selected.bytes.saturating_sub(main.bytes);
            self.main.matched = self.main.matched.saturating_sub(rest.passed);
        }
        for (i, (split, mask)) in self.splits.iter_mut().zip(splits).enumerate() {
            let end = until.unwrap_or(all);
            let there = split.there(delivery, mask, end, scratch);
            let bytes = if until.is_none() {
                selected.splits[i].bytes.saturating_sub(there.bytes)
            } else {
                0
            };
            rest.splits[i] = (mask.count_before(end).saturating_sub(there.packets), bytes);
            split.matched = split.matched.saturating_sub(rest.splits[i].0);
        }
        (gone, rest)
    }

    /// Passes on the packet `record`, number `number` of its batch.
    pub(crate) fn packet(
        &mut self,
        layout: &Layout,
        record: &Record<'_>,
        part: &Columns,
        number: usize,
    ) -> Given {
        self.main.matched += 1;
        self.main.work(|sink| sink.packet(layout, record));
        if self.main.is_complete() && !self.alone {
            return Given::Until(number);
        }
        // With --count, splits are counted, and have no outputs.
        for (split, mask) in self.splits.iter_mut().zip(&part.splits) {
            if mask.has(number) {
                split.matched += 1;
                split.work(|sink| sink.packet(layout, record));
            }
        }
        Given::All
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

    /// Completes all outputs. `layout` is that of the last source; without one, no file is written.
    pub(crate) fn finish(&mut self, layout: Option<&Layout>) {
        self.all().for_each(|outlet| outlet.finish(layout));
    }

    /// Completes the sink of an output, and puts another in its place. `layout` is that of the source. Returns the name and the
    /// report of the old sink.
    pub(crate) fn replace(
        &mut self,
        slot: OutputSlot,
        target: Target,
        layout: Option<&Layout>,
    ) -> Option<(String, SinkReport)> {
        self.all()
            .nth(slot.index())
            .map(|outlet| outlet.replace(target, layout))
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

    /// Returns the number of packets that each output must write, the main output first. `matched` are the numbers of matching
    /// packets, `judged` is the number that the filter judged.
    pub(crate) fn expected(&self, matched: impl Iterator<Item = u64>, judged: u64) -> Vec<u64> {
        let expected = |(outlet, matched): (&Outlet, u64)| match outlet.needs.wanted {
            Wanted::Passed => matched,
            Wanted::Rejected => judged.saturating_sub(matched),
            Wanted::All => judged,
        };
        std::iter::once(&self.main)
            .chain(&self.splits)
            .zip(matched)
            .map(expected)
            .collect()
    }

    /// Returns the outputs that did not end early but wrote another number of packets than `expected`.
    pub(crate) fn discrepancies(&self, expected: &[u64]) -> Vec<Discrepancy> {
        let outlets = std::iter::once(&self.main).chain(&self.splits);
        let wrong = outlets.zip(expected).filter_map(|(outlet, &expected)| {
            let written = outlet.report()?.written;
            let expected = expected.saturating_sub(outlet.replaced.matched);
            let complete = std::ptr::eq(outlet, &self.main) && outlet.is_complete();
            // If an output could not be made, packets were read but not handed to any output.
            let unread = self.refused && outlet.needs.wanted != Wanted::Passed;
            let whole = !unread && (outlet.ended.is_none() || complete && !self.alone);
            (whole && written != expected).then(|| Discrepancy {
                name: outlet.name.clone(),
                expected,
                written,
            })
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

/// An output that wrote a wrong number of packets, which is a mistake in weir.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} packets matched for {name}, and it took {written}")]
pub struct Discrepancy {
    /// Name of the output as the user wrote it.
    pub name: String,
    /// Number of packets that the output should have written.
    pub expected: u64,
    /// Number of packets that the output wrote.
    pub written: u64,
}
