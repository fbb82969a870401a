//! Directions of forwarding that are read at once, each in a thread of its own.

use super::Error;
use crate::event::Event;
use crate::run::Run;
use crate::session::{End, Session};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Interval between two calls of the function that looks around.
const LOOK: Duration = Duration::from_millis(100);

/// A direction: a session that has begun, its run, and the function that hears its events.
pub(super) type Direction<'a, 'b> = (
    &'a mut Session,
    &'a mut Run,
    Box<dyn FnMut(Event<'_>) + Send + 'b>,
);

/// Reads all directions to the end of one, which sets `stop` and so ends the others. This thread calls `look` at intervals. Returns the
/// cause of the first end.
pub(super) fn forward<'a, 'b>(
    directions: impl IntoIterator<Item = Direction<'a, 'b>>,
    stop: &AtomicBool,
    look: &mut dyn FnMut(),
) -> Result<End, Error> {
    let ended = Mutex::new(None);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (session, run, mut hear)) in directions.into_iter().enumerate() {
            let ended = &ended;
            let work = move || {
                let done = session.read(run, &mut hear);
                let mut by = ended.lock().unwrap_or_else(PoisonError::into_inner);
                by.get_or_insert(run.ended_by());
                stop.store(true, Ordering::Relaxed);
                done
            };
            let thread = Builder::new().name(format!("direction {number}"));
            threads.push(thread.spawn_scoped(scope, work).map_err(|error| {
                stop.store(true, Ordering::Relaxed);
                Error::Thread(error)
            })?);
        }
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(LOOK);
            look();
        }
        // All threads are joined before the first error is returned.
        let all: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        all.into_iter().try_for_each(|done| match done {
            Ok(done) => done.map_err(Error::Run),
            Err(_) => Err(Error::Panic),
        })
    })?;
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(ended.unwrap_or_default())
}
