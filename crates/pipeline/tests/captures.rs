//! Captures from other sources, against tcpdump, tshark and the naive reader.

mod reading;

use reading::compare::everywhere;
use reading::{captures, file_name, have};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::Input;
use weir_io::input::Opening;
use weir_pipeline::survey::{Survey, Surveyed};
use weir_pipeline::{Consumer, Options, Reader, With};

/// Consumer that lists time, wire length and captured length of each packet.
struct Listing;

impl Consumer for Listing {
    type Plan = ();
    type Part = Vec<(Option<i64>, u32, usize)>;

    fn plan(
        &self,
        _: &weir_packet::savefile::Layout,
        _: Option<&()>,
    ) -> Result<(), weir_pipeline::PlanError> {
        Ok(())
    }

    fn frames(
        &self,
        with: &With<'_, ()>,
        frames: &[weir_packet::Frame<'_>],
        part: &mut Self::Part,
    ) {
        for (frame, &at) in frames.iter().zip(with.records) {
            let record = with
                .layout
                .record(with.bytes, at as usize)
                .expect("a walked record can be taken apart");
            part.push((record.time_ns, frame.wire_len, frame.data.len()));
        }
    }

    fn append(&self, part: &mut Self::Part, next: Self::Part) {
        part.extend(next);
    }
}

/// Returns the result for a whole file, and whether it ended with a fault.
fn whole<C: Consumer>(path: &Path, consumer: C) -> (C::Part, bool) {
    weir_io::sys::guard_mappings();
    let stop = Arc::new(AtomicBool::new(false));
    let input = Input::open(
        path.to_str().expect("a readable name"),
        &Opening::default(),
        &stop,
    )
    .expect("a capture can be opened");
    let consumer = Arc::new(consumer);
    let mut reader = Reader::new(
        input,
        Arc::clone(&consumer),
        Options {
            workers: 2,
            ..Options::default()
        },
    );
    let mut whole = C::Part::default();
    while let Some(delivery) = reader.next() {
        consumer.append(&mut whole, delivery.part);
        reader.recycle(delivery.view);
    }
    (whole, reader.report().fault.is_some())
}

#[test]
fn every_way_to_read_them_answers_the_same() {
    /// Files with undefined versions, which the naive reader does not check.
    const REFUSED: [&str; 3] = [
        "pcap-invalid-version-1",
        "pcap-invalid-version-2",
        "pcapng-invalid-vers-1",
    ];
    for path in captures("every_way_to_read_them_answers_the_same") {
        let name = file_name(&path);
        if REFUSED.iter().any(|refused| name.contains(refused)) {
            assert!(whole(&path, Survey).1, "{name} is refused");
            continue;
        }
        everywhere(
            &name,
            std::fs::read(&path).expect("a listed capture can be read"),
        );
    }
}

#[test]
fn counts_are_tcpdumps() {
    let paths = captures("counts_are_tcpdumps");
    if paths.is_empty() || !have("counts_are_tcpdumps", &["tcpdump"]) {
        return;
    }
    let (mut compared, mut refused) = (0, 0);
    for path in &paths {
        let output = Command::new("tcpdump")
            .args(["--count", "-r"])
            .arg(path)
            .output()
            .expect("tcpdump was found");
        let text = String::from_utf8_lossy(&output.stdout);
        let (Surveyed { packets, .. }, fault) = whole(path, Survey);
        let name = file_name(path);
        if !output.status.success() {
            // If two interfaces differ, tcpdump reads neither. Files that tcpdump refuses for other reasons may be refused here
            // too.
            refused += 1;
            println!(
                "{name}: {packets} packets, fault: {fault}; {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            continue;
        }
        let theirs: u64 = text
            .split(' ')
            .next()
            .and_then(|count| count.parse().ok())
            .expect("a count comes first");
        assert_eq!(packets, theirs, "{name}");
        assert!(!fault, "{name}");
        compared += 1;
    }
    println!("{compared} files compared, {refused} that tcpdump refuses");
    assert!(compared >= 60, "too few were compared");
}

#[test]
fn times_and_lengths_are_tsharks() {
    let paths = captures("times_and_lengths_are_tsharks");
    if paths.is_empty() || !have("times_and_lengths_are_tsharks", &["tshark"]) {
        return;
    }
    let (mut files, mut packets) = (0, 0);
    for path in &paths {
        let fields = [
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
        ];
        let output = Command::new("tshark")
            .args(["-n", "-r"])
            .arg(path)
            .args(fields)
            .env("TZ", "UTC")
            .output()
            .expect("tshark was found");
        let name = file_name(path);
        let text = String::from_utf8_lossy(&output.stdout);
        let theirs: Vec<_> = text
            .lines()
            .map(|line| parse(line).unwrap_or_else(|| panic!("{name}: {line}")))
            .collect();
        let (ours, fault) = whole(path, Listing);
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            println!(
                "{name}: fault: {fault}; {}",
                words.lines().last().unwrap_or_default()
            );
            // A link type unknown to tshark is no reason to refuse the file.
            if words.contains("unknown or unsupported") {
                continue;
            }
        }
        if name.contains("pcap-invalid-version-2") {
            assert!(
                fault,
                "{name}: version 2.5 is refused as libpcap refuses it; tshark reads it"
            );
            continue;
        }
        for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "{name}, packet {}", i + 1);
        }
        assert_eq!(
            ours.len(),
            theirs.len(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        files += 1;
        packets += ours.len();
    }
    println!("{packets} packets of {files} files compared");
    assert!(files >= 60 && packets >= 5000, "too little was compared");
}

/// Parses a line like `1700000000.000000001  60  60`, tab-separated; a packet without a time has an empty first field.
fn parse(line: &str) -> Option<(Option<i64>, u32, usize)> {
    let mut fields = line.split('\t');
    let time = fields.next()?;
    let time_ns = match time.split_once('.') {
        Some((seconds, fraction)) => {
            let seconds: i64 = seconds.parse().ok()?;
            Some(seconds * 1_000_000_000 + format!("{fraction:0<9}").parse::<i64>().ok()?)
        }
        None => None,
    };
    Some((
        time_ns,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    ))
}
