//! Finding the blocks of a segment by its marks: without an index, after a crash, after damage.

use super::contents::Contents;
use super::index::Entry;
use super::mark::{self, Block, Damage, Mark};
use super::name::Segment;
use super::{Error, PAGE};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once. Larger than any block.
pub(super) const PIECE: usize = 4 << 20;

/// Blocks of a segment that were found good.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) blocks: Vec<Entry>,
    /// Bytes up to the end of the first run of good blocks.
    pub(super) good: u64,
    /// Reason why that run ends; `None` at the end of the file.
    pub(super) damage: Option<Damage>,
    /// Places with damage.
    pub(super) damaged: u64,
    /// Runs of whole pcapng blocks in these places: their packets can be read, and nothing tells whether they are those recorded.
    pub(super) holes: Vec<Entry>,
}

/// A file with the piece of it that was read last.
struct Window<'a> {
    file: &'a mut Contents,
    segment: &'a Segment,
    len: u64,
    bytes: Vec<u8>,
    at: u64,
}

impl Window<'_> {
    /// Bytes from `offset` on: at least [`PIECE`] / 2, or all to the end of the file.
    fn from(&mut self, offset: u64) -> Result<&[u8], Error> {
        let end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset > end || end < self.len && end - offset < PIECE as u64 / 2 {
            let len = (self.len - offset.min(self.len)).min(PIECE as u64);
            self.bytes.resize(len as usize, 0);
            self.file.read(&mut self.bytes, offset)?;
            self.at = offset;
        }
        Ok(&self.bytes[(offset - self.at) as usize..])
    }
}

/// Length of the pcapng blocks from the start of `bytes` to the first mark.
fn to_mark(bytes: &[u8]) -> Result<usize, Damage> {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        if mark::is_mark(rest) {
            return Ok(at);
        }
        at += whole_block(rest)?;
    }
}

/// Length of the pcapng block at the start of `bytes`.
fn whole_block(bytes: &[u8]) -> Result<usize, Damage> {
    let Some(head) = bytes.first_chunk::<12>() else {
        return Err(Damage::Short);
    };
    let total = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if total < 12 || !total.is_multiple_of(4) || total > PIECE / 2 {
        return Err(Damage::Structure);
    }
    let Some(block) = bytes.get(..total) else {
        return Err(Damage::Short);
    };
    if block[total - 4..] != (total as u32).to_le_bytes() {
        return Err(Damage::Structure);
    }
    Ok(total)
}

/// The mark of a block of `segment` at the start of `bytes`, which was written at `offset`; its length; all checked but its number.
fn block(
    segment: &Segment,
    bytes: &[u8],
    offset: u64,
    len: usize,
) -> Result<(Mark, usize), Damage> {
    let (mark, mark_len) = Mark::parse(&bytes[len..])?;
    if (mark.generation, mark.start_ns) != (segment.generation, segment.start_ns) {
        return Err(Damage::Generation);
    }
    if mark.offset != offset.wrapping_add(len as u64) || mark.block.bytes as usize != len {
        return Err(Damage::Order);
    }
    mark::check(bytes, len)?;
    Ok((mark, mark_len))
}

/// Checks that a block of `segment`, wherever it lies now, is the block of its index entry.
pub(super) fn check(segment: &Segment, bytes: &[u8], entry: &Entry) -> Result<(), Damage> {
    let len = entry.block.bytes as usize;
    let (mark, _) = Mark::parse(bytes.get(len..).ok_or(Damage::Short)?)?;
    if (mark.generation, mark.start_ns) != (segment.generation, segment.start_ns) {
        return Err(Damage::Generation);
    }
    if mark.block != entry.block {
        return Err(Damage::Order);
    }
    mark::check(bytes, len)
}

