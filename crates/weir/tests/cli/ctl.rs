//! `weir ctl`: runs that are changed while packets arrive. What each change does is told by tcpdump, which reads the same packets.

use crate::capture::net::{Capture, Net};
use crate::support::*;
use serde_json::Value;
use std::fs;
use weir_testkit::wait;

/// Packets of a part of the traffic.
const PART: u32 = 300;

/// Frames of part `number`, to three ports in turn; each has a number of its own.
fn part(number: u32) -> Vec<Vec<u8>> {
    let frame = |i: u32| numbered([53, 80, 443][i as usize % 3], number * PART + i, 20);
    (0..PART).map(frame).collect()
}

/// A run at the near end, its traffic so far, and the files that hold this.
struct Changed {
    net: Net,
    temp: Temp,
    socket: String,
    run: Option<Capture>,
    parts: u32,
}

impl Changed {
    fn new(test: &str) -> Option<Self> {
        if !have(test, &["tcpdump"]) {
            return None;
        }
        let (net, temp) = (Net::new(test)?, Temp::new());
        let socket = temp.at("control");
        Some(Self {
            net,
            temp,
            socket,
            run: None,
            parts: 0,
        })
    }

    fn start(&mut self, arguments: &[&str]) {
        let more = ["--control", &self.socket];
        let run = self.net.capture(&[arguments, &more].concat());
        self.run = Some(run.until("control socket"));
    }

    /// Sends the next part, waits until the socket of the run has it, and returns the file with its packets.
    fn send(&mut self) -> String {
        let frames = part(self.parts);
        let records = frames
            .iter()
            .flat_map(|frame| pcap_record(1_700_000_000, frame));
        let bytes: Vec<u8> = pcap_header(65535, 1).into_iter().chain(records).collect();
        let file = self.temp.file(&format!("part{}.pcap", self.parts), &bytes);
        assert_eq!(self.net.send(&frames, 30), u64::from(PART));
        self.parts += 1;
        wait::until_handed_on();
        file
    }

    /// Waits until a measurement has counted all parts.
    fn counted(&mut self) {
        let run = self.run.take().unwrap();
        self.run = Some(run.until_received("near", u64::from(self.parts * PART)));
    }

    fn ctl(&self, setting: &[&str]) -> Done {
        weir([&["ctl", "--control", &self.socket, "set"], setting].concat())
    }

    fn stop(&mut self) -> Done {
        self.run.take().unwrap().stop()
    }
}

/// Numbers of the packets of these files that tcpdump selects, in order.
fn selected(temp: &Temp, parts: &[(&String, &str)]) -> Vec<u32> {
    let out = temp.at("oracle.pcap");
    let one = |(file, expression): &(&String, &str)| {
        tool("tcpdump", ["-r", file, "-w", &out, expression]).ok();
        numbers(&out)
    };
    parts.iter().flat_map(one).collect()
}

fn numbers(file: &str) -> Vec<u32> {
    records(file).iter().map(number).collect()
}

