//! Work that a sender left to its interface, done before a frame is sent on: checksums that are not filled in, and TCP segments that are
//! merged beyond the MTU.
//!
//! A sender on the same machine, or at a virtual interface, hands over frames whose checksum field
//! holds only the sum of the pseudo header, and segments of up to 64 KiB; a receiving interface
//! merges segments (GRO). An interface that sends raw frames takes them as they are, so they would
//! arrive broken, or not at all.
//!
//! **How they are recognised.** A frame is unfinished if its checksum field is the sum of its pseudo
//! header, which a finished frame has in one of 65 536 cases; its checksum is the same when it is
//! computed again. A frame that is longer than the MTU is cut into segments of the MTU: the size of
//! the original segments is not known. **Source**: RFC 1071, RFC 9293;
//! Documentation/networking/segmentation-offloads.rst.

use std::ops::Range;

const ETHERNET: usize = 14;
const TAG: usize = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Offset of the checksum in a TCP header, and in a UDP header.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// Flags of a TCP header, at offset 13.
const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Work that is left to do on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The checksum.
    Checksum(Transport),
    /// The cut into segments, and their checksums.
    Segments(Transport),
}

/// Places of the headers of a TCP or UDP packet that is not a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    ip: usize,
    is_v6: bool,
    protocol: u8,
    /// Offsets of the TCP or UDP header, and of the end of the packet.
    header: usize,
    end: usize,
}

/// Returns the work that is left to do on a frame, for an interface with packets of up to `mtu` bytes.
pub(super) fn left(frame: &[u8], mtu: usize) -> Option<Left> {
    let transport = Transport::of(frame)?;
    let is_unfinished = transport.is_unfinished(frame);
    if transport.end - transport.ip > mtu {
        return (transport.protocol == TCP).then_some(Left::Segments(transport));
    }
    is_unfinished.then_some(Left::Checksum(transport))
}

/// Does the work that is left on a frame, and calls `give` for each frame that results. `scratch` is for the bytes of one frame.
pub(super) fn finish<E>(
    frame: &[u8],
    left: Left,
    mtu: usize,
    scratch: &mut Vec<u8>,
    mut give: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    match left {
        Left::Checksum(transport) => {
            scratch.clear();
            scratch.extend_from_slice(frame);
            transport.fill_checksum(scratch);
            give(scratch)
        }
        Left::Segments(transport) => transport.segments(frame, mtu, scratch, give),
    }
}

impl Transport {
    fn of(frame: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let mut ip = ETHERNET;
        let mut kind = word(12)?;
        while matches!(kind, 0x8100 | 0x88a8) && ip < ETHERNET + 2 * TAG {
            kind = word(ip + 2)?;
            ip += TAG;
        }
        let length = |at: usize| word(at).map(usize::from);
        let (is_v6, protocol, header, end) = match (kind, frame.get(ip)? >> 4) {
            (0x0800, 4) => {
                let is_fragment = word(ip + 6)? & 0x3fff != 0;
                let header = usize::from(frame[ip] & 15) * 4;
                if is_fragment || header < 20 {
                    return None;
                }
                (
                    false,
                    *frame.get(ip + 9)?,
                    ip + header,
                    ip + length(ip + 2)?,
                )
            }
            (0x86dd, 6) => (
                true,
                *frame.get(ip + 6)?,
                ip + 40,
                ip + 40 + length(ip + 4)?,
            ),
            _ => return None,
        };
        let shortest = match protocol {
            TCP => 20,
            UDP => 8,
            _ => return None,
        };
        (end <= frame.len() && header + shortest <= end).then_some(Self {
            ip,
            is_v6,
            protocol,
            header,
            end,
        })
    }

    fn checksum_at(self) -> usize {
        self.header
            + if self.protocol == TCP {
                TCP_CHECKSUM
            } else {
                UDP_CHECKSUM
            }
    }

