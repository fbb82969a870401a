//! Count-Min against a naive twin, its error bound over many seeds, and refused input.

mod support;

use std::collections::HashMap;

use support::{random, shapes, zipf};
use weir_memory::Request;
use weir_sketch::{Cell, Cms, Error, Rule, Shape, SharedCms};

fn sketch<C: Cell>(rows: usize, width: usize, rule: Rule) -> Cms<C> {
    Cms::new(
        Shape::new(rows, width).unwrap(),
        rule,
        1,
        &Request::default(),
    )
    .unwrap()
}

/// The documented form, computed with wide numbers: for each row, a map from columns to counts.
fn naive(rows: u128, width: u128, hashes: &[u64]) -> Vec<HashMap<u128, u64>> {
    let mut cells = vec![HashMap::new(); rows as usize];
    for hash in hashes {
        for (row, cells) in cells.iter_mut().enumerate() {
            *cells.entry(column(*hash, row as u128, width)).or_default() += 1;
        }
    }
    cells
}

fn column(hash: u64, row: u128, width: u128) -> u128 {
    let a = u128::from(hash) * 0x9e37_79b9_7f4a_7c15 % (1 << 64);
    let b = (a % (1 << 32) * (1 << 32) + a / (1 << 32)) | 1;
    (a + row * b) % (1 << 64) * width / (1 << 64)
}

#[test]
fn estimates_are_those_of_the_naive_twin() {
    for (rows, width) in [
        (1, 1),
        (1, 64),
        (2, 2),
        (3, 256),
        (4, 512),
        (5, 1024),
        (32, 16),
    ] {
        let hashes: Vec<_> = zipf(4, 3000, 900, 0.9)
            .iter()
            .map(|key| random(2, u64::from(*key)))
            .collect();
        let mut one = sketch::<u32>(rows, width, Rule::Plain);
        one.update(&hashes);
        let twin = naive(rows as u128, width as u128, &hashes);
        for hash in &hashes {
            let cells = twin
                .iter()
                .enumerate()
                .map(|(row, cells)| cells[&column(*hash, row as u128, width as u128)]);
            assert_eq!(
                one.estimate(*hash),
                cells.min().unwrap(),
                "{rows} rows of {width}"
            );
        }
    }
}

/// The bound is per key and over the choice of hashes: of all pairs (seed, key), the share above the bound is at most delta.
#[test]
fn the_bound_holds_over_many_seeds_and_skews() {
    for (rows, width) in [(1, 64), (2, 64), (3, 128), (4, 256)] {
        for shape_index in 0..shapes(0, 20).len() {
            let (mut asked, mut above, mut excess) = (0u64, 0u64, 0u64);
            for seed in 0..12 {
                let (_, keys) = shapes(seed, 1500).swap_remove(shape_index);
                let mut one = sketch::<u32>(rows, width, Rule::Plain);
                let mut counts = HashMap::<u32, u64>::new();
                for key in &keys {
                    one.update(&[random(seed + 100, u64::from(*key))]);
                    *counts.entry(*key).or_default() += 1;
                }
                excess = one.bound().excess;
                for (key, count) in counts {
                    let estimate = one.estimate(random(seed + 100, u64::from(key)));
                    assert!(estimate >= count);
                    asked += 1;
                    above += u64::from(estimate > count + excess);
                }
            }
            let delta = (-(rows as f64)).exp();
            let share = above as f64 / asked as f64;
            let name = shapes(0, 20)[shape_index].0;
            assert!(
                share <= delta,
                "{name}: {share} of keys are more than {excess} off, delta is {delta}"
            );
        }
    }
}

/// Rows derived from one hash must not fail together: with the mean load of the bound's own derivation, the share above
/// the bound falls with each row.
#[test]
fn rows_are_as_good_as_independent() {
    let width = 64;
    let share = |rows| {
        let (mut asked, mut above) = (0u32, 0u32);
        for seed in 0..60 {
            let mut one = sketch::<u32>(rows, width, Rule::Plain);
            let keys: Vec<_> = (0..400).map(|key| random(seed, key)).collect();
            one.update(&keys);
            // A cell holds 6.25 keys on average; more than 9 in every row is rare only if rows differ.
            above += keys.iter().filter(|hash| one.estimate(**hash) > 9).count() as u32;
            asked += 400;
        }
        f64::from(above) / f64::from(asked)
    };
    let one = share(1);
    assert!((0.1..0.4).contains(&one), "{one}");
    for rows in 2..=5 {
        let (all, independent) = (share(rows), one.powi(rows as i32));
        assert!(
            all < independent * 1.5 + 0.001,
            "{rows} rows: {all}, independent ones {independent}"
        );
    }
}

