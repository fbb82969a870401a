//! Addresses of both families as numbers.

use crate::Addresses;
use core::fmt::Debug;

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Debug + sealed::Sealed {
    /// The lowest address.
    const ZERO: Self;
    /// The highest address.
    const LAST: Self;

    /// The address after this one; `None` after the highest.
    fn next(self) -> Option<Self>;

    /// The address before this one. **Panics**: before the lowest.
    fn before(self) -> Self;

    /// A hash of the address.
    #[doc(hidden)]
    fn hash(self, seed: u64) -> u64;

    /// The address as two words, the upper one first.
    #[doc(hidden)]
    fn to_words(self) -> [u64; 2];

    /// The address of two words.
    #[doc(hidden)]
    fn of_words(words: [u64; 2]) -> Self;

    /// The number of the address's section: its highest bits, 1 to 32 of them.
    #[doc(hidden)]
    fn section(self, bits: u32) -> usize;

    /// The first address of a section.
    #[doc(hidden)]
    fn first_of(section: usize, bits: u32) -> Self;

    /// The ranges of this family in a set.
    #[doc(hidden)]
    fn ranges_of(addresses: &Addresses) -> &[(Self, Self)];
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// Mixes 64 bits so that the lowest ones depend on all. **Source**: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
#[inline]
pub(crate) fn mixed(number: u64) -> u64 {
    let mut z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

macro_rules! address {
    ($number:ty, $ranges:ident, $hash:expr) => {
        impl Address for $number {
            const ZERO: Self = 0;
            const LAST: Self = Self::MAX;

            #[inline]
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline]
            fn before(self) -> Self {
                self - 1
            }

            #[inline]
            fn hash(self, seed: u64) -> u64 {
                $hash(self, seed)
            }

            fn to_words(self) -> [u64; 2] {
                let bits = u128::from(self);
                [(bits >> 64) as u64, bits as u64]
            }

            fn of_words([upper, lower]: [u64; 2]) -> Self {
                (u128::from(upper) << 64 | u128::from(lower)) as Self
            }

            #[inline]
            fn section(self, bits: u32) -> usize {
                (self >> (Self::BITS - bits)) as usize
            }

            #[inline]
            fn first_of(section: usize, bits: u32) -> Self {
                (section as Self) << (Self::BITS - bits)
            }

            fn ranges_of(addresses: &Addresses) -> &[(Self, Self)] {
                addresses.$ranges()
            }
        }
    };
}

address!(u32, v4, |address: u32, seed: u64| mixed(
    u64::from(address) ^ seed
));
address!(u128, v6, |address: u128, seed: u64| mixed(
    mixed((address >> 64) as u64 ^ seed) ^ address as u64
));
