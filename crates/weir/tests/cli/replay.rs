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
    let more = [
        "-B",
        "16384",
        "--time-stamp-precision=nano",
        "-i",
        "far",
        "-U",
        "-w",
        file,
    ];
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

/// A packet of IPv4 without a checksum.
fn ip4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u8;
    let head = [0x45, 0, 0, len, 0, 1, 0, 0, 64, protocol, 0, 0];
    [&head[..], &[10, 0, 0, 1, 10, 0, 0, 2], payload].concat()
}

/// tshark says which packets of routers and hosts lie behind tags, labels and PPPoE; in tunnels of IP they are payload.
#[test]
fn control_packets_are_found_behind_tags_labels_and_pppoe() {
    let test = "control_packets_are_found_behind_tags_labels_and_pppoe";
    if !have(test, &["tshark"]) {
        return;
    }
    let ports = |source: u16, destination: u16| {
        let words = [source, destination, 20, 0];
        [&words.map(u16::to_be_bytes).concat()[..], &[0; 12]].concat()
    };
    let mut advertisement = vec![0x60, 0, 0, 0, 0, 16, 58, 255];
    advertisement.extend([0xfe; 32]);
    advertisement.extend([134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    let ospf = [&[2, 1, 0, 44][..], &[0; 40]].concat();
    let packets = [
        (0x86dd, advertisement),
        (0x0800, ip4(17, &ports(68, 67))),
        (0x0800, ip4(89, &ospf)),
        (0x0800, ip4(17, &ports(4000, 53))),
        (0x0800, ip4(1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0])),
    ];
    let framed = |types: &[u16], header: &[u8], packet: &[u8]| {
        let types: Vec<u8> = types.iter().flat_map(|it| it.to_be_bytes()).collect();
        [
            &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..],
            &types,
            header,
            packet,
        ]
        .concat()
    };
    let session = |kind: u16, packet: &[u8]| {
        let ppp = if kind == 0x0800 { 0x21 } else { 0x57 };
        [0x11, 0, 0, 1, 0, packet.len() as u8 + 2, 0, ppp]
    };
    let label = |number: u8, bottom: u8| [0, number, bottom, 64];
    let mut all = Vec::new();
    for (kind, packet) in &packets {
        let (kind, plain) = (*kind, framed(&[*kind], &[], packet));
        let gre = [&[0, 0][..], &kind.to_be_bytes(), packet].concat();
        let vxlan = [&ports(5000, 4789)[..8], &[8, 0, 0, 0, 0, 0, 7, 0], &plain].concat();
        all.extend([
            framed(&[0x8100, 5, kind], &[], packet),
            framed(&[0x88a8, 5, 0x8100, 6, kind], &[], packet),
            framed(&[0x8847], &label(1, 1), packet),
            framed(
                &[0x8100, 5, 0x8847],
                &[label(1, 0), label(2, 1)].concat(),
                packet,
            ),
            framed(&[0x8847], &[label(3, 1), [0; 4]].concat(), &plain),
            framed(&[0x8847], &label(4, 1), &plain),
            framed(&[0x8864], &session(kind, packet), packet),
            framed(&[0x8100, 5, 0x8864], &session(kind, packet), packet),
            framed(&[0x0800], &[], &ip4(47, &gre)),
            framed(&[0x0800], &[], &ip4(17, &vxlan)),
            plain,
        ]);
    }
    // LCP: an echo.
    all.push(framed(
        &[0x8864],
        &[0x11, 0, 0, 1, 0, 10, 0xc0, 0x21],
        &[9, 1, 0, 8, 0, 0, 0, 1],
    ));
    let temp = Temp::new();
    let file = temp.file("in.pcapng", &capture_of(&all, 10));
    let wanted = "(icmpv6.type == 134 || udp.dstport == 67 || ospf || lcp) && !gre && !vxlan";
    // No field of MPLS says which of the two carries a control word.
    let words = ["mpls.label==48,pwethcw", "-d", "mpls.label==64,pwethnocw"];
    let words = [&["-r", &file, "-d"][..], &words, &["-Y", wanted]].concat();
    let expected = tool("tshark", &words).ok().text().lines().count();
    assert_eq!(expected, 3 * 9 + 1);
    let words = ["replay", &file, "--to", "null", "--rate", "max", "--json"];
    let done = weir(words).ok();
    let answer: Value = serde_json::from_str(done.text().trim()).expect("it is JSON");
    assert_eq!(answer["control"], expected);
    assert_eq!(answer["sent"], all.len() - expected);
}

