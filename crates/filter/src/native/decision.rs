//! A program as a graph of decisions over values of the packet, without registers and scratch memory.
//!
//! Symbolic execution turns "whatever A holds here" into "the two bytes at 12". Equal values and equal decisions get one
//! number: a field loaded on five paths is loaded once. If paths meet with different registers (behind a header of variable
//! length), the rest of the program is repeated for each, up to [`MAX_TESTS`].

use std::collections::HashMap;

use crate::program::{Address, Alu, Insn, Op, Operand, Program, Relation, SCRATCH_WORDS};

/// Largest number of tests worth making without a branch. Measured with lists of ports and hosts, on packets that no branch
/// predictor can foresee: 30 ports or hosts (about 100 tests) take equal times with and without branches. With 12, this code
/// takes half the time.
const MAX_TESTS: usize = 100;

/// Largest number of basic blocks that are run symbolically before giving up; this bounds the recursion too.
const MAX_VISITS: usize = 4 * MAX_TESTS;

/// Index into [`Decision::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ValueId(pub(super) u32);

/// Index into [`Decision::nodes`]; a node's successors have smaller indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u32);

/// A 32-bit value that the packet determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Term {
    Constant(u32),
    /// Length on the wire.
    WireLength,
    /// Bytes in network order.
    Load(Place),
    Alu(Alu, ValueId, ValueId),
}

/// A field of the packet: `size` bytes at `base + k`, where the sum does not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) base: Option<ValueId>,
    pub(super) k: u32,
    pub(super) size: u8,
}

impl Place {
    /// Offset behind the last byte, without the base.
    pub(super) fn end(self) -> u64 {
        u64::from(self.k) + u64::from(self.size)
    }
}

/// A decision. If a packet does not pass `Captured` or `NonZero`, it does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    No,
    Yes,
    Test { relation: Relation, a: ValueId, b: ValueId, yes: NodeId, no: NodeId },
    Captured { place: Place, next: NodeId },
    NonZero { value: ValueId, next: NodeId },
}

impl Node {
    fn successors(self) -> impl Iterator<Item = NodeId> {
        let (first, second) = match self {
            Self::No | Self::Yes => (None, None),
            Self::Test { yes, no, .. } => (Some(yes), Some(no)),
            Self::Captured { next, .. } | Self::NonZero { next, .. } => (Some(next), None),
        };
        first.into_iter().chain(second)
    }
}

/// The whole graph of decisions.
pub(super) struct Decision {
    pub(super) values: Vec<Term>,
    pub(super) nodes: Vec<Node>,
    pub(super) root: NodeId,
}

impl Decision {
    /// Runs `program` symbolically; `None` if it loops or if its graph grows too large.
    pub(super) fn new(program: &Program) -> Option<Self> {
        // Sets are left to the code for one packet.
        if program.has_loops() || !program.tests().is_empty() {
            return None;
        }
        let mut maker = Maker {
            insns: program.insns(),
            live: liveness(program.insns()),
            values: Interner::default(),
            nodes: Interner::default(),
            seen: HashMap::new(),
            visits_left: MAX_VISITS,
        };
        let zero = maker.values.intern(Term::Constant(0));
        maker.nodes.intern(Node::No);
        maker.nodes.intern(Node::Yes);
        let root = maker.visit(0, Registers { a: ValueId(zero), x: ValueId(zero), scratch: [ValueId(zero); 16] })?;
        let decision = Self { values: maker.values.list, nodes: maker.nodes.list, root };
        let tests = |(node, reached): &(&Node, bool)| *reached && matches!(node, Node::Test { .. });
        let tests = decision.nodes.iter().zip(decision.reachable()).filter(tests).count();
        (tests <= MAX_TESTS).then_some(decision)
    }

    /// Every place that is loaded.
    pub(super) fn places(&self) -> Vec<Place> {
        let place = |term: &Term| if let Term::Load(place) = term { Some(*place) } else { None };
        self.values.iter().filter_map(place).collect()
    }

    /// Whether each node can be reached from the root.
    pub(super) fn reachable(&self) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        reached[self.root.0 as usize] = true;
        for index in (0..self.nodes.len()).rev() {
            if reached[index] {
                for next in self.nodes[index].successors() {
                    reached[next.0 as usize] = true;
                }
            }
        }
        reached
    }

    pub(super) fn term(&self, id: ValueId) -> Term {
        self.values[id.0 as usize]
    }

    pub(super) fn constant(&self, id: ValueId) -> Option<u32> {
        match self.term(id) {
            Term::Constant(value) => Some(value),
            _ => None,
        }
    }
}

const NO: NodeId = NodeId(0);
const YES: NodeId = NodeId(1);
const ZERO: ValueId = ValueId(0);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Registers {
    a: ValueId,
    x: ValueId,
    scratch: [ValueId; SCRATCH_WORDS],
}

