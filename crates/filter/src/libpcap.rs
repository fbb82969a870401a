//! libpcap's compiler and interpreter: bindings of eight functions, and of nothing else.
//!
//! Since libpcap 1.8 the compiler keeps its state in the handle and not in globals. So each call here opens a handle of its
//! own, and needs no lock. **Threads**: any.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_uint};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use weir_packet::LinkType;

use crate::error::{ACTIONS, UNFINISHED};
use crate::program::{Insn, PACKET_TYPE, Program, SNAPLEN};
use crate::sets::{Marked, Names, runs};
use crate::simplify::{rejects_all, simplify};
use crate::{Error, names};

/// The netmask for `ip broadcast`. For a file it is unknown; tcpdump takes 0, so 0.0.0.0 and 255.255.255.255 match.
const NETMASK: u32 = 0;

/// Magic and version of a pcap header, in this machine's byte order (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html>).
const MAGIC: u32 = 0xa1b2_c3d4;
const VERSION: u32 = if cfg!(target_endian = "little") {
    2 | 4 << 16
} else {
    2 << 16 | 4
};

/// Size of libpcap's buffer for error messages, bytes (`PCAP_ERRBUF_SIZE`).
const ERROR_BUFFER: usize = 256;

/// Longest accepted expression, bytes. libpcap recurses once per block; this limit keeps it within a thread's stack.
const MAX_EXPRESSION: usize = 32 * 1024;

/// Largest number of instructions, not optimised, for which libpcap's optimizer is asked for its errors. It needs seconds for
/// programs of ten times this length.
const MAX_OPTIMISED: usize = 1500;

/// The optimizer's error for an expression that no packet matches. It may be false, as its programs may be.
const REJECTS_ALL: &str = "expression rejects all packets";

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
    fn pcap_open_dead(link: c_int, snaplen: c_int) -> *mut Handle;
    fn pcap_fopen_offline(file: *mut libc::FILE, message: *mut c_char) -> *mut Handle;
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
    fn pcap_lib_version() -> *const c_char;
    #[link_name = "bpf_filter"]
    fn raw_bpf_filter(
        insns: *const Insn,
        data: *const c_uchar,
        wire_len: c_uint,
        data_len: c_uint,
    ) -> c_uint;
}

/// Version text of libpcap, for instance `libpcap version 1.10.3 (with TPACKET_V3)`.
#[must_use]
pub fn version() -> String {
    // SAFETY: the function has no preconditions and returns a text that ends with NUL and lives as long as the library.
    let text = unsafe { CStr::from_ptr(pcap_lib_version()) };
    text.to_string_lossy().into_owned()
}

/// Compiles a tcpdump expression for frames of `link`, as in a savefile of that link type.
///
/// An empty expression matches everything. Names of services, protocols and networks are looked up in this machine's own tables.
/// Names of hosts would be sent to a resolver, so they are refused unless `resolve`.
///
/// **Cost**: tens of microseconds to milliseconds; allocates; with `resolve` as long as the resolver takes.
/// **Errors**: [`Error::Name`], [`Error::Nul`], [`Error::TooLong`], and [`Error::Refused`] with
/// libpcap's message.
pub fn compile(expression: &str, link: LinkType, resolve: bool) -> Result<Program, Error> {
    compile_with(expression, link, &Names::from(resolve))
}

/// Compiles an expression that may name sets of addresses, as in `src @banned`; otherwise as [`compile`].
///
/// A set stands for an address after `src`, `dst`, `host` and `net`, alone or with `ip`, `ip6`,
/// `arp` or `rarp`, and in lists of addresses. It is the same as the list of its addresses and
/// prefixes, `(host A or net B or ...)`, for each packet that has its addresses whole. If the
/// packet ends within an address, the program ends with 0, as it does with one address in the place
/// of the set.
///
/// **Errors**: as of [`compile`], [`Error::UnknownSet`] and [`Error::SetPlace`].
pub fn compile_with(expression: &str, link: LinkType, names: &Names) -> Result<Program, Error> {
    compile_for(expression, link, names, false)
}

/// Compiles a tcpdump expression for frames of a live capture: `inbound` and `outbound` become loads at
/// [`PACKET_TYPE`], which [`Program::of_direction`] replaces with constants.
///
/// If the expression is valid for a savefile, the result is that of [`compile`].
///
/// **Errors**: as of [`compile_with`], with libpcap's messages for live captures, and
/// [`Error::Ancillary`].
pub fn compile_live(expression: &str, link: LinkType, names: &Names) -> Result<Program, Error> {
    match compile_with(expression, link, names) {
        Err(Error::Refused { .. }) => {}
        compiled => return compiled,
    }
    let program = compile_for(expression, link, names, true)?;
    if program.ancillary().all(|place| place == PACKET_TYPE) {
        Ok(program)
    } else {
        Err(Error::Ancillary)
    }
}

