//! Power cuts: a file system on a disk whose writes and flushes are logged, and the disks that a loss of power may leave.
//!
//! ```text
//! workload
//! ext4 or XFS, mounted
//! loop device          a flush of the device is an fsync of its file
//! FUSE, in this process: WRITE and FSYNC of the one file are the entries of the log
//! pages in memory
//! ```
//! **A cut** at a position of the log leaves everything in front of the last flush, and of each later write nothing, everything,
//! or some of its sectors of 512 bytes, in any order: a seed chooses. The result is a disk again: mounting it recovers the journal,
//! and that can be cut too.
//!
//! **Acknowledgements**: a workload notes [`Power::mark`] when it acknowledges. At each cut at that
//! position or after it, the acknowledged must be there.
//!
//! **A missing fsync of a directory** is seen where a name changes after the last fsync of the file
//! (rename, link, remove). It is not seen after a create: fsync and fdatasync of a new file commit
//! the transaction that made its name, on ext4 and on XFS.
//!
//! **Cleaning up**: everything is mounted in a mount namespace of the calling thread, the loop
//! device detaches itself with its last user, and the FUSE connection ends with the value. A panic
//! or a killed process leaves no mount and no loop device after.
//!
//! **Bounds**: pages that were never written take no memory; a log holds at most twice the bytes of its disk.
//!
//! ```no_run
//! use weir_testkit::power::{Filesystem, Power};
//!
//! let Some(power) = Power::new("the_test", Filesystem::Ext4) else { return };
//! let start = power.mark();
//! let acknowledged = power.mounted(|dir| {
//!     std::fs::write(dir.join("a"), "1")?;
//!     std::fs::File::open(dir.join("a"))?.sync_all()?;
//!     std::io::Result::Ok(power.mark())
//! });
//! let acknowledged = acknowledged.unwrap().unwrap();
//! for position in start..=power.mark() {
//!     let there = power.cut(7, position).mounted(|dir| dir.join("a").exists()).unwrap();
//!     assert!(there || position < acknowledged);
//! }
//! ```

mod fuse;
mod log;
mod sys;

use crate::{Scratch, have, skipped, wait};
use fuse::Served;
use log::{Disk, Event, Pages};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// File system of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filesystem {
    /// ext4 with a journal, `data=ordered`, on 64 MiB.
    Ext4,
    /// XFS on 300 MiB, the least that it takes.
    Xfs,
}

impl Filesystem {
    fn bytes(self) -> u64 {
        match self {
            Self::Ext4 => 64 << 20,
            Self::Xfs => 300 << 20,
        }
    }

    /// Type for `mount`, command that makes it, options of the mount.
    fn words(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            Self::Ext4 => {
                let make = &[
                    "mkfs.ext4",
                    "-q",
                    "-F",
                    "-E",
                    "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                ];
                ("ext4", make, "loop,noatime")
            }
            // Images of one disk share its UUID.
            Self::Xfs => (
                "xfs",
                &["mkfs.xfs", "-q", "-f", "-K"],
                "loop,noatime,nouuid",
            ),
        }
    }
}

/// A disk with a file system, and the log of what was written to it.
///
/// **Threads**: the one that made it, and those that it started later, see its mounts.
#[derive(Debug)]
pub struct Power {
    // Dropped in this order: the connection ends before the mount point is removed.
    served: Served,
    scratch: Scratch,
    filesystem: Filesystem,
    disk: Arc<Mutex<Disk>>,
}

/// System call that a program makes something durable with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// fdatasync: [`File::sync_data`](std::fs::File::sync_data).
    Fdatasync,
    /// fsync: [`File::sync_all`](std::fs::File::sync_all), also of a directory.
    Fsync,
}

/// Plants a fault in unchanged code: runs `work` in a thread where the call reports success and does nothing, also in threads that
/// `work` starts. With `None`, no call is left out.
///
/// **Panics**: if `work` does, or if the kernel refuses the filter of system calls.
pub fn without<T: Send>(call: Option<Sync>, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let number = match call {
            None => return work(),
            Some(Sync::Fdatasync) => libc::SYS_fdatasync,
            Some(Sync::Fsync) => libc::SYS_fsync,
        };
        sys::left_out(number).expect("a thread may filter its own calls");
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A mounted file system, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// Unmounts it, once no file is open. A process that another thread has just started holds copies of all open files for a moment.
    fn unmount(&self) -> io::Result<()> {
        let mut last = Ok(());
        wait::within(Duration::from_secs(10), || {
            last = sys::unmount(&self.0, false);
            let busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
            !last.as_ref().is_err_and(busy)
        });
        last
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            let _ = sys::unmount(&self.0, true);
            assert!(
                std::thread::panicking(),
                "the workload still uses {}: {error}",
                self.0.display()
            );
        }
    }
}

