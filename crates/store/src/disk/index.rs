//! The index of a segment: which blocks hold packets of which times, addresses, ports, protocols and VLANs.
//!
//! The file, little endian:
//! ```text
//!  0  "weirindx"             8  version, 1 (u32)              12  bytes of header and tables, up to the first page (u32)
//! 16  generation (u64)      24  time in the name of the segment, ns since 1970 (i64)
//! 32  bytes of the segment  40  number of blocks (u32)        44  number of pages (u32)
//! 48  least time (i64)      56  greatest time (i64)           64  bytes of the set of unindexed blocks (u32)
//! 68  bytes of the head (u32)  72  CRC-32 of bytes 0..72                     76  CRC-32 of header and tables, these four bytes taken as 0
//! 80  blocks, 48 bytes each: 0 offset (u64)  8 bytes of the block (u32)  12 packets (u32)  16 number of the first packet (u64)
//!       24 least time (i64)  32 greatest time (i64)  40 interfaces described so far (u32)  44 bytes of the mark (u32)
//!     pages, 32 bytes each: 0 kind (u8)  1 0 (3 bytes)  4 bytes (u32)  8 offset (u64)  16 first key (16 bytes, big endian)
//!     set of unindexed blocks: some keys of theirs found no room, so that any key may be in them
//!     head: Section Header Block and Interface Description Blocks of the segment, then the first and then the last Interface
//!       Statistics Block of each interface; a block of type 0x80000bae if a damaged block described the interfaces
//! page: entries of one kind, sorted by key, and a CRC-32 of them in its last four bytes
//! entry: key (1, 2, 4 or 16 bytes, big endian), set of blocks
//! set: varint n: if even, n / 2 numbers follow as varints, each the distance to the one before (the first: to 0);
//!       if odd, n / 2 bytes of a roaring bitmap in its portable form follow
//! ```
//! A lookup reads the tables and one page for each key.

mod build;
mod read;

pub(super) use build::Builder;
pub use read::IndexDamage;
pub(super) use read::{Header, Index, orphan};

use super::mark::{self, Block};

const MAGIC: &[u8; 8] = b"weirindx";
const VERSION: u32 = 1;
const HEADER: usize = 80;
/// Place of the checksum of the header alone.
const OWN_CHECKSUM: usize = 72;
const CHECKSUM: usize = 76;
const BLOCK: usize = 48;
const PAGE: usize = 32;

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Offset of the block in the segment.
    pub(super) offset: u64,
    pub(super) block: Block,
    /// Interfaces described up to the end of the block.
    pub(super) interfaces: u32,
    /// Bytes of the mark after the block.
    pub(super) mark: u32,
}

impl Entry {
    /// Bytes of the block and its mark.
    pub(super) fn len(&self) -> usize {
        self.block.bytes as usize + self.mark as usize
    }

    /// The entry of the block whose mark of `len` bytes says this.
    pub(super) fn of(mark: &mark::Mark, len: usize) -> Self {
        Self {
            // A mark that was not checked may say anything.
            offset: mark.offset.wrapping_sub(mark.block.bytes.into()),
            block: mark.block,
            interfaces: mark.interfaces,
            mark: len as u32,
        }
    }
}

#[cfg(test)]
mod tests;
