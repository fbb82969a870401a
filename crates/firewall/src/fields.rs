//! Fields of a frame that rules can name.

use crate::classifier::is_among;
use crate::neighbors;
use weir_packet::flow::{Headers, NoKey, Parser, PlainHeaders};

/// Number that stands for a protocol or port that the captured bytes do not tell.
pub(crate) const ABSENT: u32 = 1 << 16;

/// Number that stands for the port of a protocol without ports.
pub(crate) const NO_PORT: u32 = ABSENT + 1;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Content of a frame, as far as it decides which lines of a rule list judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// An IP packet.
    Ip,
    /// A valid message of IPv6 neighbor discovery: router and neighbor solicitations and advertisements, and redirects, that no router
    /// forwarded, with a right checksum, lengths, options and addresses. **Source**: RFC 4861, sections 6.1, 7.1 and 8.1.
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
/// A field that the captured bytes do not tell is absent. In a fragment other than the first these
/// are the ports, the TCP flags, and after IPv6 extension headers the protocol; a cut header lacks
/// the same.
///
/// **Layout**: 44 bytes of numbers without gaps, so that it is written and copied in wide words.
/// The first 16 are the key of packets of IPv4 with ports, by which a tree finds the rules. An
/// absent field is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    /// Lowest bits of the addresses, source first; source port above the destination port, or the code of an ICMP message and above it whether there
    /// is one; protocol, and above it the content and which of
    /// the other fields there are: [`kind`].
    key: [u32; 4],
    /// The other bits of the addresses, lower ones first.
    high: [[u32; 3]; 2],
    vlan: u16,
    /// Flags of TCP, or the type of an ICMP message.
    flags: u8,
    /// Bits of [`extensions`](weir_packet::flow::extensions).
    extensions: u8,
}

/// Bits of the last number of [`Fields::key`] above the protocol.
mod kind {
    pub const IP: u32 = 0;
    pub const NEIGHBORS: u32 = 1 << 8;
    pub const NON_IP: u32 = 2 << 8;
    pub const MALFORMED: u32 = 3 << 8;
    /// Bits of the numbers above.
    pub const CONTENT: u32 = 3 << 8;
    pub const V6: u32 = 1 << 10;
    pub const NO_PROTO: u32 = 1 << 11;
    /// A protocol without ports.
    pub const NO_PORTS: u32 = 1 << 12;
    /// A packet of which no ports are captured.
    pub const ABSENT_PORTS: u32 = 1 << 13;
    /// Extension headers in front of the transport.
    pub const EXTENSIONS: u32 = 1 << 14;
    /// Bits up to here: a packet of IPv4 that has protocol and ports, and no extension header, has none of them.
    pub const NO_KEY: u32 = 0xff00;
    pub const FLAGS: u32 = 1 << 16;
    /// TCP or an absent protocol, without flags.
    pub const NO_FLAGS: u32 = 1 << 17;
    pub const LATER_FRAGMENT: u32 = 1 << 18;
    pub const VLAN: u32 = 1 << 19;
    /// An ICMP message, whose type is in the place of the flags.
    pub const TYPE: u32 = 1 << 20;
}

/// Bit above the code of an ICMP message, in the place of the ports.
const HAS_CODE: u32 = 1 << 8;

/// The bit if it is so, without a branch.
fn if_so(is_so: bool, bit: u32) -> u32 {
    u32::from(is_so) * bit
}

/// Ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Source and destination port.
    Known(u16, u16),
    /// The captured bytes do not tell them.
    Absent,
    /// The protocol has none.
    None,
}

/// Fields of an IP packet, of which [`Fields`] are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpFields {
    pub(crate) is_v6: bool,
    pub(crate) src: u128,
    pub(crate) dst: u128,
    pub(crate) proto: Option<u8>,
    pub(crate) ports: Ports,
    pub(crate) flags: TcpFlags,
}

impl Fields {
    /// Reads the fields of a frame from its captured bytes.
    ///
    /// Of a tunnel these are the fields of the packet around, or of the innermost one if `parser` looks inside.
    /// **Cost**: a few loads for a plain TCP or UDP packet, a walk over the headers for all others; no allocation.
    #[inline]
    pub fn of(parser: &Parser, data: &[u8]) -> Self {
        let mut fields = Self::new([0; 2], 0, 0, 0);
        fields.read(parser, data);
        fields
    }

