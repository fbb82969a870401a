//! Every sketch with every key and every task: an answer that agrees with an exact table, or a refusal by name.

use super::*;

const SKETCHES: [&str; 8] = [
    "heavy",
    "exact",
    "cms",
    "cms-conservative",
    "sht",
    "mv",
    "rs",
    "rs-set",
];

const KEYS: [&str; 9] = [
    "5tuple",
    "conversation",
    "pair",
    "src",
    "dst",
    "sport",
    "dport",
    "proto",
    "src/24",
];

/// Arguments of a task. Tables are too small for all flows, but not for all keys of each kind.
const TASKS: [&[&str]; 5] = [
    &["--workers", "1"],
    &["--workers", "3", "--by", "bytes"],
    &[
        "--workers",
        "2",
        "--design",
        "async",
        "--distribute",
        "flow",
    ],
    &["--workers", "2", "--window", "50ms", "--changers", "1000"],
    &["--workers", "2", "--state", "shared", "--design", "async"],
];

/// Figures of the keys of each window, from an exact table with room for all.
type Windows = Vec<BTreeMap<String, i64>>;

fn figures(objects: &[Value], key: &str, by: &str) -> Windows {
    let figures = |object: &Value| {
        let rows = object["top"].as_array().unwrap().iter();
        rows.map(|row| (row_key(key, row), row[by].as_i64().unwrap()))
            .collect()
    };
    objects.iter().map(figures).collect()
}

fn check_rows(object: &Value, key: &str, by: &str, truth: &BTreeMap<String, i64>, context: &str) {
    let rows = object["top"].as_array().unwrap();
    assert!(!rows.is_empty() || truth.is_empty(), "{context}");
    let mut outside = truth.clone();
    for row in rows {
        let figure = outside
            .remove(&row_key(key, row))
            .unwrap_or_else(|| panic!("{context}: a key twice, or of no packet: {row}"));
        let [lower, upper] = ["lower", "upper"].map(|end| row["bound"][end].as_i64().unwrap());
        // Only the upper end of a probable bound is certain.
        let probable = row["bound"]["kind"] == "probabilistic";
        assert!(
            (lower..=upper).contains(&figure) || probable && figure <= upper,
            "{context}: {figure}; {row}"
        );
        assert!(
            row["bound"]["kind"] != "exact" || row[by] == figure,
            "{context}: {figure}; {row}"
        );
    }
    let missing = &object["missing"];
    let most = outside.values().max().copied().unwrap_or(0);
    match missing["at_most"].as_i64() {
        Some(at_most) => assert!(most <= at_most, "{context}: {most}; {missing}"),
        None => {
            assert_eq!(missing["kind"], "none", "{context}");
            let evicted = missing["evicted"]["packets"].as_u64();
            assert!(
                evicted.is_some(),
                "{context}: the reason is told: {missing}"
            );
        }
    }
}

fn check_changers(
    object: &Value,
    key: &str,
    before: &BTreeMap<String, i64>,
    after: &BTreeMap<String, i64>,
    context: &str,
) {
    for change in object["changers"][key].as_array().unwrap() {
        let key = row_key(key, change);
        let figure = |window: &BTreeMap<String, i64>| window.get(&key).copied().unwrap_or(0);
        let truth = figure(after) - figure(before);
        let [lower, upper] = ["lower", "upper"].map(|end| change["bound"][end].as_i64().unwrap());
        let probable = change["bound"]["kind"] == "probabilistic";
        assert!(
            (lower..=upper).contains(&truth) || probable,
            "{context}: {truth}; {change}"
        );
    }
}

