//! Records of packets in RAM: a header of 16 bytes, and the frame after it.
//!
//! ```text
//! header, 16 bytes, little endian
//!  0  bits  0..48  time: ns after the base time of the chunk, two's complement (39 hours each way)
//!     bits 48..60  identifier of the outermost VLAN
//!     bit  60      the frame has a VLAN tag (the tag itself is in the frame)
//!     bit  61      the packet has no time stamp; bits 0..48 are 0
//!     bit  62      the time is too far from the base: bits 0..48 are 0, and the time stands behind the frame (i64, ns since 1970)
//!     bit  63      0
//!  8  bits  0..19  captured length, bytes
//!     bits 19..32  index of the interface
//! 12              length on the wire, bytes (u32)
//! 16  the frame
//! ```
//! The [`Shape`] says at which addresses records begin. If a record begins at a multiple of 64, its first cache line holds the
//! header and 48 bytes of the frame: Ethernet, IPv4 and TCP up to the flags.
//!
//! **Source** of the alignments and the padding: Pudelko, Emmerich, Carle, Effects of Unaligned Memory Access on the Performance of
//! Packet Analyzers, 2017.

use core::fmt;
use core::str::FromStr;
use weir_packet::{Frame, LinkType, savefile};

/// Length of a header, bytes.
pub const HEADER: usize = 16;

/// Largest captured length of a record, bytes.
pub const MAX_CAPTURED: usize = (1 << 19) - 1;

/// Largest number of interfaces.
pub const MAX_INTERFACES: usize = savefile::MAX_INTERFACES;

const TIME_BITS: u32 = 48;
const CAPTURED_BITS: u32 = 19;
const TAGGED: u64 = 1 << 60;
const NO_TIME: u64 = 1 << 61;
const FAR: u64 = 1 << 62;

/// Addresses at which records begin: multiples of `align`, plus 2 if padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    align: u32,
    pad: bool,
}

/// Text that does not name any shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an alignment of records; there are 1, 2, 4, 8, 16, 32, 64, 128, and each with '+2' from 4 on"
)]
pub struct UnknownShape(pub String);

impl Shape {
    /// Records back to back.
    pub const PACKED: Self = Self {
        align: 1,
        pad: false,
    };

    /// Records at multiples of `align` bytes, a power of two up to 128; 2 bytes after these if
    /// `pad`, from 4 bytes on.
    pub fn new(align: u32, pad: bool) -> Option<Self> {
        let fits = align.is_power_of_two() && align <= 128 && (!pad || align >= 4);
        fits.then_some(Self { align, pad })
    }

    /// Alignment, bytes.
    pub fn align(self) -> usize {
        self.align as usize
    }

    /// Padding in front of each record, bytes: 0 or 2.
    pub fn pad(self) -> usize {
        if self.pad { 2 } else { 0 }
    }

    /// First offset at or after `at` where a record may begin, if offset 0 is aligned.
    #[inline]
    pub fn place(self, at: usize) -> usize {
        let (align, pad) = (self.align(), self.pad());
        (at.max(pad) - pad).next_multiple_of(align) + pad
    }
}

/// Records at cache lines: a filter then loads one line for most packets.
impl Default for Shape {
    fn default() -> Self {
        Self {
            align: 64,
            pad: false,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!(
            "{}{}",
            self.align,
            if self.pad { "+2" } else { "" }
        ))
    }
}

impl FromStr for Shape {
    type Err = UnknownShape;

    fn from_str(text: &str) -> Result<Self, UnknownShape> {
        let (align, pad) = text
            .strip_suffix("+2")
            .map_or((text, false), |align| (align, true));
        let shape = align.parse().ok().and_then(|align| Self::new(align, pad));
        shape.ok_or_else(|| UnknownShape(text.to_owned()))
    }
}

/// Number of bytes of a record of a frame with `captured` bytes; its place is not part of it.
#[inline]
fn len(captured: usize, far: bool) -> usize {
    HEADER + captured + if far { 8 } else { 0 }
}

/// Largest number of bytes of a record of a frame with `captured` bytes.
#[inline]
pub fn max_len(captured: usize) -> usize {
    len(captured, true)
}

