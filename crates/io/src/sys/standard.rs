//! Standard output as the process was given it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard output was closed when the process began. Rust's runtime opens /dev/null in its place before `main`, and from then
/// on nothing tells that from a standard output that was meant to be /dev/null.
static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: fcntl takes no pointer here, and a descriptor that is not open is an answer.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the C runtime calls each function of this section once, before `main` and Rust's runtime, of which `look` uses
// nothing. It may pass arguments: a function of the C convention ignores those that it does not have.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// **Errors**: standard output was closed when the process began, so what is written to it would be lost.
pub fn check_output() -> io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) { Err(io::Error::other("it is closed")) } else { Ok(()) }
}
