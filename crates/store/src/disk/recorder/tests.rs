//! Recorders: what they write, and what recovers it.

mod damaged;

use super::super::testing::*;
use super::*;
use crate::disk::{Damage, Opened, Reader, Seam, Selection, System, reindex};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use weir_packet::LinkType;
use weir_packet::savefile::Resolution;
use weir_testkit::{Random, Scratch, have};

/// Output of a program that must succeed.
fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .expect("it is installed");
    assert!(
        done.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}

/// Times and lengths of all lines that tshark shows: marks are none of them.
fn shown(path: &str) -> Vec<(String, String)> {
    let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len"];
    let text = output("tshark", &[&["-r", path][..], &fields].concat());
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs
        .map(|(time, len)| (time.to_owned(), len.to_owned()))
        .collect()
}

#[test]
fn every_tool_opens_a_segment_whenever_it_was_flushed() {
    if !have(
        "every_tool_opens_a_segment_whenever_it_was_flushed",
        &["capinfos", "tshark", "tcpdump", "editcap"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, packets) = (scratch.path().join("record"), packets(400, 1));
    let (mut recorder, _) = recorder(
        &dir,
        Settings {
            segment_bytes: 1 << 30,
            ..small()
        },
    );
    let mut random = Random(5);
    let mut done = 0;
    while done < packets.len() {
        let more = (1 + random.below(120)).min(packets.len() - done);
        write(&mut recorder, &packets[done..done + more], done as u64);
        done += more;
        let segments = files(&dir, "pcapng");
        let path = segments[0].to_str().unwrap();
        assert_eq!(segments.len(), 1);
        assert_eq!(fs::metadata(path).unwrap().len() % PAGE as u64, 0);
        assert!(
            output("capinfos", &["-c", "-M", path])
                .trim()
                .ends_with(&done.to_string())
        );
        assert_eq!(
            output("tcpdump", &["-n", "--count", "-r", path]).trim(),
            format!("{done} packets")
        );
        let expected = packets[..done].iter().map(|(time, data)| {
            (
                format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000),
                data.len().to_string(),
            )
        });
        assert_eq!(shown(path), expected.collect::<Vec<_>>());
    }
    recorder.close().unwrap();
    let segment = files(&dir, "pcapng").remove(0);
    let copy = scratch.at("copy.pcapng");
    output("editcap", &[segment.to_str().unwrap(), &copy]);
    assert_eq!(packets_in(&fs::read(copy).unwrap()), packets);
    let copy = scratch.at("copy.pcap");
    output(
        "editcap",
        &["-F", "nsecpcap", segment.to_str().unwrap(), &copy],
    );
    assert_eq!(
        output("tcpdump", &["-n", "--count", "-r", &copy]).trim(),
        "400 packets"
    );
}

/// CRC-32 as ISO 3309 defines it, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

#[test]
fn marks_describe_the_blocks_in_front_of_them() {
    let scratch = Scratch::new();
    let packets = packets(300, 2);
    let (mut recorder, opened) = recorder(scratch.path(), small());
    // Numbers 100 to 109 are left out, so a block ends there.
    write(&mut recorder, &packets[..100], 0);
    write(&mut recorder, &packets[100..], 110);
    assert_eq!(recorder.stats().missed, 10);
    recorder.close().unwrap();
    let bytes = fs::read(&files(scratch.path(), "pcapng")[0]).unwrap();
    let (mut offset, mut before, mut seen, mut marks, mut kind_of_last) = (0, 0, Vec::new(), 0, 0);
    for (kind, body) in blocks(&bytes) {
        if kind == 6 {
            seen.extend(packets_in(&bytes[offset..offset + body.len() + 12]));
        }
        if kind == 0x8000_0bad {
            let word = |at: usize| {
                u32::from_le_bytes(bytes[offset + at..offset + at + 4].try_into().unwrap())
            };
            let wide = |at: usize| {
                u64::from_le_bytes(bytes[offset + at..offset + at + 8].try_into().unwrap())
            };
            assert_eq!((wide(24), wide(32)), (opened.generation, START_NS as u64));
            assert_eq!((word(40), word(44)), (marks, 1));
            assert_eq!(
                (wide(48), word(56)),
                (offset as u64, (offset - before) as u32)
            );
            assert_eq!(word(60) as usize, seen.len());
            assert_eq!(word(88), crc(&bytes[before..offset + 88]));
            if let (Some(first), Some(last)) = (seen.first(), seen.last()) {
                let number = u64::from_be_bytes(first.1[42..50].try_into().unwrap());
                assert_eq!(wide(64), if number < 100 { number } else { number + 10 });
                assert_eq!((wide(72) as i64, wide(80) as i64), (first.0, last.0));
            } else {
                assert_eq!((wide(72) as i64, wide(80) as i64), (i64::MAX, i64::MIN));
            }
            seen.clear();
            marks += 1;
            kind_of_last = word(20);
            before = offset + body.len() + 12;
        }
        offset += body.len() + 12;
    }
    assert!(marks > 10 && before == bytes.len(), "a mark ends the file");
    assert_eq!(kind_of_last, 1 << 16 | 1, "it says that the segment ends");
}

