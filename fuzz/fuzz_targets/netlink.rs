//! Any bytes as an answer of the kernel over netlink: what is found is what a list of all attributes holds.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_io::netlink::fuzz_body::answer(data));
