//! The name of a socket in the file system.

use super::Error;
use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_io::sys::local;

/// Longest path that fits into the address of a socket, bytes. **Source**: unix(7).
const LONGEST_PATH: usize = 107;

/// Longest wait for room in the queue of a listening process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Path of a socket, and the file that was made there, which is removed with the value.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file; `None` once it was removed, since another file may get its number then.
    file: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

impl SocketFile {
    /// Makes a listening socket at `path`, of mode 0600, or 0660 for a group. The file of a dead process is replaced. A group that this
    /// user is not in gets no rights: returns whether it has them.
    ///
    /// The socket is made in a new directory that only this user can enter, and then renamed. So no process of another user can
    /// connect before the mode is set, and no process finds a socket on which nothing listens yet. A lock on the directory of `path`
    /// keeps two processes from replacing the same file.
    pub(super) fn listen(
        path: &Path,
        group: Option<u32>,
    ) -> Result<(UnixListener, Self, bool), Error> {
        let failed = |error| Error::Io {
            path: path.to_owned(),
            error,
        };
        let _lock = lock_directory(path).map_err(failed)?;
        match connect(path) {
            Ok(_) => {
                return Err(Error::InUse {
                    path: path.to_owned(),
                });
            }
            // The queue of a process that does not take connections is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::InUse {
                    path: path.to_owned(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => match fs::symlink_metadata(path) {
                Ok(about) if !about.file_type().is_socket() => {
                    return Err(Error::NoSocket {
                        path: path.to_owned(),
                    });
                }
                _ if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return Err(failed(error)),
            },
        }
        let (listener, file, is_shared) = Self::make(path, group).map_err(failed)?;
        let place = Self {
            path: path.to_owned(),
            file: Some(file),
        };
        Ok((listener, place, is_shared))
    }

    fn make(path: &Path, group: Option<u32>) -> io::Result<(UnixListener, (u64, u64), bool)> {
        let private = Private::new(path)?;
        let inside = private.0.join("s");
        let (_directory, address) = address(&inside)?;
        let listener = UnixListener::bind(address)?;
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o600))?;
        let is_shared = group.is_some() && lchown(&inside, None, group).is_ok();
        if is_shared {
            fs::set_permissions(&inside, fs::Permissions::from_mode(0o660))?;
        }
        let file = identity(&fs::symlink_metadata(&inside)?);
        fs::rename(&inside, path)?;
        Ok((listener, file, is_shared))
    }

    /// Removes the file, unless another process has replaced it.
    pub(super) fn remove(&mut self) {
        let Some(file) = self.file.take() else { return };
        let _lock = lock_directory(&self.path);
        if fs::symlink_metadata(&self.path).is_ok_and(|about| identity(&about) == file) {
            // A file that cannot be removed is replaced by the next process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

/// New directory next to a path that only this user can enter; removed with the value.
struct Private(PathBuf);

impl Private {
    fn new(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut private = std::ffi::OsString::from(".");
        private.push(name);
        private.push(format!("-{}", std::process::id()));
        let private = path.with_file_name(private);
        // A process of the same number may have ended in between.
        let _ = fs::remove_dir_all(&private);
        DirBuilder::new().mode(0o700).create(&private)?;
        Ok(Self(private))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the directory of `path`.
fn directory(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Locks the directory of `path` until the value is dropped. **Errors**: another process holds the lock for seconds.
fn lock_directory(path: &Path) -> io::Result<File> {
    /// Interval between two attempts.
    const TURN: Duration = Duration::from_millis(5);
    let directory = weir_io::sys::open_directory(directory(path))?;
    let began = Instant::now();
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(directory),
            Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => std::thread::sleep(TURN),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "another process holds a lock on its directory",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Returns a name of `path` that fits into the address of a socket, and the open directory that the name refers to.
fn address(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    if path.as_os_str().len() <= LONGEST_PATH {
        return Ok((None, path.to_owned()));
    }
    let directory = weir_io::sys::open_directory(directory(path))?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let address = Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name);
    Ok((Some(directory), address))
}

/// Connects to the socket at `path`. **Errors**: `NotFound` and `ConnectionRefused` if no process listens; `WouldBlock` if the
/// process takes no connections.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let (_directory, address) = address(path)?;
    local::connect(&address, PATIENCE)
}
