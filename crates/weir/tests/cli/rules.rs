//! `--rules`: a firewall as one stage of `weir filter`, `weir measure` and `weir record`.

use crate::capture::net::Net;
use crate::capture::{account, frames};
use crate::counts::tcpdump_count;
use crate::support::*;
use serde_json::Value;

/// What the rules deny, and the same as an expression of tcpdump.
const RULES: &str = "drop udp dport 53\nreject udp dport 443\ndrop src 10.3.0.0/16\ndefault pass\n";
const DENIED: &str = "udp dst port 53 or udp dst port 443 or src net 10.3.0.0/16";

fn summary(done: &Done) -> Value {
    let text = done.text();
    let last = text.lines().last().expect("a summary");
    serde_json::from_str(last).expect("an object")
}

struct Trace {
    temp: Temp,
    file: String,
    rules: String,
}

/// A trace and rules; `None` without tcpdump, the oracle.
fn trace(test: &str) -> Option<Trace> {
    if !have(test, &["tcpdump"]) {
        return None;
    }
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    for number in 0..20_000u32 {
        let port = [53, 80, 443, 8080, 4242][number as usize % 5];
        let mut frame = numbered(port, number, 4 + number as usize % 900);
        frame[27] = (number >> 4) as u8 & 7;
        frame[29] = number as u8;
        bytes.extend(pcap_record(1_700_000_000 + number / 400, &frame));
    }
    let file = temp.file("made.pcap", &bytes);
    let rules = temp.file("rules.txt", RULES.as_bytes());
    Some(Trace { temp, file, rules })
}

fn count(file: &str, expression: &str) -> u64 {
    tcpdump_count(file, expression).expect("a known expression")
}

#[test]
fn a_filter_passes_what_its_rules_pass() {
    let Some(Trace { temp, file, rules }) = trace("a_filter_passes_what_its_rules_pass") else {
        return;
    };
    for expression in ["", "ip", "udp", "greater 200"] {
        let both = |second: &str| match expression {
            "" => second.to_owned(),
            first => format!("({first}) and ({second})"),
        };
        let [denied, passed] = [both(DENIED), both(&format!("not ({DENIED})"))];
        let (denied, passed) = (count(&file, &denied), count(&file, &passed));
        assert!(denied > 0 && passed > 0, "{expression}");
        let out = temp.at("out.pcapng");
        for more in [
            &["--count"][..],
            &["--count", "--merge"],
            &["--count", "--sort"],
        ] {
            let done = weir(
                [
                    &["filter", expression, &file, "--rules", &rules, "--json"][..],
                    more,
                ]
                .concat(),
            )
            .ok();
            let found = summary(&done);
            assert_eq!(
                (&found["received"], &found["matched"], &found["denied"]),
                (&20_000.into(), &passed.into(), &denied.into()),
                "{expression} {more:?}"
            );
        }
        let done = weir(["filter", expression, &file, "--rules", &rules, "-w", &out]).ok();
        assert!(done.err.contains(" denied, "), "{}", done.err);
        assert_eq!(count(&out, ""), passed);
        assert_eq!(count(&out, DENIED), 0);
        // A limit counts what passes both.
        weir([
            "filter", expression, &file, "--rules", &rules, "-w", &out, "-c", "17",
        ])
        .ok();
        assert_eq!((count(&out, ""), count(&out, DENIED)), (17, 0));
    }
}

#[test]
fn a_measurement_counts_what_its_rules_pass() {
    let Some(Trace { temp, file, rules }) = trace("a_measurement_counts_what_its_rules_pass")
    else {
        return;
    };
    let not_denied = format!("not ({DENIED})");
    let (denied, passed) = (count(&file, DENIED), count(&file, &not_denied));
    let out = temp.at("out.pcapng");
    for more in [
        &[][..],
        &["--workers", "1"],
        &["--workers", "3"],
        &["--window", "10s"],
        &["--design", "async", "--workers", "2"],
        &["--window", "10s", "-w", &out],
    ] {
        let common = ["--json", "--seed", "0", "--key", "src", "--key", "5tuple"];
        let measured = |choice: [&str; 2]| {
            let done = weir([&["measure", &file], &choice[..], &common, more].concat()).ok();
            let objects: Vec<Value> = done
                .text()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            objects
        };
        let by_rules = measured(["--rules", &rules]);
        let by_filter = measured(["--filter", &not_denied]);
        assert_eq!(by_rules.len(), by_filter.len());
        let sum = |name: &str| -> u64 {
            let windows = by_rules.iter().rev().skip(usize::from(by_rules.len() > 1));
            windows.map(|window| window[name].as_u64().unwrap()).sum()
        };
        assert_eq!(
            ["received", "passed", "denied", "filtered"].map(sum),
            [20_000, passed, denied, 0],
            "{more:?}"
        );
        // The same packets are filtered there and denied here; all else is equal.
        for (ours, mut others) in by_rules.into_iter().zip(by_filter) {
            others["denied"] = others["filtered"].take();
            others["filtered"] = 0.into();
            assert_eq!(ours, others, "{more:?}");
        }
    }
    assert_eq!((count(&out, ""), count(&out, DENIED)), (passed, 0));
}

