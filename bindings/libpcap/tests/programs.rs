//! Programs of libpcap with this library in front of it: their answers and their exit codes stay, to the letter.

mod preloaded;

use preloaded::{library, preloaded};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use weir_testkit::savefile::{Pcap, Pcapng};
use weir_testkit::{Scratch, captures, have, links, skipped};

/// What a program prints and returns, with and without the library.
fn both(program: &str, words: &[&str]) -> [Output; 2] {
    [Command::new(program), preloaded(program)].map(|mut command| {
        command.args(words).stdin(Stdio::null()).env("TZ", "UTC");
        command.output().unwrap()
    })
}

#[track_caller]
fn same(program: &str, words: &[&str]) -> Output {
    let [without, with] = both(program, words);
    assert_eq!(without, with, "{program} {words:?}");
    with
}

/// Names that a library defines for others.
fn exported(library: &Path) -> BTreeSet<String> {
    let words = ["-D", "--defined-only"];
    let done = Command::new("nm")
        .args(words)
        .arg(library)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').nth(2));
    names.map(str::to_owned).collect()
}

/// The libpcap that tcpdump is linked to.
fn libpcap() -> Option<PathBuf> {
    let done = Command::new("sh")
        .args(["-c", "ldd $(command -v tcpdump)"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.contains("libpcap"))?
        .to_owned();
    line.split_whitespace()
        .find(|word| word.starts_with('/'))
        .map(PathBuf::from)
}

#[test]
fn all_symbols_of_libpcap_are_here_and_no_others() {
    let test = "all_symbols_of_libpcap_are_here_and_no_others";
    if !have(test, &["nm", "ldd", "tcpdump"]) {
        return;
    }
    let Some(libpcap) = libpcap() else {
        return skipped(test, "tcpdump is not linked to a libpcap");
    };
    let (ours, theirs) = (exported(&library()), exported(&libpcap));
    assert_eq!(
        theirs.difference(&ours).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    let more: Vec<_> = ours.difference(&theirs).collect();
    assert!(more.is_empty(), "{more:?} are not libpcap's");
    assert_eq!(ours.len(), 96);
    let page = include_str!("../../../docs/reference/exec.md");
    for name in &ours {
        assert!(
            page.contains(name.as_str()),
            "docs/reference/exec.md lacks {name}"
        );
    }
}

/// A few expressions for each capture; `scripts/exec-against-libpcap` has all.
#[test]
fn tcpdump_prints_the_same() {
    let test = "tcpdump_prints_the_same";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let expressions = [
        "",
        "tcp",
        "udp port 53",
        "ip6",
        "not ip",
        "vlan and ip",
        "len > 200",
        "tcp[13] & 2 != 0",
        "host x",
        "port",
    ];
    // Under valgrind each run takes seconds.
    let is_slow = std::env::var_os("WEIR_TEST_UNDER").is_some();
    let step = if is_slow { 4 } else { 1 };
    for (index, path) in captures(test).iter().enumerate().step_by(step) {
        let expression = expressions[index % expressions.len()];
        same(
            "tcpdump",
            &["-nn", "-e", "-r", path.to_str().unwrap(), expression],
        );
    }
}

/// A file with `packets` packets, and a damaged record after them.
fn damaged(packets: u32) -> Vec<u8> {
    let mut file = Pcap::new(1, 96);
    for index in 0..packets {
        file.packet(&links::udp(1000 + index as u16, 53, &[7; 20]));
    }
    file.header(1, 2, u32::MAX, 60);
    file.bytes
}

#[test]
fn odd_files_end_as_without() {
    if !have("odd_files_end_as_without", &["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut sections = Pcapng::new(false);
    sections.interface(1, 0, 9);
    sections.packet(&[1; 60]);
    sections.interface(1, 0, 6);
    sections.enhanced(1, 60, &[2; 60]);
    sections.simple(60, &[3; 60]);
    sections.section(true);
    sections.interface(1, 0, 6);
    sections.packet(&[4; 60]);
    let files = [
        scratch.file("damaged.pcap", &damaged(100)),
        scratch.file("cut.pcap", &damaged(3)[..150]),
        scratch.file("empty.pcap", &damaged(0)[..24]),
        scratch.file("nothing.pcap", b""),
        scratch.file("sections.pcapng", &sections.bytes),
        scratch.at("missing.pcap"),
    ];
    for file in &files {
        same("tcpdump", &["-ntttr", file]);
        same("tcpdump", &["-ntttr", file, "-c2", "greater 40"]);
        let copy = scratch.at("copy.pcap");
        let written: Vec<_> = both("tcpdump", &["-Z", "root", "-r", file, "-w", &copy])
            .iter()
            .map(|done| done.status)
            .collect();
        assert_eq!(written[0], written[1], "{file}");
    }
}

#[test]
fn written_files_are_equal() {
    if !have("written_files_are_equal", &["tcpdump", "sh"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut file = Pcap::new(1, 65_535);
    for index in 0..5000_u32 {
        file.stamped(
            i64::from(index) * 1_000_001_000,
            &links::udp(53, index as u16, &vec![1; index as usize % 3000]),
        );
    }
    let file = scratch.file("in.pcap", &file.bytes);
    let script = format!(
        "tcpdump -r {file} -w - greater 100 2>&1; tcpdump -Z root -r {file} -w {}/out.pcap -C 1 2>&1; cat {0}/out.pcap*",
        scratch.path().display()
    );
    let done = same("sh", &["-c", &script]);
    assert!(done.stdout.len() > 10_000_000, "{}", done.stdout.len());
}

/// Standard input stays where libpcap leaves it.
#[test]
fn the_rest_of_standard_input_is_for_the_next_program() {
    if !have(
        "the_rest_of_standard_input_is_for_the_next_program",
        &["tcpdump", "sh"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap", &damaged(2000));
    same(
        "sh",
        &[
            "-c",
            &format!(
                "(tcpdump -nr - -c 5; wc -c) <{file}; cat {file} | tcpdump -nr - greater 40 2>&1"
            ),
        ],
    );
}
