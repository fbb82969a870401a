//! Frames made by hand and their keys: a case for each link layer, header and tunnel.

use super::super::line_support::build::{cat, ether, hex, ip4, ip4_fragment, ip6, udp};
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

/// 802.11 and the headers in front of it.
fn wlan() -> Vec<Case> {
    let (packet, packet6) = (ip4(17, &udp(4)), ip6(17, &udp(4)));
    let key = Ok(ports(four(17), 5300, 40_000));
    let key6 = Ok(ports(six(17), 5300, 40_000));
    let not_ip = Err(NoKey::NotIp);
    let three = "0000 00005e005301 00005e005302 00005e005303";
    let frame = |kind: &str, rest: &str| {
        cat(&[
            &hex(kind),
            &hex(three),
            &hex(rest),
            &hex("aaaa03 000000 0800"),
            &packet,
        ])
    };
    let data = frame("0801", "0000");
    let padded = frame("8801", "0000 0000 0000");
    let (prism, avs) = (
        cat(&[&hex("44000000 90000000"), &[0; 136]]),
        cat(&[&hex("80211001 00000040"), &[0; 56]]),
    );
    let behind = |head: &str, frame: &[u8]| cat(&[&hex(head), frame]);
    vec![
        plain("802.11", 105, data.clone(), key),
        plain(
            "802.11, IPv6",
            105,
            cat(&[
                &hex("0802"),
                &hex(three),
                &hex("0000 aaaa03 000000 86dd"),
                &packet6,
            ]),
            key6,
        ),
        plain(
            "802.11, quality of service",
            105,
            frame("8801", "0000 0000"),
            key,
        ),
        plain(
            "802.11, four addresses",
            105,
            frame("0803", "0000 00005e005304"),
            key,
        ),
        plain(
            "802.11, high throughput control",
            105,
            frame("8881", "0000 0000 00000000"),
            key,
        ),
        plain(
            "802.11, aggregate",
            105,
            frame("8801", "0000 8000 00005e005305 00005e005306 0028"),
            key,
        ),
        plain("802.11, no data", 105, frame("4801", "0000"), not_ip),
        plain("802.11, encrypted", 105, frame("0841", "0000"), not_ip),
        plain("802.11, later fragment", 105, frame("0801", "0100"), not_ip),
        plain("802.11, beacon", 105, frame("8000", "0000"), not_ip),
        plain("radiotap", 127, behind("00 00 0800 00000000", &data), key),
        plain(
            "radiotap, timer",
            127,
            behind("00 00 1000 01000000 0000000000000000", &data),
            key,
        ),
        plain(
            "radiotap, padded",
            127,
            behind("00 00 0900 02000000 20", &padded),
            key,
        ),
        plain(
            "radiotap, timer, padded",
            127,
            behind("00 00 1100 03000000 0000000000000000 20", &padded),
            key,
        ),
        plain(
            "radiotap, more fields, padded",
            127,
            behind("00 00 0d00 02000080 00000000 20", &padded),
            key,
        ),
        plain(
            "radiotap, no length",
            127,
            behind("00 00 0700 00000000", &data),
            Err(NoKey::Malformed),
        ),
        plain("Prism", 119, cat(&[&prism, &data]), key),
        plain("AVS as Prism", 119, cat(&[&avs, &data]), key),
        plain("AVS", 163, cat(&[&avs, &data]), key),
        plain(
            "PPI, 802.11",
            192,
            behind("00 00 0800 69000000", &data),
            key,
        ),
        plain(
            "PPI, field, Ethernet",
            192,
            behind(
                "00 00 1000 01000000 3075 0400 00000000",
                &ether(0x0800, &packet),
            ),
            key,
        ),
        plain(
            "PPI, a link type without keys",
            192,
            behind("00 00 0800 93000000", &data),
            not_ip,
        ),
    ]
}

