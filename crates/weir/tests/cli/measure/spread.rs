//! Peers, ports and contacts. The oracles are the scans that the generator planted, sets that these tests fill from the frames,
//! and tshark.

use super::answers::{PLAIN, tshark};
use super::*;
use crate::capture::net::Net;
use std::collections::BTreeSet;
use weir_generator::known::{Connections, Dialogues, Flood, Known, Plan, Scan, Traffic};
use weir_testkit::savefile::Pcap;
use weir_testkit::wait;

const FIGURES: [&str; 3] = ["peers", "ports", "contacts"];
const SECOND: i64 = 1_000_000_000;

/// Scans of all kinds, a flood, connections and dialogues within four seconds, mixed into ordinary traffic.
fn plan() -> Plan {
    let vertical = Scan {
        ports: 400,
        begin_ns: SECOND / 2,
        ..Scan::default()
    };
    let horizontal = Scan {
        peers: 250,
        begin_ns: SECOND,
        ..Scan::default()
    };
    let slow = Scan {
        peers: 30,
        gap_ns: SECOND / 10,
        ..Scan::default()
    };
    let distributed = Scan {
        sources: 5,
        peers: 100,
        ports: 10,
        gap_ns: 1_500_000,
        ..Scan::default()
    };
    Plan {
        span_ns: 3 * SECOND,
        ordinary: Some(Profile {
            packets: 6000,
            rate_pps: 2000,
            ..Profile::default()
        }),
        connections: Connections {
            count: 300,
            resets: 50,
            ..Connections::default()
        },
        dialogues: Dialogues {
            count: 400,
            unanswered: 9,
            ..Dialogues::default()
        },
        scans: vec![vertical, horizontal, slow, distributed],
        floods: vec![Flood {
            frames: 1000,
            sources: 900,
            begin_ns: SECOND,
            gap_ns: 200_000,
        }],
        ..Plan::default()
    }
}

/// Frames of the plan with their times, and its facts.
fn planted(plan: &Plan) -> (Vec<(i64, Vec<u8>)>, Known) {
    let mut traffic = Traffic::new(plan).expect("the plan is valid");
    let mut buf = [0; FRAME_MAX];
    let mut frames = Vec::new();
    while let Some(made) = traffic.next(&mut buf) {
        frames.push((made.time_ns, buf[..made.len].to_vec()));
    }
    (frames, traffic.known().clone())
}

fn saved<'a>(
    temp: &Temp,
    name: &str,
    frames: impl IntoIterator<Item = &'a (i64, Vec<u8>)>,
) -> String {
    let mut pcap = Pcap::with(1, FRAME_MAX as u32, false, true);
    for (time_ns, frame) in frames {
        pcap.stamped(*time_ns, frame);
    }
    temp.file(name, &pcap.bytes)
}

fn seen(frames: &[(i64, Vec<u8>)]) -> Vec<Seen> {
    let one = |(time_ns, frame): &(i64, Vec<u8>)| Seen {
        time_ns: *time_ns,
        bytes: frame.len() as u64,
        flow: dissect(frame),
    };
    frames.iter().map(one).collect()
}

/// Key and element of a packet, as texts.
fn contact(kind: &str, by: &str, flow: &Flow) -> Option<(String, String)> {
    let key = key_text(kind, fields(kind, flow));
    let is_source = kind.starts_with("dst") || kind == "sport";
    let peer = if is_source { flow.src } else { flow.dst };
    let port = flow
        .ports
        .map(|(_, dport)| format!("{dport} {}", flow.proto));
    let element = match by {
        "peers" => peer.to_string(),
        "ports" => port?,
        _ => format!("{peer} {}", port?),
    };
    Some((key, element))
}

/// Numbers of different elements by key.
fn distinct<'a>(
    kind: &str,
    by: &str,
    seen: impl IntoIterator<Item = &'a Seen>,
) -> BTreeMap<String, u64> {
    let mut elements = BTreeMap::<String, BTreeSet<String>>::new();
    for seen in seen {
        let flow = seen.flow.as_ref();
        if let Some((key, element)) = flow.and_then(|flow| contact(kind, by, flow)) {
            elements.entry(key).or_default().insert(element);
        }
    }
    let count = |(key, elements): (String, BTreeSet<String>)| (key, elements.len() as u64);
    elements.into_iter().map(count).collect()
}