/// Reads a segment of `len` bytes from its start on. After damage the scan goes on at the next good
/// mark, also where bytes are missing or too many, so that all after them lie at other places.
pub(super) fn forward(file: &mut Contents, segment: &Segment, len: u64) -> Result<Scan, Error> {
    let mut window = Window {
        file,
        segment,
        len,
        bytes: Vec::new(),
        at: 0,
    };
    let mut scan = Scan::default();
    let (mut offset, mut moved) = (0, 0);
    while offset < len {
        let bytes = window.from(offset)?;
        let next = scan.blocks.len() as u32;
        let found =
            to_mark(bytes).and_then(|len| block(segment, bytes, offset.wrapping_sub(moved), len));
        let damage = match found {
            Ok((mark, mark_len)) if scan.damage.is_some() || mark.number == next => {
                let entry = Entry {
                    offset,
                    ..Entry::of(&mark, mark_len)
                };
                offset += entry.len() as u64;
                scan.blocks.push(entry);
                if scan.damage.is_none() {
                    scan.good = offset;
                }
                continue;
            }
            Ok(_) => Damage::Order,
            Err(damage) => damage,
        };
        scan.damage.get_or_insert(damage);
        scan.damaged += 1;
        let behind = resync(&mut window, offset, scan.blocks.last())?;
        let end = behind.map_or(len, |(entry, _)| entry.offset);
        let around = (scan.blocks.last().copied(), behind.map(|(entry, _)| entry));
        holes(&mut window, offset, end, around, &mut scan.holes)?;
        let Some((entry, claimed)) = behind else {
            break;
        };
        (offset, moved) = (
            entry.offset + entry.len() as u64,
            entry.offset.wrapping_sub(claimed),
        );
        scan.blocks.push(entry);
    }
    Ok(scan)
}

/// Whether an entry is a run of pcapng blocks without a mark.
pub(super) fn is_hole(entry: &Entry) -> bool {
    entry.mark == 0
}

/// Runs of whole pcapng blocks of a segment in this range, which lies between two blocks.
pub(super) fn between(
    file: &mut Contents,
    segment: &Segment,
    (from, to): (u64, u64),
    (before, behind): (Option<Entry>, Option<Entry>),
) -> Result<Vec<Entry>, Error> {
    let (len, mut found) = (file.len()?, Vec::new());
    let mut window = Window {
        file,
        segment,
        len,
        bytes: Vec::new(),
        at: 0,
    };
    holes(&mut window, from, to, (before, behind), &mut found)?;
    Ok(found)
}

/// Notes the runs of whole pcapng blocks from `offset` to `end`, which lie between two good blocks, as any reader of pcapng finds them.
fn holes(
    window: &mut Window<'_>,
    mut offset: u64,
    end: u64,
    (before, behind): (Option<Entry>, Option<Entry>),
    found: &mut Vec<Entry>,
) -> Result<(), Error> {
    /// Bytes of a run, at most, unless one block is longer.
    const RUN: usize = 1 << 20;
    let first = before.map_or(0, |entry| {
        entry.block.first + u64::from(entry.block.packets)
    });
    let min_ns = before.map_or(i64::MIN, |entry| entry.block.min_ns);
    let max_ns = behind.map_or(i64::MAX, |entry| entry.block.max_ns);
    let interfaces = before.map_or(0, |entry| entry.interfaces);
    while offset < end {
        let bytes = window.from(offset)?;
        let bytes = &bytes[..bytes.len().min((end - offset) as usize)];
        let mut len = 0;
        while len < RUN {
            let Ok(block) = whole_block(&bytes[len..]) else {
                break;
            };
            len += block;
        }
        if len == 0 {
            break;
        }
        let block = Block {
            bytes: len as u32,
            packets: 0,
            first,
            min_ns,
            max_ns,
        };
        found.push(Entry {
            offset,
            block,
            interfaces,
            mark: 0,
        });
        offset += len as u64;
    }
    Ok(())
}

