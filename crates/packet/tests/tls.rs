//! The reader of server names against a naive one, over messages made by hand, damaged ones, and any bytes.

#[path = "bodies/tls.rs"]
mod body;
mod line_support;

use line_support::Random;
use weir_packet::tls::Hello;

const NAME: &[u8] = b"\0\0\x0fwww.example.com";

#[test]
fn a_hello_has_the_name_that_it_tells() {
    let name = |payload: &[u8]| match Hello::read(payload) {
        Hello::Named(name) => String::from_utf8_lossy(name).into_owned(),
        other => format!("{other:?}"),
    };
    let hello = body::hello(NAME);
    assert!(body::tls(&hello));
    assert_eq!(name(&hello), "www.example.com");
    // A name of an unknown type is passed over.
    assert_eq!(
        name(&body::hello(&[b"\x01\0\x01x", NAME].concat())),
        "www.example.com"
    );
    assert_eq!(name(&body::hello(b"\x01\0\x01x")), "Unnamed");
    assert_eq!(name(&body::hello(b"\0\0\x02x")), "Malformed");
    assert_eq!(name(&hello[..60]), "Cut");
    assert_eq!(name(&hello[..hello.len() - 1]), "www.example.com");
    // The message goes on in another record, after its name or before it.
    let mut records = hello.clone();
    records[8] += 100;
    assert_eq!(name(&records), "www.example.com");
    records[3..5].copy_from_slice(&[0, 60]);
    assert_eq!(name(&records), "Cut");
    // Another message, another record, a request.
    for (at, byte) in [(0, 23), (1, 2), (5, 2)] {
        let mut other = hello.clone();
        other[at] = byte;
        assert_eq!(name(&other), "Other");
    }
    assert_eq!(name(b"GET / HTTP/1.1\r\n\r\n"), "Other");
    assert_eq!(name(b""), "Other");
    // A client of TLS 1.0 without extensions.
    let mut old = hello[..54].to_vec();
    (old[4], old[8]) = (49, 45);
    assert_eq!(name(&old), "Unnamed");
}

#[test]
fn damaged_hellos_and_any_bytes() {
    const LIKELY: [u8; 8] = [0, 1, 2, 3, 22, 60, 200, 255];
    let mut random = Random(0x715);
    let mut names = 0;
    for round in 0..20_000 {
        let list = random.bytes(round % 40);
        let list = if round % 3 == 0 { &list } else { NAME };
        let mut hello = body::hello(list);
        for _ in 0..random.below(5) {
            let at = random.below(hello.len());
            hello[at] = match random.below(2) {
                0 => random.next() as u8,
                _ => LIKELY[random.below(LIKELY.len())],
            };
        }
        hello.truncate(hello.len() - random.below(hello.len()) * random.below(2));
        names += usize::from(body::tls(&hello));
    }
    assert!(names > 3000, "only {names} names could be read");
}
