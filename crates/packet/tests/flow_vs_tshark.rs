//! Flow keys against tshark's fields, and offsets of headers against its positions, over the captures and the frames made by hand.

#[path = "flow_support/facts.rs"]
mod facts;
mod flow_support;
mod line_support;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use flow_support::{cases, packets};
use weir_packet::flow::{FlowKey, Offsets, Parser};
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};

/// An IP header as tshark read it, outermost first.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    src: IpAddr,
    dst: IpAddr,
    ports: Option<(u16, u16)>,
    /// tshark's name of the protocol behind the header.
    next: String,
}

const FIELDS: [&str; 13] = [
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "sctp.srcport",
    "sctp.dstport",
    "dccp.srcport",
    "dccp.dstport",
];

/// What tshark prints of all frames, from one run, because starting tshark takes longer than reading the frames.
fn printed(frames: &[(LinkType, Vec<u8>)], form: &[&str]) -> String {
    let mut encoder = Encoder::new(Format::Pcapng, 0);
    let mut input = Vec::new();
    for (link, data) in frames {
        let id = encoder
            .interface(&Interface::plain(*link, 0, Resolution::MICROSECOND))
            .expect("pcapng takes all");
        let frame = Frame {
            data,
            wire_len: data.len() as u32,
            interface: id,
        };
        encoder.packet(&mut input, id, Some(0), &frame);
    }
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", "-"]).args(form);
    // Linux' port of VXLAN, which tshark takes for it only if told.
    command.args(["-d", "udp.port==8472,vxlan"]);
    // Each frame is read alone: nothing is reassembled from several frames.
    for preference in [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.desegment_tcp_streams:FALSE",
    ] {
        command.args(["-o", preference]);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark was found before");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("waiting for tshark");
    writer.join().expect("the writer does not panic");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The headers of all frames.
fn tshark(frames: &[(LinkType, Vec<u8>)]) -> Vec<Vec<Seen>> {
    let mut form = vec!["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"];
    form.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    let seen: Vec<_> = printed(frames, &form).lines().map(headers).collect();
    assert_eq!(seen.len(), frames.len(), "tshark printed every frame");
    seen
}

/// Reads a line of fields. The list of protocols tells to which header the next address belongs.
fn headers(line: &str) -> Vec<Seen> {
    let mut columns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (field, text) in FIELDS.iter().zip(line.split('\t')) {
        columns.insert(
            field,
            text.split(',')
                .filter(|part| !part.is_empty())
                .rev()
                .collect(),
        );
    }
    let protocols: Vec<_> = line
        .split('\t')
        .next()
        .unwrap_or("")
        .split(':')
        .map(str::to_owned)
        .collect();
    let mut seen: Vec<Seen> = Vec::new();
    for (i, protocol) in protocols.iter().enumerate() {
        let mut take = |field: &str| columns.get_mut(field).and_then(Vec::pop);
        match protocol.as_str() {
            "ip" | "ipv6" => {
                let (src, dst) = (
                    take(&format!("{protocol}.src")),
                    take(&format!("{protocol}.dst")),
                );
                let address = |text: Option<&str>| text.and_then(|text| text.parse().ok());
                let (Some(src), Some(dst)) = (address(src), address(dst)) else {
                    break;
                };
                let behind = protocols[i + 1..]
                    .iter()
                    .find(|name| !name.starts_with("ipv6.") && *name != "ah");
                seen.push(Seen {
                    src,
                    dst,
                    ports: None,
                    next: behind.cloned().unwrap_or_default(),
                });
            }
            "tcp" | "udp" | "udplite" | "sctp" | "dccp" => {
                let field = if protocol == "udplite" {
                    "udp"
                } else {
                    protocol
                };
                let port = |text: Option<&str>| text.and_then(|text| text.parse().ok());
                let ports = port(take(&format!("{field}.srcport")))
                    .zip(port(take(&format!("{field}.dstport"))));
                if let Some(last) = seen.last_mut() {
                    last.ports = last.ports.or(ports);
                }
            }
            // The packet that ICMP quotes is no tunnel.
            "icmp" | "icmpv6" => break,
            _ => {}
        }
    }
    seen
}

fn ours(key: &FlowKey) -> (Option<IpAddr>, Option<IpAddr>, Option<(u16, u16)>) {
    (key.source(), key.destination(), key.ports())
}

#[derive(Default)]
struct Tally {
    compared: usize,
    inner: usize,
    without: usize,
    intended: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

fn compare(tally: &mut Tally, frames: &[(LinkType, Vec<u8>)]) {
    for ((link, data), seen) in frames.iter().zip(tshark(frames)) {
        let [outer, inner] =
            [false, true].map(|inner| Parser::new(*link, inner).expect("filtered by the caller"));
        let (key, inside) = (outer.key(data).ok(), inner.key(data).ok());
        let theirs = seen
            .first()
            .map(|seen| (Some(seen.src), Some(seen.dst), seen.ports));
        if key.as_ref().map(ours) == theirs {
            *if key.is_some() {
                &mut tally.compared
            } else {
                &mut tally.without
            } += 1;
        } else if let Some(why) = intended(*link, data, key, seen.first()) {
            *tally.intended.entry(why).or_default() += 1;
        } else {
            tally.differences.push(format!(
                "link type {}: {key:?}, tshark {seen:?}, {data:02x?}",
                link.0
            ));
        }
        // If the parser entered a tunnel, tshark did so too, and found the same packet.
        if let Some(inside) = inside.filter(|inside| Some(*inside) != key) {
            let at = seen
                .iter()
                .rposition(|seen| (Some(seen.src), Some(seen.dst), seen.ports) == ours(&inside));
            match at {
                Some(at) if at > 0 => tally.inner += 1,
                _ => tally
                    .differences
                    .push(format!("inside: {inside:?}, tshark {seen:?}, {data:02x?}")),
            }
        }
    }
}

const FABRIC_PATH: &str =
    "tshark takes the last four bytes of a frame in FabricPath for its check sequence";

/// The reason for an intended difference from tshark's answer.
fn intended(
    link: LinkType,
    data: &[u8],
    key: Option<FlowKey>,
    theirs: Option<&Seen>,
) -> Option<&'static str> {
    let ether = |kind: [u8; 2]| data.get(12..14) == Some(&kind);
    let at = |at: usize| data.get(at).copied().unwrap_or(0);
    match (key, theirs) {
        (Some(_), None) if link == LinkType::NFLOG && at(4) == 0 => {
            Some("attributes tell their byte order themselves, where tshark takes the file's")
        }
        (None, Some(_)) if link == LinkType::IEEE802_11 && at(22) & 15 != 0 => {
            Some("a later fragment of 802.11 begins with no header")
        }
        (Some(_), _) if ether([0x89, 3]) => Some(FABRIC_PATH),
        (Some(_), Some(Seen { ports: None, .. }))
            if ether([0x86, 0xdd]) && (at(18), at(19)) == (0, 0) =>
        {
            Some("an IPv6 payload length of zero is segmentation left to the card, or a jumbogram")
        }
        _ => None,
    }
}

/// The frames of the captures and those made by hand, as far as tshark reads their link types, and the number of those of captures.
fn frames(test: &str) -> (Vec<(LinkType, Vec<u8>)>, usize) {
    let captured = packets(test).into_iter();
    let captured =
        captured.flat_map(|(link, frames)| frames.into_iter().map(move |data| (link, data)));
    let mut all: Vec<_> = captured.collect();
    let captured = all.len();
    all.extend(cases::all().into_iter().map(|case| (case.link, case.data)));
    // tshark 4.0 cannot read files of these link types.
    let unread = [LinkType::PPP_PPPD, LinkType::MPLS];
    all.retain(|(link, _)| Parser::new(*link, false).is_some() && !unread.contains(link));
    (all, captured)
}

#[test]
fn keys_of_the_captures_and_of_frames_by_hand() {
    let test = "keys_of_the_captures_and_of_frames_by_hand";
    if !weir_testkit::have(test, &["tshark"]) {
        return;
    }
    let (all, captured) = frames(test);
    let mut tally = Tally::default();
    compare(&mut tally, &all);
    println!(
        "{} keys the same, {} inside tunnels, {} without key, intended differences {:?}",
        tally.compared, tally.inner, tally.without, tally.intended
    );
    for difference in tally.differences.iter().take(40) {
        println!("{difference}");
    }
    assert!(
        tally.differences.is_empty(),
        "{} differences",
        tally.differences.len()
    );
    assert!(
        tally.compared >= if captured > 0 { 5000 } else { 80 } && tally.inner >= 20,
        "too little was compared"
    );
}

/// The value of an attribute of a line of PDML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_once(&format!(" {name}=\""))?.1.split('"').next()
}

/// Positions of headers in a packet of PDML: those of the outermost IP packet.
fn positions(packet: &str) -> Offsets {
    let mut found = Offsets::NONE;
    let mut is_later_fragment = false;
    for line in packet.lines() {
        let (Some(name), Some(pos)) = (attribute(line, "name"), attribute(line, "pos")) else {
            continue;
        };
        let pos = pos.parse().expect("a position is a number");
        let is_protocol = line.trim_start().starts_with("<proto ");
        match name {
            "ip" | "ipv6" if is_protocol && found.network < 0 => found.network = pos,
            "ip.frag_offset" | "ipv6.fraghdr.offset" if found.transport < 0 => {
                is_later_fragment |= attribute(line, "show") != Some("0");
            }
            "ah" | "_ws.malformed" | "_ws.short" | "_ws.expert" => {}
            extension if extension.starts_with("ipv6.") => {}
            _ if is_protocol && found.network >= 0 && found.transport < 0 => {
                if is_later_fragment {
                    break;
                }
                found.transport = pos;
            }
            // What stands inside comes behind.
            _ if is_protocol && found.transport >= 0 => break,
            "tcp.payload" | "udp.payload" | "sctp.chunk_type"
                if found.transport >= 0 && found.payload < 0 =>
            {
                found.payload = pos;
            }
            _ => {}
        }
    }
    found
}

/// The reason for an intended difference from tshark's positions.
fn intended_offset(
    link: LinkType,
    data: &[u8],
    ours: Offsets,
    theirs: Offsets,
) -> Option<&'static str> {
    let at = |at: usize| data.get(at).copied().unwrap_or(0);
    let up = |offset: i32| if offset < 0 { offset } else { offset + 1 };
    let protocol = Parser::new(link, false)?
        .key(data)
        .map_or(255, |key| key.proto);
    let known = [1, 2, 6, 17, 58, 132];
    if data.get(12..14) == Some(&[0x89, 3]) {
        return Some(FABRIC_PATH);
    }
    if link == LinkType::IEEE802_11 && at(22) & 15 != 0 && ours == Offsets::NONE {
        return Some("a later fragment of 802.11 begins with no header");
    }
    if link == LinkType::NFLOG && at(4) == 0 && theirs == Offsets::NONE {
        return Some("attributes tell their byte order themselves, where tshark takes the file's");
    }
    let above = Offsets {
        network: up(theirs.network),
        transport: up(theirs.transport),
        payload: up(theirs.payload),
    };
    if link == LinkType::PPP_WITH_DIR && ours == above {
        return Some("tshark takes the byte of the direction out before it counts");
    }
    if link == LinkType::IPV4 && at(0) >> 4 == 6 && ours == Offsets::NONE {
        return Some("a packet of another version than the link type announces is none");
    }
    // tshark goes on behind a header of 14 to 16 bytes that would begin with its own first byte.
    if ours == Offsets::NONE && (theirs.transport < 0 || theirs.transport == theirs.network) {
        return Some(
            "an IP header of another version, shorter than 20 bytes, or longer than its packet is none",
        );
    }
    if ours.network != theirs.network || theirs.transport >= 0 {
        return None;
    }
    let is_short = data.len() - (ours.transport.max(0) as usize) < 8 || at(16) == 0 && at(17) < 28;
    match (ours.network, at(14) >> 4) {
        (14, 6) if (at(18), at(19)) == (0, 0) => {
            Some("an IPv6 payload length of zero is segmentation left to the card, or a jumbogram")
        }
        (14, 6) if at(18) == 0 && at(19) < 8 => {
            Some("tshark names no transport header that is cut by its packet")
        }
        (14, 4) if protocol == 17 && is_short => {
            Some("tshark names no transport header that is cut by its packet")
        }
        _ if !known.contains(&protocol) && ours.payload < 0 => {
            Some("tshark does not know the protocol")
        }
        _ => None,
    }
}

