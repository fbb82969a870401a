//! Packets of any number of sources in one order: the pieces of a merge in time order, and the runs
//! of a sort.
//!
//! ```text
//! header, 24 bytes, native byte order
//!  0 captured length (u32)    4 wire length (u32)    8 interface (u32)
//! 12 bit 0: the packet has a time, bit 1: its options are big-endian, bits 8 to 31: length of its options (u32)
//! 16 place in the order (i64): the time, ns since 1970; if a packet has no time: in a sort the time of the packet before it in
//!    its source, in a merge `i64::MIN`
//! 24 the frame, and the options as in their block; the next header follows at once
//! ```
//! All contents of a [`Record`] are kept: times before 1970, absent times, interfaces of any resolution. The drops of an obsolete
//! packet block alone are not.

use super::options::PacketOptions;
use super::walk::{Step, Walker};
use super::{Fault, Layout, Record, Stop, short};
use crate::Frame;

/// Bytes of a header; the frame is after it.
pub const HEADER: usize = 24;

/// Appends a packet of interface `id`; `key` is its place in the order, ns since 1970.
#[inline]
pub fn append(out: &mut Vec<u8>, id: u32, key: i64, record: &Record<'_>) {
    let frame = &record.frame;
    let mut header = [0; HEADER];
    let options = &record.options;
    // Options of 16 MiB or more have no place here, and nothing writes so many.
    let bytes = if options.bytes.len() < 1 << 24 {
        options.bytes
    } else {
        &[]
    };
    let flags = u32::from(record.time_ns.is_some())
        | u32::from(options.big_endian) << 1
        | (bytes.len() as u32) << 8;
    let words = [frame.data.len() as u32, frame.wire_len, id, flags];
    for (place, word) in header.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    header[16..].copy_from_slice(&key.to_ne_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(frame.data);
    out.extend_from_slice(bytes);
}

/// The place in the order of the packet at `pos`, ns since 1970; `None` if no packet is there.
#[inline]
pub fn key(buf: &[u8], pos: usize) -> Option<i64> {
    Some(i64::from_ne_bytes(
        *buf.get(pos..pos + HEADER)?.last_chunk()?,
    ))
}

/// Header and frame of the packet at the start of `buf`; `None` if it is incomplete.
#[inline]
pub fn first(buf: &[u8]) -> Option<&[u8]> {
    let header = buf.first_chunk::<HEADER>()?;
    buf.get(..HEADER + word(header, 0) as usize + options_len(header))
}

/// Steps over spooled packets.
pub(super) struct Codec {
    interfaces: u32,
    eof: bool,
}

impl Codec {
    pub(super) fn new(layout: &Layout, eof: bool) -> Self {
        Self {
            interfaces: layout.interfaces.len() as u32,
            eof,
        }
    }

    #[inline(always)]
    pub(super) fn record<'a>(&self, buf: &'a [u8], pos: usize) -> Option<Record<'a>> {
        let Step::Packet(frame, _) = self.step(buf, pos) else {
            return None;
        };
        let flags = word(buf, pos + 12);
        let time_ns = (flags & 1 != 0).then(|| key(buf, pos)).flatten();
        let behind = pos + HEADER + frame.data.len();
        let bytes = buf
            .get(behind..behind + options_len(&buf[pos..]))
            .unwrap_or(&[]);
        Some(Record {
            time_ns,
            frame,
            options: PacketOptions {
                bytes,
                big_endian: flags & 2 != 0,
                drops: 0,
            },
        })
    }
}

/// Bytes of the options of the packet with this header.
#[inline]
fn options_len(header: &[u8]) -> usize {
    (word(header, 12) >> 8) as usize
}

/// The 32-bit word at `at`; the caller has checked that it is there.
#[inline]
fn word(buf: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(
        *buf[at..]
            .first_chunk()
            .expect("the caller has seen the whole header"),
    )
}

