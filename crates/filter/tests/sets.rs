//! Sets of addresses in expressions: the verdict is that of libpcap on the list of the set's members, written out, in the unoptimised
//! program; and what cannot be is refused in the user's own words.

mod bodies;

use std::collections::HashSet;
use std::fmt::Write;
use std::net::IpAddr;

use weir_filter::sets::SetError;
use weir_filter::{Filter, Names, Native, Program, Sets, interpreter, libpcap};
use weir_packet::addresses::Addresses;
use weir_packet::{Frame, LinkType};
use weir_testkit::Random;

/// Addresses of packets, and members of sets: few, so that many packets match.
const V4: [&str; 6] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.1.0.1",
    "192.0.2.1",
    "240.165.0.0",
    "0.0.0.0",
];
const V6: [&str; 6] = [
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8:1::1",
    "fe80::1",
    "f1a5:0:f2a5:0:f3a5:0:f4a5:0",
    "::",
];
const PREFIXES: [&str; 5] = [
    "10.0.0.0/16",
    "10.0.0.0/31",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "fe80::/127",
];

/// Members of a set, as text.
type Members = Vec<&'static str>;

fn members(random: &mut Random, most: usize) -> Members {
    let all: Vec<_> = V4.into_iter().chain(V6).chain(PREFIXES).collect();
    (0..random.below(most + 1))
        .map(|_| all[random.below(all.len())])
        .collect()
}

fn names(sets: &[(&str, &Members)]) -> Names {
    let mut names = Names::default();
    for (name, members) in sets {
        names
            .sets
            .add(name, Addresses::parse(&members.join("\n")).unwrap())
            .unwrap();
    }
    names
}

/// An expression with sets, and the same one with their members written out.
struct Pair {
    sets: String,
    members: String,
}

/// The condition that the address of one side is a member; `greater 2000000000`, which looks at no packet, for none.
fn is_member(protocol: &str, side: &str, members: &Members) -> String {
    let fits = |member: &&&str| match protocol {
        "ip" | "arp" | "rarp" => !member.contains(':'),
        "ip6" => member.contains(':'),
        _ => true,
    };
    let term = |member: &&str| {
        let kind = if member.contains('/') { "net" } else { "host" };
        format!("{protocol} {side} {kind} {member}")
    };
    let terms: Vec<_> = members.iter().filter(fits).map(term).collect();
    if terms.is_empty() {
        "greater 2000000000".to_owned()
    } else {
        format!("({})", terms.join(" or "))
    }
}

fn primitive(random: &mut Random, sets: &[(&str, &Members)]) -> Pair {
    let (name, members) = sets[random.below(sets.len())];
    let protocol = ["", "", "", "ip", "ip6", "arp", "rarp"][random.below(7)];
    let side = ["", "src", "dst", "src or dst", "src and dst"][random.below(5)];
    let kind = ["host", "net", ""][random.below(if side.is_empty() { 2 } else { 3 })];
    let written_out = match side {
        // Both addresses are members, though not the same one.
        "src and dst" => {
            let [src, dst] = ["src", "dst"].map(|side| is_member(protocol, side, members));
            format!("({src} and {dst})")
        }
        _ => is_member(protocol, side, members),
    };
    Pair {
        sets: format!("{protocol} {side} {kind} @{name}"),
        members: written_out,
    }
}

fn expression(random: &mut Random, depth: usize, sets: &[(&str, &Members)]) -> Pair {
    const OTHERS: [&str; 7] = [
        "udp",
        "tcp port 80",
        "ip6",
        "arp",
        "greater 70",
        "ip host 10.0.0.1",
        "ip[8] = 64",
    ];
    match random.below(if depth == 0 { 2 } else { 6 }) {
        0 if depth < 3 => {
            let other = OTHERS[random.below(OTHERS.len())];
            Pair {
                sets: other.to_owned(),
                members: other.to_owned(),
            }
        }
        0 | 1 => primitive(random, sets),
        2 => {
            let Pair { sets, members } = expression(random, depth - 1, sets);
            Pair {
                sets: format!("not ({sets})"),
                members: format!("not ({members})"),
            }
        }
        either => {
            let word = ["and", "or"][either % 2];
            let [a, b] = [0; 2].map(|_| expression(random, depth - 1, sets));
            Pair {
                sets: format!("({}) {word} ({})", a.sets, b.sets),
                members: format!("({}) {word} ({})", a.members, b.members),
            }
        }
    }
}

