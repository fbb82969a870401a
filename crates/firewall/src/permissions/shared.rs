//! Permissions that change while several workers judge packets.
//!
//! Changes have one order: each is appended to a log and then published, by one number that all workers read. A worker reads the number
//! once, at the begin of a batch that it has taken, brings its own table up to that number, and judges the whole batch by it. So a packet
//! is judged by the table of one instant between its arrival and its verdict, and no lock and no shared table is on its way.
//!
//! - **One step.** A change is in force at its publication, for flag and range together, on all workers.
//! - **Never missed later.** A worker that begins a batch after another one has judged by a change reads a number that is not lower.
//! - **Acknowledged** is a change when no batch runs that began before it ([`Shared::is_in_force`]). A worker between two batches delays
//!   nothing, since it reads the number before it judges again.
//! - **Bounded.** The log is a ring. A change waits for room until all workers have taken up the changes that it would overwrite, so idle
//!   workers call [`Worker::take_up`] now and then.
//!
//! Each worker has all flags, and the accepted ranges of its shard of destinations, or of all.
//!
//! Checked under loom as it is shipped.

use super::{Change, Full, Permissions, Span};
use crate::{Address, DecidedBy};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use weir_memory::changes::{Changes, Steps};

#[cfg(not(loom))]
use std::sync::{
    Arc as ArcOfChanges, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

#[cfg(loom)]
use loom::sync::{
    Arc as ArcOfChanges, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// Words of a change in the log: three addresses of 128 bits, and flags.
const WORDS: usize = 7;

/// Reason for which a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The table has no room for the address.
    #[error(transparent)]
    Full(#[from] Full),
    /// A worker has not taken up the changes that this one would overwrite.
    #[error("a worker is {behind} changes behind")]
    NoRoom {
        /// Number of changes that the worker has not taken up.
        behind: u64,
    },
}

/// Destinations whose accepted ranges a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the shard.
    pub index: u32,
    /// Number of shards.
    pub of: u32,
}

impl Shard {
    /// All destinations.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// The shard of a destination among `of`.
    #[inline]
    pub fn of<A: Address>(destination: A, of: u32) -> Self {
        // The upper half of the hash: tables use the lower.
        let hash = destination.hash(0) >> 32;
        Self { index: ((hash * u64::from(of)) >> 32) as u32, of }
    }

    #[inline]
    fn has<A: Address>(self, destination: A) -> bool {
        self.of == 1 || Self::of(destination, self.of) == self
    }
}

/// The log of changes, and the table that has all of them.
#[derive(Debug)]
pub struct Shared<A> {
    changes: ArcOfChanges<Changes>,
    slots: Box<[[AtomicU64; WORDS]]>,
    latest: Mutex<Latest<A>>,
}

/// State of those that change permissions.
#[derive(Debug)]
struct Latest<A> {
    /// Number of changes.
    number: u64,
    permissions: Permissions<A>,
    /// Number of changes that each worker has taken up.
    workers: Vec<Arc<AtomicU64>>,
}

impl<A: Address> Shared<A> {
    /// Shares a table; the log has room for `room` changes that a worker has not taken up, at least one.
    pub fn new(permissions: Permissions<A>, room: usize) -> Arc<Self> {
        let slots = (0..room.max(1)).map(|_| core::array::from_fn(|_| AtomicU64::new(0))).collect();
        let latest = Mutex::new(Latest { number: 0, permissions, workers: Vec::new() });
        Arc::new(Self { changes: ArcOfChanges::new(Changes::default()), slots, latest })
    }

    fn latest(&self) -> MutexGuard<'_, Latest<A>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change, which is in force for all batches that begin from now on, and returns its number.
    ///
    /// **Errors**: no room; nothing has changed then. **Cost**: a lock among those that change permissions.
    pub fn apply(&self, change: &Change<A>) -> Result<u64, Refused> {
        let mut latest = self.latest();
        // Workers that are gone delay nobody.
        latest.workers.retain(|taken_up| Arc::strong_count(taken_up) > 1);
        // Pairs with the store in `Worker::catch_up`: what is overwritten was read before.
        let taken_up = latest.workers.iter().map(|taken_up| taken_up.load(Ordering::Acquire)).min();
        let behind = latest.number - taken_up.unwrap_or(latest.number);
        if behind >= self.slots.len() as u64 {
            return Err(Refused::NoRoom { behind });
        }
        latest.permissions.apply(change)?;
        let slot = &self.slots[(latest.number % self.slots.len() as u64) as usize];
        for (word, value) in slot.iter().zip(words(change)) {
            word.store(value, Ordering::Relaxed);
        }
        latest.number += 1;
        let number = self.changes.publish();
        debug_assert_eq!(number, latest.number, "changes are published here only");
        Ok(number)
    }

    /// Whether the change of this number is in force on every worker: no batch runs that began before it.
    pub fn is_in_force(&self, number: u64) -> bool {
        self.changes.has_grace_period_ended(number)
    }

    /// Waits until the change of this number is in force on every worker; `false` if a batch still runs after `timeout` that began
    /// before it.
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        self.changes.wait(number, timeout)
    }

    /// Makes a worker with the accepted ranges of a shard. **Cost**: a copy of the table.
    pub fn worker(self: &Arc<Self>, shard: Shard) -> Worker<A> {
        let mut latest = self.latest();
        let taken_up = Arc::new(AtomicU64::new(latest.number));
        latest.workers.push(Arc::clone(&taken_up));
        let mut permissions = latest.permissions.clone();
        permissions.accepted.retain(|destination| shard.has(destination));
        let steps = Steps::new(&self.changes);
        Worker { shared: Arc::clone(self), steps, shard, number: latest.number, taken_up, permissions }
    }
}

