//! Rates, the same wherever they are shown.

use crate::Window;
use core::time::Duration;

/// Returns a rate per second of a count in a time, ns; `None` if the time has no length.
pub fn per_second(count: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| count as f64 / Duration::from_nanos(ns).as_secs_f64())
}

/// Returns a rate in bits of frames without FCS per second; `None` if the time has no length.
pub fn bits_per_second(bytes: u64, ns: u64) -> Option<f64> {
    per_second(bytes, ns).map(|rate| rate * 8.0)
}

impl Window<'_> {
    /// Returns the length of the part of the window that the sources cover, ns, at least a tenth of the window: of a shorter part, a
    /// single packet would seem to be a flood. If the part is not known, the time from the first packet to the last; `None` if no
    /// packet has a time.
    pub fn time_ns(&self) -> Option<u64> {
        let times = || self.state.and_then(|state| state.tally().times());
        let (from, to) = self.covered.or_else(times)?;
        let whole_ns = self.span.map_or(0, |(from, to)| to.saturating_sub(from));
        Some(match to.saturating_sub(from) {
            // Of a moment, there is no rate.
            0 => 0,
            part => part.max(whole_ns / 10).unsigned_abs(),
        })
    }
}
