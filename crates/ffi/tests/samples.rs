//! The samples in C are compiled and run, linked to both forms of the library; tcpdump is the oracle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_testkit::{Scratch, captures, have, links, skipped};

/// Directory of the library: that of this test.
fn libraries() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Compiles a sample, linked to the shared library or to the static one.
fn compiled(scratch: &Scratch, sample: &str, is_static: bool) -> PathBuf {
    let program = scratch.at(&format!("{sample}-{is_static}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program);
    cc.arg("-I")
        .arg(root().join("crates/ffi/include"))
        .arg(root().join(format!("samples/c/{sample}.c")));
    if is_static {
        cc.arg(libraries().join("libweir.a"))
            .args(["-lpcap", "-lpthread", "-ldl", "-lm"]);
    } else {
        cc.arg(format!("-L{0}", libraries().display()))
            .arg(format!("-Wl,-rpath,{}", libraries().display()));
        cc.arg("-lweir");
    }
    let done = cc.output().unwrap();
    assert!(
        done.status.success(),
        "{sample}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    program.into()
}

fn run(program: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// Lines of tcpdump, without names; `None` if it cannot read the file.
fn lines(arguments: &[&str]) -> Option<Vec<String>> {
    let done = Command::new("tcpdump")
        .args(["-nn", "-t", "-q"])
        .args(arguments)
        .output()
        .unwrap();
    done.status.success().then(|| {
        String::from_utf8_lossy(&done.stdout)
            .lines()
            .map(str::to_owned)
            .collect()
    })
}

fn tcpdump(arguments: &[&str]) -> Vec<String> {
    lines(arguments).unwrap()
}

/// Destination port in a line of tcpdump, as in `IP 1.2.3.4.53 > 5.6.7.8.9: UDP, length 1`.
fn port(line: &str) -> Option<u16> {
    let destination = line.split(" > ").nth(1)?.split(':').next()?;
    destination.rsplit('.').next()?.parse().ok()
}

/// UDP over IPv4 from hosts 10.0.0.1 to .9, ports 1000 to 1012, of which every fourth is TCP.
fn capture() -> Vec<u8> {
    let mut pcap = weir_testkit::savefile::Pcap::new(1, 65_535);
    for i in 0..5000u32 {
        let mut frame = vec![
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64,
        ];
        frame.push(if i % 4 == 0 { 6 } else { 17 });
        frame.extend([0, 0, 10, 0, 0, 1 + (i % 9) as u8, 10, 1, 0, 1]);
        frame.extend([
            0x9c,
            0x40,
            ((1000 + i % 13) >> 8) as u8,
            (1000 + i % 13) as u8,
        ]);
        frame.extend(if i % 4 == 0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]
        } else {
            [0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        });
        pcap.packet(&frame);
    }
    pcap.bytes
}

#[test]
fn packets_are_counted_by_port_as_tcpdump_prints_them() {
    let test = "packets_are_counted_by_port_as_tcpdump_prints_them";
    if !have(test, &["cc", "tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let made = scratch.file("a.pcap", &capture());
    let made = made.as_str();
    let programs = [false, true].map(|is_static| compiled(&scratch, "count_by_port", is_static));
    for filter in ["", "udp", "tcp and src host 10.0.0.3"] {
        let mut ports: BTreeMap<u16, u64> = BTreeMap::new();
        let lines = tcpdump(&["-r", made, filter]);
        lines
            .iter()
            .filter_map(|line| port(line))
            .for_each(|port| *ports.entry(port).or_default() += 1);
        let mut ranked: Vec<_> = ports.into_iter().collect();
        ranked.sort_by_key(|&(port, packets)| (std::cmp::Reverse(packets), port));
        let mut expected: String = ranked
            .iter()
            .take(10)
            .map(|(port, packets)| format!("{port} {packets}\n"))
            .collect();
        expected.push_str(&format!("5000 received, {} matched\n", lines.len()));
        for program in &programs {
            assert_eq!(
                run(program, &[made, filter]),
                (Some(0), expected.clone(), String::new()),
                "{filter}"
            );
        }
    }
}

#[test]
fn real_captures_have_as_many_packets_as_tcpdump_finds() {
    let test = "real_captures_have_as_many_packets_as_tcpdump_finds";
    if !have(test, &["cc", "tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, "count_by_port", false);
    let mut compared = 0;
    let paths = captures(test);
    for path in &paths {
        let path = path.to_str().unwrap();
        let (code, out, _) = run(&program, &[path, "udp"]);
        if code != Some(0) {
            continue;
        }
        let Some(matched) = lines(&["-r", path, "udp", "--count"]) else {
            continue;
        };
        let matched = matched
            .last()
            .and_then(|line| line.split(' ').next())
            .unwrap_or("none")
            .to_owned();
        compared += 1;
        assert!(
            out.ends_with(&format!(", {matched} matched\n")),
            "{path}: {out}"
        );
    }
    println!("{compared} of {} captures compared", paths.len());
    assert!(paths.is_empty() || compared > 20);
}

#[test]
fn heavy_hitters_have_the_lengths_that_tcpdump_prints() {
    let test = "heavy_hitters_have_the_lengths_that_tcpdump_prints";
    if !have(test, &["cc", "tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture());
    let program = compiled(&scratch, "heavy_hitters", true);
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in tcpdump(&["-e", "-r", &file, "udp"]) {
        let (head, packet) = line.split_once(", IPv4, length ").unwrap();
        assert!(head.contains('>'));
        let (length, rest) = packet.split_once(": ").unwrap();
        let source = rest.trim_start_matches("IP ").split(" > ").next().unwrap();
        let sum = sums
            .entry(source.rsplit_once('.').unwrap().0.to_owned())
            .or_default();
        *sum = (sum.0 + 1, sum.1 + length.parse::<u64>().unwrap());
    }
    let mut ranked: Vec<_> = sums.into_iter().collect();
    ranked.sort_by_key(|(address, (_, bytes))| (std::cmp::Reverse(*bytes), address.clone()));
    let lines = ranked
        .iter()
        .map(|(address, (packets, bytes))| format!("{address} {packets} packets {bytes} bytes\n"));
    let expected = lines.collect::<String>() + "9 sources\n";
    assert_eq!(
        run(&program, &[&file, "udp"]),
        (Some(0), expected, String::new())
    );
}

#[test]
fn top_talkers_are_those_that_the_command_prints() {
    let test = "top_talkers_are_those_that_the_command_prints";
    let command = libraries().join("../weir");
    if !command.exists() {
        return skipped(test, "there is no weir command beside the tests");
    }
    if !have(test, &["cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture());
    let program = compiled(&scratch, "top_talkers", false);
    for filter in ["", "udp and src host 10.0.0.3"] {
        let flags = [
            "--json", "--key", "src", "--key", "dport", "--window", "1s", "--filter", filter,
        ];
        let done = Command::new(&command)
            .arg("measure")
            .arg(&file)
            .args(flags)
            .output()
            .unwrap();
        let expected = String::from_utf8(done.stdout).unwrap();
        assert!(expected.lines().count() > 1);
        assert_eq!(
            run(&program, &[&file, filter]),
            (Some(0), expected, String::new())
        );
    }
    let gone = scratch.at("gone.pcap");
    assert_eq!(
        run(&program, &[&gone]),
        (
            Some(1),
            String::new(),
            format!("weir: {gone}: no such file\n")
        )
    );
}

/// The bytes of the questions are made here, label by label.
#[test]
fn names_in_questions_are_found() {
    if !have("names_in_questions_are_found", &["cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &questions());
    let program = compiled(&scratch, "dns_names", false);
    let expected = "www.example.com 120\na\\000b.example 60\nexample.org 60\n3 names\n";
    assert_eq!(
        run(&program, &[&file]),
        (Some(0), expected.to_owned(), String::new())
    );
}

/// A message of DNS with one question; letters of the name are separated by dots.
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Each link type asks for a name of its own, over IPv4 and over IPv6 with an extension header.
#[test]
fn names_in_questions_are_found_on_every_link_type() {
    if !have("names_in_questions_are_found_on_every_link_type", &["cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, "dns_names", false);
    let datagram = links::udp(4000, 53, &question("www.example"));
    let extended = [&[17, 0, 1, 4, 0, 0, 0, 0], &datagram[..]].concat();
    for packet in [
        links::ip4(17, &[], &datagram),
        links::ip6(17, &datagram),
        links::ip6(60, &extended),
    ] {
        for (i, (link, frame)) in links::on_all_links(&packet).into_iter().enumerate() {
            let mut pcap = weir_testkit::savefile::Pcap::new(link.into(), 65_535);
            pcap.packet(&frame);
            let file = scratch.file("link.pcap", &pcap.bytes);
            let expected = (
                Some(0),
                "www.example 1\n1 names\n".to_owned(),
                String::new(),
            );
            assert_eq!(
                run(&program, &[&file]),
                expected,
                "frame {i}, link type {link}"
            );
        }
    }
}

/// Names as the sample shows them, most frequent first.
fn ranked(names: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    let mut ranked: Vec<_> = counts.iter().collect();
    ranked.sort_by_key(|(name, times)| (std::cmp::Reverse(**times), *name));
    let lines: String = ranked
        .iter()
        .take(10)
        .map(|(name, times)| format!("{name} {times}\n"))
        .collect();
    format!("{lines}{} names\n", counts.len())
}

/// tshark is the oracle: the questions that are no part of an answer, of an error message or of a tunnel.
#[test]
fn names_in_questions_of_captures_are_those_of_tshark() {
    let test = "names_in_questions_of_captures_are_those_of_tshark";
    if !have(test, &["cc", "tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, "dns_names", false);
    let asked = "udp.dstport == 53 && dns.flags.response == 0 && !icmp && !icmpv6 && !gre && !vxlan && !gtp";
    let mut found = 0;
    for path in captures(test) {
        let mut tshark = Command::new("tshark");
        tshark.args([
            "-n",
            "-o",
            "ip.defragment:FALSE",
            "-Y",
            asked,
            "-T",
            "fields",
            "-e",
            "dns.qry.name",
            "-r",
        ]);
        let done = tshark.arg(&path).output().unwrap();
        let (code, out, _) = run(&program, &[path.to_str().unwrap()]);
        if code != Some(0) || !done.status.success() {
            continue;
        }
        let text = String::from_utf8_lossy(&done.stdout).to_lowercase();
        // The root has no name, and the first question counts.
        let names = text
            .lines()
            .map(|line| line.split(',').next().unwrap_or_default().to_owned());
        let names: Vec<String> = names
            .filter(|name| !name.is_empty() && name != "<root>")
            .collect();
        // Letters of damaged questions are shown in other ways.
        let is_plain = |name: &String| {
            name.bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || b".-_".contains(&letter))
        };
        if !names.iter().all(is_plain) {
            continue;
        }
        found += names.len();
        assert_eq!(out, ranked(names.into_iter()), "{}", path.display());
    }
    println!("{found} questions");
}

/// Questions over IPv4 and IPv6, tagged or not; answers, cut names and other ports among them.
fn questions() -> Vec<u8> {
    let mut pcap = weir_testkit::savefile::Pcap::new(1, 65_535);
    let names: [&[u8]; 4] = [
        b"\x03www\x07example\x03com\0",
        b"\x03WWW\x07Example\x03cOm\0",
        b"\x07example\x03org\0",
        b"\x03a\0b\x07example\0",
    ];
    for i in 0..480usize {
        let mut frame = vec![0; 12];
        frame.extend(if i % 3 == 0 {
            &[0x81, 0, 0, 7][..]
        } else {
            &[]
        });
        if i % 2 == 0 {
            frame.extend([
                8, 0, 0x46, 0, 0, 80, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1,
                1,
            ]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, 17, 64]);
            frame.extend([1; 32]);
        }
        // Every second round of the names is no question.
        let (is_asked, kind) = (i / 4 % 2 == 0, i / 8 % 3);
        let port = if is_asked || kind > 0 { 53 } else { 54 };
        frame.extend([
            4,
            0,
            0,
            port,
            0,
            60,
            0,
            0,
            1,
            2,
            if is_asked || kind != 1 { 1 } else { 0x81 },
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        frame.extend(names[i % 4]);
        frame.extend([0, 1, 0, 1]);
        if !is_asked && kind == 2 {
            frame.truncate(frame.len() - 8);
            pcap.record(frame.len() as u32 + 8, &frame);
        } else {
            pcap.packet(&frame);
        }
    }
    pcap.bytes
}

#[test]
fn packets_around_a_trigger_are_written_once() {
    let test = "packets_around_a_trigger_are_written_once";
    if !have(test, &["cc", "tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut pcap = weir_testkit::savefile::Pcap::new(1, 65_535);
    let triggers = [0u32, 50, 7000, 7050, 7300, 39_990];
    for i in 0..40_000u32 {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0]);
        frame.extend([
            (i >> 8) as u8,
            i as u8,
            10,
            9,
            8,
            7,
            1,
            0,
            0,
            if triggers.contains(&i) { 53 } else { 80 },
            0,
            8,
            0,
            0,
        ]);
        pcap.packet(&frame);
    }
    let (file, out) = (scratch.file("a.pcap", &pcap.bytes), scratch.at("out.pcap"));
    let program = compiled(&scratch, "capture_on_trigger", false);
    let chosen: Vec<u32> = (0..40_000u32)
        .filter(|i| triggers.iter().any(|at| i.abs_diff(*at) <= 100))
        .collect();
    let expected = format!("40000 received, 6 triggers, {} written\n", chosen.len());
    assert_eq!(
        run(&program, &[&file, "dst port 53", &out]),
        (Some(0), expected, String::new())
    );
    let all = tcpdump(&["-r", &file]);
    assert!(
        tcpdump(&["-r", &out])
            .iter()
            .eq(chosen.iter().map(|&i| &all[i as usize]))
    );
}

#[test]
fn the_firewall_writes_what_tcpdump_would_pass() {
    let test = "the_firewall_writes_what_tcpdump_would_pass";
    if !have(test, &["cc", "tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let made = scratch.file("a.pcap", &capture());
    let rules = scratch.file("rules", b"10.0.0.1 17\n10.0.0.4 6\n10.0.0.9 17\n");
    let (made, out) = (made.as_str(), scratch.at("out.pcap"));
    let program = compiled(&scratch, "firewall", false);
    let dropped = "(udp and (src 10.0.0.1 or src 10.0.0.9)) or (tcp and src 10.0.0.4)";
    let passed = tcpdump(&["-r", made, &format!("not ({dropped})")]);
    let denied = 5000 - passed.len();
    let expected = format!("5000 received, {} passed, {denied} denied\n", passed.len());
    let arguments = [&rules, made, &out];
    assert_eq!(
        run(&program, &arguments),
        (Some(0), expected, String::new())
    );
    assert_eq!(tcpdump(&["-r", &out]), passed);
}

/// A wrong name or expression gives the line of the command, and its exit code.
#[test]
fn a_failure_has_the_line_that_the_command_prints() {
    let test = "a_failure_has_the_line_that_the_command_prints";
    if !have(test, &["cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, "count_by_port", false);
    let cut = scratch.file("cut.pcap", &capture()[..1000]);
    let good = scratch.file("good.pcap", &capture());
    let (cut, good) = (cut.as_str(), good.as_str());
    let found = |arguments: &[&str]| {
        let (code, _, line) = run(&program, arguments);
        (code.unwrap(), line)
    };
    assert_eq!(
        found(&["nowhere.pcap"]),
        (1, "weir: nowhere.pcap: no such file\n".to_owned())
    );
    let (code, line) = found(&[good, "port port"]);
    assert!(
        code == 2 && line.starts_with("weir: expression 'port port': "),
        "{line}"
    );
    let (code, line) = found(&[cut]);
    assert!(
        code == 1 && line.starts_with(&format!("weir: {cut}: packet 14, offset 934: ")),
        "{line}"
    );
    let (code, line) = found(&["af_packet:none0"]);
    assert!(code == 2 && line.starts_with("weir: none0: "), "{line}");
    let (code, line) = found(&["af_paket:eth0"]);
    assert!(
        code == 2 && line.contains("unknown capture method"),
        "{line}"
    );
}

/// A reader that goes away is a failure of the sink, and no signal for the program.
#[test]
fn a_pipe_without_a_reader_ends_no_program() {
    if !have("a_pipe_without_a_reader_ends_no_program", &["cc", "bash"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, "firewall", false);
    let mut bytes = capture();
    let records = bytes[24..].to_vec();
    // More than a pipe holds.
    (0..20).for_each(|_| bytes.extend(&records));
    let (file, rules) = (
        scratch.file("a.pcap", &bytes),
        scratch.file("rules", b"10.0.0.1 17\n"),
    );
    let line = format!(
        "trap - PIPE; '{}' '{rules}' '{file}' - | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        program.display()
    );
    // Rust's runtime ignores the signal, and a child inherits that: env gives it back.
    let done = Command::new("env")
        .args(["--default-signal=PIPE", "bash", "-c", &line])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert_eq!(
        (&out[..], &err[..]),
        ("1\n", "weir: the reader of the pipe is gone\n")
    );
}
