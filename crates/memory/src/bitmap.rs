//! Sets of IPv4 addresses as bits, for large sets.

use crate::{in_huge_pages, prefetch};
use core::hint::select_unpredictable;

/// Networks of 256 addresses in a block.
const NETWORKS: usize = 64;

/// A set of IPv4 addresses, as two levels of bits.
///
/// **Layout**: for each /18 a block with two bits for each /24 in it: whether the set has all its addresses, and whether it has some. For the
/// latter a bit for each address; the one for number `i` in `parts` belongs to the i-th such network, 0 to none. A set takes 6 MiB, and 32 bytes
/// for each /24 of which it has a part.
///
/// **Source**: two levels with a direct look by the first 24 bits as in Gupta, Lin and McKeown, "Routing lookups in hardware at memory access
/// speeds" (INFOCOM 1998); the place of a part by counting bits as in Degermark and others, "Small forwarding tables for fast routing lookups"
/// (SIGCOMM 1997).
#[derive(Clone, Debug)]
pub struct AddressBitmap {
    blocks: Vec<Block>,
    parts: Vec<[u64; 4]>,
}

/// The /24 networks of a /18.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Bit i: the set has all addresses of network i.
    whole: u64,
    /// Bit i: the set has some addresses of network i.
    partly: u64,
    /// Number of the part of the first network that has one.
    first: u32,
}

/// Word of a block about an address: number of the part that tells the rest, above a bit that is set if the whole network is in the set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(u32);

impl AddressBitmap {
    /// Makes the set of these ranges, both ends inclusive, in ascending order and apart from each other.
    pub fn new(ranges: &[(u32, u32)]) -> Self {
        let mut blocks = vec![Block::default(); 1 << 18];
        let mut parts = vec![[0; 4]];
        let mut last_part = None;
        for &(first, last) in ranges {
            for network in first >> 8..=last >> 8 {
                let (from, to) = (
                    first.max(network << 8) & 0xff,
                    last.min(network << 8 | 0xff) & 0xff,
                );
                let (block, bit) = (
                    &mut blocks[network as usize / NETWORKS],
                    1 << (network as usize % NETWORKS),
                );
                if (from, to) == (0, 0xff) {
                    block.whole |= bit;
                    continue;
                }
                if block.partly == 0 {
                    block.first = parts.len() as u32;
                }
                block.partly |= bit;
                if last_part != Some(network) {
                    last_part = Some(network);
                    parts.push([0; 4]);
                }
                let bits = parts.last_mut().expect("there is one");
                (from..=to).for_each(|address| bits[address as usize / 64] |= 1 << (address % 64));
            }
        }
        Self {
            blocks: in_huge_pages(&blocks),
            parts: in_huge_pages(&parts),
        }
    }

    /// Starts to fetch what [`Self::place`] needs.
    #[inline(always)]
    pub fn prefetch(&self, address: u32) {
        prefetch(&self.blocks, (address >> 14) as usize);
    }

    /// Looks at the block of an address, and starts to fetch what [`Self::has`] needs.
    #[inline(always)]
    pub fn place(&self, address: u32) -> Place {
        let Block {
            whole,
            partly,
            first,
        } = self.blocks[(address >> 14) as usize];
        let bit = 1u64 << (address >> 8 & 63);
        // Without a branch: where an address lies is hard to predict.
        let part = select_unpredictable(
            partly & bit != 0,
            first + (partly & (bit - 1)).count_ones(),
            0,
        );
        prefetch(&self.parts, part as usize);
        Place(part << 1 | u32::from(whole & bit != 0))
    }

    /// Whether the set has an address, whose [place](Self::place) was found.
    #[inline(always)]
    pub fn has(&self, address: u32, Place(place): Place) -> bool {
        let bits = self.parts[(place >> 1) as usize][(address >> 6 & 3) as usize];
        bits >> (address & 63) & 1 | u64::from(place & 1) != 0
    }

    /// Returns the bytes of both levels.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.blocks[..]) + size_of_val(&self.parts[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    #[test]
    fn a_bitmap_has_the_addresses_of_its_ranges() {
        let mut random = Random(41);
        for ranges in [0, 1, 3, 40, 400] {
            // Ranges within and across networks and blocks, and both ends of all addresses.
            let mut ends: Vec<u32> = (0..2 * ranges)
                .map(|_| match random.below(4) {
                    0 => random.next() as u32,
                    1 => 0x0a00_0000 + random.below(1 << 10) as u32,
                    2 => (random.below(1 << 10) as u32) << 8,
                    _ => [0, u32::MAX, 0xffff_ff00, 255][random.below(4)],
                })
                .collect();
            ends.sort_unstable();
            ends.dedup();
            let ranges: Vec<(u32, u32)> = ends
                .chunks_exact(2)
                .map(|ends| (ends[0], ends[1]))
                .collect();
            let bitmap = AddressBitmap::new(&ranges);
            let near = ends
                .iter()
                .flat_map(|&end| [-256, -1, 0, 1, 256].map(|by| end.wrapping_add_signed(by)));
            let any = (0..1000).map(|_| random.next() as u32).collect::<Vec<_>>();
            for address in near.chain(any) {
                let wanted = ranges
                    .iter()
                    .any(|&(first, last)| (first..=last).contains(&address));
                bitmap.prefetch(address);
                assert_eq!(
                    bitmap.has(address, bitmap.place(address)),
                    wanted,
                    "{address:#x} {ranges:x?}"
                );
            }
        }
    }
}
