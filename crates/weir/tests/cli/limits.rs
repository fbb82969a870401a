//! Limits of the system: if a thread, memory or file size cannot be had, weir prints a line and exits with a code, without
//! panic or hang.

use crate::support::*;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// `weir` under a limit in the notation of `prlimit`.
fn limited(limit: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command
        .args([limit, env!("CARGO_BIN_EXE_weir")])
        .args(arguments)
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command
}

/// A file of 15 000 packets, 21 MB: two mapped windows, or twenty pieces to read.
fn large(temp: &Temp) -> String {
    let file = temp.at("large.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "15000",
        "--sizes",
        "1400",
        "--seed",
        "1",
    ])
    .ok();
    file
}

#[test]
fn threads_that_cannot_be_had_are_a_line_and_no_panic() {
    const TEST: &str = "threads_that_cannot_be_had_are_a_line_and_no_panic";
    /// A user without other processes, because process limits do not apply to root.
    const NOBODY: u32 = 61_234;
    if !have(TEST, &["gzip", "id", "prlimit"]) {
        return;
    }
    let temp = Temp::new();
    let file = large(&temp);
    tool("gzip", ["-1k", &file]).ok();
    let packed = format!("{file}.gz");
    let root = tool("id", ["-u"]).text().trim() == "0";
    let run = |arguments: &[&str]| {
        let mut command = limited("--nproc=1", arguments);
        if root {
            command.uid(NOBODY).gid(NOBODY);
        }
        run(&mut command, &[])
    };
    if run(&["filter", "", &file, "--workers", "1", "--count"]).code != Some(0) {
        skipped(
            TEST,
            "another user may not run the program or read the file",
        );
        return;
    }
    let filter = ["filter", "udp", "--count"];
    let measure = ["measure", "--workers", "2", "--memory", "64k"];
    for (what, arguments) in [
        (
            "worker thread 0",
            [&filter[..], &["--workers", "4", &file]].concat(),
        ),
        ("decoder's thread", [&filter[..], &[&packed]].concat()),
        (
            "worker thread 0",
            ["info", "--workers", "4", &file].to_vec(),
        ),
        ("worker thread 0", [&measure[..], &[&file]].concat()),
        (
            "worker thread 0",
            [&measure[..], &["--design", "async", &file]].concat(),
        ),
        (
            "worker thread 0",
            [&measure[..], &["--design", "sync", &file]].concat(),
        ),
    ] {
        let done = run(&arguments);
        assert!(matches!(done.code, Some(1 | 2)), "{arguments:?}: {done:?}");
        let line = done
            .err
            .lines()
            .find(|line| line.starts_with("weir: "))
            .unwrap_or_default();
        assert!(
            line.contains(&format!("{what} cannot be started")),
            "{arguments:?}: {}",
            done.err
        );
        assert!(!done.err.contains("panicked"), "{}", done.err);
    }
}

/// If memory is shorter than a sort prefers, its runs are smaller.
#[test]
fn a_sort_goes_on_with_the_memory_that_it_can_have() {
    const TEST: &str = "a_sort_goes_on_with_the_memory_that_it_can_have";
    /// Step between memory limits, MiB.
    const STEP: usize = 16;
    if !have(TEST, &["prlimit"]) {
        return;
    }
    let temp = Temp::new();
    let (small, large, out) = (
        temp.file("small.pcap", &small_pcap(10)),
        temp.at("large.pcap"),
        temp.at("out.pcap"),
    );
    weir([
        "generate",
        &large,
        "--packets",
        "40000",
        "--sizes",
        "1400",
        "--seed",
        "1",
    ])
    .ok();
    let sort = |mib: usize, file: &str| {
        let limit = format!("--as={}", mib << 20);
        run(
            &mut limited(&limit, &["filter", "", file, "--sort", "-w", &out]),
            &[],
        )
    };
    let least = (STEP..1024)
        .step_by(STEP)
        .find(|&mib| sort(mib, &small).code == Some(0))
        .expect("a few packets fit");
    // 57 MB of packets. Read and write buffers take a part of the memory allowed in addition.
    for more in [24, 40] {
        let done = sort(least + more, &large).ok();
        assert!(
            done.err.contains("40 000 received, 40 000 matched"),
            "{}",
            done.err
        );
        assert!(records(&out) == records(&large), "{more}");
    }
}

#[test]
fn a_file_that_may_not_grow_ends_at_a_whole_record() {
    const LIMIT: u64 = 51_200;
    const FSIZE: &str = "--fsize=51200";
    if !have(
        "a_file_that_may_not_grow_ends_at_a_whole_record",
        &["prlimit"],
    ) {
        return;
    }
    let temp = Temp::new();
    let file = large(&temp);
    let original = parse_pcap(&std::fs::read(&file).unwrap()).1;
    let (out, split) = (temp.at("out.pcap"), temp.at("split.pcap"));
    let said = |done: &Done| {
        assert_eq!(done.code, Some(1), "{}", done.err);
        let line = done
            .err
            .lines()
            .find(|line| line.contains("file too large"))
            .expect("a line");
        let before = line.rsplit_once("; ").expect("what was written").1;
        before
            .split(' ')
            .next()
            .unwrap()
            .parse::<usize>()
            .unwrap_or_else(|_| panic!("{line}"))
    };
    for (written, arguments) in [
        (&out, ["filter", "", &file, "-w", &out].to_vec()),
        (
            &split,
            [
                "filter",
                "",
                &file,
                "--split",
                &format!("{split}=greater 1"),
            ]
            .to_vec(),
        ),
        (
            &out,
            [
                "generate",
                &out,
                "--packets",
                "15000",
                "--sizes",
                "1400",
                "--seed",
                "1",
            ]
            .to_vec(),
        ),
    ] {
        let done = run(&mut limited(FSIZE, &arguments), &[]);
        let bytes = std::fs::read(written).unwrap();
        assert!(
            bytes.len() as u64 <= LIMIT && bytes.len() as u64 > LIMIT - 1500,
            "{}",
            bytes.len()
        );
        let records = parse_pcap(&bytes).1;
        assert_eq!(records.len(), said(&done), "{arguments:?}");
        assert!(records == original[..records.len()], "{arguments:?}");
    }
    // Standard output is appended to existing contents of the file.
    let path = temp.file("stdout", b"before");
    let stdout = OpenOptions::new().append(true).open(&path).unwrap();
    let mut command = limited(FSIZE, &["filter", "", &file, "-w", "-"]);
    let child = command
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = said(&gather(child, &[]));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"before") && bytes.len() as u64 <= LIMIT);
    let copy = temp.file("copy.pcapng", &bytes[6..]);
    assert!(records(&copy) == original[..written]);
}

