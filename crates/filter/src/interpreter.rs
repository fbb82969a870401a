//! Interpreter: runs a program one instruction at a time. The twin of native code in tests, and the engine if there is none.

use crate::program::{
    Address, Insn, Op, Operand, Program, SCRATCH_WORDS, SetTest, backward_jump_limit,
};

/// Returns the result of `program` for a packet: 0 for no match, else the number of bytes to keep.
///
/// A load beyond `data` and a division by zero end the program with 0, as in libpcap. The instruction `len` loads
/// `wire_len`, bytes.
///
/// **Cost**: one table jump per instruction; no allocation. Bounded by the program's length times
/// [`backward_jump_limit`].
#[must_use]
pub fn run(program: &Program, data: &[u8], wire_len: u32) -> u32 {
    start(program, data, wire_len)
}

/// Returns the result of [`run`] for the packet whose bytes are the pieces one after another. **Cost**: a search for the piece at
/// each load, and no copy.
#[must_use]
pub fn run_in_pieces(program: &Program, pieces: [&[u8]; 3], wire_len: u32) -> u32 {
    start(program, pieces, wire_len)
}

fn start<D: Data>(program: &Program, data: D, wire_len: u32) -> u32 {
    let machine = Machine {
        data,
        wire_len,
        a: 0,
        x: 0,
        scratch: [0; SCRATCH_WORDS],
    };
    machine.run(program).unwrap_or(0)
}

/// The captured bytes of a packet.
trait Data {
    fn len(&self) -> usize;

    /// Copies up to `N` bytes from offset `at` on, and returns how many there are.
    fn copy<const N: usize>(&self, at: usize, to: &mut [u8; N]) -> usize;

    /// `N` bytes from offset `at` on; `None` if the packet ends before.
    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.copy(at, &mut bytes) == N).then_some(bytes)
    }
}

impl Data for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.get(at..)?.first_chunk().copied()
    }

    fn copy<const N: usize>(&self, at: usize, to: &mut [u8; N]) -> usize {
        let from = self.get(at..).unwrap_or_default();
        let count = from.len().min(N);
        to[..count].copy_from_slice(&from[..count]);
        count
    }
}

impl Data for [&[u8]; 3] {
    fn len(&self) -> usize {
        self.iter().map(|piece| piece.len()).sum()
    }

    fn copy<const N: usize>(&self, mut at: usize, to: &mut [u8; N]) -> usize {
        let mut done = 0;
        for piece in self {
            let from = piece.get(at..).unwrap_or_default();
            let count = from.len().min(N - done);
            to[done..done + count].copy_from_slice(&from[..count]);
            done += count;
            at = at.saturating_sub(piece.len());
            if done == N {
                break;
            }
        }
        done
    }
}

struct Machine<D> {
    data: D,
    wire_len: u32,
    a: u32,
    x: u32,
    scratch: [u32; SCRATCH_WORDS],
}

impl<D: Data> Machine<D> {
    /// Runs to a return instruction; `None` if the program fails.
    fn run(mut self, program: &Program) -> Option<u32> {
        let (insns, ops) = (program.insns(), program.ops());
        let mut backward_left = backward_jump_limit(self.data.len());
        let mut pc = 0usize;
        loop {
            let (insn, op) = (*insns.get(pc)?, *ops.get(pc)?);
            pc += 1;
            match op {
                Op::ReturnK => return Some(insn.k),
                Op::ReturnA => return Some(self.a),
                Op::Branch(relation, operand) => {
                    let skip = if relation.holds(self.a, self.operand(operand, insn)) {
                        insn.jt
                    } else {
                        insn.jf
                    };
                    pc += usize::from(skip);
                }
                Op::InSet(address) => {
                    let is_member =
                        self.is_member(address, program.tests().get(insn.k as usize)?)?;
                    pc += usize::from(if is_member { insn.jt } else { insn.jf });
                }
                Op::Jump => {
                    let skip = insn.k as i32;
                    if skip < 0 {
                        backward_left = backward_left.checked_sub(1)?;
                    }
                    pc = pc.checked_add_signed(skip as isize)?;
                }
                op => self.step(op, insn)?,
            }
        }
    }

