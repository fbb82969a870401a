//! Allocations per window, not per packet.
//!
//! The allocator counts for the whole process, hence one test in this file.

mod measured;
mod reading;

use reading::Scratch;
use reading::build::{Pcap, Pcapng};
use reading::compare::{options, piecewise, plain};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::Input;
use weir_io::output::{Output, Rotation};
use weir_io::reserve::Reserve;
use weir_measure::{By, Config, KeyKind, Prefix, Sketch};
use weir_packet::flow::Tunnels;
use weir_packet::savefile::Format;
use weir_pipeline::measuring::{Design, Settings};
use weir_pipeline::select::{Select, Selection};
use weir_pipeline::stages::Stages;
use weir_pipeline::{AccessMode, Options, Reader};
use weir_testkit::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Smallest number of bytes handed on at once: the chunk of a stream.
const WINDOW: u64 = 1 << 20;

/// Reads `input`; if `write`, the kept records go to a file. Returns the numbers of packets and allocations.
fn cost(input: Input, options: Options, expression: &str, write: bool) -> (u64, u64) {
    let scratch = Scratch::empty("written.pcapng");
    let path = scratch.0.clone();
    let selection = Selection {
        expression: expression.to_owned(),
        ..Selection::default()
    };
    let before = allocations();
    let select = Arc::new(Select::new(selection));
    let stages = if write {
        Stages::noting(select)
    } else {
        Stages::filter(select)
    };
    let mut reader = Reader::new(input, Arc::new(stages), options);
    let mut output = write.then(|| {
        let naming = Box::new(move |_: u32, _: i64| Ok(path.clone()));
        Output::files(
            naming,
            Format::Pcapng,
            0,
            false,
            Rotation::default(),
            Reserve::default(),
        )
        .expect("a scratch file can be made")
    });
    let mut passed = 0;
    while let Some(delivery) = reader.next() {
        passed += delivery.part.selected.passed;
        if let Some(output) = &mut output {
            let layout = &delivery.current.layout;
            let id = output.interface(&layout.interfaces[0]).expect("it fits");
            for at in delivery.part.passed_records() {
                let record = layout
                    .record(delivery.view.bytes(), at as usize)
                    .expect("it was walked");
                output
                    .packet(id, record.time_ns, &record.frame)
                    .expect("there is room");
            }
        }
        reader.recycle(delivery.view);
    }
    let written = output.map(|output| output.finish().expect("there is room"));
    let spent = allocations() - before;
    assert!(reader.report().fault.is_none());
    assert!(written.is_none_or(|written| written == passed));
    assert!(passed > 0);
    (reader.report().received, spent)
}

/// Measures `input` with one or several workers. Returns the numbers of packets and allocations.
fn measuring_cost(
    input: Input,
    design: Design,
    workers: usize,
    (by, sketch): (By, Sketch),
) -> (u64, u64) {
    let before = allocations();
    let keys = match sketch {
        _ if by.is_distinct() => vec![KeyKind::DST, KeyKind::Src(Prefix::of(24))],
        Sketch::Reversible => vec![KeyKind::DST, KeyKind::Src(Prefix::of(24))],
        Sketch::ReversibleSets => vec![KeyKind::FiveTuple],
        _ => vec![KeyKind::FiveTuple, KeyKind::Src(Prefix::of(24))],
    };
    let settings = Settings {
        inner: Some(Tunnels::default()),
        config: Arc::new(Config {
            keys,
            by,
            sketch,
            memory: 1 << 20,
            ..Config::default()
        }),
        design,
        workers,
        timing: true,
        ..Settings::default()
    };
    let mut run = measured::run(settings, "link[50] & 1 = 1");
    let measured = measured::source(
        &mut run,
        input,
        &AtomicBool::new(false),
        &mut |_| {},
        &mut |_| {},
    )
    .expect("workers live");
    let finished = run.finish(&mut |_| {}).expect("workers live");
    let spent = allocations() - before;
    assert!(finished.processed > 0 && measured.report.fault.is_none());
    (measured.report.received, spent)
}

/// Returns an Ethernet frame of 60 bytes of one of some thousand flows.
fn flow(i: u32) -> Vec<u8> {
    let mut frame = [
        &[2; 12][..],
        &[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0],
    ]
    .concat();
    frame.extend((i.wrapping_mul(2_654_435_761) >> 20).to_be_bytes());
    frame.resize(60, i as u8);
    frame
}

