//! Any bytes as the first bytes of a TLS connection: the server name of a naive reader.
#![no_main]
#[path = "../../crates/packet/tests/bodies/tls.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::tls(data);
});
