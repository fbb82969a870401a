//! eBPF: assembling of programs, maps shared between programs and the process, attaching to an interface, and running on
//! frames.
//!
//! Programs, maps and attachments are file descriptors: they end with their owner, also if the process dies.
//!
//! **Platform**: Linux 5.9 for [`Link`], 5.18 for [`Program::run`]; privilege: CAP_BPF with CAP_NET_ADMIN, or CAP_SYS_ADMIN.
//! **Source**: bpf(2), linux/bpf.h, Documentation/bpf/.

mod assembler;

pub use assembler::{Assembler, Helper, If, Instruction, Label, Op, Operand, Register, Size};

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

// `enum bpf_cmd`.
const MAP_CREATE: c_int = 0;
const MAP_LOOKUP_ELEM: c_int = 1;
const MAP_UPDATE_ELEM: c_int = 2;
const MAP_DELETE_ELEM: c_int = 3;
const PROG_LOAD: c_int = 5;
const PROG_TEST_RUN: c_int = 10;
const LINK_CREATE: c_int = 28;
const LINK_DETACH: c_int = 34;

// `enum bpf_map_type`.
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const XSKMAP: u32 = 17;

/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

// `BPF_XDP` and `BPF_TCX_INGRESS` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
const ATTACH_INGRESS: u32 = 46;

/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGS: u32 = 1 << 5;

/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const LIVE_FRAMES: u32 = 1 << 1;

// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
const SKB_MODE: u32 = 1 << 1;
const DRV_MODE: u32 = 1 << 2;

// `enum xdp_action`: verdicts of an XDP program on a packet.
/// The packet is dropped.
pub const XDP_DROP: i32 = 1;
/// The packet goes on to the stack.
pub const XDP_PASS: i32 = 2;
/// The packet goes to the destination that a helper has set.
pub const XDP_REDIRECT: i32 = 4;

/// Bytes that an error keeps of the verifier's log: its end, which holds the reason.
const LOG_KEPT: usize = 2 << 10;

/// Reason why a program, a map or an attachment cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation needs privileges that the process does not have.
    #[error("{0} needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN")]
    NotPermitted(&'static str),
    /// The verifier refuses the program; the text is the end of its log.
    #[error("the kernel's verifier refuses the program: {0}")]
    Refused(String),
    /// A jump over more instructions than an eBPF jump can skip.
    #[error("a jump over {0} instructions, more than 32767")]
    TooFar(isize),
    /// Error of the system.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operation.
        error: io::Error,
    },
}

impl Error {
    fn new(what: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted(what),
            _ => Self::System { what, error },
        }
    }

    /// Returns the system's number of the error, if the system reported it.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::System { error, .. } => error.raw_os_error(),
            _ => None,
        }
    }
}

/// # Safety
/// The type must be a part of `union bpf_attr` from its start, without padding. Every address in it must be valid for the
/// accesses of the command.
unsafe trait Attribute {}

fn bpf<T: Attribute>(command: c_int, attribute: &mut T) -> io::Result<c_int> {
    // SAFETY: the attribute is a live local with the length given; `Attribute` promises that the addresses in it are valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attribute),
            size_of::<T>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as c_int)
    }
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: callers pass only descriptors that `bpf` has just made and that no other code owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Map: values by number, shared between programs and the process.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    entries: u32,
    /// Bytes that a system call moves for one entry.
    moved: usize,
    /// Distance in bytes from one value to the next in mapped memory.
    step: usize,
}

impl Map {
    /// Creates a map of `entries` zero values of `bytes` bytes each. Programs access them by [`Assembler::map_value`], the
    /// process by [`Self::memory`].
    pub fn array(entries: u32, bytes: u32) -> Result<Self, Error> {
        let bytes = bytes.next_multiple_of(8);
        Self::new(ARRAY, entries, bytes, MMAPABLE, bytes as usize)
    }

    /// Creates an array with a copy for each processor, which programs look up by a helper and change without atomics.
    /// [`Self::read`] returns the copies one after the other.
    pub fn per_processor(entries: u32, bytes: u32) -> Result<Self, Error> {
        let bytes = bytes.next_multiple_of(8);
        Self::new(
            PERCPU_ARRAY,
            entries,
            bytes,
            0,
            bytes as usize * possible_processors()?,
        )
    }