impl Power {
    /// Makes a disk with an empty file system, whose log is empty. If the machine lacks something for that, prints the reason
    /// and returns `None`. The calling thread gets a mount namespace of its own.
    pub fn new(test: &str, filesystem: Filesystem) -> Option<Self> {
        let (kind, make, _) = filesystem.words();
        if !sys::is_root() {
            skipped(test, format_args!("only root mounts {kind}"));
            return None;
        }
        if let Some(device) = ["/dev/fuse", "/dev/loop-control"]
            .into_iter()
            .find(|path| !Path::new(path).exists())
        {
            skipped(test, format_args!("no {device}"));
            return None;
        }
        if !have(test, &["mount", make[0]]) {
            return None;
        }
        let disk = Disk::new(filesystem.bytes(), Pages::default());
        let made = sys::own_mounts().and_then(|()| Self::serve(filesystem, disk));
        let power = match made {
            Ok(power) => power,
            Err(error) => {
                skipped(test, format_args!("no mount of FUSE: {error}"));
                return None;
            }
        };
        let file = power.file();
        let done = Command::new(make[0])
            .args(&make[1..])
            .arg(&file)
            .output()
            .expect("it is installed");
        assert!(
            done.status.success(),
            "{make:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        // The first mount writes more than later ones.
        if let Err(error) = power.mounted(|_| ()) {
            skipped(
                test,
                format_args!("no mount of {kind} on a loop device: {error}"),
            );
            return None;
        }
        power.disk().begin();
        Some(power)
    }

    fn serve(filesystem: Filesystem, disk: Disk) -> io::Result<Self> {
        let scratch = Scratch::new();
        let at = scratch.path().join("fuse");
        std::fs::create_dir(&at)?;
        let disk = Arc::new(Mutex::new(disk));
        let served = Served::new(&at, disk.clone())?;
        Ok(Self {
            served,
            scratch,
            filesystem,
            disk,
        })
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of the disk, for programs that check file systems.
    pub fn file(&self) -> PathBuf {
        self.served.dir().join("disk")
    }

    /// Mounts the file system, runs `work` with its root directory, and unmounts it. Recovery of the journal comes first.
    ///
    /// **Errors**: the words of `mount`, if it refuses. **Panics**: if files are still open after `work`.
    pub fn mounted<T>(&self, work: impl FnOnce(&Path) -> T) -> Result<T, String> {
        let root = self.scratch.path().join("root");
        std::fs::create_dir_all(&root).map_err(|error| error.to_string())?;
        let (kind, _, options) = self.filesystem.words();
        let mut mount = Command::new("mount");
        let done = mount
            .args(["-t", kind, "-o", options])
            .arg(self.file())
            .arg(&root)
            .output();
        let done = done.map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
        let mounted = Mounted(root);
        Ok(work(&mounted.0))
    }

    /// Position in the log: the number of its entries so far. Everything that was flushed is in front of it.
    pub fn mark(&self) -> usize {
        self.disk().log().len()
    }

    /// Number of flushes in the log.
    pub fn flushes(&self) -> usize {
        self.disk()
            .log()
            .iter()
            .filter(|event| **event == Event::Flush)
            .count()
    }

    /// A disk as it may be when the power fails after the first `position` entries of the log.
    /// Equal seeds give equal disks.
    pub fn cut(&self, seed: u64, position: usize) -> Self {
        let pages = self.disk().cut(seed, position);
        self.with(pages)
    }

    /// A disk of the same kind with other contents.
    fn with(&self, pages: Pages) -> Self {
        Self::serve(self.filesystem, Disk::new(self.filesystem.bytes(), pages))
            .expect("the first one was mounted too")
    }
}

#[cfg(test)]
mod tests;
