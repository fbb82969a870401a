//! Ports as sinks: tcpdump or another capture at the other end of the cable must receive the packets that were sent.

use crate::capture::net::{Capture, Net};
use crate::support::*;
use std::io::Write;
use std::time::{Duration, Instant};
use weir_testkit::wait;

/// Datagrams of growing sizes, each with its number. Every other datagram goes to port 53.
fn frames(count: u32) -> Vec<Vec<u8>> {
    let port = |number: u32| if number.is_multiple_of(2) { 53 } else { 80 };
    (0..count)
        .map(|number| numbered(port(number), number, 18 + number as usize % 1400))
        .collect()
}

fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let records = frames
        .iter()
        .flat_map(|frame| pcap_record(1_700_000_000, frame));
    pcap_header(65_535, link)
        .into_iter()
        .chain(records)
        .collect()
}

fn data(records: Vec<Record>) -> Vec<Vec<u8>> {
    records.into_iter().map(|record| record.data).collect()
}

/// tcpdump at the far end, writing to `path`. In immediate mode each packet takes the room of the largest possible one. A
/// smaller snap length therefore leaves room for more packets.
fn tcpdump(net: &Net, path: &str) -> Capture {
    let way = [
        "tcpdump",
        "--immediate-mode",
        "-Z",
        "root",
        "-n",
        "-i",
        "far",
        "-B",
        "32768",
        "-s",
        "4096",
        "--nano",
    ];
    net.start_at("far", &[&way[..], &["-w", path]].concat(), "listening on")
}

/// tcpdump's count of captured packets, and the records in its file.
fn captured(rival: Capture, path: &str) -> (u64, Vec<Record>) {
    let done = rival.stop().ok();
    let count = done
        .err
        .lines()
        .find_map(|line| line.strip_suffix(" packets captured"))
        .expect("its count");
    (
        count.parse().unwrap(),
        parse_pcap(&std::fs::read(path).unwrap()).1,
    )
}

/// Number before a word in the last line.
#[track_caller]
fn told(done: &Done, word: &str) -> u64 {
    let line = done.err.lines().last().expect("a summary");
    let part = line
        .split(", ")
        .find_map(|part| part.strip_suffix(word))
        .unwrap_or_else(|| panic!("{}", done.err));
    part.replace(' ', "")
        .parse()
        .unwrap_or_else(|_| panic!("{}", done.err))
}

#[test]
fn what_matches_arrives_as_it_was_and_in_order() {
    let test = "what_matches_arrives_as_it_was_and_in_order";
    let Some(net) = Net::new(test) else { return };
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let all = frames(3000);
    let file = temp.file("all.pcap", &pcap(1, &all));
    let even: Vec<_> = all.iter().step_by(2).cloned().collect();
    for port in ["af_packet:near", "af_xdp:near", "af_xdp:near:0"] {
        let path = temp.at("far.pcap");
        let rival = tcpdump(&net, &path);
        let done = net.weir(&["filter", "udp port 53", &file, "-w", port]).ok();
        assert_eq!(told(&done, " sent"), 1500, "{}", done.err);
        let (count, found) = captured(rival, &path);
        assert_eq!(count, 1500, "{port}");
        assert!(data(found) == even, "{port}");
    }
    // A port beside a file, and a file with the name of a port.
    let path = temp.at("far.pcap");
    let rival = tcpdump(&net, &path);
    let (out, null) = (temp.at("out.pcap"), temp.at("null"));
    let split = [
        "--split",
        "af_packet:near=udp port 80",
        "--split",
        "null=udp port 53",
    ];
    let done = net
        .weir(&[&["filter", "", &file, "-w", &out], &split[..]].concat())
        .ok();
    assert_eq!(
        (told(&done, " sent"), told(&done, " thrown away")),
        (1500, 1500)
    );
    assert!(
        data(captured(rival, &path).1)
            == all.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>()
    );
    assert_eq!(data(records(&out)), all);
    assert_eq!(
        told(
            &net.weir(&["filter", "udp port 53", &file, "-w", "null"])
                .ok(),
            " thrown away"
        ),
        1500
    );
    net.weir(&["filter", "udp port 53", &file, "-w", &null])
        .ok();
    assert_eq!(data(records(&null)), even);
}

