//! Frames made by hand and their keys: a case for each link layer, header and tunnel.

mod upper;

use super::super::line_support::build::{cat, ether, hex, ip4, ip4_fragment, ip6, udp};
use upper::{headers, tunnels, wlan};
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, NoKey};

/// A frame and its expected keys.
pub struct Case {
    pub name: &'static str,
    pub link: LinkType,
    pub data: Vec<u8>,
    pub outer: Result<FlowKey, NoKey>,
    pub inner: Result<FlowKey, NoKey>,
}

/// The key of a packet from 10.0.0.1 to 10.0.0.2, as `ip4` makes it.
pub fn four(proto: u8) -> FlowKey {
    let mut key = FlowKey {
        proto,
        family: 4,
        ..FlowKey::NONE
    };
    key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
    key.dst[..4].copy_from_slice(&[10, 0, 0, 2]);
    key
}

/// The key of a packet from 2001:db8::1 to 2001:db8::2, as `ip6` makes it.
pub fn six(proto: u8) -> FlowKey {
    let src = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let dst = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    FlowKey {
        src,
        dst,
        proto,
        family: 6,
        ..FlowKey::NONE
    }
}

pub fn ports(key: FlowKey, sport: u16, dport: u16) -> FlowKey {
    FlowKey {
        sport,
        dport,
        flags: FlowKey::HAS_PORTS,
        ..key
    }
}

fn later(key: FlowKey) -> FlowKey {
    FlowKey {
        flags: FlowKey::LATER_FRAGMENT,
        ..key
    }
}

/// A UDP datagram to a port.
fn udp_to(dport: u16, payload: &[u8]) -> Vec<u8> {
    let length = ((8 + payload.len()) as u16).to_be_bytes();
    cat(&[
        &[0x30, 0x39],
        &dport.to_be_bytes(),
        &length,
        &[0, 0],
        payload,
    ])
}