/// Bytes in front of the network header for an EtherType.
fn link_header(link: LinkType, ethertype: u16, random: &mut Random) -> Vec<u8> {
    let [high, low] = ethertype.to_be_bytes();
    match link {
        LinkType::ETHERNET => [&[2; 12][..], &[high, low]].concat(),
        LinkType::RAW => Vec::new(),
        LinkType::LINUX_SLL => [
            &[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0][..],
            &[high, low],
        ]
        .concat(),
        // Radiotap of variable length, a data frame, SNAP.
        LinkType(127) => {
            let extra = 4 * random.below(5);
            let mut radiotap = vec![0u8; 8 + extra];
            radiotap[2] = 8 + extra as u8;
            let data = [&[8u8, 1][..], &[0; 22]].concat();
            [radiotap, data, vec![0xaa, 0xaa, 3, 0, 0, 0, high, low]].concat()
        }
        _ => unreachable!("no other link type is tested"),
    }
}

fn packet(link: LinkType, random: &mut Random) -> Vec<u8> {
    let v4 = |random: &mut Random| {
        V4[random.below(V4.len())]
            .parse::<std::net::Ipv4Addr>()
            .unwrap()
            .octets()
    };
    let v6 = |random: &mut Random| {
        V6[random.below(V6.len())]
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets()
    };
    let transport = [&[0x12, 0x34, 0, 80][..], &[0; 36]].concat();
    let kind = random.below(8);
    let (ethertype, body) = match kind {
        0..3 => {
            let protocol = [6, 17][random.below(2)];
            let head = [0x45, 0, 0, 40, 0, 1, 0, 0, 64, protocol, 0, 0];
            (
                0x0800,
                [&head[..], &v4(random), &v4(random), &transport].concat(),
            )
        }
        3..6 => {
            let head = [0x60, 0, 0, 0, 0, 20, [6, 17][random.below(2)], 64];
            (
                0x86dd,
                [&head[..], &v6(random), &v6(random), &transport[..20]].concat(),
            )
        }
        _ => {
            let head = [0, 1, 8, 0, 6, 4, 0, 1];
            let ethertype = if kind == 6 { 0x0806 } else { 0x8035 };
            (
                ethertype,
                [
                    &head[..],
                    &[2; 6],
                    &v4(random),
                    &[3; 6],
                    &v4(random),
                    &[0; 32],
                ]
                .concat(),
            )
        }
    };
    [link_header(link, ethertype, random), body].concat()
}

/// Compares the engines with libpcap on packets whole and cut; `is_everywhere` for all cuts, otherwise only where both addresses are there or none is.
fn compare(
    pair: &Pair,
    link: LinkType,
    names: &Names,
    is_everywhere: bool,
    random: &mut Random,
) -> [usize; 2] {
    let context = format!(
        "{:?} as {:?} for link type {}",
        pair.sets, pair.members, link.0
    );
    // libpcap's arithmetic overwrites the scratch word with the length of a radiotap header, whatever is compared.
    let is_broken = link == LinkType(127) && pair.sets.contains('[');
    if is_broken || !pair.sets.contains('@') {
        return [0; 2];
    }
    let oracle = match libpcap::compile_unoptimised(&pair.members, link) {
        Ok(oracle) => oracle,
        Err(refused) => {
            let program = libpcap::compile_with(&pair.sets, link, names);
            assert!(
                program.is_err(),
                "libpcap refuses the members, {refused}: {context}"
            );
            return [0; 2];
        }
    };
    let program = libpcap::compile_with(&pair.sets, link, names)
        .unwrap_or_else(|error| panic!("{error}: {context}"));
    let native = Native::compile(&program).unwrap();
    let kernel = program.without_sets();
    let mut verdicts = [0; 2];
    for _ in 0..24 {
        let packet = packet(link, random);
        let network = packet.len() - 60;
        let whole = network + 40;
        let has_all = !pair.members.contains("greater 2000000000");
        let cut = |len: &usize| has_all && (is_everywhere || *len < network + 8) || *len >= whole;
        let lengths: Vec<_> = (0..=packet.len()).filter(cut).collect();
        let frames: Vec<_> = lengths
            .iter()
            .map(|&len| Frame {
                data: &packet[..len],
                wire_len: packet.len() as u32,
                interface: 0,
            })
            .collect();
        for frames in frames.chunks(64) {
            let agreed =
                std::panic::catch_unwind(|| bodies::agree_with(&oracle, &program, &native, frames));
            assert!(agreed.is_ok(), "{context}");
            for frame in frames {
                let matches = libpcap::bpf_filter(&oracle, frame.data, frame.wire_len) != 0;
                let passes = libpcap::bpf_filter(&kernel, frame.data, frame.wire_len) != 0;
                assert!(
                    passes || !matches,
                    "the kernel's copy loses {:02x?}: {context}",
                    frame.data
                );
            }
        }
        verdicts[usize::from(libpcap::bpf_filter(&oracle, &packet, packet.len() as u32) != 0)] += 1;
    }
    verdicts
}

