//! Rulesets of the subset that is translated, drawn from a seed.

use weir_testkit::Random;

fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len())]
}

const V4: [&str; 10] = [
    "10.0.0.1",
    "10.0.0.0/8",
    "!= 10.0.0.0/24",
    "192.168.1.1-192.168.1.100",
    "{ 10.0.0.2, 192.168.0.0/16, 1.1.1.0-1.1.1.9 }",
    "!= { 10.0.0.0/8, 198.51.100.7 }",
    "@four",
    "!= @four",
    "@few",
    "< 10.0.5.1",
];
const V6: [&str; 8] = [
    "2001:db8::1",
    "2001:db8::/32",
    "!= 2001:db8::/48",
    "2001:db8::1-2001:db8:5::ffff",
    "{ 2001:db8::2, 2600::/12 }",
    "!= { 2001:db8::/33 }",
    "@six",
    "!= @six",
];
const PORTS: [&str; 9] = [
    "22",
    "!= 22",
    "1024-65535",
    "{ 22, 80, 443 }",
    "!= { 53, 1000-9000 }",
    "@ports",
    "> 1023",
    "<= 80",
    "!= 0-1023",
];
const PROTOCOLS: [&str; 6] = [
    "tcp",
    "!= udp",
    "{ tcp, udp }",
    "!= { icmp, ipv6-icmp, sctp }",
    "gre",
    "{ esp, 200 }",
];
const FLAGS: [&str; 9] = [
    "syn",
    "& (syn | ack) == syn",
    "& (fin | syn | rst | ack) == syn",
    "!= syn",
    "== syn",
    "& (syn | ack) != syn",
    "{ syn, syn | ack }",
    "! syn",
    "& (fin | syn) != 0",
];
const OUTPUTS: [&str; 9] = [
    "\"wan0\"",
    "\"out\"",
    "!= \"wan0\"",
    "{ \"out\", \"lo\" }",
    "\"w*\"",
    "!= { \"o*\", \"eth9\" }",
    "@names",
    "!= @starts",
    "@starts",
];
const SIZES: [&str; 5] = ["1-535", "536", "!= 536", "{ 1, 9, 1460 }", "> 1000"];
const MESSAGES: [&str; 5] = [
    "icmp code 0",
    "icmp type . icmp code { 8 . 0, 3 . 1-4, 11 . 0 }",
    "icmp code != { 1, 4 }",
    "icmp type 3 icmp code > 0",
    "icmp type { 8, 3 } icmp code 4",
];
const ICMP: [&str; 4] = [
    "echo-request",
    "{ echo-request, echo-reply }",
    "!= redirect",
    "{ 3-5, 11 }",
];

/// Matches of a rule, and whether they are for TCP alone, and for no TCP.
fn matches(random: &mut Random, family: u8) -> (String, bool, bool) {
    let mut text = String::new();
    let mut add = |part: String| {
        text += &part;
        text.push(' ');
    };
    let version = match family {
        0 => [0, 0, 4, 6][random.below(4)],
        family => family,
    };
    if random.below(6) == 0 {
        let names = [
            "\"in0\"",
            "\"in1\"",
            "{ \"in0\", \"in1\" }",
            "\"eth9\"",
            "!= \"in0\"",
            "\"in*\"",
            "!= @names",
        ];
        add(format!("iifname {}", one(random, &names)));
    }
    match random.below(16) {
        0 | 1 => add(format!("oifname {}", one(random, &OUTPUTS))),
        2 => add(
            "iifname . oifname { \"in0\" . \"wan0\", \"in1\" . \"out\", \"in1\" . \"wan0\" }"
                .to_owned(),
        ),
        _ => {}
    }
    if version == 0 && random.below(6) == 0 {
        add(format!(
            "meta {}",
            one(
                random,
                &[
                    "nfproto ipv4",
                    "nfproto ipv6",
                    "protocol ip",
                    "protocol ip6"
                ]
            )
        ));
    }
    let addresses: &[&str] = if version == 4 { &V4 } else { &V6 };
    if version != 0 {
        let name = if version == 4 { "ip" } else { "ip6" };
        let which = random.below(3);
        if which != 1 {
            add(format!("{name} saddr {}", one(random, addresses)));
        }
        if which != 0 {
            add(format!("{name} daddr {}", one(random, addresses)));
        }
    }
    let (mut is_tcp, mut is_no_tcp) = (false, false);
    match random.below(10) {
        8 if version != 6 && random.below(2) == 0 => {
            is_no_tcp = true;
            add(one(random, &MESSAGES).to_owned());
        }
        8 => {
            is_tcp = true;
            add(format!("tcp option maxseg size {}", one(random, &SIZES)));
        }
        9 if version == 4 => add("ip frag-off & 0x1fff != 0".to_owned()),
        9 if version == 6 => add(one(
            random,
            &[
                "exthdr rt exists",
                "exthdr frag exists",
                "rt type 0",
                "rt type != 4",
            ],
        )
        .to_owned()),
        0 | 1 => {
            let name = one(random, &["tcp", "udp", "tcp", "sctp", "udplite", "dccp"]);
            (is_tcp, is_no_tcp) = (name == "tcp", name != "tcp");
            let which = random.below(4);
            let dport = one(random, &PORTS);
            if which != 0 {
                add(format!("{name} dport {dport}"));
            }
            // nft 1.0.6 makes one comparison of both ports of `sport != 22 dport != 22`.
            let sports = if which == 3 && dport == "!= 22" {
                &PORTS[2..]
            } else {
                &PORTS
            };
            if which == 0 || which == 3 {
                add(format!("{name} sport {}", one(random, sports)));
            }
        }
        2 => {
            is_tcp = true;
            add(format!("tcp flags {}", one(random, &FLAGS)));
        }
        3 => add(format!("meta l4proto {}", one(random, &PROTOCOLS))),
        4 if version == 4 => add(format!(
            "ip protocol {}",
            one(random, &["tcp", "!= tcp", "{ udp, icmp }"])
        )),
        4 | 5 if version != 6 => {
            is_no_tcp = true;
            add(format!("icmp type {}", one(random, &ICMP)));
        }
        5 => {
            is_no_tcp = true;
            add(format!(
                "icmpv6 type {}",
                one(random, &["echo-request", "{ 1-4, 128 }", "!= echo-reply"])
            ));
        }
        6 => add(format!(
            "meta l4proto {{ tcp, udp }} th dport {}",
            one(random, &PORTS)
        )),
        _ => {}
    }
    (text, is_tcp, is_no_tcp)
}

