//! From the link layer to the IP header.

use super::{NoKey, wlan};
use crate::LinkType;

/// Largest number of tags, labels and shims between the link header and the IP header. More are not legitimate, and would make a
/// frame expensive.
pub(super) const MOST_SHIMS: usize = 32;

/// Largest number of attributes in front of the packet of a netfilter log message.
const MOST_ATTRIBUTES: usize = 32;

/// Protocol layer to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// IEEE 802.3: addresses, type or length.
    Ethernet,
    /// The payload of an EtherType.
    Type(u16),
    /// IEEE 802.2.
    Llc,
    /// MPLS: a label.
    Mpls,
    /// The PPPoE header of a session packet.
    PppoeSession,
    /// PPP, from the address field on, which may be left out.
    Ppp,
    /// PPP after a direction byte.
    PppDirected,
    /// Cisco HDLC: address, control and EtherType.
    CiscoHdlc,
    /// BSD loopback: four bytes of address family, in the byte order of the capturing host.
    BsdNull,
    /// OpenBSD loopback: four bytes of address family, big-endian.
    BsdLoop,
    /// Linux cooked capture, version 1.
    Cooked,
    /// Linux cooked capture, version 2.
    Cooked2,
    /// FDDI: frame control and addresses.
    Fddi,
    /// Frame relay: the address of Q.922.
    FrameRelay,
    /// A message of Linux's netfilter log: attributes, one of which is the packet.
    Nflog,
    /// IP over InfiniBand, after a global route header.
    IpoIb,
    /// Solaris' ipnet: a header with the address family and zones of the packet after it.
    Ipnet,
    /// A MAC header of IEEE 802.11.
    Wlan {
        /// Whether the header is padded to a multiple of four bytes.
        padded: bool,
    },
    /// A radiotap header in front of 802.11.
    Radiotap,
    /// A Prism header in front of 802.11, or an AVS header in its place.
    Prism,
    /// An AVS header in front of 802.11.
    Avs,
    /// Per-packet information, whose header names the link type of the bytes after it.
    Ppi,
    /// IP, of the version in its first nibble.
    Ip,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Layer {
    /// The layer to which the first byte of a frame of this link type belongs.
    pub(crate) fn of(link: LinkType) -> Option<Self> {
        Some(match link {
            LinkType::ETHERNET => Self::Ethernet,
            LinkType::LINUX_SLL => Self::Cooked,
            LinkType::LINUX_SLL2 => Self::Cooked2,
            LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => Self::Ip,
            LinkType::IPV4 => Self::V4,
            LinkType::IPV6 => Self::V6,
            LinkType::NULL => Self::BsdNull,
            LinkType::LOOP => Self::BsdLoop,
            LinkType::PPP | LinkType::PPP_SERIAL => Self::Ppp,
            LinkType::PPP_PPPD | LinkType::PPP_WITH_DIR => Self::PppDirected,
            LinkType::PPP_ETHER => Self::PppoeSession,
            LinkType::C_HDLC => Self::CiscoHdlc,
            LinkType::MPLS => Self::Mpls,
            LinkType::FDDI => Self::Fddi,
            LinkType::FRELAY => Self::FrameRelay,
            LinkType::NFLOG => Self::Nflog,
            LinkType::IPOIB => Self::IpoIb,
            LinkType::IPNET => Self::Ipnet,
            LinkType::IEEE802_11 => Self::Wlan { padded: false },
            LinkType::IEEE802_11_RADIO => Self::Radiotap,
            LinkType::PRISM_HEADER => Self::Prism,
            LinkType::IEEE802_11_RADIO_AVS => Self::Avs,
            LinkType::PPI => Self::Ppi,
            _ => return None,
        })
    }
}

/// An IP header and all bytes after it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet<'a> {
    V4(&'a [u8]),
    V6(&'a [u8]),
}

impl<'a> Packet<'a> {
    /// The bytes from the IP header on.
    pub(super) fn bytes(&self) -> &'a [u8] {
        match self {
            Self::V4(bytes) | Self::V6(bytes) => bytes,
        }
    }
}

