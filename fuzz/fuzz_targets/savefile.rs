//! Any bytes as a capture file: reading ends with a reason, several cursors find the packets that one finds, and a cut file
//! yields a prefix. Files written by weir are read back unchanged.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_packet::savefile::fuzz_body::savefile(data));
