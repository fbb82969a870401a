//! All backends, compared with the sender's own count: each packet sent was received.

use super::net::Net;
use super::{account, frames, objects};
use crate::support::*;
use serde_json::Value;

/// Sources, and the start of the line that each prints once it captures.
const WAYS: [(&[&str], &str); 3] = [
    (&["near"], "near: AF_PACKET (it takes nothing away"),
    (
        &["af_xdp:near", "--xdp-mode", "native"],
        "near: AF_XDP, queue 0 of near, native",
    ),
    (
        &["af_xdp:near:0", "--xdp-mode", "generic"],
        "near: AF_XDP, queue 0 of near, generic",
    ),
];

fn has_xdp(net: &Net) -> bool {
    net.inside("near", &["ip", "-d", "link", "show", "near"])
        .text()
        .contains("xdp")
}

fn start(net: &Net, command: &[&str], way: &[&str], words: &str) -> super::net::Capture {
    let weir = [env!("CARGO_BIN_EXE_weir"), command[0]];
    // The expression of `filter` comes before the source.
    let (before, after) = command[1..].split_at(usize::from(command[0] == "filter"));
    net.start(&[&weir, before, way, after].concat(), words)
}

#[test]
fn every_way_and_design_measures_every_packet() {
    let Some(net) = Net::new("every_way_and_design_measures_every_packet") else {
        return;
    };
    let sent = frames(6000);
    let designs: [&[&str]; 4] = [
        &[],
        &["--window", "50ms", "--late", "1s", "--sketch", "exact"],
        &["--design", "async", "--workers", "2"],
        &[
            "--design",
            "sync",
            "--workers",
            "2",
            "--distribute",
            "address",
        ],
    ];
    for (way, words) in WAYS {
        for design in designs {
            let command = [&["measure", "--json", "--filter", "udp port 53"], design].concat();
            let capture = start(&net, &command, way, words);
            assert_eq!(net.send(&sent, 500), 6000);
            let done = capture.stop().ok();
            let objects = objects(&done);
            let (total, windows) = objects.split_last().expect("a summary");
            for (key, expected) in [("received", 6000), ("passed", 3000), ("filtered", 3000)] {
                assert_eq!(total[key], expected, "{way:?} {design:?} {key}");
                let sum = windows
                    .iter()
                    .map(|window| window[key].as_u64().unwrap())
                    .sum::<u64>();
                assert!(
                    windows.is_empty() || sum == expected,
                    "{way:?} {design:?} {key}: {sum}"
                );
            }
            assert_eq!(
                (&total["dropped"], &total["fault"]),
                (&serde_json::json!({ "kernel": 0 }), &Value::Null)
            );
        }
        assert!(!has_xdp(&net), "{way:?} left a program behind");
    }
}

/// The sender's frames are the oracle of the copies; its count is the oracle of the windows.
#[test]
fn every_way_measures_and_writes_in_one_pass() {
    let Some(net) = Net::new("every_way_measures_and_writes_in_one_pass") else {
        return;
    };
    let temp = Temp::new();
    let sent = frames(6000);
    let even: Vec<_> = sent.iter().step_by(2).cloned().collect();
    let (all, some) = (temp.at("all.pcapng"), temp.at("some.pcap"));
    let split = format!("{some}=less 60");
    let designs: [&[&str]; 3] = [
        &["--workers", "1"],
        &["--workers", "2", "--window", "50ms", "--late", "1s"],
        &["--workers", "2", "--design", "async"],
    ];
    for (way, words) in WAYS {
        for design in designs {
            let outputs = ["-w", &all, "--split", &split];
            let command = [
                &["measure", "--json", "--filter", "udp port 53"],
                design,
                &outputs,
            ]
            .concat();
            let capture = start(&net, &command, way, words);
            assert_eq!(net.send(&sent, 500), 6000);
            let done = capture.stop().ok();
            let objects = objects(&done);
            let (total, windows) = objects.split_last().expect("a summary");
            for (key, expected) in [("received", 6000), ("passed", 3000), ("filtered", 3000)] {
                assert_eq!(total[key], expected, "{way:?} {design:?} {key}");
                let sum = windows
                    .iter()
                    .map(|window| window[key].as_u64().unwrap())
                    .sum::<u64>();
                assert!(
                    windows.is_empty() || sum == expected,
                    "{way:?} {design:?} {key}: {sum}"
                );
            }
            assert!(super::written(&all) == even, "{way:?} {design:?}");
            let short: Vec<_> = even
                .iter()
                .filter(|frame| frame.len() <= 60)
                .cloned()
                .collect();
            assert_eq!(
                (&total["splits"][&some], &total["fault"]),
                (&Value::from(short.len()), &Value::Null)
            );
            assert!(super::written(&some) == short, "{way:?} {design:?}");
        }
    }
}

