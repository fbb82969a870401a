//! Health of TCP conversations: segments sent again, late, and unwanted, and times of acknowledgements.
//!
//! A table of fixed size holds the conversations, in `sets`. If a set is full, a new conversation takes the place of the
//! least important: conversations of one direction go first, then ended conversations, and then the conversation with the longest
//! silence. So a flood of connection requests from random addresses displaces itself. The totals have the figures of all packets, also
//! of displaced conversations.

mod figures;
mod outstanding;
pub mod rules;
mod segment;

pub use figures::{Figures, Rtt};

use super::sets::{Placed, Sets};
use core::cmp::Reverse;
use core::ops::AddAssign;
use outstanding::Pool;
use rules::{Begin, Direction, judge};
use segment::{ACK, FIN, RST, SYN, Segment};
use weir_packet::flow::{FlowKey, Hasher};
use weir_packet::transport::Transport;

/// Packets between two steps of the clock that tells which conversation was silent longest, as a power of two.
const TICK: u32 = 6;

/// Rank of a conversation in its set: the least goes first. The clock fills the bits below.
const ENDED: u32 = 1 << 30;
const ALIVE: u32 = 2 << 30;
const TICKS: u32 = (1 << 30) - 1;

/// A conversation. The first direction is the direction of the key.
#[derive(Clone, Copy, Debug)]
struct Conversation {
    /// The key that is not reversed.
    key: FlowKey,
    /// Times of the first and the latest packet, ns.
    first_ns: i64,
    latest_ns: i64,
    directions: [Direction; 2],
    begin: Begin,
    figures: [Figures; 2],
    /// Directions with a segment, and directions with a FIN: a bit each.
    sent: u8,
    finished: u8,
    is_reset: bool,
    /// Direction of the client, if the begin was seen.
    client: Option<u8>,
    /// Whether another connection of the same ends took its place.
    is_over: bool,
    /// Number of the window in which the conversation, or the one before it in its place, was seen last.
    window: u32,
}

impl Conversation {
    fn new(key: FlowKey, time_ns: i64) -> Self {
        Self {
            key,
            first_ns: time_ns,
            latest_ns: time_ns,
            directions: [Direction::NEW; 2],
            begin: Begin::default(),
            figures: Default::default(),
            sent: 0,
            finished: 0,
            is_reset: false,
            client: None,
            is_over: false,
            window: 0,
        }
    }

    fn has_ended(&self) -> bool {
        self.is_over || self.is_reset || self.finished == 3
    }

    /// Rank in the set, at this time of the clock.
    fn rank(&self, tick: u32) -> u32 {
        let class = match (self.has_ended(), self.sent) {
            (true, _) => ENDED,
            (false, 3) => ALIVE,
            (false, _) => 0,
        };
        class | tick & TICKS
    }

    fn row(&self, figures: [Figures; 2]) -> Row {
        // The client comes first, if it is known.
        let turned = self.client == Some(1);
        let [mut sent, mut received] = figures;
        if turned {
            (sent, received) = (received, sent);
        }
        Row {
            key: if turned { self.key.turned() } else { self.key },
            first_ns: self.first_ns,
            latest_ns: self.latest_ns,
            begun: self.client.is_some(),
            handshake_ns: Some(self.begin.handshake_ns).filter(|ns| *ns != 0),
            directions: [sent, received],
        }
    }
}

/// Figures of a conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The ends. The source is the client, if the begin was seen; else it is the lower address.
    pub key: FlowKey,
    /// Time of the first packet, ns since 1970.
    pub first_ns: i64,
    /// Time of the latest packet, ns since 1970.
    pub latest_ns: i64,
    /// Whether the connection began with a SYN that was seen. If not, it began before the capture, or its earlier packets were
    /// displaced from the table.
    pub begun: bool,
    /// Duration of the handshake, ns; `None` if it was not seen.
    pub handshake_ns: Option<i64>,
    /// Figures of the segments of the source, and of the segments of the destination.
    pub directions: [Figures; 2],
}

