//! A file that loses bytes while it is read: whole packets are delivered, the fault has the position and the reason, and there is
//! no crash.

mod measured;
mod reading;

use reading::build::{Pcap, Pcapng};
use reading::compare::{Answer, WORKERS, collect, expected, options, plain};
use reading::{Random, Scratch, naive};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_measure::{Config, Sketch, Windowing};
use weir_pipeline::AccessMode;
use weir_pipeline::measuring::{Design, Settings};
use weir_pipeline::reader::SourceError;

/// Length of a file of three mapped windows, bytes.
const LEN: usize = 40 << 20;

fn pcap() -> Vec<u8> {
    let mut random = Random(21);
    let mut file = Pcap::new(1, 65_535);
    while file.bytes.len() < LEN {
        let len = 100 + random.below(1400);
        file.packet(&random.bytes(len));
    }
    file.bytes
}

fn pcapng() -> Vec<u8> {
    let mut random = Random(22);
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    while file.bytes.len() < LEN {
        let len = 100 + random.below(1400);
        file.packet(&random.bytes(len));
    }
    file.bytes
}

/// Reads `file`, which is cut to `len` bytes after `deliveries` of its pieces; returns the answer and the fault's text.
fn read_while_cut(
    file: &[u8],
    way: AccessMode,
    workers: usize,
    deliveries: usize,
    len: usize,
) -> (Answer, String) {
    let scratch = Scratch::new("shrinking", file);
    let cut = || {
        File::options()
            .write(true)
            .open(&scratch.0)
            .unwrap()
            .set_len(len as u64)
            .unwrap()
    };
    let mut reader = reading::compare::reader(plain(&scratch), "", options(way, workers));
    let mut answer = Answer::default();
    let mut count = 0;
    if deliveries == 0 {
        cut();
    }
    while let Some(delivery) = reader.next() {
        collect(&mut answer, &delivery);
        reader.recycle(delivery.view);
        count += 1;
        assert!(count < 10_000, "reading ends");
        if count == deliveries {
            cut();
        }
    }
    let report = reader.report();
    answer.received = report.received;
    let fault = report
        .fault
        .as_ref()
        .expect("a file that shrank is not read well");
    answer.fault = Some((fault.packet, fault.offset));
    let SourceError::Shrank { from, to } = fault.what else {
        panic!("{way:?}, {workers} workers, cut to {len}: {fault:?}")
    };
    assert_eq!((from, to), (file.len() as u64, len as u64));
    (answer, fault.what.to_string())
}

/// Returns the whole packets in the first `len` bytes, and the offset of their end.
fn whole(file: &[u8], len: usize) -> Answer {
    let contents = naive::read(&file[..len]);
    let mut right = expected(file, &contents, |_, _| true);
    let end = contents.fault.unwrap_or(len) as u64;
    right.fault = Some((right.received + 1, end));
    right
}

fn same(what: &str, found: &Answer, right: &Answer) {
    reading::compare::same(what, found, right);
}

#[test]
fn mapped_and_cut_behind_the_reader() {
    for (name, file) in [("pcap", pcap()), ("pcapng", pcapng())] {
        let boundary = naive::read(&file)
            .packets
            .iter()
            .find(|packet| packet.end > 30 << 20)
            .unwrap()
            .end;
        for len in [
            30 << 20,
            (30 << 20) + 1234,
            (17 << 20) + 4095,
            (39 << 20) + 1,
            boundary,
        ] {
            let right = whole(&file, len);
            for workers in WORKERS {
                let (found, _) = read_while_cut(&file, AccessMode::Mapped, workers, 1, len);
                same(
                    &format!("{name}, {workers} workers, cut to {len}"),
                    &found,
                    &right,
                );
            }
        }
    }
}

