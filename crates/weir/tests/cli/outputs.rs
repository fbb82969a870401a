//! Written files: the packets that tcpdump writes, in the same order, in files with the same names.

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

#[test]
fn files_rotate_by_size_as_tcpdumps_do() {
    let test = "files_rotate_by_size_as_tcpdumps_do";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let source = Temp::new();
    let file = source.at("made.pcap");
    weir(["generate", &file, "--packets", "6000"]).ok();
    for options in [
        &["-C", "1"][..],
        &["-C", "2"],
        &["-C", "1", "-W", "3"],
        &["-C", "1", "-W", "12"],
    ] {
        let (ours, theirs) = (Temp::new(), Temp::new());
        weir([&["filter", "ip", &file, "-w", &ours.at("r.pcap")], options].concat()).ok();
        tool(
            "tcpdump",
            [
                &["-n", "-Z", "root", "-r", &file, "-w", &theirs.at("r.pcap")],
                options,
                &["ip"],
            ]
            .concat(),
        )
        .ok();
        assert_eq!(ours.names(), theirs.names(), "{options:?}");
        assert!(ours.names().len() >= 3, "{:?}", ours.names());
        for name in ours.names() {
            assert!(
                fs::read(ours.at(&name)).unwrap() == fs::read(theirs.at(&name)).unwrap(),
                "{options:?}: {name}"
            );
        }
    }
}

