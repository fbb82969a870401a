//! Changes between two sides, compared with figures that tshark counts.

use crate::columns::csv;
use crate::recording::{put, recorder};
use crate::support::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

const SECOND: i64 = 1_000_000_000;

/// A packet as tshark reads it: time, ns; length on the wire; protocol; source and destination.
pub struct Read {
    pub time_ns: i64,
    pub bytes: u64,
    pub is_udp: bool,
    pub ends: [String; 2],
}

/// Packets of a file; what is not IP has no ends.
pub fn read_by_tshark(file: &str) -> Vec<Read> {
    let fields = "frame.time_epoch frame.len ip.proto ipv6.nxt ip.src ipv6.src ip.dst ipv6.dst frame.protocols";
    let fields = fields.split(' ').flat_map(|field| ["-e", field]);
    let fixed = ["-n", "-r", file, "-T", "fields", "-E", "occurrence=f"];
    let text = tool("tshark", fixed.into_iter().chain(fields)).ok().text();
    let read = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let (seconds, fraction) = cells[0].split_once('.').unwrap();
        // One of both versions has the field.
        let either = |at: usize| format!("{}{}", cells[at], cells[at + 1]);
        Read {
            time_ns: seconds.parse::<i64>().unwrap() * SECOND + fraction.parse::<i64>().unwrap(),
            bytes: cells[1].parse().unwrap(),
            // An expression is not about packets after tags.
            is_udp: either(2) == "17" && cells[8].starts_with("eth:ethertype:ip"),
            ends: [4, 6].map(either),
        }
    };
    text.lines().map(read).collect()
}

/// Packets and bytes of each host.
fn by_host<'a>(packets: impl Iterator<Item = &'a Read>) -> BTreeMap<&'a str, (u64, u64)> {
    let mut hosts = BTreeMap::<&str, (u64, u64)>::new();
    for packet in packets {
        for end in packet.ends.iter().filter(|end| !end.is_empty()) {
            let host = hosts.entry(end).or_default();
            *host = (host.0 + 1, host.1 + packet.bytes);
        }
    }
    hosts
}

/// The hosts with a change of bits per second, by name, as rows have them.
fn expected(sides: [(Vec<&Read>, f64); 2]) -> Vec<(String, f64, [u64; 4], &'static str)> {
    let [before, after] = sides
        .each_ref()
        .map(|(packets, _)| by_host(packets.iter().copied()));
    let hosts: std::collections::BTreeSet<&&str> = before.keys().chain(after.keys()).collect();
    let mut rows = Vec::new();
    for host in hosts {
        let [then, now] =
            [&before, &after].map(|side| side.get(*host).copied().unwrap_or_default());
        let change = now.1 as f64 * 8.0 / sides[1].1 - then.1 as f64 * 8.0 / sides[0].1;
        let status = match (then.1, now.1) {
            (0, _) => "new",
            (_, 0) => "gone",
            _ if change > 0.0 => "grown",
            _ => "shrunk",
        };
        rows.push((
            (*host).to_string(),
            change,
            [then.0, now.0, then.1, now.1],
            status,
        ));
    }
    rows.retain(|row| row.1 != 0.0);
    rows
}

