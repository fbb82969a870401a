//! Headers that no [`Fields`](crate::Fields) hold, read again for the few rules that name them.

use weir_packet::flow::{Headers, Parser};

const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Bytes of an IPv6 header without extensions.
const V6_HEADER: usize = 40;

/// Number that a header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The header holds this number.
    Known(u16),
    /// The packet has no such header.
    None,
    /// The captured bytes do not tell it.
    Absent,
}

/// Reads the largest segment size that a TCP header announces, from its first such option.
///
/// Padding after the end of the list is searched too, and an option of length 0 counts as one byte,
/// as `nft_exthdr_tcp_eval` in Linux has it (net/netfilter/nft_exthdr.c). **Source**: RFC 9293,
/// section 3.2.
pub(crate) fn segment_size(parser: &Parser, data: &[u8]) -> Reading {
    const LEAST: usize = 20;
    const SEGMENT_SIZE: u8 = 2;
    const NO_OPERATION: u8 = 1;
    let Ok(headers) = parser.headers(data) else {
        return Reading::Absent;
    };
    match (headers.key.family, headers.key.proto) {
        (_, TCP) => {}
        (_, AUTHENTICATION) => return Reading::Absent,
        (6, proto) if is_extension(proto) => return Reading::Absent,
        _ => return Reading::None,
    }
    let header = headers.transport;
    let Some(length) = header.get(12).map(|byte| usize::from(byte >> 4) * 4) else {
        return Reading::Absent;
    };
    if length < LEAST {
        return Reading::None;
    }
    let Some(header) = header.get(..length) else {
        return Reading::Absent;
    };
    let mut at = LEAST;
    while at + 1 < length {
        let (kind, len) = (header[at], usize::from(header[at + 1]));
        let len = if kind <= NO_OPERATION || len == 0 {
            1
        } else {
            len
        };
        if kind == SEGMENT_SIZE {
            let value = header
                .get(at + 2..at + 4)
                .filter(|_| len >= 4 && at + len <= length);
            return value.map_or(Reading::None, |value| {
                Reading::Known(u16::from_be_bytes([value[0], value[1]]))
            });
        }
        at += len;
    }
    Reading::None
}

/// Reads the type of the first routing header in front of the transport of an IPv6 packet. **Source**: RFC 8200, section 4.4.
pub(crate) fn routing_type(parser: &Parser, data: &[u8]) -> Reading {
    let Ok(Headers { key, ip, .. }) = parser.headers(data) else {
        return Reading::Absent;
    };
    if key.family != 6 {
        return Reading::None;
    }
    let Some(mut next) = ip.get(6).copied() else {
        return Reading::Absent;
    };
    let claimed = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let limit = if claimed == 0 {
        ip.len()
    } else {
        ip.len().min(V6_HEADER + claimed)
    };
    let mut behind = ip.get(V6_HEADER..limit).unwrap_or_default();
    while is_extension(next) {
        let &[following, length, third, fourth, ..] = behind else {
            return Reading::Absent;
        };
        let len = match next {
            ROUTING => return Reading::Known(u16::from(third)),
            // What is after an extension header is in another fragment.
            FRAGMENT if u16::from_be_bytes([third, fourth]) >> 3 != 0 => {
                return if is_extension(following) {
                    Reading::Absent
                } else {
                    Reading::None
                };
            }
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        let Some(rest) = behind.get(len..) else {
            return Reading::Absent;
        };
        (next, behind) = (following, rest);
    }
    Reading::None
}

/// Whether the number belongs to an extension header that another header follows: RFC 8200, section
/// 4, and RFC 4302.
fn is_extension(number: u8) -> bool {
    matches!(
        number,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION
    )
}
