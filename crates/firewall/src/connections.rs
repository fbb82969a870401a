//! Connections: which packets open one, belong to one, or are about one.
//!
//! A connection is one of TCP, a conversation of UDP or of another protocol, or a query of ICMP. It is in the table from its first packet that
//! passes. Addresses, ports and flags decide; sequence numbers are not looked at, and a connection that was open before is not taken up.
//!
//! | state | the packet |
//! |---|---|
//! | `new` | opens a connection (TCP: SYN without ACK), or repeats that while nothing has come back |
//! | `established` | comes back, or belongs to a connection from which something has come back |
//! | `related` | an ICMP error about a packet of a connection, sent to the sender of that packet |
//! | `invalid` | a TCP segment, an answer of ICMP or an ICMP error of no connection |
//!
//! Other messages of ICMP, such as router advertisements, are `new` and open nothing. A packet whose ports or flags the captured bytes do not
//! tell has no state: the field is absent.
//!
//! **Time-outs**, since the last packet: TCP 2 h 4 min, and 4 min while it opens or closes (RFC 5382, REQ-5); after a reset 10 s, or 4 min if
//! segments come yet, since a reset may be forged; UDP 2 min, and 5 min once an answer came (RFC 4787, REQ-5); ICMP 60 s (RFC 5508, REQ-2);
//! other protocols 5 min. The table knows the time in steps of 67 ms.
//!
//! **Bounded.** A connection has eight places. If all are in use, the one that would expire first among those that are not fully open (handshakes
//! without their last segment, unanswered packets, closed ones) gives its place away. So a flood of first packets closes no open connection. If
//! all eight are open, the new connection is not recorded, which its caller counts.
//!
//! **Layout**: an entry is two words that all workers share without a lock: the hash of the connection's key, and its phase, time-out and
//! orientation with 24 bits of the hash. A change of phase is one compare-and-swap of the second word, which fails if the place was given away
//! meanwhile. Two connections with one hash of 64 bits would be taken for one another. Checked under loom as it is shipped.

use crate::fields::{Content, Fields, TcpFlags, has_ports};
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, Hasher, Headers, Parser};

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

/// State of a packet in relation to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The packet opens a connection.
    New,
    /// The packet belongs to a connection from which something has come back.
    Established,
    /// The packet is an error about a packet of a connection.
    Related,
    /// The packet belongs to no connection, and can open none.
    Invalid,
}

/// Set of [`State`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States(u8);

impl States {
    /// Adds a state.
    pub fn add(&mut self, state: State) {
        self.0 |= 1 << state as u8;
    }

    /// Whether the state is in the set.
    #[inline]
    pub fn has(self, state: State) -> bool {
        self.0 >> state as u8 & 1 == 1
    }

    /// Whether all states of `other` are in the set.
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}

/// Default number of connections for which a table has room.
pub const CONNECTIONS: usize = 1 << 18;

/// Places of a connection that lie together: a cache line.
const WAYS: usize = 4;

/// Nanoseconds in a step of time, as a power of two.
const STEP: u32 = 26;

const fn steps(seconds: u64) -> u32 {
    ((seconds * 1_000_000_000) >> STEP) as u32
}

const OPEN: u32 = steps(7440);
const TRANSITORY: u32 = steps(240);
const RESET_TIME: u32 = steps(10);
const UDP_OPENED: u32 = steps(120);
const ANSWERED_TIME: u32 = steps(300);
const QUERY: u32 = steps(60);

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Nothing has come back yet.
    Opened = 1,
    /// TCP: the answer to the first segment has come, and nothing behind it.
    Answered = 2,
    Open = 3,
    /// TCP: the opening end has sent its last segment.
    ClosingByOpener = 4,
    /// TCP: the other end has sent its last segment.
    ClosingByOther = 5,
    Closed = 6,
    Reset = 7,
    /// The place is being written.
    Busy = 8,
}

