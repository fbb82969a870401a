//! A small engine that is wrong on purpose, in one way at a time: the judge finds each, and nothing in the two ways that are right.

use super::history::{ADDRESSES, Distribution, Engine, Size, Step, Violation, Wanted, judged};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use weir_firewall::permissions::{Change, Permissions};
use weir_firewall::replicas::Shard;
use weir_memory::changes::{Changes, Steps};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Right: a cache of verdicts, with a mark for each address.
    Cached,
    /// Right: each batch is judged by a copy that is made at its begin.
    Copied,
    /// One change of four does not mark the entries of its address as obsolete.
    SkippedMark,
    /// An entry is used though its destination has changed.
    StaleEntry,
    /// The flag of a change comes into force before its ranges.
    Torn,
    /// A batch is judged by the copy of the batch before it.
    Behind,
    /// Each worker has a queue of changes.
    Queued,
    /// The flags of a batch are read at its begin, before the changes in it.
    FlagsAhead,
    /// Each worker ends bans by its own clock.
    OwnClock,
    /// A change is acknowledged before the batches that began before it have ended.
    EarlyAcknowledgement,
}

/// A table behind one lock.
struct Table {
    way: Way,
    table: Mutex<Permissions<u32>>,
    changes: Arc<Changes>,
    /// Numbers of changes by address.
    marks: Vec<AtomicU64>,
    /// Ends of bans by address, ns since `start`; 0 without one. The second is that of the next ban.
    ends: Vec<[AtomicU64; 2]>,
    start: Instant,
    queues: Mutex<Vec<Arc<Queue>>>,
}

/// Changes that a worker has not taken up.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<(u64, Change<u32>)>>,
    taken_up: AtomicU64,
}

struct Worker {
    shared: Arc<Table>,
    index: u32,
    steps: Steps,
    cache: HashMap<(u32, u32), (bool, [u64; 2])>,
    copy: Permissions<u32>,
    before: Permissions<u32>,
    flags: Vec<bool>,
    queue: Arc<Queue>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.taken_up.store(u64::MAX, Ordering::Release);
    }
}

