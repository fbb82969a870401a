//! Answers of the exact table after its memory is full.

mod support;

use weir_memory::Request;
use weir_sketch::{Counts, Error, Exact, Item, SharedExact};

fn hash(key: &u32) -> u64 {
    support::random(5, u64::from(*key))
}

fn item(key: u32) -> Item<u32> {
    Item {
        hash: hash(&key),
        bytes: 10,
        key,
    }
}

fn table(memory: usize, keys: impl IntoIterator<Item = u32>) -> Exact<u32> {
    let mut table = Exact::new(memory, 1, &Request::default()).unwrap();
    table.update(&keys.into_iter().map(item).collect::<Vec<_>>());
    table
}

fn counts(packets: u64) -> Counts {
    Counts {
        packets,
        bytes: 10 * packets,
    }
}

#[test]
fn seven_eighths_of_the_slots_are_taken_and_no_more() {
    // 64 slots of 32 bytes.
    let full = table(64 * 32 + 31, (0..100).chain(0..100));
    assert_eq!(full.memory_bytes(), 64 * 32);
    assert_eq!(
        (full.len(), full.capacity(), full.is_full()),
        (56, 56, true)
    );
    for key in 0..56 {
        assert_eq!(
            full.get(&key, hash(&key)),
            Some(counts(2)),
            "those that came first are exact"
        );
    }
    for key in 56..100 {
        assert_eq!(full.get(&key, hash(&key)), None);
    }
    assert_eq!(full.untracked(), counts(2 * 44));
    assert_eq!(full.total(), counts(200));
    assert_eq!(full.doubt(), counts(0));
}

#[test]
fn a_full_table_has_turned_nobody_away_yet() {
    let full = table(64 * 32, 0..56);
    assert!(full.is_full());
    assert_eq!(full.untracked(), counts(0));
}

#[test]
fn slots_are_half_a_line_or_a_line() {
    let bytes = |least: Error| {
        if let Error::TooLittleMemory { least, .. } = least {
            least
        } else {
            panic!("{least}")
        }
    };
    let request = Request::default();
    assert_eq!(
        bytes(Exact::<[u8; 13]>::new(63, 0, &request).unwrap_err()),
        2 * 32
    );
    assert_eq!(
        bytes(Exact::<[u8; 16]>::new(63, 0, &request).unwrap_err()),
        2 * 32
    );
    assert_eq!(
        bytes(Exact::<[u8; 40]>::new(127, 0, &request).unwrap_err()),
        2 * 64
    );
    assert_eq!(
        bytes(
            SharedExact::<u32>::new(16 * 64 - 1, 0, &request)
                .map(|_| ())
                .unwrap_err()
        ),
        2 * 32
    );
    assert_eq!(Exact::<u32>::new(64, 0, &request).unwrap().capacity(), 1);
}

#[test]
fn what_was_untracked_there_is_doubt_here() {
    // On each side, 20 of 28 keys find no room.
    let mut left = table(10 * 32, 0..28);
    let right = table(10 * 32, (0..28).rev());
    assert_eq!((left.len(), left.untracked()), (8, counts(20)));
    left.merge(&right, hash).unwrap();
    assert_eq!(left.total(), counts(56));
    assert_eq!(left.doubt(), counts(20));
    // The 20 untracked packets of each side, and those of the 8 keys for which there was no room.
    assert_eq!(left.untracked(), counts(48));
    for key in 0..8 {
        assert_eq!(
            left.get(&key, hash(&key)),
            Some(counts(1)),
            "the second packet is among the untracked"
        );
    }
}

/// Eight tables list the same eight keys, and each has one untracked packet of each of ten other keys.
#[test]
fn doubt_is_never_more_than_what_is_untracked() {
    let worker = |number: u32| table(10 * 32, (0..8).chain(100 * number..100 * number + 10));
    let mut all = worker(1);
    for (merged, number) in (2..=8).enumerate() {
        all.merge(&worker(number), hash).unwrap();
        let merged = merged as u64 + 1;
        assert_eq!(
            (all.doubt(), all.untracked()),
            (counts(10 * merged), counts(10 * merged + 10))
        );
    }
    // The same tables merged in pairs, with an empty table beside them.
    let pair = |number| {
        let mut pair = worker(number);
        pair.merge(&table(10 * 32, []), hash).unwrap();
        assert_eq!((pair.doubt(), pair.untracked()), (counts(0), counts(10)));
        pair.merge(&worker(number + 1), hash).unwrap();
        pair
    };
    let mut empty = table(10 * 32, []);
    empty.merge(&pair(1), hash).unwrap();
    assert_eq!((empty.doubt(), empty.untracked()), (counts(10), counts(20)));
    empty.merge(&pair(3), hash).unwrap();
    assert_eq!((empty.doubt(), empty.untracked()), (counts(30), counts(40)));
    // Tables of one key, merged one after the other.
    let mut left = table(64, 0..3);
    for _ in 0..40 {
        left.merge(&table(64, 3..6), hash).unwrap();
        assert!(left.doubt().packets <= left.untracked().packets);
    }
}

#[test]
fn tables_of_other_hashes_do_not_merge() {
    let mut left = table(640, 0..3);
    let right = Exact::new(640, 2, &Request::default()).unwrap();
    let refused = left.merge(&right, hash).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Differs {
                what: "hash seed",
                mine: 1,
                theirs: 2
            }
        ),
        "{refused}"
    );
    assert_eq!(left.total(), counts(3));
}

#[test]
fn tables_of_other_sizes_merge() {
    let mut left = table(6400, 0..3);
    left.merge(&table(320, 2..8), hash).unwrap();
    assert_eq!(
        left.to_bytes(),
        table(6400, [0, 1, 2, 2, 3, 4, 5, 6, 7]).to_bytes()
    );
}

#[test]
fn the_parts_of_a_shared_table_go_into_one() {
    let shared = SharedExact::new(1 << 16, 1, &Request::default()).unwrap();
    let items: Vec<_> = (0..700).chain(0..300).map(item).collect();
    shared.update(&items);
    let mut one = table(1 << 16, []);
    shared.merge_into(&mut one, hash).unwrap();
    assert_eq!(
        one.to_bytes(),
        table(1 << 16, (0..700).chain(0..300)).to_bytes()
    );
    let mut entries = shared.entries();
    entries.sort_by_key(|(key, _)| *key);
    assert_eq!(
        entries,
        (0..700)
            .map(|key| (key, counts(1 + u64::from(key < 300))))
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_search_goes_on_at_the_first_slot() {
    for home in 0..200 {
        let mut table = Exact::new(16 * 32, 1, &Request::default()).unwrap();
        let items = [0, 1, 2, 3].map(|key| Item {
            hash: support::random(1, home),
            bytes: 10,
            key,
        });
        table.update(&items);
        table.update(&items);
        for item in items {
            assert_eq!(
                table.get(&item.key, item.hash),
                Some(counts(2)),
                "home {home}"
            );
        }
        assert_eq!(table.len(), 4);
    }
}
