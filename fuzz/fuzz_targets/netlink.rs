//! Any bytes as an answer of the kernel over netlink: the attribute found is that in a list of all attributes, and interfaces, addresses
//! and routes are read from messages that lie one behind the other.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_io::netlink::fuzz_body::answer(data);
    weir_io::netlink::fuzz_body::network(data);
});
