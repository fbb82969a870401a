//! Writes the bytes of one frame. Other modules decide its contents.

use crate::flow::{Flow, Kind};
use crate::random::Random;
use crate::{FRAME_MAX, LINK_ADDRESSES};

/// Length to which shorter frames are padded (IEEE 802.3: 64 bytes with the FCS).
pub(crate) const FRAME_MIN: usize = 60;

const CLIENT_SIDE: [u8; 6] = LINK_ADDRESSES[0];
const SERVER_SIDE: [u8; 6] = LINK_ADDRESSES[1];

const SYN: u8 = 0x02;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Random bytes of which payloads are copies, with sums that reduce their Internet checksum (RFC 1071) to a subtraction.
#[derive(Clone, Debug)]
pub(crate) struct Noise {
    bytes: Box<[u8]>,
    /// `sums[i]`: sum of the first `i` 16-bit words.
    sums: Box<[u32]>,
}

impl Noise {
    const LEN: usize = 4096;

    pub(crate) fn new(random: Random) -> Noise {
        Noise::of(random, Noise::LEN)
    }

    /// Noise of `len` bytes, a multiple of 8.
    pub(crate) fn of(mut random: Random, len: usize) -> Noise {
        let mut bytes = vec![0; len].into_boxed_slice();
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&random.next().to_be_bytes());
        }
        let mut sum = 0;
        let mut sums = vec![0];
        for word in bytes.chunks_exact(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
            sums.push(sum);
        }
        Noise {
            bytes,
            sums: sums.into(),
        }
    }

    /// Fills `payload` from word `start` (at most 1023) on and returns the sum of its words, an odd byte padded with 0.
    #[inline]
    pub(crate) fn fill(&self, payload: &mut [u8], start: usize) -> u32 {
        let from = &self.bytes[start * 2..][..payload.len()];
        payload.copy_from_slice(from);
        let odd = if payload.len() % 2 == 1 {
            u32::from(from[payload.len() - 1]) << 8
        } else {
            0
        };
        self.sums[start + payload.len() / 2] - self.sums[start] + odd
    }
}

/// A part of an IPv4 datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Offset in the datagram, in units of 8 bytes.
    pub(crate) offset: u16,
    pub(crate) more: bool,
    /// Bytes after the IPv4 header.
    pub(crate) len: usize,
}

impl Fragment {
    /// Chooses which part of a datagram a frame of `len` bytes carries: first, middle or last, by six random bits.
    ///
    /// All parts but the last carry a multiple of 8 bytes (RFC 791 section 3.2). If the length does not allow that, the frame
    /// carries a last part, unless it has the minimum length, where padding hides the difference.
    pub(crate) fn choose(flow: &Flow, len: usize, random: usize) -> Fragment {
        let room = len - flow.link_len() - 20;
        let eights = room & !7;
        let may_continue = eights == room || len <= FRAME_MIN;
        let (first, more) = match random & 3 {
            0 if may_continue && eights >= flow.kind.transport_len() => (true, true),
            1 if may_continue => (false, true),
            _ => (false, false),
        };
        // 185 * 8 = 1480 bytes: payload of a full Ethernet frame after an IPv4 header.
        let steps = 1 + (random >> 2 & 7) as u16;
        Fragment {
            offset: if first { 0 } else { 185 * steps },
            more,
            len: if more { eights } else { room },
        }
    }
}

/// Random parts of a complete packet or fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    /// IPv4 identification.
    pub(crate) id: u16,
    /// Word of the noise at which the payload starts, below 1024.
    pub(crate) noise: usize,
}

/// Writes a complete packet, updates the flow's sequence number, and returns whether the packet is a TCP SYN.
#[inline]
pub(crate) fn write_whole(
    buf: &mut [u8; FRAME_MAX],
    len: usize,
    flow: &mut Flow,
    noise: &Noise,
    chance: Chance,
) -> bool {
    let network = write_ethernet(buf, flow);
    let header_len = flow.header_len();
    // TCP frames of the minimum length are bare acknowledgements.
    let bare = len <= FRAME_MIN && matches!(flow.kind, Kind::Tcp4 | Kind::Tcp6);
    let payload_len = if bare { 0 } else { len - header_len };
    let pseudo = if flow.kind.is_ipv6() {
        let length = flow.kind.transport_len() + payload_len;
        write_ipv6(buf, network, flow, length);
        sum_of(&buf[network + 8..network + 40]) + length as u32
    } else {
        let total = header_len - network + payload_len;
        let dont_fragment = u16::from(flow.kind == Kind::Tcp4) << 14;
        write_ipv4(buf, network, flow, total, chance.id, dont_fragment);
        sum_of(&buf[network + 12..network + 20]) + (total - 20) as u32
    };
    let (payload, padding) = buf[header_len..len].split_at_mut(payload_len);
    padding.fill(0);
    let sum = noise.fill(payload, chance.noise);
    let transport = &mut buf[network..header_len];
    let transport = &mut transport[header_len - network - flow.kind.transport_len()..];
    let pseudo = pseudo + u32::from(flow.kind.protocol());
    match flow.kind {
        Kind::Tcp4 | Kind::Tcp6 => write_tcp(transport, flow, payload_len, pseudo + sum),
        Kind::Udp4 | Kind::Udp6 => {
            write_udp(transport, flow, payload_len, pseudo + sum);
            false
        }
        Kind::Icmp4 => {
            write_icmp(transport, flow, sum);
            false
        }
        Kind::Icmp6 => {
            write_icmp(transport, flow, pseudo + sum);
            false
        }
    }
}

