//! Windows of packet time, late packets, and changes between windows.

use super::*;

/// Windows, then the summary. Asserts that the summary has the sums of their counts.
#[track_caller]
fn windows(arguments: &[&str]) -> (Vec<Value>, Value) {
    let mut all = measure(arguments);
    let summary = all.pop().expect("a summary");
    assert_eq!(summary["window"], Value::Null);
    for key in ["received", "passed", "filtered", "denied", "bytes"] {
        let sum: u64 = all.iter().map(|window| window[key].as_u64().unwrap()).sum();
        assert_eq!(summary[key], sum, "{key} of all windows");
    }
    assert_eq!(lost(&summary), all.iter().map(lost).sum::<u64>());
    for sizes in summary["sizes"].as_object().unwrap().iter() {
        let sum: u64 = all
            .iter()
            .map(|window| window["sizes"][sizes.0].as_u64().unwrap())
            .sum();
        assert_eq!(sizes.1, sum, "{}", sizes.0);
    }
    (all, summary)
}

/// A time stamp in ms after [`BEGIN`], which is 2023-11-14 22:13:20.
fn stamp(ms: i64) -> String {
    format!(
        "2023-11-14T22:13:{:02}.{:03}000000Z",
        20 + ms.div_euclid(1000),
        ms.rem_euclid(1000)
    )
}

#[test]
fn each_window_holds_the_packets_of_its_time() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &dense());
    let truth = by_30_ms(seen);
    assert!(truth.len() > 5);
    for design in DESIGNS {
        let fixed = [file.as_str(), "--window", "30ms", "--by", "bytes"];
        let (all, summary) = windows(&[&fixed[..], &EXACT, &design].concat());
        assert_eq!(all.len(), truth.len(), "{design:?}");
        for (window, (number, seen)) in all.iter().zip(&truth) {
            let from = number * 30 - BEGIN * 1000;
            let (start, end) = (stamp(from), stamp(from + 30));
            let head = [&window["start"], &window["end"], &window["window"]];
            assert_eq!(
                head,
                [&json!(start), &json!(end), &json!(0.03)],
                "{design:?}"
            );
            assert_eq!(window["passed"], seen.len());
            assert_eq!(
                window["bytes"],
                seen.iter().map(|seen| seen.bytes).sum::<u64>()
            );
            assert_eq!(
                rows("5tuple", &window["top"]),
                counted("5tuple", seen),
                "{design:?} {start}"
            );
        }
        assert_eq!(
            rows("5tuple", &summary["top"]),
            counted("5tuple", truth.values().flatten()),
            "{design:?}"
        );
    }
}

/// Expected results for unordered packets: window, revision and packets, for times in ms and windows of 100 ms.
fn naive_windows(times: &[i64], late_ms: i64) -> Vec<(i64, u64, u64)> {
    let (mut latest, mut first_open) = (i64::MIN, i64::MIN);
    let (mut open, mut given) = (BTreeMap::<i64, u64>::new(), BTreeMap::<i64, u64>::new());
    let mut results = Vec::new();
    for &time in times.iter().chain([&i64::MAX]) {
        latest = latest.max(time);
        if (latest - late_ms).div_euclid(100) > first_open {
            first_open = (latest - late_ms).div_euclid(100);
            while let Some(window) = open
                .first_entry()
                .filter(|window| *window.key() < first_open)
            {
                let (number, packets) = window.remove_entry();
                let revision = given.entry(number).or_default();
                results.push((number, *revision, packets));
                *revision += 1;
            }
        }
        *open.entry(time.div_euclid(100)).or_default() += 1;
    }
    results
}