/// Numbers of a table by key. All must be exact.
#[track_caller]
fn spread(kind: &str, by: &str, top: &Value) -> BTreeMap<String, u64> {
    let row = |row: &Value| {
        let number = row[by].as_u64().expect("a number");
        let bound = json!({ "kind": "exact", "lower": number, "upper": number });
        assert_eq!(row["bound"], bound);
        let mut fields = row.as_object().expect("a row is an object").clone();
        for figure in [by, "unanswered", "refused", "bound"] {
            assert!(fields.shift_remove(figure).is_some(), "{figure}: {row}");
        }
        (key_text(kind, fields), number)
    };
    let rows = top.as_array().expect("a table is an array").iter();
    rows.map(row).collect()
}

/// Keys that have different numbers of these elements.
fn keys(by: &str) -> &'static [&'static str] {
    match by {
        "peers" => &["src", "dst", "src/24", "dst/33", "sport", "dport", "proto"],
        "ports" => &["src", "dst", "src/24", "pair", "proto"],
        _ => &["src", "dst", "dst/33", "proto"],
    }
}

#[test]
fn planted_scans_are_told_with_their_answers() {
    let temp = Temp::new();
    let (frames, known) = planted(&plan());
    let file = saved(&temp, "scans.pcap", &frames);
    for by in FIGURES {
        let object = measure_one(&[&file, "--key", "src", "--by", by, "--top", "100000"]);
        assert_eq!(object["missing"]["kind"], "exact");
        assert_eq!(object["missing"]["share"], 1.0);
        for scanner in &known.scanners {
            let source = IpAddr::from(scanner.source).to_string();
            let rows = object["top"].as_array().unwrap();
            let row = rows.iter().find(|row| row["src"] == source.as_str());
            let row = row.unwrap_or_else(|| panic!("no row of {source}"));
            let number = match by {
                "peers" => scanner.peers,
                "ports" => scanner.ports,
                _ => scanner.contacts,
            };
            assert_eq!(row[by], number, "{row}");
            if by == "contacts" {
                assert_eq!(row["unanswered"], scanner.unanswered(), "{row}");
                assert_eq!(row["refused"], scanner.refused, "{row}");
            }
        }
    }
    // The target of the flood answers nobody.
    let flood = &known.floods[0];
    let object = measure_one(&[&file, "--key", "dst", "--by", "peers", "--top", "1"]);
    let row = &object["top"][0];
    assert_eq!(row["dst"], IpAddr::from(flood.target).to_string());
    assert_eq!([&row["peers"], &row["unanswered"]], [flood.sources; 2]);
}

/// The right command names each scan within two windows, before all else that is not a scan.
#[test]
fn planted_scans_are_found_within_two_windows() {
    let temp = Temp::new();
    let (frames, known) = planted(&plan());
    let file = saved(&temp, "scans.pcap", &frames);
    let fixed = ["--by", "contacts", "--window", "1s", "--top", "20"];
    let mut objects = measure(&[&[file.as_str(), "--key", "src"], &fixed[..]].concat());
    objects.pop();
    let silent =
        |row: &Value| row["unanswered"].as_u64().unwrap() + row["refused"].as_u64().unwrap();
    for (number, scanner) in known.scanners.iter().enumerate() {
        let source = IpAddr::from(scanner.source).to_string();
        // The third scan asks ten peers in a second.
        let least = if number == 2 { 5 } else { 50 };
        let begins = objects.iter().position(|window| {
            let rows = window["top"].as_array().unwrap();
            rows.iter().any(|row| row["src"] == source.as_str())
        });
        let begins = begins.unwrap_or_else(|| panic!("{source} is in no window"));
        let found = objects[begins..].iter().take(2).any(|window| {
            let rows = window["top"].as_array().unwrap();
            let row = rows.iter().find(|row| row["src"] == source.as_str());
            row.is_some_and(|row| {
                silent(row) >= least && 2 * silent(row) > row["contacts"].as_u64().unwrap()
            })
        });
        assert!(found, "{source}");
    }
    // Nobody else has so many contacts without an answer: clients, servers, and the resolver.
    let scanners: BTreeSet<String> = known
        .scanners
        .iter()
        .map(|scanner| IpAddr::from(scanner.source).to_string())
        .collect();
    for row in objects
        .iter()
        .flat_map(|window| window["top"].as_array().unwrap())
    {
        let is_scanner = scanners.contains(row["src"].as_str().unwrap());
        assert!(is_scanner || silent(row) < 50, "{row}");
    }
}

