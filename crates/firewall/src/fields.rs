//! Fields of a frame that rules can name.

use weir_packet::flow::{Headers, NoKey, Parser, PlainHeaders};

/// Number that stands for a protocol or port that the captured bytes do not tell.
pub(crate) const ABSENT: u32 = 1 << 16;

/// Number that stands for the port of a protocol without ports.
pub(crate) const NO_PORT: u32 = ABSENT + 1;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// Content of a frame, as far as it decides which lines of a rule list judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// An IP packet.
    Ip,
    /// A valid message of IPv6 neighbor discovery: router and neighbor solicitations and advertisements, and redirects, with a hop
    /// limit of 255, so that no router forwarded it. **Source**: RFC 4861, sections 6.1 and 7.1.
    Neighbors,
    /// No IP: ARP, spanning tree and others.
    NonIp,
    /// A frame that announces IP, and is cut before the end of the addresses or contradicts itself; or a frame of a link type of which
    /// weir reads no headers.
    Malformed,
}

/// Flags of a TCP header, as far as there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcpFlags {
    /// The flags: FIN is the lowest bit, then SYN, RST, PSH, ACK, URG, ECE, CWR. **Source**: RFC 9293, section 3.1.
    Known(u8),
    /// The captured bytes do not tell them: a later fragment, or a cut header.
    Absent,
    /// The packet is none of TCP.
    NotTcp,
}

/// Fields of a frame that rules can name.
///
/// A field that the captured bytes do not tell is absent. In a fragment other than the first these are the ports, the TCP flags, and
/// behind IPv6 extension headers the protocol; a cut header lacks the same.
///
/// **Layout**: 48 bytes of numbers without gaps, so that it is written and copied in wide words. What is absent is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    src: u128,
    dst: u128,
    /// Source port, [`ABSENT`] or [`NO_PORT`].
    pub(crate) sport: u32,
    /// Destination port, [`ABSENT`] or [`NO_PORT`].
    pub(crate) dport: u32,
    vlan: u16,
    proto: u8,
    flags: u8,
    /// Number of the content, and which of the other fields there are: [`kind`].
    kind: u32,
}

/// Bits of [`Fields::kind`].
mod kind {
    pub const IP: u32 = 0;
    pub const NEIGHBORS: u32 = 1;
    pub const NON_IP: u32 = 2;
    pub const MALFORMED: u32 = 3;
    /// Bits of the numbers above.
    pub const CONTENT: u32 = 3;
    pub const V6: u32 = 1 << 2;
    pub const PROTO: u32 = 1 << 3;
    pub const FLAGS: u32 = 1 << 4;
    /// TCP or an absent protocol, without flags.
    pub const NO_FLAGS: u32 = 1 << 5;
    pub const LATER_FRAGMENT: u32 = 1 << 6;
    pub const VLAN: u32 = 1 << 7;
    pub const PORTS: u32 = 1 << 8;
}

/// The bit if it is so, without a branch.
fn if_so(is_so: bool, bit: u32) -> u32 {
    u32::from(is_so) * bit
}

/// Fields of an IP packet, of which [`Fields`] are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpFields {
    pub(crate) is_v6: bool,
    pub(crate) src: u128,
    pub(crate) dst: u128,
    pub(crate) proto: Option<u8>,
    /// Ports, [`ABSENT`] or [`NO_PORT`].
    pub(crate) sport: u32,
    pub(crate) dport: u32,
    pub(crate) flags: TcpFlags,
}

impl Fields {
    /// Reads the fields of a frame from its captured bytes.
    ///
    /// Of a tunnel these are the fields of the packet around, or of the innermost one if `parser` looks inside.
    /// **Cost**: a few loads for a plain TCP or UDP packet, a walk over the headers for all others; no allocation.
    #[inline]
    pub fn of(parser: &Parser, data: &[u8]) -> Self {
        match parser.plain_headers(data) {
            Some(PlainHeaders { is_v6, src, dst, proto, sport, dport, flags }) => {
                let kind =
                    kind::IP | kind::PROTO | kind::PORTS | if_so(is_v6, kind::V6) | if_so(proto == TCP, kind::FLAGS);
                Self { src, dst, sport: u32::from(sport), dport: u32::from(dport), vlan: 0, proto, flags, kind }
            }
            None => Self::walked(parser, data),
        }
    }

    /// The same, by a walk over all headers.
    #[inline(never)]
    fn walked(parser: &Parser, data: &[u8]) -> Self {
        let fields = match parser.headers(data) {
            Ok(headers) if contradicts_itself(&headers) => Self::without_ip(Content::Malformed),
            Ok(headers) => Self::of_headers(&headers),
            Err(NoKey::NotIp) => Self::without_ip(Content::NonIp),
            Err(NoKey::Truncated | NoKey::Malformed) => Self::without_ip(Content::Malformed),
        };
        match parser.vlan(data) {
            Some(vlan) => Self { vlan, kind: fields.kind | kind::VLAN, ..fields },
            None => fields,
        }
    }

