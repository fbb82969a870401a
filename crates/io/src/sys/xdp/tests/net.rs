//! Support for tests: a virtual cable in a private network namespace, which vanishes with the test's thread, and
//! distinguishable frames.

use crate::live::{Backend, Counts, Lease, Next, TURN};
use crate::sys::{bpf, device, packet_socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_packet::savefile::Bytes;
use weir_packet::savefile::slots::Slots;
pub use weir_testkit::net::ip;
pub use weir_testkit::skipped;

/// Moves this thread into a network with interfaces `far` and `near` at the ends of a cable. If the cable or AF_XDP is not
/// available, returns `false` and prints the reason.
pub fn cable(test: &str, queues: u32, mtu: u32) -> bool {
    if let Err(error) = device::try_af_xdp() {
        skipped(test, format_args!("no AF_XDP: {error}"));
        return false;
    }
    if let Err(error) = bpf::Map::array(1, 8) {
        skipped(test, format_args!("no BPF: {error}"));
        return false;
    }
    weir_testkit::net::cable(
        test,
        &format!("numrxqueues {queues} numtxqueues {queues} mtu {mtu}"),
    )
}

/// Offset of a frame's number.
pub const NUMBER: usize = 14;

/// Returns frame `number`: broadcast, of a type for experiments, with bytes that differ from all other frames.
pub fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..len).map(|i| (number as usize * 7 + i * 3 + i / 256) as u8));
    frame
}

pub fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[NUMBER..NUMBER + 8].try_into().unwrap())
}

/// Packet socket that sends from an interface.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn open(interface: &str) -> Self {
        let socket = device::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).unwrap();
        // SAFETY: integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = packet_socket::index_of(interface).unwrap() as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        assert_eq!(
            // SAFETY: the address is a live local with the length given.
            unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) },
            0
        );
        // Without the bypass, frames vanish without an error until the kernel has noticed the new cable.
        let bypass: libc::c_int = 1;
        let (value, len) = (
            (&raw const bypass).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
        // SAFETY: the value is a live local with the length given.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                value,
                len,
            )
        };
        assert_eq!(set, 0);
        Self(socket)
    }

    /// Sends a frame that must not be refused. After the call it has reached the other end, but may not be processed yet.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the frame has the length given.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// Returns the packets of a burst with their times.
pub fn packets(burst: &dyn Lease) -> Vec<(i64, &[u8])> {
    let Bytes::Slots(Slots { frames, time_ns }) = burst.bytes() else {
        panic!("{burst:?}")
    };
    // Frames are aligned, so that the bytes a filter reads lie in as few cache lines as possible.
    assert!(
        frames
            .iter()
            .all(|frame| (frame.as_ptr() as usize).is_multiple_of(64)),
        "{burst:?}"
    );
    frames.iter().map(|frame| (time_ns, *frame)).collect()
}

/// Calls `each` with every burst up to the end; returns the final counts and the number of packets.
pub fn until_end(
    backend: &mut dyn Backend,
    stop: &AtomicBool,
    mut each: impl FnMut(Arc<dyn Lease>),
) -> io::Result<(Counts, u64)> {
    let mut sum = 0;
    loop {
        match backend.next_within(stop, TURN)? {
            Next::Records(burst, count) => {
                assert_eq!(packets(&*burst).len() as u64, count);
                sum += count;
                each(burst);
            }
            Next::Nothing => {}
            Next::End => return Ok((backend.counts(), sum)),
        }
    }
}
