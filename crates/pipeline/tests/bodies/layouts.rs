//! Shared body of the fuzz target and of the tests over seeded bytes: files with frequent changes of the layout.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_packet::Frame;
use weir_packet::savefile::Layout;
use weir_pipeline::{Consumer, Options, PlanError, Reader, With};

/// Largest memory of a reader of such a file, bytes: pieces of the source in memory, one block, and one layout with all its text.
/// The bound does not depend on the number of sections and interfaces, nor on the length of their texts.
pub const MOST_HELD: usize = 12 << 20;

/// Size limit of a file, bytes.
const LARGEST: usize = 24 << 20;

/// A packet: time, link type, snap length, resolution, length on the wire, captured length, first byte.
type Seen = (Option<i64>, u16, u32, u8, u32, usize, u8);

/// A file made block by block, with the packets that a reader must find in it.
#[derive(Default)]
struct Made {
    file: Vec<u8>,
    big: bool,
    /// Link type, snap length and resolution of the section's interfaces.
    section: Vec<(u16, u32, u8)>,
    blocks: usize,
    packets: Vec<Seen>,
    /// Whether the file ends with a packet of an undescribed interface: the readable part of the file ends there.
    broken: bool,
}

impl Made {
    fn word(&self, word: u32) -> [u8; 4] {
        if self.big {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    }

    fn half(&self, half: u16) -> [u8; 2] {
        if self.big {
            half.to_be_bytes()
        } else {
            half.to_le_bytes()
        }
    }

    fn block(&mut self, kind: u32, mut body: Vec<u8>) {
        body.resize(body.len().next_multiple_of(4), 0);
        let total = self.word(body.len() as u32 + 12);
        let parts = [&self.word(kind)[..], &total, &body, &total].concat();
        self.file.extend(parts);
        self.blocks += 1;
    }

    fn text(&self, code: u16, fill: u8, len: usize) -> Vec<u8> {
        let mut option = [self.half(code), self.half(len as u16)].concat();
        option.resize(4 + len.next_multiple_of(4), b'a' + fill % 26);
        option
    }

    fn section(&mut self, big: bool, fill: u8, len: usize) {
        self.big = big;
        self.section.clear();
        let fixed = [
            &self.word(0x1a2b_3c4d)[..],
            &self.half(1),
            &self.half(0),
            &[0xff; 8],
        ]
        .concat();
        let body = [fixed, self.text(1, fill, len)].concat();
        self.block(0x0a0d_0d0a, body);
    }

    fn interface(&mut self, fill: u8, len: usize) {
        let (link, snaplen) = (
            [1, 101, 113, 0][usize::from(fill % 4)],
            [0, 65_535, 96][usize::from(fill % 3)],
        );
        let unit = [6, 9, 3][usize::from(fill / 4 % 3)];
        let mut body = [&self.half(link)[..], &[0, 0], &self.word(snaplen)].concat();
        body.extend([&self.half(9)[..], &self.half(1), &[unit, 0, 0, 0]].concat());
        body.extend(self.text(2, fill, len % 300));
        // One comment more than a layout keeps.
        (0..17).for_each(|_| body.extend(self.text(1, fill, len)));
        self.block(1, body);
        self.section.push((link, snaplen, unit));
    }

    fn packet(&mut self, interface: u32, len: usize) {
        let ticks = self.packets.len() as u64 + (1 << 33);
        let data = vec![len as u8; len];
        let fields = [
            interface,
            (ticks >> 32) as u32,
            ticks as u32,
            len as u32,
            len as u32 + 7,
        ];
        let mut body: Vec<u8> = fields.iter().flat_map(|&field| self.word(field)).collect();
        body.extend(&data);
        self.block(6, body);
        match self.section.get(interface as usize) {
            Some(&(link, snaplen, unit)) => {
                let ns =
                    i64::try_from(ticks * 10u64.pow(9 - u32::from(unit))).expect("small numbers");
                let first = data.first().copied().unwrap_or(0);
                self.packets
                    .push((Some(ns), link, snaplen, unit, len as u32 + 7, len, first));
            }
            None => self.broken = true,
        }
    }

    /// Makes a file from `data`: three bytes give a kind of block, its contents and its number of repetitions.
    fn of(data: &[u8]) -> Self {
        let mut made = Self::default();
        made.section(false, 0, 0);
        for &[kind, a, b] in data.as_chunks::<3>().0 {
            // Long blocks and many repetitions are rare, because most files should be small.
            let len = if b >= 0xf0 {
                usize::from(b & 15) * 4000
            } else {
                usize::from(b)
            };
            let times = if kind >= 0xf8 { usize::from(a) * 16 } else { 1 };
            for i in 0..times {
                if made.broken || made.file.len() > LARGEST || made.blocks > 30_000 {
                    return made;
                }
                // Each repetition makes a different interface or section.
                let fill = a.wrapping_add(i as u8);
                match kind % 8 {
                    0 => made.section(a & 1 == 1, fill, len),
                    1 | 2 if made.section.len() < 4000 => made.interface(fill, len),
                    3 => {
                        made.section(a & 1 == 1, fill, 0);
                        made.interface(fill, len);
                        made.packet(0, len % 1500);
                    }
                    4 => made.packet(u32::from(a), len % 1500),
                    _ if made.section.is_empty() => {}
                    _ => made.packet(u32::from(a) % made.section.len() as u32, len % 1500),
                }
            }
        }
        made
    }
}

/// A consumer that lists the fields of each packet.
struct List;

impl Consumer for List {
    type Plan = ();
    type Part = Vec<Seen>;

