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
pub struct Crew(Mutex<Vec<String>>);

// tidy: allow(global): a thread belongs to one run.
thread_local! {
    /// The crew that this thread belongs to.
    // tidy: allow(global): as above.
    static CREW: RefCell<Option<Arc<Crew>>> = const { RefCell::new(None) };
}

impl Crew {
    /// Calls `start`; the threads that it starts belong to this crew.
    pub fn started<T>(self: &Arc<Self>, start: impl FnOnce() -> T) -> T {
        let before = CREW.replace(Some(Arc::clone(self)));
        let started = start();
        CREW.set(before);
        started
    }

    /// What the threads are called that have not ended.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A thread's place in its crew, from its start to its end.
struct Member(Arc<Crew>, String);

impl Member {
    /// A place in the crew of the thread that starts this one.
    fn new(name: &str) -> Option<Self> {
        let crew = CREW.with_borrow(Option::clone)?;
        crew.0.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        Some(Self(crew, name.to_owned()))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut names = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = names.iter().position(|name| *name == self.1) {
            names.swap_remove(at);
        }
    }
}

/// Work that notes in the crew when it ends.
fn as_member(name: &str, work: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    let member = Member::new(name);
    move || {
        CREW.set(member.as_ref().map(|member| Arc::clone(&member.0)));
        let _member = member;
        work();
    }
}

/// Starts thread `number` of kind `kind`. **Errors**: the system has no room for it; the words say what to do.
pub fn spawn(kind: &str, number: usize, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let name = format!("{kind} {number}");
    let work = as_member(&name, work);
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
    let compile = as_member("compiler", move || drop(say.send(aside())));
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
