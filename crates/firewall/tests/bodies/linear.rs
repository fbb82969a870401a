//! A linear scan over the text of a rule list, and packets whose fields are known because they were made from them.
//!
//! Nothing here comes from the crate under test: the twin reads the words of each rule for each packet.

#[path = "linear_naive.rs"]
mod naive;

use core::net::IpAddr;
use naive::{Naive, WIRE_LEN};
use weir_firewall::rules::RuleList;
use weir_firewall::{
    Around, Classifier, Conditions, Counters, DecidedBy, Fields, Found, Rates, State, Verdict,
};
use weir_packet::flow::Parser;
use weir_packet::{Frame, LinkType, Matcher};
use weir_testkit::Input;

/// One of several values.
fn one<'a, T>(choices: &mut Input<'_>, of: &'a [T]) -> &'a T {
    &of[choices.below(of.len())]
}

/// Whether a choice falls on one of `one_in`.
fn is(choices: &mut Input<'_>, one_in: usize) -> bool {
    choices.below(one_in) == 0
}

const PROTOCOLS: [(&str, u8); 6] = [
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("icmp6", 58),
    ("sctp", 132),
    ("47", 47),
];
const PORTS: [u16; 8] = [0, 1, 53, 79, 80, 81, 1024, 65535];

/// A packet, and what is known of it.
#[derive(Clone, Debug, Default)]
struct Packet {
    tags: Vec<u16>,
    /// 4, 6; 0: no IP; 1: announced, but cut.
    version: u8,
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    /// `None`: the captured bytes do not tell.
    proto: Option<u8>,
    ports: (u16, u16),
    flags: u8,
    is_later: bool,
    /// First and second byte of the transport header.
    first: u8,
    second: u8,
    /// Place in [`OPTIONS`].
    options: usize,
    /// Type of the first routing header; `None`: the captured bytes do not tell it.
    routing: Option<Option<u8>>,
    /// Numbers of the extension headers that the captured bytes tell of.
    extensions: Vec<u8>,
    /// Captured bytes of the transport header.
    transport: usize,
    is_neighbor: bool,
    /// What a table of connections would say.
    state: Option<State>,
    frame: Vec<u8>,
}

/// Options of TCP, and the segment size that is announced: that of the first option of this kind, also behind the end of the list.
const OPTIONS: [(&[u8], Option<u16>); 9] = [
    (&[], None),
    (&[2, 4, 2, 0x18], Some(536)),
    (&[1, 1, 2, 4, 5, 0xb4, 0, 0], Some(1460)),
    (&[3, 3, 7, 1, 2, 4, 0, 1], Some(1)),
    (&[0, 0, 0, 0, 2, 4, 0x10, 0], Some(4096)),
    (&[2, 3, 9, 1, 2, 4, 0, 9], None),
    (&[5, 0, 2, 4, 0, 9, 0, 0], Some(9)),
    (&[5, 18, 2, 4], None),
    (&[1, 1, 2, 4], None),
];

fn address(choices: &mut Input<'_>, version: u8) -> IpAddr {
    let low = choices.below(20) as u8;
    match (version, low) {
        (4, 0..16) => IpAddr::from([10, 0, 0, low]),
        (4, 16) => IpAddr::from([10, 0, 1, 0]),
        (4, 17) => IpAddr::from([255; 4]),
        (4, 18) => IpAddr::from([0; 4]),
        (4, _) => IpAddr::from([9, 255, 255, 255]),
        (_, 0..16) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(low)]),
        (_, 16) => IpAddr::from([0xffff; 8]),
        (_, 17) => IpAddr::from([0; 8]),
        (_, 18) => IpAddr::from([0x2001, 0xdb8, 0, 0, 1, 0, 0, 0]),
        // Bits of an IPv4 address of this pool in an IPv6 address.
        _ => IpAddr::from([0, 0, 0, 0, 0, 0, 0x0a00, 5]),
    }
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Type of the first routing header in front of the transport, if the captured bytes tell it: four bytes of each header, and all those in front.
fn routing(
    packet: &Packet,
    has_fragment_header: bool,
    chain: &[(u8, Vec<u8>)],
    captured: usize,
) -> Option<Option<u8>> {
    let mut left = captured;
    if packet.version == 4 {
        return Some(None);
    }
    if has_fragment_header {
        if left < if packet.is_later { 4 } else { 8 } {
            return None;
        }
        left -= left.min(8);
    }
    if packet.is_later {
        return chain.is_empty().then_some(None);
    }
    for (number, header) in chain.iter().rev() {
        match number {
            43 if left >= 4 => return Some(Some(header[2])),
            _ if left < header.len() => return None,
            _ => left -= header.len(),
        }
    }
    Some(None)
}

