//! Output of a run ended by a signal: the mark of the interruption, and the counts until then.

use crate::live::{signal, start};
use crate::stuck::{can_look, wait_until_stuck};
use crate::support::*;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::Child;

/// Waits until the child handles SIGTERM, which would end it without a summary before that.
pub fn wait_until_it_listens(child: &Child) {
    let handled = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << 14 != 0)
    };
    wait::until("a handler for SIGTERM", handled);
}

/// Last JSON object on standard output.
#[track_caller]
fn last_object(done: &Done) -> Value {
    let text = done.text();
    serde_json::from_str(text.lines().last().unwrap_or_else(|| panic!("{done:?}"))).expect("JSON")
}

#[test]
fn json_says_that_a_signal_ended_the_run() {
    let temp = Temp::new();
    let path = temp.file("five.pcap", &small_pcap(5));
    let filter: [&[&str]; 4] = [
        &["filter", "", "-", "--json"],
        &["filter", "", "-", "--count", "--json"],
        &["filter", "", &path, "--follow", "--json"],
        &[
            "filter",
            "",
            &path,
            "--follow",
            "--count",
            "--json",
            "--duration",
            "1h",
        ],
    ];
    let measure: [&[&str]; 4] = [
        &["measure", "-", "--json", "--workers", "1"],
        &["measure", "-", "--json", "--workers", "2", "--window", "1s"],
        &["measure", &path, "--follow", "--json"],
        &[
            "measure",
            &path,
            "--follow",
            "--json",
            "--window",
            "1s",
            "--workers",
            "2",
        ],
    ];
    for arguments in filter.iter().chain(&measure) {
        let mut child = start(arguments);
        let mut input = child.stdin.take().unwrap();
        input.write_all(&small_pcap(5)).unwrap();
        wait_until_it_listens(&child);
        signal(&child, "-TERM");
        let done = gather(child, &[]).ok();
        assert_eq!(
            last_object(&done)["interrupted"],
            true,
            "{arguments:?}: {}",
            done.text()
        );
        drop(input);
    }
    // A run that reaches the end of its source, or its requested duration, is not marked as interrupted.
    for arguments in [
        &["filter", "", &path, "--json"][..],
        &["filter", "", &path, "--count", "--json"],
        &["measure", &path, "--json"],
        &[
            "filter",
            "",
            &path,
            "--follow",
            "--count",
            "--json",
            "--duration",
            "100ms",
        ],
        &[
            "measure",
            &path,
            "--follow",
            "--json",
            "--duration",
            "100ms",
        ],
    ] {
        let done = weir(arguments).ok();
        assert_eq!(
            last_object(&done).get("interrupted"),
            None,
            "{arguments:?}: {}",
            done.text()
        );
    }
}

/// What standard error and the summary in JSON say of the end of a run.
fn told(done: &Done) -> (bool, bool, bool) {
    let line = done
        .err
        .lines()
        .find(|line| line.contains(" received, "))
        .unwrap_or_else(|| panic!("no summary: {}", done.err));
    (
        line.ends_with(", interrupted"),
        line.ends_with(", ended by --duration"),
        last_object(done).get("interrupted").is_some(),
    )
}

