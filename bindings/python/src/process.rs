//! The process: objects that belong to the one that made them, and signals that come while the library waits.

use crate::error::Closed;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks of which this process is the child. A fork concerns the process, so its count does too.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Notes that this process is the child of a fork. Python calls it there: see [`listen`].
#[pyfunction]
fn _forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Handles signals that have arrived, if this is the main thread. Returns whether that raised an
/// exception, which waits in this thread to be taken.
fn is_interrupted() -> bool {
    Python::try_attach(|py| {
        py.check_signals()
            .map_err(|exception| exception.restore(py))
            .is_err()
    })
    .unwrap_or(false)
}

/// Handles signals that have arrived, if this is the main thread, for a caller that cannot raise an
/// exception. Returns the text of one that was raised. A KeyboardInterrupt is raised once more as
/// soon as Python goes on.
pub fn interruption() -> Option<String> {
    let look = |py: Python<'_>| {
        let exception = py.check_signals().err()?;
        let line = exception.to_string();
        if exception.is_instance_of::<PyKeyboardInterrupt>(py) {
            let again = py
                .import("_thread")
                .and_then(|thread| thread.call_method0("interrupt_main"));
            again.map_or_else(|error| error.write_unraisable(py, None), drop);
        }
        Some(line)
    };
    Python::try_attach(look).flatten()
}

/// Has Python tell of forks and signals.
pub fn listen(module: &Bound<'_, PyModule>) -> PyResult<()> {
    weir_api::interrupt_waits_by(is_interrupted);
    let py = module.py();
    let settings = pyo3::types::PyDict::new(py);
    settings.set_item("after_in_child", wrap_pyfunction!(_forked, module)?)?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&settings))?;
    Ok(())
}

/// A value of this process. In the child of a fork the value is refused, and never dropped: the threads behind it are not there, and its
/// locks may be held for ever.
#[derive(Debug)]
pub struct Owned<T> {
    forks: u32,
    /// There until the drop.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self {
            forks: FORKS.load(Ordering::Relaxed),
            value: Some(value),
        }
    }

    fn is_own(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Returns the value. **Errors**: `Closed` in the child of a fork.
    pub fn get(&self) -> PyResult<&T> {
        let other = || {
            Closed::new_err(
                "the object was made before a fork, by the parent of this process: open it again here",
            )
        };
        self.value
            .as_ref()
            .filter(|_| self.is_own())
            .ok_or_else(other)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}