fn packet(choices: &mut Input<'_>) -> Packet {
    let mut packet = Packet {
        version: *one(choices, &[4, 4, 4, 6, 6, 0, 1]),
        ..Packet::default()
    };
    packet.frame = vec![2; 12];
    for _ in 0..*one(choices, &[0, 0, 0, 1, 2]) {
        let id = *one(choices, &[0u16, 1, 7, 8, 4094]);
        packet.tags.push(id);
        packet
            .frame
            .extend([0x81, 0, (id >> 8) as u8 | 0x20, id as u8]);
    }
    match packet.version {
        0 => {
            packet.frame.extend([8, 6]);
            packet.frame.extend([0; 28]);
            return packet;
        }
        1 => {
            packet.frame.extend([8, 0, 0x45, 0, 0, 40]);
            return packet;
        }
        _ => {}
    }
    let version = packet.version;
    let (src, dst) = (address(choices, version), address(choices, version));
    (packet.src, packet.dst) = (Some(src), Some(dst));
    let proto = one(choices, &PROTOCOLS).1;
    packet.ports = (*one(choices, &PORTS), *one(choices, &PORTS));
    packet.flags = *one(choices, &[0x02, 0x12, 0x10, 0x04, 0xff, 0]);
    let mut transport = packet.ports.0.to_be_bytes().to_vec();
    transport.extend(packet.ports.1.to_be_bytes());
    transport.extend([0; 16]);
    transport[13] = packet.flags;
    packet.options = choices.below(OPTIONS.len());
    let options = OPTIONS[packet.options].0;
    transport[12] = (5 + options.len() as u8 / 4) << 4;
    transport.extend(options);
    if matches!(proto, 1 | 58) {
        transport[..2].copy_from_slice(&[
            *one(choices, &[132, 133, 135, 137, 138]),
            *one(choices, &[0, 0, 1]),
        ]);
    }
    // A neighbor solicitation as RFC 4861 has it, section 7.1.1: with a target and a right checksum.
    let is_solicitation = proto == 58 && version == 6 && !is(choices, 4);
    if is_solicitation {
        transport = vec![135, 0, 0, 0, 0, 0, 0, 0];
        transport.extend(bytes_of(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9])));
        let sum = [
            bytes_of(src),
            bytes_of(dst),
            transport.clone(),
            vec![0, 24, 0, 58],
        ]
        .concat();
        let sum = sum.chunks(2).fold(0u64, |sum, word| {
            sum + u64::from(word[0]) * 256 + u64::from(word[1])
        });
        // One's complement: the sum modulo 65535.
        transport[2..4].copy_from_slice(&(!((sum % 65_535) as u16)).to_be_bytes());
    }
    (packet.first, packet.second) = (transport[0], transport[1]);
    let hop_limit = *one(choices, &[255, 255, 254]);
    let is_later = is(choices, 5);
    let extensions = if is(choices, 3) { choices.below(3) } else { 0 };
    packet.is_neighbor = is_solicitation
        && src != IpAddr::from([0u16; 8])
        && hop_limit == 255
        && !is_later
        && extensions == 0;
    // From the transport to the front: the extension headers, each with the number of the next one.
    let mut next = proto;
    let mut chain: Vec<(u8, Vec<u8>)> = Vec::new();
    for _ in 0..extensions {
        let number = if version == 4 {
            51
        } else {
            *one(choices, &[0, 43, 60, 51])
        };
        // An authentication header counts in words of four bytes without two of them, the others in eight without one.
        let (length, len) = if number == 51 { (4, 24) } else { (1, 16) };
        let mut header = vec![next, length];
        header.resize(len, 0);
        header[2] = if number == 43 {
            *one(choices, &[0, 2, 4])
        } else {
            0
        };
        chain.push((number, header));
        next = number;
    }
    let has_fragment_header = version == 6 && (is_later || is(choices, 6));
    let offset = if is_later { 8u16 << 3 } else { 0 };
    let mut behind: Vec<u8> = Vec::new();
    // A later fragment begins somewhere in what was behind the fragment header.
    if is_later {
        behind = vec![0; 24];
    } else {
        for (_, header) in chain.iter().rev() {
            behind.extend(header);
        }
        behind.extend(&transport);
    }
    packet.is_later = is_later;
    if has_fragment_header {
        let mut header = vec![next, 0];
        header.extend((offset | 1).to_be_bytes());
        header.extend([0; 4]);
        header.extend(behind);
        behind = header;
    }
    let mut header = Vec::new();
    if version == 4 {
        header.extend([0x45, 0]);
        header.extend((20 + behind.len() as u16).to_be_bytes());
        header.extend([0, 0]);
        header.extend((if is_later { 8u16 } else { 0 }).to_be_bytes());
        header.extend([hop_limit, next, 0, 0]);
        packet.frame.extend([8, 0]);
    } else {
        header.extend([0x60, 0, 0, 0]);
        header.extend((behind.len() as u16).to_be_bytes());
        header.extend([if has_fragment_header { 44 } else { next }, hop_limit]);
        packet.frame.extend([0x86, 0xdd]);
    }
    header.extend(bytes_of(src));
    header.extend(bytes_of(dst));
    packet.frame.extend(&header);
    // The capture ends somewhere behind the addresses.
    let captured = if is(choices, 3) {
        choices.below(behind.len() + 1)
    } else {
        behind.len()
    };
    packet.frame.extend(&behind[..captured]);

    packet.routing = routing(&packet, has_fragment_header, &chain, captured);

    // Each header tells the number of the next one, if it was captured in full.
    let mut seen = captured;
    if has_fragment_header {
        packet.extensions.push(44);
        seen = seen.wrapping_sub(8);
    }
    for (number, header) in chain.iter().rev() {
        if has_fragment_header && captured < 8 {
            break;
        }
        packet.extensions.push(*number);
        if is_later || seen < header.len() {
            break;
        }
        seen -= header.len();
    }

    // What can be known from these bytes, from the front on.
    let mut left = captured;
    let mut taken = |len: usize| {
        let fits = left >= len;
        left -= if fits { len } else { 0 };
        fits
    };
    let mut is_known = !has_fragment_header || taken(8);
    if is_later {
        // The first header behind the fragment header, in another frame.
        is_known &= chain.is_empty();
    } else {
        for (_, header) in chain.iter().rev() {
            is_known = is_known && taken(header.len());
        }
        packet.transport = if is_known { left } else { 0 };
        packet.is_neighbor &= captured == behind.len();
    }
    // A fragment header that was cut hides that the packet is a later fragment.
    if has_fragment_header && captured < 8 {
        packet.is_later = false;
    }
    if version == 6 && has_fragment_header {
        packet.is_neighbor = false;
    }
    packet.proto = is_known.then_some(proto);
    packet
}

