//! The serialised forms, byte by byte, in both directions; and refused images, each for the stated reason.

use weir_memory::Request;
use weir_sketch::{Cms, Counts, Error, Exact, Heavy, Item, Rule, Shape, Weigh};

/// The bytes of `parts`: each number little-endian with its size in bytes, and FNV-1a behind them.
fn image(parts: &[(u64, usize)]) -> Vec<u8> {
    let bytes = parts
        .iter()
        .flat_map(|(value, len)| value.to_le_bytes()[..*len].to_vec())
        .collect();
    sealed(bytes)
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut sum = 14_695_981_039_346_656_037u64;
    for byte in &bytes {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211);
    }
    bytes.extend(sum.to_le_bytes());
    bytes
}

const MAGIC: (u64, usize) = (u64::from_le_bytes(*b"weirskch"), 8);
const VERSION: (u64, usize) = (1, 2);

/// A key of two bytes, so that byte order matters.
fn key(number: u8) -> [u8; 2] {
    [number, 0xee]
}

/// A hash that is equal for all keys but for the bits that make the tag.
fn hash(key: &[u8; 2]) -> u64 {
    u64::from(key[0]) << 20
}

fn item(number: u8, bytes: u32) -> Item<[u8; 2]> {
    Item {
        hash: hash(&key(number)),
        bytes,
        key: key(number),
    }
}

fn exact_image() -> Vec<u8> {
    image(&[
        MAGIC,
        VERSION,
        (1, 1),
        (1, 1),
        (2, 4),
        (0xfeed, 8), // header: exact, little-endian keys of two bytes, seed
        (3, 8),      // slots
        (4, 8),
        (1110, 8), // total
        (1, 8),
        (1000, 8), // untracked: the third key
        (0, 8),
        (0, 8), // doubt
        (2, 8), // keys
        (0xee05, 2),
        (2, 8),
        (110, 8),
        (0xee09, 2),
        (1, 8),
        (0, 8),
    ])
}

#[test]
fn exact() {
    let mut table = Exact::new(3 * 32, 0xfeed, &Request::default()).unwrap();
    table.update(&[item(9, 0), item(5, 10), item(5, 100), item(1, 1000)]);
    assert_eq!(table.to_bytes(), exact_image());
    let read =
        Exact::<[u8; 2]>::from_bytes(&exact_image(), 96, &Request::default(), |seed, key| {
            assert_eq!(seed, 0xfeed);
            hash(key)
        });
    let read = read.unwrap();
    assert_eq!(
        read.get(&key(5), hash(&key(5))),
        Some(Counts {
            packets: 2,
            bytes: 110
        })
    );
    assert_eq!(
        read.get(&key(9), hash(&key(9))),
        Some(Counts {
            packets: 1,
            bytes: 0
        })
    );
    assert_eq!(
        read.untracked(),
        Counts {
            packets: 1,
            bytes: 1000
        }
    );
    assert_eq!(
        (read.seed(), read.capacity(), read.is_full()),
        (0xfeed, 2, true)
    );
}

