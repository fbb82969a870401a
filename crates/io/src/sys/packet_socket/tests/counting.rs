//! Tests of the translation against the verdicts of libpcap's own interpreter, and against counters that must agree.

#[allow(dead_code)]
#[path = "../../../../../filter/tests/support/mod.rs"]
mod support;

use super::super::counting::Counting;
use super::super::filter::{Away, Filter, Insn, KernelFilter};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use support::Random;
use weir_filter::{Program, libpcap};
use weir_packet::LinkType;
use weir_testkit::skipped;

fn insns(program: &Program) -> Vec<Insn> {
    program
        .insns()
        .iter()
        .map(|&weir_filter::Insn { code, jt, jf, k }| Insn { code, jt, jf, k })
        .collect()
}

/// Returns whether eBPF is permitted.
fn permitted(test: &str) -> bool {
    match Counting::new(&[Insn::ret(0)], Away::Nothing, 1) {
        Ok(_) => true,
        Err(error) => {
            skipped(test, error);
            false
        }
    }
}

/// Runs the program in the kernel on the frames and compares the verdicts; returns the numbers accepted and rejected.
fn agrees(program: &Program, frames: &[&[u8]], snaplen: u32) -> (usize, usize) {
    let counting = Counting::new(&insns(program), Away::Nothing, snaplen)
        .unwrap_or_else(|error| panic!("{error}: {program:?}"));
    let loaded = counting
        .with(&[&insns(program)], Away::Nothing, snaplen)
        .unwrap();
    shown(&counting, &loaded, frames, snaplen, |frame| {
        libpcap::bpf_filter(program, frame, frame.len() as u32) != 0
    })
}

/// Runs a program with the counters of `counting` on the frames: a socket of any kind runs its filter on the bytes that it
/// would receive.
fn shown(
    counting: &Counting,
    program: &crate::sys::bpf::Program,
    frames: &[&[u8]],
    snaplen: u32,
    accepts: impl Fn(&[u8]) -> bool,
) -> (usize, usize) {
    let (near, far) = UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let near = OwnedFd::from(near);
    super::super::counting::attach(program, &near).unwrap();
    let near = UnixDatagram::from(near);
    let mut buffer = [0; 2048];
    let mut accepted = 0;
    for &frame in frames {
        far.send(frame).unwrap();
        let expected = accepts(frame);
        let got = near.recv(&mut buffer).ok();
        let expected = expected.then_some(frame.len().min(snaplen as usize));
        assert_eq!(got, expected, "packet {frame:02x?}");
        accepted += usize::from(got.is_some());
    }
    let (all, rejected) = (frames.len() as u64, (frames.len() - accepted) as u64);
    assert_eq!(counting.counters().now(), (all, rejected));
    (accepted, frames.len() - accepted)
}

/// Writes values of the program's comparisons to the places of its loads, so that frames reach deep parts of the program.
fn tempt(program: &Program, frame: &mut [u8], random: &mut Random) {
    let insns = program.insns();
    for _ in 0..random.below(6) {
        let at = random.below(insns.len());
        let bytes = match insns[at].code {
            0x20 => 4,
            0x28 => 2,
            0x30 => 1,
            _ => continue,
        };
        let tests = insns[at..]
            .iter()
            .take(12)
            .filter(|insn| insn.code & 7 == 5 && insn.code != 5);
        let tests: Vec<_> = tests.collect();
        let to = insns[at].k as usize;
        if let (false, Some(field)) = (tests.is_empty(), frame.get_mut(to..to + bytes)) {
            let k = tests[random.below(tests.len())].k.to_be_bytes();
            field.copy_from_slice(&k[4 - bytes..]);
        }
    }
}

