//! Any calls of a program on any savefile: packets, results, texts and positions as with libpcap alone.
#![no_main]
use weir_pcap as lib;
#[path = "../../bindings/libpcap/tests/bodies/calls.rs"]
mod body;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::calls(data);
});
