//! Any bytes, in pieces of any size, as lines and frames of a control socket: they are those of a list of all lines and frames.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_engine::socket::fuzz_body::socket(data));
