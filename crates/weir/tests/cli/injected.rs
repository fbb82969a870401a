//! `inject:IF` with a capture or a profile: tcpdump at the interface gets every frame, byte for byte and in order.

use crate::capture::net::Net;
use crate::support::*;
use weir_testkit::wait;

/// What tcpdump at the near end gets from a command, of which so many packets are expected.
fn injected(net: &Net, temp: &Temp, words: &[&str], expected: usize) -> (Vec<Vec<u8>>, Done) {
    let out = temp.at("out.pcap");
    let judge = [
        "tcpdump",
        "--immediate-mode",
        "-Z",
        "root",
        "-B",
        "32768",
        "-s",
        "4000",
    ];
    let more = ["-Q", "in", "-i", "near", "-U", "-w", &out];
    let judge = net.start(&[&judge[..], &more].concat(), "listening on");
    let done = net.weir(words);
    if done.code == Some(0) {
        let have_all =
            || std::fs::metadata(&out).is_ok_and(|it| it.len() >= 24 + 16 * expected as u64);
        wait::within(std::time::Duration::from_secs(5), have_all);
        wait::until_handed_on();
    }
    judge.stop();
    let all = records(&out).into_iter();
    (all.map(|record| record.data).collect(), done)
}

#[test]
fn any_frames_are_injected_byte_for_byte() {
    let test = "any_frames_are_injected_byte_for_byte";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    let made = [
        "generate",
        &file,
        "--profile",
        "imix",
        "--sizes",
        "60-3392",
        "--packets",
        "3000",
    ];
    weir(made).ok();
    let sent: Vec<Vec<u8>> = records(&file).into_iter().map(|it| it.data).collect();
    let replay = ["replay", &file, "--to", "inject:near", "--rate", "max"];
    let (arrived, done) = injected(&net, &temp, &replay, 3000);
    if done.err.contains("kernel") && done.code != Some(0) {
        return skipped(test, done.err.trim());
    }
    let done = done.ok();
    assert!(done.err.contains("packets arrive at near"), "{}", done.err);
    assert!(done.err.contains("3 000 read, 3 000 sent"), "{}", done.err);
    assert!(
        arrived == sent,
        "{} frames, and not those of the file",
        arrived.len()
    );
    // A profile at a rate: the same frames as in a file.
    let profile = ["--profile", "imix", "--packets", "400", "--rate", "4kpps"];
    weir([&["generate", &file], &profile[..]].concat()).ok();
    let (arrived, done) = injected(
        &net,
        &temp,
        &[&["generate", "inject:near"], &profile[..]].concat(),
        400,
    );
    assert!(done.ok().err.contains("\n400 sent, "));
    assert_eq!(
        arrived,
        records(&file)
            .into_iter()
            .map(|it| it.data)
            .collect::<Vec<_>>()
    );
    // Frames longer than a page are counted.
    let long = [
        "generate",
        "inject:near",
        "--profile",
        "64",
        "--sizes",
        "3393",
        "--packets",
        "5",
    ];
    let (arrived, done) = injected(&net, &temp, &long, 0);
    assert_eq!((arrived.len(), done.code), (0, Some(1)));
    assert!(
        done.err.contains("5 packets not sent: longer than"),
        "{}",
        done.err
    );
}

#[test]
fn injected_packets_reach_this_host_only_if_asked_and_pass_no_program_by() {
    let test = "injected_packets_reach_this_host_only_if_asked_and_pass_no_program_by";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    net.inside(
        "near",
        &["ip", "address", "add", "10.9.9.1/24", "dev", "near"],
    )
    .ok();
    let words = [
        "generate",
        "inject:near",
        "--profile",
        "64",
        "--packets",
        "50",
    ];
    let (arrived, done) = injected(&net, &temp, &words, 0);
    if done.err.contains("kernel") && done.code != Some(0) {
        return skipped(test, done.err.trim());
    }
    assert!(
        done.err.contains("--to-stack hands them to this host"),
        "{}",
        done.err
    );
    assert_eq!((arrived.len(), done.code), (0, Some(0)));
    let (arrived, done) = injected(&net, &temp, &[&words[..], &["--to-stack"]].concat(), 50);
    assert_eq!((arrived.len(), done.code), (50, Some(0)), "{}", done.err);
    // weir attaches a program of its own for AF_XDP.
    let capture = net.start(
        &[env!("CARGO_BIN_EXE_weir"), "measure", "af_xdp:near"],
        "AF_XDP",
    );
    for more in [&["--profile", "64"][..], &[]] {
        let done = net.weir(&[&["generate", "inject:near", "--packets", "5"], more].concat());
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(
            done.err.contains("an XDP program is attached"),
            "{}",
            done.err
        );
    }
    capture.stop();
}