#[test]
fn a_measurement_is_changed_between_two_packets() {
    let test = "a_measurement_is_changed_between_two_packets";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    let (a, b) = (changed.temp.at("a.pcap"), changed.temp.at("b.pcap"));
    let c = changed.temp.at("none/c.pcap");
    let elsewhere = Temp::new();
    let d = elsewhere.at("d.pcap");
    changed.start(&[
        "measure",
        "af_packet:near",
        "--json",
        "--filter",
        "udp port 53",
        "-w",
        &a,
    ]);
    let first = changed.send();
    let text = changed.ctl(&["filter", "udp port 80"]).ok().text();
    assert_eq!(text, "in force: change 1\n");
    let second = changed.send();
    // What cannot be is refused, and changes nothing.
    for (setting, words) in [
        (&["filter", "udp prot 80"][..], "syntax error"),
        (&["output", "af_packet:near"], "is not a file"),
        (&["output", &b, "--split", "web"], "unknown split 'web'"),
        (&["memory", "1"], "memory"),
        (&["output", &c], "weir: /"),
        (&["output", &d], "new files may lie in"),
    ] {
        let done = changed.ctl(setting);
        assert_eq!(
            (done.code, done.err.lines().count()),
            (Some(1), 1),
            "{done:?}"
        );
        assert!(done.err.contains(words), "{setting:?}: {}", done.err);
        assert!(done.err.matches("c.pcap").count() < 2, "{}", done.err);
    }
    changed.counted();
    changed.ctl(&["key", "dport", "sport"]).ok();
    let third = changed.send();
    changed.counted();
    let done = changed.ctl(&["output", &b, "--json"]).ok();
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    assert_eq!(
        (&answer["type"], &answer["change"]),
        (&"change".into(), &3.into())
    );
    let fourth = changed.send();
    changed.counted();
    changed.ctl(&["filter", ""]).ok();
    changed.ctl(&["sketch", "exact"]).ok();
    changed.ctl(&["memory", "1M"]).ok();
    let fifth = changed.send();
    let done = changed.stop().ok();

    let port = |parts: &[(&String, &str)]| selected(&changed.temp, parts);
    let by_flow = port(&[(&first, "udp port 53"), (&second, "udp port 80")]);
    let by_port = port(&[(&third, "udp port 80"), (&fourth, "udp port 80")]);
    let last = port(&[(&fifth, "")]);
    let lines = done.text();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told = |line: &Value| {
        let number = |name: &str| line[name].as_u64();
        (number("change"), number("passed"))
    };
    let count = |numbers: &[u32]| Some(numbers.len() as u64);
    assert_eq!(lines.len(), 4, "{}", done.text());
    assert_eq!(told(&lines[0]), (Some(2), count(&by_flow)));
    assert_eq!(lines[0]["top"][0]["dst"], "10.0.0.2");
    assert_eq!(told(&lines[1]), (Some(5), count(&by_port)));
    assert_eq!(lines[1]["tops"]["dport"][0]["dport"], 80);
    assert_eq!(
        lines[1]["tops"]["dport"][0]["packets"].as_u64(),
        count(&by_port)
    );
    assert_eq!(told(&lines[2]), (Some(6), Some(0)));
    let summary = &lines[3];
    let before = by_flow.len() + by_port.len();
    assert_eq!(summary["received"], 5 * PART, "{summary}");
    assert_eq!(
        summary["passed"].as_u64(),
        Some((before + last.len()) as u64)
    );
    assert_eq!(summary["counted_before"].as_u64(), Some(before as u64));
    assert_eq!(summary["top"][0]["bound"]["kind"], "exact");
    let ports: Vec<u64> = (0..3)
        .map(|i| summary["top"][i]["packets"].as_u64().unwrap())
        .collect();
    assert_eq!(ports, [u64::from(PART) / 3; 3]);
    // Files have each packet once, the second one from the change on.
    assert_eq!(
        numbers(&a),
        [by_flow, port(&[(&third, "udp port 80")])].concat()
    );
    assert_eq!(
        numbers(&b),
        [port(&[(&fourth, "udp port 80")]), last].concat()
    );
    for words in [
        "from now on the filter is 'udp port 80' (change 1)",
        "a.pcap: complete with 300 packets, another file goes on (change 3)",
        "from now on all packets match (change 4)",
    ] {
        assert!(done.err.contains(words), "{words}: {}", done.err);
    }
    assert!(fs::metadata(&changed.socket).is_err(), "the socket is left");
    let over = changed.ctl(&["filter", "tcp"]);
    assert_eq!(over.code, Some(2));
    assert!(
        over.err.contains("no run of weir listens there"),
        "{}",
        over.err
    );
}

/// A full disk, for which a device of the kernel stands: the file that follows has all later packets, and the lost ones are told.
#[test]
fn packets_that_a_replaced_output_lost_are_told_with_it_and_in_the_summary() {
    let test = "packets_that_a_replaced_output_lost_are_told_with_it_and_in_the_summary";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    let b = changed.temp.at("b.pcap");
    changed.start(&["measure", "af_packet:near", "-w", "/dev/full"]);
    changed.send();
    changed.counted();
    changed.ctl(&["output", &b]).ok();
    changed.send();
    changed.counted();
    let done = changed.stop();
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert_eq!(numbers(&b).len() as u32, PART);
    for words in [
        "/dev/full: ended with 0 packets, 300 lost: failed, another file goes on (change 1)",
        "300 written to ",
        " and 1 file before it, 300 lost: failed",
    ] {
        assert!(done.err.contains(words), "{words}: {}", done.err);
    }
}

