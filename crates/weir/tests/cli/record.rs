//! Recording: what triggers save is compared with a list of all packets, and read by tcpdump, capinfos and tshark.

mod disk;
mod saved;
mod scans;

use crate::capture::net::Net;
use crate::recording::*;
use crate::support::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Second of the first packet of [`small_pcap`].
const BEGIN: u32 = 1_700_000_000;

/// Destination ports of the UDP datagrams of a file, as tcpdump reads it.
fn ports(file: &str) -> Vec<u16> {
    let lines = tool("tcpdump", ["-nttr", file]).ok().text();
    // What follows depends on the port.
    let port = |line: &str| {
        line.split_once("> ")?
            .1
            .split_once(':')?
            .0
            .rsplit('.')
            .next()?
            .parse()
            .ok()
    };
    lines
        .lines()
        .map(|line| port(line).unwrap_or_else(|| panic!("{line}")))
        .collect()
}

fn comment(file: &str) -> String {
    let about = tool("capinfos", ["-k", file]).ok().text();
    about
        .split_once("comment:")
        .map(|(_, text)| text.trim().to_owned())
        .unwrap_or_default()
}

/// The totals add up for a reader who sees nothing else.
#[test]
fn what_the_filter_rejects_is_in_the_totals_of_a_recorder() {
    let temp = Temp::new();
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    std::fs::write(&file, small_pcap(600)).unwrap();
    let filter = ["--filter", "udp portrange 1-200"];
    let done = weir(["record", &file, &out].into_iter().chain(filter)).ok();
    let totals = "600 received, 200 recorded, 400 filtered, 0 dropped";
    assert!(done.err.contains(totals), "{}", done.err);
}