#[test]
fn numbers_are_those_of_sets_however_the_work_is_done() {
    let temp = Temp::new();
    // Every third: the work is the same, and the test takes a third of the time.
    let frames: Vec<_> = planted(&plan()).0.into_iter().step_by(3).collect();
    let file = saved(&temp, "all.pcap", &frames);
    let halves = [0, 1].map(|half| {
        let mine = frames.iter().skip(half).step_by(2);
        saved(&temp, &format!("{half}.pcap"), mine)
    });
    let seen = seen(&frames);
    for (by, order) in FIGURES.into_iter().zip(["--no-merge", "--merge", "--sort"]) {
        let keys = keys(by);
        let all = measure_one(&[&[file.as_str()], &asked(by, keys)[..]].concat());
        for key in keys {
            let found = spread(key, by, &all["tops"][key]);
            assert_eq!(found, distinct(key, by, &seen), "{key} by {by}");
        }
        // The work is done in other ways for two keys: tables of seven keys take the longest.
        let fixed = asked(by, &keys[..2]);
        let agrees = |other: &Value, context: &str| {
            for key in &keys[..2] {
                assert_eq!(other["tops"][key], all["tops"][key], "{by} {context}");
            }
        };
        for design in DESIGNS {
            let other = measure_one(&[&[file.as_str()], &fixed[..], &design].concat());
            agrees(&other, &design.join(" "));
        }
        let files = [halves[0].as_str(), halves[1].as_str(), order];
        agrees(&measure_one(&[&files, &fixed[..]].concat()), order);
        // Windows, of one file and of two that are merged.
        let windows = |sources: &[&str]| {
            let mut all = measure(&[sources, &["--window", "1s"], &fixed[..]].concat());
            agrees(&all.pop().expect("a summary"), "windows");
            all
        };
        let each = windows(&[&file]);
        let first = seen
            .iter()
            .filter(|seen| seen.time_ns < (BEGIN + 1) * SECOND);
        let found = spread(keys[0], by, &each[0]["tops"][keys[0]]);
        assert_eq!(found, distinct(keys[0], by, first));
        let merged = windows(&[&halves[0], &halves[1]]);
        assert!(
            each.iter()
                .zip(&merged)
                .all(|(a, b)| a["tops"] == b["tops"])
        );
    }
}

/// Arguments that ask for all rows of these keys.
fn asked<'a>(by: &'a str, keys: &[&'a str]) -> Vec<&'a str> {
    let keys = keys.iter().flat_map(|key| ["--key", key]);
    ["--by", by, "--top", "100000"]
        .into_iter()
        .chain(keys)
        .collect()
}

#[test]
fn estimates_do_not_depend_on_the_work_either() {
    let temp = Temp::new();
    let (frames, _) = planted(&plan());
    let file = saved(&temp, "all.pcap", &frames);
    let fixed = [
        "--key", "src", "--by", "contacts", "--memory", "16k", "--seed", "3",
    ];
    let one = measure_one(&[&[file.as_str()], &fixed[..]].concat());
    let share = one["missing"]["share"].as_f64().unwrap();
    assert!((0.01..0.5).contains(&share), "{share}");
    assert_eq!(one["top"][0]["bound"]["kind"], "probabilistic");
    assert_eq!(one["top"][0]["bound"]["confidence"], 0.95);
    for design in DESIGNS {
        let other = measure_one(&[&[file.as_str()], &fixed[..], &design].concat());
        assert_eq!(
            [&other["top"], &other["missing"]],
            [&one["top"], &one["missing"]]
        );
    }
    let text = weir([&["measure", &file], &fixed[..]].concat()).ok().text();
    assert!(
        text.contains("(95 %)") && text.contains("% of all contacts; --memory"),
        "{text}"
    );
}

/// All counts of different elements that tshark's fields give.
#[test]
fn elements_of_real_captures_are_those_of_tshark() {
    let test = "elements_of_real_captures_are_those_of_tshark";
    if !have(test, &["tshark", "mergecap"]) {
        return;
    }
    let files: Vec<_> = PLAIN
        .iter()
        .filter_map(|name| capture(test, name))
        .collect();
    if files.is_empty() {
        return;
    }
    let temp = Temp::new();
    let merged = temp.at("merged.pcapng");
    let names: Vec<&str> = files.iter().map(|file| s(file)).collect();
    tool("mergecap", ["-a", "-w", &merged].iter().chain(&names)).ok();
    let seen = tshark(&merged);
    for by in FIGURES {
        let mut arguments = vec!["--by", by, "--top", "100000"];
        arguments.extend(keys(by).iter().flat_map(|key| ["--key", key]));
        let object = measure_one(&[&arguments[..], &names].concat());
        for key in keys(by) {
            let found = spread(key, by, &object["tops"][key]);
            assert_eq!(found, distinct(key, by, &seen), "{key} by {by}");
        }
    }
}

#[test]
fn packets_of_one_direction_leave_answers_unknown() {
    let temp = Temp::new();
    let frames: Vec<_> = (0..20u8)
        .map(|host| ipv4([10, 0, 0, 1], [10, 0, 1, host], 17, 0, &udp_header(9, 53)))
        .collect();
    let packets = (0..).zip(frames.iter().map(Vec::as_slice));
    let file = temp.file("probes.pcap", &timed_pcap(packets));
    let row = &measure_one(&[&file, "--key", "src", "--by", "peers"])["top"][0];
    assert_eq!(row["peers"], 20);
    assert_eq!([&row["unanswered"], &row["refused"]], [&Value::Null; 2]);
    let text = weir(["measure", &file, "--key", "src", "--by", "peers"])
        .ok()
        .text();
    let cells: Vec<&str> = text
        .lines()
        .find(|line| line.contains("10.0.0.1"))
        .expect("a row")
        .split_whitespace()
        .collect();
    assert_eq!(cells, ["1", "10.0.0.1", "20", "-", "-", "exact"]);
    assert!(text.contains("no contact was answered"), "{text}");
    // A window without packets has an answer too.
    let fixed = ["--key", "src", "--by", "peers", "--filter", "tcp"];
    let none = measure_one(&[&[file.as_str()], &fixed[..]].concat());
    assert_eq!(
        [&none["top"], &none["missing"]["peers"]],
        [&json!([]), &json!(0)]
    );
    assert_eq!(none["missing"]["at_most"], 0);
}

#[test]
fn figures_that_do_not_fit_are_refused_by_name() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let cases: [(&[&str], &[&str]); 8] = [
        (
            &["--by", "peers"],
            &["--key 5tuple", "--by peers", "use the key src"],
        ),
        (
            &["--by", "ports", "--key", "src", "--key", "conversation"],
            &["--key conversation"],
        ),
        (
            &["--by", "peers", "--key", "pair"],
            &["--key pair", "count its ports"],
        ),
        (
            &["--by", "contacts", "--key", "dport"],
            &["--key dport", "peers"],
        ),
        (
            &["--by", "ports", "--key", "sport"],
            &["--key sport", "peers"],
        ),
        (
            &["--by", "peers", "--key", "src", "--sketch", "heavy"],
            &["--sketch", "--by peers"],
        ),
        (
            &["--by", "ports", "--key", "src", "--state", "shared"],
            &["--state shared", "separate"],
        ),
        (
            &["--by", "peers", "--key", "src", "--memory", "100"],
            &["--memory 100", "16k"],
        ),
    ];
    for (arguments, words) in cases {
        let done = weir([&["measure", &file], arguments].concat());
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{arguments:?}"
        );
        for word in words {
            assert!(done.err.contains(word), "{arguments:?}: {}", done.err);
        }
    }
}

