//! Capturing from an interface: every packet sent is passed, filtered or dropped, and no other packet is counted.

mod backends;
mod endings;
mod interfaces;
pub mod net;
mod reload;
mod rights;

use crate::support::*;
use net::Net;
use serde_json::Value;

/// A datagram whose payload begins with `number`. Every other datagram goes to port 53.
fn alternating(number: u32, extra: usize) -> Vec<u8> {
    numbered(
        if number.is_multiple_of(2) { 53 } else { 80 },
        number,
        extra,
    )
}

pub fn frames(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| alternating(number, 18)).collect()
}

/// The frames of a capture file.
fn written(path: &str) -> Vec<Vec<u8>> {
    records(path)
        .into_iter()
        .map(|record| record.data)
        .collect()
}

/// Counts received, passed, filtered, denied and dropped, as printed by `--stats`.
#[track_caller]
pub fn account(done: &Done) -> [u64; 5] {
    let line = done
        .err
        .lines()
        .find(|line| line.contains(" = passed "))
        .unwrap_or_else(|| panic!("{}", done.err));
    let line = line.replace(' ', "");
    let mut numbers = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok());
    std::array::from_fn(|_| numbers.next().expect("five numbers"))
}

fn objects(done: &Done) -> Vec<Value> {
    done.text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn every_packet_is_passed_or_filtered() {
    let Some(net) = Net::new("every_packet_is_passed_or_filtered") else {
        return;
    };
    let temp = Temp::new();
    let sent = frames(20_000);
    let even: Vec<_> = sent.iter().step_by(2).cloned().collect();
    for (source, burst, out) in [("near", 0, "a.pcapng"), ("af_packet:near", 500, "b.pcap")] {
        let out = temp.at(out);
        let capture = net.capture(&["filter", "udp port 53", source, "-w", &out, "--stats"]);
        assert_eq!(net.promiscuity("near"), "1");
        assert_eq!(net.send(&sent, burst), 20_000);
        let done = capture.stop().ok();
        assert_eq!(
            account(&done),
            [20_000, 10_000, 10_000, 0, 0],
            "{}",
            done.err
        );
        assert!(written(&out) == even, "{source}");
        assert!(
            done.err.starts_with("near: AF_PACKET")
                && done.err.contains("both directions, promiscuous"),
            "{}",
            done.err
        );
        assert!(
            !done.err.contains("interrupted") && !done.err.contains("weir:"),
            "{}",
            done.err
        );
        assert_eq!(net.promiscuity("near"), "0");
    }
    let about = weir(["info", &temp.at("a.pcapng")]).ok().text();
    assert!(
        about.contains("\"near\"") && about.contains("nanosecond"),
        "{about}"
    );
}

#[test]
fn lines_come_while_it_runs_and_a_count_ends_it() {
    let Some(net) = Net::new("lines_come_while_it_runs_and_a_count_ends_it") else {
        return;
    };
    let capture = net.capture(&[
        "filter",
        "udp port 53",
        "-i",
        "near",
        "-p",
        "-t",
        "-c",
        "3",
        "-s",
        "46",
        "--stats",
    ]);
    assert_eq!(net.promiscuity("near"), "0");
    net.send(&frames(100), 0);
    let done = capture.done().ok();
    let line = "IP 10.0.0.1.4000 > 10.0.0.2.53:  [|domain]\n";
    assert_eq!(done.text(), line.repeat(3));
    assert!(done.err.contains("not promiscuous"), "{}", done.err);
    // Packets that the kernel rejected until then are included.
    let [received, passed, filtered, denied, dropped] = account(&done);
    assert_eq!(
        (passed, received),
        (3, passed + filtered + denied + dropped),
        "{}",
        done.err
    );
}

#[test]
fn packets_are_cut_where_they_are_written() {
    let Some(net) = Net::new("packets_are_cut_where_they_are_written") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("cut.pcap");
    let sent: Vec<_> = (0..300)
        .map(|number| alternating(number, 4 + number as usize * 4))
        .collect();
    let capture = net.capture(&[
        "filter",
        "",
        "near",
        "-w",
        &out,
        "-s",
        "100",
        "--duration",
        "10s",
    ]);
    assert_eq!(net.send(&sent, 0), 300);
    capture.stop().ok();
    let (link, found) = parse_pcap(&std::fs::read(&out).unwrap());
    assert_eq!((link, found.len()), (1, 300));
    for (record, frame) in found.iter().zip(&sent) {
        assert_eq!(record.data, frame[..frame.len().min(100)]);
        assert_eq!(record.wire_len as usize, frame.len());
    }
}

#[test]
fn a_block_holds_the_largest_frame() {
    let Some(net) = Net::new("a_block_holds_the_largest_frame") else {
        return;
    };
    for end in ["far", "near"] {
        net.inside(end, &["ip", "link", "set", end, "mtu", "9000"])
            .ok();
    }
    let temp = Temp::new();
    let sent: Vec<_> = (0..300).map(|number| alternating(number, 8900)).collect();
    let raised = "weir: near: --block 4k is raised to 128k: a frame may have 65558 bytes\n";
    let cases: [(&[&str], usize, bool); 4] = [
        (&["--block", "4k"], usize::MAX, true),
        (&["--block", "4k", "-s", "3000"], 3000, false),
        (&["--block", "128k"], usize::MAX, false),
        (&["--ring", "512k"], usize::MAX, false),
    ];
    for (settings, snaplen, raises) in cases {
        let out = temp.at("large.pcap");
        let mut capture =
            net.capture(&[&["filter", "", "near", "-w", &out][..], settings].concat());
        // Even the smallest ring has room for so many.
        for (portion, frames) in sent.chunks(30).enumerate() {
            assert_eq!(net.send(frames, 0), 30);
            capture = capture.until_received("near", 30 * (portion as u64 + 1));
        }
        let done = capture.stop().ok();
        let found = written(&out);
        assert_eq!(found.len(), 300, "{settings:?}: {}", done.err);
        assert!(
            found
                .iter()
                .zip(&sent)
                .all(|(found, sent)| *found == sent[..sent.len().min(snaplen)]),
            "{settings:?}"
        );
        assert_eq!(
            (done.err.contains(raised), done.err.contains("cut by")),
            (raises, false),
            "{}",
            done.err
        );
    }
    let done = net.weir(&["filter", "", "near", "--block", "4k", "--ring", "64k"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    let start = "weir: --ring 64k is too small for two blocks of 128k (a frame of near may have ";
    let whole =
        done.err.starts_with(start) && done.err.ends_with(" bytes): use --ring 256k or more\n");
    assert!(whole && done.err.lines().count() == 1, "{}", done.err);
}

#[test]
fn every_design_measures_every_packet() {
    let Some(net) = Net::new("every_design_measures_every_packet") else {
        return;
    };
    let sent = frames(10_000);
    let designs: [&[&str]; 5] = [
        &["--workers", "1"],
        &["--workers", "2"],
        &["--workers", "2", "--design", "async", "--window", "20ms"],
        &["--workers", "2", "--design", "sync"],
        &[
            "--workers",
            "3",
            "--design",
            "rss",
            "--window",
            "20ms",
            "--ring",
            "8M",
        ],
    ];
    for design in designs {
        let arguments = [
            &[
                "measure",
                "near",
                "--json",
                "--filter",
                "udp port 53",
                "--sketch",
                "exact",
            ],
            design,
        ]
        .concat();
        let capture = net.capture(&arguments);
        assert_eq!(net.send(&sent, 1000), 10_000);
        let done = capture.stop().ok();
        let objects = objects(&done);
        let (total, windows) = objects.split_last().expect("a summary");
        assert_eq!(windows.is_empty(), !design.contains(&"--window"));
        // The kernel rejects packets before the first one is captured. No window may begin in 1970 because of them.
        let starts: Vec<&str> = windows
            .iter()
            .map(|window| window["start"].as_str().unwrap())
            .collect();
        assert!(
            starts.is_sorted() && starts.iter().all(|start| *start > "2020"),
            "{design:?}: {starts:?}"
        );
        let sum = |key: &str| {
            windows
                .iter()
                .map(|window| window[key].as_u64().unwrap())
                .sum::<u64>()
        };
        for (key, expected) in [
            ("received", 10_000),
            ("passed", 5000),
            ("filtered", 5000),
            ("bytes", 5000 * 60),
        ] {
            assert_eq!(total[key], expected, "{design:?} {key}");
            assert!(
                windows.is_empty() || sum(key) == expected,
                "{design:?} {key}"
            );
        }
        assert_eq!(
            total["dropped"],
            serde_json::json!({ "kernel": 0 }),
            "{design:?}"
        );
        assert_eq!(total["top"][0]["packets"], 5000, "{design:?}");
        assert_eq!(total["fault"], Value::Null);
    }
}

#[test]
fn what_the_ring_has_no_room_for_is_counted() {
    let Some(net) = Net::new("what_the_ring_has_no_room_for_is_counted") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("some.pcapng");
    let sent = frames(20_000);
    let capture = net.capture(&[
        "filter",
        "udp port 53",
        "near",
        "-w",
        &out,
        "--stats",
        "--ring",
        "512k",
    ]);
    capture.signal("-STOP");
    assert_eq!(net.send(&sent, 0), 20_000);
    capture.signal("-CONT");
    let done = capture.stop().ok();
    let [received, passed, filtered, denied, dropped] = account(&done);
    assert_eq!((received, denied), (20_000, 0));
    assert_eq!(passed + filtered + dropped, 20_000);
    assert!(dropped > 5000 && passed > 0, "{}", done.err);
    assert!(done.err.contains(" dropped: kernel, "), "{}", done.err);
    let found = written(&out);
    assert_eq!(found.len() as u64, passed);
    assert!(found.iter().all(|frame| sent.contains(frame)));
    // `weir info` reads the same number from the file.
    let about = weir(["info", "--json", &out]).ok();
    assert_eq!(objects(&about)[0]["interfaces"][0]["dropped"], dropped);
    let said =
        format!("{out}: {dropped} packets were dropped when it was captured").replace(' ', "");
    assert_eq!(
        objects(&weir(["measure", "--json", &out]).ok())[0]["lost_before"],
        dropped
    );
    for command in [&["filter", "", "--count"][..], &["measure"]] {
        let done = weir([command, &[&out]].concat()).ok();
        assert!(done.err.replace(' ', "").contains(&said), "{}", done.err);
    }

    for design in [
        &["--workers", "1"][..],
        &["--design", "rss", "--workers", "2", "--window", "10s"],
    ] {
        let capture =
            net.capture(&[&["measure", "near", "--json", "--ring", "512k"], design].concat());
        capture.signal("-STOP");
        assert_eq!(net.send(&sent, 0), 20_000);
        capture.signal("-CONT");
        let done = capture.stop().ok();
        for object in [objects(&done).last().unwrap(), &objects(&done)[0]] {
            let term = |key: &str| object[key].as_u64().unwrap();
            let dropped = object["dropped"]["kernel"].as_u64().unwrap();
            assert_eq!(term("received"), 20_000, "{design:?}");
            assert_eq!(
                term("passed") + term("filtered") + dropped,
                20_000,
                "{design:?}"
            );
            assert!(dropped > 5000, "{design:?}");
        }
    }
}

#[test]
fn a_capture_stopped_in_the_middle_keeps_all_it_received() {
    let Some(net) = Net::new("a_capture_stopped_in_the_middle_keeps_all_it_received") else {
        return;
    };
    let temp = Temp::new();
    let sent = frames(60_000);
    for (round, signal) in ["-INT", "-TERM"].into_iter().enumerate() {
        let out = temp.at(&format!("{round}.pcap"));
        let capture = net.capture(&["filter", "", "near", "-w", &out, "--stats", "-U"]);
        let done = std::thread::scope(|scope| {
            let sender = scope.spawn(|| net.send(&sent, 0));
            wait::until("100 kB of packets", || {
                std::fs::metadata(&out).is_ok_and(|about| about.len() >= 100_000)
            });
            capture.signal(signal);
            let done = capture.done().ok();
            assert_eq!(sender.join().unwrap(), 60_000);
            done
        });
        let [received, passed, filtered, denied, dropped] = account(&done);
        assert_eq!([passed, filtered, denied], [received - dropped, 0, 0]);
        assert!((1000..=60_000).contains(&received), "{}", done.err);
        assert!(
            dropped > 0 || written(&out) == sent[..received as usize],
            "{}",
            done.err
        );
        assert_eq!(written(&out).len() as u64, passed);
    }
}

/// A capture stopped while packets wait in its ring has received these packets.
#[test]
fn what_lies_in_the_ring_at_the_end_counts() {
    let Some(net) = Net::new("what_lies_in_the_ring_at_the_end_counts") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("all.pcap");
    let sent = frames(5000);
    let ways: [&[&str]; 4] = [
        &["filter", "", "near", "-w", &out, "--stats"],
        &["measure", "near", "--json", "--workers", "1"],
        &[
            "measure",
            "near",
            "--json",
            "--workers",
            "2",
            "--design",
            "async",
        ],
        &[
            "measure",
            "near",
            "--json",
            "--workers",
            "2",
            "--design",
            "rss",
        ],
    ];
    for way in ways {
        let capture = net.capture(way);
        capture.signal("-STOP");
        assert_eq!(net.send(&sent, 0), 5000);
        capture.signal("-INT");
        capture.signal("-CONT");
        let done = capture.done().ok();
        if way[0] == "filter" {
            assert_eq!(account(&done), [5000, 5000, 0, 0, 0]);
            assert!(written(&out) == sent);
        } else {
            assert_eq!(
                (&objects(&done)[0]["received"], &objects(&done)[0]["passed"]),
                (&5000.into(), &5000.into())
            );
        }
    }
}

#[test]
fn tags_that_the_kernel_took_out_are_back() {
    let Some(net) = Net::new("tags_that_the_kernel_took_out_are_back") else {
        return;
    };
    let temp = Temp::new();
    let tagged = |number: u32| {
        let frame = alternating(number, 30);
        let tags: &[u8] = match number % 4 {
            0 => &[0x81, 0, 0x60, 7],
            1 => &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7],
            2 => &[0x81, 0, 0, 8],
            _ => &[],
        };
        [&frame[..12], tags, &frame[12..]].concat()
    };
    let sent: Vec<_> = (0..400).map(tagged).collect();
    let out = temp.at("all.pcap");
    let capture = net.capture(&["filter", "", "near", "-w", &out]);
    let vlan = net.capture(&["filter", "vlan 7 and udp port 53", "near", "--count"]);
    let plain = net.capture(&["filter", "udp", "near", "--count"]);
    assert_eq!(net.send(&sent, 0), 400);
    capture.stop().ok();
    let found = records(&out);
    assert!(found.iter().map(|record| &record.data).eq(&sent));
    assert!(
        found
            .iter()
            .all(|record| record.wire_len as usize == record.data.len())
    );
    assert_eq!(vlan.stop().ok().count(), 100);
    assert_eq!(plain.stop().ok().count(), 100);
}

#[test]
fn windows_close_and_signals_are_answered_while_nothing_comes() {
    let Some(net) = Net::new("windows_close_and_signals_are_answered_while_nothing_comes") else {
        return;
    };
    let mut capture = net.capture(&[
        "measure",
        "near",
        "--json",
        "--window",
        "200ms",
        "--late",
        "0s",
        "--workers",
        "2",
    ]);
    assert_eq!(net.send(&frames(300), 0), 300);
    let mut passed = 0;
    // No packet comes after the last, but its window ends nevertheless.
    while passed < 300 {
        let window: Value = serde_json::from_str(&capture.line()).unwrap();
        passed += window["passed"].as_u64().unwrap();
    }
    assert_eq!(passed, 300);
    let status = std::fs::read_to_string(format!("/proc/{}/status", capture.id())).unwrap();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapPrm:"))
        .unwrap()
        .trim();
    let capabilities = u64::from_str_radix(capabilities, 16).unwrap();
    for (name, number) in [
        ("CAP_NET_ADMIN", 12),
        ("CAP_NET_RAW", 13),
        ("CAP_SYS_ADMIN", 21),
    ] {
        assert_eq!(capabilities >> number & 1, 0, "{name}");
    }
    capture.signal("-USR1");
    let capture = capture.until("filtered before");
    let filter = net.capture(&["filter", "udp port 53", "near", "--count"]);
    net.send(&frames(100), 0);
    let filter = filter.until_received("near", 100);
    filter.signal("-USR1");
    let filter = filter.until("near: 100 received, 50 delivered, 50 filtered before, 0 dropped\n");
    assert_eq!(filter.stop().ok().count(), 50);
    assert_eq!(objects(&capture.stop().ok()).last().unwrap()["passed"], 400);
}

/// Little memory, which has room for all packets. In immediate mode tcpdump loses no packets when interrupted.
const RIVAL: [&str; 7] = ["--immediate-mode", "-Z", "root", "-s", "256", "-B", "4096"];

/// Wrong expressions give the messages of `tcpdump -i`, not those of `tcpdump -r`. Fields known only to the kernel are
/// refused.
#[test]
fn live_expressions_without_an_answer_are_refused() {
    let Some(net) = Net::new("live_expressions_without_an_answer_are_refused") else {
        return;
    };
    let weir = |arguments: &[&str]| {
        net.inside("near", &[&[env!("CARGO_BIN_EXE_weir")], arguments].concat())
    };
    // Refused before anything is captured. In a short time, a loaded machine may not even have compiled it.
    let live = |expression: &str, options: &[&str]| {
        weir(
            &[
                &["filter", expression, "near", "--count", "--duration", "10s"],
                options,
            ]
            .concat(),
        )
    };
    let unknown: [&[&str]; 4] = [&[], &["--invert"], &["--inner"], &["--no-kernel-filter"]];
    for done in unknown.map(|options| live("ifindex 1", options)) {
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(
            done.err
                .contains("only the kernel knows of a packet, as ifindex does"),
            "{}",
            done.err
        );
    }
    let measure = weir(&[
        "measure",
        "near",
        "--filter",
        "ifindex 1",
        "--duration",
        "10s",
    ]);
    assert_eq!(measure.code, Some(2), "{}", measure.err);
    assert_eq!(
        weir(&[
            "filter",
            "ifindex 1",
            "any",
            "--count",
            "--duration",
            "10ms"
        ])
        .code,
        Some(0)
    );
    let wrong = live("inbound and udp prot", &[]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.err.contains("syntax error") && !wrong.err.contains("savefiles"),
        "{}",
        wrong.err
    );
}

#[test]
fn tcpdump_beside_it_sees_the_same() {
    let Some(net) = Net::new("tcpdump_beside_it_sees_the_same") else {
        return;
    };
    if !have("tcpdump_beside_it_sees_the_same", &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let [ours, theirs] = ["ours.pcap", "theirs.pcap"].map(|name| temp.at(name));
    let sent = frames(3000);
    let capture = net.capture(&["filter", "udp port 53", "near", "-w", &ours]);
    let rival = net.start(
        // Without immediate mode, tcpdump loses the packets in its ring when interrupted.
        &[
            &[
                "tcpdump",
                "--immediate-mode",
                "-Z",
                "root",
                "-n",
                "-i",
                "near",
                "-B",
                "32768",
                // Else each packet takes the room of the largest one.
                "-s",
                "4096",
                "--nano",
            ][..],
            &["-w", &theirs, "udp port 53"],
        ]
        .concat(),
        "listening on",
    );
    assert_eq!(net.send(&sent, 100), 3000);
    capture.stop().ok();
    rival.stop().ok();
    let (_, theirs) = parse_pcap(&std::fs::read(&theirs).unwrap());
    assert_eq!(theirs.len(), 1500);
    // Times are equal too, because both have the kernel's.
    assert!(records(&ours) == theirs);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_begins() {
    let Some(net) = Net::new("what_makes_no_sense_is_refused_before_anything_begins") else {
        return;
    };
    let temp = Temp::new();
    let file = temp.file("small.pcap", &small_pcap(2));
    let refused = |arguments: &[&str], words: &str| {
        let done = net.weir(arguments);
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(
            done.err.contains(words) && done.err.ends_with('\n'),
            "{arguments:?}: {}",
            done.err
        );
        let lines = done
            .err
            .lines()
            .filter(|line| line.starts_with("weir: "))
            .count();
        assert_eq!(lines, 1, "{arguments:?}: {}", done.err);
    };
    refused(
        &["filter", "", "af_packet:nix", "--count"],
        "nix: no such network interface: weir filter -D lists",
    );
    refused(&["measure", "af_packet:nix"], "no such network interface");
    refused(
        &["filter", "", "near", &file],
        "a file: read them in two runs",
    );
    refused(
        &["filter", "", "near", "-"],
        "near is an interface and - a file",
    );
    refused(
        &["filter", "", "near", "nix"],
        "weir: nix: no such file, and no network interface of this name: ",
    );
    refused(
        &["measure", "near", "nix.pcap"],
        "weir: nix.pcap: no such file\n",
    );
    let queue =
        "AF_PACKET has no queues: af_packet:lo is the whole interface, af_xdp:lo:5 a queue of it";
    refused(&["filter", "", "af_packet:lo:5", "--count"], queue);
    refused(&["measure", "af_packet:lo:5"], queue);
    refused(&["filter", "", &file, "-w", "af_packet:lo:5"], queue);
    refused(&["generate", "af_packet:lo:5"], queue);
    refused(
        &["filter", "", "lo:5", "--count"],
        "lo:5: unknown capture method",
    );
    refused(&["filter", "", "near", "af_packet:near"], "named twice");
    refused(&["filter", "", "any", "near"], "stands for all interfaces");
    refused(
        &["measure", "near", "any", "--design", "async"],
        "stands for all interfaces",
    );
    refused(
        &["measure", "near", "lo", "--design", "async"],
        "one distributor",
    );
    refused(
        &["filter", "", "near", "--block", "5000"],
        "not a power of two",
    );
    refused(&["filter", "", "near", "--follow"], "leave --follow out");
    refused(&["filter", "udp prot", "near", "--count"], "syntax error");
    refused(&["measure", "near", "--filter", "udp prot"], "syntax error");
    refused(
        &["filter", "", "near", "--ring", "100k"],
        "use --ring 256k or more",
    );
    if have("rings", &["setpriv"]) {
        // Without the capability to open a ring, the size is still refused first, because it is checked before the kernel
        // is asked.
        let bare = |arguments: &[&str]| {
            let bare = [
                "setpriv",
                "--bounding-set",
                "-net_raw",
                "--inh-caps",
                "-net_raw",
                env!("CARGO_BIN_EXE_weir"),
            ];
            let done = net.inside("near", &[&bare[..], arguments].concat());
            assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
            done.err
        };
        for (arguments, takes) in [
            (
                &["filter", "", "near", "--ring", "90000G", "--count"][..],
                "a ring takes 90000G",
            ),
            (
                &["filter", "", "near", "lo", "--ring", "50000G", "--count"],
                "the rings together take 100000G",
            ),
            (
                &["measure", "near", "--ring", "90000G", "--workers", "4"],
                "a ring takes 90000G",
            ),
            (
                &[
                    "filter",
                    "",
                    "af_xdp:near",
                    "--ring",
                    "90000G",
                    "--ring-pages",
                    "thp",
                    "--count",
                ],
                "a ring takes 90000G",
            ),
        ] {
            let err = bare(arguments);
            let ring = arguments[arguments
                .iter()
                .position(|argument| *argument == "--ring")
                .unwrap()
                + 1];
            assert!(
                err.starts_with(&format!(
                    "weir: --ring {ring}: {takes}, and at most half of the "
                )),
                "{err}"
            );
            let free = err
                .split("half of the ")
                .nth(1)
                .and_then(|rest| rest.split('M').next())
                .unwrap();
            let would_do = err
                .split("--ring ")
                .nth(2)
                .and_then(|rest| rest.split('M').next())
                .unwrap();
            let sources = if takes.starts_with("the rings") { 2 } else { 1 };
            let [free, would_do] = [free, would_do].map(|number| number.parse::<u64>().unwrap());
            assert!((free / 2 / sources).abs_diff(would_do) <= 1, "{err}");
        }
        let forced = bare(&[
            "filter",
            "",
            "near",
            "--ring",
            "90000G",
            "--ring-force",
            "--count",
        ]);
        assert!(forced.contains("CAP_NET_RAW"), "{forced}");
    }
    if have("no capability", &["setpriv"]) {
        let weir = env!("CARGO_BIN_EXE_weir");
        let bare = [
            "setpriv",
            "--bounding-set",
            "-net_raw",
            "--inh-caps",
            "-net_raw",
            weir,
            "filter",
            "",
            "near",
        ];
        let done = net.inside("near", &bare);
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(
            done.err
                .contains("near: capturing needs CAP_NET_RAW: sudo setcap cap_net_raw=ep /"),
            "{}",
            done.err
        );
    }
    // A file of that name has priority.
    let inside = temp.file("near", &small_pcap(3));
    let mut command = net.command(
        "near",
        &[env!("CARGO_BIN_EXE_weir"), "filter", "", "near", "--count"],
    );
    assert_eq!(
        run(command.current_dir(temp.path()), &[]).ok().count(),
        3,
        "{inside}"
    );
}
