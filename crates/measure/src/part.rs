//! Packets under the part of their flow key that a table counts.

use crate::counter::Counter;
use crate::geo::Places;
use crate::key::{RECEIVES, host_receives};
use crate::{KeyKind, Observation};
use core::borrow::Borrow;
use weir_packet::flow::{Facts, FlowKey, Hasher, ShortHasher};
use weir_sketch::Packet;

/// Packet under a part of its flow key. The part is never stored: a table compares its keys with the flow key of the packet.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    packet: &'a Observation,
    hasher: &'a Hasher,
    short: ShortHasher,
    kind: KeyKind,
    /// Mask of the IPv4 address bits that a prefix keeps.
    kept: u32,
    /// Whether this is the receiving side of a kind that counts each packet twice.
    receives: bool,
}

/// Counter of packets under their parts.
pub(crate) trait Count<'a> {
    /// Counts packets; `part` makes the part of one packet. The kind of key is a constant in `part`, so that fields that are
    /// zero in all keys of the kind cost nothing.
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>);
}

impl KeyKind {
    /// Returns the mask of the IPv4 address bits that a prefix keeps.
    fn kept(self) -> u32 {
        match self {
            Self::Src(prefix) | Self::Dst(prefix) | Self::Host(prefix)
                if prefix.v4 < u32::BITS as u8 =>
            {
                u32::from_le_bytes((!(u32::MAX >> prefix.v4)).to_be_bytes())
            }
            _ => u32::MAX,
        }
    }

    /// Calls `counter` with a function that makes parts of this kind, or the receiving sides of the packets.
    pub(crate) fn count_side<'a>(
        self,
        receives: bool,
        hasher: &'a Hasher,
        counter: impl Count<'a>,
    ) {
        match receives {
            true => self.count_receiving(hasher, counter),
            false => self.count(hasher, counter),
        }
    }

    /// Calls `counter` with a function that makes the receiving sides of the packets, for [`KeyKind::Host`].
    fn count_receiving<'a>(self, hasher: &'a Hasher, counter: impl Count<'a>) {
        let (short, kept) = (hasher.short(), self.kept());
        if let Self::Host(prefix) = self {
            counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Host(prefix),
                kept,
                receives: true,
            });
        }
    }

    /// Calls `counter` with a function that makes parts of this kind.
    pub(crate) fn count<'a>(self, hasher: &'a Hasher, counter: impl Count<'a>) {
        let kept = self.kept();
        let short = hasher.short();
        // Each kind has a closure of its own, so that the compiler makes code for each kind.
        match self {
            Self::FiveTuple => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::FiveTuple,
                kept,
                receives: false,
            }),
            Self::Pair => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Pair,
                kept,
                receives: false,
            }),
            Self::Src(prefix) => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Src(prefix),
                kept,
                receives: false,
            }),
            Self::Dst(prefix) => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Dst(prefix),
                kept,
                receives: false,
            }),
            Self::Sport => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Sport,
                kept,
                receives: false,
            }),
            Self::Dport => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Dport,
                kept,
                receives: false,
            }),
            Self::Proto => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Proto,
                kept,
                receives: false,
            }),
            Self::Host(prefix) => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind: Self::Host(prefix),
                kept,
                receives: false,
            }),
            // Rarer kinds share the code.
            kind => counter.count(move |packet| Part {
                packet,
                hasher,
                short,
                kind,
                kept,
                receives: false,
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

impl Part<'_> {
    #[inline(always)]
    fn projected(&self) -> FlowKey {
        let flow = &self.packet.flow;
        match (self.kind, self.receives) {
            (KeyKind::Host(prefix), true) => host_receives(prefix, flow),
            (kind, _) => kind.project(flow),
        }
    }
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
            receives,
        } = self;
        let flags = u32::from(flow.flags & FlowKey::HAS_PORTS) << 16;
        match kind {
            KeyKind::FiveTuple => *hash,
            KeyKind::Pair if flow.family == 4 => {
                short.hash(first(&flow.src), first(&flow.dst), 0, V4)
            }
            KeyKind::Src(_) if flow.family == 4 => short.hash(first(&flow.src) & kept, 0, 0, V4),
            KeyKind::Host(_) if flow.family == 4 && *receives => short.hash(
                first(&flow.dst) & kept,
                0,
                0,
                V4 | u32::from(RECEIVES) << 16,
            ),
            KeyKind::Host(_) if flow.family == 4 => short.hash(first(&flow.src) & kept, 0, 0, V4),
            KeyKind::Dst(_) if flow.family == 4 => short.hash(0, first(&flow.dst) & kept, 0, V4),
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
            _ => hasher.plain(&self.projected()),
        }
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.packet.bytes
    }

    #[inline(always)]
    fn key(&self) -> impl Borrow<FlowKey> {
        self.projected()
    }

    #[inline(always)]
    fn time_ns(&self) -> i64 {
        self.packet.time_ns
    }

    /// Compares the keys. Both keys are of this kind, so that fields that are zero in every key of the kind are not compared.
    #[inline(always)]
    fn is_of(&self, key: &FlowKey) -> bool {
        let Self {
            packet: Observation { flow, .. },
            kind,
            kept,
            receives,
            ..
        } = self;
        let has_ports = flow.flags & FlowKey::HAS_PORTS;
        match kind {
            KeyKind::FiveTuple => flow == key,
            KeyKind::Src(_) if flow.family == 4 => {
                key.family == 4 && first(&flow.src) & kept == first(&key.src)
            }
            KeyKind::Dst(_) if flow.family == 4 => {
                key.family == 4 && first(&flow.dst) & kept == first(&key.dst)
            }
            KeyKind::Host(_) if flow.family == 4 => {
                let (end, flags) = match receives {
                    true => (&flow.dst, RECEIVES),
                    false => (&flow.src, 0),
                };
                (key.family, key.flags) == (4, flags) && first(end) & kept == first(&key.src)
            }
            KeyKind::Sport => {
                (flow.sport, flow.proto, has_ports) == (key.sport, key.proto, key.flags)
            }
            KeyKind::Dport => {
                (flow.dport, flow.proto, has_ports) == (key.dport, key.proto, key.flags)
            }
            KeyKind::Proto => flow.proto == key.proto,
            _ => self.projected() == *key,
        }
    }
}