/// The identifiers of the VLAN tags of an Ethernet or Linux cooked frame (IEEE 802.1Q and 802.1ad), the outermost first.
pub(super) fn vlans(start: Layer, data: &[u8]) -> impl Iterator<Item = u16> {
    // Where the type stands that announces a tag, and where the tag.
    let mut place = match start {
        Layer::Ethernet => Some((12, 14)),
        Layer::Cooked => Some((14, 16)),
        // The protocol is first, and its header after 20 bytes.
        Layer::Cooked2 => Some((0, 20)),
        _ => None,
    };
    let next = move || {
        let (kind, tag) = place?;
        match be16(data, kind) {
            Ok(0x8100 | 0x88a8 | 0x9100) => {
                place = Some((tag + 2, tag + 4));
                Some(be16(data, tag).ok()? & 0xfff)
            }
            _ => None,
        }
    };
    core::iter::from_fn(next).take(MOST_SHIMS)
}

/// Walks from `layer`, which begins with `data`, to an IP header.
pub(super) fn to_ip(layer: Layer, data: &[u8]) -> Result<Packet<'_>, NoKey> {
    walk(layer, data, |_, _| {})
}

/// The same; calls `meet` with the layer and the bytes of each header on the way.
#[inline(always)]
pub(super) fn walk<'a>(
    mut layer: Layer,
    mut data: &'a [u8],
    mut meet: impl FnMut(Layer, &'a [u8]),
) -> Result<Packet<'a>, NoKey> {
    // The first header is that of the link, unless a label or a type comes first.
    let mut shims = usize::from(matches!(layer, Layer::Mpls | Layer::Type(_)));
    while shims <= MOST_SHIMS + 1 {
        meet(layer, data);
        match layer {
            Layer::V4 => return Ok(Packet::V4(data)),
            Layer::V6 => return Ok(Packet::V6(data)),
            _ => {}
        }
        let (next, header) = step(layer, data)?;
        // Two layers in a row without a header name IP, so that the walk ends.
        shims += usize::from(header > 0);
        layer = next;
        data = data.get(header..).ok_or(NoKey::Truncated)?;
    }
    // What lies after is not known, so the frame must not pass for one without IP.
    Err(NoKey::Malformed)
}

/// Reads the header of `layer`, which begins with `data`. Returns the layer after it, and its length, which may exceed the
/// number of bytes. IP is returned as it is.
#[inline(always)]
pub(crate) fn step(layer: Layer, data: &[u8]) -> Result<(Layer, usize), NoKey> {
    Ok(match layer {
        Layer::V4 | Layer::V6 => (layer, 0),
        Layer::Ip => match byte(data, 0)? >> 4 {
            4 => (Layer::V4, 0),
            6 => (Layer::V6, 0),
            _ => return Err(NoKey::Malformed),
        },
        Layer::Ethernet => (type_or_length(be16(data, 12)?)?, 14),
        Layer::Type(0x0800) => (Layer::V4, 0),
        Layer::Type(0x86dd) => (Layer::V6, 0),
        // IEEE 802.1Q, 802.1ad, and the number in use before 802.1ad had one.
        Layer::Type(0x8100 | 0x88a8 | 0x9100) => (type_or_length(be16(data, 2)?)?, 4),
        Layer::Type(0x8847 | 0x8848) => (Layer::Mpls, 0),
        Layer::Type(0x8864) => (Layer::PppoeSession, 0),
        // FabricPath: a forwarding tag and the time to live, then a whole frame.
        Layer::Type(0x8903) => (Layer::Ethernet, 2),
        Layer::Type(_) => return Err(NoKey::NotIp),
        Layer::Llc => {
            // SNAP with the OUI that announces an EtherType. If the first bytes differ, the
            // frame is not IP, and not truncated.
            let snap = [0xaa, 0xaa, 3, 0, 0, 0];
            if data
                .iter()
                .zip(snap)
                .any(|(found, wanted)| *found != wanted)
            {
                return Err(NoKey::NotIp);
            }
            (Layer::Type(be16(data, snap.len())?), LEAST_SNAP)
        }
        Layer::Mpls => behind_label(data)?,
        Layer::PppoeSession => match head::<6>(data)? {
            // RFC 2516, section 4: version and type 1, code 0.
            [0x11, 0, ..] => (Layer::Ppp, 6),
            _ => return Err(NoKey::NotIp),
        },
        Layer::Ppp => behind_ppp(data)?,
        Layer::PppDirected => match data {
            // pppd's device writes the direction in place of the address and keeps the control byte.
            [_, 3, ..] => (Layer::Ppp, 2),
            [_, ..] => (Layer::Ppp, 1),
            [] => return Err(NoKey::Truncated),
        },
        Layer::CiscoHdlc => (Layer::Type(be16(data, 2)?), 4),
        Layer::BsdNull => (family(u32::from_le_bytes(head(data)?), true)?, 4),
        Layer::BsdLoop => (family(u32::from_be_bytes(head(data)?), false)?, 4),
        Layer::Cooked => (cooked(be16(data, 2)?, be16(data, 14)?)?, 16),
        Layer::Cooked2 => (cooked(be16(data, 8)?, be16(data, 0)?)?, 20),
        Layer::Fddi => match byte(data, 0)? {
            // ANSI X3.139: a frame of LLC, asynchronous.
            0x50..=0x5f => (Layer::Llc, 13),
            _ => return Err(NoKey::NotIp),
        },
        Layer::FrameRelay => behind_q922(data)?,
        Layer::Nflog => nflog(data)?,
        // The header of RFC 4391 begins after 40 bytes.
        Layer::IpoIb => (Layer::Type(be16(data, 40)?), 44),
        Layer::Ipnet => match byte(data, 1)? {
            2 => (Layer::V4, 24),
            26 => (Layer::V6, 24),
            _ => return Err(NoKey::NotIp),
        },
        Layer::Wlan { .. } | Layer::Radiotap | Layer::Prism | Layer::Avs | Layer::Ppi => {
            wlan::behind(layer, data)?
        }
    })
}

