//! Failures and their messages: one line each, packets before the fault delivered, the right exit code, no panic.

mod names;
mod outputs;

use crate::support::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// A file, and the expected result of reading it.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// Packets before the fault.
    good: u64,
    /// Text of the message after `weir: FILE: `.
    says: &'static str,
}

fn case(name: &'static str, good: u64, says: &'static str, bytes: impl Into<Vec<u8>>) -> Case {
    Case {
        name,
        bytes: bytes.into(),
        good,
        says,
    }
}

/// Copy of `bytes` with the words at `at` replaced.
fn patched(mut bytes: Vec<u8>, at: usize, words: &[u32]) -> Vec<u8> {
    for (i, word) in words.iter().enumerate() {
        bytes[at + 4 * i..at + 4 * i + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Two good packets in a pcapng file, followed by `more`.
fn ng(more: &[u8]) -> Vec<u8> {
    [
        pcapng_start(1),
        pcapng_packet(1, &udp(1, 2)),
        pcapng_packet(2, &udp(2, 2)),
        more.to_vec(),
    ]
    .concat()
}

/// Cases whose file has no header that can be read. No line claims a place in them or a number of packets.
const UNREAD: [&str; 16] = [
    "empty",
    "three-bytes",
    "cut-file-header",
    "zeros",
    "text",
    "elf",
    "snoop",
    "kuznetzov",
    "netmon",
    "xz",
    "bzip2",
    "zip",
    "pcap-version",
    "ng-only-type",
    "ng-byte-order",
    "ng-version",
];

fn cases() -> Vec<Case> {
    const RECORD: usize = 16 + 62;
    let pcap = small_pcap(12);
    let third = 24 + 2 * RECORD;
    let packet = pcapng_packet(3, &udp(3, 2));
    let lying = |word: u32, value: u32| ng(&patched(packet.clone(), word as usize * 4, &[value]));
    let mut huge = packet.clone();
    huge = patched(huge, 4, &[0x4000_0000]);
    vec![
        case("empty", 0, "the file is empty", []),
        case(
            "three-bytes",
            0,
            "the file ends inside the file header: 3 of 24 bytes are there",
            [0xd4, 0xc3, 0xb2],
        ),
        case(
            "cut-file-header",
            0,
            "the file ends inside the pcap file header: 20 of 24 bytes are there",
            &pcap[..20],
        ),
        case(
            "cut-in-record-header",
            2,
            "packet 3, offset 180: the file ends inside a record header: 7 of 16 bytes are there; 2 packets before it were delivered",
            &pcap[..third + 7],
        ),
        case(
            "cut-in-data",
            2,
            "packet 3, offset 180: the file ends inside a packet: it claims 62 bytes, 30 are there; 2 packets before it were delivered",
            &pcap[..third + 46],
        ),
        case(
            "cut-in-first",
            0,
            "packet 1, offset 24: the file ends inside a packet: it claims 62 bytes, 1 are there; no packet was delivered",
            &pcap[..41],
        ),
        case(
            "cut-in-second",
            1,
            "the packet before it was delivered",
            &pcap[..24 + RECORD + 20],
        ),
        case(
            "absurd-length",
            11,
            "packet 12, offset 882: record claims 4294967295 bytes, the file's snap length is 65535; 11 packets before it were delivered",
            patched(pcap.clone(), 24 + 11 * RECORD + 8, &[u32::MAX]),
        ),
        case(
            "absurd-first",
            0,
            "packet 1, offset 24: record claims 16777216 bytes",
            patched(pcap.clone(), 32, &[1 << 24]),
        ),
        case(
            "zeros",
            0,
            "not a pcap or pcapng file (it begins with bytes 00 00 00 00)",
            [0; 4096],
        ),
        case(
            "text",
            0,
            "not a pcap or pcapng file (it begins with \"hell\")",
            *b"hello world, this is no capture",
        ),
        case(
            "elf",
            0,
            "not a pcap or pcapng file (it begins with bytes 7f 45 4c 46)",
            *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
        ),
        case(
            "snoop",
            0,
            "a snoop capture, which is not read: convert it with `editcap -F pcapng`",
            *b"snoop\0\0\0\0\0\0\x02\0\0\0\x04",
        ),
        case(
            "kuznetzov",
            0,
            "modified pcap (Kuznetzov's patched libpcap)",
            patched(pcap.clone(), 0, &[0xa1b2_cd34]),
        ),
        case(
            "netmon",
            0,
            "a Microsoft Network Monitor capture",
            *b"GMBU\0\x02\0\0\0\0\0\0\0\0\0\0",
        ),
        case(
            "xz",
            0,
            "xz compressed: pipe it through `xz -dc",
            [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 0],
        ),
        case(
            "bzip2",
            0,
            "bzip2 compressed: pipe it through `bzip2 -dc",
            *b"BZh91AY&SY\0\0\0\0",
        ),
        case(
            "zip",
            0,
            "a zip archive: unpack it first",
            *b"PK\x03\x04\0\0\0\0\0\0\0\0",
        ),
        case(
            "pcap-version",
            0,
            "pcap version 2.9, which is not supported",
            patched(pcap.clone(), 4, &[0x0009_0002]),
        ),
        case(
            "ng-only-type",
            0,
            "the file ends inside",
            [0x0a, 0x0d, 0x0d, 0x0a],
        ),
        case(
            "ng-byte-order",
            0,
            "section header with byte order mark 0x12345678",
            patched(ng(&[]), 8, &[0x1234_5678]),
        ),
        case(
            "ng-version",
            0,
            "pcapng version 7.0, which is not supported",
            patched(ng(&[]), 12, &[7]),
        ),
        case(
            "ng-length-not-aligned",
            2,
            "block of type 0x00000006 claims a total length of 81 bytes, not a multiple of 4",
            lying(1, 81),
        ),
        case(
            "ng-length-tiny",
            2,
            "block of type 0x00000006 claims a total length of 8 bytes, less than an empty block has",
            lying(1, 8),
        ),
        case(
            "ng-length-zero",
            2,
            "claims a total length of 0 bytes",
            lying(1, 0),
        ),
        case(
            "ng-length-short",
            2,
            "block of type 0x00000006 says",
            lying(1, 40),
        ),
        case(
            "ng-trailer",
            2,
            "block of type 0x00000006 says 76 bytes at its start and 77 at its end",
            ng(&patched(packet.clone(), 72, &[77])),
        ),
        case(
            "ng-too-large",
            2,
            "block of type 0x00000006 claims a total length of 1073741824 bytes, more than any packet needs",
            ng(&huge),
        ),
        case(
            "ng-cut",
            2,
            "the file ends inside a packet block: it claims 76 bytes, 50 are there",
            ng(&packet[..50]),
        ),
        case(
            "ng-cut-in-type",
            2,
            "the file ends inside",
            ng(&packet[..2]),
        ),
        case(
            "ng-captured",
            2,
            "packet claims 4294967295 bytes, its block has room for 44",
            lying(5, u32::MAX),
        ),
        case(
            "ng-interface",
            2,
            "packet names interface 9, the section has described 1",
            lying(2, 9),
        ),
        case(
            "ng-no-interface",
            0,
            "packet names interface 0, the section has described 0",
            [pcapng_start(1)[..28].to_vec(), packet.clone()].concat(),
        ),
    ]
}

/// Asserts that standard error has `faults` fault lines, then one summary if `summary`, and no panic.
#[track_caller]
fn assert_told(context: &str, done: &Done, faults: usize, summary: bool) {
    assert!(!done.err.contains("panicked"), "{context}: {}", done.err);
    let told = done
        .err
        .lines()
        .filter(|line| line.starts_with("weir: "))
        .count();
    let all = done.err.lines().count();
    assert_eq!(
        (told, all),
        (faults, faults + usize::from(summary)),
        "{context}: {}",
        done.err
    );
    if summary {
        let last = done.err.lines().last().unwrap();
        assert!(last.contains(" received, "), "{context}: {last}");
        assert_eq!(
            last.ends_with(", incomplete: see the fault above"),
            faults > 0,
            "{context}: {last}"
        );
    }
}

#[test]
fn what_is_before_the_fault_is_delivered_and_counted() {
    for Case {
        name,
        bytes,
        good,
        says,
    } in cases()
    {
        let temp = Temp::new();
        let file = temp.file(name, &bytes);
        let sources: [(&str, &str, &[u8]); 2] =
            [(&file, &file, &[]), ("-", "standard input", &bytes)];
        for (source, called, input) in sources {
            let context = format!("{name} from {called}");
            let is_unread = UNREAD.contains(&name);
            let check = |done: &Done| {
                assert_eq!(done.code, Some(1), "{context}: {}", done.err);
                let line = done.err.lines().next().unwrap_or("");
                let begins = match is_unread {
                    true => format!("weir: {called}: {says}"),
                    false => format!("weir: {called}: packet {}, offset ", good + 1),
                };
                assert!(line.starts_with(&begins), "{context}: {line}");
                assert!(line.contains(says), "{context}: {line}\nwanted {says}");
            };

            let count = weir_fed(["filter", "", source, "--count"], input);
            check(&count);
            assert_told(&context, &count, 1, !is_unread);
            let counted = |done: &Done| match is_unread {
                true => assert_eq!(done.text(), "", "{context}: 0 would be an answer"),
                false => assert_eq!(done.count(), good, "{context}"),
            };
            counted(&count);

            let lines = weir_fed(["filter", "", source, "-t"], input);
            check(&lines);
            assert_eq!(lines.text().lines().count() as u64, good, "{context}");

            for out in ["out.pcap", "out.pcapng"] {
                let out = temp.at(out);
                let written = weir_fed(["filter", "", source, "-w", &out], input);
                check(&written);
                assert_told(&context, &written, 1, !is_unread);
                if Path::new(&out).exists() {
                    assert_eq!(records(&out).len() as u64, good, "{context}");
                    std::fs::remove_file(&out).unwrap();
                } else {
                    assert_eq!(good, 0, "{context}");
                }
            }

            let info = weir_fed(["info", source, "--json"], input);
            check(&info);
            assert_told(&context, &info, 1, false);
            let value: serde_json::Value = serde_json::from_slice(&info.out).unwrap();
            assert_eq!(value["packets"], good, "{context}");
            assert!(
                value["faults"][0].as_str().unwrap().contains(says),
                "{context}"
            );

            let merged = weir_fed(["filter", "", source, "--merge", "--count"], input);
            check(&merged);
            counted(&merged);
        }
        // The next source is read nevertheless.
        let next = temp.file("next.pcap", &small_pcap(3));
        let both = weir(["filter", "", &file, &next, "--count"]);
        assert_eq!((both.code, both.count()), (Some(1), good + 3), "{name}");
        assert_told(name, &both, 1, true);
    }
}

#[test]
fn a_file_cut_anywhere_is_told_of_in_one_line() {
    let temp = Temp::new();
    for (name, whole, good) in [("in.pcap", small_pcap(3), 3), ("in.pcapng", ng(&[]), 2)] {
        for len in (0..whole.len()).step_by(3) {
            let file = temp.file(name, &whole[..len]);
            let done = weir(["filter", "", &file, "--count"]);
            let clean = weir(["info", "--json", &file]).code == Some(0);
            // The header of a pcap file, and the section header of the pcapng file.
            let has_header = len >= if name == "in.pcap" { 24 } else { 28 };
            assert_told(
                &format!("{name} cut to {len}"),
                &done,
                usize::from(!clean),
                has_header,
            );
            assert_eq!(done.code, Some(i32::from(!clean)));
            match has_header {
                true => assert!(done.count() < good || clean, "{name} cut to {len}"),
                false => assert_eq!(done.text(), "", "{name} cut to {len}"),
            }
        }
    }
}

#[test]
fn damaged_compression_is_told_of_behind_what_it_held() {
    let test = "damaged_compression_is_told_of_behind_what_it_held";
    let temp = Temp::new();
    let plain = temp.at("plain.pcap");
    weir(["generate", &plain, "--packets", "30000"]).ok();
    let bytes = std::fs::read(&plain).unwrap();
    for program in ["gzip", "zstd", "lz4"] {
        if !have(test, &[program]) {
            continue;
        }
        let packed = tool_fed(program, ["-c"], &bytes).ok().out;
        let mut flipped = packed.clone();
        let middle = packed.len() / 2;
        flipped[middle..middle + 64].fill(0xa5);
        let damaged = [
            ("cut", packed[..middle].to_vec()),
            ("flipped", flipped),
            ("head-only", packed[..4].to_vec()),
        ];
        for (how, bytes) in damaged {
            let context = format!("{program}, {how}");
            let file = temp.file("packed", &bytes);
            for done in [
                weir(["filter", "", &file, "--count"]),
                weir_fed(["filter", "", "-", "--count"], &bytes),
            ] {
                assert_eq!(done.code, Some(1), "{context}: {}", done.err);
                let is_unread = how == "head-only";
                assert_told(&context, &done, 1, !is_unread);
                if is_unread {
                    assert_eq!(done.text(), "", "{context}: nothing was decoded");
                    continue;
                }
                assert!(done.count() < 30_000, "{context}: {}", done.err);
                assert!(
                    done.count() > 1000 || how != "cut",
                    "{context}: {} packets; {}",
                    done.count(),
                    done.err
                );
            }
            let out = temp.at("out.pcap");
            let done = weir(["filter", "", &file, "-w", &out]);
            if how == "cut" {
                let ours = std::fs::read(&out).unwrap();
                assert!(
                    bytes_begin(&std::fs::read(&plain).unwrap(), &ours),
                    "{context}: {}",
                    done.err
                );
            }
        }
    }
}

/// Whether `whole` begins with all of `part`.
fn bytes_begin(whole: &[u8], part: &[u8]) -> bool {
    whole.get(..part.len()).is_some_and(|start| start == part)
}

#[test]
fn a_wrong_command_does_nothing() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(4));
    let out = temp.at("out.pcap");
    let link_name = temp.at("link.pcap");
    std::os::unix::fs::symlink(&file, &link_name).unwrap();
    let before = std::fs::read(&file).unwrap();
    let numbered = format!("{out}12");
    let numbered_split = format!("{numbered}=udp");
    let roundabout = format!("{}=udp", out.replace("out.pcap", "./out.pcap"));
    let twice = format!("{out}=udp");
    let onto = format!("{file}=udp");
    let table: &[(&[&str], &str)] = &[
        (
            &["foo bar", &file],
            "weir: expression 'foo bar': can't parse filter expression: syntax error",
        ),
        (
            &["tcp and", &file],
            "weir: expression 'tcp and': can't parse filter expression: syntax error",
        ),
        (
            &["port 99999999", &file],
            "weir: expression 'port 99999999': ",
        ),
        (
            &["tcp", &file, "--split", "x=foo bar"],
            "weir: expression 'foo bar': ",
        ),
        (
            &["host example.com", &file],
            "would be looked up over the network: write its address, or allow it with --resolve\n",
        ),
        (
            &["tcp or src host localhost", &file],
            "allow it with --resolve\n",
        ),
        (
            &["", &file, "-w", &file],
            "is both source and output: it would be emptied before it is read\n",
        ),
        (&["", &file, "-w", &link_name], "is both source and output"),
        (&["", &file, "--split", &onto], "is both source and output"),
        (
            &["", &file, "-w", &out, "--split", &twice],
            "is the name of two outputs: each needs its own\n",
        ),
        (
            &["", &file, "--split", &twice, "--split", &twice],
            "is the name of two outputs",
        ),
        (
            &[&file, "tcp"],
            "is a file where the expression should be: weir filter EXPR SOURCE",
        ),
        (
            &["in.pcap", &file],
            "is a file where the expression should be",
        ),
        (
            &["", "-", "-"],
            "weir: standard input is named twice, and can be read once\n",
        ),
        (
            &["", &file, &file, "--follow"],
            "weir: --follow never comes to the end of the first source: name only one\n",
        ),
        (
            &["", &file, "--follow", "--merge"],
            "weir: --merge needs the end of each source, and --follow has none\n",
        ),
        (
            &["", &file, "-w", &out, "-W", "3"],
            "weir: -W counts the files of -C or -G: give one of them\n",
        ),
        (
            &["", &file, "-w", &file[..file.len() - 5], "-e"],
            "weir: -e, -x, -X, -A, -v, -q, -S, -# and --nano are about lines, and -w and --split write",
        ),
        (
            &["", &file, "--split", "a=tcp", "-x"],
            "weir: -e, -x, -X, -A, -v, -q, -S, -# and --nano are about lines, and -w and --split write",
        ),
        (
            &["", "-r", &numbered, "-w", &out, "-C", "1"],
            "which is a source: give -w another name",
        ),
        (
            &["", "-r", &numbered, "-w", &out, "-G", "1"],
            "which is a source: give -w another name",
        ),
        (
            &["", &file, "-w", &out, "-C", "1", "--split", &numbered_split],
            "so that both come to one name",
        ),
        (
            &["", &file, "-w", &out, "--split", &roundabout],
            "is the name of two outputs: each needs its own\n",
        ),
        (
            &["", &file, "-w", ""],
            "weir: the name of an output is empty",
        ),
        (
            &["", &file, "-w", "-", "-C", "1"],
            "weir: -C and -G make files, and standard output is none",
        ),
        (
            &["", &file, "-w", "out.pcap.gz"],
            "captures are written uncompressed: write to - and pipe it",
        ),
        (
            &["", &file, "-tttttt"],
            "weir: -t may be given 1 to 5 times",
        ),
        (
            &["", &file, "--cpus", "4000"],
            "weir: --cpus: processor 4000: ",
        ),
        (&["", &file, "--count", "-w", &out], "exclude each other"),
        (&["", &file, "-c", "0"], "-c 0 is too small"),
        (&["", &file, "-c", "many"], "'many' is not a number"),
        (
            &["", &file, "-C", "0", "-w", &out],
            "would never hold a packet",
        ),
        (&["", &file, "-G", "0", "-w", &out], "-G 0 is too small"),
        (
            &["", &file, "--duration", "5 weeks"],
            "is not a time: write 500ms, 10s or 5m",
        ),
        (&["", &file, "--split", "udp"], "'udp' is not NAME=EXPR"),
        (
            &["", &file, "--workers", "0"],
            "--workers 0 is out of range",
        ),
        (
            &["", &file, "--no-such-flag"],
            "unknown option --no-such-flag",
        ),
        (&["tcp"], "name a source after the expression"),
        (&[], "name an expression and a source"),
    ];
    for (arguments, says) in table {
        let done = run(
            weir_command()
                .arg("filter")
                .args(*arguments)
                .current_dir(temp.path()),
            &[],
        );
        assert_eq!(done.code, Some(2), "{arguments:?}: {done:?}");
        assert!(
            done.err.contains(says),
            "{arguments:?}: {}\nwanted {says}",
            done.err
        );
        assert!(done.out.is_empty(), "{arguments:?}");
        assert!(
            !done.err.contains("panicked"),
            "{arguments:?}: {}",
            done.err
        );
        if says.starts_with("weir: ") {
            assert_told(&format!("{arguments:?}"), &done, 1, false);
        }
        assert_eq!(temp.names(), ["in.pcap", "link.pcap"], "{arguments:?}");
    }
    assert!(std::fs::read(&file).unwrap() == before);
    assert_eq!(weir(["frobnicate"]).code, Some(2));
    assert_eq!(weir([""; 0]).code, Some(2));
}

#[test]
fn a_link_type_nobody_knows_is_counted_and_kept() {
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 65_000);
    bytes.extend(pcap_record(1, b"whatever it is"));
    let file = temp.file("unknown.pcap", &bytes);
    assert_eq!(weir(["filter", "", &file, "--count"]).ok().count(), 1);
    let line = weir(["filter", "", &file, "-t"]).ok().text();
    assert!(
        line.contains("65000") && line.lines().count() == 1,
        "{line}"
    );
    let out = temp.at("out.pcap");
    weir(["filter", "", &file, "-w", &out]).ok();
    assert_eq!(std::fs::read(&out).unwrap(), bytes);
    let refused = weir(["filter", "tcp", &file, "--count"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert_told("unknown link type", &refused, 1, false);
    let info = weir(["info", "--json", &file]).ok().text();
    assert!(info.contains("65000"), "{info}");
}

#[test]
fn a_pcap_file_takes_one_link_type() {
    let temp = Temp::new();
    let ethernet = temp.file("a.pcap", &small_pcap(3));
    let mut bytes = pcap_header(65_535, 101);
    bytes.extend(pcap_record(1, &udp(1, 1)[14..]));
    let raw = temp.file("b.pcap", &bytes);
    let out = temp.at("out.pcap");
    let done = weir(["filter", "", &ethernet, &raw, "-w", &out]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.err
            .contains("a pcap file holds one link type, this one has EN10MB, and a packet of RAW came: write pcapng")
    );
    assert_told("two link types", &done, 1, true);
    assert_eq!(records(&out).len(), 3);
    let out = temp.at("out.pcapng");
    weir(["filter", "", &ethernet, &raw, "-w", &out]).ok();
    assert_eq!(weir(["filter", "", &out, "--count"]).ok().count(), 4);
}

/// The maker of a file chooses how much memory its decoder needs; the user sets the limit.
#[test]
fn zstd_windows_above_128_megabytes_are_refused_unless_allowed() {
    let capture = small_pcap(3);
    // RFC 8878, section 3.1.1: a header without content size, a window of 2^(10 + exponent), one raw block, which is the
    // last.
    let frame = |exponent: u8| {
        let block = (capture.len() as u32) << 3 | 1;
        [
            &[0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3][..],
            &block.to_le_bytes()[..3],
            &capture,
        ]
        .concat()
    };
    let temp = Temp::new();
    let run_in = |script: &str, file: &str| {
        let script = format!(
            "ulimit -v 1500000; exec '{}' {script}",
            env!("CARGO_BIN_EXE_weir")
        )
        .replace("FILE", file);
        run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(std::process::Stdio::null()),
            &[],
        )
    };
    let (small, large, huge) = (
        temp.file("17.zst", &frame(17)),
        temp.file("18.zst", &frame(18)),
        temp.file("21.zst", &frame(21)),
    );
    assert_eq!(run_in("filter '' FILE --count", &small).ok().count(), 3);
    for file in [&large, &huge] {
        for command in [
            "filter '' FILE --count",
            "filter '' - --count <FILE",
            "measure FILE",
            "info FILE",
        ] {
            let done = run_in(command, file);
            let why = "the zstd data needs a window of more than 128M of memory: --zstd-window SIZE allows one of up to 2G";
            assert!(
                done.code == Some(1) && done.err.contains(why),
                "{command}: {done:?}"
            );
        }
    }
    assert_eq!(
        run_in("filter '' FILE --count --zstd-window 256M", &large)
            .ok()
            .count(),
        3
    );
    run_in("info FILE --zstd-window 256M", &large).ok();
    run_in("measure FILE --zstd-window 200M", &large).ok();
    assert!(
        run_in("filter '' FILE --count --zstd-window 256M", &huge)
            .err
            .contains("more than 256M")
    );
    let refused = run_in("filter '' FILE --count --zstd-window 3G", &huge);
    assert!(
        refused.code == Some(2) && refused.err.contains("1k to 2G"),
        "{refused:?}"
    );
}

#[test]
fn a_long_expression_is_shown_by_its_start() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(1));
    let long = format!("{}no-such-word x", "udp port 1 or ".repeat(3000));
    for expression in [
        long.clone(),
        format!("{} or ifindex 1 or", "udp port 1".repeat(60)),
    ] {
        let done = weir(["filter", &expression, &file]);
        assert_eq!(done.code, Some(2));
        let start = format!(
            "weir: expression '{}... ({} bytes)': ",
            &expression[..80],
            expression.len()
        );
        assert!(
            done.err.starts_with(&start) && done.err.len() < start.len() + 200,
            "{}",
            done.err
        );
    }
    let short = weir(["filter", "udp port 1 or", &file]);
    assert!(
        short.err.starts_with("weir: expression 'udp port 1 or': "),
        "{}",
        short.err
    );
}