const LINKS: [LinkType; 4] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::LINUX_SLL,
    LinkType(127),
];

#[test]
fn sets_are_their_members_written_out() {
    let mut random = Random(1);
    let mut verdicts = [0; 2];
    for round in 0..1500 {
        let (a, b) = (members(&mut random, 4), members(&mut random, 9));
        let sets = [("a", &a), ("b.2", &b)];
        let pair = expression(&mut random, round % 4, &sets);
        let [misses, matches] = compare(
            &pair,
            LINKS[round % LINKS.len()],
            &names(&sets),
            false,
            &mut random,
        );
        verdicts = [verdicts[0] + misses, verdicts[1] + matches];
    }
    assert!(verdicts.iter().all(|&count| count > 5000), "{verdicts:?}");
}

/// With one member there is no order of members, so a cut address is judged as libpcap judges it.
#[test]
fn a_set_of_one_is_its_member_for_packets_cut_anywhere() {
    let mut random = Random(2);
    for round in 0..600 {
        let [a, b] = [0; 2].map(|_| {
            let mut one = members(&mut random, 1);
            one.resize(1, V6[0]);
            one
        });
        let sets = [("a", &a), ("b", &b)];
        let pair = expression(&mut random, round % 4, &sets);
        compare(
            &pair,
            LINKS[round % LINKS.len()],
            &names(&sets),
            true,
            &mut random,
        );
    }
}

/// `WEIR_PROGRAMS` sets another number of cases, `WEIR_SEED` another seed.
#[test]
fn random_cases_of_the_fuzz_target_agree() {
    let number = |name, usual| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(usual)
    };
    let (seed, cases): (u64, u64) = (number("WEIR_SEED", 0x5e75), number("WEIR_PROGRAMS", 400));
    let mut random = Random(seed);
    for case in 0..cases {
        let bytes = random.bytes(160);
        let result = std::panic::catch_unwind(|| bodies::sets(&bytes));
        assert!(
            result.is_ok(),
            "seed {seed:#x}, case {case}, input {bytes:02x?}"
        );
    }
}

