//! Classic BPF programs as data, validated once so that running them needs no checks.

use crate::{AddressSet, Error, simplify};
use std::sync::Arc;
use weir_packet::savefile::Direction;

/// A classic BPF instruction, laid out as the kernel's `struct sock_filter` and libpcap's `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Operation class, size, mode.
    pub code: u16,
    /// Number of instructions to skip if a conditional jump is taken.
    pub jt: u8,
    /// Number of instructions to skip if a conditional jump is not taken.
    pub jf: u8,
    /// Immediate operand.
    pub k: u32,
}

/// Number of words of scratch memory (`BPF_MEMWORDS`).
pub const SCRATCH_WORDS: usize = 16;

/// Lowest offset at which a load reads ancillary data of the kernel instead of the packet (`SKF_AD_OFF` of linux/filter.h).
pub(crate) const ANCILLARY: u32 = -0x1000_i32 as u32;

/// Offset at which a load reads the kernel's packet type, for instance `PACKET_OUTGOING` (`SKF_AD_OFF + SKF_AD_PKTTYPE` of
/// linux/filter.h).
pub const PACKET_TYPE: u32 = ANCILLARY + 4;

/// Code of a branch that is taken if the set of test `k` has the IPv4 address in A. Ours: neither libpcap nor the kernel knows it.
pub const IN_V4: u16 = 0x0195;

/// Code of a branch that is taken if the set of test `k` has the IPv6 address at the test's offset of the packet. Ours.
pub const IN_V6: u16 = 0x0295;

/// Code of a branch as [`IN_V6`], at the test's offset plus X. Ours.
pub const IN_V6_X: u16 = 0x0395;

/// Value of `ret` for a match, and the snap length with which expressions are compiled (tcpdump's own).
pub const SNAPLEN: u32 = 262_144;

/// A program that ends on every packet: known operations, jumps within the program, no way past its last instruction.
///
/// `ja` may jump backwards (libpcap's `protochain` walks header chains so); an engine bounds the number of
/// such jumps by [`backward_jump_limit`].
///
/// **Shape**: at least 1 and at most [`Program::MAX_INSNS`] instructions. **Source**: McCanne and Jacobson, "The BSD Packet
/// Filter", 1993; libpcap `bpf_filter.c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    insns: Vec<Insn>,
    /// The operation of each instruction, so that the interpreter need not decode it for every packet.
    ops: Vec<Op>,
    /// Tests of sets: `k` of a branch on a set is an index here.
    tests: Vec<SetTest>,
}

/// A test whether a set has an address of the packet.
#[derive(Clone, Debug)]
pub struct SetTest {
    /// The set.
    pub set: Arc<AddressSet>,
    /// Offset of an IPv6 address in the packet, bytes; X is added for [`IN_V6_X`]. IPv4 addresses are in A.
    pub offset: u32,
}

/// Tests are equal if they ask the same object.
impl PartialEq for SetTest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set) && self.offset == other.offset
    }
}

impl Eq for SetTest {}

/// Largest number of backward jumps on a packet of `data_len` bytes; a program that makes more is ended with 0.
///
/// libpcap's loops advance by at least 8 bytes a round and end at the end of the packet, so they stay far below the limit.
/// libpcap 1.10 itself has no limit and would loop for ever on a hostile program; later versions have one.
#[must_use]
pub fn backward_jump_limit(data_len: usize) -> usize {
    data_len + 64
}

/// The operation of an instruction, decoded: one name per entry of libpcap's `bpf_filter` switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    LoadAbsolute(u8),
    LoadIndirect(u8),
    LoadLength,
    LoadImmediate,
    LoadScratch,
    LoadXImmediate,
    LoadXScratch,
    LoadXLength,
    LoadXHeader,
    Store,
    StoreX,
    Alu(Alu, Operand),
    Negate,
    Jump,
    Branch(Relation, Operand),
    /// A branch on a set: taken if the set has the address.
    InSet(Address),
    ReturnK,
    ReturnA,
    CopyAToX,
    CopyXToA,
}

