//! pcapng: blocks of `type, total length, body, total length`, 4-byte aligned, in sections of either byte order.
//!
//! ```text
//! section header   0 0x0A0D0D0A  4 length  8 byte order mark  12 major  14 minor  16 section length (i64)  24 options
//! interface        0 1  4 length  8 link type (u16)  10 reserved  12 snaplen  16 options
//! enhanced packet  0 6  4 length  8 interface  12 ticks high  16 ticks low  20 captured  24 wire  28 data, pad, options
//! simple packet    0 3  4 length  8 wire  12 data, pad
//! statistics       0 5  4 length  8 interface  12 ticks high  16 ticks low  20 options
//! packet           0 2  4 length  8 interface (u16)  10 drops (u16)  12 high  16 low  20 captured  24 wire  28 data ...
//! ```
//!
//! Decryption secrets, names of addresses and custom blocks change the layout too, which carries them to copies. All other blocks
//! are skipped.

use super::bytes::{u16_at, u32_at};
use super::carried::{BlockKind, CarriedBlock};
use super::described::{self, InterfaceOption};
use super::options::PacketOptions;
use super::walk::{Step, Walker};
use super::{
    Fault, Interface, InterfaceStats, Layout, MAX_INTERFACES, Noted, Record, Resolution,
    Statistics, Stop, short,
};
use crate::text::from_bytes;
use crate::{Frame, LinkType};
use std::sync::Arc;

pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;
pub(super) const BYTE_ORDER_MARK: u32 = 0x1a2b_3c4d;

/// Largest block of any type, bytes. The largest link types of libpcap hold 128 MiB. A block must be in memory as a whole, even
/// if it is skipped, so that its two lengths can be compared.
const MAX_BLOCK: u32 = (128 << 20) + (1 << 20);

/// Steps over pcapng blocks of one section.
pub(super) struct Codec<'a, const BE: bool> {
    layout: &'a Layout,
    eof: bool,
}

impl<'a, const BE: bool> Codec<'a, BE> {
    pub(super) fn new(layout: &'a Layout, eof: bool) -> Self {
        Self { layout, eof }
    }

    /// The packet in a complete packet block.
    #[inline(always)]
    fn packet<'b>(&self, block: &'b [u8], kind: u32) -> Result<Frame<'b>, Fault> {
        let fixed = if kind == SIMPLE_PACKET { 12 } else { 28 };
        if block.len() < fixed + 4 {
            let claims = block.len() as u32;
            return Err(Fault::BlockLength {
                kind,
                claims,
                why: "too short for its fields",
            });
        }
        let (id, captured, wire_len) = match kind {
            ENHANCED_PACKET => (
                u32_at::<BE>(block, 8),
                u32_at::<BE>(block, 20),
                u32_at::<BE>(block, 24),
            ),
            SIMPLE_PACKET => {
                let wire = u32_at::<BE>(block, 8);
                (0, self.simple_captured(wire), wire)
            }
            _ => (
                u16_at::<BE>(block, 8).into(),
                u32_at::<BE>(block, 20),
                u32_at::<BE>(block, 24),
            ),
        };
        let room = &block[fixed..block.len() - 4];
        let Some(data) = room.get(..captured as usize) else {
            return Err(Fault::PacketOverrun {
                claims: captured,
                room: room.len() as u32,
            });
        };
        let Some(&interface) = self.layout.section.get(id as usize) else {
            return Err(Fault::UnknownInterface {
                id,
                count: self.layout.section.len() as u32,
            });
        };
        Ok(Frame {
            data,
            wire_len,
            interface,
        })
    }

    /// Captured length of a Simple Packet Block, which stores none: the wire length, cut by the first interface's snap length.
    fn simple_captured(&self, wire_len: u32) -> u32 {
        let first = self
            .layout
            .section
            .first()
            .map(|&i| self.layout.interfaces[i as usize].snaplen);
        match first {
            Some(snaplen) if snaplen != 0 => wire_len.min(snaplen),
            _ => wire_len,
        }
    }

    #[inline(always)]
    pub(super) fn record<'b>(&self, buf: &'b [u8], pos: usize) -> Option<Record<'b>> {
        // The type is read only once, because it may change in a mapped file. A simple packet is too short for the fields of
        // the others.
        let (kind, block) = block::<BE>(buf.get(pos..)?, 0, self.eof).ok()?;
        if !matches!(kind, ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET) {
            return None;
        }
        let frame = self.packet(block, kind).ok()?;
        let time_ns = (kind != SIMPLE_PACKET).then(|| {
            let ticks =
                u64::from(u32_at::<BE>(block, 12)) << 32 | u64::from(u32_at::<BE>(block, 16));
            let from = &self.layout.interfaces[frame.interface as usize];
            from.resolution.to_ns(ticks, from.offset_s)
        });
        Some(Record {
            time_ns,
            frame,
            options: packet_options::<BE>(block, kind, frame.data.len()),
        })
    }

    /// Whether a packet block says that packets were lost before its packet.
    #[inline(always)]
    fn has_drops(block: &[u8], kind: u32, captured: usize) -> bool {
        match kind {
            ENHANCED_PACKET if block.len() == captured.next_multiple_of(4) + 32 => false,
            SIMPLE_PACKET => false,
            _ => tells_drops::<BE>(block, kind, captured),
        }
    }

    /// If a complete packet block is at `pos`, returns the offset after it.
    fn plausible(&self, buf: &[u8], pos: usize) -> Option<usize> {
        if u32_at::<BE>(buf, pos) != ENHANCED_PACKET {
            return None;
        }
        match self.step(buf, pos) {
            Step::Packet(_, next) | Step::Noted(_, next) => Some(next),
            _ => None,
        }
    }
}

