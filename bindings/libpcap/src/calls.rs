//! The functions of libpcap that are ours.

use crate::handles::{self, Handle, Near, Source};
use crate::judge::Judge;
use crate::live::{self, Live};
use crate::offline::{self, Offline};
use crate::real;
use crate::types::*;
use core::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering;
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
            handles::insert(Handle::new(p, Source::File(Box::new(source))));
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
        // SAFETY: the handle is open.
        match unsafe { &mut (*handle).source } {
            // Standard input is left where libpcap would have left it.
            Source::File(file) => file.hand_over(),
            Source::Live(live) => {
                // SAFETY: as above. A panic would be a fault of this library.
                let _ = catch_unwind(AssertUnwindSafe(|| unsafe { live.finish(p) }));
            }
        }
        handles::remove(p);
    }
    handles::asked(p);
    // SAFETY: the arguments go on as they came.
    unsafe { real::pcap_close(p) };
}

/// Reads packets; the result is libpcap's of `pcap_dispatch`.
///
/// # Safety
/// `handle` is in the table; the callback is the program's.
unsafe fn read(handle: *mut Handle, count: c_int, callback: Handler, user: *mut c_uchar) -> c_int {
    // SAFETY: as promised. The sources are boxed, so that these pointers stay good while the callback uses the handle.
    unsafe {
        match &mut (*handle).source {
            Source::File(file) => {
                let file: *mut Offline = &raw mut **file;
                offline::read(handle, count, callback, user, file)
            }
            Source::Live(live) => {
                let live: *mut Live = &raw mut **live;
                live::read(handle, count, callback, user, live)
            }
        }
    }
}

/// `pcap_dispatch`.
///
/// # Safety
/// As libpcap documents it.
pub unsafe extern "C-unwind" fn pcap_dispatch(
    p: *mut Pcap,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    // SAFETY: the arguments go on as they came, or the handle is in the table.
    unsafe {
        match handles::find_near(p) {
            Near::Ours(handle) if !is_passed(handle) => read(handle, count, callback, user),
            Near::Elsewhere => dispatch_anywhere(p, count, callback, user),
            _ => real::pcap_dispatch(p, count, callback, user),
        }
    }
}

