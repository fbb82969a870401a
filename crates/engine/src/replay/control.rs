//! Packets by which hosts, switches and routers configure each other. A replayed one can take addresses away or redirect a network.
//!
//! Receivers look after all VLAN tags and IPv6 extension headers, and so does this; also after MPLS labels, and in PPPoE. A cut or very
//! long chain of headers counts as control. Packets inside IP (GRE, VXLAN, IP in IP) are payload.

use super::{IPV4, IPV6, after_tags, word};

/// Most frames of Ethernet in each other, as MPLS carries them.
const MOST_FRAMES: usize = 4;

/// Most extension headers that are followed.
const MOST_HEADERS: usize = 16;

/// Whether a frame of Ethernet is ARP or RARP; STP, LLDP, LACP, 802.1X or another protocol of bridges; CDP; IS-IS; discovery of PPPoE; DHCP;
/// router advertisements, redirects, ND and MLD; IGMP; OSPF, EIGRP, PIM, VRRP, RIP, HSRP, GLBP or LDP.
pub(super) fn is_control(frame: &[u8]) -> bool {
    is_control_within(frame, MOST_FRAMES)
}

fn is_control_within(frame: &[u8], frames: usize) -> bool {
    // The reserved groups of IEEE 802.1, CDP and its kin, and routers of OSI.
    let is_group = matches!(
        frame,
        [0x01, 0x80, 0xc2, 0, 0, ..] | [0x01, 0, 0x0c, 0xcc, 0xcc, ..] | [0x09, 0, 0x2b, 0, 0, ..]
    );
    let Some((ethertype, at)) = after_tags(frame) else {
        return is_group;
    };
    let packet = &frame[at..];
    is_group
        || match ethertype {
            IPV4 => ipv4(packet),
            IPV6 => ipv6(packet),
            // ARP, RARP, slow protocols, 802.1X, PPPoE discovery, LLDP.
            0x0806 | 0x8035 | 0x8809 | 0x888e | 0x8863 | 0x88cc => true,
            0x8847 | 0x8848 => mpls(packet, frames - 1),
            0x8864 => pppoe(packet),
            // A length: LLC of OSI, which has IS-IS and ES-IS.
            ..0x0600 => matches!(packet, [0xfe, 0xfe, 0x03, ..]),
            _ => false,
        }
}

/// After the label with the bottom bit (RFC 3032). No field names what follows: its first nibble tells IP from a frame of Ethernet, which may
/// have a control word before it (RFC 4448).
fn mpls(packet: &[u8], frames: usize) -> bool {
    let mut labels = packet.chunks_exact(4);
    let Some(count) = labels.position(|label| label[2] & 1 == 1) else {
        return false;
    };
    let inner = &packet[(count + 1) * 4..];
    match inner.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(inner),
        Some(6) => ipv6(inner),
        Some(_) if frames > 0 => {
            is_control_within(inner, frames)
                || is_control_within(inner.get(4..).unwrap_or_default(), frames)
        }
        _ => false,
    }
}

/// A session of PPPoE (RFC 2516): LCP, authentication and the protocols that configure networks, and packets of IP. PPP may leave out the
/// first byte of a protocol (RFC 1661).
fn pppoe(packet: &[u8]) -> bool {
    let (protocol, at) = match packet.get(6) {
        Some(short) if short & 1 == 1 => (u16::from(*short), 7),
        _ => (word(packet, 6).unwrap_or_default(), 8),
    };
    let inner = packet.get(at..).unwrap_or_default();
    match protocol {
        0x0021 => ipv4(inner),
        0x0057 => ipv6(inner),
        protocol => protocol >= 0x8000,
    }
}

fn ipv4(packet: &[u8]) -> bool {
    let (Some(first), Some(fragment), Some(proto)) =
        (packet.first(), packet.get(6..8), packet.get(9))
    else {
        return false;
    };
    let is_later = u16::from_be_bytes([fragment[0], fragment[1]]) & 0x1fff != 0;
    let payload = packet
        .get(usize::from(first & 15) * 4..)
        .unwrap_or_default();
    match proto {
        // Redirects, and advertisements of routers.
        1 => !is_later && matches!(payload.first(), Some(5 | 9 | 10)),
        17 => !is_later && udp(payload),
        proto => is_routing(*proto),
    }
}

