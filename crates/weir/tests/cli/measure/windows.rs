//! Windows of packet time, late packets, and what changed.

use super::*;

const DESIGNS: [[&str; 4]; 4] = [
    ["--design", "rss", "--workers", "1"],
    ["--design", "rss", "--workers", "3"],
    ["--design", "async", "--workers", "2"],
    ["--design", "sync", "--workers", "2"],
];

const MS: i64 = 1_000_000;

/// Windows, then the summary, whose terms are the sums of theirs.
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
        let sum: u64 = all.iter().map(|window| window["sizes"][sizes.0].as_u64().unwrap()).sum();
        assert_eq!(sizes.1, sum, "{}", sizes.0);
    }
    (all, summary)
}

/// A stamp of ms after [`BEGIN`], which is 2023-11-14 22:13:20.
fn stamp(ms: i64) -> String {
    format!("2023-11-14T22:13:{:02}.{:03}000000Z", 20 + ms.div_euclid(1000), ms.rem_euclid(1000))
}

#[test]
fn each_window_holds_the_packets_of_its_time() {
    let temp = Temp::new();
    let profile = Profile { seed: 4, packets: 20_000, flows: 300, rate_pps: 100_000, ..Profile::default() };
    let (file, seen, _) = generated(&temp, "g.pcap", &profile);
    let mut truth: BTreeMap<i64, Vec<&Seen>> = BTreeMap::new();
    for seen in &seen {
        truth.entry(seen.time_ns.div_euclid(30 * MS)).or_default().push(seen);
    }
    assert!(truth.len() > 5);
    for design in DESIGNS {
        let fixed = [file.as_str(), "--window", "30ms", "--sketch", "exact", "--top", "100000", "--by", "bytes"];
        let (all, summary) = windows(&[&fixed[..], &design].concat());
        assert_eq!(all.len(), truth.len(), "{design:?}");
        for (window, (number, seen)) in all.iter().zip(&truth) {
            let from = number * 30 - BEGIN * 1000;
            let (start, end) = (stamp(from), stamp(from + 30));
            let head = [&window["start"], &window["end"], &window["window"]];
            assert_eq!(head, [&json!(start), &json!(end), &json!(0.03)], "{design:?}");
            assert_eq!(window["passed"], seen.len());
            assert_eq!(window["bytes"], seen.iter().map(|seen| seen.bytes).sum::<u64>());
            assert_eq!(rows("5tuple", &window["top"]), counted("5tuple", seen.iter().copied()), "{design:?} {start}");
        }
        assert_eq!(rows("5tuple", &summary["top"]), counted("5tuple", &seen), "{design:?}");
    }
}

/// What the windows of packets in disorder must be: received, passed and late, for times in ms and windows of 100 ms.
fn naive_windows(times: &[i64], late_ms: i64) -> BTreeMap<i64, (u64, u64, u64)> {
    let (mut windows, mut latest) = (BTreeMap::new(), i64::MIN);
    for &time in times {
        latest = latest.max(time);
        let open = (latest - late_ms).div_euclid(100);
        let number = time.div_euclid(100);
        let is_late = number < open;
        // A late packet arrived now, whatever time it bears.
        let entry: &mut (u64, u64, u64) =
            windows.entry(if is_late { latest.div_euclid(100) } else { number }).or_default();
        entry.0 += 1;
        *(if is_late { &mut entry.2 } else { &mut entry.1 }) += 1;
    }
    windows
}

#[test]
fn packets_out_of_order_are_counted_in_their_window_or_as_late() {
    let temp = Temp::new();
    // Half a second of packets, each up to 250 ms out of its place; a fixed rule of multiplication stands for chance.
    let times: Vec<i64> = (0..2000i64).map(|i| 1000 + i / 4 + (i * 7919 % 251) - 125).collect();
    let frame = udp(9, 0);
    let file = temp.file("disorder.pcap", &timed_pcap(times.iter().map(|time| (*time, frame.as_slice()))));
    for late_ms in [0, 50, 100, 180, 400] {
        let truth = naive_windows(&times, late_ms);
        assert_eq!(late_ms < 250, truth.values().any(|counts| counts.2 > 0), "{late_ms} ms");
        for design in DESIGNS {
            let late = format!("{late_ms}ms");
            let (all, _) = windows(&[&[&file, "--window", "100ms", "--late", &late][..], &design].concat());
            let n = |value: &Value| value.as_u64().unwrap_or(0);
            let start = |window: &Value| window["start"].as_str().unwrap().to_owned();
            let ours: Vec<_> = all
                .iter()
                .map(|window| {
                    (start(window), (n(&window["received"]), n(&window["passed"]), n(&window["dropped"]["late"])))
                })
                .collect();
            let wanted: Vec<_> = truth.iter().map(|(number, counts)| (stamp(number * 100), *counts)).collect();
            assert_eq!(ours, wanted, "--late {late} {design:?}");
        }
    }
}

