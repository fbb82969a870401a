//! Names of addresses: messages made by hand, a bounded table, and rows by name against sums of the packets themselves.

use core::net::IpAddr;
use std::collections::BTreeMap;
use weir_measure::names::Names;
use weir_measure::{Aggregate, Config, KeyKind, Kind, Observation, Sketch, State, Weigh};
use weir_packet::dns::Name;
use weir_packet::flow::FlowKey;
use weir_packet::transport::{TCP, Transport, UDP};
use zerocopy::FromZeros;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn key(proto: u8, src: IpAddr, sport: u16, dst: IpAddr, dport: u16) -> FlowKey {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => {
            let mut all = [0; 16];
            all[..4].copy_from_slice(&address.octets());
            all
        }
        IpAddr::V6(address) => address.octets(),
    };
    FlowKey {
        src: bytes(src),
        dst: bytes(dst),
        sport,
        dport,
        proto,
        family: if src.is_ipv4() { 4 } else { 6 },
        flags: FlowKey::HAS_PORTS,
        reserved: 0,
    }
}

fn see(names: &mut Names, key: FlowKey, header: usize, payload: &[u8]) {
    let mut captured = vec![0; header];
    if key.proto == TCP {
        captured[12] = ((header / 4) << 4) as u8;
    }
    captured.extend(payload);
    let len = captured.len() as u32;
    names.see(&Transport {
        key,
        captured: &captured,
        len,
        packet_len: 20 + len,
        fragment: None,
    });
}

fn wire(name: &str) -> Vec<u8> {
    match name {
        "" => vec![0],
        name => Name::of_text(name.as_bytes())
            .expect("a name")
            .as_wire()
            .to_vec(),
    }
}

/// An answer to a question, if there is one, with records of a section, an owner, a type and data.
fn answer(asked: Option<&str>, records: &[(usize, &str, u16, Vec<u8>)]) -> Vec<u8> {
    let count = |section| records.iter().filter(|record| record.0 == section).count() as u8;
    let mut message = vec![0, 1, 0x81, 0x80, 0, u8::from(asked.is_some())];
    message.extend([0, count(1), 0, count(2), 0, count(3)]);
    if let Some(asked) = asked {
        message.extend([&wire(asked)[..], &[0, 1, 0, 1]].concat());
    }
    for (_, owner, kind, data) in records {
        message.extend(wire(owner));
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 9, 0, data.len() as u8]);
        message.extend(data);
    }
    message
}

fn server() -> FlowKey {
    key(UDP, ip("10.0.0.53"), 53, ip("10.0.0.1"), 40_000)
}

fn all(names: &Names) -> Vec<String> {
    names
        .iter()
        .map(|(address, name)| format!("{address} {name}"))
        .collect()
}

#[test]
fn addresses_have_the_name_that_was_asked_for() {
    let mut names = Names::new(1 << 16);
    let v6 = ip("2001:db8::7");
    let IpAddr::V6(bytes) = v6 else {
        unreachable!()
    };
    let message = answer(
        Some("WWW.example.com"),
        &[
            (1, "www.example.com", 5, wire("cdn.example.net")),
            (1, "CDN.example.net", 5, wire("a.edge.example")),
            (1, "a.edge.example", 1, vec![192, 0, 2, 1]),
            (1, "a.edge.example", 28, bytes.octets().to_vec()),
            // Other addresses of the message have the names of their records; a record of a wrong length has none.
            (1, "other.example", 1, vec![192, 0, 2, 2]),
            (1, "a.edge.example", 1, vec![192, 0, 2]),
            (3, "ns.example.com", 1, vec![192, 0, 2, 3]),
            // Nothing is an address that stands for blocked names, and no name looks like an address.
            (1, "a.edge.example", 1, vec![0, 0, 0, 0]),
            (3, "192.0.2.9", 1, vec![192, 0, 2, 4]),
        ],
    );
    see(&mut names, server(), 8, &message);
    let expected = [
        "192.0.2.1 www.example.com",
        "2001:db8::7 www.example.com",
        "192.0.2.2 other.example",
        "192.0.2.3 ns.example.com",
    ];
    assert_eq!(all(&names), expected);
    // Questions, refusals, and packets to the server of other protocols teach nothing.
    let mut before = all(&names);
    for (at, byte) in [(2, 0x01), (3, 0x83)] {
        let mut other = answer(Some("x"), &[(1, "x", 1, vec![192, 0, 2, 1])]);
        other[at] = byte;
        see(&mut names, server(), 8, &other);
    }
    let elsewhere = key(UDP, ip("10.0.0.53"), 5300, ip("10.0.0.1"), 53);
    see(&mut names, elsewhere, 8, &message);
    assert_eq!(all(&names), before);
    // Multicast DNS has no question; a message over TCP has its length in front.
    let local = answer(None, &[(1, "printer.local", 1, vec![10, 0, 0, 9])]);
    let multicast = key(UDP, ip("10.0.0.9"), 5353, ip("224.0.0.251"), 5353);
    see(&mut names, multicast, 8, &local);
    let long = answer(
        Some("tcp.example"),
        &[(1, "tcp.example", 1, vec![192, 0, 2, 1])],
    );
    let stream = [&(long.len() as u16).to_be_bytes()[..], &long].concat();
    let over_tcp = key(TCP, ip("10.0.0.53"), 53, ip("10.0.0.1"), 40_000);
    see(&mut names, over_tcp, 24, &stream.repeat(2));
    before[0] = "192.0.2.1 tcp.example".to_owned();
    before.push("10.0.0.9 printer.local".to_owned());
    assert_eq!(all(&names), before);
    assert_eq!((names.several(), names.unread(), names.lost()), (1, 0, 0));
    // Messages that are cut.
    see(&mut names, over_tcp, 20, &stream[..stream.len() - 1]);
    see(&mut names, server(), 8, &message[..11]);
    see(&mut names, server(), 8, &message[..80]);
    assert_eq!((all(&names), names.unread()), (before, 3));
}

