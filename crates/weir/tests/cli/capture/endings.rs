//! Captures whose outputs end first: all received packets are still in the summary.

use super::net::Net;
use super::{account, frames, objects, written};
use crate::support::*;
use serde_json::Value;

/// Number of packets that the interface `near` had received at the end, from `--stats`.
#[track_caller]
fn received(done: &Done) -> u64 {
    let line = done.err.lines().find_map(|line| {
        line.trim()
            .strip_prefix("near: ")?
            .split_once(" received, ")
    });
    line.unwrap_or_else(|| panic!("{}", done.err))
        .0
        .parse()
        .expect("a number")
}

/// Packets that no output can take any more are dropped, wherever they were when the output failed.
#[test]
fn packets_that_a_stuck_output_does_not_take_are_dropped() {
    let Some(net) = Net::new("packets_that_a_stuck_output_does_not_take_are_dropped") else {
        return;
    };
    net.inside("near", &["ip", "link", "set", "lo", "up"]).ok();
    let sent = frames(20_000);
    for arguments in [
        &["", "near"][..],
        &["", "near", "--json"],
        &["", "near", "-w", "-"],
        &["udp port 53", "near"],
        &["udp port 53", "near", "--no-kernel-filter"],
        &["", "near", "lo"],
        &["udp port 53", "near", "lo", "--no-kernel-filter", "--json"],
    ] {
        let capture = net.capture(&[&["filter"], arguments, &["--stats"]].concat());
        assert_eq!(net.send(&sent, 1000), 20_000);
        let done = capture.stop_unread();
        let context = format!("{arguments:?}: {}", done.err);
        assert_eq!(done.code, Some(1), "{context}");
        let [all, passed, filtered, denied, dropped] = account(&done);
        assert_eq!((all, received(&done)), (20_000, 20_000), "{context}");
        assert_eq!(all, passed + filtered + denied + dropped, "{context}");
        assert_eq!(
            (filtered, denied),
            (if arguments[0].is_empty() { 0 } else { 10_000 }, 0),
            "{context}"
        );
        assert!(
            dropped > 0 && done.err.contains(" dropped: output, "),
            "{context}"
        );
        assert!(!done.err.contains("does not add up"), "{context}");
    }
}

/// The same with an output that fails while packets come. Later packets are not received.
#[test]
fn packets_behind_an_output_that_failed_are_dropped() {
    let Some(net) = Net::new("packets_behind_an_output_that_failed_are_dropped") else {
        return;
    };
    net.inside("near", &["ip", "link", "set", "lo", "up"]).ok();
    let temp = Temp::new();
    let sent = frames(20_000);
    for sources in ["near", "near lo"] {
        let out = temp.at("out.pcap");
        let split = format!("--split '{out}=ip' --json --stats");
        let script = format!("ulimit -f 100; exec \"$0\" filter '' {sources} {split}");
        let capture = net.start(
            &["bash", "-c", &script, env!("CARGO_BIN_EXE_weir")],
            "AF_PACKET",
        );
        net.send(&sent, 1000);
        let done = capture.done();
        let context = format!("{sources}: {}", done.err);
        assert_eq!(done.code, Some(1), "{context}");
        let [all, passed, filtered, denied, dropped] = account(&done);
        assert_eq!(
            (all, filtered, denied),
            (received(&done), 0, 0),
            "{context}"
        );
        assert_eq!(all, passed + dropped, "{context}");
        let object: Value = serde_json::from_str(&done.text()).expect("an object");
        assert_eq!(
            (&object["received"], &object["matched"]),
            (&all.into(), &passed.into()),
            "{context}"
        );
        let by = |cause: &str| object["dropped"][cause].as_u64().unwrap_or(0);
        assert_eq!(by("kernel") + by("output"), dropped, "{context}");
        let written = format!(",{}written,", records(&out).len());
        assert!(
            done.err.replace(' ', "").contains(&written),
            "{written} {context}"
        );
    }
}

/// The windows fill the pipe and the queue before it. All packets are still captured and written.
#[test]
fn a_capture_goes_on_while_nobody_reads_its_windows() {
    let Some(net) = Net::new("a_capture_goes_on_while_nobody_reads_its_windows") else {
        return;
    };
    net.second_cable();
    let temp = Temp::new();
    let out = temp.at("out.pcapng");
    let sent = frames(20_000);
    for sources in [&["near"][..], &["near", "two"]] {
        let ready = format!("{}: AF_PACKET", sources.last().unwrap());
        let options = [
            "--window", "5ms", "--late", "0", "--json", "--top", "100", "-w", &out,
        ];
        let command = [&[env!("CARGO_BIN_EXE_weir"), "measure"], sources, &options].concat();
        let capture = net.start(&command, &ready);
        assert_eq!(net.send(&sent, 100), 20_000);
        // The file grows by pages while it is written, so that it may end inside a packet for a moment.
        let so_far = || {
            weir(["filter", "", &out, "--count"])
                .text()
                .trim()
                .parse()
                .unwrap_or(0)
        };
        wait::until_ok(|| match so_far() {
            20_000.. => Ok(()),
            some => Err(format!("{some} are written")),
        });
        assert!(written(&out) == sent);
        let done = capture.stop().ok();
        let mut windows = objects(&done);
        let total = windows.pop().expect("a summary");
        let figure = |of: &Value, key: &str| of[key].as_u64().unwrap_or(0);
        assert_eq!(
            (figure(&total, "received"), figure(&total, "passed")),
            (20_000, 20_000),
            "{}",
            done.err
        );
        let said: u64 = windows
            .iter()
            .map(|window| figure(window, "left_out"))
            .sum();
        let left_out = figure(&total, "left_out");
        // Windows left out after the last printed one are only in the summary's number.
        assert!(left_out > 0 && left_out >= said, "{total}");
        let begins: Vec<&str> = windows
            .iter()
            .map(|window| window["start"].as_str().unwrap())
            .collect();
        assert!(begins.is_sorted_by(|a, b| a < b), "{begins:?}");
        assert!(
            windows
                .iter()
                .map(|window| figure(window, "passed"))
                .sum::<u64>()
                < 20_000
        );
        assert!(
            done.err.contains(
                "windows left out because they ended faster than their results were taken"
            )
        );
    }
}
