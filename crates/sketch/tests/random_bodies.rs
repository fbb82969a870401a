//! The bodies of the fuzz targets on random inputs.

use weir_sketch::fuzz_body;

/// Pseudo-random bytes (splitmix64), from `seed` on.
fn random(seed: u64) -> impl Iterator<Item = u8> {
    (1u64..).flat_map(move |at| {
        let mut x = (seed << 32).wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31).to_le_bytes()
    })
}

#[test]
fn sketches_keep_their_promises_in_any_order_of_operations() {
    for seed in 0..250 {
        let data: Vec<_> = random(seed).take(200 + 2 * seed as usize).collect();
        fuzz_body::operations(&data);
    }
}

#[test]
fn any_bytes_are_refused_or_read() {
    for seed in 0..3000 {
        let data: Vec<_> = random(seed).take(seed as usize % 300).collect();
        fuzz_body::images(&data);
    }
}
