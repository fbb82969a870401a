//! Filters that are replaced while packets are read, held against libpcap's own `bpf_filter`.

mod measured;

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_filter::{Program, libpcap};
use weir_io::input::{Opening, PlainFile};
use weir_io::{Input, Kind};
use weir_packet::LinkType;
use weir_pipeline::measuring::{Design, Run, Settings};
use weir_pipeline::select::{Select, Selection};
use weir_pipeline::stages::Stages;
use weir_pipeline::{AccessMode, Consumer, Delivery, Options, PlanError, Reader};
use weir_testkit::savefile::Pcap;
use weir_testkit::{Random, Scratch, ScratchFile};

/// The filters, in the order of their replacement.
const EXPRESSIONS: [&str; 5] = [
    "udp",
    "tcp and ip[19] & 1 = 0",
    "",
    "not ip",
    "ip[19] & 3 = 2 or len > 900",
];

const PACKETS: u32 = 40_000;

/// Returns a packet of the file, with its number in its last bytes.
fn frame(random: &mut Random, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60 + random.below(200)];
    let kind: [u8; 2] = if random.below(8) == 0 {
        [0x08, 0x06]
    } else {
        [0x08, 0x00]
    };
    frame[12..14].copy_from_slice(&kind);
    frame[14] = 0x45;
    frame[23] = [6, 17, 1][random.below(3)];
    frame[33] = random.below(256) as u8;
    let len = frame.len();
    frame[len - 4..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn frames() -> Vec<Vec<u8>> {
    let mut random = Random::behind(7);
    (0..PACKETS)
        .map(|number| frame(&mut random, number))
        .collect()
}

fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65535);
    frames.iter().for_each(|frame| pcap.packet(frame));
    pcap.bytes
}

fn selection() -> Selection {
    Selection {
        expression: EXPRESSIONS[0].to_owned(),
        ..Selection::default()
    }
}

fn stages() -> Arc<Stages> {
    Arc::new(Stages::noting(Arc::new(Select::new(selection()))))
}

/// Puts the filter of change `number` in place.
fn replace(stages: &Stages, number: usize) -> u64 {
    let select = stages
        .select()
        .with_expression(EXPRESSIONS[number % EXPRESSIONS.len()])
        .unwrap();
    stages.replace(Arc::new(select))
}

fn programs() -> Vec<Program> {
    EXPRESSIONS
        .iter()
        .map(|text| libpcap::compile(text, LinkType::ETHERNET, false).unwrap())
        .collect()
}

fn input(file: &ScratchFile) -> Input {
    weir_io::sys::guard_mappings();
    Input {
        name: "changes.pcap".to_owned(),
        kind: Kind::File(PlainFile::new(File::open(file.path()).unwrap()).unwrap()),
    }
}

/// Compares the deliveries of a reader with libpcap's verdicts.
struct Judge {
    frames: Vec<Vec<u8>>,
    programs: Vec<Program>,
    /// Number of packets so far.
    at: usize,
    change: u64,
}

impl Judge {
    fn new() -> Self {
        Self {
            frames: frames(),
            programs: programs(),
            at: 0,
            change: 0,
        }
    }

    fn takes(&self, change: u64, frame: &[u8]) -> bool {
        let program = &self.programs[change as usize % self.programs.len()];
        libpcap::bpf_filter(program, frame, frame.len() as u32) != 0
    }

    /// Checks that each packet of the batch was judged under the change that the batch names, and that none is missing.
    fn batch(&mut self, delivery: &Delivery<Stages>) {
        let selected = &delivery.part.selected;
        let change = delivery.current.plan.change();
        assert!(
            change >= self.change,
            "change {change} comes behind change {}",
            self.change
        );
        self.change = change;
        let packets = (selected.passed + selected.filtered) as usize;
        let expected: Vec<&[u8]> = self.frames[self.at..self.at + packets]
            .iter()
            .filter(|frame| self.takes(change, frame))
            .map(Vec::as_slice)
            .collect();
        let layout = &delivery.current.layout;
        let passed = delivery.part.passed_records();
        let records = passed.map(|at| layout.record(delivery.view.content(), at as usize).unwrap());
        let kept: Vec<&[u8]> = records.map(|record| record.frame.data).collect();
        assert_eq!(
            kept,
            expected,
            "packets {} to {} under change {change}",
            self.at,
            self.at + packets
        );
        self.at += packets;
    }
}

#[test]
fn each_batch_is_judged_by_the_filter_that_it_names_and_the_next_one_by_the_new_filter() {
    let file = ScratchFile::new("changes.pcap", &pcap(&frames()));
    for (way, workers) in [
        (AccessMode::Read, 1),
        (AccessMode::Read, 3),
        (AccessMode::Mapped, 1),
        (AccessMode::Mapped, 2),
    ] {
        let stages = stages();
        let options = Options {
            workers,
            way: Some(way),
            piece: Some(200 << 10),
            ..Options::default()
        };
        let mut reader = Reader::new(input(&file), Arc::clone(&stages), options);
        let (mut judge, mut batches, mut change) = (Judge::new(), 0, 0);
        while let Some(delivery) = reader.next() {
            judge.batch(&delivery);
            assert_eq!(
                judge.change, change,
                "{way:?}, {workers} workers: the first batch behind a change"
            );
            reader.recycle(delivery.view);
            batches += 1;
            if batches % 2 == 0 {
                change = replace(&stages, change as usize + 1);
                assert!(
                    stages.changes().unwrap().has_grace_period_ended(change),
                    "the reader is between two steps"
                );
            }
        }
        assert_eq!(
            (judge.at, reader.report().received),
            (PACKETS as usize, PACKETS.into()),
            "{way:?}, {workers}"
        );
        assert!(reader.report().fault.is_none());
    }
}

