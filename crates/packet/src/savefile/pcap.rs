//! The classic pcap format: a 24-byte file header, then records of a 16-byte header and the captured bytes.
//!
//! ```text
//! file   0 magic  4 major  6 minor  8 thiszone  12 sigfigs  16 snaplen  20 FCS/flags/link type
//! record 0 seconds  4 fraction  8 captured length  12 wire length  16 data ...
//! ```

use super::bytes::{u16_at, u32_at};
use super::walk::{Step, Walker};
use super::{Fault, Format, Interface, Layout, Record, Resolution, Stop, short};
use crate::{Frame, LinkType};

pub(super) const FILE_HEADER: usize = 24;
pub(super) const RECORD_HEADER: usize = 16;

/// Order in which old versions stored the two lengths of a record (libpcap `sf-pcap.c`, `lengths_swapped`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    /// Captured, then wire: version 2.4.
    Normal,
    /// Wire, then captured: before 2.3.
    Swapped,
    /// Version 2.3 exists in both orders: swapped if captured > wire.
    Either,
}

/// Reads the file header. `resolution` follows from the magic.
pub(super) fn read_header(
    buf: &[u8],
    eof: bool,
    big_endian: bool,
    resolution: Resolution,
) -> Result<(Layout, usize), Stop> {
    if buf.len() < FILE_HEADER {
        return Err(short(
            "the pcap file header",
            buf,
            0,
            FILE_HEADER as u64,
            eof,
        ));
    }
    let (major, minor, snaplen, link) = if big_endian {
        fields::<true>(buf)
    } else {
        fields::<false>(buf)
    };
    let lengths = match (major, minor) {
        (2, 4) => Lengths::Normal,
        (2, 3) | (543, 0) => Lengths::Either,
        (2, 0..=2) => Lengths::Swapped,
        _ => {
            return Err(Stop::Fault(Fault::Version {
                format: "pcap",
                major,
                minor,
                known: "2.0 to 2.4",
            }));
        }
    };
    // The upper bits hold an FCS length and flags (draft-ietf-opsawg-pcap, section 4).
    let link = link & 0x03ff_ffff;
    let Ok(link) = u16::try_from(link) else {
        return Err(Stop::Fault(Fault::LinkType(link)));
    };
    let interface = Interface::plain(LinkType(link), snaplen, resolution);
    Ok((
        Layout::of(Format::Pcap, big_endian, vec![interface], lengths),
        FILE_HEADER,
    ))
}

fn fields<const BE: bool>(buf: &[u8]) -> (u16, u16, u32, u32) {
    (
        u16_at::<BE>(buf, 4),
        u16_at::<BE>(buf, 6),
        u32_at::<BE>(buf, 16),
        u32_at::<BE>(buf, 20),
    )
}

/// Steps over pcap records.
///
/// A record longer than the snap length of the file's header is read whole, as in pcapng: its bytes are there. libpcap hands on
/// only the first of them, without a word.
pub(super) struct Codec<const BE: bool> {
    max_captured: u32,
    /// A captured length from this one on is checked again: it is absurd, or the two lengths may be
    /// in another order.
    usual_below: u32,
    snaplen: u32,
    resolution: Resolution,
    /// Nanoseconds of a tick, if that is a whole number.
    unit: Option<u32>,
    lengths: Lengths,
    eof: bool,
}

impl<const BE: bool> Codec<BE> {
    pub(super) fn new(layout: &Layout, eof: bool) -> Self {
        let interface = &layout.interfaces[0];
        let max_captured = interface.max_captured();
        Self {
            max_captured,
            usual_below: if layout.lengths == Lengths::Normal {
                max_captured + 1
            } else {
                0
            },
            snaplen: interface.snaplen,
            resolution: interface.resolution,
            unit: interface.resolution.unit_ns(),
            lengths: layout.lengths,
            eof,
        }
    }

    /// Captured and wire length of a record header.
    #[inline(always)]
    fn lengths(&self, header: &[u8; RECORD_HEADER]) -> (u32, u32) {
        let (first, second) = (u32_at::<BE>(header, 8), u32_at::<BE>(header, 12));
        match self.lengths {
            Lengths::Normal => (first, second),
            Lengths::Swapped => (second, first),
            Lengths::Either => (first.min(second), first.max(second)),
        }
    }

