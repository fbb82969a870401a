//! Any sequence of sections, interfaces and packets: the packets come out unchanged, and the memory held is bounded.
#![no_main]
#[path = "../../crates/pipeline/tests/counting/mod.rs"]
mod counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_pipeline::fuzz_body::layouts(data, &counting::held));
