//! Any requests to a sender: each is refused, or gives the order that a list of the known requests says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_engine::steering::fuzz_body::requests(data));
