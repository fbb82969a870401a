//! Expressions with sets of addresses: the verdicts of libpcap's program of the members written out.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_filter::fuzz_body::sets(data));
