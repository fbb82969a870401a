//! Keys of a packet: the fields that the index knows.
//!
//! libpcap's programs read the same fields at the same offsets, so that the index can answer a
//! program's comparison ([`select`](super::select)): EtherTypes (after tags too), identifiers of
//! VLANs, the protocol of IPv4 and the next header of IPv6, ports after the header length that IPv4
//! claims, and right after an IPv6 header, addresses of IPv4, IPv6, ARP and RARP. Versions, lengths
//! and checksums are ignored, as libpcap ignores them.

use weir_packet::LinkType;

/// Kind of a key, in the order of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// EtherType, of the frame or after a tag (2 bytes).
    Type = 1,
    /// Identifier of a VLAN (2 bytes).
    Vlan = 2,
    /// Protocol of IPv4 or next header of IPv6 (1 byte).
    Protocol = 3,
    /// Port of TCP, UDP or SCTP (2 bytes).
    Port = 4,
    /// Address of IPv4, or of ARP and RARP (4 bytes).
    V4 = 5,
    /// Address of IPv6 (16 bytes).
    V6 = 6,
}

impl Kind {
    /// All kinds, in order.
    pub(super) const ALL: [Self; 6] = [
        Self::Type,
        Self::Vlan,
        Self::Protocol,
        Self::Port,
        Self::V4,
        Self::V6,
    ];

    /// Bytes of a key in the index file.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Protocol => 1,
            Self::Type | Self::Vlan | Self::Port => 2,
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    pub(super) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == byte)
    }
}

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const ARP: u16 = 0x0806;
pub(super) const RARP: u16 = 0x8035;

/// Largest number of tags after which keys are found.
pub(super) const MOST_TAGS: usize = 3;

/// Whether this EtherType announces a VLAN tag: 802.1Q, 802.1ad, and the type in use before.
#[inline]
pub(super) fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

/// Whether packets of this protocol have ports, for libpcap: TCP, UDP, SCTP.
#[inline]
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

/// Where frames of a link type have their EtherType and, without tags, the header after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) ethertype: usize,
    pub(super) network: usize,
}

impl Link {
    /// `None` for a link type without keys: its frames are found by time alone.
    pub(super) fn of(link: LinkType) -> Option<Self> {
        match link {
            LinkType::ETHERNET => Some(Self {
                ethertype: 12,
                network: 14,
            }),
            LinkType::LINUX_SLL => Some(Self {
                ethertype: 14,
                network: 16,
            }),
            LinkType::LINUX_SLL2 => Some(Self {
                ethertype: 0,
                network: 20,
            }),
            _ => None,
        }
    }

    /// Whether a tag lies right after the EtherType.
    pub(super) fn has_tags(self) -> bool {
        self.network == self.ethertype + 2
    }
}

/// Takes the keys of a packet.
pub(super) trait Keys {
    fn small(&mut self, kind: Kind, value: u16);
    fn v4(&mut self, address: u32);
    fn v6(&mut self, address: u128);
    /// A part of a field was captured: any key may be compared with it.
    fn unknown(&mut self);
}

#[inline]
fn half(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline]
fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

/// Passes the keys of a packet to `keys`. A field that was not captured has none: libpcap's programs reject such a packet.
#[inline]
pub(super) fn of(link: Link, data: &[u8], keys: &mut impl Keys) {
    let (mut at, mut network) = (link.ethertype, link.network);
    let Some(mut ethertype) = half(data, at) else {
        return;
    };
    keys.small(Kind::Type, ethertype);
    for _ in 0..MOST_TAGS {
        if !is_tag(ethertype) || !link.has_tags() {
            break;
        }
        let Some(tag) = half(data, at + 2) else {
            return;
        };
        keys.small(Kind::Vlan, tag & 0xfff);
        at += 4;
        network += 4;
        let Some(next) = half(data, at) else { return };
        ethertype = next;
        keys.small(Kind::Type, ethertype);
    }
    let Some(data) = data.get(network..) else {
        return;
    };
    match ethertype {
        IPV4 => v4(data, keys),
        IPV6 => v6(data, keys),
        ARP | RARP => [14, 24]
            .into_iter()
            .filter_map(|at| word(data, at))
            .for_each(|address| keys.v4(address)),
        _ => {}
    }
}

#[inline]
fn v4(data: &[u8], keys: &mut impl Keys) {
    let Some(&protocol) = data.get(9) else { return };
    keys.small(Kind::Protocol, protocol.into());
    [12, 16]
        .into_iter()
        .filter_map(|at| word(data, at))
        .for_each(|address| keys.v4(address));
    if has_ports(protocol) && half(data, 6).is_some_and(|fragment| fragment & 0x1fff == 0) {
        ports(data, usize::from(data[0] & 0xf) * 4, keys);
    }
}

#[inline]
fn v6(data: &[u8], keys: &mut impl Keys) {
    let Some(&protocol) = data.get(6) else { return };
    keys.small(Kind::Protocol, protocol.into());
    for at in [8, 24] {
        match data.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(address) => keys.v6(u128::from_be_bytes(*address)),
            // Programs compare the words of an address one by one.
            None => keys.unknown(),
        }
    }
    if has_ports(protocol) {
        ports(data, 40, keys);
    }
}

#[inline]
fn ports(data: &[u8], at: usize, keys: &mut impl Keys) {
    [at, at + 2]
        .into_iter()
        .filter_map(|at| half(data, at))
        .for_each(|port| keys.small(Kind::Port, port));
}