fn measuring() {
    let pcap = |count| {
        let mut file = Pcap::new(1, 65_535);
        (0..count).for_each(|i| file.packet(&flow(i)));
        file.bytes
    };
    let (few, many) = (pcap(50_000), pcap(200_000));
    let windows = (many.len() as u64).div_ceil(WINDOW);
    let (few, many) = (Scratch::new("few", &few), Scratch::new("many", &many));
    for (design, workers) in [
        (Design::Rss, 1),
        (Design::Rss, 2),
        (Design::Async, 2),
        (Design::Sync, 2),
    ] {
        let sketches = [
            Sketch::Heavy,
            Sketch::Exact,
            Sketch::Cms {
                conservative: false,
            },
            Sketch::Simple,
            Sketch::Majority,
            Sketch::Reversible,
            Sketch::ReversibleSets,
        ];
        let tables = sketches.map(|sketch| (By::Bytes, sketch));
        let sample = (By::Contacts, Sketch::Heavy);
        for table in tables.into_iter().chain([sample]) {
            let (_, first) = measuring_cost(plain(&few), design, workers, table);
            let (packets, second) = measuring_cost(plain(&many), design, workers, table);
            let more = second.saturating_sub(first);
            println!(
                "{design:?}, {workers} workers, {table:?}: {first}, then {second} for {packets} in {windows} MiB"
            );
            assert!(
                more <= windows * 40 + 3000,
                "{more} more allocations in {windows} MiB"
            );
        }
    }
}

#[test]
fn allocations_do_not_grow_with_packets() {
    reading();
    // Runs last, because its workers may still make native code when it returns.
    measuring();
}

/// Returns the number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn reading() {
    // 60-byte packets are walked by one cursor, 1000-byte packets by several.
    for (data, few, many) in [(60, 50_000, 200_000), (1000, 8_000, 32_000)] {
        let pcap = |count| {
            let mut file = Pcap::new(1, 65_535);
            (0..count).for_each(|i| file.packet(&vec![i as u8; data]));
            file.bytes
        };
        let pcapng = |count| {
            let mut file = Pcapng::new(false);
            file.interface(1, 0, 9);
            (0..count).for_each(|i| file.packet(&vec![i as u8; data]));
            file.bytes
        };
        let files = [(pcap(few), pcap(many)), (pcapng(few), pcapng(many))];
        for (few, many) in files.map(|(few, many)| (Arc::new(few), Arc::new(many))) {
            let (few_file, many_file) = (Scratch::new("few", &few), Scratch::new("many", &many));
            let windows = (many.len() as u64).div_ceil(WINDOW);
            for (expression, write) in [
                ("", false),
                ("link[20] & 1 = 1", false),
                ("", true),
                ("link[20] & 1 = 1", true),
            ] {
                for way in [AccessMode::Mapped, AccessMode::Read, AccessMode::Stream] {
                    for workers in [1, 2] {
                        let run = |file: &Arc<Vec<u8>>, scratch| {
                            let others = threads();
                            let cost = match way {
                                AccessMode::Stream => cost(
                                    piecewise(file, 1 << 20),
                                    Options::default(),
                                    expression,
                                    write,
                                ),
                                way => {
                                    cost(plain(scratch), options(way, workers), expression, write)
                                }
                            };
                            // What a thread allocates that makes native code yet would be counted for the next run.
                            while threads() > others {
                                std::thread::yield_now();
                            }
                            cost
                        };
                        let (few_packets, first) = run(&few, &few_file);
                        let (many_packets, second) = run(&many, &many_file);
                        let more = second.saturating_sub(first);
                        println!(
                            "{data} bytes, {way:?}, {workers} workers, '{expression}', write: {write}: {first} for \
                             {few_packets} packets, {second} for {many_packets} in {windows} MiB"
                        );
                        // The lists of records of up to sixteen cursors in each piece double about six times.
                        let each = if write { 128 } else { 12 };
                        // Another thread makes native code at any time, within one of the counts or not.
                        let aside = if workers > 1 { 3000 } else { 0 };
                        assert!(
                            more <= windows * each + aside,
                            "{more} more allocations in {windows} MiB"
                        );
                    }
                }
            }
        }
    }
}
