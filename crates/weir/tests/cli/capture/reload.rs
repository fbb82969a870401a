//! A filter file that is read again during a capture, checked against the sender's frames.

use super::net::{Capture, Net};
use super::{account, frames, objects, written};
use crate::support::*;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Contents of the file, one after the other.
const FILTERS: [&str; 4] = [
    "udp port 53 # at first",
    "# now the others\nudp\n  port 80\n",
    "",
    "udp[8:4] & 3 = 2",
];

/// Whether a filter passes frame `number`.
fn passes(filter: usize, number: usize) -> bool {
    [
        number.is_multiple_of(2),
        number % 2 == 1,
        true,
        number % 4 == 2,
    ][filter]
}

/// Makes weir read each filter in turn, and returns when the last one is in place.
fn reload(net: &Net, mut capture: Capture, file: &str) -> Capture {
    for (change, filter) in FILTERS.iter().enumerate().skip(1) {
        let begin = net.received("near", "near");
        wait::until("packets under the filter before", || {
            net.received("near", "near") > begin + 200
        });
        fs::write(file, filter).unwrap();
        capture.signal("-HUP");
        capture = capture.until(&format!("(change {change})"));
    }
    capture
}

/// Checks that each frame was judged by one of the filters, and that the filters took effect in their order.
fn filters_in_turn(frames: &[Vec<u8>], passed: &[Vec<u8>]) -> Result<(), String> {
    let mut left = passed;
    // Filters that may be in place.
    let mut places = vec![0];
    for (number, frame) in frames.iter().enumerate() {
        let came = left.first() == Some(frame);
        left = &left[usize::from(came)..];
        let first = *places
            .first()
            .ok_or(format!("frame {number} is not as any filter has it"))?;
        let known = move |filter: usize| places.contains(&filter);
        places = (first..FILTERS.len())
            .filter(|&filter| (first..=filter).any(&known) && passes(filter, number) == came)
            .collect();
    }
    match (left, places.contains(&(FILTERS.len() - 1))) {
        ([], true) => Ok(()),
        _ => Err(format!("{} frames left, filters {places:?}", left.len())),
    }
}

#[test]
fn a_filter_that_is_read_again_loses_no_packet_and_passes_none_twice() {
    let test = "a_filter_that_is_read_again_loses_no_packet_and_passes_none_twice";
    let Some(net) = Net::new(test) else { return };
    net.second_cable();
    let temp = Temp::new();
    let (file, out) = (temp.at("filter.txt"), temp.at("out.pcapng"));
    let sent = frames(12_000);
    let ways: [(&[&str], &str); 5] = [
        (&["filter", "near", "--stats"], "near: AF_PACKET"),
        (
            &["filter", "near", "--no-kernel-filter", "--stats"],
            "near: AF_PACKET",
        ),
        (
            &["filter", "af_xdp:near", "--xdp-mode", "generic", "--stats"],
            "near: AF_XDP",
        ),
        (&["filter", "near", "two", "--stats"], "two: AF_PACKET"),
        (
            &["measure", "near", "--stats", "--workers", "1"],
            "near: AF_PACKET",
        ),
    ];
    for (way, ready) in ways {
        fs::write(&file, FILTERS[0]).unwrap();
        let command = [
            &[env!("CARGO_BIN_EXE_weir")],
            way,
            &["--filter-file", &file, "-w", &out],
        ]
        .concat();
        let capture = net.start(&command, ready);
        let before = net.received("near", "near");
        let capture = std::thread::scope(|scope| {
            let sender = scope.spawn(|| assert_eq!(net.send(&sent, 50), 12_000));
            // Each filter has to be read while packets come.
            wait::until("the first packet", || net.received("near", "near") > before);
            let capture = reload(&net, capture, &file);
            assert!(
                !sender.is_finished(),
                "{way:?}: all was sent before the last change"
            );
            capture
        });
        let done = capture.stop().ok();
        let passed = written(&out);
        assert_eq!(
            filters_in_turn(&sent, &passed),
            Ok(()),
            "{way:?}: {}",
            done.err
        );
        // The stage's line counts what the filter saw after the kernel's filter.
        let [received, matched, filtered, denied, dropped] = account(&done);
        assert_eq!(
            (received, matched, denied, dropped),
            (12_000, passed.len() as u64, 0, 0),
            "{way:?}: {}",
            done.err
        );
        assert_eq!(filtered, received - matched, "{way:?}");
    }
}

