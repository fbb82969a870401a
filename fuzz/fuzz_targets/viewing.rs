//! Any bytes as messages of a view socket and as the snapshots in them: what is read is written in one way.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_view::fuzz_body::snapshot(data);
    weir_messages::viewing::fuzz_body::message(data);
});