/// A worker that judges batches.
#[derive(Debug)]
pub struct Worker<A> {
    shared: Arc<Shared<A>>,
    steps: Steps,
    shard: Shard,
    /// Number of changes in `permissions`.
    number: u64,
    /// The same number, for those that change permissions.
    taken_up: Arc<AtomicU64>,
    permissions: Permissions<A>,
}

impl<A: Address> Worker<A> {
    /// Begins a batch that was taken before, and returns the number of the latest change in force for it.
    ///
    /// **Cost**: two loads, a store and a fence; and the changes since the batch before.
    #[inline]
    pub fn begin(&mut self) -> u64 {
        let number = self.steps.begin();
        self.catch_up(number);
        number
    }

    /// Begins packets whose place among the changes was fixed when they were taken: behind change `number`, and before the next one.
    /// The places of a worker's packets ascend.
    ///
    /// So verdicts are those of a serial program. An acknowledgement does not wait for packets that are on their way to the worker: they
    /// arrived before the change.
    pub fn begin_at(&mut self, number: u64) {
        self.steps.begin();
        self.catch_up(number);
    }

    /// Ends the batch, once its verdicts are handed on. **Cost**: a store.
    #[inline]
    pub fn end(&mut self) {
        self.steps.end();
    }

    /// Takes up the changes so far, without a batch.
    pub fn take_up(&mut self) {
        self.begin();
        self.end();
    }

    /// Applies a change that came as a packet of the batch under way, and returns its number. The packets of the batch behind it are
    /// judged by it, and those before it were not.
    ///
    /// **Errors**: no room; nothing has changed then. The caller may try again: each call takes up the changes of others.
    pub fn change(&mut self, change: &Change<A>) -> Result<u64, Refused> {
        // A worker may be the one that the log waits for.
        self.catch_up(self.shared.changes.number());
        let number = self.shared.apply(change)?;
        self.catch_up(number);
        Ok(number)
    }

    /// Returns the reason for which a packet of the batch under way does not pass, if it does not. The destination is of the worker's
    /// shard.
    #[inline]
    pub fn denies(&self, source: A, destination: A) -> Option<DecidedBy> {
        debug_assert!(
            self.shard.has(destination),
            "a packet goes to the worker that has the ranges of its destination"
        );
        self.permissions.denies(source, destination)
    }

    #[inline]
    fn catch_up(&mut self, number: u64) {
        if self.number < number {
            self.read_log(number);
        }
    }

    #[cold]
    fn read_log(&mut self, number: u64) {
        while self.number < number {
            let slot = &self.shared.slots[(self.number % self.shared.slots.len() as u64) as usize];
            let mut change: Change<A> = change(core::array::from_fn(|i| slot[i].load(Ordering::Relaxed)));
            change.accepts = change.accepts.filter(|_| self.shard.has(change.address));
            // The shared table had room, and has all addresses of this one.
            let applied = self.permissions.apply(&change);
            debug_assert_eq!(applied, Ok(()), "the shared table refuses what has no room");
            self.number += 1;
        }
        // The slots may be written again.
        self.taken_up.store(self.number, Ordering::Release);
    }
}

/// Flags in the last word of a change: whether it has a flag and its value, whether it has sources and accepts them.
const HAS_FLAG: u64 = 1;
const FLAG: u64 = 2;
const HAS_SOURCES: u64 = 4;
const ACCEPTS: u64 = 8;

fn words<A: Address>(change: &Change<A>) -> [u64; WORDS] {
    let Change { address, persona_non_grata, accepts } = *change;
    let (sources, accepting) = accepts.unwrap_or((Span { first: A::ZERO, last: A::ZERO }, false));
    let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    let flags = bit(persona_non_grata.is_some(), HAS_FLAG)
        | bit(persona_non_grata == Some(true), FLAG)
        | bit(accepts.is_some(), HAS_SOURCES)
        | bit(accepting, ACCEPTS);
    let [a, b, c] = [address, sources.first, sources.last].map(Address::to_words);
    [a[0], a[1], b[0], b[1], c[0], c[1], flags]
}