/// A bucket of 13 keys, and one missed packet of a fourteenth key.
fn heavy_image() -> Vec<u8> {
    let tag = |number: u64| {
        (
            (number << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24 & 0xff,
            1,
        )
    };
    let mut parts = vec![
        MAGIC,
        VERSION,
        (2, 1),
        (1, 1),
        (2, 4),
        (7, 8),  // header: heavy
        (1, 8),  // buckets
        (0, 4),  // by packets
        (13, 4), // slots of a bucket
        (27, 8),
        (13 * 2 * 60 + 1514, 8), // total
        (60, 4),
        (1514, 4), // smallest and largest packet
        (1, 8),
        (13, 1), // floor and keys
    ];
    for number in 1..=13 {
        parts.extend([tag(number), (2, 8), (0, 8), (120, 8), (0xee00 | number, 2)]);
    }
    image(&parts)
}

#[test]
fn heavy() {
    let mut table = Heavy::new(128 + 13 * 32, Weigh::Packets, 7, &Request::default()).unwrap();
    for _ in 0..2 {
        table.update(&(1..=13).map(|number| item(number, 60)).collect::<Vec<_>>());
    }
    table.update(&[item(14, 1514)]);
    assert_eq!(table.to_bytes(), heavy_image());
    let mut read = Heavy::<[u8; 2]>::from_bytes(&heavy_image(), &Request::default()).unwrap();
    assert_eq!(read.bounds(&key(3), hash(&key(3))), (2, 2));
    assert_eq!(read.bounds(&key(14), hash(&key(14))), (0, 1));
    assert_eq!(
        read.get(&key(3), hash(&key(3))).unwrap().companion_lower,
        120
    );
    assert_eq!(read.total(), table.total());
    // Another packet of the key replaces the first of the least keys; its missed packet becomes its error.
    read.update(&[item(14, 100)]);
    let entry = read.get(&key(14), hash(&key(14))).unwrap();
    assert_eq!((entry.lower, entry.upper), (1, 2));
    assert_eq!((entry.companion_lower, entry.companion_upper), (100, 1614));
    assert_eq!(read.bounds(&key(1), hash(&key(1))), (0, 2));
}

/// A sketch with two rows of four cells. The hash 0x40...0 times the odd constant is 0x40...0, whose other half is zero.
fn cms_image(cell: usize, rule: u64) -> Vec<u8> {
    let mut parts = vec![
        MAGIC,
        VERSION,
        (3, 1),
        (0, 1),
        (0, 4),
        (0xab, 8), // header: count-min, no keys
        (4, 8),
        (2, 4),
        (cell as u64, 1),
        (rule, 1),
        (0, 2),   // width, rows, bytes of a cell, rule
        (300, 8), // total
    ];
    parts.extend([0, 300, 0, 0].map(|value| (value, cell)));
    parts.extend([0, 300, 0, 0].map(|value| (value, cell)));
    image(&parts)
}

#[test]
fn count_min() {
    let shape = Shape::new(2, 4).unwrap();
    let request = &Request::default();
    let hash = 0x4000_0000_0000_0000;
    let mut narrow = Cms::<u32>::new(shape, Rule::Plain, 0xab, request).unwrap();
    narrow.update_weighted([(hash, 299), (hash, 1)]);
    assert_eq!(narrow.to_bytes(), cms_image(4, 0));
    let mut wide = Cms::<u64>::new(shape, Rule::Conservative, 0xab, request).unwrap();
    wide.update_weighted([(hash, 300)]);
    assert_eq!(wide.to_bytes(), cms_image(8, 1));
    let read = Cms::<u64>::from_bytes(&cms_image(8, 1), request).unwrap();
    assert_eq!(
        (
            read.estimate(hash),
            read.estimate(0),
            read.total(),
            read.seed()
        ),
        (300, 0, 300, 0xab)
    );
    assert_eq!((read.rule(), read.shape()), (Rule::Conservative, shape));
}

/// Offset and reason of the refusal, if the bytes from `at` on are changed to `bytes`, and the checksum with them.
fn why(
    image: &[u8],
    at: usize,
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<(), Error>,
) -> (usize, &'static str) {
    let mut changed = image[..image.len() - 8].to_vec();
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    reason(read(&sealed(changed)))
}

fn reason(read: Result<(), Error>) -> (usize, &'static str) {
    match read {
        Err(Error::Image { offset, why }) => (offset, why),
        other => panic!("{other:?}"),
    }
}

fn read_exact(bytes: &[u8]) -> Result<(), Error> {
    Exact::<[u8; 2]>::from_bytes(bytes, 96, &Request::default(), |_, key| hash(key)).map(|_| ())
}

fn read_heavy(bytes: &[u8]) -> Result<(), Error> {
    Heavy::<[u8; 2]>::from_bytes(bytes, &Request::default()).map(|_| ())
}

fn read_cms(bytes: &[u8]) -> Result<(), Error> {
    Cms::<u32>::from_bytes(bytes, &Request::default()).map(|_| ())
}

#[test]
fn headers_are_refused_for_what_is_wrong_in_them() {
    type Read = fn(&[u8]) -> Result<(), Error>;
    let all: [(Vec<u8>, Read); 3] = [
        (exact_image(), read_exact),
        (heavy_image(), read_heavy),
        (cms_image(4, 0), read_cms),
    ];
    for (image, read) in all {
        assert_eq!(why(&image, 0, b"W", read), (0, "not an image of a sketch"));
        assert_eq!(
            why(&image, 8, &[2], read),
            (8, "a version that is not known here")
        );
        assert_eq!(
            why(&image, 10, &[9], read),
            (10, "an image of another kind of sketch")
        );
        assert_eq!(
            why(&image, 11, &[2], read),
            (11, "keys in another byte order")
        );
        assert_eq!(why(&image, 12, &[3], read), (12, "keys of another length"));
        let body = image.len() - 8;
        for at in 16..image.len() {
            let mut changed = image.clone();
            changed[at] ^= 0x10;
            assert_eq!(
                reason(read(&changed)),
                (body, "the checksum is wrong, some byte was changed")
            );
        }
        for len in 0..image.len() {
            assert!(matches!(read(&image[..len]), Err(Error::Image { .. })));
            if let Some(body) = len.checked_sub(8) {
                let (offset, _) = reason(read(&sealed(image[..body].to_vec())));
                assert!(offset <= body);
            }
        }
        let mut longer = image[..body].to_vec();
        longer.push(0);
        assert!(matches!(read(&sealed(longer)), Err(Error::Image { .. })));
    }
}

#[test]
fn tables_are_refused_for_what_is_wrong_in_them() {
    let image = exact_image();
    let why = |at, bytes: &[u8]| why(&image, at, bytes, read_exact);
    assert_eq!(
        why(24, &[4]),
        (24, "a table that takes more memory than allowed")
    );
    assert_eq!(
        why(24, &[0xff; 8]),
        (24, "a table that takes more memory than allowed")
    );
    assert_eq!(
        why(32, &[5]),
        (124, "counts that do not add up to the total")
    );
    assert_eq!(why(39, &[0x81]), (32, "a count above 2^63"));
    assert_eq!(why(64, &[2]), (64, "a doubt above what is untracked"));
    assert_eq!(
        why(72, &1001u16.to_le_bytes()),
        (64, "a doubt above what is untracked")
    );
    assert_eq!(why(80, &[3]), (88, "more keys than the table has room for"));
    assert_eq!(why(88, &[9]), (106, "keys out of order"));
    assert_eq!(why(90, &[0]), (90, "counts that do not fit the total"));
}

#[test]
fn buckets_are_refused_for_what_is_wrong_in_them() {
    let image = heavy_image();
    let why = |at, bytes: &[u8]| why(&image, at, bytes, read_heavy);
    let slot = "no such slot: a tag of zero, an error above its count or its floor, or a key twice";
    assert_eq!(
        why(24, &[0]),
        (24, "more buckets than bytes for them, or none")
    );
    assert_eq!(
        why(24, &[0xff; 8]),
        (24, "more buckets than bytes for them, or none")
    );
    assert_eq!(why(32, &[2]), (32, "ranks neither by packets nor by bytes"));
    assert_eq!(why(36, &[12]), (36, "buckets of another size"));
    assert_eq!(
        why(56, &[0xff]),
        (56, "packet sizes that do not fit the total")
    );
    assert_eq!(why(72, &[14]), (72, "more keys than a bucket has slots"));
    assert_eq!(why(73, &[0]), (73, slot));
    assert_eq!(why(82, &[2]), (73, slot));
    assert_eq!(why(73 + 27 + 25, &[1]), (73 + 27, slot));
    assert_eq!(
        why(74, &[200]),
        (image.len() - 8, "counts that pass the total")
    );
    assert_eq!(
        why(64, &[9]),
        (image.len() - 8, "counts that pass the total")
    );
}

#[test]
fn rows_are_refused_for_what_is_wrong_in_them() {
    let image = cms_image(4, 0);
    let why = |at, bytes: &[u8]| why(&image, at, bytes, read_cms);
    let shape = (24, "no such shape, or not as many cells as it has");
    assert_eq!(why(24, &[3]), shape);
    assert_eq!(why(24, &[8]), shape);
    assert_eq!(why(32, &[0]), shape);
    assert_eq!(why(32, &[33]), shape);
    assert_eq!(
        why(36, &[8]),
        (36, "cells of another size, or no such rule")
    );
    assert_eq!(
        why(37, &[2]),
        (36, "cells of another size, or no such rule")
    );
    assert_eq!(
        why(38, &[1]),
        (36, "cells of another size, or no such rule")
    );
    assert_eq!(why(47, &[0x81]), (40, "a total above 2^63"));
    assert_eq!(
        why(40, &[0]),
        (64, "a row that does not add up to the total")
    );
    assert_eq!(
        why(48, &[1]),
        (64, "a row that does not add up to the total")
    );
    // Rows of a conservative sketch may sum up to less than the total, but not to more.
    let conservative = cms_image(4, 1);
    let mut fewer = conservative[..conservative.len() - 8].to_vec();
    fewer[52] -= 1;
    assert!(read_cms(&sealed(fewer)).is_ok());
}
