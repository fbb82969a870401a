//! Handling of failed allocations outside error paths: one line and exit code 1 instead of an abort.
//!
//! Memory that grows with input or flags is allocated with an error as the possible result. All other allocations are small,
//! and if one fails, the standard library aborts. The handler of SIGABRT treats an abort as lack of memory in two cases. In the
//! first, an allocation of the aborting thread failed, and none as large has succeeded in the thread since. (Between the
//! failure and the abort, the standard library may allocate, to print a backtrace.) In the second, no room is left for any
//! allocation.
//!
//! Any other abort stays an abort. One case is misjudged: a thread has handled a failed allocation, never allocated as much
//! again, and aborts for another reason.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes of the last failed allocation of this thread, until one as large succeeds; `usize::MAX` if there is none;
    /// [`NO_SIGNAL_STACK`]. The initial value is a constant and the type has no destructor, so that the allocator and a signal
    /// handler may use it.
    static FAILED: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Mark of a thread that has no stack for its signals: the standard library will abort, whatever is
/// allocated in the meantime.
const NO_SIGNAL_STACK: usize = 0;

/// The system's allocator, which also records the last failed allocation of each thread.
#[derive(Debug)]
pub struct Allocator;

/// Records the result of an allocation of `size` bytes, and returns its memory.
#[inline]
fn noted(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        FAILED.set(size);
    } else if FAILED.get() <= size && FAILED.get() != NO_SIGNAL_STACK {
        FAILED.set(usize::MAX);
    }
    memory
}

// SAFETY: each call is forwarded unchanged, and so is the caller's promise.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        noted(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Returns whether a little more memory is available. Small allocations of the C library itself (a
/// destructor of a thread's data) bypass [`Allocator`], and their failure also ends in an abort.
fn is_room_left() -> bool {
    /// Least amount that the C library requests from the kernel.
    const LITTLE: usize = 132 << 10;
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: the new mapping touches no other and is unmapped again; both are system calls that a handler may make.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), LITTLE, access, kind, -1, 0);
        memory != libc::MAP_FAILED && libc::munmap(memory, LITTLE) == 0
    }
}

/// Installs the handler: from now on, an abort after a failed allocation ends the process with one line and exit code 1.
pub(super) fn bear() {
    extern "C" fn on_abort(_: libc::c_int) {
        const LINE: &[u8] = b"weir: out of memory: a limit (ulimit -v) or the machine leaves no more; the run ends without its account\n";
        // The line belongs below the shell's, not on a screen that is about to go.
        super::terminal::give_back();
        // SAFETY: these calls may be made in a handler; the bytes are live.
        unsafe {
            if FAILED.get() != usize::MAX || !is_room_left() {
                libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
                libc::_exit(1);
            }
            // Otherwise the abort has another reason: it ends the process after the handler returns.
            libc::signal(libc::SIGABRT, libc::SIG_DFL);
            libc::raise(libc::SIGABRT);
        }
    }
    // Before a thread's work begins, the standard library maps a stack for its signals; if this fails, it panics and aborts.
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let words = panic.payload_as_str().unwrap_or_default();
        if words.starts_with("failed to allocate an alternative stack") {
            FAILED.set(NO_SIGNAL_STACK);
        } else if FAILED.get() != NO_SIGNAL_STACK {
            others(panic);
        }
    }));
    // SAFETY: the handler makes only calls that handlers may make.
    unsafe { libc::signal(libc::SIGABRT, on_abort as *const () as libc::sighandler_t) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_forgotten_once_as_much_is_had_but_a_missing_signal_stack_never() {
        let mut byte = 0;
        let (some, none) = (&raw mut byte, std::ptr::null_mut());
        let after = |results: &[(*mut u8, usize)]| {
            for &(memory, size) in results {
                assert_eq!(noted(memory, size), memory);
            }
            FAILED.get()
        };
        assert_eq!(after(&[(none, 100), (some, 99)]), 100);
        assert_eq!(after(&[(some, 100)]), usize::MAX);
        FAILED.set(NO_SIGNAL_STACK);
        assert_eq!(after(&[(some, 1), (some, 1 << 20)]), NO_SIGNAL_STACK);
        FAILED.set(usize::MAX);
    }
}
