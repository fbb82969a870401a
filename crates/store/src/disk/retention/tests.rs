use super::super::testing::*;
use super::super::{Now, Recorder, Settings};
use super::*;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use weir_testkit::Scratch;

/// Segments of 256 KiB.
fn settings(retention: Retention) -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        retention,
        ..small()
    }
}

/// Bytes of the segments and indexes of a directory.
fn bytes(dir: &Path) -> u64 {
    let all = files(dir, "pcapng").into_iter().chain(files(dir, "index"));
    all.filter(|path| {
        !path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("trigger")
    })
    .map(|path| fs::metadata(path).unwrap().len())
    .sum()
}

/// Numbers of the packets that are there: one range up to the last one, or packets in the middle are lost.
fn first_of(dir: &Path, all: &[Packet]) -> usize {
    let found = read_all(dir);
    assert!(
        !found.is_empty() && found == all[all.len() - found.len()..],
        "the newest packets are there, in order"
    );
    all.len() - found.len()
}

#[test]
fn the_oldest_segments_go_before_the_limit_is_reached() {
    let scratch = Scratch::new();
    let all = packets(8000, 40);
    let limit = 1 << 20;
    let (mut recorder, _) = recorder(
        scratch.path(),
        settings(Retention {
            bytes: Some(limit),
            ..Retention::default()
        }),
    );
    for (number, packet) in all.iter().enumerate() {
        recorder.packet(0, number as u64, &record(packet)).unwrap();
        assert!(number % 100 != 0 || bytes(scratch.path()) <= limit);
    }
    recorder.flush().unwrap();
    assert!(first_of(scratch.path(), &all) > 1000);
    let removed = recorder.stats().removed;
    assert!(
        removed.segments > 5 && removed.triggered == 0,
        "{removed:?}"
    );
    assert_eq!(
        removed.bytes + bytes(scratch.path()),
        recorder.stats().bytes + recorder.stats().index_bytes
    );
    let closed = recorder.close().unwrap();
    assert_eq!(closed.kept.1, bytes(scratch.path()));
    // The next recorder knows what is there.
    let (mut next, opened) = super::super::testing::recorder(
        scratch.path(),
        settings(Retention {
            bytes: Some(limit / 2),
            ..Retention::default()
        }),
    );
    assert_eq!(opened.bytes, closed.kept.1);
    write(&mut next, &all[..1], 0);
    assert!(bytes(scratch.path()) <= limit / 2);
}

#[test]
fn the_oldest_segments_go_before_the_disk_is_full() {
    let scratch = Scratch::new();
    let all = packets(8000, 41);
    // A disk of 1 MiB, and what others have of it.
    let others = Arc::new(AtomicU64::new(0));
    let (dir, taken) = (scratch.path().to_owned(), others.clone());
    let free = move |_: &Path| {
        Ok((1u64 << 20).saturating_sub(bytes(&dir) + taken.load(Ordering::Relaxed)))
    };
    let reserve_bytes = 64 << 10;
    let settings = Settings {
        free_bytes: Some(FreeBytes(Arc::new(free.clone()))),
        ..settings(Retention {
            reserve_bytes,
            ..Retention::default()
        })
    };
    let (mut recorder, _) = recorder(scratch.path(), settings);
    for (number, packet) in all[..6000].iter().enumerate() {
        recorder.packet(0, number as u64, &record(packet)).unwrap();
        assert!(number % 100 != 0 || free(scratch.path()).unwrap() >= reserve_bytes);
    }
    recorder.flush().unwrap();
    assert!(first_of(scratch.path(), &all[..6000]) > 1000);
    // Others fill the disk: everything old goes, and then there is no room.
    others.store(1 << 20, Ordering::Relaxed);
    let mut errors = Vec::new();
    for (number, packet) in all.iter().enumerate().skip(6000) {
        if let Err(error) = recorder.packet(0, number as u64, &record(packet)) {
            errors.push(error.to_string());
        }
    }
    assert!(
        errors[0].contains("0 bytes are free, 65536 are to stay free"),
        "{}",
        errors[0]
    );
    // There is room again: the packets that were not written can be passed again.
    others.store(0, Ordering::Relaxed);
    let from = recorder.resume_from();
    write(&mut recorder, &all[from as usize..], from);
    let found = read_all(scratch.path());
    assert_eq!(found.last(), all.last());
    assert!(found == all[all.len() - found.len()..]);
}

#[test]
fn indexes_with_many_keys_count_for_the_limit() {
    let scratch = Scratch::new();
    let mut all = packets(20_000, 44);
    // Each packet is one of a conversation of its own.
    for (number, (_, data)) in all.iter_mut().enumerate() {
        let number = (number as u32).to_be_bytes();
        data[26..30].copy_from_slice(&number);
        data[30..34].copy_from_slice(&number);
        data.truncate(60);
    }
    // With each remainder that three segments may leave.
    for limit in (780_000..860_000).step_by(10_000) {
        let dir = scratch.path().join(limit.to_string());
        let (mut recorder, _) = recorder(
            &dir,
            settings(Retention {
                bytes: Some(limit),
                ..Retention::default()
            }),
        );
        for (number, packet) in all.iter().enumerate() {
            recorder.packet(0, number as u64, &record(packet)).unwrap();
            assert!(
                number % 100 != 0 || bytes(&dir) <= limit,
                "{} of {limit} bytes",
                bytes(&dir)
            );
        }
        let closed = recorder.close().unwrap();
        assert!(
            closed.stats.index_bytes > 100_000 && closed.stats.removed.segments > 0,
            "{closed:?}"
        );
        assert!(bytes(&dir) <= limit);
    }
}

