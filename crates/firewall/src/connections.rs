//! Connections: which packets open one, belong to one, or are about one.
//!
//! A connection is one of TCP, an association of SCTP, a conversation of UDP or of another protocol, or a query of ICMP. It is in the table from
//! its first packet that passes. Addresses, ports, flags and chunks decide; a connection that was open before is not taken up.
//!
//! | state | the packet |
//! |---|---|
//! | `new` | opens a connection (TCP: SYN without ACK; SCTP: INIT; ICMP: a query), or repeats that while nothing has come back |
//! | `established` | comes back, or belongs to a connection from which something has come back |
//! | `related` | an ICMP error about a packet of a connection, sent to the sender of that packet |
//! | `invalid` | a TCP segment, SCTP chunk, answer of ICMP or ICMP error of no connection; what its connection cannot have, such as SYN with FIN; another message of ICMP |
//! | `untracked` | a message of IPv6 neighbor or multicast listener discovery |
//!
//! A packet whose ports or flags the captured bytes do not tell has no state: the field is absent. Connections of one VLAN are none of another.
//!
//! **Equal to Linux.** States are those of `ct state` of nftables with `nf_conntrack_tcp_loose` off, which the kernel confirms packet by packet
//! (`tests/nftables.rs`), but for this:
//!
//! - Sequence numbers, windows, verification tags, checksums and lengths of transport headers are not looked at. So any reset ends a connection.
//! - Connections are apart by the tags of their frames, and Linux' are not. Neither are apart by PPPoE session, MPLS label or tunnel.
//! - A packet changes its connection if it passes, with Linux also if a rule drops it after
//!   connection tracking.
//! - Later fragments, which Linux puts together first, have no state. Nothing but ICMP errors is related, as without helpers of Linux.
//! - Time-outs are those below.
//!
//! **Time-outs**, since the last packet: TCP 2 h 4 min, and 4 min while it opens or closes (RFC 5382, REQ-5); after a reset, or the end of an
//! association of SCTP, 10 s; UDP 2 min, and 5 min once an answer came (RFC 4787, REQ-5); ICMP 60 s (RFC 5508, REQ-2); other protocols 5 min.
//! The table knows the time in steps of 67 ms.
//!
//! **Bounded.** A connection has eight places. If all are in use, the connection that would expire
//! first among all that are not fully open (handshakes without their last segment, unanswered
//! packets, closed connections) gives its place away. So a flood of first packets closes no open
//! connection. If all eight are open, the new connection is not recorded, which its caller counts.
//!
//! **Layout**: an entry is two words that all workers share without a lock: the hash of the
//! connection's key, and its phase, time-out and orientation with 24 bits of the hash. A change of
//! phase is one compare-and-swap of the second word, which fails if the place was given away in the
//! meantime. Two connections with one hash of 64 bits would be taken for one another. Checked under
//! loom as it is shipped.

mod phase;
mod sctp;
mod tcp;

use crate::address::mixed;
use crate::fields::{Content, Fields, TcpFlags, has_ports};
use phase::{COUNT, Phase};
use sctp::{Chunks, NoChunks};
use tcp::{Effect, Segment};
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
    /// The packet belongs to no connection, and can open none; or its connection cannot have it.
    Invalid,
    /// The packet is a message of IPv6 by which hosts find each other: no connection can have it.
    Untracked,
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
/// How far the time of a packet may be before the time of another packet: workers see packets by
/// their own clocks, cards and rings.
const SKEW: u32 = steps(600);
const TRANSITORY: u32 = steps(240);
const RESET_TIME: u32 = steps(10);
const UDP_OPENED: u32 = steps(120);
const ANSWERED_TIME: u32 = steps(300);
const QUERY: u32 = steps(60);

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

const GRE: u8 = 47;
const SCTP: u8 = 132;

