//! `weir replay`: a reader that is not weir's judges what arrives at the other end of a cable, and when.

use crate::capture::frames;
use crate::capture::net::{Capture, Net};
use crate::support::*;
use serde_json::Value;

/// A capture of `frames`, each `gap_us` after the one before.
fn capture_of(frames: &[Vec<u8>], gap_us: u64) -> Vec<u8> {
    let mut bytes = pcapng_start(1);
    for (i, frame) in frames.iter().enumerate() {
        let ticks = 1_700_000_000_000_000 + i as u64 * gap_us;
        bytes.extend(pcapng_packet_at(ticks, frame.len() as u32, frame));
    }
    bytes
}

/// tcpdump at the far end, which writes `file`.
fn judge(net: &Net, file: &str) -> Capture {
    let words = ["tcpdump", "--immediate-mode", "-s", "2000", "-Z", "root"];
    let more = ["--time-stamp-precision=nano", "-i", "far", "-U", "-w", file];
    net.start_at("far", &[&words[..], &more].concat(), "listening on")
}

/// Times, ns, and data of the packets that a judge has written, once the file has these packets.
fn arrived(judge: Capture, file: &str, packets: &[&Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    let bytes: usize = packets.iter().map(|data| 16 + data.len()).sum();
    weir_testkit::wait::until("the last packet", || {
        std::fs::metadata(file).is_ok_and(|about| about.len() >= 24 + bytes as u64)
    });
    judge.stop();
    let all = records(file).into_iter();
    all.map(|record| (record.time_ns, record.data)).collect()
}

#[test]
fn frames_arrive_as_they_were_and_when_they_were() {
    let test = "frames_arrive_as_they_were_and_when_they_were";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let sent = frames(200);
    let file = temp.file("in.pcapng", &capture_of(&sent, 1_000));
    let out = temp.at("out.pcap");
    let tcpdump = judge(&net, &out);
    let done = net.weir(&["replay", &file, "--to", "near", "--json"]).ok();
    let arrived = arrived(tcpdump, &out, &sent.iter().collect::<Vec<_>>());
    assert_eq!(
        arrived.iter().map(|it| &it.1).collect::<Vec<_>>(),
        sent.iter().collect::<Vec<_>>()
    );
    // 199 gaps of a millisecond. Nothing is early, and what is late delays nothing after it.
    let span_ms = (arrived[199].0 - arrived[0].0) as f64 / 1e6;
    assert!((190.0..500.0).contains(&span_ms), "{span_ms} ms");
    let answer: Value = serde_json::from_str(done.text().trim()).expect("it is JSON");
    assert_eq!(
        (&answer["sent"], &answer["refused"]),
        (&200.into(), &0.into())
    );
    assert_eq!(answer["planned_s"], 0.199);
    assert!(done.err.contains("200 read, 200 sent"), "{}", done.err);
}

#[test]
fn rates_loops_parts_and_addresses_are_chosen() {
    let test = "rates_loops_parts_and_addresses_are_chosen";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let mut sent = frames(30);
    // A request of ARP, and the discovery of DHCP: neither leaves unless it is asked for.
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 1, 8, 6]);
    arp.extend([0; 46]);
    sent.push(arp);
    let file = temp.file("in.pcapng", &capture_of(&sent, 10_000_000));
    let out = temp.at("out.pcap");
    let tcpdump = judge(&net, &out);
    let to = "02:00:00:00:00:77";
    let words = [
        "replay", &file, "--to", "near", "--rate", "2kpps", "--loop", "3",
    ];
    let done = net
        .weir(
            &[
                &words[..],
                &["--dst-mac", to, "--filter", "udp port 53 or arp"],
            ]
            .concat(),
        )
        .ok();
    let dns: Vec<&Vec<u8>> = sent[..30]
        .iter()
        .filter(|it| it[36..38] == [0, 53])
        .collect();
    let thrice: Vec<_> = dns.iter().cycle().take(dns.len() * 3).copied().collect();
    let all = arrived(tcpdump, &out, &thrice);
    assert_eq!(all.len(), dns.len() * 3);
    for ((_, data), expected) in all.iter().zip(dns.iter().cycle()) {
        assert_eq!(data[..6], [2, 0, 0, 0, 0, 0x77]);
        assert_eq!(data[6..], expected[6..]);
    }
    assert!(
        done.err.contains("3 control packets left out"),
        "{}",
        done.err
    );
    let with = net
        .weir(&[
            "replay",
            &file,
            "--to",
            "near",
            "--rate",
            "max",
            "--control-traffic",
        ])
        .ok();
    assert!(with.err.contains("31 read, 31 sent"), "{}", with.err);
}

#[test]
fn two_ports_keep_one_order() {
    let test = "two_ports_keep_one_order";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let words = [
        "ip", "link", "add", "near2", "type", "veth", "peer", "name", "far2",
    ];
    net.inside("near", &[&words[..], &["netns", &net.name("far")]].concat())
        .ok();
    for (end, name) in [("near", "near2"), ("far", "far2")] {
        net.inside(end, &["ip", "link", "set", name, "up"]).ok();
    }
    let temp = Temp::new();
    let sent = frames(40);
    let file = temp.file("in.pcapng", &capture_of(&sent, 2_000));
    let out = temp.at("out.pcap");
    let words = [
        "tcpdump",
        "--immediate-mode",
        "-Z",
        "root",
        "-s",
        "2000",
        "-y",
        "LINUX_SLL",
    ];
    let more = [
        "--time-stamp-precision=nano",
        "-Q",
        "in",
        "-i",
        "any",
        "-U",
        "-w",
        &out,
    ];
    let tcpdump = net.start_at("far", &[&words[..], &more].concat(), "listening on");
    let words = ["replay", &file, "--to", "near", "--to2", "near2"];
    net.weir(&[&words[..], &["--split-by", "udp dst port 53"]].concat())
        .ok();
    // Cooked frames are two bytes longer than those of Ethernet; what follows the header is the same.
    let cooked: Vec<Vec<u8>> = sent.iter().map(|it| [&[0; 2], &it[..]].concat()).collect();
    let all = arrived(tcpdump, &out, &cooked.iter().collect::<Vec<_>>());
    let got: Vec<_> = all.iter().map(|it| it.1[16..].to_vec()).collect();
    assert_eq!(
        got,
        sent.iter().map(|it| it[14..].to_vec()).collect::<Vec<_>>()
    );
}

