//! Property shared by tests and fuzzers: interpreter, native code and libpcap agree on any program and any packet.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test and fuzz target uses its part"
)]

mod rows;
mod sets;

pub use sets::sets;

use weir_packet::Frame;

use weir_filter::{Insn, Native, Program, interpreter, libpcap, simplify};

/// Reads a program and packets out of `data` and compares the results of interpreter, native code and libpcap.
///
/// **Layout**: one byte of program length, two of wire length, four bytes per instruction; the rest is the packet. The packet is
/// judged complete, and cut to several lengths. **Panics**: on a disagreement; that is the purpose.
pub fn filter(data: &[u8]) {
    let mut bytes = Bytes(data);
    let length = 1 + usize::from(bytes.next() % 48);
    let wire_len = u32::from(bytes.next()) << 8 | u32::from(bytes.next());
    let insns: Vec<_> = (0..length)
        .map(|index| insn(&mut bytes, length - index - 1))
        .collect();
    let program = Program::new(with_scratch(insns)).expect("generated programs are valid");
    compare(&program, bytes.0, wire_len);
}

/// Reads a program and packets out of `data`, and compares the results of the program and of the simplified program, both run by
/// our interpreter, and the program's own by libpcap's.
///
/// **Layout**: one byte that chooses the kind of program, one of its length, one of wire length, four bytes per instruction or per
/// test of a row; the rest is the packets. **Panics**: on a disagreement, or if the program becomes longer.
pub fn simplified(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (kind, length) = (bytes.next() % 4, bytes.next());
    let tangled = kind > 0;
    let wire_len = if tangled {
        u32::from(bytes.next() % 8)
    } else {
        u32::from(bytes.next()) << 8 | 7
    };
    let one = if tangled { tangled_insn } else { insn };
    let insns = if kind == 3 {
        rows::program(&mut bytes, length)
    } else {
        let length = 1 + usize::from(length % 48);
        (0..length)
            .map(|index| one(&mut bytes, length - index - 1))
            .collect()
    };
    let program = Program::new(with_scratch(insns)).expect("generated programs are valid");
    let short = simplify(&program);
    assert!(
        short.insns().len() <= program.insns().len(),
        "longer: {short:x?} of {program:x?}"
    );
    for packet in packets(bytes.0, tangled) {
        let expected = libpcap::bpf_filter(&program, &packet, wire_len);
        let context = || {
            format!(
                "packet {packet:02x?}, wire length {wire_len}, program {program:x?}, short {short:x?}"
            )
        };
        assert_eq!(
            interpreter::run(&program, &packet, wire_len),
            expected,
            "{}",
            context()
        );
        assert_eq!(
            interpreter::run(&short, &packet, wire_len),
            expected,
            "simplified: {}",
            context()
        );
    }
}

/// Some packets: the given bytes and pieces of them; for a tangled program, with numbers that such a program compares with.
fn packets(bytes: &[u8], tangled: bool) -> Vec<Vec<u8>> {
    if !tangled {
        let step = bytes.len() / 6 + 1;
        return (0..=bytes.len())
            .step_by(step)
            .map(|len| bytes[..len].to_vec())
            .collect();
    }
    let mut state = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    (0..24)
        .map(|_| {
            let length = if next() % 3 == 0 { next() % 12 } else { 12 };
            (0..length)
                .map(|_| SMALL[next() % SMALL.len()] as u8)
                .collect()
        })
        .collect()
}

/// Numbers that bytes of packets and constants of tangled programs have in common.
const SMALL: [u32; 8] = [0, 0, 1, 1, 2, 3, 0x45, 0xff];

/// An instruction of a program that loads few fields and compares them with few numbers, over and over.
fn tangled_insn(bytes: &mut Bytes<'_>, left: usize) -> Insn {
    const PLACES: [u32; 8] = [0, 0, 1, 1, 2, 4, 6, 9];
    const LOADS: [u16; 12] = [
        0x30, 0x30, 0x30, 0x30, 0x28, 0x28, 0x20, 0x50, 0x50, 0x48, 0xb1, 0x80,
    ];
    const MOVES: [u16; 10] = [0x07, 0x87, 0x02, 0x03, 0x60, 0x61, 0x00, 0x01, 0x07, 0x61];
    const ALUS: [u16; 16] = [
        0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x54, 0x64, 0x74, 0x94, 0xa4, 0x0c, 0x1c, 0x3c, 0x5c,
        0x84,
    ];
    const JUMPS: [u16; 8] = [0x15, 0x15, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d];
    let (choice, shape, low) = (bytes.next(), usize::from(bytes.next()), bytes.next());
    let small = SMALL[usize::from(low) % SMALL.len()];
    let number = if low >= 0xc0 {
        small << 8 | SMALL[usize::from(low >> 3) % SMALL.len()]
    } else {
        small
    };
    match choice {
        _ if left == 0 => Insn::statement([0x06, 0x06, 0x16][shape % 3], small),
        0..=7 => Insn::statement([0x06, 0x06, 0x16][shape % 3], small),
        8..=111 => {
            let skip = |byte: usize| (byte % left.min(9)) as u8;
            Insn::jump(
                JUMPS[shape % 8],
                number,
                skip(shape >> 3),
                skip(usize::from(bytes.next())),
            )
        }
        112..=115 => Insn::statement(0x05, (shape % left) as u32),
        116..=211 => Insn::statement(
            LOADS[shape % LOADS.len()],
            PLACES[usize::from(low) % PLACES.len()],
        ),
        212..=235 => {
            let code = MOVES[shape % MOVES.len()];
            Insn::statement(
                code,
                if matches!(code, 0x00 | 0x01) {
                    number
                } else {
                    u32::from(low & 3)
                },
            )
        }
        _ => {
            let code = ALUS[shape % ALUS.len()];
            Insn::statement(
                code,
                match code {
                    0x34 | 0x94 => number.max(1),
                    0x64 | 0x74 => number % 32,
                    _ => number,
                },
            )
        }
    }
}

