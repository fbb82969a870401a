//! Rulesets of nftables as text: the rule list that comes out, the words for what is refused, and texts that are none.

#[path = "bodies/nft.rs"]
mod nft;

use serde_json::{Value, json};
use weir_firewall::nft::{NftError, translate};
use weir_testkit::Random;

/// A ruleset with a base chain of these rules, and a chain `c` with two.
fn ruleset(rules: &[Value]) -> String {
    let mut objects = vec![
        json!({"metainfo": {"version": "1.0.6", "json_schema_version": 1}}),
        json!({"table": {"family": "inet", "name": "t", "handle": 1}}),
        json!({"set": {"family": "inet", "table": "t", "name": "dyn", "type": "ipv4_addr", "flags": ["timeout"]}}),
        json!({"set": {"family": "inet", "table": "t", "name": "p", "type": "inet_service", "elem": [22, 80]}}),
        json!({"chain": {"family": "inet", "table": "t", "name": "c"}}),
        json!({"chain": {"family": "inet", "table": "t", "name": "f", "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}),
    ];
    let rule = |chain: &str, handle: usize, expr: &Value| json!({"rule": {"family": "inet", "table": "t", "chain": chain, "handle": handle, "expr": expr}});
    let tcp = json!({"match": {"op": "==", "left": field("tcp", "dport"), "right": 22}});
    objects.push(rule("c", 1, &json!([tcp, {"return": null}])));
    objects.push(rule("c", 2, &json!([{"accept": null}])));
    objects.extend(
        (10..)
            .zip(rules)
            .map(|(handle, expr)| rule("f", handle, expr)),
    );
    json!({"nftables": objects}).to_string()
}

fn field(protocol: &str, field: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

fn meta_key(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

fn compare(left: &Value, operator: &str, right: &Value) -> Value {
    json!({"match": {"op": operator, "left": left, "right": right}})
}

#[test]
fn a_router_becomes_the_rule_list_that_is_written_down() {
    let translation = translate(nft::ROUTER).unwrap();
    assert_eq!(translation.refused, []);
    assert_eq!(translation.text, include_str!("nftables/router.txt"));
}

#[test]
fn each_rule_becomes_its_lines() {
    let address = |right: Value| compare(&field("ip", "saddr"), "==", &right);
    let meta = |key: &str, right: Value| compare(&json!({"meta": {"key": key}}), "==", &right);
    let flags = field("tcp", "flags");
    let prefix = |addr: &str, len: u8| json!({"prefix": {"addr": addr, "len": len}});
    for (matches, lines) in [
        (vec![], "pass"),
        (vec![address(json!("10.0.0.1"))], "pass src 10.0.0.1"),
        (
            vec![address(prefix("10.1.2.3", 16))],
            "pass src 10.1.0.0/16",
        ),
        (
            vec![address(json!({"range": ["10.0.0.0", "10.0.0.255"]}))],
            "pass src 10.0.0.0/24",
        ),
        (
            vec![address(json!({"range": ["10.0.0.1", "10.0.1.0"]}))],
            "pass src 10.0.0.1-10.0.1.0",
        ),
        (
            vec![address(
                json!({"set": ["10.0.0.2", "10.0.0.3", "10.9.0.0"]}),
            )],
            "pass src 10.0.0.2/31,10.9.0.0",
        ),
        (
            vec![
                address(prefix("10.0.0.0", 8)),
                compare(&field("ip", "saddr"), "!=", &json!("10.0.0.0")),
            ],
            "pass src 10.0.0.1-10.255.255.255",
        ),
        (
            vec![
                compare(&field("ip6", "daddr"), "!=", &prefix("8000::", 1)),
                meta("l4proto", json!("ipv6-icmp")),
            ],
            "pass dst ::/1 icmp6",
        ),
        (
            vec![address(json!("10.0.0.1")), meta("nfproto", json!("ipv6"))],
            "# no packet matches: table inet t, chain f, rule 10",
        ),
        (vec![meta("nfproto", json!("ipv6"))], "pass src ::/0"),
        (vec![meta("protocol", json!("ip"))], "pass src 0.0.0.0/0"),
        (
            vec![compare(&field("tcp", "dport"), "==", &json!("@p"))],
            "pass tcp dport 22,80",
        ),
        (
            vec![compare(
                &field("udp", "sport"),
                "!=",
                &json!({"range": [1, 65535]}),
            )],
            "pass udp sport 0",
        ),
        (
            vec![compare(&field("sctp", "dport"), ">=", &json!(1024))],
            "pass sctp dport 1024-65535",
        ),
        (
            vec![compare(&flags, "in", &json!(["fin", "syn"]))],
            "pass tcp flags F/FS\npass tcp flags S/S",
        ),
        (
            vec![compare(
                &json!({"&": [flags, ["syn", "ack"]]}),
                "==",
                &json!("syn"),
            )],
            "pass tcp flags S/SA",
        ),
        (
            vec![compare(&json!({"&": [flags, 63]}), "==", &json!(0))],
            "pass tcp flags /FSRPAU",
        ),
        (
            vec![meta("iifname", json!({"set": ["a", "b"]}))],
            "pass on a,b",
        ),
        (
            vec![compare(&meta_key("oifname"), "!=", &json!("a"))],
            "pass to !a",
        ),
        (
            vec![
                meta("oifname", json!("eth*")),
                compare(&meta_key("oif"), "!=", &json!("eth0")),
            ],
            "pass to eth*,!eth0",
        ),
        (
            vec![compare(
                &json!({"concat": [field("icmpv6", "type"), field("icmpv6", "code")]}),
                "==",
                &json!({"set": [{"concat": ["packet-too-big", "no-route"]}, {"concat": [4, 0]}, {"concat": [4, "admin-prohibited"]}]}),
            )],
            "pass src ::/0 icmp6 type 2/0,4/0-1",
        ),
        (
            vec![compare(&field("icmp", "code"), "!=", &json!(0))],
            "pass src 0.0.0.0/0 icmp type 0-255/1-255",
        ),
        (
            vec![compare(
                &json!({"tcp option": {"name": "maxseg", "field": "size"}}),
                "<",
                &json!(536),
            )],
            "pass tcp mss 0-535",
        ),
        (
            vec![compare(
                &json!({"&": [field("ip", "frag-off"), 8191]}),
                "!=",
                &json!(0),
            )],
            "pass src 0.0.0.0/0 fragment",
        ),
        (
            vec![compare(
                &json!({"exthdr": {"name": "rt", "field": "type"}}),
                "==",
                &json!(0),
            )],
            "pass src ::/0 routing 0",
        ),
        (
            vec![meta("hour", json!({"range": ["22:00", "23:00:05"]}))],
            "pass hour 22:00-23:00:05",
        ),
        (
            vec![compare(
                &meta_key("hour"),
                "!=",
                &json!({"range": ["03:00", "22:00"]}),
            )],
            "pass hour 0:00-2:59:59,22:00:01-23:59:59",
        ),
        (
            vec![
                compare(&field("ether", "saddr"), "!=", &json!("02:00:00:00:00:01")),
                meta("oifname", json!("a")),
            ],
            "pass src 0.0.0.0/0 to a expr 'not (ether src 02:00:00:00:00:01)'\n\
             pass src ::/0 to a expr 'not (ether src 02:00:00:00:00:01)'",
        ),
        (
            vec![compare(
                &json!({"ct": {"key": "status"}}),
                "in",
                &json!("dnat"),
            )],
            "# no packet matches: table inet t, chain f, rule 10",
        ),
        (
            vec![compare(
                &json!({"ct": {"key": "status"}}),
                "!",
                &json!("dnat"),
            )],
            "pass state new,established,related",
        ),
        (
            vec![compare(
                &json!({"ct": {"key": "state"}}),
                "in",
                &json!("new"),
            )],
            "pass state new",
        ),
        (
            vec![compare(
                &json!({"ct": {"key": "state"}}),
                "!=",
                &json!({"set": ["new", "invalid"]}),
            )],
            "pass state established,related,untracked",
        ),
        (
            vec![json!({"log": {"prefix": "seen: "}})],
            "pass # log seen:",
        ),
        (
            vec![compare(
                &json!({"concat": [meta_key("l4proto"), field("th", "dport")]}),
                "==",
                &json!({"set": [{"concat": ["tcp", 22]}, {"concat": ["udp", {"range": [53, 54]}]}]}),
            )],
            "pass tcp dport 22\npass udp dport 53-54",
        ),
        (
            vec![json!({"limit": {"rate": 3, "burst": 7, "per": "minute", "inv": true}})],
            "pass over 3/m burst 7",
        ),
        (
            vec![compare(
                &field("icmp", "type"),
                "==",
                &json!("echo-request"),
            )],
            "pass src 0.0.0.0/0 icmp type 8",
        ),
    ] {
        let mut expr = matches.clone();
        expr.push(json!({"accept": null}));
        let translation = translate(&ruleset(&[expr.into()])).unwrap();
        assert_eq!(translation.refused, [], "{matches:?}");
        let (_, found) = translation
            .text
            .split_once("# table inet t, chain f\n")
            .unwrap();
        assert_eq!(found.trim_end(), lines);
    }
}

#[test]
fn rejects_become_those_with_the_same_answer() {
    let tcp = compare(&meta_key("l4proto"), "==", &json!("tcp"));
    let udp = compare(&meta_key("l4proto"), "==", &json!("udp"));
    let reject = |kind: &str, code: &str| json!({"reject": {"type": kind, "expr": code}});
    for (rule, lines) in [
        (
            json!([tcp, {"reject": {"type": "tcp reset"}}]),
            "reject tcp",
        ),
        (
            json!([tcp, {"reject": null}]),
            "reject with port-unreachable tcp",
        ),
        (json!([udp, {"reject": null}]), "reject udp"),
        (json!([{"reject": null}]), "reject with port-unreachable"),
        (json!([reject("icmpx", "no-route")]), "reject with no-route"),
        (
            json!([reject("icmpx", "admin-prohibited")]),
            "reject with admin-prohibited",
        ),
        (
            json!([reject("icmp", "host-prohibited")]),
            "reject with host-prohibited src 0.0.0.0/0",
        ),
        (
            json!([reject("icmpv6", "addr-unreachable")]),
            "reject with host-unreachable src ::/0",
        ),
    ] {
        let translation = translate(&ruleset(std::slice::from_ref(&rule))).unwrap();
        assert_eq!(translation.refused, [], "{rule}");
        let (_, found) = translation
            .text
            .split_once("# table inet t, chain f\n")
            .unwrap();
        assert_eq!(found.trim_end(), lines, "{rule}");
    }
}

#[test]
fn what_has_no_equal_is_named_with_its_place_and_the_reason() {
    let meta = |key: &str| compare(&json!({"meta": {"key": key}}), "==", &json!(5));
    let match_of = |left: Value| compare(&left, "==", &json!(5));
    let limit = json!({"limit": {"rate": 10, "burst": 5, "per": "second"}});
    let tcp = compare(&field("tcp", "dport"), "==", &json!(22));
    for (statements, words) in [
        (
            json!([{"queue": {"num": 1}}]),
            "queue: weir has no such statement",
        ),
        (
            json!([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 7}}]),
            "mangle: weir has no such statement",
        ),
        (
            json!([{"flow": {"op": "add", "flowtable": "@f"}}]),
            "flow: weir has no such statement",
        ),
        (json!([{"xt": null}]), "xt: weir has no such statement"),
        (
            json!([{"notrack": null}]),
            "notrack: weir has no such statement",
        ),
        (json!(["accept"]), "a statement of another form"),
        (
            json!([meta("mark")]),
            "meta mark: weir has no such condition",
        ),
        (
            json!([meta("oifname")]),
            "meta oifname: 5 is not a value that weir knows here",
        ),
        (json!([meta("day")]), "meta day: weir has no such condition"),
        (
            json!([meta("hour")]),
            "meta hour: 5 is not a value that weir knows here",
        ),
        (
            json!([match_of(json!({"ct": {"key": "mark"}}))]),
            "ct mark: weir has no such condition",
        ),
        (
            json!([match_of(json!({"ct": {"key": "state", "dir": "original"}}))]),
            "ct state: weir has no such condition",
        ),
        (
            json!([match_of(field("ip", "ttl"))]),
            "ip ttl: weir has no such condition",
        ),
        (
            json!([match_of(field("ip6", "nexthdr"))]),
            "ip6 nexthdr: weir has no such condition",
        ),
        (
            json!([match_of(field("vlan", "id"))]),
            "vlan id: weir has no such condition",
        ),
        (
            json!([compare(
                &json!({"&": [field("ip", "frag-off"), 8191]}),
                "==",
                &json!(0)
            )]),
            "ip frag-off: weir has no condition for all but later fragments",
        ),
        (
            json!([compare(
                &json!({"&": [field("ip", "frag-off"), 0x3fff]}),
                "!=",
                &json!(0)
            )]),
            "ip frag-off under a mask: weir has no such condition",
        ),
        (
            json!([compare(
                &json!({"exthdr": {"name": "rt"}}),
                "==",
                &json!(true)
            )]),
            "exthdr: what passes by it would be more here than in the kernel",
        ),
        (
            json!([compare(
                &json!({"exthdr": {"name": "rt"}}),
                "==",
                &json!(false)
            )]),
            "exthdr: weir has no condition for headers that are missing, or that are there together",
        ),
        (
            json!([match_of(json!({"exthdr": {"name": "mh"}}))]),
            "exthdr mh: weir has no such condition",
        ),
        (
            json!([match_of(json!({"tcp option": {"name": "maxseg"}}))]),
            "tcp option maxseg: weir has no such condition",
        ),
        (
            json!([compare(
                &json!({"ct": {"key": "status"}}),
                "in",
                &json!(["dnat", "assured"])
            )]),
            "ct status: weir knows of snat and dnat alone, which no packet has",
        ),
        (
            json!([compare(
                &field("ether", "saddr"),
                "==",
                &json!({"range": ["02:00:00:00:00:01", "02:00:00:00:00:09"]})
            )]),
            "ether src: ranges of addresses, or more than 32",
        ),
        (
            json!([match_of(
                json!({"payload": {"base": "nh", "offset": 0, "len": 8}})
            )]),
            "raw payload: weir has no such condition",
        ),
        (
            json!([match_of(
                json!({"concat": [field("ip", "saddr"), field("tcp", "dport")]})
            )]),
            "concatenation: 5 is not a value that weir knows here",
        ),
        (
            json!([compare(
                &json!({"concat": [field("ip", "saddr"), field("ip", "ttl")]}),
                "==",
                &json!({"concat": ["10.0.0.1", 5]})
            )]),
            "ip ttl: weir has no such condition",
        ),
        (
            json!([match_of(json!({"exthdr": {"name": "frag", "field": "id"}}))]),
            "exthdr frag: weir has no such condition",
        ),
        (
            json!([match_of(
                json!({"fib": {"result": "oif", "flags": ["saddr"]}})
            )]),
            "fib: weir has no such condition",
        ),
        (
            json!([match_of(json!({"rt": {"key": "mtu"}}))]),
            "rt mtu: weir has no such condition",
        ),
        (
            json!([match_of(
                json!({"&": [field("ip", "saddr"), "255.0.0.255"]})
            )]),
            "ip saddr under a mask: weir has no such condition",
        ),
        (
            json!([compare(
                &json!({"meta": {"key": "iifname"}}),
                "==",
                &json!("e*h")
            )]),
            "meta iifname: \"e*h\" is not a value that weir knows here",
        ),
        (
            json!([compare(
                &json!({"meta": {"key": "iifname"}}),
                "<",
                &json!("eth0")
            )]),
            "meta iifname: the comparison < is not translated",
        ),
        (
            json!([compare(
                &json!({"ct": {"key": "state"}}),
                "==",
                &json!("snat")
            )]),
            "ct state: \"snat\" is not a value that weir knows here",
        ),
        (
            json!([compare(
                &json!({"meta": {"key": "l4proto"}}),
                "==",
                &json!("ah")
            )]),
            "meta l4proto: weir looks behind authentication headers (ah)",
        ),
        (
            json!([compare(&field("ip", "saddr"), "==", &json!("@dyn"))]),
            "ip saddr: @dyn is a set whose elements come and go",
        ),
        (
            json!([compare(&field("ip", "saddr"), "==", &json!("@p"))]),
            "ip saddr: @p is a set of another type than ipv4_addr",
        ),
        (
            json!([compare(&field("ip", "saddr"), "==", &json!("@q"))]),
            "ip saddr: no set @q in the table",
        ),
        (
            json!([compare(&field("th", "dport"), "==", &json!(53))]),
            "th: ports of protocols that need not have any, without meta l4proto in front",
        ),
        (
            json!([limit, tcp]),
            "limit: it counts packets for which the matches behind it do not hold",
        ),
        (
            json!([{"limit": {"rate": 1, "per": "second", "rate_unit": "kbytes"}}]),
            "limit: bytes are those of the frame in weir, and those behind its header in nftables",
        ),
        (
            json!([{"limit": {"rate": 1, "burst": 5, "per": "day"}}]),
            "limit: day is not a period of weir's",
        ),
        (
            json!([limit, {"jump": {"target": "c"}}]),
            "limit: one rate for the rules behind a jump",
        ),
        (
            json!([
                compare(&field("tcp", "flags"), "in", &json!(["fin", "syn"])),
                limit
            ]),
            "limit: one rate for a rule that becomes several lines",
        ),
        (
            json!([{"reject": {"type": "icmpv6", "expr": "policy-fail"}}]),
            "reject with icmpv6 policy-fail: weir has no such answer",
        ),
        (
            json!([{"reject": {"type": "tcp reset"}}]),
            "reject with tcp reset: weir resets nothing but TCP",
        ),
        (
            json!([{"jump": {"target": "nowhere"}}]),
            "jump: there is no chain nowhere",
        ),
    ] {
        let mut all = statements.as_array().unwrap().clone();
        if !["jump", "goto", "reject"]
            .iter()
            .any(|verdict| all.last().unwrap().get(verdict).is_some())
        {
            all.push(json!({"accept": null}));
        }
        let translation = translate(&ruleset(&[all.into(), json!([{"drop": null}])])).unwrap();
        let lines: Vec<String> = translation
            .refused
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(lines, [format!("table inet t, chain f, rule 10: {words}")]);
        let (_, found) = translation
            .text
            .split_once("# table inet t, chain f\n")
            .unwrap();
        assert_eq!(found, format!("# not translated: {}\ndrop\n", lines[0]));
    }
}

#[test]
fn all_that_is_refused_is_named_also_behind_a_jump_and_in_other_chains() {
    let conditional = compare(&field("tcp", "dport"), "==", &json!(80));
    let mut all: Value = serde_json::from_str(&ruleset(&[
        json!([{"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 5}}, {"jump": {"target": "c"}}]),
        json!([conditional, {"jump": {"target": "c"}}]),
        json!([conditional, {"goto": {"target": "c"}}]),
        json!([{"drop": null}]),
    ]))
    .unwrap();
    let chain = |table: &str, name: &str, kind: &str, hook: &str| json!({"chain": {"family": "ip", "table": table, "name": name, "type": kind, "hook": hook, "policy": "accept"}});
    let rule = |table: &str, chain: &str| json!({"rule": {"family": "ip", "table": table, "chain": chain, "handle": 5, "expr": [{"accept": null}]}});
    let objects = all["nftables"].as_array_mut().unwrap();
    for (name, kind, hook) in [
        ("post", "nat", "postrouting"),
        ("pre", "filter", "prerouting"),
        ("in", "filter", "input"),
        ("two", "filter", "forward"),
    ] {
        objects.extend([chain("n", name, kind, hook), rule("n", name)]);
        // Chains of nothing change nothing.
        objects.push(chain("empty", name, kind, hook));
    }
    let translation = translate(&all.to_string()).unwrap();
    let lines: Vec<String> = translation
        .refused
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
        [
            "table ip n, chain post: type nat, hook postrouting: of family ip this chain is not translated",
            "table ip n, chain pre: type filter, hook prerouting: of family ip this chain is not translated",
            "table inet t, chain f, rule 10: meta mark: weir has no such condition",
        ]
    );
    // Packets that leave the chain come back behind the jump.
    let behind = "pass src ::/0 tcp dport 80\n";
    assert!(translation.text.contains(behind), "{}", translation.text);
    assert!(
        translation.text.contains(
            "# table ip n, chain in (hook input) is for the host's own packets: left out\n"
        )
    );
}

#[test]
fn dormant_tables_are_refused() {
    // nft 1.0.6 prints "t" for the flag of a table t.
    for flags in [json!("dormant"), json!(["persist", "dormant"]), json!("t")] {
        let table = json!({"table": {"family": "inet", "name": "t", "flags": flags}});
        let chain = json!({"chain": {"family": "inet", "table": "t", "name": "f", "type": "filter", "hook": "forward", "policy": "drop"}});
        let translation = translate(&json!({"nftables": [table, chain]}).to_string()).unwrap();
        let lines: Vec<String> = translation
            .refused
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            lines,
            [
                "table inet t: its flags may say that it is dormant and judges nothing: leave it out, or wake it"
            ]
        );
    }
}

#[test]
fn texts_without_a_chain_for_forwarded_packets_are_refused() {
    for (text, is_json) in [
        ("", false),
        ("{", false),
        ("[]", true),
        ("{\"nftables\": 5}", true),
    ] {
        let error = translate(text).unwrap_err();
        assert_eq!(matches!(error, NftError::Json(_)), !is_json, "{error}");
        assert_eq!(matches!(error, NftError::NoRuleset), is_json, "{error}");
    }
    assert!(matches!(
        translate("{\"nftables\": []}"),
        Err(NftError::NoForwardChain)
    ));
    let deep = "[".repeat(100_000);
    assert!(matches!(translate(&deep), Err(NftError::Json(_))));
    // Chains of which each leads to the next one twice.
    let chain = |name: usize| {
        let (kind, hook) = if name == 0 {
            ("filter", "forward")
        } else {
            ("", "")
        };
        json!({"chain": {"family": "ip", "table": "t", "name": name.to_string(), "type": kind, "hook": hook}})
    };
    let rule = |name: usize| {
        let expr = json!([{"jump": {"target": (name + 1).to_string()}}]);
        json!({"rule": {"family": "ip", "table": "t", "chain": name.to_string(), "handle": 1, "expr": expr}})
    };
    let mut objects: Vec<Value> = (0..=16).map(chain).collect();
    objects.extend((0..32).map(|number| rule(number / 2)));
    objects
        .push(json!({"rule": {"family": "ip", "table": "t", "chain": "16", "handle": 1, "expr": [{"counter": null}]}}));
    assert!(matches!(
        translate(&json!({"nftables": objects}).to_string()),
        Err(NftError::TooManyRules)
    ));
    // A chain that jumps to itself ends where Linux lets chains end.
    let itself = ruleset(&[json!([{"jump": {"target": "f"}}])]);
    let refused = translate(&itself).unwrap().refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].what, "jump: chains are 16 deep already");
}

#[test]
fn texts_of_any_structure_are_translated_or_refused() {
    let (mut random, mut all) = (Random(3), nft::Seen::default());
    for _ in 0..4_000 {
        let length = random.below(400);
        let seen = nft::judge(&random.bytes(length));
        all.translated += seen.translated;
        all.rules += seen.rules;
        all.refused += seen.refused;
        all.passed += seen.passed;
        all.denied += seen.denied;
        all.unread += seen.unread;
    }
    println!("{all:?}");
    assert!(
        all.translated > 1600 && all.rules > 4_000 && all.refused > 1600,
        "{all:?}"
    );
    assert!(all.passed > 400 && all.denied > 400, "{all:?}");
}

/// Cases that the fuzz target begins with, chosen so that they come to many forms of rules.
#[test]
fn seeds_of_the_fuzz_target_are_translated_as_they_are_read() {
    let seeds =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/nft"));
    let mut all = nft::Seen::default();
    for case in seeds.expect("the seeds are in the repository").lines() {
        let digit =
            |place: usize| u8::from_str_radix(&case[place..place + 2], 16).expect("hexadecimal");
        let bytes: Vec<u8> = (0..case.len()).step_by(2).map(digit).collect();
        let seen = nft::judge(&bytes);
        all.translated += seen.translated;
        all.passed += seen.passed;
        all.denied += seen.denied;
    }
    assert!(
        all.translated > 100 && all.passed > 100 && all.denied > 100,
        "{all:?}"
    );
}

/// A set whose elements are the name of a set, its own or that of one which names it: nft prints none, and a look-up would not end.
#[test]
fn sets_that_name_each_other_are_refused() {
    let set = |name: &str, elements: &str| json!({"set": {"family": "inet", "table": "t", "name": name, "type": "ipv4_addr", "elem": elements}});
    for other in ["@q", "@r"] {
        let rule = json!([compare(&field("ip", "saddr"), "==", &json!("@q")), {"accept": null}]);
        let mut whole: Value = serde_json::from_str(&ruleset(&[rule])).unwrap();
        let objects = whole["nftables"].as_array_mut().unwrap();
        objects.splice(2..2, [set("q", other), set("r", "@q")]);
        let translation = translate(&whole.to_string()).unwrap();
        let refused = format!("{translation:?}");
        assert!(
            refused.contains("@q: the elements are another set"),
            "{refused}"
        );
    }
}