/// A small segment that was written but not closed, and its packets, with the length up to which each of them is in it.
fn unclosed(scratch: &Scratch) -> (PathBuf, Vec<u8>, Vec<Packet>, Vec<usize>) {
    let dir = scratch.path().join("whole");
    let settings = Settings {
        block_bytes: 150,
        ..small()
    };
    let (mut recorder, _) = recorder(&dir, settings);
    let mut packets = packets(6, 3);
    packets.iter_mut().for_each(|(_, data)| data.truncate(70));
    write(&mut recorder, &packets[..3], 0);
    write(&mut recorder, &packets[3..], 3);
    let path = files(&dir, "pcapng").remove(0);
    let bytes = fs::read(&path).unwrap();
    let mut ends = Vec::new();
    let (mut offset, mut waiting) = (0, 0);
    for (kind, body) in blocks(&bytes) {
        offset += body.len() + 12;
        waiting += usize::from(kind == 6);
        if kind == 0x8000_0bad {
            ends.extend(std::iter::repeat_n(offset, std::mem::take(&mut waiting)));
        }
    }
    assert_eq!(ends.len(), packets.len());
    (path, bytes, packets, ends)
}

/// A directory with this segment, and what a recorder that begins there does with it.
fn recovered(scratch: &Scratch, name: &Path, bytes: &[u8]) -> (PathBuf, Opened) {
    let dir = scratch.path().join("cut");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join(name.file_name().unwrap()), bytes).unwrap();
    let (next, opened) = recorder(&dir, small());
    drop(next);
    (dir, opened)
}

/// Recovers a directory with this segment, and expects the good prefix that ends at or in front of `damaged`, where all that follows is
/// gone.
fn recovers(
    scratch: &Scratch,
    name: &Path,
    bytes: &[u8],
    damaged: usize,
    packets: &[Packet],
    ends: &[usize],
) {
    let (dir, opened) = recovered(scratch, name, bytes);
    let kept = ends.iter().filter(|&&end| end <= damaged).count();
    let [recovered] = &opened.recovered[..] else {
        panic!("one segment was not closed")
    };
    assert_eq!(recovered.kept_packets as usize, kept, "{damaged}");
    assert_eq!(
        recovered.kept_bytes + recovered.cut_bytes,
        bytes.len() as u64
    );
    assert_eq!(
        recovered.damage.is_some(),
        recovered.cut_bytes > 0,
        "{recovered:?}"
    );
    match files(&dir, "pcapng").first() {
        None => assert!(kept == 0 && recovered.kept_bytes == 0),
        Some(path) => {
            let left = fs::read(path).unwrap();
            assert!(bytes.starts_with(&left) && left.len() as u64 == recovered.kept_bytes);
            assert_eq!(packets_in(&left), packets[..kept]);
            assert_eq!(read_all(&dir), packets[..kept]);
            assert!(path.with_extension("index").exists());
        }
    }
}

