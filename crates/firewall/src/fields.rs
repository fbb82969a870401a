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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    /// Content of the frame. Without [IP](Content::Ip) or [neighbor discovery](Content::Neighbors) only `vlan` has a meaning.
    pub content: Content,
    /// Whether the addresses are of IPv6.
    pub is_v6: bool,
    /// Source address, as a number.
    pub src: u128,
    /// Destination address, as a number.
    pub dst: u128,
    /// IP protocol number of the transport behind the extension headers; `None` if it is absent.
    pub proto: Option<u8>,
    /// Source port, [`ABSENT`] or [`NO_PORT`].
    pub(crate) sport: u32,
    /// Destination port, [`ABSENT`] or [`NO_PORT`].
    pub(crate) dport: u32,
    /// Flags of the TCP header.
    pub flags: TcpFlags,
    /// Whether the packet is a fragment other than the first.
    pub is_later_fragment: bool,
    /// Identifier of the outermost VLAN tag.
    pub vlan: Option<u16>,
}

impl Fields {
    /// Reads the fields of a frame from its captured bytes.
    ///
    /// Of a tunnel these are the fields of the packet around, or of the innermost one if `parser` looks inside.
    /// **Cost**: a few loads for a plain TCP or UDP packet, a walk over the headers for all others; no allocation.
    #[inline]
    pub fn of(parser: &Parser, data: &[u8]) -> Self {
        match parser.plain_headers(data) {
            Some(PlainHeaders { is_v6, src, dst, proto, sport, dport, flags }) => Self {
                content: Content::Ip,
                is_v6,
                src,
                dst,
                proto: Some(proto),
                sport: u32::from(sport),
                dport: u32::from(dport),
                flags: if proto == TCP { TcpFlags::Known(flags) } else { TcpFlags::NotTcp },
                is_later_fragment: false,
                vlan: None,
            },
            None => Self::walked(parser, data),
        }
    }

    /// The same, by a walk over all headers.
    #[inline(never)]
    fn walked(parser: &Parser, data: &[u8]) -> Self {
        let vlan = parser.vlan(data);
        match parser.headers(data) {
            Ok(headers) if contradicts_itself(&headers) => Self { vlan, ..Self::without_ip(Content::Malformed) },
            Ok(headers) => Self { vlan, ..Self::of_headers(&headers) },
            Err(NoKey::NotIp) => Self { vlan, ..Self::without_ip(Content::NonIp) },
            Err(NoKey::Truncated | NoKey::Malformed) => Self { vlan, ..Self::without_ip(Content::Malformed) },
        }
    }

    /// Fields of a frame without IP headers.
    pub fn without_ip(content: Content) -> Self {
        Self {
            content,
            is_v6: false,
            src: 0,
            dst: 0,
            proto: None,
            sport: ABSENT,
            dport: ABSENT,
            flags: TcpFlags::Absent,
            is_later_fragment: false,
            vlan: None,
        }
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
        let is_discovery = proto == Some(ICMP6) && is_neighbor_discovery(headers);
        Self {
            content: if is_discovery { Content::Neighbors } else { Content::Ip },
            is_v6,
            src: address(key.src),
            dst: address(key.dst),
            proto,
            sport,
            dport,
            flags,
            is_later_fragment,
            vlan: None,
        }
    }

    /// The protocol as a number up to [`ABSENT`].
    pub(crate) fn proto_number(&self) -> u32 {
        self.proto.map_or(ABSENT, u32::from)
    }

    /// Whether the packet is a UDP datagram to this port, or a fragment with the head of one.
    #[inline]
    pub fn is_udp_to(&self, port: u16) -> bool {
        self.proto == Some(UDP) && self.dport == u32::from(port)
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
