//! Printed lines: stamps in every zone and format, link headers and bytes as in tcpdump, JSON for programs.

use crate::support::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// Captures with microseconds and nanoseconds, with old and new times, in both formats.
const STAMPED: [&str; 6] = [
    "pcapplusplus__example.pcap",
    "pcapplusplus__nanosecs_big_endian.pcap",
    "tcpdump__tcp-handshake-nano.pcap",
    "ndpi__tls_heur__trojan-tcp-tls.pcapng",
    "ndpi__fuzz-2006-06-26-2594.pcap",
    "tcpdump__EIGRP_subnet_down.pcap",
];

/// First words of each packet's line.
fn words(text: &str, count: usize) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit() || c == ' '));
    let lines = lines.map(|line| {
        line.split_whitespace()
            .take(count)
            .collect::<Vec<_>>()
            .join(" ")
    });
    lines.collect()
}

fn in_zone(program: &str, zone: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("TZ", zone).stdin(Stdio::null());
    run(&mut command, &[]).ok().text()
}

#[test]
fn stamps_are_tcpdumps_in_every_zone() {
    let test = "stamps_are_tcpdumps_in_every_zone";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let weir = env!("CARGO_BIN_EXE_weir");
    for zone in ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"] {
        if zone != "UTC" && !Path::new("/usr/share/zoneinfo").join(zone).is_file() {
            skipped(test, format_args!("{zone} is not in /usr/share/zoneinfo"));
            continue;
        }
        for file in STAMPED.iter().filter_map(|name| capture(test, name)) {
            let file = s(&file);
            for (flags, count) in [
                (&[][..], 1),
                (&["-tt"], 1),
                (&["-ttt", "--nano"], 2),
                (&["-tttt", "-#"], 3),
                (&["-ttttt"], 2),
            ] {
                let of = |program, before: &[&str]| {
                    words(&in_zone(program, zone, &[before, flags].concat()), count)
                };
                let ours = of(weir, &["filter", "", file]);
                let theirs = of("tcpdump", &["-n", "-q", "-r", file]);
                assert_eq!(ours, theirs, "{zone} {flags:?} {file}");
            }
        }
    }
}

#[test]
fn utc_is_the_same_in_every_zone() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(1));
    for zone in ["UTC", "Europe/Berlin", "Nowhere/Atall", ""] {
        let ours = in_zone(
            env!("CARGO_BIN_EXE_weir"),
            zone,
            &["filter", "", &file, "--utc", "-tttt"],
        );
        assert_eq!(
            ours, "2023-11-14 22:13:20.000000 IP 10.0.0.1.4000 > 10.0.0.2.1: UDP, length 20\n",
            "{zone}"
        );
    }
    assert_eq!(
        weir(["filter", "", &file, "-t"]).ok().text(),
        "IP 10.0.0.1.4000 > 10.0.0.2.1: UDP, length 20\n"
    );
    assert_eq!(
        weir(["filter", "", &file, "-tt"])
            .ok()
            .text()
            .split(' ')
            .next(),
        Some("1700000000.000000")
    );
    assert_eq!(weir(["filter", "", &file, "-tttttt"]).code, Some(2));
}

fn hex_lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("\t0x"))
        .collect()
}

/// The printer itself is compared with tcpdump in `weir-packet`; here the flags and the state of a run, with any number of
/// workers.
#[test]
fn lines_are_tcpdumps_with_every_flag_and_any_number_of_workers() {
    let test = "lines_are_tcpdumps_with_every_flag_and_any_number_of_workers";
    if !have(test, &["tcpdump"]) {
        return;
    }
    for name in [
        "pcapplusplus__example.pcap",
        "zeek__http-qinq-0.pcap",
        "tcpdump__tcp-handshake-nano.pcap",
    ] {
        let Some(file) = capture(test, name) else {
            continue;
        };
        for flags in [
            &[][..],
            &["-e"],
            &["-S", "-#"],
            &["-q"],
            &["-v"],
            &["-x"],
            &["-X"],
            &["-xx"],
            &["-XX"],
            &["-A"],
            &["-AA"],
        ] {
            // With -q, HTTP has no line of its own, and RIP is the only other protocol that differs with -v.
            let expression = "not port 520";
            let theirs = tool(
                "tcpdump",
                [&["-n", "-t", "-r", s(&file)][..], flags, &[expression]].concat(),
            )
            .ok()
            .text();
            for workers in ["1", "4"] {
                let ours = weir(
                    [
                        &["filter", expression, s(&file), "-t", "--workers", workers][..],
                        flags,
                    ]
                    .concat(),
                );
                let ours = ours.ok().text();
                let differs = ours
                    .lines()
                    .zip(theirs.lines())
                    .find(|(ours, theirs)| ours != theirs);
                assert_eq!(differs, None, "{name} {flags:?} {workers}");
                assert_eq!(ours.len(), theirs.len());
            }
        }
    }
}