/// `pcap_dispatch` for a handle that may have any place in the table.
///
/// # Safety
/// As of `pcap_dispatch`.
#[cold]
unsafe extern "C-unwind" fn dispatch_anywhere(
    p: *mut Pcap,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    let handle = handles::find(p);
    // SAFETY: the arguments go on as they came, or the handle is in the table.
    unsafe {
        match is_passed(handle) {
            true => real::pcap_dispatch(p, count, callback, user),
            false => read(handle, count, callback, user),
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
            let done = read(handle, left, callback, user);
            if done < 0 || (done == 0 && matches!((*handle).source, Source::File(_))) {
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

/// Place where `pcap_next` and `pcap_next_ex` put a packet.
struct Next {
    header: Header,
    data: *const c_uchar,
    /// Copy of the packet, if its memory is the kernel's after the call.
    copy: *mut Vec<u8>,
}

/// Notes a packet.
///
/// # Safety
/// `user` leads to a `Next`, `header` to a header, and `data` to the captured bytes.
unsafe extern "C-unwind" fn note(user: *mut c_uchar, header: *const Header, data: *const c_uchar) {
    // SAFETY: as promised. The copy has room for the snap length, which no packet exceeds.
    unsafe {
        let next = &mut *user.cast::<Next>();
        (next.header, next.data) = (*header, data);
        if !next.copy.is_null() {
            let copy = &mut *next.copy;
            let captured = ((*header).captured as usize).min(copy.len());
            core::ptr::copy_nonoverlapping(data, copy.as_mut_ptr(), captured);
            next.data = copy.as_ptr();
        }
    }
}

/// Reads one packet. Returns the result of `pcap_dispatch`, and the packet.
///
/// # Safety
/// `handle` is in the table.
unsafe fn next(handle: *mut Handle) -> (c_int, Next) {
    // SAFETY: the handle is in the table.
    let (header, copy) = match unsafe { &mut (*handle).source } {
        Source::File(file) => (file.header, null_mut()),
        Source::Live(live) => (live.header, &raw mut live.copy),
    };
    let mut next = Next {
        header,
        data: null(),
        copy,
    };
    // SAFETY: `note` gets a pointer to `next`.
    let done = unsafe { read(handle, 1, note, (&raw mut next).cast()) };
    (done, next)
}

/// `pcap_next`.
///
/// # Safety
/// As libpcap documents it.
pub unsafe extern "C-unwind" fn pcap_next(p: *mut Pcap, header: *mut Header) -> *const c_uchar {
    // SAFETY: the arguments go on as they came.
    unsafe {
        match handles::find_near(p) {
            Near::None => real::pcap_next(p, header),
            _ => next_of(p, header),
        }
    }
}

/// `pcap_next` for a handle that may be in the table.
///
/// # Safety
/// As of `pcap_next`.
unsafe extern "C-unwind" fn next_of(p: *mut Pcap, header: *mut Header) -> *const c_uchar {
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
pub unsafe extern "C-unwind" fn pcap_next_ex(
    p: *mut Pcap,
    header: *mut *mut Header,
    data: *mut *const c_uchar,
) -> c_int {
    // SAFETY: the arguments go on as they came.
    unsafe {
        match handles::find_near(p) {
            Near::None => real::pcap_next_ex(p, header, data),
            _ => next_ex_of(p, header, data),
        }
    }
}

/// `pcap_next_ex` for a handle that may be in the table.
///
/// # Safety
/// As of `pcap_next_ex`.
unsafe extern "C-unwind" fn next_ex_of(
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
        let (shown, is_file) = match &mut (*handle).source {
            Source::File(file) => (&mut file.header, true),
            Source::Live(live) => (&mut live.header, false),
        };
        *shown = found.header;
        *header = shown;
        match done {
            1 => {
                *data = found.data;
                1
            }
            // The end of a file.
            0 if is_file => BREAK,
            other => other,
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
    if handle.is_null() {
        return result;
    }
    // SAFETY: libpcap has accepted the program if its instructions are read; the handle is in the table.
    unsafe {
        let insns = || core::slice::from_raw_parts((*program).insns, (*program).len as usize);
        match &mut (*handle).source {
            Source::File(file) if result == 0 => {
                let judge = catch_unwind(|| Judge::new(insns())).unwrap_or(None);
                if catch_unwind(AssertUnwindSafe(|| file.set_filter(judge))).is_err() {
                    file.hand_over();
                }
            }
            Source::Live(live) => {
                // libpcap's socket has the filter now, and is to receive nothing.
                let _ = live::silence(real::pcap_fileno(p));
                if result == 0 {
                    live.set_filter(insns());
                }
            }
            Source::File(_) => {}
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
        if handle.is_null() {
            return real::pcap_breakloop(p);
        }
        match &(*handle).source {
            Source::File(file) if file.is_over() => return real::pcap_breakloop(p),
            Source::File(_) => (*handle).is_broken.store(true, Ordering::SeqCst),
            Source::Live(live) => {
                (*handle).is_broken.store(true, Ordering::SeqCst);
                live.wake();
            }
        }
        if is_passed(handle) {
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
        if !handle.is_null()
            && let Source::File(file) = &mut (*handle).source
        {
            file.hand_over();
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
    // SAFETY: the arguments go on as they came.
    unsafe {
        match real::has_one_thread() {
            true => dump_unlocked(user, header, data),
            false => real::pcap_dump(user, header, data),
        }
    }
}

/// `pcap_dump` without the lock of the `FILE`, which is glibc's.
///
/// # Safety
/// As of `pcap_dump`, and no other thread uses the `FILE`.
pub unsafe extern "C-unwind" fn dump_unlocked(
    user: *mut c_uchar,
    header: *const Header,
    data: *const c_uchar,
) {
    let file = user.cast::<FILE>();
    // SAFETY: `user` is a dumper, which is a stdio file; header and data are a packet.
    unsafe {
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
        let captured = header.captured as usize;
        // The first bytes of glibc's `FILE`, which its macros know.
        let buffer = &mut *user.cast::<Stdio>();
        let room = buffer.write_end.addr().wrapping_sub(buffer.write_at.addr());
        if buffer.write_at < buffer.write_end && room >= size_of_val(&words) + captured {
            let at = buffer.write_at;
            at.cast::<[u32; 4]>().write_unaligned(words);
            let at = at.add(size_of_val(&words));
            core::ptr::copy_nonoverlapping(data, at, captured);
            buffer.write_at = at.add(captured);
            return;
        }
        if fwrite_unlocked(words.as_ptr().cast(), size_of_val(&words), 1, file) == 1 {
            fwrite_unlocked(data.cast(), captured, 1, file);
        }
    }
}

/// Begin of glibc's `FILE`, as its macros have used it since 1997. **Source**: bits/types/struct_FILE.h.
#[repr(C)]
struct Stdio {
    flags: c_int,
    read_at: *mut u8,
    read_end: *mut u8,
    read_base: *mut u8,
    write_base: *mut u8,
    write_at: *mut u8,
    write_end: *mut u8,
}

unsafe extern "C" {
    /// **Source**: unlocked_stdio(3).
    fn fwrite_unlocked(data: *const c_void, size: usize, count: usize, file: *mut FILE) -> usize;
}
