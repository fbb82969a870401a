//! Messages of a run, gathered for the caller.

use crate::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_engine::event::Event;
use weir_messages::events::{Line, Listener};

/// Messages of a run so far.
#[derive(Debug)]
pub(crate) struct Heard {
    pub listener: Listener,
    pub faults: Vec<String>,
    pub remarks: Vec<String>,
    /// Whether a source was begun.
    pub begun: bool,
    /// Whether packets of a source were read.
    pub has_read: bool,
}

/// The library restricts nothing, so there is nothing to advise.
fn no_advice(_: &Path, _: weir_io::sys::Access) -> &'static str {
    ""
}

/// Locks a mutex, also after a panic.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    pub fn new() -> Arc<Mutex<Self>> {
        let listener = Listener::new(false, no_advice);
        let (faults, remarks) = (Vec::new(), Vec::new());
        Arc::new(Mutex::new(Self {
            listener,
            faults,
            remarks,
            begun: false,
            has_read: false,
        }))
    }

    pub fn add(&mut self, lines: impl IntoIterator<Item = Line>) {
        for line in lines {
            match line {
                Line::Fault(line) => self.faults.push(line),
                Line::Remark(line) | Line::Plain(line) => self.remarks.push(line),
            }
        }
    }

    pub fn event(&mut self, event: &Event<'_>) {
        self.begun |= matches!(event, Event::Begun { .. });
        self.has_read |= matches!(event, Event::Progress { .. });
        let lines = self.listener.event(event);
        self.add(lines);
    }

    /// The errors so far as an error, a line each.
    pub fn failure(&self) -> Option<Error> {
        (!self.faults.is_empty()).then(|| Error::Failed(self.faults.join("\n")))
    }
}

/// Waits until `is_begun`, so that a wrong name or expression is an error of the opening; seconds at most.
pub(crate) fn wait_for(mut is_begun: impl FnMut() -> bool) {
    /// Number of looks, a millisecond apart.
    const LOOKS: usize = 10_000;
    for _ in 0..LOOKS {
        if is_begun() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
