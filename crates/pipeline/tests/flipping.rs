//! A mapped file that another thread changes: the reader always ends, counts the packets delivered, and never panics.

mod measured;
mod reading;

use reading::build::{Pcap, Pcapng};
use reading::compare::{options, plain};
use reading::{Random, Scratch};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_measure::Config;
use weir_packet::flow::Tunnels;
use weir_packet::line::{Conversations, Style, write_line};
use weir_pipeline::measuring::{Design, Settings};
use weir_pipeline::survey::Survey;
use weir_pipeline::{AccessMode, Consumer, Reader};

/// Number of rounds of each reading: enough for bytes to change between two loads of many packets.
const ROUNDS: usize = 12;

fn pcap() -> Vec<u8> {
    let mut file = Pcap::new(1, 65_535);
    let mut random = Random(41);
    while file.bytes.len() < 1 << 20 {
        let len = random.below(300);
        file.packet(&random.bytes(len));
    }
    file.bytes
}

/// Returns a file with blocks of all kinds, and interfaces with names.
fn pcapng() -> Vec<u8> {
    let mut file = Pcapng::new(false);
    let mut random = Random(42);
    while file.bytes.len() < 1 << 20 {
        let mut body = vec![1, 0, 0, 0, 0xff, 0xff, 0, 0, 2, 0, 9, 0];
        body.extend("käthe:eth".as_bytes()[..9].iter().chain(&[0; 3]));
        file.block(1, &body);
        for _ in 0..20 {
            let len = random.below(300);
            let data = random.bytes(len);
            match random.below(4) {
                0 => file.simple(len as u32, &data),
                1 => file.obsolete(0, len as u32, &data),
                _ => file.packet(&data),
            }
        }
    }
    file.bytes
}

/// Sets its flag when the reading ends, even by a panic, because the other thread must end too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads while another thread writes bytes of headers over each other, and puts the file's own bytes back.
fn while_flipped(file: &[u8], read: impl Fn(&Scratch)) {
    let scratch = Scratch::new("flipped", file);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let target = File::options().write(true).open(&scratch.0).unwrap();
            let mut random = Random(43);
            while !over.load(Ordering::Relaxed) {
                let at = random.below(file.len() - 8);
                let other = random.below(file.len() - 8);
                // Bytes with a meaning at other places, lengths just beside the right ones, and invalid text.
                let bytes = match random.below(3) {
                    0 => file[other..other + 4].to_vec(),
                    1 => file[at..at + 4].iter().map(|byte| byte ^ 4).collect(),
                    _ => vec![0xff; 2],
                };
                target.write_all_at(&bytes, at as u64).unwrap();
                target.write_all_at(&file[at..at + 8], at as u64).unwrap();
            }
        });
        let _over = Over(&over);
        for _ in 0..ROUNDS {
            read(&scratch);
        }
    });
}

#[test]
fn packets_of_a_file_that_changes_are_shown_without_a_panic() {
    for file in [pcap(), pcapng()] {
        while_flipped(&file, |scratch| {
            let options = options(AccessMode::Read, 2);
            let mut reader =
                reading::compare::reader(plain(scratch), "ip or vlan or tcp port 53", options);
            let (mut text, mut passed, mut filtered) = (String::new(), 0, 0);
            while let Some(delivery) = reader.next() {
                let layout = &delivery.current.layout;
                let records: Vec<u32> = delivery.part.passed_records().collect();
                layout.records(delivery.view.content(), &records, |_, record| {
                    let record = record.expect("bytes that were read stay as they are");
                    text.clear();
                    let interface = &layout.interfaces[record.frame.interface as usize];
                    write_line(
                        &mut text,
                        interface.link,
                        &record.frame,
                        &Style::default(),
                        &mut Conversations::new(),
                    );
                    passed += 1;
                });
                filtered += delivery.part.selected.filtered;
                reader.recycle(delivery.view);
            }
            assert_eq!(reader.report().received, passed + filtered);
            let layout = reader.layout();
            let names = layout
                .iter()
                .flat_map(|layout| layout.interfaces.iter())
                .filter_map(|one| one.name.as_deref());
            assert!(
                names
                    .into_iter()
                    .all(|name| core::str::from_utf8(name.as_bytes()).is_ok())
            );
        });
    }
}

#[test]
fn a_file_that_changes_is_surveyed_and_measured_without_a_panic() {
    for file in [pcap(), pcapng()] {
        while_flipped(&file, |scratch| {
            let mut reader = Reader::new(
                plain(scratch),
                Arc::new(Survey),
                options(AccessMode::Mapped, 2),
            );
            let mut whole = Default::default();
            while let Some(delivery) = reader.next() {
                Survey.append(&mut whole, delivery.part);
                reader.recycle(delivery.view);
            }
            assert_eq!(reader.report().received, whole.packets);
            let mut run = measured::run(settings(), "ip or arp");
            let measured = measured::source(
                &mut run,
                plain(scratch),
                &AtomicBool::new(false),
                &mut |_| {},
                &mut |_| {},
            )
            .unwrap();
            let finished = run.finish(&mut |_| {}).unwrap();
            assert_eq!(finished.arrivals.received, measured.report.received);
        });
    }
}

fn settings() -> Settings {
    Settings {
        inner: Some(Tunnels::default()),
        config: Arc::new(Config {
            memory: 1 << 18,
            ..Config::default()
        }),
        design: Design::Rss,
        workers: 2,
        ..Settings::default()
    }
}
