//! Segments that are damaged, gone, or none.

use super::*;

/// A segment that somebody removed is missed by its number.
#[test]
fn a_segment_that_is_gone_is_told() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let all = weir(["query", &directory, "--count"]).ok();
    assert!(!all.err.contains("gone"), "{}", all.err);
    let segments = segments(&directory);
    std::fs::remove_file(&segments[2]).unwrap();
    let done = weir(["query", &directory, "--count"]);
    let missing = all.count() - done.count();
    let line = format!("{directory}: segment 000003 is gone, with up to {missing} packets");
    assert!(
        done.code == Some(1) && done.err.contains(&line),
        "{missing}: {}",
        done.err
    );
}

/// Packets that capinfos reads of a file up to its first damage.
fn read_by_capinfos(file: &str) -> u64 {
    let done = tool("capinfos", ["-c", "-M", file]);
    let (text, err) = (done.text(), done.err);
    let after = |words: &str, from: &str| {
        let rest = &from[from.find(words)? + words.len()..];
        rest.trim_start_matches([' ', ':'])
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    after("after reading ", &err)
        .or_else(|| after("Number of packets", &text))
        .unwrap_or(0)
}

/// A segment with flipped, missing or further bytes: as many packets as any other tool reads, and those behind the damage; it is told,
/// and new indexes take nothing away.
#[test]
fn a_damaged_segment_gives_as_much_as_other_tools_read() {
    let test = "a_damaged_segment_gives_as_much_as_other_tools_read";
    if !have(test, &["capinfos"]) {
        return;
    }
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let packets = &packets[..700];
    let whole = temp.at("whole");
    record(&whole, packets);
    let all = segments(&whole);
    assert_eq!(all.len(), 1);
    let (name, bytes) = (
        Path::new(&all[0]).file_name().unwrap().to_str().unwrap(),
        std::fs::read(&all[0]).unwrap(),
    );
    let index = std::fs::read(all[0].replace(".pcapng", ".index")).unwrap();
    let marks: Vec<usize> = (0..bytes.len() - 8)
        .filter(|&at| bytes[at..].starts_with(b"weirmark"))
        .map(|at| at - 12)
        .collect();
    let mut random = weir_testkit::Random(91);
    for case in 0..60 {
        let mark = marks[random.below(marks.len() - 1)];
        let at = match case % 4 {
            0 => random.below(bytes.len()),
            1 => mark + random.below(96),
            2 => random.below(marks[0]),
            _ => mark,
        };
        let mut damaged = bytes.clone();
        match case / 4 % 3 {
            0 => damaged[at] ^= 1 << random.below(8),
            1 => drop(damaged.splice(at..(at + 4).min(bytes.len()), [])),
            _ => drop(damaged.splice(at..at, [0xa5; 8])),
        }
        let directory = temp.at(&format!("case{case}"));
        std::fs::create_dir(&directory).unwrap();
        let file = format!("{directory}/{name}");
        std::fs::write(&file, &damaged).unwrap();
        let has_index = case % 2 == 0;
        if has_index {
            std::fs::write(file.replace(".pcapng", ".index"), &index).unwrap();
        }
        let wanted = read_by_capinfos(&file);
        let done = weir(["query", &directory, "--count"]);
        let what = format!(
            "case {case}, byte {at}, with index {has_index}: {wanted} wanted: {}",
            done.err
        );
        assert!(done.count() >= wanted, "{what}");
        // A flip in zeros that only fill a page, or in a mark, may cost nothing.
        assert!(
            done.code == Some(1) || done.count() == packets.len() as u64,
            "{what}"
        );
        let reindexed = weir(["record", "--reindex", &directory]);
        assert!(
            std::fs::read(&file).unwrap() == damaged,
            "{what}: {}",
            reindexed.err
        );
        let again = weir(["query", &directory, "--count"]);
        assert!(
            again.count() >= wanted && again.count() + 30 >= done.count(),
            "{what}: {}",
            again.err
        );
    }
}

/// The first, the last and the only segment, removed with the index left behind: every reader says so, and copies do.
#[test]
fn a_segment_at_the_end_of_a_record_that_is_gone_is_told_by_every_reader() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let whole = temp.at("whole");
    record(&whole, &packets);
    let all = segments(&whole).len();
    let counted = |file: &String| weir(["filter", "", file, "--count"]).ok().count();
    let inside: Vec<u64> = segments(&whole).iter().map(counted).collect();
    for (case, gone) in [vec![0], vec![all - 1], (0..all).collect()]
        .into_iter()
        .enumerate()
    {
        let (directory, copy) = (
            temp.at(&format!("case{case}")),
            temp.at(&format!("copy{case}.pcapng")),
        );
        record(&directory, &packets);
        for &number in &gone {
            std::fs::remove_file(segments(&whole)[number].replace(&whole, &directory)).unwrap();
        }
        let part = |number: usize| {
            format!(
                "segment {:06} is gone, with up to {} packets",
                number + 1,
                inside[number]
            )
        };
        for words in [
            &["query", &directory, "--count"][..],
            &["measure", &directory],
            &["filter", "", &directory, "--count"],
            &["info", &directory],
        ] {
            let done = weir(words);
            let is_told = gone.iter().all(|&number| done.err.contains(&part(number)));
            assert!(done.code == Some(1) && is_told, "{words:?}: {}", done.err);
        }
        if gone.len() < all {
            assert_eq!(weir(["filter", "", &directory, "-w", &copy]).code, Some(1));
            let about = weir(["info", "--json", &copy]).ok().text();
            assert!(
                about.contains(&format!("the record was not whole: {}", part(gone[0]))),
                "{about}"
            );
        }
        // Nothing of it is taken away by those that write to the directory.
        let done = weir(["record", "--reindex", &directory]).ok();
        assert!(
            done.err.contains("this segment is gone; its index stays"),
            "{}",
            done.err
        );
        assert!(
            weir(["query", &directory, "--count"])
                .err
                .contains(&part(gone[0]))
        );
    }
}

