//! Savefile bytes made by hand, field by field: the meaning that is read, and the bytes that are written for it.

mod described;
mod written;

use Part::{B, D, H, W};
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::write::{Encoder, WriteError};
use weir_packet::savefile::{
    Fault, Format, Interface, InterfaceStats, Layout, Resolution, Statistics, Stop,
};
use weir_packet::{Frame, LinkType};

/// Part of a file: words in one byte order, and single bytes for fields that are no words.
#[derive(Clone, Copy)]
enum Part<'a> {
    W(u32),
    H(u16),
    D(u64),
    B(&'a [u8]),
}

fn bytes(big: bool, parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match (part, big) {
            (W(word), false) => out.extend(word.to_le_bytes()),
            (W(word), true) => out.extend(word.to_be_bytes()),
            (H(half), false) => out.extend(half.to_le_bytes()),
            (H(half), true) => out.extend(half.to_be_bytes()),
            (D(double), false) => out.extend(double.to_le_bytes()),
            (D(double), true) => out.extend(double.to_be_bytes()),
            (B(some), _) => out.extend(*some),
        }
    }
    out
}

/// Time, interface, wire length and bytes of a packet.
type Seen = (Option<i64>, u32, u32, Vec<u8>);

#[derive(Default)]
struct Offsets(Vec<u32>, Vec<usize>);

impl Visit for Offsets {
    fn statistics(&mut self, _: usize, record: usize) {
        self.1.push(record);
    }

