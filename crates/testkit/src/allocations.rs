//! An allocator that counts, for tests of code that is not to allocate: requests of this thread and of the process, bytes held, and the
//! largest number of bytes held at once.
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//! ```
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static ALL: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of requests of the process for memory so far.
pub fn allocations() -> u64 {
    ALL.load(Ordering::Relaxed)
}

/// Returns the number of requests of this thread so far. The test harness has a thread of its own, which allocates now and then.
pub fn own_allocations() -> u64 {
    OWN.get()
}

/// Returns the number of bytes that the process holds.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Returns the largest number of bytes held at once during `work`, minus the bytes held before.
pub fn most_held(work: impl FnOnce()) -> usize {
    let before = held();
    MOST.store(before, Ordering::Relaxed);
    work();
    MOST.load(Ordering::Relaxed) - before
}

fn taken(size: usize) {
    ALL.fetch_add(1, Ordering::Relaxed);
    // A thread that ends may allocate when its counter is gone.
    let _ = OWN.try_with(|count| count.set(count.get() + 1));
    let held = HELD.fetch_add(size, Ordering::Relaxed) + size;
    MOST.fetch_max(held, Ordering::Relaxed);
}

/// The system's allocator, with counts.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged; counting touches no memory but the counters.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promises are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        taken(size);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}
