//! Any sequence of sections, interfaces and packets: the packets come out unchanged, and the memory held is bounded.
#![no_main]
#[path = "../../crates/pipeline/tests/bodies/layouts.rs"]
mod body;

use weir_testkit::allocations::{Counting, held};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::layouts(data, &held));
