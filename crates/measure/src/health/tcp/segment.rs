//! Facts of a TCP segment.

use weir_packet::transport::Transport;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// Header fields of a segment (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub seq: u32,
    pub ack: u32,
    /// Window as it is in the header, unscaled.
    pub window: u16,
    pub flags: u8,
    /// Payload, bytes; `None` if the packet is a fragment, or shorter than its header says.
    pub len: Option<u32>,
}

impl Segment {
    /// Reads a segment; `None` if its header is not captured up to the window.
    #[inline]
    pub fn of(transport: &Transport<'_>) -> Option<Self> {
        let head: &[u8; 16] = transport.captured.first_chunk()?;
        let number =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let header = u32::from(head[12] >> 4) * 4;
        let len = transport.len.checked_sub(header);
        Some(Self {
            seq: number(4),
            ack: number(8),
            window: u16::from_be_bytes([head[14], head[15]]),
            flags: head[13],
            len: len.filter(|_| transport.fragment.is_none()),
        })
    }

    /// The sequence number after the segment, of which `len` bytes are payload. SYN and FIN take one together.
    #[inline]
    pub fn end(&self, len: u32) -> u32 {
        self.seq
            .wrapping_add(len)
            .wrapping_add(u32::from(self.flags & (SYN | FIN) != 0))
    }
}
