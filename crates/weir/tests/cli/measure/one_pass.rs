//! `-w` and `--split` together with a measurement. The oracles are `weir measure` without them, `weir filter` (which other
//! tests compare with tcpdump) and tcpdump itself.

use super::*;
use std::fs::{self, read};

/// Two generated captures that overlap in time.
fn two(temp: &Temp) -> [String; 2] {
    ["3", "4"].map(|seed| {
        let file = temp.at(&format!("made{seed}.pcap"));
        weir(["generate", &file, "--packets", "20000", "--seed", seed]).ok();
        file
    })
}

/// Standard output without the splits, which are in the summary only with outputs.
fn without_splits(done: &Done) -> String {
    let strip = |line: &str| {
        let mut object: Map<String, Value> = serde_json::from_str(line).expect("JSON");
        // What outputs took is in the summary only.
        for member in ["splits", "taken", "lost", "files"] {
            object.shift_remove(member);
        }
        Value::Object(object).to_string()
    };
    done.text().lines().map(|line| strip(line) + "\n").collect()
}

/// The answer equals that without outputs, and the files equal those of `weir filter`, for every way of reading and every
/// design.
#[test]
fn outputs_and_answers_of_one_pass_are_those_of_two() {
    let temp = Temp::new();
    let [a, b] = two(&temp);
    let (all, dns, rest) = (
        temp.at("all.pcapng"),
        temp.at("dns.pcapng"),
        temp.at("rest.pcap"),
    );
    let expected = ["all2.pcapng", "dns2.pcapng", "rest2.pcap"].map(|name| temp.at(name));
    let (dns_expression, rest_expression) = ("port 53", "not port 53");
    let ways: [&[&str]; 5] = [
        &[&a],
        &[&a, &b, "--no-merge"],
        &[&b, &a, "--merge"],
        &[&b, &a, "--sort"],
        &[&a, "--inner"],
    ];
    for way in ways {
        let filter = [
            &["filter", "udp"],
            &way.iter()
                .copied()
                .filter(|word| *word != "--no-merge")
                .collect::<Vec<_>>()[..],
        ];
        let splits = [
            format!("{}={dns_expression}", expected[1]),
            format!("{}={rest_expression}", expected[2]),
        ];
        weir(
            [
                &filter.concat()[..],
                &[
                    "-w",
                    &expected[0],
                    "--split",
                    &splits[0],
                    "--split",
                    &splits[1],
                ],
            ]
            .concat(),
        )
        .ok();
        for design in DESIGNS {
            for more in [&[][..], &["--window", "5ms", "--late", "0s"]] {
                let plain = [
                    &["measure"],
                    way,
                    &["--filter", "udp", "--json", "--seed", "1"],
                    &design,
                    more,
                ]
                .concat();
                let splits = [
                    format!("{dns}={dns_expression}"),
                    format!("{rest}={rest_expression}"),
                ];
                let outputs = ["-w", &all, "--split", &splits[0], "--split", &splits[1]];
                let (alone, both) = (
                    weir(&plain).ok(),
                    weir([&plain[..], &outputs].concat()).ok(),
                );
                assert_eq!(without_splits(&both), without_splits(&alone), "{plain:?}");
                for (path, expected) in [&all, &dns, &rest].into_iter().zip(&expected) {
                    assert!(
                        read(path).unwrap() == read(expected).unwrap(),
                        "{plain:?}: {path}"
                    );
                }
                let summary: Value =
                    serde_json::from_str(both.text().lines().last().unwrap()).unwrap();
                let matched = |expression: &str| {
                    let (flags, sources): (Vec<&str>, Vec<_>) =
                        way.iter().partition(|word| **word == "--inner");
                    let sources = sources.into_iter().filter(|word| !word.starts_with("--"));
                    let count = |file| {
                        let filter = ["filter", expression, file, "--count"];
                        weir([&filter, &flags[..]].concat()).ok().count()
                    };
                    sources.map(count).sum::<u64>()
                };
                if design == DESIGNS[0] && more.is_empty() {
                    assert_eq!(
                        summary["splits"][&dns],
                        matched("udp and port 53"),
                        "{plain:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_copy_holds_what_tcpdump_finds() {
    const TEST: &str = "a_copy_holds_what_tcpdump_finds";
    if !have(TEST, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let [a, _] = two(&temp);
    let (copy, expected) = (temp.at("copy.pcap"), temp.at("expected.pcap"));
    weir(["measure", &a, "--filter", "tcp port 443", "-w", &copy]).ok();
    tool("tcpdump", ["-r", &a, "-w", &expected, "tcp port 443"]).ok();
    assert_eq!(records(&copy), records(&expected));
}

/// If an output fails, only that output ends, and the answer has all packets.
#[test]
fn the_measurement_goes_on_without_an_output_that_fails() {
    let temp = Temp::new();
    let [a, _] = two(&temp);
    let whole = temp.at("whole.pcapng");
    let plain = ["measure", &a, "--json", "--seed", "1"];
    let split = format!("{whole}=ip");
    let done = weir([&plain[..], &["-w", "/dev/full", "--split", &split]].concat());
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err
            .starts_with("weir: /dev/full: no space left on the device"),
        "{}",
        done.err
    );
    let (mut both, alone) = (answer(&done), answer(&weir(plain).ok()));
    assert_eq!(
        both.remove("fault")
            .and_then(|fault| Some(fault.as_str()?.starts_with("/dev/full"))),
        Some(true)
    );
    assert_eq!(
        (&both["received"], &both["top"]),
        (&alone["received"], &alone["top"])
    );
    assert_eq!(
        both["splits"][&whole],
        weir(["filter", "ip", &whole, "--count"]).ok().count()
    );
    // An output whose files are complete ends too.
    let once = temp.at("once-%s.pcap");
    let done = weir([&plain[..], &["-w", &once, "-G", "1", "-W", "1"]].concat()).ok();
    assert_eq!(answer(&done)["top"], alone["top"]);
}

/// If an output cannot be made, or its files are complete, only that output ends. The others have all packets, and no
/// imbalance is reported.
#[test]
fn an_output_that_is_refused_or_complete_ends_alone() {
    let temp = Temp::new();
    let long = temp.at("long.pcap");
    weir([
        "generate",
        &long,
        "--packets",
        "20000",
        "--rate",
        "5000",
        "--seed",
        "5",
    ])
    .ok();
    // No file can have so long a name.
    let (good, taken) = (
        temp.at("good.pcap"),
        temp.at(&format!("{}.pcap", "x".repeat(300))),
    );
    let plain = ["measure", &long, "--json", "--seed", "1"];
    let alone = answer(&weir(plain).ok());
    let split = format!("{taken}=udp");
    let done = weir([&plain[..], &["-w", &good, "--split", &split]].concat());
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("file name too long") && !done.err.contains("add up"),
        "{}",
        done.err
    );
    assert_eq!(answer(&done)["top"], alone["top"]);
    assert_eq!(records(&good), records(&long));
    let rotated = temp.at("o-%s.pcap");
    let done = weir([&plain[..], &["-w", &rotated, "-G", "1", "-W", "2"]].concat()).ok();
    assert!(!done.err.contains("add up"), "{}", done.err);
    assert_eq!(answer(&done)["top"], alone["top"]);
}

/// A copy of several sources has their loss statistics, and describes their interfaces even without packets.
#[test]
fn a_merged_copy_keeps_what_its_sources_lost() {
    let temp = Temp::new();
    // Interface statistics block: interface, time, 7 packets dropped by the interface.
    let words = [0u32, 0, 0].iter().flat_map(|word| word.to_le_bytes());
    let lost: Vec<u8> = words
        .chain([5, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .collect();
    let files = ["a.pcapng", "b.pcapng"].map(|name| {
        let packets = [
            pcapng_start(1),
            pcapng_packet(1, &udp(53, 9)),
            pcapng_packet(3, &udp(54, 9)),
            block(5, &lost),
        ];
        temp.file(name, &packets.concat())
    });
    let (copy, expected) = (temp.at("copy.pcapng"), temp.at("expected.pcapng"));
    for order in ["--merge", "--sort"] {
        for expression in ["udp", "tcp"] {
            let [a, b] = &files;
            weir(["measure", a, b, order, "--filter", expression, "-w", &copy]).ok();
            weir(["filter", expression, a, b, order, "-w", &expected]).ok();
            assert_eq!(
                read(&copy).unwrap(),
                read(&expected).unwrap(),
                "{order} {expression}"
            );
        }
    }
}

fn answer(done: &Done) -> Map<String, Value> {
    serde_json::from_str(&done.text()).expect("one object")
}

#[test]
fn outputs_beside_an_answer_are_files() {
    let temp = Temp::new();
    let [a, _] = two(&temp);
    for outputs in [&["-w", "-"][..], &["--split=-=ip"]] {
        let done = weir([&["measure", a.as_str()], outputs].concat());
        assert_eq!((done.code, done.out.len()), (Some(2), 0), "{}", done.err);
        assert!(
            done.err.contains("standard output has the answer"),
            "{}",
            done.err
        );
    }
    let before = fs::metadata(&a).unwrap().len();
    let done = weir(["measure", &a, "-w", &a]);
    assert_eq!(
        (done.code, fs::metadata(&a).unwrap().len()),
        (Some(2), before),
        "{}",
        done.err
    );
}

/// Every packet that an output has taken is measured, wherever a signal ends the run.
#[test]
fn a_run_that_is_stopped_measures_what_it_wrote() {
    let temp = Temp::new();
    let [a, _] = two(&temp);
    let copy = temp.at("copy.pcap");
    let mut child = crate::live::start(&[
        "measure",
        "-",
        "--json",
        "--window",
        "1ms",
        "-w",
        &copy,
        "--workers",
        "2",
    ]);
    let mut input = child.stdin.take().unwrap();
    let bytes = read(&a).unwrap();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, &bytes));
    // A part of the packets is measured by then.
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    crate::live::signal(&child, "-TERM");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut out, &mut text).unwrap();
    let done = gather(child, &[]);
    let _ = writer.join().unwrap();
    assert_eq!(done.code, Some(0), "{}", done.err);
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["passed"], records(&copy).len(), "{}", done.err);
}
