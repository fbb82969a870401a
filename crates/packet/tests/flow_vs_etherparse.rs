//! Flow keys against etherparse's, over the captures, the frames made by hand, and both with seeded damage.

mod flow_support;
mod line_support;

use std::collections::BTreeMap;

use flow_support::oracle::{self, LINKS, Verdict};
use flow_support::{cases, damage, packets};
use line_support::Random;
use weir_packet::LinkType;
use weir_packet::flow::Parser;

fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_231_114);
    println!("WEIR_SEED={seed}");
    seed
}

/// All frames: of the captures, and made by hand.
fn corpus(test: &str) -> Vec<(LinkType, Vec<u8>)> {
    let captured = packets(test).into_iter();
    let captured =
        captured.flat_map(|(link, packets)| packets.into_iter().map(move |packet| (link, packet)));
    let made = cases::all().into_iter().map(|case| (case.link, case.data));
    captured
        .chain(made)
        .filter(|(link, _)| Parser::new(*link, false).is_some())
        .collect()
}

fn check(link: LinkType, data: &[u8], tally: &mut BTreeMap<Verdict, usize>) {
    *tally.entry(oracle::compare(link, data)).or_default() += 1;
    oracle::fields::compare(link, data);
    oracle::properties(link, data, data.len() / 2);
}

#[test]
fn keys_of_every_frame() {
    let corpus = corpus("keys_of_every_frame");
    let mut tally = BTreeMap::new();
    for (link, data) in &corpus {
        check(*link, data, &mut tally);
    }
    println!("{} frames: {tally:?}", corpus.len());
    let least = if corpus.len() > 2000 { 2000 } else { 60 };
    assert!(tally[&Verdict::Same] > least, "too little was compared");
}

#[test]
fn keys_of_damaged_frames() {
    let corpus = corpus("keys_of_damaged_frames");
    let made = corpus.len() - cases::all().len();
    let mut random = Random(seed());
    let mut tally = BTreeMap::new();
    for case in 0..150_000 {
        // Half of the cases use the frames made by hand, which have all headers.
        let from = if case % 2 == 0 { made } else { 0 };
        let (link, data) = &corpus[from + random.below(corpus.len() - from)];
        check(*link, &damage(data, &mut random), &mut tally);
    }
    println!("{tally:?}");
    assert!(tally[&Verdict::Same] > 70_000, "too little was compared");
}

/// IP headers of every kind in front of random bytes: headers that few captures hold.
#[test]
fn keys_of_random_headers() {
    let mut random = Random(seed());
    let mut tally = BTreeMap::new();
    for _ in 0..100_000 {
        let mut data: Vec<u8> = (0..40 + random.below(120))
            .map(|_| random.next() as u8)
            .collect();
        const NEXT: [u8; 12] = [0, 43, 44, 51, 60, 6, 17, 132, 135, 58, 1, 59];
        if random.below(2) == 0 {
            data[0] = 0x45 + random.below(4) as u8;
            (data[2], data[3]) = (0, random.next() as u8);
            (data[6], data[9]) = (random.next() as u8 & 0x20, NEXT[random.below(12)]);
            data[7] = random.below(3) as u8 / 2;
        } else {
            data[0] = 0x60;
            (data[4], data[5]) = (0, random.next() as u8);
            data[6] = NEXT[random.below(12)];
            // Extension headers of eight bytes, each naming the next one.
            for at in (40..data.len() - 4).step_by(8) {
                data[at] = NEXT[random.below(12)];
                data[at + 1] = random.below(5) as u8 / 4;
                (data[at + 2], data[at + 3]) = (0, random.below(10) as u8 & 9);
            }
        }
        check(LinkType::RAW, &data, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally[&Verdict::Same] > 60_000, "too little was compared");
}

/// Inputs of the fuzz target: the first two bytes choose, the others are the frame.
#[test]
fn the_fuzz_body_holds_for_any_bytes() {
    let corpus = corpus("the_fuzz_body_holds_for_any_bytes");
    let mut random = Random(seed());
    for _ in 0..50_000 {
        let (_, data) = &corpus[random.below(corpus.len())];
        let head = [random.below(LINKS.len()) as u8, random.next() as u8];
        oracle::flow(&[&head[..], &damage(data, &mut random)].concat());
    }
}
