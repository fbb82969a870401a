//! Finding the blocks of a segment by its marks: without an index, behind a crash, behind damage.

use super::contents::Contents;
use super::index::Entry;
use super::mark::{self, Damage, Mark};
use super::name::Segment;
use super::{Error, PAGE};

/// Bytes that are read at once. Larger than any block.
const PIECE: usize = 4 << 20;

/// Blocks of a segment that were found good.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) blocks: Vec<Entry>,
    /// Bytes up to the end of the first run of good blocks.
    pub(super) good: u64,
    /// Reason why that run ends; `None` at the end of the file.
    pub(super) damage: Option<Damage>,
    /// Places with damage, if the scan went on behind it.
    pub(super) damaged: u64,
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
        let Some(head) = rest.first_chunk::<12>() else { return Err(Damage::Short) };
        let total = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if total < 12 || !total.is_multiple_of(4) || total > PIECE / 2 {
            return Err(Damage::Structure);
        }
        let Some(block) = rest.get(..total) else { return Err(Damage::Short) };
        if block[total - 4..] != (total as u32).to_le_bytes() {
            return Err(Damage::Structure);
        }
        at += total;
    }
}

/// The mark of a block of `segment` at the start of `bytes`, which lie at `offset`; its length; all checked but its number.
pub(super) fn block(segment: &Segment, bytes: &[u8], offset: u64, len: usize) -> Result<(Mark, usize), Damage> {
    let (mark, mark_len) = Mark::parse(&bytes[len..])?;
    if (mark.generation, mark.start_ns) != (segment.generation, segment.start_ns) {
        return Err(Damage::Generation);
    }
    if mark.offset != offset + len as u64 || mark.block.bytes as usize != len {
        return Err(Damage::Order);
    }
    mark::check(bytes, len)?;
    Ok((mark, mark_len))
}

/// Reads a segment of `len` bytes from its start on. At damage the scan ends; if `on`, it goes on at the next good mark.
pub(super) fn forward(file: &mut Contents, segment: &Segment, len: u64, on: bool) -> Result<Scan, Error> {
    let mut window = Window { file, segment, len, bytes: Vec::new(), at: 0 };
    let mut scan = Scan::default();
    let mut offset = 0;
    while offset < len {
        let bytes = window.from(offset)?;
        let next = scan.blocks.len() as u32;
        let found = to_mark(bytes).and_then(|len| block(segment, bytes, offset, len));
        let damage = match found {
            Ok((mark, mark_len)) if scan.damage.is_some() || mark.number == next => {
                let entry = Entry::of(&mark, mark_len);
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
        match on.then(|| resync(&mut window, offset)).transpose()?.flatten() {
            Some(entry) => {
                offset = entry.offset + entry.len() as u64;
                scan.blocks.push(entry);
            }
            None => break,
        }
    }
    Ok(scan)
}

/// The first good block whose mark lies behind `offset`.
fn resync(window: &mut Window<'_>, mut offset: u64) -> Result<Option<Entry>, Error> {
    let segment = window.segment;
    loop {
        let bytes = window.from(offset)?;
        if bytes.len() < mark::LEN {
            return Ok(None);
        }
        // Marks begin at multiples of four.
        let Some(at) = (0..=bytes.len() - mark::LEN).step_by(4).find(|&at| mark::is_mark(&bytes[at..])) else {
            offset += ((bytes.len() - mark::LEN) & !3) as u64 + 4;
            continue;
        };
        let place = offset + at as u64;
        let covered = Mark::parse(&bytes[at..]).map_or(0, |(mark, _)| u64::from(mark.block.bytes));
        if covered <= place && covered < PIECE as u64 / 2 {
            let start = place - covered;
            if let Ok((mark, len)) = block(segment, window.from(start)?, start, covered as usize) {
                return Ok(Some(Entry::of(&mark, len)));
            }
        }
        offset = place + 4;
    }
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

/// Whether the last block of a segment of `len` bytes says that the segment ends there.
pub(super) fn has_end(file: &mut Contents, segment: &Segment, len: u64) -> bool {
    let Some((mark, claims)) = ending_at(file, segment, len) else { return false };
    let mut bytes = vec![0; mark.block.bytes as usize + claims];
    let start = len - bytes.len() as u64;
    mark.end && file.read(&mut bytes, start).is_ok() && block(segment, &bytes, start, mark.block.bytes as usize).is_ok()
}

/// Blocks of a segment of `len` bytes, from its last mark back to its first. The checksums of the blocks are not looked at.
///
/// **Cost**: one read of 4 KiB for each block. If the last write is not complete yet, its blocks are left out. If a mark is
/// damaged, the whole segment is read [forward](self::forward).
pub(super) fn backward(file: &mut Contents, segment: &Segment, len: u64) -> Result<Scan, Error> {
    let page = PAGE as u64;
    let last = (0..=len / page).rev().take(PIECE / PAGE).find_map(|pages| {
        let end = pages * page;
        (end > 0).then(|| ending_at(file, segment, end).map(|found| (end, found)))?
    });
    let Some((end, mut found)) = last else {
        let scan = forward(file, segment, len, true)?;
        let end = scan.blocks.last().map_or(0, |entry| entry.offset + entry.len() as u64);
        // Nothing good behind the damage: the first write is not complete yet.
        let unfinished = len <= PIECE as u64 && end == scan.good;
        return Ok(if unfinished { Scan { damage: None, damaged: 0, ..scan } } else { scan });
    };
    // The number of a mark without a checked sum says nothing about how many there are.
    let mut blocks = Vec::new();
    loop {
        let (mark, claims) = found;
        blocks.push(Entry::of(&mark, claims));
        let before = mark.offset - u64::from(mark.block.bytes);
        match (before, mark.number) {
            (0, 0) => break,
            (0, _) | (_, 0) => return forward(file, segment, end, true),
            _ => {}
        }
        match ending_at(file, segment, before) {
            Some(next) if next.0.number.checked_add(1) == Some(mark.number) => found = next,
            _ => return forward(file, segment, end, true),
        }
    }
    blocks.reverse();
    Ok(Scan { blocks, good: end, damage: None, damaged: 0 })
}
