//! Captures by weir's ring in programs of libpcap: what is sent, is delivered or counted as dropped.

mod preloaded;
#[path = "live/scenarios.rs"]
mod scenarios;

use preloaded::preloaded;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use weir_io::sys::packet_socket::Sender;
use weir_testkit::{Scratch, have, links, net, skipped, wait};

/// Compiles the program of `live.c`; `None` if there is no compiler or no libpcap to compile with.
fn program(test: &str, scratch: &Scratch) -> Option<String> {
    compiled(test, scratch, "live.c")
}

/// Compiles a program; `None` if there is no compiler or no libpcap to compile with.
fn compiled(test: &str, scratch: &Scratch, source: &str) -> Option<String> {
    let program = scratch.at("program");
    let source = format!("{}/tests/{source}", env!("CARGO_MANIFEST_DIR"));
    let words = ["-O1", "-o", &program, &source, "-lpcap", "-lpthread"];
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

/// Variables of the library.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// The usual ones.
const RING: Variables<'_> = &[("WEIR_RING", "4M")];

/// The program, once it captures: with the library and these variables, or without.
fn started(
    program: &str,
    mode: &str,
    variables: Option<Variables<'_>>,
) -> (Child, BufReader<ChildStdout>) {
    let mut command = match variables {
        Some(_) => preloaded(program),
        None => Command::new(program),
    };
    let child = command
        .args([mode, "near"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .envs(variables.unwrap_or_default().iter().copied())
        .spawn();
    let mut child = child.unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

/// What the program prints, in each of the modes and with or without the library, after `frames` were sent to all of them at once.
fn seen(program: &str, ways: &[(&str, Option<Variables<'_>>)], frames: &[Vec<u8>]) -> Vec<String> {
    let mut running: Vec<_> = ways
        .iter()
        .map(|&(mode, variables)| started(program, mode, variables))
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

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// The last line of counts in a file.
fn last_counts(file: &str) -> String {
    let lines = std::fs::read_to_string(file).unwrap();
    lines.lines().last().unwrap().to_owned()
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
        .flat_map(|mode| [(*mode, None), (*mode, Some(RING))])
        .collect();
    for pair in seen(&program, &ways, &frames).chunks(2) {
        assert_eq!(pair[1], pair[0]);
    }
    // libpcap itself judges the first blocks after a filter was set, and knows no direction there.
    let text = seen(&program, &[("inbound", Some(RING))], &frames).remove(0);
    assert!(text.contains(" 100 packets "), "{text}");
}

#[test]
fn a_reader_that_stops_loses_what_is_counted() {
    let test = "a_reader_that_stops_loses_what_is_counted";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let frames: Vec<_> = (0..10_000).map(|_| frame(7, 1400)).collect();
    let text = seen(&program, &[("all", Some(RING))], &frames).remove(0);
    let [0, delivered, _, received, dropped] = numbers(&text)[..] else {
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
    let ended = |mode, is_slow, variables| {
        let (mut child, mut output) = started(&program, mode, variables);
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
        assert_eq!(ended(mode, is_slow, Some(RING)), plain);
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
    let mut child = preloaded("tcpdump")
        .args(words)
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

#[test]
fn programs_of_a_group_share_what_is_sent() {
    let test = "programs_of_a_group_share_what_is_sent";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let stats = scratch.at("stats.json");
    let variables = [("WEIR_FANOUT", "7"), ("WEIR_STATS", stats.as_str())];
    let frames: Vec<_> = (0..600).map(|index| frame(index, 100)).collect();
    let ways = [("all", Some(&variables[..])); 3];
    let mut sums = [0; 3];
    for text in seen(&program, &ways, &frames) {
        let [0, delivered, _, received, dropped] = numbers(&text)[..] else {
            panic!("{text}");
        };
        assert!(delivered > 50, "{text}");
        for (sum, count) in sums.iter_mut().zip([delivered, received, dropped]) {
            *sum += count;
        }
    }
    assert_eq!(sums, [600, 600, 0]);
    let lines = std::fs::read_to_string(&stats).unwrap();
    let delivered = lines
        .lines()
        .filter(|line| line.contains("\"end\":true"))
        .map(|line| {
            let counts = line.split("\"delivered\":").nth(1).unwrap();
            counts.split(',').next().unwrap().parse::<u64>().unwrap()
        });
    assert_eq!(delivered.sum::<u64>(), 600, "{lines}");
}

/// AF_XDP takes the packets, so that one program at a time reads them.
#[test]
fn ways_to_read_by_af_xdp_see_what_libpcap_shows() {
    let test = "ways_to_read_by_af_xdp_see_what_libpcap_shows";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let stats = scratch.at("stats.json");
    let variables = [
        ("WEIR_BACKEND", "af_xdp"),
        ("WEIR_RING", "8M"),
        ("WEIR_STATS", stats.as_str()),
    ];
    let mut frames: Vec<_> = (0..300)
        .map(|index| frame(7 + index % 3, usize::from(index)))
        .collect();
    // The kernel takes the tag out before libpcap's filter runs, and AF_XDP leaves it in.
    let tagged = frame(7, 60);
    frames.push([&tagged[..12], &[0x81, 0, 0, 5], &tagged[12..]].concat());
    let modes = ["all", "early", "inbound", "out", "break", "select", "fork"];
    let plain = seen(&program, &modes.map(|mode| (mode, None)), &frames);
    for (mode, plain) in modes.iter().zip(plain) {
        let ours = seen(&program, &[(mode, Some(&variables[..]))], &frames).remove(0);
        if *mode == "out" {
            // AF_XDP's counts are of received packets.
            assert!(ours.contains(" 0 packets "), "{ours}");
        } else if *mode == "inbound" {
            assert!(ours.contains(" 101 packets "), "{ours}");
        } else {
            assert_eq!(ours, plain);
        }
        let counts = last_counts(&stats);
        assert!(
            counts.contains("\"backend\":\"af_xdp\",\"received\":301,"),
            "{counts}"
        );
    }
}

#[test]
fn an_interface_of_this_host_is_not_taken_away() {
    let test = "an_interface_of_this_host_is_not_taken_away";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    net::ip("addr add 192.0.2.1/24 dev near");
    net::ip("route add default via 192.0.2.2");
    let stats = scratch.at("stats.json");
    let guarded = [
        ("WEIR_BACKEND", "af_xdp"),
        ("WEIR_PAGES", "virtual"),
        ("WEIR_STATS", stats.as_str()),
    ];
    let taken = [&guarded[..], &[("WEIR_YES_TAKE", "far,near")]].concat();
    let wrong = [
        ("WEIR_BACKEND", "pf_ring"),
        ("WEIR_RING", "3T"),
        ("WEIR_PAGES", "large"),
        ("WEIR_FANOUT", "0"),
        ("WEIR_STATS", stats.as_str()),
        ("WEIR_RECORD", "/dev/null/record"),
    ];
    let expected = [
        (
            &guarded[..],
            "af_packet",
            &[
                "near carries the default route",
                "AF_PACKET captures",
                "pages of AF_PACKET's ring",
            ][..],
        ),
        (&taken, "af_xdp", &["AF_XDP, queue 0 of near"]),
        (
            &wrong,
            "af_packet",
            &[
                "WEIR_BACKEND=pf_ring is not af_packet or af_xdp: af_packet is taken",
                "WEIR_RING=3T is not a size from 1M to 1G",
                "WEIR_PAGES=large is not one of auto, hugetlb",
                "WEIR_FANOUT=0 is not the number of a group",
                "WEIR_RECORD=/dev/null/record: ",
            ],
        ),
    ];
    for (variables, backend, lines) in expected {
        let (mut child, mut output) = started(&program, "all", Some(variables));
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let (mut text, mut told) = (String::new(), String::new());
        output.read_to_string(&mut text).unwrap();
        let mut errors = child.stderr.take().unwrap();
        errors.read_to_string(&mut told).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        let counts = last_counts(&stats);
        assert!(
            counts.contains(&format!("\"backend\":\"{backend}\"")),
            "{counts}"
        );
        for line in lines {
            assert_eq!(told.matches(line).count(), 1, "{line}: {told}");
        }
    }
}

/// Huge pages in the kernel's pool for a test.
struct Pool(String);

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl Pool {
    /// Adds pages to the pool; without the right to do so, or without memory, the pool stays as it is.
    fn with(pages: u64) -> Self {
        let before = std::fs::read_to_string(POOL).unwrap_or_default();
        let count = before.trim().parse::<u64>().unwrap_or(0);
        let _ = std::fs::write(POOL, (count + pages).to_string());
        Self(before)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = std::fs::write(POOL, &self.0);
    }
}

/// Lines of smaps about a mapping of 8 MiB without a file; an empty text if there is none.
fn mapping(process: u32) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let (mut found, mut is_inside) = (String::new(), false);
    for line in maps.lines() {
        if line.contains('-') && !line.contains("kB") {
            is_inside = line.ends_with("/dev/zero (deleted)") || line.contains("/anon_hugepage");
            if found.contains("Size:               8192 kB") {
                break;
            }
            found.clear();
        }
        if is_inside {
            found += &format!("{line}\n");
        }
    }
    found
}

/// The kernel is asked which pages the packets of AF_XDP lie in.
#[test]
fn pages_are_those_that_were_asked_for() {
    let test = "pages_are_those_that_were_asked_for";
    let scratch = Scratch::new();
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let _pool = Pool::with(4);
    let field = |text: &str, name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name));
        numbers(line.unwrap_or_default()).pop().unwrap_or(0)
    };
    for (policy, page, huge) in [("virtual", 4, 0), ("hugetlb", 2048, 8192), ("thp", 4, 8192)] {
        let variables = [
            ("WEIR_BACKEND", "af_xdp"),
            ("WEIR_RING", "8M"),
            ("WEIR_PAGES", policy),
        ];
        let (mut child, mut output) = started(&program, "all", Some(&variables));
        let mapping = mapping(child.id());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        output.read_to_string(&mut String::new()).unwrap();
        let done = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        if policy != "virtual" && told.contains(&format!("packet memory: {policy}: ")) {
            skipped(test, told.trim());
            continue;
        }
        assert_eq!(
            field(&mapping, "KernelPageSize:"),
            page,
            "{policy}: {mapping}{told}"
        );
        let huge_fields = [
            "AnonHugePages:",
            "ShmemPmdMapped:",
            "Shared_Hugetlb:",
            "Private_Hugetlb:",
        ];
        let sum: u64 = huge_fields.iter().map(|name| field(&mapping, name)).sum();
        assert_eq!(sum, huge, "{policy}: {mapping}");
    }
}

/// tcpdump reads the segments, which are pcapng files, and the counts agree.
#[test]
fn a_record_has_what_the_program_has_read() {
    let test = "a_record_has_what_the_program_has_read";
    let scratch = Scratch::new();
    if !have(test, &["tcpdump", "sh"]) {
        return;
    }
    let Some(program) = program(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let frames: Vec<_> = (0..300)
        .map(|index| frame(7 + index % 3, usize::from(index)))
        .collect();
    for (number, (mode, packets, backend)) in [
        ("early", 100, "af_packet"),
        ("fork", 300, "af_packet"),
        ("fork", 300, "af_xdp"),
    ]
    .into_iter()
    .enumerate()
    {
        let (record, stats) = (
            scratch.at(&format!("record{number}")),
            scratch.at("stats.json"),
        );
        let variables = [
            ("WEIR_RECORD", record.as_str()),
            ("WEIR_STATS", stats.as_str()),
            ("WEIR_BACKEND", backend),
        ];
        let text = seen(&program, &[(mode, Some(&variables[..]))], &frames).remove(0);
        assert!(text.contains(&format!(" {packets} packets ")), "{text}");
        let script = format!("tcpdump --count -r {record}/*.pcapng 2>/dev/null");
        let read = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&read.stdout),
            format!("{packets} packets\n")
        );
        let counts = last_counts(&stats);
        let kept = format!("\"recorded\":{packets},\"unrecorded\":0,\"end\":true}}");
        assert!(counts.ends_with(&kept), "{counts}");
    }
}

/// A program captures `packets` packets of 6000, of which a filter passes half, and ends by itself. Returns how many packets of its file
/// pass each expression; `None` if a program lacks.
fn captured(
    test: &str,
    words: &[&str],
    packets: &str,
    expressions: &[&str],
) -> Option<Vec<String>> {
    if !have(test, &[words[0], "tcpdump"]) || !net::cable(test, "") {
        return None;
    }
    let scratch = Scratch::new();
    let file = scratch.at("out");
    let mut child = preloaded(words[0])
        .args(["-i", "near", "-c", packets, "-w", &file])
        .args(&words[1..])
        .env("WEIR_RING", "8M")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // libpcap's socket and ours.
    let is_bound = |line: &&str| line.split_whitespace().nth(5) == Some("1");
    wait::until("the program captures", || {
        let table = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
        table.lines().filter(is_bound).count() == 2
    });
    let frames: Vec<_> = (0..6000).map(|index| frame(7 + index % 2, 100)).collect();
    send(&frames);
    assert!(child.wait().unwrap().success(), "{words:?}");
    let count = |expression: &&str| {
        let done = Command::new("tcpdump")
            .args(["--count", "-r", &file, expression])
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    };
    Some(expressions.iter().map(count).collect())
}

// The four complaints about another preloaded libpcap are tests here.

#[test]
fn a_filter_of_dumpcap_is_applied() {
    let words = ["dumpcap", "-q", "-f", "udp port 7"];
    let test = "a_filter_of_dumpcap_is_applied";
    if let Some(counts) = captured(test, &words, "3000", &["", "udp port 7"]) {
        assert_eq!(counts, ["3000 packets", "3000 packets"]);
    }
}

#[test]
fn a_program_goes_on_after_it_has_set_a_filter() {
    let words = ["tcpdump", "-Z", "root", "udp port 8"];
    let test = "a_program_goes_on_after_it_has_set_a_filter";
    if let Some(counts) = captured(test, &words, "3000", &["", "udp port 8"]) {
        assert_eq!(counts, ["3000 packets", "3000 packets"]);
    }
}

#[test]
fn tshark_loses_no_packet() {
    let test = "tshark_loses_no_packet";
    if let Some(counts) = captured(
        test,
        &["tshark", "-q"],
        "6000",
        &["udp port 7", "udp port 8"],
    ) {
        assert_eq!(counts, ["3000 packets", "3000 packets"]);
    }
}

#[test]
fn a_program_without_a_filter_receives_packets() {
    let test = "a_program_without_a_filter_receives_packets";
    if let Some(counts) = captured(test, &["dumpcap", "-q"], "6000", &["udp"]) {
        assert_eq!(counts, ["6000 packets"]);
    }
}
