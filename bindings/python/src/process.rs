//! Objects that belong to the process that made them.

use crate::error::Closed;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks of which this process is the child. A fork concerns the process, so its count does too.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Notes that this process is the child of a fork. Python calls it there: see [`listen`].
#[pyfunction]
fn _forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has Python tell of forks.
pub fn listen(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let settings = pyo3::types::PyDict::new(py);
    settings.set_item("after_in_child", wrap_pyfunction!(_forked, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&settings))?;
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
        Self { forks: FORKS.load(Ordering::Relaxed), value: Some(value) }
    }

    fn is_own(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Returns the value. **Errors**: `Closed` in the child of a fork.
    pub fn get(&self) -> PyResult<&T> {
        let other =
            || Closed::new_err("the object was made before a fork, by the parent of this process: open it again here");
        self.value.as_ref().filter(|_| self.is_own()).ok_or_else(other)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}
