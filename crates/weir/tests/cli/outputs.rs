//! Written files: the packets that tcpdump writes, in the same order, in files with the same names.

mod lost;
mod rotated;
mod statistics;

use crate::support::*;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Packets of a generated file: a few chunks for several threads, whichever way the file is read.
const MADE: &str = "70000";

/// A file of more than 60 MB.
fn made(temp: &Temp) -> String {
    let path = temp.at("made.pcap");
    weir([
        "generate",
        &path,
        "--packets",
        MADE,
        "--seed",
        "3",
        "--flows",
        "5000",
    ])
    .ok();
    assert!(fs::metadata(&path).unwrap().len() > 60 << 20);
    path
}

#[test]
fn every_capture_is_written_as_tcpdump_writes_it() {
    let test = "every_capture_is_written_as_tcpdump_writes_it";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let mut compared = 0;
    for file in captures_for_libpcap(test) {
        let temp = Temp::new();
        for expression in ["", "tcp or udp"] {
            let precision = "--time-stamp-precision=nano";
            let theirs = tool(
                "tcpdump",
                ["-n", precision, "-r", s(&file), "-w", "-", expression],
            );
            if theirs.code != Some(0) {
                continue;
            }
            let (pcap, pcapng) = (temp.at("out.pcap"), temp.at("out.pcapng"));
            weir(["filter", expression, s(&file), "-w", &pcap]).ok();
            let theirs = parse_pcap(&theirs.out);
            assert_eq!(
                parse_pcap(&fs::read(&pcap).unwrap()),
                theirs,
                "'{expression}' on {}",
                file.display()
            );
            weir(["filter", expression, s(&file), "-w", &pcapng]).ok();
            let again = tool("tcpdump", ["-n", precision, "-r", &pcapng, "-w", "-"]).ok();
            assert_eq!(
                parse_pcap(&again.out),
                theirs,
                "'{expression}' on {}, as pcapng",
                file.display()
            );
            compared += 1;
        }
    }
    eprintln!("{test}: {compared} files compared");
}

#[test]
fn a_little_endian_pcap_comes_out_byte_for_byte() {
    let test = "a_little_endian_pcap_comes_out_byte_for_byte";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(file) = capture(test, "pcapplusplus__example.pcap") else {
        return;
    };
    let temp = Temp::new();
    for expression in ["", "tcp", "port 53", "ip6"] {
        let (ours, theirs) = (temp.at("ours.pcap"), temp.at("theirs.pcap"));
        weir(["filter", expression, s(&file), "-w", &ours]).ok();
        tool("tcpdump", ["-n", "-r", s(&file), "-w", &theirs, expression]).ok();
        assert!(
            fs::read(&ours).unwrap() == fs::read(&theirs).unwrap(),
            "'{expression}'"
        );
    }
}

#[test]
fn wireshark_reads_what_is_written() {
    let test = "wireshark_reads_what_is_written";
    if !have(test, &["tshark"]) {
        return;
    }
    let temp = Temp::new();
    for name in [
        "gopacket__pcapgo_tests_be_test006.pcapng",
        "ndpi__http2.pcapng",
        "scapy__netflowv9.pcap",
    ] {
        let Some(file) = capture(test, name) else {
            continue;
        };
        let out = temp.at("out.pcapng");
        weir(["filter", "", s(&file), "-w", &out]).ok();
        let fields = [
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
            "-e",
            "frame.encap_type",
        ];
        let text = |path: &str| {
            tool("tshark", [&["-n", "-r", path][..], &fields].concat())
                .ok()
                .text()
        };
        assert_eq!(text(&out), text(s(&file)), "{name}");
    }
}

