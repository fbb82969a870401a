//! The functions of libpcap that are ours.

use crate::handles::{self, Handle};
use crate::judge::Judge;
use crate::offline::{self, Offline};
use crate::real;
use crate::types::*;
use core::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use core::ptr::null;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::FILE;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Takes over a savefile that libpcap has opened, if this library reads its format.
///
/// # Safety
/// `p` is null or a handle that libpcap has just opened.
unsafe fn adopt(p: *mut Pcap) -> *mut Pcap {
    if !p.is_null() && handles::find(p).is_null() {
        // SAFETY: the handle is open. After a panic, which would be a fault of this library, libpcap reads the file.
        let adopted = catch_unwind(|| unsafe { Offline::adopt(p) });
        if let Ok(Some(source)) = adopted {
            handles::insert(Handle {
                pcap: p,
                is_broken: AtomicBool::new(false),
                is_passed: AtomicBool::new(false),
                source,
            });
        }
    }
    p
}

/// `pcap_open_offline`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_open_offline(
    name: *const c_char,
    error: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the arguments go on as they came.
    unsafe { adopt(real::pcap_open_offline(name, error)) }
}

/// `pcap_open_offline_with_tstamp_precision`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_open_offline_with_tstamp_precision(
    name: *const c_char,
    precision: c_uint,
    error: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the arguments go on as they came.
    unsafe {
        adopt(real::pcap_open_offline_with_tstamp_precision(
            name, precision, error,
        ))
    }
}

/// `pcap_close`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_close(p: *mut Pcap) {
    let handle = handles::find(p);
    if !handle.is_null() {
        // SAFETY: the handle is open. Standard input is left where libpcap would have left it.
        unsafe { (*handle).source.hand_over() };
        handles::remove(p);
    }
    // SAFETY: the arguments go on as they came.
    unsafe { real::pcap_close(p) };
}

/// `pcap_dispatch`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_dispatch(
    p: *mut Pcap,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    let handle = handles::find(p);
    // SAFETY: the arguments go on as they came, or the handle is in the table.
    unsafe {
        if is_passed(handle) {
            real::pcap_dispatch(p, count, callback, user)
        } else {
            offline::read(handle, count, callback, user)
        }
    }
}

/// `pcap_loop`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_loop(
    p: *mut Pcap,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    let handle = handles::find(p);
    // SAFETY: the arguments go on as they came, or the handle is in the table.
    unsafe {
        if is_passed(handle) {
            return real::pcap_loop(p, count, callback, user);
        }
        let mut left = count;
        loop {
            let done = offline::read(handle, left, callback, user);
            if done <= 0 {
                return done;
            }
            if count > 0 {
                left -= done;
                if left <= 0 {
                    return 0;
                }
            }
        }
    }
}

/// Where `pcap_next` and `pcap_next_ex` put a packet.
struct Next {
    header: Header,
    data: *const c_uchar,
}

/// Notes a packet.
///
/// # Safety
/// `user` leads to a `Next`, and `header` to a header.
unsafe extern "C-unwind" fn note(user: *mut c_uchar, header: *const Header, data: *const c_uchar) {
    // SAFETY: as promised.
    unsafe {
        *user.cast::<Next>() = Next {
            header: *header,
            data,
        };
    }
}

/// Reads one packet. Returns the result of `pcap_dispatch`, and the packet.
///
/// # Safety
/// `handle` is in the table.
unsafe fn next(handle: *mut Handle) -> (c_int, Next) {
    let mut next = Next {
        // SAFETY: the handle is in the table.
        header: unsafe { (*handle).source.header },
        data: null(),
    };
    // SAFETY: `note` gets a pointer to `next`.
    let done = unsafe { offline::read(handle, 1, note, (&raw mut next).cast()) };
    (done, next)
}

/// `pcap_next`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_next(p: *mut Pcap, header: *mut Header) -> *const c_uchar {
    let handle = handles::find(p);
    // SAFETY: the arguments go on as they came, or lead to what libpcap documents.
    unsafe {
        if is_passed(handle) {
            return real::pcap_next(p, header);
        }
        let (done, found) = next(handle);
        if done > 0 {
            *header = found.header;
        }
        found.data
    }
}

