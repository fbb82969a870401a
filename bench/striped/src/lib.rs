//! The parent's engine, which comparisons measure against: one table for all workers, in stripes with a lock each, and a bounded cache of verdicts for each worker.
//!
//! A change locks the stripe of its address and changes flag and ranges there. A packet locks the stripes of its source and its destination,
//! the lower one first, so that its verdict is that of one instant. Before, it looks into its worker's cache: an entry holds the
//! versions of both stripes at the instant of its verdict, and a change makes all entries of its stripe obsolete by another version. An entry
//! whose versions are still those of the stripes holds now: neither stripe has changed in between.
//!
//! - **One step**, because both parts of a change are under one lock.
//! - **Never missed later**: a version is changed under the lock, before the change has its number.
//! - **Acknowledged** is a change when no batch runs that began before it ([`Striped::is_in_force`]).
//!
//! Checked under loom as it is shipped. **Source**: Smith, "Multithreaded packet filter" (Brown University): striped locks, caches of
//! permissions and marks of obsolete addresses.

#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError};
use weir_firewall::permissions::{Change, Full, Permissions};
use weir_firewall::{Address, DecidedBy};
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

/// Entries of a cache among which the least recently used one is replaced.
const WAYS: usize = 4;

/// A permission table of all workers.
#[derive(Debug)]
pub struct Striped<A> {
    stripes: Box<[Stripe<A>]>,
    changes: ArcOfChanges<Changes>,
    seed: u64,
}

/// Permissions of a share of the addresses, in a cache line of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe<A> {
    /// Number of changes of this stripe.
    version: AtomicU64,
    permissions: Mutex<Permissions<A>>,
}

impl<A: Address> Striped<A> {
    /// Makes a table of `stripes` stripes, at least one, each with room for `most` addresses that were changed. All others accept every source if
    /// `default`, else none; `seed` decides in which stripe an address lies.
    pub fn new(most: usize, default: bool, stripes: usize, seed: u64) -> Arc<Self> {
        let stripe = |_| Stripe {
            version: AtomicU64::new(0),
            permissions: Mutex::new(Permissions::new(most, default, 0)),
        };
        Arc::new(Self {
            stripes: (0..stripes.max(1)).map(stripe).collect(),
            changes: ArcOfChanges::new(Changes::default()),
            seed,
        })
    }

    /// Returns the number of the stripe of an address.
    fn stripe(&self, address: A) -> usize {
        let hash = address.hash(self.seed) >> 32;
        ((hash * self.stripes.len() as u64) >> 32) as usize
    }

    fn lock(&self, stripe: usize) -> MutexGuard<'_, Permissions<A>> {
        self.stripes[stripe]
            .permissions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change, which is in force for all verdicts from now on, and returns its number. **Errors**: no room; nothing has changed
    /// then. **Cost**: the lock of a stripe.
    pub fn apply(&self, change: &Change<A>) -> Result<u64, Full> {
        let stripe = self.stripe(change.address);
        let mut permissions = self.lock(stripe);
        permissions.apply(change)?;
        // Entries are obsolete before the change has its number.
        self.stripes[stripe].version.fetch_add(1, Ordering::Release);
        Ok(self.changes.publish())
    }

    /// Whether the change of this number is in force on every worker: no batch runs that began before it.
    pub fn is_in_force(&self, number: u64) -> bool {
        self.changes.has_grace_period_ended(number)
    }

    /// Makes a worker whose cache has room for `room` verdicts, a power of two from 4 on; another number is rounded up.
    pub fn worker(self: &Arc<Self>, room: usize) -> StripedWorker<A> {
        let sets = (room.max(WAYS) / WAYS).next_power_of_two();
        let steps = Steps::new(&self.changes);
        let (hits, misses) = (0, 0);
        StripedWorker {
            striped: Arc::clone(self),
            steps,
            sets: vec![[None; WAYS]; sets],
            hits,
            misses,
        }
    }
}

/// A verdict, and the versions of the stripes of source and destination at its instant.
#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    source: A,
    destination: A,
    versions: (u64, u64),
    denied: Option<DecidedBy>,
}