/// Identifier of the outermost VLAN of a frame, if there is one.
#[inline]
pub fn vlan(link: LinkType, data: &[u8]) -> Option<u16> {
    if link != LinkType::ETHERNET {
        return None;
    }
    let [.., high, low, tag, id] = *data.first_chunk::<16>()?;
    // 802.1Q, 802.1ad, and the type that QinQ had before.
    let tagged = matches!([high, low], [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]);
    tagged.then(|| u16::from_be_bytes([tag, id]) & 0xfff)
}

/// Writes a record to the start of `out`, and returns its length. `base_ns` is the base time of the chunk.
///
/// # Panics
/// If `out` is shorter than [`max_len`], or the frame is longer than [`MAX_CAPTURED`], or its interface is not below
/// [`MAX_INTERFACES`].
#[inline]
pub fn write(
    out: &mut [u8],
    base_ns: i64,
    vlan: Option<u16>,
    record: &savefile::Record<'_>,
) -> usize {
    let Frame {
        data,
        wire_len,
        interface,
    } = record.frame;
    assert!(
        data.len() <= MAX_CAPTURED && (interface as usize) < MAX_INTERFACES,
        "the caller keeps to the limits"
    );
    let mut word = vlan.map_or(0, |id| TAGGED | u64::from(id & 0xfff) << TIME_BITS);
    let mut far = None;
    match record.time_ns {
        None => word |= NO_TIME,
        Some(time_ns) => match time_ns.checked_sub(base_ns) {
            Some(delta) if delta << (64 - TIME_BITS) >> (64 - TIME_BITS) == delta => {
                word |= delta as u64 & ((1 << TIME_BITS) - 1);
            }
            _ => {
                word |= FAR;
                far = Some(time_ns);
            }
        },
    }
    let (header, rest) = out
        .split_first_chunk_mut::<HEADER>()
        .expect("the caller has room for a record");
    header[..8].copy_from_slice(&word.to_le_bytes());
    header[8..12].copy_from_slice(&(data.len() as u32 | interface << CAPTURED_BITS).to_le_bytes());
    header[12..].copy_from_slice(&wire_len.to_le_bytes());
    rest[..data.len()].copy_from_slice(data);
    if let Some(time_ns) = far {
        rest[data.len()..data.len() + 8].copy_from_slice(&time_ns.to_le_bytes());
    }
    len(data.len(), far.is_some())
}

/// Identifier of the outermost VLAN, as the header of the record at the start of `buf` says.
#[inline]
pub fn header_vlan(buf: &[u8]) -> Option<u16> {
    let word = u64::from_le_bytes(*buf.first_chunk()?);
    (word & TAGGED != 0).then_some((word >> TIME_BITS) as u16 & 0xfff)
}

/// Frame of the record at the start of `buf`; `None` if the record is incomplete.
#[inline]
pub fn frame(buf: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = buf.split_first_chunk::<HEADER>()?;
    let sizes = u32::from_le_bytes(*header[8..].first_chunk()?);
    let wire_len = u32::from_le_bytes(*header.last_chunk()?);
    let data = rest.get(..(sizes & MAX_CAPTURED as u32) as usize)?;
    Some(Frame {
        data,
        wire_len,
        interface: sizes >> CAPTURED_BITS,
    })
}

