//! Reading an index.

use super::super::file::open_to_read;
use super::super::keys::Kind;
use super::super::mark::Block;
use super::super::scan;
use super::{BLOCK, CHECKSUM, Entry, HEADER, MAGIC, OWN_CHECKSUM, PAGE, VERSION};
use roaring::RoaringBitmap;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Largest number of bytes of header and tables.
const MOST: usize = 1 << 30;
/// Pages that lie side by side are read together, up to this many bytes.
const TOGETHER: usize = 1 << 20;

/// Reason why an index cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexDamage {
    /// The index cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is not an index.
    #[error("the file is not an index")]
    Magic,
    /// The index has another version.
    #[error("version {0}, and 1 is known")]
    Version(u32),
    /// The index is of another segment, or of an earlier state of this one.
    #[error("it describes another segment")]
    Other,
    /// The segment lost its end.
    #[error("it describes {0} bytes, and the segment has fewer")]
    Longer(u64),
    /// The file ends early, or a checksum is wrong.
    #[error("the checksum of its {0} is wrong")]
    Checksum(&'static str),
}

/// A page of keys.
#[derive(Debug)]
struct Page {
    kind: Kind,
    first: u128,
    offset: u64,
    len: usize,
}

/// An open index: the tables; pages are read when they are needed.
#[derive(Debug)]
pub(in super::super) struct Index {
    file: File,
    pub(in super::super) blocks: Vec<Entry>,
    pages: Vec<Page>,
    pub(in super::super) unindexed: RoaringBitmap,
    /// Section header and interfaces of the segment, as pcapng blocks.
    pub(in super::super) head: Vec<u8>,
    /// Bytes read so far.
    pub(in super::super) read: u64,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the length was checked"))
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the length was checked"))
}

/// Header of an index: enough to leave a segment out by its times.
#[derive(Debug)]
pub(in super::super) struct Header {
    file: File,
    bytes: [u8; HEADER],
    /// Least and greatest time.
    pub(in super::super) times: (i64, i64),
    /// Number of blocks.
    pub(in super::super) blocks: u32,
}

/// Facts about a segment that somebody removed, as its index tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Orphan {
    /// Least and greatest time of its packets; all times if the index is damaged.
    pub(in super::super) times: (i64, i64),
    /// Number of its packets; `None` if the index is damaged.
    pub(in super::super) packets: Option<u64>,
}

/// Reads what the index at `path` tells of its segment, which is not there; `None` if there is no such index, or if no packet was
/// in the segment.
pub(in super::super) fn orphan(path: &Path, generation: u64, start_ns: i64) -> Option<Orphan> {
    let index = match Header::open(path, generation, start_ns, 0) {
        // The segment has less than it describes: nothing.
        Err(IndexDamage::Longer(len)) => Index::open(path, generation, start_ns, len),
        header => header.and_then(Index::behind),
    };
    match index {
        Ok(index) => {
            let packets = index
                .blocks
                .iter()
                .map(|entry| u64::from(entry.block.packets))
                .sum();
            let with_packets = || {
                index
                    .blocks
                    .iter()
                    .map(|entry| entry.block)
                    .filter(|block| block.packets > 0)
            };
            let least = with_packets().map(|block| block.min_ns).min()?;
            let greatest = with_packets().map(|block| block.max_ns).max()?;
            Some(Orphan {
                times: (least, greatest),
                packets: Some(packets),
            })
        }
        Err(IndexDamage::Io(_) | IndexDamage::Magic | IndexDamage::Other) => None,
        Err(_) => Some(Orphan {
            times: (i64::MIN, i64::MAX),
            packets: None,
        }),
    }
}

