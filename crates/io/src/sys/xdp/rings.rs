//! Rings that an AF_XDP socket and the kernel share: entries go one way, and each side has an index of its own.
//!
//! **Source**: linux/if_xdp.h, Documentation/networking/af_xdp.rst.

use super::socket::Xsk;
use crate::sys::option::{get_option, set_option};
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Kind of a socket's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Fill,
    Completion,
    Receive,
    Transmit,
}

/// Memory of a ring, with entries of type `T`.
#[derive(Debug)]
struct Raw<T> {
    base: *mut u8,
    len: usize,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    kind: PhantomData<T>,
}

// SAFETY: the mapping is owned memory, not tied to a thread. Its indices are accessed by atomics, and they determine which side
// owns each entry.
unsafe impl<T: Send> Send for Raw<T> {}

impl<T> Raw<T> {
    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset for this ring, so it lies in the mapping and is aligned; the kernel and this
        // process access it as one word.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        self.base
            .wrapping_add(self.entries + (index & self.mask) as usize * size_of::<T>())
            .cast()
    }

    /// Creates and maps a ring of `entries` entries, a power of two.
    fn new(socket: &Xsk, which: Which, entries: u32) -> io::Result<Self> {
        assert!(entries.is_power_of_two());
        let offsets: libc::xdp_mmap_offsets =
            get_option(socket.fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let (option, page, offset, width) = match which {
            Which::Fill => (
                libc::XDP_UMEM_FILL_RING,
                libc::XDP_UMEM_PGOFF_FILL_RING,
                offsets.fr,
                8,
            ),
            Which::Completion => (
                libc::XDP_UMEM_COMPLETION_RING,
                libc::XDP_UMEM_PGOFF_COMPLETION_RING,
                offsets.cr,
                8,
            ),
            Which::Receive => (
                libc::XDP_RX_RING,
                libc::XDP_PGOFF_RX_RING as u64,
                offsets.rx,
                16,
            ),
            Which::Transmit => (
                libc::XDP_TX_RING,
                libc::XDP_PGOFF_TX_RING as u64,
                offsets.tx,
                16,
            ),
        };
        assert_eq!(width, size_of::<T>(), "entries of this ring");
        set_option(socket.fd(), libc::SOL_XDP, option, &(entries as c_int))?;
        let len = offset.desc as usize + entries as usize * width;
        // SAFETY: the kernel chooses the address of the mapping, so it touches no existing memory.
        let base = unsafe {
            let (access, shared) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
            );
            libc::mmap(
                std::ptr::null_mut(),
                len,
                access,
                shared,
                socket.fd().as_raw_fd(),
                page as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            len,
            producer: offset.producer as usize,
            consumer: offset.consumer as usize,
            flags: offset.flags as usize,
            entries: offset.desc as usize,
            mask: entries - 1,
            kind: PhantomData,
        })
    }
}

impl<T> Drop for Raw<T> {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the memory with this length; no borrow of it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Returns the number of entries from index `older` up to `newer`. One index is the kernel's, so the result is limited to the
/// size of the ring.
pub(super) fn between(newer: u32, older: u32, size: u32) -> u32 {
    newer.wrapping_sub(older).min(size)
}

/// Process's end of a ring that the process fills.
#[derive(Debug)]
pub(super) struct Producer<T> {
    raw: Raw<T>,
    next: u32,
    taken: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(socket: &Xsk, which: Which, entries: u32) -> io::Result<Self> {
        Ok(Self {
            raw: Raw::new(socket, which, entries)?,
            next: 0,
            taken: 0,
        })
    }

    /// Returns a lower bound of the free entries; the kernel's index is read only if there seems to be no room.
    fn room(&mut self) -> u32 {
        let size = self.raw.mask + 1;
        if between(self.next, self.taken, size) == size {
            self.taken = self.raw.index(self.raw.consumer).load(Ordering::Acquire);
        }
        size - between(self.next, self.taken, size)
    }

    /// Writes the next entry, which the kernel sees after [`Self::publish`]; `false` if there is no [room](Self::room).
    #[must_use]
    pub(super) fn put(&mut self, value: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the entry is in the mapping, and aligned because the kernel places entries at multiples of a cache line. The
        // consumer has passed the entry and will not read it before it is published.
        unsafe { self.raw.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Makes the written entries visible to the kernel.
    pub(super) fn publish(&mut self) {
        self.raw
            .index(self.raw.producer)
            .store(self.next, Ordering::Release);
    }

    /// Returns the number of entries that the kernel has not taken yet.
    pub(super) fn waiting(&mut self) -> u32 {
        self.taken = self.raw.index(self.raw.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.taken)
    }

    /// Returns whether the kernel reads the ring only after a wakeup.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.raw.index(self.raw.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Process's end of a ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    raw: Raw<T>,
    next: u32,
    put: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(socket: &Xsk, which: Which, entries: u32) -> io::Result<Self> {
        Ok(Self {
            raw: Raw::new(socket, which, entries)?,
            next: 0,
            put: 0,
        })
    }

    /// Returns a lower bound of the entries to take; the kernel's index is read only if there seem to be none.
    pub(super) fn available(&mut self) -> u32 {
        if self.put == self.next {
            self.put = self.raw.index(self.raw.producer).load(Ordering::Acquire);
        }
        between(self.put, self.next, self.raw.mask + 1)
    }

    /// Returns the entry `ahead` places after the next entry. The entry must be
    /// [available](Self::available).
    pub(super) fn peek(&self, ahead: u32) -> T {
        assert!(
            ahead < self.put.wrapping_sub(self.next),
            "an entry of the ring"
        );
        // SAFETY: the entry is in the mapping and aligned, as for `Producer::put`. The kernel wrote it before it published the
        // index, which was read with Acquire, and will not write it before it is released. `T` consists of integers.
        unsafe { self.raw.entry(self.next.wrapping_add(ahead)).read() }
    }

    /// Gives the next `count` entries back to the kernel.
    pub(super) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.raw
            .index(self.raw.consumer)
            .store(self.next, Ordering::Release);
    }
}
