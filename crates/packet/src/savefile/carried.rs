//! Blocks of a pcapng file that are about its packets, and that a copy needs: decryption secrets, names of addresses, and custom
//! blocks that may be copied.
//!
//! **Source**: pcapng draft, sections 4.5 (Name Resolution Block), 4.7 (Decryption Secrets Block) and 4.8 (Custom Block).

use super::Interface;
use super::bytes::{u16_at, u32_at};
use super::options::PacketOptions;
use super::pcapng::options;
use super::write::{block, option, word};

/// Name Resolution Block.
const NAMES: u32 = 4;
/// Decryption Secrets Block.
const SECRETS: u32 = 10;
/// Custom Block that may be copied.
const CUSTOM: u32 = 0x0000_0bad;
/// Custom Block that must not be copied by a program that changes the packets.
const PRIVATE: u32 = 0x4000_0bad;

/// Largest number of such blocks kept of a source.
pub(super) const MOST: usize = 4096;

/// Largest number of bytes of such blocks kept of a source.
pub(super) const MOST_BYTES: usize = 32 << 20;

/// Kind of a block without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// Secrets by which packets can be decrypted.
    Secrets,
    /// Names of addresses.
    Names,
    /// Block of a vendor.
    Custom,
    /// Block of a vendor that must not be copied.
    Private,
    /// Block of an unknown type.
    Other,
}

impl BlockKind {
    /// Kind of the blocks of this type. `None` for blocks that are read, and for local use, which no other program understands.
    pub(super) fn of(kind: u32) -> Option<Self> {
        Some(match kind {
            SECRETS => Self::Secrets,
            NAMES => Self::Names,
            CUSTOM => Self::Custom,
            PRIVATE => Self::Private,
            0x8000_0000.. => return None,
            0 | 1 | 2 | 3 | 5 | 6 | super::pcapng::SECTION => return None,
            _ => Self::Other,
        })
    }

    /// Whether a copy keeps blocks of this kind.
    pub(super) fn is_carried(self) -> bool {
        matches!(self, Self::Secrets | Self::Names | Self::Custom)
    }
}

/// A block as it is written: little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedBlock {
    /// Kind of the block.
    pub kind: BlockKind,
    /// The whole block.
    pub bytes: Vec<u8>,
}

impl CarriedBlock {
    /// Takes a whole block of this kind. `None` if the block is big-endian and cannot be written in little-endian order: because
    /// only its vendor knows which of its bytes are numbers, or because its lengths are wrong.
    pub(super) fn new<const BE: bool>(kind: BlockKind, whole: &[u8]) -> Option<Self> {
        if !BE {
            return Some(Self {
                kind,
                bytes: whole.to_vec(),
            });
        }
        let body = whole.get(8..whole.len() - 4)?;
        let mut bytes = Vec::new();
        match kind {
            BlockKind::Secrets => swap_secrets(&mut bytes, body)?,
            BlockKind::Names => swap_names(&mut bytes, body)?,
            _ => return None,
        }
        Some(Self { kind, bytes })
    }
}

/// Writes secrets: their type, their length, their bytes, options.
fn swap_secrets(out: &mut Vec<u8>, body: &[u8]) -> Option<()> {
    let header = body.first_chunk::<8>()?;
    let (kind, len) = (u32_at::<true>(header, 0), u32_at::<true>(header, 4));
    let data = body.get(8..8 + len as usize)?;
    let rest = body
        .get(8 + (len as usize).next_multiple_of(4)..)
        .unwrap_or(&[]);
    block(out, SECRETS, |out| {
        word(out, kind);
        word(out, len);
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(4), 0);
        swap_texts(out, rest);
    });
    Some(())
}

/// Writes names: records of an address and its names up to one of type 0, options.
fn swap_names(out: &mut Vec<u8>, body: &[u8]) -> Option<()> {
    let mut records = Vec::new();
    let mut rest = body;
    loop {
        let header = rest.first_chunk::<4>()?;
        let (kind, len) = (
            u16_at::<true>(header, 0),
            usize::from(u16_at::<true>(header, 2)),
        );
        option(&mut records, kind, rest.get(4..4 + len)?);
        rest = rest.get(4 + len.next_multiple_of(4)..)?;
        if kind == 0 {
            break;
        }
    }
    block(out, NAMES, |out| {
        out.extend_from_slice(&records);
        swap_texts(out, rest);
    });
    Some(())
}

/// Writes the options of which all bytes are text or addresses: codes 1 to 4.
fn swap_texts(out: &mut Vec<u8>, bytes: &[u8]) {
    let before = out.len();
    options::<true>(bytes)
        .filter(|(code, _)| (1..=4).contains(code))
        .for_each(|(code, value)| option(out, code, value));
    if out.len() > before {
        word(out, 0);
    }
}

/// Numbers of blocks and of parts of packets that a file could not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Decryption secrets.
    pub secrets: u64,
    /// Blocks of names of addresses.
    pub names: u64,
    /// Custom blocks.
    pub custom: u64,
    /// Custom blocks that must not be copied.
    pub private: u64,
    /// Blocks of unknown types.
    pub other: u64,
    /// Comments of sections and interfaces.
    pub comments: u64,
    /// Comments of packets.
    pub packet_comments: u64,
    /// Packets with other options.
    pub packets_with_options: u64,
    /// Options of interfaces.
    pub interface_options: u64,
    /// Options of sections in addition to comments.
    pub section_options: u64,
    /// Counts of lost packets, one of each interface that has lost some.
    pub losses: u64,
    /// Times for which a source does not tell what was lost.
    pub uncounted: u64,
    /// Comments of interface statistics.
    pub remarks: u64,
}

impl LeftOut {
    /// Counts a block of this kind.
    pub fn add(&mut self, kind: BlockKind) {
        let count = match kind {
            BlockKind::Secrets => &mut self.secrets,
            BlockKind::Names => &mut self.names,
            BlockKind::Custom => &mut self.custom,
            BlockKind::Private => &mut self.private,
            BlockKind::Other => &mut self.other,
        };
        *count = count.saturating_add(1);
    }

    /// Counts what a file without a place for it lacks of interfaces: comments, filters and options.
    pub fn of_interfaces<'a>(interfaces: impl Iterator<Item = &'a Interface>) -> Self {
        let mut left_out = Self::default();
        for interface in interfaces {
            left_out.comments += interface.comments.len() as u64;
            left_out.interface_options += interface.option_count();
        }
        left_out
    }

    /// Counts the options of a packet.
    #[cold]
    pub fn add_options(&mut self, options: &PacketOptions<'_>) {
        match options.comments() {
            0 => self.packets_with_options += 1,
            comments => self.packet_comments += comments,
        }
    }

    /// Adds the numbers of another file.
    pub fn join(&mut self, other: &Self) {
        self.secrets += other.secrets;
        self.names += other.names;
        self.custom += other.custom;
        self.private += other.private;
        self.other += other.other;
        self.comments += other.comments;
        self.packet_comments += other.packet_comments;
        self.packets_with_options += other.packets_with_options;
        self.interface_options += other.interface_options;
        self.section_options += other.section_options;
        self.losses += other.losses;
        self.uncounted += other.uncounted;
        self.remarks += other.remarks;
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