/// Recovers a directory with this segment, whose byte `damaged` is flipped: the end is cut if the byte is in the last block, and else
/// nothing is cut, and the blocks around the damaged one stay. `marks` are the ends of all blocks.
fn recovers_around(
    scratch: &Scratch,
    name: &Path,
    bytes: &[u8],
    (damaged, marks): (usize, &[usize]),
    packets: &[Packet],
    ends: &[usize],
) {
    let end = *marks
        .iter()
        .find(|&&end| end > damaged)
        .expect("a mark ends the file");
    if end == bytes.len() {
        return recovers(scratch, name, bytes, damaged, packets, ends);
    }
    let (dir, opened) = recovered(scratch, name, bytes);
    let good: Vec<_> = packets
        .iter()
        .zip(ends)
        .filter(|&(_, &other)| other != end)
        .map(|(packet, _)| packet)
        .collect();
    let [recovered] = &opened.recovered[..] else {
        panic!("one segment was not closed")
    };
    assert_eq!(
        (recovered.kept_bytes as usize, recovered.cut_bytes),
        (bytes.len(), 0),
        "{damaged}"
    );
    assert_eq!(
        (recovered.kept_packets as usize, recovered.damaged),
        (good.len(), 1),
        "{damaged}"
    );
    assert!(recovered.damage.is_some());
    assert_eq!(fs::read(&files(&dir, "pcapng")[0]).unwrap(), bytes);
    let (found, counts) = read(&dir, Selection::default(), None);
    assert!(
        (1..=2).contains(&counts.damaged),
        "{damaged}: {}",
        counts.damaged
    );
    if end == marks[0] {
        // The descriptions of the interfaces are in the first block: damaged, they tell no times, or nothing can be read.
        let is_there = |packet: &&Packet| found.iter().any(|other| other.1 == packet.1);
        assert!(found.is_empty() || good.iter().all(is_there), "{damaged}");
    } else {
        assert!(
            good.iter().all(|packet| found.contains(packet)),
            "{damaged}"
        );
    }
}

#[test]
fn what_is_no_file_is_no_segment_and_what_no_trigger_saved_is_left_alone() {
    let scratch = Scratch::new();
    let packets = packets(50, 1);
    let (mut first, _) = recorder(scratch.path(), small());
    write(&mut first, &packets, 0);
    first.close().unwrap();
    let pipe = scratch
        .path()
        .join("20231114T221320.000000000Z-000009.pcapng");
    // Opening it would fail; opening a named pipe would wait for ever.
    let _socket = std::os::unix::net::UnixListener::bind(&pipe).unwrap();
    let (found, counts) = read(scratch.path(), Selection::default(), None);
    assert!(found == packets && counts.failed.len() == 1 && counts.gone == 0);
    let own = scratch.path().join("trigger-mine.pcapng");
    let saved = scratch
        .path()
        .join("trigger-a-20231114T221320.000000000Z.pcapng");
    fs::write(&own, "mine").unwrap();
    fs::write(&saved, "saved").unwrap();
    let retention = Retention {
        trigger_age_ns: Some(1_000_000_000),
        ..Retention::default()
    };
    let (mut second, _) = recorder(
        scratch.path(),
        Settings {
            retention,
            ..small()
        },
    );
    let years = 3_000_000_000_000_000_000;
    second
        .tick(Now {
            steady_ns: 2_000_000_000,
            wall_ns: years,
        })
        .unwrap();
    assert!(own.exists() && !saved.exists());
}

#[test]
fn a_second_recorder_is_refused_by_name_and_a_stale_lock_is_not() {
    let scratch = Scratch::new();
    let open = || Recorder::open(Arc::new(System::default()), scratch.path(), small(), at(0));
    let first = open().unwrap();
    let refused = open().unwrap_err().to_string();
    let pid = std::process::id();
    assert!(
        refused.contains(&format!("pid {pid} since 2023-11-14T22:13:20.000000Z")),
        "{refused}"
    );
    drop(first);
    fs::write(scratch.path().join("lock"), "pid 1 since a crash\n").unwrap();
    open().unwrap();
}

#[test]
fn directories_and_files_are_private() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("record");
    let (mut recorder, _) = recorder(&dir, small());
    write(&mut recorder, &packets(10, 1), 0);
    recorder.close().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let names: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|path| mode(path) == 0o600));
}

#[test]
fn segments_end_by_size_and_by_time() {
    let scratch = Scratch::new();
    let packets = packets(6000, 7);
    let settings = Settings {
        segment_ns: Some(2_000_000_000),
        segment_bytes: 512 << 10,
        ..small()
    };
    let (mut recorder, opened) = recorder(scratch.path(), settings);
    write(&mut recorder, &packets, 0);
    recorder.close().unwrap();
    let segments = files(scratch.path(), "pcapng");
    let mut all = Vec::new();
    for (at, path) in segments.iter().enumerate() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name.ends_with(&format!("Z-{:06}.pcapng", opened.generation + at as u64)),
            "{name}"
        );
        let bytes = fs::read(path).unwrap();
        let inside = packets_in(&bytes);
        assert!(bytes.len() <= (512 << 10) + 2 * PAGE);
        let period = |packet: &Packet| packet.0 / 2_000_000_000;
        assert_eq!(period(&inside[0]), period(inside.last().unwrap()));
        all.extend(inside);
    }
    assert_eq!(all, packets);
    // Three periods, and a second segment in each, since a period has more than half a megabyte.
    assert_eq!(segments.len(), 6);
    // Without packets, age ends a segment.
    let (mut next, opened) = super::super::testing::recorder(
        scratch.path(),
        Settings {
            segment_ns: Some(1 << 30),
            ..small()
        },
    );
    assert_eq!((opened.segments, opened.recovered.len()), (6, 0));
    write(&mut next, &packets[..5], 0);
    next.tick(at(100)).unwrap();
    assert_eq!(next.kept().0, 7);
    next.close().unwrap();
    assert_eq!(files(scratch.path(), "index").len(), 7);
}

