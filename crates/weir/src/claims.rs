//! Files that a run reads or writes: no output may empty one of them.

use crate::name::Name;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Who reads or writes a file.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Source,
    Output(Name),
}

/// The files of a run by their places.
#[derive(Debug, Default)]
pub struct Claims(Mutex<HashMap<PathBuf, Owner>>);

impl Claims {
    /// The sources of a run.
    pub fn of(sources: &[Name]) -> Self {
        let places = sources.iter().filter_map(|source| place(Path::new(source)));
        Self(Mutex::new(places.map(|place| (place, Owner::Source)).collect()))
    }

    /// Output `name` is about to empty or make the file at `path`; fails if a source or another output has it.
    pub fn take(&self, path: &Path, name: &Name) -> io::Result<()> {
        let Some(place) = place(path).filter(|place| !place.starts_with("/dev")) else { return Ok(()) };
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match claims.get(&place) {
            Some(Owner::Source) => Err(io::Error::other("it is a source, and would be emptied before it is read")),
            Some(Owner::Output(other)) if other != name => {
                Err(io::Error::other(format!("another output of this run, {other}, writes it")))
            }
            _ => {
                claims.insert(place, Owner::Output(name.clone()));
                Ok(())
            }
        }
    }
}

/// Where a name leads to: a canonical path whose last part need not be there yet. `None` if its directory is not there.
pub fn place(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    // A link to nothing is followed too: writing would make its target.
    while let Ok(target) = path.read_link() {
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}
