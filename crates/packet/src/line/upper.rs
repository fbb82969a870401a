//! Common parts of IPv4 and IPv6: the two ends of a packet, checksums, and the protocols above.

use super::text::{Line, Printed, array, be16, be32, put};
use super::{ether, icmp, icmp6, igmp, ip, ip6, routing, sctp, tcp, tunnel, udp};

/// An IPv4 or IPv6 address.
#[derive(Clone, Copy)]
pub(super) enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl Address {
    /// The address in 16 bytes. An IPv4 address becomes a multicast address of IPv6 that nobody uses.
    pub fn bytes(self) -> [u8; 16] {
        match self {
            Self::V6(bytes) => bytes,
            Self::V4([a, b, c, d]) => [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d],
        }
    }
}

/// Source and destination of a packet.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub src: Address,
    pub dst: Address,
}

/// Facts of the network layer that upper layers need.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub ends: Ends,
    /// Protocol number in the IP header, before any extension header.
    pub first_next: u8,
    /// Whether more fragments follow, so that the packet is not whole.
    pub is_fragment: bool,
}

impl Ends {
    /// Appends `10.0.0.1 > 10.0.0.2: `.
    pub fn write(&self, line: &mut Line<'_>) {
        self.write_without_space(line);
        line.text(" ");
    }

    /// Appends `10.0.0.1 > 10.0.0.2:`.
    pub fn write_without_space(&self, line: &mut Line<'_>) {
        address(line, self.src);
        line.text(" > ");
        address(line, self.dst);
        line.text(":");
    }

    pub fn is_v6(&self) -> bool {
        matches!(self.dst, Address::V6(_))
    }

    /// Checksum over `bytes`, of which `length` bytes exist, and the pseudo-header of `protocol`; 0 if the sum of the bytes is right.
    pub fn checksum(&self, protocol: u8, bytes: &[u8], length: usize) -> u16 {
        let (src, dst) = (self.src.bytes(), self.dst.bytes());
        let from = if self.is_v6() { 0 } else { 12 };
        let length = (length as u32).to_be_bytes();
        checksum(&[&src[from..], &dst[from..], &length, &[0, protocol], bytes])
    }
}

impl Layer {
    /// Appends `10.0.0.1.53 > 10.0.0.2.40000: `. After an extension header, the addresses are printed already.
    pub fn write_with_ports(&self, line: &mut Line<'_>, protocol: u8, src: u16, dst: u16) {
        let own = self.first_next == protocol;
        if own {
            address(line, self.ends.src);
            line.text(".");
        }
        line.dec(u32::from(src));
        line.text(" > ");
        if own {
            address(line, self.ends.dst);
            line.text(".");
        }
        line.dec(u32::from(dst));
        line.text(": ");
    }

    /// Appends the addresses where no port was captured.
    pub fn write_without_ports(&self, line: &mut Line<'_>, protocol: u8) {
        if self.first_next == protocol {
            self.ends.write(line);
        }
    }
}

/// Appends an address.
fn address(line: &mut Line<'_>, address: Address) {
    match address {
        Address::V4(bytes) => line.ipv4(bytes),
        Address::V6(bytes) => line.ipv6(bytes),
    }
}

/// Whether the protocol's own printer prints the addresses, with ports.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132)
}

/// The complement of the sum of all bytes, as 16-bit words in one's complement (RFC 1071): 0 if the bytes hold their checksum. Each
/// part but the last has an even length.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let (words, rest) = part.as_chunks::<2>();
        sum += words
            .iter()
            .map(|word| u64::from(u16::from_be_bytes(*word)))
            .sum::<u64>();
        sum += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The checksum that would be right, where `found` is in the packet and `sum` is the [`checksum`] of it.
pub(super) fn should_be(found: u16, sum: u16) -> u16 {
    let mut right = u32::from(found) + u32::from(sum);
    right = (right & 0xffff) + (right >> 16);
    right as u16
}

