//! Numbers of matching packets: weir compared with tcpdump, over captures and expressions.

use crate::support::*;
use std::path::Path;

/// Expressions tried on every capture.
const ON_ALL: [&str; 5] = [
    "",
    "ip",
    "udp or tcp[tcpflags] & tcp-syn != 0",
    "not ip and len < 100",
    "ip6 or arp or vlan",
];

/// Expressions tried on some captures. A link type may refuse an expression, with tcpdump's message.
const ON_SOME: [&str; 40] = [
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "arp or rarp",
    "ip6",
    "port 53",
    "tcp port 80 or tcp port 443",
    "src port 80",
    "dst portrange 1-1023",
    "udp portrange 1000-60000",
    "host 10.0.0.6",
    "src host 10.0.0.6 and tcp",
    "net 10.0.0.0/8",
    "src net 192.168.0.0/16 or dst net 172.16.0.0/12",
    "not net 10.0.0.0/24",
    "ether broadcast",
    "ether multicast",
    "ip broadcast or ip multicast",
    "vlan",
    "vlan and ip",
    "mpls",
    "pppoes",
    "pppoes and ip",
    "ip proto 47",
    "proto \\sctp",
    "ip6 proto 58",
    "ip[8] < 64",
    "ip[6:2] & 0x3fff != 0",
    "tcp[13] & 2 != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src and dst net 10.0.0.0/8",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "udp[4:2] > 100",
    "ether[0] & 1 = 0 and ip[16] >= 224",
    "ether proto 0x88cc",
    "less 64",
    "greater 1000",
    "len >= 60 and len <= 200",
    "(tcp or udp) and not (port 53 or port 80)",
    "link[0] != 0 or ip[0] & 0xf != 5",
];

/// Captures of several link types and formats.
const SOME: [&str; 8] = [
    "pcapplusplus__example.pcap",
    "ndpi__fuzz-2006-06-26-2594.pcap",
    "ndpi__tls_heur__trojan-tcp-tls.pcapng",
    "pcapplusplus__one_ipv6_http_stream.pcap",
    "zeek__http-qinq-0.pcap",
    "suricata-verify__pppoe_input.pcap",
    "suricata-verify__defrag_bug-6887-defrag-ppp-ipv6-tcp_frag-ppp-ipv6-tcp.pcap",
    "zeek__ntp_ntp-no-extensions-mac.pcap",
];

/// tcpdump's count. **Errors**: tcpdump's message of refusal.
pub fn tcpdump_count(file: &str, expression: &str) -> Result<u64, String> {
    let done = tool("tcpdump", ["-n", "--count", "-r", file, expression]);
    match done.code {
        Some(0) => Ok(done.count()),
        _ => Err(done
            .err
            .lines()
            .last()
            .unwrap_or("")
            .trim_start_matches("tcpdump: ")
            .to_owned()),
    }
}

/// Compares the count, or the refusal, of weir and tcpdump.
fn compare(file: &str, expression: &str) {
    let ours = weir(["filter", expression, file, "--count"]);
    match tcpdump_count(file, expression) {
        Ok(count) => {
            assert_eq!(
                (ours.code, ours.count()),
                (Some(0), count),
                "'{expression}' on {file}: {}",
                ours.err
            );
        }
        Err(words) => {
            assert_eq!(
                ours.code,
                Some(2),
                "'{expression}' on {file}: tcpdump says {words}; {ours:?}"
            );
            let told = format!("weir: expression '{expression}': {words}");
            assert!(
                ours.err.starts_with(&told),
                "on {file}: {}\nwanted {told}",
                ours.err
            );
            assert!(ours.out.is_empty());
        }
    }
}

/// Finds how far tcpdump reads a file: `Ok` if it reads all. **Errors**: a file of the packets before it stops, or `None`
/// if it reads none.
fn part_tcpdump_reads(file: &Path, temp: &Temp) -> Result<bool, Option<String>> {
    let done = tool("tcpdump", ["-n", "-r", s(file), "-w", "-"]);
    if done.code == Some(0) {
        return Ok(true);
    }
    if done.out.len() <= 24 {
        return Err(None);
    }
    let count = parse_pcap(&done.out).1.len().to_string();
    let part = temp.at("part.pcap");
    weir(["filter", "", s(file), "-c", &count, "-w", &part]).ok();
    Err(Some(part))
}