impl Row {
    /// Returns the sum of both directions, except times.
    pub fn both(&self) -> Figures {
        both(&self.directions)
    }

    /// Order of rows: segments sent again, other troubles, packets; then the key and the time.
    fn order(&self) -> impl Ord + use<> {
        let both = self.both();
        let key: [u8; 40] = zerocopy::transmute!(self.key);
        (
            Reverse((both.retransmitted, both.troubles(), both.packets)),
            key,
            self.first_ns,
        )
    }
}

/// Numbers of conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Conversations with packets.
    pub conversations: u64,
    /// Conversations among them whose begin was not seen.
    pub midway: u64,
    /// Conversations that lost their place in the table to others.
    pub evicted: u64,
    /// Most segments sent again of a conversation that lost its place.
    pub evicted_retransmitted: u64,
    /// TCP packets that were not judged: fragments, and headers that are cut.
    pub unjudged: u64,
}

impl AddAssign for Numbers {
    fn add_assign(&mut self, other: Self) {
        self.conversations += other.conversations;
        self.midway += other.midway;
        self.evicted += other.evicted;
        self.evicted_retransmitted = self.evicted_retransmitted.max(other.evicted_retransmitted);
        self.unjudged += other.unjudged;
    }
}

/// Health of the TCP conversations of a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Numbers of conversations.
    pub numbers: Numbers,
    /// Sum of the figures of all conversations, displaced ones included.
    pub sum: Figures,
    /// Conversations with the most segments sent again; equal ones by other troubles, and then by packets.
    pub rows: Vec<Row>,
    /// Conversations that the tables hold at most.
    pub capacity: u64,
}

impl Report {
    /// Adds the report of another worker, about other conversations of the same time.
    pub fn merge(&mut self, other: Self, rows: usize) {
        self.numbers += other.numbers;
        self.sum += other.sum;
        self.capacity += other.capacity;
        self.rows.extend(other.rows);
        rank(&mut self.rows, rows);
    }
}

/// Keeps the first `most` rows, in their order.
fn rank(rows: &mut Vec<Row>, most: usize) {
    rows.sort_by_cached_key(Row::order);
    rows.truncate(most);
}

/// Bytes of a conversation with its share of outstanding segments, without and with windows: the table holds `memory / bytes`
/// conversations, rounded to a power of two below.
pub const fn bytes_of_one(windows: bool) -> usize {
    let earlier = if windows {
        size_of::<[Figures; 2]>()
    } else {
        0
    };
    size_of::<Conversation>() + size_of::<u32>() + Sets::PLACE + earlier + SEGMENTS * Pool::SEGMENT
}

/// Outstanding segments of a conversation, on average. One direction may have an eighth of all.
const SEGMENTS: usize = 6;

/// Table of conversations.
#[derive(Debug)]
pub(super) struct Conversations {
    hasher: Hasher,
    /// Places of the conversations, ranked by [`Conversation::rank`].
    sets: Sets,
    conversations: Vec<Conversation>,
    pool: Pool,
    /// Number of TCP packets, which is the clock of the ranks.
    packets: u64,
    /// Number of the current window, from 1.
    window: u32,
    /// Conversations seen in the current window.
    seen: Vec<u32>,
    /// Sums of displaced conversations, of the current window.
    now: Sums,
    /// Sum of the windows before the current one.
    before: Figures,
    /// Figures of each conversation before the current window, if there are windows.
    earlier: Option<Vec<[Figures; 2]>>,
    /// Numbers of all time.
    all: Numbers,
}

/// Sums of displaced conversations, and numbers that no conversation has.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    numbers: Numbers,
    figures: Figures,
}

