//! Any program on any packet: the simplified program has the program's result under libpcap's `bpf_filter`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_filter::fuzz_body::simplified(data));
