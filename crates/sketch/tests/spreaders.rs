//! Spreaders against sets of pairs: numbers, bounds, merges, images.

mod support;

use std::collections::{HashMap, HashSet};

use support::random;
use weir_memory::{Policy, Request};
use weir_sketch::{Contact, Marks, Pair, Spreader, Spreaders};

fn request() -> Request {
    Request {
        pages: Policy::Virtual,
        ..Request::default()
    }
}

fn sketch(memory: usize, seed: u64) -> Spreaders<u32> {
    Spreaders::new(memory, seed, &request()).expect("there is memory")
}

fn pair(seed: u64, key: u32, element: u32) -> Pair<u32> {
    let hash = random(seed, u64::from(key) << 32 | u64::from(element));
    Pair { hash, key }
}

/// Pairs of a few large keys and many small ones, some of them repeated, in an order that `seed` draws.
fn stream(seed: u64, large: u32, small: u32) -> Vec<(u32, u32)> {
    let mut pairs: Vec<(u32, u32)> = (0..large)
        .flat_map(|key| (0..500 * (key + 1)).map(move |element| (key, element)))
        .chain(
            (0..small).flat_map(|key| (0..key % 4 + 1).map(move |element| (key + 1000, element))),
        )
        .collect();
    pairs.extend_from_within(..pairs.len() / 2);
    pairs.sort_by_key(|(key, element)| {
        random(seed ^ 0x0dd, u64::from(*key) << 32 | u64::from(*element))
    });
    pairs
}

fn truth(pairs: &[(u32, u32)]) -> HashMap<u32, u64> {
    let distinct: HashSet<_> = pairs.iter().collect();
    let mut truth = HashMap::new();
    distinct
        .iter()
        .for_each(|(key, _)| *truth.entry(*key).or_insert(0) += 1);
    truth
}

fn fed(memory: usize, seed: u64, pairs: &[(u32, u32)]) -> Spreaders<u32> {
    let mut sketch = sketch(memory, seed);
    for pairs in pairs.chunks(150) {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, element)| pair(seed, *key, *element))
            .collect();
        sketch.update(&pairs);
    }
    sketch
}

#[test]
fn numbers_are_exact_while_all_pairs_fit() {
    let pairs = stream(1, 8, 500);
    let sketch = fed(1 << 20, 1, &pairs);
    assert!(sketch.is_exact() && sketch.share() == 1.0 && !sketch.is_saturated());
    let truth = truth(&pairs);
    assert_eq!(sketch.distinct(), truth.values().sum());
    let listed = sketch.top(usize::MAX);
    assert_eq!(listed.len(), truth.len());
    assert!(listed.is_sorted_by(
        |a, b| (b.estimate, a.key.to_ne_bytes()) <= (a.estimate, b.key.to_ne_bytes())
    ));
    for Spreader {
        key,
        estimate,
        lower,
        upper,
        unanswered,
        refused,
    } in listed
    {
        assert_eq!([estimate, lower, upper], [truth[&key]; 3]);
        assert_eq!([unanswered, refused], [None; 2], "there are no answers");
        assert_eq!(sketch.estimate(&key).estimate, estimate);
    }
    let (top, others) = sketch.ranking(3);
    assert_eq!(
        top.iter()
            .map(|it| (it.key, it.estimate))
            .collect::<Vec<_>>(),
        [(7, 4000), (6, 3500), (5, 3000)]
    );
    assert_eq!(others, 2500);
}

/// The mean of many seeds is the truth, bounds hold as often as they say, and the list is the right one.
#[test]
fn estimates_are_unbiased_and_bounds_hold() {
    let (pairs, seeds) = (stream(2, 8, 3000), 300);
    let truth = truth(&pairs);
    let (mut sums, mut broken, mut asked) = ([0; 8], 0, 0);
    for seed in 0..seeds {
        let sketch = fed(12 << 10, seed, &pairs);
        assert!(!sketch.is_exact() && sketch.share() < 0.06);
        let (top, others) = sketch.ranking(4);
        for key in (0..8).chain([1001, 1002, 1003, 77]) {
            let Spreader {
                estimate,
                lower,
                upper,
                ..
            } = sketch.estimate(&key);
            let true_number = truth.get(&key).copied().unwrap_or(0);
            assert!(lower <= estimate && estimate <= upper);
            asked += 1;
            broken += usize::from(!(lower..=upper).contains(&true_number));
            if let Some(sum) = sums.get_mut(key as usize) {
                *sum += estimate;
            }
            let listed = top.iter().any(|it| it.key == key);
            assert!(listed || upper <= others, "{key}: {upper} above {others}");
        }
        let all: u64 = truth.values().sum();
        assert!(sketch.distinct().abs_diff(all) < all / 6);
    }
    for (key, sum) in (0..).zip(sums) {
        let mean = sum as f64 / seeds as f64 / truth[&key] as f64;
        assert!((mean - 1.0).abs() < 0.05, "{key}: {mean} of the truth");
    }
    assert!(
        broken * 100 < asked * 6,
        "{broken} of {asked} bounds do not hold"
    );
}

