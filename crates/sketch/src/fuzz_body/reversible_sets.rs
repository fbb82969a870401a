//! Sets of the parts of keys against the exact sets, and recovered keys against exact counts.

use std::collections::{BTreeMap, BTreeSet};

use weir_memory::{Policy, Request};

use crate::{Counts, Error, Item, PARTS, Parts, ReversibleSets, SharedReversibleSets, mix};

const HOLDS: &str = "enough memory, sketches that are alike, images of our own";
/// Bytes for 16 entries in each row.
const MEMORY: usize = 100_000;
const CAP: usize = 16;

type Key = [u16; PARTS];

/// Keys of five numbers.
#[derive(Debug)]
struct Numbers;

impl Parts for Numbers {
    type Key = Key;

    fn split(key: &Key) -> [u128; PARTS] {
        key.map(u128::from)
    }

    fn join(parts: &[u128; PARTS]) -> Option<Key> {
        let part = |part: &u128| u16::try_from(*part).ok();
        let numbers: Option<Vec<u16>> = parts.iter().map(part).collect();
        numbers?.try_into().ok()
    }
}

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

fn hash(seed: u64, key: &Key) -> u64 {
    key.iter()
        .fold(mix(seed), |hash, part| mix(hash ^ u64::from(*part)))
}

/// A sketch, and the exact counts that it stands for.
struct Side {
    sketch: ReversibleSets<Numbers>,
    shared: SharedReversibleSets<Numbers>,
    truth: BTreeMap<Key, Counts>,
    seed: u64,
}

impl Side {
    fn new(seed: u64) -> Self {
        Self {
            sketch: ReversibleSets::new(MEMORY, seed, &request()).expect(HOLDS),
            shared: SharedReversibleSets::new(MEMORY + MEMORY / 8, seed).expect(HOLDS),
            truth: BTreeMap::new(),
            seed,
        }
    }

