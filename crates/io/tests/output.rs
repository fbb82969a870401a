//! Tests of written files: rotation, a full disk, and the packets that other readers find in them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use weir_io::output::{Naming, Output, OutputError, Rotation};
use weir_io::reserve::Reserve;
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};
use weir_testkit::{Scratch, have, skipped};

/// Returns all files, by name.
fn files(scratch: &Scratch) -> Vec<(String, Vec<u8>)> {
    scratch
        .names()
        .into_iter()
        .map(|name| (name.clone(), std::fs::read(scratch.at(&name)).unwrap()))
        .collect()
}

fn one_name(path: &Path) -> Naming {
    let path = path.to_owned();
    Box::new(move |_, _| Ok(path.clone()))
}

fn ethernet(resolution: Resolution) -> Interface {
    Interface::plain(LinkType::ETHERNET, 65_535, resolution)
}

fn frame(data: &[u8], wire_len: u32) -> Frame<'_> {
    Frame {
        data,
        wire_len,
        interface: 0,
    }
}

const START: i64 = 1_700_000_000_123_456_789;

/// Returns `count` packets of an artificial source: time, wire length, data.
fn packets(count: usize) -> Vec<(i64, u32, Vec<u8>)> {
    (0..count)
        .map(|i| {
            let data: Vec<u8> = (0..40 + i * 7 % 300).map(|byte| (byte + i) as u8).collect();
            (
                START + i as i64 * 1_000_000_001,
                data.len() as u32 + (i % 3) as u32 * 100,
                data,
            )
        })
        .collect()
}

fn pcap_len(packets: &[(i64, u32, Vec<u8>)]) -> usize {
    24 + packets
        .iter()
        .map(|(_, _, data)| 16 + data.len())
        .sum::<usize>()
}

fn write(output: &mut Output, id: u32, packets: &[(i64, u32, Vec<u8>)]) -> Result<(), OutputError> {
    packets.iter().try_for_each(|(time, wire_len, data)| {
        output.packet(id, Some(*time), &frame(data, *wire_len))
    })
}

/// Reads a pcap file serially: seconds, fraction, wire length and data of each packet; no bytes may be left over.
fn read_pcap(bytes: &[u8]) -> Vec<(u32, u32, u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert!(bytes.len() >= 24, "a file header");
    let (mut at, mut found) = (24, Vec::new());
    while at < bytes.len() {
        let captured = word(at + 8) as usize;
        found.push((
            word(at),
            word(at + 4),
            word(at + 12),
            bytes[at + 16..at + 16 + captured].to_vec(),
        ));
        at += 16 + captured;
    }
    found
}

fn as_read(packets: &[(i64, u32, Vec<u8>)], unit: i64) -> Vec<(u32, u32, u32, Vec<u8>)> {
    let stamp = |time: i64| {
        (
            (time / 1_000_000_000) as u32,
            (time % 1_000_000_000 / unit) as u32,
        )
    };
    packets
        .iter()
        .map(|(time, wire, data)| (stamp(*time).0, stamp(*time).1, *wire, data.clone()))
        .collect()
}

#[test]
fn a_file_without_packets_is_a_file() {
    for format in [Format::Pcap, Format::Pcapng] {
        let scratch = Scratch::new();
        let path = scratch.path().join("empty");
        let mut output = Output::files(
            one_name(&path),
            format,
            0,
            false,
            Rotation::default(),
            Reserve::default(),
        )
        .unwrap();
        output
            .interface(&ethernet(Resolution::MICROSECOND))
            .unwrap();
        assert_eq!(output.finish().unwrap(), 0);
        let bytes = std::fs::read(&path).unwrap();
        match format {
            Format::Pcap => assert_eq!(bytes.len(), 24),
            Format::Pcapng | Format::Ring | Format::Slots | Format::Spool => {
                assert!(bytes.len() > 28 + 20)
            }
        }
        if have("a_file_without_packets_is_a_file", &["tcpdump"]) {
            let output = Command::new("tcpdump")
                .args(["--count", "-r"])
                .arg(&path)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(output.stdout.starts_with(b"0 "));
        }
    }
}

