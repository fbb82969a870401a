//! A run in a thread of its own, for front ends with other work in the meantime.

use crate::control::Control;
use crate::event::Event;
use crate::outputs::Outputs;
use crate::run::{Ended, Error, Run};
use crate::session::Session;
use crate::stage_mark::Stage;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use weir_pipeline::threads::{RunThreads, caught, spawn};

/// A run in progress. If the handle is dropped, the run is stopped, and ends by itself.
#[derive(Debug)]
pub struct Handle {
    control: Arc<Control>,
    threads: Arc<RunThreads>,
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

impl Handle {
    /// Starts a run. `on` is called with its events in the run's thread, and must be quick; if it panics, the run ends, and its
    /// outputs are left as they are.
    ///
    /// If the caller opens a capture itself, the capture must use the [`stop`](crate::run::Setup::stop) of the run.
    ///
    /// **Errors**: the thread cannot be started.
    pub fn start(
        mut run: Run,
        mut session: Session,
        mut on: impl FnMut(Event<'_>) + Send + 'static,
    ) -> io::Result<Self> {
        let (control, threads) = (Arc::clone(run.control()), Arc::new(RunThreads::default()));
        let mark = Arc::clone(run.outputs().mark());
        let events_mark = Arc::clone(&mark);
        let (say, ended) = channel();
        let mut on = move |event: Event<'_>| events_mark.during(Stage::Events, || on(event));
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
            ended,
        })
    }

    /// Returns the control of the run: ends the run, replaces its filter, outputs and keys, and takes snapshots.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
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

impl Drop for Handle {
    fn drop(&mut self) {
        self.control.stop();
    }
}
