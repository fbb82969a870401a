//! Grace periods: waits until every thread has ended the step that it began before a change.
//!
//! A change has a number, from 1 on. A thread works in steps, and marks each step with the number that it begins under.
//! [`Changes::wait`] returns once all steps have ended that began before the change: then no thread works by what was there
//! before. (In the terms of read-copy-update, steps are read-side critical sections.) A thread between two steps is waited for
//! by nobody.
//!
//! Checked under loom as it is shipped.

#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(loom)]
use loom::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Changes so far, and the threads that work in steps.
#[derive(Debug, Default)]
pub struct Changes {
    number: AtomicU64,
    marks: Mutex<Vec<Arc<AtomicU64>>>,
}

/// A thread's mark between two steps. In a step it is the number of the change that the step began under, plus 1.
const QUIESCENT: u64 = 0;

/// The steps of one thread.
#[derive(Debug)]
pub struct Steps {
    changes: Arc<Changes>,
    mark: Arc<AtomicU64>,
}

impl Changes {
    /// Number of the latest change, 0 before the first.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// There is a change, whose value is in place: a step that begins from now on finds its number, which is returned.
    pub fn publish(&self) -> u64 {
        self.number.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until all steps have ended that began before `change`; `false` if one goes on after `timeout`.
    pub fn wait(&self, change: u64, timeout: Duration) -> bool {
        /// Steps last from microseconds to the time in which a disk answers.
        const FIRST: Duration = Duration::from_micros(5);
        const LONGEST: Duration = Duration::from_millis(1);
        let (begun, mut pause) = (Instant::now(), FIRST);
        while !self.has_grace_period_ended(change) {
            if begun.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST);
        }
        true
    }

    /// Whether no step goes on that began before `change`.
    pub fn has_grace_period_ended(&self, change: u64) -> bool {
        // Together with the one in `Steps::begin`: a thread whose mark is not seen here sees the change.
        fence(Ordering::SeqCst);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of threads that are gone.
        marks.retain(|mark| Arc::strong_count(mark) > 1);
        marks.iter().all(|mark| {
            let mark = mark.load(Ordering::Acquire);
            mark == QUIESCENT || mark > change
        })
    }
}

impl Steps {
    /// The steps of another thread.
    pub fn new(changes: &Arc<Changes>) -> Self {
        let mark = Arc::new(AtomicU64::new(QUIESCENT));
        changes.marks.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&mark));
        Self { changes: Arc::clone(changes), mark }
    }

    /// Begins a step, and says which change is the latest. **Cost**: two stores at most, one of them with a fence.
    #[inline]
    pub fn begin(&self) -> u64 {
        let mut number = self.changes.number();
        loop {
            self.mark.store(number + 1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let now = self.changes.number();
            if now == number {
                return number;
            }
            number = now;
        }
    }

    /// Ends it. **Cost**: a store.
    #[inline]
    pub fn end(&self) {
        self.mark.store(QUIESCENT, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_for_steps_that_began_before_it_and_for_no_others() {
        let changes = Arc::new(Changes::default());
        let (one, other) = (Steps::new(&changes), Steps::new(&changes));
        assert_eq!(one.begin(), 0);
        let first = changes.publish();
        assert_eq!((first, changes.number()), (1, 1));
        assert!(!changes.has_grace_period_ended(first), "a step goes on that began before it");
        assert!(!changes.wait(first, Duration::ZERO));
        assert_eq!(other.begin(), 1);
        one.end();
        assert!(changes.has_grace_period_ended(first), "the other step began behind it");
        let second = changes.publish();
        assert!(!changes.has_grace_period_ended(second));
        drop(other);
        assert!(changes.wait(second, Duration::MAX), "a thread that is gone holds up nobody");
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;

    /// Once a change is passed, no step goes on with the value before it: it may be taken back.
    #[test]
    fn nobody_works_by_what_was_there_before_a_change_that_has_grace_period_ended() {
        loom::model(|| {
            let changes = Arc::new(Changes { number: AtomicU64::new(0), marks: Mutex::default() });
            // Value i is there until change i + 1 is passed.
            let gone = Arc::new(AtomicU64::new(0));
            let steps = Steps::new(&changes);
            let seen = Arc::clone(&gone);
            let worker = thread::spawn(move || {
                for _ in 0..2 {
                    let value = steps.begin();
                    assert!(seen.load(Ordering::Acquire) <= value, "value {value} is used and gone");
                    steps.end();
                }
            });
            let change = changes.publish();
            for _ in 0..2 {
                if changes.has_grace_period_ended(change) {
                    gone.store(change, Ordering::Release);
                    break;
                }
                thread::yield_now();
            }
            worker.join().unwrap();
        });
    }
}