#[test]
fn parts_merge_into_the_whole_in_any_order() {
    let pairs = stream(3, 6, 2000);
    for memory in [200, 3000, 40_000, 1 << 20] {
        let whole = fed(memory, 9, &pairs);
        for parts in [2, 8] {
            let part = |number: usize| {
                let part: Vec<_> = pairs.iter().skip(number).step_by(parts).copied().collect();
                fed(memory, 9, &part)
            };
            let mut merged = sketch(memory, 9);
            for number in (0..parts).rev() {
                merged.merge(&part(number)).unwrap();
            }
            assert_eq!(merged.to_bytes(), whole.to_bytes());
            assert_eq!(merged.ranking(20), whole.ranking(20));
            merged.merge(&whole).unwrap();
            assert_eq!(merged.to_bytes(), whole.to_bytes());
        }
        let mut backwards = pairs.clone();
        backwards.reverse();
        assert_eq!(fed(memory, 9, &backwards).to_bytes(), whole.to_bytes());
    }
    let mut one = sketch(4096, 1);
    assert_eq!(
        one.merge(&sketch(4096, 2)).unwrap_err().to_string(),
        "sketches of different hash seed cannot be merged: 1 here, 2 there"
    );
    assert_eq!(
        one.merge(&sketch(8192, 1)).unwrap_err().to_string(),
        "sketches of different buckets cannot be merged: 63 here, 126 there"
    );
    assert_eq!(
        Spreaders::<u32>::new(64, 1, &request())
            .unwrap_err()
            .to_string(),
        "64 bytes are too little memory, 65 are the least"
    );
}

#[test]
fn images_keep_the_sample_and_clear_forgets_it() {
    let pairs = stream(4, 6, 2000);
    let mut sketch = fed(9000, 5, &pairs);
    let image = sketch.to_bytes();
    let read = Spreaders::<u32>::from_bytes(&image, &request()).unwrap();
    assert_eq!((read.to_bytes(), read.seed()), (image.clone(), 5));
    assert_eq!(read.ranking(9), sketch.ranking(9));
    assert!(Spreaders::<u64>::from_bytes(&image, &request()).is_err());
    for at in 0..image.len() {
        let mut changed = image.clone();
        changed[at] ^= 1;
        assert!(
            Spreaders::<u32>::from_bytes(&changed, &request()).is_err(),
            "byte {at}"
        );
    }
    sketch.clear();
    assert!(sketch.is_exact() && sketch.top(5).is_empty() && sketch.distinct() == 0);
    assert_eq!(sketch.ranking(5).1, 0);
    // What comes after is as in a new sketch.
    sketch.update(&[pair(5, 1, 2), pair(5, 1, 3), pair(5, 1, 2)]);
    assert_eq!(
        sketch.estimate(&1),
        Spreader {
            key: 1,
            estimate: 2,
            lower: 2,
            upper: 2,
            unanswered: None,
            refused: None
        }
    );
}