impl Phase {
    fn of(bits: u64) -> Self {
        match bits & 0xf {
            1 => Self::Opened,
            2 => Self::Answered,
            3 => Self::Open,
            4 => Self::ClosingByOpener,
            5 => Self::ClosingByOther,
            6 => Self::Closed,
            7 => Self::Reset,
            _ => Self::Busy,
        }
    }

    /// Whether the place may be given away before the time-out.
    fn is_weak(self) -> bool {
        matches!(self, Self::Opened | Self::Answered | Self::Closed | Self::Reset)
    }
}

/// Second word of an entry: time of expiry in its lower half, then 4 bits of phase, the orientation, and from bit 40 on bits of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const FREE: Self = Self(0);

    /// `opener_is_greater`: the source of the opening packet is the greater end.
    fn new(expires: u32, phase: Phase, opener_is_greater: bool, hash: u64) -> Self {
        Self(u64::from(expires) | (phase as u64) << 32 | u64::from(opener_is_greater) << 36 | (hash >> 40) << 40)
    }

    fn phase(self) -> Phase {
        Phase::of(self.0 >> 32)
    }

    fn opener_is_greater(self) -> bool {
        self.0 >> 36 & 1 == 1
    }

    fn may_be(self, hash: u64) -> bool {
        self.0 >> 40 == hash >> 40 && self != Self::FREE && self.phase() != Phase::Busy
    }

    /// Steps of time until the entry expires; 0 if it has.
    fn left(self, now: u32) -> u32 {
        match (self.0 as u32).wrapping_sub(now) {
            left if left <= OPEN => left,
            // In the past, or clocks were set back by more than the longest time-out.
            _ => 0,
        }
    }

    fn is_vacant(self, now: u32) -> bool {
        self == Self::FREE || self.phase() != Phase::Busy && self.left(now) == 0
    }
}

#[derive(Debug)]
struct Entry {
    hash: AtomicU64,
    word: AtomicU64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Bucket([Entry; WAYS]);

/// A table of connections.
///
/// **Threads**: shared by all workers and directions. **Memory**: 16 bytes for each connection for which there is room.
#[derive(Debug)]
pub struct Connections {
    buckets: Box<[Bucket]>,
    hasher: Hasher,
    /// Parser of the packets that ICMP errors quote.
    quoted: Parser,
}

/// Kind of a packet, as far as it changes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A TCP segment with these flags.
    Tcp(u8),
    /// A packet that may open a connection, with the time-outs before and after the first answer.
    Opens(u32, u32),
    /// A packet that may only answer: an answer of ICMP.
    Answers(u32),
}

/// State of a packet, and what its passing changes.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// State; `None` if the captured bytes do not tell it.
    pub state: Option<State>,
    change: Option<(u64, bool, Kind)>,
}

impl Seen {
    const fn only(state: Option<State>) -> Self {
        Self { state, change: None }
    }
}

/// Message of ICMP.
enum Message {
    /// A question with the type of its kind.
    Query(u8),
    /// The answer to a question of this type.
    Answer(u8),
    Error,
    Other,
}

impl Message {
    /// Ports that stand for a query and its answer: the query's number for the end that asks, its type for the other.
    fn ports(&self, id: u16) -> Option<(u16, u16)> {
        // Both ports differ, or the end that asks would not be known.
        let other = |of: u8| if id == u16::from(of) { u16::MAX } else { u16::from(of) };
        match *self {
            Self::Query(of) => Some((id, other(of))),
            Self::Answer(of) => Some((other(of), id)),
            Self::Error | Self::Other => None,
        }
    }
}

