//! Queries: record directories are made by the recorder, and answers are compared with tcpdump over the segments joined by
//! mergecap, and with lists of the packets.

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
    let hint = "no packet lies in the time asked for; weir info";
    for nothing in [["--from", "2031-01-01"], ["--to", "2001-01-01"]] {
        let told = asked(&nothing).ok();
        assert!(
            told.count() == 0 && told.err.contains(hint),
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
fn no_output_goes_into_the_record_that_is_read() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let segment = segments(&directory).remove(1);
    let (hard, soft, dangling) = (
        temp.at("hard.pcapng"),
        temp.at("soft.pcapng"),
        temp.at("dangling.pcapng"),
    );
    std::fs::hard_link(&segment, &hard).unwrap();
    std::os::unix::fs::symlink(&segment, &soft).unwrap();
    std::os::unix::fs::symlink(format!("{directory}/new.pcapng"), &dangling).unwrap();
    let index = segment.replace(".pcapng", ".index");
    let (lock, new) = (
        format!("{directory}/lock"),
        format!("{directory}/new.pcapng"),
    );
    for output in [&segment, &hard, &soft, &dangling, &index, &lock, &new] {
        for command in [
            &["query", &directory, "tcp"][..],
            &["filter", "", &directory],
            &["measure", &directory],
        ] {
            let done = weir([command, &["-w", output]].concat());
            assert!(
                done.code == Some(2)
                    && done
                        .err
                        .contains(&format!("{output} is part of {directory}")),
                "{}",
                done.err
            );
        }
    }
    assert_eq!(
        weir(["query", &directory, "--count"]).ok().count(),
        packets.len() as u64
    );
    weir(["query", &directory, "tcp", "-w", &temp.at("beside.pcapng")]).ok();
}

/// A segment, an index and the lock of another record are written by its recorder only.
#[test]
fn outputs_that_are_files_of_another_record_are_refused() {
    let temp = Temp::new();
    let file = temp.file("few.pcap", &small_pcap(60));
    let (read, other) = (temp.at("read"), temp.at("other"));
    for directory in [&read, &other] {
        weir(["record", &file, directory, "--disk", "1G"]).ok();
    }
    let segment = segments(&other).remove(0);
    let soft = temp.at("soft.pcapng");
    std::os::unix::fs::symlink(&segment, &soft).unwrap();
    let contents = |path: &str| std::fs::read(path).unwrap();
    for output in [
        &segment,
        &soft,
        &segment.replace(".pcapng", ".index"),
        &format!("{other}/lock"),
    ] {
        let before = contents(output);
        for command in [
            &["query", &read, "-w"][..],
            &["filter", "", &file, "-w"],
            &["measure", &file, "-w"],
            &["generate", "--packets", "3"],
        ] {
            let done = weir([command, &[output]].concat());
            assert_eq!(done.code, Some(2), "{command:?}: {}", done.err);
            let line = format!(
                "weir: {output} is part of {other}, a record: write to another directory\n"
            );
            assert_eq!(done.err, line, "{command:?}");
        }
        assert!(contents(output) == before, "{output}");
    }
    // A copy of a segment elsewhere is a file like others.
    let copy = temp.file(segment.rsplit('/').next().unwrap(), &contents(&segment));
    weir(["query", &read, "-w", &copy]).ok();
    assert_eq!(records(&copy).len(), 60);
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

#[test]
fn bad_questions_and_bad_directories_get_one_clear_line() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets[..2000]);
    let empty = temp.at("empty");
    fs::create_dir(&empty).unwrap();
    let file = temp.file("file.pcap", &small_pcap(1));
    let missing = temp.at("missing");
    let cases: [(&[&str], i32, String); 12] = [
        (&[&missing], 1, format!("{missing}: no such directory")),
        (&[&empty], 1, format!("{empty} is no record directory: it holds no segments")),
        (&[&file], 2, format!("{file} is no directory: weir query DIR [EXPR], where weir record has written DIR")),
        (&["-"], 2, "- is no directory: weir query DIR [EXPR], where weir record has written DIR".to_owned()),
        (
            &[&directory, "--from", "05:31", "--to", "05:30"],
            2,
            "--from 05:31 is later than --to 05:30: no packet can lie between them".to_owned(),
        ),
        (
            &[&directory, "--from", "2026-11-23", "--to", "2026-11-22T23:59:59Z"],
            2,
            "--from 2026-11-23 is later than --to 2026-11-22T23:59:59Z: no packet can lie between them".to_owned(),
        ),
        (
            &[&directory, "--from", "yesterday"],
            2,
            "invalid value 'yesterday' for '--from <T>': 'yesterday' is no time: write ".to_owned(),
        ),
        (&[&directory, "--last", "5 weeks"], 2, "invalid value '5 weeks' for '--last <TIME>': ".to_owned()),
        (
            &[&directory, "--last", "5m", "--to", "now"],
            2,
            "the argument '--last <TIME>' cannot be used with '--to <T>'".to_owned(),
        ),
        (
            &[&directory, "--flow", "10.0.0.1"],
            2,
            "invalid value '10.0.0.1' for '--flow <FLOW>': '10.0.0.1' is no conversation".to_owned(),
        ),
        (&[&directory, "tcp prot 80", "--from", "now"], 2, "".to_owned()),
        (
            &[&directory, "--follow"],
            2,
            format!("{directory}: no recorder is running there whose packets could be followed: leave --follow out"),
        ),
    ];
    for (arguments, code, line) in cases {
        let done = weir([&["query"], arguments].concat());
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.err);
        assert!(
            done.err.starts_with(&format!("weir: {line}")),
            "{arguments:?}: {}",
            done.err
        );
        assert_eq!(done.text(), "", "{arguments:?}");
    }
}

