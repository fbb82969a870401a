//! The simple table and the majority vote, compared with naive twins that count packet by packet in maps.

use std::collections::{BTreeMap, BTreeSet};

use super::side::{HOLDS, bytes, request, sum};
use super::{Truth, hash};
use crate::{Counts, Item, Key, MajorityVote, SharedSimpleTable, SimpleTable, Weigh};

/// Sketches of one stream, and their twins.
#[derive(Debug)]
pub(super) struct Twins<K> {
    simple: SimpleTable<K>,
    shared: SharedSimpleTable<K>,
    naive: NaiveTable,
    votes: [(MajorityVote<K>, NaiveVotes); 2],
    merged: bool,
}

/// Simple Hash Table as a map from slots to the number of a key and its counts.
#[derive(Debug, Default)]
struct NaiveTable {
    slots: BTreeMap<usize, (u32, Counts)>,
    evicted: Counts,
}

/// Majority votes as a map from places of buckets to a total, the number of the candidate, and its votes.
#[derive(Debug, Default)]
struct NaiveVotes(BTreeMap<usize, (i128, u32, i128)>);

impl NaiveTable {
    fn put(&mut self, slot: usize, number: u32, counts: Counts) {
        if let Some((_, gone)) = self.slots.insert(slot, (number, counts)) {
            self.evicted = sum([self.evicted, gone]);
        }
    }

    fn see(&mut self, slot: usize, number: u32, packet: Counts) {
        match self.slots.get_mut(&slot) {
            Some((of, counts)) if *of == number => *counts = sum([*counts, packet]),
            _ => self.put(slot, number, packet),
        }
    }

    fn merge<K: Key>(&mut self, other: &Self, key: fn(u32) -> K) {
        self.evicted = sum([self.evicted, other.evicted]);
        for (slot, (number, counts)) in &other.slots {
            match self.slots.get(slot) {
                Some((of, mine)) if of == number => {
                    let both = sum([*mine, *counts]);
                    self.slots.insert(*slot, (*number, both));
                }
                Some((of, mine))
                    if (mine.packets, bytes(&key(*number)))
                        > (counts.packets, bytes(&key(*of))) =>
                {
                    self.evicted = sum([self.evicted, *counts]);
                }
                _ => self.put(*slot, *number, *counts),
            }
        }
    }
}

impl NaiveVotes {
    fn see(&mut self, place: usize, number: u32, weight: u64) {
        if weight == 0 {
            return;
        }
        let weight = i128::from(weight);
        let (total, candidate, votes) = self.0.entry(place).or_insert((0, number, 0));
        *total += weight;
        *votes += if *candidate == number {
            weight
        } else {
            -weight
        };
        if *votes < 0 {
            (*candidate, *votes) = (number, -*votes);
        }
    }

    fn merge(&mut self, other: &Self) {
        for (place, (total, candidate, votes)) in &other.0 {
            let Some((all, mine, my_votes)) = self.0.get_mut(place) else {
                self.0.insert(*place, (*total, *candidate, *votes));
                continue;
            };
            *all += total;
            *my_votes += if mine == candidate { *votes } else { -votes };
            if *my_votes < 0 {
                (*mine, *my_votes) = (*candidate, -*my_votes);
            }
        }
    }

    /// Bounds of a key with these places.
    fn bounds(&self, number: u32, places: impl Iterator<Item = usize>) -> (i128, i128) {
        let in_row = |place| match self.0.get(&place) {
            None => (0, 0),
            Some((total, candidate, votes)) if *candidate == number => {
                (*votes, (total + votes) / 2)
            }
            Some((total, _, votes)) => (0, (total - votes) / 2),
        };
        places.map(in_row).fold(
            (0, i128::MAX),
            |(lower, upper): (i128, i128), (least, most)| (lower.max(least), upper.min(most)),
        )
    }
}

impl<K: Key> Twins<K> {
    pub(super) fn new(memory_bytes: usize, seed: u64) -> Self {
        let request = &request();
        let votes = |weigh| {
            let vote = MajorityVote::new(memory_bytes.max(1024), weigh, seed, request);
            (vote.expect(HOLDS), NaiveVotes::default())
        };
        Self {
            simple: SimpleTable::new(memory_bytes, seed, request).expect(HOLDS),
            shared: SharedSimpleTable::new(memory_bytes, seed, request).expect(HOLDS),
            naive: NaiveTable::default(),
            votes: [Weigh::Packets, Weigh::Bytes].map(votes),
            merged: false,
        }
    }

