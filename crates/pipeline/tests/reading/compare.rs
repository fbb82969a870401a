//! Every way to read a file, compared with the naive reader.

use super::naive::{self, Contents, Packet};
use super::{Random, Scratch};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::input::PlainFile;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_packet::savefile::{Interface, Layout, Record};
use weir_pipeline::select::{Select, Selection};
use weir_pipeline::stages::Stages;
use weir_pipeline::{AccessMode, Delivery, Options, Reader};

/// Meaning of an expression, written by hand, for a packet of a file.
type Keep = fn(&[u8], &Packet) -> bool;

/// Expressions and their meanings.
pub const EXPRESSIONS: [(&str, Keep); 2] = [
    ("", |_, _| true),
    ("len >= 200 and link[20] & 1 = 1", |file, packet| {
        let data = &file[packet.data.clone()];
        packet.wire_len >= 200 && data.get(20).is_some_and(|byte| byte & 1 == 1)
    }),
];

/// Result of the reading of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub received: u64,
    pub passed: u64,
    pub filtered: u64,
    pub bytes: u64,
    /// Hash of all properties of each packet kept, in order.
    pub kept: Vec<u64>,
    /// Number of the packet that could not be read, and its offset.
    pub fault: Option<(u64, u64)>,
}

/// FNV-1a over words of eight bytes: every bit of the input counts.
fn mix(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0u8; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words
        .iter()
        .chain([&last])
        .map(|word| u64::from_le_bytes(*word));
    words.fold(hash, |hash, word| {
        (hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    })
}

fn hash(time_ns: Option<i64>, wire_len: u32, link: u16, about: (u32, u8, i64), data: &[u8]) -> u64 {
    let (snaplen, unit, offset_s) = about;
    let mut fields = [0u8; 40];
    fields[..9].copy_from_slice(
        &[
            &[u8::from(time_ns.is_some())],
            &time_ns.unwrap_or(0).to_le_bytes()[..],
        ]
        .concat(),
    );
    fields[9..13].copy_from_slice(&wire_len.to_le_bytes());
    fields[13..15].copy_from_slice(&link.to_le_bytes());
    fields[15..19].copy_from_slice(&snaplen.to_le_bytes());
    fields[19] = unit;
    fields[20..28].copy_from_slice(&offset_s.to_le_bytes());
    fields[28..36].copy_from_slice(&(data.len() as u64).to_le_bytes());
    mix(mix(0xcbf2_9ce4_8422_2325, &fields), data)
}

fn hash_of(layout: &Layout, record: &Record<'_>) -> u64 {
    let frame = &record.frame;
    let Interface {
        link,
        snaplen,
        resolution,
        offset_s,
        ..
    } = &layout.interfaces[frame.interface as usize];
    hash(
        record.time_ns,
        frame.wire_len,
        link.0,
        (*snaplen, resolution.0, *offset_s),
        frame.data,
    )
}

/// Returns the result of the naive reader.
pub fn expected(file: &[u8], contents: &Contents, keep: impl Fn(&[u8], &Packet) -> bool) -> Answer {
    let mut answer = Answer {
        received: contents.packets.len() as u64,
        ..Answer::default()
    };
    for packet in &contents.packets {
        if !keep(file, packet) {
            answer.filtered += 1;
            continue;
        }
        answer.passed += 1;
        answer.bytes += u64::from(packet.wire_len);
        let time_ns = packet
            .time_ns
            .map(|ns| ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let from = packet.interface;
        let about = (from.snaplen, from.unit, from.offset_s);
        answer.kept.push(hash(
            time_ns,
            packet.wire_len,
            from.link,
            about,
            &file[packet.data.clone()],
        ));
    }
    answer.fault = contents.fault.map(|at| (answer.received + 1, at as u64));
    answer
}

/// Adds a delivery's packets to the answer.
pub fn collect(answer: &mut Answer, delivery: &Delivery<Stages>) {
    let Delivery {
        current,
        view,
        part,
        ..
    } = delivery;
    answer.passed += part.selected.passed;
    answer.filtered += part.selected.filtered;
    answer.bytes += part.selected.bytes;
    for at in part.passed_records() {
        let record = current
            .layout
            .record(view.bytes(), at as usize)
            .expect("a walked record can be taken apart");
        answer.kept.push(hash_of(&current.layout, &record));
    }
}

/// Reads `input` to its end; returns the result and the number of packets read again.
pub fn answer(input: Input, expression: &str, options: Options) -> (Answer, u64) {
    let mut reader = reader(input, expression, options);
    let mut answer = Answer::default();
    while let Some(delivery) = reader.next() {
        collect(&mut answer, &delivery);
        reader.recycle(delivery.view);
    }
    let report = reader.report();
    answer.received = report.received;
    answer.fault = report
        .fault
        .as_ref()
        .map(|fault| (fault.packet, fault.offset));
    (answer, report.reread)
}

pub fn reader(input: Input, expression: &str, options: Options) -> Reader<Stages> {
    let selection = Selection {
        expression: expression.to_owned(),
        ..Selection::default()
    };
    Reader::new(
        input,
        Arc::new(Stages::noting(Arc::new(Select::new(selection)))),
        options,
    )
}

pub fn options(way: AccessMode, workers: usize) -> Options {
    Options {
        workers,
        way: Some(way),
        ..Options::default()
    }
}

/// Returns the file as a plain file, for any first bytes.
pub fn plain(scratch: &Scratch) -> Input {
    weir_io::sys::guard_mappings();
    let file = File::open(&scratch.0).expect("a scratch file can be opened");
    Input {
        name: scratch.path().to_owned(),
        kind: Kind::File(PlainFile::new(file).expect("it has a size")),
    }
}

/// Source that returns its bytes in pieces of odd sizes.
pub struct Pieces {
    file: Arc<Vec<u8>>,
    at: usize,
    most: usize,
    random: Random,
}

impl Pieces {
    pub fn new(file: &Arc<Vec<u8>>, most: usize) -> Self {
        Self {
            file: Arc::clone(file),
            at: 0,
            most,
            random: Random(most as u64),
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let size = 1 + self.random.below(self.most);
        let n = size.min(buf.len()).min(self.file.len() - self.at);
        buf[..n].copy_from_slice(&self.file[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// Returns the bytes as a stream, like that of a pipe.
pub fn piecewise(file: &Arc<Vec<u8>>, most: usize) -> Input {
    let stop = Arc::new(AtomicBool::new(false));
    Input {
        name: "pieces".to_owned(),
        kind: Kind::Stream(Stream::direct(Pieces::new(file, most), stop)),
    }
}

/// Number of packets read again, by access mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    pub mapped: [u64; 3],
    pub read: [u64; 3],
    pub streamed: u64,
}

impl Reread {
    pub fn total(&self) -> u64 {
        self.mapped.iter().chain(&self.read).sum::<u64>() + self.streamed
    }
}

pub const WORKERS: [usize; 3] = [1, 2, 4];

/// Reads `file` in every way and compares each answer with the naive reader's.
pub fn everywhere(name: &str, file: Vec<u8>) -> Reread {
    let pieces = if file.len() < 1 << 20 {
        vec![1 + file.len() / 300, 5000]
    } else {
        vec![70_001, 1 << 21]
    };
    everywhere_in_pieces(name, file, &pieces)
}

pub fn everywhere_in_pieces(name: &str, file: Vec<u8>, pieces: &[usize]) -> Reread {
    let contents = naive::read(&file);
    let scratch = Scratch::new("everywhere", &file);
    let file = Arc::new(file);
    let mut reread = Reread::default();
    for (expression, keep) in EXPRESSIONS {
        let right = expected(&file, &contents, keep);
        for (i, workers) in WORKERS.into_iter().enumerate() {
            for way in [AccessMode::Mapped, AccessMode::Read] {
                let (found, again) = answer(plain(&scratch), expression, options(way, workers));
                same(
                    &format!("{name}, {way:?}, {workers} workers, '{expression}'"),
                    &found,
                    &right,
                );
                match way {
                    AccessMode::Mapped => reread.mapped[i] += again,
                    _ => reread.read[i] += again,
                }
            }
        }
        for &most in pieces {
            let (found, again) = answer(piecewise(&file, most), expression, Options::default());
            same(
                &format!("{name}, in pieces of up to {most} bytes, '{expression}'"),
                &found,
                &right,
            );
            reread.streamed += again;
        }
    }
    println!(
        "{name}: {} packets, {} bytes, fault {:?}, {reread:?}",
        contents.packets.len(),
        file.len(),
        contents.fault
    );
    reread
}

pub fn same(what: &str, found: &Answer, right: &Answer) {
    assert_eq!(
        found.received,
        found.passed + found.filtered,
        "{what}: every packet is accounted for"
    );
    let brief = |answer: &Answer| {
        (
            answer.received,
            answer.passed,
            answer.filtered,
            answer.bytes,
            answer.fault,
        )
    };
    assert_eq!(
        brief(found),
        brief(right),
        "{what}: received, passed, filtered, bytes, fault"
    );
    let differs = found.kept.iter().zip(&right.kept).position(|(a, b)| a != b);
    assert_eq!(
        (differs, found.kept.len()),
        (None, right.kept.len()),
        "{what}: the packets, in order"
    );
}
