//! Growing sources and vanishing readers: pipes, growing files, signals.

use crate::support::*;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts `weir` with pipes as standard input, output and error.
pub fn start(arguments: &[&str]) -> Child {
    let mut command = weir_command();
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the binary was built")
}

pub fn signal(child: &Child, name: &str) {
    let kill = format!("kill {name} {}", child.id());
    let sent = Command::new("sh")
        .args(["-c", &kill])
        .status()
        .expect("a shell can be run");
    assert!(sent.success());
}

/// Waits until `path` has `len` bytes.
fn wait_for_len(path: &str, len: u64) {
    wait::until(format_args!("{len} bytes in {path}"), || {
        std::fs::metadata(path).is_ok_and(|about| about.len() >= len)
    });
}

/// Waits until a process that follows a file has read all of it.
pub fn until_read(child: &Child, path: &str) {
    let len = std::fs::metadata(path).unwrap().len();
    wait::until(format_args!("{len} bytes of {path} to be read"), || {
        offset_in(child, path) == Some(len)
    });
}

/// How far a process has read a file that it holds open, bytes. **Source**: proc_pid_fdinfo(5).
fn offset_in(child: &Child, path: &str) -> Option<u64> {
    let process = Path::new("/proc").join(child.id().to_string());
    let whole = std::fs::canonicalize(path).ok()?;
    let files = std::fs::read_dir(process.join("fd")).ok()?.flatten();
    let file = files
        .filter(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == whole))
        .last()?;
    let about = std::fs::read_to_string(process.join("fdinfo").join(file.file_name())).ok()?;
    about
        .strip_prefix("pos:")?
        .lines()
        .next()?
        .trim()
        .parse()
        .ok()
}

#[test]
fn a_pipe_is_printed_packet_by_packet() {
    let mut child = start(&["filter", "udp", "-", "-t"]);
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(&pcap_header(65_535, 1)).unwrap();
    for port in 1..=5u16 {
        input.write_all(&pcap_record(1, &udp(port, 4))).unwrap();
        // The line is read before the next packet is sent. If weir waited for more lines before a write, the test would
        // hang here.
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(
            line,
            format!("IP 10.0.0.1.4000 > 10.0.0.2.{port}: UDP, length 4\n")
        );
    }
    drop(input);
    let done = gather(child, &[]).ok();
    assert!(
        done.err.starts_with("5 received, 5 matched"),
        "{}",
        done.err
    );
}

#[test]
fn unbuffered_packets_go_out_one_by_one() {
    let mut child = start(&["filter", "udp", "-", "-w", "-", "-U"]);
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    input.write_all(&pcap_header(65_535, 1)).unwrap();
    let mut head = 28 + 48;
    for port in 1..=3u16 {
        let frame = udp(port, 2);
        input.write_all(&pcap_record(1, &frame)).unwrap();
        let mut bytes = vec![0; head + 32 + frame.len().next_multiple_of(4)];
        if head > 0 {
            // Section header and interface block, of any length, come before the first packet.
            let mut start = vec![0; 8];
            output.read_exact(&mut start).unwrap();
            let section = u32::from_le_bytes(start[4..8].try_into().unwrap()) as usize;
            let mut rest = vec![0; section - 8];
            output.read_exact(&mut rest).unwrap();
            output.read_exact(&mut start).unwrap();
            let interface = u32::from_le_bytes(start[4..8].try_into().unwrap()) as usize;
            let mut rest = vec![0; interface - 8];
            output.read_exact(&mut rest).unwrap();
            head = 0;
            bytes.truncate(32 + frame.len().next_multiple_of(4));
        }
        output.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[28..28 + frame.len()], frame);
    }
    drop(input);
    assert_eq!(gather(child, &[]).code, Some(0));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let temp = Temp::new();
    let file = temp.at("made.pcap");
    weir(["generate", &file, "--packets", "50000"]).ok();
    let weir = env!("CARGO_BIN_EXE_weir");
    for command in [
        "filter '' FILE",
        "filter '' FILE -w -",
        "filter '' FILE --json",
        "generate - --packets 50000",
    ] {
        let command = command.replace("FILE", &format!("'{file}'"));
        let script =
            format!("{{ '{weir}' {command}; echo \"code $?\" >&2; }} | head -c 10 >/dev/null");
        let done = run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        );
        assert_eq!(done.err, "code 0\n", "{command}");
    }
}

