//! Property shared by tests and fuzzers: interpreter, native code and libpcap agree on any program and any packet.

use weir_packet::Frame;

use crate::{Insn, Native, Program, interpreter, libpcap};

/// Reads a program and packets out of `data` and compares the results of interpreter, native code and libpcap.
///
/// **Layout**: one byte of program length, two of wire length, four bytes per instruction; the rest is the packet. The packet is
/// judged complete, and cut to several lengths. **Panics**: on a disagreement; that is the purpose.
pub fn filter(data: &[u8]) {
    let mut bytes = Bytes(data);
    let length = 1 + usize::from(bytes.next() % 48);
    let wire_len = u32::from(bytes.next()) << 8 | u32::from(bytes.next());
    let insns: Vec<_> = (0..length).map(|index| insn(&mut bytes, length - index - 1)).collect();
    let program = Program::new(with_scratch(insns)).expect("generated programs are valid");
    compare(&program, bytes.0, wire_len);
}

/// Stores A, still 0, into each scratch word that is read: libpcap 1.10 leaves scratch memory uninitialised.
fn with_scratch(insns: Vec<Insn>) -> Vec<Insn> {
    let read = |insn: &Insn| matches!(insn.code, 0x60 | 0x61).then_some(insn.k);
    let mut words: Vec<_> = insns.iter().filter_map(read).collect();
    words.sort_unstable();
    words.dedup();
    words.into_iter().map(|word| Insn::statement(0x02, word)).chain(insns).collect()
}

/// Compares the three engines on one packet, cut to a spread of lengths.
pub fn compare(program: &Program, packet: &[u8], wire_len: u32) {
    let native = Native::compile(program).expect("this machine has native code");
    let step = packet.len() / 24 + 1;
    let frames: Vec<_> = (0..=packet.len())
        .filter(|len| len % step == 0 || *len == packet.len())
        .map(|len| Frame { data: &packet[..len], wire_len, interface: 0 })
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
    assert!(frames.len() >= 64 || verdicts >> frames.len() == 0, "bits beyond the frames: {verdicts:#x}");
    for (index, frame) in frames.iter().enumerate() {
        let expected = libpcap::bpf_filter(oracle, frame.data, frame.wire_len);
        let context = || format!("packet {:02x?}, wire length {}, program {program:x?}", frame.data, frame.wire_len);
        let interpreted = interpreter::run(program, frame.data, frame.wire_len);
        assert_eq!(interpreted, expected, "interpreter: {}", context());
        assert_eq!(native.run(frame), expected, "native: {}", context());
        assert_eq!(verdicts >> index & 1 == 1, expected != 0, "native batch: {}", context());
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
        0x20, 0x28, 0x30, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x40, 0x48, 0x50, 0xb1, 0xb1, // loads
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
        return Insn::jump(JUMPS[usize::from(choice & 7)], k, skip(shape >> 3), skip(low >> 2));
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
