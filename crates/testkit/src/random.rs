//! Pseudo-random numbers for tests.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 (Steele, Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, 2014). Any number is a seed, and the
/// same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The generator of seed 0, after its first `count` numbers.
    pub fn behind(count: u64) -> Self {
        Self(count.wrapping_mul(STEP))
    }

    /// The next number, of 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number, reduced to below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From <https://prng.di.unimi.it/splitmix64.c> with seed 1234567.
    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = Random(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([random.next(), random.next(), random.next()], published);
        let mut first = Random(0);
        first.next();
        assert_eq!(Random::behind(1).next(), first.next());
    }
}
