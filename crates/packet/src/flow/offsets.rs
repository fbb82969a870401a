//! Offsets of headers in a frame.

use super::ip::{self, UDP};
use super::link::{be16, byte};
use super::{FlowKey, Headers, Parser};
use crate::link::LinkType;

const TCP: u8 = 6;
const DCCP: u8 = 33;
/// No next header: bytes after the extension headers are ignored (RFC 8200, section 4.7).
const NO_NEXT: u8 = 59;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Offsets of headers in a frame, bytes from its first one; -1 for a header of which no byte was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of the IP header; -1 for frames without IP, and if the header is cut or contradicts itself.
    pub network: i32,
    /// Offset of the transport header, after IPv4 options, IPv6 extension headers and the
    /// authentication header; -1 in a fragment other than the first, and if the headers in front
    /// are cut.
    pub transport: i32,
    /// Offset of the payload of TCP, UDP, UDP-Lite, SCTP (the first chunk) or DCCP; -1 for other
    /// protocols, and for a packet without payload. Padding after the IP packet is not a payload.
    pub payload: i32,
}

impl Offsets {
    /// No header at all.
    pub const NONE: Self = Self {
        network: -1,
        transport: -1,
        payload: -1,
    };

    /// Offsets of the `headers` that were found in `frame`.
    #[inline(never)]
    pub(super) fn of(frame: &[u8], headers: &Headers<'_>) -> Self {
        let FlowKey { family, proto, .. } = headers.key;
        // All parts are slices of the frame.
        let at = |part: &[u8]| part.as_ptr().addr() - frame.as_ptr().addr();
        let is_cut = ip::extension_bit(proto) != 0 && (family == 6 || proto == ip::AUTHENTICATION);
        match headers.transport {
            [] => Self {
                network: number(at(headers.ip)),
                ..Self::NONE
            },
            _ if is_cut || proto == NO_NEXT => Self {
                network: number(at(headers.ip)),
                ..Self::NONE
            },
            transport => Self::with_transport(at(headers.ip), at(transport), proto, transport),
        }
    }

    /// Offsets of a packet whose transport header begins at `at` with the bytes `transport`, which
    /// end with the packet.
    #[inline(always)]
    pub(super) fn with_transport(network: usize, at: usize, proto: u8, transport: &[u8]) -> Self {
        let payload = payload(proto, transport).map_or(-1, |behind| number(at + behind));
        Self {
            network: number(network),
            transport: number(at),
            payload,
        }
    }
}

/// Bytes of a frame up to the payload of its transport, for captures without contents.
///
/// Of other protocols over IP, 8 bytes of the message are kept; of later fragments, nothing after the IP header. Of a frame without IP,
/// 42 bytes are kept: as many as ARP takes on Ethernet. **Cost**: a walk over all headers.
pub fn headers_len(link: LinkType, data: &[u8]) -> usize {
    const WITHOUT_IP: usize = 42;
    let headers = Parser::new(link, false).map(|parser| parser.headers(data));
    let Some(Ok(headers)) = headers else {
        return data.len().min(WITHOUT_IP);
    };
    // All parts are slices of the frame.
    let at = |part: &[u8]| part.as_ptr().addr() - data.as_ptr().addr();
    let len = match headers.transport {
        [] => at(headers.ip) + ip_header(headers.ip),
        transport => at(transport) + transport_header(headers.key.proto, transport),
    };
    len.min(data.len())
}

/// Bytes of an IP header; of IPv6, with a fragment header.
fn ip_header(ip: &[u8]) -> usize {
    match ip.first() {
        Some(first) if first >> 4 == 4 => usize::from(first & 15) * 4,
        _ => 48,
    }
}

/// Bytes of a transport header; of protocols without a known one, the first bytes of the message.
fn transport_header(proto: u8, transport: &[u8]) -> usize {
    const MESSAGE: usize = 8;
    let in_words = |place: usize, shift: u8, least| {
        let count = byte(transport, place).ok();
        count
            .and_then(|count| words(count >> shift, least))
            .unwrap_or(least)
    };
    let header = match proto {
        TCP => in_words(12, 4, 20),
        SCTP => 12,
        DCCP => in_words(4, 0, 12),
        _ => MESSAGE,
    };
    header.min(transport.len())
}

/// An offset as a number; -1 in a frame that is larger than any that is captured.
fn number(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(-1)
}

/// Bytes from the begin of a transport header to its payload; `None` if no byte of a payload is there.
#[inline(always)]
fn payload(proto: u8, transport: &[u8]) -> Option<usize> {
    let mut end = transport.len();
    let header = match proto {
        // RFC 9293, section 3.1: the data offset counts words.
        TCP => words(byte(transport, 12).ok()? >> 4, 20)?,
        UDP => {
            // RFC 768. A length of 0 is that of a jumbogram (RFC 2675, section 4), or left to the interface.
            let claimed = usize::from(be16(transport, 4).ok()?);
            end = if claimed == 0 { end } else { end.min(claimed) };
            8
        }
        UDP_LITE => 8,
        // RFC 9260, section 3.
        SCTP => 12,
        // RFC 4340, section 5.1.
        DCCP => words(byte(transport, 4).ok()?, 12)?,
        _ => return None,
    };
    (end > header).then_some(header)
}

/// Bytes of a header of so many words; `None` if it is shorter than `least` bytes.
fn words(count: u8, least: usize) -> Option<usize> {
    let bytes = usize::from(count) * 4;
    (bytes >= least).then_some(bytes)
}
