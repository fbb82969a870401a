//! The rings that an AF_XDP socket and the kernel share: numbers that go one way, each side with an index of its own.
//!
//! **Source**: linux/if_xdp.h, Documentation/networking/af_xdp.rst.

use super::socket::Xsk;
use crate::sys::option::{get_option, set_option};
use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Which of a socket's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Fill,
    Completion,
    Receive,
    Transmit,
}

/// A ring's memory, with entries of type `T`.
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

// SAFETY: the mapping is owned memory, not tied to a thread; the indices in it are accessed by atomics, and which entries
// are whose they decide.
unsafe impl<T: Send> Send for Raw<T> {}

impl<T> Raw<T> {
    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the offset is one that the kernel gave for this ring, so it lies in the mapping and is aligned; kernel and
        // we access it as one word.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        self.base.wrapping_add(self.entries + (index & self.mask) as usize * size_of::<T>()).cast()
    }

    /// `entries` is a power of two.
    fn new(socket: &Xsk, which: Which, entries: u32) -> io::Result<Self> {
        assert!(entries.is_power_of_two());
        let offsets: libc::xdp_mmap_offsets = get_option(socket.fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let (option, page, offset, width) = match which {
            Which::Fill => (libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, 8),
            Which::Completion => (libc::XDP_UMEM_COMPLETION_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, 8),
            Which::Receive => (libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING as u64, offsets.rx, 16),
            Which::Transmit => (libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING as u64, offsets.tx, 16),
        };
        assert_eq!(width, size_of::<T>(), "entries of this ring");
        set_option(socket.fd(), libc::SOL_XDP, option, &(entries as c_int))?;
        let len = offset.desc as usize + entries as usize * width;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
            libc::mmap(std::ptr::null_mut(), len, access, shared, socket.fd().as_raw_fd(), page as libc::off_t)
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
        // SAFETY: mapped by `new` with this length; nobody borrows from it longer than `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Entries from index `older` up to `newer`, of which one is the kernel's: whatever that is, no more than a ring has.
pub(super) fn between(newer: u32, older: u32, size: u32) -> u32 {
    newer.wrapping_sub(older).min(size)
}

/// Our end of a ring that we fill.
#[derive(Debug)]
pub(super) struct Producer<T> {
    raw: Raw<T>,
    next: u32,
    taken: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn new(socket: &Xsk, which: Which, entries: u32) -> io::Result<Self> {
        Ok(Self { raw: Raw::new(socket, which, entries)?, next: 0, taken: 0 })
    }

    /// Entries that there is room for, at least: the kernel's index is looked at when there seems to be none.
    fn room(&mut self) -> u32 {
        let size = self.raw.mask + 1;
        if between(self.next, self.taken, size) == size {
            self.taken = self.raw.index(self.raw.consumer).load(Ordering::Acquire);
        }
        size - between(self.next, self.taken, size)
    }

    /// Writes the next entry. The kernel sees it after [`Self::publish`]. `false` where there is no [room](Self::room).
    #[must_use]
    pub(super) fn put(&mut self, value: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: in the mapping, and aligned, since the kernel places entries at multiples of a cache line; the consumer has
        // passed the entry and will not read it before it is published.
        unsafe { self.raw.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel what was put.
    pub(super) fn publish(&mut self) {
        self.raw.index(self.raw.producer).store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has not taken.
    pub(super) fn waiting(&mut self) -> u32 {
        self.taken = self.raw.index(self.raw.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.taken)
    }

    /// Whether the kernel looks at the ring only when it is told to.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.raw.index(self.raw.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Our end of a ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    raw: Raw<T>,
    next: u32,
    put: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn new(socket: &Xsk, which: Which, entries: u32) -> io::Result<Self> {
        Ok(Self { raw: Raw::new(socket, which, entries)?, next: 0, put: 0 })
    }

    /// Entries to be taken, at least: more may have come since the last look, if there were any then.
    pub(super) fn available(&mut self) -> u32 {
        if self.put == self.next {
            self.put = self.raw.index(self.raw.producer).load(Ordering::Acquire);
        }
        between(self.put, self.next, self.raw.mask + 1)
    }

    /// The entry `ahead` of the next one, which is [available](Self::available).
    pub(super) fn peek(&self, ahead: u32) -> T {
        assert!(ahead < self.put.wrapping_sub(self.next), "an entry of the ring");
        // SAFETY: in the mapping and aligned, as for `Producer::put`; the kernel wrote it before it published the index,
        // which was read with Acquire, and will not write it before it is released. `T` is integers.
        unsafe { self.raw.entry(self.next.wrapping_add(ahead)).read() }
    }

    /// Gives the kernel back the next `count` entries.
    pub(super) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        self.raw.index(self.raw.consumer).store(self.next, Ordering::Release);
    }
}
