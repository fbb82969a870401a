//! Compressed segments: zstd frames, each of which is decompressed on its own.
//!
//! The file is one of the zstd seekable format (facebook/zstd, `contrib/seekable_format/zstd_seekable_compression_format.md`), so
//! `zstd -dc` gives the segment, byte for byte:
//! ```text
//! frames: zstd frames (RFC 8878) with content size and checksum, each of whole blocks, at most 1 MiB unless a block is longer
//! check, a skippable frame, little endian:
//!  0  0x184D2A50            4  4: bytes behind this field (u32)
//!  8  CRC-32 of the seek table
//! seek table, a skippable frame:
//!  0  0x184D2A5E            4  bytes behind this field (u32)
//!  8  frames, 8 bytes each: 0 compressed bytes (u32)  4 bytes (u32)
//!  n  number of frames (u32)  n + 4  0: no checksums here (u8)  n + 5  0x8F92EAB1
//! ```
//! **Damage**: a frame that cannot be decompressed reads as zeros. No mark is there then, so that
//! its blocks count as damaged. Without a good seek table the frames are walked from the first on;
//! bytes after the last good one read as that many zeros.

use super::file::{self, DiskFile};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use zstd::bulk;
use zstd::zstd_safe::{
    CParameter, compress_bound, find_frame_compressed_size, get_frame_content_size,
};

/// Bytes of a frame, unless one block is longer.
const FRAME: u64 = 1 << 20;
/// Largest number of bytes of a frame.
const MOST: u64 = 4 << 20;

const CHECK: u32 = 0x184d_2a50;
const CHECK_LEN: usize = 12;
const TABLE: u32 = 0x184d_2a5e;
const TABLE_END: u32 = 0x8f92_eab1;
const HEAD: usize = 8;
const ENTRY: usize = 8;
const FOOTER: usize = 9;

/// Sizes of a frame, bytes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    compressed: u32,
    plain: u32,
}

/// A frame of a file.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Offset in the segment.
    start: u64,
    /// Offset in the file.
    offset: u64,
    /// Bytes in the file; 0 for bytes that belong to no frame.
    len: usize,
}

/// An open compressed segment.
#[derive(Debug)]
pub(super) struct Compressed {
    file: File,
    frames: Vec<Frame>,
    len: u64,
    torn: Option<u64>,
    /// Number of the frame in `bytes`.
    cached: Option<usize>,
    bytes: Vec<u8>,
    packed: Vec<u8>,
    /// Bytes decompressed so far.
    pub(super) decompressed: u64,
}

impl Compressed {
    /// Reads the seek table, or walks the frames. **Errors**: errors of the system.
    pub(super) fn open(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let (found, whole) = match table(&file, size)? {
            Some(found) => (found, true),
            None => walk(&file, size)?,
        };
        let (mut frames, mut len, mut offset) = (Vec::with_capacity(found.len()), 0, 0);
        for Sizes { compressed, plain } in found {
            frames.push(Frame {
                start: len,
                offset,
                len: compressed as usize,
            });
            offset += u64::from(compressed);
            len += u64::from(plain);
        }
        let torn = (!whole).then_some(len);
        if !whole && offset < size {
            frames.push(Frame {
                start: len,
                offset,
                len: 0,
            });
            len += size - offset;
        }
        let (bytes, packed) = (Vec::new(), Vec::new());
        Ok(Self {
            file,
            frames,
            len,
            torn,
            cached: None,
            bytes,
            packed,
            decompressed: 0,
        })
    }

    /// Bytes of the segment.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Offset in the segment at which the file is torn.
    pub(super) fn torn(&self) -> Option<u64> {
        self.torn
    }

    /// Reads bytes of the segment.
    pub(super) fn read_exact_at(&mut self, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
        if offset
            .checked_add(out.len() as u64)
            .is_none_or(|end| end > self.len)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !out.is_empty() {
            let behind = self.frames.partition_point(|frame| frame.start <= offset);
            let number = behind.checked_sub(1).ok_or(io::ErrorKind::UnexpectedEof)?;
            let end = self
                .frames
                .get(behind)
                .map_or(self.len, |frame| frame.start);
            let len = (end - offset).min(out.len() as u64) as usize;
            let (now, rest) = out.split_at_mut(len);
            let Frame {
                start, len: packed, ..
            } = self.frames[number];
            if packed == 0 {
                now.fill(0);
            } else {
                self.load(number, (end - start) as usize)?;
                let from = (offset - start) as usize;
                now.copy_from_slice(&self.bytes[from..from + len]);
            }
            (out, offset) = (rest, offset + len as u64);
        }
        Ok(())
    }