#[test]
fn packets_wait_no_longer_than_they_may() {
    let scratch = Scratch::new();
    let (mut recorder, _) = recorder(scratch.path(), small());
    let packets = packets(3, 1);
    recorder.tick(at(1)).unwrap();
    recorder.packet(0, 0, &record(&packets[0])).unwrap();
    assert_eq!(
        (recorder.written().next, recorder.flush_at()),
        (0, Some(1_500_000_000))
    );
    recorder
        .tick(Now {
            steady_ns: 1_499_999_999,
            ..at(1)
        })
        .unwrap();
    assert_eq!(
        (read_all(scratch.path()), recorder.written().next),
        (vec![], 0)
    );
    recorder
        .tick(Now {
            steady_ns: 1_500_000_000,
            ..at(1)
        })
        .unwrap();
    assert_eq!(
        (read_all(scratch.path()), recorder.written().next),
        (packets[..1].to_vec(), 1)
    );
    assert_eq!((recorder.flush_at(), recorder.durable().next), (None, 0));
    let durable = recorder.sync().unwrap();
    assert_eq!((durable.next, durable.time_ns), (1, Some(START_NS)));
}

#[test]
fn durable_is_said_after_the_file_and_its_name_are_synced() {
    let scratch = Scratch::new();
    let disk = Arc::new(Faulty::new(u64::MAX / 2, 0));
    let (mut recorder, _) = Recorder::open(disk.clone(), scratch.path(), small(), at(0)).unwrap();
    recorder.interface(&ethernet());
    write(&mut recorder, &packets(20, 1), 0);
    recorder.sync().unwrap();
    recorder.sync().unwrap();
    write(&mut recorder, &packets(20, 1), 20);
    recorder.sync().unwrap();
    assert_eq!(
        disk.log(),
        [
            "create pcapng",
            "write pcapng",
            "fdatasync pcapng",
            "sync dir",
            "write pcapng",
            "fdatasync pcapng"
        ]
    );
    recorder.close().unwrap();
    let end = [
        "write pcapng",
        "fdatasync pcapng",
        "create new",
        "write new",
        "fdatasync new",
        "rename index",
        "sync dir",
    ];
    assert_eq!(disk.log()[6..], end);
}

/// Records packets on a disk of which some operations fail; what was not written is passed again. Returns the number of failures.
fn record_with_faults(dir: &Path, disk: Arc<Faulty>, packets: &[Packet]) -> u64 {
    let (mut recorder, _) = Recorder::open(disk, dir, small(), at(0)).unwrap();
    recorder.interface(&ethernet());
    let mut failures = 0;
    while recorder.durable().next < packets.len() as u64 {
        let number = recorder.resume_from();
        let mut step = || {
            if let Some(packet) = packets.get(number as usize) {
                recorder.packet(0, number, &record(packet))?;
            }
            if number % 700 == 699 || number >= packets.len() as u64 {
                recorder.sync().map(drop)
            } else {
                Ok(())
            }
        };
        if let Err(error) = step() {
            failures += 1;
            let text = error.to_string();
            assert!(text.contains("No space left on device"), "{text}");
            assert!(
                text.contains(&format!("below number {}", recorder.resume_from())),
                "{text}"
            );
            assert!(recorder.durable().next <= recorder.resume_from());
        }
    }
    let _ = recorder.close();
    failures
}

