//! A value that changes while several workers judge packets by it, each by a replica of its own.
//!
//! Changes have one order: each is appended to a log and then published, by one number that all workers read. A worker reads the number
//! once, at the begin of a batch that it has taken, brings its replica up to that number, and judges the whole batch by it. So a packet
//! is judged by the value of one instant between its arrival and its verdict, and no lock and no shared table is on its way.
//!
//! - **One step.** A change is in force at its publication, on all workers. Several changes may have one publication
//!   ([`Shared::apply_all`]); no packet is judged by a part of them.
//! - **Never missed later.** A worker that begins a batch after another one has judged by a change reads a number that is not lower.
//! - **Acknowledged** is a change when no batch runs that began before it ([`Shared::is_in_force`]). A worker between two batches delays
//!   nothing, since it reads the number before it judges again.
//! - **Bounded.** The log is a ring. A change waits for room until all workers have taken up the changes that it would overwrite, so idle
//!   workers call [`Worker::take_up`] now and then.
//! - **Large parts**, such as compiled rules, are shared by the replicas. One is freed by a thread that changes the value, never by a
//!   worker, once all workers have taken up a later one.
//!
//! Checked under loom as it is shipped.

use crate::Address;
use crate::permissions::Full;
use core::fmt::Debug;
use core::ops::Range;
use core::slice;
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

/// Words of a change in the log.
pub const WORDS: usize = 7;

/// Bit of the last word that marks a change with a large part; the value leaves it unset.
const HAS_LARGE_PART: u64 = 1 << 63;

/// A value with replicas.
pub trait Replicated: Clone {
    /// Change of the value.
    type Change;
    /// Part of a change that is shared by all replicas.
    type Large: Debug + Send + Sync;

    /// Checks that there is room for all of these changes together. **Errors**: there is not.
    fn has_room(&self, changes: &[Self::Change]) -> Result<(), Full>;

    /// Applies a change for which there is room. If there is room in one replica, there is in each.
    fn apply(&mut self, change: &Self::Change) -> Result<(), Full>;

    /// Starts to fetch the memory that changes need.
    fn prefetch(&self, changes: &[Self::Change]);

    /// Returns the words of a change, and its large part. Bit 63 of the last word is not set.
    fn encode(change: &Self::Change) -> ([u64; WORDS], Option<Arc<Self::Large>>);

    /// Returns the change of these words.
    fn decode(words: [u64; WORDS], large: Option<Arc<Self::Large>>) -> Self::Change;

    /// Returns the large part in use, if there is one.
    fn large(&self) -> Option<Arc<Self::Large>>;

    /// Forgets what is not of a shard of destinations.
    fn keep(&mut self, shard: Shard);

    /// Returns the part of a change that concerns a shard of destinations.
    fn part(change: Self::Change, shard: Shard) -> Self::Change;
}

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
///
/// It is for streams that were distributed by [`Shard::of`] before. A worker that may get any packet has all destinations ([`Shard::ALL`]): it
/// would judge packets to others without their ranges.
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
        Self {
            index: ((hash * u64::from(of)) >> 32) as u32,
            of,
        }
    }

    /// Whether the destination is of this shard.
    #[inline]
    pub fn has<A: Address>(self, destination: A) -> bool {
        self.of == 1 || Self::of(destination, self.of) == self
    }
}

/// The log of changes, and the value that has all of them.
#[derive(Debug)]
pub struct Shared<T: Replicated> {
    changes: ArcOfChanges<Changes>,
    slots: Box<[[AtomicU64; WORDS]]>,
    latest: Mutex<Latest<T>>,
    /// Large parts by the number of their change, in ascending order.
    large: Mutex<Vec<(u64, Arc<T::Large>)>>,
}

/// State shared by threads that change the value.
#[derive(Debug)]
struct Latest<T> {
    /// Number of changes.
    number: u64,
    value: T,
    /// Number of changes that each worker has taken up.
    workers: Vec<Arc<AtomicU64>>,
}

impl<T> Latest<T> {
    /// Returns the number of changes that all workers have taken up.
    fn taken_up(&mut self) -> u64 {
        // Workers that are gone delay nobody.
        self.workers
            .retain(|taken_up| Arc::strong_count(taken_up) > 1);
        // Pairs with the store in `Worker::catch_up`: what is overwritten was read before.
        let taken_up = self
            .workers
            .iter()
            .map(|taken_up| taken_up.load(Ordering::Acquire))
            .min();
        taken_up.unwrap_or(self.number)
    }
}