    /// Decompresses a frame of `len` bytes, unless it was the last frame to be decompressed.
    fn load(&mut self, number: usize, len: usize) -> io::Result<()> {
        if self.cached == Some(number) {
            return Ok(());
        }
        self.cached = None;
        let Frame {
            offset,
            len: packed,
            ..
        } = self.frames[number];
        self.packed.resize(packed, 0);
        self.file.read_exact_at(&mut self.packed, offset)?;
        self.bytes.resize(len, 0);
        if bulk::decompress_to_buffer(&self.packed, &mut self.bytes[..]).ok() != Some(len) {
            self.bytes.fill(0);
        }
        self.decompressed += len as u64;
        self.cached = Some(number);
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the length was checked"))
}

/// The frames by the seek table at the end of a file of `size` bytes; `None` if there is no good one.
fn table(file: &File, size: u64) -> io::Result<Option<Vec<Sizes>>> {
    let mut footer = [0; FOOTER];
    let Some(at) = size.checked_sub(FOOTER as u64) else {
        return Ok(None);
    };
    file.read_exact_at(&mut footer, at)?;
    let (count, described) = (u64::from(word(&footer, 0)), footer[4]);
    let body = count * ENTRY as u64 + FOOTER as u64;
    let Some(start) = size.checked_sub(body + (CHECK_LEN + HEAD) as u64) else {
        return Ok(None);
    };
    // The count bounds the memory only if frames that many fit in the file.
    if word(&footer, 5) != TABLE_END || described != 0 || count > start {
        return Ok(None);
    }
    let mut bytes = vec![0; (size - start) as usize];
    file.read_exact_at(&mut bytes, start)?;
    let (check, table) = bytes.split_at(CHECK_LEN);
    let is_table = word(table, 0) == TABLE && u64::from(word(table, 4)) == body;
    if !is_table || word(check, 0) != CHECK || word(check, 8) != crc32fast::hash(table) {
        return Ok(None);
    }
    let entries = table[HEAD..table.len() - FOOTER].chunks_exact(ENTRY);
    let sizes: Vec<_> = entries
        .map(|entry| Sizes {
            compressed: word(entry, 0),
            plain: word(entry, 4),
        })
        .collect();
    let sound = |sizes: &Sizes| {
        let most = compress_bound(sizes.plain as usize) as u64;
        (1..=MOST).contains(&sizes.plain.into()) && (1..=most).contains(&sizes.compressed.into())
    };
    let sum: u64 = sizes.iter().map(|sizes| u64::from(sizes.compressed)).sum();
    Ok((sum == start && sizes.iter().all(sound)).then_some(sizes))
}

/// The frames from the start of a file of `size` bytes on, and whether the check of a seek table
/// begins after them.
fn walk(file: &File, size: u64) -> io::Result<(Vec<Sizes>, bool)> {
    let most = compress_bound(MOST as usize) as u64;
    let (mut found, mut at, mut piece) = (Vec::new(), 0, Vec::new());
    loop {
        let len = (size - at).min(2 * most);
        piece.resize(len as usize, 0);
        file.read_exact_at(&mut piece, at)?;
        let is_last = at + len == size;
        let mut rest = &piece[..];
        while is_last || rest.len() as u64 >= most {
            if rest.starts_with(&CHECK.to_le_bytes()) {
                return Ok((found, true));
            }
            let Some(sizes) = frame(rest) else {
                return Ok((found, false));
            };
            rest = &rest[sizes.compressed as usize..];
            found.push(sizes);
        }
        at += len - rest.len() as u64;
    }
}

/// Sizes of the frame at the start of `bytes`.
fn frame(bytes: &[u8]) -> Option<Sizes> {
    let compressed = find_frame_compressed_size(bytes).ok()?;
    let plain = get_frame_content_size(bytes).ok()??;
    let sound = (1..=MOST).contains(&plain)
        && compressed > 0
        && compressed <= compress_bound(plain as usize);
    sound.then_some(Sizes {
        compressed: compressed as u32,
        plain: plain as u32,
    })
}

/// Ends of the frames of a segment of `len` bytes, given the ends of its blocks.
fn cuts(blocks: impl Iterator<Item = u64>, len: u64) -> Vec<u64> {
    let (mut cuts, mut start, mut last) = (Vec::new(), 0, 0);
    for end in blocks.chain([len]) {
        let end = end.clamp(last, len);
        if end - start > FRAME && last > start {
            cuts.push(last);
            start = last;
        }
        // Damage can make the distance between two blocks as long as it likes.
        while end - start > MOST {
            start += MOST;
            cuts.push(start);
        }
        last = end;
    }
    if len > start {
        cuts.push(len);
    }
    cuts
}

/// Compresses a segment of `len` bytes with blocks that end at `blocks`, and returns the number of bytes written to `out`. Returns
/// `None` if they would be more than `most`, or as soon as `stop` is set.
pub(super) fn compress(
    plain: &File,
    len: u64,
    blocks: impl Iterator<Item = u64>,
    level: i32,
    out: &mut dyn DiskFile,
    most: u64,
    stop: &AtomicBool,
) -> io::Result<Option<u64>> {
    let mut compressor = bulk::Compressor::new(level)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    let (mut bytes, mut packed, mut table) = (Vec::new(), Vec::new(), Vec::new());
    let (mut start, mut written) = (0, 0);
    let cuts = cuts(blocks, len);
    table.extend_from_slice(&TABLE.to_le_bytes());
    table.extend_from_slice(&((cuts.len() * ENTRY + FOOTER) as u32).to_le_bytes());
    for &end in &cuts {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        bytes.resize((end - start) as usize, 0);
        plain.read_exact_at(&mut bytes, start)?;
        packed.clear();
        packed.reserve(compress_bound(bytes.len()));
        compressor.compress_to_buffer(&bytes, &mut packed)?;
        if written + packed.len() as u64 > most {
            return Ok(None);
        }
        file::write_all(out, &packed, written)?;
        written += packed.len() as u64;
        table.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        table.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        start = end;
    }
    table.extend_from_slice(&(cuts.len() as u32).to_le_bytes());
    table.push(0);
    table.extend_from_slice(&TABLE_END.to_le_bytes());
    let check = [CHECK, 4, crc32fast::hash(&table)]
        .map(u32::to_le_bytes)
        .concat();
    let table = [check, table].concat();
    let size = written + table.len() as u64;
    if size > most {
        return Ok(None);
    }
    file::write_all(out, &table, written)?;
    Ok(Some(size))
}

#[cfg(test)]
mod tests;
