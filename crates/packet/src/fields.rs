//! Columns of packets: fields of a frame and of its headers, each with a name, a unit and its reader.
//!
//! [`FIELDS`] is the one list of them: formats, their headings, help and the documentation read it. A field of the network layer
//! and above belongs to the outermost IP packet, or with [`Packet::new`]'s `inner` to the innermost one. A field that a packet
//! does not have, or that was not captured, has no value.
//!
//! Packets are hostile here: every read is checked, and all lengths are claims.

mod read;

pub use read::Packet;

use core::net::IpAddr;

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number in the unit of its field; 0 and 1 for a bit.
    Number(u64),
    /// A bit field, which people write in hexadecimal digits.
    Hex {
        /// The bits.
        bits: u32,
        /// Number of digits.
        digits: usize,
    },
    /// A time, ns since 1970, as a date.
    Time(i64),
    /// The same time, as seconds since 1970 with nine digits after the point.
    Epoch(i64),
    /// An address of the link layer.
    Mac([u8; 6]),
    /// An address of the network layer.
    Address(IpAddr),
    /// Number of an IP protocol, which has a name.
    Protocol(u8),
    /// A word of this program.
    Word(&'static str),
    /// TCP flags as tcpdump writes them.
    Flags(u8),
    /// Number of a link type, which has a name.
    Link(crate::LinkType),
    /// A network: its address, and its bits.
    Network(IpAddr, u8),
    /// Two letters of a country.
    Country([u8; 2]),
    /// Text from the capture or a database, which may hold any character.
    Text(&'a str),
    /// The line that describes the packet.
    Line,
}

/// Where an address belongs, as databases tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// Number of the autonomous system.
    pub asn: Option<u32>,
    /// Name of the autonomous system.
    pub as_name: Option<&'a str>,
    /// Country in two letters of ISO 3166-1.
    pub country: Option<[u8; 2]>,
    /// Network that a database holds.
    pub network: Option<(IpAddr, u8)>,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name, also of the member in JSON.
    pub name: &'static str,
    /// Unit of the value; empty if it has none.
    pub unit: &'static str,
    /// Meaning of the value, and its place.
    pub about: &'static str,
    /// Field of Wireshark with the same values; empty if there is none.
    pub tshark: &'static str,
    /// Characters of a usual value, for tables.
    pub width: usize,
    /// Reads the value. **Cost**: a few loads; no allocation.
    pub of: for<'a> fn(&Packet<'a>) -> Option<Value<'a>>,
}

/// Fields that are shown if none is named.
pub const USUAL: [&str; 8] = [
    "time", "src", "sport", "dst", "dport", "proto", "length", "summary",
];

/// Finds a field by its name.
pub fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

macro_rules! fields {
    ($($name:literal $unit:literal $width:literal $tshark:literal $about:literal $of:expr;)*) => {
        /// All columns, in the order of the layers.
        pub const FIELDS: &[Field] = &[$(Field {
            name: $name, unit: $unit, about: $about, tshark: $tshark, width: $width, of: $of,
        },)*];
    };
}