/// tcpdump: "before writing a packet, check whether the file is currently larger than the size and, if so, open a new
/// one".
#[test]
fn a_new_file_begins_once_the_current_one_is_larger() {
    let all = packets(200);
    for size in [1, 100, 1000, 5000, 1_000_000] {
        let scratch = Scratch::new();
        let directory = scratch.path().to_owned();
        let naming: Naming = Box::new(move |number, _| Ok(directory.join(format!("{number:04}"))));
        let rotation = Rotation {
            size: Some(size),
            ..Rotation::default()
        };
        let mut output =
            Output::files(naming, Format::Pcap, 0, false, rotation, Reserve::default()).unwrap();
        let id = output
            .interface(&ethernet(Resolution::MICROSECOND))
            .unwrap();
        write(&mut output, id, &all).unwrap();
        assert_eq!(output.finish().unwrap(), 200);
        let files = files(&scratch);
        let mut joined = Vec::new();
        for (i, (name, bytes)) in files.iter().enumerate() {
            assert_eq!(name, &format!("{i:04}"));
            let found = read_pcap(bytes);
            let last = found.last().expect("no file is empty").3.len() + 16;
            assert!(
                bytes.len() - last <= size as usize || found.len() == 1,
                "size {size}: not begun too late"
            );
            if i + 1 < files.len() {
                assert!(
                    bytes.len() as u64 > size,
                    "size {size}: not begun too early"
                );
            }
            joined.extend(found);
        }
        assert_eq!(joined, as_read(&all, 1000), "size {size}");
    }
}

#[test]
fn names_are_used_again_after_so_many_files() {
    let all = packets(300);
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let naming: Naming = Box::new(move |number, _| Ok(directory.join(format!("{number}"))));
    let rotation = Rotation {
        size: Some(4000),
        count: Some(3),
        ..Rotation::default()
    };
    let mut output =
        Output::files(naming, Format::Pcap, 0, false, rotation, Reserve::default()).unwrap();
    let id = output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    write(&mut output, id, &all).unwrap();
    assert_eq!(
        output.finish().unwrap(),
        300,
        "all packets were written, also those written over"
    );
    let files = files(&scratch);
    assert_eq!(
        files.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(),
        ["0", "1", "2"]
    );
    // The ring holds the end of the packets, in order from the oldest file on.
    let mut rings: Vec<_> = files.iter().map(|(_, bytes)| read_pcap(bytes)).collect();
    rings.sort();
    let held = rings.concat();
    assert_eq!(held, as_read(&all[300 - held.len()..], 1000));
}

#[test]
fn a_new_file_begins_with_packet_time() {
    // One packet a second; times go back once, which begins no file.
    let mut all = packets(35);
    all[17].0 -= 15_000_000_000;
    for format in [Format::Pcap, Format::Pcapng] {
        let scratch = Scratch::new();
        let directory = scratch.path().to_owned();
        let naming: Naming =
            Box::new(move |_, time| Ok(directory.join((time / 1_000_000_000).to_string())));
        let rotation = Rotation {
            seconds: Some(10),
            ..Rotation::default()
        };
        let mut output =
            Output::files(naming, format, 0, false, rotation, Reserve::default()).unwrap();
        let id = output
            .interface(&ethernet(Resolution::MICROSECOND))
            .unwrap();
        assert!(files(&scratch).is_empty(), "the name needs a packet's time");
        write(&mut output, id, &all).unwrap();
        assert_eq!(output.finish().unwrap(), 35);
        let names: Vec<_> = files(&scratch).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["1700000000", "1700000010", "1700000020", "1700000030"]
        );
        if format == Format::Pcap {
            let files = files(&scratch);
            let joined: Vec<_> = files
                .iter()
                .flat_map(|(_, bytes)| read_pcap(bytes))
                .collect();
            assert_eq!(joined, as_read(&all, 1000));
        }
    }
}

