//! `--from`, `--to`, `--last` and `--shift`: packets by their times, and times that are moved.

use crate::support::*;
use serde_json::Value;

/// Packets a second apart, the second one in front of the first.
fn unordered(temp: &Temp) -> String {
    let mut bytes = pcap_header(65_535, 1);
    for (port, second) in [(0, 11), (1, 10), (2, 12), (3, 13), (4, 14)] {
        bytes.extend(pcap_record(1_700_000_000 + second, &udp(port, 0)));
    }
    temp.file("unordered.pcap", &bytes)
}

fn count(arguments: &[&str]) -> u64 {
    weir([&["filter", "", "--count"], arguments].concat())
        .ok()
        .count()
}

#[test]
fn both_ends_of_a_span_belong_to_it() {
    let temp = Temp::new();
    let file = unordered(&temp);
    for (times, expected) in [
        (&["--from", "1700000011"][..], 4),
        (&["--to", "1700000011"], 2),
        (&["--from", "1700000011", "--to", "1700000013"], 3),
        (&["--from", "1700000011.000000001"], 3),
        (&["--last", "2s"], 3),
        (&["--last", "1h"], 5),
        (&["--last", "2s", "--sort"], 3),
        (&["--last", "2s", "--merge"], 3),
    ] {
        assert_eq!(count(&[times, &[&file]].concat()), expected, "{times:?}");
    }
    // The span is independent of the verdict of the expression.
    let arguments = ["filter", "udp[2:2] = 3", &file, "--invert", "--count"];
    let done = weir([&arguments[..], &["--last", "2s"]].concat());
    assert_eq!(done.ok().count(), 2);
    let out = temp.at("out.pcapng");
    weir(["filter", "", &file, "--last", "1.5s", "-w", &out]).ok();
    let told = weir(["info", &out, "--json"]).ok().out;
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert!(
        told.to_string()
            .contains("holds only packets of the last 1.5 s before the latest one"),
        "{told}"
    );
}

#[test]
fn splits_measurements_and_records_know_times() {
    let temp = Temp::new();
    let file = unordered(&temp);
    let from = ["--from", "1700000012"];
    let measured = weir([&["measure", &file, "--json"][..], &from].concat()).ok();
    let summary: Value = serde_json::from_slice(&measured.out).unwrap();
    assert_eq!(summary["passed"], 3, "{summary}");
    let measured = weir(["measure", &file, "--json", "--last", "0s"]).ok();
    let summary: Value = serde_json::from_slice(&measured.out).unwrap();
    assert_eq!(summary["passed"], 1, "{summary}");
    // Windows without a packet of the asked time are left out.
    for (times, windows) in [
        (&from[..], &[12, 13, 14][..]),
        (&["--to", "1700000011"], &[10, 11]),
        (&["--last", "1s"], &[13, 14]),
    ] {
        let command = ["measure", &file, "--sort", "--window", "1s", "--json"];
        let text = weir([&command[..], times].concat()).ok().text();
        let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let all: Vec<Value> = objects.collect();
        let (summary, shown) = all.split_last().unwrap();
        let begins: Vec<String> = windows
            .iter()
            .map(|second| format!("2023-11-14T22:13:{:02}.000000000Z", second + 20))
            .collect();
        let found: Vec<_> = shown
            .iter()
            .map(|it| it["start"].as_str().unwrap())
            .collect();
        assert_eq!(found, begins, "{times:?}");
        assert_eq!(summary["received"], 5);
    }
    let split = [
        "filter",
        "",
        &file,
        "--count",
        "--split",
        "even=udp[3] & 1 = 0",
    ];
    let done = weir([&split[..], &from].concat()).ok();
    assert_eq!(String::from_utf8_lossy(&done.out), "3\n2 even\n");
}