fields! {
    "time" "" 30 "" "time of the packet, RFC 3339 in UTC"
        |packet| packet.time_ns.map(Value::Time);
    "epoch" "s" 20 "frame.time_epoch" "time of the packet since 1970"
        |packet| packet.time_ns.map(Value::Epoch);
    "interface" "" 9 "frame.interface_name" "name of the interface, as the capture or this machine says"
        |packet| packet.interface.map(Value::Text);
    "direction" "" 9 "" "in or out, as the capture says"
        |packet| packet.direction.map(Value::Word);
    "link" "" 6 "" "link type of the frame"
        |packet| Some(Value::Link(packet.link));
    "length" "bytes" 6 "frame.len" "length of the frame on the wire, without FCS"
        |packet| number(Some(packet.frame.wire_len));
    "captured" "bytes" 8 "frame.cap_len" "captured part of the frame"
        |packet| Some(Value::Number(packet.frame.data.len() as u64));

    "src_mac" "" 17 "eth.src" "source address of Ethernet or of a Linux cooked frame"
        |packet| packet.src_mac().map(Value::Mac);
    "dst_mac" "" 17 "eth.dst" "destination address of Ethernet"
        |packet| packet.dst_mac().map(Value::Mac);
    "ethertype" "" 9 "" "type of the payload after all VLAN tags: tshark's vlan.etype of the last tag, else eth.type"
        |packet| hex(packet.ethertype(), 4);
    "vlan" "" 5 "vlan.id" "identifier of the outermost VLAN tag"
        |packet| number(packet.tag(0).map(|tag| tag & 0xfff));
    "vlan_priority" "" 13 "vlan.priority" "priority of the outermost VLAN tag"
        |packet| number(packet.tag(0).map(|tag| tag >> 13));
    "inner_vlan" "" 10 "" "identifier of the second VLAN tag"
        |packet| number(packet.tag(1).map(|tag| tag & 0xfff));
    "arp_operation" "" 13 "arp.opcode" "operation of ARP or RARP: 1 asks, 2 answers"
        |packet| number(packet.arp_operation());
    "arp_sender" "" 15 "arp.src.proto_ipv4" "IPv4 address of the sender of ARP"
        |packet| packet.arp_address(14).map(Value::Address);
    "arp_target" "" 15 "arp.dst.proto_ipv4" "IPv4 address that ARP is about"
        |packet| packet.arp_address(24).map(Value::Address);

    "ip_version" "" 10 "ip.version" "4 or 6"
        |packet| number(packet.headers().map(|headers| headers.key.family));
    "src" "" 15 "ip.src" "source address of IP"
        |packet| packet.headers()?.key.source().map(Value::Address);
    "dst" "" 15 "ip.dst" "destination address of IP"
        |packet| packet.headers()?.key.destination().map(Value::Address);
    "proto" "" 5 "" "name or number of the protocol after IP and its extension headers"
        |packet| packet.headers().map(|headers| Value::Protocol(headers.key.proto));
    "proto_number" "" 12 "ip.proto" "number of that protocol"
        |packet| number(packet.headers().map(|headers| headers.key.proto));
    "ip_length" "bytes" 9 "ip.len" "length of the IP packet with its header, as the header says"
        |packet| number(packet.ip_length());
    "ttl" "hops" 3 "ip.ttl" "time to live of IPv4, hop limit of IPv6"
        |packet| number(packet.ip_byte(8, 7));
    "dscp" "" 4 "ip.dsfield.dscp" "class of service: the upper six bits of the field"
        |packet| number(packet.traffic_class().map(|class| class >> 2));
    "ecn" "" 3 "ip.dsfield.ecn" "congestion: the lower two bits of that field"
        |packet| number(packet.traffic_class().map(|class| class & 3));
    "flow_label" "" 10 "ipv6.flow" "flow label of IPv6"
        |packet| number(packet.flow_label());
    "ip_id" "" 6 "ip.id" "identification of IPv4"
        |packet| hex(packet.v4_word(4), 4);
    "dont_fragment" "" 13 "ip.flags.df" "1 if routers may not fragment the packet (IPv4)"
        |packet| number(packet.v4_word(6).map(|word| word >> 14 & 1));
    "more_fragments" "" 14 "ip.flags.mf" "1 if more fragments follow"
        |packet| number(packet.fragment().map(|(_, more)| u8::from(more)));
    "fragment_offset" "bytes" 15 "" "place of the fragment in its packet; tshark's ip.frag_offset counts eight bytes"
        |packet| number(packet.fragment().map(|(offset, _)| offset));

    "sport" "" 5 "tcp.srcport" "source port of TCP, UDP, SCTP, DCCP or UDP-Lite"
        |packet| number(packet.headers()?.key.ports().map(|(sport, _)| sport));
    "dport" "" 5 "tcp.dstport" "destination port of the same protocols"
        |packet| number(packet.headers()?.key.ports().map(|(_, dport)| dport));
    "payload_length" "bytes" 14 "tcp.len" "bytes after the header of TCP or UDP, as the headers say"
        |packet| number(packet.payload_length());
    "tcp_flags" "" 9 "" "flags of TCP as tcpdump writes them: F, S, R, P, . for ACK, U, E, W; none"
        |packet| Some(Value::Flags(packet.tcp_flags()? as u8));
    "tcp_flags_hex" "" 13 "tcp.flags" "the same and the reserved bits, as a number"
        |packet| hex(packet.tcp_flags(), 4);
    "seq" "" 10 "tcp.seq_raw" "sequence number of TCP, absolute"
        |packet| number(packet.tcp_number(4));
    "ack" "" 10 "tcp.ack_raw" "acknowledgement number of TCP, absolute"
        |packet| number(packet.tcp_number(8));
    "window" "" 6 "tcp.window_size_value" "window field of TCP, not scaled"
        |packet| number(packet.tcp_word(14));
    "udp_length" "bytes" 10 "udp.length" "length of a UDP datagram with its header, as the header says"
        |packet| number(packet.udp_length());
    "icmp_type" "" 9 "icmp.type" "type of an ICMP or ICMPv6 message"
        |packet| number(packet.icmp_byte(0));
    "icmp_code" "" 9 "icmp.code" "code of an ICMP or ICMPv6 message"
        |packet| number(packet.icmp_byte(1));

    "src_name" "" 30 "" "latest name of the source in the packets so far: of DNS answers and TLS connections"
        |packet| packet.names[0].map(Value::Text);
    "dst_name" "" 30 "" "name of the destination in the same packets"
        |packet| packet.names[1].map(Value::Text);
    "src_asn" "" 10 "" "number of the autonomous system of the source, from --geo"
        |packet| number(packet.places[0].asn);
    "dst_asn" "" 10 "" "number of the autonomous system of the destination"
        |packet| number(packet.places[1].asn);
    "src_as_name" "" 28 "" "name of the autonomous system of the source, its first 28 bytes"
        |packet| packet.places[0].as_name.map(Value::Text);
    "dst_as_name" "" 28 "" "name of the autonomous system of the destination, its first 28 bytes"
        |packet| packet.places[1].as_name.map(Value::Text);
    "src_country" "" 11 "" "country of the source in two letters of ISO 3166-1, from --geo"
        |packet| packet.places[0].country.map(Value::Country);
    "dst_country" "" 11 "" "country of the destination in two letters of ISO 3166-1"
        |packet| packet.places[1].country.map(Value::Country);
    "src_network" "" 18 "" "network of the source that a database of --geo holds"
        |packet| network(packet.places[0].network);
    "dst_network" "" 18 "" "network of the destination that a database of --geo holds"
        |packet| network(packet.places[1].network);

    "summary" "" 40 "" "the line that weir filter prints, without the time"
        |_| Some(Value::Line);
}

fn number<'a>(value: Option<impl Into<u64>>) -> Option<Value<'a>> {
    value.map(|value| Value::Number(value.into()))
}

fn network<'a>(network: Option<(IpAddr, u8)>) -> Option<Value<'a>> {
    network.map(|(address, bits)| Value::Network(address, bits))
}

fn hex<'a>(bits: Option<u16>, digits: usize) -> Option<Value<'a>> {
    let bits = u32::from(bits?);
    Some(Value::Hex { bits, digits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_occur_once() {
        for (i, field) in FIELDS.iter().enumerate() {
            assert!(
                field
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{}",
                field.name
            );
            let first = FIELDS.iter().position(|other| other.name == field.name);
            assert_eq!(first, Some(i), "{}", field.name);
            assert!(field.width >= field.name.len().min(9), "{}", field.name);
        }
        assert!(USUAL.iter().all(|name| field(name).is_some()));
    }
}
