//! Any program on any packet: interpreter and native code judge as libpcap's `bpf_filter` does.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_filter::fuzz_body::filter(data));