#[test]
fn packets_are_passed_on_while_more_may_come() {
    let Some(net) = Net::new("packets_are_passed_on_while_more_may_come") else {
        return;
    };
    net.second_cable();
    let temp = Temp::new();
    let out = temp.at("two.pcap");
    let all = frames(201);
    // The capture ends by itself, because the forwarder sends all packets, although the last batch is not full.
    let end = net.capture(&["filter", "", "two", "-w", &out, "-c", "101"]);
    let between = net.capture(&[
        "filter",
        "udp port 53",
        "near",
        "-w",
        "af_packet:one",
        "-s",
        "1000",
    ]);
    assert_eq!(net.send(&all, 7), 201);
    end.done().ok();
    let done = between.stop().ok();
    assert_eq!(told(&done, " sent"), 101, "{}", done.err);
    assert_eq!(
        data(records(&out)),
        all.iter().step_by(2).cloned().collect::<Vec<_>>()
    );
    assert!(!done.err.contains("cut"), "{}", done.err);
}

#[test]
fn packets_that_do_not_fit_are_told_of() {
    let test = "packets_that_do_not_fit_are_told_of";
    let Some(net) = Net::new(test) else { return };
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let mut all = frames(20);
    all[3] = udp(53, 1473);
    all[9] = udp(53, 3000);
    all[12] = vec![2; 13];
    let file = temp.file("all.pcap", &pcap(1, &all));
    for port in ["af_packet:near", "af_xdp:near"] {
        let path = temp.at("far.pcap");
        let rival = tcpdump(&net, &path);
        let done = net.weir(&["filter", "", &file, "-w", port, "-U"]);
        assert_eq!(done.code, Some(1), "{}", done.err);
        let lines = [
            "2 packets not sent: longer than the interface takes (MTU 1500)",
            "1 packet not sent: shorter than a link header",
        ];
        for line in lines {
            assert!(
                done.err.contains(&format!("weir: {port}: {line}\n")),
                "{}",
                done.err
            );
        }
        assert_eq!(told(&done, " sent"), 17, "{}", done.err);
        let fit = [&all[..3], &all[4..9], &all[10..12], &all[13..]].concat();
        assert!(data(captured(rival, &path).1) == fit, "{port}");
    }
    let done = net.weir(&["filter", "", &file, "-w", "af_packet:near", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&done.text()).unwrap();
    assert_eq!(
        (&object["taken"], &object["lost"]),
        (
            &17.into(),
            &serde_json::json!({ "too_long": 2, "too_short": 1 })
        )
    );
    let path = temp.at("cut.pcap");
    let rival = tcpdump(&net, &path);
    let done = net
        .weir(&[
            "filter",
            "",
            &file,
            "-w",
            "af_packet:near",
            "-s",
            "64",
            "-c",
            "9",
        ])
        .ok();
    let cut: Vec<_> = all[..9]
        .iter()
        .map(|frame| frame[..frame.len().min(64)].to_vec())
        .collect();
    let shorter = all[..9].iter().filter(|frame| frame.len() > 64).count();
    let line = format!(
        "af_packet:near: {shorter} packets were cut and were sent shorter than they were\n"
    );
    assert!(done.err.contains(&line), "{}", done.err);
    assert!(data(captured(rival, &path).1) == cut);
}

#[test]
fn generated_packets_leave_at_their_times() {
    let test = "generated_packets_leave_at_their_times";
    let Some(net) = Net::new(test) else { return };
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let file = temp.at("file.pcapng");
    let options = [
        "--packets",
        "400",
        "--rate",
        "1000",
        "--seed",
        "3",
        "--truth",
    ];
    let truth = weir([&["generate", &file], &options[..]].concat()).ok();
    let expected = records(&file);
    for port in ["af_packet:near", "af_xdp:near"] {
        let path = temp.at("far.pcap");
        let rival = tcpdump(&net, &path);
        let counter = net.start_at(
            "far",
            &[env!("CARGO_BIN_EXE_weir"), "filter", "", "far", "--count"],
            "AF_PACKET",
        );
        let done = net.weir(&[&["generate", port], &options[..]].concat()).ok();
        assert_eq!(done.out, truth.out);
        assert_eq!(
            (told(&done, " refused"), counter.stop().ok().count()),
            (0, 400)
        );
        assert!(done.err.contains("\n400 sent, "), "{}", done.err);
        let (count, found) = captured(rival, &path);
        assert_eq!((count, found.len()), (400, 400));
        let since = |records: &[Record], i: usize| records[i].time_ns - records[0].time_ns;
        for i in 0..400 {
            assert_eq!(found[i].data, expected[i].data, "{port} {i}");
            // The first packet may be late by up to 20 ms; no other is earlier than that allows.
            assert!(
                since(&found, i) + 20_000_000 >= since(&expected, i),
                "{port} {i}"
            );
        }
    }
    for (port, packets) in [("af_packet:near", "20000"), ("af_xdp:near:0", "20000")] {
        let counter = net.start_at(
            "far",
            &[env!("CARGO_BIN_EXE_weir"), "filter", "", "far", "--count"],
            "AF_PACKET",
        );
        let done = net
            .weir(&[
                "generate",
                port,
                "--packets",
                packets,
                "--rate",
                "max",
                "--sizes",
                "60",
            ])
            .ok();
        assert!(done.err.contains("\n20 000 sent, "), "{}", done.err);
        assert_eq!(counter.stop().ok().count(), 20_000);
    }
}

#[test]
fn the_truth_about_packets_that_were_not_sent_is_left_out() {
    let Some(net) = Net::new("the_truth_about_packets_that_were_not_sent_is_left_out") else {
        return;
    };
    net.inside("near", &["ip", "link", "set", "near", "mtu", "1000"])
        .ok();
    for what in [&["--truth"][..], &["--talkers", "3"]] {
        for port in ["af_packet:near", "af_xdp:near"] {
            let generate = |sizes: &str| {
                let more = ["--packets", "300", "--rate", "max", "--sizes", sizes];
                net.weir(&[&["generate", port], &more[..], what].concat())
            };
            let whole = generate("500").ok();
            assert!(
                !whole.out.is_empty() && whole.err.contains("\n300 sent, "),
                "{}",
                whole.err
            );
            let done = generate("mwn");
            let left_out = 300 - told_first(&done);
            let line = format!(
                "weir: {port}: --truth and --talkers are left out: they would count {left_out} packets not sent\n"
            );
            assert!(left_out > 0 && done.err.contains(&line), "{}", done.err);
            assert_eq!(
                (done.code, done.text().as_str()),
                (Some(1), ""),
                "{}",
                done.err
            );
        }
    }
}

#[test]
fn sending_ends_with_its_count_when_interrupted_or_when_the_interface_goes() {
    let Some(net) =
        Net::new("sending_ends_with_its_count_when_interrupted_or_when_the_interface_goes")
    else {
        return;
    };
    let generator = |port: &str, bytes: &str| {
        // Packets of this size at the other end show that the generator sends, whatever other packets are sent.
        let size = format!("len == {bytes}");
        let seen = [
            env!("CARGO_BIN_EXE_weir"),
            "filter",
            &size,
            "far",
            "--count",
            "-c",
            "100",
        ];
        let seen = net.start_at("far", &seen, "AF_PACKET");
        let sending = [
            env!("CARGO_BIN_EXE_weir"),
            "generate",
            port,
            "--rate",
            "5000",
            "--sizes",
            bytes,
        ];
        let sending = net.start_at("near", &sending, "");
        seen.done().ok();
        sending
    };
    for port in ["af_packet:near", "af_xdp:near"] {
        let counter = net.start_at(
            "far",
            &[env!("CARGO_BIN_EXE_weir"), "filter", "", "far", "--count"],
            "AF_PACKET",
        );
        let sending = generator(port, "100");
        sending.signal("-INT");
        let done = sending.done().ok();
        assert!(
            done.err.ends_with(" refused, interrupted\n"),
            "{}",
            done.err
        );
        let sent = told_first(&done);
        assert!(sent >= 100);
        assert_eq!(counter.stop().ok().count(), sent);
    }
    let sending = generator("af_packet:near", "100");
    net.inside("near", &["ip", "link", "set", "near", "down"])
        .ok();
    let done = sending.done();
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err
            .contains("the interface went down: sudo ip link set near up; "),
        "{}",
        done.err
    );
    net.inside("near", &["ip", "link", "set", "near", "up"])
        .ok();
    let sending = generator("af_xdp:near", "100");
    let other = generator("af_packet:near", "200");
    net.inside("near", &["ip", "link", "del", "near"]).ok();
    for (port, sending) in [("af_xdp:near", sending), ("af_packet:near", other)] {
        let done = sending.done();
        assert_eq!(done.code, Some(1), "{}", done.err);
        let sent = done
            .err
            .lines()
            .last()
            .unwrap()
            .split(" sent, ")
            .next()
            .unwrap()
            .replace(' ', "");
        assert!(sent.parse::<u64>().unwrap() >= 100, "{}", done.err);
        let start = format!("weir: {port}: the interface is gone; ");
        let line = done
            .err
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap_or_else(|| panic!("{}", done.err));
        assert_eq!(
            line.replace(' ', ""),
            format!("{sent}packetsweresentbeforethat")
        );
    }
}