fn engine(way: Way) -> Arc<Table> {
    let numbers = || (0..ADDRESSES).map(|_| AtomicU64::new(0));
    Arc::new(Table {
        way,
        table: Mutex::new(Permissions::new(ADDRESSES, true, 1)),
        changes: Arc::default(),
        marks: numbers().collect(),
        ends: numbers()
            .zip(numbers())
            .map(|(one, other)| [one, other])
            .collect(),
        start: Instant::now(),
        queues: Mutex::default(),
    })
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Permissions<u32>> {
        self.table.lock().unwrap()
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn marks(&self, source: u32, destination: u32) -> [u64; 2] {
        [source, destination].map(|address| self.marks[address as usize].load(Ordering::Acquire))
    }

    fn apply(&self, change: &Change<u32>) -> u64 {
        let address = change.address as usize;
        if change.persona_non_grata == Some(true) {
            let [end, next] = &self.ends[address];
            end.store(next.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut table = self.lock();
        if self.way == Way::Torn {
            table
                .apply(&Change {
                    accepts: None,
                    ..*change
                })
                .unwrap();
            drop(table);
            std::thread::yield_now();
            table = self.lock();
        }
        table.apply(change).unwrap();
        if self.way != Way::SkippedMark || !self.changes.number().is_multiple_of(4) {
            self.marks[address].fetch_add(1, Ordering::Release);
        }
        let number = self.changes.publish();
        if self.way == Way::Queued {
            for queue in self.queues.lock().unwrap().iter() {
                queue.waiting.lock().unwrap().push_back((number, *change));
                std::thread::yield_now();
            }
        }
        number
    }
}

impl Worker {
    fn take_up(&mut self) {
        let mut waiting = self.queue.waiting.lock().unwrap();
        for (number, change) in waiting.drain(..) {
            self.copy.apply(&change).unwrap();
            self.queue.taken_up.store(number, Ordering::Release);
        }
    }

    fn cached(&mut self, source: u32, destination: u32) -> bool {
        let marks = self.shared.marks(source, destination);
        let known = self.cache.get(&(source, destination));
        let is_valid = |of_entry: [u64; 2]| match self.shared.way {
            Way::StaleEntry => of_entry[0] == marks[0],
            _ => of_entry == marks,
        };
        if let Some((passes, _)) = known.filter(|(_, of_entry)| is_valid(*of_entry)) {
            return *passes;
        }
        let table = self.shared.lock();
        // Marks change under the lock only.
        let entry = (
            table.passes(source, destination),
            self.shared.marks(source, destination),
        );
        drop(table);
        self.cache.insert((source, destination), entry);
        entry.0
    }
}

impl Engine for Arc<Table> {
    type Worker = Worker;

    fn worker(&self, index: u32, _: Shard) -> Worker {
        let (queue, table) = (Arc::<Queue>::default(), self.lock().clone());
        self.queues.lock().unwrap().push(Arc::clone(&queue));
        let steps = Steps::new(&self.changes);
        let (cache, flags) = (HashMap::new(), Vec::new());
        Worker {
            shared: Arc::clone(self),
            index,
            steps,
            cache,
            copy: table.clone(),
            before: table,
            flags,
            queue,
        }
    }

    fn try_apply(&self, step: &Step) -> Option<u64> {
        let Step::Address(change) = step else {
            unreachable!("it has no rules")
        };
        Some(self.apply(change))
    }

    fn is_in_force(&self, number: u64) -> bool {
        match self.way {
            Way::EarlyAcknowledgement => true,
            Way::Queued => {
                let has = |queue: &Arc<Queue>| queue.taken_up.load(Ordering::Acquire) >= number;
                self.queues.lock().unwrap().iter().all(has)
            }
            _ => self.changes.has_grace_period_ended(number),
        }
    }

    fn note_end(&self, address: u32, after: Duration) {
        let end = self.now() + after.as_nanos() as u64;
        self.ends[address as usize][1].store(end, Ordering::Relaxed);
    }

    fn begin(worker: &mut Worker, batch: &[Wanted]) {
        worker.steps.begin();
        match worker.shared.way {
            Way::Copied | Way::EarlyAcknowledgement => worker.copy = worker.shared.lock().clone(),
            Way::Behind => {
                let now = worker.shared.lock().clone();
                worker.before = std::mem::replace(&mut worker.copy, now);
            }
            Way::Queued => worker.take_up(),
            Way::FlagsAhead => {
                let table = worker.shared.lock();
                worker.flags = batch
                    .iter()
                    .map(|(source, ..)| table.is_persona_non_grata(*source))
                    .collect();
            }
            _ => {}
        }
    }

    fn passes(worker: &mut Worker, place: usize, (source, destination, _): Wanted) -> bool {
        match worker.shared.way {
            Way::Cached | Way::SkippedMark | Way::StaleEntry => worker.cached(source, destination),
            Way::Copied | Way::EarlyAcknowledgement | Way::Queued => {
                worker.copy.passes(source, destination)
            }
            Way::Behind => worker.before.passes(source, destination),
            Way::Torn => worker.shared.lock().passes(source, destination),
            Way::FlagsAhead => {
                !worker.flags[place] && worker.shared.lock().accepts(destination, source)
            }
            Way::OwnClock => {
                let table = worker.shared.lock();
                let end = worker.shared.ends[source as usize][0].load(Ordering::Relaxed);
                // Clocks of workers differ.
                let is_over =
                    end != 0 && worker.shared.now() + u64::from(worker.index) * 20_000 >= end;
                (is_over || !table.is_persona_non_grata(source))
                    && table.accepts(destination, source)
            }
        }
    }

    fn change(worker: &mut Worker, step: &Step) -> Option<u64> {
        let number = worker.shared.try_apply(step);
        match worker.shared.way {
            Way::Queued => worker.take_up(),
            Way::Copied | Way::EarlyAcknowledgement => worker.copy = worker.shared.lock().clone(),
            _ => {}
        }
        number
    }

    fn end(worker: &mut Worker) {
        worker.steps.end();
    }
}

fn size(seed: u64) -> Size {
    Size {
        packets: 20_000,
        changes: 600,
        workers: 2,
        distribution: Distribution::Random,
        seed,
    }
}

/// Runs until the judge finds the fault.
fn is_found(way: Way) {
    let begun = Instant::now();
    for seed in 0.. {
        match judged(&engine(way), size(seed)) {
            Ok(_) => assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{way:?} is not found in {seed} runs"
            ),
            Err(violation) => {
                println!("{way:?} in run {seed}: {violation:?}");
                assert!(
                    matches!(violation, Violation::NoInstant(_)),
                    "{violation:?}"
                );
                return;
            }
        }
    }
}

#[test]
fn nothing_is_found_where_no_fault_is() {
    for (seed, way) in [Way::Cached, Way::Copied]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        assert!(judged(&engine(way), size(seed as u64)).is_ok(), "{way:?}");
    }
}

#[test]
fn a_skipped_mark_is_found() {
    is_found(Way::SkippedMark);
}

#[test]
fn a_stale_entry_is_found() {
    is_found(Way::StaleEntry);
}

#[test]
fn a_torn_change_is_found() {
    is_found(Way::Torn);
}

#[test]
fn a_verdict_before_the_change_it_follows_is_found() {
    is_found(Way::Behind);
}

#[test]
fn changes_in_queues_of_the_workers_are_found() {
    is_found(Way::Queued);
}

#[test]
fn flags_that_are_read_ahead_are_found() {
    is_found(Way::FlagsAhead);
}

#[test]
fn clocks_of_the_workers_are_found() {
    is_found(Way::OwnClock);
}

#[test]
fn an_early_acknowledgement_is_found() {
    is_found(Way::EarlyAcknowledgement);
}
