//! Frames of known rare addresses: no address is left in what is written, and right checksums stay right.
#![no_main]
#[path = "../../crates/packet/tests/bodies/anonymize.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::anonymize(data);
});