/// Writes a fragment of a TCP or UDP datagram over IPv4.
pub(crate) fn write_fragment(
    buf: &mut [u8; FRAME_MAX],
    len: usize,
    flow: &mut Flow,
    noise: &Noise,
    chance: Chance,
    fragment: Fragment,
) {
    let network = write_ethernet(buf, flow);
    let flags_offset = u16::from(fragment.more) << 13 | fragment.offset;
    write_ipv4(
        buf,
        network,
        flow,
        20 + fragment.len,
        chance.id,
        flags_offset,
    );
    let (body, padding) = buf[network + 20..len].split_at_mut(fragment.len);
    padding.fill(0);
    let sum = noise.fill(body, chance.noise);
    if fragment.offset > 0 {
        return;
    }
    let (transport, payload) = body.split_at_mut(flow.kind.transport_len());
    if flow.kind == Kind::Tcp4 {
        // The checksum covers parts of the datagram that are never made, so any value is valid.
        write_tcp(transport, flow, payload.len(), sum);
    } else {
        // The length is as if one more full fragment followed. No checksum (RFC 768: all zeros).
        write_udp(transport, flow, payload.len() + 1480, sum);
        transport[6..8].fill(0);
    }
}

/// Writes an ARP request of `client` for `gateway`, or the reply (RFC 826), padded to the minimum length.
pub(crate) fn write_arp(buf: &mut [u8; FRAME_MAX], client: [u8; 4], gateway: [u8; 4], reply: bool) {
    let (sender, sender_ip, target_ip) = if reply {
        (SERVER_SIDE, gateway, client)
    } else {
        (CLIENT_SIDE, client, gateway)
    };
    buf[..6].copy_from_slice(&if reply { CLIENT_SIDE } else { [0xff; 6] });
    buf[6..12].copy_from_slice(&sender);
    buf[12..20].copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4]);
    buf[20..22].copy_from_slice(&[0, 1 + u8::from(reply)]);
    buf[22..28].copy_from_slice(&sender);
    buf[28..32].copy_from_slice(&sender_ip);
    buf[32..38].copy_from_slice(&if reply { CLIENT_SIDE } else { [0; 6] });
    buf[38..42].copy_from_slice(&target_ip);
    buf[42..FRAME_MIN].fill(0);
}

/// Writes the link-layer header and returns its length.
#[inline]
fn write_ethernet(buf: &mut [u8; FRAME_MAX], flow: &Flow) -> usize {
    let (to, from) = if flow.sent_by_server() {
        (CLIENT_SIDE, SERVER_SIDE)
    } else {
        (SERVER_SIDE, CLIENT_SIDE)
    };
    buf[..6].copy_from_slice(&to);
    buf[6..12].copy_from_slice(&from);
    let ether_type: [u8; 2] = if flow.kind.is_ipv6() {
        [0x86, 0xdd]
    } else {
        [0x08, 0x00]
    };
    if flow.vlan() == 0 {
        buf[12..14].copy_from_slice(&ether_type);
        return 14;
    }
    buf[12..14].copy_from_slice(&[0x81, 0x00]);
    buf[14..16].copy_from_slice(&flow.vlan().to_be_bytes());
    buf[16..18].copy_from_slice(&ether_type);
    18
}