#[test]
fn expressions_judge_as_in_libpcap() {
    if !permitted("expressions_judge_as_in_libpcap") {
        return;
    }
    let text = include_str!("../../../../../filter/tests/expressions.txt");
    let accepted = text
        .split("\n[accepted]\n")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .unwrap();
    let expressions = accepted
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let made_up = support::made_up(120);
    let captured = support::captured();
    let captured: Vec<_> = captured
        .iter()
        .filter(|sample| sample.link == LinkType::ETHERNET)
        .collect();
    let mut random = Random(0x5eed);
    let mut sums = (0, 0, 0);
    for expression in expressions {
        let Ok(program) = libpcap::compile(expression, LinkType::ETHERNET, false) else {
            continue;
        };
        if program.has_loops()
            || insns(&program)
                .iter()
                .any(|insn| insn.k > i32::MAX as u32 && insn.code == 0x20)
        {
            continue;
        }
        let mut frames = made_up.clone();
        frames.extend((0..40).filter_map(|_| {
            Some(
                captured
                    .get(random.below(captured.len().max(1)))?
                    .data
                    .clone(),
            )
        }));
        frames.retain(|frame| frame.len() <= 1600);
        frames[60..]
            .iter_mut()
            .for_each(|frame| tempt(&program, frame, &mut random));
        let cut = random.below(90);
        frames
            .iter_mut()
            .step_by(7)
            .for_each(|frame| frame.truncate(cut));
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let (yes, no) = agrees(
            &program,
            &frames,
            if random.below(2) == 0 { 64 } else { 262_144 },
        );
        sums = (sums.0 + 1, sums.1 + yes, sums.2 + no);
    }
    assert!(sums.0 > 250 && sums.1 > 2000 && sums.2 > 2000, "{sums:?}");
}

/// Returns a random valid instruction with `left` more after it; jumps go forward.
fn insn(random: &mut Random, left: usize) -> weir_filter::Insn {
    const STATEMENTS: [u16; 44] = [
        0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x40, 0x48, 0x50, 0xb1, 0x00, 0x01, 0x80, 0x81, 0x60,
        0x61, 0x60, 0x61, 0x02, 0x03, 0x84, 0x07, 0x87, 0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64,
        0x74, 0x94, 0xa4, 0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac, 0x07,
    ];
    const JUMPS: [u16; 8] = [0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d];
    let k = match random.below(8) {
        0..=4 => random.below(72) as u32,
        5 => random.below(1 << 16) as u32,
        6 => (random.below(1 << 16) as u32) << 16,
        _ => u32::MAX - random.below(80) as u32,
    };
    let jump = |code, k, jt, jf| weir_filter::Insn { code, jt, jf, k };
    if left == 0 || random.below(40) == 0 {
        return jump([0x06, 0x16][random.below(2)], k, 0, 0);
    }
    let mut skip = || random.below(left.min(9)) as u8;
    let (jt, jf) = (skip(), skip());
    match random.below(10) {
        0 => jump(0x05, jt.into(), 0, 0),
        1..=3 => jump(JUMPS[random.below(8)], k, jt, jf),
        _ => match STATEMENTS[random.below(STATEMENTS.len())] {
            code @ (0x60 | 0x61 | 0x02 | 0x03) => jump(code, k % 16, 0, 0),
            code @ (0x64 | 0x74) => jump(code, k % 32, 0, 0),
            code @ (0x34 | 0x94) => jump(code, k.max(1), 0, 0),
            code @ (0x20 | 0x28 | 0x30 | 0xb1) => jump(code, k & i32::MAX as u32, 0, 0),
            code => jump(code, k, 0, 0),
        },
    }
}

#[test]
fn random_programs_judge_as_in_libpcap() {
    if !permitted("random_programs_judge_as_in_libpcap") {
        return;
    }
    let mut random = Random(0xfeed);
    let mut sums = (0, 0);
    for _ in 0..1500 {
        let length = 1 + random.below(40);
        // libpcap does not clear scratch memory.
        let scratch = (0..16).map(|word| weir_filter::Insn::statement(0x02, word));
        let body: Vec<_> = (0..length)
            .map(|at| insn(&mut random, length - at - 1))
            .collect();
        let program = Program::new(scratch.chain(body).collect()).unwrap();
        let bytes: Vec<u8> = (0..80).map(|_| random.below(256) as u8).collect();
        let frames: Vec<_> = (0..=80).step_by(5).map(|len| &bytes[..len]).collect();
        let (yes, no) = agrees(&program, &frames, 262_144);
        sums = (sums.0 + yes, sums.1 + no);
    }
    assert!(sums.0 > 1000 && sums.1 > 1000, "{sums:?}");
}

#[test]
fn a_list_of_thousands_of_hosts_is_counted() {
    if !permitted("a_list_of_thousands_of_hosts_is_counted") {
        return;
    }
    let host = |number: usize| [10, (number >> 8) as u8, number as u8, 7];
    // (libpcap would take most of a minute to compile it.)
    let mut insns = vec![weir_filter::Insn::statement(0x20, 26)];
    for number in 0..1900 {
        insns.push(weir_filter::Insn::jump(
            0x15,
            u32::from_be_bytes(host(number)),
            0,
            1,
        ));
        insns.push(weir_filter::Insn::statement(0x06, 262_144));
    }
    insns.push(weir_filter::Insn::statement(0x06, 0));
    let program = Program::new(insns).unwrap();
    let frames: Vec<_> = (1500..2300)
        .map(|number| {
            [
                &[0; 12][..],
                &[8, 0, 0x45],
                &[0; 11],
                &host(number),
                &[0; 30],
            ]
            .concat()
        })
        .collect();
    let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
    assert_eq!(agrees(&program, &frames, 100), (400, 400));
}

