//! Profiles: `weir generate --profile`, `weir generate profiles`, and `generate:PROFILE` as a source of every command.

use crate::support::*;
use std::fs;

const TOML: &str = r#"
about = "names and others"
packets = 5000
rate = "10kpps"
[[stream]]
name = "names"
layers = "eth/vlan/ipv4/udp"
size = "80-9000"
ipv4.src = "198.18.0.0/24:random"
udp.dst = 53
matches = ["vlan and udp port 53"]
[[stream]]
name = "others"
weight = 4
layers = "eth/ipv6/tcp"
size = "imix"
flows = 100
ipv6.src = "2001:db8::/64:random"
matches = ["ip6"]
"#;

#[test]
fn profiles_are_listed_printed_and_taken_as_files() {
    let temp = Temp::new();
    let list = weir(["generate", "profiles"]).ok().text();
    assert!(
        list.lines().count() == 11 && list.contains("\nmwn\t"),
        "{list}"
    );
    let text = weir(["generate", "profiles", "64"]).ok().text();
    let [mine, file, same] = ["mine.toml", "a.pcap", "b.pcap"].map(|name| temp.at(name));
    fs::write(&mine, text).unwrap();
    for (profile, file) in [(mine.as_str(), &file), ("64", &same)] {
        weir([
            "generate",
            file,
            "--profile",
            profile,
            "--packets",
            "300",
            "--field",
            "udp.dst=53,5353:random",
        ])
        .ok();
    }
    assert!(fs::read(&file).unwrap() == fs::read(&same).unwrap());
    assert_eq!(
        weir([
            "filter",
            "udp dst port 53 or udp dst port 5353",
            &file,
            "--count"
        ])
        .ok()
        .count(),
        300
    );
}

#[test]
fn what_is_generated_is_a_source_of_every_command() {
    let temp = Temp::new();
    let [mine, file, copy] = ["mine.toml", "a.pcapng", "b.pcapng"].map(|name| temp.at(name));
    fs::write(&mine, TOML).unwrap();
    let source = format!("generate:{mine},seed=9,packets=4000,udp.src=7,8,9:random");
    let truth = weir([
        "generate",
        &file,
        "--profile",
        &mine,
        "--seed",
        "9",
        "--packets",
        "4000",
        "--truth",
        "--field",
        "udp.src=7,8,9:random",
    ])
    .ok()
    .text();
    assert!(
        truth.starts_with("800\t") && truth.contains("\tvlan and udp port 53\n3200\t"),
        "{truth}"
    );
    weir(["filter", "", &source, "-w", &copy]).ok();
    let (made, read) = (records(&file), records(&copy));
    assert_eq!((made.len(), read.len()), (4000, 4000));
    assert!(
        made.iter()
            .zip(&read)
            .all(|(a, b)| (a.time_ns, &a.data) == (b.time_ns, &b.data))
    );
    // Even gaps of 100 us, in packet time.
    assert_eq!(made[3999].time_ns - made[0].time_ns, 399_900_000);
    let counted = weir(["filter", "vlan and udp port 53", &source, "--count"])
        .ok()
        .count();
    assert_eq!(counted, 800);
    let measured = weir([
        "measure",
        &source,
        "--key",
        "proto",
        "--json",
        "--workers",
        "2",
    ])
    .ok()
    .text();
    assert!(measured.contains("\"received\":4000"), "{measured}");
    let merged = weir([
        "filter",
        "",
        &source,
        "generate:default,packets=50",
        "--merge",
        "--count",
    ]);
    assert_eq!(merged.ok().count(), 4050);
    let replayed = weir([
        "replay",
        "generate:scan,packets=70",
        "--to",
        "null",
        "--rate",
        "max",
        "--loop",
        "2",
    ])
    .ok();
    assert!(
        replayed.err.contains("140 read, 140 sent"),
        "{}",
        replayed.err
    );
    let record = temp.at("record");
    weir(["record", &source, &record, "--disk", "100M"]).ok();
    assert_eq!(weir(["query", &record, "--count"]).ok().count(), 4000);
    let compared = weir([
        "diff",
        "generate:64,packets=100",
        "generate:64,packets=100",
        "--json",
    ])
    .ok()
    .text();
    assert!(compared.contains("\"received\":100"), "{compared}");
}

