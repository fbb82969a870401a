//! Rules that judge a segment: Wireshark's rules (4.0, `tcp.analysis.*`, its User's Guide, section 7.5), in Wireshark's order.
//!
//! `next` is the highest sequence number after a segment of this direction. Comparisons of sequence numbers wrap around. The first rule
//! of a group that applies decides.
//!
//! 1. **zero window probe**: one byte of payload at `next`, and the other end's window is zero. Such a segment does not move `next`, and
//!    rules 2 to 6 do not look at it.
//! 2. **zero window**: the window is 0, and none of SYN, FIN and RST is set.
//! 3. **gap** (`lost_segment`): the segment begins after `next`, and RST is not set.
//! 4. **keep-alive**: at most one byte of payload at `next - 1`, without SYN, FIN and RST.
//! 5. **keep-alive ACK**: no payload, at `next`, with acknowledgement and window as before, the window not 0, without SYN, FIN and RST,
//!    after a keep-alive of the other end.
//! 6. **duplicate ACK**: the same, unless the other end's latest segment was a keep-alive.
//! 7. **retransmitted**: a segment with payload, SYN or FIN, other than a keep-alive, that begins before `next`; a payload of two
//!    bytes or more at `next - 1` is new data. In order:
//!    - *spurious*: the other end has acknowledged all of its payload;
//!    - *fast*: two or more duplicate ACKs of the other end ask for its begin, the last ACK less than 20 ms ago;
//!    - **out of order**, and not retransmitted: it does not end at `next`, and the segment that ends there is younger than the
//!      handshake took (3 ms if the handshake is unknown);
//!    - else *retransmitted*.
//! 8. **handshake**: from the latest SYN to the first segment with ACK and without SYN, of either end.
//! 9. **RTT**: from the oldest segment that ends where an acknowledgement says, to that acknowledgement. A time of zero does not count.
//! 10. **repeated**, a figure that Wireshark lacks: a segment as in rule 7 that begins in front of the first gap, so that its bytes were
//!     seen before.
//!
//! Deviation: Wireshark leaves duplicate ACKs of multipath TCP out if they carry other operations than the segment before.

use super::figures::Figures;
use super::outstanding::{List, Pool};
use super::segment::{ACK, FIN, RST, SYN, Segment};

/// Longest time from a duplicate acknowledgement to a fast retransmission, ns.
const FAST_NS: u64 = 20_000_000;
/// Longest time by which a segment may be overtaken if the handshake is unknown, ns.
const OVERTAKEN_NS: u64 = 3_000_000;

/// Bits of `Direction::latest`: what the latest segment was.
const KEEP_ALIVE: u8 = 1;
const PROBE: u8 = 2;

/// Whether sequence number `a` comes after `b`.
#[inline]
pub(super) fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// State of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    /// Sequence number of the SYN, or the one before the first segment; see `has_base`.
    base: u32,
    /// Highest sequence number after a segment; 0 if unknown.
    next: u32,
    /// Sequence number up to which there is no gap; 0 if unknown.
    unbroken: u32,
    /// The latest acknowledgement; 0 if unknown.
    ack: u32,
    /// Time of the latest segment, and of the segment that ends at `next`, ns.
    ack_ns: i64,
    next_ns: i64,
    /// The latest window, unscaled.
    window: Option<u16>,
    /// Number of duplicates of the latest acknowledgement.
    duplicates: u32,
    has_base: bool,
    latest: u8,
    pub outstanding: List,
}

impl Direction {
    /// A direction without segments.
    pub const NEW: Self = Self {
        base: 0,
        next: 0,
        unbroken: 0,
        ack: 0,
        ack_ns: 0,
        next_ns: 0,
        window: None,
        duplicates: 0,
        has_base: false,
        latest: 0,
        outstanding: List::EMPTY,
    };

    /// Whether a SYN of this direction begins another connection of the same two ends.
    pub fn begins_another(&self, segment: &Segment) -> bool {
        segment.flags & (SYN | ACK) == SYN && self.has_base && segment.seq != self.base
    }
}

/// Begin of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begin {
    /// Time of the latest SYN, ns; 0 if there was none.
    syn_ns: i64,
    /// Duration of the handshake, ns; 0 if it is unknown.
    pub handshake_ns: i64,
}

/// Judges a segment from `from` to `to`, and counts it.
pub(super) fn judge(
    [from, to]: [&mut Direction; 2],
    begin: &mut Begin,
    [sender, receiver]: [&mut Figures; 2],
    pool: &mut Pool,
    segment: &Segment,
    time_ns: i64,
) {
    count(sender, segment);
    if from.has_base {
        match segment.flags & (SYN | ACK) {
            // The same SYN again: a reset may have moved `next`.
            SYN => from.next = from.unbroken,
            flags if flags == SYN | ACK => from.base = segment.seq,
            _ => {}
        }
    }
    if let Some(len) = segment.len {
        note_bases(from, to, segment);
        let state = state_of(from, to, segment, len, sender);
        acknowledges_more(from, to, segment);
        if len > 0 || segment.flags & (SYN | FIN) != 0 {
            if state & KEEP_ALIVE == 0 {
                sender.repeated += u64::from(is_repeated(from, segment, len));
                if let Some(again) = again(from, to, begin, segment, len, time_ns) {
                    count_again(sender, again, len);
                }
            }
            let room = pool.push(&mut from.outstanding, segment.end(len), time_ns);
            sender.untimed += u64::from(!room);
        }
        go_on(from, segment, segment.end(len), state, time_ns);
        if let Some(sent_ns) = pool.acknowledge(&mut to.outstanding, segment.ack)
            && time_ns != sent_ns
        {
            receiver.rtt.add(time_ns.saturating_sub(sent_ns));
        }
    }
    shake(begin, segment, time_ns);
}

