//! Objects that belong to the process that made them.

use crate::error::Closed;
use pyo3::prelude::*;

/// A value of this process. In the child of a fork the value is refused, and never dropped: the threads behind it are not there, and its
/// locks may be held for ever.
#[derive(Debug)]
pub struct Owned<T> {
    process: u32,
    /// There until the drop.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// Returns the value. **Errors**: `Closed` in the child of a fork. **Cost**: a system call.
    pub fn get(&self) -> PyResult<&T> {
        let other =
            || Closed::new_err("the object was made before a fork, by the parent of this process: open it again here");
        self.value.as_ref().filter(|_| self.process == std::process::id()).ok_or_else(other)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
