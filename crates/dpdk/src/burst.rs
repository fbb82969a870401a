//! Packets received together.

use crate::pool::Pool;
use crate::raw::{Mbuf, Place, Received};
use std::sync::Arc;

/// Largest number of packets in a burst.
pub const MOST: usize = 256;

/// Packets in the memory where the device put them. The packets are given back when the burst is dropped or
/// [cleared](Self::clear), by any thread.
///
/// **Layout**: all frames of a queue's bursts lie in one memory area of less than 4 GiB.
#[derive(Debug)]
pub struct Burst {
    pool: Arc<Pool>,
    mbufs: Vec<*mut Mbuf>,
    places: Vec<Place>,
    /// Addresses of the frames at the places.
    frames: Vec<*const [u8]>,
    slots: u64,
    dropped: u32,
}

// SAFETY: mbufs are memory of DPDK that is tied to no thread, and those of a burst belong to it alone.
unsafe impl Send for Burst {}
// SAFETY: through a shared reference, the burst is only read.
unsafe impl Sync for Burst {}

impl Burst {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        let (mbufs, places, frames) = (
            Vec::with_capacity(MOST),
            Vec::with_capacity(MOST),
            Vec::with_capacity(MOST),
        );
        Self {
            pool: Arc::clone(pool),
            mbufs,
            places,
            frames,
            slots: 0,
            dropped: 0,
        }
    }

    /// Number of packets in the burst.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the burst has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Number of packets that arrived with these and for which there was no room, because they have more than 64 KiB.
    /// Smaller packets that do not fit in an mbuf wait in the device while bursts hold the memory for them.
    #[inline]
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// The bytes of each frame.
    #[inline]
    pub fn frames(&self) -> &[&[u8]] {
        let (first, len) = (self.frames.as_ptr().cast::<&[u8]>(), self.frames.len());
        // SAFETY: pointer and reference to a slice have the same layout. The shim found each frame
        // in the pool's area, which lives as long as the pool that this burst holds. The frame is
        // in an mbuf or slot that belongs to this burst until given back, and nothing writes there
        // in the meantime.
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// Gives the packets back.
    pub fn clear(&mut self) {
        // SAFETY: `fill` took them from this pool, and they are forgotten here; readers of frames borrow the burst.
        unsafe { self.pool.take_back(&mut self.mbufs, self.slots) };
        self.mbufs.clear();
        self.places.clear();
        self.frames.clear();
        (self.slots, self.dropped) = (0, 0);
    }

    /// Fills an empty burst by a call of `receive`, which gets the free slots, and room for [`MOST`] mbufs and places.
    ///
    /// # Safety
    /// The call writes what `weir_receive` promises, with this burst's pool.
    #[inline]
    pub(crate) unsafe fn fill(
        &mut self,
        receive: impl FnOnce(&Pool, u64, *mut *mut Mbuf, *mut Place, &mut Received),
    ) {
        let mut found = Received::default();
        receive(
            &self.pool,
            self.pool.free_slots(),
            self.mbufs.as_mut_ptr(),
            self.places.as_mut_ptr(),
            &mut found,
        );
        // SAFETY: both have room for `MOST` elements, and by the caller's promise at most that many were written.
        unsafe {
            self.mbufs.set_len(found.mbufs as usize);
            self.places.set_len(found.packets as usize);
        }
        (self.slots, self.dropped) = (found.slots, found.dropped);
        let (area, area_len) = self.pool.area();
        let frame = |&Place { at, len }: &Place| {
            let (at, len) = (at as usize, len as usize);
            assert!(
                at <= area_len && len <= area_len - at,
                "a frame lies in its pool's area"
            );
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
