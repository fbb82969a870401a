//! End-to-end tests of `weir measure`. The oracles are the generator's counts, a simple table made from the frames by these
//! tests, and tshark.

mod answers;
mod combinations;
mod designs;
mod endings;
mod keys;
mod merging;
mod one_pass;
mod refusals;
mod sources;
mod spread;
mod windows;

use crate::support::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};

/// A packet as an oracle parsed it.
#[derive(Clone, Debug)]
struct Seen {
    time_ns: i64,
    bytes: u64,
    flow: Option<Flow>,
}

/// Fields of a packet that are counted.
#[derive(Clone, Debug)]
struct Flow {
    src: IpAddr,
    dst: IpAddr,
    ports: Option<(u16, u16)>,
    proto: u8,
    /// Whether the packet is a fragment other than the first.
    later: bool,
}

/// Packets and bytes by key; a key is its fields as JSON text.
type Counts = BTreeMap<String, (u64, u64)>;

/// IANA's protocol number and the printed name.
const PROTOCOLS: [(u8, &str); 14] = [
    (1, "icmp"),
    (2, "igmp"),
    (4, "ipip"),
    (6, "tcp"),
    (17, "udp"),
    (41, "ipv6"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (58, "icmp6"),
    (89, "ospf"),
    (103, "pim"),
    (112, "vrrp"),
    (132, "sctp"),
];

fn proto_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// Parses an Ethernet frame with complete and simple headers.
fn dissect(frame: &[u8]) -> Option<Flow> {
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let at = if half(12) == 0x8100 { 18 } else { 14 };
    let octets = |at: usize, n: usize| frame[at..at + n].to_vec();
    let (src, dst, proto, later, behind): (IpAddr, IpAddr, u8, bool, usize) = match half(at - 2) {
        0x0800 => {
            let address = |at| IpAddr::from(<[u8; 4]>::try_from(octets(at, 4)).unwrap());
            let later = half(at + 6) & 0x1fff != 0;
            (
                address(at + 12),
                address(at + 16),
                frame[at + 9],
                later,
                at + 4 * usize::from(frame[at] & 15),
            )
        }
        0x86dd => {
            let address = |at| IpAddr::from(<[u8; 16]>::try_from(octets(at, 16)).unwrap());
            (
                address(at + 8),
                address(at + 24),
                frame[at + 6],
                false,
                at + 40,
            )
        }
        _ => return None,
    };
    let ports = (!later && matches!(proto, 6 | 17 | 132)).then(|| (half(behind), half(behind + 2)));
    Some(Flow {
        src,
        dst,
        ports,
        proto,
        later,
    })
}

/// Fields of a row with the key `kind`.
fn fields(kind: &str, flow: &Flow) -> Map<String, Value> {
    let (sport, dport) = flow
        .ports
        .map_or((json!("-"), json!("-")), |(sport, dport)| {
            (json!(sport), json!(dport))
        });
    let (src, dst, proto) = (
        flow.src.to_string(),
        flow.dst.to_string(),
        proto_name(flow.proto),
    );
    let value = match kind {
        "5tuple" | "conversation" => {
            json!({ "src": src, "dst": dst, "sport": sport, "dport": dport, "proto": proto })
        }
        "pair" => json!({ "src": src, "dst": dst }),
        "src" => json!({ "src": src }),
        "dst" => json!({ "dst": dst }),
        "sport" => json!({ "sport": sport, "proto": proto }),
        "dport" => json!({ "dport": dport, "proto": proto }),
        "proto" => json!({ "proto": proto }),
        _ => {
            let (name, bits) = kind.split_once('/').expect("a prefix");
            let address = if name == "src" { flow.src } else { flow.dst };
            json!({ name: network(address, bits.parse().unwrap()) })
        }
    };
    let Value::Object(mut fields) = value else {
        unreachable!()
    };
    if matches!(kind, "5tuple" | "conversation") && flow.later {
        fields.insert("fragment".to_owned(), true.into());
    }
    fields
}

/// The network of `bits` bits that contains an address.
fn network(address: IpAddr, bits: u32) -> String {
    match address {
        IpAddr::V4(v4) => {
            let bits = bits.min(32);
            let kept = u64::from(v4.to_bits()) >> (32 - bits) << (32 - bits);
            format!("{}/{bits}", std::net::Ipv4Addr::from(kept as u32))
        }
        IpAddr::V6(v6) => {
            let dropped = 128 - bits;
            format!(
                "{}/{bits}",
                std::net::Ipv6Addr::from(v6.to_bits() >> dropped << dropped)
            )
        }
    }
}

/// A key as text. The order of the ends of a conversation does not matter.
fn key_text(kind: &str, mut fields: Map<String, Value>) -> String {
    let end = |a: &str, b: &str| format!("{} {}", fields[a], fields[b]);
    if kind == "conversation" && end("dst", "dport") < end("src", "sport") {
        for (a, b) in [("src", "dst"), ("sport", "dport")] {
            let (one, other) = (fields[a].clone(), fields[b].clone());
            fields[a] = other;
            fields[b] = one;
        }
    }
    Value::Object(fields).to_string()
}

/// The naive table of counts.
fn counted<'a>(kind: &str, seen: impl IntoIterator<Item = &'a Seen>) -> Counts {
    let mut counts = Counts::new();
    for (bytes, flow) in seen
        .into_iter()
        .filter_map(|seen| Some((seen.bytes, seen.flow.as_ref()?)))
    {
        let (packets, sum) = counts
            .entry(key_text(kind, fields(kind, flow)))
            .or_default();
        *packets += 1;
        *sum += bytes;
    }
    counts
}