/// Windows of ten years: the change cuts the only one. Its rest is not late, and a program that adds has each packet once.
#[test]
fn windows_that_other_keys_cut_are_told_from_the_sum_of_the_packets_before() {
    let test = "windows_that_other_keys_cut_are_told_from_the_sum_of_the_packets_before";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    changed.start(&["measure", "af_packet:near", "--json", "--window", "3650d"]);
    for keys in ["dport", "sport", "dst"] {
        changed.send();
        changed.counted();
        changed.ctl(&["key", keys]).ok();
    }
    changed.send();
    changed.counted();
    let done = changed.stop().ok();
    let text = done.text();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let (sums, windows): (Vec<Value>, Vec<Value>) = lines
        .filter(|line: &Value| line["type"] == "window")
        .partition(|line| line["change"].is_u64());
    let part = |line: &Value| line["received"] == PART;
    assert!(sums.len() == 3 && sums.iter().all(part), "{text}");
    assert!(sums.iter().all(|sum| sum["window"].is_null()), "{text}");
    assert!(windows.len() == 4 && windows.iter().all(part), "{text}");
    let cuts: Vec<_> = windows
        .iter()
        .map(|window| window["cut"].as_u64())
        .collect();
    assert_eq!(cuts, [Some(1), Some(2), Some(3), None]);
    assert!(!done.err.contains("late"), "{}", done.err);
}

#[test]
fn a_recording_gets_another_filter_between_two_packets() {
    let test = "a_recording_gets_another_filter_between_two_packets";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    let directory = changed.temp.at("record");
    changed.start(&[
        "record",
        "af_packet:near",
        &directory,
        "--ram",
        "16M",
        "--disk",
        "64M",
        "--filter",
        "udp port 53",
    ]);
    let first = changed.send();
    changed.ctl(&["filter", "udp port 80"]).ok();
    let second = changed.send();
    for (setting, words) in [
        (&["key", "src"][..], "nothing is measured"),
        (&["output", "b.pcap"], "cannot be replaced"),
    ] {
        let done = changed.ctl(setting);
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert!(done.err.contains(words), "{setting:?}: {}", done.err);
    }
    let done = changed.stop().ok();
    assert!(
        done.err.contains("from now on the filter is 'udp port 80'"),
        "{}",
        done.err
    );
    let out = changed.temp.at("out.pcap");
    weir(["query", &directory, "", "-w", &out]).ok();
    let parts = [(&first, "udp port 53"), (&second, "udp port 80")];
    assert_eq!(numbers(&out), selected(&changed.temp, &parts));
    // A record of two filters does not tell one of them.
    let about = weir(["query", &directory, "", "--count", "--json"])
        .ok()
        .text();
    assert!(
        about.contains("requests may replace") && !about.contains("port 53"),
        "{about}"
    );
}

/// Rules whose sets are in a file of a directory that the sandbox of the run keeps closed.
fn other_rules(temp: &Temp) -> String {
    temp.file("there.txt", b"10.0.0.2 # the receiver\n");
    temp.file(
        "other.txt",
        b"set there file there.txt\ndrop dst $there udp dport 80\n",
    )
}

#[test]
fn a_measurement_gets_other_rules_between_two_packets() {
    let test = "a_measurement_gets_other_rules_between_two_packets";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    let elsewhere = Temp::new();
    let rules = changed.temp.file("rules.txt", b"drop udp dport 53\n");
    let a = changed.temp.at("a.pcap");
    changed.start(&[
        "measure",
        "af_packet:near",
        "--json",
        "--rules",
        &rules,
        "-w",
        &a,
    ]);
    let first = changed.send();
    changed.counted();
    let text = changed
        .ctl(&["rules", &other_rules(&elsewhere)])
        .ok()
        .text();
    assert_eq!(text, "in force: change 1\n");
    let second = changed.send();
    changed.counted();
    let large: String = (0..80_000)
        .map(|i| format!("10.{}.{}.{}\n", i >> 16, i >> 8 & 255, i & 254))
        .collect();
    let large = format!(
        "set large {}\ndrop src $large\n",
        large.replace('\n', " ").repeat(2)
    );
    for (text, code, words) in [
        (
            "drop udp\ndrop udp prot 80\n",
            1,
            "line 2: unknown condition",
        ),
        ("pass udp\n\ndrop expr 'udp prot 80'\n", 1, "line 3: "),
        ("drop to eth1\n", 1, "line 1: to names where packets leave"),
        ("# nothing\n", 1, "neither a rule nor"),
        (
            "set x file none.txt\ndrop src $x\n",
            2,
            "line 1: none.txt: no such file",
        ),
        (&large, 2, "and a request takes 1 048 576"),
    ] {
        let file = elsewhere.file("bad.txt", text.as_bytes());
        let done = changed.ctl(&["rules", &file]);
        let line = format!("weir: {file}");
        assert!(
            done.code == Some(code) && done.err.starts_with(&line) && done.err.contains(words),
            "{words}: {done:?}"
        );
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    let third = changed.send();
    changed.counted();
    let done = changed.stop().ok();
    let kept = [
        (&first, "not udp port 53"),
        (&second, "not udp port 80"),
        (&third, "not udp port 80"),
    ];
    let expected = selected(&changed.temp, &kept);
    assert_eq!(numbers(&a), expected);
    let text = done.text();
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["passed"].as_u64(), Some(expected.len() as u64));
    assert_eq!(summary["denied"], PART, "{summary}");
    assert!(
        done.err.contains("from now on 1 rule (change 1)"),
        "{}",
        done.err
    );
}