/// A set stands in lists of addresses as an address does, and takes over the qualifiers of the one before it.
#[test]
fn sets_stand_in_lists() {
    let mut random = Random(3);
    let (a, b): (Members, Members) = (
        vec!["10.0.0.1", "2001:db8::/32", "192.0.2.1"],
        vec!["10.1.0.1", "fe80::1", "10.0.0.0/31"],
    );
    let sets = [("a", &a), ("b", &b)];
    let names = names(&sets);
    let one = |protocol: &str, side: &str, members: &Members| is_member(protocol, side, members);
    for (with_sets, members) in [
        (
            "host @a or @b",
            format!("{} or {}", one("", "", &a), one("", "", &b)),
        ),
        (
            "host (@a or @b)",
            format!("{} or {}", one("", "", &a), one("", "", &b)),
        ),
        (
            "src (@a or fe80::1)",
            format!("{} or src host fe80::1", one("", "src", &a)),
        ),
        (
            "src fe80::1 or @a",
            format!("src host fe80::1 or {}", one("", "src", &a)),
        ),
        (
            "ip host 10.1.0.1 or @a",
            format!("ip host 10.1.0.1 or {}", one("ip", "", &a)),
        ),
        (
            "ip6 src (@b or @a) and udp",
            format!(
                "({} or {}) and udp",
                one("ip6", "src", &b),
                one("ip6", "src", &a)
            ),
        ),
        (
            "host @a and @b",
            format!("{} and {}", one("", "", &a), one("", "", &b)),
        ),
        (
            "host (@a and @b)",
            format!("{} and {}", one("", "", &a), one("", "", &b)),
        ),
        (
            "host @a and not @b",
            format!("{} and not {}", one("", "", &a), one("", "", &b)),
        ),
        (
            "host (not @a or @b)",
            format!("(not {}) or {}", one("", "", &a), one("", "", &b)),
        ),
        ("not net @a", format!("not {}", one("", "", &a))),
        (
            "! src @a && dst @b",
            format!("(not {}) and {}", one("", "src", &a), one("", "dst", &b)),
        ),
        (
            "src @a or dst @a or (arp host @b)",
            format!("{} or {}", one("", "", &a), one("arp", "", &b)),
        ),
        (
            "dst host(@a)and(udp)",
            format!("{} and udp", one("", "dst", &a)),
        ),
        ("src @a or vlan", format!("{} or vlan", one("", "src", &a))),
        ("host @a or host 10.1.0.1 and 240.165.0.0", {
            format!(
                "({} or host 10.1.0.1) and host 240.165.0.0",
                one("", "", &a)
            )
        }),
    ] {
        let pair = Pair {
            sets: with_sets.to_owned(),
            members,
        };
        let verdicts =
            (0..20).map(|_| compare(&pair, LinkType::ETHERNET, &names, false, &mut random));
        let [misses, matches] =
            verdicts.fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        assert!(misses > 0, "{with_sets} matches all packets");
        assert!(matches > 0, "{with_sets} matches no packet");
    }
}

#[test]
fn markers_are_told_from_constants_of_the_user() {
    let empty: Members = vec![];
    let names = names(&[("none", &empty)]);
    let mut random = Random(4);
    // The first markers themselves, and the words of the IPv6 one.
    for own in [
        "src 240.165.0.0",
        "ip[12:4] = 0xf0a50000",
        "ip6[8:4] = 0xf1a50000",
        "src f1a5:0:f2a5:0:f3a5:0:f4a5:0",
    ] {
        let pair = Pair {
            sets: format!("{own} or src @none"),
            members: own.to_owned(),
        };
        let verdicts: Vec<_> = (0..20)
            .map(|_| compare(&pair, LinkType::ETHERNET, &names, false, &mut random))
            .collect();
        assert!(verdicts.iter().any(|verdicts| verdicts[1] > 0), "{own}");
    }
}

#[test]
fn an_empty_set_matches_nothing() {
    let empty: Members = vec![];
    let names = names(&[("none", &empty)]);
    let packet = packet(LinkType::ETHERNET, &mut Random(5));
    let frame = Frame {
        data: &packet,
        wire_len: packet.len() as u32,
        interface: 0,
    };
    for (expression, matches) in [
        ("host @none", 0),
        ("not host @none", 1),
        ("ip src @none or ip6 dst @none", 0),
    ] {
        let filter = Filter::compile_with(expression, LinkType::ETHERNET, &names).unwrap();
        assert_eq!(filter.matches(&[frame]), matches, "{expression}");
        filter.make_native();
        assert_eq!(filter.matches(&[frame]), matches, "{expression}");
    }
}