/// A packet under a part of its flow key, or under a key with facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    hash: u64,
    time_ns: i64,
    key: FlowKey,
    bytes: u32,
}

impl Packet<FlowKey> for Stored {
    #[inline(always)]
    fn hash(&self) -> u64 {
        self.hash
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    fn key(&self) -> impl Borrow<FlowKey> {
        &self.key
    }

    #[inline(always)]
    fn is_of(&self, key: &FlowKey) -> bool {
        self.key == *key
    }

    #[inline(always)]
    fn time_ns(&self) -> i64 {
        self.time_ns
    }
}

/// Stores the packets under their parts.
pub(crate) struct Fill<'a, 'b> {
    pub packets: &'a [Observation],
    pub parts: &'b mut Vec<Stored>,
}

impl<'a> Count<'a> for Fill<'a, '_> {
    #[inline(always)]
    fn count(self, part: impl Fn(&'a Observation) -> Part<'a>) {
        self.parts.clear();
        self.parts.extend(self.packets.iter().map(
            #[inline(always)]
            |packet| {
                let part = part(packet);
                Stored {
                    hash: part.hash(),
                    time_ns: part.time_ns(),
                    key: *part.key().borrow(),
                    bytes: part.bytes(),
                }
            },
        ));
    }
}

/// Maker of keys that are stored before they are counted: keys of rare kinds, and keys with facts.
pub(crate) struct Maker<'a> {
    kind: KeyKind,
    packets: &'a [Observation],
    facts: &'a [Facts],
}

impl<'a> Maker<'a> {
    /// Makes the keys of packets, at most [`TOGETHER`](crate::counter::TOGETHER). `facts` has one for each packet, or is empty if no
    /// fact is known.
    pub fn new(kind: KeyKind, packets: &'a [Observation], facts: &'a [Facts]) -> Self {
        Self {
            kind,
            packets,
            facts,
        }
    }

    /// Counts the packets in a table; `parts` is a buffer.
    pub fn count(&self, table: &mut Counter, hasher: &Hasher, parts: &mut Vec<Stored>) {
        let kind = self.kind;
        self.fill(hasher, parts, |flow, facts, bytes| {
            kind.sending(flow, facts, bytes)
        });
        table.update(parts, &[]);
        if kind.counts_twice() {
            self.fill(hasher, parts, |flow, facts, _| kind.other_end(flow, facts));
            table.update(parts, &[]);
        }
    }

    /// Counts both ends of the packets in a table, under keys from a database.
    pub fn count_places(
        &self,
        table: &mut Counter,
        hasher: &Hasher,
        parts: &mut Vec<Stored>,
        places: &mut Places,
    ) {
        for receives in [false, true] {
            self.fill(hasher, parts, |flow, _, _| {
                Some(places.key(self.kind, flow, receives))
            });
            table.update(parts, &[]);
        }
    }

    fn fill(
        &self,
        hasher: &Hasher,
        parts: &mut Vec<Stored>,
        mut key: impl FnMut(&FlowKey, &Facts, u32) -> Option<FlowKey>,
    ) {
        let item = |(i, packet): (usize, &Observation)| {
            let facts = self.facts.get(i).unwrap_or(&Facts::NONE);
            let key = key(&packet.flow, facts, packet.bytes)?;
            Some(Stored {
                hash: hasher.plain(&key),
                time_ns: packet.time_ns,
                key,
                bytes: packet.bytes,
            })
        };
        parts.clear();
        parts.extend(self.packets.iter().enumerate().filter_map(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Prefix};

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
            .flat_map(|bits| [Prefix::of(bits), Prefix { v4: 20, v6: bits }])
            .flat_map(|prefix| [KeyKind::Src(prefix), KeyKind::Dst(prefix)]);
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
