//! Up to 64 packets a call: one loop in native code that judges each packet without a branch that depends on it.
//!
//! What costs a filter its time is not instructions but branches that nobody can foresee. So every field that any path
//! could want is loaded, every test made, and the truth values are folded from the leaves of the decision graph to its
//! root with conditional moves. That is sound because a load can always be made harmless:
//!
//! 1. A packet shorter than the *floor* goes to the checked code of `direct`, out of the loop. The floor is the furthest
//!    byte that the program reads at a fixed place, but no more than [`MAX_FLOOR`], so that ordinary short packets stay.
//! 2. A load that ends at or below the floor needs no check.
//! 3. Any other load reads at its place if that was captured and at the packet's start if not; the packet then does not
//!    match, as far as the program asks for that load at all.
//! 4. A division by zero divides by one instead, with the same consequence.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, FuncRef, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;
use weir_packet::Frame;

use super::decision::{Decision, Node, NodeId, Place, Term, ValueId};
use super::{SliceLayout, emit};
use crate::program::{Alu, Relation};

/// Most bytes that a packet must have to be judged in the loop: an Ethernet, IPv4 and TCP header.
const MAX_FLOOR: u64 = 54;

/// Widest load, bytes: what must be readable at a packet's start.
const MIN_FLOOR: u64 = 4;