/// What was due while a sender was stopped does not leave in a burst: the rest takes as long as it would have.
#[test]
fn a_sender_that_was_stopped_goes_on_at_its_rate() {
    let test = "a_sender_that_was_stopped_goes_on_at_its_rate";
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let file = temp.file("sent.pcap", &pcap(1, &frames(800)));
    let generate = ["generate", "af_packet:near", "--profile", "64"];
    let generate = [&generate[..], &["--packets", "800"]].concat();
    let replay = ["replay", &file, "--to", "af_packet:near"];
    for (words, before) in [(&generate[..], 0), (&replay, 800)] {
        let weir = env!("CARGO_BIN_EXE_weir");
        let words = [&[weir], words, &["--rate", "1kpps", "--strict"]].concat();
        let begun = Instant::now();
        let sending = net.start(&words, "packets leave by near");
        wait::until("packets", || net.received("far", "far") > before);
        sending.signal("-STOP");
        let stopped = Instant::now();
        wait::throughout(Duration::from_millis(1200), "no end", || {
            net.received("far", "far") < before + 800
        });
        let halt = stopped.elapsed();
        sending.signal("-CONT");
        let done = sending.done();
        let took = begun.elapsed();
        // Packets are a millisecond apart, so that one was due soon after the halt began.
        let least = Duration::from_millis(799 - 50) + halt;
        assert!(took > least, "{took:?}, {}", done.err);
        assert!(
            done.err.contains("no packet could leave for "),
            "{}",
            done.err
        );
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert_eq!(net.received("far", "far"), before + 800);
    }
}