#[test]
fn several_workers_keep_the_order() {
    let test = "several_workers_keep_the_order";
    let temp = Temp::new();
    let file = made(&temp);
    for expression in ["", "udp", "tcp and len > 1000"] {
        let (one, four) = (temp.at("one.pcap"), temp.at("four.pcap"));
        weir(["filter", expression, &file, "-w", &one, "--workers", "1"]).ok();
        weir(["filter", expression, &file, "-w", &four, "--workers", "4"]).ok();
        let one = fs::read(one).unwrap();
        assert!(one == fs::read(four).unwrap(), "'{expression}'");
        if have(test, &["tcpdump"]) {
            let theirs = temp.at("theirs.pcap");
            tool("tcpdump", ["-n", "-r", &file, "-w", &theirs, expression]).ok();
            assert!(one == fs::read(theirs).unwrap(), "'{expression}'");
        }
    }
    let one = weir(["filter", "udp", &file, "-tt", "--workers", "1"]).ok();
    let four = weir(["filter", "udp", &file, "-tt", "--workers", "4"]).ok();
    assert!(one.out == four.out, "lines");
    assert_eq!(
        one.text().lines().count() as u64,
        weir(["filter", "udp", &file, "--count"]).ok().count()
    );
}

#[test]
fn a_pipe_and_a_file_give_the_same_output() {
    let temp = Temp::new();
    let file = temp.at("made.pcapng");
    weir(["generate", &file, "--packets", "20000", "--seed", "9"]).ok();
    let bytes = fs::read(&file).unwrap();
    let from_file = weir(["filter", "tcp", &file, "-w", "-"]).ok().out;
    let from_pipe = weir_fed(["filter", "tcp", "-", "-w", "-"], &bytes).ok().out;
    assert!(from_file == from_pipe);
    let lines = weir(["filter", "tcp", &file]).ok().out;
    assert!(lines == weir_fed(["filter", "tcp", "-"], &bytes).ok().out);
    if have("a_pipe_and_a_file_give_the_same_output", &["zstd"]) {
        let packed = tool_fed("zstd", ["-c"], &bytes).ok().out;
        assert!(
            lines == weir_fed(["filter", "tcp", "-"], &packed).ok().out,
            "zstd"
        );
    }
}

#[test]
fn standard_output_feeds_tcpdump() {
    let test = "standard_output_feeds_tcpdump";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let ours = weir_fed(
        ["filter", "udp dst portrange 2-4", "-", "-w", "-"],
        &small_pcap(9),
    )
    .ok();
    let theirs = tool_fed("tcpdump", ["-n", "--count", "-r", "-"], &ours.out).ok();
    assert_eq!(theirs.count(), 3);
    assert!(
        ours.err.starts_with("9 received, 3 matched"),
        "{}",
        ours.err
    );
}

#[test]
fn it_stops_after_the_packets_asked_for() {
    let temp = Temp::new();
    let file = temp.at("made.pcap");
    weir(["generate", &file, "--packets", "30000"]).ok();
    let out = temp.at("out.pcap");
    weir(["filter", "udp", &file, "-w", &out]).ok();
    let all = records(&out);
    for n in [1, 2, 31, 32, 33, 1000] {
        let done = weir([
            "filter",
            "udp",
            &file,
            "-w",
            &out,
            "-c",
            &n.to_string(),
            "--workers",
            "4",
        ])
        .ok();
        assert_eq!(records(&out), all[..n]);
        assert!(
            done.err
                .contains(&format!("received, {} matched", grouped(n))),
            "{}",
            done.err
        );
        assert_eq!(
            weir(["filter", "udp", &file, "-c", &n.to_string()])
                .ok()
                .text()
                .lines()
                .count(),
            n
        );
    }
    let more = weir(["filter", "udp", &file, "--count", "-c", "99999"]).ok();
    assert_eq!(more.count(), all.len() as u64);
}

fn grouped(n: usize) -> String {
    if n < 1000 {
        n.to_string()
    } else {
        format!("{} {:03}", n / 1000, n % 1000)
    }
}

