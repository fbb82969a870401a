//! Body, with its oracle, that the fuzz target and the tests share.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use weir_packet::tls::Hello;

/// Naive twin of [`Hello::read`]: a walk over offsets, each compared with the ends of all parts around it.
fn naive(payload: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, bytes: usize| {
        (at..at + bytes).try_fold(0, |sum, at| {
            payload.get(at).map(|byte| sum << 8 | usize::from(*byte))
        })
    };
    if (number(0, 1)?, number(1, 1)?, number(5, 1)?) != (22, 3, 1) {
        return None;
    }
    let end_of_record = 5 + number(3, 2)?;
    let end_of_hello = end_of_record.min(9 + number(6, 3)?);
    let mut at = 9 + 2 + 32;
    for bytes in [1, 2, 1] {
        at += bytes + number(at, bytes)?;
    }
    let end_of_all = at + 2 + number(at, 2)?;
    if end_of_all > end_of_hello {
        return None;
    }
    at += 2;
    while at < end_of_all {
        let (kind, end) = (number(at, 2)?, at + 4 + number(at + 2, 2)?);
        if end > end_of_all {
            return None;
        }
        if kind != 0 {
            at = end;
            continue;
        }
        let end_of_list = at + 6 + number(at + 4, 2)?;
        if end_of_list > end {
            return None;
        }
        at += 6;
        while at < end_of_list {
            let (kind, end) = (number(at, 1)?, at + 3 + number(at + 1, 2)?);
            if end > end_of_list {
                return None;
            }
            if kind == 0 {
                return payload.get(at + 3..end);
            }
            at = end;
        }
        return None;
    }
    None
}

/// Compares the name with the naive twin's, and the beginnings of the payload with all of it. Returns whether there is a name.
pub fn tls(payload: &[u8]) -> bool {
    let hello = Hello::read(payload);
    let name = match hello {
        Hello::Named(name) => Some(name),
        _ => None,
    };
    assert_eq!(name, naive(payload), "{payload:02x?}");
    for len in 0..payload.len().min(300) {
        let part = Hello::read(&payload[..len]);
        let is_known = part == hello || part == Hello::Cut || len < 6 && part == Hello::Other;
        assert!(is_known, "{part:?}, {hello:?}: {len} of {payload:02x?}");
    }
    name.is_some()
}

/// A ClientHello with this list of names, with some other extensions.
pub fn hello(names: &[u8]) -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension =
        |kind: u16, bytes: &[u8]| [&kind.to_be_bytes()[..], &with_length(bytes)].concat();
    let extensions = [
        extension(0xff01, &[0]),
        extension(0, &with_length(names)),
        extension(43, &[2, 3, 4]),
    ]
    .concat();
    let hello = [
        &[3, 3][..],
        &[7; 32],
        &[2, 8, 8],
        &with_length(&[0x13, 1, 0x13, 2]),
        &[1, 0],
        &with_length(&extensions),
    ]
    .concat();
    let message = [&[1, 0][..], &with_length(&hello)].concat();
    [&[22, 3, 1][..], &with_length(&message)].concat()
}
