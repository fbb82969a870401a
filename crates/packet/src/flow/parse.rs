//! From a frame to its key: a fast path for most frames, and a walk over the headers for all others.

use super::link::{self, Layer};
use super::tunnel::{self, Tunnels};
use super::{FlowKey, Hasher, NoKey, Offsets, ip};
use crate::LinkType;
use core::hint::select_unpredictable;

/// Largest number of nested tunnels that are entered.
pub(super) const MOST_NESTINGS: usize = 8;

/// Headers of an IP packet, for a firewall.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// The key of the packet.
    pub key: FlowKey,
    /// Captured bytes of the packet from its IP header on.
    pub ip: &'a [u8],
    /// Captured bytes from the transport header on; empty in a fragment other than the first.
    pub transport: &'a [u8],
    /// Kinds of the extension headers in front of the transport, as far as they are captured: bits of [`extensions`](super::extensions).
    pub extensions: u8,
    /// Identifier of the innermost virtual network that was entered, of VXLAN or GENEVE: 24 bits. `None` unless the parser looks
    /// inside tunnels.
    pub vni: Option<u32>,
}

/// Header fields of a plain TCP or UDP packet: see [`Parser::plain_v4`] and [`Parser::plain_v6`]. Addresses are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainHeaders<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Source port above the destination port.
    pub ports: u32,
    /// 6 for TCP, 17 for UDP.
    pub proto: u8,
    /// TCP flags; 0 for UDP.
    pub flags: u8,
}

/// Bytes of a transport header up to the TCP flags.
const TRANSPORT: usize = 14;

/// Ports and TCP flags of a header of which the IP header announces `claimed` bytes; `None` if it is none of TCP or UDP, or too short.
#[inline(always)]
fn ports_and_flags(proto: u8, claimed: usize, bytes: &[u8; TRANSPORT]) -> Option<(u32, u8)> {
    const TCP: u8 = 6;
    let ports = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    // Without a branch between both protocols, which follow each other in no order.
    let is_tcp = proto == TCP;
    let least = select_unpredictable(is_tcp, TRANSPORT, 4);
    let is_plain = (is_tcp | (proto == ip::UDP)) & (claimed >= least);
    is_plain.then_some((ports, bytes[TRANSPORT - 1] * u8::from(is_tcp)))
}

/// Finds the flow key of frames of one link type.
///
/// Walks Ethernet (including 802.3 and 802.2 SNAP), 802.1Q and 802.1ad tags, MPLS labels, PPPoE and
/// PPP, Cisco HDLC, BSD loopback, Linux cooked captures, raw IP, FDDI, frame relay, netfilter logs,
/// IP over InfiniBand, ipnet, and data frames of 802.11 with or without a radio header; IPv4 with
/// options and fragments; IPv6 with extension headers. TCP, UDP, SCTP, DCCP and UDP-Lite have
/// ports; keys of all other protocols have none. Checksums are ignored.
///
/// **Cost**: most frames take a fast path of few branches: Ethernet with at most one tag, IPv4 without options or IPv6 without
/// extension headers, and a protocol with ports. All others are walked header by header. No allocation.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    start: Layer,
    inner: bool,
    tunnels: Tunnels,
}

impl Parser {
    /// A parser for this link type; `None` if frames of this type have no keys.
    ///
    /// With `inner`, the key belongs to the innermost packet: inside IP in IP, GRE, ERSPAN, VXLAN, GENEVE,
    /// GTP-U and MPLS over IP, at most eight deep. If the packet inside has no key, the key of the
    /// packet around it is returned.
    pub fn new(link: LinkType, inner: bool) -> Option<Self> {
        Some(Self {
            start: Layer::of(link)?,
            inner,
            tunnels: Tunnels::default(),
        })
    }

    /// A parser that looks inside tunnels, if there are `tunnels`: see [`Self::new`].
    pub fn inside(link: LinkType, tunnels: Option<Tunnels>) -> Option<Self> {
        let parser = Self::new(link, tunnels.is_some())?;
        Some(Self {
            tunnels: tunnels.unwrap_or_default(),
            ..parser
        })
    }

    /// Whether the parser looks inside tunnels.
    pub(super) fn looks_inside(&self) -> bool {
        self.inner
    }

    /// The layer to which the first byte of a frame belongs.
    #[inline(always)]
    pub(super) fn start(&self) -> Layer {
        self.start
    }

    pub(super) fn tunnels(&self) -> &Tunnels {
        &self.tunnels
    }

