//! libpcap's compiler and interpreter: six functions, and nothing else is bound.
//!
//! Since libpcap 1.8 the compiler keeps its state in the handle and not in globals, so each call here opens a handle of its
//! own and needs no lock. **Threads**: any.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use weir_packet::LinkType;

use crate::program::{Insn, Op, Program, SNAPLEN};
use crate::{Error, names};

/// The netmask for `ip broadcast`. Nobody knows the one of a file; tcpdump takes 0, so 0.0.0.0 and 255.255.255.255 match.
const NETMASK: u32 = 0;

/// Longest expression accepted, bytes. libpcap's optimizer recurses once per block; this keeps it within a thread's stack.
const MAX_EXPRESSION: usize = 32 * 1024;

/// Kernel's `SKF_AD_OFF`, as a load offset, and the number of ancillary words behind it (`linux/filter.h`).
const ANCILLARY: std::ops::Range<u32> = 0xffff_f000..0xffff_f040;

/// `pcap_t`, only ever behind a pointer.
#[repr(C)]
struct Handle {
    _opaque: [u8; 0],
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    len: c_uint,
    insns: *mut Insn,
}

// Declared from <pcap/pcap.h> and <pcap/bpf.h> of libpcap 1.10.
#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut Handle;
    fn pcap_compile(
        handle: *mut Handle,
        program: *mut RawProgram,
        expression: *const c_char,
        optimize: c_int,
        netmask: u32,
    ) -> c_int;
    fn pcap_geterr(handle: *mut Handle) -> *mut c_char;
    fn pcap_close(handle: *mut Handle);
    fn pcap_freecode(program: *mut RawProgram);
    #[link_name = "bpf_filter"]
    fn raw_bpf_filter(insns: *const Insn, data: *const c_uchar, wire_len: c_uint, data_len: c_uint) -> c_uint;
}

/// Compiles a tcpdump expression for frames of `link`, as a savefile of that link type would have it.
///
/// An empty expression matches everything. Names of services, protocols and networks come from this machine's own tables;
/// names of hosts would go to a resolver and are refused unless `resolve`.
///
/// **Cost**: tens of microseconds to milliseconds; allocates; with `resolve` as long as the resolver takes.
/// **Errors**: [`Error::Name`], [`Error::Nul`], [`Error::TooLong`], [`Error::Ancillary`], and [`Error::Refused`] with
/// libpcap's words.
pub fn compile(expression: &str, link: LinkType, resolve: bool) -> Result<Program, Error> {
    if let Some(offset) = expression.bytes().position(|byte| byte == 0) {
        return Err(Error::Nul { offset });
    }
    if expression.len() > MAX_EXPRESSION {
        return Err(Error::TooLong { length: expression.len(), limit: MAX_EXPRESSION });
    }
    if expression.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
        return Ok(Program::accept_all());
    }
    let word = if resolve { None } else { names::check(expression)? };
    let text = CString::new(expression).map_err(|error| Error::Nul { offset: error.nul_position() })?;
    let program = Program::new(Dead::open(link)?.compile(&text, word)?)?;
    refuse_ancillary(&program)?;
    Ok(program)
}

/// What libpcap's own interpreter returns: the oracle of every test here.
#[must_use]
pub fn bpf_filter(program: &Program, data: &[u8], wire_len: u32) -> u32 {
    let data_len = c_uint::try_from(data.len()).unwrap_or(c_uint::MAX);
    // SAFETY: `Program::new` promises known operations, jumps within the list and a return at its end, so libpcap reads only
    // `insns` of `program`; `data_len` never exceeds the length of `data`, and both borrows outlive the call.
    unsafe { raw_bpf_filter(program.insns().as_ptr(), data.as_ptr(), wire_len, data_len) }
}

/// A handle that captures nothing and only knows its link type.
struct Dead(NonNull<Handle>);

impl Dead {
    fn open(link: LinkType) -> Result<Self, Error> {
        // SAFETY: takes two numbers and returns a fresh handle or null.
        let handle = unsafe { pcap_open_dead(dlt(link), SNAPLEN as c_int) };
        NonNull::new(handle)
            .map(Self)
            .ok_or_else(|| Error::Refused { message: "libpcap gave no handle".into(), word: None })
    }

    fn compile(&self, expression: &CStr, word: Option<&str>) -> Result<Vec<Insn>, Error> {
        let mut raw = MaybeUninit::<RawProgram>::zeroed();
        // SAFETY: the handle is live until drop, `expression` ends with NUL, and libpcap writes `raw` before it returns 0.
        let status = unsafe { pcap_compile(self.0.as_ptr(), raw.as_mut_ptr(), expression.as_ptr(), 1, NETMASK) };
        if status != 0 {
            return Err(Error::Refused { message: self.message(), word: word.map(str::to_owned) });
        }
        // SAFETY: all-zero is a valid `RawProgram`, and pcap_compile has filled it.
        let mut raw = unsafe { raw.assume_init() };
        let insns = if raw.insns.is_null() {
            Vec::new()
        } else {
            // SAFETY: pcap_compile succeeded, so `insns` points to `len` instructions until pcap_freecode.
            unsafe { std::slice::from_raw_parts(raw.insns, raw.len as usize) }.to_vec()
        };
        // SAFETY: `raw` came from pcap_compile and is freed once; the copy above does not refer to it.
        unsafe { pcap_freecode(&raw mut raw) };
        Ok(insns)
    }

    fn message(&self) -> String {
        // SAFETY: pcap_geterr returns the handle's own NUL-terminated buffer, read before anything else touches the handle.
        let text = unsafe { CStr::from_ptr(pcap_geterr(self.0.as_ptr())) };
        text.to_string_lossy().into_owned()
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        // SAFETY: the handle came from pcap_open_dead, is closed here once, and nothing derived from it is left.
        unsafe { pcap_close(self.0.as_ptr()) }
    }
}

/// The DLT_ value that libpcap uses for a LINKTYPE_ value of a file; they differ where systems disagreed about a number
/// (<https://www.tcpdump.org/linktypes.html>, libpcap `pcap-common.c`; the Linux values of `pcap/dlt.h`).
fn dlt(link: LinkType) -> c_int {
    match link.0 {
        100 => 11, // ATM_RFC1483
        101 => 12, // RAW
        102 => 15, // SLIP_BSDOS
        103 => 16, // PPP_BSDOS
        106 => 19, // ATM_CLIP
        246 => 18, // PFSYNC
        same => c_int::from(same),
    }
}

/// A handle without a file makes libpcap take `inbound`, `ifindex` and the like for questions to the Linux kernel.
fn refuse_ancillary(program: &Program) -> Result<(), Error> {
    for insn in program.insns() {
        if matches!(insn.op(), Some(Op::LoadAbsolute(_))) && ANCILLARY.contains(&insn.k) {
            let what = match insn.k - ANCILLARY.start {
                4 => "the direction of a packet (inbound, outbound)",
                8 => "the interface index (ifindex)",
                _ => "kernel metadata",
            };
            return Err(Error::Ancillary { what });
        }
    }
    Ok(())
}