#[test]
fn what_is_measured_is_what_the_filter_of_its_time_passes() {
    let Some(net) = Net::new("what_is_measured_is_what_the_filter_of_its_time_passes") else {
        return;
    };
    let temp = Temp::new();
    let file = temp.at("filter.txt");
    let sent = frames(4000);
    for design in [
        &["--workers", "2"][..],
        &["--design", "async", "--workers", "2"],
        &["--window", "50ms", "--late", "1s"],
    ] {
        fs::write(&file, FILTERS[0]).unwrap();
        let command = [&["measure", "near", "--json", "-F", &file], design].concat();
        let mut capture = net.capture(&command);
        let mut expected = 0;
        for (filter, text) in FILTERS.iter().enumerate() {
            if filter > 0 {
                fs::write(&file, text).unwrap();
                capture.signal("-HUP");
                capture = capture.until(&format!("(change {filter})"));
            }
            assert_eq!(net.send(&sent, 500), 4000);
            // The last packets may still be in the ring.
            capture = capture.until_received("near", 4000 * (filter as u64 + 1));
            expected += (0..4000).filter(|&number| passes(filter, number)).count() as u64;
        }
        let done = capture.stop().ok();
        let all = objects(&done);
        let total = all.last().expect("a summary");
        let figure = |key: &str| total[key].as_u64().unwrap();
        assert_eq!(
            (figure("received"), figure("passed")),
            (16_000, expected),
            "{design:?}: {}",
            done.err
        );
        assert_eq!(
            (figure("filtered"), figure("denied")),
            (16_000 - expected, 0),
            "{design:?}"
        );
    }
}

#[test]
fn a_file_that_is_wrong_when_it_is_read_again_leaves_the_filter_as_it_is() {
    let Some(net) =
        Net::new("a_file_that_is_wrong_when_it_is_read_again_leaves_the_filter_as_it_is")
    else {
        return;
    };
    let temp = Temp::new();
    let (file, out) = (temp.at("filter.txt"), temp.at("out.pcapng"));
    fs::write(&file, "udp port 53").unwrap();
    let capture = net.capture(&["filter", "-F", &file, "near", "-w", &out]);
    let wrong: [(Option<&[u8]>, &str); 5] = [
        (Some(b"udp porrt 53"), "syntax error"),
        (None, "no such file; the filter stays as it is"),
        (Some(b"wlan type mgt"), "802.11"),
        (
            Some(&[0xff; 10]),
            "it is not text (UTF-8); the filter stays as it is",
        ),
        (Some(&[b' '; 300 << 10]), "larger than 256 KiB"),
    ];
    let capture = wrong.into_iter().fold(capture, |capture, (text, words)| {
        match text {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        capture.signal("-HUP");
        capture.until(words)
    });
    // A pipe without a writer does not block the reading.
    fs::remove_file(&file).unwrap();
    tool("mkfifo", [&file]).ok();
    capture.signal("-HUP");
    let capture = capture
        .until("it is not a regular file, which alone is read again; the filter stays as it is");
    let sent = frames(1000);
    assert_eq!(net.send(&sent, 0), 1000);
    capture.stop().ok();
    let even: Vec<_> = sent.iter().step_by(2).cloned().collect();
    assert!(written(&out) == even);
}

/// An editor may write a byte order mark before UTF-8, and a deployment may replace the directory.
#[test]
fn the_file_may_come_to_be_another_one_in_another_directory() {
    let Some(net) = Net::new("the_file_may_come_to_be_another_one_in_another_directory") else {
        return;
    };
    let temp = Temp::of(&[("all/now/filter.txt", "udp port 80")]);
    let (now, out) = (temp.at("all/now"), temp.at("out.pcapng"));
    let file = format!("{now}/filter.txt");
    let capture = net.capture(&["filter", "-F", &file, "near", "-w", &out]);
    fs::rename(&now, temp.at("all/old")).unwrap();
    fs::create_dir(&now).unwrap();
    fs::write(&file, "\u{feff}udp port 53").unwrap();
    capture.signal("-HUP");
    let capture = capture.until("from now on the filter is 'udp port 53' (change 1)");
    let sent = frames(100);
    assert_eq!(net.send(&sent, 0), 100);
    capture.stop().ok();
    assert!(written(&out) == sent.iter().step_by(2).cloned().collect::<Vec<_>>());
}

#[test]
fn standard_input_has_the_expression_once() {
    let temp = Temp::new();
    let source = temp.file(
        "a.pcap",
        &[pcap_header(65535, 1), pcap_record(1, &frames(1)[0])].concat(),
    );
    for name in ["-", "/dev/stdin"] {
        assert_eq!(
            weir_fed(
                ["filter", "-F", name, &source, "--count"],
                b"udp port 53 # all"
            )
            .ok()
            .count(),
            1
        );
        assert_eq!(
            weir_fed(["measure", "-F", name, &source, "--json"], b"tcp")
                .ok()
                .text()
                .matches("\"passed\":0")
                .count(),
            1
        );
    }
}

/// Waits for the thread that handles SIGHUP, without which the signal would end the process.
fn wait_until_it_waits_for_hangups(process: u32) {
    let waits = || {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim() == "reload")
    };
    wait::until("the thread that waits for SIGHUP", waits);
}