#[test]
fn damage_is_told_and_the_rest_is_found() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let segments = segments(&directory);
    let all = weir(["query", &directory, "udp", "--count"]).ok();

    // A damaged index is not needed.
    let index = segments[2].replace(".pcapng", ".index");
    let mut bytes = fs::read(&index).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&index, bytes).unwrap();
    let done = weir(["query", &directory, "udp", "--count"]).ok();
    assert_eq!(done.text(), all.text());
    assert!(
        done.err
            .contains(&format!("weir: {}: its index is damaged (", segments[2])),
        "{}",
        done.err
    );

    // Packets of a damaged block are given as they are, which is told.
    let mut bytes = fs::read(&segments[4]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&segments[4], bytes).unwrap();
    let done = weir(["query", &directory, "--count"]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.count(), packets.len() as u64);
    let line = format!("weir: {directory}: 1 damaged block was skipped, but for ");
    assert!(done.err.contains(&line), "{}", done.err);
    assert!(
        done.err
            .contains(" packets in them that are given as they are; the first is at offset "),
        "{}",
        done.err
    );
    assert!(
        done.err.contains(&format!(" of {}: ", segments[4])),
        "{}",
        done.err
    );
    // A question that needs no packet of that block is answered whole.
    let early = ["--to", &seconds(packets[1000].time_ns)];
    assert_eq!(
        weir([&["query", &directory, "--count"], &early[..]].concat())
            .ok()
            .count(),
        1001
    );
}

/// Packets as a pcapng stream.
fn pcapng(packets: &[Record]) -> Vec<u8> {
    let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
    interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let mut bytes = pcapng_start(1);
    bytes.truncate(28);
    bytes.extend(block(1, &interface));
    for packet in packets {
        bytes.extend(pcapng_packet_at(
            packet.time_ns,
            packet.wire_len,
            &packet.data,
        ));
    }
    bytes
}

