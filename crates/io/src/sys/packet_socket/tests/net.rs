//! Support for tests: a private network, a sender with its own count, and a second reader of records.

use super::super::record::{CAPTURED, FRAME, NEXT, WIRE, half, word};
use super::super::{Ring, index_of};
use crate::live::{Backend, Next, TURN};
use crate::sys::device::socket;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
pub use weir_testkit::have;
pub use weir_testkit::net::{ip, run};

/// Moves this thread into a private network, in which a cable joins the interfaces `far` and `near`; returns whether it could.
pub fn cable(test: &str) -> bool {
    weir_testkit::net::cable(test, "")
}

/// Plain socket on an interface.
pub struct Plain(OwnedFd);

impl Plain {
    pub fn on(interface: &str) -> Self {
        let plain = socket(libc::AF_PACKET, libc::SOCK_RAW, 0).unwrap();
        super::super::options::bind(&plain, index_of(interface).unwrap(), 0).unwrap();
        Self(plain)
    }

    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the frame lives through the call and has the length given.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    pub fn send_all(&self, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| self.send(frame));
    }
}

/// Returns the frames in a block, and their wire lengths.
pub fn frames_in(block: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let mut frames = Vec::new();
    let mut rest = block;
    while !rest.is_empty() {
        let at = usize::from(half(rest, FRAME));
        frames.push((
            rest[at..at + word(rest, CAPTURED) as usize].to_vec(),
            word(rest, WIRE),
        ));
        match word(rest, NEXT) as usize {
            0 => break,
            next => rest = &rest[next..],
        }
    }
    frames
}

/// Stops a capture and returns all its packets.
pub fn finish(ring: &mut Ring) -> io::Result<Vec<(Vec<u8>, u32)>> {
    let stop = AtomicBool::new(true);
    take_until(ring, &stop, |_| false)
}

/// Takes packets until the end, or until there are enough.
pub fn take_until(
    ring: &mut Ring,
    stop: &AtomicBool,
    enough: impl Fn(&[(Vec<u8>, u32)]) -> bool,
) -> io::Result<Vec<(Vec<u8>, u32)>> {
    let mut all = Vec::new();
    let begun = Instant::now();
    while !enough(&all) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{} came, {ring:?}",
            all.len()
        );
        match ring.next_within(stop, TURN)? {
            Next::Records(lent, packets) => {
                let frames = frames_in(lent.bytes().slice());
                assert_eq!(frames.len() as u64, packets);
                all.extend(frames);
            }
            Next::Nothing => {}
            Next::End => break,
        }
    }
    Ok(all)
}

/// Returns an Ethernet frame with UDP in IPv4; the number makes each frame different.
pub fn udp(number: u32, ports: [u16; 2], len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let total = (len - 14) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
    frame.extend(ports[0].to_be_bytes());
    frame.extend(ports[1].to_be_bytes());
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(len, 7);
    frame
}

/// Returns the frame with a VLAN tag.
pub fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}
