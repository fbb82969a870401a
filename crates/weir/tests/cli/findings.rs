//! `weir measure --findings`: the judge is the generator, which has planted what must be found, and when.

use crate::support::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use weir_generator::FRAME_MAX;
use weir_generator::known::{
    Connections, Dialogues, Flood, Known, Plan, Scan, Storm, StormKind, Traffic,
};

const SECOND: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;

/// Writes a plan as a capture, and returns what it has.
fn capture(temp: &Temp, name: &str, plan: &Plan) -> (String, Known) {
    let mut traffic = Traffic::new(plan).unwrap();
    let mut bytes = pcap_header(65_535, 1);
    // The magic number of times in ns.
    bytes[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    let mut buffer = [0; FRAME_MAX];
    while let Some(made) = traffic.next(&mut buffer) {
        let seconds = (made.time_ns / SECOND) as u32;
        let mut record = pcap_record(seconds, &buffer[..made.len]);
        let ns = (made.time_ns % SECOND) as u32;
        record[4..8].copy_from_slice(&ns.to_le_bytes());
        bytes.extend(record);
    }
    (temp.file(name, &bytes), traffic.known().clone())
}

/// Connections and dialogues as they are every day.
fn everyday(seed: u64, seconds: i64) -> Plan {
    Plan {
        seed,
        span_ns: seconds * SECOND,
        connections: Connections {
            count: 8 * seconds as u32,
            retransmissions: 10,
            resets: 10,
            ..Connections::default()
        },
        dialogues: Dialogues {
            count: 6 * seconds as u32,
            failing: 20,
            ..Dialogues::default()
        },
        ..Plan::default()
    }
}

/// Findings that a measurement prints.
fn found(file: &str, more: &[&str]) -> Vec<Value> {
    let line = [
        "measure",
        file,
        "--window",
        "1s",
        "--findings",
        "--health",
        "dns",
        "--json",
        "--seed",
        "1",
    ];
    let text = weir(line.iter().chain(more)).ok().text();
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let is_finding = |object: &Value| object["type"] == "finding";
    objects.filter(is_finding).collect()
}

/// Second after the start of the plan.
fn second(time: &Value) -> i64 {
    // All plans start at 22:13:20.
    let text = time.as_str().unwrap();
    let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    part(14..16) * 60 + part(17..19) - 800
}

#[test]
fn what_was_planted_is_found_with_its_begin_and_its_end() {
    let temp = Temp::new();
    let mut plan = everyday(7, 40);
    plan.scans = vec![Scan {
        peers: 10,
        ports: 50,
        begin_ns: 5 * SECOND,
        gap_ns: 20 * MS,
        ..Scan::default()
    }];
    plan.floods = vec![Flood {
        frames: 12_000,
        sources: 4000,
        begin_ns: 8 * SECOND,
        gap_ns: MS / 2,
    }];
    plan.storms = vec![Storm {
        kind: StormKind::Arp,
        frames: 500,
        begin_ns: 12 * SECOND,
        gap_ns: 20 * MS,
    }];
    let (file, known) = capture(&temp, "planted.pcap", &plan);
    let address = |bytes: [u8; 4]| std::net::Ipv4Addr::from(bytes).to_string();
    let expected = [
        ("scan", Some(address(known.scanners[0].source)), 5, 15),
        ("flood", Some(address(known.floods[0].target)), 8, 14),
        ("storm", None, 12, 22),
    ];
    for more in [
        &["--workers", "1"][..],
        &["--workers", "2", "--design", "sync"],
    ] {
        let found = found(&file, more);
        assert_eq!(found.len(), 6, "{found:#?}");
        for (kind, host, begin, last) in &expected {
            let one = found.iter().filter(|finding| finding["kind"] == *kind);
            let ends: Vec<&Value> = one.collect();
            let states: Vec<_> = ends.iter().map(|finding| &finding["state"]).collect();
            assert_eq!(states, ["begin", "end"], "{found:#?}");
            assert!(
                ends.iter()
                    .all(|finding| finding["host"].as_str() == host.as_deref())
            );
            assert_eq!(second(&ends[1]["begin"]), *begin);
            assert!(
                (last..=&(last + 1)).contains(&&second(&ends[1]["last"])),
                "{found:#?}"
            );
        }
    }
    // The same in words.
    let line = ["measure", &file, "--window", "1s", "--findings"];
    let text = weir(line).ok().text();
    let words: Vec<&str> = text.lines().filter(|line| line.starts_with("! ")).collect();
    assert_eq!(words.len(), 6, "{text}");
    assert!(
        words[0].contains(" scan ") && words[0].contains(" begins: 50 contacts"),
        "{text}"
    );
}

#[test]
fn slow_dns_is_found_and_everyday_traffic_is_not() {
    let temp = Temp::new();
    for seed in 0..10 {
        let (file, _) = capture(&temp, &format!("{seed}.pcap"), &everyday(seed, 20));
        let found = found(&file, &["--workers", "1"]);
        assert!(found.is_empty(), "{seed}: {found:#?}");
    }
    let mut plan = everyday(3, 20);
    (plan.dialogues.slow, plan.dialogues.failing) = (100, 0);
    let (file, _) = capture(&temp, "slow.pcap", &plan);
    let found = found(&file, &["--workers", "1"]);
    assert!(
        !found.is_empty() && found.iter().all(|finding| finding["kind"] == "slow_dns"),
        "{found:#?}"
    );
}

#[test]
fn findings_without_windows_or_with_shared_tables_are_refused() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(3));
    for (more, why) in [
        (&[][..], "--window"),
        (&["--window", "500ms"], "use --window 1s"),
        (
            &["--window", "1s", "--state", "shared", "--sketch", "exact"],
            "--state separate",
        ),
        (&["--window", "1s", "--format", "csv"], "--format json"),
    ] {
        let line = ["measure", &file, "--findings"];
        let refused = weir(line.iter().chain(more));
        assert_eq!(refused.code, Some(2), "{more:?}");
        assert!(refused.err.contains(why), "{more:?}: {}", refused.err);
    }
}

