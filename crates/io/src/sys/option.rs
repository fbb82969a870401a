//! Options of sockets.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;

/// # Safety
/// Any bytes, all zeros included, must be a valid value.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: integers, and arrays and unions of integers and addresses.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for libc::ucred {}
// SAFETY: as above.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_ll {}
// SAFETY: as above.
unsafe impl Plain for libc::ifreq {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats_v3 {}
// SAFETY: as above.
unsafe impl Plain for libc::mmsghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_statistics {}

/// Returns a structure of the kernel's interface with all bytes zero.
pub(super) fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` types are integers and arrays of them, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

pub(super) fn set_option<T>(
    socket: &impl AsRawFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    let pointer: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the value lives through the call and has the length given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            pointer,
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn get_option<T: Plain>(
    socket: &impl AsRawFd,
    level: c_int,
    option: c_int,
) -> io::Result<T> {
    let mut value = zeroed::<T>();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live local, for which any bytes are a valid value.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if done == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}