#[test]
fn packets_out_of_order_are_counted_in_their_window_or_in_a_further_result_of_it() {
    let temp = Temp::new();
    // Half a second of packets. Each is up to 125 ms away from its place, and thus up to 250 ms late. A multiplication
    // replaces random numbers.
    let times: Vec<i64> = (0..2000i64)
        .map(|i| 1000 + i / 4 + (i * 7919 % 251) - 125)
        .collect();
    let frame = udp(9, 0);
    let file = temp.file(
        "disorder.pcap",
        &timed_pcap(times.iter().map(|time| (*time, frame.as_slice()))),
    );
    for late_ms in [0, 50, 100, 180, 400] {
        let wanted = naive_windows(&times, late_ms);
        assert_eq!(
            late_ms < 250,
            wanted.iter().any(|(_, revision, _)| *revision > 0),
            "{late_ms} ms"
        );
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(number, revision, n)| (stamp(number * 100), *revision, *n))
            .collect();
        for design in DESIGNS {
            let late = format!("{late_ms}ms");
            let (all, summary) =
                windows(&[&[&file, "--window", "100ms", "--late", &late][..], &design].concat());
            let n = |value: &Value| value.as_u64().unwrap_or(0);
            let ours: Vec<_> = all
                .iter()
                .map(|window| {
                    let start = window["start"].as_str().unwrap().to_owned();
                    (start, n(&window["revision"]), n(&window["passed"]))
                })
                .collect();
            assert_eq!(ours, wanted, "--late {late} {design:?}");
            assert_eq!(
                (lost(&summary), n(&summary["passed"])),
                (0, 2000),
                "--late {late} {design:?}"
            );
        }
    }
}

/// Without `--late` a window waits as long as its own length, but at most a second. Later packets are added to it.
#[test]
fn a_window_waits_for_late_packets() {
    let temp = Temp::new();
    let frame = udp(9, 0);
    let capture = |times: &[i64]| timed_pcap(times.iter().map(|time| (*time, frame.as_slice())));
    let further = |times: &[i64], window: &str| {
        let file = temp.file("late.pcap", &capture(times));
        let (all, summary) = windows(&[&file, "--window", window]);
        assert_eq!(
            (lost(&summary), summary["passed"].as_u64()),
            (0, Some(times.len() as u64))
        );
        all.iter().filter(|window| window["revision"] == 1).count()
    };
    assert_eq!(further(&[0, 199, 99], "100ms"), 0);
    assert_eq!(further(&[0, 200, 99], "100ms"), 1);
    assert_eq!(further(&[0, 10_999, 9999], "10s"), 0);
    assert_eq!(further(&[0, 11_000, 9999], "10s"), 1);
    let file = temp.file("late.pcap", &capture(&[0, 200, 99]));
    let done = weir(["measure", &file, "--window", "100ms"]).ok();
    assert!(
        done.text()
            .contains("22:13:20.1 (revision 1: adds to it)  1 packet  "),
        "{}",
        done.text()
    );
    assert!(done.text().contains("all 2 windows of "), "{}", done.text());
    assert!(
        done.err
            .contains("\n3 received, 3 measured, 0 filtered, 0 dropped, "),
        "{}",
        done.err
    );
    let line = "weir: late by more than --late allows: 1 packet, in 1 further result of their windows (revision); \
                --sort reads files in the order of time\n";
    assert!(done.err.starts_with(line), "{}", done.err);
}

/// One packet per millisecond, of which one has a wrong time stamp.
#[test]
fn a_damaged_stamp_is_counted_where_it_came_and_said() {
    let temp = Temp::new();
    let frame = udp(9, 0);
    let times = |damaged: i64| (0..10_000i64).map(move |i| if i == 50 { damaged } else { i });
    // 2106, 1970, and 90 minutes off in both directions.
    for damaged in [2_594_967_295_000, -BEGIN * 1000, 5_400_000, -5_400_000] {
        let file = temp.file(
            "damaged.pcap",
            &timed_pcap(times(damaged).map(|time| (time, frame.as_slice()))),
        );
        for design in DESIGNS {
            let (all, summary) = windows(&[&[&file, "--window", "1s"][..], &design].concat());
            let told: Vec<_> = all
                .iter()
                .map(|window| [&window["passed"], &window["jumped"]].map(Value::as_u64))
                .collect();
            let mut wanted = vec![[Some(1000), None]; 10];
            wanted[0][1] = Some(1);
            assert_eq!(told, wanted, "{damaged} ms {design:?}");
            assert_eq!((&summary["jumped"], lost(&summary)), (&json!(1), 0));
            assert_eq!(
                (&summary["start"], &summary["end"]),
                (&json!(stamp(0)), &json!(stamp(9999)))
            );
        }
        let done = weir(["measure", &file, "--window", "1s"]).ok();
        assert!(
            done.text()
                .contains("  1 packet with a time stamp far from the others (jumped)\n"),
            "{}",
            done.text()
        );
        assert!(
            done.err
                .contains("are not believed: 1 packet (jumped), counted where they came\n"),
            "{}",
            done.err
        );
    }
}

