//! Headers of one packet, and the fields in them.

use super::Place;
use crate::flow::{FlowKey, Headers, Parser, Tunnels};
use crate::{Frame, LinkType};
use core::cell::OnceCell;
use core::net::{IpAddr, Ipv4Addr};

/// Largest number of VLAN tags that are walked, as many as in front of a flow key.
const MOST_TAGS: usize = 32;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// A packet whose fields are read. Its headers are walked once, when the first field needs them.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Time, ns since 1970, if the source has one.
    pub time_ns: Option<i64>,
    /// Link type of the frame.
    pub link: LinkType,
    /// Name of the interface.
    pub interface: Option<&'a str>,
    /// `in` or `out`.
    pub direction: Option<&'static str>,
    /// Places of the source and of the destination.
    pub places: [Place<'a>; 2],
    /// Names of the source and of the destination.
    pub names: [Option<&'a str>; 2],
    /// The frame.
    pub frame: Frame<'a>,
    inner: Option<Tunnels>,
    ether: OnceCell<Ether<'a>>,
    headers: OnceCell<Option<Headers<'a>>>,
}

/// Fields of the link layer.
#[derive(Clone, Copy, Debug, Default)]
struct Ether<'a> {
    src: Option<[u8; 6]>,
    dst: Option<[u8; 6]>,
    /// Type after the tags.
    kind: Option<u16>,
    tags: [Option<u16>; 2],
    /// Bytes after the type.
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// A packet whose headers are not yet read. With `inner`, fields of IP and above belong to the packet in the innermost tunnel.
    pub fn new(link: LinkType, frame: Frame<'a>, inner: Option<Tunnels>) -> Self {
        Self {
            time_ns: None,
            link,
            interface: None,
            direction: None,
            places: [Place::default(); 2],
            names: [None; 2],
            frame,
            inner,
            ether: OnceCell::new(),
            headers: OnceCell::new(),
        }
    }

    /// Headers of the packet, if it is IP and they are captured.
    pub(super) fn headers(&self) -> Option<&Headers<'a>> {
        let read = || {
            let parser = Parser::inside(self.link, self.inner)?;
            parser.headers(self.frame.data).ok()
        };
        self.headers.get_or_init(read).as_ref()
    }

    /// Flow key of the packet, if it has one.
    pub fn key(&self) -> Option<&FlowKey> {
        self.headers().map(|headers| &headers.key)
    }

    fn ether(&self) -> &Ether<'a> {
        self.ether
            .get_or_init(|| Ether::of(self.link, self.frame.data).unwrap_or_default())
    }

    pub(super) fn src_mac(&self) -> Option<[u8; 6]> {
        self.ether().src
    }

    pub(super) fn dst_mac(&self) -> Option<[u8; 6]> {
        self.ether().dst
    }

    pub(super) fn ethertype(&self) -> Option<u16> {
        self.ether().kind
    }

    pub(super) fn tag(&self, i: usize) -> Option<u16> {
        self.ether().tags[i]
    }

    /// The bytes of a message of ARP (RFC 826) or RARP (RFC 903).
    fn arp(&self) -> Option<&'a [u8]> {
        let ether = self.ether();
        matches!(ether.kind, Some(0x0806 | 0x8035)).then_some(ether.payload)
    }

    pub(super) fn arp_operation(&self) -> Option<u16> {
        be16(self.arp()?, 6)
    }

    pub(super) fn arp_address(&self, at: usize) -> Option<IpAddr> {
        let arp = self.arp()?;
        // Protocol IPv4, addresses of six and of four bytes.
        if arp.get(2..6)? != [0x08, 0x00, 6, 4] {
            return None;
        }
        let bytes: [u8; 4] = *arp.get(at..)?.first_chunk()?;
        Some(Ipv4Addr::from(bytes).into())
    }

    fn family(&self) -> Option<u8> {
        self.headers().map(|headers| headers.key.family)
    }

    /// The byte of the IP header at `v4`, or at `v6` in IPv6.
    pub(super) fn ip_byte(&self, v4: usize, v6: usize) -> Option<u8> {
        let headers = self.headers()?;
        let at = if headers.key.family == 4 { v4 } else { v6 };
        headers.ip.get(at).copied()
    }

    /// A word of the header of IPv4.
    pub(super) fn v4_word(&self, at: usize) -> Option<u16> {
        let headers = self.headers()?;
        (headers.key.family == 4)
            .then(|| be16(headers.ip, at))
            .flatten()
    }

    pub(super) fn ip_length(&self) -> Option<u32> {
        let ip = self.headers()?.ip;
        match self.family()? {
            4 => be16(ip, 2).map(u32::from),
            _ => be16(ip, 4).map(|payload| 40 + u32::from(payload)),
        }
    }

    pub(super) fn traffic_class(&self) -> Option<u8> {
        let ip = self.headers()?.ip;
        match self.family()? {
            4 => ip.get(1).copied(),
            _ => be16(ip, 0).map(|word| (word >> 4) as u8),
        }
    }

    pub(super) fn flow_label(&self) -> Option<u32> {
        let ip = self.headers()?.ip;
        (self.family()? == 6)
            .then(|| be32(ip, 0))
            .flatten()
            .map(|word| word & 0xf_ffff)
    }

    /// Offset in bytes and "more fragments" of IPv4, or of the fragment header of IPv6, if there is one.
    pub(super) fn fragment(&self) -> Option<(u32, bool)> {
        let headers = self.headers()?;
        if headers.key.family == 4 {
            let word = be16(headers.ip, 6)?;
            return Some((u32::from(word & 0x1fff) * 8, word & 0x2000 != 0));
        }
        let word = be16(fragment_header(headers.ip)?, 2)?;
        Some((u32::from(word & 0xfff8), word & 1 != 0))
    }

    /// Bytes from the transport header on, if the protocol is one of `protocols`.
    fn transport(&self, protocols: &[u8]) -> Option<&'a [u8]> {
        let headers = self.headers()?;
        let has = !headers.transport.is_empty() && protocols.contains(&headers.key.proto);
        has.then_some(headers.transport)
    }

    /// Bytes that the headers claim for the packet from its transport header on.
    fn claimed(&self) -> Option<usize> {
        let headers = self.headers()?;
        // All parts are slices of the frame.
        let at = |part: &[u8]| part.as_ptr().addr() - self.frame.data.as_ptr().addr();
        let ip = at(headers.ip);
        let there = (self.frame.wire_len as usize).checked_sub(ip)?;
        let claimed = match (headers.key.family, self.ip_length()? as usize) {
            // A length of zero is left to the card, or is that of a jumbogram.
            (4, 0) | (6, 40) => there,
            (_, length) => length.min(there),
        };
        claimed.checked_sub(at(headers.transport) - ip)
    }

    pub(super) fn payload_length(&self) -> Option<u32> {
        let header = match self.headers()?.key.proto {
            TCP => usize::from(self.tcp_word(12)? >> 12) * 4,
            UDP => 8,
            _ => return None,
        };
        self.transport(&[TCP, UDP])?;
        let claimed = self.claimed()?;
        let claimed = match self.udp_length() {
            Some(length @ 1..) => claimed.min(usize::from(length)),
            _ => claimed,
        };
        u32::try_from(claimed.checked_sub(header)?).ok()
    }

    pub(super) fn tcp_word(&self, at: usize) -> Option<u16> {
        be16(self.transport(&[TCP])?, at)
    }

    pub(super) fn tcp_number(&self, at: usize) -> Option<u32> {
        be32(self.transport(&[TCP])?, at)
    }

    /// The twelve bits after the data offset.
    pub(super) fn tcp_flags(&self) -> Option<u16> {
        self.tcp_word(12).map(|word| word & 0xfff)
    }

    pub(super) fn udp_length(&self) -> Option<u16> {
        be16(self.transport(&[UDP])?, 4)
    }

    pub(super) fn icmp_byte(&self, at: usize) -> Option<u8> {
        let icmp = match self.family()? {
            4 => ICMP,
            _ => ICMP6,
        };
        self.transport(&[icmp])?.get(at).copied()
    }
}