fn headers() -> Vec<Case> {
    let ether4 = |packet: &[u8]| ether(0x0800, packet);
    let ether6 = |next: u8, payload: &[u8]| ether(0x86dd, &ip6(next, payload));
    let udp = udp(4);
    let tcp = hex("01bb 9c40 000003e8 00000007 5010 0200 0000 0000");
    let four_udp = ports(four(17), 5300, 40_000);
    let six_udp = ports(six(17), 5300, 40_000);
    let mut options = ip4(17, &[&[1; 8][..], &udp].concat());
    options[0] = 0x47;
    let mut short_total = ip4(17, &udp);
    short_total[2..4].copy_from_slice(&[0, 23]);
    let mut no_total = ip4(17, &udp);
    no_total[2..4].copy_from_slice(&[0, 0]);
    let mut tiny_total = ip4(17, &udp);
    tiny_total[2..4].copy_from_slice(&[0, 19]);
    let mut total_in_options = options.clone();
    total_in_options[2..4].copy_from_slice(&[0, 27]);
    let mut cut_fragment = options[..24].to_vec();
    cut_fragment[6..8].copy_from_slice(&[0, 1]);
    let mut bad_length = ip4(17, &udp);
    bad_length[0] = 0x44;
    let mut no_length = ip6(17, &udp);
    no_length[4..6].copy_from_slice(&[0, 0]);
    let mut short_length = ip6(17, &udp);
    short_length[4..6].copy_from_slice(&[0, 3]);
    let behind = |head: &str| cat(&[&hex(head), &udp]);
    vec![
        plain(
            "TCP",
            1,
            ether4(&ip4(6, &tcp)),
            Ok(ports(four(6), 443, 40_000)),
        ),
        plain(
            "TCP, IPv6",
            1,
            ether6(6, &tcp),
            Ok(ports(six(6), 443, 40_000)),
        ),
        plain(
            "SCTP",
            1,
            ether4(&ip4(132, &tcp)),
            Ok(ports(four(132), 443, 40_000)),
        ),
        plain(
            "DCCP",
            1,
            ether4(&ip4(33, &tcp)),
            Ok(ports(four(33), 443, 40_000)),
        ),
        plain(
            "UDP-Lite",
            1,
            ether4(&ip4(136, &udp)),
            Ok(ports(four(136), 5300, 40_000)),
        ),
        plain(
            "ICMP",
            1,
            ether4(&ip4(1, &hex("0800 0000 0001 0001"))),
            Ok(four(1)),
        ),
        plain(
            "ICMPv6",
            1,
            ether6(58, &hex("8000 0000 0001 0001")),
            Ok(six(58)),
        ),
        plain(
            "ESP",
            1,
            ether4(&ip4(50, &hex("00000001 00000001 00000000"))),
            Ok(four(50)),
        ),
        plain("OSPF", 1, ether4(&ip4(89, &[2; 24])), Ok(four(89))),
        plain("options", 1, ether4(&options), Ok(four_udp)),
        plain(
            "first fragment",
            1,
            ether4(&ip4_fragment(17, 0x2000, &udp)),
            Ok(four_udp),
        ),
        plain(
            "later fragment",
            1,
            ether4(&ip4_fragment(17, 0x2001, &udp)),
            Ok(later(four(17))),
        ),
        plain(
            "last fragment",
            1,
            ether4(&ip4_fragment(17, 0x1fff, &udp)),
            Ok(later(four(17))),
        ),
        plain(
            "total length before the ports' end",
            1,
            ether4(&short_total),
            Ok(four(17)),
        ),
        plain("total length zero", 1, ether4(&no_total), Ok(four_udp)),
        plain(
            "total length in the header",
            1,
            ether4(&tiny_total),
            Err(NoKey::Malformed),
        ),
        plain(
            "total length in the options",
            1,
            ether4(&total_in_options),
            Err(NoKey::Malformed),
        ),
        plain(
            "options cut",
            1,
            ether4(&options[..27]),
            Err(NoKey::Malformed),
        ),
        plain(
            "options cut in a later fragment",
            1,
            ether4(&cut_fragment),
            Err(NoKey::Malformed),
        ),
        plain(
            "options at the end of the bytes",
            1,
            ether4(&options[..28]),
            Ok(four(17)),
        ),
        plain(
            "header length below five",
            1,
            ether4(&bad_length),
            Err(NoKey::Malformed),
        ),
        plain(
            "padding",
            1,
            ether4(&cat(&[&ip4(17, &[]), &[0xee; 26]])),
            Ok(four(17)),
        ),
        plain(
            "authentication",
            1,
            ether4(&ip4(51, &behind("1102 0000 00000001 00000001 00000000"))),
            Ok(four_udp),
        ),
        plain(
            "payload length zero",
            1,
            ether(0x86dd, &no_length),
            Ok(six_udp),
        ),
        plain(
            "payload length before the ports' end",
            1,
            ether(0x86dd, &short_length),
            Ok(six(17)),
        ),
        plain(
            "hop-by-hop",
            1,
            ether6(0, &behind("1100 0104 00000000")),
            Ok(six_udp),
        ),
        plain(
            "routing",
            1,
            ether6(43, &behind("1100 0000 00000000")),
            Ok(six_udp),
        ),
        plain(
            "destination options of 16 bytes",
            1,
            ether6(60, &behind("1101 010c 00000000 0000000000000000")),
            Ok(six_udp),
        ),
        plain(
            "IPv6 authentication",
            1,
            ether6(51, &behind("1102 0000 00000001 00000001 00000000")),
            Ok(six_udp),
        ),
        plain(
            "IPv6 first fragment",
            1,
            ether6(44, &behind("1100 0001 00000007")),
            Ok(six_udp),
        ),
        plain(
            "IPv6 atomic fragment",
            1,
            ether6(44, &behind("1100 0000 00000007")),
            Ok(six_udp),
        ),
        plain(
            "IPv6 later fragment",
            1,
            ether6(44, &behind("1100 0009 00000007")),
            Ok(later(six(17))),
        ),
        plain(
            "IPv6 later fragment of options",
            1,
            ether6(44, &behind("3c00 0008 00000007")),
            Ok(later(six(60))),
        ),
        plain(
            "four kinds of extension",
            1,
            ether6(
                0,
                &behind(
                    "2b00 0104 00000000 3c00 0000 00000000 2c00 0104 00000000 1100 0001 00000007",
                ),
            ),
            Ok(six_udp),
        ),
        plain(
            "extension cut by the payload length",
            1,
            ether6(0, &hex("1101 0104 00000000")),
            Ok(six(0)),
        ),
        plain("no next header", 1, ether6(59, &udp), Ok(six(59))),
        plain(
            "mobility message",
            1,
            ether6(135, &hex("3b00 0000 0000 0000")),
            Ok(six(135)),
        ),
        plain(
            "mobility with a packet behind",
            1,
            ether6(135, &behind("1100 0000 0000 0000")),
            Ok(six(135)),
        ),
    ]
}