/// A list without equal elements.
struct Interner<T> {
    list: Vec<T>,
    index: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { list: Vec::new(), index: HashMap::new() }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Interner<T> {
    fn intern(&mut self, item: T) -> u32 {
        *self.index.entry(item).or_insert_with(|| {
            self.list.push(item);
            (self.list.len() - 1) as u32
        })
    }
}

struct Maker<'a> {
    insns: &'a [Insn],
    live: Vec<u32>,
    values: Interner<Term>,
    nodes: Interner<Node>,
    seen: HashMap<(usize, Registers), NodeId>,
    visits_left: usize,
}

impl Maker<'_> {
    /// The decision that is equivalent to running from `pc` with these registers.
    fn visit(&mut self, pc: usize, registers: Registers) -> Option<NodeId> {
        let key = (pc, self.only_live(pc, registers));
        if let Some(&node) = self.seen.get(&key) {
            return Some(node);
        }
        self.visits_left = self.visits_left.checked_sub(1)?;
        let node = self.block(pc, registers)?;
        self.seen.insert(key, node);
        Some(node)
    }

    /// The registers with zero in place of dead ones: states that differ in dead registers only are equal.
    fn only_live(&self, pc: usize, mut registers: Registers) -> Registers {
        let live = self.live[pc];
        let keep = |bit: usize, value: ValueId| if live >> bit & 1 == 1 { value } else { ZERO };
        registers.a = keep(A_BIT, registers.a);
        registers.x = keep(X_BIT, registers.x);
        for (word, value) in registers.scratch.iter_mut().enumerate() {
            *value = keep(word, *value);
        }
        registers
    }

    /// Runs to the end of a basic block, and wraps the passed checks around the decision at its end.
    fn block(&mut self, mut pc: usize, mut registers: Registers) -> Option<NodeId> {
        let mut checks = Vec::new();
        let mut node = loop {
            let insn = self.insns[pc];
            pc += 1;
            match insn.op()? {
                Op::ReturnK => break if insn.k == 0 { NO } else { YES },
                Op::ReturnA => break self.test(Relation::Equal, registers.a, ZERO, NO, YES),
                Op::Jump => pc += insn.k as usize,
                Op::Branch(relation, operand) => {
                    let b = self.operand(operand, insn, &registers);
                    break self.branch(relation, b, pc, insn, registers)?;
                }
                op => {
                    if !self.step(op, insn, &mut registers, &mut checks) {
                        break NO;
                    }
                }
            }
        };
        for check in checks.into_iter().rev() {
            node = self.checked(check, node);
        }
        Some(node)
    }

    fn branch(
        &mut self,
        relation: Relation,
        b: ValueId,
        pc: usize,
        insn: Insn,
        registers: Registers,
    ) -> Option<NodeId> {
        let (taken, other) = (pc + usize::from(insn.jt), pc + usize::from(insn.jf));
        if let (Some(a), Some(b)) = (self.constant(registers.a), self.constant(b)) {
            return self.visit(if relation.holds(a, b) { taken } else { other }, registers);
        }
        let yes = self.visit(taken, registers)?;
        let no = self.visit(other, registers)?;
        Some(self.test(relation, registers.a, b, yes, no))
    }

    fn test(&mut self, relation: Relation, a: ValueId, b: ValueId, yes: NodeId, no: NodeId) -> NodeId {
        if yes == no {
            return yes;
        }
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b)) {
            return if relation.holds(a, b) { yes } else { no };
        }
        NodeId(self.nodes.intern(Node::Test { relation, a, b, yes, no }))
    }

    /// Puts a check in front of a decision. A packet that would not match anyway needs no check.
    fn checked(&mut self, check: Check, next: NodeId) -> NodeId {
        if next == NO {
            return NO;
        }
        NodeId(self.nodes.intern(match check {
            Check::Captured(place) => Node::Captured { place, next },
            Check::NonZero(value) => Node::NonZero { value, next },
        }))
    }

    /// Runs one instruction that only changes registers; `false` if it always ends the program.
    fn step(&mut self, op: Op, insn: Insn, registers: &mut Registers, checks: &mut Vec<Check>) -> bool {
        let k = insn.k;
        match op {
            Op::LoadAbsolute(size) => registers.a = self.load(Place { base: None, k, size }, checks),
            Op::LoadIndirect(size) => match self.constant(registers.x) {
                Some(x) => match k.checked_add(x) {
                    Some(k) => registers.a = self.load(Place { base: None, k, size }, checks),
                    None => return false,
                },
                None => registers.a = self.load(Place { base: Some(registers.x), k, size }, checks),
            },
            Op::LoadXHeader => {
                let byte = self.load(Place { base: None, k, size: 1 }, checks);
                let (mask, two) = (self.number(0xf), self.number(2));
                let low = self.alu(Alu::And, byte, mask);
                registers.x = self.alu(Alu::Shl, low, two);
            }
            Op::LoadLength => registers.a = ValueId(self.values.intern(Term::WireLength)),
            Op::LoadXLength => registers.x = ValueId(self.values.intern(Term::WireLength)),
            Op::LoadImmediate => registers.a = self.number(k),
            Op::LoadXImmediate => registers.x = self.number(k),
            Op::LoadScratch => registers.a = registers.scratch[k as usize],
            Op::LoadXScratch => registers.x = registers.scratch[k as usize],
            Op::Store => registers.scratch[k as usize] = registers.a,
            Op::StoreX => registers.scratch[k as usize] = registers.x,
            Op::CopyAToX => registers.x = registers.a,
            Op::CopyXToA => registers.a = registers.x,
            Op::Negate => registers.a = self.alu(Alu::Sub, ZERO, registers.a),
            Op::Alu(alu, operand) => {
                let b = self.operand(operand, insn, registers);
                if matches!(alu, Alu::Div | Alu::Mod) {
                    match self.constant(b) {
                        Some(0) => return false,
                        Some(_) => {}
                        None => checks.push(Check::NonZero(b)),
                    }
                }
                registers.a = self.alu(alu, registers.a, b);
            }
            Op::Jump | Op::Branch(..) | Op::InSet(_) | Op::ReturnK | Op::ReturnA => {}
        }
        true
    }

    fn load(&mut self, place: Place, checks: &mut Vec<Check>) -> ValueId {
        checks.push(Check::Captured(place));
        ValueId(self.values.intern(Term::Load(place)))
    }

    fn alu(&mut self, alu: Alu, a: ValueId, b: ValueId) -> ValueId {
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b))
            && let Some(value) = alu.apply(a, b)
        {
            return self.number(value);
        }
        let neutral = match alu {
            Alu::Add | Alu::Sub | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr => Some(0),
            Alu::Mul | Alu::Div => Some(1),
            Alu::And => Some(u32::MAX),
            Alu::Mod => None,
        };
        if neutral.is_some() && self.constant(b) == neutral {
            return a;
        }
        ValueId(self.values.intern(Term::Alu(alu, a, b)))
    }

    fn operand(&mut self, operand: Operand, insn: Insn, registers: &Registers) -> ValueId {
        match operand {
            Operand::K => self.number(insn.k),
            Operand::X => registers.x,
        }
    }

    fn number(&mut self, value: u32) -> ValueId {
        ValueId(self.values.intern(Term::Constant(value)))
    }

    fn constant(&self, id: ValueId) -> Option<u32> {
        match self.values.list[id.0 as usize] {
            Term::Constant(value) => Some(value),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Check {
    Captured(Place),
    NonZero(ValueId),
}

pub(crate) const A_BIT: usize = SCRATCH_WORDS;
pub(crate) const X_BIT: usize = SCRATCH_WORDS + 1;

/// For each instruction, the registers that are read from there on before they are written: bits 0 to 15 the scratch words,
/// then A, then X. Jumps only go forward, so one pass from the end is enough.
pub(crate) fn liveness(insns: &[Insn]) -> Vec<u32> {
    let (a, x) = (1 << A_BIT, 1 << X_BIT);
    let mut live = vec![0u32; insns.len() + 1];
    for (pc, insn) in insns.iter().enumerate().rev() {
        let word = 1u32.checked_shl(insn.k).unwrap_or(0);
        let next = live[pc + 1];
        let operand = |operand| if operand == Operand::X { x } else { 0 };
        live[pc] = match insn.op() {
            Some(Op::ReturnA) => a,
            Some(Op::Jump) => live[pc + 1 + insn.k as usize],
            Some(Op::Branch(_, second)) => {
                live[pc + 1 + usize::from(insn.jt)] | live[pc + 1 + usize::from(insn.jf)] | a | operand(second)
            }
            Some(Op::LoadAbsolute(_) | Op::LoadLength | Op::LoadImmediate) => next & !a,
            Some(Op::LoadIndirect(_) | Op::CopyXToA) => next & !a | x,
            Some(Op::LoadScratch) => next & !a | word,
            Some(Op::LoadXImmediate | Op::LoadXLength | Op::LoadXHeader) => next & !x,
            Some(Op::LoadXScratch) => next & !x | word,
            Some(Op::CopyAToX) => next & !x | a,
            Some(Op::Store) => next & !word | a,
            Some(Op::StoreX) => next & !word | x,
            Some(Op::Alu(_, second)) => next | a | operand(second),
            Some(Op::Negate) => next | a,
            Some(Op::InSet(address)) => {
                let read = match address {
                    Address::V4 => a,
                    Address::V6 => 0,
                    Address::V6Indirect => x,
                };
                live[pc + 1 + usize::from(insn.jt)] | live[pc + 1 + usize::from(insn.jf)] | read
            }
            Some(Op::ReturnK) | None => 0,
        };
    }
    live
}
