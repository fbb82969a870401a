//! The packet of a frame without the headers around it, for expressions that look at fixed places.
//!
//! A tcpdump expression finds the IP header right after the link header, and the ports right after the IP header. [`Reframed`] has
//! the bytes in that form: tags, labels and shims in front of the IP header are left out, and so are the headers between IP and
//! the transport. Nothing is copied but the headers that change.

use super::link::{self, Layer, Packet};
use super::parse::MOST_NESTINGS;
use super::{Parser, ip, tunnel};
use crate::{Frame, LinkType};

/// Headers that stay where they are, because an expression looks at them itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// VLAN tags, MPLS labels, PPPoE, and all else between the link header and the IP header.
    pub tags: bool,
    /// Headers between IP and the transport: extension headers of IPv6 and authentication headers.
    pub extensions: bool,
}

/// Headers that were around a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Number of VLAN tags in front of the outermost packet.
    pub tags: u8,
    /// Number of MPLS labels there.
    pub labels: u8,
    /// Whether PPPoE was there.
    pub pppoe: bool,
    /// Whether another header was there, such as SNAP or the link header inside a pseudo-wire.
    pub other: bool,
    /// Whether extension headers or an authentication header were in front of the transport.
    pub extensions: bool,
    /// Whether the packet was inside a tunnel.
    pub tunnel: bool,
}

/// Link header in front of a [`Reframed`] packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerLink {
    /// The header of the frame's own link type.
    Own,
    /// An Ethernet header.
    Ethernet,
    /// None: the packet begins with its IP header.
    Raw,
}

impl InnerLink {
    /// The link type of the packet, inside a frame of link type `own`.
    pub fn of(self, own: LinkType) -> LinkType {
        match self {
            Self::Own => own,
            Self::Ethernet => LinkType::ETHERNET,
            Self::Raw => LinkType::RAW,
        }
    }
}

/// Most bytes of [`Between`]: a cooked header, version 2, and an IPv4 header with options.
const MOST_BETWEEN: usize = 80;

/// Headers that are rewritten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    bytes: [u8; MOST_BETWEEN],
    len: usize,
}

impl Between {
    const EMPTY: Self = Self {
        bytes: [0; MOST_BETWEEN],
        len: 0,
    };

    /// Appends a header, and returns the copy.
    pub(super) fn push(&mut self, header: &[u8]) -> &mut [u8] {
        let at = self.len;
        self.len += header.len();
        let copy = &mut self.bytes[at..self.len];
        copy.copy_from_slice(header);
        copy
    }
}

/// The innermost packet of a frame, in three pieces that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Reframed<'a> {
    /// Link header in front.
    pub link: InnerLink,
    /// Headers that are left out.
    pub around: Around,
    before: &'a [u8],
    between: Between,
    after: &'a [u8],
}

impl<'a> Reframed<'a> {
    /// The three pieces, any of which may be empty.
    pub fn pieces(&self) -> [&[u8]; 3] {
        [
            self.before,
            &self.between.bytes[..self.between.len],
            self.after,
        ]
    }

    /// The packet as one piece, if it is one.
    pub fn contiguous(&self) -> Option<&'a [u8]> {
        let is_one = self.before.is_empty() && self.between.len == 0;
        is_one.then_some(self.after)
    }

    /// Number of captured bytes.
    pub fn len(&self) -> usize {
        self.before.len() + self.between.len + self.after.len()
    }

    /// Whether there are no captured bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the wire of the packet, given the frame it is in. Bytes cut off by the capture belong to the innermost packet, unless
    /// it ends before them.
    pub fn wire_len(&self, frame: &Frame<'_>) -> u32 {
        let at = (self.after.as_ptr() as usize).saturating_sub(frame.data.as_ptr() as usize);
        let head = (self.before.len() + self.between.len) as u32;
        let rest = if at + self.after.len() < frame.data.len() {
            self.after.len() as u32
        } else {
            frame.wire_len.saturating_sub(at as u32)
        };
        head.saturating_add(rest)
    }
}

/// The headers on the way to an IP header.
struct Trace<'a> {
    /// The last link header: its layer, and the bytes from it on.
    link: (Layer, &'a [u8]),
    /// Whether that is the header in front of all.
    is_first: bool,
    /// Whether no header was passed yet.
    is_start: bool,
    /// Number of headers after the last link header.
    shims: usize,
    around: Around,
}

impl<'a> Trace<'a> {
    fn new(layer: Layer, data: &'a [u8]) -> Self {
        Self {
            link: (layer, data),
            is_first: true,
            is_start: true,
            shims: 0,
            around: Around::default(),
        }
    }

    fn pass(&mut self, layer: Layer, data: &'a [u8], header: usize) {
        let is_start = std::mem::replace(&mut self.is_start, false);
        if header == 0 {
            return;
        }
        let around = &mut self.around;
        match layer {
            Layer::Type(0x8100 | 0x88a8 | 0x9100) => around.tags = around.tags.saturating_add(1),
            Layer::Mpls => around.labels = around.labels.saturating_add(1),
            Layer::PppoeSession if !is_start => around.pppoe = true,
            Layer::Ppp if around.pppoe => {}
            // The frame of a pseudo-wire.
            Layer::Ethernet if !is_start => {
                around.other = true;
                (self.link, self.is_first, self.shims) = ((layer, data), false, 0);
                return;
            }
            // libpcap knows LLC behind the headers of FDDI and 802.11, but not in place of a type of Ethernet.
            Layer::Llc
                if matches!(
                    self.link.0,
                    Layer::Ethernet | Layer::Cooked | Layer::Cooked2
                ) =>
            {
                around.other = true;
            }
            // A part of the link header.
            _ => return,
        }
        self.shims += 1;
    }
}

