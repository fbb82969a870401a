use super::super::super::testing::*;
use super::*;
use crate::disk::{Now, Reader, Retention, Selection, Settings, System, reindex};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use weir_testkit::{Random, Scratch, have};

/// Segments of three frames.
fn settings(compress: Option<i32>) -> Settings {
    Settings {
        segment_bytes: 5 << 19,
        compress,
        ..small()
    }
}

fn record_plain(dir: &Path, packets: &[Packet], settings: Settings) {
    let (mut recorder, _) = recorder(
        dir,
        Settings {
            compress: None,
            ..settings
        },
    );
    write(&mut recorder, packets, 0);
    recorder.close().unwrap();
}

/// Compresses what is in a directory, as the next session does.
fn compress_in(dir: &Path, settings: Settings) -> Compression {
    let (mut recorder, _) = recorder(dir, settings);
    recorder.compress_all().unwrap();
    let error = recorder.take_compression_error();
    assert!(error.is_none(), "{error:?}");
    recorder.close().unwrap().stats.compression
}

/// A record of three compressed segments: its packets, and the plain segments.
fn compressed_record(dir: &Path, seed: u64) -> (Vec<Packet>, BTreeMap<PathBuf, Vec<u8>>) {
    let packets = packets(16_000, seed);
    record_plain(dir, &packets, settings(None));
    let plain: BTreeMap<_, _> = files(dir, "pcapng")
        .into_iter()
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    assert_eq!(plain.len(), 3);
    let done = compress_in(dir, settings(Some(3)));
    let bytes = |paths: Vec<PathBuf>| {
        paths
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum::<u64>()
    };
    let before = plain.values().map(|bytes| bytes.len() as u64).sum();
    let after = bytes(files(dir, "zst"));
    assert_eq!(
        done,
        Compression {
            segments: 3,
            before,
            after,
            ..Compression::default()
        }
    );
    assert!(files(dir, "pcapng").is_empty() && after < before / 2);
    (packets, plain)
}

fn zst(plain: &Path) -> PathBuf {
    plain.with_extension("pcapng.zst")
}

/// Offsets of the frames of a compressed file and of their ends, and those in the segment, by the seek table, read naively.
fn frames(bytes: &[u8]) -> Vec<([usize; 2], [u64; 2])> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let count = word(bytes.len() - 9);
    let (mut found, mut at, mut start) = (Vec::new(), 0, 0);
    for entry in 0..count {
        let entry = bytes.len() - 9 - 8 * (count - entry);
        let (end, stop) = (at + word(entry), start + word(entry + 4) as u64);
        found.push(([at, end], [start, stop]));
        (at, start) = (end, stop);
    }
    found
}

