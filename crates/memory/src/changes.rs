//! Grace periods: waits until every thread has ended the step that it began before a change.
//!
//! Changes are numbered from 1 on. A thread works in steps, and marks each step with the number of the latest change at its
//! start. [`Changes::wait`] returns once all steps that began before the change have ended: then no thread uses the value
//! before the change. (In the terms of read-copy-update, steps are read-side critical sections.) A thread between two steps
//! delays no wait.
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

/// The changes so far, and the threads that work in steps.
#[derive(Debug, Default)]
pub struct Changes {
    number: AtomicU64,
    marks: Mutex<Vec<Arc<AtomicU64>>>,
}

/// Mark of a thread between two steps. In a step, the mark is the number of the latest change at its start, plus 1.
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

    /// Announces a change whose value is in place, and returns its number. A step that begins from now on finds this number.
    pub fn publish(&self) -> u64 {
        self.publish_several(1)
    }

    /// Announces `count` changes at once, and returns the number of the last. No step finds a part of them.
    pub fn publish_several(&self, count: u64) -> u64 {
        self.number.fetch_add(count, Ordering::AcqRel) + count
    }

    /// Waits until all steps that began before `change` have ended; `false` if one still runs after `timeout`.
    pub fn wait(&self, change: u64, timeout: Duration) -> bool {
        /// First pause: steps last from microseconds to the time in which a disk answers, and a sleep is never short.
        const FIRST: Duration = Duration::from_micros(5);
        const LONGEST: Duration = Duration::from_millis(1);
        const SPUN: Duration = Duration::from_micros(50);
        let (begun, mut pause) = (Instant::now(), FIRST);
        while !self.has_grace_period_ended(change) {
            let waited = begun.elapsed();
            if waited >= timeout {
                return false;
            }
            if waited < SPUN {
                std::hint::spin_loop();
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST);
        }
        true
    }

    /// Whether all steps that began before `change` have ended.
    pub fn has_grace_period_ended(&self, change: u64) -> bool {
        // Pairs with the fence in `Steps::begin`: a thread whose mark is not seen here sees the change.
        fence(Ordering::SeqCst);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        // Forgets the marks of ended threads.
        marks.retain(|mark| Arc::strong_count(mark) > 1);
        marks.iter().all(|mark| {
            let mark = mark.load(Ordering::Acquire);
            mark == QUIESCENT || mark > change
        })
    }
}

impl Steps {
    /// The steps of one more thread.
    pub fn new(changes: &Arc<Changes>) -> Self {
        let mark = Arc::new(AtomicU64::new(QUIESCENT));
        changes
            .marks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&mark));
        Self {
            changes: Arc::clone(changes),
            mark,
        }
    }

    /// Begins a step, and returns the number of the latest change. **Cost**: two stores at most, one of them with a fence.
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

    /// Ends the step. **Cost**: a store.
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
        assert!(
            !changes.has_grace_period_ended(first),
            "a step goes on that began before it"
        );
        assert!(!changes.wait(first, Duration::ZERO));
        assert_eq!(other.begin(), 1);
        one.end();
        assert!(
            changes.has_grace_period_ended(first),
            "the other step began behind it"
        );
        let second = changes.publish();
        assert!(!changes.has_grace_period_ended(second));
        drop(other);
        assert!(
            changes.wait(second, Duration::MAX),
            "a thread that is gone holds up nobody"
        );
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;

    /// Once the grace period of a change has ended, no step uses the value before it, so that value may be taken back.
    #[test]
    fn nobody_works_by_what_was_there_before_a_change_that_has_grace_period_ended() {
        loom::model(|| {
            let changes = Arc::new(Changes {
                number: AtomicU64::new(0),
                marks: Mutex::default(),
            });
            // Value i is valid until change i + 1 has passed.
            let gone = Arc::new(AtomicU64::new(0));
            let steps = Steps::new(&changes);
            let seen = Arc::clone(&gone);
            let worker = thread::spawn(move || {
                for _ in 0..2 {
                    let value = steps.begin();
                    assert!(
                        seen.load(Ordering::Acquire) <= value,
                        "value {value} is used and gone"
                    );
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
