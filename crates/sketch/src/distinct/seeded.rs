//! The estimator whose results are shown: HyperLogLog over seeded hashes, and the set of hashes itself while it is small.
//!
//! ```text
//! x = mix(hash)            i = upper 14 bits of x             r = 1 + leading zeros of the other 50, 51 if all are zero
//! register[i] = max(register[i], r)
//! while at most 49 152 are known: the set of all x
//! ```
//!
//! **The estimate** is the size of the set while there is one. Beyond, the improved raw estimator of Ertl is used, which has no
//! ranges to switch between and no tables of bias. With c[r] registers of value r, m registers and q = 50:
//!
//! ```text
//! z = m tau(1 - c[q + 1] / m);  for r = q ... 1: z = (z + c[r]) / 2;  z = z + m sigma(c[0] / m)
//! estimate = m^2 / (2 ln 2 z)
//! sigma(x) = x + sum over k >= 1 of x^(2^k) 2^(k - 1)
//! tau(x) = (1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 2^-k) / 3
//! ```
//!
//! **The set** has 2^11, then 2^14, then 2^16 slots, at most three quarters of them in use. It moves when half of a smaller one is
//! in use, so that a count of few keys touches, and clears, little memory. Beyond the last size nothing looks at it.
//!
//! **The error** has a standard deviation of 1.04 / sqrt(m) = 0.81 % of the truth, less below m keys. The probability that two
//! of 49 152 hashes of 64 bits are equal is 2^-34.
//!
//! **Merge**: the union of the sets, and the maxima of the registers. The result equals one estimator of both streams,
//! because a union has more hashes than fit if a part has.
//!
//! **Why mix.** Hashes of the two directions of one conversation differ by the same number in all conversations. Both hashes are
//! uniform, but an estimator needs more than pairwise independence. `mix`, a permutation without such structure, separates them.
//!
//! **Source**: Flajolet et al., "HyperLogLog" (2007); Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
//! (2017), section 2.4, algorithm 6.

use weir_memory::{Request, Table};

use crate::{Error, mix};

/// Base-2 logarithm of the number of registers.
const LG_M: u32 = 14;
const M: usize = 1 << LG_M;
/// Bits of a hash whose leading zeros are counted for a register.
const Q: u32 = u64::BITS - LG_M;
/// Largest size of the set of hashes.
const FEW: usize = SIZES[SIZES.len() - 1] / 4 * 3;
/// Numbers of slots that the set has in turn.
const SIZES: [usize; 3] = [1 << 11, 1 << 14, 1 << 16];
/// Slots of all sizes.
const SLOTS: usize = SIZES[0] + SIZES[1] + SIZES[2];
/// Two standard errors.
const TWO_ERRORS: f64 = 2.0 * 1.04 / (1u64 << (LG_M / 2)) as f64;

pub(super) struct Seeded {
    registers: Table<u8>,
    /// The slots of all sizes, one after another. Open addressing by the low bits; zero is a free slot.
    few: Table<u64>,
    /// Size that is in use: an index of [`SIZES`].
    size: usize,
    /// Number of hashes in the set; more than [`FEW`] if the set is full and others came.
    known: usize,
}

impl Seeded {
    pub(super) fn new(request: &Request) -> Result<Self, Error> {
        Ok(Self {
            registers: Table::zeroed(M, request)?,
            few: Table::zeroed(SLOTS, request)?,
            size: 0,
            known: 0,
        })
    }