/// Counts what the segment alone says.
fn count(sender: &mut Figures, segment: &Segment) {
    sender.packets += 1;
    sender.bytes += u64::from(segment.len.unwrap_or(0));
    sender.resets += u64::from(segment.flags & RST != 0);
}

fn note_bases(from: &mut Direction, to: &mut Direction, segment: &Segment) {
    if !from.has_base {
        let is_syn = segment.flags & SYN != 0;
        from.base = segment.seq.wrapping_sub(u32::from(!is_syn));
        from.has_base = true;
    }
    if !to.has_base && segment.flags & ACK != 0 {
        to.base = segment.ack.wrapping_sub(1);
        to.has_base = true;
    }
}

/// Rules 1 to 6. Returns what the segment is.
fn state_of(
    from: &mut Direction,
    to: &Direction,
    segment: &Segment,
    len: u32,
    sender: &mut Figures,
) -> u8 {
    let &Segment {
        seq,
        ack,
        window,
        flags,
        ..
    } = segment;
    let plain = flags & (SYN | FIN | RST) == 0;
    if len == 1 && seq == from.next && to.window == Some(0) {
        return PROBE;
    }
    sender.zero_windows += u64::from(window == 0 && plain);
    sender.gaps += u64::from(from.next != 0 && is_after(seq, from.next) && flags & RST == 0);
    let keeps_alive = len <= 1 && seq == from.next.wrapping_sub(1) && plain;
    let state = if keeps_alive { KEEP_ALIVE } else { 0 };
    let repeats =
        len == 0 && seq == from.next && ack == from.ack && from.window == Some(window) && plain;
    if repeats && window != 0 && to.latest & KEEP_ALIVE == 0 {
        sender.duplicate_acks += 1;
        from.duplicates = from.duplicates.saturating_add(1);
    }
    state
}

/// Notes an acknowledgement of segments that were not seen.
fn acknowledges_more(from: &mut Direction, to: &mut Direction, segment: &Segment) {
    if segment.ack != from.ack {
        from.duplicates = 0;
    }
    if to.unbroken == 0 || !is_after(segment.ack, to.unbroken) || segment.flags & ACK == 0 {
        return;
    }
    // As numbers, as Wireshark compares them.
    to.unbroken = to.unbroken.min(to.next);
}

/// Kinds of segments that do not go on where the one before ended.
#[derive(Clone, Copy)]
enum Again {
    Spurious,
    Fast,
    Overtaken,
    Other,
}

/// Rule 7. Returns the kind of a segment other than a keep-alive; `None` if it brings new data.
fn again(
    from: &Direction,
    to: &Direction,
    begin: &Begin,
    segment: &Segment,
    len: u32,
    time_ns: i64,
) -> Option<Again> {
    let seq = segment.seq;
    // A time that went back is a long time.
    let since = |ns: i64| time_ns.wrapping_sub(ns) as u64;
    if len > 0 && to.ack != 0 && !is_after(seq.wrapping_add(len), to.ack) {
        return Some(Again::Spurious);
    }
    if from.next == 0 || !is_after(from.next, seq) || is_after_probe(from, segment, len) {
        return None;
    }
    if to.duplicates >= 2 && to.ack == seq && since(to.ack_ns) < FAST_NS {
        return Some(Again::Fast);
    }
    let most_ns = match begin.handshake_ns {
        0 => OVERTAKEN_NS,
        ns => ns as u64,
    };
    let is_overtaken = since(from.next_ns) < most_ns && from.next != segment.end(len);
    Some(if is_overtaken {
        Again::Overtaken
    } else {
        Again::Other
    })
}

/// Whether a segment brings new data together with the byte of a window probe.
fn is_after_probe(from: &Direction, segment: &Segment, len: u32) -> bool {
    len > 1 && segment.seq == from.next.wrapping_sub(1)
}

/// Rule 10.
fn is_repeated(from: &Direction, segment: &Segment, len: u32) -> bool {
    from.unbroken != 0
        && is_after(from.unbroken, segment.seq)
        && !is_after_probe(from, segment, len)
}

fn count_again(sender: &mut Figures, again: Again, len: u32) {
    match again {
        Again::Overtaken => {
            sender.out_of_order += 1;
            return;
        }
        Again::Spurious => sender.spurious += 1,
        Again::Fast => sender.fast += 1,
        Again::Other => {}
    }
    sender.retransmitted += 1;
    sender.retransmitted_bytes += u64::from(len);
}

/// Moves the direction past the segment.
fn go_on(from: &mut Direction, segment: &Segment, end: u32, state: u8, time_ns: i64) {
    let is_probe = state & PROBE != 0;
    if !is_probe && (from.next == 0 || is_after(end, from.next)) {
        from.next = end;
        from.next_ns = time_ns;
    }
    if !is_probe && (from.unbroken == 0 || segment.seq == from.unbroken) {
        from.unbroken = from.next;
    }
    from.window = Some(segment.window);
    from.ack = segment.ack;
    from.ack_ns = time_ns;
    from.latest = state;
}

/// Rule 8.
fn shake(begin: &mut Begin, segment: &Segment, time_ns: i64) {
    match segment.flags & (SYN | ACK) {
        SYN => begin.syn_ns = time_ns,
        ACK if begin.syn_ns != 0 && begin.handshake_ns == 0 => {
            begin.handshake_ns = time_ns.wrapping_sub(begin.syn_ns);
        }
        _ => {}
    }
}