#[test]
fn a_recording_gets_other_rules_if_it_has_some() {
    let test = "a_recording_gets_other_rules_if_it_has_some";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    let elsewhere = Temp::new();
    let other = other_rules(&elsewhere);
    let rules = changed.temp.file("rules.txt", b"drop udp dport 53\n");
    let record = |name: &str| changed.temp.at(name);
    let (with, without) = (record("with"), record("without"));
    let sizes = ["--ram", "16M", "--disk", "64M"];
    let start = ["record", "af_packet:near", &with, "--rules", &rules];
    changed.start(&[&start[..], &sizes].concat());
    let first = changed.send();
    let third = u64::from(PART) / 3;
    let query = |directory: &str| {
        let count = weir(["query", directory, "", "--count"]).ok().text();
        count.trim().parse::<u64>().unwrap()
    };
    wait::until("the first packets in the record", || {
        query(&with) == 2 * third
    });
    changed.ctl(&["rules", &other]).ok();
    let second = changed.send();
    changed.stop().ok();
    let out = changed.temp.at("out.pcap");
    weir(["query", &with, "", "-w", &out]).ok();
    let kept = [(&first, "not udp port 53"), (&second, "not udp port 80")];
    assert_eq!(numbers(&out), selected(&changed.temp, &kept));
    let about = weir(["query", &with, "", "--count", "--json"]).ok().text();
    assert!(
        about.contains("rules.txt, which requests may replace"),
        "{about}"
    );

    changed.start(&[&["record", "af_packet:near", &without][..], &sizes].concat());
    let done = changed.ctl(&["rules", &other]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("no rules judge"), "{}", done.err);
    changed.stop().ok();
}

/// `weir filter` with a control socket: the next file, another expression, refusals.
#[test]
fn a_filter_begins_its_next_file_on_demand() {
    let test = "a_filter_begins_its_next_file_on_demand";
    let Some(mut changed) = Changed::new(test) else {
        return;
    };
    let (a, kept) = (changed.temp.at("a.pcap"), changed.temp.at("a.pcap1"));
    fs::write(&kept, "kept").unwrap();
    changed.start(&["filter", "udp", "af_packet:near", "-w", &a]);
    let rotate = ["ctl", "--control", &changed.socket, "rotate"].map(str::to_owned);
    let first = changed.send();
    assert_eq!(weir(rotate.clone()).ok().text(), "in force: change 1\n");
    let second = changed.send();
    changed.ctl(&["filter", "udp port 80"]).ok();
    let third = changed.send();
    weir(rotate.clone()).ok();
    let refused = weir([&rotate[..], &["--split".to_owned(), "web".to_owned()]].concat());
    assert!(refused.code == Some(1) && refused.err.contains("unknown split 'web'"));
    let done = changed.stop();
    assert!(
        done.err.contains("the next file begins (change 1)"),
        "{}",
        done.err
    );
    // Packets that had arrived and were not read yet are in the next file.
    let expected = selected(
        &changed.temp,
        &[(&first, "udp"), (&second, "udp"), (&third, "udp port 80")],
    );
    let parts =
        [a, changed.temp.at("a.pcap2"), changed.temp.at("a.pcap3")].map(|file| numbers(&file));
    assert_eq!(parts.concat(), expected);
    assert!(!parts[0].is_empty() && parts[0].iter().all(|&number| number < PART));
    assert!(!parts[1].is_empty());
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
}
