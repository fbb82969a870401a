//! Properties shared by tests and fuzzers: the promises of every sketch, compared with a hash map.

mod images;
mod reversible;
mod reversible_sets;
mod side;
mod spreaders;
mod twins;

pub use images::images;
pub use reversible::reversible;
pub use reversible_sets::reversible_sets;
use side::Truth;
pub use side::{Side, hash};
pub use spreaders::pairs;

use crate::Key;

/// Two streams in their sketches, and both as one stream.
///
/// Every [`merge`](Self::merge) merges the second side into the first. The answers are then
/// compared with answers of sketches that counted all packets in a row.
#[derive(Debug)]
pub struct World<K> {
    /// The side that grows by merges.
    pub left: Side<K>,
    /// The side that is merged.
    pub right: Side<K>,
    /// Sketches of all packets that `left` stands for, without a merge.
    whole: Side<K>,
    /// Packets that `right` has counted since it was last cleared.
    seen: Vec<(u32, u32)>,
}

impl<K: Key> World<K> {
    /// Empty sketches of about `memory_bytes` each. Keys are numbers, which `key` turns into keys.
    pub fn new(memory_bytes: usize, seed: u64, key: fn(u32) -> K) -> Self {
        let side = || Side::new(memory_bytes, seed, key);
        Self {
            left: side(),
            right: side(),
            whole: side(),
            seen: Vec::new(),
        }
    }

    /// Counts packets (key, bytes) on the left side.
    pub fn see_left(&mut self, packets: &[(u32, u32)]) {
        self.left.see(packets);
        self.whole.see(packets);
    }

    /// Counts packets (key, bytes) on the right side.
    pub fn see_right(&mut self, packets: &[(u32, u32)]) {
        self.right.see(packets);
        self.seen.extend(packets);
    }

    /// Merges the right side into the left and empties it.
    pub fn merge(&mut self) {
        self.left.merge(&self.right);
        self.whole.see(&self.seen);
        self.clear_right();
    }

    /// Empties the right side.
    pub fn clear_right(&mut self) {
        self.right.clear();
        self.seen.clear();
    }

    /// Serialises the left side and reads it back.
    pub fn store(&mut self) {
        self.left.store();
    }

    /// Checks all sketches. **Panics**: if a sketch breaks a promise; that is the purpose.
    pub fn check(&self) {
        for side in [&self.left, &self.right, &self.whole] {
            side.check();
        }
        self.left.check_merged(&self.whole);
    }
}

/// Reads keys, sizes and merges out of `data` and checks all sketches on the way.
///
/// **Layout**: memory (one byte), seed (one), hash quality (one), then operations of one byte and their arguments.
/// **Panics**: if a sketch breaks a promise.
pub fn operations(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut next = || bytes.next();
    let (Some(memory), Some(seed), Some(hashes)) = (next(), next(), next()) else {
        return;
    };
    // With few hashes, different keys have equal hashes.
    let hashes = if hashes.is_multiple_of(4) {
        5
    } else {
        u64::MAX
    };
    let seed = u64::from(seed) << 32 | hashes & 0xffff_ffff;
    let mut world = World::new(600 + usize::from(memory) * 16, seed, |number| number);
    while let Some(operation) = next() {
        let count = usize::from(next().unwrap_or(1)) % 80 + 1;
        let first = u32::from(next().unwrap_or(0));
        let size = match operation >> 4 {
            0 => 0,
            1 => u32::MAX,
            small => u32::from(small) * 40,
        };
        let mut packet = |index: usize| match operation % 4 {
            // A single key; consecutive keys; or keys out of the data.
            0 => (first, size),
            1 => (first.wrapping_add(index as u32), size),
            _ => (u32::from(next().unwrap_or(0)) % 64, size ^ index as u32),
        };
        let packets: Vec<_> = (0..count).map(&mut packet).collect();
        match operation & 0b1100 {
            0b0000 => world.see_left(&packets),
            0b0100 => world.see_right(&packets),
            0b1000 => world.merge(),
            _ if operation % 4 == 0 => world.clear_right(),
            _ => world.store(),
        }
    }
    world.check();
}