/// Second word of an entry: time of expiry in its lower half, then 7 bits of phase, the orientation, and from bit 40 on bits of the hash. The
/// number of a phase is one more than its place, so that no word of an entry is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    const FREE: Self = Self(0);

    /// `opener_is_greater`: the sender of the first packet has the greater address and port.
    fn new(expires: u32, phase: Phase, opener_is_greater: bool, hash: u64) -> Self {
        let phase = phase as u64 + 1;
        Self(
            u64::from(expires)
                | phase << 32
                | u64::from(opener_is_greater) << 39
                | (hash >> 40) << 40,
        )
    }

    fn phase(self) -> Phase {
        Phase::ALL[(self.number() as usize).wrapping_sub(1).min(COUNT - 1)]
    }

    fn is_busy(self) -> bool {
        self.number() == Phase::Busy as u64 + 1
    }

    /// Number of the phase; 0 if the place is free.
    fn number(self) -> u64 {
        self.0 >> 32 & 0x7f
    }

    fn opener_is_greater(self) -> bool {
        self.0 >> 39 & 1 == 1
    }

    fn expires(self) -> u32 {
        self.0 as u32
    }

    fn may_be(self, hash: u64) -> bool {
        // The lowest numbers of phases are those of no connection: free, and busy.
        self.0 >> 40 == hash >> 40 && self.number() > Phase::Busy as u64 + 1
    }

    /// Steps of time until the entry expires; 0 if it has.
    fn left(self, now: u32) -> u32 {
        match self.expires().wrapping_sub(now) {
            left if left <= OPEN + SKEW => left,
            // In the past, or clocks were set back by more than that.
            _ => 0,
        }
    }

    fn is_vacant(self, now: u32) -> bool {
        self == Self::FREE || !self.is_busy() && self.left(now) == 0
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
    Tcp(Segment),
    Sctp(Chunks),
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
        Self {
            state,
            change: None,
        }
    }
}

/// Message of ICMP.
enum Message {
    /// A question with the type of its kind.
    Query(u8),
    /// The answer to a question of this type.
    Answer(u8),
    Error,
    /// A message by which hosts of a link find each other.
    Untracked,
    Other,
}

impl Message {
    /// Ports that stand for a query and its answer: the query's number for the end that asks, its type and code for the other.
    fn ports(&self, code: u8, id: u16) -> Option<(u16, u16)> {
        // Both ports differ, or the end that asks would not be known. No query has type 255.
        let other = |of: u8| match u16::from_be_bytes([of, code]) {
            other if other == id => u16::MAX,
            other => other,
        };
        match *self {
            Self::Query(of) => Some((id, other(of))),
            Self::Answer(of) => Some((other(of), id)),
            Self::Error | Self::Untracked | Self::Other => None,
        }
    }
}

impl Connections {
    /// Makes a table with room for `most` connections, at least 8; another number than a power of two is rounded up. The `seed` decides where
    /// connections lie, so that nobody can choose some that collide.
    pub fn new(most: usize, seed: u64) -> Self {
        let buckets = most.div_ceil(WAYS).max(2).next_power_of_two();
        let entry = || Entry {
            hash: AtomicU64::new(0),
            word: AtomicU64::new(0),
        };
        let bucket = || Bucket([entry(), entry(), entry(), entry()]);
        let quoted = Parser::new(LinkType::RAW, false).expect("weir reads raw IP");
        Self {
            buckets: std::iter::repeat_with(bucket).take(buckets).collect(),
            hasher: Hasher::new(seed),
            quoted,
        }
    }

