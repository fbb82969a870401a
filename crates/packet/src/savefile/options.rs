//! Options of packets in a pcapng file.
//!
//! **Source**: pcapng draft, sections 3.5 and 4.3: opt_comment 1, epb_flags 2, epb_hash 3,
//! epb_dropcount 4, epb_packetid 5, epb_queue 6, epb_verdict 7; 2988 and 2989 are custom options,
//! 19372 and 19373 custom options that must not be copied.

use super::Direction;
use super::pcapng::options;
use super::write::{option, word};

const COMMENT: u16 = 1;
const FLAGS: u16 = 2;
const HASH: u16 = 3;
const DROPS: u16 = 4;
const NOT_COPIED: [u16; 2] = [19_372, 19_373];

/// Options of a packet, as they are after its bytes. Other formats have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions<'a> {
    /// List of options: code, length, value, padded to a multiple of 4 bytes.
    pub bytes: &'a [u8],
    /// Whether numbers in the list are big-endian.
    pub big_endian: bool,
    /// `drops_count` of an obsolete packet block, which has no option for it; 0xFFFF means that it is unknown.
    pub drops: u16,
}

impl<'a> PacketOptions<'a> {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.drops == 0
    }

    /// Calls `each` with the code and the value of each option.
    fn each(&self, mut each: impl FnMut(u16, &'a [u8])) {
        if self.big_endian {
            options::<true>(self.bytes).for_each(|(code, value)| each(code, value));
        } else {
            options::<false>(self.bytes).for_each(|(code, value)| each(code, value));
        }
    }

    /// Returns the number of packets that were lost between the packet before and this one; 0 if that is unknown.
    #[cold]
    pub fn dropped(&self) -> u64 {
        let mut dropped = if self.drops == u16::MAX {
            0
        } else {
            u64::from(self.drops)
        };
        self.each(|code, value| {
            if code == DROPS && value.len() == 8 {
                let count: [u8; 8] = value.try_into().unwrap_or_default();
                let count = if self.big_endian {
                    u64::from_be_bytes(count)
                } else {
                    u64::from_le_bytes(count)
                };
                dropped = dropped.saturating_add(count);
            }
        });
        dropped
    }

    /// Returns the direction that the flags of the packet tell (`epb_flags`, bits 0 and 1).
    #[cold]
    pub fn direction(&self) -> Option<Direction> {
        let mut direction = None;
        self.each(|code, value| {
            if let (FLAGS, Ok(flags)) = (code, <[u8; 4]>::try_from(value)) {
                direction = match flags[if self.big_endian { 3 } else { 0 }] & 3 {
                    1 => Some(Direction::In),
                    2 => Some(Direction::Out),
                    _ => None,
                };
            }
        });
        direction
    }

    /// Returns the number of comments.
    pub fn comments(&self) -> u64 {
        let mut comments = 0;
        self.each(|code, _| comments += u64::from(code == COMMENT));
        comments
    }

    /// Appends the options in little-endian order, with the mark of their end. Left out are custom options that must not be
    /// copied, big-endian options whose parts are not known, and the hash of a packet that `is_cut`.
    pub(super) fn append(&self, out: &mut Vec<u8>, is_cut: bool) {
        let before = out.len();
        if self.drops != 0 && self.drops != u16::MAX {
            option(out, DROPS, &u64::from(self.drops).to_le_bytes());
        }
        self.each(|code, value| {
            if !(NOT_COPIED.contains(&code) || is_cut && code == HASH) {
                append_one(out, code, value, self.big_endian);
            }
        });
        if out.len() > before {
            word(out, 0);
        }
    }
}

/// Appends an option whose value has this byte order.
fn append_one(out: &mut Vec<u8>, code: u16, value: &[u8], big_endian: bool) {
    // Part of the value that is one number.
    let number = match (code, value) {
        _ if !big_endian => 0..0,
        (COMMENT | HASH, _) => 0..0,
        (2 | 6, [_, _, _, _]) => 0..4,
        (DROPS | 5, [_, _, _, _, _, _, _, _]) => 0..8,
        (7, [0, ..]) => 0..0,
        (7, [1 | 2, _, _, _, _, _, _, _, _]) => 1..9,
        (2988, [_, _, _, _, ..]) => 0..4,
        _ => return,
    };
    let at = out.len() + 4;
    option(out, code, value);
    out[at..][number].reverse();
}
