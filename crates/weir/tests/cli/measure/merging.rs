//! Several files read as one, by packet time.

use super::*;
use std::process::{Command, Stdio};

/// A capture of `weir generate`, the files to which its records were distributed by number, and its packets by windows of
/// 30 ms.
fn shared_out(
    temp: &Temp,
    names: &[&str],
    to: impl Fn(usize, usize) -> usize,
) -> (String, Vec<String>, BTreeMap<i64, Vec<Seen>>) {
    let (whole, seen, _) = generated(temp, "whole.pcap", &dense());
    let bytes = std::fs::read(&whole).unwrap();
    let mut files = vec![bytes[..24].to_vec(); names.len()];
    let (mut at, mut number) = (24, 0);
    while at < bytes.len() {
        let len = 16 + u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        files[to(number, seen.len())].extend(&bytes[at..at + len]);
        (at, number) = (at + len, number + 1);
    }
    assert_eq!(number, seen.len());
    let files = names
        .iter()
        .zip(files)
        .map(|(name, bytes)| temp.file(name, &bytes))
        .collect();
    (whole, files, by_30_ms(seen))
}

#[track_caller]
fn check_windows(arguments: &[&str], truth: &BTreeMap<i64, Vec<Seen>>) {
    let mut all = measure(arguments);
    let summary = all.pop().expect("a summary");
    assert_eq!(lost(&summary), 0, "{arguments:?}");
    assert_eq!(all.len(), truth.len(), "{arguments:?}");
    for (window, seen) in all.iter().zip(truth.values()) {
        assert_eq!(window["passed"], seen.len(), "{arguments:?}");
        assert_eq!(
            rows("5tuple", &window["top"]),
            counted("5tuple", seen),
            "{arguments:?}"
        );
    }
    assert_eq!(
        rows("5tuple", &summary["top"]),
        counted("5tuple", truth.values().flatten()),
        "{arguments:?}"
    );
}

/// A shell sorts `rot.pcap10` before `rot.pcap2`.
#[test]
fn windows_of_files_do_not_depend_on_the_order_of_their_names() {
    let temp = Temp::new();
    let names = ["rot.pcap1", "rot.pcap10", "rot.pcap2"];
    let (_, files, truth) = shared_out(&temp, &names, |number, all| [0, 2, 1][number * 3 / all]);
    let [a, b, c] = [0, 1, 2].map(|i| files[i].as_str());
    for order in [[a, b, c], [c, b, a], [a, c, b]] {
        for design in DESIGNS {
            check_windows(
                &[&order[..], &["--window", "30ms"], &EXACT, &design].concat(),
                &truth,
            );
        }
    }
}

#[test]
fn files_that_overlap_are_merged() {
    let temp = Temp::new();
    let names = ["a.pcap", "b.pcap", "c.pcap"];
    let (whole, files, truth) = shared_out(&temp, &names, |number, _| number * 7919 % 11 % 3);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for design in DESIGNS {
        check_windows(
            &[&files[..], &["--window", "30ms"], &EXACT, &design].concat(),
            &truth,
        );
        let merged = measure_one(&[&files[..], &["--merge"], &EXACT, &design].concat());
        assert_eq!(
            rows("5tuple", &merged["top"]),
            counted("5tuple", truth.values().flatten()),
            "{design:?}"
        );
    }
    // Tables other than exact ones depend on the order of packets. The merge has the order of the original file.
    for sketch in ["heavy", "cms-conservative", "mv"] {
        let fixed = [
            "--sketch",
            sketch,
            "--memory",
            "16k",
            "--seed",
            "3",
            "--workers",
            "1",
            "--window",
            "30ms",
        ];
        let answer = |sources: &[&str]| -> Vec<Value> {
            measure(&[sources, &fixed].concat())
                .into_iter()
                .map(|window| window["top"].clone())
                .collect()
        };
        assert_eq!(answer(&files), answer(&[&whole]), "{sketch}");
    }
    // In the given order, packets too late for their windows are in further results of these windows.
    let given = measure(&[&files[..], &["--window", "30ms", "--no-merge"]].concat());
    assert!(given.len() > truth.len() + 1);
    assert_eq!(lost(given.last().unwrap()), 0);
}

#[test]
fn a_merge_measures_pipes_and_compressed_files_too() {
    let test = "a_merge_measures_pipes_and_compressed_files_too";
    let temp = Temp::new();
    let (_, files, truth) = shared_out(&temp, &["a.pcap", "b.pcap"], |number, _| number % 2);
    let first = std::fs::read(&files[0]).unwrap();
    let fixed = [
        &["measure", "--json", "-", &files[1], "--window", "30ms"][..],
        &EXACT,
    ]
    .concat();
    let done = weir_fed(&fixed, &first).ok();
    let summary = objects(&done).pop().unwrap();
    assert_eq!((lost(&summary), objects(&done).len()), (0, truth.len() + 1));
    assert_eq!(
        rows("5tuple", &summary["top"]),
        counted("5tuple", truth.values().flatten())
    );
    if have(test, &["gzip"]) {
        let packed = temp.file("a.gz", &tool_fed("gzip", ["-c"], &first).ok().out);
        check_windows(
            &[
                &[files[1].as_str(), &packed, "--window", "30ms"][..],
                &EXACT,
            ]
            .concat(),
            &truth,
        );
    }
}

