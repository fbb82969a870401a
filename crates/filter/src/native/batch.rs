//! Native code for up to 64 packets a call: a loop that judges four packets at a time, without a branch that depends on them.
//!
//! Sets are asked before the call, for all packets ([`crate::sets::Lookup`]): the lookups of a batch wait for memory side by side, and no branch
//! depends on what they find.
//!
//! The time of a filter is not spent on instructions but on mispredicted branches. So every field that any path could need
//! is loaded, and every test is made. The results are folded from the leaves of the decision graph to its root. As all
//! packets then take the same steps, four of them are judged in the lanes of one vector ([`super::lanes`]).
//!
//! ```text
//! slow = all packets if there are fewer than four or there is no decision graph, else none
//! for group in groups of four, the last one overlapping the one before it if need be:
//!     verdicts |= lanes(group) << index of group
//!     slow     |= lanes that could not be judged << index of group
//! for packet in slow:
//!     verdicts[packet] = direct(packet) != 0
//! ```

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, FuncRef, GlobalValue, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;
use weir_packet::Frame;

use super::SliceLayout;
use super::decision::Decision;
use super::lanes::{self, Constants, Judged, LANES};

/// Fills the body of `extern "C" fn(frames: *const Frame, count: usize, members: *const u64) -> u64`, for at most 64
/// frames.
///
/// After `members` is a word for each lookup of the decision: bit `i` says whether the set has the
/// address of frame `i`. Bits of frames that end before or within the address have no meaning.
///
/// `direct` judges one packet; without a `decision` it judges all. The returned constants must be placed at `table`.
pub(super) fn build(
    decision: Option<&Decision>,
    direct: FuncRef,
    table: GlobalValue,
    layout: SliceLayout,
    builder: &mut FunctionBuilder<'_>,
) -> Constants {
    let mut constants = Constants::default();
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let &[first, count, members] = builder.block_params(entry) else {
        unreachable!("the function has three parameters")
    };
    let frames = Frames {
        first,
        count,
        members,
        layout,
    };
    let rest = builder.create_block();
    let verdicts = builder.append_block_param(rest, types::I64);
    let slow = builder.append_block_param(rest, types::I64);

    let none = builder.ins().iconst(types::I64, 0);
    let all = ones(builder, frames.count);
    match decision {
        None => {
            builder.ins().jump(rest, &[none.into(), all.into()]);
        }
        Some(decision) => {
            let groups = builder.create_block();
            let lanes = builder.ins().iconst(types::I64, LANES);
            let enough = builder
                .ins()
                .icmp(IntCC::UnsignedGreaterThanOrEqual, frames.count, lanes);
            builder
                .ins()
                .brif(enough, groups, &[], rest, &[none.into(), all.into()]);
            builder.switch_to_block(groups);
            let table = builder.ins().symbol_value(types::I64, table);
            let next = judge_groups(frames, rest, builder);
            let judged = lanes::judge(decision, next.group, &mut constants, table, builder);
            next.finish(judged, builder);
        }
    }
    builder.switch_to_block(rest);
    judge_slow(frames, verdicts, slow, direct, builder);
    builder.seal_all_blocks();
    constants
}

/// The lowest `count` bits, for a count up to 64.
fn ones(builder: &mut FunctionBuilder<'_>, count: Value) -> Value {
    let all = builder.ins().iconst(types::I64, -1);
    let missing = builder.ins().ineg(count);
    let shifted = builder.ins().ushr(all, missing);
    builder.ins().select(count, shifted, count)
}

/// The loop over groups, before its body is emitted.
struct Groups {
    group: Group,
    head: Block,
    index: Value,
    next: Value,
    verdicts: Value,
    slow: Value,
}

/// Emits the loop up to the point where a group is judged. `index` is the group's; the last group ends with the last frame.
///
/// The results of the loop's body are used once, by the jump back: otherwise Cranelift would not fold loads into the
/// instructions that need them.
fn judge_groups(frames: Frames, rest: Block, builder: &mut FunctionBuilder<'_>) -> Groups {
    let (head, body) = (builder.create_block(), builder.create_block());
    let start = builder.append_block_param(head, types::I64);
    let verdicts = builder.append_block_param(head, types::I64);
    let slow = builder.append_block_param(head, types::I64);
    let none = builder.ins().iconst(types::I64, 0);
    let last = builder.ins().iadd_imm_s(frames.count, -LANES);
    builder
        .ins()
        .jump(head, &[none.into(), none.into(), none.into()]);

    builder.switch_to_block(head);
    let more = builder
        .ins()
        .icmp(IntCC::UnsignedLessThan, start, frames.count);
    builder
        .ins()
        .brif(more, body, &[], rest, &[verdicts.into(), slow.into()]);

    builder.switch_to_block(body);
    let index = builder.ins().umin(start, last);
    let next = builder.ins().iadd_imm_s(start, LANES);
    Groups {
        group: frames.at(index, builder),
        head,
        index,
        next,
        verdicts,
        slow,
    }
}

impl Groups {
    /// Emits the rest of the loop.
    fn finish(self, judged: Judged, builder: &mut FunctionBuilder<'_>) {
        let here = builder.ins().ishl(judged.matched, self.index);
        let verdicts = builder.ins().bor(self.verdicts, here);
        let slow = match judged.unsure {
            Some(unsure) => {
                let here = builder.ins().ishl(unsure, self.index);
                builder.ins().bor(self.slow, here)
            }
            None => self.slow,
        };
        builder
            .ins()
            .jump(self.head, &[self.next.into(), verdicts.into(), slow.into()]);
    }
}

