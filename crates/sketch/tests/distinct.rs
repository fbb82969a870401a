//! Distinct counts: the range over many seeds, unions, and images byte by byte as the library's other forms write them.

mod support;

use support::random;
use weir_memory::Request;
use weir_sketch::{Distinct, Error};

fn count(seed: u64, keys: impl Iterator<Item = u64>) -> Distinct {
    let mut distinct = Distinct::new(&Request::default()).unwrap();
    for key in keys {
        distinct.see(random(seed, key), || random(seed, key).to_le_bytes());
    }
    distinct
}

#[test]
fn the_range_holds_in_nineteen_of_twenty() {
    for keys in [0, 1, 10, 1000, 3000, 40_000] {
        let inside = (0..60).filter(|seed| {
            let (lower, upper) = count(*seed, 0..keys).range();
            lower <= keys as f64 && keys as f64 <= upper
        });
        // 57 of 60 in the mean.
        assert!(inside.count() >= 51, "{keys}");
        let (lower, upper) = count(1, 0..keys).range();
        assert!(upper - lower <= 2.0 * 0.02 * keys as f64 + 1.0, "{lower}..{upper} is wider than promised");
    }
}

#[test]
fn a_key_counts_once() {
    let once = count(1, 0..5000);
    let often = count(1, (0..5000).chain(0..5000).chain((0..5000).rev()));
    assert_eq!(often.to_bytes(), once.to_bytes());
    let made = std::cell::Cell::new(0);
    let mut distinct = Distinct::new(&Request::default()).unwrap();
    for _ in 0..10 {
        for hash in [1u64 << 40 | 7, 1 << 41 | 1, u64::MAX] {
            distinct.see(hash, || {
                made.set(made.get() + 1);
                hash.to_le_bytes()
            });
        }
        distinct.see(0, || [0]);
    }
    assert_eq!(made.get(), 3, "bytes are made for what was not seen lately");
    assert_eq!(distinct.estimate().round(), 4.0, "0 is a hash like others");
}

#[test]
fn a_merge_is_the_union() {
    for keys in [4, 2000, 30_000] {
        let mut left = count(1, 0..keys);
        left.merge(&count(1, keys / 2..keys * 2));
        let one = count(1, 0..keys * 2);
        // Registers are equal; the estimate after a merge is the plain one.
        let mut empty = Distinct::new(&Request::default()).unwrap();
        empty.merge(&one);
        empty.merge(&one);
        let near = (left.estimate() - empty.estimate()).abs() < 1e-6 * keys as f64;
        assert!(near, "{} {}", left.estimate(), empty.estimate());
        let (lower, upper) = left.range();
        assert!(lower <= 2.0 * keys as f64 && 2.0 * keys as f64 <= upper, "{lower}..{upper}");
    }
}

#[test]
fn clear_forgets() {
    let mut distinct = count(1, 0..100);
    distinct.clear();
    assert_eq!(distinct.to_bytes(), Distinct::new(&Request::default()).unwrap().to_bytes());
    distinct.see(random(1, 1), || [1]);
    assert_eq!(distinct.estimate().round(), 1.0, "it is no longer among those seen lately");
}

/// MurmurHash3, x64, 128 bits, of at most 15 bytes: what the library's forms in all languages hash with, under the seed
/// 9001.
fn murmur(bytes: &[u8]) -> (u64, u64) {
    let mut tail = [0; 16];
    tail[..bytes.len()].copy_from_slice(bytes);
    let k = |at: usize| u64::from_le_bytes(tail[at..at + 8].try_into().unwrap());
    let (c1, c2) = (0x87c3_7b91_1142_53d5u64, 0x4cf5_ad43_2745_937fu64);
    let (mut h1, mut h2) = (9001, 9001);
    h2 ^= k(8).wrapping_mul(c2).rotate_left(33).wrapping_mul(c1);
    h1 ^= k(0).wrapping_mul(c1).rotate_left(31).wrapping_mul(c2);
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let mix = |mut x: u64| {
        x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ x >> 33
    };
    (h1, h2) = (mix(h1), mix(h2));
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

#[test]
fn images_are_those_of_the_library_in_other_languages() {
    let keys: [&[u8]; 3] = [b"10.1.2.3", b"10.9.9.9", &17u64.to_le_bytes()];
    let mut distinct = Distinct::new(&Request::default()).unwrap();
    for (hash, key) in keys.iter().enumerate() {
        distinct.see(hash as u64, || key);
    }
    // A list: two preamble words, version 1, family 7 (HLL), lg k, lg of the list's room, compact (8), three entries,
    // list of HLL_8.
    let mut image = vec![2, 1, 7, 14, 3, 8, 3, 8];
    for key in keys {
        let (h1, h2) = murmur(key);
        // The lower 26 bits say where, the upper 6 how many leading zeros, and one.
        let coupon = h1 as u32 & 0x03ff_ffff | (h2.leading_zeros().min(62) + 1) << 26;
        image.extend(coupon.to_le_bytes());
    }
    assert_eq!(distinct.to_bytes(), image);
    let read = Distinct::from_bytes(&image, &Request::default()).unwrap();
    assert_eq!(read.estimate().round(), 3.0);
}

#[test]
fn images_come_back() {
    for keys in [0, 5, 500, 20_000] {
        let distinct = count(2, 0..keys);
        let read = Distinct::from_bytes(&distinct.to_bytes(), &Request::default()).unwrap();
        // A small sketch is a set, whose order in the image means nothing.
        let parts = |image: Vec<u8>| image.chunks(4).map(<[u8]>::to_vec).collect::<std::collections::BTreeSet<_>>();
        assert!(parts(read.to_bytes()) == parts(distinct.to_bytes()));
        assert_eq!((read.estimate(), read.range()), (distinct.estimate(), distinct.range()));
    }
}

#[test]
fn other_bytes_are_refused() {
    let refused = |bytes: &[u8]| Distinct::from_bytes(bytes, &Request::default()).unwrap_err();
    assert!(matches!(refused(&[]), Error::Apache(_)));
    assert!(matches!(refused(b"weirskch"), Error::Apache(_)));
    // An empty one of another precision.
    assert!(matches!(refused(&[2, 1, 7, 12, 3, 12, 0, 8]), Error::Parameter { name: "lg_k", .. }));
}