fn diff(words: &[&str]) -> Value {
    let fixed = ["diff", "--json", "--key", "host", "--top", "10000"];
    let text = weir([&fixed[..], words].concat()).ok().text();
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn same_as(found: &Value, expected: &[(String, f64, [u64; 4], &str)]) {
    let mut rows = found["changes"]["host"].as_array().unwrap().clone();
    let amount = |row: &Value| row["change"].as_f64().unwrap().abs();
    assert!(rows.is_sorted_by(|a, b| amount(a) >= amount(b)));
    assert_eq!(rows.len(), expected.len());
    rows.sort_by(|a, b| a["host"].as_str().cmp(&b["host"].as_str()));
    for (row, (host, change, counts, status)) in rows.iter().zip(expected) {
        let counted = [
            "before_packets",
            "after_packets",
            "before_bytes",
            "after_bytes",
        ];
        let counted = counted.map(|name| row[name].as_u64().unwrap());
        let told = (
            row["host"].as_str().unwrap(),
            counted,
            row["status"].as_str().unwrap(),
        );
        assert_eq!(told, (host.as_str(), *counts, *status), "{row}");
        let near = row["change"].as_f64().unwrap() - change;
        assert!(near.abs() < 1e-6 * (1.0 + change.abs()), "{row}: {change}");
        assert_eq!(
            (&row["sure"], &row["bound"]["kind"]),
            (&json!(true), &json!("exact"))
        );
    }
    assert_eq!(found["missing"]["host"]["keys"], 0);
}

/// Two files and the same packets in a record: changes are the differences of what tshark counts on each side.
#[test]
fn changes_are_those_that_tshark_counts() {
    let test = "changes_are_those_that_tshark_counts";
    if !have(test, &["tshark"]) {
        return;
    }
    let temp = Temp::new();
    let (a, b, cap) = (temp.at("a.pcap"), temp.at("b.pcap"), temp.at("cap"));
    for (file, packets, seed) in [(&a, "4000", "3"), (&b, "3000", "4")] {
        let fixed = ["generate", file, "--packets", packets, "--seed", seed];
        weir([&fixed[..], &["--flows", "150", "--rate", "200"]].concat()).ok();
    }
    let (mut keeper, _) = recorder(&cap);
    for (packet, number) in records(&a).iter().zip(0..) {
        put(&mut keeper, number, packet);
    }
    keeper.close().unwrap();
    let [of_a, of_b] = [&a, &b].map(|file| read_by_tshark(file));
    let length = |of: &[Read]| (of[of.len() - 1].time_ns - of[0].time_ns) as f64 / 1e9;
    same_as(
        &diff(&[&a, &b]),
        &expected([&of_a, &of_b].map(|of| (of.iter().collect(), length(of)))),
    );
    let sides = [&of_a, &of_b].map(|of| {
        (
            of.iter().filter(|packet| packet.is_udp).collect(),
            length(of),
        )
    });
    same_as(&diff(&[&a, &b, "--filter", "udp"]), &expected(sides));
    // 12 s into the capture: the 5 s before, and from then on.
    let (middle, within) = (of_a[0].time_ns + 12 * SECOND, 5 * SECOND);
    let of = |from: i64, to: i64| {
        let is_in = |packet: &&Read| (from..=to).contains(&packet.time_ns);
        (
            of_a.iter().filter(is_in).collect::<Vec<_>>(),
            ((to - from + SECOND / 2) / SECOND) as f64,
        )
    };
    let around = format!("{}", middle / SECOND);
    let right = expected([of(middle - within, middle - 1), of(middle, middle + within)]);
    for source in [&a, &cap] {
        let found = diff(&[source, "--around", &around, "--within", "5s"]);
        same_as(&found, &right);
        assert_eq!(
            [&found["before"]["seconds"], &found["after"]["seconds"]],
            [5.0, 5.0]
        );
    }
    let (from, to) = (middle - SECOND, middle + SECOND);
    let right = expected([of(from - 4 * SECOND, to - 4 * SECOND), of(from, to)]);
    let [from, to] = [from, to].map(|at| format!("{}", at / SECOND));
    for source in [&a, &cap] {
        for back in ["4s", &format!("{}", middle / SECOND - 5)] {
            same_as(
                &diff(&[source, "--from", &from, "--to", &to, "--against", back]),
                &right,
            );
        }
    }
    // The other forms have the same figures.
    let found = diff(&[&a, &b]);
    let rows = found["changes"]["host"].as_array().unwrap();
    let fixed = [
        "diff", &a, &b, "--key", "host", "--top", "10000", "--format", "csv",
    ];
    let table = csv(&weir(fixed).ok().text());
    assert_eq!(table.len(), rows.len());
    for (cells, row) in table.iter().zip(rows) {
        for (name, cell) in cells {
            let value = match name.strip_prefix("bound_") {
                Some(part) => &row["bound"][part],
                None => &row[name],
            };
            let text = match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let number = |text: &str| text.parse::<f64>().ok();
            match (number(cell), number(&text)) {
                // The last digit of a number is lost when JSON is read.
                (Some(a), Some(b)) => assert!((a - b).abs() <= 1e-12 * a.abs(), "{name}: {a}, {b}"),
                _ => assert_eq!(cell, &text, "{name} in {row}"),
            }
        }
    }
    let names: Vec<&str> = table[0].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..4], ["host", "status", "sure", "before"]);
    let chosen = ["--columns", "after,host", "--top", "1"];
    let text = weir([&["diff", &a, &b, "--key", "host"], &chosen[..]].concat())
        .ok()
        .text();
    let heading = text
        .lines()
        .find(|line| line.trim_start().starts_with("after  ") && line.contains("host"));
    assert!(heading.is_some(), "{text}");
}