/// The kernel's copy keeps what does not depend on sets: it is the whole filter where a set decides alone.
#[test]
fn the_kernels_copy_passes_no_more_than_it_must() {
    // Smaller sets of IPv4 addresses are written out for the kernel.
    let hosts: String = (0..5000)
        .map(|host| format!("10.1.{}.{}\n", host / 128, host % 128 * 2))
        .collect();
    let mut names = Names::default();
    names
        .sets
        .add(
            "a",
            Addresses::parse(&(hosts + "10.0.0.1\n2001:db8::1")).unwrap(),
        )
        .unwrap();
    for (with_sets, without) in [
        ("ip src @a and udp port 53", "ip and udp port 53"),
        ("ip6 dst @a and not udp port 53", "ip6 and not udp port 53"),
        ("udp port 53 and src @a", "udp port 53"),
        ("udp port 53 and not src @a", "udp port 53"),
        ("ip and src @a", "ip"),
        ("tcp", "tcp"),
    ] {
        let program = libpcap::compile_with(with_sets, LinkType::ETHERNET, &names)
            .unwrap()
            .without_sets();
        let oracle = libpcap::compile_unoptimised(without, LinkType::ETHERNET).unwrap();
        let mut random = Random(6);
        for _ in 0..400 {
            let packet = packet(LinkType::ETHERNET, &mut random);
            let verdict =
                |program: &Program| libpcap::bpf_filter(program, &packet, packet.len() as u32) != 0;
            assert_eq!(
                verdict(&program),
                verdict(&oracle),
                "{with_sets}: {packet:02x?}"
            );
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_the_users_words() {
    let members: Members = vec!["10.0.0.1", "2001:db8::1"];
    let names = names(&[("lan", &members), ("banned", &members)]);
    for (expression, wanted) in [
        (
            "src @lam",
            "there is no set \"@lam\": those given are @banned, @lan",
        ),
        (
            "port @lan",
            "\"@lan\" stands for addresses, and this is a place for a port or a protocol",
        ),
        (
            "ip proto @lan",
            "\"@lan\" stands for addresses, and this is a place for a port or a protocol",
        ),
        (
            "ether host @lan",
            "\"@lan\" stands for IP addresses, and this is a place for one of the link layer",
        ),
        ("@lan", "\"@lan\" needs src, dst, host or net before it"),
        (
            "udp and @lan",
            "\"@lan\" needs src, dst, host or net before it",
        ),
        (
            "net @lan/24",
            "\"@lan\" takes no prefix length and no mask: those are in its file",
        ),
        (
            "net @lan mask 255.0.0.0",
            "\"@lan\" takes no prefix length and no mask: those are in its file",
        ),
        (
            "src @ lan",
            "\"@\" is not a set: a name follows the @ without a blank, as in src @banned",
        ),
        ("tcp src @lan", "'tcp' modifier applied to host"),
        ("gateway @lan", "gateway"),
        ("src @lan dst @banned", "syntax error"),
        (
            "len > @lan",
            "\"@lan\" needs src, dst, host or net before it",
        ),
        (
            "src @lan or host www",
            "\"www\" is a host name and would be looked up over the network",
        ),
    ] {
        let refused = Filter::compile_with(expression, LinkType::ETHERNET, &names)
            .unwrap_err()
            .to_string();
        assert!(refused.contains(wanted), "{expression}: {refused}");
        assert!(
            !refused.contains("240.165") && !refused.contains("f1a5"),
            "{expression}: {refused}"
        );
    }
    let refused = Filter::compile("src @lan", LinkType::ETHERNET, false)
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "there is no set \"@lan\": no set is defined; --set NAME=FILE defines one, and in rules a line set NAME"
    );
    // An at sign behind a backslash is part of a name, which is none of a set.
    let refused = Filter::compile_with("host \\@lan", LinkType::ETHERNET, &names)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("is a host name"), "{refused}");
}

#[test]
fn names_of_sets_are_unlike_each_other() {
    let mut sets = Sets::default();
    sets.add("lan-1.x_y", Addresses::default()).unwrap();
    assert_eq!(
        sets.add("lan-1.x_y", Addresses::default()),
        Err(SetError::Twice("lan-1.x_y".into()))
    );
    for name in ["", "a b", "@a", "a/b", "\u{e4}"] {
        assert_eq!(
            sets.add(name, Addresses::default()),
            Err(SetError::Name(name.into()))
        );
    }
}

/// Programs grow with the expression and not with the sets, and native code is made of them.
#[test]
fn a_set_of_a_million_members_is_one_test() {
    let mut text = String::new();
    let mut random = Random(8);
    for _ in 0..1_000_000 {
        writeln!(
            text,
            "{}",
            std::net::Ipv4Addr::from_bits(random.next() as u32)
        )
        .unwrap();
    }
    let mut names = Names::default();
    names
        .sets
        .add("many", Addresses::parse(&text).unwrap())
        .unwrap();
    let filter = Filter::compile_with("src @many", LinkType::ETHERNET, &names).unwrap();
    assert!(
        filter.program().insns().len() < 20,
        "{:?}",
        filter.program().insns()
    );
    filter.make_native();
    assert!(filter.is_native());
    let first: std::net::Ipv4Addr = text.lines().next().unwrap().parse().unwrap();
    for (source, matches) in [(first.octets(), 1), ([0, 0, 0, 1], 0)] {
        let packet = [&[2; 12][..], &[8, 0], &[0x45; 12], &source, &[0; 20]].concat();
        let frame = Frame {
            data: &packet,
            wire_len: 60,
            interface: 0,
        };
        assert_eq!(filter.matches(&[frame]), matches);
    }
}

/// Large sets, of random and of nested prefixes, in all ways in which a packet is judged; the twin looks for each prefix of an address.
#[test]
fn large_sets_have_what_a_naive_twin_has() {
    let mut random = Random(12);
    let kinds: [(bool, &[u32]); 8] = [
        (false, &[32]),
        (false, &[32, 24, 16]),
        (false, &[32, 8, 9, 17, 23, 24, 28, 30, 31]),
        (false, &[32, 31, 0]),
        (true, &[128]),
        (true, &[128, 64]),
        (true, &[128, 127, 64, 56, 48, 32, 16]),
        (true, &[128, 3, 0]),
    ];
    let mut found = [0; 2];
    for (six, lengths) in kinds {
        for count in [40, 30_000] {
            let mut members = listed(&mut random, six, count, lengths);
            // Prefixes within prefixes, and the ends of all addresses.
            let width = if six { 128 } else { 32 };
            let last = if six { u128::MAX } else { u32::MAX.into() };
            members.extend([(0, width), (last, width)]);
            let nested = members[..20].iter().map(|member| (member.0, width));
            members.extend(nested.collect::<Vec<_>>());
            let naive: HashSet<(u128, u32)> = members.iter().copied().collect();
            let has = |bits: u128| {
                (0..=width).any(|length| {
                    let rest = width - length;
                    let prefix = bits.checked_shr(rest).unwrap_or(0);
                    naive.contains(&(prefix.checked_shl(rest).unwrap_or(0), length))
                })
            };
            let mut names = Names::default();
            let addresses = Addresses::parse(&text_of(&members, six)).unwrap();
            names.sets.add("many", addresses).unwrap();
            let filter = Filter::compile_with("src @many", LinkType::ETHERNET, &names).unwrap();
            let interpreted = filter.program().clone();
            filter.make_native();
            let bytes = frames_of(&mut random, six, &members, 50, 1 << 12);
            let frames: Vec<_> = bytes.chunks(60).map(whole).collect();
            for batch in frames.chunks(41) {
                filter.fetch(batch);
                let verdicts = filter.matches(batch);
                for (index, frame) in batch.iter().enumerate() {
                    let address = if six {
                        u128::from_be_bytes(frame.data[22..38].try_into().unwrap())
                    } else {
                        u32::from_be_bytes(frame.data[26..30].try_into().unwrap()).into()
                    };
                    let wanted = has(address);
                    let context = || format!("{address:x} among {count} of {lengths:?}");
                    assert_eq!(verdicts >> index & 1 == 1, wanted, "{}", context());
                    let run = interpreter::run(&interpreted, frame.data, frame.wire_len);
                    assert_eq!(run != 0, wanted, "interpreted: {}", context());
                    found[usize::from(wanted)] += 1;
                }
            }
        }
    }
    assert!(found.iter().all(|&count| count > 10_000), "{found:?}");
}

/// A frame that was captured whole.
fn whole(data: &[u8]) -> Frame<'_> {
    Frame {
        data,
        wire_len: data.len() as u32,
        interface: 0,
    }
}

