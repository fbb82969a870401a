//! Conditions that a program must meet, and the ways in which engines end it.

use weir_filter::{Error, Filter, Insn, Native, Program, interpreter};
use weir_packet::Frame;

const ACCEPT: Insn = Insn::statement(0x06, 7);
const REJECT: Insn = Insn::statement(0x06, 0);

fn refusal(insns: &[Insn]) -> (usize, &'static str) {
    match Program::new(insns.to_vec()) {
        Err(Error::Program { index, reason }) => (index, reason),
        other => panic!("{insns:?} gave {other:?}"),
    }
}

#[test]
fn faulty_programs_are_refused() {
    assert_eq!(refusal(&[]), (0, "the program is empty"));
    assert_eq!(
        refusal(&[Insn::statement(0xff, 0), ACCEPT]),
        (0, "unknown operation")
    );
    assert_eq!(
        refusal(&[ACCEPT, Insn::statement(0x20, 0)]),
        (1, "the program runs past its end")
    );
    assert_eq!(
        refusal(&[Insn::jump(0x15, 0, 1, 0), ACCEPT]),
        (0, "jump out of the program")
    );
    assert_eq!(
        refusal(&[Insn::jump(0x15, 0, 0, 1), ACCEPT]),
        (0, "jump out of the program")
    );
    assert_eq!(
        refusal(&[Insn::statement(0x05, 1), ACCEPT]),
        (0, "jump out of the program")
    );
    assert_eq!(
        refusal(&[ACCEPT, Insn::statement(0x05, -3i32 as u32), ACCEPT]),
        (1, "jump out of the program")
    );
    assert_eq!(
        refusal(&[Insn::statement(0x05, -1i32 as u32), ACCEPT]),
        (0, "jump onto itself")
    );
    assert_eq!(
        refusal(&[Insn::statement(0x34, 0), ACCEPT]),
        (0, "division by constant zero")
    );
    assert_eq!(
        refusal(&[Insn::statement(0x94, 0), ACCEPT]),
        (0, "division by constant zero")
    );
    assert_eq!(
        refusal(&[Insn::statement(0x64, 32), ACCEPT]),
        (0, "shift by more than 31 bits")
    );
    for code in [0x60, 0x61, 0x02, 0x03] {
        assert_eq!(
            refusal(&[Insn::statement(code, 16), ACCEPT]),
            (0, "scratch memory has 16 words")
        );
    }
}

/// Runs on all engines; native code runs alone and in batches.
fn run(insns: &[Insn], data: &[u8]) -> u32 {
    let program = Program::new(insns.to_vec()).expect("the program is valid");
    let native = Native::compile(&program).expect("this machine has native code");
    let frame = Frame {
        data,
        wire_len: 1000,
        interface: 0,
    };
    let result = interpreter::run(&program, data, 1000);
    assert_eq!(native.run(&frame), result);
    for count in [1, 3, 4, 5, 63, 64] {
        let mut verdicts = 0;
        native.matches(&vec![frame; count], &mut verdicts);
        assert_eq!(
            verdicts,
            if result == 0 {
                0
            } else {
                u64::MAX >> (64 - count)
            },
            "{count} frames"
        );
    }
    result
}

#[test]
fn a_last_jump_back_needs_no_return_behind_it() {
    // ja over the second; it returns; ja back to it.
    let insns = [
        Insn::statement(0x05, 1),
        ACCEPT,
        Insn::statement(0x05, -2i32 as u32),
    ];
    assert_eq!(run(&insns, &[]), 7);
}

#[test]
fn a_loop_walks_the_packet_and_a_stuck_one_is_ended() {
    // ldx #0; ldb [x]; jeq #9, +4, +0; txa; add #1; tax; ja -6; ret #7
    let walk = [
        Insn::statement(0x01, 0),
        Insn::statement(0x50, 0),
        Insn::jump(0x15, 9, 4, 0),
        Insn::statement(0x87, 0),
        Insn::statement(0x04, 1),
        Insn::statement(0x07, 0),
        Insn::statement(0x05, -6i32 as u32),
        ACCEPT,
    ];
    assert_eq!(run(&walk, &[1, 2, 3, 4, 9]), 7);
    assert_eq!(run(&walk, &[1; 300]), 0, "runs out of the packet");
    let stuck = [
        Insn::statement(0x00, 1),
        Insn::statement(0x05, -2i32 as u32),
        ACCEPT,
    ];
    assert_eq!(run(&stuck, &[0; 100]), 0);
}

#[test]
fn loads_end_at_the_captured_bytes() {
    for (code, size) in [(0x20, 4), (0x28, 2), (0x30, 1)] {
        let insns = [Insn::statement(code, 60), ACCEPT];
        for len in 0..80 {
            assert_eq!(
                run(&insns, &vec![0; len]),
                if len >= 60 + size { 7 } else { 0 },
                "{size} bytes at 60 of {len}"
            );
        }
    }
    let beyond = [
        Insn::statement(0x01, 100),
        Insn::statement(0x40, u32::MAX - 50),
        ACCEPT,
    ];
    assert_eq!(run(&beyond, &[0; 200]), 0, "offsets do not wrap");
}

#[test]
fn one_check_covers_what_it_checked_and_no_more() {
    for (first, size) in [(0x20, 4), (0x28, 2), (0x30, 1)] {
        // Two loads, of which the second ends one byte behind the first.
        let insns = [
            Insn::statement(first, 40),
            Insn::statement(0x30, 40 + size),
            ACCEPT,
        ];
        for len in 0..60u32 {
            let expected = if len > 40 + size { 7 } else { 0 };
            assert_eq!(
                run(&insns, &vec![0; len as usize]),
                expected,
                "{size} bytes at 40 and one more of {len}"
            );
        }
    }
}

#[test]
fn paths_that_meet_know_only_what_all_of_them_checked() {
    // ldb [0]; jeq #1, +0, +1; ldb [30]; then on both paths ldb [30]
    let insns = [
        Insn::statement(0x30, 0),
        Insn::jump(0x15, 1, 0, 1),
        Insn::statement(0x30, 30),
        Insn::statement(0x30, 30),
        ACCEPT,
    ];
    for first in [1, 2] {
        for len in 1..40 {
            let mut data = vec![0; len];
            data[0] = first;
            assert_eq!(
                run(&insns, &data),
                if len > 30 { 7 } else { 0 },
                "{len} bytes, the first {first}"
            );
        }
    }
}

#[test]
fn an_empty_batch_has_no_verdicts() {
    let filter = Filter::from_program(Program::accept_all());
    assert_eq!(filter.matches(&[]), 0);
    filter.make_native();
    assert!(filter.is_native());
    assert_eq!(filter.matches(&[]), 0);
}

#[test]
fn the_wire_length_is_not_the_captured_one() {
    // ld #len; jeq #1000
    let insns = [
        Insn::statement(0x80, 0),
        Insn::jump(0x15, 1000, 0, 1),
        ACCEPT,
        REJECT,
    ];
    assert_eq!(run(&insns, &[0; 60]), 7);
}

#[test]
fn a_filter_serves_several_threads() {
    let filter = Filter::from_program(
        Program::new(vec![Insn::statement(0x30, 0), Insn::statement(0x16, 0)]).expect("valid"),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                filter.make_native();
                let frames = [0u8, 1, 2].map(|byte| vec![byte; 60]);
                let frames = frames.each_ref().map(|data| Frame {
                    data,
                    wire_len: 60,
                    interface: 0,
                });
                assert_eq!(filter.matches(&frames), 0b110);
            });
        }
    });
}
