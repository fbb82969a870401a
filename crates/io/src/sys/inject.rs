//! Injection of millions of frames without a sender. The kernel runs an XDP program on copies of one frame, each as if an
//! interface had just received it (BPF_F_TEST_XDP_LIVE_FRAMES).
//!
//! One system call repeats one frame, so the program writes fields into each copy that distinguish it, see [`Fields`]. The
//! fields keep all checksums right: fields that a checksum covers come in pairs whose sum does not change. The UDP checksum is
//! 0, which means none (RFC 768).
//!
//! **Platform**: Linux 5.18; privilege: CAP_NET_ADMIN with CAP_BPF, or CAP_SYS_ADMIN. **Source**:
//! Documentation/bpf/bpf_prog_run.rst.

mod ring;

use super::bpf::{
    self, Assembler, Helper, If, Kind, Label, Map, Op, Program, Register::*, Run, Size, Values,
    XDP_DROP, XDP_PASS,
};
use super::packet_socket::index_of;
pub use ring::Ring;
use std::io;
use std::sync::atomic::Ordering;

/// Bytes of the headers of Ethernet, IPv4 without options, and UDP.
pub const HEADERS: usize = 14 + 20 + 8;

/// Bytes of the longest frame: a page, less the kernel's reserve before it (256 bytes, and up to 128 of its own) and after it
/// (320).
pub const LONGEST: usize = 4096 - 256 - 128 - 320;

/// Frames of one system call, unless [`Injector::at_once`] says otherwise. A signal ends the call early, and control returns to the
/// injector between two calls.
const AT_ONCE: u32 = 1 << 18;

/// Largest delay that a paced program makes up for, ns. Copies lost to a longer delay are not sent
/// later.
const LATE_NS: i32 = 100_000;

const IDENTIFICATION: usize = 14 + 4;
const CHECKSUM: usize = 14 + 10;
const SOURCE_LOW: usize = 14 + 14;
const SOURCE_PORT: usize = 14 + 20;
const UDP_CHECKSUM: usize = 14 + 20 + 6;

// Words of the program's map: the copies so far, the time between two copies, the time of the next one, and the times of the first and
// the latest copy since the pace was set.
const COUNT: usize = 0;
const INTERVAL: usize = 8;
const NEXT: usize = 16;
const FIRST: usize = 24;
const LATEST: usize = 32;
const WORDS: usize = 5;

/// Reason why frames cannot be injected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no interface of this name.
    #[error("no such network interface")]
    NoInterface,
    /// A frame of a length that the kernel refuses.
    #[error("a frame of {0} bytes, the kernel injects 14 to {LONGEST}")]
    Length(usize),
    /// A field that does not lie in the frame.
    #[error("a field at {at} does not fit into a frame of {len} bytes")]
    Outside {
        /// Offset of the field.
        at: usize,
        /// Length of the frame, in bytes.
        len: usize,
    },
    /// Flows need a frame whose fields are known.
    #[error("flows need an Ethernet frame with IPv4 without options and UDP")]
    NoFlow,
    /// The program cannot be created.
    #[error(transparent)]
    Bpf(#[from] bpf::Error),
}

/// Fields that the program writes into each copy of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Offset of the copy's number: 8 bytes, network byte order, counted from 0 over the injector's life.
    pub counter: Option<usize>,
    /// Offset of the time: 8 bytes, network byte order, ns of CLOCK_MONOTONIC.
    pub time: Option<usize>,
    /// Number of flows; 0 keeps the frame's own flow. Copy `n` belongs to flow `f = n % flows`. The UDP source port is the
    /// lower half of `f`, and the lower half of the IPv4 source address is its upper half. The identification is the complement
    /// of that upper half, so that the header's checksum holds for all flows. The UDP checksum is set to 0.
    pub flows: u32,
    /// Factor by which flows follow one another: copy `n` belongs to flow `n * stride % flows`. A number without a common divisor with
    /// `flows` gives each flow in turn, and neighbors that differ much. 0 means 1.
    pub stride: u32,
    /// Whether [`Injector::pace`] has an effect. The program then reads the clock for each copy.
    pub paced: bool,
}

/// Destination of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The copies count as received by the interface and go to the stack, and thus to packet sockets and programs in generic
    /// mode.
    Pass,
    /// The interface of this number sends the copies. If it is one end of a virtual cable, the other end receives them, also in
    /// native mode.
    Redirect(u32),
    /// The copies are dropped, to measure the cost of the injection itself.
    Drop,
}