/// Limits of address space from very little to plenty. A lack of memory gives a line and an exit code, never a signal, a
/// panic or a hang.
#[test]
fn a_ring_that_does_not_fit_names_its_option() {
    let test = "a_ring_that_does_not_fit_names_its_option";
    if !have(test, &["prlimit"]) {
        return;
    }
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(30));
    let mut command = Command::new("prlimit");
    command.args([
        "--as=700000000",
        env!("CARGO_BIN_EXE_weir"),
        "record",
        "--ram",
        "900M",
        &file,
        &temp.at("out"),
    ]);
    let done = run(&mut command, &[]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(
        done.err
            .ends_with("no memory of 896.0 MiB to be had: --ram sets how much it takes\n"),
        "{}",
        done.err
    );
}

#[test]
fn memory_that_cannot_be_had_is_a_line_and_an_exit_code() {
    const TEST: &str = "memory_that_cannot_be_had_is_a_line_and_an_exit_code";
    if !have(TEST, &["prlimit", "timeout", "gzip", "zstd", "lz4"]) {
        return;
    }
    let temp = Temp::new();
    let file = large(&temp);
    let packed = ["gzip -1k", "zstd -q --long=27", "lz4 -q -B7"].map(|tool_words| {
        let words: Vec<&str> = tool_words.split(' ').collect();
        tool(words[0], words[1..].iter().copied().chain([file.as_str()])).ok();
        format!(
            "{file}.{}",
            words[0].replace("gzip", "gz").replace("zstd", "zst")
        )
    });
    // One packet of 40 MB, complete and cut. A claimed length alone must not make weir allocate that much.
    let mut giant = pcapng_start(1);
    giant.extend(pcapng_packet(1, &vec![0; 40 << 20]));
    let whole = temp.file("giant.pcapng", &giant);
    let out = temp.at("out.pcap");
    let split = format!("{out}=tcp");
    let cases = [
        ["filter", "udp", &file, "--workers", "4", "--count"].to_vec(),
        ["filter", "udp", &file, "--workers", "16", "--count"].to_vec(),
        ["filter", "udp", &file, "--workers", "1", "-w", &out].to_vec(),
        ["filter", "udp", &file, "--split", &split, "--json"].to_vec(),
        ["filter", "", &packed[0], "--count"].to_vec(),
        ["filter", "", &packed[1], "--count"].to_vec(),
        ["filter", "", &packed[2], "--count"].to_vec(),
        ["filter", "", &whole, "-w", &out].to_vec(),
        ["filter", "", "-", "-x"].to_vec(),
        ["measure", &file, "--workers", "4", "--memory", "16M"].to_vec(),
        [
            "measure",
            &file,
            "--workers",
            "2",
            "--design",
            "async",
            "--window",
            "1ms",
            "--late",
            "20ms",
        ]
        .to_vec(),
        [
            "measure",
            &file,
            "--workers",
            "1",
            "--sketch",
            "exact",
            "--memory",
            "64M",
            "--filter",
            "udp",
        ]
        .to_vec(),
        ["info", &file, &packed[1], "--workers", "4"].to_vec(),
    ];
    // In less than its own length, the kernel ends a program before its first instruction.
    let is_begun = |limit: &String| {
        let version = [limit, env!("CARGO_BIN_EXE_weir"), "--version"];
        run(Command::new("prlimit").args(version), &[])
            .code
            .is_some()
    };
    let limits = [28, 32, 48, 64, 96, 128, 192, 256, 384];
    let limits: Vec<(u64, String)> = limits
        .map(|megabytes| (megabytes, format!("--as={}", megabytes << 20)))
        .into_iter()
        .filter(|(_, limit)| is_begun(limit))
        .collect();
    assert!(limits.len() >= 7);
    for arguments in &cases {
        for (megabytes, limit) in &limits {
            let mut command = Command::new("timeout");
            command
                .args([
                    "--signal=KILL",
                    "60",
                    "prlimit",
                    limit,
                    env!("CARGO_BIN_EXE_weir"),
                ])
                .args(arguments);
            let input = if arguments.contains(&"-") {
                &giant[..]
            } else {
                &[]
            };
            let done = run(command.env("TZ", "UTC").stdin(Stdio::piped()), input);
            let said = format!("{megabytes} MiB, {arguments:?}: {}", done.err);
            assert!(
                matches!(done.code, Some(0..=2 | 127)),
                "{:?}: {said}",
                done.code
            );
            assert!(!done.err.contains("panicked"), "{said}");
            // 127: not even the program's libraries fit.
            assert!(
                done.code == Some(0) || done.err.lines().any(|line| !line.is_empty()),
                "{said}"
            );
        }
    }
}
