//! The functions of libpcap about captures that are ours.

use crate::handles::{self, Handle, Source};
use crate::live::{Asked, Live, silence};
use crate::real;
use crate::types::*;
use core::ffi::{c_char, c_int};
use core::ptr::null_mut;
use std::panic::catch_unwind;

/// Variable that asks for a ring of weir, and its size.
const RING: &str = "WEIR_RING";

/// Size of the ring, bytes, if the environment asks for one.
fn ring() -> Option<usize> {
    /// Size that stands for a wrong one.
    const USUAL: usize = 32 << 20;
    let text = std::env::var_os(RING)?;
    let size = text.to_str().and_then(size);
    if size.is_none() {
        say(&format!(
            "{RING}={} is no size from 1M to 1G, such as 256M: 32M is taken",
            text.display()
        ));
    }
    Some(size.unwrap_or(USUAL))
}

/// Bytes of a size such as `256M`; from 1 MiB to 1 GiB.
fn size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    let bytes = digits.parse::<usize>().ok()?.checked_mul(unit)?;
    (1 << 20..=1 << 30).contains(&bytes).then_some(bytes)
}

/// Prints a line on standard error.
fn say(line: &str) {
    let line = format!("weir: {line}\n");
    // SAFETY: the bytes live through the call.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

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
    let ring = catch_unwind(ring).unwrap_or(None);
    // SAFETY: the arguments go on as they came.
    unsafe {
        if let Some(bytes) = ring.filter(|_| asked.is_special) {
            real::pcap_set_buffer_size(p, bytes as c_int);
        }
        let result = real::pcap_activate(p);
        if let Some(bytes) = ring.filter(|_| result >= 0) {
            let adopted = catch_unwind(|| Live::adopt(p, bytes, asked));
            match adopted.unwrap_or_else(|_| Err("a fault of weir".to_owned())) {
                Ok(Some(live)) => {
                    let handle = Handle::new(p, Source::Live(Box::new(live)));
                    if handles::insert(handle)
                        && let Err(error) = silence(real::pcap_fileno(p))
                    {
                        handles::remove(p);
                        say(&format!("{RING}: libpcap captures: {error}"));
                    }
                }
                Ok(None) if asked.is_special => say(&format!(
                    "{RING}: libpcap captures at once or by another clock, in a ring of that size"
                )),
                Ok(None) => say(&format!(
                    "{RING}: libpcap captures: weir's ring takes Ethernet of one interface"
                )),
                Err(error) => say(&format!("{RING}: libpcap captures: {error}")),
            }
        }
        result
    }
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
    ask(p, result, |asked| asked.is_special |= on != 0)
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
    if result == 0 && std::env::var_os(RING).is_some() {
        handles::ask(p, change);
    }
    result
}

/// `pcap_fileno`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_fileno(p: *mut Pcap) -> c_int {
    // SAFETY: the arguments go on as they came.
    unsafe {
        live(p)
            .as_ref()
            .map_or_else(|| real::pcap_fileno(p), Live::fd)
    }
}

/// `pcap_get_selectable_fd`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_get_selectable_fd(p: *mut Pcap) -> c_int {
    // SAFETY: the arguments go on as they came.
    unsafe {
        live(p)
            .as_ref()
            .map_or_else(|| real::pcap_get_selectable_fd(p), Live::fd)
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
