//! SpreadSketch, as its paper describes it: Tang, Huang, Lee, "SpreadSketch: Toward Invertible and Network-Wide Detection of
//! Superspreaders", INFOCOM 2020; its distinct counter is the multiresolution bitmap of Estan, Varghese, Fisk (2003).
//!
//! ```text
//! level = trailing ones of the pair's hash
//! for each of d rows: set the pair's bit in component `level` of the bucket's bitmap;
//!                     if level >= the bucket's level: the bucket takes the key and the level
//! estimate = the bitmap that is the intersection of the d buckets
//! ```
//!
//! Differences, all in its favour: a bucket is one cache line, the rows' places come from one hash, and the lines of a batch are prefetched.
//! The paper's three components of 438 bits end below 20 000 elements; seven in 448 bits do not.

use super::Contestant;
use super::traffic::{Contact, hash_host, hash_pair};
use std::collections::HashSet;
use weir_memory::{Request, Table, prefetch};

pub const ROWS: usize = 4;
/// Components of a bitmap.
const COMPONENTS: usize = 7;
/// Bits of a component, and of the last one.
const BITS: usize = 52;
const LAST: usize = 448 - (COMPONENTS - 1) * BITS;
/// Share of set bits from which on a component is too full to count.
const FULL: f64 = 0.931;
const LANES: usize = 32;

/// A bucket, one cache line: level (0 without a key, else one more) and key, then the bitmap.
type Bucket = [u64; 8];

/// Level and key of a bucket.
#[inline(always)]
fn named(bucket: &Bucket) -> (u32, u32) {
    ((bucket[0] >> 32) as u32, bucket[0] as u32)
}

pub struct SpreadSketch {
    buckets: Table<Bucket>,
    width: usize,
    seed: u64,
}

impl SpreadSketch {
    pub fn new(bytes: usize, seed: u64) -> Self {
        let width = bytes / ROWS / size_of::<Bucket>();
        let buckets = Table::zeroed(width * ROWS, &Request::default()).expect("there is memory");
        Self {
            buckets,
            width,
            seed,
        }
    }

    #[inline(always)]
    fn places(&self, host: u32) -> [u32; ROWS] {
        let hash = hash_host(self.seed, host);
        // Double hashing.
        let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
        std::array::from_fn(|row| {
            let hash = first.wrapping_add(step.wrapping_mul(row as u32));
            (row * self.width) as u32 + ((u64::from(hash) * self.width as u64) >> 32) as u32
        })
    }

    fn estimate(&self, host: u32) -> f64 {
        let mut bitmap = [u64::MAX; 7];
        for place in self.places(host) {
            let other = &self.buckets[place as usize][1..];
            bitmap
                .iter_mut()
                .zip(other)
                .for_each(|(word, other)| *word &= other);
        }
        count(&bitmap)
    }
}

/// Estimated number of elements in a bitmap: linear counting from the first component that is not too full.
fn count(bitmap: &[u64; 7]) -> f64 {
    let zeros = |component: usize| {
        let (from, bits) = (
            component * BITS,
            if component == COMPONENTS - 1 {
                LAST
            } else {
                BITS
            },
        );
        let set = (from..from + bits)
            .filter(|bit| bitmap[bit / 64] >> (bit % 64) & 1 == 1)
            .count();
        (bits, bits - set)
    };
    let too_full = |component: &usize| {
        let (bits, zeros) = zeros(*component);
        (bits - zeros) as f64 > bits as f64 * FULL
    };
    let base = (0..COMPONENTS - 1)
        .rev()
        .find(too_full)
        .map_or(0, |component| component + 1);
    let linear = |component| {
        let (bits, zeros) = zeros(component);
        bits as f64 * (bits as f64 / zeros.max(1) as f64).ln()
    };
    let sum: f64 = (base..COMPONENTS).map(linear).sum();
    sum * f64::from(1u32 << base)
}

impl Contestant for SpreadSketch {
    fn update(&mut self, packets: &[Contact]) {
        for packets in packets.chunks(LANES) {
            let mut places = [[0; ROWS]; LANES];
            let mut bits = [(0u32, 0u32); LANES];
            for ((packet, places), bit) in packets.iter().zip(&mut places).zip(&mut bits) {
                *places = self.places(packet.0);
                places
                    .iter()
                    .for_each(|place| prefetch(&self.buckets, *place as usize));
                let hash = hash_pair(self.seed, *packet);
                let level = hash.trailing_ones();
                let component = (level as usize).min(COMPONENTS - 1);
                let width = if component == COMPONENTS - 1 {
                    LAST
                } else {
                    BITS
                };
                let at = component * BITS + (((hash >> 32) * width as u64) >> 32) as usize;
                *bit = (level + 1, at as u32);
            }
            for ((packet, places), (level, at)) in packets.iter().zip(&places).zip(&bits) {
                for place in places {
                    let bucket = &mut self.buckets[*place as usize];
                    bucket[1 + (at / 64) as usize] |= 1 << (at % 64);
                    if *level >= named(bucket).0 {
                        bucket[0] = u64::from(*level) << 32 | u64::from(packet.0);
                    }
                }
            }
        }
    }

    fn spreaders(&self, threshold: f64) -> Vec<(u32, f64)> {
        let named = self.buckets.iter().map(named);
        let named = named.filter(|(level, _)| *level > 0);
        let named: HashSet<u32> = named.map(|(_, host)| host).collect();
        let estimates = named.into_iter().map(|host| (host, self.estimate(host)));
        estimates
            .filter(|(_, estimate)| *estimate >= threshold)
            .collect()
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts alone in their buckets: the error is that of one bitmap.
    #[test]
    fn estimates_are_near_the_truth() {
        for peers in [1u32, 10, 100, 1000, 5000, 20_000] {
            let mut sum = 0.0;
            for seed in 0..20 {
                let mut sketch = SpreadSketch::new(1 << 14, seed);
                let packets: Vec<Contact> = (0..peers).map(|peer| (7, peer)).collect();
                sketch.update(&packets);
                sketch.update(&packets);
                let found = sketch.spreaders(0.0);
                assert_eq!((found.len(), found[0].0), (1, 7));
                sum += (found[0].1 / f64::from(peers) - 1.0).abs();
            }
            assert!(sum / 20.0 < 0.2, "{peers}: {}", sum / 20.0);
        }
    }
}
