//! One window of a source, walked by several cursors, with the proof that their parts form one chain.

use crate::reader::Current;
use crate::{Consumer, With};
use weir_memory::prefetch;
use weir_packet::Frame;
use weir_packet::savefile::walk::{Cursor, MAX_CURSORS, Visit, guess, is_cut, is_longer, walk};
use weir_packet::savefile::{Bytes, Format, Stop};

/// Mean record length, bytes, below which a window is walked with one cursor. For short records, the processor's own prefetching
/// follows the chain, and more cursors only disturb it. Measured: 60-byte frames 3.5 ns with one cursor, 5-10 ns with 4 to 16; MWN
/// sizes 137 ns with one, 28 with 8, 20 with 16.
const ONE_CURSOR_BELOW: usize = 320;

/// Smallest part of a cursor, bytes: for a shorter part, the guess of its start costs more than the cursor saves.
const MIN_PART: usize = 64 << 10;

/// Position of the first record of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// Exactly this offset.
    Exact(usize),
    /// An unknown offset, this one or a later one.
    Guess(usize),
}

/// Result of a window. All offsets are relative to its chunk.
pub(crate) struct Window<P> {
    /// Assumed offset of the first record; `None` if no record seemed to begin in the window.
    pub start: Option<usize>,
    /// Offset of the end of the chain.
    pub end: usize,
    /// Reason for the end of the chain.
    pub stop: Stop,
    /// Number of packets of the chain.
    pub received: u64,
    /// Offset of the chain's last packet, if the chain has one.
    pub last: usize,
    /// Number of packets found from a wrong start, and discarded.
    pub reread: u64,
    /// Packets of the chain with more bytes than their wire length.
    pub longer: u64,
    /// Whether a packet of the chain has fewer bytes than its wire length.
    pub has_cut: bool,
    /// Offsets of the chain's records with interface statistics.
    pub statistics: Vec<usize>,
    /// Number of these in front of all packets of the chain.
    pub leading: usize,
    /// Result of the consumer for the chain.
    pub part: P,
}

/// One cursor's findings.
struct Piece<P> {
    received: u64,
    last: usize,
    longer: u64,
    has_cut: bool,
    /// Whether some of the next frames have more or fewer bytes than their wire length.
    has_uneven: bool,
    statistics: Vec<usize>,
    leading: usize,
    part: P,
}

struct Visitor<'a, C: Consumer> {
    consumer: &'a C,
    current: &'a Current<C::Plan>,
    bytes: Bytes<'a>,
    pieces: Vec<Piece<C::Part>>,
}

impl<C: Consumer> Visit for Visitor<'_, C> {
    #[inline]
    fn frames(&mut self, cursor: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
        let with = With {
            layout: &self.current.layout,
            plan: &self.current.plan,
            bytes: self.bytes,
            records,
        };
        let piece = &mut self.pieces[cursor];
        self.consumer.frames(&with, frames, &mut piece.part);
        piece.received += frames.len() as u64;
        if let Some(&last) = records.last() {
            piece.last = last as usize;
        }
        if std::mem::take(&mut piece.has_uneven) {
            piece.longer += frames.iter().filter(|frame| is_longer(frame)).count() as u64;
            piece.has_cut |= frames.iter().any(is_cut);
        }
        true
    }

    #[inline]
    fn soon(&mut self, frames: &[Frame<'_>]) {
        self.consumer.soon(&self.current.plan, frames);
    }

    fn uneven(&mut self, cursor: usize) {
        self.pieces[cursor].has_uneven = true;
    }

    fn statistics(&mut self, cursor: usize, record: usize) {
        let piece = &mut self.pieces[cursor];
        piece.statistics.push(record);
        if piece.received == 0 {
            piece.leading = piece.statistics.len();
        }
    }

    /// Prefetches the record header and the first bytes of the frame. For most packets, filters read no further; together these
    /// bytes take one or two cache lines.
    #[inline(always)]
    fn ahead(&mut self, buf: &[u8], next: usize) {
        prefetch(buf, next);
        prefetch(buf, next + 63);
    }
}

