//! Expressions with sets of addresses, against libpcap's unoptimised program of the members written out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_packet::addresses::Addresses;
use weir_packet::{Frame, LinkType};

use super::{Bytes, agree_with};
use weir_filter::{Names, Native, libpcap};

/// Addresses of packets and members of sets: few, so that many packets match.
const V4: [[u8; 4]; 6] = [
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [10, 1, 0, 1],
    [192, 0, 2, 1],
    [240, 165, 0, 0],
    [0; 4],
];
const V6: [u128; 6] = [
    0x2001_0db8 << 96 | 1,
    0x2001_0db8 << 96 | 2,
    0x2001_0db8_0001 << 80 | 1,
    0xfe80 << 112 | 1,
    0xf1a5 << 112 | 0xf2a5 << 80 | 0xf3a5 << 48 | 0xf4a5 << 16,
    0,
];

/// Sets in an expression.
const NAMES: [&str; 2] = ["a", "b.2"];

/// Reads two sets, an expression that names them, and packets out of `data`; compares interpreter, native code and the kernel's copy with
/// libpcap's program of the members written out.
///
/// **Layout**: for each set a byte with its size and two bytes for each member; the expression, two bytes for each of its parts; the
/// rest is packets, five bytes each. **Panics**: on a disagreement.
pub fn sets(data: &[u8]) {
    let mut bytes = Bytes(data);
    let members = NAMES.map(|_| members(&mut bytes));
    let mut names = Names::default();
    for (name, members) in NAMES.iter().zip(&members) {
        let addresses = Addresses::parse(&members.join("\n")).expect("the members are addresses");
        names.sets.add(name, addresses).expect("the names differ");
    }
    let Pair { sets, written_out } = expression(&mut bytes, 3, &members);
    if !sets.contains('@') {
        return;
    }
    let context = || format!("{sets:?} as {written_out:?}");
    let compiled = libpcap::compile_with(&sets, LinkType::ETHERNET, &names);
    let Ok(oracle) = libpcap::compile_unoptimised(&written_out, LinkType::ETHERNET) else {
        assert!(
            compiled.is_err(),
            "libpcap refuses the members: {}",
            context()
        );
        return;
    };
    let program = compiled.unwrap_or_else(|error| panic!("{error}: {}", context()));
    let native = Native::compile(&program).expect("this machine has native code");
    let kernel = program.for_kernel();
    // A packet that ends within an address is judged by the order of the members, which a set does not have.
    let may_be_cut = !written_out.contains(NOBODY);
    for _ in 0..16 {
        let packet = packet(&mut bytes);
        let wire_len = packet.len() as u32;
        let is_clear = |len: &usize| may_be_cut && *len < LINK + 8 || *len >= LINK + 40;
        let frames: Vec<_> = (0..=packet.len())
            .filter(is_clear)
            .map(|len| Frame {
                data: &packet[..len],
                wire_len,
                interface: 0,
            })
            .collect();
        let agreed = std::panic::catch_unwind(|| agree_with(&oracle, &program, &native, &frames));
        assert!(agreed.is_ok(), "{}", context());
        for frame in &frames {
            let [matches, passes] = [&oracle, &kernel]
                .map(|program| libpcap::bpf_filter(program, frame.data, wire_len) != 0);
            assert!(
                passes || !matches,
                "the kernel's copy loses {:02x?}: {}",
                frame.data,
                context()
            );
        }
    }
}

/// Members of a set, as text: hosts and prefixes of both families.
fn members(bytes: &mut Bytes<'_>) -> Vec<String> {
    let count = bytes.next() % 12;
    let one = |_| {
        let (which, length) = (usize::from(bytes.next()), bytes.next());
        let address = if which & 1 == 0 {
            IpAddr::from(V4[which / 2 % V4.len()])
        } else {
            IpAddr::from(Ipv6Addr::from_bits(V6[which / 2 % V6.len()]))
        };
        if length < 128 {
            address.to_string()
        } else {
            prefix(address, length)
        }
    };
    (0..count).map(one).collect()
}

/// The prefix of an address with at least one bit.
fn prefix(address: IpAddr, length: u8) -> String {
    match address {
        IpAddr::V4(address) => {
            let length = 1 + u32::from(length) % 32;
            let network = address.to_bits() & u32::MAX << (32 - length);
            format!("{}/{length}", Ipv4Addr::from_bits(network))
        }
        IpAddr::V6(address) => {
            let length = 1 + u32::from(length) % 128;
            let network = address.to_bits() & u128::MAX << (128 - length);
            format!("{}/{length}", Ipv6Addr::from_bits(network))
        }
    }
}

/// An expression with sets, and the same one with their members written out.
struct Pair {
    sets: String,
    written_out: String,
}

