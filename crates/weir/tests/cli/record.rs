//! Recording: what triggers save is compared with a list of all packets, and read by tcpdump, capinfos and tshark.

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
    // Port 104 came while the first file was not complete: that file would end before the time after it.
    assert_eq!(files.len(), 3, "{}", done.err);
    for (file, port) in files.iter().zip([100, 104, 300]) {
        assert_eq!(ports(file), (port - 10..=port + 5).collect::<Vec<_>>());
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let cause = format!(
            "trigger t: a packet matches '{}' (10.0.0.1.4000 > 10.0.0.2.{port})",
            &trigger[2..]
        );
        assert_eq!(comment(file), cause);
        assert!(
            done.err.contains(&format!("{file}: 16 packets; {}", cause)),
            "{}",
            done.err
        );
    }
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
        (90..=105).collect::<Vec<_>>(),
        "it arrived with those around it"
    );
    assert!(
        done.err
            .contains("trigger t: met 3 times, fired 3, 3 files with 48 packets"),
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
                .chain(["--before", "3s", "--after", "2s", "--max-files", "1"]),
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
            .starts_with("10.0.0.9: more than 40 peers in a window of 10s"),
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
            "is no directory: weir record SOURCE... DIR",
        ),
        (&[&file, "-"], "is no directory"),
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
    while saved(&out, "t").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let all = |file: &str| records(file).iter().map(number).collect::<Vec<_>>();
    assert_eq!(all(&saved(&out, "t")[0]), (0..20_000).collect::<Vec<_>>());
    capture.signal("-USR2");
    while saved(&out, "none").is_empty() || saved(&out, "t").len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
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
            "--max-files",
            "1",
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

/// Numbers of all packets of a record directory.
fn on_disk(directory: &str) -> Vec<u32> {
    segments(directory)
        .iter()
        .flat_map(|file| records(file))
        .map(|record| number(&record))
        .collect()
}

