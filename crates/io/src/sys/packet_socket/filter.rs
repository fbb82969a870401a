//! Filter that the kernel runs before it copies a packet into the ring.
//!
//! An expression's program is compiled for frames as on the wire, but the kernel removes the outermost VLAN tag before it runs
//! the socket's filter. Packets that had a tag therefore pass, and the reader filters them again after the tag is put back. For
//! packets without a tag, the verdict of the kernel is the verdict of the reader.
//!
//! If eBPF is permitted, the program is translated into a program that counts, see [`counting`](super::counting). Otherwise the
//! kernel gets the program unchanged, and the number of rejected packets is unknown.

use super::counting::{self, Counters, Counting};
use super::memory::Shared;
use super::options::attach;
use super::{Error, record};
use crate::live::PreFilter;
use crate::sys::bpf::Program;
use crate::sys::grace_period;
use crate::sys::option::set_option;
use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use weir_packet::savefile::MAX_SNAPLEN;

/// Instruction of classic BPF, with the layout of the kernel's `struct sock_filter` and libpcap's `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Operation class, size, mode.
    pub code: u16,
    /// Number of instructions to skip if the condition of a jump holds.
    pub jt: u8,
    /// Number of instructions to skip if the condition does not hold.
    pub jf: u8,
    /// Immediate operand.
    pub k: u32,
}

impl Insn {
    const fn new(code: u16, jt: u8, jf: u8, k: u32) -> Self {
        Self { code, jt, jf, k }
    }

    /// Returns the instruction that ends the program with `k`.
    pub(super) const fn ret(k: u32) -> Self {
        Self::new(RET_K, 0, 0, k)
    }

    /// Returns the class of the instruction, which determines the meaning of the other bits.
    pub(super) fn class(self) -> u16 {
        self.code & 7
    }
}

/// State of the filtering of packets before they are copied into the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelFilter {
    /// No filter was requested.
    None,
    /// The kernel filters, and counts rejected packets.
    Counting,
    /// The kernel filters without counting, for the given reason.
    Plain(String),
    /// The kernel does not filter, for the given reason; only the reader filters.
    Refused(String),
}

/// Packets outside the requested direction, which are rejected without a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Away {
    Nothing,
    /// Packets that the interface receives.
    Received,
    /// Packets that the loopback sends, because it also receives them.
    SentOnLoopback,
}

/// Largest number of instructions of a program, the kernel's BPF_MAXINSNS.
const LONGEST: usize = 4096;

/// Number of words of scratch memory, BPF_MEMWORDS.
pub(super) const SCRATCH: u32 = 16;

const RET_K: u16 = 0x06;

/// Program that passes everything.
const PASS: [Insn; 1] = [Insn::ret(MAX_SNAPLEN)];
pub(super) const RET_A: u16 = 0x16;
const LD_W_ABS: u16 = 0x20;
const LD_IMM: u16 = 0x00;
const JEQ_K: u16 = 0x15;
pub(super) const JA: u16 = 0x05;

/// Offset from which on loads return facts about a packet that are not in its bytes: `SKF_AD_OFF` of linux/filter.h.
const BESIDE: u32 = -0x1000_i32 as u32;
pub(super) const PACKET_TYPE: u32 = BESIDE + 4;
const HARDWARE_TYPE: u32 = BESIDE + 28;
const TAG_PRESENT: u32 = BESIDE + 48;

/// Filter that is ready to be attached.
#[derive(Debug)]
pub(super) struct Filter {
    how: KernelFilter,
    counting: Option<Counting>,
    /// Program that counts and passes everything, used if another program cannot be loaded.
    open: Option<Program>,
    /// Program without the expression, used if the kernel refuses the expression's program.
    bare: Vec<Insn>,
    plain: Option<Vec<Insn>>,
    away: Away,
    snaplen: u32,
    /// Whether the filter rejects all packets.
    held: bool,
}

impl Filter {
    /// Creates a filter that passes `snaplen` bytes of each accepted packet. If `program` is refused, the filter accepts every
    /// packet.
    pub(super) fn new(program: Option<&[Insn]>, away: Away, snaplen: u32) -> Self {
        let mut filter = Self::none(KernelFilter::None, away, snaplen);
        let Some(program) = program else {
            return filter;
        };
        if let Err(why) = check(program) {
            filter.how = KernelFilter::Refused(why);
            return filter;
        }
        let uncounted = match Counting::new(program, away, snaplen) {
            Ok(counting) => {
                filter.counting = Some(counting);
                filter.how = KernelFilter::Counting;
                return filter;
            }
            Err(error) => error.to_string(),
        };
        filter.how = match check_plain(program) {
            Ok(()) => {
                filter.plain = Some(plain(program, away, snaplen));
                KernelFilter::Plain(uncounted)
            }
            Err(why) => KernelFilter::Refused(why.to_owned()),
        };
        filter
    }

    /// Creates a filter that accepts every packet, because of the reason `why`.
    pub(super) fn refused(why: &str, away: Away, snaplen: u32) -> Self {
        Self::none(KernelFilter::Refused(why.to_owned()), away, snaplen)
    }

