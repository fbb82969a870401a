//! Any text as a ruleset of nftables: it is translated or refused, and the translation is a rule list.

use serde_json::{Value, json};
use weir_firewall::nft::translate;
use weir_firewall::rules::RuleList;
use weir_testkit::Input;

/// A ruleset as nft lists it.
pub const ROUTER: &str = include_str!("../nftables/router.json");

/// Keys and texts of rulesets.
const WORDS: [&str; 70] = [
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
        1 => [json!(choices.byte()), json!(choices.number(6)), json!(true), json!(-1), json!(0.5)][choices.below(5)]
            .clone(),
        2 | 3 => word(choices).into(),
        4 => (0..choices.below(4)).map(|_| any(choices, depth - 1)).collect(),
        _ => (0..choices.below(4)).map(|_| (word(choices).to_owned(), any(choices, depth - 1))).collect(),
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
    let field = |protocol: &str, field: &str| json!({"payload": {"protocol": protocol, "field": field}});
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
            json!({"ct": {"key": "state"}}),
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
        ],
    );
    let operator = one(choices, &["==", "!=", "in", "<", ">=", "!"].map(Value::from));
    let target = json!({"target": one(choices, &[json!("a"), json!("b"), json!("f")])});
    let rate =
        json!({"rate": choices.number(2), "burst": choices.byte(), "per": "second", "inv": choices.below(2) == 0});
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
    objects.extend(["a", "b"].map(|name| json!({"chain": {"family": family, "table": "t", "name": name}})));
    for handle in 0..choices.below(8) {
        let chain = ["f", "f", "a", "b"][choices.below(4)];
        let expr: Vec<Value> = (0..choices.below(5)).map(|_| statement(choices)).collect();
        let comment = one(choices, &[json!("a\nb"), json!("# ' \" $")]);
        let rule =
            json!({"family": family, "table": "t", "chain": chain, "handle": handle, "comment": comment, "expr": expr});
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
}

/// Translates a text that choices make.
pub fn judge(data: &[u8]) -> Seen {
    let mut choices = Input(data);
    let json = match choices.below(4) {
        0 => String::from_utf8_lossy(choices.0).into_owned(),
        1 => mutated(&mut choices),
        _ => ruleset(&mut choices).to_string(),
    };
    let Ok(translation) = translate(&json) else { return Seen::default() };
    let list = RuleList::parse(&translation.text, &mut |_| unreachable!("no line names a file"));
    let list = list.unwrap_or_else(|error| panic!("{error}\n{json}\n{}", translation.text));
    for refused in &translation.refused {
        assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
    }
    Seen { translated: 1, rules: list.rules.len(), refused: translation.refused.len() }
}
