//! Files of places, whole and damaged: what is accepted gives what its records have.
#![no_main]
#[path = "../../crates/measure/tests/bodies/geo.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::geo(data);
});
