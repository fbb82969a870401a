//! The serialised forms, byte by byte, in both directions; and refused images, each for the stated reason.

use weir_memory::Request;
use weir_sketch::{
    Cms, Counts, Error, Exact, Heavy, Item, MajorityVote, Reversible, ReversibleShape, Rule, Shape,
    SimpleTable, Weigh,
};

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

/// The part of the documented formulas that simple tables and votes have in common: a place among `len` by the upper bits.
fn place(number: u64, len: u64) -> u64 {
    ((u128::from(number) * u128::from(len)) >> 64) as u64
}

/// A hash of which the upper bits differ too.
fn wide_hash(key: &[u8; 2]) -> u64 {
    u64::from(key[0]) << 56 | 0x1234
}

fn wide_item(number: u8, bytes: u32) -> Item<[u8; 2]> {
    Item {
        hash: wide_hash(&key(number)),
        ..item(number, bytes)
    }
}

/// A table of four slots. Key 5 replaced key 4, and key 9 has a slot of its own.
fn simple_image() -> Vec<u8> {
    let slot = |number| {
        let spread = wide_hash(&key(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (place(spread, 4), 8)
    };
    let mut keys = [
        vec![slot(5), (2, 8), (110, 8), (0xee05, 2)],
        vec![slot(9), (1, 8), (0, 8), (0xee09, 2)],
    ];
    keys.sort();
    let mut parts = vec![
        MAGIC,
        VERSION,
        (5, 1),
        (1, 1),
        (2, 4),
        (0xfeed, 8), // header: simple table, little-endian keys of two bytes, seed
        (4, 8),      // slots
        (4, 8),
        (1110, 8), // total
        (1, 8),
        (1000, 8), // evicted
        (2, 8),    // keys
    ];
    parts.extend(keys.concat());
    image(&parts)
}

#[test]
fn simple() {
    let slot = |number| wide_hash(&key(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
    let other = (0..=255)
        .find(|number| ![5, 9].contains(number) && slot(*number) == slot(5) && slot(5) != slot(9))
        .expect("a key with the slot of key 5, which key 9 does not have");
    let mut table = SimpleTable::new(4 * 32 + 31, 0xfeed, &Request::default()).unwrap();
    table.update(&[
        wide_item(9, 0),
        wide_item(other, 1000),
        wide_item(5, 10),
        wide_item(5, 100),
    ]);
    assert_eq!(table.to_bytes(), simple_image());
    let read = SimpleTable::<[u8; 2]>::from_bytes(
        &simple_image(),
        128,
        &Request::default(),
        |seed, key| {
            assert_eq!(seed, 0xfeed);
            wide_hash(key)
        },
    );
    let read = read.unwrap();
    let counts = |packets, bytes| Counts { packets, bytes };
    assert_eq!(read.get(&key(5), wide_hash(&key(5))), Some(counts(2, 110)));
    assert_eq!(read.get(&key(9), wide_hash(&key(9))), Some(counts(1, 0)));
    assert_eq!(read.evicted(), counts(1, 1000));
    assert_eq!((read.len(), read.capacity(), read.seed()), (2, 4, 0xfeed));
}

/// Two rows of three buckets, by packets, which have counted key 5 three times and then key 200 once.
fn votes_image() -> Vec<u8> {
    let mut parts = vec![
        MAGIC,
        VERSION,
        (6, 1),
        (1, 1),
        (2, 4),
        (0xab, 8), // header: majority vote, little-endian keys of two bytes, seed
        (3, 8),    // width
        (2, 4),    // rows
        (0, 4),    // by packets
        (4, 8),
        (310, 8), // total
        (60, 4),
        (130, 4), // smallest and largest packet
    ];
    for row in 0..2u64 {
        let column = |number| {
            let a = wide_hash(&key(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            place(a.wrapping_add(row.wrapping_mul(a.rotate_left(32) | 1)), 3)
        };
        for at in 0..3 {
            let bucket = match (at == column(5), at == column(200)) {
                (true, true) => [4, 2, 180, 0xee05],
                (true, false) => [3, 3, 180, 0xee05],
                (false, true) => [1, 1, 130, 0xeec8],
                (false, false) => [0; 4],
            };
            parts.extend(bucket.into_iter().zip([8, 8, 8, 2]));
        }
    }
    image(&parts)
}

#[test]
fn votes() {
    let mut sketch =
        MajorityVote::of_shape(2, 3, Weigh::Packets, 0xab, &Request::default()).unwrap();
    sketch.update(&[
        wide_item(5, 60),
        wide_item(5, 60),
        wide_item(5, 60),
        wide_item(200, 130),
    ]);
    assert_eq!(sketch.to_bytes(), votes_image());
    let read =
        MajorityVote::<[u8; 2]>::from_bytes(&votes_image(), &Request::default(), |seed, key| {
            assert_eq!(seed, 0xab);
            wide_hash(key)
        });
    let read = read.unwrap();
    let entry = read.get(&key(5), wide_hash(&key(5))).unwrap();
    assert!(entry.lower >= 2 && entry.upper == 3, "{entry:?}");
    assert_eq!(entry.companion_lower, 180);
    assert_eq!((read.total(), read.seed()), (sketch.total(), 0xab));
    assert_eq!(
        (read.rows(), read.width(), read.weigh()),
        (2, 3, Weigh::Packets)
    );
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

fn read_simple(bytes: &[u8]) -> Result<(), Error> {
    let hash = |_, key: &[u8; 2]| wide_hash(key);
    SimpleTable::<[u8; 2]>::from_bytes(bytes, 128, &Request::default(), hash).map(|_| ())
}

fn read_votes(bytes: &[u8]) -> Result<(), Error> {
    let hash = |_, key: &[u8; 2]| wide_hash(key);
    MajorityVote::<[u8; 2]>::from_bytes(bytes, &Request::default(), hash).map(|_| ())
}

fn read_cms(bytes: &[u8]) -> Result<(), Error> {
    Cms::<u32>::from_bytes(bytes, &Request::default()).map(|_| ())
}

fn read_reversible(bytes: &[u8]) -> Result<(), Error> {
    Reversible::<u32>::from_bytes(bytes, &Request::default()).map(|_| ())
}

/// A sketch of two rows and two verifying rows of 1024 cells, in which a key has weight 300.
fn reversible_image() -> Vec<u8> {
    let shape = ReversibleShape::new(32, 2, 10).unwrap();
    let mut sketch = Reversible::<u32>::new(shape, 0xab, &Request::default()).unwrap();
    sketch.update_weighted([(7, 300)]);
    sketch.to_bytes()
}

#[test]
fn headers_are_refused_for_what_is_wrong_in_them() {
    type Read = fn(&[u8]) -> Result<(), Error>;
    let all: [(Vec<u8>, Read); 6] = [
        (exact_image(), read_exact),
        (heavy_image(), read_heavy),
        (cms_image(4, 0), read_cms),
        (simple_image(), read_simple),
        (votes_image(), read_votes),
        (reversible_image(), read_reversible),
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

#[test]
fn slots_are_refused_for_what_is_wrong_in_them() {
    let image = simple_image();
    let why = |at, bytes: &[u8]| why(&image, at, bytes, read_simple);
    let slots = (
        24,
        "no slots, or a table that takes more memory than allowed",
    );
    assert_eq!(why(24, &[0]), slots);
    assert_eq!(why(24, &[5]), slots);
    assert_eq!(why(24, &[0xff; 8]), slots);
    let end = image.len() - 8;
    let sum = (end, "counts that do not add up to the total");
    assert_eq!(why(32, &[5]), sum);
    assert_eq!(why(56, &[0]), sum);
    assert_eq!(why(64, &[1]), (98, sum.1));
    let own = "slots out of order, or a key in another slot than its own";
    assert_eq!(why(72, &[image[72] ^ 1]), (72, own));
    // The second key again in the place of the first.
    let (first, second) = (72..72 + 26, 98..98 + 26);
    let mut twice = image[..end].to_vec();
    twice.copy_within(second, first.start);
    let refusal = reason(read_simple(&sealed(twice)));
    assert!(refusal == (98, own) || refusal.1 == "counts that do not fit the total");
    assert_eq!(why(80, &[0]), (80, "counts that do not fit the total"));
    assert_eq!(why(64, &[3]).1, "the image ends before this does");
}

#[test]
fn votes_are_refused_for_what_is_wrong_in_them() {
    let image = votes_image();
    let why = |at, bytes: &[u8]| why(&image, at, bytes, read_votes);
    let shape = (24, "no such shape, or not as many buckets as it has");
    for (at, byte) in [(24, 4), (24, 0), (32, 3), (32, 0), (31, 0xff)] {
        assert_eq!(why(at, &[byte]), shape);
    }
    assert_eq!(why(36, &[2]), (36, "ranks neither by packets nor by bytes"));
    let sizes = (56, "packet sizes that do not fit the total");
    assert_eq!(why(56, &[100]), sizes);
    // The first bucket in use, and the first free one.
    let bucket = |used: bool| {
        let is_used = |at: &usize| image[*at] != 0;
        (64..image.len() - 8)
            .step_by(26)
            .find(|at| is_used(at) == used)
            .expect("there are both")
    };
    let (used, free) = (bucket(true), bucket(false));
    let wrong = "no such bucket: votes or a companion that do not fit the total";
    assert_eq!(why(used + 8, &[200]), (used, wrong));
    assert_eq!(why(used + 8, &[image[used + 8] - 1]), (used, wrong));
    assert_eq!(why(used + 17, &[2]), (used, wrong));
    assert_eq!(why(free + 16, &[1]), (free, wrong));
    assert_eq!(why(free + 24, &[1]), (free, wrong));
    assert_eq!(
        why(used, &[image[used] + 2]).1,
        "a row that does not add up to the total"
    );
    let refused = (0..=255u8).filter(|number| {
        let mut changed = image[..image.len() - 8].to_vec();
        changed[used + 24] = *number;
        read_votes(&sealed(changed)).is_err()
    });
    let numbers: Vec<_> = refused.collect();
    assert!((100..240).contains(&numbers.len()), "{numbers:?}");
    assert_eq!(
        why(used + 24, &numbers[..1]),
        (used + 24, "a key in another bucket than its own")
    );
}

/// The cells are those that the definition in `rs/hashing.rs` gives, worked out by a script in another language.
#[test]
fn reversible_bytes_are_those_of_the_definition() {
    let image = reversible_image();
    let mut parts = vec![
        MAGIC,
        VERSION,
        (7, 1),
        (0, 1),
        (0, 4),
        (0xab, 8),
        (32, 4),
        (10, 4),
        (2, 4),
        (4, 4),
        (300, 8),
    ];
    let cells = [354, 402, 627, 813];
    for heavy in cells {
        parts.extend((0..1024).map(|cell| (if cell == heavy { 300 } else { 0 }, 4)));
    }
    assert_eq!(image, self::image(&parts));
}

#[test]
fn reversible_sketches_are_refused_for_what_is_wrong_in_them() {
    let image = reversible_image();
    let why = |at, bytes: &[u8]| why(&image, at, bytes, read_reversible);
    let shape = (24, "no such shape, or not as many cells as it has");
    assert_eq!(why(24, &[64]), shape);
    assert_eq!(why(24, &[104]), shape);
    assert_eq!(why(28, &[9]), shape);
    assert_eq!(why(28, &[11]), shape);
    assert_eq!(why(32, &[1]), shape);
    assert_eq!(why(32, &[17]), shape);
    assert_eq!(why(36, &[8]), (36, "cells of another size"));
    assert_eq!(why(47, &[0x81]), (40, "a total above 2^63"));
    let sum = (48 + 4096, "a row that does not add up to the total");
    assert_eq!(why(40, &[1]), sum);
    assert_eq!(why(48, &[1]), sum);
}
