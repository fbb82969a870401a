//! Copies of packets of several sources, in pieces of one layout.

use crate::Consumer;
use crate::interfaces::{Ids, Interfaces};
use crate::merge::{Merged, Next};
use crate::reader::{Current, Delivery, SourceError};
use crate::select::{Misfit, SplitSums};
use crate::stages::{Columns, Stages, StagesPlan, Times};
use std::sync::Arc;
use weir_io::Chunk;
use weir_packet::savefile::{Layout, Record, spool};

/// Form of the packets that the filter rejects in the batches of several sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rejected {
    /// They are counted, and not in the batches.
    LeftOut,
    /// They are at their places, with their times and lengths, without their bytes.
    Headers,
    /// They are whole.
    #[default]
    Whole,
}

impl Rejected {
    /// Returns the function that chooses the packets to merge.
    pub(crate) fn merged(self, stages: &Stages) -> fn(&Columns) -> Merged<'_> {
        if stages.judge && self == Self::LeftOut {
            Columns::merged
        } else {
            Columns::all
        }
    }
}

/// A source, as far as it is copied.
#[derive(Default)]
struct Known {
    /// Indexes of its interfaces in the table.
    ids: Ids,
    /// Number of its blocks about packets that the layout has.
    carried: usize,
}

/// The piece in the making.
pub(super) struct Gather {
    stages: Arc<Stages>,
    rejected: Rejected,
    /// Size of a piece, bytes: small enough to stay in the cache from the copy to the stages.
    size: usize,
    interfaces: Interfaces,
    sources: Vec<Known>,
    /// Whether the sources are runs of a sort.
    are_runs: bool,
    /// Number of interfaces of the current layout.
    announced: usize,
    /// Whether there are blocks about packets that the current layout does not have.
    is_carrying: bool,
    current: Option<Arc<Current<StagesPlan>>>,
    bytes: Vec<u8>,
    columns: Columns,
    /// Offset of the last packet's record.
    last: usize,
    /// Number of packets that the piece counts, with those left out.
    received: u64,
    /// Number of the change of the packets.
    change: u64,
    spares: Vec<Vec<u8>>,
}

impl Gather {
    /// Gathers packets of `sources` sources in pieces of `size` bytes.
    pub fn new(
        stages: Arc<Stages>,
        rejected: Rejected,
        size: usize,
        interfaces: Interfaces,
        sources: usize,
    ) -> Self {
        Self {
            stages,
            rejected,
            size,
            are_runs: interfaces.len() > 0,
            interfaces,
            sources: (0..sources).map(|_| Known::default()).collect(),
            announced: 0,
            is_carrying: false,
            current: None,
            bytes: Vec::new(),
            columns: Columns::default(),
            last: 0,
            received: 0,
            change: 0,
            spares: Vec::new(),
        }
    }

    /// Whether nothing is in the piece.
    pub fn is_empty(&self) -> bool {
        self.received == 0
    }

