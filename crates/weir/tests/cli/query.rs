//! Queries: record directories are made by the recorder, and answers are compared with tcpdump over the segments joined by
//! mergecap, and with lists of the packets.

mod refused;
mod running;

use crate::counts::tcpdump_count;
use crate::recording::*;
use crate::support::*;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_engine::socket::{Reply, Server, Settings};

/// Packets of a file that match, by tcpdump.
fn matching(temp: &Temp, file: &str, expression: &str) -> Vec<Record> {
    let copy = temp.at("matching.pcap");
    tool("tcpdump", ["--nano", "-nr", file, "-w", &copy, expression]).ok();
    parse_pcap(&fs::read(copy).unwrap()).1
}

/// Packets of a query, written to a file.
fn answered(temp: &Temp, arguments: &[&str]) -> Vec<Record> {
    let file = temp.at("answer.pcap");
    weir([&["query"], arguments, &["-w", &file]].concat()).ok();
    parse_pcap(&fs::read(file).unwrap()).1
}

fn seconds(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

#[test]
fn a_query_gives_what_tcpdump_finds_in_the_joined_segments() {
    let test = "a_query_gives_what_tcpdump_finds_in_the_joined_segments";
    if !have(test, &["tcpdump", "mergecap"]) {
        return;
    }
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    assert!(segments(&directory).len() > 5);
    let all = joined(&temp, &directory);
    assert_eq!(matching(&temp, &all, "").len(), packets.len());
    let (first, last) = (packets[0].time_ns, packets[packets.len() - 1].time_ns);
    let at = |part: u64| first + (last - first) * part / 100;
    for expression in [
        "",
        "udp port 53",
        "tcp and net 10.1",
        "not ip",
        "icmp",
        "vlan",
        "host 10.1.2.3 or tcp port 443",
    ] {
        let found = matching(&temp, &all, expression);
        let count = |arguments: &[&str]| {
            weir([&["query", &directory, expression, "--count"], arguments].concat())
                .ok()
                .count()
        };
        assert_eq!(count(&[]), found.len() as u64, "{expression}");
        assert!(
            answered(&temp, &[&directory, expression]) == found,
            "{expression}"
        );
        for (from, to) in [
            (at(0), at(10)),
            (at(41), at(43)),
            (packets[500].time_ns, packets[500].time_ns),
            (at(99), last + 1),
        ] {
            let wanted: Vec<Record> = found
                .iter()
                .filter(|packet| (from..=to).contains(&packet.time_ns))
                .cloned()
                .collect();
            let times = ["--from", &seconds(from), "--to", &seconds(to)];
            assert!(
                answered(&temp, &[&[&directory[..], expression], &times[..]].concat()) == wanted,
                "{expression} {times:?}"
            );
            assert_eq!(count(&times), wanted.len() as u64, "{expression} {times:?}");
        }
    }
    let lines = weir(["query", &directory, "udp port 53", "-tt"]).ok();
    let file = weir(["filter", "udp port 53", &all, "-tt"]).ok();
    assert_eq!(lines.text(), file.text());
    let matched = matching(&temp, &all, "udp port 53").len();
    let summary = lines
        .err
        .split(" received, ")
        .nth(1)
        .unwrap_or_else(|| panic!("{}", lines.err));
    assert!(
        summary
            .replace(' ', "")
            .starts_with(&format!("{matched}matched")),
        "{}",
        lines.err
    );
    let objects = weir(["query", &directory, "udp port 53", "--json", "-c", "3"])
        .ok()
        .text();
    let objects: Vec<Value> = objects
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((objects.len(), &objects[3]["matched"]), (4, &json!(3)));
}

/// A capture of 40 packets of IPv4 and IPv6, over UDP and TCP, each behind `front` of its version; all numbers of this byte order.
fn over_link(temp: &Temp, link: u32, big_endian: bool, fronts: [&[u8]; 2]) -> String {
    let word = |value: u32| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let half = |value: u16| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let mut bytes = [
        word(0xa1b2_c3d4).to_vec(),
        half(2).to_vec(),
        half(4).to_vec(),
    ]
    .concat();
    [0, 0, 65_535, link]
        .map(word)
        .iter()
        .for_each(|field| bytes.extend_from_slice(field));
    for number in 0..40u8 {
        let is_v6 = number % 2 == 1;
        let protocol = if number % 3 == 0 { 6 } else { 17 };
        let mut data = fronts[usize::from(is_v6)].to_vec();
        if is_v6 {
            data.extend_from_slice(&[0x60, 0, 0, 0, 0, 20, protocol, 64]);
            [[0x20, 1, number % 5], [0x20, 2, 9]]
                .iter()
                .for_each(|net| {
                    data.extend_from_slice(net);
                    data.extend_from_slice(&[0; 13]);
                });
        } else {
            data.extend_from_slice(&[
                0x45,
                0,
                0,
                40,
                0,
                0,
                0,
                0,
                64,
                protocol,
                0,
                0,
                10,
                0,
                0,
                number % 5,
                10,
                1,
                0,
                9,
            ]);
        }
        data.extend_from_slice(&[0, 100 + number % 4, 0, 53]);
        data.extend_from_slice(&[0; 16]);
        let len = data.len() as u32;
        [1_700_000_000 + u32::from(number), 0, len, len]
            .map(word)
            .iter()
            .for_each(|field| bytes.extend_from_slice(field));
        bytes.extend_from_slice(&data);
    }
    temp.file(&format!("link-{link}-{big_endian}.pcap"), &bytes)
}

#[test]
fn records_of_each_link_type_answer_as_tcpdump_does_of_what_was_recorded() {
    if !have(
        "records_of_each_link_type_answer_as_tcpdump_does_of_what_was_recorded",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let ethernet = |kind: [u8; 2]| [&[2; 12], &kind[..]].concat();
    let cooked = |kind: [u8; 2]| [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0], &kind[..]].concat();
    let (v4, v6) = (ethernet([8, 0]), ethernet([0x86, 0xdd]));
    let (cooked4, cooked6) = (cooked([8, 0]), cooked([0x86, 0xdd]));
    let (little, big) = ([[2, 0, 0, 0], [10, 0, 0, 0]], [[0, 0, 0, 2], [0, 0, 0, 10]]);
    let mut matched = 0;
    for (link, big_endian, fronts) in [
        (1, false, [&v4[..], &v6[..]]),
        (1, true, [&v4[..], &v6[..]]),
        (101, false, [&[], &[]]),
        (228, false, [&[], &[]]),
        (229, true, [&[], &[]]),
        (0, false, [&little[0], &little[1]]),
        (0, true, [&big[0], &big[1]]),
        (108, false, [&big[0], &big[1]]),
        (113, true, [&cooked4[..], &cooked6[..]]),
    ] {
        let file = over_link(&temp, link, big_endian, fronts);
        let directory = temp.at(&format!("cap-{link}-{big_endian}"));
        weir(["record", &file, &directory, "--ram", "4M", "--disk", "16M"]).ok();
        for expression in [
            "",
            "ip",
            "ip6",
            "host 10.0.0.2",
            "ip6 host 2001:100::",
            "udp port 53",
            "tcp src port 101",
        ] {
            let Ok(expected) = tcpdump_count(&file, expression) else {
                continue;
            };
            let found = weir(["query", &directory, expression, "--count"])
                .ok()
                .count();
            assert_eq!(
                found, expected,
                "link type {link}, big-endian {big_endian}: {expression}"
            );
            matched += u64::from(expected > 0);
        }
    }
    assert!(matched > 40, "{matched}");
}

#[test]
fn a_conversation_is_found_behind_tags_as_tcpdump_finds_it_there() {
    if !have(
        "a_conversation_is_found_behind_tags_as_tcpdump_finds_it_there",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    for number in 0..600u32 {
        let mut frame = vec![2; 12];
        match number % 4 {
            0 => {}
            1 => frame.extend_from_slice(&[0x81, 0, 0, 7]),
            2 => frame.extend_from_slice(&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7]),
            // Three tags are too many.
            _ => frame.extend_from_slice(&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 0x81, 0, 0, 8]),
        }
        let (a, b) = ([10, 0, 0, (number % 3) as u8], [10, 1, 0, 9]);
        let (from, to) = if number % 5 == 0 { (b, a) } else { (a, b) };
        frame.extend_from_slice(&[
            8,
            0,
            0x45,
            0,
            0,
            40,
            0,
            0,
            0,
            0,
            64,
            if number % 7 == 0 { 6 } else { 17 },
            0,
            0,
        ]);
        frame.extend_from_slice(&[&from[..], &to[..]].concat());
        frame.extend_from_slice(&if number % 5 == 0 {
            [0, 53, 1, 0]
        } else {
            [1, 0, 0, 53]
        });
        frame.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&pcap_record(1_700_000_000 + number, &frame));
    }
    let (file, directory) = (temp.file("tags.pcap", &bytes), temp.at("cap"));
    weir(["record", &file, &directory, "--ram", "4M", "--disk", "16M"]).ok();
    let one = |ends: &str| format!("udp and {ends}");
    let expression = one(
        "((src host 10.0.0.1 and src port 256 and dst host 10.1.0.9 and dst port 53) or \
                           (src host 10.1.0.9 and src port 53 and dst host 10.0.0.1 and dst port 256))",
    );
    let flow = "10.0.0.1:256 10.1.0.9:53 udp";
    for more in ["", "ether src 02:02:02:02:02:02", "host 10.0.0.2"] {
        let all = if more.is_empty() {
            expression.clone()
        } else {
            format!("({more}) and {expression}")
        };
        let counts: Vec<u64> = ["", "vlan and ", "vlan and vlan and "]
            .iter()
            .map(|tags| tcpdump_count(&file, &format!("{tags}({all})")).unwrap())
            .collect();
        assert!(
            more.contains("0.2") || counts.iter().all(|&count| count > 0),
            "{counts:?}"
        );
        let expected: u64 = counts.iter().sum();
        assert_eq!(
            weir(["query", &directory, more, "--flow", flow, "--count"])
                .ok()
                .count(),
            expected,
            "{more}"
        );
    }
    let listed = weir(["query", &directory, "--flow", flow, "--flows", "--json"])
        .ok()
        .text();
    let expected = weir(["query", &directory, "--flow", flow, "--count"])
        .ok()
        .count();
    let listed: Value = serde_json::from_str(listed.lines().last().unwrap()).unwrap();
    assert_eq!(listed["passed"].as_u64(), Some(expected), "{listed}");
}