/// A worker measures each interface, and the copies have the packets of both in the order of time.
#[test]
fn several_interfaces_are_measured_and_written_in_one_pass() {
    let Some(net) = Net::new("several_interfaces_are_measured_and_written_in_one_pass") else {
        return;
    };
    net.second_cable();
    net.two_queues();
    let temp = Temp::new();
    let (all, some) = (temp.at("all.pcapng"), temp.at("some.pcap"));
    let split = format!("{some}=udp[8:4] & 3 = 2");
    let sent = frames(8000);
    let designs: [&[&str]; 3] = [
        &["--window", "50ms"],
        &["--workers", "1"],
        &["--workers", "4", "--window", "20ms"],
    ];
    for sources in [["near", "two"], ["two", "near"], ["af_xdp:near", "two"]] {
        for design in designs {
            let outputs = ["-w", &all, "--split", &split];
            let start = [
                env!("CARGO_BIN_EXE_weir"),
                "measure",
                "--json",
                "--filter",
                "udp port 53",
                "--xdp-mode",
                "generic",
            ];
            let capture = net.start(
                &[&start[..], &sources, design, &outputs].concat(),
                "two: AF_PACKET",
            );
            let capture = if sources[1] == "near" {
                capture.until("near: AF_PACKET")
            } else {
                capture
            };
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(net.send_on("near", "one", &sent[..4000], 200), 4000));
                assert_eq!(net.send(&sent[4000..], 200), 4000);
            });
            let done = capture.stop().ok();
            let objects = objects(&done);
            let (total, windows) = objects.split_last().expect("a summary");
            for (key, expected) in [("received", 8000), ("passed", 4000), ("filtered", 4000)] {
                assert_eq!(
                    total[key], expected,
                    "{sources:?} {design:?} {key}: {}",
                    done.err
                );
                let sum = windows
                    .iter()
                    .map(|window| window[key].as_u64().unwrap())
                    .sum::<u64>();
                assert!(
                    windows.is_empty() || sum == expected,
                    "{sources:?} {design:?} {key}: {sum}"
                );
            }
            assert_eq!(total["fault"], Value::Null, "{sources:?} {design:?}");
            for (path, keeps) in [(&all, 2), (&some, 4)] {
                let found = records(path);
                assert!(
                    found.windows(2).all(|two| two[0].time_ns <= two[1].time_ns),
                    "{sources:?} {design:?} {path}"
                );
                let mut found: Vec<&[u8]> = found.iter().map(|record| &record.data[..]).collect();
                let mut expected: Vec<&[u8]> = sent
                    .iter()
                    .skip(keeps - 2)
                    .step_by(keeps)
                    .map(|frame| &frame[..])
                    .collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert!(
                    found == expected,
                    "{sources:?} {design:?} {path}: {} of {}",
                    found.len(),
                    expected.len()
                );
            }
            assert_eq!(total["splits"][&some], 2000);
        }
    }
}

#[test]
fn every_way_writes_every_packet_and_counts_what_found_no_room() {
    let Some(net) = Net::new("every_way_writes_every_packet_and_counts_what_found_no_room") else {
        return;
    };
    let temp = Temp::new();
    let sent = frames(20_000);
    for (way, words) in WAYS {
        let out = temp.at("all.pcapng");
        let capture = start(&net, &["filter", "", "-w", &out, "--stats"], way, words);
        assert_eq!(net.send(&sent[..5000], 1000), 5000);
        let done = capture.stop().ok();
        assert_eq!(account(&done), [5000, 5000, 0, 0, 0], "{way:?}");
        assert!(super::written(&out) == sent[..5000], "{way:?}");
        // Interface Statistics Block: received, dropped, delivered.
        let file = std::fs::read(&out).unwrap();
        let option = |code: u16, value: u64| {
            [
                &code.to_le_bytes()[..],
                &8u16.to_le_bytes(),
                &value.to_le_bytes(),
            ]
            .concat()
        };
        let counts = [option(4, 5000), option(7, 0), option(8, 5000)].concat();
        assert!(
            file.windows(counts.len()).any(|window| window == counts),
            "{way:?}"
        );

        let capture = start(
            &net,
            &[
                "filter",
                "udp port 53",
                "--count",
                "--stats",
                "--ring",
                "256k",
            ],
            way,
            words,
        );
        capture.signal("-STOP");
        assert_eq!(net.send(&sent, 0), 20_000);
        capture.signal("-CONT");
        let done = capture.stop().ok();
        let [received, passed, filtered, denied, dropped] = account(&done);
        assert_eq!(
            (received, passed + filtered + denied + dropped),
            (20_000, 20_000),
            "{way:?}"
        );
        assert!(dropped > 1000 && passed > 0, "{way:?}: {}", done.err);
        assert_eq!(done.count(), passed);
    }
}

