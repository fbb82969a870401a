//! A comparison of 16 bytes at once, which the compiler does not generate by itself.

/// Mask with bit i set if byte i equals `wanted`.
///
/// **Cost**: a few instructions without a branch.
#[inline(always)]
pub fn equal(bytes: &[u8; 16], wanted: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        // SAFETY: SSE2 is part of x86-64; the slice has the 16 bytes, and the load needs no alignment.
        let mask = unsafe {
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted.cast_signed())))
        };
        mask.cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    one_by_one(bytes, wanted)
}

/// The same mask on every machine: the portable twin of [`equal`].
#[cfg(any(test, not(target_arch = "x86_64")))]
fn one_by_one(bytes: &[u8; 16], wanted: u8) -> u32 {
    bytes
        .iter()
        .enumerate()
        .map(|(i, byte)| u32::from(*byte == wanted) << i)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_as_one_by_one() {
        let (mut state, few) = (1u64, [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff]);
        for _ in 0..if cfg!(miri) { 20 } else { 5000 } {
            let bytes: [u8; 16] = core::array::from_fn(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                few[(state >> 61) as usize]
            });
            for wanted in few.into_iter().chain([3]) {
                assert_eq!(
                    equal(&bytes, wanted),
                    one_by_one(&bytes, wanted),
                    "{wanted} in {bytes:?}"
                );
            }
        }
        assert_eq!(
            equal(&[9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 9], 9),
            0x8101
        );
    }
}
