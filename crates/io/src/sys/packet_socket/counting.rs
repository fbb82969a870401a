//! Translation of classic BPF programs into eBPF programs that count the packets they see and the packets they reject.
//!
//! ```text
//! R6 the packet   R7 A   R8 X   R9 its length   R10 - 64 + 4 i  M[i]        A and X are 0 in the upper half
//! count one seen; if a VLAN tag was taken out: accept
//! for each program: A = X = M[..] = 0
//!                   each instruction that can be reached, in order
//! accept: the snap length        reject, of the last program: count one rejected; 0
//! ```
//! If an eBPF program loads from outside the packet, the kernel ends it at once, without a count. Each load is therefore
//! preceded by a check of the length, in 64 bits, in which no sum overflows. libpcap's `bpf_filter` rejects the same loads.
//!
//! **Source**: libpcap `bpf_filter.c` for the effect of each instruction; linux/bpf.h, `struct __sk_buff`.

use super::filter::{Away, Insn, JA, RET_A, SCRATCH};
use crate::sys::bpf::Register::{R0, R1, R2, R6, R7, R8, R9, R10};
use crate::sys::bpf::{
    Assembler, Error, If, Kind, Label, Map, Op, Operand, Program, Register, Size, Values,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

// Of `struct __sk_buff`.
const LEN: i16 = 0;
const PACKET_TYPE: i16 = 4;
const TAG_PRESENT: i16 = 20;

/// Offsets of the counters in the map's only value.
const SEEN: usize = 0;
const REJECTED: usize = 8;

/// Program that counts, and its counters.
#[derive(Debug)]
pub(super) struct Counting {
    program: Program,
    map: Map,
    counters: Arc<Counters>,
}

/// Counters of a filter, shared by all its successive programs.
#[derive(Debug)]
pub(super) struct Counters(Values);

impl Counting {
    /// Translates and loads a program that the kernel can run as libpcap does. **Errors**: eBPF is not permitted, or the
    /// verifier refuses the program because of its size.
    pub(super) fn new(program: &[Insn], away: Away, snaplen: u32) -> Result<Self, Error> {
        let map = Map::array(1, 16)?;
        let counters = Arc::new(Counters(map.memory()?));
        Ok(Self {
            program: load(&[program], away, snaplen, &map)?,
            map,
            counters,
        })
    }

    /// Loads a program that accepts a packet if one of `programs` accepts it, and that continues the same counters.
    pub(super) fn with(
        &self,
        programs: &[&[Insn]],
        away: Away,
        snaplen: u32,
    ) -> Result<Program, Error> {
        load(programs, away, snaplen, &self.map)
    }

    pub(super) fn attach(&self, socket: &OwnedFd) -> io::Result<()> {
        attach(&self.program, socket)
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

impl Counters {
    /// Returns the numbers of packets seen and of packets rejected. Each number is exact, but while packets arrive, the two
    /// numbers are from different moments.
    pub(super) fn now(&self) -> (u64, u64) {
        let counter = |at| self.0.word(0, at).load(Ordering::Acquire);
        (counter(SEEN), counter(REJECTED))
    }
}

fn load(programs: &[&[Insn]], away: Away, snaplen: u32, map: &Map) -> Result<Program, Error> {
    Program::load(
        Kind::SocketFilter,
        &translate(programs, away, snaplen, map),
        false,
    )
}

/// Makes a loaded program the filter of a socket.
pub(super) fn attach(program: &Program, socket: &OwnedFd) -> io::Result<()> {
    let fd = program.as_fd().as_raw_fd();
    crate::sys::option::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &fd)
}

/// State of a translation.
struct Translation<'a> {
    a: Assembler<'a>,
    counters: &'a Map,
    /// Labels of the instructions of the program.
    labels: Vec<Label>,
    accept: Label,
    reject: Label,
    /// Whether any instruction leads to `reject`, because the verifier refuses unreachable code.
    rejects: bool,
}

fn translate<'a>(
    programs: &[&[Insn]],
    away: Away,
    snaplen: u32,
    counters: &'a Map,
) -> Assembler<'a> {
    let mut a = Assembler::new();
    let (accept, reject) = (a.label(), a.label());
    let mut t = Translation {
        a,
        counters,
        labels: Vec::new(),
        accept,
        reject,
        rejects: false,
    };
    t.begin(away);
    for (i, program) in programs.iter().enumerate() {
        if i > 0 {
            if !std::mem::take(&mut t.rejects) {
                // This program accepts everything, so later programs are not needed.
                break;
            }
            // A packet that the program before rejects goes to the next program.
            t.a.place(t.reject);
            t.reject = t.a.label();
        }
        t.program(program);
    }
    let reject = t.reject;
    t.a.place(accept);
    t.a.result(snaplen.min(i32::MAX as u32) as i32);
    if t.rejects {
        t.a.place(reject);
        t.count(REJECTED);
        t.a.result(0);
    }
    t.a
}

