//! Membership of an address in a set, for sets of any size.

use weir_memory::{AddressBitmap, in_huge_pages, prefetch};
use weir_packet::addresses::Addresses;

/// Ranges of a set that are searched one after another.
const FEW: usize = 8;

/// Lengths of prefixes up to which IPv4 addresses are hashed; the bitmap takes two accesses for any number of lengths, but 6 MiB.
const FEW_LENGTHS: usize = 3;

/// A set of addresses that answers quickly whether it has an address.
///
/// **Layout**: up to 8 ranges of a family are searched in order. More IPv4 ranges are a hash table of addresses and prefixes, or bits for
/// all addresses ([`AddressBitmap`]) if there are prefixes of many lengths; more IPv6 ranges are hash tables. A million IPv4 addresses
/// take 8 to 40 MiB, a million IPv6 addresses 64 MiB. **Cost**: one or two accesses to memory for IPv4, for IPv6 one for each
/// length of prefixes in the set. **Threads**: may be shared; lookups change nothing.
#[derive(Clone, Debug)]
pub struct AddressSet {
    addresses: Addresses,
    v4: V4,
    v6: V6,
}

#[derive(Clone, Debug)]
enum V4 {
    Few,
    Hashed(Hashed<u32>),
    Bits(AddressBitmap),
}

#[derive(Clone, Debug)]
enum V6 {
    Few,
    Hashed(Hashed<u128>),
}

impl AddressSet {
    /// Prepares a set for lookups. **Cost**: a second for some ten million addresses.
    pub fn new(addresses: Addresses) -> Self {
        let v4 = match Hashed::new(addresses.v4()) {
            _ if addresses.v4().len() <= FEW => V4::Few,
            hashed if hashed.lengths.len() <= FEW_LENGTHS => V4::Hashed(hashed),
            _ => V4::Bits(AddressBitmap::new(addresses.v4())),
        };
        let v6 = match addresses.v6().len() {
            ..=FEW => V6::Few,
            _ => V6::Hashed(Hashed::new(addresses.v6())),
        };
        Self { addresses, v4, v6 }
    }

    /// Returns the addresses.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Whether the set has an IPv4 address.
    #[inline]
    pub fn contains_v4(&self, address: u32) -> bool {
        match &self.v4 {
            V4::Few => is_in_few(self.addresses.v4(), address),
            V4::Hashed(hashed) => hashed.contains(address),
            V4::Bits(bits) => bits.has(address, bits.place(address)),
        }
    }

    /// Whether lookups of IPv4 addresses may wait for memory.
    pub(crate) fn is_large_v4(&self) -> bool {
        !matches!(self.v4, V4::Few)
    }

    /// Whether lookups of IPv6 addresses may wait for memory.
    pub(crate) fn is_large_v6(&self) -> bool {
        !matches!(self.v6, V6::Few)
    }

    /// Starts to fetch what a lookup of an IPv4 address needs first.
    #[inline]
    pub(crate) fn prefetch_v4(&self, address: u32) {
        match &self.v4 {
            V4::Few => {}
            V4::Hashed(hashed) => hashed.prefetch(address),
            V4::Bits(bits) => bits.prefetch(address),
        }
    }

    /// Starts to fetch what a lookup of an IPv4 address needs then.
    #[inline]
    pub(crate) fn prefetch_rest_v4(&self, address: u32) {
        if let V4::Bits(bits) = &self.v4 {
            bits.place(address);
        }
    }

    /// Starts to fetch what a lookup of an IPv6 address needs.
    #[inline]
    pub(crate) fn prefetch_v6(&self, address: u128) {
        if let V6::Hashed(hashed) = &self.v6 {
            hashed.prefetch(address);
        }
    }

    /// Whether the set has an IPv6 address.
    #[inline]
    pub fn contains_v6(&self, address: u128) -> bool {
        match &self.v6 {
            V6::Few => is_in_few(self.addresses.v6(), address),
            V6::Hashed(hashed) => hashed.contains(address),
        }
    }

    /// Judges an IPv6 address as four comparisons of words do, one set member after another: `bytes` are those of the packet from the
    /// address on. If the packet ends within the address, the result is `None` (the program ends with 0) if a member begins with all
    /// whole words that are there, and `Some(false)` otherwise.
    #[inline]
    pub fn judge_v6(&self, bytes: &[u8]) -> Option<bool> {
        match bytes.first_chunk() {
            Some(address) => Some(self.contains_v6(u128::from_be_bytes(*address))),
            None => self.judge_cut_v6(bytes),
        }
    }

