//! Stepping from record to record, with one cursor or several.
//!
//! Back-to-back records are a chain: where the next one begins is known only after this one's header is in a register.
//! Several cursors in one slice make these loads independent of each other. A cursor that does not start where another
//! one ended is *provisional*: see [`guess`]. What it finds counts only once the cursor before it has landed exactly on
//! its start.

use super::{Bytes, Format, Layout, Stop, pcap, pcapng, ring, slots, spool};
use crate::Frame;

/// Frames that are handed on at once.
pub const BATCH: usize = 32;

/// Cursors that one call can interleave.
pub const MAX_CURSORS: usize = 16;

/// One place in a chain of records. All positions are offsets into the slice that is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The next record's start; after the walk, where the cursor landed.
    pub pos: usize,
    /// Records that begin at or behind this offset belong to the next cursor.
    pub end: usize,
    /// Why the cursor stopped; `None` while it runs.
    pub stop: Option<Stop>,
}

impl Cursor {
    /// A cursor that will walk the records that begin in `pos..end`.
    pub fn new(pos: usize, end: usize) -> Self {
        Self { pos, end, stop: None }
    }
}

/// Receives the frames of a walk.
pub trait Visit {
    /// The next frames of cursor `cursor`, at most [`BATCH`], and the offset of each one's record. Returning `false` ends
    /// this cursor's walk with [`Stop::Enough`].
    fn frames(&mut self, cursor: usize, records: &[u32], frames: &[Frame<'_>]) -> bool;

    /// A record behind the frames told so far that says what the capture lost: [`Layout::interface_stats`] takes it apart.
    #[inline(always)]
    fn statistics(&mut self, cursor: usize, record: usize) {
        let _ = (cursor, record);
    }

    /// With several cursors: the record at `next` (it may lie behind the end of `buf`) is looked at in the next turn of its
    /// cursor. This is the place to have the processor fetch it, for which this crate, without unsafe code, has no means.
    #[inline(always)]
    fn ahead(&mut self, buf: &[u8], next: usize) {
        let _ = (buf, next);
    }
}

/// One step of a codec.
pub(super) enum Step<'a> {
    /// A packet record, and the offset of the next record.
    Packet(Frame<'a>, usize),
    /// A record that holds no packet.
    Skip(usize),
    /// The same, and it says what the capture lost.
    Statistics(usize),
    /// No step: why.
    Stop(Stop),
}

/// What a format must tell the walk.
pub(super) trait Walker<'a> {
    /// Takes the step at `pos <= buf.len()`.
    fn step(&self, buf: &'a [u8], pos: usize) -> Step<'a>;
    /// The first offset in `from..to` where a record seems to begin.
    fn guess(&self, buf: &[u8], from: usize, to: usize) -> Option<usize>;
}

/// Calls `$body` with `$codec` bound to the layout's codec.
macro_rules! with_codec {
    ($layout:expr, $bytes:expr, $eof:expr, $codec:ident => $body:expr) => {
        match ($layout.format, $layout.big_endian) {
            (Format::Pcap, false) => {
                let $codec = pcap::Codec::<false>::new($layout, $eof);
                $body
            }
            (Format::Pcap, true) => {
                let $codec = pcap::Codec::<true>::new($layout, $eof);
                $body
            }
            (Format::Pcapng, false) => {
                let $codec = pcapng::Codec::<false>::new($layout, $eof);
                $body
            }
            (Format::Pcapng, true) => {
                let $codec = pcapng::Codec::<true>::new($layout, $eof);
                $body
            }
            (Format::Ring, _) => {
                let $codec = ring::Codec;
                $body
            }
            (Format::Slots, _) => {
                let $codec = slots::Codec::new($bytes);
                $body
            }
            (Format::Spool, _) => {
                let $codec = spool::Codec::new($layout, $eof);
                $body
            }
        }
    };
}

/// The first offset in `from..to` where a record seems to begin, judged by several records in a row.
///
/// It may be wrong: a pcap has no sync mark and a payload may hold a capture itself. **Cost**: about 1 ns per byte looked
/// at.
pub fn guess<'a>(layout: &Layout, bytes: impl Into<Bytes<'a>>, eof: bool, from: usize, to: usize) -> Option<usize> {
    let bytes = bytes.into();
    with_codec!(layout, bytes, eof, codec => codec.guess(bytes.slice(), from, to))
}

/// Walks all cursors to their ends, interleaved, and hands their frames to `visit`.
///
/// `bytes` are a piece of the source, `eof` says that the source ends with it. Every cursor has its `stop` set on return.
/// **Cost**: no allocation; one cursor reads about one cache line per record, in a chain.
///
/// # Panics
/// With more than [`MAX_CURSORS`] cursors, or with a slice of 4 GiB or more: record offsets are `u32`.
pub fn walk<'a>(
    layout: &Layout,
    bytes: impl Into<Bytes<'a>>,
    eof: bool,
    cursors: &mut [Cursor],
    visit: &mut impl Visit,
) {
    let bytes = bytes.into();
    let buf = bytes.slice();
    assert!(cursors.len() <= MAX_CURSORS && u32::try_from(buf.len()).is_ok(), "the caller keeps to the limits");
    with_codec!(layout, bytes, eof, codec => match cursors {
        [one] => walk_one(&codec, buf, one, visit),
        many => walk_many(&codec, buf, many, visit),
    });
}

