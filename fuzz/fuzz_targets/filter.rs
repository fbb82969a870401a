//! Any program on any packet: interpreter and native code judge as libpcap's `bpf_filter` does.
#![no_main]
#[path = "../../crates/filter/tests/bodies/mod.rs"]
mod bodies;
libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::filter(data));