#[test]
fn packets_in_the_memory_of_a_recorder_follow_those_on_disk_without_gap_or_repetition() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    let (mut recorder, generation) = recorder(&directory);
    // The recorder has 20 000 packets on disk and more of them in memory too; the seam is somewhere before its end.
    packets[..20_000]
        .iter()
        .zip(0..)
        .for_each(|(packet, number)| put(&mut recorder, number, packet));
    recorder.flush().unwrap();
    let seam = 19_000;
    let (asked, memory) = (Arc::new(Mutex::new(Vec::new())), packets[seam..].to_vec());
    let seen = Arc::clone(&asked);
    let handler = move |request: Value| {
        seen.lock().unwrap().push(request);
        let bytes = pcapng(&memory);
        let first = json!({ "generation": generation, "number": seam });
        Reply::Stream {
            first,
            write: Box::new(move |to| to.write_all(&bytes)),
        }
    };
    let server = Server::bind(
        Path::new(&directory).join("control"),
        Settings::default(),
        handler,
    )
    .unwrap();
    assert!(answered(&temp, &[&directory]) == packets);
    let to = seconds(packets[25_000].time_ns);
    assert_eq!(
        weir([
            "query",
            &directory,
            "",
            "--count",
            "--flow",
            "10.0.0.1 10.0.0.2",
            "--to",
            &to
        ])
        .ok()
        .count(),
        0
    );
    let flow =
        "((src host 10.0.0.1 and dst host 10.0.0.2) or (src host 10.0.0.2 and dst host 10.0.0.1))";
    let requests = asked.lock().unwrap().clone();
    let request = |expression: &str, behind_tags: bool, to_ns: Option<u64>| {
        json!({
            "request": "query", "expression": expression, "behind_tags": behind_tags, "from_ns": null, "to_ns": to_ns, "follow": false,
        })
    };
    assert_eq!(
        requests,
        [
            request("", false, None),
            request(flow, true, Some(packets[25_000].time_ns))
        ]
    );
    drop(server);

    // A recorder that fails in the middle of its answer.
    let handler = move |_| {
        let write = |_: &mut dyn Write| Err(std::io::Error::other("the ring is gone"));
        Reply::Stream {
            first: json!({ "generation": generation, "number": seam }),
            write: Box::new(write),
        }
    };
    let server = Server::bind(
        Path::new(&directory).join("control"),
        Settings::default(),
        handler,
    )
    .unwrap();
    let done = weir(["query", &directory, "--count"]);
    assert_eq!((done.code, done.count()), (Some(1), seam as u64));
    assert!(done.err.contains("the ring is gone"), "{}", done.err);
    drop(server);

    // A recorder that refuses, and one that was killed.
    let refuse = |_| Reply::Refused("no such request".to_owned());
    let server = Server::bind(
        Path::new(&directory).join("control"),
        Settings::default(),
        refuse,
    )
    .unwrap();
    let done = weir(["query", &directory, "--count"]);
    assert_eq!((done.code, done.count()), (Some(1), 20_000));
    let line = format!(
        "weir: {directory}: the recorder: no such request; packets that are not on disk yet are left out"
    );
    assert!(done.err.starts_with(&line), "{}", done.err);
    let done = weir(["query", &directory, "--follow"]);
    assert_eq!((done.code, done.text().as_str()), (Some(2), ""));
    drop(server);
    drop(std::os::unix::net::UnixListener::bind(Path::new(&directory).join("control")).unwrap());
    assert_eq!(weir(["query", &directory, "--count"]).ok().count(), 20_000);
}

#[test]
fn a_running_recorder_answers_from_memory_and_can_be_followed() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(&directory, &["--ram", "4M"]);
    let mut to = recorder.stdin.take().unwrap();
    to.write_all(&small_pcap(10)).unwrap();
    let count = |arguments: &[&str]| {
        let done = weir([&["query", &directory, "--count"], arguments].concat());
        // Before the recorder has made the directory and its socket there is nothing to query.
        if done.code == Some(0) {
            done.count()
        } else {
            0
        }
    };
    while count(&[]) < 10 {}
    assert_eq!(count(&["udp port 3"]), 1);
    assert_eq!(count(&["--from", "1700000002", "--to", "1700000004"]), 3);
    let mut following = weir_command()
        .args([
            "query",
            &directory,
            "udp portrange 8-12",
            "--follow",
            "-c",
            "5",
            "-tt",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line.split_once('.')
            .map_or(line.clone(), |(second, _)| second.to_owned())
    };
    assert_eq!(
        [line(), line(), line()],
        ["1700000007", "1700000008", "1700000009"]
    );
    for port in [11, 12] {
        to.write_all(&pcap_record(
            1_700_000_000 + u32::from(port),
            &udp(port, 20),
        ))
        .unwrap();
        assert_eq!(line(), (1_700_000_000 + u32::from(port)).to_string());
    }
    assert_eq!(gather(following, &[]).code, Some(0));
    drop(to);
    assert_eq!(gather(recorder, &[]).code, Some(0));
    assert_eq!(
        weir(["query", &directory, "--count"]).code,
        Some(1),
        "nothing was saved"
    );
}

