//! Random programs on random packets: interpreter, native code and libpcap agree.

use weir_filter::fuzz_body;

/// A small generator with a printed seed; the sequence is the same everywhere (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn run(seed: u64, cases: u32) {
    let mut random = Random(seed);
    for case in 0..cases {
        let length = 16 + random.next() % 256;
        let bytes: Vec<u8> = (0..length).map(|_| (random.next() >> 32) as u8).collect();
        let result = std::panic::catch_unwind(|| fuzz_body::filter(&bytes));
        assert!(result.is_ok(), "seed {seed}, case {case}, input {bytes:02x?}");
    }
}

#[test]
fn three_engines_agree_first_half() {
    run(0x9e37_79b9_7f4a_7c15, 10_000);
}

#[test]
fn three_engines_agree_second_half() {
    run(0xd1b5_4a32_d192_ed03, 10_000);
}