/// Injector of copies of one frame.
#[derive(Debug)]
pub struct Injector {
    program: Program,
    values: Values,
    frame: Vec<u8>,
    interface: u32,
    is_paced: bool,
    /// Number of frames under way at once, up to 256.
    pub batch: u32,
    /// Number of frames of one system call. Between two calls there is a pause of some milliseconds.
    pub at_once: u32,
}

impl Injector {
    /// Prepares to inject `frame` as if received on queue 0 of interface `name`.
    ///
    /// **Errors**: a frame or fields that do not fit each other; [`bpf::Error::NotPermitted`].
    pub fn open(name: &str, frame: &[u8], fields: &Fields, mode: Mode) -> Result<Self, Error> {
        let interface = index_of(name).ok_or(Error::NoInterface)?;
        if !(14..=LONGEST).contains(&frame.len()) {
            return Err(Error::Length(frame.len()));
        }
        for at in [fields.counter, fields.time].into_iter().flatten() {
            if at > frame.len() || frame.len() - at < 8 {
                return Err(Error::Outside {
                    at,
                    len: frame.len(),
                });
            }
        }
        let mut frame = frame.to_vec();
        if fields.flows > 0 {
            prepare(&mut frame)?;
        }
        let map = Map::array(1, 8 * WORDS as u32)?;
        let program = Program::load(Kind::Xdp, &assemble(&map, &frame, fields, mode), false)?;
        Ok(Self {
            program,
            values: map.memory()?,
            frame,
            interface,
            is_paced: fields.paced,
            batch: 64,
            at_once: AT_ONCE,
        })
    }

