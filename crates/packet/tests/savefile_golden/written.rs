//! Bytes that are written.

use super::*;

#[test]
fn pcap_bytes_we_write() {
    for (resolution, magic, fraction) in [
        (Resolution::MICROSECOND, 0xa1b2_c3d4, 123_456),
        (Resolution::NANOSECOND, 0xa1b2_3c4d, 123_456_789),
    ] {
        let mut encoder = Encoder::new(Format::Pcap, 0);
        let id = encoder
            .interface(&Interface::plain(LinkType(113), 4096, resolution))
            .unwrap();
        let mut out = Vec::new();
        encoder.packet(
            &mut out,
            id,
            Some(1_700_000_000_123_456_789),
            &Frame {
                data: ABC,
                wire_len: 60,
                interface: 0,
            },
        );
        encoder.packet(
            &mut out,
            id,
            None,
            &Frame {
                data: &[],
                wire_len: 0,
                interface: 0,
            },
        );
        encoder.packet(
            &mut out,
            id,
            Some(-1),
            &Frame {
                data: &[1],
                wire_len: 1,
                interface: 0,
            },
        );
        encoder.packet(
            &mut out,
            id,
            Some(i64::MAX),
            &Frame {
                data: &[1],
                wire_len: 1,
                interface: 0,
            },
        );
        let (before, last) = if magic == 0xa1b2_c3d4 {
            (999_999, 854_775)
        } else {
            (999_999_999, 854_775_807)
        };
        let expected = bytes(
            false,
            &[
                W(magic),
                H(2),
                H(4),
                W(0),
                W(0),
                W(4096),
                W(113),
                W(1_700_000_000),
                W(fraction),
                W(3),
                W(60),
                B(ABC),
                W(0),
                W(0),
                W(0),
                W(0),
                // Times that a pcap cannot hold become the nearest second.
                W(0),
                W(before),
                W(1),
                W(1),
                B(&[1]),
                W(u32::MAX),
                W(last),
                W(1),
                W(1),
                B(&[1]),
            ],
        );
        assert_eq!(out, expected);
    }
}

#[test]
fn pcapng_bytes_we_write() {
    let mut encoder = Encoder::new(Format::Pcapng, 0);
    let named = Interface {
        name: Some("eth7".to_owned()),
        description: Some("uplink".to_owned()),
        comments: vec!["hi".to_owned()],
        offset_s: 5,
        ..Interface::plain(LinkType(1), 262_144, Resolution::NANOSECOND)
    };
    let first = encoder.interface(&named).unwrap();
    let mut out = Vec::new();
    let time = 1_700_000_000_123_456_789;
    encoder.packet(
        &mut out,
        first,
        Some(time),
        &Frame {
            data: ABC,
            wire_len: 60,
            interface: 0,
        },
    );
    // Announced after the first packets: the block comes before the interface's first packet. Times finer than 1 ns are
    // written in ns.
    let second = encoder
        .interface(&Interface::plain(LinkType(101), 0, Resolution(12)))
        .unwrap();
    assert_eq!(
        (first, second, encoder.interface(&named).unwrap()),
        (0, 1, 0)
    );
    encoder.packet(
        &mut out,
        second,
        Some(time),
        &Frame {
            data: b"abcd",
            wire_len: 4,
            interface: 0,
        },
    );
    let ns = [W((time >> 32) as u32), W(time as u32)];
    let tool = concat!("weir ", env!("CARGO_PKG_VERSION")).as_bytes();
    let padding = [0u8; 3];
    let padding = &padding[..tool.len().next_multiple_of(4) - tool.len()];
    let total = (28 + 8 + tool.len() + padding.len()) as u32;
    let mut expected = bytes(
        false,
        &[
            W(0x0a0d_0d0a),
            W(total),
            W(0x1a2b_3c4d),
            H(1),
            H(0),
            D(u64::MAX),
            H(4),
            H(tool.len() as u16),
            B(tool),
            B(padding),
            H(0),
            H(0),
            W(total),
            W(1),
            W(60),
            H(1),
            H(0),
            W(262_144),
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
            H(0),
            H(0),
            W(60),
        ],
    );
    // Times are absolute: no offset is written.
    expected.extend(bytes(
        false,
        &[
            W(6),
            W(36),
            W(0),
            ns[0],
            ns[1],
            W(3),
            W(60),
            B(ABC),
            B(&[0]),
            W(36),
        ],
    ));
    expected.extend(bytes(
        false,
        &[
            W(1),
            W(32),
            H(101),
            H(0),
            W(0),
            H(9),
            H(1),
            B(&[9, 0, 0, 0]),
            H(0),
            H(0),
            W(32),
        ],
    ));
    expected.extend(bytes(
        false,
        &[
            W(6),
            W(36),
            W(1),
            ns[0],
            ns[1],
            W(4),
            W(4),
            B(b"abcd"),
            W(36),
        ],
    ));
    assert_eq!(out, expected);

    // A new file describes all interfaces at its start.
    encoder.restart();
    let mut again = Vec::new();
    encoder.begin(&mut again);
    let middle = total as usize + 60 + 36;
    assert_eq!(
        again,
        [
            &expected[..total as usize + 60],
            &expected[middle..middle + 32]
        ]
        .concat()
    );
}