#[test]
fn a_disk_that_fails_for_a_while_loses_nothing_that_is_passed_again() {
    let packets = packets(3000, 8);
    let clean = Scratch::new();
    let disk = Arc::new(Faulty::new(u64::MAX / 2, 0));
    assert_eq!(record_with_faults(clean.path(), disk.clone(), &packets), 0);
    let operations = disk.done();
    assert!(operations > 20);
    for first in 0..operations {
        for count in [1, 2, 5] {
            let scratch = Scratch::new();
            record_with_faults(
                scratch.path(),
                Arc::new(Faulty::new(first, count)),
                &packets,
            );
            let found = read_all(scratch.path());
            assert!(
                found == packets,
                "{first} {count}: {} of {}",
                found.len(),
                packets.len()
            );
            for path in files(scratch.path(), "pcapng") {
                blocks(&fs::read(path).unwrap());
            }
            let (_, opened) = recorder(scratch.path(), small());
            assert!(
                opened
                    .recovered
                    .iter()
                    .all(|recovered| recovered.cut_bytes == 0),
                "{first} {count}: {opened:?}"
            );
            assert!(read_all(scratch.path()) == packets);
        }
    }
}

#[test]
fn interfaces_are_described_where_they_first_appear_and_in_each_segment() {
    let scratch = Scratch::new();
    let (mut recorder, _) = recorder(scratch.path(), small());
    let loopback = Interface::plain(LinkType::RAW, 96, Resolution::MICROSECOND);
    let long = "x".repeat(100_000);
    let packets = packets(2000, 3);
    for (number, packet) in packets.iter().enumerate() {
        let id = match number {
            0..50 => 0,
            50..1500 => recorder.interface(&loopback),
            _ => recorder.interface(&Interface {
                description: Some(long.clone()),
                ..ethernet()
            }),
        };
        recorder.packet(id, number as u64, &record(packet)).unwrap();
    }
    recorder.flush().unwrap();
    let described = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        let kinds: Vec<_> = blocks(&bytes)
            .into_iter()
            .filter(|(kind, _)| *kind == 1)
            .map(|(_, body)| body[0])
            .collect();
        kinds
    };
    assert_eq!(
        files(scratch.path(), "pcapng")
            .iter()
            .map(described)
            .collect::<Vec<_>>(),
        [[1, 101, 1]]
    );
    let (found, _) = read(scratch.path(), Selection::default(), None);
    assert_eq!(found.len(), packets.len());
    assert!(
        found
            .iter()
            .zip(&packets)
            .all(|(found, packet)| found.1 == packet.1)
    );
}

#[test]
fn the_seam_leaves_out_what_is_in_ram() {
    let scratch = Scratch::new();
    let packets = packets(3000, 4);
    let (mut old, _) = recorder(scratch.path(), small());
    write(&mut old, &packets[..1000], 0);
    old.close().unwrap();
    let (mut recorder, opened) = recorder(scratch.path(), small());
    write(&mut recorder, &packets[1000..], 0);
    for number in [0, 1, 777, 1999, 2000, 5000] {
        let seam = Seam {
            generation: opened.generation,
            number,
        };
        let (found, _) = read(scratch.path(), Selection::default(), Some(seam));
        assert!(
            found == packets[..1000 + number.min(2000) as usize],
            "{number}"
        );
    }
}

#[test]
fn a_directory_that_is_no_record_is_refused() {
    let scratch = Scratch::new();
    let refused = Reader::open(scratch.path(), Selection::default(), None).unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("is not a record directory: it holds no segments"),
        "{refused}"
    );
    assert!(reindex(scratch.path(), small(), at(0)).is_err());
    scratch.file("trigger-a-20261126T000000.000000000Z.pcapng", b"");
    let refused = Reader::open(scratch.path(), Selection::default(), None).unwrap_err();
    let files = format!(
        "saved 1 file: weir filter '' {}/trigger-*.pcapng",
        scratch.path().display()
    );
    assert!(refused.to_string().ends_with(&files), "{refused}");
    let nowhere = scratch.path().join("a/b");
    assert!(Recorder::open(Arc::new(System::default()), &nowhere, small(), at(0)).is_err());
}

#[test]
fn a_frame_longer_than_the_buffer_is_cut_and_counted() {
    let scratch = Scratch::new();
    let (mut recorder, _) = recorder(scratch.path(), small());
    let text = "x".repeat(30_000);
    let long = Interface {
        description: Some(text),
        ..Interface::plain(LinkType::RAW, 0, Resolution::NANOSECOND)
    };
    let id = recorder.interface(&long);
    let packet: Packet = (START_NS, vec![7; 300_000]);
    for number in 0..5 {
        recorder
            .packet(
                if number % 2 == 0 { id } else { 0 },
                number,
                &record(&packet),
            )
            .unwrap();
    }
    recorder.flush().unwrap();
    assert_eq!(recorder.stats().cut, 5);
    let found = read_all(scratch.path());
    assert_eq!(found.len(), 5);
    assert!(
        found
            .iter()
            .all(|(_, data)| data.len() > 110_000 && data.iter().all(|&byte| byte == 7))
    );
    for (kind, body) in blocks(&fs::read(&files(scratch.path(), "pcapng")[0]).unwrap()) {
        assert!(
            kind != 6 || body[16..20] == 300_000u32.to_le_bytes(),
            "the length on the wire stays"
        );
    }
}