#[test]
fn mapped_and_cut_in_front_of_the_reader() {
    for (name, file) in [("pcap", pcap()), ("pcapng", pcapng())] {
        // Packets delivered before stay delivered. The offset of the fault is the reader's position.
        let contents = naive::read(&file);
        let first = contents
            .packets
            .iter()
            .position(|packet| packet.end >= 16 << 20)
            .unwrap()
            + 1;
        let end = contents.packets[first - 1].end as u64;
        for len in [0, 24, 5000, 8 << 20] {
            for workers in WORKERS {
                let (found, _) = read_while_cut(&file, AccessMode::Mapped, workers, 1, len);
                let what = format!("{name}, {workers} workers, cut to {len}");
                assert_eq!(
                    (found.received, found.fault),
                    (first as u64, Some((first as u64 + 1, end))),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn cut_before_the_first_byte_is_read() {
    for (name, file) in [("pcap", pcap()), ("pcapng", pcapng())] {
        for len in [0, 10, 24, 4096, 5000, 1 << 20, (20 << 20) + 77] {
            let right = whole(&file, len);
            for way in [AccessMode::Mapped, AccessMode::Read] {
                for workers in WORKERS {
                    let (found, text) = read_while_cut(&file, way, workers, 0, len);
                    same(
                        &format!("{name}, {way:?}, {workers} workers, cut to {len}"),
                        &found,
                        &right,
                    );
                    assert_eq!(
                        text,
                        format!(
                            "the file shrank from {} to {len} bytes while it was read",
                            file.len()
                        )
                    );
                }
            }
        }
    }
}

#[test]
fn read_in_pieces_and_cut() {
    for (name, file) in [("pcap", pcap()), ("pcapng", pcapng())] {
        let boundary = naive::read(&file)
            .packets
            .iter()
            .find(|packet| packet.end > 30 << 20)
            .unwrap()
            .end;
        for len in [30 << 20, (17 << 20) + 1234, boundary] {
            let right = whole(&file, len);
            for workers in WORKERS {
                let (found, _) = read_while_cut(&file, AccessMode::Read, workers, 1, len);
                same(
                    &format!("{name}, {workers} workers, cut to {len}"),
                    &found,
                    &right,
                );
            }
        }
        // A cut in front of the reader: the progress of the workers is not determined, but the packets delivered were in the file.
        let all = expected(&file, &naive::read(&file), |_, _| true);
        for len in [0, 5000, 1 << 20] {
            for workers in WORKERS {
                let (found, _) = read_while_cut(&file, AccessMode::Read, workers, 2, len);
                let what = format!("{name}, {workers} workers, cut to {len}");
                assert_eq!(found.received, found.passed + found.filtered, "{what}");
                assert!(
                    found.received > 0 && found.received < all.received,
                    "{what}: {}",
                    found.received
                );
                assert!(
                    found.kept[..] == all.kept[..found.kept.len()],
                    "{what}: the packets that came are right"
                );
                assert_eq!(
                    found.fault.map(|(packet, _)| packet),
                    Some(found.received + 1),
                    "{what}"
                );
            }
        }
    }
}

/// The bytes of a delivery are those of the file: a late use may find them gone, and gets an error.
#[test]
fn cut_between_delivery_and_use() {
    for (name, file) in [("pcap", pcap()), ("pcapng", pcapng())] {
        for len in [0usize, 5000, 9 << 20] {
            let scratch = Scratch::new("late", &file);
            let mut reader =
                reading::compare::reader(plain(&scratch), "", options(AccessMode::Mapped, 2));
            let delivery = reader.next().expect("a file of three windows");
            File::options()
                .write(true)
                .open(&scratch.0)
                .unwrap()
                .set_len(len as u64)
                .unwrap();
            let bytes = delivery.view.bytes();
            let mut good = 0;
            for at in delivery.part.passed_records() {
                let record = delivery.current.layout.record(bytes, at as usize);
                // Packets before the cut are whole; behind it, there is no packet, or one without bytes.
                if record.is_some_and(|record| !record.frame.data.is_empty()) {
                    good += 1;
                }
            }
            let whole = naive::read(&file[..len]).packets.len();
            assert!(
                (whole..=whole + 1).contains(&good),
                "{name}, cut to {len}: {good} of {whole}"
            );
            let page = len.next_multiple_of(4096) as u64;
            assert_eq!(delivery.view.fault(), Some(page), "{name}, cut to {len}");
            reader.recycle(delivery.view);
            while let Some(delivery) = reader.next() {
                reader.recycle(delivery.view);
            }
            let fault = reader.report().fault.as_ref().expect("the file shrank");
            assert!(
                matches!(fault.what, SourceError::Shrank { .. }),
                "{name}, cut to {len}: {fault:?}"
            );
        }
    }
}

fn cut_to(scratch: &Scratch, len: usize) {
    File::options()
        .write(true)
        .open(&scratch.0)
        .unwrap()
        .set_len(len as u64)
        .unwrap();
}

/// After the file was cut, every design measures the whole packets of the rest.
#[test]
fn a_measurement_counts_what_was_still_there() {
    const WINDOW_NS: i64 = 1_000_000_000;
    let mut file = Pcap::new(1, 65_535);
    let mut random = Random(23);
    while file.bytes.len() < 15 << 20 {
        let data = random.bytes(60);
        file.packet(&data);
    }
    let len = (8 << 20) + 1234;
    let right = naive::read(&file.bytes[..len]).packets.len() as u64;
    for (design, workers) in [
        (Design::Rss, 1),
        (Design::Rss, 2),
        (Design::Async, 2),
        (Design::Sync, 2),
    ] {
        for expression in ["", "len >= 0"] {
            let what = format!("{design:?}, {workers} workers, '{expression}'");
            let scratch = Scratch::new("measured", &file.bytes);
            let mut run = measured::run(
                Settings {
                    config: Arc::new(Config {
                        sketch: Sketch::Exact,
                        memory: 1 << 20,
                        windowing: Windowing {
                            window_ns: Some(WINDOW_NS),
                            ..Windowing::default()
                        },
                        ..Config::default()
                    }),
                    design,
                    workers,
                    ..Settings::default()
                },
                expression,
            );
            // All windows are pieces of one delivery: the first ones are complete while the others are not read yet.
            let mut windows = 0;
            let mut each = |_: weir_measure::Window<'_>| {
                windows += 1;
                if windows == 1 {
                    cut_to(&scratch, len);
                }
            };
            let measured = measured::source(
                &mut run,
                plain(&scratch),
                &AtomicBool::new(false),
                &mut |_| {},
                &mut each,
            )
            .unwrap();
            let finished = run.finish(&mut each).unwrap();
            let fault = measured.report.fault.expect("the file shrank");
            assert!(
                matches!(fault.what, SourceError::Shrank { .. }),
                "{what}: {fault:?}"
            );
            let counted = (
                measured.report.received,
                finished.arrivals.received,
                finished.processed,
                fault.packet,
            );
            assert_eq!(counted, (right, right, right, right + 1), "{what}");
        }
    }
}
