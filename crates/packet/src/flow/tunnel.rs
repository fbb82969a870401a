//! From the transport header of a tunnel to the frame or packet inside it.

use super::FlowKey;
use super::ip::UDP;
use super::link::{Layer, be16, byte};

const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const MPLS: u8 = 137;

const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// Whether a UDP packet to this port may be a tunnel.
#[inline(always)]
pub(crate) fn is_tunnel_port(dport: u16) -> bool {
    matches!(dport, VXLAN | GENEVE | GTP_U)
}

/// Layer and bytes inside the tunnel, if `payload`, the bytes of the packet of `key` after its IP
/// header, is a known tunnel.
///
/// A tunnel over UDP is recognised by the destination port, because the source port is a hash of the packet inside.
pub(crate) fn enter<'a>(key: &FlowKey, payload: &'a [u8]) -> Option<(Layer, &'a [u8])> {
    if payload.is_empty() {
        return None;
    }
    match key.proto {
        IPV4 => Some((Layer::V4, payload)),
        IPV6 => Some((Layer::V6, payload)),
        MPLS => Some((Layer::Mpls, payload)),
        GRE => gre(payload),
        UDP if is_tunnel_port(key.dport) => {
            let message = payload.get(UDP_HEADER..)?;
            match key.dport {
                VXLAN => vxlan(message),
                GENEVE => geneve(message),
                _ => gtp(message),
            }
        }
        _ => None,
    }
}

/// Layer and bytes after an EtherType. Two special types mean a whole Ethernet frame and PPP.
fn typed(kind: u16, rest: &[u8]) -> Option<(Layer, &[u8])> {
    let layer = match kind {
        0x6558 => Layer::Ethernet,
        0x880b => Layer::Ppp,
        other => Layer::Type(other),
    };
    Some((layer, rest))
}

/// Reads a GRE header: RFC 2784 with the key and sequence number of RFC 2890; version 1 belongs to PPTP (RFC 2637).
fn gre(data: &[u8]) -> Option<(Layer, &[u8])> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGMENT: u16 = 0x0080;
    let flags = be16(data, 0).ok()?;
    let counted = match flags & 7 {
        // RFC 1701's source routes are not walked: only their own contents tell where they end.
        0 if flags & ROUTING == 0 => CHECKSUM | KEY | SEQUENCE,
        1 => KEY | SEQUENCE | ACKNOWLEDGMENT,
        _ => return None,
    };
    let header = 4 + 4 * (flags & counted).count_ones() as usize;
    typed(be16(data, 2).ok()?, data.get(header..)?)
}

/// Reads a VXLAN header (RFC 7348, section 5): the I flag must be set.
fn vxlan(data: &[u8]) -> Option<(Layer, &[u8])> {
    let rest = data.get(8..)?;
    (data[0] & 8 != 0).then_some((Layer::Ethernet, rest))
}

/// Reads a GENEVE header (RFC 8926, section 3.4): version 0, options counted in words.
fn geneve(data: &[u8]) -> Option<(Layer, &[u8])> {
    let first = byte(data, 0).ok()?;
    if first >> 6 != 0 {
        return None;
    }
    typed(be16(data, 2).ok()?, data.get(8 + 4 * usize::from(first)..)?)
}

/// Reads a GTP-U header (3GPP TS 29.281, sections 5.1 and 5.2): a G-PDU, after its extension
/// headers.
fn gtp(data: &[u8]) -> Option<(Layer, &[u8])> {
    const G_PDU: u8 = 255;
    let &[flags, kind, ..] = data else {
        return None;
    };
    // Version 1, and GTP rather than the charging protocol GTP'.
    if flags >> 4 != 3 || kind != G_PDU {
        return None;
    }
    if flags & 7 == 0 {
        return Some((Layer::Ip, data.get(8..)?));
    }
    // If any of the flags E, S and PN is set, all three fields are present; the last is the type of the first extension header.
    let mut next = if flags & 4 != 0 {
        byte(data, 11).ok()?
    } else {
        0
    };
    let mut rest = data.get(12..)?;
    while next != 0 {
        // The loop ends because each turn takes at least four bytes.
        let words = usize::from(byte(rest, 0).ok()?);
        if words == 0 {
            return None;
        }
        next = byte(rest, 4 * words - 1).ok()?;
        rest = &rest[4 * words..];
    }
    Some((Layer::Ip, rest))
}