/// Without `--late` a window waits as long as it is, but not longer than a second.
#[test]
fn a_window_waits_for_late_packets() {
    let temp = Temp::new();
    let frame = udp(9, 0);
    let capture = |times: &[i64]| timed_pcap(times.iter().map(|time| (*time, frame.as_slice())));
    let dropped = |times: &[i64], window: &str| {
        let file = temp.file("late.pcap", &capture(times));
        lost(&windows(&[&file, "--window", window]).1)
    };
    assert_eq!(dropped(&[0, 199, 99], "100ms"), 0);
    assert_eq!(dropped(&[0, 200, 99], "100ms"), 1);
    assert_eq!(dropped(&[0, 10_999, 9999], "10s"), 0);
    assert_eq!(dropped(&[0, 11_000, 9999], "10s"), 1);
    let file = temp.file("late.pcap", &capture(&[0, 200, 99]));
    let done = weir(["measure", &file, "--window", "100ms"]).ok();
    assert!(done.text().contains("1 dropped: late"), "{}", done.text());
    assert!(done.err.contains("\n3 received, 2 measured, 0 filtered, 1 dropped, "), "{}", done.err);
    assert!(done.err.starts_with("weir: late by more than --late allows: 1 packet; "), "{}", done.err);
}

/// A window in which the expression rejects all is told; that nothing passed in it is an answer.
#[test]
fn a_window_without_matches_is_told() {
    let temp = Temp::new();
    let (one, two) = (udp(1, 0), udp(2, 0));
    let packets = [(0, &one), (1000, &two), (2000, &one)];
    let file = temp.file("two.pcap", &timed_pcap(packets.map(|(time, frame)| (time, frame.as_slice()))));
    let (all, summary) = windows(&[&file, "--window", "1s", "--filter", "udp port 1"]);
    let told: Vec<_> = all.iter().map(|window| (window["passed"].clone(), window["filtered"].clone())).collect();
    assert_eq!(told, [(json!(1), json!(0)), (json!(0), json!(1)), (json!(1), json!(0))]);
    assert_eq!((&all[1]["top"], &all[1]["start"]), (&json!([]), &json!(stamp(1000))));
    assert_eq!((&summary["passed"], &summary["filtered"]), (&json!(2), &json!(1)));
    let text = weir(["measure", &file, "--window", "1s", "--filter", "udp port 1", "--utc"]).ok().text();
    assert!(text.contains("22:13:21 - 22:13:22  0 packets  0 B"), "{text}");
}

#[test]
fn windows_of_several_sources_are_one_row_of_windows() {
    let temp = Temp::new();
    let frame = udp(1, 0);
    let capture = |times: &[i64]| timed_pcap(times.iter().map(|time| (*time, frame.as_slice())));
    let a = temp.file("a.pcap", &capture(&[0, 1000, 1500]));
    let b = temp.file("b.pcap", &capture(&[1700, 2500]));
    let (all, _) = windows(&[&a, &b, "--window", "1s"]);
    let counts: Vec<_> = all.iter().map(|window| window["passed"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 3, 1]);
    // The other way round they are the same, unless they are to be read in the order given: then the first packet is late.
    assert_eq!(windows(&[&b, &a, "--window", "1s"]).0.len(), 3);
    let (all, summary) = windows(&[&b, &a, "--window", "1s", "--no-merge"]);
    assert_eq!((all.len(), lost(&summary)), (2, 1));
}

#[test]
fn changers_are_what_grew_and_shrank_most() {
    let temp = Temp::new();
    // Packets to port 1..=6 in three windows: one grows, one shrinks, one comes, one goes, two stay.
    let traffic: [[usize; 6]; 3] = [[10, 50, 0, 30, 7, 7], [70, 20, 12, 0, 7, 8], [70, 20, 12, 0, 7, 8]];
    let frames: Vec<Vec<u8>> = (1..=6).map(|port| udp(port, 0)).collect();
    let mut packets = Vec::new();
    for (window, counts) in traffic.iter().enumerate() {
        for (frame, &count) in frames.iter().zip(counts) {
            packets.extend(vec![(window as i64 * 1000, frame.as_slice()); count]);
        }
    }
    let file = temp.file("changes.pcap", &timed_pcap(packets));
    for (sketch, by) in [("exact", "packets"), ("heavy", "packets"), ("heavy", "bytes"), ("cms", "packets")] {
        let weight = if by == "bytes" { 42 } else { 1 };
        let fixed = ["--key", "dport", "--window", "1s", "--changers", "4", "--seed", "1"];
        let (all, _) = windows(&[&[&file, "--sketch", sketch, "--by", by][..], &fixed].concat());
        assert_eq!(all[0]["changers"], Value::Null, "there is nothing before the first");
        let changes = all[1]["changers"]["dport"].as_array().unwrap();
        let told: Vec<_> = changes
            .iter()
            .map(|change| ["dport", "before", "after", "change"].map(|key| change[key].as_i64().unwrap()))
            .collect();
        let wanted = [[1, 10, 70, 60], [2, 50, 20, -30], [4, 30, 0, -30], [3, 0, 12, 12]];
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
            assert!((bound[0]..=bound[1]).contains(&change["change"].as_i64().unwrap()), "{sketch}: {change}");
        }
        let still: Vec<_> =
            all[2]["changers"]["dport"].as_array().unwrap().iter().map(|row| row["change"].clone()).collect();
        assert!(still.iter().all(|change| *change == json!(0)), "{sketch}: {still:?}");
    }
    let text = weir(["measure", &file, "--key", "dport", "--window", "1s", "--changers", "2"]).ok().text();
    let after = text.split("changed most since the window before\n").nth(1).expect("two windows have one before");
    let lines: Vec<String> =
        after.lines().take(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let wanted = [
        "destination port proto before after change between",
        "1 udp 10 70 +60 +60 .. +60",
        "2 udp 50 20 -30 -30 .. -30",
    ];
    assert_eq!(lines, wanted);
}
