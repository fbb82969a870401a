//! A run in a thread of its own, for front ends that have something else to do meanwhile.

use crate::control::Control;
use crate::event::Event;
use crate::name::Name;
use crate::outputs::Outputs;
use crate::run::{Ended, Error, Files, Run};
use crate::stage_mark::Stage;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, channel, sync_channel};
use std::time::Duration;
use weir_io::Input;
use weir_io::follow::Followed;
use weir_pipeline::threads::{RunThreads, caught, spawn};

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
    threads: Arc<RunThreads>,
    events: Receiver<E>,
    dropped_events: Arc<AtomicU64>,
    ended: Receiver<Result<(Ended, Outputs), Error>>,
}

/// Why the end of a run is not here.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The run has not ended in time.
    #[error("these threads have not ended: {}", .threads.join(", "))]
    TimedOut {
        /// What they are called: `compiler` is inside libpcap, `run 0` or `reader 0` in the kernel or an output. The thread of a decoder is
        /// not among them, and ends with its source.
        threads: Vec<String>,
    },
    /// It was given out before.
    #[error("the end of the run was given out before")]
    Taken,
}

impl<E: Send + 'static> Handle<E> {
    /// Starts a run. What `map_event` makes of its events waits in a queue of `room` at most. It is called in the run's thread, and must
    /// be quick; if it panics, the run ends, and its outputs are left as they are. Events for which the queue has no room are
    /// [counted](Self::dropped_events), and the run goes on.
    ///
    /// A capture that is opened by hand takes the [`stop`](crate::run::Setup::stop) of the run.
    ///
    /// **Errors**: the thread cannot be had.
    pub fn start(
        mut run: Run,
        sources: Sources,
        room: usize,
        mut map_event: impl FnMut(Event<'_>) -> Option<E> + Send + 'static,
    ) -> io::Result<Self> {
        let (control, threads) = (Arc::clone(run.control()), Arc::new(RunThreads::default()));
        let mark = Arc::clone(run.outputs().mark());
        let events_mark = Arc::clone(&mark);
        let (send, events) = sync_channel(room);
        let dropped_events = Arc::new(AtomicU64::new(0));
        let (counted, (say, ended)) = (Arc::clone(&dropped_events), channel());
        let mut on = move |event: Event<'_>| {
            if let Some(event) = events_mark.during(Stage::Events, || map_event(event))
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
            let _ = say.send(result.unwrap_or_else(|| Err(Error::Panic { stage: mark.name() })));
        };
        threads.started(|| spawn("run", 0, work))?;
        Ok(Self { control, threads, events, dropped_events, ended })
    }

    /// Controls the run: ends it, replaces its filter, its outputs and its keys, asks how it stands.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The events that were heard, in order. It ends with the run.
    pub fn events(&self) -> &Receiver<E> {
        &self.events
    }

    /// Events for which the queue had no room.
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events.load(Ordering::Relaxed)
    }

    /// Waits for the end of the run, for `timeout` at most; stop it before, if it should end. The inner result has why the run could not
    /// begin. **Errors**: the threads that are still at work; the handle is as it was, and may be asked again.
    pub fn join(&mut self, timeout: Duration) -> Result<Result<(Ended, Outputs), Error>, JoinError> {
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => Ok(ended),
            Err(RecvTimeoutError::Timeout) => Err(JoinError::TimedOut { threads: self.threads.names() }),
            Err(RecvTimeoutError::Disconnected) => Err(JoinError::Taken),
        }
    }

    /// What the threads of the run are called that have not ended.
    pub fn threads(&self) -> Vec<String> {
        self.threads.names()
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
