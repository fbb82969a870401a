//! Files that rotate by size, by packets and by time, and what is told of them.

use super::*;

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
