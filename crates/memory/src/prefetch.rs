//! Asking for memory before it is needed.

/// Has the processor fetch the cache line where `slice[index]` begins, for reading and writing, without waiting for it.
///
/// `index` may lie anywhere: a prefetch never faults. **Platform**: does nothing but on x86-64.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slice.as_ptr().wrapping_add(index);
        // SAFETY: SSE is part of x86-64, and a prefetch of any address has no effect that a program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