#[test]
fn every_capture_counts_as_tcpdump_counts() {
    let test = "every_capture_counts_as_tcpdump_counts";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let (mut whole, mut partly) = (0, 0);
    for file in captures(test) {
        let temp = Temp::new();
        let part = match part_tcpdump_reads(&file, &temp) {
            Ok(_) => None,
            Err(Some(part)) => Some(part),
            Err(None) => continue,
        };
        *if part.is_some() {
            &mut partly
        } else {
            &mut whole
        } += 1;
        for expression in ON_ALL {
            compare(part.as_deref().unwrap_or(s(&file)), expression);
        }
    }
    eprintln!("{test}: {whole} captures as a whole, {partly} as far as libpcap reads them");
}

#[test]
fn many_expressions_count_as_tcpdump_counts() {
    let test = "many_expressions_count_as_tcpdump_counts";
    if !have(test, &["tcpdump"]) {
        return;
    }
    for file in SOME.iter().filter_map(|name| capture(test, name)) {
        for expression in ON_SOME {
            compare(s(&file), expression);
        }
    }
}

#[test]
fn a_count_and_its_inverse_make_the_total() {
    let test = "a_count_and_its_inverse_make_the_total";
    for file in SOME.iter().filter_map(|name| capture(test, name)) {
        let total = weir(["filter", "", s(&file), "--count"]).ok().count();
        assert_eq!(
            weir(["filter", "", s(&file), "--count", "--invert"])
                .ok()
                .count(),
            0
        );
        for expression in ["tcp", "ip and not udp", "len > 100", "ip6"] {
            let count = weir(["filter", expression, s(&file), "--count"])
                .ok()
                .count();
            let inverse = weir(["filter", expression, s(&file), "--count", "--invert"])
                .ok()
                .count();
            assert_eq!(count + inverse, total, "{expression} on {}", file.display());
        }
    }
}

#[test]
fn the_summary_counts_every_packet_once() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let done = weir([
        "filter",
        "udp dst portrange 1-4",
        &file,
        "--count",
        "--stats",
    ])
    .ok();
    assert_eq!(done.text(), "4\n");
    assert!(
        done.err
            .starts_with("10 received, 4 matched (40.0 %), 248 bytes, 0 dropped, "),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains("received 10 = passed 4 + filtered 6 + denied 0 + dropped 0"),
        "{}",
        done.err
    );
    let done = weir(["filter", "", &file, "--count", "-c", "3"]).ok();
    assert_eq!(done.text(), "3\n");
    assert!(
        done.err.starts_with("3 received, 3 matched (100.0 %)"),
        "{}",
        done.err
    );
}

#[test]
fn json_of_a_count_has_the_promised_keys() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let done = weir([
        "filter",
        "udp dst portrange 1-4",
        &file,
        "--count",
        "--json",
    ])
    .ok();
    let value: serde_json::Value = serde_json::from_slice(&done.out).unwrap();
    let wanted = serde_json::json!({
        "type": "summary", "received": 10, "matched": 4, "bytes": 248, "dropped": {}, "loss_not_recorded": true, "fault": null,
    });
    assert_eq!(value, wanted);

    let done = weir([
        "filter",
        "",
        &file,
        "--count",
        "--json",
        "--split",
        "low=udp dst portrange 1-3",
    ])
    .ok();
    let value: serde_json::Value = serde_json::from_slice(&done.out).unwrap();
    assert_eq!(value["splits"], serde_json::json!({"low": 3}));

    let cut = temp.file("cut.pcap", &small_pcap(10)[..200]);
    let done = weir(["filter", "", &cut, "--count", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&done.out).unwrap();
    assert_eq!(
        (done.code, &value["received"]),
        (Some(1), &serde_json::json!(2))
    );
    assert!(
        value["fault"]
            .as_str()
            .unwrap()
            .contains("cut.pcap: packet 3"),
        "{value}"
    );
}

