//! Packets that a record lacks: each reader tells them, and the exit code of the recorder does.

use crate::capture::net::Net;
use crate::recording::*;
use crate::support::*;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// A library that makes each write and each fdatasync of the program that it is preloaded into slow.
const SLOW: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static void rest(void) { usleep(300000); }
ssize_t pwrite64(int file, const void *bytes, size_t count, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (count >= 4096) rest();
    return real(file, bytes, count, offset);
}
int fdatasync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    rest();
    return real(file);
}
"#;

/// Packets in the segments, as capinfos counts them.
fn counted_by_capinfos(directory: &str) -> u64 {
    let count = |segment: &String| {
        let text = tool("capinfos", ["-c", "-M", segment]).text();
        let words = text.lines().find(|line| line.starts_with("Number of packets")).expect("a count");
        words.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    segments(directory).iter().map(count).sum()
}

/// The last count of dropped packets in a segment, as tshark shows the file block by block.
fn dropped_by_tshark(segment: &str) -> u64 {
    let text = tool("tshark", ["-r", segment, "-X", "read_format:MIME Files Format", "-V"]).text();
    let mut counts = text.lines().filter_map(|line| line.trim().strip_prefix("Number of Dropped Packets by OS: "));
    counts.next_back().expect("there are statistics").parse().unwrap()
}

/// A disk too slow for the traffic: what is durable is counted, and what is missing is told by every reader, also after a kill.
#[test]
fn what_a_slow_disk_leaves_out_is_told_by_every_reader() {
    let test = "what_a_slow_disk_leaves_out_is_told_by_every_reader";
    if !have(test, &["cc", "capinfos", "tshark"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let (source, library) = (temp.at("slow.c"), temp.at("slow.so"));
    std::fs::write(&source, SLOW).unwrap();
    tool("cc", ["-shared", "-fPIC", "-o", &library, &source, "-ldl"]).ok();
    let preload = format!("LD_PRELOAD={library}");
    let frames: Vec<_> = (0..20_000).map(|number| numbered(53, number, 600)).collect();
    let record = |out: &str| {
        let words = ["env", &preload, env!("CARGO_BIN_EXE_weir"), "record", "near", out, "--disk", "1G", "--ram", "2M"];
        net.start(&[&words[..], &["--segment", "1M", "--sync", "100ms"]].concat(), "AF_PACKET")
    };

    let out = temp.at("out");
    let capture = record(&out);
    let sent = net.send(&frames, 200);
    let done = capture.stop();
    let present = counted_by_capinfos(&out);
    let lost = sent - present;
    assert!(lost > 1000 && present > 100, "{present} of {sent}: {}", done.err);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.err.contains(&format!("weir: {out}: the record is not whole: ")), "{}", done.err);
    assert!(done.err.contains(&format!("disk: {} packets durable", spaced(present))), "{}", done.err);
    let missing =
        format!("{out}: {} packets were dropped when it was captured, it says, and are not in it", spaced(lost));
    let query = weir(["query", &out, "--count"]).ok();
    assert!(query.count() == present && query.err.contains(&missing), "{lost}: {}", query.err);
    for arguments in [["measure", &out].as_slice(), &["filter", "", &out, "--count"]] {
        let done = weir(arguments).ok();
        assert!(done.err.contains(&missing), "{}", done.err);
        let told = format!("{} lost before", spaced(lost));
        assert!(done.text().contains(&told) || done.err.contains(&told), "{}{}", done.text(), done.err);
    }
    let about: Value = serde_json::from_str(&weir(["info", "--json", &out]).ok().text()).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], lost, "{about}");
    // What is copied from it says so too, and so does each segment of its own part.
    let copy = temp.at("copy.pcapng");
    weir(["query", &out, "-w", &copy]).ok();
    let about: Value = serde_json::from_str(&weir(["info", "--json", &copy]).ok().text()).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], lost, "{about}");
    let all = segments(&out);
    assert_eq!(dropped_by_tshark(all.last().unwrap()), lost);

    // A kill leaves the last interval unsaid, and readers say that.
    let out = temp.at("killed");
    let capture = record(&out);
    net.send(&frames, 200);
    let begun = Instant::now();
    while segments(&out).len() < 2 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    capture.signal("-KILL");
    capture.done();
    let done = weir(["query", &out, "--count"]);
    assert!(done.err.contains("its last count of dropped packets is of "), "{}", done.err);
}

/// `12 345` for 12345.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(" ")
}

/// A capture that says what it lacks, recorded: the record says it too.
#[test]
fn what_a_recorded_file_lacks_the_record_tells() {
    let temp = Temp::new();
    let (file, out) = (temp.at("a.pcapng"), temp.at("out"));
    let mut bytes = Vec::new();
    for block in [
        &[0x0a0d_0d0au32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28][..],
        &[1, 20, 1, 0, 20],
        &[6, 36, 0, 0x6553_f100, 0, 4, 60, 0x0102_0304, 36],
        // isb_osdrop
        &[5, 40, 0, 0x6553_f100, 5, 8 << 16 | 7, 37, 0, 0, 40],
    ] {
        block.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    std::fs::write(&file, bytes).unwrap();
    weir(["record", &file, &out, "--disk", "100M"]).ok();
    let done = weir(["query", &out, "--count"]).ok();
    assert!(done.count() == 1 && done.err.contains("37 packets were dropped when it was captured"), "{}", done.err);
    let about: Value = serde_json::from_str(&weir(["info", "--json", &segments(&out)[0]]).ok().text()).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], 37, "{about}");
    assert!(Path::new(&out).is_dir());
}

/// A segment that somebody removed is missed by its number.
#[test]
fn a_segment_that_is_gone_is_told() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let all = weir(["query", &directory, "--count"]).ok();
    assert!(!all.err.contains("gone"), "{}", all.err);
    let segments = segments(&directory);
    std::fs::remove_file(&segments[2]).unwrap();
    let done = weir(["query", &directory, "--count"]);
    let missing = all.count() - done.count();
    let line = format!("{directory}: segment 000003 is gone, with up to {missing} packets");
    assert!(done.code == Some(1) && done.err.contains(&line), "{missing}: {}", done.err);
}