    #[cold]
    fn judge_cut_v6(&self, bytes: &[u8]) -> Option<bool> {
        let mut first = [0; 16];
        let mut last = [0xff; 16];
        let whole = bytes.len() / 4 * 4;
        first[..whole].copy_from_slice(&bytes[..whole]);
        last[..whole].copy_from_slice(&bytes[..whole]);
        let (first, last) = (u128::from_be_bytes(first), u128::from_be_bytes(last));
        let ranges = self.addresses.v6();
        let next = ranges.partition_point(|range| range.1 < first);
        let begins = ranges.get(next).is_some_and(|range| range.0 <= last);
        if whole == 0 || begins {
            None
        } else {
            Some(false)
        }
    }
}

/// Without a branch on the address, since what comes next is hard to predict.
#[inline]
fn is_in_few<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    ranges.iter().fold(false, |found, &(first, last)| {
        found | ((first <= address) & (address <= last))
    })
}

/// A cache line of keys: the places of one hash, filled in order.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line<A>(A);

/// Prefixes of one family in a hash table of cache lines; at most half of the places are taken.
///
/// A lookup compares all keys of a line at once and branches only if the line is full, which few are: how far a search one key after
/// another goes cannot be predicted, and a wrong prediction took as long as the rest of the lookup. Keys without a place in their line are
/// in the next one.
///
/// **Layout**: an address is its own entry. A prefix of `n` bits has an entry of its first `n` bits and a one behind them, in a second
/// table, since that is the number of an address too. Zero is a free place; `::` and 0.0.0.0 have a flag.
#[derive(Clone, Debug)]
struct Hashed<K: Key> {
    hosts: Vec<Line<K::Keys>>,
    has_zero: bool,
    prefixes: Vec<Line<K::Keys>>,
    /// Lengths of the prefixes in `prefixes`, the most frequent one first.
    lengths: Vec<u8>,
}

/// An address as a key of a hash table.
trait Key: Copy + Ord + Default + Send + Sync {
    const BITS: u32;
    /// The keys of a line.
    type Keys: Copy + core::fmt::Debug + Default + AsRef<[Self]> + AsMut<[Self]>;
    fn hash(self) -> u64;
    /// The first `length` bits and a one behind them; less than all bits.
    fn prefix(self, length: u8) -> Self;
    /// Largest number of zero bits at the end of the address, so that a prefix with it begins there and does not exceed `last`.
    fn spare(self, last: Self) -> u32;
    /// The address behind this one and the `bits` lowest bits; `None` behind the last address.
    fn behind(self, bits: u32) -> Option<Self>;
}

macro_rules! key {
    ($number:ty, $hash:expr) => {
        impl Key for $number {
            const BITS: u32 = <$number>::BITS;
            type Keys = [$number; align_of::<Line<()>>() / size_of::<$number>()];

            #[inline(always)]
            fn hash(self) -> u64 {
                $hash(self)
            }

            #[inline(always)]
            fn prefix(self, length: u8) -> Self {
                let one = 1 << (Self::BITS - 1 - u32::from(length));
                self & !(one | (one - 1)) | one
            }

            fn spare(self, last: Self) -> u32 {
                let size = last.wrapping_sub(self).wrapping_add(1);
                // All addresses from 0 on.
                let most = if size == 0 { Self::BITS } else { size.ilog2() };
                self.trailing_zeros().min(most)
            }

            fn behind(self, bits: u32) -> Option<Self> {
                self.checked_add((1 as Self).checked_shl(bits)?)
            }
        }
    };
}

/// Multipliers of the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
const MULTIPLIERS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

key!(u32, |address: u32| u64::from(address)
    .wrapping_mul(MULTIPLIERS[0]));
key!(u128, |address: u128| {
    let upper = ((address >> 64) as u64).wrapping_mul(MULTIPLIERS[1]);
    (upper ^ upper >> 32 ^ address as u64).wrapping_mul(MULTIPLIERS[0])
});

