//! Any bytes as a frame of any link type: one line comes out, and no panic.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_packet::line::fuzz_body::line(data));
