//! Frames with other addresses, over seeded cases and the captures.

#[path = "bodies/anonymize.rs"]
mod body;

use weir_testkit::Random;

#[test]
fn no_address_is_left_and_checksums_stay_right() {
    let mut random = Random(1);
    let mut compared = 0;
    for _ in 0..20_000 {
        let len = random.below(64);
        compared += body::anonymize(&random.bytes(len));
    }
    assert!(compared > 10_000, "{compared}");
}
