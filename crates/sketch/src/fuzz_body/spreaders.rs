//! A sample of pairs against the set of all pairs.

use std::collections::{BTreeMap, BTreeSet};

use weir_memory::{Policy, Request};

use crate::image::{Kind, Writer};
use crate::spreaders::home;
use crate::{Pair, Spreaders, mix};

const SLOTS: usize = 7;

/// A sketch, and all pairs that it stands for.
struct Side {
    sketch: Spreaders<u32>,
    pairs: BTreeSet<(u32, u32)>,
    seed: u64,
}

impl Side {
    fn new(memory: usize, seed: u64) -> Self {
        let sketch = Spreaders::new(memory, seed, &request()).expect("there is memory");
        Self {
            sketch,
            pairs: BTreeSet::new(),
            seed,
        }
    }

    fn hash(&self, (key, element): (u32, u32)) -> u64 {
        mix(mix(self.seed << 32 | u64::from(key)).wrapping_add(element.into()))
    }

    fn see(&mut self, pairs: &[(u32, u32)]) {
        let contacts = pairs.iter().map(|pair| Pair {
            hash: self.hash(*pair),
            key: pair.0,
        });
        let contacts: Vec<_> = contacts.collect();
        self.sketch.update(&contacts);
        self.pairs.extend(pairs);
    }

    fn clear(&mut self) {
        self.sketch.clear();
        self.pairs.clear();
    }

    /// Compares the sketch with a sample that a map of ordered maps takes of the set.
    fn check(&self) {
        let count = self.sketch.capacity() / SLOTS;
        let mut buckets = vec![BTreeMap::new(); count];
        for pair in &self.pairs {
            let (bucket, rank) = home(self.hash(*pair), count);
            buckets[bucket as usize].insert(rank, pair.0);
        }
        let mut image = Writer::new(Kind::Spreaders, 4, self.seed);
        image.u64(count as u64);
        image.u32(SLOTS as u32);
        for bucket in &buckets {
            image.u32(bucket.iter().rev().nth(SLOTS).map_or(0, |(rank, _)| *rank));
            image.u8(bucket.len().min(SLOTS) as u8);
            for (rank, key) in bucket.iter().rev().take(SLOTS) {
                image.u32(*rank);
                image.key(key);
            }
        }
        assert_eq!(self.sketch.to_bytes(), image.finish());
        let is_exact = buckets.iter().all(|bucket| bucket.len() <= SLOTS);
        assert_eq!(self.sketch.is_exact(), is_exact);
        let (top, others) = self.sketch.ranking(3);
        for key in 0..64 {
            let found = self.sketch.estimate(&key);
            assert!(found.lower <= found.estimate && found.estimate <= found.upper);
            let truth = self.pairs.range((key, 0)..=(key, u32::MAX)).count() as u64;
            assert!(!is_exact || (found.estimate, found.upper) == (truth, truth));
            let is_listed = top.iter().any(|listed| listed.key == key);
            assert!(
                is_listed || found.upper <= others,
                "{found:?} above {others}"
            );
        }
    }
}

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

/// Reads pairs and merges out of `data` and compares samples with the set of pairs.
///
/// **Layout**: memory (one byte), seed (one), then operations of one byte and their arguments. **Panics**: if the sketch
/// breaks a promise.
pub fn pairs(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let (Some(memory), Some(seed)) = (bytes.next(), bytes.next()) else {
        return;
    };
    let side = || Side::new(65 + usize::from(memory) * 20, seed.into());
    let (mut left, mut right) = (side(), side());
    while let Some(operation) = bytes.next() {
        let mut next = || u32::from(bytes.next().unwrap_or(0));
        let (first, count) = (next() % 64, next());
        let pair = |index: u32| match operation % 4 {
            0 => (first, index),
            1 => (first.wrapping_add(index) % 64, first),
            _ => (mix(u64::from(first ^ index << 8)) as u32 % 64, index % 16),
        };
        let pairs: Vec<_> = (0..count).map(pair).collect();
        match operation >> 2 & 7 {
            0..=2 => left.see(&pairs),
            3 | 4 => right.see(&pairs),
            5 => {
                left.sketch.merge(&right.sketch).expect("they are alike");
                left.pairs.append(&mut right.pairs);
                right.clear();
            }
            6 => right.clear(),
            _ => {
                left.sketch = Spreaders::from_bytes(&left.sketch.to_bytes(), &request())
                    .expect("it was written");
            }
        }
    }
    left.check();
    right.check();
}
