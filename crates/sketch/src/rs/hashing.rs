//! Mangling and modular hashing: from a key to its bucket in each row, and back.
//!
//! ```text
//! s(1), s(2), ...   SplitMix64 of the seed: s(i) = mix(seed + i * 0x9e3779b97f4a7c15)
//! n, h, q           bits of a key, n / 2, n / 8; numbers are modulo 2^n while the key is mangled
//! mangle            y = key ^ s(1)
//!                   for i = 2, 3, 4:  y = y ^ (y >> h);  y = y * (s(i) | 1)
//!                   y = y ^ (y >> h)
//! verifying row v   upper m bits of y * (s(5 + v) | 1) modulo 2^64, v = 0, 1
//! row i, word j     a shuffle p of 0 ... 255 by s(7 + 256 (i q + j)), ...: for k = 255 ... 1, with the next s,
//!                   exchange p[k] and p[(s >> 32) * (k + 1) >> 32]
//!                   field = upper bits of p[byte j of y], byte 0 uppermost
//! index             all fields of the row, the field of word 0 uppermost
//! ```
//!
//! Every step of the mangling can be undone: half the bits are exclusive-ored into the other half, and an odd number has an
//! inverse. So keys of one network, which share bytes, share no bytes when they are mangled.
//!
//! **Deviation from the papers**: the tables are shuffles, not random functions. Each bucket then has equally many of all
//! possible keys, so that the mean of a row is the mean of the noise in each bucket.

use super::shape::{Field, MOST_WORDS, ReversibleShape, VERIFIERS};
use crate::{LANES, mix};

/// Values of a word.
pub(super) const VALUES: usize = 256;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hash functions of all rows.
pub(super) struct Hashing {
    pub(super) shape: ReversibleShape,
    pub(super) fields: [Field; MOST_WORDS],
    mangling: Mangling,
    /// For each row and each of its words: the field of each value, in its place in the index.
    tables: Box<[[u32; VALUES]]>,
    verifiers: [u64; VERIFIERS],
}

/// A seeded permutation of keys.
#[derive(Clone, Copy)]
struct Mangling {
    half: u32,
    mask: u64,
    flip: u64,
    odd: [u64; 3],
    inverse: [u64; 3],
}

/// Lanes of a batch: one value for each of its keys.
pub(super) type Lanes<T> = [T; LANES];

/// The `i`-th number of a seed, from 1.
fn draw(seed: u64, i: u64) -> u64 {
    mix(seed.wrapping_add(i.wrapping_mul(GOLDEN)))
}

impl Hashing {
    pub(super) fn new(shape: ReversibleShape, seed: u64) -> Self {
        let fields = shape.fields();
        let table = |at: usize| {
            let Field { bits, shift } = fields[at % shape.words()];
            let shuffled = shuffle(seed, 7 + (VALUES * at) as u64);
            shuffled.map(|value| u32::from(value) >> (8 - bits) << shift)
        };
        Self {
            shape,
            fields,
            mangling: Mangling::new(shape.key_bits(), seed),
            tables: (0..shape.rows() * shape.words()).map(table).collect(),
            verifiers: core::array::from_fn(|v| draw(seed, 5 + v as u64) | 1),
        }
    }

    #[inline(always)]
    pub(super) fn mangle(&self, key: u64) -> u64 {
        self.mangling.mangle(key)
    }

    pub(super) fn unmangle(&self, mangled: u64) -> u64 {
        self.mangling.unmangle(mangled)
    }

    /// Tables of a row's words.
    pub(super) fn tables(&self, row: usize) -> &[[u32; VALUES]] {
        let words = self.shape.words();
        &self.tables[row * words..][..words]
    }

    /// Buckets of the mangled keys in a row, for the first `mangled.len()` lanes.
    #[inline(always)]
    pub(super) fn places(&self, row: usize, mangled: &[u64], places: &mut Lanes<u32>) {
        let lanes = places.iter_mut().zip(mangled);
        if let Some(verifier) = row.checked_sub(self.shape.rows()) {
            let (odd, shift) = (self.verifiers[verifier], 64 - self.shape.width_log2());
            lanes.for_each(|(place, y)| *place = (y.wrapping_mul(odd) >> shift) as u32);
        } else if let Some(tables) = self.tables(row).as_array::<4>() {
            lanes.for_each(|(place, y)| *place = index(tables, (*y as u32).to_be_bytes()));
        } else if let Some(tables) = self.tables(row).as_array::<8>() {
            lanes.for_each(|(place, y)| *place = index(tables, y.to_be_bytes()));
        }
    }

