//! Any bytes as a frame of any link type: the output is one line, without a panic.
#![no_main]
#[path = "../../crates/packet/tests/bodies/line.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| body::line(data));
