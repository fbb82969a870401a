//! Overload: packets arrive faster than the firewall judges them.
//!
//! A worker is overloaded once packets have waited for it at each look for a fifth of a second, and until one look finds none. That is seen
//! before the source's ring overflows, and needs no count of the ring.

use std::time::{Duration, Instant};

/// Time without a look that finds no packet, from which on a worker is overloaded.
const PATIENCE: Duration = Duration::from_millis(200);

/// Load of one worker.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Time of the first batch since a look found no packet.
    busy_since: Option<Instant>,
}

impl Load {
    /// Notes that a look found no packet.
    pub(super) fn rest(&mut self) {
        self.busy_since = None;
    }

    /// Whether the worker is overloaded, as it takes a batch at `now`.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        now.duration_since(*self.busy_since.get_or_insert(now)) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_overloaded_until_a_look_finds_no_packet() {
        let (mut load, begun) = (Load::default(), Instant::now());
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(
            [0, 100, 199, 200, 5000].map(|ms| load.is_over(at(ms))),
            [false, false, false, true, true]
        );
        load.rest();
        assert_eq!(
            [5001, 5200, 5201].map(|ms| load.is_over(at(ms))),
            [false, false, true]
        );
        load.rest();
        load.rest();
        assert!(!load.is_over(at(9000)));
    }
}
