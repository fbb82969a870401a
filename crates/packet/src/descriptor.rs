//! Descriptors of frames: the place of each frame of a batch, in a form that every language reads.

use crate::savefile::{Bytes, Layout};
use core::ptr;

/// Descriptor of a frame.
///
/// **Layout**: 32 bytes, aligned to 8, native byte order.
/// ```text
///  0 offset (u64)     8 time_ns (i64)
/// 16 captured (u32)  20 wire_len (u32)  24 interface (u32)  28 flags (u32)
/// ```
/// The same in C:
/// ```c
/// struct weir_descriptor {
///     uint64_t offset;
///     int64_t time_ns;
///     uint32_t captured, wire_len, interface, flags;
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Offset of the frame's first byte in the [region](region()) of its batch, bytes. An empty frame may have the offset 0.
    pub offset: u64,
    /// Time of capture, ns since 1970; `i64::MIN` if the frame has no timestamp
    /// ([`Self::NO_TIME`]).
    pub time_ns: i64,
    /// Captured length, bytes from `offset` on. All of them lie in the region.
    pub captured: u32,
    /// Length on the wire without FCS and preamble, bytes. The wire length may exceed `captured`, and in odd files be less.
    pub wire_len: u32,
    /// Index in [`Layout::interfaces`].
    pub interface: u32,
    /// Flags: [`Self::NO_TIME`]. All other bits are 0, and readers must ignore them.
    pub flags: u32,
}

impl Descriptor {
    /// Flag of a frame without a timestamp.
    pub const NO_TIME: u32 = 1;

    /// Descriptor of an empty frame, for an offset at which no record lies.
    const EMPTY: Self = Self {
        offset: 0,
        time_ns: i64::MIN,
        captured: 0,
        wire_len: 0,
        interface: 0,
        flags: Self::NO_TIME,
    };
}

/// Smallest region of memory that holds all frames in `bytes`: address and length.
///
/// If the records lie back to back, the region is the slice that holds them. The frames of a burst lie apart. Its region
/// begins with the frame of the lowest address and ends with the frame of the highest. **Safety** for readers: other
/// threads, the kernel or a device may write to a burst's region between its frames. Only the bytes that a [`Descriptor`]
/// names may be read, and only while the batch is held.
pub fn region(bytes: Bytes<'_>) -> *const [u8] {
    match bytes {
        Bytes::Slice(bytes) => bytes,
        Bytes::Slots(slots) => {
            // One pointer reaches all frames, each of which lies in an allocation of its own for the language.
            let starts = || {
                slots
                    .frames
                    .iter()
                    .filter(|frame| !frame.is_empty())
                    .map(|frame| frame.as_ptr().expose_provenance())
            };
            let ends = || {
                slots
                    .frames
                    .iter()
                    .filter(|frame| !frame.is_empty())
                    .map(|frame| frame.as_ptr_range().end.addr())
            };
            let first = starts().min().unwrap_or(0);
            let len = ends().max().unwrap_or(first) - first;
            ptr::slice_from_raw_parts(ptr::with_exposed_provenance(first), len)
        }
    }
}

