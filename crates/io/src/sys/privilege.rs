//! Capabilities: rights of root that a thread can have apart, and can give up.
//!
//! **Platform**: Linux, linux/capability.h, capabilities(7).

use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

// Numbers of linux/capability.h.
const CHOWN: u32 = 0;
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const FOWNER: u32 = 3;
const BPF: u32 = 39;

/// What stays: files are opened while a capture runs, in places that may be somebody else's; and counters of programs in the
/// kernel are read until the end.
const KEPT: [u32; 5] = [CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, BPF];

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

/// Gives up, for this thread and those it starts, what is not needed once all interfaces are open: opening them
/// (CAP_NET_RAW, CAP_NET_ADMIN, CAP_SYS_ADMIN) and everything that has nothing to do with capturing. What was not there is no
/// reason to fail. Nothing that this process starts can get it back.
pub fn give_up() -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: the header asks for version 3, whose answer is two structures; both are live locals.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut kept = [0u32; 2];
    for capability in KEPT {
        kept[capability as usize / 32] |= 1 << (capability % 32);
    }
    for (data, kept) in data.iter_mut().zip(kept) {
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