#[test]
fn headers_begin_where_tshark_finds_them() {
    let test = "headers_begin_where_tshark_finds_them";
    if !weir_testkit::have(test, &["tshark"]) {
        return;
    }
    let (all, captured) = frames(test);
    let text = printed(&all, &["-T", "pdml"]);
    let theirs: Vec<Offsets> = text.split("\n<packet>").skip(1).map(positions).collect();
    assert_eq!(theirs.len(), all.len(), "tshark printed every frame");
    let mut intended: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = Vec::new();
    let mut compared = [0; 4];
    for ((link, data), theirs) in all.iter().zip(theirs) {
        let ours = Parser::new(*link, false)
            .expect("filtered before")
            .offsets(data);
        if ours == theirs {
            let there = [ours.network, ours.transport, ours.payload]
                .iter()
                .filter(|offset| **offset >= 0)
                .count();
            compared[there] += 1;
        } else if let Some(why) = intended_offset(*link, data, ours, theirs) {
            *intended.entry(why).or_default() += 1;
        } else {
            differences.push(format!(
                "link type {}: {ours:?}, tshark {theirs:?}, {data:02x?}",
                link.0
            ));
        }
    }
    println!(
        "{compared:?} frames with so many offsets the same, intended differences {intended:?}"
    );
    differences
        .iter()
        .take(40)
        .for_each(|difference| println!("{difference}"));
    assert!(differences.is_empty(), "{} differences", differences.len());
    assert!(
        compared[3] >= if captured > 0 { 3000 } else { 30 },
        "too little was compared"
    );
}
