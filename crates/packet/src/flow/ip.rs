//! From the IP header to the key.
//!
//! **Lengths are claims.** The captured bytes are the limit. Within it, a shorter total length (IPv4) or payload length
//! (IPv6) is believed. So the padding of a short Ethernet frame is not read as ports. A length of zero is ignored: hosts
//! that leave the segmentation to the network card write it, and jumbograms have it.
//!
//! **An IPv4 header is whole, or the packet is malformed**: if the captured bytes end within its
//! options, or its total length is below its own length, there is no key. This is the only rule,
//! for keys, firewalls, columns and tables.

use super::link::{Packet, be16, byte, head};
use super::reframe::Between;
use super::{FlowKey, NoKey};

pub(super) const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
pub(super) const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Largest number of extension headers that are walked. RFC 8200 knows at most seven in a packet.
const MOST_EXTENSIONS: usize = 16;

/// Whether this protocol begins with a source and a destination port: TCP, UDP, DCCP, SCTP, UDP-Lite.
#[inline(always)]
pub(super) fn has_ports(proto: u8) -> bool {
    const SET: [u64; 4] = {
        let mut set = [0; 4];
        let mut i = 0;
        let protocols = [6, 17, 33, 132, 136];
        while i < protocols.len() {
            set[protocols[i] / 64] |= 1 << (protocols[i] % 64);
            i += 1;
        }
        set
    };
    SET[usize::from(proto >> 6)] >> (proto & 63) & 1 == 1
}

/// Bits of [`Headers::extensions`](super::Headers::extensions), by protocol number: RFC 8200, section 4, and RFC 4302.
pub(super) fn extension_bit(proto: u8) -> u8 {
    match proto {
        HOP_BY_HOP => super::extensions::HOP_BY_HOP,
        ROUTING => super::extensions::ROUTING,
        FRAGMENT => super::extensions::FRAGMENT,
        AUTHENTICATION => super::extensions::AUTHENTICATION,
        DESTINATION => super::extensions::DESTINATION,
        _ => 0,
    }
}

/// Appends to `header` the IP header of `packet` as it were without the headers between it and the transport, and returns the bytes
/// after those; `None` if there are no such headers. Length and protocol agree with the shorter packet. A later fragment of IPv6
/// keeps its fragment header.
pub(super) fn shorten<'a>(packet: &Packet<'a>, header: &mut Between) -> Option<&'a [u8]> {
    let (fixed, walked, length, protocol) = match *packet {
        Packet::V4(data) => (
            usize::from(byte(data, 0).ok()? & 15) * 4,
            v4(data).ok()?,
            2,
            9,
        ),
        Packet::V6(data) => (40, v6(data).ok()?, 4, 6),
    };
    let removed = walked
        .at
        .checked_sub(fixed)
        .filter(|removed| *removed > 0)?;
    let data = packet.bytes();
    let copy = header.push(data.get(..fixed)?);
    copy[protocol] = match packet {
        Packet::V6(_) if walked.key.flags & FlowKey::LATER_FRAGMENT != 0 => FRAGMENT,
        _ => walked.key.proto,
    };
    let claimed = u16::from_be_bytes([copy[length], copy[length + 1]]);
    let left = usize::from(claimed).saturating_sub(removed) as u16;
    copy[length..length + 2].copy_from_slice(&left.to_be_bytes());
    match (claimed, left) {
        // A length of zero would say nothing, and padding would be read as a transport header.
        (1.., 0) => data.get(walked.at..walked.at),
        _ => data.get(walked.at..),
    }
}

/// The key of an IP packet, the bytes from its transport header on (empty in a later fragment), and the kinds of extension headers between.
pub(super) fn key(packet: Packet<'_>) -> Result<(FlowKey, &[u8], u8), NoKey> {
    let Walked {
        mut key,
        payload,
        extensions,
        ..
    } = match packet {
        Packet::V4(data) => v4(data)?,
        Packet::V6(data) => v6(data)?,
    };
    if let (true, Some(&[a, b, c, d])) = (has_ports(key.proto), payload.first_chunk()) {
        key.sport = u16::from_be_bytes([a, b]);
        key.dport = u16::from_be_bytes([c, d]);
        key.flags |= FlowKey::HAS_PORTS;
    }
    Ok((key, payload, extensions))
}