#[test]
fn queries_of_plain_and_compressed_and_mixed_segments_find_the_same() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let (all, plain) = compressed_record(dir, 70);
    if have(
        "queries_of_plain_and_compressed_and_mixed_segments_find_the_same",
        &["zstd"],
    ) {
        for (path, bytes) in &plain {
            let done = Command::new("zstd")
                .arg("-dc")
                .arg(zst(path))
                .output()
                .unwrap();
            assert!(
                done.status.success() && done.stdout == *bytes,
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
    }
    for state in ["compressed", "mixed", "both", "plain"] {
        for (number, (path, bytes)) in plain.iter().enumerate() {
            if state == "plain" || state == "both" || state == "mixed" && number == 1 {
                fs::write(path, bytes).unwrap();
            }
            if state == "plain" || state == "mixed" && number == 1 {
                let _ = fs::remove_file(zst(path));
            } else if state == "both" && number == 1 {
                let _ = fs::write(zst(path), b"");
            }
        }
        assert!(read_all(dir) == all, "{state}");
        let mut random = Random(7);
        for _ in 0..30 {
            let [a, b] = [0, 0].map(|_: u8| random.below(all.len()));
            let (from, to) = (a.min(b), a.max(b));
            let host = random.below(20) as u8;
            let is_wanted = |(_, data): &&Packet| data[29] == host;
            let selection = Selection {
                from_ns: Some(all[from].0),
                to_ns: Some(all[to].0),
                expression: if random.below(2) == 0 {
                    format!("src host 10.0.0.{host}")
                } else {
                    String::new()
                },
                ..Selection::default()
            };
            let exact = selection.expression.is_empty();
            let (found, _) = read(dir, selection, None);
            assert!(!exact || found == all[from..=to], "{state}");
            let wanted: Vec<_> = all[from..=to].iter().filter(is_wanted).collect();
            assert!(
                found.iter().filter(is_wanted).collect::<Vec<_>>() == wanted,
                "{state}"
            );
        }
        let moment = Selection {
            from_ns: Some(all[8000].0),
            to_ns: Some(all[8000].0),
            ..Selection::default()
        };
        let (found, counts) = read(dir, moment, None);
        assert_eq!(found, all[8000..=8000]);
        let frames = if state == "compressed" { 1 } else { 0 };
        assert_eq!(counts.decompressed.div_ceil(1 << 20), frames, "{state}");
    }
}

#[test]
fn segments_are_compressed_one_by_one_from_the_oldest_on_while_packets_come() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let all = packets(13_000, 71);
    record_plain(dir, &all[..9000], settings(None));
    let plain = files(dir, "pcapng");
    let (mut recorder, opened) = recorder(dir, settings(Some(1)));
    assert_eq!((opened.segments, opened.recovered.len()), (plain.len(), 0));
    write(&mut recorder, &all[9000..], 0);
    let mut order = Vec::new();
    recorder.tick(at(1)).unwrap();
    while recorder.take_compressed(true) {
        let now = files(dir, "zst");
        order.extend(
            plain
                .iter()
                .filter(|path| now.contains(&zst(path)) && !order.contains(*path))
                .cloned()
                .collect::<Vec<_>>(),
        );
        assert!(read_all(dir) == all);
        recorder.compress(true);
    }
    assert_eq!(order, plain);
    assert_eq!(
        recorder.stats().compression.segments as usize,
        files(dir, "zst").len()
    );
    let open = files(dir, "pcapng");
    assert_eq!(
        open.len(),
        1,
        "the segment that is being written stays plain"
    );
    let closed = recorder.close().unwrap();
    let bytes = [files(dir, "zst"), files(dir, "index"), open].concat();
    assert_eq!(
        closed.kept.1,
        bytes
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum::<u64>()
    );
}

#[test]
fn the_compressed_file_is_durable_before_it_has_its_name_and_the_plain_one_goes() {
    let scratch = Scratch::new();
    record_plain(scratch.path(), &packets(300, 72), small());
    let disk = Faulty::new(0, 0);
    let shared = Arc::new(disk);
    let settings = Settings {
        compress: Some(3),
        ..small()
    };
    let (mut recorder, _) =
        Recorder::open(shared.clone(), scratch.path(), settings, at(0)).unwrap();
    recorder.compress_all().unwrap();
    assert_eq!(
        shared.log(),
        [
            "create new",
            "write new",
            "write new",
            "fdatasync new",
            "rename zst",
            "sync dir",
            "sync dir"
        ]
    );
    assert_eq!(
        scratch
            .names()
            .iter()
            .filter(|name| name.ends_with(".pcapng"))
            .count(),
        0
    );
}