/// Record at the start of `buf`; `None` if the record is incomplete.
#[inline]
pub fn read(buf: &[u8], base_ns: i64) -> Option<savefile::Record<'_>> {
    let frame = frame(buf)?;
    let word = u64::from_le_bytes(*buf.first_chunk()?);
    let time_ns = match word & (NO_TIME | FAR) {
        0 => Some(base_ns.wrapping_add((word << (64 - TIME_BITS)) as i64 >> (64 - TIME_BITS))),
        FAR => {
            let at = HEADER + frame.data.len();
            Some(i64::from_le_bytes(*buf.get(at..at + 8)?.first_chunk()?))
        }
        _ => None,
    };
    Some(savefile::Record {
        time_ns,
        frame,
        options: Default::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::savefile::Record;

    fn of(data: &[u8], wire_len: u32, interface: u32, time_ns: Option<i64>) -> Record<'_> {
        Record {
            time_ns,
            frame: Frame {
                data,
                wire_len,
                interface,
            },
            options: Default::default(),
        }
    }

    #[test]
    fn bytes_are_those_of_the_documentation_in_both_directions() {
        let (base, mut out) = (1_700_000_000_000_000_000, [0xee; 64]);
        // Captured 3, interface 5: 5 << 19 | 3 = 0x0028_0003. VLAN 0xabc. 258 ns after the base.
        let len = write(
            &mut out,
            base,
            Some(0xabc),
            &of(b"abc", 1500, 5, Some(base + 258)),
        );
        let golden = [
            0x02, 0x01, 0, 0, 0, 0, 0xbc, 0x1a, 0x03, 0x00, 0x28, 0x00, 0xdc, 0x05, 0, 0, b'a',
            b'b', b'c', 0xee,
        ];
        assert_eq!((len, &out[..20]), (19, &golden[..]));
        let back = read(&golden, base).unwrap();
        assert_eq!(
            (back.time_ns, back.frame.data),
            (Some(base + 258), &b"abc"[..])
        );
        assert_eq!(
            (
                back.frame.wire_len,
                back.frame.interface,
                header_vlan(&golden)
            ),
            (1500, 5, Some(0xabc))
        );
        // 1 ns before the base.
        write(&mut out, base, None, &of(b"", 60, 0, Some(base - 1)));
        assert_eq!(out[..8], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        // No time.
        write(&mut out, base, None, &of(b"", 60, 0, None));
        assert_eq!(out[..8], [0, 0, 0, 0, 0, 0, 0, 0x20]);
        // A time far away is after the frame.
        let len = write(&mut out, base, None, &of(b"xy", 60, 0, Some(-2)));
        assert_eq!(len, 26);
        assert_eq!(out[..8], [0, 0, 0, 0, 0, 0, 0, 0x40]);
        assert_eq!(
            out[16..26],
            [b'x', b'y', 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
        );
    }

    #[test]
    fn every_time_and_size_is_read_back() {
        let mut out = vec![0; MAX_CAPTURED + HEADER + 8];
        let long = vec![7; MAX_CAPTURED];
        let edge = 1i64 << (TIME_BITS - 1);
        for base in [0, 1_700_000_000_000_000_000, i64::MIN, i64::MAX] {
            let near =
                [-edge - 1, -edge, -1, 0, 1, edge - 1, edge].map(|delta| base.wrapping_add(delta));
            for time_ns in near
                .into_iter()
                .chain([i64::MIN, i64::MAX])
                .map(Some)
                .chain([None])
            {
                for data in [&long[..], &long[..0], &long[..60]] {
                    let record = of(data, u32::MAX, MAX_INTERFACES as u32 - 1, time_ns);
                    let len = write(&mut out, base, None, &record);
                    let back = read(&out[..len], base).unwrap();
                    assert_eq!((back.time_ns, back.frame.data.len()), (time_ns, data.len()));
                    assert_eq!(
                        (back.frame.wire_len, back.frame.interface),
                        (u32::MAX, MAX_INTERFACES as u32 - 1)
                    );
                    assert!(back.frame.data == data && header_vlan(&out).is_none());
                    assert!(
                        read(&out[..len - 1], base).is_none()
                            || len == HEADER + data.len() && data.is_empty()
                    );
                }
            }
        }
    }

    #[test]
    fn records_begin_where_their_shape_says() {
        for align in [1, 2, 4, 8, 16, 32, 64, 128] {
            for pad in [false, true] {
                let Some(shape) = Shape::new(align, pad) else {
                    assert!(pad && align < 4);
                    continue;
                };
                for at in 0..600 {
                    let naive = (at..)
                        .find(|at| at % align as usize == shape.pad())
                        .unwrap();
                    assert_eq!(shape.place(at), naive, "{shape} {at}");
                }
                assert_eq!(shape.to_string().parse(), Ok(shape));
            }
        }
        for text in ["", "0", "3", "256", "2+2", "64+4", "x"] {
            assert!(
                text.parse::<Shape>()
                    .unwrap_err()
                    .to_string()
                    .contains("64, 128"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_outermost_tag_is_seen() {
        let mut frame = [0u8; 18];
        frame[12..16].copy_from_slice(&[0x81, 0x00, 0xe0, 0x2a]);
        assert_eq!(vlan(LinkType::ETHERNET, &frame), Some(42));
        frame[12..14].copy_from_slice(&[0x88, 0xa8]);
        assert_eq!(vlan(LinkType::ETHERNET, &frame), Some(42));
        assert_eq!(
            (
                vlan(LinkType::ETHERNET, &frame[..15]),
                vlan(LinkType::LINUX_SLL2, &frame)
            ),
            (None, None)
        );
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        assert_eq!(vlan(LinkType::ETHERNET, &frame), None);
    }
}
