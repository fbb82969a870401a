//! Packets under the part of their flow key that a table counts.

use crate::{KeyKind, Observation};
use core::borrow::Borrow;
use weir_packet::flow::{FlowKey, Hasher, ShortHasher};
use weir_sketch::{Item, Packet};

/// Packet under a part of its flow key. The part is never stored: a table compares its keys with the flow key of the packet.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    packet: &'a Observation,
    hasher: &'a Hasher,
    short: ShortHasher,
    kind: KeyKind,
    /// Mask of the IPv4 address bits that a prefix keeps.
    kept: u32,
}

/// Counter of packets under their parts.
pub(crate) trait Count<'a> {
    /// Counts packets; `part` makes the part of one packet. The kind of key is a constant in `part`, so that fields that are
    /// zero in all keys of the kind cost nothing.
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>);
}

impl KeyKind {
    /// Calls `counter` with a function that makes parts of this kind.
    pub(crate) fn count<'a>(self, hasher: &'a Hasher, counter: impl Count<'a>) {
        let kept = match self {
            Self::Src(bits) | Self::Dst(bits) if bits < u32::BITS as u8 => {
                u32::from_le_bytes((!(u32::MAX >> bits)).to_be_bytes())
            }
            _ => u32::MAX,
        };
        let short = hasher.short();
        // Each kind has a closure of its own, so that the compiler makes code for each kind.
        match self {
            Self::FiveTuple => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::FiveTuple,
                kept,
            }),
            Self::Conversation => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Conversation,
                kept,
            }),
            Self::Pair => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Pair,
                kept,
            }),
            Self::Src(bits) => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Src(bits),
                kept,
            }),
            Self::Dst(bits) => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Dst(bits),
                kept,
            }),
            Self::Sport => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Sport,
                kept,
            }),
            Self::Dport => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Dport,
                kept,
            }),
            Self::Proto => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Proto,
                kept,
            }),
        }
    }
}

/// Returns the bytes of an address that IPv4 uses.
#[inline(always)]
fn first(address: &[u8; 16]) -> u32 {
    let [a, b, c, d, ..] = *address;
    u32::from_le_bytes([a, b, c, d])
}

/// Returns both ports of a key.
#[inline(always)]
fn ports(flow: &FlowKey) -> u32 {
    u32::from(flow.sport) | u32::from(flow.dport) << 16
}

/// Returns the fields of a key after its ports.
#[inline(always)]
fn meta(flow: &FlowKey) -> u32 {
    u32::from_le_bytes([flow.proto, flow.family, flow.flags, flow.reserved])
}

/// Returns whether `key` is the key of the conversation of an IPv4 packet. The function compares both directions without a
/// branch, because the direction cannot be predicted.
#[inline(always)]
fn is_conversation_v4(flow: &FlowKey, key: &FlowKey) -> bool {
    let (src, dst) = (first(&key.src), first(&key.dst));
    let there = first(&flow.src) ^ src | first(&flow.dst) ^ dst | ports(flow) ^ ports(key);
    let back =
        first(&flow.src) ^ dst | first(&flow.dst) ^ src | ports(flow).rotate_left(16) ^ ports(key);
    // If the product of two 32-bit numbers is zero, one of the numbers is zero.
    (meta(flow) == meta(key)) & (u64::from(there) * u64::from(back) == 0)
}

impl Packet<FlowKey> for Part<'_> {
    /// Returns the [plain](Hasher::plain) hash of the part.
    #[inline(always)]
    fn hash(&self) -> u64 {
        /// Value of `meta` for an IPv4 key without a protocol.
        const V4: u32 = 4 << 8;
        let Self {
            packet: Observation { flow, hash, .. },
            hasher,
            short,
            kind,
            kept,
        } = self;
        let flags = u32::from(flow.flags & FlowKey::HAS_PORTS) << 16;
        match kind {
            KeyKind::FiveTuple => *hash,
            KeyKind::Conversation if flow.family == 4 => short.conversation(flow),
            KeyKind::Conversation => hasher.flow(flow).symmetric,
            KeyKind::Pair if flow.family == 4 => {
                short.hash(first(&flow.src), first(&flow.dst), 0, V4)
            }
            KeyKind::Src(_) if flow.family == 4 => short.hash(first(&flow.src) & kept, 0, 0, V4),
            KeyKind::Dst(_) if flow.family == 4 => short.hash(0, first(&flow.dst) & kept, 0, V4),
            KeyKind::Pair | KeyKind::Src(_) | KeyKind::Dst(_) => hasher.plain(&kind.project(flow)),
            KeyKind::Sport => {
                short.hash(0, 0, u32::from(flow.sport), u32::from(flow.proto) | flags)
            }
            KeyKind::Dport => short.hash(
                0,
                0,
                u32::from(flow.dport) << 16,
                u32::from(flow.proto) | flags,
            ),
            KeyKind::Proto => short.hash(0, 0, 0, flow.proto.into()),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.packet.bytes
    }

    #[inline(always)]
    fn key(&self) -> impl Borrow<FlowKey> {
        self.kind.project(&self.packet.flow)
    }

    /// Compares the keys. Both keys are of this kind, so that fields that are zero in every key of the kind are not compared.
    #[inline(always)]
    fn is_of(&self, key: &FlowKey) -> bool {
        let Self {
            packet: Observation { flow, .. },
            kind,
            kept,
            ..
        } = self;
        let has_ports = flow.flags & FlowKey::HAS_PORTS;
        match kind {
            KeyKind::FiveTuple => flow == key,
            KeyKind::Conversation if flow.family == 4 => is_conversation_v4(flow, key),
            KeyKind::Src(_) if flow.family == 4 => {
                key.family == 4 && first(&flow.src) & kept == first(&key.src)
            }
            KeyKind::Dst(_) if flow.family == 4 => {
                key.family == 4 && first(&flow.dst) & kept == first(&key.dst)
            }
            KeyKind::Sport => {
                (flow.sport, flow.proto, has_ports) == (key.sport, key.proto, key.flags)
            }
            KeyKind::Dport => {
                (flow.dport, flow.proto, has_ports) == (key.dport, key.proto, key.flags)
            }
            KeyKind::Proto => flow.proto == key.proto,
            KeyKind::Conversation | KeyKind::Pair | KeyKind::Src(_) | KeyKind::Dst(_) => {
                kind.project(flow) == *key
            }
        }
    }
}

