//! Body, with its oracle, that the fuzz target and the tests share.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use std::collections::BTreeSet;
use weir_packet::dns::{Entries, HEADER, Header, Malformed, NAME_MAX, Name, POINTERS_MAX};

/// Naive twin of [`Name::read`]: labels as a list, and a set of the places that were read instead of an order of pointers, of which it
/// follows as many.
fn naive(message: &[u8], at: usize) -> Option<(Vec<Vec<u8>>, usize)> {
    let (mut labels, mut seen, mut pointers) = (Vec::new(), BTreeSet::new(), 0);
    let (mut place, mut end) = (at, None);
    loop {
        if !seen.insert(place) {
            return None;
        }
        let length = *message.get(place)? as usize;
        if length >= 0xc0 {
            let target = (length & 0x3f) << 8 | *message.get(place + 1)? as usize;
            end.get_or_insert(place + 2);
            pointers += 1;
            if pointers > POINTERS_MAX {
                return None;
            }
            place = target;
        } else if length >= 0x40 {
            return None;
        } else if length == 0 {
            return Some((labels, end.unwrap_or(place + 1)));
        } else {
            labels.push(message.get(place + 1..=place + length)?.to_vec());
            place += 1 + length;
        }
    }
}

/// Undoes the escapes of the text of a name.
fn unescaped(text: &str) -> Vec<Vec<u8>> {
    let (mut labels, mut label) = (Vec::new(), Vec::new());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'.' => labels.push(std::mem::take(&mut label)),
            b'\\' => match bytes.next().expect("something is escaped") {
                digit @ b'0'..=b'9' => {
                    let digits = [
                        digit,
                        bytes.next().expect("3 digits"),
                        bytes.next().expect("3 digits"),
                    ];
                    let number = std::str::from_utf8(&digits).expect("digits").parse();
                    label.push(number.expect("a byte"));
                }
                other => label.push(other),
            },
            other => label.push(other),
        }
    }
    labels.push(label);
    labels
}

/// Compares the name at `at` with the naive twin's. Returns whether there is one.
pub fn name(message: &[u8], at: usize) -> bool {
    match (Name::read(message, at), naive(message, at)) {
        (Ok((name, end)), Some((labels, naive_end))) => {
            assert_eq!(end, naive_end, "{message:02x?} {at}");
            assert!(name.labels().eq(labels.iter()), "{name:?} {labels:02x?}");
            let wire = labels.iter().map(|label| 1 + label.len()).sum::<usize>() + 1;
            assert_eq!(name.as_wire().len(), wire);
            let text = name.to_string();
            let has_dot = labels.iter().any(|label| label.contains(&b'.'));
            if !labels.is_empty() && !has_dot {
                let joined = labels.join(&b'.');
                assert_eq!(Name::of_text(&joined), Ok(name), "{text:?}");
            }
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
            if !labels.is_empty() {
                assert_eq!(unescaped(&text), labels, "{text}");
            }
            let mut small = name;
            small.make_lowercase();
            assert_eq!(small.to_string(), text.to_ascii_lowercase());
            true
        }
        (Err(why), Some((labels, _))) => {
            // The twin follows pointers that lead forwards, and names of any length.
            let wire = labels.iter().map(|label| 1 + label.len()).sum::<usize>() + 1;
            assert!(
                why == Malformed::Pointer || why == Malformed::TooLong && wire > NAME_MAX,
                "{why:?} {message:02x?} {at}"
            );
            false
        }
        (Ok((name, _)), None) => panic!("{name} {message:02x?} {at}"),
        (Err(_), None) => false,
    }
}

/// Reads a message as one of DNS. Returns the number of its entries that could be read.
pub fn dns(message: &[u8]) -> usize {
    for at in 0..message.len().min(300) {
        name(message, at);
    }
    let Some(header) = Header::read(message) else {
        assert!(message.len() < HEADER);
        return 0;
    };
    let claimed: usize = header.counts.iter().map(|count| usize::from(*count)).sum();
    let (mut at, mut read) = (HEADER, 0);
    let mut entries = Entries::new(message, header);
    while let Some(question) = entries.question() {
        let Ok(question) = question else {
            assert!(entries.record().is_none());
            return read;
        };
        let (labels, end) = naive(message, at).expect("the twin is no stricter");
        assert!(question.name.labels().eq(labels.iter()));
        let field = |at: usize| u16::from_be_bytes([message[end + at], message[end + at + 1]]);
        assert_eq!((question.kind, question.class), (field(0), field(2)));
        (at, read) = (end + 4, read + 1);
    }
    let mut section = 1;
    while let Some(Ok(record)) = entries.record() {
        let (_, end) = naive(message, at).expect("the twin is no stricter");
        let field = |at: usize| u16::from_be_bytes([message[end + at], message[end + at + 1]]);
        assert_eq!((record.kind, record.class), (field(0), field(2)));
        assert_eq!(record.ttl, u32::from(field(4)) << 16 | u32::from(field(6)));
        assert_eq!(record.data.len(), usize::from(field(8)));
        assert_eq!(record.data_at, end + 10);
        assert!(record.section >= section);
        section = record.section;
        (at, read) = (end + 10 + record.data.len(), read + 1);
    }
    assert!(read <= claimed && at <= message.len());
    read
}
