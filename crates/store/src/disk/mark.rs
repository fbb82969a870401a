//! The mark at the end of each block of a segment.
//!
//! A mark is a pcapng block of its own, little endian like the whole segment. Its type is one of
//! those for local use (from 0x80000000 on), which all tools skip. A Custom Block (0x00000BAD,
//! 0x40000BAD) would be among the packets in Wireshark's list.
//! ```text
//!  0  0x80000BAD            4  length of the mark, bytes
//!  8  32473: the enterprise number for examples of RFC 5612, since none is ours
//! 12  "weirmark"           20  version, 1 (u16)         22  kind (u16): 0 data, 1 end of the segment
//! 24  generation of the segment (u64)                   32  time in the name of the segment, ns since 1970 (i64)
//! 40  number of the block in the segment, from 0 (u32)  44  interfaces described so far in the segment (u32)
//! 48  offset of the mark in the segment (u64)           56  bytes of the block, from the mark before on (u32)
//! 60  number of packets (u32)                           64  number of the first packet in its session (u64)
//! 72  least time, ns since 1970 (i64)                   80  greatest time (i64)
//! 88  CRC-32 (IEEE) of the block and of bytes 0..88     92  zeros, so that a write ends at a multiple of 4096
//!  n  length of the mark again (u32)
//! ```
//! Numbers of packets in a block are consecutive. Without packets the least time is greater than the greatest.

use weir_packet::savefile::Record;

/// Bytes of a mark without filling.
pub(super) const LEN: usize = 96;
/// Largest number of bytes of a mark.
pub(super) const MAX_LEN: usize = LEN + super::PAGE;
/// Bytes in front of the checksum.
const CHECKED: usize = 88;

const KIND: u32 = 0x8000_0bad;
const ENTERPRISE: u32 = 32_473;
pub(super) const MAGIC: &[u8; 8] = b"weirmark";
/// Place of these bytes in a mark.
pub(super) const MAGIC_AT: usize = 12;
const VERSION: u16 = 1;

/// Contents of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Whether the segment ends here.
    pub(super) end: bool,
    pub(super) generation: u64,
    pub(super) start_ns: i64,
    pub(super) number: u32,
    pub(super) interfaces: u32,
    /// Offset of the mark.
    pub(super) offset: u64,
    pub(super) block: Block,
}

/// Packets of a block, as its mark and the index describe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Bytes in front of the mark.
    pub(super) bytes: u32,
    pub(super) packets: u32,
    /// Number of the first packet.
    pub(super) first: u64,
    pub(super) min_ns: i64,
    pub(super) max_ns: i64,
}

impl Block {
    /// A block without packets; `first` is the number of the next packet.
    pub(super) fn empty(first: u64) -> Self {
        Self {
            bytes: 0,
            packets: 0,
            first,
            min_ns: i64::MAX,
            max_ns: i64::MIN,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, record: &Record<'_>) {
        let time_ns = record.time_ns.unwrap_or(0).max(0);
        self.packets += 1;
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }
}

/// Reason why a block is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file ends inside the block.
    #[error("the file ends inside a block")]
    Short,
    /// The file is longer than any segment.
    #[error("the file is longer than any segment")]
    Long,
    /// No pcapng block, or one of an impossible length.
    #[error("no pcapng block is there")]
    Structure,
    /// The mark is one of another version.
    #[error("the mark has another version")]
    Version,
    /// The mark belongs to another segment, whose blocks had this place of the disk before.
    #[error("the block belongs to another segment")]
    Generation,
    /// The mark belongs to another place of the segment.
    #[error("the block belongs to another place of the segment")]
    Order,
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
    /// The index leaves the place out: it was damaged already when the index was made.
    #[error("it was damaged when the index was made")]
    LeftOut,
    /// No interface of the segment is known any more, so that its packets cannot be read.
    #[error("the descriptions of its interfaces are lost")]
    Head,
}

