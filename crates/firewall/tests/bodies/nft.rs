//! Any text as a ruleset of nftables: it is translated or refused, the translation is a rule list, and what is translated whole decides about packets
//! as a naive reading of the ruleset does.

#[path = "nft_naive.rs"]
mod naive;

use naive::{Packet, Unread};
use serde_json::{Value, json};
use weir_filter::Filter;
use weir_firewall::nft::translate;
use weir_firewall::rules::RuleList;
use weir_firewall::{Around, Classifier, Conditions, Counters, Fields, State, Verdict};
use weir_packet::flow::Parser;
use weir_packet::{Frame, LinkType, Matcher};
use weir_testkit::Input;

/// A ruleset as nft lists it.
pub const ROUTER: &str = include_str!("../nftables/router.json");

/// Keys and texts of rulesets.
const WORDS: [&str; 84] = [
    "nftables",
    "table",
    "chain",
    "rule",
    "set",
    "map",
    "family",
    "name",
    "handle",
    "expr",
    "type",
    "hook",
    "policy",
    "inet",
    "ip",
    "ip6",
    "filter",
    "forward",
    "input",
    "drop",
    "accept",
    "match",
    "op",
    "left",
    "right",
    "==",
    "!=",
    "in",
    "<",
    ">",
    "!",
    "payload",
    "protocol",
    "field",
    "saddr",
    "daddr",
    "tcp",
    "udp",
    "th",
    "sport",
    "dport",
    "flags",
    "icmp",
    "icmpv6",
    "meta",
    "key",
    "l4proto",
    "nfproto",
    "iifname",
    "oifname",
    "hour",
    "22:00",
    "exthdr",
    "rt",
    "frag-off",
    "tcp option",
    "maxseg",
    "size",
    "ether",
    "code",
    "concat",
    "status",
    "eth*",
    "ct",
    "state",
    "new",
    "prefix",
    "addr",
    "len",
    "range",
    "elem",
    "val",
    "10.0.0.0",
    "2001:db8::",
    "@s",
    "jump",
    "goto",
    "target",
    "return",
    "reject",
    "limit",
    "rate",
    "vmap",
    "counter",
];