/// A worker that judges batches.
#[derive(Debug)]
pub struct StripedWorker<A> {
    striped: Arc<Striped<A>>,
    steps: Steps,
    /// Entries by the hash of their addresses, the latest used first.
    sets: Vec<[Option<Entry<A>>; WAYS]>,
    hits: u64,
    misses: u64,
}

impl<A: Address> StripedWorker<A> {
    /// Begins a batch that was taken before.
    pub fn begin(&mut self) {
        self.steps.begin();
    }

    /// Ends the batch, once its verdicts are handed on.
    pub fn end(&mut self) {
        self.steps.end();
    }

    /// Applies a change that came as a packet of the batch under way, and returns its number. **Errors**: no room.
    pub fn change(&mut self, change: &Change<A>) -> Result<u64, Full> {
        self.striped.apply(change)
    }

    /// Numbers of packets whose verdict was in the cache, and of all others.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Returns the reason for which a packet of the batch under way does not pass, if it does not. **Cost**: a set of the cache, and both
    /// versions; else two locks and two searches.
    pub fn denies(&mut self, source: A, destination: A) -> Option<DecidedBy> {
        let striped = &*self.striped;
        let (of_source, of_destination) = (striped.stripe(source), striped.stripe(destination));
        let version = |stripe: usize| striped.stripes[stripe].version.load(Ordering::Acquire);
        let place = (source.hash(striped.seed) ^ destination.hash(!striped.seed)) as usize
            & (self.sets.len() - 1);
        let set = &mut self.sets[place];
        let is_it = |entry: &Option<Entry<A>>| {
            entry.is_some_and(|entry| (entry.source, entry.destination) == (source, destination))
        };
        let way = set.iter().position(is_it);
        if let Some(way) = way
            && let Some(entry) = set[way]
            && entry.versions == (version(of_source), version(of_destination))
        {
            set[..=way].rotate_right(1);
            self.hits += 1;
            return entry.denied;
        }
        self.misses += 1;
        let entry = striped.judge((source, of_source), (destination, of_destination));
        // In the place of the obsolete entry, or of the one that was used longest ago.
        set[..=way.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = Some(entry);
        entry.denied
    }
}

impl<A: Address> Striped<A> {
    /// Judges a packet by both stripes, at one instant.
    fn judge(
        &self,
        (source, of_source): (A, usize),
        (destination, of_destination): (A, usize),
    ) -> Entry<A> {
        let (low, high) = (of_source.min(of_destination), of_source.max(of_destination));
        let first = self.lock(low);
        let second = (high != low).then(|| self.lock(high));
        let other = second.as_ref().unwrap_or(&first);
        let (by_source, by_destination) = if of_source <= of_destination {
            (&first, other)
        } else {
            (other, &first)
        };
        let denied = match by_source.is_persona_non_grata(source) {
            true => Some(DecidedBy::PersonaNonGrata),
            false => {
                (!by_destination.accepts(destination, source)).then_some(DecidedBy::NotAccepted)
            }
        };
        // Versions change under these locks only.
        let version = |stripe: usize| self.stripes[stripe].version.load(Ordering::Relaxed);
        Entry {
            source,
            destination,
            versions: (version(of_source), version(of_destination)),
            denied,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use weir_firewall::permissions::Span;
    use weir_testkit::Random;

    /// One worker alone gives the verdicts of the serial table, with caches of any size.
    #[test]
    fn verdicts_are_those_of_the_serial_table() {
        for room in [1, 16, 1 << 12] {
            let mut random = Random(room as u64);
            let striped = Striped::<u32>::new(64, true, 8, 3);
            let mut serial = Permissions::new(64, true, 1);
            let mut worker = striped.worker(room);
            for _ in 0..40_000 {
                worker.begin();
                if random.below(20) == 0 {
                    let begin = random.below(60) as u32;
                    let change = Change {
                        address: random.below(64) as u32,
                        persona_non_grata: Some(random.below(4) == 0),
                        accepts: Span::half_open(begin, Some(begin + 4))
                            .map(|span| (span, random.below(2) == 0)),
                    };
                    serial.apply(&change).unwrap();
                    worker.change(&change).unwrap();
                }
                let (source, destination) = (random.below(64) as u32, random.below(64) as u32);
                assert_eq!(
                    worker.denies(source, destination),
                    serial.denies(source, destination)
                );
                worker.end();
            }
            let (hits, misses) = worker.hits_and_misses();
            assert_eq!(hits + misses, 40_000);
            assert!(room < 16 || hits > 50, "{hits} hits");
        }
    }

    #[test]
    fn the_least_recently_used_entry_of_a_set_is_replaced() {
        let striped = Striped::<u32>::new(4, true, 1, 3);
        let mut worker = striped.worker(WAYS);
        let mut hit = |source: u32| {
            let before = worker.hits;
            worker.denies(source, 0);
            worker.hits > before
        };
        assert_eq!([1, 2, 3, 4].map(&mut hit), [false; 4]);
        assert_eq!(
            [1, 5, 1, 2].map(&mut hit),
            [true, false, true, false],
            "2 was used longest ago"
        );
        assert_eq!([5, 1, 4].map(&mut hit), [true, true, true]);
        assert!(!hit(3));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;
    use weir_firewall::permissions::Span;

    const ADDRESS: u32 = 7;

    fn ban() -> Change<u32> {
        Change {
            address: ADDRESS,
            persona_non_grata: Some(true),
            accepts: Span::half_open(0, None).map(|all| (all, true)),
        }
    }

    /// Whether a packet from the address, and one to it, are judged by the change, in this order.
    fn sees(worker: &mut StripedWorker<u32>) -> (bool, bool) {
        (
            worker.denies(ADDRESS, 1) == Some(DecidedBy::PersonaNonGrata),
            worker.denies(1, ADDRESS).is_none(),
        )
    }

    fn striped() -> Arc<Striped<u32>> {
        let striped = Striped::new(4, false, 2, 1);
        // Another destination accepts all, so that the flag alone decides about packets to it.
        let accepts = Span::half_open(0, None).map(|all| (all, true));
        striped
            .apply(&Change {
                address: 1,
                persona_non_grata: None,
                accepts,
            })
            .unwrap();
        striped
    }

    #[test]
    fn entries_of_a_cache_are_obsolete_once_a_change_is_seen() {
        loom::model(|| {
            let striped = striped();
            let (mut one, mut other) = (striped.worker(4), striped.worker(4));
            // Both have the verdicts before the change in their caches.
            assert_eq!(
                (sees(&mut one), sees(&mut other)),
                ((false, false), (false, false))
            );
            let seen = Arc::new(AtomicU64::new(0));
            let tells = Arc::clone(&seen);
            let judge = thread::spawn(move || {
                one.begin();
                let (flag, range) = sees(&mut one);
                assert!(
                    range || !flag,
                    "a later packet misses a change that an earlier one saw"
                );
                tells.store(u64::from(flag), Ordering::Release);
                one.end();
            });
            let controller = thread::spawn(move || striped.apply(&ban()).unwrap());
            let was_seen = seen.load(Ordering::Acquire) == 1;
            other.begin();
            assert!(
                !was_seen || sees(&mut other) == (true, true),
                "a packet misses a change that another worker saw"
            );
            other.end();
            judge.join().unwrap();
            controller.join().unwrap();
        });
    }

    #[test]
    fn no_batch_runs_on_old_entries_once_a_change_is_acknowledged() {
        loom::model(|| {
            let striped = striped();
            let mut worker = striped.worker(4);
            assert_eq!(sees(&mut worker), (false, false));
            let acknowledged = Arc::new(AtomicU64::new(0));
            let tells = Arc::clone(&acknowledged);
            let controller = thread::spawn(move || {
                let number = striped.apply(&ban()).unwrap();
                if striped.is_in_force(number) {
                    tells.store(1, Ordering::Release);
                }
            });
            worker.begin();
            let was_acknowledged = acknowledged.load(Ordering::Acquire) == 1;
            let saw = sees(&mut worker);
            assert!(
                !was_acknowledged || saw == (true, true),
                "an acknowledged change is missed"
            );
            worker.end();
            controller.join().unwrap();
        });
    }
}
