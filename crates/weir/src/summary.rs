//! The line about a finished run on standard error.

use crate::numbers::{duration, grouped};
use std::time::Duration;
use weir_engine::session::End;

/// Contents of the line about a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// Packets that arrived at the sources.
    pub received: u64,
    /// Fates of the packets, in the words of the command: `3 matched (30 %)`. Empty words are left out.
    pub fates: Vec<String>,
    /// Time that the run took.
    pub time: Duration,
    /// Words after the time.
    pub after: String,
    /// How the run ended.
    pub ending: Ending,
    /// Whether the kernel rejected packets that are in no count.
    pub is_uncounted: bool,
    /// Whether an error was reported before.
    pub is_incomplete: bool,
}

/// How a run ended, and how it could have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending {
    pub by: End,
    /// Whether the sources have no end: captures, and files that are followed.
    pub is_endless: bool,
    /// Whether the run was to end after some time.
    pub has_duration: bool,
}

impl Ending {
    /// Whether a signal has ended the run.
    pub fn is_interrupted(self) -> bool {
        self.by == End::Signal
    }

    /// Words on an early end of the run; for a run without another end, a signal is the normal end.
    fn words(self) -> &'static str {
        match self.by {
            End::Signal if !self.is_endless || self.has_duration => ", interrupted",
            End::Duration if !self.is_endless => ", ended by --duration",
            _ => "",
        }
    }
}

impl Summary {
    /// Returns the line, with its end.
    pub fn line(&self) -> String {
        let fates = self.fates.iter().filter(|words| !words.is_empty());
        let fates: String = fates.map(|words| format!(", {words}")).collect();
        let uncounted = if self.is_uncounted {
            "; what the kernel rejected is not counted"
        } else {
            ""
        };
        let incomplete = if self.is_incomplete {
            ", incomplete: see the fault above"
        } else {
            ""
        };
        format!(
            "{} received{fates}, {}{}{}{uncounted}{incomplete}\n",
            grouped(self.received),
            duration(self.time),
            self.after,
            self.ending.words(),
        )
    }
}

/// Words on a count that is reported if it is not 0.
pub fn if_any(count: u64, what: &str) -> String {
    match count {
        0 => String::new(),
        count => format!("{} {what}", grouped(count)),
    }
}

/// Packets that `--dedup` left out, if it was given.
pub fn duplicates(asked: bool, duplicates: u64) -> String {
    match (asked, duplicates) {
        (false, _) => String::new(),
        (true, 1) => "1 duplicate".to_owned(),
        (true, duplicates) => format!("{} duplicates", grouped(duplicates)),
    }
}

/// Packets that the firewall of `--rules` denied, if there is one.
pub fn denied(judges: bool, denied: u64) -> String {
    if judges {
        format!("{} denied", grouped(denied))
    } else {
        String::new()
    }
}
