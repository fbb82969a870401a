//! Memory that cannot be had where nobody asked whether it can: a line and exit code 1 instead of an abort.
//!
//! What grows with input or flags is asked for with an error as the answer. The rest is small, and the standard library aborts where
//! it cannot be had. The signal of that abort is taken for what it means: an allocation of the thread that aborts failed, and none as
//! large has succeeded in it since; or there is no room for any allocation. (Between the failure and the abort the standard library may allocate, to print a backtrace.) Any
//! other abort stays one; but an abort for another reason is taken for want of memory too if the thread has dealt with a failed
//! allocation and never had as much again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes of the last allocation of this thread that failed, until one as large succeeds; `usize::MAX` if there is none. A constant
    /// without a destructor, so that the allocator and a signal handler may use it.
    static FAILED: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The system's allocator, which notes for each thread what it could not have.
#[derive(Debug)]
pub struct Allocator;

/// Notes how an allocation of `size` bytes went.
#[inline]
fn noted(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        FAILED.set(size);
    } else if FAILED.get() <= size {
        FAILED.set(usize::MAX);
    }
    memory
}

// SAFETY: each call is forwarded as it is, with what the caller promised for it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as said above.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as said above.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as said above.
        noted(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as said above.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Whether the process can have a little more memory. The C library's own small wants (a destructor of a thread's data) are not asked of
/// [`Allocator`], and end in an abort too.
fn is_room_left() -> bool {
    /// As much as the C library asks the kernel for at least.
    const LITTLE: usize = 132 << 10;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches no other, and is given back; both are system calls, which a handler may make.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), LITTLE, access, kind, -1, 0);
        memory != libc::MAP_FAILED && libc::munmap(memory, LITTLE) == 0
    }
}

/// From now on an abort of a thread that [`Allocator`] could not give what it asked for ends the process with a line and exit code 1.
pub(super) fn bear() {
    extern "C" fn on_abort(_: libc::c_int) {
        const LINE: &[u8] = b"weir: out of memory: a limit (ulimit -v) or the machine leaves no more; the run ends without its account\n";
        // SAFETY: these calls may be made in a handler; the bytes are live.
        unsafe {
            if FAILED.get() != usize::MAX || !is_room_left() {
                libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
                libc::_exit(1);
            }
            // Otherwise it is what it looks like, whoever sent the signal: it ends the process once the handler returns.
            libc::signal(libc::SIGABRT, libc::SIG_DFL);
            libc::raise(libc::SIGABRT);
        }
    }
    // Before a thread's work begins the standard library maps a stack for its signals, and where that fails it panics and aborts.
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let words = panic.payload_as_str().unwrap_or_default();
        if words.starts_with("failed to allocate an alternative stack") {
            FAILED.set(0);
        } else if FAILED.get() != 0 {
            others(panic);
        }
    }));
    // SAFETY: the handler makes only calls that handlers may make.
    unsafe { libc::signal(libc::SIGABRT, on_abort as *const () as libc::sighandler_t) };
}