#[test]
fn packets_recorded_in_any_order_come_as_reordercap_puts_them() {
    let test = "packets_recorded_in_any_order_come_as_reordercap_puts_them";
    if !have(test, &["tcpdump", "mergecap", "reordercap"]) {
        return;
    }
    let temp = Temp::new();
    let (mut packets, ..) = traffic(&temp);
    // Up to 20 ms early; and the last third has a clock that is an hour slow, so that its times repeat no others.
    let slow = packets.len() / 3 * 2;
    for (number, packet) in packets.iter_mut().enumerate() {
        packet.time_ns -=
            number as u64 * 7919 % 20_000_000 + if number > slow { 3_600_000_000_000 } else { 0 };
    }
    let directory = temp.at("cap");
    record(&directory, &packets);
    let (all, ordered) = (joined(&temp, &directory), temp.at("ordered.pcapng"));
    tool("reordercap", [&all, &ordered]).ok();
    for expression in ["", "udp port 53", "not tcp"] {
        let expected = matching(&temp, &ordered, expression);
        assert!(expected.is_sorted_by_key(|packet| packet.time_ns) && !expected.is_empty());
        assert!(
            answered(&temp, &[&directory, expression]) == expected,
            "{expression}"
        );
    }
}

#[test]
fn a_rare_flow_is_found_without_reading_everything() {
    let temp = Temp::new();
    let (mut packets, flow, count) = traffic(&temp);
    let directory = temp.at("cap");
    // A datagram that nothing else resembles.
    packets[12_345].data = udp(60_001, 30);
    packets[12_345].wire_len = packets[12_345].data.len() as u32;
    record(&directory, &packets);
    let explained = weir([
        "query",
        &directory,
        "udp port 60001 and host 10.0.0.2",
        "--explain",
        "-tt",
        "--nano",
    ])
    .ok();
    assert_eq!(explained.text().lines().count(), 1);
    assert!(
        explained
            .text()
            .starts_with(&seconds(packets[12_345].time_ns)),
        "{}",
        explained.text()
    );
    let last = explained.err.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("1 segment read and ") && last.contains("; 1 block, "),
        "{}",
        explained.err
    );
    assert!(
        explained.err.contains("; by its index\n"),
        "{}",
        explained.err
    );

    // The generator counts one direction, and its flows have two.
    let both = weir(["query", &directory, "--flow", &flow, "--count"])
        .ok()
        .count();
    let ends: Vec<&str> = flow.split(' ').collect();
    let source = ends[0].rsplit_once(':').unwrap().0;
    let one = weir([
        "query",
        &directory,
        &format!("src host {source}"),
        "--flow",
        &flow,
        "--count",
    ])
    .ok()
    .count();
    assert!(
        one.abs_diff(count) <= 1 && both >= one,
        "{one} of {both}, the generator made {count}"
    );
    let moment = packets[20_000].time_ns;
    let around = ["--around", &seconds(moment), "--within", "100ms"];
    let near = packets
        .iter()
        .filter(|packet| packet.time_ns.abs_diff(moment) <= 100_000_000)
        .count();
    assert_eq!(
        weir([&["query", &directory, "--count"], &around[..]].concat())
            .ok()
            .count(),
        near as u64
    );
}