fn word(choices: &mut Input<'_>) -> &'static str {
    WORDS[choices.below(WORDS.len())]
}

/// A value of any structure.
fn any(choices: &mut Input<'_>, depth: usize) -> Value {
    let most = if depth == 0 { 4 } else { 7 };
    match choices.below(most) {
        0 => Value::Null,
        1 => [
            json!(choices.byte()),
            json!(choices.number(6)),
            json!(true),
            json!(-1),
            json!(0.5),
        ][choices.below(5)]
        .clone(),
        2 | 3 => word(choices).into(),
        4 => (0..choices.below(4))
            .map(|_| any(choices, depth - 1))
            .collect(),
        _ => (0..choices.below(4))
            .map(|_| (word(choices).to_owned(), any(choices, depth - 1)))
            .collect(),
    }
}

/// One of several values, or any.
fn one(choices: &mut Input<'_>, of: &[Value]) -> Value {
    match choices.below(12) {
        0 => any(choices, 2),
        _ => of[choices.below(of.len())].clone(),
    }
}

fn statement(choices: &mut Input<'_>) -> Value {
    let field =
        |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
    let left = one(
        choices,
        &[
            field("ip", "saddr"),
            field("ip6", "daddr"),
            field("tcp", "dport"),
            field("th", "sport"),
            field("tcp", "flags"),
            field("icmp", "type"),
            field("icmpv6", "type"),
            json!({"&": [field("tcp", "flags"), ["syn", "ack"]]}),
            json!({"meta": {"key": "l4proto"}}),
            json!({"meta": {"key": "nfproto"}}),
            json!({"meta": {"key": "iifname"}}),
            json!({"meta": {"key": "oifname"}}),
            json!({"concat": [{"meta": {"key": "iif"}}, {"meta": {"key": "oif"}}]}),
            json!({"meta": {"key": "hour"}}),
            json!({"ct": {"key": "state"}}),
            json!({"ct": {"key": "status"}}),
            field("icmpv6", "code"),
            json!({"concat": [field("icmp", "type"), field("icmp", "code")]}),
            field("ether", "saddr"),
            json!({"&": [field("ip", "frag-off"), 8191]}),
            json!({"exthdr": {"name": "frag"}}),
            json!({"exthdr": {"name": "rt", "field": "type"}}),
            json!({"tcp option": {"name": "maxseg", "field": "size"}}),
        ],
    );
    let (bits, numbers) = (choices.below(40), [choices.number(2), choices.number(2)]);
    let right = one(
        choices,
        &[
            json!("10.0.0.1"),
            json!({"prefix": {"addr": "10.0.0.0", "len": bits}}),
            json!({"set": ["10.0.0.1", {"range": ["10.0.0.9", "10.1.0.0"]}]}),
            json!({"set": [80, {"range": numbers}]}),
            json!("2001:db8::1"),
            json!("@s"),
            json!(numbers[0]),
            json!("syn"),
            json!(["new", "established"]),
            json!({"set": ["tcp", "udp"]}),
            json!("echo-request"),
            json!("ipv6"),
            json!("eth0"),
            json!("eth*"),
            json!({"set": ["eth*", "wan0", "eth0"]}),
            json!({"set": [{"concat": ["eth0", "w*"]}, {"concat": ["eth*", "lo"]}]}),
            json!({"set": [{"concat": [3, 1]}, {"concat": [{"range": [3, 5]}, numbers[0] & 255]}]}),
            json!({"range": ["03:00", "22:00:09"]}),
            json!("02:00:00:00:00:01"),
            json!(true),
            json!(0),
            json!("dnat"),
        ],
    );
    let operator = one(
        choices,
        &["==", "!=", "in", "<", ">=", "!"].map(Value::from),
    );
    let target = json!({"target": one(choices, &[json!("a"), json!("b"), json!("f")])});
    let rate = json!({"rate": choices.number(2), "burst": choices.byte(), "per": "second", "inv": choices.below(2) == 0});
    one(
        choices,
        &[
            json!({"match": {"op": operator, "left": left, "right": right}}),
            json!({"match": {"op": "==", "left": left, "right": right}}),
            json!({"accept": null}),
            json!({"drop": null}),
            json!({"return": null}),
            json!({"jump": target}),
            json!({"goto": target}),
            json!({"limit": rate}),
            json!({"reject": {"type": "icmpx", "expr": "port-unreachable"}}),
            json!({"vmap": {"key": left, "data": {"set": [[right, {"jump": target}], [22, {"drop": null}]]}}}),
            json!({"counter": null}),
        ],
    )
}

fn ruleset(choices: &mut Input<'_>) -> Value {
    let family = one(choices, &["inet", "ip", "ip6"].map(Value::from));
    let mut objects = vec![
        json!({"chain": {"family": family, "table": "t", "name": "f", "type": "filter", "hook": "forward", "policy": "drop"}}),
        json!({"set": {"family": family, "table": "t", "name": "s", "type": "ipv4_addr", "elem": ["10.0.0.1"]}}),
    ];
    objects.extend(
        ["a", "b"].map(|name| json!({"chain": {"family": family, "table": "t", "name": name}})),
    );
    for handle in 0..choices.below(8) {
        let chain = ["f", "f", "a", "b"][choices.below(4)];
        let expr: Vec<Value> = (0..choices.below(5)).map(|_| statement(choices)).collect();
        let comment = one(choices, &[json!("a\nb"), json!("# ' \" $")]);
        let rule = json!({"family": family, "table": "t", "chain": chain, "handle": handle, "comment": comment, "expr": expr});
        objects.push(json!({"rule": rule}));
    }
    json!({"nftables": objects})
}

/// The text of a ruleset with some bytes changed, taken out or put in.
fn mutated(choices: &mut Input<'_>) -> String {
    let mut bytes = ROUTER.as_bytes().to_vec();
    for _ in 0..=choices.below(4) {
        let at = choices.number(2) % bytes.len();
        match choices.below(4) {
            0 => bytes[at] = b"0123456789\"{}[],:@!- "[choices.below(21)],
            1 => drop(bytes.drain(at..(at + choices.below(40)).min(bytes.len()))),
            2 => drop(bytes.splice(at..at, word(choices).bytes())),
            _ => bytes[at] ^= 1 << choices.below(8),
        }
        bytes.push(b' ');
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Counts of what became of texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Texts that were translated, as a whole or in part.
    pub translated: u32,
    /// Rules that came out.
    pub rules: usize,
    /// Parts that were refused.
    pub refused: usize,
    /// Packets that both let pass, and that both deny.
    pub passed: u32,
    pub denied: u32,
    /// Packets with a rule that the naive reading does not know.
    pub unread: u32,
}

/// Packets of a ruleset.
const PACKETS: usize = 12;

/// Compares the verdicts of a rule list with those of the ruleset.
fn compare(choices: &mut Input<'_>, json: &str, text: &str, list: RuleList, seen: &mut Seen) {
    let ruleset: Value = serde_json::from_str(json).expect("it was translated");
    let objects = ruleset["nftables"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let rules: Vec<&Value> = objects
        .iter()
        .filter_map(|object| object.get("rule"))
        .collect();
    let family = objects[0]["chain"]["family"].as_str().unwrap_or_default();
    let compile = |expression: &String| {
        let filter = Filter::compile(expression, LinkType::ETHERNET, false);
        Some(
            Box::new(filter.unwrap_or_else(|error| panic!("{expression}: {error}")))
                as Box<dyn Matcher>,
        )
    };
    let expressions: Vec<_> = list.expressions.iter().map(compile).collect();
    let mut counters = Counters::new(list.rules.len());
    let Ok(classifier) = Classifier::new(list) else {
        return;
    };
    let parser = Parser::new(LinkType::ETHERNET, false);
    for _ in 0..PACKETS {
        let packet = Packet::of(choices);
        let is_other = matches!(
            (family, packet.src.is_ipv6()),
            ("ip", true) | ("ip6", false)
        );
        let wanted = match naive::passes(&rules, &packet) {
            _ if is_other => true,
            Ok(passes) => passes,
            Err(Unread) => {
                seen.unread += 1;
                continue;
            }
        };
        let data = packet.frame();
        let state = match packet.state {
            _ if packet.is_later => None,
            "new" => Some(State::New),
            "established" => Some(State::Established),
            "related" => Some(State::Related),
            _ => Some(State::Untracked),
        };
        let interfaces = classifier
            .list()
            .holding(Some(packet.interfaces[0]), Some(packet.interfaces[1]));
        let around = Around {
            frame: Frame {
                data: &data,
                wire_len: data.len() as u32,
                interface: 0,
            },
            interfaces: &interfaces,
            parser: &parser,
            expressions: &expressions,
            time_ns: (20_000 * 86_400 + u64::from(packet.second)) * 1_000_000_000,
            conditions: Conditions {
                state,
                ..Conditions::default()
            },
        };
        let fields = parser
            .as_ref()
            .map(|parser| Fields::of(parser, &data))
            .expect("weir reads Ethernet");
        let passes = classifier.judge(&fields, &around, &mut counters).0 == Verdict::Pass;
        let is_right = if packet.is_later {
            wanted || !passes
        } else {
            wanted == passes
        };
        assert!(
            is_right,
            "{wanted}, but {passes}: {packet:?}\n{json}\n{text}"
        );
        *(if passes {
            &mut seen.passed
        } else {
            &mut seen.denied
        }) += 1;
    }
}

/// Translates a text that choices make.
pub fn judge(data: &[u8]) -> Seen {
    let mut choices = Input(data);
    let kind = choices.below(4);
    let json = match kind {
        0 => String::from_utf8_lossy(choices.0).into_owned(),
        1 => mutated(&mut choices),
        _ => ruleset(&mut choices).to_string(),
    };
    let Ok(translation) = translate(&json) else {
        return Seen::default();
    };
    let list = RuleList::parse(&translation.text, &mut |_| {
        unreachable!("no line names a file")
    });
    let list = list.unwrap_or_else(|error| panic!("{error}\n{json}\n{}", translation.text));
    for refused in &translation.refused {
        assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
    }
    let refused = translation.refused.len();
    let mut seen = Seen {
        translated: 1,
        rules: list.rules.len(),
        refused,
        ..Seen::default()
    };
    if kind > 1 && translation.refused.is_empty() {
        compare(&mut choices, &json, &translation.text, list, &mut seen);
    }
    seen
}
