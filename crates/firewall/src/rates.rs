//! Rates of rules: a rule applies to packets up to a rate, or beyond it.
//!
//! A rate is a bucket of tokens, kept as one number: the time at which the bucket will be full again. A packet within the rate moves that
//! time on by its cost; if the time would come to lie further ahead than an empty bucket's, the packet is beyond the rate and moves nothing.
//! So a bucket is one atomic word, which all workers share without a lock. **Source**: the generic cell rate algorithm, ITU-T I.371.
//!
//! With `per src` each source address has a bucket, in a table of bounded size. A slot whose bucket is full again says nothing, and is given
//! to the next source. If all four slots of a source are in use, its packet is counted as one without room, and taken as beyond the rate.
//! If two workers meet at a slot that changes its source, one packet may be charged to the other source.

use crate::address::mixed;
use crate::rules::{Rate, RuleList, Unit};
use std::sync::Arc;

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// Parts of a nanosecond in which costs are counted, as a power of two. A cost is rounded down to a whole part: a bucket is full again once its
/// period is over.
const PARTS: u32 = 8;

/// Largest depth of a bucket, parts of a nanosecond: 100 days.
const DEEPEST: u64 = (100 * 24 * 3600 * 1_000_000_000) << PARTS;

/// Slots of the table of sources: 2 MiB.
const SLOTS: usize = 1 << 17;

/// Slots in which a source may lie: a cache line.
const WAYS: usize = 4;

/// Place of a packet in relation to the rate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Within,
    Beyond,
    /// Beyond, for lack of room for the source.
    NoRoom,
    /// Beyond, and so after every pause: the frame has more bytes than the bucket holds.
    TooLong,
}

/// Buckets of the rules of a list that name rates.
///
/// **Threads**: shared by all workers.
#[derive(Debug, Default)]
pub struct Rates {
    /// By the number of the rule; empty if no rule names a rate.
    buckets: Vec<Option<Arc<Bucket>>>,
    /// Buckets of the sources of all rules with `per src`.
    sources: Option<Arc<Sources>>,
    /// Number for the next bucket, which none had before.
    next: u64,
}

impl Rates {
    /// Makes full buckets for a list. The `seed` decides where sources lie in memory. **Cost**: 2 MiB if a rule has `per src`.
    pub fn new(list: &RuleList, seed: u64) -> Self {
        let rates = || list.rules.iter().map(|rule| rule.rate);
        if rates().all(|rate| rate.is_none()) {
            return Self::default();
        }
        let buckets = (0..)
            .zip(rates())
            .map(|(number, rate)| rate.map(|rate| Arc::new(Bucket::new(rate, number))));
        let is_per_source = rates().flatten().any(|rate| rate.is_per_source);
        let sources = is_per_source.then(|| Arc::new(Sources::new(seed)));
        Self {
            buckets: buckets.collect(),
            sources,
            next: list.rules.len() as u64,
        }
    }

    /// Takes over the buckets of another list. `places` has for each rule of that list the number of the same rule here.
    pub fn carry(&mut self, before: &Self, places: &[Option<u32>]) {
        for bucket in self.buckets.iter_mut().flatten() {
            let number = bucket.number + before.next;
            *bucket = Arc::new(Bucket {
                number,
                ..Bucket::like(bucket)
            });
        }
        self.next += before.next;
        for (bucket, place) in before.buckets.iter().zip(places) {
            if let (Some(bucket), Some(Some(here))) = (
                bucket,
                place.map(|place| self.buckets.get_mut(place as usize)),
            ) {
                *here = Some(Arc::clone(bucket));
            }
        }
        if let (Some(here), Some(sources)) = (&mut self.sources, &before.sources) {
            *here = Arc::clone(sources);
        }
    }

    /// Charges a packet to the bucket of a rule, and returns its place. `source` is `None` without IP.
    pub(crate) fn charge(
        &self,
        rule: u32,
        time_ns: u64,
        wire_len: u32,
        source: Option<(bool, u128)>,
    ) -> Place {
        let Some(Some(bucket)) = self.buckets.get(rule as usize) else {
            return Place::Within;
        };
        let now = time_ns << PARTS;
        let slot = match &self.sources {
            Some(sources) if bucket.is_per_source => {
                source.and_then(|source| sources.slot(bucket.number, source, now))
            }
            _ => Some(&bucket.slot),
        };
        let cost = bucket.cost(wire_len);
        match slot {
            _ if cost > bucket.depth => Place::TooLong,
            Some(slot) => slot.charge(now, cost, bucket.depth),
            None => Place::NoRoom,
        }
    }
}

/// Bucket of a rule, or what the buckets of its sources have in common.
#[derive(Debug)]
struct Bucket {
    number: u64,
    /// Cost of a packet or byte, parts of a nanosecond.
    cost: u64,
    /// Costs of an empty bucket.
    depth: u64,
    unit: Unit,
    is_per_source: bool,
    slot: Slot,
}

