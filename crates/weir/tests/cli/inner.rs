//! `--inner`: expressions applied to packets behind tags and inside tunnels. The oracle is tcpdump on packets from which the simplest
//! code has taken everything around them.

use crate::capture::net::Net;
use crate::measure::{ipv4, ipv6, udp_header};
use crate::support::*;

const ETHERNET: u32 = 1;
const RAW: u32 = 101;

fn half(data: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes([
        *data.get(at)?,
        *data.get(at + 1)?,
    ])))
}

/// Payload of an EtherType with its link type (raw IP or Ethernet); `None` for other payloads.
fn of_type(kind: usize, data: &[u8]) -> Option<(u32, &[u8])> {
    match kind {
        0x0800 | 0x86dd => Some((RAW, data)),
        0x6558 => Some((ETHERNET, data)),
        0x8100 | 0x88a8 => of_type(half(data, 2)?, data.get(4..)?),
        // A bit marks the last MPLS label; the first nibble after it is the IP version.
        0x8847 if data.get(2)? & 1 == 0 => of_type(0x8847, data.get(4..)?),
        0x8847 => Some((RAW, data.get(4..)?)),
        0x8864 => of_type(0x880b, data.get(6..)?),
        0x8903 => Some((ETHERNET, data.get(2..)?)),
        // PPP, with or without the two bytes of address and control.
        0x880b => match data {
            [0xff, 3, 0, 0x21 | 0x57, rest @ ..]
            | [0, 0x21 | 0x57, rest @ ..]
            | [0x21 | 0x57, rest @ ..] => Some((RAW, rest)),
            _ => None,
        },
        _ => None,
    }
}

/// IP packet of a frame.
fn ip_of(link: u32, data: &[u8]) -> Option<&[u8]> {
    if link == RAW {
        return Some(data);
    }
    let (_, ip) = of_type(half(data, 12)?, data.get(14..)?).filter(|(link, _)| *link == RAW)?;
    Some(ip)
}

/// Protocol and payload of an IP packet, unless it is a later fragment.
fn transport(ip: &[u8]) -> Option<(u8, &[u8])> {
    let until = |length: usize, rest: &'_ [u8]| {
        if length == 0 {
            rest.len()
        } else {
            length.min(rest.len())
        }
    };
    match ip.first()? >> 4 {
        4 if ip.len() >= 20 && ip[0] & 15 >= 5 => {
            let header = usize::from(ip[0] & 15) * 4;
            (half(ip, 6)? & 0x1fff == 0).then_some(())?;
            Some((ip[9], ip.get(header..until(half(ip, 2)?, ip))?))
        }
        6 if ip.len() >= 40 => {
            let length = half(ip, 4)?;
            let rest = &ip[..if length == 0 {
                ip.len()
            } else {
                (40 + length).min(ip.len())
            }];
            let (mut next, mut at) = (ip[6], 40);
            while matches!(next, 0 | 43 | 44 | 60) {
                if next == 44 && half(rest, at + 2)? >> 3 != 0 {
                    return None;
                }
                let length = if next == 44 {
                    0
                } else {
                    usize::from(*rest.get(at + 1)?)
                };
                (next, at) = (*rest.get(at)?, at + 8 + 8 * length);
            }
            Some((next, rest.get(at..)?))
        }
        _ => None,
    }
}

