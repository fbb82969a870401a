//! Prefetch: loads memory into the cache before it is needed.

/// Starts to fetch the cache line of `slice[index]` into the cache, for reading and writing, without waiting for it.
///
/// `index` may have any value, because a prefetch never faults. **Platform**: no effect except on x86-64.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slice.as_ptr().wrapping_add(index);
        // SAFETY: SSE is part of x86-64, and a prefetch of any address has no effect visible to a program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// Starts to fetch all cache lines of `slice[index]`; [`prefetch`] fetches the first.
#[inline(always)]
pub fn prefetch_all<T>(slice: &[T], index: usize) {
    const LINE: usize = 64;
    for line in 0..size_of::<T>().div_ceil(LINE) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = slice
                .as_ptr()
                .wrapping_add(index)
                .wrapping_byte_add(line * LINE);
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (slice, index, line);
    }
}
