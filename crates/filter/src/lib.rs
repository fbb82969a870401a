//! Packet filters: a tcpdump expression is compiled by libpcap to a program, which an interpreter or native code runs.
#![deny(unsafe_code)]

mod error;
mod graph;
mod inside;
pub mod interpreter;
#[allow(unsafe_code)]
pub mod libpcap;
mod names;
#[allow(unsafe_code)]
pub mod native;
pub mod program;
pub mod sets;
mod simplify;

pub use error::Error;
pub use inside::InnerFilter;
pub use names::keep;
pub use native::Native;
pub use program::{Insn, Program};
pub use sets::{AddressSet, Names, Sets};
pub use simplify::simplify;

use std::borrow::Cow;
use std::sync::OnceLock;

use weir_packet::flow::Reframed;
use weir_packet::{Frame, LinkType, Matcher};

/// Largest number of frames that one call judges: the bits of a verdict mask.
pub const MAX_BATCH: usize = 64;

/// The expression to compile for frames of `link`; with `behind_tags` one for the same packets
/// after one or two VLAN tags too, if frames of `link` have tags.
///
/// libpcap's `vlan` moves the terms after it by a tag. **Source**: pcap-filter(7).
#[must_use]
pub fn for_link(expression: &str, link: LinkType, behind_tags: bool) -> Cow<'_, str> {
    if !behind_tags || link != LinkType::ETHERNET || expression.trim().is_empty() {
        return Cow::Borrowed(expression);
    }
    Cow::Owned(format!(
        "({expression}) or (vlan and (({expression}) or (vlan and ({expression}))))"
    ))
}

/// A program ready to judge frames of one link type.
///
/// **Threads**: may be shared; packets change no state in it.
#[derive(Debug)]
pub struct Filter {
    program: Program,
    /// Empty until `make_native`; then native code, or `None` if it cannot be generated.
    native: OnceLock<Option<Native>>,
    /// Places of addresses that are looked up in large sets.
    ahead: Vec<sets::Lookup>,
}

impl Filter {
    /// Compiles a tcpdump expression for frames of `link`; host names are refused unless `resolve`.
    ///
    /// **Errors**: as of [`libpcap::compile`].
    pub fn compile(expression: &str, link: LinkType, resolve: bool) -> Result<Self, Error> {
        Self::compile_with(expression, link, &Names::from(resolve))
    }

    /// Compiles an expression that may name sets of addresses.
    ///
    /// **Errors**: as of [`libpcap::compile_with`].
    pub fn compile_with(expression: &str, link: LinkType, names: &Names) -> Result<Self, Error> {
        Ok(Self::from_program(libpcap::compile_with(
            expression, link, names,
        )?))
    }

    /// A filter that runs `program`, for instance a program of [`libpcap::compile_live`] for a direction.
    #[must_use]
    pub fn from_program(program: Program) -> Self {
        let ahead = sets::Lookup::of(&program);
        Self {
            program,
            native: OnceLock::new(),
            ahead,
        }
    }

    /// The program that judges frames.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Generates native code on the first call; later calls do nothing. This takes about a
    /// millisecond, so callers wait until enough packets have arrived to repay it. If native code
    /// cannot be generated, the interpreter stays, with the same verdicts.
    pub fn make_native(&self) {
        self.native
            .get_or_init(|| Native::compile(&self.program).ok());
    }

    /// Whether [`Self::make_native`] may take more than 100 ms.
    #[must_use]
    pub fn is_long(&self) -> bool {
        /// Instructions for which Cranelift needs about 100 ms: 30 to 120 us were measured for one.
        const LONG: usize = 1500;
        self.program.insns().len() > LONG
    }

    /// Whether native code judges the frames.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.native().is_some()
    }

    fn native(&self) -> Option<&Native> {
        self.native.get()?.as_ref()
    }

    /// Starts to fetch the memory that [`Self::matches`] needs for frames, if the filter asks large
    /// sets. Frames that are judged later, after some 30 others, then do not wait for memory.
    #[inline]
    pub fn fetch(&self, frames: &[Frame<'_>]) {
        let lookups = match self.native().map(Native::lookups) {
            Some(lookups @ [_, ..]) => lookups,
            _ => &self.ahead[..],
        };
        lookups.iter().for_each(|lookup| lookup.fetch(frames));
    }

    /// Mask of matching frames: bit `i` is set if frame `i` matches.
    ///
    /// **Shape**: at most [`MAX_BATCH`] frames. **Panics**: with more.
    #[must_use]
    pub fn matches(&self, frames: &[Frame<'_>]) -> u64 {
        assert!(frames.len() <= MAX_BATCH, "at most 64 frames a call");
        let native = self.native();
        if native.is_none_or(|native| native.lookups().is_empty()) {
            self.fetch(frames);
        }
        if let Some(native) = native {
            let mut verdicts = 0;
            native.matches(frames, &mut verdicts);
            return verdicts;
        }
        frames.iter().enumerate().fold(0, |mask, (index, frame)| {
            mask | u64::from(interpreter::run(&self.program, frame.data, frame.wire_len) != 0)
                << index
        })
    }
}

impl Filter {
    /// Whether the innermost packet of `frame` matches, of which this filter is for the link type. **Cost**: as of
    /// [`Self::matches`] if the packet is one piece of the frame, else a run of the interpreter.
    #[must_use]
    pub fn matches_inside(&self, packet: &Reframed<'_>, frame: &Frame<'_>) -> bool {
        let wire_len = packet.wire_len(frame);
        match packet.contiguous() {
            Some(data) => {
                let inner = Frame {
                    data,
                    wire_len,
                    interface: frame.interface,
                };
                self.matches(std::slice::from_ref(&inner)) != 0
            }
            None => interpreter::run_in_pieces(&self.program, packet.pieces(), wire_len) != 0,
        }
    }
}

impl Matcher for Filter {
    fn matches(&self, frame: &Frame<'_>) -> bool {
        Self::matches(self, std::slice::from_ref(frame)) != 0
    }
}
