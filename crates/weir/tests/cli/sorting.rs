//! `--sort`: the packets of files in the order of time, for any order in the files.

use crate::support::*;
use serde_json::{Value, json};

/// A pcap of `count` datagrams whose times are unordered and often equal. A multiplication replaces random numbers.
fn unordered(count: u32) -> Vec<u8> {
    let mut bytes = pcap_header(65_535, 1);
    for i in 0..count {
        let seconds = 1_700_000_000 + i * 7919 % (count / 4 + 1);
        bytes.extend(pcap_record(
            seconds,
            &udp((i % 60_000) as u16, i as usize % 50),
        ));
    }
    bytes
}

/// Records of files in the order of time; equal times in the order of the files.
fn in_order(files: &[&[u8]]) -> Vec<Record> {
    let mut records: Vec<Record> = files.iter().flat_map(|file| parse_pcap(file).1).collect();
    records.sort_by_key(|record| record.time_ns);
    records
}

#[test]
fn packets_come_in_the_order_of_time() {
    let test = "packets_come_in_the_order_of_time";
    let (temp, spool) = (Temp::new(), Temp::new());
    let bytes = unordered(20_000);
    let file = temp.file("unordered.pcap", &bytes);
    let out = temp.at("out.pcap");
    let done = run(
        weir_command()
            .args(["filter", "", &file, "--sort", "-w", &out])
            .env("TMPDIR", spool.path()),
        &[],
    )
    .ok();
    assert!(
        done.err.contains("20 000 received, 20 000 matched"),
        "{}",
        done.err
    );
    assert!(records(&out) == in_order(&[&bytes]));
    assert!(spool.names().is_empty(), "temporary files have no names");
    if have(test, &["reordercap", "editcap"]) {
        let theirs = temp.at("theirs.pcapng");
        tool("reordercap", [&file, &theirs]).ok();
        let plain = temp.at("theirs.pcap");
        tool("editcap", ["-F", "pcap", &theirs, &plain]).ok();
        // The order of equal times in reordercap is not specified.
        let fixed = |mut records: Vec<Record>| {
            records.sort();
            records
        };
        assert!(fixed(records(&out)) == fixed(records(&plain)));
        let times = |records: &[Record]| {
            records
                .iter()
                .map(|record| record.time_ns)
                .collect::<Vec<_>>()
        };
        assert!(times(&records(&out)) == times(&records(&plain)));
    }
    let lines = weir(["filter", "udp[9] & 1 = 1", "-tt", "--sort", &file]).ok();
    assert!(lines.out == weir(["filter", "udp[9] & 1 = 1", "-tt", &out]).ok().out);
}

/// Compares the sorted packets of two files, and the windows of a measurement of both, with the file that reordercap makes of what
/// mergecap appended.
fn as_mergecap_and_reordercap_put_them(temp: &Temp, files: &[String; 2], sorted: &str) {
    if !have(
        "several_files_are_sorted_as_one",
        &["mergecap", "reordercap"],
    ) {
        return;
    }
    let (all, theirs) = (temp.at("all.pcap"), temp.at("theirs.pcap"));
    tool(
        "mergecap",
        ["-a", "-F", "pcap", "-w", &all, &files[0], &files[1]],
    )
    .ok();
    tool("reordercap", [&all, &theirs]).ok();
    let plain = temp.at("theirs-plain.pcap");
    weir(["filter", "", &theirs, "-w", &plain]).ok();
    let times = |file: &str| {
        records(file)
            .into_iter()
            .map(|it| it.time_ns)
            .collect::<Vec<_>>()
    };
    assert!(times(sorted) == times(&plain));
    // The order of equal times in reordercap is not specified.
    let [mut ours, mut others] = [records(sorted), records(&plain)];
    ours.sort();
    others.sort();
    assert!(ours == others);
    let windows = |sources: &[&str]| {
        let fixed = [
            "measure", "--window", "100s", "--key", "dport", "--json", "--seed", "1",
        ];
        let text = weir([&fixed[..], sources].concat()).ok().text();
        let objects = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let figures =
            objects.map(|it| json!([it["start"], it["end"], it["passed"], it["bytes"], it["top"]]));
        figures.collect::<Vec<_>>()
    };
    assert_eq!(
        windows(&[&files[0], &files[1], "--sort"]),
        windows(&[&plain])
    );
}

