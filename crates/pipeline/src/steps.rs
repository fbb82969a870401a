//! Work in steps: the driver of a run passes the time to each step, and each step returns its progress.
//!
//! Code that runs in steps neither reads a clock nor waits. One driver is a set of threads: each thread steps one worker, and waits
//! at the worker's source. Another driver is a scheduler in one thread, which steps all workers in an order and at times of its
//! choice.

use std::time::{Duration, Instant, SystemTime};

/// An instant on two independent clocks. Packet time, the time of the timestamps, is a third clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Steady time since a start that the driver chooses, the same for all its workers.
    pub steady: Duration,
    /// Time of day, ns since 1970; the system may set this clock back and forth.
    pub wall_ns: i64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More work may be ready.
    Busy,
    /// No work until input arrives, or until this steady time.
    Idle(Duration),
    /// All work is done.
    Ended,
}

/// The clocks of a driver.
pub trait Clock: Send + Sync + core::fmt::Debug {
    /// Returns the current time. Steady time never goes back.
    fn now(&self) -> Moment;
}

/// The system's clocks. Steady time counts from the creation of this value.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    begun: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
        }
    }
}

impl SystemClock {
    /// Returns the time at which steady time is 0.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the current time. **Cost**: two reads of clocks, without a system call if the kernel's clock needs none.
    pub fn now(&self) -> Moment {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let wall_ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        Moment {
            steady: self.begun.elapsed(),
            wall_ns,
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Self::now(self)
    }
}