/// The first good block whose mark lies after `offset`, and the place that it says it has. It may
/// have moved, but its packets follow the packets of the good block `before`: a packet may hold a
/// copy of blocks that were written earlier.
///
/// **Cost**: the file once. False marks can claim blocks that overlap: those are checked up to four times the bytes that were passed, and
/// 64 MiB, and then what follows counts as damage.
fn resync(
    window: &mut Window<'_>,
    mut offset: u64,
    before: Option<&Entry>,
) -> Result<Option<(Entry, u64)>, Error> {
    let segment = window.segment;
    let least = before.map_or(0, |entry| {
        entry.block.first.saturating_add(entry.block.packets.into())
    });
    let floor = offset;
    let mut in_vain = 0;
    while in_vain <= 4 * (offset - floor) + 16 * PIECE as u64 {
        let bytes = window.from(offset)?;
        if bytes.len() < mark::LEN {
            return Ok(None);
        }
        let zeros = bytes
            .chunks_exact(PAGE)
            .take_while(|page| page.iter().all(|&byte| byte == 0))
            .count();
        if zeros > 1 {
            offset += ((zeros - 1) * PAGE) as u64;
            // A mark begins with bytes that are not zero: none begins in a hole.
            let Some(stored) = window.file.stored_from(offset) else {
                return Ok(None);
            };
            offset = stored;
            continue;
        }
        // Bytes may be missing, so that nothing is aligned.
        let Some(at) = memmem(
            &bytes[..bytes.len() - mark::LEN + mark::MAGIC_AT + 8],
            mark::MAGIC,
        ) else {
            offset += (bytes.len() - mark::LEN) as u64 + 1;
            continue;
        };
        let Some(at) = at
            .checked_sub(mark::MAGIC_AT)
            .filter(|&at| mark::is_mark(&bytes[at..]))
        else {
            offset += at as u64 + 1;
            continue;
        };
        let place = offset + at as u64;
        if let Ok((mark, _)) = Mark::parse(&bytes[at..]) {
            let covered = u64::from(mark.block.bytes);
            let start = place
                .checked_sub(covered)
                .filter(|&start| start >= floor && covered < PIECE as u64 / 2);
            if let Some(start) = start.filter(|_| mark.block.first >= least) {
                let claimed = mark.offset.wrapping_sub(covered);
                if let Ok((mark, len)) =
                    block(segment, window.from(start)?, claimed, covered as usize)
                {
                    return Ok(Some((
                        Entry {
                            offset: start,
                            ..Entry::of(&mark, len)
                        },
                        claimed,
                    )));
                }
                in_vain += covered;
            }
        }
        offset = place + 1;
    }
    Ok(None)
}

