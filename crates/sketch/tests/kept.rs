//! Images that earlier versions wrote, kept in `tests/formats`, are read by this one.
//!
//! The stream is stated here, and a map of it is the truth: key `n` of 1 to 300 has `1 + 900 / n` packets of `n` bytes each.

use std::collections::BTreeMap;
use std::path::Path;
use weir_memory::Request;
use weir_sketch::{Cms, Exact, Heavy, MajorityVote, Reversible, SimpleTable, Spreaders};

/// Versions whose images are kept.
const VERSIONS: [&str; 1] = ["0.1"];

/// Numbers of packets and bytes by key.
fn truth() -> BTreeMap<u32, (u64, u64)> {
    let counts = |n: u32| (u64::from(1 + 900 / n), u64::from(n * (1 + 900 / n)));
    (1..=300).map(|n| (n, counts(n))).collect()
}

/// A hash of a key: the finalizer of SplitMix64.
fn hash(key: u32) -> u64 {
    let mut hash = u64::from(key).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn kept(version: &str, name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    std::fs::read(folder.join(version).join(name)).expect("the image is kept")
}

#[test]
fn counts_of_earlier_versions_are_read_and_go_on() {
    let (truth, request) = (truth(), &Request::default());
    let packets: u64 = truth.values().map(|(packets, _)| packets).sum();
    for version in VERSIONS {
        let image = kept(version, "exact.image");
        let hash_of = |_, key: &[u8; 4]| hash(u32::from_be_bytes(*key));
        let exact = Exact::<[u8; 4]>::from_bytes(&image, 1 << 16, request, hash_of).unwrap();
        let image = kept(version, "heavy.image");
        let heavy = Heavy::<[u8; 4]>::from_bytes(&image, request).unwrap();
        let image = kept(version, "count-min.image");
        let cms = Cms::<u32>::from_bytes(&image, request).unwrap();
        assert_eq!((heavy.total().packets, cms.total()), (packets, packets));
        for (&number, &(packets, bytes)) in &truth {
            let counts = exact.get(&key(number), hash(number)).unwrap();
            assert_eq!((counts.packets, counts.bytes), (packets, bytes), "{number}");
            let (lower, upper) = heavy.bounds(&key(number), hash(number));
            assert!(
                (lower..=upper).contains(&packets),
                "{number}: {lower} to {upper}"
            );
            assert!(cms.estimate(hash(number)) >= packets, "{number}");
        }
        // The largest keys are in the table, and a merge with itself has twice their packets.
        let largest = heavy.get(&key(1), hash(1)).unwrap();
        assert!(largest.lower > 800 && largest.upper >= 901, "{largest:?}");
        let mut twice = Cms::<u32>::from_bytes(&image, request).unwrap();
        twice.merge(&cms).unwrap();
        assert_eq!(twice.total(), 2 * packets);
    }
}

#[test]
fn tables_of_the_study_of_earlier_versions_are_read() {
    let (truth, request) = (truth(), &Request::default());
    let hash_of = |_, key: &[u8; 4]| hash(u32::from_be_bytes(*key));
    for version in VERSIONS {
        let image = kept(version, "simple.image");
        let simple = SimpleTable::<[u8; 4]>::from_bytes(&image, 1 << 12, request, hash_of).unwrap();
        assert_eq!(simple.to_bytes(), image);
        let image = kept(version, "votes.image");
        let votes = MajorityVote::<[u8; 4]>::from_bytes(&image, request, hash_of).unwrap();
        assert_eq!(votes.to_bytes(), image);
        let evicted = simple.evicted();
        for (&number, &(packets, bytes)) in &truth {
            let counts = simple.get(&key(number), hash(number)).unwrap_or_default();
            let most = (
                counts.packets + evicted.packets,
                counts.bytes + evicted.bytes,
            );
            assert!((counts.packets..=most.0).contains(&packets), "{number}");
            assert!((counts.bytes..=most.1).contains(&bytes), "{number}");
            let (lower, upper) = votes.bounds(&key(number), hash(number));
            assert!((lower..=upper).contains(&bytes), "{number}");
        }
    }
}

#[test]
fn reversible_sketches_of_earlier_versions_are_read_and_name_their_keys() {
    for version in VERSIONS {
        let image = kept(version, "reversible.image");
        let mut sketch = Reversible::<u32>::from_bytes(&image, &Request::default()).unwrap();
        assert_eq!(sketch.to_bytes(), image);
        let keys: Vec<_> = sketch
            .recover(250)
            .heavy
            .iter()
            .map(|key| key.key)
            .collect();
        assert_eq!(keys, [1, 2, 3]);
        // The hash functions are the same, so that a merge adds to the same cells.
        let mut other =
            Reversible::new(sketch.shape(), sketch.seed(), &Request::default()).unwrap();
        let counts = truth()
            .into_iter()
            .map(|(key, (packets, _))| (key.into(), packets as u32));
        other.update_weighted(counts);
        assert_eq!(other.to_bytes(), image);
        sketch.merge(&other).unwrap();
        assert!(sketch.estimate(1).upper >= 2 * 901);
    }
}

/// Source `n` of 1 to 20 has sent to `50 * n` destinations.
#[test]
fn spreaders_of_earlier_versions_are_read() {
    for version in VERSIONS {
        let image = kept(version, "spreaders.image");
        let spreaders = Spreaders::<[u8; 4]>::from_bytes(&image, &Request::default()).unwrap();
        assert_eq!(spreaders.to_bytes(), image);
        let top = spreaders.top(5);
        let right = top
            .iter()
            .filter(|it| u32::from_be_bytes(it.key) > 12)
            .count();
        assert!(right >= 4, "{top:?}");
    }
}