impl Connections {
    /// Makes a table with room for `most` connections, at least 8; another number than a power of two is rounded up. The `seed` decides where
    /// connections lie, so that nobody can choose some that collide.
    pub fn new(most: usize, seed: u64) -> Self {
        let buckets = most.div_ceil(WAYS).max(2).next_power_of_two();
        let entry = || Entry { hash: AtomicU64::new(0), word: AtomicU64::new(0) };
        let bucket = || Bucket([entry(), entry(), entry(), entry()]);
        let quoted = Parser::new(LinkType::RAW, false).expect("weir reads raw IP");
        Self { buckets: std::iter::repeat_with(bucket).take(buckets).collect(), hasher: Hasher::new(seed), quoted }
    }

    /// Returns the state of a packet, without a change of its connection. `data` are the captured bytes of the frame.
    ///
    /// **Cost**: a hash and two cache lines; for ICMP a walk over the headers. No allocation.
    pub fn look(&self, parser: &Parser, fields: &Fields, data: &[u8], time_ns: u64) -> Seen {
        if !matches!(fields.content(), Content::Ip | Content::Neighbors) || fields.is_later_fragment() {
            return Seen::only(None);
        }
        let Some(proto) = fields.proto() else { return Seen::only(None) };
        let mut key = key_of(fields, proto);
        let kind = match (proto, fields.flags()) {
            (ICMP | ICMP6, _) => match self.icmp(parser, fields, data, time_ns, &mut key) {
                Ok(kind) => kind,
                Err(state) => return Seen::only(state),
            },
            _ if has_ports(proto) && fields.lacks_ports() => return Seen::only(None),
            (TCP, TcpFlags::Known(flags)) => Kind::Tcp(flags),
            (TCP, _) => return Seen::only(None),
            (UDP, _) => Kind::Opens(UDP_OPENED, ANSWERED_TIME),
            _ => Kind::Opens(ANSWERED_TIME, ANSWERED_TIME),
        };
        let flow = self.hasher.flow(&key);
        let (hash, is_reversed) = (flow.symmetric, flow.is_reversed());
        let entry = self.find(hash, (time_ns >> STEP) as u32);
        let (state, _) = step(entry.map(|(_, word)| word), kind, is_reversed);
        Seen { state: Some(state), change: Some((hash, is_reversed, kind)) }
    }

    /// Completes the key of an ICMP message. **Errors**: the state, if no connection can be opened or answered by it.
    fn icmp(
        &self,
        parser: &Parser,
        fields: &Fields,
        data: &[u8],
        time_ns: u64,
        key: &mut FlowKey,
    ) -> Result<Kind, Option<State>> {
        let Ok(Headers { transport, .. }) = parser.headers(data) else { return Err(None) };
        let [kind, _, _, _, high, low, _, _, quote @ ..] = transport else { return Err(None) };
        let id = u16::from_be_bytes([*high, *low]);
        let message = message(fields.is_v6(), *kind);
        if let Some(ports) = message.ports(id) {
            (key.sport, key.dport) = ports;
        }
        match message {
            Message::Query(_) => Ok(Kind::Opens(QUERY, QUERY)),
            Message::Answer(_) => Ok(Kind::Answers(QUERY)),
            Message::Error => {
                let is_known = self
                    .quoted_key(quote, fields)
                    .is_some_and(|key| self.find(self.hasher.flow(&key).symmetric, (time_ns >> STEP) as u32).is_some());
                Err(Some(if is_known { State::Related } else { State::Invalid }))
            }
            Message::Other => Err(Some(State::New)),
        }
    }

    /// Returns the key of the packet that an ICMP error to `fields.dst()` quotes.
    fn quoted_key(&self, quote: &[u8], fields: &Fields) -> Option<FlowKey> {
        let quoted = Fields::of(&self.quoted, quote);
        let is_ip = matches!(quoted.content(), Content::Ip | Content::Neighbors);
        // The error goes to the sender of the packet.
        if !is_ip || quoted.is_v6() != fields.is_v6() || quoted.src() != fields.dst() || quoted.is_later_fragment() {
            return None;
        }
        let proto = quoted.proto()?;
        let mut key = key_of(&quoted, proto);
        if matches!(proto, ICMP | ICMP6) {
            let Ok(Headers { transport: [kind, _, _, _, high, low, ..], .. }) = self.quoted.headers(quote) else {
                return None;
            };
            let id = u16::from_be_bytes([*high, *low]);
            (key.sport, key.dport) = message(fields.is_v6(), *kind).ports(id)?;
        } else if has_ports(proto) && quoted.ports().is_none() {
            return None;
        }
        Some(key)
    }

