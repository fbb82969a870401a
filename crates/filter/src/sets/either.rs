//! Programs for a judge who knows no sets: the kernel, whose filter comes before ours.
//!
//! Small sets of IPv4 addresses are written out: one comparison for each address. Of all others, a
//! set test may go either way. So a packet must pass if it matches after one of the branches. The
//! *ways* after a test are the instructions at which the program may go on, up to the next
//! comparison of the packet's own fields; further set tests on the way go either way too. If there
//! is no way to a match, the packet is rejected; if there is one way, it is taken; if there are
//! several, the packet passes.
//!
//! Loads on a way that are left out could only have rejected the packet. A way is taken from the place of the test, so registers that the
//! skipped instructions have set must not be read on it.

use crate::graph::{A_BIT, X_BIT, liveness};
use crate::program::{
    Alu, Insn, JUMP, Op, Operand, Program, RETURN, SNAPLEN, successors, without_dead_code,
};
use crate::simplify::{simplify, written_out};

/// Largest number of instructions that the kernel takes, BPF_MAXINSNS.
const KERNELS_LONGEST: usize = 4096;

/// Largest number of set tests that are followed from one test on.
const MOST_TESTS: usize = 1000;

impl Program {
    /// A program for the kernel's filter, which matches each packet that this one matches, and perhaps others: it tests no set, and it
    /// shifts by constants only.
    ///
    /// The kernel shifts by the lowest five bits of X (`net/core/filter.c` translates to shifts of
    /// eBPF, which mask their count), libpcap and this crate by all of them. So a packet matches in
    /// front of such a shift. **Cost**: as of [`simplify`](crate::simplify()).
    #[must_use]
    pub fn for_kernel(&self) -> Self {
        let program = self.without_sets();
        let is_shift = |op: &Op| matches!(op, Op::Alu(Alu::Shl | Alu::Shr, Operand::X));
        if !program.ops().iter().any(is_shift) {
            return program;
        }
        let passed = |(insn, op): (&Insn, &Op)| {
            if is_shift(op) {
                Insn::statement(RETURN, SNAPLEN)
            } else {
                *insn
            }
        };
        let insns: Vec<_> = program
            .insns()
            .iter()
            .zip(program.ops())
            .map(passed)
            .collect();
        simplify(
            &Self::new(without_dead_code(&insns)).expect("each change keeps the program valid"),
        )
    }

    /// A program without sets that matches each packet which this one matches, and perhaps others: its judge must be followed by one that
    /// knows the sets.
    ///
    /// **Cost**: a few passes; the tests that follow each test are checked.
    #[must_use]
    pub fn without_sets(&self) -> Self {
        if self.tests().is_empty() {
            return self.clone();
        }
        if let Some(exact) = written_out(self, KERNELS_LONGEST) {
            return simplify(&exact);
        }
        let can_match = can_match(self);
        // Without loops it is known which registers are read later.
        let live = (!self.has_loops()).then(|| liveness(self.insns()));
        let mut insns = self.insns().to_vec();
        for (at, op) in self.ops().iter().enumerate() {
            if matches!(op, Op::InSet(_)) {
                let mut ways = Ways {
                    program: self,
                    can_match: &can_match,
                    live: live.as_deref(),
                    tests: 0,
                    found: None,
                };
                insns[at] = match ways.from(at) {
                    Some(None) => Insn::statement(RETURN, 0),
                    Some(Some(way)) => Insn::statement(JUMP, (way - at - 1) as u32),
                    None => Insn::statement(RETURN, SNAPLEN),
                };
            }
        }
        simplify(
            &Self::new(without_dead_code(&insns)).expect("each change keeps the program valid"),
        )
    }
}

/// For each instruction, whether a return that can match is reachable from it.
fn can_match(program: &Program) -> Vec<bool> {
    let (insns, ops) = (program.insns(), program.ops());
    let mut can_match = vec![false; insns.len()];
    loop {
        let mut has_changed = false;
        for at in (0..insns.len()).rev() {
            let here = match ops[at] {
                Op::ReturnK => insns[at].k != 0,
                Op::ReturnA => true,
                _ => successors(insns, at).any(|next| can_match[next]),
            };
            has_changed |= here != can_match[at];
            can_match[at] = here;
        }
        // Without loops the second pass finds nothing new.
        if !has_changed {
            return can_match;
        }
    }
}

/// Ways after a set test.
struct Ways<'a> {
    program: &'a Program,
    can_match: &'a [bool],
    /// Registers that are read from each instruction on; `None` if that is unknown.
    live: Option<&'a [u32]>,
    /// Number of tests followed so far.
    tests: usize,
    /// The way found so far.
    found: Option<usize>,
}

impl Ways<'_> {
    /// The only way after the test at `at`, or none; `None` if there are several.
    fn from(&mut self, at: usize) -> Option<Option<usize>> {
        self.both(at, 0)?;
        Some(self.found)
    }

    /// Follows both branches of a test, after instructions that have set the registers of `set`.
    fn both(&mut self, at: usize, set: u32) -> Option<()> {
        self.tests += 1;
        if self.tests > MOST_TESTS {
            return None;
        }
        let Insn { jt, jf, .. } = self.program.insns()[at];
        self.follow(at + 1 + usize::from(jt), set)?;
        self.follow(at + 1 + usize::from(jf), set)
    }

    /// Follows the instructions from `start` on to the next branch.
    fn follow(&mut self, start: usize, set: u32) -> Option<()> {
        if !self.can_match[start] {
            return Some(());
        }
        let (mut at, mut set_on_way) = (start, set);
        loop {
            let insn = self.program.insns()[at];
            match self.program.ops()[at] {
                // A jump back is left to the kernel.
                Op::Jump if insn.k as i32 >= 0 => at += 1 + insn.k as usize,
                Op::InSet(_) => return self.both(at, set_on_way),
                Op::Jump | Op::Branch(..) | Op::ReturnK | Op::ReturnA => {
                    return self.take(start, set);
                }
                op => {
                    set_on_way |= written(op, insn);
                    at += 1;
                }
            }
        }
    }

    /// Notes a way; `None` if it is another one than the way found before, or depends on a register that was set before its start.
    fn take(&mut self, way: usize, set: u32) -> Option<()> {
        let is_free = set == 0 || self.live.is_some_and(|live| live[way] & set == 0);
        let is_same = self.found.is_none_or(|found| found == way);
        self.found = Some(way);
        (is_free && is_same).then_some(())
    }
}

/// Registers that an instruction sets, as bits of [`liveness`].
fn written(op: Op, insn: Insn) -> u32 {
    match op {
        Op::LoadXImmediate
        | Op::LoadXScratch
        | Op::LoadXLength
        | Op::LoadXHeader
        | Op::CopyAToX => 1 << X_BIT,
        Op::Store | Op::StoreX => 1 << insn.k,
        Op::Jump | Op::Branch(..) | Op::InSet(_) | Op::ReturnK | Op::ReturnA => 0,
        _ => 1 << A_BIT,
    }
}
