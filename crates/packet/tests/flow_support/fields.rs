//! Columns of packets against etherparse's fields.

use std::net::IpAddr;

use etherparse::{LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use weir_packet::fields::{FIELDS, Packet, Value, field};
use weir_packet::flow::Tunnels;
use weir_packet::{Frame, LinkType};

/// Reads all columns of any bytes, and compares those of an Ethernet frame that etherparse takes for whole.
pub fn compare(link: LinkType, data: &[u8]) {
    let frame = Frame {
        data,
        wire_len: data.len() as u32,
        interface: 0,
    };
    for inner in [None, Some(Tunnels::default())] {
        let packet = Packet::new(link, frame, inner);
        for field in FIELDS {
            let _ = (field.of)(&packet);
        }
    }
    if link != LinkType::ETHERNET {
        return;
    }
    let Ok(theirs) = SlicedPacket::from_ethernet(data) else {
        return;
    };
    let packet = Packet::new(link, frame, None);
    let ours = |name: &str| (field(name).expect("a column").of)(&packet);
    let same = |name: &str, theirs: u64| {
        let found = match ours(name) {
            Some(Value::Number(number)) => Some(number),
            Some(Value::Hex { bits, .. }) => Some(u64::from(bits)),
            other => panic!("{name} is {other:?} in {data:02x?}"),
        };
        assert_eq!(found, Some(theirs), "{name} of {data:02x?}");
    };
    if let Some(LinkSlice::Ethernet2(ether)) = &theirs.link {
        assert_eq!(ours("src_mac"), Some(Value::Mac(ether.source())));
        assert_eq!(ours("dst_mac"), Some(Value::Mac(ether.destination())));
    }
    if let Some(LinkExtSlice::Vlan(vlan)) = theirs.link_exts.first() {
        same("vlan", vlan.vlan_identifier().value().into());
        same("vlan_priority", vlan.priority_code_point().value().into());
    }
    // A packet without a key has no fields of the network layer.
    if ours("src").is_none() {
        return;
    }
    let address = |name: &str, theirs: IpAddr| {
        assert_eq!(
            ours(name),
            Some(Value::Address(theirs)),
            "{name} of {data:02x?}"
        );
    };
    match &theirs.net {
        Some(NetSlice::Ipv4(ip)) => {
            let ip = ip.header();
            address("src", ip.source_addr().into());
            address("dst", ip.destination_addr().into());
            same("ip_length", ip.total_len().into());
            same("ttl", ip.ttl().into());
            same("dscp", ip.dcp().value().into());
            same("ecn", ip.ecn().value().into());
            same("ip_id", ip.identification().into());
            same("dont_fragment", ip.dont_fragment().into());
            same("more_fragments", ip.more_fragments().into());
            same(
                "fragment_offset",
                u64::from(ip.fragments_offset().value()) * 8,
            );
        }
        Some(NetSlice::Ipv6(ip)) => {
            let ip = ip.header();
            address("src", ip.source_addr().into());
            address("dst", ip.destination_addr().into());
            same("ip_length", u64::from(ip.payload_length()) + 40);
            same("ttl", ip.hop_limit().into());
            same("dscp", ip.dscp().value().into());
            same("ecn", ip.ecn().value().into());
            same("flow_label", ip.flow_label().value().into());
        }
        _ => return,
    }
    match &theirs.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            same("sport", tcp.source_port().into());
            same("dport", tcp.destination_port().into());
            same("seq", tcp.sequence_number().into());
            same("ack", tcp.acknowledgment_number().into());
            same("window", tcp.window_size().into());
            same("payload_length", tcp.payload().len() as u64);
            let flags = [
                tcp.fin(),
                tcp.syn(),
                tcp.rst(),
                tcp.psh(),
                tcp.ack(),
                tcp.urg(),
                tcp.ece(),
                tcp.cwr(),
            ];
            let bits = flags
                .iter()
                .rev()
                .fold(0, |bits, set| bits << 1 | u8::from(*set));
            assert_eq!(ours("tcp_flags"), Some(Value::Flags(bits)));
        }
        Some(TransportSlice::Udp(udp)) => {
            same("sport", udp.source_port().into());
            same("dport", udp.destination_port().into());
            same("udp_length", udp.length().into());
        }
        Some(TransportSlice::Icmpv4(icmp)) if matches!(theirs.net, Some(NetSlice::Ipv4(_))) => {
            same("icmp_type", icmp.type_u8().into());
            same("icmp_code", icmp.code_u8().into());
        }
        Some(TransportSlice::Icmpv6(icmp)) if matches!(theirs.net, Some(NetSlice::Ipv6(_))) => {
            same("icmp_type", icmp.type_u8().into());
            same("icmp_code", icmp.code_u8().into());
        }
        _ => {}
    }
}