/// Key of a row of `top`.
fn row_key(kind: &str, row: &Value) -> String {
    let mut fields = row.as_object().expect("a row is an object").clone();
    for figure in [
        "packets",
        "bytes",
        "bound",
        "packets_bound",
        "bytes_bound",
        "tx_packets",
        "tx_bytes",
        "rx_packets",
        "rx_bytes",
        "before",
        "after",
        "change",
        "status",
    ] {
        fields.shift_remove(figure);
    }
    key_text(kind, fields)
}

/// Rows of a table in the form of the naive table. Asserts that no key occurs twice.
#[track_caller]
fn rows(kind: &str, top: &Value) -> Counts {
    let rows = top.as_array().expect("a table is an array");
    let figures = |row: &Value| {
        (
            row["packets"].as_u64().unwrap(),
            row["bytes"].as_u64().unwrap(),
        )
    };
    let counts: Counts = rows
        .iter()
        .map(|row| (row_key(kind, row), figures(row)))
        .collect();
    assert_eq!(counts.len(), rows.len(), "a key is there twice");
    counts
}

/// Runs `weir measure --json`, and checks that each object's counts add up.
#[track_caller]
fn measure(arguments: &[&str]) -> Vec<Value> {
    objects(&weir(["measure", "--json"].iter().chain(arguments)).ok())
}

/// Runs `weir measure --json`, which must print one object.
#[track_caller]
fn measure_one(arguments: &[&str]) -> Value {
    let mut objects = measure(arguments);
    assert_eq!(objects.len(), 1, "one object");
    objects.remove(0)
}

/// The printed objects. Asserts that each one's counts add up.
#[track_caller]
fn objects(done: &Done) -> Vec<Value> {
    let objects: Vec<Value> = done
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is an object"))
        .collect();
    for object in &objects {
        let n = |key: &str| {
            object[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key}: {object}"))
        };
        assert_eq!(
            n("received"),
            n("passed") + n("filtered") + n("denied") + lost(object),
            "{object}"
        );
    }
    objects
}

/// Number of dropped packets, by any cause.
fn lost(object: &Value) -> u64 {
    object["dropped"]
        .as_object()
        .expect("causes")
        .values()
        .map(|count| count.as_u64().expect("a count"))
        .sum()
}

