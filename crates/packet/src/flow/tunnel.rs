//! From the transport header of a tunnel to the frame or packet inside it.

use super::FlowKey;
use super::ip::UDP;
use super::link::{Layer, be16, byte, head};

const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const MPLS: u8 = 137;

/// Ports of VXLAN: RFC 7348, section 8, and Linux' default.
const VXLAN: [u16; 2] = [4789, 8472];
/// Port of VXLAN-GPE, which has a field for the protocol inside: draft-ietf-nvo3-vxlan-gpe.
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;

/// GRE types of ERSPAN: draft-foschiano-erspan.
const ERSPAN: u16 = 0x88be;
const ERSPAN_III: u16 = 0x22eb;

/// Largest number of ports that [`Tunnels`] has for VXLAN in addition to the usual ports.
pub const MOST_VXLAN_PORTS: usize = 8;

/// Ports by which tunnels over UDP are recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnels {
    /// Ports of VXLAN in addition to the usual ports; 0 is none.
    vxlan: [u16; MOST_VXLAN_PORTS],
}

impl Tunnels {
    /// The usual ports, and `ports` for VXLAN. A port of another tunnel means VXLAN then. `None` for more than
    /// [`MOST_VXLAN_PORTS`], and for port 0.
    pub fn with_vxlan(ports: &[u16]) -> Option<Self> {
        let mut tunnels = Self::default();
        if ports.contains(&0) {
            return None;
        }
        tunnels.vxlan.get_mut(..ports.len())?.copy_from_slice(ports);
        Some(tunnels)
    }

    /// Whether a UDP packet to this port may be a tunnel.
    #[inline(always)]
    pub(super) fn has(&self, dport: u16) -> bool {
        is_tunnel_port(dport) || self.has_more() && self.is_more(dport)
    }

    /// Whether there are ports in addition to the usual ports.
    #[inline(always)]
    pub(super) fn has_more(&self) -> bool {
        self.vxlan[0] != 0
    }

    #[inline(never)]
    fn is_more(&self, dport: u16) -> bool {
        dport != 0 && self.vxlan.contains(&dport)
    }
}

/// Whether this is a usual port of a tunnel.
#[inline(always)]
pub(crate) fn is_tunnel_port(dport: u16) -> bool {
    matches!(dport, 4789 | 8472 | VXLAN_GPE | GENEVE | GTP_U)
}

/// A packet inside a tunnel.
pub(crate) struct Inside<'a> {
    /// The first layer inside.
    pub layer: Layer,
    /// The bytes from that layer on.
    pub bytes: &'a [u8],
    /// Identifier of the virtual network, of VXLAN, GENEVE and NVGRE: 24 bits.
    pub vni: Option<u32>,
}

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// The packet inside, if `payload`, the bytes of the packet of `key` after its IP header, is a known tunnel.
///
/// A tunnel over UDP is recognised by the destination port, because the source port is a hash of the packet inside.
pub(crate) fn enter<'a>(key: &FlowKey, payload: &'a [u8], tunnels: &Tunnels) -> Option<Inside<'a>> {
    let plain = |(layer, bytes)| Inside {
        layer,
        bytes,
        vni: None,
    };
    if payload.is_empty() {
        return None;
    }
    match key.proto {
        IPV4 => Some(plain((Layer::V4, payload))),
        IPV6 => Some(plain((Layer::V6, payload))),
        MPLS => Some(plain((Layer::Mpls, payload))),
        GRE => {
            // NVGRE has a key and carries Ethernet (RFC 7637, section 3.2).
            let vni = match payload.first_chunk() {
                Some(&[0x20, 0, 0x65, 0x58, a, b, c, _]) => Some(u32::from_be_bytes([0, a, b, c])),
                _ => None,
            };
            let (layer, bytes) = gre(payload)?;
            Some(Inside { layer, bytes, vni })
        }
        UDP if tunnels.has(key.dport) => {
            let message = payload.get(UDP_HEADER..)?;
            let (layer, bytes) = match key.dport {
                port if VXLAN.contains(&port) || tunnels.is_more(port) => vxlan(message)?,
                VXLAN_GPE => vxlan_gpe(message)?,
                GENEVE => geneve(message)?,
                _ => return gtp(message).map(plain),
            };
            let [_, _, _, _, a, b, c, _] = head(message).ok()?;
            let vni = Some(u32::from_be_bytes([0, a, b, c]));
            Some(Inside { layer, bytes, vni })
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
    let rest = data.get(header..)?;
    match be16(data, 2).ok()? {
        // Type I has no sequence numbers, and no header of its own.
        ERSPAN if flags & SEQUENCE == 0 => Some((Layer::Ethernet, rest)),
        ERSPAN | ERSPAN_III => erspan(rest),
        other => typed(other, rest),
    }
}

/// Reads a header of ERSPAN, type II or III (draft-foschiano-erspan-03, sections 4.2 and 4.3).
fn erspan(data: &[u8]) -> Option<(Layer, &[u8])> {
    /// Bit of the last byte of type III: a subheader of the platform follows.
    const SUBHEADER: u8 = 1;
    match byte(data, 0).ok()? >> 4 {
        1 => Some((Layer::Ethernet, data.get(8..)?)),
        2 => {
            let [.., kind, last] = head::<12>(data).ok()?;
            let layer = match kind >> 2 & 31 {
                0 => Layer::Ethernet,
                2 => Layer::Ip,
                _ => return None,
            };
            let subheader = usize::from(last & SUBHEADER) * 8;
            Some((layer, data.get(12 + subheader..)?))
        }
        _ => None,
    }
}

/// Reads a VXLAN header (RFC 7348, section 5): the I flag must be set.
fn vxlan(data: &[u8]) -> Option<(Layer, &[u8])> {
    let rest = data.get(8..)?;
    (data[0] & 8 != 0).then_some((Layer::Ethernet, rest))
}

/// Reads a header of VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe, section 3): version 0, the flags I and P.
fn vxlan_gpe(data: &[u8]) -> Option<(Layer, &[u8])> {
    let rest = data.get(8..)?;
    let layer = match (data[0] & 0x3c, data[3]) {
        // Without P it is VXLAN.
        (8, _) | (0x0c, 3) => Layer::Ethernet,
        (0x0c, 1) => Layer::V4,
        (0x0c, 2) => Layer::V6,
        (0x0c, 5) => Layer::Mpls,
        _ => return None,
    };
    Some((layer, rest))
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
