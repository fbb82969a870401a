//! Every JSON object on standard output says its type, in each form of each command.

use crate::recording::*;
use crate::support::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use weir_engine::socket::{Reply, Server, Settings};

/// Types of the objects of a text, a line each, and how many there are of each.
#[track_caller]
fn types(text: &str) -> BTreeMap<String, usize> {
    let mut types = BTreeMap::new();
    for line in text.lines() {
        let object: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let kind = object["type"]
            .as_str()
            .unwrap_or_else(|| panic!("no type: {line}"));
        assert!(
            line.starts_with(&format!("{{\"type\":\"{kind}\"")),
            "the type comes first: {line}"
        );
        *types.entry(kind.to_owned()).or_default() += 1;
    }
    types
}

fn expected<const N: usize>(kinds: [(&str, usize); N]) -> BTreeMap<String, usize> {
    kinds
        .into_iter()
        .map(|(kind, count)| (kind.to_owned(), count))
        .collect()
}

#[test]
fn every_object_of_every_command_says_its_type() {
    let temp = Temp::new();
    // A packet a second, of ports 1, 2, 3, ...
    let file = temp.file("five.pcap", &small_pcap(5));
    let rules = temp.file("rules", b"drop udp dport 2\n");
    let record = temp.at("record");
    weir(["record", &file, &record, "--disk", "64M", "--reserve", "1"]).ok();
    let saving = temp.at("saving");
    let out = temp.at("out.pcap");
    for (line, kinds) in [
        (
            "filter|udp|FILE|--json",
            &[("packet", 5), ("summary", 1)][..],
        ),
        ("filter|udp|FILE|--json|--count", &[("summary", 1)]),
        ("measure|FILE|--json", &[("summary", 1)]),
        (
            "measure|FILE|--json|--window|1s|--changers|3",
            &[("window", 5), ("summary", 1)],
        ),
        ("info|FILE|FILE|--json", &[("file", 2)]),
        ("query|RECORD|--json", &[("packet", 5), ("summary", 1)]),
        ("query|RECORD|udp|--json|--count", &[("summary", 1)]),
        ("query|RECORD|--json|--flows", &[("summary", 1)]),
        ("firewall|check|RULES|FILE|--json", &[("summary", 1)]),
        ("firewall|FILE|OUT|--rules|RULES|--json", &[("summary", 1)]),
        (
            "record|FILE|SAVING|--ram|16M|--trigger|t=port 2|--json",
            &[("saved", 1), ("summary", 1)],
        ),
    ] {
        let words = line.split('|').map(|word| match word {
            "FILE" => &file,
            "OUT" => &out,
            "RECORD" => &record,
            "RULES" => &rules,
            "SAVING" => &saving,
            word => word,
        });
        let _ = std::fs::remove_file(&out);
        let done = weir(words).ok();
        let wanted: BTreeMap<_, _> = kinds
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), *count))
            .collect();
        assert_eq!(types(&done.text()), wanted, "{line}: {}", done.err);
    }
    let doctor = weir(["doctor", "--json"]);
    assert_eq!(
        types(&doctor.text()),
        expected([("findings", 1)]),
        "{}",
        doctor.err
    );
    let facts: Value = serde_json::from_str(&doctor.text()).unwrap();
    let groups = facts
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_object);
    let findings: Vec<&Value> = groups.flat_map(|group| group.values()).collect();
    assert!(
        findings.len() > 10 && findings.iter().all(|finding| finding["type"] == "finding"),
        "{facts}"
    );
}

/// What a running recorder or firewall answers is an object of a socket, and gets its type where it is printed.
#[test]
fn answers_of_running_programs_say_their_type_where_they_are_printed() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(&directory, &["--ram", "16M"]);
    connected(&directory);
    assert_eq!(
        types(&weir(["record", "--status", &directory]).ok().text()),
        expected([("status", 1)])
    );
    drop(recorder.stdin.take());
    gather(recorder, &[]);

    let place = temp.at("control");
    let answer = |_| Reply::Done(json!({ "received": 1 }));
    let _server = Server::bind(Path::new(&place), Settings::default(), answer).unwrap();
    for (command, kind) in [
        (&["list"][..], "bans"),
        (&["stats"], "counts"),
        (&["reload"], "change"),
        (&["block", "192.0.2.1"], "change"),
        (&["accept", "192.0.2.1"], "change"),
    ] {
        // The answers of this server are none of a firewall: they are not held against the schema.
        let mut ctl = weir_command();
        ctl.args(["firewall", "ctl", "--control", &place, "--json"])
            .args(command);
        let done = ctl.output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert_eq!(types(&text), expected([(kind, 1)]), "{command:?}");
    }
}