/// Place of the address that a set test reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// An IPv4 address in A.
    V4,
    /// An IPv6 address at the test's offset.
    V6,
    /// An IPv6 address at the test's offset plus X.
    V6Indirect,
}

/// Arithmetic on A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Shl,
    Shr,
    Mod,
    Xor,
}

/// Relation of a conditional jump; all comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    Equal,
    Greater,
    GreaterEqual,
    AnyBit,
}

/// The second operand: the instruction's `k` or the X register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    K,
    X,
}

impl Insn {
    /// A load, store, arithmetic or return instruction.
    #[must_use]
    pub const fn statement(code: u16, k: u32) -> Self {
        Self {
            code,
            jt: 0,
            jf: 0,
            k,
        }
    }

    /// A conditional jump.
    #[must_use]
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Self {
        Self { code, jt, jf, k }
    }

    /// The offset of a load that the kernel would replace with ancillary data; `None` for any other instruction.
    fn ancillary(self) -> Option<u32> {
        (matches!(self.op(), Some(Op::LoadAbsolute(_))) && self.k >= ANCILLARY).then_some(self.k)
    }

    /// Decodes the operation; `None` for a code that libpcap does not know. Sizes are in bytes.
    pub(crate) fn op(self) -> Option<Op> {
        Some(match self.code {
            0x00 => Op::LoadImmediate,
            0x01 => Op::LoadXImmediate,
            0x20 => Op::LoadAbsolute(4),
            0x28 => Op::LoadAbsolute(2),
            0x30 => Op::LoadAbsolute(1),
            0x40 => Op::LoadIndirect(4),
            0x48 => Op::LoadIndirect(2),
            0x50 => Op::LoadIndirect(1),
            0x60 => Op::LoadScratch,
            0x61 => Op::LoadXScratch,
            0x80 => Op::LoadLength,
            0x81 => Op::LoadXLength,
            0xb1 => Op::LoadXHeader,
            0x02 => Op::Store,
            0x03 => Op::StoreX,
            0x84 => Op::Negate,
            0x05 => Op::Jump,
            0x06 => Op::ReturnK,
            0x16 => Op::ReturnA,
            0x07 => Op::CopyAToX,
            0x87 => Op::CopyXToA,
            IN_V4 => Op::InSet(Address::V4),
            IN_V6 => Op::InSet(Address::V6),
            IN_V6_X => Op::InSet(Address::V6Indirect),
            code => return Self::with_operand(code),
        })
    }

    /// Operations of the two families in which bit 3 selects the second operand.
    fn with_operand(code: u16) -> Option<Op> {
        let operand = if code & 0x08 == 0 {
            Operand::K
        } else {
            Operand::X
        };
        Some(match code & !0x08 {
            0x04 => Op::Alu(Alu::Add, operand),
            0x14 => Op::Alu(Alu::Sub, operand),
            0x24 => Op::Alu(Alu::Mul, operand),
            0x34 => Op::Alu(Alu::Div, operand),
            0x44 => Op::Alu(Alu::Or, operand),
            0x54 => Op::Alu(Alu::And, operand),
            0x64 => Op::Alu(Alu::Shl, operand),
            0x74 => Op::Alu(Alu::Shr, operand),
            0x94 => Op::Alu(Alu::Mod, operand),
            0xa4 => Op::Alu(Alu::Xor, operand),
            0x15 => Op::Branch(Relation::Equal, operand),
            0x25 => Op::Branch(Relation::Greater, operand),
            0x35 => Op::Branch(Relation::GreaterEqual, operand),
            0x45 => Op::Branch(Relation::AnyBit, operand),
            _ => return None,
        })
    }
}

impl Relation {
    /// Whether the relation holds between A and the operand.
    pub(crate) fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Greater => a > b,
            Self::GreaterEqual => a >= b,
            Self::AnyBit => a & b != 0,
        }
    }
}

