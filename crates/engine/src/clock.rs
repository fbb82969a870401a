//! The clock of a sender, which makes good short delays and no long ones.

use std::time::{Duration, Instant};

/// Time between two readings from which no packet could leave in between: the process was stopped, the machine halted, or the port took
/// nothing. Packets that were due in a shorter time leave at once.
pub const HALT: Duration = Duration::from_secs(1);

/// A clock for due times, which begins once for all packets, so that one late packet does not delay the following ones.
///
/// A running sender reads it every 20 ms at least while it waits, and each 64 packets while it is late. If it was not read for [`HALT`], and packets were due in the meantime, the next packet
/// leaves at once, and later packets as much later than they were due. Otherwise the packets of some seconds would leave at once.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begun: Instant,
    now: Duration,
    halted: Duration,
    /// Time without a reading since the last packet, if it was a long one.
    gap: Duration,
}

impl Clock {
    /// Starts the clock.
    pub fn begin() -> Self {
        Self {
            begun: Instant::now(),
            now: Duration::ZERO,
            halted: Duration::ZERO,
            gap: Duration::ZERO,
        }
    }

    /// Reads the clock.
    pub fn read(&mut self) -> Duration {
        self.advance(self.begun.elapsed())
    }

    #[inline]
    fn advance(&mut self, elapsed: Duration) -> Duration {
        let since = elapsed.saturating_sub(self.elapsed());
        if since > HALT {
            self.gap += since;
        }
        self.now += since;
        self.now
    }

    /// The time at the last reading, without halts.
    #[inline]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Time since the begin at the last reading, with halts.
    #[inline]
    pub fn elapsed(&self) -> Duration {
        self.now + self.halted
    }

    /// Time by which packets leave later than they were due, because none could leave before.
    #[inline]
    pub fn halted(&self) -> Duration {
        self.halted
    }

    /// Notes that the packet leaves that was due at `due`, and returns how late it is.
    #[inline]
    pub fn leaves(&mut self, due: Duration) -> Duration {
        let late = self.now.saturating_sub(due);
        let halt = late.min(std::mem::take(&mut self.gap));
        if halt > HALT {
            self.halted += halt;
            self.now -= halt;
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_halt_delays_what_is_due() {
        let ms = Duration::from_millis;
        let mut clock = Clock::begin();
        assert_eq!(clock.advance(ms(20)), ms(20));
        // What a busy machine does to a sender.
        assert_eq!(clock.advance(ms(1_020)), ms(1_020));
        assert_eq!((clock.leaves(ms(30)), clock.halted()), (ms(990), ms(0)));
        assert_eq!(clock.advance(ms(4_020)), ms(4_020));
        assert_eq!(
            (clock.leaves(ms(1_040)), clock.now()),
            (ms(2_980), ms(1_040))
        );
        assert_eq!((clock.elapsed(), clock.halted()), (ms(4_020), ms(2_980)));
        assert_eq!(clock.advance(ms(4_030)), ms(1_050));
        assert_eq!(clock.leaves(ms(1_045)), ms(5));
        // Nothing was due for a while, or there was no packet.
        assert_eq!(clock.advance(ms(14_030)), ms(11_050));
        assert_eq!(
            (clock.leaves(ms(11_040)), clock.halted()),
            (ms(10), ms(2_980))
        );
    }
}