/// `pcap_next_ex`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_next_ex(
    p: *mut Pcap,
    header: *mut *mut Header,
    data: *mut *const c_uchar,
) -> c_int {
    let handle = handles::find(p);
    // SAFETY: the arguments go on as they came, or lead to what libpcap documents.
    unsafe {
        if is_passed(handle) {
            return real::pcap_next_ex(p, header, data);
        }
        let (done, found) = next(handle);
        (*handle).source.header = found.header;
        *header = &raw mut (*handle).source.header;
        match done {
            1 => {
                *data = found.data;
                1
            }
            // The end of a file.
            0 => BREAK,
            error => error,
        }
    }
}

/// Whether libpcap reads the packets of a handle.
///
/// # Safety
/// `handle` is null or in the table.
#[inline]
unsafe fn is_passed(handle: *mut Handle) -> bool {
    // SAFETY: as promised.
    handle.is_null() || unsafe { (*handle).is_passed.load(Ordering::Relaxed) }
}

/// `pcap_setfilter`. libpcap judges the program first, and has it for the records that it reads.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setfilter(p: *mut Pcap, program: *mut Program) -> c_int {
    // SAFETY: the arguments go on as they came.
    let result = unsafe { real::pcap_setfilter(p, program) };
    let handle = handles::find(p);
    if result != 0 || handle.is_null() {
        return result;
    }
    // SAFETY: libpcap has accepted the program, so its instructions are there; the handle is in the table.
    unsafe {
        let insns = core::slice::from_raw_parts((*program).insns, (*program).len as usize);
        let judge = catch_unwind(|| Judge::new(insns)).unwrap_or(None);
        let source = &raw mut (*handle).source;
        if catch_unwind(AssertUnwindSafe(|| (*source).set_filter(judge))).is_err() {
            (*source).hand_over();
        }
    }
    result
}

/// `pcap_breakloop`. May be called from signal handlers and other threads.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_breakloop(p: *mut Pcap) {
    let handle = handles::find(p);
    // SAFETY: the handle is in the table, or the arguments go on as they came.
    unsafe {
        let is_over = !handle.is_null() && (*handle).source.is_over();
        if !handle.is_null() && !is_over {
            (*handle).is_broken.store(true, Ordering::SeqCst);
        }
        if is_over || is_passed(handle) {
            real::pcap_breakloop(p);
        }
    }
}

/// `pcap_file`. The program may read and seek from here on, so libpcap reads all the rest.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_file(p: *mut Pcap) -> *mut FILE {
    let handle = handles::find(p);
    // SAFETY: the handle is in the table; the arguments go on as they came.
    unsafe {
        if !handle.is_null() {
            (*handle).source.hand_over();
        }
        real::pcap_file(p)
    }
}

/// `pcap_dump`: without the lock of the `FILE` if the process has one thread.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_dump(
    user: *mut c_uchar,
    header: *const Header,
    data: *const c_uchar,
) {
    let file = user.cast::<FILE>();
    // SAFETY: `user` is a dumper, which is a stdio file; header and data are a packet.
    unsafe {
        if !real::has_one_thread() {
            return real::pcap_dump(user, header, data);
        }
        if libc::ferror(file) != 0 {
            return;
        }
        let header = &*header;
        let words = [
            header.time.tv_sec as u32,
            header.time.tv_usec as u32,
            header.captured,
            header.wire_len,
        ];
        if fwrite_unlocked(words.as_ptr().cast(), size_of_val(&words), 1, file) == 1 {
            fwrite_unlocked(data.cast(), header.captured as usize, 1, file);
        }
    }
}

unsafe extern "C" {
    /// **Source**: unlocked_stdio(3).
    fn fwrite_unlocked(data: *const c_void, size: usize, count: usize, file: *mut FILE) -> usize;
}