#[test]
fn every_sketch_answers_every_task_or_refuses_it_by_name() {
    let temp = Temp::new();
    let profile = Profile {
        seed: 11,
        packets: 2500,
        flows: 1200,
        zipf: 1.0,
        rate_pps: 12_500,
        ..Profile::default()
    };
    let (file, _, _) = generated(&temp, "g.pcap", &profile);
    let (mut answers, mut refusals, mut changes, mut evicted) = (0, 0, 0, 0);
    for (at_key, key) in KEYS.into_iter().enumerate() {
        for (at_task, task) in TASKS.into_iter().enumerate() {
            let by = if task.contains(&"bytes") {
                "bytes"
            } else {
                "packets"
            };
            let fixed = ["--key", key, "--seed", "4", "--top", "100000"];
            let shared = task.contains(&"shared");
            let exact = [&[file.as_str()], &fixed[..], task, &["--sketch", "exact"]].concat();
            let truth = figures(&measure(&exact), key, by);
            for (at_sketch, sketch) in SKETCHES.into_iter().enumerate() {
                // Two tasks of five for each sketch and key: every two of the three meet.
                if (at_key + at_sketch + at_task) % TASKS.len() > 1 {
                    continue;
                }
                let context = format!("--sketch {sketch} --key {key} {}", task.join(" "));
                // The narrowest rows for pairs take 2 MiB. A few entries with full sets would name flows that never were.
                let size = if sketch.starts_with("rs") {
                    "4M"
                } else {
                    "32k"
                };
                let memory = ["--sketch", sketch, "--memory", size];
                let arguments = [&[file.as_str()], &fixed[..], task, &memory].concat();
                if shared && ["heavy", "mv"].contains(&sketch) {
                    let words = [&format!("--sketch {sketch}"), "use exact, cms, sht or rs"];
                    refusals::assert_refused(&arguments, &words);
                    refusals += 1;
                    continue;
                }
                if sketch == "rs" && !["src", "dst", "src/24", "pair"].contains(&key) {
                    let words = ["--sketch rs", &format!("--key {key}"), "--key src"];
                    refusals::assert_refused(&arguments, &words);
                    refusals += 1;
                    continue;
                }
                if sketch == "rs-set" && key != "5tuple" {
                    let words = ["--sketch rs-set", &format!("--key {key}"), "--key 5tuple"];
                    refusals::assert_refused(&arguments, &words);
                    refusals += 1;
                    continue;
                }
                let objects = measure(&arguments);
                assert_eq!(objects.len(), truth.len(), "{context}");
                for (at, object) in objects.iter().enumerate() {
                    check_rows(object, key, by, &truth[at], &context);
                    evicted += object["missing"]["evicted"]["packets"]
                        .as_u64()
                        .unwrap_or(0);
                    if object["changers"][key].is_array() {
                        check_changers(object, key, &truth[at - 1], &truth[at], &context);
                        changes += 1;
                    }
                }
                answers += 1;
            }
        }
    }
    assert_eq!(answers, 110);
    assert_eq!(refusals, 34);
    assert!(changes > 9 * 2 && evicted > 1000, "{changes} {evicted}");
}

/// The oracle is an exact table of all packets that pass the expression `ip6`.
#[test]
fn a_reversible_sketch_tells_the_packets_of_ipv6_and_finds_the_rest() {
    let temp = Temp::new();
    let profile = Profile {
        seed: 5,
        packets: 6000,
        flows: 300,
        ..Profile::default()
    };
    let (file, _, _) = generated(&temp, "g.pcap", &profile);
    let exact_table = |expression| {
        let fixed = ["--key", "src", "--sketch", "exact", "--filter", expression];
        measure_one(&[&[file.as_str()], &fixed[..]].concat())
    };
    let exact = exact_table("ip6 or (vlan and ip6)");
    let rows = exact["top"].as_array().unwrap().iter();
    let in_rows: u64 = rows.map(|row| row["packets"].as_u64().unwrap()).sum();
    let ipv6 = in_rows + exact["missing"]["packets"].as_u64().unwrap();
    assert!(ipv6 > 50);
    let truth = exact_table("ip or (vlan and ip)");
    let top = truth["top"].as_array().unwrap();
    for state in ["separate", "shared"] {
        let fixed = [
            "--key", "src", "--sketch", "rs", "--state", state, "--design", "async",
        ];
        let object = measure_one(&[&[file.as_str()], &fixed[..]].concat());
        assert_eq!(object["missing"]["ipv6"]["packets"], ipv6, "{state}");
        for (row, truth) in object["top"].as_array().unwrap().iter().zip(top).take(4) {
            assert_eq!(row["src"], truth["src"], "{state}");
            assert_eq!(row["bound"]["upper"], truth["packets"], "{state}");
        }
    }
    let small = ["--key", "pair", "--sketch", "rs", "--memory", "1M"];
    refusals::assert_refused(
        &[&[file.as_str()], &small[..]].concat(),
        &["too small for a table", "use --memory 2M or more"],
    );
}

/// The oracle is an exact table. Full sets hide flows, but the limit of all other flows holds.
#[test]
fn full_sets_are_told_and_limit_the_flows_that_they_hide() {
    let temp = Temp::new();
    let profile = Profile {
        seed: 7,
        packets: 6000,
        flows: 1500,
        ..Profile::default()
    };
    let (file, _, _) = generated(&temp, "g.pcap", &profile);
    let table = |sketch, memory| {
        // With some seeds, flows of one place make the count of the first too large by one.
        let fixed = [
            "--sketch", sketch, "--memory", memory, "--top", "5", "--seed", "2",
        ];
        measure_one(&[&[file.as_str()], &fixed[..]].concat())
    };
    let most = table("exact", "4M")["top"][0]["packets"].as_u64().unwrap();
    let small = table("rs-set", "64k");
    assert!(small["missing"]["overflowed"].as_u64().unwrap() > 10);
    let named = small["top"].as_array().unwrap().iter();
    let named = named.map(|row| row["packets"].as_u64().unwrap());
    let at_most = small["missing"]["at_most"].as_u64().unwrap();
    assert!(named.max().unwrap_or(0).max(at_most) >= most);
    let large = table("rs-set", "16M");
    assert!(large["missing"].get("overflowed").is_none(), "{large}");
    assert_eq!(large["top"][0]["packets"], most);
    assert_eq!(large["top"][0]["bound"]["kind"], "none");
    let text = weir(["measure", &file, "--sketch", "rs-set", "--memory", "64k"])
        .ok()
        .text();
    assert!(text.contains("full sets: "), "{text}");
}