    /// Returns the state of a packet, without a change of its connection. `data` are the captured bytes of the frame.
    ///
    /// **Cost**: a hash and two cache lines; for ICMP, SCTP and GRE a walk over the headers, for tagged frames one over the tags. No allocation.
    pub fn look(&self, parser: &Parser, fields: &Fields, data: &[u8], time_ns: u64) -> Seen {
        if !matches!(fields.content(), Content::Ip | Content::Neighbors)
            || fields.is_later_fragment()
        {
            return Seen::only(None);
        }
        let Some(proto) = fields.proto() else {
            return Seen::only(None);
        };
        let mut key = key_of(fields, proto);
        let kind = match (proto, fields.flags()) {
            (ICMP | ICMP6, _) => match self.icmp(parser, fields, data, time_ns, &mut key) {
                Ok(kind) => kind,
                Err(state) => return Seen::only(state),
            },
            _ if has_ports(proto) && fields.lacks_ports() => return Seen::only(None),
            (TCP, TcpFlags::Known(flags)) => match Segment::of(flags) {
                Some(segment) => Kind::Tcp(segment),
                None => return Seen::only(Some(State::Invalid)),
            },
            (TCP, _) => return Seen::only(None),
            (UDP, _) => Kind::Opens(UDP_OPENED, ANSWERED_TIME),
            (SCTP | GRE, _) => match walked(parser, data, proto, &mut key) {
                Ok(kind) => kind,
                Err(state) => return Seen::only(state),
            },
            _ => Kind::Opens(ANSWERED_TIME, ANSWERED_TIME),
        };
        let flow = self.hasher.flow(&key);
        let (hash, is_reversed) = (
            flow.symmetric ^ tags(parser, fields, data),
            flow.is_reversed(),
        );
        let entry = self.find(hash, (time_ns >> STEP) as u32);
        let (state, _) = step(entry.map(|(_, word)| word), kind, is_reversed);
        Seen {
            state: Some(state),
            change: Some((hash, is_reversed, kind)),
        }
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
        let Ok(Headers { transport, .. }) = parser.headers(data) else {
            return Err(None);
        };
        let [kind, code, _, _, high, low, _, _, quote @ ..] = transport else {
            return Err(None);
        };
        let id = u16::from_be_bytes([*high, *low]);
        let message = message(fields.is_v6(), *kind);
        if let Some(ports) = message.ports(*code, id) {
            (key.sport, key.dport) = ports;
        }
        match message {
            Message::Query(_) => Ok(Kind::Opens(QUERY, QUERY)),
            Message::Answer(_) => Ok(Kind::Answers(QUERY)),
            Message::Error => {
                let now = (time_ns >> STEP) as u32;
                let hash = |key| self.hasher.flow(&key).symmetric ^ tags(parser, fields, data);
                let is_known = self
                    .quoted_key(quote, fields)
                    .is_some_and(|key| self.find(hash(key), now).is_some());
                Err(Some(if is_known {
                    State::Related
                } else {
                    State::Invalid
                }))
            }
            Message::Untracked => Err(Some(State::Untracked)),
            Message::Other => Err(Some(State::Invalid)),
        }
    }

    /// Returns the key of the packet that an ICMP error to `fields.dst()` quotes.
    fn quoted_key(&self, quote: &[u8], fields: &Fields) -> Option<FlowKey> {
        let quoted = Fields::of(&self.quoted, quote);
        let is_ip = matches!(quoted.content(), Content::Ip | Content::Neighbors);
        // The error goes to the sender of the packet.
        if !is_ip
            || quoted.is_v6() != fields.is_v6()
            || quoted.src() != fields.dst()
            || quoted.is_later_fragment()
        {
            return None;
        }
        let proto = quoted.proto()?;
        let mut key = key_of(&quoted, proto);
        if matches!(proto, ICMP | ICMP6) {
            let Ok(Headers {
                transport: [kind, code, _, _, high, low, ..],
                ..
            }) = self.quoted.headers(quote)
            else {
                return None;
            };
            let id = u16::from_be_bytes([*high, *low]);
            (key.sport, key.dport) = message(fields.is_v6(), *kind).ports(*code, id)?;
        } else if has_ports(proto) && quoted.ports().is_none() {
            return None;
        }
        Some(key)
    }

    /// Records that the packet passes. Returns whether there was room for a new connection.
    ///
    /// **Cost**: two cache lines; a compare-and-swap for a change of phase, and once in a step of time.
    pub fn pass(&self, seen: &Seen, time_ns: u64) -> bool {
        let Some((hash, is_reversed, kind)) = seen.change else {
            return true;
        };
        self.advance(hash, is_reversed, kind, (time_ns >> STEP) as u32)
    }