/// Bytes of LLC and SNAP in front of a packet.
const LEAST_SNAP: usize = 8;

/// The layer that an Ethernet type or length field announces. From 1536 on the value is a type (IEEE 802.3, clause 3.2.6). A
/// frame that is too short for SNAP carries no IP.
fn type_or_length(value: u16) -> Result<Layer, NoKey> {
    match value {
        0x0600.. => Ok(Layer::Type(value)),
        _ if usize::from(value) < LEAST_SNAP => Err(NoKey::NotIp),
        _ => Ok(Layer::Llc),
    }
}

/// Reads a frame relay header (RFC 2427; its section 4: control and protocol). In front is an address of Q.922, whose last
/// byte has its lowest bit set. Cisco's variant has an EtherType in place of the control byte.
fn behind_q922(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    const UNNUMBERED: u8 = 3;
    let mut address = 1;
    while byte(data, address - 1)? & 1 == 0 {
        address += 1;
        if address > 4 {
            return Err(NoKey::Malformed);
        }
    }
    if address < 2 {
        return Err(NoKey::Malformed);
    }
    if byte(data, address)? != UNNUMBERED {
        return Ok((Layer::Type(be16(data, address)?), address + 2));
    }
    // One byte of padding may come first.
    let protocol = address + 1 + usize::from(byte(data, address + 1)? == 0);
    match byte(data, protocol)? {
        0xcc => Ok((Layer::V4, protocol + 1)),
        0x8e => Ok((Layer::V6, protocol + 1)),
        0x80 => match (be16(data, protocol + 1)?, byte(data, protocol + 3)?) {
            (0, 0) => Ok((Layer::Type(be16(data, protocol + 4)?), protocol + 6)),
            _ => Err(NoKey::NotIp),
        },
        _ => Err(NoKey::NotIp),
    }
}

