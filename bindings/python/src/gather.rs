//! Gathering: batches of the library become batches of the size that Python needs.
//!
//! A call from Python costs microseconds, so a batch for Python holds tens of thousands of packets. It is made of parts: batches of the
//! library, or some packets of one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_api::{Error, Next, Source};

/// A batch of the library, and the bytes of a ring that it holds.
#[derive(Debug)]
pub struct Piece {
    batch: weir_api::Batch,
    bytes: usize,
    /// Bytes that all pieces of the source hold.
    out: Arc<AtomicUsize>,
}

impl std::ops::Deref for Piece {
    type Target = weir_api::Batch;

    fn deref(&self) -> &weir_api::Batch {
        &self.batch
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.out.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Packets of a batch of the library that passed its filter, as far as they belong to one batch for Python.
#[derive(Clone, Debug)]
pub struct Part {
    pub batch: Arc<Piece>,
    /// Number of the packet in its batch from which on packets are taken.
    pub first: usize,
    /// Packets of the part: those that passed, and no others.
    pub rows: usize,
}

impl Part {
    /// Whether each packet of the batch passed.
    pub fn is_whole(&self) -> bool {
        self.batch.judged().0 as usize == self.batch.len()
    }

    /// Numbers of the packets of the part in their batch.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        let passed = |&number: &usize| self.batch.verdicts().get(number, 1) == 1;
        (self.first..self.batch.len())
            .filter(passed)
            .take(self.rows)
    }

    /// Takes the first `rows` packets out of the part.
    fn split(&mut self, rows: usize) -> Self {
        let head = Self {
            batch: Arc::clone(&self.batch),
            first: self.first,
            rows,
        };
        self.first = if self.is_whole() {
            self.first + rows
        } else {
            self.numbers()
                .nth(rows)
                .expect("fewer packets are taken than the part has")
        };
        self.rows -= rows;
        head
    }
}

/// Limits of a batch for Python.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Packets of a full batch.
    pub rows: usize,
    /// Most batches of the library that are out, here and in Python.
    pub batches: usize,
    /// Longest time for which the first packet of a batch waits for the others.
    pub latency: Duration,
    /// None for files.
    pub ring: Option<Room>,
}

/// Memory of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Size of the ring, bytes.
    pub bytes: usize,
    /// Bytes that a packet takes of it next to its captured bytes.
    pub slot: usize,
    /// Least bytes that a batch of the library takes of it.
    pub block: usize,
}

impl Limits {
    /// Batches of the library that one batch holds at most. Next to the batch that a program works
    /// on, and the next one, the source has room to read on.
    fn parts(&self) -> usize {
        self.batches / LEAST_BATCHES
    }

    /// Bytes of the ring that one batch holds at most, for the same reason.
    fn bytes(&self) -> usize {
        self.ring
            .map_or(usize::MAX, |ring| ring.bytes / LEAST_BATCHES)
    }

    /// Whether a program that holds so much leaves no room for packets.
    fn is_used_up(&self, batches: usize, bytes: usize) -> bool {
        batches >= self.batches || self.ring.is_some_and(|ring| bytes >= ring.bytes / 2)
    }
}

/// Least value of [`Limits::batches`].
pub const LEAST_BATCHES: usize = 4;

/// Time without a batch after which a program is told that it holds all of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Parts that wait to become a batch.
#[derive(Debug)]
pub struct Gather {
    parts: VecDeque<Part>,
    rows: usize,
    /// Bytes of a ring that the parts hold.
    held: usize,
    /// Bytes that parts hold here and in Python.
    out: Arc<AtomicUsize>,
    /// Time at which the first packet arrived.
    since: Option<Instant>,
    /// Time at which the source is stopped.
    deadline: Option<Instant>,
    /// Time since when nothing can come, because all batches are held.
    starved: Option<Instant>,
    ended: bool,
    failure: Option<Error>,
}

/// Result of [`Gather::next`].
#[derive(Debug)]
pub enum Gathered {
    Batch(Vec<Part>),
    Nothing,
    /// Nothing can come: the program holds all batches.
    Starved,
    End,
}

impl Gather {
    pub fn new(deadline: Option<Instant>) -> Self {
        Self {
            parts: VecDeque::new(),
            rows: 0,
            held: 0,
            out: Arc::default(),
            since: None,
            deadline,
            starved: None,
            ended: false,
            failure: None,
        }
    }

    /// Whether the end was returned, or comes next.
    pub fn has_ended(&self) -> bool {
        self.ended && self.rows == 0 && self.failure.is_none()
    }

