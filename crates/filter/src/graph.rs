//! A program as a graph of decisions over values of the packet, without registers and scratch memory.
//!
//! Symbolic execution turns "whatever A holds here" into "the two bytes at 12". Equal values and
//! equal decisions get one number: a field loaded on five paths is one value, and equal ends of
//! paths are one node. If paths meet with different registers (after a header of variable length),
//! the rest of the program is repeated for each.

mod values;

use std::collections::HashMap;

use crate::program::{
    ANCILLARY, Address, Alu, Insn, Op, Operand, Program, Relation, SCRATCH_WORDS,
};
use values::{Decided, Interner};
pub(crate) use values::{Place, Term, ValueId, Values, ZERO};

/// Index into [`Graph::nodes`]; a node's successors have smaller indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) u32);

/// A decision. A packet that does not pass `Captured` ends the program with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    Return(u32),
    ReturnValue(ValueId),
    Test {
        relation: Relation,
        a: ValueId,
        b: ValueId,
        yes: NodeId,
        no: NodeId,
    },
    Captured {
        place: Place,
        next: NodeId,
    },
    /// Whether the set of a test has an address; `of` is A for an IPv4 address, X for an IPv6
    /// address after X, otherwise zero. If the packet ends within an IPv6 address, the program may
    /// end with 0, and does if not even the first word is captured.
    InSet {
        address: Address,
        test: u32,
        of: ValueId,
        yes: NodeId,
        no: NodeId,
    },
}

impl Node {
    /// The node with other successors.
    pub(crate) fn with_successors(self, other: impl Fn(NodeId) -> NodeId) -> Self {
        match self {
            Self::Return(_) | Self::ReturnValue(_) => self,
            Self::Test {
                relation,
                a,
                b,
                yes,
                no,
            } => Self::Test {
                relation,
                a,
                b,
                yes: other(yes),
                no: other(no),
            },
            Self::Captured { place, next } => Self::Captured {
                place,
                next: other(next),
            },
            Self::InSet {
                address,
                test,
                of,
                yes,
                no,
            } => Self::InSet {
                address,
                test,
                of,
                yes: other(yes),
                no: other(no),
            },
        }
    }

    pub(crate) fn successors(self) -> impl Iterator<Item = NodeId> {
        let (first, second) = match self {
            Self::Return(_) | Self::ReturnValue(_) => (None, None),
            Self::Test { yes, no, .. } | Self::InSet { yes, no, .. } => (Some(yes), Some(no)),
            Self::Captured { next, .. } => (Some(next), None),
        };
        first.into_iter().chain(second)
    }
}

/// The node that ends the program with 0, of every graph.
pub(crate) const NO: NodeId = NodeId(0);

/// Results of a program that a graph keeps apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Results {
    /// All: the number of bytes to keep.
    Exact,
    /// Match (1) and no match (0).
    Verdict,
}

/// The whole graph of decisions.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) values: Values,
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: NodeId,
}

impl Graph {
    /// Runs `program` symbolically; `None` if it loops, or if more than `most_states` pairs of a block and registers, or very
    /// deep values, are needed.
    ///
    /// **Cost**: linear in the number of states times the length of a block.
    pub(crate) fn new(program: &Program, results: Results, most_states: usize) -> Option<Self> {
        if program.has_loops() {
            return None;
        }
        let mut maker = Maker {
            insns: program.insns(),
            live: liveness(program.insns()),
            values: Values::default(),
            states: Vec::new(),
            index: HashMap::new(),
            results,
        };
        maker.state(
            0,
            Registers {
                a: ZERO,
                x: ZERO,
                scratch: [ZERO; SCRATCH_WORDS],
            },
        );
        let mut drafts = Vec::new();
        while drafts.len() < maker.states.len() {
            if drafts.len() >= most_states {
                return None;
            }
            let (pc, registers) = maker.states[drafts.len()];
            drafts.push(maker.block(pc, registers)?);
        }
        // Jumps only go forward, so the successors of a state begin after it.
        let mut order: Vec<_> = (0..drafts.len()).collect();
        order.sort_by_key(|&state| std::cmp::Reverse(maker.states[state].0));
        let mut nodes = Nodes::default();
        let mut made = vec![NO; drafts.len()];
        for state in order {
            made[state] = drafts[state].node(&mut nodes, &made);
        }
        Some(Self {
            values: maker.values,
            nodes: nodes.list(),
            root: made[0],
        })
    }