    fn frames(&mut self, _: usize, records: &[u32], _: &[Frame<'_>]) -> bool {
        self.0.extend(records);
        true
    }
}

/// All packets of a file, its last layout, and the fault that ended reading.
fn read(file: &[u8]) -> (Vec<Seen>, Option<Layout>, Option<Fault>) {
    let fault = |stop| match stop {
        Stop::Fault(fault) => fault,
        other => panic!("{other:?}"),
    };
    let (mut layout, mut pos) = match Layout::read(file, true) {
        Ok(found) => found,
        Err(stop) => return (Vec::new(), None, Some(fault(stop))),
    };
    let mut seen = Vec::new();
    loop {
        let mut cursor = [Cursor::new(pos, file.len())];
        let mut offsets = Offsets::default();
        walk(&layout, file, true, &mut cursor, &mut offsets);
        for at in offsets.0 {
            let record = layout.record(file, at as usize).expect("it was walked");
            let Frame {
                data,
                wire_len,
                interface,
            } = record.frame;
            seen.push((record.time_ns, interface, wire_len, data.to_vec()));
        }
        match cursor[0].stop.expect("the walk ended") {
            Stop::End => return (seen, Some(layout), None),
            Stop::Layout => match layout.apply(file, cursor[0].pos, true) {
                Ok(next) => pos = next,
                Err(stop) => return (seen, Some(layout), Some(fault(stop))),
            },
            stop => return (seen, Some(layout), Some(fault(stop))),
        }
    }
}

const ABC: &[u8] = &[0xa, 0xb, 0xc];

#[test]
fn pcap_fields_in_both_orders_and_resolutions() {
    for big in [false, true] {
        for (magic, fraction_ns, resolution) in [
            (0xa1b2_c3d4, 1000, Resolution::MICROSECOND),
            (0xa1b2_3c4d, 1, Resolution::NANOSECOND),
        ] {
            let file = bytes(
                big,
                &[
                    // magic, version 2.4, zone, accuracy, snap length, link type
                    W(magic),
                    H(2),
                    H(4),
                    W(0x1111_1111),
                    W(0x2222_2222),
                    W(0x0001_0203),
                    W(113),
                    // seconds, fraction, captured, wire
                    W(0x6553_f100),
                    W(0x0001_0203),
                    W(3),
                    W(0x0304_0506),
                    B(ABC),
                    W(0xffff_ffff),
                    W(999_999),
                    W(0),
                    W(0),
                ],
            );
            let (seen, layout, fault) = read(&file);
            let fraction = 0x0001_0203 * fraction_ns;
            assert_eq!(
                seen,
                [
                    (
                        Some(1_700_000_000_000_000_000 + fraction),
                        0,
                        0x0304_0506,
                        ABC.to_vec()
                    ),
                    (
                        Some(4_294_967_295_000_000_000 + 999_999 * fraction_ns),
                        0,
                        0,
                        Vec::new()
                    ),
                ]
            );
            let layout = layout.unwrap();
            assert_eq!(
                (layout.format, layout.big_endian, layout.sections, fault),
                (Format::Pcap, big, 1, None)
            );
            assert_eq!(
                layout.interfaces,
                [Interface::plain(LinkType(113), 0x0001_0203, resolution)]
            );
        }
    }
}

#[test]
fn the_upper_bits_of_a_pcap_link_type_are_no_link_type() {
    let header = |link: u32| {
        bytes(
            false,
            &[W(0xa1b2_c3d4), H(2), H(4), W(0), W(0), W(100), W(link)],
        )
    };
    // An FCS length of 4 and the flag that says so; reserved bits.
    for link in [0x4400_0001, 0x5400_0001, 0xfc00_0001] {
        let (_, layout, fault) = read(&header(link));
        assert_eq!(
            (layout.unwrap().interfaces[0].link, fault),
            (LinkType(1), None),
            "{link:#x}"
        );
    }
    assert_eq!(
        read(&header(0x0001_0000)).2,
        Some(Fault::LinkType(0x0001_0000))
    );
    assert_eq!(
        read(&header(0x0000_ffff)).1.unwrap().interfaces[0].link,
        LinkType(0xffff)
    );
}

#[test]
fn old_versions_of_pcap_store_the_lengths_the_other_way_round() {
    let file = |major, minor, first, second| {
        let header = [W(0xa1b2_c3d4), H(major), H(minor), W(0), W(0), W(100), W(1)];
        let record = [W(1), W(2), W(first), W(second), B(ABC)];
        read(&bytes(true, &[&header[..], &record[..]].concat()))
    };
    let whole = vec![(Some(1_000_002_000), 0, 60, ABC.to_vec())];
    for (major, minor, first, second) in [
        (2, 4, 3, 60),
        (2, 3, 3, 60),
        (2, 3, 60, 3),
        (543, 0, 60, 3),
        (2, 2, 60, 3),
        (2, 1, 60, 3),
        (2, 0, 60, 3),
    ] {
        let (seen, _, fault) = file(major, minor, first, second);
        assert_eq!(
            (seen, fault),
            (whole.clone(), None),
            "{major}.{minor}, {first} {second}"
        );
    }
    for (major, minor) in [(2, 5), (1, 4), (3, 0), (0, 0), (542, 0), (543, 1)] {
        let fault = file(major, minor, 3, 60).2;
        assert!(
            matches!(fault, Some(Fault::Version { format: "pcap", .. })),
            "{major}.{minor}: {fault:?}"
        );
    }
}

#[test]
fn pcap_lengths_and_snap_lengths() {
    let file = |snaplen, link, captured: usize, wire| {
        let header = [W(0xa1b2_c3d4), H(2), H(4), W(0), W(0), W(snaplen), W(link)];
        let mut file = bytes(false, &header);
        file.extend(bytes(false, &[W(0), W(0), W(captured as u32), W(wire)]));
        file.resize(file.len() + captured, 7);
        read(&file)
    };
    // A record longer than the snap length is read whole. If it is longer than any reader accepts, it is a fault.
    for (snaplen, link, captured, kept) in [
        (96, 1, 96, Some(96)),
        (96, 1, 97, Some(97)),
        (96, 1, 262_144, Some(262_144)),
        (96, 1, 262_145, None),
        (0, 1, 262_144, Some(262_144)),
        (0, 1, 262_145, None),
        (u32::MAX, 1, 262_144, Some(262_144)),
        (300_000, 1, 300_000, Some(300_000)),
        (300_000, 1, 300_001, None),
        (96, 249, 1 << 20, Some(1 << 20)),
        (1 << 20, 249, 1 << 20, Some(1 << 20)),
    ] {
        let (seen, _, fault) = file(snaplen, link, captured, 5);
        assert_eq!(
            seen.first().map(|(_, _, _, data)| data.len()),
            kept,
            "snap length {snaplen}, {captured} bytes"
        );
        let absurd = Fault::AbsurdLength {
            claims: captured as u32,
            snaplen,
        };
        assert_eq!(
            fault,
            kept.is_none().then_some(absurd),
            "snap length {snaplen}, {captured} bytes"
        );
    }
}

#[test]
fn bytes_that_are_no_capture() {
    assert_eq!(read(b"Hello!").2, Some(Fault::Magic(*b"Hell")));
    let empty = read(b"").2;
    assert_eq!(empty, Some(Fault::Empty));
    assert!(matches!(
        read(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0]).2,
        Some(Fault::ShortHeader {
            have: 6,
            need: 24,
            ..
        })
    ));
    for (start, word) in [
        (&[0x34u8, 0xcd, 0xb2, 0xa1][..], "Kuznetzov"),
        (&[0xa1, 0xb2, 0x34, 0xcd], "Nokia"),
        (b"snoop\0\0\0", "snoop"),
        (b"btsnoop\0", "btsnoop"),
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"PK\x03\x04", "zip"),
        (b"XCP\0", "NetXRay"),
        (b"RTSS", "Network Monitor"),
        (b"GMBU", "Network Monitor"),
    ] {
        let fault = read(&[start, &[0; 40]].concat())
            .2
            .expect("it is not a capture");
        assert!(
            matches!(fault, Fault::Known(_)) && fault.to_string().contains(word),
            "{fault}"
        );
    }
}

