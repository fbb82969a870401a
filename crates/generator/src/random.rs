//! The pseudo-random numbers of the generator, kept here so that no dependency can change them.
//!
//! **Source**: D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47(4), 2021
//! (xoshiro256**, <https://prng.di.unimi.it/xoshiro256starstar.c>); the seed is spread by splitmix64
//! (<https://prng.di.unimi.it/splitmix64.c>), as its authors advise.

/// xoshiro256**: 256 bits of state, period 2^256 - 1. Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// A separate stream for each `(seed, domain)`.
    pub(crate) fn new(seed: u64, domain: u64) -> Random {
        Random {
            state: std::array::from_fn(|i| hash(seed, domain, i as u64)),
        }
    }

    /// The next 64 uniform bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
}

/// The `index`-th output of splitmix64 started at `state`.
#[inline]
fn splitmix(state: u64, index: u64) -> u64 {
    let mut z = state.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64 bits that depend on all three arguments; flows, clients and servers are derived from them.
#[inline]
pub(crate) fn hash(seed: u64, domain: u64, index: u64) -> u64 {
    splitmix(splitmix(seed, domain), index)
}

/// A bijection of `0..2^bits` chosen by `seed`, so that different indices never get the same address.
///
/// Each step (exclusive or, odd multiplication modulo 2^bits, right shift and exclusive or) is invertible.
pub(crate) fn permute(index: u32, bits: u32, seed: u64) -> u32 {
    let mask = ((1u64 << bits) - 1) as u32;
    let mut x = (index ^ seed as u32) & mask;
    for multiplier in [0x9e37_79b1_u32, 0x85eb_ca77, 0xc2b2_ae3d] {
        x = x.wrapping_mul(multiplier) & mask;
        x ^= x >> (bits / 2);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_equals_the_published_sequence() {
        // First outputs of the reference C program for state 1234567.
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        for (i, &value) in expected.iter().enumerate() {
            assert_eq!(splitmix(1_234_567, i as u64), value);
        }
    }

    #[test]
    fn xoshiro_equals_the_published_sequence() {
        // First outputs of the reference C program for state 1, 2, 3, 4.
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        for value in [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240] {
            assert_eq!(random.next(), value);
        }
    }

    #[test]
    fn permutation_hits_every_value_once() {
        for bits in [8, 13, 17] {
            let mut seen = vec![false; 1 << bits];
            for index in 0..1u32 << bits {
                let image = permute(index, bits, 0xdead_beef) as usize;
                assert!(!std::mem::replace(&mut seen[image], true));
            }
        }
    }
}
