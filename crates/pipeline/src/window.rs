//! One window of a source: several cursors, and the proof that they form one chain.

use crate::reader::Current;
use crate::{Consumer, With};
use weir_memory::prefetch;
use weir_packet::Frame;
use weir_packet::savefile::walk::{Cursor, MAX_CURSORS, Visit, guess, walk};
use weir_packet::savefile::{Bytes, Format, Stop};

/// Records shorter than this on average are walked with one cursor: the processor's own prefetching follows the chain,
/// and more cursors only get in its way (measured, 60-byte frames: 3.5 ns with one cursor, 5-10 ns with 4 to 16; MWN
/// sizes: 137 ns with one, 28 with 8, 20 with 16).
const ONE_CURSOR_BELOW: usize = 320;

/// A cursor's part is at least this long, so that guessing its start does not cost more than it saves.
const MIN_PART: usize = 64 << 10;

/// Where the first record of a window is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// At this offset, for certain.
    Exact(usize),
    /// Somewhere from this offset on.
    Guess(usize),
}

/// What came of a window. All offsets are into its view.
pub(crate) struct Window<P> {
    /// Where its first record was taken to begin; `None` if no record seemed to begin in it.
    pub start: Option<usize>,
    /// Where the chain ended.
    pub end: usize,
    /// Why it ended there.
    pub stop: Stop,
    /// Packets of the chain.
    pub received: u64,
    /// The chain's last packet, if there is one.
    pub last: usize,
    /// Packets that were found from a wrong start and thrown away.
    pub reread: u64,
    /// The chain's records that say what the capture lost.
    pub statistics: Vec<usize>,
    /// What the consumer made of the chain.
    pub part: P,
}

/// One cursor's findings.
struct Piece<P> {
    received: u64,
    last: usize,
    statistics: Vec<usize>,
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
        let with = With { layout: &self.current.layout, plan: &self.current.plan, bytes: self.bytes, records };
        let piece = &mut self.pieces[cursor];
        let taken = self.consumer.frames(&with, frames, &mut piece.part);
        piece.received += taken as u64;
        if taken > 0 {
            piece.last = records[taken - 1] as usize;
        }
        taken == frames.len()
    }

    fn statistics(&mut self, cursor: usize, record: usize) {
        self.pieces[cursor].statistics.push(record);
    }

    /// The record header, and the frame's first bytes as far as filters look at most packets: they share a line or two.
    #[inline(always)]
    fn ahead(&mut self, buf: &[u8], next: usize) {
        prefetch(buf, next);
        prefetch(buf, next + 63);
    }
}

/// Processes the records that begin in the window: from `start` to `limit`, an offset into `bytes`; `claimed` packets, if the source
/// says how many, else 0.
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
            statistics: Vec::new(),
            part: Default::default(),
        };
    };
    let run = |cursors: &mut [Cursor]| {
        let pieces = cursors
            .iter()
            .map(|_| Piece { received: 0, last: 0, statistics: Vec::new(), part: consumer.piece(claimed) })
            .collect();
        let mut visitor = Visitor { consumer, current, bytes, pieces };
        walk(layout, bytes, eof, cursors, &mut visitor);
        visitor.pieces
    };
    let one = consumer.in_order() || matches!(layout.format, Format::Ring | Format::Slots | Format::Spool);
    let wanted = if one { 1 } else { cursors_for(current, bytes, eof, first, limit) };
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
        statistics: head.statistics,
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
        window.received += piece.received;
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

/// How many cursors the records from `first` on deserve.
fn cursors_for<P>(current: &Current<P>, bytes: Bytes<'_>, eof: bool, first: usize, limit: usize) -> usize {
    /// Bytes looked at to learn the mean length of a record.
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
    if mean < ONE_CURSOR_BELOW { 1 } else { parts.min(MAX_CURSORS) }
}

/// Places up to `wanted` cursors at equal distances; where no record seems to begin, the one before goes on.
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
