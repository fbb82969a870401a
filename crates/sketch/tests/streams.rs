//! Sketches of every kind on streams of many shapes, compared with exact counts: bounds, merges, images, shared forms.

mod support;

use support::{shapes, sized, sized_plain, zipf};
use weir_memory::Request;
use weir_sketch::fuzz_body::World;
use weir_sketch::{Exact, Heavy, Item, Key, Weigh};

/// A seed that does not limit the number of hashes.
fn seed_of(seed: u64) -> u64 {
    seed << 32 | 0xffff_ffff
}

/// Runs a stream through a world: half of it on each side, interleaved in runs, merged in the middle and at the end.
fn through<K: Key>(memory: usize, seed: u64, key: fn(u32) -> K, packets: &[(u32, u32)]) {
    let mut world = World::new(memory, seed_of(seed), key);
    for (index, run) in packets.chunks(packets.len() / 6 + 1).enumerate() {
        match index % 2 {
            0 => world.see_left(run),
            _ => world.see_right(run),
        }
        if index == 3 {
            world.check();
            world.merge();
            world.store();
        }
    }
    world.check();
    world.merge();
    world.check();
}

#[test]
fn shapes_of_streams_in_little_memory() {
    for seed in 0..2 {
        for (name, keys) in shapes(seed, 3000) {
            println!("{name}, seed {seed}");
            through(2000, seed, |number| number, &sized(seed, &keys));
            through(8000, seed, |number| number, &sized_plain(seed, &keys));
        }
    }
}

#[test]
fn shapes_of_streams_in_enough_memory() {
    for (name, keys) in shapes(9, 2000) {
        println!("{name}");
        through(200_000, 9, |number| number, &sized(9, &keys));
    }
}

#[test]
fn keys_of_every_width() {
    fn wide<const N: usize>(number: u32) -> [u8; N] {
        // The number is in the middle of zeros, so that neither end of a key distinguishes it.
        let mut key = [0; N];
        let middle = N / 2 - 1;
        key[middle..middle + 4].copy_from_slice(&number.to_le_bytes());
        key
    }
    let packets = sized(3, &zipf(3, 3000, 1500, 1.0));
    through(9000, 3, wide::<13>, &packets);
    through(9000, 3, wide::<17>, &packets);
    through(9000, 3, wide::<100>, &packets);
    through(9000, 3, |number| u16::try_from(number).unwrap(), &packets);
}

#[test]
fn hashes_that_do_not_tell_keys_apart() {
    for hashes in [1, 2, 13] {
        let mut world = World::new(4000, 77 << 32 | hashes, |number| number);
        world.see_left(&sized(1, &zipf(1, 2000, 40, 0.8)));
        world.see_right(&sized(2, &zipf(2, 2000, 40, 0.8)));
        world.check();
        world.merge();
        world.check();
    }
}

/// Free slots hold zeros too, so the key of zeros needs care.
#[test]
fn the_key_of_zeros_is_a_key() {
    for hash in (0..1 << 20).step_by(97) {
        let mut heavy = Heavy::new(1024, Weigh::Packets, 0, &Request::default()).unwrap();
        let item = |key: u32| Item {
            hash,
            bytes: 9,
            key,
        };
        heavy.update(&[item(1), item(0), item(0), item(2)]);
        let mut entries: Vec<_> = heavy
            .iter()
            .map(|entry| (entry.key, entry.lower, entry.upper))
            .collect();
        entries.sort_unstable();
        assert_eq!(entries, [(0, 2, 2), (1, 1, 1), (2, 1, 1)]);

        let mut exact = Exact::new(1024, 0, &Request::default()).unwrap();
        assert_eq!(exact.get(&0, hash), None);
        exact.update(&[item(1), item(0), item(0), item(2)]);
        assert_eq!(exact.get(&0, hash).map(|counts| counts.packets), Some(2));
    }
}

#[test]
fn a_heavy_table_tells_which_keys_were_not_in() {
    let [mut told, mut asked, mut stepped] =
        [(); 3].map(|()| Heavy::<u32>::new(4000, Weigh::Packets, 3, &Request::default()).unwrap());
    let items: Vec<Item<u32>> = zipf(3, 20_000, 1000, 1.1)
        .iter()
        .map(|&key| Item {
            hash: u64::from(key).wrapping_mul(seed_of(3) | 1),
            bytes: 60,
            key,
        })
        .collect();
    for items in items.chunks(49) {
        // Packets counted one by one; each key is looked up before its packet is counted.
        let one = |(i, item): (usize, &Item<u32>)| {
            let new = asked.get(&item.key, item.hash).is_none();
            asked.update(core::slice::from_ref(item));
            u64::from(new) << i
        };
        let expected: u64 = items.iter().enumerate().map(one).sum();
        let mut new = 0u64;
        told.update_and_tell(items, |i| new |= 1 << i);
        assert_eq!(new, expected);
        // Counted in three steps, with guesses that are right, old, wrong or beyond the slots.
        let mut guesses = vec![0; items.len()];
        stepped.prefetch_buckets(items);
        stepped.prefetch_counts(items, &mut guesses);
        guesses
            .iter_mut()
            .enumerate()
            .for_each(|(i, guess)| *guess = [*guess, 255, 0, i as u8][i % 4]);
        let mut new = 0u64;
        stepped.add(items, &guesses, |i| new |= 1 << i);
        assert_eq!(new, expected);
    }
    assert_eq!(told.top(100), asked.top(100));
    assert_eq!(
        (stepped.top(100), stepped.total()),
        (asked.top(100), asked.total())
    );
}