/// A signal and a duration end each command; its line and its JSON say so by one rule.
#[test]
fn the_summary_and_its_json_tell_the_same_end_in_each_command() {
    let temp = Temp::new();
    let path = temp.file("five.pcap", &small_pcap(5));
    let rules = temp.file("rules", b"default pass\n");
    let (record, records) = (temp.at("record"), temp.at("records"));
    let pipes: [&[&str]; 5] = [
        &["filter", "", "-", "--json"],
        &["filter", "", "-", "--count", "--json"],
        &["measure", "-", "--json"],
        &["record", "-", &record, "--json", "--ram", "16M"],
        &["firewall", "check", &rules, "-", "--json"],
    ];
    let followed: [&[&str]; 2] = [
        &["filter", "", &path, "--follow", "--count", "--json"],
        &["measure", &path, "--follow", "--json"],
    ];
    let (none, hour): (&[&str], &[&str]) = (&[], &["--duration", "1h"]);
    let by_signal = pipes
        .iter()
        .map(|pipe| (*pipe, none, (true, false, true)))
        .chain(
            pipes[..4]
                .iter()
                .map(|pipe| (*pipe, hour, (true, false, true))),
        )
        // A followed file has no other end, unless there is a duration.
        .chain(
            followed
                .iter()
                .map(|file| (*file, none, (false, false, true))),
        )
        .chain(
            followed
                .iter()
                .map(|file| (*file, hour, (true, false, true))),
        );
    for (arguments, more, expected) in by_signal {
        let arguments = [arguments, more].concat();
        let mut child = start(&arguments);
        let mut input = child.stdin.take().unwrap();
        input.write_all(&small_pcap(5)).unwrap();
        wait_until_it_listens(&child);
        signal(&child, "-TERM");
        let done = gather(child, &[]).ok();
        assert_eq!(told(&done), expected, "{arguments:?}: {done:?}");
        drop(input);
    }
    let moment: &[&str] = &["--duration", "100ms"];
    let again: &[&str] = &["record", "-", &records, "--json", "--ram", "16M"];
    let by_time = [pipes[0], pipes[1], pipes[2], again]
        .into_iter()
        .map(|pipe| (pipe, (false, true, false)))
        .chain(followed.iter().map(|file| (*file, (false, false, false))));
    for (arguments, expected) in by_time {
        let arguments = [arguments, moment].concat();
        let mut child = start(&arguments);
        let mut input = child.stdin.take().unwrap();
        input.write_all(&small_pcap(5)).unwrap();
        let done = gather(child, &[]).ok();
        assert_eq!(told(&done), expected, "{arguments:?}: {done:?}");
        drop(input);
    }
}

#[test]
fn info_tells_what_it_had_counted_when_a_signal_came() {
    const TEST: &str = "info_tells_what_it_had_counted_when_a_signal_came";
    if !can_look(TEST) {
        return;
    }
    let temp = Temp::new();
    let other = temp.file("other.pcap", &small_pcap(3));
    let hundred = small_pcap(100);
    let begun = [&hundred[..], &pcap_record(1, &udp(9, 9))[..30]].concat();
    for (name, more) in [
        ("-INT", &["--json"][..]),
        ("-TERM", &[]),
        ("-INT", &[other.as_str()]),
        ("-TERM", &["--json", &other]),
    ] {
        let mut child = start(&[&["info", "-", "--utc"], more].concat());
        let mut input = child.stdin.take().unwrap();
        input.write_all(&begun).unwrap();
        wait_until_it_listens(&child);
        wait_until_stuck(&mut child);
        signal(&child, name);
        let done = gather(child, &[]);
        drop(input);
        assert_eq!(done.code, Some(0), "{more:?}: {}", done.err);
        if more.contains(&"--json") {
            let object = last_object(&done);
            assert_eq!(
                (&object["packets"], &object["interrupted"]),
                (&json!(100), &json!(true)),
                "{object}"
            );
            assert_eq!(
                (&object["faults"], &object["end"]),
                (&json!([]), &json!("2023-11-14T22:14:59.000000000Z")),
                "{object}"
            );
        } else {
            let text = done.text();
            let words = format!(
                "interrupted  by a signal, when {} bytes were read",
                hundred.len()
            );
            let together = |text: &str| text.replace(' ', "");
            assert!(
                together(&text).contains(&together(&words)) && text.contains("packets      100\n"),
                "{words}: {text}"
            );
        }
        let rest = if more.contains(&other.as_str()) {
            "weir: interrupted: 1 of 2 files were read\n"
        } else {
            ""
        };
        assert_eq!(done.err, rest, "{more:?}");
    }
    // The named pipe has no writer.
    let fifo = temp.at("fifo");
    tool("mkfifo", [&fifo]).ok();
    let mut child = start(&["info", &fifo, "--json"]);
    wait_until_it_listens(&child);
    // The child must have reached the open of the pipe, which names the file to report on.
    wait_until_stuck(&mut child);
    signal(&child, "-TERM");
    let done = gather(child, &[]).ok();
    assert_eq!(last_object(&done)["interrupted"], true, "{}", done.text());
    assert_eq!(info_of(&other).get("interrupted"), None);
}