    /// Creates a map of `entries` AF_XDP sockets; a value is a socket's descriptor (`u32`), which can be written and removed.
    pub fn sockets(entries: u32) -> Result<Self, Error> {
        Self::new(XSKMAP, entries, 4, 0, 4)
    }

    fn new(kind: u32, entries: u32, bytes: u32, flags: u32, moved: usize) -> Result<Self, Error> {
        #[repr(C)]
        struct Create {
            kind: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            map_flags: u32,
        }
        // SAFETY: no addresses.
        unsafe impl Attribute for Create {}
        let mut create = Create {
            kind,
            key_size: 4,
            value_size: bytes,
            max_entries: entries,
            map_flags: flags,
        };
        let fd = bpf(MAP_CREATE, &mut create).map_err(|error| Error::new("a BPF map", error))?;
        Ok(Self {
            fd: owned(fd),
            entries,
            moved,
            step: bytes as usize,
        })
    }

    /// Reads entry `index` into `value`, which must have the length of a value; for [`Self::per_processor`], that length times
    /// the number of processors.
    pub fn read(&self, index: u32, value: &mut [u8]) -> Result<(), Error> {
        assert_eq!(value.len(), self.moved, "bytes of a value");
        self.element(
            MAP_LOOKUP_ELEM,
            index,
            value.as_mut_ptr(),
            "reading a BPF map",
        )
    }

    /// Returns the sum of the values of entry `index` over all processors, for values of one `u64`.
    pub fn sum(&self, index: u32) -> Result<u64, Error> {
        assert_eq!(self.step, 8, "bytes of a value");
        let mut values = vec![0; self.moved];
        self.read(index, &mut values)?;
        let (numbers, _) = values.as_chunks();
        Ok(numbers
            .iter()
            .map(|&number| u64::from_ne_bytes(number))
            .sum())
    }

    /// Writes entry `index`; `value` must have the length of a value.
    pub fn write(&self, index: u32, value: &[u8]) -> Result<(), Error> {
        assert_eq!(value.len(), self.moved, "bytes of a value");
        self.element(
            MAP_UPDATE_ELEM,
            index,
            value.as_ptr().cast_mut(),
            "writing a BPF map",
        )
    }

    /// Removes entry `index`; for maps of [`Self::sockets`] only.
    pub fn remove(&self, index: u32) -> Result<(), Error> {
        self.element(
            MAP_DELETE_ELEM,
            index,
            std::ptr::null_mut(),
            "removing from a BPF map",
        )
    }

    /// Runs `command` on entry `index`. `value` points to `self.moved` bytes, which a lookup writes and an update reads; for a
    /// deletion, it points to nothing.
    fn element(
        &self,
        command: c_int,
        index: u32,
        value: *mut u8,
        what: &'static str,
    ) -> Result<(), Error> {
        #[repr(C)]
        struct Element {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        // SAFETY: the key is a live local of four bytes, the key length of every map here. The value has as many bytes as the
        // kernel moves for this map, see the callers.
        unsafe impl Attribute for Element {}
        let key = std::ptr::from_ref(&index) as u64;
        let map = self.fd.as_raw_fd() as u32;
        let mut element = Element {
            map,
            padding: 0,
            key,
            value: value as u64,
            flags: 0,
        };
        bpf(command, &mut element)
            .map(drop)
            .map_err(|error| Error::new(what, error))
    }

    /// Maps the values of a [`Self::array`] into the memory of this process.
    pub fn memory(&self) -> Result<Values, Error> {
        let len = self.step * self.entries as usize;
        // SAFETY: the kernel chooses the address of the mapping, so it touches no existing memory.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                self.fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::System {
                what: "mapping a BPF map",
                error: io::Error::last_os_error(),
            });
        }
        Ok(Values {
            base: base.cast(),
            len,
            step: self.step,
        })
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the number of possible processors, from the kernel's list such as `0-3`; a value per processor has as many copies.
fn possible_processors() -> Result<usize, Error> {
    let failed = |error| Error::System {
        what: "reading which processors there may be",
        error,
    };
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(failed)?;
    let last = list
        .trim()
        .rsplit([',', '-'])
        .next()
        .and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1)
        .ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
}

/// Values of a map, in memory shared with the programs.
#[derive(Debug)]
pub struct Values {
    base: *mut u8,
    len: usize,
    step: usize,
}