#[test]
fn a_segment_that_hardly_shrinks_is_tried_once_and_stays_plain() {
    let scratch = Scratch::new();
    let mut random = Random(73);
    let all: Vec<Packet> = packets(500, 73)
        .into_iter()
        .map(|(time, data)| (time, [&data[..50], &random.bytes(4000)].concat()))
        .collect();
    record_plain(scratch.path(), &all, small());
    let disk = Arc::new(Faulty::new(0, 0));
    let settings = Settings {
        compress: Some(1),
        ..small()
    };
    let (mut recorder, opened) =
        Recorder::open(disk.clone(), scratch.path(), settings, at(0)).unwrap();
    for _ in 0..3 {
        recorder.compress_all().unwrap();
    }
    let done = recorder.stats().compression;
    // The last segment holds little but zeros.
    assert_eq!(
        (done.segments + done.plain, done.failed),
        (opened.segments as u64, 0)
    );
    assert!(done.plain >= 2, "{done:?}");
    assert_eq!(
        disk.log()
            .iter()
            .filter(|step| *step == "create new")
            .count(),
        opened.segments
    );
    assert!(files(scratch.path(), "new").is_empty() && read_all(scratch.path()) == all);
}

#[test]
fn what_a_crash_leaves_is_seen_once_and_put_in_order_by_the_next_recorder() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let (all, plain) = compressed_record(dir, 74);
    let paths: Vec<_> = plain.keys().cloned().collect();
    // Between the rename and the removal; while the compressed file was written.
    fs::write(&paths[0], &plain[&paths[0]]).unwrap();
    fs::write(&paths[1], &plain[&paths[1]]).unwrap();
    fs::rename(zst(&paths[1]), paths[1].with_extension("pcapng.zst.new")).unwrap();
    assert!(read_all(dir) == all);
    let (next, opened) = recorder(dir, settings(None));
    drop(next);
    assert_eq!((opened.segments, opened.recovered.len()), (3, 0));
    let found: Vec<_> = scratch
        .names()
        .into_iter()
        .filter(|name| !name.ends_with("index") && name != "lock")
        .collect();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        found,
        [
            name(&zst(&paths[0])),
            name(&paths[1]),
            name(&zst(&paths[2]))
        ]
    );
    assert!(read_all(dir) == all);
    // A compressed file that does not hold the segment does not cost the plain one.
    fs::write(zst(&paths[1]), &fs::read(zst(&paths[2])).unwrap()[..1000]).unwrap();
    assert!(read_all(dir) == all);
    drop(recorder(dir, settings(None)));
    assert!(paths[1].exists() && read_all(dir) == all);
    assert_eq!(compress_in(dir, settings(Some(3))).segments, 1);
    assert!(!paths[1].exists() && read_all(dir) == all);
}

/// Packets in front of and behind the blocks that lie from `start` to `end` of the segment.
fn without(all: &[Packet], dir: &Path, plain: &Path, [start, end]: [u64; 2]) -> (Vec<Packet>, u64) {
    let listed = super::super::name::list(dir).unwrap().segments;
    let segment = listed
        .into_iter()
        .find(|segment| segment.path == plain)
        .unwrap();
    let len = super::super::super::contents::Contents::open(&segment)
        .unwrap()
        .len()
        .unwrap();
    let index = Index::open(&segment.index(), segment.generation, segment.start_ns, len).unwrap();
    let lost: Vec<_> = index
        .blocks
        .iter()
        .filter(|entry| entry.block.packets > 0 && (start..end).contains(&entry.offset))
        .collect();
    let numbers = |number: u64| {
        lost.iter().any(|entry| {
            (entry.block.first..entry.block.first + u64::from(entry.block.packets))
                .contains(&number)
        })
    };
    let kept = all
        .iter()
        .zip(0..)
        .filter(|(_, number)| !numbers(*number))
        .map(|(packet, _)| packet.clone());
    (kept.collect(), lost.len() as u64)
}