#[test]
fn several_files_are_sorted_as_one() {
    let temp = Temp::new();
    let [a, b] = [unordered(3000), unordered(1000)];
    let files = [temp.file("a.pcap", &a), temp.file("b.pcap", &b)];
    let out = temp.at("out.pcap");
    for more in [&[][..], &["--merge"]] {
        weir(
            [
                &["filter", "", &files[0], &files[1], "--sort", "-w", &out],
                more,
            ]
            .concat(),
        )
        .ok();
        assert!(records(&out) == in_order(&[&a, &b]), "{more:?}");
    }
    as_mergecap_and_reordercap_put_them(&temp, &files, &out);
    let first = in_order(&[&a, &b]);
    let done = weir([
        "filter", "", &files[0], &files[1], "--sort", "-c", "700", "-w", &out,
    ])
    .ok();
    assert!(records(&out) == first[..700]);
    assert!(
        done.err.contains("700 received, 700 matched (100.0 %)"),
        "{}",
        done.err
    );
    let piped = weir_fed(["filter", "", "-", &files[1], "--sort", "-w", "-"], &a).ok();
    assert!(records(&temp.file("piped.pcapng", &piped.out)) == first);
    let counts = weir([
        "filter",
        "",
        &files[0],
        "--sort",
        "--count",
        "--split",
        "x=udp dst port 5",
    ])
    .ok();
    assert_eq!(counts.text(), "3000\n1 x\n");
}

