//! Any segments of few conversations, and any bytes: the health of a naive twin.
#![no_main]
#[path = "../../crates/measure/tests/bodies/health.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::health(data);
});
