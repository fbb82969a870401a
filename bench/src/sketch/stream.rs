//! The stream that all contestants count, its hash, and the true counts.

/// Addresses, ports and protocol of an IPv4 packet, as a row in memory.
pub type Key = [u8; 13];

/// Exponent of Zipf's law for the sizes of the flows.
const SKEW: f64 = 1.1;

/// Number of a random generator at a given place (SplitMix64).
pub fn random(at: u64) -> u64 {
    mix(at.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// SplitMix64's output function.
#[inline(always)]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Keys of packets in their order; the sizes of the flows follow Zipf's law.
pub fn zipf(seed: u64, packets: usize, flows: usize) -> Vec<Key> {
    let mut sums: Vec<f64> = (1..=flows).map(|rank| (rank as f64).powf(-SKEW)).collect();
    for at in 1..flows {
        sums[at] += sums[at - 1];
    }
    let keys: Vec<Key> = (0..flows as u64).map(|rank| key(seed, rank)).collect();
    let order = mix(seed);
    (0..packets as u64)
        .map(|packet| {
            let point =
                (random(order ^ packet) >> 11) as f64 / (1u64 << 53) as f64 * sums[flows - 1];
            keys[sums.partition_point(|sum| *sum <= point).min(flows - 1)]
        })
        .collect()
}

/// 5-tuple of a flow.
fn key(seed: u64, rank: u64) -> Key {
    let mut key = [0; 13];
    let place = seed.wrapping_add(rank.wrapping_mul(2));
    key[..8].copy_from_slice(&random(place).to_le_bytes());
    key[8..12].copy_from_slice(&random(place + 1).to_le_bytes()[..4]);
    key[12] = if random(place + 1) >> 63 == 0 { 6 } else { 17 };
    key
}

/// Flows and their numbers of packets, sorted by key. The counts come from sorting, which no rival does.
pub fn count_by_sorting(stream: &[Key]) -> Vec<(Key, u64)> {
    let mut sorted = stream.to_vec();
    sorted.sort_unstable();
    sorted
        .chunk_by(|a, b| a == b)
        .map(|same| (same[0], same.len() as u64))
        .collect()
}

/// A seeded hash of a 13-byte key: two multiplications of 64 to 128 bits, with their halves folded. No theorem supports
/// this hash, nor those of the rivals. The hash of flow keys, [`weir_packet::flow::Hasher`], has a theorem, and appears in
/// the rows of flow keys.
#[derive(Clone, Copy, Debug)]
pub struct FoldHash([u64; 4]);

impl FoldHash {
    /// The hash function of a seed.
    pub fn new(seed: u64) -> Self {
        Self(std::array::from_fn(|i| {
            random(seed.wrapping_add(1 + i as u64)) | 1
        }))
    }

    /// Hash of a key.
    #[inline(always)]
    pub fn hash(&self, key: &Key) -> u64 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let front = u64::from_le_bytes(*key.first_chunk().expect("13 bytes are more than 8"));
        let back = u64::from_le_bytes(*key.last_chunk().expect("13 bytes are more than 8"));
        let [a, b, c, d] = self.0;
        fold(fold(front ^ a, back ^ b) ^ c, d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_stream_is_the_same_each_time_and_skewed() {
        let stream = zipf(7, 20_000, 1000);
        assert_eq!(stream, zipf(7, 20_000, 1000));
        assert_ne!(stream, zipf(8, 20_000, 1000));
        let mut map = HashMap::new();
        stream
            .iter()
            .for_each(|key| *map.entry(*key).or_insert(0u64) += 1);
        let counted = count_by_sorting(&stream);
        assert!(counted.is_sorted() && counted.len() == map.len());
        assert!(counted.iter().all(|(key, count)| map[key] == *count));
        // The share of the first flow is 1 over the sum of all weights, 5.57.
        let most = counted.iter().map(|(_, count)| *count).max();
        assert!(
            most.is_some_and(|most| most.abs_diff(20_000 * 100 / 557) < 300),
            "{most:?}"
        );
    }

    #[test]
    fn every_byte_of_the_key_changes_the_hash() {
        let hash = FoldHash::new(3);
        for at in 0..13 {
            for bit in 0..8 {
                let mut other = [0x5a; 13];
                other[at] ^= 1 << bit;
                assert_ne!(hash.hash(&other), hash.hash(&[0x5a; 13]));
            }
        }
        assert_ne!(hash.hash(&[1; 13]), FoldHash::new(4).hash(&[1; 13]));
    }
}