/// A distributor is faster than its workers, and a worker is faster than the thread that merges windows.
#[test]
fn many_windows_need_no_more_memory_than_a_few() {
    let temp = Temp::new();
    let frame = udp(9, 0);
    let times = (0..3000i64).map(|i| (i * 5, frame.as_slice()));
    let file = temp.file("many.pcap", &timed_pcap(times));
    for design in [
        ["--design", "async", "--workers", "2"],
        ["--design", "rss", "--workers", "2"],
    ] {
        let arguments = [
            "measure", &file, "--window", "10ms", "--json", "--memory", "4M",
        ];
        let mut shell = std::process::Command::new("sh");
        shell.args([
            "-c",
            "ulimit -v 1000000; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_weir"),
        ]);
        let done = run(shell.args(arguments).args(design), &[]).ok();
        let text = done.text();
        let passed: Vec<u64> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).expect("JSON")["passed"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        let mut wanted = vec![2; 1500];
        wanted.push(3000);
        assert_eq!(passed, wanted, "{design:?}");
    }
}

#[test]
fn packets_without_a_stamp_open_no_window_of_their_own() {
    let temp = Temp::new();
    let block = |kind: u32, body: &[u8]| {
        let total = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &total, body, &total].concat()
    };
    let section = block(
        0x0a0d_0d0a,
        &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat(),
    );
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 1, 0]);
    let mut frame = udp(9, 0);
    frame.resize(64, 0);
    let simple = block(3, &[&64u32.to_le_bytes()[..], &frame].concat());
    let timed = |us: u64| {
        let words = [0, (us >> 32) as u32, us as u32, 64, 64]
            .map(u32::to_le_bytes)
            .concat();
        block(6, &[&words[..], &frame].concat())
    };
    let begin = BEGIN as u64 * 1_000_000;
    let head = [section, interface].concat();
    let mixed = [
        &head[..],
        &simple,
        &simple,
        &timed(begin),
        &simple,
        &timed(begin + 1_500_000),
        &simple,
    ]
    .concat();
    let mixed = temp.file("mixed.pcapng", &mixed);
    let none = temp.file("none.pcapng", &[&head[..], &simple, &simple].concat());
    for design in DESIGNS {
        let (all, _) = windows(&[&[&mixed, "--window", "1s"][..], &design].concat());
        let told: Vec<_> = all
            .iter()
            .map(|window| (window["start"].clone(), window["passed"].clone()))
            .collect();
        assert_eq!(
            told,
            [(json!(stamp(0)), json!(4)), (json!(stamp(1000)), json!(2))],
            "{design:?}"
        );
        let all = measure(&[&[&none, "--window", "1s"][..], &design].concat());
        let told: Vec<_> = all
            .iter()
            .map(|object| [&object["start"], &object["passed"]])
            .collect();
        assert_eq!(told, [[&Value::Null, &json!(2)]], "{design:?}");
    }
    let text = weir(["measure", &mixed, "--window", "1s", "--utc"])
        .ok()
        .text();
    assert!(!text.contains("1677"), "{text}");
    let line = "weir: no packet has a time stamp, so that there is no window: the summary has all packets\n";
    for (arguments, said) in [
        (&["measure", &none, "--window", "1s"][..], true),
        (&["measure", &none], false),
        (
            &["measure", &none, "--window", "1s", "--filter", "tcp"],
            false,
        ),
        (&["measure", &mixed, "--window", "1s"], false),
    ] {
        assert_eq!(
            weir(arguments).ok().err.contains(line),
            said,
            "{arguments:?}"
        );
    }
}

/// The rate of the first window starts at the first packet, and that of the last window ends at the last packet.
#[test]
fn a_window_that_is_covered_in_part_is_divided_by_that_part() {
    let temp = Temp::new();
    let frame = udp(9, 0);
    let times = (0..1500).map(|i| 750 + i);
    let file = temp.file(
        "part.pcap",
        &timed_pcap(times.map(|time| (time, frame.as_slice()))),
    );
    let text = weir(["measure", &file, "--window", "1s"]).ok().text();
    let rates: Vec<_> = text
        .lines()
        .filter(|line| line.contains(" packets/s, "))
        .collect();
    assert_eq!(rates.len(), 4, "{text}");
    // 250 packets in 250 ms, 1000 in a second, 250 in 249 ms; all packets in 1499 ms.
    let wanted = [
        "  1 000 packets/s",
        "  1 000 packets/s",
        "  1 004 packets/s",
        "  1 001 packets/s",
    ];
    for (line, wanted) in rates.iter().zip(wanted) {
        assert!(line.starts_with(wanted), "{line}, not {wanted}");
    }
    assert!(text.contains("  250 packets  10.5 kB  0.25 s  "), "{text}");
}

