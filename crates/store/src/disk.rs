//! Packets on disk: a directory of segments, each an ordinary pcapng file with an index next to it.
//!
//! ```text
//! DIR/                                               0700; files 0600
//!   lock                                             held by the one recorder; pid and start as text
//!   20261123T053614.123456789Z-000042.pcapng         segment of generation 42
//!   20261123T053614.123456789Z-000042.pcapng.zst     the same segment, if it was compressed after it was closed
//!   20261123T053614.123456789Z-000042.index          its index, made when the segment is closed
//!   trigger-NAME-20261123T053614.123456789Z.pcapng   packets that a trigger saved
//! ```
//! **Segment**: Section Header Block, then Interface Description Blocks just before the first
//! packet of an interface, Interface Statistics Blocks, Enhanced Packet Blocks, and a `mark` (a
//! block for local use) after each 64 KiB of packets. The bytes from one mark to the next are a
//! *block*: the unit of the index, of the checksum, and of damage. The formats are documented at
//! the modules `mark` and `index`.
//!
//! **Statistics** are at the begin and at the end of a segment, where packets were left out, and at
//! the end of each write. They count from the start of the run (`isb_starttime`, which no other run
//! has): arrived, lost before the disk. Those at the end of a segment have an `isb_endtime`. A
//! reader subtracts, within a segment and between two that follow each other; the stream of a
//! [`Reader`] ends with the sums.
//!
//! **Writes** are of whole blocks. Each is a multiple of 4096 bytes, ends with a mark, and goes
//! after all earlier ones: so any tool opens the segment at any time, and no write touches bytes
//! that were durable. The rest of a page is zeros inside the mark.
//!
//! **Durable** is what [`Recorder::sync`] returns: fdatasync of the segment, and fsync of the
//! directory once for each new file. When a segment is closed, all of it is made durable, then a
//! mark that says `end` is written, and then the index appears by a rename. These two become
//! durable with a later sync; if they are lost, the next recorder makes them again. So a segment
//! with that mark was complete once: damage in it is skipped. A segment without it was being
//! written when its recorder died: it is cut after its last good block.
//!
//! **Compression** replaces a closed segment by a file of zstd frames (module `compressed`); its
//! index stays, since all offsets refer to the plain segment. The compressed file is durable before
//! it gets its name, and only then the plain one is removed. While both are there they hold the
//! same bytes: a reader takes one of them, and the next recorder removes the plain one.
//!
//! **Threads**: one [`Recorder`] for a directory, on one thread; any number of [`Reader`]s in any process. There is no clock here:
//! times are passed in.

mod background;
mod compressed;
mod contents;
mod file;
mod index;
mod keys;
mod losses;
mod mark;
mod name;
mod order;
mod packets;
mod reader;
mod recorder;
mod recover;
mod retention;
mod scan;
mod select;
#[cfg(test)]
mod testing;

pub use file::{Disk, DiskFile, System, open_regular};
pub use index::IndexDamage;
pub use losses::{Gone, Killed, Lost};
pub use mark::Damage;
pub use name::{Segment, is_segment_or_index};
pub use reader::{Counts, IndexUse, Reader, Seam, SegmentUse};
pub use recorder::{Closed, Compression, Durable, Now, Opened, Recorder, Settings, Stats};
pub use recover::{Recovered, reindex};
pub use retention::{Removed, Retention};
pub use select::Selection;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Unit of writes, bytes.
pub const PAGE: usize = 4096;

/// Reason why a record directory cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another recorder writes to the directory.
    #[error("{} is being written by another recorder ({holder})", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Process id and start of the other recorder, as its lock says.
        holder: String,
    },
    /// The directory holds no record.
    #[error("{} {}", dir.display(), no_segments(dir, *saved))]
    NoRecord {
        /// The directory.
        dir: PathBuf,
        /// Number of files in it that triggers saved.
        saved: usize,
    },
    /// An operation on a file failed.
    #[error("{}: {action}{}: {source}{}", path.display(), at_offset(*offset), on_disk(*kept))]
    File {
        /// Name of the operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Offset in the file, bytes.
        offset: Option<u64>,
        /// Packets of the session on disk: all below this number.
        kept: Option<u64>,
        /// Reason.
        source: io::Error,
    },
    /// Too few bytes are free, and nothing is left to remove.
    #[error("{}: {free} bytes are free, {reserve} are to stay free, and there is no older segment to remove", dir.display())]
    NoRoom {
        /// The directory.
        dir: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes that stay free.
        reserve: u64,
    },
}

/// Says that a directory holds no segments, and what there is instead.
fn no_segments(dir: &Path, saved: usize) -> String {
    match saved {
        0 => "is not a record directory: it holds no segments".to_owned(),
        _ => {
            let (files, often) = match saved {
                1 => ("1 file".to_owned(), ""),
                _ => (
                    format!("{saved} files"),
                    "; a packet in several of them is counted as often",
                ),
            };
            format!(
                "holds no segments, as a recorder without --disk answers only while it runs; its triggers saved {files}: \
                 weir filter '' {}/trigger-*.pcapng{often}",
                dir.display()
            )
        }
    }
}

fn at_offset(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

fn on_disk(kept: Option<u64>) -> String {
    kept.map_or_else(String::new, |kept| {
        format!("; the packets below number {kept} are on disk")
    })
}

impl Error {
    fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            offset: None,
            kept: None,
            source,
        }
    }

    fn at(mut self, at: u64) -> Self {
        if let Self::File { offset, .. } = &mut self {
            *offset = Some(at);
        }
        self
    }

    fn keeping(mut self, number: u64) -> Self {
        if let Self::File { kept, .. } = &mut self {
            *kept = Some(number);
        }
        self
    }
}

/// Function that returns the free bytes of the file system of a path.
#[derive(Clone)]
pub struct FreeBytes(pub Arc<AskFree>);

type AskFree = dyn Fn(&Path) -> io::Result<u64> + Send + Sync;

impl fmt::Debug for FreeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreeBytes")
    }
}