/// The writer opens the second pipe only after the first, so that opening both at once would block for ever.
#[test]
fn named_pipes_that_one_program_fills_in_turn_are_read_in_turn() {
    let test = "named_pipes_that_one_program_fills_in_turn_are_read_in_turn";
    if !have(test, &["mkfifo"]) {
        return;
    }
    let temp = Temp::new();
    let [a, b] = ["a", "b"].map(|name| temp.at(name));
    tool("mkfifo", [&a, &b]).ok();
    let mut measured = weir_command();
    measured
        .args(["measure", "--json", "--window", "1h", &a, &b])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = measured.spawn().unwrap();
    // The data exceeds the capacity of a pipe.
    let bytes = small_pcap(2000);
    for pipe in [&a, &b] {
        std::fs::write(pipe, &bytes).unwrap();
    }
    let done = gather(child, &[]).ok();
    assert_eq!(objects(&done).pop().unwrap()["passed"], 4000);
}

/// Each interface keeps its link type and its time resolution.
#[test]
fn a_merge_keeps_link_types_and_resolutions_apart() {
    let temp = Temp::new();
    let frame = udp(7, 0);
    let micro = temp.file(
        "micro.pcap",
        &timed_pcap([(0, frame.as_slice()), (2000, &frame)]),
    );
    let ns = |seconds: i64, fraction: u32, data: &[u8]| {
        let length = data.len() as u32;
        [((BEGIN + seconds) as u32), fraction, length, length]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .chain(data.iter().copied())
            .collect::<Vec<u8>>()
    };
    let mut nano = [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 65_535, 101]
        .map(u32::to_le_bytes)
        .concat();
    nano.extend(ns(0, 999_999_999, &udp(8, 0)[14..]));
    nano.extend(ns(1, 1, &udp(8, 0)[14..]));
    let nano = temp.file("nano.pcap", &nano);
    let all = measure(&[
        &micro, &nano, "--window", "1s", "--key", "dport", "--sketch", "exact",
    ]);
    let told: Vec<Counts> = all
        .iter()
        .map(|window| rows("dport", &window["top"]))
        .collect();
    let of = |ports: &[(u16, u64, u64)]| -> Counts {
        let key = |port: u16| json!({ "dport": port, "proto": "udp" }).to_string();
        ports
            .iter()
            .map(|&(port, packets, bytes)| (key(port), (packets, bytes)))
            .collect()
    };
    let wanted = [
        of(&[(7, 1, 42), (8, 1, 28)]),
        of(&[(8, 1, 28)]),
        of(&[(7, 1, 42)]),
        of(&[(7, 2, 84), (8, 2, 56)]),
    ];
    assert_eq!(told, wanted);
    let filtered = measure(&[&micro, &nano, "--merge", "--filter", "udp port 8"]);
    assert_eq!(
        (&filtered[0]["passed"], &filtered[0]["filtered"]),
        (&json!(2), &json!(2))
    );
}

#[test]
fn a_source_that_fails_does_not_end_the_merge() {
    let temp = Temp::new();
    let (_, files, truth) = shared_out(&temp, &["a.pcap", "b.pcap"], |number, _| number % 2);
    let whole = small_pcap(10);
    let record = 16 + 62;
    let cut = temp.file("cut.pcap", &whole[..24 + 6 * record + 30]);
    let nothing = temp.file("nothing.pcap", b"");
    let (a, b) = (files[0].as_str(), files[1].as_str());
    let done = weir(
        [
            &[
                "measure", "--json", a, &cut, b, &nothing, "--window", "30ms",
            ],
            &EXACT[..],
        ]
        .concat(),
    );
    assert_eq!(done.code, Some(1), "{}", done.err);
    let summary = objects(&done).pop().expect("the summary still comes");
    let packets = truth.values().map(Vec::len).sum::<usize>();
    assert_eq!(
        (&summary["passed"], lost(&summary)),
        (&json!(packets + 6), 0)
    );
    let offset = 24 + 6 * record;
    for line in [
        format!("weir: {cut}: packet 7, offset {offset}: the file ends inside a packet"),
        format!("weir: {nothing}: the file is empty"),
    ] {
        assert_eq!(done.err.matches(&line).count(), 1, "{line}: {}", done.err);
    }
}