fn info_of(file: &str) -> Value {
    last_object(&weir(["info", "--json", file]).ok())
}

/// However early the signal comes, the file is a valid capture file with the reported number of packets.
#[test]
fn a_replay_tells_that_it_was_interrupted_and_that_a_record_has_nothing_to_send() {
    let temp = Temp::new();
    let path = temp.file("five.pcap", &small_pcap(5));
    let replay = |rate| ["replay", &path, "--to", "null", "--json", "--rate", rate];
    let child = start(&replay("1pps"));
    wait_until_it_listens(&child);
    signal(&child, "-TERM");
    let done = gather(child, &[]).ok();
    assert_eq!(last_object(&done)["interrupted"], true, "{}", done.text());
    assert!(done.err.ends_with(", interrupted\n"), "{}", done.err);
    let whole = weir(replay("max")).ok();
    assert_eq!(last_object(&whole).get("interrupted"), None);
    assert!(!whole.err.contains("interrupted"), "{}", whole.err);
    let record = temp.at("record");
    weir(["record", &path, &record, "--disk", "1G"]).ok();
    let until = ["--to", "null", "--until", "1999-01-01"];
    let none = weir([&["replay", &record][..], &until].concat()).ok();
    let words = format!("weir: {record}: no packet lies in the time asked for: the record has");
    assert!(none.err.contains(&words), "{}", none.err);
}

#[test]
fn generate_leaves_a_whole_file_however_early_it_is_interrupted() {
    let temp = Temp::new();
    for (flows, least) in [("2000000", 0), ("1000", 1 << 20)] {
        for name in ["made.pcap", "made.pcapng"] {
            let path = temp.at(name);
            let child = start(&[
                "generate",
                &path,
                "--packets",
                "100M",
                "--flows",
                flows,
                "--sizes",
                "1400",
            ]);
            wait_until_it_listens(&child);
            wait::until(format_args!("{least} bytes"), || {
                fs::metadata(&path).map_or(0, |about| about.len()) >= least
            });
            signal(&child, "-TERM");
            let done = gather(child, &[]).ok();
            let packets = info_of(&path)["packets"].as_u64().unwrap();
            let line =
                format!("weir: {path}: interrupted: {packets} of 104857600 packets were written\n");
            let size = format!("{path}: 104 857 600 packets, some ");
            assert!(done.err.ends_with(&line), "{}", done.err);
            assert!(
                done.err
                    .lines()
                    .rev()
                    .skip(1)
                    .all(|line| line.starts_with(&size)),
                "{}",
                done.err
            );
            assert_eq!(least > 0, packets > 0, "{line}");
            if have(
                "generate_leaves_a_whole_file_however_early_it_is_interrupted",
                &["capinfos"],
            ) {
                let theirs = tool("capinfos", ["-M", "-c", &path]).ok().text();
                assert!(
                    theirs.contains(&format!("Number of packets:   {packets}\n")),
                    "{packets}: {theirs}"
                );
            }
            fs::remove_file(&path).unwrap();
        }
    }
    let child = start(&[
        "generate",
        "null",
        "--packets",
        "100M",
        "--flows",
        "2000000",
    ]);
    wait_until_it_listens(&child);
    signal(&child, "-INT");
    let done = gather(child, &[]).ok();
    assert!(done.err.contains("interrupted"), "{}", done.err);
}
