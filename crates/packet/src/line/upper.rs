//! Common parts of IPv4 and IPv6: the two ends of a packet, fragments, and the protocols above.

use super::text::{Line, after, array, be16, be32, put};
use super::{ether, icmp, icmp6, igmp, ip, ip6, routing, sctp, tcp, tunnel, udp};

/// Notes kept of the extension headers on the way; if there are more, they are counted with the last.
const NOTES_MAX: usize = 6;

/// An IPv4 or IPv6 address.
#[derive(Clone, Copy)]
pub(super) enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

/// Place of a fragment in its datagram, bytes.
#[derive(Clone, Copy)]
pub(super) struct Fragment {
    pub id: u32,
    pub offset: u32,
    pub length: usize,
    pub more: bool,
}

/// Headers passed between the addresses and the protocol.
#[derive(Clone, Copy, Default)]
pub(super) struct Notes {
    names: [&'static str; NOTES_MAX],
    count: usize,
    /// Security parameters index and sequence number of an authentication header.
    authentic: Option<(u32, u32)>,
}

impl Notes {
    pub fn add(&mut self, name: &'static str) {
        if let Some(slot) = self.names.get_mut(self.count) {
            *slot = name;
            self.count += 1;
        }
    }
}

/// Source and destination of a packet, and the notes of the network layer.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub src: Address,
    pub dst: Address,
    pub notes: Notes,
    pub fragment: Option<Fragment>,
}

impl Ends {
    /// Appends `10.0.0.1 > 10.0.0.2: `.
    pub fn write(&self, line: &mut Line<'_>) {
        self.write_ports(line, None);
    }

    /// Appends `10.0.0.1.53 > 10.0.0.2.40000: `.
    pub fn write_with_ports(&self, line: &mut Line<'_>, src: u16, dst: u16) {
        self.write_ports(line, Some((src, dst)));
    }

    fn write_ports(&self, line: &mut Line<'_>, ports: Option<(u16, u16)>) {
        address(line, self.src, ports.map(|ports| ports.0));
        line.text(" > ");
        address(line, self.dst, ports.map(|ports| ports.1));
        line.text(": ");
        for name in self.notes.names.iter().take(self.notes.count) {
            put!(line, "{name} ");
        }
        if let Some((spi, seq)) = self.notes.authentic {
            put!(line, "AH(spi=0x{spi:08x},seq=0x{seq:x}): ");
        }
    }

    pub fn is_v6(&self) -> bool {
        matches!(self.dst, Address::V6(_))
    }

    /// Whether the packet is a fragment that does not begin with the upper protocol's header.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }
}

/// Appends an address, with a port after a dot.
fn address(line: &mut Line<'_>, address: Address, port: Option<u16>) {
    match address {
        Address::V4(bytes) => line.ipv4(bytes),
        Address::V6(bytes) => line.ipv6(bytes),
    }
    if let Some(port) = port {
        line.text(".");
        line.dec(u32::from(port));
    }
}

/// Prints the packet from its addresses on; `data` starts at the header of `protocol`, `wire` is its length.
pub(super) fn packet(line: &mut Line<'_>, ends: Ends, protocol: u8, data: &[u8], wire: usize) {
    if ends.is_later_fragment() {
        ends.write(line);
        put!(line, "ip-proto-{protocol}");
    } else {
        dispatch(line, ends, protocol, data, wire);
    }
    fragment(line, &ends);
}

/// Appends the place of a fragment: ` fragment (id 7, offset 1480, length 520, more)`. Appends nothing for a whole packet.
pub(super) fn fragment(line: &mut Line<'_>, ends: &Ends) {
    let Some(fragment) = ends.fragment else {
        return;
    };
    line.text(if fragment.offset > 0 {
        " fragment (id "
    } else {
        ", fragment (id "
    });
    match ends.src {
        Address::V4(_) => put!(line, "{}", fragment.id),
        Address::V6(_) => put!(line, "0x{:08x}", fragment.id),
    }
    let more = if fragment.more { ", more" } else { "" };
    put!(
        line,
        ", offset {}, length {}{more})",
        fragment.offset,
        fragment.length
    );
}

fn dispatch(line: &mut Line<'_>, ends: Ends, protocol: u8, data: &[u8], wire: usize) {
    match protocol {
        6 => return tcp::segment(line, &ends, data, wire),
        17 => return udp::datagram(line, &ends, data, wire),
        33 => return dccp(line, &ends, data, wire),
        51 => return authentication(line, ends, data, wire),
        132 => return sctp::packet(line, &ends, data, wire),
        136 => return udp::lite(line, &ends, data, wire),
        _ => ends.write(line),
    }
    match protocol {
        1 if ends.is_v6() => line.text("[ICMP requires IPv4] (invalid)"),
        58 if !ends.is_v6() => line.text("[ICMP6 requires IPv6] (invalid)"),
        1 => icmp::message(line, data, wire),
        58 => icmp6::message(line, data, wire),
        2 => igmp::message(line, data, wire),
        4 => line.nested(|line| {
            line.text("IP ");
            ip::packet(line, data, wire);
        }),
        41 => line.nested(|line| {
            line.text("IP6 ");
            ip6::packet(line, data, wire);
        }),
        47 => tunnel::gre(line, data, wire),
        50 => tunnel::esp(line, data, wire),
        108 => tunnel::ipcomp(line, data, wire),
        97 => tunnel::ether_in_ip(line, data, wire),
        137 => line.nested(|line| super::mpls::labels(line, data, wire)),
        143 => line.nested(|line| {
            put!(line, "Ethernet, length {wire}: ");
            ether::frame(line, data, wire);
        }),
        88 => routing::eigrp(line, data, wire),
        89 => routing::ospf(line, data, wire),
        103 => routing::pim(line, data, wire),
        112 => routing::vrrp(line, data, wire),
        115 => put!(line, "L2TPv3, length {wire}"),
        46 => put!(line, "RSVP, length {wire}"),
        other => put!(line, "ip-proto-{other}, length {wire}"),
    }
}

/// DCCP (RFC 4340): ports and type.
fn dccp(line: &mut Line<'_>, ends: &Ends, data: &[u8], wire: usize) {
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
        ends.write(line);
        return line.cut("dccp");
    };
    ends.write_with_ports(line, src, dst);
    let Some(kind) = data.get(8) else {
        return line.cut("dccp");
    };
    line.text(
        TYPES
            .get(usize::from(kind >> 1 & 15))
            .copied()
            .unwrap_or("DCCP"),
    );
    line.length(wire);
}

/// Authentication header (RFC 4302): notes its numbers, and prints the packet after it.
fn authentication(line: &mut Line<'_>, mut ends: Ends, data: &[u8], wire: usize) {
    let (Some([next, units]), Some(spi), Some(seq)) =
        (array::<2>(data, 0), be32(data, 4), be32(data, 8))
    else {
        ends.write(line);
        return line.cut("ah");
    };
    let length = (usize::from(units) + 2) * 4;
    let second = ends.notes.authentic.replace((spi, seq)).is_some();
    if length > wire || length > data.len() || second {
        ends.write(line);
        return if length > wire {
            line.text("bad-ah")
        } else {
            line.cut("ah")
        };
    }
    let (rest, rest_wire) = after(data, wire, length);
    dispatch(line, ends, next, rest, rest_wire);
}

/// The ports in the first four bytes of TCP, UDP, SCTP and DCCP.
pub(super) fn ports(data: &[u8]) -> Option<(u16, u16)> {
    Some((be16(data, 0)?, be16(data, 2)?))
}