/// A list of `count` members of one family; `lengths` are those of their prefixes, in turn.
fn listed(random: &mut Random, six: bool, count: usize, lengths: &[u32]) -> Vec<(u128, u32)> {
    let member = |number: usize| {
        let length = lengths[number % lengths.len()];
        let bits = source(random, six);
        let width = if six { 128 } else { 32 };
        let rest = width - length;
        let prefix = bits.checked_shr(rest).unwrap_or(0);
        (prefix.checked_shl(rest).unwrap_or(0), length)
    };
    (0..count).map(member).collect()
}

/// A random address: of IPv6 one in 2000::/3, where such addresses are.
fn source(random: &mut Random, six: bool) -> u128 {
    let any = u128::from(random.next()) << 64 | u128::from(random.next());
    if six {
        any >> 3 | 1 << 125
    } else {
        any as u32 as u128
    }
}

/// A file of a list of members.
fn text_of(members: &[(u128, u32)], six: bool) -> String {
    let mut text = String::new();
    for &(bits, length) in members {
        let address = match six {
            true => IpAddr::V6(bits.into()),
            false => IpAddr::V4((bits as u32).into()),
        };
        writeln!(text, "{address}/{length}").unwrap();
    }
    text
}

/// Frames of 60 bytes of random sources, one behind the other; of each hundred, `hits` have a member's address.
fn frames_of(
    random: &mut Random,
    six: bool,
    members: &[(u128, u32)],
    hits: usize,
    count: usize,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let mut address = source(random, six);
        if random.below(100) < hits {
            let (bits, length) = members[random.below(members.len())];
            let rest = if six { 128 - length } else { 32 - length };
            address = bits | address & !u128::MAX.checked_shl(rest).unwrap_or(0);
        }
        bytes.extend([2; 12]);
        match six {
            true => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64]);
                bytes.extend(address.to_be_bytes());
                bytes.extend([0; 22]);
            }
            false => {
                bytes.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 253, 0, 0]);
                bytes.extend((address as u32).to_be_bytes());
                bytes.extend([0; 30]);
            }
        }
    }
    bytes
}