/// The bytes by hand. The hash 0 is mixed to 0, which is the least rank, 8, of the first bucket.
#[test]
fn the_image_is_as_documented() {
    let mut sketch = sketch(130, 0x0102);
    sketch.update(&[Pair {
        hash: 0,
        key: 0x0a0b,
    }]);
    let mut bytes = b"weirskch\x01\0\x04".to_vec();
    bytes.push(if cfg!(target_endian = "little") { 1 } else { 2 });
    bytes.extend([4, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    bytes.extend([0, 0, 0, 0, 1, 8, 0, 0, 0]);
    bytes.extend(0x0a0bu32.to_ne_bytes());
    bytes.extend([0; 5]);
    let image = sketch.to_bytes();
    assert_eq!(image[..image.len() - 8], bytes);
    let read = Spreaders::<u32>::from_bytes(&image, &request()).unwrap();
    assert_eq!(read.estimate(&0x0a0b).estimate, 1);
}

/// A filled sketch says so. The pairs are written into the image: a true stream would take days.
#[test]
fn a_saturated_sketch_says_so() {
    let mut image = sketch(130, 1).to_bytes();
    assert_eq!(image.len(), 24 + 12 + 2 * 5 + 8);
    image.truncate(image.len() - 5 - 8);
    image.extend((u32::MAX - 0x4007).to_le_bytes());
    image.push(7);
    for number in 0..7 {
        image.extend((u32::MAX - 7 - 8 * number).to_le_bytes());
        image.extend(number.to_le_bytes());
    }
    let sum = image.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    image.extend(sum.to_le_bytes());
    let sketch = Spreaders::<u32>::from_bytes(&image, &request()).unwrap();
    assert!(sketch.is_saturated() && !sketch.is_exact());
    let found = sketch.estimate(&3);
    assert!(
        found.estimate.abs_diff(0xffff_ffff / 0x4007) <= 1,
        "{found:?}"
    );
    assert!(found.lower < found.estimate && found.estimate < found.upper);
}

/// Keys of other lengths: addresses of IPv6, and pairs of addresses.
#[test]
fn keys_have_any_length() {
    fn check<K: weir_sketch::Key + std::hash::Hash>(key: fn(u32) -> K, bucket: usize) {
        let mut sketch = Spreaders::new(bucket * 100, 3, &request()).unwrap();
        assert_eq!(
            (sketch.memory_bytes(), sketch.capacity()),
            (bucket * 100, 700)
        );
        let pairs: Vec<_> = stream(3, 2, 20)
            .iter()
            .map(|(number, element)| Pair {
                hash: pair(3, *number, *element).hash,
                key: key(*number),
            })
            .collect();
        sketch.update(&pairs);
        let top: Vec<K> = sketch.top(2).into_iter().map(|it| it.key).collect();
        assert_eq!(top, [key(1), key(0)]);
        let read = Spreaders::<K>::from_bytes(&sketch.to_bytes(), &request()).unwrap();
        assert_eq!(read.top(9), sketch.top(9));
    }
    let packets = [(7u32, 1u32), (7, 2), (8, 1)];
    let mut sketch = sketch(4096, 1);
    sketch.update_as(&packets, |(key, element)| pair(1, *key, *element));
    assert_eq!(sketch.top(1)[0].estimate, 2);
    assert!(sketch.obtained().page_bytes >= 4096);
    check(|number| number, 65);
    check(|number| u64::from(number) << 20, 97);
    check(|number| u128::from(number) << 70, 161);
    check(|number| [number as u8, 1, 2, 3, 4, 5, 6], 97);
}

/// A pair with the marks that a packet gives to it.
#[derive(Clone, Copy)]
struct Marked {
    pair: Pair<u32>,
    marks: Marks,
}

impl Contact<u32> for Marked {
    fn pair(&self) -> u64 {
        self.pair.hash
    }

    fn key(&self) -> u32 {
        self.pair.key
    }

    fn marks(&self) -> Marks {
        self.marks
    }
}

/// Packets between hosts, with the number of the sender, of the receiver, and whether the packet is a refusal.
type Dialogue = (u32, u32, bool);

/// Both sides of a packet: the contact of its sender, and the answer to its receiver.
fn sides(seed: u64, (from, to, refuses): Dialogue) -> [Marked; 2] {
    let answer = if refuses {
        Marks::REFUSAL
    } else {
        Marks::ANSWER
    };
    let marked = |key, element, marks| Marked {
        pair: pair(seed, key, element),
        marks,
    };
    [marked(from, to, Marks::CONTACT), marked(to, from, answer)]
}

/// A scanner, two servers with many clients, and a host that refuses: most packets several times, in an order that `seed` draws.
fn dialogues(seed: u64) -> Vec<Dialogue> {
    let scan = (0..900).flat_map(|to| {
        let probe = (7, 10_000 + to, false);
        let reply = (10_000 + to, 7, to % 3 == 0);
        [probe, if to % 3 < 2 { reply } else { probe }]
    });
    let server = |server: u32, clients: u32| {
        (0..clients).flat_map(move |client| {
            let client = 20_000 + client;
            [(client, server, false), (server, client, false)]
        })
    };
    let mut packets: Vec<_> = scan.chain(server(1, 2000)).chain(server(2, 600)).collect();
    // An accepted answer outweighs a refusal of the same element.
    packets.extend([(10_000, 7, false), (10_003, 7, false)]);
    packets.extend_from_within(..packets.len() / 2);
    packets.sort_by_key(|(from, to, refuses)| {
        let pair = u64::from(*from) << 32 | u64::from(*to);
        random(seed ^ 0x0dd, pair << 1 | u64::from(*refuses))
    });
    packets
}

/// Numbers of elements of a key that were contacted, did not answer, and answered with refusals only: by sets of packets.
fn known(packets: &[Dialogue], key: u32) -> [u64; 3] {
    let all: HashSet<_> = packets.iter().copied().collect();
    let contacted: HashSet<u32> = all.iter().filter(|it| it.0 == key).map(|it| it.1).collect();
    let has = |element: u32, refuses: bool| all.contains(&(element, key, refuses));
    let count = |is: &dyn Fn(u32) -> bool| contacted.iter().filter(|it| is(**it)).count() as u64;
    [
        contacted.len() as u64,
        count(&|it| !has(it, false) && !has(it, true)),
        count(&|it| !has(it, false) && has(it, true)),
    ]
}

fn told(sketch: &Spreaders<u32>, key: u32) -> [u64; 3] {
    let found = sketch.estimate(&key);
    let known = |number: Option<u64>| number.expect("there are answers");
    [
        found.estimate,
        known(found.unanswered),
        known(found.refused),
    ]
}

fn fed_with_both_sides(memory: usize, seed: u64, packets: &[Dialogue]) -> Spreaders<u32> {
    let mut sketch = sketch(memory, seed);
    for packets in packets.chunks(150) {
        let contacts: Vec<_> = packets.iter().flat_map(|it| sides(seed, *it)).collect();
        sketch.update(&contacts);
    }
    sketch
}

#[test]
fn answers_are_known_whoever_began() {
    let packets = dialogues(11);
    let sketch = fed_with_both_sides(1 << 20, 11, &packets);
    assert!(sketch.is_exact() && sketch.knows_answers());
    for key in [7, 1, 2, 20_001, 10_000, 10_002] {
        assert_eq!(told(&sketch, key), known(&packets, key), "{key}");
    }
    assert_eq!(known(&packets, 7), [900, 300, 298]);
    assert_eq!(known(&packets, 1), [2000, 0, 0]);
    // Packets of one direction only: whether contacts were answered is not known.
    let probes: Vec<_> = packets.iter().filter(|it| it.0 == 7).copied().collect();
    let one_way = fed_with_both_sides(1 << 20, 11, &probes);
    assert!(!one_way.knows_answers());
    let found = one_way.estimate(&7);
    assert_eq!(
        (found.estimate, found.unanswered, found.refused),
        (900, None, None)
    );
    assert_eq!(
        one_way.estimate(&10_000).estimate,
        0,
        "an answer alone is no contact"
    );
    assert_eq!(one_way.distinct(), 900);
    let mut none = fed_with_both_sides(4096, 11, &[]);
    none.update(&[Marked {
        pair: pair(11, 1, 2),
        marks: Marks::NONE,
    }]);
    assert!(none.to_bytes() == fed_with_both_sides(4096, 11, &[]).to_bytes());
}

/// With marks too, parts merge into the whole, and packets may come in any order.
#[test]
fn marks_of_parts_merge_in_any_order() {
    let packets = dialogues(12);
    for memory in [200, 3000, 40_000, 1 << 20] {
        let whole = fed_with_both_sides(memory, 9, &packets);
        let part = |number: usize| {
            let part: Vec<_> = packets.iter().skip(number).step_by(8).copied().collect();
            fed_with_both_sides(memory, 9, &part)
        };
        for order in [
            [0, 1, 2, 3, 4, 5, 6, 7],
            [7, 6, 5, 4, 3, 2, 1, 0],
            [3, 1, 4, 0, 5, 7, 2, 6],
        ] {
            let mut merged = sketch(memory, 9);
            for number in order {
                merged.merge(&part(number)).unwrap();
            }
            assert_eq!(merged.to_bytes(), whole.to_bytes());
            assert_eq!(merged.ranking(20), whole.ranking(20));
        }
        let mut backwards = packets.clone();
        backwards.reverse();
        assert_eq!(
            fed_with_both_sides(memory, 9, &backwards).to_bytes(),
            whole.to_bytes()
        );
        let read = Spreaders::<u32>::from_bytes(&whole.to_bytes(), &request()).unwrap();
        assert_eq!(read.to_bytes(), whole.to_bytes());
        assert_eq!(read.ranking(9), whole.ranking(9));
    }
}

/// Numbers of unanswered and refused elements are unbiased too.
#[test]
fn unanswered_elements_are_estimated_without_bias() {
    let packets = dialogues(13);
    let seeds = 300;
    let mut sums = [0; 3];
    for seed in 0..seeds {
        let sketch = fed_with_both_sides(6 << 10, seed, &packets);
        assert!(!sketch.is_exact());
        let found = told(&sketch, 7);
        assert!(found[1] + found[2] <= found[0] + 1);
        (0..3).for_each(|at| sums[at] += found[at]);
        assert_eq!(told(&sketch, 1)[1], 0, "all clients have answered");
    }
    for (sum, truth) in sums.into_iter().zip(known(&packets, 7)) {
        let mean = sum as f64 / seeds as f64 / truth as f64;
        assert!((mean - 1.0).abs() < 0.06, "{mean} of {truth}");
    }
}

/// The bytes by hand, for each of the marks. The hash 0 has the rank 8.
#[test]
fn marks_stand_in_the_last_bits_of_a_rank() {
    let (contact, answer, refusal) = (Marks::CONTACT, Marks::ANSWER, Marks::REFUSAL);
    let given: [(&[Marks], u8); 6] = [
        (&[contact], 0),
        (&[refusal], 3),
        (&[answer], 7),
        (&[contact, refusal], 2),
        (&[refusal, contact, answer], 6),
        (&[answer, refusal], 7),
    ];
    let mut accepted = Vec::new();
    for (marks, bits) in given {
        let mut sketch = sketch(130, 1);
        let pair = Pair { hash: 0, key: 5 };
        marks.iter().for_each(|marks| {
            sketch.update(&[Marked {
                pair,
                marks: *marks,
            }])
        });
        let image = sketch.to_bytes();
        assert_eq!(image[41..45], [8 + bits, 0, 0, 0]);
        accepted.push(bits);
    }
    let image = fed(130, 1, &[]).to_bytes();
    for bits in 0..8u8 {
        let mut image = image[..36].to_vec();
        image.extend([0, 0, 0, 0, 1, 8 + bits, 0, 0, 0, 5, 0, 0, 0]);
        image.extend([0; 5]);
        let sum = image.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        image.extend(sum.to_le_bytes());
        let read = Spreaders::<u32>::from_bytes(&image, &request());
        assert_eq!(read.is_ok(), accepted.contains(&bits), "{bits}");
    }
}

/// The answers of a second stream count, and its contacts do not: against sets, exactly while the sample holds all pairs, and else
/// within 30 %.
#[test]
fn answers_of_a_later_stream_count_without_its_contacts() {
    for (memory, most_error) in [(1 << 20, 0.0), (16 << 10, 0.3)] {
        for seed in 0..10 {
            let (mut first, mut second) = (sketch(memory, seed), sketch(memory, seed));
            // Key 7 has asked 3000 elements, of which the first 1000 answer later; then it asks 500 others. Keys of their own
            // fill the second sketch.
            let asked = (0..3000).map(|to| sides(seed, (7, to, false))[0]);
            let answers = (0..1000).map(|to| sides(seed, (to, 7, false))[1]);
            let others = (5000..5500).map(|to| sides(seed, (7, to, false))[0]);
            let crowd = (0..6000).map(|to| sides(seed, (8, to, false))[0]);
            first.update(&asked.collect::<Vec<_>>());
            second.update(&answers.chain(others).chain(crowd).collect::<Vec<_>>());
            first.merge_marks(&second).unwrap();
            let told = first.estimate(&7);
            for (number, truth) in [(told.estimate, 3000), (told.unanswered.unwrap(), 2000)] {
                let error = number.abs_diff(truth) as f64 / truth as f64;
                assert!(error <= most_error, "{memory} {seed}: {number} of {truth}");
            }
            assert_eq!(first.estimate(&8).estimate, 0);
        }
    }
    let (mut one, other) = (sketch(1 << 14, 1), sketch(1 << 14, 2));
    assert!(one.merge_marks(&other).is_err());
}

/// The top of a ranking is chosen for high estimates. All its bounds hold together, and so does the limit of the others.
#[test]
fn bounds_hold_at_the_top_of_many_small_keys() {
    let (keys, seeds) = (60_000u32, 40);
    let truth = |key: u32| u64::from(1 + key % 16);
    let pairs: Vec<(u32, u32)> = (0..keys)
        .flat_map(|key| (0..1 + key % 16).map(move |element| (key, element)))
        .collect();
    let mut broken = 0;
    for seed in 0..seeds {
        let sketch = fed(64 << 10, seed, &pairs);
        assert!(sketch.share() < 0.02);
        let (top, others) = sketch.ranking(100);
        let holds = |it: &Spreader<u32>| (it.lower..=it.upper).contains(&truth(it.key));
        broken += usize::from(others < 16 || !top.iter().all(holds));
        assert!(top[0].upper < 10_000, "{:?}", top[0]);
    }
    assert!(broken <= 4, "{broken} of {seeds} sketches");
}