    /// Counts a hash, unless it was counted before.
    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        let mixed = mix(hash);
        let rank = 1 + (mixed << LG_M | 1 << (LG_M - 1)).leading_zeros();
        let register = &mut self.registers[(mixed >> Q) as usize];
        *register = (*register).max(rank as u8);
        if self.known <= FEW {
            self.know(mixed);
        }
    }

    /// Puts a mixed hash into the set, if there is room.
    fn know(&mut self, mixed: u64) {
        // Zero is a free slot. The mixed hashes 0 and 1 are taken for one, which is as likely as any other collision.
        let mixed = mixed.max(1);
        let Some(free) = free_slot(&mut self.few[slots(self.size)], mixed) else {
            return;
        };
        self.known += 1;
        if self.known <= FEW {
            *free = mixed;
        }
        if self.known == SIZES[self.size] / 2 && self.size + 1 < SIZES.len() {
            self.grow();
        }
    }

    /// Moves the set to the next size. Clears the slots that it had.
    #[cold]
    fn grow(&mut self) {
        let (from, to) = (slots(self.size), slots(self.size + 1));
        let (old, new) = self.few.split_at_mut(to.start);
        let new = &mut new[..to.len()];
        for mixed in old[from].iter_mut().map(core::mem::take) {
            if mixed != 0
                && let Some(free) = free_slot(new, mixed)
            {
                *free = mixed;
            }
        }
        self.size += 1;
    }

    pub(super) fn estimate(&self) -> f64 {
        if self.known <= FEW {
            self.known as f64
        } else {
            estimate(&self.registers)
        }
    }

    /// The estimate minus and plus two standard errors.
    pub(super) fn range(&self) -> (f64, f64) {
        let value = self.estimate();
        if self.known <= FEW {
            return (value, value);
        }
        (value * (1.0 - TWO_ERRORS), value * (1.0 + TWO_ERRORS))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.registers) + size_of_val(&*self.few)
    }

    pub(super) fn clear(&mut self) {
        self.registers.fill(0);
        self.few[slots(self.size)].fill(0);
        self.size = 0;
        self.known = 0;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers.iter()) {
            *mine = (*mine).max(*theirs);
        }
        let theirs = &other.few[slots(other.size)];
        for mixed in theirs.iter().filter(|mixed| **mixed != 0) {
            if self.known <= FEW {
                self.know(*mixed);
            }
        }
        self.known = self
            .known
            .max(if other.known > FEW { other.known } else { 0 });
    }
}

/// The slots of a size.
fn slots(size: usize) -> core::ops::Range<usize> {
    let before: usize = SIZES[..size].iter().sum();
    before..before + SIZES[size]
}

/// The free slot for a mixed hash; `None` if the set has the hash. At least one slot must be free.
#[inline]
fn free_slot(slots: &mut [u64], mixed: u64) -> Option<&mut u64> {
    let mut at = mixed as usize % slots.len();
    while slots[at] != 0 {
        if slots[at] == mixed {
            return None;
        }
        at = (at + 1) % slots.len();
    }
    Some(&mut slots[at])
}

/// Estimates the number of different hashes that filled these registers.
fn estimate(registers: &[u8]) -> f64 {
    let mut counts = [0u32; Q as usize + 2];
    for register in registers {
        counts[usize::from(*register)] += 1;
    }
    let m = M as f64;
    let [none, ranks @ .., last] = counts.map(f64::from);
    let mut z = m * tau(1.0 - last / m);
    for count in ranks.iter().rev() {
        z = 0.5 * (z + count);
    }
    z += m * sigma(none / m);
    m * m / (2.0 * core::f64::consts::LN_2 * z)
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power *= 2.0;
        if sum == before {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut power, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * power;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_holds_the_longest_run_of_zeros() {
        let mut seeded = Seeded::new(&Request::default()).expect("memory");
        // Inverts `mix`, so that a test can choose the value that a register receives.
        let unmix = |x: u64| {
            let x = (x ^ x >> 31 ^ x >> 62).wrapping_mul(0x3196_42b2_d24d_8ec3);
            let x = (x ^ x >> 27 ^ x >> 54).wrapping_mul(0x96de_1b17_3f11_9089);
            x ^ x >> 30 ^ x >> 60
        };
        for (mixed, at, rank) in [
            (u64::MAX, M - 1, 1),
            (0x0007_ffff_ffff_ffff, 1, 1),
            (0x0005_ffff_ffff_ffff, 1, 2),
            (0x0004_0000_0000_0001, 1, 50),
            (0x0004_0000_0000_0000, 1, 51),
            (0x0006_0000_0000_0000, 1, 51),
            (0, 0, 51),
        ] {
            assert_eq!(mix(unmix(mixed)), mixed);
            seeded.add(unmix(mixed));
            assert_eq!(seeded.registers[at], rank, "{mixed:#x}");
        }
    }

    /// The estimate of full registers is finite, and the estimate of empty registers is zero.
    #[test]
    fn the_ends_of_the_estimator() {
        assert_eq!(estimate(&[0; M]), 0.0);
        assert!(estimate(&[Q as u8 + 1; M]).is_infinite());
        let mut one = [0; M];
        one[7] = 3;
        assert!((estimate(&one) - 1.0).abs() < 1e-3);
    }
}