    /// Fields of a frame without IP headers.
    pub fn without_ip(content: Content) -> Self {
        let nothing = IpFields {
            is_v6: false,
            src: 0,
            dst: 0,
            proto: None,
            sport: ABSENT,
            dport: ABSENT,
            flags: TcpFlags::Absent,
        };
        Self::of_ip(nothing).with_content(content)
    }

    /// Fields of an IP packet.
    pub(crate) fn of_ip(IpFields { is_v6, src, dst, proto, sport, dport, flags }: IpFields) -> Self {
        let (flags, of_flags) = match flags {
            TcpFlags::Known(flags) => (flags, kind::FLAGS),
            TcpFlags::Absent => (0, kind::NO_FLAGS),
            TcpFlags::NotTcp => (0, 0),
        };
        let has_ports = (sport | dport) < ABSENT;
        let kind = kind::IP
            | of_flags
            | if_so(is_v6, kind::V6)
            | if_so(proto.is_some(), kind::PROTO)
            | if_so(has_ports, kind::PORTS);
        Self { src, dst, sport, dport, vlan: 0, proto: proto.unwrap_or(0), flags, kind }
    }

    pub(crate) fn with_content(self, content: Content) -> Self {
        let number = match content {
            Content::Ip => kind::IP,
            Content::Neighbors => kind::NEIGHBORS,
            Content::NonIp => kind::NON_IP,
            Content::Malformed => kind::MALFORMED,
        };
        Self { kind: (self.kind & !kind::CONTENT) | number, ..self }
    }

    /// Fields of an IP packet of which only addresses and protocol are known.
    pub fn of_addresses(is_v6: bool, src: u128, dst: u128, proto: Option<u8>) -> Self {
        let (sport, dport) = (ABSENT, ABSENT);
        Self::of_ip(IpFields { is_v6, src, dst, proto, sport, dport, flags: TcpFlags::Absent })
    }

    fn has(&self, bits: u32) -> bool {
        self.kind & bits != 0
    }

    /// Returns the content of the frame. Without [IP](Content::Ip) or [neighbor discovery](Content::Neighbors) only the VLAN has a meaning.
    #[inline]
    pub fn content(&self) -> Content {
        match self.kind & kind::CONTENT {
            kind::IP => Content::Ip,
            kind::NEIGHBORS => Content::Neighbors,
            kind::NON_IP => Content::NonIp,
            _ => Content::Malformed,
        }
    }

    /// Whether the addresses are of IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        self.has(kind::V6)
    }

    /// Returns the source address as a number.
    #[inline]
    pub fn src(&self) -> u128 {
        self.src
    }

    /// Returns the destination address as a number.
    #[inline]
    pub fn dst(&self) -> u128 {
        self.dst
    }

    /// Returns the IP protocol number of the transport behind the extension headers; `None` if it is absent.
    #[inline]
    pub fn proto(&self) -> Option<u8> {
        self.has(kind::PROTO).then_some(self.proto)
    }

    /// Returns the flags of the TCP header.
    pub fn flags(&self) -> TcpFlags {
        match (self.has(kind::FLAGS), self.has(kind::NO_FLAGS)) {
            (true, _) => TcpFlags::Known(self.flags),
            (_, true) => TcpFlags::Absent,
            _ => TcpFlags::NotTcp,
        }
    }

    /// Whether the packet is a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.has(kind::LATER_FRAGMENT)
    }

    /// Returns the identifier of the outermost VLAN tag.
    pub fn vlan(&self) -> Option<u16> {
        self.has(kind::VLAN).then_some(self.vlan)
    }

    /// Returns addresses, ports and protocol of an IPv4 packet that has all of them.
    #[inline]
    pub(crate) fn of_v4(&self) -> Option<[u32; 4]> {
        const ALL: u32 = kind::CONTENT | kind::V6 | kind::PROTO | kind::PORTS;
        let is_whole = self.kind & ALL == (kind::IP | kind::PROTO | kind::PORTS);
        let numbers = [self.src as u32, self.dst as u32, self.sport << 16 | self.dport, u32::from(self.proto)];
        is_whole.then_some(numbers)
    }

    fn of_headers(headers: &Headers<'_>) -> Self {
        let key = &headers.key;
        let is_v6 = key.family == 6;
        let address = |bytes: [u8; 16]| {
            let bits = u128::from_be_bytes(bytes);
            if is_v6 { bits } else { bits >> 96 }
        };
        // The key names an extension header if what stands behind it is not there.
        let proto =
            if is_v6 && is_extension(key.proto) || key.proto == AUTHENTICATION { None } else { Some(key.proto) };
        let is_later_fragment = key.flags & weir_packet::flow::FlowKey::LATER_FRAGMENT != 0;
        let (sport, dport) = match (proto, key.ports()) {
            (_, Some((sport, dport))) => (u32::from(sport), u32::from(dport)),
            (Some(proto), None) if !has_ports(proto) => (NO_PORT, NO_PORT),
            _ => (ABSENT, ABSENT),
        };
        let flags = match (proto, headers.transport.get(13)) {
            (Some(TCP), Some(&flags)) => TcpFlags::Known(flags),
            (Some(TCP) | None, _) => TcpFlags::Absent,
            _ => TcpFlags::NotTcp,
        };
        let (src, dst) = (address(key.src), address(key.dst));
        let fields = Self::of_ip(IpFields { is_v6, src, dst, proto, sport, dport, flags });
        let is_discovery = proto == Some(ICMP6) && is_neighbor_discovery(headers);
        let fields = if is_discovery { fields.with_content(Content::Neighbors) } else { fields };
        Self { kind: fields.kind | if_so(is_later_fragment, kind::LATER_FRAGMENT), ..fields }
    }

    /// The protocol as a number up to [`ABSENT`].
    pub(crate) fn proto_number(&self) -> u32 {
        self.proto().map_or(ABSENT, u32::from)
    }

    /// Whether the packet is a UDP datagram to this port, or a fragment with the head of one.
    #[inline]
    pub fn is_udp_to(&self, port: u16) -> bool {
        self.proto() == Some(UDP) && self.dport == u32::from(port)
    }

    /// Returns the ports, source first; `None` if they are absent or the protocol has none.
    pub fn ports(&self) -> Option<(u16, u16)> {
        Some((u16::try_from(self.sport).ok()?, u16::try_from(self.dport).ok()?))
    }
}