#[test]
fn windows_of_an_unordered_file_are_those_of_the_ordered_one() {
    let temp = Temp::new();
    let bytes = unordered(4000);
    let file = temp.file("unordered.pcap", &bytes);
    let mut ordered = pcap_header(65_535, 1);
    for record in in_order(&[&bytes]) {
        ordered.extend(pcap_record(
            (record.time_ns / 1_000_000_000) as u32,
            &record.data,
        ));
    }
    let ordered = temp.file("ordered.pcap", &ordered);
    let fixed = [
        "--window", "10s", "--sketch", "exact", "--top", "10000", "--seed", "1", "--json",
    ];
    for design in [
        ["--workers", "1"],
        ["--workers", "3"],
        ["--design", "async"],
    ] {
        let answer = |arguments: &[&str]| -> Vec<Value> {
            let done = weir([&["measure"], arguments, &fixed, &design].concat()).ok();
            done.text()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        };
        let (sorted, right) = (answer(&[&file, "--sort"]), answer(&[&ordered]));
        assert_eq!(sorted.len(), 101 + 1, "{design:?}");
        for (window, right) in sorted.iter().zip(&right) {
            for key in ["start", "end", "received", "passed", "bytes", "dropped"] {
                assert_eq!(window[key], right[key], "{design:?} {key}");
            }
            let rows = |window: &Value| {
                let mut rows: Vec<String> = window["top"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(Value::to_string)
                    .collect();
                rows.sort();
                rows
            };
            assert_eq!(rows(window), rows(right), "{design:?}");
        }
    }
}

/// The message about late packets advises `--sort`, with which no packet is late.
#[test]
fn the_advice_about_late_packets_helps() {
    let temp = Temp::new();
    let file = temp.file("unordered.pcap", &unordered(4000));
    let advice = "; --sort reads files in the order of time\n";
    let given = weir(["measure", &file, "--window", "10s", "--json"]).ok();
    assert!(
        given
            .err
            .starts_with("weir: late by more than --late allows: ")
            && given.err.contains(advice),
        "{}",
        given.err
    );
    let sorted = weir(["measure", &file, "--window", "10s", "--json", "--sort"]).ok();
    assert!(
        !sorted.err.contains("late by more than") && sorted.text().lines().count() == 102,
        "{}",
        sorted.err
    );
}

/// Writer of a pcapng file in either byte order.
struct Blocks {
    big: bool,
    bytes: Vec<u8>,
}

impl Blocks {
    fn number(&mut self, value: u64, len: usize) {
        let bytes = if self.big {
            value.to_be_bytes()[8 - len..].to_vec()
        } else {
            value.to_le_bytes()[..len].to_vec()
        };
        self.bytes.extend(bytes);
    }

    fn block(&mut self, kind: u64, body: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        let mut inner = Self {
            big: self.big,
            bytes: Vec::new(),
        };
        body(&mut inner);
        inner.bytes.resize(inner.bytes.len().next_multiple_of(4), 0);
        let total = inner.bytes.len() as u64 + 12;
        self.number(kind, 4);
        self.number(total, 4);
        self.bytes.extend(inner.bytes);
        self.number(total, 4);
        assert_eq!((self.bytes.len() - at) as u64, total);
    }

    /// A file of one interface with these comments, two packets, and `dropped` packets in its statistics.
    fn file(big: bool, link: u64, comments: &[String], packet: &[u8], dropped: u64) -> Vec<u8> {
        let mut file = Self {
            big,
            bytes: Vec::new(),
        };
        file.block(0x0a0d_0d0a, |body| {
            body.number(0x1a2b_3c4d, 4);
            body.number(1, 2);
            body.number(0, 2);
            body.number(u64::MAX, 8);
        });
        file.block(1, |body| {
            body.number(link, 2);
            body.number(0, 6);
            for comment in comments {
                body.number(1, 2);
                body.number(comment.len() as u64, 2);
                body.bytes.extend(comment.bytes());
                body.bytes.resize(body.bytes.len().next_multiple_of(4), 0);
            }
        });
        for _ in 0..2 {
            file.block(6, |body| {
                for word in [0, 0, 1, packet.len() as u64, packet.len() as u64] {
                    body.number(word, 4);
                }
                body.bytes.extend(packet);
            });
        }
        file.block(5, |body| {
            for word in [0, 0, 1] {
                body.number(word, 4);
            }
            body.number(5, 2);
            body.number(8, 2);
            body.number(dropped, 8);
        });
        file.bytes
    }
}

/// Blocks of a little-endian pcapng file.
#[derive(Default)]
struct Listing {
    /// Link type and length of each interface block.
    interfaces: Vec<(u16, usize)>,
    /// The interface of each packet.
    packets: Vec<u32>,
    /// Interface and count of each statistics block.
    statistics: Vec<(u32, u64)>,
}

fn listing(bytes: &[u8]) -> Listing {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut listing, mut at) = (Listing::default(), 0);
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        match word(at) {
            1 => listing.interfaces.push((word(at + 8) as u16, len)),
            6 => listing.packets.push(word(at + 8)),
            5 => listing
                .statistics
                .push((word(at + 8), u64::from(word(at + 24)))),
            _ => {}
        }
        at += len;
    }
    listing
}

