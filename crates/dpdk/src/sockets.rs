//! The packet sockets that a driver opened in this process, and what the kernel counts at them.
//!
//! The driver `net_af_packet` never asks the kernel what it dropped. Its sockets are descriptors of this process like any
//! other, so we ask.

use std::ffi::{c_int, c_void};
use std::fs;

/// What the kernel counted at a driver's sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Packets that came, dropped ones too.
    pub packets: u64,
    /// Packets for which the ring had no room.
    pub dropped: u64,
}

/// Descriptors of packet sockets. They are the driver's, and open until its port is stopped.
#[derive(Debug)]
pub(crate) struct Sockets(Vec<c_int>);

impl Sockets {
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// All of this process.
    pub(crate) fn all() -> Self {
        let Ok(folder) = fs::read_dir("/proc/self/fd") else { return Self::none() };
        let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_packet = |&fd: &c_int| option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_PACKET);
        Self(numbers.filter(is_packet).collect())
    }

    /// Those on interface `index` that were not among `before`, with the kind of ring that the driver has.
    pub(crate) fn since(before: &Self, index: u32) -> Self {
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        let mut now = Self::all();
        now.0.retain(|&fd| {
            !before.0.contains(&fd)
                && interface(fd) == Some(index)
                && option::<c_int>(fd, libc::SOL_PACKET, libc::PACKET_VERSION) == Some(version)
        });
        now
    }

    /// What was counted since it was asked last; the kernel forgets what it has told.
    pub(crate) fn counts(&self) -> Option<Kernel> {
        let mut all = Kernel::default();
        for &fd in &self.0 {
            let [packets, dropped] = option::<[u32; 2]>(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
            all.packets += u64::from(packets);
            all.dropped += u64::from(dropped);
        }
        (!self.0.is_empty()).then_some(all)
    }

    /// Lets nothing more in; a packet that is rejected is not counted.
    pub(crate) fn reject(&self) -> bool {
        // `ret #0`
        let mut reject = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut reject };
        let attach = |&fd: &c_int| {
            let (pointer, len) = ((&raw const program).cast::<c_void>(), size_of_val(&program));
            // SAFETY: the program is a live local of the length said.
            let done = unsafe {
                libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, pointer, len as libc::socklen_t)
            };
            done == 0
        };
        !self.0.is_empty() && self.0.iter().all(attach)
    }
}

/// An option of a socket.
fn option<T: Plain>(fd: c_int, level: c_int, option: c_int) -> Option<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live local for which any bytes are a value. A descriptor that is
    // no socket is an error.
    let done = unsafe { libc::getsockopt(fd, level, option, (&raw mut value).cast(), &raw mut len) };
    (done == 0).then_some(value)
}

/// # Safety
/// Any bytes are a value.
unsafe trait Plain: Default {}
// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers.
unsafe impl Plain for [u32; 2] {}

/// The number of the interface that a packet socket is bound to.
fn interface(fd: c_int) -> Option<u32> {
    // SAFETY: integers and arrays of them, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live local.
    let done = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut len) };
    (done == 0).then_some(address.sll_ifindex as u32)
}
