//! Any bytes in place of the kernel's writes to rings (blocks of a packet socket, descriptors of AF_XDP): no access leaves
//! the ring.
#![no_main]
use weir_io::sys::{packet_socket, xdp};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0..=127, rest)) => packet_socket::fuzz_body::block(rest),
        Some((_, rest)) => xdp::fuzz_body::descriptors(rest),
        None => {}
    }
});