#[test]
fn damage_in_a_frame_costs_its_blocks_alone() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let (all, plain) = compressed_record(dir, 75);
    let path = plain.keys().nth(1).unwrap();
    let mut bytes = fs::read(zst(path)).unwrap();
    let ([from, to], place) = frames(&bytes)[1];
    let (expected, blocks) = without(&all, dir, path, place);
    assert!(expected.len() < all.len() && blocks > 100);
    bytes[(from + to) / 2] ^= 4;
    fs::write(zst(path), &bytes).unwrap();
    let (found, counts) = read(dir, Selection::default(), None);
    assert!(found == expected);
    assert_eq!(counts.damaged, blocks);
    let damage = counts.damage.unwrap();
    assert_eq!((damage.0, damage.1), (zst(path), place[0]));
    // The same by the marks, and by an index that is made anew.
    fs::remove_file(path.with_extension("index")).unwrap();
    let (found, counts) = read(dir, Selection::default(), None);
    assert!(
        found == expected && counts.damaged == 1,
        "{}",
        counts.damaged
    );
    let opened = reindex(dir, settings(None), Now::default()).unwrap();
    assert_eq!(
        opened
            .recovered
            .iter()
            .map(|found| found.damaged)
            .collect::<Vec<_>>(),
        [1, 0, 0]
    );
    assert!(read_all(dir) == expected && zst(path).exists() && !path.exists());
}

#[test]
fn a_torn_file_gives_the_packets_in_front_of_the_tear() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let (all, plain) = compressed_record(dir, 76);
    let path = plain.keys().nth(1).unwrap();
    let whole = fs::read(zst(path)).unwrap();
    let index = fs::read(path.with_extension("index")).unwrap();
    let frames = frames(&whole);
    let end_of_frames = frames[frames.len() - 1].0[1];
    for cut in [
        whole.len() - 1,
        whole.len() - 9,
        end_of_frames + 4,
        frames[1].0[1],
        frames[1].0[0] + 999,
        3,
        1,
    ] {
        let kept = frames
            .iter()
            .filter(|([_, end], _)| *end <= cut)
            .map(|(_, [_, stop])| *stop)
            .max()
            .unwrap_or(0);
        fs::write(zst(path), &whole).unwrap();
        fs::write(path.with_extension("index"), &index).unwrap();
        let (expected, lost) = without(&all, dir, path, [kept, u64::MAX]);
        fs::write(zst(path), &whole[..cut]).unwrap();
        for state in ["index", "marks", "recovered"] {
            if state == "marks" {
                fs::remove_file(path.with_extension("index")).unwrap();
            } else if state == "recovered" {
                let (next, opened) = recorder(dir, settings(None));
                drop(next);
                let [found] = &opened.recovered[..] else {
                    panic!("{:?}", opened.recovered)
                };
                assert_eq!(found.damage.is_some(), lost > 0, "{cut}");
            }
            let (found, counts) = read(dir, Selection::default(), None);
            assert!(
                found == expected,
                "{cut} {state}: {} of {}",
                found.len(),
                expected.len()
            );
            // A new index without a tail that could be read says nothing.
            assert!(
                (counts.damaged > 0) == (lost > 0) || state == "recovered",
                "{cut} {state}: {counts:?}"
            );
        }
    }
}

#[test]
fn no_change_of_a_compressed_file_makes_up_packets() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let (all, plain) = compressed_record(dir, 77);
    let path = plain.keys().next().unwrap();
    let whole = fs::read(zst(path)).unwrap();
    let mut random = Random(8);
    for round in 0..60 / sparse(3) {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            // Many of them in the seek table.
            let at = if random.below(2) == 0 {
                random.below(whole.len())
            } else {
                whole.len() - 1 - random.below(60)
            };
            bytes[at] ^= 1 << random.below(8);
        }
        fs::write(zst(path), &bytes).unwrap();
        let (found, counts) = read(dir, Selection::default(), None);
        let mut rest = all.iter();
        assert!(
            found.iter().all(|packet| rest.any(|known| known == packet)),
            "{round}"
        );
        assert!(found.len() == all.len() || counts.damaged > 0, "{round}");
    }
}