#[test]
fn packets_are_cut_where_they_are_written_and_not_where_they_are_judged() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let out = temp.at("out.pcap");
    weir(["filter", "udp[8] = 0", &file, "-s", "40", "-w", &out]).ok();
    let (cut, whole) = (records(&out), records(&file));
    assert_eq!(cut.len(), 4);
    for (cut, whole) in cut.iter().zip(&whole) {
        assert_eq!((cut.wire_len, &cut.data[..]), (62, &whole.data[..40]));
    }
    assert_eq!(fs::read(&out).unwrap()[16..20], 40u32.to_le_bytes());
    if have(
        "packets_are_cut_where_they_are_written_and_not_where_they_are_judged",
        &["editcap"],
    ) {
        let theirs = temp.at("theirs.pcap");
        tool("editcap", ["-F", "pcap", "-s", "40", &file, &theirs]).ok();
        assert_eq!(records(&theirs), cut);
    }
}

#[test]
fn a_split_writes_what_separate_runs_write() {
    let temp = Temp::new();
    let file = temp.at("made.pcap");
    weir(["generate", &file, "--packets", "30000"]).ok();
    let at = |name: &str| temp.at(name);
    let web = format!("{}=tcp port 443", at("web"));
    let dns = format!("{}=port 53", at("dns.pcap"));
    let done = weir([
        "filter",
        "ip",
        &file,
        "-w",
        &at("all.pcap"),
        "--split",
        &web,
        "--split",
        &dns,
        "--stats",
    ])
    .ok();
    for (name, expression) in [
        ("all.pcap", "ip"),
        ("web.pcapng", "ip and tcp port 443"),
        ("dns.pcap", "ip and port 53"),
    ] {
        let alone = at(&format!("alone-{name}"));
        weir(["filter", expression, &file, "-w", &alone]).ok();
        // Each file says the expressions that it was chosen by, as they were given.
        let is_same = if name.ends_with("pcapng") {
            records(&at(name)) == records(&alone)
        } else {
            fs::read(at(name)).unwrap() == fs::read(&alone).unwrap()
        };
        assert!(is_same, "{name}");
        assert!(fs::metadata(alone).unwrap().len() > 10_000, "{name}");
    }
    assert!(done.err.contains("web: "), "{}", done.err);

    let counts = weir([
        "filter",
        "ip",
        &file,
        "--count",
        "--split",
        "web=tcp port 443",
        "--split",
        "dns=port 53",
    ])
    .ok();
    let expected = |expression| weir(["filter", expression, &file, "--count"]).ok().count();
    let lines = format!(
        "{}\n{} web\n{} dns\n",
        expected("ip"),
        expected("ip and tcp port 443"),
        expected("ip and port 53")
    );
    assert_eq!(counts.text(), lines);
    assert!(!temp.names().contains(&"web".to_owned()));
}

/// Records by time, with equal times in a fixed order, because the order of equal times in a merge is not specified.
fn by_time(mut records: Vec<Record>) -> Vec<Record> {
    records.sort();
    records
}

#[test]
fn a_merge_is_in_the_order_of_time() {
    let test = "a_merge_is_in_the_order_of_time";
    let temp = Temp::new();
    let mut sources = Vec::new();
    for (i, seed) in ["1", "2", "3"].iter().enumerate() {
        let source = temp.at(&format!("{i}.pcap"));
        weir([
            "generate",
            &source,
            "--packets",
            "9000",
            "--seed",
            seed,
            "--rate",
            "700000",
        ])
        .ok();
        sources.push(source);
    }
    for count in [2, 3] {
        let sources: Vec<&str> = sources[..count].iter().map(String::as_str).collect();
        let out = temp.at("merged.pcap");
        let done = weir([&["filter", "", "--merge", "-w", &out], &sources[..]].concat()).ok();
        assert!(
            done.err
                .contains(&format!("{} received", grouped(9000 * count))),
            "{}",
            done.err
        );
        let merged = records(&out);
        assert!(merged.is_sorted_by_key(|record| record.time_ns));
        // Packets of equal times keep the order of the sources.
        let mut expected: Vec<Record> = sources.iter().flat_map(|source| records(source)).collect();
        expected.sort_by_key(|record| record.time_ns);
        assert!(merged == expected, "{count} sources");
        let lines = weir([&["filter", "", "--merge", "-tt"], &sources[..]].concat()).ok();
        assert!(lines.out == weir(["filter", "", "-tt", &out]).ok().out);
        if have(test, &["mergecap"]) {
            let theirs = temp.at("theirs.pcap");
            tool(
                "mergecap",
                [&["-F", "pcap", "-w", &theirs], &sources[..]].concat(),
            )
            .ok();
            assert!(by_time(merged.clone()) == by_time(records(&theirs)));
        }
        // The first N packets of the merge are not the first N packets of a source.
        for n in [1, 50, 8000] {
            let first = temp.at("first.pcap");
            let n_text = n.to_string();
            let done = weir(
                [
                    &["filter", "", "--merge", "-c", &n_text, "-w", &first],
                    &sources[..],
                ]
                .concat(),
            )
            .ok();
            assert!(records(&first) == merged[..n], "{n} of {count} sources");
            assert!(
                done.err.contains(&format!(
                    "{} received, {} matched (100.0 %)",
                    grouped(n),
                    grouped(n)
                )),
                "{}",
                done.err
            );
            let done = weir(
                [
                    &[
                        "filter", "udp", "--merge", "-c", &n_text, "--count", "--stats",
                    ],
                    &sources[..],
                ]
                .concat(),
            )
            .ok();
            let all = weir(["filter", "udp", "--count", &out]).ok().count();
            assert_eq!(done.count(), all.min(n as u64));
        }
    }
}

