//! The language of rule lists: what each condition means, and what is refused with which words.

use core::net::{IpAddr, Ipv4Addr};
use std::io;
use weir_firewall::rules::{Action, MOST_RULES, Rate, RuleList, Unit, Vlan};
use weir_firewall::{Addresses, Classifier, State, TooLarge, Verdict};

fn parse(text: &str) -> Result<RuleList, String> {
    RuleList::parse(text, &mut |name| match name {
        "good" => Ok("10.0.0.0/8 # a comment\n\n2001:db8::1\n".to_owned()),
        "bad" => Ok("10.0.0.0/8\n10.0.0.300\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    })
    .map_err(|error| error.to_string())
}

fn set(ranges: &[(&str, &str)]) -> Addresses {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    Addresses::new(
        ranges
            .iter()
            .map(|&(first, last)| (address(first), address(last))),
    )
}

#[test]
fn every_condition_has_its_meaning() {
    let list = parse(
        "# a list\n\
         default reject\nnon-ip drop\nneighbors rules\nmalformed pass\n\
         set s 10.0.0.0/31, 10.0.0.2\nset s file good\n\
         drop src $s dst 1.2.3.4,2001:db8::/127 # two families\n\
         pass tcp sport 1-5,7 dport 80 flags S/SA\n\
         count proto icmp6,47 vlan 7,9-10 on eth0\n\
         reject fragment vlan none expr 'udp # and not a comment'#this is\n\
         drop src any dport 53 on eth1\n\
         pass expr arp on eth0\n",
    )
    .unwrap();
    let rest = (
        list.default,
        list.non_ip,
        list.neighbors_by_rules,
        list.malformed,
    );
    assert_eq!(rest, (Verdict::Reject, Verdict::Drop, true, Verdict::Pass));
    assert_eq!(
        list.interfaces
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["eth0", "eth1"]
    );
    assert_eq!(list.expressions, ["udp # and not a comment", "arp"]);
    let [a, b, c, d, e, f] = &list.rules[..] else {
        panic!("{list:?}")
    };
    assert_eq!(
        [a, b, c, d, e, f].map(|rule| rule.line),
        [8, 9, 10, 11, 12, 13]
    );
    assert_eq!(
        (a.text.as_str(), a.comment.as_str()),
        ("drop src $s dst 1.2.3.4,2001:db8::/127", "two families")
    );
    let whole = set(&[
        ("10.0.0.0", "10.255.255.255"),
        ("2001:db8::1", "2001:db8::1"),
    ]);
    assert_eq!(a.src.as_deref(), Some(&whole));
    assert_eq!(
        a.dst.as_deref(),
        Some(&set(&[
            ("1.2.3.4", "1.2.3.4"),
            ("2001:db8::", "2001:db8::1")
        ]))
    );
    assert_eq!((a.action, a.proto), (Action::Decide(Verdict::Drop), None));
    assert_eq!(
        (b.action, b.proto),
        (Action::Decide(Verdict::Pass), Some([1 << 6, 0, 0, 0]))
    );
    assert_eq!(
        (&b.sport, &b.dport),
        (&Some(vec![(1, 5), (7, 7)]), &Some(vec![(80, 80)]))
    );
    // SYN is bit 1 and ACK bit 4: RFC 9293, section 3.1.
    assert_eq!(b.flags, Some((0b0000_0010, 0b0001_0010)));
    assert_eq!(
        (c.action, c.proto),
        (Action::Count, Some([1 << 58 | 1 << 47, 0, 0, 0]))
    );
    assert_eq!(
        (&c.vlan, c.on),
        (&Some(Vlan::Identifiers(vec![(7, 7), (9, 10)])), Some(0))
    );
    assert_eq!(
        (d.action, d.fragment, &d.vlan),
        (Action::Decide(Verdict::Reject), true, &Some(Vlan::None))
    );
    assert_eq!((d.expression, d.comment.as_str()), (Some(0), "this is"));
    // Ports without a protocol are those of TCP, UDP, DCCP, SCTP and UDP-Lite.
    let with_ports = [
        1 << 6 | 1 << 17 | 1 << 33,
        0,
        1 << (132 - 128) | 1 << (136 - 128),
        0,
    ];
    assert_eq!((&e.src, e.proto, e.on), (&None, Some(with_ports), Some(1)));
    let rate = |text: &str| parse(text).unwrap().rules[0].rate.unwrap();
    let whole = Rate {
        count: 100,
        unit: Unit::Packets,
        period_ns: 1_000_000_000,
        burst: 100,
        is_per_source: false,
        is_beyond: false,
    };
    assert_eq!(rate("pass icmp limit 100/s"), whole);
    assert_eq!(
        rate("pass limit 100/s burst 1k"),
        Rate {
            burst: 1024,
            ..whole
        }
    );
    assert_eq!(
        rate("drop over 100/m per src"),
        Rate {
            period_ns: 60_000_000_000,
            is_per_source: true,
            is_beyond: true,
            ..whole
        }
    );
    let bytes = Rate {
        unit: Unit::Bytes,
        count: 65536,
        burst: 9000,
        period_ns: 3_600_000_000_000,
        ..whole
    };
    assert_eq!(rate("pass limit 64kB/h burst 9000B"), bytes);
    let states = parse("pass state new,related\n").unwrap().rules[0]
        .states
        .unwrap();
    let all = [
        State::New,
        State::Established,
        State::Related,
        State::Invalid,
        State::Untracked,
    ];
    assert_eq!(
        all.map(|state| states.has(state)),
        [true, false, true, false, false]
    );
    let times = parse("drop for 1500ms\ndrop for 2d\n").unwrap().rules;
    assert_eq!(
        [0, 1].map(|rule| times[rule].lasts.map(|time| time.as_millis())),
        [Some(1500), Some(172_800_000)]
    );
    let more = parse(
        "drop icmp type 3,4-5/1-2\npass mss 1-535,1460\ndrop routing 0,2-3\n\
         drop on eth*,!eth0,wan0 to 'a,b'\npass hour 22:00-5:59:59,8:30-8:30:01\npass expr arp to !wan0\n",
    )
    .unwrap();
    let [a, b, c, d, e, f] = &more.rules[..] else {
        panic!("{more:?}")
    };
    assert_eq!(
        a.types,
        Some(vec![(0x300, 0x3ff), (0x401, 0x402), (0x501, 0x502)])
    );
    assert_eq!(
        (&b.mss, b.proto),
        (&Some(vec![(1, 535), (1460, 1460)]), Some([1 << 6, 0, 0, 0]))
    );
    assert_eq!(c.routing, Some(vec![(0, 0), (2, 3)]));
    assert_eq!((d.on, d.to, f.to), (Some(0), Some(1), Some(2)));
    let held = |arrival, departure| more.holding(arrival, departure).to_vec();
    assert_eq!(held(Some("eth1"), Some("a,b")), [true, true, true]);
    assert_eq!(held(Some("eth0"), Some("wan0")), [false, false, false]);
    assert_eq!(held(Some("wan0"), Some("a")), [true, false, true]);
    assert_eq!(held(Some("wan00"), None), [false, false, false]);
    assert_eq!(
        e.hours,
        Some(vec![(0, 21_599), (79_200, 86_399), (30_600, 30_601)])
    );
    assert!(f.is_for_all_frames() && !e.is_for_all_frames());
    let [a, b, c, d, e, f] = &list.rules[..] else {
        panic!("{list:?}")
    };
    let for_all = [a, b, c, d, e, f].map(weir_firewall::rules::Rule::is_for_all_frames);
    assert_eq!(for_all, [false, false, false, false, false, true]);
}

#[test]
fn a_wrong_line_is_refused_with_its_number_and_the_reason() {
    for (line, words) in [
        ("allow tcp", "a line begins with pass"),
        ("drop from 10.0.0.1", "unknown condition \"from\""),
        ("drop tcp udp", "proto stands twice"),
        ("drop src any src 10.0.0.1", "src stands twice"),
        ("drop src", "src needs a value: an address"),
        ("default", "default needs a value: pass, drop or reject"),
        (
            "default maybe",
            "default is pass, drop or reject, not \"maybe\"",
        ),
        ("non-ip reject", "non-ip is pass or drop, not \"reject\""),
        (
            "malformed count",
            "malformed is pass or drop, not \"count\"",
        ),
        ("neighbors drop", "neighbors is pass or rules, not \"drop\""),
        ("default drop now", "\"now\" is too much here"),
        (
            "drop tcp dport 80, 443",
            "a list has an empty element: it is written without blanks, as in 80,443",
        ),
        ("drop src 10.0.0.256", "\"10.0.0.256\" is not an address"),
        ("drop src 10/8", "\"10/8\" is not an address"),
        ("drop src example.org", "\"example.org\" is not an address"),
        (
            "drop src 10.0.0.0/33",
            "10.0.0.0/33: a prefix of IPv4 has 0 to 32 bits",
        ),
        ("drop src 10.0.0.0/+8", "a prefix of IPv4 has 0 to 32 bits"),
        (
            "drop src 2001:db8::/129",
            "a prefix of IPv6 has 0 to 128 bits",
        ),
        (
            "drop src 10.0.0.1/8",
            "10.0.0.1/8 has bits behind its prefix: the network is 10.0.0.0/8, the address alone 10.0.0.1",
        ),
        (
            "drop src 2001:db8::1/64",
            "the network is 2001:db8::/64, the address alone 2001:db8::1",
        ),
        (
            "drop src 10.0.0.9-10.0.0.1",
            "the range 10.0.0.9-10.0.0.1 is reversed",
        ),
        (
            "drop src 10.0.0.9-2001:db8::1",
            "begins with one family of addresses and ends with the other",
        ),
        (
            "drop src $nothing",
            "no set \"nothing\" is defined above this line",
        ),
        (
            "drop src $nothing,$other",
            "no set \"nothing\" is defined above this line",
        ),
        ("drop proto 256", "\"256\" is not a protocol"),
        ("drop proto 6-17", "\"6-17\" is not a protocol"),
        (
            "drop proto tpc",
            "\"tpc\" is not a protocol: a number up to 255, or one of icmp igmp",
        ),
        ("drop dport 65536", "\"65536\" is not a port"),
        ("drop dport http", "\"http\" is not a port"),
        ("drop dport 90-80", "the range 90-80 is reversed"),
        ("drop dport 80-", "\"80-\" is not a port"),
        ("drop on eth0,", "a list has an empty element"),
        ("drop to !", "a list has an empty element"),
        (
            "drop to e*h",
            "\"e*h\" names no interfaces: a * stands at the end of a name",
        ),
        ("drop to", "to needs a value, as in to eth0"),
        (
            "drop icmp type 3/256",
            "\"3/256\" is not a type of ICMP messages: a number up to 255",
        ),
        (
            "drop icmp type 3/1/2",
            "\"3/1/2\" is not a type of ICMP messages",
        ),
        (
            "drop mss 65536",
            "\"65536\" is not a segment size: a number up to 65535",
        ),
        (
            "drop udp mss 1-535",
            "mss is the segment size of TCP, but the rule names another protocol",
        ),
        (
            "drop routing 256",
            "\"256\" is not a type of routing headers",
        ),
        ("drop hour 8:00", "\"8:00\" is not a time of day in UTC"),
        (
            "drop hour 8:00-24:00",
            "\"8:00-24:00\" is not a time of day in UTC",
        ),
        ("drop hour 8-9", "\"8-9\" is not a time of day in UTC"),
        ("drop vlan 4095", "\"4095\" is not a VLAN identifier"),
        ("drop flags X", "\"X\" are not TCP flags"),
        ("drop flags /", "\"/\" are not TCP flags"),
        (
            "drop flags SF/SA",
            "SF/SA: the flags before the stroke are among those behind it",
        ),
        (
            "drop icmp dport 80",
            "ports with protocol icmp, which has none",
        ),
        (
            "drop proto tcp,47 dport 80",
            "ports with protocol gre, which has none",
        ),
        (
            "drop udp flags S",
            "flags are those of TCP, but the rule names another protocol",
        ),
        (
            "drop src 10.0.0.1 dst 2001:db8::1",
            "no packet matches: the source is IPv4 and the destination IPv6",
        ),
        (
            "drop limit 5",
            "\"5\" is not a rate: packets or bytes in a second, minute or hour",
        ),
        ("drop limit 0/s", "\"0/s\" is not a rate"),
        ("drop limit 5/d", "\"5/d\" is not a rate"),
        ("drop limit 5T/s", "\"5T/s\" is not a rate"),
        ("drop limit 5/s over 6/s", "limit stands twice"),
        ("drop burst 5", "burst stands behind a rate"),
        (
            "drop limit 5/s burst x",
            "\"x\" is not a number of packets or bytes",
        ),
        (
            "drop limit 5/s burst 9B",
            "\"9B\" is not a number of packets or bytes",
        ),
        ("drop limit 5/s per dst", "per is src, not \"dst\""),
        (
            "drop state open",
            "\"open\" is not a state: new, established, related, invalid or untracked",
        ),
        ("drop for ten", "\"ten\" is not a time, as in for 90s"),
        ("drop for 0s", "\"0s\" is not a time"),
        ("drop for 9999999d", "is not a time"),
        ("drop expr 'udp", "the quotation 'udp has no end"),
        ("set", "set needs a value"),
        ("set s", "s needs a value, as in set banned 192.0.2.0/24"),
        ("set s file", "file needs a value"),
        ("set s file nowhere", "nowhere: entity not found"),
        ("set s 10.0.0.300", "\"10.0.0.300\" is not an address"),
    ] {
        let refused = parse(&format!("# one\npass tcp\n{line}\ndrop udp\n")).unwrap_err();
        assert!(refused.starts_with("line 3: "), "{line}: {refused}");
        assert!(refused.contains(words), "{line}: {refused}");
    }
    assert_eq!(
        parse("default drop\npass tcp\ndefault pass\n").unwrap_err(),
        "line 3: default was said in line 1, and is said once"
    );
    assert_eq!(
        parse("set s file bad").unwrap_err(),
        "bad: line 2: \"10.0.0.300\" is not an address, prefix or range of addresses"
    );
    assert!(
        parse("pass src 10.0.0.300")
            .unwrap_err()
            .contains("is not an address, prefix, range of addresses or $SET")
    );
    let refused = parse("drop tcp dst port 80").unwrap_err();
    assert!(
        refused.ends_with("ports are written dport 80, or sport 80"),
        "{refused}"
    );
    let rules = parse("set @s 10.0.0.1\nset t 10.0.0.2\npass src @s dst @t,$s\n")
        .unwrap()
        .rules;
    assert_eq!(
        rules[0].src.as_deref(),
        Some(&set(&[("10.0.0.1", "10.0.0.1")]))
    );
    assert_eq!(
        rules[0].dst.as_deref(),
        Some(&set(&[("10.0.0.1", "10.0.0.2")]))
    );
    let many = "pass tcp\n".repeat(MOST_RULES);
    assert_eq!(parse(&many).unwrap().rules.len(), MOST_RULES);
    assert!(
        parse(&format!("{many}pass udp"))
            .unwrap_err()
            .starts_with(&format!("line {}: more than", MOST_RULES + 1))
    );
}

#[test]
fn ranges_reach_to_the_ends_of_the_address_space() {
    let list =
        parse("drop src 0.0.0.0/0,::/0\ndrop src 255.255.255.255/32 dst 128.0.0.0/1\n").unwrap();
    let all = set(&[
        ("0.0.0.0", "255.255.255.255"),
        ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ]);
    assert_eq!(list.rules[0].src.as_deref(), Some(&all));
    assert_eq!(
        list.rules[1].dst.as_deref(),
        Some(&set(&[("128.0.0.0", "255.255.255.255")]))
    );
}

/// Any text: a list or a reason, and no panic.
#[test]
fn no_text_panics() {
    let mut random = weir_testkit::Random(5);
    let words = [
        "pass",
        "drop",
        "count",
        "set",
        "src",
        "dst",
        "10.0.0.1",
        "/",
        "-",
        ",",
        "$s",
        "any",
        "file",
        "good",
        "tcp",
        "dport",
        "80",
        "65536",
        "flags",
        "S/SA",
        "expr",
        "'",
        "\"",
        "#",
        " ",
        " ",
        " ",
        "\n",
        "vlan",
        "none",
        "é",
        "\u{1f600}",
        "::",
        "proto",
    ];
    let (mut good, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let text: String = (0..random.below(14))
            .map(|_| words[random.below(words.len())])
            .collect();
        *(if parse(&text).is_ok() {
            &mut good
        } else {
            &mut refused
        }) += 1;
    }
    assert!(good > 1000 && refused > 1000, "{good} {refused}");
}

#[test]
fn ranges_that_overlap_in_too_many_ways_are_refused_before_they_fill_memory() {
    // Each range begins in the first half of the space and ends in the second: every class has other rules.
    let list = |rules: u32| {
        let rule = |i: u32| {
            format!(
                "drop src {}-{}\n",
                Ipv4Addr::from_bits(i * 7),
                Ipv4Addr::from_bits((1 << 31) + i * 11)
            )
        };
        parse(&(0..rules).map(rule).collect::<String>()).unwrap()
    };
    assert!(Classifier::new(list(5_000)).unwrap().bytes() < 64 << 20);
    let refused = Classifier::new(list(40_000)).map(|classifier| classifier.bytes());
    assert_eq!(refused, Err(TooLarge { rules: 40_000 }));
    assert!(
        TooLarge { rules: 40_000 }
            .to_string()
            .contains("the ranges of 40000 rules overlap")
    );
}
