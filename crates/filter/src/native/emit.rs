//! Small pieces of Cranelift IR that both code generators use.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_frontend::FunctionBuilder;

use crate::program::{Alu, Relation};

/// Flags of loads from packet bytes: the address is checked, nothing writes there while native code runs, and it is unaligned.
pub(super) fn packet_flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_readonly()
}

/// The integer type of `size` bytes.
pub(super) fn word(size: u8) -> Type {
    match size {
        1 => types::I8,
        2 => types::I16,
        _ => types::I32,
    }
}

/// Reads `size` bytes in network order and widens them to 32 bits.
pub(super) fn load_network(
    builder: &mut FunctionBuilder<'_>,
    size: u8,
    address: Value,
    offset: i32,
) -> Value {
    let value = builder
        .ins()
        .load(word(size), packet_flags(), address, offset);
    let value = if size > 1 && cfg!(target_endian = "little") {
        builder.ins().bswap(value)
    } else {
        value
    };
    widen(builder, size, value)
}

fn widen(builder: &mut FunctionBuilder<'_>, size: u8, value: Value) -> Value {
    if size < 4 {
        builder.ins().uextend(types::I32, value)
    } else {
        value
    }
}

/// A 32-bit constant.
pub(super) fn constant(builder: &mut FunctionBuilder<'_>, value: u32) -> Value {
    builder.ins().iconst(types::I32, i64::from(value))
}

/// Arithmetic with the interpreter's results, for a divisor that is known not to be zero.
pub(super) fn alu(
    builder: &mut FunctionBuilder<'_>,
    alu: Alu,
    a: Value,
    b: Value,
    known_b: Option<u32>,
) -> Value {
    match alu {
        Alu::Add => builder.ins().iadd(a, b),
        Alu::Sub => builder.ins().isub(a, b),
        Alu::Mul => builder.ins().imul(a, b),
        Alu::Div => builder.ins().udiv(a, b),
        Alu::Mod => builder.ins().urem(a, b),
        Alu::Or => builder.ins().bor(a, b),
        Alu::And => builder.ins().band(a, b),
        Alu::Xor => builder.ins().bxor(a, b),
        Alu::Shl | Alu::Shr => {
            let shifted = if alu == Alu::Shl {
                builder.ins().ishl(a, b)
            } else {
                builder.ins().ushr(a, b)
            };
            match known_b {
                Some(0..32) => shifted,
                _ => {
                    let zero = constant(builder, 0);
                    let limit = constant(builder, 32);
                    let small = builder.ins().icmp(IntCC::UnsignedLessThan, b, limit);
                    builder.ins().select(small, shifted, zero)
                }
            }
        }
    }
}

/// The result of a comparison, as a condition value.
pub(super) fn compare(
    builder: &mut FunctionBuilder<'_>,
    relation: Relation,
    a: Value,
    b: Value,
) -> Value {
    let code = match relation {
        Relation::Equal => IntCC::Equal,
        Relation::Greater => IntCC::UnsignedGreaterThan,
        Relation::GreaterEqual => IntCC::UnsignedGreaterThanOrEqual,
        Relation::AnyBit => {
            let both = builder.ins().band(a, b);
            let zero = constant(builder, 0);
            return builder.ins().icmp(IntCC::NotEqual, both, zero);
        }
    };
    builder.ins().icmp(code, a, b)
}

/// Whether at least `end` bytes were captured.
pub(super) fn has_bytes(builder: &mut FunctionBuilder<'_>, len: Value, end: u64) -> Value {
    let end = builder.ins().iconst(types::I64, end as i64);
    builder
        .ins()
        .icmp(IntCC::UnsignedGreaterThanOrEqual, len, end)
}
