//! The bodies of the fuzz targets, over their seeds and over seeded cases.

#[path = "bodies/history.rs"]
mod history;
#[path = "bodies/segment.rs"]
mod segment;

use weir_testkit::{Random, Scratch};

/// Cases of `fuzz/seeds/NAME`: one a line, in hexadecimal.
fn seeds(text: &str) -> Vec<Vec<u8>> {
    let digits = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    text.lines()
        .map(|line| line.as_bytes().chunks(2).map(digits).collect())
        .collect()
}

/// Number of seeded cases; many more if WEIR_THOROUGH is set.
fn cases(few: u64) -> u64 {
    if std::env::var_os("WEIR_THOROUGH").is_some() {
        40 * few
    } else {
        few
    }
}

/// A record of up to 40 packets and up to three damages, each of 9 bytes, of which numbers at the limits are frequent.
fn damaged(random: &mut Random) -> Vec<u8> {
    let packets = 1 + random.below(40);
    let mut case = random.bytes(5);
    case.push(packets as u8 - 1);
    case.extend(random.bytes(packets));
    for _ in 0..random.below(4) {
        case.extend(random.bytes(5));
        match random.below(4) {
            0 => case.extend([0; 4]),
            1 => case.extend([0xff; 4]),
            2 => case.extend((random.below(300) as u32).to_le_bytes()),
            _ => case.extend(random.bytes(4)),
        }
    }
    case
}

#[test]
fn damaged_records_yield_only_what_was_recorded() {
    for case in seeds(include_str!("../../../fuzz/seeds/segment")) {
        segment::segment(&case, Scratch::new().path());
    }
    for seed in 0..cases(120) {
        segment::segment(&damaged(&mut Random(seed)), Scratch::new().path());
    }
}

/// A record of three packets of three interfaces, each in a block of its own, with damage of 9 bytes each.
fn damaged_by(form: u8, damages: &[[u8; 9]]) {
    let head = [form, 0, 0, 255, 255, 3, 0x00, 0x10, 0x30, 0x10];
    segment::segment(
        &[&head, damages.concat().as_slice()].concat(),
        Scratch::new().path(),
    );
}

/// Marks tell the way back through a segment before their checksums are looked at: no field of theirs leads to a panic or to a large
/// allocation.
#[test]
fn fields_of_marks_are_not_believed() {
    for mark in 0..5 {
        for (field, value) in [4, 40, 44, 48, 52, 56, 60]
            .into_iter()
            .flat_map(|field| [(field, 0), (field, 0xff)])
        {
            damaged_by(0, &[[6, 0, mark, 0, field, value, value, value, value]]);
        }
    }
}

/// A damaged description of an interface costs the packets of the interface, and changes those of no other one.
#[test]
fn lost_interfaces_lend_their_numbers_to_no_other_ones() {
    let no_index = [4, 0, 0, 0, 0, 0, 0, 0, 0];
    for place in (0..1200u16).step_by(11) {
        let [low, high] = place.to_le_bytes();
        let flip = [0, 1, low, high, 0, 3, 0, 0, 0];
        damaged_by(0, &[[0, 0, low, high, 0, 3, 0, 0, 0]]);
        damaged_by(1, &[no_index, flip]);
        damaged_by(0x11, &[no_index, flip]);
    }
}
/// A closed segment whose last mark is damaged keeps its blocks when its index is made anew.
#[test]
fn the_index_of_a_segment_says_that_it_was_closed() {
    for place in (0..100).step_by(3) {
        damaged_by(
            0x11,
            &[
                [0x80, 1, place, 0, 0, 3, 0, 0, 0],
                [0, 1, 0, 1, 0, 3, 0, 0, 0],
            ],
        );
    }
}

#[test]
fn rings_hold_what_their_twins_say() {
    let filters = history::filters();
    for case in seeds(include_str!("../../../fuzz/seeds/history")) {
        history::history(&case, &filters);
    }
    for seed in 0..cases(40) {
        let mut random = Random(seed);
        let len = random.below(400);
        history::history(&random.bytes(len), &filters);
    }
}
