use super::super::keys::{self, Keys, Kind, Link};
use super::*;
use crate::disk::testing::{START_NS, packets, sparse};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use weir_packet::LinkType;
use weir_testkit::{Random, Scratch};

/// Blocks of each key, by a map.
#[derive(Default)]
struct Naive {
    block: u32,
    blocks: BTreeMap<(Kind, u128), BTreeSet<u32>>,
}

impl Keys for Naive {
    fn small(&mut self, kind: Kind, value: u16) {
        self.blocks
            .entry((kind, value.into()))
            .or_default()
            .insert(self.block);
    }

    fn v4(&mut self, address: u32) {
        self.blocks
            .entry((Kind::V4, address.into()))
            .or_default()
            .insert(self.block);
    }

    fn v6(&mut self, address: u128) {
        self.blocks
            .entry((Kind::V6, address))
            .or_default()
            .insert(self.block);
    }

    fn unknown(&mut self) {
        unreachable!("all packets are whole")
    }
}

fn entry(number: u32) -> Entry {
    let mut block = Block::empty(u64::from(number) * 10);
    (block.packets, block.bytes) = (10, 1000);
    (block.min_ns, block.max_ns) = (
        START_NS + i64::from(number),
        START_NS + i64::from(number) + 5,
    );
    Entry {
        offset: u64::from(number) * 1096,
        block,
        interfaces: 1,
        mark: 96,
    }
}

/// An index of `count` packets, ten in each block, some of IPv6, and the naive twin.
fn built(count: usize, most: usize) -> (Builder, Naive) {
    let (mut builder, mut naive) = (Builder::new(most), Naive::default());
    builder.interface(0, LinkType::ETHERNET);
    let mut random = Random(3);
    for (number, (_, mut data)) in packets(count, 12).into_iter().enumerate() {
        data.resize(80, 0);
        if random.below(4) == 0 {
            data[12..14].copy_from_slice(&[0x86, 0xdd]);
            data[20] = 17;
        }
        builder.packet(0, &data);
        keys::of(Link::of(LinkType::ETHERNET).unwrap(), &data, &mut naive);
        if number % 10 == 9 {
            builder.block(entry(naive.block));
            naive.block += 1;
        }
    }
    (builder, naive)
}

#[test]
fn lookups_give_what_a_map_gives() {
    let (builder, naive) = built(30_000, 1 << 20);
    let scratch = Scratch::new();
    let path = scratch.file("x.index", &builder.finish(7, START_NS, 3000 * 1096));
    let mut index = Index::open(path.as_ref(), 7, START_NS, 3000 * 1096).unwrap();
    let header = read::Header::open(path.as_ref(), 7, START_NS, 3000 * 1096).unwrap();
    assert_eq!(
        (header.times, header.blocks),
        ((START_NS, START_NS + 2999 + 5), 3000)
    );
    assert!(index.blocks.iter().copied().eq((0..3000).map(entry)));
    assert!(index.unindexed.is_empty());
    for (&(kind, key), blocks) in &naive.blocks {
        let found = index.blocks_of(kind, key..=key).unwrap();
        assert!(found.iter().eq(blocks.iter().copied()), "{kind:?} {key:x}");
        // A neighbour that is not there.
        if !naive.blocks.contains_key(&(kind, key + 1)) {
            assert!(index.blocks_of(kind, key + 1..=key + 1).unwrap().is_empty());
        }
    }
    let mut random = Random(8);
    let keys: Vec<_> = naive.blocks.keys().copied().collect();
    for _ in 0..300 {
        let (kind, from) = keys[random.below(keys.len())];
        let to = from + random.below(3000) as u128;
        let expected: BTreeSet<_> = naive
            .blocks
            .range((kind, from)..=(kind, to))
            .flat_map(|(_, blocks)| blocks.iter().copied())
            .collect();
        assert!(
            index
                .blocks_of(kind, from..=to)
                .unwrap()
                .iter()
                .eq(expected),
            "{kind:?} {from:x} {to:x}"
        );
    }
    for kind in Kind::ALL {
        assert!(index.blocks_of(kind, 0..=u128::MAX).unwrap().len() <= 3000);
    }
}