#[test]
fn every_packet_is_an_object_and_the_summary_is_the_last() {
    let test = "every_packet_is_an_object_and_the_summary_is_the_last";
    for name in [
        "pcapplusplus__example.pcap",
        "ndpi__http2.pcapng",
        "ndpi__fuzz-2006-06-26-2594.pcap",
    ] {
        let Some(file) = capture(test, name) else {
            continue;
        };
        let done = weir(["filter", "tcp", s(&file), "--json"]).ok();
        let objects: Vec<serde_json::Value> = done
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        let (summary, packets) = objects.split_last().unwrap();
        assert_eq!(summary["matched"], packets.len());
        assert_eq!(
            summary["matched"],
            weir(["filter", "tcp", s(&file), "--count"]).ok().count()
        );
        let bytes: u64 = packets
            .iter()
            .map(|packet| packet["length"].as_u64().unwrap())
            .sum();
        assert_eq!(summary["bytes"], bytes);
        for packet in packets {
            for key in ["time", "link", "interface", "length", "captured", "summary"] {
                assert!(packet.get(key).is_some(), "{key} {packet}");
            }
        }
    }
}

#[test]
fn a_packet_cut_for_printing_says_so() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(1));
    let line = weir(["filter", "", &file, "-t", "-s", "36"]).ok().text();
    assert_eq!(line, "IP 10.0.0.1 > 10.0.0.2:  [|udp]\n");
    let dump = weir(["filter", "", &file, "-t", "-s", "16", "-xx"])
        .ok()
        .text();
    assert_eq!(
        hex_lines(&dump),
        ["\t0x0000:  0200 0000 0001 0200 0000 0002 0800 4500"]
    );
}

#[test]
fn interfaces_are_listed() {
    if !Path::new("/sys/class/net/lo").exists() {
        skipped(
            "interfaces_are_listed",
            "no loopback interface in /sys/class/net",
        );
        return;
    }
    let listed = weir(["filter", "-D"]).ok().text();
    assert!(
        listed.lines().any(|line| line == "1.lo [loopback]"),
        "{listed}"
    );
    assert_eq!(
        listed.lines().last(),
        Some("0.any [all interfaces]"),
        "{listed}"
    );
    assert_eq!(
        listed.lines().count(),
        std::fs::read_dir("/sys/class/net").unwrap().count() + 1
    );
    // The reader closes the pipe before anything is written: the run ends without a message.
    let script = format!(
        "{{ sleep 0.2; '{}' filter -D; echo \"code $?\" >&2; }} | true",
        env!("CARGO_BIN_EXE_weir")
    );
    let done = run(std::process::Command::new("sh").args(["-c", &script]), &[]);
    assert_eq!(done.err, "code 0\n");
}

#[test]
fn help_names_every_flag_and_its_examples_parse() {
    let help = weir(["filter", "--help"]).ok().text();
    for flag in [
        "-w", "-c", "-s", "-e", "-x", "-X", "-t", "-U", "-C", "-G", "-W", "-D",
    ] {
        assert!(help.contains(&format!("\n  {flag}")), "{flag}");
    }
    for flag in [
        "--count",
        "--invert",
        "--split",
        "--duration",
        "--workers",
        "--cpus",
        "--stats",
        "--json",
        "--merge",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    for page in [
        &["--help"][..],
        &["filter", "--help"],
        &["info", "--help"],
        &["generate", "--help"],
    ] {
        let text = weir(page).ok().text();
        let wide = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{page:?}");
    }
    // Each example is run on files of these names.
    let temp = Temp::new();
    for name in ["trace.pcap", "a.pcap", "b.pcap", "big.pcapng.zst"] {
        temp.file(name, &small_pcap(3));
    }
    temp.file("banned.txt", b"192.0.2.7\n2001:db8::/32\n");
    for example in help.lines().filter_map(|line| line.strip_prefix("  weir ")) {
        let (command, _) = example.split_once("  ").unwrap_or((example, ""));
        let script = format!("'{}' {command}", env!("CARGO_BIN_EXE_weir"));
        let done = run(
            Command::new("sh")
                .args(["-c", &script])
                .current_dir(temp.path())
                .stdin(Stdio::null()),
            &[],
        );
        assert_eq!(done.code, Some(0), "{script}: {}", done.err);
    }
    assert!(
        temp.names().contains(&"web.pcapng".to_owned()),
        "{:?}",
        temp.names()
    );
}