/// Writes an IPv4 header without options (RFC 791 section 3.1) at `at`.
#[inline]
fn write_ipv4(
    buf: &mut [u8; FRAME_MAX],
    at: usize,
    flow: &Flow,
    total: usize,
    id: u16,
    flags_offset: u16,
) {
    let header = &mut buf[at..at + 20];
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6..8].copy_from_slice(&flags_offset.to_be_bytes());
    header[8..12].copy_from_slice(&[flow.ttl, flow.kind.protocol(), 0, 0]);
    header[12..16].copy_from_slice(&flow.source[..4]);
    header[16..20].copy_from_slice(&flow.destination[..4]);
    let checksum = checksum(sum_of(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes an IPv6 header (RFC 8200 section 3) at `at`.
#[inline]
fn write_ipv6(buf: &mut [u8; FRAME_MAX], at: usize, flow: &Flow, length: usize) {
    let header = &mut buf[at..at + 40];
    header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6..8].copy_from_slice(&[flow.kind.protocol(), flow.ttl]);
    header[8..24].copy_from_slice(&flow.source);
    header[24..40].copy_from_slice(&flow.destination);
}

/// Writes a TCP header without options (RFC 9293 section 3.1). Returns whether it is a SYN: the flow's first packet is one.
#[inline]
fn write_tcp(header: &mut [u8], flow: &mut Flow, payload_len: usize, sum: u32) -> bool {
    let syn = flow.packets == 0;
    // The other direction is never made, so the acknowledged number stays the same.
    let acknowledged = if syn && !flow.sent_by_server() {
        0
    } else {
        let ports = u32::from(flow.source_port) << 16 | u32::from(flow.destination_port);
        ports.wrapping_mul(0x9e37_79b1)
    };
    let flags = match (syn, flow.sent_by_server()) {
        (true, false) => SYN,
        (true, true) => SYN | ACK,
        (false, _) if payload_len > 0 && flow.packets.is_multiple_of(4) => PUSH | ACK,
        (false, _) => ACK,
    };
    header[..2].copy_from_slice(&flow.source_port.to_be_bytes());
    header[2..4].copy_from_slice(&flow.destination_port.to_be_bytes());
    header[4..8].copy_from_slice(&flow.sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    header[12..20].copy_from_slice(&[0x50, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    let checksum = checksum(sum + sum_of(header));
    header[16..18].copy_from_slice(&checksum.to_be_bytes());
    flow.sequence = flow
        .sequence
        .wrapping_add(payload_len as u32 + u32::from(syn));
    syn
}

/// Writes a UDP header (RFC 768).
#[inline]
fn write_udp(header: &mut [u8], flow: &Flow, payload_len: usize, sum: u32) {
    header[..2].copy_from_slice(&flow.source_port.to_be_bytes());
    header[2..4].copy_from_slice(&flow.destination_port.to_be_bytes());
    header[4..6].copy_from_slice(&(8 + payload_len as u16).to_be_bytes());
    header[6..8].fill(0);
    // A sum of zero is sent as all ones, because zero would mean that there is no checksum.
    let checksum = match checksum(sum + sum_of(header)) {
        0 => 0xffff,
        other => other,
    };
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes an echo message of ICMP or ICMPv6 (RFC 792, RFC 4443 section 4).
#[inline]
fn write_icmp(header: &mut [u8], flow: &mut Flow, sum: u32) {
    header[..4].copy_from_slice(&[flow.source_port as u8, 0, 0, 0]);
    header[4..6].copy_from_slice(&flow.destination_port.to_be_bytes());
    header[6..8].copy_from_slice(&(flow.sequence as u16).to_be_bytes());
    let checksum = checksum(sum + sum_of(header));
    header[2..4].copy_from_slice(&checksum.to_be_bytes());
    flow.sequence = flow.sequence.wrapping_add(1);
}

/// Sum of the 16-bit words of a header of even length.
#[inline]
pub(crate) fn sum_of(words: &[u8]) -> u32 {
    words
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum()
}

/// Folds a sum to the Internet checksum (RFC 1071). At most 760 words are summed, so the sum fits in 32 bits.
#[inline]
pub(crate) fn checksum(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Room, plan};

    #[test]
    fn checksum_equals_the_worked_example() {
        // RFC 1071 section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(sum_of(&words)), !0xddf2);
    }

    #[test]
    fn noise_sums_equal_plain_summing() {
        let noise = Noise::new(Random::new(1, 2));
        for (start, len) in [(0, 0), (0, 1), (7, 18), (1023, 1460), (512, 1459)] {
            let mut payload = vec![0; len];
            let sum = noise.fill(&mut payload, start);
            payload.resize(len.next_multiple_of(2), 0);
            assert_eq!(sum, sum_of(&payload));
        }
    }

    #[test]
    fn fragments_obey_the_rule_of_eight() {
        let flow = &plan(1, 1, Room::WHOLE)[0];
        for len in FRAME_MIN..=FRAME_MAX {
            for random in 0..64 {
                let fragment = Fragment::choose(flow, len, random);
                assert!(!fragment.more || fragment.len.is_multiple_of(8));
                assert!(fragment.more || fragment.offset > 0);
                assert!(fragment.offset > 0 || fragment.len >= 20);
                assert!(len == FRAME_MIN || fragment.len == len - 34);
            }
        }
    }
}
