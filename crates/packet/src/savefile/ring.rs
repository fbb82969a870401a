//! Records in one or more blocks of a packet socket's ring (TPACKET_V3), as the kernel writes them: native byte order.
//!
//! ```text
//! tpacket3_hdr of linux/if_packet.h, 48 bytes; offsets are from its first byte
//!  0 next record, 0 in a block's last  4 seconds  8 nanoseconds  12 captured length  16 wire length  20 status
//! 24 frame (u16)  26 network header (u16)  28 hash  32 VLAN tag  36 VLAN protocol (u16)  38 padding ...
//! ```
//! A `sockaddr_ll` follows the header, then the frame. Offset 58, in the `sockaddr_ll`, holds the direction of the packet. Only
//! the kernel writes these records; their lengths are checked all the same.

use super::bytes::{u16_at, u32_at};
use super::walk::{Step, Walker};
use super::{Fault, Record, Stop};
use crate::Frame;

/// Bytes of a record's header, `sizeof(struct tpacket3_hdr)`.
const HEADER: usize = 48;

/// Offset of a packet's direction in its record, and the value there if the interface sent the packet (`PACKET_OUTGOING`).
const DIRECTION: usize = HEADER + 10;
const OUTGOING: u8 = 4;

/// Index of sent packets in the table of interfaces; the index of received packets is 0.
pub(super) const OUT: usize = 1;

/// Whether the kernel writes big-endian: records are in native byte order.
const NATIVE_BE: bool = cfg!(target_endian = "big");

/// Steps over the records of a block, which lie in one slice that ends with the last record.
pub(super) struct Codec;

impl Codec {
    #[inline(always)]
    pub(super) fn record<'a>(&self, buf: &'a [u8], pos: usize) -> Option<Record<'a>> {
        let Step::Packet(frame, _) = self.step(buf, pos) else {
            return None;
        };
        let (seconds, nanos) = (
            u32_at::<NATIVE_BE>(buf, pos + 4),
            u32_at::<NATIVE_BE>(buf, pos + 8),
        );
        Some(Record {
            time_ns: Some(i64::from(seconds) * 1_000_000_000 + i64::from(nanos)),
            frame,
            options: Default::default(),
        })
    }
}