#[test]
fn names_are_printable_whatever_the_packets_say() {
    let mut names = Names::new(1 << 16);
    let mut hostile = wire("xxxxxxxxxxxx.y");
    hostile[1..13].copy_from_slice(b"\x1b]0;a\x07\r\n\"\xe2\x80\xae");
    let mut message = answer(Some("q"), &[(3, "zzzzzzzzzzzz.y", 1, vec![192, 0, 2, 1])]);
    let at = message.len() - 14 - hostile.len();
    message[at..at + hostile.len()].copy_from_slice(&hostile);
    see(&mut names, server(), 8, &message);
    assert_eq!(
        names.of(ip("192.0.2.1")),
        Some(r#"\027]0;a\007\013\010"\226\128\174.y"#)
    );
}

#[test]
fn a_full_table_forgets_the_first_addresses() {
    const MEMORY: usize = 1 << 14;
    let mut names = Names::new(MEMORY);
    let name = |n: u32| Name::of_text(format!("host-{n}.example").as_bytes()).expect("a name");
    let address = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
    for n in 0..10_000 {
        names.learn(address(n), &name(n));
    }
    let len = names.len() as u32;
    assert!((40..80).contains(&len), "{len} addresses");
    assert_eq!(names.lost(), u64::from(10_000 - len));
    assert!(
        names
            .iter()
            .map(|it| it.0)
            .eq((10_000 - len..10_000).map(address))
    );
    // One name for all takes less.
    for n in 0..10_000 {
        names.learn(address(n), &name(0));
    }
    assert!(names.len() > 160, "{} addresses", names.len());
    assert_eq!(
        names.iter().filter(|it| it.1 != "host-0.example").count(),
        0
    );
    // A name longer than the table.
    let mut none = Names::new(100);
    none.learn(address(1), &name(1));
    assert_eq!((none.len(), none.lost()), (0, 1));
    // What was learned in parts is what is learned at once.
    let (mut whole, mut parts, mut part) =
        (Names::new(MEMORY), Names::new(MEMORY), Names::new(MEMORY));
    for n in 0..300u32 {
        let (address, name) = (address(n * 7 % 50), name(n % 6));
        whole.learn(address, &name);
        part.learn(address, &name);
        if n % 11 == 0 {
            parts.merge(&part.take());
        }
    }
    parts.merge(&part);
    assert_eq!(parts, whole);
    assert_eq!(parts.several(), whole.several());
    assert!(whole.several() > 0);
}

/// Random packets between few hosts, some of which have names.
fn packets(seed: u64) -> (Vec<Observation>, Names) {
    let mut state = seed | 1;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % below
    };
    let hasher = Config::default().hasher();
    let mut names = Names::new(1 << 20);
    for host in 0..60u8 {
        let name = Name::of_text(format!("name-{}", host % 9).as_bytes()).expect("a name");
        if host % 3 > 0 {
            names.learn(IpAddr::from([10, 0, 0, host]), &name);
        }
        // A name without packets.
        names.learn(IpAddr::from([10, 9, 9, host]), &name);
    }
    let packet = |_| {
        let mut host = || IpAddr::from([10, 0, 0, (random(60) * random(60) / 60) as u8]);
        let flow = key(UDP, host(), 1, host(), 2);
        let mut packet = Observation::new_zeroed();
        packet.arrived(Kind::Flow, 60 + random(1000) as u32, 0);
        (packet.flow, packet.hash) = (flow, hasher.plain(&flow));
        packet
    };
    ((0..2000).map(packet).collect(), names)
}

