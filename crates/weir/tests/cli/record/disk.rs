//! Records on disk: what is kept there, what survives a kill, and a disk that fails.

use super::*;

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
        (["record", "--reindex", &file], ": is not a directory\n"),
        (
            ["record", "--status", &out],
            "no recorder runs on this directory",
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
        let wanted = choices.below(40_000) as u64 + 1;
        let mut durable = 0;
        wait::until(format_args!("{wanted} durable packets"), || {
            durable = status(&mut client)["disk"]["durable"]["number"]
                .as_u64()
                .unwrap();
            durable >= wanted
        });
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
