//! `--anonymize`: other addresses in all that is printed, written or saved.

use crate::support::*;
use std::os::unix::fs::PermissionsExt;

/// A key that its owner alone may read.
fn key(temp: &Temp) -> String {
    let key = temp.file("key", &[0x5a; 32]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    key
}

/// Whether the bytes are in a file.
fn holds(path: &str, bytes: &[u8]) -> bool {
    let file = std::fs::read(path).unwrap();
    file.windows(bytes.len()).any(|part| part == bytes)
}

#[test]
fn all_outputs_have_the_same_other_addresses() {
    let temp = Temp::new();
    let (key, file) = (key(&temp), temp.file("a.pcap", &small_pcap(20)));
    let [out, split] = ["out.pcap", "split.pcap"].map(|name| temp.at(name));
    let anonymize = ["--anonymize", &key, "--payload", "all"];
    let lines = weir([&["filter", "udp", &file][..], &anonymize].concat()).ok();
    let arguments = [
        "filter",
        "host 10.0.0.1",
        &file,
        "-w",
        &out,
        "--split",
        &format!("{split}=udp"),
    ];
    weir([&arguments[..], &anonymize].concat()).ok();
    assert!(!lines.text().contains("10.0.0.1"), "{}", lines.text());
    // The expression has seen the addresses of the source; -w has written others.
    assert_eq!(
        weir(["filter", "host 10.0.0.1", &out, "--count"])
            .ok()
            .count(),
        0
    );
    assert_eq!(weir(["filter", "udp", &out, "--count"]).ok().count(), 20);
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&split).unwrap());
    assert!(lines.out == weir(["filter", "", &out]).ok().out);
    for (before, after) in records(&file).iter().zip(records(&out)) {
        assert_eq!(before.wire_len, after.wire_len);
        assert_eq!(before.data[42..], after.data[42..], "payload and ports");
    }
    let headers = temp.at("headers.pcap");
    weir(["filter", "", &file, "--anonymize", &key, "-w", &headers]).ok();
    assert!(
        records(&headers)
            .iter()
            .all(|record| record.data.len() == 42)
    );
}

#[test]
fn texts_that_may_have_addresses_are_left_out() {
    let temp = Temp::new();
    let key = key(&temp);
    let mut bytes = pcapng_start(1);
    let names = [&[1u8, 0, 8, 0, 10, 0, 0, 1][..], b"rare\0\0\0\0", &[0; 4]].concat();
    bytes.extend(block(4, &names));
    bytes.extend(block(
        10,
        &[&b"KLST"[..], &[8, 0, 0, 0], b"RARE KEY"].concat(),
    ));
    bytes.extend(pcapng_packet(1_700_000_000, &udp(7, 5)));
    let file = temp.file("a.pcapng", &bytes);
    let out = temp.at("out.pcapng");
    let done = weir([
        "filter",
        "src host 10.0.0.1",
        &file,
        "--anonymize",
        &key,
        "-w",
        &out,
    ])
    .ok();
    for text in [&b"rare"[..], b"RARE KEY", b"10.0.0.1", &[10, 0, 0, 1]] {
        assert!(!holds(&out, text), "{text:?} {}", done.err);
    }
    weir(["filter", "src host 10.0.0.1", &file, "-w", &out]).ok();
    for text in [&b"rare"[..], b"RARE KEY", b"10.0.0.1"] {
        assert!(holds(&out, text), "{text:?}");
    }
}

#[test]
fn frames_that_cannot_be_taken_apart_are_cut_and_told() {
    let temp = Temp::new();
    let key = key(&temp);
    let mut bytes = pcap_header(65_535, 1);
    let discovery = [
        &[1, 0x80, 0xc2, 0, 0, 0xe, 0xa0, 1, 2, 3, 4, 5, 0x88, 0xcc][..],
        &[10, 0, 0, 1, 7],
    ]
    .concat();
    bytes.extend(pcap_record(1_700_000_000, &discovery));
    let file = temp.file("a.pcap", &bytes);
    let out = temp.at("out.pcap");
    let done = weir(["filter", "", &file, "--anonymize", &key, "-w", &out]).ok();
    assert!(
        done.err.contains("1 packet could not be taken apart"),
        "{}",
        done.err
    );
    let record = &records(&out)[0];
    assert_eq!((record.data.len(), record.wire_len), (14, 19));
    // A link type whose headers are not known has nothing that may be written.
    bytes[20] = 189;
    let file = temp.file("usb.pcap", &bytes);
    weir(["filter", "", &file, "--anonymize", &key, "-w", &out]).ok();
    assert!(records(&out)[0].data.is_empty());
}

