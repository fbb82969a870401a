//! Answers to packets that a rule rejects: a TCP reset, an ICMP message that the port is
//! unreachable, or the answer that the rule names.
//!
//! The answer seems to come from the destination of the packet, and goes back by the interface where the packet arrived, with its VLAN tags.
//! Nobody is answered who may not be (RFC 1122, section 3.2.2; RFC 4443, section 2.4): not resets, ICMP errors, later fragments, and
//! packets to or from several hosts. Answers are limited in number, since an attacker chooses how many packets are rejected, and to whom
//! their answers go.
//!
//! **Source**: RFC 9293, section 3.10.7.1; RFC 792; RFC 4443, section 3.1.

use crate::port::offload::{folded, sum};
use crate::port::{Port, PortFault};
use std::time::{Duration, Instant};
use weir_firewall::rules::Answer;
use weir_packet::flow::{Headers, Parser};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMP6: u8 = 58;
const ETHERNET: usize = 14;
/// TCP flags: FIN, SYN, RST, ACK.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Answers in a second, at most, and at once after a pause.
const MOST: u32 = 1000;

/// Bytes of the rejected packet that an ICMP message carries, at most: RFC 1812, section 4.3.2.3, and the smallest MTU of IPv6.
const QUOTED_V4: usize = 576 - 28;
const QUOTED_V6: usize = 1280 - 48;

/// Counts of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Answers given to the port.
    pub sent: u64,
    /// Rejected packets that may not be answered.
    pub unanswerable: u64,
    /// Rejected packets that were not answered because there were too many.
    pub limited: u64,
}

impl AnswerCounts {
    /// Adds the counts of another port.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            unanswerable: self.unanswerable + other.unanswerable,
            limited: self.limited + other.limited,
        }
    }
}

/// Answers by one port.
pub struct Answers {
    port: Port,
    counts: AnswerCounts,
    /// Answers that may be sent now, and the time of the count.
    budget: (u32, Instant),
    bytes: Vec<u8>,
}

impl core::fmt::Debug for Answers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.counts.fmt(f)
    }
}