/// Processes the records that begin in the window, from `start` to `limit` (offsets into `bytes`). `claimed` is the number of
/// packets that the source announces, else 0.
pub(crate) fn process<C: Consumer>(
    consumer: &C,
    current: &Current<C::Plan>,
    bytes: Bytes<'_>,
    eof: bool,
    start: Start,
    limit: usize,
    claimed: u64,
) -> Window<C::Part> {
    let layout = &current.layout;
    let first = match start {
        Start::Exact(at) => Some(at),
        Start::Guess(from) => guess(layout, bytes, eof, from, limit),
    };
    let Some(first) = first else {
        return Window {
            start: None,
            end: 0,
            stop: Stop::End,
            received: 0,
            last: 0,
            reread: 0,
            longer: 0,
            has_cut: false,
            statistics: Vec::new(),
            leading: 0,
            part: Default::default(),
        };
    };
    let run = |cursors: &mut [Cursor]| {
        let piece = |_: &Cursor| Piece {
            received: 0,
            last: 0,
            longer: 0,
            has_cut: false,
            has_uneven: false,
            statistics: Vec::new(),
            leading: 0,
            part: consumer.piece(claimed),
        };
        let pieces = cursors.iter().map(piece).collect();
        let mut visitor = Visitor {
            consumer,
            current,
            bytes,
            pieces,
        };
        walk(layout, bytes, eof, cursors, &mut visitor);
        visitor.pieces
    };
    let one = matches!(layout.format, Format::Ring | Format::Slots | Format::Spool);
    let wanted = if one {
        1
    } else {
        cursors_for(current, bytes, eof, first, limit)
    };
    let mut cursors = place(current, bytes, eof, first, limit, wanted);
    let starts: Vec<usize> = cursors.iter().map(|cursor| cursor.pos).collect();
    let mut pieces = run(&mut cursors).into_iter();

    let head = pieces.next().expect("there is at least one cursor");
    let mut window = Window {
        start: Some(first),
        end: cursors[0].pos,
        stop: stop_of(&cursors[0]),
        received: head.received,
        last: head.last,
        reread: 0,
        longer: head.longer,
        has_cut: head.has_cut,
        statistics: head.statistics,
        leading: head.leading,
        part: head.part,
    };
    for (i, piece) in (1..).zip(pieces) {
        let proven = window.stop == Stop::End && window.end == starts[i];
        let (piece, cursor) = if proven {
            (piece, cursors[i])
        } else {
            window.reread += piece.received;
            if window.stop != Stop::End || window.end >= cursors[i].end {
                continue;
            }
            let mut again = [Cursor::new(window.end, cursors[i].end)];
            (run(&mut again).remove(0), again[0])
        };
        if window.received == 0 {
            window.leading += piece.leading;
        }
        window.received += piece.received;
        window.longer += piece.longer;
        window.has_cut |= piece.has_cut;
        window.statistics.extend(piece.statistics);
        if piece.received > 0 {
            window.last = piece.last;
        }
        window.end = cursor.pos;
        window.stop = stop_of(&cursor);
        consumer.append(&mut window.part, piece.part);
    }
    window
}

fn stop_of(cursor: &Cursor) -> Stop {
    cursor.stop.expect("a walk sets why each cursor stopped")
}

/// Returns the number of cursors for the records from `first` on.
fn cursors_for<P>(
    current: &Current<P>,
    bytes: Bytes<'_>,
    eof: bool,
    first: usize,
    limit: usize,
) -> usize {
    /// Bytes read to estimate the mean length of a record.
    const SAMPLE: usize = 16 << 10;
    struct Count(usize);
    impl Visit for Count {
        fn frames(&mut self, _: usize, records: &[u32], _: &[Frame<'_>]) -> bool {
            self.0 += records.len();
            true
        }
    }
    let parts = (limit - first.min(limit)) / MIN_PART;
    if parts < 2 {
        return 1;
    }
    let mut count = Count(0);
    let mut cursor = [Cursor::new(first, first + SAMPLE)];
    walk(&current.layout, bytes, eof, &mut cursor, &mut count);
    let mean = (cursor[0].pos - first) / count.0.max(1);
    if mean < ONE_CURSOR_BELOW {
        1
    } else {
        parts.min(MAX_CURSORS)
    }
}

/// Places up to `wanted` cursors at equal distances. If no record seems to begin in a part, the cursor before continues there.
fn place<P>(
    current: &Current<P>,
    bytes: Bytes<'_>,
    eof: bool,
    first: usize,
    limit: usize,
    wanted: usize,
) -> Vec<Cursor> {
    let part = (limit - first.min(limit)) / wanted;
    let mut cursors = vec![Cursor::new(first, limit)];
    for i in 1..wanted {
        let from = (first + i * part).max(cursors[cursors.len() - 1].pos + 1);
        let to = (first + (i + 1) * part).min(limit);
        if let Some(at) = guess(&current.layout, bytes, eof, from, to) {
            cursors.last_mut().expect("the first is there").end = at;
            cursors.push(Cursor::new(at, limit));
        }
    }
    cursors
}