/// Files that are no segments by their names are named, once, by those that write to the directory too.
#[test]
fn what_is_no_segment_is_named_once() {
    let test = "what_is_no_segment_is_named_once";
    if !have(test, &["mkfifo", "timeout"]) {
        return;
    }
    let temp = Temp::new();
    let (file, directory) = (temp.file("all.pcap", &small_pcap(9)), temp.at("cap"));
    record(&directory, &traffic(&temp).0[..500]);
    let pipe = format!("{directory}/20231114T221320.000000000Z-000009.pcapng");
    tool("mkfifo", [&pipe]).ok();
    let bounded = |words: &[&str]| {
        tool(
            "timeout",
            [&["20", env!("CARGO_BIN_EXE_weir")], words].concat(),
        )
    };
    let line = format!(
        "weir: {pipe}: is not a regular file; it is left alone, and is not a part of the record\n"
    );
    let done = bounded(&["record", "--reindex", &directory]);
    assert!(
        done.code == Some(1) && done.err.contains(&line),
        "{:?} {}",
        done.code,
        done.err
    );
    let done = bounded(&["record", &file, &directory, "--disk", "100M"]);
    assert!(
        done.code == Some(0) && done.err.contains(&line),
        "{:?} {}",
        done.code,
        done.err
    );
    std::fs::remove_file(&pipe).unwrap();
    let lock = format!("{directory}/lock");
    std::fs::remove_file(&lock).unwrap();
    tool("mkfifo", [&lock]).ok();
    for words in [
        &["record", "--reindex", &directory][..],
        &["record", &file, &directory, "--disk", "100M"],
    ] {
        let done = bounded(words);
        assert_eq!(
            done.err,
            format!("weir: {lock}: locking: is not a regular file\n")
        );
    }
}