impl Alu {
    /// The result, wrapping; `None` for a division by zero, which ends the program with 0. Shifts by 32 or more give 0.
    pub(crate) fn apply(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => a.checked_div(b)?,
            Self::Mod => a.checked_rem(b)?,
            Self::Or => a | b,
            Self::And => a & b,
            Self::Xor => a ^ b,
            Self::Shl => a.checked_shl(b).unwrap_or(0),
            Self::Shr => a.checked_shr(b).unwrap_or(0),
        })
    }
}

impl Program {
    /// Largest number of accepted instructions; expressions of hundreds of addresses need a few thousand.
    pub const MAX_INSNS: usize = 1 << 20;

    /// Validates a list of instructions.
    ///
    /// **Cost**: one pass. **Errors**: [`Error::Program`] for an empty or overlong list, an unknown
    /// operation, a jump out of the program or onto itself, a last instruction that is not a
    /// return, a constant division by zero, a constant shift by 32 or more (undefined in libpcap
    /// 1.10's C, refused by later versions), or scratch memory beyond its 16 words.
    pub fn new(insns: Vec<Insn>) -> Result<Self, Error> {
        Self::with_sets(insns, Vec::new())
    }

    /// Validates a list of instructions, in which [`IN_V4`], [`IN_V6`] and [`IN_V6_X`] branch on these tests.
    ///
    /// **Cost**: one pass. **Errors**: as for [`Self::new`]; such an instruction without its test.
    pub fn with_sets(insns: Vec<Insn>, tests: Vec<SetTest>) -> Result<Self, Error> {
        let refuse = |index, reason| Err(Error::Program { index, reason });
        if insns.is_empty() {
            return refuse(0, "the program is empty");
        }
        if insns.len() > Self::MAX_INSNS {
            return refuse(Self::MAX_INSNS, "the program is too long");
        }
        let mut ops = Vec::with_capacity(insns.len());
        for (index, insn) in insns.iter().enumerate() {
            match check(*insn, index, insns.len()) {
                Ok(Op::InSet(_)) if insn.k as usize >= tests.len() => {
                    return refuse(index, "no such set");
                }
                Ok(op) => ops.push(op),
                Err(reason) => return refuse(index, reason),
            }
        }
        Ok(Self { insns, ops, tests })
    }

    /// The program of an empty expression, which every packet matches.
    #[must_use]
    pub fn accept_all() -> Self {
        Self {
            insns: vec![Insn::statement(0x06, SNAPLEN)],
            ops: vec![Op::ReturnK],
            tests: Vec::new(),
        }
    }

    /// The instructions.
    #[must_use]
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// The program for packets of one direction: each load at [`PACKET_TYPE`] becomes a constant, and what that decides is left out.
    ///
    /// **Cost**: as of [`simplify`](crate::simplify()).
    #[must_use]
    pub fn of_direction(&self, direction: Direction) -> Self {
        // PACKET_HOST and PACKET_OUTGOING of linux/if_packet.h.
        let kind = match direction {
            Direction::In => 0,
            Direction::Out => 4,
        };
        let constant = |insn: &Insn| match insn.ancillary() {
            Some(PACKET_TYPE) => Insn::statement(0x00, kind),
            _ => *insn,
        };
        let insns = self.insns.iter().map(constant).collect();
        simplify(
            &Self::with_sets(insns, self.tests.clone()).expect("a constant may stand for a load"),
        )
    }

    /// Tests of sets, by the `k` of the instructions that branch on them.
    #[must_use]
    pub fn tests(&self) -> &[SetTest] {
        &self.tests
    }

    /// Offsets of the loads that the kernel would replace with ancillary data.
    pub(crate) fn ancillary(&self) -> impl Iterator<Item = u32> {
        self.insns.iter().filter_map(|insn| insn.ancillary())
    }