/// A capture of `weir generate`, the packets that the tests parse in it, and its generator.
fn generated(temp: &Temp, name: &str, profile: &Profile) -> (String, Vec<Seen>, Generator) {
    let file = temp.at(name);
    let Profile {
        seed,
        packets,
        sizes,
        flows,
        zipf,
        rate_pps,
        ..
    } = profile;
    let options = [
        ("--seed", seed.to_string()),
        ("--packets", packets.to_string()),
        ("--sizes", sizes.to_string()),
        ("--flows", flows.to_string()),
        ("--zipf", zipf.to_string()),
        ("--rate", rate_pps.to_string()),
    ];
    let options = options
        .iter()
        .flat_map(|(name, value)| [*name, value.as_str()]);
    weir(["generate", &file].into_iter().chain(options)).ok();
    let mut generator = Generator::new(profile).unwrap();
    let mut frame = [0; FRAME_MAX];
    let mut seen = Vec::new();
    while let Some(made) = generator.next(&mut frame) {
        seen.push(Seen {
            time_ns: made.time_ns,
            bytes: made.len as u64,
            flow: dissect(&frame[..made.len]),
        });
    }
    (file, seen, generator)
}

/// An Ethernet frame with an IPv4 packet; `fragment` is the field with flags and fragment offset.
pub fn ipv4(src: [u8; 4], dst: [u8; 4], proto: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, proto, 0, 0]);
    frame.extend([src, dst].concat());
    frame.extend(payload);
    frame
}

/// An Ethernet frame with an IPv6 packet.
pub fn ipv6(src: &str, dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0,
    ];
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([next, 64]);
    for address in [src, dst] {
        frame.extend(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    frame.extend(payload);
    frame
}

/// A UDP header without data.
pub fn udp_header(sport: u16, dport: u16) -> Vec<u8> {
    [sport, dport, 8, 0]
        .iter()
        .flat_map(|half| half.to_be_bytes())
        .collect()
}

/// Options for all rows, without error.
const EXACT: [&str; 4] = ["--sketch", "exact", "--top", "100000"];

/// Options for each design, and `rss` with one worker and with several.
const DESIGNS: [[&str; 4]; 4] = [
    ["--design", "rss", "--workers", "1"],
    ["--design", "rss", "--workers", "3"],
    ["--design", "async", "--workers", "2"],
    ["--design", "sync", "--workers", "2"],
];

/// Nanoseconds in a millisecond.
const MS: i64 = 1_000_000;

/// 20 000 packets in 200 ms.
fn dense() -> Profile {
    Profile {
        seed: 4,
        packets: 20_000,
        flows: 300,
        rate_pps: 100_000,
        ..Profile::default()
    }
}

/// Packets by the number of their window of 30 ms.
fn by_30_ms(seen: Vec<Seen>) -> BTreeMap<i64, Vec<Seen>> {
    let mut windows: BTreeMap<i64, Vec<Seen>> = BTreeMap::new();
    for seen in seen {
        windows
            .entry(seen.time_ns.div_euclid(30 * MS))
            .or_default()
            .push(seen);
    }
    windows
}

/// Time of the first packet of captures made here, seconds since 1970.
const BEGIN: i64 = 1_700_000_000;

/// A pcap of frames at times in ms after [`BEGIN`].
fn timed_pcap<'a>(packets: impl IntoIterator<Item = (i64, &'a [u8])>) -> Vec<u8> {
    let mut bytes = pcap_header(65_535, 1);
    for (ms, frame) in packets {
        let us = (BEGIN * 1000 + ms) * 1000;
        let length = frame.len() as u32;
        let header = [
            (us / 1_000_000) as u32,
            (us % 1_000_000) as u32,
            length,
            length,
        ];
        bytes.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(frame);
    }
    bytes
}
