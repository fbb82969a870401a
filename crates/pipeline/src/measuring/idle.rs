//! What a thread does that finds nothing to do.

use std::time::Duration;

/// First spins, then yields, then sleeps, longer and longer: the shorter the pause, the sooner work is seen; the longer, the more is left of
/// the processor to those who have work.
#[derive(Debug, Default)]
pub struct Idle {
    rounds: u32,
}

impl Idle {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 128;
    const NAP: Duration = Duration::from_micros(25);
    /// Naps double up to this many times: to 1.6 ms.
    const LONGEST: u32 = 6;

    /// There was work.
    pub fn reset(&mut self) {
        self.rounds = 0;
    }

    /// There was none.
    pub fn pause(&mut self) {
        match self.rounds {
            0..Self::SPINS => std::hint::spin_loop(),
            Self::SPINS..Self::YIELDS => std::thread::yield_now(),
            rounds => std::thread::sleep(Self::NAP * (1 << (rounds / Self::YIELDS).min(Self::LONGEST))),
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}
