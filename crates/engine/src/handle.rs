//! A run in a thread of its own, for front ends with other work meanwhile.

use crate::control::Control;
use crate::event::Event;
use crate::outputs::Outputs;
use crate::run::{Ended, Error, Run};
use crate::session::Session;
use crate::stage_mark::Stage;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, channel, sync_channel};
use std::time::Duration;
use weir_pipeline::threads::{RunThreads, caught, spawn};

/// A run in progress. If the handle is dropped, the run is stopped, and ends by itself.
#[derive(Debug)]
pub struct Handle<E> {
    control: Arc<Control>,
    threads: Arc<RunThreads>,
    events: Receiver<E>,
    dropped_events: Arc<AtomicU64>,
    ended: Receiver<Result<(Ended, Outputs), Error>>,
}

/// Reason for which the result of a run cannot be returned.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The run has not ended in time.
    #[error("these threads have not ended: {}", .threads.join(", "))]
    TimedOut {
        /// Names of the threads: `compiler` is inside libpcap, `run 0` or `reader 0` in the kernel or an output. The thread of a
        /// decoder is not listed, and ends with its source.
        threads: Vec<String>,
    },
    /// The result was returned before.
    #[error("the end of the run was given out before")]
    Taken,
}

impl<E: Send + 'static> Handle<E> {
    /// Starts a run. The results of `map_event` for its events wait in a queue with room for `room`. `map_event` is called in the
    /// run's thread, and must be quick; if it panics, the run ends, and its outputs are left as they are. If the queue is full, an
    /// event is [counted](Self::dropped_events) and dropped, and the run goes on.
    ///
    /// If the caller opens a capture itself, the capture must use the [`stop`](crate::run::Setup::stop) of the run.
    ///
    /// **Errors**: the thread cannot be started.
    pub fn start(
        mut run: Run,
        mut session: Session,
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
                if session.begin(&mut run, &mut on)? {
                    session.read(&mut run, &mut on)?;
                }
                Ok(run.finish(&mut on))
            });
            // If the handle was dropped, the result is not wanted.
            let _ = say.send(result.unwrap_or_else(|| Err(Error::Panic { stage: mark.name() })));
        };
        threads.started(|| spawn("run", 0, work))?;
        Ok(Self {
            control,
            threads,
            events,
            dropped_events,
            ended,
        })
    }

    /// Returns the control of the run: ends the run, replaces its filter, outputs and keys, and takes snapshots.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Returns the channel of events, in order. The channel ends with the run.
    pub fn events(&self) -> &Receiver<E> {
        &self.events
    }

    /// Returns the number of events dropped because the queue was full.
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events.load(Ordering::Relaxed)
    }

    /// Waits at most `timeout` for the end of the run, but does not stop the run. The inner error is the reason for which the run
    /// could not begin. **Errors**: threads are still at work; the handle is unchanged, and may be joined again.
    pub fn join(
        &mut self,
        timeout: Duration,
    ) -> Result<Result<(Ended, Outputs), Error>, JoinError> {
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => Ok(ended),
            Err(RecvTimeoutError::Timeout) => Err(JoinError::TimedOut {
                threads: self.threads.names(),
            }),
            Err(RecvTimeoutError::Disconnected) => Err(JoinError::Taken),
        }
    }

    /// Returns the names of the run's threads that have not ended.
    pub fn threads(&self) -> Vec<String> {
        self.threads.names()
    }
}

impl<E> Drop for Handle<E> {
    fn drop(&mut self) {
        self.control.stop();
    }
}
