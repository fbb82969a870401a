//! Membership of an address in a set, for sets of any size.

use weir_memory::{AddressBitmap, Place, Work, compiled_for_newer};
use weir_packet::addresses::Addresses;

use super::table::{Key, Table};
use crate::MAX_BATCH;

/// Ranges of a set that are searched one after another.
const FEW: usize = 8;

/// Lengths of prefixes up to which IPv4 addresses are hashed; the bitmap takes two accesses for any number of lengths, but 6 MiB.
const FEW_LENGTHS: usize = 3;

/// Lengths up to which small sets are hashed, whose tables stay in the cache, as the bitmap would not; and the size of such sets, ranges.
const SMALL_LENGTHS: usize = 8;
const SMALL: usize = 1 << 12;

/// A set of addresses that answers quickly whether it has an address.
///
/// **Layout**: up to 8 ranges of a family are searched in order. More IPv4 ranges are a hash table
/// of addresses and prefixes, or bits for all addresses ([`AddressBitmap`]) if there are prefixes
/// of many lengths; more IPv6 ranges are hash tables. **Memory**: 8 bytes for each IPv4 range and
/// 32 for each IPv6 range; in hash tables, 8 to 16 bytes more for an IPv4 address and 40 to 80 for
/// an IPv6 address; up to 40 MiB for the bits of a million addresses. **Cost**: one or two accesses
/// to memory for IPv4; for IPv6 one for addresses and one for each length of prefixes in the set,
/// and one more for the entry that is found. **Threads**: may be shared; lookups change nothing.
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
        let most_lengths = if addresses.v4().len() <= SMALL {
            SMALL_LENGTHS
        } else {
            FEW_LENGTHS
        };
        let v4 = match Hashed::new(addresses.v4()) {
            _ if addresses.v4().len() <= FEW => V4::Few,
            hashed if hashed.lengths.len() <= most_lengths => V4::Hashed(hashed),
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

    /// Bit `i` says whether the set has IPv4 address `i` of at most 64. All memory is fetched before the first address is looked for.
    pub(crate) fn members_v4(&self, addresses: &[u32]) -> u64 {
        compiled_for_newer(Members(|| match &self.v4 {
            V4::Few => bits(addresses, |at| is_in_few(self.addresses.v4(), at)),
            V4::Hashed(hashed) => hashed.members(addresses),
            V4::Bits(bitmap) => members_of_bitmap(bitmap, addresses),
        }))
    }

    /// As [`Self::members_v4`], for IPv6 addresses.
    pub(crate) fn members_v6(&self, addresses: &[u128]) -> u64 {
        compiled_for_newer(Members(|| match &self.v6 {
            V6::Few => bits(addresses, |at| is_in_few(self.addresses.v6(), at)),
            V6::Hashed(hashed) => hashed.members(addresses),
        }))
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

/// Lookups of a batch, which newer processors do by other code.
struct Members<F>(F);

impl<F: FnOnce() -> u64> Work for Members<F> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        self.0()
    }
}

/// Answers as bits, from the lowest one up.
#[inline(always)]
fn bits<K: Copy>(addresses: &[K], holds: impl Fn(K) -> bool) -> u64 {
    let mut found = 0;
    for (index, &address) in addresses.iter().enumerate() {
        found |= u64::from(holds(address)) << (index & 63);
    }
    found
}

#[inline(always)]
fn members_of_bitmap(bitmap: &AddressBitmap, addresses: &[u32]) -> u64 {
    for &address in addresses {
        bitmap.prefetch(address);
    }
    let mut places = [Place::default(); MAX_BATCH];
    for (place, &address) in places.iter_mut().zip(addresses) {
        *place = bitmap.place(address);
    }
    let mut found = 0;
    for (index, (&address, &place)) in addresses.iter().zip(&places).enumerate() {
        found |= u64::from(bitmap.has(address, place)) << (index & 63);
    }
    found
}

/// Without a branch on the address, since what comes next is hard to predict.
#[inline(always)]
fn is_in_few<T: Copy + Ord>(ranges: &[(T, T)], address: T) -> bool {
    ranges.iter().fold(false, |found, &(first, last)| {
        found | ((first <= address) & (address <= last))
    })
}

/// Addresses and prefixes of one family in hash tables.
///
/// **Layout**: an address is its own key. A prefix of `n` bits has a key of its first `n` bits and
/// a one after them, in a second table, since that is also the number of an address.
#[derive(Clone, Debug)]
struct Hashed<K: Key> {
    hosts: Table<K>,
    prefixes: Table<K>,
    /// Lengths of the prefixes in `prefixes`, the most frequent one first.
    lengths: Vec<u8>,
}

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
        Self {
            hosts: Table::new(&hosts),
            prefixes: Table::new(&prefixes),
            lengths,
        }
    }

    #[inline]
    fn contains(&self, address: K) -> bool {
        let has_prefix = |&length: &u8| self.prefixes.contains(address.prefix(length));
        self.hosts.contains(address) || self.lengths.iter().any(has_prefix)
    }

    /// Answers for a batch, as bits. Memory is fetched for all addresses, and for one length of prefixes more, before the first answer.
    #[inline(always)]
    fn members(&self, addresses: &[K]) -> u64 {
        let fetch = |length: u8| {
            for &address in addresses {
                self.prefixes.prefetch(address.prefix(length));
            }
        };
        let mut next = self.lengths.iter().copied();
        let mut found = 0;
        if !self.hosts.is_empty() {
            for &address in addresses {
                self.hosts.prefetch(address);
            }
            next.next().into_iter().for_each(fetch);
            found = self.hosts.members(addresses, |address| address);
        } else {
            next.next().into_iter().for_each(fetch);
        }
        for &length in &self.lengths {
            next.next().into_iter().for_each(fetch);
            found |= self
                .prefixes
                .members(addresses, |address| address.prefix(length));
        }
        found
    }

    /// Starts to fetch what [`Self::contains`] needs first.
    #[inline]
    fn prefetch(&self, address: K) {
        self.hosts.prefetch(address);
        if let Some(&length) = self.lengths.first() {
            self.prefixes.prefetch(address.prefix(length));
        }
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
