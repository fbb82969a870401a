//! Any bytes as a frame of any link type: the output is one line, without a panic.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_packet::line::fuzz_body::line(data));