    fn none(how: KernelFilter, away: Away, snaplen: u32) -> Self {
        let bare = bare(away, snaplen);
        Self {
            how,
            counting: None,
            open: None,
            bare,
            plain: None,
            away,
            snaplen,
            held: false,
        }
    }

    /// Prepares the filter for [`Self::replace`] after the process has given up its privileges.
    pub(super) fn prepare_to_be_replaced(&mut self) {
        let (away, snaplen) = (self.away, self.snaplen);
        self.open = self
            .counting
            .as_ref()
            .and_then(|counting| counting.with(&[&PASS], away, snaplen).ok());
    }

    /// Rejects all packets from now on.
    pub(super) fn hold(&mut self, socket: &OwnedFd) -> io::Result<()> {
        self.held = true;
        attach(socket, &[Insn::ret(0)])
    }

    /// Replaces the programs: from now on, a packet passes if one of `programs` accepts it, or if no program can be used. The
    /// counters continue.
    fn replace(&mut self, programs: &[Vec<Insn>], socket: &OwnedFd) -> io::Result<()> {
        if self.held {
            return Ok(());
        }
        let mut programs: Vec<&[Insn]> = programs.iter().map(Vec::as_slice).collect();
        if programs.is_empty() || programs.iter().any(|program| check(program).is_err()) {
            programs = vec![&PASS];
        }
        match (&self.counting, &self.how) {
            (Some(counting), _) => {
                let loaded = counting.with(&programs, self.away, self.snaplen);
                match (loaded, &self.open) {
                    (Ok(loaded), _) => counting::attach(&loaded, socket),
                    (Err(_), Some(open)) => counting::attach(open, socket),
                    (Err(error), None) => Err(io::Error::other(error)),
                }
            }
            // A load from outside the packet ends the whole classic program. Two programs thus cannot be joined to one.
            (None, KernelFilter::Plain(_)) => match programs[..] {
                [one] if check_plain(one).is_ok() => {
                    attach(socket, &plain(one, self.away, self.snaplen))
                }
                _ => attach(socket, &self.bare),
            },
            // The filter already passes everything.
            (None, _) => Ok(()),
        }
    }

    /// Attaches the filter, in place of the present one.
    pub(super) fn attach(&mut self, socket: &OwnedFd) -> Result<(), Error> {
        self.held = false;
        let failed = |error| Error::System {
            what: "the filter",
            error,
        };
        if let Some(counting) = &self.counting {
            return counting.attach(socket).map_err(failed);
        }
        if let Some(plain) = self.plain.take() {
            match attach(socket, &plain) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.how =
                        KernelFilter::Refused(format!("the kernel refuses the program: {error}"))
                }
            }
        }
        if self.bare.as_slice() != [Insn::ret(MAX_SNAPLEN)] {
            return attach(socket, &self.bare).map_err(failed);
        }
        match set_option(
            socket,
            libc::SOL_SOCKET,
            libc::SO_DETACH_FILTER,
            &(0 as c_int),
        ) {
            // The socket had no filter.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other.map_err(failed),
        }
    }

    pub(super) fn how(&self) -> &KernelFilter {
        &self.how
    }

    /// Returns the counters of the filter, if it counts.
    pub(super) fn counters(&self) -> Option<Arc<Counters>> {
        self.counting
            .as_ref()
            .map(|counting| Arc::clone(counting.counters()))
    }
}

/// Filter of a ring, which another thread may replace.
#[derive(Debug)]
pub(super) struct RingFilter {
    ring: Weak<Shared>,
    filter: Mutex<Filter>,
}

impl RingFilter {
    pub(super) fn new(ring: &Arc<Shared>, filter: Filter) -> Arc<Self> {
        Arc::new(Self {
            ring: Arc::downgrade(ring),
            filter: Mutex::new(filter),
        })
    }