/// A record that lacks packets: each side says what it lost, and how far that is known.
#[test]
fn losses_are_told_for_each_side() {
    let temp = Temp::new();
    let out = temp.at("out");
    let (mut keeper, _) = recorder(&out);
    for at in 0..100u64 {
        let packet = Record {
            time_ns: (1_700_000_000 + at) * 1_000_000_000,
            wire_len: 62,
            data: udp(53, 20),
        };
        // Numbers that are left out are packets that never came to the disk.
        put(&mut keeper, at + if at > 50 { 7 } else { 0 }, &packet);
    }
    keeper.close().unwrap();
    let whole = temp.file("whole.pcap", &small_pcap(100));
    let done = weir([
        "diff",
        &whole,
        &out,
        "--from",
        "1700000010",
        "--to",
        "1700000070",
    ])
    .ok();
    let line = format!("weir: after: {out}: up to 7 packets were lost in the time asked for");
    assert!(
        done.err.contains(&line) && !done.err.contains("before:"),
        "{}",
        done.err
    );
    let text = done.text();
    let heads: Vec<&str> = text.split("after   ").take(2).collect();
    assert!(
        heads[0].contains("loss not recorded") && heads[1].contains("up to 7 lost"),
        "{text}"
    );
    let object: Value = serde_json::from_str(
        &weir([
            "diff",
            "--json",
            &whole,
            &out,
            "--from",
            "1700000010",
            "--to",
            "1700000070",
        ])
        .ok()
        .text(),
    )
    .unwrap();
    assert_eq!(
        (
            &object["after"]["lost_before"],
            &object["after"]["lost_at_most"]
        ),
        (&json!(7), &json!(true))
    );
    assert_eq!(object["before"].get("lost_before"), None);
    // The whole record lost exactly so many.
    let done = weir(["diff", &whole, &out]).ok();
    let text = done.text();
    assert!(
        text.contains(" 7 lost before") && !text.contains("up to"),
        "{text}"
    );
}

#[test]
fn a_side_without_packets_is_told() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(20));
    let done = weir([
        "diff",
        &file,
        "--from",
        "1700000000",
        "--to",
        "1700000020",
        "--against",
        "1d",
    ])
    .ok();
    let line =
        "in.pcap: no packet lies in the time asked for: its packets are from 2023-11-14 22:13:20";
    assert!(
        done.err.contains("weir: before: ") && done.err.contains(line),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    let text = done.text();
    assert!(
        text.starts_with("before  ") && text.contains("  no packet  loss not recorded\nafter "),
        "{text}"
    );
    assert!(text.contains("  new ") && !text.contains("gone"), "{text}");
    let nothing = weir(["diff", &file, &file, "--filter", "arp"]).ok().text();
    assert!(nothing.contains("no packet on either side"), "{nothing}");
    let same = weir(["diff", &file, &file, "--above", "1%"]).ok().text();
    assert!(same.contains("no difference so large"), "{same}");
}

/// One line says what is wrong; of sources that cannot be read, each has a line.
#[test]
fn wrong_sides_are_refused() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(3));
    let bad = temp.file("bad.pcap", b"no capture at all, but text");
    for (words, code, lines) in [
        (
            vec![&file[..]],
            2,
            vec!["add --against 1h, --against 1d or --around T"],
        ),
        (
            vec![&file, &file, &file],
            2,
            vec!["weir diff BEFORE... -- AFTER..."],
        ),
        (
            vec!["lo", &file],
            2,
            vec!["lo is an interface, which has no earlier time"],
        ),
        (
            vec!["--key", "src", "--columns", "host", &file, &file],
            2,
            vec!["has the column host"],
        ),
        (
            vec!["--columns", "chang", &file, &file],
            2,
            vec!["did you mean change"],
        ),
        (
            vec![&file, "--against", "1h"],
            2,
            vec!["add --last 10m, or --from and --to"],
        ),
        (
            vec!["nothing.pcap", &file],
            1,
            vec!["nothing.pcap: no such file"],
        ),
        (vec![&bad, &bad], 1, vec!["before: ", "after: "]),
        (vec![&bad, &file], 1, vec!["before: "]),
        (
            vec!["-", &file, "--last", "1s"],
            2,
            vec!["can be read once: save it in a file"],
        ),
    ] {
        let done = weir([&["diff"], &words[..]].concat());
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(code), ""),
            "{words:?}: {}",
            done.err
        );
        assert_eq!(
            done.err.lines().count(),
            lines.len(),
            "{words:?}: {}",
            done.err
        );
        for (line, part) in done.err.lines().zip(lines) {
            assert!(
                line.starts_with("weir: ") && line.contains(part),
                "{words:?}: {line}"
            );
        }
    }
}

/// After a signal nothing is compared: a part of a side would look like a change.
#[test]
fn an_interrupted_comparison_says_so() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(3));
    let mut child = crate::live::start(&["diff", &file, "-", "--json"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&small_pcap(5)).unwrap();
    crate::interrupted::wait_until_it_listens(&child);
    crate::live::signal(&child, "-INT");
    let done = gather(child, &[]);
    drop(input);
    assert_eq!(
        (done.code, done.text().as_str()),
        (Some(1), ""),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("interrupted before both sides were read: nothing was compared"),
        "{}",
        done.err
    );
}
