//! The packet sockets that a driver opened in this process, and the kernel's counts at them.
//!
//! The driver `net_af_packet` never asks the kernel for its count of dropped packets. The driver's sockets are ordinary
//! descriptors of this process, so this module asks.

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Counts of the kernel at a driver's sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Number of packets that arrived, including dropped ones.
    pub packets: u64,
    /// Number of packets for which the ring had no room.
    pub dropped: u64,
}

/// Packet sockets, by duplicated descriptors, because the driver closes its own when its port is stopped.
#[derive(Debug)]
pub(crate) struct Sockets(Vec<File>);

impl Sockets {
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// All packet sockets of this process.
    pub(crate) fn all() -> Self {
        let Ok(folder) = fs::read_dir("/proc/self/fd") else {
            return Self::none();
        };
        let numbers = folder
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_packet = |socket: &OwnedFd| {
            option::<c_int>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN)
                == Some(libc::AF_PACKET)
        };
        Self(
            numbers
                .filter_map(duplicate)
                .filter(is_packet)
                .map(File::from)
                .collect(),
        )
    }

    /// The sockets on interface `index` that are not among `before`, with the driver's kind of ring.
    pub(crate) fn since(before: &Self, index: u32) -> Self {
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        let known: Vec<_> = before.0.iter().filter_map(number_of).collect();
        let mut now = Self::all();
        now.0.retain(|socket| {
            number_of(socket).is_some_and(|number| !known.contains(&number))
                && interface(socket.as_fd()) == Some(index)
                && option::<c_int>(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION)
                    == Some(version)
        });
        now
    }

    /// Sums of the counts since the last call, because reading resets the kernel's counts.
    pub(crate) fn counts(&self) -> Option<Kernel> {
        let mut all = Kernel::default();
        for socket in &self.0 {
            let [packets, dropped] =
                option::<[u32; 2]>(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
            all.packets += u64::from(packets);
            all.dropped += u64::from(dropped);
        }
        (!self.0.is_empty()).then_some(all)
    }

    /// Rejects all further packets; rejected packets are not counted.
    pub(crate) fn reject(&self) -> bool {
        // A program of one instruction, `ret #0`.
        let mut reject = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let program = libc::sock_fprog {
            len: 1,
            filter: &raw mut reject,
        };
        let attach = |socket: &File| {
            let (pointer, len) = ((&raw const program).cast::<c_void>(), size_of_val(&program));
            // SAFETY: the program is a live local of the stated length.
            let done = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_ATTACH_FILTER,
                    pointer,
                    len as libc::socklen_t,
                )
            };
            done == 0
        };
        !self.0.is_empty() && self.0.iter().all(attach)
    }
}

/// A duplicate of the descriptor `number`.
fn duplicate(number: c_int) -> Option<OwnedFd> {
    // SAFETY: the number was listed as open just now. If another thread closes it in the meantime,
    // the call fails, or duplicates what was opened in its place; either way the copy is ours, and
    // the borrow ends with the call.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    open.try_clone_to_owned().ok()
}

/// The inode number of a socket, which all its descriptors share.
fn number_of(socket: &File) -> Option<u64> {
    Some(socket.metadata().ok()?.ino())
}

/// Reads an option of a socket.
fn option<T: Plain>(socket: BorrowedFd<'_>, level: c_int, option: c_int) -> Option<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live local for which any bytes are a value. A descriptor that is
    // no socket is an error.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    (done == 0).then_some(value)
}

/// A type for which any bytes are a valid value.
///
/// # Safety
/// Any bytes are a valid value of the type.
unsafe trait Plain: Default {}
// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers.
unsafe impl Plain for [u32; 2] {}

/// The index of the interface to which a packet socket is bound.
fn interface(socket: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: the struct has integers and arrays of them only, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live local.
    let done =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    (done == 0).then_some(address.sll_ifindex as u32)
}
