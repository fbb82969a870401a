//! Stepping from record to record, with one cursor or several.
//!
//! Back-to-back records are a chain: the start of the next record is known only after this record's header has been loaded.
//! Several cursors in one slice make these loads independent of each other. A cursor that does not start at the end of
//! another cursor is *provisional*: see [`guess`]. Its records count only once the cursor before it has ended exactly at its
//! start.

use super::{Bytes, Format, Layout, Stop, pcap, pcapng, ring, slots, spool};
use crate::Frame;

/// Largest number of frames that are passed to the visitor at once.
pub const BATCH: usize = 32;

/// Largest number of cursors that one call can interleave.
pub const MAX_CURSORS: usize = 16;

/// Place in a chain of records. All positions are offsets into the slice that is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Start of the next record; after the walk, the position at which the cursor stopped.
    pub pos: usize,
    /// Records that begin at or after this offset belong to the next cursor.
    pub end: usize,
    /// Reason for the stop; `None` while the cursor runs.
    pub stop: Option<Stop>,
    /// Whether a packet of the present batch has another length in the source than it had on the wire.
    uneven: bool,
}

impl Cursor {
    /// A cursor that will walk the records that begin in `pos..end`.
    pub fn new(pos: usize, end: usize) -> Self {
        Self {
            pos,
            end,
            stop: None,
            uneven: false,
        }
    }
}