    /// The operation of each instruction.
    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether a `ja` jumps backwards.
    #[must_use]
    pub fn has_loops(&self) -> bool {
        self.insns
            .iter()
            .any(|insn| insn.op() == Some(Op::Jump) && insn.k as i32 <= -1)
    }
}

/// Codes of `ret #k` and of `ja`.
pub(crate) const RETURN: u16 = 0x06;
pub(crate) const JUMP: u16 = 0x05;

/// Indices of the instructions that may follow the one at `at`.
pub(crate) fn successors(insns: &[Insn], at: usize) -> impl Iterator<Item = usize> {
    let insn = insns[at];
    let (first, second) = match insn.op() {
        Some(Op::ReturnK | Op::ReturnA) | None => (None, None),
        Some(Op::Jump) => (
            Some((at + 1).wrapping_add_signed(insn.k as i32 as isize)),
            None,
        ),
        Some(Op::Branch(..) | Op::InSet(_)) => (
            Some(at + 1 + usize::from(insn.jt)),
            Some(at + 1 + usize::from(insn.jf)),
        ),
        Some(_) => (Some(at + 1), None),
    };
    first.into_iter().chain(second)
}

/// The instructions that can be reached, in their order. Distances only shrink, so jumps keep their forms.
pub(crate) fn without_dead_code(insns: &[Insn]) -> Vec<Insn> {
    let mut is_reached = vec![false; insns.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut is_reached[at], true) {
            open.extend(successors(insns, at));
        }
    }
    // Number of reached instructions before each one.
    let mut places = Vec::with_capacity(insns.len());
    let mut count = 0usize;
    for &reached in &is_reached {
        places.push(count);
        count += usize::from(reached);
    }
    let moved = |at: usize| {
        let insn = insns[at];
        let distance = |to: usize| places[to] as isize - places[at] as isize - 1;
        match insn.op() {
            Some(Op::Jump) => {
                let target = (at + 1).wrapping_add_signed(insn.k as i32 as isize);
                Insn {
                    k: distance(target) as i32 as u32,
                    ..insn
                }
            }
            Some(Op::Branch(..) | Op::InSet(_)) => {
                let skip = |skip: u8| distance(at + 1 + usize::from(skip)) as u8;
                Insn {
                    jt: skip(insn.jt),
                    jf: skip(insn.jf),
                    ..insn
                }
            }
            _ => insn,
        }
    };
    (0..insns.len())
        .filter(|&at| is_reached[at])
        .map(moved)
        .collect()
}

/// The operation of the instruction at `index` of a program of `len`, or the reason for its refusal.
fn check(insn: Insn, index: usize, len: usize) -> Result<Op, &'static str> {
    let inside = |skip: i64| {
        let target = index as i64 + 1 + skip;
        (0..len as i64).contains(&target)
    };
    let op = insn.op().ok_or("unknown operation")?;
    let fault = match op {
        Op::ReturnK | Op::ReturnA => None,
        Op::Jump if insn.k as i32 == -1 => Some("jump onto itself"),
        Op::Jump if inside(i64::from(insn.k as i32)) => None,
        Op::Branch(..) | Op::InSet(_)
            if inside(i64::from(insn.jt)) && inside(i64::from(insn.jf)) =>
        {
            None
        }
        Op::Jump | Op::Branch(..) | Op::InSet(_) => Some("jump out of the program"),
        Op::LoadScratch | Op::LoadXScratch | Op::Store | Op::StoreX
            if insn.k as usize >= SCRATCH_WORDS =>
        {
            Some("scratch memory has 16 words")
        }
        Op::Alu(Alu::Div | Alu::Mod, Operand::K) if insn.k == 0 => {
            Some("division by constant zero")
        }
        Op::Alu(Alu::Shl | Alu::Shr, Operand::K) if insn.k >= 32 => {
            Some("shift by more than 31 bits")
        }
        _ if index + 1 == len => Some("the program runs past its end"),
        _ => None,
    };
    fault.map_or(Ok(op), Err)
}