#[test]
fn files_rotate_by_packet_time() {
    let source = Temp::new();
    let file = source.file("in.pcap", &small_pcap(10));
    let whole = records(&file);

    // 1 700 000 000 is 22:13:20 UTC: windows of 4 s begin at :20, :24, :28.
    let temp = Temp::new();
    weir([
        "filter",
        "",
        &file,
        "-G",
        "4",
        "-w",
        &temp.at("g-%H%M%S.pcap"),
        "--utc",
    ])
    .ok();
    assert_eq!(
        temp.names(),
        ["g-221320.pcap", "g-221324.pcap", "g-221328.pcap"]
    );
    let parts: Vec<Record> = temp
        .names()
        .iter()
        .flat_map(|name| records(&temp.at(name)))
        .collect();
    assert_eq!(parts, whole);
    assert_eq!(records(&temp.at("g-221324.pcap")), whole[4..8]);

    let temp = Temp::new();
    let out = temp.at("g-%H%M%S.pcap");
    let odd = format!("{}=udp[3] & 1 = 1", temp.at("odd.pcap"));
    let expression = "udp dst portrange 2-60";
    let done = weir([
        "filter", expression, &file, "-G", "4", "-W", "2", "-w", &out, "--utc", "--stats",
        "--split", &odd,
    ])
    .ok();
    assert_eq!(
        temp.names(),
        ["g-221321.pcap", "g-221324.pcap", "odd.pcap", "odd.pcap1"]
    );
    assert!(!done.err.contains("weir:"), "{}", done.err);
    // Packets after the last file are in no count. Of the eight packets before, the first does not match.
    assert!(
        done.err
            .starts_with("8 received, 7 matched (87.5 %), 434 bytes, 0 dropped, 7 written, "),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("  received 8 = passed 7 + filtered 1 + denied 0 + dropped 0\n"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("odd.pcap: 3 packets, 186 bytes\n"),
        "{}",
        done.err
    );
    let count = |name: &str| records(&temp.at(name)).len();
    assert_eq!(
        temp.names()
            .iter()
            .map(|name| count(name))
            .collect::<Vec<_>>(),
        [3, 4, 1, 2]
    );

    let temp = Temp::new();
    weir(["filter", "", &file, "-G", "4", "-w", &temp.at("g.pcap")]).ok();
    assert_eq!(
        temp.names(),
        ["g.pcap", "g.pcap1", "g.pcap2"],
        "names that would repeat are numbered"
    );

    // Three windows in the same hour: no file is overwritten.
    let temp = Temp::new();
    weir([
        "filter",
        "",
        &file,
        "-G",
        "4",
        "-w",
        &temp.at("g-%H.pcap"),
        "--utc",
    ])
    .ok();
    assert_eq!(temp.names(), ["g-22.pcap", "g-22.pcap1", "g-22.pcap2"]);
    let parts: Vec<Record> = temp
        .names()
        .iter()
        .flat_map(|name| records(&temp.at(name)))
        .collect();
    assert_eq!(parts, whole);

    // By time and size: the numbers restart in each window.
    let temp = Temp::new();
    let file = source.file("long.pcap", &small_pcap(60));
    weir([
        "filter",
        "",
        &file,
        "-G",
        "30",
        "-C",
        "1k",
        "-w",
        &temp.at("g-%S.pcap"),
        "--utc",
    ])
    .ok();
    let expected = [
        "g-00.pcap",
        "g-00.pcap1",
        "g-20.pcap",
        "g-30.pcap",
        "g-30.pcap1",
        "g-30.pcap2",
    ];
    assert_eq!(temp.names(), expected);
    let count: usize = expected
        .iter()
        .map(|name| records(&temp.at(name)).len())
        .sum();
    assert_eq!(count, 60);
}

/// For every way of rotation, the summary has the number of written packets, and its counts add up.
#[test]
fn the_summary_of_a_rotation_says_what_was_written() {
    let source = Temp::new();
    let file = source.at("made.pcapng");
    // 30 000 packets within 10 s.
    weir([
        "generate",
        &file,
        "--packets",
        "30000",
        "--rate",
        "3000",
        "--sizes",
        "200",
    ])
    .ok();
    let told = |done: &Done, word: &str| -> u64 {
        let line = done
            .err
            .lines()
            .find(|line| line.contains(" received, "))
            .expect("a summary");
        let part = line.split(", ").find_map(|part| part.strip_suffix(word));
        part.unwrap_or_else(|| panic!("no{word}: {}", done.err))
            .replace(' ', "")
            .parse()
            .expect("a number")
    };
    for (options, ring) in [
        (&["-G", "2", "-W", "3"][..], false),
        (&["-G", "2", "-W", "3", "-C", "500k"], false),
        (&["-G", "6", "-W", "1", "-C", "100k"], false),
        (&["-G", "2", "-W", "3", "--merge"], false),
        (
            &["-G", "2", "-W", "3", "-c", "29000", "--workers", "4"],
            false,
        ),
        (&["-G", "2"], false),
        (&["-C", "1M"], false),
        (&["-C", "200k", "-W", "3"], true),
        (&["-C", "200k", "-W", "1"], true),
    ] {
        for expression in ["", "udp"] {
            let temp = Temp::new();
            let out = temp.at("g-%s.pcapng");
            let done = weir(
                [
                    &["filter", expression, &file, "-w", &out, "--stats"],
                    options,
                ]
                .concat(),
            )
            .ok();
            let context = format!("{options:?} '{expression}': {}", done.err);
            let there: usize = temp
                .names()
                .iter()
                .map(|name| records(&temp.at(name)).len())
                .sum();
            let written = told(&done, " written");
            let overwritten = if ring {
                told(&done, " of them overwritten (-W)")
            } else {
                0
            };
            assert_eq!(there as u64 + overwritten, written, "{context}");
            assert_eq!(ring, done.err.contains("overwritten"), "{context}");
            let account = done
                .err
                .lines()
                .find(|line| line.contains(" = passed "))
                .expect("the account")
                .replace(' ', "");
            let terms: Vec<u64> = account
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|n| n.parse().ok())
                .collect();
            assert_eq!(
                (terms[0], terms[1]),
                (terms[1..].iter().sum(), written),
                "{context}"
            );
            let both = options.contains(&"-C") && options.contains(&"-G");
            let note = "weir: -W is ignored beside both -C and -G: it limits no files, and only widens the numbers in their names\n";
            assert_eq!(done.err.starts_with(note), both, "{context}");
            if both {
                // As in tcpdump's manual: all packets are written, and no name is used twice.
                assert_eq!(terms[0], 30_000, "{context}");
                assert!(
                    temp.names()
                        .iter()
                        .all(|name| name.ends_with(|c: char| c.is_ascii_digit())),
                    "{context}"
                );
            } else if options.contains(&"-W") && !ring {
                // The received packets are those of the file up to the last written packet.
                let all = records(&file);
                let last = temp
                    .names()
                    .iter()
                    .flat_map(|name| records(&temp.at(name)))
                    .max()
                    .expect("packets");
                let at = all
                    .iter()
                    .position(|record| *record == last)
                    .expect("it is one of them");
                assert!(
                    terms[0] > at as u64 && (!expression.is_empty() || terms[0] == at as u64 + 1),
                    "{context}"
                );
                assert!(terms[0] < 29_000, "{context}");
            }
        }
    }
}

