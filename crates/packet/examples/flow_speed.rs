//! Cost of flow keys and their hashes: nanoseconds per packet, for packets in the cache.
//!
//! Prints the median and the least of seven rounds. Each round runs every candidate once, so that a noisy neighbour affects all
//! of them. `cargo run --release -p weir-packet --example flow_speed [PACKETS]`

use std::hint::black_box;
use std::time::Instant;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use weir_packet::flow::{FlowKey, Hasher, Parser};
use weir_packet::{Frame, LinkType};
use weir_testkit::Random;

/// A frame of 64 to 80 bytes: with a VLAN tag if `tagged`, of IPv6 if `six`; three of four are TCP.
fn frame(random: &mut Random, tagged: bool, six: bool) -> Vec<u8> {
    let mut out = vec![2; 12];
    if tagged {
        out.extend([0x81, 0, 0, 7]);
    }
    let tcp = random.next() & 3 > 0;
    let proto = if tcp { 6 } else { 17 };
    let addresses = [random.next().to_be_bytes(), random.next().to_be_bytes()];
    if six {
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, proto, 64]);
        for address in addresses {
            out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]);
            out.extend(address);
        }
    } else {
        out.extend([0x08, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, proto, 0, 0]);
        for address in addresses {
            out.extend(&address[..4]);
        }
    }
    out.extend(&random.next().to_be_bytes()[..4]);
    // The rest of a header without options, of TCP or of UDP.
    out.extend(if tcp {
        [0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0]
    } else {
        [0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    });
    out.extend([0; 8]);
    out
}

/// The flow key as etherparse finds it, to compare the cost.
fn by_etherparse(data: &[u8]) -> Option<FlowKey> {
    let packet = LaxSlicedPacket::from_ethernet(data).ok()?;
    let mut key = FlowKey::NONE;
    match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            key.family = 4;
            key.src[..4].copy_from_slice(&ip.header().source());
            key.dst[..4].copy_from_slice(&ip.header().destination());
            key.proto = ip.payload().ip_number.0;
        }
        LaxNetSlice::Ipv6(ip) => {
            key.family = 6;
            key.src = ip.header().source();
            key.dst = ip.header().destination();
            key.proto = ip.payload().ip_number.0;
        }
        LaxNetSlice::Arp(_) => return None,
    }
    let ports = match packet.transport? {
        TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port()),
        TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port()),
        _ => return Some(key),
    };
    (key.sport, key.dport) = ports;
    key.flags = FlowKey::HAS_PORTS;
    Some(key)
}

fn main() {
    let packets = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_480);
    let mixes: [(&str, [u64; 2]); 4] = [
        ("IPv4", [0, 0]),
        ("IPv4 of which 10 % tagged", [10, 0]),
        ("half IPv4, half IPv6, 20 % tagged", [20, 50]),
        ("IPv6", [0, 100]),
    ];
    for (name, [tagged, six]) in mixes {
        let mut random = Random(7);
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for _ in 0..packets {
            let (tagged, six) = (random.next() % 100 < tagged, random.next() % 100 < six);
            let frame = frame(&mut random, tagged, six);
            places.push(bytes.len()..bytes.len() + frame.len());
            bytes.extend(frame);
        }
        let frames: Vec<_> = places
            .into_iter()
            .map(|place| Frame {
                wire_len: place.len() as u32,
                data: &bytes[place],
                interface: 0,
            })
            .collect();
        println!("{name}, {packets} packets, {} KiB", bytes.len() >> 10);
        measure(&frames);
    }
}

fn measure(frames: &[Frame<'_>]) {
    let parser = Parser::new(LinkType::ETHERNET, false).expect("Ethernet has keys");
    let inner = Parser::new(LinkType::ETHERNET, true).expect("Ethernet has keys");
    let hasher = Hasher::new(1);
    let keys: Vec<_> = frames
        .iter()
        .map(|frame| parser.key(frame.data).expect("a key"))
        .collect();
    assert!(
        frames
            .iter()
            .zip(&keys)
            .all(|(frame, key)| by_etherparse(frame.data) == Some(*key)),
        "etherparse agrees"
    );

    let batches = |parser: &Parser, each: &mut dyn FnMut(&[FlowKey])| {
        let mut out = [FlowKey::NONE; 32];
        for batch in frames.chunks(32) {
            for (out, frame) in out.iter_mut().zip(black_box(batch)) {
                *out = parser.key(frame.data).unwrap_or(FlowKey::NONE);
            }
            each(black_box(&out[..batch.len()]));
        }
    };
    let candidates: [(&str, &dyn Fn() -> u64); 9] = [
        ("key, one by one", &|| {
            let keys = frames
                .iter()
                .map(|frame| black_box(parser.key(black_box(frame.data))));
            keys.filter(Result::is_ok).count() as u64
        }),
        ("key, in batches", &|| {
            batches(&parser, &mut |_| ());
            0
        }),
        ("key, in batches, inner", &|| {
            batches(&inner, &mut |_| ());
            0
        }),
        ("etherparse, one by one", &|| {
            let keys = frames
                .iter()
                .map(|frame| black_box(by_etherparse(black_box(frame.data))));
            keys.flatten().count() as u64
        }),
        ("hash, plain", &|| {
            keys.iter()
                .fold(0, |sum, key| sum ^ hasher.plain(black_box(key)))
        }),
        ("hash, flow", &|| {
            keys.iter()
                .fold(0, |sum, key| sum ^ hasher.flow(black_box(key)).directed)
        }),
        ("key and flow hash, one by one", &|| {
            let keys = frames
                .iter()
                .filter_map(|frame| parser.key(black_box(frame.data)).ok());
            keys.fold(0, |sum, key| sum ^ hasher.flow(black_box(&key)).symmetric)
        }),
        ("key and flow hash, in batches", &|| {
            let mut sum = 0;
            batches(&parser, &mut |keys| {
                sum = keys
                    .iter()
                    .fold(sum, |sum, key| sum ^ hasher.flow(key).symmetric)
            });
            sum
        }),
        ("canonical key and plain hash", &|| {
            keys.iter().fold(0, |sum, key| {
                sum ^ hasher.plain(&black_box(key).canonical())
            })
        }),
    ];
    let mut times = vec![Vec::new(); candidates.len()];
    for _ in 0..7 {
        for (times, (_, run)) in times.iter_mut().zip(&candidates) {
            black_box(run());
            const TURNS: u32 = 10;
            let start = Instant::now();
            for _ in 0..TURNS {
                black_box(run());
            }
            times
                .push(start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS) / frames.len() as f64);
        }
    }
    for (mut times, (name, _)) in times.into_iter().zip(&candidates) {
        times.sort_by(f64::total_cmp);
        println!(
            "    {name:32}{:7.2} ns, least {:.2}",
            times[times.len() / 2],
            times[0]
        );
    }
}
