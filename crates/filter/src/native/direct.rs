//! Native code for one packet at a time: each instruction is translated alone, in basic blocks, with every load checked.
//!
//! This code covers the whole language, loops included; the batch code falls back to it. A load is not checked again if an
//! earlier load on every path already covers it.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::emit;
use super::member::{self, Calls};
use crate::program::{
    Address, Alu, Insn, Op, Operand, Program, SCRATCH_WORDS, SetTest, backward_jump_limit,
};

/// Fills the body of `extern "C" fn(data: *const u8, len: usize, wire_len: u32) -> u32`.
///
/// Sets are asked by calls of `calls`; the program's sets must outlive the code.
pub(super) fn build(program: &Program, calls: Calls, builder: &mut FunctionBuilder<'_>) {
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let parameters = builder.block_params(entry);
    let (data, len, wire_len) = (parameters[0], parameters[1], parameters[2]);

    let a = builder.declare_var(types::I32);
    let x = builder.declare_var(types::I32);
    let scratch = std::array::from_fn(|_| builder.declare_var(types::I32));
    let backward_left = builder.declare_var(types::I64);
    let zero = emit::constant(builder, 0);
    for register in [a, x].into_iter().chain(scratch) {
        builder.def_var(register, zero);
    }
    let left = builder.ins().iadd_imm_s(len, backward_jump_limit(0) as i64);
    builder.def_var(backward_left, left);

    let mut blocks = vec![None; program.insns().len()];
    for target in targets(program) {
        blocks[target].get_or_insert_with(|| builder.create_block());
    }
    let fault = builder.create_block();
    builder.set_cold_block(fault);
    let known = vec![u64::MAX; blocks.len()];
    let loops = program.has_loops();
    let tests = program.tests();
    Direct {
        builder,
        data,
        len,
        wire_len,
        a,
        x,
        scratch,
        backward_left,
        blocks,
        known,
        fault,
        loops,
        tests,
        calls,
    }
    .run(program);
}

/// Targets of all jumps.
fn targets(program: &Program) -> Vec<usize> {
    let mut targets = Vec::new();
    for (pc, insn) in program.insns().iter().enumerate() {
        match insn.op() {
            Some(Op::Branch(..) | Op::InSet(_)) => {
                targets.extend([pc + 1 + usize::from(insn.jt), pc + 1 + usize::from(insn.jf)]);
            }
            Some(Op::Jump) => targets.push((pc + 1).wrapping_add_signed(insn.k as i32 as isize)),
            _ => {}
        }
    }
    targets
}

struct Direct<'a, 'b> {
    builder: &'a mut FunctionBuilder<'b>,
    data: Value,
    len: Value,
    wire_len: Value,
    a: Variable,
    x: Variable,
    scratch: [Variable; SCRATCH_WORDS],
    backward_left: Variable,
    /// The block that starts at an instruction, if the instruction is the target of a jump.
    blocks: Vec<Option<Block>>,
    /// Captured bytes that are checked before every jump to an instruction.
    known: Vec<u64>,
    fault: Block,
    loops: bool,
    tests: &'a [SetTest],
    calls: Calls,
}

impl Direct<'_, '_> {
    fn run(mut self, program: &Program) {
        // Number of bytes known to be captured; `None` after a jump, until the next block that can be reached.
        let mut reach = Some(0);
        for (pc, insn) in program.insns().iter().enumerate() {
            if let Some(block) = self.blocks[pc] {
                if let Some(known) = reach {
                    self.known[pc] = self.known[pc].min(known);
                    self.builder.ins().jump(block, &[]);
                }
                self.builder.switch_to_block(block);
                let known = if self.loops || self.known[pc] == u64::MAX {
                    0
                } else {
                    self.known[pc]
                };
                reach = Some(known);
            }
            let Some(known) = reach else { continue };
            reach = self.insn(pc, *insn, known);
        }
        self.builder.switch_to_block(self.fault);
        let zero = emit::constant(self.builder, 0);
        self.builder.ins().return_(&[zero]);
        self.builder.seal_all_blocks();
    }

    /// Emits one instruction. Returns the number of bytes known to be captured afterwards; `None` if control does not fall
    /// through.
    fn insn(&mut self, pc: usize, insn: Insn, known: u64) -> Option<u64> {
        match insn.op()? {
            Op::ReturnK => {
                let value = emit::constant(self.builder, insn.k);
                self.builder.ins().return_(&[value]);
                None
            }
            Op::ReturnA => {
                let value = self.builder.use_var(self.a);
                self.builder.ins().return_(&[value]);
                None
            }
            Op::Jump => {
                self.jump(pc, insn.k as i32, known);
                None
            }
            Op::Branch(relation, operand) => {
                let a = self.builder.use_var(self.a);
                let b = self.operand(operand, insn);
                let holds = emit::compare(self.builder, relation, a, b);
                let yes = self.target(pc + 1 + usize::from(insn.jt), known);
                let no = self.target(pc + 1 + usize::from(insn.jf), known);
                self.builder.ins().brif(holds, yes, &[], no, &[]);
                None
            }
            Op::InSet(address) => {
                let is_member = self.is_member(address, insn);
                let yes = self.target(pc + 1 + usize::from(insn.jt), known);
                let no = self.target(pc + 1 + usize::from(insn.jf), known);
                self.builder.ins().brif(is_member, yes, &[], no, &[]);
                None
            }
            op => Some(self.step(op, insn, known)),
        }
    }