/// Returns for each instruction whether it can be reached.
fn reached(program: &[Insn]) -> Vec<bool> {
    let mut reached = vec![false; program.len()];
    reached[0] = true;
    for (at, insn) in program.iter().enumerate() {
        if !reached[at] {
            continue;
        }
        let skips = match (insn.class(), insn.code) {
            (6, _) => continue,
            (_, JA) => [insn.k; 2],
            (5, _) => [insn.jt, insn.jf].map(u32::from),
            _ => [0; 2],
        };
        for skip in skips {
            reached[at + 1 + skip as usize] = true;
        }
    }
    reached
}

impl Translation<'_> {
    /// Translates a program, preceded by the initial values of its registers and scratch memory.
    fn program(&mut self, program: &[Insn]) {
        self.a.set(R7, 0);
        self.a.set(R8, 0);
        if program.iter().any(|insn| matches!(insn.code, 0x60 | 0x61)) {
            (1..=SCRATCH as i16 / 2).for_each(|pair| self.a.store(Size::Eight, R10, -8 * pair, 0));
        }
        self.labels = program.iter().map(|_| self.a.label()).collect();
        let reached = reached(program);
        for (at, insn) in program.iter().enumerate().filter(|(at, _)| reached[*at]) {
            self.a.place(self.labels[at]);
            self.insn(*insn, at);
        }
    }

    fn begin(&mut self, away: Away) {
        self.a.set(R6, R1);
        let outgoing = i32::from(libc::PACKET_OUTGOING);
        match away {
            Away::Nothing => {}
            Away::Received => {
                let ours = self.a.label();
                self.a.load(Size::Four, R1, R6, PACKET_TYPE);
                self.a.jump(If::Equal, R1, outgoing, ours);
                self.a.result(0);
                self.a.place(ours);
            }
            Away::SentOnLoopback => {
                unreachable!("packets of all interfaces have no one kind of frame to filter")
            }
        }
        self.count(SEEN);
        self.a.load(Size::Four, R1, R6, TAG_PRESENT);
        self.a.jump(If::NotEqual, R1, 0, self.accept);
        self.a.load(Size::Four, R9, R6, LEN);
    }

    fn count(&mut self, what: usize) {
        self.a.map_value(R1, self.counters, what as u32);
        self.a.set(R2, 1);
        self.a.atomic_add(Size::Eight, R1, 0, R2);
    }

    fn insn(&mut self, insn: Insn, at: usize) {
        let k = insn.k as i32;
        // The offset is used only for instructions whose k is below 16.
        let scratch = 4 * (insn.k % SCRATCH) as i16 - 4 * SCRATCH as i16;
        match insn.code {
            0x20 | 0x28 | 0x30 if insn.k == super::filter::PACKET_TYPE => {
                self.a.load(Size::Four, R7, R6, PACKET_TYPE)
            }
            0x20 => self.load(Size::Four, 4, insn.k, R7),
            0x28 => self.load(Size::Two, 2, insn.k, R7),
            0x30 => self.load(Size::One, 1, insn.k, R7),
            0x40 => self.load_behind_x(Size::Four, 4, insn.k),
            0x48 => self.load_behind_x(Size::Two, 2, insn.k),
            0x50 => self.load_behind_x(Size::One, 1, insn.k),
            0xb1 => {
                self.load(Size::One, 1, insn.k, R8);
                self.a.alu32(Op::And, R8, 0xf);
                self.a.alu32(Op::ShiftLeft, R8, 2);
            }
            0x80 => self.a.set(R7, R9),
            0x81 => self.a.set(R8, R9),
            0x00 => self.a.alu32(Op::Move, R7, k),
            0x01 => self.a.alu32(Op::Move, R8, k),
            0x60 => self.a.load(Size::Four, R7, R10, scratch),
            0x61 => self.a.load(Size::Four, R8, R10, scratch),
            0x02 => self.a.store(Size::Four, R10, scratch, R7),
            0x03 => self.a.store(Size::Four, R10, scratch, R8),
            0x84 => self.a.negate32(R7),
            0x07 => self.a.set(R8, R7),
            0x87 => self.a.set(R7, R8),
            JA => self.a.go(self.labels[at + 1 + insn.k as usize]),
            RET_A => {
                self.rejects = true;
                self.a.jump32(If::Equal, R7, 0, self.reject);
                self.a.go(self.accept);
            }
            _ if insn.class() == 6 && insn.k != 0 => self.a.go(self.accept),
            _ if insn.class() == 6 => {
                self.rejects = true;
                self.a.go(self.reject);
            }
            code => {
                let operand = if code & 8 == 0 {
                    Operand::Constant(k)
                } else {
                    Operand::Register(R8)
                };
                if insn.class() == 5 {
                    self.branch(insn, at, operand)
                } else {
                    self.arithmetic(code & 0xf0, operand)
                }
            }
        }
    }

    /// Translates a load: `to` = the bytes at `k`.
    fn load(&mut self, size: Size, bytes: u32, k: u32, to: Register) {
        self.rejects = true;
        // No packet is as long as `i32::MAX`, so the limit rejects every such load.
        let end = k.saturating_add(bytes).min(i32::MAX as u32);
        self.a.jump(If::Less, R9, end as i32, self.reject);
        self.a.load_absolute(size, k as i32);
        self.a.set(to, R0);
    }

    /// Translates an indexed load: A = the bytes at X + k.
    fn load_behind_x(&mut self, size: Size, bytes: i32, k: u32) {
        self.rejects = true;
        self.a.wide(R1, k.into());
        self.a.alu(Op::Add, R1, R8);
        self.a.set(R2, R1);
        self.a.alu(Op::Add, R2, bytes);
        self.a.jump(If::Greater, R2, R9, self.reject);
        self.a.load_indirect(size, R1, 0);
        self.a.set(R7, R0);
    }

    fn branch(&mut self, insn: Insn, at: usize, operand: Operand) {
        let when = match insn.code & 0xf0 {
            0x10 => If::Equal,
            0x20 => If::Greater,
            0x30 => If::GreaterEqual,
            _ => If::AnySet,
        };
        let target = |skip: u8| self.labels[at + 1 + usize::from(skip)];
        let (taken, not) = (target(insn.jt), target(insn.jf));
        if insn.jt != insn.jf {
            self.a.jump32(when, R7, operand, taken);
        }
        if insn.jf != 0 {
            self.a.go(not);
        }
    }

    fn arithmetic(&mut self, code: u16, operand: Operand) {
        let op = match code {
            0x00 => Op::Add,
            0x10 => Op::Sub,
            0x20 => Op::Mul,
            0x30 => Op::Div,
            0x40 => Op::Or,
            0x50 => Op::And,
            0x60 => Op::ShiftLeft,
            0x70 => Op::ShiftRight,
            0x90 => Op::Mod,
            _ => Op::Xor,
        };
        let computed = operand == Operand::Register(R8);
        match op {
            Op::Div | Op::Mod if computed => {
                self.rejects = true;
                self.a.jump32(If::Equal, R8, 0, self.reject);
                self.a.alu32(op, R7, operand);
            }
            Op::ShiftLeft | Op::ShiftRight if computed => {
                // eBPF would use only the last five bits of the shift.
                let (fits, done) = (self.a.label(), self.a.label());
                self.a.jump32(If::Less, R8, 32, fits);
                self.a.set(R7, 0);
                self.a.go(done);
                self.a.place(fits);
                self.a.alu32(op, R7, operand);
                self.a.place(done);
            }
            _ => self.a.alu32(op, R7, operand),
        }
    }
}