/// A sorted copy may have to change its interfaces: more texts than a copy keeps, or an address family in the byte order of
/// its file. The statistics of the sources are kept for the interfaces of the packets.
#[test]
fn a_sorted_copy_has_the_interfaces_of_its_packets_and_what_they_counted() {
    let test = "a_sorted_copy_has_the_interfaces_of_its_packets_and_what_they_counted";
    let temp = Temp::new();
    let comments = |letter: &str| {
        (0..11)
            .map(|i| format!("{i}{}", letter.repeat(64_000)))
            .collect::<Vec<_>>()
    };
    let (frame, bsd) = (udp(1, 2), [&[0, 0, 0, 2], &udp(2, 4)[14..]].concat());
    let a = temp.file(
        "a.pcapng",
        &Blocks::file(false, 1, &comments("a"), &frame, 3),
    );
    let b = temp.file(
        "b.pcapng",
        &Blocks::file(false, 1, &comments("b"), &frame, 5),
    );
    let c = temp.file("c.pcapng", &Blocks::file(true, 0, &[], &bsd, 7));
    let out = temp.at("out.pcapng");
    let done = weir(["filter", "", &a, &b, &c, "--sort", "-w", &out]).ok();
    let line = "weir: the sorted sources: 11 names and comments of its interfaces and sections are left out: ";
    assert!(done.err.contains(line), "{}", done.err);
    let Listing {
        interfaces,
        packets,
        statistics,
    } = listing(&std::fs::read(&out).unwrap());
    // LOOP is NULL with the address family in network byte order.
    assert_eq!(
        interfaces.iter().map(|(link, _)| *link).collect::<Vec<_>>(),
        [1, 1, 108]
    );
    assert!(
        interfaces[0].1 > 700_000 && interfaces[1].1 < 100,
        "{interfaces:?}"
    );
    assert_eq!(packets, [0, 0, 1, 1, 2, 2]);
    assert_eq!(statistics, [(0, 3), (1, 5), (2, 7)]);
    if have(test, &["capinfos"]) {
        let text = tool("capinfos", ["-I", &out]).ok().text();
        assert!(
            text.lines()
                .any(|line| line.starts_with("Number of interfaces") && line.ends_with(" 3")),
            "{text}"
        );
    }
    // A copy of one source keeps all its texts.
    let done = weir(["filter", "", &b, "--sort", "-w", &out]).ok();
    assert!(!done.err.contains("left out"), "{}", done.err);
    let Listing {
        interfaces,
        statistics,
        ..
    } = listing(&std::fs::read(&out).unwrap());
    assert!(
        interfaces.len() == 1 && interfaces[0].1 > 700_000 && statistics == [(0, 5)],
        "{interfaces:?}"
    );
}

#[test]
fn what_cannot_be_sorted_is_refused() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &unordered(10));
    let cases: [(&[&str], &str); 5] = [
        (
            &["filter", "", "lo", "--sort"],
            "--sort needs the end of each source, and lo is an interface",
        ),
        (
            &["measure", "lo", "--sort"],
            "--sort needs the end of each source, and lo is an interface",
        ),
        (
            &["filter", "", &file, "--sort", "--follow"],
            "--sort and --follow exclude each other",
        ),
        (
            &["measure", &file, "--sort", "--no-merge"],
            "--sort and --no-merge exclude each other",
        ),
        (
            &["filter", "tcp port", &file, "--sort"],
            "expression 'tcp port'",
        ),
    ];
    for (arguments, words) in cases {
        let done = weir(arguments);
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            done.err
        );
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
    }
    let done = weir(["measure", &file, "--sort", "--filter", "tcp port"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(
        done.err
            .starts_with("weir: --filter: expression 'tcp port'"),
        "{}",
        done.err
    );
}

#[test]
fn a_damaged_file_is_sorted_up_to_its_damage() {
    let temp = Temp::new();
    let bytes = unordered(100);
    let cut = bytes[..bytes.len() - 3].to_vec();
    let (file, whole) = (
        temp.file("cut.pcap", &cut),
        temp.file("whole.pcap", &unordered(50)),
    );
    let out = temp.at("out.pcap");
    let done = weir(["filter", "", &file, &whole, "--sort", "-w", &out]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let line = format!("weir: {file}: packet 100, offset ");
    assert!(
        done.err.starts_with(&line) && done.err.contains("the file ends inside a packet"),
        "{}",
        done.err
    );
    assert_eq!(records(&out).len(), 149);
    let done = weir(["measure", &file, &whole, "--sort", "--json"]);
    let object: Value = serde_json::from_str(&done.text()).unwrap();
    assert_eq!((done.code, &object["passed"]), (Some(1), &json!(149)));
    assert!(
        object["fault"].as_str().unwrap().starts_with(&line[6..]),
        "{object}"
    );
}

#[test]
fn what_fits_in_memory_is_sorted_without_temporary_files() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &unordered(40_000));
    for command in [&["filter", "", "--count"][..], &["measure"]] {
        let arguments = [command, &[file.as_str(), "--sort", "--json"]].concat();
        let done = run(
            weir_command()
                .args(&arguments)
                .env("TMPDIR", temp.at("missing")),
            &[],
        )
        .ok();
        let object: Value = serde_json::from_str(&done.text()).unwrap();
        assert_eq!(
            (&object["received"], &object["fault"]),
            (&json!(40_000), &Value::Null),
            "{object}"
        );
    }
}
