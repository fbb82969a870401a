//! Our reading against libpcap's own, call by call, in one process.

use crate as lib;
use weir_testkit::savefile::{Pcap, Pcapng};
use weir_testkit::{Random, captures, links};

#[path = "../tests/bodies/calls.rs"]
mod body;

/// Bytes for the body: calls, and this file.
fn case(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut data = random.bytes(2 + 63 * 3);
    data[1] = 63;
    data.extend_from_slice(file);
    data
}

/// A file with damage: bytes that are changed, or cut off.
fn damaged(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut file = file.to_vec();
    if random.below(3) == 0 {
        file.truncate(random.below(file.len()));
    }
    for _ in 0..random.below(4) {
        if !file.is_empty() {
            let at = random.below(file.len());
            file[at] = random.below(256) as u8;
        }
    }
    file
}

/// Compares random calls on a file, as it is and damaged; returns whether this library read it as it is.
fn compare(file: &[u8], cases: u64) -> bool {
    let mut is_ours = true;
    for seed in 0..cases {
        let random = &mut Random(seed);
        is_ours &= body::calls(&case(file, random));
        body::calls(&case(&damaged(file, random), random));
    }
    is_ours
}

#[test]
fn calls_see_what_libpcap_shows() {
    let captures = captures("calls_see_what_libpcap_shows");
    let mut ours = 0;
    for path in &captures {
        let bytes = std::fs::read(path).unwrap();
        ours += u32::from(compare(&bytes[..bytes.len().min(200_000)], 6));
    }
    assert!(
        captures.is_empty() || ours > captures.len() as u32 / 2,
        "{ours} are read here"
    );
}

#[test]
fn calls_on_files_made_here_see_what_libpcap_shows() {
    let mut classic = Pcap::new(1, 200);
    let mut next = Pcapng::new(false);
    next.interface(1, 0, 9);
    for index in 0..120_u16 {
        let packet = links::udp(1000, 53 + index % 2, &vec![7; usize::from(index)]);
        classic.packet(&packet);
        next.packet(&packet);
    }
    assert!(compare(&classic.bytes, 60));
    assert!(compare(&next.bytes, 60));
}