/// Compiles an expression like [`compile`], without any simplification: libpcap's translation, instruction by instruction.
///
/// **Cost**: seconds for lists of a thousand hosts. **Errors**: as of [`compile`], but for those of
/// libpcap's optimizer.
pub fn compile_unoptimised(expression: &str, link: LinkType) -> Result<Program, Error> {
    let names = Names::default();
    let Some(source) = Source::new(expression, link, &names, false)? else {
        return Ok(Program::accept_all());
    };
    check_length(expression)?;
    Program::new(source.compile(expression, Optimizer::Off)?)
}

/// Compiles an expression like [`compile`], with libpcap's optimizer: the program that tcpdump runs, which may be false. For
/// comparisons only.
///
/// **Cost**: minutes for lists of a thousand hosts. **Errors**: as of [`compile`]; the error that
/// the expression rejects all packets may be false too.
pub fn compile_optimised(expression: &str, link: LinkType) -> Result<Program, Error> {
    let names = Names::default();
    let Some(source) = Source::new(expression, link, &names, false)? else {
        return Ok(Program::accept_all());
    };
    check_length(expression)?;
    Program::new(source.compile(expression, Optimizer::On)?)
}

fn compile_for(
    expression: &str,
    link: LinkType,
    names: &Names,
    live: bool,
) -> Result<Program, Error> {
    let mut lists = names.clone();
    if let Some(text) = runs::as_sets(expression, &mut lists.sets) {
        match with_lists(expression, &text, link, &lists, live) {
            Ok(program) => return matching(program),
            Err(error) if expression.len() > MAX_EXPRESSION => return Err(error),
            // The whole expression has libpcap's message, or a program.
            Err(_) => {}
        }
    }
    let Some(source) = Source::new(expression, link, names, live)? else {
        return Ok(Program::accept_all());
    };
    check_length(expression)?;
    if let Some(program) = source.with_sets()? {
        return Ok(simplify(&program));
    }
    let program = Program::new(source.compile(expression, Optimizer::Off)?)?;
    let simplified = simplify(&program);
    // The optimizer's programs may be false, so only its errors are of use. Names are not looked up twice.
    let asked = program.insns().len() <= MAX_OPTIMISED && names::check(expression).is_ok();
    if !asked {
        return matching(simplified);
    }
    match source.compile(expression, Optimizer::On) {
        Err(Error::Refused { message, .. })
            if message == REJECTS_ALL && !rejects_all(&simplified) =>
        {
            Ok(simplified)
        }
        Err(error) => Err(error),
        Ok(_) => Ok(simplified),
    }
}

/// Compiles an expression whose long lists of hosts are sets in `text`.
fn with_lists(
    expression: &str,
    text: &str,
    link: LinkType,
    names: &Names,
    live: bool,
) -> Result<Program, Error> {
    if !names.resolve {
        names::check(expression)?;
    }
    check_length(text)?;
    let source = Source::new(text, link, names, live)?;
    let program = source
        .map(|source| source.with_sets())
        .transpose()?
        .flatten();
    program.map_or_else(
        || Ok(Program::accept_all()),
        |program| Ok(simplify(&program)),
    )
}

/// The program, if a packet can match. **Errors**: none can.
fn matching(simplified: Program) -> Result<Program, Error> {
    match rejects_all(&simplified) {
        true => Err(Error::Refused {
            message: REJECTS_ALL.to_owned(),
            word: None,
        }),
        false => Ok(simplified),
    }
}

fn check_length(expression: &str) -> Result<(), Error> {
    if expression.len() > MAX_EXPRESSION {
        return Err(Error::TooLong {
            length: expression.len(),
            limit: MAX_EXPRESSION,
        });
    }
    Ok(())
}

/// Whether libpcap's optimizer works on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Optimizer {
    On,
    Off,
}

/// An expression that may be compiled.
struct Source<'a> {
    link: LinkType,
    live: bool,
    /// The expression with markers, if it names sets.
    marked: Option<Marked>,
    /// The first word that is not a keyword, at a place where no name is allowed.
    word: Option<&'a str>,
}

impl<'a> Source<'a> {
    /// Checks an expression; `None` if it is empty.
    fn new(
        expression: &'a str,
        link: LinkType,
        names: &Names,
        live: bool,
    ) -> Result<Option<Self>, Error> {
        if let Some(offset) = expression.bytes().position(|byte| byte == 0) {
            return Err(Error::Nul { offset });
        }
        if expression.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
            return Ok(None);
        }
        let marked = Marked::new(expression, &names.sets)?;
        let word = if names.resolve {
            None
        } else {
            names::check(expression)?
        };
        // After one of these another word has to follow.
        let last = expression.split_whitespace().next_back();
        let word = word.or(last.filter(|last| UNFINISHED.contains(last) || ACTIONS.contains(last)));
        Ok(Some(Self {
            link,
            live,
            marked,
            word,
        }))
    }

    /// The program with tests of its sets, not simplified; `None` if it names none.
    fn with_sets(&self) -> Result<Option<Program>, Error> {
        let Some(marked) = &self.marked else {
            return Ok(None);
        };
        let [first, second] = &marked.texts;
        let programs = [
            self.compile(first, Optimizer::Off)?,
            self.compile(second, Optimizer::Off)?,
        ];
        marked.program(programs).map(Some)
    }

    fn compile(&self, text: &str, optimizer: Optimizer) -> Result<Vec<Insn>, Error> {
        let text = CString::new(text).map_err(|error| Error::Nul {
            offset: error.nul_position(),
        })?;
        let compiler = if self.live {
            Compiler::for_live(self.link)?
        } else {
            Compiler::for_file(self.link)?
        };
        compiler.compile(&text, self.word, optimizer == Optimizer::On)
    }
}