#[test]
fn filters_that_another_thread_replaces_lose_no_packet_and_judge_none_twice() {
    let file = ScratchFile::new("changes.pcap", &pcap(&frames()));
    for workers in [1, 3] {
        let (stages, over) = (stages(), Arc::new(AtomicBool::new(false)));
        let (theirs, told) = (Arc::clone(&stages), Arc::clone(&over));
        let changing = std::thread::spawn(move || {
            let mut number = 0;
            while !told.load(Ordering::Relaxed) {
                number += 1;
                let change = replace(&theirs, number);
                assert_eq!(change, number as u64);
                assert!(
                    theirs
                        .changes()
                        .unwrap()
                        .wait(change, Duration::from_secs(60))
                );
            }
        });
        for _ in 0..5 {
            let options = Options {
                workers,
                way: Some(AccessMode::Read),
                piece: Some(100 << 10),
                ..Options::default()
            };
            let mut reader = Reader::new(input(&file), Arc::clone(&stages), options);
            let mut judge = Judge::new();
            while let Some(delivery) = reader.next() {
                judge.batch(&delivery);
                reader.recycle(delivery.view);
            }
            assert_eq!(judge.at, PACKETS as usize);
        }
        over.store(true, Ordering::Relaxed);
        changing.join().unwrap();
    }
}

/// A pipe without a writer's bytes delays no change, and packets behind the change are judged by the new filter.
#[test]
fn a_reader_that_waits_for_a_pipe_holds_up_no_change() {
    let scratch = Scratch::new();
    let path = scratch.at("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let (stages, stop) = (stages(), Arc::new(AtomicBool::new(false)));
    let (theirs, name) = (Arc::clone(&stages), path.clone());
    let reading = std::thread::spawn(move || {
        let input = Input::open(std::ffi::OsStr::new(&name), &Opening::default(), &stop).unwrap();
        let mut reader = Reader::new(input, theirs, Options::default());
        let mut judge = Judge::new();
        let mut changes = Vec::new();
        while let Some(delivery) = reader.next() {
            judge.batch(&delivery);
            changes.push(judge.change);
            reader.recycle(delivery.view);
        }
        assert_eq!(judge.at, PACKETS as usize);
        changes
    });
    let mut pipe = File::options().write(true).open(&path).unwrap();
    let bytes = pcap(&frames());
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    pipe.write_all(head).unwrap();
    // Whether or not the reader has taken all bytes yet, it will wait for more.
    let change = replace(&stages, 1);
    assert!(
        stages
            .changes()
            .unwrap()
            .wait(change, Duration::from_secs(60))
    );
    pipe.write_all(tail).unwrap();
    drop(pipe);
    let changes = reading.join().unwrap();
    assert_eq!(changes.last(), Some(&1), "{changes:?}");
}

/// The workers of a measurement judge by the filter of the batch, at any later time.
#[test]
fn what_is_measured_is_what_the_filters_of_the_batches_pass() {
    let file = ScratchFile::new("changes.pcap", &pcap(&frames()));
    // Offset of the record of each packet, then that of the end.
    let mut offsets = vec![24u64];
    for frame in frames() {
        offsets.push(offsets[offsets.len() - 1] + 16 + frame.len() as u64);
    }
    for design in [Design::Rss, Design::Async] {
        let settings = Settings {
            design,
            workers: 1,
            ..Settings::default()
        };
        let mut run = Run::new(settings, Arc::new(Select::new(selection())), false);
        let stages = Arc::clone(run.stages());
        // Places at which a filter was replaced.
        let mut places = Vec::new();
        let mut progress = |bytes: u64| {
            if bytes > 0 && bytes < offsets[offsets.len() - 1] && places.last() != Some(&bytes) {
                places.push(bytes);
                replace(&stages, places.len());
            }
        };
        let measured = measured::source(
            &mut run,
            input(&file),
            &AtomicBool::new(false),
            &mut progress,
            &mut |_| {},
        )
        .unwrap();
        let finished = run.finish(&mut |_| {}).unwrap();
        assert!(places.len() > 2, "{places:?}");
        let judge = Judge::new();
        let change = |i: usize| places.iter().filter(|&&place| place <= offsets[i]).count() as u64;
        let passed = (0..PACKETS as usize)
            .filter(|&i| judge.takes(change(i), &judge.frames[i]))
            .count() as u64;
        assert_eq!(
            (measured.report.received, finished.arrivals.received),
            (PACKETS.into(), PACKETS.into())
        );
        assert_eq!(
            (finished.processed, finished.arrivals.filtered),
            (passed, u64::from(PACKETS) - passed),
            "{design:?}"
        );
    }
}

#[test]
fn an_expression_that_is_wrong_or_fits_nothing_that_is_read_takes_no_place() {
    let stages = stages();
    let refused = |expression: &str| match stages.select().with_expression(expression) {
        Err(PlanError::Refused(why)) => why,
        other => panic!("{expression}: {other:?}"),
    };
    // No source is read yet: the expression needs only valid words, for any link type.
    assert!(refused("udp porrt 53").contains("udp porrt 53"));
    stages.select().with_expression("wlan type mgt").unwrap();
    let file = ScratchFile::new("changes.pcap", &pcap(&frames()[..100]));
    let mut reader = Reader::new(input(&file), Arc::clone(&stages), Options::default());
    while let Some(delivery) = reader.next() {
        reader.recycle(delivery.view);
    }
    assert!(
        refused("wlan type mgt").contains("802.11"),
        "{}",
        refused("wlan type mgt")
    );
    assert_eq!(stages.select().expression(), EXPRESSIONS[0]);
}