// SAFETY: the mapping is owned memory, not tied to a thread, and accessed by atomics only.
unsafe impl Send for Values {}
// SAFETY: as above.
unsafe impl Sync for Values {}

impl Values {
    /// Returns the 64 bits at byte `offset`, a multiple of 8, of entry `index`.
    ///
    /// **Cost**: none; no system call.
    pub fn word(&self, index: u32, offset: usize) -> &AtomicU64 {
        &self.words(index, offset, 1)[0]
    }

    /// Returns as many words from [there](Self::word) on.
    pub fn words(&self, index: u32, offset: usize, count: usize) -> &[AtomicU64] {
        let at = index as usize * self.step + offset;
        let end = offset.saturating_add(count.saturating_mul(8));
        assert!(
            end <= self.step && at + (end - offset) <= self.len && at.is_multiple_of(8),
            "words of a value"
        );
        // SAFETY: the words are in bounds, and aligned because the mapping begins at a page. The mapping lives as long as `self`,
        // and programs and this process access it as whole words.
        unsafe { std::slice::from_raw_parts(self.base.add(at).cast(), count) }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        // SAFETY: `Map::memory` mapped the memory with this length; all borrows of it have ended.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Type of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Program that returns how many bytes of a packet a socket gets, or which member of a fanout group gets it.
    SocketFilter,
    /// Program that decides on a packet at its arrival: drop, pass or redirect.
    Xdp,
    /// Program that decides on a packet after the taps of packet sockets, in traffic control.
    TrafficControl,
}

/// Program that the kernel has loaded.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Loads a program. If `fragments` is set, an XDP program accepts packets of several buffers (Linux 5.18).
    ///
    /// **Errors**: [`Error::Refused`] with the end of the verifier's log. To get the log, the function loads the program a
    /// second time, because loading without a log costs less.
    pub fn load(kind: Kind, assembler: &Assembler<'_>, fragments: bool) -> Result<Self, Error> {
        let instructions = assembler.finish()?;
        let flags = if fragments { HAS_FRAGS } else { 0 };
        let error = match load(kind, &instructions, flags, &mut []) {
            Ok(fd) => return Ok(Self { fd }),
            Err(error) => Error::new("loading a BPF program", error),
        };
        // Without the right to load, the error is EPERM; for a refused program, it is EACCES, EINVAL or another.
        let mut log = vec![0; 1 << 20];
        match load(kind, &instructions, flags, &mut log) {
            Ok(fd) => Ok(Self { fd }),
            Err(_) => {
                let said = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                let said = String::from_utf8_lossy(&log[said.saturating_sub(LOG_KEPT)..said]);
                Err(if said.trim().is_empty() {
                    error
                } else {
                    Error::Refused(said.trim().to_owned())
                })
            }
        }
    }