/// Runs a program in libpcap's own interpreter: the oracle of every test here.
///
/// **Panics**: the program tests sets, which libpcap does not know.
#[must_use]
pub fn bpf_filter(program: &Program, data: &[u8], wire_len: u32) -> u32 {
    assert!(program.tests().is_empty(), "libpcap knows no sets");
    let data_len = c_uint::try_from(data.len()).unwrap_or(c_uint::MAX);
    // SAFETY: `Program::new` promises known operations, none of ours among them, jumps within the list and a return at its end, so libpcap reads only
    // `insns` of `program`; `data_len` never exceeds the length of `data`, and both borrows outlive the call.
    unsafe { raw_bpf_filter(program.insns().as_ptr(), data.as_ptr(), wire_len, data_len) }
}

/// libpcap's compiler for frames of one link type.
struct Compiler {
    handle: NonNull<Handle>,
    /// Header of the savefile that the handle has open, if it is a handle for files; not accessed while the handle lives.
    _file: Option<Box<[u8; 24]>>,
}

impl Compiler {
    /// The compiler for frames of a savefile: a handle of an empty savefile in memory.
    ///
    /// `pcap_open_dead` would need no file, but its programs are for a live capture: `ip6` on BSD loopback then compares
    /// with this system's own number, and `inbound` reads ancillary data of the kernel.
    fn for_file(link: LinkType) -> Result<Self, Error> {
        let mut header = Box::new([0u8; 24]);
        for (place, field) in
            header
                .chunks_exact_mut(4)
                .zip([MAGIC, VERSION, 0, 0, SNAPLEN, link.0.into()])
        {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        // SAFETY: the header outlives the stream (it is a field next to the handle, which closes
        // the stream when dropped), and the mode only reads it.
        let stream =
            unsafe { libc::fmemopen(header.as_mut_ptr().cast(), header.len(), c"r".as_ptr()) };
        if stream.is_null() {
            return Err(Error::Refused {
                message: "no memory for libpcap".into(),
                word: None,
            });
        }
        let mut message: [c_char; ERROR_BUFFER] = [0; ERROR_BUFFER];
        // SAFETY: the stream is open, and the buffer has the size that libpcap promises not to exceed.
        let handle = unsafe { pcap_fopen_offline(stream, message.as_mut_ptr()) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self {
                handle,
                _file: Some(header),
            }),
            None => {
                // SAFETY: libpcap has not taken the stream over, and has written a string that ends in the buffer.
                let text = unsafe {
                    libc::fclose(stream);
                    CStr::from_ptr(message.as_ptr())
                };
                Err(Error::Refused {
                    message: text.to_string_lossy().into_owned(),
                    word: None,
                })
            }
        }
    }

    /// The compiler for frames of a live capture.
    fn for_live(link: LinkType) -> Result<Self, Error> {
        /// `DLT_RAW` of Linux, which has another number in files.
        const RAW: c_int = 12;
        let link = if link == LinkType::RAW {
            RAW
        } else {
            link.0.into()
        };
        // SAFETY: the arguments are numbers only.
        let handle = unsafe { pcap_open_dead(link, SNAPLEN as c_int) };
        let refused = || Error::Refused {
            message: "no memory for libpcap".into(),
            word: None,
        };
        NonNull::new(handle)
            .map(|handle| Self {
                handle,
                _file: None,
            })
            .ok_or_else(refused)
    }

    fn compile(
        &self,
        expression: &CStr,
        word: Option<&str>,
        optimize: bool,
    ) -> Result<Vec<Insn>, Error> {
        let mut raw = MaybeUninit::<RawProgram>::zeroed();
        // SAFETY: the handle is live until drop, `expression` ends with NUL, and libpcap writes `raw` before it returns 0.
        let status = unsafe {
            pcap_compile(
                self.handle.as_ptr(),
                raw.as_mut_ptr(),
                expression.as_ptr(),
                optimize.into(),
                NETMASK,
            )
        };
        if status != 0 {
            return Err(Error::Refused {
                message: self.message(),
                word: word.map(str::to_owned),
            });
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
        // SAFETY: pcap_geterr returns the handle's own NUL-terminated buffer, read before any other use of the handle.
        let text = unsafe { CStr::from_ptr(pcap_geterr(self.handle.as_ptr())) };
        text.to_string_lossy().into_owned()
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // SAFETY: the handle came from pcap_fopen_offline or pcap_open_dead. The handle is closed here once, together with
        // its stream, and nothing derived from it is left.
        unsafe { pcap_close(self.handle.as_ptr()) }
    }
}