#[test]
fn keys_and_flags_are_checked() {
    let temp = Temp::new();
    let (key, file) = (key(&temp), temp.file("a.pcap", &small_pcap(2)));
    let open = temp.file("open", &[1; 32]);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    for (arguments, line) in [
        (
            &["--anonymize", &open][..],
            "others than its owner may read the key (mode 644)",
        ),
        (&["--anonymize", &file], "a key has 32 bytes"),
        (&["--anonymize", "none"], "the key cannot be read"),
        (&["--payload", "3"], "--anonymize"),
        (
            &["--anonymize", &key, "--payload", "x"],
            "none of none, all and a number",
        ),
        (
            &["--anonymize", &key, "--count"],
            "--anonymize changes addresses of packets that are written",
        ),
    ] {
        if arguments[1] == file {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let done = weir([&["filter", "", &file][..], arguments].concat());
        assert_eq!(done.code, Some(2), "{arguments:?} {}", done.err);
        assert!(done.err.contains(line), "{}", done.err);
    }
    let done = weir(["measure", &file, "--anonymize", &key]);
    assert!(
        done.code == Some(2) && done.err.contains("none are"),
        "{}",
        done.err
    );
}

#[test]
fn files_that_triggers_save_have_other_addresses() {
    let temp = Temp::new();
    let (key, file) = (key(&temp), temp.file("a.pcap", &small_pcap(30)));
    let directory = temp.at("kept");
    let trigger = [
        "--ram",
        "2M",
        "--trigger",
        "seen=host 10.0.0.1",
        "--anonymize",
        &key,
    ];
    weir([&["record", &file, &directory][..], &trigger].concat()).ok();
    let saved = std::fs::read_dir(&directory).unwrap();
    let saved: Vec<_> = saved
        .map(|entry| entry.unwrap().path())
        .filter(|path| s(path).contains("trigger-seen"))
        .collect();
    assert!(!saved.is_empty());
    for path in saved {
        assert!(!holds(s(&path), &[10, 0, 0, 1]) && !holds(s(&path), b"10.0.0.1"));
        assert!(weir(["filter", "udp", s(&path), "--count"]).ok().count() > 0);
    }
}

/// As many wrong checksums as before, by tshark, over captures of all kinds.
#[test]
fn checksums_are_as_right_as_before() {
    let test = "checksums_are_as_right_as_before";
    if !have(test, &["tshark"]) {
        return;
    }
    let temp = Temp::new();
    let (key, file) = (key(&temp), temp.at("mix.pcap"));
    let out = temp.at("out.pcap");
    weir([
        "generate",
        &file,
        "--mix",
        "1",
        "--packets",
        "500",
        "--seed",
        "4",
    ])
    .ok();
    weir([
        "filter",
        "",
        &file,
        "--anonymize",
        &key,
        "--payload",
        "all",
        "-w",
        &out,
    ])
    .ok();
    let statuses = |file: &str| {
        let flags = [
            "ip.check_checksum",
            "tcp.check_checksum",
            "udp.check_checksum",
        ];
        let checks = flags
            .iter()
            .flat_map(|flag| ["-o".to_owned(), format!("{flag}:TRUE")]);
        let fields = ["ip", "tcp", "udp", "icmp", "icmpv6"].iter();
        let fields = fields.flat_map(|field| ["-e".to_owned(), format!("{field}.checksum.status")]);
        let all: Vec<String> = ["-n", "-T", "fields", "-r", file].map(str::to_owned).into();
        tool("tshark", all.into_iter().chain(checks).chain(fields))
            .ok()
            .out
    };
    let (before, after) = (statuses(&file), statuses(&out));
    assert!(before.contains(&b'1') && before == after);
}