/// Runs `weir` from a shell that has set limits.
fn limited(limits: &str, arguments: &[&str]) -> Done {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        &format!("{limits}; exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_weir"),
    ]);
    run(
        shell.args(arguments).env("TZ", "UTC").stdin(Stdio::null()),
        &[],
    )
}

#[test]
fn thousands_of_files_are_merged_or_refused_before_anything_is_written() {
    const FILES: i64 = 3000;
    let temp = Temp::new();
    let mut sources = Vec::new();
    for number in 0..FILES {
        // Two packets per file: the first times ascend with the file names, the last ones descend.
        let frames = [udp(number as u16, 0), udp(number as u16, 0)];
        let times = [number, 2 * FILES - number];
        let bytes = timed_pcap(
            times
                .into_iter()
                .zip(&frames)
                .map(|(time, frame)| (time, frame.as_slice())),
        );
        sources.push(temp.file(&format!("{number}.pcap"), &bytes));
    }
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let out = temp.at("out.pcap");
    // weir raises the soft limit. Memory does not grow with the number of files.
    let limits = "ulimit -S -n 256; ulimit -v 1500000";
    let done = limited(
        limits,
        &[&["filter", "udp", "--merge", "-w", &out], &sources[..]].concat(),
    )
    .ok();
    assert!(
        done.err.contains("6 000 received, 6 000 matched"),
        "{}",
        done.err
    );
    let times: Vec<u64> = records(&out).iter().map(|record| record.time_ns).collect();
    assert_eq!(times.len(), 6000);
    assert!(times.is_sorted());
    let done = limited(
        limits,
        &[
            &["measure", "--json", "--window", "100ms", "--memory", "16k"],
            &sources[..],
        ]
        .concat(),
    )
    .ok();
    let all = objects(&done);
    let summary = all.last().unwrap();
    assert_eq!((&summary["passed"], lost(summary)), (&json!(6000), 0));
    assert!(
        all[..all.len() - 2]
            .iter()
            .all(|window| window["passed"].as_u64() <= Some(101)),
        "{all:?}"
    );

    std::fs::remove_file(&out).unwrap();
    for command in [
        &["filter", "udp", "--merge", "-w", &out][..],
        &["measure", "--json", "--window", "1s"],
    ] {
        let done = limited("ulimit -n 1000", &[command, &sources[..]].concat());
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{}",
            done.err
        );
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        assert!(
            done.err.contains("3 000 sources are to be merged") && done.err.contains("ulimit -n"),
            "{}",
            done.err
        );
        assert!(
            done.err.contains("; --") && done.err.contains("--sort takes any number of"),
            "{}",
            done.err
        );
    }
    assert!(!std::path::Path::new(&out).exists());
    // Files read one after another need only a few descriptors.
    let done = limited(
        "ulimit -n 1000",
        &[&["measure", "--json"], &sources[..]].concat(),
    )
    .ok();
    assert_eq!(objects(&done)[0]["passed"], 6000);
}

#[test]
fn more_compressed_files_than_can_be_decoded_at_once_are_refused() {
    let test = "more_compressed_files_than_can_be_decoded_at_once_are_refused";
    if !have(test, &["gzip"]) {
        return;
    }
    let temp = Temp::new();
    let packed = temp.file("a.gz", &tool_fed("gzip", ["-c"], &small_pcap(3)).ok().out);
    let merge = |count: usize| {
        weir(
            [
                &["measure", "--json", "--merge"][..],
                &vec![packed.as_str(); count],
            ]
            .concat(),
        )
    };
    assert_eq!(objects(&merge(64).ok())[0]["passed"], 3 * 64);
    let many = vec![packed.as_str(); 65];
    // The refusal comes before any source is opened, so that the file that is no capture is not mentioned.
    let notes = temp.file("notes", b"hello");
    let all = [&[notes.as_str()], &many[..]].concat();
    let refused = "weir: 65 pipes and compressed files are to be merged, and 64 can be at once: ";
    for (command, instead) in [
        (
            &["filter", "", "--merge", "--count"][..],
            "--sort takes any number of files",
        ),
        (
            &["measure", "--window", "1s", "--json"],
            "--no-merge reads files one after another, --sort takes any number of them",
        ),
    ] {
        let done = weir([command, &all].concat());
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{}",
            done.err
        );
        assert_eq!(done.err, format!("{refused}{instead}\n"));
    }
    // The options that the message advises.
    for more in ["--no-merge", "--sort"] {
        let done = weir([&["measure", "--window", "1s", "--json", more], &many[..]].concat()).ok();
        assert_eq!(objects(&done).last().unwrap()["passed"], 3 * 65, "{more}");
    }
    assert_eq!(
        weir([&["filter", "", "--sort", "--count"], &many[..]].concat())
            .ok()
            .count(),
        3 * 65
    );
}