impl<'a> Walker<'a> for Codec {
    #[inline(always)]
    fn step(&self, buf: &'a [u8], pos: usize) -> Step<'a> {
        let Some(header) = buf[pos..].first_chunk::<HEADER>() else {
            return Step::Stop(damaged("it ends inside a record's header"));
        };
        let to_next = match u32_at::<NATIVE_BE>(header, 0) as usize {
            0 => buf.len() - pos,
            n if n >= HEADER && n <= buf.len() - pos => n,
            _ => return Step::Stop(damaged("a record leads out of its block")),
        };
        let captured = u32_at::<NATIVE_BE>(header, 12) as usize;
        let from = usize::from(u16_at::<NATIVE_BE>(header, 24));
        let record = &buf[pos..pos + to_next];
        match record.get(from..).and_then(|rest| rest.get(..captured)) {
            Some(data) if from >= HEADER => {
                let sent = record.get(DIRECTION) == Some(&OUTGOING);
                let interface = if sent { OUT as u32 } else { 0 };
                let frame = Frame {
                    data,
                    wire_len: u32_at::<NATIVE_BE>(header, 16),
                    interface,
                };
                Step::Packet(frame, pos + to_next)
            }
            _ => Step::Stop(damaged("a packet lies outside its record")),
        }
    }

    /// A block is short and never needs a second cursor.
    fn guess(&self, _: &[u8], _: usize, _: usize) -> Option<usize> {
        None
    }
}

#[cold]
fn damaged(why: &'static str) -> Stop {
    Stop::Fault(Fault::Ring(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;
    use crate::savefile::walk::{Cursor, Visit, walk};
    use crate::savefile::{Interface, Layout, Resolution, Stop};

    #[derive(Default)]
    struct Seen(Vec<(u32, Vec<u8>, u32)>);

    impl Visit for Seen {
        fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
            let each = records.iter().zip(frames);
            self.0
                .extend(each.map(|(&at, frame)| (at, frame.data.to_vec(), frame.wire_len)));
            true
        }
    }

    fn eth() -> Layout {
        Layout::ring(Interface::plain(
            LinkType::ETHERNET,
            0,
            Resolution::NANOSECOND,
        ))
    }

    /// A record in the layout of linux/if_packet.h: the frame at `mac`, the next record at `next`.
    fn record(next: u32, mac: u16, time: (u32, u32), data: &[u8], wire: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [next, time.0, time.1, data.len() as u32, wire, 1] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(mac.to_ne_bytes());
        bytes.extend([0xaa; 22]);
        assert_eq!(bytes.len(), HEADER);
        bytes.resize(usize::from(mac), 0xbb);
        bytes.extend(data);
        bytes.resize(bytes.len().max(next as usize), 0xcc);
        bytes
    }

    fn walked(bytes: &[u8]) -> (Vec<(u32, Vec<u8>, u32)>, Cursor) {
        let (mut seen, mut cursor) = (Seen::default(), [Cursor::new(0, bytes.len())]);
        walk(&eth(), bytes, true, &mut cursor, &mut seen);
        (seen.0, cursor[0])
    }

    #[test]
    fn a_block_is_read_from_its_first_record_to_its_last() {
        let mut bytes = record(128, 82, (7, 8), b"first", 5);
        bytes.extend(record(112, 86, (7, 9), b"cut here", 1500));
        bytes.extend(record(0, 82, (4_000_000_000, 999_999_999), b"", 60));
        bytes.extend([0; 9]);
        let (seen, cursor) = walked(&bytes[..240]);
        assert_eq!(
            (seen.len(), cursor.pos, cursor.stop),
            (2, 240, Some(Stop::End)),
            "a run ends where a record leads"
        );
        let (seen, cursor) = walked(&bytes);
        assert_eq!(
            seen,
            [
                (0, b"first".to_vec(), 5),
                (128, b"cut here".to_vec(), 1500),
                (240, Vec::new(), 60)
            ]
        );
        assert_eq!((cursor.pos, cursor.stop), (bytes.len(), Some(Stop::End)));
        let time = |at| eth().record(&bytes, at).and_then(|record| record.time_ns);
        assert_eq!(time(0), Some(7_000_000_008));
        assert_eq!(time(240), Some(4_000_000_000_999_999_999));
        assert!(eth().record(&bytes, bytes.len() - 3).is_none());
    }

    #[test]
    fn what_was_sent_is_of_another_place_in_the_table() {
        use crate::savefile::Direction::{In, Out};
        let layout = eth();
        // PACKET_HOST, BROADCAST, MULTICAST, OTHERHOST, OUTGOING, and an undefined value.
        for (kind, direction) in [(0, In), (1, In), (2, In), (3, In), (4, Out), (9, In)] {
            let mut bytes = record(0, 82, (1, 2), b"frame", 5);
            bytes[58] = kind;
            let interface = layout.record(&bytes, 0).unwrap().frame.interface as usize;
            assert_eq!(layout.direction(interface), Some(direction), "{kind}");
        }
        assert_eq!(layout.interfaces[0], layout.interfaces[1]);
        let any = Layout::ring(Interface::plain(
            LinkType::LINUX_SLL2,
            0,
            Resolution::NANOSECOND,
        ));
        assert_eq!([0, 1].map(|place| any.direction(place)), [None, None]);
        let slots = Layout::slots(Interface::plain(
            LinkType::ETHERNET,
            0,
            Resolution::NANOSECOND,
        ));
        assert_eq!([0, 1].map(|place| slots.direction(place)), [Some(In), None]);
    }

    #[test]
    fn lengths_that_lead_outside_are_faults() {
        let whole = [
            record(128, 82, (1, 2), b"first", 5),
            record(0, 82, (1, 2), b"second", 6),
        ]
        .concat();
        let with = |at: usize, bytes: &[u8]| {
            let mut damaged = whole.clone();
            damaged[at..at + bytes.len()].copy_from_slice(bytes);
            let (seen, cursor) = walked(&damaged);
            assert!(
                matches!(cursor.stop, Some(Stop::Fault(Fault::Ring(_)))),
                "{at} {bytes:?}: {cursor:?}"
            );
            (seen.len(), cursor.pos)
        };
        assert_eq!(with(0, &1u32.to_ne_bytes()), (0, 0));
        assert_eq!(with(0, &47u32.to_ne_bytes()), (0, 0));
        assert_eq!(with(0, &(whole.len() as u32 + 1).to_ne_bytes()), (0, 0));
        assert_eq!(with(128, &u32::MAX.to_ne_bytes()), (1, 128));
        assert_eq!(with(12, &47u32.to_ne_bytes()), (0, 0));
        assert_eq!(with(140, &u32::MAX.to_ne_bytes()), (1, 128));
        assert_eq!(with(24, &47u16.to_ne_bytes()), (0, 0));
        assert_eq!(with(24, &128u16.to_ne_bytes()), (0, 0));
        for cut in 1..whole.len() {
            let (seen, cursor) = walked(&whole[..cut]);
            // A run may end where a record's successor would begin. Only the expected number of packets shows that one is
            // missing.
            assert_eq!(
                (seen.len() < 2, cursor.stop == Some(Stop::End)),
                (true, cut == 128),
                "{cut}"
            );
        }
    }
}
