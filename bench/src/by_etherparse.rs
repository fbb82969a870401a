//! Flow keys read by etherparse: a rival of weir's parser, and the oracle of measurements.

use etherparse::{LaxNetSlice, LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
use weir_packet::flow::FlowKey;

/// The key of an Ethernet frame that was captured completely.
pub fn strict(data: &[u8]) -> Option<FlowKey> {
    let packet = SlicedPacket::from_ethernet(data).ok()?;
    let mut key = FlowKey::NONE;
    match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) => {
            let (header, inside) = (ip.header(), ip.payload());
            four(
                &mut key,
                header.source(),
                header.destination(),
                inside.ip_number.0,
            );
            fragment(
                &mut key,
                inside.fragmented,
                header.fragments_offset().value(),
                inside.payload,
            );
        }
        NetSlice::Ipv6(ip) => {
            six(
                &mut key,
                ip.header().source(),
                ip.header().destination(),
                ip.payload().ip_number.0,
            );
        }
        NetSlice::Arp(_) => return None,
    }
    Some(with_ports(key, packet.transport.as_ref()))
}

/// The key of an Ethernet frame, which may be cut.
pub fn lax(data: &[u8]) -> Option<FlowKey> {
    let packet = LaxSlicedPacket::from_ethernet(data).ok()?;
    let mut key = FlowKey::NONE;
    match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let (header, inside) = (ip.header(), ip.payload());
            four(
                &mut key,
                header.source(),
                header.destination(),
                inside.ip_number.0,
            );
            fragment(
                &mut key,
                inside.fragmented,
                header.fragments_offset().value(),
                inside.payload,
            );
        }
        LaxNetSlice::Ipv6(ip) => {
            six(
                &mut key,
                ip.header().source(),
                ip.header().destination(),
                ip.payload().ip_number.0,
            );
        }
        LaxNetSlice::Arp(_) => return None,
    }
    Some(with_ports(key, packet.transport.as_ref()))
}

#[inline(always)]
fn four(key: &mut FlowKey, src: [u8; 4], dst: [u8; 4], proto: u8) {
    (key.family, key.proto) = (4, proto);
    key.src[..4].copy_from_slice(&src);
    key.dst[..4].copy_from_slice(&dst);
}

#[inline(always)]
fn six(key: &mut FlowKey, src: [u8; 16], dst: [u8; 16], proto: u8) {
    (key.family, key.proto, key.src, key.dst) = (6, proto, src, dst);
}

/// Sets the flags of a fragment, and the ports of the first one. etherparse parses no fragments, but the first one has
/// ports.
#[inline(always)]
fn fragment(key: &mut FlowKey, fragmented: bool, offset: u16, payload: &[u8]) {
    if !fragmented {
        return;
    }
    if offset > 0 {
        key.flags = FlowKey::LATER_FRAGMENT;
    } else if let (6 | 17, [a, b, c, d, ..]) = (key.proto, payload) {
        (key.sport, key.dport) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        key.flags = FlowKey::HAS_PORTS;
    }
}

#[inline(always)]
fn with_ports(mut key: FlowKey, transport: Option<&TransportSlice<'_>>) -> FlowKey {
    let ports = match transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        _ => return key,
    };
    (key.sport, key.dport) = ports;
    key.flags = FlowKey::HAS_PORTS;
    key
}