fn change<A: Address>(words: [u64; WORDS]) -> Change<A> {
    let [a, b, c, d, e, f, flags] = words;
    let sources = Span { first: A::of_words([c, d]), last: A::of_words([e, f]) };
    Change {
        address: A::of_words([a, b]),
        persona_non_grata: (flags & HAS_FLAG != 0).then_some(flags & FLAG != 0),
        accepts: (flags & HAS_SOURCES != 0).then_some((sources, flags & ACCEPTS != 0)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_comes_out_of_its_words() {
        for address in [0, 1, u128::MAX, 0x2001_0db8 << 96 | 7] {
            for persona_non_grata in [None, Some(false), Some(true)] {
                let sources = Span::new(3, u128::MAX - 1).unwrap();
                for accepts in [None, Some((sources, false)), Some((sources, true))] {
                    let whole = Change { address, persona_non_grata, accepts };
                    assert_eq!(change(words(&whole)), whole);
                    let sources = Span::new(3, u32::MAX).unwrap();
                    let small = Change {
                        address: address as u32,
                        persona_non_grata,
                        accepts: accepts.map(|(_, yes)| (sources, yes)),
                    };
                    assert_eq!(change(words(&small)), small);
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;

    const ADDRESS: u32 = 7;

    fn ban() -> Change<u32> {
        // Another address accepts all from now on, which belongs to the same step.
        Change {
            address: ADDRESS,
            persona_non_grata: Some(true),
            accepts: Span::half_open(0, None).map(|all| (all, true)),
        }
    }

    /// Whether a packet from the address, and one to it, are judged by the change.
    fn sees(worker: &Worker<u32>) -> bool {
        let (from, to) = (worker.permissions.is_persona_non_grata(ADDRESS), worker.denies(1, ADDRESS).is_none());
        assert_eq!(from, to, "half a change");
        from
    }

    fn shared(room: usize) -> Arc<Shared<u32>> {
        Shared::new(Permissions::new(4, false, 1), room)
    }

    #[test]
    fn what_one_worker_has_seen_no_later_batch_misses() {
        loom::model(|| {
            let shared = shared(2);
            let (mut one, mut other) = (shared.worker(Shard::ALL), shared.worker(Shard::ALL));
            let seen = Arc::new(AtomicU64::new(0));
            let tells = Arc::clone(&seen);
            let judge = thread::spawn(move || {
                one.begin();
                tells.store(u64::from(sees(&one)), Ordering::Release);
                one.end();
            });
            let controller = thread::spawn(move || shared.apply(&ban()).unwrap());
            let was_seen = seen.load(Ordering::Acquire) == 1;
            other.begin();
            assert!(!was_seen || sees(&other), "a later packet misses a change that an earlier one saw");
            other.end();
            judge.join().unwrap();
            controller.join().unwrap();
        });
    }

    #[test]
    fn no_batch_runs_on_the_old_table_once_a_change_is_acknowledged() {
        loom::model(|| {
            let shared = shared(1);
            let mut worker = shared.worker(Shard::ALL);
            let acknowledged = Arc::new(AtomicU64::new(0));
            let tells = Arc::clone(&acknowledged);
            let controller = thread::spawn(move || {
                let number = shared.apply(&ban()).unwrap();
                if shared.is_in_force(number) {
                    tells.store(1, Ordering::Release);
                }
            });
            worker.begin();
            let saw = sees(&worker);
            assert!(
                saw || acknowledged.load(Ordering::Acquire) == 0,
                "a verdict by the old table behind the acknowledgement"
            );
            worker.end();
            controller.join().unwrap();
        });
    }

    #[test]
    fn a_slot_is_written_again_only_when_all_have_read_it() {
        [1, 2].into_iter().for_each(two_changes);
    }

    fn two_changes(room: usize) {
        loom::model(move || {
            let shared = shared(room);
            let mut worker = shared.worker(Shard::ALL);
            let controller = thread::spawn(move || {
                // Both changes set flag and sources of their own address.
                let other = Change { address: ADDRESS + 1, ..ban() };
                shared.apply(&ban()).unwrap();
                let second = shared.apply(&other);
                assert!(second.is_ok() || room == 1, "there is room for two");
            });
            for _ in 0..2 {
                let number = worker.begin();
                let flags = [ADDRESS, ADDRESS + 1].map(|address| worker.permissions.is_persona_non_grata(address));
                assert_eq!(flags, [number >= 1, number >= 2], "a change that is torn, lost or early");
                sees(&worker);
                worker.end();
            }
            controller.join().unwrap();
        });
    }
}
