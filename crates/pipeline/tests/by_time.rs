//! Several sources by time, and sorted, against the packets that a naive reader finds.

mod reading;

use reading::build::{Pcap, Pcapng};
use reading::compare::{self, Answer};
use reading::naive;
use reading::{Random, Scratch};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_pipeline::Report;
use weir_pipeline::by_time::{MergedFiles, Part, Rejected};
use weir_pipeline::reader::{SourceError, Step};
use weir_pipeline::select::{Select, Selection};
use weir_pipeline::sort::{SortFault, Sorter};
use weir_pipeline::source::Source as _;
use weir_pipeline::stages::Stages;

/// Packets of a source: the sort key of each, and a hash of all its properties.
type Source = Vec<(i128, u64)>;

/// Returns files with unordered packets and many equal times.
fn unordered(seed: u64, packets: usize) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let payload = |random: &mut Random| {
        let len = (random.next() % 300) as usize;
        (0..len).map(|_| random.next() as u8).collect::<Vec<u8>>()
    };
    let mut files = Vec::new();
    for (big, nanoseconds) in [(false, false), (true, true), (true, false)] {
        let mut file = Pcap::with(1, 65_535, big, nanoseconds);
        for _ in 0..packets {
            let data = payload(&mut random);
            let (seconds, fraction) = (
                1_700_000_000 + random.next() as u32 % 20,
                random.next() as u32 % 5,
            );
            file.header(seconds, fraction, data.len() as u32, 1000);
            file.bytes.extend(data);
        }
        files.push(file.bytes);
    }
    // Two interfaces, the second described late, a second section, and packets without a time.
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    for i in 0..packets {
        if i == packets / 2 {
            file.interface(101, 96, 9);
        }
        if i == packets * 3 / 4 {
            file.section(true);
            file.interface(1, 0, 6);
        }
        let data = payload(&mut random);
        file.count = random.next() % 20 * 1_000_000;
        match random.next() % 8 {
            0 => file.simple(data.len() as u32, &data),
            1 if i > packets / 2 && i < packets * 3 / 4 => file.enhanced(1, 2000, &data),
            _ => file.packet(&data),
        }
    }
    files.push(file.bytes);
    files
}

/// Returns the packets that the naive reader finds in a file; a packet without a time has the sort key of the packet before it.
fn source(file: &[u8]) -> Source {
    let contents = naive::read(file);
    let hashes = compare::expected(file, &contents, |_, _| true).kept;
    let mut key = i128::from(i64::MIN);
    let key_of = |packet: &naive::Packet| {
        key = packet.time_ns.unwrap_or(key);
        key
    };
    contents.packets.iter().map(key_of).zip(hashes).collect()
}

fn flag() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

fn all() -> Arc<Stages> {
    Arc::new(Stages::noting(Arc::new(Select::new(Selection::default()))))
}

/// Returns the packets that a source delivers, and its final reports.
fn delivered(mut source: MergedFiles) -> (Vec<u64>, Report, Vec<Part>) {
    let mut answer = Answer::default();
    loop {
        match source.poll() {
            Step::Delivery(delivery) => {
                compare::collect(&mut answer, &delivery);
                source.recycle(delivery.view);
            }
            Step::Quiet => {}
            Step::End => break,
        }
    }
    let (report, parts) = source.into_parts();
    assert_eq!(answer.kept.len() as u64, report.received);
    (answer.kept, report, parts)
}

/// Sorts the files as one.
fn sorted(files: &[Vec<u8>], sorter: Sorter) -> (Vec<u64>, Report, Vec<Part>, Option<SortFault>) {
    let mut sorter = sorter;
    for (i, file) in files.iter().enumerate() {
        let scratch = Scratch::new(&format!("unordered{i}"), file);
        sorter
            .take(compare::plain(&scratch), &mut |_| Ok(()), &mut |_| {})
            .expect("nothing is refused");
    }
    let (reader, fault) = sorter.sorted(all(), Rejected::Whole);
    let (kept, report, parts) = delivered(reader);
    (kept, report, parts, fault)
}

fn sorter(memory: usize) -> Sorter {
    Sorter::new(std::env::temp_dir(), memory, &flag())
}

#[test]
fn sorted_packets_are_those_of_a_stable_sort() {
    let files = unordered(1, 2500);
    let mut right: Source = files.iter().flat_map(|file| source(file)).collect();
    right.sort_by_key(|(key, _)| *key);
    let right: Vec<u64> = right.into_iter().map(|(_, hash)| hash).collect();
    assert_eq!(right.len(), 10_000);
    // From dozens of runs and many levels to one run.
    for (memory, fan_in) in [
        (64 << 10, 2),
        (64 << 10, 3),
        (64 << 10, 128),
        (300 << 10, 4),
        (64 << 20, 128),
    ] {
        let (kept, report, parts, fault) = sorted(&files, sorter(memory).with_fan_in(fan_in));
        assert!(
            fault.is_none() && report.fault.is_none(),
            "{memory} {fan_in}: {fault:?} {report:?}"
        );
        assert!(kept == right, "{memory} {fan_in}");
        let received: Vec<u64> = parts.iter().map(|part| part.report.received).collect();
        assert_eq!(received, [2500; 4], "{memory} {fan_in}");
    }
}