impl Layout {
    /// Descriptors of the frames of the records at `at`: offsets that a walk over `bytes` has passed. Their frames lie in the
    /// [region](region()) of `bytes`.
    ///
    /// **Cost**: one allocation, and a second read of each record's header.
    pub fn descriptors<'a>(&self, bytes: impl Into<Bytes<'a>>, at: &[u32]) -> Vec<Descriptor> {
        let mut descriptors = Vec::new();
        self.descriptors_into(bytes, at, &mut descriptors);
        descriptors
    }

    /// Writes the same descriptors into a vector, whose memory is used again.
    pub fn descriptors_into<'a>(
        &self,
        bytes: impl Into<Bytes<'a>>,
        at: &[u32],
        descriptors: &mut Vec<Descriptor>,
    ) {
        let bytes = bytes.into();
        let base = region(bytes).addr();
        descriptors.clear();
        descriptors.reserve(at.len());
        self.records(bytes, at, |_, record| {
            let of = |record: crate::savefile::Record<'a>| Descriptor {
                offset: if record.frame.data.is_empty() {
                    0
                } else {
                    (record.frame.data.as_ptr().addr() - base) as u64
                },
                time_ns: record.time_ns.unwrap_or(i64::MIN),
                captured: record.frame.data.len() as u32,
                wire_len: record.frame.wire_len,
                interface: record.frame.interface,
                flags: if record.time_ns.is_some() {
                    0
                } else {
                    Descriptor::NO_TIME
                },
            };
            descriptors.push(record.map_or(Descriptor::EMPTY, of));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;
    use crate::savefile::slots::Slots;
    use crate::savefile::{Interface, Resolution};
    use core::mem::offset_of;
    use weir_testkit::savefile::Pcapng;

    fn ethernet() -> Interface {
        Interface::plain(LinkType::ETHERNET, 65_535, Resolution::NANOSECOND)
    }

    #[test]
    fn a_descriptor_is_laid_out_as_its_documentation_says() {
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (32, 8));
        let offsets = [
            offset_of!(Descriptor, offset),
            offset_of!(Descriptor, time_ns),
            offset_of!(Descriptor, captured),
            offset_of!(Descriptor, wire_len),
            offset_of!(Descriptor, interface),
            offset_of!(Descriptor, flags),
        ];
        assert_eq!(offsets, [0, 8, 16, 20, 24, 28]);
    }

    /// Blocks made by hand: the offsets are counted, not computed by the code under test.
    #[test]
    fn records_back_to_back_are_found_in_their_slice() {
        let mut file = Pcapng::new(false);
        file.interface(1, 0, 6);
        file.interface(1, 0, 9);
        let begin = file.bytes.len() as u32;
        file.enhanced(1, 1500, b"cut");
        file.simple(5, b"whole");
        file.enhanced(0, 0, b"");
        // Block headers of 28 and 12 bytes; blocks of 36, 24 and 32 bytes.
        let at = [begin, begin + 36, begin + 60];
        let (mut layout, mut pos) = Layout::read(&file.bytes, true).unwrap();
        while layout.is_layout_block(&file.bytes, pos) {
            pos = layout.apply(&file.bytes, pos, true).unwrap();
        }
        assert_eq!(pos, begin as usize);
        let found = layout.descriptors(&file.bytes, &at);
        // Ticks of 1 ns, the resolution of the second interface, then of 1 us.
        let expected = [
            Descriptor {
                offset: u64::from(begin) + 28,
                time_ns: 1_700_000_000_000_000,
                captured: 3,
                wire_len: 1500,
                interface: 1,
                flags: 0,
            },
            Descriptor {
                offset: u64::from(begin) + 48,
                time_ns: i64::MIN,
                captured: 5,
                wire_len: 5,
                interface: 0,
                flags: Descriptor::NO_TIME,
            },
            Descriptor {
                offset: 0,
                time_ns: 1_700_000_000_000_001_000,
                captured: 0,
                wire_len: 0,
                interface: 0,
                flags: 0,
            },
        ];
        assert_eq!(found, expected);
        assert_eq!(region((&file.bytes).into()), &raw const file.bytes[..]);
        assert_eq!(
            layout.descriptors(&file.bytes, &[begin + 4]),
            [Descriptor::EMPTY],
            "no record is there"
        );
    }

    #[test]
    fn frames_of_a_burst_are_found_wherever_they_lie() {
        let memory: Vec<u8> = (0..200).collect();
        let frames: [&[u8]; 4] = [&memory[150..160], &memory[30..31], &[], &memory[60..150]];
        let slots = Slots {
            frames: &frames,
            time_ns: -7,
        };
        let region = region(slots.into());
        assert_eq!(
            (region.cast::<u8>(), region.len()),
            (memory[30..].as_ptr(), 130)
        );
        let found = Layout::slots(ethernet()).descriptors(slots, &[3, 0, 1, 2]);
        let places: Vec<_> = found
            .iter()
            .map(|found| (found.offset, found.captured, found.time_ns))
            .collect();
        assert_eq!(
            places,
            [(30, 90, -7), (120, 10, -7), (0, 1, -7), (0, 0, -7)]
        );
        let empty = Slots {
            frames: &frames[2..3],
            time_ns: 0,
        };
        assert_eq!(super::region(empty.into()).len(), 0);
        assert_eq!(
            Layout::slots(ethernet()).descriptors(empty, &[0])[0].captured,
            0
        );
    }
}
