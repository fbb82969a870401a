//! Hash tables of addresses and prefixes.

use weir_memory::{advise_huge, prefetch};

use crate::MAX_BATCH;

/// Marks of a cache line, and their number.
const PLACES: usize = 16;

/// A cache line of marks: the places of one hash, filled in order. Zero is a free place.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u32; PLACES]);

/// Keys of one kind in a hash table of cache lines; at most half of the places are taken.
///
/// A lookup compares all marks of a line at once and branches only if the line is full, which one in 200 is: how far a search one key after
/// another goes cannot be predicted, and a wrong prediction took as long as the rest of the lookup. Keys without a place in their line are
/// in the next one.
///
/// **Layout**: an IPv4 address is its own mark; zero has a flag. Of an IPv6 address, the mark is a part of the hash, and the address
/// itself is in a second array, which is read only if the mark is there. So addresses that the set does not have, which most are, cost
/// no more than those of IPv4. **Memory**: 2 to 4 places for each key, 4 bytes each, and 16 more for IPv6.
#[derive(Clone, Debug)]
pub(super) struct Table<K> {
    lines: Vec<Line>,
    /// The key of each place; empty if marks are keys.
    keys: Vec<K>,
    has_zero: bool,
    is_empty: bool,
}

/// An address as a key of a hash table.
pub(super) trait Key: Copy + Ord + Default + Send + Sync {
    const BITS: u32;
    /// Whether the mark is the key itself.
    const IS_MARK: bool;
    /// The upper bits depend on all bits.
    fn hash(self) -> u64;
    /// Not zero, unless the key is zero and its own mark.
    fn mark(self) -> u32;
    /// The first `length` bits and a one after them; less than all bits.
    fn prefix(self, length: u8) -> Self;
    /// Largest number of zero bits at the end of the address, so that a prefix with it begins there and does not exceed `last`.
    fn spare(self, last: Self) -> u32;
    /// The address after this one and the `bits` lowest bits; `None` after the last address.
    fn behind(self, bits: u32) -> Option<Self>;
}

