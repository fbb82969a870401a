//! Memory that cannot be had where nobody asked whether it can: a line and exit code 1 instead of an abort.
//!
//! What grows with input or flags is asked for with an error as the answer. The rest is small, and the standard library aborts where
//! it cannot be had. The signal of that abort is taken for what it means; any other abort stays one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// An allocation failed.
static FAILED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, which notes when it has nothing left.
#[derive(Debug)]
pub struct Allocator;

fn noted(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        FAILED.store(true, Ordering::Relaxed);
    }
    memory
}

// SAFETY: each call is forwarded as it is, with what the caller promised for it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as said above.
        noted(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as said above.
        noted(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as said above.
        noted(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as said above.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// From now on an abort behind an allocation of [`Allocator`] that failed ends the process with a line and exit code 1.
pub(super) fn bear() {
    extern "C" fn on_abort(_: libc::c_int) {
        const LINE: &[u8] = b"weir: out of memory: a limit (ulimit -v) or the machine leaves no more; the run ends without its account\n";
        // Otherwise it is what it looks like: on return `abort` ends the process as usual.
        if FAILED.load(Ordering::Relaxed) {
            // SAFETY: both calls may be made in a handler; the bytes are live.
            unsafe {
                libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
                libc::_exit(1);
            }
        }
    }
    // SAFETY: the handler makes only calls that handlers may make.
    unsafe { libc::signal(libc::SIGABRT, on_abort as *const () as libc::sighandler_t) };
}
