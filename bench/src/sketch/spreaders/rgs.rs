//! RGS-Sketch: Zhang, Huang, Sun, Gao, "RGS-Sketch: An Accurate, Invertible, and Mergeable Sketch for Online Super Spreader Detection in
//! High-speed Data Streams", PVLDB 18(4), 2025. Its text was not to be had; this follows its abstract and what the authors' published
//! program does, for one measuring point.
//!
//! ```text
//! each host has 32 virtual groups, each of which is one of the shared groups of 8 registers of 5 bits
//! the pair's hash picks the virtual group, the register, and the rank (leading zeros, plus one)
//! if the rank exceeds the register:
//!     v = 1 / probability that a new pair of this group changes a register of it
//!     the host's bucket of 8 cells: its cell grows by v, rounded at random; or a free cell takes host and v
//!     else the least cell c is replaced by (host, c + 1), with probability 1 / (c + 1)
//!     only if a cell was changed, the register takes the rank
//! the estimate of a host is its cell
//! ```
//!
//! A third of the memory is cells, as in the authors' settings. Differences, in its favour: seeded 64-bit hashes, one division, and memory
//! that is prefetched for a batch.

use super::Contestant;
use super::traffic::{Contact, hash_host, hash_pair};
use weir_memory::{Request, Table, prefetch};

const GROUPS: usize = 32;
const REGISTERS: usize = 8;
/// Bytes of a group: 8 registers of 5 bits.
const GROUP: usize = 5;
const CELLS: usize = 8;
/// Largest rank.
const MOST: u32 = 25;
const LANES: usize = 32;
/// Share of the memory for cells.
const SHARE: f64 = 0.35;

/// Hosts and their numbers of peers; 0 is a free cell.
type Bucket = [[u32; 2]; CELLS];

pub struct RgsSketch {
    registers: Table<u8>,
    buckets: Table<Bucket>,
    seed: u64,
    random: u64,
}

impl RgsSketch {
    pub fn new(bytes: usize, seed: u64) -> Self {
        let buckets = (bytes as f64 * SHARE) as usize / size_of::<Bucket>();
        let groups = (bytes - buckets * size_of::<Bucket>() - 8) / GROUP;
        let request = Request::default();
        Self {
            // A group is read as eight bytes, so there are three more.
            registers: Table::zeroed(groups * GROUP + 3, &request).expect("there is memory"),
            buckets: Table::zeroed(buckets, &request).expect("there is memory"),
            seed,
            random: seed | 1,
        }
    }

    /// Hash of the pair, first byte of the group, and bucket.
    #[inline(always)]
    fn places(&self, packet: Contact) -> (u64, usize, usize) {
        let (host, pair) = (hash_host(self.seed, packet.0), hash_pair(self.seed, packet));
        let group = hash_host(host, (pair >> 3) as u32 % GROUPS as u32);
        let groups = (self.registers.len() - 3) / GROUP;
        let bucket = below(host.rotate_left(32), self.buckets.len());
        (pair, below(group, groups) * GROUP, bucket)
    }

    #[inline(always)]
    fn see(&mut self, host: u32, (pair, at, bucket): (u64, usize, usize)) {
        let rank = ((pair >> 8).trailing_zeros() + 1).min(MOST);
        let bytes: [u8; 8] = self.registers[at..at + 8].try_into().expect("eight bytes");
        let word = u64::from_le_bytes(bytes);
        let shift = 5 * (pair as usize % REGISTERS) as u32;
        if rank <= (word >> shift) as u32 & 31 {
            return;
        }
        let values = (0..REGISTERS).map(|at| (word >> (5 * at) & 31) as u32);
        let open = values.filter(|value| *value < MOST);
        let sum: u64 = open.map(|value| 1 << (MOST - value)).sum();
        let value = ((REGISTERS as u64) << MOST) as f64 / sum as f64;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let chance = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        if grow(&mut self.buckets[bucket], host, value, chance) {
            let word = word & !(31 << shift) | u64::from(rank) << shift;
            self.registers[at..at + GROUP].copy_from_slice(&word.to_le_bytes()[..GROUP]);
        }
    }
}

fn below(hash: u64, bound: usize) -> usize {
    ((u128::from(hash) * bound as u128) >> 64) as usize
}

/// Whether a cell of the bucket was changed.
fn grow(bucket: &mut Bucket, host: u32, value: f64, chance: f64) -> bool {
    let rounded = value as u32 + u32::from(chance < value.fract());
    if let Some(cell) = bucket
        .iter_mut()
        .find(|cell| cell[1] == 0 || cell[0] == host)
    {
        *cell = [host, cell[1] + rounded];
        return true;
    }
    let least = bucket
        .iter_mut()
        .min_by_key(|cell| cell[1])
        .expect("there are eight");
    let replaces = chance * f64::from(least[1] + 1) < 1.0;
    if replaces {
        *least = [host, least[1] + 1];
    }
    replaces
}

impl Contestant for RgsSketch {
    fn update(&mut self, packets: &[Contact]) {
        let mut places = [(0, 0, 0); LANES];
        for packets in packets.chunks(LANES) {
            for (place, packet) in places.iter_mut().zip(packets) {
                *place = self.places(*packet);
                prefetch(&self.registers, place.1);
                prefetch(&self.buckets, place.2);
            }
            for (packet, place) in packets.iter().zip(&places) {
                self.see(packet.0, *place);
            }
        }
    }

    fn spreaders(&self, threshold: f64) -> Vec<(u32, f64)> {
        let cells = self.buckets.iter().flatten().filter(|cell| cell[1] > 0);
        let found = cells.map(|[host, peers]| (*host, f64::from(*peers)));
        found.filter(|(_, peers)| *peers >= threshold).collect()
    }

    fn bytes(&self) -> usize {
        self.registers.len() + size_of_val(&*self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_alone_is_counted() {
        for peers in [1u32, 30, 1000, 20_000] {
            let mut sum = 0.0;
            for seed in 1..30 {
                let mut sketch = RgsSketch::new(1 << 14, seed);
                let packets: Vec<Contact> = (0..peers).map(|peer| (7, peer)).collect();
                sketch.update(&packets);
                sketch.update(&packets);
                let found = sketch.spreaders(1.0);
                assert_eq!((found.len(), found[0].0), (1, 7));
                sum += (found[0].1 / f64::from(peers) - 1.0).abs();
            }
            assert!(sum / 29.0 < 0.15, "{peers}: {}", sum / 29.0);
        }
    }
}