#[test]
fn workers_share_the_packets_and_rates_are_one_word() {
    let truth = |workers: &str| {
        let done = weir([
            "generate",
            "null",
            "--profile",
            "align-study",
            "--packets",
            "20001",
            "--truth",
            "--workers",
            workers,
        ])
        .ok();
        assert!(done.err.contains("20 001 thrown away"), "{}", done.err);
        done.text()
    };
    assert_eq!(truth("1"), truth("3"));
    for (rate, least, most) in [
        ("20pps", 0.25, 1.5),
        ("9600bit/s", 0.25, 1.5),
        ("max", 0.0, 0.5),
    ] {
        let begun = std::time::Instant::now();
        weir([
            "generate",
            "null",
            "--profile",
            "64",
            "--packets",
            "6",
            "--rate",
            rate,
        ])
        .ok();
        let took = begun.elapsed().as_secs_f64();
        assert!((least..most + 1.0).contains(&took), "{rate}: {took}");
    }
}

#[test]
fn wrong_profiles_rates_and_fields_are_one_line() {
    let temp = Temp::new();
    let mine = temp.at("mine.toml");
    fs::write(&mine, TOML.replace("udp.dst = 53\n", "udp.dst = 70000\n")).unwrap();
    let claims = temp.at("claims.toml");
    fs::write(&claims, TOML.replace("[\"ip6\"]", "[\"tcp port 81\"]")).unwrap();
    let source = format!("generate:{mine}");
    for (arguments, part) in [
        (
            &["--profile", &mine][..],
            "mine.toml: line 10: udp.dst = \"70000\": want a number from 0 to 65535",
        ),
        (
            &["--profile", "nosuch"],
            "\"nosuch\" is no profile, and no file: those built in are default imix",
        ),
        (
            &["--profile", &claims, "--truth"],
            "of stream others, does not match it",
        ),
        (
            &["--profile", "64", "--field", "ipv4.sorc=1"],
            "no field ipv4.sorc: want one of eth.dst",
        ),
        (
            &["--profile", "64", "--field", "x/ipv4.src=10.0.0.1"],
            "no stream of this name",
        ),
        (
            &["--profile", "64", "--field", "ipv4.src"],
            "want FIELD=VALUES",
        ),
        (&["--profile", "64", "--sizes", "59"], "60 to 9000"),
        (
            &["--profile", "default", "--field", "ipv4.src=10.0.0.1"],
            "has no streams",
        ),
        (&["--field", "ipv4.src=10.0.0.1"], "--profile"),
        (&["--sizes", "60-100"], "internet traffic takes mwn"),
        (&["--rate", "0"], "is not a rate"),
        (&["--rate", "2Tpps"], "is not a rate"),
        (&["--rate", "50%"], "needs the speed of the link"),
        (&["--rate", "original"], "is for weir replay"),
        (&["--gaps", "odd"], "want \"even\""),
        (
            &["--gaps", "even", "--profile", "connections"],
            "connections have times of their own: leave it out",
        ),
        (&["--workers", "2"], "share the packets of streams"),
        (
            &["--workers", "2", "--profile", "connections"],
            "share the packets of streams",
        ),
        (
            &["--profile", "64", "--field", "ipv4.ttl=1-9:random:random"],
            "want :random or :count once",
        ),
        (
            &["--profile", "64", "--field", "ipv4.ttl=5:random"],
            "one value is neither drawn nor counted: write 5",
        ),
        (
            &["--profile", "syn-flood", "--zipf", "1"],
            "name their number too",
        ),
        (
            &["--rate", "-5"],
            "--rate: '-5' is not a rate: write original",
        ),
        (&["--duration", "-5"], "--duration: '-5' is not a time"),
        (
            &["--zipf", "-5"],
            "--zipf: '-5' is out of range: use 0 to 10",
        ),
        (&["--packets", "-5"], "--packets: '-5' is too small"),
        (&["more"], "one file or port at a time"),
    ] {
        let done = weir([&["generate", "null", "--packets", "5"], arguments].concat());
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            done.err
        );
        assert!(done.err.contains(part), "{arguments:?}: {}", done.err);
    }
    for (source, part) in [
        (source.as_str(), "line 10: udp.dst"),
        ("generate:", "is no profile"),
        ("generate:64,packets=x", "packets=x: want a number"),
        (
            "generate:64,colour=red",
            "want one of packets seed rate gaps",
        ),
        ("generate:64,30", "want KEY=VALUE"),
    ] {
        let done = weir(["measure", source]);
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{source}: {}",
            done.err
        );
        assert!(done.err.contains(part), "{source}: {}", done.err);
    }
    let unknown = weir(["generate", "profiles", "nosuch"]);
    assert!(
        unknown.code == Some(2) && unknown.err.contains("weir generate profiles lists them"),
        "{}",
        unknown.err
    );
}