impl Header {
    /// Reads the header of the index at `path` of a segment of this generation, start and length.
    pub(in super::super) fn open(
        path: &Path,
        generation: u64,
        start_ns: i64,
        len: u64,
    ) -> Result<Self, IndexDamage> {
        let file = open_to_read(path)?;
        let mut bytes = [0; HEADER];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(IndexDamage::Magic);
            }
            read => read?,
        }
        if bytes[..8] != *MAGIC {
            return Err(IndexDamage::Magic);
        }
        if word(&bytes, 8) != VERSION {
            return Err(IndexDamage::Version(word(&bytes, 8)));
        }
        if crc32fast::hash(&bytes[..OWN_CHECKSUM]) != word(&bytes, OWN_CHECKSUM) {
            return Err(IndexDamage::Checksum("header"));
        }
        let described = wide(&bytes, 32);
        if (wide(&bytes, 16), wide(&bytes, 24) as i64) != (generation, start_ns) || described < len
        {
            return Err(IndexDamage::Other);
        }
        if described > len {
            return Err(IndexDamage::Longer(described));
        }
        let times = (wide(&bytes, 48) as i64, wide(&bytes, 56) as i64);
        Ok(Self {
            file,
            bytes,
            times,
            blocks: word(&bytes, 40),
        })
    }
}

impl Index {
    /// Opens the index at `path` of a segment of this generation, start and length.
    pub(in super::super) fn open(
        path: &Path,
        generation: u64,
        start_ns: i64,
        bytes: u64,
    ) -> Result<Self, IndexDamage> {
        Self::behind(Header::open(path, generation, start_ns, bytes)?)
    }

    /// Reads the tables after a header.
    pub(in super::super) fn behind(header: Header) -> Result<Self, IndexDamage> {
        let Header {
            file, bytes: start, ..
        } = header;
        let size = file.metadata()?.len();
        let (tables, blocks, pages) = (
            word(&start, 12) as usize,
            word(&start, 40) as usize,
            word(&start, 44) as usize,
        );
        let (unindexed, interfaces) = (word(&start, 64) as usize, word(&start, 68) as usize);
        let wrong = IndexDamage::Checksum("tables");
        let sum = HEADER + blocks * BLOCK + pages * PAGE + unindexed + interfaces;
        if sum != tables || tables > MOST || tables as u64 > size {
            return Err(wrong);
        }
        let mut head = vec![0; tables];
        file.read_exact_at(&mut head, 0)?;
        let stored = word(&head, CHECKSUM);
        head[CHECKSUM..HEADER].fill(0);
        if crc32fast::hash(&head) != stored || head[..CHECKSUM] != start[..CHECKSUM] {
            return Err(wrong);
        }
        let bytes = wide(&start, 32);
        let (blocks, rest) = head[HEADER..].split_at(blocks * BLOCK);
        let (pages, rest) = rest.split_at(pages * PAGE);
        let entries: Vec<_> = blocks.chunks_exact(BLOCK).map(entry).collect();
        let pages: Option<Vec<_>> = pages.chunks_exact(PAGE).map(page).collect();
        let (rest, interfaces) = rest.split_at(unindexed);
        // Blocks that overlap would be read twice, and a block longer than any that is written takes memory.
        let mut free = 0;
        let is_behind = |entry: &Entry| {
            let end = entry.offset.checked_add(entry.len() as u64);
            let is_sound = entry.offset >= free && entry.len() <= scan::PIECE;
            free = end.unwrap_or(u64::MAX);
            is_sound && free <= bytes
        };
        let mut unindexed = RoaringBitmap::new();
        let sound = set(rest, Some(&mut unindexed)).is_some() && entries.iter().all(is_behind);
        match pages {
            Some(pages) if sound && pages.iter().all(|page| page.len >= 4) => Ok(Self {
                file,
                blocks: entries,
                pages,
                unindexed,
                head: interfaces.to_vec(),
                read: tables as u64,
            }),
            _ => Err(wrong),
        }
    }

