//! The simplified program has the results of the program that libpcap made, on every packet.

mod bodies;
#[allow(dead_code)]
mod support;

use support::Random;
use weir_filter::{interpreter, libpcap};
use weir_packet::LinkType;

fn random_programs(seed: u64, cases: u32) {
    let mut random = Random(seed);
    for case in 0..cases {
        let length = 16 + random.below(256);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let result = std::panic::catch_unwind(|| bodies::simplified(&bytes));
        assert!(
            result.is_ok(),
            "seed {seed:#x}, case {case}, input {bytes:02x?}"
        );
    }
}

/// `WEIR_PROGRAMS` sets another number of programs, `WEIR_SEED` another seed.
#[test]
fn random_programs_keep_their_results() {
    let number = |name, usual| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(usual)
    };
    let (seed, programs) = (number("WEIR_SEED", 0x5eed), number("WEIR_PROGRAMS", 30_000));
    println!("seed {seed:#x}, {programs} programs");
    random_programs(seed, programs as u32);
}

/// Verdict for a packet, by whether it has the hosts A, B and C, and whether it is ICMP.
type Verdict = fn(bool, bool, bool, bool) -> bool;

/// Formulas over three hosts. libpcap's optimizer makes false programs for the first four.
#[allow(
    clippy::nonminimal_bool,
    clippy::overly_complex_bool_expr,
    reason = "each closure reads as its expression"
)]
const FORMULAS: [(&str, Verdict); 14] = [
    ("(host A and host B) or host C or host B", |a, b, c, _| {
        a && b || c || b
    }),
    ("(host A and host B) or (host C or host B)", |a, b, c, _| {
        a && b || c || b
    }),
    (
        "host C and not ((host A or host B) and icmp) and not (host B or host C)",
        |a, b, c, icmp| c && !((a || b) && icmp) && !(b || c),
    ),
    (
        "not (host A and host B) and not host C and not host B",
        |a, b, c, _| !(a && b) && !c && !b,
    ),
    ("host A or host B or host C", |a, b, c, _| a || b || c),
    ("host A and host B or host C", |a, b, c, _| a && b || c),
    ("host A or host B and host C", |a, b, c, _| (a || b) && c),
    ("host A and (host B or host C)", |a, b, c, _| a && (b || c)),
    ("not host A and not host B and not host C", |a, b, c, _| {
        !a && !b && !c
    }),
    ("not (host A or host B) or host C", |a, b, c, _| {
        !(a || b) || c
    }),
    (
        "icmp and (host A or not host B) and not host C",
        |a, b, c, icmp| icmp && (a || !b) && !c,
    ),
    (
        "(host A and not icmp) or (host B and icmp) or not host C",
        |a, b, c, icmp| a && !icmp || b && icmp || !c,
    ),
    (
        "(host A or host B) and (host B or host C) and (host A or host C)",
        |a, b, c, _| (a || b) && (b || c) && (a || c),
    ),
    ("host A and host B and host C", |a, b, c, _| a && b && c),
];

/// Addresses of which each ordered triple is tried: the order of the numbers matters to an optimizer.
const HOSTS: [[u8; 4]; 6] = [
    [1, 2, 3, 4],
    [5, 6, 7, 8],
    [192, 0, 2, 1],
    [192, 0, 2, 51],
    [10, 0, 0, 1],
    [255, 255, 255, 254],
];

/// An Ethernet frame with an IPv4 packet, or with an ARP packet.
fn packet(from: [u8; 4], to: [u8; 4], kind: usize) -> Vec<u8> {
    let mut frame = vec![0u8; 60];
    let (ethertype, addresses) = if kind == 2 {
        ([8, 6], [28, 38])
    } else {
        ([8, 0], [26, 30])
    };
    frame[12..14].copy_from_slice(&ethertype);
    frame[14] = 0x45;
    frame[23] = [1, 17, 0][kind];
    for (at, address) in addresses.into_iter().zip([from, to]) {
        frame[at..at + 4].copy_from_slice(&address);
    }
    frame
}

