//! Every scenario still works at its smoke size: rivals run, answers agree, tables come out.

use std::path::{Path, PathBuf};
use std::process::Command;
use weir_testkit::{Scratch, have, skipped};

/// Is the binary that is measured there?
fn weir(test: &str) -> bool {
    let there = Path::new(env!("CARGO_BIN_EXE_weir-bench"))
        .with_file_name("weir")
        .exists();
    if !there {
        skipped(test, "no weir binary beside weir-bench (see scripts/test)");
    }
    there
}

/// Runs a scenario once at its smoke size; its tables must have these parts, and its result these files.
fn smoke(scenario: &str, parts: &[&str], files: &[&str]) {
    let folder = Scratch::new();
    let output = Command::new(env!("CARGO_BIN_EXE_weir-bench"))
        .args([scenario, "--size", "smoke", "--rounds", "1", "--data"])
        .arg(folder.path().join("data"))
        .arg("--out")
        .arg(folder.path().join("out"))
        .output()
        .expect("weir-bench starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!text.contains("WRONG"), "{text}");
    if let Some(line) = text
        .lines()
        .find(|line| line.starts_with("skipped: all of it"))
    {
        eprintln!("{scenario}: {line}");
        return;
    }
    for part in parts {
        assert!(text.contains(part), "the part '{part}' is missing:\n{text}");
    }
    for file in ["README.md", "raw.csv"].iter().chain(files) {
        let result = std::fs::read_to_string(folder.path().join("out").join(file));
        let result = result.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(result.lines().count() > 5, "{file}: {result}");
        if file.ends_with(".csv") {
            let columns = result
                .lines()
                .next()
                .map_or(0, |head| head.split(',').count());
            assert!(
                result
                    .lines()
                    .all(|line| line.contains('"') || line.split(',').count() == columns),
                "{result}"
            );
        }
    }
}

#[test]
fn the_list_of_scenarios_fits_sixty_columns() {
    // Without a terminal the width is that of COLUMNS.
    let output = Command::new(env!("CARGO_BIN_EXE_weir-bench"))
        .env("COLUMNS", "60")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("weir-bench starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.lines().all(|line| line.chars().count() <= 60),
        "{text}"
    );
    for name in [
        "filter", "sketch", "measure", "pages", "layout", "store", "firewall", "forward",
        "capture", "language", "python",
    ] {
        assert!(
            text.lines()
                .any(|line| line.trim_start().starts_with(&format!("{name}:"))),
            "{name} in {text}"
        );
    }
}

#[test]
fn the_filter_scenario_runs_and_its_answers_agree() {
    if !weir("filter") {
        return;
    }
    if !have("filter", &["tcpdump"]) {
        return;
    }
    let parts = [
        "Filter and count: 60-byte frames",
        "Compressed files",
        "Start-up",
        "Peak memory",
        "Filter alone",
        "Bars",
    ];
    smoke("filter", &parts, &[]);
}

#[test]
fn the_sketch_scenario_runs_and_its_answers_agree() {
    let parts = [
        "weir Cms",
        "asap_sketchlib",
        "datasketches frequent items",
        "heavykeeper CuckooTopK",
        "streaming_algorithms",
        "probabilistic-collections",
        "hashbrown",
        "Answers: heavy flows",
        "a naive Count-Min, conservative",
        "Flow keys: ",
        "etherparse LaxSlicedPacket",
        "Spreaders",
        "SpreadSketch, d = 4",
        "RGS-Sketch",
        "Bars",
    ];
    smoke("sketch", &parts, &["update.svg"]);
}

#[test]
fn the_measure_scenario_runs_and_its_answers_agree() {
    if !weir("measure") {
        return;
    }
    let parts = [
        "Whole runs: 60-byte frames",
        "Walk, flow key, hash and heavy by themselves",
        "Answers: MWN sizes",
        "Peak memory",
        "rss separate heavy, 2",
        "refused: ",
        "What the study published",
        "tshark",
        "Bars",
    ];
    smoke(
        "measure",
        &parts,
        &["study.svg", "whole-60.svg", "whole-mwn.svg"],
    );
}

#[test]
fn the_language_scenario_runs_and_its_answers_agree() {
    let parts = [
        "Java against Rust",
        "capture and release",
        "firewall, columns",
        "columns by vectors",
        "firewall, checked packets",
        "A call with a handle, and a batch",
        "Packets without a garbage collector",
        "Two workers",
        "with weir and with pcap4j",
        "The steps of the thesis",
        "Frame lengths",
        "Bars",
    ];
    smoke("language", &parts, &["steps.svg", "frames.svg"]);
}

#[test]
fn the_python_scenario_runs_and_its_answers_agree() {
    let parts = [
        "A rule in NumPy",
        "source in a set",
        "Packets by port",
        "weir-frames",
        "Bars",
    ];
    smoke("python", &parts, &[]);
}

#[test]
fn the_pages_scenario_runs_and_its_answers_agree() {
    smoke(
        "pages",
        &["Tables of 1 MiB", "virtual", "hugetlb-1g", "Checksums"],
        &["dependent.svg", "independent.svg"],
    );
}

#[test]
fn the_layout_scenario_runs_and_its_answers_agree() {
    let parts = [
        "Storage efficiency",
        "64+2",
        "12 to 27 % gained at 64",
        "the interpreter says the same",
        "On this machine: **",
    ];
    smoke("layout", &parts, &["virtual.svg"]);
}

#[test]
fn the_store_scenario_runs_and_its_answers_agree() {
    if !weir("store") || !have("store", &["tcpdump"]) {
        return;
    }
    let parts = [
        "Writing the ring: MWN",
        "Writing the ring: 64 bytes",
        "says the interpreter",
        "a reader of as many bytes",
        "weir's recorder without an index",
        "a host in a minute",
        "a rare host in all the time",
        "Bars",
    ];
    smoke("store", &parts, &[]);
}

#[test]
fn the_firewall_scenario_runs_and_its_answers_agree() {
    let parts = [
        "The course's eight mixes",
        "The parent's experiment",
        "3 by random",
        "fastest with",
        "Rule lists",
        "Bars",
    ];
    smoke(
        "firewall",
        &parts,
        &[
            "mixes.svg",
            "figure-1.svg",
            "figure-2.svg",
            "figure-3.svg",
            "figure-4.svg",
        ],
    );
}

#[test]
fn the_capture_scenario_runs_and_its_answers_agree() {
    if !weir("capture") {
        return;
    }
    let parts = [
        "Without loss on 30 % of a core: 60 bytes",
        "Processor time a packet",
        "to a file",
        "AF_XDP",
        "A program in Java",
        "Bars",
    ];
    smoke("capture", &parts, &["rates.svg", "time.svg", "disk.svg"]);
}

#[test]
fn the_forward_scenario_runs_and_its_accounts_add_up() {
    if !weir("forward") || !have("forward", &["nft", "ethtool"]) {
        return;
    }
    let parts = [
        "by sources: 60 bytes",
        "first cable full",
        "nftables, ",
        "Swapping lists of 100 rules",
        "changes of verdict",
        "the socket alone",
        "Bars",
    ];
    smoke("forward", &parts, &["rates.svg"]);
}

#[cfg(feature = "dpdk")]
#[test]
fn the_dpdk_scenario_runs_and_its_answers_agree() {
    smoke(
        "dpdk",
        &[
            "Receiving alone",
            "rte_pktmbuf_free_bulk",
            "The pipeline on one core",
            "Answer: ",
            "Bars",
        ],
        &[],
    );
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn the_dpdk_scenario_is_a_feature() {
    skipped("dpdk", "built without the feature dpdk");
}

/// Also by way of `weir bench`, which looks for it beside itself.
#[test]
fn without_a_name_all_scenarios_are_listed() {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_weir-bench"));
    let mut commands = vec![Command::new(&bench)];
    if weir("weir bench") {
        let mut command = Command::new(bench.with_file_name("weir"));
        command.arg("bench").env("PATH", "/nowhere");
        commands.push(command);
    }
    for mut command in commands {
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success());
        for name in [
            "filter", "sketch", "measure", "pages", "layout", "store", "firewall", "forward",
            "capture",
        ] {
            assert!(
                text.lines().any(|line| line.trim_start().starts_with(name)),
                "{text}"
            );
        }
    }
}