impl Bucket {
    fn new(rate: Rate, number: u64) -> Self {
        let Rate {
            count,
            unit,
            period_ns,
            burst,
            is_per_source,
            ..
        } = rate;
        let cost = (u128::from(period_ns) << PARTS) / u128::from(count.max(1));
        let cost = u64::try_from(cost).unwrap_or(DEEPEST).clamp(1, DEEPEST);
        let depth = cost.saturating_mul(burst).min(DEEPEST);
        Self {
            number,
            cost,
            depth,
            unit,
            is_per_source,
            slot: Slot::new(),
        }
    }

    /// A full bucket of the same rate.
    fn like(other: &Self) -> Self {
        let Self {
            number,
            cost,
            depth,
            unit,
            is_per_source,
            ..
        } = *other;
        Self {
            number,
            cost,
            depth,
            unit,
            is_per_source,
            slot: Slot::new(),
        }
    }

    fn cost(&self, wire_len: u32) -> u64 {
        match self.unit {
            Unit::Packets => self.cost,
            Unit::Bytes => self.cost.saturating_mul(u64::from(wire_len)),
        }
    }
}

/// Buckets of sources.
#[derive(Debug)]
struct Sources {
    seed: u64,
    slots: Box<[Slot]>,
}

impl Sources {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            slots: std::iter::repeat_with(Slot::new).take(SLOTS).collect(),
        }
    }

    /// Returns the slot of a rule's source, which is a free one if it has none; `None` if there is none.
    fn slot(&self, number: u64, (is_v6, address): (bool, u128), now: u64) -> Option<&Slot> {
        let upper =
            mixed((address >> 64) as u64 ^ mixed(self.seed ^ (number << 1 | u64::from(is_v6))));
        let hash = mixed(upper ^ address as u64).max(1);
        let first = hash as usize % (self.slots.len() / WAYS) * WAYS;
        let slots = &self.slots[first..first + WAYS];
        if let Some(slot) = slots
            .iter()
            .find(|slot| slot.source.load(Ordering::Relaxed) == hash)
        {
            return Some(slot);
        }
        slots.iter().find(|slot| {
            let source = slot.source.load(Ordering::Relaxed);
            // The slot may be of a rule with a deeper bucket.
            let is_free =
                source == 0 || taken(slot.full_at.load(Ordering::Relaxed), now, DEEPEST) == 0;
            is_free
                && slot
                    .source
                    .compare_exchange(source, hash, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        })
    }
}

/// Returns the costs that a bucket has taken and not got back.
fn taken(full_at: u64, now: u64, depth: u64) -> u64 {
    // A time in the past wraps to a large number. A time that is further ahead than any bucket reaches means that clocks were set back.
    match full_at.wrapping_sub(now) {
        ahead if ahead <= depth => ahead,
        _ => 0,
    }
}

#[derive(Debug)]
struct Slot {
    /// Hash of the source, 0 for none.
    source: AtomicU64,
    /// Time at which the bucket is full again, parts of a nanosecond, without its upper bits.
    full_at: AtomicU64,
}

impl Slot {
    fn new() -> Self {
        Self {
            source: AtomicU64::new(0),
            full_at: AtomicU64::new(0),
        }
    }

