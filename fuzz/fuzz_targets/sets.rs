//! Expressions with sets of addresses: the verdicts of libpcap's program of the members written out.
#![no_main]
#[path = "../../crates/filter/tests/bodies/mod.rs"]
mod bodies;
libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::sets(data));
