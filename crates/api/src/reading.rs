//! Names of the files that sources of this process read, so that no sink empties them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_engine::name::Name;

/// Names by the number of their source, and the next number.
type Read = (Vec<(u64, Vec<Name>)>, u64);

/// All names. They belong to the process, because its files do.
static READ: Mutex<Read> = Mutex::new((Vec::new(), 1));

fn read() -> MutexGuard<'static, Read> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A note of the files that a source reads, while the note lasts. No other source has its number.
#[derive(Debug)]
pub(crate) struct Reading(u64);

impl Reading {
    pub(crate) fn note(names: &[Name]) -> Self {
        let (all, next) = &mut *read();
        let number = *next;
        *next += 1;
        all.push((number, names.to_vec()));
        Self(number)
    }

    pub(crate) fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        read().0.retain(|(other, _)| *other != self.0);
    }
}

/// Returns the names of all files that are read.
pub(crate) fn all() -> Vec<Name> {
    read()
        .0
        .iter()
        .flat_map(|(_, names)| names.iter().cloned())
        .collect()
}
