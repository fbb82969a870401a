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
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines
        .map(|line| line.split(' ').take(count).collect::<Vec<_>>().join(" "))
        .collect()
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
            for (flags, count) in [(&[][..], 1), (&["-tt"], 1), (&["-tttt"], 2)] {
                let ours = words(
                    &in_zone(weir, zone, &[&["filter", "", file][..], flags].concat()),
                    count,
                );
                // weir prints the file's resolution by default; tcpdump needs an option.
                let fine = ours[0]
                    .split('.')
                    .nth(1)
                    .is_some_and(|fraction| fraction.len() == 9);
                let precision = if fine {
                    "--time-stamp-precision=nano"
                } else {
                    "--time-stamp-precision=micro"
                };
                let theirs = in_zone(
                    "tcpdump",
                    zone,
                    &[&["-n", "-q", precision, "-r", file][..], flags].concat(),
                );
                assert_eq!(ours, words(&theirs, count), "{zone} {flags:?} {file}");
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
            ours, "2023-11-14 22:13:20.000000 10.0.0.1.4000 > 10.0.0.2.1: UDP, length 20\n",
            "{zone}"
        );
    }
    assert_eq!(
        weir(["filter", "", &file, "-t"]).ok().text(),
        "10.0.0.1.4000 > 10.0.0.2.1: UDP, length 20\n"
    );
    assert_eq!(
        weir(["filter", "", &file, "-tt"])
            .ok()
            .text()
            .split(' ')
            .next(),
        Some("1700000000.000000")
    );
    assert_eq!(weir(["filter", "", &file, "-ttt"]).code, Some(2));
}

fn hex_lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("\t0x"))
        .collect()
}

/// Captures where `-x` and `-X` begin elsewhere in tcpdump. tcpdump counts some headers (LLC, DSA tags) as link layer, and
/// weir as part of the packet, or the reverse.
const BEGIN_ELSEWHERE: [&str; 9] = [
    "libpcap__dsa.pcap",
    "suricata-verify__defrag_bug-6887-defrag-ppp-ipv6-tcp_frag-ppp-ipv6-tcp.pcap",
    "tcpdump__LLDP_and_CDP.pcap",
    "tcpdump__decnet-shorthdr-oobr.pcap",
    "tcpdump__esis_snpa_asan-2.pcap",
    "tcpdump__esis_snpa_asan-3.pcap",
    "tcpdump__hoobr_chdlc_print.pcap",
    "tcpdump__ieee802.11_meshhdr-oobr.pcap",
    "tcpdump__mlppp-oobr.pcap",
];

#[test]
fn bytes_are_dumped_as_tcpdump_dumps_them() {
    let test = "bytes_are_dumped_as_tcpdump_dumps_them";
    if !have(test, &["tcpdump"]) {
        return;
    }
    for file in captures_for_libpcap(test) {
        let elsewhere = BEGIN_ELSEWHERE.contains(&file.file_name().unwrap().to_str().unwrap());
        for flag in ["-xx", "-XX", "-x", "-X"] {
            if elsewhere && flag.len() == 2 {
                continue;
            }
            let theirs = tool("tcpdump", ["-n", "-t", flag, "-r", s(&file), "-c", "200"]);
            if theirs.code != Some(0) {
                break;
            }
            let ours = weir(["filter", "", s(&file), "-t", flag, "-c", "200"]).ok();
            let (ours, theirs) = (ours.text(), theirs.text());
            assert_eq!(
                hex_lines(&ours),
                hex_lines(&theirs),
                "{flag} {}",
                file.display()
            );
        }
    }
}

#[test]
fn ethernet_headers_are_tcpdumps() {
    let test = "ethernet_headers_are_tcpdumps";
    if !have(test, &["tcpdump"]) {
        return;
    }
    for name in [
        "pcapplusplus__example.pcap",
        "zeek__http-qinq-0.pcap",
        "libpcap__gateway_or_not.pcap",
    ] {
        let Some(file) = capture(test, name) else {
            continue;
        };
        let header = |text: String| -> Vec<String> {
            let lines = text
                .lines()
                .filter(|line| !line.starts_with(char::is_whitespace));
            lines
                .map(|line| line.split(": ").next().unwrap_or("").to_owned())
                .collect()
        };
        let ours = header(weir(["filter", "", s(&file), "-e", "-tt"]).ok().text());
        let theirs = header(
            tool("tcpdump", ["-n", "-q", "-e", "-tt", "-r", s(&file)])
                .ok()
                .text(),
        );
        // With -q, tcpdump omits the number of an ethertype.
        let plain = |line: &String| {
            line.split(", ")
                .map(|part| part.split(" (0x").next().unwrap_or("").to_owned())
                .collect::<Vec<_>>()
        };
        let pairs = ours.iter().zip(&theirs);
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in pairs {
            let ours = plain(ours).join(", ").replace("ethertype ", "");
            let theirs = plain(theirs).join(", ").replace("ethertype ", "");
            assert_eq!(ours, theirs, "{name}");
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
    let line = weir(["filter", "", &file, "-t", "-s", "50"]).ok().text();
    assert_eq!(
        line,
        "10.0.0.1.4000 > 10.0.0.2.1: UDP, length 20 [50 of 62 bytes captured]\n"
    );
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
