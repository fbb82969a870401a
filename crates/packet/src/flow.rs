//! The flow key of a frame, and its hash.
//!
//! [`Parser`] turns a frame into a [`FlowKey`]. [`Hasher`] turns the key into a [`FlowHash`]: one value for both directions of
//! a conversation and one for this direction. Both run for every packet: no allocation, no error types, no text. Frames are
//! printed by [`line`](crate::line).

mod facts;
mod hash;
mod ip;
pub(crate) mod link;
mod offsets;
mod parse;
mod reframe;
pub(crate) mod tunnel;
mod wlan;

pub use facts::{Facts, Group};
pub use hash::{FlowHash, Hasher, ShortHasher};
pub use offsets::{Offsets, headers_len};
pub use parse::{Headers, Parser, PlainHeaders, Usual};
pub use reframe::{Around, InnerLink, Keep, Reframed};
pub use tunnel::{MOST_VXLAN_PORTS, Tunnels};

/// Kinds of extension headers, a bit each: see [`Headers::extensions`]. **Source**: RFC 8200, section 4; RFC 4302.
pub mod extensions {
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 1;
    /// Routing header.
    pub const ROUTING: u8 = 1 << 1;
    /// Fragment header.
    pub const FRAGMENT: u8 = 1 << 2;
    /// Authentication header, the only kind that IPv4 also has.
    pub const AUTHENTICATION: u8 = 1 << 3;
    /// Destination options.
    pub const DESTINATION: u8 = 1 << 4;
}

use core::net::IpAddr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Endpoints of a packet: addresses, ports and protocol, in the direction of the packet.
///
/// **Layout**: 40 bytes without padding, so that two keys are equal if their bytes are. An IPv4 address fills the first four
/// bytes of `src` or `dst`; the other twelve are zero. Ports are numbers in native byte order. `HAS_PORTS` says whether they
/// are present.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FlowKey {
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// IP protocol number of the transport, after the authentication and IPv6 extension headers
    /// that were captured.
    pub proto: u8,
    /// IP version, 4 or 6; 0 in keys that hold no address.
    pub family: u8,
    /// Flag bits: `HAS_PORTS`, `LATER_FRAGMENT`.
    pub flags: u8,
    /// Always zero.
    pub reserved: u8,
}

impl FlowKey {
    /// Bit of `flags`: the packet had ports.
    pub const HAS_PORTS: u8 = 1;
    /// Bit of `flags`: a fragment other than the first of its packet, so that the ports are in another frame.
    pub const LATER_FRAGMENT: u8 = 2;

    /// The empty key: no address, no ports.
    pub const NONE: Self = Self {
        src: [0; 16],
        dst: [0; 16],
        sport: 0,
        dport: 0,
        proto: 0,
        family: 0,
        flags: 0,
        reserved: 0,
    };

    /// The source address; `None` if the key holds no address.
    pub fn source(&self) -> Option<IpAddr> {
        address(self.family, &self.src)
    }

    /// The destination address; `None` if the key holds no address.
    pub fn destination(&self) -> Option<IpAddr> {
        address(self.family, &self.dst)
    }

    /// The ports, source first; `None` if the packet had none.
    pub fn ports(&self) -> Option<(u16, u16)> {
        (self.flags & Self::HAS_PORTS != 0).then_some((self.sport, self.dport))
    }

    /// Whether the source is greater than the destination, by address and then by port, both as numbers.
    ///
    /// True for exactly one direction of a conversation, and for neither if both ends are the same.
    #[inline]
    pub fn is_reversed(&self) -> bool {
        let (src, dst) = (u128::from_be_bytes(self.src), u128::from_be_bytes(self.dst));
        (src > dst) | ((src == dst) & (self.sport > self.dport))
    }

    /// The key of the packets in the opposite direction.
    pub fn turned(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            ..*self
        }
    }

    /// One key for both directions: the key that is not [reversed](Self::is_reversed).
    pub fn canonical(&self) -> Self {
        if self.is_reversed() {
            self.turned()
        } else {
            *self
        }
    }
}

/// The key as five 64-bit words, in the machine's byte order.
#[inline(always)]
fn wide(key: &FlowKey) -> [u64; 5] {
    zerocopy::transmute!(*key)
}

// Tables compare keys for every packet, so the comparison has no branch per field and no call.
impl PartialEq for FlowKey {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (wide(self), wide(other));
        (0..a.len()).fold(0, |differs, i| differs | (a[i] ^ b[i])) == 0
    }
}

impl Eq for FlowKey {}

impl core::hash::Hash for FlowKey {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        wide(self).hash(state);
    }
}

fn address(family: u8, bytes: &[u8; 16]) -> Option<IpAddr> {
    match family {
        4 => Some(IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
        6 => Some(IpAddr::from(*bytes)),
        _ => None,
    }
}

/// Reason for a frame without a flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NoKey {
    /// The frame does not carry IP, but for example ARP, LLDP or spanning tree.
    NotIp,
    /// The captured bytes end before the addresses do.
    Truncated,
    /// A header contradicts itself: an IP version other than the announced one, a header length
    /// below the minimum, or an IPv4 total length below that of its header. Or the captured bytes
    /// end within the options of IPv4, or more tags and labels are in front of IP than are walked.
    Malformed,
}
