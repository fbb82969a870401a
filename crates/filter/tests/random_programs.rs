//! Random programs on random packets: interpreter, native code and libpcap agree.

mod bodies;
#[allow(dead_code)]
mod support;

use support::Random;

fn run(seed: u64, cases: u32) {
    let mut random = Random(seed);
    for case in 0..cases {
        let length = 16 + random.below(256);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let result = std::panic::catch_unwind(|| bodies::filter(&bytes));
        assert!(
            result.is_ok(),
            "seed {seed}, case {case}, input {bytes:02x?}"
        );
    }
}

#[test]
fn three_engines_agree_first_half() {
    run(0x9e37_79b9_7f4a_7c15, 4_000);
}

#[test]
fn three_engines_agree_second_half() {
    run(0xd1b5_4a32_d192_ed03, 4_000);
}
