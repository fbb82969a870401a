//! Packets that lie in the slots of a memory area, each behind a header of ours that leads to the next one.
//!
//! ```text
//! header, 16 bytes, native byte order
//!  0 offset of the next packet's header in the area, LAST in the last one (u32)
//!  4 length (u32)    8 nanoseconds since 1970 (i64)    16 the frame
//! ```
//! Header and frame share a cache line where the slot begins on one: a filter touches one line per packet. The packets of a
//! burst need not lie in order.

use super::walk::{Step, Walker};
use super::{Fault, Record, Stop};
use crate::Frame;

/// Bytes of a header; the frame is behind it.
pub const HEADER: usize = 16;

/// What the last header has instead of a next one.
pub const LAST: u32 = u32::MAX;

/// A header's bytes.
#[inline]
pub fn header(next: u32, len: u32, time_ns: i64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&next.to_ne_bytes());
    bytes[4..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..].copy_from_slice(&time_ns.to_ne_bytes());
    bytes
}

/// Steps over the packets of a burst in their area.
pub(super) struct Codec;

impl Codec {
    #[inline(always)]
    pub(super) fn record<'a>(&self, buf: &'a [u8], pos: usize) -> Option<Record<'a>> {
        let rest = buf.get(pos..)?;
        let (header, rest) = rest.split_first_chunk::<HEADER>()?;
        let [_, len] = words(header);
        let data = rest.get(..len as usize)?;
        let time = i64::from_ne_bytes(*header.last_chunk().expect("a header ends with eight bytes of time"));
        Some(Record { time_ns: Some(time), frame: Frame { data, wire_len: len, interface: 0 } })
    }
}

/// The next header's place, and the length.
#[inline]
fn words(header: &[u8; HEADER]) -> [u32; 2] {
    [0, 4].map(|at| u32::from_ne_bytes(header[at..at + 4].try_into().expect("a slice of four has four bytes")))
}

impl Walker for Codec {
    #[inline(always)]
    fn step<'a>(&self, buf: &'a [u8], pos: usize) -> Step<'a> {
        let Some((header, rest)) = buf[pos..].split_first_chunk::<HEADER>() else {
            return Step::Stop(damaged("a packet's header lies outside its memory"));
        };
        let [next, len] = words(header);
        match rest.get(..len as usize) {
            Some(data) => {
                let next = if next == LAST { buf.len() } else { (next as usize).min(buf.len()) };
                Step::Packet(Frame { data, wire_len: len, interface: 0 }, next)
            }
            None => Step::Stop(damaged("a packet lies outside its memory")),
        }
    }

    /// A burst is short and never needs a second cursor.
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
    use crate::savefile::{Interface, Layout, Resolution};

    #[derive(Default)]
    struct Seen(Vec<(u32, Vec<u8>)>);

    impl Visit for Seen {
        fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
            self.0.extend(records.iter().zip(frames).map(|(&at, frame)| (at, frame.data.to_vec())));
            true
        }
    }

    /// Three packets in slots of 64 bytes, the last slot first.
    fn area() -> Vec<u8> {
        let mut area = vec![0xee; 256];
        let mut put = |slot: usize, next: u32, time: i64, data: &[u8]| {
            let at = slot * 64;
            area[at..at + HEADER].copy_from_slice(&header(next, data.len() as u32, time));
            area[at + HEADER..at + HEADER + data.len()].copy_from_slice(data);
        };
        put(3, 64, 5, b"first");
        put(1, 0, 4_000_000_000_999_999_999, &[7; 48]);
        put(0, LAST, -1, b"");
        area
    }

    fn walked(area: &[u8], first: usize) -> (Vec<(u32, Vec<u8>)>, Cursor) {
        let layout = Layout::slots(Interface::plain(LinkType::ETHERNET, 0, Resolution::NANOSECOND));
        let (mut seen, mut cursor) = (Seen::default(), [Cursor::new(first, area.len())]);
        walk(&layout, area, true, &mut cursor, &mut seen);
        (seen.0, cursor[0])
    }

    #[test]
    fn a_burst_is_read_in_its_order_wherever_its_packets_lie() {
        let area = area();
        let (seen, cursor) = walked(&area, 192);
        assert_eq!(seen, [(192, b"first".to_vec()), (64, vec![7; 48]), (0, Vec::new())]);
        assert_eq!((cursor.pos, cursor.stop), (area.len(), Some(Stop::End)));
        let layout = Layout::slots(Interface::plain(LinkType::ETHERNET, 0, Resolution::NANOSECOND));
        let time = |at| layout.record(&area, at).and_then(|record| record.time_ns);
        assert_eq!([time(192), time(64), time(0)], [Some(5), Some(4_000_000_000_999_999_999), Some(-1)]);
        assert_eq!(time(250), None);
    }

    #[test]
    fn what_lies_outside_is_a_fault() {
        let mut longer = area();
        longer[4..8].copy_from_slice(&241u32.to_ne_bytes());
        let (seen, cursor) = walked(&longer, 192);
        assert!(matches!(cursor.stop, Some(Stop::Fault(Fault::Ring(_)))) && seen.len() == 2, "{cursor:?}");
        let mut far = area();
        far[192..196].copy_from_slice(&250u32.to_ne_bytes());
        let (seen, cursor) = walked(&far, 192);
        assert!(matches!(cursor.stop, Some(Stop::Fault(Fault::Ring(_)))) && seen.len() == 1, "{cursor:?}");
    }
}
