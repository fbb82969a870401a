//! Requests of controllers in packets: golden bytes made by Python's `hmac`, a naive statement of the rule, and each refusal by its reason.

#[path = "bodies/control.rs"]
mod body;

use std::time::Duration;
use weir_firewall::control::{
    Keys, MOST_LINES, RECORD, Refusal, Request, SealError, Sequences, payload, record, records,
    seal,
};
use weir_firewall::permissions::AddressChange;
use weir_packet::LinkType;
use weir_packet::flow::Parser;
use weir_testkit::Random;

const NOW: u64 = 1_700_000_000_000_000_000;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn sequences(keys: &Keys) -> Sequences {
    Sequences::new(keys.iter().map(|_| 0))
}

/// ```python
/// def sealed(key, id, sequence, time, lasts, lines):
///     b = b"WEIR" + struct.pack(">BBHQQQ", 1, 0, id, sequence, time, lasts) + lines.encode()
///     return b + hmac.new(key, b, hashlib.sha256).digest()
/// sealed(bytes(range(32)), 7, 1, 1700000000000000000, 0, "ban 192.0.2.7")
/// sealed(b"k" * 100, 65535, 2**64 - 1, 1700000029999999999, 600 * 10**9,
///        "ban 2001:db8::7\naccept 10.0.0.5 from 10.1.0.0/16,10.3.0.0/16\nunban 192.0.2.7\n")
/// ```
#[test]
fn golden_bytes_of_python_are_read_and_written() {
    let short = "5745495201000007000000000000000117979cfe362a0000000000000000000062616e203139322e302e322e37102cd201a8\
                 f0979606e65d786931b8d5178580195de50c1190c382eb61f31b61";
    let long = "574549520100ffffffffffffffffffff17979d05324dabff0000008bb2c9700062616e20323030313a6462383a3a370a6163\
                636570742031302e302e302e352066726f6d2031302e312e302e302f31362c31302e332e302e302f31360a756e62616e2031\
                39322e302e322e370a98ba8e765e4cb551e78a3aef0097e8f12439096092ffd99488aab4341b814cfc";
    let [first, second] = [
        (0..32)
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>(),
        "6b".repeat(100),
    ];
    let keys = Keys::parse(&format!(
        "# controllers\n65535 {second}\n\n  7 {first}  # the first\n"
    ))
    .unwrap();
    let lines = "ban 2001:db8::7\naccept 10.0.0.5 from 10.1.0.0/16,10.3.0.0/16\nunban 192.0.2.7\n";
    let cases = [
        (short, 7, 1, NOW, None, "ban 192.0.2.7"),
        (
            long,
            65535,
            u64::MAX,
            1_700_000_029_999_999_999,
            Some(Duration::from_secs(600)),
            lines,
        ),
    ];
    for (golden, id, sequence, time, lasts, lines) in cases {
        let golden = hex(golden);
        let (place, key) = keys.find(id).unwrap();
        assert_eq!(seal(key, sequence, time, lasts, lines).unwrap(), golden);
        let changes = lines
            .lines()
            .flat_map(|line| AddressChange::parse(line).unwrap())
            .collect();
        let request = Request {
            key: place,
            sequence,
            lasts,
            changes,
        };
        assert_eq!(
            Request::open(&golden, NOW, &keys, &sequences(&keys)),
            Ok(request)
        );
    }
    // The twin in these tests is right too. The second key is longer than a block.
    let (of, key) = (body::constants(), (0..32).collect::<Vec<u8>>());
    assert_eq!(
        body::bytes(&of, &key, (7, 1, NOW, 0), b"ban 192.0.2.7"),
        hex(short)
    );
    assert_eq!(body::sha256(&of, b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
}

#[test]
fn requests_are_accepted_by_the_rule_and_no_others() {
    let (mut random, mut all) = (Random(5), body::Seen::default());
    for _ in 0..400 {
        let length = 100 + random.below(200);
        let seen = body::judge(&random.bytes(length));
        all.accepted += seen.accepted;
        seen.refused
            .into_iter()
            .for_each(|(why, count)| *all.refused.entry(why).or_default() += count);
    }
    println!("{all:?}");
    assert!(all.accepted > 200, "{all:?}");
    for why in [
        "malformed",
        "unknown key",
        "outside window",
        "replayed",
        "not authentic",
    ] {
        assert!(all.refused.get(why) > Some(&100), "{why}: {all:?}");
    }
}

#[test]
fn every_bit_of_a_request_counts() {
    let keys = Keys::parse("7 00112233445566778899aabbccddeeff\n").unwrap();
    let good = seal(keys.find(7).unwrap().1, 5, NOW, None, "ban 192.0.2.7").unwrap();
    assert!(Request::open(&good, NOW, &keys, &sequences(&keys)).is_ok());
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 128 >> (bit % 8);
        assert!(
            Request::open(&bad, NOW, &keys, &sequences(&keys)).is_err(),
            "bit {bit}"
        );
    }
    let is_malformed = |bytes: &[u8]| {
        Request::open(bytes, NOW, &keys, &sequences(&keys)) == Err(Refusal::Malformed)
    };
    assert!((0..65).all(|len| is_malformed(&good[..len])));
}

#[test]
fn wrong_key_files_are_refused_with_the_line() {
    let key = "00112233445566778899aabbccddeeff";
    for (text, words) in [
        ("", "line 1: the file ends, and there is no key"),
        ("# none\n\n", "line 2: the file ends, and there is no key"),
        ("7\n", "line 1: a line has the number"),
        (&format!("7 {key} more\n"), "line 1: a line has the number"),
        (
            &format!("1 {key}\nx {key}\n"),
            "line 2: the number of a key is from 0 to 65535",
        ),
        (&format!("65536 {key}\n"), "line 1: the number of a key"),
        (
            &format!("7 {key}0\n"),
            "line 1: the key is not hexadecimal, two digits",
        ),
        (
            "7 0011223344556677-899aabbccddeeff0\n",
            "line 1: the key is not hexadecimal",
        ),
        (
            &format!("\n7 {}\n", &key[2..]),
            "line 2: the key has 15 bytes, and 16 are the least",
        ),
        (
            &format!("7 {key}\n8 {key}\n07 {key}\n"),
            "line 3: line 1 has a key of this number too",
        ),
    ] {
        let error = Keys::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(words), "{text:?}: {error}");
        assert!(
            !error.contains("2233"),
            "a part of a key is repeated: {error}"
        );
    }
    let keys = Keys::parse(&format!("300 {key}\n2 {key}\n")).unwrap();
    assert_eq!(
        keys.iter().map(|key| key.id()).collect::<Vec<_>>(),
        [2, 300]
    );
    assert!(
        !format!("{keys:?}").contains("34"),
        "a key is shown: {keys:?}"
    );
}