/// Link type and bytes of the packet inside an IP packet, if that is a tunnel.
fn carried(ip: &[u8]) -> Option<(u32, &[u8])> {
    let (protocol, data) = transport(ip)?;
    match protocol {
        4 | 41 => Some((RAW, data)),
        137 => of_type(0x8847, data),
        47 => {
            let flags = half(data, 0)?;
            let mut at = 4;
            let fields: &[usize] = match flags & 7 {
                0 if flags & 0x4000 == 0 => &[0x8000, 0x2000, 0x1000],
                1 => &[0x2000, 0x1000, 0x80],
                _ => return None,
            };
            at += 4 * fields.iter().filter(|&&field| flags & field != 0).count();
            match (half(data, 2)?, data.get(at..)?) {
                (0x88be, mirrored) if flags & 0x1000 == 0 => Some((ETHERNET, mirrored)),
                (0x88be, mirrored) => Some((ETHERNET, mirrored.get(8..)?)),
                (0x22eb, mirrored) => {
                    let more = usize::from(mirrored.get(11)? & 1) * 8;
                    Some((ETHERNET, mirrored.get(12 + more..)?))
                }
                (kind, rest) => of_type(kind, rest),
            }
        }
        17 => match (half(data, 2)?, data.get(8..)?) {
            (4789 | 8472, vxlan) => {
                (*vxlan.first()? & 8 != 0).then(|| vxlan.get(8..).map(|rest| (ETHERNET, rest)))?
            }
            (6081, geneve) if *geneve.first()? >> 6 == 0 => of_type(
                half(geneve, 2)?,
                geneve.get(8 + 4 * usize::from(geneve[0] & 63)..)?,
            ),
            (2152, gtp) if *gtp.first()? >> 4 == 3 && *gtp.get(1)? == 255 => {
                if gtp[0] & 7 == 0 {
                    return Some((RAW, gtp.get(8..)?));
                }
                let (mut next, mut at) = (if gtp[0] & 4 != 0 { *gtp.get(11)? } else { 0 }, 12);
                while next != 0 {
                    let words = usize::from(*gtp.get(at)?);
                    next = *gtp.get(at + (4 * words).checked_sub(1)?)?;
                    at += 4 * words;
                }
                Some((RAW, gtp.get(at..)?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// An IP packet without IPv6 extension headers and authentication headers in front of its transport.
fn shortened(ip: &[u8]) -> Vec<u8> {
    let is_v6 = ip[0] >> 4 == 6;
    let fixed = if is_v6 {
        40
    } else {
        usize::from(ip[0] & 15) * 4
    };
    let (length_at, protocol_at) = if is_v6 { (4, 6) } else { (2, 9) };
    let claimed = half(ip, length_at).unwrap_or(0);
    let (mut next, mut at) = (ip[protocol_at], fixed);
    let is_later = !is_v6 && half(ip, 6).unwrap_or(0) & 0x1fff != 0;
    while let Some(&[following, length, ..]) = ip.get(at..).filter(|_| !is_later) {
        let more = match next {
            0 | 43 | 60 if is_v6 => 8 * (usize::from(length) + 1),
            44 if is_v6 && half(ip, at + 2).is_some_and(|offset| offset >> 3 == 0) => 8,
            51 => 4 * (usize::from(length) + 2),
            _ => break,
        };
        if at + more > ip.len() {
            break;
        }
        (next, at) = (following, at + more);
    }
    let mut header = ip[..fixed].to_vec();
    header[protocol_at] = next;
    let left = claimed.saturating_sub(at - fixed) as u16;
    header[length_at..length_at + 2].copy_from_slice(&left.to_be_bytes());
    [&header, &ip[at..]].concat()
}

/// A packet without all that is around it: link type and bytes.
fn stripped(frame: &[u8]) -> (u32, Vec<u8>) {
    let (link, data) = opened(frame);
    let is_ip = |ip: &&[u8]| match ip.first().map_or(0, |first| first >> 4) {
        4 => ip.len() >= 4 * usize::from(ip[0] & 15) && ip.len() >= 20 && ip[0] & 15 >= 5,
        6 => ip.len() >= 40,
        _ => false,
    };
    match (link, ip_of(link, data).filter(is_ip)) {
        (RAW, Some(ip)) => (RAW, shortened(ip)),
        (_, Some(ip)) => {
            let kind: &[u8] = if ip[0] >> 4 == 6 {
                &[0x86, 0xdd]
            } else {
                &[8, 0]
            };
            (ETHERNET, [&data[..12], kind, &shortened(ip)].concat())
        }
        (link, None) => {
            let mut data = data.to_vec();
            while link == ETHERNET && matches!(half(&data, 12), Some(0x8100 | 0x88a8)) {
                data.drain(12..16);
            }
            (link, data)
        }
    }
}

/// The innermost frame of an Ethernet frame: link type and bytes.
fn opened(frame: &[u8]) -> (u32, &[u8]) {
    let mut innermost = (ETHERNET, frame);
    for _ in 0..8 {
        let Some((link, data)) = ip_of(innermost.0, innermost.1).and_then(carried) else {
            break;
        };
        let Some(ip) = ip_of(link, data) else { break };
        // The inner packet must have addresses.
        let whole = match ip.first().map_or(0, |first| first >> 4) {
            4 => ip.len() >= 20 && ip[0] & 15 >= 5,
            6 => ip.len() >= 40,
            _ => false,
        };
        if !whole {
            break;
        }
        innermost = if link == ETHERNET {
            (link, data)
        } else {
            (RAW, ip)
        };
    }
    innermost
}

/// A pcap of complete packets of one link type, with their numbers as seconds.
fn pcap_of<'a>(link: u32, packets: impl Iterator<Item = (usize, &'a [u8])>) -> Vec<u8> {
    let mut bytes = pcap_header(262_144, link);
    packets.for_each(|(number, data)| bytes.extend(pcap_record(number as u32, data)));
    bytes
}

/// Numbers of the packets that tcpdump prints.
fn tcpdump(file: &str, expression: &str) -> Vec<usize> {
    let done = tool("tcpdump", ["-n", "-tt", "-r", file, expression]).ok();
    let text = done.text();
    // A packet may take several lines; further lines begin with a blank.
    let lines = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines
        .filter_map(|line| line.split('.').next()?.parse().ok())
        .collect()
}

/// Numbers of the packets whose inner packet matches: tcpdump's answer on the stripped packets.
fn inside(temp: &Temp, frames: &[Vec<u8>], expression: &str) -> Vec<usize> {
    let mut matching = Vec::new();
    for (link, name) in [(ETHERNET, "ethernet.pcap"), (RAW, "raw.pcap")] {
        let of_link = frames
            .iter()
            .enumerate()
            .map(|(i, frame)| (i, stripped(frame)))
            .filter(|(_, (of, _))| *of == link);
        let of_link: Vec<(usize, Vec<u8>)> = of_link.map(|(i, (_, data))| (i, data)).collect();
        let packets = of_link.iter().map(|(i, data)| (*i, data.as_slice()));
        let file = temp.file(name, &pcap_of(link, packets));
        matching.extend(tcpdump(&file, expression));
    }
    matching.sort_unstable();
    matching
}

const EXPRESSIONS: [&str; 9] = [
    "udp",
    "tcp",
    "ip",
    "ip6",
    "icmp or icmp6",
    "port 53 or port 80 or port 7",
    "host 10.1.0.1 or net 10.2.0.0/16 or host 192.168.1.1",
    "len > 90",
    "not udp and not tcp",
];

/// Compares the packets written by `weir filter --inner` with the oracle's numbers.
#[track_caller]
fn compare(temp: &Temp, frames: &[Vec<u8>], context: &str) {
    let file = temp.file(
        "whole.pcap",
        &pcap_of(ETHERNET, frames.iter().map(Vec::as_slice).enumerate()),
    );
    let out = temp.at("out.pcap");
    for expression in EXPRESSIONS {
        let wanted = inside(temp, frames, expression);
        for workers in ["1", "3"] {
            let done = weir([
                "filter",
                "--inner",
                expression,
                &file,
                "-w",
                &out,
                "--workers",
                workers,
                "--stats",
            ])
            .ok();
            let (_, found) = parse_pcap(&std::fs::read(&out).unwrap());
            let numbers: Vec<usize> = found
                .iter()
                .map(|record| (record.time_ns / 1_000_000_000) as usize)
                .collect();
            assert_eq!(numbers, wanted, "{context}: {expression}: {}", done.err);
            assert!(
                found
                    .iter()
                    .zip(&wanted)
                    .all(|(record, &i)| record.data == frames[i]),
                "{context}: {expression}"
            );
        }
        let counts = [
            "filter", "--inner", "--count", "--invert", expression, &file,
        ];
        assert_eq!(
            weir(counts).ok().count() as usize,
            frames.len() - wanted.len(),
            "{context}: not {expression}"
        );
        let split = format!("x={expression}");
        let counts = weir(["filter", "--inner", "--count", "", &file, "--split", &split])
            .ok()
            .text();
        assert_eq!(
            counts,
            format!("{}\n{} x\n", frames.len(), wanted.len()),
            "{context}: a split by {expression}"
        );
    }
}

/// Packets without link header, to be put into tunnels.
fn payloads() -> Vec<Vec<u8>> {
    let udp = |port| [udp_header(4000, port), vec![0xab; 30]].concat();
    let tcp: Vec<u8> = [
        &[0x1f, 0x90, 0, 80][..],
        &[0; 8],
        &[0x50, 2, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let ip = |frame: Vec<u8>| frame[14..].to_vec();
    vec![
        ip(ipv4([10, 1, 0, 1], [10, 2, 0, 9], 17, 0, &udp(53))),
        ip(ipv4([10, 3, 0, 1], [192, 168, 1, 1], 6, 0, &tcp)),
        ip(ipv4(
            [10, 1, 0, 1],
            [10, 3, 0, 2],
            1,
            0,
            &[8, 0, 0, 0, 0, 1, 0, 1],
        )),
        ip(ipv4([10, 4, 0, 1], [10, 2, 1, 1], 17, 5, &[1; 24])),
        ip(ipv6("2001:db8::1", "2001:db8::2", 17, &udp(7))),
        ip(ipv6("2001:db8::1", "2001:db8::3", 6, &tcp)),
        // Options, then a first fragment; a later one.
        ip(ipv6(
            "2001:db8::1",
            "2001:db8::4",
            0,
            &[
                &[44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 1][..],
                &udp(53),
            ]
            .concat(),
        )),
        ip(ipv6(
            "2001:db8::1",
            "2001:db8::4",
            44,
            &[&[17, 0, 0, 0x21, 0, 0, 0, 1][..], &udp(53)].concat(),
        )),
        ip(ipv6(
            "2001:db8::1",
            "2001:db8::3",
            58,
            &[128, 0, 0, 0, 0, 1, 0, 1],
        )),
    ]
}

/// The packet in each kind of tunnel, for each pair of outer addresses.
fn tunnels(ip: &[u8]) -> Vec<Vec<u8>> {
    let is_v6 = ip[0] >> 4 == 6;
    let kind: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
    let ethernet = [&[2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4][..], &kind, ip].concat();
    let tagged = [&ethernet[..12], &[0x81, 0, 0, 7], &ethernet[12..]].concat();
    let udp_to = |port: u16, message: &[&[u8]]| {
        let message = message.concat();
        [
            &55_000u16.to_be_bytes()[..],
            &port.to_be_bytes(),
            &(8 + message.len() as u16).to_be_bytes(),
            &[0, 0],
            &message,
        ]
        .concat()
    };
    let gre = |flags: u16, kind: [u8; 2], rest: &[&[u8]]| {
        [&flags.to_be_bytes()[..], &kind, &rest.concat()].concat()
    };
    let outer = [([172, 16, 0, 1], [172, 16, 0, 2])];
    let mut carried: Vec<(u8, Vec<u8>)> = vec![
        (if is_v6 { 41 } else { 4 }, ip.to_vec()),
        (47, gre(0, kind, &[ip])),
        (47, gre(0xb000, kind, &[&[0; 12], ip])),
        (47, gre(0, [0x65, 0x58], &[&ethernet])),
        (
            47,
            gre(
                0x3001,
                [0x88, 0x0b],
                &[&[0; 8], &[0xff, 3, 0, if is_v6 { 0x57 } else { 0x21 }], ip],
            ),
        ),
        (47, gre(0, [0x88, 0x47], &[&[0, 1, 0, 64, 0, 2, 1, 64], ip])),
        (137, [&[0, 1, 1, 64], ip].concat()),
        (17, udp_to(4789, &[&[8, 0, 0, 0, 0, 0, 5, 0], &ethernet])),
        (17, udp_to(4789, &[&[8, 0, 0, 0, 0, 0, 5, 0], &tagged])),
        (17, udp_to(8472, &[&[8, 0, 0, 0, 0, 0, 5, 0], &ethernet])),
        (47, gre(0, [0x88, 0xbe], &[&tagged])),
        (
            47,
            gre(
                0x1000,
                [0x88, 0xbe],
                &[&[0, 0, 0, 1, 0x10, 0, 0, 1, 0, 0, 0, 2], &ethernet],
            ),
        ),
        (
            47,
            gre(
                0x1000,
                [0x22, 0xeb],
                &[
                    &[0, 0, 0, 1, 0x20, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1],
                    &[4; 8],
                    &ethernet,
                ],
            ),
        ),
        (
            17,
            udp_to(
                6081,
                &[&[1, 0, 0x65, 0x58, 0, 0, 5, 0, 0, 0, 0, 0], &ethernet],
            ),
        ),
        (
            17,
            udp_to(6081, &[&[&[0, 0][..], &kind].concat(), &[0, 0, 5, 0], ip]),
        ),
        (17, udp_to(2152, &[&[0x30, 255, 0, 0, 0, 0, 0, 9], ip])),
        (
            17,
            udp_to(
                2152,
                &[
                    &[0x34, 255, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0x85, 1, 0, 0, 0],
                    ip,
                ],
            ),
        ),
        // No tunnels: a required flag is missing, a message carries no packet, or the port is another one.
        (17, udp_to(4789, &[&[0, 0, 0, 0, 0, 0, 5, 0], &ethernet])),
        (17, udp_to(2152, &[&[0x30, 1, 0, 0, 0, 0, 0, 9], ip])),
        (17, udp_to(53, &[ip])),
    ];
    carried.push((
        17,
        udp_to(4789, &[&[8, 0, 0, 0, 0, 0, 5, 0], &ethernet[..20]]),
    ));
    let mut frames = Vec::new();
    for (src, dst) in outer {
        for (protocol, data) in &carried {
            frames.push(ipv4(src, dst, *protocol, 0, data));
            frames.push(ipv6("fd00::1", "fd00::2", *protocol, data));
        }
    }
    frames
}

#[test]
fn an_inner_expression_answers_what_tcpdump_says_of_stripped_packets() {
    if !have(
        "an_inner_expression_answers_what_tcpdump_says_of_stripped_packets",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for payload in payloads() {
        let kind: &[u8] = if payload[0] >> 4 == 6 {
            &[0x86, 0xdd]
        } else {
            &[8, 0]
        };
        frames.push([&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], kind, &payload].concat());
        let once = tunnels(&payload);
        // Tunnels in tunnels, VLAN tags around tunnels, padding after tunnels.
        for frame in &once {
            frames.extend(tunnels(&frame[14..]).into_iter().step_by(5));
            frames.push([&frame[..12], &[0x81, 0, 0, 9], &frame[12..]].concat());
            frames.push([&frame[..], &[0; 7]].concat());
        }
        frames.extend(once);
    }
    // A frame without IP.
    frames.push(
        [
            &[0xff; 12][..],
            &[8, 6],
            &[0, 1, 8, 0, 6, 4, 0, 1],
            &[0; 20],
        ]
        .concat(),
    );
    assert!(frames.len() > 1000);
    compare(&temp, &frames, "tunnels made here");
}

#[test]
fn inner_expressions_agree_with_tcpdump_on_the_captures() {
    let test = "inner_expressions_agree_with_tcpdump_on_the_captures";
    if !have(test, &["tcpdump", "editcap"]) {
        return;
    }
    let temp = Temp::new();
    let mut entered = 0;
    for path in captures(test) {
        // Only captures of Ethernet with uncut packets, because a pcap of stripped packets then has their lengths.
        let about = weir(["info", "--json", s(&path)]).text();
        if !about.contains("\"linktypes\":[\"EN10MB\"]") {
            continue;
        }
        let copy = temp.at("copy.pcap");
        weir(["filter", "", s(&path), "-w", &copy]);
        let frames: Vec<Vec<u8>> = parse_pcap(&std::fs::read(&copy).unwrap())
            .1
            .into_iter()
            .filter(|record| record.data.len() == record.wire_len as usize)
            .map(|record| record.data)
            .collect();
        let tunnelled = frames
            .iter()
            .filter(|frame| stripped(frame).1.len() < frame.len())
            .count();
        if tunnelled > 0 {
            entered += tunnelled;
            compare(&temp, &frames, s(&path));
        }
    }
    assert!(
        entered > 0 || captures(test).is_empty(),
        "no capture holds a tunnel"
    );
}

/// The packet behind tags, labels and PPPoE, and what the frame around has in addition.
fn behind(ip: &[u8]) -> Vec<Vec<u8>> {
    let is_v6 = ip[0] >> 4 == 6;
    let kind: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
    let ppp: [u8; 2] = if is_v6 { [0, 0x57] } else { [0, 0x21] };
    let macs = [2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4];
    let frame = |head: &[u8]| [&macs[..], head, ip].concat();
    let pppoe = [
        &[0x88, 0x64, 0x11, 0, 0, 7][..],
        &(ip.len() as u16 + 2).to_be_bytes(),
        &ppp,
    ]
    .concat();
    vec![
        frame(&kind),
        frame(&[&[0x81, 0, 0, 7][..], &kind].concat()),
        frame(&[&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8][..], &kind].concat()),
        frame(&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]),
        frame(&pppoe),
        frame(&[&[0x81, 0, 0, 7][..], &pppoe].concat()),
    ]
}

#[test]
fn an_inner_expression_looks_behind_tags_labels_pppoe_and_extension_headers() {
    let test = "an_inner_expression_looks_behind_tags_labels_pppoe_and_extension_headers";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let mut frames: Vec<Vec<u8>> = payloads().iter().flat_map(|ip| behind(ip)).collect();
    let arp = [
        &[0xff; 12][..],
        &[0x81, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &[0; 20],
    ]
    .concat();
    frames.push(arp);
    compare(&Temp::new(), &frames, "tags made here");
}

/// An expression that names tags sees them; one that matches nothing because of them is answered with a form that does.
#[test]
fn a_run_that_matches_nothing_says_how_to_look_behind_tags() {
    let temp = Temp::new();
    let file = |name: &str, frames: &[Vec<u8>]| {
        temp.file(
            name,
            &pcap_of(ETHERNET, frames.iter().map(Vec::as_slice).enumerate()),
        )
    };
    let frames = behind(&payloads()[0]);
    let count = |expression: &str, file: &str| weir(["filter", "--count", expression, file]).ok();
    for (which, place, form) in [
        (1, "VLAN tags", "vlan and (port 53)"),
        (2, "VLAN tags", "vlan and vlan and (port 53)"),
        (3, "MPLS labels", "mpls and mpls and (port 53)"),
        (4, "PPPoE", "pppoes and (port 53)"),
        (5, "VLAN tags and PPPoE", "vlan and pppoes and (port 53)"),
    ] {
        let file = file("one.pcap", &frames[which..=which]);
        let line = format!(
            "weir: nothing matched, but packets after {place} would: '{form}' or --inner finds them\n"
        );
        let none = count("port 53", &file);
        assert_eq!(
            (none.count(), none.err.starts_with(&line)),
            (0, true),
            "{}",
            none.err
        );
        assert_eq!(count(form, &file).count(), 1);
        let inner = weir(["filter", "--inner", "--count", form, &file]).ok();
        assert_eq!(inner.count(), 1, "the expression names {place} itself");
        let measured = weir(["measure", &file, "--filter", "port 53"]).ok();
        assert!(measured.err.starts_with(&line), "{}", measured.err);
        let measured = weir(["measure", &file, "--filter", "port 53", "--inner"]).ok();
        assert!(
            measured.text().contains(" 1 packet "),
            "{}",
            measured.text()
        );
        assert!(!measured.err.contains("nothing matched"));
        // What is not there either way needs no word, and neither does a run that matches.
        assert!(!count("port 54", &file).err.contains("nothing matched"));
    }
    let both = file("both.pcap", &frames[..2]);
    let one = count("port 53", &both);
    assert_eq!(
        (one.count(), one.err.contains("nothing matched")),
        (1, false)
    );
    let tunnel = file("tunnel.pcap", &[tunnels(&payloads()[0])[0].clone()]);
    let none = count("port 53", &tunnel);
    assert!(
        none.err
            .contains("but packets in tunnels would: --inner finds them"),
        "{}",
        none.err
    );
}

/// Rules, triggers and other ports of VXLAN.
#[test]
fn all_commands_look_inside() {
    let temp = Temp::new();
    let mut frames = behind(&payloads()[0]);
    let mut vxlan = tunnels(&payloads()[0])[14].clone();
    vxlan[36..38].copy_from_slice(&5000u16.to_be_bytes());
    frames.push(vxlan);
    let file = temp.file(
        "a.pcap",
        &pcap_of(ETHERNET, frames.iter().map(Vec::as_slice).enumerate()),
    );
    let count = |more: &[&str]| {
        let fixed = ["filter", "--count", "udp port 53", &file];
        weir(fixed.iter().chain(more)).ok().count() as usize
    };
    assert_eq!(count(&[]), 1);
    assert_eq!(count(&["--inner"]), frames.len() - 1);
    assert_eq!(count(&["--inner", "--vxlan-port", "5000"]), frames.len());
    let rules = temp.file("rules.txt", b"drop expr 'udp port 53'\ndefault pass\n");
    let check = |more: &[&str]| {
        let fixed = ["firewall", "check", &rules, &file, "--json"];
        weir(fixed.iter().chain(more)).ok().text()
    };
    assert!(check(&[]).contains("\"denied\":1,"), "{}", check(&[]));
    let all = format!("\"denied\":{},", frames.len() - 1);
    assert!(
        check(&["--inner"]).contains(&all),
        "{}",
        check(&["--inner"])
    );
    let directory = temp.at("record");
    weir([
        "record",
        &file,
        &directory,
        "--inner",
        "--filter",
        "udp port 53",
        "--disk",
        "8M",
        "--trigger",
        "dns=udp port 53",
    ])
    .ok();
    let kept = weir(["query", &directory, "--count"]).ok();
    assert_eq!(kept.count() as usize, frames.len() - 1);
    let inner = weir(["query", &directory, "udp port 53", "--inner", "--count"]).ok();
    assert_eq!(inner.count() as usize, frames.len() - 1);
    let saved = std::fs::read_dir(&directory)
        .unwrap()
        .filter_map(Result::ok);
    let saved = saved.filter(|file| {
        file.file_name()
            .to_string_lossy()
            .starts_with("trigger-dns-")
    });
    assert_eq!(saved.count(), 1);
    let nine: Vec<String> = (1..10)
        .flat_map(|n| ["--vxlan-port".to_owned(), n.to_string()])
        .collect();
    let fixed = ["filter", "--inner", "udp", &file].map(str::to_owned);
    let refused = weir(fixed.into_iter().chain(nine));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(
        refused
            .err
            .contains("--vxlan-port: 9 ports; 8 are the most"),
        "{}",
        refused.err
    );
}

/// `ether host` tests addresses, which a packet without link header does not have.
#[test]
fn an_expression_about_ethernet_judges_tunnels_that_carry_it() {
    let temp = Temp::new();
    let payload = &payloads()[0];
    let frames = tunnels(payload);
    let file = temp.file(
        "t.pcap",
        &pcap_of(ETHERNET, frames.iter().map(Vec::as_slice).enumerate()),
    );
    let carries = frames
        .iter()
        .filter(|frame| stripped(frame).0 == ETHERNET && stripped(frame).1.len() < frame.len());
    let done = weir([
        "filter",
        "--inner",
        "--count",
        "ether host 02:00:00:00:00:03",
        &file,
    ])
    .ok();
    assert_eq!(done.count() as usize, carries.count());
    let outside = weir(["filter", "--count", "ether host 02:00:00:00:00:03", &file]).ok();
    assert_eq!(outside.count(), 0);
}

#[test]
fn the_filter_of_a_measurement_judges_the_packet_whose_key_counts() {
    let temp = Temp::new();
    let frames = tunnels(&payloads()[0]);
    let vxlan = &frames[14];
    let file = temp.file(
        "vxlan.pcap",
        &pcap_of(ETHERNET, [(0, vxlan.as_slice())].into_iter()),
    );
    let passed = |expression: &str| {
        let done = weir([
            "measure", "--inner", "--json", &file, "--filter", expression,
        ])
        .ok();
        let object: serde_json::Value = serde_json::from_str(&done.text()).unwrap();
        (
            object["passed"].as_u64().unwrap(),
            object["top"][0]["dport"].as_u64(),
        )
    };
    assert_eq!(passed("udp port 4789"), (0, None));
    assert_eq!(passed("udp port 53"), (1, Some(53)));
    let outer = weir(["filter", "udp port 4789", &file, "-w", "-"]).ok();
    let done = weir_fed(["measure", "--inner", "--json", "-"], &outer.out).ok();
    assert!(done.text().contains("\"passed\":1,"), "{}", done.text());
}

/// The kernel's filter would see the outer packet, and reject it.
#[test]
fn a_capture_judges_what_is_inside_tunnels() {
    let test = "a_capture_judges_what_is_inside_tunnels";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let out = temp.at("live.pcap");
    let frames: Vec<Vec<u8>> = payloads()
        .iter()
        .flat_map(|payload| tunnels(payload))
        .collect();
    let wanted = inside(&temp, &frames, "udp dst port 53")
        .into_iter()
        .map(|i| frames[i].clone())
        .collect::<Vec<_>>();
    assert!(wanted.len() > 10);
    let capture = net.capture(&["filter", "--inner", "udp dst port 53", "near", "-w", &out]);
    assert_eq!(net.send(&frames, 0) as usize, frames.len());
    let done = capture.stop().ok();
    assert!(
        done.err.contains(&format!(
            "{} received, {} matched",
            frames.len(),
            wanted.len()
        )),
        "{}",
        done.err
    );
    let found: Vec<Vec<u8>> = records(&out)
        .into_iter()
        .map(|record| record.data)
        .collect();
    assert!(found == wanted, "{} of {}", found.len(), wanted.len());
}
