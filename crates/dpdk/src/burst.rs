//! Packets that were received at once.

use crate::pool::Pool;
use crate::raw::{Mbuf, Place, Received};
use std::sync::Arc;

/// Packets of a burst at most.
pub const MOST: usize = 256;

/// Packets where the device put them, given back when they are dropped or [cleared](Self::clear), by any thread.
///
/// **Layout**: all frames of a queue's bursts lie in one memory area of less than 4 GiB.
#[derive(Debug)]
pub struct Burst {
    pool: Arc<Pool>,
    mbufs: Vec<*mut Mbuf>,
    places: Vec<Place>,
    /// What the places are in memory.
    frames: Vec<*const [u8]>,
    slots: u64,
    dropped: u32,
}

// SAFETY: mbufs are memory of DPDK's that is tied to no thread, and those of a burst are its own.
unsafe impl Send for Burst {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for Burst {}

impl Burst {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        let (mbufs, places, frames) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST), Vec::with_capacity(MOST));
        Self { pool: Arc::clone(pool), mbufs, places, frames, slots: 0, dropped: 0 }
    }

    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Packets that came with these and for which there was no room: of more than 64 KiB. Smaller ones that do not fit in an
    /// mbuf wait in the device while the memory for them is out.
    #[inline]
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// The bytes of each frame.
    #[inline]
    pub fn frames(&self) -> &[&[u8]] {
        let (first, len) = (self.frames.as_ptr().cast::<&[u8]>(), self.frames.len());
        // SAFETY: pointer and reference to a slice are laid out alike. The shim found each frame in the pool's area, which lives
        // as long as the pool that this burst holds, in an mbuf or slot that is this burst's until it gives it back; nobody
        // writes there meanwhile.
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// Gives the packets back.
    pub fn clear(&mut self) {
        // SAFETY: `fill` took them from this pool, and they are forgotten here; whoever reads frames borrows the burst.
        unsafe { self.pool.take_back(&mut self.mbufs, self.slots) };
        self.mbufs.clear();
        self.places.clear();
        self.frames.clear();
        (self.slots, self.dropped) = (0, 0);
    }

    /// Fills an empty burst by a call that gets the free slots and room for [`MOST`] mbufs and places.
    ///
    /// # Safety
    /// The call writes what `weir_receive` promises, with this burst's pool.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, receive: impl FnOnce(&Pool, u64, *mut *mut Mbuf, *mut Place, &mut Received)) {
        let mut found = Received::default();
        receive(&self.pool, self.pool.free_slots(), self.mbufs.as_mut_ptr(), self.places.as_mut_ptr(), &mut found);
        // SAFETY: both have room for `MOST`, and by the caller's promise so many were written at most.
        unsafe {
            self.mbufs.set_len(found.mbufs as usize);
            self.places.set_len(found.packets as usize);
        }
        (self.slots, self.dropped) = (found.slots, found.dropped);
        let (area, area_len) = self.pool.area();
        let frame = |&Place { at, len }: &Place| {
            let (at, len) = (at as usize, len as usize);
            assert!(at <= area_len && len <= area_len - at, "a frame lies in its pool's area");
            std::ptr::slice_from_raw_parts(area.wrapping_add(at).cast_const(), len)
        };
        self.frames.extend(self.places.iter().map(frame));
        if !self.places.is_empty() {
            self.pool.lend(found.mbufs, found.slots);
        }
    }

    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.clear();
    }
}