#[test]
fn a_trigger_saves_what_came_before_and_after() {
    if !have(
        "a_trigger_saves_what_came_before_and_after",
        &["tcpdump", "capinfos"],
    ) {
        return;
    }
    let temp = Temp::new();
    // A datagram a second, to ports 1 to 600.
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    std::fs::write(&file, small_pcap(600)).unwrap();
    let trigger = "t=udp port 100 or udp port 104 or udp port 300";
    let done = weir([
        "record",
        &file,
        &out,
        "--trigger",
        trigger,
        "--before",
        "10s",
        "--after",
        "5s",
    ])
    .ok();
    let files = saved(&out, "t");
    // Port 104 came while the first file was not complete: it has the time after that one too.
    assert_eq!(files.len(), 2, "{}", done.err);
    for (file, port, last) in [(&files[0], 100, 109), (&files[1], 300, 305)] {
        assert_eq!(ports(file), (port - 10..=last).collect::<Vec<_>>());
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let cause = format!(
            "trigger t: a packet matches '{}' (10.0.0.1.4000 > 10.0.0.2.{port})",
            &trigger[2..]
        );
        assert_eq!(comment(file), cause);
        assert!(
            done.err
                .contains(&format!("{file}: {} packets; {cause}", last - port + 11)),
            "{}",
            done.err
        );
    }
    let again = "  the condition held again, for the last time 4.000s after the first\n";
    assert!(done.err.contains(again), "{}", done.err);
    assert_eq!(
        std::fs::metadata(&out).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert!(
        done.err.contains("600 received, 600 recorded, 0 dropped"),
        "{}",
        done.err
    );
    // A damaged stamp amid the span neither ends the file nor ages what is there.
    let mut damaged = std::fs::read(&file).unwrap();
    let record = 24 + 102 * (16 + 62);
    damaged[record..record + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    std::fs::write(&file, damaged).unwrap();
    let aged = temp.at("aged");
    let arguments = [
        "record",
        &file,
        &aged,
        "--trigger",
        trigger,
        "--before",
        "10s",
        "--after",
        "5s",
        "--age",
        "1h",
    ];
    weir(arguments).ok();
    assert_eq!(
        ports(&saved(&aged, "t")[0]),
        (90..=109).collect::<Vec<_>>(),
        "it arrived with those around it"
    );
    assert!(
        done.err
            .contains("trigger t: met 3 times, fired 2, 2 files with 36 packets"),
        "{}",
        done.err
    );
}

#[test]
fn what_is_kept_is_chosen() {
    if !have("what_is_kept_is_chosen", &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    // Each second a datagram each way of one conversation, and one of others.
    let mut bytes = pcap_header(65_535, 1);
    for second in 0..100u16 {
        let there = udp(53, 30);
        let mut back = there.clone();
        back[26..30].copy_from_slice(&[10, 0, 0, 2]);
        back[30..34].copy_from_slice(&[10, 0, 0, 1]);
        back[34..36].copy_from_slice(&53u16.to_be_bytes());
        back[36..38].copy_from_slice(&4000u16.to_be_bytes());
        let mut other = udp(1000 + second, 10);
        other[26..30].copy_from_slice(&[10, 0, 0, 3]);
        // The same host, another conversation.
        let same_host = udp(2000 + second, 10);
        for frame in [there, back, other, same_host] {
            bytes.extend(pcap_record(BEGIN + u32::from(second), &frame));
        }
    }
    let file = temp.at("all.pcap");
    std::fs::write(&file, bytes).unwrap();
    let trigger = "t=udp dst port 53 and src host 10.0.0.1";
    let cases = [
        ("all", ""),
        ("flow", "udp port 53 and udp port 4000"),
        ("host", "host 10.0.0.1"),
        ("udp portrange 1000-1099", "udp portrange 1000-1099"),
    ];
    for (keep, expression) in cases {
        let out = temp.at(&keep.replace(' ', "-"));
        let arguments = ["record", &file, &out, "--trigger", trigger, "--keep", keep];
        weir(
            arguments
                .into_iter()
                .chain(["--before", "3s", "--after", "2s", "--cooldown", "1h"]),
        )
        .ok();
        let [only] = &saved(&out, "t")[..] else {
            panic!("{keep}")
        };
        // The first packet fires: nothing is before it.
        let until = BEGIN + 2;
        let all = tool("tcpdump", ["-ttnr", &file, expression]).ok().text();
        let within = |line: &&str| line.split('.').next().unwrap().parse::<u32>().unwrap() <= until;
        let expected: Vec<_> = all.lines().filter(within).collect();
        assert!(!expected.is_empty());
        assert_eq!(
            tool("tcpdump", ["-ttnr", only])
                .ok()
                .text()
                .lines()
                .collect::<Vec<_>>(),
            expected,
            "{keep}"
        );
    }
}

#[test]
fn thresholds_and_intervals_fire() {
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    for second in 0..60u32 {
        // In second 20 a host sends a hundred datagrams, in second 40 one asks fifty others.
        let count = if second == 20 || second == 40 { 100 } else { 5 };
        for number in 0..count {
            let mut frame = udp(53, 20);
            if second == 40 {
                frame[29] = 9;
                frame[33] = 100 + number as u8 % 50;
            }
            bytes.extend(pcap_record(BEGIN + second, &frame));
        }
    }
    let file = temp.at("all.pcap");
    std::fs::write(&file, bytes).unwrap();
    let record = |name: &str, options: &[&str]| {
        let out = temp.at(name);
        let arguments = [
            "record", &file, &out, "--before", "1s", "--after", "0s", "--keep", "host", "--json",
        ];
        let done = weir(arguments.iter().chain(options)).ok();
        let objects: Vec<Value> = done
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (end, files) = objects.split_last().unwrap();
        assert_eq!(end["received"], 5 * 58 + 200, "{end}");
        assert!(
            files.iter().all(|file| file["fault"].is_null()),
            "{files:?}"
        );
        let causes = |file: &Value| {
            (
                file["cause"].as_str().unwrap().to_owned(),
                file["packets"].as_u64().unwrap(),
            )
        };
        files.iter().map(causes).collect::<Vec<_>>()
    };
    // The sixty-first packet of the second is the first above the threshold; all packets of that second are saved.
    let flood = record("flood", &["--threshold", "f=src>60 packets/s/1s"]);
    assert_eq!(flood.len(), 2);
    assert_eq!(flood[0].1, 105);
    assert!(
        flood[0]
            .0
            .starts_with("10.0.0.1: more than 60 packets/s in a window of 1s"),
        "{flood:?}"
    );
    assert!(
        flood[1].0.starts_with("10.0.0.9: more than 60"),
        "{flood:?}"
    );
    let scan = record("scan", &["--threshold", "s=src>40 peers/10s"]);
    assert_eq!(scan.iter().map(|file| file.1).collect::<Vec<_>>(), [100]);
    assert!(
        scan[0]
            .0
            .starts_with("10.0.0.9: 50 peers in 10s, more than 40"),
        "{scan:?}"
    );
    let growth = record("growth", &["--threshold", "g=total>10 times/1s"]);
    assert_eq!(growth.len(), 2, "{growth:?}");
    // Packets come from second 0 to 59.
    let every = record("every", &["--every", "20s"]);
    assert_eq!(
        every.iter().map(|file| file.0.as_str()).collect::<Vec<_>>(),
        ["the schedule"; 2]
    );
}

/// A file that may not grow any further ends at a whole packet, and a later one is written again.
#[test]
fn limits_of_files_are_kept_and_told() {
    let temp = Temp::new();
    let file = temp.at("all.pcap");
    std::fs::write(&file, small_pcap(600)).unwrap();
    let out = temp.at("out");
    let record = [
        "record",
        &file,
        &out,
        "--trigger",
        "t=udp port 300",
        "--before",
        "200s",
        "--after",
        "100s",
    ];
    let done = weir(record.into_iter().chain(["--max-size", "10k"])).ok();
    let [only] = &saved(&out, "t")[..] else {
        panic!("{}", done.err)
    };
    let kept = records(only);
    let len = std::fs::metadata(only).unwrap().len();
    assert!(
        (60..120).contains(&kept.len()) && len < 11 << 10,
        "{} in {len}",
        kept.len()
    );
    assert!(
        done.err.contains(&format!(
            "{} packets were left out: the file is as large as it may be",
            301 - kept.len()
        )),
        "{}",
        done.err
    );
    assert_eq!(
        kept.last().unwrap().time_ns,
        u64::from(BEGIN + 299) * 1_000_000_000,
        "the packet that fired"
    );
    assert_eq!(kept[0].time_ns, u64::from(BEGIN + 99) * 1_000_000_000);
    // The ring holds less than is asked for: the file says so.
    let (big, ring) = (temp.at("big.pcap"), temp.at("ring"));
    let mut bytes = pcap_header(65_535, 1);
    for second in 0..4000 {
        bytes.extend(pcap_record(
            BEGIN + second,
            &udp(if second == 3900 { 7 } else { 53 }, 1400),
        ));
    }
    std::fs::write(&big, bytes).unwrap();
    let arguments = [
        "record",
        &big,
        &ring,
        "--trigger",
        "t=udp port 7",
        "--before",
        "3600s",
        "--after",
        "0s",
        "--ram",
        "2M",
    ];
    let done = weir(arguments).ok();
    let [only] = &saved(&ring, "t")[..] else {
        panic!("{}", done.err)
    };
    let kept = records(only);
    assert!(kept.len() < 2000, "{}", kept.len());
    let first = kept[0].time_ns / 1_000_000_000 - u64::from(BEGIN);
    assert!(
        done.err.contains(&format!(
            "3600s before were asked for, and the ring held {}.000s",
            3900 - first
        )),
        "{}",
        done.err
    );
    let about = tool("tshark", ["-r", only, "-Y", "frame.number == 1"]);
    assert_eq!(about.code, Some(0), "{}", about.err);
}

#[test]
fn what_makes_no_sense_is_refused_and_what_fails_is_told() {
    let temp = Temp::new();
    let (file, out, plain) = (temp.at("all.pcap"), temp.at("out"), temp.at("plain"));
    std::fs::write(&file, small_pcap(600)).unwrap();
    std::fs::write(&plain, b"x").unwrap();
    let refused: [(&[&str], &str); 9] = [
        (
            &[&file, &plain],
            "is not a directory: weir record SOURCE... DIR",
        ),
        (&[&file, "-"], "is not a directory"),
        (&[&file, &out, "--trigger", "t=no such"], "trigger t: "),
        (
            &[&file, &out, "--trigger", "a/b=udp"],
            "'a/b=udp' is not NAME=EXPR",
        ),
        (
            &[&file, &out, "--trigger", "t=udp", "--trigger", "t=tcp"],
            "two triggers are named t",
        ),
        (&[&file, &out, "--keep", "no such"], "trigger signal: "),
        (&[&file, &out, "--ram", "900T"], "of memory are free; --ram"),
        (&[&file, &out, "--ram", "1M"], "at least 2M are needed"),
        (
            &[&file, &out, "--before", "0", "--after", "0"],
            "would save nothing",
        ),
    ];
    for (arguments, why) in refused {
        let done = weir([&["record"], arguments].concat());
        assert!(
            done.code == Some(2) && done.err.contains(why),
            "{arguments:?}: {}",
            done.err
        );
        assert_eq!(
            done.err
                .lines()
                .filter(|line| line.starts_with("weir: "))
                .count()
                + done.err.matches("error: ").count(),
            1,
            "{}",
            done.err
        );
        assert!(!std::path::Path::new(&out).exists(), "{arguments:?}");
    }
    let missing = weir(["record", &temp.at("no.pcap"), &out]);
    assert!(
        missing.code == Some(1) && missing.err.contains("no.pcap: no such file"),
        "{}",
        missing.err
    );
    // An expression for another kind of link fires never, and says so.
    let done = weir([
        "record",
        &file,
        &out,
        "--trigger",
        "t=wlan addr1 02:00:00:00:00:01",
        "--json",
    ])
    .ok();
    assert!(
        done.err
            .contains("its expression makes no sense for what is recorded"),
        "{}",
        done.err
    );
    let end: Value = serde_json::from_str(&done.text()).unwrap();
    let why = end["triggers"][0]["misfit"].as_str().unwrap();
    assert!(done.err.contains(why), "{why}: {}", done.err);
    let done = weir([
        "record",
        &file,
        &temp.at("kept"),
        "--trigger",
        "t=udp port 9",
        "--keep",
        "wlan type data",
    ])
    .ok();
    assert!(
        done.err
            .contains("nothing is kept: its expression makes no sense for what is recorded"),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("the expression of what it keeps makes no sense"),
        "{}",
        done.err
    );
    // Packets before the damage are recorded, and what they fired is saved.
    let mut bytes = small_pcap(200);
    bytes.extend([0xff; 40]);
    std::fs::write(&file, bytes).unwrap();
    let done = weir(["record", &file, &out, "--trigger", "t=udp port 199"]);
    assert!(
        done.code == Some(1) && done.err.contains("200 received, 200 recorded"),
        "{}",
        done.err
    );
    assert_eq!(records(&saved(&out, "t")[0]).len(), 12);
}

/// Ten seconds before and some after, from an interface: each packet once, in order. The payload holds its number.
#[test]
fn an_interface_is_recorded_without_a_gap() {
    let Some(net) = Net::new("an_interface_is_recorded_without_a_gap") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("out");
    let port = |number| if number == 15_000 { 777 } else { 53 };
    let frames: Vec<_> = (0..20_000)
        .map(|number| numbered(port(number), number, 18))
        .collect();
    let arguments = [
        "record",
        "near",
        &out,
        "--trigger",
        "t=udp port 777",
        "--trigger",
        "none=tcp",
        "--after",
        "1s",
    ];
    let capture = net.capture(&arguments);
    assert_eq!(net.send(&frames, 500), 20_000);
    // The file comes by itself, two seconds behind the packet that fired.
    wait::until("the file of t", || !saved(&out, "t").is_empty());
    let all = |file: &str| records(file).iter().map(number).collect::<Vec<_>>();
    assert_eq!(all(&saved(&out, "t")[0]), (0..20_000).collect::<Vec<_>>());
    capture.signal("-USR2");
    wait::until("a file of each trigger", || {
        !saved(&out, "none").is_empty() && saved(&out, "t").len() == 2
    });
    for file in [&saved(&out, "none")[0], &saved(&out, "t")[1]] {
        assert_eq!(all(file), (0..20_000).collect::<Vec<_>>());
        assert!(comment(file).ends_with(": SIGUSR2"), "{}", comment(file));
    }
    let status: Value =
        serde_json::from_str(&weir(["record", "--status", &out]).ok().text()).unwrap();
    assert_eq!(
        (&status["recorded"], &status["triggers"][1]["fired"]),
        (&20_000.into(), &1.into()),
        "{status}"
    );
    let unknown = weir(["record", "--fire", "x", &out]);
    assert!(
        unknown.code == Some(2) && unknown.err.contains("there is no trigger x"),
        "{}",
        unknown.err
    );
    // What is under way at the end is completed.
    weir(["record", "--fire", "none", &out]).ok();
    let done = capture.stop().ok();
    assert_eq!(saved(&out, "none").len(), 2, "{}", done.err);
    assert!(
        done.err
            .contains("20 000 received, 20 000 recorded, 0 dropped"),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("no packet of the span was dropped before the ring"),
        "{}",
        done.err
    );
    let parts = std::fs::read_dir(&out)
        .unwrap()
        .filter(|entry| s(&entry.as_ref().unwrap().path()).ends_with(".part"))
        .count();
    assert_eq!(parts, 0);
}

/// Many triggers fire at one packet, and a small ring lets few chunks be kept: each file has all packets of its span.
#[test]
fn triggers_that_fire_together_save_whole_files_from_a_small_ring() {
    if !have(
        "triggers_that_fire_together_save_whole_files_from_a_small_ring",
        &["tcpdump", "timeout"],
    ) {
        return;
    }
    let temp = Temp::new();
    let file = temp.at("all.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "50000",
        "--rate",
        "10000",
        "--seed",
        "3",
    ])
    .ok();
    let times = |file: &str| tool("tcpdump", ["-ttnr", file]).ok().text();
    let stamp = |line: &str| {
        line.split_whitespace()
            .next()
            .and_then(|time| time.parse::<f64>().ok())
            .unwrap()
    };
    let all: Vec<f64> = times(&file).lines().map(stamp).collect();
    let first = stamp(
        tool("tcpdump", ["-ttnr", &file, "tcp"])
            .ok()
            .text()
            .lines()
            .next()
            .unwrap(),
    );
    let within = |time: &&f64| (first - 1.0..=first + 2.0).contains(*time);
    let expected = all.iter().filter(within).count();
    assert!(expected > 10_000 && expected < all.len());
    for (count, ram) in [(1, "16M"), (4, "16M"), (16, "64M"), (64, "16M")] {
        let out = temp.at(&format!("out{count}"));
        let mut limited = std::process::Command::new("timeout");
        limited.args([
            "60",
            env!("CARGO_BIN_EXE_weir"),
            "record",
            &file,
            &out,
            "--ram",
            ram,
            "--cooldown",
            "1h",
        ]);
        limited.args(["--before", "1s", "--after", "2s"]);
        limited
            .args((0..count).flat_map(|number| ["--trigger".to_owned(), format!("t{number}=tcp")]));
        let done = run(&mut limited, &[]).ok();
        for number in 0..count {
            let [only] = &saved(&out, &format!("t{number}"))[..] else {
                panic!("{count} {number}: {}", done.err)
            };
            assert_eq!(
                times(only).lines().count(),
                expected,
                "{count} {number}: {}",
                done.err
            );
        }
    }
}

#[test]
fn triggers_that_fire_together_save_whole_files_from_an_interface() {
    let Some(net) = Net::new("triggers_that_fire_together_save_whole_files_from_an_interface")
    else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("out");
    let frames: Vec<_> = (0..3000).map(|number| numbered(53, number, 1000)).collect();
    let names: Vec<String> = (0..12).map(|number| format!("t{number}=udp")).collect();
    let triggers = names.iter().flat_map(|name| ["--trigger", name]);
    let arguments = [
        "record", "near", &out, "--ram", "16M", "--before", "1s", "--after", "60s",
    ];
    let capture = net.capture(&arguments.into_iter().chain(triggers).collect::<Vec<_>>());
    assert_eq!(net.send(&frames, 100), 3000);
    let done = capture.stop().ok();
    for name in &names {
        let [only] = &saved(&out, &name[..name.len() - 4])[..] else {
            panic!("{name}: {}", done.err)
        };
        assert!(
            records(only).iter().map(number).eq(0..3000),
            "{name}: {}",
            done.err
        );
    }
}

#[test]
fn the_first_bytes_of_each_conversation_are_recorded() {
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    // Three conversations of 100 datagrams of 142 bytes; every third one goes the other way.
    for second in 0..100 {
        for port in [53, 80, 443] {
            let mut frame = udp(port, 100);
            if second % 3 == 2 {
                let (ends, ports) = (frame[26..34].to_vec(), frame[34..38].to_vec());
                frame[26..34].copy_from_slice(&[&ends[4..], &ends[..4]].concat());
                frame[34..38].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
            }
            bytes.extend(pcap_record(BEGIN + second, &frame));
        }
    }
    // A frame without addresses is always kept.
    for second in 100..110 {
        bytes.extend(pcap_record(BEGIN + second, &[0xff; 60]));
    }
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    std::fs::write(&file, bytes).unwrap();
    let trigger = [
        "--trigger",
        "t=ether broadcast",
        "--before",
        "200s",
        "--after",
        "20s",
        "--max-files",
        "1",
    ];
    let done = weir(
        ["record", &file, &out, "--cutoff", "1k"]
            .into_iter()
            .chain(trigger),
    )
    .ok();
    // The eighth datagram crosses 1024 bytes.
    assert!(
        done.err
            .contains("310 received, 34 recorded, 276 cut off, 0 dropped"),
        "{}",
        done.err
    );
    let kept = records(&saved(&out, "t")[0]);
    let seconds: Vec<u64> = kept
        .iter()
        .map(|record| record.time_ns / 1_000_000_000 - u64::from(BEGIN))
        .collect();
    let expected: Vec<u64> = (0..8)
        .flat_map(|second| [second; 3])
        .chain(100..110)
        .collect();
    assert_eq!(seconds, expected);
}