#[test]
fn every_damaged_byte_is_noticed_and_every_other_segment_refused() {
    let (builder, _) = built(200, 1 << 20);
    let scratch = Scratch::new();
    let bytes = builder.finish(7, START_NS, 20 * 1096);
    let path = scratch.at("x.index");
    let checked = |bytes: &[u8], generation: u64, start_ns: i64, len: u64| {
        fs::write(&path, bytes).unwrap();
        Index::open(path.as_ref(), generation, start_ns, len).and_then(|mut index| index.check())
    };
    checked(&bytes, 7, START_NS, 20 * 1096).unwrap();
    let mut random = Random(2);
    for at in (0..bytes.len()).step_by(sparse(7)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        assert!(checked(&damaged, 7, START_NS, 20 * 1096).is_err(), "{at}");
        assert!(
            checked(&bytes[..at], 7, START_NS, 20 * 1096).is_err(),
            "{at}"
        );
    }
    for (generation, start_ns, len) in [
        (8, START_NS, 20 * 1096),
        (7, START_NS + 1, 20 * 1096),
        (7, START_NS, 20 * 1096 + 1),
    ] {
        assert!(matches!(
            checked(&bytes, generation, start_ns, len),
            Err(IndexDamage::Other)
        ));
    }
    assert!(matches!(
        Index::open("nowhere".as_ref(), 7, 0, 0),
        Err(IndexDamage::Io(_))
    ));
}

#[test]
fn a_block_whose_keys_find_no_room_is_found_for_every_key() {
    // Room for some of the pairs of a key and a block.
    let (builder, naive) = built(5000, 4000);
    let scratch = Scratch::new();
    let path = scratch.file("x.index", &builder.finish(7, START_NS, 500 * 1096));
    let mut index = Index::open(path.as_ref(), 7, START_NS, 500 * 1096).unwrap();
    assert!(index.unindexed.len() > 100 && index.unindexed.len() < 500);
    for (&(kind, key), blocks) in &naive.blocks {
        let found = index.blocks_of(kind, key..=key).unwrap();
        assert!(
            blocks.iter().all(|&block| found.contains(block)),
            "{kind:?} {key:x}"
        );
        assert!(
            found
                .iter()
                .all(|block| blocks.contains(&block) || index.unindexed.contains(block))
        );
    }
    // More addresses than the table has room for.
    let mut builder = Builder::new(1 << 20);
    builder.interface(0, LinkType::ETHERNET);
    let mut frame = packets(1, 1).remove(0).1;
    for address in 0..300_000u32 {
        frame[26..30].copy_from_slice(&address.wrapping_mul(2_654_435_761).to_be_bytes());
        builder.packet(0, &frame);
    }
    builder.block(entry(0));
    let path = scratch.file("x.index", &builder.finish(7, START_NS, 1096));
    let index = Index::open(path.as_ref(), 7, START_NS, 1096).unwrap();
    assert_eq!(index.unindexed.iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn frames_of_other_links_leave_their_block_unindexed() {
    let mut builder = Builder::new(1 << 10);
    builder.interface(0, LinkType::ETHERNET);
    builder.interface(1, LinkType::IEEE802_11);
    for number in 0..4 {
        builder.packet(u32::from(number == 2), &[0; 60]);
        builder.block(entry(number));
    }
    let scratch = Scratch::new();
    let path = scratch.file("x.index", &builder.finish(1, 0, 4 * 1096));
    let index = Index::open(path.as_ref(), 1, 0, 4 * 1096).unwrap();
    assert_eq!(index.unindexed.iter().collect::<Vec<_>>(), [2]);
}
