//! The bytes of a segment, whether its file is plain or compressed.

use super::Error;
use super::compressed::Compressed;
use super::file::open_to_read;
use super::name::Segment;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open segment. Offsets and lengths refer to the plain segment.
#[derive(Debug)]
pub(super) struct Contents {
    /// Path of the open file.
    pub(super) path: PathBuf,
    bytes: Bytes,
    /// Flag that ends the reading.
    pub(super) stop: Option<Arc<AtomicBool>>,
}

#[derive(Debug)]
enum Bytes {
    Plain(File),
    Compressed(Compressed),
}

impl Contents {
    /// Opens a segment. The plain file is removed after the compressed one has got its name, so a
    /// segment that a recorder compresses in the meantime is found as one of the two.
    pub(super) fn open(segment: &Segment) -> io::Result<Self> {
        match open_to_read(&segment.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::open_compressed(segment),
            file => Ok(Self {
                path: segment.path.clone(),
                bytes: Bytes::Plain(file?),
                stop: None,
            }),
        }
    }

    /// Opens the compressed file of a segment.
    pub(super) fn open_compressed(segment: &Segment) -> io::Result<Self> {
        let path = segment.compressed();
        let bytes = Bytes::Compressed(Compressed::open(open_to_read(&path)?)?);
        Ok(Self {
            path,
            bytes,
            stop: None,
        })
    }

    /// Length now.
    pub(super) fn len(&self) -> Result<u64, Error> {
        match &self.bytes {
            Bytes::Plain(file) => {
                let data = file
                    .metadata()
                    .map_err(|error| Error::file("opening", &self.path, error))?;
                Ok(data.len())
            }
            Bytes::Compressed(compressed) => Ok(compressed.len()),
        }
    }

    /// Offset of the next bytes from `offset` on that are stored; `None` if a hole reaches to the end. Bytes in holes are zeros.
    ///
    /// A file system that tells no holes, and a compressed file, store all bytes.
    pub(super) fn stored_from(&self, offset: u64) -> Option<u64> {
        let Bytes::Plain(file) = &self.bytes else {
            return Some(offset);
        };
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => Some(data.max(offset)),
            Err(rustix::io::Errno::NXIO) => None,
            Err(_) => Some(offset),
        }
    }

    pub(super) fn is_compressed(&self) -> bool {
        matches!(self.bytes, Bytes::Compressed(_))
    }

    /// Offset at which a compressed file is torn.
    pub(super) fn torn(&self) -> Option<u64> {
        match &self.bytes {
            Bytes::Plain(_) => None,
            Bytes::Compressed(compressed) => compressed.torn(),
        }
    }

    /// Bytes decompressed since the last call.
    pub(super) fn take_decompressed(&mut self) -> u64 {
        match &mut self.bytes {
            Bytes::Plain(_) => 0,
            Bytes::Compressed(compressed) => std::mem::take(&mut compressed.decompressed),
        }
    }

    /// Reads bytes.
    pub(super) fn read(&mut self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        let stopped = self
            .stop
            .as_ref()
            .is_some_and(|stop| stop.load(Ordering::Relaxed));
        let read = match &mut self.bytes {
            _ if stopped => Err(io::Error::other("stopped")),
            Bytes::Plain(file) => file.read_exact_at(bytes, offset),
            Bytes::Compressed(compressed) => compressed.read_exact_at(bytes, offset),
        };
        read.map_err(|error| Error::file("reading", &self.path, error).at(offset))
    }
}