    /// Writes over these fields what [`Self::of`] returns. A copy made right after the call waits until the writes have arrived.
    #[inline]
    pub fn read(&mut self, parser: &Parser, data: &[u8]) {
        match parser.plain_v4(data) {
            Some(PlainHeaders {
                src,
                dst,
                ports,
                proto,
                flags,
            }) => {
                let kind = kind::IP | if_so(proto == TCP, kind::FLAGS) | u32::from(proto);
                *self = Self {
                    key: [src, dst, ports, kind],
                    high: [[0; 3]; 2],
                    vlan: 0,
                    flags,
                    extensions: 0,
                };
            }
            None => self.read_others(parser, data),
        }
    }

    /// The same of a frame that is none of plain IPv4.
    #[inline(never)]
    fn read_others(&mut self, parser: &Parser, data: &[u8]) {
        *self = match parser.plain_v6(data) {
            Some(PlainHeaders {
                src,
                dst,
                ports,
                proto,
                flags,
            }) => {
                let kind =
                    kind::IP | kind::V6 | if_so(proto == TCP, kind::FLAGS) | u32::from(proto);
                Self::new([src, dst], ports, kind, flags)
            }
            None => Self::walked(parser, data),
        };
    }

    /// The same, by a walk over all headers.
    #[inline(never)]
    fn walked(parser: &Parser, data: &[u8]) -> Self {
        let fields = match parser.headers(data) {
            Ok(headers) => Self::of_headers(&headers),
            Err(NoKey::NotIp) => Self::without_ip(Content::NonIp),
            Err(NoKey::Truncated | NoKey::Malformed) => Self::without_ip(Content::Malformed),
        };
        match parser.vlan(data) {
            Some(vlan) => Self {
                vlan,
                ..fields.with_kind(fields.kind() | kind::VLAN)
            },
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
            ports: Ports::Absent,
            flags: TcpFlags::Absent,
        };
        Self::of_ip(nothing).with_content(content)
    }

    /// Fields of an IP packet.
    pub(crate) fn of_ip(
        IpFields {
            is_v6,
            src,
            dst,
            proto,
            ports,
            flags,
        }: IpFields,
    ) -> Self {
        let (flags, of_flags) = match flags {
            TcpFlags::Known(flags) => (flags, kind::FLAGS),
            TcpFlags::Absent => (0, kind::NO_FLAGS),
            TcpFlags::NotTcp => (0, 0),
        };
        let (ports, of_ports) = match ports {
            Ports::Known(src, dst) => (u32::from(src) << 16 | u32::from(dst), 0),
            Ports::Absent => (0, kind::ABSENT_PORTS),
            Ports::None => (0, kind::NO_PORTS),
        };
        let of_proto = proto.map_or(kind::NO_PROTO, u32::from);
        let kind = kind::IP | of_flags | of_ports | of_proto | if_so(is_v6, kind::V6);
        Self::new([src, dst], ports, kind, flags)
    }

    #[inline(always)]
    fn new(addresses: [u128; 2], ports: u32, kind: u32, flags: u8) -> Self {
        let high = addresses.map(|bits| {
            [
                (bits >> 32) as u32,
                (bits >> 64) as u32,
                (bits >> 96) as u32,
            ]
        });
        let [src, dst] = addresses.map(|bits| bits as u32);
        Self {
            key: [src, dst, ports, kind],
            high,
            vlan: 0,
            flags,
            extensions: 0,
        }
    }

    /// The content, and which of the other fields there are.
    #[inline(always)]
    fn kind(&self) -> u32 {
        self.key[3]
    }

    fn with_kind(self, kind: u32) -> Self {
        let [src, dst, ports, _] = self.key;
        Self {
            key: [src, dst, ports, kind],
            ..self
        }
    }

    pub(crate) fn with_content(self, content: Content) -> Self {
        let number = match content {
            Content::Ip => kind::IP,
            Content::Neighbors => kind::NEIGHBORS,
            Content::NonIp => kind::NON_IP,
            Content::Malformed => kind::MALFORMED,
        };
        self.with_kind(self.kind() & !kind::CONTENT | number)
    }

    /// Fields of an IP packet of which only addresses and protocol are known.
    pub fn of_addresses(is_v6: bool, src: u128, dst: u128, proto: Option<u8>) -> Self {
        Self::of_ip(IpFields {
            is_v6,
            src,
            dst,
            proto,
            ports: Ports::Absent,
            flags: TcpFlags::Absent,
        })
    }

    fn has(&self, bits: u32) -> bool {
        self.kind() & bits != 0
    }