impl Answers {
    /// Answers by a port of the interface where the packets arrive.
    pub fn new(port: Port) -> Self {
        Self {
            port,
            counts: AnswerCounts::default(),
            budget: (MOST, Instant::now()),
            bytes: Vec::new(),
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> AnswerCounts {
        self.counts
    }

    /// Answers a rejected frame; the answer goes out with [`Self::flush`]. **Errors**: the port failed.
    pub(super) fn answer(
        &mut self,
        parser: &Parser,
        frame: &[u8],
        how: Answer,
    ) -> Result<(), PortFault> {
        if !self.may_send() {
            self.counts.limited += 1;
            return Ok(());
        }
        if answer(parser, frame, how, &mut self.bytes).is_none() {
            self.counts.unanswerable += 1;
            return Ok(());
        }
        self.budget.0 -= 1;
        self.counts.sent += 1;
        self.port.take(&self.bytes, false)
    }

    pub(super) fn flush(&mut self) -> Result<(), PortFault> {
        self.port.flush()
    }

    fn may_send(&mut self) -> bool {
        let (left, since) = &mut self.budget;
        if *left < MOST {
            let now = Instant::now();
            let earned = (now - *since).as_nanos() * u128::from(MOST) / 1_000_000_000;
            if earned > 0 {
                *left = (*left + earned.min(u128::from(MOST)) as u32).min(MOST);
                // The part of an answer that was earned stays.
                *since += Duration::from_nanos((earned * 1_000_000_000 / u128::from(MOST)) as u64);
            }
        } else {
            *since = Instant::now();
        }
        *left > 0
    }
}

/// Writes the answer to a frame to `out`; `None` if it may not be answered, or cannot.
fn answer(parser: &Parser, frame: &[u8], how: Answer, out: &mut Vec<u8>) -> Option<()> {
    let Headers {
        key, ip, transport, ..
    } = parser.headers(frame).ok()?;
    // The link header, of Ethernet with VLAN tags.
    let link = ip
        .as_ptr()
        .addr()
        .checked_sub(frame.as_ptr().addr())
        .filter(|link| *link >= ETHERNET)?;
    let header = frame.get(..link)?;
    let is_to_one = header[0] & 1 == 0 && header[6] & 1 == 0;
    let is_v6 = key.family == 6;
    let is_one_host = |address: &[u8; 16]| match is_v6 {
        true => address[0] != 0xff && *address != [0; 16],
        false => !(224..=255).contains(&address[0]) && address[..4] != [0; 4],
    };
    if !is_to_one || transport.is_empty() || !is_one_host(&key.src) || !is_one_host(&key.dst) {
        return None;
    }
    out.clear();
    out.extend_from_slice(&header[6..12]);
    out.extend_from_slice(&header[..6]);
    out.extend_from_slice(&header[12..]);
    let begin = out.len();
    // From the destination to the source.
    let len = if is_v6 { 16 } else { 4 };
    let (from, to) = (&key.dst[..len], &key.src[..len]);
    let is_answerable_icmp = match (key.proto, transport[0]) {
        // Messages that ask, and no errors.
        (ICMP, kind) => kind == 8,
        (ICMP6, kind) => kind == 128,
        _ => true,
    };
    let proto = match key.proto {
        // Nobody answers the answer of another end.
        TCP if transport.get(13)? & RST != 0 => return None,
        TCP if how == Answer::Usual => TCP,
        _ if !is_answerable_icmp => return None,
        _ if is_v6 => ICMP6,
        _ => ICMP,
    };
    ip_header(out, (from, to), proto);
    let at = out.len();
    if proto == TCP {
        reset(out, transport, (ip, is_v6))?;
    } else {
        let (kind, code) = how.icmp(is_v6);
        out.extend_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
        let most = if is_v6 { QUOTED_V6 } else { QUOTED_V4 };
        // What was padded after the packet is no part of it.
        let claimed = usize::from(u16::from_be_bytes(if is_v6 {
            [ip[4], ip[5]]
        } else {
            [ip[2], ip[3]]
        }));
        let end = if is_v6 { 40 + claimed } else { claimed };
        out.extend_from_slice(&ip[..end.min(ip.len()).min(most)]);
    }
    let length = out.len() - at;
    let with_pseudo = if proto == ICMP {
        0
    } else {
        sum(from) + sum(to) + u32::from(proto) + length as u32
    };
    let checksum = !folded(with_pseudo + u32::from(folded(sum(&out[at..]))));
    let place = at + if proto == TCP { 16 } else { 2 };
    out[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    if is_v6 {
        out[begin + 4..begin + 6].copy_from_slice(&(length as u16).to_be_bytes());
    } else {
        let total = (out.len() - begin) as u16;
        out[begin + 2..begin + 4].copy_from_slice(&total.to_be_bytes());
        let checksum = !folded(sum(&out[begin..at]));
        out[begin + 10..begin + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(())
}

/// An IP header whose length and checksum are filled in later.
fn ip_header(out: &mut Vec<u8>, (from, to): (&[u8], &[u8]), proto: u8) {
    match from.len() {
        16 => out.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, proto, 64]),
        // Do not fragment.
        _ => out.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0]),
    }
    out.extend_from_slice(from);
    out.extend_from_slice(to);
}

/// A TCP header that resets the connection of the segment `tcp`, without its checksum.
fn reset(out: &mut Vec<u8>, tcp: &[u8], (ip, is_v6): (&[u8], bool)) -> Option<()> {
    let fixed: &[u8; 20] = tcp.first_chunk()?;
    let flags = fixed[13];
    if flags & RST != 0 {
        return None;
    }
    let number =
        |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let (sequence, acknowledged, flags) = if flags & ACK != 0 {
        (number(8), 0, RST)
    } else {
        let claimed = usize::from(u16::from_be_bytes(if is_v6 {
            [ip[4], ip[5]]
        } else {
            [ip[2], ip[3]]
        }));
        let before = tcp.as_ptr().addr() - ip.as_ptr().addr() - if is_v6 { 40 } else { 0 };
        let data = claimed.saturating_sub(before + usize::from(fixed[12] >> 4) * 4) as u32;
        let ends = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (
            0,
            number(4).wrapping_add(data).wrapping_add(ends),
            RST | ACK,
        )
    };
    out.extend_from_slice(&fixed[2..4]);
    out.extend_from_slice(&fixed[..2]);
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&acknowledged.to_be_bytes());
    out.extend_from_slice(&[0x50, flags, 0, 0, 0, 0, 0, 0]);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use weir_packet::LinkType;
    use weir_testkit::Random;