    /// If a record header may be at `pos`, returns its time in seconds and the offset after the
    /// record.
    #[inline(always)]
    fn plausible(&self, buf: &[u8], pos: usize) -> Option<(u32, usize)> {
        let header = buf[pos..].first_chunk()?;
        let (captured, wire) = self.lengths(header);
        let fraction = u32_at::<BE>(header, 4);
        let ok = captured <= self.max_captured
            && wire != 0
            && captured <= wire
            && wire <= self.max_captured.max(65_535 + 18)
            && u64::from(fraction) < self.resolution.per_second();
        ok.then(|| {
            (
                u32_at::<BE>(header, 0),
                pos + RECORD_HEADER + captured as usize,
            )
        })
    }

    #[inline(always)]
    pub(super) fn record<'a>(&self, buf: &'a [u8], pos: usize) -> Option<Record<'a>> {
        let header: &[u8; RECORD_HEADER] = buf[pos..].first_chunk()?;
        let Step::Packet(frame, _) = self.step(buf, pos) else {
            return None;
        };
        let (seconds, ticks) = (u32_at::<BE>(header, 0), u32_at::<BE>(header, 4));
        let time_ns = match self.unit {
            // Both products are of 32-bit numbers, so the sum fits 64 bits.
            Some(unit) => {
                (u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * u64::from(unit)) as i64
            }
            None => self.resolution.to_ns(ticks.into(), seconds.into()),
        };
        Some(Record {
            time_ns: Some(time_ns),
            frame,
            options: Default::default(),
        })
    }
}

impl<'a, const BE: bool> Walker<'a> for Codec<BE> {
    #[inline(always)]
    fn step(&self, buf: &'a [u8], pos: usize) -> Step<'a> {
        let Some((header, body)) = buf[pos..].split_first_chunk::<RECORD_HEADER>() else {
            return Step::Stop(short(
                "a record header",
                buf,
                pos,
                RECORD_HEADER as u64,
                self.eof,
            ));
        };
        let (first, mut wire_len) = (u32_at::<BE>(header, 8), u32_at::<BE>(header, 12));
        let mut captured = first as usize;
        if first >= self.usual_below {
            (captured, wire_len) = self.unusual(header);
        }
        match body.get(..captured) {
            Some(data) => Step::Packet(
                Frame {
                    data,
                    wire_len,
                    interface: 0,
                },
                pos + RECORD_HEADER + captured,
            ),
            None => Step::Stop(self.refused(captured, header, body.len())),
        }
    }

    fn guess(&self, buf: &[u8], from: usize, to: usize) -> Option<usize> {
        /// Number of plausible records in a row that make a start.
        const CHAIN: usize = 6;
        /// Largest plausible distance in time of neighbouring records, s.
        const NEAR_S: u32 = 86_400;
        let last = buf.len().saturating_sub(RECORD_HEADER);
        'candidate: for start in from..to.min(last) {
            let Some((mut time, mut next)) = self.plausible(buf, start) else {
                continue;
            };
            for _ in 1..CHAIN {
                if next == buf.len() && self.eof {
                    break;
                }
                if next > last {
                    // The bytes end before the chain is long enough. Such a chain is trusted only if it ends exactly with
                    // the bytes.
                    continue 'candidate;
                }
                match self.plausible(buf, next) {
                    Some((t, n)) if t.abs_diff(time) <= NEAR_S => (time, next) = (t, n),
                    _ => continue 'candidate,
                }
            }
            return Some(start);
        }
        None
    }
}

impl<const BE: bool> Codec<BE> {
    /// Captured and wire length of a record whose lengths may be in another order; `usize::MAX` stands for an absurd one, since no
    /// bytes have that length. **Cost**: a call; only files of versions before 2.4 have many such records.
    ///
    /// The result fits two registers: a whole [`Step`] would go through memory, for each record.
    #[cold]
    #[inline(never)]
    fn unusual(&self, header: &[u8; RECORD_HEADER]) -> (usize, u32) {
        let (captured, wire_len) = self.lengths(header);
        let captured = if captured > self.max_captured {
            usize::MAX
        } else {
            captured as usize
        };
        (captured, wire_len)
    }

    /// Reason for which a record of this captured length has no packet, if `have` bytes are after
    /// its header. Others may change a mapped header in the meantime, so that the length is the one
    /// that was judged; only the figure of an absurd one is read again.
    #[cold]
    fn refused(&self, captured: usize, header: &[u8; RECORD_HEADER], have: usize) -> Stop {
        if captured == usize::MAX {
            let (claims, _) = self.lengths(header);
            return Stop::Fault(Fault::AbsurdLength {
                claims,
                snaplen: self.snaplen,
            });
        }
        let have = have as u64;
        let claims = captured as u64;
        if self.eof {
            Stop::Fault(Fault::ShortData {
                what: "a packet",
                claims,
                have,
            })
        } else {
            Stop::NeedMore(RECORD_HEADER as u64 + claims)
        }
    }
}
