//! Files that end too early or hold wrong bytes. All good packets before the damage are delivered, and the fault has the same
//! position in every way to read.

mod reading;

use reading::build::{Pcap, Pcapng};
use reading::compare::{EXPRESSIONS, answer, everywhere, options, plain};
use reading::{Random, Scratch};
use std::fs::File;
use weir_pipeline::reader::SourceError;
use weir_pipeline::{AccessMode, Options};

const WINDOW: usize = 1 << 20;

fn pcap(len: usize, most: usize) -> Pcap {
    let mut random = Random(len as u64);
    let mut file = Pcap::new(1, 65_535);
    while file.bytes.len() < len {
        let data = random.below(most);
        file.packet(&random.bytes(data));
    }
    file
}

fn pcapng(len: usize, most: usize) -> Pcapng {
    let mut random = Random(len as u64);
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    while file.bytes.len() < len {
        let data = random.below(most);
        match random.below(8) {
            0 => file.simple(data as u32, &random.bytes(data)),
            1 => file.obsolete(0, data as u32, &random.bytes(data)),
            // A custom block that is copied changes the layout, as interfaces and sections do.
            2 if random.below(6) == 0 => file.block(0x0bad, &random.bytes(data)),
            2 => file.block(0x4000_0bad, &random.bytes(data)),
            3 if random.below(6) == 0 => file.interface(1, 0, 9),
            4 if random.below(6) == 0 => {
                file.section(random.below(2) == 1);
                file.interface(1, 0, 6);
            }
            _ => file.packet(&random.bytes(data)),
        }
    }
    file
}

#[test]
fn cut_at_every_byte() {
    for file in [pcap(400, 60).bytes, pcapng(900, 60).bytes] {
        for len in 0..file.len() {
            everywhere(&format!("cut at {len}"), file[..len].to_vec());
        }
    }
}

#[test]
fn cut_near_the_ends_of_windows() {
    let mut random = Random(77);
    for file in [
        pcap(2 * WINDOW + 400_000, 2000).bytes,
        pcapng(2 * WINDOW + 400_000, 2000).bytes,
    ] {
        let overhang = 64 << 10;
        let places = [WINDOW, WINDOW + overhang, 2 * WINDOW, 2 * WINDOW + overhang];
        let near = places
            .into_iter()
            .flat_map(|place| [-16isize, -3, 0, 1, 15].map(|by| place.wrapping_add_signed(by)));
        let anywhere: Vec<usize> = (0..8).map(|_| random.below(file.len())).collect();
        for len in near.chain(anywhere) {
            everywhere(&format!("cut at {len}"), file[..len].to_vec());
        }
    }
}

#[test]
fn cut_in_a_mapped_window_behind_the_first() {
    let mut random = Random(78);
    for file in [pcap(34 << 20, 2000).bytes, pcapng(34 << 20, 2000).bytes] {
        for len in [
            16 << 20,
            (17 << 20) + 5,
            (32 << 20) - 1,
            (33 << 20) + random.below(1 << 20),
        ] {
            everywhere(&format!("cut at {len}"), file[..len].to_vec());
        }
    }
}

/// Every kind of wrong length in the middle of a file, with one and with several windows.
#[test]
fn lengths_that_cannot_be() {
    for len in [20_000, 5 << 20, 33 << 20] {
        for captured in [u32::MAX, 0x8000_0000, 262_145] {
            let mut file = pcap(len, 2000);
            file.header(1, 0, captured, captured);
            let place = file.bytes.len() - 16;
            file.bytes.extend_from_slice(&pcap(len, 2000).bytes);
            let (packet, offset, what) = fault(&file.bytes);
            assert_eq!((packet, offset), (u64::from(file.count) + 1, place as u64));
            assert_eq!(
                what,
                format!("Format(AbsurdLength {{ claims: {captured}, snaplen: 65535 }})")
            );
            everywhere(
                &format!("a record of {captured} bytes after {len}"),
                file.bytes,
            );
        }
    }
    for len in [20_000, 5 << 20] {
        let bad: [(&str, &[u32]); 9] = [
            ("BlockLength", &[6, 0, 0, 0]),
            ("BlockLength", &[6, 11, 0, 0]),
            ("BlockLength", &[0xbad, 33, 0, 0]),
            ("BlockLength", &[6, 28, 0, 0, 0, 0, 28]),
            ("BlockLength", &[3, 12, 12]),
            ("Trailer", &[6, 32, 0, 0, 0, 0, 0, 36]),
            ("PacketOverrun", &[6, 36, 0, 0, 0, 8, 8, 0, 36]),
            ("UnknownInterface", &[6, 32, 7_000, 0, 0, 0, 0, 32]),
            ("BlockLength", &[6, 0xf000_0000, 0, 0, 0, 0, 0, 0]),
        ];
        for (kind, words) in bad {
            // In the byte order of the last section.
            let mut file = Pcapng::new(false);
            file.interface(1, 0, 6);
            while file.bytes.len() < len {
                file.packet(&[7; 700]);
            }
            let place = file.bytes.len() as u64;
            file.bytes
                .extend(words.iter().flat_map(|word| word.to_le_bytes()));
            for _ in 0..2000 {
                file.packet(&[7; 700]);
            }
            let (packet, offset, what) = fault(&file.bytes);
            assert_eq!((packet, offset), (place / 732 + 1, place), "{kind}: {what}");
            assert!(what.contains(kind), "{kind}: {what}");
            everywhere(&format!("{kind} {words:x?}"), file.bytes);
        }
    }
}