/// Payload of tunnels: UDP from port 5300 to 40000 with four bytes, over another pair of addresses.
fn inside() -> (Vec<u8>, FlowKey) {
    let mut packet = ip4(17, &udp(4));
    packet[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    let mut key = ports(four(17), 5300, 40_000);
    key.src[..4].copy_from_slice(&[192, 0, 2, 1]);
    key.dst[..4].copy_from_slice(&[192, 0, 2, 2]);
    (packet, key)
}

fn plain(name: &'static str, link: u16, data: Vec<u8>, key: Result<FlowKey, NoKey>) -> Case {
    Case {
        name,
        link: LinkType(link),
        data,
        outer: key,
        inner: key,
    }
}

pub fn all() -> Vec<Case> {
    [links(), more_links(), wlan(), headers(), tunnels()]
        .into_iter()
        .flatten()
        .collect()
}

fn links() -> Vec<Case> {
    let (packet, packet6) = (ip4(17, &udp(4)), ip6(17, &udp(4)));
    let key = Ok(ports(four(17), 5300, 40_000));
    let key6 = Ok(ports(six(17), 5300, 40_000));
    let behind = |head: &str| cat(&[&hex(head), &packet]);
    let behind6 = |head: &str| cat(&[&hex(head), &packet6]);
    let ether_to = |rest: &str| cat(&[&hex("00005e005302 00005e005301"), &hex(rest), &packet]);
    vec![
        plain("Ethernet, IPv4", 1, ether(0x0800, &packet), key),
        plain("Ethernet, IPv6", 1, ether(0x86dd, &packet6), key6),
        plain("802.1Q", 1, ether_to("8100 0064 0800"), key),
        plain(
            "802.1Q, IPv6",
            1,
            ether(0x8100, &cat(&[&hex("0064 86dd"), &packet6])),
            key6,
        ),
        plain("802.1ad", 1, ether_to("88a8 0064 8100 0065 0800"), key),
        plain("802.1Q twice", 1, ether_to("8100 0064 8100 0065 0800"), key),
        plain(
            "old double tag",
            1,
            ether_to("9100 0064 8100 0065 0800"),
            key,
        ),
        plain("SNAP", 1, ether_to("0028 aaaa03 000000 0800"), key),
        plain(
            "spanning tree",
            1,
            ether_to("0026 424203 0000"),
            Err(NoKey::NotIp),
        ),
        plain("MPLS", 1, ether_to("8847 00010140"), key),
        plain(
            "MPLS, two labels",
            1,
            ether_to("8847 00010040 00020140"),
            key,
        ),
        plain("MPLS, IPv6", 1, ether(0x8847, &behind6("00010140")), key6),
        plain(
            "MPLS, pseudo-wire",
            1,
            ether_to("8847 00010140 00000000 00005e005304 00005e005303 0800"),
            key,
        ),
        plain(
            "MPLS in a VLAN",
            1,
            ether_to("8100 0064 8847 00010140"),
            key,
        ),
        plain("PPPoE", 1, ether_to("8864 1100 0001 0022 0021"), key),
        plain(
            "FabricPath",
            1,
            ether_to("8903 0060 00005e005304 00005e005303 0800"),
            key,
        ),
        plain(
            "PPPoE, IPv6",
            1,
            ether(0x8864, &behind6("1100 0001 0036 0057")),
            key6,
        ),
        plain(
            "PPPoE, LCP",
            1,
            ether_to("8864 1100 0001 0022 c021"),
            Err(NoKey::NotIp),
        ),
        plain(
            "ARP",
            1,
            ether(0x0806, &hex("0001 0800 06 04 0001")),
            Err(NoKey::NotIp),
        ),
        plain("LLDP", 1, ether(0x88cc, &[2, 7, 4]), Err(NoKey::NotIp)),
        plain(
            "IPv6 announced as IPv4",
            1,
            ether(0x0800, &packet6),
            Err(NoKey::Malformed),
        ),
        plain(
            "IPv4 announced as IPv6",
            1,
            ether(0x86dd, &packet),
            Err(NoKey::Malformed),
        ),
        plain(
            "cooked",
            113,
            behind("0000 0001 0006 00005e005301 0000 0800"),
            key,
        ),
        plain(
            "cooked, tagged",
            113,
            behind("0000 0001 0006 00005e005301 0000 8100 0064 0800"),
            key,
        ),
        plain(
            "cooked, IPv6",
            113,
            behind6("0000 0001 0006 00005e005301 0000 86dd"),
            key6,
        ),
        plain(
            "cooked netlink",
            113,
            behind("0000 0338 0000 000000000000 0000 0800"),
            Err(NoKey::NotIp),
        ),
        plain(
            "cooked, version 2",
            276,
            behind("0800 0000 00000002 0001 00 06 00005e0053010000"),
            key,
        ),
        plain(
            "cooked, version 2, IPv6",
            276,
            behind6("86dd 0000 00000002 0001 00 06 00005e0053010000"),
            key6,
        ),
        plain("raw", 101, packet.clone(), key),
        plain("raw, IPv6", 101, packet6.clone(), key6),
        plain(
            "raw, no version",
            101,
            vec![0x50; 40],
            Err(NoKey::Malformed),
        ),
        plain("raw of BSD", 12, packet.clone(), key),
        plain("raw of OpenBSD", 14, packet6.clone(), key6),
        plain("raw IPv4", 228, packet.clone(), key),
        plain("raw IPv6", 229, packet6.clone(), key6),
        plain(
            "IPv6 as raw IPv4",
            228,
            packet6.clone(),
            Err(NoKey::Malformed),
        ),
        plain("loopback, little-endian", 0, behind("02000000"), key),
        plain("loopback, big-endian", 0, behind("00000002"), key),
        plain("loopback, IPv6 of macOS", 0, behind6("1e000000"), key6),
        plain("loopback, IPv6 of FreeBSD", 0, behind6("0000001c"), key6),
        plain("loopback of OpenBSD", 108, behind("00000002"), key),
        plain("loopback of OpenBSD, IPv6", 108, behind6("00000018"), key6),
        plain("loopback, ISO", 0, behind("07000000"), Err(NoKey::NotIp)),
        plain("PPP", 9, behind("ff03 0021"), key),
        plain("PPP, all compressed", 9, behind("21"), key),
        plain("PPP, IPv6", 50, behind6("ff03 0057"), key6),
        plain("PPP, MPLS", 50, behind("ff03 0281 00010140"), key),
        plain("PPP of pppd", 166, behind("01 03 0021"), key),
        plain("PPP with direction", 204, behind("00 ff03 0021"), key),
        plain("PPPoE as link", 51, behind("1100 0001 0022 0021"), key),
        plain("Cisco HDLC", 104, behind("0f00 0800"), key),
        plain("MPLS as link", 219, behind("00010140"), key),
    ]
}

/// FDDI, frame relay, netfilter logs, IP over InfiniBand, ipnet, and LLC without IP.
fn more_links() -> Vec<Case> {
    let (packet, packet6) = (ip4(17, &udp(4)), ip6(17, &udp(4)));
    let key = Ok(ports(four(17), 5300, 40_000));
    let key6 = Ok(ports(six(17), 5300, 40_000));
    let behind = |head: &str| cat(&[&hex(head), &packet]);
    let behind6 = |head: &str| cat(&[&hex(head), &packet6]);
    let macs = "00005e005302 00005e005301";
    let route =
        "60000000 0024 1bff fe800000000000000000000000000001 fe800000000000000000000000000002";
    let ipnet = |length: &str| format!("0000 {length} 00000001 00000001 00000000 00000000");
    vec![
        plain(
            "FDDI",
            10,
            behind(&format!("50 {macs} aaaa03 000000 0800")),
            key,
        ),
        plain(
            "FDDI, IPv6",
            10,
            behind6(&format!("57 {macs} aaaa03 000000 86dd")),
            key6,
        ),
        plain(
            "FDDI, station management",
            10,
            behind(&format!("41 {macs} aaaa03 000000 0800")),
            Err(NoKey::NotIp),
        ),
        plain("frame relay", 107, behind("1841 03 cc"), key),
        plain("frame relay, IPv6", 107, behind6("1841 03 8e"), key6),
        plain(
            "frame relay, address of four bytes",
            107,
            behind("1840 0001 03 cc"),
            key,
        ),
        plain(
            "frame relay, SNAP",
            107,
            behind("1841 03 00 80 000000 0800"),
            key,
        ),
        plain("frame relay of Cisco", 107, behind("1841 0800"), key),
        plain(
            "frame relay, status",
            107,
            hex("0001 03 08 00 75 01 01 00"),
            Err(NoKey::NotIp),
        ),
        plain(
            "frame relay, address without end",
            107,
            vec![0; 40],
            Err(NoKey::Malformed),
        ),
        plain(
            "netfilter log",
            239,
            behind("02 00 0000 0800 0100 0800 0100 0500 0a00 00000000 2400 0900"),
            key,
        ),
        plain(
            "netfilter log, big-endian",
            239,
            behind("02 00 0000 0008 0001 0800 0100 0005 000a 00000000 0024 0009"),
            key,
        ),
        plain(
            "netfilter log, IPv6",
            239,
            behind6("0a 00 0000 0800 0100 86dd 0100 3800 0900"),
            key6,
        ),
        plain(
            "netfilter log, bridge",
            239,
            behind("07 00 0000 2400 0900"),
            Err(NoKey::NotIp),
        ),
        plain(
            "netfilter log, a nested attribute, and one in network order",
            239,
            behind(
                "02 00 0000 0800 0100 0800 0100 0c00 1280 0800 0340 00000001 0800 0540 00000001 2400 0900",
            ),
            key,
        ),
        plain(
            "netfilter log, big-endian, a nested attribute, and one in network order",
            239,
            behind(
                "02 00 0000 0008 0001 0800 0100 000c 8012 0008 4003 00000001 0008 4005 00000001 0024 0009",
            ),
            key,
        ),
        plain(
            "netfilter log, no such type",
            239,
            behind("02 00 0000 0800 0121 00000000"),
            Err(NoKey::Malformed),
        ),
        plain(
            "netfilter log, no length",
            239,
            behind("02 00 0000 0000 0100"),
            Err(NoKey::Malformed),
        ),
        plain(
            "IP over InfiniBand",
            242,
            behind(&format!("{route} 0800 0000")),
            key,
        ),
        plain(
            "IP over InfiniBand, IPv6",
            242,
            behind6(&format!("{route} 86dd 0000")),
            key6,
        ),
        plain(
            "ipnet",
            226,
            behind(&format!("01 02 {}", ipnet("00000020"))),
            key,
        ),
        plain(
            "ipnet, IPv6",
            226,
            behind6(&format!("01 1a {}", ipnet("00000034"))),
            key6,
        ),
        plain(
            "ipnet, another family",
            226,
            behind(&format!("01 07 {}", ipnet("00000020"))),
            Err(NoKey::NotIp),
        ),
        plain(
            "LLC of three bytes",
            1,
            hex(&format!("{macs} 0003 e0e003")),
            Err(NoKey::NotIp),
        ),
        plain(
            "LLC of four bytes in a VLAN",
            1,
            hex(&format!("{macs} 8100 0064 0004 aaaa0300")),
            Err(NoKey::NotIp),
        ),
        plain(
            "cooked LLC of three bytes",
            113,
            hex("0000 0001 0006 00005e005301 0000 0004 f0f07f"),
            Err(NoKey::NotIp),
        ),
        plain(
            "cooked SNAP, cut",
            113,
            hex("0000 0001 0006 00005e005301 0000 0004 aaaa03"),
            Err(NoKey::Truncated),
        ),
    ]
}