/// Judges each packet of `slow` with `direct`, and returns.
fn judge_slow(
    frames: Frames,
    verdicts: Value,
    slow: Value,
    direct: FuncRef,
    builder: &mut FunctionBuilder<'_>,
) {
    let (head, body, done) = (
        builder.create_block(),
        builder.create_block(),
        builder.create_block(),
    );
    builder.set_cold_block(body);
    let left = builder.append_block_param(head, types::I64);
    let known = builder.append_block_param(head, types::I64);
    builder.ins().jump(head, &[slow.into(), verdicts.into()]);

    builder.switch_to_block(head);
    builder.ins().brif(left, body, &[], done, &[]);

    builder.switch_to_block(body);
    let index = builder.ins().ctz(left);
    let frame = frames.at(index, builder);
    let (data, len, wire_len) = (
        frame.data(builder, 0),
        frame.len(builder, 0),
        frame.wire_len(builder, 0),
    );
    let call = builder.ins().call(direct, &[data, len, wire_len]);
    let result = builder.inst_results(call)[0];
    let matched = builder.ins().icmp_imm_s(IntCC::NotEqual, result, 0);
    let matched = builder.ins().uextend(types::I64, matched);
    let one = builder.ins().iconst(types::I64, 1);
    let bit = builder.ins().ishl(one, index);
    let others = builder.ins().band_not(known, bit);
    let here = builder.ins().ishl(matched, index);
    let known_now = builder.ins().bor(others, here);
    let left_now = builder.ins().band_not(left, bit);
    builder
        .ins()
        .jump(head, &[left_now.into(), known_now.into()]);

    builder.switch_to_block(done);
    builder.ins().return_(&[known]);
}

/// The arguments of the function: frames, and their number.
#[derive(Clone, Copy)]
struct Frames {
    first: Value,
    count: Value,
    members: Value,
    layout: SliceLayout,
}

impl Frames {
    /// The frames from `index` on.
    fn at(self, index: Value, builder: &mut FunctionBuilder<'_>) -> Group {
        let bytes = builder
            .ins()
            .imul_imm_s(index, size_of::<Frame<'_>>() as i64);
        Group {
            address: builder.ins().iadd(self.first, bytes),
            index,
            members: self.members,
            layout: self.layout,
        }
    }
}

/// Frames in memory, one after another.
#[derive(Clone, Copy)]
pub(super) struct Group {
    address: Value,
    /// Number of the first frame.
    index: Value,
    /// Address of the results of lookups.
    members: Value,
    layout: SliceLayout,
}

impl Group {
    /// Flags of loads from a group. Whenever the address is computed, it is the address of a frame,
    /// so its memory is readable from then on.
    fn flags() -> MemFlagsData {
        MemFlagsData::trusted().with_readonly().with_can_move()
    }

    fn slice(lane: usize) -> i32 {
        (lane * size_of::<Frame<'_>>() + offset_of!(Frame<'_>, data)) as i32
    }

    /// Address of a packet's first byte.
    pub(super) fn data(self, builder: &mut FunctionBuilder<'_>, lane: usize) -> Value {
        builder.ins().load(
            types::I64,
            Self::flags(),
            self.address,
            Self::slice(lane) + self.layout.address,
        )
    }

    /// Captured length of a packet, as 64 bits.
    pub(super) fn len(self, builder: &mut FunctionBuilder<'_>, lane: usize) -> Value {
        builder.ins().load(
            types::I64,
            Self::flags(),
            self.address,
            Self::slice(lane) + self.layout.len,
        )
    }

    fn wire_len(self, builder: &mut FunctionBuilder<'_>, lane: usize) -> Value {
        builder.ins().load(
            types::I32,
            Self::flags(),
            self.address,
            Self::wire_len_at(lane),
        )
    }

    fn wire_len_at(lane: usize) -> i32 {
        (lane * size_of::<Frame<'_>>() + offset_of!(Frame<'_>, wire_len)) as i32
    }

    /// The lower 32 bits of each packet's captured length; libpcap also keeps 32 bits.
    pub(super) fn lens(self, builder: &mut FunctionBuilder<'_>) -> Value {
        let low = if cfg!(target_endian = "little") { 0 } else { 4 };
        let place = |lane| (self.address, Self::slice(lane) + self.layout.len + low);
        lanes::gather(builder, Self::flags(), std::array::from_fn(place))
    }

    /// The results of a lookup for the packets, in the lowest bits of 32.
    pub(super) fn members(self, builder: &mut FunctionBuilder<'_>, lookup: usize) -> Value {
        let offset = (lookup * size_of::<u64>()) as i32;
        let all = builder
            .ins()
            .load(types::I64, Self::flags(), self.members, offset);
        let here = builder.ins().ushr(all, self.index);
        builder.ins().ireduce(types::I32, here)
    }

    /// The wire length of each packet.
    pub(super) fn wire_lens(self, builder: &mut FunctionBuilder<'_>) -> Value {
        let place = |lane| (self.address, Self::wire_len_at(lane));
        lanes::gather(builder, Self::flags(), std::array::from_fn(place))
    }
}