#[test]
fn formulas_over_all_triples_of_hosts_hold_as_written() {
    for (formula, holds) in FORMULAS {
        for (first, a) in HOSTS.iter().enumerate() {
            for (second, b) in HOSTS
                .iter()
                .enumerate()
                .filter(|(second, _)| *second != first)
            {
                for (_, c) in HOSTS
                    .iter()
                    .enumerate()
                    .filter(|(third, _)| *third != first && *third != second)
                {
                    one_formula(formula, holds, [*a, *b, *c]);
                }
            }
        }
    }
}

fn one_formula(formula: &str, holds: Verdict, hosts: [[u8; 4]; 3]) {
    let text = |[a, b, c, d]: [u8; 4]| format!("{a}.{b}.{c}.{d}");
    let names = [" A", " B", " C"];
    let expression = names
        .iter()
        .zip(hosts)
        .fold(formula.to_owned(), |formula, (name, host)| {
            formula.replace(&format!("host{name}"), &format!("host {}", text(host)))
        });
    let unoptimized =
        libpcap::compile_unoptimised(&expression, LinkType::ETHERNET).expect("it is valid");
    let short = libpcap::compile(&expression, LinkType::ETHERNET, false);
    let [a, b, c] = hosts;
    for from in [a, b, c, [9, 9, 9, 9]] {
        for to in [a, b, c, [8, 8, 8, 8]] {
            for kind in 0..3 {
                let frame = packet(from, to, kind);
                let is = |host| from == host || to == host;
                let expected = holds(is(a), is(b), is(c), kind == 0);
                assert_eq!(
                    libpcap::bpf_filter(&unoptimized, &frame, 60) != 0,
                    expected,
                    "libpcap: {expression}"
                );
                // An expression that no packet matches may be refused.
                let matched = short
                    .as_ref()
                    .is_ok_and(|short| interpreter::run(short, &frame, 60) != 0);
                assert_eq!(
                    matched, expected,
                    "{expression}, {from:?} to {to:?}, kind {kind}"
                );
                // Shorter packets: libpcap's interpreter alone is the oracle.
                let Ok(short) = &short else { continue };
                for len in (10..44).step_by(3) {
                    let expected = libpcap::bpf_filter(&unoptimized, &frame[..len], 60);
                    assert_eq!(
                        interpreter::run(short, &frame[..len], 60),
                        expected,
                        "{expression}, {len} bytes"
                    );
                }
            }
        }
    }
}

/// Lists of 40 hosts, which become sets, and of 12, which do not; hosts 10.0.0.0 to 10.0.0.39.
#[test]
fn lists_of_hosts_keep_their_verdicts_for_packets_cut_anywhere() {
    let list = |word: &str, hosts: usize| {
        let one = |host| format!("{word}10.0.0.{host}");
        (0..hosts).map(one).collect::<Vec<_>>().join(" or ")
    };
    for hosts in [12, 40] {
        let [host, src, dst] = ["host ", "src ", "dst "].map(|word| list(word, hosts));
        for expression in [
            host.clone(),
            format!("not ({host})"),
            format!("icmp and ({src}) and not ({dst})"),
            format!("udp or {src} and host 9.9.9.9"),
            format!("not {host}"),
            format!("vlan or {host}"),
        ] {
            list_keeps_its_verdicts(&expression);
        }
    }
}

fn list_keeps_its_verdicts(expression: &str) {
    let unoptimised =
        libpcap::compile_unoptimised(expression, LinkType::ETHERNET).expect("it is valid");
    let short = libpcap::compile(expression, LinkType::ETHERNET, false).expect("it is valid");
    let native = weir_filter::Native::compile(&short).expect("this machine has native code");
    let kernel = short.without_sets();
    assert!(kernel.insns().len() <= 4096);
    let hosts = [
        [10, 0, 0, 0],
        [10, 0, 0, 1],
        [10, 0, 0, 11],
        [10, 0, 0, 39],
        [10, 0, 0, 40],
        [9, 9, 9, 9],
    ];
    for from in hosts {
        for to in hosts {
            for kind in 0..3 {
                let frame = packet(from, to, kind);
                for len in 0..=frame.len() {
                    let cut = &frame[..len];
                    let expected = libpcap::bpf_filter(&unoptimised, cut, 60);
                    let context =
                        || format!("{expression}, {from:?} to {to:?}, kind {kind}, {len} bytes");
                    assert_eq!(interpreter::run(&short, cut, 60), expected, "{}", context());
                    let frame = weir_packet::Frame {
                        data: cut,
                        wire_len: 60,
                        interface: 0,
                    };
                    assert_eq!(native.run(&frame), expected, "native: {}", context());
                    assert_eq!(
                        libpcap::bpf_filter(&kernel, cut, 60),
                        expected,
                        "kernel's copy: {}",
                        context()
                    );
                }
            }
        }
    }
}