    /// Waits at most `most` for a batch; if the batch is not full by then, and `partial` is wanted,
    /// it has what came. A failure of the source comes once, after all packets.
    pub fn next(
        &mut self,
        source: &Source,
        limits: &Limits,
        most: Duration,
        partial: bool,
    ) -> Result<Gathered, Error> {
        let begun = Instant::now();
        loop {
            let full = self.parts.len() >= limits.parts() || self.held >= limits.bytes();
            let waited = self
                .since
                .is_some_and(|since| since.elapsed() >= limits.latency);
            if self.rows >= limits.rows
                || self.rows > 0 && (full || waited || self.ended || self.changes())
            {
                return Ok(Gathered::Batch(self.take(limits.rows)));
            }
            if self.ended {
                return self.failure.take().map_or(Ok(Gathered::End), Err);
            }
            if self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
            {
                self.deadline = None;
                source.stop();
            }
            let mut wait = most.saturating_sub(begun.elapsed());
            for end in [
                self.deadline,
                self.since.map(|since| since + limits.latency),
            ]
            .into_iter()
            .flatten()
            {
                wait = wait.min(end.saturating_duration_since(Instant::now()));
            }
            match source.next(wait) {
                Ok(Next::Batch(batch)) => {
                    self.starved = None;
                    self.add(batch, limits);
                }
                Ok(Next::End) => self.ended = true,
                Ok(Next::Nothing) if partial && self.rows > 0 && begun.elapsed() >= most => {
                    return Ok(Gathered::Batch(self.take(limits.rows)));
                }
                Ok(Next::Nothing)
                    if self.rows == 0
                        && limits.is_used_up(source.held(), self.out.load(Ordering::Relaxed)) =>
                {
                    let since = *self.starved.get_or_insert_with(Instant::now);
                    if since.elapsed() >= PATIENCE {
                        self.starved = None;
                        return Ok(Gathered::Starved);
                    }
                    if begun.elapsed() >= most {
                        return Ok(Gathered::Nothing);
                    }
                }
                Ok(Next::Nothing) if begun.elapsed() >= most => return Ok(Gathered::Nothing),
                Ok(Next::Nothing) => {}
                Err(error) => self.failure = Some(error),
            }
        }
    }

    /// Whether the last part cannot be in one batch with the one before: another filter judged it, or its interfaces are others.
    fn changes(&self) -> bool {
        let Some(before) = self.parts.len().checked_sub(2) else {
            return false;
        };
        let [one, two] = [&self.parts[before].batch, &self.parts[before + 1].batch];
        let links = |batch: &weir_api::Batch| {
            batch
                .layout()
                .interfaces
                .iter()
                .map(|of| of.link)
                .collect::<Vec<_>>()
        };
        !Arc::ptr_eq(one, two) && (one.change() != two.change() || links(one) != links(two))
    }

    fn add(&mut self, batch: weir_api::Batch, limits: &Limits) {
        let rows = batch.judged().0 as usize;
        if rows == 0 {
            return;
        }
        let taken = |ring: Room| {
            batch
                .descriptors()
                .iter()
                .map(|of| of.captured as usize + ring.slot)
                .sum::<usize>()
        };
        let bytes = limits.ring.map_or(0, |ring| taken(ring).max(ring.block));
        self.held += bytes;
        self.out.fetch_add(bytes, Ordering::Relaxed);
        self.since.get_or_insert_with(Instant::now);
        self.rows += rows;
        let piece = Piece {
            batch,
            bytes,
            out: Arc::clone(&self.out),
        };
        self.parts.push_back(Part {
            batch: Arc::new(piece),
            first: 0,
            rows,
        });
    }

    /// Takes the parts of one batch: at most `most` packets, and none after a change.
    fn take(&mut self, most: usize) -> Vec<Part> {
        let last = if self.changes() && self.rows - self.parts[self.parts.len() - 1].rows > 0 {
            self.parts.pop_back()
        } else {
            None
        };
        let mut taken = Vec::with_capacity(self.parts.len());
        let mut room = most;
        while let Some(part) = self.parts.front_mut() {
            if part.rows > room {
                if room > 0 {
                    taken.push(part.split(room));
                    self.rows -= room;
                }
                break;
            }
            room -= part.rows;
            self.rows -= part.rows;
            taken.extend(self.parts.pop_front());
        }
        self.parts.extend(last);
        self.held = 0;
        self.since = (self.rows > 0).then(Instant::now);
        taken
    }
}