    fn advance(&self, hash: u64, is_reversed: bool, kind: Kind, now: u32) -> bool {
        /// Attempts to take a place that other workers also take.
        const ATTEMPTS: usize = 16;
        for _ in 0..ATTEMPTS {
            let found = self.find(hash, now);
            let (_, change) = step(found.map(|(_, word)| word), kind, is_reversed);
            let done = match (change, found) {
                (Change::None, _) | (Change::Over, None) => true,
                (Change::Over, Some((entry, word))) => replace(entry, word, Word::FREE),
                (Change::Goes(to), Some((entry, word))) => {
                    let expires = to
                        .time
                        .map_or(word.expires(), |time| now.wrapping_add(time));
                    replace(
                        entry,
                        word,
                        Word::new(expires, to.phase, to.opener_is_greater, hash),
                    )
                }
                (Change::Goes(to), None) => match self.give_place(hash, now) {
                    None => return false,
                    Some((entry, word)) => {
                        let expires = now.wrapping_add(to.time.unwrap_or(TRANSITORY));
                        take(
                            entry,
                            word,
                            hash,
                            Word::new(expires, to.phase, to.opener_is_greater, hash),
                        )
                    }
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
            if !word.may_be(hash)
                || word.left(now) == 0
                || entry.hash.load(Ordering::Acquire) != hash
            {
                return None;
            }
            // The place was not given away between both loads.
            (entry.word.load(Ordering::Acquire) == word.0).then_some((entry, word))
        })
    }

    /// Finds a place for a connection that has none: a vacant place in the bucket with more of
    /// them, or the place of the weak entry that would expire first.
    fn give_place(&self, hash: u64, now: u32) -> Option<(&Entry, Word)> {
        let word = |entry: &Entry| Word(entry.word.load(Ordering::Acquire));
        let vacant = self.buckets(hash).map(|bucket| {
            bucket
                .0
                .iter()
                .filter(|entry| word(entry).is_vacant(now))
                .count()
        });
        let words = || self.places(hash).map(|entry| (entry, word(entry)));
        let fuller = if vacant[1] > vacant[0] { WAYS } else { 0 };
        let place = words().skip(fuller).find(|(_, word)| word.is_vacant(now));
        place.or_else(|| {
            words()
                .filter(|(_, word)| word.phase().is_weak())
                .min_by_key(|(_, word)| word.left(now))
        })
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
    if entry
        .word
        .compare_exchange(word.0, busy.0, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    entry.hash.store(hash, Ordering::Release);
    entry.word.store(next.0, Ordering::Release);
    true
}

/// Puts a word of the same connection into its place, if the place has still the word `from`. Returns whether it had.
fn replace(entry: &Entry, from: Word, to: Word) -> bool {
    from == to
        || entry
            .word
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// Change of a connection by the passing of a packet.
#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    Goes(To),
    /// The connection leaves the table.
    Over,
}

/// State of a connection after a packet.
#[derive(Clone, Copy, Debug)]
struct To {
    phase: Phase,
    /// Steps of time until it expires; `None`: as before.
    time: Option<u32>,
    opener_is_greater: bool,
}

/// Returns the state of a packet, and what happens to its connection once it passes. `entry` is the word of its connection.
fn step(entry: Option<Word>, kind: Kind, is_reversed: bool) -> (State, Change) {
    let opens = |phase, time| {
        (
            State::New,
            Change::Goes(To {
                phase,
                time: Some(time),
                opener_is_greater: is_reversed,
            }),
        )
    };
    let Some(word) = entry else {
        return match kind {
            Kind::Tcp(Segment::Syn) => opens(Phase::SynSent, TRANSITORY),
            Kind::Opens(time, _) => opens(Phase::Opened, time),
            Kind::Sctp(chunks) => match chunks.first_phase() {
                Some(phase) => opens(phase, ANSWERED_TIME),
                None => (State::Invalid, Change::None),
            },
            Kind::Tcp(_) | Kind::Answers(_) => (State::Invalid, Change::None),
        };
    };
    let (phase, opener_is_greater) = (word.phase(), word.opener_is_greater());
    let is_of_opener = opener_is_greater == is_reversed;
    let goes = |phase, time| {
        Change::Goes(To {
            phase,
            time,
            opener_is_greater,
        })
    };
    match kind {
        Kind::Opens(time, _) if phase == Phase::Opened && is_of_opener => {
            (State::New, goes(Phase::Opened, Some(time)))
        }
        Kind::Opens(_, time) | Kind::Answers(time) => {
            (State::Established, goes(Phase::Open, Some(time)))
        }
        Kind::Tcp(segment) => {
            let state = if is_of_opener && phase == Phase::SynSent {
                State::New
            } else {
                State::Established
            };
            match tcp::effect(phase, is_of_opener, segment) {
                Effect::Invalid => (State::Invalid, Change::None),
                Effect::Goes(phase) => (state, goes(phase, Some(tcp_time(phase)))),
                Effect::Ignored(phase) => (state, goes(phase, None)),
                Effect::Over => (state, Change::Over),
                Effect::Anew => opens(Phase::SynSent, TRANSITORY),
            }
        }
        Kind::Sctp(chunks) => {
            let is_unanswered =
                matches!(phase, Phase::InitSent | Phase::HeartbeatSent | Phase::Stray);
            let state = if is_of_opener && is_unanswered {
                State::New
            } else {
                State::Established
            };
            match chunks.next_phase(phase, is_of_opener) {
                Some(phase) if phase == Phase::Ended || chunks.ends() => {
                    (state, goes(phase, Some(RESET_TIME)))
                }
                Some(phase) => (state, goes(phase, Some(ANSWERED_TIME))),
                None => (State::Invalid, Change::None),
            }
        }
    }
}

/// Time-out of a connection of TCP whose last packet brought it to this phase.
fn tcp_time(phase: Phase) -> u32 {
    match phase {
        Phase::Established => OPEN,
        Phase::Reset | Phase::ResetAgain | Phase::ResetByOpener | Phase::ResetBehindFin => {
            RESET_TIME
        }
        _ => TRANSITORY,
    }
}

/// Kind of a packet whose transport header is read again. **Errors**: the state, if no connection can have it.
fn walked(
    parser: &Parser,
    data: &[u8],
    proto: u8,
    key: &mut FlowKey,
) -> Result<Kind, Option<State>> {
    let Ok(Headers { ip, transport, .. }) = parser.headers(data) else {
        return Err(None);
    };
    if proto == SCTP {
        // Bytes that the IP header claims, of which some may not be captured.
        let claimed = match *ip {
            [head, _, high, low, ..] if head >> 4 == 4 => {
                usize::from(u16::from_be_bytes([high, low]))
            }
            [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([high, low])),
            _ => 0,
        };
        let missing = claimed.saturating_sub(ip.len());
        return match Chunks::of(transport, transport.len() + missing) {
            Ok(chunks) => Ok(Kind::Sctp(chunks)),
            Err(NoChunks::Cut) => Err(None),
            Err(NoChunks::Invalid) => Err(Some(State::Invalid)),
        };
    }
    // GRE of version 1 is PPTP: RFC 2637, section 4.1. Each direction has a number of its own, so that nothing comes back.
    match *transport {
        [_, version, ..] if version & 7 != 1 => {}
        [_, _, 0x88, 0x0b, _, _, high, low, ..] => key.dport = u16::from_be_bytes([high, low]),
        [_, _, kind, protocol, ..] if [kind, protocol] != [0x88, 0x0b] => {
            return Err(Some(State::Invalid));
        }
        _ => return Err(None),
    }
    Ok(Kind::Opens(ANSWERED_TIME, ANSWERED_TIME))
}

/// Number that separates the connections of different VLANs: 0 without tags. An identifier of 0 is
/// none: IEEE 802.1Q, section 9.6.
#[inline(always)]
fn tags(parser: &Parser, fields: &Fields, data: &[u8]) -> u64 {
    #[inline(never)]
    fn of_tagged(parser: &Parser, data: &[u8]) -> u64 {
        parser
            .vlans(data)
            .filter(|id| *id != 0)
            .fold(0, |tags, id| mixed(tags ^ u64::from(id)))
    }
    if fields.vlan().is_some() {
        of_tagged(parser, data)
    } else {
        0
    }
}

/// Kind of an ICMP message. **Source**: RFC 792, RFC 950, RFC 4443, RFC 4620; for types that no
/// connection has, Linux 6.18, `net/netfilter/nf_conntrack_proto_icmpv6.c`.
fn message(is_v6: bool, kind: u8) -> Message {
    match (is_v6, kind) {
        (false, 8 | 13 | 15 | 17) => Message::Query(kind),
        (false, 0) => Message::Answer(8),
        (false, 14 | 16 | 18) => Message::Answer(kind - 1),
        (false, 3 | 4 | 5 | 11 | 12) => Message::Error,
        (true, 0..=127) => Message::Error,
        (true, 128 | 139) => Message::Query(kind),
        (true, 129 | 140) => Message::Answer(kind - 1),
        // Multicast listener discovery, neighbor discovery but redirects, and multicast router discovery: RFC 2710, 4861, 3810, 4286.
        (true, 130..=136 | 143 | 151 | 152) => Message::Untracked,
        _ => Message::Other,
    }
}

/// Key of a packet; a protocol without ports has zeros as ports.
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

    const SYN: Kind = Kind::Tcp(Segment::Syn);
    const ANSWER: Kind = Kind::Tcp(Segment::SynAck);
    const SEGMENT: Kind = Kind::Tcp(Segment::Ack);

    fn is_open(connections: &Connections, hash: u64) -> bool {
        connections
            .find(hash, 1)
            .is_some_and(|(_, word)| matches!(word.phase(), Phase::Open | Phase::Established))
    }

    /// The handshake goes on in both directions, while a connection of the same places comes.
    #[test]
    fn a_handshake_of_two_directions_opens_one_connection() {
        loom::model(|| {
            let connections = connections();
            // The opener's first segment has passed; it sends it again while the answer comes.
            assert!(connections.advance(5, false, SYN, 1));
            let other = Arc::clone(&connections);
            let answer = thread::spawn(move || assert!(other.advance(5, true, ANSWER, 1)));
            assert!(connections.advance(5, false, SYN, 1));
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
            let came = connections.advance(9 << 40 | 7, false, SYN, 1);
            let phase = opens.join().unwrap();
            if phase == Some(Phase::Open) {
                assert!(
                    is_open(&connections, 7),
                    "an open connection lost its place"
                );
                assert!(!came || connections.find(9 << 40 | 7, 1).is_none());
            }
            (1..8u64).for_each(|hash| assert!(is_open(&connections, hash << 40 | 7)));
        });
    }

    /// All eight places are in use, one of them by a connection that a reset ends while another connection takes the place.
    #[test]
    fn a_connection_that_is_over_frees_no_place_of_another() {
        loom::model(|| {
            let connections = connections();
            for hash in 1..8u64 {
                let kind = Kind::Opens(UDP_OPENED, ANSWERED_TIME);
                for is_reversed in [false, true] {
                    assert!(connections.advance(hash << 40 | 7, is_reversed, kind, 1));
                }
            }
            assert!(connections.advance(7, false, SYN, 1));
            let other = Arc::clone(&connections);
            let reset = thread::spawn(move || other.advance(7, true, Kind::Tcp(Segment::Rst), 1));
            assert!(
                connections.advance(9 << 40 | 7, false, SYN, 1),
                "there is a place"
            );
            assert!(reset.join().unwrap());
            assert!(
                connections.find(9 << 40 | 7, 1).is_some(),
                "the place was freed behind its back"
            );
            assert!(connections.find(7, 1).is_none());
        });
    }
}