    /// Whether each node can be reached from the root.
    pub(crate) fn reachable(&self) -> Vec<bool> {
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
}

/// Nodes without equal ones. Decisions that decide nothing are never made.
#[derive(Default)]
pub(crate) struct Nodes(Option<Interner<Node>>);

impl Nodes {
    fn interner(&mut self) -> &mut Interner<Node> {
        self.0.get_or_insert_with(|| {
            let mut nodes = Interner::default();
            nodes.intern(Node::Return(0));
            nodes
        })
    }

    /// The number of a node whose successors have numbers.
    pub(crate) fn intern(&mut self, node: Node) -> NodeId {
        match node {
            // If both branches do the same, the test is not needed: a test reads registers, and cannot fail.
            Node::Test { yes, no, .. } if yes == no => yes,
            // IPv4 addresses are in a register; a test of an IPv6 address may end the program.
            Node::InSet {
                address: Address::V4,
                yes,
                no,
                ..
            } if yes == no => yes,
            // A packet that would not match anyway needs no check.
            Node::Captured { next: NO, .. }
            | Node::InSet {
                yes: NO, no: NO, ..
            } => NO,
            node => NodeId(self.interner().intern(node)),
        }
    }

    pub(crate) fn list(mut self) -> Vec<Node> {
        self.interner();
        self.0.map(|nodes| nodes.list).unwrap_or_default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Registers {
    a: ValueId,
    x: ValueId,
    scratch: [ValueId; SCRATCH_WORDS],
}

/// A condition that ends the program with 0 unless it holds.
#[derive(Clone, Copy)]
enum Check {
    Captured(Place),
    NonZero(ValueId),
}

/// A basic block, run with certain registers. Successors are numbers of states.
struct Draft {
    checks: Vec<Check>,
    end: End,
}

enum End {
    Return(u32),
    ReturnValue(ValueId),
    Goto(usize),
    Test {
        relation: Relation,
        a: ValueId,
        b: ValueId,
        yes: usize,
        no: usize,
    },
    InSet {
        address: Address,
        test: u32,
        of: ValueId,
        yes: usize,
        no: usize,
    },
}

impl Draft {
    fn node(&self, nodes: &mut Nodes, made: &[NodeId]) -> NodeId {
        let end = match self.end {
            End::Return(value) => nodes.intern(Node::Return(value)),
            End::ReturnValue(value) => nodes.intern(Node::ReturnValue(value)),
            End::Goto(state) => made[state],
            End::Test {
                relation,
                a,
                b,
                yes,
                no,
            } => nodes.intern(Node::Test {
                relation,
                a,
                b,
                yes: made[yes],
                no: made[no],
            }),
            End::InSet {
                address,
                test,
                of,
                yes,
                no,
            } => nodes.intern(Node::InSet {
                address,
                test,
                of,
                yes: made[yes],
                no: made[no],
            }),
        };
        self.checks
            .iter()
            .rev()
            .fold(end, |next, check| match *check {
                Check::Captured(place) => nodes.intern(Node::Captured { place, next }),
                Check::NonZero(a) => nodes.intern(Node::Test {
                    relation: Relation::Equal,
                    a,
                    b: ZERO,
                    yes: NO,
                    no: next,
                }),
            })
    }
}

struct Maker<'a> {
    insns: &'a [Insn],
    live: Vec<u32>,
    values: Values,
    states: Vec<(usize, Registers)>,
    index: HashMap<(usize, Registers), usize>,
    results: Results,
}

impl Maker<'_> {
    /// The number of the state at `pc` with these registers.
    fn state(&mut self, pc: usize, registers: Registers) -> usize {
        let state = (pc, self.only_live(pc, registers));
        *self.index.entry(state).or_insert_with(|| {
            self.states.push(state);
            self.states.len() - 1
        })
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

    /// Runs to the end of a basic block; `None` if a value becomes too deep.
    fn block(&mut self, mut pc: usize, mut registers: Registers) -> Option<Draft> {
        let mut checks = Vec::new();
        let end = loop {
            let insn = self.insns[pc];
            pc += 1;
            match insn.op()? {
                Op::ReturnK => break End::Return(self.result(insn.k)),
                Op::ReturnA => break self.return_value(registers.a),
                Op::Jump => pc += insn.k as usize,
                Op::Branch(relation, operand) => {
                    let b = self.operand(operand, insn, &registers);
                    break self.branch(relation, b, pc, insn, registers);
                }
                Op::InSet(address) => {
                    let of = match address {
                        Address::V4 => registers.a,
                        Address::V6 => ZERO,
                        Address::V6Indirect => registers.x,
                    };
                    let yes = self.state(pc + usize::from(insn.jt), registers);
                    let no = self.state(pc + usize::from(insn.jf), registers);
                    break End::InSet {
                        address,
                        test: insn.k,
                        of,
                        yes,
                        no,
                    };
                }
                op => {
                    if !self.step(op, insn, &mut registers, &mut checks)? {
                        break End::Return(0);
                    }
                }
            }
        };
        Some(Draft { checks, end })
    }

    fn result(&self, value: u32) -> u32 {
        match self.results {
            Results::Exact => value,
            Results::Verdict => (value != 0).into(),
        }
    }

    fn return_value(&self, value: ValueId) -> End {
        match self.values.constant(value) {
            Some(value) => End::Return(self.result(value)),
            None => End::ReturnValue(value),
        }
    }

    fn branch(
        &mut self,
        relation: Relation,
        b: ValueId,
        pc: usize,
        insn: Insn,
        registers: Registers,
    ) -> End {
        let (taken, other) = (pc + usize::from(insn.jt), pc + usize::from(insn.jf));
        match self.values.test(relation, registers.a, b) {
            Decided::Known(holds) => {
                End::Goto(self.state(if holds { taken } else { other }, registers))
            }
            Decided::Test {
                relation,
                a,
                b,
                negated,
            } => {
                let (yes, no) = if negated {
                    (other, taken)
                } else {
                    (taken, other)
                };
                End::Test {
                    relation,
                    a,
                    b,
                    yes: self.state(yes, registers),
                    no: self.state(no, registers),
                }
            }
        }
    }

    /// Runs one instruction that only changes registers; `false` if it always ends the program, `None` if a value becomes too
    /// deep.
    fn step(
        &mut self,
        op: Op,
        insn: Insn,
        registers: &mut Registers,
        checks: &mut Vec<Check>,
    ) -> Option<bool> {
        let k = insn.k;
        match op {
            Op::LoadAbsolute(size) => {
                registers.a = self.load(
                    Place {
                        base: None,
                        k,
                        size,
                    },
                    checks,
                )?
            }
            Op::LoadIndirect(size) => match self.values.constant(registers.x) {
                // A load at an offset of ancillary data reads them; this one is outside each packet.
                Some(x) => match k.checked_add(x).filter(|&k| k < ANCILLARY) {
                    Some(k) => {
                        registers.a = self.load(
                            Place {
                                base: None,
                                k,
                                size,
                            },
                            checks,
                        )?
                    }
                    None => return Some(false),
                },
                None => {
                    let (base, k) = self.values.shifted(registers.x, k);
                    registers.a = self.load(
                        Place {
                            base: Some(base),
                            k,
                            size,
                        },
                        checks,
                    )?;
                }
            },
            Op::LoadXHeader => {
                let byte = self.load(
                    Place {
                        base: None,
                        k,
                        size: 1,
                    },
                    checks,
                )?;
                registers.x = self.values.header_length(byte)?;
            }
            Op::LoadLength => registers.a = self.values.intern(Term::WireLength)?,
            Op::LoadXLength => registers.x = self.values.intern(Term::WireLength)?,
            Op::LoadImmediate => registers.a = self.values.number(k),
            Op::LoadXImmediate => registers.x = self.values.number(k),
            Op::LoadScratch => registers.a = registers.scratch[k as usize],
            Op::LoadXScratch => registers.x = registers.scratch[k as usize],
            Op::Store => registers.scratch[k as usize] = registers.a,
            Op::StoreX => registers.scratch[k as usize] = registers.x,
            Op::CopyAToX => registers.x = registers.a,
            Op::CopyXToA => registers.a = registers.x,
            Op::Negate => registers.a = self.values.alu(Alu::Sub, ZERO, registers.a)?,
            Op::Alu(alu, operand) => {
                let b = self.operand(operand, insn, registers);
                if matches!(alu, Alu::Div | Alu::Mod) {
                    match self.values.constant(b) {
                        Some(0) => return Some(false),
                        Some(_) => {}
                        None => checks.push(Check::NonZero(b)),
                    }
                }
                registers.a = self.values.alu(alu, registers.a, b)?;
            }
            Op::Jump | Op::Branch(..) | Op::InSet(_) | Op::ReturnK | Op::ReturnA => {}
        }
        Some(true)
    }

    fn load(&mut self, place: Place, checks: &mut Vec<Check>) -> Option<ValueId> {
        checks.push(Check::Captured(place));
        self.values.intern(Term::Load(place))
    }

    fn operand(&mut self, operand: Operand, insn: Insn, registers: &Registers) -> ValueId {
        match operand {
            Operand::K => self.values.number(insn.k),
            Operand::X => registers.x,
        }
    }
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
                live[pc + 1 + usize::from(insn.jt)]
                    | live[pc + 1 + usize::from(insn.jf)]
                    | a
                    | operand(second)
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
