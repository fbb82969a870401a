//! From a frame to its key: the straight way for what most frames are, and the walk for all others.

use super::link::{self, Layer, Packet};
use super::{FlowKey, NoKey, ip, tunnel};
use crate::LinkType;

/// Tunnels in tunnels that are entered.
const MOST_NESTINGS: usize = 8;

/// A packet inside a tunnel: its link type and its bytes.
pub type Inside<'a> = (LinkType, &'a [u8]);

/// Finds the flow key of frames of one link type.
///
/// Walks Ethernet (802.3 and 802.2 SNAP too), 802.1Q and 802.1ad tags, MPLS labels, PPPoE and PPP, Cisco HDLC, BSD
/// loopback, Linux cooked captures, raw IP, FDDI, frame relay, netfilter logs, IP over InfiniBand, ipnet, and data frames of
/// 802.11 with or without a radio header; IPv4 with options and fragments; IPv6 with extension headers. TCP, UDP,
/// SCTP, DCCP and UDP-Lite have ports; all other protocols have keys without. Checksums are not looked at.
///
/// **Cost**: an Ethernet frame with at most one tag, IPv4 without options or IPv6 without extension headers, and one of the
/// protocols with ports takes a straight way of few branches; all others are walked header by header. No allocation.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    start: Layer,
    inner: bool,
}

impl Parser {
    /// A parser for this link type, `None` if no key can be had from it.
    ///
    /// With `inner`, the key is that of the innermost packet: inside IP in IP, GRE, VXLAN, GENEVE, GTP-U and MPLS over IP,
    /// at most eight deep. Where the packet inside has no key, the key of the packet around it stands.
    pub fn new(link: LinkType, inner: bool) -> Option<Self> {
        Some(Self { start: Layer::of(link)?, inner })
    }

    /// The key of one frame, given its captured bytes.
    #[inline]
    pub fn key(&self, data: &[u8]) -> Result<FlowKey, NoKey> {
        let mut key = FlowKey::NONE;
        self.key_into(data, &mut key).map(|()| key)
    }

    /// The same, put where it is wanted; without a key, what is there means nothing.
    ///
    /// A key is written in wide words, and whoever copies it at once waits until they have arrived.
    #[inline]
    pub fn key_into(&self, data: &[u8], key: &mut FlowKey) -> Result<(), NoKey> {
        if self.start == Layer::Ethernet
            && plain(data, key)
            && !(self.inner && key.proto == ip::UDP && tunnel::is_tunnel_port(key.dport))
        {
            return Ok(());
        }
        *key = self.walk(data)?.0;
        Ok(())
    }

    /// Link type and bytes of the packet inside the innermost tunnel of a frame; [`Self::key`] gives the key of the same packet.
    /// `None` if the frame is no tunnel, or if the parser does not look into tunnels. The bytes are a part of `data`.
    ///
    /// Where a tunnel carries Ethernet, what is inside is an Ethernet frame; everywhere else it is raw IP.
    #[inline]
    pub fn innermost<'a>(&self, data: &'a [u8]) -> Option<Inside<'a>> {
        let mut key = FlowKey::NONE;
        let plain = self.start == Layer::Ethernet && plain(data, &mut key);
        if !self.inner || plain && !(key.proto == ip::UDP && tunnel::is_tunnel_port(key.dport)) {
            return None;
        }
        self.walk(data).ok()?.1
    }

    /// Header by header: the key, and the packet inside the innermost tunnel, if there is one.
    #[inline(never)]
    #[cold]
    fn walk<'a>(&self, data: &'a [u8]) -> Result<(FlowKey, Option<Inside<'a>>), NoKey> {
        let (mut key, mut payload) = ip::key(link::to_ip(self.start, data)?)?;
        let mut innermost = None;
        if self.inner {
            for _ in 0..MOST_NESTINGS {
                let Some((layer, inside)) = tunnel::enter(&key, payload) else { break };
                let Ok(packet) = link::to_ip(layer, inside) else { break };
                let frame = match (layer, &packet) {
                    (Layer::Ethernet, _) => (LinkType::ETHERNET, inside),
                    (_, Packet::V4(bytes) | Packet::V6(bytes)) => (LinkType::RAW, *bytes),
                };
                let Ok(found) = ip::key(packet) else { break };
                (key, payload) = found;
                innermost = Some(frame);
            }
        }
        Ok((key, innermost))
    }
}

/// The straight way: what it finds, the walk would find. Says whether it found a key.
#[inline(always)]
fn plain(data: &[u8], key: &mut FlowKey) -> bool {
    let tag = if data.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
    // From here on, offsets are those of an untagged frame.
    let Some(data) = data.get(tag..) else { return false };
    let Some(head) = data.first_chunk::<38>() else { return false };
    match [head[12], head[13]] {
        [0x08, 0x00] => {
            let total = u16::from_be_bytes([head[16], head[17]]);
            let fragment = u16::from_be_bytes([head[20], head[21]]) & 0x1fff;
            let usual = (head[14] == 0x45) & (total >= 24) & (fragment == 0) & ip::has_ports(head[23]);
            if !usual {
                return false;
            }
            let address = |at: usize| {
                let [a, b, c, d] = [head[at], head[at + 1], head[at + 2], head[at + 3]];
                [u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), 0]
            };
            *key = with_ports(4, head[23], address(26), address(30), [head[34], head[35], head[36], head[37]]);
        }
        [0x86, 0xdd] => {
            let Some(head) = data.first_chunk::<58>() else { return false };
            let length = u16::from_be_bytes([head[18], head[19]]);
            let usual = (head[14] >> 4 == 6) & (length >= 4) & ip::has_ports(head[20]);
            if !usual {
                return false;
            }
            let word = |at: usize| u64::from_ne_bytes(*head[at..].first_chunk().expect("58 bytes hold both addresses"));
            let address = |at: usize| [word(at), word(at + 8)];
            *key = with_ports(6, head[20], address(22), address(38), [head[54], head[55], head[56], head[57]]);
        }
        _ => return false,
    }
    true
}

/// The key in five wide words: who reads it a moment later reads wide words, and would wait for narrow ones to be written.
#[inline(always)]
fn with_ports(family: u8, proto: u8, src: [u64; 2], dst: [u64; 2], [a, b, c, d]: [u8; 4]) -> FlowKey {
    let [[s0, s1], [d0, d1]] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])].map(u16::to_ne_bytes);
    let rest = u64::from_ne_bytes([s0, s1, d0, d1, proto, family, FlowKey::HAS_PORTS, 0]);
    zerocopy::transmute!([src[0], src[1], dst[0], dst[1], rest])
}