impl<K: Key> Hashed<K> {
    /// Makes the tables of ranges in ascending order.
    fn new(ranges: &[(K, K)]) -> Self {
        let (mut hosts, mut prefixes) = (Vec::new(), Vec::new());
        let mut counts = [0usize; 128];
        for &(first, last) in ranges {
            let mut next = Some(first);
            while let Some(at) = next.filter(|at| *at <= last) {
                let bits = at.spare(last);
                match bits {
                    0 => hosts.push(at),
                    _ => {
                        let length = (K::BITS - bits) as u8;
                        counts[usize::from(length)] += 1;
                        prefixes.push(at.prefix(length));
                    }
                }
                next = at.behind(bits);
            }
        }
        let mut lengths: Vec<u8> = (0..128)
            .filter(|&length| counts[usize::from(length)] > 0)
            .collect();
        lengths.sort_by_key(|&length| std::cmp::Reverse(counts[usize::from(length)]));
        let has_zero = hosts.first() == Some(&K::default());
        Self {
            hosts: table(&hosts),
            has_zero,
            prefixes: table(&prefixes),
            lengths,
        }
    }

    #[inline]
    fn contains(&self, address: K) -> bool {
        let host = if address == K::default() {
            self.has_zero
        } else {
            has::<K>(&self.hosts, address)
        };
        // Without prefixes there is no branch on what was found.
        if self.lengths.is_empty() {
            return host;
        }
        host || self
            .lengths
            .iter()
            .any(|&length| has::<K>(&self.prefixes, address.prefix(length)))
    }

    /// Starts to fetch what [`Self::contains`] needs first.
    #[inline]
    fn prefetch(&self, address: K) {
        prefetch(&self.hosts, place(self.hosts.len(), address));
        if let Some(&length) = self.lengths.first() {
            prefetch(
                &self.prefixes,
                place(self.prefixes.len(), address.prefix(length)),
            );
        }
    }
}

/// A table of keys other than zero; at least half of the places are free.
fn table<K: Key>(keys: &[K]) -> Vec<Line<K::Keys>> {
    let free = Line(K::Keys::default());
    let lines = (2 * keys.len()).div_ceil(free.0.as_ref().len());
    let mut table = vec![free; lines.next_power_of_two().max(2)];
    for &key in keys.iter().filter(|key| **key != K::default()) {
        let mut at = place(table.len(), key);
        let is_for_it = |here: &&mut K| **here == key || **here == K::default();
        loop {
            if let Some(here) = table[at].0.as_mut().iter_mut().find(is_for_it) {
                *here = key;
                break;
            }
            at = (at + 1) & (table.len() - 1);
        }
    }
    in_huge_pages(&table)
}

/// Line at which the search for a key begins: the upper bits of its hash, since they depend on all bits.
#[inline(always)]
fn place<K: Key>(len: usize, key: K) -> usize {
    (key.hash() >> (64 - len.trailing_zeros())) as usize
}

