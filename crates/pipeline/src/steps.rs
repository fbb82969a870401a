//! Work in steps: whoever drives a run says what time it is, and a step says what it came to.
//!
//! Nothing that takes steps reads a clock, and nothing in it waits. Threads are one driver: each steps one worker, and waits where the
//! worker's source can be waited for. A scheduler in one thread is another: it steps all of them in an order of its own, at times
//! of its own.

use std::time::{Duration, Instant, SystemTime};

/// An instant on two clocks that know nothing of each other. Packet time is a third one: that of the stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Steady time since a start that the driver chooses, the same for all that it drives.
    pub steady: Duration,
    /// Time of day, ns since 1970: it may be set back and forth.
    pub wall_ns: i64,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There may be more to do.
    Busy,
    /// There is nothing to do before something comes, or before this steady time.
    Idle(Duration),
    /// All is done.
    Ended,
}

/// The system's clocks. Steady time counts from when this was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    begun: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { begun: Instant::now() }
    }
}

impl SystemClock {
    /// What time it is. **Cost**: two reads of clocks, without a system call where the kernel's clock can do without.
    pub fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall_ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        Moment { steady: self.begun.elapsed(), wall_ns }
    }
}