/// Stores the packets under their parts.
pub(crate) struct Fill<'a, 'b> {
    pub packets: &'a [Observation],
    pub parts: &'b mut Vec<Item<FlowKey>>,
}

impl<'a> Count<'a> for Fill<'a, '_> {
    #[inline(always)]
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
        self.parts.clear();
        self.parts.extend(self.packets.iter().map(
            #[inline(always)]
            |packet| {
                let part = part(packet);
                Item {
                    hash: part.hash(),
                    bytes: part.bytes(),
                    key: *part.key().borrow(),
                }
            },
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// Counter that counts nothing and compares each packet with the keys of all packets.
    struct Compare<'a>(&'a [Observation], KeyKind);

    impl<'a> Count<'a> for Compare<'a> {
        fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
            let Self(packets, kind) = self;
            for packet in packets {
                let part = part(packet);
                for other in packets {
                    let (mine, theirs) = (kind.project(&packet.flow), kind.project(&other.flow));
                    assert_eq!(
                        part.is_of(&theirs),
                        mine == theirs,
                        "{kind}: {:?} {theirs:?}",
                        packet.flow
                    );
                }
            }
        }
    }

    fn flow(src: &[u8], dst: &[u8], sport: u16, dport: u16, proto: u8) -> FlowKey {
        let address = |bytes: &[u8]| core::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0));
        let family = if src.len() == 4 { 4 } else { 6 };
        let (src, dst) = (address(src), address(dst));
        FlowKey {
            src,
            dst,
            sport,
            dport,
            proto,
            family,
            flags: FlowKey::HAS_PORTS,
            reserved: 0,
        }
    }

    #[test]
    fn parts_of_packets_are_projections_and_their_hashes() {
        let hasher = Hasher::new(5);
        let v4 = flow(&[10, 1, 2, 3], &[192, 0, 2, 7], 1111, 53, 17);
        let v6 = flow(
            &[0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6],
            &[0xfe; 16],
            1111,
            53,
            17,
        );
        // IPv6 addresses that begin with the bytes of `v4`; keys that differ in the last byte or in one field only.
        let like_v4 = flow(
            &[10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[192, 0, 2, 7, 0],
            1111,
            53,
            17,
        );
        let mut late = v6;
        late.src[15] = 7;
        let flows = [
            v4,
            FlowKey {
                sport: 53,
                dport: 1111,
                ..v4
            },
            FlowKey {
                src: v4.dst,
                dst: v4.src,
                ..v4
            },
            FlowKey { proto: 6, ..v4 },
            FlowKey {
                dst: v4.src,
                dport: v4.sport,
                ..v4
            },
            flow(&[10, 1, 2, 131], &[192, 0, 3, 7], 0, 0, 17),
            FlowKey {
                sport: 0,
                dport: 0,
                flags: 0,
                ..v4
            },
            FlowKey {
                sport: 0,
                dport: 0,
                flags: FlowKey::LATER_FRAGMENT,
                ..v4
            },
            v6,
            late,
            like_v4,
            FlowKey::NONE,
        ];
        let packets: Vec<Observation> = flows
            .iter()
            .flat_map(|flow| [*flow, flow.turned()])
            .enumerate()
            .map(|(i, flow)| {
                let mut packet = Observation::mark(hasher.plain(&flow));
                packet.arrived(Kind::Flow, 60 + i as u32, 0);
                packet.flow = flow;
                packet
            })
            .collect();
        let mut parts = Vec::new();
        let prefixes = [1, 24, 31, 32, 33, 64, 127]
            .into_iter()
            .flat_map(|bits| [KeyKind::Src(bits), KeyKind::Dst(bits)]);
        for kind in KeyKind::NAMES
            .into_iter()
            .map(|(_, kind)| kind)
            .chain(prefixes)
        {
            kind.count(
                &hasher,
                Fill {
                    packets: &packets,
                    parts: &mut parts,
                },
            );
            assert_eq!(parts.len(), packets.len());
            for (part, packet) in parts.iter().zip(&packets) {
                assert_eq!(
                    (part.key, part.bytes),
                    (kind.project(&packet.flow), packet.bytes),
                    "{kind}"
                );
                assert_eq!(part.hash, hasher.plain(&part.key), "{kind}");
            }
            kind.count(&hasher, Compare(&packets, kind));
        }
    }
}