#[test]
fn what_is_kept_on_disk_is_read_by_any_tool() {
    if !have(
        "what_is_kept_on_disk_is_read_by_any_tool",
        &["tshark", "capinfos"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    let mut bytes = pcap_header(65_535, 1);
    for number in 0..5000u32 {
        bytes.extend(pcap_record(
            BEGIN + number / 10,
            &numbered(53, number, number as usize % 1400),
        ));
    }
    std::fs::write(&file, bytes).unwrap();
    let arguments = [
        "record",
        &file,
        &out,
        "--disk",
        "1G",
        "--segment",
        "1M",
        "--trigger",
        "t=udp port 9",
        "--stats",
    ];
    let done = weir(arguments).ok();
    let segments = segments(&out);
    assert!(segments.len() > 3, "{}", done.err);
    assert!(
        done.err.contains("disk: 5 000 packets durable, 4 segments"),
        "{}",
        done.err
    );
    assert_eq!(on_disk(&out), (0..5000).collect::<Vec<_>>());
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.len",
        "-e",
        "ip.id",
        "-e",
        "udp.payload",
    ];
    let read = |file: &String| {
        tool("tshark", ["-r", file].into_iter().chain(fields))
            .ok()
            .text()
    };
    let theirs: String = segments.iter().map(read).collect();
    let all = read(&file);
    let difference = theirs
        .lines()
        .zip(all.lines())
        .find(|(here, there)| here != there);
    assert!(theirs == all, "{difference:?}");
    for segment in &segments {
        let about = std::fs::metadata(segment).unwrap();
        assert_eq!(
            (about.permissions().mode() & 0o777, about.len() % 4096),
            (0o600, 0)
        );
    }
    // Indexes are made anew from the segments alone.
    let indexes = || -> Vec<_> {
        segments
            .iter()
            .map(|path| std::fs::read(path.replace(".pcapng", ".index")).unwrap())
            .collect()
    };
    let before = indexes();
    std::fs::write(segments[1].replace(".pcapng", ".index"), b"damaged").unwrap();
    std::fs::remove_file(segments[2].replace(".pcapng", ".index")).unwrap();
    let done = weir(["record", "--reindex", &out]).ok();
    assert!(
        done.err
            .contains("indexes of 4 segments made anew, 5 000 packets"),
        "{}",
        done.err
    );
    assert!(indexes() == before);
    for (arguments, why) in [
        (
            ["record", "--reindex", &temp.at("nowhere")],
            "nowhere: no such directory\n",
        ),
        (["record", "--reindex", &file], ": is no directory\n"),
        (
            ["record", "--status", &out],
            "no weir record runs on this directory",
        ),
    ] {
        let done = weir(arguments);
        assert!(
            done.code != Some(0) && done.err.contains(why),
            "{}",
            done.err
        );
    }
    // A second recording of the same directory adds to it, and the directory of a running one is refused.
    let done = weir([
        "record",
        &file,
        &file,
        &file,
        &out,
        "--disk",
        "8M",
        "--segment",
        "1M",
        "--json",
    ])
    .ok();
    let end: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    assert_eq!(end["disk"]["durable"], 15_000, "{end}");
    for name in [
        "received", "recorded", "filtered", "dropped", "cut_off", "history", "disk", "triggers",
        "fault",
    ] {
        assert!(end.get(name).is_some(), "{name}: {end}");
    }
    for name in [
        "segments",
        "bytes",
        "missed",
        "written_bytes",
        "index_bytes",
        "removed_segments",
        "failures",
    ] {
        assert!(end["disk"][name].is_u64(), "{name}: {end}");
    }
    assert_eq!(
        end["dropped"],
        serde_json::json!({ "kernel": 0, "ring": 0 })
    );
    assert!(
        end["disk"]["removed_segments"].as_u64().unwrap() >= 5,
        "{end}"
    );
    let left: u64 = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(left <= 8 << 20, "{left}");
}

#[test]
fn closed_files_are_compressed_and_answer_as_before() {
    if !have(
        "closed_files_are_compressed_and_answer_as_before",
        &["zstd", "tcpdump", "mergecap"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    // An earlier session leaves its files uncompressed.
    weir(["record", &file, &out, "--disk", "1G", "--segment", "1M"]).ok();
    let plain = segments(&out);
    let before: u64 = plain
        .iter()
        .map(|path| std::fs::metadata(path).unwrap().len())
        .sum();
    let contents: Vec<_> = plain
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let done = weir([
        "record",
        &file,
        &out,
        "--disk",
        "1G",
        "--segment",
        "1M",
        "--compress=5",
        "--json",
    ])
    .ok();
    let end: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    let compressed = &end["disk"]["compressed"];
    assert!(segments(&out).is_empty(), "{:?}", segments(&out));
    assert_eq!(
        (&compressed["segments"], &compressed["failed"]),
        (&end["disk"]["segments"], &0.into()),
        "{end}"
    );
    assert!(
        compressed["bytes_before"].as_u64().unwrap() > before
            && done.err.contains(" segments compressed from ")
    );
    for (path, bytes) in plain.iter().zip(&contents) {
        let path = format!("{path}.zst");
        assert!(tool("zstd", ["-dc", &path]).ok().out == *bytes);
        let copy = temp.at("copy.pcapng");
        std::fs::write(&copy, bytes).unwrap();
        let theirs = tool("tcpdump", ["-n", "--count", "-r", &copy, "udp"])
            .ok()
            .text();
        let ours = weir(["filter", "udp", &path, "--count"]).ok().count();
        assert_eq!(theirs.split(' ').next(), Some(&*ours.to_string()));
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
    }
    // Both recordings of the file, in the order of time.
    for expression in [
        "",
        "udp port 53",
        "tcp and net 10.1",
        "not ip",
        "host 10.1.2.3 or tcp port 443",
    ] {
        let (theirs, ours) = (temp.at("theirs.pcap"), temp.at("ours.pcap"));
        tool(
            "tcpdump",
            ["--nano", "-nr", &file, "-w", &theirs, expression],
        )
        .ok();
        weir(["query", &out, expression, "-w", &ours]).ok();
        let (theirs, ours) = (records(&theirs), records(&ours));
        let mut both = [&theirs[..], &theirs[..]].concat();
        both.sort_by_key(|packet| packet.time_ns);
        assert!(
            ours == both,
            "{expression}: {} {}",
            ours.len(),
            theirs.len()
        );
    }
    assert_eq!(
        weir(["query", &out, "--count"]).ok().count(),
        2 * packets.len() as u64
    );
    let done = weir(["record", "--reindex", &out]).ok();
    assert!(done.err.contains("60 000 packets"), "{}", done.err);
    assert_eq!(
        weir(["query", &out, "udp port 53", "--count", "--explain"])
            .ok()
            .count()
            % 2,
        0
    );
    let refused = weir(["record", &file, &out, "--compress"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert_eq!(
        weir(["record", &file, &out, "--disk", "1G", "--compress=20"]).code,
        Some(2)
    );
}

#[test]
fn a_record_on_disk_keeps_earlier_sessions_and_its_limit() {
    let temp = Temp::new();
    let (file, out) = (temp.at("in.pcap"), temp.at("cap"));
    tool(
        env!("CARGO_BIN_EXE_weir"),
        ["generate", &file, "--packets", "3000", "--sizes", "1000"],
    )
    .ok();
    let bytes = || {
        let entries = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap());
        entries.map(|about| about.len()).sum::<u64>()
    };
    // The first session leaves 3 MB of 100 MiB: the second one has room.
    for session in 1..=2 {
        weir([
            "record",
            &file,
            &out,
            "--disk",
            "100M",
            "--ram",
            "16M",
            "--reserve",
            "1M",
        ])
        .ok();
        assert_eq!(
            weir(["query", &out, "--count"]).ok().count(),
            3000 * session
        );
    }
    for _ in 0..3 {
        weir([
            "record",
            &file,
            &out,
            "--disk",
            "8M",
            "--ram",
            "16M",
            "--reserve",
            "1M",
        ])
        .ok();
        assert!(bytes() <= 8 << 20, "{}", bytes());
    }
    let kept = weir(["query", &out, "--count"]).ok().count();
    assert!(
        (5000..9000).contains(&kept),
        "{kept} of 15 000 packets of 1 kB have room in 8 MiB"
    );
    for (more, why) in [
        (
            &["--disk", "8191k"][..],
            "too little for a record: 8M is the least",
        ),
        (&["--disk", "0"], "too little"),
        (
            &["--disk", "100M", "--segment", "64M"],
            "--segment 64M of --disk 100M: ",
        ),
        (&["--disk", "100M", "--ram", "900T"], "--ram 900T: "),
    ] {
        let done = weir([&["record", &file, &temp.at("new")][..], more].concat());
        assert!(
            done.code == Some(2) && done.err.contains(why),
            "{}",
            done.err
        );
        assert!(!Path::new(&temp.at("new")).exists());
    }
}

/// The recorder is killed at random instants. What it called durable by then is there afterwards, in order, and the next recorder
/// cuts off what is torn. WEIR_KILLS sets the number of kills.
#[test]
fn what_was_durable_survives_a_kill() {
    use std::io::Write;
    let kills = std::env::var("WEIR_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(12);
    let temp = Temp::new();
    let mut choices = weir_testkit::Random(kills);
    let mut durable_at_all = 0;
    let none = temp.at("none.pcap");
    std::fs::write(&none, pcap_header(65_535, 1)).unwrap();
    for kill in 0..kills {
        let out = temp.at(&format!("out{kill}"));
        let mut child = start_recorder(
            &out,
            &[
                "--disk",
                "1G",
                "--sync",
                "20ms",
                "--segment",
                "1M",
                "--ram",
                "8M",
            ],
        );
        let mut input = child.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || {
            let mut number = 0;
            // Ends when the reader is gone.
            let mut wrote = input.write_all(&pcap_header(65_535, 1));
            while wrote.is_ok() {
                let some: Vec<u8> = (number..number + 20)
                    .flat_map(|n| pcap_record(BEGIN + n / 100, &numbered(53, n, n as usize % 1400)))
                    .collect();
                wrote = input.write_all(&some);
                number += 20;
            }
        });
        let mut client = connected(&out);
        let rounds = choices.below(40) + 1;
        let mut durable = 0;
        for _ in 0..rounds {
            durable = status(&mut client)["disk"]["durable"]["number"]
                .as_u64()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        feeder.join().unwrap();
        durable_at_all += durable;
        // Before recovery any tool reads it, up to what is torn.
        for segment in segments(&out).iter().take(2) {
            let about = tool("capinfos", ["-c", segment]);
            assert!(
                about.text().contains("Number of packets") || about.err.contains("cut short"),
                "{}",
                about.err
            );
        }
        let recovered = weir(["record", &none, &out, "--disk", "1G"]).ok();
        assert!(recovered.err.contains("0 received"), "{}", recovered.err);
        let found = on_disk(&out);
        assert!(
            found.len() as u64 >= durable,
            "kill {kill}: {} of {durable}: {}",
            found.len(),
            recovered.err
        );
        assert!(
            found.iter().copied().eq(0..found.len() as u32),
            "kill {kill}: {}",
            recovered.err
        );
    }
    assert!(durable_at_all > 0);
}

/// Triggers of a file have settings of their own, and a program runs for each saved file, without a shell.
#[test]
fn triggers_come_from_a_file_and_run_a_program() {
    let temp = Temp::new();
    let (file, out, list, program) = (
        temp.at("all.pcap"),
        temp.at("out"),
        temp.at("t.toml"),
        temp.at("program"),
    );
    std::fs::write(&file, small_pcap(600)).unwrap();
    let triggers = "[trigger.one]\nmatch = 'udp port 100'\nbefore = '2s'\nafter = '1s'\n
        [trigger.two]\nthreshold = 'total>0 packets/s/100s'\nkeep = 'udp port 200'\nmax_files = 2 # of six\n";
    std::fs::write(&list, triggers).unwrap();
    std::fs::write(
        &program,
        "#!/bin/sh\nprintf '%s|' \"$#\" \"$1\" \"$2\" >>\"$0.log\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = [
        "record",
        &file,
        &out,
        "--triggers",
        &list,
        "--before",
        "100s",
        "--on-trigger",
        &program,
    ];
    let done = weir(arguments).ok();
    assert_eq!(ports(&saved(&out, "one")[0]), [98, 99, 100, 101]);
    let two = saved(&out, "two");
    assert_eq!(two.len(), 2, "{}", done.err);
    let log = std::fs::read_to_string(format!("{program}.log")).unwrap();
    let parts: Vec<&str> = log.split('|').collect();
    assert_eq!(parts.len(), 3 * 3 + 1, "{log}");
    let ran: Vec<_> = parts
        .chunks_exact(3)
        .map(|run| {
            (
                run[0],
                run[1],
                run[2].starts_with("all packets: more than 0"),
            )
        })
        .collect();
    assert!(
        ran.contains(&("2", &saved(&out, "one")[0], false)) && ran.contains(&("2", &two[1], true)),
        "{ran:?}"
    );
    assert!(
        log.contains("a packet matches 'udp port 100' (10.0.0.1.4000 > 10.0.0.2.100)"),
        "{log}"
    );
    // A program that fails is told of and counted.
    let out2 = temp.at("out2");
    let fails = |program: &str| {
        weir([
            "record",
            &file,
            &out2,
            "--trigger",
            "t=udp port 9",
            "--json",
            "--on-trigger",
            program,
        ])
    };
    let done = fails("false");
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("--on-trigger false: exit status: 1"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("--on-trigger: ran 1 times, failed 1"),
        "{}",
        done.err
    );
    let end: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    assert_eq!(
        end["on_trigger"],
        serde_json::json!({ "ran": 1, "failed": 1 })
    );
    // What cannot be run is refused, and so is a list that makes no sense.
    let refused = [
        ("/no/such", "no such file"),
        (&file, "it is no file that can be run"),
        ("no-such", "no such program"),
    ];
    for (program, why) in refused {
        let done = fails(program);
        assert!(
            done.code == Some(2) && done.err.contains(&format!("--on-trigger {program}: {why}")),
            "{}",
            done.err
        );
    }
    // A program that does not end is waited for some seconds.
    std::fs::write(&program, "#!/bin/sh\nexec sleep 8\n").unwrap();
    let done = fails(&program).ok();
    assert!(
        done.err
            .contains("not waited for any longer; runs that have not ended: 1"),
        "{}",
        done.err
    );
    let wrong = [
        ("x", "t.toml: line 1: "),
        ("a = 1", "there is no 'a' in a list of triggers"),
        ("", "it holds no [trigger.NAME]"),
        (
            "[trigger.'a/b']\nmatch = 'udp'",
            "'a/b' is no name of a trigger",
        ),
        (
            "[trigger.a]\nmach = 'udp'",
            "trigger a: there is no setting 'mach'",
        ),
        (
            "[trigger.a]\nmatch = 1",
            "trigger a: match: a text in quotes is expected",
        ),
        (
            "[trigger.a]\nmatch = 'udp'\nevery = '1s'",
            "trigger a: match, threshold and every are conditions",
        ),
        (
            "[trigger.a]\nbefore = '1 week'",
            "trigger a: before: '1 week' is not a time",
        ),
        ("[trigger.a]\nmatch = 'udp prt 1'", "trigger a: "),
    ];
    for (text, why) in wrong {
        std::fs::write(&list, text).unwrap();
        let done = weir(["record", &file, &temp.at("out3"), "--triggers", &list]);
        assert!(
            done.code == Some(2) && done.err.contains(why),
            "{text}: {}",
            done.err
        );
    }
}

/// A trigger that is asked to fire and does not says why, over the socket and at a signal.
#[test]
fn a_trigger_that_does_not_fire_says_why() {
    use std::io::{Read, Write};
    let temp = Temp::new();
    let (out, all) = (temp.at("out"), small_pcap(64));
    let options = [
        "--trigger",
        "t=tcp",
        "--trigger",
        "once=tcp",
        "--trigger",
        "seen=udp",
        "--after",
        "1h",
    ];
    let mut child = start_recorder(&out, &options);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&all).unwrap();
    let mut client = connected(&out);
    while status(&mut client)["triggers"][2]["fired"] != 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let fire = |name: &str| weir(["record", "--fire", name, &out]);
    fire("t").ok();
    let again = fire("t");
    assert_eq!(again.code, Some(1), "{}", again.err);
    assert!(again.err.contains(
        "trigger t does not fire: a file of it is being written; it is armed again in 36"
    ));
    let both = fire("all").ok();
    assert!(
        both.err.contains("trigger t does not fire") && !both.err.contains("trigger once"),
        "{}",
        both.err
    );
    assert_eq!((fire("all").code, fire("x").code), (Some(1), Some(2)));
    tool("kill", ["-USR2", &child.id().to_string()]).ok();
    let mut said = [0; 1];
    let mut err = child.stderr.take().unwrap();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("SIGUSR2: trigger t does not fire: a file") {
        assert_eq!(
            err.read(&mut said).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&text)
        );
        text.push(said[0]);
    }
    drop(input);
    err.read_to_end(&mut text).unwrap();
    assert_eq!(
        child.wait().unwrap().code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&text)
    );
    assert_eq!((saved(&out, "t").len(), saved(&out, "once").len()), (1, 1));
    let spent = [
        "--trigger",
        "t=udp",
        "--max-files",
        "1",
        "--after",
        "0s",
        "--cooldown",
        "1h",
    ];
    let mut child = start_recorder(&temp.at("spent"), &spent);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&all).unwrap();
    let mut client = connected(&temp.at("spent"));
    while status(&mut client)["triggers"][0]["fired"] != 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let done = weir(["record", "--fire", "t", &temp.at("spent")]);
    assert!(
        done.code == Some(1) && done.err.contains("it has saved 1 files, as many as it may"),
        "{}",
        done.err
    );
    drop(input);
    child.wait().unwrap();
}

/// Names of the saved files of a directory, whole or not.
fn saved_names(directory: &str) -> Vec<String> {
    let names = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("trigger-")).collect()
}