    fn plan(&self, _: &Layout, _: Option<&()>) -> Result<(), PlanError> {
        Ok(())
    }

    fn frames(&self, with: &With<'_, ()>, _: &[Frame<'_>], part: &mut Vec<Seen>) {
        with.layout.records(with.bytes, with.records, |_, record| {
            let record = record.expect("a walked record can be taken apart");
            let (frame, from) = (
                record.frame,
                &with.layout.interfaces[record.frame.interface as usize],
            );
            let first = frame.data.first().copied().unwrap_or(0);
            let (wire, len) = (frame.wire_len, frame.data.len());
            part.push((
                record.time_ns,
                from.link.0,
                from.snaplen,
                from.resolution.0,
                wire,
                len,
                first,
            ));
        });
    }

    fn append(&self, part: &mut Vec<Seen>, next: Vec<Seen>) {
        part.extend(next);
    }
}

/// A source that returns at most `most` bytes of the file per read.
struct Pieces {
    file: Arc<Vec<u8>>,
    at: usize,
    most: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.most).min(self.file.len() - self.at);
        buf[..n].copy_from_slice(&self.file[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// Checks that any sequence of sections, interfaces and packets is read unchanged, and that the reader holds at most
/// [`MOST_HELD`] bytes. `held` returns the number of bytes that the process holds.
pub fn layouts(data: &[u8], held: &dyn Fn() -> usize) {
    let Made {
        file,
        packets,
        broken,
        ..
    } = Made::of(data);
    let most = [5000, 1 << 20, usize::MAX][data.len() % 3];
    let source = Pieces {
        file: Arc::new(file),
        at: 0,
        most,
    };
    let stream = Stream::direct(source, Arc::new(AtomicBool::new(false)));
    let input = Input {
        name: "made".to_owned(),
        kind: Kind::Stream(stream),
    };
    let before = held();
    let mut reader = Reader::new(input, Arc::new(List), Options::default());
    let mut left = &packets[..];
    while let Some(delivery) = reader.next() {
        let now = held().saturating_sub(before);
        assert!(now <= MOST_HELD, "{now} bytes are held");
        let (expected, rest) = left.split_at(delivery.part.len().min(left.len()));
        assert_eq!(delivery.part, expected);
        left = rest;
        reader.recycle(delivery.view);
    }
    let now = held().saturating_sub(before);
    assert!(now <= MOST_HELD, "{now} bytes are held at the end");
    assert!(left.is_empty(), "{} packets are missing", left.len());
    assert_eq!(
        reader.report().fault.is_some(),
        broken,
        "{:?}",
        reader.report().fault
    );
}