    fn addresses(self) -> Range<usize> {
        if self.is_v6 {
            self.ip + 8..self.ip + 40
        } else {
            self.ip + 12..self.ip + 20
        }
    }

    /// Sum of the pseudo header for the packet up to `end`.
    fn pseudo(self, frame: &[u8], end: usize) -> u32 {
        sum(&frame[self.addresses()]) + u32::from(self.protocol) + (end - self.header) as u32
    }

    fn is_unfinished(self, frame: &[u8]) -> bool {
        let at = self.checksum_at();
        let field = u16::from_be_bytes([frame[at], frame[at + 1]]);
        // A UDP packet without a checksum has zero here.
        field != 0 && field == folded(self.pseudo(frame, self.end))
    }

    /// Fills in the checksum of a frame that holds the packet alone.
    fn fill_checksum(self, frame: &mut [u8]) {
        let at = self.checksum_at();
        frame[at..at + 2].fill(0);
        let all =
            self.pseudo(frame, self.end) + u32::from(folded(sum(&frame[self.header..self.end])));
        let checksum = match !folded(all) {
            // UDP writes a sum of zero in this way, since zero means none.
            0 if self.protocol == UDP => u16::MAX,
            checksum => checksum,
        };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    fn segments<E>(
        self,
        frame: &[u8],
        mtu: usize,
        scratch: &mut Vec<u8>,
        mut give: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let payload = self.header + usize::from(frame[self.header + 12] >> 4) * 4;
        let headers = payload - self.ip;
        // An MTU without room for data, and a header that is none, leave the frame as it is: the interface refuses it.
        if payload > self.end || payload < self.header + 20 || mtu <= headers {
            return give(frame);
        }
        let number = |at: usize| {
            u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
        };
        let (sequence, flags) = (number(self.header + 4), frame[self.header + 13]);
        let identification = u16::from_be_bytes([frame[self.ip + 4], frame[self.ip + 5]]);
        let pieces = frame[payload..self.end].chunks(mtu - headers);
        let last = pieces.len() - 1;
        let mut offset = 0;
        for (number, piece) in pieces.enumerate() {
            scratch.clear();
            scratch.extend_from_slice(&frame[..payload]);
            scratch.extend_from_slice(piece);
            let end = scratch.len();
            let put = |scratch: &mut Vec<u8>, at: usize, bytes: &[u8]| {
                scratch[at..at + bytes.len()].copy_from_slice(bytes)
            };
            if self.is_v6 {
                put(
                    scratch,
                    self.ip + 4,
                    &((end - self.ip - 40) as u16).to_be_bytes(),
                );
            } else {
                put(
                    scratch,
                    self.ip + 2,
                    &((end - self.ip) as u16).to_be_bytes(),
                );
                put(
                    scratch,
                    self.ip + 4,
                    &identification.wrapping_add(number as u16).to_be_bytes(),
                );
                put(scratch, self.ip + 10, &[0; 2]);
                let checksum = !folded(sum(&scratch[self.ip..self.header]));
                put(scratch, self.ip + 10, &checksum.to_be_bytes());
            }
            put(
                scratch,
                self.header + 4,
                &sequence.wrapping_add(offset).to_be_bytes(),
            );
            let cleared =
                if number < last { FIN_AND_PSH } else { 0 } | if number > 0 { CWR } else { 0 };
            scratch[self.header + 13] = flags & !cleared;
            Self { end, ..self }.fill_checksum(scratch);
            offset += piece.len() as u32;
            give(scratch)?;
        }
        Ok(())
    }
}

/// Sum of 16-bit words; a last odd byte is the upper half of a word. At most 64 KiB.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let odd = words
        .remainder()
        .first()
        .map_or(0, |&byte| u32::from(byte) << 8);
    words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum::<u32>()
        + odd
}

/// Sum of two halves, whose complement is a checksum.
pub(crate) fn folded(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + (once & 0xffff)) as u16
}

#[cfg(test)]
mod tests;
