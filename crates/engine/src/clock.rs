//! The clock of a sender, which makes good short delays and no long ones.

use std::time::{Duration, Instant};

/// Time between two readings from which no packet could leave in between: the process was stopped, the machine halted, or the port took
/// nothing. Packets that were due in a shorter time leave at once.
pub const HALT: Duration = Duration::from_secs(1);

/// Lateness from which the last packet, and packets for [`HALT`] on end, do not hold their rate.
pub const LATE: Duration = Duration::from_millis(10);

/// Most spells of a sender with a message.
const SPELLS: u32 = 10;

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

/// Lateness of packets, and the spells in which they do not hold their rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    last: Duration,
    fell_behind: bool,
    /// Time since which every packet was late, and since which every packet was on time.
    since: Option<Duration>,
    on_time: Option<Duration>,
    /// Whether the spell has its message.
    is_told: bool,
    told: u32,
}

/// A spell of late packets, for a message while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Lateness of the packet.
    pub late: Duration,
    /// Time for which no packet could leave; zero if packets left, and too slowly.
    pub halted: Duration,
    /// Whether later spells have no message.
    pub is_last: bool,
}

impl Lateness {
    /// Notes that the packet leaves that was due at `due`. Returns the spell, once in each: packets left late for [`HALT`], or one was as late.
    #[inline]
    pub fn leaves(&mut self, clock: &mut Clock, due: Duration) -> Option<Behind> {
        let halted = clock.halted();
        self.last = clock.leaves(due);
        if self.last > LATE {
            return self.behind(clock.now(), clock.halted() - halted);
        }
        self.since = None;
        if self.is_told {
            // A port that halts a sender again and again lets some packets leave on time in between.
            let on_time = *self.on_time.get_or_insert(clock.now());
            self.is_told = clock.now().saturating_sub(on_time) <= HALT;
        }
        None
    }

    /// Notes that a packet arrived this late, where the port knows it.
    pub fn arrived(&mut self, late: Duration) {
        self.fell_behind |= late > HALT;
    }

    #[cold]
    fn behind(&mut self, now: Duration, halted: Duration) -> Option<Behind> {
        let since = *self.since.get_or_insert(now);
        self.on_time = None;
        self.fell_behind |= self.last > HALT;
        let is_long = self.last > HALT || now.saturating_sub(since) > HALT;
        if !is_long || self.is_told || self.told == SPELLS {
            return None;
        }
        self.is_told = true;
        self.told += 1;
        Some(Behind {
            late: self.last,
            halted,
            is_last: self.told == SPELLS,
        })
    }

    /// Lateness of the last packet.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// Whether a packet left more than a second late.
    pub fn fell_behind(&self) -> bool {
        self.fell_behind
    }

    /// Whether the packets left at the wanted rate: the last packet at most 10 ms late, and no packet more than a second late.
    pub fn is_held(&self) -> bool {
        self.last <= LATE && !self.fell_behind
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

    #[test]
    fn a_spell_of_late_packets_is_told_once() {
        let ms = Duration::from_millis;
        let (mut clock, mut lateness) = (Clock::begin(), Lateness::default());
        let mut leaves = |now: u64, due: u64| {
            clock.advance(ms(now));
            let told = lateness.leaves(&mut clock, ms(due));
            (told.map(|it| (it.late, it.halted)), lateness.is_held())
        };
        let told = |late, halted| Some((ms(late), ms(halted)));
        // Packets that are on time in between, or late for less than a second, are none.
        assert_eq!(leaves(400, 300), (None, false));
        assert_eq!(leaves(900, 895), (None, true));
        assert_eq!(leaves(1_000, 980), (None, false));
        assert_eq!(leaves(2_000, 1_970), (None, false));
        assert_eq!(leaves(2_001, 1_970), (told(31, 0), false));
        assert_eq!(leaves(2_900, 2_000), (None, false));
        assert_eq!(leaves(3_700, 2_500), (None, false));
        // A halt in a spell is part of it, and so is one soon after it.
        assert_eq!(leaves(9_000, 4_000), (None, false));
        assert_eq!(leaves(9_010, 4_009), (None, false));
        assert_eq!(leaves(12_010, 4_020), (None, false));
        assert_eq!(leaves(12_020, 4_025), (None, false));
        // A second of packets that were on time ends it.
        assert_eq!(leaves(12_900, 4_905), (None, false));
        assert_eq!(leaves(13_500, 5_500), (None, false));
        let halt = leaves(16_000, 5_600);
        assert_eq!(halt, (told(2_410, 2_410), false));
        let mut told = 2;
        for step in 0..40 {
            let (elapsed, now) = (16_500 + 1_800 * step, 6_090 + 1_800 * step);
            told += u32::from(leaves(elapsed, now).0.is_some());
            told += u32::from(leaves(elapsed + 600, now + 600).0.is_some());
            told += u32::from(leaves(elapsed + 1_200, now + 1_200).0.is_some());
            told += u32::from(leaves(elapsed + 1_750, now - 100).0.is_some());
        }
        assert_eq!(told, SPELLS);
    }
}