/// Workers keep one rate together: tcpdump receives each packet of a single sender once, and the last leaves when it is due there.
#[test]
fn workers_at_a_rate_send_the_packets_of_one() {
    let test = "workers_at_a_rate_send_the_packets_of_one";
    let Some(net) = Net::new(test) else { return };
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let (file, path) = (temp.at("one.pcap"), temp.at("far.pcap"));
    for rate in ["20kpps", "80Mbit/s"] {
        let asked = ["--profile", "mwn", "--packets", "2021", "--rate", rate];
        let generate = |words: &[&str]| {
            let done = net.weir(&[&["generate"], words, &asked[..]].concat()).ok();
            let part = |begin: &str| {
                let parts = done.err.lines().last().unwrap().split(", ");
                let part = parts.into_iter().find_map(|part| part.strip_prefix(begin));
                part.unwrap_or_default().to_owned()
            };
            let seconds = done.err.split(" s, ").next().unwrap();
            let seconds: f64 = seconds.rsplit(' ').next().unwrap().parse().unwrap();
            (part("digest "), seconds)
        };
        net.weir(&[&["generate", &file], &asked[..]].concat()).ok();
        let rival = tcpdump(&net, &path);
        let (digest, seconds) = generate(&["af_packet:near", "--digest", "--workers", "3"]);
        let (count, found) = captured(rival, &path);
        assert_eq!((count, &digest), (2021, &generate(&["null", "--digest"]).0));
        let sorted = |records: Vec<Record>| {
            let mut all = data(records);
            all.sort_unstable();
            all
        };
        let one = records(&file);
        let last_ns = one[2020].time_ns - one[0].time_ns;
        // To the hundredth that is printed.
        assert!(seconds >= last_ns as f64 / 1e9 - 0.01, "{rate}: {seconds}");
        assert!(sorted(found) == sorted(one), "{rate}");
    }
    let fast = ["--packets", "3000000", "--rate", "1Gpps", "--workers", "2"];
    let words = ["generate", "null", "--profile", "64", "--strict"];
    let done = net.weir(&[&words[..], &fast].concat());
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.err.contains("the rate was not held: "), "{}", done.err);
}