fn tunnels() -> Vec<Case> {
    let (packet, key) = inside();
    let key6 = ports(six(17), 5300, 40_000);
    let packet6 = ip6(17, &udp(4));
    let frame = ether(0x0800, &packet);
    let to = |port: u16| ports(four(17), 12_345, port);
    let over_udp = |port: u16, head: &str, packet: &[u8]| {
        ether(0x0800, &ip4(17, &udp_to(port, &cat(&[&hex(head), packet]))))
    };
    let gre = |head: &str, packet: &[u8]| ether(0x0800, &ip4(47, &cat(&[&hex(head), packet])));
    let case = |name, data, outer, inner| Case {
        name,
        link: LinkType::ETHERNET,
        data,
        outer: Ok(outer),
        inner: Ok(inner),
    };
    let nest = |depth: usize| (0..depth).fold(packet.clone(), |inside, _| ip4(4, &inside));
    let mut cases = vec![
        case("IP in IP", ether(0x0800, &ip4(4, &packet)), four(4), key),
        case("6in4", ether(0x0800, &ip4(41, &packet6)), four(41), key6),
        case("4in6", ether(0x86dd, &ip6(4, &packet)), six(4), key),
        case(
            "6in6",
            ether(0x86dd, &ip6(41, &ip6(17, &udp(4)))),
            six(41),
            key6,
        ),
        case(
            "MPLS in IP",
            ether(0x0800, &ip4(137, &cat(&[&hex("00010140"), &packet]))),
            four(137),
            key,
        ),
        case("GRE", gre("0000 0800", &packet), four(47), key),
        case(
            "GRE over IPv6",
            ether(0x86dd, &ip6(47, &cat(&[&hex("0000 0800"), &packet]))),
            six(47),
            key,
        ),
        case(
            "GRE with checksum, key, sequence",
            gre("b000 86dd 00000000 00000001 00000002", &packet6),
            four(47),
            key6,
        ),
        case(
            "GRE with key",
            gre("2000 0800 00000001", &packet),
            four(47),
            key,
        ),
        case("GRE, bridged", gre("0000 6558", &frame), four(47), key),
        case(
            "GRE, MPLS",
            gre("0000 8847 00010140", &packet),
            four(47),
            key,
        ),
        case(
            "GRE with source route",
            gre("4000 0800 00000000 00000000", &packet),
            four(47),
            four(47),
        ),
        case(
            "PPTP",
            gre("3081 880b 0022 0001 00000001 00000000 ff03 0021", &packet),
            four(47),
            key,
        ),
        case(
            "PPTP, acknowledgment alone",
            gre("2081 880b 0000 0001 00000000", &[]),
            four(47),
            four(47),
        ),
        case(
            "VXLAN",
            over_udp(4789, "08000000 00000100", &frame),
            to(4789),
            key,
        ),
        case(
            "VXLAN without the I flag",
            over_udp(4789, "00000000 00000100", &frame),
            to(4789),
            to(4789),
        ),
        case(
            "VXLAN, ARP inside",
            over_udp(4789, "08000000 00000100", &ether(0x0806, &[0; 28])),
            to(4789),
            to(4789),
        ),
        case(
            "GENEVE",
            over_udp(6081, "0000 6558 00000100", &frame),
            to(6081),
            key,
        ),
        case(
            "GENEVE, options",
            over_udp(6081, "0200 0800 00000100 0000000000000000", &packet),
            to(6081),
            key,
        ),
        case(
            "GENEVE, version 1",
            over_udp(6081, "4000 6558 00000100", &frame),
            to(6081),
            to(6081),
        ),
        case(
            "GTP-U",
            over_udp(2152, "30ff 0024 00000001", &packet),
            to(2152),
            key,
        ),
        case(
            "GTP-U, sequence",
            over_udp(2152, "32ff 0028 00000001 00010000", &packet),
            to(2152),
            key,
        ),
        case(
            "GTP-U, extension",
            over_udp(2152, "34ff 002c 00000001 00000085 01000900", &packet),
            to(2152),
            key,
        ),
        case(
            "GTP-U, IPv6",
            over_udp(2152, "30ff 0038 00000001", &packet6),
            to(2152),
            key6,
        ),
        case(
            "GTP-U echo",
            over_udp(2152, "3201 0004 00000000 00010000", &[]),
            to(2152),
            to(2152),
        ),
        case(
            "fragment of a tunnel",
            ether(0x0800, &ip4_fragment(4, 1, &packet)),
            later(four(4)),
            later(four(4)),
        ),
        case("eight nestings", ether(0x0800, &nest(8)), four(4), key),
        case("nine nestings", ether(0x0800, &nest(9)), four(4), four(4)),
        case(
            "VXLAN, GRE, IPv6",
            over_udp(
                4789,
                "08000000 00000100",
                &ether(0x0800, &ip4(47, &cat(&[&hex("0000 86dd"), &packet6]))),
            ),
            to(4789),
            key6,
        ),
    ];
    // A tunnel behind a link layer that has no fast path.
    let mut cooked = hex("0000 0001 0006 00005e005301 0000 0800");
    cooked.extend(ip4(4, &packet));
    cases.push(Case {
        name: "cooked, IP in IP",
        link: LinkType(113),
        data: cooked,
        outer: Ok(four(4)),
        inner: Ok(key),
    });
    cases
}
