//! Programs as machine code, through Cranelift.
//!
//! `direct` translates a program instruction by instruction and judges one packet. `decision` and `batch` make the loop that
//! judges many packets. Both are compared with libpcap's interpreter over captures and random programs.
//!
//! This module holds the unsafe code: calls of generated code, and `member`, which generated code calls. The preconditions of the
//! generated code are stated at the calls.

#[deny(unsafe_code)]
mod batch;
#[deny(unsafe_code)]
mod decision;
#[deny(unsafe_code)]
mod direct;
#[deny(unsafe_code)]
mod emit;
#[deny(unsafe_code)]
mod lanes;
mod member;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, FuncRef, GlobalValue, GlobalValueData, Type, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{DataDescription, FuncId, Linkage, Module, default_libcall_names};
use weir_packet::Frame;

use crate::program::SetTest;
use crate::sets::Lookup;
use crate::{Error, MAX_BATCH, Program};

type JudgeOne = unsafe extern "C" fn(data: *const u8, len: usize, wire_len: u32) -> u32;
type JudgeMany =
    unsafe extern "C" fn(frames: *const Frame<'static>, count: usize, members: *const u64) -> u64;

/// A program compiled for this machine.
///
/// **Cost**: one to a few milliseconds to make; a packet costs a few nanoseconds. **Threads**: may be shared; the code keeps
/// no state. **Platform**: x86-64 and aarch64, if memory may be made executable.
pub struct Native {
    one: JudgeOne,
    many: JudgeMany,
    /// Owns the pages of the functions. Only `drop` accesses it.
    module: Mutex<Option<JITModule>>,
    /// Sets whose addresses the code has.
    _sets: Vec<SetTest>,
    /// Lookups that are made for all packets before `many` judges them.
    lookups: Vec<Lookup>,
}

/// Offsets of the two words of a slice reference. Rust does not promise their order, so they are probed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceLayout {
    address: i32,
    len: i32,
}

impl Native {
    /// Generates the native code of a program.
    ///
    /// **Errors**: [`Error::Native`] if Cranelift does not know this machine, or memory cannot be made executable.
    pub fn compile(program: &Program) -> Result<Self, Error> {
        check_perf_map()?;
        let layout = SliceLayout::probe()?;
        let module = JITModule::new(JITBuilder::with_isa(host()?, default_libcall_names()));
        let mut maker = Maker {
            context: module.make_context(),
            frontend: FunctionBuilderContext::new(),
            module,
        };
        let (one, many, lookups) = maker.functions(program, layout)?;
        let module = maker.module;
        let (one, many) = (
            module.get_finalized_function(one),
            module.get_finalized_function(many),
        );
        Ok(Self {
            // SAFETY: the code at this address was generated with exactly `JudgeOne`'s signature and the C calling
            // convention, and stays mapped until `drop` frees the module.
            one: unsafe { std::mem::transmute::<*const u8, JudgeOne>(one) },
            // SAFETY: as above, with `JudgeMany`'s signature.
            many: unsafe { std::mem::transmute::<*const u8, JudgeMany>(many) },
            module: Mutex::new(Some(module)),
            _sets: program.tests().to_vec(),
            lookups,
        })
    }

    /// Returns the result of the program for a packet: 0 for no match, else the number of bytes to keep.
    #[must_use]
    pub fn run(&self, frame: &Frame<'_>) -> u32 {
        // SAFETY: the code reads only bytes below `len` of `data`, each load after a comparison
        // (`direct` promises it), and the borrow of the frame outlives the call. The sets that the
        // code asks live as long as `self`, and never change.
        unsafe { (self.one)(frame.data.as_ptr(), frame.data.len(), frame.wire_len) }
    }

    /// Sets bit `i` of `verdicts` if frame `i` matches, and clears the bit otherwise.
    ///
    /// **Shape**: at most [`MAX_BATCH`] frames; bits beyond their number are cleared. **Panics**: with more.
    pub fn matches(&self, frames: &[Frame<'_>], verdicts: &mut u64) {
        assert!(frames.len() <= MAX_BATCH, "at most 64 frames a call");
        let mut members = [0; decision::MAX_LOOKUPS];
        // Fewer frames are judged one by one.
        if frames.len() as i64 >= lanes::LANES {
            for (members, lookup) in members.iter_mut().zip(&self.lookups) {
                *members = lookup.members(frames);
            }
        }
        // SAFETY: the code reads `count` frames from `frames` in the layout that was probed, and of each only bytes below its
        // length (`batch` promises this and says how), and a word of `members` for each lookup, of which a decision has at most
        // `MAX_LOOKUPS`; the borrows outlive the call. Sets as in `run`.
        *verdicts = unsafe { (self.many)(frames.as_ptr().cast(), frames.len(), members.as_ptr()) };
    }

    /// Returns the lookups that [`Self::matches`] makes for whole batches, with memory fetched ahead.
    pub(crate) fn lookups(&self) -> &[Lookup] {
        &self.lookups
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Native").finish_non_exhaustive()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let module = self
            .module
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(module) = module {
            // SAFETY: the function pointers never leave `self`, and calls borrow it. As it is being dropped, none is running
            // and none will be called.
            unsafe { module.free_memory() }
        }
    }
}

impl SliceLayout {
    fn probe() -> Result<Self, Error> {
        let bytes = [0u8; 3];
        let slice = &bytes[..];
        // SAFETY: a slice reference is two initialised words, and any bits are a valid integer.
        let words = unsafe { std::mem::transmute::<&[u8], [usize; 2]>(slice) };
        let address = slice.as_ptr() as usize;
        let word = size_of::<usize>() as i32;
        match words {
            [first, 3] if first == address => Ok(Self {
                address: 0,
                len: word,
            }),
            [3, second] if second == address => Ok(Self {
                address: word,
                len: 0,
            }),
            _ => Err(Error::Native {
                reason: "slices have an unknown layout".into(),
            }),
        }
    }
}

/// Checks that Cranelift can list its functions for `perf`. If the file cannot be written, Cranelift would panic.
///
/// **Errors**: `perf record` runs this process, and the file cannot be written.
fn check_perf_map() -> Result<(), Error> {
    let Some(path) = perf_map() else {
        return Ok(());
    };
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path);
    opened.map(drop).map_err(|error| Error::Native {
        reason: format!("{}: {error}", path.display()),
    })
}