#[test]
fn what_would_be_refused_is_not_sealed() {
    let keys = Keys::parse("7 00112233445566778899aabbccddeeff\n").unwrap();
    let seal = |lines: &str| seal(keys.find(7).unwrap().1, 1, NOW, None, lines);
    assert_eq!(seal(""), Err(SealError::Empty));
    assert!(matches!(seal("ban x"), Err(SealError::Line(_))));
    assert_eq!(seal("ban 10.0.0.0/21"), Err(SealError::Many(2048)));
    let lines = "ban 192.0.2.17\n".repeat(77) + "ban 192.0.2.7";
    assert_eq!(
        (lines.len(), seal(&lines).map(|bytes| bytes.len())),
        (MOST_LINES, Ok(1232))
    );
    assert_eq!(seal(&(lines + "\n")), Err(SealError::Long(MOST_LINES + 1)));
}

#[test]
fn sequence_numbers_come_back_from_their_records() {
    let written = [(7, 0), (0, u64::MAX), (65535, 12_345_678_901)];
    let bytes: Vec<u8> = written
        .iter()
        .flat_map(|&(id, sequence)| record(id, sequence))
        .collect();
    assert_eq!(&bytes[..RECORD], b"00007 00000000000000000000     \n");
    assert_eq!(
        &bytes[RECORD..2 * RECORD],
        b"00000 18446744073709551615     \n"
    );
    assert_eq!(records(&bytes), Ok(written.to_vec()));
    assert_eq!(records(b""), Ok(Vec::new()));
    for place in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[place] ^= 0x40;
        assert_eq!(
            records(&bad).map_err(|error| error.line),
            Err(place / RECORD + 1),
            "byte {place}"
        );
    }
    assert_eq!(
        records(&bytes[..40]).unwrap_err().line,
        2,
        "a record that is cut"
    );
    assert_eq!(
        records(&[record(7, 1), record(7, 2)].concat())
            .unwrap_err()
            .line,
        2,
        "two records of one key"
    );
}

