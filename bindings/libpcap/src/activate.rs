//! The functions of libpcap about captures that are ours.

use crate::handles::{self, Handle, Near, Source};
use crate::live::{Asked, Live, silence};
use crate::real;
use crate::settings::{self, say};
use crate::types::*;
use core::ffi::{c_char, c_int};
use core::ptr::null_mut;
use std::panic::catch_unwind;

/// The capture of a handle; null if libpcap captures.
///
/// # Safety
/// `p` is a handle that the program uses in this thread only.
unsafe fn live(p: *mut Pcap) -> *mut Live {
    let handle = handles::find(p);
    if handle.is_null() {
        return null_mut();
    }
    // SAFETY: the handle is in the table.
    match unsafe { &mut (*handle).source } {
        Source::Live(live) => &raw mut **live,
        Source::File(_) => null_mut(),
    }
}

/// `pcap_activate`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_activate(p: *mut Pcap) -> c_int {
    let asked = handles::asked(p);
    let settings = catch_unwind(settings::read).unwrap_or(None);
    // SAFETY: the arguments go on as they came.
    unsafe {
        if let Some(settings) = settings.as_ref().filter(|_| asked.is_special) {
            real::pcap_set_buffer_size(p, settings.ring as c_int);
        }
        let result = real::pcap_activate(p);
        if let Some(settings) = settings.filter(|_| result >= 0) {
            let adopted = catch_unwind(|| Live::adopt(p, &settings, asked));
            let why = match adopted.unwrap_or_else(|_| Err("a fault of weir".to_owned())) {
                Ok(Some(live)) => take_over(p, live).err(),
                Ok(None) if asked.is_special => {
                    Some("timestamps of another clock, in a ring of that size".to_owned())
                }
                Ok(None) => Some("weir captures Ethernet of one interface".to_owned()),
                Err(error) => Some(error),
            };
            if let Some(why) = why {
                say(&format!("libpcap captures: {why}"));
            }
        }
        result
    }
}

/// Puts a capture into the table, and lets libpcap's socket receive nothing more.
///
/// # Safety
/// `p` is an active handle.
unsafe fn take_over(p: *mut Pcap, live: Live) -> Result<(), String> {
    if !handles::insert(Handle::new(p, Source::Live(Box::new(live)))) {
        return Err("too many handles are open".to_owned());
    }
    // SAFETY: as promised.
    silence(unsafe { real::pcap_fileno(p) }).map_err(|error| {
        handles::remove(p);
        error.to_string()
    })
}

/// `pcap_set_timeout`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_timeout(p: *mut Pcap, milliseconds: c_int) -> c_int {
    // SAFETY: the arguments go on as they came.
    let result = unsafe { real::pcap_set_timeout(p, milliseconds) };
    ask(p, result, |asked| asked.timeout_ms = milliseconds)
}

/// `pcap_set_immediate_mode`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_immediate_mode(p: *mut Pcap, on: c_int) -> c_int {
    // SAFETY: the arguments go on as they came.
    let result = unsafe { real::pcap_set_immediate_mode(p, on) };
    ask(p, result, |asked| asked.is_immediate = on != 0)
}

/// `pcap_set_tstamp_type`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_tstamp_type(p: *mut Pcap, kind: c_int) -> c_int {
    /// `PCAP_TSTAMP_HOST` of pcap/pcap.h.
    const HOST: c_int = 0;
    // SAFETY: the arguments go on as they came.
    let result = unsafe { real::pcap_set_tstamp_type(p, kind) };
    ask(p, result, |asked| asked.is_special |= kind != HOST)
}

/// Notes a setting that libpcap has accepted, and returns libpcap's result.
fn ask(p: *mut Pcap, result: c_int, change: impl FnOnce(&mut Asked)) -> c_int {
    if result == 0 && settings::is_capture_set() {
        handles::ask(p, change);
    }
    result
}

/// Descriptor of a capture that the program has asked for before.
///
/// # Safety
/// `handle` is null or in the table.
#[inline]
unsafe fn polled(handle: *mut Handle) -> Option<c_int> {
    // SAFETY: as promised.
    match unsafe { &handle.as_ref()?.source } {
        Source::Live(live) => live.polled_fd(),
        Source::File(_) => None,
    }
}

/// Descriptor of a handle that may be in the table; else libpcap's.
///
/// # Safety
/// As of `pcap_fileno`.
#[inline(never)]
unsafe fn descriptor(p: *mut Pcap, theirs: unsafe fn(*mut Pcap) -> c_int) -> c_int {
    // SAFETY: the arguments go on as they came.
    unsafe { live(p).as_mut().map_or_else(|| theirs(p), Live::fd) }
}

/// `pcap_fileno`.
///
/// # Safety
/// As libpcap documents it.
pub unsafe extern "C-unwind" fn pcap_fileno(p: *mut Pcap) -> c_int {
    // SAFETY: the arguments go on as they came.
    unsafe {
        match handles::find_near(p) {
            Near::None => real::pcap_fileno(p),
            Near::Ours(handle) if let Some(fd) = polled(handle) => fd,
            _ => descriptor(p, real::pcap_fileno),
        }
    }
}

/// `pcap_get_selectable_fd`.
///
/// # Safety
/// As libpcap documents it.
pub unsafe extern "C-unwind" fn pcap_get_selectable_fd(p: *mut Pcap) -> c_int {
    // SAFETY: the arguments go on as they came.
    unsafe {
        match handles::find_near(p) {
            Near::None => real::pcap_get_selectable_fd(p),
            Near::Ours(handle) if let Some(fd) = polled(handle) => fd,
            _ => descriptor(p, real::pcap_get_selectable_fd),
        }
    }
}

/// `pcap_setnonblock`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setnonblock(
    p: *mut Pcap,
    on: c_int,
    error: *mut c_char,
) -> c_int {
    // SAFETY: the arguments go on as they came.
    let (result, live) = unsafe { (real::pcap_setnonblock(p, on, error), live(p).as_mut()) };
    if let Some(live) = live.filter(|_| result == 0) {
        live.set_nonblocking(on != 0);
    }
    result
}

/// `pcap_setdirection`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setdirection(p: *mut Pcap, direction: Direction) -> c_int {
    // SAFETY: the arguments go on as they came.
    let (result, live) = unsafe { (real::pcap_setdirection(p, direction), live(p).as_mut()) };
    if let Some(live) = live.filter(|_| result == 0) {
        live.set_direction(direction);
    }
    result
}

/// `pcap_stats`. The drops of the interface are libpcap's.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_stats(p: *mut Pcap, stats: *mut Stats) -> c_int {
    // SAFETY: the arguments go on as they came, and libpcap fills the counts if it succeeds.
    unsafe {
        let result = real::pcap_stats(p, stats);
        if let Some(live) = live(p).as_mut().filter(|_| result == 0) {
            live.stats(&mut *stats);
        }
        result
    }
}