/// A section header of 28 bytes.
fn section(big: bool) -> Vec<u8> {
    bytes(
        big,
        &[
            W(0x0a0d_0d0a),
            W(28),
            W(0x1a2b_3c4d),
            H(1),
            H(0),
            D(u64::MAX),
            W(28),
        ],
    )
}

#[test]
fn every_pcapng_block_in_both_orders() {
    for big in [false, true] {
        let mut file = bytes(
            big,
            &[
                // A section header with a given length, a comment, a hardware, an OS and an application.
                W(0x0a0d_0d0a),
                W(68),
                W(0x1a2b_3c4d),
                H(1),
                H(2),
                D(4096),
                H(1),
                H(5),
                B(b"hello\0\0\0"),
                H(2),
                H(3),
                B(b"cpu\0"),
                H(3),
                H(2),
                B(b"os\0\0"),
                H(4),
                H(4),
                B(b"tool"),
                H(0),
                H(0),
                W(68),
            ],
        );
        // Interfaces: plain; in ns, with a name, a description, a comment and an offset; in 2^-10 s.
        file.extend(bytes(
            big,
            &[W(1), W(20), H(1), H(0xffff), W(0x0001_0203), W(20)],
        ));
        file.extend(bytes(
            big,
            &[
                W(1),
                W(72),
                H(276),
                H(0),
                W(0),
                H(1),
                H(2),
                B(b"hi\0\0"),
                H(2),
                H(4),
                B(b"eth7"),
                H(3),
                H(6),
                B(b"uplink\0\0"),
                H(9),
                H(1),
                B(&[9, 0, 0, 0]),
                H(14),
                H(8),
                D((-5i64) as u64),
                H(0),
                H(0),
                W(72),
            ],
        ));
        file.extend(bytes(
            big,
            &[
                W(1),
                W(28),
                H(101),
                H(0),
                W(64),
                H(9),
                H(1),
                B(&[0x8a, 0, 0, 0]),
                W(28),
            ],
        ));
        // Enhanced packets: of interface 0, with padding; of 1, with options; of 2, without bytes.
        let ticks = |value: u64| [W((value >> 32) as u32), W(value as u32)];
        let [high, low] = ticks(1_700_000_000_000_123);
        file.extend(bytes(
            big,
            &[
                W(6),
                W(36),
                W(0),
                high,
                low,
                W(3),
                W(1514),
                B(ABC),
                B(&[0]),
                W(36),
            ],
        ));
        let [high, low] = ticks(1_700_000_000_000_000_123);
        file.extend(bytes(
            big,
            &[
                W(6),
                W(48),
                W(1),
                high,
                low,
                W(4),
                W(4),
                B(b"abcd"),
                H(2),
                H(4),
                W(1),
                H(0),
                H(0),
                W(48),
            ],
        ));
        let [high, low] = ticks(1536);
        file.extend(bytes(
            big,
            &[W(6), W(32), W(2), high, low, W(0), W(9), W(32)],
        ));
        // An obsolete packet block of interface 1 that counts 7 drops.
        let [high, low] = ticks(6_000_000_001);
        file.extend(bytes(
            big,
            &[
                W(2),
                W(36),
                H(1),
                H(7),
                high,
                low,
                W(3),
                W(3),
                B(ABC),
                B(&[0]),
                W(36),
            ],
        ));
        // A simple packet of the first interface.
        file.extend(bytes(big, &[W(3), W(20), W(3), B(ABC), B(&[0]), W(20)]));
        // Name resolution, damaged statistics, custom, unknown: all skipped.
        for kind in [4, 5, 0x0bad, 0x4000_0bad, 0x8000_0000, 10] {
            file.extend(bytes(big, &[W(kind), W(16), W(6), W(16)]));
        }
        file.extend(bytes(
            big,
            &[W(6), W(32), W(0), W(0), W(1), W(0), W(0), W(32)],
        ));

        let (seen, layout, fault) = read(&file);
        assert_eq!(fault, None);
        assert_eq!(
            seen,
            [
                (Some(1_700_000_000_000_123_000), 0, 1514, ABC.to_vec()),
                (Some(1_699_999_995_000_000_123), 1, 4, b"abcd".to_vec()),
                (Some(1_500_000_000), 2, 9, Vec::new()),
                (Some(1_000_000_001), 1, 3, ABC.to_vec()),
                (None, 0, 3, ABC.to_vec()),
                (Some(1000), 0, 0, Vec::new()),
            ]
        );
        let layout = layout.unwrap();
        assert_eq!(
            (layout.format, layout.big_endian, layout.sections),
            (Format::Pcapng, big, 1)
        );
        let notes = [
            ("comment", "hello"),
            ("hardware", "cpu"),
            ("os", "os"),
            ("application", "tool"),
        ];
        assert_eq!(
            layout.notes,
            notes.map(|(name, text)| (name, text.to_owned()))
        );
        let second = Interface {
            offset_s: -5,
            name: Some("eth7".to_owned()),
            description: Some("uplink".to_owned()),
            comments: vec!["hi".to_owned()],
            ..Interface::plain(LinkType(276), 0, Resolution(9))
        };
        let first = Interface::plain(LinkType(1), 0x0001_0203, Resolution(6));
        assert_eq!(
            layout.interfaces,
            [
                first,
                second,
                Interface::plain(LinkType(101), 64, Resolution(0x8a))
            ]
        );
    }
}

