//! libpcap's own test programs, with and without the library.
//!
//! Their sources are beside the workspace, since their licence asks for texts that this repository does not have.

mod preloaded;

use preloaded::preloaded;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weir_io::sys::packet_socket::Sender;
use weir_testkit::wait;
use weir_testkit::{Scratch, have, links, net, skipped};

/// Frames that are sent to the programs: libpcap in immediate mode has room for 32.
const FRAMES: u16 = 30;

/// Programs that capture until their interface is gone.
const CAPTURING: [&str; 6] = [
    "capturetest -i near",
    "capturetest -m -i near udp",
    "capturetest -t 10 -i near tcp",
    "selpolltest -q -s -i near",
    "selpolltest -q -p -i near udp port 7",
    "writecaptest -i near -w OUT",
];

/// Program that has no time-out, so that libpcap's block must be full before a packet is delivered.
const WAITING: &str = "nonblocktest -i near";

/// Programs that end by themselves.
const OTHERS: [&str; 10] = [
    "opentest -i near",
    "opentest -p -s 100 -i near",
    "opentest -i no-such-interface",
    "reactivatetest",
    "findalldevstest",
    "can_set_rfmon_test near",
    "filtertest EN10MB tcp port 80 and not vlan",
    "filtertest -O EN10MB ip6 host x",
    "threadsignaltest -n -i near",
    "valgrindtest -i near",
];

/// Compiles all programs; `None` if that is impossible.
fn programs(test: &str, scratch: &Scratch) -> Option<()> {
    let beside = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/reference/libpcap-tests"
    );
    let Ok(entries) = std::fs::read_dir(beside) else {
        skipped(test, "no sources of libpcap's test programs");
        return None;
    };
    let sources: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "c"))
        .collect();
    let compile = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        // One program waits for a minute.
        let text = std::fs::read_to_string(path).unwrap();
        let source = scratch.file(
            &format!("{name}.c"),
            text.replace("sleep_secs(60)", "sleep_secs(1)").as_bytes(),
        );
        let words = [
            "-w",
            "-I",
            beside,
            "-o",
            &scratch.at(name),
            &source,
            "-lpcap",
            "-lpthread",
        ];
        Command::new("cc").args(words).spawn().ok()
    };
    let running: Vec<_> = sources.iter().map(compile).collect();
    for child in running {
        if !child.is_some_and(|mut child| child.wait().unwrap().success()) {
            skipped(test, "no C compiler, or no pcap.h");
            return None;
        }
    }
    Some(())
}

fn start(scratch: &Scratch, line: &str, number: usize, is_ours: bool) -> Child {
    let words: Vec<String> = line
        .split(' ')
        .map(|word| word.replace("OUT", &scratch.at(&format!("out{number}{is_ours}"))))
        .collect();
    let program = scratch.at(&words[0]);
    let mut command = if is_ours {
        preloaded(&program)
    } else {
        Command::new(&program)
    };
    let child = command
        .args(&words[1..])
        .env("WEIR_RING", "4M")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    child.unwrap()
}

/// Exit code and lines of a program; numbers of packets are added up, since portions differ.
fn ended(child: Child) -> (Option<i32>, Vec<String>) {
    let done = child.wait_with_output().unwrap();
    let text =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let (mut packets, mut counts) = (BTreeMap::<String, u64>::new(), String::new());
    let mut lines = Vec::new();
    for line in text.lines() {
        let number = line
            .split(' ')
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        match number {
            Some(number) if line.contains("packets seen") => {
                *packets.entry("seen".into()).or_default() += number
            }
            Some(_) if line.contains("ps_recv") => counts = line.to_owned(),
            _ => lines.push(line.to_owned()),
        }
    }
    lines.push(format!("{packets:?} {counts}"));
    (done.status.code(), lines)
}

#[test]
fn test_programs_of_libpcap_end_as_without() {
    let test = "test_programs_of_libpcap_end_as_without";
    let scratch = Scratch::new();
    if !have(test, &["tcpdump"]) || programs(test, &scratch).is_none() || !net::cable(test, "") {
        return;
    }
    let both = |number: usize, line: &str| {
        [false, true].map(|is_ours| start(&scratch, line, number, is_ours))
    };
    // One program gives the kernel what it has not set, to see whether valgrind tells.
    let is_checked = std::env::var_os("WEIR_TEST_UNDER").is_some();
    let wanted = |line: &&&str| !(is_checked && line.starts_with("valgrindtest"));
    let others: Vec<_> = OTHERS
        .iter()
        .filter(wanted)
        .enumerate()
        .map(|(number, line)| both(number, line))
        .collect();
    for (line, pair) in OTHERS.iter().filter(wanted).zip(others) {
        let [plain, ours] = pair.map(ended);
        assert_eq!(ours, plain, "{line}");
    }
    // Each has a socket that receives, and with the library another.
    let sockets = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
        let is_bound = |line: &&str| line.split_whitespace().nth(5) == Some("1");
        table.lines().filter(is_bound).count()
    };
    let mut sender = Sender::open("far", false).unwrap();
    let mut send = |count: u16, len: usize| {
        for index in 0..count {
            let ip = links::ip4(17, &[], &links::udp(1000, 7 + index % 2, &vec![7; len]));
            let frame = [&[2; 12][..], &[8, 0], &ip].concat();
            sender.send(&[&frame]).unwrap();
        }
    };
    let waiting = both(0, WAITING);
    wait::until("the program captures", || sockets() == 3);
    send(800, 1400);
    let [plain, ours] = waiting.map(ended);
    assert_eq!(ours, plain, "{WAITING}");
    let running: Vec<_> = CAPTURING
        .iter()
        .enumerate()
        .map(|(number, line)| both(number, line))
        .collect();
    wait::until("all programs capture", || sockets() >= CAPTURING.len() * 3);
    send(FRAMES, 60);
    // As long as packets wait for others.
    wait::throughout(Duration::from_millis(1300), "the interface", || true);
    net::ip("link del near");
    for (line, pair) in CAPTURING.iter().zip(running) {
        let [plain, ours] = pair.map(ended);
        assert_eq!(ours, plain, "{line}");
    }
    // Sockets note their own times.
    let written = |is_ours: bool| {
        let file = scratch.at(&format!("out5{is_ours}"));
        let words = ["-nn", "-t", "-xx", "-r", &file];
        Command::new("tcpdump").args(words).output().unwrap().stdout
    };
    assert!(written(true).len() > 1000);
    assert!(written(true) == written(false));
}
