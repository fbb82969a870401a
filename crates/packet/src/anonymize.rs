//! Frames with other addresses: what an [`Anonymizer`] writes in place of a frame.
//!
//! ```text
//! link header      link-layer addresses become others                                        link
//! ARP, RARP        addresses of both kinds
//! IP header        addresses, options and routing headers with addresses; checksum           ip
//! ICMP, IGMP       quoted packets, targets, link-layer address options, groups               icmp
//! tunnel           all of this again, up to eight deep                                       transport
//! TCP, UDP         ports stay; options of TCP that are not known become padding; checksums
//! payload          as many bytes as are wanted; the rest is cut off
//! ```
//!
//! **What is not understood is not written**: a frame ends in front of the first header that cannot be taken apart, and counts as
//! [unknown](Kept::unknown). Bytes after the end of a packet are set to zero, and so are options that are not known.
//!
//! **Absent**: reassembly, so that later fragments have no payload; names in payload, such as DNS names.

mod addresses;
mod checksum;
mod icmp;
mod ip;
mod link;
mod transport;

pub use addresses::{Addresses, KEY};
use checksum::Change;

use crate::LinkType;
use crate::flow::link::Layer;

/// Largest number of packets that are inside one another. More are not legitimate.
const MOST_DEEP: u8 = 8;

/// Writer of frames with other addresses.
#[derive(Clone, Debug)]
pub struct Anonymizer {
    addresses: Addresses,
    /// Bytes of payload that are kept of each packet.
    payload: usize,
}

/// Part of a frame that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of bytes, from the begin of the frame on.
    pub len: usize,
    /// Whether bytes were cut off because they could not be taken apart.
    pub unknown: bool,
}

/// End of a walk over the headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// Payload from here to there, and nothing but zeros after it.
    Payload(usize, usize),
    /// Payload of which no byte is written: of a later fragment, or of a protocol whose payload has addresses.
    Never(usize),
    /// Bytes that could not be taken apart.
    Unknown(usize),
}

impl Anonymizer {
    /// Takes a key, and the number of bytes of payload that are kept of each packet.
    pub fn new(key: &[u8; KEY], payload: usize) -> Self {
        Self {
            addresses: Addresses::new(key),
            payload,
        }
    }

    /// Returns the addresses.
    pub fn addresses(&mut self) -> &mut Addresses {
        &mut self.addresses
    }

    /// Changes the captured bytes of a frame of this link type in place. Of them, the first [`Kept::len`] may be written. Frames of
    /// unknown link types have none.
    pub fn rewrite(&mut self, link: LinkType, data: &mut [u8]) -> Kept {
        let (payload, len) = (self.payload, data.len());
        let mut walk = Walk {
            addresses: &mut self.addresses,
            data,
            payload,
            deep: 0,
        };
        let tail = match Layer::of(link) {
            Some(layer) => walk.link(layer, 0, len),
            None => Tail::Unknown(0),
        };
        let (len, unknown) = match tail {
            Tail::Payload(at, end) if end - at <= payload => (len, false),
            Tail::Payload(at, _) => (at + payload, false),
            Tail::Never(at) => (at, at < len && payload > 0),
            Tail::Unknown(at) => (at, at < len),
        };
        Kept { len, unknown }
    }
}

/// Walk over the headers of a frame. Places are offsets into the frame. The end of a part is the end of the captured bytes that
/// belong to it.
struct Walk<'a> {
    addresses: &'a mut Addresses,
    data: &'a mut [u8],
    payload: usize,
    /// Number of packets around this one.
    deep: u8,
}

impl Walk<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.data[at]
    }

    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.data[at], self.data[at + 1]])
    }

    fn set_be16(&mut self, at: usize, value: u16) {
        self.data[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn zero(&mut self, at: usize, end: usize) {
        if at < end {
            self.data[at..end].fill(0);
        }
    }

    /// Replaces an IPv4 address. Returns the change of its bytes.
    fn ipv4_address(&mut self, at: usize) -> Change {
        let Some(place) = self.data[at..].first_chunk_mut::<4>() else {
            return Change::default();
        };
        let before = *place;
        *place = self.addresses.ipv4(before);
        Change::of(&before, place)
    }

    /// Replaces an IPv6 address. Returns the change of its bytes.
    fn ipv6_address(&mut self, at: usize) -> Change {
        let Some(place) = self.data[at..].first_chunk_mut::<16>() else {
            return Change::default();
        };
        let before = *place;
        *place = self.addresses.ipv6(before);
        Change::of(&before, place)
    }

    /// Replaces a link-layer address of six bytes.
    fn mac_address(&mut self, at: usize) {
        if let Some(place) = self.data[at..].first_chunk_mut::<6>() {
            *place = self.addresses.mac(*place);
        }
    }

    /// Changes bytes that a checksum covers, and the checksum with them, which is at `checksum` among them. `more` is the change of a
    /// pseudo-header.
    fn checked<T>(
        &mut self,
        (at, end): (usize, usize),
        checksum: usize,
        more: Change,
        change: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = checksum::sum(&self.data[at..end]);
        let done = change(self);
        let after = checksum::sum(&self.data[at..end]);
        if checksum + 2 <= end {
            let all = Change { before, after }.and(more);
            let changed = all.applied(self.be16(checksum));
            self.set_be16(checksum, changed);
        }
        done
    }
}