/// Blocks in the layout of the draft's section 4.6, between packets, for one cursor and for two.
#[test]
fn what_a_file_says_of_its_capture_is_found() {
    for big in [false, true] {
        let mut file = section(big);
        for _ in 0..2 {
            file.extend(bytes(big, &[W(1), W(20), H(1), H(0), W(0), W(20)]));
        }
        let packet = bytes(big, &[W(6), W(32), W(0), W(0), W(1), W(0), W(0), W(32)]);
        file.extend(&packet);
        let first = file.len();
        // Interface 1: a comment, 5 received, 2 and 1 << 32 dropped, an option of a wrong length, the end mark, an option
        // behind it.
        let options = [
            H(1),
            H(2),
            B(b"hi\0\0"),
            H(4),
            H(8),
            D(5),
            H(5),
            H(8),
            D(2),
            H(7),
            H(8),
            D(1 << 32),
        ];
        let rest = [H(7), H(4), W(9), W(0), H(7), H(8), D(9)];
        let fields = [W(5), W(92), W(1), W(7), W(9)];
        file.extend(bytes(
            big,
            &[&fields[..], &options, &rest, &[W(92)]].concat(),
        ));
        file.extend(packet.repeat(40));
        let second = file.len();
        file.extend(bytes(big, &[W(5), W(24), W(0), W(0), W(0), W(24)]));
        let third = file.len();
        // Statistics of an undescribed interface, and statistics without room for the time.
        file.extend(bytes(
            big,
            &[
                W(5),
                W(24),
                W(2),
                W(0),
                W(0),
                W(24),
                W(5),
                W(16),
                W(0),
                W(16),
            ],
        ));
        file.extend(&packet);

        let (mut layout, mut pos) = Layout::read(&file, true).unwrap();
        while layout.is_layout_block(&file, pos) {
            pos = layout.apply(&file, pos, true).unwrap();
        }
        let told = |counts| {
            Some(InterfaceStats {
                section: 1,
                id: 0,
                interface: 0,
                counts,
            })
        };
        // Both interfaces have equal descriptions, so they share one place in the table.
        let counts = layout
            .interface_stats(&file, first)
            .expect("statistics")
            .counts;
        assert_eq!(
            (counts.time_ns, counts.received, counts.dropped()),
            (((7 << 32) + 9) * 1000, Some(5), (1 << 32) + 2)
        );
        assert_eq!(
            layout.interface_stats(&file, second),
            told(Statistics::default())
        );
        assert_eq!(
            (
                layout.interface_stats(&file, third),
                layout.interface_stats(&file, third + 24)
            ),
            (None, None)
        );
        assert_eq!(
            (
                layout.interface_stats(&file, pos),
                layout.interface_stats(&file, file.len())
            ),
            (None, None)
        );
        for cuts in [vec![pos, file.len()], vec![pos, second, file.len()]] {
            let mut cursors: Vec<Cursor> = cuts
                .windows(2)
                .map(|cut| Cursor::new(cut[0], cut[1]))
                .collect();
            let mut offsets = Offsets::default();
            walk(&layout, &file, true, &mut cursors, &mut offsets);
            offsets.1.sort_unstable();
            assert_eq!(
                (offsets.0.len(), offsets.1),
                (42, vec![first, second, third, third + 24])
            );
        }
    }
}