    /// Injects `count` copies and returns the number injected, which is less after a signal. Copies lost after the program, as
    /// by an interface without room, are included.
    ///
    /// At a pace, the program drops copies that are too early, and they do not count as injected:
    /// `count` is the number of copies and of drops together then, and a signal ends the injection.
    ///
    /// **Cost**: a system call for every [`Self::at_once`] copies, which runs on the caller's processor and returns after the last of
    /// them. **Errors**: errors of the system call; `EINVAL` or `EOPNOTSUPP` on a kernel before 5.18.
    pub fn inject(&mut self, count: u64) -> io::Result<u64> {
        let before = self.injected();
        let mut left = count;
        while left > 0 {
            let repeat = left.min(u64::from(self.at_once)) as u32;
            let run = Run {
                frame: &self.frame,
                interface: self.interface,
                queue: 0,
                repeat,
                batch: self.batch,
            };
            match self.program.run(&run) {
                Ok(()) => left -= u64::from(repeat),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.injected() - before)
    }

    /// Injects copies at this distance in time from now on, as evenly as the bursts of [`Self::batch`] allow; 0: without pauses. The
    /// distance is in ns. The processor is busy all the time: the program drops what comes too early.
    ///
    /// **Panics** if the fields are not [paced](Fields::paced).
    pub fn pace(&mut self, interval_ns: u64) {
        assert!(self.is_paced, "a program that knows the time");
        for (word, value) in [(INTERVAL, interval_ns), (NEXT, 0), (FIRST, 0), (LATEST, 0)] {
            self.values.word(0, word).store(value, Ordering::Relaxed);
        }
    }

    /// Returns the times of the first and the latest copy since [`Self::pace`], ns of CLOCK_MONOTONIC; 0 if there was none.
    pub fn times(&self) -> (u64, u64) {
        let word = |at| self.values.word(0, at).load(Ordering::Relaxed);
        (word(FIRST), word(LATEST))
    }

    /// Returns the number of copies injected so far, counted by the program.
    pub fn injected(&self) -> u64 {
        self.values.word(0, COUNT).load(Ordering::Relaxed)
    }
}

/// Sets the IPv4 checksum so that it holds for every `x`, with identification `!x` and `x` as lower half of the source address.
fn prepare(frame: &mut [u8]) -> Result<(), Error> {
    if frame.len() < HEADERS
        || frame[12..15] != [0x08, 0x00, 0x45]
        || frame[14 + 9] != libc::IPPROTO_UDP as u8
    {
        return Err(Error::NoFlow);
    }
    for (at, value) in [
        (SOURCE_LOW, 0u16),
        (IDENTIFICATION, !0),
        (CHECKSUM, 0),
        (UDP_CHECKSUM, 0),
    ] {
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    let (words, _) = frame[14..34].as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|&word| u32::from(u16::from_be_bytes(word)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// ```text
/// if the frame is shorter than it was: drop
/// if paced: if it is too early: drop; next = max(next + interval, now - late)
/// n = count++
/// counter = n, time = now, f = n * stride % flows; addresses of Ethernet, time to live, checksum = the frame's
/// port = f low, source = f high, identification = !f high
/// ```
fn assemble<'a>(map: &'a Map, frame: &[u8], fields: &Fields, mode: Mode) -> Assembler<'a> {
    /// `data` and `data_end` in `struct xdp_md`.
    const DATA: i16 = 0;
    const DATA_END: i16 = 4;
    let mut a = Assembler::new();
    let short = a.label();
    a.load(Size::Four, R6, R1, DATA);
    a.load(Size::Four, R2, R1, DATA_END);
    a.set(R3, R6);
    a.alu(Op::Add, R3, frame.len() as i32);
    a.jump(If::Greater, R3, R2, short);
    if fields.paced {
        pace(&mut a, map, short);
    }
    a.map_value(R1, map, COUNT as u32);
    a.set(R7, 1);
    a.atomic_fetch_add(Size::Eight, R1, 0, R7);
    if let Some(at) = fields.counter {
        a.set(R1, R7);
        a.swap(R1, Size::Eight);
        a.store(Size::Eight, R6, at as i16, R1);
    }
    if let Some(at) = fields.time {
        a.call(Helper::TIME);
        a.swap(R0, Size::Eight);
        a.store(Size::Eight, R6, at as i16, R0);
    }
    if fields.flows > 0 {
        // The number is in a register, because a constant would be sign-extended.
        if fields.stride > 1 {
            a.wide(R1, fields.stride.into());
            a.alu(Op::Mul, R7, R1);
        }
        a.wide(R1, fields.flows.into());
        a.alu(Op::Mod, R7, R1);
        a.set(R1, R7);
        a.swap(R1, Size::Two);
        a.store(Size::Two, R6, SOURCE_PORT as i16, R1);
        a.alu(Op::ShiftRight, R7, 16);
        a.set(R1, R7);
        a.swap(R1, Size::Two);
        a.store(Size::Two, R6, SOURCE_LOW as i16, R1);
        a.alu(Op::Xor, R7, 0xffff);
        a.swap(R7, Size::Two);
        a.store(Size::Two, R6, IDENTIFICATION as i16, R7);
    }
    if fields.flows > 0 {
        restore(&mut a, frame);
    }
    verdict(&mut a, mode);
    a.exit();
    a.place(short);
    a.result(XDP_DROP);
    a
}

/// Leaves the verdict in R0.
fn verdict(a: &mut Assembler<'_>, mode: Mode) {
    match mode {
        Mode::Pass => a.set(R0, XDP_PASS),
        Mode::Drop => a.set(R0, XDP_DROP),
        Mode::Redirect(to) => {
            a.set(R1, to as i32);
            a.set(R2, 0);
            a.call(Helper::REDIRECT);
        }
    }
}

/// Writes again what a router changes. The kernel uses the memory of frames again without copying the frame into it.
fn restore(a: &mut Assembler<'_>, frame: &[u8]) {
    const TIME_TO_LIVE: usize = 14 + 8;
    let (words, _) = frame.as_chunks::<2>();
    for at in [0, 2, 4, 6, 8, 10, TIME_TO_LIVE, CHECKSUM] {
        a.store(
            Size::Two,
            R6,
            at as i16,
            i32::from(u16::from_ne_bytes(words[at / 2])),
        );
    }
}

/// Goes to `early` if it is too early for a copy, and sets the time of the next copy otherwise.
/// Only one processor runs the program.
fn pace<'a>(a: &mut Assembler<'a>, map: &'a Map, early: Label) {
    let [kept, known] = [a.label(), a.label()];
    a.call(Helper::TIME);
    a.set(R8, R0);
    a.map_value(R9, map, 0);
    a.load(Size::Eight, R2, R9, NEXT as i16);
    a.jump(If::Greater, R2, R8, early);
    a.load(Size::Eight, R1, R9, INTERVAL as i16);
    a.alu(Op::Add, R2, R1);
    a.set(R3, R8);
    a.alu(Op::Sub, R3, LATE_NS);
    a.jump(If::GreaterEqual, R2, R3, kept);
    a.set(R2, R3);
    a.place(kept);
    a.store(Size::Eight, R9, NEXT as i16, R2);
    a.load(Size::Eight, R1, R9, FIRST as i16);
    a.jump(If::NotEqual, R1, 0, known);
    a.store(Size::Eight, R9, FIRST as i16, R8);
    a.place(known);
    a.store(Size::Eight, R9, LATEST as i16, R8);
}

#[cfg(test)]
mod tests;