fn rule(random: &mut Random, family: u8, jumps: &[String], is_last: bool) -> String {
    let (matches, is_tcp, is_no_tcp) = matches(random, family);
    let has_jumps = !jumps.is_empty();
    let verdict = match random.below(16) {
        0..=4 => "accept".to_owned(),
        5..=8 => "drop".to_owned(),
        9 => "counter".to_owned(),
        // nft 1.0.6 lists a rule that rejects without these matches.
        10 if matches.contains("meta nfproto") || matches.contains("meta protocol") => {
            "drop".to_owned()
        }
        10 if is_tcp => "reject with tcp reset".to_owned(),
        10 if is_no_tcp => "counter reject".to_owned(),
        11 | 12 if has_jumps => format!("jump {}", jumps[random.below(jumps.len())]),
        13 if has_jumps && (is_last || random.below(4) == 0) => {
            format!("goto {}", jumps[random.below(jumps.len())])
        }
        14 if is_last || random.below(4) == 0 => "return".to_owned(),
        15 if !is_tcp
            && !is_no_tcp
            && !matches.contains("l4proto")
            && !matches.contains("protocol") =>
        {
            one(
                random,
                &[
                    "tcp dport vmap { 22 : accept, 23 : drop, 1000-9000 : accept }",
                    "udp dport vmap @verdicts",
                ],
            )
            .to_owned()
        }
        _ => "accept".to_owned(),
    };
    format!("    {matches}{verdict}\n")
}

fn table(random: &mut Random, family: &str, number: u8) -> String {
    let policy = one(random, &["accept", "drop"]);
    let mut text = format!("table {family} t {{\n");
    if number != 6 {
        text += "  set four { type ipv4_addr; flags interval; elements = { 10.0.0.0/9, 192.168.1.150-192.168.1.201 } }\n";
        text += "  set few { type ipv4_addr; elements = { 1.1.1.1, 10.0.5.1 } }\n";
    }
    if number != 4 {
        text +=
            "  set six { type ipv6_addr; flags interval; elements = { 2001:db8::/47, 2600::1 } }\n";
    }
    text +=
        "  set ports { type inet_service; flags interval; elements = { 80, 443, 5000-6000 } }\n";
    text += "  set names { type ifname; elements = { \"wan0\", \"in1\" } }\n";
    text += "  set starts { type ifname; flags interval; elements = { \"wa*\", \"lo\" } }\n";
    text +=
        "  map verdicts { type inet_service : verdict; elements = { 53 : drop, 80 : accept } }\n";
    let chains = random.below(4);
    // A chain jumps to those above it in the text.
    let mut names: Vec<String> = Vec::new();
    for chain in 0..=chains {
        let is_base = chain == chains;
        let name = if is_base {
            "forward".to_owned()
        } else {
            format!("c{chain}")
        };
        text += &format!("  chain {name} {{\n");
        if is_base {
            text += &format!("    type filter hook forward priority 0; policy {policy};\n");
        }
        let rules = 1 + random.below(if is_base { 7 } else { 4 });
        for at in 1..=rules {
            text += &rule(random, number, &names, at == rules);
        }
        text += "  }\n";
        names.push(name);
    }
    text + "}\n"
}

/// A ruleset: a table of family inet, or one of IPv4, of IPv6, or both.
pub fn ruleset(random: &mut Random) -> String {
    match random.below(6) {
        0 => table(random, "ip", 4) + &table(random, "ip6", 6),
        1 => table(random, "ip", 4),
        2 => table(random, "ip6", 6),
        _ => table(random, "inet", 0),
    }
}
