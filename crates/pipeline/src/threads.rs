//! Threads: starting one may fail, and a panic of one is a fault of the run.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Processors that this process may use: how many worker threads there are unless their number is given.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The threads of a run that have not ended: those that were started in [`Self::started`], and those that they started.
#[derive(Debug, Default)]
pub struct RunThreads(Mutex<Vec<String>>);

// tidy: allow(global): a thread belongs to one run.
thread_local! {
    /// The threads of the run that this thread belongs to.
    // tidy: allow(global): as above.
    static RUN: RefCell<Option<Arc<RunThreads>>> = const { RefCell::new(None) };
}

impl RunThreads {
    /// Calls `start`; the threads that it starts belong to this run.
    pub fn started<T>(self: &Arc<Self>, start: impl FnOnce() -> T) -> T {
        let before = RUN.replace(Some(Arc::clone(self)));
        let started = start();
        RUN.set(before);
        started
    }

    /// What the threads are called that have not ended.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A thread of a run, from its start to its end.
struct Registration(Arc<RunThreads>, String);

impl Registration {
    /// A thread of the run to which the thread belongs that starts it.
    fn new(name: &str) -> Option<Self> {
        let run = RUN.with_borrow(Option::clone)?;
        run.0.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        Some(Self(run, name.to_owned()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut names = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = names.iter().position(|name| *name == self.1) {
            names.swap_remove(at);
        }
    }
}

/// Work in a thread of the run, which is no longer one when it ends.
fn registered(name: &str, work: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    let registration = Registration::new(name);
    move || {
        RUN.set(registration.as_ref().map(|registration| Arc::clone(&registration.0)));
        let _registration = registration;
        work();
    }
}

/// Starts thread `number` of kind `kind`. **Errors**: the system has no room for it; the words say what to do.
pub fn spawn(kind: &str, number: usize, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let name = format!("{kind} {number}");
    let work = registered(&name, work);
    let made = std::thread::Builder::new().name(name).spawn(work);
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
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
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
    let compile = registered("compiler", move || drop(say.send(aside())));
    let Ok(thread) = thread.spawn(compile) else { return Some(work()) };
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