#[test]
fn section_headers_that_cannot_be() {
    let header = |mark: u32, major: u16, minor: u16| {
        let mut bytes = Vec::new();
        for word in [
            0x0a0d_0d0a,
            28,
            mark,
            u32::from(major) | u32::from(minor) << 16,
            !0,
            !0,
            28,
        ] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes
    };
    for (kind, bytes) in [
        ("ByteOrder", header(0x1a2b_3c4e, 1, 0)),
        ("Version", header(0x1a2b_3c4d, 2, 0)),
        ("Version", header(0x1a2b_3c4d, 1, 1)),
    ] {
        let mut file = pcapng(20_000, 500).bytes;
        let place = file.len() as u64;
        file.extend(bytes);
        file.extend([0; 100]);
        let (_, offset, what) = fault(&file);
        assert_eq!(offset, place, "{what}");
        assert!(what.contains(kind), "{kind}: {what}");
    }
}

/// Returns the fault of a file: packet number, offset and text.
fn fault(file: &[u8]) -> (u64, u64, String) {
    let scratch = Scratch::new("fault", file);
    let mut reader = reading::compare::reader(plain(&scratch), "", Options::default());
    while let Some(delivery) = reader.next() {
        reader.recycle(delivery.view);
    }
    let fault = reader
        .report()
        .fault
        .as_ref()
        .expect("the file has a fault");
    (fault.packet, fault.offset, format!("{:?}", fault.what))
}

/// A block of nearly 4 GiB in a file of that size: no memory is requested for it.
#[test]
fn a_block_of_gigabytes() {
    for kind in [0x0badu32, 6] {
        let mut file = Pcapng::new(false);
        file.interface(1, 0, 6);
        for _ in 0..10 {
            file.packet(&[1; 60]);
        }
        let place = file.bytes.len() as u64;
        file.bytes
            .extend([kind.to_le_bytes(), 0xffff_fff0u32.to_le_bytes()].concat());
        let scratch = Scratch::new("gigabytes", &file.bytes);
        File::options()
            .write(true)
            .open(&scratch.0)
            .unwrap()
            .set_len(6 << 30)
            .unwrap();
        for way in [AccessMode::Mapped, AccessMode::Read] {
            for workers in [1, 2] {
                let (found, _) = answer(plain(&scratch), EXPRESSIONS[0].0, options(way, workers));
                assert_eq!((found.passed, found.fault), (10, Some((11, place))));
            }
        }
    }
}

#[test]
fn an_empty_file_and_one_that_is_no_capture() {
    for bytes in [
        &b""[..],
        b"x",
        b"\xd4\xc3\xb2\xa1",
        b"Hello, world! This is text, and more of it than a header.",
    ] {
        let scratch = Scratch::new("no-capture", bytes);
        for way in [AccessMode::Mapped, AccessMode::Read] {
            let mut reader = reading::compare::reader(plain(&scratch), "", options(way, 2));
            assert!(reader.next().is_none());
            let fault = reader.report().fault.as_ref().expect("no header");
            assert!(
                matches!(fault.what, SourceError::Format(_)),
                "{way:?} {bytes:?}: {:?}",
                fault.what
            );
            assert_eq!((fault.packet, fault.offset), (1, 0));
        }
        everywhere("no capture", bytes.to_vec());
    }
}
