//! Any bytes as a DNS message: the names and entries of a naive reader.
#![no_main]
#[path = "../../crates/packet/tests/bodies/dns.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::dns(data);
});