    /// Whether a frame is of the commonest form: nothing between the headers of Ethernet, IP and a transport with ports, and no
    /// tunnel. `false` says nothing.
    #[inline]
    pub(super) fn is_bare(&self, data: &[u8]) -> bool {
        let mut key = FlowKey::NONE;
        self.start == Layer::Ethernet
            && data.get(12..14) != Some(&[0x81, 0])
            && plain(data, &mut key)
            && !(key.proto == ip::UDP && self.tunnels.has(key.dport))
    }

    /// The key of one frame, given its captured bytes.
    #[inline]
    pub fn key(&self, data: &[u8]) -> Result<FlowKey, NoKey> {
        let mut key = FlowKey::NONE;
        self.key_into(data, &mut key).map(|()| key)
    }

    /// Writes the key of one frame to `key`. If there is no key, the contents of `key` mean nothing.
    ///
    /// The key is written in wide words. A copy of the key made right after the call waits until these writes have arrived.
    #[inline]
    pub fn key_into(&self, data: &[u8], key: &mut FlowKey) -> Result<(), NoKey> {
        if self.start == Layer::Ethernet
            && plain(data, key)
            && !(self.inner && key.proto == ip::UDP && self.tunnels.has(key.dport))
        {
            return Ok(());
        }
        *key = self.walk(data)?;
        Ok(())
    }

    /// The result of [`Self::key`] for a plain frame, and the length of its IP header in bytes. Plain frames are Ethernet without tags,
    /// IPv4 without options or IPv6 without extension headers, no later fragment, and have ports. `None` for all other frames, and if the
    /// parser looks into tunnels.
    ///
    /// **Cost**: a fraction of the walk.
    #[inline(always)]
    pub(crate) fn plain_key(&self, data: &[u8]) -> Option<(FlowKey, usize)> {
        let is_plain = !self.inner && self.start == Layer::Ethernet;
        is_plain.then(|| plain_key(data))?
    }

    /// Writes the key to `key` and returns its [plain](Hasher::plain) hash. If there is no key, the contents of `key` mean
    /// nothing.
    pub fn key_and_hash(
        &self,
        data: &[u8],
        hasher: &Hasher,
        key: &mut FlowKey,
    ) -> Result<u64, NoKey> {
        self.key_into(data, key).map(|()| hasher.plain(key))
    }

    /// The part of this parser that finds the keys of most frames; `None` if its link type has no such part.
    #[inline]
    pub fn usual(&self) -> Option<Usual> {
        (self.start == Layer::Ethernet).then_some(Usual {
            inner: self.inner,
            has_more: self.tunnels.has_more(),
        })
    }

    /// Walks the headers one by one.
    #[inline(never)]
    #[cold]
    fn walk(&self, data: &[u8]) -> Result<FlowKey, NoKey> {
        self.walk_headers(data).map(|headers| headers.key)
    }

