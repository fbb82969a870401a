//! Packets in the blocks of a segment.

use super::Error;
use super::contents::Contents;
use super::index::Entry;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Layout, Stop};

/// Reads a block without its mark.
pub(super) fn read(file: &mut Contents, entry: &Entry, bytes: &mut Vec<u8>) -> Result<(), Error> {
    bytes.resize(entry.block.bytes as usize, 0);
    file.read(bytes, entry.offset)
}

/// Appends the Section Header Block and the Interface Description Blocks of a good block to `head`, which describes `described`
/// interfaces. Descriptions behind a lost one are left out, since they would get the numbers of others.
pub(super) fn head(bytes: &[u8], entry: &Entry, head: &mut Vec<u8>, described: &mut u32) {
    let (before, mut interfaces) = (head.len(), *described);
    let mut at = 0;
    while let Some(&[a, b, c, d, e, f, g, h]) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let len = u32::from_le_bytes([e, f, g, h]) as usize;
        let Some(block) = bytes.get(at..at + len.max(12)) else { break };
        let kind = u32::from_le_bytes([a, b, c, d]);
        // Section Header Block, Interface Description Block.
        if matches!(kind, 0x0a0d_0d0a | 1) {
            head.extend_from_slice(block);
            interfaces += u32::from(kind == 1);
        }
        at += block.len();
    }
    if interfaces == entry.interfaces {
        *described = interfaces;
    } else {
        head.truncate(before);
    }
}

/// Layout of a segment, given its head.
pub(super) fn layout(head: &[u8]) -> Option<Layout> {
    let (mut layout, mut at) = Layout::read(head, true).ok()?;
    while at < head.len() {
        at = layout.apply(head, at, true).ok()?;
    }
    Some(layout)
}

/// Passes the packets of a good block to `visit`.
pub(super) fn visit(layout: &Layout, bytes: &[u8], visit: &mut impl Visit) {
    let mut at = 0;
    loop {
        let mut cursor = [Cursor::new(at, bytes.len())];
        walk(layout, bytes, true, &mut cursor, visit);
        let [Cursor { pos, stop, .. }] = cursor;
        // The layout knows the blocks of all interfaces already.
        let len = bytes.get(pos + 4..).and_then(|rest| rest.first_chunk()).map_or(0, |len| u32::from_le_bytes(*len));
        match stop {
            Some(Stop::Layout) if len >= 12 => at = pos + len as usize,
            _ => return,
        }
    }
}
