//! Assembler for the kernel's eBPF machine: instructions one after the other, with labels for jumps.
//!
//! **Source**: linux/bpf.h, RFC 9669 (the instruction set).

use super::{Error, Map};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

/// Instruction, with the layout of `struct bpf_insn` of linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    /// Destination, then source, in the order of the byte's bit fields: low bits first on little-endian machines.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        let registers = if cfg!(target_endian = "little") {
            to | from << 4
        } else {
            to << 4 | from
        };
        Self {
            code,
            registers,
            offset,
            immediate,
        }
    }
}

/// Register. `R0` holds results, and `R1` to `R5` hold arguments, which a call destroys; `R6` to `R9` keep their values. `R10`
/// is the end of the stack, which reaches 512 bytes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Number of bytes that an access moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One byte.
    One,
    /// Two bytes.
    Two,
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

impl Size {
    fn code(self) -> u8 {
        match self {
            Size::Four => 0x00,
            Size::Two => 0x08,
            Size::One => 0x10,
            Size::Eight => 0x18,
        }
    }
}

/// Operation of an arithmetic instruction on its destination. A division by zero gives zero; a remainder by zero gives the
/// dividend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
    ShiftRightSigned = 0xc0,
}

/// Condition of a jump: the comparison of destination and operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    /// `==`
    Equal = 0x10,
    /// `>`
    Greater = 0x20,
    /// `>=`
    GreaterEqual = 0x30,
    /// `&` is not zero.
    AnySet = 0x40,
    /// `!=`
    NotEqual = 0x50,
    /// `>` of signed numbers.
    SignedGreater = 0x60,
    /// `>=` of signed numbers.
    SignedGreaterEqual = 0x70,
    /// `<`
    Less = 0xa0,
    /// `<=`
    LessEqual = 0xb0,
    /// `<` of signed numbers.
    SignedLess = 0xc0,
    /// `<=` of signed numbers.
    SignedLessEqual = 0xd0,
}

/// Second operand: a register or a constant. A constant is sign-extended if the instruction works on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Value of a register.
    Register(Register),
    /// Constant value.
    Constant(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Self {
        Self::Constant(constant)
    }
}

impl Operand {
    /// Returns the bit for the instruction's code, the source register, and the immediate value.
    fn parts(self) -> (u8, u8, i32) {
        match self {
            Operand::Register(register) => (0x08, register as u8, 0),
            Operand::Constant(value) => (0, 0, value),
        }
    }
}

/// Function of the kernel, by its number in `enum bpf_func_id`. Arguments are in `R1` to `R5`, the result is in `R0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper(pub i32);

impl Helper {
    /// `bpf_map_lookup_elem(map, key)`: the value's address, or 0.
    pub const MAP_LOOKUP: Self = Self(1);
    /// `bpf_ktime_get_ns()`: ns since the start, CLOCK_MONOTONIC.
    pub const TIME: Self = Self(5);
    /// `bpf_get_smp_processor_id()`.
    pub const PROCESSOR: Self = Self(8);
    /// `bpf_redirect(interface, flags)`: `XDP_REDIRECT`, or `XDP_ABORTED`.
    pub const REDIRECT: Self = Self(23);
    /// `bpf_xdp_adjust_tail(context, bytes)`: 0, or an error; moves the end of the frame.
    pub const ADJUST_TAIL: Self = Self(65);
    /// `bpf_xdp_store_bytes(context, offset, from, length)`: 0, or an error. **Platform**: Linux 5.18.
    pub const STORE_BYTES: Self = Self(190);
    /// `bpf_redirect_map(map, key, flags)`: `XDP_REDIRECT`, or the flags if the map has no such entry.
    pub const REDIRECT_MAP: Self = Self(51);
}

/// Place in a program that jumps can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

// Classes and modes of linux/bpf_common.h and linux/bpf.h.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const ABS: u8 = 0x20;
const IND: u8 = 0x40;
const MEM: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
const NEG: u8 = 0x80;
const END: u8 = 0xd0;
const TO_BE: u8 = 0x08;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