/// Merges naively: always takes the earliest next packet, that of the first source if times are equal.
fn naive_merge(sources: &[Source]) -> Vec<u64> {
    let mut next = vec![0; sources.len()];
    let mut merged = Vec::new();
    loop {
        let heads = sources
            .iter()
            .zip(&next)
            .enumerate()
            .filter_map(|(i, (source, &at))| Some((source.get(at)?.0, i)));
        let Some((_, earliest)) = heads.min() else {
            return merged;
        };
        merged.push(sources[earliest][next[earliest]].1);
        next[earliest] += 1;
    }
}

#[test]
fn a_merge_takes_the_earliest_of_the_packets_that_are_next() {
    let mut files = unordered(2, 1500);
    // Sources in order too, and an empty one.
    for step in [1, 3] {
        let mut file = Pcap::new(1, 65_535);
        (0..2000).for_each(|i| {
            file.header(1_700_000_000 + i / 100, i % 100 * step, 40, 40);
            file.bytes.extend([i as u8; 40]);
        });
        files.push(file.bytes);
    }
    files.push(Pcap::new(1, 65_535).bytes);
    let sources: Vec<Source> = files
        .iter()
        .map(|file| {
            // A packet without a time is passed on at once.
            let times = naive::read(file)
                .packets
                .into_iter()
                .map(|p| p.time_ns.unwrap_or(i64::MIN.into()));
            times
                .zip(source(file))
                .map(|(time, (_, hash))| (time, hash))
                .collect()
        })
        .collect();
    let right = naive_merge(&sources);
    let (kept, received) = merged(&files);
    assert!(kept == right);
    assert_eq!(received, [1500, 1500, 1500, 1500, 2000, 2000, 0]);
}

/// Merges the files; returns the packets, and the number received of each file.
fn merged(files: &[Vec<u8>]) -> (Vec<u64>, Vec<u64>) {
    let scratches: Vec<Scratch> = files
        .iter()
        .map(|file| Scratch::new("merged", file))
        .collect();
    let inputs = scratches.iter().map(compare::plain).collect();
    let (kept, report, parts) = delivered(MergedFiles::new(inputs, all(), Rejected::Whole));
    assert!(report.fault.is_none(), "{report:?}");
    (
        kept,
        parts.iter().map(|part| part.report.received).collect(),
    )
}

/// Returns two files of one packet per second each; `damage` returns the stamp of a packet of the first file from its number and
/// true time.
fn two_files(damage: impl Fn(u32, u32) -> u32) -> Vec<Vec<u8>> {
    let file = |offset: u32, stamp: &dyn Fn(u32, u32) -> u32| {
        let mut file = Pcap::new(1, 65_535);
        for i in 0..3000 {
            let seconds = 1_700_000_000 + i;
            file.header(stamp(i, seconds), offset, 40, 40);
            file.bytes.extend([i as u8; 40]);
        }
        file.bytes
    };
    vec![file(0, &damage), file(500_000, &|_, seconds| seconds)]
}

#[test]
fn a_damaged_stamp_does_not_hold_its_source_back() {
    let whole: Vec<Source> = two_files(|_, seconds| seconds)
        .iter()
        .map(|file| source(file))
        .collect();
    for (every, row) in [(1000, 1), (50, 1), (100, 31)] {
        let files = two_files(|i, seconds| {
            if i % every < row && i >= every {
                u32::MAX - i
            } else {
                seconds
            }
        });
        // The order is that of the intact files, but packets with damaged stamps are passed on with the packet behind them.
        let mut sources: Vec<Source> = files.iter().map(|file| source(file)).collect();
        for i in (0..sources[0].len()).rev() {
            let next = sources[0].get(i + 1).map(|next| next.0);
            let damaged = sources[0][i].0 != whole[0][i].0;
            if let (true, Some(next)) = (damaged, next) {
                sources[0][i].0 = next;
            }
        }
        assert!(
            merged(&files).0 == naive_merge(&sources),
            "one in {every}, {row} in a row"
        );
    }
    // A clock that was set back is no damage: the source stays behind.
    let files = two_files(|i, seconds| if i < 1000 { seconds + 7200 } else { seconds });
    let sources: Vec<Source> = files.iter().map(|file| source(file)).collect();
    assert!(merged(&files).0 == naive_merge(&sources));
}

