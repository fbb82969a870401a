//! Captures as one source.

use super::gather::Gather;
use super::{Part, Rejected};
use crate::PlanError;
use crate::interfaces::Interfaces;
use crate::merge::{Merged, Next};
use crate::pump::{Pick, Pump, SLACK, Standing, pick};
use crate::reader::{AccessMode, Delivery, Report, SourceError, Step};
use crate::source::{CaptureState, Source};
use crate::stages::{Columns, Stages};
use std::sync::Arc;
use std::time::Duration;
use weir_io::Chunk;
use weir_io::live::{Counts, TURN};
use weir_packet::savefile::Layout;

/// Size of a piece, bytes: packets after one that an output does not take should not be many.
const PIECE: usize = 128 << 10;

/// One capture of several.
struct Captured {
    name: String,
    layout: Layout,
    pump: Pump<Stages>,
    /// Time (ns) of the next packet to pass on, and its number in the first waiting delivery; `None` if not known yet.
    next: Option<(i64, usize)>,
    /// Number of packets passed on or left out.
    received: u64,
}

/// Captures as one source. What is read of each waits until no other capture can have an earlier packet.
///
/// **Latency**: while an interface is quiet, packets of the others wait for some half a second, because the kernel may hold back
/// packets of it.
pub struct MergedCaptures {
    sources: Vec<Captured>,
    merged: fn(&Columns) -> Merged<'_>,
    gather: Gather,
    stages: Arc<Stages>,
    /// Number of the source that delays the others.
    behind: usize,
    change: u64,
    finished: bool,
    report: Report,
}

impl core::fmt::Debug for MergedCaptures {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MergedCaptures")
            .field("sources", &self.sources.len())
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Captured {
    /// Returns the state of the source for the choice of the next packet. Deliveries without further packets to pass on are left.
    fn standing(&mut self, merged: fn(&Columns) -> Merged<'_>, gather: &mut Gather) -> Standing {
        while self.next.is_none()
            && let Some((delivery, done)) = self.pump.first()
        {
            let part = &delivery.part;
            let Merged { records, mask } = merged(part);
            let number = match mask {
                Some(mask) => mask.numbers_from(done).next(),
                None => Some(done).filter(|done| *done < records.len()),
            };
            match number {
                Some(number) => {
                    let (layout, at) = (&delivery.current.layout, records[number] as usize);
                    let record = layout.record(delivery.view.content(), at);
                    let time = record.and_then(|record| record.time_ns);
                    self.next = Some((time.unwrap_or(i64::MIN), number));
                }
                None => {
                    gather.leave(part, done);
                    self.received += if records.is_empty() {
                        part.selected.passed + part.selected.filtered
                    } else {
                        (records.len() - done) as u64
                    };
                    self.pump.leave();
                }
            }
        }
        Standing {
            next: self.next.map(|(time, _)| time),
            until: self.pump.until(),
            ended: self.pump.ended().is_some(),
        }
    }

    /// Gives the next packet to `gather`. Returns `false` if it has to wait for the next piece.
    fn pass(&mut self, source: usize, gather: &mut Gather) -> Result<bool, SourceError> {
        let (Some((key, number)), Some((delivery, done))) = (self.next, self.pump.first()) else {
            return Ok(false);
        };
        let Delivery {
            current,
            part,
            view,
            ..
        } = delivery;
        let at = part.records[number] as usize;
        let record = current.layout.record(view.content(), at);
        let next = Next {
            source,
            key,
            current,
            part,
            number,
            skipped: number - done,
            record: record.ok_or(SourceError::Changed)?,
        };
        let taken = gather.take(&next)?;
        if taken {
            self.received += (number + 1 - done) as u64;
            self.pump.pass(number + 1);
            self.next = None;
        }
        Ok(taken)
    }

    fn state(&self) -> CaptureState<'_> {
        let ended = self.pump.ended();
        CaptureState {
            name: &self.name,
            layout: Some(&self.layout),
            counts: self.counts(),
            ended: ended.is_some(),
            fault: ended.and_then(|(report, _)| report.fault.as_ref()),
        }
    }

    /// Returns what the capture has counted so far.
    fn counts(&self) -> Option<Counts> {
        let ended = self.pump.ended();
        ended.map_or_else(|| self.pump.counts(), |(report, _)| report.live)
    }
}

