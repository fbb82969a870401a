//! Queries that are refused, and damaged records.

use super::*;

#[test]
fn no_output_goes_into_the_record_that_is_read() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let segment = segments(&directory).remove(1);
    let (hard, soft, dangling) = (
        temp.at("hard.pcapng"),
        temp.at("soft.pcapng"),
        temp.at("dangling.pcapng"),
    );
    std::fs::hard_link(&segment, &hard).unwrap();
    std::os::unix::fs::symlink(&segment, &soft).unwrap();
    std::os::unix::fs::symlink(format!("{directory}/new.pcapng"), &dangling).unwrap();
    let index = segment.replace(".pcapng", ".index");
    let (lock, new) = (
        format!("{directory}/lock"),
        format!("{directory}/new.pcapng"),
    );
    for output in [&segment, &hard, &soft, &dangling, &index, &lock, &new] {
        for command in [
            &["query", &directory, "tcp"][..],
            &["filter", "", &directory],
            &["measure", &directory],
        ] {
            let done = weir([command, &["-w", output]].concat());
            assert!(
                done.code == Some(2)
                    && done
                        .err
                        .contains(&format!("{output} is part of {directory}")),
                "{}",
                done.err
            );
        }
    }
    assert_eq!(
        weir(["query", &directory, "--count"]).ok().count(),
        packets.len() as u64
    );
    weir(["query", &directory, "tcp", "-w", &temp.at("beside.pcapng")]).ok();
}

/// A segment, an index and the lock of another record are written by its recorder only.
#[test]
fn outputs_that_are_files_of_another_record_are_refused() {
    let temp = Temp::new();
    let file = temp.file("few.pcap", &small_pcap(60));
    let (read, other) = (temp.at("read"), temp.at("other"));
    for directory in [&read, &other] {
        weir(["record", &file, directory, "--disk", "1G"]).ok();
    }
    let segment = segments(&other).remove(0);
    let soft = temp.at("soft.pcapng");
    std::os::unix::fs::symlink(&segment, &soft).unwrap();
    let contents = |path: &str| std::fs::read(path).unwrap();
    for output in [
        &segment,
        &soft,
        &segment.replace(".pcapng", ".index"),
        &format!("{other}/lock"),
    ] {
        let before = contents(output);
        for command in [
            &["query", &read, "-w"][..],
            &["filter", "", &file, "-w"],
            &["measure", &file, "-w"],
            &["generate", "--packets", "3"],
        ] {
            let done = weir([command, &[output]].concat());
            assert_eq!(done.code, Some(2), "{command:?}: {}", done.err);
            let line = format!(
                "weir: {output} is part of {other}, a record: write to another directory\n"
            );
            assert_eq!(done.err, line, "{command:?}");
        }
        assert!(contents(output) == before, "{output}");
    }
    // A copy of a segment elsewhere is a file like others.
    let copy = temp.file(segment.rsplit('/').next().unwrap(), &contents(&segment));
    weir(["query", &read, "-w", &copy]).ok();
    assert_eq!(records(&copy).len(), 60);
}

#[test]
fn bad_questions_and_bad_directories_get_one_clear_line() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets[..2000]);
    let empty = temp.at("empty");
    fs::create_dir(&empty).unwrap();
    let file = temp.file("file.pcap", &small_pcap(1));
    let missing = temp.at("missing");
    let cases: [(&[&str], i32, String); 12] = [
        (&[&missing], 1, format!("{missing}: no such directory")),
        (&[&empty], 1, format!("{empty} is not a record directory: it holds no segments")),
        (&[&file], 2, format!("{file} is not a directory: weir query DIR [EXPR], where weir record has written DIR")),
        (&["-"], 2, "- is not a directory: weir query DIR [EXPR], where weir record has written DIR".to_owned()),
        (
            &[&directory, "--from", "05:31", "--to", "05:30"],
            2,
            "--from 05:31 is later than --to 05:30: no packet can lie between them".to_owned(),
        ),
        (
            &[&directory, "--from", "2026-11-23", "--to", "2026-11-22T23:59:59Z"],
            2,
            "--from 2026-11-23 is later than --to 2026-11-22T23:59:59Z: no packet can lie between them".to_owned(),
        ),
        (
            &[&directory, "--from", "yesterday"],
            2,
            "--from: 'yesterday' is not a time: write ".to_owned(),
        ),
        (&[&directory, "--last", "5 weeks"], 2, "--last: ".to_owned()),
        (
            &[&directory, "--last", "5m", "--to", "now"],
            2,
            "--last and --to exclude each other".to_owned(),
        ),
        (
            &[&directory, "--flow", "10.0.0.1"],
            2,
            "--flow: '10.0.0.1' is not a conversation".to_owned(),
        ),
        (&[&directory, "tcp prot 80", "--from", "now"], 2, "".to_owned()),
        (
            &[&directory, "--follow"],
            2,
            format!("{directory}: no recorder is running there whose packets could be followed: leave --follow out"),
        ),
    ];
    for (arguments, code, line) in cases {
        let done = weir([&["query"], arguments].concat());
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.err);
        assert!(
            done.err.starts_with(&format!("weir: {line}")),
            "{arguments:?}: {}",
            done.err
        );
        assert_eq!(done.text(), "", "{arguments:?}");
    }
}

#[test]
fn damage_is_told_and_the_rest_is_found() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let segments = segments(&directory);
    let all = weir(["query", &directory, "udp", "--count"]).ok();

    // A damaged index is not needed.
    let index = segments[2].replace(".pcapng", ".index");
    let mut bytes = fs::read(&index).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&index, bytes).unwrap();
    let done = weir(["query", &directory, "udp", "--count"]).ok();
    assert_eq!(done.text(), all.text());
    assert!(
        done.err
            .contains(&format!("weir: {}: its index is damaged (", segments[2])),
        "{}",
        done.err
    );

    // Packets of a damaged block are given as they are, which is told.
    let mut bytes = fs::read(&segments[4]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&segments[4], bytes).unwrap();
    let done = weir(["query", &directory, "--count"]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.count(), packets.len() as u64);
    let line = format!("weir: {directory}: 1 damaged block was skipped, but for ");
    assert!(done.err.contains(&line), "{}", done.err);
    assert!(
        done.err
            .contains(" packets in them that are given as they are; the first is at offset "),
        "{}",
        done.err
    );
    assert!(
        done.err.contains(&format!(" of {}: ", segments[4])),
        "{}",
        done.err
    );
    // A question that needs no packet of that block is answered whole.
    let early = ["--to", &seconds(packets[1000].time_ns)];
    assert_eq!(
        weir([&["query", &directory, "--count"], &early[..]].concat())
            .ok()
            .count(),
        1001
    );
}