impl<T: Replicated> Shared<T> {
    /// Shares a value; the log has room for `room` changes that a worker has not taken up, at least one.
    pub fn new(value: T, room: usize) -> Arc<Self> {
        let slots = (0..room.max(1))
            .map(|_| core::array::from_fn(|_| AtomicU64::new(0)))
            .collect();
        let large = Mutex::new(value.large().map(|large| (0, large)).into_iter().collect());
        let latest = Mutex::new(Latest {
            number: 0,
            value,
            workers: Vec::new(),
        });
        Arc::new(Self {
            changes: ArcOfChanges::new(Changes::default()),
            slots,
            latest,
            large,
        })
    }

    fn latest(&self) -> MutexGuard<'_, Latest<T>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn large(&self) -> MutexGuard<'_, Vec<(u64, Arc<T::Large>)>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of changes that a worker need not have taken up, at most; so many may be one step.
    pub fn room(&self) -> usize {
        self.slots.len()
    }

    /// Calls `look` with the value that has all changes, between two of them.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.latest().value)
    }

    /// Applies a change, which is in force for all batches that begin from now on, and returns its number.
    ///
    /// **Errors**: no room; nothing has changed then. **Cost**: a lock among threads that change
    /// the value.
    pub fn apply(&self, change: &T::Change) -> Result<u64, Refused> {
        self.apply_all(slice::from_ref(change))
    }

    /// Applies several changes as one step, and returns the number of the last; without changes,
    /// the number of the latest change.
    ///
    /// **Errors**: no room for all of them; nothing has changed then. **Cost**: [`Self::apply`],
    /// and each change.
    pub fn apply_all(&self, changes: &[T::Change]) -> Result<u64, Refused> {
        Ok(self.publish(changes, true)?.end)
    }

    /// Applies changes at one instant, and returns the numbers of the value before and after them:
    /// all of them if they are `whole`, else the first of them for which there is room, at least
    /// one.
    fn publish(&self, changes: &[T::Change], whole: bool) -> Result<Range<u64>, Refused> {
        let mut latest = self.latest();
        let taken_up = latest.taken_up();
        let (before, behind) = (latest.number, latest.number - taken_up);
        let room = (self.slots.len() as u64).saturating_sub(behind) as usize;
        let least = if whole { changes.len() } else { 1 };
        if room < least {
            return Err(Refused::NoRoom { behind });
        }
        if whole {
            latest.value.has_room(changes)?;
        }
        let forgotten = self.take_forgotten(taken_up);
        let run = &changes[..changes.len().min(room)];
        latest.value.prefetch(run);
        for change in run {
            match latest.value.apply(change) {
                Ok(()) => self.log(&mut latest.number, change),
                Err(full) if latest.number == before => return Err(full.into()),
                Err(_) => break,
            }
        }
        let number = self.changes.publish_several(latest.number - before);
        debug_assert_eq!(number, latest.number, "changes are published here only");
        drop(latest);
        drop(forgotten);
        Ok(before..number)
    }

    /// Appends a change to the log, and counts it.
    fn log(&self, number: &mut u64, change: &T::Change) {
        let slot = &self.slots[(*number % self.slots.len() as u64) as usize];
        *number += 1;
        let (mut words, large) = T::encode(change);
        if let Some(large) = large {
            words[WORDS - 1] |= HAS_LARGE_PART;
            self.large().push((*number, large));
        }
        for (word, value) in slot.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Takes out the large parts in whose place all workers have another one.
    fn take_forgotten(&self, taken_up: u64) -> Vec<(u64, Arc<T::Large>)> {
        let mut large = self.large();
        let replaced = large
            .iter()
            .filter(|(number, _)| *number <= taken_up)
            .count()
            .saturating_sub(1);
        large.drain(..replaced).collect()
    }

    /// Whether the change of this number is in force on every worker: no batch runs that began before it.
    pub fn is_in_force(&self, number: u64) -> bool {
        self.changes.has_grace_period_ended(number)
    }

    /// Waits until the change of this number is in force on every worker; `false` if a batch still runs after `timeout` that began
    /// before it.
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        let is_in_force = self.changes.wait(number, timeout);
        let taken_up = self.latest().taken_up();
        // Freed here, as the locks are free again.
        drop(self.take_forgotten(taken_up));
        is_in_force
    }

    /// Makes a worker with the accepted ranges of a shard. **Cost**: a copy of the value.
    pub fn worker(self: &Arc<Self>, shard: Shard) -> Worker<T> {
        let mut latest = self.latest();
        let taken_up = Arc::new(AtomicU64::new(latest.number));
        latest.workers.push(Arc::clone(&taken_up));
        let mut replica = latest.value.clone();
        replica.keep(shard);
        let steps = Steps::new(&self.changes);
        Worker {
            shared: Arc::clone(self),
            steps,
            shard,
            number: latest.number,
            taken_up,
            replica,
        }
    }
}