#[test]
fn a_list_of_three_thousand_hosts_is_compiled_at_once() {
    let hosts: Vec<_> = (0..3000u32)
        .map(|host| [10, 1, (host >> 7) as u8, (host * 2) as u8])
        .collect();
    let text = |[a, b, c, d]: [u8; 4]| format!("host {a}.{b}.{c}.{d}");
    let expression = hosts
        .iter()
        .map(|&host| text(host))
        .collect::<Vec<_>>()
        .join(" or ");
    let program = libpcap::compile(&expression, LinkType::ETHERNET, false).expect("it is valid");
    assert!(
        program.insns().len() < 100,
        "{} instructions",
        program.insns().len()
    );
    for host in 0..6000u32 {
        let address = [10, 1, (host >> 7) as u8, host as u8];
        let expected = hosts.contains(&address);
        let matched = interpreter::run(&program, &packet(address, [8, 8, 8, 8], 1), 60) != 0;
        assert_eq!(matched, expected, "{address:?}");
    }
    let refused =
        libpcap::compile(&format!("{expression} or hots"), LinkType::ETHERNET, false).unwrap_err();
    assert!(refused.to_string().contains("hots"), "{refused}");
}

fn section(name: &str) -> impl Iterator<Item = &'static str> {
    let text = include_str!("expressions.txt");
    let heading = format!("\n{name}\n");
    let start = text.find(&heading).expect("the section exists") + heading.len();
    let rest = &text[start..];
    let end = rest.find("\n[").unwrap_or(rest.len());
    rest[..end]
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// libpcap's optimizer is the measure of length, if not of truth.
#[test]
fn simplified_programs_are_about_as_short_as_optimised_ones() {
    let mut sums = [0; 2];
    for expression in section("[accepted]") {
        let optimised = libpcap::compile_optimised(expression, LinkType::ETHERNET);
        let (Ok(optimised), Ok(short)) = (
            optimised,
            libpcap::compile(expression, LinkType::ETHERNET, false),
        ) else {
            continue;
        };
        sums[0] += optimised.insns().len();
        sums[1] += short.insns().len();
    }
    assert!(sums[0] > 3000 && sums[1] < sums[0] * 11 / 10, "{sums:?}");
}

/// A datagram over IPv4, perhaps a fragment, or over IPv6.
fn datagram(kind: usize, ports: [u8; 2]) -> Vec<u8> {
    let mut frame = vec![0u8; 70];
    let transport = match kind {
        0..3 => {
            frame[12..15].copy_from_slice(&[8, 0, [0x45, 0x46, 0x45][kind]]);
            frame[20..22].copy_from_slice(&[[0, 0], [0x20, 0], [0, 1]][kind]);
            frame[23] = [6, 17, 132][kind];
            14 + 4 * usize::from(frame[14] & 15)
        }
        _ => {
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            frame[20] = [6, 17, 132, 58][kind - 3];
            54
        }
    };
    [frame[transport + 1], frame[transport + 3]] = ports;
    frame
}

