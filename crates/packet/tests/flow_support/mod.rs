//! Shared parts of the tests of the flow key: frames made by hand with their keys, the packets of the captures, damage.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod cases;
pub mod oracle;

use std::collections::BTreeMap;

use super::line_support::{Random, captures};
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Layout, Stop};
use weir_packet::{Frame, LinkType};

/// The packets of all captures, by link type.
pub fn packets(test: &str) -> BTreeMap<LinkType, Vec<Vec<u8>>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for path in captures(test) {
        let file = std::fs::read(path).expect("a listed capture can be read");
        for (link, data) in of_file(&file) {
            all.entry(link).or_default().push(data);
        }
    }
    all
}

#[derive(Default)]
struct Collect(Vec<(u32, Vec<u8>)>);

impl Visit for Collect {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.0.extend(
            frames
                .iter()
                .map(|frame| (frame.interface, frame.data.to_vec())),
        );
        true
    }
}

/// The packets of a capture file.
pub fn of_file(file: &[u8]) -> Vec<(LinkType, Vec<u8>)> {
    let mut packets = Vec::new();
    let Ok((mut layout, mut pos)) = Layout::read(file, true) else {
        return packets;
    };
    loop {
        let mut cursors = [Cursor::new(pos, file.len())];
        let mut seen = Collect::default();
        walk(&layout, file, true, &mut cursors, &mut seen);
        for (interface, data) in seen.0 {
            packets.extend(
                layout
                    .interfaces
                    .get(interface as usize)
                    .map(|interface| (interface.link, data)),
            );
        }
        match cursors[0].stop {
            Some(Stop::Layout) => match layout.apply(file, cursors[0].pos, true) {
                Ok(next) => pos = next,
                Err(_) => return packets,
            },
            _ => return packets,
        }
    }
}

/// Changes up to four bytes of the headers, often to values with a meaning there, and cuts one packet in three.
pub fn damage(packet: &[u8], random: &mut Random) -> Vec<u8> {
    const TELLING: [u8; 24] = [
        0, 1, 4, 5, 6, 8, 17, 41, 43, 44, 45, 47, 51, 58, 60, 0x45, 0x46, 0x60, 0x81, 0x86, 0x88,
        135, 132, 255,
    ];
    let mut packet = packet.to_vec();
    for _ in 0..random.below(5) {
        let at = random.below(packet.len().min(100));
        if let Some(byte) = packet.get_mut(at) {
            *byte = match random.below(3) {
                0 => random.next() as u8,
                1 => *byte ^ (1 << random.below(8)),
                _ => TELLING[random.below(TELLING.len())],
            };
        }
    }
    if random.below(3) == 0 {
        packet.truncate(random.below(packet.len().min(120) + 1));
    }
    packet
}