#[test]
fn the_last_file_of_so_many_seconds() {
    let all = packets(35);
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let naming: Naming = Box::new(move |number, _| Ok(directory.join(number.to_string())));
    let rotation = Rotation {
        seconds: Some(10),
        count: Some(2),
        ..Rotation::default()
    };
    let mut output =
        Output::files(naming, Format::Pcap, 0, false, rotation, Reserve::default()).unwrap();
    let id = output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    let error = write(&mut output, id, &all).unwrap_err();
    assert!(matches!(error, OutputError::LastFile), "{error}");
    drop(output);
    let files = files(&scratch);
    let joined: Vec<_> = files
        .iter()
        .flat_map(|(_, bytes)| read_pcap(bytes))
        .collect();
    assert_eq!(files.len(), 2);
    assert_eq!(joined, as_read(&all[..20], 1000), "both files are complete");
}

/// The manual of tcpdump says: if files end by size and by time, the count is ignored.
#[test]
fn a_count_limits_nothing_beside_both_size_and_seconds() {
    let all = packets(300);
    let scratch = Scratch::new();
    let directory = scratch.path().to_owned();
    let naming: Naming = Box::new(move |number, _| Ok(directory.join(format!("{number:03}"))));
    let rotation = Rotation {
        size: Some(4000),
        seconds: Some(100),
        count: Some(2),
        ..Rotation::default()
    };
    let mut output =
        Output::files(naming, Format::Pcap, 0, false, rotation, Reserve::default()).unwrap();
    let id = output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    write(&mut output, id, &all).unwrap();
    assert_eq!((output.overwritten(), output.finish().unwrap()), (0, 300));
    let joined: Vec<_> = files(&scratch)
        .iter()
        .flat_map(|(_, bytes)| read_pcap(bytes))
        .collect();
    assert_eq!(joined, as_read(&all, 1000));
}

#[test]
fn a_single_file_is_kept_if_asked() {
    let scratch = Scratch::new();
    let path = scratch.path().join("kept");
    let rotation = Rotation {
        keep: true,
        ..Rotation::default()
    };
    let make = || {
        Output::files(
            one_name(&path),
            Format::Pcap,
            0,
            false,
            rotation,
            Reserve::default(),
        )
    };
    std::fs::write(&path, "mine").unwrap();
    let error = make().unwrap_err().to_string();
    assert!(
        error.ends_with("another file has this name, and is kept"),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    std::fs::remove_file(&path).unwrap();
    make().unwrap().finish().unwrap();
    assert!(!std::fs::read(&path).unwrap().is_empty());
}

#[test]
fn each_packet_is_flushed_if_asked() {
    let scratch = Scratch::new();
    let path = scratch.path().join("flushed");
    let all = packets(10);
    for (each, whole) in [(true, true), (false, false)] {
        let mut output = Output::files(
            one_name(&path),
            Format::Pcap,
            0,
            each,
            Rotation::default(),
            Reserve::default(),
        )
        .unwrap();
        let id = output
            .interface(&ethernet(Resolution::MICROSECOND))
            .unwrap();
        for i in 0..all.len() {
            write(&mut output, id, &all[i..=i]).unwrap();
            let len = std::fs::read(&path).unwrap().len();
            // What a file held before stays until the first write.
            assert_eq!(
                len,
                if whole {
                    pcap_len(&all[..=i])
                } else {
                    pcap_len(&all)
                }
            );
        }
        output.finish().unwrap();
        assert_eq!(
            read_pcap(&std::fs::read(&path).unwrap()),
            as_read(&all, 1000)
        );
    }
}

#[test]
fn packets_are_cut_to_the_snap_length() {
    let scratch = Scratch::new();
    let path = scratch.path().join("cut");
    let mut output = Output::files(
        one_name(&path),
        Format::Pcap,
        50,
        false,
        Rotation::default(),
        Reserve::default(),
    )
    .unwrap();
    let id = output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    let all = packets(30);
    write(&mut output, id, &all).unwrap();
    output.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[16..20], [50, 0, 0, 0]);
    let cut: Vec<_> = all
        .iter()
        .map(|(time, wire, data)| (*time, *wire, data[..data.len().min(50)].to_vec()))
        .collect();
    assert_eq!(read_pcap(&bytes), as_read(&cut, 1000));
}