/// A rule list in words, and the same list as it is read.
fn rules(choices: &mut Input<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if is(choices, 2) {
        lines.push(format!(
            "default {}",
            one(choices, &["pass", "drop", "reject"])
        ));
    }
    if is(choices, 3) {
        lines.push(format!("non-ip {}", one(choices, &["pass", "drop"])));
    }
    if is(choices, 3) {
        lines.push(format!("malformed {}", one(choices, &["pass", "drop"])));
    }
    if is(choices, 3) {
        lines.push(format!("neighbors {}", one(choices, &["pass", "rules"])));
    }
    lines.push("set a 10.0.0.4/30,10.0.0.9 2001:db8::4/126".to_owned());
    lines.push("set a 10.0.0.8-10.0.0.9".to_owned());
    lines.push("set b 255.255.255.255 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".to_owned());
    // More ranges than a rule has boxes: then the set is a bit in front of the tree, or with others too much for it.
    for set in ["a", "b"] {
        if is(choices, 4) {
            let members: String = (0..70)
                .map(|i| format!(" 10.0.{}.{}", i % 3, 2 * i))
                .collect();
            lines.push(format!("set {set}{members}"));
        }
    }
    // Often more than a word of 64 rules, sometimes more than a word of the summary.
    for _ in 0..*one(choices, &[0, 1, 3, 10, 30, 70, 140]) {
        lines.push(rule(choices));
    }
    // The same rules again and again: more than a word of the summary, and many candidates for a packet.
    if is(choices, 16) {
        let block: Vec<String> = lines
            .iter()
            .filter(|line| !is_setting(line))
            .cloned()
            .collect();
        (0..50).for_each(|_| lines.extend_from_slice(&block));
    }
    lines
}

