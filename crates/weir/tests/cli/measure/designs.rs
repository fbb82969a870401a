//! Answers do not depend on design, seed, page size and memory.

use super::*;
use crate::live::start;
use std::fs::OpenOptions;
use std::io::Write;

fn profile() -> Profile {
    Profile {
        seed: 21,
        packets: 12_000,
        flows: 900,
        ..Profile::default()
    }
}

#[test]
fn every_design_gives_the_same_answer() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &profile());
    let truth = ["conversation", "dst"].map(|key| (key, counted(key, &seen)));
    let mut designs: Vec<Vec<&str>> = vec![
        vec![],
        vec!["--design", "rss"],
        vec!["--design", "async"],
        vec!["--design", "sync"],
    ];
    for design in ["async", "sync"] {
        designs.extend(
            ["flow", "address", "random"]
                .map(|rule| vec!["--design", design, "--distribute", rule]),
        );
    }
    let mut answers = Vec::new();
    for design in &designs {
        for state in ["separate", "shared"] {
            for workers in ["1", "3"] {
                let fixed = [
                    &file,
                    "--sketch",
                    "exact",
                    "--key",
                    "conversation",
                    "--key",
                    "dst",
                    "--top",
                    "100000",
                ];
                let object = measure_one(
                    &[
                        &fixed[..],
                        design,
                        &["--state", state, "--workers", workers],
                    ]
                    .concat(),
                );
                for (key, truth) in &truth {
                    assert_eq!(
                        &rows(key, &object["tops"][*key]),
                        truth,
                        "{design:?} {state} {workers}"
                    );
                }
                answers.push(object);
            }
        }
    }
    assert_eq!(answers.len(), 40);
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "the same, to the order of equal rows"
    );
}

#[test]
fn shared_sketches_keep_their_bounds() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &profile());
    let truth = counted("5tuple", &seen);
    for sketch in ["cms", "cms-conservative", "sht"] {
        for by in ["packets", "bytes"] {
            for design in ["rss", "async"] {
                let fixed = [
                    &file, "--sketch", sketch, "--state", "shared", "--memory", "32k", "--by", by,
                ];
                let more = [
                    "--design",
                    design,
                    "--workers",
                    "3",
                    "--top",
                    "1000",
                    "--seed",
                    "2",
                ];
                let object = measure_one(&[&fixed[..], &more].concat());
                for row in object["top"].as_array().unwrap() {
                    let (packets, bytes) = truth[&row_key("5tuple", row)];
                    let figure = if by == "packets" { packets } else { bytes };
                    let [lower, upper] =
                        ["lower", "upper"].map(|end| row["bound"][end].as_u64().unwrap());
                    assert!(
                        (lower..=upper).contains(&figure),
                        "{sketch} by {by}, {design}: {figure}; {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn batches_and_processors_do_not_matter() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &profile());
    let truth = counted("5tuple", &seen);
    for more in [
        &["--batch", "1"][..],
        &["--batch", "1024", "--design", "async"],
        &["--cpus", "0", "--workers", "2"],
    ] {
        let all = measure_one(&[&[file.as_str()][..], &EXACT, more].concat());
        assert_eq!(rows("5tuple", &all["top"]), truth, "{more:?}");
    }
}

#[test]
fn a_seed_makes_runs_alike() {
    let temp = Temp::new();
    let (file, _, _) = generated(&temp, "g.pcap", &profile());
    for sketch in ["heavy", "cms"] {
        let run = |seed: &str| {
            measure_one(&[
                &file,
                "--sketch",
                sketch,
                "--memory",
                "8k",
                "--seed",
                seed,
                "--workers",
                "1",
                "--top",
                "1000",
            ])
        };
        assert_eq!(run("7"), run("7"), "{sketch}");
        assert_ne!(
            run("7")["top"],
            run("8")["top"],
            "{sketch}: another seed collides elsewhere"
        );
    }
    let exact = |seed: &str| measure_one(&[&[file.as_str(), "--seed", seed][..], &EXACT].concat());
    assert_eq!(exact("7"), exact("8"));
    let text = |seed: &str| {
        weir([
            "measure",
            &file,
            "--memory",
            "8k",
            "--seed",
            seed,
            "--workers",
            "1",
        ])
        .ok()
        .text()
    };
    assert_eq!(text("7"), text("7"));
}

#[test]
fn pages_are_had_or_refused_with_what_mends_it() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &profile());
    let truth = counted("5tuple", &seen);
    for pages in ["auto", "virtual", "thp"] {
        let object = measure_one(&[&[file.as_str(), "--pages", pages][..], &EXACT].concat());
        assert_eq!(rows("5tuple", &object["top"]), truth, "{pages}");
    }
    let reserved =
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    if reserved.ok().as_deref().map(str::trim) != Some("0") {
        skipped(
            "pages_are_had_or_refused_with_what_mends_it",
            "a machine without reserved pages of 2 MiB is lacking",
        );
        return;
    }
    let done = weir(["measure", &file, "--pages", "hugetlb"]);
    assert_eq!((done.code, done.text().as_str()), (Some(2), ""));
    assert!(done.err.starts_with("weir: "), "{}", done.err);
    assert!(
        done.err
            .contains("| sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

/// Peak memory of the process `id`, kB.
fn peak_kb(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("Linux says so");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let test = "memory_does_not_grow_with_the_file";
    if !have(test, &["mkfifo"]) {
        return;
    }
    let temp = Temp::new();
    let fifo = temp.at("end");
    tool("mkfifo", [&fifo]).ok();
    let peak = |file: &str, more: &[&str]| {
        // When the process opens the pipe, it has finished the file, and its peak can be read.
        let arguments = [&["measure", file, &fifo, "--workers", "2"], more].concat();
        let mut child = start(&arguments);
        let mut end = OpenOptions::new().write(true).open(&fifo).unwrap();
        let peak = peak_kb(child.id());
        end.write_all(&pcap_header(65_535, 1)).unwrap();
        drop(end);
        drop(child.stdin.take());
        gather(child, &[]).ok();
        peak
    };
    let (small, large) = (temp.at("small.pcap"), temp.at("large.pcap"));
    for (file, packets) in [(&small, "40000"), (&large, "160000")] {
        weir([
            "generate",
            file,
            "--packets",
            packets,
            "--flows",
            "5000000",
            "--zipf",
            "0",
        ])
        .ok();
    }
    let grown = (std::fs::metadata(&large).unwrap().len()
        - std::fs::metadata(&small).unwrap().len())
        / 1024;
    assert!(grown > 100_000);
    for more in [
        &["--design", "rss"][..],
        &["--design", "async"],
        &["--window", "10ms", "--memory", "64k"],
    ] {
        let (small, large) = (peak(&small, more), peak(&large, more));
        eprintln!("{test}: {more:?}: {small} kB at most, and {large} kB for {grown} kB more");
        assert!(
            large < small + 16_000,
            "{more:?}: {small} kB, then {large} kB"
        );
    }
}