fn ipv6(packet: &[u8]) -> bool {
    let (Some(&next), Some(mut rest)) = (packet.get(6), packet.get(40..)) else {
        return false;
    };
    let mut next = next;
    for _ in 0..MOST_HEADERS {
        let length = match (next, rest) {
            // Hop-by-hop, routing, destination, mobility, HIP, Shim6.
            (0 | 43 | 60 | 135 | 139 | 140, [_, units, ..]) => usize::from(*units) * 8 + 8,
            (51, [_, units, ..]) => usize::from(*units) * 4 + 8,
            (44, [_, _, high, low, ..]) if u16::from_be_bytes([*high, *low]) & 0xfff8 != 0 => {
                return is_routing(rest[0]);
            }
            (44, [_, ..]) => 8,
            (0 | 43 | 44 | 51 | 60 | 135 | 139 | 140, _) => return true,
            // MLD, ND, redirects, renumbering, SEND, multicast routers, RPL.
            (58, [kind, ..]) => {
                return matches!(kind, 130..=138 | 141..=143 | 148..=149 | 151..=155);
            }
            (17, payload) => return udp(payload),
            (proto, _) => return is_routing(proto),
        };
        let Some(after) = rest.get(length..) else {
            return true;
        };
        (next, rest) = (rest[0], after);
    }
    true
}

/// IGMP, EIGRP, OSPF, PIM, VRRP.
fn is_routing(proto: u8) -> bool {
    matches!(proto, 2 | 88 | 89 | 103 | 112)
}