impl Parser {
    /// The innermost packet of a frame, as an expression can judge it: [`Self::key`] gives the key of the same packet. `None` if
    /// that is the frame itself, and if the parser does not look inside.
    ///
    /// A frame with tags that carries no IP is itself without its tags.
    ///
    /// **Cost**: a few comparisons for most frames. A walk over the headers for all others, and copies of the headers that change.
    #[inline]
    pub fn reframed<'a>(&self, data: &'a [u8], keep: Keep) -> Option<Reframed<'a>> {
        if !self.looks_inside() || self.is_bare(data) {
            return None;
        }
        self.reframe(data, keep)
    }

    #[cold]
    #[inline(never)]
    fn reframe<'a>(&self, data: &'a [u8], keep: Keep) -> Option<Reframed<'a>> {
        let (mut layer, mut bytes, mut around) = (self.start(), data, Around::default());
        let mut found = None;
        for nesting in 0..=MOST_NESTINGS {
            let mut trace = Trace::new(layer, bytes);
            // A header is passed when the next one is met.
            let mut met = None::<(Layer, &[u8])>;
            let walked = link::walk(layer, bytes, |layer, data| {
                if let Some((before, from)) = met.replace((layer, data)) {
                    trace.pass(before, from, from.len() - data.len());
                }
            });
            let keyed = walked.and_then(|packet| Ok((ip::key(packet)?, packet)));
            let Ok(((key, payload, extensions), packet)) = keyed else {
                if nesting == 0 && !keep.tags {
                    return untagged(layer, data);
                }
                break;
            };
            if nesting == 0 {
                around = trace.around;
            }
            if keep.tags {
                // Inside a pseudo-wire is behind a label.
                (trace.link, trace.is_first) = ((layer, bytes), true);
            }
            around.extensions = extensions != 0;
            around.tunnel = nesting > 0;
            let own = if nesting == 0 {
                InnerLink::Own
            } else {
                InnerLink::Raw
            };
            found = Some((trace, packet, own));
            let Some(inside) = tunnel::enter(&key, payload, self.tunnels()) else {
                break;
            };
            (layer, bytes) = (inside.layer, inside.bytes);
        }
        let (trace, packet, own) = found?;
        rebuilt(&trace, &packet, own, around, keep)
    }
}

/// The packet with its last link header, and without what `keep` does not name; `None` if that is the frame itself.
fn rebuilt<'a>(
    trace: &Trace<'a>,
    packet: &Packet<'a>,
    own: InnerLink,
    around: Around,
    keep: Keep,
) -> Option<Reframed<'a>> {
    let (layer, base) = trace.link;
    let mut between = Between::EMPTY;
    let kind: [u8; 2] = match packet {
        Packet::V4(_) => [0x08, 0x00],
        Packet::V6(_) => [0x86, 0xdd],
    };
    let ip = packet.bytes();
    let link = match (own, layer) {
        (_, Layer::Ethernet) if own == InnerLink::Raw || !trace.is_first => InnerLink::Ethernet,
        (own, _) => own,
    };
    let strips = trace.shims > 0 && !keep.tags;
    let whole = &base[..base.len() - ip.len()];
    let (link, before) = match (link, layer) {
        (InnerLink::Raw, _) => (InnerLink::Raw, &[][..]),
        _ if !strips => (link, whole),
        (_, Layer::Ethernet) => {
            between.push(&kind);
            (link, &base[..12])
        }
        (_, Layer::Cooked) => {
            between.push(&kind);
            (link, &base[..14])
        }
        (_, Layer::Cooked2) => {
            between.push(&kind);
            between.push(&base[2..20]);
            (link, &[][..])
        }
        _ => (InnerLink::Raw, &[][..]),
    };
    let shorter = match keep.extensions {
        false => ip::shorten(packet, &mut between),
        true => None,
    };
    match shorter {
        Some(after) => Some(Reframed {
            link,
            around,
            before,
            between,
            after,
        }),
        // One piece of the frame, or the frame itself.
        None if between.len == 0 => {
            let after = match before.len() {
                0 => ip,
                _ => base,
            };
            (link != InnerLink::Own || around.tunnel).then_some(Reframed {
                link,
                around,
                before: &[],
                between,
                after,
            })
        }
        None => Some(Reframed {
            link,
            around,
            before,
            between,
            after: ip,
        }),
    }
}

/// A frame without its VLAN tags, whatever it carries; `None` if it has none.
fn untagged(start: Layer, data: &[u8]) -> Option<Reframed<'_>> {
    let tags = link::vlans(start, data).count();
    let mut between = Between::EMPTY;
    let (before, after) = match start {
        // The contents of a frame with more tags than are walked are not known.
        _ if tags == 0 || tags == link::MOST_SHIMS => return None,
        // The bytes after the tags begin with the type of the contents.
        Layer::Ethernet => (data.get(..12)?, data.get(12 + 4 * tags..)?),
        Layer::Cooked => (data.get(..14)?, data.get(14 + 4 * tags..)?),
        Layer::Cooked2 => {
            let end = 20 + 4 * tags;
            between.push(data.get(end - 2..end)?);
            between.push(data.get(2..20)?);
            (&[][..], data.get(end..)?)
        }
        _ => return None,
    };
    let around = Around {
        tags: tags as u8,
        ..Around::default()
    };
    Some(Reframed {
        link: InnerLink::Own,
        around,
        before,
        between,
        after,
    })
}