/// Whether the line is no rule.
fn is_setting(line: &str) -> bool {
    !["pass", "drop", "reject", "count"].contains(&line.split(' ').next().unwrap())
}

fn rule(choices: &mut Input<'_>) -> String {
    // Most rules decide little, so that the ones behind are asked.
    let mut words = vec![
        (*one(
            choices,
            &["pass", "drop", "reject", "count", "count", "count"],
        ))
        .to_owned(),
    ];
    let mut family = 0;
    for end in ["src", "dst"] {
        if is(choices, 2) {
            words.push(format!("{end} {}", addresses(choices, &mut family)));
        }
    }
    let with_ports = is(choices, 3);
    let with_flags = is(choices, 6);
    let with_type = !with_ports && !with_flags && is(choices, 8);
    match choices.below(4) {
        _ if with_type => {
            let named = [
                "icmp type 133",
                "icmp6 type 133-135,0",
                "icmp6 type 133-135/0,132/0-9",
                "proto 1,58 type 0-255/1",
                "proto 1,58 type 138,0-132",
                "type 135-137 icmp6",
            ];
            words.push((*one(choices, &named)).to_owned());
        }
        0 if with_flags => words.push("tcp".to_owned()),
        0 => {
            let (name, number) = one(choices, &PROTOCOLS[..if with_ports { 2 } else { 6 }]);
            words.push(match (choices.below(3), name.parse::<u8>()) {
                (0, _) | (_, Ok(_)) => format!("proto {number}"),
                (1, _) => (*name).to_owned(),
                _ => format!("proto {name},udp"),
            });
        }
        _ => {}
    }
    if with_ports {
        for end in ["sport", "dport"] {
            if is(choices, 2) {
                let (a, b) = (*one(choices, &PORTS), *one(choices, &PORTS));
                words.push(match choices.below(3) {
                    0 => format!("{end} {a}"),
                    1 => format!("{end} {}-{}", a.min(b), a.max(b)),
                    _ => format!("{end} 80,{a},{}-{}", a.min(b), a.max(b)),
                });
            }
        }
    }
    if with_flags {
        words.push(match choices.below(2) {
            0 => format!(
                "flags {}",
                one(choices, &["S", "S/SA", "/SA", "SA", "R/RF"])
            ),
            _ => format!(
                "mss {}",
                one(choices, &["1-535", "536", "1460,9", "0-65535"])
            ),
        });
    }
    if is(choices, 12) {
        words.push("fragment".to_owned());
    }
    if is(choices, 10) {
        words.push(format!(
            "extension {}",
            one(
                choices,
                &[
                    "ah",
                    "any",
                    "hop,destination",
                    "fragment,routing",
                    "routing"
                ]
            )
        ));
    }
    if is(choices, 8) {
        words.push(format!(
            "vlan {}",
            one(choices, &["none", "7", "0-7", "1,8-4094"])
        ));
    }
    if is(choices, 10) {
        words.push(format!(
            "on {}",
            one(
                choices,
                &[
                    "eth0",
                    "eth1",
                    "eth2",
                    "!eth0",
                    "eth*",
                    "eth*,!eth1",
                    "eth1,wan0"
                ]
            )
        ));
    }
    if is(choices, 10) {
        words.push(format!(
            "to {}",
            one(
                choices,
                &["eth0", "wan0", "!eth0", "w*", "eth0,wan*", "!e*,!wan0"]
            )
        ));
    }
    if is(choices, 10) {
        words.push(format!(
            "routing {}",
            one(choices, &["0", "0-1,4", "2-255"])
        ));
    }
    if is(choices, 12) {
        words.push(format!(
            "hour {}",
            one(
                choices,
                &["22:13-22:13:30", "22:14-22:13:19", "0:00-12:00,22:00-22:20"]
            )
        ));
    }
    if is(choices, 8) {
        words.push(format!(
            "expr {}",
            one(choices, &["'odd'", "\"odd\"", "'never'"])
        ));
    }
    if is(choices, 6) {
        let rates = [
            "limit 2/s",
            "limit 6/m burst 2",
            "over 100B/s burst 300B",
            "limit 1/s burst 3 per src",
            "over 2/h per src",
        ];
        words.push((*one(choices, &rates)).to_owned());
    }
    if is(choices, 8) {
        words.push(format!(
            "state {}",
            one(
                choices,
                &[
                    "new",
                    "established,related",
                    "invalid,untracked",
                    "new,established"
                ]
            )
        ));
    }
    if is(choices, 10) {
        words.push(format!(
            "for {}",
            one(choices, &["1500ms", "4s", "1m", "2d"])
        ));
    }
    words.join(" ")
}