macro_rules! key {
    ($number:ty, $hash:expr, $mark:expr) => {
        impl Key for $number {
            const BITS: u32 = <$number>::BITS;
            const IS_MARK: bool = Self::BITS == u32::BITS;

            #[inline(always)]
            fn hash(self) -> u64 {
                $hash(self)
            }

            #[inline(always)]
            fn mark(self) -> u32 {
                $mark(self)
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

key!(
    u32,
    |address: u32| u64::from(address).wrapping_mul(MULTIPLIERS[0]),
    |address: u32| address
);
key!(
    u128,
    |address: u128| {
        let upper = ((address >> 64) as u64).wrapping_mul(MULTIPLIERS[1]);
        (upper ^ upper >> 32 ^ address as u64).wrapping_mul(MULTIPLIERS[0])
    },
    |address: u128| (address.hash() >> 8) as u32 | 1
);

impl<K: Key> Table<K> {
    /// Makes the table of different keys.
    pub(super) fn new(keys: &[K]) -> Self {
        let lines = (2 * keys.len()).div_ceil(PLACES).next_power_of_two().max(2);
        let places = if K::IS_MARK { 0 } else { lines * PLACES };
        let mut table = Self {
            lines: filled(lines, Line([0; PLACES])),
            keys: filled(places, K::default()),
            has_zero: false,
            is_empty: keys.is_empty(),
        };
        for &key in keys {
            table.insert(key);
        }
        table
    }

    fn insert(&mut self, key: K) {
        let mark = key.mark();
        if mark == 0 {
            self.has_zero = true;
            return;
        }
        let mut at = self.line(key);
        loop {
            let line = &mut self.lines[at].0;
            if let Some(free) = line.iter().position(|mark| *mark == 0) {
                line[free] = mark;
                if !K::IS_MARK {
                    self.keys[at * PLACES + free] = key;
                }
                return;
            }
            at = (at + 1) % self.lines.len();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Line at which the search for a key begins.
    #[inline(always)]
    fn line(&self, key: K) -> usize {
        (key.hash() >> (64 - self.lines.len().trailing_zeros())) as usize
    }

    /// Starts to fetch what [`Self::contains`] needs first.
    #[inline(always)]
    pub(super) fn prefetch(&self, key: K) {
        prefetch(&self.lines, self.line(key));
    }

    #[inline(always)]
    pub(super) fn contains(&self, key: K) -> bool {
        let mark = key.mark();
        let mut at = self.line(key);
        loop {
            // The number of lines is a power of two.
            at &= self.lines.len() - 1;
            let line = &self.lines[at].0;
            let is_here = if K::IS_MARK {
                is_any(line, mark)
            } else {
                self.is_at(at, equal(line, mark), key)
            };
            if is_here | (line[PLACES - 1] == 0) {
                // A free place is zero too.
                return (is_here & (mark != 0)) | (self.has_zero & (mark == 0));
            }
            at += 1;
        }
    }

    /// Whether the key is at one of these places of a line.
    #[inline(always)]
    fn is_at(&self, line: usize, mut places: u32, key: K) -> bool {
        while places != 0 {
            if self.keys[line * PLACES + places.trailing_zeros() as usize] == key {
                return true;
            }
            places &= places - 1;
        }
        false
    }

    /// Bit `i` says whether the table has the key of address `i` of at most 64. The caller has [fetched](Self::prefetch) their memory.
    #[inline(always)]
    pub(super) fn members(&self, addresses: &[K], key: impl Fn(K) -> K) -> u64 {
        let mut found = 0;
        if K::IS_MARK {
            for (index, &address) in addresses.iter().enumerate() {
                found |= u64::from(self.contains(key(address))) << (index & 63);
            }
            return found;
        }
        let mut places = [0; MAX_BATCH];
        for (index, (&address, place)) in addresses.iter().zip(&mut places).enumerate() {
            let has_mark;
            (has_mark, *place) = self.first_with_mark(key(address));
            found |= u64::from(has_mark) << (index & 63);
        }
        for index in ones(found) {
            prefetch(&self.keys, places[index]);
        }
        for index in ones(found) {
            let key = key(addresses[index]);
            // Another key with the mark may come first.
            if self.keys[places[index]] != key && !self.contains(key) {
                found &= !(1 << index);
            }
        }
        found
    }

    /// Whether a place has the mark of a key, and the first such place.
    #[inline(always)]
    fn first_with_mark(&self, key: K) -> (bool, usize) {
        let mark = key.mark();
        let mut at = self.line(key);
        loop {
            at &= self.lines.len() - 1;
            let line = &self.lines[at].0;
            let places = equal(line, mark);
            if (places != 0) | (line[PLACES - 1] == 0) {
                return (places != 0, at * PLACES + places.trailing_zeros() as usize);
            }
            at += 1;
        }
    }
}

/// A vector of equal values in pages of 2 MiB, where whole ones lie in it: random reads of it miss the translation cache less often.
fn filled<T: Copy>(len: usize, value: T) -> Vec<T> {
    let mut vector = Vec::with_capacity(len);
    advise_huge(vector.spare_capacity_mut());
    vector.resize(len, value);
    vector
}

#[inline(always)]
fn is_any(line: &[u32; PLACES], mark: u32) -> bool {
    line.iter()
        .fold(false, |is_any, &here| is_any | (here == mark))
}

/// The places of a line that have a mark, as bits.
#[inline(always)]
fn equal(line: &[u32; PLACES], mark: u32) -> u32 {
    let mut places = 0;
    for (place, &here) in line.iter().enumerate() {
        places |= u32::from(here == mark) << place;
    }
    places
}

/// Numbers of the bits that are set.
#[inline(always)]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (next < 64).then_some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use weir_testkit::Random;

    /// Compares a table with a set of the standard library, on its keys and on keys near them and of one hash with them.
    fn compare<K: Key + std::hash::Hash + std::fmt::Debug>(keys: &[K], others: &[K]) {
        let naive: HashSet<K> = keys.iter().copied().collect();
        let table = Table::new(keys);
        let asked: Vec<K> = keys.iter().chain(others).copied().collect();
        for batch in asked.chunks(MAX_BATCH) {
            batch.iter().for_each(|&key| table.prefetch(key));
            let members = table.members(batch, |key| key);
            for (index, key) in batch.iter().enumerate() {
                let wanted = naive.contains(key);
                assert_eq!(table.contains(*key), wanted, "{key:x?}");
                assert_eq!(members >> index & 1 == 1, wanted, "{key:x?} in a batch");
            }
        }
    }

    #[test]
    fn keys_of_one_line_are_told_apart() {
        let mut random = Random(5);
        // All keys begin in one line of 256, so that the search goes through many full lines.
        let mut crowd: Vec<u32> = (0..1 << 18).filter(|key| key.hash() >> 56 == 7).collect();
        let others = crowd.split_off(crowd.len() / 2);
        compare(&crowd, &others);
        compare(&[&[0], &crowd[..]].concat(), &others);
        compare(&crowd[..20], &[0, 1, u32::MAX]);
        let any: HashSet<u32> = (0..50_000).map(|_| random.next() as u32).collect();
        let any: Vec<u32> = any.into_iter().collect();
        compare(
            &any,
            &(0..50_000)
                .map(|_| random.next() as u32)
                .collect::<Vec<_>>(),
        );
        compare(&[], &any[..100]);
    }

    #[test]
    fn ipv6_addresses_of_one_hash_are_told_apart() {
        let mut random = Random(6);
        // The lower half undoes what the upper half does to the hash.
        let alike = |upper: u64| {
            let mixed = upper.wrapping_mul(MULTIPLIERS[1]);
            u128::from(upper) << 64 | u128::from(mixed ^ mixed >> 32 ^ 77)
        };
        let mut crowd: Vec<u128> = (0..600).map(alike).collect();
        assert!(crowd.iter().all(|key| key.hash() == crowd[0].hash()));
        let others = crowd.split_off(300);
        compare(&crowd, &others);
        compare(&[&[0], &crowd[..1]].concat(), &others);
        let mut any = || u128::from(random.next()) << 64 | u128::from(random.next());
        let keys: Vec<u128> = (0..20_000).map(|_| any()).collect();
        let others: Vec<u128> = (0..20_000).map(|_| any()).collect();
        compare(&keys, &others);
    }
}
