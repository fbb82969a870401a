//! Wall time and processor time of this thread.

use crate::rivals::median;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Cost of a piece of work, s.
#[derive(Clone, Copy, Debug)]
pub struct Elapsed {
    /// Wall time.
    pub wall: f64,
    /// Processor time of this thread. Time taken by other programs is not included, but the cost of their cache use is.
    pub cpu: f64,
}

/// Does the work, and measures its cost.
pub fn time<T>(work: impl FnOnce() -> T) -> (T, Elapsed) {
    let (begun, cpu) = (Instant::now(), thread_cpu());
    let done = work();
    (
        done,
        Elapsed {
            cpu: (thread_cpu() - cpu).as_secs_f64(),
            wall: begun.elapsed().as_secs_f64(),
        },
    )
}

fn thread_cpu() -> Duration {
    Duration::from(
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every kernel has this clock"),
    )
}

/// Times of the same work in several rounds, ns per step.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Wall time, ns per step, in the order of the rounds.
    pub wall: Vec<f64>,
    /// Processor time, ns per step.
    pub cpu: Vec<f64>,
}

impl Samples {
    /// Adds a round of `steps` steps.
    pub fn add(&mut self, elapsed: Elapsed, steps: usize) {
        self.wall.push(elapsed.wall * 1e9 / steps as f64);
        self.cpu.push(elapsed.cpu * 1e9 / steps as f64);
    }

    /// Median of the processor times.
    pub fn median(&self) -> f64 {
        median(self.cpu.iter().copied())
    }

    /// Shortest and longest processor time.
    pub fn range(&self) -> (f64, f64) {
        range(&self.cpu)
    }

    /// Cells of a table: median, shortest to longest, and median wall time.
    pub fn cells(&self) -> [String; 3] {
        let (low, high) = self.range();
        let wall = median(self.wall.iter().copied());
        [
            format!("{:.1} ns", self.median()),
            format!("{low:.1} - {high:.1}"),
            format!("{wall:.1} ns"),
        ]
    }
}

/// Smallest and largest value; the largest is at least 0.
pub fn range(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, 0.0), |(low, high), &value| {
            (low.min(value), high.max(value))
        })
}