/// Stores A, still 0, into each scratch word that is read: libpcap 1.10 leaves scratch memory uninitialised.
fn with_scratch(insns: Vec<Insn>) -> Vec<Insn> {
    let read = |insn: &Insn| matches!(insn.code, 0x60 | 0x61).then_some(insn.k);
    let mut words: Vec<_> = insns.iter().filter_map(read).collect();
    words.sort_unstable();
    words.dedup();
    words
        .into_iter()
        .map(|word| Insn::statement(0x02, word))
        .chain(insns)
        .collect()
}

/// Compares the three engines on one packet, cut to a spread of lengths.
pub fn compare(program: &Program, packet: &[u8], wire_len: u32) {
    let native = Native::compile(program).expect("this machine has native code");
    let step = packet.len() / 24 + 1;
    let frames: Vec<_> = (0..=packet.len())
        .filter(|len| len % step == 0 || *len == packet.len())
        .map(|len| Frame {
            data: &packet[..len],
            wire_len,
            interface: 0,
        })
        .collect();
    agree(program, &native, &frames);
}

/// Compares the three engines on at most 64 frames.
pub fn agree(program: &Program, native: &Native, frames: &[Frame<'_>]) {
    agree_with(program, program, native, frames);
}

/// Compares interpreter and native code of a program, which may test sets, with libpcap running `oracle`, on at most 64 frames.
pub fn agree_with(oracle: &Program, program: &Program, native: &Native, frames: &[Frame<'_>]) {
    let mut verdicts = u64::MAX;
    native.matches(frames, &mut verdicts);
    assert!(
        frames.len() >= 64 || verdicts >> frames.len() == 0,
        "bits beyond the frames: {verdicts:#x}"
    );
    for (index, frame) in frames.iter().enumerate() {
        let expected = libpcap::bpf_filter(oracle, frame.data, frame.wire_len);
        let context = || {
            format!(
                "packet {:02x?}, wire length {}, program {program:x?}",
                frame.data, frame.wire_len
            )
        };
        let interpreted = interpreter::run(program, frame.data, frame.wire_len);
        assert_eq!(interpreted, expected, "interpreter: {}", context());
        assert_eq!(native.run(frame), expected, "native: {}", context());
        assert_eq!(
            verdicts >> index & 1 == 1,
            expected != 0,
            "native batch: {}",
            context()
        );
    }
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }
}

/// A valid instruction with `left` more behind it; jumps go forward.
fn insn(bytes: &mut Bytes<'_>, left: usize) -> Insn {
    const RETURNS: [u16; 2] = [0x06, 0x16];
    const STATEMENTS: [u16; 44] = [
        0x20, 0x28, 0x30, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x40, 0x48, 0x50, 0xb1,
        0xb1, // loads
        0x00, 0x01, 0x80, 0x81, 0x60, 0x61, 0x02, 0x03, 0x84, 0x07, 0x87, // registers
        0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x94, 0xa4, // arithmetic with k
        0x0c, 0x1c, 0x2c, 0x3c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac, // arithmetic with x
    ];
    const JUMPS: [u16; 8] = [0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d];
    let (choice, shape, low, high) = (bytes.next(), bytes.next(), bytes.next(), bytes.next());
    let k = constant(shape, low, high);
    if left == 0 || choice >= 250 {
        return Insn::statement(RETURNS[usize::from(choice & 1)], k);
    }
    if choice >= 245 {
        return Insn::statement(0x05, u32::from(low) % left as u32);
    }
    if choice >= 150 {
        let skip = |byte: u8| (usize::from(byte) % left.min(12)) as u8;
        return Insn::jump(
            JUMPS[usize::from(choice & 7)],
            k,
            skip(shape >> 3),
            skip(low >> 2),
        );
    }
    let code = STATEMENTS[usize::from(choice) % STATEMENTS.len()];
    Insn::statement(
        code,
        match code {
            0x60 | 0x61 | 0x02 | 0x03 => k % 16,
            0x64 | 0x74 => k % 32,
            0x34 | 0x94 => k.max(1),
            _ => k,
        },
    )
}

/// A constant: mostly an offset within a packet or a small number, sometimes one of the ends of the range.
fn constant(shape: u8, low: u8, high: u8) -> u32 {
    let wide = u32::from(high) << 8 | u32::from(low);
    match shape % 8 {
        0..=3 => u32::from(low) % 72,
        4 => u32::from(low),
        5 => wide,
        6 => wide << 16 | u32::from(shape),
        _ => u32::MAX - u32::from(low),
    }
}
