//! Verdicts on system calls, as a program for the kernel.
//!
//! The kernel runs it for calls whose arguments matter. Of all others it works the verdict out when it takes the program, by running it for
//! each number that there is: a program that compared the number with one call after another would take a millisecond then, which is a third
//! of a short run. So the number is searched by halves, and neighbours with one verdict are one range.
//!
//! **Source**: linux/seccomp.h, linux/filter.h, linux/audit.h.

use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeMap;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is made.
    Allow,
    /// It fails with this error.
    Fail(i32),
    /// It ends the process.
    Kill,
}

/// Bits of an argument's lower or upper half that have this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Half of the argument: `2 * argument`, and one more for the upper.
    half: u8,
    mask: u32,
    value: u32,
}

impl Test {
    /// The lower half of an argument is `value`, which is all that the kernel looks at where it takes 32 bits.
    pub fn is(argument: u8, value: u32) -> Self {
        Self::has(argument, u32::MAX, value)
    }

    /// The bits `mask` of an argument's lower half are `value`.
    pub fn has(argument: u8, mask: u32, value: u32) -> Self {
        Self { half: 2 * argument, mask, value }
    }

    /// An argument is a null pointer.
    pub fn is_null(argument: u8) -> [Self; 2] {
        [0, 1].map(|half| Self { half: 2 * argument + half, mask: u32::MAX, value: 0 })
    }
}

/// A verdict on calls whose arguments pass all tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What must hold.
    pub tests: Vec<Test>,
    /// What becomes of it then.
    pub verdict: Verdict,
}

/// What becomes of a call: the first rule that holds decides, and `otherwise` if none does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub rules: Vec<Rule>,
    pub otherwise: Verdict,
}

impl From<Verdict> for Judged {
    fn from(otherwise: Verdict) -> Self {
        Self { rules: Vec::new(), otherwise }
    }
}

/// Verdicts on calls by their numbers.
#[derive(Clone, Debug)]
pub struct Verdicts {
    calls: BTreeMap<u32, Judged>,
    /// On all others.
    others: Verdict,
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Places in `struct seccomp_data`: the number, the processor's kind of calls, and the first argument.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Longest program that the kernel takes, `BPF_MAXINSNS` of linux/bpf_common.h.
#[cfg(test)]
const LONGEST: usize = 4096;

impl Verdicts {
    pub fn new(others: Verdict) -> Self {
        Self { calls: BTreeMap::new(), others }
    }

    /// Sets what becomes of a call.
    pub fn set(&mut self, call: i64, judged: impl Into<Judged>) {
        self.calls.insert(u32::try_from(call).expect("calls have small numbers"), judged.into());
    }

