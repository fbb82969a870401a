//! Distributions of processing times, per worker.

use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Longest time recorded as such, ns; longer times count as this one.
const LONGEST_NS: u64 = 60_000_000_000;

/// Times of one worker's batches, recorded on request only.
#[derive(Clone, Debug)]
pub struct Timing {
    begun: Instant,
    /// Processing time per packet, ns; one value per batch.
    pub processing: Histogram<u64>,
    /// Time from the hand-out of a batch to its end, ns; one value per batch.
    pub delay: Histogram<u64>,
}

impl Timing {
    /// Makes empty distributions. `begun` is the zero of [`Self::now`], the same for all threads of a run.
    pub fn new(begun: Instant) -> Self {
        let empty =
            || Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are in order");
        Self {
            begun,
            processing: empty(),
            delay: empty(),
        }
    }

    /// Returns the time since the run began, ns.
    pub fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Records that a batch of `packets` packets was processed from `from` to `to`, ns.
    pub fn processed(&mut self, from: u64, to: u64, packets: usize) {
        if packets > 0 {
            self.processing
                .saturating_record((to - from) / packets as u64);
        }
    }

    /// Records that a batch handed out at `from` was done at `to`, ns.
    pub fn done(&mut self, from: u64, to: u64) {
        self.delay.saturating_record(to.saturating_sub(from));
    }

    /// Adds the times of another worker.
    pub fn add(&mut self, other: &Self) {
        self.processing
            .add(&other.processing)
            .expect("all histograms have the same bounds");
        self.delay
            .add(&other.delay)
            .expect("all histograms have the same bounds");
    }
}

/// Returns percentiles of a distribution: p50, p99, p99.9.
pub fn percentiles(times: &Histogram<u64>) -> [Duration; 3] {
    [0.5, 0.99, 0.999].map(|quantile| Duration::from_nanos(times.value_at_quantile(quantile)))
}