/// Program under construction. The maps that it names live at least as long.
#[derive(Debug, Default)]
pub struct Assembler<'maps> {
    instructions: Vec<Instruction>,
    /// Index of the instruction of each label, once placed.
    labels: Vec<Option<usize>>,
    /// Jumps, by the index of their instruction, with their labels.
    jumps: Vec<(usize, Label)>,
    maps: PhantomData<&'maps Map>,
}

impl<'maps> Assembler<'maps> {
    /// Creates an empty program.
    pub fn new() -> Self {
        Self::default()
    }

    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions
            .push(Instruction::new(code, to, from, offset, immediate));
    }

    fn with_operand(&mut self, code: u8, to: Register, operand: Operand) {
        let (bit, from, immediate) = operand.parts();
        self.put(code | bit, to as u8, from, 0, immediate);
    }

    /// `to = to op operand`, 64 bits.
    pub fn alu(&mut self, op: Op, to: Register, operand: impl Into<Operand>) {
        self.with_operand(ALU64 | op as u8, to, operand.into());
    }

    /// `to = to op operand`, 32 bits; the upper half becomes zero.
    pub fn alu32(&mut self, op: Op, to: Register, operand: impl Into<Operand>) {
        self.with_operand(ALU | op as u8, to, operand.into());
    }

    /// `to = operand`.
    pub fn set(&mut self, to: Register, operand: impl Into<Operand>) {
        self.alu(Op::Move, to, operand);
    }

    /// `to = -to`, 64 bits.
    pub fn negate(&mut self, to: Register) {
        self.put(ALU64 | NEG, to as u8, 0, 0, 0);
    }

    /// `to = -to`, 32 bits; the upper half becomes zero.
    pub fn negate32(&mut self, to: Register) {
        self.put(ALU | NEG, to as u8, 0, 0, 0);
    }

    /// Converts the lowest `bytes` between this machine's byte order and network byte order; the bytes above become zero.
    ///
    /// **Panics** for one byte, which has no order.
    pub fn swap(&mut self, to: Register, bytes: Size) {
        let bits = match bytes {
            Size::One => panic!("one byte has no order"),
            Size::Two => 16,
            Size::Four => 32,
            Size::Eight => 64,
        };
        self.put(ALU | END | TO_BE, to as u8, 0, 0, bits);
    }

    /// `to = value`, with all 64 bits.
    pub fn wide(&mut self, to: Register, value: u64) {
        self.pair(to, 0, value as u32, (value >> 32) as u32);
    }

    /// `to` = the map, as an argument for helpers.
    pub fn map(&mut self, to: Register, map: &'maps Map) {
        self.pair(to, PSEUDO_MAP_FD, map.fd.as_raw_fd() as u32, 0);
    }

    /// `to` = the address of byte `offset` of the value of a [`Map::array`] of one entry; other maps have no such address.
    pub fn map_value(&mut self, to: Register, map: &'maps Map, offset: u32) {
        self.pair(to, PSEUDO_MAP_VALUE, map.fd.as_raw_fd() as u32, offset);
    }

    /// Appends the only instruction of two words.
    fn pair(&mut self, to: Register, from: u8, low: u32, high: u32) {
        self.put(LD | Size::Eight.code(), to as u8, from, 0, low as i32);
        self.put(0, 0, 0, 0, high as i32);
    }

    /// `to = *(from + offset)`, extended with zeros.
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.put(LDX | MEM | size.code(), to as u8, from as u8, offset, 0);
    }

    /// `*(to + offset) = operand`.
    pub fn store(&mut self, size: Size, to: Register, offset: i16, operand: impl Into<Operand>) {
        match operand.into() {
            Operand::Register(from) => {
                self.put(STX | MEM | size.code(), to as u8, from as u8, offset, 0)
            }
            Operand::Constant(value) => {
                self.put(ST | MEM | size.code(), to as u8, 0, offset, value)
            }
        }
    }

    /// `R0` = the packet's bytes at `offset`, as a number in network byte order. If the packet has no such bytes, the program
    /// ends with 0. For socket filters only, with the context in `R6`; destroys `R1` to `R5`.
    pub fn load_absolute(&mut self, size: Size, offset: i32) {
        self.put(LD | ABS | size.code(), 0, 0, 0, offset);
    }

    /// As [`Self::load_absolute`], at `from + offset`.
    pub fn load_indirect(&mut self, size: Size, from: Register, offset: i32) {
        self.put(LD | IND | size.code(), 0, from as u8, 0, offset);
    }

    /// `*(to + offset) += from`, atomically, for four or eight bytes.
    pub fn atomic_add(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.atomic(size, to, offset, from, 0);
    }

    /// As [`Self::atomic_add`], and `from` = the former value.
    ///
    /// **Platform**: Linux 5.12.
    pub fn atomic_fetch_add(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.atomic(size, to, offset, from, 1);
    }

    fn atomic(&mut self, size: Size, to: Register, offset: i16, from: Register, what: i32) {
        self.put(
            STX | ATOMIC | size.code(),
            to as u8,
            from as u8,
            offset,
            what,
        );
    }

    /// Returns a new label, to be [placed](Self::place).
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label at the next instruction.
    pub fn place(&mut self, label: Label) {
        let old = self.labels[label.0].replace(self.instructions.len());
        assert!(old.is_none(), "a label has one place");
    }

    /// Jumps to the label if the comparison `when` holds for `a` and `b`, 64 bits.
    pub fn jump(&mut self, when: If, a: Register, b: impl Into<Operand>, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.with_operand(JMP | when as u8, a, b.into());
    }

    /// Jumps to the label if the comparison `when` holds for the lower 32 bits of `a` and `b`.
    pub fn jump32(&mut self, when: If, a: Register, b: impl Into<Operand>, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.with_operand(JMP32 | when as u8, a, b.into());
    }

    /// Jumps to the label.
    pub fn go(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(JMP, 0, 0, 0, 0);
    }

    /// Calls a function of the kernel.
    pub fn call(&mut self, helper: Helper) {
        self.put(JMP | CALL, 0, 0, 0, helper.0);
    }

    /// Ends the program with the result in `R0`.
    pub fn exit(&mut self) {
        self.put(JMP | EXIT, 0, 0, 0, 0);
    }

    /// Ends the program with `value`.
    pub fn result(&mut self, value: i32) {
        self.set(Register::R0, value);
        self.exit();
    }

    /// Returns the number of instructions so far.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Returns whether there are no instructions.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Returns the instructions, with the distances of all jumps filled in. **Errors**: [`Error::TooFar`]. **Panics** if the
    /// label of a jump was not placed.
    pub fn finish(&self) -> Result<Vec<Instruction>, Error> {
        let mut instructions = self.instructions.clone();
        for &(at, label) in &self.jumps {
            let place = self.labels[label.0].expect("a label that is jumped to was placed");
            let distance = place as isize - at as isize - 1;
            instructions[at].offset = distance.try_into().map_err(|_| Error::TooFar(distance))?;
        }
        Ok(instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::Register::*;
    use super::*;

    fn bytes(assembler: &Assembler<'_>) -> Vec<[u8; 8]> {
        let encode = |i: &Instruction| {
            let [a, b] = i.offset.to_ne_bytes();
            let [c, d, e, f] = i.immediate.to_ne_bytes();
            [i.code, i.registers, a, b, c, d, e, f]
        };
        assembler.finish().unwrap().iter().map(encode).collect()
    }

    /// The expected bytes are the output of clang's assembler for this machine, for the text next
    /// to each line.
    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_those_of_another_assembler() {
        let mut a = Assembler::new();
        a.alu(Op::Add, R1, R2); // r1 += r2
        a.alu(Op::Add, R3, 5); // r3 += 5
        a.alu32(Op::Mul, R4, 7); // w4 *= 7
        a.alu32(Op::Div, R4, R5); // w4 /= w5
        a.alu(Op::Or, R6, R7); // r6 |= r7
        a.alu(Op::And, R6, 0xff); // r6 &= 255
        a.alu(Op::ShiftLeft, R8, 3); // r8 <<= 3
        a.alu(Op::ShiftRight, R8, R9); // r8 >>= r9
        a.alu(Op::Xor, R0, R0); // r0 ^= r0
        a.set(R2, R10); // r2 = r10
        a.set(R2, 1); // r2 = 1
        a.alu(Op::ShiftRightSigned, R2, 1); // r2 s>>= 1
        a.negate(R3); // r3 = -r3
        a.swap(R1, Size::Two); // r1 = be16 r1
        a.swap(R1, Size::Four); // r1 = be32 r1
        a.swap(R1, Size::Eight); // r1 = be64 r1
        a.wide(R1, 0x1122_3344_5566_7788); // r1 = 0x1122334455667788 ll
        a.load(Size::One, R0, R1, 4); // r0 = *(u8 *)(r1 + 4)
        a.load(Size::Two, R0, R1, -4); // r0 = *(u16 *)(r1 - 4)
        a.load(Size::Four, R0, R1, 16); // r0 = *(u32 *)(r1 + 16)
        a.load(Size::Eight, R0, R1, 0); // r0 = *(u64 *)(r1 + 0)
        a.store(Size::One, R10, -1, R2); // *(u8 *)(r10 - 1) = r2
        a.store(Size::Eight, R10, -8, R2); // *(u64 *)(r10 - 8) = r2
        a.load_absolute(Size::Two, 12); // r0 = *(u16 *)skb[12]
        a.load_indirect(Size::One, R7, 0); // r0 = *(u8 *)skb[r7]
        a.atomic_add(Size::Eight, R1, 8, R2); // lock *(u64 *)(r1 + 8) += r2
        a.atomic_add(Size::Four, R1, 0, R2); // lock *(u32 *)(r1 + 0) += r2
        a.call(Helper::REDIRECT_MAP); // call 51
        a.exit(); // exit
        let expected = EXPECTED.map(|word: u64| word.to_be_bytes());
        assert_eq!(bytes(&a), expected);
    }

    #[cfg(target_endian = "little")]
    #[rustfmt::skip]
    const EXPECTED: [u64; 30] = [
        0x0f21_0000_0000_0000, 0x0703_0000_0500_0000, 0x2404_0000_0700_0000, 0x3c54_0000_0000_0000,
        0x4f76_0000_0000_0000, 0x5706_0000_ff00_0000, 0x6708_0000_0300_0000, 0x7f98_0000_0000_0000,
        0xaf00_0000_0000_0000, 0xbfa2_0000_0000_0000, 0xb702_0000_0100_0000, 0xc702_0000_0100_0000,
        0x8703_0000_0000_0000, 0xdc01_0000_1000_0000, 0xdc01_0000_2000_0000, 0xdc01_0000_4000_0000,
        0x1801_0000_8877_6655, 0x0000_0000_4433_2211, 0x7110_0400_0000_0000, 0x6910_fcff_0000_0000,
        0x6110_1000_0000_0000, 0x7910_0000_0000_0000, 0x732a_ffff_0000_0000, 0x7b2a_f8ff_0000_0000,
        0x2800_0000_0c00_0000, 0x5070_0000_0000_0000, 0xdb21_0800_0000_0000, 0xc321_0000_0000_0000,
        0x8500_0000_3300_0000, 0x9500_0000_0000_0000,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn jumps_lead_to_their_labels_forwards_and_back() {
        let mut a = Assembler::new();
        let (start, end) = (a.label(), a.label());
        a.place(start);
        a.jump(If::Equal, R1, 3, end);
        a.jump(If::Greater, R1, R2, start);
        a.jump32(If::Less, R1, 9, end);
        a.go(start);
        a.place(end);
        a.exit();
        let expected = [
            0x1501_0300_0300_0000u64,
            0x2d21_feff_0000_0000,
            0xa601_0100_0900_0000,
            0x0500_fcff_0000_0000,
            0x9500_0000_0000_0000,
        ];
        assert_eq!(bytes(&a), expected.map(u64::to_be_bytes));
    }

    #[test]
    fn a_jump_that_is_too_far_is_an_error() {
        let far = |instructions| {
            let mut a = Assembler::new();
            let end = a.label();
            a.go(end);
            (0..instructions).for_each(|_| a.exit());
            a.place(end);
            a.finish().map(|all| all[0].offset)
        };
        assert_eq!(far(32767).unwrap(), 32767);
        assert!(matches!(far(32768), Err(Error::TooFar(32768))));
    }
}