/// A file that may not grow any further stands for a disk that is full, and a kill leaves the same: neither gets the name of a whole file.
#[test]
fn a_saved_file_that_is_not_whole_says_so_in_its_name() {
    use std::io::Write;
    let temp = Temp::new();
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    let mut bytes = pcap_header(65_535, 1);
    for number in 0..4000u32 {
        bytes.extend(pcap_record(BEGIN, &numbered(53, number, 1000)));
    }
    std::fs::write(&file, &bytes).unwrap();
    let mut limited = std::process::Command::new("sh");
    // In blocks of 512 bytes: 1.5 MiB.
    limited.args([
        "-c",
        "ulimit -f 3072; exec \"$@\"",
        "-",
        env!("CARGO_BIN_EXE_weir"),
        "record",
        &file,
        &out,
    ]);
    let done = run(
        limited.args(["--trigger", "t=udp", "--max-files", "1"]),
        &[],
    );
    let [name] = &saved_names(&out)[..] else {
        panic!("{}", done.err)
    };
    assert!(
        done.code == Some(1) && name.ends_with("Z-incomplete.pcapng"),
        "{name}: {}",
        done.err
    );
    let kept = records(&format!("{out}/{name}"));
    assert!(
        kept.len() > 1300 && kept.iter().map(number).eq(0..kept.len() as u32),
        "{}",
        kept.len()
    );
    assert!(
        done.err.contains(&format!("{name}: file too large; ")),
        "{}",
        done.err
    );
    assert_eq!(
        tool("capinfos", ["-c", "-Mr", &format!("{out}/{name}")]).code,
        Some(0)
    );
    // A kill amid a file: the next recorder cuts it, and removes one without a packet.
    let killed = temp.at("killed");
    let mut child = start_recorder(
        &killed,
        &[
            "--trigger",
            "t=udp",
            "--trigger",
            "none=tcp",
            "--after",
            "1h",
        ],
    );
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes).unwrap();
    let mut client = connected(&killed);
    while status(&mut client)["triggers"][0]["fired"] != 1 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    weir(["record", "--fire", "none", &killed]).ok();
    let len =
        |name: &str| std::fs::metadata(format!("{killed}/{name}")).map_or(0, |about| about.len());
    while saved_names(&killed)
        .iter()
        .filter(|name| len(name) > 2 << 20)
        .count()
        < 2
        || status(&mut client)["recorded"] != 4000
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    let parts = saved_names(&killed);
    assert!(
        parts.len() == 2 && parts.iter().all(|name| name.ends_with(".pcapng.part")),
        "{parts:?}"
    );
    let t = parts
        .iter()
        .find(|name| name.starts_with("trigger-t-"))
        .unwrap();
    let none = parts
        .iter()
        .find(|name| name.starts_with("trigger-none-"))
        .unwrap();
    // The last block is torn, and a file has no packet.
    std::fs::OpenOptions::new()
        .write(true)
        .open(format!("{killed}/{t}"))
        .unwrap()
        .set_len(1_000_000)
        .unwrap();
    std::fs::write(format!("{killed}/{none}"), pcapng_start(1)).unwrap();
    let again = weir(["record", &file, &killed, "--trigger", "x=tcp"]).ok();
    let name = t.replace(".pcapng.part", "-incomplete.pcapng");
    assert_eq!(
        saved_names(&killed),
        std::slice::from_ref(&name),
        "{}",
        again.err
    );
    let kept = records(&format!("{killed}/{name}"));
    assert!(
        kept.len() > 900 && kept.iter().map(number).eq(0..kept.len() as u32),
        "{}",
        kept.len()
    );
    let told = format!(
        "{name}: an earlier recording did not complete it; {} packets are in it",
        kept.len()
    );
    assert!(
        again.err.contains(&told) && again.err.contains(&format!("{none}: an earlier")),
        "{}",
        again.err
    );
}