    #[test]
    fn no_frame_makes_it_panic_and_nobody_is_answered_who_may_not_be() {
        let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
        let (mut random, mut out, mut answered) = (Random(3), Vec::new(), 0);
        for turn in 0..50_000 {
            let mut frame = random.bytes(12);
            if turn % 3 == 0 {
                frame.extend([0x81, 0, 0, 5]);
            }
            match turn % 2 {
                0 => frame.extend([
                    8,
                    0,
                    0x45,
                    0,
                    0,
                    60,
                    0,
                    0,
                    0x40,
                    0,
                    64,
                    [1, 6, 17, 47][turn / 2 % 4],
                    0,
                    0,
                ]),
                _ => frame.extend([
                    0x86,
                    0xdd,
                    0x60,
                    0,
                    0,
                    0,
                    0,
                    40,
                    [58, 6, 17, 44][turn / 2 % 4],
                    64,
                ]),
            }
            frame.extend(random.bytes(60));
            frame.truncate(12 + random.below(frame.len()));
            let how = [
                Answer::Usual,
                Answer::PortUnreachable,
                Answer::HostProhibited,
            ][turn / 3 % 3];
            if answer(&parser, &frame, how, &mut out).is_some() {
                answered += 1;
                assert_eq!(frame[0] & 1, 0, "an answer to a frame for many");
                assert_eq!((&out[..6], &out[6..12]), (&frame[6..12], &frame[..6]));
                // The answer is not answered.
                let mut again = Vec::new();
                assert!(
                    answer(&parser, &out, how, &mut again).is_none(),
                    "an answer to an answer"
                );
            }
        }
        assert!(answered > 1000, "{answered}");
    }

    /// The messages, byte by byte, to a first segment of TCP: RFC 792 and RFC 4443, with the codes of RFC 1812 and RFC 4443.
    #[test]
    fn a_rule_names_the_message() {
        let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
        let tcp = [
            0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 100, 0, 0, 0, 0,
        ];
        let mut four = vec![2; 12];
        four.extend([
            8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        four.extend(tcp);
        let mut six = vec![2; 12];
        six.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        [7, 8].iter().for_each(|last| {
            six.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, *last])
        });
        six.extend(tcp);
        for (how, codes) in [
            (Answer::NoRoute, [0, 0]),
            (Answer::HostUnreachable, [1, 3]),
            (Answer::ProtocolUnreachable, [2, 1]),
            (Answer::PortUnreachable, [3, 4]),
            (Answer::NetProhibited, [9, 1]),
            (Answer::HostProhibited, [10, 1]),
            (Answer::AdminProhibited, [13, 1]),
        ] {
            let mut out = Vec::new();
            answer(&parser, &four, how, &mut out).expect("an answer");
            assert_eq!(
                (out[23], &out[34..36], &out[42..]),
                (1, &[3, codes[0]][..], &four[14..]),
                "{how:?}"
            );
            answer(&parser, &six, how, &mut out).expect("an answer");
            assert_eq!(
                (out[20], &out[54..56], &out[62..]),
                (58, &[1, codes[1]][..], &six[14..]),
                "{how:?}"
            );
        }
        let mut out = Vec::new();
        answer(&parser, &four, Answer::Usual, &mut out).expect("an answer");
        assert_eq!((out[23], out[47]), (6, RST | ACK));
    }

    #[test]
    fn answers_are_limited() {
        let mut answers = Answers::new(Port::open(&Name::from("null"), &[]).unwrap());
        answers.budget = (3, Instant::now() + Duration::from_secs(3600));
        let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
        let mut frame = vec![2; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.resize(54, 0);
        (0..5).for_each(|_| answers.answer(&parser, &frame, Answer::Usual).unwrap());
        assert_eq!(
            answers.counts(),
            AnswerCounts {
                sent: 3,
                unanswerable: 0,
                limited: 2
            }
        );
    }
}