#[test]
fn a_damaged_source_is_sorted_up_to_its_damage() {
    let mut files = unordered(3, 500);
    let cut = files[1].len() - 7;
    files[1].truncate(cut);
    let mut right: Source = files.iter().flat_map(|file| source(file)).collect();
    right.sort_by_key(|(key, _)| *key);
    let (kept, report, parts, fault) = sorted(&files, sorter(64 << 10));
    assert!(fault.is_none() && report.fault.is_none());
    assert_eq!(
        kept,
        right
            .into_iter()
            .map(|(_, hash)| hash)
            .collect::<Vec<u64>>()
    );
    let faults: Vec<Option<u64>> = parts
        .iter()
        .map(|part| part.report.fault.as_ref().map(|f| f.packet))
        .collect();
    assert_eq!(faults, [None, Some(500), None, None]);
}

#[test]
fn without_room_for_temporary_files_what_was_sorted_is_delivered() {
    let files = unordered(4, 500);
    let (kept, report, parts, fault) = sorted(
        &files,
        Sorter::new(PathBuf::from("/nowhere/at/all"), 64 << 10, &flag()),
    );
    let fault = fault.expect("there is no such directory");
    assert_eq!(fault.error.kind(), std::io::ErrorKind::NotFound);
    // The packets read until then are in memory, and in order.
    let received: Vec<u64> = parts.iter().map(|part| part.report.received).collect();
    assert!(
        received[0] > 0 && received[3] == 0 && report.fault.is_none(),
        "{received:?} {report:?}"
    );
    assert_eq!(report.received, received.iter().sum::<u64>());
    assert!(kept == first_in_order(&files, &received));
}

#[test]
fn what_fits_in_memory_needs_no_temporary_file() {
    let files = unordered(4, 500);
    let (kept, _, _, fault) = sorted(
        &files,
        Sorter::new(PathBuf::from("/nowhere/at/all"), 64 << 20, &flag()),
    );
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(kept, sorted(&files, sorter(64 << 10)).0);
}

#[test]
fn a_sort_that_is_stopped_delivers_nothing() {
    let stop = flag();
    let mut sorter = Sorter::new(std::env::temp_dir(), 64 << 10, &stop);
    let file = Scratch::new("stopped", &unordered(5, 500)[0]);
    sorter
        .take(compare::plain(&file), &mut |_| Ok(()), &mut |_| {})
        .expect("nothing is refused");
    stop.store(true, Ordering::Relaxed);
    let (reader, fault) = sorter.sorted(all(), Rejected::Whole);
    let (kept, report, _) = delivered(reader);
    assert!(
        kept.is_empty() && fault.is_none() && report.fault.is_none(),
        "{fault:?} {report:?}"
    );
}

/// If a layout is refused, the work ends before any further packet is read.
#[test]
fn what_is_refused_is_not_sorted() {
    let file = Scratch::new("refused", &unordered(6, 50)[0]);
    let refused =
        |_: &weir_packet::savefile::Layout| Err(weir_pipeline::PlanError::Refused("no".to_owned()));
    let error = sorter(1 << 20).take(
        compare::plain(&file),
        &mut |layout| refused(layout),
        &mut |_| {},
    );
    assert_eq!(error.expect_err("it is refused").to_string(), "no");
    // A fault of a merge is a mistake of weir, and its text says so.
    assert!(
        SourceError::Merge { read: 2, passed: 1 }
            .to_string()
            .contains("mistake in weir")
    );
}

/// Returns the first `received` packets of each file, in the order of time.
fn first_in_order(files: &[Vec<u8>], received: &[u64]) -> Vec<u64> {
    let taken = files
        .iter()
        .zip(received)
        .flat_map(|(file, &n)| source(file).into_iter().take(n as usize));
    let mut right: Source = taken.collect();
    right.sort_by_key(|(key, _)| *key);
    right.into_iter().map(|(_, hash)| hash).collect()
}

/// The packets of complete runs and those in memory are the first of the sources, and are delivered.
#[test]
fn when_room_runs_out_what_was_sorted_is_delivered() {
    let files = unordered(7, 2000);
    let directory = Scratch::empty("runs");
    std::fs::create_dir(&directory.0).expect("a directory can be made");
    let mut sorter = Sorter::new(directory.0.clone(), 64 << 10, &flag());
    for (i, file) in files.iter().enumerate() {
        if i == 2 {
            std::fs::remove_dir(&directory.0).expect("temporary files have no names");
        }
        let scratch = Scratch::new("partly", file);
        sorter
            .take(compare::plain(&scratch), &mut |_| Ok(()), &mut |_| {})
            .expect("nothing is refused");
    }
    let (reader, fault) = sorter.sorted(all(), Rejected::Whole);
    let (kept, report, parts) = delivered(reader);
    assert!(fault.is_some() && report.fault.is_none(), "{report:?}");
    let received: Vec<u64> = parts.iter().map(|part| part.report.received).collect();
    assert_eq!(
        (received[0], received[1], received[3]),
        (2000, 2000, 0),
        "what was read is there"
    );
    assert!(received[2] < 2000, "nothing more is read");
    assert!(kept == first_in_order(&files, &received));
}
