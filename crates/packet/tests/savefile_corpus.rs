//! The body of the fuzz target over the captures, over files made by hand, and over both with seeded damage.

#[path = "bodies/savefile.rs"]
mod body;
mod line_support;

use body::savefile;
use line_support::Random;
use std::path::PathBuf;
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};

/// Size of the largest capture that is read, bytes: each case is read many times.
const MOST: u64 = 100_000;

fn captures() -> Vec<(String, Vec<u8>)> {
    let mut paths = line_support::captures("savefile_corpus");
    paths.retain(|path| path.metadata().is_ok_and(|about| about.len() <= MOST));
    let name = |path: &PathBuf| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    paths
        .iter()
        .map(|path| {
            (
                name(path),
                std::fs::read(path).expect("a listed capture can be read"),
            )
        })
        .collect()
}

/// Generated files, so that there is a corpus even without captures.
fn made() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for format in [Format::Pcap, Format::Pcapng] {
        for (packets, size) in [(0, 0), (1, 0), (40, 20), (60, 90), (20, 1500)] {
            let mut encoder = Encoder::new(format, 0);
            let mut out = Vec::new();
            for i in 0..packets {
                let resolution = if format == Format::Pcap {
                    6
                } else {
                    6 + i as u8 / 20 % 4
                };
                let interface = Interface::plain(LinkType(1), 0, Resolution(resolution));
                let id = encoder.interface(&interface).expect("one link type");
                let data = vec![i as u8; size];
                encoder.packet(
                    &mut out,
                    id,
                    Some(i64::from(i)),
                    &Frame {
                        data: &data,
                        wire_len: size as u32,
                        interface: 0,
                    },
                );
            }
            encoder.begin(&mut out);
            files.push((
                format!("{format:?} of {packets} packets of {size} bytes"),
                out,
            ));
        }
    }
    // Two sections of different byte order, and a capture inside a capture.
    let little = files[7].1.clone();
    let mut big = vec![
        0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0,
    ];
    big.extend([0xff; 8]);
    big.extend([
        0, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0, 20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20,
    ]);
    files.push((
        "two byte orders".to_owned(),
        [&little[..], &big, &little].concat(),
    ));
    let mut encoder = Encoder::new(Format::Pcap, 0);
    let mut out = Vec::new();
    let id = encoder
        .interface(&Interface::plain(LinkType(1), 0, Resolution(6)))
        .expect("the first");
    for i in 0..20 {
        let inner = &files[2].1;
        encoder.packet(
            &mut out,
            id,
            Some(i),
            &Frame {
                data: inner,
                wire_len: inner.len() as u32,
                interface: 0,
            },
        );
    }
    files.push(("captures in a capture".to_owned(), out));
    files
}

fn damaged(corpus: &[(String, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let mut file = corpus[random.below(corpus.len())].1.clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(file.len());
        match random.below(8) {
            _ if file.is_empty() => {}
            0 | 1 => file[at] ^= 1 << random.below(8),
            2 => file[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            // A value that is usual in lengths and types.
            3 => {
                let word = [
                    0,
                    4,
                    6,
                    12,
                    28,
                    32,
                    0xffff,
                    0x0004_0000,
                    0x7fff_ffff,
                    u32::MAX,
                ][random.below(10)];
                let word = if random.below(2) == 0 {
                    word.to_le_bytes()
                } else {
                    word.to_be_bytes()
                };
                let at = at / 4 * 4;
                let room = (file.len() - at).min(4);
                file[at..at + room].copy_from_slice(&word[..room]);
            }
            4 => file.truncate(at),
            5 => drop(file.drain(at..(at + random.below(64)).min(file.len()))),
            // A piece of another file, or of this file.
            6 => {
                let other = &corpus[random.below(corpus.len())].1;
                let from = random.below(other.len());
                let piece = other[from..(from + random.below(2000)).min(other.len())].to_vec();
                file.splice(at..at, piece);
            }
            _ => {
                let other = &corpus[random.below(corpus.len())].1;
                file.truncate(at);
                file.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
    file
}

#[test]
fn the_fuzz_body_holds_for_the_corpus() {
    for (name, file) in captures().into_iter().chain(made()) {
        println!("{name}");
        savefile(&file);
    }
}

#[test]
fn the_fuzz_body_holds_for_damaged_files() {
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_231_114);
    let corpus = [captures(), made()].concat();
    for case in 0..20_000 {
        let file = damaged(&corpus, &mut Random(seed + case));
        // Shown if the case fails: the seed of this case.
        println!("WEIR_SEED={}, {} bytes", seed + case, file.len());
        savefile(&file);
    }
}

#[test]
fn the_fuzz_body_holds_for_short_files() {
    for (_, file) in made() {
        for len in 0..file.len().min(200) {
            savefile(&file[..len]);
        }
    }
}
