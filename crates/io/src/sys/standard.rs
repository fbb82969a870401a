//! State of standard output at the start of the process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output was closed when the process began. Rust's runtime opens /dev/null in its place before `main`. After
/// that, a closed standard output cannot be distinguished from an intended /dev/null.
static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: fcntl takes no pointer here, and for a closed descriptor it returns an error.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Ordering::Relaxed);
}

// SAFETY: the C runtime calls each function of this section once, before `main` and Rust's runtime; `look` uses nothing of that
// runtime. The C runtime may pass arguments: a function of the C convention ignores arguments that it does not declare.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Checks that standard output can be written to. **Errors**: standard output was closed when the process began, so that
/// written bytes would be lost.
pub fn check_output() -> io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) {
        Err(io::Error::other("it is closed"))
    } else {
        Ok(())
    }
}
