//! The ledger of a run: counts of packets by their fate. No term is computed from the others.

use crate::sink::StageCounts;
use weir_pipeline::reader::Uncounted;
use weir_pipeline::select::Selected;

/// Counts over all sources of a run, each taken at the place of the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets that arrived at the sources, with or without room for them.
    pub received: u64,
    /// Packets that passed the filter, and that no stage dropped.
    pub passed: u64,
    /// Packets that the expression rejected, here or in the kernel, control packets that a firewall obeyed, and duplicates.
    pub filtered: u64,
    /// Control packets that a firewall obeyed, also part of `filtered`.
    pub controls: u64,
    /// Duplicates that were left out, also part of `filtered`.
    pub duplicates: u64,
    /// Packets that a firewall rejected, or did not obey.
    pub denied: u64,
    /// Packets lost before the stages, by place.
    pub dropped: Dropped,
    /// Packets of the main output and of the outputs that it replaced, if there is one.
    pub main: Option<StageCounts>,
    /// Packets of all other outputs and of the outputs that they replaced, if there are any.
    pub others: Option<StageCounts>,
    /// Wire bytes of the passed packets.
    pub bytes: u64,
    /// Packets and wire bytes that matched each split.
    pub splits: Vec<(u64, u64)>,
    /// Packets found from wrong starts, discarded and read again.
    pub reread: u64,
    /// Packets missing from the sources according to their own interface statistics. Not part of `received`.
    pub lost_before: u64,
    /// Times for which the sources do not tell what was lost: a capture that they are from was broken off.
    pub loss_unknown: Vec<Uncounted>,
    /// Sources without a counter of lost packets, such as pcap files.
    pub without_counter: u64,
    /// Whether the kernel rejected packets without a count: `received` lacks these packets.
    pub uncounted: bool,
}

/// Number of lost packets, by the place of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Dropped by the kernel or the device, for lack of room.
    pub source: u64,
    /// Dropped by the measurement, because their window was delivered before they arrived.
    pub late: u64,
    /// Matching packets that arrived when no output took packets any more.
    pub output: u64,
}

impl Dropped {
    /// Returns the sum of all places.
    pub fn sum(&self) -> u64 {
        self.source + self.late + self.output
    }
}

/// A ledger that does not add up, which is a mistake in weir.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the account does not add up: {} received{}, {} passed, {} filtered, {} denied, {} dropped",
    .ledger.received, of_measurement(.measured.as_ref()), .ledger.passed, .ledger.filtered, .ledger.denied,
    .ledger.dropped.sum()
)]
pub struct Imbalance {
    /// The ledger.
    pub ledger: Box<Ledger>,
    /// Counts of the stages next to a measurement, if there is one.
    pub measured: Option<Counted>,
}

/// The same packets, counted at three places of a run that measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Packets that arrived at the workers.
    pub arrived: u64,
    /// Packets that the filter passed before the proof; `None` if the workers filter.
    pub judged: Option<u64>,
    /// Packets in the tables.
    pub counted: u64,
}

fn of_measurement(measured: Option<&Counted>) -> String {
    let Some(Counted {
        arrived,
        judged,
        counted,
    }) = measured
    else {
        return String::new();
    };
    let judged = judged.map_or(String::new(), |judged| {
        format!(", {judged} passed the filter")
    });
    format!(" ({arrived} by the workers{judged}, {counted} are in tables)")
}

impl Ledger {
    /// Makes the ledger of a run with `splits` splits.
    pub fn new(splits: usize) -> Self {
        Self {
            splits: vec![(0, 0); splits],
            ..Self::default()
        }
    }

    /// Adds the ledger of another run, without splits.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        let Self {
            received,
            passed,
            filtered,
            controls,
            duplicates,
            denied,
            dropped,
            main,
            others,
            bytes,
            splits: _,
            reread,
            lost_before,
            loss_unknown,
            without_counter,
            uncounted,
        } = other;
        self.received += received;
        self.passed += passed;
        self.filtered += filtered;
        self.controls += controls;
        self.duplicates += duplicates;
        self.denied += denied;
        self.dropped.source += dropped.source;
        self.dropped.late += dropped.late;
        self.dropped.output += dropped.output;
        for (sum, one) in [(&mut self.main, main), (&mut self.others, others)] {
            if let Some(one) = one {
                sum.get_or_insert_default().add(one);
            }
        }
        self.bytes += bytes;
        self.reread += reread;
        self.lost_before += lost_before;
        self.loss_unknown.extend(loss_unknown);
        self.without_counter += without_counter;
        self.uncounted |= uncounted;
        self
    }

    /// Checks that the terms add up. Each term is counted at its own place, so their agreement shows that no packet is missing.
    pub fn check(&self) -> Result<(), Imbalance> {
        let Self {
            received,
            passed,
            filtered,
            denied,
            dropped,
            uncounted,
            ..
        } = self;
        let adds_up = *received == passed + filtered + denied + dropped.sum();
        if adds_up || *uncounted {
            Ok(())
        } else {
            Err(Imbalance {
                ledger: Box::new(self.clone()),
                measured: None,
            })
        }
    }

    /// Adds the verdicts on a batch.
    pub(crate) fn add(&mut self, part: &Selected) {
        self.passed += part.passed;
        self.filtered += part.filtered + part.controls + part.duplicates;
        self.controls += part.controls;
        self.duplicates += part.duplicates;
        self.denied += part.denied;
        self.bytes += part.bytes;
        for (total, split) in self.splits.iter_mut().zip(&part.splits) {
            total.0 += split.passed;
            total.1 += split.bytes;
        }
    }

    /// Adds a batch of a capture that no output takes.
    pub(crate) fn add_dropped(&mut self, part: &Selected) {
        self.filtered += part.filtered + part.controls + part.duplicates;
        self.controls += part.controls;
        self.duplicates += part.duplicates;
        self.denied += part.denied;
        self.dropped.output += part.passed;
    }

    /// Moves packets from the count of passed packets to the count of packets without an output.
    pub(crate) fn drop_passed(&mut self, part: &Selected) {
        self.passed -= part.passed;
        self.bytes -= part.bytes;
        self.dropped.output += part.passed;
        for (total, split) in self.splits.iter_mut().zip(&part.splits) {
            total.0 -= split.passed;
            total.1 -= split.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_misses_one_packet_in_any_place_is_refused() {
        let dropped = Dropped {
            source: 4,
            late: 5,
            output: 6,
        };
        let whole = Ledger {
            received: 21,
            passed: 1,
            filtered: 2,
            denied: 3,
            dropped,
            ..Ledger::default()
        };
        assert_eq!(whole.check(), Ok(()));
        let places: [fn(&mut Ledger) -> &mut u64; 7] = [
            |ledger| &mut ledger.received,
            |ledger| &mut ledger.passed,
            |ledger| &mut ledger.filtered,
            |ledger| &mut ledger.denied,
            |ledger| &mut ledger.dropped.source,
            |ledger| &mut ledger.dropped.late,
            |ledger| &mut ledger.dropped.output,
        ];
        for place in places {
            let mut ledger = whole.clone();
            *place(&mut ledger) -= 1;
            assert!(ledger.check().is_err());
            // Uncounted packets cannot add up.
            assert_eq!(
                Ledger {
                    uncounted: true,
                    ..ledger
                }
                .check(),
                Ok(())
            );
        }
    }
}
