//! Any bytes as a capture file: reading ends and says why, several cursors find what one finds, a cut file yields a prefix,
//! and what we write we read back.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_packet::savefile::fuzz_body::savefile(data));
