//! One stream in sketches of every kind, and the checks of their answers.

use std::collections::{BTreeMap, BTreeSet};

use weir_memory::{Policy, Request};

use super::twins::Twins;
use crate::{
    Cell, Cms, Counts, Distinct, Exact, Heavy, Item, Key, Rule, Shape, SharedCms, SharedExact,
    Weigh,
};

/// The sketches of one stream, and its exact counts.
#[derive(Debug)]
pub struct Side<K> {
    seed: u64,
    key: fn(u32) -> K,
    truth: BTreeMap<u32, Counts>,
    exact: Exact<K>,
    shared_exact: SharedExact<K>,
    heavy: [Heavy<K>; 2],
    /// Weighed by bytes.
    plain: Cms<u32>,
    plain_wide: Cms<u64>,
    conservative: Cms<u64>,
    /// Weighed by packets.
    conservative_narrow: Cms<u32>,
    shared: [SharedCms; 2],
    distinct: Distinct,
    twins: Twins<K>,
    merged: bool,
}

/// The hash of a number under a seed. The seed's upper half is the seed proper; its lower half limits the number of hashes.
pub fn hash(seed: u64, number: u32) -> u64 {
    let hashes = (seed & 0xffff_ffff).max(1);
    let mut x =
        ((seed >> 32 << 32) ^ (u64::from(number) % hashes)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

pub(super) fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

pub(super) const HOLDS: &str =
    "enough memory, sketches that are alike, small totals, images of our own";

impl<K: Key> Side<K> {
    pub(super) fn new(memory_bytes: usize, seed: u64, key: fn(u32) -> K) -> Self {
        let request = &request();
        // A bucket of `Heavy` takes a kilobyte.
        let heavy = |weigh| Heavy::new(memory_bytes.max(1024), weigh, seed, request).expect(HOLDS);
        let shape = Shape::for_memory(memory_bytes, 3, 8).expect(HOLDS);
        Self {
            seed,
            key,
            truth: BTreeMap::new(),
            exact: Exact::new(memory_bytes, seed, request).expect(HOLDS),
            shared_exact: SharedExact::new(16 * memory_bytes, seed, request).expect(HOLDS),
            heavy: [Weigh::Packets, Weigh::Bytes].map(heavy),
            plain: Cms::new(shape, Rule::Plain, seed, request).expect(HOLDS),
            plain_wide: Cms::new(shape, Rule::Plain, seed, request).expect(HOLDS),
            conservative: Cms::new(shape, Rule::Conservative, seed, request).expect(HOLDS),
            conservative_narrow: Cms::new(shape, Rule::Conservative, seed, request).expect(HOLDS),
            shared: [Rule::Plain, Rule::Conservative]
                .map(|rule| SharedCms::new(shape, rule, seed, request).expect(HOLDS)),
            distinct: Distinct::new(seed, request).expect(HOLDS),
            twins: Twins::new(memory_bytes, seed),
            merged: false,
        }
    }

    pub(super) fn see(&mut self, packets: &[(u32, u32)]) {
        let item = |(number, bytes): &(u32, u32)| Item {
            hash: hash(self.seed, *number),
            bytes: *bytes,
            key: (self.key)(*number),
        };
        let items: Vec<_> = packets.iter().map(item).collect();
        let hashes: Vec<_> = items.iter().map(|item| item.hash).collect();
        let weighted = || items.iter().map(|item| (item.hash, item.bytes));
        for (number, bytes) in packets {
            let counts = self.truth.entry(*number).or_default();
            counts.packets += 1;
            counts.bytes += u64::from(*bytes);
        }
        self.exact.update(&items);
        self.shared_exact.update(&items);
        for heavy in &mut self.heavy {
            heavy.update(&items);
        }
        self.plain.update_weighted(weighted());
        self.plain_wide.update_weighted(weighted());
        self.conservative.update_weighted(weighted());
        self.conservative_narrow.update(&hashes);
        for shared in &self.shared {
            shared.update_weighted(weighted());
        }
        hashes.iter().for_each(|hash| self.distinct.see(*hash));
        let numbers: Vec<_> = packets.iter().map(|(number, _)| *number).collect();
        self.twins.see(&items, &numbers);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (number, counts) in &other.truth {
            let mine = self.truth.entry(*number).or_default();
            mine.packets += counts.packets;
            mine.bytes += counts.bytes;
        }
        let keys: BTreeMap<_, _> = other
            .truth
            .keys()
            .map(|number| (bytes(&(self.key)(*number)), *number))
            .collect();
        self.exact
            .merge(&other.exact, |key| hash(self.seed, keys[&bytes(key)]))
            .expect(HOLDS);
        for (heavy, other) in self.heavy.iter_mut().zip(&other.heavy) {
            heavy.merge(other).expect(HOLDS);
        }
        self.plain.merge(&other.plain).expect(HOLDS);
        self.plain_wide.merge(&other.plain_wide).expect(HOLDS);
        self.conservative.merge(&other.conservative).expect(HOLDS);
        self.conservative_narrow
            .merge(&other.conservative_narrow)
            .expect(HOLDS);
        self.distinct.merge(&other.distinct).expect(HOLDS);
        self.twins.merge(&other.twins, self.key);
        self.merged = true;
    }

    pub(super) fn clear(&mut self) {
        self.truth.clear();
        self.exact.clear();
        self.shared_exact.clear();
        self.heavy.iter_mut().for_each(Heavy::clear);
        self.plain.clear();
        self.plain_wide.clear();
        self.conservative.clear();
        self.conservative_narrow.clear();
        self.shared.iter_mut().for_each(SharedCms::clear);
        self.distinct.clear();
        self.twins.clear();
    }

    pub(super) fn store(&mut self) {
        let request = &request();
        let keys: BTreeMap<_, _> = self
            .truth
            .keys()
            .map(|number| (bytes(&(self.key)(*number)), *number))
            .collect();
        let image = self.exact.to_bytes();
        let hashes = |seed, key: &K| hash(seed, keys[&bytes(key)]);
        self.exact =
            Exact::from_bytes(&image, self.exact.memory_bytes(), request, hashes).expect(HOLDS);
        assert_eq!(self.exact.to_bytes(), image);
        for heavy in &mut self.heavy {
            let image = heavy.to_bytes();
            *heavy = Heavy::from_bytes(&image, request).expect(HOLDS);
            assert_eq!(heavy.to_bytes(), image);
        }
        self.plain = stored(&self.plain);
        self.plain_wide = stored(&self.plain_wide);
        self.conservative = stored(&self.conservative);
        self.conservative_narrow = stored(&self.conservative_narrow);
        self.twins
            .store(&Truth::new(self.seed, self.key, &self.truth));
    }

    pub(super) fn check(&self) {
        self.check_exact();
        for heavy in &self.heavy {
            self.check_heavy(heavy);
        }
        self.check_cms();
        self.check_distinct();
        self.twins
            .check(&Truth::new(self.seed, self.key, &self.truth));
    }

    fn total(&self) -> Counts {
        sum(self.truth.values().copied())
    }

    fn check_exact(&self) {
        let table = &self.exact;
        let (untracked, doubt) = (table.untracked(), table.doubt());
        assert_eq!(table.total(), self.total());
        assert_eq!(
            sum(table.iter().map(|(_, counts)| counts).chain([untracked])),
            self.total()
        );
        assert_eq!(table.iter().count(), table.len());
        assert!(table.len() <= table.capacity());
        assert!(untracked.packets == 0 || table.is_full() || self.merged);
        assert!(
            doubt.packets <= untracked.packets && doubt.bytes <= untracked.bytes,
            "{doubt:?} {untracked:?}"
        );
        let mut found = 0;
        for (number, truth) in &self.truth {
            let (least, most) = match table.get(&(self.key)(*number), hash(self.seed, *number)) {
                Some(counts) => {
                    found += 1;
                    (counts, sum([counts, doubt]))
                }
                None => (Counts::default(), untracked),
            };
            assert!(
                least.packets <= truth.packets && truth.packets <= most.packets,
                "{number}: {truth:?} {table:?}"
            );
            assert!(
                least.bytes <= truth.bytes && truth.bytes <= most.bytes,
                "{number}: {truth:?} {table:?}"
            );
        }
        assert_eq!(
            found,
            table.len(),
            "a key that was never seen, or one that is in twice"
        );
        for (k, weigh) in [0, 3, table.len()]
            .into_iter()
            .flat_map(|k| [(k, Weigh::Packets), (k, Weigh::Bytes)])
        {
            let (listed, most) = table.ranking(k, weigh);
            self.check_others(
                weigh,
                most,
                &listed.iter().map(|(key, _)| bytes(key)).collect(),
            );
            assert_eq!(listed, table.top(k, weigh));
        }
        if self.merged {
            return;
        }
        assert_eq!(doubt, Counts::default());
        // The answers are those of one table, while the shared table has room.
        let shared = &self.shared_exact;
        assert_eq!(shared.total(), self.total());
        if untracked.packets == 0 && shared.untracked().packets == 0 {
            assert_eq!(shared.len(), table.len());
            assert_eq!(shared.top(9, Weigh::Bytes), table.top(9, Weigh::Bytes));
        }
        for (number, truth) in &self.truth {
            let counts = shared.get(&(self.key)(*number), hash(self.seed, *number));
            assert!(
                counts.is_none() && shared.untracked().packets >= truth.packets
                    || counts == Some(*truth)
            );
        }
    }

    fn check_heavy(&self, heavy: &Heavy<K>) {
        let total = self.total();
        let weigh = heavy.weigh();
        assert_eq!(heavy.total(), total);
        let mut in_bucket = BTreeMap::<usize, u64>::new();
        for (number, truth) in &self.truth {
            *in_bucket
                .entry(heavy.bucket(hash(self.seed, *number)))
                .or_default() += truth.by(weigh);
        }
        let mut found = 0;
        for (number, truth) in &self.truth {
            let (key, hash) = ((self.key)(*number), hash(self.seed, *number));
            let weight = truth.by(weigh);
            let (lower, upper) = heavy.bounds(&key, hash);
            assert!(
                lower <= weight && weight <= upper,
                "{number}: {weight} in {lower}..={upper}, {heavy:?}"
            );
            let widest = in_bucket[&heavy.bucket(hash)] / 14;
            assert!(
                upper - lower <= widest,
                "{number}: {lower}..={upper} is wider than {widest}"
            );
            let Some(entry) = heavy.get(&key, hash) else {
                continue;
            };
            found += 1;
            let companion = truth.packets + truth.bytes - weight;
            let (lower, upper) = (entry.companion_lower, entry.companion_upper);
            assert!(
                lower <= companion && companion <= upper,
                "{number}: {companion} in {lower}..={upper}"
            );
        }
        let entries: Vec<_> = heavy.iter().collect();
        assert_eq!(
            found,
            entries.len(),
            "a key that was never seen, or one that is in twice"
        );
        assert!(entries.iter().map(|entry| entry.lower).sum::<u64>() <= total.by(weigh));
        for k in [0, 1, 5, entries.len()] {
            let (listed, most) = heavy.ranking(k);
            self.check_others(
                weigh,
                most,
                &listed.iter().map(|entry| bytes(&entry.key)).collect(),
            );
        }
        let keys = heavy.count_of_keys();
        assert!(
            keys.is_none_or(|keys| keys == self.truth.len()),
            "{keys:?} keys, {heavy:?}"
        );
        let top = heavy.top(5);
        assert!(top.is_sorted_by(|a, b| a.lower >= b.lower));
        let least = top.last().map_or(0, |entry| entry.lower);
        assert_eq!(top.len(), entries.len().min(5));
        assert!(entries.iter().filter(|entry| entry.lower > least).count() < 5);
    }

    /// Checks that no key but the listed ones weighs more than `most`.
    fn check_others(&self, weigh: Weigh, most: u64, listed: &BTreeSet<Vec<u8>>) {
        for (number, truth) in &self.truth {
            let is_listed = || listed.contains(&bytes(&(self.key)(*number)));
            assert!(
                truth.by(weigh) <= most || is_listed(),
                "{number}: {truth:?}, others have {most} at most"
            );
        }
    }

    fn check_cms(&self) {
        let total = self.total();
        assert_eq!(
            [&self.plain_wide, &self.conservative].map(Cms::total),
            [total.bytes; 2]
        );
        // A sketch that only knows hashes cannot distinguish keys of equal hashes.
        let mut by_hash = BTreeMap::<u64, Counts>::new();
        for (number, truth) in &self.truth {
            let counts = by_hash.entry(hash(self.seed, *number)).or_default();
            *counts = sum([*counts, *truth]);
        }
        for (hash, truth) in &by_hash {
            let (plain, conservative) = (
                self.plain_wide.estimate(*hash),
                self.conservative.estimate(*hash),
            );
            assert!(truth.bytes <= conservative && conservative <= plain && plain <= total.bytes);
            assert_eq!(
                self.plain.estimate(*hash),
                plain.min(u64::from(u32::MAX)),
                "a narrow cell saturates, no more"
            );
            let packets = self.conservative_narrow.estimate(*hash);
            assert!(truth.packets <= packets && packets <= total.packets);
        }
        if self.merged {
            return;
        }
        let [plain, conservative] = self
            .shared
            .each_ref()
            .map(|shared| shared.snapshot(&request()).expect(HOLDS));
        assert_eq!(plain.to_bytes(), self.plain_wide.to_bytes());
        assert_eq!(conservative.to_bytes(), self.conservative.to_bytes());
    }

    fn check_distinct(&self) {
        // Keys of equal hashes count as one key.
        let hashes: BTreeSet<_> = self
            .truth
            .keys()
            .map(|number| hash(self.seed, *number))
            .collect();
        let (keys, estimate) = (hashes.len() as f64, self.distinct.estimate());
        if hashes.len() <= 1024 {
            assert_eq!((estimate, self.distinct.range()), (keys, (keys, keys)));
        }
        // Six standard errors of 0.81 %.
        assert!(
            (estimate - keys).abs() <= 0.049 * keys,
            "{estimate} of {keys}"
        );
    }

    /// Checks that a side made by merges agrees with a side that counted all packets itself.
    pub(super) fn check_merged(&self, whole: &Self) {
        assert_eq!(self.truth, whole.truth);
        if self.exact.untracked().packets + whole.exact.untracked().packets == 0 {
            assert_eq!(self.exact.to_bytes(), whole.exact.to_bytes());
        }
        assert_eq!(self.plain.to_bytes(), whole.plain.to_bytes());
        assert_eq!(self.plain_wide.to_bytes(), whole.plain_wide.to_bytes());
        assert_eq!(
            (self.distinct.estimate(), self.distinct.range()),
            (whole.distinct.estimate(), whole.distinct.range())
        );
    }
}

/// Exact counts of a stream, with the numbers of its keys.
pub(super) struct Truth<'a, K> {
    pub(super) seed: u64,
    pub(super) key: fn(u32) -> K,
    pub(super) counts: &'a BTreeMap<u32, Counts>,
    numbers: BTreeMap<Vec<u8>, u32>,
}

impl<'a, K: Key> Truth<'a, K> {
    fn new(seed: u64, key: fn(u32) -> K, counts: &'a BTreeMap<u32, Counts>) -> Self {
        let number = |number: &u32| (bytes(&key(*number)), *number);
        Self {
            seed,
            key,
            counts,
            numbers: counts.keys().map(number).collect(),
        }
    }

    /// The number of a key that the stream has.
    pub(super) fn number(&self, key: &K) -> u32 {
        self.numbers[&bytes(key)]
    }

    pub(super) fn hash(&self, key: &K) -> u64 {
        hash(self.seed, self.number(key))
    }

    pub(super) fn total(&self) -> Counts {
        sum(self.counts.values().copied())
    }
}

fn stored<C: Cell>(sketch: &Cms<C>) -> Cms<C> {
    let image = sketch.to_bytes();
    let read = Cms::from_bytes(&image, &request()).expect(HOLDS);
    assert_eq!(read.to_bytes(), image);
    read
}

pub(super) fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
    all.into_iter()
        .fold(Counts::default(), |sum, counts| Counts {
            packets: sum.packets + counts.packets,
            bytes: sum.bytes + counts.bytes,
        })
}

pub(super) fn bytes<K: Key>(key: &K) -> Vec<u8> {
    key.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, hash};

    #[test]
    fn few_hashes_are_few() {
        let distinct = |seed| {
            (0..1000)
                .map(|number| hash(seed, number))
                .collect::<BTreeSet<_>>()
                .len()
        };
        assert_eq!(distinct(7 << 32 | 5), 5);
        assert_eq!(distinct(7 << 32 | 0xffff_ffff), 1000);
    }
}
