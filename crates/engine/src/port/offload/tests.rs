//! Oracle: the checksum over a pseudo header that is written out, word by word, and the payload put together again.

use super::*;
use weir_testkit::Random;

/// RFC 1071 over the bytes of a pseudo header and the packet behind it; 0 if the checksum in it is right.
fn check(frame: &[u8], ip: usize, is_v6: bool) -> u16 {
    let (header, protocol) = if is_v6 {
        (ip + 40, frame[ip + 6])
    } else {
        (ip + 20, frame[ip + 9])
    };
    let addresses = if is_v6 {
        &frame[ip + 8..ip + 40]
    } else {
        &frame[ip + 12..ip + 20]
    };
    let length = ((frame.len() - header) as u32).to_be_bytes();
    let mut bytes = [addresses, &length, &[0, 0, 0, protocol], &frame[header..]].concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let mut sum = bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(word[1]))
        .sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame whose checksum field is the sum of its pseudo header, as a sender leaves it.
fn unfinished(
    random: &mut Random,
    is_v6: bool,
    protocol: u8,
    tags: usize,
    payload: usize,
) -> Vec<u8> {
    let mut frame = random.bytes(12);
    (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 7]));
    let ip = frame.len() + 2;
    let transport = if protocol == TCP { 20 } else { 8 };
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(((transport + payload) as u16).to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend(random.bytes(32));
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(((20 + transport + payload) as u16).to_be_bytes());
        frame.extend([0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(random.bytes(8));
    }
    let header = frame.len();
    frame.extend(random.bytes(transport + payload));
    if protocol == TCP {
        frame[header + 12] = 0x50;
    }
    let at = header + if protocol == TCP { 16 } else { 6 };
    frame[at..at + 2].fill(0);
    let mut start = vec![0; frame.len()];
    start[..header].copy_from_slice(&frame[..header]);
    let pseudo = !check(&start, ip, is_v6);
    frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    frame
}

fn finished(frame: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let (mut frames, mut scratch) = (Vec::new(), Vec::new());
    let left = left(frame, mtu)?;
    finish(frame, left, mtu, &mut scratch, |frame| {
        frames.push(frame.to_vec());
        Ok::<_, ()>(())
    })
    .unwrap();
    Some(frames)
}

#[test]
fn checksums_are_filled_in() {
    let mut random = Random(3);
    for turn in 0..2000 {
        let (is_v6, protocol) = (turn % 2 == 0, if turn % 3 == 0 { UDP } else { TCP });
        let (tags, payload) = (turn % 3, random.below(1200));
        let frame = unfinished(&mut random, is_v6, protocol, tags, payload);
        let ip = 14 + 4 * tags;
        if check(&frame, ip, is_v6) == 0 {
            continue;
        }
        let frames =
            finished(&frame, 1500).unwrap_or_else(|| panic!("turn {turn}: nothing is left to do"));
        assert_eq!(frames.len(), 1);
        assert_eq!(check(&frames[0], ip, is_v6), 0, "turn {turn}");
        // All but the checksum is as before.
        let different = frame.iter().zip(&frames[0]).filter(|(a, b)| a != b).count();
        assert!(
            different <= 2 && frame.len() == frames[0].len(),
            "turn {turn}: {different} bytes differ"
        );
        assert!(
            finished(&frames[0], 1500).is_none_or(|again| again[0] == frames[0]),
            "a finished frame changes"
        );
    }
}

#[test]
fn long_segments_are_cut_and_hold_the_same_bytes() {
    let mut random = Random(4);
    for turn in 0..300 {
        let is_v6 = turn % 2 == 0;
        let (tags, payload, mtu) = (turn % 3, 1 + random.below(60_000), 576 + random.below(1500));
        let mut frame = unfinished(&mut random, is_v6, TCP, tags, payload);
        let ip = 14 + 4 * tags;
        let header = ip + if is_v6 { 40 } else { 20 };
        // Near the end of the sequence numbers.
        frame[header + 4..header + 8].copy_from_slice(&(u32::MAX - 5000).to_be_bytes());
        frame[header + 13] = 0xff;
        let Some(frames) = finished(&frame, mtu) else {
            panic!("turn {turn}: nothing is left to do")
        };
        let mut bytes = Vec::new();
        for (number, segment) in frames.iter().enumerate() {
            assert!(
                segment.len() - ip <= mtu,
                "turn {turn}: a segment is longer than the MTU"
            );
            assert_eq!(check(segment, ip, is_v6), 0, "turn {turn}");
            let sequence = u32::from_be_bytes(segment[header + 4..header + 8].try_into().unwrap());
            assert_eq!(sequence, (u32::MAX - 5000).wrapping_add(bytes.len() as u32));
            let (first, last) = (number == 0, number + 1 == frames.len());
            let flags = 0x76 | if last { 0x09 } else { 0 } | if first { 0x80 } else { 0 };
            assert_eq!(segment[header + 13], flags, "turn {turn}, segment {number}");
            if !is_v6 {
                assert_eq!(
                    &segment[ip + 4..ip + 6],
                    0xfffe_u16.wrapping_add(number as u16).to_be_bytes()
                );
                let words = segment[ip..header]
                    .chunks(2)
                    .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
                // A frame that is short enough keeps the header that it has.
                let is_whole = frames.len() == 1;
                assert!(
                    is_whole || words.sum::<u32>() % 0xffff == 0,
                    "turn {turn}: the checksum of the IP header"
                );
            }
            bytes.extend_from_slice(&segment[header + 20..]);
        }
        assert!(
            bytes == frame[header + 20..],
            "turn {turn}: the bytes differ"
        );
        assert_eq!(frames.len(), payload.div_ceil(mtu - (header + 20 - ip)));
    }
}

#[test]
fn no_frame_makes_it_panic() {
    let mut random = Random(5);
    for turn in 0..20_000 {
        let (protocol, payload) = (if turn % 4 == 0 { UDP } else { TCP }, random.below(3000));
        let mut frame = unfinished(&mut random, turn % 2 == 0, protocol, turn % 3, payload);
        for _ in 0..random.below(4) {
            let at = random.below(frame.len().min(80));
            frame[at] = random.next() as u8;
        }
        frame.truncate(random.below(frame.len() + 200).min(frame.len()));
        let mtu = random.below(1600);
        let _ = finished(&frame, mtu);
    }
}
