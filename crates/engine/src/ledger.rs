//! The ledger of a run: where each packet went. No term is computed from the others.

use crate::outputs::Rest;
use weir_pipeline::select::Selected;

/// Counts over all sources of a run, each where it happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets that arrived at the sources, whether or not there was room for them.
    pub received: u64,
    /// Packets that went on.
    pub passed: u64,
    /// Packets that the expression rejected, here or in the kernel.
    pub filtered: u64,
    /// Packets that a firewall rejected.
    pub denied: u64,
    /// Packets that were lost.
    pub dropped: Dropped,
    /// Wire bytes of the packets that went on.
    pub bytes: u64,
    /// Packets and wire bytes that matched each split.
    pub splits: Vec<(u64, u64)>,
    /// Packets found from wrong starts, thrown away and read again.
    pub reread: u64,
    /// Packets that are not in the sources, as these say themselves. They are no part of `received`.
    pub lost_before: u64,
    /// The kernel rejected packets and did not count them: `received` lacks them.
    pub uncounted: bool,
    /// Packets in the ring of a capture changed after they were counted, and are not there any more.
    pub changed: bool,
}

/// Packets that were lost, by the place that dropped them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// By the kernel or the device, for want of room.
    pub source: u64,
    /// By the measurement: their window was given out before they came.
    pub late: u64,
    /// They matched and came when no output took packets any more.
    pub output: u64,
}

impl Dropped {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.source + self.late + self.output
    }
}

/// A ledger that does not add up: a mistake in weir.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the account does not add up: {} received{}, {} passed, {} filtered, {} denied, {} dropped",
    .ledger.received, of_measurement(.measured.as_ref()), .ledger.passed, .ledger.filtered, .ledger.denied,
    .ledger.dropped.sum()
)]
pub struct Imbalance {
    /// The ledger.
    pub ledger: Box<Ledger>,
    /// What the stages beside a measurement counted, if there is one.
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
    let Some(Counted { arrived, judged, counted }) = measured else { return String::new() };
    let judged = judged.map_or(String::new(), |judged| format!(", {judged} passed the filter"));
    format!(" ({arrived} by the workers{judged}, {counted} are in tables)")
}

impl Ledger {
    /// A ledger of a run with so many splits.
    pub fn new(splits: usize) -> Self {
        Self { splits: vec![(0, 0); splits], ..Self::default() }
    }

    /// Each term was counted in its own place. That they agree is what makes the answer one.
    pub fn check(&self) -> Result<(), Imbalance> {
        let Self { received, passed, filtered, denied, dropped, uncounted, changed, .. } = self;
        let adds_up = *received == passed + filtered + denied + dropped.sum();
        if adds_up || *uncounted || *changed {
            Ok(())
        } else {
            Err(Imbalance { ledger: Box::new(self.clone()), measured: None })
        }
    }

    /// Adds the verdicts on a batch.
    pub(crate) fn add(&mut self, part: &Selected) {
        self.passed += part.passed;
        self.filtered += part.filtered;
        self.bytes += part.bytes;
        for (total, split) in self.splits.iter_mut().zip(&part.splits) {
            total.0 += split.passed;
            total.1 += split.bytes;
        }
    }

    /// Adds a batch of a capture that no output takes.
    pub(crate) fn add_dropped(&mut self, part: &Selected) {
        self.filtered += part.filtered;
        self.dropped.output += part.passed;
    }

    /// Moves packets that were counted as passed on to those that no output took.
    pub(crate) fn drop_rest(&mut self, rest: &Rest) {
        self.take_back(&Rest { filtered: 0, splits: rest.splits.clone(), ..*rest });
        self.dropped.output += rest.passed;
    }

    /// Takes packets out again that were counted, and that nobody wanted any more. In a source that others changed meanwhile
    /// there may be any number of them.
    pub(crate) fn take_back(&mut self, rest: &Rest) {
        let less = |total: &mut u64, rest: u64| *total = total.saturating_sub(rest);
        less(&mut self.passed, rest.passed);
        less(&mut self.filtered, rest.filtered);
        less(&mut self.bytes, rest.bytes);
        for (total, split) in self.splits.iter_mut().zip(&rest.splits) {
            less(&mut total.0, split.0);
            less(&mut total.1, split.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_misses_one_packet_in_any_place_is_refused() {
        let dropped = Dropped { source: 4, late: 5, output: 6 };
        let whole = Ledger { received: 21, passed: 1, filtered: 2, denied: 3, dropped, ..Ledger::default() };
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
            // What nobody counts cannot add up.
            assert_eq!(Ledger { uncounted: true, ..ledger }.check(), Ok(()));
        }
    }
}
