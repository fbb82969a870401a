//! Rates in sliding panes against all windows of a list of packets.

use super::*;
use std::time::Duration;
use weir_measure::KeyKind;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;

fn rates(key: Key, figure: Figure, above: f64) -> Rates {
    Rates::new(Threshold {
        key,
        figure,
        above,
        window: Duration::from_secs(1),
    })
}

fn flow(source: u32) -> FlowKey {
    let mut key = FlowKey {
        family: 4,
        ..FlowKey::NONE
    };
    key.src[..4].copy_from_slice(&source.to_be_bytes());
    key
}

/// Indices of the packets at which a key exceeds the threshold.
fn exceeding(rates: &mut Rates, packets: &[(i64, u32)]) -> Vec<usize> {
    let count = |(index, (time, source)): (usize, &(i64, u32))| {
        let key = KeyKind::SRC.project(&flow(*source));
        let mut exceeds = false;
        rates.count([Some(key), None], 480, *time, &mut |_| exceeds = true);
        exceeds.then_some(index)
    };
    packets.iter().enumerate().filter_map(count).collect()
}

#[test]
fn a_burst_across_the_border_of_a_second_exceeds() {
    for offset in (0..1000).step_by(37) {
        let begin = 1_700_000_000 * SECOND + offset * MS;
        let burst: Vec<_> = (0..150).map(|i| (begin + i * 5 * MS, 1)).collect();
        for figure in [Figure::Packets, Figure::Bits] {
            let above = if figure == Figure::Bits {
                48_000.0
            } else {
                100.0
            };
            let mut rates = rates(Key::Of(KeyKind::SRC), figure, above);
            assert_eq!(
                exceeding(&mut rates, &burst).first(),
                Some(&100),
                "{offset}"
            );
        }
    }
}

/// Growth that begins anywhere in a second is seen.
#[test]
fn traffic_that_triples_within_a_window_grows() {
    for offset in (0..1000).step_by(50) {
        let slow = (0..5000 + offset).step_by(10);
        let fast = (5000 + offset..8000 + offset).step_by(3);
        let packets: Vec<_> = slow.chain(fast).map(|ms| (ms * MS, 1)).collect();
        let mut rates = rates(Key::Total, Figure::Growth, 2.5);
        assert!(!exceeding(&mut rates, &packets).is_empty(), "{offset}");
    }
}

/// No window of a second, wherever it begins, exceeds where the meter says so and it does not; and each that exceeds within nine panes
/// is found.
#[test]
fn rates_agree_with_all_windows() {
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let mut times = Vec::new();
    let mut now = 5 * SECOND;
    for _ in 0..3000 {
        // Bursts and pauses of ten sources.
        let gap = if next(50) == 0 { 400 } else { 1 + next(20) };
        now += gap as i64 * MS;
        times.push((now, next(10) as u32));
    }
    let above = 12;
    let mut rates = rates(Key::Of(KeyKind::SRC), Figure::Packets, above as f64);
    let found = exceeding(&mut rates, &times);
    let within = |index: usize, span: i64| {
        let (time, source) = times[index];
        let is_within = |(at, other): &&(i64, u32)| *other == source && time - at < span;
        times[..=index].iter().filter(is_within).count()
    };
    for index in 0..times.len() {
        let is_found = found.contains(&index);
        assert!(!is_found || within(index, SECOND) > above, "{index}");
        assert!(
            is_found || within(index, SECOND / 10 * 9) <= above,
            "{index}"
        );
    }
    assert!(found.len() > 10, "{}", found.len());
}

/// A flood with forged sources takes the room of no sender of many packets, and no count is too high.
#[test]
fn a_flood_of_keys_hides_no_large_one() {
    let mut rates = rates(Key::Of(KeyKind::SRC), Figure::Packets, 1000.0);
    let packets: Vec<_> = (0..500_000i64)
        .map(|i| (i * 1000, if i % 100 == 0 { 7 } else { 1000 + i as u32 }))
        .collect();
    let found = exceeding(&mut rates, &packets);
    assert!(rates.forgotten > 0);
    assert!(found.iter().all(|index| packets[*index].1 == 7));
    assert!(
        found[0] < 110_000,
        "the 1001st packet is number 100 000: {}",
        found[0]
    );
}
