//! Files of state: small files that only their user may change, each replaced as a whole, or read when a program starts again.
//!
//! A program believes what its state says. So the file and its directory are refused if others may write to them, and links are not followed.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File of state, which one process has at a time.
///
/// Next to `PATH` lie `PATH.lock`, while a new text is written `PATH.new`, and `PATH.old` if it was
/// set aside.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    directory: File,
    /// Users to whom the file may belong; `None` for any, because nobody else comes into its directory.
    owners: Option<Vec<u32>>,
    /// Held until the value is dropped.
    _lock: File,
}

/// Reason for which a file of state is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The system refuses it.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Other users may write to it.
    #[error("{}: other users may write to it, and could change what weir believes: chmod go-w it, or name another", .0.display())]
    Writable(PathBuf),
    /// The owner is another user.
    #[error("{}: it belongs to user {owner}, who could change what weir believes: chown it, or name another", .path.display())]
    Owner {
        /// Path of the file or directory.
        path: PathBuf,
        /// Number of the user.
        owner: u32,
    },
    /// The file is a link, a device or a directory.
    #[error("{}: no regular file (links are not followed)", .0.display())]
    NoFile(PathBuf),
    /// Another process has it.
    #[error("{}: another process uses it", .0.display())]
    InUse(PathBuf),
    /// The file is longer than it can be.
    #[error("{}: larger than {most} bytes", .path.display())]
    Large {
        /// Path of the file.
        path: PathBuf,
        /// Largest size.
        most: u64,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    |error| StateError::Io { path, error }
}

/// Whether users other than the owner may write to a file or directory. Many systems give each user a group of the same number, which counts as
/// the user.
pub fn others_may_write(about: &Metadata) -> bool {
    let by_group = about.mode() & 0o020 != 0 && about.gid() != about.uid();
    about.mode() & 0o002 != 0 || by_group
}

/// Directory of a path.
fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Refuses a file or directory to which others may write, or that belongs to none of `owners`.
fn check(path: &Path, about: &Metadata, owners: Option<&[u32]>) -> Result<(), StateError> {
    if others_may_write(about) {
        return Err(StateError::Writable(path.to_owned()));
    }
    match owners {
        Some(owners) if !owners.contains(&about.uid()) => Err(StateError::Owner {
            path: path.to_owned(),
            owner: about.uid(),
        }),
        _ => Ok(()),
    }
}

/// Opens a regular file without following a link at its end. **Errors**: as [`StateError`] says; others may write to it.
pub fn open(
    path: &Path,
    options: &mut OpenOptions,
    owners: Option<&[u32]>,
) -> Result<File, StateError> {
    // A pipe is not waited for.
    let opened = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .mode(0o600)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP | libc::ENXIO | libc::EISDIR) => StateError::NoFile(path.to_owned()),
        _ => failed(path)(error),
    })?;
    let about = file.metadata().map_err(failed(path))?;
    if !about.is_file() {
        return Err(StateError::NoFile(path.to_owned()));
    }
    check(path, &about, owners)?;
    Ok(file)
}

/// Refuses the directory of a file of state if others may write there.
pub fn check_directory(path: &Path) -> Result<(), StateError> {
    let directory = directory_of(path);
    let about = fs::metadata(directory).map_err(failed(directory))?;
    check(directory, &about, None)
}

impl StateFile {
    /// Takes the place of a file, which need not be there, until the value is dropped. File and directory may belong to `owners`. **Errors**: as
    /// [`StateError`] says.
    pub fn take(path: &Path, owners: &[u32]) -> Result<Self, StateError> {
        let name = path
            .file_name()
            .ok_or_else(|| StateError::NoFile(path.to_owned()))?;
        let place = directory_of(path);
        let place = fs::canonicalize(place).map_err(failed(place))?;
        let directory = crate::sys::open_directory(&place).map_err(failed(&place))?;
        let about = directory.metadata().map_err(failed(&place))?;
        check(&place, &about, Some(owners))?;
        let is_closed = about.mode() & 0o077 == 0;
        let owners = (!is_closed).then(|| owners.to_vec());
        let path = place.join(name);
        let lock = lock(&path, owners.as_deref())?;
        Ok(Self {
            path,
            directory,
            owners,
            _lock: lock,
        })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the owner of the directory.
    pub fn directory_owner(&self) -> io::Result<u32> {
        Ok(self.directory.metadata()?.uid())
    }

    /// Reads the file, of `most` bytes at most; `None` if it is not there. **Errors**: as [`StateError`] says.
    pub fn read(&self, most: u64) -> Result<Option<Vec<u8>>, StateError> {
        let path = &self.path;
        let file = match open(path, OpenOptions::new().read(true), self.owners.as_deref()) {
            Err(StateError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(failed(path))?;
        if bytes.len() as u64 > most {
            return Err(StateError::Large {
                path: path.clone(),
                most,
            });
        }
        Ok(Some(bytes))
    }

    /// Gives the file the name `PATH.old`, in the place of an earlier one; returns that path, or `None` if there was no file.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, StateError> {
        let old = beside(&self.path, ".old");
        match fs::rename(&self.path, &old) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&self.path)(error)),
            Ok(()) => Ok(Some(old)),
        }
    }

    /// Puts a file of mode 0600 with these bytes in the place of the one before; afterwards it is on the disk, whatever fails. **Errors**: those
    /// of the system; the file before stays.
    pub fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = beside(&self.path, ".new");
        // What a killed process left.
        let _ = fs::remove_file(&new);
        let write = || {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&new)))?;
        self.directory.sync_all()
    }
}