/// Receives the frames of a walk.
pub trait Visit {
    /// Takes the next frames of cursor `cursor`, at most [`BATCH`], and the offset of each frame's record. If the result is
    /// `false`, this cursor's walk ends with [`Stop::Enough`].
    fn frames(&mut self, cursor: usize, records: &[u32], frames: &[Frame<'_>]) -> bool;

    /// Announces, if there are several cursors, frames that follow the next frames. An
    /// implementation can prefetch what it needs for them.
    #[inline(always)]
    fn soon(&mut self, frames: &[Frame<'_>]) {
        let _ = frames;
    }

    /// Announces, before the next frames of the cursor, that the bytes of one of them are not as many as its wire length.
    #[cold]
    fn uneven(&mut self, cursor: usize) {
        let _ = cursor;
    }

    /// Takes the offset of a record with a note, such as interface statistics, after the frames
    /// passed so far; [`Layout::noted`] reads it.
    #[inline(always)]
    fn statistics(&mut self, cursor: usize, record: usize) {
        let _ = (cursor, record);
    }

    /// Announces, if there are several cursors, that the cursor reads the record at `next` in its
    /// next turn. `next` may lie after the end of `buf`. An implementation can prefetch the record;
    /// this crate cannot, because it has no unsafe code.
    #[inline(always)]
    fn ahead(&mut self, buf: &[u8], next: usize) {
        let _ = (buf, next);
    }
}

/// Step of a codec.
pub(super) enum Step<'a> {
    /// A packet record, and the offset of the next record.
    Packet(Frame<'a>, usize),
    /// A packet record with a note in addition to its packet, and the offset of the next record.
    Noted(Frame<'a>, usize),
    /// A record that holds no packet, and the offset of the next record.
    Skip(usize),
    /// A record that holds no packet but a note, such as interface statistics, and the offset of the next record.
    Statistics(usize),
    /// No step, and the reason.
    Stop(Stop),
}

/// Operations that a format implements for the walk.
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
/// The guess may be wrong, because a pcap has no sync mark and a payload may itself hold a capture. **Cost**: about 1 ns per
/// byte read.
pub fn guess<'a>(
    layout: &Layout,
    bytes: impl Into<Bytes<'a>>,
    eof: bool,
    from: usize,
    to: usize,
) -> Option<usize> {
    let bytes = bytes.into();
    with_codec!(layout, bytes, eof, codec => codec.guess(bytes.slice(), from, to))
}

/// Walks all cursors to their ends, interleaved, and passes their frames to `visit`.
///
/// `bytes` are a piece of the source; `eof` says that the source ends with this piece. Every cursor has its `stop` set on
/// return. **Cost**: no allocation; one cursor reads about one cache line per record, in a chain.
///
/// # Panics
/// If there are more than [`MAX_CURSORS`] cursors, or the slice has 4 GiB or more, because record offsets are `u32`.
pub fn walk<'a>(
    layout: &Layout,
    bytes: impl Into<Bytes<'a>>,
    eof: bool,
    cursors: &mut [Cursor],
    visit: &mut impl Visit,
) {
    let bytes = bytes.into();
    let buf = bytes.slice();
    assert!(
        cursors.len() <= MAX_CURSORS && u32::try_from(buf.len()).is_ok(),
        "the caller keeps to the limits"
    );
    with_codec!(layout, bytes, eof, codec => match cursors {
        [one] => walk_one(&codec, buf, one, visit),
        many => walk_many(&codec, buf, many, visit),
    });
}

const EMPTY: Frame<'static> = Frame {
    data: &[],
    wire_len: 0,
    interface: 0,
};

fn walk_one<'a, W: Walker<'a>>(
    codec: &W,
    buf: &'a [u8],
    cursor: &mut Cursor,
    visit: &mut impl Visit,
) {
    let mut frames = [EMPTY; BATCH];
    let mut records = [0u32; BATCH];
    while cursor.stop.is_none() {
        let (filled, statistics) = fill(codec, buf, cursor, &mut frames, &mut records);
        if core::mem::take(&mut cursor.uneven) {
            visit.uneven(0);
        }
        if filled > 0 && !visit.frames(0, &records[..filled], &frames[..filled]) {
            cursor.stop = Some(Stop::Enough);
        } else if let Some(record) = statistics {
            visit.statistics(0, record);
        }
    }
}

/// Moves a cursor on by at most a batch. Returns the number of frames, and the offset of the statistics record that ended the
/// batch, if there was one.
///
/// A separate function, so that its few variables stay in registers.
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
                if is_uneven(&frame) {
                    cursor.uneven = true;
                }
                frames[filled] = frame;
                records[filled] = pos as u32;
                filled += 1;
                pos = next;
            }
            Step::Noted(frame, next) => {
                cursor.uneven |= is_uneven(&frame);
                frames[filled] = frame;
                records[filled] = pos as u32;
                filled += 1;
                statistics = Some(pos);
                pos = next;
                break;
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

/// Whether a frame has more bytes than its wire length, which no capture writes: one of the lengths is wrong.
#[inline(always)]
pub fn is_longer(frame: &Frame<'_>) -> bool {
    frame.data.len() > frame.wire_len as usize
}

/// Whether a frame has fewer bytes than its wire length: it was cut.
#[inline(always)]
pub fn is_cut(frame: &Frame<'_>) -> bool {
    frame.data.len() < frame.wire_len as usize
}

/// Whether a frame was cut, or is longer than its wire length.
#[inline(always)]
fn is_uneven(frame: &Frame<'_>) -> bool {
    frame.data.len() != frame.wire_len as usize
}

/// Packets of a cursor in the present batch.
struct Lane<'a> {
    filled: usize,
    records: [u32; BATCH],
    frames: [Frame<'a>; BATCH],
}

impl<'a> Lane<'a> {
    const EMPTY: Self = Self {
        filled: 0,
        records: [0; BATCH],
        frames: [EMPTY; BATCH],
    };

    /// Adds a packet; a batch has room for all of its steps.
    #[inline(always)]
    fn push(&mut self, frame: Frame<'a>, record: usize) {
        // The remainder is the number itself, which the compiler then need not check.
        let at = self.filled % BATCH;
        self.frames[at] = frame;
        self.records[at] = record as u32;
        self.filled += 1;
    }
}

#[inline(never)]
fn walk_many<'a, W: Walker<'a>>(
    codec: &W,
    buf: &'a [u8],
    cursors: &mut [Cursor],
    visit: &mut impl Visit,
) {
    let mut lanes = [Lane::EMPTY; MAX_CURSORS];
    loop {
        for _ in 0..BATCH {
            for (i, (cursor, lane)) in cursors.iter_mut().zip(&mut lanes).enumerate() {
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
                        if is_uneven(&frame) {
                            cursor.uneven = true;
                        }
                        lane.push(frame, cursor.pos);
                        cursor.pos = next;
                    }
                    Step::Noted(frame, next) => {
                        visit.ahead(buf, next);
                        cursor.uneven |= is_uneven(&frame);
                        visit.statistics(i, cursor.pos);
                        lane.push(frame, cursor.pos);
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
        for (i, cursor) in cursors.iter_mut().enumerate() {
            if let [this, next, ..] = &lanes[i..]
                && this.filled > 0
                && next.filled > 0
            {
                visit.soon(&next.frames[..next.filled]);
            }
            let lane = &mut lanes[i];
            if core::mem::take(&mut cursor.uneven) {
                visit.uneven(i);
            }
            let filled = core::mem::take(&mut lane.filled);
            if filled > 0 && !visit.frames(i, &lane.records[..filled], &lane.frames[..filled]) {
                cursor.stop = Some(Stop::Enough);
            }
            running |= cursor.stop.is_none();
        }
        if !running {
            return;
        }
    }
}