/// The slots of a UMEM are filled in any order, so that offsets of records tell nothing about their order.
#[test]
fn every_packet_of_several_queues_goes_to_its_split() {
    let Some(net) = Net::new("every_packet_of_several_queues_goes_to_its_split") else {
        return;
    };
    net.two_queues();
    let temp = Temp::new();
    let sent: Vec<Vec<u8>> = (0..30_000u32)
        .map(|number| {
            let mut frame = udp(53, 18);
            let port = 1024 + (number % 997) as u16;
            frame[34..36].copy_from_slice(&port.to_be_bytes());
            frame[42..46].copy_from_slice(&number.to_be_bytes());
            frame[23] = if number.is_multiple_of(3) { 6 } else { 17 };
            frame
        })
        .collect();
    let of = |proto: u8| -> Vec<Vec<u8>> {
        let mut frames: Vec<_> = sent
            .iter()
            .filter(|frame| frame[23] == proto)
            .cloned()
            .collect();
        frames.sort();
        frames
    };
    let [u, t] = ["u.pcapng", "t.pcapng"].map(|name| temp.at(name));
    let splits = [format!("{u}=udp"), format!("{t}=tcp")];
    for (source, limit, words) in [
        ("af_xdp:near", 30_000, "AF_XDP, queue 0 of near"),
        ("near", 30_000, "AF_PACKET"),
        ("af_xdp:near:0", 9_000, "AF_XDP, queue 0 of near"),
    ] {
        let count = limit.to_string();
        let mut command = vec![env!("CARGO_BIN_EXE_weir"), "filter", "", source, "--stats"];
        splits
            .iter()
            .for_each(|split| command.extend(["--split", split]));
        if limit < 30_000 {
            command.extend(["-c", &count]);
        }
        let capture = net.start(&command, words);
        assert_eq!(net.send(&sent, 500), 30_000);
        let done = if limit < 30_000 {
            capture.done()
        } else {
            capture.stop()
        }
        .ok();
        let [received, passed, filtered, denied, dropped] = account(&done);
        assert_eq!(
            (received, passed),
            (passed + filtered + denied + dropped, limit),
            "{source}: {}",
            done.err
        );
        let [mut udp, mut tcp] = [&u, &t].map(|path| super::written(path));
        assert_eq!(
            (udp.len() + tcp.len()) as u64,
            limit,
            "{source}: {}",
            done.err
        );
        if limit == 30_000 {
            udp.sort();
            tcp.sort();
            assert!(udp == of(17) && tcp == of(6), "{source}");
        }
    }
}

#[test]
fn every_way_ends_in_the_middle_of_traffic() {
    let Some(net) = Net::new("every_way_ends_in_the_middle_of_traffic") else {
        return;
    };
    let sent = frames(60_000);
    for (way, words) in WAYS {
        let capture = start(&net, &["measure", "--json"], way, words);
        let before = net.received("near", "near");
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| net.send(&sent, 0));
            let begin = before + 5000;
            wait::until("5000 packets", || net.received("near", "near") > begin);
            let done = capture.stop().ok();
            let total = objects(&done).pop().expect("a summary");
            let term = |key: &str| total[key].as_u64().unwrap();
            let dropped = total["dropped"]["kernel"].as_u64().unwrap();
            assert_eq!(
                term("received"),
                term("passed") + term("filtered") + term("denied") + dropped,
                "{way:?}"
            );
            assert!(term("received") <= sender.join().unwrap(), "{way:?}");
        });
    }
}

#[test]
fn a_foreign_sender_is_received_to_the_packet() {
    let Some(net) = Net::new("a_foreign_sender_is_received_to_the_packet") else {
        return;
    };
    if !have("a_foreign_sender_is_received_to_the_packet", &["tcpreplay"]) {
        return;
    }
    let temp = Temp::new();
    let file = temp.at("sent.pcap");
    weir(["generate", &file, "--packets", "4000", "--flows", "200"]).ok();
    for (way, words) in WAYS {
        let capture = start(
            &net,
            &["measure", "--json", "--sketch", "exact"],
            way,
            words,
        );
        let said = net
            .inside("far", &["tcpreplay", "-i", "far", "--pps", "40000", &file])
            .ok()
            .text();
        let sent = |line: &str| {
            line.trim()
                .strip_prefix("Successful packets:")?
                .trim()
                .parse::<u64>()
                .ok()
        };
        let sent = said
            .lines()
            .find_map(sent)
            .expect("tcpreplay says how many it sent");
        assert_eq!(sent, 4000);
        let total = objects(&capture.stop().ok()).pop().expect("a summary");
        assert_eq!(
            (&total["received"], &total["passed"]),
            (&sent.into(), &sent.into()),
            "{way:?}"
        );
    }
}

