//! Files with frequent changes of the layout: neither the memory held nor the number of requests for it grows with the changes.
//!
//! The allocator counts for the whole process, hence one test in this file.

#[path = "bodies/layouts.rs"]
mod body;
mod measured;
mod reading;

use reading::build::Pcapng;
use reading::compare::{answer, expected, options, plain, same};
use reading::{Random, Scratch, naive};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_measure::{Config, Sketch};
use weir_packet::savefile::{MAX_INTERFACES, MAX_TEXT};
use weir_pipeline::measuring::{Design, Settings};
use weir_pipeline::{AccessMode, Options};
use weir_testkit::allocations::{Counting, allocations, held, most_held};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn layouts_cost_no_more_memory_than_they_hold() {
    many_sections();
    many_interfaces();
    long_texts();
    any_sequence();
}

/// Returns a file of `count` sections with an interface and a packet each.
fn sections(count: u32) -> Vec<u8> {
    let mut file = Pcapng::default();
    for i in 0..count {
        file.section(i % 3 == 0);
        file.interface(1, 0, 6);
        file.packet(&[i as u8; 60]);
    }
    file.bytes
}

fn stream(source: impl Read + Send + 'static) -> Input {
    let stream = Stream::direct(source, Arc::new(AtomicBool::new(false)));
    Input {
        name: "stream".to_owned(),
        kind: Kind::Stream(stream),
    }
}

fn many_sections() {
    /// Limit of memory for these files of 4.2 and 0.4 MB, in every way to read, bytes.
    const MOST: usize = 12 << 20;
    for count in [3000, 30_000] {
        let file = sections(count);
        let right = expected(&file, &naive::read(&file), |_, _| true);
        let scratch = Scratch::new("sections", &file);
        for way in [AccessMode::Read, AccessMode::Mapped] {
            for workers in [1, 2, 4] {
                let what = format!("{count} sections, {way:?}, {workers} workers");
                let most = most_held(|| {
                    same(
                        &what,
                        &answer(plain(&scratch), "", options(way, workers)).0,
                        &right,
                    )
                });
                println!("{what}: {most} bytes");
                assert!(most < MOST, "{what}: {most} bytes");
            }
        }
        let what = format!("{count} sections, as a stream");
        let most = most_held(|| {
            let input = stream(io::Cursor::new(file.clone()));
            same(&what, &answer(input, "", Options::default()).0, &right);
        });
        assert!(most < MOST + file.len(), "{what}: {most} bytes");
        for (design, workers) in [(Design::Rss, 1), (Design::Rss, 2), (Design::Async, 2)] {
            let most = most_held(|| {
                assert_eq!(measured(plain(&scratch), design, workers), u64::from(count))
            });
            println!("{count} sections, measured, {design:?}, {workers} workers: {most} bytes");
            assert!(
                most < MOST,
                "{count} sections, measured, {design:?}, {workers} workers: {most} bytes"
            );
        }
    }
}

/// Returns the number of packets measured.
fn measured(input: Input, design: Design, workers: usize) -> u64 {
    let mut run = measured::run(
        Settings {
            config: Arc::new(Config {
                sketch: Sketch::Exact,
                memory: 1 << 16,
                ..Config::default()
            }),
            design,
            workers,
            ..Settings::default()
        },
        "",
    );
    let measured = measured::source(
        &mut run,
        input,
        &AtomicBool::new(false),
        &mut |_| {},
        &mut |_| {},
    )
    .expect("workers live");
    assert!(measured.report.fault.is_none());
    run.finish(&mut |_| {})
        .expect("workers live")
        .arrivals
        .received
}