/// Place of the first `needle` in `bytes`.
fn memmem(bytes: &[u8], needle: &[u8; 8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}

/// The mark that ends at `end`, if one does.
fn ending_at(file: &mut Contents, segment: &Segment, end: u64) -> Option<(Mark, usize)> {
    let mut bytes = [0; mark::MAX_LEN];
    let len = bytes.len().min(end as usize);
    let bytes = &mut bytes[..len];
    file.read(bytes, end - len as u64).ok()?;
    let claims = u32::from_le_bytes(*bytes.last_chunk()?) as usize;
    let at = len.checked_sub(claims)?;
    let (mark, claims) = Mark::parse(&bytes[at..]).ok()?;
    let here = end - claims as u64 == mark.offset && at + claims == len;
    let ours = (mark.generation, mark.start_ns) == (segment.generation, segment.start_ns);
    (here && ours && u64::from(mark.block.bytes) <= mark.offset).then_some((mark, claims))
}

/// Puts segments in the order of what their last marks say, because their files may have changed names. Segments of which two say the
/// same keep their names: one is a copy.
///
/// **Cost**: an open and a read of each plain segment. A compressed segment, and one without a mark at its end, is what its name says.
pub(super) fn by_marks(mut segments: Vec<Segment>) -> Vec<Segment> {
    let mut claims: BTreeMap<u64, u32> = BTreeMap::new();
    let said: Vec<_> = segments.iter().map(identity).collect();
    for (segment, said) in segments.iter().zip(&said) {
        let (generation, _) = said.unwrap_or((segment.generation, segment.start_ns));
        *claims.entry(generation).or_default() += 1;
    }
    for (segment, said) in segments.iter_mut().zip(said) {
        if let Some((generation, start_ns)) = said.filter(|said| claims[&said.0] == 1) {
            segment.generation = generation;
            segment.start_ns = start_ns;
        }
    }
    segments.sort_by_key(|segment| segment.generation);
    segments
}

/// Generation and start of a plain segment that was closed, as its first and its last block tell them; `None` if they are those of
/// its name.
fn identity(segment: &Segment) -> Option<(u64, i64)> {
    let file = super::file::open_to_read(&segment.path).ok()?;
    let end = file.metadata().ok()?.len();
    let mut bytes = [0; mark::MAX_LEN];
    let len = bytes.len().min(end as usize);
    let bytes = &mut bytes[..len];
    file.read_exact_at(bytes, end - len as u64).ok()?;
    let claims = u32::from_le_bytes(*bytes.last_chunk()?) as usize;
    let (mark, claims) = Mark::parse(&bytes[len.checked_sub(claims)?..]).ok()?;
    if mark.block.bytes as usize > PIECE {
        return None;
    }
    let said = (mark.generation, mark.start_ns);
    if said == (segment.generation, segment.start_ns) || !mark.end {
        return None;
    }
    // The mark may be damaged: its checksum is that of the block. What a crash left of an older file is at the end only.
    let covered = mark.block.bytes as usize;
    let start = end.checked_sub((covered + claims) as u64)?;
    let mut bytes = vec![0; covered + claims];
    file.read_exact_at(&mut bytes, start).ok()?;
    let claimed = Segment {
        generation: said.0,
        start_ns: said.1,
        path: segment.path.clone(),
    };
    block(&claimed, &bytes, start, covered).ok()?;
    bytes.resize(PIECE.min(end as usize), 0);
    file.read_exact_at(&mut bytes, 0).ok()?;
    let first = to_mark(&bytes).ok()?;
    block(&claimed, &bytes, 0, first).ok().map(|_| said)
}

/// Whether the last block of a segment of `len` bytes says that the segment ends there, wherever it lies now.
pub(super) fn has_end(file: &mut Contents, segment: &Segment, len: u64) -> bool {
    let mut tail = [0; mark::MAX_LEN];
    let from = tail.len().min(len as usize);
    let tail = &mut tail[..from];
    if file.read(tail, len - from as u64).is_err() {
        return false;
    }
    let claims = tail
        .last_chunk()
        .map_or(0, |claims| u32::from_le_bytes(*claims) as usize);
    let Some(Ok((mark, claims))) = from.checked_sub(claims).map(|at| Mark::parse(&tail[at..]))
    else {
        return false;
    };
    let size = u64::from(mark.block.bytes) + claims as u64;
    let Some(start) = len.checked_sub(size).filter(|_| size <= PIECE as u64) else {
        return false;
    };
    let mut bytes = vec![0; size as usize];
    mark.end
        && file.read(&mut bytes, start).is_ok()
        && check(segment, &bytes, &Entry::of(&mark, claims)).is_ok()
}

/// Blocks of a segment of `len` bytes, from its last mark back to its first. The checksums of the blocks are not looked at.
///
/// **Cost**: one read of 4 KiB for each block. If a mark is damaged, the whole segment is read
/// [forward](self::forward). Bytes after the last good mark are also damage, unless the segment
/// `is_growing`: then its last write is not complete yet.
pub(super) fn backward(
    file: &mut Contents,
    segment: &Segment,
    len: u64,
    is_growing: bool,
) -> Result<Scan, Error> {
    let is_growing = is_growing && !has_end(file, segment, len);
    let page = PAGE as u64;
    let last = (0..=len / page).rev().take(PIECE / PAGE).find_map(|pages| {
        let end = pages * page;
        (end > 0).then(|| ending_at(file, segment, end).map(|found| (end, found)))?
    });
    let Some((end, mut found)) = last else {
        let scan = forward(file, segment, len)?;
        let end = scan
            .blocks
            .last()
            .map_or(0, |entry| entry.offset + entry.len() as u64);
        // Nothing good after the damage: the first write is not complete yet.
        let unfinished = is_growing && len <= PIECE as u64 && end == scan.good;
        return Ok(if unfinished {
            Scan {
                damage: None,
                damaged: 0,
                holes: Vec::new(),
                ..scan
            }
        } else {
            scan
        });
    };
    if end < len && !is_growing {
        return forward(file, segment, len);
    }
    // The number of a mark without a checked sum says nothing about how many there are.
    let mut blocks = Vec::new();
    loop {
        let (mark, claims) = found;
        blocks.push(Entry::of(&mark, claims));
        let before = mark.offset - u64::from(mark.block.bytes);
        match (before, mark.number) {
            (0, 0) => break,
            (0, _) | (_, 0) => return forward(file, segment, end),
            _ => {}
        }
        match ending_at(file, segment, before) {
            Some(next) if next.0.number.checked_add(1) == Some(mark.number) => found = next,
            _ => return forward(file, segment, end),
        }
    }
    blocks.reverse();
    Ok(Scan {
        blocks,
        good: end,
        ..Scan::default()
    })
}