/// The program gets the begin and the end of each finding, and its output stays out of the answers.
#[test]
fn a_program_runs_for_the_begin_and_the_end_of_a_finding() {
    let temp = Temp::new();
    let mut plan = everyday(7, 40);
    plan.storms = vec![Storm {
        kind: StormKind::Broadcast,
        frames: 300,
        begin_ns: 5 * SECOND,
        gap_ns: 20 * MS,
    }];
    let (file, _) = capture(&temp, "storm.pcap", &plan);
    let log = temp.at("log");
    let script = format!("#!/bin/sh\necho noise\nprintf '%s %s\\n' \"$1\" \"$2\" >> {log}\n");
    let program = temp.file("program", script.as_bytes());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = [
        "measure",
        &file,
        "--window",
        "1s",
        "--on-finding",
        &program,
        "--json",
    ];
    let done = weir(line).ok();
    assert!(
        !done.text().contains("noise") && done.err.contains(": noise"),
        "{}",
        done.err
    );
    let log = std::fs::read_to_string(&log).unwrap();
    let runs: Vec<(&str, Value)> = log
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(state, json)| (state, serde_json::from_str(json).unwrap()))
        .collect();
    let states: Vec<_> = runs.iter().map(|(state, _)| *state).collect();
    assert_eq!(states, ["begin", "end"]);
    for (state, finding) in &runs {
        assert_eq!(
            (&finding["kind"], &finding["state"]),
            (&"storm".into(), &Value::from(*state))
        );
    }
    let failing = [
        "measure",
        &file,
        "--window",
        "1s",
        "--on-finding",
        "/bin/false",
    ];
    let failed = weir(failing);
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    assert!(
        failed.err.contains("did not succeed for 2 of 2 findings"),
        "{}",
        failed.err
    );
}