/// Reads a netfilter log message (linux/netfilter/nfnetlink_log.h): a family and a version, then attributes of length and
/// type, each padded to four bytes. Length and type are in the byte order of the capturing host; no type exceeds 63, so the
/// type reveals the order. Its two upper bits are flags (`NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` of linux/netlink.h).
fn nflog(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    const PAYLOAD: u8 = 9;
    const FLAGS: u8 = 0xc0;
    let [family, version, ..] = head::<4>(data)?;
    let layer = match (version, family) {
        (0, 2) => Layer::V4,
        (0, 10) => Layer::V6,
        _ => return Err(NoKey::NotIp),
    };
    let mut at = 4;
    for _ in 0..MOST_ATTRIBUTES {
        let (length, kind) = match head(data.get(at..).ok_or(NoKey::Truncated)?)? {
            [a, b, kind, 0] => (u16::from_le_bytes([a, b]), kind),
            [a, b, 0, kind] => (u16::from_be_bytes([a, b]), kind),
            [a, b, kind, high] if high & !FLAGS == 0 => (u16::from_le_bytes([a, b]), kind),
            [a, b, high, kind] if high & !FLAGS == 0 => (u16::from_be_bytes([a, b]), kind),
            _ => return Err(NoKey::Malformed),
        };
        match (kind, length) {
            (_, ..4) => return Err(NoKey::Malformed),
            (PAYLOAD, _) => return Ok((layer, at + 4)),
            _ => at += usize::from(length).next_multiple_of(4),
        }
    }
    Err(NoKey::NotIp)
}

/// Reads an MPLS label (RFC 3032). No field names the payload of the last label, so its first nibble decides, as in routers
/// (RFC 4928).
fn behind_label(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    let [_, _, last, _] = head(data)?;
    if last & 1 == 0 {
        return Ok((Layer::Mpls, 4));
    }
    match byte(data, 4)? >> 4 {
        4 => Ok((Layer::V4, 4)),
        6 => Ok((Layer::V6, 4)),
        // RFC 4385: the control word of a pseudo-wire, which usually holds Ethernet.
        0 => Ok((Layer::Ethernet, 8)),
        _ => Err(NoKey::NotIp),
    }
}

/// Reads a PPP header (RFC 1661 and 1662). Address and control may be left out, and so may the high byte of a protocol if it
/// is zero.
fn behind_ppp(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    let control = match data {
        [0xff, 3, ..] => 2,
        // No protocol has the number 0xff (RFC 1661, section 2).
        [0xff] => return Err(NoKey::Truncated),
        _ => 0,
    };
    let first = byte(data, control)?;
    let (protocol, header) = if first & 1 == 1 {
        (u16::from(first), control + 1)
    } else {
        (be16(data, control)?, control + 2)
    };
    match protocol {
        0x0021 => Ok((Layer::V4, header)),
        0x0057 => Ok((Layer::V6, header)),
        0x0281 | 0x0283 => Ok((Layer::Mpls, header)),
        _ => Err(NoKey::NotIp),
    }
}

/// The layer of a BSD address family. AF_INET is 2 everywhere. AF_INET6 is 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on
/// macOS, 23 on Windows, 10 on Linux.
fn family(value: u32, either_order: bool) -> Result<Layer, NoKey> {
    match if either_order && value > 0xffff {
        value.swap_bytes()
    } else {
        value
    } {
        2 => Ok(Layer::V4),
        10 | 23 | 24 | 28 | 30 => Ok(Layer::V6),
        _ => Err(NoKey::NotIp),
    }
}

/// The layer that a cooked header's protocol announces, given its ARPHRD_ value (linux/if_arp.h).
fn cooked(hardware: u16, protocol: u16) -> Result<Layer, NoKey> {
    // ARPHRD_NETLINK: the protocol is a netlink family.
    const NETLINK: u16 = 824;
    // linux/if_ether.h: ETH_P_802_2, a frame that had a length.
    const LLC: u16 = 4;
    match protocol {
        _ if hardware == NETLINK => Err(NoKey::NotIp),
        LLC => Ok(Layer::Llc),
        other => Ok(Layer::Type(other)),
    }
}

/// The first `N` bytes.
pub(super) fn head<const N: usize>(data: &[u8]) -> Result<[u8; N], NoKey> {
    data.first_chunk().copied().ok_or(NoKey::Truncated)
}

pub(super) fn byte(data: &[u8], at: usize) -> Result<u8, NoKey> {
    data.get(at).copied().ok_or(NoKey::Truncated)
}

pub(super) fn be16(data: &[u8], at: usize) -> Result<u16, NoKey> {
    match data.get(at..at + 2) {
        Some(&[hi, lo]) => Ok(u16::from_be_bytes([hi, lo])),
        _ => Err(NoKey::Truncated),
    }
}
