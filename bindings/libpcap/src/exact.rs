//! Programs that are right where libpcap's optimizer makes wrong ones.
//!
//! libpcap's translation of an expression is right; some programs of its optimizer are not. With `WEIR_EXACT=1` weir makes the
//! translation short instead.

use crate::real;
use crate::settings::is_exact;
use crate::types::*;
use core::ffi::{CStr, c_char, c_int, c_uint};
use core::ptr::null_mut;
use std::panic::catch_unwind;

/// The optimizer's error for an expression that no packet matches, which may be wrong.
const REJECTS_ALL: &CStr = c"expression rejects all packets";

/// `pcap_compile`.
///
/// # Safety
/// As libpcap documents it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_compile(
    p: *mut Pcap,
    program: *mut Program,
    text: *const c_char,
    optimize: c_int,
    mask: c_uint,
) -> c_int {
    // SAFETY: the arguments go on as they came.
    let result = unsafe { real::pcap_compile(p, program, text, optimize, mask) };
    if optimize == 0 || !catch_unwind(is_exact).unwrap_or(false) {
        return result;
    }
    // SAFETY: the text of an error ends with a 0.
    let may_be_wrong =
        result == 0 || unsafe { CStr::from_ptr(real::pcap_geterr(p)) } == REJECTS_ALL;
    if !may_be_wrong {
        return result;
    }
    // SAFETY: the arguments are the caller's.
    let Some(right) = (unsafe { translation(p, text, mask) }) else {
        return result;
    };
    let never_passes = |insn: &Insn| {
        !matches!(
            insn,
            Insn {
                code: 6,
                k: 1..,
                ..
            } | Insn { code: 0x16, .. }
        )
    };
    if result != 0 && right.iter().all(never_passes) {
        return result;
    }
    // SAFETY: `pcap_freecode` frees the instructions, as those of libpcap.
    unsafe {
        let bytes = size_of_val(right.as_slice());
        let insns = libc::malloc(bytes).cast::<Insn>();
        if insns.is_null() {
            return result;
        }
        core::ptr::copy_nonoverlapping(right.as_ptr(), insns, right.len());
        if result == 0 {
            real::pcap_freecode(program);
        }
        program.write(Program {
            len: right.len() as c_uint,
            insns,
        });
    }
    0
}

/// libpcap's translation of an expression without its optimizer, made short; `None` if there is none.
///
/// # Safety
/// As of `pcap_compile`.
unsafe fn translation(p: *mut Pcap, text: *const c_char, mask: c_uint) -> Option<Vec<Insn>> {
    let mut program = Program {
        len: 0,
        insns: null_mut(),
    };
    // SAFETY: the arguments are the caller's, and the program is a variable. libpcap fills it if it succeeds.
    unsafe {
        if real::pcap_compile(p, &raw mut program, text, 0, mask) != 0 {
            return None;
        }
        let insns = core::slice::from_raw_parts(program.insns, program.len as usize).to_vec();
        real::pcap_freecode(&raw mut program);
        let simplified = catch_unwind(|| {
            let program = weir_filter::Program::new(insns).ok()?;
            Some(weir_filter::simplify(&program).insns().to_vec())
        });
        simplified.unwrap_or(None)
    }
}
