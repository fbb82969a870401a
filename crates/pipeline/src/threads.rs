//! Threads: starting one may fail, and a panic of one is a fault of the run.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Processors that this process may use: how many worker threads there are unless their number is given.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts thread `number` of kind `kind`. **Errors**: the system has no room for it; the words say what to do.
pub(crate) fn spawn(kind: &str, number: usize, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let made = std::thread::Builder::new().name(format!("{kind} {number}")).spawn(work);
    made.map(drop).map_err(|error| {
        let words = error.to_string();
        let words = words.split(" (os error").next().unwrap_or_default().to_lowercase();
        io::Error::new(
            error.kind(),
            format!(
                "{kind} thread {number} cannot be started ({words}): use fewer --workers, or allow more (ulimit -u, ulimit -v)"
            ),
        )
    })
}

/// The same on one of the processors `cpus`, in turn; on any if there are none.
pub(crate) fn spawn_pinned(
    kind: &str,
    number: usize,
    cpus: &[usize],
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
    spawn(kind, number, move || {
        if let Some(cpu) = cpu {
            // The list was checked when it was given; a processor that went away since is no reason to stop.
            let _ = weir_io::sys::pin(cpu);
        }
        work();
    })
}

/// The result of `work`; `None` if it panicked. The panic's own words are on standard error by then.
///
/// After a panic, whatever `work` changed is only good for saying how far it came.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The result of `work`, which may take minutes and cannot be interrupted; `None` if `stop` was set first.
///
/// It works in a thread of its own, which is left behind if it is stopped: it ends with the process. Where there is a result, that
/// thread is gone. Without a thread it works in the caller's.
pub fn unless_stopped<T: Send + 'static>(
    stop: &AtomicBool,
    work: impl Fn() -> T + Clone + Send + 'static,
) -> Option<T> {
    /// How often `stop` is looked at.
    const LOOK: Duration = Duration::from_millis(50);
    /// As much stack as the main thread has: libpcap's optimizer recurses, see `libpcap::compile`.
    const STACK: usize = 8 << 20;
    let (say, said) = channel();
    let aside = work.clone();
    let thread = std::thread::Builder::new().name("compiler".to_owned()).stack_size(STACK);
    let Ok(thread) = thread.spawn(move || say.send(aside())) else { return Some(work()) };
    // A process that was stopped and goes on finds its time up before its threads had any.
    let mut told = false;
    loop {
        match said.recv_timeout(LOOK) {
            Ok(result) => {
                // Rights that the caller gives up next must not stay with it.
                let _ = thread.join();
                return Some(result);
            }
            Err(RecvTimeoutError::Timeout) if told => return None,
            Err(RecvTimeoutError::Timeout) => told = stop.load(Ordering::Relaxed),
            // It panicked, and will again, for the caller to see.
            Err(RecvTimeoutError::Disconnected) => return Some(work()),
        }
    }
}