impl Conversations {
    /// Makes a table of at most `memory` bytes, but of 64 conversations at least. The memory is used as it is needed.
    pub fn new(memory: usize, hasher: Hasher, windows: bool) -> Self {
        let sets = Sets::new(memory / bytes_of_one(windows));
        let places = sets.places();
        Self {
            hasher,
            sets,
            conversations: Vec::with_capacity(places),
            pool: Pool::new(places * SEGMENTS),
            packets: 0,
            window: 1,
            seen: Vec::with_capacity(places),
            now: Sums::default(),
            before: Figures::default(),
            earlier: windows.then(|| Vec::with_capacity(places)),
            all: Numbers::default(),
        }
    }

    /// Returns the hash of a conversation, and prefetches its set.
    #[inline]
    pub fn prefetch(&self, key: &FlowKey) -> u64 {
        let hash = self.hasher.flow(key).symmetric;
        self.sets.prefetch(hash);
        hash
    }

    /// Prefetches the conversation that probably has a hash. Its [set](Self::prefetch) is read.
    #[inline]
    pub fn prefetch_conversation(&self, hash: u64) {
        if let Some(number) = self.sets.likely(hash) {
            weir_memory::prefetch_all(&self.conversations, number);
        }
    }

    /// Takes a TCP packet. `hash` comes from [`Self::prefetch`]. **Cost**: no allocation; a set of the table is searched.
    pub fn take(&mut self, transport: &Transport<'_>, hash: u64, time_ns: i64) {
        self.packets += 1;
        let segment = Segment::of(transport);
        if segment.is_none_or(|segment| segment.len.is_none()) {
            self.now.numbers.unjudged += 1;
            self.all.unjudged += 1;
        }
        let Some(segment) = segment else { return };
        let direction = usize::from(transport.key.is_reversed());
        let (place, number) = self.find(&transport.key, hash, direction, &segment, time_ns);
        let conversation = &mut self.conversations[number];
        if conversation.window != self.window {
            conversation.window = self.window;
            self.seen.push(number as u32);
        }
        conversation.take(direction, &segment, &mut self.pool, time_ns);
        let rank = conversation.rank((self.packets >> TICK) as u32);
        self.sets.rank(place, rank);
    }

    /// Returns the place and the number of the conversation of a segment; makes room for it if it is new.
    fn find(
        &mut self,
        key: &FlowKey,
        hash: u64,
        direction: usize,
        segment: &Segment,
        time_ns: i64,
    ) -> (usize, usize) {
        let key = if direction == 1 { key.turned() } else { *key };
        let conversations = &mut self.conversations;
        let same =
            |number: usize| !conversations[number].is_over && conversations[number].key == key;
        if let Some((place, number)) = self.sets.find(hash, same) {
            let found = &mut conversations[number];
            if !found.directions[direction].begins_another(segment) {
                return (place, number);
            }
            found.is_over = true;
            let rank = found.rank((self.packets >> TICK) as u32);
            self.sets.rank(place, rank);
        }
        let mut new = Conversation::new(key, time_ns);
        new.client = match segment.flags & (SYN | ACK) {
            SYN => Some(direction as u8),
            0 | ACK => None,
            _ => Some(1 - direction as u8),
        };
        self.all.conversations += 1;
        self.all.midway += u64::from(new.client.is_none());
        let Placed {
            place,
            number,
            evicts,
        } = self.sets.put(hash);
        let number = number as usize;
        if evicts {
            self.evict(number, new);
        } else {
            self.conversations.push(new);
            self.earlier
                .iter_mut()
                .for_each(|earlier| earlier.push(Default::default()));
        }
        (place, number)
    }