/// Type and bytes of the block at `pos`, once all of it is in `buf` and both its lengths agree.
#[inline(always)]
fn block<const BE: bool>(buf: &[u8], pos: usize, eof: bool) -> Result<(u32, &[u8]), Stop> {
    if buf.len() - pos < 12 {
        return Err(short("a block header", buf, pos, 12, eof));
    }
    let (kind, claims) = (u32_at::<BE>(buf, pos), u32_at::<BE>(buf, pos + 4));
    if claims < 12 || claims % 4 != 0 {
        let why = if claims < 12 {
            "less than an empty block has"
        } else {
            "not a multiple of 4"
        };
        return Err(Stop::Fault(Fault::BlockLength { kind, claims, why }));
    }
    let Some(block) = buf[pos..].get(..claims as usize) else {
        return Err(short_block(kind, buf, pos, claims, eof));
    };
    let tail = u32_at::<BE>(block, block.len() - 4);
    if tail != claims {
        return Err(Stop::Fault(Fault::Trailer {
            kind,
            head: claims,
            tail,
        }));
    }
    Ok((kind, block))
}

#[cold]
fn short_block(kind: u32, buf: &[u8], pos: usize, claims: u32, eof: bool) -> Stop {
    if claims > MAX_BLOCK {
        return Stop::Fault(Fault::BlockLength {
            kind,
            claims,
            why: "more than any packet needs",
        });
    }
    if eof {
        let what = if kind == ENHANCED_PACKET {
            "a packet block"
        } else {
            "a block"
        };
        Stop::Fault(Fault::ShortData {
            what,
            claims: claims.into(),
            have: (buf.len() - pos) as u64,
        })
    } else {
        Stop::NeedMore(claims.into())
    }
}

