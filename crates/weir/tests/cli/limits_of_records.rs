//! Limits of a record directory, and what a refused recording leaves.

use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// A capture file of `packets` packets of Internet-like sizes, a hundred of each flow.
fn generated(temp: &Temp, packets: u32) -> String {
    let file = temp.at("generated.pcap");
    let (count, flows) = (packets.to_string(), (packets / 100).to_string());
    weir([
        "generate",
        &file,
        "--packets",
        &count,
        "--flows",
        &flows,
        "--seed",
        "3",
    ])
    .ok();
    file
}

/// Bytes of the files of a directory; those that are removed meanwhile count nothing.
fn bytes_in(directory: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|about| about.len())
        .sum()
}

#[test]
fn a_record_is_never_larger_than_its_limit() {
    let temp = Temp::new();
    let (file, out) = (generated(&temp, 60_000), temp.at("out"));
    let (limit, ended) = (8 << 20, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait::until("the end of the recorder", || {
                let bytes = bytes_in(&out);
                assert!(bytes <= limit, "{bytes}");
                ended.load(Ordering::Relaxed)
            });
        });
        let done = weir([
            "record",
            &file,
            &out,
            "--disk",
            "8M",
            "--ram",
            "16M",
            "--reserve",
            "1M",
        ]);
        ended.store(true, Ordering::Relaxed);
        assert!(done.ok().err.contains("old segments removed"));
    });
    assert!(
        (limit / 2..=limit).contains(&bytes_in(&out)),
        "{}",
        bytes_in(&out)
    );
}
