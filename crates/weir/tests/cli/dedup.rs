//! `--dedup`: packets that came before are left out, and told.

use crate::support::*;
use serde_json::Value;

/// Packets to these ports, a millisecond apart.
fn packets(temp: &Temp, ports: &[u16]) -> String {
    let mut bytes = pcap_header(65_535, 1);
    for (i, &port) in ports.iter().enumerate() {
        let mut record = pcap_record(1_700_000_000, &udp(port, 0));
        record[4..8].copy_from_slice(&(i as u32 * 1000).to_le_bytes());
        bytes.extend(record);
    }
    temp.file("a.pcap", &bytes)
}

#[test]
fn duplicates_are_left_out_of_everything_and_told() {
    let temp = Temp::new();
    let file = packets(&temp, &[1, 1, 2, 3, 1, 4, 5, 6, 7, 8, 1, 1]);
    let out = temp.at("out.pcapng");
    let split = format!("{}=udp[2:2] = 1", temp.at("one.pcap"));
    let arguments = [
        "filter", "", &file, "--dedup", "-w", &out, "--split", &split,
    ];
    let done = weir(arguments).ok();
    assert!(
        done.err
            .contains("12 received, 9 matched (75.0 %), 3 duplicates"),
        "{}",
        done.err
    );
    assert_eq!(records(&out).len(), 9);
    assert_eq!(records(&temp.at("one.pcap")).len(), 2);
    assert!(
        weir(["info", &out])
            .ok()
            .text()
            .contains("not duplicates within 5 packets")
    );
    for (within, expected) in [
        ("=2", 10),
        ("=6", 9),
        ("=7", 8),
        ("=100", 8),
        ("=1ms", 10),
        ("=4ms", 9),
        ("=1s", 8),
    ] {
        let dedup = format!("--dedup{within}");
        assert_eq!(
            weir(["filter", "", &file, &dedup, "--count"]).ok().count(),
            expected,
            "{dedup}"
        );
        // The window is of packets that match.
        let done = weir(["filter", "udp[2:2] = 1", &file, "--dedup=2", "--count"]).ok();
        assert_eq!(done.count(), 1);
    }
    let json = weir(["filter", "", &file, "--dedup", "--count", "--json"])
        .ok()
        .out;
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(
        (&json["matched"], &json["duplicates"]),
        (&9.into(), &3.into())
    );
    let measured = weir(["measure", &file, "--dedup", "--json", "--window", "5ms"]).ok();
    let summary: Value = serde_json::from_slice(
        measured
            .out
            .split(|byte| *byte == b'\n')
            .rev()
            .nth(1)
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&summary["passed"], &summary["filtered"]),
        (&9.into(), &3.into())
    );
    assert_eq!(summary["duplicates"], 3);
    // Each packet of a file repeats one of the other file, next to it in the order of time.
    for (more, passed) in [(&[][..], 10), (&["--merge"], 10), (&["--no-merge"], 19)] {
        let command = ["measure", &file, &file, "--dedup=2", "--json"];
        let measured = weir([&command[..], more].concat()).ok();
        let summary: Value = serde_json::from_slice(&measured.out).unwrap();
        assert_eq!(summary["passed"], passed, "{more:?}");
    }
    let measured = weir(["measure", &file, "--dedup", "--stats"]).ok();
    for words in [
        "9 measured, 0 filtered, 3 duplicates",
        "stage dedup: 9 passed, 3 duplicates",
    ] {
        assert!(measured.err.contains(words), "{}", measured.err);
    }
    // A limit is of packets that are left.
    let done = weir(["filter", "", &file, "--dedup", "-c", "3"]).ok();
    assert!(
        done.err
            .contains("4 received, 3 matched (75.0 %), 1 duplicate,"),
        "{}",
        done.err
    );
}

#[test]
fn windows_of_duplicates_are_checked() {
    for within in ["--dedup=1", "--dedup=x", "--dedup=2000000"] {
        let done = weir(["filter", "", "a.pcap", within]);
        assert!(
            done.code == Some(2) && done.err.contains("is n"),
            "{}",
            done.err
        );
    }
    // A value after a blank is an expression or a source.
    for words in [
        &["filter", "--dedup", "10ms", "udp", "a.pcap"][..],
        &["filter", "udp", "--dedup", "10ms", "a.pcap"],
        &["measure", "--dedup", "10ms", "a.pcap"],
    ] {
        let done = weir(words);
        let says = "--dedup 10ms: the value follows after '=', without a blank: --dedup=10ms";
        assert!(
            done.code == Some(2) && done.err.contains(says),
            "{words:?}: {}",
            done.err
        );
    }
}

/// `editcap -D` and `-w`, over captures with copies of their packets.
#[test]
fn duplicates_are_those_of_editcap() {
    let test = "duplicates_are_those_of_editcap";
    if !have(test, &["editcap"]) {
        return;
    }
    let temp = Temp::new();
    let mut compared = 0;
    for path in captures(test) {
        let file = s(&path);
        let (plain, moved, both) = (
            temp.at("plain.pcap"),
            temp.at("moved.pcap"),
            temp.at("both.pcap"),
        );
        let done = tool("editcap", ["-F", "nsecpcap", "-T", "ether", file, &plain]);
        let count = done
            .code
            .filter(|code| *code == 0)
            .map(|_| records(&plain).len());
        // Of a file that is not in the order of time, editcap looks at fewer packets.
        if !count.is_some_and(|count| (1..=3000).contains(&count)) {
            continue;
        }
        weir(["filter", "", &plain, "--shift", "700us", "-w", &moved]).ok();
        weir(["filter", "", &plain, &moved, "--sort", "-w", &both]).ok();
        for (theirs, ours) in [
            (&["-d"][..], "--dedup"),
            (&["-D", "20"], "--dedup=20"),
            (&["-w", "0.001"], "--dedup=1ms"),
        ] {
            let [left, right] = ["left.pcap", "right.pcap"].map(|name| temp.at(name));
            tool(
                "editcap",
                [theirs, &["-F", "nsecpcap", &both, &left]].concat(),
            )
            .ok();
            weir(["filter", "", &both, ours, "-w", &right]).ok();
            assert!(records(&left) == records(&right), "{file} {ours}");
            compared += 1;
        }
    }
    assert!(compared > 0 || captures(test).is_empty());
}

#[test]
fn files_that_are_read_one_after_another_are_told_how_their_duplicates_are_found() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(100));
    for (more, told) in [(&["--count"][..], true), (&["--count", "--merge"], false)] {
        let done = weir([&["filter", "", &file, &file, "--dedup"][..], more].concat()).ok();
        assert_eq!(done.err.contains("add --merge"), told, "{}", done.err);
    }
}