/// By the port of the receiver; HSRP, GLBP and LDP have ports that others also get, and use them at both ends.
fn udp(payload: &[u8]) -> bool {
    let [a, b, c, d, ..] = *payload else {
        return false;
    };
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    match destination {
        // DHCP, RIP, RIPng, DHCPv6.
        67 | 68 | 520 | 521 | 546 | 547 => true,
        646 | 1985 | 2029 | 3222 => source == destination,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(destination: [u8; 6], tags: &[u8], ethertype: u16, packet: &[u8]) -> Vec<u8> {
        [
            &destination[..],
            &[2; 6],
            tags,
            &ethertype.to_be_bytes(),
            packet,
        ]
        .concat()
    }

    fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 255];
        packet.extend([0xfe; 32]);
        packet.extend(payload);
        frame([0x33; 6], &[], 0x86dd, &packet)
    }

    fn ip4(proto: u8, options: usize, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45 + options as u8, 0, 0, 0, 0, 0, 0, 0, 64, proto];
        packet.extend(vec![10; 10 + 4 * options]);
        packet.extend(payload);
        frame([2; 6], &[], 0x0800, &packet)
    }

    fn ports(source: u16, destination: u16) -> Vec<u8> {
        [
            source.to_be_bytes(),
            destination.to_be_bytes(),
            [0; 2],
            [0; 2],
        ]
        .concat()
    }

    #[test]
    fn control_is_found_behind_tags_and_extension_headers() {
        let advertisement = [134u8, 0, 0, 0];
        let behind = |headers: &[u8]| [headers, &advertisement].concat();
        let tag = [0x81, 0, 0, 1];
        let (labels, session) = ([0, 1, 0, 255, 0, 2, 1, 255], [0x11, 0, 0, 1, 0, 30]);
        let fragment = [58, 0, 0, 1, 0, 0, 0, 1];
        let long = [&[58, 1][..], &[0; 14]].concat();
        let two = [&[60, 0, 1, 4, 0, 0, 0, 0], &[58, 0, 1, 4, 0, 0, 0, 0][..]].concat();
        let all = [
            ip6(58, &advertisement),
            ip6(60, &behind(&[58, 0, 1, 4, 0, 0, 0, 0])),
            ip6(0, &behind(&long)),
            ip6(0, &behind(&two)),
            ip6(44, &behind(&fragment)),
            ip6(60, &[89, 0, 1, 4, 0, 0, 0, 0, 3, 1]),
            // The chain is cut.
            ip6(0, &[58, 9, 0, 0]),
            ip6(17, &ports(2029, 2029)),
            ip6(17, &ports(547, 546)),
            ip4(17, 0, &ports(68, 67)),
            ip4(17, 3, &ports(1985, 1985)),
            ip4(1, 0, &[5, 0]),
            ip4(89, 0, &[]),
            frame([2; 6], &[tag; 3].concat(), 0x0806, &[0; 28]),
            frame([0x01, 0x80, 0xc2, 0, 0, 0x14], &[], 100, &[0xfe, 0xfe, 3]),
            frame([2; 6], &[], 100, &[0xfe, 0xfe, 3, 0x83]),
            frame([2; 6], &[], 0x88cc, &[]),
            frame(
                [2; 6],
                &[],
                0x8847,
                &[&labels[4..], &ip6(58, &advertisement)[14..]].concat(),
            ),
            frame(
                [2; 6],
                &tag,
                0x8848,
                &[&labels, &ip4(89, 0, &[])[14..]].concat(),
            ),
            frame(
                [2; 6],
                &[],
                0x8847,
                &[&labels[..], &ip4(17, 0, &ports(68, 67))].concat(),
            ),
            frame(
                [2; 6],
                &[],
                0x8847,
                &[&labels, &[0; 4][..], &ip4(17, 0, &ports(68, 67))].concat(),
            ),
            frame(
                [2; 6],
                &[],
                0x8864,
                &[&session, &[0, 0x57][..], &ip6(58, &advertisement)[14..]].concat(),
            ),
            frame(
                [2; 6],
                &tag,
                0x8864,
                &[&session, &[0x21][..], &ip4(2, 0, &[])[14..]].concat(),
            ),
            frame(
                [2; 6],
                &[],
                0x8864,
                &[&session, &[0xc0, 0x21, 9][..]].concat(),
            ),
        ];
        for frame in &all {
            assert!(is_control(frame), "{frame:02x?}");
        }
    }

    #[test]
    fn other_traffic_is_none() {
        let (labels, session) = ([0, 1, 0, 255, 0, 2, 1, 255], [0x11, 0, 0, 1, 0, 30]);
        let echo = [128u8, 0, 0, 0];
        let all = [
            ip6(58, &echo),
            ip6(60, &[&[58, 0, 1, 4, 0, 0, 0, 0], &echo[..]].concat()),
            // A later fragment has no header of ICMPv6.
            ip6(44, &[58, 0, 0, 8, 0, 0, 0, 1, 134, 0]),
            ip6(59, &[]),
            ip4(17, 0, &ports(1985, 443)),
            ip4(17, 0, &ports(443, 1985)),
            ip4(17, 0, &ports(546, 53)),
            ip4(6, 0, &ports(68, 67)),
            ip4(1, 0, &[8, 0]),
            frame([2; 6], &[], 0x88f7, &[134; 60]),
            frame(
                [2; 6],
                &[],
                0x8847,
                &[&labels, &ip4(6, 0, &ports(68, 67))[14..]].concat(),
            ),
            frame(
                [2; 6],
                &[],
                0x8847,
                &[&labels, &[0; 4][..], &ip4(1, 0, &[8, 0])].concat(),
            ),
            // No bottom of the labels.
            frame(
                [2; 6],
                &[],
                0x8847,
                &[&labels[..4], &ip4(89, 0, &[])[14..]].concat(),
            ),
            frame(
                [2; 6],
                &[],
                0x8864,
                &[&session, &[0, 0x21][..], &ip4(1, 0, &[8, 0])[14..]].concat(),
            ),
            // In tunnels of IP.
            ip4(47, 0, &[&[0, 0, 8, 0][..], &ip4(89, 0, &[])[14..]].concat()),
            ip4(4, 0, &ip4(89, 0, &[])[14..]),
        ];
        for frame in &all {
            assert!(!is_control(frame), "{frame:02x?}");
        }
        for frame in &all {
            for end in 0..frame.len() {
                is_control(&frame[..end]);
            }
        }
    }
}