    /// Bucket of a mangled key in a row.
    pub(super) fn place(&self, row: usize, mangled: u64) -> usize {
        let mut places = [0; LANES];
        self.places(row, &[mangled], &mut places);
        places[0] as usize
    }
}

/// Index of a bucket: the fields of all words.
#[inline(always)]
fn index<const N: usize>(tables: &[[u32; VALUES]; N], words: [u8; N]) -> u32 {
    let fields = tables.iter().zip(words);
    fields.fold(0, |index, (table, word)| index | table[usize::from(word)])
}

/// The numbers from 0 to 255 in an order drawn from the seed.
fn shuffle(seed: u64, from: u64) -> [u8; VALUES] {
    let mut all = core::array::from_fn(|value| value as u8);
    for k in (1..VALUES).rev() {
        let number = draw(seed, from + (VALUES - 1 - k) as u64) >> 32;
        all.swap(k, ((number * (k as u64 + 1)) >> 32) as usize);
    }
    all
}

impl Mangling {
    fn new(bits: u32, seed: u64) -> Self {
        let mask = u64::MAX >> (64 - bits);
        let odd = [2, 3, 4].map(|i| (draw(seed, i) | 1) & mask);
        Self {
            half: bits / 2,
            mask,
            flip: draw(seed, 1) & mask,
            odd,
            inverse: odd.map(inverse),
        }
    }

    #[inline(always)]
    fn mangle(&self, key: u64) -> u64 {
        let mut y = (key & self.mask) ^ self.flip;
        for odd in self.odd {
            y ^= y >> self.half;
            y = y.wrapping_mul(odd) & self.mask;
        }
        y ^ y >> self.half
    }

    fn unmangle(&self, mangled: u64) -> u64 {
        // A shift by half the bits undoes itself.
        let mut y = mangled ^ mangled >> self.half;
        for inverse in self.inverse.iter().rev() {
            y = y.wrapping_mul(*inverse) & self.mask;
            y ^= y >> self.half;
        }
        y ^ self.flip
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the number of right bits.
fn inverse(odd: u64) -> u64 {
    let step = |x: u64| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
    // An odd number is its own inverse modulo 8.
    (0..5).fold(odd, |x, _| step(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_keys_are_got_back() {
        for seed in 0..1000 {
            for bits in [32, 64] {
                let mangling = Mangling::new(bits, seed);
                for key in [0, 1, mangling.mask, draw(seed, 99) & mangling.mask] {
                    let mangled = mangling.mangle(key);
                    assert!(mangled <= mangling.mask);
                    assert_eq!(mangling.unmangle(mangled), key);
                }
            }
        }
    }

    /// Neighbours in a network share three bytes; mangled, they share a byte as seldom as any two keys.
    #[test]
    fn neighbours_share_no_words() {
        for bits in [32, 64] {
            let words = bits / 8;
            let (mut shared, mut pairs) = (0, 0);
            for seed in 0..300 {
                let mangling = Mangling::new(bits, seed);
                for at in 0..bits {
                    let key = 0xc0a8_0000_0a00_0001;
                    let apart = mangling.mangle(key) ^ mangling.mangle(key ^ 1 << at);
                    let words = apart.to_be_bytes();
                    let words = &words[8 - bits as usize / 8..];
                    shared += words.iter().filter(|word| **word == 0).count();
                    pairs += 1;
                }
            }
            let share = shared as f64 / f64::from(pairs * words);
            assert!((0.5..2.0).contains(&(share * 256.0)), "{bits}: {share}");
        }
    }

    #[test]
    fn every_field_has_equally_many_values() {
        let shape = ReversibleShape::new(64, 7, 21).unwrap();
        let hashing = Hashing::new(shape, 5);
        for (table, field) in hashing.tables(6).iter().zip(&hashing.fields) {
            let mut counts = vec![0; 1 << field.bits];
            for place in table {
                counts[(place >> field.shift) as usize] += 1;
            }
            assert_eq!(counts, vec![VALUES >> field.bits; 1 << field.bits]);
        }
    }
}
