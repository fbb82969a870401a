//! `weir firewall` with rulesets of nftables: translated, in place of rules, and changed while packets flow.

use crate::firewall_live::Wall;
use crate::support::*;
use serde_json::{Value, json};
use std::fs;

/// A ruleset as nft lists it, whose chain for forwarded packets has these rules.
fn ruleset(policy: &str, rules: &[Value]) -> String {
    let chain = json!({"family": "inet", "table": "t", "name": "f", "type": "filter", "hook": "forward", "policy": policy});
    let rule = |(handle, expr): (usize, &Value)| json!({"rule": {"family": "inet", "table": "t", "chain": "f", "handle": handle, "expr": expr}});
    let objects: Vec<Value> = [json!({"chain": chain})]
        .into_iter()
        .chain((7..).zip(rules).map(rule))
        .collect();
    json!({"nftables": objects}).to_string() + "\n"
}

/// A rule for UDP to a port.
fn udp_to(port: u16, verdict: &str) -> Value {
    let left = json!({"payload": {"protocol": "udp", "field": "dport"}});
    json!([{"match": {"op": "==", "left": left, "right": port}}, {verdict: null}])
}

/// A rule that has no equal.
fn queue() -> Value {
    json!([{"queue": {"num": 1}}])
}

const AUTHENTICATION: &str = "drop extension ah";

#[test]
fn a_ruleset_is_printed_as_rules_and_judges_like_them() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(10));
    let text = ruleset("drop", &[udp_to(3, "accept"), udp_to(5, "accept")]);
    let json = temp.file("ruleset.json", text.as_bytes());
    let done = weir(["firewall", "translate", &json]).ok();
    assert!(
        done.err.is_empty() && done.text().contains(AUTHENTICATION),
        "{done:?}"
    );
    assert!(
        done.text()
            .ends_with("# table inet t, chain f\npass udp dport 3\npass udp dport 5\n"),
        "{}",
        done.text()
    );
    assert_eq!(
        weir_fed(["firewall", "translate", "-"], text.as_bytes())
            .ok()
            .out,
        done.out
    );
    let rules = temp.file("rules.txt", &done.out);
    let by_rules = weir(["firewall", "check", &rules, &file, "--json"]).ok();
    let by_ruleset = weir(["firewall", "check", "--from-nft", &json, &file, "--json"]).ok();
    assert_eq!(by_rules.out, by_ruleset.out);
    let answer: Value = serde_json::from_str(&by_rules.text()).unwrap();
    assert_eq!(
        (&answer["passed"], &answer["denied"]),
        (&json!(2), &json!(8))
    );
    let twice = weir([
        "firewall",
        "check",
        "--from-nft",
        &json,
        &file,
        &file,
        "--json",
    ])
    .ok();
    assert_eq!(
        serde_json::from_str::<Value>(&twice.text()).unwrap()["passed"],
        4
    );
    let fed = weir_fed(
        ["firewall", "check", "--from-nft", "-", &file, "--json"],
        text.as_bytes(),
    )
    .ok();
    assert_eq!(fed.out, by_rules.out);
    let out = temp.at("out.pcap");
    weir(["firewall", &file, &out, "--from-nft", &json]).ok();
    assert_eq!(records(&out).len(), 2);
}