#[test]
fn readers_beside_the_recorder_see_a_prefix_that_grows() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let scratch = Scratch::new();
    let packets = packets(20_000, 50);
    let settings = Settings {
        segment_bytes: 512 << 10,
        ..small()
    };
    let (mut recorder, _) = recorder(scratch.path(), settings);
    let written = AtomicU64::new(0);
    let read = || {
        let (mut rounds, mut seen) = (0, 0);
        while seen < packets.len() {
            let before = written.load(Ordering::Acquire) as usize;
            let (found, counts) = read(scratch.path(), Selection::default(), None);
            assert!(found == packets[..found.len()], "{}", found.len());
            assert!(
                found.len() >= before.max(seen) && counts.damaged == 0 && counts.gone == 0,
                "{counts:?}"
            );
            let used = |segment: &crate::disk::SegmentUse| {
                matches!(segment.index, crate::disk::IndexUse::Damaged(_))
            };
            assert!(!counts.segments.iter().any(used), "{counts:?}");
            (seen, rounds) = (found.len(), rounds + 1);
        }
        rounds
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let mut random = Random(4);
        for (number, packet) in packets.iter().enumerate() {
            recorder.packet(0, number as u64, &record(packet)).unwrap();
            if random.below(60) == 0 {
                recorder.flush().unwrap();
                written.store(recorder.written().next, Ordering::Release);
            }
        }
        recorder.close().unwrap();
        for reader in readers {
            assert!(reader.join().unwrap() > 2);
        }
    });
}

#[test]
fn a_segment_that_is_removed_before_its_index_is_made_leaves_none_behind() {
    let scratch = Scratch::new();
    let (mut recorder, _) = recorder(scratch.path(), small());
    write(&mut recorder, &packets(1000, 5), 0);
    recorder.end_segment(false).unwrap();
    let none = Retention {
        bytes: Some(0),
        ..Retention::default()
    };
    recorder
        .keeper
        .make_room(&System::default(), scratch.path(), &none, None, (0, 0))
        .unwrap();
    let closed = recorder.close().unwrap();
    assert_eq!(
        (
            closed.kept,
            closed.stats.index_bytes,
            closed.stats.removed.segments
        ),
        ((0, 0), 0, 1)
    );
    assert_eq!(
        (
            files(scratch.path(), "index"),
            files(scratch.path(), "pcapng")
        ),
        (vec![], vec![])
    );
}

#[test]
fn a_segment_behind_a_link_is_left_alone_with_its_index() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let (mut first, _) = recorder(scratch.path(), small());
    write(&mut first, &packets(50, 1), 0);
    first.close().unwrap();
    let (segment, moved) = (
        files(scratch.path(), "pcapng").remove(0),
        other.path().join("moved"),
    );
    fs::rename(&segment, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &segment).unwrap();
    let (_, opened) = recorder(scratch.path(), small());
    assert_eq!(opened.segments, 0);
    reindex(scratch.path(), small(), at(0)).unwrap();
    fs::remove_file(moved).unwrap();
    recorder(scratch.path(), small());
    assert_eq!(
        files(scratch.path(), "index"),
        [segment.with_extension("index")]
    );
}

#[test]
fn an_empty_segment_leaves_no_index_behind() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let segment = scratch
        .path()
        .join("20231114T221320.000000000Z-000009.pcapng");
    fs::write(&segment, []).unwrap();
    let target = other.path().join("target");
    fs::write(&target, "mine").unwrap();
    std::os::unix::fs::symlink(&target, segment.with_extension("index")).unwrap();
    let (_, opened) = recorder(scratch.path(), small());
    let [recovered] = &opened.recovered[..] else {
        panic!("{opened:?}")
    };
    assert_eq!(recovered.kept_bytes, 0);
    assert!(fs::symlink_metadata(segment.with_extension("index")).is_err());
    assert_eq!(fs::read(target).unwrap(), b"mine");
}
