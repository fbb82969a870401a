//! Pauses of a thread without work.

use std::time::Duration;

/// Pauses that grow: first spins, then yields, then longer and longer sleeps. A short pause finds new work sooner; a long pause
/// leaves more of the processor to threads with work.
#[derive(Debug, Default)]
pub struct Idle {
    rounds: u32,
}

impl Idle {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 128;
    const NAP: Duration = Duration::from_micros(25);
    /// Number of times that a sleep doubles: up to 1.6 ms.
    const LONGEST: u32 = 6;

    /// Notes that there was work: the next pause is the shortest.
    pub fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Pauses, because there was no work.
    pub fn pause(&mut self) {
        match self.rounds {
            0..Self::SPINS => std::hint::spin_loop(),
            Self::SPINS..Self::YIELDS => std::thread::yield_now(),
            rounds => {
                std::thread::sleep(Self::NAP * (1 << (rounds / Self::YIELDS).min(Self::LONGEST)))
            }
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}