/// Bytes of a pipe read after the change are judged by the new filter, however long the pipe was silent.
#[test]
fn a_filter_is_read_again_while_a_pipe_is_silent() {
    let temp = Temp::new();
    let file = temp.file("filter.txt", b"udp port 53");
    let pcap = [
        pcap_header(65535, 1),
        frames(400)
            .iter()
            .flat_map(|frame| pcap_record(1, frame))
            .collect(),
    ]
    .concat();
    // Half of the records, with 60 bytes of packet each, after the header of the file.
    let half = 24 + 200 * 76;
    for command in [
        &["filter", "-U", "-t"][..],
        &["measure", "--json", "--workers", "1"],
    ] {
        fs::write(&file, "udp port 53").unwrap();
        let mut child = weir_command()
            .args(command)
            .args(["-F", &file, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&pcap[..half]).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: Vec<String> = lines
            .by_ref()
            .take(if command[0] == "filter" { 100 } else { 0 })
            .flatten()
            .collect();
        wait_until_it_waits_for_hangups(child.id());
        fs::write(&file, "udp port 80").unwrap();
        tool("kill", ["-HUP", &child.id().to_string()]).ok();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        assert_eq!(
            line,
            format!("weir: {file}: from now on the filter is 'udp port 80' (change 1)\n")
        );
        pipe.write_all(&pcap[half..]).unwrap();
        drop(pipe);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(child.wait().unwrap().success());
        if command[0] == "filter" {
            assert!(first.iter().all(|line| line.contains(".53: ")), "{first:?}");
            assert!(rest.iter().all(|line| line.contains(".80: ")), "{rest:?}");
            assert_eq!((first.len(), rest.len()), (100, 100));
        } else {
            // Each half has as many packets for one filter as for the other.
            let total: Value = serde_json::from_str(&rest[0]).unwrap();
            assert_eq!(
                (&total["received"], &total["passed"]),
                (&400.into(), &200.into()),
                "{total}"
            );
        }
    }
}

/// The kernel's filter knows no sets: it passes what they could match, and the account is whole all the same.
#[test]
fn sets_that_are_read_again_take_the_place_of_those_before() {
    let Some(net) = Net::new("sets_that_are_read_again_take_the_place_of_those_before") else {
        return;
    };
    let temp = Temp::new();
    let (file, out) = (temp.at("set.txt"), temp.at("out.pcapng"));
    let mut sent = frames(400);
    sent.iter_mut()
        .zip((0..=255u8).cycle())
        .for_each(|(frame, number)| frame[29] = number % 4);
    let set = format!("hosts={file}");
    let from = |frames: &[Vec<u8>], hosts: &[u8]| -> Vec<Vec<u8>> {
        frames
            .iter()
            .filter(|frame| hosts.contains(&frame[29]))
            .cloned()
            .collect()
    };
    for way in [&["--stats"][..], &["--stats", "--no-kernel-filter"]] {
        fs::write(&file, "10.0.0.1\n").unwrap();
        let command = [
            &[
                "filter",
                "udp port 53 and src @hosts",
                "near",
                "--set",
                &set,
                "-w",
                &out,
            ],
            way,
        ]
        .concat();
        let mut capture = net.capture(&command);
        let mut wanted = Vec::new();
        for (change, (text, hosts)) in [
            ("", &[1][..]),
            ("10.0.0.2\n10.0.0.3\n", &[2, 3]),
            ("nonsense\n", &[2, 3]),
            ("", &[]),
        ]
        .into_iter()
        .enumerate()
        {
            if change > 0 {
                fs::write(&file, text).unwrap();
                capture.signal("-HUP");
                let words = if text == "nonsense\n" {
                    "the filter stays as it is"
                } else {
                    "from now on the filter is"
                };
                capture = capture.until(words);
            }
            assert_eq!(net.send(&sent, 100), 400);
            // The last packets may still be in the ring, and are judged by the sets of the time at which they are read. On a busy machine that
            // is late: who answers has looked into the ring.
            capture = capture.until_received("near", 400 * (change as u64 + 1));
            let even: Vec<_> = sent.iter().step_by(2).cloned().collect();
            wanted.extend(from(&even, hosts));
        }
        let done = capture.stop().ok();
        assert!(written(&out) == wanted, "{way:?}: {}", done.err);
        let [received, matched, filtered, denied, dropped] = account(&done);
        let passed = wanted.len() as u64;
        assert_eq!(
            (received, matched, filtered, denied, dropped),
            (1600, passed, 1600 - passed, 0, 0),
            "{way:?}: {}",
            done.err
        );
    }
}
