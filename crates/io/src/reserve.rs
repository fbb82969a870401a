//! Disk space that stays free, whatever is written.

use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes after which the free space is requested again, at most.
const MOST: u64 = 8 << 20;

/// Disk space that stays free: no file grows into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// 1 GiB, or a twentieth of the file system if that is less.
    #[default]
    Usual,
    /// This many bytes.
    Bytes(u64),
    /// `bytes`, and room for a record that grows at the same time.
    Record {
        /// Bytes that stay free.
        bytes: u64,
        /// Bytes that the record may write before its own limit is checked.
        ahead: u64,
    },
}

impl Reserve {
    /// Bytes of a file system of `size` bytes that stay free.
    pub fn of(self, size: u64) -> u64 {
        match self {
            Self::Usual => (1 << 30).min(size / 20),
            Self::Bytes(bytes) => bytes,
            Self::Record { bytes, ahead } => bytes.saturating_add(ahead),
        }
    }

    /// Error for a disk of `size` bytes with too few free ones for `needed` more.
    fn too_little(self, (free, size): (u64, u64), needed: u64) -> io::Error {
        let (reserve, record) = match self {
            Self::Record { bytes, ahead } => (bytes, format!("{ahead} are for the record, ")),
            other => (other.of(size), String::new()),
        };
        let why = format!(
            "{free} bytes of the disk are free: {needed} are needed, {record}and {reserve} are to stay free (--reserve)"
        );
        io::Error::new(io::ErrorKind::StorageFull, why)
    }

    /// Checks that `bytes`, and a page at least, can be written where `file` is, once `freed` bytes of it are free. **Errors**: as of
    /// [`Watch::take`].
    pub fn check(self, file: impl AsFd, freed: u64, bytes: usize) -> io::Result<()> {
        /// Bytes that the smallest file takes of a disk.
        const PAGE: u64 = 4096;
        let (free, size) = sys::space_of(file.as_fd())?;
        let (reserve, needed) = (self.of(size), PAGE.max(bytes as u64));
        if size == 0 || free.saturating_add(freed) >= reserve.saturating_add(needed) {
            return Ok(());
        }
        Err(self.too_little((free, size), needed))
    }
}

/// Watch over the free space after one file that is written.
///
/// **Cost**: a system call for each 8 MiB, and more as the reserve comes near: up to one for each write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    reserve: Reserve,
    /// Bytes that may be written before the free space is requested again.
    left: u64,
}

impl Watch {
    /// A watch over this reserve.
    pub fn new(reserve: Reserve) -> Self {
        Self { reserve, left: 0 }
    }

    /// Checks that the file may take `bytes` more. **Errors**: `StorageFull` if they are not free
    /// beyond the reserve; errors of the system.
    #[inline]
    pub fn take(&mut self, file: impl AsFd, bytes: usize) -> io::Result<()> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.ask(file.as_fd(), bytes as u64),
        }
    }

    #[cold]
    fn ask(&mut self, file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
        let (free, size) = sys::space_of(file)?;
        if size == 0 {
            // A file system that tells nothing.
            self.left = MOST;
            return Ok(());
        }
        let reserve = self.reserve.of(size);
        // Others write too, each with a watch of its own: the nearer the reserve, the more often each of them asks.
        let beyond = free.saturating_sub(reserve);
        self.left = (beyond / 16).min(MOST);
        if beyond >= bytes {
            return Ok(());
        }
        Err(self.reserve.too_little((free, size), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_up_to_the_reserve() {
        let file = weir_testkit::Scratch::new();
        let path = file.path().join("a");
        let file = std::fs::File::create(&path).unwrap();
        let (free, size) = sys::space_of(file.as_fd()).unwrap();
        assert!(free > 0 && size >= free);
        assert_eq!(Reserve::Usual.of(40), 2);
        assert_eq!(Reserve::Usual.of(1 << 50), 1 << 30);
        Watch::new(Reserve::Bytes(0)).take(&file, 1).unwrap();
        let refused = Watch::new(Reserve::Bytes(u64::MAX))
            .take(&file, 1)
            .unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let words = format!("are free: 1 are needed, and {} are to stay free", u64::MAX);
        assert!(refused.to_string().contains(&words), "{refused}");
        // A saved file tells what the record takes from the number that the user gave.
        let record = Reserve::Record {
            bytes: 5,
            ahead: u64::MAX - 7,
        };
        assert_eq!(record.of(40), u64::MAX - 2);
        let refused = Watch::new(record).take(&file, 2).unwrap_err().to_string();
        let words = format!(
            "2 are needed, {} are for the record, and 5 are",
            u64::MAX - 7
        );
        assert!(refused.contains(&words), "{refused}");
    }
}
