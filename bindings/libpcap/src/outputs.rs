//! Buffers of the files that a program writes while this library reads.
//!
//! glibc's buffer has 4 KiB, so that a write to the kernel follows every four packets of an Internet uplink. If the program is killed, the
//! file lacks what is in the buffer: for captures it is the smaller one.

use crate::handles::{self, Source};
use crate::real;
use crate::types::*;
use core::ffi::{c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// Size of a buffer, bytes, for packets of savefiles and of captures.
const OF_FILE: usize = 256 << 10;
const OF_CAPTURE: usize = 64 << 10;

/// Files that have such a buffer at the same time.
const MOST: usize = 16;

/// The buffers, by the addresses of their files.
static BUFFERS: Mutex<Vec<(usize, Vec<u8>)>> = Mutex::new(Vec::new());

/// `pcap_dump_open`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_dump_open(p: *mut Pcap, name: *const c_char) -> *mut Dumper {
    // SAFETY: the arguments go on as they came; a handle of the table is open.
    unsafe {
        let dumper = real::pcap_dump_open(p, name);
        if let Some(handle) = handles::find(p).as_ref()
            && !dumper.is_null()
            && real::pcap_dump_file(dumper) != stdout
        {
            enlarge(
                dumper,
                match handle.source {
                    Source::File(_) => OF_FILE,
                    Source::Live(_) => OF_CAPTURE,
                },
            );
        }
        dumper
    }
}

/// Gives a new file a large buffer.
///
/// # Safety
/// The dumper was just opened.
unsafe fn enlarge(dumper: *mut Dumper, size: usize) {
    let mut buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A file that the program itself has closed had the same address.
    buffers.retain(|(file, _)| *file != dumper.addr());
    if buffers.len() >= MOST {
        return;
    }
    let mut buffer = vec![0; size];
    let file = dumper.cast();
    // SAFETY: the buffer lives until the file is closed; glibc writes the header of the savefile first.
    let done: c_int =
        unsafe { libc::setvbuf(file, buffer.as_mut_ptr().cast(), libc::_IOFBF, size) };
    if done == 0 {
        buffers.push((dumper.addr(), buffer));
    }
}

/// `pcap_dump_close`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_dump_close(dumper: *mut Dumper) {
    // SAFETY: the argument goes on as it came.
    unsafe { real::pcap_dump_close(dumper) };
    let mut buffers = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    buffers.retain(|(file, _)| *file != dumper.addr());
}

unsafe extern "C" {
    /// **Source**: stdout(3).
    static stdout: *mut libc::FILE;
}
