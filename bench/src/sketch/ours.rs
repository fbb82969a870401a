//! weir's own sketches.

use super::counter::{Counter, Entry, Kind};
use super::stream::{FoldHash, Key};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::hint::black_box;
use weir_memory::Request;
use weir_sketch::{
    Cms, Exact, Heavy, Item, MajorityVote, PARTS, Parts, ReversibleSets, Rule, Shape, SimpleTable,
    Weigh,
};

pub const ROWS: usize = 4;
pub const WIDTH: usize = 1 << 16;
pub const SEED: u64 = 0x1234_5678_9abc_def0;
const MIB: usize = 1 << 20;
/// Packets per update.
const BATCH: usize = 256;
/// Length of the packets, because weir's sketches count bytes too, and these streams have no lengths.
const BYTES: u32 = 64;

pub fn entries() -> Vec<Entry> {
    const UPDATE: &str = "key read, hash, update";
    const ITEMS: &str = "key read, hash, item of 32 bytes, update of packets and bytes";
    let entry = |name, kind, inside, make| Entry {
        name,
        kind,
        ours: true,
        inside,
        make,
    };
    vec![
        entry("floor: weir's hash", Kind::Floor, "key read, hash", || {
            Box::new(Floor { sum: 0 })
        }),
        entry(
            "weir Cms 4 x 2^16, batches of 256",
            Kind::CountMin,
            UPDATE,
            || Count::boxed(Rule::Plain, BATCH),
        ),
        entry(
            "weir Cms 4 x 2^16, one by one",
            Kind::CountMin,
            UPDATE,
            || Count::boxed(Rule::Plain, 1),
        ),
        entry(
            "weir Cms 4 x 2^16, conservative",
            Kind::CountMin,
            UPDATE,
            || Count::boxed(Rule::Conservative, BATCH),
        ),
        entry("weir Heavy, 1 MiB", Kind::Heavy, ITEMS, || {
            let sketch =
                Heavy::new(MIB, Weigh::Packets, SEED, &Request::default()).expect("there is a MiB");
            Box::new(HeavyTable {
                sketch,
                hash: FoldHash::new(SEED),
            })
        }),
        entry("weir MajorityVote (mv), 1 MiB", Kind::Heavy, ITEMS, || {
            let sketch = MajorityVote::new(MIB, Weigh::Packets, SEED, &Request::default())
                .expect("there is a MiB");
            Box::new(Votes {
                sketch,
                hash: FoldHash::new(SEED),
            })
        }),
        entry("weir SimpleTable (sht), 2 MiB", Kind::Heavy, ITEMS, || {
            Slots::boxed(2 * MIB)
        }),
        entry("weir SimpleTable (sht), 64 MiB", Kind::Heavy, ITEMS, || {
            Slots::boxed(64 * MIB)
        }),
        entry(
            "weir ReversibleSets (rs-set), 64 MiB",
            Kind::Heavy,
            ITEMS,
            || Sets::boxed(64 * MIB),
        ),
        entry("weir Exact, 64 MiB", Kind::Exact, ITEMS, || {
            let table = Exact::new(64 * MIB, SEED, &Request::default()).expect("there are 64 MiB");
            Box::new(ExactTable {
                table,
                hash: FoldHash::new(SEED),
            })
        }),
    ]
}

struct Floor {
    sum: u64,
}

impl Counter for Floor {
    fn feed(&mut self, stream: &[Key]) {
        let hash = FoldHash::new(black_box(SEED));
        self.sum = stream.iter().fold(0, |sum, key| sum ^ hash.hash(key));
        black_box(self.sum);
    }

