//! From a graph of decisions back to instructions.
//!
//! Each node that is not merely the continuation of a check becomes a block, in an order in which jumps go forward. A block
//! loads the operands of its test into A and X, unless every way to the block leaves them there. Scratch memory is used only
//! inside a block, for operands that need X themselves.
//!
//! A check needs no instruction of its own if the block loads a field that reaches at least as far: then that load ends the
//! program with 0. Otherwise the field is loaded for the check alone.
//!
//! Blocks are laid out from the end. The skip of a conditional jump has 8 bits; for a target
//! further away, an unconditional jump, or a copy of the return that it would lead to, is put in
//! front of the block after, and shared by all jumps near it.

use std::collections::HashMap;

use crate::Program;
use crate::graph::{Graph, Node, NodeId, Place, Term, ValueId, ZERO};
use crate::program::{Address, Alu, IN_V4, IN_V6, IN_V6_X, Insn, Relation, SCRATCH_WORDS, SetTest};

/// The program of a graph; `None` if it would have more than `limit` instructions, or would need too much scratch memory.
///
/// `tests` are the tests of the program from which the graph was made.
pub(super) fn program(graph: &Graph, tests: &[SetTest], limit: usize) -> Option<Program> {
    let blocks = Assembler::new(graph, tests, limit).blocks()?;
    let insns = layout(&blocks, graph.root, limit)?;
    Program::with_sets(insns, tests.to_vec()).ok()
}

/// Contents of the registers that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Registers {
    a: Option<ValueId>,
    x: Option<ValueId>,
}

impl Registers {
    fn meet(&mut self, other: Self) {
        self.a = self.a.filter(|_| self.a == other.a);
        self.x = self.x.filter(|_| self.x == other.x);
    }
}

struct Block {
    code: Vec<Insn>,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Return(Insn),
    Goto(NodeId),
    Branch {
        code: u16,
        k: u32,
        yes: NodeId,
        no: NodeId,
    },
}

impl End {
    fn successors(self) -> impl DoubleEndedIterator<Item = NodeId> {
        let (first, second) = match self {
            Self::Return(_) => (None, None),
            Self::Goto(next) => (None, Some(next)),
            Self::Branch { yes, no, .. } => (Some(yes), Some(no)),
        };
        first.into_iter().chain(second)
    }
}

struct Assembler<'a> {
    graph: &'a Graph,
    tests: &'a [SetTest],
    /// Whether a block begins at each node.
    heads: Vec<bool>,
    /// Contents of the registers on all ways to each head so far.
    entries: Vec<Option<Registers>>,
    left: usize,
}

