//! Work that is compiled once more, for newer processors.

/// Work for [`compiled_for_newer`]: its parts must be inlined into [`run`](Self::run), and that into its caller.
pub trait Work {
    /// Result.
    type Output;

    /// Does the work. To be marked `#[inline(always)]`: otherwise it is compiled once.
    fn run(self) -> Self::Output;
}

/// Does work by code for x86-64-v3 (AVX2, BMI, POPCNT) on a processor that has it, otherwise by code for every processor.
///
/// Shifts by a variable number and counts of bits are single instructions there. **Cost**: a look at flags that are in the cache.
///
/// **Source**: System V ABI for x86-64, section 3.1.1, levels of the architecture.
#[inline]
pub fn compiled_for_newer<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2")
            && has!("bmi1")
            && has!("bmi2")
            && has!("lzcnt")
            && has!("movbe")
            && has!("popcnt")
        {
            // SAFETY: the processor has what the function needs.
            return unsafe { by_v3(work) };
        }
    }
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,popcnt")]
fn by_v3<W: Work>(work: W) -> W::Output {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(u64);

    impl Work for Count {
        type Output = u32;

        #[inline(always)]
        fn run(self) -> u32 {
            self.0.count_ones()
        }
    }

    #[test]
    fn both_codes_do_the_same_work() {
        let naive = |word: u64| (0..64).map(|bit| (word >> bit & 1) as u32).sum::<u32>();
        for word in [0, 1, 0xff00_0000_0000_0001, u64::MAX] {
            assert_eq!(
                [compiled_for_newer(Count(word)), Count(word).run()],
                [naive(word); 2]
            );
        }
    }
}
