//! Programs of rows of tests, as libpcap makes of `or` and `and`: each test leads to the exit of its row, or on to the next test.

use super::{Bytes, SMALL};
use weir_filter::Insn;

/// Loads of bytes and of a half word, which are captured if byte 11 is. They are few, so that tests of a row read the same fields.
const LOADS: [(u16, u32); 4] = [(0x30, 0), (0x30, 1), (0x30, 2), (0x28, 8)];
const JUMPS_K: [u16; 4] = [0x15, 0x25, 0x35, 0x45];
const JUMPS_X: [u16; 4] = [0x1d, 0x2d, 0x3d, 0x4d];
/// Arithmetic with a constant, and with X: division and remainder more often than the rest.
const ALUS_K: [u16; 4] = [0x04, 0x14, 0x54, 0x44];
const ALUS_X: [u16; 8] = [0x3c, 0x3c, 0x9c, 0x3c, 0x0c, 0x1c, 0x5c, 0x6c];
/// `tax`.
const TO_X: Insn = Insn {
    code: 0x07,
    jt: 0,
    jf: 0,
    k: 0,
};

/// A row of 3 to 10 tests, behind a load of byte 11 in most programs, so that no load of a test can fail. Some tests compare two loaded
/// values, or divide by one: a test before may be what makes that safe.
pub(super) fn program(bytes: &mut Bytes<'_>, shape: u8) -> Vec<Insn> {
    let count = 3 + usize::from(shape % 8);
    // Results that differ from each other, and mostly from the 0 of a program that ends early.
    let (exit, end) = [(1, 0), (1, 2), (2, 1), (0, 1)][usize::from(shape >> 3 & 3)];
    let tests: Vec<Vec<Insn>> = (0..count).map(|_| test(bytes)).collect();
    let begin = if shape >> 6 == 0 {
        Vec::new()
    } else {
        vec![Insn::statement(0x30, 11)]
    };
    let mut left: usize = tests.iter().map(Vec::len).sum();
    let mut insns = begin;
    for test in tests {
        left -= test.len();
        insns.extend(test);
        let last = insns.last_mut().expect("a test has a jump");
        // The exit is the second of the returns.
        let to_exit = left as u8 + 1;
        let leads_on = bytes.next();
        let exits = if leads_on.is_multiple_of(16) {
            left as u8
        } else {
            to_exit
        };
        (last.jt, last.jf) = if leads_on & 0x80 == 0 {
            (exits, 0)
        } else {
            (0, exits)
        };
    }
    insns.extend([Insn::statement(0x06, end), Insn::statement(0x06, exit)]);
    insns
}

/// A test of one value or of two; its jump leads nowhere yet.
fn test(bytes: &mut Bytes<'_>) -> Vec<Insn> {
    let (kind, shape, low) = (
        bytes.next(),
        usize::from(bytes.next()),
        usize::from(bytes.next()),
    );
    let load = |by: usize| Insn::statement(LOADS[by % 4].0, LOADS[by % 4].1);
    let number = |by: usize| SMALL[by % SMALL.len()];
    let with_k = Insn::jump(JUMPS_K[shape & 3], number(low), 0, 0);
    let with_x = Insn::jump(JUMPS_X[shape & 3], 0, 0, 0);
    let by_x = Insn::statement(ALUS_X[shape >> 2 & 7], 0);
    let (first, second) = (load(low >> 3), load(low >> 5));
    match kind % 8 {
        0..=2 => vec![first, with_k],
        3 => vec![
            first,
            Insn::statement(ALUS_K[shape >> 2 & 3], number(shape >> 4)),
            with_k,
        ],
        // A number divided by a loaded value, compared with a loaded value.
        4 | 5 => vec![
            second,
            TO_X,
            Insn::statement(0x00, number(shape >> 5) + 1),
            by_x,
            TO_X,
            first,
            with_x,
        ],
        6 => vec![second, TO_X, first, with_x],
        _ => vec![second, TO_X, first, by_x, with_k],
    }
}