#[test]
fn a_simple_packet_is_cut_by_the_snap_length() {
    for (snaplen, wire, stored) in [(0, 5, 5), (4, 5, 4), (4, 3, 3), (65_535, 5, 5)] {
        let mut file = section(false);
        file.extend(bytes(false, &[W(1), W(20), H(1), H(0), W(snaplen), W(20)]));
        let padded = [9; 8];
        file.extend(bytes(false, &[W(3), W(24), W(wire), B(&padded), W(24)]));
        let (seen, _, fault) = read(&file);
        assert_eq!(
            (seen, fault),
            (vec![(None, 0, wire, vec![9; stored])], None),
            "snap length {snaplen}, {wire}"
        );
    }
}

#[test]
fn a_section_has_its_own_order_and_interfaces() {
    let mut file = section(false);
    file.extend(bytes(false, &[W(1), W(20), H(1), H(0), W(0), W(20)]));
    file.extend(bytes(
        false,
        &[W(6), W(32), W(0), W(0), W(1), W(0), W(60), W(32)],
    ));
    file.extend(section(true));
    // A raw interface first, then an interface equal to the first of the previous section.
    file.extend(bytes(true, &[W(1), W(20), H(101), H(0), W(0), W(20)]));
    file.extend(bytes(true, &[W(1), W(20), H(1), H(0), W(0), W(20)]));
    file.extend(bytes(
        true,
        &[W(6), W(32), W(0), W(0), W(2), W(0), W(61), W(32)],
    ));
    file.extend(bytes(
        true,
        &[W(6), W(32), W(1), W(0), W(3), W(0), W(62), W(32)],
    ));
    let (seen, layout, fault) = read(&file);
    let lengths: Vec<_> = seen
        .iter()
        .map(|(time, interface, wire, _)| (time.unwrap(), *interface, *wire))
        .collect();
    assert_eq!(
        (lengths, fault),
        (vec![(1000, 0, 60), (2000, 1, 61), (3000, 0, 62)], None)
    );
    assert_eq!(layout.unwrap().sections, 2);

    // The new section has no interface 2, and the interfaces of the old section are gone.
    file.extend(bytes(
        true,
        &[W(6), W(32), W(2), W(0), W(3), W(0), W(62), W(32)],
    ));
    assert_eq!(
        read(&file).2,
        Some(Fault::UnknownInterface { id: 2, count: 2 })
    );
}