    fn charge(&self, now: u64, cost: u64, depth: u64) -> Place {
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let taken = taken(full_at, now, depth).saturating_add(cost);
            if taken > depth {
                return Place::Beyond;
            }
            let next = now.wrapping_add(taken);
            match self.full_at.compare_exchange_weak(
                full_at,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Place::Within,
                Err(other) => full_at = other,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use weir_testkit::Random;

    /// Rates of a list with one rule.
    fn rates(count: u64, period_ns: u64, burst: u64, unit: Unit, is_per_source: bool) -> Rates {
        let mut list =
            RuleList::parse("pass limit 1/s\n", &mut |_| unreachable!("no sets")).unwrap();
        list.rules[0].rate = Some(Rate {
            count,
            unit,
            period_ns,
            burst,
            is_per_source,
            is_beyond: false,
        });
        Rates::new(&list, 7)
    }

    /// The twin: tokens of a bucket in fractions of `count`, which are filled up for the time that went by.
    #[test]
    fn packets_are_within_the_rate_exactly_if_a_bucket_of_tokens_has_enough() {
        let second = 1_000_000_000;
        // Rates whose costs are whole parts of a nanosecond.
        for (count, period_ns, burst, unit) in [
            (100, second, 100, Unit::Packets),
            (6, 60 * second, 2, Unit::Packets),
            (1, 3600 * second, 1, Unit::Packets),
            (1_000_000, second, 3000, Unit::Bytes),
            (256_000_000_000, second, 512, Unit::Bytes),
        ] {
            let mut random = Random(count ^ burst);
            let rates = rates(count, period_ns, burst, unit, false);
            // Tokens times the period, so that a nanosecond fills in `count`.
            let (mut tokens, full) = (u128::from(burst * period_ns), u128::from(burst * period_ns));
            let (mut now, mut before, mut places) = (1_700_000_000_000_000_000u64, None, [0u32; 2]);
            for _ in 0..20_000 {
                let mean = (period_ns / count).max(1) as usize;
                now += random.below(mean + 1) as u64 * if random.below(500) == 0 { 100 } else { 1 };
                let wire_len = 40 + random.below(1500) as u32;
                let needed = if unit == Unit::Bytes {
                    u128::from(wire_len)
                } else {
                    1
                } * u128::from(period_ns);
                let passed = before.map_or(0, |before| now - before);
                tokens = (tokens + u128::from(passed) * u128::from(count)).min(full);
                before = Some(now);
                let is_within = tokens >= needed;
                if is_within {
                    tokens -= needed;
                }
                let expected = match is_within {
                    true => Place::Within,
                    false if needed > full => Place::TooLong,
                    false => Place::Beyond,
                };
                assert_eq!(
                    rates.charge(0, now, wire_len, None),
                    expected,
                    "{count}/{period_ns}"
                );
                places[usize::from(is_within)] += 1;
            }
            assert!(places[1] > 5, "{count}/{period_ns}: {places:?}");
            assert!(
                places[0] > 5 || unit == Unit::Bytes,
                "{count}/{period_ns}: {places:?}"
            );
        }
    }

    #[test]
    fn each_source_has_a_bucket_of_its_own_and_a_full_table_says_so() {
        let rates = rates(10, 1_000_000_000, 3, Unit::Packets, true);
        let (mut random, mut twin) = (Random(3), HashMap::<(bool, u128), (u64, u64)>::new());
        // A few sources, often: each as if it were alone.
        let mut now = 1_000_000_000_000;
        for _ in 0..50_000 {
            now += random.below(10_000_000) as u64;
            let source = (random.below(2) == 0, random.below(20) as u128);
            // Time at which the bucket is full again, ns; each packet costs a tenth of a second.
            let (full_at, _) = twin.get(&source).copied().unwrap_or((now, 0));
            let next = full_at.max(now) + 100_000_000;
            let is_within = next - now <= 300_000_000;
            if is_within {
                twin.insert(source, (next, 0));
            }
            let expected = if is_within {
                Place::Within
            } else {
                Place::Beyond
            };
            assert_eq!(rates.charge(0, now, 60, Some(source)), expected);
        }
        // A flood of sources at one time: no more than the slots find room, and all have it again once the buckets are full.
        let flood = |now: u64, first: u128| {
            let places = (first..first + 400_000)
                .map(|source| rates.charge(0, now, 60, Some((false, source))));
            places.filter(|place| *place == Place::Within).count()
        };
        now += 10_000_000_000;
        let within = flood(now, 1 << 40);
        assert!((SLOTS * 9 / 10..=SLOTS).contains(&within), "{within}");
        assert_eq!(rates.charge(0, now, 60, None), Place::NoRoom);
        now += 10_000_000_000;
        assert!(flood(now, 2 << 40) > SLOTS * 9 / 10);
    }

    #[test]
    fn another_list_goes_on_with_the_buckets_of_its_rules() {
        let parse = |text: &str| RuleList::parse(text, &mut |_| unreachable!("no sets")).unwrap();
        let of = |source| Some((false, source));
        let before = Rates::new(&parse("pass limit 1/h\npass tcp limit 1/h per src\n"), 1);
        assert_eq!(
            [0, 1].map(|rule| before.charge(rule, 1 << 50, 60, of(9))),
            [Place::Within; 2]
        );
        let mut after = Rates::new(
            &parse("pass udp limit 1/h per src\npass tcp limit 1/h per src\npass limit 1/h\n"),
            1,
        );
        after.carry(&before, &[Some(2), Some(1)]);
        let charged = [0, 1, 2].map(|rule| after.charge(rule, 1 << 50, 60, of(9)));
        assert_eq!(charged, [Place::Within, Place::Beyond, Place::Beyond]);
        assert_eq!(after.charge(1, 1 << 50, 60, of(8)), Place::Within);
    }

    #[test]
    fn clocks_that_are_set_back_close_no_rule() {
        let rates = rates(1, 1_000_000_000, 1, Unit::Packets, false);
        let later = 1_800_000_000_000_000_000;
        assert_eq!(rates.charge(0, later, 60, None), Place::Within);
        assert_eq!(rates.charge(0, later, 60, None), Place::Beyond);
        assert_eq!(
            rates.charge(0, later - 3_600_000_000_000, 60, None),
            Place::Within
        );
        assert_eq!(rates.charge(0, 0, 60, None), Place::Within);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;

    #[test]
    fn workers_together_pass_what_a_bucket_holds() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let charge = |slot: &Slot| slot.charge(1 << 40, 10, 25) == Place::Within;
            let other = Arc::clone(&slot);
            let thread = thread::spawn(move || [charge(&other), charge(&other)]);
            let here = [charge(&slot), charge(&slot)];
            let there = thread.join().unwrap();
            assert_eq!(
                here.iter().chain(&there).filter(|within| **within).count(),
                2,
                "a bucket of two packets and a half"
            );
        });
    }
}