/// A condition that no packet fulfils and that looks at none.
const NOBODY: &str = "greater 2000000000";

fn expression(bytes: &mut Bytes<'_>, depth: u8, members: &[Vec<String>; 2]) -> Pair {
    const OTHERS: [&str; 8] = [
        "udp",
        "tcp port 80",
        "ip6",
        "arp",
        "greater 70",
        "ip host 10.0.0.1",
        "ip[8] = 64",
        "ip[8] << ip[9] = 0",
    ];
    let choice = bytes.next();
    match choice % if depth == 0 { 2 } else { 6 } {
        0 if choice >= 64 => {
            let other = OTHERS[usize::from(choice) / 6 % OTHERS.len()].to_owned();
            Pair {
                sets: other.clone(),
                written_out: other,
            }
        }
        0 | 1 => primitive(bytes, members),
        2 => {
            let Pair { sets, written_out } = expression(bytes, depth - 1, members);
            Pair {
                sets: format!("not ({sets})"),
                written_out: format!("not ({written_out})"),
            }
        }
        either => {
            let word = ["and", "or"][usize::from(either) % 2];
            let [a, b] = [0; 2].map(|_| expression(bytes, depth - 1, members));
            let joined = |a: &str, b: &str| format!("({a}) {word} ({b})");
            Pair {
                sets: joined(&a.sets, &b.sets),
                written_out: joined(&a.written_out, &b.written_out),
            }
        }
    }
}

fn primitive(bytes: &mut Bytes<'_>, members: &[Vec<String>; 2]) -> Pair {
    let (choice, qualifiers) = (bytes.next(), usize::from(bytes.next()));
    let set = usize::from(choice & 1);
    let protocol = ["", "", "", "ip", "ip6", "arp", "rarp"][qualifiers % 7];
    let side = ["", "src", "dst", "src or dst", "src and dst"][qualifiers / 7 % 5];
    let kind = ["host", "net", ""][usize::from(choice >> 1) % if side.is_empty() { 2 } else { 3 }];
    let written_out = match side {
        // Both addresses are members, though not the same one.
        "src and dst" => {
            let [src, dst] = ["src", "dst"].map(|side| is_member(protocol, side, &members[set]));
            format!("({src} and {dst})")
        }
        _ => is_member(protocol, side, &members[set]),
    };
    Pair {
        sets: format!("{protocol} {side} {kind} @{}", NAMES[set]),
        written_out,
    }
}

/// The condition that the address of one side is a member.
fn is_member(protocol: &str, side: &str, members: &[String]) -> String {
    let fits = |member: &&String| match protocol {
        "ip" | "arp" | "rarp" => !member.contains(':'),
        "ip6" => member.contains(':'),
        _ => true,
    };
    let term = |member: &String| {
        let kind = if member.contains('/') { "net" } else { "host" };
        format!("{protocol} {side} {kind} {member}")
    };
    let terms: Vec<_> = members.iter().filter(fits).map(term).collect();
    if terms.is_empty() {
        NOBODY.to_owned()
    } else {
        format!("({})", terms.join(" or "))
    }
}

/// Bytes of the Ethernet header.
const LINK: usize = 14;

/// An Ethernet frame of 60 bytes behind its header: IPv4, IPv6, ARP or RARP.
fn packet(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let (kind, src, dst) = (
        bytes.next(),
        usize::from(bytes.next()),
        usize::from(bytes.next()),
    );
    let (protocol, ttl) = ([6, 17][usize::from(kind >> 7)], bytes.next());
    let v4 = |which: usize| V4[which % V4.len()];
    let v6 = |which: usize| V6[which % V6.len()].to_be_bytes();
    let transport = [&[0x12, 0x34, 0, 80][..], &[0; 36]].concat();
    let (ethertype, body) = match kind % 8 {
        0..3 => {
            let head = [0x45, 0, 0, 40, 0, 1, 0, 0, ttl, protocol, 0, 0];
            ([8, 0], [&head[..], &v4(src), &v4(dst), &transport].concat())
        }
        3..6 => {
            let head = [0x60, 0, 0, 0, 0, 20, protocol, 64];
            (
                [0x86, 0xdd],
                [&head[..], &v6(src), &v6(dst), &transport[..20]].concat(),
            )
        }
        other => {
            let head = [0, 1, 8, 0, 6, 4, 0, 1];
            let ethertype = if other == 6 { [8, 6] } else { [0x80, 0x35] };
            (
                ethertype,
                [&head[..], &[2; 6], &v4(src), &[3; 6], &v4(dst), &[0; 32]].concat(),
            )
        }
    };
    [&[2; 12][..], &ethertype, &body].concat()
}