impl<'b, const BE: bool> Walker<'b> for Codec<'_, BE> {
    #[inline(always)]
    fn step(&self, buf: &'b [u8], pos: usize) -> Step<'b> {
        // A new section may have the other byte order, so nothing but its type is read before its byte order mark.
        if buf.len() - pos >= 4 && u32_at::<BE>(buf, pos) == SECTION {
            return Step::Stop(Stop::Layout);
        }
        let (kind, block) = match block::<BE>(buf, pos, self.eof) {
            Ok(found) => found,
            Err(stop) => return Step::Stop(stop),
        };
        let next = pos + block.len();
        match kind {
            ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET => match self.packet(block, kind) {
                Ok(frame) if Self::has_drops(block, kind, frame.data.len()) => {
                    Step::Noted(frame, next)
                }
                Ok(frame) => Step::Packet(frame, next),
                Err(fault) => Step::Stop(Stop::Fault(fault)),
            },
            INTERFACE => Step::Stop(Stop::Layout),
            STATISTICS => Step::Statistics(next),
            _ => match BlockKind::of(kind) {
                Some(found) if found.is_carried() && self.layout.has_room(block.len()) => {
                    Step::Stop(Stop::Layout)
                }
                Some(_) => Step::Statistics(next),
                None => Step::Skip(next),
            },
        }
    }

    fn guess(&self, buf: &[u8], from: usize, to: usize) -> Option<usize> {
        /// Number of plausible blocks in a row that make a start; each has its length at both ends, so few are enough.
        const CHAIN: usize = 3;
        let last = buf.len().saturating_sub(12);
        'candidate: for start in from..to.min(last) {
            let Some(mut next) = self.plausible(buf, start) else {
                continue;
            };
            for _ in 1..CHAIN {
                if next == buf.len() && self.eof {
                    break;
                }
                match (next <= last).then(|| self.plausible(buf, next)).flatten() {
                    Some(n) => next = n,
                    None => continue 'candidate,
                }
            }
            return Some(start);
        }
        None
    }
}

/// Whether a section header, an interface block or a block for copies begins at `pos`.
pub(super) fn is_layout_block(layout: &Layout, buf: &[u8], pos: usize) -> bool {
    let rest = buf.get(pos..).unwrap_or_default();
    let word = |at: usize| {
        rest.get(at..at + 4).map(|word| {
            if layout.big_endian {
                u32_at::<true>(word, 0)
            } else {
                u32_at::<false>(word, 0)
            }
        })
    };
    match word(0) {
        // The walk stops at the type alone: what is cut after it is an error that `apply` tells.
        Some(INTERFACE | SECTION) => true,
        Some(kind) if BlockKind::of(kind).is_some_and(BlockKind::is_carried) => {
            word(4).is_some_and(|len| layout.has_room(len as usize))
        }
        _ => false,
    }
}

/// Options after the bytes of a packet in a whole block.
#[inline(always)]
fn packet_options<const BE: bool>(block: &[u8], kind: u32, captured: usize) -> PacketOptions<'_> {
    let end = 28 + captured.next_multiple_of(4);
    if kind == SIMPLE_PACKET || kind == ENHANCED_PACKET && block.len() <= end + 4 {
        return PacketOptions::default();
    }
    let drops = if kind == OBSOLETE_PACKET {
        u16_at::<BE>(block, 10)
    } else {
        0
    };
    PacketOptions {
        bytes: block.get(end..block.len() - 4).unwrap_or(&[]),
        big_endian: BE,
        drops,
    }
}

#[cold]
fn tells_drops<const BE: bool>(block: &[u8], kind: u32, captured: usize) -> bool {
    packet_options::<BE>(block, kind, captured).dropped() > 0
}

/// Applies a section header, an interface block or a block for copies to the layout.
pub(super) fn apply(layout: &mut Layout, buf: &[u8], pos: usize, eof: bool) -> Result<usize, Stop> {
    if buf.len() - pos < 12 {
        return Err(short("a block header", buf, pos, 12, eof));
    }
    if u32_at::<false>(buf, pos) == SECTION {
        return match u32_at::<false>(buf, pos + 8) {
            BYTE_ORDER_MARK => section::<false>(layout, buf, pos, eof),
            mark if mark == BYTE_ORDER_MARK.swap_bytes() => section::<true>(layout, buf, pos, eof),
            mark => Err(Stop::Fault(Fault::ByteOrder(mark))),
        };
    }
    if layout.big_endian {
        apply_by::<true>(layout, buf, pos, eof)
    } else {
        apply_by::<false>(layout, buf, pos, eof)
    }
}