fn addresses(choices: &mut Input<'_>, family: &mut u8) -> String {
    let kind = choices.below(6);
    if kind == 0 {
        return (*one(choices, &["any", "$a", "$b", "$a,$b"])).to_owned();
    }
    // Both addresses of a rule have one family, or the rule is refused.
    if *family == 0 {
        *family = *one(choices, &[4, 6]);
    }
    let (a, b) = (address(choices, *family), address(choices, *family));
    match kind {
        1 => a.to_string(),
        2 => format!("{}-{}", a.min(b), a.max(b)),
        3 if *family == 4 => (*one(
            choices,
            &[
                "10.0.0.0/29",
                "0.0.0.0/0",
                "10.0.0.0/8",
                "128.0.0.0/1",
                "10.0.0.7/32",
            ],
        ))
        .to_owned(),
        3 => (*one(
            choices,
            &[
                "2001:db8::/125",
                "::/0",
                "2001:db8::/32",
                "8000::/1",
                "2001:db8::7/128",
            ],
        ))
        .to_owned(),
        4 => format!("{a},{b}"),
        _ => format!(
            "{a},{},$a",
            if *family == 4 {
                "10.0.0.12/31"
            } else {
                "2001:db8::c/127"
            }
        ),
    }
}

/// Frames of odd length match.
#[derive(Debug)]
struct Odd;

impl Matcher for Odd {
    fn matches(&self, frame: &Frame<'_>) -> bool {
        frame.data.len() % 2 == 1
    }
}

