//! Any bytes as an image of a sketch.

use weir_memory::{Policy, Request};

use super::hash;
use crate::image::{Kind, Writer};
use crate::{
    Cell, Cms, Error, Exact, Heavy, Item, MajorityVote, Mergeable, Pair, Reversible, SimpleTable,
    Spreaders, Weigh,
};

/// Largest memory that an image may ask for, bytes.
const MEMORY: usize = 1 << 16;

/// Reads `data` as an image of each kind: as it is, and between a valid header and a valid checksum.
///
/// **Panics**: if reading panics, if an accepted image differs from the image that the sketch writes, or if an update, a query or
/// a merge of the sketch with itself fails.
pub fn images(data: &[u8]) {
    let framed = |kind, key| {
        let mut image = Writer::new(kind, key, 1 << 32 | 0xffff);
        data.iter().for_each(|byte| image.u8(*byte));
        image.finish()
    };
    for image in [data, &framed(Kind::Exact, size_of::<Number>())] {
        exact(image);
    }
    for image in [data, &framed(Kind::Heavy, size_of::<Number>())] {
        heavy(image);
    }
    for image in [data, &framed(Kind::Spreaders, size_of::<Number>())] {
        spreaders(image);
    }
    for image in [data, &framed(Kind::Simple, size_of::<Number>())] {
        simple(image);
    }
    for image in [data, &framed(Kind::Majority, size_of::<Number>())] {
        votes(image);
    }
    for image in [data, &framed(Kind::Cms, 0)] {
        cms::<u32>(image);
        cms::<u64>(image);
    }
    for image in [data, &framed(Kind::Reversible, 0)] {
        reversible::<u32>(image);
        reversible::<u64>(image);
    }
    for image in [data, &framed(Kind::ReversibleSets, 10)] {
        super::reversible_sets::image(image);
    }
    let _ = Mergeable::from_bytes(data);
}

type Number = [u8; 2];

fn hash_of(seed: u64, key: &Number) -> u64 {
    hash(seed, u16::from_le_bytes(*key).into())
}

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

fn items(seed: u64) -> Vec<Item<Number>> {
    let keys = (0..40).map(|number| [number, 0]);
    keys.map(|key| Item {
        hash: hash_of(seed, &key),
        bytes: u32::MAX,
        key,
    })
    .collect()
}

fn exact(image: &[u8]) {
    let Ok(mut table) = Exact::<Number>::from_bytes(image, MEMORY, &request(), hash_of) else {
        return;
    };
    assert_eq!(table.to_bytes(), image);
    assert!(table.memory_bytes() <= MEMORY);
    table.update(&items(table.seed()));
    let other =
        Exact::from_bytes(image, MEMORY, &request(), hash_of).expect("it was accepted before");
    let seed = table.seed();
    bearable(table.merge(&other, |key| hash_of(seed, key)));
    let keys = table.iter().count();
    assert_eq!(keys, table.len());
    table.clear();
    assert!(table.is_empty());
}

fn heavy(image: &[u8]) {
    let Ok(mut table) = Heavy::<Number>::from_bytes(image, &request()) else {
        return;
    };
    assert_eq!(table.to_bytes(), image);
    let items = items(table.seed());
    table.update(&items);
    for item in &items {
        let (lower, upper) = table.bounds(&item.key, item.hash);
        assert!(lower <= upper);
    }
    let other = Heavy::from_bytes(image, &request()).expect("it was accepted before");
    bearable(table.merge(&other));
    let sum: u128 = table.iter().map(|entry| u128::from(entry.lower)).sum();
    assert!(sum <= u128::from(table.total().by(table.weigh())));
}

fn spreaders(image: &[u8]) {
    let Ok(mut sketch) = Spreaders::<Number>::from_bytes(image, &request()) else {
        return;
    };
    assert_eq!(sketch.to_bytes(), image);
    for listed in sketch.top(5) {
        assert!(listed.lower <= listed.estimate && listed.estimate <= listed.upper);
    }
    let other = Spreaders::from_bytes(image, &request()).expect("it was accepted before");
    bearable(sketch.merge(&other));
    assert_eq!(sketch.to_bytes(), image);
    let items = items(sketch.seed()).into_iter();
    let pairs: Vec<_> = items
        .map(|item| Pair {
            hash: item.hash,
            key: item.key,
        })
        .collect();
    sketch.update(&pairs);
    sketch.clear();
    assert!(sketch.is_exact());
}

fn simple(image: &[u8]) {
    let read = || SimpleTable::<Number>::from_bytes(image, MEMORY, &request(), hash_of);
    let Ok(mut table) = read() else {
        return;
    };
    assert_eq!(table.to_bytes(), image);
    assert!(table.memory_bytes() <= MEMORY);
    table.update(&items(table.seed()));
    let other = read().expect("it was accepted before");
    bearable(table.merge(&other, Weigh::Bytes));
    assert_eq!(table.iter().count(), table.len());
    table.clear();
    assert!(table.is_empty());
}

fn votes(image: &[u8]) {
    let read = || MajorityVote::<Number>::from_bytes(image, &request(), hash_of);
    let Ok(mut sketch) = read() else {
        return;
    };
    assert_eq!(sketch.to_bytes(), image);
    let seed = sketch.seed();
    let items = items(seed);
    sketch.update(&items);
    for item in &items {
        let (lower, upper) = sketch.bounds(&item.key, item.hash);
        assert!(lower <= upper);
    }
    let other = read().expect("it was accepted before");
    bearable(sketch.merge(&other));
    for entry in sketch.entries(|key| hash_of(seed, key)) {
        assert!(entry.lower <= entry.upper && entry.companion_lower <= entry.companion_upper);
    }
}

fn cms<C: Cell>(image: &[u8]) {
    let Ok(mut sketch) = Cms::<C>::from_bytes(image, &request()) else {
        return;
    };
    assert_eq!(sketch.to_bytes(), image);
    let before = sketch.estimate(7);
    sketch.update_weighted([(7, u32::MAX)]);
    assert!(sketch.estimate(7) >= before);
    let other = Cms::from_bytes(image, &request()).expect("it was accepted before");
    bearable(sketch.merge(&other));
    assert!(sketch.bound().epsilon > 0.0);
}

fn reversible<C: Cell>(image: &[u8]) {
    let Ok(mut sketch) = Reversible::<C>::from_bytes(image, &request()) else {
        return;
    };
    assert_eq!(sketch.to_bytes(), image);
    let before = sketch.estimate(7);
    sketch.update_weighted([(7, u32::MAX)]);
    assert!(sketch.estimate(7).upper >= before.upper);
    let other = Reversible::from_bytes(image, &request()).expect("it was accepted before");
    bearable(sketch.merge(&other));
    assert!(sketch.recover(u64::MAX).is_complete);
}

/// Checks that a merge succeeds or finds the totals too large.
fn bearable(merged: Result<(), Error>) {
    assert!(matches!(merged, Ok(()) | Err(Error::TooMuch)), "{merged:?}");
}