/// A sender without a receiver says that its link is lost while it sends, and with --strict that is an error. The kernel's counters say
/// what arrived.
#[test]
fn a_lost_link_is_told_while_packets_leave() {
    let test = "a_lost_link_is_told_while_packets_leave";
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let file = temp.file("in.pcapng", &capture_of(&frames(200), 1_000));
    let replay = ["replay", &file, "--to", "near", "--loop"];
    let generate = ["generate", "af_packet:near", "--profile", "64"];
    let generate = [&generate[..], &["--rate", "1kpps", "--forever"]].concat();
    let weir = [env!("CARGO_BIN_EXE_weir")];
    for (words, is_strict) in [(&replay[..], true), (&generate, true), (&replay, false)] {
        let more = if is_strict { &["--strict"][..] } else { &[] };
        let sending = net.start(&[&weir, words, more].concat(), "packets leave by near");
        let before = net.received("far", "far");
        weir_testkit::wait::until("packets", || net.received("far", "far") > before);
        net.inside("far", &["ip", "link", "set", "far", "down"])
            .ok();
        let sending = sending.until("weir: af_packet:near: the link is down, at ");
        let there = net.received("far", "far");
        net.inside("far", &["ip", "link", "set", "far", "up"]).ok();
        let sending = sending.until("weir: af_packet:near: the link is up again, after ");
        weir_testkit::wait::until("packets", || net.received("far", "far") > there);
        let done = sending.stop();
        assert_eq!(done.code, Some(i32::from(is_strict)), "{}", done.err);
        assert_eq!(done.err.matches("the link is").count(), 2, "{}", done.err);
    }
}

/// A mistake in an expression is found before anything says that packets leave.
#[test]
fn wrong_expressions_are_refused_before_packets_leave() {
    let temp = Temp::new();
    let file = temp.file("in.pcapng", &capture_of(&frames(2), 10));
    for (words, place) in [
        (
            &["--filter", "udp prot 53"][..],
            "expression 'udp prot 53': ",
        ),
        (
            &["--to2", "null", "--split-by", "udp prot 53"],
            "--split-by: ",
        ),
    ] {
        let done = weir([&["replay", &file, "--to", "null"], words].concat());
        assert_eq!(done.code, Some(2), "{}", done.err);
        assert!(
            done.err.starts_with(&format!("weir: {place}")),
            "{}",
            done.err
        );
    }
}

/// A port that fails while a packet waits for its time has a line for this packet and all after it.
#[test]
fn packets_that_waited_for_a_port_that_failed_are_counted() {
    let test = "packets_that_waited_for_a_port_that_failed_are_counted";
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let file = temp.file("in.pcapng", &capture_of(&frames(40), 1_000));
    for port in ["inject:near", "af_packet:near"] {
        if port == "inject:near" && !net.injects() {
            continue;
        }
        let words = ["replay", &file, "--to", port, "--rate", "0.1pps"];
        let words = [&[env!("CARGO_BIN_EXE_weir")][..], &words].concat();
        let sending = net.start(&words, "the source ends");
        net.inside("near", &["ip", "link", "set", "near", "down"])
            .ok();
        let done = sending.done();
        assert_eq!(done.code, Some(1), "{}", done.err);
        let number = |end: &str| {
            let before = done.err.split(end).next().unwrap_or_default();
            let number = before
                .rsplit([' ', '\n'])
                .next()
                .and_then(|it| it.parse().ok());
            number.unwrap_or_else(|| panic!("{end}: {}", done.err))
        };
        let (sent, failed): (u32, u32) = (number(" sent, "), number(" packets not sent: "));
        assert_eq!(sent + failed, 40, "{}", done.err);
        net.inside("near", &["ip", "link", "set", "near", "up"])
            .ok();
    }
}