/// Prints the packet of `protocol`, with the addresses if the protocol has ports.
pub(super) fn packet(line: &mut Line<'_>, layer: &Layer, protocol: u8, data: &[u8], wire: usize) {
    let (mut protocol, mut data, mut wire) = (protocol, data, wire);
    while protocol == 51 {
        let Some((next, length)) = authentication(line, data) else {
            return line.cut("ah");
        };
        let rest: Option<&[u8]> = data.get(length..);
        let (Some(rest), Some(rest_wire)) = (rest, wire.checked_sub(length)) else {
            return line.cut("ah");
        };
        (protocol, data, wire) = (next, rest, rest_wire);
    }
    let v6 = layer.ends.is_v6();
    let (printed, name) = match protocol {
        6 => (tcp::segment(line, layer, data, wire), "tcp"),
        17 => (udp::datagram(line, layer, data, wire), "udp"),
        33 => (dccp(line, layer, data, wire), "dccp"),
        132 => (sctp::packet(line, layer, data, wire), "sctp"),
        1 if v6 => (say(line, "[ICMP requires IPv4] (invalid)"), ""),
        58 if !v6 => (say(line, "[ICMPv6 requires IPv6] (invalid)"), ""),
        1 => (icmp::message(line, data, wire, layer.is_fragment), "icmp"),
        58 => (icmp6::message(line, layer, data, wire), "icmp6"),
        2 if v6 => (say(line, "[IGMP requires IPv4] (invalid)"), ""),
        2 => (igmp::message(line, data, wire), "igmp"),
        4 => (line.nested(|line| ip::packet(line, data, wire)), "ip"),
        41 => (line.nested(|line| ip6::packet(line, data, wire)), "ip6"),
        47 => (tunnel::gre(line, data, wire), "gre"),
        50 => (tunnel::esp(line, data, wire), "esp"),
        59 => (say(line, "no next header"), ""),
        88 => (routing::eigrp(line, data, wire), "eigrp"),
        89 => (routing::ospf(line, data, wire), "ospf"),
        97 => (tunnel::ether_in_ip(line, data, wire), "etherip"),
        103 => (routing::pim(line, data, wire), "pim"),
        108 => (tunnel::ipcomp(line, data), "ipcomp"),
        112 => (routing::vrrp(line, data, wire), "vrrp"),
        143 if v6 => (
            line.nested(|line| {
                ether::frame(line, data, wire);
                Some(())
            }),
            "ether",
        ),
        _ => {
            put!(line, " ip-proto-{protocol} {wire}");
            (Some(()), "")
        }
    };
    line.unless_cut(printed, name);
}

fn say(line: &mut Line<'_>, words: &str) -> Printed {
    line.text(words);
    Some(())
}

/// DCCP (RFC 4340): ports and type.
fn dccp(line: &mut Line<'_>, layer: &Layer, data: &[u8], wire: usize) -> Printed {
    const TYPES: [&str; 10] = [
        "DCCP-Request",
        "DCCP-Response",
        "DCCP-Data",
        "DCCP-Ack",
        "DCCP-DataAck",
        "DCCP-CloseReq",
        "DCCP-Close",
        "DCCP-Reset",
        "DCCP-Sync",
        "DCCP-SyncAck",
    ];
    let Some((src, dst)) = ports(data) else {
        layer.write_without_ports(line, 33);
        return None;
    };
    layer.write_with_ports(line, 33, src, dst);
    let kind = usize::from(data.get(8)? >> 1 & 15);
    line.text(TYPES.get(kind).copied().unwrap_or("DCCP"));
    line.length(wire);
    Some(())
}

/// Prints an authentication header (RFC 4302); returns the number of the next protocol, and the length of the header.
fn authentication(line: &mut Line<'_>, data: &[u8]) -> Option<(u8, usize)> {
    let [next, units] = array::<2>(data, 0)?;
    let (spi, seq) = (be32(data, 4)?, be32(data, 8)?);
    let length = (usize::from(units) + 2) * 4;
    let value = data.get(12..length.max(12))?;
    put!(line, "AH(");
    if line.is_verbose() {
        put!(line, "length={units}(0x{units:x}-bytes),");
    }
    put!(line, "spi=0x{spi:08x},seq=0x{seq:x},icv=0x");
    value.iter().for_each(|byte| line.hex_byte(*byte));
    line.text("): ");
    Some((next, length))
}

/// The ports in the first four bytes of TCP, UDP, SCTP and DCCP.
pub(super) fn ports(data: &[u8]) -> Option<(u16, u16)> {
    Some((be16(data, 0)?, be16(data, 2)?))
}