/// Prints the median time of a packet, by family, kinds and number of members, and share of packets that match. A busy machine changes
/// medians little, because a sample takes some 50 us.
#[test]
#[ignore = "needs an optimized build: it measures times"]
fn times_of_lookups_among_a_million_members() {
    let kinds: [(bool, &str, &[u32]); 4] = [
        (false, "IPv4 hosts", &[32]),
        (
            false,
            "IPv4 hosts and prefixes",
            &[32, 32, 32, 24, 20, 22, 28, 30],
        ),
        (true, "IPv6 hosts", &[128]),
        (true, "IPv6 hosts and prefixes", &[128, 128, 64, 64, 56, 48]),
    ];
    for (six, what, lengths) in kinds {
        for count in [1, 1_000, 1_000_000] {
            let mut random = Random(9);
            let members = listed(&mut random, six, count, lengths);
            let text = text_of(&members, six);
            let began = std::time::Instant::now();
            let mut names = Names::default();
            let addresses = Addresses::parse(&text).unwrap();
            names.sets.add("many", addresses).unwrap();
            let loaded = began.elapsed().as_secs_f64() * 1e3;
            let filter = Filter::compile_with("src @many", LinkType::ETHERNET, &names).unwrap();
            filter.make_native();
            let times = [0, 10, 100].map(|hits| {
                let bytes = frames_of(&mut random, six, &members, hits, 1 << 17);
                let frames: Vec<_> = bytes.chunks(60).map(whole).collect();
                median_time(&filter, &frames)
            });
            let [none, tenth, all] = times;
            println!(
                "{count:7} {what:24} loaded in {loaded:5.0} ms; ns a packet: {none:5.1} without hits, {tenth:5.1} with 10 %, {all:5.1} with all"
            );
        }
    }
}

/// Frames of a call when files are read; those of the next call are fetched before.
const BATCH: usize = 32;

/// The median of the times of 64 batches, by packet, ns.
fn median_time(filter: &Filter, frames: &[Frame<'_>]) -> f64 {
    let mut times = Vec::new();
    for _ in 0..8 {
        for some in frames.chunks(64 * BATCH) {
            let began = std::time::Instant::now();
            let mut next = some.chunks(BATCH).skip(1);
            let mut found = 0;
            for batch in some.chunks(BATCH) {
                next.next()
                    .into_iter()
                    .for_each(|frames| filter.fetch(frames));
                found += filter.matches(batch).count_ones();
            }
            std::hint::black_box(found);
            times.push(began.elapsed().as_nanos() as f64 / some.len() as f64);
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