/// A worker that judges batches.
#[derive(Debug)]
pub struct Worker<T: Replicated> {
    shared: Arc<Shared<T>>,
    steps: Steps,
    shard: Shard,
    /// Number of changes in `replica`.
    number: u64,
    /// The same number, for threads that change the value.
    taken_up: Arc<AtomicU64>,
    replica: T,
}

impl<T: Replicated> Worker<T> {
    /// Begins a batch that was taken before, and returns the number of the latest change in force for it.
    ///
    /// **Cost**: two loads, a store and a fence; and the changes since the batch before.
    #[inline]
    pub fn begin(&mut self) -> u64 {
        let number = self.steps.begin();
        self.catch_up(number);
        number
    }

    /// Begins packets whose place among the changes was fixed when they were taken: after change
    /// `number`, and before the next. The places of a worker's packets ascend.
    ///
    /// So verdicts equal the verdicts of a serial program. An acknowledgement does not wait for
    /// packets that are on their way to the worker: they arrived before the change.
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

    /// Applies a change that arrived as a packet of the current batch, and returns its number. The
    /// packets of the batch after it are judged by it; earlier packets were not.
    ///
    /// **Errors**: no room; nothing has changed then. The caller may try again: each call takes up the changes of others.
    pub fn change(&mut self, change: &T::Change) -> Result<u64, Refused> {
        self.change_all(slice::from_ref(change))
    }

    /// Applies several changes that arrived as one packet, as one step; see [`Self::change`].
    pub fn change_all(&mut self, changes: &[T::Change]) -> Result<u64, Refused> {
        // A worker may be the one that the log waits for.
        self.catch_up(self.shared.changes.number());
        let numbers = self.shared.publish(changes, true)?;
        self.catch_up(numbers.end);
        Ok(numbers.end)
    }

    /// Publishes changes that arrived as packets of the current batch, in their order, at one
    /// instant: the first of them for which there is room, at least one. Returns how many these
    /// are.
    ///
    /// The batch is judged by the value before them until [`Self::advance`] takes up one after the
    /// other. So each packet of the batch has its place among the changes, and all of these places
    /// lie at the instant of the publication: packets and changes of others are before or after all
    /// of them. **Errors**: no room; nothing has changed then. The caller may try again: each call
    /// takes up the changes of others. **Cost**: one lock for all of them, where [`Self::change`]
    /// takes one for each.
    pub fn publish(&mut self, changes: &[T::Change]) -> Result<usize, Refused> {
        // A worker may be the one that the log waits for.
        self.catch_up(self.shared.changes.number());
        let numbers = self.shared.publish(changes, false)?;
        self.catch_up(numbers.start);
        let count = (numbers.end - numbers.start) as usize;
        self.replica.prefetch(&changes[..count]);
        Ok(count)
    }

    /// Takes up the next change that this worker has [published](Self::publish): the packets of the batch from here on are judged by it.
    #[inline]
    pub fn advance(&mut self) {
        self.read_log(self.number + 1);
    }

