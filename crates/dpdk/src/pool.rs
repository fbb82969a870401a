//! Memory for packets.

use crate::burst::MOST;
use crate::raw;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Mbufs that a thread keeps to use again; the most that DPDK allows.
const CACHE: u32 = 512;

/// Threads at most that keep some: who receives, and who received before.
const CACHES: u32 = 2;

/// Frames that do not fit in an mbuf, one for each bit of a word.
const SLOTS: u32 = 64;

/// Bytes for one of them, in whole cache lines.
const SLOT_LEN: usize = 64 << 10;

/// Mbufs of one owner and slots for large frames, all in one memory area of less than 4 GiB.
#[derive(Debug)]
pub(crate) struct Pool {
    raw: raw::Pool,
    /// Mbufs that bursts may hold; the device has the others.
    lendable: u32,
    /// Mbufs that bursts hold.
    out: AtomicU32,
    /// Slots that are free, a bit each. The owner alone takes them.
    free_slots: AtomicU64,
}

// SAFETY: the memory is DPDK's and tied to no thread; its pools may be used by any number of threads at once (rte_mempool.h).
unsafe impl Send for Pool {}
// SAFETY: as above; what is ours is atomic or does not change.
unsafe impl Sync for Pool {}

/// What a pool is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Mbufs.
    pub(crate) count: u32,
    /// Bytes of a frame that one holds.
    pub(crate) room: u32,
    /// Of them, how many a device may hold.
    pub(crate) device: u32,
    /// Whether large frames are to be put together.
    pub(crate) slots: bool,
    /// NUMA node, or -1.
    pub(crate) socket: c_int,
}

impl Wanted {
    /// Bytes that it will take, about.
    pub(crate) fn bytes(&self) -> usize {
        // Two cache lines of mbuf, one of the pool's own, headroom.
        let slots = if self.slots { SLOTS as usize * SLOT_LEN } else { 0 };
        self.count as usize * (self.room as usize + 384) + slots + (4 << 20)
    }
}

impl Pool {
    /// **Errors**: the negative number of an error.
    pub(crate) fn new(name: &str, wanted: &Wanted) -> Result<Self, c_int> {
        let name = CString::new(name).expect("names of pools are made of letters and digits");
        let mut pool = std::mem::MaybeUninit::<raw::Pool>::uninit();
        let slots = if wanted.slots { SLOTS } else { 0 };
        let Wanted { count, room, socket, .. } = *wanted;
        // SAFETY: the name ends with NUL, and the pool is written to.
        let made = unsafe {
            raw::weir_pool_create(name.as_ptr(), count, CACHE, room, slots, SLOT_LEN, socket, pool.as_mut_ptr())
        };
        if made < 0 {
            return Err(made);
        }
        // SAFETY: it was made, so it was written.
        let raw = unsafe { pool.assume_init() };
        // What caches hold may be out of the device's reach: half again as much as their size (rte_mempool.h).
        let lendable = count.saturating_sub(wanted.device + CACHES * (CACHE + CACHE / 2));
        let pool = Self { raw, lendable, out: AtomicU32::new(0), free_slots: AtomicU64::new(0) };
        pool.free_slots.store(if wanted.slots { u64::MAX } else { 0 }, Ordering::Relaxed);
        // Offsets are of 32 bits, and one value is none.
        if pool.raw.area_len >= u32::MAX as usize { Err(-libc::E2BIG) } else { Ok(pool) }
    }

    /// Mbufs that a pool needs at least so that one burst can be out.
    pub(crate) fn least(device: u32) -> u32 {
        device + CACHES * (CACHE + CACHE / 2) + 2 * MOST as u32
    }

    pub(crate) fn raw(&self) -> *const raw::Pool {
        &raw const self.raw
    }

    /// The largest frame that an mbuf holds, bytes.
    pub(crate) fn room(&self) -> usize {
        self.raw.room as usize
    }

    pub(crate) fn area(&self) -> (*mut u8, usize) {
        (self.raw.area, self.raw.area_len)
    }

    /// Whether a burst may be received: the device keeps what it needs to go on.
    pub(crate) fn can_lend(&self) -> bool {
        self.out.load(Ordering::Relaxed) + MOST as u32 <= self.lendable
    }

    /// Slots that the owner may take.
    pub(crate) fn free_slots(&self) -> u64 {
        self.free_slots.load(Ordering::Acquire)
    }

    /// Notes what a burst holds.
    pub(crate) fn lend(&self, mbufs: u32, slots: u64) {
        self.out.fetch_add(mbufs, Ordering::Relaxed);
        if slots != 0 {
            self.free_slots.fetch_and(!slots, Ordering::Relaxed);
        }
    }

    /// Takes back what a burst held.
    ///
    /// **Cost**: one exchange with the pool's ring for all of them, or none in the thread that receives, which keeps some to
    /// use again; one atomic subtraction.
    ///
    /// # Safety
    /// The mbufs were handed out by `weir_receive` with this pool and are given back once, and nobody reads their frames any
    /// more, nor those of the slots.
    pub(crate) unsafe fn take_back(&self, mbufs: &mut [*mut raw::Mbuf], slots: u64) {
        if !mbufs.is_empty() {
            // SAFETY: by the caller's promise they are this pool's, and free.
            unsafe { raw::weir_give_back(&raw const self.raw, mbufs.as_mut_ptr(), mbufs.len() as u32) };
            self.out.fetch_sub(mbufs.len() as u32, Ordering::Relaxed);
        }
        if slots != 0 {
            self.free_slots.fetch_or(slots, Ordering::Release);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the port was closed before (it holds its pools), and bursts hold the pool too.
        unsafe { raw::weir_pool_free(&raw mut self.raw) };
    }
}