/// The payload of a datagram, and of all that is none.
#[test]
fn fragments_and_cut_datagrams_have_no_payload() {
    let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
    let text = b"sixteen letters.";
    let v4 = |flags: [u8; 2], udp: u16, captured: usize| {
        let mut frame = vec![2; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 44, 0, 0, flags[0], flags[1], 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend([1, 2, 3, 4, (udp >> 8) as u8, udp as u8, 0, 0]);
        frame.extend(text);
        // Padding is no part of the packet.
        frame.extend([0; 9]);
        frame.truncate(captured);
        frame
    };
    let v6 = |chain: &[&[u8]], next: u8| {
        let len = chain.iter().map(|header| header.len()).sum::<usize>() + 24;
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len as u8, next, 64]);
        frame.extend([1; 32]);
        chain.iter().for_each(|header| frame.extend(*header));
        frame.extend([1, 2, 3, 4, 0, 24, 0, 0]);
        frame.extend(text);
        frame
    };
    let read = |frame: &[u8]| payload(&parser.headers(frame).unwrap()).map(<[u8]>::to_vec);
    let whole = || Ok(text.to_vec());
    assert_eq!(read(&v4([0x40, 0], 24, 99)), whole());
    assert_eq!(
        read(&v4([0, 0], 12, 99)),
        Ok(b"sixt".to_vec()),
        "the length of UDP is believed within the packet"
    );
    for udp in [0, 7, 25, 34, 65535] {
        assert_eq!(read(&v4([0, 0], udp, 99)), Err(Refusal::Malformed), "{udp}");
    }
    assert_eq!(
        read(&v4([0, 0], 24, 57)),
        Err(Refusal::Malformed),
        "the capture cut it"
    );
    assert_eq!(
        read(&v4([0, 0], 24, 41)),
        Err(Refusal::Malformed),
        "within the head"
    );
    assert_eq!(
        read(&v4([0x20, 0], 24, 99)),
        Err(Refusal::Fragment),
        "more fragments"
    );
    assert_eq!(
        read(&v4([0, 1], 24, 99)),
        Err(Refusal::Fragment),
        "a later one"
    );
    assert_eq!(read(&v6(&[], 17)), whole());
    let (hop, options): (&[u8], &[u8]) = (
        &[60, 0, 1, 4, 0, 0, 0, 0],
        &[17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    assert_eq!(read(&v6(&[hop, options], 0)), whole());
    assert_eq!(
        read(&v6(&[&[17, 0, 0, 1, 0, 0, 0, 9]], 44)),
        Err(Refusal::Fragment),
        "the first one"
    );
    assert_eq!(
        read(&v6(
            &[hop, &[44, 0, 1, 4, 0, 0, 0, 0], &[17, 0, 0, 0, 0, 0, 0, 9]],
            0
        )),
        Err(Refusal::Fragment)
    );
    assert_eq!(
        read(&v6(&[&[17, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0]], 51)),
        whole(),
        "behind an authentication header"
    );
}
