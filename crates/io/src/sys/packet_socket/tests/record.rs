//! Tests of records that need no network.

use super::super::record::{CAPTURED, FRAME, Finish, NEXT, WIRE, half, word};
use crate::live::Marks;

const RAW: Finish = Finish {
    cooked: false,
    snaplen: u32::MAX,
    copied: u32::MAX,
    largest: u32::MAX,
};

/// Returns a record as the kernel writes it after removing a tag.
fn record(next: u32, flags: u32, tag: u32, protocol: u16, frame: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [next, 1, 2, frame.len() as u32, frame.len() as u32, flags]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    bytes.extend(86u16.to_ne_bytes());
    bytes.extend(100u16.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(tag.to_ne_bytes());
    bytes.extend(protocol.to_ne_bytes());
    bytes.resize(86, 0);
    bytes.extend(frame);
    bytes.resize(bytes.len().max(next as usize), 0);
    bytes
}

fn finish(how: Finish, records: &mut [u8], packets: u32) -> Marks {
    let mut marks = Marks::default();
    how.records(records, packets, usize::MAX, &mut marks);
    marks
}

fn frame_of(record: &[u8]) -> &[u8] {
    let at = usize::from(half(record, FRAME));
    &record[at..at + word(record, CAPTURED) as usize]
}

#[test]
fn tags_come_back_where_they_were() {
    let frame: Vec<u8> = (0..40).collect();
    let (valid, known) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
    let mut block = [
        record(144, 1 | valid | known, 0x6123, 0x88a8, &frame),
        record(144, 1, 0x6123, 0x88a8, &frame),
        record(144, 1 | valid, 0x0005, 0, &frame),
        record(0, 1 | valid, 7, 0, &frame[..11]),
    ]
    .concat();
    finish(RAW, &mut block, 4);
    let tagged = |tag: [u8; 4]| [&frame[..12], &tag, &frame[12..]].concat();
    assert_eq!(frame_of(&block), tagged([0x88, 0xa8, 0x61, 0x23]));
    assert_eq!(word(&block, WIRE), 44);
    assert_eq!(frame_of(&block[144..]), frame);
    assert_eq!(frame_of(&block[288..]), tagged([0x81, 0, 0, 5]));
    assert_eq!(frame_of(&block[432..]), &frame[..11]);
    assert_eq!(word(&block[432..], WIRE), 11);
}

#[test]
fn a_record_that_lies_is_left_alone() {
    let frame = [9; 20];
    let valid = libc::TP_STATUS_VLAN_VALID;
    for (at, value) in [
        (FRAME, 60),
        (FRAME, 90),
        (NEXT, 4000),
        (CAPTURED, 21),
        (CAPTURED, u32::MAX >> 1),
    ] {
        let mut bytes = record(0, valid, 7, 0, &frame);
        let field = value.to_ne_bytes();
        let width = if at == FRAME { 2 } else { 4 };
        bytes[at..at + width].copy_from_slice(&field[..width]);
        let before = bytes.clone();
        finish(RAW, &mut bytes, 3);
        if at != NEXT {
            assert_eq!(bytes, before, "{at} {value}");
        }
    }
    finish(RAW, &mut [0; 67], 2);
    finish(RAW, &mut [], 1);
}

/// Compares the header of LINKTYPE_LINUX_SLL2 with the layout of tcpdump.org.
#[test]
fn cooked_packets_get_their_header() {
    let tag = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
    let ethernet = |kind: [u8; 2]| [&[9; 12], &kind[..], b"payload"].concat();
    // Hardware type, tag beside the frame, frame, offset of the network header, and the expected protocol and payload.
    type Case = (u16, u32, Vec<u8>, u16, &'static [u8], &'static [u8]);
    let cases: [Case; 6] = [
        (1, 0, ethernet([0x86, 0xdd]), 40, &[0x86, 0xdd], b"payload"),
        (
            1,
            tag,
            ethernet([0x86, 0xdd]),
            14,
            &[0x88, 0xa8],
            b"\x61\x23\x86\xddpayload",
        ),
        (
            772,
            tag,
            ethernet([0x81, 0x00]),
            18,
            &[0x88, 0xa8],
            b"\x61\x23\x81\x00payload",
        ),
        (1, 0, ethernet([0x00, 0x07]), 14, &[0x12, 0x34], b"payload"),
        (65534, 0, b"payload".to_vec(), 0, &[0x12, 0x34], b"payload"),
        (
            512,
            tag,
            b"..payload".to_vec(),
            2,
            &[0x88, 0xa8],
            b"\x61\x23\x12\x34payload",
        ),
    ];
    for (hardware, flags, frame, network, protocol, behind) in cases {
        let mut block = record(0, 1 | flags, 0x6123, 0x88a8, &frame);
        block[26..28].copy_from_slice(&(100 + network).to_ne_bytes());
        block[50..52].copy_from_slice(&[0x12, 0x34]);
        block[52..56].copy_from_slice(&0x0102_0304u32.to_ne_bytes());
        block[56..58].copy_from_slice(&hardware.to_ne_bytes());
        block[58..68].copy_from_slice(&[4, 6, 11, 12, 13, 14, 15, 16, 99, 99]);
        // The record gets more room in front of the frame, as with `RESERVE`.
        block[FRAME..FRAME + 2].copy_from_slice(&100u16.to_ne_bytes());
        block.splice(86..86, [0; 14]);
        finish(
            Finish {
                cooked: true,
                ..RAW
            },
            &mut block,
            1,
        );
        let [a, b] = hardware.to_be_bytes();
        let header = [
            protocol,
            &[0, 0, 1, 2, 3, 4, a, b, 4, 6, 11, 12, 13, 14, 15, 16, 0, 0],
            behind,
        ]
        .concat();
        assert_eq!(
            (frame_of(&block), word(&block, WIRE) as usize),
            (&header[..], header.len()),
            "{hardware}"
        );
    }
}

#[test]
fn what_is_cut_and_what_is_marked() {
    let gso = 1 << 8;
    let frame: Vec<u8> = (0..40).collect();
    let flags = [
        0,
        libc::TP_STATUS_CSUMNOTREADY,
        gso,
        libc::TP_STATUS_VLAN_VALID,
    ];
    let mut block = flags.map(|flags| record(144, flags, 3, 0, &frame)).concat();
    let marks = finish(
        Finish {
            snaplen: 42,
            largest: 40,
            ..RAW
        },
        &mut block,
        4,
    );
    assert_eq!(
        marks,
        Marks {
            downs: 0,
            unfinished_checksums: 1,
            large: 1,
            cut: 0
        }
    );
    let lengths = |at: usize| {
        (
            word(&block[at * 144..], CAPTURED),
            word(&block[at * 144..], WIRE),
        )
    };
    assert_eq!(
        [0, 1, 2, 3].map(lengths),
        [(40, 40), (40, 40), (40, 40), (42, 44)]
    );
    let mut block = record(0, libc::TP_STATUS_CSUMNOTREADY | gso, 3, 0, &frame);
    let marks = finish(
        Finish {
            snaplen: 1,
            largest: 39,
            ..RAW
        },
        &mut block,
        1,
    );
    assert_eq!(
        marks,
        Marks {
            downs: 0,
            unfinished_checksums: 1,
            large: 1,
            cut: 0
        }
    );
    assert_eq!((frame_of(&block), word(&block, WIRE)), (&frame[..1], 40));
}

#[test]
fn what_the_ring_cuts_is_marked_and_what_the_snap_length_cuts_is_not() {
    let frame = [9; 40];
    let kept = |wire: u32, copied: u32| {
        let mut block = record(0, 1, 0, 0, &frame);
        block[WIRE..WIRE + 4].copy_from_slice(&wire.to_ne_bytes());
        finish(Finish { copied, ..RAW }, &mut block, 1).cut
    };
    assert_eq!(
        [
            kept(40, 262_144),
            kept(1500, 40),
            kept(1500, 41),
            kept(41, 262_144)
        ],
        [0, 0, 1, 1]
    );
}

#[test]
fn records_are_finished_portion_by_portion() {
    let frame = [9; 40];
    let block: Vec<u8> = [144, 144, 144, 0]
        .iter()
        .flat_map(|&next| record(next, 1, 0, 0, &frame))
        .collect();
    let portion = |from: usize, packets: u32, enough: usize| {
        RAW.records(
            &mut block[from..].to_vec(),
            packets,
            enough,
            &mut Marks::default(),
        )
    };
    assert_eq!(portion(0, 4, 1), (144, 1), "at least one");
    assert_eq!(portion(0, 4, 145), (288, 2));
    assert_eq!(portion(288, 2, 145), (block.len() - 288, 2));
    assert_eq!(portion(0, 3, usize::MAX), (432, 3));
    // If there are fewer records than counted, the portion has all bytes and the records present.
    assert_eq!(portion(0, 9, usize::MAX), (block.len(), 4));
}
