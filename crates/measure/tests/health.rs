//! Seeded cases of the body that the fuzz target also runs.

#[path = "bodies/health.rs"]
mod body;

use weir_testkit::Random;

#[test]
fn random_segments_have_the_figures_of_a_naive_twin() {
    for seed in 0..3000 {
        let mut random = Random(seed);
        let len = random.below(1200);
        let mut bytes = random.bytes(len);
        // Every other case has few conversations and no cut frames.
        if seed % 2 == 0 {
            bytes.iter_mut().step_by(8).for_each(|who| *who &= 4);
        }
        body::health(&bytes);
    }
}