#[test]
fn readers_beside_a_recorder_that_compresses_have_each_packet_once() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let all = packets(8000, 78);
    let small = Settings {
        segment_bytes: 128 << 10,
        ..settings(Some(1))
    };
    record_plain(dir, &all, small.clone());
    let (mut recorder, _) = recorder(dir, small);
    // One reader has listed the segments, and has the first one open.
    let mut early = Reader::open(dir, Selection::default(), None).unwrap();
    let mut bytes = early.next_bytes().unwrap().unwrap().to_vec();
    bytes.extend_from_slice(early.next_bytes().unwrap().unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(read_all(dir) == all);
                }
            });
        }
        recorder.compress_all().unwrap();
        done.store(true, Ordering::Relaxed);
    });
    assert!(recorder.stats().compression.segments > 20);
    while let Some(more) = early.next_bytes().unwrap() {
        bytes.extend_from_slice(more);
    }
    assert!(packets_in(&bytes) == all && early.counts().gone == 0);
}

#[test]
fn the_limit_of_bytes_holds_while_segments_are_compressed_and_more_packets_are_kept() {
    let all = packets(20_000, 79);
    let mut kept = Vec::new();
    for compress in [None, Some(1)] {
        let scratch = Scratch::new();
        let dir = scratch.path();
        let limit = 2 << 20;
        let retention = Retention {
            bytes: Some(limit),
            ..Retention::default()
        };
        let (mut recorder, _) = recorder(
            dir,
            Settings {
                segment_bytes: 256 << 10,
                retention,
                compress,
                ..small()
            },
        );
        let bytes = || {
            let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
            let files = entries.filter(|entry| entry.file_name() != "lock");
            files
                .filter_map(|entry| entry.metadata().ok())
                .map(|data| data.len())
                .sum::<u64>()
        };
        for (number, packet) in all.iter().enumerate() {
            recorder.packet(0, number as u64, &record(packet)).unwrap();
            if number % 100 == 0 {
                recorder.tick(at(number as u64 / 100)).unwrap();
                assert!(bytes() <= limit, "{compress:?}");
            }
            if number % 500 == 0 {
                // The thread is awaited, so that the test does not depend on its speed.
                recorder.take_compressed(true);
            }
        }
        recorder.flush().unwrap();
        let found = read_all(dir);
        assert!(
            found == all[all.len() - found.len()..],
            "the newest packets are there, in order"
        );
        kept.push(found.len());
    }
    assert!(kept[1] > kept[0] * 3 / 2, "{kept:?}");
}

#[test]
fn errors_leave_the_segment_plain_or_compressed_and_are_told_once() {
    let scratch = Scratch::new();
    let all = packets(1200, 80);
    record_plain(&scratch.path().join("plain"), &all, small());
    for fails in 0..9 {
        let dir = scratch.path().join(format!("{fails}"));
        fs::create_dir(&dir).unwrap();
        for path in [
            files(&scratch.path().join("plain"), "pcapng"),
            files(&scratch.path().join("plain"), "index"),
        ]
        .concat()
        {
            fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
        }
        let disk = Arc::new(Faulty::new(fails, 1));
        let settings = Settings {
            compress: Some(3),
            ..small()
        };
        let (mut recorder, opened) =
            Recorder::open(disk.clone(), &dir, settings.clone(), at(0)).unwrap();
        recorder.compress_all().unwrap();
        assert_eq!(opened.segments, 1);
        let failed = disk.done() > fails;
        assert_eq!(
            recorder.take_compression_error().is_some(),
            failed,
            "{fails}"
        );
        assert!(recorder.take_compression_error().is_none());
        assert_eq!(
            recorder.stats().compression.failed,
            u64::from(failed),
            "{fails}"
        );
        assert!(read_all(&dir) == all, "{fails}");
        recorder.close().unwrap();
        let (mut next, _) =
            Recorder::open(Arc::new(System::default()), &dir, settings, at(0)).unwrap();
        next.compress_all().unwrap();
        assert!(
            read_all(&dir) == all
                && files(&dir, "pcapng").is_empty()
                && files(&dir, "new").is_empty(),
            "{fails}"
        );
    }
}
