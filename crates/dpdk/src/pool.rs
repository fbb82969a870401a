//! Memory for packets.

use crate::burst::MOST;
use crate::raw;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of mbufs that a thread keeps for reuse; the largest number that DPDK allows.
const CACHE: u32 = 512;

/// Largest number of threads that keep mbufs: the receiving thread, and the thread that received before.
const CACHES: u32 = 2;

/// Number of slots for frames that do not fit in an mbuf, one for each bit of a word.
const SLOTS: u32 = 64;

/// Size of a slot, bytes, in whole cache lines.
const SLOT_LEN: usize = 64 << 10;

/// Mbufs of one owner, and slots for large frames, all in one memory area of less than 4 GiB.
#[derive(Debug)]
pub(crate) struct Pool {
    raw: raw::Pool,
    /// Number of mbufs that bursts may hold; the device needs the others.
    lendable: u32,
    /// Number of mbufs that bursts hold.
    out: AtomicU32,
    /// Free slots, a bit for each. Only the owner takes slots.
    free_slots: AtomicU64,
}

// SAFETY: the memory is DPDK's and tied to no thread; its pools may be used by any number of threads at once (rte_mempool.h).
unsafe impl Send for Pool {}
// SAFETY: as above; our own fields are atomic or do not change.
unsafe impl Sync for Pool {}

/// Sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Number of mbufs.
    pub(crate) count: u32,
    /// Bytes of a frame that one mbuf holds.
    pub(crate) room: u32,
    /// Number of these mbufs that a device may hold.
    pub(crate) device: u32,
    /// Whether the pool has slots, into which large frames are copied.
    pub(crate) slots: bool,
    /// NUMA node, or -1 for any.
    pub(crate) socket: c_int,
}

impl Wanted {
    /// Approximate memory of the pool, bytes.
    pub(crate) fn bytes(&self) -> usize {
        // Each mbuf: its own two cache lines, one line of the pool, and headroom.
        let slots = if self.slots {
            SLOTS as usize * SLOT_LEN
        } else {
            0
        };
        self.count as usize * (self.room as usize + 384) + slots + (4 << 20)
    }
}

impl Pool {
    /// **Errors**: DPDK's error, as a negative number.
    pub(crate) fn new(name: &str, wanted: &Wanted) -> Result<Self, c_int> {
        let name = CString::new(name).expect("names of pools are made of letters and digits");
        let mut pool = std::mem::MaybeUninit::<raw::Pool>::uninit();
        let slots = if wanted.slots { SLOTS } else { 0 };
        let Wanted {
            count,
            room,
            socket,
            ..
        } = *wanted;
        // SAFETY: the name ends with NUL, and the pool is written to.
        let made = unsafe {
            raw::weir_pool_create(
                name.as_ptr(),
                count,
                CACHE,
                room,
                slots,
                SLOT_LEN,
                socket,
                pool.as_mut_ptr(),
            )
        };
        if made < 0 {
            return Err(made);
        }
        // SAFETY: the call succeeded, so it has written the pool.
        let raw = unsafe { pool.assume_init() };
        // Mbufs in caches may be out of the device's reach: up to half again as many as the cache's size (rte_mempool.h).
        let lendable = count.saturating_sub(wanted.device + CACHES * (CACHE + CACHE / 2));
        let pool = Self {
            raw,
            lendable,
            out: AtomicU32::new(0),
            free_slots: AtomicU64::new(0),
        };
        pool.free_slots
            .store(if wanted.slots { u64::MAX } else { 0 }, Ordering::Relaxed);
        // Offsets have 32 bits, and one value stands for none.
        if pool.raw.area_len >= u32::MAX as usize {
            Err(-libc::E2BIG)
        } else {
            Ok(pool)
        }
    }

    /// Smallest number of mbufs of a pool with which one burst can be out.
    pub(crate) fn least(device: u32) -> u32 {
        device + CACHES * (CACHE + CACHE / 2) + 2 * MOST as u32
    }

    pub(crate) fn raw(&self) -> *const raw::Pool {
        &raw const self.raw
    }

    /// Length of the largest frame that fits in an mbuf, bytes.
    pub(crate) fn room(&self) -> usize {
        self.raw.room as usize
    }

    pub(crate) fn area(&self) -> (*mut u8, usize) {
        (self.raw.area, self.raw.area_len)
    }

    /// Whether a burst may be received, so that the device still has the mbufs that it needs.
    pub(crate) fn can_lend(&self) -> bool {
        self.out.load(Ordering::Relaxed) + MOST as u32 <= self.lendable
    }

    /// Slots that the owner may take, a bit for each.
    pub(crate) fn free_slots(&self) -> u64 {
        self.free_slots.load(Ordering::Acquire)
    }

    /// Records the mbufs and slots that a burst holds.
    pub(crate) fn lend(&self, mbufs: u32, slots: u64) {
        self.out.fetch_add(mbufs, Ordering::Relaxed);
        if slots != 0 {
            self.free_slots.fetch_and(!slots, Ordering::Relaxed);
        }
    }

    /// Takes back the mbufs and slots of a burst.
    ///
    /// **Cost**: one exchange with the pool's ring for all mbufs, or none in the receiving thread, which keeps some for reuse;
    /// one atomic subtraction.
    ///
    /// # Safety
    /// The mbufs were handed out by `weir_receive` with this pool and are given back once. Nothing
    /// reads their frames or the frames of the slots any more.
    pub(crate) unsafe fn take_back(&self, mbufs: &mut [*mut raw::Mbuf], slots: u64) {
        if !mbufs.is_empty() {
            // SAFETY: by the caller's promise they are this pool's, and free.
            unsafe {
                raw::weir_give_back(&raw const self.raw, mbufs.as_mut_ptr(), mbufs.len() as u32)
            };
            self.out.fetch_sub(mbufs.len() as u32, Ordering::Relaxed);
        }
        if slots != 0 {
            self.free_slots.fetch_or(slots, Ordering::Release);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the port has been closed (it holds its pools), and so have all bursts, which hold the pool too.
        unsafe { raw::weir_pool_free(&raw mut self.raw) };
    }
}
