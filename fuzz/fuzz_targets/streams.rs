//! Any text as a profile: its frames, against those of a naive twin.
#![no_main]
#[path = "../../crates/generator/tests/bodies/streams.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        body::compare_text(text, 70);
    }
});