impl<'a> Ether<'a> {
    /// Reads the header of an Ethernet or a Linux cooked frame.
    fn of(link: LinkType, data: &'a [u8]) -> Option<Self> {
        let mac = |at: usize| data.get(at..)?.first_chunk().copied();
        let mut found = Self::default();
        // Where the type stands, and what follows it.
        let (kind, mut at) = match link {
            LinkType::ETHERNET => {
                (found.dst, found.src) = (mac(0), mac(6));
                (12, 14)
            }
            // linux/if_packet.h: the length of the address is 6 for Ethernet.
            LinkType::LINUX_SLL => {
                found.src = mac(6).filter(|_| data[4..6] == [0, 6]);
                (14, 16)
            }
            LinkType::LINUX_SLL2 => {
                found.src = mac(12).filter(|_| data[11] == 6);
                (0, 20)
            }
            _ => return None,
        };
        let mut next = be16(data, kind);
        for i in 0..MOST_TAGS {
            let Some(0x8100 | 0x88a8 | 0x9100) = next else {
                break;
            };
            let tag = be16(data, at);
            if let Some(slot) = found.tags.get_mut(i) {
                *slot = tag;
            }
            next = be16(data, at + 2);
            at += 4;
        }
        // A smaller number is the length of an IEEE 802.3 frame.
        found.kind = next.filter(|&kind| kind >= 0x0600);
        found.payload = data.get(at..).unwrap_or_default();
        Some(found)
    }
}

/// The fragment header among the extension headers of an IPv6 packet (RFC 8200, section 4).
fn fragment_header(ip: &[u8]) -> Option<&[u8]> {
    /// Largest number of headers that are walked, as many as in front of a flow key.
    const MOST: usize = 16;
    let (mut kind, mut rest) = (*ip.get(6)?, ip.get(40..)?);
    for _ in 0..MOST {
        let length = usize::from(*rest.get(1)?);
        let header = match kind {
            44 => return (rest.len() >= 8).then_some(rest),
            0 | 43 | 60 => (length + 1) * 8,
            51 => (length + 2) * 4,
            _ => return None,
        };
        (kind, rest) = (rest[0], rest.get(header..)?);
    }
    None
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}