    /// Headers of the packet whose key [`Self::key`] gives. **Cost**: a walk over all headers.
    pub fn headers<'a>(&self, data: &'a [u8]) -> Result<Headers<'a>, NoKey> {
        self.walk_headers(data)
    }

    /// Offsets of the headers in a frame: of the packet whose key [`Self::key`] gives. **Cost**: a few loads for what [`Self::plain_v4`]
    /// and [`Self::plain_v6`] know, a walk over all headers for other frames.
    #[inline]
    pub fn offsets(&self, data: &[u8]) -> Offsets {
        /// Bytes of an Ethernet header.
        const LINK: usize = 14;
        let claimed = |at: usize| usize::from(u16::from_be_bytes([data[at], data[at + 1]]));
        // Both forms have bytes of a transport header within the length that their IP header claims.
        let (transport, proto, end) = if self.plain_v4(data).is_some() {
            (LINK + 20, data[LINK + 9], LINK + claimed(LINK + 2))
        } else if self.plain_v6(data).is_some() {
            (LINK + 40, data[LINK + 6], LINK + 40 + claimed(LINK + 4))
        } else {
            return self
                .headers(data)
                .map_or(Offsets::NONE, |headers| Offsets::of(data, &headers));
        };
        Offsets::with_transport(
            LINK,
            transport,
            proto,
            &data[transport..end.min(data.len())],
        )
    }

    /// Header fields of most frames of IPv4: TCP or UDP in an Ethernet frame without tags and in
    /// IPv4 without options, no later fragment; `None` for all others, and for a parser that looks
    /// into tunnels. The result is the same as [`Self::headers`] returns.
    ///
    /// **Cost**: a fraction of the walk. Inlined always, so that the fields stay in registers.
    #[inline(always)]
    pub fn plain_v4(&self, data: &[u8]) -> Option<PlainHeaders<u32>> {
        /// Bytes up to the end of the IP header.
        const IP: usize = 34;
        if self.inner || self.start != Layer::Ethernet {
            return None;
        }
        let head: &[u8; IP + TRANSPORT] = data.first_chunk()?;
        let is_plain = [head[12], head[13], head[14]] == [0x08, 0x00, 0x45]
            && [head[20] & 0x1f, head[21]] == [0, 0];
        if !is_plain {
            return None;
        }
        let number =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (claimed, proto) = (
            usize::from(u16::from_be_bytes([head[16], head[17]])),
            head[23],
        );
        let (ports, flags) =
            ports_and_flags(proto, claimed.checked_sub(20)?, head[IP..].first_chunk()?)?;
        Some(PlainHeaders {
            src: number(26),
            dst: number(30),
            ports,
            proto,
            flags,
        })
    }

    /// The same for IPv6 without extension headers.
    #[inline(always)]
    pub fn plain_v6(&self, data: &[u8]) -> Option<PlainHeaders<u128>> {
        /// Bytes up to the end of the IP header.
        const IP: usize = 54;
        if self.inner || self.start != Layer::Ethernet {
            return None;
        }
        let head: &[u8; IP + TRANSPORT] = data.first_chunk()?;
        if [head[12], head[13], head[14] >> 4] != [0x86, 0xdd, 6] {
            return None;
        }
        let (claimed, proto) = (
            usize::from(u16::from_be_bytes([head[18], head[19]])),
            head[20],
        );
        let (ports, flags) = ports_and_flags(proto, claimed, head[IP..].first_chunk()?)?;
        let address = |at: usize| {
            head[at..]
                .first_chunk()
                .map(|bytes| u128::from_be_bytes(*bytes))
        };
        Some(PlainHeaders {
            src: address(22)?,
            dst: address(38)?,
            ports,
            proto,
            flags,
        })
    }

    /// The identifier of the outermost VLAN tag of an Ethernet or Linux cooked frame; `None` without a tag.
    pub fn vlan(&self, data: &[u8]) -> Option<u16> {
        self.vlans(data).next()
    }

    /// The identifiers of all VLAN tags of an Ethernet or Linux cooked frame, the outermost first.
    pub fn vlans(&self, data: &[u8]) -> impl Iterator<Item = u16> {
        link::vlans(self.start, data)
    }

    #[inline(always)]
    fn walk_headers<'a>(&self, data: &'a [u8]) -> Result<Headers<'a>, NoKey> {
        let packet = link::to_ip(self.start, data)?;
        let mut around = packet.bytes();
        let (mut key, mut payload, mut extensions) = ip::key(packet)?;
        let mut vni = None;
        if self.inner {
            for _ in 0..MOST_NESTINGS {
                let Some(inside) = tunnel::enter(&key, payload, &self.tunnels) else {
                    break;
                };
                let Ok(packet) = link::to_ip(inside.layer, inside.bytes) else {
                    break;
                };
                let bytes = packet.bytes();
                let Ok(found) = ip::key(packet) else { break };
                (key, payload, extensions) = found;
                around = bytes;
                vni = inside.vni.or(vni);
            }
        }
        Ok(Headers {
            key,
            ip: around,
            transport: payload,
            extensions,
            vni,
        })
    }
}

/// Finds the keys of most Ethernet frames: frames of IPv4 with ports, without rare headers before the ports.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    inner: bool,
    /// Whether tunnels have more ports than the usual ports, so that any UDP packet may be a tunnel.
    has_more: bool,
}

impl Usual {
    /// The result of [`Parser::key_and_hash`], and whether the frame is for a [group](Parser::group) of stations; `None` for a frame
    /// that needs the parser itself.
    ///
    /// **Cost**: less than the key and then its hash, because the words of the key are hashed before they are stored. No call.
    #[inline(always)]
    pub fn key_and_hash(
        self,
        data: &[u8],
        hasher: &Hasher,
        key: &mut FlowKey,
    ) -> Option<(u64, bool)> {
        let short = short(data)?;
        if self.inner && short.is_tunnel(self.has_more) {
            return None;
        }
        *key = short.key();
        let hasher = hasher.short();
        let hash = hasher.hash(short.src, short.dst, short.ports, short.meta);
        Some((hash, short.is_for_group))
    }
}

