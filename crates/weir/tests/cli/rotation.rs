//! Series of files: names of earlier files, slices of time, programs for complete files.

use crate::capture::net::Net;
use crate::support::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Instant;

/// Number of packets in all files of a directory.
fn packets_in(temp: &Temp) -> usize {
    temp.names()
        .iter()
        .map(|name| records(&temp.at(name)).len())
        .sum()
}

/// A shell script as a program.
fn script(temp: &Temp, text: &str) -> String {
    let path = temp.file("program", format!("#!/bin/sh\n{text}\n").as_bytes());
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_second_run_keeps_the_files_of_the_first() {
    let source = Temp::new();
    let file = source.file("in.pcap", &small_pcap(60));
    for (options, name) in [
        (&["-G", "3600"][..], "r-%H.pcap"),
        (&["-C", "1k"], "r.pcap"),
        (&["-C", "1k", "-G", "30"], "r"),
    ] {
        let temp = Temp::new();
        let run = |more: &[&str]| {
            weir(
                [
                    &["filter", "", &file, "-w", &temp.at(name), "--utc"],
                    options,
                    more,
                ]
                .concat(),
            )
        };
        run(&[]).ok();
        let first = temp.names();
        let before: Vec<_> = first
            .iter()
            .map(|name| fs::read(temp.at(name)).unwrap())
            .collect();
        let done = run(&[]).ok();
        assert!(done.err.contains("earlier file"), "{}", done.err);
        assert!(done.err.contains("60 written"), "{}", done.err);
        let after: Vec<_> = first
            .iter()
            .map(|name| fs::read(temp.at(name)).unwrap())
            .collect();
        assert!(before == after, "{options:?}: an earlier file was changed");
        assert_eq!(packets_in(&temp), 120, "{options:?}: {:?}", temp.names());
        let done = run(&["--overwrite"]).ok();
        assert_eq!(
            (packets_in(&temp), done.err.contains("earlier")),
            (120, false),
            "{}",
            done.err
        );
    }
    // The names of -W are limited, so that they are refused before a packet is read.
    let temp = Temp::new();
    let (out, last) = (temp.at("w.pcap"), temp.file("w.pcap2", b"earlier"));
    let run = |more: &[&str]| {
        weir(
            [
                &["filter", "", &file, "-w", &out, "-C", "1k", "-W", "3"],
                more,
            ]
            .concat(),
        )
    };
    let done = run(&[]);
    assert_eq!(
        (done.code, temp.names()),
        (Some(1), vec!["w.pcap2".to_owned()]),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("w.pcap2: cannot be created: an earlier file has this name"),
        "{}",
        done.err
    );
    assert_eq!(fs::read(last).unwrap(), b"earlier");
    run(&["--overwrite"]).ok();
    assert_eq!(temp.names(), ["w.pcap0", "w.pcap1", "w.pcap2"]);
    let wrong = [
        (vec!["-w", &out, "--overwrite"], "--overwrite is for"),
        (vec!["--count", "-z", "true"], "give -w FILE"),
    ];
    for (options, why) in wrong {
        let done = weir([vec!["filter", "", &file], options].concat());
        assert!(
            done.code == Some(2) && done.err.contains(why),
            "{}",
            done.err
        );
    }
}

#[test]
fn names_of_files_need_no_packet() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(5));
    let done = weir([
        "filter",
        "udp port 9999",
        &file,
        "-G",
        "60",
        "-w",
        &temp.at("none-%Y"),
        "--utc",
    ])
    .ok();
    assert!(
        temp.names().iter().any(|name| name.starts_with("none-20")),
        "{:?} {}",
        temp.names(),
        done.err
    );
    let done = weir([
        "filter",
        "udp port 9999",
        &file,
        "-G",
        "60",
        "-w",
        &temp.at("no/x-%Y"),
    ]);
    assert!(
        done.code == Some(1) && done.err.contains("its directory does not exist"),
        "{}",
        done.err
    );
}

#[test]
fn slices_of_a_capture_end_by_the_clock() {
    let Some(net) = Net::new("slices_of_a_capture_end_by_the_clock") else {
        return;
    };
    let temp = Temp::new();
    let begun = Instant::now();
    let done = net
        .capture(&[
            "filter",
            "udp port 9",
            "near",
            "-G",
            "1",
            "-W",
            "1",
            "-w",
            &temp.at("i-%Y"),
        ])
        .done()
        .ok();
    let (name, time) = (temp.names().concat(), begun.elapsed().as_secs_f64());
    assert!(
        name.starts_with("i-20") && (1.0..6.0).contains(&time),
        "{name} {time} {}",
        done.err
    );
    // Three slices of a second each, of which only the second has packets.
    let temp = Temp::new();
    let capture = net.capture(&[
        "filter",
        "udp",
        "near",
        "-G",
        "1",
        "-W",
        "3",
        "-w",
        &temp.at("s-%s"),
    ]);
    // The first slice ends by the clock, a while after its time is over.
    wait::until("the second slice", || temp.names().len() >= 2);
    assert_eq!(
        net.send(
            &(0..50)
                .map(|number| numbered(9, number, 4))
                .collect::<Vec<_>>(),
            0
        ),
        50
    );
    let done = capture.done().ok();
    assert!(done.err.contains("50 written"), "{}", done.err);
    let counts: Vec<usize> = temp
        .names()
        .iter()
        .map(|name| records(&temp.at(name)).len())
        .collect();
    let seconds: Vec<i64> = temp
        .names()
        .iter()
        .map(|name| name[2..].parse().expect("seconds"))
        .collect();
    assert_eq!(
        (counts.len(), counts[0], counts.iter().sum::<usize>()),
        (3, 0, 50),
        "{counts:?}"
    );
    assert!(
        seconds.windows(2).all(|pair| pair[1] - pair[0] == 1),
        "{seconds:?}"
    );
    let weir = env!("CARGO_BIN_EXE_weir");
    let done = net.inside(
        "near",
        &[
            weir,
            "filter",
            "udp",
            "near",
            "-G",
            "60",
            "-w",
            "/no-such-directory/x-%H",
        ],
    );
    assert!(
        done.code == Some(1) && done.err.contains("its directory does not exist"),
        "{}",
        done.err
    );
}