impl<'a> Assembler<'a> {
    fn new(graph: &'a Graph, tests: &'a [SetTest], limit: usize) -> Self {
        let reached = graph.reachable();
        let mut ways = vec![0usize; graph.nodes.len()];
        let mut heads = vec![false; graph.nodes.len()];
        heads[graph.root.0 as usize] = true;
        for (_, node) in graph
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| reached[*index])
        {
            for next in node.successors() {
                ways[next.0 as usize] += 1;
                heads[next.0 as usize] |= !matches!(node, Node::Captured { .. });
            }
        }
        heads
            .iter_mut()
            .zip(&ways)
            .for_each(|(head, ways)| *head |= *ways > 1);
        let mut entries = vec![None; graph.nodes.len()];
        entries[graph.root.0 as usize] = Some(Registers::default());
        Self {
            graph,
            tests,
            heads,
            entries,
            left: limit,
        }
    }

    /// The blocks by their first nodes.
    fn blocks(mut self) -> Option<HashMap<NodeId, Block>> {
        let mut blocks = HashMap::new();
        for index in (0..self.graph.nodes.len()).rev() {
            // A node that no block leads to has no entry.
            if let Some(registers) = self.entries[index].take() {
                let head = NodeId(index as u32);
                let block = self.block(head, registers)?;
                self.left = self.left.checked_sub(block.code.len() + 1)?;
                blocks.insert(head, block);
            }
        }
        Some(blocks)
    }

    fn block(&mut self, head: NodeId, registers: Registers) -> Option<Block> {
        let mut checks = Vec::new();
        let mut at = head;
        loop {
            match self.graph.nodes[at.0 as usize] {
                Node::Captured { place, next } => {
                    checks.push(place);
                    at = next;
                    if self.heads[next.0 as usize] {
                        let (code, registers) =
                            self.with_checks(&checks, registers, |_| Some(()))?;
                        self.enter(next, registers);
                        return Some(Block {
                            code,
                            end: End::Goto(next),
                        });
                    }
                }
                Node::Return(k) => {
                    let (code, _) = self.with_checks(&checks, registers, |_| Some(()))?;
                    return Some(Block {
                        code,
                        end: End::Return(Insn::statement(0x06, k)),
                    });
                }
                Node::ReturnValue(value) => {
                    let (code, _) =
                        self.with_checks(&checks, registers, |writer| writer.a(value, 0))?;
                    return Some(Block {
                        code,
                        end: End::Return(Insn::statement(0x16, 0)),
                    });
                }
                Node::Test {
                    relation,
                    a,
                    b,
                    yes,
                    no,
                } => {
                    let constant = self.graph.values.constant(b);
                    let operands = |writer: &mut Writer<'_>| match constant {
                        Some(_) => writer.a(a, 0),
                        None => writer.both(a, b, 0),
                    };
                    let (code, registers) = self.with_checks(&checks, registers, operands)?;
                    self.enter(yes, registers);
                    self.enter(no, registers);
                    let code_of_jump =
                        jump_code(relation) | if constant.is_none() { 0x08 } else { 0 };
                    return Some(Block {
                        code,
                        end: End::Branch {
                            code: code_of_jump,
                            k: constant.unwrap_or(0),
                            yes,
                            no,
                        },
                    });
                }
                Node::InSet {
                    address,
                    test,
                    of,
                    yes,
                    no,
                } => {
                    let offset = self.tests[test as usize].offset;
                    let address_of = |writer: &mut Writer<'_>| writer.address(address, of, offset);
                    let (code, registers) = self.with_checks(&checks, registers, address_of)?;
                    self.enter(yes, registers);
                    self.enter(no, registers);
                    let code_of_jump = match address {
                        Address::V4 => IN_V4,
                        Address::V6 => IN_V6,
                        Address::V6Indirect => IN_V6_X,
                    };
                    return Some(Block {
                        code,
                        end: End::Branch {
                            code: code_of_jump,
                            k: test,
                            yes,
                            no,
                        },
                    });
                }
            }
        }
    }

    fn enter(&mut self, head: NodeId, registers: Registers) {
        match &mut self.entries[head.0 as usize] {
            Some(known) => known.meet(registers),
            none => *none = Some(registers),
        }
    }

    /// The instructions of `work`, with the instructions for checks in front.
    fn with_checks(
        &self,
        checks: &[Place],
        registers: Registers,
        work: impl Fn(&mut Writer<'_>) -> Option<()>,
    ) -> Option<(Vec<Insn>, Registers)> {
        let mut alone = Writer::new(self.graph, registers);
        work(&mut alone)?;
        let missing: Vec<_> = checks
            .iter()
            .filter(|check| !alone.has_loaded(**check))
            .collect();
        if missing.is_empty() {
            return Some((alone.code, alone.registers));
        }
        let mut writer = Writer::new(self.graph, registers);
        for (index, check) in missing.iter().enumerate() {
            // A later one that reaches further is enough.
            if !missing[index + 1..]
                .iter()
                .any(|later| later.covers(**check))
            {
                writer.load(**check)?;
            }
        }
        work(&mut writer)?;
        checks
            .iter()
            .all(|check| writer.has_loaded(*check))
            .then_some((writer.code, writer.registers))
    }
}

fn jump_code(relation: Relation) -> u16 {
    match relation {
        Relation::Equal => 0x15,
        Relation::Greater => 0x25,
        Relation::GreaterEqual => 0x35,
        Relation::AnyBit => 0x45,
    }
}

fn alu_code(alu: Alu) -> u16 {
    match alu {
        Alu::Add => 0x04,
        Alu::Sub => 0x14,
        Alu::Mul => 0x24,
        Alu::Div => 0x34,
        Alu::Or => 0x44,
        Alu::And => 0x54,
        Alu::Shl => 0x64,
        Alu::Shr => 0x74,
        Alu::Mod => 0x94,
        Alu::Xor => 0xa4,
    }
}

/// Writes the instructions of one block.
struct Writer<'a> {
    graph: &'a Graph,
    code: Vec<Insn>,
    registers: Registers,
    /// Fields that are loaded in this block, or were in a register at its start.
    loaded: Vec<Place>,
}

impl<'a> Writer<'a> {
    /// Largest number of instructions of a block.
    const LIMIT: usize = 4096;