#[test]
fn a_record_holds_what_its_rules_pass_and_says_so() {
    let Some(Trace { temp, file, rules }) = trace("a_record_holds_what_its_rules_pass_and_says_so")
    else {
        return;
    };
    let (dir, out) = (temp.at("dir"), temp.at("out.pcapng"));
    let common = ["record", &file, &dir, "--ram", "64M", "--disk", "64M"];
    let done = weir([&common[..], &["--rules", &rules, "--json"]].concat()).ok();
    assert_eq!(summary(&done)["denied"], count(&file, DENIED));
    weir(["query", &dir, "-w", &out]).ok();
    let passed = count(&file, &format!("not ({DENIED})"));
    assert_eq!((count(&out, ""), count(&out, DENIED)), (passed, 0));
    let about = weir(["info", &dir]).ok().text();
    assert!(
        about.contains("packets that the firewall passed, by "),
        "{about}"
    );
}

#[test]
fn rules_that_make_no_sense_here_are_refused() {
    let temp = Temp::new();
    let file = temp.at("demo.pcap");
    weir(["generate", &file, "--packets", "10"]).ok();
    for (text, why) in [
        ("pass to eth1\n", "line 1: to names where packets leave"),
        ("drop nothing\n", "line 1: "),
        ("", "neither a rule"),
    ] {
        let rules = temp.file("rules.txt", text.as_bytes());
        for command in [
            &["filter", "", &file, "--count"][..],
            &["measure", &file],
            &["record", &file, &temp.at("dir")],
        ] {
            let done = weir([command, &["--rules", &rules]].concat());
            assert_eq!(done.code, Some(2), "{}", done.err);
            assert!(
                done.err.contains(&rules) && done.err.contains(why),
                "{}",
                done.err
            );
        }
    }
}

/// Several interfaces, and several queues of one: what the kernel sent is the oracle.
#[test]
fn rules_and_limits_hold_over_several_interfaces_and_queues() {
    let Some(net) = Net::new("rules_and_limits_hold_over_several_interfaces_and_queues") else {
        return;
    };
    net.two_queues();
    net.second_cable();
    let temp = Temp::new();
    let sent = frames(3000);
    let is_denied = |frame: &[u8]| frame[36..38] == [0, 53];
    let rules = temp.file("rules.txt", b"drop udp dport 53\ndefault pass\n");
    let out = temp.at("both.pcapng");
    let command = ["filter", "", "near", "two", "--rules", &rules];
    let capture = net
        .capture(&[&command[..], &["-w", &out, "--stats"]].concat())
        .until("two: AF_PACKET");
    let some = net
        .capture(&[&command[..], &["-c", "700", "--count", "--stats"]].concat())
        .until("two: AF_PACKET");
    let measure = net.capture(&["measure", "near", "--rules", &rules, "--json"]);
    let kept = temp.at("kept.pcapng");
    let both = [
        "measure", "near", "two", "--rules", &rules, "--window", "1s", "-w", &kept, "--json",
    ];
    let both = net.capture(&both).until("two: AF_PACKET");
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(net.send_on("near", "one", &sent[..1500], 100), 1500));
        assert_eq!(net.send(&sent[1500..], 100), 1500);
    });
    let measured = summary(&measure.stop().ok());
    let denied = |frames: &[Vec<u8>]| frames.iter().filter(|frame| is_denied(frame)).count();
    let on_near = denied(&sent[1500..]) as u64;
    assert_eq!(
        (
            &measured["received"],
            &measured["passed"],
            &measured["denied"]
        ),
        (&1500.into(), &(1500 - on_near).into(), &on_near.into())
    );
    let all = denied(&sent) as u64;
    assert!(all > 0);
    let windows = both.stop().ok().text();
    let windows: Vec<serde_json::Value> = windows
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let sum = |field: &str| -> u64 {
        let windows = windows.iter().filter(|window| window["type"] == "window");
        windows.filter_map(|window| window[field].as_u64()).sum()
    };
    assert_eq!((sum("passed"), sum("denied")), (3000 - all, all));
    assert_eq!(records(&kept).len() as u64, 3000 - all);
    let done = capture.stop().ok();
    assert_eq!(account(&done), [3000, 3000 - all, 0, all, 0]);
    let written = records(&out);
    assert_eq!(written.len() as u64, 3000 - all);
    assert!(written.iter().all(|record| !is_denied(&record.data)));
    assert!(
        written
            .windows(2)
            .all(|two| two[0].time_ns <= two[1].time_ns)
    );
    let done = some.done().ok();
    assert_eq!((done.count(), account(&done)[1]), (700, 700));

    let queues = ["af_xdp:near", "--xdp-mode", "generic", "--ring", "1M"];
    let weir = env!("CARGO_BIN_EXE_weir");
    let limited = [&[weir, "filter", "", "-c", "10", "--count"][..], &queues].concat();
    let capture = net.start(&limited, "does not get what is captured");
    assert_eq!(net.send(&sent[..200], 0), 200);
    assert_eq!(capture.done().ok().count(), 10);
}

