//! Body, with its oracle, that the fuzz target of ring headers and the tests share.

use super::memory::{PORTION, records_of};
use super::record::{CAPTURED, FLAGS, FRAME, Finish, NEXT, RECORD_HEADER, WIRE, half, word};
use crate::live::Marks;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Interface, Layout, Resolution, Stop};
use weir_packet::{Frame, LinkType};

/// Bytes of a block's header, and the offset from which on it is read, after the status.
const HEADER: usize = 48;
const READ_FROM: usize = 12;

#[derive(Default)]
struct Seen(Vec<(Vec<u8>, u32)>);

impl Visit for Seen {
    fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
        assert_eq!(records.len(), frames.len());
        self.0.extend(
            frames
                .iter()
                .map(|frame| (frame.data.to_vec(), frame.wire_len)),
        );
        true
    }
}

/// Reads any bytes as a block of a ring. The records must lie after the header, and the portions must make up all records. If
/// records do not overlap, they must come out unchanged. The first three bytes choose the finishing of the records.
pub fn block(data: &[u8]) {
    let Some((&[how, snaplen, enough], block)) = data.split_first_chunk() else {
        return;
    };
    let Some(header) = block.get(READ_FROM..HEADER) else {
        return;
    };
    let finish = Finish {
        cooked: how & 1 != 0,
        snaplen: if how & 2 != 0 {
            u32::from(snaplen).max(1)
        } else {
            262_144
        },
        copied: if how & 4 != 0 {
            u32::from(snaplen)
        } else {
            262_144
        },
        largest: if how & 8 != 0 {
            u32::from(snaplen) * 4
        } else {
            u32::MAX
        },
    };
    let Some((range, packets)) = records_of(header, block.len()) else {
        let [first, used] = [4, 8].map(|at| word(header, at) as usize);
        assert!(
            first < HEADER || first > used || used > block.len(),
            "only what cannot be right is refused"
        );
        return;
    };
    assert!(HEADER <= range.start && range.start <= range.end && range.end <= block.len());
    let link = if finish.cooked {
        LinkType::LINUX_SLL2
    } else {
        LinkType::ETHERNET
    };
    let layout = Layout::ring(Interface::plain(link, 0, Resolution::NANOSECOND));
    let pristine = &block[range.clone()];
    let mut records = pristine.to_vec();
    let (mut from, mut left, mut marks, mut seen, mut whole) =
        (0, packets, Marks::default(), Seen::default(), true);
    let enough = if enough == 0 {
        PORTION
    } else {
        usize::from(enough) * 16
    };
    while left > 0 {
        let (bytes, done) = finish.records(&mut records[from..], left, enough, &mut marks);
        assert!(bytes <= records.len() - from && done <= left);
        let last = bytes == records.len() - from;
        assert!(
            last || (bytes > 0 && done > 0),
            "each portion but the last takes it on"
        );
        let part = &records[from..from + bytes];
        let before = seen.0.len();
        let mut cursor = [Cursor::new(0, part.len())];
        walk(&layout, part, true, &mut cursor, &mut seen);
        whole &= cursor[0].stop == Some(Stop::End) && seen.0.len() - before == done as usize;
        from += bytes;
        left -= if last { left } else { done };
    }
    if let Some(expected) = apart(pristine, packets) {
        let flagged = |flag: u32| {
            expected
                .iter()
                .filter(|record| word(record, FLAGS) & flag != 0)
                .count() as u64
        };
        assert_eq!(
            marks.unfinished_checksums,
            flagged(libc::TP_STATUS_CSUMNOTREADY)
        );
        let cut = |record: &&&[u8]| word(record, CAPTURED) < word(record, WIRE).min(finish.copied);
        assert_eq!(marks.cut, expected.iter().filter(cut).count() as u64);
        assert!(
            whole && seen.0.len() == expected.len(),
            "{} of {packets}",
            seen.0.len()
        );
        for (record, (found, wire)) in expected.iter().zip(&seen.0) {
            let (frame, captured) = (
                usize::from(half(record, FRAME)),
                word(record, CAPTURED) as usize,
            );
            let plain = !finish.cooked && word(record, FLAGS) & libc::TP_STATUS_VLAN_VALID == 0;
            if plain {
                assert_eq!(
                    found,
                    &record[frame..frame + captured.min(finish.snaplen as usize)]
                );
                assert_eq!(*wire, word(record, WIRE));
            }
            assert!(found.len() <= finish.snaplen as usize);
        }
    }
}

/// Returns the records, read plainly after linux/if_packet.h, if their number is as stated and each holds its own frame.
fn apart(records: &[u8], packets: u32) -> Option<Vec<&[u8]>> {
    let (mut rest, mut found) = (records, Vec::new());
    for number in 1..=packets {
        if rest.len() < RECORD_HEADER {
            return None;
        }
        let next = word(rest, NEXT) as usize;
        let last = number == packets;
        let len = if next == 0 || last && next == rest.len() {
            rest.len()
        } else {
            next
        };
        let (frame, captured) = (
            usize::from(half(rest, FRAME)),
            word(rest, CAPTURED) as usize,
        );
        let fits =
            RECORD_HEADER <= frame && frame <= len && captured <= len - frame && len <= rest.len();
        if !fits || len < RECORD_HEADER || (next == 0) != last && next != rest.len() {
            return None;
        }
        found.push(&rest[..len]);
        rest = &rest[len..];
    }
    rest.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::block;
    use weir_testkit::Random;

    /// Returns a block of `count` records in the kernel's layout, after the three bytes that choose.
    fn whole(how: [u8; 3], count: u32) -> Vec<u8> {
        const RECORD: u32 = 192;
        let mut bytes = how.to_vec();
        for word in [1, 0, 1, count, 48, 48 + count * RECORD] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.resize(3 + 48, 0);
        for number in 0..count {
            let at = bytes.len();
            let next = if number + 1 == count { 0 } else { RECORD };
            let captured = 14 + number * 7 % 70;
            for word in [
                next,
                1,
                2,
                captured,
                captured + number % 3,
                [1, 9, 0x51][number as usize % 3],
            ] {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.extend(106u16.to_ne_bytes());
            bytes.extend(120u16.to_ne_bytes());
            bytes.resize(at + RECORD as usize, number as u8);
        }
        bytes
    }

    #[test]
    fn damaged_blocks_never_lead_outside() {
        let mut random = Random(1);
        let mut below = |bound| random.below(bound);
        for how in 0..16 {
            for enough in [0, 1, 20] {
                let good = whole([how, 40, enough], 9);
                block(&good);
                for _ in 0..if cfg!(miri) { 6 } else { 400 } {
                    let mut damaged = good.clone();
                    for _ in 0..=below(3) {
                        let at = below(damaged.len());
                        let record = 3 + 48 + 192 * below(9) + below(64);
                        let at = if below(2) == 0 { at } else { record };
                        damaged[at] = [0, 1, 0xff, damaged[at] ^ 1 << below(8)][below(4)];
                    }
                    damaged.truncate(damaged.len() - below(2) * below(damaged.len()));
                    block(&damaged);
                }
            }
        }
        // A block without packets, and blocks whose records would overlap the header.
        block(&whole([0; 3], 0));
        for first in 0..60u32 {
            let mut over = whole([0; 3], 3);
            over[3 + 16..3 + 20].copy_from_slice(&first.to_ne_bytes());
            block(&over);
        }
    }
}
