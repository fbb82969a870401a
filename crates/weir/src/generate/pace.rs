//! Departure times of packets, and the progress line and summary of a sending run.

use crate::numbers::{bit_rate, duration, grouped, rate};
use crate::outcome::show;
use crate::rate::say_behind;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_engine::clock::{Clock, Lateness};
use weir_engine::name::Name;

/// The clock of a sending run. A stop flag ends the run.
pub struct Pace {
    clock: Clock,
    stop: Arc<AtomicBool>,
    /// Time after which the run is over.
    end: Option<Duration>,
    on_terminal: bool,
    shown: Option<Duration>,
    /// Time after which nothing more leaves, once it is over.
    ended: Option<Duration>,
    late: Lateness,
    /// Name of the port, for messages while packets leave; `None` for none.
    port: Option<Name>,
}

/// Counters of a sending run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub packets: u64,
    pub bytes: u64,
    pub refused: u64,
}

impl Pace {
    /// Longest sleep. The stop flag, and whether orders wait, are checked after each.
    pub const LOOK: Duration = Duration::from_millis(20);

    const SHOW: Duration = Duration::from_millis(250);

    /// Starts the clock of a port. The run is over once `stop` is set, or after the time `end`.
    pub fn begin(port: &Name, stop: &Arc<AtomicBool>, end: Option<Duration>) -> Self {
        Self {
            on_terminal: io::stderr().is_terminal(),
            port: Some(port.clone()),
            ..Self::quiet(stop, end)
        }
    }

    /// Starts the clock again, before the first packet.
    pub fn restart(&mut self) {
        self.clock = Clock::begin();
    }

    /// As [`Self::begin`], without progress and messages.
    pub fn quiet(stop: &Arc<AtomicBool>, end: Option<Duration>) -> Self {
        Self {
            clock: Clock::begin(),
            stop: Arc::clone(stop),
            end,
            on_terminal: false,
            shown: None,
            ended: None,
            late: Lateness::default(),
            port: None,
        }
    }

    /// The same clock for another sender, without progress, and with messages or none.
    pub fn twin(&self, speaks: bool) -> Self {
        Self {
            clock: self.clock,
            port: self.port.clone().filter(|_| speaks),
            ..Self::quiet(&self.stop, self.end)
        }
    }

    /// Takes over how late the packets of another sender were, if it held its rate no better.
    pub fn take_late(&mut self, other: &Self) {
        if self.late.is_held() {
            (self.late, self.clock) = (other.late, other.clock);
        }
    }

    /// Notes that the last packet has left.
    pub fn ends_now(&mut self) {
        self.clock.read();
        self.ended = Some(self.clock.elapsed());
    }

    /// Notes that a packet leaves that was due at `due`.
    pub fn leaves(&mut self, due: Duration) {
        let behind = self.late.leaves(&mut self.clock, due);
        if let Some(behind) = behind
            && let Some(port) = self.port.clone()
        {
            self.clear();
            say_behind(&port, behind);
        }
    }

    /// Time by which packets left later than they were due, because none could leave before.
    pub fn halted(&self) -> Duration {
        self.clock.halted()
    }

    /// Lateness of the packets.
    pub fn late(&self) -> Lateness {
        self.late
    }

    /// Whether the run has a time after which it is over.
    pub fn ends(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the stop flag is set, or the end had come when the clock was last read.
    pub fn is_over(&self) -> bool {
        self.is_stopped() || self.end.is_some_and(|end| self.clock.elapsed() >= end)
    }

    /// Whether the stop flag is set.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads the clock.
    pub fn now(&mut self) -> Duration {
        self.clock.read()
    }

    /// Whether `due` has arrived. **Cost**: no clock reading if `due` had passed at the last
    /// reading.
    pub fn is_due(&mut self, due: Duration) -> bool {
        due <= self.clock.now() || due <= self.now()
    }

    /// Sleeps until `due`, or until the run is over. The kernel wakes us some 50 us late; packets
    /// that became due in the meantime are sent at once.
    pub fn wait(&mut self, due: Duration) {
        while !self.is_over() && !self.is_due(due) {
            self.nap(due);
        }
    }

    /// Sleeps until `due`, or until it is time to look around.
    pub fn nap(&self, due: Duration) {
        let clock = &self.clock;
        let rest = due.saturating_sub(clock.now());
        let end = self.end.map(|end| end.saturating_sub(clock.elapsed()));
        std::thread::sleep(rest.min(end.unwrap_or(rest)).min(Self::LOOK));
    }

    /// Shows the progress on a terminal. Reads the clock there.
    pub fn show(&mut self, packets: u64) {
        if !self.on_terminal {
            return;
        }
        self.now();
        let now = self.clock.elapsed();
        if now - self.shown.unwrap_or_default() > Self::SHOW {
            self.shown = Some(now);
            let per_s = rate(packets as f64 / now.as_secs_f64());
            show(&format!(
                "\r{} sent, {per_s} packets/s\x1b[K",
                grouped(packets)
            ));
        }
    }

    /// Clears the progress line.
    pub fn clear(&mut self) {
        if self.shown.take().is_some() {
            show("\r\x1b[K");
        }
    }

    /// Summary of the run: `500 sent, 30 000 bytes, 0.50 s, 1 000 packets/s, 480 kbit/s (frames without FCS), 0 refused`.
    pub fn summary(&self, tally: Tally, done: &str) -> String {
        let Tally {
            packets,
            bytes,
            refused,
        } = tally;
        let time = self.ended.unwrap_or_else(|| {
            let mut clock = self.clock;
            clock.read();
            clock.elapsed()
        });
        let seconds = time.as_secs_f64().max(1e-9);
        let interrupted = if self.is_stopped() {
            ", interrupted"
        } else {
            ""
        };
        format!(
            "{} {done}, {} bytes, {}, {} packets/s, {} (frames without FCS), {} refused{interrupted}",
            grouped(packets),
            grouped(bytes),
            duration(time),
            rate(packets as f64 / seconds),
            bit_rate(bytes as f64 * 8.0 / seconds),
            grouped(refused),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_early_and_lateness_does_not_add_up() {
        let mut pace = Pace::quiet(&Arc::default(), None);
        let mut latest = Duration::ZERO;
        for step in 1..=40 {
            let due = Duration::from_micros(500 * step);
            pace.wait(due);
            let now = pace.now();
            assert!(now >= due);
            latest = now - due;
        }
        // Forty sleeps, each some 50 us late, would add up to 2 ms if each began where the last
        // ended. A busy machine may take longer for a single sleep, so that only a much larger
        // delay shows an error.
        assert!(latest < Duration::from_millis(300), "{latest:?}");
    }
}
