//! Outputs without a reader, and expressions that libpcap compiles for minutes: the first signal ends the run, which still
//! prints its summary.

use crate::live::{signal, start};
use crate::support::*;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Limit against hanging: longer than any of these runs takes after a signal on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A file of 15 000 packets, more than pipes and buffers hold.
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

/// Waits until the child's first thread blocks on a full output or on the open of a FIFO.
#[track_caller]
pub fn wait_until_stuck(child: &mut Child) {
    let waits =
        || std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
    wait::until_ok(|| {
        let place = waits();
        let is_stuck = ["poll", "pipe", "partner"]
            .iter()
            .any(|word| place.contains(word));
        if is_stuck {
            Ok(())
        } else {
            Err(format!("it is not stuck, but in {place}"))
        }
    });
}

/// Waits until the child has a handler for a signal, which would end it at once before that.
#[track_caller]
fn wait_until_caught(child: &mut Child, signal: &str) {
    let number = ["-HUP", "-INT", "-TERM"]
        .iter()
        .position(|name| *name == signal)
        .map(|i| [1, 2, 15][i]);
    let bit = 1u64 << (number.expect("it is one of those that end a run") - 1);
    let caught = || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap_or("0")
            .trim()
            .to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or(0)
    };
    wait::until(format_args!("a handler for {signal}"), || {
        caught() & bit != 0
    });
    assert!(child.try_wait().unwrap().is_none(), "it takes long");
}

/// Waits for a child that was signalled, without reading its standard output.
#[track_caller]
fn end(mut child: Child) -> Done {
    if !wait::within(PATIENCE, || child.try_wait().unwrap().is_some()) {
        child.kill().unwrap();
        panic!("the signal did not end it");
    }
    gather(child, &[])
}

/// SIGHUP, or another signal if the tests run under nohup, from which weir would inherit ignoring SIGHUP.
fn hang_up() -> &'static str {
    if hangups_are_ignored() {
        "-TERM"
    } else {
        "-HUP"
    }
}

fn fifo(temp: &Temp, name: &str) -> String {
    let path = temp.at(name);
    tool("mkfifo", [&path]).ok();
    path
}

/// Whether wchan can be read, without which a blocked run cannot be recognized; if not, prints that.
pub fn can_look(test: &str) -> bool {
    let mut sleeping = Command::new("sleep").arg("10").spawn().unwrap();
    let is_told = wait::within(Duration::from_secs(1), || {
        let place = std::fs::read_to_string(format!("/proc/{}/wchan", sleeping.id()));
        place.is_ok_and(|place| place.contains("sleep"))
    });
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    if !is_told {
        skipped(test, "/proc tells nobody what a process waits for");
    }
    is_told
}

/// Numbers at the beginning of a summary: `15 000 received, 15 000 matched`.
#[track_caller]
fn summary(done: &Done) -> [u64; 2] {
    let last = done.err.lines().last().unwrap_or_default();
    let numbers = ["received", "matched"].map(|word| {
        let part = last
            .split(", ")
            .find(|part| part.contains(word))
            .unwrap_or_else(|| panic!("{}", done.err));
        let digits: String = part
            .chars()
            .take_while(|c| *c != 'r' && *c != 'm')
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse().unwrap_or_else(|_| panic!("{}", done.err))
    });
    assert!(
        last.ends_with(", incomplete: see the fault above"),
        "{}",
        done.err
    );
    numbers
}

#[test]
fn the_first_signal_ends_a_filter_whose_output_nobody_reads() {
    const TEST: &str = "the_first_signal_ends_a_filter_whose_output_nobody_reads";
    if !can_look(TEST) {
        return;
    }
    let temp = Temp::new();
    let (file, closed, open) = (
        large(&temp),
        fifo(&temp, "closed.pcapng"),
        fifo(&temp, "open.pcapng"),
    );
    // The FIFO is open for reading, but never read.
    let held = OpenOptions::new()
        .read(true)
        .custom_flags(0o4000)
        .open(&open)
        .unwrap();
    let out = temp.at("out.pcap");
    let split = format!("{open}=udp or tcp");
    for (name, who, more) in [
        ("-TERM", "standard output", &[][..]),
        ("-INT", "standard output", &["--json"]),
        (hang_up(), "standard output", &["-w", "-"]),
        (
            "-TERM",
            "standard output",
            &["-w", &out, "--split=-=udp or tcp"],
        ),
        ("-TERM", &closed, &["-w", &closed]),
        ("-INT", &open, &["-w", &open]),
        ("-TERM", &open, &["-w", &out, "--split", &split]),
    ] {
        let mut child = start(&[&["filter", "", &file], more].concat());
        wait_until_stuck(&mut child);
        let flags = std::fs::read_to_string(format!("/proc/{}/fdinfo/1", child.id())).unwrap();
        let flags = flags
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap()
            .trim()
            .to_owned();
        assert_eq!(
            u32::from_str_radix(&flags, 8).unwrap() & 0o4000,
            0,
            "O_NONBLOCK on what is shared: {flags}"
        );
        signal(&child, name);
        let done = end(child);
        assert_eq!(done.code, Some(1), "{more:?}: {}", done.err);
        let [received, matched] = summary(&done);
        assert_eq!(received, matched, "{more:?}: {}", done.err);
        let line = done
            .err
            .lines()
            .find(|line| line.starts_with(&format!("weir: {who}: ")));
        assert!(
            line.is_some_and(|line| line.contains("read")),
            "{more:?}: {}",
            done.err
        );
        // Bytes that the output took without a reader are still in the pipe.
        let taken = match (who, more) {
            ("standard output", [] | ["--json"]) => {
                done.out.iter().filter(|&&byte| byte == b'\n').count()
            }
            ("standard output", _) => whole_packets(&done.out),
            _ => continue,
        };
        let name = if more.contains(&"--split=-=udp or tcp") {
            " to standard output"
        } else {
            ""
        };
        let written = format!(", {taken} written{name}, ").replace(' ', "");
        let last = done.err.lines().last().unwrap_or_default().replace(' ', "");
        assert!(last.contains(&written), "{more:?}: {taken}: {}", done.err);
    }
    drop(held);
}