    fn see(&mut self, packets: &[(Key, u32)]) {
        let item = |(key, bytes): &(Key, u32)| Item {
            hash: hash(self.seed, key),
            bytes: *bytes,
            key: *key,
        };
        let items: Vec<_> = packets.iter().map(item).collect();
        self.sketch.update(&items);
        self.shared.update(&items);
        for (key, bytes) in packets {
            let counts = self.truth.entry(*key).or_default();
            counts.packets += 1;
            counts.bytes += u64::from(*bytes);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.sketch.merge(&other.sketch).expect(HOLDS);
        for (key, counts) in &other.truth {
            let mine = self.truth.entry(*key).or_default();
            mine.packets += counts.packets;
            mine.bytes += counts.bytes;
        }
    }

    fn clear(&mut self) {
        *self = Self {
            truth: BTreeMap::new(),
            shared: SharedReversibleSets::new(MEMORY + MEMORY / 8, self.seed).expect(HOLDS),
            sketch: core::mem::replace(
                &mut self.sketch,
                ReversibleSets::new(MEMORY, self.seed, &request()).expect(HOLDS),
            ),
            seed: self.seed,
        };
        self.sketch.clear();
    }

    fn check(&self) {
        self.check_entries();
        let largest = self.truth.values().map(|it| it.packets).max().unwrap_or(0);
        for threshold in [largest, largest / 2] {
            self.check_recovery(threshold.max(1));
        }
        for (key, counts) in &self.truth {
            let found = self.sketch.estimate(hash(self.seed, key));
            assert!(counts.packets <= found.packets && counts.bytes <= found.bytes);
        }
    }

    /// Each entry has the counts and the values of all its keys, or 16 of the values and the mark of a full set.
    fn check_entries(&self) {
        let mut exact = BTreeMap::<usize, (Counts, [BTreeSet<u128>; PARTS])>::new();
        let mut entries = BTreeMap::new();
        for (key, counts) in &self.truth {
            for (at, of_entry, sets) in self.sketch.entries_of(hash(self.seed, key)) {
                let (sum, exact) = exact.entry(at).or_default();
                sum.packets += counts.packets;
                sum.bytes += counts.bytes;
                for (set, part) in exact.iter_mut().zip(Numbers::split(key)) {
                    set.insert(part);
                }
                entries.insert(at, (of_entry, sets));
            }
        }
        for (at, (sum, exact)) in exact {
            let (counts, sets) = &entries[&at];
            assert_eq!(*counts, sum);
            for ((values, is_full), exact) in sets.iter().zip(exact) {
                assert_eq!(values.len(), exact.len().min(CAP));
                assert_eq!(*is_full, exact.len() > CAP);
                let values: BTreeSet<u128> = values.iter().copied().collect();
                assert!(values.is_subset(&exact) && values.len() == exact.len().min(CAP));
            }
        }
    }

    fn check_recovery(&self, threshold: u64) {
        let found = self
            .sketch
            .recover_within(threshold, 1 << 14, |key| hash(self.seed, key));
        let keys: BTreeMap<Key, Counts> = found.heavy.iter().copied().collect();
        assert_eq!(keys.len(), found.heavy.len(), "a key twice");
        for (key, counts) in &keys {
            assert!(counts.packets >= threshold);
            assert_eq!(*counts, self.sketch.estimate(hash(self.seed, key)));
        }
        let heavy = self.truth.iter().filter(|(_, it)| it.packets >= threshold);
        for (key, _) in heavy {
            assert!(!found.is_complete || keys.contains_key(key));
        }
    }

    /// Of one stream, the shared form is the same sketch.
    fn check_shared(&self) {
        assert_eq!(self.shared.shape(), self.sketch.shape());
        let snapshot = self.shared.snapshot(&request()).expect(HOLDS);
        assert_eq!(snapshot.to_bytes(), self.sketch.to_bytes());
    }
}

/// Reads keys, sizes and merges out of `data` and compares sketches with exact sets and counts.
///
/// **Layout**: seed (one byte), then operations of one byte and their arguments. **Panics**: if the sketch breaks a promise.
pub fn reversible_sets(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let Some(seed) = bytes.next() else {
        return;
    };
    let mut left = Side::new(seed.into());
    let mut right = Side::new(seed.into());
    while let Some(operation) = bytes.next() {
        let mut next = || u16::from(bytes.next().unwrap_or(0));
        let (first, count, size) = (next(), next() % 48, next());
        let key = |at: u16| match operation >> 4 {
            0..=3 => [first, 1, 2, 3, 6],
            4..=9 => [first, at % 20, first ^ at, 80, 6],
            _ => [first % 4, at % 3, at % 2, first, at],
        };
        let packets: Vec<_> = (0..count).map(|at| (key(at), u32::from(size))).collect();
        match operation % 8 {
            0..=2 => left.see(&packets),
            3 | 4 => right.see(&packets),
            5 => {
                left.merge(&right);
                right.clear();
            }
            6 => right.clear(),
            _ => {
                let image = left.sketch.to_bytes();
                left.sketch = ReversibleSets::from_bytes(&image, &request()).expect(HOLDS);
                assert_eq!(left.sketch.to_bytes(), image);
            }
        }
    }
    left.check();
    right.check();
    right.check_shared();
}

/// Reads any bytes as an image of a sketch.
pub(super) fn image(bytes: &[u8]) {
    let Ok(mut sketch) = ReversibleSets::<Numbers>::from_bytes(bytes, &request()) else {
        return;
    };
    assert_eq!(sketch.to_bytes(), bytes);
    let seed = sketch.seed();
    let key = [1, 2, 3, 4, 5];
    sketch.update(&[Item {
        hash: hash(seed, &key),
        bytes: u32::MAX,
        key,
    }]);
    assert!(sketch.estimate(hash(seed, &key)).packets >= 1);
    sketch.recover_within(1, 1 << 14, |key| hash(seed, key));
    let other = ReversibleSets::from_bytes(bytes, &request()).expect("it was accepted before");
    let merged = sketch.merge(&other);
    assert!(matches!(merged, Ok(()) | Err(Error::TooMuch)), "{merged:?}");
}