/// Makes the lock of a file, and takes it.
fn lock(path: &Path, owners: Option<&[u32]>) -> Result<File, StateError> {
    let beside = beside(path, ".lock");
    loop {
        let mut options = OpenOptions::new();
        let lock = open(
            &beside,
            options.read(true).write(true).create(true).truncate(false),
            owners,
        )?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateError::InUse(path.to_owned()),
            TryLockError::Error(error) => failed(&beside)(error),
        })?;
        // A process that ended in the meantime may have removed it.
        let number = lock.metadata().map_err(failed(&beside))?.ino();
        if fs::symlink_metadata(&beside).is_ok_and(|about| about.ino() == number) {
            return Ok(lock);
        }
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        // Nothing is left behind where nothing was kept.
        if fs::symlink_metadata(&self.path).is_err() {
            let _ = fs::remove_file(beside(&self.path, ".lock"));
        }
    }
}

/// Path with an ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::privilege::user_id;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use weir_testkit::Scratch;

    /// A directory whose mode does not depend on this process's mask.
    fn private(scratch: &Scratch) -> PathBuf {
        let directory = PathBuf::from(scratch.at("state"));
        fs::create_dir(&directory).unwrap();
        set(&directory, 0o755);
        directory
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn take(path: &Path) -> Result<StateFile, StateError> {
        StateFile::take(path, &[0, user_id()])
    }

    #[test]
    fn a_text_is_replaced_as_a_whole_and_only_its_user_may_read_it() {
        let scratch = Scratch::new();
        let directory = private(&scratch);
        let path = directory.join("bans");
        let state = take(&path).unwrap();
        assert_eq!(state.read(10).unwrap(), None);
        assert_eq!(state.set_aside().unwrap(), None);
        fs::write(directory.join("bans.new"), "left by a killed process").unwrap();
        for text in ["first", "the second"] {
            state.replace(text.as_bytes()).unwrap();
            assert_eq!(state.read(10).unwrap().unwrap(), text.as_bytes());
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        }
        assert!(matches!(
            state.read(9),
            Err(StateError::Large { most: 9, .. })
        ));
        assert!(matches!(take(&path), Err(StateError::InUse(_))));
        let mut names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["bans", "bans.lock"]);
        assert_eq!(
            state.set_aside().unwrap().unwrap(),
            fs::canonicalize(&directory).unwrap().join("bans.old")
        );
        drop(state);
        let again = take(&path).unwrap();
        assert_eq!(again.read(10).unwrap(), None);
        drop(again);
        assert!(!directory.join("bans.lock").exists());
    }

    #[test]
    fn what_others_may_write_and_links_are_refused() {
        let scratch = Scratch::new();
        let directory = private(&scratch);
        let path = directory.join("bans");
        for mode in [0o757, 0o777, 0o1777] {
            set(&directory, mode);
            let refused = take(&path).unwrap_err();
            assert!(
                matches!(&refused, StateError::Writable(at) if at.ends_with("state")),
                "{mode:o}: {refused}"
            );
        }
        set(&directory, 0o755);
        assert!(matches!(
            StateFile::take(&path, &[user_id() + 1]),
            Err(StateError::Owner { .. })
        ));
        fs::write(&path, "text").unwrap();
        for mode in [0o602, 0o606] {
            set(&path, mode);
            assert!(
                matches!(take(&path).unwrap().read(10), Err(StateError::Writable(at)) if at.ends_with("bans"))
            );
        }
        fs::remove_file(&path).unwrap();
        fs::write(directory.join("other"), "text").unwrap();
        symlink("other", &path).unwrap();
        assert!(matches!(
            take(&path).unwrap().read(10),
            Err(StateError::NoFile(_))
        ));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(
            take(&path).unwrap().read(10),
            Err(StateError::NoFile(_))
        ));
        // The name of the lock leads elsewhere.
        let locked = directory.join("locked");
        symlink("other", directory.join("locked.lock")).unwrap();
        assert!(matches!(take(&locked), Err(StateError::NoFile(_))));
        assert_eq!(fs::read(directory.join("other")).unwrap(), b"text");
        assert!(matches!(
            take(&directory.join("no/bans")),
            Err(StateError::Io { .. })
        ));
    }

    #[test]
    fn a_write_that_fails_leaves_the_text_before() {
        let scratch = Scratch::new();
        let directory = private(&scratch);
        let state = take(&directory.join("bans")).unwrap();
        state.replace(b"first").unwrap();
        fs::create_dir(directory.join("bans.new")).unwrap();
        state.replace(b"second").unwrap_err();
        assert_eq!(state.read(10).unwrap().unwrap(), b"first");
        fs::remove_dir(directory.join("bans.new")).unwrap();
        state.replace(b"second").unwrap();
        assert_eq!(state.read(10).unwrap().unwrap(), b"second");
    }
}