#[test]
fn pcapng_faults_say_what_is_wrong() {
    let with = |block: Vec<u8>| {
        let mut file = section(false);
        file.extend(bytes(false, &[W(1), W(20), H(1), H(0), W(0), W(20)]));
        file.extend(block);
        read(&file).2.expect("a fault")
    };
    let word = |parts: &[u32]| {
        parts
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let lengths = |kind, claims, why| Fault::BlockLength { kind, claims, why };
    assert_eq!(
        with(word(&[6, 8, 8])),
        lengths(6, 8, "less than an empty block has")
    );
    assert_eq!(
        with(word(&[5, 30, 0, 0, 0, 0, 0, 0])),
        lengths(5, 30, "not a multiple of 4")
    );
    assert_eq!(
        with(word(&[6, 12, 12])),
        lengths(6, 12, "too short for its fields")
    );
    assert_eq!(
        with(word(&[3, 12, 12])),
        lengths(3, 12, "too short for its fields")
    );
    assert_eq!(
        with(word(&[1, 16, 0, 16])),
        lengths(1, 16, "too short for its fields")
    );
    assert_eq!(
        with(word(&[6, 0x8200_0000, 0])),
        lengths(6, 0x8200_0000, "more than any packet needs")
    );
    assert_eq!(
        with(word(&[5, 0x8200_0000, 0])),
        lengths(5, 0x8200_0000, "more than any packet needs")
    );
    assert_eq!(
        with(word(&[5, 16, 0, 20])),
        Fault::Trailer {
            kind: 5,
            head: 16,
            tail: 20
        }
    );
    let overrun = word(&[6, 36, 0, 0, 0, 5, 5, 0, 36]);
    assert_eq!(with(overrun), Fault::PacketOverrun { claims: 5, room: 4 });
    assert_eq!(
        with(word(&[3, 16, 1, 16])),
        Fault::PacketOverrun { claims: 1, room: 0 }
    );
    assert_eq!(
        with(word(&[6, 32, 1, 0, 0, 0, 0, 32])),
        Fault::UnknownInterface { id: 1, count: 1 }
    );
    assert_eq!(
        with(word(&[6, 40, 0])),
        Fault::ShortData {
            what: "a packet block",
            claims: 40,
            have: 12
        }
    );
    assert_eq!(
        with(word(&[5, 40, 0])),
        Fault::ShortData {
            what: "a block",
            claims: 40,
            have: 12
        }
    );
    assert!(matches!(
        with(word(&[6, 40])),
        Fault::ShortHeader {
            have: 8,
            need: 12,
            ..
        }
    ));
    let header = |mark, version| word(&[0x0a0d_0d0a, 28, mark, version, !0, !0, 28]);
    assert_eq!(with(header(0x1a2b_3c4e, 1)), Fault::ByteOrder(0x1a2b_3c4e));
    assert!(matches!(
        with(header(0x1a2b_3c4d, 2)),
        Fault::Version {
            format: "pcapng",
            major: 2,
            minor: 0,
            ..
        }
    ));
    assert_eq!(
        with(word(&[0x0a0d_0d0a, 12, 0x1a2b_3c4d])),
        Fault::Trailer {
            kind: 0x0a0d_0d0a,
            head: 12,
            tail: 0x1a2b_3c4d
        }
    );
}

#[test]
fn options_end_where_they_do_not_fit() {
    let interface = |options: &[Part<'_>]| {
        let options = bytes(false, options);
        let mut file = section(false);
        let total = W(20 + options.len() as u32);
        file.extend(bytes(
            false,
            &[W(1), total, H(1), H(0), W(0), B(&options), total],
        ));
        let (_, layout, fault) = read(&file);
        assert_eq!(fault, None);
        layout.unwrap().interfaces[0].clone()
    };
    assert_eq!(interface(&[]).name, None);
    assert_eq!(
        interface(&[H(2), H(4), B(b"eth0")]).name.as_deref(),
        Some("eth0"),
        "without an end mark"
    );
    assert_eq!(
        interface(&[H(0), H(0), H(2), H(4), B(b"eth0")]).name,
        None,
        "behind the end mark"
    );
    assert_eq!(
        interface(&[H(2), H(400), B(b"eth0")]).name,
        None,
        "longer than the block"
    );
    assert_eq!(
        interface(&[H(9), H(0)]).resolution,
        Resolution(6),
        "without a value"
    );
    assert_eq!(interface(&[H(14), H(4), W(7)]).offset_s, 0, "too short");
    assert_eq!(
        interface(&[H(2), H(4), B(b"e\xffh\0")]).name.as_deref(),
        Some(r"e\xffh"),
        "not UTF-8"
    );
}

/// Bytes of frames, as they are announced, and as they are passed.
#[derive(Debug, PartialEq)]
enum Event {
    Soon(Vec<Vec<u8>>),
    Frames(Vec<Vec<u8>>),
}

#[derive(Default)]
struct Order(Vec<Event>);

fn data_of(frames: &[Frame<'_>]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.data.to_vec()).collect()
}

impl Visit for Order {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.0.push(Event::Frames(data_of(frames)));
        true
    }

    fn soon(&mut self, frames: &[Frame<'_>]) {
        self.0.push(Event::Soon(data_of(frames)));
    }
}

#[test]
fn several_cursors_announce_the_frames_behind_the_next_ones() {
    let mut file = bytes(
        false,
        &[W(0xa1b2_c3d4), H(2), H(4), W(0), W(0), W(65535), W(1)],
    );
    let mut starts = Vec::new();
    for number in 0..300u32 {
        starts.push(file.len());
        file.extend(bytes(false, &[W(number), W(0), W(4), W(4), W(number)]));
    }
    let (layout, first) = Layout::read(&file, true).expect("the header is whole");
    assert_eq!(first, starts[0]);
    let ends = [starts[90], starts[130], file.len()];
    let begins = [first, ends[0], ends[1]];
    let mut cursors: Vec<_> = begins
        .iter()
        .zip(ends)
        .map(|(&begin, end)| Cursor::new(begin, end))
        .collect();
    let mut order = Order::default();
    walk(&layout, &file, true, &mut cursors, &mut order);
    let mut announced = 0;
    for (at, event) in order.0.iter().enumerate() {
        if let Event::Soon(frames) = event {
            assert!(matches!(order.0[at + 1], Event::Frames(_)));
            let mut behind = order.0[at + 2..].iter();
            let next = behind.find(|event| matches!(event, Event::Frames(_)));
            assert_eq!(next, Some(&Event::Frames(frames.clone())));
            announced += 1;
        }
    }
    // The cursors take 3, 2 and 6 turns of 32 records; in the first two turns, two of them have another one behind them.
    let is_frames = |event: &&Event| matches!(event, Event::Frames(_));
    let passed = order.0.iter().filter(is_frames).count();
    assert_eq!((passed, announced), (11, 4));
}