/// Files that may not grow any further stand for a disk that is full: the failure is told, and recording goes on.
#[test]
fn a_disk_that_fails_is_tried_again() {
    let temp = Temp::new();
    let (file, out) = (temp.at("all.pcap"), temp.at("out"));
    let mut bytes = pcap_header(65_535, 1);
    for number in 0..2500u32 {
        bytes.extend(pcap_record(
            BEGIN + number / 10,
            &numbered(53, number, 1000),
        ));
    }
    std::fs::write(&file, bytes).unwrap();
    // In blocks of 512 bytes: 1.5 MiB.
    let mut limited = std::process::Command::new("sh");
    let weir = env!("CARGO_BIN_EXE_weir");
    limited.args([
        "-c",
        "ulimit -f 3072; exec \"$@\"",
        "-",
        weir,
        "record",
        &file,
        &out,
        "--disk",
        "1G",
        "--ram",
        "64M",
    ]);
    let done = run(&mut limited, &[]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("file too large") && done.err.contains("the disk is tried again"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("2 500 received, 2 500 recorded"),
        "{}",
        done.err
    );
    // What is on disk is in order, and what the summary calls durable is there.
    let found = on_disk(&out);
    assert!(
        found.is_sorted() && found.len() > 1000,
        "{}: {}",
        found.len(),
        done.err
    );
    let durable = done
        .err
        .split("disk: ")
        .nth(1)
        .and_then(|rest| rest.split(" packets durable").next())
        .unwrap();
    assert!(
        found.len() >= durable.replace(' ', "").parse().unwrap(),
        "{}",
        done.err
    );
}
