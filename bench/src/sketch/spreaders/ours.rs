//! weir's sample of pairs, and the other sketches that its time is compared with.

use super::Contestant;
use super::traffic::{Contact, hash_host, hash_pair};
use std::hint::black_box;
use weir_memory::Request;
use weir_sketch::{Cms, Heavy, Item, Pair, Rule, Shape, Spreaders, Weigh};

/// Packets per update.
const BATCH: usize = 256;
/// Rows of Count-Min, and hashes.
const ROWS: usize = super::spread_sketch::ROWS;

pub struct Sample {
    sketch: Spreaders<u32>,
    seed: u64,
}

impl Sample {
    pub fn new(bytes: usize, seed: u64) -> Self {
        let sketch = Spreaders::new(bytes, seed, &Request::default()).expect("there is memory");
        Self { sketch, seed }
    }
}

impl Contestant for Sample {
    fn update(&mut self, packets: &[Contact]) {
        let mut batch = [Pair { hash: 0, key: 0 }; BATCH];
        for packets in packets.chunks(BATCH) {
            for (pair, packet) in batch.iter_mut().zip(packets) {
                let hash = hash_pair(self.seed, *packet);
                *pair = Pair {
                    hash,
                    key: packet.0,
                };
            }
            self.sketch.update(&batch[..packets.len()]);
        }
    }

    fn spreaders(&self, threshold: f64) -> Vec<(u32, f64)> {
        let listed = self.sketch.top(4000).into_iter();
        let found = listed.map(|listed| (listed.key, listed.estimate as f64));
        found.filter(|(_, peers)| *peers >= threshold).collect()
    }

    fn bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

/// Heavy hitters by host.
pub struct ByHost {
    sketch: Heavy<u32>,
    seed: u64,
}

impl ByHost {
    pub fn new(bytes: usize, seed: u64) -> Self {
        let sketch = Heavy::new(bytes, Weigh::Packets, seed, &Request::default());
        let sketch = sketch.expect("there is memory");
        Self { sketch, seed }
    }
}

impl Contestant for ByHost {
    fn update(&mut self, packets: &[Contact]) {
        let item = |(host, _): &Contact| Item {
            hash: hash_host(self.seed, *host),
            bytes: 60,
            key: *host,
        };
        let mut batch = [item(&(0, 0)); BATCH];
        for packets in packets.chunks(BATCH) {
            for (to, packet) in batch.iter_mut().zip(packets) {
                *to = item(packet);
            }
            self.sketch.update(&batch[..packets.len()]);
        }
    }

    fn bytes(&self) -> usize {
        self.sketch.memory_bytes()
    }
}

/// As many hashes and updates of Count-Min as SpreadSketch has rows.
pub struct Counts {
    sketch: Cms<u32>,
    seed: u64,
}

impl Counts {
    pub fn new(bytes: usize, seed: u64) -> Self {
        let shape = Shape::new(ROWS, bytes / ROWS / size_of::<u32>()).expect("a small shape");
        let sketch = Cms::new(shape, Rule::Plain, seed, &Request::default());
        let sketch = sketch.expect("there is memory");
        Self { sketch, seed }
    }
}

impl Contestant for Counts {
    fn update(&mut self, packets: &[Contact]) {
        let seeds: [u64; ROWS] = std::array::from_fn(|row| black_box(self.seed + row as u64));
        let mut batch = [0; BATCH];
        for packets in packets.chunks(BATCH) {
            for (hash, packet) in batch.iter_mut().zip(packets) {
                let hashes = seeds.iter().map(|seed| hash_host(*seed, packet.0));
                *hash = hashes.fold(0, |all, hash| all ^ hash);
            }
            self.sketch.update(&batch[..packets.len()]);
        }
    }

    fn bytes(&self) -> usize {
        self.sketch.total() as usize
    }
}

/// The hash of pairs, which all others have too.
pub struct Floor(pub u64);

impl Contestant for Floor {
    fn update(&mut self, packets: &[Contact]) {
        let hashes = packets.iter().map(|packet| hash_pair(self.0, *packet));
        black_box(hashes.fold(0, |all, hash| all ^ hash));
    }

    fn bytes(&self) -> usize {
        0
    }
}
