//! Frames with other headers: wireless LANs, headers between link and transport, tunnels.

use super::*;

/// 802.11 and the headers in front of it.
pub(super) fn wlan() -> Vec<Case> {
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

pub(super) fn headers() -> Vec<Case> {
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

pub(super) fn tunnels() -> Vec<Case> {
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
        case("ERSPAN I", gre("0000 88be", &frame), four(47), key),
        case(
            "ERSPAN II",
            gre("1000 88be 00000001 1000 0001 00000002", &frame),
            four(47),
            key,
        ),
        case(
            "ERSPAN II of a tagged frame, GRE with key",
            gre(
                "3000 88be 00000007 00000001 1064 1801 00000002",
                &cat(&[&frame[..12], &hex("8100 0064"), &frame[12..]]),
            ),
            four(47),
            key,
        ),
        case(
            "ERSPAN III",
            gre("1000 22eb 00000001 2000 0001 00000002 0000 0000", &frame),
            four(47),
            key,
        ),
        case(
            "ERSPAN III with a subheader",
            gre(
                "1000 22eb 00000001 2000 0001 00000002 0000 0001 04000000 00000000",
                &frame,
            ),
            four(47),
            key,
        ),
        case(
            "ERSPAN of version 3",
            gre("1000 88be 00000001 3000 0001 00000002", &frame),
            four(47),
            four(47),
        ),
        case(
            "VXLAN on Linux' port",
            over_udp(8472, "08000000 00000100", &frame),
            to(8472),
            key,
        ),
        case(
            "VXLAN-GPE, IPv4",
            over_udp(4790, "0c000001 00000100", &packet),
            to(4790),
            key,
        ),
        case(
            "VXLAN-GPE, IPv6",
            over_udp(4790, "0c000002 00000100", &packet6),
            to(4790),
            key6,
        ),
        case(
            "VXLAN-GPE, Ethernet",
            over_udp(4790, "0c000003 00000100", &frame),
            to(4790),
            key,
        ),
        case(
            "VXLAN-GPE of an unknown protocol",
            over_udp(4790, "0c000007 00000100", &frame),
            to(4790),
            to(4790),
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
