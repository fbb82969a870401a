//! The filter of a handle: the program that its own libpcap compiled.

use weir_filter::{Filter, Insn, Program};

/// Packets after which native code repays the millisecond that it takes to make.
const REPAID: u32 = 16_384;

/// A filter, and the packets that it has judged.
#[derive(Debug, Default)]
pub struct Judge {
    filter: Option<Filter>,
    judged: u32,
}

impl Judge {
    /// Takes a program that libpcap has accepted; `None` if it is not accepted here.
    pub fn new(insns: &[Insn]) -> Option<Self> {
        let program = Program::new(insns.to_vec()).ok()?;
        // All that `tcpdump` without an expression asks for.
        let is_empty = matches!(
            program.insns(),
            [Insn {
                code: 6,
                k: 1..,
                ..
            }]
        );
        Some(Self {
            filter: (!is_empty).then(|| Filter::from_program(program)),
            judged: 0,
        })
    }

    /// Whether every packet passes.
    pub fn is_empty(&self) -> bool {
        self.filter.is_none()
    }

    /// Mask of the frames that pass, at most 64.
    pub fn matches(&mut self, frames: &[weir_packet::Frame<'_>]) -> u64 {
        let Some(filter) = &self.filter else {
            return u64::MAX;
        };
        if self.judged < REPAID {
            self.judged += frames.len() as u32;
            if self.judged >= REPAID && !filter.is_long() {
                filter.make_native();
            }
        }
        filter.matches(frames)
    }
}
