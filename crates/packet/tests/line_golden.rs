//! Expected lines: one packet made by hand for each protocol, also compared with tcpdump's lines for the same packets.

mod line_support;

use line_support::build::{cat, ether, hex, ip4, ip4_fragment, ip6, tcp, udp};
use line_support::compare::{self, Tally};
use line_support::{Packet, have_tcpdump};
use weir_packet::line::{Conversations, Detail, Style, write_line};
use weir_packet::{Frame, LinkType};

/// A link type, a frame and its line.
type Case = (LinkType, Vec<u8>, &'static str);

fn on_ether(kind: u16, payload: Vec<u8>, line: &'static str) -> Case {
    (LinkType::ETHERNET, ether(kind, &payload), line)
}

fn in_ip4(protocol: u8, payload: &[u8], line: &'static str) -> Case {
    on_ether(0x0800, ip4(protocol, payload), line)
}

fn in_ip6(next: u8, payload: &[u8], line: &'static str) -> Case {
    on_ether(0x86dd, ip6(next, payload), line)
}

fn transport() -> Vec<Case> {
    vec![
        in_ip4(
            17,
            &udp(4),
            "IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 4",
        ),
        in_ip6(
            17,
            &udp(4),
            "IP6 2001:db8::1.5300 > 2001:db8::2.40000: UDP, length 4",
        ),
        in_ip4(
            17,
            &hex("0001 0002 0064 0000"),
            "IP 10.0.0.1.1 > 10.0.0.2.2: UDP, bad length 92 > 0",
        ),
        in_ip4(
            17,
            &hex("0001 0002 0004 0000"),
            "IP 10.0.0.1.1 > 10.0.0.2.2: truncated-udplength 4",
        ),
        in_ip4(
            17,
            &hex("0001 0002 0008"),
            "IP 10.0.0.1.1 > 10.0.0.2.2: truncated-udp 6",
        ),
        in_ip4(
            6,
            &tcp(0x02, 0),
            "IP 10.0.0.1.443 > 10.0.0.2.40000: Flags [S], seq 1000, win 512, length 0",
        ),
        in_ip4(
            6,
            &tcp(0x10, 0),
            "IP 10.0.0.1.443 > 10.0.0.2.40000: Flags [.], ack 7, win 512, length 0",
        ),
        in_ip4(
            6,
            &tcp(0x18, 5),
            "IP 10.0.0.1.443 > 10.0.0.2.40000: Flags [P.], seq 1000:1005, ack 7, win 512, length 5",
        ),
        in_ip4(
            6,
            &tcp(0xff, 0),
            "IP 10.0.0.1.443 > 10.0.0.2.40000: Flags [FSRP.UEW], seq 1000, ack 7, win 512, urg 9, length 0",
        ),
        in_ip4(
            6,
            &tcp(0, 0),
            "IP 10.0.0.1.443 > 10.0.0.2.40000: Flags [none], win 512, length 0",
        ),
        in_ip6(
            6,
            &tcp(0x04, 0),
            "IP6 2001:db8::1.443 > 2001:db8::2.40000: Flags [R], seq 1000, win 512, length 0",
        ),
        in_ip4(
            132,
            &hex("0b80 0b80 00000001 00000000  0300 0010 00000000 00000000 00000000  0600 0004"),
            "IP 10.0.0.1.2944 > 10.0.0.2.2944: sctp (1) [SACK] [cum ack 0] [a_rwnd 0] [#gap acks 0] [#dup tsns 0]  (2) [ABORT] ",
        ),
        in_ip4(
            33,
            &hex("0001 0002 0400 0000 00 000000 00000000"),
            "IP 10.0.0.1.1 > 10.0.0.2.2: DCCP-Request, length 16",
        ),
        in_ip4(136, &udp(4), "IP 10.0.0.1 > 10.0.0.2:  ip-proto-136 12"),
    ]
}

fn control() -> Vec<Case> {
    // The packet that caused an error: UDP from 10.0.0.1.5300 to 10.0.0.2.40000.
    let quoted = ip4(17, &udp(0));
    let quoted6 = ip6(17, &udp(0));
    let with = |head: &str, quoted: &[u8]| cat(&[&hex(head), quoted]);
    let target = "fe80 0000 0000 0000 0000 0000 0000 0001";
    vec![
        in_ip4(
            1,
            &hex("0800 0000 0001 0002"),
            "IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 1, seq 2, length 8",
        ),
        in_ip4(
            1,
            &hex("0000 0000 0001 0002"),
            "IP 10.0.0.1 > 10.0.0.2: ICMP echo reply, id 1, seq 2, length 8",
        ),
        in_ip4(
            1,
            &with("0301 0000 00000000", &quoted),
            "IP 10.0.0.1 > 10.0.0.2: ICMP host 10.0.0.2 unreachable, length 36",
        ),
        in_ip4(
            1,
            &with("0303 0000 00000000", &quoted),
            "IP 10.0.0.1 > 10.0.0.2: ICMP 10.0.0.2 udp port 40000 unreachable, length 36",
        ),
        in_ip4(
            1,
            &with("0304 0000 000005dc", &quoted),
            "IP 10.0.0.1 > 10.0.0.2: ICMP 10.0.0.2 unreachable - need to frag (mtu 1500), length 36",
        ),
        in_ip4(
            1,
            &with("030d 0000 00000000", &quoted),
            "IP 10.0.0.1 > 10.0.0.2: ICMP host 10.0.0.2 unreachable - admin prohibited filter, length 36",
        ),
        in_ip4(
            1,
            &with("0501 0000 0a000003", &quoted),
            "IP 10.0.0.1 > 10.0.0.2: ICMP redirect 10.0.0.2 to host 10.0.0.3, length 36",
        ),
        in_ip4(
            1,
            &with("0b00 0000 00000000", &quoted),
            "IP 10.0.0.1 > 10.0.0.2: ICMP time exceeded in-transit, length 36",
        ),
        in_ip4(
            1,
            &hex("2900 0000 00000000"),
            "IP 10.0.0.1 > 10.0.0.2: ICMP type-#41, length 8",
        ),
        in_ip6(
            58,
            &hex("8000 0000 0001 0002"),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, echo request, id 1, seq 2, length 8",
        ),
        in_ip6(
            58,
            &hex(&format!("8700 0000 00000000 {target}")),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, neighbor solicitation, who has fe80::1, length 24",
        ),
        in_ip6(
            58,
            &hex(&format!("8800 0000 60000000 {target}")),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, neighbor advertisement, tgt is fe80::1, length 24",
        ),
        in_ip6(
            58,
            &hex("8500 0000 00000000"),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, router solicitation, length 8",
        ),
        in_ip6(
            58,
            &hex("8600 0000 40000708 00000000 00000000"),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, router advertisement, length 16",
        ),
        in_ip6(
            58,
            &with("0200 0000 00000500", &quoted6),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, packet too big, mtu 1280, length 56",
        ),
        in_ip6(
            58,
            &with("0104 0000 00000000", &quoted6),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, destination unreachable, unreachable port, 2001:db8::2 udp port 40000, length 56",
        ),
        in_ip6(
            58,
            &with("0100 0000 00000000", &quoted6),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, destination unreachable, unreachable route 2001:db8::2, length 56",
        ),
        in_ip6(
            58,
            &with("0300 0000 00000000", &quoted6),
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, time exceeded in-transit for 2001:db8::2, length 56",
        ),
        in_ip4(
            2,
            &hex("1164 0000 e0000016"),
            "IP 10.0.0.1 > 10.0.0.2: igmp query v2 [gaddr 224.0.0.22]",
        ),
        in_ip4(
            2,
            &hex("1600 0000 e0000016"),
            "IP 10.0.0.1 > 10.0.0.2: igmp v2 report 224.0.0.22",
        ),
        in_ip4(
            2,
            &hex("2200 0000 0000 0001"),
            "IP 10.0.0.1 > 10.0.0.2: igmp v3 report [invalid len 8]",
        ),
        in_ip4(
            89,
            &hex("0201 002c 00000000"),
            "IP 10.0.0.1 > 10.0.0.2: OSPFv2, Hello, length 8",
        ),
        in_ip4(
            103,
            &hex("2000 0000"),
            "IP 10.0.0.1 > 10.0.0.2: PIMv2, Hello, length 4",
        ),
        in_ip4(
            112,
            &hex("2101 6401 0001 0000"),
            "IP 10.0.0.1 > 10.0.0.2: VRRPv2, Advertisement, vrid 1, prio 100, length 8",
        ),
        in_ip4(
            88,
            &hex("0205 0000 00000000"),
            "IP 10.0.0.1 > 10.0.0.2:  [|eigrp]",
        ),
        in_ip4(
            200,
            &hex("00000000"),
            "IP 10.0.0.1 > 10.0.0.2:  ip-proto-200 4",
        ),
    ]
}

fn tunnels() -> Vec<Case> {
    let inner = ip4(17, &udp(0));
    let with = |head: &str, inner: &[u8]| cat(&[&hex(head), inner]);
    vec![
        in_ip4(
            4,
            &inner,
            "IP 10.0.0.1 > 10.0.0.2: IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        in_ip4(
            41,
            &ip6(17, &udp(0)),
            "IP 10.0.0.1 > 10.0.0.2: IP6 2001:db8::1.5300 > 2001:db8::2.40000: UDP, length 0",
        ),
        in_ip4(
            47,
            &with("0000 0800", &inner),
            "IP 10.0.0.1 > 10.0.0.2: GREv0, length 32: IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        in_ip4(
            47,
            &with("3000 0800 00000007 00000001", &inner),
            "IP 10.0.0.1 > 10.0.0.2: GREv0, key=0x7, seq 1, length 40: IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        in_ip4(
            50,
            &hex("00001000 00000001 aaaaaaaa"),
            "IP 10.0.0.1 > 10.0.0.2: ESP(spi=0x00001000,seq=0x1), length 12",
        ),
        in_ip4(
            51,
            &with(
                "1104 0000 00001000 00000002 00000000 00000000 00000000",
                &udp(0),
            ),
            "IP 10.0.0.1 > 10.0.0.2: AH(spi=0x00001000,seq=0x2,icv=0x000000000000000000000000): 5300 > 40000: UDP, length 0",
        ),
        in_ip4(
            108,
            &hex("0400 0003 aaaaaaaa"),
            "IP 10.0.0.1 > 10.0.0.2: IPComp(cpi=0x0003)",
        ),
        on_ether(
            0x8847,
            with("00010040 000111ff", &inner),
            "MPLS (label 16, tc 0, ttl 64) (label 17, tc 0, [S], ttl 255) IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        on_ether(
            0x8864,
            with("1100 0011 001e 0021", &inner),
            "PPPoE  [ses 0x11] IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        on_ether(
            0x8864,
            hex("1100 0011 000a c021 0101 0008 01040000"),
            "PPPoE  [ses 0x11] LCP, Conf-Request (0x01), id 1, length 10",
        ),
        on_ether(
            0x8863,
            hex("1109 0000 0004 0101 0000"),
            "PPPoE PADI [Service-Name]",
        ),
        on_ether(
            0x8100,
            with("6064 0800", &inner),
            "IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        on_ether(
            0x88a8,
            with("700a 8100 0014 0800", &inner),
            "IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
    ]
}

fn fragments_and_extensions() -> Vec<Case> {
    let options = |next: u8| cat(&[&[next, 0], &hex("0104 00000000")]);
    let fragment6 =
        |next: u8, field: u16| cat(&[&[next, 0], &field.to_be_bytes(), &hex("0000002a")]);
    vec![
        on_ether(
            0x0800,
            ip4_fragment(17, 0x2000, &udp(8)),
            "IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 8",
        ),
        on_ether(
            0x0800,
            ip4_fragment(17, 0x20b9, &[0; 520]),
            "IP 10.0.0.1 > 10.0.0.2: ip-proto-17",
        ),
        on_ether(
            0x0800,
            ip4_fragment(6, 0x00b9, &[0; 12]),
            "IP 10.0.0.1 > 10.0.0.2: ip-proto-6",
        ),
        in_ip6(
            44,
            &cat(&[&fragment6(17, 1), &udp(8)]),
            "IP6 2001:db8::1 > 2001:db8::2: frag (0|16) 5300 > 40000: UDP, length 8",
        ),
        in_ip6(
            44,
            &cat(&[&fragment6(17, 1480), &[0; 8]]),
            "IP6 2001:db8::1 > 2001:db8::2: frag (1480|8)",
        ),
        in_ip6(
            0,
            &cat(&[&options(17), &udp(0)]),
            "IP6 2001:db8::1 > 2001:db8::2: HBH 5300 > 40000: UDP, length 0",
        ),
        in_ip6(
            0,
            &cat(&[&options(60), &options(58), &hex("8500 0000 00000000")]),
            "IP6 2001:db8::1 > 2001:db8::2: HBH DSTOPT ICMP6, router solicitation, length 8",
        ),
        in_ip6(
            135,
            &hex("3b00 0500 00000000"),
            "IP6 2001:db8::1 > 2001:db8::2: mobility: BU",
        ),
        in_ip6(59, &[], "IP6 2001:db8::1 > 2001:db8::2: no next header"),
    ]
}

fn link_layer() -> Vec<Case> {
    let arp = |op: &str| {
        let ends = "00005e005301 0a000002 000000000000 0a000001";
        hex(&format!("0001 0800 06 04 {op} {ends}"))
    };
    let ip = ip4(17, &udp(0));
    let with = |head: &str| cat(&[&hex(head), &ip]);
    const LINE: &str = "IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0";
    const DATA: &str = "00:00:5e:00:53:02 > 00:00:5e:00:53:03";
    let beacon = "8000 0000 ffffffffffff 00005e005301 00005e005301 0000";
    vec![
        on_ether(
            0x0806,
            arp("0001"),
            "ARP, Request who-has 10.0.0.1 tell 10.0.0.2, length 28",
        ),
        on_ether(
            0x0806,
            arp("0002"),
            "ARP, Reply 10.0.0.2 is-at 00:00:5e:00:53:01, length 28",
        ),
        on_ether(
            0x8035,
            arp("0003"),
            "ARP, Reverse Request who-is 00:00:00:00:00:00 tell 00:00:5e:00:53:01, length 28",
        ),
        on_ether(
            0x8035,
            arp("0004"),
            "ARP, Reverse Reply 00:00:00:00:00:00 at 10.0.0.1, length 28",
        ),
        on_ether(0x88cc, hex("0207 0000"), "LLDP, length 4 [|lldp]"),
        on_ether(
            0x4242,
            hex("0000"),
            "00:00:5e:00:53:01 > 00:00:5e:00:53:02, ethertype Unknown (0x4242), length 16: \n\t0x0000:  0000                                     ..",
        ),
        on_ether(
            38,
            hex(
                "424203 0000 00 00 00 8000 00005e005301 00000000 8000 00005e005301 8001 0000 1400 0200 0f00",
            ),
            "STP 802.1d, Config, Flags [none], bridge-id 8000.00:00:5e:00:53:01.8001, length 35",
        ),
        on_ether(8, hex("aaaa03 00000c 2000"), "CDP, length 0"),
        on_ether(
            8,
            hex("aaaa03 123456 0001"),
            "00:00:5e:00:53:01 > 00:00:5e:00:53:02, SNAP, oui 0x123456, pid 0x0001, length 0: ",
        ),
        on_ether(
            4,
            hex("0608 03 00"),
            "LLC, dsap 0x06, ssap 0x08, ctrl 0x03, length 4",
        ),
        (LinkType::NULL, with("02000000"), LINE),
        (LinkType::NULL, with("00000002"), LINE),
        (LinkType::LOOP, with("00000002"), LINE),
        (
            LinkType::NULL,
            cat(&[&hex("1e000000"), &ip6(59, &[])]),
            "IP6 2001:db8::1 > 2001:db8::2: no next header",
        ),
        (LinkType::RAW, with(""), LINE),
        (LinkType::IPV4, with(""), LINE),
        (
            LinkType::LINUX_SLL,
            with("0004 0001 0006 00005e005301 0000 0800"),
            LINE,
        ),
        (
            LinkType::LINUX_SLL2,
            with("0800 0000 00000002 0001 04 06 00005e005301 0000"),
            LINE,
        ),
        (LinkType::PPP, with("ff03 0021"), LINE),
        (LinkType::PPP_SERIAL, with("0021"), LINE),
        (LinkType::PPP_WITH_DIR, with("01 ff03 0021"), LINE),
        (LinkType::C_HDLC, with("0f00 0800"), LINE),
        (
            LinkType::FRELAY,
            with("1841 03cc"),
            "Q.922, DLCI 100, IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        (
            LinkType::SLIP,
            with("00 45 0000000000000000000000000000"),
            LINE,
        ),
        (
            LinkType::IEEE802_11,
            hex(beacon),
            "802.11 Beacon, BSSID 00:00:5e:00:53:01, 00:00:5e:00:53:01 > ff:ff:ff:ff:ff:ff, length 24",
        ),
        (
            LinkType::IEEE802_11_RADIO,
            hex(&format!("0000 0900 02000000 00 {beacon}")),
            "802.11 Beacon, BSSID 00:00:5e:00:53:01, 00:00:5e:00:53:01 > ff:ff:ff:ff:ff:ff, length 24",
        ),
        (
            LinkType::IEEE802_11,
            with("0801 0000 00005e005301 00005e005302 00005e005303 0000 aaaa03 000000 0800"),
            Box::leak(format!("802.11 Data, {DATA}, {LINE}").into_boxed_str()),
        ),
        (LinkType(147), hex("0102"), "link type 147, length 2: 0102"),
        (
            LinkType(189),
            hex("0102"),
            "link type 189 (USB_LINUX), length 2: 0102",
        ),
    ]
}

fn all() -> Vec<Case> {
    [
        transport(),
        control(),
        tunnels(),
        fragments_and_extensions(),
        link_layer(),
    ]
    .concat()
}

#[test]
fn each_protocol_has_its_line() {
    let mut wrong = Vec::new();
    for (link, data, line) in all() {
        let printed = Packet::whole(data).line(link, &Style::default());
        if printed != line {
            wrong.push(format!("{printed}\nnot\n{line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn link_headers() {
    let style = Style {
        link_header: true,
        ..Style::default()
    };
    let ip = ip4(17, &udp(0));
    let cases = [
        (
            LinkType::ETHERNET,
            ether(0x8100, &cat(&[&hex("6064 0800"), &ip])),
            "00:00:5e:00:53:01 > 00:00:5e:00:53:02, ethertype 802.1Q (0x8100), length 46: vlan 100, p 3, \
             ethertype IPv4 (0x0800), 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        (
            LinkType::LINUX_SLL,
            cat(&[&hex("0004 0001 0006 00005e005301 0000 0800"), &ip]),
            "Out 00:00:5e:00:53:01 ethertype IPv4 (0x0800), length 44: 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        (
            LinkType::LINUX_SLL2,
            cat(&[&hex("0800 0000 00000002 0001 04 06 00005e005301 0000"), &ip]),
            "Out ifindex 2 00:00:5e:00:53:01 ethertype IPv4 (0x0800), length 48: \
             10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
        (
            LinkType::NULL,
            cat(&[&hex("02000000"), &ip]),
            "AF IPv4 (2), length 32: 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0",
        ),
    ];
    for (link, data, line) in cases {
        assert_eq!(Packet::whole(data).line(link, &style), line);
    }
}

#[test]
fn cut_packets_say_so() {
    let whole = ether(0x0800, &ip4(6, &tcp(0x18, 100)));
    let cut = |captured: usize| {
        let packet = Packet {
            data: whole[..captured].to_vec(),
            wire_len: whole.len() as u32,
        };
        packet.line(LinkType::ETHERNET, &Style::default())
    };
    const ENDS: &str = "IP 10.0.0.1.443 > 10.0.0.2.40000:";
    assert_eq!(
        cut(96),
        format!("{ENDS} Flags [P.], seq 1000:1100, ack 7, win 512, length 100")
    );
    assert_eq!(cut(40), format!("{ENDS}  [|tcp]"));
    assert_eq!(cut(36), "IP 10.0.0.1 > 10.0.0.2: [|tcp]");
    assert_eq!(cut(30), "IP  [|ip]");
    assert_eq!(cut(0), " [|ether]");
}

#[test]
fn lying_headers() {
    let line = |data: Vec<u8>| Packet::whole(data).line(LinkType::RAW, &Style::default());
    let mut long = ip4(17, &udp(0));
    long[3] += 100;
    assert_eq!(
        line(long),
        "IP truncated-ip - 100 bytes missing! 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 0"
    );
    let mut short = ip4(17, &udp(0));
    short[3] = 19;
    assert_eq!(line(short), "IP bad-len 19");
    let mut offloaded = ip4(6, &tcp(0x10, 9));
    (offloaded[2], offloaded[3]) = (0, 0);
    let text =
        "IP 10.0.0.1.443 > 10.0.0.2.40000: Flags [.], seq 1000:1009, ack 7, win 512, length 9";
    assert_eq!(line(offloaded), text);
    assert_eq!(line(hex("4400 0000")), "IP  [|ip]");
    assert_eq!(line(vec![0x44; 20]), "IP bad-hlen 16");
    // tcpdump 4.99 prints of UDP neither addresses nor protocol if 23 of the 60 bytes of the header are captured.
    let mut cut = ip4(17, &udp(0))[..23].to_vec();
    (cut[0], cut[3]) = (0x4f, 100);
    assert_eq!(
        line(cut),
        "IP truncated-ip - 77 bytes missing!  [remaining caplen(23) < header length(60)] [|ip]"
    );
}

/// The lines of a conversation from 10.0.0.1.443 to 10.0.0.2.40000: `(from the first end, flags, seq, ack)` of each segment.
fn conversation(segments: &[(bool, u8, u32, u32)], table: &mut Conversations) -> Vec<String> {
    let style = Style::default();
    let lines = segments.iter().map(|&(forth, flags, seq, ack)| {
        let mut packet = ip4(6, &tcp(flags, 1));
        packet[24..28].copy_from_slice(&seq.to_be_bytes());
        packet[28..32].copy_from_slice(&ack.to_be_bytes());
        if !forth {
            let (src, dst) = (packet[12..16].to_vec(), packet[16..20].to_vec());
            packet[12..16].copy_from_slice(&dst);
            packet[16..20].copy_from_slice(&src);
            packet[20..24].rotate_left(2);
        }
        let frame = Frame {
            data: &packet,
            wire_len: packet.len() as u32,
            interface: 0,
        };
        let mut line = String::new();
        write_line(&mut line, LinkType::RAW, &frame, &style, table);
        line.split(", ")
            .filter(|part| part.contains("seq ") || part.contains("ack "))
            .collect::<Vec<_>>()
            .join(", ")
    });
    lines.collect()
}

#[test]
fn sequence_numbers_are_relative_to_the_start() {
    let (syn, synack, ack) = (0x02, 0x12, 0x10);
    let mut table = Conversations::new();
    let segments = [
        (false, syn, u32::MAX, 0),
        (true, synack, 900, 0),
        (false, ack, 0, 901),
        (true, ack, 901, 5),
        (false, ack, 2, 900),
        (true, synack, 7, 20),
        (true, ack, 9, 20),
    ];
    let lines = conversation(&segments, &mut table);
    assert_eq!(
        lines,
        [
            "seq 4294967295:0",
            "seq 900:901, ack 0",
            "seq 1:2, ack 1",
            "seq 1:2, ack 6",
            "seq 3:4, ack 0",
            "seq 7:8, ack 20",
            "seq 2:3, ack 1",
        ]
    );
    table.clear();
    assert_eq!(
        conversation(&[(true, ack, 9, 20)], &mut table),
        ["seq 9:10, ack 20"]
    );
    assert_eq!(table.evicted(), 0);
}

#[test]
fn conversations_beyond_the_bound_begin_anew() {
    let mut table = Conversations::new();
    let mut packet = ip4(6, &tcp(0x10, 1));
    let mut line = String::new();
    let conversations = 3 * Conversations::MOST as u32;
    for number in 0..conversations {
        packet[12..16].copy_from_slice(&number.to_be_bytes());
        let frame = Frame {
            data: &packet,
            wire_len: packet.len() as u32,
            interface: 0,
        };
        line.clear();
        write_line(
            &mut line,
            LinkType::RAW,
            &frame,
            &Style::default(),
            &mut table,
        );
        assert!(line.contains("seq 1000:1001, ack 7,"), "{line}");
    }
    assert!(table.evicted() >= u64::from(conversations) - Conversations::MOST as u64);
    line.clear();
    let frame = Frame {
        data: &packet,
        wire_len: packet.len() as u32,
        interface: 0,
    };
    write_line(
        &mut line,
        LinkType::RAW,
        &frame,
        &Style::default(),
        &mut table,
    );
    assert!(
        line.contains("seq 0:1, ack 1,"),
        "the last is remembered: {line}"
    );
}

#[test]
fn details_of_a_packet() {
    let line = |detail, data: Vec<u8>| {
        let style = Style {
            detail,
            ..Style::default()
        };
        Packet::whole(data).line(LinkType::RAW, &style)
    };
    assert_eq!(
        line(Detail::Quiet, ip4(6, &tcp(0x18, 5))),
        "IP 10.0.0.1.443 > 10.0.0.2.40000: tcp 5"
    );
    assert_eq!(
        line(Detail::Quiet, ip4(17, &udp(4))),
        "IP 10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 4"
    );
    assert_eq!(
        line(Detail::Verbose, ip4(17, &udp(4))),
        "IP (tos 0x0, ttl 64, id 7, offset 0, flags [DF], proto UDP (17), length 32, bad cksum 0 (->26c4)!)\n    \
         10.0.0.1.5300 > 10.0.0.2.40000: UDP, length 4"
    );
}

#[test]
fn tunnels_end_somewhere() {
    let mut packet = udp(0);
    let mut protocol = 17;
    for _ in 0..40 {
        packet = ip4(protocol, &packet);
        protocol = 4;
    }
    let line = Packet::whole(packet).line(LinkType::RAW, &Style::default());
    assert!(line.ends_with("IP 10.0.0.1 > 10.0.0.2: ..."), "{line}");
}

#[test]
fn tcpdump_agrees_on_every_packet_made_here() {
    if !have_tcpdump("tcpdump_agrees_on_every_packet_made_here") {
        return;
    }
    let mut tally = Tally::default();
    for (link, data, line) in all() {
        // tcpdump has no printer for these link types.
        if [LinkType(147), LinkType(189)].contains(&link) {
            continue;
        }
        compare::all(&mut tally, line, link, &[Packet::whole(data)]);
    }
    tally.report(0.0);
    let [equal, all] = tally.total();
    assert!(100 * equal >= 60 * all, "{equal} of {all} lines equal");
    assert!(tally.total()[1] >= 280, "too little was compared");
}