/// Whether the total length of an IPv4 packet is less than its header. A total length of 0 is that of a packet which its sender left to be
/// cut by the interface.
fn contradicts_itself(headers: &Headers<'_>) -> bool {
    let [head, _, high, low, ..] = headers.ip else { return false };
    let total = u16::from_be_bytes([*high, *low]);
    head >> 4 == 4 && total != 0 && total < u16::from(head & 0xf) * 4
}

const AUTHENTICATION: u8 = 51;

/// Whether the number is that of an IPv6 extension header which the parser passes over: RFC 8200, section 4.
fn is_extension(proto: u8) -> bool {
    matches!(proto, 0 | 43 | 44 | AUTHENTICATION | 60)
}

/// Whether packets of this protocol have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
pub(crate) fn has_ports(proto: u8) -> bool {
    PORT_PROTOCOLS.contains(&proto)
}

/// Protocols whose headers begin with a source and a destination port.
pub(crate) const PORT_PROTOCOLS: [u8; 5] = [6, 17, 33, 132, 136];

/// RFC 4861: message types 133 to 137, code 0, in a packet that no router forwarded, right behind the IPv6 header.
fn is_neighbor_discovery(headers: &Headers<'_>) -> bool {
    let is_valid = matches!(headers.transport, [133..=137, 0, ..]);
    is_valid && headers.ip.get(6) == Some(&ICMP6) && headers.ip.get(7) == Some(&255)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::LinkType;
    use weir_testkit::Random;

    /// The walk is the oracle of the fast path.
    #[test]
    fn plain_packets_have_the_fields_that_the_walk_finds() {
        let mut random = Random(9);
        let parsers = [(LinkType::ETHERNET, false), (LinkType::ETHERNET, true), (LinkType::RAW, false)];
        let parsers = parsers.map(|(link, inner)| Parser::new(link, inner).unwrap());
        let mut plain = 0;
        for turn in 0..200_000 {
            let mut frame = random.bytes(12);
            if turn % 2 == 0 {
                frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, if turn % 8 == 0 { 0x20 } else { 0x40 }, 0, 64]);
                frame.push(if turn % 3 == 0 { 17 } else { 6 });
            } else {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, if turn % 3 == 0 { 17 } else { 6 }, 64]);
            }
            frame.extend(random.bytes(60));
            // Damage in the headers, and a cut.
            for _ in 0..turn / 2 % 3 {
                let at = 12 + random.below(14);
                frame[at] = [random.next() as u8, 0, 4, 20, 24, 33, 34][random.below(7)];
            }
            if turn % 5 == 0 {
                frame.truncate(random.below(frame.len()));
            }
            for parser in &parsers {
                assert_eq!(Fields::of(parser, &frame), Fields::walked(parser, &frame), "{frame:?}");
            }
            plain += u32::from(parsers[0].plain_headers(&frame).is_some());
        }
        assert!((40_000..190_000).contains(&plain), "{plain}");
    }
}