    /// Blocks that may hold a key of this kind in this range: indexed blocks that do, and all
    /// unindexed blocks.
    pub(in super::super) fn blocks_of(
        &mut self,
        kind: Kind,
        range: RangeInclusive<u128>,
    ) -> Result<RoaringBitmap, IndexDamage> {
        let mut found = self.unindexed.clone();
        let of_kind = |page: &Page| page.kind == kind;
        let start = self
            .pages
            .iter()
            .position(of_kind)
            .unwrap_or(self.pages.len());
        let end = start
            + self.pages[start..]
                .iter()
                .take_while(|page| of_kind(page))
                .count();
        // The range may begin in the page before the first page that begins in it.
        let ahead = self.pages[start..end].partition_point(|page| page.first <= *range.start());
        let from = start + ahead.saturating_sub(1);
        let to = start + self.pages[start..end].partition_point(|page| page.first <= *range.end());
        let mut at = from;
        while at < to {
            let first = self.pages[at].offset;
            let mut len = 0;
            let near = self.pages[at..to].iter().take_while(|page| {
                let adjoins = page.offset.checked_sub(first) == Some(len as u64) && len < TOGETHER;
                len += if adjoins { page.len } else { 0 };
                adjoins
            });
            let count = near.count().max(1);
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, first)?;
            self.read += len as u64;
            let mut rest = &bytes[..];
            for page in &self.pages[at..at + count] {
                let (this, behind) = rest.split_at(page.len);
                let (entries, checksum) = this.split_at(this.len() - 4);
                if crc32fast::hash(entries).to_le_bytes() != *checksum {
                    return Err(IndexDamage::Checksum("keys"));
                }
                entries_in(entries, kind, &range, &mut found)
                    .ok_or(IndexDamage::Checksum("keys"))?;
                rest = behind;
            }
            at += count;
        }
        Ok(found)
    }

    /// Checks every page.
    pub(in super::super) fn check(&mut self) -> Result<(), IndexDamage> {
        Kind::ALL
            .into_iter()
            .try_for_each(|kind| self.blocks_of(kind, 0..=u128::MAX).map(drop))
    }
}

fn entry(bytes: &[u8]) -> Entry {
    let block = Block {
        bytes: word(bytes, 8),
        packets: word(bytes, 12),
        first: wide(bytes, 16),
        min_ns: wide(bytes, 24) as i64,
        max_ns: wide(bytes, 32) as i64,
    };
    Entry {
        offset: wide(bytes, 0),
        block,
        interfaces: word(bytes, 40),
        mark: word(bytes, 44),
    }
}

fn page(bytes: &[u8]) -> Option<Page> {
    let first = u128::from_be_bytes(*bytes[16..].first_chunk()?);
    Some(Page {
        kind: Kind::of(bytes[0])?,
        first,
        offset: wide(bytes, 8),
        len: word(bytes, 4) as usize,
    })
}

/// Adds the blocks of the entries in this range to `found`.
fn entries_in(
    mut entries: &[u8],
    kind: Kind,
    range: &RangeInclusive<u128>,
    found: &mut RoaringBitmap,
) -> Option<()> {
    while !entries.is_empty() {
        let (key, rest) = entries.split_at_checked(kind.len())?;
        let key = key.iter().fold(0, |key, &byte| key << 8 | u128::from(byte));
        if key > *range.end() {
            break;
        }
        entries = set(rest, range.contains(&key).then_some(&mut *found))?;
    }
    Some(())
}

fn varint(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u32;
    for (at, &byte) in bytes.iter().enumerate().take(5) {
        value |= u32::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte < 0x80 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Adds the set at the start of `bytes` to `found`, if that is wanted, and returns the bytes after
/// it.
fn set<'a>(bytes: &'a [u8], mut found: Option<&mut RoaringBitmap>) -> Option<&'a [u8]> {
    let (n, mut rest) = varint(bytes)?;
    if n & 1 == 1 {
        let (bitmap, behind) = rest.split_at_checked(n as usize >> 1)?;
        if let Some(found) = found {
            *found |= RoaringBitmap::deserialize_from(bitmap).ok()?;
        }
        return Some(behind);
    }
    let mut block = 0u32;
    for _ in 0..n >> 1 {
        let (step, behind) = varint(rest)?;
        block = block.checked_add(step)?;
        if let Some(found) = &mut found {
            found.insert(block);
        }
        rest = behind;
    }
    Some(rest)
}