#[test]
fn a_query_beside_a_recorder_has_each_packet_once_from_disk_or_memory() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(
        &directory,
        &["--ram", "64M", "--disk", "1G", "--segment", "1M"],
    );
    let mut to = recorder.stdin.take().unwrap();
    // Packet by packet a second later, so that its time is its number.
    let feeder = std::thread::spawn(move || {
        to.write_all(&pcap_header(65_535, 1)).unwrap();
        for thousand in 0..200u32 {
            let some =
                |number: u32| pcap_record(number, &udp(number as u16, number as usize % 300));
            let bytes: Vec<u8> = (thousand * 1000..(thousand + 1) * 1000)
                .flat_map(some)
                .collect();
            to.write_all(&bytes).unwrap();
        }
        to
    });
    let mut client = connected(&directory);
    let mut recorded = || status(&mut client)["recorded"].as_u64().unwrap();
    let (mut rounds, mut last) = (0, false);
    while !last {
        last = feeder.is_finished();
        let before = recorded();
        let found = answered(&temp, &[&directory]);
        let after = recorded();
        let numbers: Vec<u64> = found
            .iter()
            .map(|packet| packet.time_ns / 1_000_000_000)
            .collect();
        let wrong = numbers
            .iter()
            .zip(0..)
            .position(|(number, expected)| *number != expected);
        let about = wrong.map(|at| {
            (
                at,
                &numbers[at.saturating_sub(2)..numbers.len().min(at + 3)],
            )
        });
        assert_eq!(
            about,
            None,
            "round {rounds}: {} packets, status {before} to {after}",
            found.len()
        );
        assert!(
            (before..=after).contains(&(found.len() as u64)),
            "{before} to {after}, not {}",
            found.len()
        );
        rounds += 1;
    }
    assert!(rounds > 1);
    let to = feeder.join().unwrap();
    while recorded() < 200_000 {}
    let (from, to_second) = ("150000", "199999");
    let done = weir([
        "query",
        &directory,
        "udp",
        "--from",
        from,
        "--to",
        to_second,
        "--count",
        "--explain",
    ])
    .ok();
    assert_eq!(done.count(), 50_000, "{}", done.err);
    assert!(
        done.err
            .ends_with("the recorder added what it had only in memory\n"),
        "{}",
        done.err
    );
    drop(to);
    assert_eq!(gather(recorder, &[]).code, Some(0));
    let found = answered(&temp, &[&directory]);
    assert!(
        found
            .iter()
            .map(|packet| packet.time_ns / 1_000_000_000)
            .eq(0..200_000)
    );
}

#[test]
fn packets_that_leave_memory_before_a_slow_query_reads_them_are_counted() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(&directory, &["--ram", "16M"]);
    let mut to = recorder.stdin.take().unwrap();
    to.write_all(&pcap_header(65_535, 1)).unwrap();
    let mut feed = |range: std::ops::Range<u32>| {
        let bytes: Vec<u8> = range
            .flat_map(|number| pcap_record(number, &udp(number as u16, 400)))
            .collect();
        to.write_all(&bytes).unwrap();
    };
    feed(0..20_000);
    let mut client = connected(&directory);
    // Packets that the ring has no room for, while readers keep its chunks, have no number.
    let mut taken = || {
        let status = status(&mut client);
        let [recorded, dropped] =
            [&status["recorded"], &status["dropped"]["ring"]].map(|count| count.as_u64().unwrap());
        (recorded, recorded + dropped)
    };
    while taken().1 < 20_000 {}
    let asked = taken().0 as usize;
    let request = json!({ "request": "query", "expression": "" });
    let (_, mut stream) = connected(&directory).stream(&request).unwrap();
    // Nothing is read, until the ring has gone around several times.
    feed(20_000..100_000);
    while taken().1 < 100_000 {}
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let answer = temp.file("answer.pcapng", &bytes);
    let times: Vec<u64> = records(&answer)
        .iter()
        .map(|packet| packet.time_ns / 1_000_000_000)
        .collect();
    assert!(
        times.iter().is_sorted() && times.len() < asked,
        "{} of {asked}, {:?}",
        times.len(),
        taken()
    );
    let about = weir(["filter", "", &answer, "--count"]).ok();
    let lost = asked - times.len();
    let line = format!("{} packets were dropped when it was captured", lost);
    assert!(
        about
            .err
            .replace("\u{a0}", " ")
            .replace(' ', "")
            .contains(&line.replace(' ', "")),
        "{line}: {}",
        about.err
    );
    drop(to);
    assert_eq!(gather(recorder, &[]).code, Some(0));
}
