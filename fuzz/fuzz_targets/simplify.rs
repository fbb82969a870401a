//! Any program on any packet: the simplified program has the program's result under libpcap's `bpf_filter`.
#![no_main]
#[path = "../../crates/filter/tests/bodies/mod.rs"]
mod bodies;
libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::simplified(data));