/// Number of complete packet blocks at the beginning of a pcapng file.
fn whole_packets(bytes: &[u8]) -> usize {
    let (mut at, mut packets) = (0, 0);
    while let Some(head) = bytes.get(at..at + 8) {
        let [kind, len] = [0, 4].map(|at| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
        at += len as usize;
        packets += usize::from(kind == 6 && at <= bytes.len());
    }
    packets
}

#[test]
fn the_first_signal_ends_other_commands_whose_output_nobody_reads() {
    const TEST: &str = "the_first_signal_ends_other_commands_whose_output_nobody_reads";
    if !can_look(TEST) {
        return;
    }
    let temp = Temp::new();
    let file = large(&temp);
    for (words, arguments) in [
        (
            "weir: standard output: ",
            &["measure", &file, "--window", "20us", "--workers", "1"][..],
        ),
        (
            "weir: standard output: ",
            &[
                "measure",
                &file,
                "--window",
                "20us",
                "--workers",
                "2",
                "--json",
            ],
        ),
        (
            "weir: standard output: ",
            &[
                "measure",
                &file,
                "--window",
                "20us",
                "--workers",
                "2",
                "--design",
                "async",
            ],
        ),
        (
            "weir: standard output: ",
            &["measure", &file, "--top", "100000", "--sketch", "exact"],
        ),
        (
            "weir: standard output: ",
            &["generate", "-", "--packets", "100000"],
        ),
    ] {
        let mut child = start(arguments);
        wait_until_stuck(&mut child);
        signal(&child, "-TERM");
        let done = end(child);
        assert_eq!(done.code, Some(1), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
        if arguments[0] == "measure" {
            assert!(
                done.err.contains(" received, "),
                "{arguments:?}: {}",
                done.err
            );
        }
    }
    // If standard error has no reader either, the run can only end.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "exec \"$0\" \"$@\" 2>&1",
        env!("CARGO_BIN_EXE_weir"),
        "filter",
        "",
        &file,
    ]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_stuck(&mut child);
    signal(&child, "-TERM");
    assert_eq!(end(child).code, Some(1));
}

/// A reader that comes late gets all packets: waiting for it loses none.
#[test]
fn a_reader_may_come_late() {
    const TEST: &str = "a_reader_may_come_late";
    if !can_look(TEST) {
        return;
    }
    let temp = Temp::new();
    let (file, fifo) = (large(&temp), fifo(&temp, "late"));
    let whole = std::fs::read(&file).unwrap();
    let mut child = start(&["filter", "", &file, "-w", "-"]);
    wait_until_stuck(&mut child);
    let done = gather(child, &[]).ok();
    assert_eq!(records(&temp.file("copy.pcapng", &done.out)).len(), 15_000);
    let mut child = start(&["filter", "", &file, "-w", &fifo]);
    wait_until_stuck(&mut child);
    let mut got = Vec::new();
    File::open(&fifo).unwrap().read_to_end(&mut got).unwrap();
    gather(child, &[]).ok();
    let copy = temp.file("copy.pcapng", &got);
    assert_eq!(records(&copy), parse_pcap(&whole).1);
}

/// Hundreds of networks, which become no set. libpcap takes seconds for them.
fn endless_expression() -> String {
    let net = |i: u32| format!("net 10.{}.{}.0/24", i / 250, i % 250);
    (0..1450).map(net).collect::<Vec<_>>().join(" or ")
}

#[test]
fn the_first_signal_ends_a_compilation_that_takes_minutes() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let expression = endless_expression();
    let split = format!("{}={expression}", temp.at("split"));
    for (name, arguments) in [
        ("-TERM", &["filter", &expression, &file, "--count"][..]),
        (
            "-INT",
            &[
                "filter",
                &expression,
                &file,
                &file,
                "--merge",
                "-w",
                &temp.at("out.pcap"),
            ],
        ),
        (hang_up(), &["filter", "", &file, "--split", &split]),
        (
            "-TERM",
            &["measure", &file, "--filter", &expression, "--workers", "1"],
        ),
        (
            "-TERM",
            &["measure", &file, "--filter", &expression, "--workers", "2"],
        ),
    ] {
        let mut child = start(arguments);
        wait_until_caught(&mut child, name);
        signal(&child, name);
        let done = end(child).ok();
        assert!(done.err.starts_with("0 received, 0 "), "{}", done.err);
        assert!(done.err.contains(", interrupted"), "{}", done.err);
    }
}

#[test]
fn the_first_signal_ends_a_compilation_for_the_kernel() {
    const TEST: &str = "the_first_signal_ends_a_compilation_for_the_kernel";
    let probe = weir(["measure", "lo", "--workers", "1", "--duration", "10ms"]);
    if probe.code != Some(0) {
        skipped(TEST, probe.err.trim());
        return;
    }
    let expression = endless_expression();
    for command in ["filter", "measure"] {
        let mut child = match command {
            "filter" => start(&["filter", &expression, "lo", "--count"]),
            _ => start(&["measure", "lo", "--filter", &expression, "--workers", "1"]),
        };
        wait_until_caught(&mut child, "-TERM");
        signal(&child, "-TERM");
        let done = end(child).ok();
        assert!(done.err.contains("0 received, 0 "), "{}", done.err);
    }
}