/// Fills the body of `extern "C" fn(frames: *const Frame, count: usize) -> u64`.
///
/// `direct` judges one packet; without a `decision` it judges all.
pub(super) fn build(
    decision: Option<&Decision>,
    direct: FuncRef,
    layout: SliceLayout,
    builder: &mut FunctionBuilder<'_>,
) {
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let (frames, count) = (builder.block_params(entry)[0], builder.block_params(entry)[1]);
    let (head, join, done) = (builder.create_block(), builder.create_block(), builder.create_block());
    let cursor = builder.append_block_param(head, types::I64);
    let mask = builder.append_block_param(head, types::I64);
    let bit = builder.append_block_param(join, types::I64);
    let verdicts = builder.append_block_param(done, types::I64);

    // From the last frame to the first, so that each verdict is shifted in from below.
    let none = builder.ins().iconst(types::I64, 0);
    let bytes = builder.ins().imul_imm_s(count, size_of::<Frame<'_>>() as i64);
    let end = builder.ins().iadd(frames, bytes);
    builder.ins().brif(count, head, &[BlockArg::Value(end), BlockArg::Value(none)], done, &[BlockArg::Value(none)]);

    builder.switch_to_block(head);
    let frame = builder.ins().iadd_imm_s(cursor, -(size_of::<Frame<'_>>() as i64));
    let (data, len, wire_len) = load_frame(builder, frame, layout);
    let slow = builder.create_block();
    match decision {
        Some(decision) => {
            let floor = floor(decision);
            if floor > 0 {
                let fast = builder.create_block();
                let enough = emit::has_bytes(builder, len, floor);
                builder.ins().brif(enough, fast, &[], slow, &[]);
                builder.set_cold_block(slow);
                builder.switch_to_block(fast);
            }
            let mut eager = Eager::new(decision, builder, data, len, wire_len, floor);
            let truth = eager.root();
            builder.ins().jump(join, &[BlockArg::Value(truth)]);
        }
        None => {
            builder.ins().jump(slow, &[]);
        }
    }

    builder.switch_to_block(slow);
    let call = builder.ins().call(direct, &[data, len, wire_len]);
    let result = builder.inst_results(call)[0];
    let matched = builder.ins().icmp_imm_s(IntCC::NotEqual, result, 0);
    let matched = builder.ins().uextend(types::I64, matched);
    builder.ins().jump(join, &[BlockArg::Value(matched)]);

    builder.switch_to_block(join);
    let doubled = builder.ins().iadd(mask, mask);
    let mask = builder.ins().iadd(doubled, bit);
    let more = builder.ins().icmp(IntCC::NotEqual, frame, frames);
    builder.ins().brif(more, head, &[BlockArg::Value(frame), BlockArg::Value(mask)], done, &[BlockArg::Value(mask)]);

    builder.switch_to_block(done);
    builder.ins().return_(&[verdicts]);
    builder.seal_all_blocks();
}

/// The address, captured length and wire length of a frame.
fn load_frame(builder: &mut FunctionBuilder<'_>, frame: Value, layout: SliceLayout) -> (Value, Value, Value) {
    let flags = MemFlagsData::trusted().with_readonly();
    let slice = offset_of!(Frame<'_>, data) as i32;
    let data = builder.ins().load(types::I64, flags, frame, slice + layout.address);
    let len = builder.ins().load(types::I64, flags, frame, slice + layout.len);
    let wire_len = builder.ins().load(types::I32, flags, frame, offset_of!(Frame<'_>, wire_len) as i32);
    (data, len, wire_len)
}

/// Captured bytes that a packet needs for the loop; 0 if the program reads none.
fn floor(decision: &Decision) -> u64 {
    let places = decision.values.iter().filter_map(|term| match term {
        Term::Load(place) => Some(place),
        _ => None,
    });
    let fixed = |place: &Place| if place.base.is_none() && place.end() <= MAX_FLOOR { place.end() } else { 0 };
    places.map(|place| fixed(place).max(MIN_FLOOR)).max().unwrap_or(0)
}

/// The truth of a node, as cheaply as it is known.
#[derive(Clone, Copy)]
enum Truth {
    No,
    Yes,
    /// A condition, 0 or 1 in eight bits.
    Condition(Value),
    /// 0 or 1 in 64 bits.
    Word(Value),
}

/// Emits the whole graph without a branch.
struct Eager<'a, 'b> {
    decision: &'a Decision,
    builder: &'a mut FunctionBuilder<'b>,
    data: Value,
    len: Value,
    wire_len: Value,
    floor: u64,
    raw: HashMap<ValueId, Value>,
    network: HashMap<ValueId, Value>,
    captured: HashMap<(Option<ValueId>, u64), Value>,
    truths: Vec<Option<Truth>>,
}

impl<'a, 'b> Eager<'a, 'b> {
    fn new(
        decision: &'a Decision,
        builder: &'a mut FunctionBuilder<'b>,
        data: Value,
        len: Value,
        wire_len: Value,
        floor: u64,
    ) -> Self {
        let truths = vec![None; decision.nodes.len()];
        let (raw, network, captured) = Default::default();
        Self { decision, builder, data, len, wire_len, floor, raw, network, captured, truths }
    }

    /// The root's truth as a word.
    fn root(&mut self) -> Value {
        let decision = self.decision;
        let mut needed = vec![false; decision.nodes.len()];
        needed[decision.root.0 as usize] = true;
        for index in (0..needed.len()).rev() {
            if needed[index] {
                for next in successors(decision.nodes[index]) {
                    needed[next.0 as usize] = true;
                }
            }
        }
        for (index, node) in decision.nodes.iter().enumerate() {
            if needed[index] {
                self.truths[index] = Some(self.evaluate(*node));
            }
        }
        let truth = self.truth(decision.root);
        self.word(truth)
    }

    fn truth(&self, id: NodeId) -> Truth {
        self.truths[id.0 as usize].expect("successors come first")
    }

    fn evaluate(&mut self, node: Node) -> Truth {
        match node {
            Node::No => Truth::No,
            Node::Yes => Truth::Yes,
            Node::Test { relation, a, b, yes, no } => {
                let (yes, no) = (self.truth(yes), self.truth(no));
                let holds = self.condition(relation, a, b);
                self.choose(holds, yes, no)
            }
            Node::Captured { place, next } => {
                let next = self.truth(next);
                match self.captured(place) {
                    Some(captured) => self.choose(captured, next, Truth::No),
                    None => next,
                }
            }
            Node::NonZero { value, next } => {
                let next = self.truth(next);
                let value = self.network(value);
                let condition = self.builder.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                self.choose(condition, next, Truth::No)
            }
        }
    }

    fn choose(&mut self, condition: Value, yes: Truth, no: Truth) -> Truth {
        match (yes, no) {
            (Truth::Yes, Truth::No) => Truth::Condition(condition),
            (Truth::Yes, Truth::Condition(other)) => Truth::Condition(self.builder.ins().bor(condition, other)),
            (Truth::Condition(other), Truth::No) => Truth::Condition(self.builder.ins().band(condition, other)),
            _ => {
                let (yes, no) = (self.word(yes), self.word(no));
                Truth::Word(self.builder.ins().select(condition, yes, no))
            }
        }
    }

    fn word(&mut self, truth: Truth) -> Value {
        match truth {
            Truth::No => self.builder.ins().iconst(types::I64, 0),
            Truth::Yes => self.builder.ins().iconst(types::I64, 1),
            Truth::Condition(condition) => self.builder.ins().uextend(types::I64, condition),
            Truth::Word(word) => word,
        }
    }

    /// A test; against a constant the bytes are compared as they lie, and the constant is swapped instead.
    fn condition(&mut self, relation: Relation, a: ValueId, b: ValueId) -> Value {
        if let Some(b) = self.decision.constant(b)
            && let Some((load, size, mask)) = self.masked_load(a)
            && let Some(condition) = self.raw_condition(relation, load, size, mask, b)
        {
            return condition;
        }
        let (a, b) = (self.network(a), self.network(b));
        emit::compare(self.builder, relation, a, b)
    }

    /// Takes a value apart as `load & mask`.
    fn masked_load(&self, id: ValueId) -> Option<(ValueId, u8, u32)> {
        match self.decision.term(id) {
            Term::Load(place) => Some((id, place.size, u32::MAX)),
            Term::Alu(Alu::And, load, mask) => match (self.decision.term(load), self.decision.constant(mask)) {
                (Term::Load(place), Some(mask)) => Some((load, place.size, mask)),
                _ => None,
            },
            _ => None,
        }
    }

    fn raw_condition(&mut self, relation: Relation, load: ValueId, size: u8, mask: u32, b: u32) -> Option<Value> {
        let width = u32::MAX >> (32 - 8 * u32::from(size));
        let (mask, code, b) = match relation {
            Relation::Equal if b <= width => (mask & width, IntCC::Equal, b),
            Relation::AnyBit => (mask & width & b, IntCC::NotEqual, 0),
            _ => return None,
        };
        let mut value = self.raw(load);
        if mask != width {
            let mask = emit::constant(self.builder, as_it_lies(mask, size));
            value = self.builder.ins().band(value, mask);
        }
        let b = emit::constant(self.builder, as_it_lies(b, size));
        Some(self.builder.ins().icmp(code, value, b))
    }

    /// The bytes of a load in the machine's order.
    fn raw(&mut self, id: ValueId) -> Value {
        if let Some(&value) = self.raw.get(&id) {
            return value;
        }
        let Term::Load(place) = self.decision.term(id) else { unreachable!("only loads have bytes") };
        let (address, offset) = self.address(place);
        let value = emit::load_raw(self.builder, place.size, address, offset);
        self.raw.insert(id, value);
        value
    }

    /// A value as the program sees it.
    fn network(&mut self, id: ValueId) -> Value {
        if let Some(&value) = self.network.get(&id) {
            return value;
        }
        let value = match self.decision.term(id) {
            Term::Constant(value) => emit::constant(self.builder, value),
            Term::WireLength => self.wire_len,
            Term::Load(place) if place.size == 1 => self.raw(id),
            Term::Load(place) => {
                let (address, offset) = self.address(place);
                emit::load_network(self.builder, place.size, address, offset)
            }
            Term::Alu(alu, a, b) => {
                let known_b = self.decision.constant(b);
                let (a, mut b) = (self.network(a), self.network(b));
                if matches!(alu, Alu::Div | Alu::Mod) && known_b.is_none() {
                    let one = emit::constant(self.builder, 1);
                    b = self.builder.ins().select(b, b, one);
                }
                emit::alu(self.builder, alu, a, b, known_b)
            }
        };
        self.network.insert(id, value);
        value
    }

    /// Whether a place was captured; `None` if the floor promises it.
    fn captured(&mut self, place: Place) -> Option<Value> {
        if place.base.is_none() && place.end() <= self.floor {
            return None;
        }
        let key = (place.base, place.end());
        if let Some(&condition) = self.captured.get(&key) {
            return Some(condition);
        }
        let condition = match place.base {
            None => emit::has_bytes(self.builder, self.len, place.end()),
            Some(base) => {
                let base = self.wide(base);
                let size = self.builder.ins().iconst(types::I64, place.end() as i64);
                let end = self.builder.ins().iadd(base, size);
                self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, self.len)
            }
        };
        self.captured.insert(key, condition);
        Some(condition)
    }

    /// A place that can be read in any case: an address and an offset from it.
    fn address(&mut self, place: Place) -> (Value, i32) {
        let captured = self.captured(place);
        let short = i32::try_from(place.k).ok();
        match (captured, place.base) {
            (None, _) => (self.data, short.expect("places below the floor are small")),
            (Some(captured), Some(base)) if place.end() <= self.floor => {
                let base = self.wide(base);
                let offset = self.or_zero(captured, base);
                (self.builder.ins().iadd(self.data, offset), short.expect("places below the floor are small"))
            }
            (Some(captured), base) => {
                let mut offset = self.builder.ins().iconst(types::I64, i64::from(place.k));
                if let Some(base) = base {
                    let base = self.wide(base);
                    offset = self.builder.ins().iadd(base, offset);
                }
                let offset = self.or_zero(captured, offset);
                (self.builder.ins().iadd(self.data, offset), 0)
            }
        }
    }

    fn or_zero(&mut self, condition: Value, value: Value) -> Value {
        let zero = self.builder.ins().iconst(types::I64, 0);
        self.builder.ins().select(condition, value, zero)
    }

    fn wide(&mut self, id: ValueId) -> Value {
        let value = self.network(id);
        self.builder.ins().uextend(types::I64, value)
    }
}

fn successors(node: Node) -> impl Iterator<Item = NodeId> {
    let (first, second) = match node {
        Node::No | Node::Yes => (None, None),
        Node::Test { yes, no, .. } => (Some(yes), Some(no)),
        Node::Captured { next, .. } | Node::NonZero { next, .. } => (Some(next), None),
    };
    first.into_iter().chain(second)
}

/// A constant in the byte order in which the packet's bytes land in a register.
fn as_it_lies(value: u32, size: u8) -> u32 {
    match size {
        1 => value,
        2 => u32::from((value as u16).to_be()),
        _ => value.to_be(),
    }
}