    fn estimate(&self, _: &Key) -> u64 {
        self.sum
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct Count {
    sketch: Cms<u32>,
    hash: FoldHash,
    batch: usize,
}

impl Count {
    fn boxed(rule: Rule, batch: usize) -> Box<dyn Counter> {
        let shape = Shape::new(ROWS, WIDTH).expect("4 rows, and a power of two");
        let sketch = Cms::new(shape, rule, SEED, &Request::default()).expect("there is a MiB");
        Box::new(Self {
            sketch,
            hash: FoldHash::new(SEED),
            batch,
        })
    }
}

impl Counter for Count {
    fn feed(&mut self, stream: &[Key]) {
        if self.batch == 1 {
            for key in stream {
                self.sketch.update(&[self.hash.hash(key)]);
            }
            return;
        }
        let mut hashes = [0; BATCH];
        for keys in stream.chunks(BATCH) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hash.hash(key);
            }
            self.sketch.update(&hashes[..keys.len()]);
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.sketch.estimate(self.hash.hash(key))
    }

    fn bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

/// Hands the stream over in batches of items.
#[inline(always)]
fn in_items(stream: &[Key], hash: &FoldHash, mut update: impl FnMut(&[Item<Key>])) {
    let mut items = [Item {
        hash: 0,
        bytes: 0,
        key: [0; 13],
    }; BATCH];
    for keys in stream.chunks(BATCH) {
        for (item, key) in items.iter_mut().zip(keys) {
            *item = Item {
                hash: hash.hash(key),
                bytes: BYTES,
                key: *key,
            };
        }
        update(&items[..keys.len()]);
    }
}

struct HeavyTable {
    sketch: Heavy<Key>,
    hash: FoldHash,
}

impl Counter for HeavyTable {
    fn feed(&mut self, stream: &[Key]) {
        in_items(stream, &self.hash, |items| self.sketch.update(items));
    }

    /// The lower bound, which `weir measure` shows.
    fn estimate(&self, key: &Key) -> u64 {
        self.sketch.bounds(key, self.hash.hash(key)).0
    }

    fn bounds(&self, key: &Key) -> Option<(u64, u64)> {
        Some(self.sketch.bounds(key, self.hash.hash(key)))
    }

    fn names(&self, key: &Key) -> bool {
        self.sketch.get(key, self.hash.hash(key)).is_some()
    }

    fn bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

struct Votes {
    sketch: MajorityVote<Key>,
    hash: FoldHash,
}

impl Counter for Votes {
    fn feed(&mut self, stream: &[Key]) {
        in_items(stream, &self.hash, |items| self.sketch.update(items));
    }

    /// The upper bound, which `weir measure` shows.
    fn estimate(&self, key: &Key) -> u64 {
        self.sketch.bounds(key, self.hash.hash(key)).1
    }

    fn bounds(&self, key: &Key) -> Option<(u64, u64)> {
        Some(self.sketch.bounds(key, self.hash.hash(key)))
    }

    fn names(&self, key: &Key) -> bool {
        self.sketch.get(key, self.hash.hash(key)).is_some()
    }

    fn bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

struct Slots {
    table: SimpleTable<Key>,
    hash: FoldHash,
}

impl Slots {
    fn boxed(bytes: usize) -> Box<dyn Counter> {
        let table = SimpleTable::new(bytes, SEED, &Request::default()).expect("there is memory");
        Box::new(Self {
            table,
            hash: FoldHash::new(SEED),
        })
    }
}

impl Counter for Slots {
    fn feed(&mut self, stream: &[Key]) {
        in_items(stream, &self.hash, |items| self.table.update(items));
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.table
            .get(key, self.hash.hash(key))
            .map_or(0, |counts| counts.packets)
    }

    fn names(&self, key: &Key) -> bool {
        self.table.get(key, self.hash.hash(key)).is_some()
    }

    fn bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Parts of the 13 bytes of a key.
#[derive(Debug)]
struct FiveTuple;

impl Parts for FiveTuple {
    type Key = Key;

    fn split(key: &Key) -> [u128; PARTS] {
        let part = |range: std::ops::Range<usize>| {
            key[range]
                .iter()
                .fold(0, |part, byte| part << 8 | u128::from(*byte))
        };
        [
            part(0..4),
            part(4..8),
            part(8..10),
            part(10..12),
            part(12..13),
        ]
    }

    fn join(parts: &[u128; PARTS]) -> Option<Key> {
        let [src, dst, sport, dport, proto] = *parts;
        let [src, dst] = [src, dst].map(|part| (part as u32).to_be_bytes());
        let [sport, dport] = [sport, dport].map(|part| (part as u16).to_be_bytes());
        let all = [&src[..], &dst, &sport, &dport, &[proto as u8]].concat();
        all.try_into().ok()
    }
}

struct Sets {
    sketch: ReversibleSets<FiveTuple>,
    hash: FoldHash,
    /// Recovered flows, after the first question.
    listed: OnceCell<BTreeSet<Key>>,
}

/// Number of flows that are recovered from sets.
const RECOVERED: usize = 1000;

impl Sets {
    fn boxed(bytes: usize) -> Box<dyn Counter> {
        let sketch =
            ReversibleSets::new(bytes, SEED, &Request::default()).expect("there is memory");
        Box::new(Self {
            sketch,
            hash: FoldHash::new(SEED),
            listed: OnceCell::new(),
        })
    }
}

impl Counter for Sets {
    fn feed(&mut self, stream: &[Key]) {
        in_items(stream, &self.hash, |items| self.sketch.update(items));
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.sketch.estimate(self.hash.hash(key)).packets
    }

    fn names(&self, key: &Key) -> bool {
        let recover = || {
            let hash = |key: &Key| self.hash.hash(key);
            let ranking = self.sketch.ranking(RECOVERED, Weigh::Packets, hash);
            ranking.listed.into_iter().map(|(key, _)| key).collect()
        };
        self.listed.get_or_init(recover).contains(key)
    }

    fn bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

struct ExactTable {
    table: Exact<Key>,
    hash: FoldHash,
}

impl Counter for ExactTable {
    fn feed(&mut self, stream: &[Key]) {
        in_items(stream, &self.hash, |items| self.table.update(items));
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.table
            .get(key, self.hash.hash(key))
            .map_or(0, |counts| counts.packets)
    }

    fn bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}
