//! Verdicts on system calls, as a program for the kernel.
//!
//! The kernel runs the program for calls whose arguments matter. For all other calls it computes the verdict when it
//! accepts the program, by running it once for each number. Comparing the number with one call after another would then
//! take a millisecond, a third of a short run. The program therefore searches the number by halves, and merges neighbours
//! with the same verdict into one range.
//!
//! **Source**: linux/seccomp.h, linux/filter.h, linux/audit.h.

use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeMap;

/// Verdict on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is made.
    Allow,
    /// The call fails with this error.
    Fail(i32),
    /// The call ends the process.
    Kill,
}

/// Test of some bits in the lower or upper half of an argument for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Half of the argument: `2 * argument`, and one more for the upper half.
    half: u8,
    mask: u32,
    value: u32,
}

impl Test {
    /// Tests whether the lower half of an argument is `value`. The kernel looks at no more where it takes 32 bits.
    pub fn is(argument: u8, value: u32) -> Self {
        Self::has(argument, u32::MAX, value)
    }

    /// Tests whether the bits `mask` of an argument's lower half are `value`.
    pub fn has(argument: u8, mask: u32, value: u32) -> Self {
        Self {
            half: 2 * argument,
            mask,
            value,
        }
    }

    /// Tests whether an argument is a null pointer.
    pub fn is_null(argument: u8) -> [Self; 2] {
        [0, 1].map(|half| Self {
            half: 2 * argument + half,
            mask: u32::MAX,
            value: 0,
        })
    }
}

/// A verdict on calls whose arguments pass all tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Tests that must all hold.
    pub tests: Vec<Test>,
    /// Verdict if they hold.
    pub verdict: Verdict,
}

/// Verdict on a call by its arguments: the verdict of the first rule that holds, or `otherwise`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub rules: Vec<Rule>,
    pub otherwise: Verdict,
}

impl From<Verdict> for Judged {
    fn from(otherwise: Verdict) -> Self {
        Self {
            rules: Vec::new(),
            otherwise,
        }
    }
}