/// If the reader of one output stops, the other outputs get all their packets, and the exit code is that of a closed pipe.
#[test]
fn other_outputs_go_on_when_one_is_read_no_more() {
    let temp = Temp::new();
    let file = temp.at("made.pcap");
    weir(["generate", &file, "--packets", "50000"]).ok();
    let weir_path = env!("CARGO_BIN_EXE_weir");
    let (x, y) = (temp.at("x.pcap"), temp.at("y.pcap"));
    let expected = |expression: &str| weir(["filter", expression, &file, "--count"]).ok().count();
    let written = |path: &str| records(path).len() as u64;
    for more in ["", "--merge", "--workers 3"] {
        let command =
            format!("filter 'ip' '{file}' -w - --split '{x}=udp' --split '{y}=tcp' {more} --stats");
        let script = format!(
            "{{ '{weir_path}' {command}; echo \"code $?\" >&2; }} | head -c 100 >/dev/null"
        );
        let done = run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        );
        assert!(
            done.err.ends_with("code 0\n") && !done.err.contains("weir:"),
            "{more}: {}",
            done.err
        );
        assert_eq!(
            (written(&x), written(&y)),
            (expected("ip and udp"), expected("ip and tcp")),
            "{more}"
        );
        let all = expected("ip").to_string();
        assert!(
            done.err
                .replace(' ', "")
                .contains(&format!(",{all}matched")),
            "{more}: {}",
            done.err
        );
        // Only the output that ended early is named.
        assert!(
            done.err.contains(" written to standard output, "),
            "{more}: {}",
            done.err
        );
        assert_eq!(
            done.err.matches(" written to ").count(),
            1,
            "{more}: {}",
            done.err
        );
    }
    // The same with a split, here to a named pipe. If no output is left, the run ends without a message.
    let pipe = temp.at("pipe.pcap");
    tool("mkfifo", [&pipe]).ok();
    for (rest, quiet) in [(format!("-w '{x}'"), false), ("".to_owned(), true)] {
        let command = format!("filter '' '{file}' --split '{pipe}=ip' {rest}");
        let script = format!(
            "head -c 100 '{pipe}' >/dev/null & '{weir_path}' {command}; echo \"code $?\" >&2; wait"
        );
        let done = run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        );
        assert!(
            done.err.ends_with("code 0\n") && !done.err.contains("weir:"),
            "{}",
            done.err
        );
        assert_eq!(done.err == "code 0\n", quiet, "{}", done.err);
        assert_eq!(written(&x), if quiet { 0 } else { 50_000 });
        std::fs::write(&x, pcap_header(65_535, 1)).unwrap();
    }
    // A full disk ends one output with a message, and no other output.
    if std::path::Path::new("/dev/full").exists() {
        let split = format!("{x}=udp");
        let done = weir(["filter", "", &file, "-w", "/dev/full", "--split", &split]);
        assert_eq!(
            (done.code, written(&x)),
            (Some(1), expected("udp")),
            "{}",
            done.err
        );
        assert_eq!(done.err.matches("weir: ").count(), 1, "{}", done.err);
    }
}

