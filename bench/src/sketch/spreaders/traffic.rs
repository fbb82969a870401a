//! Streams of contacts (host, peer), and what is known of them.

use crate::sketch::stream::{mix, random};

/// A packet: host and peer.
pub type Contact = (u32, u32);

/// Peers from which on a host is a spreader.
pub const THRESHOLD: u32 = 1000;

/// A stream, and the number of distinct peers of each of its hosts.
pub struct Traffic {
    /// Packets in their order.
    pub packets: Vec<Contact>,
    /// Number of different packets.
    pub pairs: usize,
    /// Hosts and their numbers of peers; the planted spreaders come first.
    pub truth: Vec<(u32, u32)>,
    /// Number of planted spreaders.
    pub planted: usize,
}

/// Number of a host, different for each place: a multiplication by an odd number.
fn host(place: usize) -> u32 {
    (place as u32 + 1).wrapping_mul(0x9e37_79b1)
}

/// Hosts of which `planted` have 1000 to 20 000 peers, in equal steps, and the others 1 to 100, few of them many. Each pair occurs once,
/// and random ones again until there are `packets`, in random order.
pub fn scan_like(seed: u64, packets: usize, hosts: usize, planted: usize) -> Traffic {
    let peers = |place: usize| match place {
        _ if place < planted => {
            THRESHOLD + (19_000 * place / planted.max(2).saturating_sub(1)) as u32
        }
        _ => {
            let point = (random(seed ^ mix(place as u64)) >> 11) as f64 / (1u64 << 53) as f64;
            (1.0 / (point + 0.01)) as u32
        }
    };
    let truth: Vec<(u32, u32)> = (0..hosts)
        .map(|place| (host(place), peers(place).max(1)))
        .collect();
    let mut stream = Vec::with_capacity(packets);
    for (host, peers) in &truth {
        let first = mix(seed ^ u64::from(*host)) as u32;
        stream.extend(
            (0..*peers).map(|peer| (*host, first.wrapping_add(peer.wrapping_mul(0x85eb_ca6b)))),
        );
    }
    let pairs = stream.len();
    let mut draw = seed;
    let mut below = |bound: usize| {
        draw = draw.wrapping_add(1);
        ((u128::from(random(draw)) * bound as u128) >> 64) as usize
    };
    while stream.len() < packets {
        stream.push(stream[below(pairs)]);
    }
    for place in (1..stream.len()).rev() {
        stream.swap(place, below(place + 1));
    }
    Traffic {
        packets: stream,
        pairs,
        truth,
        planted,
    }
}

/// Packets of `pairs` different pairs of a hundred times fewer hosts, drawn at random.
pub fn repeated(seed: u64, packets: usize, pairs: usize) -> Vec<Contact> {
    let pair = |number: u64| {
        let number = ((u128::from(random(seed ^ number)) * pairs as u128) >> 64) as usize;
        (host(number / 100), mix(number as u64) as u32)
    };
    (0..packets as u64).map(pair).collect()
}

/// Seeded hash of a host.
#[inline(always)]
pub fn hash_host(seed: u64, host: u32) -> u64 {
    fold(
        u64::from(host) ^ seed,
        0xa076_1d64_78bd_642f ^ seed.rotate_left(32),
    )
}

/// Seeded hash of a host and a peer.
#[inline(always)]
pub fn hash_pair(seed: u64, (host, peer): Contact) -> u64 {
    let both = u64::from(host) << 32 | u64::from(peer);
    fold(both ^ seed, 0xe703_7ed1_a0b4_28db ^ seed.rotate_left(32))
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    mix(product as u64 ^ (product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::collections::HashSet;

    #[test]
    fn the_truth_is_that_of_a_set() {
        let traffic = scan_like(3, 60_000, 2000, 5);
        assert_eq!(traffic.packets.len(), 60_000.max(traffic.pairs));
        let distinct: HashSet<Contact> = traffic.packets.iter().copied().collect();
        assert_eq!(distinct.len(), traffic.pairs);
        let mut peers = HashMap::new();
        distinct
            .iter()
            .for_each(|(host, _)| *peers.entry(*host).or_insert(0) += 1);
        assert_eq!(peers, traffic.truth.into_iter().collect());
        assert_eq!(
            repeated(1, 50_000, 500)
                .into_iter()
                .collect::<HashSet<_>>()
                .len(),
            500
        );
    }
}