const EMPTY: Frame<'static> = Frame { data: &[], wire_len: 0, interface: 0 };

fn walk_one<'a, W: Walker<'a>>(codec: &W, buf: &'a [u8], cursor: &mut Cursor, visit: &mut impl Visit) {
    let mut frames = [EMPTY; BATCH];
    let mut records = [0u32; BATCH];
    while cursor.stop.is_none() {
        let (filled, statistics) = fill(codec, buf, cursor, &mut frames, &mut records);
        if filled > 0 && !visit.frames(0, &records[..filled], &frames[..filled]) {
            cursor.stop = Some(Stop::Enough);
        } else if let Some(record) = statistics {
            visit.statistics(0, record);
        }
    }
}

/// Takes a cursor on by up to a batch; returns how many frames that gave, and the statistics that ended it, if any did.
///
/// A function of its own, so that its few variables stay in registers.
#[inline(never)]
fn fill<'a, W: Walker<'a>>(
    codec: &W,
    buf: &'a [u8],
    cursor: &mut Cursor,
    frames: &mut [Frame<'a>; BATCH],
    records: &mut [u32; BATCH],
) -> (usize, Option<usize>) {
    let Cursor { mut pos, end, .. } = *cursor;
    let (mut filled, mut statistics) = (0, None);
    while filled < BATCH {
        if pos >= end {
            cursor.stop = Some(Stop::End);
            break;
        }
        match codec.step(buf, pos) {
            Step::Packet(frame, next) => {
                frames[filled] = frame;
                records[filled] = pos as u32;
                filled += 1;
                pos = next;
            }
            Step::Skip(next) => pos = next,
            Step::Statistics(next) => {
                statistics = Some(pos);
                pos = next;
                break;
            }
            Step::Stop(stop) => {
                cursor.stop = Some(stop);
                break;
            }
        }
    }
    cursor.pos = pos;
    (filled, statistics)
}

#[inline(never)]
fn walk_many<'a, W: Walker<'a>>(codec: &W, buf: &'a [u8], cursors: &mut [Cursor], visit: &mut impl Visit) {
    let mut frames = [[EMPTY; BATCH]; MAX_CURSORS];
    let mut records = [[0u32; BATCH]; MAX_CURSORS];
    loop {
        let mut filled = [0usize; MAX_CURSORS];
        for _ in 0..BATCH {
            for (i, cursor) in cursors.iter_mut().enumerate() {
                if cursor.stop.is_some() {
                    continue;
                }
                if cursor.pos >= cursor.end {
                    cursor.stop = Some(Stop::End);
                    continue;
                }
                match codec.step(buf, cursor.pos) {
                    Step::Packet(frame, next) => {
                        visit.ahead(buf, next);
                        frames[i][filled[i]] = frame;
                        records[i][filled[i]] = cursor.pos as u32;
                        filled[i] += 1;
                        cursor.pos = next;
                    }
                    Step::Skip(next) => cursor.pos = next,
                    Step::Statistics(next) => {
                        visit.statistics(i, cursor.pos);
                        cursor.pos = next;
                    }
                    Step::Stop(stop) => cursor.stop = Some(stop),
                }
            }
        }
        let mut running = false;
        for i in 0..cursors.len() {
            if filled[i] > 0 && !visit.frames(i, &records[i][..filled[i]], &frames[i][..filled[i]]) {
                cursors[i].stop = Some(Stop::Enough);
            }
            running |= cursors[i].stop.is_none();
        }
        if !running {
            return;
        }
    }
}
