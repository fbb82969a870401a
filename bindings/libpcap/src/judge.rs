//! The filter of a handle: the program that its own libpcap compiled.

use weir_filter::{Filter, Insn, Program, interpreter};
use weir_packet::Frame;

/// Packets after which native code repays the millisecond that it takes to make.
const REPAID: u32 = 16_384;

/// A filter, and the packets that it has judged.
#[derive(Debug, Default)]
pub struct Judge {
    filter: Option<Filter>,
    judged: u32,
}

impl Judge {
    /// Takes a program that libpcap has accepted; `None` if it is not accepted here.
    pub fn new(insns: &[Insn]) -> Option<Self> {
        let program = Program::new(insns.to_vec()).ok()?;
        // All that `tcpdump` without an expression asks for.
        let is_empty = matches!(
            program.insns(),
            [Insn {
                code: 6,
                k: 1..,
                ..
            }]
        );
        Some(Self {
            filter: (!is_empty).then(|| Filter::from_program(program)),
            judged: 0,
        })
    }

    /// Whether every packet passes.
    pub fn is_empty(&self) -> bool {
        self.filter.is_none()
    }

    /// Mask of the frames that pass, at most 64.
    pub fn matches(&mut self, frames: &[Frame<'_>]) -> u64 {
        let Some(filter) = &self.filter else {
            return u64::MAX;
        };
        if self.judged < REPAID {
            self.judged += frames.len() as u32;
            if self.judged >= REPAID && !filter.is_long() {
                filter.make_native();
            }
        }
        filter.matches(frames)
    }
}

/// A program for live captures, which judges frames as they were on the wire.
///
/// The kernel takes the outermost VLAN tag out of a frame before a filter runs. libpcap's programs then load the tag as data of the
/// kernel, as they load the direction and the number of the interface.
#[derive(Debug, Default)]
pub struct LiveJudge {
    insns: Vec<Insn>,
    untagged: Judge,
    /// The program for frames with a tag, and the tag.
    tagged: Option<(u16, Option<Program>)>,
}

/// Origin of frames: data of the kernel that programs load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// Whether this host sends the frames.
    pub is_outgoing: bool,
    /// Number of the interface.
    pub interface: u32,
}

/// Offsets of loads of data of the kernel. **Source**: linux/filter.h.
const DIRECTION: u32 = -0x1000_i32 as u32 + 4;
const INTERFACE: u32 = -0x1000_i32 as u32 + 8;
const TAG: u32 = -0x1000_i32 as u32 + 44;
const TAG_PRESENT: u32 = -0x1000_i32 as u32 + 48;

impl LiveJudge {
    /// Takes a program that libpcap has accepted, for frames of this origin.
    pub fn new(insns: &[Insn], origin: Origin) -> Self {
        let insns = with_origin(insns, origin);
        Self {
            untagged: Judge::new(&with_tag(&insns, None)).unwrap_or_default(),
            insns,
            tagged: None,
        }
    }

    /// Whether every packet passes.
    pub fn is_empty(&self) -> bool {
        self.untagged.is_empty()
    }

    /// Mask of the frames that pass, at most 64.
    pub fn matches(&mut self, frames: &[Frame<'_>]) -> u64 {
        if self.untagged.is_empty() {
            return u64::MAX;
        }
        let mut mask = self.untagged.matches(frames);
        for (index, frame) in frames.iter().enumerate() {
            if let Some(tag) = tag_of(frame.data) {
                mask &= !(1 << index);
                mask |= u64::from(self.passes_with(tag, frame)) << index;
            }
        }
        mask
    }

    fn passes_with(&mut self, tag: u16, frame: &Frame<'_>) -> bool {
        let asks_tag = || self.insns.iter().any(|insn| is_load(insn) && insn.k == TAG);
        if !matches!(self.tagged, Some((known, _)) if known == tag || !asks_tag()) {
            self.tagged = Some((tag, Program::new(with_tag(&self.insns, Some(tag))).ok()));
        }
        let Some((_, Some(program))) = &self.tagged else {
            return true;
        };
        let pieces = [&frame.data[..12], &frame.data[16..], &[]];
        interpreter::run_in_pieces(program, pieces, frame.wire_len.saturating_sub(4)) != 0
    }
}

/// The outermost VLAN tag of a frame.
fn tag_of(frame: &[u8]) -> Option<u16> {
    match frame.get(12..16)? {
        [0x81, 0x00, a, b] | [0x88, 0xa8, a, b] => Some(u16::from_be_bytes([*a, *b])),
        _ => None,
    }
}

fn is_load(insn: &Insn) -> bool {
    matches!(insn.code, 0x20 | 0x28 | 0x30)
}

/// The program with constants in place of the loads of direction and interface.
fn with_origin(insns: &[Insn], origin: Origin) -> Vec<Insn> {
    /// `PACKET_OUTGOING` of linux/if_packet.h. libpcap's programs ask for no other kind.
    const OUTGOING: u32 = 4;
    let constant = |insn: &Insn| match insn.k {
        DIRECTION if is_load(insn) => {
            Insn::statement(0, if origin.is_outgoing { OUTGOING } else { 0 })
        }
        INTERFACE if is_load(insn) => Insn::statement(0, origin.interface),
        _ => *insn,
    };
    insns.iter().map(constant).collect()
}

/// The program with constants in place of the loads of the tag.
fn with_tag(insns: &[Insn], tag: Option<u16>) -> Vec<Insn> {
    let constant = |insn: &Insn| match insn.k {
        TAG if is_load(insn) => Insn::statement(0, tag.unwrap_or(0).into()),
        TAG_PRESENT if is_load(insn) => Insn::statement(0, tag.is_some().into()),
        _ => *insn,
    };
    insns.iter().map(constant).collect()
}