#[test]
fn a_queue_has_one_owner_and_says_so() {
    let Some(net) = Net::new("a_queue_has_one_owner_and_says_so") else {
        return;
    };
    let capture = net.start(
        &[
            env!("CARGO_BIN_EXE_weir"),
            "filter",
            "",
            "af_xdp:near",
            "--count",
        ],
        "AF_XDP",
    );
    for command in [
        ["filter", "", "af_xdp:near"],
        ["measure", "af_xdp:near:0", "--utc"],
    ] {
        let refused = net.weir(&command);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(
            refused
                .err
                .starts_with("weir: near: an XDP program is already attached"),
            "{}",
            refused.err
        );
    }
    capture.stop().ok();
    let refused = |arguments: &[&str], words: &str| {
        let done = net.weir(arguments);
        assert!(
            done.code == Some(2) && done.err.contains(words),
            "{arguments:?}: {}",
            done.err
        );
    };
    refused(&["filter", "", "af_xdp:near:9"], "there is no queue 9");
    refused(&["filter", "", "af_xdp:near:x"], "x is not a queue number");
    refused(
        &["filter", "", "af_xdp:nix"],
        "nix: no such network interface",
    );
    refused(
        &["filter", "", "af_xdp:near", "-Q", "out"],
        "nothing that it sends",
    );
    refused(
        &["filter", "", "af_xdp:near", "--zero-copy", "force"],
        "zero copy",
    );
    if cfg!(not(feature = "dpdk")) {
        refused(&["measure", "dpdk:net_null0"], "was built without DPDK");
    }
    assert!(!has_xdp(&net));
    if have("no capability", &["setpriv"]) {
        let weir = env!("CARGO_BIN_EXE_weir");
        let bare = [
            "setpriv",
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            weir,
            "filter",
            "",
            "af_xdp:near",
        ];
        let done = net.inside("near", &bare);
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(
            done.err
                .contains("setcap cap_net_raw,cap_net_admin,cap_bpf=ep /"),
            "{}",
            done.err
        );
    }
}

#[test]
fn what_is_written_is_there_however_the_capture_ends() {
    let Some(net) = Net::new("what_is_written_is_there_however_the_capture_ends") else {
        return;
    };
    let temp = Temp::new();
    let sent = frames(1000);
    for (way, words) in WAYS {
        let out = temp.at("kept.pcapng");
        // The file of the previous backend could be mistaken for the new one.
        let _ = std::fs::remove_file(&out);
        let capture = start(&net, &["filter", "", "-w", &out], way, words);
        // The header is written before the first packet, and before the line that describes the capture.
        assert_eq!(
            weir(["filter", "", &out, "--count"]).ok().count(),
            0,
            "it has its header at once"
        );
        assert_eq!(net.send(&sent, 0), 1000);
        // Soon after traffic ends, all packets are in the file.
        wait::until(format_args!("{way:?}: all packets"), || {
            // A write that is under way ends inside a packet.
            let so_far = weir(["filter", "", &out, "--count"]);
            so_far.code == Some(0) && so_far.count() == 1000 && super::written(&out) == sent
        });
        capture.signal("-KILL");
        capture.done();
        assert!(super::written(&out) == sent, "{way:?}");
        assert!(
            !has_xdp(&net) && net.promiscuity("near") == "0",
            "{way:?} left something behind"
        );

        // SIGHUP ends a run like other signals, and a second signal changes nothing.
        for signals in [&["-HUP"][..], &["-INT", "-INT"], &["-TERM", "-INT"]] {
            if signals == ["-HUP"] && hangups_are_ignored() {
                eprintln!(
                    "what_is_written_is_there_however_the_capture_ends: SIGHUP skipped, the tests run under nohup"
                );
                continue;
            }
            let capture = start(&net, &["filter", "", "-w", &out, "--stats"], way, words);
            assert_eq!(net.send(&sent, 0), 1000);
            wait::until_handed_on();
            signals.iter().for_each(|signal| capture.signal(signal));
            let done = capture.done().ok();
            assert_eq!(account(&done), [1000, 1000, 0, 0, 0], "{way:?} {signals:?}");
            assert!(super::written(&out) == sent, "{way:?} {signals:?}");
        }

        // If the reader ends, the run ends without a message, but with a summary.
        let shell = format!(
            "{} filter '' {} | head -n 2",
            env!("CARGO_BIN_EXE_weir"),
            way.join(" ")
        );
        let mut reader = net.start(&["bash", "-c", &format!("set -o pipefail; {shell}")], words);
        // The first lines may still fit into the pipe after its reader has gone.
        wait::until("the end of the run", || {
            assert_eq!(net.send(&sent, 0), 1000);
            reader.has_ended()
        });
        let done = reader.done().ok();
        assert_eq!(done.text().lines().count(), 2);
        assert!(!done.err.contains("weir:"), "{way:?}: {}", done.err);
    }
}