/// Checks a file with the largest number of interfaces, each different from all before and described just before its first packet.
fn many_interfaces() {
    let mut file = Pcapng::new(false);
    for i in 0..MAX_INTERFACES as u32 {
        file.interface([1, 101][i as usize % 2], 1000 + i, 6);
        file.enhanced(i, 60, &[i as u8; 60]);
    }
    let right = expected(&file.bytes, &naive::read(&file.bytes), |_, _| true);
    assert_eq!(right.received, MAX_INTERFACES as u64);
    let scratch = Scratch::new("interfaces", &file.bytes);
    for (way, workers) in [
        (AccessMode::Read, 1),
        (AccessMode::Read, 2),
        (AccessMode::Mapped, 1),
    ] {
        let what = format!("{way:?}, {workers} workers");
        let before = allocations();
        let most = most_held(|| {
            same(
                &what,
                &answer(plain(&scratch), "len < 10", options(way, workers)).0,
                &{
                    let mut right = right.clone();
                    (right.passed, right.filtered, right.bytes, right.kept) =
                        (0, right.received, 0, Vec::new());
                    right
                },
            )
        });
        let each = (allocations() - before) / MAX_INTERFACES as u64;
        println!("{what}: {most} bytes, {each} allocations for each interface");
        assert!(
            most < 24 << 20 && each < 60,
            "{what}: {most} bytes, {each} allocations for each interface"
        );
    }
}

/// Source of endless interfaces with sixteen comments of 64 KB each, and a packet behind each.
struct LongTexts {
    interfaces: u32,
    block: Vec<u8>,
    at: usize,
}

impl LongTexts {
    fn next_block(&mut self) {
        let mut file = Pcapng::default();
        if self.interfaces == 0 {
            file.section(false);
        }
        let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0];
        for comment in 0..16 {
            body.extend([1, 0, 0xfc, 0xff]);
            body.extend(vec![b'a' + comment; 0xfffc]);
        }
        // A unique name.
        body.extend([2, 0, 8, 0]);
        body.extend(format!("{:08}", self.interfaces).bytes());
        file.block(1, &body);
        file.enhanced(self.interfaces, 60, &[7; 60]);
        self.interfaces += 1;
        (self.block, self.at) = (file.bytes, 0);
    }
}

impl Read for LongTexts {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            if self.interfaces == 300 {
                return Ok(0);
            }
            self.next_block();
        }
        let n = buf.len().min(self.block.len() - self.at);
        buf[..n].copy_from_slice(&self.block[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn long_texts() {
    let most = most_held(|| {
        let source = LongTexts {
            interfaces: 0,
            block: Vec::new(),
            at: 0,
        };
        let mut reader = reading::compare::reader(stream(source), "", Options::default());
        let mut received = 0;
        while let Some(delivery) = reader.next() {
            received += delivery.part.selected.passed;
            reader.recycle(delivery.view);
        }
        assert!(reader.report().fault.is_none());
        let layout = reader.layout().expect("it has one");
        let kept: usize = layout
            .interfaces
            .iter()
            .flat_map(|one| one.name.iter().chain(&one.comments))
            .map(String::len)
            .sum();
        // Only the comments of the first interface fit: 299 names and 16 times as many comments are left out.
        assert_eq!(
            (received, kept <= MAX_TEXT, layout.texts_left_out),
            (300, true, 299 * 17),
            "{kept}"
        );
    });
    assert!(most < 16 << 20, "{most} bytes");
}

/// Runs the body of the fuzz target over random bytes, and over the sequences that hold the most memory.
fn any_sequence() {
    let chosen: [&[u8]; 5] = [
        // Sections of one interface and one packet each, thousands of times; long texts in all of them.
        &[0xfb, 255, 60],
        &[0xfb, 255, 0xff, 0xfb, 254, 0xff],
        &[0xf9, 255, 0xff, 4, 3, 9],
        &[0xf8, 255, 0xff],
        &[0xf9, 250, 8, 0xfd, 250, 90, 4, 255, 1],
    ];
    for data in chosen {
        body::layouts(data, &held);
    }
    let mut random = Random(77);
    for _ in 0..400 {
        let len = random.below(90);
        let data = random.bytes(len);
        body::layouts(&data, &held);
    }
}