impl MergedCaptures {
    /// Makes a source of the captures after these pumps, with their names and layouts. Packets of
    /// equal times keep the order of the captures.
    pub fn new(
        pumps: impl IntoIterator<Item = (String, Layout, Pump<Stages>)>,
        stages: Arc<Stages>,
        rejected: Rejected,
    ) -> Self {
        let captured = |(name, layout, pump)| Captured {
            name,
            layout,
            pump,
            next: None,
            received: 0,
        };
        let sources: Vec<_> = pumps.into_iter().map(captured).collect();
        let interfaces = Interfaces::default();
        let mut merged = Self {
            merged: rejected.merged(&stages),
            gather: Gather::new(
                Arc::clone(&stages),
                rejected,
                PIECE,
                interfaces,
                sources.len(),
            ),
            sources,
            stages,
            behind: 0,
            change: 0,
            finished: false,
            report: Report::default(),
        };
        for (number, source) in merged.sources.iter().enumerate() {
            if let Err(what) = merged.gather.announce(number, &source.layout) {
                merged.finished = true;
                merged.report.fail(what);
                break;
            }
        }
        merged
    }

    /// Returns the outcome of each source that has ended.
    pub fn into_parts(self) -> Vec<Part> {
        let part = |mut source: Captured| {
            let (report, layout) = source.pump.take_end()?;
            Some(Part {
                name: source.name,
                report: Report {
                    received: source.received,
                    ..report
                },
                layout: layout.or(Some(source.layout)),
                way: AccessMode::Live,
                stats: Vec::new(),
            })
        };
        self.sources.into_iter().filter_map(part).collect()
    }

    /// Gathers the packets that no capture can precede. Returns whether all captures have ended.
    fn fill(&mut self) -> Result<bool, SourceError> {
        let Self {
            sources,
            merged,
            gather,
            behind,
            ..
        } = self;
        while !gather.is_full() {
            let standing = sources
                .iter_mut()
                .map(|source| source.standing(*merged, gather));
            match pick(standing) {
                Pick::Packet(next) => match sources[next].pass(next, gather) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(what) if gather.is_empty() => return Err(what),
                    // The packets in the piece are passed on; the next step meets the error again.
                    Err(_) => break,
                },
                Pick::Wait(source) => {
                    *behind = source;
                    break;
                }
                Pick::End => return Ok(true),
            }
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<Step<Stages>, SourceError> {
        self.sources
            .iter_mut()
            .for_each(|source| source.pump.receive_ready());
        self.change = self.change.max(self.reached());
        self.gather.set_change(self.change);
        self.report.live = sum(self.sources.iter().map(Captured::counts));
        let ended = self.fill()?;
        let received = self.gather.received();
        if let Some(delivery) = self.gather.piece(self.report.offset)? {
            self.report.received += received;
            self.report.offset += delivery.view.bytes().len() as u64;
            return Ok(Step::Delivery(delivery));
        }
        self.finished = ended;
        Ok(if ended { Step::End } else { Step::Quiet })
    }

    /// Returns the number of a change: the next packets belong to it or to a later one.
    fn reached(&self) -> u64 {
        let of = |source: &Captured| match source.pump.first() {
            Some((delivery, _)) => delivery.current.plan.change(),
            None => source.pump.change(),
        };
        let earliest = self.sources.iter().map(of).min().unwrap_or(0);
        earliest.min(self.stages.change())
    }
}

/// Returns the sums of the counts of captures, as far as they are known.
fn sum(counts: impl Iterator<Item = Option<Counts>>) -> Option<Counts> {
    let known = counts.flatten();
    known.reduce(|sum, one| Counts {
        received: sum.received + one.received,
        filtered: sum.filtered.zip(one.filtered).map(|(a, b)| a + b),
        dropped: sum.dropped + one.dropped,
        handed_over: sum.handed_over + one.handed_over,
    })
}

impl Source for MergedCaptures {
    fn poll(&mut self) -> Step<Stages> {
        if self.finished {
            return Step::End;
        }
        self.step().unwrap_or_else(|what| {
            self.finished = true;
            if !matches!(what, SourceError::Plan(PlanError::Stopped)) {
                self.report.fail(what);
            }
            Step::End
        })
    }

    fn wait(&mut self, most: Duration) {
        if let Some(source) = self.sources.get_mut(self.behind) {
            source.pump.receive(most);
        }
    }

    fn recycle(&mut self, view: Chunk) {
        if let Some(buffer) = view.into_buffer() {
            self.gather.give_back(buffer);
        }
    }

    fn change(&self) -> u64 {
        self.change
    }

    fn way(&self) -> AccessMode {
        AccessMode::Live
    }

    fn layout(&self) -> Option<&Layout> {
        self.gather.layout()
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn progress(&self) -> u64 {
        self.report.offset
    }

    fn remove_left_packets(&mut self, packets: u64) {
        self.report.received -= packets;
    }

    fn end_within(&mut self, batch: &Delivery<Stages>, _: usize, _: u64) {
        self.gather.end_at(batch);
    }

    fn holds_back(&self) -> Duration {
        // A packet that waited so long waits for the next turn of the caller, too.
        SLACK + 5 * TURN
    }

    fn captures(&self) -> Vec<CaptureState<'_>> {
        self.sources.iter().map(Captured::state).collect()
    }
}
