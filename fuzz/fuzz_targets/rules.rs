//! Any rule list and packets: the classifier decides as a linear scan over the text of the rules.
#![no_main]

#[path = "../../crates/firewall/tests/bodies/linear.rs"]
mod linear;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    linear::judge(data);
});