impl Mark {
    /// Appends the mark to the block that `out` holds from `block` on. If `fill`, the length of the
    /// mark is such that `out` then ends at a multiple of 4096 bytes after `start`.
    pub(super) fn append(&self, out: &mut Vec<u8>, start: usize, block: usize, fill: bool) {
        let at = out.len();
        let len = if fill {
            (at - start + LEN).next_multiple_of(super::PAGE) - (at - start)
        } else {
            LEN
        };
        let mut head = [0; CHECKED];
        let fields: [&[u8]; 15] = [
            &KIND.to_le_bytes(),
            &(len as u32).to_le_bytes(),
            &ENTERPRISE.to_le_bytes(),
            MAGIC,
            &VERSION.to_le_bytes(),
            &u16::from(self.end).to_le_bytes(),
            &self.generation.to_le_bytes(),
            &self.start_ns.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.interfaces.to_le_bytes(),
            &self.offset.to_le_bytes(),
            &self.block.bytes.to_le_bytes(),
            &self.block.packets.to_le_bytes(),
            &self.block.first.to_le_bytes(),
            &self.block.min_ns.to_le_bytes(),
        ];
        let mut to = 0;
        for field in fields {
            head[to..to + field.len()].copy_from_slice(field);
            to += field.len();
        }
        head[to..].copy_from_slice(&self.block.max_ns.to_le_bytes());
        out.extend_from_slice(&head);
        let checksum = crc32fast::hash(&out[block..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.resize(at + len - 4, 0);
        out.extend_from_slice(&(len as u32).to_le_bytes());
    }

    /// The mark at the start of `bytes` and its length, if it is one; the checksum is not looked at.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, usize), Damage> {
        let head = bytes.first_chunk::<LEN>().ok_or(Damage::Short)?;
        let word =
            |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("the mark is longer"));
        let wide =
            |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("the mark is longer"));
        if !is_mark(bytes) {
            return Err(Damage::Structure);
        }
        let (len, kind) = (word(4) as usize, word(20));
        if !(LEN..=MAX_LEN).contains(&len) || len % 4 != 0 {
            return Err(Damage::Structure);
        }
        let bytes = bytes.get(..len).ok_or(Damage::Short)?;
        if bytes[len - 4..] != (len as u32).to_le_bytes()
            || bytes[CHECKED + 4..len - 4].iter().any(|&byte| byte != 0)
        {
            return Err(Damage::Structure);
        }
        if kind as u16 != VERSION || kind >> 16 > 1 {
            return Err(Damage::Version);
        }
        let mark = Self {
            end: kind >> 16 == 1,
            generation: wide(24),
            start_ns: wide(32) as i64,
            number: word(40),
            interfaces: word(44),
            offset: wide(48),
            block: Block {
                bytes: word(56),
                packets: word(60),
                first: wide(64),
                min_ns: wide(72) as i64,
                max_ns: wide(80) as i64,
            },
        };
        Ok((mark, len))
    }
}

/// Whether a mark seems to begin here.
pub(super) fn is_mark(bytes: &[u8]) -> bool {
    let starts = |at: usize, with: &[u8]| bytes.get(at..at + with.len()) == Some(with);
    starts(0, &KIND.to_le_bytes())
        && starts(8, &ENTERPRISE.to_le_bytes())
        && starts(MAGIC_AT, MAGIC)
}

/// Checks the checksum of a block of `bytes` bytes and of the mark after it.
pub(super) fn check(block: &[u8], bytes: usize) -> Result<(), Damage> {
    let checked = block.get(..bytes + CHECKED).ok_or(Damage::Short)?;
    let stored = block
        .get(bytes + CHECKED..bytes + CHECKED + 4)
        .ok_or(Damage::Short)?;
    if crc32fast::hash(checked).to_le_bytes() == *stored {
        Ok(())
    } else {
        Err(Damage::Checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            end: false,
            generation: 0x0102_0304_0506_0708,
            start_ns: 0x1112_1314_1516_1718,
            number: 0x2122_2324,
            interfaces: 0x3132_3334,
            offset: 0x4142_4344_4546_4748,
            block: Block {
                bytes: 4,
                packets: 0x5152_5354,
                first: 0x6162_6364_6566_6768,
                min_ns: 0x7172_7374_7576_7778,
                max_ns: -2,
            },
        }
    }

    /// The bytes of the documentation, by hand. The checksum is that of `python3 -c 'import zlib...'` over the same bytes.
    fn golden() -> Vec<u8> {
        let mut bytes = b"abcd".to_vec();
        bytes.extend([0xad, 0x0b, 0x00, 0x80, 96, 0, 0, 0, 0xd9, 0x7e, 0, 0]);
        bytes.extend(b"weirmark");
        bytes.extend([1, 0, 0, 0]);
        bytes.extend([
            8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
        ]);
        bytes.extend([0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31]);
        bytes.extend([
            0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 4, 0, 0, 0, 0x54, 0x53, 0x52, 0x51,
        ]);
        bytes.extend([0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61]);
        bytes.extend([0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71]);
        bytes.extend([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        bytes.extend(CHECKSUM);
        bytes.extend([96, 0, 0, 0]);
        bytes
    }

    const CHECKSUM: [u8; 4] = [0xab, 0x72, 0x03, 0x34];

    #[test]
    fn bytes_are_those_of_the_documentation_in_both_directions() {
        let mut out = b"abcd".to_vec();
        mark().append(&mut out, 0, 0, false);
        assert_eq!(out, golden());
        assert_eq!(Mark::parse(&golden()[4..]), Ok((mark(), 96)));
        assert_eq!(check(&golden(), 4), Ok(()));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        for at in 0..golden().len() {
            let mut damaged = golden();
            damaged[at] ^= 0x40;
            let seen = Mark::parse(&damaged[4..]).and_then(|_| check(&damaged, 4));
            assert!(seen.is_err(), "{at}");
        }
        for len in 0..golden().len() {
            assert!(Mark::parse(golden()[..len].get(4..).unwrap_or(&[])).is_err());
        }
    }

    #[test]
    fn filled_marks_end_at_pages() {
        for before in (0..9000).step_by(4) {
            let mut out = vec![7; 16 + before];
            Mark {
                end: true,
                ..mark()
            }
            .append(&mut out, 16, 16, true);
            assert_eq!((out.len() - 16) % super::super::PAGE, 0);
            let (read, len) = Mark::parse(&out[16 + before..]).unwrap();
            assert!(read.end && len == out.len() - 16 - before && len < MAX_LEN);
            assert_eq!(check(&out[16..], before), Ok(()));
        }
    }
}
