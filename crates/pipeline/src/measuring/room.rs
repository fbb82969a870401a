//! Limit of the number of closed windows of live sources that are not given out yet.
//!
//! A live source cannot wait. While there is no room for the windows it closes, it counts all packets in the newest window, and
//! reports the windows left out. This costs no memory and no time, and no packet is missing in the sum.

use super::keys::KeyChange;
use super::worker::{Closed, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use weir_measure::Config;

/// Room for parts of windows; each part has tables of its own.
#[derive(Debug)]
pub(super) struct Room {
    most: AtomicUsize,
    parts: AtomicUsize,
    /// For each source: whether a message without a window was sent and not read yet.
    unread: Vec<AtomicBool>,
}

impl Room {
    /// Makes the room for `sources` sources.
    pub fn new(config: &Config, sources: usize) -> Self {
        let unread = (0..sources).map(|_| AtomicBool::new(false)).collect();
        let room = Self {
            most: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
            unread,
        };
        room.fit(config);
        room
    }

    /// Sets the number of parts to the number for which there is memory, with tables for `config`.
    fn fit(&self, config: &Config) {
        /// Approximate memory of all parts, bytes.
        const MOST_BYTES: usize = 256 << 20;
        let bytes = config
            .memory
            .saturating_mul(config.keys.len())
            .max(512 << 10);
        let open = usize::try_from(config.windowing.most_open()).unwrap_or(usize::MAX);
        let least = open.saturating_mul(self.unread.len()).saturating_mul(4);
        self.most
            .store((MOST_BYTES / bytes).max(least), Ordering::Relaxed);
    }

    /// Takes room for `parts` parts if then at most 1/`share` of all room is taken. Returns whether the room was taken.
    fn take(&self, parts: usize, share: usize) -> bool {
        let most = self.most.load(Ordering::Relaxed) / share;
        let fits = |taken: usize| Some(taken + parts).filter(|&taken| taken <= most);
        self.parts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    /// Gives the room of `parts` parts back.
    pub fn give_back(&self, parts: usize) {
        let taken = self.parts.fetch_sub(parts, Ordering::Relaxed);
        debug_assert!(
            parts <= taken,
            "{parts} parts come back, and {taken} are out"
        );
    }

    /// Whether all room was given back.
    pub fn is_empty(&self) -> bool {
        self.parts.load(Ordering::Relaxed) == 0
    }

    /// Notes that a message of this source was read.
    pub fn read(&self, source: usize) {
        self.unread[source].store(false, Ordering::Relaxed);
    }
}

/// Closes the windows of one live source.
#[derive(Debug)]
pub(super) struct Gate {
    source: usize,
    room: Arc<Room>,
    /// While windows are left out: the first such window not yet reported. The inner `None` stands for the next window that closes.
    folds: Option<Option<i64>>,
}

impl Gate {
    pub fn new(source: usize, room: Arc<Room>) -> Self {
        Self {
            source,
            room,
            folds: None,
        }
    }

    /// Closes the windows before number `before`. Returns the message for the merger, if there is one.
    pub fn close(&mut self, worker: &mut Worker, before: i64) -> Option<Closed> {
        let last = before.saturating_sub(1).min(worker.extract.number());
        let Some(first) = self.folds else {
            let first = worker
                .extract
                .numbers()
                .next()
                .filter(|number| *number < before);
            let Some(first) = first else {
                return self.tell(worker.close(before));
            };
            let closing = worker
                .extract
                .numbers()
                .take_while(|number| *number < before)
                .count();
            if self.room.take(closing, 1) {
                return Some(worker.close(before));
            }
            worker.fold(true);
            return self.leave_out(first, last, before);
        };
        let first = first.unwrap_or(last);
        let parts = worker.extract.numbers().len();
        if before == i64::MAX || !self.room.take(parts, 2) {
            return self.leave_out(first, last, before);
        }
        self.folds = None;
        // These windows are incomplete: some of their packets were counted in other windows.
        let left_out = Some((first, last.max(worker.extract.number())));
        Some(Closed {
            before,
            left_out,
            ..worker.fold(false)
        })
    }

    /// Leaves out the windows from `first` to `last`, and closes the windows before number
    /// `before`.
    fn leave_out(&mut self, first: i64, last: i64, before: i64) -> Option<Closed> {
        let told = self.tell(Closed {
            before,
            left_out: Some((first, last)),
            ..Closed::default()
        });
        let next = if told.is_some() { before } else { first };
        // If time begins again, the next window that closes is the first one.
        self.folds = Some(Some(next).filter(|&next| next != i64::MAX));
        told
    }

    /// Closes all windows at the end of the source.
    pub fn end(mut self, worker: &mut Worker) -> Closed {
        self.close_all(worker)
    }

    /// Closes all windows, whether or not there is room, and switches to other tables.
    pub fn replace(
        &mut self,
        worker: &mut Worker,
        change: &Arc<KeyChange>,
    ) -> Result<Closed, weir_measure::Error> {
        let closed = self.close_all(worker);
        worker.take_up(change)?;
        self.room.fit(change.config());
        Ok(Closed {
            replaces: Some(Arc::clone(change)),
            ..closed
        })
    }

    fn close_all(&mut self, worker: &mut Worker) -> Closed {
        let last = worker.extract.number();
        let left_out = self.folds.take().map(|first| (first.unwrap_or(last), last));
        self.room
            .parts
            .fetch_add(worker.extract.numbers().len(), Ordering::Relaxed);
        Closed {
            before: i64::MAX,
            left_out,
            ..worker.fold(false)
        }
    }

    /// Returns the message if it is due. A message without windows is due only if it ends a turn,
    /// or if the last such message was read. Else a later message replaces it.
    fn tell(&self, closed: Closed) -> Option<Closed> {
        if closed.windows() > 0 || closed.before == i64::MAX {
            return Some(closed);
        }
        (!self.room.unread[self.source].swap(true, Ordering::Relaxed)).then_some(closed)
    }
}
