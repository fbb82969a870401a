//! Files that a run reads or writes: no output may empty a file of a source or of another output.

use crate::name::Name;
use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use weir_store::disk::is_segment_or_index;

/// The part of a run that reads or writes a file.
#[derive(Debug)]
enum Owner {
    Source,
    Output(Claimant),
}

/// An output that writes files. An output that replaces another one is a claimant of its own, even with the same name.
#[derive(Clone, Debug)]
pub struct Claimant {
    name: Name,
    number: u64,
}

/// Largest number of places remembered, about 10 MB. The number is limited because `-G 1` makes a file every second.
const MOST_PLACES: usize = 1 << 16;

/// The files of a run.
#[derive(Debug)]
pub struct Claims {
    /// Device and inode number of the sources' files, because a file may have several names.
    sources: Vec<(u64, u64)>,
    /// Sources that are directories.
    directories: Vec<PathBuf>,
    /// Sources and outputs by their places, because an output's file may not exist yet. Beyond [`MOST_PLACES`], outputs are not
    /// noted.
    places: Mutex<HashMap<PathBuf, Owner>>,
    /// Number of outputs so far.
    outputs: AtomicU64,
}

impl Claims {
    /// Claims the files of the sources of a run.
    pub fn of(sources: &[Name]) -> Self {
        let about = |source: &Name| match source.is_dash() {
            true => std::fs::metadata("/dev/stdin"),
            false => std::fs::metadata(source),
        };
        let places = sources.iter().filter_map(|source| place(Path::new(source)));
        Self {
            sources: sources
                .iter()
                .filter_map(|source| identity(&about(source).ok()?))
                .collect(),
            directories: sources
                .iter()
                .map(|source| Path::new(source).to_owned())
                .filter(|path| path.is_dir())
                .collect(),
            places: Mutex::new(places.map(|place| (place, Owner::Source)).collect()),
            outputs: AtomicU64::new(0),
        }
    }

    /// Returns the claimant for a further output with this name.
    pub fn output(&self, name: &Name) -> Claimant {
        Claimant {
            name: name.clone(),
            number: self.outputs.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Claims the file at `path`, which `output` is about to empty or make. Files after the first 65 536 are not remembered.
    /// **Errors**: a source or another output has, or had, the file.
    pub fn take(&self, path: &Path, output: &Claimant) -> io::Result<()> {
        let source = || io::Error::other("it is a source, and would be emptied before it is read");
        if std::fs::metadata(path)
            .ok()
            .as_ref()
            .and_then(identity)
            .is_some_and(|file| self.sources.contains(&file))
        {
            return Err(source());
        }
        if self
            .directories
            .iter()
            .any(|directory| is_part_of(directory, path))
        {
            return Err(io::Error::other("it is part of a record that is read"));
        }
        if record_of(path).is_some() {
            return Err(io::Error::other(
                "it is a file of a record, which only its recorder writes",
            ));
        }
        let Some(place) = place(path).filter(|place| !place.starts_with("/dev")) else {
            return Ok(());
        };
        let mut claims = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        match claims.get(&place) {
            Some(Owner::Source) => Err(source()),
            Some(Owner::Output(other)) if other.number != output.number => Err(io::Error::other(
                format!("another output of this run, {}, writes it", other.name),
            )),
            Some(Owner::Output(_)) => Ok(()),
            None => {
                if claims.len() < MOST_PLACES {
                    claims.insert(place, Owner::Output(output.clone()));
                }
                Ok(())
            }
        }
    }

    /// Frees the files of an output that has written none of them.
    pub fn release(&self, output: &Claimant) {
        let mut claims = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(
            |_, owner| !matches!(owner, Owner::Output(other) if other.number == output.number),
        );
    }
}

/// Returns the device and inode number of a regular file.
pub fn identity(about: &Metadata) -> Option<(u64, u64)> {
    about.is_file().then(|| (about.dev(), about.ino()))
}

/// Returns whether a file lies in a directory, or is another name of a file that does. `false` if the directory is none.
pub fn is_part_of(directory: &Path, file: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return false;
    };
    let within = directory
        .canonicalize()
        .ok()
        .zip(place(file))
        .is_some_and(|(home, file)| file.starts_with(home));
    let known = std::fs::metadata(file).ok().as_ref().and_then(identity);
    let is_same = |path: PathBuf| std::fs::metadata(path).ok().as_ref().and_then(identity) == known;
    within || known.is_some() && entries.flatten().any(|entry| is_same(entry.path()))
}

/// Returns the directory of the record that an existing file belongs to: as a segment, an index, or the lock.
pub fn record_of(file: &Path) -> Option<PathBuf> {
    /// The file by which a recorder holds its directory.
    const LOCK: &str = "lock";
    let file = file.canonicalize().ok().filter(|file| file.is_file())?;
    let (directory, name) = (file.parent()?, file.file_name()?.to_str()?);
    let is_member = if name == LOCK {
        let mut entries = std::fs::read_dir(directory).ok()?.flatten();
        entries.any(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(is_segment_or_index)
        })
    } else {
        is_segment_or_index(name) && directory.join(LOCK).is_file()
    };
    is_member.then(|| directory.to_owned())
}

