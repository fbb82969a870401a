//! How far packet time has come in a source: which windows are complete, and where to cut pieces.

use super::locate::Locate;
use crate::Delivery;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use weir_io::live::Counts;
use weir_measure::Cut;

/// Nothing was delivered anywhere.
const UNKNOWN: i64 = i64::MIN;

/// The time that a source has come to.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    cut: Cut,
    /// Latest time so far, ns.
    pub latest: i64,
    /// Windows before this number are closed.
    pub open: i64,
    /// By how much packets were behind the system's clock when they were delivered last, ns; of this source, or of any that
    /// began with the same clock.
    behind: Option<i64>,
    behind_elsewhere: Arc<AtomicI64>,
}

impl Clock {
    pub fn new(cut: Cut) -> Self {
        Self {
            cut,
            latest: i64::MIN,
            open: i64::MIN,
            behind: None,
            behind_elsewhere: Arc::new(AtomicI64::new(UNKNOWN)),
        }
    }

    /// The time that the source has come to; before its first packet, the system's.
    pub fn time(&self) -> i64 {
        if self.latest == i64::MIN { now_ns() } else { self.latest }
    }

    /// Packets of up to time `latest` have come. Gives the first window that stays open, if that is a new one.
    pub fn pass(&mut self, latest: i64) -> Option<i64> {
        self.latest = latest;
        let open = self.cut.first_open(latest);
        let later = open > self.open && latest > i64::MIN;
        later.then(|| {
            self.open = open;
            open
        })
    }

    /// Packets of up to now were delivered, as a live source does.
    pub fn delivered(&mut self) {
        if self.cut.window_ns.is_some() && self.latest > i64::MIN {
            let behind = now_ns().saturating_sub(self.latest);
            self.behind = Some(behind);
            self.behind_elsewhere.store(behind, Ordering::Relaxed);
        }
    }

    /// A live source delivers nothing: time goes on all the same. Like [`Self::pass`].
    ///
    /// The clock that stamps packets may be another one, of a network card; what was delivered last tells how they differ.
    pub fn quiet(&mut self) -> Option<i64> {
        /// What may still be on its way, at most: the kernel hands a block over by a timer, which a busy machine keeps waiting.
        const SLACK: Duration = Duration::from_secs(1);
        let elsewhere = || Some(self.behind_elsewhere.load(Ordering::Relaxed)).filter(|&behind| behind != UNKNOWN);
        let behind = self.behind.or_else(elsewhere)?;
        let there = now_ns().saturating_sub(behind).saturating_sub(SLACK.as_nanos() as i64);
        self.pass(self.latest.max(there))
    }

    /// Where to cut a delivery so that no piece spans many windows, each of which has tables of its own: the ends of the pieces, and
    /// the latest time up to there.
    pub fn cuts(&self, delivery: &Delivery<Locate>) -> Vec<(usize, i64)> {
        /// Windows that one piece may close.
        const MANY: i64 = 4;
        let cut = self.cut;
        let records = &delivery.part.records;
        let last = self.latest.max(delivery.part.latest.unwrap_or(i64::MIN));
        let mut cuts = Vec::new();
        if cut.window_ns.is_some() && cut.first_open(last).saturating_sub(self.open) > MANY {
            let (mut latest, mut open) = (self.latest, self.open);
            delivery.current.layout.records(delivery.view.content(), records, |i, record| {
                latest = latest.max(record.and_then(|record| record.time_ns).unwrap_or(i64::MIN));
                let now = cut.first_open(latest);
                if latest > i64::MIN && now.saturating_sub(open) > MANY {
                    cuts.push((i + 1, latest));
                    open = now;
                }
            });
        }
        if cuts.last().is_none_or(|&(end, _)| end < records.len()) {
            cuts.push((records.len(), last));
        }
        cuts
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What a live source rejected or dropped before it delivered, as far as that is booked.
///
/// It does not say when it happened: what is new belongs to the window that the source has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Booked {
    dropped: u64,
    filtered: u64,
}

/// Packets that never reached us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    pub dropped: u64,
    pub filtered: u64,
}

impl Booked {
    /// What is not booked yet; from now on it is.
    pub fn book(&mut self, counts: Option<Counts>) -> Option<Before> {
        let counts = counts?;
        let filtered = counts.filtered.unwrap_or(0);
        let new = Before { dropped: counts.dropped - self.dropped, filtered: filtered - self.filtered };
        *self = Self { dropped: counts.dropped, filtered };
        (new != Before::default()).then_some(new)
    }
}
