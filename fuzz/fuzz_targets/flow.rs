//! Any bytes as a frame: the flow key equals etherparse's except for named differences, and fewer bytes never give another
//! key.
#![no_main]
#[path = "../../crates/packet/tests/flow_support/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| oracle::flow(data));