fn counted(config: Config, packets: &[Observation]) -> State {
    let config = std::sync::Arc::new(config);
    let mut aggregate = Aggregate::new(config, std::sync::Arc::default()).expect("memory");
    for some in packets.chunks(64) {
        aggregate.take(some, &[]).expect("memory");
    }
    aggregate.close(i64::MAX).remove(0).1
}

#[test]
fn rows_are_sums_of_the_hosts_of_a_name() {
    let mut inexact = 0;
    for seed in 1..20 {
        let (packets, names) = packets(seed);
        let mut truth: BTreeMap<String, [u64; 4]> = BTreeMap::new();
        for packet in &packets {
            let ends = [packet.flow.source(), packet.flow.destination()];
            for (end, address) in ends.into_iter().flatten().enumerate() {
                let name = names.of(address).map_or(address.to_string(), str::to_owned);
                let sums = truth.entry(name).or_default();
                sums[2 * end] += 1;
                sums[2 * end + 1] += u64::from(packet.bytes);
            }
        }
        for (sketch, memory) in [
            (Sketch::Exact, 1 << 20),
            (Sketch::Heavy, 1 << 20),
            (Sketch::Heavy, 1 << 12),
            (Sketch::Majority, 1 << 12),
        ] {
            let config = Config {
                keys: vec![KeyKind::Name, KeyKind::HOST],
                names: Some(1 << 20),
                sketch,
                memory,
                ..Config::default()
            };
            let state = counted(config, &packets);
            for rows in [3, 1000] {
                let table = state.table_with(0, rows, Some(&names));
                let context = format!("{sketch:?}, {memory} bytes, seed {seed}, {rows} rows");
                for row in &table.rows {
                    let text = names.text(&row.key).map(str::to_owned);
                    let text = text.or(row.key.source().map(|it| it.to_string()));
                    let [tx, tx_bytes, rx, rx_bytes] = truth[&text.expect("a name or an address")];
                    let sides = row.sides.expect("both directions");
                    assert!(
                        (row.bound.lower..=row.bound.upper).contains(&(tx + rx)),
                        "{context}"
                    );
                    assert_eq!(row.counts.packets, sides.tx.packets + sides.rx.packets);
                    if memory == 1 << 20 {
                        let found = [
                            sides.tx.packets,
                            sides.tx.bytes,
                            sides.rx.packets,
                            sides.rx.bytes,
                        ];
                        assert_eq!(found, [tx, tx_bytes, rx, rx_bytes], "{context}");
                    }
                    inexact += u64::from(row.bound.lower < row.bound.upper);
                }
                let listed: Vec<_> = table.rows.iter().map(|row| row.key).collect();
                let outside = truth.iter().filter(|(name, _)| {
                    let is = |key: &FlowKey| {
                        names.text(key) == Some(name)
                            || key.source().is_some_and(|it| it.to_string() == **name)
                    };
                    !listed.iter().any(is)
                });
                for (name, sums) in outside {
                    assert!(
                        sums[0] + sums[2] <= table.missing.at_most,
                        "{name}: {context}"
                    );
                }
                if sketch == Sketch::Exact {
                    let sizes = truth.values().map(|sums| sums[0] + sums[2]);
                    let mut sizes: Vec<u64> = sizes.collect();
                    sizes.sort_unstable_by(|a, b| b.cmp(a));
                    sizes.truncate(rows);
                    let found = table.rows.iter().map(|row| row.counts.by(Weigh::Packets));
                    assert!(found.eq(sizes), "{context}");
                }
            }
        }
    }
    assert!(inexact > 50, "only {inexact} rows were inexact");
}