/// The file has reached its size limit. Only complete lines remain, as many as the summary says.
#[test]
fn lines_that_have_no_room_are_cut_at_a_line_and_counted() {
    let source = Temp::new();
    let file = source.at("made.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "20000",
        "--sizes",
        "200",
        "--seed",
        "2",
    ])
    .ok();
    for more in ["", "--json", "-x", "-U", "-t", "--follow"] {
        for redirection in [">", ">>"] {
            let temp = Temp::new();
            let out = temp.file("out", b"before\n");
            let script = format!(
                "ulimit -f 300; exec '{}' filter '' '{file}' {more} {redirection} '{out}'",
                env!("CARGO_BIN_EXE_weir")
            );
            let done = run(
                Command::new("bash")
                    .args(["-c", &script])
                    .stdin(Stdio::null()),
                &[],
            );
            assert_eq!(done.code, Some(1), "{more}: {}", done.err);
            let text = fs::read_to_string(&out).unwrap();
            let added = text
                .strip_prefix("before\n")
                .filter(|_| redirection == ">>")
                .unwrap_or(&text);
            let packets = added.lines().filter(|line| !line.starts_with('\t')).count();
            // The file may be at most two lines, or two dumps, below the limit.
            assert!(
                text.ends_with('\n') && text.len() <= 307_200 && text.len() > 305_000,
                "{more}: {} bytes",
                text.len()
            );
            assert_eq!(
                text.len() - added.len(),
                if redirection == ">>" { 7 } else { 0 }
            );
            if more == "-x" {
                assert!(
                    added
                        .lines()
                        .last()
                        .is_some_and(|line| line.contains("0x00b0:")),
                    "a dump is whole"
                );
            }
            let written = done.err.lines().last().unwrap_or_default().replace(' ', "");
            assert!(
                written.contains(&format!(",{packets}written,")),
                "{more} {redirection} {packets}: {}",
                done.err
            );
        }
    }
}

/// The second file is a link to a device that is always full.
#[test]
fn the_file_of_a_rotation_that_is_full_is_named() {
    let test = "the_file_of_a_rotation_that_is_full_is_named";
    if !Path::new("/dev/full").exists() {
        skipped(test, "no /dev/full");
        return;
    }
    let temp = Temp::new();
    let frames = (0..900).flat_map(|i| pcap_record(1_700_000_000 + i / 800, &udp(7, 1400)));
    let file = temp.file(
        "in.pcap",
        &[pcap_header(65_535, 1), frames.collect()].concat(),
    );
    for (name, full, more) in [
        ("a-%s.pcap", "a-1700000001.pcap", ["-G", "1"]),
        ("b.pcap", "b.pcap1", ["-C", "1"]),
    ] {
        std::os::unix::fs::symlink("/dev/full", temp.at(full)).unwrap();
        let done = weir([&["filter", "", &file, "-w", &temp.at(name)], &more[..]].concat());
        let whole = fs::read(temp.at(&name.replace("%s", "1700000000"))).unwrap();
        let kept = parse_pcap(&whole).1.len();
        let line = format!(
            "weir: {}: no space left on the device; {kept} packets were written before that\n",
            temp.at(full)
        );
        assert!(
            done.code == Some(1) && done.err.contains(&line),
            "{line}{}",
            done.err
        );
    }
}

/// An interface statistics block with these options, for interface 0.
fn statistics(counts: &[(u16, u64)]) -> Vec<u8> {
    statistics_of(0, counts)
}

/// An interface statistics block with these options, for interface `id`.
fn statistics_of(id: u32, counts: &[(u16, u64)]) -> Vec<u8> {
    let ticks = 1_700_000_009_000_000u64;
    let mut body: Vec<u8> = [id, (ticks >> 32) as u32, ticks as u32]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for (code, count) in counts {
        body.extend([code.to_le_bytes(), 8u16.to_le_bytes()].concat());
        body.extend(count.to_le_bytes());
    }
    body.extend([0; 4]);
    block(5, &body)
}