/// Verdicts on calls by their numbers.
#[derive(Clone, Debug)]
pub struct Verdicts {
    calls: BTreeMap<u32, Judged>,
    /// Verdict on all other calls.
    others: Verdict,
    /// Number from which all calls have the same verdict.
    from: Option<(u32, Verdict)>,
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`: the number, the architecture, and the first argument.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Longest program that the kernel accepts, `BPF_MAXINSNS` of linux/bpf_common.h.
#[cfg(test)]
const LONGEST: usize = 4096;

impl Verdicts {
    pub fn new(others: Verdict) -> Self {
        Self {
            calls: BTreeMap::new(),
            others,
            from: None,
        }
    }

    /// Sets the verdict on a call.
    pub fn set(&mut self, call: i64, judged: impl Into<Judged>) {
        self.calls.insert(
            u32::try_from(call).expect("calls have small numbers"),
            judged.into(),
        );
    }

    /// Sets the verdict on all calls from this number on, which is above all others that are set.
    pub fn set_from(&mut self, call: u32, verdict: Verdict) {
        self.from = Some((call, verdict));
    }

    /// The program for calls of the architecture `kind`. Calls of another architecture end the process.
    pub fn program(&self, kind: u32) -> BpfProgram {
        let mut ranges = vec![(0, Judged::from(self.others))];
        for (&call, judged) in &self.calls {
            // If the call before is the direct neighbour, the range of the others that began here is empty, and is removed.
            ranges.retain(|(start, _)| *start != call);
            if ranges.last().is_none_or(|(_, last)| last != judged) {
                ranges.push((call, judged.clone()));
            }
            if *judged != Judged::from(self.others) {
                ranges.push((call + 1, self.others.into()));
            }
        }
        ranges.extend(self.from.map(|(start, verdict)| (start, verdict.into())));
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

/// Appends the program for ranges of numbers. Each range goes from its start to the start of the
/// next.
fn search(ranges: &[(u32, Judged)], program: &mut BpfProgram) {
    if let [(_, judged)] = ranges {
        return judge(judged, program);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    // Conditional jumps have offsets of 8 bits only, the plain jump has 32.
    program.push(branch(JUMP_NOT_BELOW, high[0].0, 0, 1));
    program.push(instruction(JUMP, 0));
    let below = program.len();
    search(low, program);
    program[below - 1].k = (program.len() - below) as u32;
    search(high, program);
}

/// Appends the program that judges one call.
fn judge(judged: &Judged, program: &mut BpfProgram) {
    for Rule { tests, verdict } in &judged.rules {
        for (i, test) in tests.iter().enumerate() {
            // Skips the following tests, of three instructions each, and the verdict.
            let to_next = 3 * (tests.len() - 1 - i) + 1;
            program.push(instruction(LOAD, ARGUMENTS + 4 * u32::from(test.half)));
            program.push(instruction(AND, test.mask));
            program.push(branch(
                JUMP_EQUAL,
                test.value,
                0,
                u8::try_from(to_next).expect("a rule has few tests"),
            ));
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
        /// The verdict computed without a program.
        fn naive(&self, number: u32, halves: &[u32; 12]) -> Verdict {
            if let Some((_, verdict)) = self.from.filter(|(start, _)| number >= *start) {
                return verdict;
            }
            let Some(judged) = self.calls.get(&number) else {
                return self.others;
            };
            let holds = |rule: &&Rule| {
                rule.tests
                    .iter()
                    .all(|test| halves[usize::from(test.half)] & test.mask == test.value)
            };
            judged
                .rules
                .iter()
                .find(holds)
                .map_or(judged.otherwise, |rule| rule.verdict)
        }
    }

    /// libpcap's interpreter reads big-endian packets; the kernel reads a call in the machine's byte order.
    fn run(program: &Program, number: u32, kind: u32, halves: &[u32; 12]) -> u32 {
        let words = [number, kind, 0, 0].into_iter().chain(*halves);
        let call: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        bpf_filter(program, &call, call.len() as u32)
    }

    fn checked(program: BpfProgram) -> Program {
        let insns = program
            .into_iter()
            .map(|sock_filter { code, jt, jf, k }| Insn { code, jt, jf, k });
        Program::new(insns.collect()).expect("the program is sound")
    }

    #[test]
    fn the_program_gives_the_verdicts() {
        let mut random = Random(11);
        let verdicts = [
            Verdict::Allow,
            Verdict::Fail(1),
            Verdict::Fail(38),
            Verdict::Kill,
        ];
        for round in 0..60 {
            let mut made = Verdicts::new(verdicts[round % 4]);
            for _ in 0..random.below(80) {
                let mut verdict = || verdicts[random.below(4)];
                let (otherwise, other) = (verdict(), verdict());
                let call = random.below(if round % 2 == 0 { 500 } else { 90 }) as i64;
                let test = |random: &mut Random| {
                    Test::has(random.below(6) as u8, 3, random.below(4) as u32)
                };
                let rules = (0..random.below(3)).map(|_| {
                    let tests = (0..1 + random.below(3))
                        .map(|_| test(&mut random))
                        .collect();
                    Rule {
                        tests,
                        verdict: other,
                    }
                });
                let rules = rules.collect();
                made.set(call, Judged { rules, otherwise });
            }
            made.set(
                7,
                Judged {
                    rules: vec![Rule {
                        tests: Test::is_null(4).into(),
                        verdict: Verdict::Kill,
                    }],
                    otherwise: Verdict::Allow,
                },
            );
            if round % 3 == 0 {
                made.set_from(0x4000_0000, verdicts[round / 3 % 4]);
            }
            let program = checked(made.program(9));
            for number in (0..520).chain([u32::MAX, 0x3fff_ffff, 0x4000_0000, 0x4000_0007, 1 << 31])
            {
                let mut halves = [0; 12];
                halves
                    .iter_mut()
                    .for_each(|half| *half = random.below(4) as u32);
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