#[test]
fn a_growing_file_is_followed_until_it_is_interrupted() {
    let temp = Temp::new();
    let path = temp.file("growing.pcap", &small_pcap(2));
    let mut child = start(&["filter", "", &path, "--follow", "-t"]);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.split("10.0.0.2.")
            .nth(1)
            .and_then(|rest| rest.split(':').next())
            .map(str::to_owned)
    };
    assert_eq!(line().as_deref(), Some("1"));
    assert_eq!(line().as_deref(), Some("2"));
    let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
    for port in 3..=6u16 {
        // The writer has not completed the packet yet.
        let record = pcap_record(5, &udp(port, 9));
        let (first, second) = record.split_at(usize::from(port) * 7);
        writer.write_all(first).unwrap();
        writer.flush().unwrap();
        until_read(&child, &path);
        writer.write_all(second).unwrap();
        assert_eq!(line(), Some(port.to_string()));
    }
    // An incomplete packet at the end is no fault, because more bytes might have come.
    writer.write_all(&pcap_record(5, &udp(7, 9))[..30]).unwrap();
    until_read(&child, &path);
    signal(&child, "-INT");
    let done = gather(child, &[]).ok();
    assert!(
        done.err.starts_with("6 received, 6 matched (100.0 %)"),
        "{}",
        done.err
    );
    assert!(done.err.ends_with(" s\n"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn a_followed_file_may_begin_empty() {
    let temp = Temp::new();
    let path = temp.file("growing.pcapng", &[]);
    let child = start(&["filter", "", &path, "--follow", "-c", "2", "-t"]);
    let mut writer = File::options().append(true).open(&path).unwrap();
    for piece in [
        pcapng_start(1),
        pcapng_packet(1, &udp(1, 1)),
        pcapng_packet(1, &udp(2, 1)),
    ] {
        until_read(&child, &path);
        writer.write_all(&piece).unwrap();
    }
    let done = gather(child, &[]).ok();
    assert_eq!(done.text().lines().count(), 2);
}

#[test]
fn an_interrupted_follow_leaves_a_whole_file() {
    let temp = Temp::new();
    let path = temp.file("growing.pcap", &small_pcap(5));
    for (name, signal_name) in [("out.pcap", "-INT"), ("out.pcapng", "-TERM")] {
        let out = temp.at(name);
        let child = start(&["filter", "", &path, "--follow", "-w", &out, "-U"]);
        wait_for_len(&out, std::fs::metadata(&path).unwrap().len());
        signal(&child, signal_name);
        let done = gather(child, &[]).ok();
        assert!(
            done.err.starts_with("5 received, 5 matched"),
            "{}",
            done.err
        );
        assert_eq!(records(&out).len(), 5);
    }
    // Buffered packets are written at the end.
    let out = temp.at("late.pcap");
    let child = start(&["filter", "", &path, "--follow", "-w", &out]);
    until_read(&child, &path);
    wait::until_asleep(child.id(), |_| true);
    signal(&child, "-INT");
    let done = gather(child, &[]).ok();
    assert!(
        done.err.starts_with("5 received, 5 matched"),
        "{}",
        done.err
    );
    assert_eq!(records(&out).len(), 5);
}

#[test]
fn a_signal_ends_the_wait_for_a_pipe() {
    for begun in [&[][..], &small_pcap(3), &small_pcap(3)[..200]] {
        let mut child = start(&["filter", "", "-", "-t", "-U"]);
        let mut input = child.stdin.take().unwrap();
        input.write_all(begun).unwrap();
        let mut lines = String::new();
        // It stays, so that nothing but the signal ends the run.
        let mut output = None;
        if begun.is_empty() {
            wait::until_asleep(child.id(), |_| true);
        } else {
            // The first line shows that the run is at work.
            let reader = output.insert(BufReader::new(child.stdout.take().unwrap()));
            reader.read_line(&mut lines).unwrap();
            wait::until("the last byte", || wait::unread(&input) == 0);
            wait::until_asleep(child.id(), |_| true);
        }
        signal(&child, "-INT");
        let done = gather(child, &[]);
        assert_eq!(done.code, Some(0), "{} bytes: {}", begun.len(), done.err);
        assert!(
            !done.err.contains("weir:"),
            "{} bytes: {}",
            begun.len(),
            done.err
        );
        drop(input);
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_decoder() {
    if !have("a_signal_ends_the_wait_for_a_decoder", &["gzip"]) {
        return;
    }
    let packed = tool_fed("gzip", ["-c"], &small_pcap(2000)).ok().out;
    let mut child = start(&["filter", "", "-", "--count"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&packed[..packed.len() / 2]).unwrap();
    wait::until("the last byte", || wait::unread(&input) == 0);
    wait::until_asleep(child.id(), |_| true);
    signal(&child, "-INT");
    let done = gather(child, &[]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.err.contains("weir:"), "{}", done.err);
    assert!(done.err.ends_with(", interrupted\n"), "{}", done.err);
    drop(input);
}

#[test]
fn a_pipe_that_is_followed_ends_with_the_pipe() {
    assert_eq!(
        weir_fed(["filter", "", "-", "--follow", "--count"], &small_pcap(4))
            .ok()
            .count(),
        4
    );
}

/// The file is cut while the command waits for the reader of its output. Only packets that were written count.
#[test]
fn packets_that_a_file_lost_before_they_were_written_are_not_counted() {
    let temp = Temp::new();
    let path = temp.at("shrinks.pcap");
    weir([
        "generate",
        &path,
        "--packets",
        "400000",
        "--sizes",
        "60",
        "--seed",
        "3",
    ])
    .ok();
    let whole = std::fs::read(&path).unwrap();
    let cut = whole.len() as u64 / 2 + 1234;
    for workers in ["1", "2"] {
        std::fs::write(&path, &whole).unwrap();
        let mut child = start(&["filter", "", &path, "-w", "-", "--workers", workers]);
        let mut output = child.stdout.take().unwrap();
        // When the first bytes come, all packets have been found, but the output is too large for the pipe.
        let mut written = vec![0; 4096];
        output.read_exact(&mut written).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(cut)
            .unwrap();
        output.read_to_end(&mut written).unwrap();
        let done = gather(child, &[]);
        let copy = records(&temp.file("copy.pcapng", &written));
        let (_, right) = parse_pcap(&whole);
        let ends = right.iter().scan(24, |end, record| {
            *end += 16 + record.data.len() as u64;
            Some(*end)
        });
        let ends: Vec<u64> = ends.collect();
        // What was read before the cut is passed on, though the file has lost it.
        let (n, left) = (copy.len(), ends.iter().filter(|&&end| end <= cut).count());
        assert!(n >= left && n < right.len(), "{n} packets of {left}");
        assert!(right[..n] == copy[..], "{n} packets");
        let (next, offset) = (n + 1, ends[n - 1]);
        let fault = format!(
            "weir: {path}: packet {next}, offset {offset}: the file shrank from {} to {cut} bytes while it was read; {n} packets \
             before it were delivered",
            whole.len()
        );
        let spaced = if n > 9999 {
            format!("{} {:03}", n / 1000, n % 1000)
        } else {
            n.to_string()
        };
        let lines: Vec<&str> = done.err.lines().collect();
        assert_eq!((done.code, lines[0]), (Some(1), &fault[..]), "{}", done.err);
        assert!(
            lines[1].starts_with(&format!("{spaced} received, {spaced} matched (100.0 %)")),
            "{}",
            done.err
        );
    }
}

/// Next line on a child's standard error or output.
fn next_line(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Port in a line of `weir filter -t`.
fn port_of(line: &str) -> Option<&str> {
    line.split("10.0.0.2.").nth(1)?.split(':').next()
}

#[test]
fn a_rotated_file_is_read_to_its_end_and_then_the_new_one_of_its_name() {
    let temp = Temp::new();
    let path = temp.file("trace.pcap", &small_pcap(2));
    let mut child = start(&["filter", "", &path, "--follow", "-t"]);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    assert_eq!(
        [1, 2]
            .map(|_| next_line(&mut output))
            .each_ref()
            .map(|line| port_of(line)),
        [Some("1"), Some("2")]
    );
    // Packets that come after the renaming still belong to the old file. The new file has another format and link type.
    std::fs::rename(&path, temp.at("trace.pcap.1")).unwrap();
    let mut old = OpenOptions::new()
        .append(true)
        .open(temp.at("trace.pcap.1"))
        .unwrap();
    old.write_all(&pcap_record(9, &udp(77, 4))).unwrap();
    assert_eq!(port_of(&next_line(&mut output)), Some("77"));
    old.write_all(&pcap_record(9, &udp(78, 4))).unwrap();
    let raw = &udp(79, 4)[14..];
    temp.file("new", &[pcapng_start(101), pcapng_packet(10, raw)].concat());
    std::fs::rename(temp.at("new"), &path).unwrap();
    assert_eq!(port_of(&next_line(&mut output)), Some("78"));
    assert_eq!(port_of(&next_line(&mut output)), Some("79"));
    let mut new = OpenOptions::new().append(true).open(&path).unwrap();
    new.write_all(&pcapng_packet(11, &udp(80, 4)[14..]))
        .unwrap();
    assert_eq!(port_of(&next_line(&mut output)), Some("80"));
    let mut said = next_line(&mut errors);
    if said.ends_with("waiting for another one of its name") {
        // The machine was slow between the two renamings.
        said = next_line(&mut errors);
    }
    assert!(
        said.starts_with(&format!("weir: {path}: ")) && said.contains("is read from its start"),
        "{said}"
    );
    signal(&child, "-INT");
    let summary = next_line(&mut errors);
    assert!(
        summary.starts_with("6 received, 6 matched (100.0 %)"),
        "{summary}"
    );
    assert_eq!(gather(child, &[]).code, Some(0));
}

#[test]
fn a_truncated_file_is_followed_from_its_start() {
    let temp = Temp::new();
    for command in ["filter", "measure"] {
        let path = temp.file("trace.pcap", &small_pcap(7));
        let copy = temp.at("copy.pcap");
        let arguments: &[&str] = match command {
            "filter" => &["filter", "", &path, "--follow", "-w", &copy, "-U"],
            _ => &[
                "measure",
                &path,
                "--follow",
                "--json",
                "--window",
                "1s",
                "--late",
                "1s",
                "--no-merge",
            ],
        };
        let mut child = start(arguments);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        match command {
            "filter" => wait_for_len(&copy, 24 + 7 * (16 + 62)),
            // The first windows are printed once the last packet is read.
            _ => drop((0..5).map(|_| next_line(&mut output)).collect::<Vec<_>>()),
        }
        std::fs::write(&path, b"").unwrap();
        let mut said = next_line(&mut errors);
        if said.contains("cannot be split") {
            said = next_line(&mut errors);
        }
        let words = "the file was truncated; what is in it now is read from its start";
        assert_eq!(said, format!("weir: {path}: {words}"));
        let more = small_pcap(9);
        let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
        writer.write_all(&more[..24]).unwrap();
        let late: Vec<u8> = (0..3)
            .flat_map(|i| pcap_record(1_700_000_100 + i, &udp(9, 20)))
            .collect();
        writer.write_all(&late).unwrap();
        match command {
            "filter" => wait_for_len(&copy, 24 + 10 * (16 + 62)),
            _ => drop((0..3).map(|_| next_line(&mut output)).collect::<Vec<_>>()),
        }
        signal(&child, "-INT");
        let summary = next_line(&mut errors);
        assert!(
            summary.starts_with("10 received, 10 "),
            "{command}: {summary}"
        );
        drop(output);
        assert_eq!(gather(child, &[]).code, Some(0), "{command}");
    }
}

#[test]
fn a_removed_file_is_waited_for() {
    let temp = Temp::new();
    let path = temp.file("trace.pcap", &small_pcap(1));
    let mut child = start(&["filter", "", &path, "--follow", "-t", "-c", "3"]);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    assert_eq!(port_of(&next_line(&mut output)), Some("1"));
    std::fs::remove_file(&path).unwrap();
    let removed = "the file was removed; waiting for another one of its name";
    assert_eq!(next_line(&mut errors), format!("weir: {path}: {removed}"));
    temp.file("new", &small_pcap(2));
    std::fs::rename(temp.at("new"), &path).unwrap();
    assert_eq!(
        [1, 2]
            .map(|_| next_line(&mut output))
            .each_ref()
            .map(|line| port_of(line)),
        [Some("1"), Some("2")]
    );
    let back = "a file of the name is there again, and is read from its start";
    assert_eq!(next_line(&mut errors), format!("weir: {path}: {back}"));
    assert!(next_line(&mut errors).starts_with("3 received, 3 matched"));
    assert_eq!(gather(child, &[]).code, Some(0));
}
