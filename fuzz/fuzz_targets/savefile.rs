//! Any bytes as a capture file: reading ends with a reason, several cursors find the packets that one finds, and a cut file
//! yields a prefix. Files written by weir are read back unchanged.
#![no_main]
#[path = "../../crates/packet/tests/bodies/savefile.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| body::savefile(data));
