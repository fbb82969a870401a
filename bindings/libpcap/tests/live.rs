//! Captures by weir's ring in programs of libpcap: what is sent, is delivered or counted as dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use weir_io::sys::packet_socket::Sender;
use weir_testkit::{Scratch, have, links, net, skipped};

fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    deps.with_file_name("libweir_pcap.so")
}

/// Compiles the program of `live.c`; `None` if there is no compiler or no libpcap to compile with.
fn program(test: &str, scratch: &Scratch) -> Option<String> {
    let program = scratch.at("live");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live.c");
    let words = ["-O1", "-o", &program, source, "-lpcap", "-lpthread"];
    let done = Command::new("cc").args(words).output();
    if done.is_ok_and(|done| done.status.success()) {
        return Some(program);
    }
    skipped(test, "no C compiler, or no pcap.h");
    None
}

/// A frame to a port, of UDP over Ethernet.
fn frame(port: u16, len: usize) -> Vec<u8> {
    let ip = links::ip4(17, &[], &links::udp(1000, port, &vec![7; len]));
    [&[2; 12][..], &[8, 0], &ip].concat()
}

fn send(frames: &[Vec<u8>]) {
    let mut sender = Sender::open("far", false).unwrap();
    for frames in frames.chunks(32) {
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        sender.send(&frames).unwrap();
    }
}

/// The program, once it captures.
fn started(program: &str, mode: &str, library: Option<PathBuf>) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(program);
    command
        .args([mode, "near"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("WEIR_RING", "4M");
    }
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

/// What the program prints, in each of the modes and with or without the library, after `frames` were sent to all of them at once.
fn seen(program: &str, ways: &[(&str, bool)], frames: &[Vec<u8>]) -> Vec<String> {
    let mut running: Vec<_> = ways
        .iter()
        .map(|&(mode, is_ours)| started(program, mode, is_ours.then(library)))
        .collect();
    send(frames);
    for (child, _) in &mut running {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
    let ended = running.into_iter().map(|(mut child, mut output)| {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        text
    });
    ended.collect()
}

#[test]
fn ways_to_read_see_what_libpcap_shows() {
    let test = "ways_to_read_see_what_libpcap_shows";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let frames: Vec<_> = (0..300)
        .map(|index| frame(7 + index % 3, usize::from(index)))
        .collect();
    let modes = [
        "all", "early", "late", "in", "out", "break", "next", "select", "fork",
    ];
    let ways: Vec<_> = modes
        .iter()
        .flat_map(|mode| [(*mode, false), (*mode, true)])
        .collect();
    for pair in seen(&program, &ways, &frames).chunks(2) {
        assert_eq!(pair[1], pair[0]);
    }
}

#[test]
fn a_reader_that_stops_loses_what_is_counted() {
    let test = "a_reader_that_stops_loses_what_is_counted";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let frames: Vec<_> = (0..10_000).map(|_| frame(7, 1400)).collect();
    let text = seen(&program, &[("all", true)], &frames).remove(0);
    let numbers: Vec<u64> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [0, delivered, _, received, dropped] = numbers[..] else {
        panic!("{text}");
    };
    assert_eq!((received, delivered + dropped), (10_000, 10_000), "{text}");
    assert!(dropped > 1000, "{text}");
}

#[test]
fn an_interface_that_vanishes_ends_as_without() {
    let test = "an_interface_that_vanishes_ends_as_without";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    // Between its end and its removal an interface is down for a while, in which a reader may look.
    let ended = |mode, is_slow, library| {
        let (mut child, mut output) = started(&program, mode, library);
        net::ip("link set near down");
        if is_slow {
            // Time for the reader to look at the interface while it is down.
            for _ in 0..20 {
                net::ip("link set near down");
            }
        } else {
            net::ip("link set near up");
        }
        net::ip("link del near");
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        net::ip("link add far type veth peer name near");
        net::ip("link set near up");
        text
    };
    for (mode, is_slow) in [
        ("down", false),
        ("down", true),
        ("poll", false),
        ("poll", true),
    ] {
        let plain = ended(mode, is_slow, None);
        assert_eq!(ended(mode, is_slow, Some(library())), plain);
    }
}

#[test]
fn tcpdump_writes_all_that_its_filter_passes() {
    let test = "tcpdump_writes_all_that_its_filter_passes";
    if !have(test, &["tcpdump"]) || !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.at("out.pcap");
    let words = [
        "-Z",
        "root",
        "-i",
        "near",
        "-w",
        &file,
        "-c",
        "1000",
        "udp port 7",
    ];
    let mut child = Command::new("tcpdump")
        .args(words)
        .env("LD_PRELOAD", library())
        .env("WEIR_RING", "8M")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("listening on") {
        assert!(output.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let frames: Vec<_> = (0..2000).map(|index| frame(7 + index % 2, 100)).collect();
    send(&frames);
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        text.contains(
            "1000 packets captured\n1000 packets received by filter\n0 packets dropped by kernel"
        ),
        "{text}"
    );
    assert_eq!(
        std::fs::metadata(&file).unwrap().len(),
        24 + 1000 * (16 + frames[0].len() as u64)
    );
}