/// Any choices: a rule list and packets. The classifier and the linear scan give the same verdicts, for the same reasons, and count alike;
/// and a rule that is said to be unreachable applies to no packet.
pub fn judge(data: &[u8]) -> Seen {
    let mut choices = Input(data);
    let lines = rules(&mut choices);
    let text = lines.join("\n");
    let list = RuleList::parse(&text, &mut |_| unreachable!("no line names a file"));
    let list = list.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut naive = Naive::new(&lines);
    (naive.begun, naive.now) = (1_700_000_000_000_000_000, 1_700_000_000_000_000_000);
    assert_eq!(list.rules.len(), naive.rules.len());
    let expressions: Vec<Option<Box<dyn Matcher>>> = list
        .expressions
        .iter()
        .map(|text| (text == "odd").then(|| Box::new(Odd) as Box<dyn Matcher>))
        .collect();
    // One packet by itself and several together; by the tree and by the rows; each way with rates of its own.
    let rates: [Rates; 3] = core::array::from_fn(|_| Rates::new(&list, 5));
    let classifier = Classifier::new(list).unwrap();
    let rows_alone = classifier.clone().without_tree();
    let unreachable = classifier.unreachable();
    let mut counters: [Counters; 3] = core::array::from_fn(|_| Counters::new(naive.rules.len()));
    let mut counts = vec![(0, 0); naive.rules.len()];
    let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
    let in_frames = Some(parser);
    let (mut passed, mut denied) = (0, 0);
    let states = [
        State::New,
        State::Established,
        State::Untracked,
        State::Related,
        State::Invalid,
    ]
    .map(Some);
    let packets: Vec<Packet> = (0..40)
        .map(|_| {
            let mut packet = packet(&mut choices);
            packet.state = if is(&mut choices, 6) {
                None
            } else {
                *one(&mut choices, &states)
            };
            packet
        })
        .collect();
    let fields: Vec<Fields> = packets
        .iter()
        .map(|packet| Fields::of(&parser, &packet.frame))
        .collect();
    let mut found = [[Found::default(); 40]; 2];
    classifier.look_up(&fields, &mut found[0]);
    rows_alone.look_up(&fields, &mut found[1]);
    for (i, (packet, fields)) in packets.iter().zip(&fields).enumerate() {
        let ends = [
            *one(&mut choices, &["eth0", "eth1", "eth9"]),
            *one(&mut choices, &["eth0", "wan0"]),
        ];
        naive.now += *one(
            &mut choices,
            &[
                0,
                1,
                250_000_000,
                500_000_000,
                3_000_000_000,
                30_000_000_000,
            ],
        );
        let expired: Vec<u32> = (0..)
            .zip(&naive.rules)
            .filter(|(_, rule)| naive.has_expired(rule))
            .map(|(number, _)| number)
            .collect();
        let frame = Frame {
            data: &packet.frame,
            wire_len: WIRE_LEN,
            interface: 0,
        };
        let interfaces = classifier.list().holding(Some(ends[0]), Some(ends[1]));
        let time_ns = naive.now;
        let around = |way: usize| {
            let conditions = Conditions {
                rates: Some(&rates[way]),
                expired: &expired,
                state: packet.state,
            };
            let (interfaces, parser) = (&*interfaces, &in_frames);
            Around {
                interfaces,
                parser,
                expressions: &expressions,
                time_ns,
                conditions,
                ..Around::of(frame)
            }
        };
        let wanted = naive.judge(packet, ends, &mut counts);
        let [alone, together, by_rows] = &mut counters;
        let judged = [
            classifier.judge(fields, &around(0), alone),
            classifier.judge_found(found[0][i], fields, &around(1), together),
            rows_alone.judge_found(found[1][i], fields, &around(2), by_rows),
        ];
        assert_eq!(judged, [wanted; 3], "{packet:?}\n{fields:?}\n{text}");
        *(if wanted.0 == Verdict::Pass {
            &mut passed
        } else {
            &mut denied
        }) += 1;
    }
    for pair in &unreachable {
        let (all, absent) = counts[pair.rule];
        assert_eq!(
            all,
            if pair.but_absent { absent } else { 0 },
            "{pair:?}\n{text}"
        );
    }
    assert!(
        counters[1..].iter().all(|other| *other == counters[0]),
        "{text}"
    );
    let [counters, ..] = counters;
    let found: Vec<(u64, u64)> = counters
        .rules
        .iter()
        .map(|count| (count.all.packets, count.absent))
        .collect();
    assert_eq!(found, counts, "{text}");
    assert_eq!(
        (counters.passed.packets, counters.denied.packets),
        (passed, denied)
    );
    assert_eq!(counters.passed.bytes, 100 * passed);
    Seen {
        lists: 1,
        by_rule: counts.iter().map(|count| count.0).sum(),
        absent: counts.iter().map(|count| count.1).sum(),
        by_rest: [
            counters.default,
            counters.neighbors,
            counters.non_ip,
            counters.malformed,
        ]
        .map(|count| count.packets),
        unreachable: unreachable.len() as u64,
    }
}

/// What a case came upon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Lists that were not refused.
    pub lists: u64,
    /// Times that a rule applied, and times that it did for want of a field.
    pub by_rule: u64,
    pub absent: u64,
    /// Packets of the lines for the rest.
    pub by_rest: [u64; 4],
    /// Rules said to be unreachable.
    pub unreachable: u64,
}
