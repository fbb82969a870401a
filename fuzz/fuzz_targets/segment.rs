//! Damaged segments, indexes and compressed segments: every packet that is returned was recorded, and what is not damaged is found.
#![no_main]
#[path = "../../crates/store/tests/bodies/segment.rs"]
mod segment;

libfuzzer_sys::fuzz_target!(|data: &[u8]| segment::segment(
    data,
    weir_testkit::Scratch::new().path()
));
