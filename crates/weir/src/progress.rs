//! Progress of long work.

use crate::numbers::{bytes, percent};
use crate::outcome::show;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// A progress line on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    enabled: bool,
    begun: Instant,
    shown: Option<Instant>,
    whole: Option<u64>,
}

impl Progress {
    const FIRST: Duration = Duration::from_millis(700);
    const EVERY: Duration = Duration::from_millis(150);

    /// Shows nothing if `busy`, because the terminal shows the results of the work.
    pub fn new(busy: bool) -> Self {
        Self {
            enabled: io::stderr().is_terminal() && !busy,
            begun: Instant::now(),
            shown: None,
            whole: None,
        }
    }

    /// Begins a source of `whole` bytes, if that size is known.
    pub fn begin(&mut self, whole: Option<u64>) {
        self.whole = whole;
    }

    /// Shows that `offset` bytes of the source are done, at most once in 150 ms.
    pub fn show(&mut self, offset: u64) {
        let now = Instant::now();
        let due = match self.shown {
            None => now - self.begun > Self::FIRST,
            Some(last) => now - last > Self::EVERY,
        };
        if !self.enabled || !due {
            return;
        }
        self.shown = Some(now);
        let share = self.whole.map_or(String::new(), |whole| {
            format!(" ({})", percent(offset, whole))
        });
        show(&format!("\r{} read{share}\x1b[K", bytes(offset)));
    }

    /// Clears the progress line.
    pub fn clear(&mut self) {
        if self.shown.take().is_some() {
            show("\r\x1b[K");
        }
    }
}
