//! Packets of a burst, each in a slot of its own somewhere in memory, and all with one time.
//!
//! The memory around the slots belongs to a device, the kernel or other bursts, which may write to it at any time. So there is
//! no slice over all of it, but one slice for each packet. The offset of a record is the index of its packet in the burst.

use super::walk::{Step, Walker};
use super::{Bytes, Fault, Record, Stop};
use crate::Frame;

/// Packets that were received together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots<'a> {
    /// The bytes of each packet.
    pub frames: &'a [&'a [u8]],
    /// Time at which the packets were received, ns since 1970.
    pub time_ns: i64,
}

/// Steps over the packets of a burst.
pub(super) struct Codec<'a>(Slots<'a>);

impl<'a> Codec<'a> {
    pub(super) fn new(bytes: Bytes<'a>) -> Self {
        match bytes {
            Bytes::Slots(slots) => Self(slots),
            Bytes::Slice(_) => Self(Slots::default()),
        }
    }

    #[inline(always)]
    pub(super) fn record(&self, _: &[u8], pos: usize) -> Option<Record<'a>> {
        let data = self.0.frames.get(pos)?;
        Some(Record {
            time_ns: Some(self.0.time_ns),
            frame: frame(data),
            options: Default::default(),
        })
    }
}

#[inline(always)]
fn frame(data: &[u8]) -> Frame<'_> {
    Frame {
        data,
        wire_len: data.len() as u32,
        interface: 0,
    }
}

impl<'a> Walker<'a> for Codec<'a> {
    #[inline(always)]
    fn step(&self, _: &'a [u8], pos: usize) -> Step<'a> {
        match self.0.frames.get(pos) {
            Some(data) => Step::Packet(frame(data), pos + 1),
            None => Step::Stop(Stop::Fault(Fault::Ring(
                "a burst has fewer packets than it says",
            ))),
        }
    }

    /// A burst is short and never needs a second cursor.
    fn guess(&self, _: &[u8], _: usize, _: usize) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;
    use crate::savefile::walk::{Cursor, Visit, walk};
    use crate::savefile::{Interface, Layout, Resolution};

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

    #[test]
    fn a_burst_is_read_in_its_order() {
        let layout = Layout::slots(Interface::plain(
            LinkType::ETHERNET,
            0,
            Resolution::NANOSECOND,
        ));
        let frames: [&[u8]; 3] = [b"first", &[7; 48], b""];
        let slots = Slots {
            frames: &frames,
            time_ns: 4_000_000_000_999_999_999,
        };
        let (mut seen, mut cursor) = (Seen::default(), [Cursor::new(0, Bytes::from(slots).len())]);
        walk(&layout, slots, true, &mut cursor, &mut seen);
        assert_eq!(
            seen.0,
            [
                (0, b"first".to_vec(), 5),
                (1, vec![7; 48], 48),
                (2, Vec::new(), 0)
            ]
        );
        assert_eq!((cursor[0].pos, cursor[0].stop), (3, Some(Stop::End)));
        let record = layout.record(slots, 1).unwrap();
        assert_eq!(
            (record.time_ns, record.frame.data),
            (Some(4_000_000_000_999_999_999), frames[1])
        );
        assert!(layout.record(slots, 3).is_none());
    }

    #[test]
    fn what_is_not_there_is_a_fault() {
        let layout = Layout::slots(Interface::plain(
            LinkType::ETHERNET,
            0,
            Resolution::NANOSECOND,
        ));
        let frames: [&[u8]; 2] = [b"first", b"second"];
        for (bytes, found) in [
            (
                Slots {
                    frames: &frames,
                    time_ns: 0,
                }
                .into(),
                2,
            ),
            (Bytes::from(b"no slots"), 0),
        ] {
            let (mut seen, mut cursor) = (Seen::default(), [Cursor::new(0, 3)]);
            walk(&layout, bytes, true, &mut cursor, &mut seen);
            assert!(
                matches!(cursor[0].stop, Some(Stop::Fault(Fault::Ring(_)))),
                "{cursor:?}"
            );
            assert_eq!(
                (seen.0.len(), layout.record(bytes, 2).is_none()),
                (found, true)
            );
        }
    }
}