fn apply_by<const BE: bool>(
    layout: &mut Layout,
    buf: &[u8],
    pos: usize,
    eof: bool,
) -> Result<usize, Stop> {
    let Some(kind) = BlockKind::of(u32_at::<BE>(buf, pos)) else {
        return interface::<BE>(layout, buf, pos, eof);
    };
    let (_, whole) = block::<BE>(buf, pos, eof)?;
    match CarriedBlock::new::<BE>(kind, whole) {
        Some(carried) if layout.has_room(whole.len()) => layout.keep(Arc::new(carried)),
        _ => layout.blocks_left_out.add(kind),
    }
    Ok(pos + whole.len())
}

fn section<const BE: bool>(
    layout: &mut Layout,
    buf: &[u8],
    pos: usize,
    eof: bool,
) -> Result<usize, Stop> {
    /// Section options that `info` shows.
    const NOTES: [(u16, &str); 4] = [
        (1, "comment"),
        (2, "hardware"),
        (3, "os"),
        (4, "application"),
    ];
    let (kind, block) = block::<BE>(buf, pos, eof)?;
    let total = block.len();
    if total < 28 {
        let why = "too short for its fields";
        return Err(Stop::Fault(Fault::BlockLength {
            kind,
            claims: total as u32,
            why,
        }));
    }
    let (major, minor) = (u16_at::<BE>(block, 12), u16_at::<BE>(block, 14));
    // Some tools wrote version 1.2 for the same format (draft, section 4.1).
    if major != 1 || !matches!(minor, 0 | 2) {
        return Err(Stop::Fault(Fault::Version {
            format: "pcapng",
            major,
            minor,
            known: "1.0 and 1.2",
        }));
    }
    layout.big_endian = BE;
    layout.sections = layout.sections.saturating_add(1);
    layout.section.clear();
    for (code, value) in options::<BE>(&block[24..total - 4]) {
        if let Some((_, name)) = NOTES.iter().find(|(c, _)| *c == code) {
            layout.note(name, text(value));
        }
    }
    Ok(pos + total)
}

fn interface<const BE: bool>(
    layout: &mut Layout,
    buf: &[u8],
    pos: usize,
    eof: bool,
) -> Result<usize, Stop> {
    let (kind, block) = block::<BE>(buf, pos, eof)?;
    let total = block.len();
    if total < 20 {
        let why = "too short for its fields";
        return Err(Stop::Fault(Fault::BlockLength {
            kind,
            claims: total as u32,
            why,
        }));
    }
    let link = LinkType(u16_at::<BE>(block, 8));
    let mut found = Interface::plain(link, u32_at::<BE>(block, 12), Resolution::MICROSECOND);
    for (code, value) in options::<BE>(&block[16..total - 4]) {
        match (code, value) {
            (1, _) if found.comments.len() < 16 => found.comments.push(text(value)),
            (1, _) => layout.blocks_left_out.comments += 1,
            (2, _) => found.name = Some(text(value)),
            (3, _) => found.description = Some(text(value)),
            (9, [unit, ..]) => found.resolution = Resolution(*unit),
            (11, [0, filter @ ..]) => found.filter = Some(text(filter)),
            (14, _) if value.len() >= 8 => {
                let (a, b) = (u32_at::<BE>(value, 0), u32_at::<BE>(value, 4));
                let (high, low) = if BE { (a, b) } else { (b, a) };
                found.offset_s = (u64::from(high) << 32 | u64::from(low)) as i64;
            }
            _ => match InterfaceOption::new(code, value, BE) {
                Some(option) if found.options.len() < described::MOST => found.options.push(option),
                _ => layout.blocks_left_out.interface_options += 1,
            },
        }
    }
    if layout.section.len() >= MAX_INTERFACES {
        return Err(Stop::Fault(Fault::TooManyInterfaces));
    }
    let place = layout.describe(found).map_err(Stop::Fault)?;
    layout.section.push(place);
    Ok(pos + total)
}

/// Contents of the block at `pos` in addition to packets.
pub(super) fn noted(layout: &Layout, buf: &[u8], pos: usize) -> Option<Noted> {
    if layout.big_endian {
        noted_by::<true>(layout, buf, pos)
    } else {
        noted_by::<false>(layout, buf, pos)
    }
}