#[test]
fn every_unit_we_write_is_read_as_the_same_time() {
    for unit in (0..=12).chain([0x80, 0x8a, 0x9e, 0xff]) {
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        let id = encoder
            .interface(&Interface::plain(LinkType(1), 0, Resolution(unit)))
            .unwrap();
        let mut out = Vec::new();
        let time = 1_700_000_000_123_456_789i64;
        encoder.packet(
            &mut out,
            id,
            Some(time),
            &Frame {
                data: ABC,
                wire_len: 3,
                interface: 0,
            },
        );
        let kept = if unit <= 9 {
            time / 10i64.pow(9 - u32::from(unit)) * 10i64.pow(9 - u32::from(unit))
        } else {
            time
        };
        assert_eq!(
            read(&out).0,
            [(Some(kept), 0, 3, ABC.to_vec())],
            "unit {unit:#x}"
        );
    }
}

#[test]
fn a_snap_length_cuts_packets_and_is_written() {
    for format in [Format::Pcap, Format::Pcapng] {
        for (source, asked, written) in [
            (0, 0, 0),
            (0, 2, 2),
            (100, 2, 2),
            (2, 100, 2),
            (100, 0, 100),
        ] {
            let mut encoder = Encoder::new(format, asked);
            let id = encoder
                .interface(&Interface::plain(
                    LinkType(1),
                    source,
                    Resolution::MICROSECOND,
                ))
                .unwrap();
            let mut out = Vec::new();
            encoder.packet(
                &mut out,
                id,
                Some(0),
                &Frame {
                    data: b"ab",
                    wire_len: 60,
                    interface: 0,
                },
            );
            encoder.packet(
                &mut out,
                id,
                Some(0),
                &Frame {
                    data: ABC,
                    wire_len: 60,
                    interface: 0,
                },
            );
            let (seen, layout, fault) = read(&out);
            assert_eq!(fault, None);
            let lengths: Vec<_> = seen
                .iter()
                .map(|(_, _, wire, data)| (*wire, data.len()))
                .collect();
            // What is longer than the snap length of the source is written and read whole; libpcap would cut it in a pcap file.
            let kept = if asked == 2 { 2 } else { 3 };
            assert_eq!(
                encoder.longer(),
                u64::from(format == Format::Pcap && source == 2 && asked != 2)
            );
            assert_eq!(
                lengths,
                [(60, 2), (60, kept)],
                "{format:?}, {source}, {asked}"
            );
            // A pcap has no value for "no limit", so libpcap's maximum is written.
            let none = if format == Format::Pcap && written == 0 {
                262_144
            } else {
                written
            };
            assert_eq!(
                layout.unwrap().interfaces[0].snaplen,
                none,
                "{format:?}, {source}, {asked}"
            );
        }
    }
}