/// A link that leads back to itself stands where the second file would be made.
#[test]
fn a_circle_of_links_stops_no_capture() {
    let Some(net) = Net::new("a_circle_of_links_stops_no_capture") else {
        return;
    };
    let temp = Temp::new();
    symlink("r.pcap1", temp.at("r.pcap1")).unwrap();
    let capture = net.capture(&[
        "filter",
        "udp",
        "near",
        "-C",
        "1k",
        "-w",
        &temp.at("r.pcap"),
    ]);
    assert_eq!(
        net.send(
            &(0..500)
                .map(|number| numbered(9, number, 4))
                .collect::<Vec<_>>(),
            0
        ),
        500
    );
    let done = capture.stop().ok();
    fs::remove_file(temp.at("r.pcap1")).unwrap();
    assert_eq!(packets_in(&temp), 500, "{}", done.err);
}

#[test]
fn a_program_runs_for_each_complete_file_without_rights() {
    let source = Temp::new();
    let file = source.file("in.pcap", &small_pcap(60));
    let text = "[ $# = 1 ] && wc -c <\"$1\" && grep -E '^(CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status";
    let program = script(
        &source,
        &format!("{text}\nunshare -U true && echo a namespace\nseq 300"),
    );
    let lines =
        |done: &Done, text: &str| done.err.lines().filter(|line| line.contains(text)).count();
    for more in [
        &[][..],
        &["-C", "1k"],
        &["-C", "1k", "-W", "2"],
        &["-G", "10"],
    ] {
        let temp = Temp::new();
        let done = weir(
            [
                &["filter", "", &file, "-w", &temp.at("o"), "-z", &program],
                more,
            ]
            .concat(),
        )
        .ok();
        assert!(
            done.out.is_empty(),
            "what a program prints is not a part of the answer: {done:?}"
        );
        let prefix = format!("weir: -z {program}: ");
        assert!(
            done.err
                .lines()
                .filter(|line| line.starts_with("weir: -z"))
                .all(|line| line.starts_with(&prefix))
        );
        let runs = lines(&done, "Seccomp: 2");
        assert_eq!(
            (runs, lines(&done, "NoNewPrivs: 1")),
            (lines(&done, "CapEff: 0000000000000000"), runs),
            "{}",
            done.err
        );
        assert_eq!(
            (
                lines(&done, "CapPrm: 0000000000000000"),
                lines(&done, "CapAmb: 0000000000000000")
            ),
            (runs, runs)
        );
        assert_eq!(
            (lines(&done, "a namespace"), lines(&done, "lines more")),
            (0, runs),
            "{}",
            done.err
        );
        if !more.contains(&"-W") {
            assert_eq!(runs, temp.names().len(), "{more:?}: {}", done.err);
            // The program finds the whole file.
            for name in temp.names() {
                let size = format!("{prefix}{}\n", fs::metadata(temp.at(&name)).unwrap().len());
                assert!(done.err.contains(&size), "{size}: {}", done.err);
            }
        }
    }
    // The kernel keeps no status of children for a process that was started so.
    let deaf = "trap '' CHLD; exec \"$0\" filter '' \"$1\" -w \"$2\" -z true";
    let done = tool(
        "sh",
        [
            "-c",
            deaf,
            env!("CARGO_BIN_EXE_weir"),
            &file,
            &source.at("deaf.pcap"),
        ],
    )
    .ok();
    assert!(!done.err.contains("-z true"), "{}", done.err);
    // A program that fails is told, and is a failure of the output.
    for words in [
        &["measure", &file][..],
        &["filter", "", &file, "-C", "1k"],
        &["filter", "", &file],
    ] {
        let temp = Temp::new();
        let done = weir([words, &["-w", &temp.at("m.pcap"), "-z", "false"]].concat());
        let files = temp.names().len();
        assert_eq!(
            (done.code, lines(&done, "weir: -z false: exit status: 1: ")),
            (Some(1), files),
            "{}",
            done.err
        );
        let noun = if files == 1 { "file" } else { "files" };
        assert!(done.err.contains(&format!(
            "weir: -z false: it did not succeed for {files} of {files} {noun}\n"
        )));
    }
    let done = weir([
        "filter",
        "",
        &file,
        "-w",
        &source.at("m.pcap"),
        "-z",
        "no-such",
    ]);
    assert!(
        done.code == Some(2) && done.err.contains("-z no-such: no such program"),
        "{}",
        done.err
    );
}

/// A device, a pipe or a socket cannot be followed by files of other numbers.
#[test]
fn what_is_no_file_is_not_rotated() {
    let temp = Temp::new();
    let (file, pipe) = (temp.file("few.pcap", &small_pcap(60)), temp.at("pipe"));
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for output in ["/dev/null", &pipe] {
        for rotation in [["-C", "1"], ["-G", "1"]] {
            let done = weir([&["filter", "", &file, "-w", output][..], &rotation].concat());
            assert_eq!(done.code, Some(2), "{}", done.err);
            let line = format!(
                "weir: -C and -G make files, and {output} is none: give -w the name of a file\n"
            );
            assert_eq!(done.err, line);
        }
    }
    assert_eq!(temp.names(), ["few.pcap", "pipe"]);
    weir(["filter", "", &file, "-w", "/dev/null"]).ok();
}