#[test]
fn what_the_kernel_cannot_run_is_refused_with_the_reason() {
    let at = |code, jt, jf, k| Insn { code, jt, jf, k };
    let end = Insn::ret(1);
    let how = |program: &[Insn]| match Filter::new(Some(program), Away::Nothing, 1).how() {
        KernelFilter::Refused(why) => why.clone(),
        other => format!("{other:?}"),
    };
    for (insn, why) in [
        (at(0x05, 0, 0, -2i32 as u32), "jump back"),
        (at(0x28, 0, 0, -4096i32 as u32), "far behind"),
        (at(0xb1, 0, 0, 1 << 31), "far behind"),
        (at(0x05, 0, 0, 1), "out of the program"),
        (at(0x15, 0, 1, 1), "out of the program"),
        (at(0x60, 0, 0, 16), "16 words"),
        (at(0x34, 0, 0, 0), "division"),
        (at(0x74, 0, 0, 32), "shift"),
        (at(0xa1, 0, 0, 0), "unknown"),
        (at(0xb4, 0, 0, 0), "unknown"),
        (at(0x55, 0, 0, 0), "unknown"),
        (at(0x1020, 0, 0, 0), "unknown"),
    ] {
        let said = how(&[insn, end]);
        assert!(said.contains(why), "{insn:?}: {said}");
    }
    assert!(how(&[at(0x07, 0, 0, 0)]).contains("past its end"));
    assert!(how(&[]).contains("past its end"));
    assert!(how(&vec![end; 4097]).contains("4097"));
    let protochain = libpcap::compile("ip protochain 6", LinkType::ETHERNET, false).unwrap();
    assert!(how(&insns(&protochain)).contains("jump back"));
}

/// Two joined programs accept a packet if either accepts it, and count a packet that neither accepts. The expressions cannot be
/// joined by `or`: `vlan` and `mpls` move the offsets of all later terms, and a load from outside the packet rejects it.
#[test]
fn two_programs_as_one_accept_what_either_accepts() {
    if !permitted("two_programs_as_one_accept_what_either_accepts") {
        return;
    }
    let expressions = [
        "udp",
        "vlan and tcp",
        "mpls and udp",
        "",
        "tcp[13] & 2 != 0",
        "len > 80",
        "ip[8] = 64 and not udp",
        "less 60",
    ];
    let mut random = Random(11);
    let insn = |code, k| weir_filter::Insn {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    // A program with a computed result: the lowest bit of the first byte.
    let computed = Program::new(vec![insn(0x30, 0), insn(0x54, 1), insn(0x16, 0)]).unwrap();
    let compiled = expressions
        .iter()
        .map(|text| libpcap::compile(text, LinkType::ETHERNET, false).unwrap());
    let programs: Vec<Program> = compiled.chain([computed]).collect();
    let (mut accepted, mut rejected) = (0, 0);
    for one in &programs {
        for other in &programs {
            let frames: Vec<Vec<u8>> = (0..60)
                .map(|_| {
                    let mut frame: Vec<u8> = (0..30 + random.below(90))
                        .map(|_| random.next() as u8)
                        .collect();
                    let kinds = [[8, 0], [0x81, 0], [0x88, 0x47], [0x86, 0xdd]];
                    frame[12..14].copy_from_slice(&kinds[random.below(4)]);
                    tempt([one, other][random.below(2)], &mut frame, &mut random);
                    frame
                })
                .collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let counting = Counting::new(&insns(one), Away::Nothing, 262_144).unwrap();
            let both = counting
                .with(&[&insns(one), &insns(other)], Away::Nothing, 262_144)
                .unwrap();
            let accepts = |program: &Program, frame: &[u8]| {
                libpcap::bpf_filter(program, frame, frame.len() as u32) != 0
            };
            let expected = |frame: &[u8]| accepts(one, frame) || accepts(other, frame);
            let (yes, no) = shown(&counting, &both, &frames, 262_144, expected);
            (accepted, rejected) = (accepted + yes, rejected + no);
        }
    }
    assert!(accepted > 500 && rejected > 500, "{accepted} {rejected}");
}
