//! Packets for the tests: from captures, if there are any, and made up.
//!
//! The reader here is separate and small, so that a fault of weir's readers cannot hide a fault of its filters.

use std::fs;

use weir_packet::{Frame, LinkType};
pub use weir_testkit::Random;

/// A packet with the link type of its capture.
pub struct Sample {
    pub link: LinkType,
    pub data: Vec<u8>,
    pub wire_len: u32,
}

impl Sample {
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            data: &self.data,
            wire_len: self.wire_len,
            interface: 0,
        }
    }
}

/// All packets of all captures.
pub fn captured() -> Vec<Sample> {
    let paths = weir_testkit::captures("verdicts_on_captures");
    paths
        .iter()
        .flat_map(|path| read(&fs::read(path).unwrap_or_default()).unwrap_or_default())
        .collect()
}

/// The packets before the first fault of a pcap or pcapng file.
fn read(file: &[u8]) -> Option<Vec<Sample>> {
    let magic: [u8; 4] = file.get(..4)?.try_into().ok()?;
    let mut samples = Vec::new();
    match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => {
            pcap(&Bytes { file, big: false }, &mut samples)
        }
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => {
            pcap(&Bytes { file, big: true }, &mut samples)
        }
        [0x0a, 0x0d, 0x0d, 0x0a] => pcapng(file, &mut samples),
        _ => None,
    };
    Some(samples)
}

struct Bytes<'a> {
    file: &'a [u8],
    big: bool,
}

impl Bytes<'_> {
    fn word(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = self.file.get(at..at + 4)?.try_into().ok()?;
        Some(if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        } as usize)
    }

    fn half(&self, at: usize) -> Option<u16> {
        let bytes: [u8; 2] = self.file.get(at..at + 2)?.try_into().ok()?;
        Some(if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    fn sample(&self, link: u16, at: usize, len: usize, wire_len: usize) -> Option<Sample> {
        let data = self.file.get(at..at.checked_add(len)?)?.to_vec();
        Some(Sample {
            link: LinkType(link),
            data,
            wire_len: wire_len as u32,
        })
    }
}

fn pcap(bytes: &Bytes<'_>, samples: &mut Vec<Sample>) -> Option<()> {
    let link = bytes.word(20)? as u16;
    let mut at = 24;
    loop {
        let (len, wire_len) = (bytes.word(at + 8)?, bytes.word(at + 12)?);
        samples.push(bytes.sample(link, at + 16, len, wire_len)?);
        at += 16 + len;
    }
}

fn pcapng(file: &[u8], samples: &mut Vec<Sample>) -> Option<()> {
    let mut bytes = Bytes { file, big: false };
    let mut links = Vec::new();
    let mut at = 0;
    loop {
        if file.get(at..at + 4)? == [0x0a, 0x0d, 0x0d, 0x0a] {
            bytes.big = file.get(at + 8..at + 12)? == [0x1a, 0x2b, 0x3c, 0x4d];
            links.clear();
        }
        match bytes.word(at)? {
            1 => links.push(bytes.half(at + 8)?),
            3 => {
                let wire_len = bytes.word(at + 8)?;
                let len = wire_len.min(bytes.word(at + 4)?.checked_sub(16)?);
                samples.push(bytes.sample(*links.first()?, at + 12, len, wire_len)?);
            }
            2 | 6 => {
                let interface = if bytes.word(at)? == 6 {
                    bytes.word(at + 8)?
                } else {
                    usize::from(bytes.half(at + 8)?)
                };
                let (len, wire_len) = (bytes.word(at + 20)?, bytes.word(at + 24)?);
                samples.push(bytes.sample(*links.get(interface)?, at + 28, len, wire_len)?);
            }
            _ => {}
        }
        let length = bytes.word(at + 4)?;
        at += if length < 12 { return None } else { length };
    }
}

/// Made-up Ethernet frames: valid enough to get deep into a program, of all lengths from 0, with field values that expressions
/// often test.
pub fn made_up(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(0x0123_4567_89ab_cdef);
    (0..count).map(|_| frame(&mut random)).collect()
}

fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..160).map(|_| random.below(256) as u8).collect();
    if random.below(4) == 0 {
        frame[..6].copy_from_slice(
            &[
                [0xff; 6],
                [1, 0, 0x5e, 0, 0, 1],
                [0, 0x11, 0x22, 0x33, 0x44, 0x55],
            ][random.below(3)],
        );
    }
    let mut at = 12;
    for _ in 0..random.below(3) {
        let tag: [&[u8]; 4] = [
            &[0x81, 0, 0, 100],
            &[0x88, 0xa8, 0, 5],
            &[0x81, 0, 0, 200],
            &[0x91, 0, 0, 7],
        ];
        frame[at..at + 4].copy_from_slice(tag[random.below(4)]);
        at += 4;
    }
    let protocol = [6, 6, 17, 17, 1, 58, 132, 2, 47, 4, 50, 51, 0, 60][random.below(14)];
    let ports: [[u8; 2]; 8] = [
        [0, 80],
        [1, 187],
        [0, 53],
        [0x17, 0xc1],
        [0x13, 0xc4],
        [4, 0],
        [0, 22],
        [0x7d, 0],
    ];
    let kind = [
        [8, 0],
        [8, 0],
        [8, 0],
        [0x86, 0xdd],
        [0x86, 0xdd],
        [8, 6],
        [0x88, 0x47],
        [0x88, 0x64],
        [0, 60],
        [0x88, 0x63],
    ];
    let kind = kind[random.below(10)];
    frame[at..at + 2].copy_from_slice(&kind);
    at += 2;
    match kind {
        [0x88, 0x47] => at += 4 * (1 + random.below(2)),
        [0x88, 0x64] => {
            frame[at..at + 8].copy_from_slice(&[
                0x11,
                0,
                0,
                0x27,
                0,
                40,
                0,
                [0x21, 0x57][random.below(2)],
            ]);
            at += 8;
        }
        _ => {}
    }
    let transport = match kind {
        [0x86, 0xdd] => {
            frame[at] = 0x60;
            frame[at + 6] = protocol;
            frame[at + 8] = [0xfe, 0x20, 0xff][random.below(3)];
            at + 40
        }
        _ => {
            frame[at] = [0x45, 0x45, 0x45, 0x46, 0x4f, 0x40][random.below(6)];
            frame[at + 6..at + 8].copy_from_slice(&[[0, 0], [0x40, 0], [0x20, 1]][random.below(3)]);
            frame[at + 9] = protocol;
            let addresses = [
                [10, 0, 0, 1],
                [10, 1, 2, 3],
                [192, 168, 1, 1],
                [172, 16, 0, 9],
                [10, 0, 0, 2],
            ];
            frame[at + 12..at + 16].copy_from_slice(&addresses[random.below(5)]);
            frame[at + 16..at + 20].copy_from_slice(&addresses[random.below(5)]);
            at + usize::from(frame[at] & 0xf) * 4
        }
    };
    frame[transport..transport + 2].copy_from_slice(&ports[random.below(8)]);
    frame[transport + 2..transport + 4].copy_from_slice(&ports[random.below(8)]);
    let cut = if random.below(3) == 0 {
        random.below(frame.len() + 1)
    } else {
        54 + random.below(107)
    };
    frame.truncate(cut);
    frame
}
