//! Recordings: packets kept in RAM and on disk, and saved around triggers, as by `weir record`.

use crate::error::{Closed, Refused, raised};
use crate::process::Owned;
use crate::source::{LOOK, Settings, opened, waited};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_api::{NextSaved, RecordOptions, Span, Trigger, parse_keep, parse_trigger};

/// Settings of recordings, by the names that they have in `weir.record`.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Keeping {
    ram: Option<u64>,
    disk: Option<u64>,
    age_ns: Option<u64>,
    triggers: Vec<String>,
    before_ns: u64,
    after_ns: u64,
    keep: Option<String>,
    cutoff: Option<u64>,
    reserve: Option<u64>,
    resolve: bool,
}

impl Keeping {
    fn options(self) -> PyResult<RecordOptions> {
        let defaults = RecordOptions::default();
        let refused = |why: String| Refused::new_err(why);
        let keep = self.keep.map_or(Ok(defaults.trigger.keep), |keep| {
            parse_keep(&keep).map_err(|why| refused(why.to_string()))
        })?;
        let triggers = self
            .triggers
            .iter()
            .map(|trigger| parse_trigger(trigger).map_err(|why| refused(why.to_string())));
        Ok(RecordOptions {
            ram: self.ram,
            disk: self.disk,
            age: self.age_ns.map(Duration::from_nanos),
            triggers: triggers.collect::<PyResult<_>>()?,
            trigger: Trigger {
                before: Duration::from_nanos(self.before_ns),
                after: Duration::from_nanos(self.after_ns),
                keep,
                ..defaults.trigger
            },
            cutoff: self.cutoff,
            reserve: self.reserve.unwrap_or(defaults.reserve),
            resolve: self.resolve,
            ..defaults
        })
    }
}

/// A recording of sources, in threads of its own.
#[pyclass(frozen, module = "weir")]
#[derive(Debug)]
pub struct Recording {
    recorder: Owned<Mutex<Option<Arc<weir_api::Recorder>>>>,
}

impl Recording {
    fn recorder(&self) -> PyResult<Arc<weir_api::Recorder>> {
        let recorder = self
            .recorder
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recorder
            .clone()
            .ok_or_else(|| Closed::new_err("the recording was closed"))
    }
}

#[pymethods]
impl Recording {
    /// `weir.record` has the documentation of the settings.
    #[new]
    fn new(
        py: Python<'_>,
        names: Vec<OsString>,
        directory: OsString,
        settings: Settings,
        keeping: Keeping,
    ) -> PyResult<Self> {
        let (options, keeping) = (settings.options()?, keeping.options()?);
        let (waits, stop) = (options.capture.wait, options.stop.clone());
        let work = move || weir_api::Recorder::open(&names, directory, &options, &keeping);
        let opened = opened(py, waits, None, stop.as_ref(), work)?;
        Ok(Self {
            recorder: Owned::new(Mutex::new(Some(Arc::new(opened)))),
        })
    }

    /// Fires the trigger `name`, or all triggers without a name. Returns the triggers as JSON.
    #[pyo3(signature = (name, before_ns, after_ns))]
    fn trigger(
        &self,
        py: Python<'_>,
        name: Option<String>,
        before_ns: Option<u64>,
        after_ns: Option<u64>,
    ) -> PyResult<String> {
        let times = [before_ns, after_ns].map(|time| time.map(Duration::from_nanos));
        let span = match times {
            [None, None] => None,
            [before, after] => Some(Span {
                before: before.unwrap_or_default(),
                after: after.unwrap_or_default(),
            }),
        };
        let recorder = self.recorder()?;
        py.detach(|| recorder.trigger(name.as_deref(), span))
            .map_err(raised)
    }

    /// The state as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let recorder = self.recorder()?;
        Ok(py.detach(|| recorder.status()))
    }

    /// Waits at most `timeout` seconds for the next file that a trigger saves, and returns JSON about it; None if none came. Raises
    /// StopIteration when the recording has ended.
    fn next(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let timeout = waited(timeout)?;
        let recorder = self.recorder()?;
        let begun = Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            match py.detach(|| recorder.next(left.min(LOOK))) {
                NextSaved::Saved(saved) => return Ok(Some(saved)),
                NextSaved::End => return Err(PyStopIteration::new_err(())),
                NextSaved::Nothing => py.check_signals()?,
            }
            if begun.elapsed() >= timeout {
                return Ok(None);
            }
        }
    }

    /// Ends the recording early: what the sources received is recorded.
    fn stop(&self) -> PyResult<()> {
        self.recorder()?.stop();
        Ok(())
    }

    /// Remarks for the user although nothing failed, a line each, since the last call.
    fn remarks(&self) -> PyResult<Vec<String>> {
        Ok(self.recorder()?.remarks())
    }

    /// Ends and completes the recording, and returns its account as JSON.
    fn close(&self, py: Python<'_>) -> PyResult<String> {
        let recorder = self.recorder()?;
        *self
            .recorder
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
        let (account, closed) = py.detach(|| recorder.close());
        closed.map_err(raised)?;
        Ok(account)
    }
}