    /// Replaces a conversation by a new one.
    fn evict(&mut self, number: usize, mut new: Conversation) {
        let earlier = self.earlier.as_mut().map(|earlier| &mut earlier[number]);
        let old = &mut self.conversations[number];
        self.now.figures += both(&old.figures);
        for direction in &mut old.directions {
            self.pool.clear(&mut direction.outstanding);
        }
        let again = |figures: &[Figures; 2]| figures[0].retransmitted + figures[1].retransmitted;
        let lost =
            again(&old.figures) + earlier.map_or(0, |earlier| again(&std::mem::take(earlier)));
        for numbers in [&mut self.now.numbers, &mut self.all] {
            numbers.evicted += 1;
            numbers.evicted_retransmitted = numbers.evicted_retransmitted.max(lost);
        }
        // The number is among those seen in this window already.
        new.window = old.window;
        if old.window == self.window {
            self.now.numbers.conversations += 1;
            self.now.numbers.midway += u64::from(old.client.is_none());
        }
        *old = new;
    }

    /// Ends the current window, and returns its report of at most `rows` conversations.
    pub fn end_window(&mut self, rows: usize) -> Report {
        let seen = std::mem::take(&mut self.seen);
        let now = std::mem::take(&mut self.now);
        let mut report = Report {
            numbers: now.numbers,
            sum: now.figures,
            rows: self.rows(&seen, rows, |_| Default::default()),
            capacity: self.sets.places() as u64,
        };
        let midway = |number: &&u32| self.conversations[**number as usize].client.is_none();
        report.numbers.conversations += seen.len() as u64;
        report.numbers.midway += seen.iter().filter(midway).count() as u64;
        for number in &seen {
            let number = *number as usize;
            let figures = std::mem::take(&mut self.conversations[number].figures);
            report.sum += both(&figures);
            if let Some(earlier) = &mut self.earlier {
                add(&mut earlier[number], figures);
            }
        }
        self.before += report.sum;
        self.seen = seen;
        self.seen.clear();
        self.window = self.window.wrapping_add(1).max(1);
        report
    }

    /// Returns the report of all time.
    pub fn total(&self, rows: usize) -> Report {
        let all: Vec<u32> = (0..self.conversations.len() as u32).collect();
        let earlier = |number: u32| match &self.earlier {
            Some(earlier) => earlier[number as usize],
            None => Default::default(),
        };
        let mut sum = self.before;
        sum += self.now.figures;
        for conversation in &self.conversations {
            sum += both(&conversation.figures);
        }
        Report {
            numbers: self.all,
            sum,
            rows: self.rows(&all, rows, earlier),
            capacity: self.sets.places() as u64,
        }
    }

    /// Returns the first `most` rows of these conversations; `earlier` gives the figures to add.
    fn rows(&self, of: &[u32], most: usize, earlier: impl Fn(u32) -> [Figures; 2]) -> Vec<Row> {
        let row = |number: u32| {
            let conversation = &self.conversations[number as usize];
            let mut figures = conversation.figures;
            add(&mut figures, earlier(number));
            conversation.row(figures)
        };
        let mut first: Vec<Row> = Vec::with_capacity(2 * most.min(of.len()));
        for number in of {
            first.push(row(*number));
            // Sorted in pieces, so that there are never many more rows than asked for.
            if first.len() == first.capacity() {
                rank(&mut first, most);
            }
        }
        rank(&mut first, most);
        first
    }
}

impl Conversation {
    /// Takes a segment of a direction.
    #[inline]
    fn take(&mut self, direction: usize, segment: &Segment, pool: &mut Pool, time_ns: i64) {
        self.latest_ns = time_ns;
        self.sent |= 1 << direction;
        self.is_reset |= segment.flags & RST != 0;
        self.finished |= u8::from(segment.flags & FIN != 0) << direction;
        let [a, b] = &mut self.directions;
        let [of_a, of_b] = &mut self.figures;
        let (ends, figures) = match direction {
            0 => ([a, b], [of_a, of_b]),
            _ => ([b, a], [of_b, of_a]),
        };
        judge(ends, &mut self.begin, figures, pool, segment, time_ns);
    }
}

fn both([a, b]: &[Figures; 2]) -> Figures {
    let mut sum = *a;
    sum += *b;
    sum
}

fn add(sum: &mut [Figures; 2], more: [Figures; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}