#[test]
fn a_merge_may_be_split() {
    let temp = Temp::new();
    let a = temp.file("a.pcap", &small_pcap(10));
    let b = temp.file("b.pcap", &small_pcap(10));
    let odd = format!("{}=udp dst port 1 or udp dst port 3", temp.at("odd.pcap"));
    let even = format!("{}=udp dst port 2", temp.at("even.pcap"));
    weir([
        "filter", "", &a, &b, "--merge", "--split", &odd, "--split", &even,
    ])
    .ok();
    let seconds = |name: &str| -> Vec<u64> {
        records(&temp.at(name))
            .iter()
            .map(|record| record.time_ns / 1_000_000_000 - 1_700_000_000)
            .collect()
    };
    assert_eq!(seconds("odd.pcap"), [0, 0, 2, 2]);
    assert_eq!(seconds("even.pcap"), [1, 1]);
    weir([
        "filter", "", &a, &b, "--merge", "-c", "5", "--split", &odd, "--split", &even,
    ])
    .ok();
    assert_eq!(seconds("odd.pcap"), [0, 0, 2]);
    let counts = weir([
        "filter",
        "",
        &a,
        &b,
        "--merge",
        "-c",
        "5",
        "--count",
        "--split",
        "x=udp dst port 3",
    ])
    .ok();
    assert_eq!(counts.text(), "5\n1 x\n");
}

/// The names of rotated files are known only when packets come.
#[test]
fn no_output_empties_a_source_or_another_output() {
    let temp = Temp::new();
    let bytes = small_pcap(10);
    // The packets are of 22:13 UTC.
    let source = temp.file("x-22.pcap", &bytes);
    let by_hour = temp.at("x-%H.pcap");
    let done = weir(["filter", "", &source, "-G", "3600", "-w", &by_hour, "--utc"]);
    assert!(
        done.code == Some(1)
            && done
                .err
                .contains("x-22.pcap: cannot be created: it is a source"),
        "{}",
        done.err
    );
    assert_eq!(fs::read(&source).unwrap(), bytes);
    // A source with another name, and a source as standard input.
    let (other, link) = (temp.file("other.pcap", &bytes), temp.at("link-22.pcap"));
    fs::hard_link(&other, &link).unwrap();
    let done = weir([
        "filter",
        "",
        &other,
        "-G",
        "3600",
        "-w",
        &temp.at("link-%H.pcap"),
        "--utc",
    ]);
    assert!(
        done.code == Some(1)
            && done
                .err
                .contains("link-22.pcap: cannot be created: it is a source"),
        "{}",
        done.err
    );
    let mut command = weir_command();
    command
        .args(["filter", "", "-", "-G", "3600", "-w", &by_hour, "--utc"])
        .stdin(fs::File::open(&source).unwrap());
    let done = command.output().unwrap();
    assert!(
        done.status.code() == Some(1)
            && String::from_utf8_lossy(&done.stderr).contains("it is a source")
    );
    assert_eq!(
        (fs::read(&source).unwrap(), fs::read(&other).unwrap()),
        (bytes.clone(), bytes)
    );
    let (one, two) = (
        temp.at("y-%H.pcap"),
        format!("{}=udp", temp.at("y-22.pcap")),
    );
    let done = weir([
        "filter", "", &source, "-G", "3600", "-w", &one, "--split", &two, "--utc",
    ]);
    assert!(
        done.code == Some(1) && done.err.contains("another output of this run"),
        "{}",
        done.err
    );
    assert_eq!(records(&temp.at("y-22.pcap")).len(), 10);
}