    /// Calls `work` with exclusive access to the filter.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Filter) -> T) -> T {
        work(&mut self.filter.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PreFilter for RingFilter {
    fn replace(&self, programs: &[Vec<Insn>]) -> io::Result<()> {
        match self.ring.upgrade() {
            Some(ring) => self.with(|filter| filter.replace(programs, ring.socket())),
            // The capture has ended.
            None => Ok(()),
        }
    }

    /// The number of a block.
    fn position(&self) -> u64 {
        /// Time in which a running program ends, if the kernel cannot tell.
        const UNSURE: Duration = Duration::from_millis(50);
        // A packet that an earlier program let in may not lie in the ring yet.
        if !grace_period() {
            std::thread::sleep(UNSURE);
        }
        self.ring.upgrade().map_or(0, |ring| ring.last_number())
    }

    fn is_past(&self, position: u64) -> bool {
        self.ring
            .upgrade()
            .is_none_or(|ring| ring.done() >= position)
    }
}

/// Returns the number of bytes that the kernel must copy so that `snaplen` bytes remain after the removed parts are put back.
pub(super) fn kernel_snaplen(snaplen: u32, cooked: bool) -> u32 {
    /// Upper limit of the bytes of a link header, which is replaced.
    const LINK: u32 = 64;
    // The tag goes after the addresses, so these must be copied.
    if cooked {
        snaplen + LINK
    } else {
        snaplen.max(record::ADDRESSES as u32)
    }
}

/// Returns the program that only rejects packets outside the requested direction.
fn bare(away: Away, snaplen: u32) -> Vec<Insn> {
    let mut program = turn_away(away);
    program.push(Insn::ret(snaplen));
    program
}

fn turn_away(away: Away) -> Vec<Insn> {
    let outgoing = u32::from(libc::PACKET_OUTGOING);
    match away {
        Away::Nothing => Vec::new(),
        Away::Received => vec![
            Insn::new(LD_W_ABS, 0, 0, PACKET_TYPE),
            Insn::new(JEQ_K, 1, 0, outgoing),
            Insn::ret(0),
        ],
        Away::SentOnLoopback => vec![
            Insn::new(LD_W_ABS, 0, 0, PACKET_TYPE),
            Insn::new(JEQ_K, 0, 3, outgoing),
            Insn::new(LD_W_ABS, 0, 0, HARDWARE_TYPE),
            Insn::new(JEQ_K, 0, 1, u32::from(libc::ARPHRD_LOOPBACK)),
            Insn::ret(0),
        ],
    }
}

/// Returns the whole filter in classic BPF.
fn plain(program: &[Insn], away: Away, snaplen: u32) -> Vec<Insn> {
    let mut whole = turn_away(away);
    whole.extend([
        Insn::new(LD_W_ABS, 0, 0, TAG_PRESENT),
        Insn::new(JEQ_K, 1, 0, 0),
        Insn::ret(snaplen),
        // The expression's program expects A = 0 at its start.
        Insn::new(LD_IMM, 0, 0, 0),
    ]);
    whole.extend(program.iter().map(|insn| match insn.code {
        RET_K if insn.k != 0 => Insn::ret(snaplen),
        _ => *insn,
    }));
    whole
}

/// Checks that the kernel can run a program as libpcap's `bpf_filter` does. **Errors**: the reason why not.
fn check(program: &[Insn]) -> Result<(), String> {
    if program.len() > LONGEST {
        return Err(format!(
            "a program of {} instructions, the kernel takes {LONGEST}",
            program.len()
        ));
    }
    let ends = |insn: &Insn| matches!(insn.code, RET_K | RET_A);
    if !program.last().is_some_and(ends) {
        return Err("the program runs past its end".to_owned());
    }
    program.iter().enumerate().try_for_each(|(at, insn)| {
        let behind = program.len() - at - 1;
        check_insn(*insn, behind).map_err(|why| format!("instruction {at}: {why}"))
    })
}

/// Checks one instruction; `behind` is the number of instructions that follow.
fn check_insn(insn: Insn, behind: usize) -> Result<(), &'static str> {
    let inside = |skip: u32| (skip as usize) < behind;
    match insn.code {
        // The direction of the packet.
        0x20 | 0x28 | 0x30 if insn.k == PACKET_TYPE => Ok(()),
        // Loads and MSH at fixed offsets; at these large offsets, the kernel returns facts that are not in the packet.
        0x20 | 0x28 | 0x30 | 0xb1 if insn.k > i32::MAX as u32 => {
            Err("a load far behind the packet's end")
        }
        0x20 | 0x28 | 0x30 | 0xb1 | 0x40 | 0x48 | 0x50 => Ok(()),
        // Constants, lengths, A and X to each other, negation, ends.
        0x00 | 0x01 | 0x80 | 0x81 | 0x07 | 0x87 | 0x84 | RET_K | RET_A => Ok(()),
        0x60 | 0x61 | 0x02 | 0x03 if insn.k >= SCRATCH => Err("scratch memory has 16 words"),
        0x60 | 0x61 | 0x02 | 0x03 => Ok(()),
        0x34 | 0x94 if insn.k == 0 => Err("a division by zero"),
        0x64 | 0x74 if insn.k >= 32 => Err("a shift by more than 31 bits"),
        JA if insn.k > i32::MAX as u32 => {
            Err("a jump back, as in protochain, which the kernel does not run")
        }
        JA if inside(insn.k) => Ok(()),
        _ => match (insn.class(), insn.code & 0xf0, insn.code >> 8) {
            (4, 0x00..=0x70 | 0x90 | 0xa0, 0) => Ok(()),
            (5, 0x10..=0x40, 0) if inside(insn.jt.into()) && inside(insn.jf.into()) => Ok(()),
            (5, 0x00..=0x40, 0) => Err("a jump out of the program"),
            _ => Err("an unknown operation"),
        },
    }
}

/// Checks that a program does not use features that only the translation supports.
fn check_plain(program: &[Insn]) -> Result<(), &'static str> {
    let fault = |insn: &Insn| match insn.code {
        RET_A => Some("its result is computed"),
        0x6c | 0x7c => Some(
            "it shifts by a number that is computed, of which the kernel takes the last five bits",
        ),
        _ => None,
    };
    program.iter().find_map(fault).map_or(Ok(()), Err)
}
