//! The simplified program has the results of the program that libpcap made, on every packet.

#[allow(dead_code)]
mod support;

use support::Random;
use weir_filter::{fuzz_body, interpreter, libpcap};
use weir_packet::LinkType;

fn random_programs(seed: u64, cases: u32) {
    let mut random = Random(seed);
    for case in 0..cases {
        let length = 16 + random.below(256);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let result = std::panic::catch_unwind(|| fuzz_body::simplified(&bytes));
        assert!(result.is_ok(), "seed {seed:#x}, case {case}, input {bytes:02x?}");
    }
}

/// `WEIR_PROGRAMS` sets another number of programs, `WEIR_SEED` another seed.
#[test]
fn random_programs_keep_their_results() {
    let number = |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (seed, programs) = (number("WEIR_SEED", 0x5eed), number("WEIR_PROGRAMS", 30_000));
    println!("seed {seed:#x}, {programs} programs");
    random_programs(seed, programs as u32);
}

/// Verdict for a packet, by whether it has the hosts A, B and C, and whether it is ICMP.
type Verdict = fn(bool, bool, bool, bool) -> bool;

/// Formulas over three hosts. libpcap's optimizer makes false programs for the first four.
#[allow(clippy::nonminimal_bool, clippy::overly_complex_bool_expr, reason = "each closure reads as its expression")]
const FORMULAS: [(&str, Verdict); 14] = [
    ("(host A and host B) or host C or host B", |a, b, c, _| a && b || c || b),
    ("(host A and host B) or (host C or host B)", |a, b, c, _| a && b || c || b),
    ("host C and not ((host A or host B) and icmp) and not (host B or host C)", |a, b, c, icmp| {
        c && !((a || b) && icmp) && !(b || c)
    }),
    ("not (host A and host B) and not host C and not host B", |a, b, c, _| !(a && b) && !c && !b),
    ("host A or host B or host C", |a, b, c, _| a || b || c),
    ("host A and host B or host C", |a, b, c, _| a && b || c),
    ("host A or host B and host C", |a, b, c, _| (a || b) && c),
    ("host A and (host B or host C)", |a, b, c, _| a && (b || c)),
    ("not host A and not host B and not host C", |a, b, c, _| !a && !b && !c),
    ("not (host A or host B) or host C", |a, b, c, _| !(a || b) || c),
    ("icmp and (host A or not host B) and not host C", |a, b, c, icmp| icmp && (a || !b) && !c),
    ("(host A and not icmp) or (host B and icmp) or not host C", |a, b, c, icmp| a && !icmp || b && icmp || !c),
    ("(host A or host B) and (host B or host C) and (host A or host C)", |a, b, c, _| (a || b) && (b || c) && (a || c)),
    ("host A and host B and host C", |a, b, c, _| a && b && c),
];

/// Addresses of which each ordered triple is tried: the order of the numbers matters to an optimizer.
const HOSTS: [[u8; 4]; 6] =
    [[1, 2, 3, 4], [5, 6, 7, 8], [192, 0, 2, 1], [192, 0, 2, 51], [10, 0, 0, 1], [255, 255, 255, 254]];

/// An Ethernet frame with an IPv4 packet, or with an ARP packet.
fn packet(from: [u8; 4], to: [u8; 4], kind: usize) -> Vec<u8> {
    let mut frame = vec![0u8; 60];
    let (ethertype, addresses) = if kind == 2 { ([8, 6], [28, 38]) } else { ([8, 0], [26, 30]) };
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
            for (second, b) in HOSTS.iter().enumerate().filter(|(second, _)| *second != first) {
                for (_, c) in HOSTS.iter().enumerate().filter(|(third, _)| *third != first && *third != second) {
                    one_formula(formula, holds, [*a, *b, *c]);
                }
            }
        }
    }
}

fn one_formula(formula: &str, holds: Verdict, hosts: [[u8; 4]; 3]) {
    let text = |[a, b, c, d]: [u8; 4]| format!("{a}.{b}.{c}.{d}");
    let names = [" A", " B", " C"];
    let expression = names.iter().zip(hosts).fold(formula.to_owned(), |formula, (name, host)| {
        formula.replace(&format!("host{name}"), &format!("host {}", text(host)))
    });
    let unoptimized = libpcap::compile_unoptimised(&expression, LinkType::ETHERNET).expect("it is valid");
    let short = libpcap::compile(&expression, LinkType::ETHERNET, false);
    let [a, b, c] = hosts;
    for from in [a, b, c, [9, 9, 9, 9]] {
        for to in [a, b, c, [8, 8, 8, 8]] {
            for kind in 0..3 {
                let frame = packet(from, to, kind);
                let is = |host| from == host || to == host;
                let expected = holds(is(a), is(b), is(c), kind == 0);
                assert_eq!(libpcap::bpf_filter(&unoptimized, &frame, 60) != 0, expected, "libpcap: {expression}");
                // An expression that no packet matches may be refused.
                let matched = short.as_ref().is_ok_and(|short| interpreter::run(short, &frame, 60) != 0);
                assert_eq!(matched, expected, "{expression}, {from:?} to {to:?}, kind {kind}");
                // Shorter packets: libpcap's interpreter alone is the oracle.
                let Ok(short) = &short else { continue };
                for len in (10..44).step_by(3) {
                    let expected = libpcap::bpf_filter(&unoptimized, &frame[..len], 60);
                    assert_eq!(interpreter::run(short, &frame[..len], 60), expected, "{expression}, {len} bytes");
                }
            }
        }
    }
}