    pub(super) fn see(&mut self, items: &[Item<K>], numbers: &[u32]) {
        self.simple.update(items);
        self.shared.update(items);
        for (vote, _) in &mut self.votes {
            vote.update(items);
        }
        for (item, number) in items.iter().zip(numbers) {
            let packet = Counts {
                packets: 1,
                bytes: item.bytes.into(),
            };
            let slot = self.simple.home(item.hash);
            self.naive.see(slot, *number, packet);
            for (vote, naive) in &mut self.votes {
                let weight = packet.by(vote.weigh());
                vote.places(item.hash)
                    .for_each(|place| naive.see(place, *number, weight));
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self, key: fn(u32) -> K) {
        self.simple
            .merge(&other.simple, Weigh::Packets)
            .expect(HOLDS);
        self.naive.merge(&other.naive, key);
        for ((vote, naive), (other, other_naive)) in self.votes.iter_mut().zip(&other.votes) {
            vote.merge(other).expect(HOLDS);
            naive.merge(other_naive);
        }
        self.merged = true;
    }

    pub(super) fn clear(&mut self) {
        self.simple.clear();
        self.shared.clear();
        self.naive = NaiveTable::default();
        for (vote, naive) in &mut self.votes {
            vote.clear();
            naive.0.clear();
        }
    }

    /// Serialises the sketches and reads them back.
    pub(super) fn store(&mut self, truth: &Truth<K>) {
        let hash = |_, key: &K| truth.hash(key);
        let image = self.simple.to_bytes();
        let memory = self.simple.memory_bytes();
        self.simple = SimpleTable::from_bytes(&image, memory, &request(), hash).expect(HOLDS);
        assert_eq!(self.simple.to_bytes(), image);
        for (vote, _) in &mut self.votes {
            let image = vote.to_bytes();
            *vote = MajorityVote::from_bytes(&image, &request(), hash).expect(HOLDS);
            assert_eq!(vote.to_bytes(), image);
        }
    }

    pub(super) fn check(&self, truth: &Truth<K>) {
        self.check_simple(truth);
        for (vote, naive) in &self.votes {
            check_votes(vote, naive, truth);
        }
    }

    fn check_simple(&self, truth: &Truth<K>) {
        let table = &self.simple;
        let found: BTreeMap<_, _> = table
            .iter()
            .map(|(key, counts)| (truth.number(&key), counts))
            .collect();
        let expected: BTreeMap<_, _> = self.naive.slots.values().copied().collect();
        assert_eq!(found, expected);
        assert_eq!(
            (table.len(), table.total()),
            (expected.len(), truth.total())
        );
        assert_eq!(table.evicted(), self.naive.evicted);
        let in_slots = sum(found.values().copied());
        assert_eq!(sum([in_slots, table.evicted()]), truth.total());
        for (number, counts) in truth.counts {
            let (key, hash) = ((truth.key)(*number), hash(truth.seed, *number));
            let got = table.get(&key, hash);
            assert_eq!(got, found.get(number).copied());
            let got = got.unwrap_or_default();
            let most = sum([got, table.evicted()]);
            assert!(got.packets <= counts.packets && counts.packets <= most.packets);
            assert!(got.bytes <= counts.bytes && counts.bytes <= most.bytes);
        }
        for (k, weigh) in [(0, Weigh::Packets), (4, Weigh::Bytes)] {
            let (listed, most) = table.ranking(k, weigh);
            assert_eq!(listed.len(), k.min(table.len()));
            let above = found.values().filter(|counts| counts.by(weigh) > most);
            assert!(above.count() <= k);
        }
        if !self.merged {
            let snapshot = self.shared.snapshot(&request()).expect(HOLDS);
            assert_eq!(snapshot.to_bytes(), table.to_bytes());
        }
    }
}

fn check_votes<K: Key>(vote: &MajorityVote<K>, naive: &NaiveVotes, truth: &Truth<K>) {
    let weigh = vote.weigh();
    assert_eq!(vote.total(), truth.total());
    let entries: BTreeMap<_, _> = vote
        .entries(|key| truth.hash(key))
        .map(|entry| (truth.number(&entry.key), entry))
        .collect();
    let told = vote.entries(|key| truth.hash(key)).count();
    assert_eq!(told, entries.len(), "a key is told once");
    let candidates: BTreeSet<_> = naive.0.values().map(|(_, number, _)| *number).collect();
    assert!(entries.keys().eq(&candidates), "{entries:?} {candidates:?}");
    let mut in_bucket = BTreeMap::<usize, u64>::new();
    for (number, counts) in truth.counts {
        for place in vote.places(hash(truth.seed, *number)) {
            *in_bucket.entry(place).or_default() += counts.by(weigh);
        }
    }
    for (number, counts) in truth.counts {
        let (key, hash) = ((truth.key)(*number), hash(truth.seed, *number));
        let weight = counts.by(weigh);
        let (lower, upper) = vote.bounds(&key, hash);
        assert!(
            lower <= weight && weight <= upper,
            "{number}: {weight} in {lower}..={upper}, {vote:?}"
        );
        let expected = naive.bounds(*number, vote.places(hash));
        assert_eq!((lower.into(), upper.into()), expected);
        // An upper bound is too high by half of the other keys' weight at most.
        let others = vote.places(hash).map(|place| in_bucket[&place] - weight);
        assert!(upper - weight <= others.min().expect("there are rows") / 2);
        let has_majority = vote
            .places(hash)
            .any(|place| u128::from(weight) * 2 > in_bucket[&place].into());
        let entry = entries.get(number);
        assert!(entry.is_some() || !has_majority, "{number} has a majority");
        let Some(entry) = entry else {
            assert!(weight <= vote.absent_upper());
            continue;
        };
        assert_eq!((entry.lower, entry.upper), (lower, upper));
        assert_eq!(vote.get(&key, hash), Some(*entry));
        let companion = counts.packets + counts.bytes - weight;
        let (lower, upper) = (entry.companion_lower, entry.companion_upper);
        assert!(
            lower <= companion && companion <= upper,
            "{number}: {companion} in {lower}..={upper}"
        );
    }
    for k in [0, 3, entries.len()] {
        let (listed, most) = vote.ranking(k, |key| truth.hash(key));
        let listed: BTreeSet<_> = listed.iter().map(|it| truth.number(&it.key)).collect();
        assert_eq!(listed.len(), k.min(entries.len()));
        for (number, counts) in truth.counts {
            assert!(counts.by(weigh) <= most || listed.contains(number));
        }
    }
}
