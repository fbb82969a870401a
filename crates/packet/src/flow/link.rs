//! From the link layer to the IP header.

use super::NoKey;
use crate::LinkType;

/// Tags, labels and shims in front of one IP header. More are somebody's joke, and would make a frame expensive.
const MOST_STEPS: usize = 32;

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// IEEE 802.3: addresses, type or length.
    Ethernet,
    /// The payload of an EtherType.
    Type(u16),
    /// IEEE 802.2.
    Llc,
    /// An MPLS label.
    Mpls,
    /// The PPPoE header of a session packet.
    PppoeSession,
    /// PPP from the address field on, which may be left out.
    Ppp,
    /// PPP behind a byte that tells the direction.
    PppDirected,
    /// Address, control and EtherType.
    CiscoHdlc,
    /// Four bytes of address family, in the order of some host.
    BsdNull,
    /// Four bytes of address family, big-endian.
    BsdLoop,
    /// Linux cooked capture, version 1.
    Cooked,
    /// Linux cooked capture, version 2.
    Cooked2,
    /// IP, of the version that its first nibble tells.
    Ip,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Layer {
    /// What the first byte of a frame of this link type belongs to.
    pub(super) fn of(link: LinkType) -> Option<Self> {
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
            _ => return None,
        })
    }
}

/// An IP header and all behind it.
pub(super) enum Packet<'a> {
    V4(&'a [u8]),
    V6(&'a [u8]),
}

/// Walks from `layer`, which begins with `data`, to an IP header.
pub(super) fn to_ip(mut layer: Layer, mut data: &[u8]) -> Result<Packet<'_>, NoKey> {
    for _ in 0..MOST_STEPS {
        let (next, header) = match layer {
            Layer::V4 => return Ok(Packet::V4(data)),
            Layer::V6 => return Ok(Packet::V6(data)),
            Layer::Ip => match byte(data, 0)? >> 4 {
                4 => (Layer::V4, 0),
                6 => (Layer::V6, 0),
                _ => return Err(NoKey::Malformed),
            },
            Layer::Ethernet => (type_or_length(be16(data, 12)?), 14),
            Layer::Type(0x0800) => (Layer::V4, 0),
            Layer::Type(0x86dd) => (Layer::V6, 0),
            // IEEE 802.1Q, 802.1ad, and the latter's number before it had one.
            Layer::Type(0x8100 | 0x88a8 | 0x9100) => (type_or_length(be16(data, 2)?), 4),
            Layer::Type(0x8847 | 0x8848) => (Layer::Mpls, 0),
            Layer::Type(0x8864) => (Layer::PppoeSession, 0),
            Layer::Type(_) => return Err(NoKey::NotIp),
            Layer::Llc => match head(data)? {
                // SNAP with the OUI that says: an EtherType follows.
                [0xaa, 0xaa, 3, 0, 0, 0, hi, lo] => (Layer::Type(u16::from_be_bytes([hi, lo])), 8),
                _ => return Err(NoKey::NotIp),
            },
            Layer::Mpls => behind_label(data)?,
            Layer::PppoeSession => match head::<6>(data)? {
                // RFC 2516, section 4: version and type 1, code 0.
                [0x11, 0, ..] => (Layer::Ppp, 6),
                _ => return Err(NoKey::NotIp),
            },
            Layer::Ppp => behind_ppp(data)?,
            Layer::PppDirected => match data {
                // pppd's device puts the direction in the place of the address and keeps the control byte.
                [_, 3, ..] => (Layer::Ppp, 2),
                [_, ..] => (Layer::Ppp, 1),
                [] => return Err(NoKey::Truncated),
            },
            Layer::CiscoHdlc => (Layer::Type(be16(data, 2)?), 4),
            Layer::BsdNull => (family(u32::from_le_bytes(head(data)?), true)?, 4),
            Layer::BsdLoop => (family(u32::from_be_bytes(head(data)?), false)?, 4),
            Layer::Cooked => (cooked(be16(data, 2)?, be16(data, 14)?)?, 16),
            Layer::Cooked2 => (cooked(be16(data, 8)?, be16(data, 0)?)?, 20),
        };
        layer = next;
        data = data.get(header..).ok_or(NoKey::Truncated)?;
    }
    Err(NoKey::NotIp)
}

/// IEEE 802.3, clause 3.2.6: from 1536 on it is a type.
fn type_or_length(value: u16) -> Layer {
    if value >= 0x0600 { Layer::Type(value) } else { Layer::Llc }
}

/// RFC 3032: nothing says what is under the last label, so its first nibble is looked at, as routers do (RFC 4928).
fn behind_label(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    let [_, _, last, _] = head(data)?;
    if last & 1 == 0 {
        return Ok((Layer::Mpls, 4));
    }
    match byte(data, 4)? >> 4 {
        4 => Ok((Layer::V4, 4)),
        6 => Ok((Layer::V6, 4)),
        // RFC 4385: the control word of a pseudo-wire, which then holds Ethernet as a rule.
        0 => Ok((Layer::Ethernet, 8)),
        _ => Err(NoKey::NotIp),
    }
}

/// RFC 1661 and 1662: address and control may be left out, and the high byte of a protocol that is zero.
fn behind_ppp(data: &[u8]) -> Result<(Layer, usize), NoKey> {
    let control = match data {
        [0xff, 3, ..] => 2,
        // No protocol has this number (RFC 1661, section 2).
        [0xff] => return Err(NoKey::Truncated),
        _ => 0,
    };
    let first = byte(data, control)?;
    let (protocol, header) =
        if first & 1 == 1 { (u16::from(first), control + 1) } else { (be16(data, control)?, control + 2) };
    match protocol {
        0x0021 => Ok((Layer::V4, header)),
        0x0057 => Ok((Layer::V6, header)),
        0x0281 | 0x0283 => Ok((Layer::Mpls, header)),
        _ => Err(NoKey::NotIp),
    }
}

/// AF_INET is 2 everywhere; AF_INET6 is 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS, 23 on Windows, 10 on Linux.
fn family(value: u32, either_order: bool) -> Result<Layer, NoKey> {
    match if either_order && value > 0xffff { value.swap_bytes() } else { value } {
        2 => Ok(Layer::V4),
        10 | 23 | 24 | 28 | 30 => Ok(Layer::V6),
        _ => Err(NoKey::NotIp),
    }
}

/// What a cooked header's protocol means, given its ARPHRD_ value (linux/if_arp.h).
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

/// The first bytes.
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
