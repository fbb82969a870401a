//! A bounded queue of answers from the thread of a run to its caller.

use crate::heard::locked;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The end of a queue at which answers are taken.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    shared: Arc<Shared<T>>,
}

/// The end of a queue at which answers are added. The queue ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Feed<T> {
    shared: Arc<Shared<T>>,
    room: usize,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// Whether no more answers are taken.
    left: bool,
    /// Whether no more answers come.
    ended: bool,
}

/// Result of [`Queue::next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<T> {
    Some(T),
    /// Nothing came in that time.
    Nothing,
    /// Nothing waits, and nothing comes any more.
    End,
}

/// Makes a queue with room for `room` answers.
pub(crate) fn queue<T>(room: usize) -> (Feed<T>, Queue<T>) {
    let state = State {
        waiting: VecDeque::with_capacity(room),
        left: false,
        ended: false,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    (
        Feed {
            shared: Arc::clone(&shared),
            room,
        },
        Queue { shared },
    )
}

impl<T> Feed<T> {
    /// Whether there is room. Only this end adds answers, so that the room stays.
    pub fn has_room(&self) -> bool {
        locked(&self.shared.state).waiting.len() < self.room
    }

    /// Adds an answer. If the queue is full, waits until there is room. Once no more answers are taken, the answer is dropped.
    pub fn add(&self, answer: T) {
        let has_room = |state: &mut State<T>| !state.left && state.waiting.len() >= self.room;
        let state = locked(&self.shared.state);
        let mut state = self
            .shared
            .changed
            .wait_while(state, has_room)
            .unwrap_or_else(PoisonError::into_inner);
        if !state.left {
            state.waiting.push_back(answer);
            self.shared.changed.notify_all();
        }
    }
}

impl<T> Feed<T> {
    /// Adds an answer. If the queue is full, its oldest answer is dropped.
    pub fn add_or_forget(&self, answer: T) {
        let mut state = locked(&self.shared.state);
        if state.waiting.len() >= self.room {
            state.waiting.pop_front();
        }
        state.waiting.push_back(answer);
        self.shared.changed.notify_all();
    }
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        locked(&self.shared.state).ended = true;
        self.shared.changed.notify_all();
    }
}

impl<T> Queue<T> {
    /// Waits at most `most` for the next answer.
    pub fn next(&self, most: Duration) -> Taken<T> {
        let until = Instant::now().checked_add(most);
        let mut state = locked(&self.shared.state);
        loop {
            if let Some(answer) = state.waiting.pop_front() {
                self.shared.changed.notify_all();
                return Taken::Some(answer);
            }
            if state.ended || state.left {
                return Taken::End;
            }
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Taken::Nothing;
            }
            // A longer wait than the system knows begins again.
            let left = left.min(Duration::from_secs(3600));
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Whether an answer waits, or none comes any more.
    pub fn is_ready(&self) -> bool {
        let state = locked(&self.shared.state);
        state.ended || !state.waiting.is_empty()
    }

    /// Whether no answer waits, and none comes any more.
    pub fn is_over(&self) -> bool {
        let state = locked(&self.shared.state);
        state.ended && state.waiting.is_empty()
    }

    /// Takes no more answers: waiting answers are dropped, and no thread waits for room any more.
    pub fn leave(&self) {
        let mut state = locked(&self.shared.state);
        state.left = true;
        state.waiting.clear();
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_holds_up_its_feed_until_an_answer_is_taken_or_the_caller_leaves() {
        let (feed, queue) = queue(2);
        assert_eq!(queue.next(Duration::ZERO), Taken::Nothing);
        let work = std::thread::spawn(move || {
            (0..5).for_each(|n| feed.add(n));
            feed.has_room()
        });
        // Two are taken and two wait, so that the last one waits for room until nobody takes answers.
        while !queue.is_ready() {
            std::thread::yield_now();
        }
        assert_eq!(queue.next(Duration::MAX), Taken::Some(0));
        assert_eq!(queue.next(Duration::from_secs(9)), Taken::Some(1));
        queue.leave();
        assert!(
            work.join().expect("no panic"),
            "what is not taken is dropped"
        );
        assert_eq!(queue.next(Duration::MAX), Taken::End);
    }

    #[test]
    fn answers_that_wait_are_taken_after_the_end() {
        let (feed, queue) = queue(2);
        feed.add("a");
        assert!(feed.has_room());
        feed.add("b");
        assert!(!feed.has_room());
        drop(feed);
        assert!(queue.is_ready() && !queue.is_over());
        assert_eq!(
            [queue.next(Duration::ZERO), queue.next(Duration::ZERO)],
            [Taken::Some("a"), Taken::Some("b")]
        );
        assert!(queue.is_over());
        assert_eq!(queue.next(Duration::ZERO), Taken::End);
    }
}