#[test]
fn times_that_cannot_be_written_are_counted_and_told_of() {
    let temp = Temp::new();
    let timed = |seconds: u64| {
        let mut packet = pcapng_packet(0, &udp(1, 4));
        let ticks = seconds.saturating_mul(1_000_000);
        packet[12..16].copy_from_slice(&((ticks >> 32) as u32).to_le_bytes());
        packet[16..20].copy_from_slice(&(ticks as u32).to_le_bytes());
        packet
    };
    // 2023, 2106 in the last second of 32 bits and in the next one, 2200, and a time beyond all that can be read.
    let times = [
        1_700_000_000,
        u32::MAX.into(),
        1 << 32,
        7_258_118_400,
        u64::MAX,
    ];
    let bytes = [
        pcapng_start(1),
        times.iter().flat_map(|&time| timed(time)).collect(),
    ]
    .concat();
    let file = temp.file("in.pcapng", &bytes);
    let beyond = |done: &Done| -> Vec<String> {
        let lines = done
            .err
            .lines()
            .filter_map(|line| line.strip_prefix("weir: "));
        lines
            .map(|line| line.split(" with a time ").next().unwrap_or("").to_owned())
            .collect()
    };
    for (name, count) in [("out.pcap", "3 packets"), ("out.pcapng", "1 packet")] {
        let out = temp.at(name);
        let done = weir(["filter", "", &file, "-w", &out]).ok();
        assert_eq!(beyond(&done), [format!("{out}: {count}")], "{}", done.err);
        assert_eq!(weir(["filter", "", &out, "--count"]).ok().count(), 5);
        assert!(
            weir(["filter", "", &file, "-w", &out, "-c", "2"])
                .ok()
                .err
                .starts_with("2 received"),
            "{name}"
        );
    }
    for flag in ["-tttt", "--json"] {
        let done = weir(["filter", "", &file, flag]).ok();
        assert_eq!(beyond(&done), ["1 packet"], "{}", done.err);
    }
    let about = weir(["info", &file, "--utc"]).ok();
    assert!(
        about
            .text()
            .contains("1 packet with a time before 1677 or after 2262"),
        "{}",
        about.text()
    );
    assert!(beyond(&weir(["filter", "", &file, "--count"]).ok()).is_empty());
}

#[test]
fn measurements_count_times_beyond_the_range_wherever_they_stand() {
    let temp = Temp::new();
    let timed = |ticks: u64| {
        let mut packet = pcapng_packet(0, &udp(1, 4));
        packet[12..16].copy_from_slice(&((ticks >> 32) as u32).to_le_bytes());
        packet[16..20].copy_from_slice(&(ticks as u32).to_le_bytes());
        packet
    };
    let simple = block(3, &[&4u32.to_le_bytes()[..], &[0; 4]].concat());
    for period in [1, 2, 7, 31, 32, 33, 64, 100, 1000] {
        // Beside them are packets without a time, and late ones.
        let packets = (0..1000u64).flat_map(|number| match number {
            _ if number % period == period - 1 => timed(u64::MAX - number),
            _ if number % 5 == 0 => simple.clone(),
            _ => timed(1_700_000_000_000_000 + number % 300 * 10_000),
        });
        let file = temp.file("in.pcapng", &[pcapng_start(1), packets.collect()].concat());
        for flags in [
            &[][..],
            &["--window", "1s"],
            &["--window", "1s", "--no-merge", "--workers", "2"],
        ] {
            let done =
                weir([&["measure", &file, "--json", "--filter", "len > 0"], flags].concat()).ok();
            let answers = done.text();
            let summary: serde_json::Value =
                serde_json::from_str(answers.lines().last().unwrap()).unwrap();
            assert_eq!(
                summary["times_beyond"],
                1000 / period,
                "{period} {flags:?}: {summary}"
            );
        }
    }
}