#[test]
fn a_pcap_takes_one_link_type() {
    let mut encoder = Encoder::new(Format::Pcap, 0);
    let ethernet = Interface::plain(LinkType(1), 0, Resolution::MICROSECOND);
    encoder.interface(&ethernet).unwrap();
    encoder
        .interface(&Interface {
            name: Some("another".to_owned()),
            ..ethernet
        })
        .unwrap();
    let raw = Interface::plain(LinkType(101), 0, Resolution::MICROSECOND);
    let refused = WriteError::LinkType {
        have: LinkType(1),
        came: LinkType(101),
    };
    assert_eq!(encoder.interface(&raw), Err(refused));
}

#[test]
fn statistics_are_a_block_of_their_own() {
    let ethernet = Interface::plain(LinkType(1), 0, Resolution::NANOSECOND);
    let counts = Statistics {
        time_ns: (7 << 32) + 9,
        received: Some(0x0102),
        dropped_by_interface: None,
        dropped_by_system: Some(3),
        delivered: Some(0xff),
        start_ns: Some((5 << 32) + 8),
        end_ns: None,
    };
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Format::Pcapng, 0);
    let id = encoder.interface(&ethernet).unwrap();
    encoder.begin(&mut out);
    let before = out.len();
    encoder.statistics(&mut out, id, &counts, &[]);
    // The draft's section 4.6: type, length, interface, time, options 2 (the high word first), 4, 7 and 8 of eight bytes, end,
    // length.
    let mut expected = Vec::new();
    for word in [
        5u32,
        76,
        0,
        7,
        9,
        8 << 16 | 2,
        5,
        8,
        8 << 16 | 4,
        0x0102,
        0,
        8 << 16 | 7,
        3,
        0,
        8 << 16 | 8,
        0xff,
        0,
    ] {
        expected.extend(word.to_le_bytes());
    }
    [0u32, 76]
        .iter()
        .for_each(|word| expected.extend(word.to_le_bytes()));
    assert_eq!(&out[before..], expected);
    let frame = Frame {
        data: &[1, 2, 3],
        wire_len: 3,
        interface: 0,
    };
    encoder.packet(&mut out, id, Some(5), &frame);
    let (seen, layout, fault) = read(&out);
    assert_eq!((seen.len(), fault), (1, None));
    assert_eq!(
        layout.unwrap().interface_stats(&out, before),
        Some(InterfaceStats {
            section: 1,
            id: 0,
            interface: 0,
            counts
        })
    );

    let mut out = Vec::new();
    let mut encoder = Encoder::new(Format::Pcap, 0);
    encoder.interface(&ethernet).unwrap();
    encoder.statistics(&mut out, 0, &counts, &[]);
    assert!(out.is_empty());
}

#[test]
fn times_that_a_file_cannot_hold_are_counted() {
    const LAST: i64 = u32::MAX as i64 * 1_000_000_000;
    let cases = [
        (
            Format::Pcap,
            vec![0, 5, LAST, LAST + 999_999_999],
            vec![-1, LAST + 1_000_000_000, i64::MAX, i64::MIN],
        ),
        (
            Format::Pcapng,
            vec![0, 5, LAST + 1_000_000_000, i64::MAX - 1],
            vec![-1, i64::MAX, i64::MIN],
        ),
    ];
    for (format, good, beyond) in cases {
        let mut encoder = Encoder::new(format, 0);
        let id = encoder
            .interface(&Interface::plain(LinkType(1), 0, Resolution::NANOSECOND))
            .unwrap();
        let mut out = Vec::new();
        let frame = Frame {
            data: &[1, 2, 3, 4],
            wire_len: 4,
            interface: 0,
        };
        good.iter()
            .for_each(|&time| encoder.packet(&mut out, id, Some(time), &frame));
        encoder.packet(&mut out, id, None, &frame);
        assert_eq!(encoder.clamped(), 0, "{format:?}");
        beyond
            .iter()
            .for_each(|&time| encoder.packet(&mut out, id, Some(time), &frame));
        assert_eq!(encoder.clamped(), beyond.len() as u64, "{format:?}");
    }
}