/// Packets that leave more slowly than asked for are told while they leave, once in a spell, by every sender in the same words.
#[test]
fn a_rate_that_is_not_held_is_told_while_packets_leave() {
    let test = "a_rate_that_is_not_held_is_told_while_packets_leave";
    if !have(test, &["tc"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    // The interface takes a tenth of the rate.
    let bucket = ["rate", "1mbit", "burst", "4kb", "limit", "8kb"];
    let shaped = ["tc", "qdisc", "add", "dev", "near", "root", "tbf"];
    let shaped = net.inside("near", &[&shaped[..], &bucket].concat());
    if shaped.code != Some(0) {
        return skipped(test, shaped.err.trim());
    }
    let temp = Temp::new();
    let file = temp.file("sent.pcap", &pcap(1, &frames(800)));
    let generate = ["generate", "af_packet:near", "--profile", "64"];
    let slow = ["--rate", "20kpps", "--strict"];
    let receiving = [&generate[..], &slow, &["--receive", "netns:FAR/far"]].concat();
    let far = format!("netns:{}/far", net.name("far"));
    let receiving: Vec<&str> = receiving
        .into_iter()
        .map(|word| if word == "netns:FAR/far" { &far } else { word })
        .collect();
    let replay = ["replay", &file, "--to", "near", "--loop", "--strict"];
    let inject = ["generate", "inject:near", "--rate", "100Mpps", "--strict"];
    for (port, words) in [
        ("af_packet:near", receiving),
        (
            "af_packet:near",
            [&replay[..], &["--rate", "20kpps"]].concat(),
        ),
        ("inject:near", inject.to_vec()),
    ] {
        if port == "inject:near" && !net.injects() {
            continue;
        }
        let weir = env!("CARGO_BIN_EXE_weir");
        let line = format!("weir: {port}: the rate is not held: ");
        let done = net.start(&[&[weir], &words[..]].concat(), &line).stop();
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert_eq!(
            done.err.matches("the rate is not held").count(),
            1,
            "{}",
            done.err
        );
        let (before, after) = done.err.split_once(&line).expect("it was waited for");
        assert!(
            !before.contains(" sent, ") && !before.contains("was not held"),
            "{before}"
        );
        assert!(after.contains("the rate was not held: "), "{after}");
        assert!(after.contains("interrupted"), "{after}");
    }
}

/// Frames that wait for a full batch are sent before those of the next window of a mapped file: their error is that of the port.
#[test]
fn a_port_that_fails_between_two_windows_of_a_mapped_file_is_reported() {
    let Some(net) = Net::new("a_port_that_fails_between_two_windows_of_a_mapped_file_is_reported")
    else {
        return;
    };
    let temp = Temp::new();
    let fifo = temp.at("fifo");
    tool("mkfifo", [&fifo]).ok();
    // More than a window of 16 MiB between the packets that match.
    let (few, others) = (
        pcap_record(1, &udp(53, 18)).repeat(10),
        pcap_record(1, &udp(80, 1400)).repeat(14_000),
    );
    let file = temp.file(
        "large.pcap",
        &[&pcap_header(65_535, 1)[..], &few, &others, &few].concat(),
    );
    let sending = [
        env!("CARGO_BIN_EXE_weir"),
        "filter",
        "udp port 53",
        &fifo,
        &file,
        "-w",
        "af_packet:near",
    ];
    let sending = net.start_at("near", &sending, "");
    // The run has opened the port once it reads the pipe.
    let mut pipe = std::fs::File::options().write(true).open(&fifo).unwrap();
    pipe.write_all(&pcap_header(65_535, 1)).unwrap();
    pipe.write_all(&few).unwrap();
    net.inside("near", &["ip", "link", "set", "near", "down"])
        .ok();
    drop(pipe);
    let done = sending.done();
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err
            .contains("the interface went down: sudo ip link set near up"),
        "{}",
        done.err
    );
    assert!(!done.err.contains("does not add up"), "{}", done.err);
}

/// Number at the beginning of the summary.
#[track_caller]
fn told_first(done: &Done) -> u64 {
    let line = done.err.lines().last().expect("a summary");
    line.split(" sent, ")
        .next()
        .and_then(|n| n.replace(' ', "").parse().ok())
        .unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn what_is_injected_is_received_and_numbered() {
    let Some(net) = Net::new("what_is_injected_is_received_and_numbered") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("near.pcap");
    let capture = net.capture(&["filter", "udp dst port 9", "near", "-w", &out]);
    let options = [
        "--packets",
        "3000",
        "--sizes",
        "100",
        "--flows",
        "7",
        "--rate",
        "20000",
    ];
    let done = net.weir(&[&["generate", "inject:near"], &options[..]].concat());
    if done.code == Some(1) && done.err.contains("Linux 5.18") || done.code == Some(2) {
        skipped("what_is_injected_is_received_and_numbered", done.err.trim());
        return;
    }
    assert!(done.ok().err.contains("\n3 000 injected, 300 000 bytes, "));
    capture.stop().ok();
    let found = records(&out);
    assert_eq!(found.len(), 3000);
    for (i, record) in found.iter().enumerate() {
        let number = |at: usize, len: usize| {
            record.data[at..at + len]
                .iter()
                .fold(0, |n, &byte| n << 8 | u64::from(byte))
        };
        assert_eq!(
            (record.data.len(), number(42, 8), number(34, 2)),
            (100, i as u64, i as u64 % 7)
        );
    }
    let first = found[0].time_ns;
    assert!(found.last().unwrap().time_ns - first >= 2999 * 50_000 - 20_000_000);
}

#[test]
fn the_pace_needs_no_port() {
    let begun = std::time::Instant::now();
    let done = weir([
        "generate",
        "null",
        "--packets",
        "300",
        "--rate",
        "1000",
        "--sizes",
        "60",
        "--flows",
        "1",
    ])
    .ok();
    let took = begun.elapsed();
    assert!(done.err.starts_with("300 thrown away, "), "{}", done.err);
    let temp = Temp::new();
    let file = temp.at("same.pcapng");
    weir([
        "generate",
        &file,
        "--packets",
        "300",
        "--rate",
        "1000",
        "--sizes",
        "60",
        "--flows",
        "1",
    ])
    .ok();
    let expected = records(&file);
    let time_ns = expected.last().unwrap().time_ns - expected[0].time_ns;
    assert!(
        (250_000_000..350_000_000).contains(&time_ns) && took.as_nanos() as u64 >= time_ns,
        "{took:?} {time_ns}"
    );
}

#[test]
fn ports_that_cannot_be_had_are_refused_in_a_line() {
    let Some(net) = Net::new("ports_that_cannot_be_had_are_refused_in_a_line") else {
        return;
    };
    net.second_cable();
    let temp = Temp::new();
    let file = temp.file("small.pcap", &small_pcap(3));
    let raw = temp.file("raw.pcap", &pcap(101, &[udp(1, 4)[14..].to_vec()]));
    let check = |code: i32, arguments: &[&str], words: &str| {
        let done = net.weir(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.err);
        let lines: Vec<_> = done
            .err
            .lines()
            .filter(|line| line.starts_with("weir: "))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(words),
            "{arguments:?}: {}",
            done.err
        );
    };
    net.inside("near", &["ip", "link", "set", "one", "down"])
        .ok();
    for way in ["af_packet", "af_xdp"] {
        let [nix, down] = ["nix", "one"].map(|name| format!("{way}:{name}"));
        for command in [&["generate"][..], &["filter", "", &file, "-w"]] {
            check(
                2,
                &[command, &[&nix]].concat(),
                &format!("{nix}: no such network interface: weir filter -D lists"),
            );
            let line = format!("{down}: the interface is down: sudo ip link set one up");
            check(2, &[command, &[&down]].concat(), &line);
        }
    }
    check(
        2,
        &["filter", "", &file, "-w", "af_xdp:near:x"],
        "x is not a queue number",
    );
    check(
        2,
        &["filter", "", &file, "-w", "inject:near"],
        "injected by weir generate inject:near",
    );
    check(
        2,
        &["filter", "", &file, "-w", "null", "-C", "1"],
        "-C and -G make files, and null is none",
    );
    check(
        2,
        &["filter", "", "near", "-w", "af_packet:near"],
        "near captures what af_packet:near sends",
    );
    check(
        2,
        &["filter", "", "any", "-Q", "out", "-w", "af_xdp:near:0"],
        "add -Q in",
    );
    let twice = ["-w", "af_packet:near", "--split", "af_packet:near=udp"];
    check(
        2,
        &[&["filter", "", &file], &twice[..]].concat(),
        "af_packet:near is the name of two outputs",
    );
    check(
        2,
        &["generate", "file.pcap", "--rate", "max"],
        "--rate max is for ports",
    );
    check(
        2,
        &["generate", "inject:near", "--sizes", "mwn"],
        "--sizes takes a number of bytes, and not mwn",
    );
    check(
        2,
        &["generate", "inject:near", "--truth"],
        "repeats one frame",
    );
    check(
        2,
        &["generate", "inject:nix"],
        "inject:nix: no such network interface",
    );
    if !cfg!(feature = "dpdk") {
        check(
            2,
            &["generate", "dpdk:net_null0"],
            "dpdk:net_null0: this weir was built without DPDK: cargo build",
        );
    }
    for port in ["af_packet:near", "af_xdp:near"] {
        let words =
            format!("{port}: packets of link type RAW cannot be sent here, only those of EN10MB");
        check(1, &["filter", "", &raw, "-w", port], &words);
    }
    if have("no capability", &["setpriv"]) {
        let weir = env!("CARGO_BIN_EXE_weir");
        for (port, capabilities) in [
            ("af_packet:near", "cap_net_raw"),
            ("af_xdp:near", "cap_net_raw"),
            ("inject:near", "cap_bpf,cap_net_admin"),
        ] {
            let bare = "-net_raw,-net_admin,-sys_admin,-bpf";
            let bare = [
                "setpriv",
                "--bounding-set",
                bare,
                "--inh-caps",
                bare,
                weir,
                "generate",
                port,
            ];
            let done = net.inside("near", &bare);
            assert_eq!(done.code, Some(2), "{}", done.err);
            let what = format!(": sudo setcap {capabilities}=ep /");
            assert!(
                done.err.contains(" needs CAP_") && done.err.contains(&what),
                "{}",
                done.err
            );
        }
    }
}
