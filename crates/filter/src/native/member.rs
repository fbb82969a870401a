//! Calls from native code to sets of addresses.
//!
//! The code has the address of a set as a constant, so the owner of the code also owns the set
//! (`Native::sets`).

use std::slice;

use cranelift_codegen::ir::{AbiParam, InstBuilder, SigRef, Signature, Value, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;

use crate::AddressSet;

/// Result of [`judge_v6`] if the program ends with 0.
pub(super) const ENDS: u32 = 2;

/// Signatures of the two functions in the code that calls them.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    v4: SigRef,
    v6: SigRef,
}

impl Calls {
    /// Declares both signatures, with the C calling convention `convention`.
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, convention: CallConv) -> Self {
        let mut import = |parameters: &[_]| {
            let mut signature = Signature::new(convention);
            signature
                .params
                .extend(parameters.iter().map(|&kind| AbiParam::new(kind)));
            signature.returns.push(AbiParam::new(types::I32));
            builder.import_signature(signature)
        };
        Self {
            v4: import(&[types::I64, types::I32]),
            v6: import(&[types::I64; 4]),
        }
    }
}

/// Emits the question whether a set has the IPv4 address `a`: 1 or 0.
pub(super) fn v4(
    builder: &mut FunctionBuilder<'_>,
    calls: Calls,
    set: &AddressSet,
    a: Value,
) -> Value {
    let function: unsafe extern "C" fn(*const AddressSet, u32) -> u32 = contains_v4;
    let (function, set) = (function as usize, &raw const *set);
    let function = builder.ins().iconst(types::I64, function as i64);
    let set = builder.ins().iconst(types::I64, set as i64);
    let call = builder.ins().call_indirect(calls.v4, function, &[set, a]);
    builder.inst_results(call)[0]
}

/// Emits the question whether a set has the IPv6 address at a place of the packet; `packet` is its first byte, its captured length, and the
/// place. The result is 1, 0 or [`ENDS`].
pub(super) fn v6(
    builder: &mut FunctionBuilder<'_>,
    calls: Calls,
    set: &AddressSet,
    packet: [Value; 3],
) -> Value {
    let function: unsafe extern "C" fn(*const AddressSet, *const u8, usize, u64) -> u32 = judge_v6;
    let (function, set) = (function as usize, &raw const *set);
    let function = builder.ins().iconst(types::I64, function as i64);
    let set = builder.ins().iconst(types::I64, set as i64);
    let [data, len, at] = packet;
    let call = builder
        .ins()
        .call_indirect(calls.v6, function, &[set, data, len, at]);
    builder.inst_results(call)[0]
}

/// # Safety
///
/// `set` points to a set that nobody changes during the call.
unsafe extern "C" fn contains_v4(set: *const AddressSet, address: u32) -> u32 {
    // SAFETY: promised by the caller.
    unsafe { &*set }.contains_v4(address).into()
}

/// # Safety
///
/// As for [`contains_v4`], and `data` points to `len` bytes that nobody changes during the call.
unsafe extern "C" fn judge_v6(set: *const AddressSet, data: *const u8, len: usize, at: u64) -> u32 {
    // SAFETY: promised by the caller.
    let (set, data) = unsafe { (&*set, slice::from_raw_parts(data, len)) };
    let judged = usize::try_from(at)
        .ok()
        .and_then(|at| set.judge_v6(data.get(at..)?));
    judged.map_or(ENDS, u32::from)
}