#[test]
fn nothing_goes_while_the_file_system_has_room() {
    let scratch = Scratch::new();
    let (dir, size) = (scratch.path().to_owned(), 12u64 << 20);
    let free = move |_: &Path| Ok(size - bytes(&dir));
    let settings = Settings {
        segment_bytes: 4 << 20,
        free_bytes: Some(FreeBytes(Arc::new(free.clone()))),
        ..settings(Retention {
            reserve_bytes: 64 << 10,
            ..Retention::default()
        })
    };
    let (mut recorder, _) = recorder(scratch.path(), settings);
    let all = packets(60_000, 45);
    let mut before = size;
    for (number, packet) in all.iter().enumerate() {
        recorder.packet(0, number as u64, &record(packet)).unwrap();
        if recorder.stats().removed.segments > 0 {
            break;
        }
        if number % 100 == 0 {
            before = free(scratch.path()).unwrap();
        }
    }
    assert_eq!(recorder.stats().removed.segments, 1);
    assert!(
        before < 1 << 20,
        "{before} bytes were free when the first segment was removed"
    );
}

#[test]
fn a_segment_without_further_packets_goes_when_it_is_too_old() {
    let scratch = Scratch::new();
    let limits = Retention {
        age_ns: Some(100_000_000_000),
        ..Retention::default()
    };
    let (mut recorder, _) = recorder(scratch.path(), settings(limits));
    recorder.tick(at(0)).unwrap();
    let all = packets(10, 46);
    for (number, packet) in all.iter().enumerate() {
        recorder.packet(0, number as u64, &record(packet)).unwrap();
    }
    recorder.tick(at(1)).unwrap();
    recorder.tick(at(101)).unwrap();
    assert_eq!(read_all(scratch.path()), all);
    recorder.tick(at(102)).unwrap();
    assert!(
        files(scratch.path(), "pcapng").is_empty() && files(scratch.path(), "index").is_empty()
    );
    assert_eq!(recorder.stats().removed.segments, 1);
    // Packets that come again begin another segment.
    recorder.packet(0, 10, &record(&all[0])).unwrap();
    recorder.flush().unwrap();
    assert_eq!(read_all(scratch.path()), all[..1]);
}

fn set_age(path: &Path, seconds: u64) {
    let time =
        SystemTime::UNIX_EPOCH + Duration::from_secs(START_NS as u64 / 1_000_000_000 - seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn files_go_by_age_and_those_of_triggers_by_limits_of_their_own() {
    let scratch = Scratch::new();
    let all = packets(3000, 42);
    let seconds = 1_000_000_000;
    let limits = Retention {
        age_ns: Some(100 * seconds),
        trigger_age_ns: Some(1000 * seconds),
        ..Retention::default()
    };
    let (mut recorder, _) = recorder(scratch.path(), settings(limits));
    write(&mut recorder, &all, 0);
    let segments = files(scratch.path(), "pcapng");
    drop(recorder);
    for (at, path) in segments.iter().enumerate() {
        set_age(path, 99 + 2 * u64::from(at < 2));
    }
    let saved = |age: u64| format!("trigger-a-scan-20231114T221320.{age:09}Z.pcapng");
    for age in [99, 500, 1001] {
        set_age(scratch.file(&saved(age), &[7; 1000]).as_ref(), age);
    }
    scratch.file("notes.pcapng", b"not ours");
    set_age(scratch.at("notes.pcapng").as_ref(), 100_000);
    let open = |limits| {
        Recorder::open(
            Arc::new(Faulty::new(0, 0)),
            scratch.path(),
            settings(limits),
            at(0),
        )
        .unwrap()
        .0
    };
    let mut next = open(limits);
    // Recovery of the segment that was not closed changes its index alone.
    next.tick(Now {
        steady_ns: 2_000_000_000,
        wall_ns: START_NS,
    })
    .unwrap();
    assert_eq!(
        (
            next.stats().removed.segments,
            next.stats().removed.triggered
        ),
        (2, 1)
    );
    let names = scratch.names();
    assert!(!names.contains(&saved(1001)) && names.contains(&saved(500)));
    assert!(names.contains(&"notes.pcapng".to_owned()));
    assert_eq!(
        files(scratch.path(), "pcapng").len(),
        segments.len() - 2 + 3
    );
    drop(next);
    let mut next = open(Retention {
        trigger_bytes: Some(1500),
        ..Retention::default()
    });
    next.tick(Now {
        steady_ns: 5_000_000_000,
        wall_ns: START_NS,
    })
    .unwrap();
    assert_eq!(
        next.stats().removed,
        Removed {
            segments: 0,
            triggered: 1,
            bytes: 1000
        }
    );
    assert!(scratch.names().contains(&saved(99)));
}

#[test]
fn a_reader_goes_on_when_segments_are_removed_under_it() {
    let scratch = Scratch::new();
    let all = packets(6000, 43);
    let (mut recorder, _) = recorder(scratch.path(), settings(Retention::default()));
    write(&mut recorder, &all, 0);
    let mut reader = crate::disk::Reader::open(scratch.path(), Default::default(), None).unwrap();
    let mut bytes = Vec::new();
    // The header of the stream, and a part of the first segment.
    for _ in 0..2 {
        bytes.extend_from_slice(reader.next_bytes().unwrap().unwrap());
    }
    let segments = files(scratch.path(), "pcapng");
    for path in &segments[..3] {
        fs::remove_file(path.with_extension("index")).unwrap();
        fs::remove_file(path).unwrap();
    }
    while let Some(more) = reader.next_bytes().unwrap() {
        bytes.extend_from_slice(more);
    }
    assert_eq!(reader.counts().gone, 2, "the first one is open");
    let found = packets_in(&bytes);
    assert!(found.is_sorted() && found.len() > 2000 && found.last() == all.last());
}
