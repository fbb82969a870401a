//! Packets that were received at once.

use crate::pool::Pool;
use crate::raw::{Mbuf, Place, Received};
use std::sync::Arc;

/// Packets of a burst at most.
pub const MOST: usize = 256;

/// Bytes in front of each frame that the owner of a burst may use. They begin at a cache line, so they share it with the
/// frame's first 48 bytes, unless the device or a VLAN tag that was put back moved the frame.
pub const BEFORE: usize = 16;

/// Packets where the device put them, given back when they are dropped or [cleared](Self::clear), by any thread.
///
/// **Layout**: all frames of a queue's bursts lie in one memory area of less than 4 GiB.
#[derive(Debug)]
pub struct Burst {
    pool: Arc<Pool>,
    mbufs: Vec<*mut Mbuf>,
    places: Vec<Place>,
    slots: u64,
    dropped: u32,
}

// SAFETY: mbufs are memory of DPDK's that is tied to no thread, and those of a burst are its own.
unsafe impl Send for Burst {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for Burst {}

impl Burst {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        let (mbufs, places) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST));
        Self { pool: Arc::clone(pool), mbufs, places, slots: 0, dropped: 0 }
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

    /// Where in the area frame `i` begins, and its length, both in bytes.
    #[inline]
    pub fn place(&self, i: usize) -> (u32, u32) {
        let Place { at, len } = self.places[i];
        (at, len)
    }

    /// The bytes of frame `i`.
    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        let (at, len) = self.place(i);
        let (area, _) = self.pool.area();
        // SAFETY: the shim found the frame in the area, in an mbuf or slot that is this burst's until it gives it back; nobody
        // else writes there, and we do so only with `&mut self`.
        unsafe { std::slice::from_raw_parts(area.add(at as usize), len as usize) }
    }

    /// Writes the [`BEFORE`] bytes in front of frame `i`.
    #[inline]
    pub fn write_before(&mut self, i: usize, bytes: [u8; BEFORE]) {
        let (at, _) = self.place(i);
        let (area, _) = self.pool.area();
        // SAFETY: the shim hands over only frames with so many bytes of their own mbuf or slot in front of them, and they are
        // this burst's.
        unsafe { area.add(at as usize - BEFORE).cast::<[u8; BEFORE]>().write_unaligned(bytes) };
    }

    /// The memory area that the frames lie in, this burst's and those of others.
    ///
    /// Only what is this burst's may be read through it, the frames and what was written before them: the rest belongs to
    /// the device and to other bursts, which write to it at any time.
    pub fn area(&self) -> &[u8] {
        let (area, len) = self.pool.area();
        // SAFETY: the area is mapped and was zeroed when it was mapped; it lives as long as the pool, which this burst holds.
        // What others write is not read through the slice, by the rule above.
        unsafe { std::slice::from_raw_parts(area, len) }
    }

    /// Gives the packets back.
    pub fn clear(&mut self) {
        // SAFETY: `fill` took them from this pool, and they are forgotten here; whoever reads frames borrows the burst.
        unsafe { self.pool.take_back(&mut self.mbufs, self.slots) };
        self.mbufs.clear();
        self.places.clear();
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
