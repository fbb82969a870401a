//! Capabilities: rights of root that a thread can have apart, and can give up.
//!
//! **Platform**: Linux, linux/capability.h, capabilities(7).

use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// Rights that may be needed once all interfaces are open, with their numbers of linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Files are made in directories that may be somebody else's.
    DacOverride = 1,
    /// Packets are injected into an interface.
    NetAdmin = 12,
    /// Maps of programs in the kernel are changed.
    Bpf = 39,
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`; there are two, for capabilities 0 to 31 and from 32 on.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up, for this thread and those it starts, all rights but those `kept`. What was not there is no reason to fail.
/// Nothing that this process starts can get it back.
pub fn give_up(kept: &[Capability]) -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: the header asks for version 3, whose answer is two structures; both are live locals.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let bits = kept.iter().fold(0u64, |bits, &capability| bits | 1 << capability as u32);
    for (data, kept) in data.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
        data.effective &= kept;
        data.permitted &= kept;
        data.inheritable = 0;
    }
    // SAFETY: as above; the kernel reads the two structures.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