/// Returns the canonical path for a name; its last part need not exist yet. `None` if the directory does not exist, or if
/// symbolic links lead in a circle: no file can be opened by such a name.
pub fn place(path: &Path) -> Option<PathBuf> {
    /// Largest number of links in a row that the kernel follows: `MAXSYMLINKS` of linux/namei.h.
    const MOST_LINKS: usize = 40;
    let mut path = path.to_owned();
    // A dangling link is followed too, because a write would make its target.
    for links in 0.. {
        let Ok(target) = path.read_link() else { break };
        if links == MOST_LINKS {
            return None;
        }
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use weir_testkit::Scratch;

    #[test]
    fn links_are_followed_as_far_as_the_kernel_follows_them() {
        let folder = Scratch::new();
        let at = |name: &str| folder.path().join(name);
        symlink("a", at("a")).unwrap();
        symlink("c", at("b")).unwrap();
        symlink("b", at("c")).unwrap();
        for circle in ["a", "b", "c"] {
            assert_eq!(place(&at(circle)), None, "{circle}");
        }
        // A chain of links to a file that does not exist yet: a write makes the file if the chain is not too long.
        symlink("target", at("1")).unwrap();
        (2..=41)
            .for_each(|number| symlink((number - 1).to_string(), at(&number.to_string())).unwrap());
        for number in 1..=41 {
            let found = place(&at(&number.to_string()));
            let opened = std::fs::File::create(at(&number.to_string()));
            assert_eq!(
                found.is_some(),
                opened.is_ok(),
                "{number} links: {opened:?}"
            );
            assert!(found.is_none_or(|found| found == at("target").canonicalize().unwrap()));
            let _ = std::fs::remove_file(at("target"));
            std::fs::write(at("target"), "").unwrap();
        }
    }

    #[test]
    fn files_of_an_endless_rotation_take_bounded_memory() {
        let folder = Scratch::new();
        let source = folder.path().join("source");
        let claims = Claims::of(&[Name::from(&source)]);
        let (one, other) = (
            claims.output(&Name::from("one")),
            claims.output(&Name::from("other")),
        );
        let file = |number: usize| folder.path().join(number.to_string());
        for number in 0..MOST_PLACES + 100 {
            claims
                .take(&file(number), &one)
                .expect("no other output has it");
        }
        assert_eq!(claims.places.lock().unwrap().len(), MOST_PLACES);
        // Remembered files are still refused to other outputs, but not to their own.
        assert!(
            claims
                .take(&source, &other)
                .unwrap_err()
                .to_string()
                .starts_with("it is a source")
        );
        assert!(
            claims
                .take(&file(0), &other)
                .unwrap_err()
                .to_string()
                .contains("another output of this run, one")
        );
        claims.take(&file(0), &one).expect("it is its own");
    }
}