/// An IP packet, walked up to its transport header.
struct Walked<'a> {
    /// The key, without ports.
    key: FlowKey,
    /// Bytes from the transport header on; empty in a later fragment.
    payload: &'a [u8],
    extensions: u8,
    /// Offset in the packet of the transport header; in a later fragment of IPv6, of its fragment header.
    at: usize,
}

/// RFC 791, section 3.1.
fn v4(data: &[u8]) -> Result<Walked<'_>, NoKey> {
    let first = byte(data, 0)?;
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 {
        return Err(NoKey::Malformed);
    }
    let fixed: [u8; 20] = head(data)?;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if data.len() < header || total != 0 && total < header {
        return Err(NoKey::Malformed);
    }
    let mut key = FlowKey {
        proto: fixed[9],
        family: 4,
        ..FlowKey::NONE
    };
    key.src[..4].copy_from_slice(&fixed[12..16]);
    key.dst[..4].copy_from_slice(&fixed[16..20]);
    // The only extension header that IPv4 has.
    let extensions = if key.proto == AUTHENTICATION {
        extension_bit(AUTHENTICATION)
    } else {
        0
    };
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0 {
        key.flags |= FlowKey::LATER_FRAGMENT;
        return Ok(Walked {
            key,
            payload: &[],
            extensions,
            at: header,
        });
    }
    let limit = if total == 0 {
        data.len()
    } else {
        total.min(data.len())
    };
    let mut payload = &data[header..limit];
    for _ in 0..MOST_EXTENSIONS {
        if key.proto != AUTHENTICATION || !skip(&mut key.proto, &mut payload, 4, 2) {
            break;
        }
    }
    let at = limit - payload.len();
    Ok(Walked {
        key,
        payload,
        extensions,
        at,
    })
}

/// Reads the key of an IPv6 packet, and its transport payload (RFC 8200). Mobility headers (RFC
/// 6275), HIP and SHIM6 are messages of their own with nothing after them, so they are the
/// transport here.
fn v6(data: &[u8]) -> Result<Walked<'_>, NoKey> {
    if byte(data, 0)? >> 4 != 6 {
        return Err(NoKey::Malformed);
    }
    let fixed: [u8; 40] = head(data)?;
    let mut key = FlowKey {
        proto: fixed[6],
        family: 6,
        ..FlowKey::NONE
    };
    key.src.copy_from_slice(&fixed[8..24]);
    key.dst.copy_from_slice(&fixed[24..40]);
    let claimed = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let limit = if claimed == 0 {
        data.len()
    } else {
        (40 + claimed).min(data.len())
    };
    let mut payload = &data[40..limit];
    let mut extensions = extension_bit(key.proto);
    for _ in 0..MOST_EXTENSIONS {
        let walked = match key.proto {
            HOP_BY_HOP | ROUTING | DESTINATION => skip(&mut key.proto, &mut payload, 8, 1),
            AUTHENTICATION => skip(&mut key.proto, &mut payload, 4, 2),
            FRAGMENT => {
                let offset = be16(payload, 2).unwrap_or(0) >> 3;
                if payload.len() < 8 {
                    false
                } else if offset == 0 {
                    (key.proto, payload) = (payload[0], &payload[8..]);
                    true
                } else {
                    key.proto = payload[0];
                    key.flags |= FlowKey::LATER_FRAGMENT;
                    return Ok(Walked {
                        key,
                        payload: &[],
                        extensions: extensions | extension_bit(key.proto),
                        at: limit - payload.len(),
                    });
                }
            }
            _ => false,
        };
        if !walked {
            break;
        }
        extensions |= extension_bit(key.proto);
    }
    let at = limit - payload.len();
    Ok(Walked {
        key,
        payload,
        extensions,
        at,
    })
}

/// Skips an extension header of `(length + more) * unit` bytes. If the header is not captured in full, nothing moves and the
/// protocol is that of the header.
fn skip(proto: &mut u8, payload: &mut &[u8], unit: usize, more: usize) -> bool {
    let &[next, length, ..] = *payload else {
        return false;
    };
    match payload.get((usize::from(length) + more) * unit..) {
        // An authentication header has twelve bytes at least.
        Some(_) if *proto == AUTHENTICATION && length == 0 => false,
        Some(rest) => {
            (*proto, *payload) = (next, rest);
            true
        }
        None => false,
    }
}