#[test]
fn several_sources_are_read_in_a_row() {
    let temp = Temp::new();
    let a = temp.file("a.pcap", &small_pcap(10));
    let b = temp.file("b.pcap", &small_pcap(5));
    assert_eq!(weir(["filter", "", &a, &b, "--count"]).ok().count(), 15);
    assert_eq!(
        weir(["filter", "", &a, &a, "--count"]).ok().count(),
        20,
        "one file twice"
    );
    assert_eq!(
        weir(["filter", "udp dst port 5", &a, &b, "--count"])
            .ok()
            .count(),
        2
    );
    assert_eq!(
        weir(["filter", "", &a, &b, "--count", "-c", "12"])
            .ok()
            .count(),
        12
    );
    assert_eq!(
        weir_fed(["filter", "", &a, "-", "--count"], &small_pcap(7))
            .ok()
            .count(),
        17
    );
    let lines = weir(["filter", "udp dst port 5", &a, &b, "-tt"])
        .ok()
        .text();
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[test]
fn compressed_and_piped_sources_count_alike() {
    let test = "compressed_and_piped_sources_count_alike";
    let temp = Temp::new();
    let plain = temp.at("plain.pcap");
    weir(["generate", &plain, "--packets", "20000", "--seed", "5"]).ok();
    let bytes = std::fs::read(&plain).unwrap();
    let count = weir(["filter", "udp", &plain, "--count"]).ok().count();
    assert!(count > 1000, "{count}");
    assert_eq!(
        weir_fed(["filter", "udp", "-", "--count"], &bytes)
            .ok()
            .count(),
        count,
        "a pipe"
    );
    for program in ["gzip", "zstd", "lz4"] {
        if !have(test, &[program]) {
            continue;
        }
        let packed = tool_fed(program, ["-c"], &bytes).ok().out;
        // The contents decide on the format, not the name.
        let file = temp.file("packed.pcap", &packed);
        assert_eq!(
            weir(["filter", "udp", &file, "--count"]).ok().count(),
            count,
            "{program}"
        );
        assert_eq!(
            weir_fed(["filter", "udp", "-", "--count"], &packed)
                .ok()
                .count(),
            count,
            "{program}, a pipe"
        );
        let twice = [
            tool_fed(program, ["-c"], &bytes[..999_999]).out,
            tool_fed(program, ["-c"], &bytes[999_999..]).out,
        ];
        let file = temp.file("members.pcap", &twice.concat());
        assert_eq!(
            weir(["filter", "udp", &file, "--count"]).ok().count(),
            count,
            "{program}, two members"
        );
    }
}

/// The address family of a loopback frame has the byte order of the capturing machine, and so does the file.
#[test]
fn loopback_frames_of_either_byte_order_count_as_tcpdump_counts() {
    if !have(
        "loopback_frames_of_either_byte_order_count_as_tcpdump_counts",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let mut matched = 0;
    for big_endian in [false, true] {
        let word = |value: u32| {
            if big_endian {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let half = |value: u16| {
            if big_endian {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let mut bytes = [
            word(0xa1b2_c3d4).to_vec(),
            half(2).to_vec(),
            half(4).to_vec(),
        ]
        .concat();
        [0, 0, 65_535, 0]
            .map(word)
            .iter()
            .for_each(|field| bytes.extend_from_slice(field));
        for (family, version) in [
            ([0, 0, 0, 2], 0x45),
            ([2, 0, 0, 0], 0x45),
            ([0, 0, 0, 10], 0x60),
            ([10, 0, 0, 0], 0x60),
        ] {
            let mut data = family.to_vec();
            data.resize(4 + 48, 0);
            data[4] = version;
            data[4 + 9] = 17;
            data[4 + 6] = if version == 0x60 { 17 } else { 0 };
            [0, 0, data.len() as u32, data.len() as u32]
                .map(word)
                .iter()
                .for_each(|field| bytes.extend_from_slice(field));
            bytes.extend_from_slice(&data);
        }
        let file = temp.file(
            if big_endian {
                "big.pcap"
            } else {
                "little.pcap"
            },
            &bytes,
        );
        for expression in ["ip", "ip6", "udp", "not ip", "ip6 proto 17"] {
            compare(&file, expression);
            matched += tcpdump_count(&file, expression).unwrap();
        }
    }
    assert!(matched > 0, "the frames are such that some match");
}

/// An interface description block without snap length.
fn interface(link: u16) -> Vec<u8> {
    pcapng_start(link)[28..].to_vec()
}

/// An enhanced packet block of the interface `id`.
fn packet_of(id: u32, seconds: u32, data: &[u8]) -> Vec<u8> {
    let mut block = pcapng_packet(seconds, data);
    block[8..12].copy_from_slice(&id.to_le_bytes());
    block
}

const USB_LINUX: u16 = 189;

/// A pcapng file of datagrams to ports 1 to 40 on Ethernet, each followed by a USB packet; and a pcap file of the datagrams
/// alone.
fn two_link_types(usb: u32, ethernet: u32, head: Vec<u8>, between: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let (mut both, mut alone) = (head, pcap_header(65_535, 1));
    both.extend((0..20u32).flat_map(|i| packet_of(usb, i, &[7; 48])));
    both.extend(between);
    for i in 0..40u16 {
        let frame = udp(i + 1, 10);
        both.extend(packet_of(ethernet, 100 + u32::from(i), &frame));
        both.extend(packet_of(usb, 100 + u32::from(i), &[7; 48]));
        alone.extend(pcap_record(100 + u32::from(i), &frame));
    }
    (both, alone)
}

#[test]
fn a_file_of_several_link_types_is_read_to_its_end() {
    let test = "a_file_of_several_link_types_is_read_to_its_end";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let start = |links: &[u16]| {
        [
            pcapng_start(links[0]),
            links[1..]
                .iter()
                .flat_map(|&link| interface(link))
                .collect(),
        ]
        .concat()
    };
    let files = [
        (
            "ethernet-first",
            two_link_types(1, 0, start(&[1, USB_LINUX]), Vec::new()),
        ),
        (
            "usb-first",
            two_link_types(0, 1, start(&[USB_LINUX, 1]), Vec::new()),
        ),
        // The Ethernet interface is declared only after the first packets.
        (
            "ethernet-later",
            two_link_types(0, 1, start(&[USB_LINUX]), interface(1)),
        ),
    ];
    for (name, (both, alone)) in &files {
        let (file, alone) = (
            temp.file(&format!("{name}.pcapng"), both),
            temp.file("alone.pcap", alone),
        );
        let usb = if *name == "ethernet-first" { 1 } else { 0 };
        for expression in [
            "udp",
            "udp dst portrange 3-9",
            "tcp or ip6",
            "ip and len > 30",
        ] {
            let expected = tcpdump_count(&alone, expression).expect("tcpdump takes it");
            let told = format!(
                "60 packets of link type USB_LINUX (interface {usb}) do not match: expression '{expression}': \
                 USB link-layer type filtering not implemented"
            );
            let context = format!("'{expression}' on {name}");
            let once = |done: &Done| {
                let lines: Vec<&str> = done
                    .err
                    .lines()
                    .filter(|line| line.starts_with("weir: "))
                    .collect();
                assert!(
                    lines.len() == 1 && lines[0].ends_with(&told),
                    "{context}: {}",
                    done.err
                );
            };
            let out = temp.at("out.pcapng");
            for more in [
                &["--workers", "3"][..],
                &["--merge"],
                &["-w", &out, "--workers", "1"],
            ] {
                let count = if more.contains(&"-w") {
                    &[][..]
                } else {
                    &["--count"]
                };
                let done =
                    weir([&["filter", expression, &file, "--stats"], more, count].concat()).ok();
                once(&done);
                let account = format!(
                    "received 100 = passed {expected} + filtered {} + denied 0",
                    100 - expected
                );
                assert!(done.err.contains(&account), "{context}: {}", done.err);
            }
            assert_eq!(
                weir(["filter", "", &out, "--count"]).ok().count(),
                expected,
                "{context}"
            );
            let piped = weir_fed(["filter", expression, "-", "--count"], both).ok();
            once(&piped);
            assert_eq!(piped.count(), expected, "{context}");
            for design in [
                &["--workers", "1"][..],
                &["--workers", "2"],
                &["--workers", "2", "--design", "async"],
            ] {
                let done = weir(
                    [
                        &["measure", "--json", "--filter", expression, &file],
                        design,
                    ]
                    .concat(),
                )
                .ok();
                once(&done);
                let value: serde_json::Value = serde_json::from_slice(&done.out).unwrap();
                let account = ["received", "passed", "filtered"]
                    .map(|key| value[key].as_u64().expect("a count"));
                assert_eq!(
                    account,
                    [100, expected, 100 - expected],
                    "{context} {design:?}"
                );
            }
            if *name != "ethernet-later" {
                let inverse = weir(["filter", expression, &file, "--count", "--invert"]).ok();
                assert_eq!(inverse.count(), 100 - expected, "{context}");
            }
        }
        // An expression valid for both link types applies to both, without a message.
        let done = weir(["filter", "len > 47", &file, "--count"]).ok();
        assert_eq!(
            done.count(),
            60 + tcpdump_count(&alone, "len > 47").unwrap(),
            "{name}"
        );
        assert!(!done.err.contains("weir:"), "{}", done.err);
    }
    // A split that matches one link type only.
    let (both, alone) = &files[0].1;
    let (file, alone) = (
        temp.file("both.pcapng", both),
        temp.file("alone.pcap", alone),
    );
    let split = weir([
        "filter",
        "",
        &file,
        "--count",
        "--split",
        "low=udp dst port 1 or udp dst port 2",
    ])
    .ok();
    assert_eq!(split.text(), "100\n2 low\n");
    assert!(
        split
            .err
            .contains("60 packets of link type USB_LINUX (interface 1) do not match: "),
        "{}",
        split.err
    );
    // An interface without packets refuses no expression, and no message mentions it.
    let unused = [start(&[1, USB_LINUX]), packet_of(0, 1, &udp(5, 1))].concat();
    let done = weir([
        "filter",
        "udp",
        &temp.file("unused.pcapng", &unused),
        "--count",
    ])
    .ok();
    assert_eq!(done.count(), 1);
    assert!(!done.err.contains("weir:"), "{}", done.err);
    assert_eq!(tcpdump_count(&alone, "udp"), Ok(40));
}

#[test]
fn an_expression_that_fits_no_link_type_of_a_file_is_refused() {
    let temp = Temp::new();
    let packets: Vec<u8> = (0..20).flat_map(|i| packet_of(0, i, &[7; 48])).collect();
    let usb = [
        pcapng_start(USB_LINUX),
        packets,
        interface(USB_LINUX),
        packet_of(1, 1, &[8; 40]),
    ]
    .concat();
    let file = temp.file("usb.pcapng", &usb);
    let good = temp.file("good.pcap", &small_pcap(4));
    let out = temp.at("out.pcapng");
    let words = "expression 'udp': USB link-layer type filtering not implemented";
    for more in [
        &["--count"][..],
        &["--merge"],
        &["-w", &out],
        &["--split", &format!("{out}=len > 1")],
        &["--invert"],
    ] {
        let done = weir([&["filter", "udp", &file], more].concat());
        assert_eq!(
            (done.code, done.err.as_str()),
            (Some(2), format!("weir: {words}\n").as_str()),
            "{more:?}"
        );
        assert!(done.out.is_empty() && !Path::new(&out).exists(), "{more:?}");
    }
    for more in [
        &[][..],
        &["--window", "1s"],
        &["--design", "async", "--workers", "2"],
    ] {
        let done = weir([&["measure", "--filter", "udp", &file], more].concat());
        assert_eq!(
            (done.code, done.err.as_str()),
            (Some(2), format!("weir: --filter: {words}\n").as_str()),
            "{more:?}"
        );
        assert!(done.out.is_empty(), "{more:?}");
    }
    let split = weir(["filter", "len > 1", &file, "--split", &format!("{out}=udp")]);
    assert_eq!(
        (split.code, Path::new(&out).exists()),
        (Some(2), false),
        "{}",
        split.err
    );
    // After a source of a fitting link type, the refusal is a fault of one source only, and earlier matches count.
    let done = weir(["filter", "udp", &good, &file, "--count"]);
    assert_eq!((done.code, done.count()), (Some(1), 4), "{}", done.err);
    assert!(
        done.err.starts_with(&format!("weir: {file}: {words}\n")),
        "{}",
        done.err
    );
    // An expression refused by every link type is refused before anything is read.
    let mixed = temp.file(
        "mixed.pcapng",
        &[
            pcapng_start(1),
            interface(USB_LINUX),
            packet_of(0, 1, &udp(1, 1)),
        ]
        .concat(),
    );
    for expression in ["foo bar", "udp and", "tcp port 99999"] {
        let done = weir(["filter", expression, &mixed, "--count"]);
        assert_eq!(
            (done.code, done.err.lines().count()),
            (Some(2), 1),
            "{}",
            done.err
        );
    }
}
