//! File operations of a recorder, as a trait: a test plants faults in its own implementation.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// Operations on the directory of a record.
pub trait Disk: Debug + Send + Sync {
    /// Makes a file that does not exist yet, for writing past the page cache if the file system allows that.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for writing, through the page cache.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a directory; an existing directory is not an error. Returns whether it was made.
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<bool>;
    /// Renames a file, over an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Operations on a file that is written.
pub trait DiskFile: Debug + Send {
    /// Writes bytes at `offset`, and returns how many. A file that is written past the page cache needs addresses, lengths and
    /// offsets that are multiples of [`PAGE`](super::PAGE).
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes contents and length durable (fdatasync).
    fn sync(&mut self) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct System {
    /// Whether segments go through the page cache.
    pub cached: bool,
}

impl Disk for System {
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        if !self.cached
            && path
                .extension()
                .is_some_and(|end| end == super::name::SEGMENT)
        {
            match options.custom_flags(libc::O_DIRECT).open(path) {
                Ok(file) => return Ok(Box::new(file)),
                // A file system without direct I/O; some make the file before they refuse.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    options
                        .custom_flags(libc::O_NOFOLLOW)
                        .create_new(false)
                        .create(true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Box::new(options.open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(open_regular(
            OpenOptions::new().write(true),
            path,
        )?))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<bool> {
        // A confined process may make no directories, and need not ask where there is one.
        if path.is_dir() {
            return Ok(false);
        }
        match fs::DirBuilder::new().mode(mode).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(path)?
            .sync_all()
    }
}

impl DiskFile for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
}

/// Opens a file of a record directory with these options: a regular file, and not after a link,
/// which may point anywhere. Waits for no writer of a pipe. **Errors**: errors of the system;
/// `InvalidInput` for a file of another kind.
pub fn open_regular(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let opened = options
        .clone()
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("is a link, and a record holds its files itself"),
        Some(libc::ENXIO | libc::EISDIR) => refused("is not a regular file"),
        _ => error,
    })?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(refused("is not a regular file"))
    }
}

/// Opens a regular file of a record directory for reading.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true), path)
}

/// Writes all bytes at `offset`.
pub(super) fn write_all(
    file: &mut dyn DiskFile,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).ok_or(io::ErrorKind::InvalidData)?;
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Puts a file under its name as a whole: a temporary name, fdatasync, rename, fsync of the directory; without the two syncs unless
/// `durable`.
pub(super) fn publish(
    disk: &dyn Disk,
    path: &Path,
    mode: u32,
    bytes: &[u8],
    durable: bool,
) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(super::name::NEW);
    let temporary = Path::new(&temporary);
    let written = (|| {
        // The rest of an attempt that a crash ended.
        match disk.remove(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = disk.create(temporary, mode)?;
        write_all(file.as_mut(), bytes, 0)?;
        if durable {
            file.sync()?;
        }
        disk.rename(temporary, path)
    })();
    if written.is_err() {
        // The error of the write counts; a file that stays is removed by the next recorder.
        let _ = disk.remove(temporary);
    }
    written?;
    if !durable {
        return Ok(());
    }
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
