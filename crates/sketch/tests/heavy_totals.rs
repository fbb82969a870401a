//! Heavy tables whose weights come near the ends of their counters, compared with a table of u128.

mod support;

use std::collections::BTreeMap;

use support::random;
use weir_memory::{Policy, Request};
use weir_sketch::{Heavy, Item, Weigh};

const LIMIT: u128 = 1 << 63;

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

/// A table by bytes with room for 26 keys, and the exact bytes of every key.
struct Pair {
    table: Heavy<u32>,
    truth: BTreeMap<u32, u128>,
    seed: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let table = Heavy::new(2 * (128 + 13 * 32), Weigh::Bytes, seed, &request()).unwrap();
        Self {
            table,
            truth: BTreeMap::new(),
            seed,
        }
    }

    fn hash(&self, key: u32) -> u64 {
        random(self.seed, u64::from(key))
    }

    fn see(&mut self, packets: impl Iterator<Item = (u32, u32)>) {
        let items: Vec<_> = packets
            .map(|(key, bytes)| Item {
                hash: self.hash(key),
                bytes,
                key,
            })
            .collect();
        for Item { key, bytes, .. } in &items {
            *self.truth.entry(*key).or_default() += u128::from(*bytes);
        }
        self.table.update(&items);
    }

    /// Merges the same stream again, as if another worker had counted it.
    fn double(&mut self) {
        let other = Heavy::from_bytes(&self.table.to_bytes(), &request()).unwrap();
        self.table.merge(&other).unwrap();
        self.truth.values_mut().for_each(|bytes| *bytes *= 2);
    }

    fn total(&self) -> u128 {
        self.truth.values().sum()
    }

    fn check(&self) {
        for (key, bytes) in &self.truth {
            let (lower, upper) = self.table.bounds(key, self.hash(*key));
            let (lower, upper) = (u128::from(lower), u128::from(upper));
            assert!(
                lower <= *bytes && *bytes <= upper,
                "key {key} has {bytes}, told {lower}..={upper}"
            );
            // The floor of a bucket is at most a fourteenth of the weight that fell into it.
            assert!(
                upper - lower <= self.total() / 14,
                "key {key}: {lower}..={upper} is too wide"
            );
        }
        let (largest, bytes) = self
            .truth
            .iter()
            .max_by_key(|(_, bytes)| **bytes)
            .expect("a key");
        if *bytes > self.total() / 7 {
            assert_eq!(
                self.table.top(1)[0].key,
                *largest,
                "the largest key has {bytes} and is not the first"
            );
        }
    }
}

#[test]
fn bounds_hold_for_totals_up_to_two_to_the_63() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed);
        let mut at = 0;
        let mut draw = |many: u64| {
            at += 1;
            random(seed ^ 0x5eed, at) % many
        };
        // One large key, some of medium size, and a flood of small ones between all doublings.
        pair.see((0..400).map(|_| {
            (
                if draw(2) == 0 { 7 } else { draw(40) as u32 },
                u32::MAX - draw(9) as u32,
            )
        }));
        while 2 * pair.total() <= LIMIT {
            pair.double();
            pair.check();
            pair.see((0..60).map(|_| (1000 + draw(500) as u32, 60 + draw(1440) as u32)));
            pair.check();
        }
        assert!(
            pair.total() > 1 << 61,
            "the counters were filled to {}",
            pair.total()
        );
    }
}

/// An update may reach totals that a merge refuses: from 2^63 on, packet by packet.
#[test]
fn a_merge_beyond_two_to_the_63_is_refused_and_changes_nothing() {
    let mut pair = Pair::new(1);
    pair.see((0..64).map(|_| (1, u32::MAX)));
    while 2 * pair.total() <= LIMIT {
        pair.double();
    }
    let other = Heavy::from_bytes(&pair.table.to_bytes(), &request()).unwrap();
    assert!(pair.table.merge(&other).is_err());
    assert_eq!(pair.table.to_bytes(), other.to_bytes());
    pair.see((0..900).map(|key| (key, 1500)));
    pair.check();
}

/// The listed keys and the bound for all others, compared with a sort of all entries.
#[test]
fn the_largest_keys_are_those_that_a_sort_puts_first() {
    for (seed, keys) in [(1, 20), (2, 300), (3, 5000)] {
        let mut table = Heavy::<u32>::new(64 << 10, Weigh::Bytes, seed, &request()).unwrap();
        let item = |i: u64| {
            let key = (random(seed, i) % keys * (random(seed + 9, i) % 5)) as u32;
            Item {
                hash: random(seed, u64::from(key)),
                bytes: (random(seed, i) % 40) as u32,
                key,
            }
        };
        table.update(&(0..20_000).map(item).collect::<Vec<_>>());
        let mut all: Vec<_> = table.iter().collect();
        all.sort_by_key(|entry| (std::cmp::Reverse(entry.lower), entry.key.to_ne_bytes()));
        for k in [0, 1, 2, 10, 31, 32, 33, 100, 1000, usize::MAX] {
            let (listed, others) = all.split_at(k.min(all.len()));
            let most = others
                .iter()
                .map(|entry| entry.upper)
                .max()
                .unwrap_or(0)
                .max(table.absent_upper());
            assert_eq!(
                table.ranking(k),
                (listed.to_vec(), most),
                "seed {seed}, {k} of {}",
                all.len()
            );
        }
    }
}