#[test]
fn what_a_source_says_of_its_losses_is_in_the_copy() {
    let temp = Temp::new();
    let packets: Vec<u8> = (1..=5)
        .flat_map(|i| pcapng_packet(i, &udp(i as u16, 4)))
        .collect();
    let early = statistics(&[(4, 2), (5, 1), (7, 1), (8, 2)]);
    let last = statistics(&[(4, 100), (5, 20), (7, 75), (8, 5)]);
    let bytes = [pcapng_start(1), early, packets.clone(), last.clone()].concat();
    let file = temp.file("in.pcapng", &bytes);
    let (copy, split) = (temp.at("copy.pcapng"), temp.at("split.pcapng"));
    let split_option = format!("{split}=udp dst port 3");
    let holds = |path: &str, block: &[u8]| {
        let copy = fs::read(path).unwrap();
        let kinds = copy
            .windows(8)
            .filter(|words| words[..4] == 5u32.to_le_bytes() && words[4..] == block[4..8])
            .count();
        kinds == 1 && copy.ends_with(block)
    };
    for more in [&[][..], &["--merge"], &["--workers", "3"], &["-C", "100M"]] {
        weir(
            [
                &[
                    "filter",
                    "udp",
                    &file,
                    "-w",
                    &copy,
                    "--split",
                    &split_option,
                ],
                more,
            ]
            .concat(),
        )
        .ok();
        assert!(holds(&copy, &last) && holds(&split, &last), "{more:?}");
        assert_eq!((records(&copy).len(), records(&split).len()), (5, 1));
    }
    let piped = weir_fed(["filter", "", "-", "-w", "-"], &bytes).ok().out;
    assert!(piped.ends_with(&last));
    // Both sources have the same interface, so that the copy has the sum of both losses. The same holds for several
    // sections of a file.
    let twice = statistics(&[(4, 200), (5, 40), (7, 150), (8, 10)]);
    for sources in [
        vec![&file, &file],
        vec![&temp.file("sections.pcapng", &bytes.repeat(2))],
    ] {
        for more in [&[][..], &["--merge"]] {
            let sources: Vec<&str> = sources.iter().map(|source| source.as_str()).collect();
            weir([&["filter", "", "-w", &copy], &sources[..], more].concat()).ok();
            assert!(holds(&copy, &twice), "{sources:?} {more:?}");
        }
    }
    let about: serde_json::Value =
        serde_json::from_slice(&weir(["info", "--json", &copy]).ok().out).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], 190);
    // A source without statistics gives a copy without them. A copy without packets still has the statistics.
    let none = temp.file("none.pcapng", &[pcapng_start(1), packets].concat());
    weir(["filter", "", &none, "-w", &copy]).ok();
    assert!(!holds(&copy, &last) && !holds(&copy, &twice));
    weir(["filter", "tcp", &file, "-w", &copy]).ok();
    assert!(holds(&copy, &last) && records(&copy).is_empty());
    if have(
        "what_a_source_says_of_its_losses_is_in_the_copy",
        &["capinfos"],
    ) {
        let entries = |path: &str| {
            let text = tool("capinfos", ["-I", path]).ok().text();
            text.lines()
                .find(|line| line.contains("Number of stat entries"))
                .map(str::to_owned)
        };
        assert!(entries(&copy).is_some_and(|line| line.ends_with(" = 1")));
    }
}

#[test]
fn losses_of_interfaces_that_are_alike_add_up() {
    let temp = Temp::new();
    let start = pcapng_start(1);
    let interface = &start[start.len() - 20..];
    let blocks = [
        &start[..],
        interface,
        &pcapng_packet(1, &udp(1, 4)),
        &statistics_of(0, &[(7, 5)]),
    ];
    let file = temp.file(
        "alike.pcapng",
        &[&blocks.concat()[..], &statistics_of(1, &[(7, 7)])].concat(),
    );
    let copy = temp.at("copy.pcapng");
    weir(["filter", "", &file, "-w", &copy]).ok();
    for path in [&file, &copy] {
        let about: serde_json::Value =
            serde_json::from_slice(&weir(["info", "--json", path]).ok().out).unwrap();
        let dropped = about["interfaces"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["dropped"].as_u64());
        assert_eq!(dropped.sum::<u64>(), 12, "{path}: {about}");
    }
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
