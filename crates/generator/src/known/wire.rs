//! Frames of two ends: Ethernet, IPv4, and TCP or UDP.

use crate::frame::{FRAME_MIN, Noise, checksum, sum_of};
use crate::{FRAME_MAX, LINK_ADDRESSES};

/// Bytes of the headers in front of TCP or UDP.
const NETWORK: usize = 14 + 20;
/// Bytes of the headers in front of a UDP payload.
pub(super) const UDP: usize = NETWORK + 8;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PUSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// An end of a dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) address: [u8; 4],
    pub(super) port: u16,
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    /// Bytes of payload.
    pub(super) len: u16,
}

/// Writes a segment and returns the length of the frame.
pub(super) fn write_tcp(
    buf: &mut [u8; FRAME_MAX],
    (from, to): (End, End),
    segment: &Segment,
    noise: &Noise,
) -> usize {
    let len = usize::from(segment.len);
    let payload = noise.fill(&mut buf[NETWORK + 20..][..len], from.port as usize % 1024);
    let header = &mut buf[NETWORK..NETWORK + 20];
    header[..2].copy_from_slice(&from.port.to_be_bytes());
    header[2..4].copy_from_slice(&to.port.to_be_bytes());
    header[4..8].copy_from_slice(&segment.sequence.to_be_bytes());
    header[8..12].copy_from_slice(&segment.acknowledged.to_be_bytes());
    header[12..14].copy_from_slice(&[0x50, segment.flags]);
    header[14..16].copy_from_slice(&segment.window.to_be_bytes());
    header[16..20].fill(0);
    let sum = sum_of(header) + payload;
    let (frame, pseudo) = write_network(buf, from, to, 6, 20 + len);
    let sum = checksum(sum + pseudo);
    buf[NETWORK + 16..NETWORK + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Writes the headers of a datagram whose payload of `len` bytes is at [`UDP`], and returns the length of the frame.
pub(super) fn write_udp(buf: &mut [u8; FRAME_MAX], (from, to): (End, End), len: usize) -> usize {
    let total = 8 + len;
    let header = &mut buf[NETWORK..UDP];
    header[..2].copy_from_slice(&from.port.to_be_bytes());
    header[2..4].copy_from_slice(&to.port.to_be_bytes());
    header[4..6].copy_from_slice(&(total as u16).to_be_bytes());
    header[6..8].fill(0);
    // An odd byte is summed with a zero after it.
    buf[UDP + len] = 0;
    let sum = sum_of(&buf[NETWORK..NETWORK + total.next_multiple_of(2)]);
    let (frame, pseudo) = write_network(buf, from, to, 17, total);
    // A sum of zero is sent as all ones (RFC 768).
    let sum = match checksum(sum + pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    buf[NETWORK + 6..UDP].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Writes the link-layer and IPv4 headers, and the padding. Returns the length of the frame, and the sum of the pseudo-header.
fn write_network(
    buf: &mut [u8; FRAME_MAX],
    from: End,
    to: End,
    protocol: u8,
    len: usize,
) -> (usize, u32) {
    // Servers and targets are on one side, clients and scanners on the other.
    let is_client = from.address[0] == 10;
    let [clients, servers] = LINK_ADDRESSES;
    let to_link = match to.address {
        [255, 255, 255, 255] => [0xff; 6],
        _ if is_client => servers,
        _ => clients,
    };
    buf[..6].copy_from_slice(&to_link);
    buf[6..12].copy_from_slice(if is_client { &clients } else { &servers });
    buf[12..14].copy_from_slice(&[0x08, 0x00]);
    let header = &mut buf[14..NETWORK];
    header[..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
    // No identification, because no router may fragment it (RFC 6864).
    header[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    header[8..12].copy_from_slice(&[64, protocol, 0, 0]);
    header[12..16].copy_from_slice(&from.address);
    header[16..20].copy_from_slice(&to.address);
    let sum = checksum(sum_of(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let pseudo = sum_of(&header[12..20]) + u32::from(protocol) + len as u32;
    let end = NETWORK + len;
    if end < FRAME_MIN {
        buf[end..FRAME_MIN].fill(0);
    }
    (end.max(FRAME_MIN), pseudo)
}