/// tcpdump counts what planted traffic says of itself.
#[test]
fn the_truth_of_connections_is_that_of_tcpdump() {
    if !have("the_truth_of_connections_is_that_of_tcpdump", &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let file = temp.at("a.pcap");
    let words = ["generate", &file, "--profile", "connections"];
    let truth = weir([&words[..], &["--packets", "20000", "--truth"]].concat());
    let truth = truth.ok().text();
    assert_eq!(truth.lines().count(), 4, "{truth}");
    tcpdump_counts(&temp, &file, &truth);
}

/// Rows of `--truth` about a file are what tcpdump counts in it.
fn tcpdump_counts(temp: &Temp, file: &str, truth: &str) {
    for row in truth.lines() {
        let mut cells = row.split('\t');
        let mut number = || cells.next().and_then(|cell| cell.parse::<u64>().ok());
        let (packets, bytes) = (number().unwrap(), number().unwrap());
        let expression = cells.next().unwrap();
        let matched = tool(
            "tcpdump",
            ["-r", file, "-w", &temp.at("judged.pcap"), expression],
        );
        matched.ok();
        let matched = records(&temp.at("judged.pcap"));
        let sum: usize = matched.iter().map(|record| record.data.len()).sum();
        assert_eq!(
            (packets, bytes),
            (matched.len() as u64, sum as u64),
            "{row}"
        );
        assert!(packets > 0, "{row}");
    }
}

const BESIDE: &str = r#"
packets = 60000
rate = "20kpps"
[[stream]]
name = "names"
layers = "eth/vlan/ipv4/udp"
size = "80-9000"
vlan.id = 3000
udp.dst = 53
matches = ["vlan 3000"]
[[stream]]
name = "web"
weight = 3
layers = "eth/ipv4/tcp"
ipv4.src = "10.66.0.0/24:random"
matches = ["net 10.66.0.0/24"]
"#;

/// Streams last as long as connections begin; both have the packets and times that each has alone, and tcpdump counts what is told.
#[test]
fn streams_and_connections_go_beside_each_other() {
    let test = "streams_and_connections_go_beside_each_other";
    if !have(test, &["tcpdump"]) {
        return;
    }
    const CONNECTIONS: &str = "[connections]\nspan_ms = 250\ninternet = 500\nconnections = 50\nresets = 5\ndialogues = 40\n\
        scan_peers = 30\nflood_frames = 100\narp_storm = 20\n";
    let temp = Temp::new();
    let made = |name: &str, text: &str| {
        let (profile, file) = (
            temp.at(&format!("{name}.toml")),
            temp.at(&format!("{name}.pcap")),
        );
        fs::write(&profile, text).unwrap();
        let words = ["generate", &file, "--profile", &profile, "--truth"];
        let truth = weir(words).ok().text();
        (profile, records(&file), truth, file)
    };
    let all = |records: &[Record]| -> Vec<(u64, Vec<u8>)> {
        let each = records.iter();
        each.map(|record| (record.time_ns, record.data.clone()))
            .collect()
    };
    let (profile, both, truth, file) = made("both", &format!("{BESIDE}{CONNECTIONS}"));
    let (_, streams, ..) = made("streams", BESIDE);
    let (_, planted, ..) = made("planted", CONNECTIONS);
    assert_eq!(truth.lines().count(), 6, "{truth}");
    tcpdump_counts(&temp, &file, &truth);
    assert!(both.iter().is_sorted_by_key(|record| record.time_ns));
    let is_streamed = |data: &[u8]| {
        data[12..16] == [0x81, 0, 0x0b, 0xb8] || data[12..14] == [8, 0] && data[26..28] == [10, 66]
    };
    let (found, others): (Vec<_>, Vec<_>) = all(&both)
        .into_iter()
        .partition(|(_, data)| is_streamed(data));
    // 20 000 packets a second for a quarter of it.
    assert!(found == all(&streams[..5000]));
    assert!(others == all(&planted));
    // A field, a limit, and the packets as a source and by a port.
    let source = format!("generate:{profile},packets=2000,web/tcp.dst=81");
    let counted = weir(["filter", "tcp port 81", &source, "--count"])
        .ok()
        .count();
    let web = both[..2000].iter().filter(|it| it.data[26..28] == [10, 66]);
    assert_eq!(counted, web.count() as u64);
    for (words, part) in [
        (&["--workers", "2"][..], "share the packets of streams"),
        (&["--field", "web/udp.dst=1"], "no udp in these layers"),
    ] {
        let done = weir([&["generate", "null", "--profile", &profile], words].concat());
        assert!(
            done.code == Some(2) && done.err.contains(part),
            "{}",
            done.err
        );
    }
    // A claim that planted packets fulfil too would be counted wrongly.
    let wrong = BESIDE.replace("net 10.66.0.0/24\"]", "tcp\"]");
    let wrong = temp.file("wrong.toml", format!("{wrong}{CONNECTIONS}").as_bytes());
    let done = weir(["generate", "null", "--profile", &wrong, "--truth"]);
    assert!(
        done.code == Some(2) && done.err.contains("of [connections] matches it"),
        "{}",
        done.err
    );
}