    fn new(graph: &'a Graph, registers: Registers) -> Self {
        let held = |value: ValueId| match graph.values.term(value) {
            Term::Load(place) => Some(place),
            _ => None,
        };
        let loaded = [registers.a, registers.x]
            .into_iter()
            .flatten()
            .filter_map(held)
            .collect();
        Self {
            graph,
            code: Vec::new(),
            registers,
            loaded,
        }
    }

    fn has_loaded(&self, check: Place) -> bool {
        self.loaded.iter().any(|place| place.covers(check))
    }

    fn push(&mut self, code: u16, k: u32) -> Option<()> {
        self.code.push(Insn::statement(code, k));
        (self.code.len() <= Self::LIMIT).then_some(())
    }

    /// Makes A hold a value. X and scratch words from `depth` on may change.
    fn a(&mut self, value: ValueId, depth: usize) -> Option<()> {
        if self.registers.a == Some(value) {
            return Some(());
        }
        match self.graph.values.term(value) {
            Term::Constant(k) => self.push(0x00, k)?,
            Term::WireLength => self.push(0x80, 0)?,
            Term::Load(place) => self.load_to(place, depth)?,
            Term::Alu(Alu::Sub, ZERO, b) => {
                self.a(b, depth)?;
                self.push(0x84, 0)?;
            }
            Term::Alu(alu, a, b) => match self.immediate(alu, b) {
                Some(k) => {
                    self.a(a, depth)?;
                    self.push(alu_code(alu), k)?;
                }
                None => {
                    self.both(a, b, depth)?;
                    self.push(alu_code(alu) | 0x08, 0)?;
                }
            },
        }
        self.registers.a = Some(value);
        Some(())
    }

    /// The constant operand, if the operation takes it as one.
    fn immediate(&self, alu: Alu, b: ValueId) -> Option<u32> {
        let k = self.graph.values.constant(b)?;
        let valid = match alu {
            Alu::Div | Alu::Mod => k != 0,
            Alu::Shl | Alu::Shr => k < 32,
            _ => true,
        };
        valid.then_some(k)
    }

    /// Makes A hold `a` and X hold `b`.
    fn both(&mut self, a: ValueId, b: ValueId, depth: usize) -> Option<()> {
        if self.keeps_x(a) {
            self.x(b, depth)?;
            return self.a(a, depth);
        }
        if depth >= SCRATCH_WORDS {
            return None;
        }
        self.a(a, depth)?;
        if self.registers.x == Some(b) {
            return Some(());
        }
        let direct = self.graph.values.constant(b).is_some()
            || self.graph.values.as_header_length(b).is_some();
        if direct {
            return self.x(b, depth);
        }
        self.push(0x02, depth as u32)?;
        self.x(b, depth + 1)?;
        self.push(0x60, depth as u32)?;
        self.registers.a = Some(a);
        Some(())
    }

    /// Whether a value comes into A without a change of X.
    fn keeps_x(&self, value: ValueId) -> bool {
        match self.graph.values.term(value) {
            Term::Constant(_) | Term::WireLength | Term::Load(Place { base: None, .. }) => true,
            Term::Load(_) => false,
            Term::Alu(Alu::Sub, ZERO, b) => self.keeps_x(b),
            Term::Alu(alu, a, b) => self.immediate(alu, b).is_some() && self.keeps_x(a),
        }
    }

    /// Makes X hold a value. A may change.
    fn x(&mut self, value: ValueId, depth: usize) -> Option<()> {
        if self.registers.x == Some(value) {
            return Some(());
        }
        if let Some(place) = self.graph.values.as_header_length(value) {
            self.loaded.push(place);
            self.push(0xb1, place.k)?;
        } else {
            match self.graph.values.term(value) {
                Term::Constant(k) => self.push(0x01, k)?,
                Term::WireLength => self.push(0x81, 0)?,
                _ => {
                    self.a(value, depth)?;
                    self.push(0x07, 0)?;
                }
            }
        }
        self.registers.x = Some(value);
        Some(())
    }

    /// Makes the registers hold what a set test reads. A test of an IPv6 address fails without the first word, like its load.
    fn address(&mut self, address: Address, of: ValueId, offset: u32) -> Option<()> {
        let base = match address {
            Address::V4 => return self.a(of, 0),
            Address::V6 => None,
            Address::V6Indirect => {
                self.x(of, 0)?;
                Some(of)
            }
        };
        self.loaded.push(Place {
            base,
            k: offset,
            size: 4,
        });
        Some(())
    }

