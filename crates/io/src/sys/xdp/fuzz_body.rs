//! Body, with its oracle, that the fuzz target of ring headers and the tests share.

use super::Settings;
use super::receive::{Owners, Plan};
use super::rings::between;
use super::send::Places;
use std::collections::BTreeSet;

/// Reads any bytes as descriptors of a receive ring: a descriptor must be accepted exactly if it lies within one chunk that the
/// kernel has. The first four bytes choose the memory; each descriptor then has an address (u64), a length (u32) and options
/// (u32). The addresses also serve as entries of a completion ring: a place must become free only if the kernel had it.
pub fn descriptors(data: &[u8]) {
    let Some((&[size, memory, low, high], rest)) = data.split_first_chunk() else {
        return;
    };
    let chunk = if size & 1 == 0 { 2048 } else { 4096 };
    let settings = Settings {
        chunk,
        ..Settings::of_size((usize::from(memory) + 1) << 14)
    };
    let Ok(plan) = Plan::new(&settings, usize::from(u16::from_le_bytes([low, high]))) else {
        return;
    };
    let mut owners = Owners::new(plan.chunks);
    (0..plan.chunks as u32).for_each(|chunk| owners.give(chunk));
    let mut taken = BTreeSet::new();
    for descriptor in rest.chunks_exact(16) {
        let number = |at: usize, len: usize| {
            descriptor[at..at + len]
                .iter()
                .rev()
                .fold(0, |n, &b| n << 8 | u64::from(b))
        };
        let (address, len) = (number(0, 8), number(8, 4));
        let (first, last) = (
            u128::from(address),
            u128::from(address) + u128::from(len).max(1) - 1,
        );
        let home = first / chunk as u128;
        // An empty packet may lie at the end of a chunk.
        let inside = home < plan.chunks as u128 && (last / chunk as u128 == home);
        match plan.packet(address, len as u32) {
            Some((place, at)) => {
                assert!(
                    inside
                        && u128::from(place) == home
                        && at as u64 == address
                        && at + len as usize <= plan.shared()
                );
                assert_eq!(
                    owners.take(place),
                    taken.insert(place),
                    "a chunk is taken once"
                );
            }
            None => assert!(!inside, "{address} {len}"),
        }
        let [put, next] = [number(0, 4), number(12, 4)].map(|index| index as u32);
        let entries = between(put, next, 256);
        assert!(
            entries <= 256 && (put.wrapping_sub(next) > 256 || entries == put.wrapping_sub(next))
        );
    }
    let entries = rest.chunks_exact(16).map(|entry| {
        let (address, more) = entry.split_first_chunk().expect("sixteen bytes");
        (u64::from_le_bytes(*address), more[0])
    });
    completions(plan.chunks as u32, chunk, entries);
}

/// Takes back places at the addresses of `entries`; before each address, as many frames are sent as its number says.
fn completions(count: u32, chunk: usize, entries: impl Iterator<Item = (u64, u8)>) {
    let mut places = Places::new(count, chunk);
    let mut out = BTreeSet::new();
    for (address, frames) in entries {
        for _ in 0..frames {
            match places.give() {
                Some(place) => assert!(
                    place < count && out.insert(place),
                    "place {place} is given once"
                ),
                None => assert_eq!(out.len(), count as usize, "a place is out or free"),
            }
        }
        let place = address / chunk as u64;
        let was_out = u32::try_from(place).is_ok_and(|place| out.remove(&place));
        assert_eq!(places.take_back(address), was_out, "{address}");
    }
}

#[cfg(test)]
mod tests {
    use super::descriptors;
    use weir_testkit::Random;

    #[test]
    fn damaged_descriptors_never_lead_outside() {
        let mut random = Random(1);
        let mut next = || random.next();
        for _ in 0..if cfg!(miri) { 20 } else { 3000 } {
            let mut data = next().to_le_bytes()[..4].to_vec();
            for _ in 0..20 {
                // Addresses near the end of the memory and at chunk ends are more frequent.
                let address = match next() % 4 {
                    0 => next(),
                    1 => next() % (1 << 22),
                    2 => (next() % 2048) << 11,
                    _ => ((next() % 2048) << 11).wrapping_sub(next() % 4),
                };
                let len = if next() % 2 == 0 {
                    next() % 5000
                } else {
                    next()
                };
                data.extend(address.to_le_bytes());
                data.extend((len as u32).to_le_bytes());
                data.extend((next() as u32).to_le_bytes());
            }
            descriptors(&data);
        }
    }
}