    /// Executes an instruction that only changes registers and scratch memory.
    #[inline(always)]
    fn step(&mut self, op: Op, insn: Insn) -> Option<()> {
        let k = insn.k;
        match op {
            Op::LoadAbsolute(size) => self.a = self.load(k, 0, size)?,
            Op::LoadIndirect(size) => self.a = self.load(k, self.x, size)?,
            Op::LoadXHeader => self.x = (self.load(k, 0, 1)? & 0xf) << 2,
            Op::LoadLength => self.a = self.wire_len,
            Op::LoadXLength => self.x = self.wire_len,
            Op::LoadImmediate => self.a = k,
            Op::LoadXImmediate => self.x = k,
            Op::LoadScratch => self.a = *self.scratch.get(k as usize)?,
            Op::LoadXScratch => self.x = *self.scratch.get(k as usize)?,
            Op::Store => *self.scratch.get_mut(k as usize)? = self.a,
            Op::StoreX => *self.scratch.get_mut(k as usize)? = self.x,
            Op::Alu(alu, operand) => self.a = alu.apply(self.a, self.operand(operand, insn))?,
            Op::Negate => self.a = self.a.wrapping_neg(),
            Op::CopyAToX => self.x = self.a,
            Op::CopyXToA => self.a = self.x,
            Op::Jump | Op::Branch(..) | Op::InSet(_) | Op::ReturnK | Op::ReturnA => {}
        }
        Some(())
    }

    /// Whether a set has the address; `None` if the packet ends within it and the program with it: see [`AddressSet::judge_v6`].
    ///
    /// [`AddressSet::judge_v6`]: crate::AddressSet::judge_v6
    fn is_member(&self, address: Address, test: &SetTest) -> Option<bool> {
        let at = match address {
            Address::V4 => return Some(test.set.contains_v4(self.a)),
            Address::V6 => test.offset as usize,
            Address::V6Indirect => test.offset as usize + self.x as usize,
        };
        if at > self.data.len() {
            return None;
        }
        let mut address = [0; 16];
        let count = self.data.copy(at, &mut address);
        test.set.judge_v6(&address[..count])
    }

    fn operand(&self, operand: Operand, insn: Insn) -> u32 {
        match operand {
            Operand::K => insn.k,
            Operand::X => self.x,
        }
    }

    /// Loads `size` bytes in network order at `k + x`. The sum does not wrap: an offset beyond 32 bits is outside the packet.
    fn load(&self, k: u32, x: u32, size: u8) -> Option<u32> {
        let at = k as usize + x as usize;
        Some(match size {
            1 => u32::from(self.data.bytes::<1>(at)?[0]),
            2 => u32::from(u16::from_be_bytes(self.data.bytes(at)?)),
            _ => u32::from_be_bytes(self.data.bytes(at)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Names, libpcap};
    use weir_packet::LinkType;

    /// A packet cut in three at any two places has the verdict of the whole, also if it ends early.
    #[test]
    fn pieces_are_judged_as_the_whole() {
        let mut packet = vec![
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0, 0, 44,
        ];
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0x1f, 0x90, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 2, 0, 0]);
        let names = Names::from(false);
        for expression in [
            "tcp dst port 443 and host 10.0.0.2",
            "tcp[tcpflags] & tcp-syn != 0 and ip[2:4] = 0x002c0000",
            "ether host 2:0:0:0:0:2 and less 60",
            "not ip6 and ether[11:4] != 0",
        ] {
            let program = libpcap::compile_with(expression, LinkType::ETHERNET, &names)
                .expect("the expression makes sense");
            for end in 0..=packet.len() {
                let whole = &packet[..end];
                let expected = run(&program, whole, 50);
                assert!(end < packet.len() || expected != 0, "{expression}");
                for second in 0..=end {
                    for first in [0, second / 3, second] {
                        let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                        assert_eq!(
                            run_in_pieces(&program, pieces, 50),
                            expected,
                            "{expression}"
                        );
                    }
                }
            }
        }
    }
}