/// A record answers every expression that a filter of its file answers, whatever its link types are, in whatever order they come.
#[test]
fn a_query_takes_the_expressions_that_a_filter_takes() {
    if !have(
        "a_query_takes_the_expressions_that_a_filter_takes",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let capture = |name: &str, link: u32, from: u32, frames: &[Vec<u8>]| {
        let records = frames
            .iter()
            .zip(from..)
            .flat_map(|(frame, second)| pcap_record(second, frame));
        temp.file(
            name,
            &[pcap_header(65_535, link), records.collect()].concat(),
        )
    };
    // Of 802.11: a beacon, an acknowledgment and data; of MTP2 with a pseudo-header: a fill-in and a message signal unit; USB.
    let wlan: Vec<Vec<u8>> = [[0x80, 0], [0xd4, 0], [0x08, 0]]
        .iter()
        .map(|control| {
            [
                &control[..],
                &[0, 0],
                &[0xff; 6],
                &[2; 6],
                &[2; 6],
                &[0; 22],
            ]
            .concat()
        })
        .collect();
    let mtp2 = [0u8, 40].map(|length| vec![0, 0, 0, 0, 1, 2, length, 0, 0, 0]);
    let files = [
        capture("ethernet.pcap", 1, 1000, &[udp(53, 10), udp(54, 10)]),
        capture("wlan.pcap", 105, 2000, &wlan),
        capture("mtp2.pcap", 139, 3000, &mtp2),
        capture("usb.pcap", 220, 4000, &[vec![0; 64]]),
    ];
    let expressions = [
        "type mgt",
        "type ctl or type data",
        "wlan type mgt subtype beacon",
        "udp port 53",
        "fisu",
        "len > 1",
        "ip",
    ];
    let run = |words: &[&str]| {
        let done = weir(words);
        (done.code, done.text())
    };
    for order in [
        &[0usize][..],
        &[1],
        &[2],
        &[3],
        &[0, 1],
        &[1, 0],
        &[2, 1, 3, 0],
    ] {
        let name = order.iter().map(ToString::to_string).collect::<String>();
        // Segments of one recording, and those of one recording after the other.
        let (one, each) = (
            temp.at(&format!("one{name}")),
            temp.at(&format!("each{name}")),
        );
        let sources: Vec<&str> = order.iter().map(|&at| files[at].as_str()).collect();
        weir(
            [
                &["record"],
                &sources[..],
                &[&one, "--disk", "64M", "--reserve", "1"],
            ]
            .concat(),
        )
        .ok();
        for source in &sources {
            weir(["record", source, &each, "--disk", "64M", "--reserve", "1"]).ok();
        }
        for expression in expressions {
            let theirs: Option<usize> = sources.iter().fold(None, |sum, source| {
                let done = tool("tcpdump", ["-nr", source, "--count", expression]);
                let count = done
                    .text()
                    .split(' ')
                    .next()
                    .and_then(|count| count.parse::<usize>().ok());
                count
                    .filter(|_| done.code == Some(0))
                    .map_or(sum, |count| Some(sum.unwrap_or(0) + count))
            });
            for directory in [&one, &each] {
                let found = run(&["query", directory, expression, "--count"]);
                let wanted = theirs.map(|count| format!("{count}\n"));
                assert_eq!(
                    found,
                    wanted.map_or((Some(2), String::new()), |count| (Some(0), count)),
                    "{name}: {expression}"
                );
                let lines = run(&["query", directory, expression, "-tt"]);
                assert_eq!(
                    (lines.0, lines.1.lines().count()),
                    (found.0, theirs.unwrap_or(0)),
                    "{name}: {expression}"
                );
                let json = run(&["query", directory, expression, "--json"]);
                assert_eq!(json.0, found.0, "{name}: {expression}");
            }
        }
        let wrong = weir(["query", &one, "type nonsense"]);
        assert_eq!((wrong.code, wrong.text().as_str()), (Some(2), ""));
    }
}

/// The README's form, on days other than today, across a year's border and both changes of clocks. `date` says which second is
/// meant.
#[test]
fn local_dates_with_a_time_are_of_that_date() {
    if !have("local_dates_with_a_time_are_of_that_date", &["date"])
        || !Path::new("/usr/share/zoneinfo").is_dir()
    {
        return;
    }
    let temp = Temp::new();
    for (zone, text) in [
        ("UTC", "2025-12-31 23:59:59"),
        ("Europe/Berlin", "2025-12-31 23:59:59"),
        ("Europe/Berlin", "2026-07-01 05:30"),
        ("America/St_Johns", "2026-01-01 00:00:01"),
        ("Australia/Sydney", "2026-01-15T12:00"),
        ("Asia/Kolkata", "2024-02-29 23:30:30"),
        ("UTC", "2026-01-01"),
    ] {
        let date = run(
            std::process::Command::new("date")
                .env("TZ", zone)
                .args(["+%s", "-d", text]),
            &[],
        );
        let second: u64 = date.ok().text().trim().parse().unwrap();
        let directory = temp.at(&format!("{zone}-{text}").replace(['/', ' ', ':'], "-"));
        let packet = |i: u64| Record {
            time_ns: (second - 5 + i) * 1_000_000_000,
            wire_len: 62,
            data: udp(i as u16, 20),
        };
        record(&directory, &(0..10).map(packet).collect::<Vec<_>>());
        let count = |options: &[&str]| {
            let mut command = weir_command();
            command
                .env("TZ", zone)
                .args(["query", &directory, "--count"])
                .args(options);
            run(&mut command, &[]).ok().count()
        };
        assert_eq!(count(&["--from", text]), 5, "{zone}: {text}");
        assert_eq!(count(&["--to", text]), 6, "{zone}: {text}");
        assert_eq!(
            count(&["--around", text, "--within", "1s"]),
            3,
            "{zone}: {text}"
        );
    }
    // Clocks in Berlin showed the hour from 02:00 on twice that night, and skipped it in spring: a packet each quarter of an hour,
    // from 00:00 UTC on.
    let directory = temp.at("twice");
    let night = 1_792_886_400u64;
    let packet = |i: u64| Record {
        time_ns: (night + i * 900) * 1_000_000_000,
        wire_len: 62,
        data: udp(i as u16, 20),
    };
    record(&directory, &(0..8).map(packet).collect::<Vec<_>>());
    let asked = |options: &[&str]| {
        let mut command = weir_command();
        command
            .env("TZ", "Europe/Berlin")
            .args(["query", &directory, "--count"])
            .args(options);
        run(&mut command, &[])
    };
    let both = asked(&["--from", "2026-10-25 02:30", "--to", "2026-10-25 02:30"]).ok();
    assert_eq!(both.count(), 5, "both halves: {}", both.err);
    for (option, meant) in [("--from", "first"), ("--to", "second")] {
        let line =
            format!("weir: {option} '2026-10-25 02:30' was twice, since clocks were set back");
        let told = both
            .err
            .lines()
            .find(|told| told.starts_with(&line))
            .unwrap_or_else(|| panic!("{}", both.err));
        assert!(told.ends_with(&format!("the {meant} is meant")), "{told}");
    }
    // Clocks of Berlin at 0:00 and 1:45 in UTC, of which the second is after they were set back.
    let hint = "no packet lies in the time asked for";
    let covers = ": the record has packets from 2026-10-25 02:00:00.000000 to 2026-10-25 02:45:00.000000; weir info";
    for (nothing, words) in [
        (&["--from", "2200-01-01"][..], ", which is still to come"),
        (&["--from", "2001-01-01", "--to", "2001-01-02"], ""),
        (&["--to", "2001-01-01"], ""),
        (&["tcp", "--to", "2001-01-01"], ""),
    ] {
        let told = asked(nothing).ok();
        assert!(
            told.count() == 0 && told.err.contains(&format!("{hint}{words}{covers}")),
            "{nothing:?}: {}",
            told.err
        );
    }
    assert!(
        !both.err.contains(hint)
            && !asked(&["tcp", "--from", "2026-01-01"])
                .ok()
                .err
                .contains(hint)
    );
    let exact = asked(&["--from", "2026-10-25 02:30+01:00"]).ok();
    assert_eq!(
        (exact.count(), exact.err.contains("twice")),
        (2, false),
        "{}",
        exact.err
    );
    let never = asked(&["--from", "2026-03-29 02:30"]);
    assert_eq!((never.code, never.text().as_str()), (Some(2), ""));
    assert!(
        never.err.contains("--from '2026-03-29 02:30' never was"),
        "{}",
        never.err
    );
}

#[test]
fn conversations_are_those_of_a_measurement_of_the_joined_segments() {
    if !have(
        "conversations_are_those_of_a_measurement_of_the_joined_segments",
        &["mergecap", "tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let all = joined(&temp, &directory);
    let object = |done: Done| -> Value { serde_json::from_str(&done.ok().text()).unwrap() };
    let flows = object(weir([
        "query", &directory, "udp", "--flows", "--json", "--top", "5",
    ]));
    let measured = object(weir([
        "measure",
        &all,
        "--filter",
        "udp",
        "--key",
        "conversation",
        "--json",
        "--top",
        "5",
    ]));
    assert_eq!(
        (&flows["top"], &flows["passed"]),
        (&measured["top"], &measured["passed"])
    );
    assert_eq!(flows["top"].as_array().map(Vec::len), Some(5));
    assert_eq!(flows["passed"], json!(matching(&temp, &all, "udp").len()));
    let table = weir(["query", &directory, "--flows"]).ok().text();
    assert!(table.starts_with(&directory), "{table}");
}

#[test]
fn a_record_is_a_source_of_every_command() {
    if !have(
        "a_record_is_a_source_of_every_command",
        &["mergecap", "tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let all = joined(&temp, &directory);
    assert_eq!(
        weir(["filter", "tcp", &directory, "--count"]).ok().count(),
        matching(&temp, &all, "tcp").len() as u64
    );
    for order in ["--merge", "--sort"] {
        let both = weir(["filter", "", &directory, &all, order, "--count"])
            .ok()
            .count();
        assert_eq!(both, 2 * packets.len() as u64, "{order}");
    }
    let object = |arguments: &[&str]| -> Value {
        serde_json::from_str(&weir(arguments).ok().text()).unwrap()
    };
    let bytes: u64 = packets
        .iter()
        .map(|packet| u64::from(packet.wire_len))
        .sum();
    let measured = object(&["measure", &directory, "--json"]);
    assert_eq!(
        (&measured["received"], &measured["bytes"]),
        (&json!(packets.len()), &json!(bytes))
    );
    let about = object(&["info", &directory, "--json"]);
    assert_eq!(
        (&about["packets"], &about["bytes"], &about["faults"]),
        (&json!(packets.len()), &json!(bytes), &json!([]))
    );
    let followed = weir(["filter", "", &directory, "--follow"]);
    assert_eq!(followed.code, Some(1));
    assert!(
        followed
            .err
            .contains("is a directory, which is not followed"),
        "{}",
        followed.err
    );
}

#[test]
fn times_before_now_count_back_from_the_query() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    // Ten datagrams, in the middle of the last ten minutes.
    let packets: Vec<Record> = (0..10u64)
        .map(|minute| {
            let data = udp(1 + minute as u16, 20);
            Record {
                time_ns: now - (570 - 60 * minute) * 1_000_000_000,
                wire_len: data.len() as u32,
                data,
            }
        })
        .collect();
    record(&directory, &packets);
    let count = |arguments: &[&str]| {
        weir([&["query", &directory, "--count"], arguments].concat())
            .ok()
            .count()
    };
    assert_eq!(count(&[]), 10);
    assert_eq!(count(&["--last", "5m"]), 5);
    assert_eq!(count(&["--from", "-3m"]), 3);
    assert_eq!(count(&["--to", "3m ago"]), 7);
    assert_eq!(count(&["--from", "5m ago", "--to", "-3m"]), 2);
    assert_eq!(count(&["--around", "-5m", "--within", "61s"]), 2);
    assert_eq!(count(&["--from", "now"]), 0);
}