/// The fast path, with the same result as the walk. Returns whether it found a key.
#[inline(always)]
fn plain(data: &[u8], key: &mut FlowKey) -> bool {
    let tag = if data.get(12..14) == Some(&[0x81, 0]) {
        4
    } else {
        0
    };
    // From here on, offsets count as in an untagged frame.
    let Some(data) = data.get(tag..) else {
        return false;
    };
    match plain_key(data) {
        Some((found, _)) => {
            *key = found;
            true
        }
        None => false,
    }
}

/// The key of a plain frame, and the length of its IP header in bytes: see [`Parser::plain_key`].
#[inline(always)]
fn plain_key(data: &[u8]) -> Option<(FlowKey, usize)> {
    if let Some(short) = short(data) {
        return Some((short.key(), 20));
    }
    let head = data.first_chunk::<58>()?;
    let length = u16::from_be_bytes([head[18], head[19]]);
    let usual = ([head[12], head[13]] == [0x86, 0xdd])
        & (head[14] >> 4 == 6)
        & (length >= 4)
        & ip::has_ports(head[20]);
    if !usual {
        return None;
    }
    let word = |at: usize| {
        u64::from_ne_bytes(
            *head[at..]
                .first_chunk()
                .expect("58 bytes hold both addresses"),
        )
    };
    let address = |at: usize| [word(at), word(at + 8)];
    let key = wide(
        [address(22), address(38)],
        ports([head[54], head[55], head[56], head[57]]),
        meta(6, head[20]),
    );
    Some((key, 40))
}

/// Contents of the key of an IPv4 packet with ports, as the words that are hashed, and the group bit of its frame.
struct Short {
    src: u32,
    dst: u32,
    ports: u32,
    meta: u32,
    /// The group bit of the destination.
    is_for_group: bool,
}

/// Reads an untagged Ethernet frame with IPv4 without options, no later fragment, and a protocol with ports.
#[inline(always)]
fn short(data: &[u8]) -> Option<Short> {
    let head = data.first_chunk::<38>()?;
    let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    // EtherType, version and header length in one comparison; the fourth byte is the type of service.
    let is_v4 = u32::from_be_bytes(word(12)) & 0xffff_ff00 == 0x0800_4500;
    let total = u16::from_be_bytes([head[16], head[17]]);
    let fragment = u16::from_be_bytes([head[20], head[21]]) & 0x1fff;
    let usual = is_v4 && total >= 24 && fragment == 0 && ip::has_ports(head[23]);
    usual.then(|| Short {
        src: u32::from_le_bytes(word(26)),
        dst: u32::from_le_bytes(word(30)),
        ports: ports(word(34)),
        meta: meta(4, head[23]),
        is_for_group: head[0] & 1 == 1,
    })
}

impl Short {
    #[inline(always)]
    fn key(&self) -> FlowKey {
        wide(
            [self.src, self.dst].map(|address| [u64::from(address).to_le(), 0]),
            self.ports,
            self.meta,
        )
    }

    #[inline(always)]
    fn is_tunnel(&self, has_more: bool) -> bool {
        self.meta as u8 == ip::UDP
            && (has_more || tunnel::is_tunnel_port((self.ports >> 16) as u16))
    }
}

/// Ports in the first bytes of a transport header: source port in the lower half, destination port in the upper half.
#[inline(always)]
fn ports(first: [u8; 4]) -> u32 {
    u32::from_be_bytes(first).rotate_left(16)
}

/// Protocol, family and flags of a packet with ports, one byte each from the lowest on.
#[inline(always)]
fn meta(family: u8, proto: u8) -> u32 {
    u32::from(proto) | u32::from(family) << 8 | u32::from(FlowKey::HAS_PORTS) << 16
}

/// Builds the key from five wide words: later reads are wide too, and would wait if the key were written in narrow words.
#[inline(always)]
fn wide([src, dst]: [[u64; 2]; 2], ports: u32, meta: u32) -> FlowKey {
    let rest = if cfg!(target_endian = "big") {
        u64::from(ports.rotate_left(16)) << 32 | u64::from(meta.swap_bytes())
    } else {
        u64::from(meta) << 32 | u64::from(ports)
    };
    zerocopy::transmute!([src[0], src[1], dst[0], dst[1], rest])
}
