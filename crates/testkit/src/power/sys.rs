//! The system calls of mounting.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn text(text: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(text.as_ref().as_bytes())?)
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether this process is root.
#[allow(unsafe_code)]
pub(super) fn is_root() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives this thread a mount namespace of its own; no mount goes to others from there.
#[allow(unsafe_code)]
pub(super) fn own_mounts() -> io::Result<()> {
    // SAFETY: the calls only change the mounts of this thread and its children; the path is a literal.
    unsafe {
        checked(libc::unshare(libc::CLONE_NEWNS).into())?;
        let null = std::ptr::null();
        checked(
            libc::mount(
                null,
                c"/".as_ptr(),
                null,
                libc::MS_REC | libc::MS_PRIVATE,
                null.cast(),
            )
            .into(),
        )
    }
}

/// Gives this thread a table of descriptors of its own, which holds the three standard ones only.
#[allow(unsafe_code)]
pub(super) fn own_descriptors() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the thread has opened nothing, and the tables of other threads stay as they are.
    checked(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    })
}

/// Mounts a file system without a device.
#[allow(unsafe_code)]
pub(super) fn mount(dir: &Path, kind: &str, options: &str) -> io::Result<()> {
    let (dir, kind, options) = (text(dir)?, text(kind)?, text(options)?);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all texts end with a zero and live until the call is over.
    checked(
        unsafe {
            libc::mount(
                kind.as_ptr(),
                dir.as_ptr(),
                kind.as_ptr(),
                flags,
                options.as_ptr().cast(),
            )
        }
        .into(),
    )
}

/// Unmounts a file system. With `force`, its connection ends and its users get errors.
#[allow(unsafe_code)]
pub(super) fn unmount(dir: &Path, force: bool) -> io::Result<()> {
    let dir = text(dir)?;
    let flags = if force {
        libc::MNT_FORCE | libc::MNT_DETACH
    } else {
        0
    };
    // SAFETY: the path ends with a zero and lives until the call is over.
    checked(unsafe { libc::umount2(dir.as_ptr(), flags) }.into())
}

/// Makes a system call succeed without effect, in this thread and in those that it starts from here on.
#[allow(unsafe_code)]
pub(super) fn left_out(call: libc::c_long) -> io::Result<()> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jf, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    // The number of the call is the first word of `struct seccomp_data`. An error of 0 is success.
    let mut program = [
        step(LOAD, 0, 0),
        step(EQUAL, 1, call as u32),
        step(RETURN, 0, libc::SECCOMP_RET_ERRNO),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and its steps live until the calls are over; the calls change this thread alone.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        checked(
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
            .into(),
        )
    }
}