#[test]
fn files_that_are_read_are_not_written_onto() {
    let temp = Temp::new();
    let file = temp.file("made.pcap", &small_pcap(3));
    let rules = temp.file("rules.txt", b"default pass\n");
    let set = temp.file("set.txt", b"10.0.0.1\n");
    let named = format!("a={set}");
    let split = format!("{rules}=udp");
    for (arguments, read) in [
        (
            &["filter", "", &file, "--rules", &rules, "-w", &rules][..],
            &rules,
        ),
        (
            &["filter", "", &file, "--rules", &rules, "--split", &split],
            &rules,
        ),
        (&["measure", &file, "--rules", &rules, "-w", &rules], &rules),
        (
            &["filter", "src @a", &file, "--set", &named, "-w", &set],
            &set,
        ),
        (&["filter", "-F", &rules, &file, "-w", &rules], &rules),
    ] {
        let before = std::fs::read(read).unwrap();
        let done = weir(arguments);
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(
            done.err.contains("both an output and a file that is read"),
            "{}",
            done.err
        );
        assert!(std::fs::read(read).unwrap() == before);
    }
    let both = "standard input cannot be both the rules and a capture";
    let dir = temp.at("dir");
    for command in [
        &["filter", "", "-", "--count"][..],
        &["measure", "-"],
        &["record", "-", &dir],
    ] {
        let done = weir_fed([command, &["--rules", "-"]].concat(), b"");
        assert_eq!(
            (done.code, done.err.contains(both)),
            (Some(2), true),
            "{}",
            done.err
        );
    }
    assert!(!std::path::Path::new(&dir).exists());
}

/// The oracle is the file that ends behind the last packet wanted.
#[test]
fn nothing_behind_a_limit_is_told_or_copied() {
    let temp = Temp::new();
    let rules = temp.file("rules.txt", b"default pass\n");
    // 77 packets were dropped.
    let dropped = block(
        5,
        &[
            &[0; 12][..],
            &[5, 0, 8, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat(),
    );
    let longer = pcapng_packet_at(7_000_000, 20, &udp(53, 10));
    let mut parts: Vec<Vec<u8>> = (0..7u32).map(|i| pcapng_packet(i, &udp(53, 20))).collect();
    parts.insert(3, dropped);
    parts.insert(5, longer);
    let start = pcapng_start(1);
    let whole = temp.file("whole.pcapng", &[start.clone(), parts.concat()].concat());
    let mut packets = 0;
    for (i, part) in parts.iter().enumerate() {
        packets += usize::from(part[0] == 6);
        if part[0] != 6 {
            continue;
        }
        let cut = [start.clone(), parts[..=i].concat()].concat();
        let cut = temp.file("cut.pcapng", &cut);
        let (limit, out) = (packets.to_string(), temp.at("out.pcapng"));
        let run = |file: &str, more: &[&str]| {
            let done = weir([&["filter", "", file, "-w", &out, "--stats"], more].concat()).ok();
            let told = done.err.replace(file, "FILE");
            let told: Vec<String> = told
                .lines()
                .filter(|line| line.contains(" received, ") || line.starts_with("weir: "))
                .map(|line| {
                    line.rsplit_once(", ")
                        .map_or(line, |(line, _)| line)
                        .to_owned()
                })
                .collect();
            (told, std::fs::read(&out).unwrap())
        };
        let expected = run(&cut, &[]);
        assert!(
            run(&whole, &["-c", &limit]) == expected,
            "{packets} packets"
        );
        // A line of its own tells the rules in the file.
        let (told, _) = run(&whole, &["-c", &limit, "--rules", &rules]);
        let told: Vec<String> = told
            .iter()
            .map(|line| line.replace(", 0 denied", ""))
            .collect();
        assert_eq!(told, expected.0, "{packets} packets");
    }
    assert_eq!(packets, 8);
}