    /// Returns the content of the frame. Without [IP](Content::Ip) or [neighbor discovery](Content::Neighbors) only the VLAN has a meaning.
    #[inline]
    pub fn content(&self) -> Content {
        match self.kind() & kind::CONTENT {
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
        self.address(0)
    }

    /// Returns the destination address as a number.
    #[inline]
    pub fn dst(&self) -> u128 {
        self.address(1)
    }

    #[inline]
    fn address(&self, end: usize) -> u128 {
        let [a, b, c] = self.high[end].map(u128::from);
        c << 96 | b << 64 | a << 32 | u128::from(self.key[end])
    }

    /// Returns source and destination address of an IPv4 packet.
    #[inline]
    pub fn v4(&self) -> [u32; 2] {
        [self.key[0], self.key[1]]
    }

    /// Returns the IP protocol number of the transport after the extension headers; `None` if it is
    /// absent.
    #[inline]
    pub fn proto(&self) -> Option<u8> {
        (!self.has(kind::NO_PROTO)).then_some(self.kind() as u8)
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

    /// Returns the type of an ICMP or ICMPv6 message; `None` if it is absent, or the packet is not
    /// such a message.
    #[inline]
    pub fn message_type(&self) -> Option<u8> {
        self.has(kind::TYPE).then_some(self.flags)
    }

    /// Whether type and code of an ICMP or ICMPv6 message are in one of these ranges of the type
    /// above the code; `None` if the captured bytes do not tell it, or the packet is not such a
    /// message.
    pub fn message_is_among(&self, ranges: &[(u16, u16)]) -> Option<bool> {
        let kind = u16::from(self.message_type()?) << 8;
        let [_, _, code, _] = self.key;
        match code & HAS_CODE {
            0 if ranges
                .iter()
                .any(|(first, last)| *first <= kind && kind | 255 <= *last) =>
            {
                Some(true)
            }
            0 if ranges
                .iter()
                .any(|(first, last)| *first <= kind | 255 && kind <= *last) =>
            {
                None
            }
            0 => Some(false),
            _ => Some(is_among(kind | code as u16 & 255, ranges)),
        }
    }

    /// Whether an extension header of one of these kinds, bits of
    /// [`extensions`](weir_packet::flow::extensions), is in front of the transport; `None` if the
    /// captured bytes tell of none, and not what else there is. IPv4 has no such headers but `ah`,
    /// which its own header announces.
    #[inline]
    pub fn has_extension(&self, kinds: u8) -> Option<bool> {
        match self.extensions & kinds != 0 {
            true => Some(true),
            false if self.is_v6() => self.proto().map(|_| false),
            false => Some(false),
        }
    }

    /// Returns the identifier of the outermost VLAN tag.
    pub fn vlan(&self) -> Option<u16> {
        self.has(kind::VLAN).then_some(self.vlan)
    }

    /// Returns addresses, ports (source above destination) and protocol of a packet that [has a key](Self::has_key). Of all other frames bits 8 to 15
    /// of the last number are not 0. Its upper half may have any value.
    #[inline(always)]
    pub(crate) fn key(&self) -> &[u32; 4] {
        &self.key
    }

    /// Whether this is an IPv4 packet that has protocol and ports, and no extension header.
    #[inline(always)]
    pub(crate) fn has_key(&self) -> bool {
        !self.has(kind::NO_KEY)
    }

    fn of_headers(headers: &Headers<'_>) -> Self {
        let key = &headers.key;
        let is_v6 = key.family == 6;
        let address = |bytes: [u8; 16]| {
            let bits = u128::from_be_bytes(bytes);
            if is_v6 { bits } else { bits >> 96 }
        };
        // The key names an extension header if what is after it is not there.
        let proto = if is_v6 && is_extension(key.proto) || key.proto == AUTHENTICATION {
            None
        } else {
            Some(key.proto)
        };
        let is_later_fragment = key.flags & weir_packet::flow::FlowKey::LATER_FRAGMENT != 0;
        let ports = match (proto, key.ports()) {
            (_, Some((src, dst))) => Ports::Known(src, dst),
            (Some(proto), None) if !has_ports(proto) => Ports::None,
            _ => Ports::Absent,
        };
        let flags = match (proto, headers.transport.get(13)) {
            (Some(TCP), Some(&flags)) => TcpFlags::Known(flags),
            (Some(TCP) | None, _) => TcpFlags::Absent,
            _ => TcpFlags::NotTcp,
        };
        let (src, dst) = (address(key.src), address(key.dst));
        let fields = Self::of_ip(IpFields {
            is_v6,
            src,
            dst,
            proto,
            ports,
            flags,
        });
        let is_discovery = proto == Some(ICMP6) && neighbors::is_valid(headers);
        let fields = if is_discovery {
            fields.with_content(Content::Neighbors)
        } else {
            fields
        };
        let message_type = headers
            .transport
            .first()
            .copied()
            .filter(|_| matches!(proto, Some(ICMP | ICMP6)));
        let fields = match message_type {
            Some(number) => {
                let code = headers
                    .transport
                    .get(1)
                    .map_or(0, |code| HAS_CODE | u32::from(*code));
                let [src, dst, _, kind] = fields.key;
                Self {
                    key: [src, dst, code, kind | kind::TYPE],
                    flags: number,
                    ..fields
                }
            }
            None => fields,
        };
        let extensions = headers.extensions;
        let more = if_so(is_later_fragment, kind::LATER_FRAGMENT)
            | if_so(extensions != 0, kind::EXTENSIONS);
        Self {
            extensions,
            ..fields.with_kind(fields.kind() | more)
        }
    }

    /// The protocol as a number up to [`ABSENT`].
    pub(crate) fn proto_number(&self) -> u32 {
        self.proto().map_or(ABSENT, u32::from)
    }

    /// Whether the packet is a UDP datagram to this port, or a fragment with the head of one.
    #[inline]
    pub fn is_udp_to(&self, port: u16) -> bool {
        self.proto() == Some(UDP) && self.ports().is_some_and(|(_, dst)| dst == port)
    }

    /// Returns the ports, source first; `None` if they are absent or the protocol has none.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        let known = ((self.key[2] >> 16) as u16, self.key[2] as u16);
        (!self.has(kind::NO_PORTS | kind::ABSENT_PORTS)).then_some(known)
    }

    /// Whether the captured bytes do not tell the ports of a protocol that has some.
    #[inline]
    pub(crate) fn lacks_ports(&self) -> bool {
        self.has(kind::ABSENT_PORTS)
    }

    /// The ports as numbers up to [`NO_PORT`], source first.
    #[inline]
    pub(crate) fn port_numbers(&self) -> [u32; 2] {
        let other = if self.lacks_ports() { ABSENT } else { NO_PORT };
        self.ports()
            .map_or([other; 2], |(src, dst)| [src, dst].map(u32::from))
    }
}

const AUTHENTICATION: u8 = 51;

/// Whether the number belongs to an IPv6 extension header that the parser skips: RFC 8200, section
/// 4.
fn is_extension(proto: u8) -> bool {
    matches!(proto, 0 | 43 | 44 | AUTHENTICATION | 60)
}

/// Whether packets of this protocol have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
pub(crate) fn has_ports(proto: u8) -> bool {
    PORT_PROTOCOLS.contains(&proto)
}

/// Protocols whose headers begin with a source and a destination port.
pub(crate) const PORT_PROTOCOLS: [u8; 5] = [6, 17, 33, 132, 136];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::LinkType;
    use weir_testkit::Random;