#[test]
fn what_is_not_translated_is_named_and_nothing_begins() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(10));
    let out = temp.at("out.pcap");
    let mark = json!([{"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 5}}, {"accept": null}]);
    let json = temp.file(
        "ruleset.json",
        ruleset("accept", &[queue(), udp_to(3, "drop"), mark]).as_bytes(),
    );
    let named = [
        "rule 7: queue: weir has no such statement",
        "rule 9: meta mark: weir has no such condition",
    ];
    let done = weir(["firewall", "translate", &json]);
    assert_eq!(
        (done.code, done.err.lines().count()),
        (Some(1), 3),
        "{}",
        done.err
    );
    assert!(
        done.err
            .ends_with("ruleset.json: 2 parts are not translated\n"),
        "{}",
        done.err
    );
    for words in named {
        assert!(
            done.err
                .contains(&format!("weir: table inet t, chain f, {words}\n")),
            "{}",
            done.err
        );
        assert!(
            done.text().contains(&format!(
                "# not translated: table inet t, chain f, {words}\n"
            )),
            "{}",
            done.text()
        );
    }
    assert!(
        done.text().contains("\ndrop udp dport 3\n"),
        "{}",
        done.text()
    );
    for arguments in [
        vec!["firewall", "check", "--from-nft", &json, &file],
        vec!["firewall", &file, &out, "--from-nft", &json],
    ] {
        let done = weir(&arguments);
        assert_eq!((done.code, done.out.len()), (Some(2), 0), "{}", done.err);
        assert!(
            named.iter().all(|words| done.err.contains(words)),
            "{}",
            done.err
        );
        assert!(
            done.err
                .contains("ruleset.json: 2 parts are not translated: "),
            "{}",
            done.err
        );
    }
    assert!(fs::metadata(&out).is_err());
}

#[test]
fn texts_that_are_no_ruleset_are_refused_in_one_line() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(10));
    let good = temp.file("good.json", ruleset("drop", &[]).as_bytes());
    for (text, words) in [
        ("", "no JSON as nft -j list ruleset prints it"),
        (
            "table inet t {\n}\n",
            "no JSON as nft -j list ruleset prints it",
        ),
        ("{}", "no ruleset: nft -j list ruleset prints"),
        (
            "{\"nftables\": []}",
            "no chain of type filter at the hook forward",
        ),
    ] {
        let json = temp.file("ruleset.json", text.as_bytes());
        for arguments in [
            vec!["firewall", "translate", &json],
            vec!["firewall", "check", "--from-nft", &json, &file],
        ] {
            let done = weir(&arguments);
            assert_eq!(
                (done.code, done.out.len(), done.err.lines().count()),
                (Some(2), 0, 1),
                "{}",
                done.err
            );
            assert!(
                done.err.contains(&format!("ruleset.json: {words}")),
                "{}",
                done.err
            );
        }
    }
    for (arguments, words) in [
        (
            vec!["firewall", "translate", "/nonexistent"],
            "/nonexistent: no such file",
        ),
        (vec!["firewall", "translate"], "weir firewall translate -"),
        (
            vec![
                "firewall",
                &file,
                "null",
                "--from-nft",
                &good,
                "--rules",
                &good,
            ],
            "exclude each other",
        ),
        (
            vec!["firewall", &file, &good, "--from-nft", &good],
            "both source and output",
        ),
        (
            vec!["firewall", "check", &good],
            "name a capture after the rules",
        ),
        (
            vec!["firewall", "check", "--from-nft", "-", "-"],
            "standard input cannot be both",
        ),
    ] {
        let done = weir(&arguments);
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
    }
}

#[test]
fn a_ruleset_is_read_again_and_one_that_is_not_translated_changes_nothing() {
    let test = "a_ruleset_is_read_again_and_one_that_is_not_translated_changes_nothing";
    let Some(wall) = Wall::new(test, &ruleset("accept", &[udp_to(9, "drop")])) else {
        return;
    };
    let running = wall.start_with("--from-nft", "near", "af_packet:out", &[]);
    let rules = || {
        wall.stats()["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["rule"].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(rules(), ["\"drop udp dport 9\""]);
    fs::write(
        &wall.rules,
        ruleset("accept", &[udp_to(10, "drop"), udp_to(11, "drop")]),
    )
    .unwrap();
    wall.ctl(&["reload"]).ok();
    assert_eq!(rules(), ["\"drop udp dport 10\"", "\"drop udp dport 11\""]);
    fs::write(
        &wall.rules,
        ruleset("accept", &[queue(), udp_to(12, "drop")]),
    )
    .unwrap();
    let refused = wall.ctl(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("1 part is not translated")
            && refused.err.contains("the rules stay as they are"),
        "{}",
        refused.err
    );
    let running = running.until("rule 7: queue: weir has no such statement");
    assert_eq!(rules().len(), 2);
    // By SIGHUP, and because the file has changed.
    fs::write(&wall.rules, ruleset("accept", &[udp_to(12, "drop")])).unwrap();
    running.signal("-HUP");
    let running = running.until("from now on 1 rule");
    assert_eq!(rules(), ["\"drop udp dport 12\""]);
    drop(running);
}
