//! A sample of pairs against the map of all pairs.

use std::collections::BTreeMap;

use weir_memory::{Policy, Request};

use crate::image::{Kind, Writer};
use crate::spreaders::home;
use crate::{Contact, Marks, Spreader, Spreaders, mix};

const SLOTS: usize = 7;

/// Numbers of packets of a pair, by their marks.
#[derive(Clone, Copy, Default)]
struct Packets {
    contacts: u64,
    answers: u64,
    refusals: u64,
}

impl Packets {
    fn count(&mut self, marks: Marks) {
        match marks {
            Marks::CONTACT => self.contacts += 1,
            Marks::ANSWER => self.answers += 1,
            _ => self.refusals += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.contacts += other.contacts;
        self.answers += other.answers;
        self.refusals += other.refusals;
    }

    fn is_answered(&self) -> bool {
        self.answers + self.refusals > 0
    }

    /// The bits of an image: 1 not sent, 2 answered, 4 accepted.
    fn written(&self) -> u32 {
        let bit = |is_set: bool, bit: u32| u32::from(is_set) * bit;
        bit(self.contacts == 0, 1) + bit(self.is_answered(), 2) + bit(self.answers > 0, 4)
    }
}

/// Contact that gives these marks.
struct Marked {
    hash: u64,
    key: u32,
    marks: Marks,
}

impl Contact<u32> for Marked {
    fn pair(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> u32 {
        self.key
    }

    fn marks(&self) -> Marks {
        self.marks
    }
}

/// A sketch, and all pairs that it stands for.
struct Side {
    sketch: Spreaders<u32>,
    pairs: BTreeMap<(u32, u32), Packets>,
    seed: u64,
}

impl Side {
    fn new(memory: usize, seed: u64) -> Self {
        let sketch = Spreaders::new(memory, seed, &request()).expect("there is memory");
        Self {
            sketch,
            pairs: BTreeMap::new(),
            seed,
        }
    }

    fn hash(&self, (key, element): (u32, u32)) -> u64 {
        mix(mix(self.seed << 32 | u64::from(key)).wrapping_add(element.into()))
    }

    /// Counts packets of these pairs, all with the same marks.
    fn see(&mut self, pairs: &[(u32, u32)], marks: Marks) {
        let contacts = pairs.iter().map(|pair| Marked {
            hash: self.hash(*pair),
            key: pair.0,
            marks,
        });
        let contacts: Vec<_> = contacts.collect();
        self.sketch.update(&contacts);
        if marks != Marks::NONE {
            for pair in pairs {
                self.pairs.entry(*pair).or_default().count(marks);
            }
        }
    }

    fn merge(&mut self, other: &mut Self) {
        self.sketch.merge(&other.sketch).expect("they are alike");
        for (pair, packets) in core::mem::take(&mut other.pairs) {
            self.pairs.entry(pair).or_default().add(packets);
        }
        other.clear();
    }

    fn clear(&mut self) {
        self.sketch.clear();
        self.pairs.clear();
    }

    /// Compares the sketch with a sample that a map of ordered maps takes of the pairs.
    fn check(&self) {
        let count = self.sketch.capacity() / SLOTS;
        let mut buckets = vec![BTreeMap::<u32, (u32, Packets)>::new(); count];
        for (pair, packets) in &self.pairs {
            let (bucket, rank) = home(self.hash(*pair), count);
            let bucket = &mut buckets[bucket as usize];
            let kept = bucket.entry(rank).or_insert((pair.0, Packets::default()));
            kept.1.add(*packets);
        }
        let mut image = Writer::new(Kind::Spreaders, 4, self.seed);
        image.u64(count as u64);
        image.u32(SLOTS as u32);
        for bucket in &buckets {
            image.u32(bucket.iter().rev().nth(SLOTS).map_or(0, |(rank, _)| *rank));
            image.u8(bucket.len().min(SLOTS) as u8);
            for (rank, (key, packets)) in bucket.iter().rev().take(SLOTS) {
                image.u32(*rank | packets.written());
                image.key(key);
            }
        }
        assert_eq!(self.sketch.to_bytes(), image.finish());
        let sampled = buckets
            .iter()
            .flat_map(|bucket| bucket.iter().rev().take(SLOTS));
        let mut sampled = sampled.map(|(_, (_, packets))| packets);
        let knows_answers = sampled.any(|packets| packets.contacts > 0 && packets.is_answered());
        assert_eq!(self.sketch.knows_answers(), knows_answers);
        let is_exact = buckets.iter().all(|bucket| bucket.len() <= SLOTS);
        assert_eq!(self.sketch.is_exact(), is_exact);
        self.check_numbers(is_exact, knows_answers);
    }

    /// Compares the numbers of keys with counts of the pairs.
    fn check_numbers(&self, is_exact: bool, knows_answers: bool) {
        let (top, others) = self.sketch.ranking(3);
        for key in 0..64 {
            let found = self.sketch.estimate(&key);
            assert!(found.lower <= found.estimate && found.estimate <= found.upper);
            let unanswered = found.unanswered.unwrap_or(0);
            assert!(unanswered + found.refused.unwrap_or(0) <= found.estimate + 1);
            assert_eq!(found.unanswered.is_some(), knows_answers);
            if is_exact {
                self.check_exact(&found);
            }
            let is_listed = top.iter().any(|listed| listed.key == key);
            assert!(
                is_listed || found.upper <= others,
                "{found:?} above {others}"
            );
        }
    }

    fn check_exact(&self, found: &Spreader<u32>) {
        let pairs = self.pairs.range((found.key, 0)..=(found.key, u32::MAX));
        let sent = pairs
            .map(|(_, packets)| packets)
            .filter(|it| it.contacts > 0);
        let sent: Vec<_> = sent.collect();
        let count = |is: fn(&Packets) -> bool| sent.iter().filter(|it| is(it)).count() as u64;
        assert_eq!([found.estimate, found.upper], [sent.len() as u64; 2]);
        if found.unanswered.is_some() {
            assert_eq!(found.unanswered, Some(count(|it| !it.is_answered())));
            let is_refused = |it: &Packets| it.refusals > 0 && it.answers == 0;
            assert_eq!(found.refused, Some(count(is_refused)));
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
        let marks = match operation >> 5 {
            0..=3 => Marks::CONTACT,
            4 | 5 => Marks::ANSWER,
            6 => Marks::REFUSAL,
            _ => Marks::NONE,
        };
        match operation >> 2 & 7 {
            0..=2 => left.see(&pairs, marks),
            3 | 4 => right.see(&pairs, marks),
            5 => left.merge(&mut right),
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