    /// The walk is the oracle of the fast path.
    #[test]
    fn plain_packets_have_the_fields_that_the_walk_finds() {
        let mut random = Random(9);
        let parsers = [
            (LinkType::ETHERNET, false),
            (LinkType::ETHERNET, true),
            (LinkType::RAW, false),
        ];
        let parsers = parsers.map(|(link, inner)| Parser::new(link, inner).unwrap());
        let mut plain = 0;
        for turn in 0..200_000 {
            let mut frame = random.bytes(12);
            if turn % 2 == 0 {
                frame.extend([
                    8,
                    0,
                    0x45,
                    0,
                    0,
                    60,
                    0,
                    0,
                    if turn % 8 == 0 { 0x20 } else { 0x40 },
                    0,
                    64,
                ]);
                frame.push(if turn % 3 == 0 { 17 } else { 6 });
            } else {
                frame.extend([
                    0x86,
                    0xdd,
                    0x60,
                    0,
                    0,
                    0,
                    0,
                    40,
                    if turn % 3 == 0 { 17 } else { 6 },
                    64,
                ]);
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
                assert_eq!(
                    Fields::of(parser, &frame),
                    Fields::walked(parser, &frame),
                    "{frame:?}"
                );
            }
            let is_plain =
                parsers[0].plain_v4(&frame).is_some() || parsers[0].plain_v6(&frame).is_some();
            plain += u32::from(is_plain);
        }
        assert!((40_000..190_000).contains(&plain), "{plain}");
    }
}