    /// Whether the piece is full.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.size
    }

    /// Whether the piece has packets, and not only counts.
    pub fn has_packets(&self) -> bool {
        !self.columns.records.is_empty()
    }

    /// Number of packets that the piece counts.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the layout of the last piece.
    pub fn layout(&self) -> Option<&Layout> {
        self.current.as_ref().map(|current| &current.layout)
    }

    /// Puts the interfaces of a source into the table. **Errors**: too many interfaces.
    pub fn announce(&mut self, source: usize, layout: &Layout) -> Result<(), SourceError> {
        self.interfaces
            .announce(&mut self.sources[source].ids, layout)
    }

    /// Takes the layout of `batch` back up, with which the source has ended.
    pub fn end_at(&mut self, batch: &Delivery<Stages>) {
        self.current = Some(Arc::clone(&batch.current));
    }

    pub fn give_back(&mut self, buffer: Vec<u8>) {
        self.spares.push(buffer);
    }

    /// Copies a packet. Returns `false`, and copies nothing, if it belongs to another change than the packets of the piece.
    /// **Errors**: the table of interfaces has no room.
    pub fn take(&mut self, next: &Next<'_, Stages>) -> Result<bool, SourceError> {
        let Next {
            source,
            current,
            part,
            number,
            skipped,
            ref record,
            key,
            ..
        } = *next;
        let judge = self.stages.judge;
        if judge {
            let change = current.plan.change();
            if !self.is_empty() && change != self.change {
                return Ok(false);
            }
            self.change = change;
        }
        let (layout, known) = (&current.layout, &mut self.sources[source]);
        let carried = layout.carried.len() + layout.notes.len();
        if known.carried < carried {
            known.carried = carried;
            // The layout of a piece comes before it: the packets so far have the layout before.
            self.is_carrying |= self.interfaces.carry(layout);
        }
        let interface = record.frame.interface;
        // The packets of runs have the numbers of this table already.
        let id = match self.are_runs {
            true => interface,
            false => self.interfaces.id(&mut known.ids, layout, interface)?,
        };
        let passes = !judge || part.passed.has(number);
        self.last = self.bytes.len();
        self.columns.records.push(self.last as u32);
        self.note_time(record);
        if passes || self.rejected == Rejected::Whole {
            spool::append(&mut self.bytes, id, key, record);
        } else {
            let mut header = *record;
            (header.frame.data, header.options) = (&[], Default::default());
            spool::append(&mut self.bytes, id, key, &header);
        }
        if judge {
            self.note_verdicts(part, number, passes, record.frame.wire_len);
            self.columns.selected.filtered += skipped as u64;
        }
        self.received += skipped as u64 + 1;
        Ok(true)
    }

    fn note_time(&mut self, record: &Record<'_>) {
        let timed = self.stages.locate.is_some_and(|locate| locate.timed);
        if let (true, Some(stamp)) = (timed, record.time_ns) {
            let (times, time) = (&mut self.columns.times, Times::of(stamp));
            *times = Some(times.map_or(time, |times| times.and(time)));
        }
    }

    fn note_verdicts(&mut self, part: &Columns, number: usize, passes: bool, wire_len: u32) {
        let Columns {
            passed,
            splits,
            selected,
            ..
        } = &mut self.columns;
        passed.push(u64::from(passes), 1);
        let wire = u64::from(wire_len);
        if passes {
            selected.passed += 1;
            selected.bytes += wire;
        } else {
            selected.filtered += 1;
        }
        let count = part.splits.len();
        splits.resize_with(count.max(splits.len()), Default::default);
        let sums = &mut selected.splits;
        sums.resize(count.max(sums.len()), SplitSums::default());
        for ((mask, sum), of) in splits.iter_mut().zip(sums).zip(&part.splits) {
            let matches = of.has(number);
            mask.push(u64::from(matches), 1);
            if matches {
                sum.passed += 1;
                sum.bytes += wire;
            }
        }
    }

    /// Counts the packets of a piece of a source from number `from` on, which are not copied, and notes what else it says.
    pub fn leave(&mut self, part: &Columns, from: usize) {
        let (selected, sums) = (&part.selected, &mut self.columns.selected);
        if self.stages.locate.is_none() {
            self.received += selected.passed + selected.filtered;
            sums.append(selected.clone());
            return;
        }
        let rest = part.records.len().saturating_sub(from) as u64;
        self.received += rest;
        if self.stages.judge {
            sums.filtered += rest;
        }
        for misfit in &selected.misfits {
            Misfit::add(&mut sums.misfits, *misfit);
        }
        sums.unmatched.append(selected.unmatched);
    }

    /// Returns the piece at offset `offset` as a batch; `None` if there is nothing in it. **Errors**: the filter refuses the layout.
    pub fn piece(&mut self, offset: u64) -> Result<Option<Delivery<Stages>>, SourceError> {
        if self.is_empty() {
            return Ok(None);
        }
        let current = self.lay_out()?;
        let spare = self
            .spares
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(2 * self.size));
        let bytes = std::mem::replace(&mut self.bytes, spare);
        self.bytes.clear();
        self.received = 0;
        let len = bytes.len();
        Ok(Some(Delivery {
            current,
            view: Chunk::owned(offset, true, bytes, 0..len),
            last: std::mem::take(&mut self.last),
            part: std::mem::take(&mut self.columns),
        }))
    }

    /// Sets the change of the piece, if no packet is in it that was judged before.
    pub fn set_change(&mut self, change: u64) {
        if !self.stages.judge || self.is_empty() {
            self.change = change;
        }
    }

    /// Returns the layout of the piece, with the plan for it.
    fn lay_out(&mut self) -> Result<Arc<Current<StagesPlan>>, SourceError> {
        let is_new =
            std::mem::take(&mut self.is_carrying) || self.announced < self.interfaces.len();
        self.announced = self.interfaces.len();
        let before = self.current.as_ref();
        if let Some(before) = before.filter(|before| before.plan.change() == self.change && !is_new)
        {
            return Ok(Arc::clone(before));
        }
        let layout = match before {
            Some(before) if !is_new => before.layout.clone(),
            _ => self.interfaces.layout(),
        };
        let plan = self
            .stages
            .plan(&layout, before.map(|before| &before.plan))
            .map_err(SourceError::Plan)?;
        if before.is_none() {
            self.stages.warm_up(&plan, false);
        }
        let plan = plan.of_change(self.change);
        Ok(Arc::clone(
            self.current.insert(Arc::new(Current { layout, plan })),
        ))
    }
}