    /// The program for a processor whose calls are of this `kind`; calls of another kind end the process.
    pub fn program(&self, kind: u32) -> BpfProgram {
        let mut ranges = vec![(0, Judged::from(self.others))];
        for (&call, judged) in &self.calls {
            // Behind the call before the others go on, unless this is its neighbour.
            ranges.retain(|(start, _)| *start != call);
            if ranges.last().is_none_or(|(_, last)| last != judged) {
                ranges.push((call, judged.clone()));
            }
            if *judged != Judged::from(self.others) {
                ranges.push((call + 1, self.others.into()));
            }
        }
        let mut program = vec![
            instruction(LOAD, KIND),
            branch(JUMP_EQUAL, kind, 1, 0),
            instruction(RETURN, Verdict::Kill.code()),
            instruction(LOAD, NUMBER),
        ];
        search(&ranges, &mut program);
        program
    }
}

/// Appends the program for ranges of numbers, each from its start to the next one's.
fn search(ranges: &[(u32, Judged)], program: &mut BpfProgram) {
    if let [(_, judged)] = ranges {
        return judge(judged, program);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    // The offsets of conditional jumps have 8 bits.
    program.push(branch(JUMP_NOT_BELOW, high[0].0, 0, 1));
    program.push(instruction(JUMP, 0));
    let below = program.len();
    search(low, program);
    program[below - 1].k = (program.len() - below) as u32;
    search(high, program);
}

/// Appends the program for one call.
fn judge(judged: &Judged, program: &mut BpfProgram) {
    for Rule { tests, verdict } in &judged.rules {
        for (i, test) in tests.iter().enumerate() {
            // Over the tests that follow, of three instructions each, and the verdict.
            let to_next = 3 * (tests.len() - 1 - i) + 1;
            program.push(instruction(LOAD, ARGUMENTS + 4 * u32::from(test.half)));
            program.push(instruction(AND, test.mask));
            program.push(branch(JUMP_EQUAL, test.value, 0, u8::try_from(to_next).expect("a rule has few tests")));
        }
        program.push(instruction(RETURN, verdict.code()));
    }
    program.push(instruction(RETURN, judged.otherwise.code()));
}

impl Verdict {
    fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Fail(error) => libc::SECCOMP_RET_ERRNO | error as u32 & libc::SECCOMP_RET_DATA,
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

fn instruction(code: u16, k: u32) -> sock_filter {
    branch(code, k, 0, 0)
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::libpcap::bpf_filter;
    use weir_filter::{Insn, Program};
    use weir_testkit::Random;

    impl Verdicts {
        /// The verdict, without a program.
        fn naive(&self, number: u32, halves: &[u32; 12]) -> Verdict {
            let Some(judged) = self.calls.get(&number) else { return self.others };
            let holds =
                |rule: &&Rule| rule.tests.iter().all(|test| halves[usize::from(test.half)] & test.mask == test.value);
            judged.rules.iter().find(holds).map_or(judged.otherwise, |rule| rule.verdict)
        }
    }

    /// libpcap's interpreter reads packets in network byte order, and the kernel a call in that of the machine.
    fn run(program: &Program, number: u32, kind: u32, halves: &[u32; 12]) -> u32 {
        let words = [number, kind, 0, 0].into_iter().chain(*halves);
        let call: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        bpf_filter(program, &call, call.len() as u32)
    }

    fn checked(program: BpfProgram) -> Program {
        let insns = program.into_iter().map(|sock_filter { code, jt, jf, k }| Insn { code, jt, jf, k });
        Program::new(insns.collect()).expect("the program is sound")
    }

    #[test]
    fn the_program_gives_the_verdicts() {
        let mut random = Random(11);
        let verdicts = [Verdict::Allow, Verdict::Fail(1), Verdict::Fail(38), Verdict::Kill];
        for round in 0..60 {
            let mut made = Verdicts::new(verdicts[round % 4]);
            for _ in 0..random.below(80) {
                let mut verdict = || verdicts[random.below(4)];
                let (otherwise, other) = (verdict(), verdict());
                let call = random.below(if round % 2 == 0 { 500 } else { 90 }) as i64;
                let test = |random: &mut Random| Test::has(random.below(6) as u8, 3, random.below(4) as u32);
                let rules = (0..random.below(3)).map(|_| {
                    let tests = (0..1 + random.below(3)).map(|_| test(&mut random)).collect();
                    Rule { tests, verdict: other }
                });
                let rules = rules.collect();
                made.set(call, Judged { rules, otherwise });
            }
            made.set(
                7,
                Judged {
                    rules: vec![Rule { tests: Test::is_null(4).into(), verdict: Verdict::Kill }],
                    otherwise: Verdict::Allow,
                },
            );
            let program = checked(made.program(9));
            for number in (0..520).chain([u32::MAX, 0x4000_0007, 1 << 31]) {
                let mut halves = [0; 12];
                halves.iter_mut().for_each(|half| *half = random.below(4) as u32);
                assert_eq!(
                    run(&program, number, 9, &halves),
                    made.naive(number, &halves).code(),
                    "{number} {halves:?}"
                );
                assert_eq!(run(&program, number, 8, &halves), Verdict::Kill.code());
            }
            let mut halves = [0; 12];
            assert_eq!(run(&program, 7, 9, &halves), Verdict::Kill.code());
            halves[9] = 1;
            assert_eq!(run(&program, 7, 9, &halves), Verdict::Allow.code());
        }
    }

    #[test]
    fn a_program_for_all_numbers_that_differ_is_taken() {
        let mut made = Verdicts::new(Verdict::Kill);
        for call in (0..512).step_by(2) {
            made.set(call, Verdict::Allow);
        }
        let program = made.program(0);
        assert!(program.len() < LONGEST, "{}", program.len());
        checked(program);
    }
}