/// Live, with requests: the scans are told by the sum before a change, which no packet of later counts changes.
#[test]
fn a_capture_counts_contacts_and_takes_other_keys() {
    let test = "a_capture_counts_contacts_and_takes_other_keys";
    let Some(net) = Net::new(test) else {
        return;
    };
    let temp = Temp::new();
    let socket = temp.at("control");
    let scan = Scan {
        ports: 150,
        ..Scan::default()
    };
    let (frames, known) = planted(&Plan {
        scans: vec![scan],
        ..Plan::default()
    });
    let frames: Vec<Vec<u8>> = frames.into_iter().map(|(_, frame)| frame).collect();
    let fixed = ["measure", "af_packet:near", "--json", "--by", "contacts"];
    let more = ["--key", "src", "--control", &socket];
    let run = net
        .capture(&[&fixed[..], &more].concat())
        .until("control socket");
    assert_eq!(net.send(&frames, 30), frames.len() as u64);
    wait::until_handed_on();
    let run = run.until_received("near", frames.len() as u64);
    let ctl = |setting: &[&str]| weir([&["ctl", "--control", &socket, "set"], setting].concat());
    let refused = ctl(&["sketch", "exact"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("no sketch to choose"),
        "{}",
        refused.err
    );
    let refused = ctl(&["key", "5tuple"]);
    assert!(
        refused.err.contains("cannot be ranked by contacts"),
        "{}",
        refused.err
    );
    ctl(&["memory", "1M"]).ok();
    ctl(&["key", "dst"]).ok();
    let objects = objects(&run.stop().ok());
    let row = &objects[0]["top"][0];
    let scanner = &known.scanners[0];
    assert_eq!(row["src"], IpAddr::from(scanner.source).to_string());
    assert_eq!(row["contacts"], scanner.contacts);
    assert_eq!(row["unanswered"], scanner.unanswered());
    assert_eq!(row["refused"], scanner.refused);
}
