//! A run in a thread of its own, for front ends that have something else to do meanwhile.

use crate::control::Control;
use crate::event::Event;
use crate::name::Name;
use crate::outputs::Outputs;
use crate::run::{Ended, Error, Files, Run};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, channel, sync_channel};
use std::time::Duration;
use weir_io::Input;
use weir_io::follow::Followed;
use weir_pipeline::threads::{Crew, caught, spawn};

/// Follows the files of a name.
pub type Follow = Box<dyn Fn(&Name) -> Followed + Send>;

/// What a run reads.
#[non_exhaustive]
pub enum Sources {
    /// Files and pipes.
    Files {
        /// As the user wrote them.
        names: Vec<Name>,
        /// In which order.
        order: Order,
        /// Decode zstd data that needs this much memory for its window, bytes.
        zstd_window: u64,
        /// Follows the files of a name, if that is wanted; only with [`Order::Given`].
        follow: Option<Follow>,
    },
    /// Captures that were opened: see [`Run::begin_capture`].
    Captures(Vec<Input>),
}

impl core::fmt::Debug for Sources {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Files { names, order, .. } => write!(f, "{names:?}, {order:?}"),
            Self::Captures(inputs) => inputs.fmt(f),
        }
    }
}

/// The order in which files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One after another, as given.
    #[default]
    Given,
    /// All at once, by the time of their packets.
    Merged,
    /// All packets in the order of time, whatever order the files have.
    Sorted,
}

/// A run that goes on. One that is dropped is stopped, and left to itself.
#[derive(Debug)]
pub struct Handle<E> {
    control: Arc<Control>,
    crew: Arc<Crew>,
    events: Receiver<E>,
    missed: Arc<AtomicU64>,
    ended: Receiver<Result<(Ended, Outputs), Error>>,
}

/// A run did not end in time.
#[derive(Debug, thiserror::Error)]
#[error("these threads have not ended: {}", .threads.join(", "))]
pub struct Stuck {
    /// What they are called: `compiler` is inside libpcap, `run` or `reader 0` in the kernel or an output.
    pub threads: Vec<String>,
}

impl<E: Send + 'static> Handle<E> {
    /// Starts a run. What `hear` makes of its events waits in a queue of `room` at most: it is called in the run's thread, and must
    /// be quick. Events that nobody took in time are [missed](Self::missed), and the run goes on.
    ///
    /// **Errors**: the thread cannot be had.
    pub fn start(
        mut run: Run,
        sources: Sources,
        room: usize,
        mut hear: impl FnMut(Event<'_>) -> Option<E> + Send + 'static,
    ) -> io::Result<Self> {
        let (control, crew) = (Arc::clone(run.control()), Arc::new(Crew::default()));
        let (send, events) = sync_channel(room);
        let missed = Arc::new(AtomicU64::new(0));
        let (counted, (say, ended)) = (Arc::clone(&missed), channel());
        let mut on = move |event: Event<'_>| {
            if let Some(event) = hear(event)
                && let Err(TrySendError::Full(_)) = send.try_send(event)
            {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let work = move || {
            let result = caught(move || {
                read(&mut run, sources, &mut on)?;
                Ok(run.finish(&mut on))
            });
            // Who does not want to know has dropped the handle.
            let _ = say.send(result.unwrap_or(Err(Error::Panic)));
        };
        crew.started(|| spawn("run", 0, work))?;
        Ok(Self { control, crew, events, missed, ended })
    }

    /// Controls the run: ends it, replaces its filter, asks how it stands.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The events that were heard, in order. It ends with the run.
    pub fn events(&self) -> &Receiver<E> {
        &self.events
    }

    /// Events for which the queue had no room.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Waits for the end of the run, for `most` at most; stop it before, if it should end. **Errors**: [`Stuck`] names the threads that
    /// are still at work; the handle is as it was, and may be asked again.
    ///
    /// The inner result has why the run could not begin.
    pub fn join(&mut self, most: Duration) -> Result<Result<(Ended, Outputs), Error>, Stuck> {
        match self.ended.recv_timeout(most) {
            Ok(ended) => Ok(ended),
            Err(RecvTimeoutError::Timeout) => Err(Stuck { threads: self.crew.names() }),
            // It was told before.
            Err(RecvTimeoutError::Disconnected) => Err(Stuck { threads: Vec::new() }),
        }
    }
}

impl<E> Drop for Handle<E> {
    fn drop(&mut self) {
        self.control.stop();
    }
}

fn read(run: &mut Run, sources: Sources, on: crate::event::On<'_>) -> Result<(), Error> {
    match sources {
        Sources::Captures(inputs) => match run.begin_capture(&inputs, on)? {
            true => run.capture(inputs, on),
            false => Ok(()),
        },
        Sources::Files { names, order, zstd_window, follow } => {
            let follow = follow.as_ref().map(|follow| &**follow as &dyn Fn(&Name) -> Followed);
            let files = Files { names: &names, zstd_window, follow };
            match order {
                Order::Given => run.one_by_one(&files, on),
                Order::Merged => run.merged(&files, on),
                Order::Sorted => run.sorted(&files, on),
            }
        }
    }
}