#[test]
fn bits_that_all_keys_share_do_no_harm() {
    for shared in [0, 8, 32, 56] {
        // Eight bits of all hashes are equal, as if a distributor had chosen workers by them.
        let hashes: Vec<_> = (0..2000)
            .map(|key| random(3, key) & !(0xff << shared) | 0x5a << shared)
            .collect();
        let mut one = sketch::<u32>(4, 1024, Rule::Plain);
        one.update(&hashes);
        let mean = hashes.iter().map(|hash| one.estimate(*hash)).sum::<u64>() as f64 / 2000.0;
        assert!(mean < 2.0, "bits {shared}: {mean}");
    }
}

#[test]
fn shapes_follow_from_what_is_asked() {
    let shape = Shape::for_error(0.001, 0.01).unwrap();
    // e / 0.001 = 2718.3, the next power of two is 4096; ln 100 = 4.6.
    assert_eq!((shape.rows(), shape.width()), (5, 4096));
    let bound = shape.bound(1_000_000);
    assert!(bound.epsilon <= 0.001 && bound.delta <= 0.01);
    assert_eq!(bound.excess, 664, "e / 4096 * 1000000 = 663.6");
    let shape = Shape::for_memory(1 << 20, 4, 4).unwrap();
    assert_eq!((shape.rows(), shape.width()), (4, 1 << 16));
    let shape = Shape::for_memory((1 << 20) - 1, 3, 8).unwrap();
    assert_eq!((shape.rows(), shape.width()), (3, 1 << 15));
    assert_eq!(
        Cms::<u64>::new(shape, Rule::Plain, 1, &Request::default())
            .unwrap()
            .memory_bytes(),
        (3 * 8) << 15
    );

    for (epsilon, delta) in [
        (0.0, 0.1),
        (1.0, 0.1),
        (f64::NAN, 0.1),
        (0.1, 0.0),
        (0.1, 1.0),
        (0.1, f64::NAN),
        (-1.0, 0.1),
    ] {
        let refused = Shape::for_error(epsilon, delta).unwrap_err();
        assert!(
            matches!(refused, Error::Parameter { .. }),
            "{epsilon} {delta}"
        );
    }
    assert!(matches!(
        Shape::for_memory(15, 4, 4).unwrap_err(),
        Error::TooLittleMemory {
            given: 15,
            least: 16
        }
    ));
    for (rows, width) in [(0, 16), (33, 16), (4, 0), (4, 3)] {
        assert!(matches!(
            Shape::new(rows, width).unwrap_err(),
            Error::Parameter { .. }
        ));
    }
    assert!(Shape::for_memory(100, 0, 4).is_err());
}

#[test]
fn narrow_cells_saturate_and_say_so() {
    for rule in [Rule::Plain, Rule::Conservative] {
        let mut one = sketch::<u32>(2, 4, rule);
        one.update_weighted([(1, u32::MAX - 1)]);
        assert!(!one.is_saturated());
        let other = {
            let mut other = sketch::<u32>(2, 4, rule);
            other.update_weighted([(1, u32::MAX - 1)]);
            other
        };
        one.update_weighted([(1, 7)]);
        assert_eq!(one.estimate(1), u64::from(u32::MAX));
        assert!(one.is_saturated());
        one.merge(&other).unwrap();
        assert_eq!(one.estimate(1), u64::from(u32::MAX));
        assert_eq!(one.total(), 2 * u64::from(u32::MAX - 1) + 7);
        one.clear();
        assert!(!one.is_saturated());
        assert_eq!((one.total(), one.estimate(1)), (0, 0));
    }
}

#[test]
fn what_differs_does_not_merge() {
    let mut one = sketch::<u32>(3, 64, Rule::Plain);
    let what = |refused: Result<(), Error>| match refused {
        Err(Error::Differs { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(what(one.merge(&sketch(4, 64, Rule::Plain))), "rows");
    assert_eq!(what(one.merge(&sketch(3, 32, Rule::Plain))), "width");
    assert_eq!(what(one.merge(&sketch(3, 64, Rule::Conservative))), "rule");
    let other = Cms::new(one.shape(), Rule::Plain, 2, &Request::default()).unwrap();
    assert_eq!(what(one.merge(&other)), "hash seed");
}

#[test]
fn a_shared_sketch_starts_anew() {
    let mut shared = SharedCms::new(
        Shape::new(2, 8).unwrap(),
        Rule::Conservative,
        1,
        &Request::default(),
    )
    .unwrap();
    shared.update(&[5, 5]);
    assert_eq!(
        (shared.estimate(5), shared.total(), shared.bound().excess),
        (2, 2, 1)
    );
    shared.clear();
    assert_eq!((shared.estimate(5), shared.total()), (0, 0));
}