    /// Returns the value that the batch under way is judged by, as far as it concerns the worker's shard.
    #[inline]
    pub fn value(&self) -> &T {
        &self.replica
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
            let mut words: [u64; WORDS] = core::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
            self.number += 1;
            let mut large = None;
            if words[WORDS - 1] & HAS_LARGE_PART != 0 {
                words[WORDS - 1] ^= HAS_LARGE_PART;
                let parts = self.shared.large();
                large = parts
                    .iter()
                    .find(|(number, _)| *number == self.number)
                    .map(|(_, large)| Arc::clone(large));
            }
            let change = T::part(T::decode(words, large), self.shard);
            let applied = self.replica.apply(&change);
            debug_assert_eq!(applied, Ok(()), "the shared value refuses what has no room");
        }
        // The slots may be written again.
        self.taken_up.store(self.number, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::permissions::{Change, Permissions, Span};
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
    fn sees(worker: &Worker<Permissions<u32>>) -> bool {
        let (from, to) = (
            worker.value().is_persona_non_grata(ADDRESS),
            worker.value().denies(1, ADDRESS).is_none(),
        );
        assert_eq!(from, to, "half a change");
        from
    }

    fn shared(room: usize) -> Arc<Shared<Permissions<u32>>> {
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
            assert!(
                !was_seen || sees(&other),
                "a later packet misses a change that an earlier one saw"
            );
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

    /// Workers that begin a batch, and workers that change the value within a batch, see all of a
    /// step or nothing.
    #[test]
    fn several_changes_of_one_step_are_seen_together() {
        loom::model(|| {
            let shared = shared(4);
            let (mut one, mut other) = (shared.worker(Shard::ALL), shared.worker(Shard::ALL));
            let step = || {
                [
                    ban(),
                    Change {
                        address: ADDRESS + 1,
                        ..ban()
                    },
                ]
            };
            let flags = |worker: &Worker<Permissions<u32>>| {
                [ADDRESS, ADDRESS + 1, ADDRESS + 2]
                    .map(|address| worker.value().is_persona_non_grata(address))
            };
            let controller = thread::spawn(move || shared.apply_all(&step()).unwrap());
            let changer = thread::spawn(move || {
                other.begin();
                let number = other
                    .change(&Change {
                        address: ADDRESS + 2,
                        ..ban()
                    })
                    .unwrap();
                let [first, second, own] = flags(&other);
                assert!(
                    first == second && own,
                    "a part of a step, or its own change is missing"
                );
                assert_eq!(number, if first { 3 } else { 1 });
                other.end();
            });
            let number = one.begin();
            let [first, second, third] = flags(&one);
            assert_eq!(first, second, "a part of a step");
            assert_eq!(number, 2 * u64::from(first) + u64::from(third));
            one.end();
            controller.join().unwrap();
            changer.join().unwrap();
        });
    }

    #[test]
    fn a_published_run_is_one_step_for_others() {
        loom::model(|| {
            let shared = shared(4);
            let (mut one, mut other) = (shared.worker(Shard::ALL), shared.worker(Shard::ALL));
            let flags = |worker: &Worker<Permissions<u32>>| {
                [ADDRESS, ADDRESS + 1].map(|address| worker.value().is_persona_non_grata(address))
            };
            let publisher = thread::spawn(move || {
                one.begin();
                assert_eq!(
                    one.publish(&[
                        ban(),
                        Change {
                            address: ADDRESS + 1,
                            ..ban()
                        }
                    ]),
                    Ok(2)
                );
                for seen in [[false, false], [true, false], [true, true]] {
                    assert_eq!(flags(&one), seen);
                    if seen != [true, true] {
                        one.advance();
                    }
                }
                one.end();
            });
            other.begin();
            assert!(
                [[false, false], [true, true]].contains(&flags(&other)),
                "a part of a run"
            );
            other.end();
            publisher.join().unwrap();
        });
    }

    /// A packet after the change of one worker that misses the change of the other, and the same
    /// the other way round, have no order.
    #[test]
    fn published_changes_of_two_workers_have_one_order() {
        loom::model(|| {
            let shared = shared(4);
            let judge = |mut worker: Worker<Permissions<u32>>, own: u32, others: u32| {
                worker.begin();
                assert_eq!(
                    worker.publish(&[Change {
                        address: own,
                        ..ban()
                    }]),
                    Ok(1)
                );
                worker.advance();
                assert!(
                    worker.value().is_persona_non_grata(own),
                    "another change in the place of its own"
                );
                let sees = worker.value().is_persona_non_grata(others);
                worker.end();
                sees
            };
            let (one, other) = (shared.worker(Shard::ALL), shared.worker(Shard::ALL));
            let first = thread::spawn(move || judge(one, ADDRESS, ADDRESS + 1));
            let second = judge(other, ADDRESS + 1, ADDRESS);
            assert!(
                first.join().unwrap() || second,
                "each change is before the other"
            );
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
                let other = Change {
                    address: ADDRESS + 1,
                    ..ban()
                };
                shared.apply(&ban()).unwrap();
                let second = shared.apply(&other);
                assert!(second.is_ok() || room == 1, "there is room for two");
            });
            for _ in 0..2 {
                let number = worker.begin();
                let flags = [ADDRESS, ADDRESS + 1]
                    .map(|address| worker.value().is_persona_non_grata(address));
                assert_eq!(
                    flags,
                    [number >= 1, number >= 2],
                    "a change that is torn, lost or early"
                );
                sees(&worker);
                worker.end();
            }
            controller.join().unwrap();
        });
    }
}