    /// Loads a field for its check alone.
    fn load(&mut self, place: Place) -> Option<()> {
        self.load_to(place, 0)?;
        self.registers.a = self.graph.values.find(Term::Load(place));
        Some(())
    }

    /// Loads a field into A, whose known contents the caller updates.
    fn load_to(&mut self, place: Place, depth: usize) -> Option<()> {
        let size = match place.size {
            1 => 0x10,
            2 => 0x08,
            _ => 0x00,
        };
        match place.base {
            None => self.push(0x20 | size, place.k)?,
            Some(base) => {
                self.x(base, depth)?;
                self.push(0x40 | size, place.k)?;
            }
        }
        self.loaded.push(place);
        Some(())
    }
}

/// Instructions from the end of the program to its start.
struct Layout {
    code: Vec<Insn>,
    limit: usize,
    /// Number of instructions from each block's first one to the end.
    starts: HashMap<NodeId, usize>,
    /// The nearest jump or copy of a return that leads to a block, counted likewise.
    stepping_stones: HashMap<NodeId, usize>,
}

fn layout(blocks: &HashMap<NodeId, Block>, root: NodeId, limit: usize) -> Option<Vec<Insn>> {
    let mut layout = Layout {
        code: Vec::new(),
        limit,
        starts: HashMap::new(),
        stepping_stones: HashMap::new(),
    };
    for node in order(blocks, root) {
        layout.block(node, &blocks[&node], blocks)?;
    }
    layout.code.reverse();
    Some(layout.code)
}

/// The blocks, each after all to which it leads: they are laid out from the end.
fn order(blocks: &HashMap<NodeId, Block>, root: NodeId) -> Vec<NodeId> {
    let mut order = Vec::with_capacity(blocks.len());
    let mut seen = HashMap::new();
    let mut open = vec![(root, false)];
    while let Some((node, done)) = open.pop() {
        if done {
            order.push(node);
            continue;
        }
        if seen.insert(node, ()).is_some() {
            continue;
        }
        open.push((node, true));
        open.extend(blocks[&node].end.successors().map(|next| (next, false)));
    }
    order
}

impl Layout {
    fn push(&mut self, insn: Insn) -> Option<()> {
        self.code.push(insn);
        (self.code.len() <= self.limit).then_some(())
    }

    fn block(
        &mut self,
        node: NodeId,
        block: &Block,
        blocks: &HashMap<NodeId, Block>,
    ) -> Option<()> {
        match block.end {
            End::Return(insn) => self.push(insn)?,
            End::Goto(next) if self.starts[&next] == self.code.len() => {}
            End::Goto(next) => {
                let jump = self.leading_to(next, blocks);
                self.push(jump)?;
            }
            End::Branch { code, k, yes, no } => {
                for target in [yes, no] {
                    self.reach(target, blocks)?;
                }
                // The second may have moved the first out of reach.
                self.reach(yes, blocks)?;
                let (jt, jf) = (self.skip(yes)?, self.skip(no)?);
                self.push(Insn::jump(code, k, jt, jf))?;
            }
        }
        for insn in block.code.iter().rev() {
            self.push(*insn)?;
        }
        self.starts.insert(node, self.code.len());
        Some(())
    }

    /// Puts a stepping stone to a block here, if a jump from here cannot reach the block otherwise.
    fn reach(&mut self, target: NodeId, blocks: &HashMap<NodeId, Block>) -> Option<()> {
        if self.skip(target).is_some() {
            return Some(());
        }
        let stone = self.leading_to(target, blocks);
        self.push(stone)?;
        self.stepping_stones.insert(target, self.code.len());
        Some(())
    }

    /// The skip of a conditional jump that is written next.
    fn skip(&self, target: NodeId) -> Option<u8> {
        let near = |start: &usize| u8::try_from(self.code.len() - start).ok();
        let direct = self.starts.get(&target).and_then(near);
        direct.or_else(|| self.stepping_stones.get(&target).and_then(near))
    }

    /// The instruction that, written next, leads to a block: a jump, or the block itself if it only returns.
    fn leading_to(&self, target: NodeId, blocks: &HashMap<NodeId, Block>) -> Insn {
        match &blocks[&target] {
            Block {
                code,
                end: End::Return(insn),
            } if code.is_empty() => *insn,
            _ => Insn::statement(0x05, (self.code.len() - self.starts[&target]) as u32),
        }
    }
}
