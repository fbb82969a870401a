//! Hostile bytes: the printer must give one line for any bytes.

#[path = "bodies/line.rs"]
mod body;
mod line_support;

use line_support::{Packet, Random, captures, have_tcpdump, load};
use weir_packet::LinkType;

const SEED: u64 = 0x5eed;

#[test]
fn random_bytes() {
    let mut random = Random(SEED);
    for round in 0..200_000 {
        let len = random.below(if round % 16 == 0 { 400 } else { 90 });
        let data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        body::line(&data);
    }
}

/// Small numbers and the numbers of known protocols lead deeper into the printers than uniform bytes do.
#[test]
fn likely_bytes() {
    const LIKELY: [u8; 24] = [
        0, 1, 2, 3, 4, 6, 8, 17, 41, 43, 44, 47, 50, 51, 58, 60, 0x45, 0x60, 0x81, 0x86, 0x88,
        0xaa, 0xdd, 0xff,
    ];
    let mut random = Random(SEED);
    for _ in 0..200_000 {
        let len = random.below(160);
        let data: Vec<u8> = (0..len)
            .map(|_| LIKELY[random.below(LIKELY.len())])
            .collect();
        body::line(&data);
    }
}

/// Every prefix of packets of every capture, printed with its own link type and with every other.
#[test]
fn prefixes_of_captured_packets() {
    let test = "prefixes_of_captured_packets";
    let paths = captures(test);
    if paths.is_empty() || !have_tcpdump(test) {
        return;
    }
    let mut packets = 0;
    for path in &paths {
        let Some((link, all)) = load(path) else {
            continue;
        };
        for Packet { data, .. } in all.iter().take(40) {
            packets += 1;
            for len in 0..=data.len().min(200) {
                prefix(link, &data[..len], packets + len);
            }
        }
    }
    println!("{packets} packets");
    assert!(packets > 300);
}

fn prefix(own: LinkType, data: &[u8], turn: usize) {
    for flags in [0, 1, 4] {
        body::frame(own, data, turn as u32 % 2, flags);
    }
    for link in body::LINKS {
        body::frame(link, data, 0, turn as u8);
    }
}