/// The kernel removes an interface after the injection, which therefore ends at once, and not at its next packet.
#[test]
fn a_removed_interface_ends_an_injection() {
    let test = "a_removed_interface_ends_an_injection";
    let Some(net) = Net::new(test) else { return };
    let weir = env!("CARGO_BIN_EXE_weir");
    let words = ["generate", "inject:near", "--profile", "64"];
    let done = net.weir(&[&words[..], &["--packets", "1"]].concat());
    if done.err.contains("kernel") && done.code != Some(0) {
        return skipped(test, done.err.trim());
    }
    let words = [&[weir], &words[..], &["--rate", "0.01pps", "--forever"]].concat();
    let first = ["tcpdump", "--immediate-mode", "-n", "-i", "near", "-c", "1"];
    let first = net.start(&first, "listening on");
    let sending = net.start(&words, "packets arrive at near");
    first.done().ok();
    net.inside("near", &["ip", "link", "del", "near"]).ok();
    let done = sending.done();
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err
            .contains("the interface is gone; 1 packet was sent"),
        "{}",
        done.err
    );
}

/// The digest as its description says, by a reader that is not weir's.
const DIGEST: &str = r#"
import struct, sys
bytes = open(sys.argv[1], "rb").read()
at, total = 24, 0
while at < len(bytes):
    length = struct.unpack_from("<I", bytes, at + 8)[0]
    frame = bytes[at + 16 : at + 16 + length]
    h, at = length * 0x9E3779B97F4A7C15 % 2**64, at + 16 + length
    for i in range(0, length, 16):
        block = frame.ljust(16, b"\0")[: i + 16][-16:]
        a, b = struct.unpack("<QQ", block)
        product = (a ^ h) * (b ^ 0x9E3779B97F4A7C15)
        h = product >> 64 ^ product % 2**64
    total = (total + h) % 2**64
print(f"{total:016x}")
"#;

#[test]
fn digests_are_of_all_frames_whatever_their_order() {
    if !have(
        "digests_are_of_all_frames_whatever_their_order",
        &["python3"],
    ) {
        return;
    }
    let temp = Temp::new();
    let file = temp.at("a.pcap");
    let profile = ["--profile", "mwn", "--packets", "2000"];
    weir([&["generate", &file], &profile[..]].concat()).ok();
    let expected = tool("python3", ["-c", DIGEST, &file]).ok();
    let expected = format!(", digest {}", expected.text().trim());
    for words in [
        &[
            "replay",
            &file,
            "--to",
            "null",
            "--rate",
            "max",
            "--control-traffic",
        ][..],
        &[&["generate", "null"], &profile[..]].concat(),
        &[&["generate", "null", "--workers", "2"], &profile[..]].concat(),
    ] {
        let done = weir([words, &["--digest"]].concat()).ok();
        assert!(
            done.err.contains(&expected),
            "{words:?}: {}{expected}",
            done.err
        );
    }
}

/// A packet that is due after the end does not leave before its time, and nobody waits for it.
#[test]
fn no_packet_leaves_early_at_the_end() {
    let test = "no_packet_leaves_early_at_the_end";
    let Some(net) = Net::new(test) else { return };
    let ends = [
        "--profile",
        "64",
        "--rate",
        "0.02pps",
        "--duration",
        "300ms",
    ];
    for (sink, end) in [("inject:near", "near"), ("af_packet:near", "far")] {
        let before = net.received(end, end);
        let done = net.weir(&[&["generate", sink], &ends[..]].concat()).ok();
        assert!(done.err.contains("1 sent, 60 bytes"), "{}", done.err);
        // The kernel is the judge, but for what is injected and dropped after that.
        let arrived = net.received(end, end) - before;
        assert_eq!(arrived, u64::from(end == "far"), "{sink}");
    }
}
