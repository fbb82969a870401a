//! The bodies of the fuzz targets on random inputs.

use weir_sketch::fuzz_body;
use weir_testkit::Random;

#[test]
fn sketches_keep_their_promises_in_any_order_of_operations() {
    for seed in 0..250 {
        fuzz_body::operations(&Random::behind(seed << 32).bytes(200 + 2 * seed as usize));
    }
}

#[test]
fn samples_of_pairs_are_those_of_the_set() {
    for seed in 0..400 {
        fuzz_body::pairs(&Random::behind(seed << 32).bytes(20 + seed as usize / 2));
    }
}

#[test]
fn reversible_sketches_are_those_of_the_definition() {
    for seed in 0..150 {
        fuzz_body::reversible(&Random::behind(seed << 32).bytes(20 + seed as usize / 4));
    }
}

#[test]
fn sets_of_parts_are_those_of_the_exact_sets() {
    for seed in 0..300 {
        fuzz_body::reversible_sets(&Random::behind(seed << 32).bytes(20 + seed as usize / 4));
    }
}

#[test]
fn any_bytes_are_refused_or_read() {
    for seed in 0..3000 {
        fuzz_body::images(&Random::behind(seed << 32).bytes(seed as usize % 300));
    }
}