impl<'a> Walker<'a> for Codec {
    #[inline(always)]
    fn step(&self, buf: &'a [u8], pos: usize) -> Step<'a> {
        let rest = buf.get(pos..).unwrap_or(&[]);
        if rest.len() < HEADER {
            return Step::Stop(short(
                "a spooled packet's header",
                buf,
                pos,
                HEADER as u64,
                self.eof,
            ));
        }
        let [captured, wire_len, interface] = [0, 4, 8].map(|at| word(rest, at));
        if interface >= self.interfaces {
            return Step::Stop(Stop::Fault(Fault::UnknownInterface {
                id: interface,
                count: self.interfaces,
            }));
        }
        let end = HEADER + captured as usize;
        let behind = end + options_len(rest);
        match rest.get(..behind) {
            Some(record) => Step::Packet(
                Frame {
                    data: &record[HEADER..end],
                    wire_len,
                    interface,
                },
                pos + behind,
            ),
            None => Step::Stop(short("a spooled packet", buf, pos, behind as u64, self.eof)),
        }
    }

    /// Pieces and runs are read by one cursor.
    fn guess(&self, _: &[u8], _: usize, _: usize) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;
    use crate::savefile::walk::{Cursor, Visit, walk};
    use crate::savefile::{Interface, Resolution};

    /// Offset, bytes, wire length and interface of each frame.
    type Frames = Vec<(u32, Vec<u8>, u32, u32)>;

    #[derive(Default)]
    struct Seen(Frames);

    impl Visit for Seen {
        fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
            let each = records.iter().zip(frames);
            self.0.extend(
                each.map(|(&at, frame)| (at, frame.data.to_vec(), frame.wire_len, frame.interface)),
            );
            true
        }
    }

    fn layout() -> Layout {
        let interface = Interface::plain(LinkType::ETHERNET, 0, Resolution::NANOSECOND);
        Layout::spool(vec![interface.clone(), interface])
    }

    /// A packet with a time before 1970, and one without a time after it.
    fn spooled() -> Vec<u8> {
        let mut bytes = Vec::new();
        let frame = |data, wire_len| Frame {
            data,
            wire_len,
            interface: 7,
        };
        append(
            &mut bytes,
            1,
            -5,
            &Record {
                time_ns: Some(-5),
                frame: frame(b"first", 1500),
                options: Default::default(),
            },
        );
        append(
            &mut bytes,
            0,
            -5,
            &Record {
                time_ns: None,
                frame: frame(b"", 60),
                options: Default::default(),
            },
        );
        bytes
    }

    fn walked(bytes: &[u8], eof: bool) -> (Frames, Cursor) {
        let (mut seen, mut cursor) = (Seen::default(), [Cursor::new(0, bytes.len())]);
        walk(&layout(), bytes, eof, &mut cursor, &mut seen);
        (seen.0, cursor[0])
    }

    #[test]
    fn packets_come_out_as_they_went_in() {
        let bytes = spooled();
        let words = |values: [u32; 4]| values.map(u32::to_ne_bytes).concat();
        let golden = [
            words([5, 1500, 1, 1]),
            (-5i64).to_ne_bytes().into(),
            b"first".into(),
            words([0, 60, 0, 0]),
            (-5i64).to_ne_bytes().into(),
        ]
        .concat();
        assert_eq!(bytes, golden);
        let (seen, cursor) = walked(&bytes, true);
        assert_eq!(
            seen,
            [(0, b"first".to_vec(), 1500, 1), (29, Vec::new(), 60, 0)]
        );
        assert_eq!((cursor.pos, cursor.stop), (bytes.len(), Some(Stop::End)));
        let times = [0, 29].map(|at| layout().record(&bytes, at).map(|record| record.time_ns));
        assert_eq!(times, [Some(Some(-5)), Some(None)]);
        assert_eq!([key(&bytes, 29), key(&bytes, 30)], [Some(-5), None]);
        assert_eq!(
            [first(&bytes), first(&bytes[..28])],
            [Some(&bytes[..29]), None]
        );
    }

    #[test]
    fn bytes_that_end_early_are_asked_for_or_are_a_fault() {
        let bytes = spooled();
        for cut in (1..bytes.len()).filter(|&cut| cut != 29) {
            let need = match cut {
                0..24 => 24,
                24..29 => 29,
                _ => 24,
            };
            assert_eq!(
                walked(&bytes[..cut], false).1.stop,
                Some(Stop::NeedMore(need)),
                "{cut}"
            );
            assert!(
                matches!(walked(&bytes[..cut], true).1.stop, Some(Stop::Fault(_))),
                "{cut}"
            );
        }
        let mut damaged = bytes;
        damaged[8] = 2;
        let fault = Fault::UnknownInterface { id: 2, count: 2 };
        assert_eq!(walked(&damaged, true).1.stop, Some(Stop::Fault(fault)));
        assert!(layout().record(&damaged, 0).is_none());
    }
}