/// Rounds of a replay have other hosts, and tcpdump finds their checksums right.
#[test]
fn rounds_have_shifted_addresses_and_right_checksums() {
    let test = "rounds_have_shifted_addresses_and_right_checksums";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let (file, out) = (temp.at("in.pcap"), temp.at("out.pcap"));
    weir([
        "generate",
        &file,
        "--profile",
        "mwn",
        "--packets",
        "60",
        "--sizes",
        "60-1400",
    ])
    .ok();
    let sent: Vec<Vec<u8>> = records(&file).into_iter().map(|it| it.data).collect();
    let tcpdump = judge(&net, &out);
    let words = [
        "replay", &file, "--to", "near", "--rate", "5kpps", "--loop", "3",
    ];
    net.weir(&[&words[..], &["--shift-addresses"]].concat())
        .ok();
    let thrice: Vec<&Vec<u8>> = sent.iter().cycle().take(180).collect();
    let all = arrived(tcpdump, &out, &thrice);
    assert_eq!(all.len(), 180);
    for (i, (_, data)) in all.iter().enumerate() {
        let host = |data: &[u8], at: usize| u16::from_be_bytes([data[at + 2], data[at + 3]]);
        for at in [26, 30] {
            let shifted = host(&sent[i % 60], at).wrapping_add(i as u16 / 60);
            assert_eq!(host(data, at), shifted, "{i}");
        }
        // But for addresses and checksums, all is as it was.
        let sum = if data[23] == 6 { 50 } else { 40 };
        let rest = |data: &[u8]| [&data[..24], &data[34..sum], &data[sum + 2..]].concat();
        assert_eq!(rest(data), rest(&sent[i % 60]), "{i}");
    }
    let text = tool("tcpdump", ["-n", "-vv", "-r", &out]).ok().text();
    assert!(text.contains("(correct)") && text.contains("udp sum ok"));
    assert!(
        !text.contains("bad cksum")
            && !text.contains("bad udp cksum")
            && !text.contains("incorrect")
    );
}

/// What clients and servers of connections send leaves by two ports.
#[test]
fn sides_are_told_apart_and_memory_does_not_grow() {
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    weir([
        "generate",
        &file,
        "--profile",
        "connections",
        "--packets",
        "3000",
    ])
    .ok();
    let words = [
        "replay",
        &file,
        "--to",
        "null",
        "--to2",
        "null",
        "--split-by",
        "auto",
        "--rate",
        "max",
    ];
    let done = weir(words).ok();
    assert!(done.err.contains("3 000 read"), "{}", done.err);
    // A pipe with more bytes than the memory that is wanted: what was sent is not kept.
    let bytes = std::fs::read(&file).unwrap();
    let mut command = weir_command();
    command.args([
        "replay",
        "-",
        "--to",
        "null",
        "--rate",
        "max",
        "--control-traffic",
        "-c",
        "100000000",
    ]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut pipe, &bytes[..24]).unwrap();
    let mut fed = 0;
    while fed < 96 << 20 {
        std::io::Write::write_all(&mut pipe, &bytes[24..]).unwrap();
        fed += bytes.len() - 24;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    drop(pipe);
    assert!(child.wait().unwrap().success());
    assert!(kib < 64 << 10, "{kib} KiB after {fed} bytes");
}

#[test]
fn wrong_replays_are_refused_in_a_line() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(3));
    let wrong: [(&[&str], &str); 7] = [
        (
            &["--to", "null", "--rate", "fast"],
            "is not a rate: write original",
        ),
        (&["--to", "null", "--rate", "0pps"], "is not a rate"),
        (&["--to", "null", "--rate", "50%"], "does not tell"),
        (
            &["--to", "null", "--rate", "max", "--speed", "2x"],
            "leave one of them out",
        ),
        (
            &["--to", "null", "--dst-mac", "02:00"],
            "is not a MAC address",
        ),
        (&["--to", "no-such-if"], "no such network interface"),
        (
            &["--to", "null", "--to2", "null", "--split-by", "udp prt 53"],
            "--split-by",
        ),
    ];
    for (words, line) in wrong {
        let done = weir([&["replay", &file][..], words].concat());
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
        assert!(done.err.contains(line), "{words:?}: {}", done.err);
    }
    let missing = weir(["replay", "no-such.pcap", "--to", "null"]);
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    let raw = [pcap_header(65_535, 101), pcap_record(1, &[0x45; 40])].concat();
    let raw = temp.file("raw.pcap", &raw);
    let words = ["replay", &raw, "--to", "null"];
    let done = weir(words).ok();
    assert!(done.err.contains("1 read, 1 sent, 40 B"), "{}", done.err);
    let done = weir([&words[..], &["--dst-mac", "02:00:00:00:00:01"]].concat()).ok();
    assert!(done.err.contains("1 read, 1 sent, 54 B"), "{}", done.err);
    let done = weir([
        "replay", &file, "--to", "null", "--rate", "max", "--loop", "5",
    ])
    .ok();
    assert!(done.err.contains("15 read, 15 sent"), "{}", done.err);
}