/// A window is printed even if the expression rejects all its packets, because that is an answer.
#[test]
fn a_window_without_matches_is_told() {
    let temp = Temp::new();
    let (one, two) = (udp(1, 0), udp(2, 0));
    let packets = [(0, &one), (1000, &two), (2000, &one)];
    let file = temp.file(
        "two.pcap",
        &timed_pcap(packets.map(|(time, frame)| (time, frame.as_slice()))),
    );
    let (all, summary) = windows(&[&file, "--window", "1s", "--filter", "udp port 1"]);
    let told: Vec<_> = all
        .iter()
        .map(|window| (window["passed"].clone(), window["filtered"].clone()))
        .collect();
    assert_eq!(
        told,
        [
            (json!(1), json!(0)),
            (json!(0), json!(1)),
            (json!(1), json!(0))
        ]
    );
    assert_eq!(
        (&all[1]["top"], &all[1]["start"]),
        (&json!([]), &json!(stamp(1000)))
    );
    assert_eq!(
        (&summary["passed"], &summary["filtered"]),
        (&json!(2), &json!(1))
    );
    let text = weir([
        "measure",
        &file,
        "--window",
        "1s",
        "--filter",
        "udp port 1",
        "--utc",
    ])
    .ok()
    .text();
    assert!(
        text.contains("22:13:21 - 22:13:22  0 packets  0 B"),
        "{text}"
    );
}