    /// Emits a set test: zero if the set does not have the address. If the packet ends within the address, the program may end.
    fn is_member(&mut self, address: Address, insn: Insn) -> Value {
        let test = &self.tests[insn.k as usize];
        if address == Address::V4 {
            let a = self.builder.use_var(self.a);
            return member::v4(self.builder, self.calls, &test.set, a);
        }
        let mut at = self
            .builder
            .ins()
            .iconst(types::I64, i64::from(test.offset));
        if address == Address::V6Indirect {
            let x = self.builder.use_var(self.x);
            let x = self.builder.ins().uextend(types::I64, x);
            at = self.builder.ins().iadd(at, x);
        }
        let result = member::v6(
            self.builder,
            self.calls,
            &test.set,
            [self.data, self.len, at],
        );
        let goes_on =
            self.builder
                .ins()
                .icmp_imm_u(IntCC::NotEqual, result, i64::from(member::ENDS));
        self.check(goes_on);
        result
    }

    fn step(&mut self, op: Op, insn: Insn, known: u64) -> u64 {
        let k = insn.k;
        match op {
            Op::LoadAbsolute(size) => {
                let end = u64::from(k) + u64::from(size);
                let known = self.require(end, known);
                let value = self.load_at(k, size);
                self.builder.def_var(self.a, value);
                return known;
            }
            Op::LoadXHeader => {
                let known = self.require(u64::from(k) + 1, known);
                let byte = self.load_at(k, 1);
                let low = self.builder.ins().band_imm_u(byte, 0xf);
                let words = self.builder.ins().ishl_imm_u(low, 2);
                self.builder.def_var(self.x, words);
                return known;
            }
            Op::LoadIndirect(size) => {
                let value = self.load_indirect(k, size);
                self.builder.def_var(self.a, value);
            }
            Op::LoadLength => self.builder.def_var(self.a, self.wire_len),
            Op::LoadXLength => self.builder.def_var(self.x, self.wire_len),
            Op::LoadImmediate | Op::LoadXImmediate => {
                let value = emit::constant(self.builder, k);
                let register = if op == Op::LoadImmediate {
                    self.a
                } else {
                    self.x
                };
                self.builder.def_var(register, value);
            }
            Op::LoadScratch => self.copy(self.scratch[k as usize], self.a),
            Op::LoadXScratch => self.copy(self.scratch[k as usize], self.x),
            Op::Store => self.copy(self.a, self.scratch[k as usize]),
            Op::StoreX => self.copy(self.x, self.scratch[k as usize]),
            Op::CopyAToX => self.copy(self.a, self.x),
            Op::CopyXToA => self.copy(self.x, self.a),
            Op::Alu(alu, operand) => {
                let a = self.builder.use_var(self.a);
                let b = self.operand(operand, insn);
                if matches!(alu, Alu::Div | Alu::Mod) && operand == Operand::X {
                    self.check(b);
                }
                let known_b = (operand == Operand::K).then_some(k);
                let value = emit::alu(self.builder, alu, a, b, known_b);
                self.builder.def_var(self.a, value);
            }
            Op::Negate => {
                let a = self.builder.use_var(self.a);
                let value = self.builder.ins().ineg(a);
                self.builder.def_var(self.a, value);
            }
            Op::Jump | Op::Branch(..) | Op::InSet(_) | Op::ReturnK | Op::ReturnA => {}
        }
        known
    }

    fn copy(&mut self, from: Variable, to: Variable) {
        let value = self.builder.use_var(from);
        self.builder.def_var(to, value);
    }

    fn operand(&mut self, operand: Operand, insn: Insn) -> Value {
        match operand {
            Operand::K => emit::constant(self.builder, insn.k),
            Operand::X => self.builder.use_var(self.x),
        }
    }

    /// The block of a jump's target. Records the number of bytes known to be captured when the jump is taken.
    fn target(&mut self, pc: usize, known: u64) -> Block {
        self.known[pc] = self.known[pc].min(known);
        self.blocks[pc].expect("every target has a block")
    }

    fn jump(&mut self, pc: usize, skip: i32, known: u64) {
        if skip < 0 {
            let left = self.builder.use_var(self.backward_left);
            self.check(left);
            let less = self.builder.ins().iadd_imm_s(left, -1);
            self.builder.def_var(self.backward_left, less);
        }
        let block = self.target((pc + 1).wrapping_add_signed(skip as isize), known);
        self.builder.ins().jump(block, &[]);
    }

    /// Emits a check: the program goes on only if `condition` is not zero.
    fn check(&mut self, condition: Value) {
        let next = self.builder.create_block();
        self.builder
            .ins()
            .brif(condition, next, &[], self.fault, &[]);
        self.builder.switch_to_block(next);
    }

    /// Emits a check that `end` bytes are captured, unless that is known.
    fn require(&mut self, end: u64, known: u64) -> u64 {
        if end > known {
            let enough = emit::has_bytes(self.builder, self.len, end);
            self.check(enough);
        }
        known.max(end)
    }

    fn load_at(&mut self, k: u32, size: u8) -> Value {
        match i32::try_from(k) {
            Ok(offset) => emit::load_network(self.builder, size, self.data, offset),
            Err(_) => {
                let offset = self.builder.ins().iconst(types::I64, i64::from(k));
                let address = self.builder.ins().iadd(self.data, offset);
                emit::load_network(self.builder, size, address, 0)
            }
        }
    }

    fn load_indirect(&mut self, k: u32, size: u8) -> Value {
        let x = self.builder.use_var(self.x);
        let x = self.builder.ins().uextend(types::I64, x);
        let k = self.builder.ins().iconst(types::I64, i64::from(k));
        let at = self.builder.ins().iadd(x, k);
        let end = self.builder.ins().iadd_imm_s(at, i64::from(size));
        let enough = self
            .builder
            .ins()
            .icmp(IntCC::UnsignedLessThanOrEqual, end, self.len);
        self.check(enough);
        let address = self.builder.ins().iadd(self.data, at);
        emit::load_network(self.builder, size, address, 0)
    }
}