fn noted_by<const BE: bool>(layout: &Layout, buf: &[u8], pos: usize) -> Option<Noted> {
    let (kind, _) = block::<BE>(buf, pos, true).ok()?;
    if kind == STATISTICS {
        return interface_stats_by::<BE>(layout, buf, pos).map(Noted::Statistics);
    }
    if let Some(kind) = BlockKind::of(kind) {
        return Some(Noted::LeftOut(kind));
    }
    let record = Codec::<BE>::new(layout, true).record(buf, pos)?;
    Some(Noted::Dropped(record.options.dropped()))
}

/// The interface statistics in the block at `pos`, if it is a statistics block.
///
/// **Source**: draft, section 4.6: isb_starttime is 2, isb_endtime 3, isb_ifrecv 4, isb_ifdrop 5, isb_osdrop 7, isb_usrdeliv 8;
/// each is a count since the start of the capture. A time has its high word first.
fn interface_stats_by<const BE: bool>(
    layout: &Layout,
    buf: &[u8],
    pos: usize,
) -> Option<InterfaceStats> {
    let (STATISTICS, block) = block::<BE>(buf, pos, true).ok()? else {
        return None;
    };
    let fields = block.get(20..block.len() - 4)?;
    let id = u32_at::<BE>(block, 8);
    let interface = *layout.section.get(id as usize)?;
    let from = &layout.interfaces[interface as usize];
    let ticks = u64::from(u32_at::<BE>(block, 12)) << 32 | u64::from(u32_at::<BE>(block, 16));
    let time_ns = from.resolution.to_ns(ticks, from.offset_s);
    let mut counts = Statistics {
        time_ns,
        ..Statistics::default()
    };
    for (code, value) in options::<BE>(fields).filter(|(_, value)| value.len() == 8) {
        let (a, b) = (
            u64::from(u32_at::<BE>(value, 0)),
            u64::from(u32_at::<BE>(value, 4)),
        );
        let count = if BE { a << 32 | b } else { b << 32 | a };
        let time_ns = || from.resolution.to_ns(a << 32 | b, from.offset_s);
        match code {
            2 => counts.start_ns = Some(time_ns()),
            3 => counts.end_ns = Some(time_ns()),
            4 => counts.received = Some(count),
            5 => counts.dropped_by_interface = Some(count),
            7 => counts.dropped_by_system = Some(count),
            8 => counts.delivered = Some(count),
            _ => {}
        }
    }
    Some(InterfaceStats {
        section: layout.sections,
        id,
        interface,
        counts,
    })
}

/// Comments of the statistics block at `pos`.
pub(super) fn statistics_comments(layout: &Layout, buf: &[u8], pos: usize) -> Vec<String> {
    if layout.big_endian {
        comments_by::<true>(buf, pos)
    } else {
        comments_by::<false>(buf, pos)
    }
}

fn comments_by<const BE: bool>(buf: &[u8], pos: usize) -> Vec<String> {
    /// Largest number of comments, and of bytes of each.
    const MOST: (usize, usize) = (16, 4096);
    let Ok((STATISTICS, block)) = block::<BE>(buf, pos, true) else {
        return Vec::new();
    };
    let fields = block.get(20..block.len() - 4).unwrap_or_default();
    let comments =
        options::<BE>(fields).filter(|(code, value)| *code == 1 && value.len() <= MOST.1);
    comments
        .take(MOST.0)
        .map(|(_, value)| text(value))
        .collect()
}

/// Option text; bytes that are not UTF-8 are escaped, as `\xff`.
///
/// The bytes are copied before they are checked, because the bytes of a mapped file may change at any time.
fn text(value: &[u8]) -> String {
    let copy = value.to_vec();
    let text = String::from_utf8(copy).unwrap_or_else(|error| from_bytes(error.as_bytes()));
    text.trim_end_matches('\0').to_owned()
}

/// The options in `bytes` as `(code, value)`, up to the end mark or the first option that does not fit.
pub(super) fn options<const BE: bool>(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        if rest.len() < 4 {
            return None;
        }
        let (code, len) = (u16_at::<BE>(rest, 0), usize::from(u16_at::<BE>(rest, 2)));
        let value = rest.get(4..4 + len).filter(|_| code != 0)?;
        rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((code, value))
    })
}