#[test]
fn windows_of_several_sources_are_one_row_of_windows() {
    let temp = Temp::new();
    let frame = udp(1, 0);
    let capture = |times: &[i64]| timed_pcap(times.iter().map(|time| (*time, frame.as_slice())));
    let a = temp.file("a.pcap", &capture(&[0, 1000, 1500]));
    let b = temp.file("b.pcap", &capture(&[1700, 2500]));
    let (all, _) = windows(&[&a, &b, "--window", "1s"]);
    let counts: Vec<_> = all
        .iter()
        .map(|window| window["passed"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [1, 3, 1]);
    // The reverse order gives the same windows. With --no-merge the first window is late, and is given out nevertheless.
    assert_eq!(windows(&[&b, &a, "--window", "1s"]).0.len(), 3);
    let (all, summary) = windows(&[&b, &a, "--window", "1s", "--no-merge"]);
    assert_eq!((lost(&summary), summary["passed"].as_u64()), (0, Some(5)));
    let counts: Vec<_> = all
        .iter()
        .map(|window| (window["start"].clone(), window["passed"].as_u64()))
        .collect();
    assert_eq!(
        counts,
        [
            (json!(stamp(0)), Some(1)),
            (json!(stamp(1000)), Some(3)),
            (json!(stamp(2000)), Some(1))
        ]
    );
}

/// Steady traffic that begins and ends within a window: nothing grew, and nothing shrank. With a window before whose traffic
/// really was less, and which is covered as a whole, the growth is told.
#[test]
fn steady_traffic_has_no_changers_where_its_first_and_last_windows_are_covered_in_part() {
    let temp = Temp::new();
    let frame = udp(9, 0);
    let steady =
        |times: std::ops::Range<i64>| timed_pcap(times.map(|time| (time, frame.as_slice())));
    for (times, told) in [
        // From 900 ms on: 100 packets, then 1000 a second; up to the end of a window.
        (900..4000, [false, false, true, true]),
        // To the middle of the last one.
        (0..3300, [false, true, true, false]),
        (999..4000, [false, false, true, true]),
        (1..4000, [false, true, true, true]),
    ] {
        let file = temp.file("steady.pcap", &steady(times.clone()));
        let (all, _) = windows(&[&file, "--window", "1s", "--changers", "3", "--key", "dport"]);
        for (window, told) in all.iter().zip(told) {
            let changes = window["changers"]["dport"].as_array();
            assert_eq!(changes.is_some(), told, "{times:?}: {window}");
            let most = changes
                .into_iter()
                .flatten()
                .map(|change| change["change"].as_i64().unwrap().abs())
                .max();
            assert!(most.unwrap_or(0) <= 2, "{times:?}: {window}");
        }
        assert_eq!(all.len(), 4);
    }
}

#[test]
fn changers_are_what_grew_and_shrank_most() {
    let temp = Temp::new();
    // Packets to ports 1 to 6 in three windows: one port grows, one shrinks, one appears, one disappears, two stay.
    let traffic: [[usize; 6]; 3] = [
        [10, 50, 0, 30, 7, 7],
        [70, 20, 12, 0, 7, 8],
        [70, 20, 12, 0, 7, 8],
    ];
    let frames: Vec<Vec<u8>> = (1..=6).map(|port| udp(port, 0)).collect();
    let mut packets = Vec::new();
    for (window, counts) in traffic.iter().enumerate() {
        for (frame, &count) in frames.iter().zip(counts) {
            packets.extend(vec![(window as i64 * 1000, frame.as_slice()); count]);
        }
    }
    let file = temp.file("changes.pcap", &timed_pcap(packets));
    for (sketch, by) in [
        ("exact", "packets"),
        ("heavy", "packets"),
        ("heavy", "bytes"),
        ("cms", "packets"),
    ] {
        let weight = if by == "bytes" { 42 } else { 1 };
        let fixed = [
            "--key",
            "dport",
            "--window",
            "1s",
            "--changers",
            "4",
            "--seed",
            "1",
        ];
        let (all, _) = windows(&[&[&file, "--sketch", sketch, "--by", by][..], &fixed].concat());
        assert_eq!(
            all[0]["changers"],
            Value::Null,
            "there is nothing before the first"
        );
        let changes = all[1]["changers"]["dport"].as_array().unwrap();
        let told: Vec<_> = changes
            .iter()
            .map(|change| {
                ["dport", "before", "after", "change"].map(|key| change[key].as_i64().unwrap())
            })
            .collect();
        let wanted = [
            [1, 10, 70, 60],
            [2, 50, 20, -30],
            [4, 30, 0, -30],
            [3, 0, 12, 12],
        ];
        assert_eq!(
            told,
            wanted.map(|[port, figures @ ..]| {
                let [before, after, change] = figures.map(|figure| figure * weight);
                [port, before, after, change]
            }),
            "{sketch} by {by}"
        );
        for change in changes {
            let bound = ["lower", "upper"].map(|key| change["bound"][key].as_i64().unwrap());
            assert!(
                (bound[0]..=bound[1]).contains(&change["change"].as_i64().unwrap()),
                "{sketch}: {change}"
            );
        }
        let still: Vec<_> = all[2]["changers"]["dport"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["change"].clone())
            .collect();
        assert!(
            still.iter().all(|change| *change == json!(0)),
            "{sketch}: {still:?}"
        );
    }
    let text = weir([
        "measure",
        &file,
        "--key",
        "dport",
        "--window",
        "1s",
        "--changers",
        "2",
    ])
    .ok()
    .text();
    let after = text
        .split("changed most since the window before\n")
        .nth(1)
        .expect("two windows have one before");
    let lines: Vec<String> = after
        .lines()
        .take(3)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let wanted = [
        "destination port proto before after change between",
        "1 udp 10 70 +60 +60 .. +60",
        "2 udp 50 20 -30 -30 .. -30",
    ];
    assert_eq!(lines, wanted);
}

/// What a file or a record lacks is told in the summary: a window of it knows nothing of it.
#[test]
fn windows_of_files_say_nothing_of_loss() {
    let temp = Temp::new();
    let statistics = block(
        5,
        &[0u32, 0, 5, 8 << 16 | 7, 37, 0, 0]
            .map(u32::to_le_bytes)
            .concat(),
    );
    let packets = (1..4)
        .map(|second| pcapng_packet(second, &udp(53, 9)))
        .collect::<Vec<_>>()
        .concat();
    let file = temp.file(
        "in.pcapng",
        &[pcapng_start(1), packets, statistics].concat(),
    );
    let out = temp.at("out");
    weir(["record", &file, &out, "--disk", "1G"]).ok();
    for source in [&file, &out] {
        let done = weir(["measure", source, "--window", "1s"]).ok();
        let text = done.text();
        assert!(
            !text.contains("no loss") && text.matches("37 lost before").count() == 1,
            "{text}"
        );
        let lines = weir(["measure", source, "--window", "1s", "--json"])
            .ok()
            .text();
        let objects = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        for object in objects {
            let is_summary = object["type"] == "summary";
            assert_eq!(
                object["lost_before"].as_u64(),
                is_summary.then_some(37),
                "{object}"
            );
            assert_eq!(object["dropped"], serde_json::json!({}));
        }
    }
}