    /// Records that the packet passes. Returns whether there was room for a new connection.
    ///
    /// **Cost**: two cache lines; a compare-and-swap for a change of phase, and once in a step of time.
    pub fn pass(&self, seen: &Seen, time_ns: u64) -> bool {
        let Some((hash, is_reversed, kind)) = seen.change else { return true };
        self.advance(hash, is_reversed, kind, (time_ns >> STEP) as u32)
    }

    fn advance(&self, hash: u64, is_reversed: bool, kind: Kind, now: u32) -> bool {
        /// Attempts to take a place that others take too.
        const ATTEMPTS: usize = 16;
        for _ in 0..ATTEMPTS {
            let found = self.find(hash, now);
            let (_, next) = step(found.map(|(_, word)| word), kind, is_reversed);
            let Some((phase, time, opener_is_greater)) = next else { return true };
            let next = Word::new(now.wrapping_add(time), phase, opener_is_greater, hash);
            let done = match found {
                Some((_, word)) if word == next => true,
                Some((entry, word)) => {
                    entry.word.compare_exchange(word.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                }
                None => match self.give_place(hash, now) {
                    None => return false,
                    Some((entry, word)) => take(entry, word, hash, next),
                },
            };
            if done {
                return true;
            }
        }
        false
    }

    /// The two buckets of a connection.
    fn buckets(&self, hash: u64) -> [&Bucket; 2] {
        let mask = self.buckets.len() - 1;
        let one = hash as usize & mask;
        // Another bucket in any case.
        let other = (one ^ ((hash >> 20) as usize | 1)) & mask;
        [&self.buckets[one], &self.buckets[other]]
    }

    fn places(&self, hash: u64) -> impl Iterator<Item = &Entry> {
        self.buckets(hash).into_iter().flat_map(|bucket| &bucket.0)
    }

    /// Finds the entry of a connection that has not expired.
    fn find(&self, hash: u64, now: u32) -> Option<(&Entry, Word)> {
        self.places(hash).find_map(|entry| {
            let word = Word(entry.word.load(Ordering::Acquire));
            if !word.may_be(hash) || word.left(now) == 0 || entry.hash.load(Ordering::Acquire) != hash {
                return None;
            }
            // The place was not given away between both loads.
            (entry.word.load(Ordering::Acquire) == word.0).then_some((entry, word))
        })
    }

    /// Finds a place for a connection that has none: a vacant one of the bucket with more of them, or that of the weak entry that would expire
    /// first.
    fn give_place(&self, hash: u64, now: u32) -> Option<(&Entry, Word)> {
        let word = |entry: &Entry| Word(entry.word.load(Ordering::Acquire));
        let vacant =
            self.buckets(hash).map(|bucket| bucket.0.iter().filter(|entry| word(entry).is_vacant(now)).count());
        let words = || self.places(hash).map(|entry| (entry, word(entry)));
        let fuller = if vacant[1] > vacant[0] { WAYS } else { 0 };
        let place = words().skip(fuller).find(|(_, word)| word.is_vacant(now));
        place.or_else(|| words().filter(|(_, word)| word.phase().is_weak()).min_by_key(|(_, word)| word.left(now)))
    }

    /// Counts the connections that have not expired. **Cost**: the whole table.
    pub fn count(&self, time_ns: u64) -> usize {
        let now = (time_ns >> STEP) as u32;
        let word = |entry: &Entry| Word(entry.word.load(Ordering::Relaxed));
        let entries = self.buckets.iter().flat_map(|bucket| &bucket.0);
        entries.filter(|entry| !word(entry).is_vacant(now)).count()
    }
}

/// Puts a connection into a place whose word is `word`. Returns whether the place had still that word.
fn take(entry: &Entry, word: Word, hash: u64, next: Word) -> bool {
    let busy = Word::new(0, Phase::Busy, false, hash);
    if entry.word.compare_exchange(word.0, busy.0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    entry.hash.store(hash, Ordering::Release);
    entry.word.store(next.0, Ordering::Release);
    true
}

/// Returns the state of a packet, and the phase, time-out and orientation of its connection once it passes; `None` if it changes nothing.
fn step(entry: Option<Word>, kind: Kind, is_reversed: bool) -> (State, Option<(Phase, u32, bool)>) {
    use Phase::{Answered, Closed, ClosingByOpener, ClosingByOther, Open, Opened, Reset};
    let Some(word) = entry else {
        return match kind {
            Kind::Tcp(flags) if is_first(flags) => (State::New, Some((Opened, TRANSITORY, is_reversed))),
            Kind::Opens(time, _) => (State::New, Some((Opened, time, is_reversed))),
            Kind::Tcp(_) | Kind::Answers(_) => (State::Invalid, None),
        };
    };
    let (phase, opener_is_greater) = (word.phase(), word.opener_is_greater());
    let is_of_opener = opener_is_greater == is_reversed;
    let goes_on = |state, phase, time| (state, Some((phase, time, opener_is_greater)));
    let flags = match kind {
        Kind::Opens(time, _) if phase == Opened && is_of_opener => return goes_on(State::New, Opened, time),
        Kind::Opens(_, time) | Kind::Answers(time) => return goes_on(State::Established, Open, time),
        Kind::Tcp(flags) => flags,
    };
    let (is_first, is_last, is_reset) = (is_first(flags), flags & FIN != 0, flags & RST != 0);
    match (phase, is_of_opener) {
        (Closed | Reset, _) if is_first => (State::New, Some((Opened, TRANSITORY, is_reversed))),
        (Opened, true) if is_reset => goes_on(State::New, Reset, RESET_TIME),
        (Opened, true) if is_first => goes_on(State::New, Opened, TRANSITORY),
        (Opened, true) => (State::Invalid, None),
        (_, _) if is_reset => goes_on(State::Established, Reset, RESET_TIME),
        // A segment with SYN: the answer, or both ends opened at once.
        (Opened, false) if flags & SYN != 0 => goes_on(State::Established, Answered, TRANSITORY),
        // The other end knows another connection of these ports: RFC 5961, section 4.
        (Opened, false) if flags & ACK != 0 => (State::Established, None),
        (Opened, false) => (State::Invalid, None),
        (Reset, _) => goes_on(State::Established, Reset, TRANSITORY),
        (Answered, _) if flags & SYN != 0 => goes_on(State::Established, Answered, TRANSITORY),
        (Answered | Open, true) | (ClosingByOpener, true) if is_last => {
            goes_on(State::Established, ClosingByOpener, TRANSITORY)
        }
        (Answered | Open, false) | (ClosingByOther, false) if is_last => {
            goes_on(State::Established, ClosingByOther, TRANSITORY)
        }
        (ClosingByOpener, false) | (ClosingByOther, true) if is_last => goes_on(State::Established, Closed, TRANSITORY),
        // The last segment of the handshake.
        (Answered, true) if flags & ACK != 0 => goes_on(State::Established, Open, OPEN),
        (Answered, _) => goes_on(State::Established, Answered, TRANSITORY),
        (Open, _) => goes_on(State::Established, Open, OPEN),
        (phase, _) => goes_on(State::Established, phase, TRANSITORY),
    }
}

/// Whether a TCP segment opens a connection.
fn is_first(flags: u8) -> bool {
    flags & (SYN | ACK | FIN | RST) == SYN
}

/// Kind of an ICMP message. **Source**: RFC 792, RFC 950, RFC 4443.
fn message(is_v6: bool, kind: u8) -> Message {
    match (is_v6, kind) {
        (false, 8 | 13 | 15 | 17) => Message::Query(kind),
        (false, 0) => Message::Answer(8),
        (false, 14 | 16 | 18) => Message::Answer(kind - 1),
        (false, 3 | 4 | 5 | 11 | 12) => Message::Error,
        (true, 128) => Message::Query(128),
        (true, 129) => Message::Answer(128),
        (true, 1..=4) => Message::Error,
        _ => Message::Other,
    }
}

/// Key of a packet; that of a protocol without ports has zeros.
fn key_of(fields: &Fields, proto: u8) -> FlowKey {
    let bytes = |address: u128| match fields.is_v6() {
        true => address.to_be_bytes(),
        false => (address << 96).to_be_bytes(),
    };
    let (sport, dport) = fields.ports().unwrap_or((0, 0));
    FlowKey {
        src: bytes(fields.src()),
        dst: bytes(fields.dst()),
        sport,
        dport,
        proto,
        family: if fields.is_v6() { 6 } else { 4 },
        flags: FlowKey::HAS_PORTS,
        ..FlowKey::NONE
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    /// Two buckets.
    fn connections() -> Arc<Connections> {
        Arc::new(Connections::new(8, 1))
    }

    const SEGMENT: Kind = Kind::Tcp(ACK);

    fn is_open(connections: &Connections, hash: u64) -> bool {
        connections.find(hash, 1).is_some_and(|(_, word)| word.phase() == Phase::Open)
    }

    /// The handshake goes on in both directions, while a connection of the same places comes.
    #[test]
    fn a_handshake_of_two_directions_opens_one_connection() {
        loom::model(|| {
            let connections = connections();
            // The opener's first segment has passed; it sends it again while the answer comes.
            assert!(connections.advance(5, false, Kind::Tcp(SYN), 1));
            let other = Arc::clone(&connections);
            let answer = thread::spawn(move || assert!(other.advance(5, true, Kind::Tcp(SYN | ACK), 1)));
            assert!(connections.advance(5, false, Kind::Tcp(SYN), 1));
            answer.join().unwrap();
            assert!(connections.advance(5, false, SEGMENT, 1));
            assert!(is_open(&connections, 5), "the answer was lost");
            assert_eq!(connections.count(1 << STEP), 1);
        });
    }

    /// All eight places are in use, one of them by a connection that becomes open while a first segment looks for a place.
    #[test]
    fn a_first_segment_takes_no_place_of_a_connection_that_has_become_open() {
        loom::model(|| {
            let connections = connections();
            for hash in 0..8u64 {
                let kind = Kind::Opens(UDP_OPENED, ANSWERED_TIME);
                assert!(connections.advance(hash << 40 | 7, false, kind, 1));
                if hash > 0 {
                    assert!(connections.advance(hash << 40 | 7, true, kind, 1));
                }
            }
            let other = Arc::clone(&connections);
            let opens = thread::spawn(move || {
                other.advance(7, true, Kind::Opens(UDP_OPENED, ANSWERED_TIME), 1);
                // Either it was recorded as open, or the place was given away before.
                other.find(7, 1).map(|(_, word)| word.phase())
            });
            let came = connections.advance(9 << 40 | 7, false, Kind::Tcp(SYN), 1);
            let phase = opens.join().unwrap();
            if phase == Some(Phase::Open) {
                assert!(is_open(&connections, 7), "an open connection lost its place");
                assert!(!came || connections.find(9 << 40 | 7, 1).is_none());
            }
            (1..8u64).for_each(|hash| assert!(is_open(&connections, hash << 40 | 7)));
        });
    }
}
