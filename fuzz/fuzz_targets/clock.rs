//! Any time stamps: windows, late packets and jumped packets are those of a naive reader, for each design and way of
//! reading.
#![no_main]
#![allow(dead_code, unused_imports)]
#[path = "../../crates/pipeline/tests/measuring.rs"]
mod measuring;

libfuzzer_sys::fuzz_target!(|data: &[u8]| measuring::times::any_stamps(data));