#[test]
fn a_device_that_is_full() {
    let path = Path::new("/dev/full");
    if !path.exists() {
        skipped("a_device_that_is_full", "no /dev/full");
        return;
    }
    let mut output = Output::files(
        one_name(path),
        Format::Pcap,
        0,
        false,
        Rotation::default(),
        Reserve::default(),
    )
    .unwrap();
    let id = output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    write(&mut output, id, &packets(10)).unwrap();
    match output.finish().unwrap_err() {
        OutputError::Io {
            error,
            packets,
            path: named,
        } => {
            assert_eq!(
                (error.raw_os_error(), packets, named.as_deref()),
                (Some(libc::ENOSPC), 0, Some(path))
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_that_cannot_be_made() {
    let path = std::env::temp_dir().join("no such directory").join("file");
    let error = Output::files(
        one_name(&path),
        Format::Pcap,
        0,
        false,
        Rotation::default(),
        Reserve::default(),
    )
    .unwrap_err();
    assert!(
        matches!(&error, OutputError::Create { path: named, .. } if *named == path),
        "{error}"
    );
}

/// Body of the child process below: writes until an error, and prints the number of complete packets.
#[test]
#[ignore = "run by `a_full_disk_leaves_whole_records` in a process whose files may not grow"]
fn writing_until_the_disk_is_full() {
    let path = PathBuf::from(
        std::env::var_os("WEIR_TEST_OUTPUT").expect("set by the test that runs this"),
    );
    let format = if path.extension().is_some_and(|ext| ext == "pcap") {
        Format::Pcap
    } else {
        Format::Pcapng
    };
    let flush_each = path.to_string_lossy().contains("each");
    let size = if path.to_string_lossy().contains("large") {
        4000
    } else {
        100
    };
    let mut output = Output::files(
        one_name(&path),
        format,
        0,
        flush_each,
        Rotation::default(),
        Reserve::default(),
    )
    .unwrap();
    let id = output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    let data = vec![0x55; size];
    let mut error = None;
    for i in 0..100_000 {
        if let Err(failed) = output.packet(id, Some(START + i), &frame(&data, size as u32)) {
            error = Some(failed);
            break;
        }
    }
    match error.or_else(|| output.finish().err()) {
        Some(OutputError::Io { error, packets, .. }) => {
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
            println!("whole={packets}");
        }
        other => panic!("{other:?}"),
    }
}

/// A limit on the size of files replaces a full disk: it cuts one write short and refuses the next.
#[test]
fn a_full_disk_leaves_whole_records() {
    if Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8"])
        .status()
        .map_or(true, |status| !status.success())
    {
        skipped("a_full_disk_leaves_whole_records", "no sh with ulimit -f");
        return;
    }
    let scratch = Scratch::new();
    for blocks in [1, 3, 8, 100, 2500] {
        for name in [
            "small.pcap",
            "small.pcapng",
            "each.pcap",
            "each.pcapng",
            "large.pcap",
            "large.pcapng",
        ] {
            let path = scratch.path().join(name);
            let output = Command::new("sh")
                .args([
                    "-c",
                    "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"",
                    "sh",
                    &blocks.to_string(),
                ])
                .arg(std::env::current_exe().unwrap())
                .args([
                    "writing_until_the_disk_is_full",
                    "--exact",
                    "--ignored",
                    "--nocapture",
                ])
                .env("WEIR_TEST_OUTPUT", &path)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let what = format!(
                "{name}, {blocks} blocks: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let whole = text
                .lines()
                .find_map(|line| line.split("whole=").nth(1))
                .expect(&what);
            let whole: usize = whole.parse().expect(&what);
            let bytes = std::fs::read(&path).unwrap();
            // A complete file header stays, so that the file is a valid capture even without packets.
            let (header, record) = match (name.ends_with("pcap"), name.starts_with("large")) {
                (true, large) => (24, 16 + if large { 4000 } else { 100 }),
                (false, large) => (
                    header_of_pcapng(&bytes),
                    32 + if large { 4000 } else { 100 },
                ),
            };
            assert_eq!(bytes.len(), header + whole * record, "{what}");
            if have("a_full_disk_leaves_whole_records", &["tcpdump"]) {
                let output = Command::new("tcpdump")
                    .args(["--count", "-r"])
                    .arg(&path)
                    .output()
                    .unwrap();
                assert!(
                    output.status.success(),
                    "{what}{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                assert!(
                    output.stdout.starts_with(format!("{whole} ").as_bytes()),
                    "{what}"
                );
            }
        }
    }
}

/// Returns the length of the section header and the interface block.
fn header_of_pcapng(bytes: &[u8]) -> usize {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    word(4) + word(word(4) + 4)
}

/// Compares the packets that tcpdump, tshark and capinfos read from written files, in µs and ns, pcap and pcapng.
#[test]
fn other_readers_find_the_same_packets() {
    if !have(
        "other_readers_find_the_same_packets",
        &["tcpdump", "tshark", "capinfos"],
    ) {
        return;
    }
    let all = packets(120);
    for (name, format, resolution, unit) in [
        ("us.pcap", Format::Pcap, Resolution::MICROSECOND, 1000),
        ("ns.pcap", Format::Pcap, Resolution::NANOSECOND, 1),
        ("us.pcapng", Format::Pcapng, Resolution::MICROSECOND, 1000),
        ("ns.pcapng", Format::Pcapng, Resolution::NANOSECOND, 1),
        ("ps.pcapng", Format::Pcapng, Resolution(12), 1),
        ("ms.pcapng", Format::Pcapng, Resolution(3), 1_000_000),
        ("2.pcapng", Format::Pcapng, Resolution(0x80 | 20), 1),
    ] {
        let scratch = Scratch::new();
        let path = scratch.path().join(name);
        let mut output = Output::files(
            one_name(&path),
            format,
            0,
            false,
            Rotation::default(),
            Reserve::default(),
        )
        .unwrap();
        let mut interface = ethernet(resolution);
        interface.name = Some("eth0".to_owned());
        interface.description = Some("a test".to_owned());
        let id = output.interface(&interface).unwrap();
        write(&mut output, id, &all).unwrap();
        assert_eq!(output.finish().unwrap(), 120);
        let cut: Vec<_> = all
            .iter()
            .map(|(time, wire, data)| (time / unit * unit, *wire, data))
            .collect();

        // tcpdump: its copy of the file, in ns, holds the same times, lengths and bytes.
        let copy = scratch.path().join("copy");
        let args = ["--time-stamp-precision=nano", "-r"];
        let run = Command::new("tcpdump")
            .args(args)
            .arg(&path)
            .arg("-w")
            .arg(&copy)
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        let cut_all: Vec<_> = cut
            .iter()
            .map(|(time, wire, data)| (*time, *wire, data.to_vec()))
            .collect();
        assert_eq!(
            read_pcap(&std::fs::read(&copy).unwrap()),
            as_read(&cut_all, 1),
            "{name}: tcpdump"
        );

        let fields = [
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
            "-e",
            "frame.interface_name",
        ];
        let run = Command::new("tshark")
            .args(["-n", "-T", "fields"])
            .args(fields)
            .arg("-r")
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert_eq!(
            text.lines().count(),
            120,
            "{name}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        for (line, (time, wire, data)) in text.lines().zip(&cut) {
            let fields: Vec<_> = line.split('\t').collect();
            let (seconds, fraction) = fields[0].split_once('.').expect("a time");
            let ns = seconds.parse::<i64>().unwrap() * 1_000_000_000
                + format!("{fraction:0<9}").parse::<i64>().unwrap();
            assert_eq!(
                (ns, fields[1], fields[2]),
                (*time, &wire.to_string()[..], &data.len().to_string()[..]),
                "{name}"
            );
            assert!(
                format == Format::Pcap || fields[3] == "eth0",
                "{name}: {line}"
            );
        }

        let run = Command::new("capinfos")
            .args(["-c", "-M", "-T", "-m", "-r"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(
            text.trim_end().ends_with(",120") || text.contains("\t120"),
            "{name}: {text}"
        );
    }
}

#[test]
fn a_pcap_file_refuses_a_second_link_type() {
    let scratch = Scratch::new();
    let mut output = Output::files(
        one_name(&scratch.path().join("x")),
        Format::Pcap,
        0,
        false,
        Rotation::default(),
        Reserve::default(),
    )
    .unwrap();
    output
        .interface(&ethernet(Resolution::MICROSECOND))
        .unwrap();
    let raw = Interface::plain(LinkType(101), 0, Resolution::MICROSECOND);
    assert!(matches!(
        output.interface(&raw),
        Err(OutputError::Format(_))
    ));
}

#[test]
fn earlier_files_keep_their_names_and_bytes() {
    let all = packets(60);
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let (earlier, link) = (b"packets of another run", at("2"));
    std::fs::write(at("0"), earlier).unwrap();
    std::fs::write(at("3"), earlier).unwrap();
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let run = |count, overwrite| {
        let directory = scratch.path().to_owned();
        let naming: Naming = Box::new(move |number, _| Ok(directory.join(number.to_string())));
        let rotation = Rotation {
            size: Some(1),
            count,
            overwrite,
            ..Rotation::default()
        };
        let mut output =
            Output::files(naming, Format::Pcap, 0, false, rotation, Reserve::default())?;
        let done = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&done);
        output.on_finished(Box::new(move |path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            noted
                .lock()
                .unwrap()
                .push((name, read_pcap(&std::fs::read(path).unwrap()).len()));
        }));
        let id = output
            .interface(&ethernet(Resolution::MICROSECOND))
            .unwrap();
        write(&mut output, id, &all[..3]).unwrap();
        let taken = output
            .taken()
            .map(|(files, first)| (files, first.to_owned()));
        output.finish()?;
        Ok::<_, OutputError>((taken, std::mem::take(&mut *done.lock().unwrap())))
    };
    let named = |names: [&str; 3]| names.map(|name| (name.to_owned(), 1)).to_vec();
    // Files that are complete are told of at once, with all their bytes.
    assert_eq!(
        run(None, false).unwrap(),
        (Some((3, at("0"))), named(["1", "4", "5"]))
    );
    assert_eq!(
        run(None, false).unwrap(),
        (Some((6, at("0"))), named(["6", "7", "8"]))
    );
    for name in ["0", "3"] {
        assert_eq!(std::fs::read(at(name)).unwrap(), earlier);
    }
    assert!(link.is_symlink() && !at("nowhere").exists());
    // A limited number of names is refused at once.
    let refused = run(Some(5), false).unwrap_err();
    assert!(
        matches!(&refused, OutputError::Create { path, .. } if *path == at("0")),
        "{refused}"
    );
    assert_eq!(std::fs::read(at("0")).unwrap(), earlier);
    assert_eq!(run(None, true).unwrap(), (None, named(["0", "1", "2"])));
    assert_eq!(run(Some(2), true).unwrap().1, named(["0", "1", "0"]));
}