    /// Makes the kernel run an XDP program on copies of a frame, as if received, and carry out its verdicts.
    ///
    /// **Errors**: errors of the system call. `EINTR` after a signal, when some frames have already gone out. `EINVAL` for a
    /// frame shorter than an Ethernet header or longer than about 3400 bytes, or for a queue that does not exist.
    /// **Platform**: Linux 5.18.
    pub fn run(&self, run: &Run<'_>) -> io::Result<()> {
        /// `struct xdp_md`.
        #[repr(C)]
        struct Context {
            data: u32,
            data_end: u32,
            data_meta: u32,
            ingress_ifindex: u32,
            rx_queue_index: u32,
            egress_ifindex: u32,
        }
        #[repr(C)]
        struct TestRun {
            program: u32,
            retval: u32,
            data_size_in: u32,
            data_size_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
            ctx_size_in: u32,
            ctx_size_out: u32,
            ctx_in: u64,
            ctx_out: u64,
            flags: u32,
            cpu: u32,
            batch_size: u32,
            padding: u32,
        }
        // SAFETY: frame and context live through the call and have the lengths given; the kernel writes to neither.
        unsafe impl Attribute for TestRun {}
        let len = u32::try_from(run.frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let context = Context {
            data: 0,
            data_end: len,
            data_meta: 0,
            ingress_ifindex: run.interface,
            rx_queue_index: run.queue,
            egress_ifindex: 0,
        };
        let mut test = TestRun {
            program: self.fd.as_raw_fd() as u32,
            retval: 0,
            data_size_in: len,
            data_size_out: 0,
            data_in: run.frame.as_ptr() as u64,
            data_out: 0,
            repeat: run.repeat,
            duration: 0,
            ctx_size_in: size_of::<Context>() as u32,
            ctx_size_out: 0,
            ctx_in: std::ptr::from_ref(&context) as u64,
            ctx_out: 0,
            flags: LIVE_FRAMES,
            cpu: 0,
            batch_size: run.batch,
            padding: 0,
        };
        bpf(PROG_TEST_RUN, &mut test).map(drop)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Arguments of [`Program::run`].
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Frame, from its destination address on.
    pub frame: &'a [u8],
    /// Number of the interface that the frame seems to come from.
    pub interface: u32,
    /// Receive queue that the frame seems to come from.
    pub queue: u32,
    /// Number of runs; 0 means one.
    pub repeat: u32,
    /// Number of frames under way at once, up to 256; 0 means 64.
    pub batch: u32,
}

fn load(
    kind: Kind,
    instructions: &[Instruction],
    flags: u32,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kern_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        expected_attach_type: u32,
    }
    // SAFETY: instructions, license and log live through the call. Their lengths are given, or a NUL ends them. The kernel
    // writes only to the log.
    unsafe impl Attribute for Load {}
    let kind = match kind {
        Kind::SocketFilter => 1,
        Kind::TrafficControl => 3,
        Kind::Xdp => 6,
    };
    let mut name = [0; 16];
    name[..4].copy_from_slice(b"weir");
    let (log_level, log_size) = if log.is_empty() {
        (0, 0)
    } else {
        (1, log.len() as u32)
    };
    let mut load = Load {
        kind,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        // Only a few helpers require a certain license, and none of the helpers used here does.
        license: c"MIT OR Apache-2.0".as_ptr() as u64,
        log_level,
        log_size,
        log: if log.is_empty() {
            0
        } else {
            log.as_mut_ptr() as u64
        },
        kern_version: 0,
        flags,
        name,
        interface: 0,
        expected_attach_type: if kind == 6 { ATTACH_XDP } else { 0 },
    };
    bpf(PROG_LOAD, &mut load).map(owned)
}

/// Place where XDP programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates a packet buffer (skb).
    Native,
    /// In the kernel's stack: works with every driver, but slower.
    Generic,
}

/// Attachment of an XDP program to an interface; it ends when the value is dropped or the process dies.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl Link {
    /// Attaches a program to interface number `interface`.
    ///
    /// **Errors**: `EBUSY` and `EEXIST` if another program is attached already; `EOPNOTSUPP` if the driver has no native mode;
    /// `ERANGE` and other errors of the driver if the MTU is too large.
    pub fn xdp(program: &Program, interface: u32, mode: Mode) -> Result<Self, Error> {
        let flags = match mode {
            Mode::Native => DRV_MODE,
            Mode::Generic => SKB_MODE,
        };
        let fd = attach(program, interface, ATTACH_XDP, flags);
        Ok(Self {
            fd: fd.map_err(|error| Error::new("attaching an XDP program", error))?,
        })
    }
}

/// Attaches a program to the ingress of interface number `interface`, after packet sockets. The
/// attachment ends when the descriptor is closed. **Platform**: Linux 6.6.
pub fn attach_to_ingress(program: &Program, interface: u32) -> Result<OwnedFd, Error> {
    let attached = attach(program, interface, ATTACH_INGRESS, 0);
    attached.map_err(|error| Error::new("attaching a program to the ingress", error))
}

fn attach(program: &Program, target: u32, attach_type: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
    }
    // SAFETY: no addresses.
    unsafe impl Attribute for Create {}
    let program = program.fd.as_raw_fd() as u32;
    bpf(
        LINK_CREATE,
        &mut Create {
            program,
            target,
            attach_type,
            flags,
        },
    )
    .map(owned)
}

impl Drop for Link {
    /// Detaches the program at once, even if a forked child that has not called exec yet also has
    /// the descriptor.
    fn drop(&mut self) {
        #[repr(C)]
        struct Detach {
            link: u32,
        }
        // SAFETY: no addresses.
        unsafe impl Attribute for Detach {}
        // The call fails if the interface, and with it the program, is gone; closing the descriptor does the rest.
        let _ = bpf(
            LINK_DETACH,
            &mut Detach {
                link: self.fd.as_raw_fd() as u32,
            },
        );
    }
}

#[cfg(test)]
mod tests;