#[inline]
fn has<K: Key>(table: &[Line<K::Keys>], key: K) -> bool {
    let mut at = place(table.len(), key);
    loop {
        // The table's length is a power of two.
        let keys = table[at & (table.len() - 1)].0.as_ref();
        let is_here = keys
            .iter()
            .fold(false, |found, &other| found | (other == key));
        let is_full = keys[keys.len() - 1] != K::default();
        if is_here | !is_full {
            return is_here;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use weir_testkit::Random;

    /// Addresses of one family that are likely to lie at the ends of a set's ranges.
    fn address(random: &mut Random, six: bool) -> IpAddr {
        let low = random.below(1 << 10) as u128;
        let any = u128::from(random.next()) << 64 | u128::from(random.next());
        let bits = match random.below(6) {
            0 => low,
            1 => u128::MAX - low,
            2 => any << 64,
            3 => any & 0xffff_ffff_0000 << 80,
            4 => 0x2001_0db8 << 96 | low << random.below(90),
            _ => any,
        };
        if six {
            IpAddr::V6(bits.into())
        } else {
            IpAddr::V4(((bits ^ bits >> 96) as u32).into())
        }
    }

    fn sets(random: &mut Random) -> Addresses {
        let (count, hosts_only) = ([0, 1, 7, 9, 60, 900][random.below(6)], random.below(3) == 0);
        let ranges = (0..count).map(|_| {
            let six = random.below(2) == 0;
            let one = address(random, six);
            let other = if random.below(3) == 0 && !hosts_only {
                address(random, six)
            } else {
                one
            };
            (one.min(other), one.max(other))
        });
        // Two ranges of any length leave little outside, so most of them are short.
        Addresses::new(ranges.collect::<Vec<_>>().into_iter().map(|(first, last)| {
            match (first, last) {
                (IpAddr::V4(a), IpAddr::V4(b)) if b.to_bits() - a.to_bits() > 1 << 24 => {
                    (first, first)
                }
                (IpAddr::V6(a), IpAddr::V6(b)) if b.to_bits() - a.to_bits() > 1 << 100 => {
                    (first, first)
                }
                range => range,
            }
        }))
    }

    #[test]
    fn a_set_has_the_addresses_of_its_ranges() {
        let mut random = Random(7);
        let (mut kinds, mut found) = ([0; 5], [0; 2]);
        for _ in 0..300 {
            let addresses = sets(&mut random);
            let set = AddressSet::new(addresses.clone());
            kinds[match set.v4 {
                V4::Few => 0,
                V4::Hashed(_) => 1,
                V4::Bits(_) => 2,
            }] += 1;
            kinds[if matches!(set.v6, V6::Few) { 3 } else { 4 }] += 1;
            let ends = addresses.v4().iter().flat_map(|range| [range.0, range.1]);
            let near = ends.flat_map(|end| [-1, 0, 1].map(|by| end.wrapping_add_signed(by)));
            for address in near
                .chain((0..64).map(|_| random.next() as u32))
                .chain([0, u32::MAX])
            {
                let naive = addresses
                    .v4()
                    .iter()
                    .any(|range| (range.0..=range.1).contains(&address));
                set.prefetch_v4(address);
                set.prefetch_rest_v4(address);
                assert_eq!(
                    set.contains_v4(address),
                    naive,
                    "{address:x} {addresses:x?}"
                );
                found[0] += usize::from(naive);
            }
            let ends = addresses.v6().iter().flat_map(|range| [range.0, range.1]);
            let near = ends.flat_map(|end| [-1, 0, 1].map(|by| end.wrapping_add_signed(by)));
            for address in near.chain([0, u128::MAX, 1 << 127, u128::from(random.next())]) {
                let naive = addresses
                    .v6()
                    .iter()
                    .any(|range| (range.0..=range.1).contains(&address));
                assert_eq!(
                    set.contains_v6(address),
                    naive,
                    "{address:x} {addresses:x?}"
                );
                found[1] += usize::from(naive);
            }
        }
        assert!(
            kinds.iter().all(|&count| count > 20),
            "each kind of structure was made: {kinds:?}"
        );
        assert!(found.iter().all(|&count| count > 1000), "{found:?}");
    }

    /// The oracle compares word by word, as libpcap's program does.
    #[test]
    fn a_cut_ipv6_address_is_judged_as_by_words() {
        let mut random = Random(11);
        let mut outcomes = [0; 3];
        for _ in 0..200 {
            let addresses = sets(&mut random);
            let set = AddressSet::new(addresses.clone());
            for _ in 0..40 {
                let member = addresses
                    .v6()
                    .get(random.below(addresses.v6().len().max(1)));
                let mut bytes = member
                    .map_or(random.next().into(), |range| range.0)
                    .to_be_bytes();
                bytes[random.below(16)] ^= (random.below(3) / 2) as u8;
                let bytes = &bytes[..random.below(17)];
                let words = bytes.len() / 4;
                let begins = |range: &(u128, u128)| {
                    let here =
                        |i: usize| u32::from_be_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
                    let number = |rest: u32| {
                        (0..4).fold(0u128, |all, i| {
                            all << 32 | u128::from(if i < words { here(i) } else { rest })
                        })
                    };
                    range.0 <= number(u32::MAX) && number(0) <= range.1
                };
                let naive = match (words, addresses.v6().iter().any(begins)) {
                    (4, holds) => Some(holds),
                    (0, _) | (_, true) => None,
                    (_, false) => Some(false),
                };
                assert_eq!(set.judge_v6(bytes), naive, "{bytes:x?} {addresses:x?}");
                outcomes[naive.map_or(2, usize::from)] += 1;
            }
        }
        assert!(outcomes.iter().all(|&count| count > 100), "{outcomes:?}");
    }
}
