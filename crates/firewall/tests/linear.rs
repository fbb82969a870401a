//! Classified packets against a linear scan over the text of the rules.

#[path = "bodies/linear.rs"]
mod linear;

use linear::Seen;
use weir_testkit::Random;

#[test]
fn packets_get_the_verdict_of_a_linear_scan_over_the_text() {
    let mut random = Random(11);
    let mut all = Seen::default();
    for _ in 0..300 {
        let length = random.below(6000);
        let seen = linear::judge(&random.bytes(length));
        all.lists += seen.lists;
        all.by_rule += seen.by_rule;
        all.absent += seen.absent;
        all.unreachable += seen.unreachable;
        all.by_rest
            .iter_mut()
            .zip(seen.by_rest)
            .for_each(|(sum, more)| *sum += more);
    }
    // Enough of everything came up.
    println!("{all:?}");
    assert!(
        all.lists > 150 && all.by_rule > 3_000 && all.absent > 150 && all.unreachable > 150,
        "{all:?}"
    );
    assert!(all.by_rest.iter().all(|&packets| packets > 30), "{all:?}");
}
