//! Any operations on sketches against an exact count, and any bytes as images of sketches.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_sketch::fuzz_body::operations(data);
    weir_sketch::fuzz_body::pairs(data);
    weir_sketch::fuzz_body::reversible(data);
    weir_sketch::fuzz_body::reversible_sets(data);
    weir_sketch::fuzz_body::images(data);
});
