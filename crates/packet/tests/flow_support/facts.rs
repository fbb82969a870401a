//! Fields beside the flow key against tshark's fields.

use super::{frames, printed};
use std::collections::BTreeMap;
use weir_packet::LinkType;
use weir_packet::flow::{Facts, FlowKey, Parser};

const FIELDS: [&str; 16] = [
    "frame.protocols",
    "eth.src",
    "eth.dst",
    "sll.src.eth",
    "vlan.id",
    "ieee8021ad.id",
    "mpls.label",
    "vxlan.vni",
    "geneve.vni",
    "eth.type",
    "vlan.etype",
    "ip.dsfield.dscp",
    "ip.ttl",
    "ipv6.tclass.dscp",
    "ipv6.hlim",
    "tcp.flags",
];

/// The fields of a line, each with all its values.
fn columns(line: &str) -> BTreeMap<&'static str, Vec<String>> {
    let values = line.split('\t').map(|text| {
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect::<Vec<_>>()
    });
    FIELDS.into_iter().zip(values).collect()
}

fn number(text: &str) -> u32 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("'{text}' is not a number"))
}

fn mac(address: Option<[u8; 6]>) -> Option<String> {
    let bytes = address?.map(|byte| format!("{byte:02x}"));
    Some(bytes.join(":"))
}

/// Names of the fields of which tshark has another value.
fn differences(
    facts: &Facts,
    key: Option<FlowKey>,
    theirs: &BTreeMap<&'static str, Vec<String>>,
) -> Vec<&'static str> {
    let first = |field: &str| theirs[field].first().cloned();
    let first_number = |field: &str| first(field).map(|text| number(&text));
    let mut all = vec![
        (
            "source MAC",
            mac(facts.smac()) == first("eth.src").or(first("sll.src.eth")),
        ),
        ("destination MAC", mac(facts.dmac()) == first("eth.dst")),
        (
            "tag",
            facts.vlan().map(u32::from)
                == first_number("ieee8021ad.id").or(first_number("vlan.id")),
        ),
        ("label", facts.mpls() == first_number("mpls.label")),
        (
            "network identifier",
            facts.vni() == first_number("vxlan.vni").or(first_number("geneve.vni")),
        ),
    ];
    if let Some(outer) = first_number("eth.type") {
        let behind = theirs["vlan.etype"].last().map(|text| number(text));
        let is_tag = [0x8100, 0x88a8, 0x9100].contains(&outer);
        let theirs = if is_tag { behind } else { Some(outer) };
        all.push(("EtherType", facts.ethertype().map(u32::from) == theirs));
    }
    if let Some(key) = key {
        let (dscp, ttl) = match key.family {
            4 => ("ip.dsfield.dscp", "ip.ttl"),
            _ => ("ipv6.tclass.dscp", "ipv6.hlim"),
        };
        all.push((
            "code point",
            facts.dscp().map(u32::from) == first_number(dscp),
        ));
        all.push((
            "time to live",
            facts.ttl().map(u32::from) == first_number(ttl),
        ));
        let flags = first_number("tcp.flags").filter(|_| key.proto == 6);
        all.push((
            "TCP flags",
            facts.tcp_flags().map(u32::from) == flags.map(|it| it & 0x1ff),
        ));
    }
    let different = all.into_iter().filter(|(_, is_same)| !is_same);
    different.map(|(name, _)| name).collect()
}

/// The reason for an intended difference from tshark's value.
fn intended(
    name: &str,
    link: LinkType,
    theirs: &BTreeMap<&'static str, Vec<String>>,
) -> Option<&'static str> {
    let protocols = theirs["frame.protocols"].join(",");
    match name {
        "source MAC" if link == LinkType::LINUX_SLL2 => Some("tshark names the field otherwise"),
        "network identifier" if !protocols.contains("vxlan") && protocols.contains("gre") => {
            Some("tshark shows no subnet of NVGRE in these fields")
        }
        "network identifier" if protocols.contains("vxlan") || protocols.contains("geneve") => {
            Some("a header without the flag of its identifier, or of another version")
        }
        "network identifier" if protocols.ends_with(":ip:udp:data") => {
            Some("a VXLAN-GPE header that names no known payload")
        }
        "label" if protocols.contains(":ip:") => Some("a label inside IP is not the frame's"),
        "tag" if protocols.contains(":erspan:") => Some("a tag inside ERSPAN is not the frame's"),
        "EtherType" if theirs["eth.type"] == ["0x0000"] => Some("a length of zero is no type"),
        _ if link == LinkType::NFLOG && protocols == "nflog" => {
            Some("attributes tell their byte order themselves, where tshark takes the file's")
        }
        _ if protocols.contains("cfp") => Some("tshark shows the addresses inside FabricPath"),
        _ => None,
    }
}

#[test]
fn facts_of_the_captures_and_of_frames_by_hand() {
    let test = "facts_of_the_captures_and_of_frames_by_hand";
    if !weir_testkit::have(test, &["tshark"]) {
        return;
    }
    let (all, captured) = frames(test);
    let mut form = vec!["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"];
    form.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    let text = printed(&all, &form);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), all.len(), "tshark printed every frame");
    let (mut same, mut reasons, mut left) = (0, BTreeMap::new(), Vec::new());
    for ((link, data), line) in all.iter().zip(lines) {
        let parser = Parser::new(*link, false).expect("filtered by the caller");
        let theirs = columns(line);
        let found = differences(&parser.facts(data), parser.key(data).ok(), &theirs);
        same += usize::from(found.is_empty());
        for name in found {
            match intended(name, *link, &theirs) {
                Some(why) => *reasons.entry(why).or_insert(0) += 1,
                None => left.push(format!("{name}: link type {}: {line} {data:02x?}", link.0)),
            }
        }
    }
    println!("{same} frames the same, intended differences {reasons:?}");
    left.iter()
        .take(40)
        .for_each(|difference| println!("{difference}"));
    assert!(left.is_empty(), "{} differences", left.len());
    assert!(same >= if captured > 0 { 5000 } else { 80 }, "{same}");
}