#[test]
fn a_source_without_a_known_end_has_no_last_time() {
    let temp = Temp::new();
    let file = unordered(&temp);
    let done = weir_fed(
        ["filter", "", "-", "--last", "2s"],
        &std::fs::read(&file).unwrap(),
    );
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(
        done.err.contains("standard input: --last counts back"),
        "{}",
        done.err
    );
    for (arguments, line) in [
        (&["--last", "2s", "--from", "0"][..], "exclude each other"),
        (&["--last", "2s", "--follow"], "exclude each other"),
        (&["--last", "-2s"], "is before now already"),
        (
            &["--from", "1700000013", "--to", "1700000012"],
            "no packet can lie between them",
        ),
        (&["--shift", "1x"], "is not a time to add"),
        (
            &["--shift", "1s", "--count"],
            "--shift changes times of packets that are written, and none are",
        ),
    ] {
        let done = weir([&["filter", "", &file][..], arguments].concat());
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(done.err.contains(line), "{}", done.err);
    }
}

#[test]
fn times_move_in_lines_files_and_statistics() {
    let temp = Temp::new();
    let file = unordered(&temp);
    let moved = ["--shift", "-10.000001s"];
    let lines = weir([&["filter", "", &file, "-tt", "-c", "1"][..], &moved].concat()).ok();
    assert!(
        lines.out.starts_with(b"1700000000.999999 "),
        "{}",
        lines.text()
    );
    let out = temp.at("out.pcap");
    weir([&["filter", "", &file, "-w", &out][..], &moved].concat()).ok();
    let times = |path: &str| -> Vec<u64> {
        let each = records(path).into_iter();
        each.map(|record| record.time_ns).collect()
    };
    let expected: Vec<u64> = times(&file).iter().map(|ns| ns - 10_000_001_000).collect();
    assert_eq!(times(&out), expected);
    weir([
        "filter",
        "",
        &out,
        "--shift",
        "10.000001s",
        "-w",
        &temp.at("back.pcap"),
    ])
    .ok();
    assert!(std::fs::read(temp.at("back.pcap")).unwrap() == std::fs::read(&file).unwrap());
}

/// `editcap -A -B -t`, over all captures.
#[test]
fn packets_are_those_of_editcap() {
    let test = "packets_are_those_of_editcap";
    if !have(test, &["editcap"]) {
        return;
    }
    let temp = Temp::new();
    let stamp = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let mut compared = 0;
    for path in captures(test) {
        let file = s(&path);
        let plain = temp.at("plain.pcap");
        let done = tool("editcap", ["-F", "nsecpcap", "-T", "ether", file, &plain]);
        if done.code != Some(0) {
            continue;
        }
        let mut times: Vec<u64> = parse_pcap(&std::fs::read(&plain).unwrap())
            .1
            .iter()
            .map(|record| record.time_ns)
            .collect();
        times.sort_unstable();
        // editcap takes packets without a time for those of 1970.
        if times.len() < 3 || times.len() > 20_000 || times[0] == 0 {
            continue;
        }
        let (from, to) = (times[times.len() / 3], times[times.len() * 2 / 3]);
        // The end of editcap is not part of its span.
        let (first, behind) = (stamp(from), stamp(to + 1));
        let theirs = temp.at("theirs.pcapng");
        let shift = ["-t", "-60.5", file, &theirs];
        tool(
            "editcap",
            [&["-A", &first, "-B", &behind][..], &shift].concat(),
        )
        .ok();
        let ours = temp.at("ours.pcapng");
        let span = ["--from", &first, "--to", &stamp(to), "--shift", "-60.5s"];
        weir([&["filter", "", file, "-w", &ours][..], &span].concat());
        let packets = |file: &str| {
            tool("editcap", ["-F", "nsecpcap", "-T", "ether", file, &plain]).ok();
            parse_pcap(&std::fs::read(&plain).unwrap()).1
        };
        assert!(packets(&ours) == packets(&theirs), "{file}");
        compared += 1;
    }
    assert!(compared > 0 || captures(test).is_empty());
}
