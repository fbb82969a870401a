//! Messages of a run, gathered for the caller.

use crate::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_engine::capture::{CaptureRequest, Notice, open, rings};
use weir_engine::event::Event;
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_io::Input;
use weir_io::input::comes_in_order;
use weir_messages::captures;
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

/// Locks a mutex, also behind a panic.
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

    /// The faults so far as an error, a line each.
    pub fn failure(&self) -> Option<Error> {
        (!self.faults.is_empty()).then(|| Error::Failed(self.faults.join("\n")))
    }
}

/// Begins to capture from interfaces. No inputs come if `stop` is set while an interface is waited for.
pub(crate) fn open_captures(
    names: &[Name],
    request: &CaptureRequest<'_>,
    stop: &Arc<AtomicBool>,
    heard: &Mutex<Heard>,
) -> Result<Vec<Input>, Error> {
    rings::check(names, &request.settings)
        .map_err(|error| Error::refused(captures::too_large(&error)))?;
    let mut inputs = Vec::new();
    for name in names {
        let mut hear = |notice: Notice<'_>| {
            locked(heard)
                .remarks
                .extend(captures::notice_line(notice).map(|(line, _)| line));
        };
        let opened = open(name, request, stop, &mut hear);
        inputs.extend(
            opened
                .map_err(|error| Error::refused(captures::refusal(name, error)))?
                .inputs,
        );
    }
    if inputs.is_empty() {
        return Err(Error::failed(
            "the opening was stopped while it waited for an interface",
        ));
    }
    Ok(inputs)
}

/// Whether files are read at once. Of a pipe, nobody knows when its first packet comes.
pub(crate) fn come_at_once(names: &[Name]) -> bool {
    names
        .iter()
        .all(|name| !name.is_dash() && !comes_in_order(name))
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

/// Waits until the threads of a run that has ended have left; a moment at most.
pub(crate) fn wait_for_threads<E: Send + 'static>(handle: &Handle<E>) {
    for _ in 0..100 {
        if handle.threads().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
