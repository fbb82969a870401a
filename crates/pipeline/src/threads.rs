//! Threads of a run: the start of a thread may fail, and a panic in a thread is an error of the
//! run.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Returns the number of processors that this process may use: the default number of worker threads.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Names of the running threads of a run: the threads started in [`Self::started`], and the threads started by these.
#[derive(Debug, Default)]
pub struct RunThreads(Mutex<Vec<String>>);

// tidy: allow(global): a thread belongs to one run.
thread_local! {
    /// The threads of the run that this thread belongs to.
    // tidy: allow(global): as above.
    static RUN: RefCell<Option<Arc<RunThreads>>> = const { RefCell::new(None) };
}

impl RunThreads {
    /// Calls `start`; all threads started by the call belong to this run.
    pub fn started<T>(self: &Arc<Self>, start: impl FnOnce() -> T) -> T {
        let before = RUN.replace(Some(Arc::clone(self)));
        let started = start();
        RUN.set(before);
        started
    }

    /// Returns the names of the threads that have not ended.
    pub fn names(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Entry of a thread in its run, from the thread's start to its end.
struct Registration(Arc<RunThreads>, String);

impl Registration {
    /// Enters a new thread in the run of the calling thread; `None` if the calling thread belongs to no run.
    fn new(name: &str) -> Option<Self> {
        let run = RUN.with_borrow(Option::clone)?;
        run.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(name.to_owned());
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

/// Wraps `work` so that its thread is entered in the run until the work ends.
fn registered(name: &str, work: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    let registration = Registration::new(name);
    move || {
        RUN.set(
            registration
                .as_ref()
                .map(|registration| Arc::clone(&registration.0)),
        );
        let _registration = registration;
        work();
    }
}

/// Starts thread `number` of kind `kind`. **Errors**: the system cannot start a thread; the message gives remedies.
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

/// Starts a thread like [`spawn`], on one of the processors `cpus` in turn; if `cpus` is empty, on any processor.
pub(crate) fn spawn_pinned(
    kind: &str,
    number: usize,
    cpus: &[usize],
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
    spawn(kind, number, move || {
        if let Some(cpu) = cpu {
            // The list was checked at the start. If a processor went away since, the thread runs on another one.
            let _ = weir_io::sys::pin(cpu);
        }
        work();
    })
}

/// Returns the result of `work`; `None` if it panicked. The message of the panic is on standard error by then.
///
/// After a panic, the values that `work` changed may only be used to report its progress.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Called once if a piece of work takes longer than a second; nothing by default.
#[derive(Clone, Default)]
pub struct Slow(Option<Arc<dyn Fn() + Send + Sync>>);

impl Slow {
    /// Calls `tell` when work takes longer than a second.
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    fn tell(&self) {
        if let Some(tell) = &self.0 {
            tell();
        }
    }
}

impl fmt::Debug for Slow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Slow")
            .field(&self.0.is_some())
            .finish()
    }
}

/// Returns the result of `work`, which may take minutes and cannot be interrupted; `None` if `stop`
/// was set first. After a second `slow` is called.
///
/// The work runs in a thread of its own. After a stop, that thread is left behind and ends with the process; after a result, the
/// thread has ended. If no thread can be started, the work runs in the caller's thread.
pub fn unless_stopped<T: Send + 'static>(
    stop: &AtomicBool,
    slow: &Slow,
    work: impl Fn() -> T + Clone + Send + 'static,
) -> Option<T> {
    /// Interval between two checks of `stop`.
    const LOOK: Duration = Duration::from_millis(50);
    /// Number of checks after which work is slow.
    const PATIENCE: u32 = 20;
    /// Stack size of the thread, bytes: as large as the main thread's, because libpcap's optimizer
    /// recurses (see `libpcap::compile`).
    const STACK: usize = 8 << 20;
    let (say, said) = channel();
    let aside = work.clone();
    let thread = std::thread::Builder::new()
        .name("compiler".to_owned())
        .stack_size(STACK);
    let compile = registered("compiler", move || drop(say.send(aside())));
    let Ok(thread) = thread.spawn(compile) else {
        return Some(work());
    };
    // If the process is suspended and continued, the wait times out before the other thread has run. Hence one more wait.
    let mut told = false;
    let mut looks = 0;
    loop {
        looks += 1;
        if looks == PATIENCE + 1 {
            slow.tell();
        }
        match said.recv_timeout(LOOK) {
            Ok(result) => {
                // The thread must end, because the caller may drop privileges next, and the thread would keep them.
                let _ = thread.join();
                return Some(result);
            }
            Err(RecvTimeoutError::Timeout) if told => return None,
            Err(RecvTimeoutError::Timeout) => told = stop.load(Ordering::Relaxed),
            // The work panicked in its thread, and panics again in the caller's.
            Err(RecvTimeoutError::Disconnected) => return Some(work()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;
    use weir_testkit::wait;

    /// A counter, and what adds to it when work is slow.
    fn counting() -> (Arc<AtomicU32>, Slow) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let slow = Slow::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (calls, slow)
    }

    #[test]
    fn work_is_told_to_be_slow_once_and_only_after_a_second() {
        let (calls, slow) = counting();
        assert_eq!(
            unless_stopped(&AtomicBool::new(false), &slow, || 7),
            Some(7)
        );
        assert_eq!(calls.load(Ordering::Relaxed), 0);

        let (calls, slow) = counting();
        let begun = Instant::now();
        let told = Arc::clone(&calls);
        let work = move || {
            wait::until("the call", || told.load(Ordering::Relaxed) == 1);
            // Several more looks at the work.
            wait::throughout(Duration::from_millis(250), "one call", || {
                told.load(Ordering::Relaxed) == 1
            });
        };
        assert_eq!(
            unless_stopped(&AtomicBool::new(false), &slow, work),
            Some(())
        );
        assert!(begun.elapsed() >= Duration::from_secs(1));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