/// What is known of protocol and fragments at the first port is known at the others.
#[test]
fn lists_of_ports_are_about_as_short_as_optimised_ones() {
    for count in [2, 3, 10, 26] {
        let ports: Vec<_> = (1..=count).map(|port| format!("port {port}")).collect();
        let expression = ports.join(" or ");
        let unoptimised = libpcap::compile_unoptimised(&expression, LinkType::ETHERNET).unwrap();
        let optimised = libpcap::compile_optimised(&expression, LinkType::ETHERNET).unwrap();
        let short = libpcap::compile(&expression, LinkType::ETHERNET, false).unwrap();
        let lengths = [short.insns().len(), optimised.insns().len()];
        assert!(
            lengths[0] <= lengths[1] * 13 / 10,
            "{count} ports: {lengths:?} instructions"
        );
        for (kind, port) in (0..7).flat_map(|kind| (0..30).map(move |port| (kind, port))) {
            for frame in [datagram(kind, [port, 99]), datagram(kind, [99, port])] {
                for len in (12..=frame.len()).step_by(3) {
                    let expected = libpcap::bpf_filter(&unoptimised, &frame[..len], 70);
                    assert_eq!(
                        interpreter::run(&short, &frame[..len], 70),
                        expected,
                        "{expression}: {frame:02x?}"
                    );
                }
            }
        }
    }
}

/// Expressions for which weir and plain tcpdump differ on a packet of the captures (docs/reference/expressions.md).
///
/// `net 0.0.0.0/0`: the optimizer drops the load of an address that decides nothing, and a packet that ends before it matches.
const DIFFERENCES: [&str; 1] = ["net 0.0.0.0/0"];

/// Each difference is one of the optimizer: the unoptimised program, `tcpdump -O`, agrees with weir.
#[test]
fn differences_from_plain_tcpdump_are_listed() {
    let samples = support::captured();
    let mut links: Vec<_> = samples.iter().map(|sample| sample.link).collect();
    links.sort_unstable_by_key(|link| link.0);
    links.dedup();
    let mut differ: Vec<String> = Vec::new();
    for expression in section("[accepted]") {
        for &link in &links {
            let optimised = libpcap::compile_optimised(expression, link);
            let (Ok(optimised), Ok(short)) = (optimised, libpcap::compile(expression, link, false))
            else {
                continue;
            };
            let different = |sample: &&support::Sample| {
                let optimised = libpcap::bpf_filter(&optimised, &sample.data, sample.wire_len);
                interpreter::run(&short, &sample.data, sample.wire_len) != optimised
            };
            let count = samples
                .iter()
                .filter(|sample| sample.link == link)
                .filter(different)
                .count();
            if count > 0 {
                differ.push(format!(
                    "{expression} (link type {}, {count} packets)",
                    link.0
                ));
            }
        }
    }
    let unlisted = differ
        .iter()
        .filter(|found| !DIFFERENCES.iter().any(|listed| found.starts_with(listed)));
    assert_eq!(
        unlisted.collect::<Vec<_>>(),
        [""; 0],
        "of {} differences",
        differ.len()
    );
}

/// Expressions in which one test makes the second value of another one safe: a division, a load behind a length, and a load that no
/// packet has. Each is judged on frames of all values of the two bytes on which it depends, and cut to all lengths.
#[test]
fn tests_stay_behind_those_that_make_them_safe() {
    for expression in [
        "ether[20] = 1 or ether[14] = 0 or ether[20] > 100 / ether[14]",
        "ether[20] = 1 or ether[14] = 0 or ether[20] > 100 % ether[14] or ether[20] = 7",
        "ether[60] >= 0 and (ether[20] = 1 or ether[14] > 20 or ether[20] > ether[ether[14] + 4])",
        "not (ether[20] != 1 and ether[14] != 0 and ether[20] <= 100 / ether[14])",
        "ether[0xfffff004:4] = 0 or ether[20] = 1",
    ] {
        let oracle = libpcap::compile_unoptimised(expression, LinkType::ETHERNET).unwrap();
        let program = libpcap::compile(expression, LinkType::ETHERNET, false).unwrap();
        for (divisor, byte) in (0..=255).flat_map(|a| [0, 1, 2, 7, 100, 255].map(|b| (a, b))) {
            let mut frame = [0u8; 64];
            (frame[14], frame[20]) = (divisor, byte);
            for data in [&frame[..], &frame[..21], &frame[..20], &frame[..14]] {
                let expected = libpcap::bpf_filter(&oracle, data, 64);
                let context = format!(
                    "{expression}: bytes {divisor}, {byte}, {} captured",
                    data.len()
                );
                assert_eq!(interpreter::run(&program, data, 64), expected, "{context}");
            }
        }
    }
}