#[test]
fn packets_without_a_time_are_told_of_where_they_get_one() {
    let temp = Temp::new();
    let simple = |data: &[u8]| block(3, &[&(data.len() as u32).to_le_bytes()[..], data].concat());
    let file = temp.file(
        "simple.pcapng",
        &[
            pcapng_start(1),
            simple(&udp(1, 2)),
            pcapng_packet(9, &udp(2, 2)),
        ]
        .concat(),
    );
    for name in ["copy.pcapng", "copy.pcap"] {
        let copy = temp.at(name);
        let done = weir(["filter", "", &file, "-w", &copy]).ok();
        let line = format!(
            "weir: {copy}: 1 packet without a time stamp: the beginning of 1970 stands there instead\n"
        );
        assert!(done.err.contains(&line), "{}", done.err);
    }
}

#[test]
fn an_empty_answer_is_a_capture_file_too() {
    let test = "an_empty_answer_is_a_capture_file_too";
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(3));
    for name in ["none.pcap", "none.pcapng"] {
        let out = temp.at(name);
        weir(["filter", "tcp", &file, "-w", &out]).ok();
        assert_eq!(weir(["filter", "", &out, "--count"]).ok().count(), 0);
        if have(test, &["tcpdump"]) {
            assert_eq!(
                tool("tcpdump", ["-n", "--count", "-r", &out]).ok().count(),
                0
            );
        }
    }
    assert_eq!(
        fs::read(temp.at("none.pcap")).unwrap(),
        pcap_header(65_535, 1)
    );
}

#[test]
fn a_generated_file_knows_its_answers() {
    let temp = Temp::new();
    let file = temp.at("made.pcapng");
    let truth = weir([
        "generate",
        &file,
        "--packets",
        "30000",
        "--seed",
        "11",
        "--truth",
    ])
    .ok()
    .text();
    assert!(truth.lines().count() > 5, "{truth}");
    for line in truth.lines() {
        let mut fields = line.splitn(3, '\t');
        let mut next = || fields.next().expect("three fields");
        let (packets, bytes, expression) = (next(), next(), next());
        let done = weir(["filter", expression, &file, "--count", "--json"]).ok();
        let value: serde_json::Value = serde_json::from_slice(&done.out).unwrap();
        assert_eq!(
            (
                value["matched"].to_string().as_str(),
                value["bytes"].to_string().as_str()
            ),
            (packets, bytes),
            "{line}"
        );
    }
    let again = temp.at("again.pcapng");
    weir(["generate", &again, "--packets", "30000", "--seed", "11"]).ok();
    assert!(fs::read(&file).unwrap() == fs::read(&again).unwrap());
    let piped = weir(["generate", "-", "--packets", "30000", "--seed", "11"]).ok();
    assert!(fs::read(&file).unwrap() == piped.out);
}

#[test]
fn capture_files_are_nobody_elses_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let temp = Temp::new();
    let [made, main, split, old] =
        ["made.pcap", "main.pcapng", "split.pcap", "old.pcap"].map(|name| temp.at(name));
    weir(["generate", &made, "--packets", "10", "--seed", "1"]).ok();
    weir([
        "filter",
        "",
        &made,
        "-w",
        &main,
        "--split",
        &format!("{split}=ip"),
    ])
    .ok();
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([&made, &main, &split].map(|path| mode(path)), [0o600; 3]);
    // An existing file keeps its access rights.
    std::fs::write(&old, b"").unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o644)).unwrap();
    weir(["filter", "", &made, "-w", &old]).ok();
    assert_eq!(mode(&old), 0o644);
}