/// The file in which native code is listed for `perf`; `None` unless `perf record` runs this process.
pub fn perf_map() -> Option<PathBuf> {
    std::env::var_os("PERF_BUILDID_DIR")?;
    Some(Path::new("/tmp").join(format!("perf-{}.map", std::process::id())))
}

/// The instruction set of this machine.
fn host() -> Result<Arc<dyn TargetIsa>, Error> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_probestack", "false"),
        (
            "enable_verifier",
            if cfg!(debug_assertions) {
                "true"
            } else {
                "false"
            },
        ),
    ] {
        flags.set(name, value).map_err(refused)?;
    }
    let builder = cranelift_native::builder().map_err(refused)?;
    builder.finish(settings::Flags::new(flags)).map_err(refused)
}

/// Whether vectors are worthwhile: x86-64 before SSE 4.1 cannot select lanes.
fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sse4.1");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_endian = "little");
}

fn refused(error: impl fmt::Display) -> Error {
    Error::Native {
        reason: error.to_string(),
    }
}

struct Maker {
    context: Context,
    frontend: FunctionBuilderContext,
    module: JITModule,
}

impl Maker {
    /// Generates both functions of a program. Returns them, and the lookups that the second one needs.
    fn functions(
        &mut self,
        program: &Program,
        layout: SliceLayout,
    ) -> Result<(FuncId, FuncId, Vec<Lookup>), Error> {
        let pointer = self.module.target_config().pointer_type();
        let one = self.declare("one", &[pointer, pointer, types::I32], types::I32)?;
        let mut builder = FunctionBuilder::new(&mut self.context.func, &mut self.frontend);
        let calls = member::Calls::new(&mut builder, self.module.target_config().default_call_conv);
        direct::build(program, calls, &mut builder);
        builder.finalize(self.module.target_config());
        self.define(one)?;

        let decision = if has_vectors() {
            decision::Decision::new(program)
        } else {
            None
        };
        let lookups = decision.iter().flat_map(|decision| decision.lookups());
        let lookups = lookups
            .map(|asked| {
                let set = &program.tests()[asked.test as usize].set;
                Lookup::new(set, asked.address, asked.offset)
            })
            .collect();
        let many = self.declare("many", &[pointer; 3], types::I64)?;
        let direct = self
            .module
            .declare_func_in_func(one, &mut self.context.func);
        let table = self
            .module
            .declare_anonymous_data(false, false)
            .map_err(refused)?;
        let address = self
            .module
            .declare_data_in_func(table, &mut self.context.func);
        self.reach_anywhere(direct, address);
        let mut builder = FunctionBuilder::new(&mut self.context.func, &mut self.frontend);
        let constants = batch::build(decision.as_ref(), direct, address, layout, &mut builder);
        builder.finalize(self.module.target_config());
        self.define(many)?;

        let mut description = DataDescription::new();
        description.define(constants.bytes().into());
        description.set_align(16);
        self.module
            .define_data(table, &description)
            .map_err(refused)?;

        self.module.finalize_definitions().map_err(refused)?;
        Ok((one, many, lookups))
    }

    /// Makes the function under construction refer to `function` and `data` by absolute addresses. Each definition gets
    /// pages of its own, wherever the kernel has room. With gigabytes of tables in between, their distance does not fit in
    /// 32 bits.
    fn reach_anywhere(&mut self, function: FuncRef, data: GlobalValue) {
        self.context.func.dfg.ext_funcs[function].colocated = false;
        if let GlobalValueData::Symbol { colocated, .. } =
            &mut self.context.func.global_values[data]
        {
            *colocated = false;
        }
    }

    fn declare(&mut self, name: &str, parameters: &[Type], result: Type) -> Result<FuncId, Error> {
        let mut signature = self.module.make_signature();
        signature
            .params
            .extend(parameters.iter().map(|&kind| AbiParam::new(kind)));
        signature.returns.push(AbiParam::new(result));
        let id = self
            .module
            .declare_function(name, Linkage::Local, &signature)
            .map_err(refused)?;
        self.context.func.signature = signature;
        Ok(id)
    }

    fn define(&mut self, id: FuncId) -> Result<(), Error> {
        self.module
            .define_function(id, &mut self.context)
            .map_err(refused)?;
        self.module.clear_context(&mut self.context);
        Ok(())
    }
}
