//! Packets in the blocks of a segment.

use super::Error;
use super::contents::Contents;
use super::index::Entry;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{InterfaceStats, Layout, Stop};

/// Type of an Interface Statistics Block.
const STATISTICS: u32 = 5;

/// Reads a block without its mark.
pub(super) fn read(file: &mut Contents, entry: &Entry, bytes: &mut Vec<u8>) -> Result<(), Error> {
    bytes.resize(entry.block.bytes as usize, 0);
    file.read(bytes, entry.offset)
}

/// Appends the Section Header Block and the Interface Description Blocks of a good block to `head`,
/// which describes `described` interfaces. Descriptions after a lost one are left out, since they
/// would get the numbers of others.
pub(super) fn head(bytes: &[u8], entry: &Entry, head: &mut Vec<u8>, described: &mut u32) {
    let (before, mut interfaces) = (head.len(), *described);
    any_head(bytes, head);
    interfaces += blocks(bytes).filter(|(_, kind)| *kind == 1).count() as u32;
    if interfaces == entry.interfaces {
        *described = interfaces;
    } else {
        head.truncate(before);
    }
}

/// A block of a head, never of a segment: what the head says was found in a damaged block. As all blocks it begins with its type and
/// its length, and ends with its length.
const UNCHECKED: u32 = 0x8000_0bae;

/// Appends the Section Header Block and the Interface Description Blocks of a damaged block to `head`, with a word that they may say
/// what was never recorded.
pub(super) fn unchecked_head(bytes: &[u8], head: &mut Vec<u8>) {
    any_head(bytes, head);
    if !head.is_empty() {
        head.extend([UNCHECKED, 12, 12].map(u32::to_le_bytes).concat());
    }
}

/// Whether the checksums of blocks answer for all that a head says.
pub(super) fn is_checked(head: &[u8]) -> bool {
    blocks(head).all(|(_, kind)| kind != UNCHECKED)
}

/// Appends the Section Header Block and the Interface Description Blocks of a run of pcapng blocks to `head`.
fn any_head(bytes: &[u8], head: &mut Vec<u8>) {
    let ends = blocks(bytes).map(|(at, _)| at).skip(1).chain([bytes.len()]);
    for ((at, _), end) in blocks(bytes)
        .zip(ends)
        .filter(|((_, kind), _)| matches!(kind, 0x0a0d_0d0a | 1))
    {
        head.extend_from_slice(&bytes[at..end]);
    }
}

/// Offsets of the pcapng blocks of `bytes`, each with its type.
fn blocks(bytes: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let [a, b, c, d, e, f, g, h] = *bytes.get(next..)?.first_chunk()?;
        let (at, len) = (next, u32::from_le_bytes([e, f, g, h]) as usize);
        next += bytes.get(at..at + len.max(12))?.len();
        Some((at, u32::from_le_bytes([a, b, c, d])))
    })
}

/// The Section Header Block and the Interface Description Blocks in the head of an index.
pub(super) fn without_statistics(head: &[u8]) -> Vec<u8> {
    let end = blocks(head)
        .find(|(_, kind)| *kind == STATISTICS)
        .map_or(head.len(), |(at, _)| at);
    head[..end].to_vec()
}

/// Layout of a segment, given its head. Interface statistics in it are not a part of the layout.
pub(super) fn layout(head: &[u8]) -> Option<Layout> {
    let (mut layout, first) = Layout::read(head, true).ok()?;
    for (at, kind) in blocks(head).skip_while(|(at, _)| *at < first) {
        if kind != STATISTICS && kind != UNCHECKED {
            layout.apply(head, at, true).ok()?;
        }
    }
    Some(layout)
}

/// Calls `each` with the interface statistics among whole pcapng blocks, and with the bytes of their block.
pub(super) fn statistics(
    layout: &Layout,
    bytes: &[u8],
    mut each: impl FnMut(InterfaceStats, &[u8]),
) {
    let ends = blocks(bytes).map(|(at, _)| at).skip(1).chain([bytes.len()]);
    for ((at, _), end) in blocks(bytes)
        .zip(ends)
        .filter(|((_, kind), _)| *kind == STATISTICS)
    {
        if let Some(stats) = layout.interface_stats(bytes, at) {
            each(stats, &bytes[at..end]);
        }
    }
}

/// Passes the packets of a good block to `visit`.
pub(super) fn visit(layout: &Layout, bytes: &[u8], visit: &mut impl Visit) {
    let mut at = 0;
    loop {
        let mut cursor = [Cursor::new(at, bytes.len())];
        walk(layout, bytes, true, &mut cursor, visit);
        let [Cursor { pos, stop, .. }] = cursor;
        // The layout knows the blocks of all interfaces already.
        let len = bytes
            .get(pos + 4..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |len| u32::from_le_bytes(*len));
        match stop {
            Some(Stop::Layout) if len >= 12 => at = pos + len as usize,
            _ => return,
        }
    }
}
